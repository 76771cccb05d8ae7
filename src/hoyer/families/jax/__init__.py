"""JAX arrays and tracers: the compiled core on the CPU, plain array operations elsewhere.

Outside of traced code errors are those of other arrays; on the CPU, that is: elsewhere nobody looks
at numbers, nor can anybody in traced code, where bad vectors and impossible targets become NaN.
"""

from functools import cache, lru_cache, partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from ...layout import Layout, layout_of
from ...options import Axis, Options
from ...price import Asked
from ...projection import RECORD_FIELDS, Projection
from .. import describe_bad
from . import engine
from .arrays import Array, as_numpy, float_type, is_traced, moved_back, on_host, rows_of
from .calls import Function, call
from .derivatives import ArrayDerivatives
from .engine import Measure, Project
from .sharding import spread
from .targets import Question, question_of

UNCHANGEABLE = "JAX arrays cannot be changed"

# ---- the functions of the protocol `Family` ----


def project(x: Array, options: Options, out: Any) -> Array:
    """Project x into a new array."""
    if out is not None:
        raise TypeError(f"out=...: {UNCHANGEABLE}; leave out=, project returns a new array")
    layout, dtype, (setting, arrays) = _asked(x, options)
    run = _projecting(Project(setting), layout, dtype, not setting.masked)
    value, bad = run(x, *arrays)
    if options.check_finite and on_host(value) and bad:
        _refuse(x, layout, options)
    result: Array = value
    return result


def project_(x: Array, options: Options) -> Array:
    """Refuse: no array changes in place."""
    raise TypeError(
        f"project_: {UNCHANGEABLE} in place; write x = hoyer.project(x, ...), and donate x "
        "(jax.jit(..., donate_argnums=...)) where its memory is to be used again"
    )


def solve(x: Array, options: Options) -> Projection[Array]:
    """Project x and keep what was found; value and scale can be differentiated."""
    layout, dtype, (setting, arrays) = _asked(x, options)
    function = Project(setting, detail=True)
    rows, found = _solving(function, layout, dtype)(x, *arrays)
    fields = dict(zip(RECORD_FIELDS, found[-len(RECORD_FIELDS) :], strict=True))
    if options.check_finite and on_host(found[0]) and bool(jnp.isnan(fields["l2"]).any()):
        _refuse(x, layout, options)
    # The scale that can be differentiated.
    fields["scale"], fields["active_code"] = found[1], fields.pop("active")
    stopped = jax.lax.stop_gradient
    known = [*found[: function.known], *([rows] if setting.needs_x else []), *arrays]
    derivatives = ArrayDerivatives(tuple(map(stopped, known)), setting, layout)
    return Projection(moved_back(found[0], layout), derivatives=derivatives, **fields)


def project_sparse(x: Array, options: Options) -> Any:
    """Refuse: the result is a SciPy sparse array."""
    raise TypeError(
        "project_sparse returns SciPy sparse arrays and does not take JAX arrays: pass "
        "numpy.asarray(x), or use jax.experimental.sparse.BCOO.fromdense(hoyer.project(x, ...))"
    )


def sparseness(x: Array, axis: Axis) -> Array:
    """Return sigma of every vector, in the precision of x; it can be differentiated."""
    layout = layout_of(tuple(x.shape), axis)
    result: Array = _measuring(Measure(engine.core is not None), layout, float_type(x))(x)
    return result


def shares(arrays: list[Any], axes: list[Axis], asked: Asked, names: list[str]) -> list[Any]:
    """Return the sparseness that the vectors of each array get: found on the host, by the core."""
    if is_traced(*arrays):
        raise TypeError(
            "project_together looks at all vectors before it projects the first, which traced code "
            "cannot do: call it outside of jax.jit, jax.grad and jax.vmap"
        )
    from .. import numpy as on_numpy  # noqa: PLC0415 - needs the core

    for x in arrays:
        float_type(x)
    return on_numpy.shares([as_numpy(x) for x in arrays], axes, asked, names)


def check_place(x: Any, out: Any) -> NoReturn:
    """Refuse any `out`."""
    raise TypeError(f"out=...: {UNCHANGEABLE}; leave out=, new arrays are returned")


def span(x: Any) -> None:
    """Tell nothing: JAX arrays have no place of their own."""


# ---- the walk of a call ----


def _asked(x: Any, options: Options) -> tuple[Layout, Any, Question]:
    """Return where the vectors lie, the type of the results, and what is asked."""
    try:
        if options.is_plain:
            x64 = jax.config.read("jax_enable_x64")
            return _remembered(options, tuple(x.shape), x.dtype, x64, engine.core is not None)
    except TypeError:
        # Something that cannot be hashed: what is wrong with it is said below.
        pass
    return _made(options, tuple(x.shape), x)


@lru_cache(maxsize=1024, typed=True)
def _remembered(
    options: Options, shape: tuple[int, ...], dtype: Any, _x64: bool, _core: bool
) -> tuple[Layout, Any, Question]:
    return _made(options, shape, jax.ShapeDtypeStruct(shape, dtype))


def _made(options: Options, shape: tuple[int, ...], x: Any) -> tuple[Layout, Any, Question]:
    dtype, layout = float_type(x), layout_of(shape, options.axis)
    return layout, dtype, question_of(options, layout, dtype)


@cache
def _projecting(function: Function, layout: Layout, dtype: Any, whole: bool) -> Any:
    """Return a compiled function of x and its targets, and whether a vector came out bad."""

    @jax.jit
    def hoyer_project(x: Any, *arrays: Any) -> tuple[Any, Any]:
        value = call(function, rows_of(x.astype(dtype), layout), *arrays)[0]
        # Bad vectors are NaN all over, but where a mask leaves nothing of them.
        seen = jax.lax.stop_gradient(value[..., 0] if whole and not spread(value) else value)
        return moved_back(value, layout), jnp.isnan(seen).any()

    return hoyer_project


@cache
def _solving(function: Function, layout: Layout, dtype: Any) -> Any:
    @jax.jit
    def hoyer_solve(x: Any, *arrays: Any) -> tuple[Any, Any]:
        rows = rows_of(x.astype(dtype), layout)
        return rows, call(function, rows, *arrays)

    return hoyer_solve


@cache
def _measuring(function: Function, layout: Layout, dtype: Any) -> Any:
    @jax.jit
    def hoyer_sparseness(x: Any) -> Any:
        return call(function, rows_of(x.astype(dtype), layout))[0]

    return hoyer_sparseness


def _refuse(x: Any, layout: Layout, options: Options) -> None:
    """Raise an error for the first vector with NaN or infinity, if there is one."""
    inner = len(layout.axes)
    last = partial(np.moveaxis, source=layout.axes, destination=range(-inner, 0))
    where = None
    if options.where is not None:
        where = last(np.broadcast_to(as_numpy(options.where), layout.shape))
    entries = last(as_numpy(x))
    fine = np.isfinite(entries) | (False if where is None else ~where)
    bad = np.flatnonzero(~fine.all(tuple(range(-inner, 0))).reshape(-1))
    if bad.size:
        raise ValueError(describe_bad(entries, inner, int(bad[0]), where))
