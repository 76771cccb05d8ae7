"""Arrays as the core wants them: floating, vectors last, writable where they must be."""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...layout import check_mask, shares_entries, vector_axes
from ...options import Axis
from ...target import refuse_lazy, refuse_traced

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Mask: TypeAlias = npt.NDArray[np.bool_]

DTYPES = ("float16", "float32", "float64")


class Vectors(NamedTuple):
    """An array with the axes of its vectors moved to the end, as the core wants it."""

    array: Array
    inner: int
    """How many of the last axes form a vector."""
    swapped: bool
    """Whether the bytes are in foreign order (the array claims native order)."""
    batch: tuple[int, ...]
    """Shape of the remaining axes."""
    length: int
    """Entries of a vector."""
    axes: tuple[int, ...]
    """Where the axes of the vectors were."""


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in this machine's byte order."""
    return dtype.newbyteorder("=")


def as_floats(x: Any) -> Array:
    """Return x as a floating array that keeps its precision, without copying where possible."""
    refuse_masked(x)
    try:
        array = np.asarray(x)
    except ValueError as error:
        if not isinstance(x, list | tuple) or "inhomogeneous" not in str(error):
            raise
        raise ValueError(_ragged(x)) from None
    kind = array.dtype.kind
    if kind == "f" and array.dtype.itemsize <= 8:
        return array
    if kind in "iub":
        return array.astype(np.float64)
    what = f"x has dtype {array.dtype}"
    if not isinstance(x, np.ndarray):
        columns = _columns(x)
        if columns and all(_is_real(dtype) for _, dtype in columns):
            return _without_missing(x, [dtype for _, dtype in columns])
        what = _what_is_wrong(x, columns) or what
    raise TypeError(
        f"{what}: give real numbers as {', '.join(DTYPES)}, integers or booleans{_way_out(x)}"
    )


def _ragged(x: list[Any] | tuple[Any, ...]) -> str:
    """Say what to do about lists of which NumPy makes no array."""
    lengths = {len(one) if hasattr(one, "__len__") else 1 for one in x}
    found = f", from {min(lengths)} to {max(lengths)}" if len(lengths) > 1 else ""
    return (
        f"x is a {type(x).__name__} of vectors of unequal lengths{found}: project each by itself, "
        "or fill them up and say with where which entries count"
    )


def _way_out(x: Any) -> str:
    """Say how numbers that are held as objects become an array of numbers."""
    if isinstance(x, np.ndarray):
        return ", or x.astype(float)" if x.dtype.kind == "O" else ""
    objects = any(dtype == np.dtype(object) for _, dtype in _columns(x))
    return ", or x.convert_dtypes()" if objects and hasattr(x, "convert_dtypes") else ""


# ---- pandas, which is not imported: its frames and series are known by what they have ----


def _columns(x: Any) -> list[tuple[Any, Any]]:
    """Return the labels and dtypes of a frame's columns, those of a series; nothing of others."""
    if not hasattr(x, "to_numpy") or not hasattr(x, "dtypes"):
        return []
    return list(x.dtypes.items()) if hasattr(x, "columns") else [(None, x.dtypes)]


def _is_real(dtype: Any) -> bool:
    return dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8)


def _without_missing(x: Any, dtypes: list[Any]) -> Array:
    """Return columns of numbers among which some may be missing; those are NaN."""
    floats = [np.dtype(f"f{d.itemsize}") if d.kind == "f" else np.dtype("f8") for d in dtypes]
    array: Array = x.to_numpy(dtype=np.result_type(*floats), na_value=np.nan)
    return array


def _what_is_wrong(x: Any, columns: list[tuple[Any, Any]]) -> str | None:
    for label, dtype in columns:
        if not _is_real(dtype):
            column = "x" if label is None else f"column {label!r} of x"
            return f"{column} has dtype {dtype}"
    if np.asarray(x).dtype.kind == "O":
        return f"x is of type {type(x).__name__}, which is no array of numbers"
    return None


def refuse_masked(x: Any, name: str = "x") -> None:
    """Refuse arrays whose mask would be ignored."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: pass {name}.filled(0), and "
            f"where=~{name}.mask to leave out what is masked"
        )


def as_mask(where: Any, shape: tuple[int, ...]) -> Mask:
    """Return the mask of an array of this shape, to which it broadcasts; nothing is copied."""
    refuse_masked(where, "where")
    refuse_lazy("where", where)
    try:
        array = np.asarray(where)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, TypeError):
            refuse_traced("where", error)
        raise TypeError(f"where is no array of booleans ({error})") from None
    check_mask(array, array.dtype == np.bool_, shape)
    return array


def mask_rows(where: Mask, shape: tuple[int, ...], axis: Axis) -> Mask:
    """See a mask of an array of this shape as that of its vectors, whose axes come last."""
    rows: Any = view(where if where.shape == shape else np.broadcast_to(where, shape), axis)
    mask: Mask = rows.array
    return mask


def view(x: Any, axis: Axis) -> Vectors:
    """See an array as vectors along `axis`; nothing is copied."""
    swapped = not x.dtype.isnative
    if swapped:
        x = x.view(native(x.dtype))
    ndim = x.ndim
    if ndim == 0:
        raise ValueError("x is a single number, not a vector: give an array with at least one axis")
    # Axes found by this function come again.
    last = axis[0] if type(axis) is tuple and len(axis) == 1 else axis
    if type(last) is int and last in (-1, ndim - 1):
        axes: tuple[int, ...] = (ndim - 1,)
    else:
        axes = vector_axes(axis, ndim)
        x = np.moveaxis(x, axes, range(ndim - len(axes), ndim))
    inner = len(axes)
    length = length_of(x.shape[ndim - inner :], x.shape, axis)
    return Vectors(x, inner, swapped, x.shape[: ndim - inner], length, axes)


def length_of(sizes: tuple[int, ...], shape: tuple[int, ...], axis: Axis) -> int:
    """Return the entries of a vector with axes of these sizes in x of this shape."""
    length = math.prod(sizes)
    if length == 0:
        raise ValueError(f"x of shape {shape} has vectors without entries along axis {axis}")
    return length


def readable(x: Array, axis: Axis) -> Vectors:
    """See an array as vectors, copying it only if no typed pointer can reach its entries."""
    vectors = view(x, axis)
    return vectors if passable(vectors.array) else view(x.astype(native(x.dtype)), axis)


def native_view(x: Array, axis: Axis) -> Vectors:
    """See an array as vectors in native byte order, copying it only if it is not."""
    vectors = view(x, axis)
    if vectors.swapped or not passable(vectors.array):
        vectors = view(x.astype(native(x.dtype)), axis)
    return vectors


def passable(x: Array) -> bool:
    """Whether a typed pointer with strides in whole entries can reach every entry."""
    return x.flags.aligned and not any(stride % x.itemsize for stride in x.strides)


def plain(x: Array) -> Array:
    """Return an array as NumPy's own class, in this machine's byte order if its bytes are.

    (Zarr's arrays name that order, which the core does not expect.)
    """
    array = np.asarray(x)
    return array.view(native(array.dtype)) if array.dtype.isnative else array


def check_writable(name: str, array: Array) -> None:
    """Refuse arrays that cannot be written entry by entry."""
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only: pass a writable array")
    contiguous = array.flags.c_contiguous  # asked first: it is the quicker question
    if not contiguous and shares_entries(array.shape, array.strides, array.itemsize):
        raise ValueError(
            f"{name} of shape {array.shape} has entries that share memory: pass a copy"
        )


def check_out(out: Any, x: Array) -> None:
    """Refuse an `out` that cannot take the projection of x."""
    check_like(out, x)
    check_apart(out, x, "x")


def check_like(out: Any, like: Array) -> None:
    """Refuse an `out` that cannot take a result shaped and typed like another array."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    refuse_masked(out, "out")
    if native(out.dtype) != native(like.dtype):
        raise ValueError(f"out has dtype {out.dtype}, the result has {native(like.dtype)}")
    if out.shape != like.shape:
        raise ValueError(f"out has shape {out.shape}, the result has {like.shape}")
    check_writable("out", out)


def check_apart(out: Array, x: Array, name: str) -> None:
    """Refuse an `out` that shares memory with an array unless it is that array."""
    if not np.may_share_memory(x, out) or same_memory(x, out):
        return
    work: Any = 10_000
    try:
        overlap = np.shares_memory(x, out, max_work=work)
    except np.exceptions.TooHardError:
        overlap = True
    if overlap:
        raise ValueError(
            f"out overlaps {name} without being {name}: pass {name} itself, or memory of its own"
        )


def same_memory(a: Array, b: Array) -> bool:
    """Whether both arrays are the same entries in the same order."""
    return (
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.strides == b.strides
        and a.dtype == b.dtype
    )
