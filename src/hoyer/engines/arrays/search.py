"""The search in plain tensor operations: any device, no look at its numbers, no compiled core.

A device must not be asked how far it is, so there is no loop that ends when it is done: the support
is found by sorting, then confirmed by a fixed number of exact steps (DESIGN facts 2 and 3). What is
compared and summed is s = (max - x)/unit: 0 at the maximum, about 1 where the support ends. So the
scale of the data does not matter, and ties are exact zeros.
"""

import math
from typing import NamedTuple

import torch

from ...families.torch.targets import Goal, goal_for
from ...families.torch.tensors import Tensor, batch_of, length_of, wide_type
from ...options import Options
from .products import Kept

STEPS = 3
"""Exact steps after sorting; each one ends closer to the support, from either side."""

CHALLENGES = 2
"""How often the support without its smallest entries is tried."""

READS = 3 + 2 * (STEPS + CHALLENGES)
"""What `evaluations` says: every full read before the write."""


class Noise(NamedTuple):
    """What rounding does to vectors of one type, for zeros that are to stay zero."""

    norms: float
    """How far the ratio of norms of a vector in D may be off by it, relatively."""
    entries: float
    """The same for its entries, relative to the largest and the mean."""


def noise_of(dtype: torch.dtype, wide: torch.dtype = torch.float64) -> Noise:
    """Return the noise in vectors of a type, what is received being computed in the wide one."""
    eps = torch.finfo(dtype).eps
    # Half types are correctly rounded, others right within a few eps.
    return Noise(
        (1 if dtype.itemsize == 2 else 4) * eps + 8 * torch.finfo(wide).eps,
        4 * eps,
    )


class Target(NamedTuple):
    """The target of every vector, with an axis of length 1 appended."""

    n: int
    ratio: Tensor
    room: Tensor
    room_low: Tensor

    @property
    def k(self) -> Tensor:
        """(l1/l2)**2, rounded."""
        return self.n - self.room

    def excess(self, count: Tensor) -> Tensor:
        """Return count - K with twice the digits of K."""
        return ((count - self.n) + self.room) + self.room_low

    @property
    def whole(self) -> Tensor:
        """The largest integer that is not above K."""
        near = self.k.floor()
        near = torch.where(self.excess(near) > 0, near - 1, near)
        return torch.where(self.excess(near + 1) <= 0, near + 1, near)


class Size(NamedTuple):
    """A factor fraction * power, a norm or beta: near the largest float it need not be one."""

    fraction: Tensor
    power: Tensor

    def times(self, unit: Tensor) -> Tensor:
        """Return numbers at unit norm, brought to this one."""
        return unit * self.fraction * self.power

    def over(self, norm: "Size") -> Tensor:
        """Return a quotient of two; halfway it may leave the range that it ends in."""
        root = (self.power / norm.power).sqrt()
        return self.fraction * root / norm.fraction * root


class Solution(NamedTuple):
    """A result at unit norm, and what is told about it."""

    value: Tensor
    shift: Tensor
    scale: Size
    """Beta."""
    support_size: Tensor
    unique: Tensor
    inner: Size
    """<p, x>, which is the norm of the nearest vector."""


def check_solver(options: Options) -> None:
    """Refuse the paper's solvers, which need the compiled core."""
    if options.solver != "auto":
        raise ValueError(
            f"solver={options.solver!r} is for CPU tensors and needs hoyer's compiled core; "
            "elsewhere there is 'auto' alone"
        )


def project(x: Tensor, options: Options, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections of the vectors in the last `inner` axes, and a record of each.

    Raises
    ------
    ValueError
        For the paper's solvers, which need the compiled core; on the CPU also for NaN or infinity.
    """
    check_solver(options)
    batch, n = batch_of(x, inner), length_of(x, inner)
    wide = wide_type(x.device)
    goal = goal_for(n, options, x, batch, wide)
    rows = x.detach().reshape(*batch, n)
    value, record = _project_rows(rows.to(wide), goal, options, noise_of(x.dtype, wide))
    value = torch.where((rows < 0) & (not options.nonnegative), -value, value)
    # Narrowed first: what vanishes in the narrower type has no sign.
    narrow = narrowed(value, x.dtype)
    narrow = torch.where(narrow == 0, 0.0, narrow)
    return torch.empty_like(x).copy_(narrow.reshape(x.shape)), record


def narrowed(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to nearest, once: the way from double to half leads through float."""
    if dtype.itemsize != 2 or value.dtype != torch.float64:
        return value.to(dtype)
    single = value.to(torch.float32)
    toward_zero = torch.where(
        single.double().abs() > value.abs(), single.nextafter(torch.zeros_like(single)), single
    )
    # Round to odd: an inexact number gets a last bit that no tie of the narrower type has.
    odd = (toward_zero.view(torch.int32) | 1).view(torch.float32)
    exact = (toward_zero.double() == value) | ~torch.isfinite(value)
    return torch.where(exact, single, odd).to(dtype)


class Outcome(NamedTuple):
    """A solution, the norm it is brought to, its L1 norm then, and who kept its direction."""

    found: Solution
    norm: Size
    l1: Tensor
    kept: Tensor


def _project_rows(x: Tensor, goal: Goal, options: Options, noise: Noise) -> tuple[Tensor, Tensor]:
    """Project vectors in the last axis, in the wide type; the values have no signs yet."""
    n, w = x.shape[-1], x if options.nonnegative else x.abs()
    finite = torch.isfinite(x).all(-1, keepdim=True)
    w = torch.where(finite, w, 0.0)
    ratio, room, room_low, l2 = (
        numbers.unsqueeze(-1).expand(finite.shape)
        for numbers in (goal.ratio, goal.room, goal.room_low, goal.l2)
    )
    valid = finite & ~torch.isnan(ratio) & ~torch.isnan(l2)
    # Bad rows take part with numbers that do no harm; they become NaN at the end.
    target = Target(
        n, *(torch.where(valid, a, b) for a, b in ((ratio, 1.0), (room, n - 1.0), (room_low, 0.0)))
    )
    found = _solve(w, target, noise, signed=not options.nonnegative)
    own = _norm(torch.where(finite, x, 0.0))
    norm = {"fixed": Size(l2, torch.ones_like(l2)), "keep": own, "nearest": found.inner}[goal.norm]
    l1 = target.ratio * norm.fraction * norm.power
    outcome = Outcome(found, norm, l1, torch.zeros_like(ratio))
    if options.only_increase:
        outcome = _only_increased(w, outcome, target, goal)
    return _written(outcome, valid)


def _only_increased(w: Tensor, outcome: Outcome, target: Target, goal: Goal) -> Outcome:
    """Let vectors that are sparse enough keep their direction; they are brought to norm.

    Those without a positive entry are nearest to being one-hot, at the first largest entry.
    """
    found, norm, l1, kept = outcome
    none = ~(w > 0).any(-1, keepdim=True) & (w != 0).any(-1, keepdim=True)
    tied = w == w.amax(-1, keepdim=True)
    one_hot = (tied & (tied.cumsum(-1) == 1)).to(w.dtype)
    positive = torch.where(none, one_hot, w.clamp(min=0))
    stays, size1, size2 = _sparse_enough(positive, target)
    size = Size(size2, _largest(positive))
    if goal.norm == "nearest":
        size = Size(torch.where(none, 0.0, size2), size.power)
        norm = _either(stays, size, norm)
    elif goal.l1_given:
        fraction = norm.fraction * target.ratio * size2 / size1
        norm = Size(torch.where(stays, fraction, norm.fraction), norm.power)
    found = Solution(
        torch.where(stays, positive / size.power / size2, found.value),
        torch.where(stays, torch.where(none, math.nan, 0.0), found.shift),
        _either(stays, Size(torch.where(none, 0.0, size2), size.power), found.scale),
        torch.where(stays, (positive > 0).sum(-1, keepdim=True), found.support_size),
        torch.where(stays, ~none | (tied.sum(-1, keepdim=True) == 1), found.unique),
        found.inner,
    )
    l1 = torch.where(stays, norm.fraction * norm.power * (size1 / size2), l1)
    kept = torch.where(stays, Kept.TO_L1 if goal.l1_given else Kept.TO_L2, kept)
    return Outcome(found, norm, l1, kept)


def _written(outcome: Outcome, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values at their norms, and the records; NaN where vector or target is bad."""
    found, norm, l1, kept = outcome
    zero = norm.fraction == 0
    empty = zero | ~valid
    bad = torch.where(valid, 0.0, math.nan)
    record = torch.cat(
        (
            torch.where(empty, math.nan, found.shift),
            torch.where(empty, 0.0, found.scale.over(norm)),
            torch.where(empty, 0.0, found.support_size),
            torch.full_like(kept, READS),
            (empty | found.unique).to(kept.dtype),
            torch.where(zero, 0.0, l1) + bad,
            norm.fraction * norm.power + bad,
            torch.where(empty, 0.0, kept),
        ),
        -1,
    )
    return torch.where(zero, 0.0, norm.times(found.value)) + bad, record


def _largest(w: Tensor) -> Tensor:
    largest = w.abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, 1.0)


def _norm(x: Tensor) -> Size:
    unit = _largest(x)
    return Size((x / unit).square().sum(-1, keepdim=True).sqrt(), unit)


def _sparse_enough(w: Tensor, target: Target) -> tuple[Tensor, Tensor, Tensor]:
    """Whether sigma(w) is at least the target's, and both norms of w over its largest entry.

    Over the c nonzero entries, with mean m and sum of squares s about it, l1^2/l2^2 <= K reads
    c (c - K) <= K s/m^2: no digits are lost where entries are nearly equal.
    """
    w = w / _largest(w)
    inside = w > 0
    count = inside.sum(-1, keepdim=True).to(w.dtype)
    there = count > 0
    total = w.sum(-1, keepdim=True)
    mean = torch.where(there, total / count, 1.0)
    spread = torch.where(inside, w - mean, 0.0).square().sum(-1, keepdim=True)
    enough = count * target.excess(count) <= target.k * (spread / mean / mean)
    size = w.square().sum(-1, keepdim=True).sqrt()
    return enough & there, torch.where(there, total, 1.0), torch.where(there, size, 1.0)


# ---- one vector per row, at unit norm ----


def _solve(w: Tensor, target: Target, noise: Noise, *, signed: bool) -> Solution:
    """Choose between the ends of the range, ties at the maximum, and the search."""
    top = w.amax(-1, keepdim=True)
    low = w.amin(-1, keepdim=True)
    tied = w == top
    ties = tied.sum(-1, keepdim=True).to(w.dtype)
    excess = target.excess(ties)
    result = _search(w, top, low, target, noise, signed=signed)
    for case, other in (
        (excess == 0, _as_many_ties_as_fit(w, top, tied, ties, target)),
        (excess > 0, _more_ties_than_fit(top, tied, ties, target)),
        (target.room <= 0, _constant(w, low, target, signed=signed)),
    ):
        result = _select(case, other, result)
    return result


def _select(case: Tensor, a: Solution, b: Solution) -> Solution:
    def pick(first: Tensor, second: Tensor) -> Tensor:
        return torch.where(case, first, second)

    return Solution(
        pick(a.value, b.value),
        pick(a.shift, b.shift),
        _either(case, a.scale, b.scale),
        pick(a.support_size, b.support_size),
        pick(a.unique, b.unique),
        _either(case, a.inner, b.inner),
    )


def _either(case: Tensor, a: Size, b: Size) -> Size:
    return Size(*(torch.where(case, x, y) for x, y in zip(a, b, strict=True)))


def _constant(w: Tensor, low: Tensor, target: Target, *, signed: bool) -> Solution:
    """Sparseness 0: all entries alike."""
    n = target.n
    unit = _largest(w)
    root = math.sqrt(n)
    mean = (w / unit).mean(-1, keepdim=True)
    return Solution(
        torch.full_like(w, 1 / root),
        torch.full_like(low, math.nan),
        Size(torch.zeros_like(low), unit),
        torch.full_like(low, n),
        ~((low == 0) & signed),
        Size((root * mean).clamp(min=0), unit),
    )


def _more_ties_than_fit(top: Tensor, tied: Tensor, m: Tensor, target: Target) -> Solution:
    """Every point supported on the largest entries is nearest; fact 5 says which one is taken."""
    rest = target.excess(m).clamp(min=0) / m
    single = target.excess(torch.ones_like(m)) == 0
    first = target.ratio / m + ((m - 1) * rest / m).sqrt()
    others = target.ratio / m - (rest / (m * (m - 1)).clamp(min=1)).sqrt()
    others = torch.where(single, 0.0, others.clamp(min=0))
    is_first = tied & (tied.cumsum(-1) == 1)
    return Solution(
        torch.where(is_first, first, torch.where(tied, others, 0.0)),
        torch.full_like(top, math.nan),
        Size(torch.zeros_like(top), torch.ones_like(top)),
        torch.where(single, 1.0, m),
        torch.zeros_like(top, dtype=torch.bool),
        Size(target.ratio * (top > 0), top.clamp(min=0)),
    )


def _as_many_ties_as_fit(
    w: Tensor, top: Tensor, tied: Tensor, m: Tensor, target: Target
) -> Solution:
    """Exactly K largest entries share l1 evenly, and alpha is the next smaller entry."""
    below = torch.where(tied, -torch.inf, w).amax(-1, keepdim=True)
    halving = _halving(top, below)
    return Solution(
        torch.where(tied, target.ratio / m, 0.0),
        below,
        Size(m / target.ratio / halving, top * halving - below * halving),
        m,
        torch.ones_like(top, dtype=torch.bool),
        Size(target.ratio * (top > 0), top.clamp(min=0)),
    )


class Frame(NamedTuple):
    """s = (halving * top - halving * x) * inverse, never above `limit`."""

    top: Tensor
    halving: Tensor
    inverse: Tensor
    limit: float

    def into(self, x: Tensor) -> Tensor:
        """Return the distance of x from the maximum, in units."""
        return ((self.top * self.halving - x * self.halving) * self.inverse).clamp(max=self.limit)

    def out_of(self, s: Tensor) -> Tensor:
        """Return what lies at such a distance."""
        return (self.top * self.halving - s / self.inverse) / self.halving


class Support(NamedTuple):
    """Entries with s < bound, and their moments."""

    bound: Tensor
    size: Tensor
    mean: Tensor
    spread: Tensor

    def scale(self, target: Target) -> Tensor:
        """Return beta at unit norm (fact 2); by two roots, whose quotient may be huge."""
        excess = target.excess(self.size)
        return (self.spread * self.size).sqrt() / torch.where(excess > 0, excess, 1.0).sqrt()

    def step(self, target: Target) -> Tensor:
        """Return where this support puts alpha; never below the right one (fact 3)."""
        return self.mean + self.scale(target) * target.ratio / self.size


def _search(
    w: Tensor, top: Tensor, low: Tensor, target: Target, noise: Noise, *, signed: bool
) -> Solution:
    n = target.n
    ordered = w.sort(-1, descending=True).values
    # The support has more than K entries: the first one beyond is of the size that matters.
    least = target.whole.clamp(min(1, n - 1), n - 1)
    frame = _frame(top, low, ordered.gather(-1, least.long()), w.dtype)
    s = frame.into(ordered)
    edge = s.gather(-1, least.long())
    smallest = _next(s, edge, strict=True)
    bound = _first_outside(s, target).clamp(min=smallest)
    for _ in range(STEPS):
        bound = _improved(s, bound, smallest, target)
    support = _support(s, bound)
    for _ in range(CHALLENGES):
        support = _challenged(s, support, smallest, target)
    bare = (low == 0) & _zeros_stay(w, frame, support, target, noise)
    result = _interior(w, frame, support, low, target, signed=signed)
    return result._replace(
        value=torch.where(bare & (w == 0), 0.0, result.value),
        shift=torch.where(bare, 0.0, result.shift),
        support_size=torch.where(bare, (w > 0).sum(-1, keepdim=True), result.support_size),
        unique=bare | result.unique,
    )


def _frame(top: Tensor, low: Tensor, entry: Tensor, dtype: torch.dtype) -> Frame:
    """Choose the power of two by which distances are divided: about that of `entry`."""
    halving = _halving(top, low)
    distance = top * halving - entry * halving
    bits, mantissa, bias, limit = (
        (torch.int64, 52, 1023, 1e100) if dtype == torch.float64 else (torch.int32, 23, 127, 1e15)
    )
    exponent = (distance.contiguous().view(bits) >> mantissa).clamp(1, 2 * bias - 1)
    inverse = ((2 * bias - exponent) << mantissa).view(dtype)
    return Frame(top, halving, inverse, limit)


def _halving(top: Tensor, low: Tensor) -> Tensor:
    """Return a factor that keeps the distance of two entries a float."""
    return torch.where(torch.isinf(top - low), 0.5, 1.0).to(top.dtype)


def _first_outside(s: Tensor, target: Target) -> Tensor:
    """Return s of the largest entry that is not above the alpha of those before it; or infinity.

    With mean m and spread V of the first i entries, their alpha lies at s_i or before if
    i (i - K) (s_i - m)^2 >= K V: what is left of Psi >= 0 at this entry.
    """
    n = target.n
    index = torch.arange(n, dtype=s.dtype, device=s.device)
    first, second = (torch.cumsum(a, -1).roll(1, -1) for a in (s, s.square()))
    first, second = (torch.where(index == 0, 0.0, a) for a in (first, second))
    mean = first / index.clamp(min=1)
    spread = (second - first * mean).clamp(min=0)
    excess = target.excess(index)
    outside = (excess > 0) & (index * excess * (s - mean).square() >= target.k * spread)
    return torch.where(outside, s, torch.inf).amin(-1, keepdim=True)


def _next(s: Tensor, bound: Tensor, *, strict: bool = False) -> Tensor:
    """Return the smallest s that is not below the bound (or: above it), or infinity."""
    beyond = s > bound if strict else s >= bound
    return torch.where(beyond, s, torch.inf).amin(-1, keepdim=True)


def _support(s: Tensor, bound: Tensor) -> Support:
    """Take the moments of the entries before the bound, the spread about their mean."""
    inside = s < bound
    count = inside.sum(-1, keepdim=True).to(s.dtype).clamp(min=1)
    mean = torch.where(inside, s, 0.0).sum(-1, keepdim=True) / count
    spread = torch.where(inside, s - mean, 0.0).square().sum(-1, keepdim=True)
    return Support(bound, count, mean, spread)


def _improved(s: Tensor, bound: Tensor, smallest: Tensor, target: Target) -> Tensor:
    """One exact step: keep the support if alpha lies between its last entry and the next."""
    step = _support(s, bound).step(target)
    last = torch.where(s < bound, s, -torch.inf).amax(-1, keepdim=True)
    consistent = (last < step) & (step <= _next(s, bound))
    return torch.where(consistent, bound, _next(s, step).clamp(min=smallest))


def _challenged(s: Tensor, support: Support, smallest: Tensor, target: Target) -> Support:
    """Return the support without its last entries if by its own account it lacks nothing.

    Where K is a rounding error below a number of near-ties the two differ by the root of that
    error, though a comparison of alpha with the entry cannot tell them apart.
    """
    last = torch.where(s < support.bound, s, -torch.inf).amax(-1, keepdim=True)
    smaller = _support(s, last)
    right = (last >= smallest) & (target.excess(smaller.size) > 0) & (smaller.step(target) <= last)
    return _chosen(right, smaller, support)


def _zeros_stay(w: Tensor, frame: Frame, support: Support, target: Target, noise: Noise) -> Tensor:
    """Whether the zeros of a vector stay zero that is in D already, up to rounding (DESIGN 4.9).

    What they would receive, times (n - K)/rho, is by how much its own ratio of norms falls short.
    """
    even, scale = target.ratio / target.n, support.scale(target)
    # Not from the mean of s, next to which lie the zeros.
    mean = (w * frame.halving * frame.inverse).sum(-1, keepdim=True) / target.n
    received = even - mean / scale
    limit = torch.minimum(
        noise.norms * target.ratio / target.room,
        noise.entries * (even + (even + support.mean / scale)),
    )
    return (support.size == target.n) & (received <= limit)


def _chosen(case: Tensor, a: Support, b: Support) -> Support:
    return Support(*(torch.where(case, x, y) for x, y in zip(a, b, strict=True)))


def _interior(
    w: Tensor, frame: Frame, support: Support, low: Tensor, target: Target, *, signed: bool
) -> Solution:
    scale, s = support.scale(target), frame.into(w)
    inside = s < support.bound
    # What the mean lacks is the same for all entries, and adds up in their sum.
    deviations = torch.where(inside, support.mean - s, 0.0)
    deviations = deviations - deviations.sum(-1, keepdim=True) / support.size
    value = target.ratio / support.size + deviations / scale
    # <p, x> = rho * mean(x) + spread/beta; not from the mean of s, next to which it may be small.
    entries = torch.where(inside, w * frame.halving * frame.inverse, 0.0)
    inner = target.ratio / support.size * entries.sum(-1, keepdim=True) + support.spread / scale
    unit = 1 / frame.inverse / frame.halving
    everything = support.size == target.n
    return Solution(
        torch.where(inside, value, 0.0).clamp(min=0),
        frame.out_of(support.step(target)),
        Size(scale, unit),
        support.size,
        ~(everything & (low == 0) & signed),
        Size(inner.clamp(min=0), unit),
    )
