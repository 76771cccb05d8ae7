"""The engine for CUDA tensors: Triton kernels that read a vector once and write it once.

Nothing is asked of the device in between: no synchronization, so that calls work in CUDA graphs and
on any stream. Vectors that are not ordinary are marked by the fast kernels and projected by
`careful` afterwards, which looks at the marks and mostly finds nothing to do.
"""

import math
import os
import struct
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
import triton.language as tl

from ...plan import Plan
from ...projection import RECORD_FIELDS
from ..arrays.namespace import namespace
from ..arrays.search import noise_of
from . import careful, gradient, gradient_long, long, rows
from .device import Case
from .start import normal_start
from .table import (
    BACKWARD,
    CACHED,
    FORWARD,
    HUGE,
    LONG,
    SAMPLE,
    SHARED,
    ProductCut,
    careful_cut,
    cut_for,
)
from .together import SLOTS
from .words import Shape

Tensor: TypeAlias = torch.Tensor

RULES = {"fixed": 0, "keep": 1, "nearest": 2}

_MOST_GROUPS = 1024
"""Groups of programs that meet, at most: more than any device has multiprocessors."""
_ALONE = 1 << 16
"""Entries up to which one program works on a vector."""
_MOST_PARTS = 1024
"""Programs that share a vector for products, at most."""


class Found(NamedTuple):
    """Projections, and what derivatives need to know; None where it was not asked for."""

    value: Tensor
    scale: Tensor | None
    kept: Tensor | None


class Call(NamedTuple):
    """What the kernels are told about a plan."""

    n: int
    goals: Tensor | None
    """The targets of all vectors, if each has its own."""
    numbers: tuple[int, int, int, int]
    """The bits of the target otherwise."""
    start: float
    case: Case


def call_for(x: Tensor, plan: Plan, batch: torch.Size, *, remember: bool) -> Call:
    """Return a plan in the kernels' terms, made once for plain numbers."""
    form = ("triton", x.dtype, remember)
    known: Call | None = plan.forms.get(form)
    if known is not None:
        return known
    target, n, signed = plan.target, plan.n, not plan.nonnegative
    goals, numbers, start = None, (0, 0, 0, 0), 1.0
    if isinstance(target.ratio, np.ndarray) and target.ratio.size == 1:
        ratio, room, room_low, l2 = (float(part[0]) for part in target[:4])
        numbers = (_bits(ratio), _bits(room), _bits(room_low), _bits(l2))
        start = normal_start((n - room) / n, magnitudes=signed)
    else:
        columns = [torch.tensor(c) if isinstance(c, np.ndarray) else c for c in target[:4]]
        count = batch.numel()
        goals = torch.stack(
            [c.reshape(-1) if c.numel() == count else c.expand(batch).reshape(-1) for c in columns],
            -1,
        )
    case = Case(
        *noise_of(x.dtype, torch.float64, namespace(torch)),
        signed=signed,
        rule=RULES[plan.rule],
        # Only vectors that keep their direction are concerned: no need to compile for others.
        l1_given=target.l1_given and plan.only_increase,
        only_increase=plan.only_increase,
        own_goals=goals is not None,
        with_scale=remember,
    )
    call = Call(n, goals, numbers, start, case)
    if goals is None:
        plan.forms[form] = call
    return call


def _bits(number: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits


def as_rows(x: Tensor, n: int) -> Tensor:
    """Return the vectors as rows of neighbouring entries; a copy where they lie apart."""
    count = x.numel() // n
    # What a view of negatives shows is not what its memory holds.
    x = x.resolve_neg()
    try:
        flat = x.view(count, n)
    except RuntimeError:
        return x.contiguous().view(count, n)
    return flat if n == 1 or flat.stride(1) == 1 else flat.contiguous()


def project(x: Tensor, plan: Plan, inner: int, out: Tensor, *, remember: bool) -> Found:
    """Project into `out` (which may be x), and remember what derivatives need."""
    batch = x.shape[: x.dim() - inner]
    call = call_for(x, plan, batch, remember=remember)
    given, n = as_rows(x.detach(), call.n), call.n
    count = given.shape[0]
    room = _room_for(out, given, n)
    scale = given.new_empty(count, dtype=torch.float64) if remember else None
    kept = None
    if remember and call.case.only_increase:
        kept = given.new_zeros(count, dtype=torch.int8)
    if count:
        counters = None
        if cut_for(FORWARD, given.element_size(), n) is not None:
            left = _fast(given, room, call, scale)
        else:
            counters = _counters(given)
            left = _long(given, room, call, scale, counters[0])
        _careful(given, room, call, left, scale, kept, None, counters)
    _bring_back(room, out)
    return Found(
        out,
        None if scale is None else scale.view(batch),
        None if kept is None else kept.view(batch),
    )


def solve(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections, and a record of each; every vector is looked at with care."""
    batch = x.shape[: x.dim() - inner]
    call = call_for(x, plan, batch, remember=False)
    out = torch.empty_like(x)
    given = as_rows(x.detach(), call.n)
    room = _room_for(out, given, call.n)
    count = given.shape[0]
    records = given.new_empty((count, len(RECORD_FIELDS)), dtype=torch.float64)
    if count:
        _careful(given, room, call, None, None, None, records, None)
    _bring_back(room, out)
    return out, records.view(*batch, len(RECORD_FIELDS))


def _room_for(out: Tensor, given: Tensor, n: int) -> Tensor:
    """Return rows to write to: those of the result, unless its entries lie apart."""
    try:
        flat = out.detach().view(given.shape)
    except RuntimeError:
        return torch.empty_like(given, memory_format=torch.contiguous_format)
    if (n == 1 or flat.stride(1) == 1) and not out.is_neg():
        return flat
    return torch.empty_like(given, memory_format=torch.contiguous_format)


def _bring_back(room: Tensor, out: Tensor) -> None:
    if room.data_ptr() != out.data_ptr():
        with torch.no_grad():
            out.detach().copy_(room.view(out.shape))


def _fast(given: Tensor, out: Tensor, call: Call, scale: Tensor | None) -> Tensor | None:
    """Project ordinary vectors; return the marks of the others, None if those are all."""
    count, n = given.shape
    cut = cut_for(FORWARD, given.element_size(), n)
    if cut is None or n == 1:
        return None
    left = given.new_empty(count, dtype=torch.int8)
    with torch.cuda.device_of(given):
        rows.project_rows[(-(-count // cut.rows),)](
            given,
            out,
            left,
            scale if scale is not None else left,
            call.goals if call.goals is not None else left,
            count,
            n,
            given.stride(0),
            out.stride(0),
            *call.numbers,
            call.start,
            call.case,
            rows.Tile(cut.pieces, cut.rows, cut.width, cut.pieces * cut.width == n),
            num_warps=cut.warps,
            maxnreg=cut.registers,
        )
    return left


def _long(given: Tensor, out: Tensor, call: Call, scale: Tensor | None, counters: Tensor) -> Tensor:
    """Project vectors beyond the registers of one program; return the marks of those left."""
    count, n = given.shape
    cut = cut_for(LONG, given.element_size(), n)
    assert cut is not None
    threads, entries = 32 * cut.warps, 16 // given.element_size()
    piece = threads * entries
    width = cut.pieces * piece
    # So few vectors at a time that what is read stays in the cache; and all programs busy.
    resident = max(1, cut.programs * multiprocessors(given.device))
    wanted = max(resident * n * given.element_size() // CACHED, resident // count, 1)
    part = -(-n // (min(wanted, resident) * width)) * width
    together = -(-n // part)
    groups = max(1, min(count, len(counters), resident // together))
    left = given.new_empty(count, dtype=torch.int8)
    slots = _slots(given, groups, together)
    # Blocks of loads: what fits in registers, less where little will do.
    sample = max(1, min(cut.pieces, max(n // 32, SAMPLE) // (together * piece)))
    sample = 1 << (sample.bit_length() - 1)
    # To write again what was written takes x as it was.
    check = n >= HUGE and given.dtype != torch.float64 and out.data_ptr() != given.data_ptr()
    with torch.cuda.device_of(given):
        long.project_long[(groups * together,)](
            given,
            out,
            left,
            scale if scale is not None else left,
            call.goals if call.goals is not None else left,
            counters,
            slots,
            count,
            groups,
            n,
            part,
            given.stride(0),
            out.stride(0),
            *call.numbers,
            call.start,
            long.Team(
                call.case,
                check,
                cut.pieces,
                threads,
                entries,
                sample,
                together,
                slots.shape[2],
            ),
            num_warps=cut.warps,
            maxnreg=min(255, 65536 // (32 * cut.warps * cut.programs) // 8 * 8),
            launch_cooperative_grid=together > 1,
        )
    return left


def _counters(like: Tensor) -> Tensor:
    """Return counters for programs that meet, one per group, for either of two kernels."""
    # 16 bytes at a time: a kernel is compiled again for other alignments.
    groups = -(-min(like.shape[0], _MOST_GROUPS) // 4) * 4
    return like.new_zeros((2, groups), dtype=torch.int32)


def _slots(like: Tensor, groups: int, together: int) -> Tensor:
    """Return memory for the numbers of programs that work together: see `together`."""
    width = 1 << (together - 1).bit_length()
    return like.new_empty((groups, 2, width, SLOTS.value), dtype=torch.float64)


def _careful(
    given: Tensor,
    out: Tensor,
    call: Call,
    left: Tensor | None,
    scale: Tensor | None,
    kept: Tensor | None,
    records: Tensor | None,
    counters: Tensor | None,
) -> None:
    """Project the vectors that were left."""
    count, n = given.shape
    cut = careful_cut(n)
    programs = max(1, cut.programs * multiprocessors(given.device))
    together = 1
    if n > _ALONE:
        together = min(programs, -(-n // (4 * cut.block)))
    groups = max(1, min(count, programs // together))
    counter, slots, width = given, given, 1
    if together > 1:
        counter = (_counters(given) if counters is None else counters)[1]
        groups = min(groups, len(counter))
        slots = _slots(given, groups, together)
        width = slots.shape[2]
    with torch.cuda.device_of(given):
        careful.project_carefully[(groups * together,)](
            given,
            out,
            left if left is not None else given,
            scale if scale is not None else given,
            kept if kept is not None else given,
            records if records is not None else given,
            call.goals if call.goals is not None else given,
            counter,
            slots,
            count,
            -(-count // groups),
            n,
            given.stride(0),
            out.stride(0),
            *call.numbers,
            careful.Team(
                call.case,
                left is None,
                records is not None,
                cut.block,
                together,
                width,
            ),
            num_warps=cut.warps,
            maxnreg=65536 // (32 * cut.warps * cut.programs),
            launch_cooperative_grid=together > 1,
        )


# ---- derivatives ----


class Solved(Protocol):
    """What a family keeps of projections for their derivatives."""

    value: Tensor
    scale: Tensor
    kept: Tensor | None
    x: Tensor | None
    """What was projected; only needed where its norm is kept."""
    plan: Plan


def product(at: Solved, y: Tensor, *, reverse: bool) -> Tensor:
    """Return the Jacobian (or its transpose) times y."""
    return _multiply(at, y, None, None, reverse=reverse)


def backward(at: Solved, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the transposed Jacobian times y, and what y says about the target.

    The latter as `hoyer.engines.arrays.products.Changes`, its fields along the last axis.
    """
    changes = at.scale.new_empty((*at.scale.shape, 3), dtype=torch.float64)
    return _multiply(at, y, changes, None, reverse=True), changes


def forward(at: Solved, y: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
    """Return how the result and beta move along y, and with a target that moves by `changes`."""
    moves = at.scale.new_empty(at.scale.shape, dtype=torch.float64)
    value = _multiply(at, y, changes.contiguous(), moves, reverse=False)
    return value, moves


class _Factor(NamedTuple):
    """What the kernels for products take: tensors of vectors, and of numbers for each."""

    vectors: tuple[Tensor, Tensor, Tensor, Tensor]
    """p, y, x (or p again) and the result."""
    scale: Tensor
    kept: Tensor | None
    changes: Tensor | None
    moves: Tensor | None
    plan: Plan
    reverse: bool

    @property
    def numbers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The numbers of each vector; those not wanted stand in for each other."""
        given = (self.kept, self.changes, self.moves)
        first, second, third = (self.scale if t is None else t for t in given)
        return self.scale, first, second, third

    def words(self, cut: ProductCut) -> tuple[int, int]:
        """Entries of a word, and words of a load (see `gradient`).

        Loads have 16 bytes, or less where vectors do not begin at multiples of that.
        """
        p = self.vectors[0]
        entries = 1
        if not any(t.data_ptr() % 16 for t in self.vectors):
            strides = (t.stride(0) for t in self.vectors)
            entries = math.gcd(16 // p.element_size(), p.shape[1], *strides)
        word = 2 if cut.pairs and p.element_size() == 2 and entries > 1 else 1
        return word, entries // word

    def in_loads(self, entries: int) -> tuple[int, ...]:
        """Lengths and strides of the vectors, in loads."""
        return (
            self.vectors[0].shape[1] // entries,
            *(t.stride(0) // entries for t in self.vectors),
        )

    @property
    def case(self) -> gradient.Case:
        """What is constant in the kernels."""
        return gradient.Case(
            rule=RULES[self.plan.rule],
            outside=self.kept is not None and not self.plan.nonnegative,
            only_increase=self.kept is not None,
            both_norms=self.plan.both_norms,
            reverse=self.reverse,
            numbers=self.changes is not None,
        )

    @property
    def whole(self) -> bool:
        """Whether y matters outside of the support."""
        return self.case.outside or (self.case.keeps and not self.reverse)


def _multiply(
    at: Solved, y: Tensor, changes: Tensor | None, moves: Tensor | None, *, reverse: bool
) -> Tensor:
    value, x, n = at.value.detach(), at.x, at.plan.n
    result = torch.empty_like(value)
    p, g = as_rows(value, n), as_rows(y.detach(), n)
    origin = p if x is None else as_rows(x.detach(), n)
    room = _room_for(result, p, n)
    if p.shape[0]:
        factor = _Factor(
            (p, g, origin, room),
            at.scale.detach().contiguous(),
            None if at.kept is None else at.kept.contiguous(),
            changes,
            moves,
            at.plan,
            reverse,
        )
        cut = cut_for(BACKWARD, p.element_size(), n)
        with torch.cuda.device_of(p):
            if cut is None or (n > cut.held and p.shape[0] < multiprocessors(p.device)):
                _multiply_long(factor, SHARED[p.element_size()])
            else:
                _multiply_rows(factor, cut)
    _bring_back(room, result)
    return result


def _multiply_rows(factor: _Factor, cut: ProductCut) -> None:
    count, n = factor.vectors[0].shape
    word, load = factor.words(cut)
    shape = Shape(
        kind=getattr(tl, str(factor.vectors[0].dtype).removeprefix("torch.")),
        pairs=word == 2,
        skip=cut.skip and not factor.whole,
        number=cut.group or cut.pieces,
        threads=cut.width // (word * load),
        words=load,
        rows=cut.rows,
        held=cut.pieces,
        hold_all=cut.group == 0,
        even=cut.held == n,
        stream=cut.held < n,
    )
    registers = {"maxnreg": 65536 // (32 * cut.warps * cut.programs)} if cut.programs else {}
    gradient.multiply_rows[(-(-count // cut.rows),)](
        *factor.vectors,
        *factor.numbers,
        count,
        *factor.in_loads(word * load),
        factor.case,
        shape,
        num_warps=cut.warps,
        **registers,
    )


def _multiply_long(factor: _Factor, cut: ProductCut) -> None:
    p = factor.vectors[0]
    count, n = p.shape
    word, load = factor.words(cut)
    width, *strides = factor.in_loads(word * load)
    shape = Shape(
        kind=getattr(tl, str(factor.vectors[0].dtype).removeprefix("torch.")),
        pairs=word == 2,
        skip=cut.skip and not factor.whole,
        number=cut.pieces,
        threads=cut.width // (word * load),
        words=load,
    )
    groups = -(-n // cut.held)
    part = max(4, -(-groups // _MOST_PARTS)) * cut.pieces
    parts = -(-n // (part * cut.width))
    sums = p.new_empty((count, parts, gradient_long.SUMS.value), dtype=torch.float64)
    plans = p.new_empty((count, gradient_long.PLAN.value), dtype=torch.float64)
    factors = p.new_empty((count, gradient.FACTORS.value), dtype=torch.float64)
    constants = (factor.case, shape)
    size = (width, part, parts, *strides[:3])

    def combine(*, second: bool) -> None:
        gradient_long.combine_parts[(count,)](
            p,
            sums,
            plans,
            *factor.numbers,
            factors,
            parts,
            factor.case,
            second,
            1 << (parts - 1).bit_length(),
            num_warps=4,
        )

    gradient_long.sum_parts[(parts * count,)](
        *factor.vectors[:3], sums, factor.numbers[1], *size, *constants, num_warps=cut.warps
    )
    combine(second=False)
    gradient_long.sum_parts_again[(parts * count,)](
        *factor.vectors[:3], sums, plans, *size, *constants, num_warps=cut.warps
    )
    combine(second=True)
    gradient_long.write_parts[(groups * count,)](
        *factor.vectors, plans, factors, width, groups, *strides, *constants, num_warps=cut.warps
    )


@lru_cache(maxsize=64)
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; none where programs run one by one."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


__all__ = ["Found", "backward", "forward", "product", "project", "solve"]
