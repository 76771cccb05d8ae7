"""Figure 1 of the paper: the auxiliary function of a random vector, and the ways to its zero."""

from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hoyer
from hoyer.paper import algorithms
from hoyer.paper.experiments.counts import PAPER_SOLVERS
from hoyer.paper.experiments.experiment import Experiment, Outcome
from hoyer.paper.experiments.runner import run_alone
from hoyer.paper.experiments.settings import Cell, Settings, draw, generator

__all__ = ["CURVE", "ENTRIES", "PSI", "ZERO", "Point", "psi"]

# Few enough entries that each step of the derivative can be seen, and a zero amid the others. One
# vector is an illustration: which solver needs fewest evaluations here is chance.
N = 20
SPARSENESS = 0.6
POINTS_PER_INTERVAL = 12

CURVE, ENTRIES, ZERO = "curve", "entries", "zero"


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation of the auxiliary function."""

    n: int
    sparseness: float
    vectors: int
    series: str
    """"curve", "entries" (of x, ascending), a solver (its path), or "zero"."""
    step: int
    """The number of the point within its series."""
    alpha: float
    psi: float
    dpsi: float
    """The derivative; at an entry of x that to the right of it."""
    finished: int
    """1 if the zero lies between the same two entries as alpha."""


def _cells(settings: Settings) -> list[Cell]:
    return [Cell(N, SPARSENESS, 1)]


def _vector(settings: Settings, cell: Cell) -> NDArray[np.float64]:
    """Return the first random vector for which the paper defines Psi: one less sparse."""
    # It ends: a vector of any of the distributions is less sparse with high probability.
    for index in count():
        x = draw(settings, cell.n, generator(settings, "psi", cell, index)).astype(np.float64)
        if hoyer.sparseness(x) < cell.sparseness:
            return x
    raise AssertionError


def _measure(settings: Settings, cell: Cell) -> Outcome[Point]:
    x = _vector(settings, cell)
    l1, l2 = hoyer.target_norms(cell.n, cell.sparseness)
    solutions = {name: algorithms.project(x, l1, l2, name) for name in PAPER_SOLVERS}
    series: dict[str, list[float]] = {
        CURVE: _curve(x),
        # Psi is not defined at the maximum.
        ENTRIES: sorted(set(x.tolist()))[:-1],
        **{name: list(solution.path) for name, solution in solutions.items()},
        ZERO: [solutions[PAPER_SOLVERS[0]].shift],
    }
    points = []
    for name, alphas in series.items():
        for step, alpha in enumerate(alphas):
            aux = algorithms.auxiliary(x, l1, l2, alpha)
            values = (aux.psi, aux.dpsi, int(aux.finished))
            points.append(Point(*cell, name, step, alpha, *values))
    return Outcome(points)


def _curve(x: NDArray[np.float64]) -> list[float]:
    """Return where to look for a curve with sharp steps: in every interval, its ends included."""
    ends = [0.0, *np.unique(x).tolist()]
    alphas: list[float] = []
    for left, right in pairwise(ends):
        last = float(np.nextafter(right, 0.0))
        alphas += np.linspace(left, last, POINTS_PER_INTERVAL).tolist()
    # At the maximum itself nothing is left; just below it the sums have no digits.
    return alphas[: -POINTS_PER_INTERVAL // 2]


def _is_zero(point: Point) -> bool:
    return point.series == ZERO


PSI = Experiment(
    name="psi",
    title="Figure 1: the auxiliary function and its zero",
    record=Point,
    cells=_cells,
    measure=_measure,
    closes=_is_zero,
    bytes_per_entry=32,
    options=frozenset(),
)


def psi(
    settings: Settings | None = None, *, out: str | Path | None = None, jobs: int = 1
) -> list[Point]:
    """Evaluate Psi and its derivative for a random vector, and follow each solver to the zero.

    Parameters
    ----------
    settings : Settings, optional
        The kind of vector.
    out : path, optional
        A directory to keep results in.
    jobs : int
        Worker processes; there is only one cell, so that one does the work.

    Returns
    -------
    list of Point
        The curve, the entries of the vector, the path of each solver, and the zero.

    Examples
    --------
    >>> from hoyer.paper.experiments import psi
    >>> points = psi()
    >>> [round(point.alpha, 3) for point in points if point.series == "newton_sqr"]
    [0.0, 0.472, 0.809, 0.68]
    """
    return run_alone(PSI, settings, out, jobs)
