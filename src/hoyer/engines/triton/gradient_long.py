"""Products with the Jacobian for few and long vectors: several programs share each of them.

The same as in `gradient`, by kernels one after the other: sums over parts, from these to the
factors, both AGAIN for vectors whose sums will not do, and the product.
"""

import triton
import triton.language as tl

from .device import INFINITY, add5, join_extremes
from .gradient import (
    FACTORS,
    about_and_units,
    add_extremes,
    add_sums,
    all_extremes,
    counts_everywhere,
    factors_of,
    inverse_units,
    is_ordinary,
    load_numbers,
    no_extremes,
    no_sums,
    size_of_sums,
    spread_factors,
    store_numbers,
    sums_again,
    totals,
    write_pieces,
)
from .words import in_words, pieces_at, places

SUMS = tl.constexpr(11)
"""Numbers that a part of a vector leaves behind."""
PLAN = tl.constexpr(6)
"""Whether to sum again, about what, and in which units: those of p, x, y and beta."""


@triton.jit
def part_of(vectors, number, n, part, parts, strides, SHAPE):
    """Return the row of a part, its vectors up to where it ends, where it begins, and the result.

    `part` is its length in pieces, n that of a vector in loads.
    """
    row, begin = number // parts, number % parts * (part * SHAPE.step)
    # Not n alone: of a length of 1 Triton makes a constant.
    end = tl.minimum(begin + part * SHAPE.step, (n + 0 * number) * SHAPE.words)
    p, y, x, out = in_words(vectors, row, strides, SHAPE)
    return row, (p, y, x, tl.full((1,), 1, tl.int1), end), begin, out


@triton.jit
def load_all(at, NUMBER):
    """Return numbers that lie side by side."""
    found = ()
    for i in tl.static_range(NUMBER):
        found = found + (tl.load(at + i),)
    return found


@triton.jit
def store_all(at, numbers):
    """Write numbers side by side."""
    for i in tl.static_range(len(numbers)):
        tl.store(at + i, numbers[i].to(tl.float64))


@triton.jit
def sum_parts(
    vectors,
    numbers,
    memory,
    size,
    strides,
    CASE: tl.constexpr,
    SHAPE: tl.constexpr,
    AGAIN: tl.constexpr,
):
    """Add up what the product needs over one part of a vector; AGAIN where that was planned."""
    NUMBER: tl.constexpr = SHAPE.number
    sums, plans = memory[0], memory[1]
    n, part, parts = size
    one, number = tl.arange(0, 1), tl.program_id(0).to(tl.int64)
    at, plan = sums + number * SUMS + one, plans + number // parts * PLAN + one
    wanted = True
    if AGAIN:
        wanted = tl.sum(tl.load(plan), 0) != 0
    if wanted:
        row, mine, begin, out = part_of(vectors, number, n, part, parts, strides, SHAPE)
        if AGAIN:
            store_all(at + 1, sums_again(mine, begin, load_all(plan + 1, 4), CASE, SHAPE))
        else:
            found, extremes = no_sums(SHAPE.work, SHAPE), no_extremes(SHAPE)
            own = load_numbers(numbers, row + one, mine[3], CASE)
            everywhere = counts_everywhere(own[1], CASE)
            while begin < mine[4]:
                p, y, x = pieces_at(mine, places(SHAPE) + begin, NUMBER, CASE.keeps, "", SHAPE)
                found = add_sums(found, p, y, x, 0, NUMBER, CASE.keeps, SHAPE.kind)
                extremes = add_extremes(
                    extremes, p, y, x, everywhere, NUMBER, CASE.keeps, SHAPE.kind
                )
                begin += NUMBER * SHAPE.step
            store_all(at, totals(found, SHAPE.pairs, CASE.keeps, tl.float64))
            store_all(at + 7, all_extremes(extremes))


@triton.jit
def combine_parts(
    numbers,
    memory,
    parts,
    CASE: tl.constexpr,
    KIND: tl.constexpr,
    AGAIN: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn the sums over a vector into its factors; plan to do so AGAIN if these will not do."""
    WORK: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    sums, plans, factors = memory
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    plan = plans + row * PLAN
    wanted = True
    if AGAIN:
        wanted = tl.sum(tl.load(plan), 0) != 0
    if wanted:
        part = tl.arange(0, WIDTH)[:, None]
        base = sums + (row[None, :] * parts + part) * SUMS
        found = ()
        for i in tl.static_range(SUMS):
            fill = INFINITY if i == 8 else 0.0
            found = found + (tl.load(base + i, mask=part < parts, other=fill),)
        first = (found[0], found[1], found[2], found[3], found[4])
        count, total, m, q, d = tl.reduce(first, 0, add5)
        all_sums = (count, total, m, q, d, tl.sum(found[5], 0), tl.sum(found[6], 0))
        high, low = tl.reduce((found[7], found[8]), 0, join_extremes)
        scale, mark, change = load_numbers(numbers, row, row >= 0, CASE)
        one = count * 0 + 1
        frame = (count * 0, one, one, one, one)
        if AGAIN:
            frame = load_all(plan + 1, 5)
        else:
            high_x, high_y = tl.max(found[9], 0), tl.max(found[10], 0)
            left = ~is_ordinary(all_sums, scale, CASE, KIND)
            left = left | ((size_of_sums(all_sums) == 0) & (high_y > 0))
            store_all(plan, (left,))
            store_all(plan + 1, about_and_units(count, m, high, low, high_x, WORK))
            store_all(plan + 4, inverse_units(high_y, scale, change))
        DIGITS: tl.constexpr = tl.float64 if AGAIN else WORK
        frame = frame + (low < high,)
        found, told = factors_of(all_sums, frame, scale, mark, change, CASE, DIGITS)
        store_all(factors + row * FACTORS, found)
        store_numbers(numbers, row, row >= 0, told, CASE)


@triton.jit
def write_parts(vectors, memory, size, strides, CASE: tl.constexpr, SHAPE: tl.constexpr):
    """Write a few pieces of the product; the last ones first, which are still in the cache."""
    NUMBER: tl.constexpr = SHAPE.number
    _, plans, factors = memory
    n, parts = size
    number = tl.num_programs(0).to(tl.int64) - 1 - tl.program_id(0)
    row, mine, begin, out = part_of(vectors, number, n, NUMBER, parts, strides, SHAPE)
    place = places(SHAPE) + begin
    pieces = pieces_at(mine, place, NUMBER, CASE.by_x, "evict_first", SHAPE)
    factor = load_all(factors + row * FACTORS + tl.arange(0, 1), FACTORS)
    if tl.load(plans + row * PLAN) != 0:
        by = spread_factors(factor, tl.float64)
        write_pieces(out, place, mine, pieces, by, 0, NUMBER, False, True, CASE, SHAPE)
    else:
        by_kind = spread_factors(factor, SHAPE.work)
        write_pieces(out, place, mine, pieces, by_kind, 0, NUMBER, False, False, CASE, SHAPE)
