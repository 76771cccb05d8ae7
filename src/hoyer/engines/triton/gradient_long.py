"""Products with the Jacobian for few and long vectors: several programs share each of them.

The same as in `gradient`, by five kernels, one after the other: sums over parts, from these to the
factors, once more for vectors whose sums will not do, and the product.
"""

import triton
import triton.language as tl

from .device import INFINITY, wide_length
from .gradient import (
    FACTORS,
    about_and_units,
    add_sums,
    extremes,
    factors_of,
    inverse_units,
    is_ordinary,
    join5,
    join_extremes,
    largest_given,
    load_numbers,
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
def part_of(values, given, origin, number, n, part, parts, strides, SHAPE: tl.constexpr):
    """Return the row that a part belongs to, its vectors up to where it ends, where it begins."""
    row, begin = number // parts, number % parts * (part * SHAPE.step)
    end = tl.minimum(begin + part * SHAPE.step, wide_length(n, number) * SHAPE.words)
    values = in_words(values, row, strides[0], SHAPE)
    given = in_words(given, row, strides[1], SHAPE)
    origin = in_words(origin, row, strides[2], SHAPE)
    return row, (values, given, origin, tl.full((1,), 1, tl.int1), end), begin


@triton.jit
def store_all(at, numbers):
    """Write numbers side by side."""
    for i in tl.static_range(len(numbers)):
        tl.store(at + i, numbers[i].to(tl.float64))


@triton.jit
def sum_parts(
    values,
    given,
    origin,
    sums,
    kepts,
    n,
    part,
    parts,
    value_stride,
    given_stride,
    origin_stride,
    CASE: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Add up what the product needs over one part of a vector."""
    KIND: tl.constexpr = SHAPE.kind
    NUMBER: tl.constexpr = SHAPE.number
    number = tl.program_id(0).to(tl.int64)
    strides = (value_stride, given_stride, origin_stride)
    row, vectors, begin = part_of(values, given, origin, number, n, part, parts, strides, SHAPE)
    found = no_sums(SHAPE.work, SHAPE)
    high = found[1]
    high_x, high_y, low = high, high, high + INFINITY
    everywhere = vectors[3] & (CASE.keeps and not CASE.reverse)
    if CASE.outside:
        everywhere = everywhere | (tl.load(kepts + row) != 0)
    while begin < vectors[4]:
        p, y, x = pieces_at(vectors, places(SHAPE) + begin, NUMBER, CASE.keeps, "", SHAPE)
        found = add_sums(found, p, y, x, 0, NUMBER, CASE.keeps, KIND)
        high, low = extremes(high, low, p, NUMBER, KIND)
        for i in tl.static_range(NUMBER):
            high_y = largest_given(high_y, p[i], y[i], everywhere, KIND)
        if CASE.keeps:
            high_x, _ = extremes(high_x, low, x, NUMBER, KIND)
        begin += NUMBER * SHAPE.step
    high, low = tl.reduce((high, low), 0, join_extremes)
    at = sums + number * SUMS + tl.arange(0, 1)
    store_all(at, totals(found, SHAPE.pairs, CASE.keeps, tl.float64))
    store_all(at + 7, (high, low, tl.max(high_x, 0), tl.max(high_y, 0)))


@triton.jit
def frame_of(plan):
    """Return what a plan says, as a frame (see `factors_of`) that is not complete yet."""
    return (
        tl.load(plan + 1),
        tl.load(plan + 2),
        tl.load(plan + 3),
        tl.load(plan + 4),
        tl.load(plan + 5),
    )


@triton.jit
def sum_parts_again(
    values,
    given,
    origin,
    sums,
    plans,
    n,
    part,
    parts,
    value_stride,
    given_stride,
    origin_stride,
    CASE: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Add up once more, in double, in units and about the mean, where that was found necessary."""
    number = tl.program_id(0).to(tl.int64)
    one = tl.arange(0, 1)
    plan = plans + number // parts * PLAN + one
    if tl.sum(tl.load(plan), 0) != 0:
        strides = (value_stride, given_stride, origin_stride)
        _, vectors, begin = part_of(values, given, origin, number, n, part, parts, strides, SHAPE)
        frame = frame_of(plan) + (vectors[3],)
        store_all(sums + number * SUMS + 1 + one, sums_again(vectors, begin, frame, CASE, SHAPE))


@triton.jit
def combine_parts(
    values,
    sums,
    plans,
    scales,
    kepts,
    changes,
    moves,
    factors,
    parts,
    CASE: tl.constexpr,
    SECOND: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn the sums over a vector into its factors; plan to sum SECOND if these will not do."""
    KIND: tl.constexpr = values.dtype.element_ty
    kind: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    plan = plans + row * PLAN
    wanted = True
    if SECOND:
        wanted = tl.sum(tl.load(plan), 0) != 0
    if wanted:
        part = tl.arange(0, WIDTH)[:, None]
        there = part < parts
        base = sums + (row[None, :] * parts + part) * SUMS
        found = ()
        for i in tl.static_range(SUMS):
            fill = INFINITY if i == 8 else 0.0
            found = found + (tl.load(base + i, mask=there, other=fill),)
        count, total, m, q, d = tl.reduce(
            (found[0], found[1], found[2], found[3], found[4]), 0, join5
        )
        all_sums = (count, total, m, q, d, tl.sum(found[5], 0), tl.sum(found[6], 0))
        high, low = tl.reduce((found[7], found[8]), 0, join_extremes)
        numbers = (scales, kepts, changes, moves)
        scale, mark, change = load_numbers(numbers, row, row >= 0, CASE)
        one = count * 0 + 1
        frame = (count * 0, one, one, one, one)
        if SECOND:
            frame = frame_of(plan)
        else:
            high_x, high_y = tl.max(found[9], 0), tl.max(found[10], 0)
            left = ~is_ordinary(all_sums, scale, CASE.keeps, KIND)
            left = left | ((size_of_sums(all_sums) == 0) & (high_y > 0))
            store_all(plan, (left,))
            store_all(plan + 1, about_and_units(count, m, high, low, high_x, kind))
            store_all(plan + 4, inverse_units(high_y, scale, change))
        found, told = factors_of(
            all_sums,
            frame + (low < high,),
            scale,
            mark,
            change,
            CASE,
            tl.float64 if SECOND else kind,
        )
        store_all(factors + row * FACTORS, found)
        store_numbers(numbers, row, row >= 0, told, CASE)


@triton.jit
def write_parts(
    values,
    given,
    origin,
    out,
    plans,
    factors,
    n,
    parts,
    value_stride,
    given_stride,
    origin_stride,
    out_stride,
    CASE: tl.constexpr,
    SHAPE: tl.constexpr,
):
    """Write a few pieces of the product; the last ones first, which are still in the cache."""
    NUMBER: tl.constexpr = SHAPE.number
    number = tl.num_programs(0).to(tl.int64) - 1 - tl.program_id(0)
    strides = (value_stride, given_stride, origin_stride)
    row, vectors, begin = part_of(values, given, origin, number, n, NUMBER, parts, strides, SHAPE)
    out = in_words(out, row, out_stride, SHAPE)
    place = places(SHAPE) + begin
    pieces = pieces_at(vectors, place, NUMBER, CASE.by_x, "evict_first", SHAPE)
    factor = ()
    for i in tl.static_range(FACTORS):
        factor = factor + (tl.load(factors + row * FACTORS + i + tl.arange(0, 1)),)
    if tl.load(plans + row * PLAN) != 0:
        by = spread_factors(factor, tl.float64)
        write_pieces(out, place, vectors, pieces, by, 0, NUMBER, False, True, CASE, SHAPE)
    else:
        by_kind = spread_factors(factor, SHAPE.work)
        write_pieces(out, place, vectors, pieces, by_kind, 0, NUMBER, False, False, CASE, SHAPE)
