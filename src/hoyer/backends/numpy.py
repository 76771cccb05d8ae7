"""NumPy arrays, and whatever becomes one: the compiled core does the work."""

from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_tuple

from ..compressed import compressed
from ..options import Axis, Options
from ..options import check as check_options
from ..projection import Projection
from ..target import resolve

try:
    from .. import _core
except ImportError as error:
    raise ImportError(
        "hoyer's compiled core (hoyer._core) cannot be loaded: install a wheel with 'pip install "
        "hoyer', or build it with 'pip install .' in a checkout (this needs a C++20 compiler)"
    ) from error

Array: TypeAlias = npt.NDArray[np.floating[Any]]
Records: TypeAlias = npt.NDArray[np.float64]

DTYPES = ("float16", "float32", "float64")
FIELD_TYPES = {"support_size": np.int64, "evaluations": np.int64, "unique": np.bool_}

_FLOAT16, _FLOAT32, _FLOAT64 = (np.dtype(name) for name in DTYPES)


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


# ---- the functions of the backend protocol ----


def project(x: Any, options: Options, out: Array | None) -> Array:
    """Project x into `out`, or into a new array."""
    if type(x) is np.ndarray and options.axis == -1 and simple(x):
        # The everyday call, with as little Python as possible.
        given = out is not None
        if out is None:
            out = np.empty(x.shape, x.dtype)
        else:
            check_out(out, x)
            if not simple(out):
                return _project(x, out, options, check_first=True)
        bad = _core.project(x, out, plan_for(x.shape[-1], options, x.shape[:-1]), 1, given)
        if bad >= 0:
            raise ValueError(describe_bad(view(x, -1), bad))
        return out
    array = as_floats(x)
    if out is None:
        result = np.empty_like(array, dtype=native(array.dtype), subok=False)
        return _project(array, result, options, check_first=False)
    check_out(out, array)
    return _project(array, out, options, check_first=True)


def project_(x: Array, options: Options) -> Array:
    """Project x in place."""
    if not isinstance(x, np.ndarray):
        raise TypeError(
            f"project_ works in place on NumPy arrays, not on {type(x).__name__}: use project"
        )
    refuse_masked(x)
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise TypeError(
            f"project_ cannot store its result in an array of {x.dtype}: in place x must be one of "
            f"{', '.join(DTYPES)}"
        )
    check_writable("x", x)
    return _project(x, x, options, check_first=True)


def solve(x: Any, options: Options) -> Projection[Array]:
    """Project x and keep what was found."""
    array = as_floats(x)
    value = np.empty_like(array, dtype=native(array.dtype), subok=False)
    vectors = readable(array, options.axis)
    records = np.empty((int(np.prod(vectors.batch)), len(_core.RECORD_FIELDS)))
    run(vectors, view(value, options.axis), options, records=records)
    fields = {
        name: records[:, i].reshape(vectors.batch)[()] for i, name in enumerate(_core.RECORD_FIELDS)
    }
    del fields["kept"]
    for name, kind in FIELD_TYPES.items():
        fields[name] = fields[name].astype(kind)
    norm = options.l2 if isinstance(options.l2, str) else "fixed"
    original = np.array(array, native(array.dtype)) if norm == "keep" else None
    # The derivatives are computed from the value: it must not change under their feet.
    value.flags.writeable = False
    derivatives = Linearization(value, records, original, options.axis, norm, options.nonnegative)
    return Projection(value, derivatives=derivatives, **fields)


def project_sparse(x: Any, options: Options) -> Any:
    """Project x and return the nonzero entries as a SciPy sparse array."""
    array = as_floats(x)
    vectors = readable(array, options.axis)
    if array.ndim > 2 or vectors.inner > 1:
        raise ValueError(
            f"x has shape {array.shape} and axis={options.axis!r}: sparse results are for one "
            "vector, or for the rows or columns of a matrix"
        )
    plan = plan_for(vectors.length, options, vectors.batch)
    bad, starts, indices, raw = _core.project_sparse(
        vectors.array, plan, vectors.inner, vectors.swapped
    )
    if bad >= 0:
        raise ValueError(describe_bad(vectors, bad))
    values = raw.view(native(array.dtype))
    if array.dtype == np.float16:
        values = values.astype(np.float32)
    return compressed(values, indices, starts, array.shape, by_rows=options.axis in (-1, 1))


def sparseness(x: Any, axis: Axis) -> Any:
    """Return sigma of every vector, in the precision of x."""
    array = as_floats(x)
    vectors = readable(array, axis)
    result = np.empty(int(np.prod(vectors.batch)))
    _core.sparseness(vectors.array, vectors.inner, vectors.swapped, result)
    return result.reshape(vectors.batch).astype(native(array.dtype))[()]


# ---- the walk of a call ----


def _project(x: Array, out: Array, options: Options, *, check_first: bool) -> Array:
    vectors = readable(x, options.axis)
    room = view(out, options.axis)
    if passable(room.array):
        run(vectors, room, options, check_first=check_first)
    else:
        # Entries that no typed pointer can reach (packed records): through an aligned copy.
        aligned = np.empty(out.shape, native(out.dtype))
        run(vectors, view(aligned, options.axis), options)
        out[...] = aligned
    return out


def run(
    x: Vectors,
    out: Vectors,
    options: Options,
    *,
    check_first: bool = False,
    records: Records | None = None,
) -> None:
    """Call the core once."""
    plan = plan_for(x.length, options, x.batch)
    bad = _core.project(
        x.array, out.array, plan, x.inner, check_first, x.swapped, out.swapped, records
    )
    if bad >= 0:
        raise ValueError(describe_bad(x, bad))


def make_plan(n: int, options: Options, batch: tuple[int, ...]) -> _core.Plan:
    """Return what the core needs to know beside the arrays."""
    check_options(options)
    target = resolve(
        n, options.sparseness, options.l1, options.l2, batch, check=options.check_finite
    )
    return _core.Plan(
        target.ratio,
        target.room,
        target.room_low,
        target.l2,
        target.norm,
        bool(options.nonnegative),
        bool(options.only_increase),
        target.l1_given,
        options.solver,
        bool(options.check_finite),
    )


@lru_cache(maxsize=256)
def cached_plan(n: int, options: Options) -> _core.Plan:
    """Return the plan for targets that are the same for every batch."""
    return make_plan(n, options, ())


def plan_for(n: int, options: Options, batch: tuple[int, ...]) -> _core.Plan:
    """Return a plan that was made before, or make one."""
    try:
        return cached_plan(n, options)
    except TypeError:
        # Targets that cannot be hashed: one number for each vector.
        return make_plan(n, options, batch)


def describe_bad(x: Vectors, number: int) -> str:
    """Say which vector has NaN or infinity first, and where."""
    index = tuple(int(i) for i in np.unravel_index(number, x.batch)) if x.batch else ()
    vector = x.array[index]
    if x.swapped:
        vector = vector.byteswap()
    places = np.argwhere(~np.isfinite(vector))
    if not len(places):
        return "x had NaN or infinity when it was read, and changed since"
    place = tuple(int(i) for i in places[0])
    which = f" of vector {index if len(index) > 1 else index[0]}" if index else ""
    entry = place if len(place) > 1 else place[0]
    return (
        f"x has {vector[place]} at entry {entry}{which}; only finite vectors can be projected "
        "(check_finite=False returns NaN for such vectors)"
    )


# ---- arrays ----


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in this machine's byte order."""
    return dtype.newbyteorder("=")


def as_floats(x: Any) -> Array:
    """Return x as a floating array that keeps its precision, without copying where possible."""
    refuse_masked(x)
    array = np.asarray(x)
    kind = array.dtype.kind
    if kind == "f" and array.dtype.itemsize <= 8:
        return array
    if kind in "iub":
        return array.astype(np.float64)
    what = f"x has dtype {array.dtype}"
    if kind == "O" and not isinstance(x, np.ndarray):
        what = f"x is of type {type(x).__name__}, which is no array of numbers"
    raise TypeError(f"{what}: give real numbers as {', '.join(DTYPES)}, integers or booleans")


def refuse_masked(x: Any, name: str = "x") -> None:
    """Refuse arrays whose mask would be ignored."""
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: pass {name}.filled(value)"
        )


def view(x: Array, axis: Axis) -> Vectors:
    """See an array as vectors along `axis`; nothing is copied."""
    swapped = not x.dtype.isnative
    if swapped:
        x = x.view(native(x.dtype))
    ndim = x.ndim
    if ndim == 0:
        raise ValueError("x is a single number, not a vector: give an array with at least one axis")
    if axis is None:
        inner = ndim
    elif type(axis) is int and axis in (-1, ndim - 1):
        inner = 1
    else:
        axes = sorted(axes_of(axis, ndim))
        inner = len(axes)
        if inner == 0:
            raise ValueError("axis=() leaves nothing to project: name at least one axis, or None")
        x = np.moveaxis(x, axes, range(ndim - inner, ndim))
    length = 1
    for size in x.shape[ndim - inner :]:
        length *= size
    if length == 0:
        raise ValueError(f"x of shape {x.shape} has vectors without entries along axis {axis}")
    return Vectors(x, inner, swapped, x.shape[: ndim - inner], length)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes as numbers from 0 to ndim - 1."""
    try:
        if isinstance(axis, bool):
            raise TypeError
        return normalize_axis_tuple(axis, ndim, "axis")
    except (TypeError, OverflowError):
        raise TypeError(f"axis={axis!r}: must be an int, a tuple of ints, or None") from None


def simple(x: Array) -> bool:
    """Whether x is contiguous, aligned, in native order, with vectors along its last axis."""
    dtype = x.dtype
    return (
        (dtype is _FLOAT64 or dtype is _FLOAT32 or dtype is _FLOAT16)
        and x.flags.carray
        and x.ndim > 0
        and x.shape[-1] > 0
    )


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


def check_writable(name: str, array: Array) -> None:
    """Refuse arrays that cannot be written entry by entry."""
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only: pass a writable array, or use project(x)")
    if array.flags.c_contiguous:
        return
    # Axes by stride: each must step over everything the smaller ones reach.
    reach = array.itemsize
    for stride, size in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if size > 1 and array.size > 0:
            if stride < reach:
                raise ValueError(
                    f"{name} of shape {array.shape} has entries that share memory: pass a copy"
                )
            reach += stride * (size - 1)


def check_out(out: Any, x: Array) -> None:
    """Refuse an `out` that cannot take the result."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    refuse_masked(out, "out")
    if out.dtype != native(x.dtype) and out.dtype != x.dtype:
        raise ValueError(f"out has dtype {out.dtype}, the result has {native(x.dtype)}")
    if out.shape != x.shape:
        raise ValueError(f"out has shape {out.shape}, the result has {x.shape}")
    if x is out and out.flags.carray:
        return
    check_writable("out", out)
    if not np.may_share_memory(x, out) or same_memory(x, out):
        return
    work: Any = 10_000
    try:
        overlap = np.shares_memory(x, out, max_work=work)
    except np.exceptions.TooHardError:
        overlap = True
    if overlap:
        raise ValueError("out overlaps x without being x: pass x itself, or memory of its own")


def same_memory(a: Array, b: Array) -> bool:
    """Whether both arrays are the same entries in the same order."""
    return (
        a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
        and a.strides == b.strides
        and a.dtype == b.dtype
    )


class Linearization(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it."""

    value: Array
    records: Records
    x: Array | None
    axis: Axis
    norm: str
    nonnegative: bool

    def product(self, y: Any, *, reverse: bool) -> Array:
        """Return the Jacobian, or its transpose, times y."""
        given = np.asarray(y)
        if given.shape != self.value.shape:
            raise ValueError(
                f"y has shape {given.shape}, but the projection has shape {self.value.shape}"
            )
        if given.dtype.kind not in "fiub":
            raise TypeError(f"y has dtype {given.dtype}; give real numbers")
        given = given.astype(self.value.dtype, copy=False)
        result = np.empty_like(self.value)
        vectors, out = view(self.value, self.axis), view(result, self.axis)
        original = None if self.x is None else view(self.x, self.axis).array
        _core.gradient_product(
            vectors.array,
            native_view(given, self.axis).array,
            original,
            out.array,
            vectors.inner,
            self.records,
            self.norm,
            self.nonnegative,
            reverse,
        )
        return result

    def jacobian(self) -> Array:
        """Return the dense Jacobian: its rows are the transposed products with unit vectors."""
        batch, n = self._vectors()

        def repeated(array: Array) -> Array:
            rows = np.ascontiguousarray(view(array, self.axis).array).reshape(*batch, 1, n)
            return np.broadcast_to(rows, (*batch, n, n))

        result = np.empty((*batch, n, n), self.value.dtype)
        units = np.broadcast_to(np.eye(n, dtype=self.value.dtype), result.shape)
        records = np.repeat(self.records, n, axis=0)
        _core.gradient_product(
            repeated(self.value),
            units,
            None if self.x is None else repeated(self.x),
            result,
            1,
            records,
            self.norm,
            self.nonnegative,
            True,
        )
        return result

    def target_gradient(self) -> tuple[Array, Array]:
        """Return the derivatives by l1 and by l2."""
        by_l1, by_l2 = np.empty_like(self.value), np.empty_like(self.value)
        vectors = view(self.value, self.axis)
        _core.target_gradient(
            vectors.array,
            view(by_l1, self.axis).array,
            view(by_l2, self.axis).array,
            vectors.inner,
            self.records,
        )
        return by_l1, by_l2

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        batch, n = self._vectors()
        return None if batch else n

    def _vectors(self) -> tuple[tuple[int, ...], int]:
        vectors = view(self.value, self.axis)
        return vectors.batch, vectors.length
