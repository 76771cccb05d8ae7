"""Targets of tensors: numbers are resolved on the host, tensors where they are, all by `target`."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from ...options import Options
from ...target import (
    Target,
    from_norms,
    from_sparseness,
    no_fit,
    not_real,
    resolve,
    without_axes,
)
from .tensors import Tensor, Vectors, batch_of, refuse_layout, wide_type

NAMES = ("sparseness", "l1", "l2")


class Goal(NamedTuple):
    """A `hoyer.target.Target` as tensors shaped like the batch of vectors, or of no axes at all."""

    ratio: Tensor
    room: Tensor
    room_low: Tensor
    l2: Tensor
    norm: str
    l1_given: bool


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
        return torch.as_tensor(value, dtype=wide_type(x.device), device=x.device)
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
    """Return those targets that are tensors."""
    first, second, third = (
        value if isinstance(value, torch.Tensor) else None
        for value in (options.sparseness, options.l1, options.l2)
    )
    return first, second, third


def with_arrays(options: Options) -> Options:
    """Return the options with CPU tensors among the targets as NumPy arrays or numbers."""
    changed = {
        name: _array(tensor)
        for name, tensor in zip(NAMES, tensors_of(options), strict=True)
        if tensor is not None
    }
    return options._replace(**changed) if changed else options


def _array(tensor: Tensor) -> Any:
    tensor = tensor.detach()
    if tensor.dim() == 0 and tensor.dtype == torch.float64:
        return tensor.item()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def goal_for(
    n: int, options: Options, x: Tensor, batch: tuple[int, ...], wide: torch.dtype
) -> Goal:
    """Return the target as tensors; nothing on the device is looked at, except on the CPU."""
    if all(tensor is None for tensor in tensors_of(options)):
        return _from_host(n, options, x, (), wide)
    if x.device.type == "cpu":
        return _from_host(n, with_arrays(options), x, batch, wide)
    return _on_device(n, options, x, wide)


def goal_numbers(
    n: int, options: Options, dtype: torch.dtype, batch: tuple[int, ...] = ()
) -> Target:
    """Return the target resolved on the host, where it is one of numbers."""
    check = options.check_finite
    target = resolve(n, options.sparseness, options.l1, options.l2, batch, check=check)
    if check and target.norm == "fixed":
        _check_fits(target, dtype)
    return target


def goal_tensors(n: int, options: Options, x: Tensor) -> Goal:
    """Return the target resolved where its tensors are; nothing is looked at."""
    return _on_device(n, options, x, wide_type(x.device))


def _from_host(
    n: int, options: Options, x: Tensor, batch: tuple[int, ...], wide: torch.dtype
) -> Goal:
    target = goal_numbers(n, options, x.dtype, batch)

    def tensor(numbers: Any) -> Tensor:
        if numbers.size == 1:
            return torch.full((), float(numbers[0]), dtype=wide, device=x.device)
        return to_device(torch.tensor(numbers, dtype=wide), x.device).reshape(batch)

    return Goal(
        tensor(target.ratio),
        tensor(target.room),
        tensor(target.room_low),
        tensor(target.l2),
        target.norm,
        target.l1_given,
    )


def _check_fits(target: Target, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    if (target.l2 > largest).any():
        name = str(dtype).removeprefix("torch.")
        raise ValueError(
            f"a target with l2={float(target.l2.max()):g} does not fit {name}, whose largest "
            f"number is {largest:g}: convert x to a wider type first"
        )


def _on_device(n: int, options: Options, x: Tensor, wide: torch.dtype) -> Goal:
    """Impossible targets become NaN: to see them would stall the device."""
    # Everything that can be wrong without looking at a number is found with numbers that are right.
    sparseness, first, second = _stand_ins(n, options)
    resolve(n, sparseness, first, second, ())

    def number(name: str) -> Tensor:
        value = getattr(options, name)
        if isinstance(value, torch.Tensor):
            return value.detach().to(wide)
        return torch.full((), float(value), dtype=wide, device=x.device)

    def norm(name: str) -> Tensor:
        value = number(name)
        return torch.where((value > 0) & torch.isfinite(value), value, math.nan)

    kinds = [tensor.dtype for tensor in tensors_of(options) if tensor is not None]
    slack = 4 * max(torch.finfo(kind if kind.is_floating_point else wide).eps for kind in kinds)
    if options.sparseness is None:
        l1, l2 = norm("l1"), norm("l2")
        l1, l2 = l1 + 0 * l2, l2 + 0 * l1
        ratio, room, _ = from_norms(n, l1, l2, slack, torch)
        return Goal(ratio, *room, l2, "fixed", False)
    ratio, room, _ = from_sparseness(n, number("sparseness"), slack, torch)
    if isinstance(options.l2, str):
        return Goal(ratio, *room, torch.ones_like(ratio), options.l2, False)
    if options.l1 is not None:
        return Goal(ratio, *room, norm("l1") / ratio, "fixed", True)
    l2 = torch.ones_like(ratio) if options.l2 is None else norm("l2")
    return Goal(ratio, *room, l2, "fixed", False)


def _stand_ins(n: int, options: Options) -> list[Any]:
    sparseness, l1, l2 = (getattr(options, name) for name in NAMES)
    if sparseness is None and l1 is not None and l2 is not None and not isinstance(l2, str):
        # Of two norms one may be a number: together they can only be judged on the device.
        return [None, math.sqrt(math.sqrt(n)), 1.0]
    given = (sparseness, l1, l2)
    return [0.5 if isinstance(value, torch.Tensor) else value for value in given]


# ---- derivatives of what is asked for ----


class Changes(NamedTuple):
    """How a target moves, per vector: the ratio of norms, and the logarithm of the norm set."""

    ratio: Tensor | None
    log_norm: Tensor | None
    """Of l2."""
    log_kept: Tensor | None
    """Of the norm that vectors are brought to which keep their direction."""


class Parts(NamedTuple):
    """The given targets as numbers or tensors, where they are differentiated."""

    n: int
    sparseness: Any
    l1: Any
    l2: Any

    @property
    def by_sparseness(self) -> float:
        """d(l1/l2)/d(sparseness)."""
        return 1 - math.sqrt(self.n)

    @property
    def ratio(self) -> Any:
        """l1/l2."""
        if self.sparseness is None:
            return self.l1 / self.l2
        return 1 - (1 - self.sparseness) * self.by_sparseness


def forward_changes(parts: Parts, tangents: tuple[Any, Any, Any]) -> Changes:
    """Return how the target moves along tangents of sparseness, l1 and l2 (None: not at all)."""
    sigma, first, second = tangents
    log1 = None if first is None else first / parts.l1
    log2 = None if second is None else second / parts.l2
    if parts.sparseness is None:
        return Changes(_times(parts.ratio, _minus(log1, log2)), log2, log2)
    ratio = None if sigma is None else parts.by_sparseness * sigma
    if parts.l1 is None or isinstance(parts.l2, str):
        return Changes(ratio, log2, log2)
    slip = None if ratio is None else ratio / parts.ratio
    return Changes(ratio, _minus(log1, slip), log1)


def reverse_changes(parts: Parts, gradient: Changes) -> tuple[Any, Any, Any]:
    """Return the gradients by sparseness, l1 and l2: the transpose of `forward_changes`."""
    ratio, norm = gradient.ratio, _plus(gradient.log_norm, gradient.log_kept)
    if parts.sparseness is None:
        steep = _times(parts.ratio, ratio)
        return None, _over(steep, parts.l1), _over(_minus(norm, steep), parts.l2)
    sigma = _times(parts.by_sparseness, ratio)
    if isinstance(parts.l2, str):
        return sigma, None, None
    if parts.l1 is None:
        return sigma, None, None if parts.l2 is None else _over(norm, parts.l2)
    slip = _times(parts.by_sparseness, _over(gradient.log_norm, parts.ratio))
    return _minus(sigma, slip), _over(norm, parts.l1), None


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _minus(a: Any, b: Any) -> Any:
    return a if b is None else -b if a is None else a - b


def _times(a: Any, b: Any) -> Any:
    return None if b is None else a * b


def _over(a: Any, b: Any) -> Any:
    return None if a is None else a / b


def parts_of(n: int, options: Options, wide: torch.dtype) -> Parts:
    """Return the given targets, tensors in the wide type, for their derivatives."""
    values = (
        value.to(wide) if isinstance(value, torch.Tensor) else value
        for value in (options.sparseness, options.l1, options.l2)
    )
    return Parts(n, *values)


def rule_of(options: Options) -> str:
    """Return "fixed", "keep" or "nearest"."""
    return options.l2 if isinstance(options.l2, str) else "fixed"
