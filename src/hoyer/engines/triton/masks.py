"""How many entries masks leave, and the targets that go with so many, from a table by length."""

import triton
import triton.language as tl

BLOCK = tl.constexpr(4096)
"""Entries that a program reads at a time, of one mask or of several."""

COLUMNS = tl.constexpr(5)
"""Numbers of a vector: the four of its target, and its length."""


# Compiled once for all lengths, but for whether loads may be wide.
@triton.jit(do_not_specialize=["rows"])
def measure_masks(mask, table, lengths, goals, rows, n, stride, WIDTH: tl.constexpr):
    """Count the entries of some masks per program; look up their targets (see `goal_of`)."""
    ROWS: tl.constexpr = BLOCK // WIDTH
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    entry = tl.arange(0, WIDTH)[None, :]
    count = tl.full((ROWS, WIDTH), 0, tl.int32)
    begin = 0
    while begin < n:
        there = exists[:, None] & (begin + entry < n)
        at = mask + row[:, None] * stride + begin + entry
        count += tl.load(at, mask=there, other=0).to(tl.int32)
        begin += WIDTH
    length = tl.sum(count, 1)
    tl.store(lengths + row, length.to(tl.int64), mask=exists)
    for i in tl.static_range(4):
        number = tl.load(table + i * (n + 1) + length, mask=exists, other=0.0)
        tl.store(goals + row * COLUMNS + i, number, mask=exists)
    tl.store(goals + row * COLUMNS + 4, length.to(tl.float64), mask=exists)
