"""Who computes: the core on the CPU, kernels on CUDA, plain tensor operations elsewhere."""

import os
import shutil
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ...engines.arrays import search
from ...engines.arrays.products import Setting
from ...options import Options
from ...options import check as check_options
from ...projection import KEPT, L1, L2, RECORD_FIELDS, SCALE
from ...target import resolve
from .. import not_finite
from .targets import Changes, rule_of, tensors_of, with_arrays
from .tensors import Tensor, batch_of, length_of

core: Any
"""The compiled core, or None without it."""
try:
    from ... import _core as core
    from ...engines.core import core_plan
    from ...plan import plan_for
    from ..numpy import describe_bad
    from ..numpy.arrays import view
except ImportError:
    core = None

LARGE = 2**25
"""Bytes from which on new memory is always fresh: less comes from what was freed before."""


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


def new_like(x: Tensor) -> Tensor:
    """Return memory for a result that the core will write; much of it in large pages."""
    new = torch.empty_like(x)
    if new.nbytes >= LARGE:
        core.use_large_pages(as_array(new))
    return new


def uses_core(x: Tensor) -> bool:
    """Whether the compiled core works on this tensor."""
    return core is not None and x.is_cpu


@cache
def kernels() -> Any:
    """Return the module with the CUDA kernels; None, and say so once, where they cannot run."""
    try:
        from ...engines import triton as cuda  # noqa: PLC0415 - loads Triton
    except ImportError as error:
        lack = f"Triton, which cannot be loaded ({error})"
    else:
        if can_compile():
            return cuda
        lack = "a C compiler for Triton (gcc or clang, or what the variable CC names)"
    warnings.warn(
        f"hoyer's CUDA kernels need {lack}: CUDA tensors are projected by sorting, exactly but "
        "many times slower",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def can_compile() -> bool:
    """Whether Triton finds what it builds its launchers with."""
    return bool(os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang"))


KERNELS_WANTED = os.environ.get("HOYER_CUDA_KERNELS", "1") != "0"
"""Without them (HOYER_CUDA_KERNELS=0) CUDA tensors take plain tensor operations."""


OLDEST = (7, 5)
"""The compute capability from which on Triton compiles."""


@cache
def is_recent(device: torch.device) -> bool:
    """Whether Triton compiles for this device."""
    return torch.cuda.get_device_capability(device) >= OLDEST


def uses_kernels(x: Tensor) -> bool:
    """Whether the CUDA kernels work on this tensor."""
    wanted = KERNELS_WANTED and x.is_cuda and torch.version.cuda is not None
    return wanted and is_recent(x.device) and kernels() is not None


def check_kernel_options(options: Options) -> None:
    """Refuse what only the core can do."""
    check_options(options)
    search.check_solver(options)


def project(x: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Return the projections and the records, ``batch + (fields,)``, of all vectors."""
    if uses_core(x):
        value = new_like(x)
        records = into(x, value, task)
        shape = (*batch_of(x, task.inner), len(RECORD_FIELDS))
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
    if out.is_neg():
        # What such a view shows is not what its memory holds.
        room = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        records = into(x, room, task, check_first=check_first)
        with torch.no_grad():
            out.detach().copy_(room)
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
    records = np.empty((rows, len(RECORD_FIELDS)))
    plan = core_plan(plan_for(length, options, batch))
    bad = core.project(given, as_array(out), plan, inner, check_first, False, False, records)
    if bad >= 0:
        raise ValueError(describe(x, inner, bad))
    return records


def as_array(x: Tensor) -> Any:
    """Return the memory of a CPU tensor as the core takes it; a copy of it, if it shows negatives.

    That is a NumPy array, but for bfloat16, which NumPy does not have.
    """
    x = x.detach()
    if x.is_neg():
        x = x.resolve_neg()
    return x if x.dtype == torch.bfloat16 else x.numpy()


def describe(x: Tensor, inner: int, bad: int) -> str:
    """Say which vector has NaN or infinity first, and where."""
    array = as_array(x.detach().float() if x.dtype == torch.bfloat16 else x)
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
    raise ValueError(not_finite(float(rows[number, entry]), where, which))


# ---- the gradient product ----


class Found(NamedTuple):
    """Projections, and what their derivatives need to know."""

    value: Tensor
    scale: Tensor
    kept: Tensor | None
    """Which vectors kept their direction, where that may be."""
    norms: Tensor | None
    """l2 of the results, for the core, where no target tells it."""


def find(x: Tensor, task: Task) -> Found:
    """Project, and return what derivatives need."""
    if uses_kernels(x):
        check_kernel_options(task.options)
        found = kernels().project(x, task, torch.empty_like(x), remember=True)
        return Found(found.value, found.scale, found.kept, None)
    return from_records(*project(x, task), task)


def from_records(value: Tensor, records: Tensor, task: Task) -> Found:
    """Return of the records what derivatives need."""
    kept = records[..., KEPT].to(torch.int8) if task.options.only_increase else None
    follows_x = rule_of(task.options) != "fixed" and uses_core(value)
    norms = records[..., L2].clone() if follows_x else None
    return Found(value, records[..., SCALE].clone(), kept, norms)


def asked_of(n: int, options: Options, batch: tuple[int, ...]) -> tuple[Any, Any]:
    """Return l1/l2 and l2 as they were asked for, of all vectors or of each; l2 is 1 if it is not.

    Impossible targets have been refused, or are NaN.
    """
    options = with_arrays(options)
    target = resolve(n, options.sparseness, options.l1, options.l2, batch, check=False)
    return target.ratio, target.l2


def records_of(at: Found, task: Task) -> Any:
    """Return what the core needs to know about results whose records were not kept.

    Of vectors that kept their direction it needs the one norm that was set.
    """
    batch, n = batch_of(at.value, task.inner), length_of(at.value, task.inner)
    ratio, l2 = asked_of(n, task.options, batch)
    records = np.zeros((at.scale.numel(), len(RECORD_FIELDS)))
    records[:, SCALE] = at.scale.numpy().reshape(-1)
    records[:, L2] = l2 if at.norms is None else at.norms.numpy().reshape(-1)
    records[:, L1] = records[:, L2] * ratio
    if at.kept is not None:
        records[:, KEPT] = at.kept.numpy().reshape(-1)
    return records


def backward(
    at: Found, y: Tensor, x: Tensor | None, task: Task, *, by_target: bool
) -> tuple[Tensor, Changes]:
    """Return the gradients by x and by the target, in one pass over what `find` returned.

    Not by the target with the rule "nearest", under which its norm depends on x, from the core.
    """
    if uses_kernels(at.value):
        if not by_target:
            by_x = kernels().product(at, y, x, task.setting, reverse=True)
            return by_x, Changes(None, None, None)
        by_x, changes = kernels().backward(at, y, x, task.setting)
        return by_x, Changes(*changes.unbind(-1))
    records = records_of(at, task)
    along = np.empty((len(records), 3)) if by_target else None
    by_x = product(at.value, y, x, records, task.setting, reverse=True, along=along)
    if along is None:
        return by_x, Changes(None, None, None)
    by_l1, by_l2, by_both = along.T
    l1, l2, is_kept = records[:, L1], records[:, L2], records[:, KEPT] != 0
    norm = l1 * by_l1 + l2 * by_l2 if task.setting.both_norms else by_both
    batch = at.scale.shape
    ratio, free, kept = (
        torch.from_numpy(numbers).reshape(batch)
        for numbers in (
            np.where(is_kept, 0.0, l2 * by_l1),
            np.where(is_kept, 0.0, norm),
            np.where(is_kept, by_both, 0.0),
        )
    )
    return by_x, Changes(ratio, free, kept)


def forward(
    at: Found, y: Tensor | None, x: Tensor | None, change: Changes, setting: Setting
) -> tuple[Tensor, Tensor]:
    """Return the tangents of value and scale, by the kernels, in one pass."""
    y = torch.zeros_like(at.value) if y is None else y
    zero = torch.zeros_like(at.scale)
    changes = torch.stack([zero if moved is None else moved for moved in change], -1)
    found: tuple[Tensor, Tensor] = kernels().forward(at, y, x, setting, changes)
    return found


def can_multiply(value: Tensor) -> bool:
    """Whether `backward` serves this tensor."""
    return uses_core(value) or uses_kernels(value)


def product(
    value: Tensor,
    y: Tensor,
    x: Tensor | None,
    records: Any,
    setting: Setting,
    *,
    reverse: bool,
    along: Any = None,
) -> Tensor:
    """Return the Jacobian (or its transpose) times y; x is only needed where its norm is kept.

    `along` takes what y says about the target (see the core).
    """
    result = new_like(value)
    core.gradient_product(
        as_array(value),
        as_array(y),
        None if x is None else as_array(x),
        as_array(result),
        setting.inner,
        records,
        setting.rule,
        setting.nonnegative,
        reverse,
        None,
        along,
    )
    return result


def sparseness(x: Tensor, inner: int) -> Tensor:
    """Return sigma of the vectors in the last `inner` axes, by the core."""
    batch = batch_of(x, inner)
    result = np.empty(int(np.prod(batch)))
    core.sparseness(as_array(x), inner, False, result)
    return torch.from_numpy(result).reshape(batch).to(x.dtype)
