"""The search in plain array operations: any library and device, no look at a number.

A device must not be asked how far it is, so there is no loop that ends when it is done: the support
is found by sorting, then confirmed by a fixed number of exact steps. What is compared and summed is
s = (max - x)/unit: 0 at the maximum, about 1 where the support ends. So the scale of the data does
not matter, and ties are exact zeros.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ...options import Options
from ...plan import Plan
from ...projection import Active
from .namespace import Namespace
from .products import largest

STEPS = 3
"""Exact steps after sorting; each one ends closer to the support, from either side."""

CHALLENGES = 2
"""How often the support without its smallest entries is tried."""

READS = 3 + 2 * (STEPS + CHALLENGES)
"""What `evaluations` says: every full read before the write."""


COARSE = 4 * 2.0**-10
"""`Noise.entries` of float16: results of such types are what the formula says, rounded once."""


class Noise(NamedTuple):
    """What rounding does to vectors of one type, for zeros that are to stay zero."""

    norms: float
    """How far the ratio of norms of a vector in D may be off by it, relatively."""
    entries: float
    """The same for its entries, relative to the largest and the mean."""


def noise_of(dtype: Any, wide: Any, xp: Namespace) -> Noise:
    """Return the noise in vectors of a type, what is received being computed in the wide one."""
    kind = xp.finfo(dtype)
    eps = float(kind.eps)
    # Half types are correctly rounded, others right within a few eps.
    off = 1 if kind.bits == 16 else 4
    return Noise(off * eps + 8 * float(xp.finfo(wide).eps), 4 * eps)


class Goal(NamedTuple):
    """The target of every vector, with an axis of length 1 appended."""

    n: int
    ratio: Any
    slack: Any
    slack_low: Any
    xp: Namespace

    @property
    def k(self) -> Any:
        """(l1/l2)**2, rounded."""
        return self.n - self.slack

    def excess(self, count: Any) -> Any:
        """Return count - K with twice the digits of K."""
        return ((count - self.n) + self.slack) + self.slack_low

    @property
    def whole(self) -> Any:
        """The largest integer that is not above K."""
        xp = self.xp
        near = xp.floor(self.k)
        near = xp.where(self.excess(near) > 0, near - 1, near)
        return xp.where(self.excess(near + 1) <= 0, near + 1, near)


class Size(NamedTuple):
    """A factor fraction * power, a norm or beta: near the largest float it need not be one."""

    fraction: Any
    power: Any

    def times(self, unit: Any) -> Any:
        """Return numbers at unit norm, brought to this one."""
        return unit * self.fraction * self.power

    def over(self, norm: "Size", xp: Namespace) -> Any:
        """Return a quotient of two; halfway it may leave the range that it ends in."""
        root = xp.sqrt(self.power / norm.power)
        return self.fraction * root / norm.fraction * root


class Solution(NamedTuple):
    """A result at unit norm, and what is told about it."""

    value: Any
    shift: Any
    scale: Size
    """Beta."""
    support_size: Any
    unique: Any
    inner: Size
    """<p, x>, which is the norm of the nearest vector."""


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
    noise = noise_of(x.dtype, wide, xp)
    value, record = _project_wide(xp.astype(x, wide), plan, noise, xp)
    if not plan.nonnegative:
        value = xp.where(x < 0, -value, value)
    return xp.narrowed(value, x.dtype), record


class Sums(NamedTuple):
    """Algorithm 1: what every vector has above its pivot."""

    count: Any
    mean: Any
    spread: Any
    """The sum of squares about the mean."""
    above: Any
    """The smallest entry above the pivot, or infinity."""
    below: Any
    """The largest entry that is not above it, or minus infinity."""


def sums(x: Any, pivots: Any, xp: Namespace) -> Sums:
    """Return the sums over the entries above a pivot for each vector in the last axis."""
    x, pivots = (xp.stopped(xp.astype(array, xp.wide(x))) for array in (x, pivots))
    inside = x > pivots[..., None]
    above = xp.lowest(xp.where(inside, x, math.inf))
    below = xp.highest(xp.where(inside, -math.inf, x))
    count = xp.total(xp.astype(inside, x.dtype))
    _, mean, spread = _moments(x, inside, xp)
    return Sums(*(numbers[..., 0] for numbers in (count, mean, spread, above, below)))


def _moments(entries: Any, inside: Any, xp: Namespace) -> tuple[Any, Any, Any]:
    """Return the number of the entries inside, but at least 1, their mean, and the spread about it.

    Rounding of the mean moves the spread only in its square.
    """
    count = xp.clip(xp.total(xp.astype(inside, entries.dtype)), 1, None)
    mean = xp.total(xp.where(inside, entries, 0.0)) / count
    return count, mean, xp.total(xp.square(xp.where(inside, entries - mean, 0.0)))


class Outcome(NamedTuple):
    """A solution, the norm it is brought to, its L1 norm then, and who kept its direction."""

    found: Solution
    norm: Size
    l1: Any
    active: Any


def _project_wide(x: Any, plan: Plan, noise: Noise, xp: Namespace) -> tuple[Any, Any]:
    """Project vectors of the wide type; the values have no signs yet."""
    finite = xp.all(xp.isfinite(x))
    x = xp.where(finite, x, 0.0)
    w = x if plan.nonnegative else abs(x)
    ratio, slack, slack_low, l2 = (_per_vector(numbers, x[..., :1], xp) for numbers in plan.target)
    valid = finite & ~xp.isnan(ratio) & ~xp.isnan(l2)
    # Bad vectors take part with numbers that do no harm; they become NaN at the end.
    goal = Goal(
        plan.n,
        xp.where(valid, ratio, 1.0),
        xp.where(valid, slack, plan.n - 1.0),
        xp.where(valid, slack_low, 0.0),
        xp,
    )
    found = _solve(w, goal, noise, signed=not plan.nonnegative)
    if plan.rule == "fixed":
        norm = Size(l2, xp.ones_like(l2))
    else:
        norm = _norm(x, xp) if plan.rule == "keep" else found.inner
    l1 = goal.ratio * norm.fraction * norm.power
    outcome = Outcome(found, norm, l1, xp.zeros_like(l1))
    if plan.only_increase:
        outcome = _only_increased(w, outcome, goal, plan)
    return _written(outcome, valid, xp)


def _per_vector(numbers: Any, column: Any, xp: Namespace) -> Any:
    """Return one number for each vector, with an axis appended, like an array of this kind."""
    if isinstance(numbers, np.ndarray):
        if numbers.size == 1:
            return xp.full_like(column, float(numbers.reshape(-1)[0]))
        batch = column.shape[:-1]
        own = numbers.size == math.prod(batch)
        # A copy: some libraries share memory, but only such as may be written.
        numbers = xp.library.asarray((numbers.reshape(batch) if own else numbers).copy())
    return xp.broadcast_to(xp.astype(numbers, column.dtype)[..., None], column.shape)


def _only_increased(w: Any, outcome: Outcome, goal: Goal, plan: Plan) -> Outcome:
    """Let vectors that are sparse enough keep their direction; they are brought to norm.

    Those without a positive entry are nearest to being one-hot, at the first largest entry.
    """
    xp, l1_given = goal.xp, plan.l1_given
    found, norm, l1, active = outcome
    none = ~xp.any(w > 0) & xp.any(w != 0)
    tied = w == xp.highest(w)
    one_hot = xp.astype(_first(tied, w, xp), w.dtype)
    part = xp.where(none, one_hot, xp.clip(w, 0, None))
    stays, size1, size2 = _sparse_enough(part, goal)
    size = Size(size2, largest(part, xp))
    if plan.rule == "nearest":
        size = Size(xp.where(none, 0.0, size2), size.power)
        norm = _either(stays, size, norm, xp)
    elif l1_given:
        fraction = norm.fraction * goal.ratio * size2 / size1
        norm = Size(xp.where(stays, fraction, norm.fraction), norm.power)
    scaled = Solution(
        part / size.power / size2,
        xp.where(none, math.nan, xp.zeros_like(active)),
        Size(xp.where(none, 0.0, size2), size.power),
        xp.total(xp.astype(part > 0, w.dtype)),
        ~none | (xp.total(xp.astype(tied, w.dtype)) == 1),
        found.inner,
    )
    found = _either(stays, scaled, found, xp)
    l1 = xp.where(stays, norm.fraction * norm.power * (size1 / size2), l1)
    active = xp.where(stays, float(Active.L1_DIRECTION if l1_given else Active.L2), active)
    return Outcome(found, norm, l1, active)


def _written(outcome: Outcome, valid: Any, xp: Namespace) -> tuple[Any, Any]:
    """Return the values at their norms, and the records; NaN where vector or target is bad."""
    found, norm, l1, active = outcome
    zero = norm.fraction == 0
    empty = zero | ~valid
    bad = xp.where(valid, xp.zeros_like(active), math.nan)
    record = xp.joined(
        xp.where(empty, math.nan, found.shift),
        xp.where(empty, 0.0, found.scale.over(norm, xp)),
        xp.where(empty, 0.0, found.support_size),
        xp.full_like(active, READS),
        xp.astype(empty | found.unique, active.dtype),
        xp.where(zero, 0.0, l1) + bad,
        norm.fraction * norm.power + bad,
        xp.where(empty, 0.0, active),
    )
    return xp.where(zero, 0.0, norm.times(found.value)) + bad, record


def _norm(x: Any, xp: Namespace) -> Size:
    unit = largest(x, xp)
    return Size(xp.sqrt(xp.total(xp.square(x / unit))), unit)


def _first(tied: Any, w: Any, xp: Namespace) -> Any:
    """Return where the first of several marked entries is."""
    return tied & (xp.running_total(xp.astype(tied, w.dtype)) == 1)


def _sparse_enough(w: Any, goal: Goal) -> tuple[Any, Any, Any]:
    """Whether sigma(w) is at least the target's, and both norms of w over its largest entry.

    Over the c nonzero entries, with mean m and sum of squares s about it, l1^2/l2^2 <= K reads
    c (c - K) <= K s/m^2: no digits are lost where entries are nearly equal.
    """
    xp = goal.xp
    w = w / largest(w, xp)
    inside = w > 0
    there = xp.any(inside)
    count, mean, spread = _moments(w, inside, xp)
    mean = xp.where(there, mean, 1.0)
    enough = count * goal.excess(count) <= goal.k * (spread / mean / mean)
    size1, size2 = xp.total(w), xp.sqrt(xp.total(xp.square(w)))
    return enough & there, xp.where(there, size1, 1.0), xp.where(there, size2, 1.0)


# ---- at unit norm ----


def _solve(w: Any, goal: Goal, noise: Noise, *, signed: bool) -> Solution:
    """Choose between the ends of the range, ties at the maximum, and the search."""
    xp = goal.xp
    top, low = xp.highest(w), xp.lowest(w)
    tied = w == top
    ties = xp.total(xp.astype(tied, w.dtype))
    excess = goal.excess(ties)
    result = _search(w, top, low, goal, noise, signed=signed)
    for case, other in (
        (excess == 0, _as_many_ties_as_fit(w, top, tied, ties, goal)),
        (excess > 0, _more_ties_than_fit(w, top, tied, ties, goal)),
        (goal.slack <= 0, _constant(w, low, goal, signed=signed)),
    ):
        result = _either(case, other, result, xp)
    return result


def _either(case: Any, a: Any, b: Any, xp: Namespace) -> Any:
    """Return a where that is the case, else b: two arrays, or named tuples of arrays."""
    if not isinstance(a, tuple):
        return xp.where(case, a, b)
    return type(a)(*(_either(case, *parts, xp) for parts in zip(a, b, strict=True)))


def _constant(w: Any, low: Any, goal: Goal, *, signed: bool) -> Solution:
    """Sparseness 0: all entries alike."""
    xp, root = goal.xp, math.sqrt(goal.n)
    unit = largest(w, xp)
    mean = xp.total(w / unit) / goal.n
    return Solution(
        xp.full_like(w, 1 / root),
        xp.full_like(low, math.nan),
        Size(xp.zeros_like(low), unit),
        xp.full_like(low, goal.n),
        _unchosen(low == 0, signed=signed),
        Size(xp.clip(root * mean, 0, None), unit),
    )


def _unchosen(revived: Any, *, signed: bool) -> Any:
    """Whether no zero that is given a size has its sign by choice."""
    return ~revived if signed else revived | ~revived


def _more_ties_than_fit(w: Any, top: Any, tied: Any, m: Any, goal: Goal) -> Solution:
    """Every point supported on the largest entries is nearest: the first of them is made larger."""
    xp = goal.xp
    first, others, single = tied_values(m, goal)
    return Solution(
        xp.where(_first(tied, w, xp), first, xp.where(tied, others, 0.0)),
        xp.full_like(top, math.nan),
        Size(xp.zeros_like(top), xp.ones_like(top)),
        xp.where(single, 1.0, m),
        xp.zeros_like(top, dtype=xp.bool),
        Size(xp.where(top > 0, goal.ratio, 0.0), xp.clip(top, 0, None)),
    )


def tied_values(m: Any, goal: Goal) -> tuple[Any, Any, Any]:
    """Return what the first of m > K largest entries gets, what the others get, and if K is 1."""
    xp = goal.xp
    rest = xp.clip(goal.excess(m), 0, None) / m
    single = goal.excess(xp.ones_like(m)) == 0
    first = goal.ratio / m + xp.sqrt((m - 1) * rest / m)
    others = goal.ratio / m - xp.sqrt(rest / xp.clip(m * (m - 1), 1, None))
    return first, xp.where(single, 0.0, xp.clip(others, 0, None)), single


def _as_many_ties_as_fit(w: Any, top: Any, tied: Any, m: Any, goal: Goal) -> Solution:
    """Exactly K largest entries share l1 evenly, and alpha is the next smaller entry."""
    xp = goal.xp
    below = xp.highest(xp.where(tied, -math.inf, w))
    halving = _halving(top, below, xp)
    return Solution(
        xp.where(tied, goal.ratio / m, 0.0),
        below,
        Size(m / goal.ratio / halving, top * halving - below * halving),
        m,
        xp.ones_like(top, dtype=xp.bool),
        Size(xp.where(top > 0, goal.ratio, 0.0), xp.clip(top, 0, None)),
    )


class Frame(NamedTuple):
    """s = (halving * top - halving * x) * inverse, never above `limit`."""

    top: Any
    halving: Any
    inverse: Any
    limit: float

    def into(self, x: Any, xp: Namespace) -> Any:
        """Return the distance of x from the maximum, in units."""
        distance = self.top * self.halving - x * self.halving
        return xp.clip(distance * self.inverse, None, self.limit)

    def out_of(self, s: Any) -> Any:
        """Return what lies at such a distance."""
        return (self.top * self.halving - s / self.inverse) / self.halving


class Support(NamedTuple):
    """Entries with s < bound, and their moments."""

    bound: Any
    size: Any
    mean: Any
    spread: Any

    def scale(self, goal: Goal) -> Any:
        """Return beta at unit norm; by two roots, whose quotient may be huge."""
        xp, excess = goal.xp, goal.excess(self.size)
        return xp.sqrt(self.spread * self.size) / xp.sqrt(xp.where(excess > 0, excess, 1.0))

    def step(self, goal: Goal) -> Any:
        """Return where this support puts alpha; never below the right one."""
        return self.mean + self.scale(goal) * goal.ratio / self.size


def _search(w: Any, top: Any, low: Any, goal: Goal, noise: Noise, *, signed: bool) -> Solution:
    n, xp = goal.n, goal.xp
    ordered = xp.descending(w)
    # The support has more than K entries: the first one beyond is of the size that matters.
    least = xp.clip(goal.whole, min(1, n - 1), n - 1)
    frame = _frame(top, low, xp.entry(ordered, least), xp)
    s = frame.into(ordered, xp)
    smallest = _next(s, s > xp.entry(s, least), xp)
    bound = xp.clip(_first_outside(s, goal), smallest, None)
    for _ in range(STEPS):
        bound = _improved(s, bound, smallest, goal)
    support = _support(s, bound, xp)
    for _ in range(CHALLENGES):
        support = _challenged(s, support, smallest, goal)
    bare = (low == 0) & _zeros_stay(w, frame, support, goal, noise)
    result = _interior(w, frame, support, low, goal, signed=signed)
    positive = xp.total(xp.astype(w > 0, w.dtype))
    value = xp.where(bare & (w == 0), 0.0, result.value)
    # What zeros do not receive, or owe, is the others'.
    if noise.entries < COARSE:
        rest = (goal.ratio - xp.total(value)) / xp.clip(positive, 1, None)
        value = xp.where(bare & (w > 0), xp.clip(value + rest, 0, None), value)
    return result._replace(
        value=value,
        shift=xp.where(bare, 0.0, result.shift),
        support_size=xp.where(bare, positive, result.support_size),
        unique=bare | result.unique,
    )


def _frame(top: Any, low: Any, entry: Any, xp: Namespace) -> Frame:
    """Choose the power of two by which distances are divided: about that of `entry`."""
    halving = _halving(top, low, xp)
    inverse = 1 / xp.power_of_two(top * halving - entry * halving)
    return Frame(top, halving, inverse, 1e100 if top.dtype == xp.float64 else 1e15)


def _halving(top: Any, low: Any, xp: Namespace) -> Any:
    """Return a factor that keeps the distance of two entries a float."""
    return xp.where(xp.isinf(top - low), 0.5, xp.ones_like(top))


def _first_outside(s: Any, goal: Goal) -> Any:
    """Return s of the largest entry that is not above the alpha of those before it; or infinity.

    With mean m and spread V of the first i entries, their alpha lies at s_i or before if
    i (i - K) (s_i - m)^2 >= K V: what is left of Psi >= 0 at this entry.
    """
    xp = goal.xp
    index, start = xp.numbered(s), xp.zeros_like(s[..., :1])
    # Sums over the entries before each one.
    first, second = (
        xp.joined(start, xp.running_total(entries)[..., :-1]) for entries in (s, xp.square(s))
    )
    mean = first / xp.clip(index, 1, None)
    spread = xp.clip(second - first * mean, 0, None)
    excess = goal.excess(index)
    outside = (excess > 0) & (index * excess * xp.square(s - mean) >= goal.k * spread)
    return _next(s, outside, xp)


def _next(s: Any, beyond: Any, xp: Namespace) -> Any:
    """Return the smallest s among those beyond, or infinity."""
    return xp.lowest(xp.where(beyond, s, math.inf))


def _last(s: Any, bound: Any, xp: Namespace) -> Any:
    """Return the largest s before the bound, or minus infinity."""
    return xp.highest(xp.where(s < bound, s, -math.inf))


def _support(s: Any, bound: Any, xp: Namespace) -> Support:
    return Support(bound, *_moments(s, s < bound, xp))


def _improved(s: Any, bound: Any, smallest: Any, goal: Goal) -> Any:
    """One exact step: keep the support if alpha lies between its last entry and the next."""
    xp = goal.xp
    step = _support(s, bound, xp).step(goal)
    consistent = (_last(s, bound, xp) < step) & (step <= _next(s, s >= bound, xp))
    return xp.where(consistent, bound, xp.clip(_next(s, s >= step, xp), smallest, None))


def _challenged(s: Any, support: Support, smallest: Any, goal: Goal) -> Support:
    """Return the support without its last entries if by its own account it lacks nothing.

    Where K is a rounding error below a number of near-ties the two differ by the root of that
    error, though a comparison of alpha with the entry cannot tell them apart.
    """
    xp = goal.xp
    last = _last(s, support.bound, xp)
    smaller = _support(s, last, xp)
    right = (last >= smallest) & (goal.excess(smaller.size) > 0) & (smaller.step(goal) <= last)
    chosen: Support = _either(right, smaller, support, xp)
    return chosen


def _zeros_stay(w: Any, frame: Frame, support: Support, goal: Goal, noise: Noise) -> Any:
    """Whether the zeros of a vector stay zero that is in D already, up to rounding."""
    xp, even, scale = goal.xp, goal.ratio / goal.n, support.scale(goal)
    # Not from the mean of s, next to which lie the zeros.
    mean = xp.total(w * frame.halving * frame.inverse) / goal.n
    received = is_noise(even - mean / scale, even + support.mean / scale, goal, noise)
    return (support.size == goal.n) & received


def is_noise(received: Any, highest: Any, goal: Goal, noise: Noise) -> Any:
    """Whether what zeros would receive is due to rounding, `highest` being the largest result.

    Times (n - K)/rho it is by how much the vector's own ratio of norms falls short.
    """
    limit = goal.xp.minimum(
        noise.norms * goal.ratio / goal.slack,
        noise.entries * (goal.ratio / goal.n + highest),
    )
    return received <= limit


def _interior(
    w: Any, frame: Frame, support: Support, low: Any, goal: Goal, *, signed: bool
) -> Solution:
    xp, scale, s = goal.xp, support.scale(goal), frame.into(w, goal.xp)
    inside = s < support.bound
    # What the mean lacks is the same for all entries, and adds up in their sum.
    deviations = xp.where(inside, support.mean - s, 0.0)
    deviations = deviations - xp.total(deviations) / support.size
    value = goal.ratio / support.size + deviations / scale
    # <p, x> = rho * mean(x) + spread/beta; not from the mean of s, next to which it may be small.
    entries = xp.where(inside, w * frame.halving * frame.inverse, 0.0)
    inner = goal.ratio / support.size * xp.total(entries) + support.spread / scale
    unit = 1 / frame.inverse / frame.halving
    everything = support.size == goal.n
    return Solution(
        xp.clip(xp.where(inside, value, 0.0), 0, None),
        frame.out_of(support.step(goal)),
        Size(scale, unit),
        support.size,
        _unchosen(everything & (low == 0), signed=signed),
        Size(xp.clip(inner, 0, None), unit),
    )
