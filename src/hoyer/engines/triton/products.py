"""Products with derivatives (Algorithm 3): which kernels are launched, and with what."""

import math
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import torch
import triton.language as tl

from ...options import RULES
from ...plan import Plan
from . import gradient, gradient_long
from .launch import Programs, Tape, alignment
from .layout import as_lines, as_rows, bring_back, multiprocessors, rows_to_write
from .table import BACKWARD, SHARED, ProductCut, cut_for
from .words import Shape

Tensor: TypeAlias = torch.Tensor

_MOST_PARTS = 1024
"""Programs that share a vector for products, at most."""


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
    p, p_stride = as_lines(value, n)
    other, y_stride = as_lines(y, n)
    x, x_stride = (p, p_stride) if origin is None else as_lines(origin, n)
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
