"""Tensors as the rest of this folder wants them: floating, vectors last; and who may be written."""

import math
import sys
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._C import DispatchKey, _dispatch_keys, _is_tracing, _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from ...engines.arrays.namespace import namespace
from ...layout import shares_entries, vector_axes
from ...options import Axis

Tensor: TypeAlias = torch.Tensor

XP = namespace(torch)
"""PyTorch as the engine of plain operations wants it."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_STRIDED = torch.strided
FLOATS = "float16, bfloat16, float32, float64"


class Vectors(NamedTuple):
    """A floating tensor with the axes of its vectors moved to the end, and the way back."""

    tensor: Tensor
    inner: int
    """How many of the last axes form a vector."""
    axes: tuple[int, ...]
    """Where those axes were; empty if they were last already."""
    length: int
    """Entries of a vector."""

    def back(self, tensor: Tensor) -> Tensor:
        """Move the axes of another tensor of this layout to where they came from."""
        return moved_back(tensor, self.inner, self.axes)


# A named tuple's own constructor is written in Python, which small calls would notice.
_vectors = tuple.__new__


def vectors_last(x: Tensor, axis: Axis) -> Vectors:
    """See x as vectors along `axis`; floating tensors keep their precision and are not copied."""
    if x.dtype not in DTYPES or x.layout is not _STRIDED or x.is_nested:
        x = _as_floats(x)
    shape = x.shape
    if not shape:
        raise ValueError("x is a single number, not a vector: give a tensor with at least one axis")
    axes: tuple[int, ...] = ()
    inner, length = 1, shape[-1]
    if type(axis) is tuple and len(axis) == 1:
        axis = axis[0]
    if type(axis) is not int or (axis != -1 and axis != len(shape) - 1):
        named = vector_axes(axis, len(shape))
        inner = len(named)
        if named != tuple(range(len(shape) - inner, len(shape))):
            axes = named
            x = x.movedim(axes, tuple(range(-inner, 0)))
        length = length_of(x, inner)
    if length == 0:
        raise ValueError(f"x of shape {tuple(shape)} has vectors without entries along {axis=}")
    result: Vectors = _vectors(Vectors, (x, inner, axes, length))
    return result


def moved_back(tensor: Tensor, inner: int, axes: tuple[int, ...]) -> Tensor:
    """Move the last axes to where they came from; nowhere, if those are not named."""
    return tensor.movedim(tuple(range(-inner, 0)), axes) if axes else tensor


def _as_floats(x: Tensor) -> Tensor:
    refuse_layout("x", x)
    if x.is_complex() or x.is_floating_point() or x.is_quantized:
        raise TypeError(
            f"x has dtype {x.dtype}: give real numbers as {FLOATS}, integers or booleans"
        )
    return x.to(XP.wide(x))


def refuse_layout(name: str, x: Tensor) -> None:
    """Refuse tensors that are not entries at strides."""
    if x.is_nested:
        raise TypeError(
            f"{name} is a nested tensor: pass the tensors in it one by one, or a dense one, "
            f"torch.nested.to_padded_tensor({name}, 0.0)"
        )
    if x.layout != _STRIDED:
        what = str(x.layout).removeprefix("torch.").removeprefix("_")
        raise TypeError(f"{name} is a {what} tensor: pass a dense one, {name}.to_dense()")


def length_of(x: Tensor, inner: int) -> int:
    """Return the number of entries of a vector."""
    return math.prod(x.shape[x.dim() - inner :])


def rows_of(x: Tensor, inner: int) -> Tensor:
    """Return the vectors in the last `inner` axes as vectors in the last one."""
    return x if inner == 1 else x.reshape(*batch_of(x, inner), length_of(x, inner))


def batch_of(x: Tensor, inner: int) -> tuple[int, ...]:
    """Return the shape of the batch of vectors."""
    return tuple(x.shape[: x.dim() - inner])


# Tensors of these types have memory of their own; others are someone's stand-in.
_ORDINARY = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_real(x: Tensor) -> bool:
    """Whether there are numbers to work on, rather than a tensor that says what it would be."""
    if is_compiling() or _len_torch_dispatch_stack() > 0 or _is_tracing():
        return False
    if type(x) not in _ORDINARY and _dispatch_keys(x).has(DispatchKey.Python):
        return False
    return not x.is_meta


def is_distributed(x: Any) -> bool:
    """Whether x is a DTensor, which `families.torch.distributed` works on."""
    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(x, tensors.DTensor)


def refuse_distributed(name: str, value: Tensor, x: Tensor) -> None:
    """Refuse DTensors beside an x that is none."""
    if is_distributed(value) and not is_distributed(x):
        plain = "a plain tensor" if name == "out" else f"{name}.full_tensor()"
        raise TypeError(f"{name} is a DTensor, and x is not: pass {plain}, or make x a DTensor too")


transforming = torch._C._are_functorch_transforms_active
"""Whether a transformation of `torch.func` is at work."""


def is_watched(*tensors: Tensor | None) -> bool:
    """Whether somebody may ask for a derivative."""
    if forward_ad._current_level >= 0 or transforming():
        return True
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def check_in_place(name: str, x: Tensor) -> None:
    """Refuse tensors that cannot be written entry by entry."""
    if shares_entries(tuple(x.shape), x.stride(), 1):
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} has entries that share memory (was it expanded?): "
            "pass a copy"
        )


def check_like(out: Tensor, x: Tensor) -> None:
    """Refuse an `out` of another kind or shape than the result."""
    refuse_layout("out", out)
    refuse_distributed("out", out, x)
    for name in ("dtype", "device", "shape"):
        mine, wanted = getattr(out, name), getattr(x, name)
        if mine != wanted:
            mine, wanted = (tuple(mine), tuple(wanted)) if name == "shape" else (mine, wanted)
            raise ValueError(f"out has {name} {mine}, the result has {wanted}")


def check_out(out: Tensor, x: Tensor) -> None:
    """Refuse an `out` that cannot take the result."""
    check_like(out, x)
    check_in_place("out", out)
    if out is x or _same_memory(out, x):
        return
    if span(out)[0] < span(x)[1] and span(x)[0] < span(out)[1]:
        raise ValueError("out overlaps x without being x: pass x itself, or memory of its own")


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


def span(x: Tensor) -> tuple[int, int]:
    """Return the memory from the first to the last entry."""
    if x.numel() == 0:
        return 0, 0
    last = sum(stride * (size - 1) for stride, size in zip(x.stride(), x.shape, strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
