"""Rows that fit in registers: read once, search, write once.

The search runs in the arithmetic of the data (float32 for the half types), from a start that mean
and standard deviation suggest, as `native/rough.hpp` does: the exact step is a lower bound (fact
3), Newton's step shows the way. What it finds is believed only if sums about the support's own mean
confirm it: their alpha lies between the smallest entry of the support and the next one below. All
other vectors (ties, ends of the range, extreme scales, NaN) are left, marked, to `careful`.
"""

import triton
import triton.language as tl

from .device import (
    FIXED,
    INFINITY,
    KEEP,
    ORDINARY,
    excess_of,
    goal_of,
    spread_out,
    sums_over,
    support_over,
    survey_over,
)

ROUNDS = tl.constexpr(16)
"""Evaluations after which a search has to be more careful."""

CONFIRMATIONS = tl.constexpr(6)


@triton.jit
def begin(a, b, high, low, n, ratio, k, start):
    """Return the first pivot, and whether vectors are ordinary, from sums and ends of their entries.

    As if the entries were normal (or their magnitudes half-normal), or their tail uniform; or below
    all of them, where the closed form over all of them says so.
    """
    mean = a / n
    square = b / n
    variance = square - mean * mean
    extent = high - low
    known = variance > 1e-4 * square
    deviation = tl.sqrt(tl.maximum(variance, 0.0))
    uniform = high - (high - mean) * tl.minimum(1.0, 2.6666667 * k / n)
    pivot = tl.where(known, tl.minimum(mean + start * deviation, uniform), uniform)
    whole = mean - ratio * tl.sqrt(tl.maximum(variance, 0.0) / (n - k))
    pivot = tl.where(known & (whole < low + 1e-3 * deviation), low - 1e-3 * extent, pivot)
    pivot = tl.minimum(pivot, high - 1e-3 * extent)
    size = tl.maximum(tl.abs(high), tl.abs(low))
    ordinary = (extent > 1.0 / ORDINARY) & (size < ORDINARY) & (b < INFINITY)
    return pivot, ordinary


@triton.jit
def rough_step(pivot, low, high, c, a, b, k, ratio):
    """Return the next pivot, the bracket, and whether few entries can be left in between.

    c, a and b are the number of entries above the pivot, the sum of their distances from it and of
    the squares. Invariant, up to rounding: low <= alpha < high.
    """
    kind = pivot.dtype
    c, a, b = c.to(tl.float32), a.to(tl.float32), b.to(tl.float32)
    mean = a / c
    spread = tl.maximum(b - a * mean, 0.0)
    excess = c - k
    enough = excess > 0
    to_exact = mean - tl.sqrt(spread * c / tl.where(enough, excess, 1.0)) * ratio / c
    # Newton's step for a^2/b - K.
    to_newton = (a * a - k * b) * b / (2 * a * (c * b - a * a))
    exact = pivot + to_exact.to(kind)
    newton = pivot + to_newton.to(kind)
    low = tl.where(enough, tl.maximum(low, exact), low)
    climbs = enough & (to_exact > 0)
    high = tl.where(climbs, high, tl.minimum(high, pivot))
    # From below Newton's step tends to overshoot.
    ahead = climbs & (newton > exact) & (newton < high)
    step = tl.where(climbs, tl.where(ahead, exact + 0.7 * (newton - exact), exact), newton)
    step = tl.where((step >= low) & (step < high), step, 0.5 * (low + high))
    near = enough & (tl.abs(step - pivot).to(tl.float32) * c * c < 0.5 * a)
    return tl.where(near, exact, step), low, high, near


@triton.jit
def exact_division(a, b):
    """Return a/b, correctly rounded."""
    if a.dtype == tl.float32:
        result = tl.div_rn(a, b)
    else:
        result = a / b
    return result


@triton.jit
def exact_root(a):
    """Return the square root of a, correctly rounded."""
    if a.dtype == tl.float32:
        result = tl.sqrt_rn(a)
    else:
        result = tl.sqrt(a)
    return result


@triton.jit
def concluded(c, a, b, below, above, reference, n, room, room_low, ratio):
    """Return what a support says: its mean (from the reference), scale and alpha, and if it is so.

    a and b are sums over the support about the reference; below and above are the entries next to
    the pivot. The spread is known where the reference is within a deviation of the mean.
    """
    kind = a.dtype
    excess = excess_of(c, n, room, room_low).to(kind)
    size = c.to(kind)
    mean = exact_division(a, size)
    spread = b - a * mean
    sharp = a * mean <= spread
    fine = (excess > 0) & (spread > 0)
    scale = exact_root(exact_division(spread * size, tl.where(fine, excess, 1.0)))
    alpha = mean - scale * exact_division(ratio, size)
    right = fine & sharp & (below - reference <= alpha) & (alpha < above - reference)
    if kind == tl.float64:
        # Closer calls than this are for those who try both supports.
        base = ratio / size
        right = right & (base * scale + (above - reference - mean) > 2.8e-14 * base * scale)
    return mean, scale, spread, alpha, right


@triton.jit(
    do_not_specialize=["rows", "ratio_bits", "room_bits", "low_bits", "norm_bits"],
)
def project_rows(
    given,
    out,
    left,
    scales,
    goals,
    rows,
    n,
    given_stride,
    out_stride,
    goals_stride: tl.constexpr,
    ratio_bits,
    room_bits,
    low_bits,
    norm_bits,
    start,
    SIGNED: tl.constexpr,
    RULE: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    WITH_SCALE: tl.constexpr,
    EVEN: tl.constexpr,
    J: tl.constexpr,
    R: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
):
    """Project R vectors per program; write 1 to `left` for those that need more care."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    place = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    exists = row < rows
    if EVEN:
        there = spread_out(exists) & (place >= 0)
    else:
        there = spread_out(exists) & (place < n)
    x = tl.load(given + spread_out(row * given_stride) + place, mask=there, other=0.0)
    if x.dtype == tl.float64:
        v = x
    else:
        v = x.to(tl.float32)
    kind: tl.constexpr = v.dtype
    w = tl.abs(v) if SIGNED else v
    ratio, room, room_low, norm = goal_of(
        goals, goals_stride, row, exists, ratio_bits, room_bits, low_bits, norm_bits
    )
    k32 = (n - room).to(tl.float32)
    ratio32 = ratio.to(tl.float32)

    a, b, high, low = survey_over(
        w, w * w, w if EVEN else tl.where(there, w, -INFINITY), w if EVEN else tl.where(there, w, INFINITY)
    )
    if not EVEN:
        # What is not there lies below every pivot.
        w = tl.where(place < n, w, -INFINITY)
    pivot, active = begin(a, b, high, low, n.to(kind), ratio32.to(kind), k32.to(kind), start)
    active = active & (ratio32 > 1) & (room > 0) & exists
    if ONLY_INCREASE:
        # Whoever may be sparse enough already is looked at with care.
        c0, a0, b0 = sums_over(
            tl.where(w > 0, 1.0, 0.0).to(kind), tl.maximum(w, 0.0), tl.where(w > 0, w * w, 0.0)
        )
        spread0 = b0 * c0 / (a0 * a0) - 1.0
        active = active & (c0 - k32 > k32 * spread0 * 1.001 + 1e-4 * c0)
    ordinary = active

    # Invariant: bottom <= alpha < top, up to rounding.
    bottom, top = low - (high - low), high
    reference = pivot
    turn = 0
    while (turn < ROUNDS) & (tl.max(active.to(tl.int32), 0) > 0):
        t = tl.maximum(w - spread_out(pivot), 0.0)
        c, a, b1 = sums_over((t > 0).to(kind), t, t * t)
        following, bottom, top, near = rough_step(pivot, bottom, top, c, a, b1, k32, ratio32)
        reference = tl.where(active, pivot + a / c, reference)
        pivot = tl.where(active, following, pivot)
        active = active & (near == 0)
        turn += 1

    pending = ordinary & (active == 0)
    c = (row * 0).to(kind)
    mean, scale, spread = c, c, c
    sure = pending & (row < 0)
    turn = 0
    while (turn < CONFIRMATIONS) & (tl.max(pending.to(tl.int32), 0) > 0):
        inside = w > spread_out(pivot)
        t = tl.where(inside, w - spread_out(reference), 0.0)
        c1, a, b1, below, above = support_over(
            inside.to(kind), t, t * t, tl.where(inside, -INFINITY, w), tl.where(inside, w, INFINITY)
        )
        mean1, scale1, spread1, alpha, right = concluded(
            c1, a, b1, below, above, reference, n, room, room_low, ratio.to(kind)
        )
        c, mean, scale = (
            tl.where(pending, c1, c),
            tl.where(pending, mean1, mean),
            tl.where(pending, scale1, scale),
        )
        spread = tl.where(pending, spread1, spread)
        sure = tl.where(pending, right, sure)
        pending = pending & (right == 0)
        pivot = tl.where(pending, reference + alpha, pivot)
        reference = tl.where(pending, reference + mean1, reference)
        turn += 1

    if RULE == KEEP:
        size = exact_root(b)
    elif RULE == FIXED:
        size = norm.to(kind)
    else:
        size = ratio.to(kind) * (reference + mean) + exact_division(spread, scale)
    sure = sure & (size > 1.0 / ORDINARY) & (size < ORDINARY)
    # Zeros may have to stay out of a whole support.
    sure = sure & ((c < n) | (low != 0))
    gain = exact_division(size, scale)
    base = exact_division(ratio.to(kind) * size, c) - mean * gain
    p = (w - spread_out(reference)) * spread_out(gain) + spread_out(base)
    p = tl.where(w > spread_out(pivot), tl.maximum(p, 0.0), 0.0)
    if SIGNED:
        p = tl.where(v < 0, -p, p)
    # Zeros have no sign, not even those that a narrower type makes.
    result = p.to(x.dtype) + 0.0
    tl.store(
        out + spread_out(row * out_stride) + place, result.to(x.dtype), mask=there & spread_out(sure)
    )
    tl.store(left + row, (sure == 0).to(tl.int8), mask=exists)
    if WITH_SCALE:
        tl.store(scales + row, exact_division(scale, size).to(tl.float64), mask=exists)
