"""Algorithm 3: products with the Jacobian of the projection, from its result and scale alone.

The formulas are those of `calculus`, which see. On the support of p, with u the entries of y times
the signs of p, and w the deviations of |p| from their mean there, every product has the form

    z = by_y y + sign(p) (by_sign + by_w w) + by_x x = sign(p) (by_y u + by_sign + by_w w) + by_x x

with a few numbers per vector, `factors`, that follow from sums over it. One pass takes the sums in
the arithmetic of the data, as they come: |p|, its square, and products with u. Where these say
that entries are nearly equal, or of a size that squares badly, or that y or beta are very large or
small, everything is done again, in double: sums in units, powers of two, and about the mean, so
that a product is rounded to a subnormal number but once.

Rows up to the registers of a program are read once; of longer ones as much as fits. Vectors of
which there are too few to fill the device are shared by several programs: `gradient_long`.

Vectors are made of words: entries, or pairs of them in the half types, as integers. What can be
done to the bits of a pair is done to both at once: signs, and zeros where p has them. Lengths and
strides are given in loads, V words each, so that the compiler knows how words are aligned; parts of
long vectors in pieces. A piece has three axes, (T, R, V): threads, vectors, and the words of a load
of up to 16 bytes. Triton gives threads to the first two, so that sums over the last and over pieces
cost no communication. Pieces are kept apart, in tuples, and worked on one after the other: the
compiler would otherwise form all terms of a sum before it adds them up, and run out of registers.
"""

import triton
import triton.language as tl

from .device import INFINITY, KEEP, NEAREST, TO_L1

FACTORS = tl.constexpr(10)
"""Numbers per vector that a product is written with."""

MAGNITUDES, SIGNS = tl.constexpr(0x7FFF7FFF), tl.constexpr(-0x7FFF8000)
"""The bits of a pair that tell magnitudes, and signs."""


@triton.jit
def quotient(a, b):
    """Return a/b, and 0 where b is."""
    return tl.where(b > 0, a / tl.where(b > 0, b, 1.0), 0.0)


@triton.jit
def spread(numbers):
    """Give numbers per vector the axes of a piece."""
    return numbers[None, :, None]


# ---- words ----


@triton.jit
def in_words(at, row, stride, V: tl.constexpr, PAIRS: tl.constexpr):
    """Return where vectors begin, as pointers to words."""
    if PAIRS:
        at = at.to(tl.pointer_type(tl.int32), bitcast=True)
    return at + row * stride * V


@triton.jit
def floats_of(words, KIND: tl.constexpr):
    """Return the entries of words, in the type to compute in."""
    if words.dtype.is_int():
        if tl.bfloat16 == KIND:
            low = (words << 16).to(tl.float32, bitcast=True)
            high = (words & -0x10000).to(tl.float32, bitcast=True)
        else:
            low = words.to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
            high = (words >> 16).to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
        result = (low, high)
    else:
        result = (words,)
    return result


@triton.jit
def words_of(floats, KIND: tl.constexpr, PAIRS: tl.constexpr):
    """Return words of entries; those of pairs are rounded to the type of the data."""
    if PAIRS:
        low = floats[0].to(KIND).to(tl.int16, bitcast=True).to(tl.int32)
        high = floats[1].to(KIND).to(tl.int16, bitcast=True).to(tl.int32)
        result = (low & 0xFFFF) | (high << 16)
    else:
        result = floats[0]
    return result


@triton.jit
def inside(p):
    """Mark entries that are not zero by ones, to be added up; of pairs in both halves of words."""
    if p.dtype.is_int():
        # Adding carries any bit of a magnitude up to the sign's.
        marks = (((p & MAGNITUDES) + MAGNITUDES) >> 15) & 0x10001
    else:
        marks = (p != 0).to(p.dtype)
    return marks


@triton.jit
def marks_in(sums, PAIRS: tl.constexpr):
    """Return how many marks were added up."""
    if PAIRS:
        sums = (sums & 0xFFFF) + (sums >> 16)
    return sums


@triton.jit
def sizes(p):
    """Return the magnitudes, as words."""
    if p.dtype.is_int():
        result = p & MAGNITUDES
    else:
        result = tl.abs(p)
    return result


@triton.jit
def signed(y, p):
    """Return y with the sign changed where p is negative."""
    if p.dtype.is_int():
        result = y ^ (p & SIGNS)
    else:
        BITS: tl.constexpr = tl.int64 if p.dtype == tl.float64 else tl.int32
        SIGN: tl.constexpr = -0x8000000000000000 if p.dtype == tl.float64 else -0x80000000
        sign = p.to(BITS, bitcast=True) & SIGN
        result = (y.to(BITS, bitcast=True) ^ sign).to(p.dtype, bitcast=True)
    return result


@triton.jit
def turned(y, p):
    """Return y times the sign of p: zero where that is, whatever y is there."""
    if p.dtype.is_int():
        y = y & (inside(p) * 0xFFFF)
    else:
        y = tl.where(p != 0, y, 0.0)
    return signed(y, p)


# ---- pieces ----


@triton.jit
def places(T: tl.constexpr, V: tl.constexpr):
    """Return where the words of a piece lie, neighbouring threads side by side."""
    return tl.arange(0, T)[:, None, None] * V + tl.arange(0, V)[None, None, :]


@triton.jit
def is_there(exists, place, n, EVEN: tl.constexpr):
    """Whether there are such words; with EVEN they end where the vectors do."""
    there = spread(exists)
    if not EVEN:
        there = there & (place < n)
    return there


@triton.jit
def load_words(at, there, ALL: tl.constexpr, HINT: tl.constexpr):
    """Return words; entries of their own come in the type to compute in, half types in float32."""
    if ALL:
        words = tl.load(at, eviction_policy=HINT)
    else:
        words = tl.load(at, mask=there, other=0, eviction_policy=HINT)
    if words.dtype.is_floating() and words.dtype != tl.float64:
        words = words.to(tl.float32)
    return words


@triton.jit
def pieces_of(
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
        there = is_there(exists, place + i * STEP, n, EVEN)
        found = found + (load_words(at + place + i * STEP, there, ALL, HINT),)
    return found


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def pieces_of_y(
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
        there = is_there(exists, place + i * STEP, n, EVEN)
        if SKIP:
            size = sizes(ps[FIRST + i])
            if size.dtype.is_int():
                some = tl.reduce(size, 2, _either) != 0
            else:
                # This sum is needed anyway.
                some = tl.sum(size, 2) != 0
            some = some[:, :, None]
            if not ALL:
                some = some & there
            y = load_words(at + place + i * STEP, some, False, HINT)
        else:
            y = load_words(at + place + i * STEP, there, ALL, HINT)
        found = found + (y,)
    return found


# ---- sums: what each thread sees of them, in some pieces ----


@triton.jit
def join5(a0, b0, c0, d0, e0, a1, b1, c1, d1, e1):  # noqa: D103
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1


@triton.jit
def join4(a0, b0, c0, d0, a1, b1, c1, d1):  # noqa: D103
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1


@triton.jit
def join2(a0, b0, a1, b1):  # noqa: D103
    return a0 + a1, b0 + b1


@triton.jit
def join_extremes(h0, l0, h1, l1):  # noqa: D103
    return tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def support_sums(
    c, t, s, ss, su, ps, ys, FIRST: tl.constexpr, NUMBER: tl.constexpr, KIND: tl.constexpr
):
    """Add marks, u, |p|, p^2 and |p| u."""
    for i in tl.static_range(NUMBER):
        p = ps[FIRST + i]
        c += tl.sum(inside(p), 2)
        size, u = floats_of(sizes(p), KIND), floats_of(turned(ys[i], p), KIND)
        for k in tl.static_range(len(size)):
            a = size[k]
            t1, s1, ss1, su1 = tl.reduce((u[k], a, a * a, a * u[k]), 2, join4)
            t, s, ss, su = t + t1, s + s1, ss + ss1, su + su1
    return c, t, s, ss, su


@triton.jit
def origin_sums(xx, xy, xs, ys, inverse, inverse_y, NUMBER: tl.constexpr, KIND: tl.constexpr):
    """Add x^2 and <x, y>, both in units."""
    for i in tl.static_range(NUMBER):
        x, y = floats_of(xs[i], KIND), floats_of(ys[i], KIND)
        for k in tl.static_range(len(x)):
            scaled = x[k].to(xx.dtype) * inverse
            by_y = scaled * (y[k].to(xx.dtype) * inverse_y)
            xx1, xy1 = tl.reduce((scaled * scaled, by_y), 2, join2)
            xx, xy = xx + xx1, xy + xy1
    return xx, xy


@triton.jit
def extremes(high, low, ps, NUMBER: tl.constexpr, KIND: tl.constexpr):
    """Return the largest entry, and the smallest of the support."""
    for i in tl.static_range(NUMBER):
        size = floats_of(sizes(ps[i]), KIND)
        for k in tl.static_range(len(size)):
            a = size[k]
            h, l = tl.reduce((a, tl.where(a != 0, a, INFINITY)), 2, join_extremes)  # noqa: E741
            high, low = tl.maximum(high, h), tl.minimum(low, l)
    return high, low


@triton.jit
def centred_sums(t, m, q, d, p, y, inverse, about, inverse_y, KIND: tl.constexpr):
    """Add u, w, w^2 and w u of one piece, w = |p| inverse - about, and u in units too."""
    size, u = floats_of(sizes(p), KIND), floats_of(turned(y, p), KIND)
    for k in tl.static_range(len(size)):
        w = tl.where(size[k] != 0, size[k].to(m.dtype) * inverse - about, 0.0)
        v = u[k].to(m.dtype) * inverse_y
        t1, m1, q1, d1 = tl.reduce((v, w, w * w, w * v), 2, join4)
        t, m, q, d = t + t1, m + m1, q + q1, d + d1
    return t, m, q, d


@triton.jit
def largest_given(high, p, y, everywhere, KIND: tl.constexpr):
    """Return the largest y of one piece that counts: on the support, or everywhere."""
    inside, given = floats_of(p, KIND), floats_of(y, KIND)
    for k in tl.static_range(len(given)):
        size = tl.abs(given[k])
        # Infinity is itself in all units.
        counts = ((inside[k] != 0) | everywhere) & (size < INFINITY)
        high = tl.maximum(high, tl.max(tl.where(counts, size, 0.0), 2))
    return high


@triton.jit
def inverse_unit(largest):
    """Return a power of four that brings the largest entry below 4, and to 1/2 if it is normal."""
    if largest.dtype == tl.float64:
        bits = (largest.to(tl.int64, bitcast=True) & 0x7FF0000000000000) | 0x10000000000000
        bits = 0x7FE0000000000000 - tl.minimum(bits, 0x7FD0000000000000)
        result = bits.to(tl.float64, bitcast=True)
    else:
        bits = (largest.to(tl.int32, bitcast=True) & 0x7F800000) | 0x800000
        bits = 0x7F000000 - tl.minimum(bits, 0x7E800000)
        result = bits.to(tl.float32, bitcast=True)
    return result


@triton.jit
def inverse_units(high_y, scale, changes):
    """Return the inverse units of y and of beta, in which products are neither large nor small.

    They must not drive what the changes of the target add out of range.
    """
    ratio, log_norm, log_kept = changes
    alone = (ratio == 0) & (log_norm == 0) & (log_kept == 0)
    by_y, by_scale = inverse_unit(high_y), inverse_unit(scale)
    least: tl.constexpr = 2.0**-40
    by_y = tl.where(alone, by_y, tl.minimum(tl.maximum(by_y, least), 1.0))
    return by_y, tl.where(alone & (scale > 0), by_scale, 1.0)


@triton.jit
def size_of_sums(sums):
    """Return how large sums with y are; if they are zero y may be anything."""
    _, total, _, _, dot, _, xy = sums
    return tl.abs(total) + tl.abs(dot) + tl.abs(xy)


@triton.jit
def is_ordinary(sums, scale, RULE: tl.constexpr, KIND: tl.constexpr):
    """Whether plain sums are good enough: entries that differ, and nothing very small or large.

    `sums` are those of marks, u, |p|, p^2, |p| u, x^2 and x y.
    """
    count, _, length, square, _, xx, _ = sums
    low: tl.constexpr = 1e-100 if tl.float64 == KIND else 1e-12
    least: tl.constexpr = 1e-100 if tl.float64 == KIND else 1e-27
    # The deviation is a difference; this is how much of its digits may be lost.
    share: tl.constexpr = 1 / 256 if KIND.primitive_bitwidth == 16 else 1 / 8
    deviation = square - length * (length / tl.maximum(count, 1.0))
    fine = (deviation > share * square) & (square > low) & (square < 1 / low)
    size = size_of_sums(sums)
    fine = fine & (size < 1 / least) & ((size > least) | (size == 0))
    fine = fine & (scale < 1 / least) & ((scale > least) | (scale == 0))
    if RULE == KEEP:
        fine = fine & (xx > low) & (xx < 1 / low)
    return fine


# ---- from sums to factors ----


@triton.jit
def factors_of(
    sums,
    frame,
    scale,
    mark,
    changes,
    RULE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    BOTH_NORMS: tl.constexpr,
    REVERSE: tl.constexpr,
    kind: tl.constexpr,
):
    """Return the factors, and how the target moves (reverse) or beta does (forward, as the first).

    `sums` are those of marks, u, w, w^2 and w u, w = |p| inverse - about, and of x^2 and x y, x
    times inverse_x, and y times inverse_y: these numbers are the `frame`, and inverse_b, by which
    beta is to be multiplied, and whether entries differ. The product comes in units of y over those
    of beta, the last factor twice. `changes` say how the target moves (forward): see
    `targets.Changes`.
    """
    count, total, m, q, d, xx, xy = sums
    about, inverse, inverse_x, inverse_y, inverse_b, differs = frame
    ratio, log_norm, log_kept = changes
    count = tl.maximum(count, 1.0)
    unit_y, unit_b = 1.0 / inverse_y, 1.0 / inverse_b
    gain = quotient(1.0, scale * inverse_b)
    shift, mean = m / count, total / count
    # The mean as the entries' type has it, and what that leaves out.
    centre = (about + shift).to(kind).to(m.dtype)
    remainder = (about - centre) + shift
    deviation = q - m * shift
    # Equal entries have no deviation; rounding of their mean must not invent one.
    steep = tl.where(differs, quotient(1.0, deviation), 0.0)
    slope = (d - shift * total) * steep
    # Norms and <p, y>, in units.
    length, dot = m + count * about, d + about * total
    square = q + about * (2 * m + count * about)
    unit, unit_x = 1.0 / inverse, 1.0 / inverse_x

    # z = by_y y + sign(p) (by_sign + by_w (w - remainder)) + by_p p + by_x x at first.
    by_sign, by_w = -mean * gain, -slope * gain
    by_p, by_x, outside = 0.0 * gain, 0.0 * gain, 0.0 * gain
    moved = slope * inverse * unit_y
    free, is_kept = differs, mark != 0
    if ONLY_INCREASE:
        # (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the
        # L1 norm was.
        to_l1 = mark == TO_L1
        free = free & ~is_kept
        along_l1, along_l2 = quotient(total, length), quotient(dot, square)
        if REVERSE:
            sideways = tl.where(to_l1, -gain * quotient(dot, length), 0.0)
            onto = tl.where(to_l1, 0.0, -gain * along_l2)
        else:
            sideways = 0.0 * gain
            onto = -gain * tl.where(to_l1, along_l1, along_l2)
        by_sign, by_w = tl.where(is_kept, sideways, by_sign), tl.where(is_kept, 0.0, by_w)
        by_p = tl.where(is_kept, onto, 0.0)
        outside = tl.where(is_kept, gain, 0.0)
        kept_moved = tl.where(to_l1, along_l1, along_l2) * inverse * unit_y
        moved = tl.where(is_kept, kept_moved, moved)
    follows = 0.0 * gain
    if RULE == KEEP:
        if REVERSE:
            by_x = quotient(dot, xx) * (unit * inverse_x) * unit_b
        else:
            follows = quotient(xy, xx) * inverse_x * unit_y
            by_p += quotient(xy, xx) * (unit * inverse_x) * unit_b
    elif RULE == NEAREST:
        follows = quotient(dot, square) * inverse * unit_y
        by_p += quotient(dot, square) * unit_b
    # What the ratio of norms does to p, on the support: (l2/d)(sign - l1 w/<w, w>).
    l2 = tl.sqrt(square)
    by_ratio = tl.where(free, l2 * unit / count, 0.0)
    norm_by_ratio = 0.0 * gain
    if RULE == NEAREST:
        norm_by_ratio = tl.where(free, (1 - scale) * quotient(l2, length), 0.0)
    if REVERSE:
        norm = dot * unit * unit_y
        ratio = by_ratio * (total - length * slope) * unit_y + norm_by_ratio * norm
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
        by_sign += by_ratio * ratio * inverse_y * unit_b
        by_w -= by_ratio * length * steep * ratio * inverse_y * unit_b
        by_p += norm * unit * inverse_y * unit_b
        by_norm = tl.where(free, length * l2 / count * steep, 0.0) * ratio - norm
        ratio = moved - scale * follows + scale * by_norm
    by_sign += by_p * centre - by_w * remainder
    by_w += by_p
    root = tl.sqrt(unit_y) * tl.sqrt(inverse_b)
    factors = (gain, by_sign, by_w, by_x, outside, inverse, centre, inverse_x, inverse_y, root)
    return factors, (ratio, log_norm, log_kept)


@triton.jit
def product(
    p,
    y,
    x,
    by,
    BY_X: tl.constexpr,
    OUTSIDE: tl.constexpr,
    CAREFUL: tl.constexpr,
    KIND: tl.constexpr,
):
    """Return words of the product, from the factors; if CAREFUL, in double and with y in units."""
    by_y, by_sign, by_w, by_x, outside, inverse, centre, inverse_x, inverse_y, root = by
    PAIRS: tl.constexpr = p.dtype.is_int()
    # Zeros last: of subnormal vectors y/beta may overflow.
    if PAIRS and not (OUTSIDE or BY_X or CAREFUL):
        size, u = floats_of(sizes(p), KIND), floats_of(turned(y, p), KIND)
        low = by_y * u[0] + (by_sign + by_w * (size[0] * inverse - centre))
        high = by_y * u[1] + (by_sign + by_w * (size[1] * inverse - centre))
        z = turned(words_of((low, high), KIND, PAIRS), p)
    else:
        ps, ys, xs = floats_of(p, KIND), floats_of(y, KIND), floats_of(x, KIND)
        zs = ()
        for k in tl.static_range(len(ps)):
            a, v, o = ps[k], ys[k], xs[k]
            if CAREFUL:
                a, v, o = a.to(tl.float64), v.to(tl.float64) * inverse_y, o.to(tl.float64)
            w = tl.abs(a) * inverse - centre
            z = by_y * v + signed(by_sign + by_w * w, a)
            if OUTSIDE:
                # Where a direction was kept, entries that are zero still move.
                z = tl.where(a != 0, z, tl.where(outside > 0, outside * v, 0.0))
            else:
                z = tl.where(a != 0, z, 0.0)
            if BY_X:
                z += by_x * (o * inverse_x)
            if CAREFUL:
                # The square of the root need be no float.
                z = z * root * root
            zs = zs + (z,)
        z = words_of(zs, KIND, PAIRS)
    return z


@triton.jit
def load_changes(changes, row, exists):
    """Return how the targets of vectors move."""
    at = changes + row * 3
    return (
        tl.load(at, mask=exists, other=0.0),
        tl.load(at + 1, mask=exists, other=0.0),
        tl.load(at + 2, mask=exists, other=0.0),
    )


@triton.jit
def store_changes(changes, row, exists, found):
    """Write how the targets of vectors move."""
    for i in tl.static_range(3):
        tl.store(changes + row * 3 + i, found[i].to(tl.float64), mask=exists)


# ---- vectors of one program ----


@triton.jit
def _largest_given(
    values,
    given,
    everywhere,
    exists,
    n,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Return the largest y of every vector that counts: on the support, or everywhere."""
    high = tl.zeros((T, R), tl.float64 if tl.float64 == KIND else tl.float32)
    start = n * 0
    while start < n:
        place = places(T, V) + start
        there = is_there(exists, place, n, False)
        p = load_words(values + place, there, False, "")
        y = load_words(given + place, there, False, "")
        high = largest_given(high, p, y, spread(everywhere), KIND)
        start += T * V
    return tl.max(high, 0).to(tl.float64)


@triton.jit
def _careful_sums(
    values,
    given,
    origin,
    count,
    inverse_y,
    inverse_b,
    exists,
    n,
    RULE: tl.constexpr,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Return sums in double, in units and about the mean, and what was found for that: the frame.

    Everything is read again, piece by piece: this is rare, and must not take registers.
    """
    kind: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    none = tl.zeros((T, R), kind)
    high, low, high_x = none, none + INFINITY, none
    place = places(T, V)
    start = n * 0
    while start < n:
        there = is_there(exists, place + start, n, False)
        p = load_words(values + place + start, there, False, "")
        high, low = extremes(high, low, (p,), 1, KIND)
        if RULE == KEEP:
            x = load_words(origin + place + start, there, False, "")
            high_x, _ = extremes(high_x, none, (x,), 1, KIND)
        start += T * V
    highest, lowest = tl.reduce((high, low), 0, join_extremes)
    inverse = inverse_unit(highest).to(tl.float64)
    inverse_x = inverse_unit(tl.max(high_x, 0)).to(tl.float64)

    zero = tl.zeros((T, R), tl.float64)
    length = zero
    start = n * 0
    while start < n:
        there = is_there(exists, place + start, n, False)
        size = floats_of(sizes(load_words(values + place + start, there, False, "")), KIND)
        for k in tl.static_range(len(size)):
            length += tl.sum(size[k].to(tl.float64) * spread(inverse), 2)
        start += T * V
    about = tl.sum(length, 0) / tl.maximum(count, 1.0)

    t, m, q, d, xx, xy = zero, zero, zero, zero, zero, zero
    start = n * 0
    while start < n:
        there = is_there(exists, place + start, n, False)
        p = load_words(values + place + start, there, False, "")
        y = load_words(given + place + start, there, False, "")
        t, m, q, d = centred_sums(
            t, m, q, d, p, y, spread(inverse), spread(about), spread(inverse_y), KIND
        )
        if RULE == KEEP:
            x = load_words(origin + place + start, there, False, "")
            xx, xy = origin_sums(xx, xy, (x,), (y,), spread(inverse_x), spread(inverse_y), 1, KIND)
        start += T * V
    t, m, q, d = tl.reduce((t, m, q, d), 0, join4)
    xx, xy = tl.reduce((xx, xy), 0, join2)
    frame = (about, inverse, inverse_x, inverse_y, inverse_b, lowest < highest)
    return (count, t, m, q, d, xx, xy), frame


@triton.jit
def write_pieces(
    out,
    place,
    exists,
    n,
    ps,
    ys,
    xs,
    by,
    FIRST: tl.constexpr,
    NUMBER: tl.constexpr,
    STEP: tl.constexpr,
    EVEN: tl.constexpr,
    ALL: tl.constexpr,
    BY_X: tl.constexpr,
    OUTSIDE: tl.constexpr,
    CAREFUL: tl.constexpr,
    KIND: tl.constexpr,
):
    """Write pieces of the product."""
    for k in tl.static_range(NUMBER):
        z = product(ps[FIRST + k], ys[k], xs[k], by, BY_X, OUTSIDE, CAREFUL, KIND)
        if ALL:
            tl.store(out + place + k * STEP, z)
        else:
            tl.store(out + place + k * STEP, z, mask=is_there(exists, place + k * STEP, n, EVEN))


@triton.jit
def _multiply_carefully(
    values,
    given,
    origin,
    out,
    changes,
    moves,
    row,
    exists,
    n,
    count,
    high_y,
    scale,
    mark,
    change,
    RULE: tl.constexpr,
    OUTSIDE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    BOTH_NORMS: tl.constexpr,
    REVERSE: tl.constexpr,
    NUMBERS: tl.constexpr,
    KIND: tl.constexpr,
    R: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Multiply in double, in units, reading everything again, and write it over what is there."""
    BY_X: tl.constexpr = RULE == KEEP and REVERSE
    inverse_y, inverse_b = inverse_units(high_y, scale, change)
    sums, frame = _careful_sums(
        values, given, origin, count, inverse_y, inverse_b, exists, n, RULE, KIND, R, T, V
    )
    factors, told = factors_of(
        sums, frame, scale, mark, change, RULE, ONLY_INCREASE, BOTH_NORMS, REVERSE, tl.float64
    )
    if NUMBERS:
        if REVERSE:
            store_changes(changes, row, exists, told)
        else:
            tl.store(moves + row, told[0], mask=exists)
    by = ()
    for i in tl.static_range(FACTORS):
        by = by + (spread(factors[i]),)
    start = n * 0
    while start < n:
        place = places(T, V) + start
        p = pieces_of(values, place, exists, n, 1, T * V, False, False, "")
        y = pieces_of(given, place, exists, n, 1, T * V, False, False, "")
        x = y
        if BY_X:
            x = pieces_of(origin, place, exists, n, 1, T * V, False, False, "")
        write_pieces(
            out, place, exists, n, p, y, x, by, 0, 1, T * V, False, False, BY_X, OUTSIDE, True, KIND
        )
        start += T * V


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
    PAIRS: tl.constexpr,
    EVEN: tl.constexpr,
    STREAM: tl.constexpr,
    SKIP: tl.constexpr,
    HOLD: tl.constexpr,
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
    KIND: tl.constexpr = values.dtype.element_ty
    kind: tl.constexpr = tl.float64 if tl.float64 == KIND else tl.float32
    # Sums over many entries are added up in double.
    wide: tl.constexpr = tl.float64 if STREAM else kind
    STEP: tl.constexpr = T * V
    FULL: tl.constexpr = EVEN or STREAM
    ALL: tl.constexpr = FULL and R == 1
    AT_ONCE: tl.constexpr = P if HOLD else G
    GROUPS: tl.constexpr = 0 if P == 0 else P // AT_ONCE
    BY_X: tl.constexpr = RULE == KEEP and REVERSE
    # Where nothing is held it pays to tell the cache what is read again.
    STAY: tl.constexpr = "evict_last" if P == 0 else ""
    GO: tl.constexpr = "evict_first" if P == 0 else ""

    n *= V
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    exists = row < rows
    values = in_words(values, spread(row), value_stride, V, PAIRS)
    given = in_words(given, spread(row), given_stride, V, PAIRS)
    origin = in_words(origin, spread(row), origin_stride, V, PAIRS)
    out = in_words(out, spread(row), out_stride, V, PAIRS)
    here = places(T, V)

    ps = pieces_of(values, here, exists, n, P, STEP, FULL, ALL, "")
    ys, xs = (), ()
    zero = tl.zeros((T, R), kind)
    c = tl.zeros((T, R), tl.int32 if PAIRS else kind)
    t, s, ss, su, xx, xy = zero, zero, zero, zero, zero, zero
    if STREAM:
        begin = n * 0 + P * STEP
        while begin < n:
            place = here + begin
            p = pieces_of(values, place, exists, n, G, STEP, False, False, STAY)
            y = pieces_of_y(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, STAY)
            c, t, s, ss, su = support_sums(c, t, s, ss, su, p, y, 0, G, KIND)
            if RULE == KEEP:
                x = pieces_of(origin, place, exists, n, G, STEP, False, False, STAY)
                xx, xy = origin_sums(xx, xy, x, y, 1.0, 1.0, G, KIND)
            begin += G * STEP
    for i in tl.static_range(GROUPS):
        place = here + i * AT_ONCE * STEP
        y = pieces_of_y(
            given, place, exists, n, ps, i * AT_ONCE, AT_ONCE, STEP, FULL, ALL, SKIP, ""
        )
        c, t, s, ss, su = support_sums(c, t, s, ss, su, ps, y, i * AT_ONCE, AT_ONCE, KIND)
        if RULE == KEEP:
            x = pieces_of(origin, place, exists, n, AT_ONCE, STEP, FULL, ALL, "")
            xx, xy = origin_sums(xx, xy, x, y, 1.0, 1.0, AT_ONCE, KIND)
        if HOLD:
            ys = y
            if RULE == KEEP:
                xs = x
    count, total, m, q, d = tl.reduce(
        (marks_in(c, PAIRS).to(wide), t.to(wide), s.to(wide), ss.to(wide), su.to(wide)), 0, join5
    )
    xxs, xys = count * 0, count * 0
    if RULE == KEEP:
        xxs, xys = tl.reduce((xx.to(wide), xy.to(wide)), 0, join2)
    sums = (count, total, m, q, d, xxs, xys)
    scale = tl.load(scales + row, mask=exists, other=0.0)
    mark = (row * 0).to(tl.int8)
    if ONLY_INCREASE:
        mark = tl.load(kepts + row, mask=exists, other=0)
    still = (row * 0).to(tl.float64)
    change = (still, still, still)
    if NUMBERS and not REVERSE:
        change = load_changes(changes, row, exists)
    left = exists & ~is_ordinary(sums, scale, RULE, KIND)
    one = count * 0 + 1
    factors, told = factors_of(
        sums,
        (count * 0, one, one, one, one, count == count),
        scale.to(wide),
        mark,
        change,
        RULE,
        ONLY_INCREASE,
        BOTH_NORMS,
        REVERSE,
        kind,
    )
    if NUMBERS:
        if REVERSE:
            store_changes(changes, row, exists, told)
        else:
            tl.store(moves + row, told[0].to(tl.float64), mask=exists)

    by = ()
    for i in tl.static_range(FACTORS):
        by = by + (spread(factors[i].to(kind)),)
    for i in tl.static_range(GROUPS):
        place = here + i * AT_ONCE * STEP
        if HOLD:
            y = ys
        else:
            y = pieces_of_y(
                given, place, exists, n, ps, i * AT_ONCE, AT_ONCE, STEP, FULL, ALL, SKIP, ""
            )
        x = y
        if BY_X:
            if HOLD:
                x = xs
            else:
                x = pieces_of(origin, place, exists, n, AT_ONCE, STEP, FULL, ALL, "")
        write_pieces(
            out,
            place,
            exists,
            n,
            ps,
            y,
            x,
            by,
            i * AT_ONCE,
            AT_ONCE,
            STEP,
            FULL,
            ALL,
            BY_X,
            OUTSIDE,
            False,
            KIND,
        )
    if STREAM:
        # Backwards: what was read last is still in the cache.
        begin = P * STEP + (n - P * STEP - 1) // (G * STEP) * (G * STEP)
        while begin >= P * STEP:
            place = here + begin
            p = pieces_of(values, place, exists, n, G, STEP, False, False, GO)
            y = pieces_of_y(given, place, exists, n, p, 0, G, STEP, False, False, SKIP, GO)
            x = y
            if BY_X:
                x = pieces_of(origin, place, exists, n, G, STEP, False, False, GO)
            write_pieces(
                out,
                place,
                exists,
                n,
                p,
                y,
                x,
                by,
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
            begin -= G * STEP
    unclear = exists & (size_of_sums(sums) == 0)
    if tl.max((left | unclear).to(tl.int32), 0) > 0:
        everywhere = exists & ((mark != 0) & OUTSIDE | (RULE == KEEP and not REVERSE))
        high_y = _largest_given(values, given, everywhere, exists, n, KIND, R, T, V)
        left = left | (unclear & (high_y > 0))
    else:
        high_y = (row * 0).to(tl.float64)
    if tl.max(left.to(tl.int32), 0) > 0:
        # Others may have written here.
        tl.debug_barrier()
        _multiply_carefully(
            values,
            given,
            origin,
            out,
            changes,
            moves,
            row,
            exists,
            n,
            count.to(tl.float64),
            high_y,
            scale,
            mark,
            change,
            RULE,
            OUTSIDE,
            ONLY_INCREASE,
            BOTH_NORMS,
            REVERSE,
            NUMBERS,
            KIND,
            R,
            T,
            V,
        )
