"""What `hoyer.engines.parts` asks of one part of a vector, in plain array operations.

CUDA tensors take this way as well. A request reads a part once and ends in additions at places that
depend on the data. A kernel could do no better at those; it would save the passes in between, for
something that is asked two or three times about a vector too large for one device.

Beside what the search in plain operations needs, the library must have integers of 64 bits (JAX has
them with ``jax_enable_x64`` only), and see a float's bits. Answers of up to `MOST_ADDED` parts may
be added as they are; when `hoyer.engines.parts.merged` adds them, there may be any number, of 2**42
entries together. `Parts.gather` returns an array
whose length depends on the data: where that cannot be, let the search gather nothing.
"""

import math
from typing import Any, NamedTuple, TypeAlias

from .namespace import Namespace

BIN_BITS = 12
"""A histogram has up to 2**12 bins."""
BIN_COUNT = 1 << BIN_BITS
LIMB_BITS = 48
"""Moments are sums of limbs times powers of 2**48."""
HALF_LIMB = 32
"""Single entries are added up in pieces of so many bits."""
MOST_AT_ONCE = 1 << 29
"""So many pieces of entries have a sum of 64 bits: larger parts are taken one piece at a time."""
MOST_ADDED = 1 << 14
"""So many limbs have a sum of 64 bits, and a carry from the one below."""
NOWHERE = -(1 << 63)
"""What stands for a key or a place that does not exist."""

Level: TypeAlias = tuple[int, int, int]
"""Where bins start, 2 to which power keys each has, and how many there are."""


class Grid(NamedTuple):
    """Which keys are asked for, and the bins that they come into.

    Bins come in up to three levels; a key belongs to the first of these that has a bin for it.
    """

    lower: int
    """The first key."""
    span: int = 1
    """How many there are."""
    width: int = 0
    """Moments are those of so many low bits of a key's distance from the first one."""
    levels: tuple[Level, ...] = ()
    """They start at a distance from the first key, which may be negative."""

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return sum(count for _, _, count in self.levels)


def limb_count(bits: int) -> int:
    """Return how many limbs the sum of 2**42 numbers of so many bits takes.

    The last limb holds what is left; it has up to 63 bits.
    """
    return 1 + max(0, -(-(bits - 21) // LIMB_BITS))


def halves_of(numbers: Any, width: int) -> list[Any]:
    """Return integers below 2**width in pieces of 32 bits, the lowest first."""
    low = (1 << HALF_LIMB) - 1
    return [(numbers >> bit) & low for bit in range(0, width, HALF_LIMB)]


def square_halves_of(numbers: Any, width: int) -> list[Any]:
    """Return the squares in the same manner, though pieces may have two bits more."""
    low, half = (1 << HALF_LIMB) - 1, 26
    a, b = numbers & ((1 << half) - 1), numbers >> half
    result: list[Any] = [0] * len(range(0, 2 * width, HALF_LIMB))
    for i, product in enumerate((a * a, 2 * a * b, b * b) if width > half else (a * a,)):
        first, bit = divmod(half * i, HALF_LIMB)
        # Up to the end of a limb, then a limb at a time.
        done = HALF_LIMB - bit
        pieces = [(product & ((1 << done) - 1)) << bit]
        pieces += [(product >> shift) & low for shift in range(done, 64, HALF_LIMB)]
        for limb, piece in enumerate(pieces[: len(result) - first], first):
            result[limb] = result[limb] + piece
    return result


def _regrouped(sums: list[Any], count: int, none: Any) -> list[Any]:
    """Return sums of halves of limbs as so many limbs; `none` is an array of zeros like them."""
    low, halves, carry = (1 << HALF_LIMB) - 1, [], none
    for i in range((LIMB_BITS * (count - 1) + 63) // HALF_LIMB + 1):
        number = sums[i] + carry if i < len(sums) else carry
        halves.append(number & low)
        carry = number >> HALF_LIMB
    result = []
    for limb in range(count):
        total, last = none, limb + 1 == count
        for i, half in enumerate(halves):
            at = HALF_LIMB * i - LIMB_BITS * limb
            if -HALF_LIMB < at < (63 if last else LIMB_BITS):
                kept = half if last or at <= LIMB_BITS - HALF_LIMB else half & 0xFFFF
                total = total + (kept << at if at >= 0 else kept >> -at)
        result.append(total)
    return result


def carried(table: Any, width: int, none: Any) -> list[Any]:
    """Return a histogram's rows of counts and limbs with all but the last limbs below 2**48."""
    first = 1 + limb_count(width)
    rows = [table[0]]
    for moment in (table[1:first], table[first:]):
        carry = none
        for limb in moment[:-1]:
            number = limb + carry
            rows.append(number & ((1 << LIMB_BITS) - 1))
            carry = number >> LIMB_BITS
        rows.append(moment[-1] + carry)
    return rows


class Parts:
    """What an engine offers for vectors in parts, for the arrays of one library.

    Each function takes one part, an array of any shape, and which of its entries count: `where`, an
    array of booleans of the same shape, or None. A *key* is the bits of a float's size, with
    its sign: integers in the order of the floats. With `nonnegative` entries are those of x, else
    those of abs(x).
    """

    def __init__(self, xp: Namespace) -> None:
        self.xp = xp

    def namespace_of(self, x: Any) -> Namespace:
        """Return the library of an array."""
        return self.xp

    def histogram(self, x: Any, grid: Grid, nonnegative: bool, where: Any = None) -> Any:
        """Return how many entries are not finite, and zero; then per bin counts and moments.

        Moments are sums of the low bits and of their squares, each in `limb_count` limbs. All in
        one row of 64-bit integers; those of several parts are added.
        """
        x, there = self._flat(x), None if where is None else self._flat(where)
        n = x.shape[0]
        begins = range(0, max(n, 1), MOST_AT_ONCE)
        pieces = [slice(begin, min(begin + MOST_AT_ONCE, n)) for begin in begins]
        first, *others = (
            self._histogram(x[piece], grid, nonnegative, None if there is None else there[piece])
            for piece in pieces
        )
        for numbers in others:
            first = first + numbers
        if not others:
            return first
        table = self.xp.library.reshape(first[2:], (-1, grid.bins))
        rows = carried(table, grid.width, self.xp.zeros_like(table[0]))
        return self.xp.joined(first[:2], *rows)

    def _histogram(self, x: Any, grid: Grid, nonnegative: bool, where: Any) -> Any:
        """Return that of one axis of entries, not too many."""
        xp, keys = self.xp, self._keys(x, nonnegative)
        lower, span, width, levels = grid
        distance, count = keys - lower, grid.bins
        # What lies in no bin comes into one more.
        bins, before = xp.full_like(keys, count), count
        for start, bits, size in reversed(levels):
            before -= size
            # Distances that are no integers are not needed where bins are for all keys.
            by_shift = start == 0 and lower % (1 << bits) == 0
            number = (keys >> bits) - (lower >> bits) if by_shift else (distance - start) >> bits
            bins = xp.where((number >= 0) & (number < size), number + before, bins)
        if span < 1 << 63:
            bins = xp.where((distance >= 0) & (distance < span), bins, count)
        special = [~xp.isfinite(self._flat(x)), keys == 0]
        if where is not None:
            there = self._flat(where)
            bins = xp.where(there, bins, count)
            special = [mask & there for mask in special]
        rest = distance & ((1 << width) - 1)
        own = halves_of(rest, width)
        columns = [xp.ones_like(keys), *own, *square_halves_of(rest, width)]
        entries, *sums = (row[:count] for row in xp.sums_by(bins, count + 1, columns))
        none = xp.zeros_like(entries)
        rows = [
            entries,
            *_regrouped(sums[: len(own)], limb_count(width), none),
            *_regrouped(sums[len(own) :], limb_count(2 * width), none),
        ]
        return xp.joined(*(xp.total(xp.astype(mask, xp.int64)) for mask in special), *rows)

    def gather(
        self, x: Any, grid: Grid, nonnegative: bool, where: Any = None, place: Any = None
    ) -> Any:
        """Return the keys that are asked for; several parts' are joined.

        With a `hoyer.engines.parts.Place` each one is followed by its place in the vector.
        """
        xp, keys = self.xp, self._keys(x, nonnegative)
        inside = (keys >= grid.lower) & (keys < grid.lower + grid.span)
        inside = inside if where is None else inside & self._flat(where)
        if place is None:
            return keys[inside]
        places = place.from_part((xp.running_total(xp.ones_like(keys)) - 1)[inside], x.shape)
        return xp.library.reshape(xp.library.stack([keys[inside], places], axis=-1), (-1,))

    def neighbours(
        self, x: Any, key: int, nonnegative: bool, where: Any = None, place: Any = None
    ) -> Any:
        """Return the next smaller key, and the place of the first entry with this key, negated.

        Places are those in the vector, by a `hoyer.engines.parts.Place`, or else in the part.
        `NOWHERE` stands for none; of several parts' answers the larger ones hold.
        """
        xp, keys = self.xp, self._keys(x, nonnegative)
        least = xp.full_like(keys, NOWHERE)
        if where is not None:
            keys = xp.where(self._flat(where), keys, least)
        places = xp.running_total(xp.ones_like(keys)) - 1
        pair = (xp.where(keys < key, keys, least), xp.where(keys == key, -places, least))
        # A part without entries has something to compare as well.
        none = xp.total(keys[:0]) + NOWHERE
        below, first = (xp.highest(xp.joined(numbers, none)) for numbers in pair)
        if place is not None:
            there = first > NOWHERE
            first = xp.where(there, -place.from_part(-first, x.shape), first)
        return xp.joined(below, first)

    def write(
        self, x: Any, formula: Any, nonnegative: bool, place: int = -1, where: Any = None
    ) -> Any:
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
        if where is not None:
            value = xp.where(self._flat(where), value, 0.0)
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
