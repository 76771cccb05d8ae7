"""Exact sums over the entries of a vector in parts: floats are integers, and so are their sums.

In units of the smallest float that occurs every entry is an integer, so sums of entries and of
squares are exact, whatever the order in which parts come together; and so is every comparison that
the search for alpha makes.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays.histogram import (
    HALF_LIMB,
    LIMB_BITS,
    Grid,
    halves_of,
    limb_count,
    square_halves_of,
)

Integers: TypeAlias = npt.NDArray[np.int64]


class Keys(NamedTuple):
    """The finite floats of a type as integers in the same order; both zeros are 0."""

    bits: int
    nonnegative: bool
    floor: int = 1
    """The least exponent of a float that occurs, as its bits have it; but for zero."""

    @property
    def digits(self) -> int:
        """How many bits follow the exponent."""
        return 23 if self.bits == 32 else 52

    @property
    def unit(self) -> Fraction:
        """The distance of floats with the least exponent: all others are multiples of it."""
        return Fraction(1 << (self.floor - 1), 1 << (149 if self.bits == 32 else 1074))

    @property
    def first_grid(self) -> Grid:
        """Bins for all keys: one or more for each power of two."""
        bits = self.bits - 1
        if not self.nonnegative:
            return Grid(0, 1 << bits, bits - 11, ((0, bits - 11, 1 << 11),))
        width = min(bits - 10, self.digits)
        span = min(1 << (bits + 1), (1 << 64) - 1)
        return Grid(-(1 << bits), span, width, ((0, width, 1 << (bits + 1 - width)),))

    def fitted(self, counts: Integers) -> "Keys":
        """Return the same with the least exponent in these bins: small integers are faster."""
        start, _, width, _ = self.first_grid
        keys = (start + (number << width) for number in np.flatnonzero(counts).tolist())
        sizes = (key if key >= 0 else -key - (1 << width) for key in keys)
        return self._replace(floor=max(min(sizes, default=0) >> self.digits, 1))

    def value(self, key: int) -> int:
        """Return the float with a key, in units; between powers of two it grows evenly."""
        if not key:
            return 0
        exponent, fraction = divmod(abs(key), 1 << self.digits)
        size = (fraction + (1 << self.digits if exponent else 0)) << max(exponent, 1) - self.floor
        return -size if key < 0 else size

    def start_and_step(self, key: int) -> tuple[int, int]:
        """Return the float where a bin starts, and the distance of floats in it."""
        start = self.value(key)
        return start, self.value(key + 1) - start

    def number(self, key: int) -> float:
        """Return the float with a key."""
        size = np.array(abs(key), f"i{self.bits // 8}").view(f"f{self.bits // 8}")
        return math.copysign(float(size), key)


class ExactSums(NamedTuple):
    """How many entries there are, their sum, and that of their squares, in units."""

    entries: int = 0
    first: int = 0
    second: int = 0

    @staticmethod
    def from_rests(entries: int, first: int, second: int, base: int, step: int) -> "ExactSums":
        """Return those of base + step * r, from the sums of r and of its squares."""
        first, second = first * step, second * step * step
        squares = base * (entries * base + 2 * first) + second
        return ExactSums(entries, entries * base + first, squares)

    def plus(self, other: "ExactSums") -> "ExactSums":
        """Return those of all entries together."""
        entries, first, second = other
        return ExactSums(self.entries + entries, self.first + first, self.second + second)

    @property
    def spread(self) -> Fraction:
        """The sum of squares about the mean."""
        return Fraction(self.entries * self.second - self.first**2, self.entries)

    def balance(self, pivot: int, k: Fraction) -> int:
        """Return l1**2 - K l2**2 of x - pivot, up to a factor; -1 if all entries are the pivot.

        None may be below it. Alpha is not below the pivot if this is not negative.
        """
        l1 = self.first - self.entries * pivot
        l2_squared = self.second - 2 * pivot * self.first + self.entries * pivot**2
        return l1**2 * k.denominator - k.numerator * l2_squared if l2_squared else -1


NOTHING = ExactSums()


class Bin(NamedTuple):
    """A bin with entries."""

    key: int
    """Where it starts; if all its entries are alike, their key."""
    end: int
    """The first key beyond."""
    sums: ExactSums

    @property
    def alike(self) -> bool:
        """Whether all its entries have one key."""
        return self.end == self.key + 1

    def apart(self, keys: Keys) -> "list[Bin]":
        """Return the two entries of a bin, from the top down: their sums tell them apart."""
        start, step = keys.start_and_step(self.key)
        _, first, second = self.sums
        root = math.isqrt(2 * second - first * first)
        values = (first + root) // 2, (first - root) // 2
        places = [self.key + (value - start) // step for value in values]
        pairs = zip(places, values, strict=True)
        return [Bin(key, key + 1, ExactSums(1, value, value * value)) for key, value in pairs]


class Bins:
    """Bins with entries, from the top down."""

    def __init__(self, bins: list[Bin]) -> None:
        self._bins = bins
        self._above = list(accumulate((bin.sums for bin in bins), ExactSums.plus, initial=NOTHING))

    def __len__(self) -> int:
        return len(self._bins)

    def __getitem__(self, i: int) -> Bin:
        return self._bins[i]

    def above(self, i: int) -> ExactSums:
        """Return the sums of what lies above a bin; those of all above one more."""
        return self._above[i]


class FinerBins(Bins):
    """The same within a bin of another histogram: they are made when somebody looks at them.

    Parameters
    ----------
    table : array
        A column for each bin: count, and the limbs of both moments.
    ends : array
        Two rows: where bins start, and where they end, counted from the key `lower`.
    limbs : tuple of int
        How many limbs the first moment has, and how many bits they have.
    """

    def __init__(
        self, table: Integers, ends: Integers, limbs: tuple[int, int], lower: int, keys: Keys
    ) -> None:
        self._table, self._sums = table, np.cumsum(table, axis=1)
        self._ends, self._limbs, self._lower = ends, limbs, lower
        self._start, self._step = keys.start_and_step(lower)

    @staticmethod
    def of_histogram(numbers: Integers, grid: Grid, keys: Keys) -> "FinerBins":
        """Return those of a histogram."""
        table = numbers.reshape(-1, grid.bins)
        filled = np.flatnonzero(table[0])
        ends = all_ends(grid)[:, filled]
        order = np.argsort(ends[0])[::-1]
        limbs = limb_count(grid.width), LIMB_BITS
        return FinerBins(table[:, filled[order]], ends[:, order], limbs, grid.lower, keys)

    @staticmethod
    def of_entries(entries: Integers, lower: int, keys: Keys) -> "FinerBins":
        """Return one for each entry."""
        rests = np.sort(entries)[::-1] - lower
        width = int(rests[0]).bit_length() if rests.size else 0
        first = halves_of(rests, width)
        table = np.stack([np.ones_like(rests), *first, *square_halves_of(rests, width)])
        return FinerBins(table, np.stack([rests, rests + 1]), (len(first), HALF_LIMB), lower, keys)

    def __len__(self) -> int:
        return int(self._table.shape[1])

    def __getitem__(self, i: int) -> Bin:
        sums, a, b = self._exact(self._table[:, i])
        start, end = self._ends[:, i].tolist()
        if sums.entries * b == a * a:
            start, end = a // sums.entries, a // sums.entries + 1
        return Bin(self._lower + start, self._lower + end, sums)

    def above(self, i: int) -> ExactSums:
        """Return the sums of what lies above a bin."""
        return self._exact(self._sums[:, i - 1])[0] if i else NOTHING

    def _exact(self, column: Integers) -> tuple[ExactSums, int, int]:
        count, *moments = column.tolist()
        limbs, bits = self._limbs
        a, b = _number(moments[:limbs], bits), _number(moments[limbs:], bits)
        return ExactSums.from_rests(count, a, b, self._start, self._step), a, b


def bins_of(table: Integers, grid: Grid, keys: Keys) -> list[Bin]:
    """Return the bins of a histogram of all keys that hold entries, from the top down."""
    lower, width = grid.lower, grid.width
    table, limbs = table.reshape(-1, grid.bins), limb_count(width)
    filled = np.flatnonzero(table[0])[::-1]
    bins: list[Bin] = []
    for number, column in zip(filled.tolist(), table[:, filled].T.tolist(), strict=True):
        count, *moments = column
        a, b = (_number(some, LIMB_BITS) for some in (moments[:limbs], moments[limbs:]))
        start = end = lower + (number << width)
        base, step = keys.start_and_step(start) if start or a else (0, 0)
        sums = ExactSums.from_rests(count, a, b, base, step)
        if count * b == a * a:
            start, end = start + a // count, start + a // count + 1
        else:
            end += 1 << width
        bins.append(Bin(start, end, sums))
    return bins


def all_ends(grid: Grid) -> Integers:
    """Return where each bin starts and ends, counted from the first key."""
    pairs: list[Integers] = []
    finer: list[tuple[int, int]] = []
    for start, width, count in grid.levels:
        begin = start + (np.arange(count) << width)
        end = begin + (1 << width)
        for first, last in finer:
            # Where finer bins begin one of these does, too.
            begin = np.where((begin >= first) & (begin < last), last, begin)
        finer.append((start, start + (count << width)))
        pairs.append(np.stack([np.maximum(begin, 0), np.minimum(end, grid.span)]))
    return np.concatenate(pairs, axis=1)


def _number(limbs: Sequence[int], bits: int) -> int:
    return sum(limb << (bits * i) for i, limb in enumerate(limbs))


def total_of(bins: Iterable[Bin]) -> ExactSums:
    """Return the sums of all entries."""
    *_, total = accumulate((bin.sums for bin in bins), ExactSums.plus, initial=NOTHING)
    return total


def as_float(number: Fraction) -> float:
    """Return the nearest float, or infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def root_of(square: int) -> Fraction:
    """Return a square root with 64 bits behind the point."""
    return Fraction(math.isqrt(square << 128), 1 << 64)


def root_of_fraction(square: Fraction) -> Fraction:
    """Return the square root of a positive number, to 120 bits."""
    half = exponent_of(square) // 2
    scaled = square / Fraction(4) ** half
    return Fraction(math.isqrt(int(scaled * (1 << 256))), 1 << 128) * Fraction(2) ** half


def exponent_of(number: Fraction) -> int:
    """Return that of a power of two near a number which is not 0."""
    return number.numerator.bit_length() - number.denominator.bit_length()


def power_of(exponent: int) -> float:
    """Return a power of two; 1 where ordinary arithmetic does without."""
    return 1.0 if abs(exponent) < 300 else math.ldexp(1.0, max(-1022, min(1021, exponent)))
