"""The closed form on a known support, in operations that any transformation can follow.

For `torch.func` inside of `torch.compile`: no differentiable operator is understood by both. The
support comes from the operator ``hoyer::locate``, which has no derivative; the rest is the formula
p = l2 (rho/d + q/|q| sqrt(1 - rho^2/d)), q the deviations of x from its mean on the support.
"""

from typing import Any

import torch

from . import operators
from .calculus import Kept
from .engines import Task
from .targets import parts_of
from .tensors import Tensor, length_of, wide_type


def project(x: Tensor, task: Task) -> Tensor:
    """Project; derivatives of all orders are those of the closed form."""
    value, scale, kept = operators.locate(x, task)
    smooth = _closed_form(x.to(wide_type(x.device)), value, scale, kept, task).to(x.dtype)
    # The numbers are the operator's, the derivatives those of the formula.
    return value + (smooth - smooth.detach())


def _closed_form(x: Tensor, value: Tensor, scale: Tensor, kept: Tensor, task: Task) -> Tensor:
    inner, setting = task.inner, task.setting
    dims = tuple(range(-inner, 0))

    def lift(numbers: Any) -> Any:
        if not isinstance(numbers, torch.Tensor):
            return numbers
        return numbers.reshape(tuple(numbers.shape) + (1,) * inner)

    def total(entries: Tensor) -> Tensor:
        return entries.sum(dims, keepdim=True)

    parts = parts_of(length_of(x, inner), task.options, x.dtype)
    ratio, l1, l2 = lift(parts.ratio), lift(parts.l1), lift(parts.l2)
    p, beta, kept = value.to(x.dtype), lift(scale), lift(kept)
    sign = p.sign()
    count = total(sign.abs()).clamp(min=1)
    moving, still = (_deviations(a, sign, count, total) for a in (x, p))
    has_shift, spreads = beta > 0, total(still.square()) > 1e-28 * total(p.square())
    q = torch.where(has_shift, moving, still)
    length = _root(total(q.square()), spreads)
    rest = torch.as_tensor(1 - ratio * ratio / count)
    unit = sign * (ratio / count) + q / torch.where(spreads, length, 1.0) * _root(rest, rest > 0)
    # As many ties as fit: they move as one, each about their mean.
    norm_now = _root(total(p.square()), total(p.square()) > 0)
    step = torch.where(has_shift, 1 / torch.where(has_shift, beta * norm_now, 1.0), 0.0)
    level = sign * torch.as_tensor(ratio / count).detach()
    unit = torch.where(spreads, unit, level + moving * step)
    if setting.rule == "keep":
        norm: Any = _root(total(x.square()), total(x.square()) > 0)
    elif setting.rule == "nearest":
        norm = total(unit * x).clamp(min=0)
    else:
        norm = 1.0 if l1 is None and l2 is None else l1 / ratio if l2 is None else l2
    result: Tensor = unit * norm
    if not task.options.only_increase:
        return result
    part = torch.where(sign > 0, x, 0.0) if setting.nonnegative else x
    length = _root(total(part.square()), total(part.square()) > 0)
    direction = part if setting.rule == "nearest" else part / length * norm
    if parts.l1 is not None and parts.sparseness is not None:
        direction = torch.where(kept == Kept.TO_L1, part / total(part * sign) * l1, direction)
    return torch.where(kept != 0, direction, result)


def _deviations(a: Tensor, sign: Tensor, count: Tensor, total: Any) -> Tensor:
    inside = torch.where(sign == 0, 0.0, a)
    mean: Tensor = total(sign * a) / count
    return inside - sign * mean


def _root(numbers: Tensor, where: Tensor) -> Tensor:
    """Square roots where they are wanted, else 0; none at zero is differentiated."""
    return torch.where(where, torch.where(where, numbers, 1.0).sqrt(), 0.0)
