"""How chunks come to be read several times: kept in memory, or computed again for each pass."""

from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.graph_manipulation import bind
from dask.highlevelgraph import HighLevelGraph

FEW_TASKS = 16
"""A chunk that is made by more tasks than this is kept: to make it again would take too long."""
SMALL = 1 << 16
"""Bytes of an array within a graph that may be there twice."""


class Source:
    """The graph of some arrays as one thing that tasks take along, and read a chunk of."""

    def __init__(self, arrays: tuple[da.Array, ...]) -> None:
        self.names = tuple(array.name for array in arrays)
        self.graph = HighLevelGraph.merge(*(array.__dask_graph__() for array in arrays))

    def __dask_tokenize__(self) -> Any:
        return "hoyer-source", self.names

    def read(self, place: tuple[int, ...]) -> list[Any]:
        """Compute the chunks of all arrays at one place, in this thread."""
        keys = [(name, *place) for name in self.names]
        small = self.graph.cull(set(keys))
        return list(dask.get(small.to_dict(), keys))


def can_read_again(array: da.Array) -> bool:
    """Whether a chunk is made by a few tasks that hold no data themselves.

    Not so of arrays in memory, of those that a cluster holds, and where chunks depend on others.
    """
    key = (array.name, *(0 for _ in array.chunks))
    graph = array.__dask_graph__().cull({key}).to_dict()
    return len(graph) <= FEW_TASKS and not any(map(_holds_data, graph.values()))


def _holds_data(task: Any) -> bool:
    """Whether a task is data, or a promise of them."""
    value = getattr(task, "value", task)
    if isinstance(value, np.ndarray):
        return value.nbytes > SMALL
    return hasattr(value, "__cuda_array_interface__") or type(value).__name__ == "Future"


def read_after(arrays: tuple[da.Array, ...], before: da.Array, pass_name: str) -> Any:
    """Return the same arrays, whose chunks are computed again once `before` is known."""
    seed = tokenize(pass_name, before.name, *(array.name for array in arrays))
    return bind(arrays, before, seed=seed)


def kept(arrays: tuple[da.Array, ...], before: da.Array, pass_name: str) -> Any:
    """Return the same arrays, whose chunks stay in memory from one pass to the next."""
    return arrays
