"""NumPy arrays, and whatever becomes one: the compiled core does the work."""

import math
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from ...compressed import compressed
from ...engines.core import Members, _core, core_plan, masked_plan_of, plan_of
from ...options import Axis, Options
from ...plan import plan_for, plans
from ...price import Asked, shares_of, split_shares
from ...projection import RECORD_FIELDS, Projection
from .. import calling, describe_bad
from .arrays import (
    DTYPES,
    Array,
    Mask,
    Vectors,
    as_floats,
    as_mask,
    check_out,
    check_writable,
    mask_rows,
    native,
    passable,
    plain,
    readable,
    refuse_masked,
    view,
)
from .derivatives import ArrayDerivatives, needs_x

# Names of this module are found faster than those of others, which a small call would notice.
project_array, ndarray = _core.project_array, np.ndarray
# See `repeated` in hoyer.families.
project_known = _core.project_known

FIELD_TYPES = {
    "support_size": np.int64,
    "evaluations": np.int64,
    "unique": np.bool_,
    "active": np.int8,
}

# ---- the functions of the protocol `Family` ----


def project(x: Any, options: Options, out: Array | None) -> Array:
    """Project x into `out`, or into a new array."""
    done = project_array(x, out, options, plans, plan_of)
    if type(done) is ndarray:
        return done
    if done is not None:
        _refuse(x, options, done)
    array = as_floats(x)
    if out is None:
        out = np.empty_like(array, dtype=native(array.dtype), subok=False)
    else:
        check_out(out, array)
    return _project_prepared(array, out, options)


def project_(x: Array, options: Options) -> Array:
    """Project x in place."""
    done = project_array(x, x, options, plans, plan_of)
    if type(done) is ndarray:
        return done
    if done is not None:
        _refuse(x, options, done)
    if not isinstance(x, np.ndarray):
        raise TypeError(
            f"project_ works in place on NumPy arrays and tensors, not on {type(x).__name__}: use "
            "project"
        )
    refuse_masked(x)
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise TypeError(
            f"project_ cannot store its result in an array of {x.dtype}: in place x must be one of "
            f"{', '.join(DTYPES)}"
        )
    check_writable("x", x)
    _project_prepared(x, x, options)
    return x


def solve(x: Any, options: Options) -> Projection[Array]:
    """Project x and keep what was found."""
    array = as_floats(x)
    value = np.empty_like(array, dtype=native(array.dtype), subok=False)
    vectors = readable(array, options.axis)
    records = np.empty((int(np.prod(vectors.batch)), len(RECORD_FIELDS)))
    plan, mask = _planned(vectors, array.shape, options)
    rows = view(value, options.axis).array
    bad = _core.project(
        vectors.array, rows, plan, vectors.inner, False, vectors.swapped, False, records, *mask
    )
    if bad >= 0:
        raise ValueError(_described(vectors, bad, mask.where))
    fields = {
        name: records[:, i].reshape(vectors.batch)[()] for i, name in enumerate(RECORD_FIELDS)
    }
    for name, kind in FIELD_TYPES.items():
        fields[name] = fields[name].astype(kind)
    fields["active_code"] = fields.pop("active")
    original = np.array(array, native(array.dtype)) if needs_x(records, options.rule) else None
    where = None
    if options.where is not None:
        where = as_mask(options.where, array.shape).copy()
        if original is not None:
            np.copyto(original, 0, where=~where)
    # The derivatives are computed from the value: it must not change under their feet.
    value.flags.writeable = False
    fixed = None if options.sparseness is None else "l2" if options.l1 is None else "l1"
    derivatives = ArrayDerivatives(
        value, records, original, options.axis, options.rule, options.nonnegative, fixed, where
    )
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
    plan, mask = _planned(vectors, array.shape, options)
    bad, starts, indices, raw = _core.project_sparse(
        vectors.array, plan, vectors.inner, vectors.swapped, *mask
    )
    if bad >= 0:
        raise ValueError(_described(vectors, bad, mask.where))
    values = raw.view(native(array.dtype))
    if array.dtype == np.float16:
        values = values.astype(np.float32)
    by_rows = array.ndim == 1 or vectors.axes == (1,)
    return compressed(values, indices, starts, array.shape, by_rows=by_rows)


def sparseness(x: Any, axis: Axis) -> Any:
    """Return sigma of every vector, in the precision of x."""
    array = as_floats(x)
    return measure(array, axis).astype(native(array.dtype))[()]


def shares(arrays: list[Any], axes: list[Axis], asked: Asked, names: list[str]) -> list[Any]:
    """Return the sparseness that the vectors of each array get."""
    rows = []
    for x, axis, name in zip(arrays, axes, names, strict=True):
        with calling(name):
            rows.append(readable(as_floats(x), axis))
    members = Members([(one.array, one.inner, one.swapped) for one in rows], asked.nonnegative)

    def refuse(array: int, vector: int) -> NoReturn:
        raise ValueError(_described(rows[array], vector, name=names[array]))

    found = shares_of(members, asked, names, refuse if asked.check_finite else None)
    return split_shares(members, found.sparseness)


def check_place(x: Any, out: Any) -> None:
    """Refuse an `out` that cannot take the projection of x."""
    check_out(out, as_floats(x))


def span(x: Any) -> tuple[int, int] | None:
    """Return where the memory of an array begins and ends."""
    return byte_bounds(x) if isinstance(x, np.ndarray) and x.size else (0, 0)


# ---- the walk of a call ----


def measure(x: Array, axis: Axis = -1) -> npt.NDArray[np.float64]:
    """Return sigma of every vector of a floating array."""
    vectors = readable(x, axis)
    result = np.empty(int(np.prod(vectors.batch)))
    _core.sparseness(vectors.array, vectors.inner, vectors.swapped, result)
    return result.reshape(vectors.batch)


class _Mask(NamedTuple):
    """What the core is told about masks: nothing, if there are none."""

    where: Mask | None = None
    lengths: npt.NDArray[np.int64] | None = None


def _planned(
    vectors: Vectors, shape: tuple[int, ...], options: Options, out: Array | None = None
) -> tuple[_core.Plan, _Mask]:
    """Return the core's plan for vectors of an array of this shape, and their masks."""
    length, batch, axes = vectors.length, vectors.batch, vectors.axes
    if options.where is None:
        return core_plan(plan_for(length, options, batch, axes)), _Mask()
    given = as_mask(options.where, shape)
    if out is not None and np.may_share_memory(given, out):
        given = given.copy()
    where, lengths = mask_rows(given, shape, axes), np.empty(math.prod(batch), np.int64)
    _core.count(where, vectors.inner, lengths)
    plan = masked_plan_of(length, options, where, lengths.reshape(batch), axes)
    return plan, _Mask(where, lengths)


def _project_prepared(x: Array, out: Array, options: Options) -> Array:
    """Project floats into an array that fits, wherever their entries lie."""
    axes = view(x, options.axis).axes
    options = options._replace(axis=axes)
    source, target = (
        plain(one) if passable(one) else one.astype(native(one.dtype)) for one in (x, out)
    )
    if options.where is None:
        done = project_array(source, target, options, plans, plan_of, True)
        if type(done) is int:
            _refuse(x, options, done)
        assert done is target  # or nothing was written
    else:
        _project_masked(source, target, options)
    if not passable(out):
        # Entries that no typed pointer can reach (packed records): through an aligned copy.
        out[...] = target
    return out


def _project_masked(x: Array, out: Array, options: Options) -> None:
    """Project the entries that a mask leaves."""
    source, target = view(x, options.axis), view(out, options.axis)
    plan, mask = _planned(source, x.shape, options, out)
    # In place nothing must be lost.
    check_first = np.may_share_memory(x, out)
    swapped = source.swapped, target.swapped
    bad = _core.project(
        source.array, target.array, plan, source.inner, check_first, *swapped, None, *mask
    )
    if bad >= 0:
        raise ValueError(_described(source, bad, mask.where))


def _refuse(x: Any, options: Options, number: Any) -> NoReturn:
    """Say what is wrong with a vector."""
    raise ValueError(_described(view(np.asarray(x), options.axis), number))


def _described(x: Vectors, number: int, where: Mask | None = None, *, name: str = "x") -> str:
    """Say which entry of a vector is NaN or infinity."""
    array = x.array.view(x.array.dtype.newbyteorder()) if x.swapped else x.array
    return describe_bad(array, x.inner, number, where, name=name)
