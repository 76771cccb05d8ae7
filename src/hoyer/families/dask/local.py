"""Vectors that lie whole in a chunk: each chunk is projected by the family of its own arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.layers import ArrayBlockIdDep, ArraySliceDep
from dask.sizeof import sizeof

from ...options import Options
from ...projection import Projection
from .. import select
from .arrays import Given, direction_of, is_known, meta_like, refuse_out, restored

FIELDS = {
    "shift": np.float64,
    "scale": np.float64,
    "support_size": np.int64,
    "evaluations": np.int64,
    "unique": np.bool_,
    "l1": np.float64,
    "l2": np.float64,
    "active_code": np.int8,
}
"""What `hoyer.solve` tells about every vector, and the types."""

# ---- what is asked of all chunks ----


def project(given: Given) -> da.Array:
    """Project vectors where they are."""
    x = given.x
    meta = meta_like(x, x.ndim, x.dtype)
    return _blockwise(project_chunk, given, "hoyer-project", x.dtype, meta)


def solve(given: Given, chunks: Any) -> Projection[da.Array]:
    """Project vectors where they are and tell how; values are divided into these chunks."""
    nothing = np.empty((0,) * given.x.ndim, object)
    found = _blockwise(solve_chunk, given, "hoyer-solve", object, nothing)
    derivatives = ChunkDerivatives(found, given, chunks)
    fields: Any = {name: derivatives.field(name, kind) for name, kind in FIELDS.items()}
    return Projection(derivatives.like_x(value_of), derivatives=derivatives, **fields)


def sparseness(x: da.Array, axes: tuple[int, ...]) -> da.Array:
    """Measure vectors where they are."""
    index = tuple(range(x.ndim))
    batch = tuple(i for i in index if i not in axes)
    meta = meta_like(x, len(batch), x.dtype)
    function = partial(measure_chunk, axes=axes)
    token = "hoyer-sparseness"
    return da.blockwise(function, batch, x, index, token=token, dtype=x.dtype, meta=meta)


def _blockwise(function: Any, given: Given, token: str, dtype: Any, meta: Any) -> da.Array:
    """Return a function of each chunk, its place and what is asked of its vectors."""
    index = given.labels
    return da.blockwise(
        partial(function, names=given.names, options=given.options),
        index,
        given.x,
        index,
        places(given.x),
        index,
        *(one for array in given.arrays for one in (array, index)),
        align_arrays=False,
        token=token,
        dtype=dtype,
        meta=meta,
    )


def places(x: da.Array) -> Any:
    """Return where every chunk of x is: its slices, or its number if sizes are not known."""
    known = all(map(is_known, x.chunks))
    return ArraySliceDep(x.chunks) if known else ArrayBlockIdDep(x.chunks)


class ChunkDerivatives(NamedTuple):
    """Projections of chunks, each of which can be differentiated."""

    found: da.Array
    """A `Projection` for each chunk of `given.x`."""
    given: Given
    chunks: Any
    """Those of the result."""

    def field(self, name: str, dtype: Any) -> da.Array:
        """Return what is told about every vector."""
        given, token = self.given, f"hoyer-{name.replace('_', '-')}"
        batch = given.batch
        return da.blockwise(
            partial(field_of, name=name),
            batch,
            self.found,
            given.labels,
            token=token,
            dtype=dtype,
            meta=meta_like(given.x, len(batch), dtype),
        )

    def like_x(self, function: Any, *arrays: da.Array) -> da.Array:
        """Return a function of each chunk's projection, shaped like the chunk."""
        x, index = self.given.x, self.given.labels
        result = da.blockwise(
            function,
            index,
            self.found,
            index,
            *(one for array in arrays for one in (array, index)),
            align_arrays=False,
            token="hoyer-derivative",
            dtype=x.dtype,
            meta=meta_like(x, x.ndim, x.dtype),
        )
        # (Sizes of chunks are those of x where they are known.)
        return restored(result, self.chunks)

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> da.Array:
        """Return the Jacobian, or its transpose, times y."""
        refuse_out(out)
        y = direction_of(y, self.given.x)
        return self.like_x(partial(product_of, reverse=reverse), y)

    def jacobian(self) -> da.Array:
        """Return the dense Jacobian of every vector."""
        given = self.given
        x, batch, n = given.x, given.batch, given.length
        new = (x.ndim, x.ndim + 1)
        return da.blockwise(
            jacobian_of,
            (*batch, *new),
            self.found,
            given.labels,
            new_axes=dict.fromkeys(new, n),
            token="hoyer-jacobian",
            dtype=x.dtype,
            meta=meta_like(x, len(batch) + 2, x.dtype),
        )

    def target_gradient(self) -> tuple[da.Array, da.Array]:
        """Return the derivatives by l1 and by l2."""
        first, second = (self.like_x(partial(by_norm, number=i)) for i in range(2))
        return first, second

    def sparseness_gradient(self) -> da.Array | None:
        """Return the derivative by the sparseness; None if norms were given instead."""
        return self.like_x(by_sparseness) if self.given.has_sparseness else None

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.given.batch else self.given.length

    def as_numpy(self, array: Any) -> Any:
        """Compute."""
        return array.compute() if isinstance(array, da.Array) else np.asarray(array)


# ---- what is done to one chunk ----


def asked(options: Options, names: tuple[str, ...], arrays: tuple[Any, ...]) -> Options:
    """Return what is asked of the vectors of one chunk."""
    return options._replace(**dict(zip(names, arrays, strict=True))) if names else options


def project_chunk(
    x: Any, place: Any, *arrays: Any, names: tuple[str, ...], options: Options
) -> Any:
    """Project the vectors of a chunk."""
    with naming(place):
        return select(x).project(x, asked(options, names, arrays), None)


def solve_chunk(x: Any, place: Any, *arrays: Any, names: tuple[str, ...], options: Options) -> Any:
    """Project the vectors of a chunk and tell how."""
    with naming(place):
        return select(x).solve(x, asked(options, names, arrays))


def measure_chunk(x: Any, axes: tuple[int, ...]) -> Any:
    """Measure the vectors of a chunk."""
    x = bare(x)
    return select(x).sparseness(x, axes)


@contextmanager
def naming(place: Any) -> Iterator[None]:
    """Let errors say in which chunk they were found, from where its entries are counted."""
    try:
        yield
    except ValueError as error:
        counted = "from whose first entry on entries are counted"
        raise ValueError(f"{error} (in {chunk_name(place)}, {counted})") from None


def chunk_name(place: Any) -> str:
    """Return the name of a chunk: by its slices, or by its number."""
    if isinstance(place[0], slice):
        slices = ", ".join(f"{one.start}:{one.stop}" for one in place)
        return f"the chunk x[{slices}]"
    return f"chunk {tuple(int(i) for i in place)} of x, whose place is not known"


def bare(block: Any) -> Any:
    """Return what Dask hands over in lists where an axis ends."""
    while isinstance(block, list):
        block = block[0]
    return block


# ---- what is taken from the projection of one chunk ----


def value_of(found: Projection[Any]) -> Any:
    """Return the value."""
    return found.value


def field_of(found: Any, name: str) -> Any:
    """Return what is told about the vectors."""
    return getattr(bare(found), name)


def product_of(found: Projection[Any], y: Any, reverse: bool) -> Any:
    """Return a product with the Jacobian."""
    return found.vjp(y) if reverse else found.jvp(y)


def jacobian_of(found: Any) -> Any:
    """Return the Jacobians."""
    return bare(found).jacobian()


def by_norm(found: Projection[Any], number: int) -> Any:
    """Return the derivatives by l1, number 0, or by l2."""
    return found.target_gradient()[number]


def by_sparseness(found: Projection[Any]) -> Any:
    """Return the derivatives by the sparseness."""
    return found.sparseness_gradient()


@sizeof.register(Projection)  # type: ignore[untyped-decorator]
def bytes_of(found: Projection[Any]) -> int:
    """Tell Dask's workers how much memory a projection takes, with what its derivatives keep."""
    return 2 * int(sizeof(found.value))
