"""Rows that fit in registers: read once, search, write once.

The search runs in the arithmetic of the data (float32 for the half types), from a start that mean
and standard deviation suggest. The exact step is a lower bound (fact 3); Newton's step shows the
way. The support is the right one when an evaluation at its own exact step counts the same entries.
That much is not even needed: where the pivot is off alpha by a small share e of the mean distance,
few entries lie in between and each counts for little, so that the exact step is off by e^2/2 of it
only; and the result is cut off at zero, not at the pivot. All other vectors (ties, ends of the
range, extreme scales, NaN) are left, marked, to `careful`.
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
    start_for,
    sums_over,
    survey_over,
)

ROUNDS = tl.constexpr(16)
"""Evaluations after which a search has to be more careful."""

NEAR = tl.constexpr(2e-4)
"""How far from alpha a pivot may be in float32, in mean distances: half its square is below eps."""

NEAR_IN_DOUBLE = tl.constexpr(1e-8)


@triton.jit
def begin(a, b, high, low, n, ratio, k, start):
    """Return the first pivot, from sums and ends of the entries.

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
    return tl.minimum(pivot, high - 1e-3 * extent)


@triton.jit
def rough_step(pivot, low, high, c, a, b, k, ratio, WORK: tl.constexpr):
    """Return the next pivot, the bracket, if that is the exact step, and how long it is.

    c, a and b are the number of entries above the pivot, the sum of their distances from it and of
    the squares. Invariant, up to rounding: low <= alpha < high. Where less than an entry is to be
    expected between the pivot and the next, that is the exact step. Its length, in mean distances,
    is infinite where it is no measure of how far alpha is.
    """
    kind = pivot.dtype
    c, a, b = c.to(WORK), a.to(WORK), b.to(WORK)
    mean = a / c
    spread = tl.maximum(b - a * mean, 0.0)
    excess = c - k
    enough = excess > 0
    to_exact = mean - tl.sqrt(spread * c / tl.where(enough, excess, 1.0)) * (ratio / c)
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
    near = enough & (tl.abs(step - pivot).to(WORK) * c * c < a)
    length = tl.where(8 * excess > k, tl.abs(to_exact) / mean, INFINITY)
    return tl.where(near, exact, step), low, high, near, length


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
def evaluate(w, pivot):
    """Return the number of entries above the pivot, the sums of distances and of their squares."""
    t = tl.maximum(w - spread_out(pivot), 0.0)
    return sums_over((t > 0).to(t.dtype), t, t * t)


# NaN must not pass for something smaller or larger.
@triton.jit
def larger(a, b):
    """Return the larger one, or NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(a, b):
    """Return the smaller one, or NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smallest_over(tile):
    """Return the smallest entry of each vector, NaN if there is one."""
    return tl.reduce(tl.reduce(tile, 1, smaller), 1, smaller)


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
    exists = row < rows
    place = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    there = spread_out(exists) & (place < (J * I if EVEN else n))
    x = tl.load(given + spread_out(row * given_stride) + place, mask=there, other=0.0)
    v = x if x.dtype == tl.float64 else x.to(tl.float32)
    w = tl.abs(v) if SIGNED else v
    kind: tl.constexpr = w.dtype
    ratio, room, room_low, norm = goal_of(
        goals, goals_stride, row, exists, ratio_bits, room_bits, low_bits, norm_bits
    )
    k = (n - room).to(tl.float32)
    ratio32 = ratio.to(tl.float32)
    if goals_stride != 0:
        start = start_for(k / n)

    # ---- the survey ----
    upper, lower = w, w
    if not EVEN:
        upper, lower = tl.where(place < n, w, -INFINITY), tl.where(place < n, w, INFINITY)
    total, squares, high, low = survey_over(w, w * w, upper, lower)
    if not EVEN:
        # What is not there lies below every pivot.
        w = upper
    pivot = begin(total, squares, high, low, n.to(kind), ratio32.to(kind), k.to(kind), start)
    extent = high - low
    # NaN is in the sum; so are infinities.
    active = exists & (ratio32 > 1) & (room > 0) & (squares < INFINITY) & (total == total)
    active = active & (tl.maximum(tl.abs(high), tl.abs(low)) < ORDINARY) & (extent > 1 / ORDINARY)
    if ONLY_INCREASE:
        # Whoever may be sparse enough already is looked at with care.
        c, a, b = evaluate(w, (row * 0).to(kind))
        active = active & (c - k > k * (b * c / (a * a) - 1.0) * 1.001 + 1e-4 * c)

    # ---- the search; invariant, up to rounding: below <= alpha < above ----
    below, above = low - extent, high
    c = (row * 0).to(kind) - 1.0
    a, b = c, c
    exact = row < 0
    sure = exact
    turn = 0
    while (turn < ROUNDS) & (tl.max(active.to(tl.int32), 0) > 0):
        c1, a1, b1 = evaluate(w, pivot)
        following, below, above, near, length = rough_step(
            pivot, below, above, c1, a1, b1, k, ratio32, tl.float32
        )
        close = length < (NEAR_IN_DOUBLE if kind == tl.float64 else NEAR)
        sure = sure | (active & ((exact & (c1 == c)) | close))
        c, a, b = tl.where(active, c1, c), tl.where(active, a1, a), tl.where(active, b1, b)
        active = active & (sure == 0)
        pivot = tl.where(active, following, pivot)
        exact = near
        turn += 1

    # ---- the closed form on the support (fact 2) ----
    excess = excess_of(c, n, room, room_low).to(kind)
    mean = exact_division(a, c)
    spread = b - a * mean
    sure = sure & (excess > 0) & (mean > 1 / ORDINARY)
    if tl.max((sure & (a * mean > 3 * spread)).to(tl.int32), 0) > 0:
        # Entries so nearly equal, seen from the pivot, need sums about their mean.
        inside = w > spread_out(pivot)
        t = tl.where(inside, w - spread_out(pivot + mean), 0.0)
        _, a2, b2 = sums_over(t, t, t * t)
        closer = exact_division(a2, c)
        mean = (pivot + mean - pivot) + closer
        spread = b2 - a2 * closer
        a = mean * c
        sure = sure & (spread > 0)
    scale = exact_root(exact_division(spread * c, tl.where(sure, excess, 1.0)))
    base = exact_division(ratio.to(kind), c)
    to_alpha = mean - scale * base
    if RULE == KEEP:
        size = exact_root(squares)
    elif RULE == FIXED:
        size = norm.to(kind)
    else:
        size = ratio.to(kind) * (pivot + mean) + exact_division(spread, scale)
    sure = sure & (size > 1 / ORDINARY) & (size < ORDINARY)
    # Zeros may have to stay out of a whole support.
    sure = sure & ((c != n) | (low != 0))
    if kind == tl.float64:
        # Closer calls than this are for those who try both supports.
        nearest = smallest_over(tl.where(w > spread_out(pivot), w, INFINITY))
        sure = sure & (nearest - pivot - to_alpha > 2.8e-14 * base * scale)

    # ---- the result: with alpha known the sum of distances says what the scale is ----
    scale = exact_division(a - c * to_alpha, ratio.to(kind))
    gain = exact_division(size, scale)
    offset = -to_alpha * gain
    # What rounds to zero has no sign either.
    tiny: tl.constexpr = 2.9802322387695312e-08 if out.dtype.element_ty == tl.float16 else 0.0
    p = (w - spread_out(pivot)) * spread_out(gain) + spread_out(offset)
    p = tl.where(p > tiny, p, 0.0)
    if SIGNED:
        p = tl.where(v < 0, 0.0 - p, p)
    tl.store(
        out + spread_out(row * out_stride) + place,
        p.to(out.dtype.element_ty),
        mask=there & spread_out(sure),
    )
    tl.store(left + row, (sure == 0).to(tl.int8), mask=exists)
    if WITH_SCALE:
        tl.store(scales + row, exact_division(scale, size).to(tl.float64), mask=exists)
