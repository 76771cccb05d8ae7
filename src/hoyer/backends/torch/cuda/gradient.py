"""Algorithm 3: products with the Jacobian of the projection, from its result and scale alone.

The formulas are those of `calculus`, which see. On the support of p, with w the deviations of |p|
from their mean there, every product has the form

    z = by_y y + sign(p) (by_sign + by_w w) + by_x x

with a few numbers per vector, `factors`, that follow from sums over it. One pass takes the sums in
the arithmetic of the data, as they come: sizes, their squares, and their products with y. Where
these say that entries are nearly equal, or of a size that squares badly, the sums are taken again:
in units, a power of two, and about the mean.

Rows up to the registers of a program are read once; of longer ones as much as fits. Vectors of
which there are too few to fill the device are shared by several programs, by several kernels.

Lengths and strides are given in loads, V entries each, so that the compiler knows how entries are
aligned; parts of long vectors in pieces. A piece has three axes, (T, R, V): threads, vectors, and
the entries of a load of up to 16 bytes. Triton gives threads to the first two, so that sums over
the last and over pieces cost no communication. Pieces are kept apart, in tuples, and worked on one
after the other: the compiler would otherwise form all terms of a sum before it adds them up, and
run out of registers.
"""

import triton
import triton.language as tl

from .device import INFINITY, KEEP, NEAREST, TO_L1

FACTORS = tl.constexpr(8)
"""Numbers per vector that a product is written with."""
SUMS = tl.constexpr(16)
"""Numbers that a part of a long vector leaves behind."""


@triton.jit
def _quotient(a, b):
    """Return a/b, and 0 where b is."""
    return tl.where(b > 0, a / tl.where(b > 0, b, 1.0), 0.0)


@triton.jit
def _spread(numbers):
    """Give numbers per vector the axes of a piece."""
    return numbers[None, :, None]


# ---- entries ----


@triton.jit
def _places(T: tl.constexpr, V: tl.constexpr):
    """Return where the entries of a piece lie, neighbouring threads side by side."""
    return tl.arange(0, T)[:, None, None] * V + tl.arange(0, V)[None, None, :]


@triton.jit
def _entries(at, there, ALL: tl.constexpr, HINT: tl.constexpr):
    """Return entries in the type to compute in: half types in float32."""
    if ALL:
        loaded = tl.load(at, eviction_policy=HINT)
    else:
        loaded = tl.load(at, mask=there, other=0.0, eviction_policy=HINT)
    kind: tl.constexpr = tl.float64 if loaded.dtype == tl.float64 else tl.float32
    return loaded.to(kind)


@triton.jit
def _there(exists, place, n, EVEN: tl.constexpr):
    """Whether there are such entries; with EVEN they end where the vectors do."""
    there = _spread(exists)
    if not EVEN:
        there = there & (place < n)
    return there


@triton.jit
def _pieces(
    at,
    place,
    exists,
    n,
    NUMBER: tl.constexpr,
    STEP: tl.constexpr,
    EVEN: tl.constexpr,
    ALL: tl.constexpr,
    HINT: tl.constexpr,
):
    """Return pieces of the vectors, from `place` on."""
    found = ()
    for i in tl.static_range(NUMBER):
        there = _there(exists, place + i * STEP, n, EVEN)
        found = found + (_entries(at + place + i * STEP, there, ALL, HINT),)
    return found


@triton.jit
def _given(
    at,
    place,
    exists,
    n,
    ps,
    FIRST: tl.constexpr,
    NUMBER: tl.constexpr,
    STEP: tl.constexpr,
    EVEN: tl.constexpr,
    ALL: tl.constexpr,
    SKIP: tl.constexpr,
    HINT: tl.constexpr,
):
    """Return pieces of y; with SKIP those loads are left out that meet only zeros of p."""
    found = ()
    for i in tl.static_range(NUMBER):
        there = _there(exists, place + i * STEP, n, EVEN)
        if SKIP:
            some = (tl.sum(tl.abs(ps[FIRST + i]), 2) != 0)[:, :, None]
            if not ALL:
                some = some & there
            y = _entries(at + place + i * STEP, some, False, HINT)
        else:
            y = _entries(at + place + i * STEP, there, ALL, HINT)
        found = found + (y,)
    return found


@triton.jit
def _signed(y, p):
    """Return y with the sign changed where p is negative."""
    if p.dtype == tl.float64:
        bits = p.to(tl.int64, bitcast=True) & -0x8000000000000000
        result = (y.to(tl.int64, bitcast=True) ^ bits).to(tl.float64, bitcast=True)
    else:
        bits = p.to(tl.int32, bitcast=True) & -0x80000000
        result = (y.to(tl.int32, bitcast=True) ^ bits).to(tl.float32, bitcast=True)
    return result


# ---- sums: what each thread sees of them, in some pieces ----


@triton.jit
def _join5(a0, b0, c0, d0, e0, a1, b1, c1, d1, e1):
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1


@triton.jit
def _join3(a0, b0, c0, a1, b1, c1):
    return a0 + a1, b0 + b1, c0 + c1


@triton.jit
def _join2(a0, b0, a1, b1):
    return a0 + a1, b0 + b1


@triton.jit
def _join_extremes(h0, l0, h1, l1):
    return tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def _support_sums(c, t, s, ss, sy, ps, ys, FIRST: tl.constexpr, NUMBER: tl.constexpr):
    """Add d, <sign(p), y>, |p|, p^2 and <p, y>."""
    for i in tl.static_range(NUMBER):
        p = ps[FIRST + i]
        inside = p != 0
        y = tl.where(inside, ys[i], 0.0)
        c1, t1, s1, ss1, sy1 = tl.reduce(
            (inside.to(p.dtype), _signed(y, p), tl.abs(p), p * p, p * y), 2, _join5
        )
        c, t, s, ss, sy = c + c1, t + t1, s + s1, ss + ss1, sy + sy1
    return c, t, s, ss, sy


@triton.jit
def _origin_sums(xx, xy, xs, ys, inverse, NUMBER: tl.constexpr):
    """Add x^2 and <x, y>, x in units."""
    for i in tl.static_range(NUMBER):
        x = xs[i] * inverse
        xx1, xy1 = tl.reduce((x * x, x * ys[i]), 2, _join2)
        xx, xy = xx + xx1, xy + xy1
    return xx, xy


@triton.jit
def _extremes(high, low, ps, NUMBER: tl.constexpr):
    """Return the largest entry, and the smallest of the support."""
    for i in tl.static_range(NUMBER):
        size = tl.abs(ps[i])
        h, l = tl.reduce(  # noqa: E741
            (size, tl.where(ps[i] != 0, size, INFINITY)), 2, _join_extremes
        )
        high, low = tl.maximum(high, h), tl.minimum(low, l)
    return high, low


@triton.jit
def _centred_sums(m, q, d, ps, ys, inverse, about, FIRST: tl.constexpr, NUMBER: tl.constexpr):
    """Add w, w^2 and <w, y>, w = |p| inverse - about."""
    for i in tl.static_range(NUMBER):
        p = ps[FIRST + i]
        inside = p != 0
        w = tl.where(inside, tl.abs(p) * inverse - about, 0.0)
        y = tl.where(inside, ys[i], 0.0)
        m1, q1, d1 = tl.reduce((w, w * w, w * _signed(y, p)), 2, _join3)
        m, q, d = m + m1, q + q1, d + d1
    return m, q, d


@triton.jit
def _inverse_unit(largest):
    """Return a power of two that brings the largest entry below 4, and to 1 if it is normal."""
    if largest.dtype == tl.float64:
        bits = largest.to(tl.int64, bitcast=True) & 0x7FF0000000000000
        bits = 0x7FE0000000000000 - tl.minimum(bits, 0x7FD0000000000000)
        result = bits.to(tl.float64, bitcast=True)
    else:
        bits = largest.to(tl.int32, bitcast=True) & 0x7F800000
        bits = 0x7F000000 - tl.minimum(bits, 0x7E800000)
        result = bits.to(tl.float32, bitcast=True)
    return result


@triton.jit
def _is_ordinary(
    count, length, square, xx, RULE: tl.constexpr, DOUBLE: tl.constexpr, HALF: tl.constexpr
):
    """Whether plain sums are good enough: entries that differ, and are neither small nor large."""
    low: tl.constexpr = 1e-100 if DOUBLE else 1e-12
    # The spread is a difference; this is how much of its digits may be lost.
    share: tl.constexpr = 1 / 256 if HALF else 1 / 8
    spread = square - length * (length / tl.maximum(count, 1.0))
    fine = (spread > share * square) & (square > low) & (square < 1 / low)
    if RULE == KEEP:
        fine = fine & (xx > low) & (xx < 1 / low)
    return fine


# ---- from sums to factors ----


@triton.jit
def _factors(
    count,
    total,
    m,
    q,
    d,
    xx,
    xy,
    about,
    inverse,
    inverse_x,
    differs,
    scale,
    mark,
    ratio,
    log_norm,
    log_kept,
    RULE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    BOTH_NORMS: tl.constexpr,
    REVERSE: tl.constexpr,
    kind: tl.constexpr,
):
    """Return the factors, and how the target moves (reverse) or beta does (forward, as the first).

    m, q and d are the sums of w, w^2 and w y, w = |p| inverse - about; `ratio`, `log_norm` and
    `log_kept` say how the target moves (forward): see `targets.Changes`.
    """
    count = tl.maximum(count, 1.0)
    gain = _quotient(1.0, scale)
    shift, mean = m / count, total / count
    # The mean as the entries' type has it, and what that leaves out.
    centre = (about + shift).to(kind).to(m.dtype)
    remainder = (about - centre) + shift
    spread = q - m * shift
    # Equal entries have no spread; rounding of their mean must not invent one.
    steep = tl.where(differs, _quotient(1.0, spread), 0.0)
    slope = (d - shift * total) * steep
    # Norms and <p, y>, in units.
    length, dot = m + count * about, d + about * total
    square = q + about * (2 * m + count * about)
    unit, unit_x = 1.0 / inverse, 1.0 / inverse_x

    # z = by_y y + sign(p) (by_sign + by_w (w - remainder)) + by_p p + by_x x at first.
    by_sign, by_w = -mean * gain, -slope * gain
    by_p, by_x, outside = 0.0 * gain, 0.0 * gain, 0.0 * gain
    moved = slope * inverse
    free, is_kept = differs, mark != 0
    if ONLY_INCREASE:
        # (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the
        # L1 norm was.
        to_l1 = mark == TO_L1
        free = free & ~is_kept
        along_l1, along_l2 = _quotient(total, length), _quotient(dot, square)
        if REVERSE:
            sideways = tl.where(to_l1, -gain * _quotient(dot, length), 0.0)
            onto = tl.where(to_l1, 0.0, -gain * along_l2)
        else:
            sideways = 0.0 * gain
            onto = -gain * tl.where(to_l1, along_l1, along_l2)
        by_sign, by_w = tl.where(is_kept, sideways, by_sign), tl.where(is_kept, 0.0, by_w)
        by_p = tl.where(is_kept, onto, 0.0)
        outside = tl.where(is_kept, gain, 0.0)
        moved = tl.where(is_kept, tl.where(to_l1, along_l1, along_l2) * inverse, moved)
    follows = 0.0 * gain
    if RULE == KEEP:
        if REVERSE:
            by_x = _quotient(dot, xx) * (unit * inverse_x)
        else:
            follows = _quotient(xy, xx) * inverse_x
            by_p += _quotient(xy, xx) * (unit * inverse_x)
    elif RULE == NEAREST:
        follows = _quotient(dot, square) * inverse
        by_p += _quotient(dot, square)
    # What the ratio of norms does to p, on the support: (l2/d)(sign - l1 w/<w, w>).
    l2 = tl.sqrt(square)
    by_ratio = tl.where(free, l2 * unit / count, 0.0)
    norm_by_ratio = 0.0 * gain
    if RULE == NEAREST:
        norm_by_ratio = tl.where(free, (1 - scale) * _quotient(l2, length), 0.0)
    if REVERSE:
        norm = dot * unit
        ratio = by_ratio * (total - length * slope) + norm_by_ratio * norm
        log_norm = tl.where(is_kept, 0.0, norm)
        if BOTH_NORMS:
            log_norm = tl.where(differs, log_norm, 0.0)
        log_kept = tl.where(is_kept, norm, 0.0)
    else:
        norm = tl.where(is_kept, log_kept, log_norm)
        if BOTH_NORMS:
            # Where b = 0 the derivatives by two given norms are defined as zero.
            norm = tl.where(differs | is_kept, norm, 0.0)
        norm += norm_by_ratio * ratio
        by_sign += by_ratio * ratio
        by_w -= by_ratio * length * steep * ratio
        by_p += norm * unit
        by_norm = tl.where(free, length * l2 / count * steep, 0.0) * ratio - norm
        ratio = moved - scale * follows + scale * by_norm
    by_sign += by_p * centre - by_w * remainder
    by_w += by_p
    factors = (gain, by_sign, by_w, by_x, outside, inverse, centre, inverse_x)
    return factors, ratio, log_norm, log_kept


@triton.jit
def _product(p, y, x, by, BY_X: tl.constexpr, OUTSIDE: tl.constexpr):
    """Return entries of the product, from the factors."""
    by_y, by_sign, by_w, by_x, outside, inverse, centre, inverse_x = by
    w = tl.abs(p) * inverse - centre
    z = by_y * y + _signed(by_sign + by_w * w, p)
    # The mask last: of subnormal vectors 1/beta overflows.
    if OUTSIDE:
        # Where a direction was kept, entries that are zero still move.
        z = tl.where(p != 0, z, tl.where(outside > 0, outside * y, 0.0))
    else:
        z = tl.where(p != 0, z, 0.0)
    if BY_X:
        z += by_x * (x * inverse_x)
    return z


# ---- vectors of one program ----


@triton.jit
def _careful_sums(
    values,
    given,
    origin,
    count,
    exists,
    n,
    RULE: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Return sums in units and about the mean; also where that is, and whether entries differ.

    Everything is read again, piece by piece: this is rare, and must not take registers.
    """
    DOUBLE: tl.constexpr = values.dtype.element_ty == tl.float64
    kind: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    zero = tl.zeros((T, R), kind)
    high, low, high_x = zero, zero + INFINITY, zero
    place = _places(T, V)
    start = n * 0
    while start < n:
        there = _there(exists, place + start, n, False)
        high, low = _extremes(high, low, (_entries(values + place + start, there, False, ""),), 1)
        if RULE == KEEP:
            x = _entries(origin + place + start, there, False, "")
            high_x, _ = _extremes(high_x, zero, (x,), 1)
        start += T * V
    highest, lowest = tl.reduce((high, low), 0, _join_extremes)
    inverse, inverse_x = _inverse_unit(highest), _inverse_unit(tl.max(high_x, 0))

    length = zero
    start = n * 0
    while start < n:
        there = _there(exists, place + start, n, False)
        p = _entries(values + place + start, there, False, "")
        length += tl.sum(tl.abs(p) * _spread(inverse), 2)
        start += T * V
    about = (tl.sum(length.to(count.dtype), 0) / tl.maximum(count, 1.0)).to(kind)

    m, q, d, xx, xy = zero, zero, zero, zero, zero
    start = n * 0
    while start < n:
        there = _there(exists, place + start, n, False)
        p = _entries(values + place + start, there, False, "")
        y = _entries(given + place + start, there, False, "")
        m, q, d = _centred_sums(m, q, d, (p,), (y,), _spread(inverse), _spread(about), 0, 1)
        if RULE == KEEP:
            x = _entries(origin + place + start, there, False, "")
            xx, xy = _origin_sums(xx, xy, (x,), (y,), _spread(inverse_x), 1)
        start += T * V
    wide: tl.constexpr = count.dtype
    m, q, d = tl.reduce((m.to(wide), q.to(wide), d.to(wide)), 0, _join3)
    xx, xy = tl.reduce((xx.to(wide), xy.to(wide)), 0, _join2)
    differs = lowest < highest
    return m, q, d, xx, xy, about.to(wide), inverse.to(wide), inverse_x.to(wide), differs


@triton.jit(do_not_specialize=["rows"])
def multiply_rows(
    values,
    given,
    origin,
    out,
    scales,
    kepts,
    changes,
    moves,
    rows,
    n,
    value_stride,
    given_stride,
    origin_stride,
    out_stride,
    RULE: tl.constexpr,
    OUTSIDE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    BOTH_NORMS: tl.constexpr,
    REVERSE: tl.constexpr,
    NUMBERS: tl.constexpr,
    EVEN: tl.constexpr,
    STREAM: tl.constexpr,
    SKIP: tl.constexpr,
    HOLD: tl.constexpr,
    HINTS: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Multiply R vectors per program by their Jacobians, or the transposes of those.

    The first P pieces of p stay in registers, and with HOLD those of y and x, which are otherwise
    read again, G pieces at a time. With STREAM there is more, and all of that is read twice. With
    NUMBERS what y says about the target is written to `changes` (reverse), or the target moves as
    `changes` say, and what beta does is written to `moves` (forward).
    """
    n *= V
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    exists = row < rows
    values += _spread(row * value_stride * V)
    given += _spread(row * given_stride * V)
    origin += _spread(row * origin_stride * V)
    out += _spread(row * out_stride * V)
    here = _places(T, V)
    STEP: tl.constexpr = T * V
    FULL: tl.constexpr = EVEN or STREAM
    ALL: tl.constexpr = FULL and R == 1
    AT_ONCE: tl.constexpr = P if HOLD else G
    GROUPS: tl.constexpr = 0 if P == 0 else P // AT_ONCE
    HALF: tl.constexpr = values.dtype.element_ty.primitive_bitwidth == 16
    DOUBLE: tl.constexpr = values.dtype.element_ty == tl.float64
    kind: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    # Sums over many entries are added up in double.
    wide: tl.constexpr = tl.float64 if STREAM else kind
    BY_X: tl.constexpr = RULE == KEEP and REVERSE
    STAY: tl.constexpr = "evict_last" if HINTS else ""
    GO: tl.constexpr = "evict_first" if HINTS else ""
    ONCE: tl.constexpr = GO if HOLD else STAY

    ps = _pieces(values, here, exists, n, P, STEP, FULL, ALL, GO)
    ys, xs = (), ()
    zero = tl.zeros((T, R), kind)
    c, t, s, ss, sy, xx, xy = zero, zero, zero, zero, zero, zero, zero
    if STREAM:
        begin = n * 0 + P * STEP
        while begin < n:
            place = here + begin
            p = _pieces(values, place, exists, n, G, STEP, False, False, STAY)
            y = _given(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, STAY)
            c, t, s, ss, sy = _support_sums(c, t, s, ss, sy, p, y, 0, G)
            if RULE == KEEP:
                x = _pieces(origin, place, exists, n, G, STEP, False, False, STAY)
                xx, xy = _origin_sums(xx, xy, x, y, 1.0, G)
            begin += G * STEP
    for i in tl.static_range(GROUPS):
        place = here + i * AT_ONCE * STEP
        y = _given(given, place, exists, n, ps, i * AT_ONCE, AT_ONCE, STEP, FULL, ALL, SKIP, ONCE)
        c, t, s, ss, sy = _support_sums(c, t, s, ss, sy, ps, y, i * AT_ONCE, AT_ONCE)
        if RULE == KEEP:
            x = _pieces(origin, place, exists, n, AT_ONCE, STEP, FULL, ALL, ONCE)
            xx, xy = _origin_sums(xx, xy, x, y, 1.0, AT_ONCE)
        if HOLD:
            ys = y
            if RULE == KEEP:
                xs = x
    count, total, m, q, d = tl.reduce(
        (c.to(wide), t.to(wide), s.to(wide), ss.to(wide), sy.to(wide)), 0, _join5
    )
    about, inverse, inverse_x = count * 0, count * 0 + 1, count * 0 + 1
    xxs, xys = about, about
    if RULE == KEEP:
        xxs, xys = tl.reduce((xx.to(wide), xy.to(wide)), 0, _join2)
    differs = count == count

    left = exists & ~_is_ordinary(count, m, q, xxs, RULE, DOUBLE, HALF)
    if tl.max(left.to(tl.int32), 0) > 0:
        m, q, d, xxs, xys, about, inverse, inverse_x, differs = _careful_sums(
            values, given, origin, count, exists, n, RULE, R, T, V
        )

    scale = tl.load(scales + row, mask=exists, other=0.0).to(wide)
    mark = (row * 0).to(tl.int8)
    if ONLY_INCREASE:
        mark = tl.load(kepts + row, mask=exists, other=0)
    ratio, log_norm, log_kept = scale * 0, scale * 0, scale * 0
    if NUMBERS and not REVERSE:
        ratio = tl.load(changes + row * 3, mask=exists, other=0.0).to(wide)
        log_norm = tl.load(changes + row * 3 + 1, mask=exists, other=0.0).to(wide)
        log_kept = tl.load(changes + row * 3 + 2, mask=exists, other=0.0).to(wide)
    factors, ratio, log_norm, log_kept = _factors(
        count,
        total,
        m,
        q,
        d,
        xxs,
        xys,
        about,
        inverse,
        inverse_x,
        differs,
        scale,
        mark,
        ratio,
        log_norm,
        log_kept,
        RULE,
        ONLY_INCREASE,
        BOTH_NORMS,
        REVERSE,
        kind,
    )
    if NUMBERS:
        if REVERSE:
            tl.store(changes + row * 3, ratio.to(tl.float64), mask=exists)
            tl.store(changes + row * 3 + 1, log_norm.to(tl.float64), mask=exists)
            tl.store(changes + row * 3 + 2, log_kept.to(tl.float64), mask=exists)
        else:
            tl.store(moves + row, ratio.to(tl.float64), mask=exists)

    by = ()
    for i in tl.static_range(FACTORS):
        by = by + (_spread(factors[i].to(kind)),)
    for i in tl.static_range(GROUPS):
        place = here + i * AT_ONCE * STEP
        if HOLD:
            y = ys
        else:
            y = _given(given, place, exists, n, ps, i * AT_ONCE, AT_ONCE, STEP, FULL, ALL, SKIP, GO)
        x = y
        if BY_X:
            if HOLD:
                x = xs
            else:
                x = _pieces(origin, place, exists, n, AT_ONCE, STEP, FULL, ALL, GO)
        for k in tl.static_range(AT_ONCE):
            z = _product(ps[i * AT_ONCE + k], y[k], x[k], by, BY_X, OUTSIDE).to(
                out.dtype.element_ty
            )
            if ALL:
                tl.store(out + place + k * STEP, z)
            else:
                there = _there(exists, place + k * STEP, n, FULL)
                tl.store(out + place + k * STEP, z, mask=there)
    if STREAM:
        # Backwards: what was read last is still in the cache.
        begin = P * STEP + (n - P * STEP - 1) // (G * STEP) * (G * STEP)
        while begin >= P * STEP:
            place = here + begin
            p = _pieces(values, place, exists, n, G, STEP, False, False, GO)
            y = _given(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, GO)
            x = y
            if BY_X:
                x = _pieces(origin, place, exists, n, G, STEP, False, False, GO)
            for k in tl.static_range(G):
                z = _product(p[k], y[k], x[k], by, BY_X, OUTSIDE).to(out.dtype.element_ty)
                there = _there(exists, place + k * STEP, n, False)
                tl.store(out + place + k * STEP, z, mask=there)
            begin -= G * STEP


# ---- vectors that several programs share ----


@triton.jit
def sum_long(
    values,
    given,
    origin,
    sums,
    n,
    part,
    parts,
    value_stride,
    given_stride,
    origin_stride,
    RULE: tl.constexpr,
    SKIP: tl.constexpr,
    G: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add up what the product needs over one part of a long vector."""
    number = tl.program_id(0).to(tl.int64)
    row, begin = number // parts, number % parts * (part * T * V)
    end = tl.minimum(begin + part * T * V, n.to(tl.int64) * V)
    here = _places(T, V)
    exists = tl.full((1,), 1, tl.int1)
    STEP: tl.constexpr = T * V
    values += row * value_stride * V
    given += row * given_stride * V
    origin += row * origin_stride * V
    kind: tl.constexpr = tl.float64 if values.dtype.element_ty == tl.float64 else tl.float32
    c = tl.zeros((T, 1), kind)
    t, s, ss, sy, xx, xy, high, high_x = c, c, c, c, c, c, c, c
    low = tl.full((T, 1), INFINITY, kind)
    while begin < end:
        place = here + begin
        p = _pieces(values, place, exists, end, G, STEP, False, False, "")
        y = _given(given, place, exists, end, p, 0, G, STEP, False, False, SKIP, "")
        c, t, s, ss, sy = _support_sums(c, t, s, ss, sy, p, y, 0, G)
        high, low = _extremes(high, low, p, G)
        if RULE == KEEP:
            x = _pieces(origin, place, exists, end, G, STEP, False, False, "")
            xx, xy = _origin_sums(xx, xy, x, y, 1.0, G)
            high_x, _ = _extremes(high_x, low, x, G)
        begin += G * STEP
    wide: tl.constexpr = tl.float64
    at = sums + number * SUMS + tl.arange(0, 1)
    c, t, s, ss, sy = tl.reduce(
        (c.to(wide), t.to(wide), s.to(wide), ss.to(wide), sy.to(wide)), 0, _join5
    )
    high, low = tl.reduce((high.to(wide), low.to(wide)), 0, _join_extremes)
    tl.store(at, c)
    tl.store(at + 1, t)
    tl.store(at + 2, s)
    tl.store(at + 3, ss)
    tl.store(at + 4, sy)
    tl.store(at + 5, high)
    tl.store(at + 6, low)
    if RULE == KEEP:
        tl.store(at + 7, tl.sum(xx.to(wide), 0))
        tl.store(at + 8, tl.sum(xy.to(wide), 0))
        tl.store(at + 9, tl.max(high_x.to(wide), 0))


@triton.jit
def sum_again_long(
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
    SKIP: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add up once more, in double, in units and about the mean, where that was found necessary."""
    number = tl.program_id(0).to(tl.int64)
    row, begin = number // parts, number % parts * (part * T * V)
    if tl.load(plans + row * 4) != 0:
        end = tl.minimum(begin + part * T * V, n.to(tl.int64) * V)
        inverse, about = tl.load(plans + row * 4 + 1), tl.load(plans + row * 4 + 2)
        inverse_x = tl.load(plans + row * 4 + 3)
        here = _places(T, V)
        exists = tl.full((1,), 1, tl.int1)
        values += row * value_stride * V
        given += row * given_stride * V
        origin += row * origin_stride * V
        s = tl.zeros((T, 1), tl.float64)
        ss, sy, xx, xy = s, s, s, s
        while begin < end:
            place = here + begin
            p = _pieces(values, place, exists, end, 1, T * V, False, False, "")
            y = _given(given, place, exists, end, p, 0, 1, T * V, False, False, SKIP, "")
            p, y = (p[0].to(tl.float64),), (y[0].to(tl.float64),)
            s, ss, sy = _centred_sums(s, ss, sy, p, y, inverse, about, 0, 1)
            if RULE == KEEP:
                x = _pieces(origin, place, exists, end, 1, T * V, False, False, "")
                xx, xy = _origin_sums(xx, xy, (x[0].to(tl.float64),), y, inverse_x, 1)
            begin += T * V
        at = sums + number * SUMS + tl.arange(0, 1)
        s, ss, sy = tl.reduce((s, ss, sy), 0, _join3)
        tl.store(at + 2, s)
        tl.store(at + 3, ss)
        tl.store(at + 4, sy)
        if RULE == KEEP:
            tl.store(at + 7, tl.sum(xx, 0))
            tl.store(at + 8, tl.sum(xy, 0))


@triton.jit
def combine_long(
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
    DOUBLE: tl.constexpr,
    HALF: tl.constexpr,
    SECOND: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn the sums over a vector into its factors; plan to sum SECOND if these will not do."""
    kind: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    plan = plans + row * 4
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
            _join5,
        )
        high = tl.max(tl.load(base + 5, mask=there, other=0.0), 0)
        low = tl.min(tl.load(base + 6, mask=there, other=INFINITY), 0)
        xx, xy, high_x = count * 0, count * 0, count * 0
        if RULE == KEEP:
            xx = tl.sum(tl.load(base + 7, mask=there, other=0.0), 0)
            xy = tl.sum(tl.load(base + 8, mask=there, other=0.0), 0)
            high_x = tl.max(tl.load(base + 9, mask=there, other=0.0), 0)
        about, inverse, inverse_x = count * 0, count * 0 + 1, count * 0 + 1
        if SECOND:
            inverse, about, inverse_x = tl.load(plan + 1), tl.load(plan + 2), tl.load(plan + 3)
        else:
            left = ~_is_ordinary(count, m, q, xx, RULE, DOUBLE, HALF)
            by = _inverse_unit(high.to(kind)).to(tl.float64)
            middle = m / tl.maximum(count, 1.0)
            # A mean beyond the range of the data is none; these entries are then about equal.
            middle = tl.where(middle <= high, middle, high / 2 + low / 2)
            tl.store(plan, left.to(tl.float64))
            tl.store(plan + 1, by)
            tl.store(plan + 2, tl.where(count > 0, middle * by, 0.0))
            tl.store(plan + 3, _inverse_unit(high_x.to(kind)).to(tl.float64))
        scale = tl.load(scales + row)
        mark = (row * 0).to(tl.int8)
        if ONLY_INCREASE:
            mark = tl.load(kepts + row)
        ratio, log_norm, log_kept = scale * 0, scale * 0, scale * 0
        if NUMBERS and not REVERSE:
            ratio = tl.load(changes + row * 3)
            log_norm = tl.load(changes + row * 3 + 1)
            log_kept = tl.load(changes + row * 3 + 2)
        found, ratio, log_norm, log_kept = _factors(
            count,
            total,
            m,
            q,
            d,
            xx,
            xy,
            about,
            inverse,
            inverse_x,
            low < high,
            scale,
            mark,
            ratio,
            log_norm,
            log_kept,
            RULE,
            ONLY_INCREASE,
            BOTH_NORMS,
            REVERSE,
            kind,
        )
        to = factors + row * FACTORS
        for i in tl.static_range(FACTORS):
            tl.store(to + i, found[i])
        if NUMBERS:
            if REVERSE:
                tl.store(changes + row * 3, ratio)
                tl.store(changes + row * 3 + 1, log_norm)
                tl.store(changes + row * 3 + 2, log_kept)
            else:
                tl.store(moves + row, ratio)


@triton.jit
def write_long(
    values,
    given,
    origin,
    out,
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
    SKIP: tl.constexpr,
    G: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Write a few pieces of the product; the last ones first, which are still in the cache."""
    number = tl.num_programs(0).to(tl.int64) - 1 - tl.program_id(0)
    row = number // parts
    n = n.to(tl.int64) * V
    STEP: tl.constexpr = T * V
    place = _places(T, V) + number % parts * (G * STEP)
    exists = tl.full((1,), 1, tl.int1)
    BY_X: tl.constexpr = RULE == KEEP and REVERSE
    HINT: tl.constexpr = "evict_first"
    values += row * value_stride * V
    given += row * given_stride * V
    p = _pieces(values, place, exists, n, G, STEP, False, False, HINT)
    y = _given(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, HINT)
    x = y
    if BY_X:
        origin += row * origin_stride * V
        x = _pieces(origin, place, exists, n, G, STEP, False, False, HINT)
    by = ()
    for i in tl.static_range(FACTORS):
        by = by + (tl.load(factors + row * FACTORS + i).to(p[0].dtype),)
    for k in tl.static_range(G):
        z = _product(p[k], y[k], x[k], by, BY_X, OUTSIDE).to(out.dtype.element_ty)
        to = out + row * out_stride * V + place + k * STEP
        tl.store(to, z, mask=_there(exists, place + k * STEP, n, False))
