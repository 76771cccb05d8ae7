"""What users pass to the modules, checked once when a module is made."""

import functools
from collections.abc import Callable
from contextlib import suppress
from operator import index
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..families.torch.engines import as_numpy
from ..families.torch.tensors import is_distributed
from ..layout import Layout, vector_axes
from ..options import Axis, Options
from ..options import check as check_options
from ..target import resolve, target_norms, without_axes

Dim: TypeAlias = Axis | str
P = ParamSpec("P")
R = TypeVar("R")

INPUTS = "inputs"
_DEFAULTS = {
    "groups": 1,
    "every": 1,
    "warmup": 0,
    "schedule": None,
    "nonnegative": False,
    "only_increase": False,
    "at_most": False,
    "learnable": False,
    "check_finite": True,
    "together": False,
    "floor": 0.0,
    "weights": None,
    "relative": False,
}
"""Of the settings of modules and handles that are displayed only if they differ."""


def dim_not_axis(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function say that `axis`, as in `hoyer.project`, is called `dim` here."""

    @functools.wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        if "axis" in kwargs:
            raise TypeError(
                f"axis={kwargs['axis']!r}: in hoyer.torch it is called dim, as in PyTorch: "
                f"dim={kwargs['axis']!r}"
            )
        return function(*args, **kwargs)

    return told


def target_of(sparseness: Any) -> float | Tensor:
    """Return a target as a number or as a tensor, or say why it is no number in [0, 1].

    Tensors without numbers (on the device "meta") are believed.
    """
    if not isinstance(sparseness, Tensor):
        target_norms(2, sparseness)
        return _number_or_tensor(np.asarray(sparseness))
    if not has_numbers(sparseness):
        return sparseness
    target_norms(2, array_of(sparseness))
    floating = sparseness.is_floating_point()
    return sparseness if floating else sparseness.to(torch.get_default_dtype())


def _number_or_tensor(array: Any) -> float | Tensor:
    return float(array) if array.ndim == 0 else torch.tensor(array, dtype=torch.get_default_dtype())


def as_sparseness(what: str, value: Any) -> float:
    """Return a number if it is a sparseness; if not, the error begins with `what`."""
    try:
        target_norms(2, value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
    return float(value)


def norms_of(sparseness: Any, l1: Any, l2: Any, *, at_most: bool = False) -> tuple[Any, Any]:
    """Return the norms that are asked for, each as None, a rule, a number or a tensor.

    Without any the norm is kept; otherwise the rule is that of `hoyer.project`, and so are the
    errors.
    """
    if l1 is None:
        if sparseness is None:
            raise TypeError(
                "sparseness is missing: give a number in [0, 1], or l1, or both l1 and l2 as "
                "numbers"
            )
        l2 = "keep" if l2 is None else l2
    both = l1 is not None and l2 is not None
    if both if sparseness is not None else isinstance(l2, str):
        resolve(2, sparseness, l1, l2, ())  # which says what is wrong
    return _norm("l1", l1, at_most), _norm("l2", l2, at_most)


def _norm(name: str, value: Any, at_most: bool) -> Any:
    if value is None:
        return None
    if isinstance(value, Tensor):
        if value.requires_grad and not isinstance(value, nn.Parameter):
            raise ValueError(f"{name} requires grad: pass it as an nn.Parameter")
        if not has_numbers(value):
            return value
    array = array_of(value)
    norm = array if isinstance(value, Tensor) else value
    if at_most:
        resolve(2, None, **{"l1": 1.0, "l2": 1.0, name: norm}, batch=array.shape, at_most=True)
    else:
        resolve(2, 0.5, **{"l1": None, "l2": None, name: norm}, batch=array.shape)
    return value if isinstance(value, Tensor | str) else _number_or_tensor(array)


def has_numbers(tensor: Tensor) -> bool:
    """Whether a tensor has numbers to look at, unlike meta and fake tensors."""
    return type(tensor) in (Tensor, nn.Parameter, nn.Buffer) and not tensor.is_meta


def replicated(tensor: Tensor) -> Tensor:
    """Return a DTensor all of which every rank has; other tensors as they are."""
    if not is_distributed(tensor):
        return tensor
    from torch.distributed.tensor import Replicate  # noqa: PLC0415 - it is loaded

    sharded: Any = tensor
    everywhere: Tensor = sharded.redistribute(placements=[Replicate()] * sharded.device_mesh.ndim)
    return everywhere


def full(tensor: Tensor) -> Tensor:
    """Return a DTensor as the ordinary tensor it stands for, on every rank; others as they are."""
    sharded: Any = tensor
    whole: Tensor = sharded.full_tensor() if is_distributed(tensor) else tensor
    return whole


def alongside(stored: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor that all ranks have as one that goes with `stored`, maybe a DTensor."""
    if not is_distributed(stored) or is_distributed(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate  # noqa: PLC0415 - it is loaded

    mesh = cast(Any, stored).device_mesh
    shared: Tensor = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return shared


def copy_into(stored: Tensor, tensor: Tensor) -> None:
    """Write what all ranks have, or share in any way, into `stored`, maybe a DTensor."""
    given, place = cast(Any, alongside(stored, tensor)), cast(Any, stored)
    if is_distributed(stored):
        given = given.redistribute(placements=place.placements)
    stored.copy_(given)


def array_of(value: Any) -> Any:
    """Return numbers as a NumPy array."""
    if not isinstance(value, Tensor):
        return np.asarray(value)
    return as_numpy(value)


def shown(value: Any) -> str:
    """Return a target or a norm in short, for display."""
    if not isinstance(value, Tensor):
        return f"{value:g}" if isinstance(value, float) else repr(value)
    if value.dim() > 0:
        return f"tensor of shape {tuple(value.shape)}"
    return f"{float(value.detach()):.4g}" if has_numbers(value) else f"on {value.device}"


def described(owner: Any, sparseness: Any) -> str:
    """Return the target of a module or a handle, and the settings that are not the default."""
    target = {"sparseness": sparseness, "dim": owner.dim, "l1": owner.l1, "l2": owner.l2}
    given = {name: value for name, value in target.items() if value is not None or name == "dim"}
    for name, default in _DEFAULTS.items():
        value = getattr(owner, name, default)
        if value != default:
            given[name] = value
    return ", ".join(f"{name}={shown(value)}" for name, value in given.items())


def options_of(owner: Any, sparseness: Any, axis: Axis) -> dict[str, Any]:
    """Return the arguments of `hoyer.project` that a module or a handle stands for."""
    names = ("l1", "l2", "nonnegative", "only_increase", "check_finite")
    given = {name: getattr(owner, name) for name in names}
    at_most = getattr(owner, "at_most", False)
    return {"sparseness": sparseness, "axis": axis, "at_most": at_most, **given}


def check_combination(  # noqa: PLR0917 - as modules take them
    sparseness: Any,
    l1: Any,
    l2: Any,
    nonnegative: bool,
    only_increase: bool,
    check_finite: bool,
    at_most: bool = False,
) -> None:
    """Refuse switches that are neither True nor False, and what does not go together."""
    switches = (nonnegative, only_increase, "auto", check_finite, at_most)
    check_options(Options(sparseness, l1, l2, None, *switches))  # type: ignore[arg-type]


def check_count(name: str, value: Any, least: int) -> int:
    """Return a number of steps, or say what is wrong with it."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be an int") from None
    if number < least:
        raise ValueError(f"{name}={value!r}: must be at least {least}")
    return number


# ---- which axes form a vector ----


def axes_of(dim: Dim) -> Axis:
    """Return `dim` if it can name the axes of a tensor."""
    given = dim if isinstance(dim, tuple | list) else () if dim is None else (dim,)
    if any(isinstance(one, bool) or not isinstance(one, int) for one in given):
        raise TypeError(f"dim={dim!r}: must be an int, a tuple of ints, or None")
    return tuple(dim) if isinstance(dim, list) else dim  # type: ignore[return-value]


class VectorAxes(NamedTuple):
    """How a tensor is divided into vectors."""

    axes: Axis
    """The axes of a vector, in what `split` returns."""
    groups: int = 1
    """How many groups the first axis is split into before the axes are counted."""

    def split(self, tensor: Tensor) -> Tensor:
        """Return the tensor with an axis of groups in front, where there are groups.

        Of a DTensor this is a copy, which all ranks have: an axis that they share cannot be split.
        """
        if self.groups == 1:
            return tensor
        grouped: Tensor = replicated(tensor).unflatten(0, (self.groups, -1))
        return grouped

    def layout(self, tensor: Tensor) -> Layout:
        """Return where the vectors lie in what `split` returns."""
        shape = tuple(self.split(tensor).shape)
        return Layout(shape, vector_axes(self.axes, len(shape)))


_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def vector_axes_of(
    dim: Dim, tensor: Tensor, name: str, module: nn.Module | None = None
) -> VectorAxes:
    """Return how `dim` divides a tensor, which errors call `name`.

    With "inputs" a vector is what flows into one unit of the layer, `module`: all but the first
    axis, that of the units. In transposed convolutions the units are along the second axis, and
    each group of inputs along the first has units of its own.
    """
    if not isinstance(dim, str):
        return VectorAxes(_named_axes(axes_of(dim), tuple(tensor.shape), name))
    if dim != INPUTS:
        raise ValueError(f"dim={dim!r}: give an int, a tuple of ints, None or 'inputs'")
    if module is None or isinstance(module, parametrize.ParametrizationList):
        _refuse_unknown(tensor, name)
    if tensor.dim() < 2:
        return VectorAxes((0,))
    if isinstance(module, _TRANSPOSED):
        groups = module.groups
        if tuple(tensor.shape[:2]) == (module.in_channels, module.out_channels // groups):
            spatial = range(2, tensor.dim())
            if groups == 1:
                return VectorAxes((0, *spatial))
            return VectorAxes((1, *(axis + 1 for axis in spatial)), groups)
    return VectorAxes(tuple(range(1, tensor.dim())))


def _refuse_unknown(tensor: Tensor, name: str) -> None:
    """Refuse tensors whose axes of inputs only their layer would know."""
    what = f"{name} of shape {tuple(tensor.shape)}"
    if tensor.dim() < 2:
        raise ValueError(
            f"{what} has no axis of inputs (is it a bias?): leave it out, or name its axis with "
            "dim=0"
        )
    if tensor.dim() > 2:
        raise ValueError(
            f"{what} may belong to a convolution or to a transposed one, whose inputs have other "
            "axes: pass the layer and the name instead of the tensor, (layer, 'weight'), or name "
            f"the axes, dim={tuple(range(1, tensor.dim()))}"
        )


def _named_axes(dim: Axis, shape: tuple[int, ...], name: str) -> Axis:
    """Return the axes if a tensor of this shape has them."""
    given = range(len(shape)) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    if any(not -len(shape) <= axis < len(shape) for axis in given):
        raise IndexError(f"dim={dim!r}: {name} of shape {shape} has {len(shape)} axes")
    if len({axis % len(shape) for axis in given}) < len(given):
        raise ValueError(f"dim={dim!r} names an axis twice")
    if not given:
        raise ValueError(f"dim={dim!r}: {name} of shape {shape} has no axis that could be a vector")
    return dim


def check_fit(  # noqa: PLR0917 - what is projected, and onto what
    vectors: VectorAxes,
    tensor: Tensor,
    name: str,
    targets: tuple[Any, Any, Any],
    dim: Dim,
    at_most: bool = False,
) -> None:
    """Refuse vectors that cannot be projected onto the targets: sparseness, l1 and l2.

    Targets that are tensors have a number for each vector. Errors call the tensor `name`, and
    repeat the `dim` that was given to divide it.
    """
    layout = vectors.layout(tensor)
    batch, length = layout.batch, layout.length
    what = f"{name} of shape {tuple(tensor.shape)}"
    sparseness, l1, l2 = targets
    has_ratio = not at_most and (sparseness is not None or l2 is not None)
    if length < (2 if has_ratio else 1):
        entries = "without entries" if length == 0 else "of length 1, without a sparseness"
        raise ValueError(f"dim={dim!r}: {what} has vectors {entries}")
    for target in targets:
        if not isinstance(target, Tensor):
            continue
        fits = False
        with suppress(ValueError):
            shape = without_axes(tuple(target.shape), len(batch), layout.axes)
            fits = np.broadcast_shapes(shape, batch) == batch
        if not fits:
            raise ValueError(
                f"a target of shape {tuple(target.shape)} does not fit {what} with dim={dim!r}: "
                f"give one number, or a tensor that broadcasts to {batch}, one for each vector"
            )
    known = all(not isinstance(norm, Tensor) or has_numbers(norm) for norm in (l1, l2))
    if sparseness is None and has_ratio and known:
        target_norms(length, l1=array_of(l1), l2=array_of(l2))
