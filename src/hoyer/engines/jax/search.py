"""The search for the support of a vector whose parts lie on several devices, in traced code.

It is that of `hoyer.engines.parts`, for programs whose shapes are fixed: a histogram of all keys,
then one of the bin that alpha lies in, until all entries there are alike. Histograms are integers,
and added up over all devices; what follows from them is the same on each, since it is computed with
integers, too. So results have the same bits on any number of devices.

Whether alpha is below a pivot is decided by 208 bits of each entry, counted from the first bit of
the largest: what is smaller by that much moves no digit of a result.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..arrays.closed_form import Goal
from ..arrays.histogram import BIN_BITS, BIN_COUNT
from .histogram import Bins, Keys, histogram
from .integers import LIMB, carried, limbs_of, placed, product, resized, sign

WINDOW = 208
"""How many bits of an entry count, from the first one of the largest."""
_ENTRY, _SUM, _SQUARES = WINDOW // LIMB + 1, WINDOW // LIMB + 2, 2 * WINDOW // LIMB + 2
_K_LOW = 6
"""How many limbs K has after the point."""


class Sums(NamedTuple):
    """Entries: how many there are, and what they and their squares add up to, in units."""

    count: Any
    first: Any
    second: Any

    def plus(self, other: "Sums") -> "Sums":
        """Return those of all entries together."""
        return Sums(
            self.count + other.count,
            carried(self.first + other.first, _SUM),
            carried(self.second + other.second, _SQUARES),
        )

    def reaches(self, pivot: Any, k: Any) -> Any:
        """Whether l1**2 >= K l2**2 of x - pivot: alpha is not below the pivot then.

        No entry may be below it; if all are the pivot the answer is no.
        """
        balance, l2 = self._balance(pivot, k)
        return (balance >= 0) & (l2 > 0)

    def exceeds(self, pivot: Any, k: Any) -> Any:
        """Whether l1**2 > K l2**2 of x - pivot."""
        return self._balance(pivot, k)[0] > 0

    def _balance(self, pivot: Any, k: Any) -> tuple[Any, Any]:
        """Return the signs of l1**2 - K l2**2 and of l2 of x - pivot."""
        size = _SQUARES + 1
        times = carried(self.count * pivot, _SUM)
        l1 = carried(self.first - times, _SUM)
        less = product(carried(2 * self.first - times, _SUM), pivot, size)
        l2 = carried(resized(self.second, size) - less, size)
        whole = 2 * _SUM + _K_LOW + 1
        # K has a point.
        square = jnp.roll(resized(product(l1, l1, 2 * _SUM), whole), _K_LOW, -1)
        balance = carried(square - product(k, l2, whole), whole)
        return sign(balance), sign(l2)

    def spread_times_count(self) -> Any:
        """Return the sum of squares about the mean, times the count, in limbs."""
        size = 2 * _SUM
        squares = carried(resized(self.count * self.second, size), size)
        return carried(squares - product(self.first, self.first, size), size)

    def deviation(self, number: Any, unit: Any) -> Any:
        """Return the sum of x - number, for a float, in limbs; `unit` is the exponent of units."""
        return carried(self.first - self.count * in_units(number, unit, _SUM), _SUM)


def in_units(number: Any, unit: Any, size: int) -> Any:
    """Return a float64 in limbs, in units of 2**unit, rounded down in size."""
    bits = lax.bitcast_convert_type(number, jnp.int64)
    m, exponent = Keys(64, True).decoded(bits & ((1 << 63) - 1))
    limbs = carried(placed(limbs_of(m, 3), exponent - unit, size), size)
    return jnp.where(bits < 0, -limbs, limbs)


def exact_k(goal: Goal) -> Any:
    """Return K = n - slack in limbs, 156 bits of them after the point."""
    size = _K_LOW + 2
    slack = sum(in_units(part, -LIMB * _K_LOW, size) for part in (goal.slack, goal.slack_low))
    n = jnp.roll(resized(limbs_of(jnp.asarray(goal.n, jnp.int64), 2), size), _K_LOW, -1)
    return carried(n - slack, size)


class Ends(NamedTuple):
    """The keys of the largest entry, and of the smallest."""

    top: Any
    bottom: Any


class Found(NamedTuple):
    """The support: entries whose key is above `pivot`, and their sums."""

    pivot: Any
    sums: Sums
    unit: Any
    """The exponent of the units that sums are in."""
    rounds: Any
    """How many histograms it took."""


class _State(NamedTuple):
    """What is known: alpha is not below `lower`, but below the end of the bin that starts there."""

    lower: Any
    width: Any
    above: Sums
    """Of all entries beyond that bin."""
    pivot: Any
    done: Any
    rounds: Any


class Search:
    """One vector: the keys of the entries that are here, and where those of others are added."""

    def __init__(self, keys: Keys, entries: Any, ends: Ends, k: Any, names: Any) -> None:  # noqa: PLR0917 - data, each of them once
        self.keys, self.entries, self.ends, self.k, self.names = keys, entries, ends, k, names
        self.bins = self._histogram(keys.lower, keys.width, keys.width)

    def _histogram(self, lower: Any, width: Any, most: int) -> Bins:
        """Return the bins of all parts together."""
        table = histogram(self.entries, lower, width, most, self.keys)
        return Bins.of(lax.psum(table, self.names), lower, width, most, self.keys)

    # ---- units ----

    def unit(self, key: Any) -> Any:
        """Return the exponent of the units in which entries from a key on are added up."""
        exponents = [self.keys.decoded(one)[1] for one in (self.ends.top, key)]
        return jnp.maximum(*exponents) + self.keys.digits + 1 - WINDOW

    def value(self, key: Any, unit: Any) -> Any:
        """Return the float with a key, in units."""
        m, exponent = self.keys.decoded(key)
        return carried(placed(limbs_of(m, 3), exponent - unit, _ENTRY), _ENTRY)

    def sums(self, inside: Any, unit: Any) -> Sums:
        """Return the sums over some bins of the first histogram."""
        # Bins with one exponent are neighbours, and are added up before they are shifted.
        group = 1 << max(self.keys.digits - self.keys.width, 0)
        return _sums(self.bins, inside, group, unit)

    # ---- the search ----

    def support(self) -> Found:
        """Return the entries above alpha, where fewer than K entries share the maximum."""
        keys, number, bins = self.keys, jnp.arange(BIN_COUNT), self.bins

        def reaches(i: Any) -> Any:
            unit = self.unit(bins.keys[i])
            return self.sums(number >= i, unit).reaches(self.value(bins.keys[i], unit), self.k)

        border = _last(reaches)
        there = border >= 0
        start = bins.keys[jnp.maximum(border, 0)]
        unit = self.unit(jnp.where(there, start, self.ends.bottom))
        state = _State(
            start,
            jnp.int32(keys.width),
            self.sums(number > border, unit),
            jnp.int64(keys.lower - 1),
            ~there,
            jnp.int32(1),
        )
        state = self._judged(bins.one(jnp.maximum(border, 0)), state, unit)
        # Invariant: that of `_State`; bins get narrower until one key is left.
        state = lax.while_loop(
            lambda state: ~state.done, lambda state: self._divided(state, unit), state
        )
        return Found(state.pivot, state.above, unit, state.rounds)

    def _divided(self, state: _State, unit: Any) -> _State:
        """Divide the bin that alpha lies in."""
        number = jnp.arange(BIN_COUNT)
        width = jnp.maximum(state.width - BIN_BITS, 0)
        bins = self._histogram(state.lower, width, max(self.keys.width - BIN_BITS, 0))
        # The last histogram reaches beyond the bin.
        within = (bins.keys - state.lower) < (jnp.int64(1) << state.width.astype(jnp.int64))

        def above(inside: Any) -> Sums:
            return state.above.plus(_sums(bins, within & inside, BIN_COUNT, unit))

        def reaches(i: Any) -> Any:
            return within[i] & above(number >= i).reaches(self.value(bins.keys[i], unit), self.k)

        # The first bin starts where the divided one did, which is not above alpha.
        border = jnp.maximum(_last(reaches), 0)
        state = state._replace(
            lower=bins.keys[border],
            width=width,
            above=above(number > border),
            rounds=state.rounds + 1,
        )
        return self._judged(bins.one(border), state, unit)

    def _judged(self, own: Bins, state: _State, unit: Any) -> _State:
        """Say whether all entries of the bin are alike, and then on which side of alpha they are."""
        same, key = own.same()
        empty = own.counts[0] == 0
        both = state.above.plus(_sums(own, jnp.ones(1, bool), 1, unit))
        outside = empty | both.reaches(self.value(key, unit), self.k)
        joins = ~state.done & same & ~outside
        above = Sums(*(jnp.where(joins, a, b) for a, b in zip(both, state.above, strict=True)))
        pivot = jnp.where(state.done, state.pivot, jnp.where(joins, key - 1, key))
        return state._replace(above=above, pivot=pivot, done=state.done | same | empty)


def _sums(bins: Bins, inside: Any, group: int, unit: Any) -> Sums:
    """Return the sums over some bins; so many neighbours have the same exponent."""
    inside = inside.reshape(-1, group, 1)
    first, second = (
        jnp.where(inside, limbs.reshape(-1, group, limbs.shape[-1]), 0).sum(1)
        for limbs in (bins.first, bins.second)
    )
    shift = bins.exponents.reshape(-1, group)[:, 0] - unit
    return Sums(
        jnp.where(inside[..., 0], bins.counts.reshape(-1, group), 0).sum(),
        carried(placed(carried(first, 5), shift, _SUM).sum(0), _SUM),
        carried(placed(carried(second, 7), 2 * shift, _SQUARES).sum(0), _SQUARES),
    )


def _last(holds: Callable[[Any], Any]) -> Any:
    """Return the last bin for which something holds that holds for all before it; or -1."""

    def step(i: Any, border: Any) -> Any:
        tried = border + (jnp.int32(BIN_COUNT) >> i)
        there = tried < BIN_COUNT
        return jnp.where(there & holds(jnp.where(there, tried, 0)), tried, border)

    # Invariant: it holds for bin `border`, or that is -1; the last one is at most 2**(13 - i) - 1
    # bins further.
    return lax.fori_loop(jnp.int32(0), jnp.int32(BIN_BITS + 1), step, jnp.int32(-1))
