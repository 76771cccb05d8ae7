"""Algorithm 3: products with the Jacobian of the projection, from its result and scale alone.

The formulas are those of `calculus`, which see: with q the deviations of |p| from its mean on the
support, (y - mean(y) - q <q, y>/<q, q>) / beta, and what the norm adds where it follows x. Rows
that fit in registers are read once; longer ones twice, their sums added up in between.
"""

import triton
import triton.language as tl

from .device import FIXED, INFINITY, KEEP, TO_L1, spread_out, sums_over, support_over

SUMS = tl.constexpr(8)
"""Numbers that a part of a long vector leaves behind."""


@triton.jit
def _quotient(a, b):
    """Return a/b, and 0 where b is."""
    return tl.where(b > 0, a / tl.where(b > 0, b, 1.0), 0.0)


@triton.jit(do_not_specialize=["rows"])
def multiply_rows(
    values,
    given,
    origin,
    out,
    scales,
    kepts,
    rows,
    n,
    value_stride,
    given_stride,
    origin_stride,
    out_stride,
    RULE: tl.constexpr,
    NONNEGATIVE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    REVERSE: tl.constexpr,
    EVEN: tl.constexpr,
    J: tl.constexpr,
    R: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
):
    """Multiply R vectors per program by their Jacobians, or the transposes of those."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    place = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    exists = row < rows
    if EVEN:
        there = spread_out(exists) & (place >= 0)
    else:
        there = spread_out(exists) & (place < n)
    p0 = tl.load(values + spread_out(row * value_stride) + place, mask=there, other=0.0)
    y0 = tl.load(given + spread_out(row * given_stride) + place, mask=there, other=0.0)
    if p0.dtype == tl.float64:
        p, y = p0, y0
    else:
        p, y = p0.to(tl.float32), y0.to(tl.float32)
    kind: tl.constexpr = p.dtype
    tiny: tl.constexpr = 1e-300 if kind == tl.float64 else 1e-37
    scale = tl.load(scales + row, mask=exists, other=0.0)
    gain = _quotient(1.0, scale).to(kind)

    size = tl.abs(p)
    unit = tl.max(tl.max(size, 1), 1)
    # In units of the largest entry nothing overflows or vanishes when squared.
    inverse = 1.0 / tl.maximum(unit, tiny)
    size = size * spread_out(inverse)
    inside = p != 0
    turned = tl.where(p < 0, -y, y)
    turned = tl.where(inside, turned, 0.0)
    count, total, length, _, least = support_over(
        inside.to(kind), turned, size, size, tl.where(inside, size, INFINITY)
    )
    count = tl.maximum(count, 1.0)
    mean, centre = total / count, length / count
    q = tl.where(inside, size - spread_out(centre), 0.0)
    slope, spread, _ = sums_over(q * (turned - spread_out(mean)), q * q, q)
    # Equal entries have no spread; rounding of their mean must not invent one.
    slope = tl.where(least < unit * inverse, _quotient(slope, spread), 0.0)
    z = tl.where(
        inside, (turned - spread_out(mean) - q * spread_out(slope)) * spread_out(gain), 0.0
    )
    z = tl.where(p < 0, -z, z)
    if (RULE != FIXED) | ONLY_INCREASE:
        dot, square, _ = sums_over(size * turned, size * size, q)
    if ONLY_INCREASE:
        # (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the
        # L1 norm was.
        mark = tl.load(kepts + row, mask=exists, other=0)
        sign = tl.where(p < 0, -1.0, tl.where(p > 0, 1.0, 0.0))
        signed_size = sign * size
        to_l1 = mark == TO_L1
        by_p = _quotient(dot, tl.where(to_l1, length, square))
        by_sign = _quotient(total, length)
        if REVERSE:
            other = spread_out(by_p) * sign
        else:
            other = spread_out(by_sign) * signed_size
        direction = y - tl.where(spread_out(to_l1), other, spread_out(by_p) * signed_size)
        if NONNEGATIVE:
            direction = tl.where(p > 0, direction, 0.0)
        z = tl.where(spread_out(mark != 0), direction * spread_out(gain), z)
    if RULE == KEEP:
        x = tl.load(origin + spread_out(row * origin_stride) + place, mask=there, other=0.0).to(
            kind
        )
        measure = tl.max(tl.max(tl.abs(x), 1), 1)
        inverse_x = 1.0 / tl.maximum(measure, tiny)
        x = x * spread_out(inverse_x)
        square_x, along, _ = sums_over(x * x, x * y, x)
        if REVERSE:
            z += x * spread_out(_quotient(dot, square_x) * (unit * inverse_x))
        else:
            ahead = _quotient(along, square_x) * (inverse_x * unit)
            z += tl.where(p < 0, -size, size) * spread_out(ahead)
    elif RULE != FIXED:
        z += tl.where(p < 0, -size, size) * spread_out(_quotient(dot, square))
    tl.store(out + spread_out(row * out_stride) + place, z.to(out.dtype.element_ty), mask=there)


@triton.jit
def _part(values, given, origin, begin, n, BLOCK: tl.constexpr, RULE: tl.constexpr):
    """Return entries of a long vector, in float64."""
    place = begin + tl.arange(0, BLOCK).to(tl.int64)
    there = place < n
    p = tl.load(values + place, mask=there, other=0.0).to(tl.float64)
    y = tl.load(given + place, mask=there, other=0.0).to(tl.float64)
    x = p
    if RULE == KEEP:
        x = tl.load(origin + place, mask=there, other=0.0).to(tl.float64)
    return p, y, x, place, there


@triton.jit
def sum_long(
    values,
    given,
    origin,
    norms,
    sums,
    n,
    part,
    value_stride,
    given_stride,
    origin_stride,
    RULE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up what the product needs over one part of a long vector.

    Sizes are in units of l2, about l2^2/l1: their mean where all entries are equal, so that the
    spread keeps its digits there.
    """
    row, number = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    l1, l2 = tl.load(norms + row * 2), tl.load(norms + row * 2 + 1)
    inverse = _quotient(1.0, l2)
    about = _quotient(l2, l1)
    c = tl.zeros((BLOCK,), tl.float64)
    s, m, q, d, xx, xy = c, c, c, c, c, c
    begin = number * part
    end = tl.minimum(begin + part, n)
    while begin < end:
        p, y, x, _, _ = _part(
            values + row * value_stride,
            given + row * given_stride,
            origin + row * origin_stride,
            begin,
            end,
            BLOCK,
            RULE,
        )
        inside = p != 0
        turned = tl.where(inside, tl.where(p < 0, -y, y), 0.0)
        t = tl.where(inside, tl.abs(p) * inverse - about, 0.0)
        c += tl.where(inside, 1.0, 0.0)
        s += turned
        m += t
        q += t * t
        d += t * turned
        if RULE == KEEP:
            xx += (x * inverse) * (x * inverse)
            xy += (x * inverse) * y
        begin += BLOCK
    at = sums + (row * tl.num_programs(0) + number) * SUMS
    tl.store(at, tl.sum(c, 0))
    tl.store(at + 1, tl.sum(s, 0))
    tl.store(at + 2, tl.sum(m, 0))
    tl.store(at + 3, tl.sum(q, 0))
    tl.store(at + 4, tl.sum(d, 0))
    tl.store(at + 5, tl.sum(xx, 0))
    tl.store(at + 6, tl.sum(xy, 0))


@triton.jit
def combine_long(
    sums,
    scales,
    norms,
    kepts,
    factors,
    parts,
    REVERSE: tl.constexpr,
    RULE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn the sums over a vector into z = a y + b sign(p) + c p + e x, on the support of p."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, WIDTH)
    base = sums + row * parts * SUMS + at * SUMS
    there = at < parts
    count = tl.maximum(tl.sum(tl.load(base, mask=there, other=0.0), 0), 1.0)
    total = tl.sum(tl.load(base + 1, mask=there, other=0.0), 0)
    m = tl.sum(tl.load(base + 2, mask=there, other=0.0), 0)
    q = tl.sum(tl.load(base + 3, mask=there, other=0.0), 0)
    d = tl.sum(tl.load(base + 4, mask=there, other=0.0), 0)
    xx = tl.sum(tl.load(base + 5, mask=there, other=0.0), 0)
    xy = tl.sum(tl.load(base + 6, mask=there, other=0.0), 0)
    l1, l2 = tl.load(norms + row * 2), tl.load(norms + row * 2 + 1)
    inverse = _quotient(1.0, l2)
    about = _quotient(l2, l1)
    gain = _quotient(1.0, tl.load(scales + row))
    centre = about + m / count
    spread = q - m * (m / count)
    # Below this there is rounding alone: all entries are equal.
    slope = tl.where(spread > 1e-13 * q, _quotient(d - (m / count) * total, spread), 0.0)
    dot = d + about * total
    by_y, by_sign, by_p, by_x = (
        gain,
        (slope * centre - total / count) * gain,
        -slope * gain,
        0.0 * gain,
    )
    outside = 0.0 * gain
    if ONLY_INCREASE:
        mark = tl.load(kepts + row)
        if mark != 0:
            length, square = m + count * about, q + 2 * about * m + count * about * about
            to_l1 = mark == TO_L1
            by_sign, by_p = 0.0 * gain, 0.0 * gain
            if REVERSE:
                by_sign = tl.where(to_l1, -gain * _quotient(dot, length), 0.0)
            else:
                by_p = tl.where(to_l1, -gain * _quotient(total, length), 0.0)
            by_p = tl.where(to_l1, by_p, -gain * _quotient(dot, square))
            outside = gain
    if RULE == KEEP:
        if REVERSE:
            by_x = _quotient(dot, xx)
        else:
            by_p += _quotient(xy, xx)
    elif RULE != FIXED:
        by_p += dot
    to = factors + row * SUMS
    tl.store(to, by_y)
    tl.store(to + 1, by_sign)
    tl.store(to + 2, by_p * inverse)
    tl.store(to + 3, by_x * inverse)
    tl.store(to + 4, outside)


@triton.jit
def write_long(
    values,
    given,
    origin,
    out,
    factors,
    n,
    value_stride,
    given_stride,
    origin_stride,
    out_stride,
    RULE: tl.constexpr,
    NONNEGATIVE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one block of the product."""
    row, number = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64)
    p, y, x, place, there = _part(
        values + row * value_stride,
        given + row * given_stride,
        origin + row * origin_stride,
        number * BLOCK,
        n,
        BLOCK,
        RULE,
    )
    at = factors + row * SUMS
    by_y, by_sign, by_p, by_x = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3)
    outside = tl.load(at + 4)
    z = by_y * y + tl.where(p < 0, -by_sign, by_sign) + by_p * p
    # Where a direction was kept, entries that are zero still move.
    z = tl.where(p != 0, z, 0.0 if NONNEGATIVE else outside * y)
    if RULE == KEEP:
        z += by_x * x
    tl.store(out + row * out_stride + place, z.to(out.dtype.element_ty), mask=there)
