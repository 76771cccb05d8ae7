"""The sets: the nearest points of each, by its closed form on a support.

Both norms given (`Goal`), or the L1 norm alone (`OneNorm`); as upper bounds either of them may turn
out not to bind. What else there is of a set in this engine is in `hoyer.engines.arrays.products`,
by `Active`: which norms bind decides what the derivative is.
"""

import math
from typing import Any, NamedTuple

from ...plan import Plan
from ...projection import Active
from .namespace import Namespace
from .products import largest
from .search import (
    CHALLENGES,
    Entries,
    Frame,
    Support,
    either,
    find_support,
    halving,
    moments,
    next_of,
    sums_before,
)

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
    """The target of every vector, with an axis of length 1 appended: the form of both norms."""

    n: Any
    """Of all vectors, or of each."""
    ratio: Any
    slack: Any
    slack_low: Any
    xp: Namespace

    @property
    def k(self) -> Any:
        """(l1/l2)**2, rounded."""
        return self.n - self.slack

    @property
    def root(self) -> Any:
        """The square root of n."""
        return math.sqrt(self.n) if isinstance(self.n, int) else self.xp.sqrt(self.n)

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

    def scale(self, size: Any, spread: Any) -> Any:
        """Return beta at unit norm; by two roots, whose quotient may be huge."""
        xp, excess = self.xp, self.excess(size)
        return xp.sqrt(spread * size) / xp.sqrt(xp.where(excess > 0, excess, 1.0))

    def fits(self, size: Any) -> Any:
        """Whether a support may be so small: there are more than K entries in it."""
        return self.excess(size) > 0

    def first_outside(self, s: Any) -> Any:
        """Return s of the largest entry not above the alpha of those before it; or infinity.

        With mean m and spread V of the first i entries, their alpha lies at s_i or before if
        i (i - K) (s_i - m)^2 >= K V: what is left of Psi >= 0 at this entry.
        """
        xp, index = self.xp, self.xp.numbered(s)
        first, second = (sums_before(s, entries, xp) for entries in (s, xp.square(s)))
        mean = first / xp.clip(index, 1, None)
        spread = xp.clip(second - first * mean, 0, None)
        excess = self.excess(index)
        outside = (excess > 0) & (index * excess * xp.square(s - mean) >= self.k * spread)
        return next_of(s, outside, xp)


class OneNorm(NamedTuple):
    """The form of the L1 norm alone: beta is 1, K counts as 0."""

    ratio: Any
    """The norm, in units."""
    xp: Namespace

    def scale(self, size: Any, spread: Any) -> Any:
        """Return beta."""
        return 1.0

    def fits(self, size: Any) -> Any:
        """Whether a support may be so small."""
        return size >= 1

    def first_outside(self, s: Any) -> Any:
        """Return s of the largest entry not above the alpha of those before it; or infinity."""
        xp = self.xp
        return next_of(s, xp.numbered(s) * s >= self.ratio + sums_before(s, s, xp), xp)


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


class Asked(NamedTuple):
    """Vectors of the wide type, and what is asked of each."""

    x: Any
    entries: Entries
    """Those of x that are compared: x itself, or the sizes."""
    goal: Goal
    l2: Any


class Outcome(NamedTuple):
    """Nearest points without their signs, and what records say about them."""

    value: Any
    shift: Any
    scale: Any
    support_size: Any
    unique: Any
    l1: Any
    l2: Any
    active: Any

    def without(self, zero: Any, active: float, xp: Namespace) -> "Outcome":
        """Return results that are zero, whatever was found, in some cases."""
        return Outcome(
            xp.where(zero, 0.0, self.value),
            xp.where(zero, math.nan, self.shift),
            xp.where(zero, 0.0, self.scale),
            xp.where(zero, 0.0, self.support_size),
            zero | self.unique,
            xp.where(zero, 0.0, self.l1),
            xp.where(zero, 0.0, self.l2),
            xp.where(zero, active, self.active),
        )


def nearest_points(asked: Asked, plan: Plan, noise: Noise) -> Outcome:
    """Return what is nearest to each vector in the set that the plan names."""
    if plan.at_most:
        return _within_bounds(asked, plan, noise)
    if plan.rule == "free":
        signed = not plan.nonnegative
        return _with_l1(asked.entries, asked.goal, asked.goal.ratio, noise, signed=signed)
    return _with_both(asked, plan, noise)


# ---- both norms ----


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

    def at(self, norm: Size, l1: Any, active: Any, xp: Namespace) -> Outcome:
        """Return the results at their norms."""
        found = Outcome(
            norm.times(self.value),
            self.shift,
            self.scale.over(norm, xp),
            self.support_size,
            self.unique,
            l1,
            norm.fraction * norm.power,
            active,
        )
        return found.without(norm.fraction == 0, float(Active.BOTH), xp)


def _with_both(asked: Asked, plan: Plan, noise: Noise) -> Outcome:
    x, entries, goal, l2 = asked
    xp = goal.xp
    found = _solve(entries, goal, noise, signed=not plan.nonnegative)
    if plan.rule == "fixed":
        norm = Size(l2, xp.ones_like(l2))
    else:
        norm = _norm(x, xp) if plan.rule == "keep" else found.inner
    l1 = goal.ratio * norm.fraction * norm.power
    if plan.only_increase:
        return _only_increased(entries, found, norm, l1, goal, plan)
    return found.at(norm, l1, xp.zeros_like(l1), xp)


def _only_increased(  # noqa: PLR0917 - a solution, its norms, and what was asked
    entries: Entries, found: Solution, norm: Size, l1: Any, goal: Goal, plan: Plan
) -> Outcome:
    """Let vectors that are sparse enough keep their direction; they are brought to norm.

    Those without a positive entry are nearest to being one-hot, at the first largest entry.
    """
    w, xp, l1_given = entries.w, goal.xp, plan.l1_given
    none = ~xp.any(w > 0) & xp.any(w != 0)
    one_hot = xp.astype(_first(entries), w.dtype)
    part = xp.where(none, one_hot, xp.clip(w, 0, None))
    stays, size1, size2 = _sparse_enough(part, goal)
    size = Size(size2, largest(part, xp))
    if plan.rule == "nearest":
        size = Size(xp.where(none, 0.0, size2), size.power)
        norm = either(stays, size, norm, xp)
    elif l1_given:
        fraction = norm.fraction * goal.ratio * size2 / size1
        norm = Size(xp.where(stays, fraction, norm.fraction), norm.power)
    scaled = Solution(
        xp.held(part / size.power) / size2,
        xp.where(none, math.nan, xp.zeros_like(l1)),
        Size(xp.where(none, 0.0, size2), size.power),
        entries.count(part > 0),
        ~none | (entries.count(entries.tied) == 1),
        found.inner,
    )
    found = either(stays, scaled, found, xp)
    l1 = xp.where(stays, norm.fraction * norm.power * (size1 / size2), l1)
    kept = float(Active.L1_DIRECTION if l1_given else Active.L2)
    return found.at(norm, l1, xp.where(stays, kept, xp.zeros_like(l1)), xp)


def _norm(x: Any, xp: Namespace) -> Size:
    unit = largest(x, xp)
    return Size(xp.sqrt(xp.total(xp.square(x / unit))), unit)


def _first(entries: Entries) -> Any:
    """Return where the first of the largest entries is."""
    xp, tied = entries.xp, entries.tied
    return tied & (xp.running_total(xp.astype(tied, entries.w.dtype)) == 1)


def _sparse_enough(w: Any, goal: Goal) -> tuple[Any, Any, Any]:
    """Whether sigma(w) is at least the target's, and both norms of w over its largest entry.

    Over the c nonzero entries, with mean m and sum of squares s about it, l1^2/l2^2 <= K reads
    c (c - K) <= K s/m^2: no digits are lost where entries are nearly equal.
    """
    xp = goal.xp
    w = w / largest(w, xp)
    inside = w > 0
    there = xp.any(inside)
    count, mean, spread = moments(w, inside, xp)
    mean = xp.where(there, mean, 1.0)
    enough = count * goal.excess(count) <= goal.k * (spread / mean / mean)
    size1, size2 = xp.total(w), xp.sqrt(xp.total(xp.square(w)))
    return enough & there, xp.where(there, size1, 1.0), xp.where(there, size2, 1.0)


def _solve(entries: Entries, goal: Goal, noise: Noise, *, signed: bool) -> Solution:
    """Choose between the ends of the range, ties at the maximum, and the search, at unit norm."""
    ties = entries.count(entries.tied)
    excess = goal.excess(ties)
    result = _search(entries, goal, noise, signed=signed)
    for case, other in (
        (excess == 0, _as_many_ties_as_fit(entries, ties, goal)),
        (excess > 0, _more_ties_than_fit(entries, ties, goal)),
        (goal.slack <= 0, _constant(entries, goal, signed=signed)),
    ):
        result = either(case, other, result, goal.xp)
    return result


def _constant(entries: Entries, goal: Goal, *, signed: bool) -> Solution:
    """Sparseness 0: all entries alike."""
    w, low, xp, root = entries.w, entries.low, goal.xp, goal.root
    unit = largest(w, xp)
    mean = xp.total(w / unit) / goal.n
    even = xp.zeros_like(w) + 1 / root
    return Solution(
        xp.where(entries.there, even, 0.0) if entries.masked else even,
        xp.full_like(low, math.nan),
        Size(xp.zeros_like(low), unit),
        xp.zeros_like(low) + goal.n,
        _unchosen(low == 0, signed=signed),
        Size(xp.clip(root * mean, 0, None), unit),
    )


def _unchosen(revived: Any, *, signed: bool) -> Any:
    """Whether no zero that is given a size has its sign by choice."""
    return ~revived if signed else revived | ~revived


def _more_ties_than_fit(entries: Entries, m: Any, goal: Goal) -> Solution:
    """Every point supported on the largest entries is nearest: the first of them is made larger."""
    xp, top = goal.xp, entries.top
    first, others, single = tied_values(m, goal)
    return Solution(
        xp.where(_first(entries), first, xp.where(entries.tied, others, 0.0)),
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


def _as_many_ties_as_fit(entries: Entries, m: Any, goal: Goal) -> Solution:
    """Exactly K largest entries share l1 evenly, and alpha is the next smaller entry."""
    xp, top = goal.xp, entries.top
    below = xp.highest(xp.where(entries.tied, -math.inf, entries.lowered))
    half = halving(top, below, xp)
    return Solution(
        xp.where(entries.tied, goal.ratio / m, 0.0),
        below,
        Size(m / goal.ratio / half, top * half - below * half),
        m,
        xp.ones_like(top, dtype=xp.bool),
        Size(xp.where(top > 0, goal.ratio, 0.0), xp.clip(top, 0, None)),
    )


def _search(entries: Entries, goal: Goal, noise: Noise, *, signed: bool) -> Solution:
    xp = goal.xp
    # The support has more than K entries: the first one beyond is of the size that matters.
    last = goal.n - 1
    second = min(1, last) if isinstance(last, int) else xp.clip(last, None, 1)
    least = xp.clip(goal.whole, second, last)
    frame = _frame(entries, xp.entry(entries.ordered, least))
    s = frame.into(entries.ordered, xp)
    smallest = next_of(s, s > xp.entry(s, least), xp)
    support = find_support(s, smallest, goal, challenges=CHALLENGES)
    bare = (entries.low == 0) & _zeros_stay(entries.w, frame, support, goal, noise)
    result = _interior(entries, frame, support, goal, signed=signed)
    value, positive = _with_zeros(entries, result.value, bare, goal.ratio, noise)
    return result._replace(
        value=value,
        shift=xp.where(bare, 0.0, result.shift),
        support_size=xp.where(bare, positive, result.support_size),
        unique=bare | result.unique,
    )


def _frame(entries: Entries, entry: Any) -> Frame:
    """Choose the power of two by which distances are divided: about that of `entry`."""
    top, xp = entries.top, entries.xp
    half = halving(top, entries.low, xp)
    inverse = 1 / xp.power_of_two(top * half - entry * half)
    return Frame(top, half, inverse, 1e100 if top.dtype == xp.float64 else 1e15, entries.masked)


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


def _with_zeros(entries: Entries, value: Any, bare: Any, l1: Any, noise: Noise) -> tuple[Any, Any]:
    """Return the values with zeros that stay, and the number of positive entries."""
    w, xp = entries.w, entries.xp
    positive = entries.count(w > 0)
    value = xp.where(bare & (w == 0), 0.0, value)
    # What zeros do not receive, or owe, is the others'.
    if noise.entries < COARSE:
        rest = (l1 - xp.total(value)) / xp.clip(positive, 1, None)
        value = xp.where(bare & (w > 0), xp.clip(value + rest, 0, None), value)
    return value, positive


def _interior(
    entries: Entries, frame: Frame, support: Support, goal: Goal, *, signed: bool
) -> Solution:
    xp, scale, s = goal.xp, support.scale(goal), frame.into(entries.lowered, goal.xp)
    inside = s < support.bound
    # What the mean lacks is the same for all entries, and adds up in their sum.
    deviations = xp.where(inside, support.mean - s, 0.0)
    deviations = deviations - xp.total(deviations) / support.size
    value = goal.ratio / support.size + deviations / scale
    # <p, x> = rho * mean(x) + spread/beta; not from the mean of s, next to which it may be small.
    chosen = xp.where(inside, entries.w * frame.halving * frame.inverse, 0.0)
    inner = goal.ratio / support.size * xp.total(chosen) + support.spread / scale
    unit = 1 / frame.inverse / frame.halving
    everything = support.size == goal.n
    return Solution(
        xp.clip(xp.where(inside, value, 0.0), 0, None),
        frame.out_of(support.step(goal)),
        Size(scale, unit),
        support.size,
        _unchosen(everything & (entries.low == 0), signed=signed),
        Size(xp.clip(inner, 0, None), unit),
    )


# ---- l1 alone ----


def _with_l1(entries: Entries, goal: Goal, l1: Any, noise: Noise, *, signed: bool) -> Outcome:
    """Return what is nearest among vectors with this L1 norm: p = c - s, c the largest entry.

    Both are measured downwards from the maximum, in units of the norm. What is further away than
    that is in no support: nothing overflows.
    """
    xp, top, low = goal.xp, entries.top, entries.low
    unit, half = xp.power_of_two(l1), halving(top, low, xp)
    frame = Frame(top, half, 1 / unit / half, 4.0, entries.masked)
    s, ordered = (frame.into(numbers, xp) for numbers in (entries.lowered, entries.ordered))
    form = OneNorm(xp.held(l1 / unit), xp)
    support = find_support(ordered, next_of(ordered, ordered > 0, xp), form)
    inside, highest = s < support.bound, support.step(form)
    value = xp.where(inside, highest - s, 0.0)
    # What c lacks is the same for all entries, and adds up in their sum.
    rest = (form.ratio - xp.total(value)) / support.size
    value = xp.where(inside, xp.clip(value + rest, 0, None), 0.0)
    everything = (support.size == goal.n) & (low == 0)
    # What zeros would receive, n times, is what the norm lacks: not from s, which has lost it.
    lacking = form.ratio - xp.total(entries.w * half * frame.inverse)
    bare = everything & (top > 0) & (lacking <= noise.norms * form.ratio)
    value, positive = _with_zeros(entries, value, bare, form.ratio, noise)
    return Outcome(
        value * unit,
        xp.where(bare, 0.0, frame.out_of(highest)),
        xp.ones_like(l1),
        xp.where(bare, positive, support.size),
        bare | _unchosen(everything, signed=signed),
        l1,
        xp.sqrt(xp.total(xp.square(value))) * unit,
        xp.full_like(l1, float(Active.L1)),
    )


# ---- upper bounds ----


def _within_bounds(asked: Asked, plan: Plan, noise: Noise) -> Outcome:
    """Return what is nearest among vectors whose norms are at most these.

    What is not above 0 becomes 0, so that only positive entries are searched. The set is convex:
    near the border of two cases either of them will do.
    """
    _, entries, goal, l2 = asked
    xp, none = goal.xp, goal.ratio == 0
    entries = entries.positive()
    # Where only 0 is within the bounds anything may be computed.
    goal = goal._replace(
        ratio=xp.where(none, 1.0, goal.ratio), slack=xp.where(none, goal.n - 1.0, goal.slack)
    )
    l2 = xp.where(none, 1.0, l2)
    l1 = goal.ratio * l2
    unit = xp.power_of_two(largest(entries.w, xp))
    part = entries.w / unit
    size1, size2 = xp.total(part), xp.sqrt(xp.total(xp.square(part)))
    # A bound of 0 binds even where x is 0: nothing moves there.
    within = (size1 <= l1 / unit) & ~none
    result = _with_l1(entries, goal, l1, noise, signed=False)
    nothing = float(Active.L1)
    if plan.rule == "fixed":
        small, nothing = size2 <= l2 / unit, float(Active.BOTH)
        both = _with_l2(asked._replace(entries=entries, goal=goal, l2=l2), result, noise)
        within, result = within & small, either(small, result, both, xp)
    result = result.without(none, nothing, xp)
    one = xp.ones_like(l1)
    same = Outcome(
        entries.w,
        xp.zeros_like(l1),
        one,
        entries.count(entries.w > 0),
        one > 0,
        size1 * unit,
        size2 * unit,
        xp.full_like(l1, float(Active.NONE)),
    )
    chosen: Outcome = either(within, same, result, xp)
    return chosen


def _with_l2(asked: Asked, one_norm: Outcome, noise: Noise) -> Outcome:
    """Return what is nearest to vectors beyond the L2 norm; `one_norm` where that does not bind.

    Both bind only where beta is at least 1 then; with as many ties as fit, or more, l1 alone does.
    The L2 norm alone binds where that makes the L1 norm small enough.
    """
    _, entries, goal, l2 = asked
    xp, norm = goal.xp, Size(l2, goal.xp.ones_like(l2))
    l1 = goal.ratio * l2
    ties, positive = (entries.count(marked) for marked in (entries.tied, entries.w > 0))
    found = _search(entries, goal, noise, signed=False)
    both = found.at(norm, l1, xp.zeros_like(l1), xp)
    fits = (goal.excess(ties) < 0) & (goal.excess(positive) > 0) & (both.scale >= 1)
    result = either(fits & (one_norm.l2 > l2), both, one_norm, xp)
    stays, size1, size2 = _sparse_enough(entries.w, goal)
    size = Size(size2, largest(entries.w, xp))
    direction = Solution(
        xp.held(entries.w / size.power) / size2,
        xp.zeros_like(l1),
        size,
        positive,
        l1 > 0,
        found.inner,
    ).at(norm, l2 * (size1 / size2), xp.full_like(l1, float(Active.L2)), xp)
    turned: Outcome = either(stays, direction, result, xp)
    return turned
