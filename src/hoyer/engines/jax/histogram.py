"""Floats as integers in order, and histograms of these, in traced code.

A *key* is the bits of a float's size, with its sign, as in `hoyer.engines.arrays.histogram`.
Nothing here calculates with floats: what XLA makes of subnormal numbers does not matter.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ..arrays.histogram import BIN_BITS, BIN_COUNT
from ..arrays.namespace import namespace
from .integers import LIMB, as_float, carried, raw_product, resized, scaled, sign

XP = namespace(jnp)
_LOW = (1 << LIMB) - 1
DOUBLE_DIGITS = 53
"""No bins are so wide: there are 2**12 of them."""
ABSENT = -(1 << 63)
"""The key of an entry that a mask leaves out: it lies in no bin, and below all others."""


class Keys(NamedTuple):
    """The floats of a type; halves are taken as floats of 32 bits."""

    bits: int
    nonnegative: bool
    """Whether entries are those of x, rather than of abs(x)."""

    @staticmethod
    def of(dtype: Any, nonnegative: bool) -> "Keys":
        """Return the keys of a type."""
        return Keys(max(XP.finfo(dtype).bits, 32), nonnegative)

    @property
    def digits(self) -> int:
        """How many bits follow the exponent."""
        return 23 if self.bits == 32 else 52

    @property
    def lower(self) -> int:
        """The first key."""
        return -(1 << (self.bits - 1)) if self.nonnegative else 0

    @property
    def below(self) -> int:
        """A key that no entry has, and that is below all of them."""
        return self.lower if self.nonnegative else -1

    @property
    def width(self) -> int:
        """How many bits of keys the first bins leave open."""
        return self.bits - (0 if self.nonnegative else 1) - BIN_BITS

    @property
    def not_finite(self) -> int:
        """The key of infinity."""
        return ((1 << (self.bits - 1 - self.digits)) - 1) << self.digits

    def sizes(self, x: Any) -> tuple[Any, Any]:
        """Return the keys of abs(x), and where x is negative."""
        if XP.finfo(x.dtype).bits == 16:
            x = x.astype(jnp.float32)
        bits = lax.bitcast_convert_type(x, jnp.int64 if self.bits == 64 else jnp.int32)
        sizes = bits & ((1 << (self.bits - 1)) - 1)
        return sizes.astype(jnp.int64), (bits < 0) & (sizes != 0)

    def entries(self, x: Any) -> Any:
        """Return the keys of x, or of abs(x)."""
        sizes, negative = self.sizes(x)
        return jnp.where(negative, -sizes, sizes) if self.nonnegative else sizes

    def decoded(self, keys: Any) -> tuple[Any, Any]:
        """Return the floats with these keys as m * 2**e.

        Those between two powers of two have one e: that of the floats above a key, up to the next
        power of two, so that floats in a bin are (m + r) * 2**e, m and e those of its start.
        """
        negative = keys < 0
        sizes = abs(keys)
        # The first float beyond a power of two, towards zero, has the exponent below.
        exponent = (sizes - negative) >> self.digits
        normal = exponent > 0
        m = sizes - (exponent << self.digits) + (normal.astype(jnp.int64) << self.digits)
        least = -149 if self.bits == 32 else -1074
        return jnp.where(negative, -m, m), jnp.where(normal, exponent - 1, 0) + least

    @property
    def moments(self) -> tuple[int, int]:
        """How many limbs the low bits of keys have, and their squares."""
        return -(-self.width // LIMB), -(-2 * self.width // LIMB)

    @property
    def sums(self) -> tuple[int, int]:
        """How many limbs sums of up to 2**31 entries with one exponent have, and of squares.

        Not more: the last one has the sign, and must not be shifted out.
        """
        return -(-(self.digits + 33) // LIMB), -(-(2 * self.digits + 34) // LIMB)


def histogram(keys: Any, lower: Any, width: Any, kinds: Keys) -> Any:
    """Return per bin the count of keys, and the sums of the limbs of low bits and their squares.

    There are 2**12 bins of 2**width keys, from `lower` on, a multiple of that. Those of several
    parts are added. Shape: (columns, bins).
    """
    # Bins start at multiples of their width; the difference of two keys may be no integer.
    bins = (keys >> width) - (lower >> width)
    there = (bins >= 0) & (bins < BIN_COUNT) & (keys != ABSENT)
    bins = jnp.where(there, bins, BIN_COUNT).astype(jnp.int32)
    low = keys & ((jnp.int64(1) << width) - 1)
    first, second = kinds.moments
    columns = [*_limbs(low, first), *_square(low, second)]
    # XLA would compute all of it again at every place of every sum.
    bins, columns = lax.optimization_barrier((bins, columns))
    counts = _added(bins, jnp.int32(1)).astype(jnp.int64)
    return jnp.stack([counts, *(_added(bins, one) for one in columns)])


def _added(bins: Any, numbers: Any) -> Any:
    """Return the sums of numbers over each bin, all in the type of one of them."""
    none = jnp.zeros(BIN_COUNT + 1, numbers.dtype)
    return none.at[bins].add(numbers, mode="promise_in_bounds")[:BIN_COUNT]


def _limbs(numbers: Any, count: int) -> list[Any]:
    return [(numbers >> (LIMB * i)) & _LOW for i in range(count)]


def _square(low: Any, count: int) -> list[Any]:
    """Return the limbs of squares of integers below 2**52."""
    if count == 1:
        return [low * low]
    a, b = low & _LOW, low >> LIMB
    aa, ab, bb = a * a, 2 * a * b, b * b
    second = (aa >> LIMB) + (ab & _LOW)
    third = (ab >> LIMB) + (bb & _LOW) + (second >> LIMB)
    return [aa & _LOW, second & _LOW, third & _LOW, (bb >> LIMB) + (third >> LIMB)][:count]


class Bins(NamedTuple):
    """The bins of a histogram, and what their entries add up to."""

    keys: Any
    """Where they start."""
    counts: Any
    first: Any
    """The sums of entries in limbs, in units of 2**exponent."""
    second: Any
    """Those of their squares, in units of 4**exponent."""
    exponents: Any
    low: Any
    """The sums of the limbs of low bits."""
    low_squares: Any
    """Those of the limbs of their squares."""

    @staticmethod
    def of(table: Any, lower: Any, width: Any, kinds: Keys) -> "Bins":
        """Return those of a histogram."""
        first, _ = kinds.moments
        counts, a, b = table[0], table[1 : 1 + first].T, table[1 + first :].T
        keys = lower + (jnp.arange(BIN_COUNT, dtype=jnp.int64) << width)
        m, exponents = kinds.decoded(keys)
        m = jnp.stack([m & _LOW, m >> LIMB], -1)
        size, more = kinds.sums
        start, low = resized(counts[:, None] * m, size), resized(a, size)
        # The sum of (m + r)^2 is that of m (m + 2 r), and of r^2.
        squares = raw_product(carried(start + 2 * low, size), m)
        sums = carried(start + low, size), carried(resized(squares, more) + resized(b, more), more)
        return Bins(keys, counts, *sums, exponents, a, b)

    def alike(self, i: Any) -> tuple[Any, Any]:
        """Return whether all entries of a bin are alike, and the key that they have then.

        By Cauchy and Schwarz they are if their sum, squared, is the count times that of squares.
        """
        count = jnp.maximum(self.counts[i], 1)
        # Limbs may have been carried: what one of them leaves belongs to the next one.
        low = rest = jnp.int64(0)
        for limb in reversed(range(self.low.shape[-1])):
            rest = (rest << LIMB) + self.low[i][limb]
            low, rest = (low << LIMB) + rest // count, rest % count
        return sign(self._spread(i)) == 0, self.keys[i] + low

    def _spread(self, i: Any) -> Any:
        """Return the sum of squares of a bin's low bits about their mean, times the count."""
        count = jnp.maximum(self.counts[i], 1)
        a, b = carried(self.low[i], 4), carried(self.low_squares[i], 7)
        return carried(count * resized(b, 9) - resized(raw_product(a, a), 9), 9)

    def narrowed(self, i: Any, width: Any) -> tuple[Any, Any]:
        """Return where the entries of a bin are, as the start and the width of finer bins.

        No entry is further from the mean than the root of the sum of all squares about it: so a few
        entries that are nearly equal are told apart by one more histogram.
        """
        count = jnp.maximum(self.counts[i], 1).astype(jnp.float64)
        mean = scaled(*as_float(carried(self.low[i], 4))) / count
        reach = jnp.sqrt(scaled(*as_float(self._spread(i))) / count)
        # What the formulas may be off by; numbers are below 2**52.
        reach = reach * (1 + 2.0**-40) + 2.0
        last = (jnp.int64(1) << width) - 1
        low = jnp.clip(jnp.floor(mean - reach).astype(jnp.int64), 0, last)
        high = jnp.clip(jnp.ceil(mean + reach).astype(jnp.int64), 0, last)
        widths = jnp.arange(DOUBLE_DIGITS, dtype=jnp.int64)
        too_fine = (high >> widths) - (low >> widths) >= BIN_COUNT
        finer = jnp.minimum(too_fine.sum(dtype=jnp.int64), jnp.maximum(width - BIN_BITS, 0))
        return self.keys[i] + ((low >> finer) << finer), finer
