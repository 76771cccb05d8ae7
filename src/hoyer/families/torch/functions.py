"""The projection as a differentiable function: three doors, one set of formulas.

`Projecting` is for eager code, as lean as a Python function can be. `Transformable` is the same for
`torch.func`, whose demands cost every call 10 microseconds. Where PyTorch traces (`torch.compile`,
`torch.export`, fake and meta tensors) the operator ``hoyer::project`` of `operators` stands in the
graph.
"""

from typing import Any

import torch
from torch._C import DispatchKey, _are_functorch_transforms_active, _dispatch_keys
from torch.autograd import forward_ad

from ...engines.arrays.products import Changes, Products, forward_changes, reverse_changes
from ...options import Options
from ...plan import Plan
from .engines import KERNELS, Solved, engine_for, from_records
from .targets import (
    derived_plan,
    plan_of,
    tensors_of,
    with_targets,
    with_tensors,
    without_tensors,
)
from .tensors import XP, Tensor, batch_of, length_of, rows_of

_CPU, _CUDA = DispatchKey.CPU, DispatchKey.CUDA

# ---- derivatives, from what was saved ----


def products_of(at: Solved, both_norms: bool | None = None) -> Products:
    """Return the derivatives of solved projections in plain tensor operations."""
    x = None if at.x is None else rows_of(at.x, at.inner)
    value = rows_of(at.value, at.inner)
    scale = at.scale.reshape(value.shape[:-1])
    return Products(value, scale, x, at.kept, at.plan, XP, both_norms=both_norms)


def gradients(
    at: Solved, given: tuple[Tensor | None, Tensor | None], needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients by x, sparseness, l1 and l2, in plain tensor operations.

    `given` are the gradients by value and scale, and `needed` says which ones are wanted.
    """
    g_value, g_scale = given
    by_target = any(needed[1:])
    by_x, change = products_of(at).cotangent(
        None if g_value is None else rows_of(g_value, at.inner),
        g_scale,
        by_x=needed[0],
        by_target=by_target,
    )
    by_x = None if by_x is None else by_x.reshape(at.value.shape)
    if not by_target:
        return by_x, None, None, None
    return by_x, *_by_targets(at.plan, change, needed[1:])


def _by_targets(plan: Plan, change: Changes, needed: tuple[bool, ...]) -> tuple[Any, ...]:
    """Return the gradients by sparseness, l1 and l2."""
    results: list[Tensor | None] = []
    for target, gradient, wanted in zip(
        tensors_of(plan.options), reverse_changes(plan, change, XP), needed, strict=True
    ):
        if not wanted or target is None:
            results.append(None)
        else:
            # One number for several vectors collects what they all say.
            results.append(gradient.sum_to_size(target.shape).to(target.dtype))
    return tuple(results)


def tangents(at: Solved, along: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
    """Return the tangents of value and scale along those of x, sparseness, l1 and l2."""
    dx = None if along[0] is None else rows_of(along[0], at.inner)
    value, scale = products_of(at).tangent(dx, _changes(at, along))
    return value.reshape(at.value.shape), scale


def _changes(at: Solved, along: tuple[Tensor | None, ...]) -> Changes:
    """Return how the target of every vector moves."""
    sparseness, l1, l2 = along[1:]
    batch = batch_of(at.value, at.inner)
    change = forward_changes(at.plan, (sparseness, l1, l2), XP)
    return Changes(*(None if t is None else t.expand(batch) for t in change))


# ---- eager code ----


class Projecting(torch.autograd.Function):
    """value, scale = projection of x, for eager code."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        ctx: Any, x: Tensor, sparseness: Any, l1: Any, l2: Any, plan: Plan, inner: int, told: Any
    ) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector; `told` gets the records."""
        engine = engine_for(x)
        if told is None:
            at = engine.solved(x, plan, inner)
        else:
            value, records = engine.records(x, plan, inner)
            told.append(records)
            at = from_records(x, value, records, plan, inner)
        # Targets that are tensors are kept by autograd.
        plain = sparseness is None and l1 is None and l2 is None
        ctx.plan, ctx.inner = plan if plain else without_tensors(plan), inner
        ctx.save_for_backward(*at[:5], sparseness, l1, l2)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*at[:5], sparseness, l1, l2)
        ctx.set_materialize_grads(False)
        return at.value, at.scale

    @staticmethod
    def backward(ctx: Any, g_value: Tensor | None, g_scale: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients; in one pass of the engine if nobody differentiates again."""
        if g_value is None and g_scale is None:
            return (None,) * 7
        at, needed = Projecting.saved(ctx), ctx.needs_input_grad[:4]
        by_target = any(needed[1:])
        engine = engine_for(at.value)
        if (
            g_value is not None
            and g_scale is None
            and engine.can_multiply(at.plan, by_target=by_target)
            and not torch.is_grad_enabled()
            and not is_mapped(at.value, g_value)
        ):
            by_x, change = engine.backward(at, g_value, by_target=by_target)
            by_targets = _by_targets(at.plan, change, needed[1:]) if by_target else (None,) * 3
            return by_x if needed[0] else None, *by_targets, None, None, None
        return *gradients(at, (g_value, g_scale), needed), None, None, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor]:
        """Return the tangents of value and scale; by the kernels if nobody differentiates again."""
        at = Projecting.saved(ctx)
        given = [tangent for tangent in along[:4] if tangent is not None]
        watched = any(ctx.needs_input_grad) or (
            torch.is_grad_enabled() and any(tangent.requires_grad for tangent in given)
        )
        if (
            engine_for(at.value) is KERNELS
            and KERNELS.can_multiply(at.plan)
            and not watched
            and not _are_functorch_transforms_active()
            and all(_dispatch_keys(t).has(_CUDA if t.is_cuda else _CPU) for t in given)
        ):
            return KERNELS.forward(at, along[0], _changes(at, along[:4]))
        value, scale = tangents(at, along[:4])
        return value, scale.reshape(at.scale.shape)

    @staticmethod
    def saved(ctx: Any) -> Solved:
        """Return what was saved, in the terms of the formulas."""
        value, scale, kept, norms, x, *targets = ctx.saved_tensors
        plan = with_targets(ctx.plan, tuple(targets))
        return Solved(value, scale, kept, norms, x, plan, ctx.inner)


def is_mapped(value: Tensor, gradient: Tensor) -> bool:
    """Whether a backward pass is transformed, or its gradient is no plain tensor."""
    return (
        _are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or not _dispatch_keys(gradient).has(_CUDA if value.is_cuda else _CPU)
    )


# What `Function.apply` does beyond this concerns torch.func, which is asked about before.
apply_eagerly: Any = super(torch.autograd.Function, Projecting).apply


# ---- torch.func ----


class Transformable(torch.autograd.Function):
    """value, scale, kept = projection of x, under the transformations of `torch.func`.

    The plan is made in here: outside, targets that are tensors may stand for many.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        x: Tensor, sparseness: Any, l1: Any, l2: Any, options: Options, inner: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Project."""
        plan = plan_of(x, inner, with_tensors(options, (sparseness, l1, l2)))
        at = engine_for(x).solved(x, plan, inner)
        scale = at.scale.reshape(batch_of(x, inner))
        return at.value, scale, torch.zeros(0) if at.kept is None else at.kept

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep the result and a few numbers per vector."""
        x, sparseness, l1, l2, options, inner = inputs
        value, scale, kept = output
        ctx.mark_non_differentiable(kept)
        ctx.options, ctx.inner = options, inner
        needs_x = derived_plan(length_of(x, inner), options).needs_x
        saved = (value, scale, x if needs_x else None, kept)
        ctx.save_for_backward(*saved, sparseness, l1, l2)
        ctx.save_for_forward(*saved, sparseness, l1, l2)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g_value: Any, g_scale: Any, _: Any) -> tuple[Any, ...]:
        """Return the gradients."""
        if g_value is None and g_scale is None:
            return (None,) * 6
        at = _saved(ctx, ctx.saved_tensors)
        needed = tuple(ctx.needs_input_grad[:4])
        return *gradients(at, (g_value, g_scale), needed), None, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor, None]:
        """Return the tangents of value and scale.

        PyTorch calls this with forward mode switched off, which would make the tangents constants
        for a transformation around this one. So it is on here, and the inputs lose the tangents of
        this level, which they still carry.
        """
        value, scale, x, kept, *targets = ctx.saved_tensors
        with forward_ad._set_fwd_grad_enabled(True):
            x, *targets = (None if t is None else _primal(t) for t in (x, *targets))
            at = _saved(ctx, (value, scale, x, kept, *targets))
            return *tangents(at, along[:4]), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int, int]]:
        """Make the mapped axis the first of the batch."""
        options, inner = inputs[4:]
        moved = batch_first(info.batch_size, in_dims[:4], inputs[:4], inner)
        apply: Any = Transformable.apply
        value, scale, kept = apply(*moved, options, inner)
        if not options.only_increase:
            kept = kept.expand(info.batch_size, 0)
        return (value, scale, kept), (0, 0, 0)


def _saved(ctx: Any, saved: tuple[Any, ...]) -> Solved:
    """Return what `Transformable` saved, in the terms of the formulas."""
    value, scale, x, kept, *targets = saved
    options = with_tensors(ctx.options, tuple(targets))
    plan = derived_plan(length_of(value, ctx.inner), options)
    kept = kept if options.only_increase else None
    return Solved(value, scale, kept, None, x, plan, ctx.inner)


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
