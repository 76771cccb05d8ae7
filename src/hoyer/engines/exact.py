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

from .arrays.histogram import LIMB_BITS, Grid, limb_count

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


def bins_of(table: Integers, grid: Grid, keys: Keys) -> list[Bin]:
    """Return the bins of a histogram that hold entries, from the top down.

    Two entries in a bin are told apart by their sums.
    """
    table = table.reshape(-1, grid.bins)
    filled = np.flatnonzero(table[0])
    limbs = limb_count(grid.width)
    # The first histogram has moments from the start of each bin, others from the first key.
    is_first = grid == keys.first_grid
    shared = (0, 0) if is_first else keys.start_and_step(grid.lower)
    bins: list[Bin] = []
    for number, column in zip(filled.tolist(), table[:, filled].T.tolist(), strict=True):
        count, *moments = column
        a, b = _number(moments[:limbs]), _number(moments[limbs:])
        start, end = bin_ends(number, grid)
        base, step = shared
        if is_first and (start or a):
            base, step = keys.start_and_step(start)
        origin = start if is_first else grid.lower
        spread = count * b - a * a
        if spread == 0:
            sums = ExactSums.from_rests(count, a, b, base, step)
            start = origin + a // count
            bins.append(Bin(start, start + 1, sums))
        elif count == 2:
            half = math.isqrt(spread)
            for rest in ((a - half) // 2, (a + half) // 2):
                sums = ExactSums.from_rests(1, rest, rest * rest, base, step)
                bins.append(Bin(origin + rest, origin + rest + 1, sums))
        else:
            bins.append(Bin(start, end, ExactSums.from_rests(count, a, b, base, step)))
    return sorted(bins, reverse=True)


def bin_ends(number: int, grid: Grid) -> tuple[int, int]:
    """Return where a bin starts, and where it ends."""
    finer: list[tuple[int, int]] = []
    for start, width, count in grid.levels:
        if number < count:
            break
        number -= count
        finer.append((start, start + (count << width)))
    begin = start + (number << width)
    end = begin + (1 << width)
    for first, last in finer:
        # Where finer bins begin one of these does, too.
        if first <= begin < last:
            begin = last
    return grid.lower + max(begin, 0), grid.lower + min(end, grid.span)


def _number(limbs: Sequence[int]) -> int:
    return sum(limb << (LIMB_BITS * i) for i, limb in enumerate(limbs))


def bins_of_entries(entries: Integers, lower: int, keys: Keys) -> list[Bin]:
    """Return a bin for each key, all of which are from one bin, from the top down."""
    start, step = keys.start_and_step(lower)
    bins = []
    for key, count in zip(*(a[::-1].tolist() for a in np.unique_counts(entries)), strict=True):
        value = start + (key - lower) * step
        bins.append(Bin(key, key + 1, ExactSums(count, count * value, count * value * value)))
    return bins


def total_of(bins: Iterable[Bin]) -> ExactSums:
    """Return the sums of all entries."""
    *_, total = accumulate((bin.sums for bin in bins), ExactSums.plus, initial=ExactSums())
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


def exponent_of(number: Fraction) -> int:
    """Return that of a power of two near a number which is not 0."""
    return number.numerator.bit_length() - number.denominator.bit_length()


def power_of(exponent: int) -> float:
    """Return a power of two; 1 where ordinary arithmetic does without."""
    return 1.0 if abs(exponent) < 300 else math.ldexp(1.0, max(-1022, min(1021, exponent)))
