"""The everyday call: a contiguous CPU tensor, vectors along its last axis, numbers as targets.

The same as the general walk with everything that does not depend on the entries looked up, so that
a call on a short vector costs little more than PyTorch's own bookkeeping.
"""

from functools import lru_cache
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


class Recipe(NamedTuple):
    """What a call needs beside the tensor."""

    plan: Any
    length: int
    same_norms: bool
    keeps_x: bool
    only_increase: bool
    backward: Backward


@lru_cache(maxsize=256, typed=True)
def _recipe(n: int, *given: Any) -> Recipe:
    """Return the recipe for these options; a TypeError says that they hold no plain numbers."""
    from ..numpy import plan_for  # noqa: PLC0415 - needs the core, which is there by now

    options = Options(*given)
    targets: tuple[Any, ...] = (options.sparseness, options.l1, options.l2)
    if n == 0 or not all(t is None or isinstance(t, float | int | str) for t in targets):
        raise TypeError
    task = Task(options, 1)
    plan = plan_for(n, options, ())
    norms = engines.known_norms(n, task)
    record = np.zeros(_FIELDS)
    record[engines.L1 : engines.L2 + 1] = norms or (0.0, 0.0)
    setting = task.setting
    return Recipe(
        plan,
        n,
        norms is not None,
        setting.rule == "keep",
        bool(options.only_increase),
        Backward(task, setting, record),
    )


def project(x: Tensor, options: Options) -> Tensor | None:
    """Return the projection, or None if this is no everyday call."""
    shape = x.shape
    if (
        type(x) not in _TYPES
        or x.dtype not in _NATIVE
        or not x.is_cpu
        or options.axis != -1
        or not shape
        or not x.is_contiguous()
        or x.is_neg()
        or engines.core is None
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _is_tracing()
        or forward_ad._current_level >= 0
    ):
        return None
    try:
        given: tuple[Any, ...] = options
        recipe = _recipe(shape[-1], *given)
    except TypeError:
        # A target for each vector; or something wrong, which is then said again.
        return None
    if x.requires_grad and torch.is_grad_enabled():
        value: Tensor = _apply(unwrap_if_dead(x), recipe)[0]
        return value
    out = torch.empty_like(x)
    bad = engines.core.project(x.detach().numpy(), out.numpy(), recipe.plan, 1, False)
    if bad >= 0:
        raise ValueError(engines.describe(x, 1, bad))
    return out


class Everyday(torch.autograd.Function):
    """value, scale = projection of x; one scale per vector, whatever the shape of the batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector."""
        given = x.detach().numpy()
        if given.size <= _SMALL:
            # NumPy finds little memory faster than PyTorch does.
            room = np.empty(given.shape, given.dtype)
            out = torch.from_numpy(room)
        else:
            out = torch.empty_like(x)
            room = out.numpy()
        records = np.empty((given.size // recipe.length, _FIELDS))
        bad = engines.core.project(given, room, recipe.plan, 1, False, False, False, records)
        if bad >= 0:
            raise ValueError(engines.describe(x, 1, bad))
        scale = torch.from_numpy(records[:, engines.SCALE].copy())
        # Not the recipe itself: graphs may outlive the core, to which the plan belongs.
        ctx.rest = recipe.backward
        ctx.set_materialize_grads(False)
        kept = None
        if recipe.same_norms:
            ctx.save_for_backward(out, scale)
        else:
            if recipe.only_increase:
                kept = torch.from_numpy(records[:, engines.KEPT].astype(np.int8))
            norms = torch.from_numpy(records[:, engines.L1 : engines.L2 + 1].copy())
            ctx.save_for_backward(out, scale, x if recipe.keeps_x else None, kept, norms)
        return out, scale

    @staticmethod
    def backward(ctx: Any, g_value: Any, g_scale: Any) -> tuple[Any, None]:
        """Return the gradient by x, in one pass of the core where nobody differentiates again."""
        if g_value is None and g_scale is None:
            return None, None
        rest = ctx.rest
        value, scale, *others = ctx.saved_tensors
        x, kept, norms = others or (None, None, None)
        if g_scale is None and is_final(value, g_value):
            if norms is None:
                numbers = scale.numpy()
                records = np.empty((numbers.size, _FIELDS))
                records[:] = rest.record
                records[:, engines.SCALE] = numbers
            else:
                records = engines.records_of(scale, norms[:, 0], norms[:, 1], kept)
            return engines.product(value, g_value, x, records, rest.setting, reverse=True), None
        needed = (True, False, False, False)
        batch = value.shape[:-1]
        saved = (value, scale.reshape(batch), None if kept is None else kept.reshape(batch))
        g_scale = None if g_scale is None else g_scale.reshape(batch)
        return gradients(x, saved, rest.task, (g_value, g_scale), needed)[0], None


# What `Function.apply` does beyond this concerns torch.func, which is asked about before.
_apply: Any = super(torch.autograd.Function, Everyday).apply
