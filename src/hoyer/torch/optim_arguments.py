"""What users hand to `ProjectAfterStep`, checked before it touches the optimizer."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..options import Axis
from .arguments import INPUTS, Dim, axes_of, fitting, has_numbers, input_axes


def check_optimizer(optimizer: Any) -> None:
    """Refuse what is no optimizer, with a hint for what is close to one."""
    if isinstance(optimizer, Optimizer):
        return
    kind = type(optimizer).__name__
    if isinstance(optimizer, LRScheduler):
        hint = "pass the optimizer that it drives"
    elif isinstance(optimizer, Tensor | nn.Module):
        hint = "the order is ProjectAfterStep(optimizer, params, sparseness)"
    else:
        hint = "pass a torch.optim.Optimizer"
    raise TypeError(f"optimizer is of type {kind}: {hint}")


def parameters_of(params: Any) -> list[Tensor]:
    """Return the parameters as a list, or say what else should have been given."""
    if isinstance(params, Tensor):
        return [params]
    kind = type(params).__name__
    if isinstance(params, nn.Module):
        raise TypeError(
            f"params is a module ({kind}): pass the weights, as in [{_example(params)}]"
        )
    if isinstance(params, dict):
        raise TypeError("params is a dict: of a param group pass group['params']")
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise TypeError(f"params is of type {kind}: pass a tensor, or several")
    listed = list(params)
    for number, param in enumerate(listed):
        if isinstance(param, tuple):
            raise TypeError(
                f"params[{number}] is a tuple: pass parameters without their names, not "
                "named_parameters()"
            )
        if not isinstance(param, Tensor):
            raise TypeError(f"params[{number}] is of type {type(param).__name__}, not a tensor")
    if not listed:
        raise ValueError("params is empty: there is nothing to project")
    return listed


def _example(module: nn.Module) -> str:
    weights = [name for name, param in module.named_parameters() if param.dim() > 1]
    return f"model.get_parameter({weights[0]!r})" if weights else "model.weight"


def numbers_of(optimizer: Optimizer, params: list[Tensor]) -> list[int]:
    """Return which of the optimizer's parameters these are, in its order."""
    every = [param for group in optimizer.param_groups for param in group["params"]]
    known = {id(param): number for number, param in enumerate(every)}
    for i, param in enumerate(params):
        what = f"params[{i}], of shape {tuple(param.shape)},"
        if param.grad_fn is not None:
            raise ValueError(
                f"{what} is computed, not stored: if it belongs to a layer with "
                "parametrizations.sparseness it is projected already"
            )
        if id(param) not in known:
            raise ValueError(f"{what} is no parameter of the optimizer")
    numbers = [known[id(param)] for param in params]
    if len(set(numbers)) < len(numbers):
        raise ValueError("params has the same parameter twice")
    return sorted(numbers)


def axes_for(dim: Dim, param: Tensor, name: str, targets: tuple[Any, ...]) -> Axis:
    """Return the axes of a parameter that form vectors; see `fitting`."""
    if not isinstance(dim, str):
        return fitting(axes_of(dim), param, name, targets)
    if dim != INPUTS:
        raise ValueError(f"dim={dim!r}: give an int, a tuple of ints, None or 'inputs'")
    if param.dim() < 2:
        raise ValueError(
            f"{name} of shape {tuple(param.shape)} has no axis of inputs (is it a bias?): leave it "
            "out, or name its axis with dim=0"
        )
    return fitting(input_axes(param), param, name, targets)


def check_schedule(schedule: Any, limit: float | Tensor) -> None:
    """Refuse a schedule that cannot be called with a step, or that ends above the limit."""
    if schedule is None:
        return
    if not callable(schedule):
        raise TypeError(
            f"schedule={schedule!r}: give a function of the number of steps, such as "
            "hoyer.torch.schedules.linear(0.2, 0.9, steps=1000)"
        )
    try:
        scheduled(schedule, 1)
    except TypeError as error:
        raise TypeError(
            f"schedule={schedule!r} cannot be called with a number of steps alone ({error}): one "
            "of hoyer.torch.schedules is made first, as in schedules.linear(0.2, 0.9, steps=1000)"
        ) from error
    end, largest = getattr(schedule, "end", None), _largest(limit)
    if isinstance(end, float | int) and end > largest:
        raise ValueError(
            f"{schedule!r} ends above sparseness={largest:.3g}, the largest that is asked for"
        )


def _largest(limit: float | Tensor) -> float:
    """Return the largest target, give or take what its type rounds off."""
    if not isinstance(limit, Tensor):
        return limit + 1e-6
    if not has_numbers(limit):
        return 1.0
    return float(limit.max()) + 4 * torch.finfo(limit.dtype).eps


def scheduled(schedule: Callable[[int], float], step: int) -> float:
    """Return what a schedule asks for, if that is a sparseness."""
    wanted = float(schedule(step))
    if not 0 <= wanted <= 1:
        raise ValueError(f"schedule({step}) is {wanted}: a sparseness must lie in [0, 1]")
    return wanted
