"""The gradient product against the central difference quotient."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hoyer
from hoyer.paper.experiments.agreement import cells_of_checks
from hoyer.paper.experiments.experiment import Experiment, Outcome, Stopwatch
from hoyer.paper.experiments.runner import run_alone
from hoyer.paper.experiments.settings import Cell, Settings, draw, generator

__all__ = ["GRADIENT", "NOISE_LIMIT", "Gradient", "gradient", "tolerance"]

Vector = NDArray[Any]

_EPS = float(np.finfo(np.float64).eps)
# A quotient whose rounding errors may reach this says nothing: the step had to be too short.
NOISE_LIMIT = 1e-6


@dataclass(frozen=True, slots=True)
class Gradient:
    """How far the gradient product differs from difference quotients.

    Deviations are relative to max|y| / beta, the largest entry that a product with y can be
    expected to have: the gradient is 1 / beta times an orthogonal projector.
    """

    n: int
    sparseness: float
    vectors: int
    deviation: float
    """The largest."""
    deviation_vector: int
    """The number of the vector where it was found."""
    median: float
    """The median over the vectors."""
    kinks: int
    """Vectors so close to a point where the projection has no derivative that no step is left."""


def tolerance(dtype: str) -> float:
    """Return the largest deviation that counts as verified.

    Ten times the rounding error that is admitted in a quotient, and that of the product itself.

    Examples
    --------
    >>> tolerance("float64") < 1.1e-5
    True
    """
    return 10 * NOISE_LIMIT + 256 * float(np.finfo(dtype).eps)


def _measure(settings: Settings, cell: Cell) -> Outcome[Gradient]:
    watch = Stopwatch()
    found = [_deviation(settings, cell, index, watch) for index in range(cell.vectors)]
    deviations = [deviation for deviation in found if deviation is not None]
    # Without a single quotient there is nothing to report: not a number.
    worst, median = max(deviations, default=np.nan), np.nan
    if deviations:
        median = float(np.median(deviations))
    index = found.index(worst) if deviations else 0
    record = Gradient(*cell, worst, index, median, found.count(None))
    return Outcome([record], watch.measurements("gradient", cell))


def _deviation(settings: Settings, cell: Cell, index: int, watch: Stopwatch) -> float | None:
    """Compare both for a vector and a random direction; None next to a kink."""
    rng = generator(settings, "gradient", cell, index)
    x = draw(settings, cell.n, rng)
    l1, l2 = hoyer.target_norms(cell.n, cell.sparseness)
    solution = hoyer.solve(x, l1=l1, l2=l2, nonnegative=True)
    step = _step(x, solution)
    if step is None:
        return None
    # The quotient is always taken in float64.
    after, before = x.astype(np.float64), x.astype(np.float64)
    y = rng.uniform(-step, step, cell.n)
    after += y
    before -= y
    # The direction as rounding left it: the difference of the two points is exact.
    np.subtract(after, before, out=y)
    y /= 2 * step
    for point in (after, before):
        hoyer.project_(point, l1=l1, l2=l2, nonnegative=True)
    if np.any((after > 0) != (before > 0)):
        return None
    after -= before
    after /= 2 * step
    del before
    with watch("gradient product"):
        product = solution.jvp(y.astype(x.dtype, copy=False))
    after -= product
    return float(np.abs(after).max() * solution.scale / np.abs(y).max())


def _step(x: Vector, solution: hoyer.Projection[Vector]) -> float | None:
    """Return the step for the quotient, None if none is long enough to see through rounding.

    The error of the quotient is of third order in the step, measured in standard deviations of the
    support; its rounding error grows as the step falls. The cubic root of eps balances them. No
    entry may enter or leave the support on the way, which bounds the step by the distance of
    alpha from its neighbours.
    """
    if not solution.unique:
        return None
    p = solution.value
    deviation = float(solution.scale) * float(np.std(p[p > 0], dtype=np.float64))
    gap = float(np.abs(x - solution.shift).min())
    step = min(_EPS ** (1 / 3) * deviation, gap / 8)
    noise = _EPS * float(p.max()) * float(solution.scale)
    return step if noise < NOISE_LIMIT * step else None


GRADIENT = Experiment(
    name="gradient",
    title="The gradient product against central differences",
    record=Gradient,
    cells=cells_of_checks,
    measure=_measure,
    closes=lambda _: True,
    bytes_per_entry=64,
)


def gradient(
    settings: Settings | None = None, *, out: str | Path | None = None, jobs: int = 1
) -> list[Gradient]:
    """Verify the gradient product on the grid of `agreement`.

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
    list of Gradient
        One record for each length and target.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, gradient
    >>> records = gradient(Settings(vectors=1, max_log2n=4))
    >>> len(records), max(record.deviation for record in records) < 1e-6
    (117, True)
    """
    return run_alone(GRADIENT, settings, out, jobs)
