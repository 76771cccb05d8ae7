"""The closed form on a known support, in operations that any transformation can follow.

For `torch.func` inside of `torch.compile`: no differentiable operator is understood by both. The
support comes from the operator ``hoyer::locate``, which has no derivative; the rest is the formula
p = l2 (rho/d + q/|q| sqrt(1 - rho^2/d)), q the deviations of x from its mean on the support.
"""

from typing import Any, NamedTuple

import torch

from ...engines.arrays.products import Kept, differ, largest
from . import operators
from .engines import Task
from .targets import Parts, parts_of
from .tensors import Tensor, length_of, lifted, total, wide_type


def project(x: Tensor, task: Task) -> Tensor:
    """Project; derivatives of all orders are those of the closed form."""
    value, scale, kept = operators.locate(x, task)
    at = _found(x, value, scale, task)
    change = _closed_form(at, lifted(kept, task.inner), task)
    if task.setting.rule != "fixed":
        change = change * at.x_unit
    # The numbers are the operator's, the derivatives those of the formula.
    return value + (change - change.detach()).to(x.dtype)


class Found(NamedTuple):
    """What is projected and where its support is; x and p in units of their largest entries."""

    x: Tensor
    x_unit: Tensor
    p: Tensor
    p_unit: Tensor
    scale: Tensor
    sign: Tensor
    size: Tensor
    """Of the support, at least 1."""
    inner: int

    def deviations(self, entries: Tensor) -> Tensor:
        """Return how entries deviate from their mean on the support, with its signs."""
        inside = torch.where(self.sign == 0, 0.0, entries)
        return inside - self.sign * (total(self.sign * entries, self.inner) / self.size)

    def length(self, entries: Tensor) -> Tensor:
        """Return the L2 norm of every vector; none at zero is differentiated."""
        square = total(entries.square(), self.inner)
        return _root(square, square > 0)


def _found(x: Tensor, value: Tensor, scale: Tensor, task: Task) -> Found:
    inner, wide = task.inner, wide_type(x.device)
    x, value = x.to(wide), value.to(wide)
    x_unit, p_unit = largest(x, inner), largest(value, inner)
    sign = value.sign()
    count = total(sign.abs(), inner).clamp(min=1)
    return Found(
        x / x_unit, x_unit, value / p_unit, p_unit, lifted(scale, inner), sign, count, inner
    )


def _closed_form(at: Found, kept: Tensor, task: Task) -> Tensor:
    """Return the result as a function of x and the target, in units of x where its norm counts."""
    inner, setting = task.inner, task.setting
    given = parts_of(length_of(at.x, inner), task.options, at.x.dtype)
    parts = Parts(given.n, *(_lifted(part, inner) for part in given[1:]))
    spreads = differ(at.p, at.sign, inner)
    unit = _at_unit_norm(at, spreads, parts.ratio)
    norm = _norm(at, unit, parts, setting.rule)
    if setting.both_norms and isinstance(norm, torch.Tensor):
        # Where b = 0 the derivatives by two given norms are defined as zero.
        still = spreads if not task.options.only_increase else spreads | (kept != 0)
        norm = torch.where(still, norm, norm.detach())
    result: Tensor = unit * norm
    if not task.options.only_increase:
        return result
    return torch.where(kept != 0, _direction(at, norm, parts, kept, task), result)


def _at_unit_norm(at: Found, spreads: Tensor, ratio: Any) -> Tensor:
    has_shift = at.scale > 0
    moving = at.deviations(at.x)
    q = torch.where(has_shift, moving, at.deviations(at.p))
    # Any length will do, and this one can be squared.
    q = q / largest(q, at.inner)
    rest = torch.as_tensor(1 - ratio * ratio / at.size)
    along = q / torch.where(spreads, at.length(q), 1.0) * _root(rest, rest > 0)
    # As many ties as fit: they move as one, each about their mean.
    beta = torch.where(has_shift, at.scale, 1.0)
    size = at.length(at.p)
    gain = at.x_unit / at.p_unit / beta / torch.where(size > 0, size, 1.0)
    level = at.sign * torch.as_tensor(ratio / at.size).detach()
    tied = level + moving * torch.where(has_shift, gain, 0.0)
    return torch.where(spreads, at.sign * (ratio / at.size) + along, tied)


def _norm(at: Found, unit: Tensor, parts: Parts, rule: str) -> Any:
    if rule == "keep":
        return at.length(at.x)
    if rule == "nearest":
        return total(unit * at.x, at.inner).clamp(min=0)
    if parts.l2 is None:
        return 1.0 if parts.l1 is None else parts.l1 / parts.ratio
    return parts.l2


def _direction(at: Found, norm: Any, parts: Parts, kept: Tensor, task: Task) -> Tensor:
    """Return x, or its positive part, brought to norm: for vectors that keep their direction.

    What has no positive part became one-hot, which does not depend on x.
    """
    setting = task.setting
    part = torch.where(at.sign > 0, at.x, 0.0) if setting.nonnegative else at.x
    part = torch.where(at.scale > 0, part, at.p)
    if setting.rule == "nearest":
        return part
    size = at.length(part)
    direction: Tensor = part / torch.where(size > 0, size, 1.0) * norm
    if parts.l1 is None or parts.sparseness is None:
        return direction
    size = total(part * at.sign, at.inner)
    to_l1 = part / torch.where(size > 0, size, 1.0) * parts.l1
    return torch.where(kept == Kept.TO_L1, to_l1, direction)


def _lifted(part: Any, inner: int) -> Any:
    return lifted(part, inner) if isinstance(part, torch.Tensor) else part


def _root(numbers: Tensor, where: Tensor) -> Tensor:
    """Square roots where they are wanted, else 0; none at zero is differentiated."""
    return torch.where(where, torch.where(where, numbers, 1.0).sqrt(), 0.0)
