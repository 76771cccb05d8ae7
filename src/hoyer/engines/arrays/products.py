"""Algorithm 3 in plain array operations: products with the derivatives of a projection.

Everything is written in terms of the result p and the scale beta. Both are differentiable in turn,
so that automatic differentiation of these products gives derivatives of any order: the products
are functions of p and beta alone wherever the support does not change.

The result is seen as p = l2 p^(x, rho), rho = l1/l2 the ratio of norms. On the support, with d the
number of entries, q the deviations of their sizes from the mean and Q = <q, q>,

    dp    = (dx - mean(dx) - q <q, dx>/Q) / beta + l2 (1 - l1 q/Q)/d drho + p dlog(l2),
    dbeta = <q, dx>/Q + beta l1 l2/(d Q) drho - beta dlog(l2).

The norm may follow x: dlog(l2) is <x, dx>/<x, x> where it is kept, and <p, dx>/<p, p> +
(1 - beta)/rho drho where it is that of the nearest vector (the shift is l2 (1 - beta)/rho then).

Where fewer norms bind (`Active`) less is subtracted: dx - mean(dx) + dl1/d is left where l1 binds
alone, and dx where none does; beta is 1 then. Entries outside of a mask do not move.
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...plan import Plan
from ...projection import Active
from ...target import NEARLY
from .namespace import Namespace

# ---- derivatives of what is asked for ----


class Changes(NamedTuple):
    """How a target moves, per vector: the ratio of norms, and the logarithm of the norm set.

    None stands for what does not move, or does not matter to any vector.
    """

    ratio: Any
    log_norm: Any
    """Of l2."""
    log_kept: Any
    """Of the norm that vectors are brought to which keep their direction."""
    log_l1: Any = None
    """Of l1, for vectors where it binds alone."""


NO_CHANGE = Changes(None, None, None)


Targets: TypeAlias = tuple[Any, Any, Any]
"""Sparseness, l1 and l2 as they were given: numbers, arrays, rules, or None."""


HIGHEST = 2.0**32
"""Beyond the square root of any length: no such ratio of norms binds."""


class Given(NamedTuple):
    """Targets of vectors of length n as numbers or wide arrays, where they are differentiated."""

    n: Any
    """An int, or an array with the length of each vector."""
    sparseness: Any
    l1: Any
    l2: Any

    @staticmethod
    def of(n: Any, targets: Targets, xp: Namespace) -> "Given":
        """Return what was given."""
        n = xp.astype(n, xp.wide(n)) if hasattr(n, "shape") else n
        return Given(n, *(_wide(value, xp) for value in targets))

    @property
    def by_sparseness(self) -> Any:
        """d(l1/l2)/d(sparseness)."""
        return 1 - (self.n**0.5 if hasattr(self.n, "shape") else math.sqrt(self.n))

    def ratio(self, xp: Namespace) -> Any:
        """Return l1/l2."""
        if self.sparseness is None:
            ratio = quotient(self.l1, self.l2, xp)
            return xp.clip(ratio, None, HIGHEST) if is_array(ratio) else min(ratio, HIGHEST)
        return 1 - (1 - self.sparseness) * self.by_sparseness


def is_array(target: Any) -> bool:
    """Whether a target is neither a number nor a rule, and was given."""
    return not (target is None or isinstance(target, str | float | int | np.generic))


def _wide(value: Any, xp: Namespace) -> Any:
    return xp.astype(value, xp.wide(value)) if is_array(value) else value


def forward_changes(n: Any, targets: Targets, tangents: Targets, xp: Namespace) -> Changes:
    """Return how targets move along tangents of sparseness, l1 and l2 (None: not at all)."""
    given = Given.of(n, targets, xp)
    sigma, first, second = (_wide(tangent, xp) for tangent in tangents)
    if given.sparseness is None:
        log1, log2 = quotient(first, given.l1, xp), quotient(second, given.l2, xp)
        if given.l2 is None:
            return Changes(None, None, None, log1)
        return Changes(_times(given.ratio(xp), _minus(log1, log2)), log2, log2, log1)
    log1, log2 = _over(first, given.l1), _over(second, given.l2)
    ratio = _times(given.by_sparseness, sigma)
    if given.l1 is None or isinstance(given.l2, str):
        return Changes(ratio, log2, log2)
    return Changes(ratio, _minus(log1, _over(ratio, given.ratio(xp))), log1)


def reverse_changes(n: Any, targets: Targets, gradient: Changes, xp: Namespace) -> Targets:
    """Return the gradients by sparseness, l1 and l2: the transpose of `forward_changes`."""
    ratio, free, kept, alone = gradient
    sparseness, l1, l2 = targets
    if l1 is None and (l2 is None or isinstance(l2, str)):
        return Given.of(n, (None, None, None), xp).by_sparseness * ratio, None, None
    given = Given.of(n, targets, xp)
    if sparseness is None and l2 is None:
        return None, quotient(alone, given.l1, xp), None
    norm = _plus(free, kept)
    if sparseness is None:
        steep = given.ratio(xp) * ratio
        by_l1 = quotient(_plus(steep, alone), given.l1, xp)
        return None, by_l1, quotient(norm - steep, given.l2, xp)
    sigma = given.by_sparseness * ratio
    if l1 is None:
        return sigma, None, norm / given.l2
    return sigma - given.by_sparseness * (free / given.ratio(xp)), norm / given.l1, None


def quotient(a: Any, b: Any, xp: Namespace) -> Any:
    """Return a/b for a norm b; 0 where that is 0, as bounds may be. None if one of them is."""
    if a is None or b is None:
        return None
    if is_array(b):
        there = b != 0
        return xp.where(there, a / xp.where(there, b, 1.0), 0.0)
    return a / b if b else 0.0 * a


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _minus(a: Any, b: Any) -> Any:
    return a if b is None else -b if a is None else a - b


def _times(a: Any, b: Any) -> Any:
    return None if b is None else a * b


def _over(a: Any, b: Any) -> Any:
    return None if a is None else a / b


# ---- derivatives of the projection ----


class Products:
    """The derivatives of one batch of projections, whose vectors lie in the last axis.

    Parameters
    ----------
    value, scale : array
        The result, and beta of every vector.
    x : array or None
        What was projected; only needed where `Plan.needs_x`: where its norm was kept, and where
        results are nearly constant. There it says better than they do how entries differ.
    active : array or None
        Which norms bind (`Active`); None if that is the same for all vectors, as the plan tells.
    plan : Plan
        What was asked for.
    xp : Namespace
        The arrays' library.
    """

    def __init__(  # noqa: PLR0917 - what was found, then what was asked for, as everywhere
        self, value: Any, scale: Any, x: Any, active: Any, plan: Plan, xp: Namespace
    ) -> None:
        self.xp, self.plan, self.wide = xp, plan, xp.wide(value)
        self.value, self.dtype, self.rule = value, value.dtype, plan.rule
        # In units of the largest entry nothing overflows or vanishes when squared.
        value = xp.astype(value, self.wide)
        self.unit = self._unit_of(value)
        self.p = value / self.unit
        self.scale = xp.astype(scale, self.wide)[..., None]
        self.where = mask_of(plan, value, xp)
        self.given = None if x is None else self._existing(x)
        self.compares_x = x is not None and plan.nearly_constant
        self.active = None if active is None else active[..., None]

    def _unit_of(self, value: Any) -> Any:
        return largest(value, self.xp)

    # ---- the support ----

    @cached_property
    def sign(self) -> Any:
        """The signs on the support, 0 elsewhere."""
        return self.xp.sign(self.xp.stopped(self.p))

    @cached_property
    def count(self) -> Any:
        """The size of the support, at least 1."""
        inside = self.xp.astype(self.sign != 0, self.wide)
        return self.xp.clip(self.xp.total(inside), 1, None)

    @cached_property
    def l1(self) -> Any:
        """The L1 norm, in units."""
        return self.xp.total(self.p * self.sign)

    @cached_property
    def l2_squared(self) -> Any:
        """The squared L2 norm, in units."""
        return self.xp.total(self.xp.square(self.p))

    @cached_property
    def deviations(self) -> Any:
        """Q with the signs of p: zero outside of the support."""
        xp = self.xp
        by_p = self.p - self.sign * (self.l1 / self.count)
        if not self.compares_x:
            return by_p
        # On the support they are those of x over beta.
        x = xp.astype(self.given, self.wide)
        unit = moderate(largest(x, xp), xp)
        by_x = self._inside(x / unit)
        for _ in range(2):
            # What the mean lacks is the same for all entries, and adds up.
            by_x = by_x - self.sign * (xp.total(self.sign * by_x) / self.count)
        # Half the change of units before the division, half after it: the result is a float, but
        # halfway it need not be one.
        root = xp.sqrt(unit) / xp.sqrt(self.unit)
        return xp.where(self._by_x, self.over_scale(by_x * root) * root, by_p)

    @cached_property
    def _by_x(self) -> Any:
        """Where entries of p are so nearly equal that x has to say how they differ."""
        l1, square = self.xp.stopped(self.l1), self.xp.stopped(self.l2_squared)
        return (l1 * l1 > NEARLY * self.count * square) & (self.scale > 0) & ~self._not_both

    @cached_property
    def spreads(self) -> Any:
        """Whether entries differ: rounding of the mean of equal entries must not invent a Q."""
        xp = self.xp
        by_p = differ(xp.stopped(self.p), self.sign, xp)
        if not self.compares_x:
            return by_p
        x = xp.astype(xp.stopped(self.given), self.wide)
        return xp.where(self._by_x, differ(x, self.sign, xp), by_p)

    @cached_property
    def spread(self) -> Any:
        """Q = <q, q>."""
        return self.xp.total(self.xp.square(self.deviations))

    @cached_property
    def scale_by_x(self) -> Any:
        """dbeta/dx at a fixed norm, q/Q, in inverse units; zero where all entries are equal."""
        return self.deviations * self._inverse(self.spread, self.spreads)

    @cached_property
    def by_ratio(self) -> Any:
        """dp/drho, in units; zero where all entries are equal."""
        steep = (self.sign - self.l1 * self.scale_by_x) * (self._l2 / self.count)
        return self.xp.where(self.spreads & ~self._not_both, steep, 0.0)

    @cached_property
    def scale_by_ratio(self) -> Any:
        """dbeta/drho."""
        inverse = self._inverse(self.spread, self.spreads)
        steep = self.scale * self.l1 * self._l2 / self.count * inverse
        return self.xp.where(self._not_both, 0.0, steep)

    @cached_property
    def _l2(self) -> Any:
        return root(self.l2_squared, self.l2_squared > 0, self.xp)

    @cached_property
    def inverse_ratio(self) -> Any:
        """l2/l1; zero if they are."""
        return self._l2 * self._inverse(self.l1)

    # ---- which norms bind ----

    @cached_property
    def bounded(self) -> bool:
        """Whether l1 may bind alone, or no norm at all."""
        return self.plan.at_most or self.rule == "free"

    @cached_property
    def _not_both(self) -> Any:
        if self.active is None:
            both = self.xp.zeros_like(self.scale, dtype=self.xp.bool)
            return ~both if self.rule == "free" else both
        return self.active != Active.BOTH

    @cached_property
    def _to_l1(self) -> Any:
        return self.active == Active.L1_DIRECTION

    @cached_property
    def _l1_alone(self) -> Any:
        return self._not_both if self.active is None else self.active == Active.L1

    @cached_property
    def _unbound(self) -> Any:
        return self.active == Active.NONE

    @cached_property
    def _free_of_l2(self) -> Any:
        """Where the L2 norm does not bind, nor beta change, among sets that are `bounded`."""
        return self._l1_alone if self.active is None else self._l1_alone | self._unbound

    @cached_property
    def by_l1_alone(self) -> Any:
        """dp/dl1 where l1 binds alone, else zero."""
        return self.xp.where(self._l1_alone, self.sign / self.count, 0.0)

    @cached_property
    def _everywhere(self) -> Any:
        """Where entries move that are zero, if they may have any sign; None for nowhere."""
        if self.active is None or self.plan.nonnegative:
            return None
        return self._not_both & ~self._l1_alone if self.bounded else self._not_both

    def _existing(self, entries: Any) -> Any:
        """Return entries, or zero for those outside of the mask, whatever they are."""
        return entries if self.where is None else self.xp.where(self.where, entries, 0.0)

    def over_scale(self, entries: Any) -> Any:
        """Divide by beta; zero where there is no alpha. The inverse of beta need be no float."""
        there, xp = self.scale > 0, self.xp
        return xp.where(there, entries / xp.where(there, self.scale, 1.0), 0.0)

    def _inside(self, y: Any) -> Any:
        """Return y where the support is: elsewhere it may be anything."""
        return self.xp.where(self.sign == 0, 0.0, y)

    def _inverse(self, numbers: Any, where: Any = None) -> Any:
        """Return 1/numbers where that is wanted or they are positive, else 0.

        No division by zero is differentiated.
        """
        where, xp = numbers > 0 if where is None else where, self.xp
        return xp.where(where, 1 / xp.where(where, numbers, 1.0), 0.0)

    # ---- the norm, where it follows x: dlog(l2) = <norm_by_x, dx> + norm_by_ratio drho ----

    @cached_property
    def norm_by_x(self) -> tuple[Any, Any] | None:
        """dlog(l2)/dx, and the unit it has to be divided by: of small vectors it would overflow."""
        xp = self.xp
        if self.rule == "keep":
            x = xp.astype(self.given, self.wide)
            unit = largest(x, xp)
            x = x / unit
            return x * self._inverse(xp.total(xp.square(x))), unit
        if self.rule == "nearest":
            return self.p * self._inverse(self.l2_squared), self.unit
        return None

    @cached_property
    def norm_by_ratio(self) -> Any:
        """dlog(l2)/drho at a fixed x, or None."""
        if self.rule != "nearest":
            return None
        steep = (1 - self.scale) * self.inverse_ratio
        return self.xp.where(self.spreads & ~self._not_both, steep, 0.0)

    def _norm_given(self, change: Changes) -> Any:
        """dlog(l2) by the target alone, or None."""
        xp = self.xp
        moved, other = (
            None if numbers is None else numbers[..., None]
            for numbers in (change.log_norm, change.log_kept)
        )
        if moved is not None and self.plan.both_norms:
            # Where b = 0 the derivatives by two given norms are defined as zero.
            moved = xp.where(self.spreads | self._not_both, moved, 0.0)
        if self.active is None or (moved is None and other is None):
            return moved
        zero = xp.zeros_like(self.scale)
        norm = xp.where(
            self._not_both, zero if other is None else other, zero if moved is None else moved
        )
        return xp.where(self._free_of_l2, 0.0, norm) if self.bounded else norm

    def by_norms(self) -> tuple[Any, Any]:
        """Return dp/dl1 and dp/dl2: they do not depend on the unit of the norms."""
        xp = self.xp
        by_l1, by_l2 = self._inverse(self.l1), self._inverse(self._l2)
        to_l1 = self._not_both if self.active is None else self._to_l1
        sets_l2 = xp.where(self._not_both, ~to_l1, self.spreads)
        if self.bounded:
            first = self.by_ratio * by_l2 + self.by_l1_alone
            sets_l2 = sets_l2 & ~self._free_of_l2
        else:
            first = self.by_ratio * by_l2 + self.p * xp.where(to_l1, by_l1, 0.0)
        turned = self.by_ratio * (self.l1 * by_l2 * by_l2)
        second = self.p * xp.where(sets_l2, by_l2, 0.0) - turned
        return xp.astype(first, self.dtype), xp.astype(second, self.dtype)

    def by_sparseness(self) -> Any:
        """Return dp/d(sparseness), as l1/l2 falls by sqrt(n) - 1; zero where entries are equal."""
        xp, plan = self.xp, self.plan
        lengths = lengths_of(plan, self.scale, xp)
        by_sparseness = Given(lengths, None, None, None).by_sparseness
        ratio, norm = xp.zeros_like(self.scale) + by_sparseness, None
        if plan.options.l1 is not None:
            moves = self.spreads | self._not_both
            norm = xp.where(moves, -ratio * self.inverse_ratio, 0.0)[..., 0]
        return self.tangent(None, Changes(ratio[..., 0], norm, None))[0]

    # ---- products ----

    def product(self, y: Any, *, reverse: bool) -> Any:
        """Return the Jacobian, or its transpose, times y."""
        if reverse:
            return self.cotangent(y, None, by_x=True, by_target=False)[0]
        return self.tangent(y, NO_CHANGE)[0]

    def jacobian(self) -> Any:
        """Return the dense Jacobians: their rows are the transposed products with unit vectors."""
        xp, n, shape = self.xp, self.plan.n, self.value.shape

        def repeated(rows: Any) -> Any:
            return None if rows is None else xp.broadcast_to(rows[..., None, :], (*shape, n))

        scale, active = (
            None if numbers is None else xp.broadcast_to(numbers, shape)
            for numbers in (self.scale, self.active)
        )
        plan = replace(self.plan, where=repeated(self.where), lengths=None, forms={})
        at = Products(repeated(self.value), scale, repeated(self.given), active, plan, xp)
        number = xp.numbered(self.p)
        units = xp.astype(number[..., None] == number, self.dtype)
        return at.product(xp.broadcast_to(units, (*shape, n)), reverse=True)

    def tangent(self, dx: Any, change: Changes) -> tuple[Any, Any]:
        """Return dp and dbeta along dx (None: not at all) and a change of the target."""
        norm = self._norm_given(change)
        value, scale = self.xp.zeros_like(self.p), self.xp.zeros_like(self.scale)
        if dx is not None:
            dx = self._existing(dx)
            dx, size = self._measured(dx, everywhere=self.rule == "keep")
            value, scale = self._at_fixed_norms(dx, forward=True)
            if self.norm_by_x is not None:
                by_x, unit = self.norm_by_x
                counts = dx if self.rule == "keep" else self._inside(dx)
                follows = self.xp.total(by_x * counts)
                value = value + self.p * (self.unit / unit * follows)
                scale = scale - self.scale / unit * follows
            value, scale = value * size, scale * size
        if change.ratio is not None and self.rule != "free":
            ratio = change.ratio[..., None]
            value = value + self.by_ratio * self.unit * ratio
            scale = scale + self.scale_by_ratio * ratio
            if self.norm_by_ratio is not None:
                norm = _plus(norm, self.norm_by_ratio * ratio)
        if norm is not None:
            value = value + self.p * self.unit * norm
            scale = scale - self.scale * norm
        if self.bounded and change.log_l1 is not None:
            value = value + self.by_l1_alone * (self.l1 * self.unit * change.log_l1[..., None])
        return self.xp.astype(value, self.dtype), scale[..., 0]

    def cotangent(
        self, g_value: Any, g_scale: Any, *, by_x: bool, by_target: bool
    ) -> tuple[Any, Changes]:
        """Return the gradients by x (or None) and by the target: the transpose of `tangent`."""
        xp = self.xp
        given = xp.zeros_like(self.p) if g_value is None else self._existing(g_value)
        value, size = self._measured(given, everywhere=False)
        scale = None if g_scale is None else xp.astype(g_scale, self.wide)[..., None]
        slope = xp.total(self.p * self._inside(value))
        norm = slope * self.unit * size
        if scale is not None:
            norm = norm - self.scale * scale
        g_x = None
        if by_x:
            g_x, _ = self._at_fixed_norms(value, forward=False)
            if self.norm_by_x is not None:
                by_norm, unit = self.norm_by_x
                g_x = g_x + by_norm * (slope * (self.unit / unit))
            g_x = g_x * size
            if scale is not None and self.rule != "free":
                g_x = g_x + self._any_scale_by_x() * scale
                if self.norm_by_x is not None:
                    g_x = g_x - by_norm * (self.scale / unit * scale)
            g_x = xp.astype(g_x, self.dtype)
        if not by_target:
            return g_x, NO_CHANGE
        alone = None
        if self.bounded:
            alone = xp.total(self.by_l1_alone * self._inside(value)) * self.l1 * self.unit * size
            alone = alone[..., 0]
        if self.rule == "free":
            return g_x, Changes(None, None, None, alone)
        ratio = xp.total(self.by_ratio * self._inside(value)) * self.unit * size
        return g_x, self._by_target(ratio, scale, norm)._replace(log_l1=alone)

    def _by_target(self, ratio: Any, scale: Any, norm: Any) -> Changes:
        """Return the gradients by what concerns the L2 norm."""
        xp = self.xp
        if scale is not None:
            ratio = ratio + self.scale_by_ratio * scale
        if self.norm_by_ratio is not None:
            ratio = ratio + self.norm_by_ratio * norm
        free = xp.where(self._not_both, 0.0, norm)
        if self.plan.both_norms:
            free = xp.where(self.spreads, free, 0.0)
        if self.active is None:
            return Changes(ratio[..., 0], free[..., 0], None)
        kept = xp.where(self._not_both, norm, 0.0)
        if self.bounded:
            kept = xp.where(self._free_of_l2, 0.0, kept)
        return Changes(ratio[..., 0], free[..., 0], kept[..., 0])

    def _measured(self, y: Any, *, everywhere: bool) -> tuple[Any, Any]:
        """Return y in units in which its sums neither overflow nor vanish, and these.

        What does not count (the support does, and everywhere what keeps its direction) has no say.
        """
        xp = self.xp
        y = xp.astype(y, self.wide)
        counts = abs(y) < math.inf
        if not everywhere:
            inside = self.sign != 0
            counts = counts & (inside if self._everywhere is None else inside | self._everywhere)
        unit = self._unit_for(abs(xp.where(counts, y, 0.0)))
        return y / unit, unit

    def _unit_for(self, sizes: Any) -> Any:
        return moderate(self.xp.total(sizes), self.xp)

    def _at_fixed_norms(self, y: Any, *, forward: bool) -> tuple[Any, Any]:
        """Multiply y by the Jacobian at fixed norms (or its transpose), and by dbeta/dx."""
        xp, inside = self.xp, self._inside(y)
        centred = inside - self.sign * (xp.total(self.sign * inside) / self.count)
        if self.rule == "free":
            value, scale = self._inside(self.over_scale(centred)), xp.zeros_like(self.scale)
        else:
            slope = xp.total(self.deviations * inside)
            # The mask last: of subnormal vectors y/beta may overflow.
            value = self._inside(self.over_scale(centred - self.scale_by_x * slope))
            scale = xp.total(self.scale_by_x * inside) / self.unit
        if self.active is None:
            return value, scale
        part = inside if self.plan.nonnegative else y
        if self.rule != "free":
            turned = xp.total(self._kept_scale_by_x() * inside)
            value = xp.where(self._not_both, self._turned(part, inside, forward=forward), value)
            scale = xp.where(self._not_both, turned, scale)
        if not self.bounded:
            return value, scale
        if self.rule != "free":
            value = xp.where(self._l1_alone, self._inside(self.over_scale(centred)), value)
        value = xp.where(self._unbound, self.over_scale(part), value)
        return value, xp.where(self._free_of_l2, 0.0, scale)

    def _turned(self, part: Any, inside: Any, *, forward: bool) -> Any:
        """Multiply by the Jacobian, or its transpose, of vectors that keep their direction."""
        xp = self.xp
        # (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the
        # L1 norm was.
        u = xp.where(self._to_l1, self.p * self._inverse(self.l1), self.p)
        v = xp.where(self._to_l1, self.sign, self.p * self._inverse(self.l2_squared))
        left, right = (u, v) if forward else (v, u)
        direction = self.over_scale(part - left * xp.total(right * inside))
        return xp.where(self.sign > 0, direction, 0.0) if self.plan.nonnegative else direction

    def _kept_scale_by_x(self) -> Any:
        """dbeta/dx of vectors that kept their direction."""
        by_l1 = self.sign * self._inverse(self.l1)
        by_l2 = self.p * self._inverse(self.l2_squared)
        return self.xp.where(self._to_l1, by_l1, by_l2) / self.unit

    def _any_scale_by_x(self) -> Any:
        """dbeta/dx at a fixed norm."""
        free = self.scale_by_x / self.unit
        if self.active is None:
            return free
        by_x = self.xp.where(self._not_both, self._kept_scale_by_x(), free)
        return self.xp.where(self._free_of_l2, 0.0, by_x) if self.bounded else by_x


def mask_of(plan: Plan, rows: Any, xp: Namespace) -> Any:
    """Return the mask of vectors in rows, or None."""
    return None if plan.where is None else xp.library.reshape(plan.where, rows.shape)


def lengths_of(plan: Plan, column: Any, xp: Namespace) -> Any:
    """Return the length of all vectors, or as a column like this one that of each."""
    return plan.n if plan.lengths is None else per_vector(plan.lengths, column, xp)


def per_vector(numbers: Any, column: Any, xp: Namespace) -> Any:
    """Return one number for each vector, with an axis appended, like an array of this kind."""
    if isinstance(numbers, np.ndarray):
        if numbers.size == 1:
            return xp.full_like(column, float(numbers.reshape(-1)[0]))
        batch = column.shape[:-1]
        own = numbers.size == math.prod(batch)
        # A copy: some libraries share memory, but only such as may be written.
        numbers = xp.library.asarray((numbers.reshape(batch) if own else numbers).copy())
    return xp.broadcast_to(xp.astype(numbers, column.dtype)[..., None], column.shape)


def largest(entries: Any, xp: Namespace) -> Any:
    """Return the size of each vector's largest entry, not to be differentiated; 1 if it is 0."""
    size = xp.highest(abs(xp.stopped(entries)))
    return xp.where(size > 0, size, 1.0)


def moderate(size: Any, xp: Namespace) -> Any:
    """Return powers of two, most of them 1, in which sums of numbers of these sizes are floats.

    They bring sizes not all the way to 1, so that these may still be divided by the largest float.
    """
    small, one, large = moderate_units(size.dtype, xp)
    far = large**1.25
    return xp.where(size > far, large, xp.where(size < 1 / far, small, xp.full_like(size, one)))


def moderate_units(dtype: Any, xp: Namespace) -> tuple[float, float, float]:
    """Return all that `moderate` may say of sizes of a type, in ascending order."""
    unit = 2.0**400 if dtype == xp.float64 else 2.0**48
    return 1 / unit, 1.0, unit


def differ(p: Any, sign: Any, xp: Namespace) -> Any:
    """Whether the sizes of the entries on the support differ."""
    size = p * sign
    low = xp.lowest(xp.where(sign == 0, math.inf, size))
    return low < xp.highest(xp.where(sign == 0, -math.inf, size))


def root(numbers: Any, where: Any, xp: Namespace) -> Any:
    """Return square roots where they are wanted, else 0; none at zero is differentiated."""
    return xp.where(where, xp.sqrt(xp.where(where, numbers, 1.0)), 0.0)
