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
from hoyer.paper.experiments.settings import Cell, Settings, Steps, draw, generator

__all__ = ["AGREEMENT", "OURS", "Agreement", "agreement", "cells_of_checks", "promise", "tolerance"]

Vector = NDArray[Any]

SPARSENESS = [round(0.025 * step, 3) for step in range(1, 40)]
COARSE = [0.025, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.975]
COARSE_FROM = 2**23
QUICK: Steps = ((12, 20), (14, 4), (18, 1))
FULL: Steps = ((12, 1000), (16, 100), (20, 10), (26, 1))

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
    """Ours where it breaks its promise in higher precision, else who differs; joined by "+"."""


def tolerance(dtype: str) -> float:
    """Return up to what deviation, relative to the largest entry, results count as equal.

    For the older algorithms, which work in float64, 4096 eps; and what ours is allowed.

    Examples
    --------
    >>> tolerance("float64") < 1e-12 < tolerance("float32") < 1e-5
    True
    """
    return 4096 * float(np.finfo(np.float64).eps) + promise(dtype)


def promise(dtype: str) -> float:
    """Return the largest error of ours, relative to the largest entry: the 32 eps it promises.

    Examples
    --------
    >>> promise("float64") < 1e-14
    True
    """
    return 32 * float(np.finfo(dtype).eps)


def cells_of_checks(settings: Settings) -> list[Cell]:
    """Return the grid of this check and of the gradient's, thinner where vectors are long.

    The paper has 1000 vectors in every cell. At n = 2^26 one vector takes the older algorithms
    about a minute: that would be a month.

    Examples
    --------
    >>> cells = cells_of_checks(Settings(full=True))
    >>> sum(cell.n == 2**12 for cell in cells), sum(cell.n == 2**26 for cell in cells)
    (39, 11)
    """
    return [
        Cell(n, sparseness, settings.count(n, quick=QUICK, full=FULL))
        for n in settings.sizes(quick=18, full=26)
        for sparseness in (SPARSENESS if n < COARSE_FROM else COARSE)
    ]


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
        except FloatingPointError:
            # It says itself that it has no result.
            deviations[name] = math.inf
        else:
            deviations[name] = _distance(theirs, ours)
            del theirs  # one more vector at a time
    error = _error(x, ours, l1, l2)
    # Ours is judged by itself; where it is right, whoever differs is not.
    limit = tolerance(settings.dtype)
    differing = {name for name, deviation in deviations.items() if deviation > limit}
    at_fault = frozenset(differing if error <= promise(settings.dtype) else {OURS})
    return _Comparison(**deviations, precision=error, at_fault=at_fault)


def _distance(theirs: Vector, ours: Vector) -> float:
    """Return the largest deviation, relative to the largest entry; `theirs` is used up."""
    theirs -= ours
    deviation = float(np.abs(theirs, out=theirs).max() / ours.max())
    return math.inf if math.isnan(deviation) else deviation


def _error(x: Vector, ours: Vector, l1: float, l2: float) -> float:
    """Return the error of ours in higher precision, infinity if its support is wrong."""
    form = closed_form(x, ours, l1, l2)
    if form is None or not holds(form, x, l1, l2):
        return math.inf
    return error_of(form, x, ours)


AGREEMENT = Experiment(
    name="agreement",
    title="Agreement with the alternating and the sorting algorithm",
    record=Agreement,
    cells=cells_of_checks,
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
