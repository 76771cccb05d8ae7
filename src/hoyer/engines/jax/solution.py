"""What follows from the support of a vector in parts: the line that its entries are put on."""

import math
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ...plan import Plan
from ...projection import Active
from ..arrays.closed_form import Goal, Noise, is_noise, tied_values
from ..arrays.search import either
from .histogram import Bins, Keys
from .integers import as_float, power_of_two, scaled
from .search import Form, Found, Search, Sums, exact_k, l1_in_units

_ROOT = 46
"""About how many bits the fraction of a root has before the point."""


class Number(NamedTuple):
    """A norm or beta: fraction * 2**exponent, since it need be no float."""

    fraction: Any
    exponent: Any

    @property
    def value(self) -> Any:
        """The number as a float."""
        return scaled(self.fraction, self.exponent)

    @staticmethod
    def root(limbs: Any, unit: Any) -> "Number":
        """Return the square root of a number of limbs, in units of 4**unit."""
        fraction, exponent = as_float(limbs)
        # Fractions are far from the ends of the range; an even exponent has a half.
        odd = exponent & 1
        return Number(jnp.sqrt(fraction * (1.0 + odd)), (exponent - odd) // 2 + unit)


class Line(NamedTuple):
    """What entries whose keys are above the pivot get; all others get 0.

    It is (base + ((x - reference) - rest) * gain) * 2**power, clipped at 0, x in units of
    2**exponent. The first of tied entries, at `place`, has a base of its own.
    """

    pivot: Any
    exponent: Any
    reference: Any
    rest: Any
    gain: Any
    base: Any
    first: Any
    place: Any
    power: Any


class Solution(NamedTuple):
    """A line, and the fields of a record."""

    line: Line
    shift: Any
    scale: Any
    support_size: Any
    unique: Any
    l1: Any
    l2: Any
    active: Any
    empty: Any
    """Whether the norm is 0."""
    same: Any = False
    """Whether entries that are not negative, or their sizes, come back as they are."""


class Seen(NamedTuple):
    """What is to be known of a vector, or of a part of it, beside histograms."""

    top: Any
    """The key of the largest entry."""
    bottom: Any
    """The key of the smallest one."""
    below: Any
    """The next smaller key than the top."""
    place: Any
    """Where the first of the largest entries is."""
    ties: Any
    """How many there are."""
    zeros: Any
    bad: Any
    """How many entries are not finite."""


class Asked(NamedTuple):
    """A plan in the terms of one vector."""

    plan: Plan
    goal: Goal
    l2: Any
    keys: Keys
    noise: Noise


def form_of(plan: Plan, goal: Goal, l2: Any) -> Form:
    """Return what decides whether alpha is below a pivot."""
    if plan.rule == "free":
        return Form(l1=goal.ratio * l2)
    return Form(exact_k(goal), goal.ratio * l2) if plan.at_most else Form(exact_k(goal))


def solution_of(search: Search, support: Found, bins: Bins, seen: Seen, asked: Asked) -> Solution:
    """Choose between the ends of the range, ties at the maximum, and what the search has found.

    `bins` are those of the first histogram.
    """
    plan, goal, keys = asked.plan, asked.goal, asked.keys
    cases = _Cases(search, bins, seen, asked)
    if plan.at_most:
        found = cases.within_bounds(support)
    elif plan.rule == "free":
        found = cases.one_norm(support)
    else:
        excess = goal.excess(seen.ties.astype(jnp.float64))
        found = cases.interior(support)
        found = either(excess == 0, cases.as_many_ties_as_fit(), found, goal.xp)
        found = either(excess > 0, cases.more_ties_than_fit(), found, goal.xp)
        found = either(goal.slack <= 0, cases.constant(), found, goal.xp)
    if plan.only_increase:
        found = cases.only_increased(found)
    nothing = _nothing(keys)._replace(active=found.active)
    chosen: Solution = either(found.empty, nothing, found, goal.xp)
    return chosen


def _nothing(keys: Keys) -> Solution:
    """Make all entries 0."""
    none, zero = jnp.float64(math.nan), jnp.float64(0.0)
    line, yes = _even(keys.not_finite, zero), jnp.bool_(True)
    return Solution(line, none, zero, zero, yes, zero, zero, zero, yes, jnp.bool_(False))


def _even(pivot: Any, base: Any, first: Any = None, place: Any = -1) -> Line:
    """Give the same to all entries above a pivot, but for the first of them."""
    zero = jnp.float64(0.0)
    return Line(
        jnp.int64(pivot),
        jnp.int64(0),
        zero,
        zero,
        zero,
        base,
        zero if first is None else first,
        jnp.int64(place),
        jnp.int64(0),
    )


class _Cases:
    """The results that there may be, each of which is computed."""

    def __init__(self, search: Search, bins: Bins, seen: Seen, asked: Asked) -> None:
        self.search, self.bins, self.seen = search, bins, seen
        self.plan, self.goal, self.l2, self.keys, self.noise = asked

    @cached_property
    def _total(self) -> tuple[Sums, Any]:
        """The sums of all entries, and the exponent of their units."""
        return self.search.sums(self.bins, self.seen.bottom)

    @cached_property
    def _positive(self) -> tuple[Sums, Any]:
        """Those of the entries that are not negative."""
        return self.search.sums(self.bins, jnp.int64(0))

    @cached_property
    def _own(self) -> Number:
        """The norm of x."""
        total, unit = self._total
        return Number.root(total.second, unit)

    def _norm(self, nearest: Number) -> Number:
        """Return the norm of results; that of the nearest vector is given."""
        if self.plan.rule == "fixed":
            return Number(self.l2, jnp.int64(0))
        if self.plan.rule == "keep":
            return self._own
        return Number(jnp.clip(nearest.fraction, 0, None), nearest.exponent)

    def _told(self, line: Line, norm: Number, **fields: Any) -> Solution:
        """Return a solution at a norm, of which a line of unit norm is given."""
        fraction, line = norm.fraction, line._replace(power=norm.exponent)
        line = line._replace(
            gain=line.gain * fraction, base=line.base * fraction, first=line.first * fraction
        )
        zero = jnp.float64(0.0)
        given = {"shift": zero + math.nan, "scale": zero, "active": zero, **fields}
        given["support_size"] = jnp.asarray(given["support_size"], jnp.float64)
        given["unique"] = jnp.asarray(given["unique"], bool)
        given["same"] = jnp.bool_(False)
        # The norm as a float may be one that processors make zero of.
        given["empty"] = fraction == 0
        l2 = norm.value
        return Solution(line, l1=given.pop("l1", self.goal.ratio * l2), l2=l2, **given)

    def _number(self, key: Any) -> Number:
        m, exponent = self.keys.decoded(key)
        return Number(m.astype(jnp.float64), exponent)

    # ---- between the ends ----

    def interior(self, found: Found) -> Solution:
        """Apply the closed form to a support."""
        goal, keys, seen = self.goal, self.keys, self.seen
        d = jnp.maximum(found.sums.count, 1).astype(jnp.float64)
        root = Number.root(found.sums.spread_times_count(), found.unit)
        # In units of 2**e the deviation is about 1.
        e = root.exponent + _ROOT
        spread = root.fraction * 2.0**-_ROOT
        excess = goal.excess(d)
        beta = spread / jnp.sqrt(jnp.where(excess > 0, excess, 1.0))
        first, exponent = as_float(found.sums.first)
        mean = scaled(first / d, exponent + found.unit - e)
        # What is lost there, as the limbs have it.
        lost = found.sums.deviation(mean, found.unit - e)
        rest, exponent = as_float(lost)
        rest = scaled(rest / d, exponent + found.unit - e)
        base = goal.ratio / d
        line = Line(found.pivot, e, mean, rest, 1 / beta, base, base, jnp.int64(-1), jnp.int64(0))
        norm = self._norm(Number(goal.ratio * mean + spread * spread / d / beta, e))
        whole = found.sums.count == goal.n
        shift = scaled(mean + (rest - beta * base), e)
        revived = whole & (seen.bottom == 0)
        top = self._number(seen.top)
        highest = base + (scaled(top.fraction, top.exponent - e) - mean - rest) / beta
        bare = revived & is_noise(base - (mean + rest) / beta, highest, goal, self.noise)
        line = line._replace(pivot=jnp.where(bare, 0, line.pivot))
        return self._told(
            line,
            norm,
            shift=jnp.where(bare, 0.0, shift),
            scale=self._scale(Number(beta, e), norm),
            support_size=jnp.where(bare, d - seen.zeros, d),
            unique=bare | ~revived | keys.nonnegative,
        )

    @staticmethod
    def _scale(beta: Number, norm: Number) -> Any:
        """Return beta at the norm; 0 would say that there is none."""
        there = norm.fraction > 0
        quotient = beta.fraction / jnp.where(there, norm.fraction, 1.0)
        return jnp.maximum(scaled(quotient, beta.exponent - norm.exponent), 2.0**-1022)

    # ---- ends ----

    def as_many_ties_as_fit(self) -> Solution:
        """Let K largest entries share l1; alpha is the next smaller entry."""
        goal, seen = self.goal, self.seen
        m = seen.ties.astype(jnp.float64)
        top, below = self._number(seen.top), self._number(seen.below)
        e = jnp.maximum(top.exponent, below.exponent)
        sizes = [scaled(one.fraction, one.exponent - e) for one in (top, below)]
        beta = Number((sizes[0] - sizes[1]) * m / goal.ratio, e)
        norm = self._norm(Number(goal.ratio * top.fraction, top.exponent))
        return self._told(
            _even(seen.top - 1, goal.ratio / m),
            norm,
            shift=below.value,
            scale=self._scale(beta, norm),
            support_size=m,
            unique=True,
        )

    def more_ties_than_fit(self) -> Solution:
        """Give everything to the largest entries, of which the first gets more."""
        goal, seen = self.goal, self.seen
        m = seen.ties.astype(jnp.float64)
        first, others, single = tied_values(m, goal)
        top = self._number(seen.top)
        norm = self._norm(Number(goal.ratio * top.fraction, top.exponent))
        line = _even(seen.top - 1, others, first, seen.place)
        return self._told(line, norm, support_size=jnp.where(single, 1.0, m), unique=False)

    def constant(self) -> Solution:
        """Make all entries alike: sparseness 0."""
        goal, keys, seen = self.goal, self.keys, self.seen
        n = jnp.float64(goal.n)
        inner = Number(n, jnp.int64(0))
        if self.plan.rule == "nearest":
            total, unit = self._total
            fraction, exponent = as_float(total.first)
            inner = Number(goal.ratio * fraction / n, exponent + unit)
        norm = self._norm(inner)
        unique = keys.nonnegative or (seen.zeros == 0)
        line = _even(keys.below, 1 / jnp.sqrt(n))
        return self._told(line, norm, support_size=n, unique=unique)

    # ---- only_increase ----

    def only_increased(self, found: Solution) -> Solution:
        """Let a vector that is sparse enough keep its direction, brought to norm."""
        seen, goal = self.seen, self.goal
        found = either(self._sparse_enough, self._direction(), found, goal.xp)
        if not self.keys.nonnegative:
            return found
        none = (seen.top <= 0) & (seen.zeros < goal.n)
        none = none & ~((seen.top == 0) & (seen.bottom == 0))
        chosen: Solution = either(none, self._one_hot(), found, goal.xp)
        return chosen

    @property
    def _sparse_enough(self) -> Any:
        search, (positive, unit) = self.search, self._positive
        balance = positive.balance(search.value(jnp.int64(0), unit), search.form.k)
        return (self.seen.top > 0) & (balance <= 0)

    def _direction(self) -> Solution:
        goal, plan, (positive, unit) = self.goal, self.plan, self._positive
        l2 = Number.root(positive.second, unit)
        fraction, exponent = as_float(positive.first)
        l1 = Number(fraction, exponent + unit)
        ratio = scaled(l1.fraction / l2.fraction, l1.exponent - l2.exponent)
        norm = self._norm(l2)
        active = float(Active.L2)
        if plan.l1_given:
            norm = Number(norm.fraction * goal.ratio / ratio, norm.exponent)
            active = float(Active.L1_DIRECTION)
        # A quotient that is 1 leaves all bits as they are.
        line = _even(0, jnp.float64(0.0))
        line = line._replace(exponent=l2.exponent, gain=1.0 / l2.fraction)
        count = positive.count - self.seen.zeros
        told = self._told(
            line,
            norm,
            shift=jnp.float64(0.0),
            scale=self._scale(l2, norm),
            support_size=count,
            unique=True,
            active=jnp.float64(active),
            l1=norm.value * ratio,
        )
        gain = norm.fraction / l2.fraction
        return told._replace(line=told.line._replace(gain=gain))

    def _one_hot(self) -> Solution:
        """Keep the largest entry alone: the nearest result, if no entry is positive."""
        goal, plan, seen = self.goal, self.plan, self.seen
        norm = self._norm(Number(jnp.float64(0.0), jnp.int64(0)))
        if plan.l1_given:
            norm = Number(norm.fraction * goal.ratio, norm.exponent)
        active = float(Active.L1_DIRECTION if plan.l1_given else Active.L2)
        line = _even(seen.top - 1, jnp.float64(0.0), jnp.float64(1.0), seen.place)
        return self._told(
            line,
            norm,
            support_size=1.0,
            unique=seen.ties == 1,
            active=jnp.float64(active),
            l1=norm.value,
        )

    # ---- l1 alone, and upper bounds ----

    @cached_property
    def _l1(self) -> Number:
        """The L1 norm that is asked for, as its bits have it."""
        bits = lax.bitcast_convert_type(self.goal.ratio * self.l2, jnp.int64)
        m, exponent = Keys(64, nonnegative=True).decoded(bits)
        return Number(m.astype(jnp.float64), exponent)

    def one_norm(self, found: Found) -> Solution:
        """Move a support down or up until it has the L1 norm."""
        keys, seen, sums, l1 = self.keys, self.seen, found.sums, self._l1
        zeros = (sums.count == self.goal.n) & (seen.bottom == 0)
        bare = zeros & (seen.top > 0) & self._lacks_nothing(sums, found.unit)
        # Zeros that stay are in no support, and add nothing to its sum.
        sums = sums._replace(count=jnp.where(bare, sums.count - seen.zeros, sums.count))
        d = jnp.maximum(sums.count, 1).astype(jnp.float64)
        least = jnp.maximum(found.pivot, seen.bottom)
        e = jnp.maximum(*(keys.decoded(key)[1] for key in (seen.top, least)))
        first, exponent = as_float(sums.first)
        mean = scaled(first / d, exponent + found.unit - e)
        rest, exponent = as_float(sums.deviation(mean, found.unit - e))
        rest = scaled(rest / d, exponent + found.unit - e)
        base, zero = l1.fraction / d, jnp.float64(0.0)
        gain = power_of_two(e - l1.exponent)
        pivot = jnp.where(bare, 0, found.pivot)
        line = Line(pivot, e, mean, rest, gain, base, zero, jnp.int64(-1), l1.exponent)
        root = Number.root(sums.spread_times_count(), found.unit)
        spread = scaled(root.fraction / jnp.sqrt(d), root.exponent - l1.exponent)
        l2 = Number(jnp.sqrt(jnp.square(l1.fraction) / d + jnp.square(spread)), l1.exponent)
        shift = scaled(mean + (rest - scaled(base, l1.exponent - e)), e)
        return Solution(
            line,
            jnp.where(bare, 0.0, shift),
            jnp.float64(1.0),
            d,
            bare | ~zeros | keys.nonnegative | self.plan.at_most,
            self.goal.ratio * self.l2,
            l2.value,
            jnp.float64(Active.L1),
            l1.fraction == 0,
            jnp.bool_(False),
        )

    def _lacks_nothing(self, sums: Sums, unit: Any) -> Any:
        """Whether a vector has its L1 norm up to rounding, so that zeros stay zero."""
        l1 = l1_in_units(self.goal.ratio * self.l2, unit)
        (lacking, exponent), (norm, other) = as_float(sums.lacking(l1)), as_float(l1)
        return scaled(lacking, exponent - other) <= self.noise.norms * norm

    def within_bounds(self, found: Found) -> Solution:
        """Return what is nearest among vectors whose norms are at most these."""
        goal, seen, (positive, unit) = self.goal, self.seen, self._positive
        l1 = positive.surplus(
            self.search.value(jnp.int64(0), unit), l1_in_units(goal.ratio * self.l2, unit)
        )
        within, result = l1 <= 0, self.one_norm(found)
        nothing = float(Active.L1)
        if self.plan.rule == "fixed":
            both = self.interior(found)
            d = found.sums.count.astype(jnp.float64)
            fits = (goal.excess(seen.ties.astype(jnp.float64)) < 0) & (goal.excess(d) > 0)
            result = either(fits & (both.scale >= 1), both, result, goal.xp)
            own = Number.root(positive.second, unit)
            within = within & (own.value <= self.l2)
            result = either(self._sparse_enough, self._direction(), result, goal.xp)
            nothing = float(Active.BOTH)
        found_none = goal.ratio == 0
        result = result._replace(
            empty=result.empty | found_none,
            active=jnp.where(found_none, nothing, result.active),
        )
        chosen: Solution = either(within & ~found_none, self._as_it_is(), result, goal.xp)
        return chosen

    def _as_it_is(self) -> Solution:
        """Leave a vector within the bounds alone."""
        positive, unit = self._positive
        first, exponent = as_float(positive.first)
        zero, one = jnp.float64(0.0), jnp.float64(1.0)
        return Solution(
            _even(0, zero),
            zero,
            one,
            (positive.count - self.seen.zeros).astype(jnp.float64),
            jnp.bool_(True),
            scaled(first, exponent + unit),
            Number.root(positive.second, unit).value,
            jnp.float64(Active.NONE),
            jnp.bool_(False),
            jnp.bool_(True),
        )
