"""Vectors in arrays of any shape: which axes they lie along, and the way to rows and back."""

import math
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.exceptions import AxisError

from .options import Axis


class Layout(NamedTuple):
    """Where the vectors of an array lie."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    """Those of the vectors, in ascending order."""

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the other axes."""
        return tuple(size for i, size in enumerate(self.shape) if i not in self.axes)

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return math.prod(self.shape[axis] for axis in self.axes)

    @property
    def _last(self) -> tuple[int, ...]:
        return tuple(range(-len(self.axes), 0))

    def rows(self, x: Any, library: Any) -> Any:
        """Return an array of this shape with the vectors in the last axis."""
        moved = library.moveaxis(x, self.axes, self._last)
        return library.reshape(moved, (*self.batch, self.length))

    def back(self, rows: Any, library: Any) -> Any:
        """Return rows in this shape."""
        sizes = (self.shape[axis] for axis in self.axes)
        return library.moveaxis(library.reshape(rows, (*self.batch, *sizes)), self._last, self.axes)


def layout_of(shape: tuple[int, ...], axis: Axis) -> Layout:
    """Return where the vectors along `axis` lie in an array.

    Raises
    ------
    ValueError, TypeError
        If there are none, or if `axis` is none.
    """
    if not shape:
        raise ValueError("x is a single number, not a vector: give an array with at least one axis")
    layout = Layout(shape, vector_axes(axis, len(shape)))
    if layout.length == 0:
        raise ValueError(f"x of shape {shape} has vectors without entries along axis {axis}")
    return layout


def vector_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes of the vectors as ascending numbers; there is at least one.

    (In plain Python, which PyTorch's compiler follows.)

    Raises
    ------
    ValueError, TypeError, IndexError
        If `axis` names no axes of an array that has `ndim` of them.
    """
    if axis is None:
        return tuple(range(ndim))
    given = [_as_int(one, axis) for one in (axis if isinstance(axis, tuple | list) else (axis,))]
    if not given:
        raise ValueError("axis=() leaves nothing to project: name at least one axis, or None")
    if not all(-ndim <= one < ndim for one in given):
        count = "1 axis: use -1 or 0" if ndim == 1 else f"{ndim} axes: use {-ndim} to {ndim - 1}"
        raise AxisError(f"axis={axis!r}: x has {count}")
    axes = tuple(i for i in range(ndim) if any(one in (i, i - ndim) for one in given))
    if len(axes) < len(given):
        raise ValueError(f"axis={axis!r} names an axis twice")
    return axes


def _as_int(one: Any, axis: Any) -> int:
    if type(one) is int:
        return one
    try:
        # NumPy 2.2 and older take their booleans for numbers. A tensor would be asked for its own.
        if isinstance(one, bool | np.bool_) or hasattr(one, "requires_grad"):
            raise TypeError
        return index(one)
    except TypeError:
        raise TypeError(f"axis={axis!r}: must be an int, a tuple of ints, or None") from None


def check_mask(given: Any, is_bool: bool, shape: tuple[int, ...]) -> None:
    """Refuse a `where` that is no mask of arrays of this shape.

    Raises
    ------
    TypeError, ValueError
        If it does not hold booleans, or does not broadcast to the shape.
    """
    if not is_bool:
        raise TypeError(
            f"where has dtype {given.dtype}: give booleans, True for entries that count"
        )
    mask = tuple(given.shape)
    ends = zip(mask[::-1], shape[::-1], strict=False)
    if len(mask) > len(shape) or not all(size in (1, wanted) for size, wanted in ends):
        raise ValueError(f"where has shape {mask}, which does not broadcast to that of x, {shape}")


def shares_entries(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether entries of this size at these strides share memory, as those of a broadcast array."""
    # Axes by stride: each must step over everything the smaller ones reach.
    reach = size
    for stride, count in sorted(zip(map(abs, strides), shape, strict=True)):
        if count > 1 and 0 not in shape:
            if stride < reach:
                return True
            reach += stride * (count - 1)
    return False
