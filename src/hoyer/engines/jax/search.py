"""The search for the support of a vector whose parts lie on several devices, in traced code.

It is that of `hoyer.engines.parts`, for programs whose shapes are fixed: a histogram of all keys,
then one of the bin that alpha lies in, until all entries there are alike. Histograms are integers,
and added up over all devices; what follows from them is the same on each, since it is computed with
integers, too. So results have the same bits on any number of devices.

Whether alpha is below a pivot is decided by 208 bits of each entry, counted from the first bit of
the largest: what is smaller by that much moves no digit of a result.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..arrays.closed_form import Goal
from ..arrays.histogram import BIN_BITS, BIN_COUNT
from .histogram import Bins, Keys, histogram
from .integers import LIMB, carried, limbs_of, moved, placed, raw_product, resized, sign

WINDOW = 208
"""How many bits of an entry count, from the first one of the largest."""
_ENTRY, _SUM, _SQUARES = WINDOW // LIMB + 1, WINDOW // LIMB + 2, 2 * WINDOW // LIMB + 2
_K_LOW = 6
"""How many limbs K has after the point."""


def varying(numbers: Any, like: Any) -> Any:
    """Return numbers in the types that JAX wants of loops within `jax.shard_map`."""
    every = varies(like)

    def cast(one: Any) -> Any:
        missing = tuple(every - varies(one))
        return lax.pcast(one, missing, to="varying") if missing else one

    return jax.tree.map(cast, numbers) if every else numbers


def varies(array: Any) -> frozenset[str]:
    """Return over which axes of a mesh an array varies, by its type."""
    kind = jax.typeof(array)
    # Versions of JAX have two names for it.
    return frozenset(kind.vma if hasattr(kind, "vma") else kind.manual_axis_type.varying)


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

    def balance(self, pivot: Any, k: Any) -> Any:
        """Return the sign of l1**2 - K l2**2 of x - pivot, which no entry is below.

        Unless all entries are the pivot, alpha is not below it if this is not negative.
        """
        size = _SQUARES + 1
        times = carried(self.count * pivot, _SUM)
        l1 = carried(self.first - times, _SUM)
        less = raw_product(carried(2 * self.first - times, _SUM), pivot)
        l2 = carried(resized(self.second, size) - resized(less, size), size)
        whole = 2 * _SUM + _K_LOW + 1
        # K has a point.
        square = moved(resized(raw_product(l1, l1), whole), _K_LOW)
        return sign(carried(square - resized(raw_product(k, l2), whole), whole))

    def spread_times_count(self) -> Any:
        """Return the sum of squares about the mean, times the count, in limbs."""
        size = 2 * _SUM
        squares = resized(self.count * self.second, size)
        return carried(squares - resized(raw_product(self.first, self.first), size), size)

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
    n = moved(limbs_of(jnp.asarray(goal.n, jnp.int64), size), _K_LOW)
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
    unit: Any
    done: Any
    rounds: Any


class Search:
    """One vector: the keys of the entries that are here, and where those of others are added."""

    def __init__(self, keys: Keys, entries: Any, ends: Ends, k: Any, names: Any) -> None:
        self.keys, self.entries, self.ends, self.k, self.names = keys, entries, ends, k, names

    def unit(self, key: Any) -> Any:
        """Return the exponent of the units in which entries from a key on are added up."""
        exponents = [self.keys.decoded(one)[1] for one in (self.ends.top, key)]
        return jnp.maximum(*exponents) + self.keys.digits + 1 - WINDOW

    def value(self, key: Any, unit: Any) -> Any:
        """Return the float with a key, in units."""
        m, exponent = self.keys.decoded(key)
        return carried(placed(limbs_of(m, 2), exponent - unit, _ENTRY), _ENTRY)

    def histogram(self, lower: Any, width: Any) -> Bins:
        """Return the bins of all parts together."""
        table = lax.psum(histogram(self.entries, lower, width, self.keys), self.names)
        return Bins.of(table, lower, width, self.keys)

    def sums(self, bins: Bins, inside: Any, unit: Any) -> Sums:
        """Return the sums over some bins."""
        # Bins with one exponent are neighbours, and are added up before they are shifted.
        group = 1 << (self.keys.digits - self.keys.width)
        inside = inside.reshape(-1, group, 1)
        first, second = (
            jnp.where(inside, limbs.reshape(-1, group, limbs.shape[-1]), 0).sum(1)
            for limbs in (bins.first, bins.second)
        )
        shift, ends = bins.exponents.reshape(-1, group)[:, 0] - unit, self.keys.sums
        return Sums(
            jnp.where(inside[..., 0], bins.counts.reshape(-1, group), 0).sum(),
            carried(placed(carried(first, ends[0]), shift, _SUM).sum(0), _SUM),
            carried(placed(carried(second, ends[1]), 2 * shift, _SQUARES).sum(0), _SQUARES),
        )

    def support(self) -> Found:
        """Return the entries above alpha, where fewer than K entries share the maximum."""
        keys = self.keys
        nothing = Sums(jnp.int64(0), jnp.zeros(_SUM, jnp.int64), jnp.zeros(_SQUARES, jnp.int64))
        state = _State(
            jnp.int64(keys.lower),
            jnp.int64(keys.width + BIN_BITS),
            nothing,
            jnp.int64(keys.below),
            self.unit(self.ends.bottom),
            jnp.bool_(False),
            jnp.int32(0),
        )
        state = varying(state, self.k)
        # Invariant: that of `_State`; bins get narrower until one key is left.
        state = lax.while_loop(lambda state: ~state.done, self._divided, state)
        return Found(state.pivot, state.above, state.unit, state.rounds)

    def _divided(self, state: _State) -> _State:
        """Divide the bin that alpha lies in, which is everything at first."""
        number = jnp.arange(BIN_COUNT, dtype=jnp.int32)
        width = jnp.maximum(state.width - BIN_BITS, 0)
        bins = self.histogram(state.lower, width)
        # The last histogram reaches beyond the bin.
        within = number < (jnp.int64(1) << (state.width - width))

        def step(i: Any, known: tuple[Any, Any]) -> tuple[Any, Any]:
            """Try a bin; at last the entries of the one that was found, should they be alike."""
            border, _ = known
            tried = jnp.where(i <= BIN_BITS, border + (jnp.int32(BIN_COUNT) >> i), border)
            there = (tried >= 0) & (tried < BIN_COUNT)
            tried = jnp.clip(tried, 0, BIN_COUNT - 1)
            key = jnp.where(i <= BIN_BITS, bins.keys[tried], bins.alike(tried)[1])
            unit = self.unit(key)
            above = state.above.plus(self.sums(bins, within & (number >= tried), unit))
            reached = above.balance(self.value(key, unit), self.k) >= 0
            reached = reached & there & within[tried] & (key < self.ends.top)
            return jnp.where(reached & (i <= BIN_BITS), tried, border), reached

        # Invariant: alpha is not below bin `border`, or that is -1; it is below the start of the
        # one that is 2**(13 - i) further.
        known = varying((jnp.int32(-1), jnp.bool_(False)), self.k)
        border, outside = lax.fori_loop(jnp.int32(0), jnp.int32(BIN_BITS + 2), step, known)
        none, i = border < 0, jnp.maximum(border, 0)
        same, key = bins.alike(i)
        done = none | same
        joins = done & ~outside & ~none & (bins.counts[i] > 0)
        unit = jnp.where(none, state.unit, self.unit(bins.keys[i]))
        inside = within & (number >= border + jnp.where(joins, 0, 1).astype(jnp.int32))
        return _State(
            bins.keys[i],
            width,
            state.above.plus(self.sums(bins, inside, unit)),
            jnp.where(none, state.pivot, jnp.where(joins, key - 1, key)),
            unit,
            done,
            state.rounds + 1,
        )
