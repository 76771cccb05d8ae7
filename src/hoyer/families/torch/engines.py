"""Who computes on tensors: the core on the CPU, kernels on CUDA, plain tensor operations elsewhere.

Three engines; `engine_for` chooses. They take the vectors in the last `inner` axes, and the plan.
"""

import math
import multiprocessing
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import get_num_threads

# Documented, but the stubs of PyTorch do not list it.
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined]

from ...engines import arrays
from ...engines.arrays.products import NO_CHANGE, Changes
from ...engines.arrays.targets import check_fits
from ...options import NORM_RULES, Options
from ...plan import Plan
from ...projection import ACTIVE, L2, RECORD_FIELDS, SCALE
from ...warn import warn
from .. import describe_bad, refuse_bad
from .tensors import DTYPES, FLOATS, XP, Tensor, batch_of, rows_of

core: Any
"""The compiled core, or None without it."""
try:
    from ...engines.core import _core as core
    from ...engines.core import core_plan
except ImportError:
    core = None

LARGE = 2**25
"""Bytes from which on new memory is always fresh: less comes from what was freed before."""

ELEMENTS = {torch.float16: 0, torch.float32: 1, torch.float64: 2, torch.bfloat16: 3}
"""Types and their numbers in the core, where they are those of `ELEMENTS`."""


class Solved(NamedTuple):
    """Projections, and all that their derivatives need to know."""

    value: Tensor
    scale: Tensor
    """One number per vector, in the shape of the batch or in a row."""
    active: Tensor | None
    """Which norms bind, where that differs from vector to vector; shaped like the scales."""
    norms: Tensor | None
    """l2 of the results, for the core, where no target tells it."""
    x: Tensor | None
    """What was projected, where the results do not tell enough; all of it, whatever the mask."""
    plan: Plan
    inner: int
    """How many of the last axes form a vector."""


# A named tuple's own constructor is written in Python, which small calls would notice.
new_solved: Callable[[Any], Solved] = partial(tuple.__new__, Solved)


class Engine:
    """Plain tensor operations, for every tensor; the other engines do some things faster."""

    def value(self, x: Tensor, plan: Plan, inner: int) -> Tensor:
        """Return the projections alone."""
        return self.records(x, plan, inner)[0]

    def solved(self, x: Tensor, plan: Plan, inner: int) -> Solved:
        """Return the projections with what their derivatives need."""
        return from_records(x, *self.records(x, plan, inner), plan, inner)

    def records(self, x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
        """Return the projections, and the records of all vectors in a last axis."""
        check_without_core(plan, x.dtype)
        if x.is_cpu and plan.options.check_finite:
            refuse_bad(as_numpy(unmasked(x, plan)), inner)
        value, records = arrays.forward(rows_of(x.detach(), inner), plan, XP)
        return torch.empty_like(x).copy_(value.reshape(x.shape)), records

    def into(self, x: Tensor, out: Tensor, plan: Plan, inner: int) -> None:
        """Write the projections to `out`, which may be x; on the CPU all or nothing."""
        out.copy_(self.records(x, plan, inner)[0])

    def product(
        self,
        at: Solved,
        y: Tensor,
        *,
        reverse: bool = True,
        by_target: bool = False,
        together: bool = False,
    ) -> tuple[Tensor, Changes] | None:
        """Return the Jacobian (or its transpose) times y, and what y says about the target.

        That is a number for each vector; together, it may be one for all of them, as a float.
        None where nothing is faster than the formulas of `functions`, which have all derivatives.
        """
        return None

    def tangents(
        self, at: Solved, y: Tensor | None, change: Changes
    ) -> tuple[Tensor, Tensor] | None:
        """Return how value and scale move with x and the target; None likewise."""
        return None


def unmasked(y: Tensor, plan: Plan) -> Tensor:
    """Return the entries that form the vectors, and zeros in place of the others."""
    return y if plan.where is None else torch.where(plan.where, y, 0.0)


def some_differ(asked: Plan | Options) -> bool:
    """Whether the norms that bind differ from vector to vector."""
    return asked.only_increase or asked.at_most


def from_records(x: Tensor, value: Tensor, records: Tensor, plan: Plan, inner: int) -> Solved:
    """Return of the records what derivatives need."""
    active = records[..., ACTIVE].to(torch.int8) if some_differ(plan) else None
    norms = records[..., L2].clone() if plan.rule in NORM_RULES else None
    needed = x if plan.needs_x else None
    return Solved(value, records[..., SCALE].clone(), active, norms, needed, plan, inner)


def check_without_core(plan: Plan, dtype: torch.dtype) -> None:
    """Refuse what only the core can do, and norms that the type cannot hold."""
    arrays.check_solver(plan.options)
    if plan.options.check_finite:
        check_fits(plan, dtype, XP)
    plan.forms["without core", dtype] = True


# ---- the compiled core ----


def lend_threads() -> bool:
    """Let the core work on PyTorch's own threads, if they are those of GCC's OpenMP runtime.

    Threads of our own would meet PyTorch's, which keep looking for work for a while after each
    operation. Where there is no such runtime they are as many as PyTorch has.
    """
    # A forked child must not call threads of its parent. The core sees forks itself once it is
    # loaded; before that only multiprocessing tells, whose other children have this argument.
    child = multiprocessing.parent_process() is not None
    child = child and "--multiprocessing-fork" not in sys.orig_argv
    openmp = "parallel backend: OpenMP" in torch.__config__.parallel_info()
    return openmp and not child and bool(core.find_openmp("libtorch_cpu.so"))


if core is not None:
    lend_threads()


class _Core(Engine):
    """CPU tensors: the core reads and writes their memory, with as many threads as PyTorch has."""

    def value(self, x: Tensor, plan: Plan, inner: int) -> Tensor:
        if not _is_by_address(x) or plan.where is not None:
            return self.records(x, plan, inner)[0]
        value = _new_like(x)
        self._by_address(x, value, plan, inner)
        return value

    def solved(self, x: Tensor, plan: Plan, inner: int) -> Solved:
        if not _is_by_address(x) or plan.where is not None:
            return from_records(x, *self.records(x, plan, inner), plan, inner)
        # The result first, so that it can have the memory of an earlier one, which the caches may
        # still hold.
        value = _new_like(x)
        rows, norms, active = x.numel() // plan.n, None, None
        # The user's default device may be another one.
        scale = torch.empty(rows, dtype=torch.float64, device="cpu")
        if plan.rule in NORM_RULES:
            norms = torch.empty(rows, dtype=torch.float64, device="cpu")
        if plan.only_increase or plan.at_most:
            active = torch.empty(rows, dtype=torch.int8, device="cpu")
        self._by_address(x, value, plan, inner, scale, norms, active)
        needed = x if plan.needs_x else None
        return new_solved((value, scale, active, norms, needed, plan, inner))

    @staticmethod
    def _by_address(  # noqa: PLR0917 - in the order of the core
        x: Tensor,
        out: Tensor,
        plan: Plan,
        inner: int,
        scale: Tensor | None = None,
        norms: Tensor | None = None,
        active: Tensor | None = None,
    ) -> None:
        """Project into `out`; what is found about the projections goes to the other tensors.

        To see a tensor as an array takes longer than the core does.
        """
        bad = core.project_memory(
            x.data_ptr(),
            out.data_ptr(),
            x.numel() // plan.n,
            plan.n,
            ELEMENTS[x.dtype],
            plan.forms.get("core") or core_plan(plan),
            0 if scale is None else scale.data_ptr(),
            0 if norms is None else norms.data_ptr(),
            0 if active is None else active.data_ptr(),
            get_num_threads(),
        )
        if bad >= 0:
            raise ValueError(describe_bad(as_numpy(x), inner, bad))

    def records(self, x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
        value = _new_like(x)
        records = self._project(x, value, plan, inner, check_first=False)
        shape = (*batch_of(x, inner), len(RECORD_FIELDS))
        return value, torch.from_numpy(records).reshape(shape)

    def into(self, x: Tensor, out: Tensor, plan: Plan, inner: int) -> None:
        self._project(x, out, plan, inner, check_first=True)
        torch.autograd.graph.increment_version(out)

    def _project(self, x: Tensor, out: Tensor, plan: Plan, inner: int, *, check_first: bool) -> Any:
        """Project wherever the vectors lie; return the records as a NumPy array."""
        if out.is_neg():
            # What such a view shows is not what its memory holds.
            written = torch.empty(out.shape, dtype=out.dtype, device=out.device)
            records = self._project(x, written, plan, inner, check_first=check_first)
            with torch.no_grad():
                out.detach().copy_(written)
            return records
        records = np.empty((x.numel() // plan.n, len(RECORD_FIELDS)))
        mask = None, None
        if plan.where is not None:
            mask = as_array(plan.where), as_array(plan.lengths.reshape(-1))
        bad = core.project(
            as_array(x),
            as_array(out),
            core_plan(plan),
            inner,
            check_first,
            False,
            False,
            records,
            *mask,
            get_num_threads(),
        )
        if bad >= 0:
            raise ValueError(describe_bad(as_numpy(unmasked(x, plan)), inner, bad))
        return records

    def product(
        self,
        at: Solved,
        y: Tensor,
        *,
        reverse: bool = True,
        by_target: bool = False,
        together: bool = False,
    ) -> tuple[Tensor, Changes] | None:
        value, scale, active, norms, x, plan, inner = at
        # What was saved may have been through hooks of the user's.
        scale = _in_order(scale, torch.float64)
        norms = None if norms is None else _in_order(norms, torch.float64)
        active = None if active is None else _in_order(active, torch.int8)
        if by_target and plan.rule == "nearest":
            # The norm of the nearest vector depends on x, about which the core says nothing here.
            return None
        if plan.where is not None:
            x = None if x is None else unmasked(x, plan)
            if active is not None or plan.rule == "keep":
                # Others look at the support alone, all of which a mask leaves.
                y = unmasked(y, plan)
        out, changes = _new_like(value), None
        if by_target:
            size = scale.numel(), len(Changes._fields)
            changes = torch.empty(size, dtype=torch.float64, device="cpu")
        known = (
            plan.forms.get("core") or core_plan(plan),
            scale.data_ptr(),
            _address_of(norms),
            _address_of(active),
            _address_of(changes),
        )
        by_address = _is_by_address(value) and _is_by_address(y)
        if reverse and by_address and (x is None or _is_by_address(x)):
            totals = core.multiply_memory(
                value.data_ptr(),
                y.data_ptr(),
                _address_of(x),
                out.data_ptr(),
                value.numel() // plan.n,
                plan.n,
                ELEMENTS[value.dtype],
                *known,
                get_num_threads(),
            )
        else:
            totals = core.multiply(
                as_array(value),
                as_array(y),
                None if x is None else as_array(x),
                as_array(out),
                inner,
                *known,
                reverse,
                get_num_threads(),
            )
        if changes is None:
            return out, NO_CHANGE
        columns = totals
        # (Without any vectors nothing is told.)
        if totals is None or not together:
            columns = changes.reshape(*batch_of(value, inner), len(Changes._fields)).unbind(-1)
        if some_differ(plan) or plan.rule == "free":
            return out, Changes(*columns)
        return out, Changes(columns[0], columns[1], None)


def _is_by_address(x: Tensor) -> bool:
    """Whether the core may read a tensor from its address on, entry by entry."""
    return x.is_contiguous() and not x.is_neg() and x.data_ptr() != 0


def _in_order(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return numbers of this type that lie one after the other: mostly they do."""
    if numbers.dtype == dtype and numbers.is_contiguous():
        return numbers
    return numbers.to(dtype).contiguous()


def _address_of(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _new_like(x: Tensor) -> Tensor:
    """Return memory for a result that the core will write; much of it in large pages."""
    new = torch.empty_like(x)
    if new.nbytes >= LARGE:
        core.use_large_pages(as_array(new))
    return new


def as_array(x: Tensor) -> Any:
    """Return the memory of a CPU tensor, or a copy if that shows something else, for the core.

    It is good for one call. (`Tensor.numpy` costs more, and would forbid for good to resize the
    memory, which FSDP2 does to parameters.)
    """
    return to_dlpack(_as_stored(x))


def _as_stored(x: Tensor) -> Tensor:
    """Return a CPU tensor that has its entries in memory, mostly x itself."""
    x = x.detach()
    if x.is_neg():
        return x.resolve_neg()
    if x._is_zerotensor():
        return torch.zeros(x.shape, dtype=x.dtype, device="cpu")
    if x.data_ptr() == 0 and x.numel():
        raise ValueError(
            f"a tensor of shape {tuple(x.shape)} has no memory now: its storage was freed, as "
            "FSDP2 frees gathered weights. Pass the DTensor, layer.weight, or call unshard() first"
        )
    return x


class _Lent:
    """The memory of a CPU tensor for NumPy: the tensor's own `__dlpack__` takes much longer."""

    __slots__ = ("_tensor",)

    def __init__(self, x: Tensor) -> None:
        self._tensor = x

    def __dlpack__(self, **_: Any) -> Any:
        return to_dlpack(self._tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        # The host, in DLPack's numbers.
        return 1, 0


def to_look_at(x: Tensor) -> Any:
    """Return a CPU tensor as the core reads it, as often as it likes: it cannot be written to.

    That is a NumPy array, but for bfloat16, which NumPy does not have.
    """
    x = _as_stored(x)
    return x if x.dtype == torch.bfloat16 else np.from_dlpack(_Lent(x))


def as_numpy(x: Tensor) -> Any:
    """Return a tensor of any device as a NumPy array to read from, bfloat16 as float32."""
    return to_look_at(_on_host(x))


def result_as_numpy(x: Tensor) -> Any:
    """Return a result of ours likewise, as an array that users may write to."""
    return _as_stored(_on_host(x)).numpy()


def _on_host(x: Tensor) -> Tensor:
    """Return a tensor of any device on the host, of a type that NumPy has."""
    x = x.detach().cpu()
    if x.is_floating_point() and x.dtype not in DTYPES:
        raise TypeError(f"a tensor has dtype {x.dtype}: give real numbers as {FLOATS} or integers")
    return x.float() if x.dtype == torch.bfloat16 else x


def sparseness(x: Tensor, inner: int) -> Tensor:
    """Return sigma of the vectors in the last `inner` axes, by the core."""
    batch = batch_of(x, inner)
    result = np.empty(math.prod(batch))
    core.sparseness(as_array(x), inner, False, result, get_num_threads())
    return torch.from_numpy(result).reshape(batch).to(x.dtype)


# ---- the CUDA kernels ----


class _Kernels(Engine):
    """CUDA tensors."""

    def value(self, x: Tensor, plan: Plan, inner: int) -> Tensor:
        out = torch.empty_like(x)
        self._project(x, out, plan, inner, remember=False)
        return out

    def solved(self, x: Tensor, plan: Plan, inner: int) -> Solved:
        out = torch.empty_like(x)
        scale, active = self._project(x, out, plan, inner, remember=True)
        needed = x if plan.needs_x else None
        return new_solved((out, scale, active, None, needed, plan, inner))

    def records(self, x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
        check_without_core(plan, x.dtype)
        found: tuple[Tensor, Tensor] = kernels().solve(x, plan, inner)
        return found

    def into(self, x: Tensor, out: Tensor, plan: Plan, inner: int) -> None:
        self._project(x, out, plan, inner, remember=False)
        torch.autograd.graph.increment_version(out)

    @staticmethod
    def _project(x: Tensor, out: Tensor, plan: Plan, inner: int, *, remember: bool) -> Any:
        if ("without core", x.dtype) not in plan.forms:
            check_without_core(plan, x.dtype)
        return kernels().project(x, plan, inner, out, remember=remember)

    def product(
        self,
        at: Solved,
        y: Tensor,
        *,
        reverse: bool = True,
        by_target: bool = False,
        together: bool = False,
    ) -> tuple[Tensor, Changes] | None:
        if at.plan.nearly_constant:
            # The kernels look at results alone, and do not see how nearly equal entries differ.
            return None
        if not by_target:
            return kernels().product(at, y, reverse=reverse), NO_CHANGE
        by_x, changes = kernels().backward(at, y)
        return by_x, Changes(*changes.unbind(-1))

    def tangents(
        self, at: Solved, y: Tensor | None, change: Changes
    ) -> tuple[Tensor, Tensor] | None:
        if at.plan.nearly_constant:
            return None
        y = torch.zeros_like(at.value) if y is None else y
        zero = torch.zeros_like(at.scale)
        changes = torch.stack([zero if moved is None else moved for moved in change], -1)
        found: tuple[Tensor, Tensor] = kernels().forward(at, y, changes)
        return found


CORE, KERNELS, ARRAYS = _Core(), _Kernels(), Engine()

# ---- which one ----


@cache
def kernels() -> Any:
    """Return the module with the CUDA kernels; None, and say so once, where they cannot run."""
    try:
        from ...engines import triton  # noqa: PLC0415 - loads Triton
    except ImportError as error:
        lack = f"Triton, which cannot be loaded ({error})"
    else:
        if can_compile():
            return triton
        lack = "a C compiler for Triton (gcc or clang, or what the variable CC names)"
    warn(
        f"hoyer's CUDA kernels need {lack}: CUDA tensors are projected by sorting, exactly but "
        "many times slower",
        RuntimeWarning,
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
def can_run_on(device: int) -> bool:
    """Whether there are kernels, and Triton compiles for this device."""
    if torch.version.cuda is None:
        return False
    try:
        capability = torch.cuda.get_device_capability(device)
    except (RuntimeError, AssertionError):
        # A tensor that says what it would be, on a device that is not there.
        return False
    return capability >= OLDEST and kernels() is not None


def uses_kernels(x: Tensor) -> bool:
    """Whether the CUDA kernels work on this tensor."""
    return KERNELS_WANTED and x.is_cuda and can_run_on(x.get_device())


def uses_core(x: Tensor) -> bool:
    """Whether the compiled core works on this tensor."""
    return core is not None and x.is_cpu


def engine_for(x: Tensor) -> Engine:
    """Return who works on this tensor."""
    if core is not None and x.is_cpu:
        return CORE
    return KERNELS if uses_kernels(x) else ARRAYS
