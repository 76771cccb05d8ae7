"""What users hand to the modules, checked once when a module is made."""

import math
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from ..options import NORM_RULES, Axis, Options
from ..options import check as check_options
from ..target import target_norms

Dim: TypeAlias = Axis | str

INPUTS = "inputs"


def target_of(sparseness: Any) -> float | Tensor:
    """Return a target as a number or as a tensor.

    Parameters
    ----------
    sparseness : float, array_like or Tensor
        What was given. Tensors without numbers (on the device "meta") are believed.

    Raises
    ------
    TypeError, ValueError
        If it is no number in [0, 1], nor several of them.
    """
    if sparseness is None:
        raise TypeError("sparseness is missing: give a number in [0, 1]")
    if isinstance(sparseness, Tensor):
        if not has_numbers(sparseness):
            return sparseness
        target_norms(2, array_of(sparseness))
        floating = sparseness.is_floating_point()
        return sparseness if floating else sparseness.to(torch.get_default_dtype())
    target_norms(2, sparseness)
    array = np.asarray(sparseness)
    if array.ndim == 0:
        return float(array)
    return torch.tensor(array, dtype=torch.get_default_dtype())


def constant(sparseness: Any) -> float | Tensor:
    """Return a target that is no one's parameter, a number if it is one; see `target_of`."""
    if isinstance(sparseness, Tensor) and sparseness.requires_grad:
        raise ValueError(
            "sparseness requires grad: pass learnable=True (it is then kept as a logit)"
        )
    target = target_of(sparseness)
    if isinstance(target, Tensor) and target.dim() == 0 and has_numbers(target):
        return float(target)
    return target


def norm_of(l2: Any) -> Any:
    """Return a norm as "keep", "nearest", a number or a tensor; refuse everything else."""
    if isinstance(l2, str):
        if l2 not in NORM_RULES:
            raise ValueError(f"l2={l2!r}: l2 must be a number, 'keep' or 'nearest'")
        return l2
    if l2 is None:
        return 1.0
    if isinstance(l2, Tensor):
        if l2.requires_grad and not isinstance(l2, nn.Parameter):
            raise ValueError("l2 requires grad: pass it as an nn.Parameter")
        if has_numbers(l2):
            target_norms(2, 0.5, l2=array_of(l2))
        return l2
    target_norms(2, 0.5, l2=l2)
    array = np.asarray(l2)
    return float(array) if array.ndim == 0 else torch.tensor(array, dtype=torch.get_default_dtype())


def has_numbers(tensor: Tensor) -> bool:
    """Whether there is something to look at, unlike in meta and fake tensors."""
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and not tensor.is_meta


def array_of(value: float | Tensor) -> Any:
    """Return numbers as NumPy knows them."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def shown(value: Any) -> str:
    """Return a target or a norm in short."""
    if not isinstance(value, Tensor):
        return f"{value:g}" if isinstance(value, float) else repr(value)
    if value.dim() > 0:
        return f"tensor of shape {tuple(value.shape)}"
    return f"{float(value.detach()):.4g}" if has_numbers(value) else f"on {value.device}"


def check_switches(nonnegative: bool, only_increase: bool, check_finite: bool) -> None:
    """Refuse what is neither True nor False."""
    check_options(Options(None, None, None, None, nonnegative, only_increase, "auto", check_finite))


def count(name: str, value: Any, least: int) -> int:
    """Return a number of steps."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be an int") from None
    if number < least:
        raise ValueError(f"{name}={value!r}: must be at least {least}")
    return number


# ---- which axes form a vector ----


def axes_of(dim: Dim) -> Axis:
    """Return `dim` if it can name axes of some tensor."""
    given = dim if isinstance(dim, tuple | list) else () if dim is None else (dim,)
    if any(isinstance(one, bool) or not isinstance(one, int) for one in given):
        raise TypeError(f"dim={dim!r}: must be an int, a tuple of ints, or None")
    return tuple(dim) if isinstance(dim, list) else dim  # type: ignore[return-value]


class Vectors(NamedTuple):
    """How a tensor falls into vectors."""

    axes: Axis
    batch: tuple[int, ...]
    """The shape without these axes."""
    length: int


def vectors_of(dim: Axis, tensor: Tensor, name: str) -> Vectors:
    """Return how `dim` divides a tensor, which errors call `name`."""
    named = axes_of(dim)
    shape = tuple(tensor.shape)
    given = tuple(range(len(shape))) if named is None else named
    given = given if isinstance(given, tuple) else (given,)
    if any(not -len(shape) <= axis < len(shape) for axis in given):
        raise IndexError(f"dim={dim!r}: {name} of shape {shape} has {len(shape)} axes")
    axes = {axis % len(shape) for axis in given}
    if len(axes) < len(given):
        raise ValueError(f"dim={dim!r} names an axis twice")
    if not axes:
        raise ValueError(f"dim={dim!r}: {name} of shape {shape} has no axis that could be a vector")
    batch = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return Vectors(named, batch, math.prod(shape[axis] for axis in axes))


def fitting(dim: Axis, tensor: Tensor, name: str, targets: tuple[Any, ...]) -> Axis:
    """Return the axes if the vectors along them can be projected onto the targets.

    Parameters
    ----------
    dim : int, tuple of int or None
        The axes.
    tensor : Tensor
        Where the vectors are.
    name : str
        What to call it.
    targets : tuple
        What the vectors are asked for; tensors have a number for each of them.
    """
    vectors = vectors_of(dim, tensor, name)
    what = f"{name} of shape {tuple(tensor.shape)}"
    if vectors.length < 2:
        entries = "without entries" if vectors.length == 0 else "of length 1, without a sparseness"
        raise ValueError(f"dim={dim!r}: {what} has vectors {entries}")
    for target in targets:
        if isinstance(target, Tensor) and not _broadcasts(tuple(target.shape), vectors.batch):
            raise ValueError(
                f"a target of shape {tuple(target.shape)} does not fit {what} with dim={dim!r}: "
                f"give one number, or a tensor that broadcasts to {vectors.batch}, one for each "
                "vector"
            )
    return vectors.axes


def _broadcasts(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, batch) == batch
    except ValueError:
        return False


_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def input_axes(tensor: Tensor, module: nn.Module | None = None) -> tuple[int, ...]:
    """Return the axes over which one unit of a layer collects its inputs.

    These are all but that of the outputs: the first; in transposed convolutions the second.
    """
    if tensor.dim() < 2:
        return (0,)
    output = 1 if isinstance(module, _TRANSPOSED) else 0
    return tuple(axis for axis in range(tensor.dim()) if axis != output)
