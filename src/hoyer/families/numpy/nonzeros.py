"""The nonzero entries of SciPy's sparse arrays, vector by vector; SciPy itself is not needed."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...layout import vector_axes
from ...options import Axis
from .arrays import Array, as_floats, length_of, native

BLOCK = 1 << 20
"""Entries that are looked at together, at most, unless a single vector has more."""


class Nonzeros(NamedTuple):
    """The nonzero entries of all vectors, one vector after the other, in no order within it."""

    values: Array
    counts: npt.NDArray[np.intp]
    """How many of them each vector has."""
    batch: tuple[int, ...]
    length: int
    """Entries of a vector, zeros included."""

    def blocks(self, least: int = 1) -> Iterator[tuple[npt.NDArray[np.intp], Array]]:
        """Return vectors together with rows of their nonzero entries, filled up with zeros.

        Vectors with about as many entries come together, so that few zeros are needed. Rows have at
        least so many columns (but no more than a vector has entries).
        """
        starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]])
        order = np.argsort(-self.counts, kind="stable")
        done = 0
        while done < len(order):
            width = max(int(self.counts[order[done]]), min(least, self.length))
            vectors = order[done : done + max(1, BLOCK // width)]
            place = np.arange(width)
            there = place < self.counts[vectors, None]
            rows = np.zeros(there.shape, self.values.dtype)
            rows[there] = self.values[(starts[vectors, None] + place)[there]]
            yield vectors, rows
            done += len(vectors)


def nonzeros(x: Any, axis: Axis) -> Nonzeros:
    """Return the nonzero entries of the vectors along `axis` of a sparse array.

    Entries stored twice are added, as SciPy does; x is not changed.
    """
    shape = tuple(int(size) for size in x.shape)
    axes = vector_axes(axis, len(shape))
    length = length_of(tuple(shape[i] for i in axes), shape, axis)
    rest = [i for i in range(len(shape)) if i not in axes]
    batch = tuple(shape[i] for i in rest)
    entries = x.tocoo(copy=True)
    with np.errstate(all="ignore"):
        entries.sum_duplicates()
    values = as_floats(entries.data)
    values = values[values != 0].astype(native(values.dtype), copy=False)
    owners = np.zeros(len(values), np.intp)
    if rest and len(values):
        places = entries.nonzero()
        owners = np.ravel_multi_index(tuple(places[i] for i in rest), batch)
    counts = np.bincount(owners, minlength=math.prod(batch))
    return Nonzeros(values[np.argsort(owners, kind="stable")], counts, batch, length)
