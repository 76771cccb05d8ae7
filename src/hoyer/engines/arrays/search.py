"""The search for supports in plain array operations: any library and device, no look at a number.

A device must not be asked how far it is, so there is no loop that ends when it is done: the support
is found by sorting, then confirmed by a fixed number of exact steps. What is compared and summed is
s = (max - x)/unit: 0 at the maximum, about 1 where the support ends. So the scale of the data does
not matter, and ties are exact zeros. Entries outside of a mask are at infinity, in no support.

Where a support puts alpha is up to a closed form: see `hoyer.engines.arrays.closed_form`.
"""

import math
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from .namespace import Namespace

STEPS = 3
"""Exact steps after sorting; each one ends closer to the support, from either side."""

CHALLENGES = 2
"""How often the support without its smallest entries is tried."""

READS = 3 + 2 * (STEPS + CHALLENGES)
"""What `evaluations` says: every full read before the write."""


class Entries:
    """What is compared in each vector: the sizes of its entries, or these themselves.

    Parameters
    ----------
    w : array
        The entries; 0 outside of the mask.
    there : array of bool or None
        The mask.
    xp : Namespace
        The arrays' library.
    """

    def __init__(self, w: Any, there: Any, xp: Namespace) -> None:
        self.w, self.there, self.xp = w, there, xp
        self.masked = there is not None

    @cached_property
    def lowered(self) -> Any:
        """The entries, minus infinity outside of the mask."""
        return self.xp.where(self.there, self.w, -math.inf) if self.masked else self.w

    @cached_property
    def ordered(self) -> Any:
        """The same, the largest first."""
        return self.xp.descending(self.lowered)

    @cached_property
    def top(self) -> Any:
        """Each vector's largest entry."""
        return self.xp.highest(self.lowered)

    @cached_property
    def low(self) -> Any:
        """Each vector's smallest entry."""
        w = self.xp.where(self.there, self.w, math.inf) if self.masked else self.w
        return self.xp.lowest(w)

    @cached_property
    def tied(self) -> Any:
        """Where entries are equal to the largest."""
        equal = self.w == self.top
        return equal & self.there if self.masked else equal

    def count(self, marked: Any) -> Any:
        """Return how many entries are marked."""
        return self.xp.total(self.xp.astype(marked, self.w.dtype))

    def positive(self) -> "Entries":
        """Return these without the ones that are not above 0."""
        return Entries(self.xp.clip(self.w, 0, None), self.w > 0, self.xp)


class Frame(NamedTuple):
    """s = (halving * top - halving * x) * inverse, never above `limit` but for x = -inf."""

    top: Any
    halving: Any
    inverse: Any
    limit: float
    masked: bool

    def into(self, x: Any, xp: Namespace) -> Any:
        """Return the distances from the maximum, in units."""
        distance = self.top * self.halving - x * self.halving
        s = xp.clip(distance * self.inverse, None, self.limit)
        return xp.where(x == -math.inf, math.inf, s) if self.masked else s

    def out_of(self, s: Any) -> Any:
        """Return what lies at such a distance."""
        return (self.top * self.halving - s / self.inverse) / self.halving


def halving(top: Any, low: Any, xp: Namespace) -> Any:
    """Return a factor that keeps the distance of two entries a float."""
    return xp.where(xp.isinf(top - low), 0.5, xp.ones_like(top))


class ClosedForm(Protocol):
    """What one set says about a support."""

    @property
    def xp(self) -> Namespace:
        """The arrays' library."""

    @property
    def ratio(self) -> Any:
        """The L1 norm of the result, in the units that `scale` leads to."""

    def scale(self, size: Any, spread: Any) -> Any:
        """Return beta of a support with so many entries, and this spread."""

    def fits(self, size: Any) -> Any:
        """Whether a support may be so small."""

    def first_outside(self, s: Any) -> Any:
        """Return s of the largest entry not above the alpha of those before it; or infinity."""


class Support(NamedTuple):
    """Entries with s < bound, and their moments."""

    bound: Any
    size: Any
    mean: Any
    spread: Any

    def scale(self, form: ClosedForm) -> Any:
        """Return beta at the norm of the form."""
        return form.scale(self.size, self.spread)

    def step(self, form: ClosedForm) -> Any:
        """Return where this support puts alpha; never below the right one."""
        return self.mean + self.scale(form) * form.ratio / self.size


def find_support(s: Any, smallest: Any, form: ClosedForm, *, challenges: int = 0) -> Support:
    """Return the support of each vector, which has all entries with s < smallest.

    `s` is in ascending order.
    """
    bound = form.xp.clip(form.first_outside(s), smallest, None)
    for _ in range(STEPS):
        bound = _improved(s, bound, smallest, form)
    support = _support(s, bound, form.xp)
    for _ in range(challenges):
        support = _challenged(s, support, smallest, form)
    return support


def _improved(s: Any, bound: Any, smallest: Any, form: ClosedForm) -> Any:
    """One exact step: keep the support if alpha lies between its last entry and the next."""
    xp = form.xp
    step = _support(s, bound, xp).step(form)
    consistent = (_last(s, bound, xp) < step) & (step <= next_of(s, s >= bound, xp))
    return xp.where(consistent, bound, xp.clip(next_of(s, s >= step, xp), smallest, None))


def _challenged(s: Any, support: Support, smallest: Any, form: ClosedForm) -> Support:
    """Return the support without its last entries if by its own account it lacks nothing.

    Where K is a rounding error below a number of near-ties the two differ by the root of that
    error, though a comparison of alpha with the entry cannot tell them apart.
    """
    xp = form.xp
    last = _last(s, support.bound, xp)
    smaller = _support(s, last, xp)
    right = (last >= smallest) & form.fits(smaller.size) & (smaller.step(form) <= last)
    chosen: Support = either(right, smaller, support, xp)
    return chosen


def _support(s: Any, bound: Any, xp: Namespace) -> Support:
    return Support(bound, *moments(s, s < bound, xp))


def moments(entries: Any, inside: Any, xp: Namespace) -> tuple[Any, Any, Any]:
    """Return the number of the entries inside, but at least 1, their mean, and the spread about it.

    Rounding of the mean moves the spread only in its square.
    """
    count = xp.clip(xp.total(xp.astype(inside, entries.dtype)), 1, None)
    mean = xp.total(xp.where(inside, entries, 0.0)) / count
    return count, mean, xp.total(xp.square(xp.where(inside, entries - mean, 0.0)))


def sums_before(s: Any, numbers: Any, xp: Namespace) -> Any:
    """Return the sums of numbers before each one, those at infinity left out."""
    numbers = xp.where(s == math.inf, 0.0, numbers)
    return xp.joined(xp.zeros_like(s[..., :1]), xp.running_total(numbers)[..., :-1])


def next_of(s: Any, beyond: Any, xp: Namespace) -> Any:
    """Return the smallest s among those beyond, or infinity."""
    return xp.lowest(xp.where(beyond, s, math.inf))


def _last(s: Any, bound: Any, xp: Namespace) -> Any:
    """Return the largest s before the bound, or minus infinity."""
    return xp.highest(xp.where(s < bound, s, -math.inf))


def either(case: Any, a: Any, b: Any, xp: Namespace) -> Any:
    """Return a where that is the case, else b: two arrays, or named tuples of arrays."""
    if not isinstance(a, tuple):
        return xp.where(case, a, b)
    return type(a)(*(either(case, *parts, xp) for parts in zip(a, b, strict=True)))
