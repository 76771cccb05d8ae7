"""Three algorithms, one result: Hoyer's alternation, Potluru's sorting, and ours, compared."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


class _Worst:
    """The largest of a series of numbers, and which one it was."""

    def __init__(self) -> None:
        self.value = 0.0
        self.index = 0

    def see(self, value: float, index: int) -> None:
        if value > self.value:
            self.value, self.index = value, index


def _measure(settings: Settings, cell: Cell) -> Outcome[Agreement]:
    l1, l2 = hoyer.target_norms(cell.n, cell.sparseness)
    limit = tolerance(settings.dtype)
    watch = Stopwatch()
    deviations = {name: _Worst() for name in _OTHERS}
    precision = _Worst()
    undefined = disagreements = 0
    at_fault: set[str] = set()
    for index in range(cell.vectors):
        x = draw(settings, cell.n, generator(settings, "agreement", cell, index))
        with watch(OURS):
            solution = hoyer.solve(x, l1=l1, l2=l2, nonnegative=True)
        ours = solution.value
        if not solution.unique:
            undefined += 1
            continue
        found = {name: _deviation(name, watch, x, ours, l1, l2) for name in _OTHERS}
        for name, deviation in found.items():
            deviations[name].see(deviation, index)
        form = closed_form(x, ours, l1, l2)
        right = form is not None and holds(form, x, l1, l2)
        error = error_of(form, x, ours) if form is not None and right else math.inf
        precision.see(error, index)
        differing = {name for name, deviation in found.items() if not deviation <= limit}
        if differing:
            disagreements += 1
        # Ours is judged by itself; where it is right, whoever differs is not.
        at_fault |= differing if error <= limit else {OURS}
    record = Agreement(
        *cell,
        *(number for worst in deviations.values() for number in (worst.value, worst.index)),
        *(precision.value, precision.index),
        undefined,
        disagreements,
        "+".join(sorted(at_fault)),
    )
    return Outcome([record], watch.measurements("agreement", cell))


def _deviation(
    name: str, watch: Stopwatch, x: Vector, ours: Vector, l1: float, l2: float
) -> float:
    """Return the deviation of another algorithm's result; infinite if it has none."""
    try:
        with watch(name):
            theirs = _OTHERS[name](x, l1, l2)
    except FloatingPointError:
        return math.inf
    theirs -= ours
    return float(np.max(np.abs(theirs, out=theirs)) / ours.max())


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
