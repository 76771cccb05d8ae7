"""Products with the Jacobian for few and long vectors: several programs share each of them.

The same as in `gradient`, by five kernels, one after the other: sums over parts, from these to the
factors, once more for vectors whose sums will not do, and the product.
"""

import triton
import triton.language as tl

from .device import INFINITY, KEEP, wide_length
from .gradient import (
    FACTORS,
    centred_sums,
    extremes,
    factors_of,
    in_words,
    inverse_unit,
    inverse_units,
    is_ordinary,
    join2,
    join4,
    join5,
    join_extremes,
    largest_given,
    load_changes,
    marks_in,
    origin_sums,
    pieces_of,
    pieces_of_y,
    places,
    size_of_sums,
    store_changes,
    support_sums,
    write_pieces,
)

SUMS = tl.constexpr(11)
"""Numbers that a part of a vector leaves behind."""
PLAN = tl.constexpr(6)
"""Numbers that say whether, and in which units and about what, to sum again."""


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
    RULE: tl.constexpr,
    REVERSE: tl.constexpr,
    OUTSIDE: tl.constexpr,
    PAIRS: tl.constexpr,
    SKIP: tl.constexpr,
    G: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add up what the product needs over one part of a vector."""
    KIND: tl.constexpr = values.dtype.element_ty
    kind: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    wide: tl.constexpr = tl.float64
    STEP: tl.constexpr = T * V
    number = tl.program_id(0).to(tl.int64)
    row, begin = number // parts, number % parts * (part * STEP)
    end = tl.minimum(begin + part * STEP, wide_length(n, number) * V)
    values = in_words(values, row, value_stride, V, PAIRS)
    given = in_words(given, row, given_stride, V, PAIRS)
    origin = in_words(origin, row, origin_stride, V, PAIRS)
    here = places(T, V)
    exists = tl.full((1,), 1, tl.int1)
    c = tl.zeros((T, 1), tl.int32 if PAIRS else kind)
    t = tl.zeros((T, 1), kind)
    s, ss, su, xx, xy, high, high_x, high_y, low = t, t, t, t, t, t, t, t, t + INFINITY
    everywhere = exists & (RULE == KEEP and not REVERSE)
    if OUTSIDE:
        everywhere = everywhere | (tl.load(kepts + row) != 0)
    while begin < end:
        place = here + begin
        p = pieces_of(values, place, exists, end, G, STEP, False, False, "")
        y = pieces_of_y(given, place, exists, end, p, 0, G, STEP, False, False, SKIP, "")
        c, t, s, ss, su = support_sums(c, t, s, ss, su, p, y, 0, G, KIND)
        high, low = extremes(high, low, p, G, KIND)
        for i in tl.static_range(G):
            high_y = largest_given(high_y, p[i], y[i], everywhere, KIND)
        if RULE == KEEP:
            x = pieces_of(origin, place, exists, end, G, STEP, False, False, "")
            xx, xy = origin_sums(xx, xy, x, y, 1.0, 1.0, G, KIND)
            high_x, _ = extremes(high_x, low, x, G, KIND)
        begin += G * STEP
    count, t, s, ss, su = tl.reduce(
        (marks_in(c, PAIRS).to(wide), t.to(wide), s.to(wide), ss.to(wide), su.to(wide)), 0, join5
    )
    high, low = tl.reduce((high, low), 0, join_extremes)
    at = sums + number * SUMS + tl.arange(0, 1)
    tl.store(at, count)
    tl.store(at + 1, t)
    tl.store(at + 2, s)
    tl.store(at + 3, ss)
    tl.store(at + 4, su)
    tl.store(at + 5, high.to(wide))
    tl.store(at + 6, low.to(wide))
    tl.store(at + 10, tl.max(high_y, 0).to(wide))
    if RULE == KEEP:
        tl.store(at + 7, tl.sum(xx.to(wide), 0))
        tl.store(at + 8, tl.sum(xy.to(wide), 0))
        tl.store(at + 9, tl.max(high_x, 0).to(wide))


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
    RULE: tl.constexpr,
    PAIRS: tl.constexpr,
    SKIP: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add up once more, in double, in units and about the mean, where that was found necessary."""
    KIND: tl.constexpr = values.dtype.element_ty
    STEP: tl.constexpr = T * V
    number = tl.program_id(0).to(tl.int64)
    row, begin = number // parts, number % parts * (part * STEP)
    plan = plans + row * PLAN
    if tl.load(plan) != 0:
        end = tl.minimum(begin + part * STEP, wide_length(n, number) * V)
        inverse, about, inverse_x = tl.load(plan + 1), tl.load(plan + 2), tl.load(plan + 3)
        inverse_y = tl.load(plan + 4)
        at_p = in_words(values, row, value_stride, V, PAIRS)
        at_y = in_words(given, row, given_stride, V, PAIRS)
        at_x = in_words(origin, row, origin_stride, V, PAIRS)
        here = places(T, V)
        exists = tl.full((1,), 1, tl.int1)
        m = tl.zeros((T, 1), tl.float64)
        t, q, d, xx, xy = m, m, m, m, m
        while begin < end:
            place = here + begin
            p = pieces_of(at_p, place, exists, end, 1, STEP, False, False, "")
            y = pieces_of_y(at_y, place, exists, end, p, 0, 1, STEP, False, False, SKIP, "")
            t, m, q, d = centred_sums(t, m, q, d, p[0], y[0], inverse, about, inverse_y, KIND)
            if RULE == KEEP:
                x = pieces_of(at_x, place, exists, end, 1, STEP, False, False, "")
                xx, xy = origin_sums(xx, xy, x, y, inverse_x, inverse_y, 1, KIND)
            begin += STEP
        t, m, q, d = tl.reduce((t, m, q, d), 0, join4)
        at = sums + number * SUMS + tl.arange(0, 1)
        tl.store(at + 1, t)
        tl.store(at + 2, m)
        tl.store(at + 3, q)
        tl.store(at + 4, d)
        if RULE == KEEP:
            xx, xy = tl.reduce((xx, xy), 0, join2)
            tl.store(at + 7, xx)
            tl.store(at + 8, xy)


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
    RULE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    BOTH_NORMS: tl.constexpr,
    REVERSE: tl.constexpr,
    NUMBERS: tl.constexpr,
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
        count, total, m, q, d = tl.reduce(
            (
                tl.load(base, mask=there, other=0.0),
                tl.load(base + 1, mask=there, other=0.0),
                tl.load(base + 2, mask=there, other=0.0),
                tl.load(base + 3, mask=there, other=0.0),
                tl.load(base + 4, mask=there, other=0.0),
            ),
            0,
            join5,
        )
        high = tl.max(tl.load(base + 5, mask=there, other=0.0), 0)
        low = tl.min(tl.load(base + 6, mask=there, other=INFINITY), 0)
        xx, xy, high_x = count * 0, count * 0, count * 0
        if RULE == KEEP:
            xx = tl.sum(tl.load(base + 7, mask=there, other=0.0), 0)
            xy = tl.sum(tl.load(base + 8, mask=there, other=0.0), 0)
            high_x = tl.max(tl.load(base + 9, mask=there, other=0.0), 0)
        all_sums = (count, total, m, q, d, xx, xy)
        scale = tl.load(scales + row)
        mark = (row * 0).to(tl.int8)
        if ONLY_INCREASE:
            mark = tl.load(kepts + row)
        still = (row * 0).to(tl.float64)
        change = (still, still, still)
        if NUMBERS and not REVERSE:
            change = load_changes(changes, row, row >= 0)
        one = count * 0 + 1
        about, inverse, inverse_x, inverse_y, inverse_b = count * 0, one, one, one, one
        if SECOND:
            inverse, about, inverse_x = tl.load(plan + 1), tl.load(plan + 2), tl.load(plan + 3)
            inverse_y, inverse_b = tl.load(plan + 4), tl.load(plan + 5)
        else:
            left = ~is_ordinary(all_sums, scale, RULE, KIND)
            high_y = tl.max(tl.load(base + 10, mask=there, other=0.0), 0)
            left = left | ((size_of_sums(all_sums) == 0) & (high_y > 0))
            by_y, by_scale = inverse_units(high_y, scale, change)
            by = inverse_unit(high.to(kind)).to(tl.float64)
            middle = m / tl.maximum(count, 1.0)
            # A mean beyond the range of the data is none; these entries are then about equal.
            middle = tl.where(middle <= high, middle, high / 2 + low / 2)
            tl.store(plan, left.to(tl.float64))
            tl.store(plan + 1, by)
            tl.store(plan + 2, tl.where(count > 0, middle * by, 0.0))
            tl.store(plan + 3, inverse_unit(high_x.to(kind)).to(tl.float64))
            tl.store(plan + 4, by_y)
            tl.store(plan + 5, by_scale)
        found, change = factors_of(
            all_sums,
            (about, inverse, inverse_x, inverse_y, inverse_b, low < high),
            scale,
            mark,
            change,
            RULE,
            ONLY_INCREASE,
            BOTH_NORMS,
            REVERSE,
            tl.float64 if SECOND else kind,
        )
        for i in tl.static_range(FACTORS):
            tl.store(factors + row * FACTORS + i, found[i])
        if NUMBERS:
            if REVERSE:
                store_changes(changes, row, row >= 0, change)
            else:
                tl.store(moves + row, change[0])


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
    RULE: tl.constexpr,
    REVERSE: tl.constexpr,
    OUTSIDE: tl.constexpr,
    PAIRS: tl.constexpr,
    SKIP: tl.constexpr,
    G: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Write a few pieces of the product; the last ones first, which are still in the cache."""
    KIND: tl.constexpr = values.dtype.element_ty
    kind: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    STEP: tl.constexpr = T * V
    BY_X: tl.constexpr = RULE == KEEP and REVERSE
    GO: tl.constexpr = "evict_first"
    number = tl.num_programs(0).to(tl.int64) - 1 - tl.program_id(0)
    row = number // parts
    n = wide_length(n, number) * V
    place = places(T, V) + number % parts * (G * STEP)
    exists = tl.full((1,), 1, tl.int1)
    values = in_words(values, row, value_stride, V, PAIRS)
    given = in_words(given, row, given_stride, V, PAIRS)
    origin = in_words(origin, row, origin_stride, V, PAIRS)
    out = in_words(out, row, out_stride, V, PAIRS)
    p = pieces_of(values, place, exists, n, G, STEP, False, False, GO)
    y = pieces_of_y(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, GO)
    x = y
    if BY_X:
        x = pieces_of(origin, place, exists, n, G, STEP, False, False, GO)
    by, by_kind = (), ()
    for i in tl.static_range(FACTORS):
        factor = tl.load(factors + row * FACTORS + i)
        by, by_kind = by + (factor,), by_kind + (factor.to(kind),)
    if tl.load(plans + row * PLAN) != 0:
        write_pieces(
            out, place, exists, n, p, y, x, by, 0, G, STEP, False, False, BY_X, OUTSIDE, True, KIND
        )
    else:
        write_pieces(
            out,
            place,
            exists,
            n,
            p,
            y,
            x,
            by_kind,
            0,
            G,
            STEP,
            False,
            False,
            BY_X,
            OUTSIDE,
            False,
            KIND,
        )
