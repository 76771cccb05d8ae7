"""Arrays that follow the Array API standard, such as CuPy's: by plain operations of their library.

Nothing on a device is looked at: a vector with NaN or infinity, or with an impossible target on the
device, comes back as NaN. Results are complete before the first entry of `out` is written, so that
it may overlap x in any way.
"""

import sys
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..engines import arrays
from ..engines.arrays import Members
from ..engines.arrays.namespace import Namespace, namespace
from ..engines.arrays.products import Products, is_array
from ..engines.arrays.targets import check_fits, resolve_there
from ..layout import Layout, check_mask, layout_of, shares_entries
from ..options import Axis, Options, check
from ..plan import Plan, masked_plan, plan_for
from ..price import Asked, shares_of, split_shares
from ..projection import RECORD_FIELDS, Projection
from ..target import no_fit, not_real, refuse_lazy, without_axes
from . import FAMILIES, calling, refuse_bad

DTYPES = ("float16", "float32", "float64")
REAL = (*DTYPES, *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
NAMES = ("sparseness", "l1", "l2")
FIELD_TYPES = {"support_size": "int64", "evaluations": "int64", "unique": "bool", "active": "int8"}

# ---- the functions of the protocol `Family` ----


def project(x: Any, options: Options, out: Any) -> Any:
    """Project x into `out`, or into a new array."""
    xp = _namespace_of(x)
    floats = _as_floats(x, xp)
    if out is not None:
        _check_out(out, floats)
    layout, value, _, _ = _projected(floats, options, xp)
    result = layout.back(value, xp.library)
    return result if out is None else _written("out", out, result)


def project_(x: Any, options: Options) -> Any:
    """Project x in place."""
    if _name(x.dtype) not in DTYPES:
        raise TypeError(
            f"project_ cannot store its result in an array of {_name(x.dtype)}: in place x must be "
            f"one of {', '.join(DTYPES)}"
        )
    _check_entries("x", x)
    return _written("x", x, project(x, options, None))


def solve(x: Any, options: Options) -> Projection[Any]:
    """Project x and keep what was found."""
    xp = _namespace_of(x)
    floats = _as_floats(x, xp)
    layout, value, record, plan = _projected(floats, options, xp)
    fields = {
        name: xp.astype(record[..., i], getattr(xp, FIELD_TYPES.get(name, "float64")))
        for i, name in enumerate(RECORD_FIELDS)
    }
    fields["active_code"] = fields.pop("active")
    original = layout.rows(floats, xp.library) if plan.needs_x else None
    # Copies: what the user does to x or to the result must not change its derivatives.
    kept, original = (
        None if array is None else xp.astype(array, array.dtype) for array in (value, original)
    )
    derivatives = ArrayDerivatives(kept, record, original, plan, layout)
    return Projection(layout.back(value, xp.library), derivatives=derivatives, **fields)


def project_sparse(x: Any, options: Options) -> Any:
    """Refuse: the result is a SciPy sparse array, which lives on the host."""
    raise TypeError(
        "project_sparse returns SciPy sparse arrays and works on NumPy arrays, not on "
        f"{_describe(x)}: convert x first, or use project"
    )


def sparseness(x: Any, axis: Axis) -> Any:
    """Return sigma of every vector, in the precision of x."""
    xp = _namespace_of(x)
    floats = _as_floats(x, xp)
    return arrays.sparseness(layout_of(tuple(x.shape), axis).rows(floats, xp.library), xp)


def shares(arrays: list[Any], axes: list[Axis], asked: Asked, names: list[str]) -> list[Any]:
    """Return the sparseness that the vectors of each array get; the host waits for sums of them."""
    xp, rows = _namespace_of(arrays[0]), []
    for x, axis, name in zip(arrays, axes, names, strict=True):
        with calling(name):
            floats = _as_floats(x, xp)
            layout = layout_of(tuple(x.shape), axis)
        if asked.check_finite and _on_host(x):
            _refuse_bad_rows(layout, np.asarray(floats), name)
        rows.append(layout.rows(floats, xp.library))
    members = Members(rows, asked.nonnegative, xp, _fetch, partial(_send, xp))
    return split_shares(members, shares_of(members, asked, names).sparseness)


def check_place(x: Any, out: Any) -> None:
    """Refuse an `out` that cannot take the projection of x."""
    _check_out(out, _as_floats(x, _namespace_of(x)))


def span(x: Any) -> None:
    """Tell nothing: the standard does not say where arrays are."""


def _fetch(arrays: list[Any]) -> list[Any]:
    """Return arrays as NumPy arrays of doubles."""
    return [np.asarray(_to_numpy(array), float) for array in arrays]


def _to_numpy(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _send(xp: Namespace, numbers: Any, like: Any) -> Any:
    return xp.library.asarray(numbers, dtype=xp.float64, device=like.device)


# ---- the walk of a call ----


def _namespace_of(x: Any) -> Namespace:
    tops = (base.__module__.partition(".")[0] for base in type(x).__mro__)
    return namespace(sys.modules[next(top for top in tops if top in FAMILIES)])


def _projected(x: Any, options: Options, xp: Namespace) -> tuple[Layout, Any, Any, Plan]:
    """Return where vectors lie, and their projections in rows, the records, and the plan."""
    layout = layout_of(tuple(x.shape), options.axis)
    mask = None if options.where is None else _mask(options.where, x, xp)
    plan = _plan(layout, options._replace(where=None), mask, x, xp)
    if options.check_finite and _on_host(x):
        entries = np.asarray(x)
        if mask is not None:
            entries = np.where(np.asarray(mask), entries, 0)
        _refuse_bad_rows(layout, entries)
    return layout, *arrays.forward(layout.rows(x, xp.library), plan, xp), plan


def _refuse_bad_rows(layout: Layout, entries: Any, name: str = "x") -> None:
    inner = len(layout.axes)
    refuse_bad(np.moveaxis(entries, layout.axes, range(-inner, 0)), inner, name)


def _mask(where: Any, x: Any, xp: Namespace) -> Any:
    """Return a mask in the shape of x, where that is."""
    if type(where) is not type(x):
        refuse_lazy("where", where)
        where = xp.library.asarray(np.asarray(where))
    check_mask(where, where.dtype == xp.bool, tuple(x.shape))
    if where.device != x.device:
        raise ValueError(f"where is on {where.device} and x on {x.device}: move one of them")
    return xp.broadcast_to(where, x.shape)


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _describe(x: Any) -> str:
    return f"the arrays of {type(x).__module__.partition('.')[0]}"


def _as_floats(x: Any, xp: Namespace) -> Any:
    """Return x as a floating array that keeps its precision."""
    name = _name(x.dtype)
    if name in DTYPES:
        return x
    if name not in ("bool", *REAL):
        raise TypeError(
            f"x has dtype {name}: give real numbers as {', '.join(DTYPES)}, integers or booleans"
        )
    return xp.astype(x, xp.float64)


def _on_host(x: Any) -> bool:
    """Whether to look at numbers costs nothing."""
    host = 1  # DLPack's number for the memory of the processor
    return bool(x.__dlpack_device__()[0] == host)


def _check_out(out: Any, like: Any) -> None:
    """Refuse an `out` that cannot take a result like this one."""
    if type(out) is not type(like):
        kind = f"{type(out).__module__}.{type(out).__qualname__}"
        raise TypeError(f"out must be one of {_describe(like)}, not {kind}")
    for name in ("dtype", "device", "shape"):
        mine, wanted = getattr(out, name), getattr(like, name)
        if mine != wanted:
            mine, wanted = (_name(mine), _name(wanted)) if name == "dtype" else (mine, wanted)
            raise ValueError(f"out has {name} {mine}, the result has {wanted}")
    _check_entries("out", out)


def _check_entries(name: str, array: Any) -> None:
    strides = getattr(array, "strides", None)
    if strides is not None and shares_entries(array.shape, strides, array.itemsize):
        raise ValueError(
            f"{name} of shape {array.shape} has entries that share memory: pass a copy"
        )


def _written(name: str, array: Any, result: Any) -> Any:
    try:
        array[...] = result
    except TypeError as error:
        raise TypeError(f"{name} cannot be written to ({error}): use project without out") from None
    return array


# ---- targets ----


def _plan(layout: Layout, options: Options, mask: Any, x: Any, xp: Namespace) -> Plan:
    """Return the plan; targets on the host are checked, those on a device become NaN if bad."""
    check(options)
    arrays.check_solver(options)
    given = dict(zip(NAMES, options[:3], strict=True))
    there = {name: target for name, target in given.items() if type(target) is type(x)}
    # A copy: what the user does to the mask must not change derivatives.
    rows = None if mask is None else xp.astype(layout.rows(mask, xp.library), xp.bool)
    if (there or mask is not None) and not _on_host(x):
        moved = {name: _moved(name, target, layout, x, xp) for name, target in given.items()}
        options = options._replace(**moved)
        lengths = None if rows is None else xp.total(xp.astype(rows, xp.int64))[..., 0]
        target = resolve_there(layout.length if lengths is None else lengths, options, xp)
        return Plan.of(layout.length, target, options, rows, lengths)
    looked_at: dict[str, Any] = {name: np.asarray(target) for name, target in there.items()}
    options = options._replace(**looked_at)
    if rows is None:
        plan = plan_for(layout.length, options, layout.batch, layout.axes)
    else:
        counts = np.count_nonzero(np.asarray(rows), axis=-1)
        lengths, where = np.asarray(counts), (layout.batch, layout.axes)
        plan = masked_plan(layout.length, options, rows, lengths, *where)
    if options.check_finite:
        check_fits(plan, x.dtype, xp)
    return plan


def _moved(name: str, target: Any, layout: Layout, x: Any, xp: Namespace) -> Any:
    """Return a target other than a number as an array on the device of x, shaped like the batch."""
    if not is_array(target):
        return target
    if type(target) is not type(x):
        refuse_lazy(name, target)
        target = xp.library.asarray(np.asarray(target))
    if _name(target.dtype) not in REAL:
        raise TypeError(not_real(name, target))
    if target.device != x.device:
        raise ValueError(f"{name} is on {target.device} and x on {x.device}: move one of them")
    shape = without_axes(tuple(target.shape), len(layout.batch), layout.axes)
    try:
        fits = np.broadcast_shapes(shape, layout.batch) == layout.batch
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(no_fit(tuple(target.shape), layout.batch))
    return xp.library.reshape(target, shape)


# ---- derivatives ----


class ArrayDerivatives(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it, in rows."""

    value: Any
    record: Any
    x: Any
    """What was projected, where `Plan.needs_x` says so."""
    plan: Plan
    layout: Layout

    @property
    def _xp(self) -> Namespace:
        return _namespace_of(self.value)

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Any:
        """Return the Jacobian, or its transpose, times y."""
        xp, shape = self._xp, self.layout.shape
        given = y if type(y) is type(self.value) else xp.library.asarray(np.asarray(y))
        if tuple(given.shape) != shape:
            raise ValueError(f"y has shape {given.shape}, but the projection has shape {shape}")
        if _name(given.dtype) not in ("bool", *REAL):
            raise TypeError(f"y has dtype {_name(given.dtype)}; give real numbers")
        if out is not None:
            _check_out(out, self._back(self.value))
        rows = self.layout.rows(xp.astype(given, self.value.dtype), xp.library)
        result = self._back(self._products().product(rows, reverse=reverse))
        return result if out is None else _written("out", out, result)

    def jacobian(self) -> Any:
        """Return the dense Jacobian."""
        return self._products().jacobian()

    def target_gradient(self) -> tuple[Any, Any]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        first, second = self._products().by_norms()
        return self._back(first), self._back(second)

    def sparseness_gradient(self) -> Any:
        """Return the derivative by the sparseness."""
        return None if self.plan.both_norms else self._back(self._products().by_sparseness())

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.layout.batch else self.layout.length

    def as_numpy(self, array: Any) -> Any:
        """Return an array of any device as a NumPy array."""
        return _to_numpy(array)

    def _back(self, rows: Any) -> Any:
        return self.layout.back(rows, self._xp.library)

    def _products(self) -> Products:
        return arrays.derivatives(self.value, self.record, self.x, self.plan, self._xp)
