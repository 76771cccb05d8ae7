"""What users pass to `ProjectAfterStep`, checked before it touches the optimizer."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from .arguments import as_sparseness, has_numbers
from .schedules import Polynomial


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


class Given(NamedTuple):
    """One of the parameters to project."""

    param: Tensor
    layer: nn.Module | None
    """The layer it was given with, if any."""
    name: str
    """What errors call it."""


def parameters_of(params: Any) -> list[Given]:
    """Return the parameters, or say what is wrong."""
    if isinstance(params, Tensor) or _is_pair(params):
        return [_parameter(params, 0)]
    kind = type(params).__name__
    if isinstance(params, nn.Module):
        raise TypeError(
            f"params is a module ({kind}): pass the weights, as in [{_example(params)}]"
        )
    if isinstance(params, dict):
        raise TypeError(
            "params is a dict: pass the tensors in it, list(params.values()); of a param group "
            "pass group['params']"
        )
    if isinstance(params, str) or not isinstance(params, Iterable):
        raise TypeError(f"params is of type {kind}: pass a tensor, or several")
    listed = [_parameter(param, number) for number, param in enumerate(params)]
    if not listed:
        raise ValueError("params is empty: there is nothing to project")
    return listed


def _is_pair(param: Any) -> bool:
    return isinstance(param, tuple) and len(param) == 2 and isinstance(param[0], nn.Module)


def _parameter(param: Any, number: int) -> Given:
    what = f"params[{number}]"
    module = None
    if _is_pair(param):
        module, name = param
        param = getattr(module, name, None) if isinstance(name, str) else None
        kind = type(module).__name__
        if not isinstance(param, Tensor):
            raise ValueError(f"{what} is ({kind}, {name!r}): {kind} has no parameter {name!r}")
        what = f"{what} ({name} of {kind})"
    elif isinstance(param, tuple):
        raise TypeError(
            f"{what} is a tuple: pass parameters without their names, not named_parameters(), or "
            "pairs of a layer and the name in it, (layer, 'weight')"
        )
    elif isinstance(param, nn.Module):
        raise TypeError(f"{what} is a module: pass ({type(param).__name__.lower()}, 'weight')")
    elif not isinstance(param, Tensor):
        raise TypeError(f"{what} is of type {type(param).__name__}, not a tensor")
    if is_lazy(param):
        raise ValueError(f"{what} has no shape yet: run a batch through the model first")
    return Given(param, module, what)


def _example(module: nn.Module) -> str:
    """Return how the first weight of a module would be passed."""
    weights = [name for name, param in module.named_parameters() if param.dim() > 1]
    path, _, name = weights[0].rpartition(".") if weights else ("", "", "weight")
    return f"({f'model.get_submodule({path!r})' if path else 'model'}, {name!r})"


def numbers_of(optimizer: Optimizer, params: list[Given]) -> list[int]:
    """Return which of the optimizer's parameters these are, in its order."""
    every = [param for group in optimizer.param_groups for param in group["params"]]
    known = {id(param): number for number, param in enumerate(every)}
    for param, _, name in params:
        what = f"{name}, of shape {tuple(param.shape)},"
        if param.grad_fn is not None:
            raise ValueError(
                f"{what} is computed, not stored: if it belongs to a layer with "
                "parametrizations.sparseness it is projected already"
            )
        if id(param) not in known:
            raise ValueError(f"{what} is no parameter of the optimizer")
    numbers = [known[id(given.param)] for given in params]
    if len(set(numbers)) < len(numbers):
        raise ValueError("params has the same parameter twice")
    return sorted(numbers)


def check_schedule(schedule: Any, limit: float | Tensor | None) -> None:
    """Refuse a schedule that cannot be called with a step, or that ends above the limit."""
    if schedule is None:
        return
    if limit is None:
        raise ValueError(
            f"schedule={schedule!r}: a schedule is one of sparseness; give that, instead of both "
            "norms"
        )
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
            f"{schedule!r} ends above sparseness={largest:.3g}, the largest that is asked for: "
            "let it end there"
        )


def check_shared(handle: Any, limit: float | Tensor | None) -> None:
    """Refuse what does not go with a mean that vectors share, or needs one."""
    for name in ("together", "relative"):
        if not isinstance(getattr(handle, name), bool):
            raise TypeError(f"{name}={getattr(handle, name)!r}: must be True or False")
    if not isinstance(handle.floor, float | int):
        raise TypeError(f"floor={handle.floor!r}: must be one number for all vectors")
    floor = as_sparseness(f"floor={handle.floor!r}", handle.floor)
    if not handle.together:
        for name, default in (("floor", 0.0), ("weights", None), ("relative", False)):
            value = getattr(handle, name)
            if value is not default and not (isinstance(value, float | int) and value == default):
                raise ValueError(f"{name}={getattr(handle, name)!r} needs together=True")
        return
    if limit is None or handle.l1 is not None:
        raise ValueError(
            "together=True: vectors share a mean sparseness; give that, and l2 if norms are not to "
            "be kept"
        )
    if isinstance(limit, Tensor) and limit.dim() > 0:
        raise ValueError(
            f"sparseness has shape {tuple(limit.shape)} with together=True: the mean is one number"
        )
    if isinstance(handle.l2, Tensor) and handle.l2.dim() > 0:
        raise ValueError(
            f"l2 has shape {tuple(handle.l2.shape)} with together=True: give one number, or 'keep'"
        )
    if handle.l2 == "nearest":
        raise ValueError(
            "l2='nearest' with together=True: with free norms there is no single best share; use "
            "'keep' or a number"
        )
    if handle.weights is not None:
        _check_weights(handle.weights, len(handle.params))
    if floor > _largest(limit):
        raise ValueError(f"floor={floor:g} is above the mean, sparseness={_largest(limit):.3g}")


def _check_weights(weights: Any, many: int) -> None:
    """Refuse what is no list of positive numbers, or of tensors of them, one for each parameter."""
    if not isinstance(weights, list | tuple):
        raise TypeError(f"weights={weights!r}: must be a list with one entry for each parameter")
    if len(weights) != many:
        raise ValueError(
            f"weights has {len(weights)} entries for {many} parameters: give one for each"
        )
    for weight in weights:
        if not bool((torch.as_tensor(weight, dtype=torch.float64) > 0).all()):
            raise ValueError(f"weights={weights!r}: must be positive")


def only_increase_of(given: bool | None, schedule: Any) -> bool:
    """Return what was given; if None, whether there is a schedule, which then must not fall."""
    if given is not None:
        return given
    if isinstance(schedule, Polynomial) and schedule.start > schedule.end:
        raise ValueError(
            f"schedule={schedule!r} falls, but by default a schedule comes with only_increase=True "
            "and nothing would become less sparse: pass only_increase=False"
        )
    return schedule is not None


def _largest(limit: float | Tensor) -> float:
    """Return the largest target, plus the rounding of its type."""
    if not isinstance(limit, Tensor):
        return limit + 1e-6
    if not has_numbers(limit):
        return 1.0
    return float(limit.max()) + 4 * torch.finfo(limit.dtype).eps


def scheduled(schedule: Callable[[int], float], step: int) -> float:
    """Return what a schedule asks for, if that is a sparseness."""
    wanted = float(schedule(step))
    return as_sparseness(f"schedule({step}) is {wanted}", wanted)
