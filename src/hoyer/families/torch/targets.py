"""Targets of tensors: numbers are resolved on the host, tensors where they are, all by `target`."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import numpy as np
import torch

from ...engines.arrays.targets import refuse_what_is_seen, resolve_there
from ...layout import check_mask
from ...options import NORM_RULES, Options, check
from ...plan import Plan, by_length, derivative_plan, masked_plan, plan_for
from ...target import Target, below_one, no_fit, not_real, refuse_lazy, without_axes
from . import engines
from .tensors import (
    DTYPES,
    FLOATS,
    XP,
    Tensor,
    Vectors,
    batch_of,
    length_of,
    refuse_distributed,
    refuse_layout,
)

NAMES = ("sparseness", "l1", "l2")

Targets: TypeAlias = tuple[Any, Any, Any]
"""Sparseness, l1 and l2: tensors, numbers, rules, or None."""

NO_TENSORS: Targets = (None, None, None)

# ---- what was given ----


def as_given(options: Options, vectors: Vectors) -> Options:
    """Return the options with arrays and lists among them as tensors on the device of x.

    Targets are shaped like the batch, without the axes of the vectors; a mask is shaped like the
    vectors, its axes where theirs are. Tensors on another device or of another shape are refused,
    targets that are no real numbers, and masks that are no booleans.
    """
    targets = list(options[:3])
    for i, value in enumerate(targets):
        if value is not None and (type(value) is bool or not isinstance(value, float | int | str)):
            targets[i] = _as_given(NAMES[i], value, vectors)
    if options.where is not None:
        options = options._replace(where=_as_mask(options.where, vectors))
    return with_targets(options, targets)


def _as_given(name: str, value: Any, vectors: Vectors) -> Any:
    x, inner, axes, _ = vectors
    if not isinstance(value, torch.Tensor):
        value = _as_tensor(name, value, x)
        if not isinstance(value, torch.Tensor):
            return value
    refuse_layout(name, value)
    refuse_distributed(name, value, x)
    if value.is_complex() or (value.is_floating_point() and value.dtype not in DTYPES):
        raise TypeError(
            f"{name} has dtype {value.dtype}: give real numbers as {FLOATS} or integers"
        )
    if value.dtype == torch.bool:
        raise TypeError(not_real(name, value))
    # What is read by its address must be what is in memory.
    value = value.resolve_neg()
    if value.device != x.device:
        if value.dim() > 0:
            _refuse_device(name, value, x)
        # A product with a number on the host: a copy would wait for the device.
        value = value.new_ones((), device=x.device) * value if value.is_cpu else value.to(x.device)
    if value.dim() == 0:
        return value
    batch, given = batch_of(x, inner), tuple(value.shape)
    shape = without_axes(given, len(batch), axes or tuple(range(len(batch), x.dim())))
    ends = zip(shape[::-1], batch[::-1], strict=False)
    if len(shape) > len(batch) or not all(size in (1, wanted) for size, wanted in ends):
        raise ValueError(no_fit(given, batch))
    return value if shape == given else value.reshape(shape)


def _as_tensor(name: str, value: Any, x: Tensor) -> Any:
    """Return a list or an array as a tensor where x is, without waiting; a number as itself."""
    if isinstance(value, bool):
        raise TypeError(not_real(name, value))
    parts = value if isinstance(value, list | tuple) else ()
    for part in parts:
        if isinstance(part, torch.Tensor):
            refuse_distributed(name, part, x)
    if any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts):
        raise TypeError(
            f"{name} is a list of tensors that require grad: give one tensor, torch.stack({name})"
        )
    if torch.compiler.is_compiling():
        return torch.as_tensor(value, dtype=XP.wide(x), device=x.device)
    if isinstance(value, list | tuple):
        value = [part.resolve_neg() if isinstance(part, torch.Tensor) else part for part in value]
    refuse_lazy(name, value)
    array = np.asarray(value)
    if isinstance(value, np.ma.MaskedArray) or array.dtype.kind not in "fiu":
        raise TypeError(not_real(name, value))
    if array.ndim == 0:
        return array[()]
    return _sent(torch.tensor(array, device="cpu"), x.device)


def _as_mask(where: Any, vectors: Vectors) -> Tensor:
    """Return `where` as a tensor of booleans shaped like the vectors, as they lie."""
    x, inner, axes, _ = vectors
    if not isinstance(where, torch.Tensor):
        if torch.compiler.is_compiling():
            where = torch.as_tensor(where, device=x.device)
        else:
            refuse_lazy("where", where)
            array = np.asarray(where)
            check_mask(array, array.dtype == np.bool_, tuple(vectors.back(x).shape))
            where = _sent(torch.tensor(array, device="cpu"), x.device)
    refuse_layout("where", where)
    refuse_distributed("where", where, x)
    shape = vectors.back(x).shape
    check_mask(where, where.dtype == torch.bool, tuple(shape))
    if where.device != x.device:
        _refuse_device("where", where, x)
    mask: Tensor = where.detach().expand(shape)
    return mask.movedim(axes, tuple(range(-inner, 0))) if axes else mask


def _refuse_device(name: str, value: Tensor, x: Tensor) -> NoReturn:
    raise ValueError(
        f"{name} is on {value.device} and x on {x.device}: move one of them, {name}.to(x.device)"
    )


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on a device; nobody waits for it to arrive."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def tensors_of(options: Options) -> Targets:
    """Return those targets that are tensors, None for the others."""
    sparseness, l1, l2 = options[:3]
    return (
        sparseness if isinstance(sparseness, torch.Tensor) else None,
        l1 if isinstance(l1, torch.Tensor) else None,
        l2 if isinstance(l2, torch.Tensor) else None,
    )


def has_tensors(options: Options) -> bool:
    """Whether a target is a tensor."""
    sparseness, l1, l2 = options[:3]
    return (
        isinstance(sparseness, torch.Tensor)
        or isinstance(l1, torch.Tensor)
        or isinstance(l2, torch.Tensor)
    )


def with_targets(options: Options, targets: Iterable[Any]) -> Options:
    """Return the options with other targets."""
    # A named tuple's own constructor is written in Python, and slower.
    result: Options = tuple.__new__(Options, (*targets, *options[3:]))
    return result


def filled(tensors: Any, targets: Any) -> Targets:
    """Return the tensors, and the targets where there is none."""
    (a, b, c), (sparseness, l1, l2) = tensors, targets
    return sparseness if a is None else a, l1 if b is None else b, l2 if c is None else c


# ---- what it means ----


def plan_of(x: Tensor, inner: int, options: Options) -> Plan:
    """Return what is asked of the vectors in the last axes; nothing on a device is looked at.

    Targets are as `as_given` leaves them. The plan's own options hold numbers in place of tensors:
    whoever keeps a plan does not keep those.
    """
    n = length_of(x, inner)
    if options.where is not None:
        return _masked_plan(x, inner, options)
    if not has_tensors(options):
        return plan_for(n, options)
    if not on_host(x):
        return _plan_there(x, inner, options)
    plan = _plan_of_one_number(n, options)
    if plan is not None:
        return plan
    return plan_for(n, _on_host(options), batch_of(x, inner))


def _plan_there(x: Tensor, inner: int, options: Options) -> Plan:
    """Return the plan for tensors that nobody looks at; kernels resolve them, where they can."""
    check(options)
    n, plain, plan = length_of(x, inner), _without_tensors(options), None
    if engines.uses_kernels(x):
        refuse_what_is_seen(n, options)
        plan = engines.kernels().resolve(n, options, plain, x.shape[: x.dim() - inner], x)
    return plan or Plan.of(n, resolve_there(n, options, XP), plain)


def _masked_plan(x: Tensor, inner: int, options: Options) -> Plan:
    """Return the plan for vectors of which a mask, shaped like them, leaves some entries."""
    n, where = length_of(x, inner), options.where
    options = options._replace(where=None)
    if on_host(x):
        lengths = lengths_of(where, inner)
        counts = lengths.numpy()
        plan = masked_plan(n, _on_host(options), where, counts, batch_of(x, inner))
        return replace(plan, lengths=lengths)
    check(options)
    found = None if has_tensors(options) else _table(n, options, x)
    if found is not None and engines.uses_kernels(x):
        blank = Plan.of(n, Target(None, None, None, None), options, where)
        return _nearly(engines.kernels().measure(blank, found[0], batch_of(x, inner)), found[1])
    lengths = lengths_of(where, inner)
    if found is None:
        target = resolve_there(lengths, options, XP)
        return Plan.of(n, target, _without_tensors(options), where, lengths)
    table, nearly_constant = found
    # One lookup for all four numbers.
    target = Target(*table.index_select(1, lengths.reshape(-1)).reshape(4, *lengths.shape))
    return _nearly(Plan.of(n, target, options, where, lengths), nearly_constant)


def lengths_of(where: Tensor, inner: int) -> Tensor:
    """Return how many entries a mask leaves of each vector."""
    return where.sum(tuple(range(-inner, 0)))


_LONGEST_TABLE = 2**16
"""Longer vectors are rarely many, and formulas cost less than a table that large."""


def _table(n: int, options: Options, x: Tensor) -> tuple[Tensor, bool] | None:
    """Return targets by length on the device of x, made once, and whether some may be nearly equal.

    None for long vectors.
    """
    if n > _LONGEST_TABLE:
        return None
    known = by_length(n, options)
    form = ("lengths", x.device)
    if form not in known.forms:
        columns = np.stack(known.target)
        known.forms[form] = _sent(torch.tensor(columns, dtype=XP.wide(x), device="cpu"), x.device)
    return known.forms[form], known.nearly_constant


def _nearly(plan: Plan, nearly_constant: bool) -> Plan:
    """Return a plan of which the host knows whether results may be nearly constant."""
    return replace(plan, nearly_constant=nearly_constant, needs_x=plan.needs_x or nearly_constant)


def _without_tensors(options: Options) -> Options:
    return with_targets(options, (0.0 if isinstance(t, torch.Tensor) else t for t in options[:3]))


def _on_host(options: Options) -> Options:
    """Return the options with CPU tensors as arrays of the host."""
    return with_targets(options, map(_as_host_array, options[:3]))


def _plan_of_one_number(n: int, options: Options) -> Plan | None:
    """Return the plan for a sparseness that is one number and all right, as that of a layer is.

    It may be another one next time, so nothing is remembered.
    """
    sparseness, l1, l2 = options[:3]
    rule = options.rule
    if l1 is not None or (rule not in NORM_RULES and l2 is not None) or n < 2 or sparseness.dim():
        return None
    sigma = sparseness.item()
    if not 0 <= sigma <= 1:
        return None
    check(options)
    ratio, slack = below_one(n, sigma) if sigma < 1 else (1.0, (n - 1.0, 0.0))
    parts = np.array([[ratio], [slack[0]], [slack[1]], [1.0]])
    target = Target(parts[0], parts[1], parts[2], parts[3])
    return Plan.of(n, target, with_targets(options, (sigma, l1, l2)))


def on_host(x: Tensor) -> bool:
    """Whether targets can be looked at without waiting for a device."""
    return x.is_cpu


def _as_host_array(target: Any) -> Any:
    """Return a CPU tensor as a NumPy array or number; others as they are."""
    if not isinstance(target, torch.Tensor):
        return target
    tensor = target.detach()
    if tensor.dim() == 0 and tensor.dtype == torch.float64:
        return tensor.item()
    return engines.as_numpy(tensor)


def derived_plan(x: Tensor, inner: int, options: Options) -> Plan:
    """Return a plan for derivatives, where the numbers behind the targets may be out of reach."""
    n = length_of(x, inner)
    if not isinstance(n, int) or has_tensors(options):
        return smooth_plan(x, inner, options)
    if options.where is None:
        return plan_for(n, options)
    nearly_constant = by_length(n, options._replace(where=None)).nearly_constant
    return _nearly(smooth_plan(x, inner, options), nearly_constant)


def smooth_plan(x: Tensor, inner: int, options: Options) -> Plan:
    """Return a plan that knows no numbers, only what was given."""
    where = options.where
    plan = derivative_plan(length_of(x, inner), options._replace(where=None))
    if where is None:
        return plan
    return replace(plan, where=where, lengths=lengths_of(where, inner))
