"""A vector that lies in parts (chunks, shards, ranks): the search for its projection.

The search is a generator. It yields a `Request`, what it wants to know of all parts; is sent the
merged answer, integers that do not depend on how the vector is divided; and returns a `Solution`,
by which every part is written on its own. So whoever drives it decides where parts lie and how
answers meet: a loop, a tree, an all-reduce.

Floats are ordered like integers, their *keys*: the bits of their size, with their sign. The first
request asks for a histogram of all keys: per bin the count of entries and the first two moments of
their keys' low bits. These tell exactly whether alpha lies above or below the start of each bin, so
the next request divides one bin further, or gathers the few entries in it. That takes at most three
requests for floats of 32 bits and six for 64 (mostly two or three). One more is needed for ties at
the maximum, and where zeros are about to become nonzero.

An engine has the functions ``histogram``, ``gather``, ``neighbours`` and ``write``, all of which
take one part, an array of any shape; see `hoyer.engines.arrays.histogram` for what they return.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Sequence
from fractions import Fraction
from functools import partial, reduce
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..plan import Plan
from ..projection import Active
from .arrays.closed_form import Goal, Noise, is_noise, noise_of, tied_values
from .arrays.histogram import BIN_BITS, LIMB_BITS
from .arrays.namespace import Namespace, namespace
from .arrays.project import check_solver
from .arrays.search import Support
from .arrays.targets import check_fits

Integers: TypeAlias = npt.NDArray[np.int64]

MOST_GATHERED = 1 << 15
"""So many entries take as much memory as a histogram."""


class Request(NamedTuple):
    """What every part is asked for: an engine's function of this name has the answer.

    There are 2**12 bins, or one, of 2**width keys, from `lower` on; or `lower` is the key whose
    neighbours are wanted. The entries are those of abs(x), or with `nonnegative` those of x.
    """

    what: Literal["histogram", "gather", "neighbours"]
    lower: int
    width: int
    nonnegative: bool


class Formula(NamedTuple):
    """What entries above the pivot get; all others get 0.

    It is (base + (t - mean) * gain) * power, clipped at 0, t = (before * x - before * reference) *
    after, with powers of two where numbers are far from 1. The first of tied entries may have a
    base of its own; if `base` is NaN, everything is.
    """

    pivot: float = -math.inf
    reference: float = 0.0
    before: float = 1.0
    after: float = 1.0
    mean: float = 0.0
    gain: float = 0.0
    base: float = 0.0
    power: float = 1.0
    first: float = 0.0
    shift: float = math.nan
    scale: float = 0.0


class Solution(NamedTuple):
    """How parts are written, and the other fields of `hoyer.projection.RECORD_FIELDS`.

    `evaluations` is the number of requests; `first`, if not -1, where in the vector the first of
    tied entries is, which is not as the others.
    """

    formula: Formula
    support_size: int = 0
    unique: bool = True
    active: int = 0
    first: int = -1
    evaluations: int = 0
    l1: float = math.nan
    l2: float = math.nan

    def place(self, begin: int, end: int) -> int:
        """Return where in a part that entry is, or -1."""
        return self.first - begin if begin <= self.first < end else -1


Steps: TypeAlias = Generator[Request, Integers, Solution]


def answer(engine: Any, x: Any, request: Request, offset: int) -> Any:
    """Return what one part says to a request; `offset` is its place in the vector."""
    what, lower, width, nonnegative = request
    if what == "neighbours":
        return engine.neighbours(x, lower, nonnegative, offset)
    return getattr(engine, what)(x, lower, width, nonnegative)


def merged(request: Request, answers: Iterable[Integers]) -> Integers:
    """Return what all parts say together; they may come in any order."""
    if request.what == "gather":
        return np.concatenate(list(answers))
    return reduce(np.add if request.what == "histogram" else np.maximum, answers)


def search(plan: Plan, dtype: Any, xp: Namespace, most_gathered: int = MOST_GATHERED) -> Steps:
    """Return the generator that finds the projection of one vector.

    With `only_increase`, a vector that has the sparseness up to rounding may keep its direction
    here and not in another engine, or the other way round: here the comparison is exact.

    Parameters
    ----------
    plan : Plan
        With the target of one vector.
    dtype, xp : dtype, Namespace
        The type of its floats, and the library that has it.
    most_gathered : int
        How many entries may be gathered; 0: there are histograms only, whose size is fixed.

    Raises
    ------
    ValueError
        If the plan has several targets, or a norm that the type does not have, or a solver of the
        paper's; later if parts have NaN or infinity, unless the plan says otherwise: then the
        result is NaN.
    """
    check_solver(plan.options)
    if any(np.size(numbers) != 1 for numbers in plan.target):
        raise ValueError("a vector in parts needs one target, and the plan has several")
    if plan.options.check_finite:
        check_fits(plan, dtype, xp)
    # Halves are taken as floats of 32 bits.
    keys = Keys(max(xp.finfo(dtype).bits, 32), plan.nonnegative)
    return _Search(plan, keys, noise_of(dtype, xp.float64, xp), most_gathered).run()


def project_parts(
    parts: Sequence[Any],
    search: Steps,
    engine: Any,
    to_host: Callable[[Any], Integers] = np.asarray,
) -> tuple[list[Any], Solution]:
    """Project a vector given as a list of arrays, one after the other: the simplest driver.

    `to_host` makes NumPy arrays of the engine's answers.
    """
    if not parts:
        raise ValueError("there are no parts: a vector needs at least one")
    ends = list(accumulate((math.prod(part.shape) for part in parts), initial=0))
    numbers: Any = None
    while True:
        try:
            request = search.send(numbers)
        except StopIteration as stop:
            solution: Solution = stop.value
            break
        pairs = zip(parts, ends, strict=False)
        numbers = merged(request, (to_host(answer(engine, x, request, at)) for x, at in pairs))
    places = (solution.place(begin, end) for begin, end in pairwise(ends))
    formula, nonnegative = solution.formula, request.nonnegative
    pairs = zip(parts, places, strict=True)
    return [engine.write(x, formula, nonnegative, place) for x, place in pairs], solution


# ---- exact sums ----


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
    def bins(self) -> tuple[int, int]:
        """The first key and the width of bins that hold all keys."""
        bits = self.bits - 1
        return (-(1 << bits), bits + 1 - BIN_BITS) if self.nonnegative else (0, bits - BIN_BITS)

    def fitted(self, counts: Integers) -> "Keys":
        """Return the same with the least exponent in these bins: small integers are faster."""
        lower, width = self.bins
        keys = (lower + (number << width) for number in np.flatnonzero(counts).tolist())
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
    alike: bool
    sums: ExactSums


def _bins_of(table: Integers, lower: int, width: int, keys: Keys) -> list[Bin]:
    """Return the bins of a histogram that hold entries, from the top down."""
    table = table.reshape(-1, 1 << BIN_BITS)
    filled = np.flatnonzero(table[0])[::-1]
    limbs = -(-width // LIMB_BITS)
    is_first = (lower, width) == keys.bins
    start, step = (0, 0) if is_first else keys.start_and_step(lower)
    bins = []
    for number, column in zip(filled.tolist(), table[:, filled].T.tolist(), strict=True):
        count, *moments = column
        a = sum(limb << (LIMB_BITS * i) for i, limb in enumerate(moments[:limbs]))
        b = sum(limb << (LIMB_BITS * i) for i, limb in enumerate(moments[limbs:]))
        key = lower + (number << width)
        if is_first:
            base, step = keys.start_and_step(key) if key or a else (0, 0)
        else:
            base = start + (number << width) * step
        first, second = a * step, b * step * step
        sums = ExactSums(count, count * base + first, base * (count * base + 2 * first) + second)
        alike = count * b == a * a
        bins.append(Bin(key + a // count if alike else key, alike, sums))
    return bins


def _bins_of_entries(entries: Integers, lower: int, keys: Keys) -> list[Bin]:
    """Return a bin for each key, all of which are from one bin, from the top down."""
    start, step = keys.start_and_step(lower)
    bins = []
    for key, count in zip(*(a[::-1].tolist() for a in np.unique_counts(entries)), strict=True):
        value = start + (key - lower) * step
        bins.append(Bin(key, True, ExactSums(count, count * value, count * value * value)))
    return bins


def _total(bins: Iterable[Bin]) -> ExactSums:
    *_, total = accumulate((bin.sums for bin in bins), ExactSums.plus, initial=ExactSums())
    return total


def _float(number: Fraction) -> float:
    """Return the nearest float, or infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _root(square: int) -> Fraction:
    """Return a square root with 64 bits behind the point."""
    return Fraction(math.isqrt(square << 128), 1 << 64)


def _exponent(number: Fraction) -> int:
    """Return that of a power of two near a number which is not 0."""
    return number.numerator.bit_length() - number.denominator.bit_length()


def _power(exponent: int) -> float:
    """Return a power of two; 1 where ordinary arithmetic does without."""
    return 1.0 if abs(exponent) < 300 else math.ldexp(1.0, max(-1022, min(1021, exponent)))


# ---- the search ----


class _Search:
    """The target of one vector, and what is known so far."""

    def __init__(self, plan: Plan, keys: Keys, noise: Noise, most_gathered: int) -> None:
        self.rule, self.l1_given = plan.rule, plan.l1_given
        ratio, slack, slack_low, l2 = (float(np.asarray(number).item()) for number in plan.target)
        self.plan, self.keys, self.noise, self.most_gathered = plan, keys, noise, most_gathered
        self.goal = Goal(plan.n, ratio, slack, slack_low, namespace(np))
        self.is_possible = not (math.isnan(ratio) or math.isnan(l2))
        self.is_constant = not slack > 0
        exact = (ratio, slack, slack_low, l2) if self.is_possible else (1.0, 0.0, 0.0, 1.0)
        self.ratio, high, low, self.norm = map(Fraction, exact)
        self.k = plan.n - high - low
        self.requests = 0

    def run(self) -> Steps:
        found = yield from self._found()
        if not self.norm:
            found = Solution(Formula(math.inf))
        if not math.isnan(found.formula.base):
            found = found._replace(l1=_float(self.ratio * self.norm), l2=_float(self.norm))
        return found._replace(evaluations=self.requests)

    def _found(self) -> Steps:
        n, (lower, width) = self.plan.n, self.keys.bins
        numbers = yield from self._ask("histogram", lower, width)
        not_finite, zeros = (int(number) for number in numbers[:2])
        if not_finite and self.plan.options.check_finite:
            raise ValueError(
                f"x has NaN or infinity at {not_finite} of {n} entries; only finite vectors can be "
                "projected (check_finite=False returns NaN for such vectors)"
            )
        if not_finite or not self.is_possible:
            return Solution(Formula(base=math.nan))
        counts = numbers[2 : 2 + (1 << BIN_BITS)].copy()
        counts[-lower >> width] -= zeros
        self.keys = self.keys.fitted(counts)
        bins = _bins_of(numbers[2:], lower, width, self.keys)
        total = _total(bins)
        if total.entries != n:
            raise ValueError(
                f"the parts have {total.entries} entries, and a vector of {n} is wanted"
            )
        if self.rule == "keep":
            self.norm = _root(total.second) * self.keys.unit
            if not self.norm:
                return Solution(Formula())
        if self.plan.only_increase:
            positive = _total(bin for bin in bins if bin.key >= 0)
            count = positive.entries - zeros
            if count and positive.balance(0, self.k) <= 0:
                return self._direction(positive, count)
            if not count and zeros < n:
                return (yield from self._one_hot(bins, width))
        if self.is_constant:
            return self._constant(total, zeros)
        inside, least = yield from self._support(bins, width, self.k)
        if not inside.spread:
            return (yield from self._tied(inside.entries, least))
        lowest_is_zero = zeros > 0 and bins[-1].key >= 0
        return (yield from self._interior(inside, least, zeros if lowest_is_zero else 0))

    def _ask(self, what: Any, lower: int, width: int) -> Generator[Request, Integers, Integers]:
        self.requests += 1
        numbers = yield Request(what, lower, width, self.keys.nonnegative)
        return numbers

    def _neighbours(self, key: int) -> Generator[Request, Integers, tuple[int, int]]:
        """Return the next smaller key, and the place of the first entry with this one."""
        below, place = yield from self._ask("neighbours", key, 0)
        return int(below), -int(place)

    def _reaches(self, bins: list[Bin], sums: list[ExactSums], k: Fraction, i: int) -> bool:
        """Whether alpha is not below the start of bin i."""
        return sums[i + 1].balance(self.keys.value(bins[i].key), k) >= 0

    def _support(
        self, bins: list[Bin], width: int, k: Fraction
    ) -> Generator[Request, Integers, tuple[ExactSums, int]]:
        """Return the sums of the entries above alpha, and a key that only they reach.

        Where at least K entries share the maximum, it is those and their key.
        """
        above, least = ExactSums(), 0
        while True:
            # sums[i] are those of what lies above bin i.
            sums = list(accumulate((bin.sums for bin in bins), ExactSums.plus, initial=above))
            border = bisect_left(range(len(bins)), True, key=partial(self._reaches, bins, sums, k))
            above = sums[border]
            if border:
                least = bins[border - 1].key
            if border == len(bins) or bins[border].alike:
                return above, least
            key, _, inside = bins[border]
            end = key + (1 << width)
            beyond = self.keys.value(end)
            if above.entries >= k and (not above.spread or above.balance(beyond, k) >= 0):
                return above, least
            least = least or end
            if inside.entries <= self.most_gathered:
                entries = yield from self._ask("gather", key, width)
                bins = _bins_of_entries(entries, key, self.keys)
            else:
                width = max(width - BIN_BITS, 0)
                numbers = yield from self._ask("histogram", key, width)
                # The last histogram reaches beyond the bin.
                finer = _bins_of(numbers[2:], key, width, self.keys)
                bins = [bin for bin in finer if bin.key < end]
            if sum(bin.sums.entries for bin in bins) != inside.entries:
                raise ValueError(
                    "the parts say one thing now and another thing later: they are read several "
                    "times, and must not change (or be drawn at random) in between"
                )

    # ---- what comes of it: results of unit norm, brought to the norm ----

    def _line(self, pivot: float, mean: Fraction, base: Fraction, beta: Fraction) -> Formula:
        """Return base + (x - mean)/beta."""
        if not self.norm:
            return Formula()
        exponent = _exponent(beta)
        before, after = 0.5 if exponent > 1000 else 1.0, 1 / _power(exponent)
        power = _power(_exponent(self.norm))
        frame, fraction = Fraction(before) * Fraction(after), self.norm / Fraction(power)
        reference = float(mean)
        return Formula(
            pivot,
            reference,
            before,
            after,
            float((mean - Fraction(reference)) * frame),
            float(fraction / (beta * frame)),
            float(base * fraction),
            power,
            shift=_float(mean - beta * base),
            scale=self._scale(beta),
        )

    def _scale(self, beta: Fraction) -> float:
        # 0 would say that there is none.
        return max(_float(beta / self.norm), 5e-324)

    def _direction(self, positive: ExactSums, count: int) -> Solution:
        """Bring a vector that is sparse enough to norm, and leave it at that."""
        unit = self.keys.unit
        l1, l2 = positive.first * unit, _root(positive.second) * unit
        active = Active.L2
        if self.rule == "nearest":
            self.norm = l2
        elif self.l1_given:
            active = Active.L1_DIRECTION
            self.norm *= self.ratio * l2 / l1
        gain, scale = self.norm / l2, self._scale(l2)
        power = _power(_exponent(gain))
        gain /= Fraction(power)
        formula = Formula(0.0, gain=float(gain), power=power, shift=0.0, scale=scale)
        self.ratio = l1 / l2
        return Solution(formula, count, active=active)

    def _one_hot(self, bins: list[Bin], width: int) -> Steps:
        """Keep the largest entry alone: the nearest result, if no entry is positive."""
        inside, top = yield from self._support(bins, width, Fraction(1))
        _, place = yield from self._neighbours(top)
        if self.rule == "nearest":
            self.norm = Fraction(0)
        elif self.l1_given:
            self.norm *= self.ratio
        self.ratio = Fraction(1)
        active = Active.L1_DIRECTION if self.l1_given else Active.L2
        formula = Formula(self.keys.number(top - 1), first=_float(self.norm))
        return Solution(formula, 1, inside.entries == 1, active, place)

    def _constant(self, total: ExactSums, zeros: int) -> Solution:
        """Make all entries alike: sparseness 0."""
        n = self.plan.n
        if self.rule == "nearest":
            self.norm = max(self.ratio * total.first * self.keys.unit / n, Fraction(0))
        formula = Formula(base=_float(self.norm / Fraction(math.sqrt(n))))
        return Solution(formula, n, self.keys.nonnegative or not zeros)

    def _tied(self, m: int, top: int) -> Steps:
        """Give everything to the entries at the maximum, which are at least K."""
        highest = self.keys.value(top) * self.keys.unit
        if self.rule == "nearest":
            self.norm = max(self.ratio * highest, Fraction(0))
        below, place = yield from self._neighbours(top)
        if self.goal.excess(m) == 0:
            # Alpha is the next smaller entry.
            distance = highest - self.keys.value(below) * self.keys.unit
            line = self._line(
                self.keys.number(top - 1), highest, self.ratio / m, distance * m / self.ratio
            )
            return Solution(line._replace(gain=0.0), m)
        first, others, single = tied_values(np.float64(m), self.goal)
        first, others = (_float(Fraction(float(value)) * self.norm) for value in (first, others))
        formula = Formula(self.keys.number(top - 1), base=others, first=first)
        return Solution(formula, 1 if single else m, False, first=place)

    def _interior(self, inside: ExactSums, least: int, zeros: int) -> Steps:
        """Apply the closed form to a support; `zeros` are those that nothing is below, if any."""
        d, unit = inside.entries, self.keys.unit
        mean, spread = Fraction(inside.first, d) * unit, inside.spread * unit**2
        deviation = Fraction(2) ** (_exponent(spread / d) // 2)
        support = Support(None, d, 0.0, float(spread / deviation**2))
        beta = Fraction(float(support.scale(self.goal))) * deviation
        base, unique = self.ratio / d, True
        if self.rule == "nearest":
            self.norm = max(self.ratio * mean + spread / beta, Fraction(0))
        whole = d == self.plan.n
        formula = self._line(-math.inf if whole else self.keys.number(least - 1), mean, base, beta)
        if zeros and whole:
            top, _ = yield from self._neighbours((1 << 63) - 1)
            highest = base + (self.keys.value(top) * unit - mean) / beta
            if is_noise(float(base - mean / beta), float(highest), self.goal, self.noise):
                formula, d = formula._replace(pivot=0.0, shift=0.0), d - zeros
            else:
                unique = self.keys.nonnegative
        return Solution(formula, d, unique)
