"""NumPy arrays, and whatever becomes one: the compiled core does the work."""

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ...compressed import compressed
from ...engines.core import _core, core_plan, plan_of
from ...options import Axis, Options
from ...plan import plan_for, plans
from ...projection import RECORD_FIELDS, Projection
from .. import describe_bad
from .arrays import (
    DTYPES,
    Array,
    Vectors,
    as_floats,
    check_out,
    check_writable,
    native,
    passable,
    readable,
    refuse_masked,
    view,
)
from .derivatives import ArrayDerivatives, needs_x

# Names of this module are found faster than those of others, which a small call would notice.
project_array, ndarray = _core.project_array, np.ndarray

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
    plan = core_plan(plan_for(vectors.length, options, vectors.batch, vectors.axes))
    rows = view(value, options.axis).array
    bad = _core.project(
        vectors.array, rows, plan, vectors.inner, False, vectors.swapped, False, records
    )
    if bad >= 0:
        raise ValueError(_described(vectors, bad))
    fields = {
        name: records[:, i].reshape(vectors.batch)[()] for i, name in enumerate(RECORD_FIELDS)
    }
    for name, kind in FIELD_TYPES.items():
        fields[name] = fields[name].astype(kind)
    fields["active_code"] = fields.pop("active")
    original = np.array(array, native(array.dtype)) if needs_x(records, options.rule) else None
    # The derivatives are computed from the value: it must not change under their feet.
    value.flags.writeable = False
    fixed = None if options.sparseness is None else "l2" if options.l1 is None else "l1"
    derivatives = ArrayDerivatives(
        value, records, original, options.axis, options.rule, options.nonnegative, fixed
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
    plan = core_plan(plan_for(vectors.length, options, vectors.batch, vectors.axes))
    bad, starts, indices, raw = _core.project_sparse(
        vectors.array, plan, vectors.inner, vectors.swapped
    )
    if bad >= 0:
        raise ValueError(_described(vectors, bad))
    values = raw.view(native(array.dtype))
    if array.dtype == np.float16:
        values = values.astype(np.float32)
    by_rows = array.ndim == 1 or vectors.axes == (1,)
    return compressed(values, indices, starts, array.shape, by_rows=by_rows)


def sparseness(x: Any, axis: Axis) -> Any:
    """Return sigma of every vector, in the precision of x."""
    array = as_floats(x)
    return measure(array, axis).astype(native(array.dtype))[()]


# ---- the walk of a call ----


def measure(x: Array, axis: Axis = -1) -> npt.NDArray[np.float64]:
    """Return sigma of every vector of a floating array."""
    vectors = readable(x, axis)
    result = np.empty(int(np.prod(vectors.batch)))
    _core.sparseness(vectors.array, vectors.inner, vectors.swapped, result)
    return result.reshape(vectors.batch)


def _project_prepared(x: Array, out: Array, options: Options) -> Array:
    """Project floats into an array that fits, wherever their entries lie."""
    axes = view(x, options.axis).axes
    options = options._replace(axis=axes)
    source, target = (
        np.asarray(one) if passable(one) else one.astype(native(one.dtype)) for one in (x, out)
    )
    done = project_array(source, target, options, plans, plan_of, True)
    if type(done) is int:
        _refuse(x, options, done)
    assert done is target  # or nothing was written
    if not passable(out):
        # Entries that no typed pointer can reach (packed records): through an aligned copy.
        out[...] = target
    return out


def _refuse(x: Any, options: Options, number: Any) -> NoReturn:
    """Say what is wrong with a vector."""
    raise ValueError(_described(view(np.asarray(x), options.axis), number))


def _described(x: Vectors, number: int) -> str:
    """Say which entry of a vector is NaN or infinity."""
    array = x.array.view(x.array.dtype.newbyteorder()) if x.swapped else x.array
    return describe_bad(array, x.inner, number)
