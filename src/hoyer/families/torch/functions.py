"""The projection as a differentiable function of eager code; derivatives from what was saved.

`Projecting` is as lean as a Python function can be. `torch.func`, whose demands would cost every
call 10 microseconds, and whatever traces (`torch.compile`, `torch.export`, fake and meta tensors)
have functions of their own in `operators`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch._C import _has_storage
from torch.autograd import forward_ad

from ...engines.arrays.products import Changes, Products, forward_changes, reverse_changes
from ...plan import Plan
from .engines import Solved, engine_for, new_solved
from .targets import Targets, filled
from .tensors import XP, Tensor, batch_of, rows_of, transforming

# ---- derivatives, from what was saved ----


def products_of(at: Solved) -> Products:
    """Return the derivatives of solved projections in plain tensor operations."""
    x = None if at.x is None else rows_of(at.x, at.inner)
    value = rows_of(at.value, at.inner)
    batch = value.shape[:-1]
    active = None if at.active is None else at.active.reshape(batch)
    return Products(value, at.scale.reshape(batch), x, active, at.plan, XP)


def gradients(
    at: Solved,
    targets: Targets,
    given: tuple[Tensor | None, Tensor | None],
    needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients by x, sparseness, l1 and l2, in plain tensor operations.

    `given` are the gradients by value and scale, and `needed` says which ones are wanted.
    """
    g_value, g_scale = given
    by_x, change = products_of(at).cotangent(
        None if g_value is None else rows_of(g_value, at.inner),
        None if g_scale is None else g_scale.reshape(batch_of(at.value, at.inner)),
        by_x=needed[0],
        by_target=any(needed[1:]),
    )
    by_x = None if by_x is None else by_x.reshape(at.value.shape)
    return by_x, *by_targets_of(at.plan, targets, change, needed)


def _entries(plan: Plan) -> Any:
    """Return how many entries vectors have: a number, or one for each."""
    return plan.n if plan.lengths is None else plan.lengths


def by_targets_of(
    plan: Plan, targets: Targets, change: Changes, needed: tuple[bool, ...]
) -> Targets:
    """Return the gradients by sparseness, l1 and l2; changes may be sums over all vectors."""
    results: list[Tensor | None] = [None, None, None]
    if any(needed[1:]):
        for i, gradient in enumerate(reverse_changes(_entries(plan), targets, change, XP)):
            if not needed[i + 1]:
                continue
            if isinstance(gradient, float):
                # In float64 first: what is too large for the target's type becomes infinity.
                wide = torch.full_like(targets[i], gradient, dtype=torch.float64)
                results[i] = wide.to(targets[i].dtype)
            else:
                # One number for several vectors collects what they all say.
                results[i] = gradient.sum_to_size(targets[i].shape).to(targets[i].dtype)
    by_sparseness, by_l1, by_l2 = results
    return by_sparseness, by_l1, by_l2


def tangents(
    at: Solved, targets: Targets, along: tuple[Tensor | None, ...], *, by_engine: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the tangents of value and scale along those of x, sparseness, l1 and l2.

    They can be differentiated, unless they come from the engine.
    """
    dx, sparseness, l1, l2 = along
    batch = batch_of(at.value, at.inner)
    change = forward_changes(_entries(at.plan), targets, (sparseness, l1, l2), XP)
    change = Changes(*(None if moved is None else moved.expand(batch) for moved in change))
    found = engine_for(at.value).tangents(at, dx, change) if by_engine else None
    if found is not None:
        return found
    value, scale = products_of(at).tangent(None if dx is None else rows_of(dx, at.inner), change)
    return value.reshape(at.value.shape), scale


# ---- eager code ----


Job: TypeAlias = tuple[Callable[[Tensor, Plan, int], Solved], Plan, int]
"""An engine's function, and what it is called with after x."""


class Projecting(torch.autograd.Function):
    """value, scale = projection of x, for eager code."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        ctx: Any, x: Tensor, sparseness: Any, l1: Any, l2: Any, job: Job
    ) -> tuple[Tensor, Tensor]:
        """Project, and keep the result and a few numbers per vector."""
        find, plan, inner = job
        at = find(x, plan, inner)
        ctx.plan, ctx.inner = plan, inner
        # The mask is the plan's: it is saved to be told if somebody changes it.
        ctx.save_for_backward(*at[:5], sparseness, l1, l2, plan.where)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*at[:5], sparseness, l1, l2, plan.where)
        ctx.set_materialize_grads(False)
        return at.value, at.scale

    @staticmethod
    def backward(ctx: Any, g_value: Tensor | None, g_scale: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients; in one pass of the engine if nobody differentiates again."""
        if g_value is None and g_scale is None:
            return (None,) * 5
        at, tensors = Projecting.saved(ctx)
        needed, found = ctx.needs_input_grad[:4], None
        if g_value is not None and g_scale is None and is_plain(g_value):
            by_target = needed[1] or needed[2] or needed[3]
            together = by_target and _all_share(at.plan, tensors)
            engine = engine_for(g_value)
            found = engine.product(at, g_value, by_target=by_target, together=together)
            if found is not None and not by_target:
                return found[0], None, None, None, None
        targets = filled(tensors, at.plan.options[:3])
        if found is None:
            return *gradients(at, targets, (g_value, g_scale), needed), None
        by_x, change = found
        by_targets = by_targets_of(at.plan, targets, change, needed)
        return by_x if needed[0] else None, *by_targets, None

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor]:
        """Return the tangents of value and scale; by the engine if nobody differentiates again."""
        at, tensors = Projecting.saved(ctx)
        given = [tangent for tangent in along[:4] if tangent is not None]
        watched = any(ctx.needs_input_grad) or (
            torch.is_grad_enabled() and any(tangent.requires_grad for tangent in given)
        )
        by_engine = not watched and not transforming()
        by_engine = by_engine and all(map(_has_numbers, given))
        targets = filled(tensors, at.plan.options[:3])
        value, scale = tangents(at, targets, along[:4], by_engine=by_engine)
        return value, scale.reshape(at.scale.shape)

    @staticmethod
    def saved(ctx: Any) -> tuple[Solved, Targets]:
        """Return what was saved: the projections, and those targets that are tensors."""
        value, scale, active, norms, x, *tensors, _ = ctx.saved_tensors
        return new_solved((value, scale, active, norms, x, ctx.plan, ctx.inner)), tensors


def _all_share(plan: Plan, targets: Targets) -> bool:
    """Whether each target is one number for vectors of one length: their gradients add up."""
    return plan.lengths is None and all(target is None or not target.dim() for target in targets)


def is_plain(gradient: Tensor) -> bool:
    """Whether nobody differentiates or transforms a backward pass."""
    return not (
        torch.is_grad_enabled() or transforming() or forward_ad._current_level >= 0
    ) and _has_numbers(gradient)


def _has_numbers(x: Tensor) -> bool:
    """Whether x is no stand-in for numbers, such as a tensor of several gradients at once."""
    return bool(_has_storage(x)) and not x._is_zerotensor()


# What `Function.apply` does beyond this concerns torch.func, which is asked about before.
apply_eagerly: Any = super(torch.autograd.Function, Projecting).apply
