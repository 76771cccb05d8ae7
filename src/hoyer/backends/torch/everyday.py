"""The everyday call: a contiguous CPU tensor, vectors along its last axes, numbers as targets.

The same as the general walk with everything that does not depend on the entries looked up, so that
a call on a short vector costs little more than PyTorch's own bookkeeping.
"""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._C import _are_functorch_transforms_active, _is_tracing, _len_torch_dispatch_stack
from torch._C._functorch import unwrap_if_dead
from torch.autograd import forward_ad

from ...options import Options
from . import engines, search
from .calculus import Setting
from .engines import Task
from .functions import gradients, is_final
from .tensors import Tensor

_TYPES = {torch.Tensor, torch.nn.Parameter}
_NATIVE = {torch.float16, torch.float32, torch.float64}
_SMALL = 4096
"""Entries up to which a result lies in memory from NumPy."""
_FIELDS = len(search.FIELDS)


class Backward(NamedTuple):
    """What the derivatives need beside what is saved."""

    task: Task
    setting: Setting
    record: Any
    """What the core knows about a result but its scale, if the same of all vectors."""
    ratio: float
    """l1/l2 of all results."""


class Recipe(NamedTuple):
    """What a call needs beside the tensor."""

    plan: Any
    length: int
    inner: int
    same_norms: bool
    keeps_x: bool
    only_increase: bool
    backward: Backward


@lru_cache(maxsize=256, typed=True)
def _recipe(n: int, inner: int, *given: Any) -> Recipe:
    """Return the recipe for these options; a TypeError says that they hold no plain numbers."""
    from ..numpy import plan_for  # noqa: PLC0415 - needs the core, which is there by now

    options = Options(*given)
    targets: tuple[Any, ...] = (options.sparseness, options.l1, options.l2)
    if n == 0 or not all(t is None or isinstance(t, float | int | str) for t in targets):
        raise TypeError
    task = Task(options, inner)
    plan = plan_for(n, options, ())
    ratio, l2 = (float(number[0]) for number in engines.asked_of(n, options, ()))
    record = np.zeros((1, _FIELDS))
    record[0, engines.L1 : engines.L2 + 1] = ratio * l2, l2
    setting = task.setting
    return Recipe(
        plan,
        n,
        inner,
        setting.rule == "fixed" and not options.only_increase,
        setting.rule == "keep",
        bool(options.only_increase),
        Backward(task, setting, record, ratio),
    )


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
        or x.dtype not in _NATIVE
        or not x.is_cpu
        or engines.core is None
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _is_tracing()
        or forward_ad._current_level >= 0
    ):
        return None
    try:
        if not x.is_contiguous():
            return None
        given = x.detach().numpy()
    except (RuntimeError, TypeError):
        # No plain memory: a sparse or nested tensor, or a view that shows negatives.
        return None
    shape, axis = given.shape, options.axis
    inner = 1 if type(axis) is int and axis == -1 else _last_axes(axis, len(shape))
    if not shape or not inner:
        return None
    try:
        rest: tuple[Any, ...] = options
        recipe = _recipe(shape[-1] if inner == 1 else prod(shape[-inner:]), inner, *rest)
    except TypeError:
        # A target for each vector; or something wrong, which is then said again.
        return None
    if x.requires_grad and torch.is_grad_enabled():
        value: Tensor = _apply(unwrap_if_dead(x), given, recipe)[0]
        return value
    out, room = _room(x, given)
    bad = engines.core.project(given, room, recipe.plan, inner, False)
    if bad >= 0:
        raise ValueError(engines.describe(x, inner, bad))
    return out


def _room(x: Tensor, given: Any) -> tuple[Tensor, Any]:
    """Return memory for the result, as a tensor and as an array."""
    if given.size <= _SMALL:
        # NumPy finds little memory faster than PyTorch does.
        room = np.empty(given.shape, given.dtype)
        return torch.from_numpy(room), room
    out = engines.in_large_pages(torch.empty(given.shape, dtype=x.dtype, device="cpu"))
    return out, out.numpy()


class Everyday(torch.autograd.Function):
    """value, scale = projection of x; one scale per vector, whatever the shape of the batch.

    What is saved of short vectors is kept as arrays, too, which are the same memory: to see a
    tensor as an array takes longer than the core does.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, given: Any, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector."""
        # Not the plan: graphs may outlive the core, to which it belongs.
        plan, length, inner, same_norms, keeps_x, only_increase, ctx.rest = recipe
        out, room = _room(x, given)
        records = np.empty((given.size // length, _FIELDS))
        bad = engines.core.project(given, room, plan, inner, False, False, False, records)
        if bad >= 0:
            raise ValueError(engines.describe(x, inner, bad))
        numbers = records[:, engines.SCALE].copy()
        scale = torch.from_numpy(numbers)
        ctx.set_materialize_grads(False)
        small = given.size <= _SMALL
        if same_norms:
            ctx.arrays = (room, None, numbers, None, None) if small else None
            ctx.save_for_backward(out, scale)
            return out, scale
        kept = records[:, engines.KEPT].astype(np.int8) if only_increase else None
        norms = None if ctx.rest.setting.rule == "fixed" else records[:, engines.L2].copy()
        ctx.arrays = (room, given if keeps_x else None, numbers, kept, norms) if small else None
        marks, sizes = (None if a is None else torch.from_numpy(a) for a in (kept, norms))
        ctx.save_for_backward(out, scale, x if keeps_x else None, marks, sizes)
        return out, scale

    @staticmethod
    def backward(ctx: Any, g_value: Any, g_scale: Any) -> tuple[Any, None, None]:
        """Return the gradient by x, in one pass of the core where nobody differentiates again."""
        if g_value is None and g_scale is None:
            return None, None, None
        rest = ctx.rest
        value, scale, *others = ctx.saved_tensors
        x, kept, norms = others or (None, None, None)
        if g_scale is None and is_final(value, g_value):
            saved = ctx.arrays or [
                None if t is None else engines.as_array(t) for t in (value, x, scale, kept, norms)
            ]
            return _product(g_value, saved, rest), None, None
        needed = (True, False, False, False)
        batch = value.shape[: value.dim() - rest.setting.inner]
        found = (value, scale.reshape(batch), None if kept is None else kept.reshape(batch))
        g_scale = None if g_scale is None else g_scale.reshape(batch)
        return gradients(x, found, rest.task, (g_value, g_scale), needed)[0], None, None


def _product(y: Tensor, saved: Any, rest: Backward) -> Tensor:
    """Return the transposed Jacobian times y; `saved` are arrays."""
    value, x, scale, kept, norms = saved
    setting = rest.setting
    out, room = _room(y, value)
    same = kept is None and norms is None
    engines.core.gradient_product(
        value,
        engines.as_array(y) if y.requires_grad or y.is_neg() else y.numpy(),
        x,
        room,
        setting.inner,
        rest.record if same else _records(rest, scale.size, kept, norms),
        setting.rule,
        setting.nonnegative,
        True,
        scale,
    )
    return out


def _records(rest: Backward, rows: int, kept: Any, norms: Any) -> Any:
    """Return what the core needs to know about the results but their scales."""
    records = rest.record.repeat(rows, 0)
    if kept is not None:
        records[:, engines.KEPT] = kept
    if norms is not None:
        records[:, engines.L2] = norms
        records[:, engines.L1] = norms * rest.ratio
    return records


# What `Function.apply` does beyond this concerns torch.func, which is asked about before.
_apply: Any = super(torch.autograd.Function, Everyday).apply
