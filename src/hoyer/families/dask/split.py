"""Long vectors in several chunks: the search of `hoyer.engines.parts`, laid out as tasks.

How many requests a search has depends on the numbers, and a graph is made before they are known.
So two passes over all chunks are tasks like any other, and most searches end with them. The tasks
of those that might follow take no chunk: they read one, in groups, where a search goes on, and do
nothing where it has ended. Last comes a pass that writes.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from ...engines import core, parts
from ...engines.arrays.histogram import Parts
from ...engines.arrays.namespace import Namespace, namespace
from ...engines.parts import Place, Request, Solution
from ...options import Options
from ...plan import Plan, masked_plan, plan_for
from ...projection import Projection
from .. import not_finite
from .arrays import Given, direction_of, meta_like
from .local import FIELDS, bare, chunk_name, places
from .reading import Source, can_read_again, kept, read_after

HOST = namespace(np)
GROUP = 8
"""Chunks that one task looks at, one after the other, in passes that are rarely needed."""


class Search(NamedTuple):
    """The search for the projection of one vector, as far as it has come: it can be taken up.

    A generator cannot travel between workers, so answers are kept, and heard again by a new one.
    """

    plan: Plan
    dtype: Any
    answers: tuple[Any, ...] = ()
    request: Request | None = None
    solution: Solution | None = None

    def told(self, answer: Any) -> "Search":
        """Return the search after one more answer."""
        answers = (*self.answers, answer)
        steps = parts.search(self.plan, self.dtype, HOST)
        request = next(steps)
        try:
            for one in answers:
                request = steps.send(one)
        except StopIteration as stop:
            return self._replace(answers=(), request=None, solution=stop.value)
        return self._replace(answers=answers, request=request)


class Said(NamedTuple):
    """What one chunk, or several together, answer to a request about one vector."""

    request: Request
    answer: Any


class Blocks(NamedTuple):
    """Chunks that a task looks at one after the other: their numbers, and where they begin."""

    numbers: tuple[tuple[int, ...], ...]
    slices: tuple[tuple[slice, ...], ...]


# ---- the passes, as tasks ----


def project(given: Given) -> da.Array:
    """Project vectors that are divided, where they are."""
    passes = Passes(given)
    return passes.written(passes.solved())


class Passes:
    """The passes over the chunks of some arrays: vectors, and maybe a mask."""

    def __init__(self, given: Given) -> None:
        self.given, self.x, self.axes = given, given.x, given.axes
        mask = given.array("where")
        self.arrays = (given.x,) if mask is None else (given.x, _as_large(mask, given.x))
        self.reads_again = all(map(can_read_again, self.arrays))
        self.shape = tuple(self.x.shape[i] for i in self.axes)
        self.slices = _slices(self.x)
        # The first request does not depend on the target.
        plan = plan_for(4, Options(0.5, None, None, None, *given.options[4:8]))
        self.first = next(parts.search(plan, self.x.dtype, HOST))

    def solved(self) -> da.Array:
        """Return a `Solution` for every vector."""
        options = self.given.options
        look = partial(look_first, request=self.first, checks=bool(options.check_finite))
        said = self._merged(self._seen(look, self.arrays))
        state = self._begun(said)
        again = read_after if self.reads_again else kept
        said = self._merged(self._seen(look_further, again(self.arrays, state, "second"), state))
        state = self._advanced(state, said)
        for number in range(parts.most_requests(self.x.dtype) - 2):
            state = self._advanced(state, self._rarely(state, number))
        return self._objects(solution_of, state)

    def written(self, solved: da.Array) -> da.Array:
        """Return the results, in a pass over all chunks."""
        again = read_after if self.reads_again else kept
        arrays = again(self.arrays, solved, "write")
        x = self.x
        return self._seen(write, arrays, solved, dtype=x.dtype, meta=meta_like(x, x.ndim, x.dtype))

    def _seen(self, function: Any, arrays: Any, *more: da.Array, **kind: Any) -> da.Array:
        """Return a function of every chunk; without a kind it returns objects, one per vector."""
        index = self.given.index
        ones = None
        if not kind:
            kind = {"dtype": object, "meta": np.empty((0,) * self.x.ndim, object)}
            ones = dict.fromkeys(self.axes, 1)
        mask = arrays[1:]
        return da.blockwise(
            partial(function, axes=self.axes, shape=self.shape, masked=bool(mask)),
            index,
            arrays[0],
            index,
            self.slices,
            index,
            *(one for array in (*mask, *more) for one in (array, index)),
            align_arrays=False,
            adjust_chunks=ones,
            token=f"hoyer-{function.__name__ if hasattr(function, '__name__') else 'look'}",
            **kind,
        )

    def _objects(self, function: Any, *arrays: da.Array, token: str = "hoyer-search") -> da.Array:
        """Return a function of arrays with an object per vector, another one like them."""
        index = self.given.index
        return da.blockwise(
            function,
            index,
            *(one for array in arrays for one in (array, index)),
            align_arrays=False,
            token=token,
            dtype=object,
            meta=np.empty((0,) * self.x.ndim, object),
        )

    def _merged(self, said: da.Array) -> da.Array:
        """Return what all chunks of each vector say together, by a tree."""
        return da.reduction(
            said,
            chunk=unchanged,
            combine=merge,
            aggregate=merge,
            axis=self.axes,
            keepdims=True,
            dtype=object,
            concatenate=False,
            meta=np.empty((0,) * self.x.ndim, object),
        )

    def _begun(self, said: da.Array) -> da.Array:
        """Return the searches after the first answers, with targets where there are several."""
        given, names, arrays = self.given, [], []
        for name, array in zip(given.names, given.arrays, strict=True):
            names.append("lengths" if name == "where" else name)
            mask = self.arrays[-1]
            counted = mask.sum(axis=self.axes, keepdims=True, dtype=np.int64)
            arrays.append(counted if name == "where" else array)
        begin = partial(
            begin_searches,
            names=tuple(names),
            options=given.options,
            n=given.length,
            dtype=self.x.dtype,
        )
        return self._objects(begin, said, *arrays)

    def _advanced(self, state: da.Array, said: da.Array) -> da.Array:
        return self._objects(advance, state, said)

    def _rarely(self, state: da.Array, number: int) -> da.Array:
        """Return what chunks say in a pass that few searches need: chunks in groups, if at all."""
        x, axes = self.x, self.axes
        name = f"hoyer-pass-{tokenize(state.name, number, *(array.name for array in self.arrays))}"
        look = partial(look_rarely, axes=axes, shape=self.shape, masked=len(self.arrays) > 1)
        graph: dict[Any, Any] = {}
        dependencies: list[da.Array] = [state]
        if self.reads_again:
            graph[f"{name}-source"] = Source(self.arrays)
        else:
            dependencies += self.arrays
        for batch in product(*(range(x.numblocks[i]) for i in self.given.batch)):
            known = dict(zip(self.given.batch, batch, strict=True))
            place = tuple(known.get(i, 0) for i in range(x.ndim))
            keys = []
            for blocks in self._groups(known):
                source: Any = f"{name}-source"
                if not self.reads_again:
                    source = [[(a.name, *i) for a in self.arrays] for i in blocks.numbers]
                keys.append((f"{name}-part", *place, len(keys)))
                graph[keys[-1]] = (look, (state.name, *place), source, blocks)
            graph[name, *place] = (merge, keys)
        layers = HighLevelGraph.from_collections(name, graph, dependencies=dependencies)
        return da.Array(layers, name, state.chunks, meta=np.empty((0,) * x.ndim, object))

    def _groups(self, known: dict[int, int]) -> Iterator[Blocks]:
        """Return the chunks of the vectors in one part of the batch, some at a time."""
        ranges = [
            (known[i],) if i in known else range(blocks)
            for i, blocks in enumerate(self.x.numblocks)
        ]
        numbers = list(product(*ranges))
        for start in range(0, len(numbers), GROUP):
            some = tuple(numbers[start : start + GROUP])
            yield Blocks(some, tuple(self.slices[number] for number in some))


def _as_large(mask: da.Array, x: da.Array) -> da.Array:
    """Return a mask that has an entry for each of x."""
    if mask.chunks == x.chunks:
        return mask
    return da.broadcast_to(mask, x.shape, chunks=x.chunks)


def _slices(x: da.Array) -> Any:
    """Return where chunks begin; along axes of unknown sizes by their number."""
    chunks = tuple(sizes if is_known(sizes) else (1,) * len(sizes) for sizes in x.chunks)
    return ArraySliceDep(chunks)


# ---- what is done to one chunk ----


def vectors_of(x: Any, axes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return a chunk with the axes of its vectors at the end, and the shape of the others."""
    moved = x.transpose([i for i in range(x.ndim) if i not in axes] + list(axes))
    return moved, moved.shape[: x.ndim - len(axes)]


def boxed(items: list[Any], ndim: int, axes: tuple[int, ...], batch: tuple[int, ...]) -> Any:
    """Return an object per vector as an array that has the axes of the vectors, of length 1."""
    result = np.empty(len(items), object)
    for i, item in enumerate(items):
        result[i] = item
    sizes = iter(batch)
    return result.reshape([1 if i in axes else next(sizes) for i in range(ndim)])


def engine_of(x: Any) -> Any:
    """Return who computes on the parts of a chunk."""
    if isinstance(x, np.ndarray):
        return core
    return Parts(namespace(sys.modules[type(x).__module__.partition(".")[0]]))


def to_host(numbers: Any) -> Any:
    """Return an engine's answer as a NumPy array."""
    return numbers.get() if hasattr(numbers, "get") else np.asarray(numbers)


def look(
    x: Any, where: Any, place: Any, requests: Any, axes: tuple[int, ...], shape: tuple[int, ...]
) -> Any:
    """Return what a chunk says to a request for each of its vectors; None where there is none."""
    moved, batch = vectors_of(x, axes)
    masks = None if where is None else vectors_of(where, axes)[0]
    engine, at = engine_of(x), Place(tuple(place[i].start for i in axes), shape)
    items: list[Any] = []
    for index, request in zip(np.ndindex(batch), requests, strict=True):
        if request is None:
            items.append(None)
            continue
        mask = None if masks is None else masks[index]
        numbers = to_host(parts.answer(engine, moved[index], request, at, mask))
        items.append(Said(request, numbers))
    return boxed(items, x.ndim, axes, batch)


def look_first(
    x: Any,
    place: Any,
    *mask: Any,
    request: Request,
    checks: bool,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    masked: bool,
) -> Any:
    """Return what a chunk says to the first request; refuse NaN and infinity if asked to."""
    where = mask[0] if masked else None
    count = math.prod(size for i, size in enumerate(x.shape) if i not in axes)
    said = look(x, where, place, [request] * count, axes, shape)
    if checks and any(one.answer[0] for one in said.ravel()):
        raise ValueError(_bad_entry(to_host(x), where, place, axes))
    return said


def _bad_entry(x: Any, where: Any, place: Any, axes: tuple[int, ...]) -> str:
    """Say where in the whole array the first entry is that is NaN or infinity."""
    bad = ~np.isfinite(x) if where is None else ~np.isfinite(x) & to_host(where)
    local = np.argwhere(bad)[0]
    whole = [int(i) + part.start for i, part in zip(local, place, strict=True)]
    entry = tuple(whole[i] for i in axes)
    vector = tuple(one for i, one in enumerate(whole) if i not in axes)
    which = f" of vector {vector if len(vector) > 1 else vector[0]}" if vector else ""
    words = not_finite(x[tuple(local)], entry if len(entry) > 1 else entry[0], which)
    slices = ", ".join(f"{one.start}:{one.stop}" for one in place)
    return f"{words} (in the chunk x[{slices}])"


def look_further(
    x: Any,
    place: Any,
    *more: Any,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    masked: bool,
) -> Any:
    """Return what a chunk says to searches that go on."""
    *mask, state = more
    where = mask[0] if masked else None
    return look(x, where, place, [search.request for search in state.ravel()], axes, shape)


def look_rarely(state: Any, source: Any, blocks: Blocks, **where_and_how: Any) -> Any:
    """Return what some chunks say to searches that go on, reading one after the other."""
    requests = [search.request for search in state.ravel()]
    if not any(requests):
        return np.full(state.shape, None)
    said = []
    for i, (number, place) in enumerate(zip(*blocks, strict=True)):
        x, *mask = source.read(number) if isinstance(source, Source) else source[i]
        said.append(look_further(x, place, *mask, state, **where_and_how))
    return merge(said)


def write(
    x: Any,
    place: Any,
    *more: Any,
    axes: tuple[int, ...],
    shape: tuple[int, ...],
    masked: bool,
) -> Any:
    """Return the results of a chunk."""
    *mask, solved = more
    moved, batch = vectors_of(x, axes)
    masks = vectors_of(mask[0], axes)[0] if masked else None
    engine, at = engine_of(x), Place(tuple(place[i].start for i in axes), shape)
    if not batch:
        where = None if masks is None else masks
        return parts.write(engine, moved, solved.item(), at, where)
    result = empty_like(x)
    room = vectors_of(result, axes)[0]
    for index, solution in zip(np.ndindex(batch), solved.ravel(), strict=True):
        where = None if masks is None else masks[index]
        room[index] = parts.write(engine, moved[index], solution, at, where)
    return result


def unchanged(said: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """Return it, as a reduction asks for."""
    return said


def merge(said: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """Return what several chunks say together."""
    arrays = list(_leaves(said))
    result = np.empty(arrays[0].size, object)
    for i, group in enumerate(zip(*(array.ravel() for array in arrays), strict=True)):
        if group[0] is not None:
            request = group[0].request
            result[i] = Said(request, parts.merged(request, [one.answer for one in group]))
    return result.reshape(arrays[0].shape)


def _leaves(said: Any) -> Iterator[Any]:
    if isinstance(said, list):
        for one in said:
            yield from _leaves(one)
    else:
        yield said


# ---- searches, between the passes ----


def begin_searches(
    said: Any, *arrays: Any, names: tuple[str, ...], options: Options, n: int, dtype: Any
) -> Any:
    """Return the searches of some vectors after the first answers."""
    targets = [np.broadcast_to(to_host(array), said.shape).ravel() for array in arrays]
    result = np.empty(said.size, object)
    for i, one in enumerate(said.ravel()):
        own = {name: np.asarray(target[i]) for name, target in zip(names, targets, strict=True)}
        lengths = own.pop("lengths", None)
        asked = options._replace(axis=None, **own)
        if lengths is None:
            plan = plan_for(n, asked)
        else:
            plan = masked_plan(n, asked, None, lengths)
        result[i] = Search(plan, dtype).told(one.answer)
    return result.reshape(said.shape)


def advance(state: Any, said: Any) -> Any:
    """Return searches after the answers that some of them wanted."""
    result = np.empty(state.size, object)
    pairs = zip(state.ravel(), said.ravel(), strict=True)
    for i, (search, one) in enumerate(pairs):
        result[i] = search if one is None else search.told(one.answer)
    return result.reshape(state.shape)


def solution_of(state: Any) -> Any:
    """Return what searches have found; all have come to their end."""
    result = np.empty(state.size, object)
    for i, search in enumerate(state.ravel()):
        assert search.solution is not None, "a search took more requests than it can"
        result[i] = search.solution
    return result.reshape(state.shape)
