"""Algorithm 3: products with the Jacobian of the projection, from its result and scale alone.

On the support of p, with u the entries of y times the signs of p, and w the deviations of |p| from
their mean there, every product has the form

    z = by_y y + sign(p) (by_sign + by_w w) + by_x x = sign(p) (by_y u + by_sign + by_w w) + by_x x

with a few numbers per vector, `factors`, that follow from sums over it (their formulas are those of
`engines.arrays.products`; where l1 binds alone, or no norm does, by_w is 0). One pass takes the
sums in the arithmetic of the data, as they come: |p|, its square, and products with u. Where these
say that entries are nearly equal, or of a size that squares badly, or that y or beta are very large
or small, the vector is done again, in double: sums in units, powers of two, and about the mean, so
that a product is rounded to a subnormal number but once.

Rows up to the registers of a program are read once; of longer ones as much as fits. Vectors of
which there are too few to fill the device are shared by several programs: `gradient_long`.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from .device import (
    FREE,
    INFINITY,
    KEEP,
    L1_ALONE,
    NEAREST,
    TO_L1,
    WITHIN,
    add2,
    add4,
    add5,
    join_extremes,
)
from .words import (
    floats_of,
    in_words,
    inside,
    is_there,
    marks_in,
    pieces_at,
    pieces_of,
    places,
    signed,
    sizes,
    spread,
    turned,
    words_of,
    y_and_x,
)

FACTORS = tl.constexpr(10)
"""Numbers per vector that a product is written with."""

CHANGES = tl.constexpr(4)
"""Numbers that say how a target moves: the fields of `arrays.products.Changes`."""


@dataclass(frozen=True)
class Case:
    """Which product is wanted; a constant of the kernels."""

    rule: int
    """Where the norm of the result came from: FIXED, KEEP, NEAREST or FREE."""
    outside: bool
    """Whether entries outside of the support may move."""
    marked: bool
    """Whether vectors say which norms bind, as it is not the same for all."""
    at_most: bool
    """Whether norms are upper bounds."""
    both_norms: bool
    reverse: bool
    """Whether the Jacobian is transposed."""
    numbers: bool
    """Whether targets matter: what y says about them (reverse), or how they move (forward)."""

    @property
    def keeps(self) -> bool:
        """Whether sums with x are needed."""
        return self.rule == KEEP.value

    @property
    def by_l1(self) -> bool:
        """Whether l1 may bind alone, or no norm."""
        return self.at_most or self.rule == FREE.value

    @property
    def by_x(self) -> bool:
        """Whether the product has a multiple of x in it."""
        return self.keeps and self.reverse

    @property
    def everywhere(self) -> bool:
        """Whether y matters outside of the support."""
        return self.outside or (self.keeps and not self.reverse)


@triton.jit
def quotient(a, b):
    """Return a/b, and 0 where b is."""
    return tl.where(b > 0, a / tl.where(b > 0, b, 1.0), 0.0)


# ---- sums: what each thread sees of them, in some pieces ----


@triton.jit
def no_sums(WORK, SHAPE):
    """Return the sums of marks, u, |p|, p^2, |p| u, x^2 and x y over nothing."""
    none = tl.full((SHAPE.threads, SHAPE.rows), 0, WORK)
    marks = tl.full((SHAPE.threads, SHAPE.rows), 0, tl.int32 if SHAPE.pairs else WORK)
    return marks, none, none, none, none, none, none


@triton.jit
def add_sums(sums, ps, ys, xs, FIRST, NUMBER, KEEPS, KIND):
    """Add pieces to these sums, the last two only where a norm is kept."""
    c, t, s, ss, su, xx, xy = sums
    for i in tl.static_range(NUMBER):
        p = ps[FIRST + i]
        c += tl.sum(inside(p), 2)
        size, u = floats_of(sizes(p), KIND), floats_of(turned(ys[i], p), KIND)
        for k in tl.static_range(len(size)):
            a = size[k]
            t1, s1, ss1, su1 = tl.reduce((u[k], a, a * a, a * u[k]), 2, add4)
            t, s, ss, su = t + t1, s + s1, ss + ss1, su + su1
    if KEEPS:
        xx, xy = origin_sums(xx, xy, xs, ys, 1.0, 1.0, NUMBER, KIND)
    return c, t, s, ss, su, xx, xy


@triton.jit
def totals(sums, PAIRS, KEEPS, WIDE):
    """Add up what all threads have."""
    c, t, s, ss, su, xx, xy = sums
    first = (marks_in(c, PAIRS).to(WIDE), t.to(WIDE), s.to(WIDE), ss.to(WIDE), su.to(WIDE))
    count, t, s, ss, su = tl.reduce(first, 0, add5)
    xxs, xys = count * 0, count * 0
    if KEEPS:
        xxs, xys = tl.reduce((xx.to(WIDE), xy.to(WIDE)), 0, add2)
    return count, t, s, ss, su, xxs, xys


@triton.jit
def origin_sums(xx, xy, xs, ys, inverse, inverse_y, NUMBER, KIND):
    """Add x^2 and <x, y>, both in units."""
    for i in tl.static_range(NUMBER):
        x, y = floats_of(xs[i], KIND), floats_of(ys[i], KIND)
        for k in tl.static_range(len(x)):
            scaled = x[k].to(xx.dtype) * inverse
            by_y = scaled * (y[k].to(xx.dtype) * inverse_y)
            xx1, xy1 = tl.reduce((scaled * scaled, by_y), 2, add2)
            xx, xy = xx + xx1, xy + xy1
    return xx, xy


@triton.jit
def no_extremes(SHAPE):
    """Return the extremes of nothing."""
    none = no_sums(SHAPE.work, SHAPE)[1]
    return none, none + INFINITY, none, none


@triton.jit
def add_extremes(found, ps, ys, xs, everywhere, NUMBER, KEEPS, KIND):
    """Return the largest entry of p, the smallest of the support, and the largest of x and of y.

    Of y on the support alone, unless it counts everywhere.
    """
    high, low, high_x, high_y = found
    for i in tl.static_range(NUMBER):
        size, y, x = floats_of(sizes(ps[i]), KIND), floats_of(ys[i], KIND), floats_of(xs[i], KIND)
        for k in tl.static_range(len(size)):
            a, given = size[k], tl.abs(y[k])
            h, l = tl.reduce((a, tl.where(a != 0, a, INFINITY)), 2, join_extremes)  # noqa: E741
            high, low = tl.maximum(high, h), tl.minimum(low, l)
            # Infinity is itself in all units.
            counts = ((a != 0) | everywhere) & (given < INFINITY)
            high_y = tl.maximum(high_y, tl.max(tl.where(counts, given, 0.0), 2))
            if KEEPS:
                high_x = tl.maximum(high_x, tl.max(tl.abs(x[k]), 2))
    return high, low, high_x, high_y


@triton.jit
def all_extremes(found):
    """Return the extremes that all threads have seen, in double."""
    high, low, high_x, high_y = found
    high, low = tl.reduce((high, low), 0, join_extremes)
    high_x, high_y = tl.max(high_x, 0).to(tl.float64), tl.max(high_y, 0).to(tl.float64)
    return high.to(tl.float64), low.to(tl.float64), high_x, high_y


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
    ratio, log_norm, log_kept, log_l1 = changes
    alone = (ratio == 0) & (log_norm == 0) & (log_kept == 0) & (log_l1 == 0)
    by_y, by_scale = inverse_unit(high_y), inverse_unit(scale)
    least: tl.constexpr = 2.0**-40
    by_y = tl.where(alone, by_y, tl.minimum(tl.maximum(by_y, least), 1.0))
    return by_y, tl.where(alone & (scale > 0), by_scale, 1.0)


@triton.jit
def about_and_units(count, length, high, low, high_x, WORK):
    """Return about what to sum again, and the inverse units of p and x."""
    inverse = inverse_unit(high.to(WORK)).to(tl.float64)
    middle = length.to(tl.float64) / tl.maximum(count, 1.0)
    # A mean beyond the range of the data is none; these entries are then about equal.
    middle = tl.where(middle <= high, middle, high / 2 + low / 2)
    inverse_x = inverse_unit(high_x.to(WORK)).to(tl.float64)
    return tl.where(count > 0, middle * inverse, 0.0), inverse, inverse_x


@triton.jit
def size_of_sums(sums):
    """Return how large sums with y are; if they are zero y may be anything."""
    _, total, _, _, dot, _, xy = sums
    return tl.abs(total) + tl.abs(dot) + tl.abs(xy)


@triton.jit
def is_ordinary(sums, scale, CASE, KIND):
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
    if CASE.rule == FREE:
        # Nothing follows from how entries differ.
        fine = length < 1 / low
    size = size_of_sums(sums)
    fine = fine & (size < 1 / least) & ((size > least) | (size == 0))
    fine = fine & (scale < 1 / least) & ((scale > least) | (scale == 0))
    if CASE.keeps:
        fine = fine & (xx > low) & (xx < 1 / low)
    return fine


# ---- from sums to factors ----


@triton.jit
def moments_of(sums, frame, WORK):
    """Return what follows from the sums over p and y alone: see `factors_of`.

    The number of entries, the mean of y; the mean of |p| as the entries' type has it, and what that
    leaves out; one over the sum of squares about it, the slope of y there; the norms, and <p, y>.
    """
    count, total, m, q, d, _, _ = sums
    about, differs = frame[0], frame[5]
    count = tl.maximum(count, 1.0)
    shift, mean = m / count, total / count
    centre = (about + shift).to(WORK).to(m.dtype)
    remainder = (about - centre) + shift
    deviation = q - m * shift
    # Equal entries have no deviation; rounding of their mean must not invent one.
    steep = tl.where(differs, quotient(1.0, deviation), 0.0)
    slope = (d - shift * total) * steep
    length, dot = m + count * about, d + about * total
    square = q + about * (2 * m + count * about)
    return count, mean, centre, remainder, steep, slope, length, square, dot


@triton.jit
def factors_if_kept(by_sign, by_w, moved, gain, sums, moments, per, mark, REVERSE):
    """Return by_sign, by_w, by_p, outside, and how beta moves, where vectors kept their direction.

    These have (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where
    the L1 norm was.
    """
    length, square, dot = moments[6], moments[7], moments[8]
    is_kept, to_l1 = mark != 0, mark == TO_L1
    along_l1, along_l2 = quotient(sums[1], length), quotient(dot, square)
    if REVERSE:
        sideways = tl.where(to_l1, -gain * quotient(dot, length), 0.0)
        onto = tl.where(to_l1, 0.0, -gain * along_l2)
    else:
        sideways = 0.0 * gain
        onto = -gain * tl.where(to_l1, along_l1, along_l2)
    by_sign, by_w = tl.where(is_kept, sideways, by_sign), tl.where(is_kept, 0.0, by_w)
    by_p = tl.where(is_kept, onto, 0.0)
    outside = tl.where(is_kept, gain, 0.0)
    moved = tl.where(is_kept, tl.where(to_l1, along_l1, along_l2) * per, moved)
    return by_sign, by_w, by_p, outside, moved


@triton.jit
def factors_by_l1(by_sign, by_w, outside, moved, mean, gain, mark):
    """Return by_sign, by_w, outside, and how beta moves, where l1 binds alone or no norm does.

    These have (E_I - e e^T/d)/beta, e the signs on the support I of d entries, and E/beta; beta is
    1, and stays so.
    """
    alone, within = mark == L1_ALONE, mark == WITHIN
    by_sign = tl.where(alone, -mean * gain, tl.where(within, 0.0, by_sign))
    by_w = tl.where(alone | within, 0.0, by_w)
    outside = tl.where(within, gain, tl.where(alone, 0.0, outside))
    return by_sign, by_w, outside, tl.where(alone | within, 0.0, moved)


@triton.jit
def follow_norm(by_p, sums, moments, frame, CASE):
    """Return by_p and by_x with what the rule for the norm adds, and how the norm follows y."""
    square, dot, xx, xy = moments[7], moments[8], sums[5], sums[6]
    _, inverse, inverse_x, inverse_y, inverse_b, _ = frame
    unit, unit_y, unit_b = 1.0 / inverse, 1.0 / inverse_y, 1.0 / inverse_b
    by_x, follows = 0.0 * square, 0.0 * square
    if CASE.by_x:
        by_x = quotient(dot, xx) * (unit * inverse_x) * unit_b
    elif CASE.keeps:
        follows = quotient(xy, xx) * inverse_x * unit_y
        by_p += quotient(xy, xx) * (unit * inverse_x) * unit_b
    elif CASE.rule == NEAREST:
        follows = quotient(dot, square) * inverse * unit_y
        by_p += quotient(dot, square) * unit_b
    return by_p, by_x, follows


@triton.jit
def factors_of(sums, frame, scale, mark, changes, CASE, WORK):
    """Return the factors, and how the target moves (reverse) or beta does (forward, as the first).

    `sums` are those of marks, u, w, w^2 and w u, w = |p| inverse - about, and of x^2 and x y, x
    times inverse_x, and y times inverse_y: these numbers are the `frame`, and inverse_b, by which
    beta is to be multiplied, and whether entries differ. The product comes in units of y over those
    of beta, the last factor twice. `changes` say how the target moves (forward), and what is said
    of it (reverse) has the same fields: see `arrays.products.Changes`.
    """
    _, inverse, inverse_x, inverse_y, inverse_b, differs = frame
    moments = moments_of(sums, frame, WORK)
    count, mean, centre, remainder, steep, slope, length, square, dot = moments
    unit, unit_y, unit_b = 1.0 / inverse, 1.0 / inverse_y, 1.0 / inverse_b
    gain = quotient(1.0, scale * inverse_b)

    # z = by_y y + sign(p) (by_sign + by_w (w - remainder)) + by_p p + by_x x at first.
    by_sign, by_w = -mean * gain, -slope * gain
    by_p, outside = 0.0 * gain, 0.0 * gain
    moved = slope * inverse * unit_y
    free, is_kept = differs, mark != 0
    if CASE.marked and CASE.rule != FREE:
        free = free & ~is_kept
        by_sign, by_w, by_p, outside, moved = factors_if_kept(
            by_sign, by_w, moved, gain, sums, moments, inverse * unit_y, mark, CASE.reverse
        )
    alone = mark == L1_ALONE
    if CASE.by_l1:
        free = free & ~is_kept
        by_p = tl.where(alone | (mark == WITHIN), 0.0, by_p)
        by_sign, by_w, outside, moved = factors_by_l1(
            by_sign, by_w, outside, moved, mean, gain, mark
        )
        is_kept = is_kept & ~(alone | (mark == WITHIN))
    by_p, by_x, follows = follow_norm(by_p, sums, moments, frame, CASE)
    # What the ratio of norms does to p, on the support: (l2/d)(sign - l1 w/<w, w>).
    l2 = tl.sqrt(square)
    # In this order: the norm itself need be no float.
    by_ratio = tl.where(free, l2 / count * unit, 0.0)
    norm_by_ratio = 0.0 * gain
    if CASE.rule == NEAREST:
        norm_by_ratio = tl.where(free, (1 - scale) * quotient(l2, length), 0.0)
    if CASE.reverse:
        norm = dot * unit * unit_y
        ratio = by_ratio * (sums[1] - length * slope) * unit_y + norm_by_ratio * norm
        log_norm = tl.where(is_kept, 0.0, norm)
        if CASE.both_norms:
            log_norm = tl.where(differs, log_norm, 0.0)
        log_l1 = 0.0 * norm
        if CASE.by_l1:
            # A change of log(l1) adds l1 sign/d.
            log_l1 = tl.where(alone, length * mean * unit * unit_y, 0.0)
            log_norm = tl.where(mark == 0, log_norm, 0.0)
        changes = (ratio, log_norm, tl.where(is_kept, norm, 0.0), log_l1)
    else:
        ratio, log_norm, log_kept, log_l1 = changes
        norm = tl.where(is_kept, log_kept, log_norm)
        if CASE.by_l1:
            norm = tl.where(alone | (mark == WITHIN), 0.0, norm)
            more = length / count * unit * inverse_y * unit_b
            by_sign += tl.where(alone, more * log_l1, 0.0)
        if CASE.both_norms:
            # Where b = 0 the derivatives by two given norms are defined as zero.
            norm = tl.where(differs | is_kept, norm, 0.0)
        norm += norm_by_ratio * ratio
        by_sign += by_ratio * ratio * inverse_y * unit_b
        by_w -= by_ratio * length * steep * ratio * inverse_y * unit_b
        by_p += norm * unit * inverse_y * unit_b
        by_norm = tl.where(free, length * l2 / count * steep, 0.0) * ratio - norm
        changes = (moved - scale * follows + scale * by_norm, log_norm, log_kept, log_l1)
    by_sign += by_p * centre - by_w * remainder
    by_w += by_p
    root = tl.sqrt(unit_y) * tl.sqrt(inverse_b)
    factors = (gain, by_sign, by_w, by_x, outside, inverse, centre, inverse_x, inverse_y, root)
    return factors, changes


@triton.jit
def product(p, y, x, by, CASE, CAREFUL, KIND):
    """Return words of the product, from the factors; if CAREFUL, in double and with y in units."""
    by_y, by_sign, by_w, by_x, outside, inverse, centre, inverse_x, inverse_y, root = by
    PAIRS: tl.constexpr = p.dtype.is_int()
    # Zeros last: of subnormal vectors y/beta may overflow.
    if PAIRS and not (CASE.outside or CASE.by_x or CAREFUL):
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
            if CASE.outside:
                # Where a direction was kept, entries that are zero still move.
                z = tl.where(a != 0, z, tl.where(outside > 0, outside * v, 0.0))
            else:
                z = tl.where(a != 0, z, 0.0)
            if CASE.by_x:
                z += by_x * (o * inverse_x)
            if CAREFUL:
                # The square of the root need be no float.
                z = z * root * root
            zs = zs + (z,)
        z = words_of(zs, KIND, PAIRS)
    return z


@triton.jit
def write_pieces(out, place, vectors, pieces, by, FIRST, NUMBER, EVEN, CAREFUL, CASE, SHAPE):
    """Write pieces of the product, from those of p (from FIRST on), y and x."""
    KIND: tl.constexpr = SHAPE.kind
    STEP: tl.constexpr = SHAPE.step
    exists, n = vectors[3], vectors[4]
    ps, ys, xs = pieces
    for k in tl.static_range(NUMBER):
        z = product(ps[FIRST + k], ys[k], xs[k], by, CASE, CAREFUL, KIND)
        if EVEN and exists.shape[0] == 1:
            tl.store(out + place + k * STEP, z)
        else:
            tl.store(out + place + k * STEP, z, mask=is_there(exists, place + k * STEP, n, EVEN))


@triton.jit
def load_numbers(numbers, row, exists, CASE):
    """Return the scales of vectors, marks of those that kept their direction, how targets move."""
    scales, kepts, changes, _ = numbers
    scale = tl.load(scales + row, mask=exists, other=0.0)
    mark = (row * 0).to(tl.int8)
    if CASE.marked:
        mark = tl.load(kepts + row, mask=exists, other=0)
    elif CASE.rule == FREE:
        mark += L1_ALONE
    change = ()
    for i in tl.static_range(CHANGES):
        if CASE.numbers and not CASE.reverse:
            change = change + (tl.load(changes + row * CHANGES + i, mask=exists, other=0.0),)
        else:
            change = change + ((row * 0).to(tl.float64),)
    return scale, mark, change


@triton.jit
def counts_everywhere(mark, CASE):
    """Whether all entries of y matter, not those on the support alone."""
    moves = (mark != 0) & (mark != L1_ALONE) if CASE.by_l1 else mark != 0
    return moves & CASE.outside | (CASE.keeps and not CASE.reverse)


@triton.jit
def store_numbers(numbers, row, exists, found, CASE):
    """Write what y says about the targets (reverse), or how beta moves (forward)."""
    _, _, changes, moves = numbers
    if CASE.numbers:
        if CASE.reverse:
            for i in tl.static_range(CHANGES):
                tl.store(changes + row * CHANGES + i, found[i].to(tl.float64), mask=exists)
        else:
            tl.store(moves + row, found[0].to(tl.float64), mask=exists)


@triton.jit
def spread_factors(factors, WORK):
    """Give the factors the axes of a piece."""
    by = ()
    for i in tl.static_range(FACTORS):
        by = by + (spread(factors[i].to(WORK)),)
    return by


# ---- vectors that are not ordinary: read again, piece by piece, so as to take few registers ----


@triton.jit
def extremes_of(vectors, everywhere, CASE, SHAPE):
    """Return the extremes of all vectors."""
    found, start = no_extremes(SHAPE), vectors[4] * 0
    while start < vectors[4]:
        p, y, x = pieces_at(vectors, places(SHAPE) + start, 1, CASE.keeps, "", SHAPE)
        found = add_extremes(found, p, y, x, spread(everywhere), 1, CASE.keeps, SHAPE.kind)
        start += SHAPE.step
    return all_extremes(found)


@triton.jit
def sums_again(vectors, begin, frame, CASE, SHAPE):
    """Return sums in double, in units and about the mean, from a place on.

    Of u, w, w^2 and w u, w = |p| inverse - about, and of x^2 and x y: see `factors_of`.
    """
    KIND: tl.constexpr = SHAPE.kind
    about, inverse, inverse_x, inverse_y = frame[0], frame[1], frame[2], frame[3]
    t = no_sums(tl.float64, SHAPE)[1]
    m, q, d, xx, xy = t, t, t, t, t
    while begin < vectors[4]:
        p, y, x = pieces_at(vectors, places(SHAPE) + begin, 1, CASE.keeps, "", SHAPE)
        size, u = floats_of(sizes(p[0]), KIND), floats_of(turned(y[0], p[0]), KIND)
        for k in tl.static_range(len(size)):
            w = size[k].to(tl.float64) * spread(inverse) - spread(about)
            w = tl.where(size[k] != 0, w, 0.0)
            v = u[k].to(tl.float64) * spread(inverse_y)
            t1, m1, q1, d1 = tl.reduce((v, w, w * w, w * v), 2, add4)
            t, m, q, d = t + t1, m + m1, q + q1, d + d1
        if CASE.keeps:
            xx, xy = origin_sums(xx, xy, x, y, spread(inverse_x), spread(inverse_y), 1, KIND)
        begin += SHAPE.step
    t, m, q, d = tl.reduce((t, m, q, d), 0, add4)
    xx, xy = tl.reduce((xx, xy), 0, add2)
    return t, m, q, d, xx, xy


@triton.jit
def multiply_again(vectors, out, numbers, own, row, left, sums, CASE, SHAPE):
    """Multiply vectors in double, and write that over what is there.

    Those that are `left`, and the others, of which all sums with y are zero, where y is not. `own`
    is what `load_numbers` says.
    """
    p_at, y_at, x_at, looked_at, n = vectors
    scale, mark, change = own
    everywhere = looked_at & counts_everywhere(mark, CASE)
    high, low, high_x, high_y = extremes_of(vectors, everywhere, CASE, SHAPE)
    # Of vectors that are not looked at it is zero.
    left = left | (high_y > 0)
    if tl.max(left.to(tl.int32), 0) > 0:
        # Others may have written here.
        tl.debug_barrier()
        vectors = (p_at, y_at, x_at, left, n)
        count = sums[0].to(tl.float64)
        about, inverse, inverse_x = about_and_units(count, sums[2], high, low, high_x, SHAPE.work)
        inverse_y, inverse_b = inverse_units(high_y, scale, change)
        frame = (about, inverse, inverse_x, inverse_y, inverse_b, low < high)
        again = (count,) + sums_again(vectors, n * 0, frame, CASE, SHAPE)
        factors, told = factors_of(again, frame, scale, mark, change, CASE, tl.float64)
        store_numbers(numbers, row, left, told, CASE)
        by = spread_factors(factors, tl.float64)
        start = n * 0
        while start < n:
            place = places(SHAPE) + start
            pieces = pieces_at(vectors, place, 1, CASE.by_x, "", SHAPE)
            write_pieces(out, place, vectors, pieces, by, 0, 1, False, True, CASE, SHAPE)
            start += SHAPE.step


# ---- vectors of one program ----


@triton.jit
def sum_pieces(vectors, ps, CASE, SHAPE):
    """Return the sums of every thread, and the pieces of y and x if they are held."""
    NUMBER: tl.constexpr = SHAPE.number
    SOME: tl.constexpr = SHAPE.at_once
    TURNS: tl.constexpr = SHAPE.turns
    # Where nothing is held it pays to tell the cache what is read again.
    STAY: tl.constexpr = "evict_last" if SHAPE.held == 0 else ""
    here, n = places(SHAPE), vectors[4]
    sums = no_sums(SHAPE.work, SHAPE)
    ys, xs = (), ()
    if SHAPE.stream:
        begin = n * 0 + SHAPE.held * SHAPE.step
        while begin < n:
            p, y, x = pieces_at(vectors, here + begin, NUMBER, CASE.keeps, STAY, SHAPE)
            sums = add_sums(sums, p, y, x, 0, NUMBER, CASE.keeps, SHAPE.kind)
            begin += NUMBER * SHAPE.step
    for i in tl.static_range(TURNS):
        place = here + i * SOME * SHAPE.step
        y, x = y_and_x(vectors, place, ps, i * SOME, SOME, CASE.keeps, SHAPE.full, "", SHAPE)
        sums = add_sums(sums, ps, y, x, i * SOME, SOME, CASE.keeps, SHAPE.kind)
        if SHAPE.hold_all:
            ys, xs = y, x
    return sums, ys, xs


@triton.jit
def write_rows(vectors, out, ps, ys, xs, by, CASE, SHAPE):
    """Write the product: first of the pieces that are held, then of the others."""
    STEP: tl.constexpr = SHAPE.number * SHAPE.step
    SOME: tl.constexpr = SHAPE.at_once
    TURNS: tl.constexpr = SHAPE.turns
    FULL: tl.constexpr = SHAPE.full
    GO: tl.constexpr = "evict_first" if SHAPE.held == 0 else ""
    here, n = places(SHAPE), vectors[4]
    for i in tl.static_range(TURNS):
        place = here + i * SOME * SHAPE.step
        if SHAPE.hold_all:
            y, x = ys, xs
        else:
            y, x = y_and_x(vectors, place, ps, i * SOME, SOME, CASE.by_x, FULL, "", SHAPE)
        pieces = (ps, y, x)
        write_pieces(out, place, vectors, pieces, by, i * SOME, SOME, FULL, False, CASE, SHAPE)
    if SHAPE.stream:
        HELD: tl.constexpr = SHAPE.held * SHAPE.step
        # Backwards: what was read last is still in the cache.
        begin = HELD + (n - HELD - 1) // STEP * STEP
        while begin >= HELD:
            place = here + begin
            # Not `pieces`: what a loop changes keeps its shape.
            others = pieces_at(vectors, place, SHAPE.number, CASE.by_x, GO, SHAPE)
            write_pieces(
                out, place, vectors, others, by, 0, SHAPE.number, False, False, CASE, SHAPE
            )
            begin -= STEP


@triton.jit(do_not_specialize=["rows"])
def multiply_rows(vectors, numbers, rows, n, strides, CASE: tl.constexpr, SHAPE: tl.constexpr):
    """Multiply some vectors per program by their Jacobians, or the transposes of those.

    `vectors` are p, y, x and the product, `numbers` scales, marks, changes and moves. What y says
    about the target is written to the changes (reverse), or the target moves as they say, and what
    beta does is written to the moves (forward).
    """
    WORK: tl.constexpr = SHAPE.work
    # Sums over many entries are added up in double.
    WIDE: tl.constexpr = tl.float64 if SHAPE.stream else WORK
    n *= SHAPE.words
    row = tl.program_id(0).to(tl.int64) * SHAPE.rows + tl.arange(0, SHAPE.rows)
    exists = row < rows
    p, y, x, out = in_words(vectors, spread(row), strides, SHAPE)
    vectors = (p, y, x, exists, n)
    # Before the vectors: nobody should wait for memory a second time, after the sums.
    own = load_numbers(numbers, row, exists, CASE)
    scale, mark, change = own
    ps = pieces_of(p, places(SHAPE), vectors, (), 0, SHAPE.held, False, SHAPE.full, "", SHAPE)
    found, ys, xs = sum_pieces(vectors, ps, CASE, SHAPE)
    sums = totals(found, SHAPE.pairs, CASE.keeps, WIDE)
    count = sums[0]
    left = exists & ~is_ordinary(sums, scale, CASE, SHAPE.kind)
    unclear = exists & (size_of_sums(sums) == 0)
    one = count * 0 + 1
    frame = (count * 0, one, one, one, one, count == count)
    factors, told = factors_of(sums, frame, scale.to(WIDE), mark, change, CASE, WORK)
    store_numbers(numbers, row, exists, told, CASE)
    write_rows(vectors, out, ps, ys, xs, spread_factors(factors, WORK), CASE, SHAPE)
    if tl.max((left | unclear).to(tl.int32), 0) > 0:
        vectors = (p, y, x, left | unclear, n)
        multiply_again(vectors, out, numbers, own, row, left, sums, CASE, SHAPE)
