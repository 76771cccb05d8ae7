"""A vector that lies in parts (chunks, shards, ranks): the search for its projection.

The search is a generator. It yields a `Request`, what it wants to know of all parts; is sent the
merged answer, integers that do not depend on how the vector is divided; and returns a `Solution`,
by which every part is written on its own. So whoever drives it decides where parts lie and how
answers meet: a loop, a tree, an all-reduce.

Floats are ordered like integers, their *keys*: the bits of their size, with their sign. The first
request asks for a histogram of all keys: per bin the count of entries and the first two moments of
their keys' low bits. These tell exactly whether alpha lies above or below each bin's lower end, so
the next request divides one bin further, or gathers the few entries in it. That takes at most three
requests for floats of 32 bits and six for 64 (mostly three); ties at the maximum take one more.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..plan import Plan
from .arrays.namespace import namespace
from .arrays.products import Kept
from .arrays.search import Goal, Noise, Size, Support, is_noise, tied_values

Integers: TypeAlias = npt.NDArray[np.int64]

BIN_BITS = 12
"""A histogram has 2**12 bins."""
LIMB_BITS = 32
"""Moments are sums of limbs times powers of 2**32."""
MOST_GATHERED = 1 << 15
"""So many entries take as much room as a histogram."""
NOWHERE = -(1 << 63)
"""What stands for a neighbour or a place that does not exist."""


class Request(NamedTuple):
    """What every part is asked for: an engine's function of this name has the answer."""

    what: Literal["histogram", "gather", "neighbours"]
    lower: int
    """The first key of the bins, or of the one bin; the key whose neighbours are wanted."""
    width: int
    """A bin has 2**width keys."""
    nonnegative: bool
    """Whether the entries are those of x, not of abs(x)."""


class Formula(NamedTuple):
    """What entries above the pivot get; with t = (halving * x - halving * reference) * scaling.

    It is (base + (t - mean) * gain) * fraction * power, clipped at 0; all others get 0.
    """

    pivot: float = -math.inf
    reference: float = 0.0
    scaling: float = 1.0
    halving: float = 1.0
    mean: float = 0.0
    gain: float = 0.0
    base: float = 0.0
    """NaN: then everything is."""
    fraction: float = 1.0
    power: float = 1.0
    shift: float = math.nan
    """Alpha and beta, if entries were just to be shifted and scaled."""
    scale: float = 0.0
    first: float = 0.0
    """What takes the place of `base` for the first of tied entries."""


class Solution(NamedTuple):
    """The fields of `hoyer.projection.RECORD_FIELDS`, and how parts are written."""

    shift: float
    scale: float
    support_size: int
    evaluations: int
    """How many requests were made."""
    unique: bool
    l1: float
    l2: float
    kept: int
    formula: Formula
    first: int | None
    """Where in the vector the first of tied entries is, if it gets more than the others."""

    def place(self, begin: int, end: int) -> int:
        """Return where in a part that entry is, or -1."""
        return -1 if self.first is None or not begin <= self.first < end else self.first - begin


Steps: TypeAlias = Generator[Request, Integers, Solution]


class Engine(Protocol):
    """What an engine offers for parts; each takes one part, an array of any shape."""

    def histogram(self, x: Any, lower: int, width: int, nonnegative: bool) -> Any:
        """Return how many entries are not finite and how many are zero; a row of counts; moments.

        There are 2**12 bins. The low `width` bits of keys are summed in as many limbs as one
        of them has, their squares likewise; all numbers are int64, one after the other.
        """

    def gather(self, x: Any, lower: int, width: int, nonnegative: bool) -> Any:
        """Return the keys in one bin."""

    def neighbours(self, x: Any, key: int, nonnegative: bool, offset: int) -> Any:
        """Return the next smaller key, and the place of the first entry with this key, negated.

        Places are those in the vector; `offset` is that of the part. `NOWHERE` if there is none.
        """

    def write(self, x: Any, formula: Formula, nonnegative: bool, place: int) -> Any:
        """Return the results; the entry at `place`, if not -1, is the first of tied ones."""


def answer(engine: Engine, x: Any, request: Request, offset: int) -> Any:
    """Return what one part says to a request; `offset` is its place in the vector."""
    what, lower, width, nonnegative = request
    if what == "neighbours":
        return engine.neighbours(x, lower, nonnegative, offset)
    return getattr(engine, what)(x, lower, width, nonnegative)


def merged(request: Request, answers: Iterable[Integers]) -> Integers:
    """Return what all parts say together; in any order."""
    everything = list(answers)
    if request.what == "gather":
        return np.concatenate(everything)
    combine = np.add if request.what == "histogram" else np.maximum
    result: Integers = combine.reduce(everything)
    return result


def search(plan: Plan, bits: int, noise: Noise, most_gathered: int = MOST_GATHERED) -> Steps:
    """Return the generator that finds the projection of one vector.

    Parameters
    ----------
    plan : Plan
        With the target of one vector.
    bits : int
        Those of the floats; halves are taken as floats of 32 bits.
    noise : Noise
        What rounding does to vectors of this type; see `hoyer.engines.arrays.search.noise_of`.
    most_gathered : int
        How many entries may be gathered; 0: there are histograms only, whose size is fixed.

    Raises
    ------
    ValueError
        If parts have NaN or infinity, unless the plan says otherwise; then the result is NaN.
    """
    return _Search(plan, Keys(max(bits, 32), plan.nonnegative), noise, most_gathered).run()


# ---- exact sums ----


class Keys(NamedTuple):
    """The finite floats of a type as integers in the same order; both zeros are 0."""

    bits: int
    nonnegative: bool

    @property
    def digits(self) -> int:
        """How many bits follow the exponent."""
        return 23 if self.bits == 32 else 52

    @property
    def unit(self) -> Fraction:
        """The smallest positive float."""
        return Fraction(1, 1 << (149 if self.bits == 32 else 1074))

    @property
    def bins(self) -> tuple[int, int]:
        """The first key and the width of bins that hold all keys."""
        bits = self.bits - 1
        return (-(1 << bits), bits + 1 - BIN_BITS) if self.nonnegative else (0, bits - BIN_BITS)

    def value(self, key: int) -> int:
        """Return the float with a key, in units; between powers of two it grows evenly."""
        exponent, fraction = divmod(abs(key), 1 << self.digits)
        size = ((1 << self.digits) + fraction) << (exponent - 1) if exponent else fraction
        return -size if key < 0 else size


class Sums(NamedTuple):
    """How many entries there are, their sum, and that of their squares, in units."""

    count: int = 0
    first: int = 0
    second: int = 0

    def plus(self, other: "Sums") -> "Sums":
        """Return those of all entries together."""
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def spread(self) -> Fraction:
        """The sum of squares about the mean."""
        return Fraction(self.count * self.second - self.first**2, self.count)

    def balance(self, pivot: int, k: Fraction) -> int:
        """Return l1**2 - K l2**2 of what is above the pivot, up to a factor; -1 if it is nothing.

        All entries must be at the pivot or above. Alpha is not below the pivot if this is not
        negative.
        """
        l1 = self.first - self.count * pivot
        l2_squared = self.second - 2 * pivot * self.first + self.count * pivot**2
        return l1**2 * k.denominator - k.numerator * l2_squared if l2_squared else -1


class Bin(NamedTuple):
    """A bin with entries."""

    key: int
    """Where it starts; if all its entries are alike, their key."""
    alike: bool
    sums: Sums


def _moments(limbs: Sequence[Sequence[int]], size: int) -> list[int]:
    total = [0] * size
    for power, row in enumerate(limbs):
        total = [a + (b << LIMB_BITS * power) for a, b in zip(total, row, strict=True)]
    return total


def _bins_of(table: Integers, lower: int, width: int, keys: Keys) -> list[Bin]:
    """Return the bins that hold entries, from the top down."""
    table = table.reshape(-1, 1 << BIN_BITS)
    filled = np.flatnonzero(table[0])[::-1]
    counts, *limbs = table[:, filled].tolist()
    firsts = _moments(limbs[: -(-width // LIMB_BITS)], len(counts))
    seconds = _moments(limbs[-(-width // LIMB_BITS) :], len(counts))
    bins = []
    for number, c, a, b in zip(filled.tolist(), counts, firsts, seconds, strict=True):
        key = lower + (number << width)
        base = keys.value(key)
        step = keys.value(key + 1) - base
        sums = Sums(c, c * base + a * step, c * base**2 + 2 * base * step * a + b * step**2)
        alike = c * b == a * a
        bins.append(Bin(key + a // c if alike else key, alike, sums))
    return bins


def _bins_of_entries(entries: Integers, keys: Keys) -> list[Bin]:
    """Return a bin for each key, from the top down."""
    bins = []
    for key, c in zip(*(a[::-1].tolist() for a in np.unique_counts(entries)), strict=True):
        value = keys.value(key)
        bins.append(Bin(key, True, Sums(c, c * value, c * value**2)))
    return bins


# ---- from Fractions to floats ----


def _exponent(number: Fraction) -> int:
    """Return that of a power of two near a number which is not 0."""
    return number.numerator.bit_length() - number.denominator.bit_length()


def _float(number: Fraction) -> float:
    """Return the nearest float, or infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _power(exponent: int) -> float:
    """Return a power of two, which is 1 where ordinary arithmetic does."""
    return 1.0 if abs(exponent) < 300 else math.ldexp(1.0, max(-1022, min(1021, exponent)))


def _size(number: Fraction) -> Size:
    """Return a number as a norm; 0 if it is negative."""
    if number <= 0:
        return Size(0.0, 1.0)
    power = _power(_exponent(number))
    return Size(float(number / Fraction(power)), power)


def _root(square: Fraction) -> Size:
    """Return the root of a number that is not 0 as a norm."""
    power = _power(_exponent(square) // 2)
    return Size(math.sqrt(square / Fraction(power) ** 2), power)


# ---- the search ----


class _Search:
    """The target of one vector, and what is known so far."""

    def __init__(self, plan: Plan, keys: Keys, noise: Noise, most_gathered: int) -> None:
        *numbers, self.rule, self.l1_given = plan.target
        ratio, slack, slack_low, l2 = (float(np.asarray(number).item()) for number in numbers)
        self.plan, self.keys, self.noise, self.most_gathered = plan, keys, noise, most_gathered
        self.n, self.ratio = plan.n, ratio
        self.goal = Goal(plan.n, ratio, slack, slack_low, namespace(np))
        self.norm = Size(l2, 1.0)
        self.is_possible = not (math.isnan(ratio) or math.isnan(l2))
        self.is_constant = not slack > 0
        self.k = plan.n - Fraction(slack) - Fraction(slack_low) if self.is_possible else Fraction(1)
        self.requests = 0

    def run(self) -> Steps:
        if not self.is_possible:
            return self._same(math.nan)
        lower, width = self.keys.bins
        numbers = yield from self._ask("histogram", lower, width)
        not_finite, zeros = (int(number) for number in numbers[:2])
        if not_finite:
            return self._refused(not_finite)
        bins = _bins_of(numbers[2:], lower, width, self.keys)
        total = self._total(bins)
        if total.count != self.n:
            raise ValueError(f"parts with {total.count} entries in all, where {self.n} were planned")
        if self.rule == "keep":
            if not total.second:
                return self._same(0.0)
            self.norm = _root(total.second * self.keys.unit**2)
        if self.plan.only_increase:
            positive = self._total(bin for bin in bins if bin.key >= 0)
            count = positive.count - zeros
            if count and positive.balance(0, self.k) <= 0:
                return self._direction(positive, count)
            if not count and zeros < self.n:
                return (yield from self._one_hot(bins, width))
        if self.is_constant:
            return self._constant(total, zeros)
        inside, least = yield from self._support(bins, width, self.k)
        if not inside.spread:
            return (yield from self._tied(inside, least))
        lowest_is_zero = zeros > 0 and bins[-1].key >= 0
        return (yield from self._interior(inside, least, zeros if lowest_is_zero else 0))

    def _ask(self, what: Any, lower: int, width: int) -> Generator[Request, Integers, Integers]:
        self.requests += 1
        numbers = yield Request(what, lower, width, self.keys.nonnegative)
        return numbers

    def _total(self, bins: Iterable[Bin]) -> Sums:
        *_, total = accumulate((bin.sums for bin in bins), Sums.plus, initial=Sums())
        return total

    def _support(
        self, bins: list[Bin], width: int, k: Fraction
    ) -> Generator[Request, Integers, tuple[Sums, int]]:
        """Return the sums of the entries above alpha, and a key that only they reach.

        Where at least K entries share the maximum, it is those.
        """
        above, least = Sums(), 1 << 63
        while True:
            # sums[i] are those of what lies above bin i.
            sums = list(accumulate((bin.sums for bin in bins), Sums.plus, initial=above))
            border = bisect_left(
                range(len(bins)),
                True,
                key=lambda i: sums[i + 1].balance(self.keys.value(bins[i].key), k) >= 0,
            )
            above = sums[border]
            if border:
                least = bins[border - 1].key
            if border == len(bins) or bins[border].alike:
                return above, least
            key, _, inside = bins[border]
            end = self.keys.value(key + (1 << width))
            if above.count >= k and (not above.spread or above.balance(end, k) >= 0):
                return above, least
            if inside.count <= self.most_gathered:
                entries = yield from self._ask("gather", key, width)
                bins = _bins_of_entries(entries, self.keys)
            else:
                width = max(width - BIN_BITS, 0)
                numbers = yield from self._ask("histogram", key, width)
                bins = _bins_of(numbers[2:], key, width, self.keys)

    # ---- the ends of it ----

    def _solved(
        self,
        formula: Formula,
        support_size: int,
        *,
        beta: Fraction = Fraction(0),
        unique: bool = True,
        kept: int = 0,
        ratio: float | None = None,
        first: int | None = None,
    ) -> Solution:
        """Bring a result of unit norm to its norm; beta is that at unit norm."""
        fraction, power = self.norm
        if not fraction:
            return self._same(0.0)
        scale = 0.0
        if beta:
            # 0 would say that there is none.
            scale = max(_float(beta / Fraction(fraction) / Fraction(power)), 5e-324)
        formula = formula._replace(fraction=fraction, power=power, scale=scale)
        l1 = (self.ratio if ratio is None else ratio) * fraction * power
        return Solution(
            formula.shift,
            scale,
            support_size,
            self.requests,
            unique,
            l1,
            fraction * power,
            kept,
            formula,
            first,
        )

    def _same(self, number: float) -> Solution:
        """All results are 0, or NaN."""
        formula = Formula(math.inf, base=number)
        return Solution(
            math.nan, 0.0, 0, self.requests, True, number, number, 0, formula, None
        )

    def _refused(self, count: int) -> Solution:
        if self.plan.options.check_finite:
            raise ValueError(
                f"x has NaN or infinity at {count} of {self.n} entries; only finite vectors can be "
                "projected (check_finite=False returns NaN for such vectors)"
            )
        return self._same(math.nan)

    def _direction(self, positive: Sums, count: int) -> Solution:
        """A vector that is sparse enough is only brought to norm."""
        size = _root(positive.second * self.keys.unit**2)
        l1 = float(positive.first * self.keys.unit / Fraction(size.power))
        if self.rule == "nearest":
            self.norm = size
        elif self.l1_given:
            fraction = self.norm.fraction * (self.ratio * size.fraction / l1)
            self.norm = Size(fraction, self.norm.power)
        solution = self._solved(
            Formula(0.0, scaling=1 / size.power, gain=1 / size.fraction, shift=0.0),
            count,
            beta=Fraction(size.fraction) * Fraction(size.power),
            kept=Kept.TO_L1 if self.l1_given else Kept.TO_L2,
            ratio=l1 / size.fraction,
        )
        if solution.scale != 1:
            return solution
        # One whose norm does not change comes back as it is.
        return solution._replace(formula=Formula(0.0, gain=1.0, shift=0.0, scale=1.0))

    def _one_hot(self, bins: list[Bin], width: int) -> Steps:
        """No entry is positive: nearest of all that are sparse enough is the largest one alone."""
        if self.rule == "nearest":
            return self._same(0.0)
        inside, top = yield from self._support(bins, width, Fraction(1))
        _, first = yield from self._neighbours(top)
        if self.l1_given:
            self.norm = Size(self.norm.fraction * self.ratio, self.norm.power)
        return self._solved(
            Formula(self._pivot(top), first=1.0),
            1,
            unique=inside.count == 1,
            kept=Kept.TO_L1 if self.l1_given else Kept.TO_L2,
            ratio=1.0,
            first=first,
        )

    def _constant(self, total: Sums, zeros: int) -> Solution:
        """Sparseness 0: all entries alike."""
        if self.rule == "nearest":
            mean = Fraction(total.first, self.n) * self.keys.unit
            self.norm = _size(Fraction(math.sqrt(self.n)) * mean)
        unique = self.keys.nonnegative or not zeros
        return self._solved(Formula(base=1 / math.sqrt(self.n)), self.n, unique=unique)

    def _neighbours(self, key: int) -> Generator[Request, Integers, tuple[int, int]]:
        """Return the next smaller key, and the place of the first entry with this one."""
        below, place = yield from self._ask("neighbours", key, 0)
        return int(below), -int(place)

    def _pivot(self, least: int) -> float:
        """Return the largest float below that with a key."""
        return float(self.keys.value(least - 1) * self.keys.unit)

    def _tied(self, inside: Sums, top: int) -> Steps:
        """At least K entries share the maximum."""
        m, unit = inside.count, self.keys.unit
        if self.rule == "nearest":
            self.norm = _size(Fraction(self.ratio) * self.keys.value(top) * unit)
        below, place = yield from self._neighbours(top)
        formula = Formula(self._pivot(top), base=self.ratio / m)
        if self.goal.excess(m) == 0:
            distance = (self.keys.value(top) - self.keys.value(below)) * unit
            shift = float(self.keys.value(below) * unit)
            beta = distance * m / Fraction(self.ratio)
            return self._solved(formula._replace(shift=shift), m, beta=beta)
        first, others, single = tied_values(np.float64(m), self.goal)
        formula = formula._replace(base=float(others), first=float(first))
        return self._solved(formula, 1 if single else m, unique=False, first=place)

    def _interior(self, inside: Sums, least: int, zeros: int) -> Steps:
        """Return the closed form on a support; `zeros` are those of a vector that has none below."""
        d, unit = inside.count, self.keys.unit
        mean, spread = Fraction(inside.first, d) * unit, inside.spread * unit**2
        exponent = _exponent(spread / d) // 2
        halving, scaling = (0.5 if exponent > 1000 else 1.0), 1 / _power(exponent)
        frame = Fraction(halving) * Fraction(scaling)
        # From the mean downwards, as the closed form has it.
        support = Support(None, d, 0.0, float(spread * frame**2))
        scale, step = float(support.scale(self.goal)), float(support.step(self.goal))
        beta = Fraction(scale) / frame
        if self.rule == "nearest":
            self.norm = _size(Fraction(self.ratio) * mean + spread / beta)
        reference = float(mean)
        formula = Formula(
            self._pivot(least) if d < self.n else -math.inf,
            reference,
            scaling,
            halving,
            float((mean - Fraction(reference)) * frame),
            1 / scale,
            self.ratio / d,
            shift=_float(mean - Fraction(step) / frame),
        )
        unique = True
        if zeros and d == self.n:
            even = self.ratio / d
            top, _ = yield from self._neighbours((1 << 63) - 1)
            highest = even + float((self.keys.value(top) * unit - mean) / beta)
            if is_noise(even - float(mean / beta), highest, self.goal, self.noise):
                formula, d = formula._replace(pivot=0.0, shift=0.0), d - zeros
            else:
                unique = self.keys.nonnegative
        return self._solved(formula, d, beta=beta, unique=unique)


def project_parts(
    parts: Sequence[Any],
    plan: Plan,
    engine: Engine,
    bits: int,
    noise: Noise,
    *,
    most_gathered: int = MOST_GATHERED,
    to_host: Callable[[Any], Integers] = np.asarray,
) -> tuple[list[Any], Solution]:
    """Project a vector given as a list of arrays, one after the other: the simplest driver.

    For the parameters see `search`; `to_host` makes NumPy arrays of the engine's.
    """
    offsets = [0, *accumulate(math.prod(part.shape) for part in parts)]
    steps = search(plan, bits, noise, most_gathered)
    numbers: Any = None
    while True:
        try:
            request = steps.send(numbers)
        except StopIteration as stop:
            solution: Solution = stop.value
            break
        answers = (
            to_host(answer(engine, part, request, offset))
            for part, offset in zip(parts, offsets, strict=False)
        )
        numbers = merged(request, answers)
    results = [
        engine.write(part, solution.formula, plan.nonnegative, solution.place(begin, end))
        for part, begin, end in zip(parts, offsets, offsets[1:], strict=False)
    ]
    return results, solution
