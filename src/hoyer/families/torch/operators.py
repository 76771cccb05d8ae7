"""The projection for whatever traces or transforms functions: a function of tensors and numbers.

``torch.ops.hoyer.project`` is one node of a traced graph, and ``torch.ops.hoyer.locate`` the same
without derivatives. The backward pass is ``torch.ops.hoyer.multiply`` where the core or the CUDA
kernels have it, else plain operations. `Transformable` is for `torch.func`, in whose forward mode
the derivatives of such operators would be zero.
"""

from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad

from ...engines.arrays import smooth
from ...engines.arrays.products import NO_CHANGE, Changes
from ...options import NORM_RULES, Options
from .engines import Solved, engine_for, some_differ, uses_core, uses_kernels
from .functions import by_targets_of, gradients, products_of, tangents
from .targets import (
    Targets,
    derived_plan,
    filled,
    plan_of,
    smooth_plan,
    tensors_of,
    with_targets,
)
from .tensors import XP, Tensor, batch_of, is_real, is_watched, rows_of, transforming

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
_DEFAULTS = (False, None)
"""Of the last arguments."""


def _project(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Project the vectors in the last `inner` axes; return value, scale and which norms bind.

    The latter is empty if the same ones bind for all vectors.
    """
    tensors = (_as_host_number(target, x) for target in arguments[:3])
    options, inner = _options(tensors, arguments[3:])
    at = engine_for(x).solved(x, plan_of(x, inner, options), inner)
    batch = batch_of(x, inner)
    scale = at.scale.reshape(batch)
    return at.value, scale, _no_marks(scale) if at.active is None else at.active.reshape(batch)


def _no_marks(scale: Tensor) -> Tensor:
    return scale.new_empty((*scale.shape, 0), dtype=torch.int8)


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
    """Return a number that lies on the host as the number it is: plans for numbers are remembered.

    Beside vectors on the host only a double is: how far others are clamped depends on their type.
    """
    if target is None or not target.is_cpu or target.dim() > 0:
        return target
    return target.item() if not x.is_cpu or target.dtype == torch.float64 else target


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
    by_target = any(needed[1:])
    if g_scale is None and _has_product(at, by_target=by_target):
        tensors, where = ctx.saved_tensors[5:], at.plan.where
        multiply = torch.ops.hoyer.multiply.default
        found = multiply(*at[:3], at.x, where, g_value, *tensors, *ctx.rest, by_target)
        change = Changes(*found[1].unbind(-1)) if by_target else NO_CHANGE
        by_targets = by_targets_of(at.plan, targets, change, needed)
        return found[0] if needed[0] else None, *by_targets, *(None,) * (_COUNT - 4)
    return *gradients(at, targets, (g_value, g_scale), needed), *(None,) * (_COUNT - 4)


def _has_product(at: Solved, *, by_target: bool) -> bool:
    """Whether an engine has the product, and nobody differentiates or transforms it."""
    if torch.is_grad_enabled() or transforming() or forward_ad._current_level >= 0:
        return False
    if uses_core(at.value):
        return not (by_target and at.plan.rule == "nearest")
    return uses_kernels(at.value) and not at.plan.nearly_constant


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


class _Traced(torch.autograd.Function):
    """value, scale, active = projection of x, where a graph is traced or an operator called."""

    @staticmethod
    def forward(*inputs: Any) -> Any:
        """Project; what PyTorch traces here is the operator itself, which has its derivatives."""
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.hoyer.project.default(*inputs)

    setup_context = staticmethod(_setup_context)
    backward = staticmethod(_backward)


def _differentiable(*inputs: Any) -> Any:
    """Project, and see to the derivatives, if there is need of them."""
    # PyTorch leaves out arguments at the end that are as the schema has them.
    inputs += _DEFAULTS[len(_DEFAULTS) - (_COUNT - len(inputs)) :]
    if is_watched(*inputs[:4]):
        apply: Any = _Traced.apply
        return apply(*inputs)
    # Compiled code comes here; a second dispatch would cost it as much as a small projection.
    return _project(*inputs) if is_real(inputs[0]) else _Traced.forward(*inputs)


def _refuse_to_differentiate(*inputs: Any) -> Any:
    """Project where nobody asks for derivatives."""
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs[:4]):
        raise RuntimeError(
            "torch.ops.hoyer.locate has no derivatives: torch.ops.hoyer.project has them"
        )
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.hoyer.locate.default(*inputs)


def _fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    options, inner = _options(arguments[:3], arguments[3:])
    scale = x.new_empty(batch_of(x, inner), dtype=XP.wide(x))
    active = torch.empty_like(scale, dtype=torch.int8)
    return torch.empty_like(x), scale, active if some_differ(options) else _no_marks(scale)


def _implement(name: str, function: Any, key: str) -> None:
    """Make a function what an operator does; Dynamo does not look into it, wherever it is called.

    (`torch.compiler.disable` would load Dynamo at once, which takes a second.)
    """
    _library.impl(name, _disable_dynamo(function), key)


# Not by `torch.library.custom_op`, whose wrappers take as long as a small projection.
_library = torch.library.Library("hoyer", "FRAGMENT")
for _name in ("project", "locate"):
    _library.define(_name + SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    _implement(_name, _project, "CompositeExplicitAutograd")
    torch.library.register_fake(f"hoyer::{_name}", _fake, lib=_library)
_implement("project", _differentiable, "Autograd")
_implement("locate", _refuse_to_differentiate, "Autograd")
_operator, _constant = torch.ops.hoyer.project.default, torch.ops.hoyer.locate.default
torch.library.register_vmap("hoyer::project", _mapped(_operator), lib=_library)
torch.library.register_vmap("hoyer::locate", _mapped(_constant), lib=_library)


MULTIPLY = """(
    Tensor value, Tensor scale, Tensor? active, Tensor? x, Tensor? where, Tensor y,
    Tensor? sparseness, Tensor? l1, Tensor? l2,
    float? sparseness_number, float? l1_number, float? l2_number, str rule, SymInt inner,
    bool nonnegative, bool only_increase, str solver, bool check_finite, bool at_most,
    bool by_target
) -> (Tensor, Tensor)"""
"""What was saved, the gradient by the value, and what `_project` took after x, but for the mask."""


def _multiply(*given: Any) -> tuple[Tensor, Tensor]:
    """Return the gradient by x, and what it says about targets (see `Changes`), if that counts."""
    value, scale, active, x, where, y, *rest, by_target = given
    tensors = (_as_host_number(target, value) for target in rest[:3])
    options, inner = _options(tensors, (*rest[3:], where))
    # Whoever traced this had kernels, or a core; whoever runs it may have none.
    plan = (plan_of if uses_core(value) else derived_plan)(value, inner, options)
    at = Solved(value, scale, active, None, x, plan, inner)
    found = engine_for(value).product(at, y, by_target=by_target)
    if found is None:
        found = products_of(at).cotangent(rows_of(y, inner), None, by_x=True, by_target=by_target)
    by_x, change = found
    if not by_target:
        return by_x.reshape(value.shape), scale.new_empty(0)
    nothing = torch.zeros_like(scale)
    columns = [nothing if part is None else part.expand(scale.shape) for part in change]
    return by_x.reshape(value.shape), torch.stack(columns, -1)


def _fake_product(*given: Any) -> tuple[Tensor, Tensor]:
    value, scale, by_target = given[0], given[1], given[-1]
    size = (*scale.shape, len(Changes._fields)) if by_target else (0,)
    return torch.empty_like(value), scale.new_empty(size)


_library.define("multiply" + MULTIPLY, tags=(torch.Tag.pt2_compliant_tag,))
for _device in ("CPU", "CUDA"):
    _implement("multiply", _multiply, _device)
torch.library.register_fake("hoyer::multiply", _fake_product, lib=_library)


def project_traced(x: Tensor, options: Options, inner: int) -> Tensor:
    """Project where PyTorch traces; derivatives are those of the operator."""
    if transforming():
        return _project_smoothly(x, options, inner)
    value: Tensor = _operator(x, *_arguments(_general(options), inner))[0]
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
    if not some_differ(options):
        active = torch.zeros_like(scale, dtype=torch.int8)
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
