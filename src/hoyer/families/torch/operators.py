"""``torch.ops.hoyer.project``: the projection as one node of a traced graph.

``torch.ops.hoyer.locate`` is the same without derivatives.
"""

from typing import Any

import torch

from ...options import Options
from . import functions
from .engines import Task
from .targets import NAMES, rule_of, tensors_of
from .tensors import Tensor, batch_of, wide_type


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
    task = _task(
        (_on_host(sparseness, x), _on_host(l1, x), _on_host(l2, x)),
        (sparseness_number, l1_number, l2_number),
        rule,
        inner,
        nonnegative,
        only_increase,
        solver,
        check_finite,
    )
    value, scale, kept = functions.run(x, task)
    return value, scale, torch.zeros_like(scale, dtype=torch.int8) if kept is None else kept


_differentiable = torch.library.custom_op("hoyer::project", _project, mutates_args=())
_constant = torch.library.custom_op("hoyer::locate", _project, mutates_args=())


def _task(  # noqa: PLR0917 - likewise
    tensors: tuple[Any, Any, Any],
    numbers: tuple[Any, Any, Any],
    rule: str,
    inner: int,
    nonnegative: bool,
    only_increase: bool,
    solver: Any,
    check_finite: bool,
) -> Task:
    sparseness, l1, l2 = (n if t is None else t for t, n in zip(tensors, numbers, strict=True))
    l2 = l2 if rule == "fixed" else rule
    options = Options(sparseness, l1, l2, -1, nonnegative, only_increase, solver, check_finite)
    return Task(options, inner)


def _arguments(task: Task) -> tuple[Any, ...]:
    options = task.options
    numbers = [_number(value) for value in (options.sparseness, options.l1, options.l2)]
    return (
        *tensors_of(options),
        *numbers,
        rule_of(options),
        task.inner,
        bool(options.nonnegative),
        bool(options.only_increase),
        options.solver,
        bool(options.check_finite),
    )


def _number(value: Any) -> Any:
    if value is None or isinstance(value, torch.Tensor | str):
        return None
    return value if isinstance(value, float) else float(value)


def project(x: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor | None]:
    """Call the differentiable operator for a task."""
    value, scale, kept = _differentiable(x, *_arguments(_general(task)))
    return value, scale, kept if task.options.only_increase else None


def locate(x: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Call the operator without derivatives."""
    options = task.options
    given: dict[str, Any] = {
        n: t.detach() for n, t in zip(NAMES, tensors_of(options), strict=True) if t is not None
    }
    task = _general(task._replace(options=options._replace(**given)))
    value, scale, kept = _constant(x.detach(), *_arguments(task))
    return value, scale, kept


def _general(task: Task) -> Task:
    """Return the task with numbers as tensors: one compiled function then serves all of them.

    They stay on the host, whatever device x is on, and become numbers again in `_on_host`.
    """
    if not torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return task
    options = task.options
    floats = {name: getattr(options, name) for name in NAMES}
    # A product: PyTorch makes a tensor of a number that is a factor, and of few others.
    changed: dict[str, Any] = {
        name: torch.ones((), dtype=torch.float64, device="cpu") * value
        for name, value in floats.items()
        if isinstance(value, float)
    }
    return task._replace(options=options._replace(**changed))


def _on_host(target: Tensor | None, x: Tensor) -> Any:
    """Return a number that lies on the host, for vectors on a device, as the number it is."""
    if target is None or not target.is_cpu or x.is_cpu:
        return target
    return target.item()


def _fake(x: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = batch_of(x, arguments[7])
    return (
        torch.empty_like(x),
        x.new_empty(batch, dtype=wide_type(x.device)),
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
    task = _task(tuple(tensors), numbers, *rest)
    needed = tuple(ctx.needs_input_grad[:4])
    results = functions.gradients(x, (value, scale, kept), task, (g_value, g_scale), needed)
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
