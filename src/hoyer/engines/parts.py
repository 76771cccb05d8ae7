"""A vector that lies in parts (chunks, shards, ranks): the search for its projection.

The search is a generator. It yields a `Request`, what it wants to know of all parts; is sent the
merged answer, integers that do not depend on how the vector is divided; and returns a `Solution`,
by which every part is written on its own. So whoever drives it decides where parts lie and how
answers meet: a loop, a tree, an all-reduce.

Floats are ordered like integers, their *keys*: the bits of their size, with their sign. The first
request asks for a histogram of all keys: per bin the count of entries and the first two moments of
their keys' low bits. These tell exactly whether alpha lies above or below the start of each bin, so
the next request divides one bin further, or gathers the few entries in it. One more is needed where
more entries share the maximum than may, to find the first of them.

An engine has the functions ``histogram``, ``gather``, ``neighbours`` and ``write``, all of which
take one part, an array of any shape; see `hoyer.engines.arrays.histogram` for what they return.
`hoyer.engines.core` has them for NumPy arrays and CPU tensors.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from ..options import Options
from ..plan import Plan, masked_plan
from ..projection import Active
from .arrays.closed_form import Goal, Noise, is_noise, noise_of, tied_values
from .arrays.histogram import MOST_ADDED, Grid, carried
from .arrays.namespace import Namespace, namespace
from .arrays.part_products import PartProducts
from .arrays.products import NO_CHANGE, Changes, reverse_changes
from .arrays.project import check_solver
from .arrays.targets import check_fits
from .exact import (
    NOTHING,
    Bin,
    Bins,
    ExactSums,
    FinerBins,
    Integers,
    Keys,
    as_float,
    bins_of,
    exponent_of,
    power_of,
    root_of,
    root_of_fraction,
    total_of,
)
from .guess import Floats, finer_grid

MOST_GATHERED = 1 << 15
"""Vectors of so many entries are better brought to one place, and projected there as a whole."""
GATHERED_AT_ONCE = 12 << 10
"""So many entries take as much memory as a histogram: about 100 kB."""


class Place(NamedTuple):
    """Where a part lies in its vector, whose entries count in C order."""

    starts: tuple[int, ...]
    """The part's first index along each axis of the vector."""
    shape: tuple[int, ...]
    """That of the whole vector. Parts of a vector with one axis may have any shape."""

    def from_part(self, number: Any, shape: Sequence[int]) -> Any:
        """Return which entry of the vector is entry `number` of a part with this shape."""
        if len(self.shape) == 1:
            return number + self.starts[0]
        whole, stride = 0, 1
        for start, size, own in zip(*map(reversed, (self.starts, self.shape, shape)), strict=True):
            # A part without entries is asked as well.
            whole = whole + (number % max(own, 1) + start) * stride
            number = number // max(own, 1)
            stride *= size
        return whole

    def in_part(self, number: int, shape: Sequence[int]) -> int:
        """Return where in a part with this shape entry `number` of the vector is, or -1."""
        own = (math.prod(shape),) if len(self.shape) == 1 else tuple(shape)
        found, stride = 0, 1
        for start, size, length in zip(*map(reversed, (self.starts, self.shape, own)), strict=True):
            at = number % size - start
            if number < 0 or not 0 <= at < length:
                return -1
            found += at * stride
            stride *= length
            number //= size
        return found


class Request(NamedTuple):
    """What every part is asked for: an engine's function of this name has the answer.

    (To locate is to gather keys with their places.) The entries are those of abs(x), or with
    `nonnegative` those of x.
    """

    what: Literal["histogram", "gather", "locate", "neighbours"]
    grid: Grid
    """Bins; the keys to be gathered; or the first is the one whose neighbours are wanted."""
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
    """How parts are written, and the other fields of `hoyer.projection.RECORD_FIELDS`."""

    formula: Formula
    support_size: int = 0
    unique: bool = True
    active: int = 0
    first: int = -1
    """If not -1, where in the vector the first of tied entries is, which is not as the others."""
    evaluations: int = 0
    """The number of requests."""
    l1: float = math.nan
    l2: float = math.nan
    nonnegative: bool = False
    unit: float = 1.0
    """A power of two near the L2 norm, which need not be a float itself."""
    sizes: tuple[float, float] = (math.nan, math.nan)
    """Both norms in this unit."""
    spread: float = 0.0
    """The sum of squares of the result's sizes about their mean, over the squared L2 norm."""

    @property
    def record(self) -> tuple[float, ...]:
        """What `hoyer.projection.RECORD_FIELDS` names."""
        formula = self.formula
        return (
            formula.shift,
            formula.scale,
            float(self.support_size),
            float(self.evaluations),
            float(self.unique),
            self.l1,
            self.l2,
            float(self.active),
        )


Steps: TypeAlias = Generator[Request, Integers, Solution]


def length(where: Any) -> int:
    """Return how many entries of a part count; with a mask this is asked of all parts first."""
    return int(where.sum())


def plan_with_mask(n: int, count: int, options: Options) -> Plan:
    """Return the plan for a vector of n entries of which a mask leaves `count`."""
    return masked_plan(n, options, True, np.array([count]), (1,))


def answer(engine: Any, x: Any, request: Request, place: Place, where: Any = None) -> Any:
    """Return what one part says to a request: integers, in an array of its library.

    Parameters
    ----------
    engine
        See above.
    x : array
        The part.
    request : Request
        What the search yields.
    place : Place
        Where in the vector the part lies.
    where : array of bool, optional
        Which entries of the part count, in its shape.
    """
    what, grid, nonnegative = request
    if what == "histogram":
        return engine.histogram(x, grid, nonnegative, where)
    if what == "neighbours":
        return engine.neighbours(x, grid.lower, nonnegative, where, place)
    return engine.gather(x, grid, nonnegative, where, place if what == "locate" else None)


def merged(request: Request, answers: Iterable[Integers]) -> Integers:
    """Return what some parts say together, as if they were one: in any order, by any tree."""
    if request.what in ("gather", "locate"):
        return np.concatenate(list(answers))
    if request.what == "neighbours":
        return reduce(np.maximum, answers)
    numbers: Any = 0
    for count, own in enumerate(answers, 1):
        numbers = numbers + own
        if count % MOST_ADDED == 0:
            numbers = _carried(request.grid, numbers)
    return _carried(request.grid, numbers)


def _carried(grid: Grid, numbers: Integers) -> Integers:
    """Return a sum of histograms with limbs that as many again can be added to."""
    rows = carried(numbers[2:].reshape(-1, grid.bins), grid.width, np.zeros(grid.bins, np.int64))
    return np.concatenate([numbers[:2], *rows])


def write(engine: Any, x: Any, solution: Solution, place: Place, where: Any = None) -> Any:
    """Return one part's results, in its type and shape; 0 where a mask is False."""
    first = place.in_part(solution.first, x.shape)
    return engine.write(x, solution.formula, solution.nonnegative, first, where)


def search(plan: Plan, dtype: Any, xp: Namespace, most_gathered: int = GATHERED_AT_ONCE) -> Steps:
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
    *,
    places: Sequence[Place] | None = None,
    masks: Sequence[Any] | None = None,
) -> tuple[list[Any], Solution]:
    """Project a vector given as a list of arrays: the simplest driver.

    They follow one after the other, unless `places` says where each lies. `to_host` makes NumPy
    arrays of the engine's answers.
    """
    if not parts:
        raise ValueError("there are no parts: a vector needs at least one")
    if places is None:
        ends = list(accumulate((math.prod(part.shape) for part in parts), initial=0))
        places = [Place((start,), (ends[-1],)) for start in ends[:-1]]
    own = list(zip(parts, places, masks or [None] * len(parts), strict=True))
    numbers: Any = None
    while True:
        try:
            request = search.send(numbers)
        except StopIteration as stop:
            solution: Solution = stop.value
            break
        numbers = merged(
            request, (to_host(answer(engine, x, request, at, where)) for x, at, where in own)
        )
    return [write(engine, x, solution, at, where) for x, at, where in own], solution


# ---- derivatives ----

BLOCK = 1 << 16
"""So many entries are multiplied at a time, where that is no launch of kernels."""


class Result(NamedTuple):
    """One part of a result, and what its derivatives need."""

    engine: Any
    p: Any
    """The part, as `write` returned it."""
    solution: Solution
    plan: Plan
    x: Any = None
    """The part of what was projected, where `Plan.needs_x`; elsewhere it does no harm."""
    where: Any = None

    def product_sums(self, y: Any, *, reverse: bool, by_target: bool = False) -> Any:
        """Return this part's share of the sums that a product takes: a few doubles, to be added.

        Parameters
        ----------
        y : array
            Shaped like the part.
        reverse : bool
            Whether the transposed Jacobian is to be multiplied (for gradients).
        by_target : bool
            Whether `target_products` is to be called as well.
        """
        own, y, _ = self._packed(y)
        shares = [
            block.heard(given, reverse=reverse, by_target=by_target)
            for block, given in own._blocks(y)
        ]
        return reduce(lambda a, b: a + b, shares)

    def product(self, y: Any, sums: Any, *, reverse: bool, change: Changes = NO_CHANGE) -> Any:
        """Return this part of the Jacobian, or its transpose, times y.

        `sums` are those of all parts; forwards a change of the target may be added.
        """
        own, y, inside = self._packed(y)
        pieces = [
            block.finished(given, sums, reverse=reverse, by_target=False, change=change)[0]
            for block, given in own._blocks(y)
        ]
        found = own._joined(pieces)
        if inside is None:
            return found
        library = self.engine.namespace_of(self.p).library
        result = library.zeros_like(inside, dtype=found.dtype)
        result[inside] = found
        return library.reshape(result, self.p.shape)

    def target_products(self, sums: Any) -> tuple[Any, Any, Any]:
        """Return the gradients by sparseness, l1 and l2 (None: not given), from all sums.

        They are those of the whole vector, the same for every part.
        """
        xp, plan = self.engine.namespace_of(self.p), self.plan
        flat = xp.library.reshape(self.p, (-1,))[:0]
        x, where = (None if one is None else flat for one in (self.x, self.where))
        where = None if where is None else xp.astype(where, xp.bool)
        block = PartProducts(flat, self.solution, x, where, plan, xp)
        _, change = block.finished(flat, sums, reverse=True, by_target=True)
        n = plan.n if plan.lengths is None else int(np.asarray(plan.lengths).item())
        return reverse_changes(n, plan.options[:3], change, xp)

    def target_gradient(self) -> tuple[Any, Any]:
        """Return this part of the derivatives by l1 and by l2."""
        pairs = [block.by_norms() for block, _ in self._blocks(None)]
        by_l1, by_l2 = (self._joined(list(pieces)) for pieces in zip(*pairs, strict=True))
        return by_l1, by_l2

    def sparseness_gradient(self) -> Any:
        """Return this part of the derivative by the sparseness."""
        return self._joined([block.by_sparseness() for block, _ in self._blocks(None)])

    def _packed(self, y: Any) -> "tuple[Result, Any, Any]":
        """Return the entries of the support alone, and where these are, where no others matter."""
        moves = self.plan.rule == "keep" or self.solution.active not in (Active.BOTH, Active.L1)
        if moves or not on_host(self.p):
            return self, y, None
        reshape = self.engine.namespace_of(self.p).library.reshape
        p, x, y = (None if one is None else reshape(one, (-1,)) for one in (self.p, self.x, y))
        inside = p != 0
        p, x, y = (None if one is None else one[inside] for one in (p, x, y))
        return self._replace(p=p, x=x, where=None), y, inside

    def _blocks(self, y: Any) -> Iterator[tuple[PartProducts, Any]]:
        xp = self.engine.namespace_of(self.p)
        p = xp.library.reshape(self.p, (-1,))
        x, where, y = (
            None if one is None else xp.library.reshape(one, (-1,))
            for one in (self.x, self.where, y)
        )
        size = max(p.shape[0], 1)
        step = min(BLOCK, size) if on_host(p) else size

        def cut(array: Any, begin: int) -> Any:
            return None if array is None else array[begin : begin + step]

        for begin in range(0, size, step):
            own, mask = cut(x, begin), cut(where, begin)
            block = PartProducts(cut(p, begin), self.solution, own, mask, self.plan, xp)
            yield block, cut(y, begin)

    def _joined(self, pieces: list[Any]) -> Any:
        xp = self.engine.namespace_of(self.p)
        return xp.library.reshape(xp.joined(*pieces), self.p.shape)


def on_host(array: Any) -> bool:
    """Whether to work on pieces of an array is no slower than on the whole."""
    device = getattr(array, "device", "cpu")
    return getattr(device, "type", str(device)) == "cpu"


# ---- the sets: what is asked of alpha ----


class Form(Protocol):
    """Where alpha lies, as exact sums tell."""

    def reaches(self, sums: ExactSums, pivot: int) -> bool:
        """Whether alpha is not below a pivot, above which these entries are, and no others."""

    def settled(self, sums: ExactSums, pivot: int) -> bool:
        """Whether it is not, where there are entries below the pivot; or whether these are tied."""

    def balances(self, l1: Floats, l2_squared: Floats, step: Fraction) -> list[Floats]:
        """Return what falls with the pivot, and is 0 at alpha, from roughly known norms.

        They are in units of `step`, those of max(x - pivot, 0). Of several the lowest alpha counts.
        """


class BothNorms(NamedTuple):
    """Alpha where l1**2/l2**2 of max(x - alpha, 0) is K."""

    k: Fraction

    def reaches(self, sums: ExactSums, pivot: int) -> bool:
        """Whether alpha is not below a pivot."""
        return sums.balance(pivot, self.k) >= 0

    def settled(self, sums: ExactSums, pivot: int) -> bool:
        """Whether it is not, or at least K entries share the maximum."""
        return sums.entries >= self.k and (not sums.spread or self.reaches(sums, pivot))

    def balances(self, l1: Floats, l2_squared: Floats, step: Fraction) -> list[Floats]:
        """Return what is 0 at alpha."""
        return [l1 * l1 - float(self.k) * l2_squared]


class OneNorm(NamedTuple):
    """Alpha where the sum of max(x - alpha, 0) is l1, in units."""

    l1: Fraction

    def reaches(self, sums: ExactSums, pivot: int) -> bool:
        """Whether alpha is not below a pivot."""
        return sums.first - sums.entries * pivot >= self.l1

    def settled(self, sums: ExactSums, pivot: int) -> bool:
        """Whether it is not."""
        return self.reaches(sums, pivot)

    def balances(self, l1: Floats, l2_squared: Floats, step: Fraction) -> list[Floats]:
        """Return what is 0 at alpha."""
        return [l1 - as_float(self.l1 / step)]


class Bounds(NamedTuple):
    """The lower one of both."""

    both: BothNorms
    one: OneNorm

    def reaches(self, sums: ExactSums, pivot: int) -> bool:
        """Whether alpha is not below a pivot."""
        return self.one.reaches(sums, pivot) and self.both.reaches(sums, pivot)

    def settled(self, sums: ExactSums, pivot: int) -> bool:
        """Whether neither is below a pivot."""
        return self.one.settled(sums, pivot) and self.both.settled(sums, pivot)

    def balances(self, l1: Floats, l2_squared: Floats, step: Fraction) -> list[Floats]:
        """Return those of both."""
        return [
            *self.both.balances(l1, l2_squared, step),
            *self.one.balances(l1, l2_squared, step),
        ]


# ---- the search ----


class _Search:
    """The target of one vector, and what is known so far."""

    def __init__(self, plan: Plan, keys: Keys, noise: Noise, most_gathered: int) -> None:
        self.rule, self.l1_given = plan.rule, plan.l1_given
        ratio, slack, slack_low, l2 = (float(np.asarray(number).item()) for number in plan.target)
        self.plan, self.keys, self.noise, self.most_gathered = plan, keys, noise, most_gathered
        self.n = plan.n if plan.lengths is None else int(np.asarray(plan.lengths).item())
        self.goal = Goal(self.n, ratio, slack, slack_low, namespace(np))
        self.is_possible = not (math.isnan(ratio) or math.isnan(l2))
        self.is_constant = not slack > 0
        exact = (ratio, slack, slack_low, l2) if self.is_possible else (1.0, 0.0, 0.0, 1.0)
        self.ratio, high, low, self.norm = map(Fraction, exact)
        self.k = self.n - high - low
        self.requests = 0
        self.top = Bin(0, 1, NOTHING)
        self.located: dict[int, int] = {}

    def run(self) -> Steps:
        """Find the solution, and tell about it."""
        if not self.n:
            return Solution(Formula(math.inf), active=Active.NONE, l1=0.0, l2=0.0)
        found = yield from self._found()
        if not self.norm:
            found = found._replace(formula=Formula(math.inf), support_size=0, unique=True)
        if not math.isnan(found.formula.base):
            found = self._told(found)
        return found._replace(evaluations=self.requests, nonnegative=self.keys.nonnegative)

    def _told(self, found: Solution) -> Solution:
        """Return the same with both norms, and how much entries differ."""
        l1, l2 = self.ratio * self.norm, self.norm
        unit = Fraction(2) ** max(-1021, min(1021, exponent_of(l2))) if l2 else Fraction(1)
        spread = 0.0
        if found.active == Active.BOTH and found.support_size:
            d = float(found.support_size)
            spread = max(float(self.goal.excess(d)), 0.0) / d
        return found._replace(
            l1=as_float(l1),
            l2=as_float(l2),
            unit=float(unit),
            sizes=(float(l1 / unit), float(l2 / unit)),
            spread=spread,
        )

    def _found(self) -> Steps:
        n, grid = self.n, self.keys.first_grid
        numbers = yield from self._ask("histogram", grid)
        not_finite, zeros = (int(number) for number in numbers[:2])
        if not_finite and self.plan.options.check_finite:
            raise ValueError(
                f"x has NaN or infinity at {not_finite} of {n} entries; only finite vectors can be "
                "projected (check_finite=False returns NaN for such vectors)"
            )
        if not_finite or not self.is_possible:
            return Solution(Formula(base=math.nan))
        counts = numbers[2 : 2 + grid.bins].copy()
        counts[-grid.lower >> grid.width] -= zeros
        self.keys = self.keys.fitted(counts)
        bins = bins_of(numbers[2:], grid, self.keys)
        total = total_of(bins)
        if total.entries != n:
            raise ValueError(
                f"the parts have {total.entries} entries, and a vector of {n} is wanted"
            )
        self.top = bins[0]
        if self.plan.at_most:
            return (yield from self._bounded(bins, zeros))
        if self.rule == "free":
            return (yield from self._one_norm(bins, zeros))
        if self.rule == "keep":
            self.norm = root_of(total.second) * self.keys.unit
            if not self.norm:
                return Solution(Formula())
        if self.plan.only_increase:
            positive = total_of(bin for bin in bins if bin.key >= 0)
            count = positive.entries - zeros
            if count and positive.balance(0, self.k) <= 0:
                return self._direction(positive, count)
            if not count and zeros < n:
                return (yield from self._one_hot(bins))
        if self.is_constant:
            return self._constant(total, zeros)
        inside, least = yield from self._support(bins, BothNorms(self.k))
        if not inside.spread:
            return (yield from self._tied(inside.entries, least))
        lowest_is_zero = zeros > 0 and bins[-1].key >= 0
        return (yield from self._interior(inside, least, zeros if lowest_is_zero else 0))

    def _ask(self, what: Any, grid: Grid) -> Generator[Request, Integers, Integers]:
        self.requests += 1
        numbers = yield Request(what, grid, self.keys.nonnegative)
        return numbers

    def _neighbours(self, key: int) -> Generator[Request, Integers, tuple[int, int]]:
        """Return the next smaller key, and the place of the first entry with this one."""
        below, place = yield from self._ask("neighbours", Grid(key))
        return int(below), -int(place)

    def _gathered(self, bin: Bin, above: ExactSums) -> Generator[Request, Integers, Bins]:
        """Return the entries of a bin; of the largest ones also the places are learned."""
        grid = Grid(bin.key, bin.end - bin.key)
        if above.entries or 2 * bin.sums.entries > self.most_gathered:
            entries = yield from self._ask("gather", grid)
        else:
            found = yield from self._ask("locate", grid)
            entries, places = found[::2], found[1::2]
            # Of equal keys the first place comes last, and stays.
            order = np.lexsort((-places, entries))
            self.located = dict(zip(entries[order].tolist(), places[order].tolist(), strict=True))
        return FinerBins.of_entries(entries, bin.key, self.keys)

    def _support(
        self, first: list[Bin], form: Form
    ) -> Generator[Request, Integers, tuple[ExactSums, int]]:
        """Return the sums of the entries above alpha, and a key that only they reach.

        Where at least K entries share the maximum, it is those and their key.
        """
        beyond, least, bins = NOTHING, 0, Bins(first)

        def reaches(i: int) -> bool:
            """Whether alpha is not below the start of a bin."""
            return form.reaches(beyond.plus(bins.above(i + 1)), self.keys.value(bins[i].key))

        # Invariant: alpha lies in these bins, or between them; above are the entries `beyond`.
        while True:
            border = bisect_left(range(len(bins)), True, key=reaches)
            if border:
                least = bins[border - 1].key
            beyond = beyond.plus(bins.above(border))
            if border == len(bins) or bins[border].alike:
                return beyond, least
            bin = bins[border]
            if form.settled(beyond, self.keys.value(bin.end)):
                return beyond, least
            least = least or bin.end
            bins = yield from self._divided(bin, beyond, form)

    def _divided(
        self, bin: Bin, beyond: ExactSums, form: Form
    ) -> Generator[Request, Integers, Bins]:
        """Return finer bins for the entries of one."""
        count = bin.sums.entries
        if count == 2:
            return Bins(bin.apart(self.keys))
        if count <= self.most_gathered:
            bins = yield from self._gathered(bin, beyond)
        else:
            grid = finer_grid(bin, beyond, form, self.keys)
            numbers = yield from self._ask("histogram", grid)
            bins = FinerBins.of_histogram(numbers[2:], grid, self.keys)
        if bins.above(len(bins)).entries != count:
            raise ValueError(
                "the parts say one thing now and another thing later: they are read several "
                "times, and must not change (or be drawn at random) in between"
            )
        return bins

    # ---- what comes of it: results of unit norm, brought to the norm ----

    def _line(self, pivot: float, mean: Fraction, base: Fraction, beta: Fraction) -> Formula:
        """Return base + (x - mean)/beta."""
        if not self.norm:
            return Formula()
        exponent = exponent_of(beta)
        before, after = 0.5 if exponent > 1000 else 1.0, 1 / power_of(exponent)
        power = power_of(exponent_of(self.norm))
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
            shift=as_float(mean - beta * base),
            scale=self._scale(beta),
        )

    def _pivot(self, least: int, entries: int) -> float:
        """Return a number below a key that only the support reaches, of so many entries."""
        return -math.inf if entries == self.n else self.keys.number(least - 1)

    def _scale(self, beta: Fraction) -> float:
        # 0 would say that there is none.
        return max(as_float(beta / self.norm), 5e-324)

    def _direction(self, positive: ExactSums, count: int) -> Solution:
        """Bring a vector that is sparse enough to norm, and leave it at that."""
        unit = self.keys.unit
        l1, l2 = positive.first * unit, root_of(positive.second) * unit
        active = Active.L2
        if self.rule == "nearest":
            self.norm = l2
        elif self.l1_given:
            active = Active.L1_DIRECTION
            self.norm *= self.ratio * l2 / l1
        gain, scale = self.norm / l2, self._scale(l2)
        exponent = exponent_of(gain)
        # Neither may the product with the largest float overflow nor that with the least vanish.
        power = power_of(exponent + 2 if exponent < 0 else exponent)
        gain /= Fraction(power)
        formula = Formula(0.0, gain=float(gain), power=power, shift=0.0, scale=scale)
        self.ratio = l1 / l2
        return Solution(formula, count, active=active)

    def _one_hot(self, bins: list[Bin]) -> Steps:
        """Keep the largest entry alone: the nearest result, if no entry is positive."""
        inside, top = yield from self._support(bins, BothNorms(Fraction(1)))
        place = self.located.get(top)
        if place is None:
            _, place = yield from self._neighbours(top)
        if self.rule == "nearest":
            self.norm = Fraction(0)
        elif self.l1_given:
            self.norm *= self.ratio
        self.ratio = Fraction(1)
        active = Active.L1_DIRECTION if self.l1_given else Active.L2
        formula = Formula(self.keys.number(top - 1), first=as_float(self.norm))
        return Solution(formula, 1, inside.entries == 1, active, place)

    def _constant(self, total: ExactSums, zeros: int) -> Solution:
        """Make all entries alike: sparseness 0."""
        n = self.n
        if self.rule == "nearest":
            self.norm = max(self.ratio * total.first * self.keys.unit / n, Fraction(0))
        formula = Formula(base=as_float(self.norm / Fraction(math.sqrt(n))))
        return Solution(formula, n, self.keys.nonnegative or not zeros)

    def _tied(self, m: int, top: int) -> Steps:
        """Give everything to the entries at the maximum, which are at least K."""
        highest = self.keys.value(top) * self.keys.unit
        if self.rule == "nearest":
            self.norm = max(self.ratio * highest, Fraction(0))
        fit = self.goal.excess(m) == 0
        # Alpha is the next smaller entry if these are as many as fit.
        below = max((key for key in self.located if key < top), default=None)
        place = self.located.get(top, -1)
        if (below is None) if fit else (place < 0):
            below, place = yield from self._neighbours(top)
        if below is not None and fit:
            distance = highest - self.keys.value(below) * self.keys.unit
            line = self._line(
                self.keys.number(top - 1), highest, self.ratio / m, distance * m / self.ratio
            )
            return Solution(line._replace(gain=0.0), m)
        first, others, single = tied_values(np.float64(m), self.goal)
        first, others = (as_float(Fraction(float(value)) * self.norm) for value in (first, others))
        formula = Formula(self.keys.number(top - 1), base=others, first=first)
        return Solution(formula, 1 if single else m, False, first=place)

    def _beta(self, inside: ExactSums) -> Fraction:
        """Return beta of a support whose entries differ, for results of unit norm."""
        d = inside.entries
        return root_of_fraction(inside.spread * d / (d - self.k)) * self.keys.unit

    def _interior(self, inside: ExactSums, least: int, zeros: int) -> Steps:
        """Apply the closed form to a support; `zeros` are those that nothing is below, if any."""
        d, unit = inside.entries, self.keys.unit
        mean, beta = Fraction(inside.first, d) * unit, self._beta(inside)
        base, unique = self.ratio / d, True
        if self.rule == "nearest":
            # Both terms may nearly cancel.
            inner = root_of_fraction(self.k) * mean + inside.spread * unit**2 / beta
            self.norm = max(inner, Fraction(0))
        formula = self._line(self._pivot(least, d), mean, base, beta)
        if zeros and d == self.n:
            if (yield from self._are_noise(mean, base, beta)):
                formula, d = formula._replace(pivot=0.0, shift=0.0), d - zeros
            else:
                unique = self.keys.nonnegative
        return Solution(formula, d, unique)

    def _are_noise(
        self, mean: Fraction, base: Fraction, beta: Fraction
    ) -> Generator[Request, Integers, bool]:
        """Whether what zeros would receive is due to rounding; this depends on the largest entry.

        Mostly it is enough to know in which bin that is.
        """

        def judged(key: int) -> bool:
            highest = base + (self.keys.value(key) * self.keys.unit - mean) / beta
            return bool(
                is_noise(float(base - mean / beta), as_float(highest), self.goal, self.noise)
            )

        low, high = judged(self.top.key), judged(self.top.end - 1)
        if low == high:
            return low
        top, _ = yield from self._neighbours((1 << 63) - 1)
        return judged(top)

    # ---- l1 alone ----

    def _one_norm(self, bins: list[Bin], zeros: int) -> Steps:
        """Project onto the vectors with this L1 norm."""
        l1, unit = self.ratio, self.keys.unit
        inside, least = yield from self._support(bins, OneNorm(l1 / unit))
        found = self._with_l1(inside, least, l1)
        if inside.entries < self.n or not zeros or bins[-1].key < 0:
            return found
        # What zeros would receive, n times, is what the norm lacks.
        lacking = l1 - inside.first * unit
        if inside.first and lacking <= Fraction(self.noise.norms) * l1:
            formula = found.formula._replace(pivot=0.0, shift=0.0)
            return found._replace(formula=formula, support_size=inside.entries - zeros)
        return found._replace(unique=self.keys.nonnegative)

    def _with_l1(self, inside: ExactSums, least: int, l1: Fraction) -> Solution:
        """Subtract the same from all entries of a support."""
        d, unit = inside.entries, self.keys.unit
        mean, spread = Fraction(inside.first, d) * unit, inside.spread * unit**2
        self.norm = Fraction(1)
        formula = self._line(self._pivot(least, d), mean, l1 / d, Fraction(1))
        self.norm = root_of_fraction(l1 * l1 / d + spread)
        self.ratio = l1 / self.norm
        return Solution(formula, d, active=Active.L1)

    # ---- upper bounds ----

    def _bounded(self, bins: list[Bin], zeros: int) -> Steps:
        """Project onto the vectors whose norms are at most these; negative entries become 0."""
        unit, free = self.keys.unit, self.rule == "free"
        if not self.ratio:
            # Only 0 is within a bound of 0.
            self.norm = Fraction(0)
            return Solution(Formula(), active=Active.L1 if free else Active.BOTH)
        positive = total_of(bin for bin in bins if bin.key >= 0)
        bins = [bin for bin in bins if bin.key >= 0]
        l1 = Fraction(float(self.ratio * self.norm))
        size1, square = positive.first * unit, positive.second * unit**2
        count = positive.entries - zeros if bins else 0
        small = free or square <= self.norm**2
        if size1 <= l1 and small:
            self.norm = root_of(positive.second) * unit
            self.ratio = size1 / self.norm if self.norm else Fraction(0)
            formula = Formula(0.0, gain=1.0, shift=0.0, scale=1.0)
            return Solution(formula, count, active=Active.NONE)
        one = OneNorm(l1 / unit)
        if small:
            inside, least = yield from self._support(bins, one)
            return self._with_l1(inside, least, l1)
        if positive.balance(0, self.k) <= 0:
            return self._direction(positive, count)
        inside, least = yield from self._support(bins, Bounds(BothNorms(self.k), one))
        if inside.entries > self.k and inside.spread:
            beta = self._beta(inside)
            if beta >= self.norm:
                mean = Fraction(inside.first, inside.entries) * unit
                base = self.ratio / inside.entries
                line = self._line(self._pivot(least, inside.entries), mean, base, beta)
                return Solution(line, inside.entries)
        return self._with_l1(inside, least, l1)
