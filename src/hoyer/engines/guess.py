"""Where alpha is expected within a bin, and finer bins that are the narrowest there.

Count, mean and deviation of a bin's entries say how they are spread over it, if they are spread
smoothly: by a density that is a polynomial, or where they lie close together by a beta
distribution. With that density in place of the entries alpha is found to many digits. Bins are
finest around it. If it lies elsewhere, coarser bins have it, and only time is lost: what the search
concludes is exact.
"""

import math
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .arrays.histogram import Grid, Level
from .exact import Bin, ExactSums, Keys, as_float

Floats: TypeAlias = npt.NDArray[np.float64]

CELLS = 2048
"""The density is looked at in so many places."""
_NARROW = 11
"""Bins of at most 2**11 keys are divided into single ones."""
_SINGLE = 0.7
"""With so many entries in a bin on average few bins have more than two."""


class Guess(NamedTuple):
    """Where alpha is expected, counted in keys from the start of a bin."""

    alpha: float
    error: float
    """How far off that may be."""
    density: float
    """How many entries there are per key."""
    wide: float
    """Over how many keys most entries are spread, if not over all."""


class Overview(NamedTuple):
    """A bin and what lies above it, in units of the distance of floats, from its start on."""

    span: float
    entries: float
    mean: float
    deviation: float
    above: tuple[float, float, float]

    @staticmethod
    def of(bin: Bin, above: ExactSums, keys: Keys) -> "Overview":
        """Return that of a bin with more than one entry."""
        start, step = keys.start_and_step(bin.key)
        inside = bin.sums
        first = above.first - above.entries * start
        second = above.second - start * (2 * above.first - above.entries * start)
        return Overview(
            float(bin.end - bin.key),
            float(inside.entries),
            float(Fraction(inside.first - inside.entries * start, inside.entries * step)),
            math.sqrt(float(inside.spread / (inside.entries * step * step))),
            (
                float(above.entries),
                as_float(Fraction(first, step)),
                as_float(Fraction(second, step * step)),
            ),
        )

    def density(self) -> tuple[Floats, Floats, float, float]:
        """Return the ends of cells, and the entries in each.

        Also how far their mean distance from a pivot may be off: in standard deviations, and as a
        share of itself.
        """
        mean, deviation = self.mean / self.span - 0.5, self.deviation / self.span
        square = deviation * deviation + mean * mean
        slope, bend = 12 * mean, 180 * (square - 1 / 12)
        u = (np.arange(CELLS) + 0.5) / CELLS - 0.5
        weights = 1 + slope * u + bend * (u * u - 1 / 12)
        if weights.min() > 0:
            # What comes next in the series of a smooth density.
            error = max(abs(slope), math.sqrt(abs(bend))) ** 3 / 2000
            ends = np.linspace(0.0, self.span, CELLS + 1)
            return ends, weights * (self.entries / CELLS), error, 0.1
        low, high = (
            min(max(self.mean + side * 6 * self.deviation, 0.0), self.span) for side in (-1, 1)
        )
        ends = np.linspace(low, high, CELLS + 1)
        middle = (ends[1:] + ends[:-1]) / 2 / self.span
        share = mean + 0.5
        power = max(share * (1 - share) / deviation**2 - 1, 0.1)
        logs = (share * power - 1) * np.log(middle)
        logs += ((1 - share) * power - 1) * np.log1p(-middle)
        weights = np.exp(logs - logs.max())
        return ends, weights * (self.entries / weights.sum()), 0.05, math.inf

    def guess(self, form: Any, step: Fraction) -> Guess:
        """Return where alpha is, if entries are spread as this density says."""
        ends, entries, error, share = self.density()
        middle = (ends[1:] + ends[:-1]) / 2
        n, first, second = (
            np.append(np.cumsum((entries * middle**power)[::-1])[::-1], 0.0) for power in (0, 1, 2)
        )
        first, second = first - ends * n, second - ends * (2 * first - ends * n)
        above, own, squares = self.above
        l1 = own - above * ends + first
        l2_squared = squares - ends * (2 * own - above * ends) + second
        # The entries are some, not a density; and the density is not quite theirs.
        off = np.minimum(0.2 * self.deviation * math.sqrt(self.entries), np.sqrt(second))
        off = off + np.minimum(error * self.deviation * self.entries, share * first)
        found = [
            _root(ends, balance, moved)
            for balance, moved in zip(
                form.balances(l1, l2_squared, step),
                form.balances(l1 + off, l2_squared, step),
                strict=True,
            )
        ]
        alpha, error = min(found)
        error = min(error, 2 * self.deviation)
        cell = min(int(np.searchsorted(ends, alpha, side="right")) - 1, CELLS - 1)
        density = entries[max(cell, 0)] / (ends[1] - ends[0])
        return Guess(alpha, error, float(density), float(ends[-1] - ends[0]))


def _root(ends: Floats, balance: Floats, moved: Floats) -> tuple[float, float]:
    """Return where a falling function is 0, and how far from that the one that is off."""
    cell = min(int(np.count_nonzero(balance >= 0)), CELLS) - 1
    if not 0 <= cell < CELLS or not np.isfinite(balance).all():
        return float(ends[min(max(cell, 0), CELLS)]), float(ends[-1] - ends[0])
    width, fall = ends[1] - ends[0], balance[cell] - balance[cell + 1]
    share = balance[cell] / fall if fall > 0 else 0.0
    error = abs(moved[cell] - balance[cell]) / fall * width if fall > 0 else width
    return float(ends[cell] + share * width), float(error)


def finer_grid(bin: Bin, above: ExactSums, form: Any, keys: Keys) -> Grid:
    """Return bins by which one is divided; `above` are the entries beyond it."""
    span = bin.end - bin.key
    width = (span - 1).bit_length()
    fine, middle, coarse = _level_bits(width)
    if span <= 1 << _NARROW:
        return Grid(bin.key, span, width, ((0, 0, span),))
    step = Fraction(keys.start_and_step(bin.key)[1])
    with np.errstate(all="ignore"):
        guess = Overview.of(bin, above, keys).guess(form, step)
    # The finest bins cover where alpha may be, or hold single entries.
    bits = [_bits(3 * guess.error) - fine, _bits(_SINGLE / max(guess.density, 1e-300)) - 1]
    first = min(max(0, *bits), width - fine)
    size = 1 << (first + fine)
    start = min(max(int(guess.alpha) - size // 2, 0), span - size)
    spread = guess.wide if guess.wide < span / 4 else math.sqrt(float(size) * span)
    second = min(max(_bits(spread) - middle, first + 1), first + fine)
    levels: list[Level] = [(start, first, 1 << fine)]
    # Where a finer level begins a bin of the next one does, too.
    if second < (last := width - coarse):
        start -= max((1 << middle) - (size >> second), 0) // 2 << second
        levels.append((start, second, 1 << middle))
    begin = -(-start % (1 << last))
    levels.append((begin, last, (span - begin - 1 >> last) + 1))
    return Grid(bin.key, span, width, tuple(levels))


def _level_bits(width: int) -> tuple[int, int, int]:
    """Return how many bins the levels have, as powers of two: fine, middle, coarse."""
    return (10, 10, 10) if width <= 21 else (10, 9, 9)


def most_divisions(width: int) -> int:
    """Return how often a bin of 2**width keys is divided, at most, until all lie apart."""
    if width <= _NARROW:
        return int(width > 0)
    return 1 + most_divisions(width - _level_bits(width)[2])


def _bits(size: float) -> int:
    """Return the exponent of the next power of two."""
    return math.ceil(math.log2(max(size, 1.0))) if size < math.inf else 64
