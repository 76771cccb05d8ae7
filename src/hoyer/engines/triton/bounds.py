"""Upper bounds of both norms: which of two results is right, and to have it in its place."""

import triton
import triton.language as tl

from .device import BOTH, TO_L2

BLOCK = tl.constexpr(2048)
"""Entries that a program reads at a time, of one vector or of several."""


@triton.jit
def largest_of(ball, entry, exists, n, WIDTH):
    """Return the largest magnitude of each vector, 1 for zero vectors."""
    found = tl.full((BLOCK // WIDTH, WIDTH), 0, tl.float64)
    begin = 0
    while begin < n:
        there = exists[:, None] & (begin + entry < n)
        found = tl.maximum(found, tl.abs(tl.load(ball + begin + entry, mask=there, other=0.0)))
        begin += WIDTH
    largest = tl.max(found, 1)
    return tl.where(largest > 0, largest, 1.0)


@triton.jit(do_not_specialize=["rows"])
def choose(
    ball,
    sparse,
    out,
    scales,
    marks,
    bounds,
    takes,
    rows,
    n,
    ball_stride,
    out_stride,
    bound_stride,
    WIDTH: tl.constexpr,
    IN_PLACE: tl.constexpr,
):
    """Write the nearest vector within both bounds to `out`, and to `takes` which one that was.

    `ball` has the nearest ones in the L1 ball; they are right if they are within the L2 norm, too.
    Otherwise that norm binds, and those in `sparse` are right: nearest ones of that norm which are
    sparse enough, with `scales` and `marks`. Vectors that are so already keep their direction, if
    they are too long. A scale is below 1, or 0 because of ties, where rounding at the border alone
    leads there. With IN_PLACE `ball` is `out`.
    """
    ROWS: tl.constexpr = BLOCK // WIDTH
    kind: tl.constexpr = ball.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    entry = tl.arange(0, WIDTH)[None, :]
    ball_row = ball + row[:, None] * ball_stride
    unit = tl.full((ROWS,), 1, tl.float64)
    if kind == tl.float64:
        # Their squares need be no floats.
        unit = largest_of(ball_row, entry, exists, n, WIDTH)
    squares = tl.full((ROWS, WIDTH), 0, tl.float64)
    begin = 0
    while begin < n:
        there = exists[:, None] & (begin + entry < n)
        p = tl.load(ball_row + begin + entry, mask=there, other=0.0).to(tl.float64)
        p = p / unit[:, None] if kind == tl.float64 else p
        squares += p * p
        begin += WIDTH
    norm = tl.sqrt(tl.sum(squares, 1)) * unit

    l2 = tl.load(bounds + row * bound_stride, mask=exists, other=0.0)
    scale = tl.load(scales + row, mask=exists, other=0.0)
    mark = tl.load(marks + row, mask=exists, other=0)
    take = ((mark == TO_L2) & (scale > 1)) | ((mark == BOTH) & (norm > l2) & (scale >= 1))
    take = take & (l2 > 0)
    tl.store(takes + row, take.to(tl.int8), mask=exists)
    busy = tl.max(take.to(tl.int32), 0) > 0 if IN_PLACE else True
    if busy:
        out_row = out + row[:, None] * out_stride
        begin = 0
        while begin < n:
            there = exists[:, None] & (begin + entry < n)
            taken = there & take[:, None]
            p = tl.load(sparse + row[:, None] * n + begin + entry, mask=taken, other=0.0)
            if not IN_PLACE:
                q = tl.load(ball_row + begin + entry, mask=there & ~taken, other=0.0)
                p = tl.where(taken, p, q)
                taken = there
            tl.store(out_row + begin + entry, p.to(out.dtype.element_ty), mask=taken)
            begin += WIDTH
