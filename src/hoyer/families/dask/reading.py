"""How chunks come to be read several times: kept in memory, or computed again for each pass."""

import math
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.core import get_dependencies
from dask.highlevelgraph import HighLevelGraph
from dask.optimization import cull

FEW_TASKS = 16
"""A chunk that is made by more tasks than this is kept: to make it again would take too long."""
SMALL = 1 << 16
"""Bytes of data within the graph of an array, all together, that may be there several times,"""
SHARE = 64
"""or as much as this part of what the array has itself: states of generators, one per chunk."""

TASKS = "dask._task_spec"
"""Where Dask has its kinds of tasks,"""
FIELDS = ("value", "func", "args", "kwargs", "keywords")
"""and what these, and partial functions, hold."""


class Source:
    """The graph of some arrays as one thing that tasks take along, and read a chunk of.

    (`dask.graph_manipulation.bind` would make a second graph, but forgets what tasks of some layers
    depend on, as those of delayed functions: these then are kept in memory for it.)
    """

    def __init__(self, arrays: tuple[da.Array, ...]) -> None:
        self.names = tuple(array.name for array in arrays)
        self.numblocks = tuple(array.numblocks for array in arrays)
        self.graph = HighLevelGraph.merge(*(array.__dask_graph__() for array in arrays))

    def __dask_tokenize__(self) -> Any:
        return "hoyer-source", self.names

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "tasks"}

    @cached_property
    def tasks(self) -> dict[Any, Any]:
        """All tasks, which are written out where they are needed."""
        return dict(self.graph.to_dict())

    def read(self, place: tuple[int, ...]) -> list[Any]:
        """Compute the chunks of all arrays at one place, in this thread."""
        pairs = zip(self.names, self.numblocks, strict=True)
        keys = [chunk_key(name, numblocks, place) for name, numblocks in pairs]
        small, _ = cull(self.tasks, keys)
        return list(dask.get(small, keys))


def read_again(place: tuple[int, ...], source: Source, before: Any = None) -> Any:
    """Return the chunk at a place, or a list if there are several arrays, once `before` is known.

    That is given so that the task waits.
    """
    chunks = source.read(tuple(int(i) for i in place))
    return chunks if len(chunks) > 1 else chunks[0]


def one_of(chunks: list[Any], number: int) -> Any:
    """Return the chunk of one array."""
    return chunks[number]


def chunk_key(name: str, numblocks: tuple[int, ...], place: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the key of the chunk that lies beside one of x; a single one lies beside all."""
    return name, *(i if n > 1 else 0 for i, n in zip(place, numblocks, strict=True))


def can_read_again(array: da.Array) -> bool:
    """Whether every chunk is made by a few tasks, and the graph holds no data to speak of.

    Not so of arrays in memory, of those that a cluster holds, and where chunks depend on others.
    """
    graph = array.__dask_graph__().to_dict()
    whole = array.nbytes if not math.isnan(array.nbytes) else 0
    if _bytes_of(graph) > max(SMALL, whole / SHARE):
        return False
    dependencies = {key: get_dependencies(graph, key) for key in graph}
    keys = dask.core.flatten(array.__dask_keys__())
    return all(_is_made_by_few(key, dependencies) for key in keys)


def _is_made_by_few(key: Any, dependencies: Mapping[Any, Any]) -> bool:
    """Whether at most `FEW_TASKS` tasks make what has this key."""
    seen, waiting = {key}, [key]
    while waiting:
        new = dependencies[waiting.pop()] - seen
        seen |= new
        if len(seen) > FEW_TASKS:
            return False
        waiting += new
    return True


def _bytes_of(graph: Mapping[Any, Any]) -> float:
    """Return the bytes of all arrays in a graph, each counted once; inf for a promise of data."""
    total: float = 0
    counted: set[int] = set()
    for value in _values(graph.values()):
        if type(value).__name__ == "Future" or hasattr(value, "__cuda_array_interface__"):
            return np.inf
        if isinstance(value, np.ndarray) and id(value) not in counted:
            counted.add(id(value))
            total += value.nbytes
    return total


def _values(tasks: Any) -> Iterator[Any]:
    """Return what is written into tasks: their data, and the arguments that are no keys."""
    waiting = list(tasks)
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple | list | set):
            waiting += one
        elif isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, partial) or type(one).__module__ == TASKS:
            waiting += [getattr(one, name) for name in FIELDS if hasattr(one, name)]
        else:
            yield one
