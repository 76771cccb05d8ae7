"""What is given as Dask arrays: vectors and where they lie, targets and masks chunk by chunk."""

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.delayed import Delayed

from ...engines import parts
from ...engines.arrays.namespace import namespace
from ...engines.arrays.products import is_array
from ...engines.arrays.targets import check_fits, refuse_what_is_seen
from ...layout import check_mask, layout_of, vector_axes
from ...options import Axis, Options, check
from ...plan import plan_for
from ...target import no_fit, not_real, without_axes
from .. import select

NAMES = ("sparseness", "l1", "l2")
DTYPES = ("float16", "float32", "float64")
UNCHANGEABLE = "Dask arrays cannot be changed"


class Given(NamedTuple):
    """Vectors, and what is asked of them."""

    x: da.Array
    axes: tuple[int, ...]
    """Those of the vectors, in ascending order."""
    options: Options
    """What is the same in every chunk; arrays are left out."""
    names: tuple[str, ...]
    """Options that are arrays,"""
    arrays: tuple[da.Array, ...]
    """and these, with as many axes as x. Each has the chunks of x, or length 1, where targets have
    it along the vectors."""

    @property
    def labels(self) -> tuple[int, ...]:
        """The axes of x, as `blockwise` calls them."""
        return tuple(range(self.x.ndim))

    @property
    def batch(self) -> tuple[int, ...]:
        """Those that are not the vectors'."""
        return tuple(i for i in self.labels if i not in self.axes)

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return math.prod(self.x.shape[i] for i in self.axes)

    @property
    def has_sparseness(self) -> bool:
        """Whether a sparseness was given, not norms alone."""
        return self.options.sparseness is not None or "sparseness" in self.names

    def array(self, name: str) -> da.Array | None:
        """Return an option that is an array; None if it is none."""
        return dict(zip(self.names, self.arrays, strict=True)).get(name)


def floats_of(x: Any, axis: Axis) -> tuple[da.Array, tuple[int, ...]]:
    """Return x as a Dask array of floats, and the axes of its vectors."""
    if not isinstance(x, da.Array):
        raise TypeError(_no_array(x))
    # Chunks must be arrays that somebody here works on.
    family: Any = select(x._meta)
    if family.__name__.endswith("families.sparse") or isinstance(x._meta, np.ma.MaskedArray):
        kind = type(x._meta)
        raise TypeError(
            f"x is a Dask array whose chunks are of type {kind.__module__}.{kind.__qualname__}: "
            "make ordinary arrays of them first, with x.map_blocks"
        )
    kind = x.dtype.kind
    if kind in "iub":
        x = x.astype(np.float64)
    elif kind != "f" or x.dtype.itemsize > 8:
        raise TypeError(
            f"x has dtype {x.dtype}: give real numbers as {', '.join(DTYPES)}, integers or booleans"
        )
    elif not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if is_known(x.shape):
        return x, layout_of(x.shape, axis).axes
    axes = vector_axes(axis, x.ndim)
    unknown = [i for i in axes if not is_known(x.chunks[i])]
    if unknown and any(x.numblocks[i] > 1 for i in axes):
        raise ValueError(
            f"x has chunks of unknown sizes along axis {unknown[0]}, so the length of its vectors "
            "is not known: call x.compute_chunk_sizes() first"
        )
    return x, axes


def _no_array(x: Any) -> str:
    kind = f"x is of type {type(x).__module__}.{type(x).__qualname__}"
    if not isinstance(x, Delayed) and hasattr(x, "to_dask_array"):
        return f"{kind}, whose rows are not counted: pass x.to_dask_array(lengths=True)"
    return f"{kind}: pass a Dask array, as dask.array.from_delayed(x, shape, dtype) makes one"


def is_known(sizes: tuple[float, ...]) -> bool:
    """Whether all of these sizes are known."""
    return not any(math.isnan(size) for size in sizes)


def checked(x: da.Array, axes: tuple[int, ...], options: Options) -> None:
    """Refuse what can be seen to be wrong before anything is computed."""
    check(options)
    given = options[:3]
    known = is_known(x.shape)
    there = any(isinstance(target, da.Array) for target in given)
    if there or options.where is not None or not known:
        n = math.prod(x.shape[i] for i in axes)
        # Masks may leave any number of entries, and unknown sizes may be any: what is right for 4,
        # which have every sparseness and a whole square root, is right for some length.
        seen = n if options.where is None and is_known((n,)) else 4
        refuse_what_is_seen(seen, options)
        return
    batch = tuple(size for i, size in enumerate(x.shape) if i not in axes)
    n = math.prod(x.shape[i] for i in axes)
    plan = plan_for(n, options._replace(axis=axes), batch, axes)
    if options.check_finite:
        check_fits(plan, x.dtype, namespace(np))


# ---- which way: where vectors are whole, and where they are not ----


def way_of(x: da.Array, axes: tuple[int, ...]) -> str:
    """Return "local" for whole vectors; "together" or "search" for those in several chunks.

    Vectors are brought together if that moves no more bytes than histograms of their parts would,
    and if they fit chunks of the size that x has anyway.
    """
    divided = math.prod(x.numblocks[i] for i in axes)
    if divided == 1:
        return "local"
    n = math.prod(x.shape[i] for i in axes)
    chunk = math.prod(max(sizes, default=0) for sizes in x.chunks)
    fits = n <= divided * parts.MOST_GATHERED and n <= chunk
    return "together" if n <= parts.MOST_GATHERED or fits else "search"


def together(x: da.Array, axes: tuple[int, ...]) -> da.Array:
    """Return x with its vectors whole, in chunks about as large as they were."""
    if not is_known(x.shape):
        return x.rechunk(dict.fromkeys(axes, -1))
    n = math.prod(x.shape[i] for i in axes)
    most = max(math.prod(max(sizes, default=0) for sizes in x.chunks), n)
    chunks = {i: -1 if i in axes else "auto" for i in range(x.ndim)}
    return x.rechunk(chunks, block_size_limit=most * x.dtype.itemsize)


# ---- targets and masks, chunk by chunk ----


def given_of(x: da.Array, axes: tuple[int, ...], options: Options) -> Given:
    """Return vectors with what is asked of them, divided as they are."""
    arrays: dict[str, Any] = {}
    for name in NAMES:
        target = getattr(options, name)
        if is_array(target):
            arrays[name] = _spread(_target(name, target, x, axes), x, axes)
    if options.where is not None:
        arrays["where"] = _spread(_mask(options.where, x), x)
    without: dict[str, Any] = dict.fromkeys(arrays)
    plain = options._replace(axis=axes, **without)
    return Given(x, axes, plain, tuple(arrays), tuple(arrays.values()))


def _target(name: str, target: Any, x: da.Array, axes: tuple[int, ...]) -> da.Array:
    """Return a number for each vector, of length 1 along the vectors."""
    if not isinstance(target, da.Array):
        target = da.from_array(np.asarray(target), chunks=-1)
    if target.dtype.kind not in "fiu":
        raise TypeError(not_real(name, target))
    batch = tuple(size for i, size in enumerate(x.shape) if i not in axes)
    shape = without_axes(target.shape, len(batch), axes)
    if len(shape) > len(batch) or not _broadcasts(shape, batch):
        raise ValueError(no_fit(target.shape, batch))
    if len(shape) < target.ndim:
        return target
    sizes = iter((np.newaxis,) * (len(batch) - target.ndim) + (slice(None),) * target.ndim)
    return target[tuple(np.newaxis if i in axes else next(sizes) for i in range(x.ndim))]


def _mask(where: Any, x: da.Array) -> da.Array:
    """Return a mask with as many axes as x."""
    if not isinstance(where, da.Array):
        where = da.from_array(np.asarray(where), chunks=-1)
    if is_known(x.shape) and is_known(where.shape):
        check_mask(where, where.dtype == np.bool_, x.shape)
    elif where.dtype != np.bool_ or where.ndim > x.ndim:
        check_mask(where, where.dtype == np.bool_, ())
    return where[(np.newaxis,) * (x.ndim - where.ndim)]


def _broadcasts(shape: tuple[int, ...], batch: tuple[int, ...]) -> bool:
    pairs = zip(shape[::-1], batch[::-1], strict=False)
    return all(
        size in (1, wanted) or math.isnan(size) or math.isnan(wanted) for size, wanted in pairs
    )


def _spread(array: da.Array, x: da.Array, whole: tuple[int, ...] = ()) -> da.Array:
    """Divide an array as x is, but along axes of length 1; along some of them in any case."""
    chunks = {}
    for i, sizes in enumerate(array.chunks):
        if array.shape[i] == 1 and (i in whole or x.shape[i] != 1):
            chunks[i] = (1,)
        elif is_known(sizes) and is_known(x.chunks[i]):
            chunks[i] = x.chunks[i]
        elif len(sizes) != x.numblocks[i]:
            raise ValueError(
                f"an array of shape {array.shape} cannot be laid beside x of shape {x.shape}: "
                f"sizes of chunks along axis {i} are unknown; call compute_chunk_sizes() on both"
            )
    return array.rechunk(chunks)


def meta_like(x: da.Array, ndim: int, dtype: Any) -> Any:
    """Return an empty array of the kind that the chunks of x are."""
    return meta_from_array(x._meta, ndim=ndim, dtype=dtype)


def restored(result: da.Array, chunks: Any) -> da.Array:
    """Divide a result as it was before vectors were brought together."""
    known = {i: sizes for i, sizes in enumerate(chunks) if is_known(sizes)}
    return result.rechunk({i: sizes for i, sizes in known.items() if result.chunks[i] != sizes})


def direction_of(y: Any, x: da.Array) -> da.Array:
    """Return what a Jacobian is to be multiplied with, divided as x is."""
    y = y if isinstance(y, da.Array) else da.from_array(np.asarray(y), chunks=-1)
    known = is_known(x.shape) and is_known(y.shape)
    if y.ndim != x.ndim or (known and y.shape != x.shape):
        raise ValueError(f"y has shape {y.shape}, but the projection has shape {x.shape}")
    if y.dtype.kind not in "fiub":
        raise TypeError(f"y has dtype {y.dtype}; give real numbers")
    return _spread(y.astype(x.dtype), x)


def refuse_out(out: Any) -> None:
    """Refuse an `out`, and say what to do instead."""
    if out is not None:
        raise TypeError(
            f"out=...: {UNCHANGEABLE}; leave out=, and write the result with its own methods "
            "(da.store, to_zarr, to_npy_stack)"
        )
