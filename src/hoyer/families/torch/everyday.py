"""The everyday call: a contiguous CPU tensor, vectors along its last axes, numbers as targets.

The same as the general walk with everything that does not depend on the entries looked up, so that
a call on a short vector costs little more than PyTorch's own bookkeeping.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch._C import _are_functorch_transforms_active, _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import unwrap_if_dead
from torch.autograd import forward_ad

from ...engines.arrays.products import Setting, nearly_constant, needs_x
from ...options import Options
from . import engines
from .engines import Task
from .functions import gradients, is_final
from .tensors import Tensor

_TYPES = {torch.Tensor, torch.nn.Parameter}
_ELEMENTS = {torch.float16: 0, torch.float32: 1, torch.float64: 2, torch.bfloat16: 3}
"""Types and their numbers in the core, where they are those of `ELEMENTS`."""


class Backward(NamedTuple):
    """What the derivatives need beside what is saved."""

    task: Task
    setting: Setting
    length: int
    ratio: float
    """l1/l2 of all results."""
    l2: float
    """That was asked for."""
    same_norms: bool
    """Whether all results have the norms that were asked for."""


class Recipe(NamedTuple):
    """What a call needs beside the tensor."""

    plan: Any
    backward: Backward


@lru_cache(maxsize=256, typed=True)
def _recipe(n: int, inner: int, *given: Any) -> Recipe:
    """Return the recipe for these options; a TypeError says that they hold no plain numbers."""
    from ...engines.core import core_plan  # noqa: PLC0415
    from ...plan import plan_for  # noqa: PLC0415

    options = Options(*given)
    if n == 0 or not Options(*given).is_plain:
        raise TypeError
    task = Task(options, inner)
    plan = core_plan(plan_for(n, options))
    ratio, l2 = (float(number[0]) for number in engines.asked_of(n, options, ()))
    setting = task.setting
    same_norms = (
        setting.rule == "fixed" and not options.only_increase and not nearly_constant(n, options)
    )
    return Recipe(plan, Backward(task, setting, n, ratio, l2, same_norms))


def _last_axes(axis: Any, ndim: int) -> int:
    """Return how many axes form a vector, if they are the last ones in order; else 0."""
    if axis is None:
        return ndim
    axes = axis if type(axis) is tuple else (axis,)
    if not all(type(one) is int for one in axes):
        return 0
    inner = len(axes)
    last = [one + ndim if one < 0 else one for one in axes] == list(range(ndim - inner, ndim))
    return inner if last else 0


def project(x: Tensor, options: Options) -> Tensor | None:
    """Return the projection, or None if this is no everyday call."""
    if (
        type(x) not in _TYPES
        or x.dtype not in _ELEMENTS
        or not x.is_cpu
        or engines.core is None
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _is_tracing()
        or forward_ad._current_level >= 0
    ):
        return None
    try:
        if not x.is_contiguous() or x.is_neg():
            return None
        shape = x.shape
    except RuntimeError:
        # No plain memory: a sparse or nested tensor.
        return None
    axis = options.axis
    inner = 1 if type(axis) is int and axis == -1 else _last_axes(axis, len(shape))
    if not shape or not inner or x.layout is not torch.strided:
        return None
    try:
        rest: tuple[Any, ...] = options
        recipe = _recipe(shape[-1] if inner == 1 else prod(shape[-inner:]), inner, *rest)
    except TypeError:
        # A target for each vector; or something wrong, which is then said again.
        return None
    if x.requires_grad and torch.is_grad_enabled():
        value: Tensor = _apply(unwrap_if_dead(x), recipe)[0]
        return value
    return _projected(x, recipe, 0)


def _projected(x: Tensor, recipe: Recipe, scales: int) -> Tensor:
    """Project, by addresses: to see a tensor as an array takes longer than the core does."""
    plan, rest = recipe
    out = engines.new_like(x)
    bad = engines.core.project_memory(
        x.data_ptr(),
        out.data_ptr(),
        x.numel() // rest.length,
        rest.length,
        _ELEMENTS[x.dtype],
        plan,
        scales,
    )
    if bad >= 0:
        raise ValueError(engines.describe(x, rest.setting.inner, bad))
    return out


class Everyday(torch.autograd.Function):
    """value, scale = projection of x; one scale per vector, whatever the shape of the batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector."""
        # Not the plan: graphs may outlive the core, to which it belongs.
        ctx.rest = rest = recipe[1]
        ctx.set_materialize_grads(False)
        if rest.same_norms:
            scale = torch.empty(x.numel() // rest.length, dtype=torch.float64)
            out = _projected(x, recipe, scale.data_ptr())
            ctx.save_for_backward(out, scale)
            return out, scale
        found = engines.find(x, rest.task)
        scale = found.scale.reshape(-1)
        kept, norms = (None if t is None else t.reshape(-1) for t in (found.kept, found.norms))
        keeps_x = needs_x(rest.length, rest.task.options)
        ctx.save_for_backward(found.value, scale, x if keeps_x else None, kept, norms)
        return found.value, scale

    @staticmethod
    def backward(ctx: Any, g_value: Any, g_scale: Any) -> tuple[Any, None]:
        """Return the gradient by x, in one pass of the core where nobody differentiates again."""
        if g_value is None and g_scale is None:
            return None, None
        rest = ctx.rest
        value, scale, *others = ctx.saved_tensors
        x, kept, norms = others or (None, None, None)
        if g_scale is None and is_final(value, g_value):
            if rest.same_norms and g_value.is_contiguous() and not g_value.is_neg():
                return _product(value, g_value, scale, rest), None
            found = engines.Found(value, scale, kept, norms)
            by_x, _ = engines.backward(found, g_value, x, rest.task, by_target=False)
            return by_x, None
        needed = (True, False, False, False)
        batch = value.shape[: value.dim() - rest.setting.inner]
        saved = (value, scale.reshape(batch), None if kept is None else kept.reshape(batch))
        g_scale = None if g_scale is None else g_scale.reshape(batch)
        return gradients(x, saved, rest.task, (g_value, g_scale), needed)[0], None


def _product(value: Tensor, y: Tensor, scale: Tensor, rest: Backward) -> Tensor:
    """Return the transposed Jacobians times y, by addresses; all results have the same norms."""
    out = engines.new_like(value)
    engines.core.multiply_memory(
        value.data_ptr(),
        y.data_ptr(),
        out.data_ptr(),
        value.numel() // rest.length,
        rest.length,
        _ELEMENTS[value.dtype],
        rest.ratio * rest.l2,
        rest.l2,
        scale.data_ptr(),
        rest.setting.nonnegative,
    )
    return out


# What `Function.apply` does beyond this concerns torch.func, which is asked about before.
_apply: Any = super(torch.autograd.Function, Everyday).apply
