"""Arrays in blocks of vectors, so that no more than a block need be in memory at a time."""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..layout import layout_of
from ..options import Axis
from ..system import spare_memory

Array: TypeAlias = npt.NDArray[Any]
Index: TypeAlias = tuple[slice, ...]

# The kinds of dtypes that are numbers.
NUMBERS = "biufc"

# Entries of a block at most: 32 MiB of float64.
BLOCK = 2**22


class Vectors(NamedTuple):
    """An array with the axes of its vectors moved to the end."""

    array: Array
    batch: tuple[int, ...]
    """Shape of the other axes."""
    length: int
    """Entries of a vector."""

    @property
    def number(self) -> int:
        """How many vectors there are."""
        return prod(self.batch)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the vectors, counted from the end."""
        return tuple(range(len(self.batch) - self.array.ndim, 0))


def as_vectors(x: Array, axis: Axis) -> Vectors:
    """View an array as vectors along an axis; nothing is copied."""
    if x.ndim == 0 and x.dtype.kind not in NUMBERS:
        raise ValueError(f"x is {kind_of_single(x)}, not a vector")
    layout = layout_of(x.shape, axis)
    moved = np.moveaxis(x, layout.axes, range(-len(layout.axes), 0))
    return Vectors(moved, layout.batch, layout.length)


def describe(count: int, length: int, dtype: str) -> str:
    """Describe in words what an array holds."""
    return f"{count} vector{'' if count == 1 else 's'} of length {length}, {dtype}"


def kind_of_single(value: Array) -> str:
    """Describe in words what an array without axes is, such as "a text"."""
    if value.dtype.kind in NUMBERS:
        return "a single number"
    return "a text" if value.dtype.kind in "US" else f"a single value of type {value.dtype}"


def exceeds_block(size: int) -> bool:
    """Whether a block cannot hold so many entries."""
    return size > BLOCK


def blocks(
    shape: tuple[int, ...], size: int, limit: int | None = None, steps: tuple[int, ...] = ()
) -> Iterator[Index]:
    """Cut axes of this shape into blocks, in order; behind each index lie `size` entries.

    A block exceeds its limit only if a single index does. Where it has room for several steps along
    an axis, it ends with one.
    """
    limit = BLOCK if limit is None else limit
    if not shape:
        yield ()
        return
    behind = size * prod(shape[1:])
    if len(shape) == 1 or behind <= limit:
        count = max(1, limit // max(1, behind))
        if steps and count > steps[0]:
            count -= count % steps[0]
        for start in range(0, shape[0], count):
            yield (slice(start, min(start + count, shape[0])),)
        return
    for start in range(shape[0]):
        for rest in blocks(shape[1:], size, limit, steps[1:]):
            yield (slice(start, start + 1), *rest)


def first_not_finite(x: Array, where: Array | None = None) -> tuple[int, ...] | None:
    """Return the place of the first NaN or infinity; with a mask, of those that count."""
    for index in blocks(x.shape, 1):
        bad = ~np.isfinite(x[index])
        places = np.argwhere(bad if where is None else bad & where[index])
        if len(places):
            starts = [cut.start for cut in index] + [0] * (x.ndim - len(index))
            return tuple(int(i) + start for i, start in zip(places[0], starts, strict=True))
    return None


def require_memory(name: str, needed: int, advice: str = "") -> None:
    """Refuse what needs more memory than there is, before the system kills the process."""
    there = spare_memory()
    if needed > there:
        raise ValueError(
            f"{name} needs about {needed / 2**30:.1f} GiB of memory, {there / 2**30:.1f} GiB are "
            f"free{advice}"
        )
