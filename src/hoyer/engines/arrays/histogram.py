"""What `hoyer.engines.parts` asks of one part of a vector, in plain array operations.

CUDA tensors take this way as well. A request reads a part once and ends in additions at places that
depend on the data. A kernel could do no better at those; it would save the passes in between, for
something that is asked two or three times about a vector too large for one device.

Beside what the search in plain operations needs, the library must have integers of 64 bits (JAX has
them with ``jax_enable_x64`` only), and see a float's bits. A part may have 2**29 entries, so that
sums of limbs stay within 64 bits, and there may be 2**31 parts. `Parts.gather` returns an array
whose length depends on the data: where that cannot be, let the search gather nothing.
"""

import math
from typing import Any

from .namespace import Namespace

BIN_BITS = 12
"""A histogram has 2**12 bins."""
LIMB_BITS = 32
"""Moments are sums of limbs times powers of 2**32."""
BIN_COUNT = 1 << BIN_BITS
NOWHERE = -(1 << 63)
"""What stands for a key or a place that does not exist."""


def limbs(numbers: Any, width: int) -> list[Any]:
    """Return integers below 2**width as limbs of 32 bits, the lowest first."""
    low = (1 << LIMB_BITS) - 1
    return [(numbers >> bit) & low for bit in range(0, width, LIMB_BITS)]


def square_limbs(numbers: Any, width: int) -> list[Any]:
    """Return the squares in the same manner, though limbs may have two bits more."""
    low, half = (1 << LIMB_BITS) - 1, 26
    a, b = numbers & ((1 << half) - 1), numbers >> half
    result: list[Any] = [0] * len(range(0, 2 * width, LIMB_BITS))
    for i, product in enumerate((a * a, 2 * a * b, b * b) if width > half else (a * a,)):
        first, bit = divmod(half * i, LIMB_BITS)
        # Up to the end of a limb, then a limb at a time.
        done = LIMB_BITS - bit
        pieces = [(product & ((1 << done) - 1)) << bit]
        pieces += [(product >> shift) & low for shift in range(done, 64, LIMB_BITS)]
        for limb, piece in enumerate(pieces[: len(result) - first], first):
            result[limb] = result[limb] + piece
    return result


def _carried(sums: list[Any]) -> list[Any]:
    """Return sums of limbs as limbs again, but for the last, so that many of them can be added."""
    result, carry = [], 0
    for numbers in sums[:-1]:
        number = numbers + carry
        carry = number >> LIMB_BITS
        result.append(number & ((1 << LIMB_BITS) - 1))
    return [*result, *(numbers + carry for numbers in sums[-1:])]


class Parts:
    """What an engine offers for vectors in parts, for the arrays of one library.

    Each function takes one part, an array of any shape. A *key* is the bits of a float's size, with
    its sign: integers in the order of the floats. With `nonnegative` entries are those of x, else
    those of abs(x). A bin has 2**width neighbouring keys, and starts at a multiple of that.
    """

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp

    def histogram(self, x: Any, lower: int, width: int, nonnegative: bool) -> Any:
        """Return how many entries are not finite, and zero; then per bin counts and moments.

        There are 2**12 bins, the first of which starts at `lower`. Moments are those of the low
        `width` bits of the keys, and of their squares, each in as many limbs as one of them has.
        All in one row of 64-bit integers; those of several parts are added.
        """
        xp, keys = self.xp, self._keys(x, nonnegative)
        # Bins start at multiples of their width.
        bins = (keys >> width) - (lower >> width)
        inside = (bins >= 0) & (bins < BIN_COUNT)
        # What lies in no bin comes into one more.
        bins = xp.where(inside, bins, BIN_COUNT)
        rest = keys & ((1 << width) - 1)
        finite = xp.isfinite(self._flat(x))
        counts = (xp.total(xp.astype(mask, xp.int64)) for mask in (~finite, keys == 0))
        columns = [xp.ones_like(keys), *limbs(rest, width), *square_limbs(rest, width)]
        entries, *sums = xp.sums_by(bins, BIN_COUNT + 1, columns)
        first = len(limbs(rest, width))
        sums = [entries, *_carried(sums[:first]), *_carried(sums[first:])]
        return xp.joined(*counts, *(numbers[:BIN_COUNT] for numbers in sums))

    def gather(self, x: Any, lower: int, width: int, nonnegative: bool) -> Any:
        """Return the keys in the bin that starts at `lower`; several parts' are joined."""
        keys = self._keys(x, nonnegative)
        return keys[keys >> width == lower >> width]

    def neighbours(self, x: Any, key: int, nonnegative: bool, offset: int) -> Any:
        """Return the next smaller key, and the place of the first entry with this key, negated.

        Places are counted from `offset` on. `NOWHERE` stands for none; of several parts' answers
        the larger ones hold.
        """
        xp, keys = self.xp, self._keys(x, nonnegative)
        least = xp.full_like(keys, NOWHERE)
        places = offset + xp.running_total(xp.ones_like(keys)) - 1
        pair = (xp.where(keys < key, keys, least), xp.where(keys == key, -places, least))
        # A part without entries has something to compare as well.
        none = xp.total(keys[:0]) + NOWHERE
        return xp.joined(*(xp.highest(xp.joined(numbers, none)) for numbers in pair))

    def write(self, x: Any, formula: Any, nonnegative: bool, place: int = -1) -> Any:
        """Return the results of a part, by a `hoyer.engines.parts.Formula`.

        The entry at `place`, if not -1, is the first of tied ones.
        """
        xp = self.xp
        wide = xp.astype(self._flat(x), xp.wide(x))
        w = wide if nonnegative else abs(wide)
        t = (w * formula.before - formula.reference * formula.before) * formula.after
        base = xp.full_like(w, formula.base)
        if place >= 0:
            base = xp.where(xp.numbered(w) == place, formula.first, base)
        p = (base + (t - formula.mean) * formula.gain) * formula.power
        value = xp.where((w > formula.pivot) & (p > 0), p, 0.0)
        if math.isnan(formula.base):
            value = xp.full_like(w, math.nan)
        if not nonnegative:
            value = xp.where(wide < 0, -value, value)
        return xp.library.reshape(xp.narrowed(value, x.dtype), x.shape)

    def _flat(self, x: Any) -> Any:
        return self.xp.library.reshape(self.xp.stopped(x), (-1,))

    def _keys(self, x: Any, nonnegative: bool) -> Any:
        """Return the bits of every entry's size, with its sign; halves as those of float32."""
        xp, x = self.xp, self._flat(x)
        if xp.finfo(x.dtype).bits == 16:
            x = xp.astype(x, xp.float32)
        wide = xp.finfo(x.dtype).bits == 64
        sizes = xp.astype(xp.view(abs(x), xp.int64 if wide else xp.int32), xp.int64)
        return xp.where(x < 0, -sizes, sizes) if nonnegative else sizes
