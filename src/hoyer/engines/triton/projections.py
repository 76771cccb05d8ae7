"""Projections: which kernels are launched, and with what."""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from ...plan import Plan
from ...projection import RECORD_FIELDS
from . import careful, long, rows
from .calls import Call, call_for
from .launch import Programs, Tape, alignment
from .layout import as_rows, bring_back, lie_in_order, multiprocessors, rows_to_write
from .meeting import WORDS, Team
from .table import CACHED, FORWARD, HUGE, LONG, MASKED, SAMPLE, careful_cut, cut_for

Tensor: TypeAlias = torch.Tensor

_ALONE = 1 << 16
"""Entries up to which one program works on a vector."""

Kept: TypeAlias = tuple[Tensor | None, Tensor | None]
"""The scales of projections, and codes of `hoyer.projection.Active`; None where it was not asked
for, and where all vectors must have the same code."""


def project(x: Tensor, plan: Plan, inner: int, out: Tensor, *, remember: bool) -> Kept:
    """Project into `out` (which may be x); return what derivatives need, if it is to be kept."""
    call = call_for(x, plan, inner, remember=remember)
    n, strides = call.n, None
    given, written = x, out
    if not (lie_in_order(x) and lie_in_order(out)):
        given = as_rows(x.detach(), n)
        written = rows_to_write(out, given)
        strides = given.stride(0), written.stride(0)
    addresses = [given.data_ptr(), written.data_ptr()]
    scale = active = mask = None
    if remember:
        batch = x.shape[: x.dim() - inner]
        scale = x.new_empty(batch, dtype=torch.float64)
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


def solve(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections, and a record of each; every vector is looked at with care."""
    batch = x.shape[: x.dim() - inner]
    call = call_for(x, plan, inner, remember=False)
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
        return fits and aligned and lie_in_order(x)

    def project(self, plan: Plan) -> bool:
        """Project all of them; False, with nothing done, for what is no case of one launch."""
        ratio = plan.target.ratio
        if plan.where is not None or (plan.at_most and plan.rule != "free"):
            return False
        if not isinstance(ratio, np.ndarray) or ratio.size != 1:
            return False
        rows, call = self._rows, self._call
        if call is None or self._plan is not plan:
            call = call_for(rows, plan, 1, remember=False)
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
    left = None
    if cut is None and call.masks is None:
        left = tape.empty(given, count, torch.int8)
        _long(tape, _arguments(given, out, call, left, scale), call, active)
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
    _careful(tape, given, out, call, left, scale, active, None)


def _long(tape: Tape, arguments: tuple[Any, ...], call: Call, active: Tensor | None) -> None:
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
    groups = max(1, min(count, resident // together))
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
        _slots(tape, given, groups, team),
        groups,
        part,
        team,
        num_warps=cut.warps,
        maxnreg=min(255, 65536 // (32 * cut.warps * cut.programs) // 8 * 8),
        launch_cooperative_grid=together > 1,
    )


def _slots(tape: Tape, like: Tensor, groups: int, team: Team) -> Tensor | None:
    """Return memory for the numbers of programs that work together: see `meeting`."""
    if team.programs == 1:
        return None
    return tape.zeros(like, (groups, 2, WORDS.value, team.width), torch.int64)


def _careful(
    tape: Tape,
    given: Tensor,
    out: Tensor,
    call: Call,
    left: Tensor | None,
    scale: Tensor | None,
    active: Tensor | None,
    records: Tensor | None,
) -> None:
    """Project the vectors that were left."""
    count, n = given.shape
    cut = careful_cut(n)
    programs = max(1, cut.programs * multiprocessors(given.device))
    together = min(programs, -(-n // (4 * cut.block))) if n > _ALONE else 1
    groups = max(1, min(count, programs // together))
    team = careful.Team(call.case, together, left is None, records is not None, cut.block)
    tape.launch(
        careful.project_carefully,
        groups * together,
        *_arguments(given, out, call, left, scale),
        active,
        records,
        _slots(tape, given, groups, team),
        -(-count // groups),
        team,
        num_warps=cut.warps,
        maxnreg=65536 // (32 * cut.warps * cut.programs),
        launch_cooperative_grid=together > 1,
    )
