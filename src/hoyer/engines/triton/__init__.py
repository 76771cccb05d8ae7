"""The engine for CUDA tensors: Triton kernels that read a vector once and write it once.

Nothing is asked of the device in between: no synchronization, so that calls work in CUDA graphs and
on any stream. Vectors that are not ordinary are marked by the fast kernels and projected by
`careful` afterwards, which looks at the marks and mostly finds nothing to do. Masked vectors too
long for registers are all projected by `careful`: the samples of `long` know no masks. Upper bounds
of both norms are met by two projections, onto the L1 ball and onto vectors that are sparse enough,
and a choice: `bounds`.
"""

import math
import os
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
import triton
import triton.language as tl

from ...options import RULES, Options
from ...plan import Plan
from ...projection import ACTIVE, EVALUATIONS, RECORD_FIELDS, SCALE
from ...target import Target, square_root
from ..arrays.closed_form import noise_of
from ..arrays.namespace import namespace
from . import bounds, careful, gradient, gradient_long, long, masks, rows, targets
from .device import Case
from .launch import Programs, Tape, alignment
from .meeting import SLOTS, Team
from .start import normal_start
from .table import (
    BACKWARD,
    CACHED,
    FORWARD,
    HUGE,
    LONG,
    MASKED,
    SAMPLE,
    SHARED,
    ProductCut,
    careful_cut,
    cut_for,
)
from .words import Shape

if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 6):
    raise ImportError(f"Triton 3.6 or newer is needed, and this is {triton.__version__}")

Tensor: TypeAlias = torch.Tensor

_MOST_GROUPS = 1024
"""Groups of programs that meet, at most: more than any device has multiprocessors."""
_ALONE = 1 << 16
"""Entries up to which one program works on a vector."""
_MOST_PARTS = 1024
"""Programs that share a vector for products, at most."""


Kept: TypeAlias = tuple[Tensor | None, Tensor | None]
"""The scales of projections, and codes of `hoyer.projection.Active`; None where it was not asked
for, and where all vectors must have the same code."""


class Call(NamedTuple):
    """What the kernels are told about a plan."""

    n: int
    goals: Tensor | None
    """The targets of all vectors, if each has its own."""
    numbers: tuple[float, ...]
    """The target otherwise, as in `device.goal_of`."""
    start: float
    case: Case
    masks: tuple[Tensor, int] | None
    """Which entries count, a byte for each, and how far the masks of two vectors lie apart."""
    programs: Programs
    """What was launched for such calls."""
    table: Tensor | None = None
    """Where the vectors begin, if they are scattered: see `Case`."""


def call_for(x: Tensor, plan: Plan, batch: torch.Size, *, remember: bool) -> Call:
    """Return a plan in the kernels' terms, made once for plain numbers."""
    form = ("triton", x.dtype, remember)
    known: Call | None = plan.forms.get(form)
    if known is not None:
        return known
    target, n, signed, mask = plan.target, plan.n, not plan.nonnegative, None
    goals, start = plan.forms.get(_GOALS), 1.0
    numbers: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0)
    if plan.where is not None:
        where = as_rows(plan.where, n)
        mask = where.view(torch.uint8), where.stride(0)
        if goals is None:
            goals = _goals((*target, plan.lengths), x, batch)
    elif goals is not None:
        pass
    elif isinstance(target.ratio, np.ndarray) and target.ratio.size == 1:
        numbers = tuple(float(part[0]) for part in target[:4])
        if plan.rule != "free":
            start = normal_start((n - numbers[1]) / n, magnitudes=signed)
    else:
        goals = _goals(target, x, batch)
    case, programs = _case_for(
        n,
        x.dtype,
        plan.rule,
        signed=signed,
        # Only vectors that keep their direction are concerned: no need to compile for others.
        l1_given=plan.l1_given and plan.only_increase,
        only_increase=plan.only_increase,
        own_goals=goals is not None,
        with_scale=remember,
        at_most=plan.at_most,
        masked=mask is not None,
    )
    if goals is not None:
        return Call(n, goals, numbers, start, case, mask, programs)
    call = plan.forms[form] = Call(n, goals, numbers, start, case, mask, Programs())
    return call


@lru_cache(maxsize=256)
def _case_for(n: int, dtype: torch.dtype, rule: str, **switches: bool) -> tuple[Case, Programs]:
    """Return what such calls share, and what was launched for those that bring their targets."""
    noise = noise_of(dtype, torch.float64, namespace(torch))
    return Case(*noise, rule=RULES[rule], **switches), Programs()


_GOALS = "triton, goals"
"""The form of a plan with the targets of all vectors, where `measure` or `resolve` has them."""


_MEASURING = Programs()


def measure(plan: Plan, table: Tensor, batch: torch.Size) -> Plan:
    """Return a plan with the lengths that its mask leaves, and the targets that go with them.

    `table` has the four numbers of a target for each length up to n. One launch instead of a sum
    over booleans, which is slow, a lookup, and several operations that bring it into order.
    """
    assert plan.where is not None
    mask = as_rows(plan.where, plan.n)
    count = mask.shape[0]
    lengths = mask.new_empty(count, dtype=torch.int64)
    goals = table.new_empty((count, masks.COLUMNS.value))
    width = min(masks.BLOCK.value, triton.next_power_of_2(plan.n))
    if count:
        given = mask.view(torch.uint8), table, lengths, goals
        sizes = count, plan.n, mask.stride(0)
        addresses = [t.data_ptr() for t in given]
        device = mask.get_device()
        key = *sizes, device, alignment(addresses)
        if not _MEASURING.run(key, addresses, device):
            tape = Tape(*given)
            with torch.cuda.device_of(mask):
                programs = -(-count * width // masks.BLOCK.value)
                tape.launch(masks.measure_masks, programs, *given, *sizes, width)
            _MEASURING.keep(key, tape)
    target = Target(*goals[:, :4].view(*batch, 4).unbind(-1))
    return replace(plan, target=target, lengths=lengths.view(batch), forms={_GOALS: goals})


_RESOLVING = Programs()


def resolve(
    n: int, options: Options, plain: Options, batch: torch.Size, like: Tensor
) -> Plan | None:
    """Return the plan for targets of which some are tensors; None for pairs of norms.

    It keeps `plain`, options without tensors. One launch instead of some hundred operations on a
    few numbers each.
    """
    sparseness, l1, l2 = options[:3]
    if sparseness is None and l2 is not None:
        return None
    count = batch.numel()
    norm = l1 if l1 is not None else 1.0 if l2 is None or isinstance(l2, str) else l2
    goals = like.new_empty((count, targets.COLUMNS.value), dtype=torch.float64)
    tensors, numbers, strides = [], [], []
    tolerance = float(torch.finfo(torch.float64).eps)
    for target in (sparseness, norm):
        tensor, number, stride = None, target, 0
        if isinstance(target, torch.Tensor):
            tensor, number = target.detach(), 1.0
            if tensor.is_floating_point():
                tolerance = max(tolerance, torch.finfo(tensor.dtype).eps)
            if tensor.numel() > 1:
                tensor, stride = tensor.expand(batch).contiguous(), 1
        tensors.append(tensor)
        numbers.append(1.0 if number is None else float(number))
        strides.append(stride)
    if count:
        given = goals, *tensors
        addresses = [0 if t is None else t.data_ptr() for t in given]
        device, by = like.get_device(), (sparseness is not None, l1 is not None, options.at_most)
        kinds = tuple(None if t is None else t.dtype for t in tensors)
        key = n, device, count, kinds, *numbers, *strides, tolerance, by, alignment(addresses)
        if not _RESOLVING.run(key, addresses, device):
            tape, programs = Tape(*given), -(-count // targets.BLOCK.value)
            sizes = count, n, *square_root(n), 4 * tolerance
            with torch.cuda.device_of(like):
                tape.launch(
                    targets.resolve_targets,
                    programs,
                    *given,
                    *numbers,
                    *strides,
                    *sizes,
                    *by,
                    enable_fp_fusion=False,
                )
            _RESOLVING.keep(key, tape)
    target = Target(*goals.view(*batch, 4).unbind(-1))
    plan = Plan.of(n, target, plain)
    plan.forms[_GOALS] = goals
    return plan


def _goals(columns: tuple[Any, ...], x: Tensor, batch: torch.Size) -> Tensor:
    """Return the numbers of each vector side by side: those of its target, and its length."""
    count = batch.numel()
    tensors = (torch.tensor(c) if isinstance(c, np.ndarray) else c for c in columns)
    wide = (c.to(x.device, torch.float64, non_blocking=True) for c in tensors)
    return torch.stack(
        [(c if c.numel() == count else c.expand(batch)).reshape(-1) for c in wide], -1
    )


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


def rows_to_write(out: Tensor, given: Tensor) -> Tensor:
    """Return rows to write to: those of the result, unless its entries lie apart."""
    try:
        flat = out.detach().view(given.shape)
    except RuntimeError:
        flat = None
    if flat is not None and (flat.shape[1] == 1 or flat.stride(1) == 1) and not out.is_neg():
        return flat
    return torch.empty_like(given, memory_format=torch.contiguous_format)


def bring_back(written: Tensor, out: Tensor) -> None:
    """Copy what was written elsewhere to where it belongs."""
    if written.data_ptr() != out.data_ptr():
        with torch.no_grad():
            out.detach().copy_(written.view(out.shape))


def project(x: Tensor, plan: Plan, inner: int, out: Tensor, *, remember: bool) -> Kept:
    """Project into `out` (which may be x); return what derivatives need, if it is to be kept."""
    if plan.at_most and plan.rule != "free":
        return _within_bounds(x, plan, inner, out)
    call: Call = plan.forms.get(("triton", x.dtype, remember)) or call_for(
        x, plan, x.shape[: x.dim() - inner], remember=remember
    )
    n, strides = call.n, None
    given, written = x, out
    if not (_lie_in_order(x) and _lie_in_order(out)):
        given = as_rows(x.detach(), n)
        written = rows_to_write(out, given)
        strides = given.stride(0), written.stride(0)
    addresses = [given.data_ptr(), written.data_ptr()]
    scale = active = mask = None
    if remember:
        batch = x.shape[: x.dim() - inner]
        scale = torch.empty(batch, dtype=torch.float64, device=x.device)
        addresses.append(scale.data_ptr())
        if call.case.marks:
            active = x.new_zeros(batch, dtype=torch.int8)
    if active is not None or call.goals is not None:
        mask = None if call.masks is None else call.masks[0]
        more = (scale, active, call.goals, mask)
        addresses[2:] = [0 if t is None else t.data_ptr() for t in more]
    count, device = x.numel() // n, x.get_device()
    mask_stride = 0 if call.masks is None else call.masks[1]
    in_place = addresses[0] == addresses[1]
    key = count, device, strides, mask_stride, in_place, alignment(addresses)
    if count and not call.programs.run(key, addresses, device):
        given, written = as_rows(given.detach(), n), as_rows(written.detach(), n)
        tape = Tape(given, written, scale, active, call.goals, mask)
        with torch.cuda.device_of(given):
            _project(tape, given, written, call, scale, active)
        call.programs.keep(key, tape)
    if strides is not None:
        bring_back(written, out)
    return scale, active


def _lie_in_order(x: Tensor) -> bool:
    """Whether memory holds the entries as they are, one after the other."""
    return x.is_contiguous() and not x.is_neg()


def _as_lines(x: Tensor, n: int) -> tuple[Tensor, int]:
    """Return a tensor in whose memory the vectors lie as `as_rows` has them, and how far apart."""
    if _lie_in_order(x):
        return x, n
    rows = as_rows(x.detach(), n)
    return rows, rows.stride(0)


def solve(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections, and a record of each; every vector is looked at with care."""
    if plan.at_most and plan.rule != "free":
        return _solve_within_bounds(x, plan, inner)
    batch = x.shape[: x.dim() - inner]
    call = call_for(x, plan, batch, remember=False)
    out = torch.empty_like(x)
    given = as_rows(x.detach(), call.n)
    written = rows_to_write(out, given)
    records = given.new_empty((given.shape[0], len(RECORD_FIELDS)), dtype=torch.float64)
    if given.shape[0]:
        with torch.cuda.device_of(given):
            _careful(Tape(), given, written, call, None, None, None, records)
    bring_back(written, out)
    return out, records.view(*batch, len(RECORD_FIELDS))


def _stream_of(x: Tensor) -> int:
    """Return the stream on which kernels on x are launched now."""
    return int(torch._C._cuda_getCurrentRawStream(x.get_device())) if x.is_cuda else 0


class Scattered:
    """Vectors of one length in several tensors, projected in place by the same launches.

    Their entries have to lie in order, and the tensors have to stay where they are.
    """

    def __init__(self, tensors: list[Tensor], n: int) -> None:
        first = tensors[0]
        size, begin = first.element_size(), first.data_ptr()
        places = np.concatenate(
            [
                (tensor.data_ptr() - begin) // size + n * np.arange(tensor.numel() // n)
                for tensor in tensors
            ]
        )
        self._even = 16 if begin % 16 == 0 and not (places % 16).any() else 1
        table = torch.from_numpy(places)
        if first.is_cuda:
            table = table.pin_memory()
        self._table = table.to(first.device, non_blocking=True)
        self._stream = _stream_of(first)
        # The first vector stands for all: only its address is looked at.
        self._rows = first.detach().view(-1)[:n].expand(len(places), n)
        self._plan: Plan | None = None
        self._call: Call | None = None

    @staticmethod
    def can(x: Tensor, n: int) -> bool:
        """Whether vectors of length n in this tensor may be among them."""
        aligned = x.data_ptr() % x.element_size() == 0
        fits = n > 1 and cut_for(FORWARD, x.element_size(), n) is not None
        return fits and aligned and _lie_in_order(x)

    def project(self, plan: Plan) -> bool:
        """Project all of them; False, with nothing done, for what is no case of one launch."""
        ratio = plan.target.ratio
        if plan.where is not None or (plan.at_most and plan.rule != "free"):
            return False
        if not isinstance(ratio, np.ndarray) or ratio.size != 1:
            return False
        rows, call = self._rows, self._call
        if call is None or self._plan is not plan:
            call = call_for(rows, plan, rows.shape[:1], remember=False)
            case = replace(call.case, scattered=self._even)
            call = call._replace(case=case, table=self._table, programs=Programs())
            self._plan, self._call = plan, call
        if _stream_of(rows) != self._stream:
            # Its memory may be wanted elsewhere before this stream is done.
            self._table.record_stream(torch.cuda.current_stream(rows.device))
        device = rows.get_device()
        addresses = [rows.data_ptr()] * 2 + [self._table.data_ptr()]
        if not call.programs.run(None, addresses, device):
            written = rows.view_as(rows)
            tape = Tape(rows, written, self._table)
            with torch.cuda.device_of(rows):
                _project(tape, rows, written, call, None, None)
            call.programs.keep(None, tape)
        return True


# ---- upper bounds of both norms ----


def _two_plans(x: Tensor, plan: Plan) -> tuple[Plan, Plan]:
    """Return the plans for the L1 ball, and for vectors of norm l2 that are sparse enough.

    The latter stands in for targets that there are no such vectors for: nobody looks at these.
    """
    known: tuple[Plan, Plan] | None = plan.forms.get("triton, two plans")
    if known is not None:
        return known
    ratio, slack, slack_low, l2 = plan.target
    xp: Any = np if isinstance(ratio, np.ndarray) else torch
    n: Any = plan.n
    if plan.lengths is not None:
        lengths = np.asarray(plan.lengths) if xp is np else plan.lengths
        n = lengths.reshape(ratio.shape)
    full, none = n + 0.0 * ratio, 0.0 * ratio
    ball = Target(ratio * l2, full, none, none + 1.0)
    # A ratio of 1 has one-hot vectors alone; of 0 there is none.
    few = ratio <= 1
    sphere = Target(
        xp.where(few, 1.0 + none, ratio),
        xp.where(few, full - 1.0, slack),
        xp.where(few, none, slack_low),
        xp.where(ratio == 0, 1.0 + none, l2 + none),
    )
    first = replace(plan, target=ball, rule="free", forms={})
    second = replace(plan, target=sphere, at_most=False, only_increase=True, forms={})
    if plan.where is None and xp is np and ratio.size == 1:
        plan.forms["triton, two plans"] = first, second
    return first, second


def _precise(x: Tensor) -> Tensor:
    """Return vectors in a type whose digits decide which norms bind."""
    return x.float() if x.element_size() == 2 else x


def _choose(
    ball: Tensor, sparse: Tensor, out: Tensor, found: tuple[Tensor, Tensor], l2: Tensor
) -> Tensor:
    """Write one of two results for every vector, and return where it was the second.

    `ball` and `sparse` are rows, `found` are scales and marks of the latter: see `bounds.choose`.
    """
    count, n = ball.shape
    scale, active = found
    batch, takes = scale.shape, ball.new_zeros(count, dtype=torch.int8)
    width = min(bounds.BLOCK.value, triton.next_power_of_2(n))
    in_place = ball.data_ptr() == out.data_ptr()
    if count:
        with torch.cuda.device_of(ball):
            bounds.choose[(-(-count * width // bounds.BLOCK.value),)](
                ball,
                sparse,
                out,
                scale.contiguous(),
                active.contiguous(),
                l2,
                takes,
                count,
                n,
                ball.stride(0),
                out.stride(0),
                min(l2.dim(), 1),
                width,
                in_place,
            )
    return takes.view(torch.bool).view(batch)


def _bound(plan: Plan, batch: torch.Size, like: Tensor) -> Tensor:
    """Return the bound of the L2 norm of every vector; 0 where that of the L1 norm is no larger.

    There it never binds.
    """
    ratio, _, _, l2 = plan.target
    if isinstance(ratio, np.ndarray):
        l2 = np.where(ratio <= 1, 0.0, l2)
        if l2.size == 1:
            return like.new_full((), float(l2.reshape(-1)[0]))
        l2 = torch.tensor(l2).to(like.device, non_blocking=True)
    else:
        l2 = torch.where(ratio <= 1, 0.0, l2)
    if l2.numel() == 1:
        return l2.reshape(())
    return l2.reshape(batch) if l2.numel() == batch.numel() else l2.expand(batch).contiguous()


def _within_bounds(x: Tensor, plan: Plan, inner: int, out: Tensor) -> Kept:
    """Project onto the vectors whose norms have upper bounds, by two projections and a choice.

    The one onto the L1 ball is the last of them, and goes where the result belongs: that may be x.
    """
    given = _precise(x.detach())
    first, second = _two_plans(x, plan)
    rows = as_rows(given, plan.n)
    written = rows_to_write(out, rows)
    ball = written if written.dtype == rows.dtype else torch.empty_like(rows)
    sparse = torch.empty_like(rows, memory_format=torch.contiguous_format)
    other_scale, other_active = project(given, second, inner, sparse, remember=True)
    scale, active = project(given, first, inner, ball, remember=True)
    assert scale is not None
    assert active is not None
    assert other_scale is not None
    assert other_active is not None
    l2 = _bound(plan, scale.shape, scale)
    take = _choose(ball, sparse, written, (other_scale, other_active), l2)
    bring_back(written, out)
    return torch.where(take, other_scale, scale), torch.where(take, other_active, active)


def _solve_within_bounds(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections and their records: see `_within_bounds`."""
    given = _precise(x.detach())
    first, second = _two_plans(x, plan)
    (one, told), (other, told2) = solve(given, first, inner), solve(given, second, inner)
    l2 = _bound(plan, told.shape[:-1], told)
    value = torch.empty_like(x)
    ball = as_rows(one, plan.n)
    sparse, written = as_rows(other, plan.n).contiguous(), rows_to_write(value, ball)
    found = told2[..., SCALE], told2[..., ACTIVE].to(torch.int8)
    take = _choose(ball, sparse, written, found, l2)
    bring_back(written, value)
    reads = told[..., EVALUATIONS] + told2[..., EVALUATIONS]
    records = torch.where(take[..., None], told2, told)
    records[..., EVALUATIONS] = reads
    return value, records


# ---- launches: all kernels for projections take the same arguments first ----


def _arguments(
    given: Tensor, out: Tensor, call: Call, left: Tensor | None, scale: Tensor | None
) -> tuple[Any, ...]:
    strides: tuple[Any, Any] = given.stride(0), out.stride(0)
    if call.table is not None:
        strides = call.table, call.table
    return given, out, left, scale, call.goals, *given.shape, *strides, *call.numbers, call.masks


def _project(
    tape: Tape,
    given: Tensor,
    out: Tensor,
    call: Call,
    scale: Tensor | None,
    active: Tensor | None,
) -> None:
    """Project ordinary vectors fast, and the others, which are marked meanwhile, with care."""
    count, n = given.shape
    cut = cut_for(FORWARD, given.element_size(), n)
    left, counters = None, None
    if cut is None and call.masks is None:
        left = tape.empty(given, count, torch.int8)
        counters = _counters(tape, given)
        _long(tape, _arguments(given, out, call, left, scale), call, active, counters[0])
    elif cut is not None and n > 1:
        left = tape.empty(given, count, torch.int8)
        registers = cut.registers
        if call.case.masked and given.dtype == torch.float32:
            registers = MASKED.get(cut.entries, registers)
        tape.launch(
            rows.project_rows,
            -(-count // cut.rows),
            *_arguments(given, out, call, left, scale),
            active,
            call.start,
            call.case,
            rows.Tile(cut.pieces, cut.rows, cut.width, cut.pieces * cut.width == n),
            num_warps=cut.warps,
            maxnreg=registers,
        )
    _careful(tape, given, out, call, left, scale, active, None, counters)


def _long(
    tape: Tape, arguments: tuple[Any, ...], call: Call, active: Tensor | None, counters: Tensor
) -> None:
    """Project vectors beyond the registers of one program."""
    given, out = arguments[:2]
    count, n = given.shape
    size = given.element_size()
    cut = cut_for(LONG, size, n)
    assert cut is not None
    threads, entries = 32 * cut.warps, 16 // size
    piece = threads * entries
    width = cut.pieces * piece
    # So few vectors at a time that what is read stays in the cache; and all programs busy.
    resident = max(1, cut.programs * multiprocessors(given.device))
    wanted = max(resident * n * size // CACHED, resident // count, 1)
    part = -(-n // (min(wanted, resident) * width)) * width
    together = -(-n // part)
    groups = max(1, min(count, len(counters), resident // together))
    # Blocks of loads: what fits in registers, less where little will do.
    sample = max(1, min(cut.pieces, max(n // 32, SAMPLE) // (together * piece)))
    sample = 1 << (sample.bit_length() - 1)
    # To write again what was written takes x as it was.
    check = n >= HUGE and given.dtype != torch.float64 and out.data_ptr() != given.data_ptr()
    team = long.Team(call.case, together, check, cut.pieces, threads, entries, sample)
    tape.launch(
        long.project_long,
        groups * together,
        *arguments,
        active,
        call.start,
        counters,
        _slots(tape, given, groups, team),
        groups,
        part,
        team,
        num_warps=cut.warps,
        maxnreg=min(255, 65536 // (32 * cut.warps * cut.programs) // 8 * 8),
        launch_cooperative_grid=together > 1,
    )


def _counters(tape: Tape, like: Tensor) -> Tensor:
    """Return counters for programs that meet, one per group, for either of two kernels."""
    # 16 bytes at a time: a kernel is compiled again for other alignments.
    groups = -(-min(like.shape[0], _MOST_GROUPS) // 4) * 4
    return tape.zeros(like, (2, groups), torch.int32)


def _slots(tape: Tape, like: Tensor, groups: int, team: Team) -> Tensor | None:
    """Return memory for the numbers of programs that work together: see `meeting`."""
    if team.programs == 1:
        return None
    return tape.empty(like, (groups, 2, team.width, SLOTS.value), torch.float64)


def _careful(
    tape: Tape,
    given: Tensor,
    out: Tensor,
    call: Call,
    left: Tensor | None,
    scale: Tensor | None,
    active: Tensor | None,
    records: Tensor | None,
    counters: Tensor | None = None,
) -> None:
    """Project the vectors that were left."""
    count, n = given.shape
    cut = careful_cut(n)
    programs = max(1, cut.programs * multiprocessors(given.device))
    together = min(programs, -(-n // (4 * cut.block))) if n > _ALONE else 1
    groups = max(1, min(count, programs // together))
    counter = None
    if together > 1:
        counter = (_counters(tape, given) if counters is None else counters)[1]
        groups = min(groups, len(counter))
    team = careful.Team(call.case, together, left is None, records is not None, cut.block)
    tape.launch(
        careful.project_carefully,
        groups * together,
        *_arguments(given, out, call, left, scale),
        active,
        records,
        counter,
        _slots(tape, given, groups, team),
        -(-count // groups),
        team,
        num_warps=cut.warps,
        maxnreg=65536 // (32 * cut.warps * cut.programs),
        launch_cooperative_grid=together > 1,
    )


# ---- derivatives ----


class Solved(Protocol):
    """What a family keeps of projections for their derivatives."""

    value: Tensor
    scale: Tensor
    active: Tensor | None
    """Codes of `hoyer.projection.Active`; None: both norms bind everywhere, or l1 alone does."""
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
    size = (*at.scale.shape, gradient.CHANGES.value)
    changes = at.scale.new_empty(size, dtype=torch.float64)
    return _multiply(at, y, changes, None, reverse=True), changes


def forward(at: Solved, y: Tensor, changes: Tensor) -> tuple[Tensor, Tensor]:
    """Return how the result and beta move along y, and with a target that moves by `changes`."""
    moves = at.scale.new_empty(at.scale.shape, dtype=torch.float64)
    value = _multiply(at, y, changes.contiguous(), moves, reverse=False)
    return value, moves


def _multiply(
    at: Solved, y: Tensor, changes: Tensor | None, moves: Tensor | None, *, reverse: bool
) -> Tensor:
    value, plan, active, origin = at.value, at.plan, at.active, at.x
    scale = at.scale
    if not scale.is_contiguous():
        scale = scale.contiguous()
    if active is not None and not active.is_contiguous():
        active = active.contiguous()
    case, programs = _product_case(
        plan.rule,
        outside=active is not None and not plan.nonnegative,
        marked=active is not None,
        at_most=plan.at_most,
        both_norms=plan.both_norms,
        reverse=reverse,
        numbers=changes is not None,
    )
    if plan.where is not None:
        # Elsewhere the support says which entries count.
        if case.everywhere:
            y = torch.where(plan.where, y.detach(), 0.0)
        if case.keeps and origin is not None:
            origin = torch.where(plan.where, origin.detach(), 0.0)
    n, count = plan.n, value.numel() // plan.n
    result = torch.empty_like(value)
    p, p_stride = _as_lines(value, n)
    other, y_stride = _as_lines(y, n)
    x, x_stride = (p, p_stride) if origin is None else _as_lines(origin, n)
    if p is value and result.is_contiguous():
        written, stride = result, n
    else:
        written = rows_to_write(result, as_rows(p, n))
        stride = written.stride(0)
    if count:
        known = p, other, x, written, scale, active, changes, moves
        addresses = [0 if t is None else t.data_ptr() for t in known]
        device, strides = p.get_device(), (p_stride, y_stride, x_stride, stride)
        key = p.dtype, device, n, count, strides, x is p, alignment(addresses)
        if not programs.run(key, addresses, device):
            p = as_rows(p.detach(), n)
            x = p if x is known[0] else as_rows(x.detach(), n)
            vectors = p, as_rows(other.detach(), n), x, as_rows(written, n)
            numbers = scale.detach(), active, changes, moves
            tape = Tape(*vectors, *numbers)
            with torch.cuda.device_of(p):
                _product(tape, vectors, numbers, case)
            programs.keep(key, tape)
    if written is not result:
        bring_back(written, result)
    return result


@lru_cache(maxsize=256)
def _product_case(rule: str, **switches: bool) -> tuple[gradient.Case, Programs]:
    """Return which product is wanted, in the kernels' terms, and what was launched for it."""
    return gradient.Case(rule=RULES[rule], **switches), Programs()


_Four: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]
"""p, y, x (or p again) and the result."""


def _in_words(
    vectors: _Four, cut: ProductCut, case: gradient.Case, **held: Any
) -> tuple[Shape, int, tuple[int, ...]]:
    """Return the shape of pieces; length and strides of vectors in loads (see `words`).

    Loads have 16 bytes, or less where vectors do not begin at multiples of that.
    """
    p = vectors[0]
    n, size, entries = p.shape[1], p.element_size(), 1
    if not any(t.data_ptr() % 16 for t in vectors):
        entries = math.gcd(16 // size, n, *(t.stride(0) for t in vectors))
    word = 2 if cut.pairs and size == 2 and entries > 1 else 1
    shape = Shape(
        kind=getattr(tl, str(p.dtype).removeprefix("torch.")),
        pairs=word == 2,
        skip=cut.skip and not case.everywhere,
        number=cut.group or cut.pieces,
        threads=cut.width // entries,
        words=entries // word,
        **held,
    )
    return shape, n // entries, tuple(t.stride(0) // entries for t in vectors)


def _product(
    tape: Tape, vectors: _Four, numbers: tuple[Tensor | None, ...], case: gradient.Case
) -> None:
    """Multiply whole vectors by one program each, or parts of them by many."""
    p = vectors[0]
    count, n = p.shape
    cut = cut_for(BACKWARD, p.element_size(), n)
    if cut is None or (n > cut.held and count < multiprocessors(p.device)):
        _multiply_long(tape, vectors, numbers, case, SHARED[p.element_size()])
    else:
        _multiply_rows(tape, vectors, numbers, case, cut)


def _multiply_rows(
    tape: Tape,
    vectors: _Four,
    numbers: tuple[Tensor | None, ...],
    case: gradient.Case,
    cut: ProductCut,
) -> None:
    count, n = vectors[0].shape
    shape, width, strides = _in_words(
        vectors,
        cut,
        case,
        rows=cut.rows,
        held=cut.pieces,
        hold_all=cut.group == 0,
        even=cut.held == n,
        stream=cut.held < n,
    )
    registers = {"maxnreg": 65536 // (32 * cut.warps * cut.programs)} if cut.programs else {}
    programs = -(-count // cut.rows)
    tape.launch(
        gradient.multiply_rows,
        programs,
        vectors,
        numbers,
        count,
        width,
        strides,
        case,
        shape,
        num_warps=cut.warps,
        **registers,
    )


def _multiply_long(
    tape: Tape,
    vectors: _Four,
    numbers: tuple[Tensor | None, ...],
    case: gradient.Case,
    cut: ProductCut,
) -> None:
    p = vectors[0]
    count, n = p.shape
    shape, width, strides = _in_words(vectors, cut, case)
    groups = -(-n // cut.held)
    part = max(4, -(-groups // _MOST_PARTS)) * cut.pieces
    parts = -(-n // (part * cut.width))
    sums = tape.empty(p, (count, parts, gradient_long.SUMS.value), torch.float64)
    plans = tape.empty(p, (count, gradient_long.PLAN.value), torch.float64)
    factors = tape.empty(p, (count, gradient.FACTORS.value), torch.float64)
    memory, size = (sums, plans, factors), (width, part, parts)
    for again in (False, True):
        tape.launch(
            gradient_long.sum_parts,
            parts * count,
            vectors,
            numbers,
            memory,
            size,
            strides,
            case,
            shape,
            again,
            num_warps=cut.warps,
        )
        padded = 1 << (parts - 1).bit_length()
        sums_of = numbers, memory, parts, case, shape.kind, again, padded
        tape.launch(gradient_long.combine_parts, count, *sums_of, num_warps=4)
    written = vectors, memory, (width, groups), strides, case, shape
    tape.launch(gradient_long.write_parts, groups * count, *written, num_warps=cut.warps)


@lru_cache(maxsize=64)
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; none where programs run one by one."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


__all__ = [
    "Scattered",
    "backward",
    "forward",
    "measure",
    "product",
    "project",
    "resolve",
    "solve",
]
