"""The projection for whatever traces or transforms functions: a function of tensors and numbers.

``torch.ops.hoyer.project`` is one node of a traced graph, ``torch.ops.hoyer.locate`` the same
without derivatives. `Transformable` is for `torch.func`, in whose forward mode the derivatives of
such operators would be zero.
"""

from typing import Any

import torch
from torch.autograd import forward_ad

from ...engines.arrays import smooth
from ...options import NORM_RULES, Options
from .engines import Solved, engine_for, some_differ
from .functions import gradients, tangents
from .targets import (
    Targets,
    derived_plan,
    filled,
    plan_of,
    smooth_plan,
    tensors_of,
    with_targets,
)
from .tensors import XP, Tensor, batch_of, rows_of, transforming

# ---- the function ----


SCHEMA = """(
    Tensor x, Tensor? sparseness, Tensor? l1, Tensor? l2,
    float? sparseness_number, float? l1_number, float? l2_number, str rule, SymInt inner,
    bool nonnegative, bool only_increase, str solver, bool check_finite, bool at_most=False,
    Tensor? where=None
) -> (Tensor, Tensor, Tensor)"""
"""What `_project` takes and returns; what came later has defaults, which exported programs need."""

_INNER, _WHERE = 8, 14
"""Which arguments these are; x is the first, and the targets that may be tensors come next."""
_COUNT = _WHERE + 1


def _project(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Project the vectors in the last `inner` axes; return value, scale and which norms bind."""
    tensors = (_as_host_number(target, x) for target in arguments[:3])
    options, inner = _options(tensors, arguments[3:])
    at = engine_for(x).solved(x, plan_of(x, inner, options), inner)
    scale = at.scale.reshape(batch_of(x, inner))
    active = torch.zeros_like(scale, dtype=torch.int8) if at.active is None else at.active
    return at.value, scale, active


def _arguments(options: Options, inner: int) -> tuple[Any, ...]:
    """Return what `_project` takes after x."""
    sparseness, l1, l2 = (
        None if isinstance(given, torch.Tensor) else given for given in options[:3]
    )
    return (
        *tensors_of(options),
        sparseness,
        l1,
        None if isinstance(l2, str) else l2,
        options.rule,
        inner,
        bool(options.nonnegative),
        bool(options.only_increase),
        options.solver,
        bool(options.check_finite),
        bool(options.at_most),
        options.where,
    )


def _options(tensors: Any, rest: tuple[Any, ...]) -> tuple[Options, int]:
    """Return the options and the number of axes of a vector: the inverse of `_arguments`."""
    sparseness, l1, l2, rule, inner, *switches = rest
    numbers = (sparseness, l1, rule if rule in NORM_RULES else l2)
    return Options(*filled(tensors, numbers), -1, *switches), inner


def _as_host_number(target: Tensor | None, x: Tensor) -> Any:
    """Return a number that lies on the host, for vectors on a device, as the number it is."""
    if target is None or not target.is_cpu or x.is_cpu:
        return target
    return target.item()


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """Keep the result and a few numbers per vector."""
    x, tensors, where, ctx.rest = inputs[0], inputs[1:4], inputs[_WHERE], inputs[4:_WHERE]
    value, scale, active = output
    ctx.mark_non_differentiable(active)
    options, inner = _options(tensors, (*ctx.rest, where))
    plan = derived_plan(x, inner, options)
    saved = (
        value,
        scale,
        active if some_differ(plan) else None,
        x if plan.needs_x else None,
        where,
        *tensors,
    )
    ctx.save_for_backward(*saved)
    ctx.save_for_forward(*saved)
    ctx.set_materialize_grads(False)


def _saved(ctx: Any, saved: tuple[Any, ...]) -> tuple[Solved, Targets]:
    """Return what was saved, in the terms of the formulas."""
    value, scale, active, x, where, *tensors = saved
    options, inner = _options(tensors, (*ctx.rest, where))
    plan = derived_plan(value, inner, options)
    return Solved(value, scale, active, None, x, plan, inner), options[:3]


def _backward(ctx: Any, g_value: Any, g_scale: Any, _: Any) -> tuple[Any, ...]:
    """Return the gradients."""
    if g_value is None and g_scale is None:
        return (None,) * _COUNT
    at, targets = _saved(ctx, ctx.saved_tensors)
    needed = tuple(ctx.needs_input_grad[:4])
    return *gradients(at, targets, (g_value, g_scale), needed), *(None,) * (_COUNT - 4)


def _mapped(function: Any) -> Any:
    """Return a rule by which a function is mapped over an axis: it becomes the first one."""

    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int, int]]:
        (x, *tensors), (place, *places), inner = inputs[:4], in_dims[:4], inputs[_INNER]
        batch = x.dim() - (place is not None) - inner
        x = x.expand(info.batch_size, *x.shape) if place is None else x.movedim(place, 0)
        moved = (
            target if place is None else _batch_first(target, place, batch)
            for target, place in zip(tensors, places, strict=True)
        )
        rest, where, place = inputs[4:_WHERE], None, None
        if len(inputs) > _WHERE:
            where, place = inputs[_WHERE], in_dims[_WHERE]
        if where is not None:
            where = (where if place is None else where.movedim(place, 0)).expand(x.shape)
        return function(x, *moved, *rest, where), (0, 0, 0)

    return rule


def _batch_first(target: Tensor, place: int, batch: int) -> Tensor:
    """Put the mapped axis of a target before all axes of the batch, as many as x has."""
    target = target.movedim(place, 0)
    missing = batch - (target.dim() - 1)
    return target.reshape(target.shape[0], *(1,) * missing, *target.shape[1:])


# ---- torch.func ----


class Transformable(torch.autograd.Function):
    """value, scale, active = projection of x, under the transformations of `torch.func`.

    The plan is made in here: outside, targets that are tensors may stand for many.
    """

    forward = staticmethod(_project)
    setup_context = staticmethod(_setup_context)
    backward = staticmethod(_backward)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> Any:
        """Make the mapped axis the first of the batch."""
        return _mapped(Transformable.apply)(info, in_dims, *inputs)

    @staticmethod
    def jvp(ctx: Any, *along: Any) -> tuple[Tensor, Tensor, None]:
        """Return the tangents of value and scale.

        PyTorch calls this with forward mode switched off, which would make the tangents constants
        for a transformation around this one. So it is on here, and the inputs lose the tangents of
        this level, which they still carry.
        """
        value, scale, active, *inputs = ctx.saved_tensors
        with forward_ad._set_fwd_grad_enabled(True):
            primals = (None if t is None else _primal(t) for t in inputs)
            at, targets = _saved(ctx, (value, scale, active, *primals))
            return *tangents(at, targets, along[:4]), None


def _primal(tensor: Tensor) -> Tensor:
    unpack: Any = forward_ad.unpack_dual
    primal: Tensor = unpack(tensor, level=0).primal
    return primal


def project_transformed(x: Tensor, options: Options, inner: int) -> Tensor:
    """Project where `torch.func` transforms a function."""
    apply: Any = Transformable.apply
    value: Tensor = apply(x, *_arguments(options, inner))[0]
    return value


# ---- traced graphs ----


_differentiable, _constant = (
    torch.library.custom_op(f"hoyer::{name}", _project, mutates_args=(), schema=SCHEMA)
    for name in ("project", "locate")
)


def _fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_of(x, arguments[_INNER - 1])
    return (
        torch.empty_like(x),
        x.new_empty(batch, dtype=XP.wide(x)),
        x.new_empty(batch, dtype=torch.int8),
    )


for _operator in (_differentiable, _constant):
    _operator.register_fake(_fake)
    _operator.register_vmap(_mapped(_operator))
_differentiable.register_autograd(_backward, setup_context=_setup_context)


def project_traced(x: Tensor, options: Options, inner: int) -> Tensor:
    """Project where PyTorch traces; derivatives are those of the operator."""
    if torch.compiler.is_compiling() and transforming():
        return _project_smoothly(x, options, inner)
    value: Tensor = _differentiable(x, *_arguments(_general(options), inner))[0]
    return value


def _project_smoothly(x: Tensor, options: Options, inner: int) -> Tensor:
    """Project for `torch.func` inside of `torch.compile`.

    No differentiable operator is understood by both: the support comes from the operator without
    derivatives, the rest is the closed form.
    """
    given = (t.detach() if isinstance(t, torch.Tensor) else t for t in options[:3])
    constants = _general(with_targets(options, given))
    value, scale, active = _constant(x.detach(), *_arguments(constants, inner))
    plan = smooth_plan(x, inner, options)
    rows = rows_of(x, inner)
    result: Tensor = smooth.closed_form(rows, rows_of(value, inner), scale, active, plan, XP)
    return result.reshape(x.shape)


def _general(options: Options) -> Options:
    """Return the options with numbers as tensors: one compiled function then serves all of them.

    They stay on the host, whatever device x is on, and become numbers again in `_as_host_number`.
    """
    general = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    return with_targets(options, [_as_argument(t, general=general) for t in options[:3]])


def _as_argument(target: Any, *, general: bool) -> Any:
    if target is None or isinstance(target, torch.Tensor | str):
        return target
    if general and isinstance(target, float):
        # A product: PyTorch makes a tensor of a number that is a factor, and of few others.
        return torch.ones((), dtype=torch.float64, device="cpu") * target
    return target if isinstance(target, float) else float(target)
