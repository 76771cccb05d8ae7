"""Three algorithms, one result: Hoyer's alternation, Potluru's sorting, and ours, compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import hoyer
from hoyer.paper import hoyer2004, potluru2013
from hoyer.paper.experiments.experiment import Experiment, Outcome, Stopwatch
from hoyer.paper.experiments.precision import closed_form, error_of, holds
from hoyer.paper.experiments.runner import run_alone
from hoyer.paper.experiments.settings import Cell, Settings, draw, generator, grid

__all__ = ["AGREEMENT", "OURS", "SPARSENESS", "Agreement", "agreement", "tolerance"]

Vector = NDArray[Any]

SPARSENESS = [round(0.025 * step, 3) for step in range(1, 40)]
OURS = "hoyer"

_OTHERS: dict[str, Callable[[Vector, float, float], Vector]] = {
    "hoyer2004": lambda x, l1, l2: hoyer2004.project(x, l1, l2).value,
    "potluru2013": lambda x, l1, l2: potluru2013.project(x, l1, l2).value,
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the results for the vectors of a cell differ, relative to the largest entry."""

    n: int
    sparseness: float
    vectors: int
    hoyer2004: float
    """The largest deviation of the alternating algorithm from ours."""
    hoyer2004_vector: int
    """The number of the vector where it was found."""
    potluru2013: float
    """The largest deviation of the sorting algorithm from ours."""
    potluru2013_vector: int
    precision: float
    """The largest error of ours, in higher precision."""
    precision_vector: int
    undefined: int
    """Vectors whose projection is not unique: not compared."""
    disagreements: int
    """Vectors for which another result differs by more than the tolerance."""
    at_fault: str
    """The methods that are off by more than it in higher precision, joined by "+"."""


def tolerance(dtype: str) -> float:
    """Return up to what deviation, relative to the largest entry, results count as equal.

    For the older algorithms, which work in float64, 4096 eps; for ours, the 32 eps it promises.

    Examples
    --------
    >>> tolerance("float64") < 1e-12 < tolerance("float32") < 1e-5
    True
    """
    return 4096 * float(np.finfo(np.float64).eps) + 32 * float(np.finfo(dtype).eps)


def _cells(settings: Settings) -> list[Cell]:
    sizes = settings.sizes(quick=18, full=26)
    return grid(settings, sizes, SPARSENESS, lambda n: vectors_of_grid(n, full=settings.full))


def vectors_of_grid(n: int, *, full: bool) -> int:
    """Return how many vectors a cell of the large grid gets: fewer where they are long.

    Examples
    --------
    >>> [vectors_of_grid(2**k, full=True) for k in (2, 12, 16, 26)]
    [1000, 1000, 62, 3]
    """
    if full:
        return min(1000, max(1000 * 2**12 // n, 3))
    return min(20, max(2**16 // n, 1))


class _Comparison(NamedTuple):
    """What was found for one vector."""

    hoyer2004: float
    potluru2013: float
    precision: float
    at_fault: frozenset[str]


def _measure(settings: Settings, cell: Cell) -> Outcome[Agreement]:
    watch = Stopwatch()
    compared = [_compare(settings, cell, index, watch) for index in range(cell.vectors)]
    found = [comparison or _Comparison(0.0, 0.0, 0.0, frozenset()) for comparison in compared]
    limit = tolerance(settings.dtype)
    record = Agreement(
        *cell,
        *_worst([comparison.hoyer2004 for comparison in found]),
        *_worst([comparison.potluru2013 for comparison in found]),
        *_worst([comparison.precision for comparison in found]),
        undefined=compared.count(None),
        disagreements=sum(max(c.hoyer2004, c.potluru2013) > limit for c in found),
        at_fault="+".join(sorted(frozenset().union(*(c.at_fault for c in found)))),
    )
    return Outcome([record], watch.measurements("agreement", cell))


def _worst(values: list[float]) -> tuple[float, int]:
    """Return the largest value, and which one it is."""
    return max(values), values.index(max(values))


def _compare(settings: Settings, cell: Cell, index: int, watch: Stopwatch) -> _Comparison | None:
    """Project one vector by all algorithms; None if its projection is not unique."""
    x = draw(settings, cell.n, generator(settings, "agreement", cell, index))
    l1, l2 = hoyer.target_norms(cell.n, cell.sparseness)
    with watch(OURS):
        solution = hoyer.solve(x, l1=l1, l2=l2, nonnegative=True)
    if not solution.unique:
        return None
    ours = solution.value
    deviations = {}
    for name, project in _OTHERS.items():
        try:
            with watch(name):
                theirs = project(x, l1, l2)
            deviations[name] = _distance(theirs, ours)
        except FloatingPointError:
            # It says itself that it has no result.
            deviations[name] = math.inf
    form = closed_form(x, ours, l1, l2)
    error = math.inf
    if form is not None and holds(form, x, l1, l2):
        error = error_of(form, x, ours)
    # Ours is judged by itself; where it is right, whoever differs is not.
    limit = tolerance(settings.dtype)
    differing = {name for name, deviation in deviations.items() if deviation > limit}
    at_fault = frozenset(differing if error <= limit else {OURS})
    return _Comparison(**deviations, precision=error, at_fault=at_fault)


def _distance(theirs: Vector, ours: Vector) -> float:
    """Return the largest deviation, relative to the largest entry; `theirs` is used up."""
    theirs -= ours
    return float(np.abs(theirs, out=theirs).max() / ours.max())


AGREEMENT = Experiment(
    name="agreement",
    title="Agreement with the alternating and the sorting algorithm",
    record=Agreement,
    cells=_cells,
    measure=_measure,
    closes=lambda _: True,
    bytes_per_entry=112,
)


def agreement(
    settings: Settings | None = None, *, out: str | Path | None = None, jobs: int = 1
) -> list[Agreement]:
    """Compare three algorithms for n = 4, 8, 16, ... and sparseness 0.025, 0.05, ..., 0.975.

    Parameters
    ----------
    settings : Settings, optional
        How many vectors of which kind, and how long; the quick protocol by default.
    out : path, optional
        A directory to keep results in; with it, a run that was stopped goes on where it was.
    jobs : int
        Worker processes; 1 works in this process.

    Returns
    -------
    list of Agreement
        One record for each length and target.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, agreement
    >>> records = agreement(Settings(vectors=1, max_log2n=4))
    >>> len(records), max(record.hoyer2004 for record in records) < 1e-13
    (117, True)
    """
    return run_alone(AGREEMENT, settings, out, jobs)
