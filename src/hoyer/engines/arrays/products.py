"""Algorithm 3 in plain tensor operations: products with the derivatives of a projection.

Everything is written in terms of the result p and the scale beta. Both are differentiable in turn,
so that automatic differentiation of these products gives derivatives of any order: the products
are functions of p and beta alone wherever the support does not change.

The result is seen as p = l2 p^(x, rho), rho = l1/l2 the ratio of norms. On the support, with d the
number of entries, q the deviations of their sizes from the mean and Q = <q, q>,

    dp    = (dx - mean(dx) - q <q, dx>/Q) / beta + l2 (1 - l1 q/Q)/d drho + p dlog(l2),
    dbeta = <q, dx>/Q + beta l1 l2/(d Q) drho - beta dlog(l2).

The norm may follow x: dlog(l2) is <x, dx>/<x, x> where it is kept, and <p, dx>/<p, p> +
(1 - beta)/rho drho where it is that of the nearest vector (the shift is l2 (1 - beta)/rho then).
"""

from functools import cached_property
from typing import NamedTuple

import torch

from ...families.torch.targets import Changes, parts_of, rule_of, tensors_of
from ...families.torch.tensors import Tensor, lifted, total, wide_type
from ...options import Options
from ...target import NEARLY


class Kept:
    """How vectors that kept their direction are marked in a record."""

    TO_L2 = 1
    TO_L1 = 2


class Setting(NamedTuple):
    """What does not depend on the numbers."""

    inner: int
    rule: str
    nonnegative: bool
    both_norms: bool
    """Whether both norms were given, rather than a sparseness."""
    nearly_constant: bool = False
    """Whether results are so nearly constant that their digits do not tell how entries differ."""


def nearly_constant(n: int, options: Options) -> bool:
    """Whether a target, if it is one of numbers, makes results nearly constant."""
    if tensors_of(options) != (None, None, None):
        return False
    ratio: float = parts_of(n, options, torch.float64).ratio
    return ratio * ratio > NEARLY * n


def needs_x(n: int, options: Options) -> bool:
    """Whether derivatives cannot be had from the results alone."""
    return rule_of(options) == "keep" or nearly_constant(n, options)


class Linearization:
    """The derivatives of one batch of projections.

    Parameters
    ----------
    value, scale : Tensor
        The result, and beta of every vector.
    x : Tensor or None
        What was projected; only needed where its norm was kept, and where results are nearly
        constant: there it says better than they do how entries differ.
    kept : Tensor or None
        Which vectors kept their direction (`Kept`); None if there are none.
    setting : Setting
        The rest.
    """

    def __init__(
        self, value: Tensor, scale: Tensor, x: Tensor | None, kept: Tensor | None, setting: Setting
    ) -> None:
        self.dtype = value.dtype
        self.wide = wide_type(value.device)
        self.setting = setting
        # In units of the largest entry nothing overflows or vanishes when squared.
        value = value.to(self.wide)
        self.unit = largest(value, setting.inner)
        self.p = value / self.unit
        self.scale = self.lift(scale.to(self.wide))
        self.given = x
        self.kept = None if kept is None else self.lift(kept)

    # ---- numbers per vector ----

    def lift(self, numbers: Tensor) -> Tensor:
        """Append the axes of the vectors, of length 1, to numbers per vector."""
        return lifted(numbers, self.setting.inner)

    def drop(self, numbers: Tensor) -> Tensor:
        """Remove these axes again."""
        return numbers.reshape(tuple(numbers.shape)[: numbers.dim() - self.setting.inner])

    def total(self, entries: Tensor) -> Tensor:
        """Sum over every vector."""
        return total(entries, self.setting.inner)

    # ---- the support ----

    @cached_property
    def sign(self) -> Tensor:
        """The signs on the support, 0 elsewhere."""
        return self.p.detach().sign()

    @cached_property
    def count(self) -> Tensor:
        """The size of the support, at least 1."""
        return self.total((self.sign != 0).to(self.wide)).clamp(min=1)

    @cached_property
    def l1(self) -> Tensor:
        """The L1 norm, in units."""
        return self.total(self.p * self.sign)

    @cached_property
    def l2_squared(self) -> Tensor:
        """The squared L2 norm, in units."""
        return self.total(self.p.square())

    @cached_property
    def deviations(self) -> Tensor:
        """Q with the signs of p: zero outside of the support."""
        by_p = self.p - self.sign * (self.l1 / self.count)
        if self.given is None or not self.setting.nearly_constant:
            return by_p
        # On the support they are those of x over beta.
        x = self.given.to(self.wide)
        unit = moderate(largest(x, self.setting.inner))
        by_x = self._inside(x / unit)
        for _ in range(2):
            # What the mean lacks is the same for all entries, and adds up.
            by_x = by_x - self.sign * (self.total(self.sign * by_x) / self.count)
        # Half the change of units before the division, half after it: the result is a float, but
        # halfway it need not be one.
        root = unit.sqrt() / self.unit.sqrt()
        return torch.where(self._by_x, self.over_scale(by_x * root) * root, by_p)

    @cached_property
    def _by_x(self) -> Tensor:
        """Where entries of p are so nearly equal that x has to say how they differ."""
        l1, square = self.l1.detach(), self.l2_squared.detach()
        return (l1 * l1 > NEARLY * self.count * square) & (self.scale > 0) & ~self._is_kept

    @cached_property
    def spreads(self) -> Tensor:
        """Whether entries differ: rounding of the mean of equal entries must not invent a Q."""
        by_p = differ(self.p.detach(), self.sign, self.setting.inner)
        if self.given is None or not self.setting.nearly_constant:
            return by_p
        x = self.given.detach().to(self.wide)
        return torch.where(self._by_x, differ(x, self.sign, self.setting.inner), by_p)

    @cached_property
    def along(self) -> Tensor:
        """q/Q; zero where all entries are equal."""
        return self.deviations * _inverse(self.total(self.deviations.square()), self.spreads)

    def over_scale(self, entries: Tensor) -> Tensor:
        """Divide by beta; zero where there is no alpha. The inverse of beta need be no float."""
        there = self.scale > 0
        return torch.where(there, entries / torch.where(there, self.scale, 1.0), 0.0)

    @cached_property
    def by_ratio(self) -> Tensor:
        """dp/drho, in units; zero where all entries are equal."""
        steep = (self.sign - self.l1 * self.along) * (self._l2 / self.count)
        return torch.where(self.spreads & ~self._is_kept, steep, 0.0)

    @cached_property
    def scale_by_ratio(self) -> Tensor:
        """dbeta/drho."""
        spread = self.total(self.deviations.square())
        steep = self.scale * self.l1 * self._l2 / self.count * _inverse(spread, self.spreads)
        return torch.where(self._is_kept, 0.0, steep)

    @cached_property
    def _l2(self) -> Tensor:
        there = self.l2_squared > 0
        return torch.where(there, torch.where(there, self.l2_squared, 1.0).sqrt(), 0.0)

    @cached_property
    def inverse_ratio(self) -> Tensor:
        """l2/l1; zero if they are."""
        return self._l2 * _inverse(self.l1, self.l1 > 0)

    @cached_property
    def _is_kept(self) -> Tensor:
        if self.kept is None:
            return torch.zeros_like(self.scale, dtype=torch.bool)
        return self.kept != 0

    @cached_property
    def _to_l1(self) -> Tensor:
        assert self.kept is not None
        return torch.eq(self.kept, Kept.TO_L1)

    # ---- the norm, where it follows x: dlog(l2) = <norm_by_x, dx> + norm_by_ratio drho ----

    @cached_property
    def norm_by_x(self) -> tuple[Tensor, Tensor] | None:
        """dlog(l2)/dx, and the unit it has to be divided by: of small vectors it would overflow."""
        rule = self.setting.rule
        if rule == "keep":
            assert self.given is not None
            x = self.given.to(self.wide)
            unit = largest(x, self.setting.inner)
            x = x / unit
            square = self.total(x.square())
            return x * _inverse(square, square > 0), unit
        if rule == "nearest":
            return self.p * _inverse(self.l2_squared, self.l2_squared > 0), self.unit
        return None

    @cached_property
    def norm_by_ratio(self) -> Tensor | None:
        """dlog(l2)/drho at a fixed x."""
        if self.setting.rule != "nearest":
            return None
        steep = (1 - self.scale) * self.inverse_ratio
        return torch.where(self.spreads & ~self._is_kept, steep, 0.0)

    def _norm_given(self, change: Changes) -> Tensor | None:
        """dlog(l2) by the target alone."""
        moved = None if change.log_norm is None else self.lift(change.log_norm)
        if moved is not None and self.setting.both_norms:
            # Where b = 0 the derivatives by two given norms are defined as zero.
            moved = torch.where(self.spreads | self._is_kept, moved, 0.0)
        if self.kept is None:
            return moved
        other = None if change.log_kept is None else self.lift(change.log_kept)
        if moved is None and other is None:
            return None
        zero = torch.zeros_like(self.scale)
        return torch.where(
            self._is_kept, zero if other is None else other, zero if moved is None else moved
        )

    def by_norms(self) -> tuple[Tensor, Tensor]:
        """Return dp/dl1 and dp/dl2: they do not depend on the unit of the norms."""
        by_l1, by_l2 = (_inverse(norm, norm > 0) for norm in (self.l1, self._l2))
        to_l1 = torch.zeros_like(self._is_kept) if self.kept is None else self._to_l1
        sets_l2 = torch.where(self._is_kept, ~to_l1, self.spreads)
        first = self.by_ratio * by_l2 + self.p * torch.where(to_l1, by_l1, 0.0)
        turned = self.by_ratio * (self.l1 * by_l2 * by_l2)
        second = self.p * torch.where(sets_l2, by_l2, 0.0) - turned
        return first.to(self.dtype), second.to(self.dtype)

    # ---- products ----

    def tangent(self, dx: Tensor | None, change: Changes) -> tuple[Tensor, Tensor]:
        """Return dp and dbeta along dx and a change of the target."""
        norm = self._norm_given(change)
        value = torch.zeros_like(self.p)
        scale = torch.zeros_like(self.scale)
        if dx is not None:
            dx, size = self._measured(dx, everywhere=self.setting.rule == "keep")
            value, scale = self._along(dx, forward=True)
            if self.norm_by_x is not None:
                by_x, unit = self.norm_by_x
                counts = dx if self.setting.rule == "keep" else self._inside(dx)
                follows = self.total(by_x * counts)
                value = value + self.p * (self.unit / unit * follows)
                scale = scale - self.scale / unit * follows
            value, scale = value * size, scale * size
        if change.ratio is not None:
            ratio = self.lift(change.ratio)
            value = value + self.by_ratio * self.unit * ratio
            scale = scale + self.scale_by_ratio * ratio
            if self.norm_by_ratio is not None:
                follows = self.norm_by_ratio * ratio
                norm = follows if norm is None else norm + follows
        if norm is not None:
            value = value + self.p * self.unit * norm
            scale = scale - self.scale * norm
        return value.to(self.dtype), self.drop(scale)

    def cotangent(
        self, g_value: Tensor | None, g_scale: Tensor | None, *, by_x: bool, by_target: bool
    ) -> tuple[Tensor | None, Changes]:
        """Return the gradients by x and by the target: the transpose of `tangent`."""
        given = torch.zeros_like(self.p) if g_value is None else g_value
        value, size = self._measured(given, everywhere=False)
        scale = None if g_scale is None else self.lift(g_scale.to(self.wide))
        slope = self.total(self.p * self._inside(value))
        norm = slope * self.unit * size
        if scale is not None:
            norm = norm - self.scale * scale
        g_x = None
        if by_x:
            g_x, _ = self._along(value, forward=False)
            if self.norm_by_x is not None:
                by_norm, unit = self.norm_by_x
                g_x = g_x + by_norm * (slope * (self.unit / unit))
            g_x = g_x * size
            if scale is not None:
                g_x = g_x + self._scale_by_x() * scale
                if self.norm_by_x is not None:
                    g_x = g_x - by_norm * (self.scale / unit * scale)
            g_x = g_x.to(self.dtype)
        if not by_target:
            return g_x, Changes(None, None, None)
        ratio = self.total(self.by_ratio * self._inside(value)) * self.unit * size
        return g_x, self._by_target(ratio, scale, norm)

    def _by_target(self, ratio: Tensor, scale: Tensor | None, norm: Tensor) -> Changes:
        if scale is not None:
            ratio = ratio + self.scale_by_ratio * scale
        if self.norm_by_ratio is not None:
            ratio = ratio + self.norm_by_ratio * norm
        free = torch.where(self._is_kept, 0.0, norm)
        if self.setting.both_norms:
            free = torch.where(self.spreads, free, 0.0)
        kept = None if self.kept is None else self.drop(torch.where(self._is_kept, norm, 0.0))
        return Changes(self.drop(ratio), self.drop(free), kept)

    def _measured(self, y: Tensor, *, everywhere: bool) -> tuple[Tensor, Tensor]:
        """Return y in units in which its sums neither overflow nor vanish, and these.

        What does not count (the support does, and everywhere what keeps its direction) has no say.
        """
        y = y.to(self.wide)
        counts = y.abs() < torch.inf
        if not everywhere:
            counts = counts & ((self.sign != 0) | (self._is_kept & (not self.setting.nonnegative)))
        unit = moderate(self.total(torch.where(counts, y, 0.0).abs()))
        return y / unit, unit

    def _inside(self, y: Tensor) -> Tensor:
        """Return y where the support is: elsewhere it may be anything."""
        return torch.where(self.sign == 0, 0.0, y)

    def _along(self, y: Tensor, *, forward: bool) -> tuple[Tensor, Tensor]:
        """Multiply y by the Jacobian at fixed norms (or its transpose), and by dbeta/dx."""
        inside = self._inside(y)
        mean = self.total(self.sign * inside) / self.count
        slope = self.total(self.deviations * inside)
        # The mask last: of subnormal vectors y/beta may overflow.
        moved = self.over_scale(inside - self.sign * mean - self.along * slope)
        value = self._inside(moved)
        scale = self.total(self.along * inside) / self.unit
        if self.kept is None:
            return value, scale
        # (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the
        # L1 norm was.
        u, v = self._kept_pair()
        left, right = (u, v) if forward else (v, u)
        part = inside if self.setting.nonnegative else y
        direction = self.over_scale(part - left * self.total(right * inside))
        if self.setting.nonnegative:
            direction = torch.where(self.sign > 0, direction, 0.0)
        return (
            torch.where(self._is_kept, direction, value),
            torch.where(self._is_kept, self.total(self._kept_scale() * inside), scale),
        )

    def _kept_pair(self) -> tuple[Tensor, Tensor]:
        inverse1 = _inverse(self.l1, self.l1 > 0)
        inverse2 = _inverse(self.l2_squared, self.l2_squared > 0)
        to_l1 = self._to_l1
        return (
            torch.where(to_l1, self.p * inverse1, self.p),
            torch.where(to_l1, self.sign, self.p * inverse2),
        )

    def _kept_scale(self) -> Tensor:
        inverse1 = _inverse(self.l1, self.l1 > 0)
        inverse2 = _inverse(self.l2_squared, self.l2_squared > 0)
        return torch.where(self._to_l1, self.sign * inverse1, self.p * inverse2) / self.unit

    def _scale_by_x(self) -> Tensor:
        """dbeta/dx at a fixed norm."""
        free = self.along / self.unit
        return free if self.kept is None else torch.where(self._is_kept, self._kept_scale(), free)


def largest(entries: Tensor, inner: int) -> Tensor:
    """Return the size of each vector's largest entry, not to be differentiated; 1 if it is 0."""
    size = entries.detach().abs().amax(tuple(range(-inner, 0)), keepdim=True)
    return torch.where(size > 0, size, 1.0)


def moderate(size: Tensor) -> Tensor:
    """Return powers of two, most of them 1, in which sums of numbers of these sizes are floats.

    They bring sizes not all the way to 1, so that these may still be divided by the largest float.
    """
    far, unit = (2.0**500, 2.0**400) if size.dtype == torch.float64 else (2.0**60, 2.0**48)
    one = torch.ones((), dtype=size.dtype, device=size.device)
    return torch.where(size > far, one * unit, torch.where(size < 1 / far, one / unit, one))


def differ(p: Tensor, sign: Tensor, inner: int) -> Tensor:
    """Whether the sizes of the entries on the support differ."""
    size, dims = p * sign, tuple(range(-inner, 0))
    low = torch.where(sign == 0, torch.inf, size).amin(dims, keepdim=True)
    return low < torch.where(sign == 0, -torch.inf, size).amax(dims, keepdim=True)


def _inverse(numbers: Tensor, where: Tensor) -> Tensor:
    """1/numbers where that is wanted, else 0; no division by zero is differentiated."""
    return torch.where(where, 1 / torch.where(where, numbers, 1.0), 0.0)
