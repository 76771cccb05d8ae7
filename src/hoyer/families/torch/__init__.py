"""PyTorch tensors: the compiled core on the CPU, kernels on CUDA, tensor operations elsewhere."""

from typing import Any

import torch
from torch.autograd import forward_ad

from ...options import Axis, Options
from ...options import check as check_options
from ...projection import RECORD_FIELDS, SCALE, Projection
from . import engines, everyday, operators, smooth
from .derivatives import TensorDerivatives
from .engines import Task
from .functions import Projecting, Transformable
from .sigma import sparseness_of, with_value
from .targets import as_given, rule_of, tensors_of
from .tensors import (
    DTYPES,
    Tensor,
    Vectors,
    as_floats,
    check_in_place,
    check_out,
    check_room,
    is_watched,
    refuse_layout,
    transforming,
    vectors_last,
)

# Tensors of these types have memory of their own; others are someone's stand-in.
_ORDINARY = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)

FIELD_TYPES = {"support_size": torch.int64, "evaluations": torch.int64, "unique": torch.bool}

# ---- the functions of the backend protocol ----


def project(x: Tensor, options: Options, out: Tensor | None) -> Tensor:
    """Project x into `out`, or into a new tensor that remembers where it came from."""
    if out is not None:
        return _project_out(x, options, out)
    if not torch.compiler.is_compiling():
        result = everyday.project(x, options)
        if result is not None:
            return result
    vectors, task = _prepared(x, options)
    return vectors.back(_differentiable(vectors.tensor, task))


def project_(x: Tensor, options: Options) -> Tensor:
    """Project x in place."""
    refuse_layout("x", x)
    if x.dtype not in DTYPES:
        raise TypeError(
            f"project_ cannot store its result in a tensor of {x.dtype}: in place x must be one of "
            "float16, bfloat16, float32, float64"
        )
    if is_watched(x, *tensors_of(options)) or not _is_real(x):
        return _project_watched(x, options)
    vectors, task = _prepared(x, options)
    check_in_place("x", vectors.tensor)
    engines.project_into(vectors.tensor, vectors.tensor, task)
    return x


def solve(x: Tensor, options: Options) -> Projection[Tensor]:
    """Project x and keep what was found; the value can be differentiated."""
    vectors, task = _prepared(x, options)
    value, scale, records = _with_records(vectors.tensor, task)
    fields = {
        name: records[..., i].to(FIELD_TYPES.get(name, records.dtype))
        for i, name in enumerate(RECORD_FIELDS)
        if name != "kept"
    }
    derivatives = TensorDerivatives.of(vectors, value, records, task)
    fields["scale"] = scale
    return Projection(vectors.back(value), derivatives=derivatives, **fields)


def project_sparse(x: Tensor, options: Options) -> Any:
    """Refuse: the result is a SciPy sparse array, which is no tensor."""
    raise TypeError(
        "project_sparse returns SciPy sparse arrays and does not take tensors: pass "
        "x.detach().cpu().numpy(), or use project(x, ...).to_sparse()"
    )


def sparseness(x: Tensor, axis: Axis) -> Tensor:
    """Return sigma of every vector, in the precision of x; it can be differentiated."""
    floats = as_floats(x)
    vectors = vectors_last(floats, axis)
    mapped = forward_ad._current_level >= 0 or transforming()
    if mapped or not engines.uses_core(x) or not _is_real(x):
        return sparseness_of(vectors.tensor, vectors.inner)
    value = engines.sparseness(vectors.tensor.detach(), vectors.inner)
    if not is_watched(x):
        return value
    return with_value(sparseness_of(vectors.tensor, vectors.inner), value)


# ---- the walk of a call ----


def _prepared(x: Tensor, options: Options) -> tuple[Vectors, Task]:
    vectors = vectors_last(as_floats(x), options.axis)
    return vectors, Task(as_given(options, vectors), vectors.inner)


def _differentiable(x: Tensor, task: Task) -> Tensor:
    """Project through the door that fits."""
    targets = tensors_of(task.options)
    if not _is_real(x):
        check_options(task.options)
        if torch.compiler.is_compiling() and transforming():
            return smooth.project(x, task)
        return operators.project(x, task)[0]
    if transforming():
        return _applied(Transformable, x, *targets, task)[0]
    if is_watched(x, *targets):
        return _applied(Projecting, x, *targets, task)[0]
    return engines.value_of(x, task)


def _applied(function: Any, *arguments: Any) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = function.apply(*arguments)
    return results


def _with_records(x: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Return value and scale, differentiable where somebody watches, and the records."""
    if not _is_real(x) or transforming():
        raise TypeError(
            "solve works on tensors with numbers in them, not while PyTorch traces or transforms a "
            "function: use project there"
        )
    targets = tensors_of(task.options)
    if is_watched(x, *targets):
        told: list[Tensor] = []
        value, scale = _applied(Projecting, x, *targets, task, told)
        return value, scale, told[0]
    value, records = engines.project(x, task)
    return value, records[..., SCALE].clone(), records


def _project_out(x: Tensor, options: Options, out: Tensor) -> Tensor:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a tensor, not {type(out).__name__}")
    vectors, task = _prepared(x, options)
    given = (x, out, *tensors_of(task.options))
    if any(_has_tangent(t) for t in given) or (
        torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    ):
        raise RuntimeError(
            "project(out=...) does not support automatic differentiation, but one of the arguments "
            "requires grad or has a tangent: leave out=, or work under torch.no_grad() with plain "
            "tensors"
        )
    floats = as_floats(x)
    if not _is_real(x) or transforming():
        check_room(out, floats)
        return out.copy_(vectors.back(_differentiable(vectors.tensor, task)))
    check_out(out, floats)
    engines.project_into(vectors.tensor, vectors_last(out, options.axis).tensor, task)
    return out


def _project_watched(x: Tensor, options: Options) -> Tensor:
    """Project in place what autograd or a compiler looks at: it is they who change x."""
    if torch.is_grad_enabled() and x.requires_grad and x.is_leaf:
        raise RuntimeError(
            "a leaf Variable that requires grad cannot be changed in place (x is one, a parameter "
            "perhaps): call project_ under torch.no_grad(), or use project"
        )
    # Where its norm is kept, x is needed for the derivative: as it was.
    source = x.clone() if rule_of(options) == "keep" else x
    result = project(source, options, None)
    return x.copy_(result)


def _has_tangent(x: Tensor | None) -> bool:
    """Whether forward mode follows x."""
    if x is None or forward_ad._current_level < 0:
        return False
    unpack: Any = forward_ad.unpack_dual
    return unpack(x).tangent is not None


def _is_real(x: Tensor) -> bool:
    """Whether there are numbers to work on, rather than a tensor that says what it would be."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if torch._C._is_tracing():
        return False
    if type(x) not in _ORDINARY and torch._C._dispatch_keys(x).has(torch._C.DispatchKey.Python):
        return False
    return x.device.type != "meta"
