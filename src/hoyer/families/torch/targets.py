"""Targets of tensors: numbers are resolved on the host, tensors where they are, all by `target`."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...engines.arrays.targets import resolve_there
from ...options import Options, check
from ...plan import Plan, derivative_plan, plan_for
from ...target import no_fit, not_real, without_axes
from .tensors import XP, Tensor, Vectors, batch_of, length_of, refuse_layout

NAMES = ("sparseness", "l1", "l2")


def as_given(options: Options, vectors: Vectors) -> Options:
    """Return the options with arrays and lists among the targets as tensors on the device of x.

    They are shaped like the batch, without the axes of the vectors.

    Raises
    ------
    ValueError
        For tensors on another device, or of a shape that does not fit the batch.
    TypeError
        For targets that are no real numbers.
    """
    if options.is_plain:
        return options
    changed: dict[str, Any] = {}
    for name in NAMES:
        value = getattr(options, name)
        if isinstance(value, bool):
            raise TypeError(not_real(name, value))
        if value is None or isinstance(value, float | int | str):
            continue
        changed[name] = _target_tensor(name, value, vectors)
    return options._replace(**changed) if changed else options


def _target_tensor(name: str, value: Any, vectors: Vectors) -> Any:
    x, inner = vectors.tensor, vectors.inner
    if not isinstance(value, torch.Tensor):
        _refuse_parts(name, value)
        value = _as_tensor(name, value, x)
        if not isinstance(value, torch.Tensor):
            return value
    refuse_layout(name, value)
    if value.is_complex():
        raise TypeError(f"{name} has dtype {value.dtype}: give real numbers")
    if value.dtype == torch.bool:
        raise TypeError(not_real(name, value))
    # What is read by its address must be what is in memory.
    value = value.resolve_neg()
    if value.device != x.device:
        if value.dim() > 0:
            raise ValueError(
                f"{name} is on {value.device} and x on {x.device}: move one of them, "
                f"{name}.to(x.device)"
            )
        # A product with a number on the host: a copy would wait for the device.
        value = value.new_ones((), device=x.device) * value if value.is_cpu else value.to(x.device)
    batch, given = batch_of(x, inner), tuple(value.shape)
    axes = vectors.axes or tuple(range(len(batch), len(batch) + inner))
    shape = without_axes(given, len(batch), axes)
    if not _fits(shape, batch):
        raise ValueError(no_fit(given, batch))
    return value if shape == given else value.reshape(shape)


def _refuse_parts(name: str, value: Any) -> None:
    """Refuse lists of tensors whose gradients would be lost."""
    if isinstance(value, list | tuple) and any(
        isinstance(part, torch.Tensor) and part.requires_grad for part in value
    ):
        raise TypeError(
            f"{name} is a list of tensors that require grad: give one tensor, torch.stack({name})"
        )


def _as_tensor(name: str, value: Any, x: Tensor) -> Any:
    """Return a list or an array as a tensor where x is, without waiting; a number as itself."""
    if torch.compiler.is_compiling():
        return torch.as_tensor(value, dtype=XP.wide(x), device=x.device)
    if isinstance(value, list | tuple):
        value = [part.resolve_neg() if isinstance(part, torch.Tensor) else part for part in value]
    array = np.asarray(value)
    if isinstance(value, np.ma.MaskedArray) or array.dtype.kind not in "fiu":
        raise TypeError(not_real(name, value))
    if array.ndim == 0:
        return array[()]
    return to_device(torch.tensor(array), x.device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Send a tensor of the host on its way; nobody waits for it to arrive."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _fits(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    if len(shape) > len(batch):
        return False
    ends = zip(shape[::-1], batch[::-1], strict=False)
    return all(size in (1, wanted) for size, wanted in ends)


def tensors_of(options: Options) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return those targets that are tensors, None for the others."""
    sparseness, l1, l2 = options[:3]
    return (
        sparseness if isinstance(sparseness, torch.Tensor) else None,
        l1 if isinstance(l1, torch.Tensor) else None,
        l2 if isinstance(l2, torch.Tensor) else None,
    )


def has_tensors(options: Options) -> bool:
    """Whether a target is a tensor."""
    return tensors_of(options) != (None, None, None)


def named_tensors(options: Options) -> dict[str, Tensor]:
    """Return those targets that are tensors, by name."""
    given = zip(NAMES, tensors_of(options), strict=True)
    return {name: tensor for name, tensor in given if tensor is not None}


def with_tensors(options: Options, tensors: tuple[Tensor | None, ...]) -> Options:
    """Return the options with other tensors as targets; None leaves a target as it is."""
    given: dict[str, Any] = {
        name: tensor for name, tensor in zip(NAMES, tensors, strict=True) if tensor is not None
    }
    return options._replace(**given) if given else options


def with_targets(plan: Plan, tensors: tuple[Tensor | None, ...]) -> Plan:
    """Return the plan with other tensors in place of those that were given."""
    if tensors == (None, None, None):
        return plan
    return replace(plan, options=with_tensors(plan.options, tensors))


def without_tensors(plan: Plan) -> Plan:
    """Return the plan for autograd to keep, which keeps the tensors itself."""
    numbers: dict[str, Any] = dict.fromkeys(named_tensors(plan.options), 0.0)
    return replace(plan, options=plan.options._replace(**numbers)) if numbers else plan


def plan_of(x: Tensor, inner: int, options: Options) -> Plan:
    """Return what is asked of the vectors in the last axes; nothing on a device is looked at.

    Targets are as `as_given` leaves them.
    """
    n = x.shape[-1] if inner == 1 else length_of(x, inner)
    if tensors_of(options) == (None, None, None):
        return plan_for(n, options)
    if on_host(x):
        target = plan_for(n, with_arrays(options), batch_of(x, inner)).target
    else:
        check(options)
        target = resolve_there(n, options, XP)
    return Plan.of(n, target, options)


def on_host(x: Tensor) -> bool:
    """Whether targets can be looked at without waiting for a device."""
    return x.device.type == "cpu"


def derived_plan(n: int, options: Options) -> Plan:
    """Return a plan for derivatives, where the numbers behind the targets may be out of reach."""
    return derivative_plan(n, options) if has_tensors(options) else plan_for(n, options)


def with_arrays(options: Options) -> Options:
    """Return the options with CPU tensors among the targets as NumPy arrays or numbers."""
    return options._replace(
        **{name: _array(tensor) for name, tensor in named_tensors(options).items()}
    )


def _array(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    if tensor.dim() == 0 and tensor.dtype == torch.float64:
        return tensor.item()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
