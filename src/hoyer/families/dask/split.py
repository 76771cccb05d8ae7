"""Long vectors in several chunks: the search of `hoyer.engines.parts`, laid out as tasks.

How many requests a search has depends on the numbers, and a graph is made before they are known.
So two passes over all chunks are tasks like any other, and most searches end with them. The tasks
of those that might follow take no chunk: they read some, one after the other, where a search goes
on, and do nothing where it has ended. Last comes a pass that writes.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import compress, product
from operator import not_
from typing import Any, NamedTuple, NoReturn

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayBlockIdDep, ArraySliceDep

from ...options import Options
from ...projection import RECORD_FIELDS, Projection
from . import parts, search
from .arrays import Given, direction_of, is_known, meta_like, refuse_out
from .local import FIELDS, places
from .reading import Source, can_read_again, chunk_key, one_of, read_again

GROUP = 8
"""Chunks that a task reads, one after the other, in passes that are rarely needed."""


def project(given: Given) -> da.Array:
    """Project vectors that are divided, where they are."""
    passes = Passes(given)
    state = passes.searched()
    return passes.like_x(parts.write, passes.last(state), state)


def solve(given: Given) -> Projection[da.Array]:
    """Project vectors that are divided, and tell how."""
    passes = Passes(given)
    state = passes.searched()
    arrays = passes.last(state)
    value = passes.like_x(parts.write, arrays, state)
    fields: Any = {}
    for name, kind in FIELDS.items():
        number = RECORD_FIELDS.index(name.removesuffix("_code"))
        field = partial(search.field_of, number=number, dtype=kind)
        fields[name] = passes.per_vector(field, state, kind)
    derivatives = PartDerivatives(passes, value, state, arrays)
    return Projection(value, derivatives=derivatives, **fields)


def sparseness(x: da.Array, axes: tuple[int, ...]) -> da.Array:
    """Measure vectors that are divided, by exact sums over all chunks."""
    nothing = Options(None, None, None, axes, False, False, "auto", False)
    passes = Passes(Given(x, axes, nothing, (), ()))
    sigma = partial(search.sigma_of, n=passes.given.length, dtype=x.dtype)
    return passes.per_vector(sigma, passes.asked_first(), x.dtype)


class Passes:
    """The passes over the chunks of some arrays: vectors, and maybe a mask."""

    def __init__(self, given: Given) -> None:
        self.given, self.x, self.axes = given, given.x, given.axes
        mask = given.array("where")
        self.arrays: tuple[da.Array, ...] = (given.x,) if mask is None else (given.x, mask)
        self.reads_again = tuple(map(can_read_again, self.arrays))
        # One for all passes, as it may hold some data.
        name = f"hoyer-source-{tokenize(*(array.name for array in self._read))}"
        self.source = (
            dask.delayed(Source(self._read), name=name, traverse=False) if self._read else None
        )
        self.digests: da.Array
        self.slices = _slices(self.x)
        shape = tuple(self.x.shape[i] for i in self.axes)
        self.frame = parts.Frame(self.axes, shape, masked=mask is not None)

    def asked_first(self) -> da.Array:
        """Return what all chunks together say to the first request."""
        return self._merged(self._first(digested=False), search.merge)

    def searched(self) -> da.Array:
        """Return the searches of all vectors, which have come to their end."""
        said = self._merged(self._first(digested=self.reads_again[0]), search.merge)
        if self.reads_again[0]:
            ones = dict.fromkeys(self.given.labels, 1)
            self.digests = self._objects(search.digests_of, said, adjust_chunks=ones)
        state = self._begun(said)
        asked = self._objects(search.requests_of, state)
        arrays = self._again(asked)
        said = self._merged(self._seen(parts.look_further, arrays, asked), search.merge)
        state = self._objects(search.advance, state, said)
        nonnegative = bool(self.given.options.nonnegative)
        for _ in range(2, search.most_requests(nonnegative, self.x.dtype)):
            state = self._rarely(state)
        return self._objects(search.ended, state)

    def last(self, state: da.Array) -> Any:
        """Return the arrays as they are read for the last time, when all searches have ended."""
        return self._again(state)

    def like_x(self, function: Any, arrays: Any, *more: da.Array) -> da.Array:
        """Return a function of every chunk, shaped like it."""
        x = self.x
        meta = meta_like(x, x.ndim, x.dtype)
        return self._seen(function, arrays, *more, dtype=x.dtype, meta=meta)

    def per_vector(self, function: Any, objects: da.Array, dtype: Any) -> da.Array:
        """Return a number for each vector from an object for each."""
        batch = self.given.batch
        return da.blockwise(
            partial(function, axes=self.axes),
            batch,
            objects,
            self.given.labels,
            token="hoyer-number",
            dtype=dtype,
            meta=meta_like(self.x, len(batch), dtype),
        )

    def added(self, function: Any, arrays: Any, *more: da.Array) -> da.Array:
        """Return sums over all chunks, for every vector, of what a function returns."""
        return self._merged(self._seen(function, arrays, *more), search.add)

    # ---- tasks ----

    def _first(self, *, digested: bool) -> da.Array:
        """Return what every chunk says to the first request; if it is read again, with a digest."""
        options = self.given.options
        arrays = self._again() if digested else self.arrays
        look = partial(
            parts.look_first,
            request=search.first_request(bool(options.nonnegative), self.x.dtype),
            checks=bool(options.check_finite),
            digested=digested,
        )
        return self._seen(look, arrays, places(self.x))

    def _again(self, before: da.Array | None = None) -> tuple[da.Array, ...]:
        """Return the arrays for a pass: read for it, once `before` is known, or kept."""
        read = iter(self._read_after(before) if self._read else ())
        pairs = zip(self.arrays, self.reads_again, strict=True)
        x, *mask = (next(read) if again else array for array, again in pairs)
        if self.reads_again[0] and before is not None:
            x = self._compared(x)
        return x, *mask

    def _read_after(self, before: da.Array | None) -> list[da.Array]:
        """Return those that are read again, in the chunks of x: those of masks may be smaller."""
        arrays = self._read
        numbers = ArrayBlockIdDep(self.x.chunks)
        kind = {"dtype": arrays[0].dtype, "meta": arrays[0]._meta}
        kind = kind if len(arrays) == 1 else self._of_objects
        index = self.given.labels
        given = (
            numbers,
            index,
            self.source,
            None,
            *((before, index) if before is not None else ()),
        )
        options: dict[str, Any] = {"align_arrays": False, "token": "hoyer-read"}
        chunks = da.blockwise(read_again, index, *given, **options, **kind)
        if len(arrays) == 1:
            return [chunks]
        return [
            da.blockwise(
                partial(one_of, number=i),
                index,
                chunks,
                index,
                dtype=array.dtype,
                meta=array._meta,
                **options,
            )
            for i, array in enumerate(arrays)
        ]

    def _compared(self, x: da.Array) -> da.Array:
        """Return x, whose chunks are refused if they are not what they were in the first pass."""
        index = self.given.labels
        return da.blockwise(
            parts.compared,
            index,
            x,
            index,
            self.digests,
            index,
            places(self.x),
            index,
            align_arrays=False,
            token="hoyer-compared",
            dtype=x.dtype,
            meta=x._meta,
        )

    @property
    def _read(self) -> tuple[da.Array, ...]:
        """Those of the arrays that are read again for every pass."""
        return tuple(compress(self.arrays, self.reads_again))

    @property
    def _kept(self) -> tuple[da.Array, ...]:
        """The others, whose chunks stay in memory from one pass to the next."""
        return tuple(compress(self.arrays, map(not_, self.reads_again)))

    def _seen(self, function: Any, arrays: Any, *more: da.Array, **kind: Any) -> da.Array:
        """Return a function of every chunk; without a kind it returns an object per vector."""
        index, ones = self.given.labels, None
        if not kind:
            kind, ones = self._of_objects, dict.fromkeys(self.axes, 1)
        x, *mask = arrays
        return da.blockwise(
            partial(function, frame=self.frame),
            index,
            x,
            index,
            self.slices,
            index,
            *(one for array in (*mask, *more) for one in (array, index)),
            align_arrays=False,
            adjust_chunks=ones,
            token="hoyer-pass",
            **kind,
        )

    def _objects(self, function: Any, *arrays: Any, **sizes: Any) -> da.Array:
        """Return a function of arrays with an object per vector: another one like them."""
        index = self.given.labels
        pairs = (one for array in arrays for one in (array, index))
        kind = {**self._of_objects, **sizes}
        return da.blockwise(
            function, index, *pairs, align_arrays=False, token="hoyer-search", **kind
        )

    @property
    def _of_objects(self) -> dict[str, Any]:
        return {"dtype": object, "meta": np.empty((0,) * self.x.ndim, object)}

    def _merged(self, said: da.Array, merging: Any) -> da.Array:
        """Return what all chunks of each vector say together, by a tree."""
        return da.reduction(
            said,
            chunk=search.unchanged,
            combine=merging,
            aggregate=merging,
            axis=self.axes,
            keepdims=True,
            concatenate=False,
            **self._of_objects,
        )

    def _begun(self, said: da.Array) -> da.Array:
        """Return the searches after the first answers, with their targets."""
        given = self.given
        arrays = dict(zip(given.names, given.arrays, strict=True))
        if self.frame.masked:
            arrays["where"] = self._counted(self.arrays[1])
        begin = partial(
            search.begin,
            names=tuple(arrays),
            options=given.options,
            n=given.length,
            dtype=self.x.dtype,
            axes=self.axes,
        )
        return self._objects(begin, said, places(said), *arrays.values())

    def _counted(self, mask: da.Array) -> da.Array:
        """Return how many entries of each vector a mask leaves: that is enough for a target."""
        counts = mask.sum(axis=self.axes, keepdims=True, dtype=np.int64)
        spread = math.prod(self.x.shape[i] for i in self.axes if mask.shape[i] == 1)
        return counts * spread if spread > 1 else counts

    def _rarely(self, state: da.Array) -> da.Array:
        """Return the searches after a pass that few of them need."""
        x = self.x
        name = f"hoyer-rarely-{tokenize(state.name, *(array.name for array in self.arrays))}"
        look = partial(parts.look_rarely, frame=self.frame, again=self.reads_again)
        graph: dict[Any, Any] = {}
        for batch in product(*(range(x.numblocks[i]) for i in self.given.batch)):
            known = dict(zip(self.given.batch, batch, strict=True))
            place = tuple(known.get(i, 0) for i in self.given.labels)
            keys: list[Any] = []
            for blocks in self._groups(known):
                held = [
                    [chunk_key(a.name, a.numblocks, i) for a in self._kept] for i in blocks.numbers
                ]
                source = None if self.source is None else self.source.key
                keys.append((f"{name}-part", *place, len(keys)))
                graph[keys[-1]] = (look, (state.name, *place), source, held, blocks)
            graph[name, *place] = (search.advance, (state.name, *place), keys)
        others = () if self.source is None else (self.source,)
        layers = HighLevelGraph.from_collections(
            name, graph, dependencies=(state, *others, *self._kept)
        )
        return da.Array(layers, name, state.chunks, meta=self._of_objects["meta"])

    def _groups(self, known: dict[int, int]) -> Iterator[parts.Blocks]:
        """Return the chunks of the vectors in one part of the batch, some at a time."""
        blocks = enumerate(self.x.numblocks)
        numbers = list(product(*((known[i],) if i in known else range(n) for i, n in blocks)))
        # Those that are kept lie on different workers, and must not meet on one.
        size = GROUP if all(self.reads_again) else 1
        for start in range(0, len(numbers), size):
            some = tuple(numbers[start : start + size])
            yield parts.Blocks(some, tuple(self.slices[number] for number in some))


def _slices(x: da.Array) -> Any:
    """Return where chunks begin; along axes of unknown sizes by their number."""
    return ArraySliceDep(tuple(one if is_known(one) else (1,) * len(one) for one in x.chunks))


class PartDerivatives(NamedTuple):
    """The results of chunks, and what is known of the vectors that they are parts of."""

    passes: Passes
    value: da.Array
    state: da.Array
    arrays: Any
    """x, and maybe the mask, as they were read when the value was written."""

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> da.Array:
        """Return the Jacobian, or its transpose, times y: one merge of a few sums."""
        refuse_out(out)
        y = direction_of(y, self.passes.x)
        known = (self.value, y, self.state)
        sums = self.passes.added(partial(parts.sums_of, reverse=reverse), self.arrays, *known)
        return self._chunks(partial(parts.product_of, reverse=reverse), y, sums)

    def jacobian(self) -> NoReturn:
        """Refuse: it would have the square of a long vector's entries."""
        n = self.passes.given.length
        raise ValueError(
            f"the Jacobian of a vector of {n} entries in several chunks has {n * n} entries: use "
            "jvp and vjp, its products"
        )

    def target_gradient(self) -> tuple[da.Array, da.Array]:
        """Return the derivatives by l1 and by l2."""
        first, second = (self._chunks(partial(parts.by_norm, number=i)) for i in range(2))
        return first, second

    def sparseness_gradient(self) -> da.Array | None:
        """Return the derivative by the sparseness; None if norms were given instead."""
        return self._chunks(parts.by_sparseness) if self.passes.given.has_sparseness else None

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.passes.given.batch else self.passes.given.length

    def as_numpy(self, array: Any) -> Any:
        """Compute."""
        return array.compute() if isinstance(array, da.Array) else np.asarray(array)

    def _chunks(self, function: Any, *more: da.Array) -> da.Array:
        return self.passes.like_x(function, self.arrays, self.value, *more, self.state)
