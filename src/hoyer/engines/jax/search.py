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
from .histogram import Bins, Keys
from .integers import (
    LIMB,
    carried,
    limbs_of,
    moved,
    placed,
    power_of_two,
    raw_product,
    resized,
    sign,
)

WINDOW = 208
"""How many bits of an entry count, from the first one of the largest."""
_ENTRY, _SUM, _SQUARES = WINDOW // LIMB + 1, WINDOW // LIMB + 2, 2 * WINDOW // LIMB + 2
_K_LOW = 6
"""How many limbs K has after the point."""


def varying(numbers: Any, axes: frozenset[str]) -> Any:
    """Return numbers in the types that JAX wants of loops within `jax.shard_map`."""

    def cast(one: Any) -> Any:
        missing = tuple(axes - varies(one))
        return lax.pcast(one, missing, to="varying") if missing else one

    return jax.tree.map(cast, numbers) if axes else numbers


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

    def surplus(self, pivot: Any, l1: Any) -> Any:
        """Return the sign of the L1 norm of x - pivot, which no entry is below, less l1."""
        times = carried(self.count * pivot, _SUM)
        return sign(carried(self.first - times - l1, _SUM))

    def spread_times_count(self) -> Any:
        """Return the sum of squares about the mean, times the count, in limbs."""
        size = 2 * _SUM
        squares = resized(self.count * self.second, size)
        return carried(squares - resized(raw_product(self.first, self.first), size), size)

    def deviation(self, number: Any, unit: Any) -> Any:
        """Return the sum of x - number, for a float, in limbs; `unit` is the exponent of units."""
        return carried(self.first - self.count * in_units(number, unit, _SUM), _SUM)

    def lacking(self, l1: Any) -> Any:
        """Return by how much the sum falls short of an L1 norm, in limbs."""
        return carried(l1 - self.first, _SUM)


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


class Form(NamedTuple):
    """What a set says about alpha: whether it is below a pivot, by the sums above that."""

    k: Any = None
    """Where both norms count: see `exact_k`."""
    l1: Any = None
    """Where the L1 norm counts by itself: a float."""

    def reached(self, above: Sums, pivot: Any, unit: Any) -> Any:
        """Whether alpha is not below a pivot; of two alphas it is the smaller one."""
        found = jnp.bool_(True)
        if self.k is not None:
            found = found & (above.balance(pivot, self.k) >= 0)
        if self.l1 is not None:
            found = found & (above.surplus(pivot, l1_in_units(self.l1, unit)) >= 0)
        return found


def l1_in_units(l1: Any, unit: Any) -> Any:
    """Return an L1 norm in limbs, or one that is beyond all sums, and no more than limbs hold."""
    return in_units(jnp.minimum(l1, power_of_two(unit + WINDOW + 40)), unit, _SUM)


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


class State(NamedTuple):
    """What is known: alpha is not below the bin that the next histogram divides, but below `end`.

    All entries of this bin are in the range of the histogram, which may be narrower.
    """

    lower: Any
    """Where the histogram starts."""
    width: Any
    """How many bits its bins leave open."""
    end: Any
    """Where the bin ends that is divided: the histogram may reach further."""
    above: Sums
    """Of all entries beyond that bin."""
    pivot: Any
    """Entries beyond it are in the support, should alpha be below the whole histogram."""
    unit: Any
    done: Any
    rounds: Any

    @staticmethod
    def first(keys: Keys) -> "State":
        """Return what is known before the first histogram."""
        nothing = Sums(jnp.int64(0), jnp.zeros(_SUM, jnp.int64), jnp.zeros(_SQUARES, jnp.int64))
        return State(
            jnp.int64(keys.lower),
            jnp.int64(keys.width),
            jnp.int64(keys.not_finite),
            nothing,
            jnp.int64(keys.below),
            jnp.int64(0),
            jnp.bool_(False),
            jnp.int32(0),
        )

    @property
    def found(self) -> Found:
        """The support, at the end."""
        return Found(self.pivot, self.above, self.unit, self.rounds)


class _Suffixes:
    """The sums over all bins from some bin on, of one histogram."""

    def __init__(self, bins: Bins, within: Any, keys: Keys) -> None:
        # Bins with one exponent are neighbours, and are added up before they are shifted.
        group = 1 << (keys.digits - keys.width)
        self.group, self.exponents = group, bins.exponents.reshape(-1, group)[:, 0]
        ends = (None, *keys.sums)
        self.columns = []
        for limbs, end in zip((bins.counts[:, None], bins.first, bins.second), ends, strict=True):
            whole = jnp.where(within[:, None], limbs, 0).reshape(-1, group, limbs.shape[-1])
            # Invariant: sums of `step` bins, or of all that follow in the group.
            for step in (1 << i for i in range(group.bit_length() - 1)):
                whole = whole + jnp.pad(whole[:, step:], [(0, 0), (0, step), (0, 0)])
            whole = lax.optimization_barrier(whole)
            self.columns.append(whole if end is None else carried(whole, end))
        # XLA would compute all of it again in every step.
        self.columns = list(lax.optimization_barrier(tuple(self.columns)))

    def sums(self, start: Any, unit: Any) -> Sums:
        """Return the sums from a bin on, up to the number of bins, which is none."""
        number = jnp.arange(self.exponents.shape[0], dtype=jnp.int32)[:, None]
        first, place = start // self.group, start % self.group
        counts, sums, squares = (
            jnp.where(number > first, limbs[:, 0], jnp.where(number == first, limbs[:, place], 0))
            for limbs in self.columns
        )
        shift = self.exponents - unit
        return Sums(
            counts.sum(),
            carried(placed(sums, shift, _SUM).sum(0), _SUM),
            carried(placed(squares, 2 * shift, _SQUARES).sum(0), _SQUARES),
        )


class Search:
    """One vector: what all of its parts together tell."""

    def __init__(self, keys: Keys, ends: Ends, form: Form) -> None:
        self.keys, self.ends, self.form = keys, ends, form

    def unit(self, key: Any) -> Any:
        """Return the exponent of the units in which entries from a key on are added up."""
        exponents = [self.keys.decoded(one)[1] for one in (self.ends.top, key)]
        return jnp.maximum(*exponents) + self.keys.digits + 1 - WINDOW

    def value(self, key: Any, unit: Any) -> Any:
        """Return the float with a key, in units."""
        m, exponent = self.keys.decoded(key)
        return carried(placed(limbs_of(m, 2), exponent - unit, _ENTRY), _ENTRY)

    def sums(self, bins: Bins, key: Any) -> tuple[Sums, Any]:
        """Return the sums over the first histogram from a key's bin on, and their unit."""
        # The end of the last bin need be no integer.
        before = bins.keys <= key - (jnp.int64(1) << self.keys.width)
        unit, start = self.unit(key), before.sum(dtype=jnp.int32)
        return _Suffixes(bins, jnp.ones(BIN_COUNT, bool), self.keys).sums(start, unit), unit

    def divided(self, state: "State", table: Any) -> "State":
        """Divide the bin that alpha lies in, which is everything at first, by its histogram."""
        state = state._replace(
            unit=jnp.where(state.rounds == 0, self.unit(self.ends.bottom), state.unit)
        )
        return self._divided(state, Bins.of(table, state.lower, state.width, self.keys))

    def _divided(self, state: "State", bins: Bins) -> "State":
        # The last histogram reaches beyond the bin.
        within = bins.keys < state.end
        suffixes = _Suffixes(bins, within, self.keys)

        def step(i: Any, known: tuple[Any, Any]) -> tuple[Any, Any]:
            """Try a bin; at last the entries of the one that was found, should they be alike."""
            border, _ = known
            tried = jnp.where(i <= BIN_BITS, border + (jnp.int32(BIN_COUNT) >> i), border)
            there = (tried >= 0) & (tried < BIN_COUNT)
            tried = jnp.clip(tried, 0, BIN_COUNT - 1)
            key = jnp.where(i <= BIN_BITS, bins.keys[tried], bins.alike(tried)[1])
            unit = self.unit(key)
            above = state.above.plus(suffixes.sums(tried, unit))
            reached = self.form.reached(above, self.value(key, unit), unit)
            reached = reached & there & within[tried] & (key < self.ends.top)
            return jnp.where(reached & (i <= BIN_BITS), tried, border), reached

        # Invariant: alpha is not below bin `border`, or that is -1; it is below the start of the
        # one that is 2**(13 - i) further.
        known = varying((jnp.int32(-1), jnp.bool_(False)), varies(state.done))
        border, outside = lax.fori_loop(jnp.int32(0), jnp.int32(BIN_BITS + 2), step, known)
        none, i = border < 0, jnp.maximum(border, 0)
        same, key = bins.alike(i)
        done = none | same
        joins = done & ~outside & ~none & (bins.counts[i] > 0)
        unit = jnp.where(none, state.unit, self.unit(bins.keys[i]))
        above = suffixes.sums(border + jnp.where(joins, 0, 1).astype(jnp.int32), unit)
        pivot = jnp.where(none, state.pivot, jnp.where(joins, key - 1, key))
        lower, width = bins.narrowed(i, state.width)
        return State(
            lower,
            width,
            bins.keys[i] + (jnp.int64(1) << state.width),
            state.above.plus(above),
            jnp.where(done, pivot, lower - 1),
            jnp.where(done, unit, self.unit(lower)),
            done,
            state.rounds + 1,
        )
