"""How a mean sparseness is shared among many vectors: one price for all of them.

Let y be the entries of a vector (without `nonnegative`: their magnitudes), q(a) = max(y - a, 0) and
t = ||p||_1 / ||p||_2 the ratio that its projection p gets. The largest <p, x> over vectors of ratio
t is concave in t, and its slope is the shift a with ||q(a)||_1 / ||q(a)||_2 = t. So at the best
shares a trade of sparseness between two vectors gains nothing: there is one price mu, and vector i
has the shift mu times its pace. The mean of the sparsenesses of q rises with mu.

Taken over the entries above *any* pivots, that mean is at least what it is over the right ones, so
the price at which it is as asked for is a lower bound of mu (see docs/explanation/sets.md). The
search climbs from one to the next: a pass over the data for the sums above the pivots (Algorithm
1), then the root of a sum over a few numbers for each vector. All lengths are in units of the
vector they belong to, powers of two.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from .numbers import (
    Flags,
    Floats,
    Integers,
    exponents_of,
    in_units,
    key_of,
    middle_of,
    number_of,
    steps_between,
)
from .sample import Sample

SUMS = ("count", "mean", "deviation", "below", "above")
"""What a pass tells about every vector: the number of entries above its pivot, their mean and
standard deviation, the largest entry that is not above, and the smallest that is."""
SUMMARY = ("low", "high", "mean", "deviation")
"""What is known of every vector beforehand: its ends, and mean and standard deviation of all
entries; NaN if it is not finite."""

_PASSES = 400
"""More than any search takes."""
_STEPS = 8
"""Passes after which the bracket of the price must shrink, whatever the entries are."""
_WIDEST = 900
"""Powers of two that paces may differ by, without a search for the size of the price itself."""


class Asked(NamedTuple):
    """What is asked of the vectors of several arrays; each list has an entry for every array."""

    sparseness: Any
    """The mean: a number, or a tensor."""
    norms: list[Any]
    """"keep", or numbers that broadcast to the batch of vectors; so are the others."""
    floors: list[Any]
    weights: list[Any]
    """None: all count alike."""
    relative: bool
    nonnegative: bool
    only_increase: bool
    check_finite: bool


class Sums(NamedTuple):
    """Those of all vectors, in their units."""

    size: Floats
    """How many there are."""
    mean: Floats
    deviation: Floats
    below: Floats
    above: Floats


class Wanted(NamedTuple):
    """What is asked of vectors that have a sparseness: one number for each of them."""

    lengths: Floats
    """Entries of a vector."""
    weights: Floats
    """Shares in the mean; they are positive, and sum to about 1."""
    floors: Floats
    """The sparseness that a vector does not fall below."""
    norms: Floats
    """Those of the results, in units; see `exponents`."""
    exponents: Integers
    """The units of the norms, as powers of two."""
    sparseness: float
    """Their mean."""
    relative: bool
    """Whether distances are in units of the norms."""
    only_increase: bool
    """Whether a larger mean will do, if the vectors have that themselves."""


class Shares(NamedTuple):
    """What each vector gets."""

    sparseness: Floats
    pace: Floats
    """The shift that belongs to the price `price`, over it: in a unit of the price that is common
    to all vectors, and in units of the data."""
    price: float
    free: Flags
    """Whether its sparseness follows the price: not at a floor, at 1, or at ties."""
    tied: Flags
    """Whether all entries of the support are equal, and would leave at a higher price: of such
    vectors one may take what others leave. The price stays with it."""
    weight: Floats
    """Its part in the mean; they sum to 1."""
    passes: int


class Members(Protocol):
    """The vectors of several arrays, as an engine looks at them."""

    batches: list[tuple[int, ...]]
    """Shapes of the batches of vectors."""
    lengths: list[int]
    """Entries of a vector of each array."""

    def summary(self) -> Floats:
        """Return what `SUMMARY` names, a row per vector."""

    def look(self, pivots: Floats, references: Floats) -> Floats:
        """Return what `SUMS` names, a row per vector; it may be anything where a pivot is NaN."""

    def sample(self) -> list[tuple[Integers, Floats]] | None:
        """Return some entries, as `Sample` takes them; None if there are few."""

    def between(
        self, lows: Floats, highs: Floats, references: Floats
    ) -> tuple[Floats, Integers, Floats] | None:
        """Return the sums above the higher pivots, and the entries between both, in one pass.

        These come with the numbers of their vectors. Sums are NaN where they cannot be had so, and
        where a pivot is NaN. None: there is no such pass.
        """


Look: TypeAlias = Callable[[Floats, Floats], Floats]
"""From pivots, and numbers near the means above them, to what `SUMS` names: a row per vector."""


def shares_of(
    members: Members,
    asked: Asked,
    names: list[str],
    refuse: Callable[[int, int], Any] | None = None,
) -> Shares:
    """Return what each vector gets; those without a sparseness do not count.

    Parameters
    ----------
    members : Members
        The vectors.
    asked : Asked
        What is asked of them, all numbers on the host.
    names : list of str
        What errors call the arrays.
    refuse : callable, optional
        Called with the number of an array, and of the first vector in it that is not finite.

    Raises
    ------
    ValueError
        If numbers do not fit the vectors, or if the floors are above the sparseness.
    """
    counts = [math.prod(batch) for batch in members.batches]
    lengths = np.repeat(np.array(members.lengths, float), counts)
    keeps = np.repeat([isinstance(norm, str) for norm in asked.norms], counts)
    norms = _flat("l2", [1.0 if isinstance(n, str) else n for n in asked.norms], members, names)
    floors = _flat("floor", asked.floors, members, names)
    weights = _flat("weights", [1.0 if w is None else w for w in asked.weights], members, names)
    if len(weights) and weights.min() < 1e-290 * weights.max():
        raise ValueError(
            f"weights from {weights.min():g} to {weights.max():g}: the least counts for nothing"
        )
    summary = members.summary()
    finite = np.asarray(np.isfinite(summary).all(axis=1))
    if refuse is not None and not finite.all():
        bad = int(np.argmin(finite))
        array = int(np.searchsorted(np.cumsum(counts), bad, side="right"))
        refuse(array, bad - sum(counts[:array]))
    known = np.where(finite[:, None], summary, 0.0)
    units = exponents_of(np.maximum(np.abs(known[:, 0]), np.abs(known[:, 1])))
    own = np.sqrt(lengths) * np.hypot(*in_units(known[:, 2:].T, units))
    there = (lengths > 1) & finite & (~keeps | (own > 0))
    at = np.flatnonzero(there)
    if len(at) == 0:
        return _nothing(len(lengths), asked.sparseness)
    weights = weights[at] / weights[at].max()
    weights /= math.fsum(weights)
    lowest = math.fsum(weights * floors[at])
    if lowest > asked.sparseness + 4 * np.finfo(float).eps:
        raise ValueError(
            f"floor={lowest:g} on average, above sparseness={asked.sparseness:g}: no mean is below "
            "that of the floors"
        )
    wanted = Wanted(
        lengths[at],
        weights,
        floors[at],
        np.where(keeps, own, norms)[at],
        np.where(keeps, units, 0)[at],
        float(asked.sparseness),
        asked.relative,
        asked.only_increase,
    )

    def look(pivots: Floats, references: Floats) -> Floats:
        every = np.full((2, len(there)), math.nan)
        every[:, at] = pivots, references
        return members.look(*every)[at]

    def between(lows: Floats, highs: Floats, references: Floats) -> Any:
        every = np.full((3, len(there)), math.nan)
        every[:, at] = lows, highs, references
        found = members.between(*every)
        if found is None:
            return None
        sums, vectors, entries = found
        return sums[at], (np.cumsum(there) - 1)[vectors], entries

    blocks = members.sample()
    sample = None if blocks is None else Sample.among(blocks, there)
    found = share(wanted, known[at], look, sample, between)
    return _spread(found, at, len(there), asked.sparseness)


def split_shares(members: Members, sparseness: Floats) -> list[Any]:
    """Return the numbers of all vectors by arrays; None for vectors of length 1."""
    ends = np.cumsum([math.prod(batch) for batch in members.batches])[:-1]
    parts = zip(np.split(sparseness, ends), members.batches, members.lengths, strict=True)
    return [None if n == 1 else numbers.reshape(batch) for numbers, batch, n in parts]


_RANGES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "floor": ("between 0 and 1", lambda numbers: (numbers >= 0) & (numbers <= 1)),
    "weights": ("positive and finite", lambda numbers: (numbers > 0) & (numbers < np.inf)),
    "l2": ("positive and finite", lambda numbers: (numbers > 0) & (numbers < np.inf)),
}


def _flat(what: str, given: list[Any], members: Members, names: list[str]) -> Floats:
    """Return one number for each vector of all arrays."""
    parts = [np.zeros(0)]
    words, right = _RANGES[what]
    for value, batch, name in zip(given, members.batches, names, strict=True):
        numbers = np.asarray(value, float)
        if not np.all(right(numbers)):
            raise ValueError(f"{what}={value!r} for {name}: must be {words}")
        try:
            parts.append(np.broadcast_to(numbers, batch).reshape(-1))
        except ValueError:
            raise ValueError(
                f"{what} of shape {np.shape(value)} does not fit the vectors of {name}, a batch of "
                f"shape {batch}: give one number, or an array that broadcasts to {batch}"
            ) from None
    return np.concatenate(parts)


def _nothing(count: int, sparseness: float) -> Shares:
    zeros, none = np.zeros((2, count)), np.zeros((2, count), bool)
    return Shares(np.full(count, sparseness), zeros[0], 0.0, none[0], none[1], zeros[1], 0)


def _spread(found: Shares, at: Integers, count: int, sparseness: float) -> Shares:
    """Return the shares of some vectors among those of all."""
    every = _nothing(count, sparseness)
    columns = {}
    for name in ("sparseness", "pace", "free", "tied", "weight"):
        columns[name] = getattr(every, name)
        columns[name][at] = getattr(found, name)
    return found._replace(**columns)


def share(
    wanted: Wanted,
    summary: Floats,
    look: Look,
    sample: Sample | None = None,
    between: Callable[[Floats, Floats, Floats], Any] | None = None,
) -> Shares:
    """Find the price, and what every vector gets at it.

    Parameters
    ----------
    wanted : Wanted
        What is asked for; `Wanted.sparseness` is at least the mean of the floors, and at most 1.
    summary : array, one row per vector
        What `SUMMARY` names.
    look : callable
        A pass over all vectors.
    sample : Sample, optional
        Some of the entries, to begin at the right place.
    between : callable, optional
        A pass as `Members.between` makes it, which pays where a sample was taken.
    """
    # Pivots may be infinite, and numbers vanish: that is what they are then.
    with np.errstate(all="ignore"):
        return _shared(wanted, summary, look, sample, between)


def _shared(
    wanted: Wanted, summary: Floats, look: Look, sample: Sample | None, between: Any
) -> Shares:
    units = exponents_of(np.maximum(np.abs(summary[:, 0]), np.abs(summary[:, 1])))
    search = _Search(wanted, in_units(summary.T, units), units, look)
    if wanted.sparseness >= 1:
        return search.at_bounds(np.ones_like(wanted.floors))
    if wanted.sparseness <= math.fsum(wanted.weights * wanted.floors):
        return search.at_bounds(wanted.floors)
    if wanted.only_increase and search.enough_at_zero():
        return search.as_they_are()
    start = None if sample is None else sample.price(search)
    return search.shares(*search.run(start, None if start is None else between))


class _Search:
    """The search for the price of some vectors, all numbers in their units."""

    def __init__(self, wanted: Wanted, summary: Floats, units: Integers, look: Look) -> None:
        self.low, self.high, self.mean, self.deviation = summary
        self.units, self.wanted, self._look = units, wanted, look
        self.weight, self.floor = wanted.weights, wanted.floors
        self.root = np.sqrt(wanted.lengths)
        self.counts, self.stretch = wanted.lengths, np.ones_like(self.root)
        self.passes = 0
        # The pace is weight/(sqrt(n) - 1) over the norm, in the vector's units: mantissa, exponent.
        mantissa, exponent = np.frexp(wanted.norms)
        share, size = self.weight / (self.root - 1), exponent + wanted.exponents
        if wanted.relative:
            self._pace = share * mantissa, size - units
        else:
            self._pace = share / mantissa, -size - units
        exponents = self._pace[1] + np.frexp(self._pace[0])[1]
        self._set_unit(int(exponents.max()))
        if exponents.max() - exponents.min() > _WIDEST:
            self._set_unit(self._size_of_price(exponents))

    def part(self, chosen: Integers, counts: Floats, summary: Floats, look: Look) -> "_Search":
        """Return the search over some entries, in units, of each of some of the vectors."""
        some = object.__new__(_Search)
        some.low, some.high, some.mean, some.deviation = summary
        some.wanted, some._look, some.passes = self.wanted, look, 0
        some.root, some.floor, some.pace = (a[chosen] for a in (self.root, self.floor, self.pace))
        some.weight = self.weight[chosen] / math.fsum(self.weight[chosen])
        some.units = np.zeros_like(self.units[chosen])
        some.counts, some.stretch = counts, some.root / np.sqrt(counts)
        return some

    def _set_unit(self, exponent: int) -> None:
        """Choose the unit of the price: paces are over two to this power."""
        mantissa, exponents = self._pace
        self.pace = np.ldexp(mantissa, np.clip(exponents - exponent, -3000, 3000))

    def _size_of_price(self, exponents: Integers) -> int:
        """Return the unit in which the price is about 1, by whole powers of two.

        Vectors whose sizes are that far apart do not share a price: most of them are at their
        bounds, whatever it is.
        """
        self._set_unit(int(exponents.max()))
        positive = self.lack(self.look(0.0), 0.0)[0] > 0
        price = 1.0 if positive else -1.0
        # Invariant: with the unit 2^-low the price is at least 1 in size, with 2^-high less.
        low, high = -int(exponents.max()) - 1200, -int(exponents.min()) + 1200
        while high - low > 1:
            middle = (low + high) // 2
            self._set_unit(-middle)
            if (self.lack(self.look(price), price)[0] > 0) == positive:
                low = middle
            else:
                high = middle
        return -low

    # ---- means over given supports ----

    def look(self, price: float, near: Sums | None = None) -> Sums:
        """Make a pass: return the sums above the pivots that belong to a price.

        It is quicker with the sums of a price that is near.
        """
        self.passes += 1
        pivots = _signed(np.ldexp(self._pivots(price), self.units), price)
        references = self.mean if near is None else near.mean
        references = np.where(np.isnan(references), self.high, references)
        found = self._look(pivots, np.ldexp(references, self.units))
        count, *rest = found.T
        return Sums(count, *(in_units(column, self.units) for column in rest))

    def whole(self) -> Sums:
        """Return the sums over all entries, which need no pass."""
        nothing = np.full_like(self.low, -math.inf)
        return Sums(self.counts, self.mean, self.deviation, nothing, self.low)

    def _pivots(self, price: float) -> Floats:
        pivots = price * self.pace
        # The pace may be infinite where the price is 0.
        return _signed(np.where(np.isnan(pivots), 0.0, pivots), price)

    def _sparseness(self, sums: Sums, price: float) -> tuple[Floats, Floats]:
        """Return what vectors with given supports would have, and by how much it rises.

        (sqrt(n) - sqrt(d) gap/size)/(sqrt(n) - 1), written so that it has all its digits near 0.
        """
        gap = sums.mean - self._pivots(price)
        size = np.hypot(sums.deviation, gap)
        root = self.stretch * np.sqrt(sums.size)
        # All are alike where the gap is so large.
        off = np.where(np.isinf(size), 0.0, (sums.deviation / size) ** 2)
        lack = root * off / (1 + np.where(np.isinf(size), 1.0, gap / size))
        found = ((self.root - root) + lack) / (self.root - 1)
        slope = root * off / size * self.pace / (self.root - 1)
        some = (sums.size > 0) & (gap > 0)
        known = some & np.isfinite(slope)
        return np.where(some, found, 1.0), np.where(known, slope, 0.0)

    def bounded(self, sums: Sums, price: float) -> Floats:
        """Return the sparsenesses within their bounds."""
        return np.clip(self._sparseness(sums, price)[0], self.floor, 1.0)

    def lack(self, sums: Sums, price: float) -> tuple[float, float]:
        """Return by how much the mean over given supports falls short; and the slope of that."""
        found, slope = self._sparseness(sums, price)
        free = (found > self.floor) & (found < 1)
        bounded = np.clip(found, self.floor, 1.0)
        return (
            self.wanted.sparseness - float(np.sum(self.weight * bounded)),
            -float(np.sum(np.where(free, self.weight * slope, 0.0))),
        )

    # ---- the search ----

    def run(self, start: float | None, between: Any = None) -> tuple[Sums, float, float]:
        """Return the supports at the price, and the neighbouring numbers between which it lies."""
        tops = np.where(self.pace > 0, self.high / self.pace, -math.inf)
        high = float(np.nextafter(min(tops.max(), 1e308), math.inf))
        low, supports = 0.0, self.whole()
        if not self.wanted.only_increase:
            low = self._bottom(supports, high)
        if start is not None and low < start < high and between is not None:
            found, low = self._near(start, low, high, between)
            if found is not None:
                return found
            start = low
        pivot = low if start is None or not low < start < high else start
        supports, first, second, _ = self._climb(pivot, low, high, supports)
        return supports, first, second

    def _near(
        self, start: float, low: float, high: float, between: Any
    ) -> tuple[tuple[Sums, float, float] | None, float]:
        """Search close to a price that cannot be far off; return what was found, and a lower bound.

        One pass there, and one that takes along the entries among which the price must be if the
        first step went most of the way. All others are done on these.
        """
        supports, first, second, settled = self._climb(start, low, high, self.whole(), passes=1)
        low = max(low, first)
        if settled:
            return (supports, first, second), low
        beyond = low + 0.3 * abs(low - start)
        inside = _Inside.of(self, low, beyond, supports, between)
        if inside is None:
            return None, low
        self.passes += 1
        supports, first, second, settled = inside._climb(low, low, beyond, supports)
        done = settled and second < beyond
        return ((supports, first, second) if done else None), max(low, first)

    def _climb(
        self, pivot: float, low: float, high: float, supports: Sums, passes: int = _PASSES
    ) -> tuple[Sums, float, float, bool]:
        """Climb from one lower bound of the price to the next, beginning with a pivot.

        Invariant: the price is at least `low` and less than `high`, as far as rounding can tell.
        Returns the last supports, the neighbouring numbers between which the price over them lies,
        and whether these are the supports that belong to it.
        """
        widths = [math.inf] * 3
        for number in range(passes):
            supports = self.look(pivot, supports)
            above = self.lack(supports, pivot)[0] < 0
            low, high = (low, min(high, pivot)) if above else (max(low, pivot), high)
            first, second = self.root_of(supports, low, high)
            low = max(low, first)
            if self._settled(supports, first, second):
                return supports, *self.root_of(supports, first, second, close=True), True
            widths = [*widths[1:], steps_between(low, high)]
            # Mostly a few steps do. Where the climb is slow the middle of what is left is tried.
            slow = number >= _STEPS and widths[-1] * 4 > widths[0]
            last, pivot = pivot, middle_of(low, high) if slow else low
            if pivot == last or not low < high:
                break
        return supports, *self.root_of(supports, first, second, close=True), False

    def _bottom(self, everything: Sums, high: float) -> float:
        """Return a lower bound of the price, by the sums over all entries."""
        bottoms = np.where(self.pace > 0, self.low / self.pace, math.inf)
        low = max(min(float(bottoms.min()), high), -1e308)
        step = max(high - low, abs(high), 1e-300) if math.isfinite(high - low) else 1e308
        while self.lack(everything, low)[0] < 0 and low > -1e308:
            low, step = max(high - step, -1e308), step * 4
        return self.root_of(everything, low, high, steps=8)[0]

    def root_of(
        self, sums: Sums, low: float, high: float, *, close: bool = False, steps: int = 1000
    ) -> tuple[float, float]:
        """Return numbers between which what lacks over given supports changes sign.

        Newton's steps within a bracket, then ever wider ones away from where they end, until few
        numbers are left; with `close`, none. A lower bound may do with few steps.
        """
        lack, slope = self.lack(sums, low)
        if lack < 0:
            return low, low
        at, away = low, 0
        while math.nextafter(low, math.inf) < high:
            guess = at - lack / slope if slope < 0 else math.nan
            if away:
                step = away * math.ulp(at)
                guess, away = (low + step if at == low else high - step), 8 * away
            if not low < guess < high:
                guess = middle_of(low, high)
            if abs(guess - at) <= 16 * math.ulp(at) and not away:
                away = 4
            at = guess
            lack, slope = self.lack(sums, at)
            low, high = (at, high) if lack >= 0 else (low, at)
            steps -= 1
            if steps == 0 or (away and not close and high - low <= 64 * math.ulp(low)):
                break
        return low, high

    def _settled(self, sums: Sums, low: float, high: float) -> bool:
        """Whether the supports are those of the prices from low to high.

        Over any support a vector is at least as sparse as it is, so what is at its floor stays.
        """
        first, second = self._pivots(low), self._pivots(high)
        tied = (sums.deviation == 0) & (sums.above > first)
        same = (sums.below <= first) & ((sums.above > second) | tied)
        return bool(np.all(same | (self._sparseness(sums, high)[0] <= self.floor)))

    # ---- what comes of it ----

    def shares(self, sums: Sums, low: float, high: float) -> Shares:
        """Return what each vector gets at a price between two neighbouring numbers.

        Where the sum jumps there, the first vectors that jump become as sparse as they must.
        """
        below, low = self._on_one_side(sums, low, -1.0)
        above, high = self._on_one_side(sums, high, 1.0)
        least, most = self.bounded(below, low), self.bounded(above, high)
        room = self.weight * np.maximum(most - least, 0.0)
        lack = self.wanted.sparseness - math.fsum(self.weight * least)
        before = np.cumsum(room) - room
        found = np.clip(least + np.clip(lack - before, 0.0, room) / self.weight, least, most)
        equal = (below.deviation == 0) & (below.size > 1)
        tied = equal & (least < found) & (found < most)
        free = (found > self.floor) & (found < 1) & ~equal
        return self._found(self._corrected(found), low, free=free, tied=tied)

    def _on_one_side(self, sums: Sums, price: float, side: float) -> tuple[Sums, float]:
        """Return a price at which the mean is too small (side -1), or not; mostly it is given.

        Where entries differ by little more than rounding, so does what is known of the price.
        """
        # In numbers, not in lengths: 0 is far from all others.
        steps, end = int(side), key_of(1e300)
        while self.lack(sums, price)[0] * side > 0 and abs(price) < 1e300:
            price = number_of(min(max(key_of(price) + steps, -end), end))
            sums, steps = self.look(price, sums), 2 * steps
        return sums, price

    def _corrected(self, found: Floats) -> Floats:
        """Return sparsenesses whose mean is right to the last digits that it has."""
        lack = self.wanted.sparseness - math.fsum(self.weight * found)
        inside = (found > self.floor) & (found < 1)
        if inside.any():
            # The one that notices least.
            one = int(np.argmax(np.where(inside, self.weight, 0.0)))
            found[one] = np.clip(found[one] + lack / self.weight[one], self.floor[one], 1.0)
            lack = self.wanted.sparseness - math.fsum(self.weight * found)
        if abs(lack) > 1e-15:
            # Entries that rounding does not tell apart: whoever can takes it, the first ones first.
            room = self.weight * (1 - found if lack > 0 else found - self.floor)
            before = np.cumsum(room) - room
            found += np.copysign(np.clip(abs(lack) - before, 0.0, room) / self.weight, lack)
        return np.clip(found, self.floor, 1.0)

    def at_bounds(self, sparseness: Floats) -> Shares:
        """Return shares that leave no choice."""
        return self._found(sparseness.copy(), 0.0)

    def enough_at_zero(self) -> bool:
        """Whether the vectors themselves are as sparse as is asked for."""
        sums = self.whole() if np.all(self.low >= 0) else self.look(0.0)
        return self.lack(sums, 0.0)[0] <= 0

    def as_they_are(self) -> Shares:
        """Return what vectors get that are sparse enough: their floors are all that is asked."""
        return self._found(self.floor.copy(), 0.0)

    def _found(
        self,
        sparseness: Floats,
        price: float,
        *,
        free: Flags | None = None,
        tied: Flags | None = None,
    ) -> Shares:
        none = np.zeros(len(sparseness), bool)
        pace = np.ldexp(self.pace, self.units)
        free, tied = none if free is None else free, none if tied is None else tied
        return Shares(sparseness, pace, price, free, tied, self.weight, self.passes)


class _Inside(_Search):
    """The search among the entries between two prices, with what lies above them summed."""

    @staticmethod
    def of(search: _Search, low: float, high: float, near: Sums, between: Any) -> "_Inside | None":
        """Make the pass that takes these entries; None if it cannot be made."""
        lows, highs = (_signed(np.ldexp(search._pivots(p), search.units), p) for p in (low, high))
        # Where both are the same nothing may be between them; and the means may be NaN.
        highs = np.where(lows < highs, highs, np.nextafter(lows, math.inf))
        references = np.where(np.isnan(near.mean), search.high, near.mean)
        found = between(lows, highs, np.ldexp(references, search.units))
        if found is None or np.isnan(found[0][:, 0]).any():
            return None
        sums, vectors, entries = found
        inside: Any = copy.copy(search)
        inside.__class__ = _Inside
        inside.passes, inside._vectors = 0, vectors
        inside._above = Sums(sums[:, 0], *in_units(sums[:, 1:].T, search.units))
        inside._entries = in_units(entries, search.units[vectors])
        inside._limits = in_units(np.stack([lows, highs]), search.units)
        return cast(_Inside, inside)

    _vectors: Integers
    _above: Sums
    _entries: Floats
    _limits: Floats

    def look(self, price: float, near: Sums | None = None) -> Sums:
        """Return the sums above the pivots that belong to a price; no data are read."""
        count = len(self.units)
        pivots = self._pivots(price)
        inside = self._entries > pivots[self._vectors]
        some = self._vectors[inside]
        # All about the centres of what lies above.
        centre = np.where(np.isnan(self._above.mean), self._limits[1], self._above.mean)
        t = self._entries[inside] - centre[some]
        number = np.bincount(some, minlength=count)
        first, second = (np.bincount(some, power, minlength=count) for power in (t, t * t))
        size = self._above.size + number
        mean = first / size
        spread = second - first * mean
        spread += np.where(self._above.size > 0, self._above.size * self._above.deviation**2, 0)
        deviation = np.sqrt(np.maximum(spread, 0.0) / size)
        below, above = self._limits[0].copy(), self._above.above.copy()
        np.maximum.at(below, self._vectors[~inside], self._entries[~inside])
        np.minimum.at(above, some, self._entries[inside])
        none = size == 0
        mean, deviation = (np.where(none, math.nan, a) for a in (mean + centre, deviation))
        return Sums(size, mean, deviation, below, above)


def _signed(pivots: Floats, price: float) -> Floats:
    """Return pivots that are on the same side of 0 as the price: zeros are above it, or are not."""
    if price == 0:
        return pivots
    return np.where(pivots == 0, math.copysign(5e-324, price), pivots)
