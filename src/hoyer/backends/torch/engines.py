"""Who computes: the core on the CPU, kernels on CUDA, plain tensor operations elsewhere."""

import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ...options import Options
from ...options import check as check_options
from ...target import resolve
from . import search
from .calculus import Setting
from .targets import rule_of, tensors_of, with_arrays
from .tensors import Tensor, batch_of, length_of

core: Any
"""The compiled core, or None without it."""
try:
    from ... import _core as core
    from ..numpy import describe_bad, plan_for
    from ..numpy.arrays import view
except ImportError:
    core = None

SHIFT, SCALE, SUPPORT, EVALUATIONS, UNIQUE, L1, L2, KEPT = range(len(search.FIELDS))


class Task(NamedTuple):
    """What is asked of the vectors in the last `inner` axes; `options.axis` has been dealt with."""

    options: Options
    inner: int

    @property
    def setting(self) -> Setting:
        """What the derivatives depend on."""
        options = self.options
        return Setting(
            self.inner, rule_of(options), bool(options.nonnegative), options.sparseness is None
        )

    @property
    def plain(self) -> bool:
        """Whether all targets are numbers."""
        return tensors_of(self.options) == (None, None, None)


def uses_core(x: Tensor) -> bool:
    """Whether the compiled core works on this tensor."""
    return core is not None and x.is_cpu


@cache
def kernels() -> Any:
    """Return the module with the CUDA kernels; None, and say so once, where Triton is missing."""
    try:
        from . import cuda  # noqa: PLC0415 - loads Triton
    except ImportError as error:
        warnings.warn(
            f"hoyer's CUDA kernels need Triton, which cannot be loaded ({error}): CUDA tensors are "
            "projected by sorting, exactly but many times slower",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return cuda


def uses_kernels(x: Tensor) -> bool:
    """Whether the CUDA kernels work on this tensor."""
    return x.is_cuda and torch.version.cuda is not None and kernels() is not None


class Found(NamedTuple):
    """Projections, and what their derivatives need to know."""

    value: Tensor
    scale: Tensor
    kept: Tensor | None
    """Which vectors kept their direction, where that may be."""
    norms: Tensor | None
    """l1 and l2 of every vector, where the engine's products want them."""


def find(x: Tensor, task: Task) -> Found:
    """Project, and return what derivatives need."""
    only_increase = task.options.only_increase
    if uses_kernels(x):
        check_kernel_options(task.options)
        found = kernels().project(x, task, torch.empty_like(x), remember=True)
        return Found(found.value, found.scale, found.kept, found.norms)
    value, records = project(x, task)
    kept = records[..., KEPT].to(torch.int8) if only_increase else None
    norms = None
    if uses_core(x):
        norms = records.reshape(-1, len(search.FIELDS))[:, L1 : L2 + 1].clone()
    return Found(value, records[..., SCALE].clone(), kept, norms)


def check_kernel_options(options: Options) -> None:
    """Refuse what only the core can do."""
    check_options(options)
    search.check_solver(options)


def project(x: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Return the projections and the records, ``batch + (fields,)``, of all vectors."""
    if uses_core(x):
        value = torch.empty_like(x)
        records = into(x, value, task)
        shape = (*batch_of(x, task.inner), len(search.FIELDS))
        return value, torch.from_numpy(records).reshape(shape)
    check_options(task.options)
    if uses_kernels(x):
        check_kernel_options(task.options)
        found: tuple[Tensor, Tensor] = kernels().solve(x, task)
        return found
    if x.device.type == "cpu" and task.options.check_finite:
        check_finite(x, task.inner)
    return search.project(x, task.options, task.inner)


def value_of(x: Tensor, task: Task) -> Tensor:
    """Return the projections alone."""
    if uses_kernels(x):
        check_kernel_options(task.options)
        value: Tensor = kernels().project(x, task, torch.empty_like(x), remember=False).value
        return value
    return project(x, task)[0]


def project_into(x: Tensor, out: Tensor, task: Task) -> None:
    """Write the projections to `out`, which may be x; every vector is checked before the first."""
    if uses_core(x):
        into(x, out, task, check_first=True)
        torch.autograd.graph.increment_version(out)
    elif uses_kernels(x):
        check_kernel_options(task.options)
        kernels().project(x, task, out, remember=False)
        torch.autograd.graph.increment_version(out)
    else:
        out.copy_(project(x, task)[0])


def into(x: Tensor, out: Tensor, task: Task, *, check_first: bool = False) -> Any:
    """Project by the compiled core; return the records as a NumPy array."""
    if x.dtype == torch.bfloat16:
        # The core has no such type: float32 has the same range and more digits.
        wide = x.detach().float()
        records = into(wide, wide, task, check_first=check_first)
        with torch.no_grad():
            out.detach().copy_(wide)
        return records
    inner, given = task.inner, as_array(x)
    shape = given.shape
    batch = shape[: len(shape) - inner]
    length, rows = 1, 1
    for size in shape[len(shape) - inner :]:
        length *= size
    for size in batch:
        rows *= size
    options = with_arrays(task.options)
    records = np.empty((rows, len(search.FIELDS)))
    plan = plan_for(length, options, batch)
    bad = core.project(given, as_array(out), plan, inner, check_first, False, False, records)
    if bad >= 0:
        raise ValueError(describe(x, inner, bad))
    return records


def as_array(x: Tensor) -> Any:
    """Return the memory of a CPU tensor as a NumPy array."""
    x = x.detach()
    return x.resolve_neg().numpy() if x.is_neg() else x.numpy()


def describe(x: Tensor, inner: int, bad: int) -> str:
    """Say which vector has NaN or infinity first, and where."""
    x = x.detach()
    array = (x.float() if x.dtype == torch.bfloat16 else x).numpy()
    axes = tuple(range(-inner, 0))
    return describe_bad(view(array, axes), bad)


def check_finite(x: Tensor, inner: int) -> None:
    """Refuse NaN and infinity, where to look costs nothing: on the CPU."""
    rows = x.detach().reshape(-1, length_of(x, inner))
    fine = torch.isfinite(rows).all(-1)
    if bool(fine.all()):
        return
    number = int((~fine).nonzero()[0])
    entry = int((~torch.isfinite(rows[number])).nonzero()[0])
    batch = batch_of(x, inner)
    place = tuple(int(i) for i in np.unravel_index(number, batch)) if batch else ()
    which = f" of vector {place if len(place) > 1 else place[0]}" if place else ""
    shape = tuple(x.shape[x.dim() - inner :])
    where: Any = tuple(int(i) for i in np.unravel_index(entry, shape)) if inner > 1 else entry
    raise ValueError(
        f"x has {float(rows[number, entry])} at entry {where}{which}; only finite vectors can be "
        "projected (check_finite=False returns NaN for such vectors)"
    )


# ---- the gradient product ----


class Norms(NamedTuple):
    """The norms of all results: numbers, or one per vector."""

    l1: Any
    l2: Any


def known_norms(n: int, task: Task) -> Norms | None:
    """Return the norms that follow from the target alone; None where they depend on the vector."""
    options = task.options
    if not task.plain or isinstance(options.l2, str) or options.only_increase:
        return None
    target = resolve(n, options.sparseness, options.l1, options.l2, (), check=False)
    return Norms(float(target.ratio[0] * target.l2[0]), float(target.l2[0]))


def records_of(scale: Tensor, l1: Tensor, l2: Tensor, kept: Tensor | None) -> Any:
    """Return what the core needs to know about results whose records were not kept."""
    records = np.zeros((scale.numel(), len(search.FIELDS)))
    for place, column in ((SCALE, scale), (L1, l1), (L2, l2), (KEPT, kept)):
        if column is not None:
            records[:, place] = column.numpy().reshape(-1)
    return records


def multiply(at: Found, y: Tensor, x: Tensor | None, setting: Setting, *, reverse: bool) -> Tensor:
    """Return the Jacobian (or its transpose) times y, by the core or the kernels."""
    if uses_core(at.value):
        assert at.norms is not None
        records = records_of(at.scale, at.norms[:, 0], at.norms[:, 1], at.kept)
        return product(at.value, y, x, records, setting, reverse=reverse)
    result: Tensor = kernels().product(at, y, x, setting, reverse=reverse)
    return result


def can_multiply(value: Tensor) -> bool:
    """Whether `multiply` serves this tensor."""
    return uses_core(value) or uses_kernels(value)


def product(
    value: Tensor, y: Tensor, x: Tensor | None, records: Any, setting: Setting, *, reverse: bool
) -> Tensor:
    """Return the Jacobian (or its transpose) times y; x is only needed where its norm is kept."""
    if value.dtype == torch.bfloat16:
        value, y, x = (
            value.detach().float(),
            y.detach().float(),
            None if x is None else x.detach().float(),
        )
        return product(value, y, x, records, setting, reverse=reverse).bfloat16()
    result = torch.empty_like(value)
    core.gradient_product(
        as_array(value),
        as_array(y),
        None if x is None else as_array(x),
        result.numpy(),
        setting.inner,
        records,
        setting.rule,
        setting.nonnegative,
        reverse,
    )
    return result


def sparseness(x: Tensor, inner: int) -> Tensor:
    """Return sigma of the vectors in the last `inner` axes, by the core."""
    wide = x.detach().float() if x.dtype == torch.bfloat16 else x
    batch = batch_of(x, inner)
    result = np.empty(int(np.prod(batch)))
    core.sparseness(as_array(wide), inner, False, result)
    return torch.from_numpy(result).reshape(batch).to(x.dtype)
