"""``torch.ops.hoyer.project``: the projection as one node of a traced graph.

``torch.ops.hoyer.locate`` is the same without derivatives.
"""

from typing import Any

import torch

from ...engines.arrays import smooth
from ...options import Options
from ...plan import derivative_plan
from . import functions
from .engines import Solved, engine_for
from .targets import NAMES, named_tensors, plan_of, tensors_of
from .tensors import XP, Tensor, batch_of, length_of, rows_of, transforming


def _project(  # noqa: PLR0917 - the schema of an operator
    x: Tensor,
    sparseness: Tensor | None,
    l1: Tensor | None,
    l2: Tensor | None,
    sparseness_number: float | None,
    l1_number: float | None,
    l2_number: float | None,
    rule: str,
    inner: int,
    nonnegative: bool,
    only_increase: bool,
    solver: str,
    check_finite: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Project the vectors in the last `inner` axes; return value, scale and who kept direction."""
    options = _options(
        (_on_host(sparseness, x), _on_host(l1, x), _on_host(l2, x)),
        (sparseness_number, l1_number, l2_number),
        rule,
        nonnegative,
        only_increase,
        solver,
        check_finite,
    )
    at = engine_for(x).solved(x, plan_of(x, inner, options), inner)
    scale = at.scale.reshape(batch_of(x, inner))
    kept = torch.zeros_like(scale, dtype=torch.int8) if at.kept is None else at.kept
    return at.value, scale, kept


_differentiable = torch.library.custom_op("hoyer::project", _project, mutates_args=())
_constant = torch.library.custom_op("hoyer::locate", _project, mutates_args=())


def _options(  # noqa: PLR0917 - likewise
    tensors: tuple[Any, Any, Any],
    numbers: tuple[Any, Any, Any],
    rule: str,
    nonnegative: bool,
    only_increase: bool,
    solver: Any,
    check_finite: bool,
) -> Options:
    sparseness, l1, l2 = (n if t is None else t for t, n in zip(tensors, numbers, strict=True))
    l2 = l2 if rule == "fixed" else rule
    return Options(sparseness, l1, l2, -1, nonnegative, only_increase, solver, check_finite)


def _arguments(options: Options, inner: int) -> tuple[Any, ...]:
    return (
        *tensors_of(options),
        *(_number(value) for value in options[:3]),
        options.rule,
        inner,
        bool(options.nonnegative),
        bool(options.only_increase),
        options.solver,
        bool(options.check_finite),
    )


def _number(value: Any) -> Any:
    if value is None or isinstance(value, torch.Tensor | str):
        return None
    return value if isinstance(value, float) else float(value)


def project(x: Tensor, options: Options, inner: int) -> Tensor:
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
    given: dict[str, Any] = {n: t.detach() for n, t in named_tensors(options).items()}
    arguments = _arguments(_general(options._replace(**given)), inner)
    value, scale, kept = _constant(x.detach(), *arguments)
    plan = derivative_plan(length_of(x, inner), options)
    rows = rows_of(x, inner)
    result: Tensor = smooth.closed_form(rows, rows_of(value, inner), scale, kept, plan, XP)
    return result.reshape(x.shape)


def _general(options: Options) -> Options:
    """Return the options with numbers as tensors: one compiled function then serves all of them.

    They stay on the host, whatever device x is on, and become numbers again in `_on_host`.
    """
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return options
    floats = {name: getattr(options, name) for name in NAMES}
    # A product: PyTorch makes a tensor of a number that is a factor, and of few others.
    changed: dict[str, Any] = {
        name: torch.ones((), dtype=torch.float64, device="cpu") * value
        for name, value in floats.items()
        if isinstance(value, float)
    }
    return options._replace(**changed)


def _on_host(target: Tensor | None, x: Tensor) -> Any:
    """Return a number that lies on the host, for vectors on a device, as the number it is."""
    if target is None or not target.is_cpu or x.is_cpu:
        return target
    return target.item()


def _fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_of(x, arguments[7])
    return (
        torch.empty_like(x),
        x.new_empty(batch, dtype=XP.wide(x)),
        x.new_empty(batch, dtype=torch.int8),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, tensors, rest = inputs[0], inputs[1:4], inputs[4:]
    value, scale, kept = output
    ctx.mark_non_differentiable(kept)
    ctx.rest = rest
    saved_x = x if rest[3] == "keep" else None
    ctx.save_for_backward(value, scale, kept if rest[6] else None, saved_x, *tensors)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g_value: Any, g_scale: Any, _: Any) -> tuple[Any, ...]:
    value, scale, kept, x, *tensors = ctx.saved_tensors
    numbers, rest = ctx.rest[:3], ctx.rest[3:]
    if g_value is None and g_scale is None:
        return (None,) * 13
    rule, inner, *switches = rest
    options = _options(tuple(tensors), numbers, rule, *switches)
    plan = derivative_plan(length_of(value, inner), options)
    at = Solved(value, scale, kept, None, x, plan, inner)
    needed = tuple(ctx.needs_input_grad[:4])
    results = functions.gradients(at, (g_value, g_scale), needed)
    return *results, *(None,) * 9


def _mapped(operator: Any) -> Any:
    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, tuple[int, int, int]]:
        inner = inputs[8]
        moved = functions.batch_first(info.batch_size, in_dims[:4], inputs[:4], inner)
        return operator(*moved, *inputs[4:]), (0, 0, 0)

    return rule


for _operator in (_differentiable, _constant):
    _operator.register_fake(_fake)
    _operator.register_vmap(_mapped(_operator))
_differentiable.register_autograd(_backward, setup_context=_setup_context)
