"""The projection in plain array operations: from arrays to values and records."""

import math
from typing import Any, NamedTuple

from ...options import Options
from ...plan import Plan
from ...projection import Active
from .closed_form import Asked, Goal, Outcome, nearest_points, noise_of
from .namespace import Namespace
from .products import lengths_of, mask_of, per_vector
from .search import READS, Entries, moments


def check_solver(options: Options) -> None:
    """Refuse the paper's solvers, which need the compiled core."""
    if options.solver != "auto":
        raise ValueError(
            f"solver={options.solver!r} needs hoyer's compiled core, which works on NumPy arrays "
            "and CPU tensors; elsewhere there is 'auto' alone"
        )


def project(x: Any, plan: Plan, xp: Namespace) -> tuple[Any, Any]:
    """Project the vectors in the last axis; return the values and the records, in a last axis.

    Targets are NumPy arrays, of one number or one for each vector, or arrays of x's library that
    broadcast to the batch. NaN comes out where a vector or its target is bad.
    """
    check_solver(plan.options)
    wide, x = xp.wide(x), xp.stopped(x)
    there = mask_of(plan, x, xp)
    if there is not None:
        x = xp.where(there, x, 0.0)
    noise = noise_of(x.dtype, wide, xp)
    asked = _asked(xp.astype(x, wide), there, plan, xp)
    value, record = _written(nearest_points(asked.what, plan, noise), asked, xp)
    if not plan.nonnegative:
        value = xp.where(x < 0, -value, value)
    return xp.narrowed(value, x.dtype), record


class Checked(NamedTuple):
    """What is asked, with numbers that do no harm where that is bad, or nothing."""

    what: Asked
    valid: Any
    """Whether vector and target are."""
    empty: Any
    """Whether a vector has no entries; None if all have."""


def _asked(x: Any, there: Any, plan: Plan, xp: Namespace) -> Checked:
    """Return what is asked of vectors of the wide type."""
    finite = xp.all(xp.isfinite(x))
    x = xp.where(finite, x, 0.0)
    column = x[..., :1]
    n = lengths_of(plan, column, xp)
    ratio, slack, slack_low, l2 = (per_vector(numbers, column, xp) for numbers in plan.target)
    known = ~xp.isnan(ratio) & ~xp.isnan(l2)
    empty = None
    if there is not None:
        # Those without entries take part with all they do not have.
        empty = n == 0
        n = xp.where(empty, float(plan.n), n)
        there, known = there | empty, known | empty
    valid = finite & known
    # Bad vectors take part with numbers that do no harm; they become NaN at the end.
    fine = valid if empty is None else valid & ~empty
    goal = Goal(
        n,
        xp.where(fine, ratio, 1.0),
        xp.where(fine, slack, n - 1.0),
        xp.where(fine, slack_low, 0.0),
        xp,
    )
    w = Entries(x if plan.nonnegative else abs(x), there, xp)
    return Checked(Asked(x, w, goal, xp.where(fine, l2, 1.0)), valid, empty)


def _written(found: Outcome, asked: Checked, xp: Namespace) -> tuple[Any, Any]:
    """Return the values and the records; NaN where vector or target is bad."""
    _, valid, empty = asked
    if empty is not None:
        found = found.without(empty, float(Active.NONE), xp)
    bad = xp.where(valid, xp.zeros_like(found.active), math.nan)
    record = xp.joined(
        xp.where(valid, found.shift, math.nan),
        xp.where(valid, found.scale, 0.0),
        xp.where(valid, found.support_size, 0.0),
        xp.full_like(found.active, READS),
        xp.astype(~valid | found.unique, found.active.dtype),
        found.l1 + bad,
        found.l2 + bad,
        xp.where(valid, found.active, 0.0),
    )
    return found.value + bad, record


class Sums(NamedTuple):
    """Algorithm 1: what every vector has above its pivot."""

    count: Any
    mean: Any
    deviation: Any
    """The standard deviation about the mean."""
    below: Any
    """The largest entry that is not above the pivot, or minus infinity."""
    above: Any
    """The smallest entry above it, or infinity."""

    def told(self, xp: Namespace) -> Any:
        """Return all of it in a last axis."""
        return xp.joined(*(numbers[..., None] for numbers in self))


def sums(x: Any, pivots: Any, xp: Namespace) -> Sums:
    """Return the sums over the entries above a pivot for each vector in the last axis."""
    x, pivots = (xp.stopped(xp.astype(array, xp.wide(x))) for array in (x, pivots))
    inside = x > pivots[..., None]
    above = xp.lowest(xp.where(inside, x, math.inf))
    below = xp.highest(xp.where(inside, -math.inf, x))
    count = xp.total(xp.astype(inside, x.dtype))
    mean, deviation = _mean_and_deviation(x, inside, above, xp)
    return Sums(*(numbers[..., 0] for numbers in (count, mean, deviation, below, above)))


def summary(x: Any, xp: Namespace) -> Any:
    """Return the ends of each vector, and mean and deviation of all entries, in a last axis.

    NaN where a vector is not finite.
    """
    x = xp.stopped(xp.astype(x, xp.wide(x)))
    finite = xp.all(xp.isfinite(x))
    x = xp.where(finite, x, 0.0)
    low, high = xp.lowest(x), xp.highest(x)
    found = xp.joined(low, high, *_mean_and_deviation(x, x >= low, low, xp))
    return xp.where(finite, found, math.nan)


def _mean_and_deviation(x: Any, inside: Any, origin: Any, xp: Namespace) -> tuple[Any, Any]:
    """Return both of the entries inside, which are not below `origin`: NaN, if there are none.

    They are taken of differences from there, in units of their size: squares are floats, and
    entries that are equal have no deviation at all.
    """
    origin = xp.where(xp.isinf(origin), 0.0, origin)
    # Halved only where a difference overflows: those of subnormal numbers would be rounded.
    far = xp.isinf(xp.highest(xp.where(inside, x - origin, 0.0)))
    half = xp.where(far, 0.5, xp.ones_like(origin))
    t = xp.where(inside, x * half - origin * half, 0.0)
    unit = xp.power_of_two(xp.highest(t))
    count, mean, spread = moments(t / unit, inside, xp)
    none = xp.where(xp.any(inside), xp.zeros_like(mean), math.nan)
    mean, deviation = mean * unit + origin * half, xp.sqrt(spread / count) * unit
    return mean / half + none, deviation / half + none
