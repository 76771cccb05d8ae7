"""PyTorch tensors: the compiled core on the CPU, kernels on CUDA, tensor operations elsewhere."""

from typing import Any

import torch
from torch import is_grad_enabled
from torch._C._functorch import unwrap_if_dead
from torch.autograd import forward_ad

from ...engines import arrays
from ...options import Axis, Options
from ...options import check as check_options
from ...plan import Plan, plain_plan
from ...projection import RECORD_FIELDS, SCALE, Projection
from . import engines, operators
from .derivatives import TensorDerivatives
from .engines import Solved, engine_for, from_records
from .functions import apply_eagerly
from .targets import NO_TENSORS, Targets, as_given, plan_of, tensors_of
from .tensors import (
    DTYPES,
    XP,
    Tensor,
    Vectors,
    check_in_place,
    check_like,
    check_out,
    is_real,
    is_watched,
    refuse_layout,
    rows_of,
    transforming,
    vectors_last,
)
from .tensors import is_distributed as is_distributed
from .tensors import span as span  # functions of the protocol, too
from .together import shares as shares

FIELD_TYPES = {
    "support_size": torch.int64,
    "evaluations": torch.int64,
    "unique": torch.bool,
    "active": torch.int8,
}

# ---- the functions of the protocol `Family` ----


def project(x: Tensor, options: Options, out: Tensor | None) -> Tensor:
    """Project x into `out`, or into a new tensor that remembers where it came from."""
    if out is not None:
        return _project_out(x, options, out)
    vectors = vectors_last(x, options.axis)
    value = _differentiable(vectors, options)
    return vectors.back(value) if vectors.axes else value


def project_(x: Tensor, options: Options) -> Tensor:
    """Project x in place."""
    check_floating(x)
    if is_watched(x, *tensors_of(options)) or not is_real(x):
        return _project_watched(x, options)
    vectors = vectors_last(x, options.axis)
    plan, _ = _planned(vectors, options)
    check_in_place("x", vectors.tensor)
    engine_for(x).into(vectors.tensor, vectors.tensor, plan, vectors.inner)
    return x


def solve(x: Tensor, options: Options) -> Projection[Tensor]:
    """Project x and keep what was found; the value can be differentiated."""
    if not is_real(x) or transforming():
        raise TypeError(
            "solve works on tensors with numbers in them, not while PyTorch traces or transforms a "
            "function: use project there"
        )
    vectors = vectors_last(x, options.axis)
    plan, targets = _planned(vectors, options)
    value, scale, records = _with_records(vectors, plan, targets)
    fields = {
        name: records[..., i].to(FIELD_TYPES.get(name, records.dtype))
        for i, name in enumerate(RECORD_FIELDS)
    }
    fields["scale"], fields["active_code"] = scale, fields.pop("active")
    derivatives = TensorDerivatives.of(vectors, value, records, plan)
    return Projection(vectors.back(value), derivatives=derivatives, **fields)


def project_sparse(x: Tensor, options: Options) -> Any:
    """Refuse: the result is a SciPy sparse array, which is no tensor."""
    raise TypeError(
        "project_sparse returns SciPy sparse arrays and does not take tensors: pass "
        "x.detach().cpu().numpy(), or use project(x, ...).to_sparse()"
    )


def sparseness(x: Tensor, axis: Axis) -> Tensor:
    """Return sigma of every vector, in the precision of x; it can be differentiated."""
    vectors = vectors_last(x, axis)
    transformed = forward_ad._current_level >= 0 or transforming()
    value = None
    if engines.uses_core(x) and is_real(x) and not transformed:
        value = engines.sparseness(vectors.tensor, vectors.inner)
        if not is_watched(x):
            return value
    computed: Tensor = arrays.sparseness(rows_of(vectors.tensor, vectors.inner), XP)
    # The number is the core's where there is one, the derivatives are those of the formula.
    return computed if value is None else XP.with_value(computed, value)


def check_place(x: Tensor, out: Tensor) -> None:
    """Refuse an `out` that cannot take the projection of x, or that autograd looks at."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a tensor, not {type(out).__name__}")
    refuse_watched(x, out)
    check_out(out, x if x.dtype in DTYPES else vectors_last(x, None).tensor)


# ---- the walk of a call ----


def _differentiable(vectors: Vectors, options: Options) -> Tensor:
    """Project through the door that fits: one for tracing, one for `torch.func`, one for others."""
    x, inner, _, n = vectors
    if not is_real(x):
        check_options(options)
        return operators.project_traced(x, as_given(options, vectors), inner)
    if transforming():
        check_options(options)
        return operators.project_transformed(x, as_given(options, vectors), inner)
    plan = plain_plan(n, options)
    if plan is not None:
        targets = NO_TENSORS
        watched = forward_ad._current_level >= 0 or (x.requires_grad and is_grad_enabled())
    else:
        plan, targets = _planned(vectors, options)
        watched = is_watched(x, *targets)
    engine = engine_for(x)
    if not watched:
        return engine.value(x, plan, inner)
    value: Tensor = apply_eagerly(unwrap_if_dead(x), *targets, (engine.solved, plan, inner))[0]
    return value


def _planned(vectors: Vectors, options: Options) -> tuple[Plan, Targets]:
    """Return the plan for tensors with numbers in them, and the targets that are tensors."""
    options = as_given(options, vectors)
    return plan_of(vectors.tensor, vectors.inner, options), tensors_of(options)


def _with_records(vectors: Vectors, plan: Plan, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    """Return value and scale, differentiable where somebody watches, and the records."""
    x, inner, _, _ = vectors
    engine = engine_for(x)
    if not is_watched(x, *targets):
        value, records = engine.records(x, plan, inner)
        return value, records[..., SCALE].clone(), records
    told: list[Tensor] = []

    def find(x: Tensor, plan: Plan, inner: int) -> Solved:
        value, records = engine.records(x, plan, inner)
        told.append(records)
        return from_records(x, value, records, plan, inner)

    value, scale = apply_eagerly(unwrap_if_dead(x), *targets, (find, plan, inner))
    return value, scale, told[0]


def _project_out(x: Tensor, options: Options, out: Tensor) -> Tensor:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a tensor, not {type(out).__name__}")
    vectors = vectors_last(x, options.axis)
    refuse_watched(x, out, *tensors_of(as_given(options, vectors)))
    floats = vectors.back(vectors.tensor)
    if not is_real(x) or transforming():
        check_like(out, floats)
        return out.copy_(vectors.back(_differentiable(vectors, options)))
    check_out(out, floats)
    plan, _ = _planned(vectors, options)
    written = vectors_last(out, options.axis).tensor
    engine_for(x).into(vectors.tensor, written, plan, vectors.inner)
    return out


def check_floating(x: Tensor) -> None:
    """Refuse tensors that cannot hold a projection."""
    refuse_layout("x", x)
    if x.dtype not in DTYPES:
        raise TypeError(
            f"project_ cannot store its result in a tensor of {x.dtype}: in place x must be one of "
            "float16, bfloat16, float32, float64"
        )


def refuse_watched(*given: Tensor | None) -> None:
    """Refuse arguments of a call with `out` that somebody may differentiate."""
    if any(_has_tangent(t) for t in given) or (
        is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    ):
        raise RuntimeError(
            "out=... does not support automatic differentiation, but one of the arguments requires "
            "grad or has a tangent: leave out=, or work under torch.no_grad() with plain tensors"
        )


def _project_watched(x: Tensor, options: Options) -> Tensor:
    """Project in place what autograd or a compiler looks at: it is they who change x."""
    refuse_leaf(x)
    # The derivative may need x as it was.
    return x.copy_(project(x.clone(), options, None))


def refuse_leaf(x: Tensor) -> None:
    """Refuse to change in place what autograd does not let change."""
    if is_grad_enabled() and x.requires_grad and x.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad cannot be changed in place (x is one, a parameter "
            "perhaps): call project_ under torch.no_grad(), or use project"
        )


def _has_tangent(x: Tensor | None) -> bool:
    """Whether forward mode follows x."""
    if x is None or forward_ad._current_level < 0:
        return False
    unpack: Any = forward_ad.unpack_dual
    return unpack(x).tangent is not None
