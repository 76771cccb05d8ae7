"""The projection as a differentiable function: three doors, one set of formulas.

`Projecting` is for eager code, as lean as a Python function can be. `Transformable` is the same for
`torch.func`, whose demands cost every call 10 microseconds. Where PyTorch traces (`torch.compile`,
`torch.export`, fake and meta tensors) the operator ``hoyer::project`` stands in the graph.
"""

from typing import Any

import torch
from torch._C import DispatchKey, _are_functorch_transforms_active, _dispatch_keys
from torch.autograd import forward_ad

from ...engines.arrays.products import Linearization, Setting, nearly_constant, needs_x
from . import engines
from .engines import Task
from .targets import NAMES, Changes, forward_changes, parts_of, reverse_changes, tensors_of
from .tensors import Tensor, length_of, wide_type

_CPU, _CUDA = DispatchKey.CPU, DispatchKey.CUDA


def run(x: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor | None]:
    """Project and return what derivatives need: the value, beta, and who kept its direction."""
    found = engines.find(x, task)
    return found.value, found.scale, found.kept


def with_targets(task: Task, targets: tuple[Any, Any, Any]) -> Task:
    """Return the task with the tensors among its targets replaced."""
    given = {name: t for name, t in zip(NAMES, targets, strict=True) if t is not None}
    return task._replace(options=task.options._replace(**given)) if given else task


# ---- derivatives, from what was saved ----


def gradients(
    x: Tensor | None,
    saved: tuple[Tensor, Tensor, Tensor | None],
    task: Task,
    given: tuple[Tensor | None, Tensor | None],
    needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients by x, sparseness, l1 and l2, in plain tensor operations.

    `x` is only needed where `needs_x` says so, `saved` is what `run` returned, `task` holds the
    targets, `given` are the gradients by value and scale, and `needed` says which ones are wanted.
    """
    value, scale, kept = saved
    at = Linearization(value, scale, x, kept, _setting(value, task))
    by_target = any(needed[1:])
    by_x, change = at.cotangent(*given, by_x=needed[0], by_target=by_target)
    if not by_target:
        return by_x, None, None, None
    return by_x, *_by_targets(length_of(value, task.inner), task, change, needed[1:])


def _setting(value: Tensor, task: Task) -> Setting:
    nearly = nearly_constant(length_of(value, task.inner), task.options)
    return task.setting._replace(nearly_constant=nearly)


def _by_targets(
    n: int, task: Task, change: Changes, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients by sparseness, l1 and l2."""
    assert change.ratio is not None
    parts = parts_of(n, task.options, change.ratio.dtype)
    results: list[Tensor | None] = []
    for target, gradient, wanted in zip(
        tensors_of(task.options), reverse_changes(parts, change), needed, strict=True
    ):
        if not wanted or target is None:
            results.append(None)
        else:
            # One number for several vectors collects what they all say.
            results.append(gradient.sum_to_size(target.shape).to(target.dtype))
    return tuple(results)


def tangents(
    x: Tensor | None,
    saved: tuple[Tensor, Tensor, Tensor | None],
    task: Task,
    along: tuple[Tensor | None, ...],
) -> tuple[Tensor, Tensor]:
    """Return the tangents of value and scale along those of x, sparseness, l1 and l2."""
    value, scale, kept = saved
    at = Linearization(value, scale, x, kept, _setting(value, task))
    return at.tangent(along[0], _changes(value, scale, task, along))


def _changes(value: Tensor, scale: Tensor, task: Task, along: tuple[Tensor | None, ...]) -> Changes:
    """Return how the target of every vector moves."""
    wide = wide_type(value.device)
    parts = parts_of(length_of(value, task.inner), task.options, wide)
    moves = [None if t is None else t.to(wide) for t in along[1:]]
    change = forward_changes(parts, (moves[0], moves[1], moves[2]))
    return Changes(*(None if t is None else t.expand(scale.shape) for t in change))


class Projecting(torch.autograd.Function):
    """value, scale = projection of x, for eager code."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        ctx: Any, x: Tensor, sparseness: Any, l1: Any, l2: Any, task: Task, told: Any = None
    ) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector; `told` gets the records."""
        task = with_targets(task, (sparseness, l1, l2))
        if told is None:
            found = engines.find(x, task)
        else:
            value, records = engines.project(x, task)
            told.append(records)
            found = engines.from_records(value, records, task)
        saved = (*found, x if needs_x(length_of(x, task.inner), task.options) else None)
        ctx.task = task._replace(options=_without_tensors(task.options))
        ctx.save_for_backward(*saved, sparseness, l1, l2)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*saved, sparseness, l1, l2)
        ctx.set_materialize_grads(False)
        return found.value, found.scale

    @staticmethod
    def backward(ctx: Any, g_value: Tensor | None, g_scale: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients; in one pass of the engine if nobody differentiates again."""
        if g_value is None and g_scale is None:
            return (None,) * 6
        value, scale, kept, norms, x, *targets = ctx.saved_tensors
        task = with_targets(ctx.task, tuple(targets))
        needed = ctx.needs_input_grad[:4]
        by_target = any(needed[1:])
        known = not (by_target and task.setting.rule == "nearest" and engines.uses_core(value))
        known = known and not must_be_plain(value, task)
        if g_value is not None and g_scale is None and known and is_final(value, g_value):
            found = engines.Found(value, scale, kept, norms)
            by_x, change = engines.backward(found, g_value, x, task, by_target=by_target)
            results: tuple[Any, ...] = (None,) * 3
            if by_target:
                n = length_of(value, task.inner)
                results = _by_targets(n, task, change, needed[1:])
            return by_x if needed[0] else None, *results, None, None
        results = gradients(x, (value, scale, kept), task, (g_value, g_scale), needed)
        return *results, None, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor]:
        """Return the tangents of value and scale; by the kernels if nobody differentiates again."""
        value, scale, kept, _, x, *targets = ctx.saved_tensors
        task = with_targets(ctx.task, tuple(targets))
        final = not any(ctx.needs_input_grad) and are_final(value, along[:4])
        if final and not must_be_plain(value, task):
            found = engines.Found(value, scale, kept, None)
            change = _changes(value, scale, task, along[:4])
            return engines.forward(found, along[0], x, change, task.setting)
        return tangents(x, (value, scale, kept), task, along[:4])


def _without_tensors(options: Any) -> Any:
    """Targets that are tensors are kept by autograd; what stays is that they were given."""
    return options._replace(
        **{
            name: 0.0
            for name, tensor in zip(NAMES, tensors_of(options), strict=True)
            if tensor is not None
        }
    )


def is_final(value: Tensor, gradient: Tensor) -> bool:
    """Whether the backward pass is neither differentiated nor mapped: an engine may do it."""
    return not (
        torch.is_grad_enabled()
        or _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or not engines.can_multiply(value)
        or not _dispatch_keys(gradient).has(_CUDA if value.is_cuda else _CPU)
    )


def are_final(value: Tensor, tangents: tuple[Tensor | None, ...]) -> bool:
    """Whether tangents are neither differentiated nor mapped: the kernels may take them."""
    given = [tangent for tangent in tangents if tangent is not None]
    return not (
        _are_functorch_transforms_active()
        or not engines.uses_kernels(value)
        or (torch.is_grad_enabled() and any(tangent.requires_grad for tangent in given))
        or not all(_dispatch_keys(t).has(_CUDA if value.is_cuda else _CPU) for t in given)
    )


def must_be_plain(value: Tensor, task: Task) -> bool:
    """Whether the kernels, which look at results alone, do not see how entries differ."""
    nearly = nearly_constant(length_of(value, task.inner), task.options)
    return nearly and engines.uses_kernels(value)


class Transformable(torch.autograd.Function):
    """value, scale, kept = projection of x, under the transformations of `torch.func`."""

    @staticmethod
    def forward(
        x: Tensor, sparseness: Any, l1: Any, l2: Any, task: Task
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project."""
        value, scale, kept = run(x, with_targets(task, (sparseness, l1, l2)))
        return value, scale, torch.zeros(0) if kept is None else kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep the result and a few numbers per vector."""
        x, sparseness, l1, l2, task = inputs
        value, scale, kept = output
        ctx.mark_non_differentiable(kept)
        ctx.task = task
        keeps_x = needs_x(length_of(x, task.inner), task.options)
        saved = (value, scale, x if keeps_x else None, kept)
        ctx.save_for_backward(*saved, sparseness, l1, l2)
        ctx.save_for_forward(*saved, sparseness, l1, l2)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g_value: Any, g_scale: Any, _: Any) -> tuple[Any, ...]:
        """Return the gradients."""
        if g_value is None and g_scale is None:
            return None, None, None, None, None
        value, scale, x, kept, *targets = ctx.saved_tensors
        task = with_targets(ctx.task, tuple(targets))
        saved = (value, scale, kept if task.options.only_increase else None)
        needed = tuple(ctx.needs_input_grad[:4])
        return *gradients(x, saved, task, (g_value, g_scale), needed), None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor, None]:
        """Return the tangents of value and scale.

        PyTorch calls this with forward mode switched off, which would make the tangents constants
        for a transformation around this one. So it is on here, and the inputs lose the tangents of
        this level, which they still carry.
        """
        value, scale, x, kept, *targets = ctx.saved_tensors
        with forward_ad._set_fwd_grad_enabled(True):
            x, sparseness, l1, l2 = (None if t is None else _primal(t) for t in (x, *targets))
            task = with_targets(ctx.task, (sparseness, l1, l2))
            saved = (value, scale, kept if task.options.only_increase else None)
            return *tangents(x, saved, task, along[:4]), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int, int]]:
        """Make the mapped axis the first of the batch."""
        task = inputs[-1]
        moved = batch_first(info.batch_size, in_dims[:4], inputs[:4], task.inner)
        apply: Any = Transformable.apply
        value, scale, kept = apply(*moved, task)
        if not task.options.only_increase:
            kept = kept.expand(info.batch_size, 0)
        return (value, scale, kept), (0, 0, 0)


def _primal(tensor: Tensor) -> Tensor:
    unpack: Any = forward_ad.unpack_dual
    primal: Tensor = unpack(tensor, level=0).primal
    return primal


def batch_first(
    size: int, places: tuple[Any, ...], inputs: tuple[Any, ...], inner: int
) -> tuple[Any, ...]:
    """Return x and the targets with the axis that is mapped over as the first of the batch."""
    x, *targets = inputs
    batch = x.dim() - (places[0] is not None) - inner
    x = x.expand(size, *x.shape) if places[0] is None else x.movedim(places[0], 0)
    return x, *(
        target if place is None else _batched(target, place, batch)
        for target, place in zip(targets, places[1:], strict=True)
    )


def _batched(target: Tensor, place: int, batch: int) -> Tensor:
    """Put the mapped axis of a target before all axes of the batch, as many as x has."""
    target = target.movedim(place, 0)
    missing = batch - (target.dim() - 1)
    return target.reshape(target.shape[0], *(1,) * missing, *target.shape[1:])
