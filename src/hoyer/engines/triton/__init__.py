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

from ...options import RULES
from ...plan import Plan
from ...projection import ACTIVE, EVALUATIONS, RECORD_FIELDS, SCALE
from ...target import Target
from ..arrays.closed_form import noise_of
from ..arrays.namespace import namespace
from . import bounds, careful, gradient, gradient_long, long, masks, rows
from .device import Case
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


class Projected(NamedTuple):
    """Projections, and what derivatives need to know; None where it was not asked for."""

    value: Tensor
    scale: Tensor | None
    active: Tensor | None
    """Codes of `hoyer.projection.Active`, where not all vectors must have the same."""


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


def call_for(x: Tensor, plan: Plan, batch: torch.Size, *, remember: bool) -> Call:
    """Return a plan in the kernels' terms, made once for plain numbers."""
    form = ("triton", x.dtype, remember)
    known: Call | None = plan.forms.get(form)
    if known is not None:
        return known
    target, n, signed, mask = plan.target, plan.n, not plan.nonnegative, None
    goals, start = None, 1.0
    numbers: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0)
    measured: tuple[Tensor, Tensor] | None = plan.forms.get(_MEASURED)
    if plan.where is not None:
        if measured is None:
            measured = as_rows(plan.where, n), _goals((*target, plan.lengths), x, batch)
        where, goals = measured
        mask = where.view(torch.uint8), where.stride(0)
    elif isinstance(target.ratio, np.ndarray) and target.ratio.size == 1:
        numbers = tuple(float(part[0]) for part in target[:4])
        if plan.rule != "free":
            start = normal_start((n - numbers[1]) / n, magnitudes=signed)
    else:
        goals = _goals(target, x, batch)
    case = Case(
        *noise_of(x.dtype, torch.float64, namespace(torch)),
        signed=signed,
        rule=RULES[plan.rule],
        # Only vectors that keep their direction are concerned: no need to compile for others.
        l1_given=plan.l1_given and plan.only_increase,
        only_increase=plan.only_increase,
        own_goals=goals is not None,
        with_scale=remember,
        at_most=plan.at_most,
        masked=mask is not None,
    )
    call = Call(n, goals, numbers, start, case, mask)
    if goals is None:
        plan.forms[form] = call
    return call


_MEASURED = "triton, masks"
"""The form of a plan with what `measure` has found: masks as rows, and goals."""


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
        with torch.cuda.device_of(mask):
            masks.measure_masks[(-(-count * width // masks.BLOCK.value),)](
                mask.view(torch.uint8), table, lengths, goals, count, plan.n, mask.stride(0), width
            )
    target = Target(*(column.view(batch) for column in goals[:, :4].unbind(1)))
    found = replace(plan, target=target, lengths=lengths.view(batch), forms={})
    found.forms[_MEASURED] = mask, goals
    return found


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


def project(x: Tensor, plan: Plan, inner: int, out: Tensor, *, remember: bool) -> Projected:
    """Project into `out` (which may be x), and remember what derivatives need."""
    if plan.at_most and plan.rule != "free":
        return _within_bounds(x, plan, inner, out)
    batch = x.shape[: x.dim() - inner]
    call = call_for(x, plan, batch, remember=remember)
    given = as_rows(x.detach(), call.n)
    written, count = rows_to_write(out, given), given.shape[0]
    scale = given.new_empty(batch, dtype=torch.float64) if remember else None
    active = None
    if call.case.marks:
        active = given.new_zeros(batch, dtype=torch.int8)
    if count:
        with torch.cuda.device_of(given):
            _project(given, written, call, scale, active)
    bring_back(written, out)
    return Projected(out, scale, active)


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
            _careful(given, written, call, None, None, None, records)
    bring_back(written, out)
    return out, records.view(*batch, len(RECORD_FIELDS))


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


def _within_bounds(x: Tensor, plan: Plan, inner: int, out: Tensor) -> Projected:
    """Project onto the vectors whose norms have upper bounds, by two projections and a choice.

    The one onto the L1 ball is the last of them, and goes where the result belongs: that may be x.
    """
    given = _precise(x.detach())
    first, second = _two_plans(x, plan)
    rows = as_rows(given, plan.n)
    written = rows_to_write(out, rows)
    ball = written if written.dtype == rows.dtype else torch.empty_like(rows)
    sparse = torch.empty_like(rows, memory_format=torch.contiguous_format)
    other = project(given, second, inner, sparse, remember=True)
    one = project(given, first, inner, ball, remember=True)
    assert one.active is not None
    assert other.active is not None
    assert one.scale is not None
    assert other.scale is not None
    l2 = _bound(plan, one.scale.shape, one.scale)
    take = _choose(ball, sparse, written, (other.scale, other.active), l2)
    bring_back(written, out)
    scale = torch.where(take, other.scale, one.scale)
    return Projected(out, scale, torch.where(take, other.active, one.active))


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
    strides = given.stride(0), out.stride(0)
    return given, out, left, scale, call.goals, *given.shape, *strides, *call.numbers, call.masks


def _project(
    given: Tensor, out: Tensor, call: Call, scale: Tensor | None, active: Tensor | None
) -> None:
    """Project ordinary vectors fast, and the others, which are marked meanwhile, with care."""
    count, n = given.shape
    cut = cut_for(FORWARD, given.element_size(), n)
    left, counters = None, None
    if cut is None and call.masks is None:
        left = given.new_empty(count, dtype=torch.int8)
        counters = _counters(given)
        _long(_arguments(given, out, call, left, scale), call, active, counters[0])
    elif cut is not None and n > 1:
        left = given.new_empty(count, dtype=torch.int8)
        registers = cut.registers
        if call.case.masked and given.dtype == torch.float32:
            registers = MASKED.get(cut.entries, registers)
        rows.project_rows[(-(-count // cut.rows),)](
            *_arguments(given, out, call, left, scale),
            active,
            call.start,
            call.case,
            rows.Tile(cut.pieces, cut.rows, cut.width, cut.pieces * cut.width == n),
            num_warps=cut.warps,
            maxnreg=registers,
        )
    _careful(given, out, call, left, scale, active, None, counters)


def _long(arguments: tuple[Any, ...], call: Call, active: Tensor | None, counters: Tensor) -> None:
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
    long.project_long[(groups * together,)](
        *arguments,
        active,
        call.start,
        counters,
        _slots(given, groups, team),
        groups,
        part,
        team,
        num_warps=cut.warps,
        maxnreg=min(255, 65536 // (32 * cut.warps * cut.programs) // 8 * 8),
        launch_cooperative_grid=together > 1,
    )


def _counters(like: Tensor) -> Tensor:
    """Return counters for programs that meet, one per group, for either of two kernels."""
    # 16 bytes at a time: a kernel is compiled again for other alignments.
    groups = -(-min(like.shape[0], _MOST_GROUPS) // 4) * 4
    return like.new_zeros((2, groups), dtype=torch.int32)


def _slots(like: Tensor, groups: int, team: Team) -> Tensor | None:
    """Return memory for the numbers of programs that work together: see `meeting`."""
    if team.programs == 1:
        return None
    return like.new_empty((groups, 2, team.width, SLOTS.value), dtype=torch.float64)


def _careful(
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
        counter = (_counters(given) if counters is None else counters)[1]
        groups = min(groups, len(counter))
    team = careful.Team(call.case, together, left is None, records is not None, cut.block)
    careful.project_carefully[(groups * together,)](
        *_arguments(given, out, call, left, scale),
        active,
        records,
        counter,
        _slots(given, groups, team),
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
    value, plan = at.value.detach(), at.plan
    result = torch.empty_like(value)
    p = as_rows(value, plan.n)
    count, n = p.shape
    origin = p if at.x is None else as_rows(at.x.detach(), n)
    active = None if at.active is None else at.active.contiguous()
    numbers = at.scale.detach().contiguous(), active, changes, moves
    case = gradient.Case(
        rule=RULES[plan.rule],
        outside=active is not None and not plan.nonnegative,
        marked=active is not None,
        at_most=plan.at_most,
        both_norms=plan.both_norms,
        reverse=reverse,
        numbers=changes is not None,
    )
    y = y.detach()
    if plan.where is not None:
        # Elsewhere the support says which entries count.
        if case.everywhere:
            y = torch.where(plan.where, y, 0.0)
        if case.keeps and at.x is not None:
            origin = as_rows(torch.where(plan.where, at.x.detach(), 0.0), n)
    vectors = p, as_rows(y, n), origin, rows_to_write(result, p)
    cut = cut_for(BACKWARD, p.element_size(), n)
    if count:
        with torch.cuda.device_of(p):
            if cut is None or (n > cut.held and count < multiprocessors(p.device)):
                _multiply_long(vectors, numbers, case, SHARED[p.element_size()])
            else:
                _multiply_rows(vectors, numbers, case, cut)
    bring_back(vectors[3], result)
    return result


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


def _multiply_rows(
    vectors: _Four, numbers: tuple[Tensor | None, ...], case: gradient.Case, cut: ProductCut
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
    gradient.multiply_rows[(-(-count // cut.rows),)](
        vectors, numbers, count, width, strides, case, shape, num_warps=cut.warps, **registers
    )


def _multiply_long(
    vectors: _Four, numbers: tuple[Tensor | None, ...], case: gradient.Case, cut: ProductCut
) -> None:
    p = vectors[0]
    count, n = p.shape
    shape, width, strides = _in_words(vectors, cut, case)
    groups = -(-n // cut.held)
    part = max(4, -(-groups // _MOST_PARTS)) * cut.pieces
    parts = -(-n // (part * cut.width))
    sums = p.new_empty((count, parts, gradient_long.SUMS.value), dtype=torch.float64)
    plans = p.new_empty((count, gradient_long.PLAN.value), dtype=torch.float64)
    factors = p.new_empty((count, gradient.FACTORS.value), dtype=torch.float64)
    memory, size = (sums, plans, factors), (width, part, parts)
    for again in (False, True):
        gradient_long.sum_parts[(parts * count,)](
            vectors, numbers, memory, size, strides, case, shape, again, num_warps=cut.warps
        )
        padded = 1 << (parts - 1).bit_length()
        gradient_long.combine_parts[(count,)](
            numbers, memory, parts, case, shape.kind, again, padded, num_warps=4
        )
    gradient_long.write_parts[(groups * count,)](
        vectors, memory, (width, groups), strides, case, shape, num_warps=cut.warps
    )


@lru_cache(maxsize=64)
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; none where programs run one by one."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


__all__ = ["Projected", "backward", "forward", "measure", "product", "project", "solve"]
