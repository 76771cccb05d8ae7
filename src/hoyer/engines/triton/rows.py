"""Rows that fit in registers: read once, search, write once.

The search runs in the arithmetic of the data (float32 for the half types), from a start that mean
and standard deviation suggest. The exact step is a lower bound (fact 3); Newton's step shows the
way. The support is the right one when there are the same entries above its own exact step: an
evaluation there says so, or a mere count. That much is not even needed: where the pivot is off
alpha by a small share e of the mean distance, an entry in between moves the exact step by e/d of it
at most, and about e d/2 of them are to be expected; and the result is cut off at zero, not at the
pivot. How many there are is counted in the end. All other vectors (ties, ends of the range, extreme
scales, NaN) are left to `careful`, marked.
"""

import triton
import triton.language as tl

from .device import (
    FIXED,
    INFINITY,
    KEEP,
    ORDINARY,
    count_over,
    excess_of,
    goal_of,
    pairs_over,
    peaks_over,
    positive,
    spread_out,
    start_for,
    sums_over,
    survey_over,
    zeros_limit,
)

ROUNDS = tl.constexpr(16)
"""Evaluations after which a search has to be more careful."""

NEAR = tl.constexpr(2e-4)
"""How far from alpha a pivot may be in float32, in mean distances: half its square is below eps."""

NEAR_PER_ENTRY = tl.constexpr(2e-7)
"""The same for few entries, d: a single one between pivot and alpha counts for e/d."""

MISCOUNTED = tl.constexpr(5e-7)
"""What entries between pivot and alpha may have in the sum of all distances."""

LONG_WAY = tl.constexpr(3)
"""Squared mean distance, in variances, from which on sums about the pivot lose too many digits."""


@triton.jit
def begin(a, b, high, low, n, room, ratio, start):
    """Return the first pivot and a lower bound of alpha, from sums and ends of n entries.

    As if the entries were normal (or their magnitudes half-normal), or their tail uniform; or below
    all of them, where the closed form over all of them says so: the bound (fact 3).
    """
    kind = a.dtype
    share = 1.0 / n.to(kind)
    mean = a * share
    square = (b * share).to(tl.float32)
    variance = (b * share - mean * mean).to(tl.float32)
    top, bottom = (high - mean).to(tl.float32), (low - mean).to(tl.float32)
    extent = top - bottom
    known = variance > 1e-4 * square
    deviation = tl.sqrt(tl.maximum(variance, 1e-4 * square))
    uniform = top * (1.0 - tl.minimum(1.0, 2.6666667 * (1.0 - room / n)))
    whole = -ratio * deviation * tl.sqrt(1.0 / room)
    pivot = tl.where(known, tl.minimum(start * deviation, uniform), uniform)
    # Tails this long are not normal; then the bound is nearer.
    pivot = tl.where(known & (top > 12 * deviation), tl.minimum(pivot, whole), pivot)
    pivot = tl.where(known & (whole < bottom + 1e-3 * deviation), bottom - 1e-3 * extent, pivot)
    pivot = tl.minimum(pivot, top - 1e-3 * extent)
    below = tl.minimum(whole - 1e-3 * deviation, pivot)
    return mean + pivot.to(kind), mean + below.to(kind)


@triton.jit
def rough_step(pivot, low, high, c, a, b, n, least, k, ratio, WORK: tl.constexpr):
    """Return the next pivot, the bracket, where the exact step ends, if it is near, and its length.

    c, a and b are the number of entries above the pivot (of n; none lies below `least`), the sum of
    their distances from it and of the squares. Invariant, up to rounding: low <= alpha < high.
    Near is where less than an entry is to be expected between pivot and alpha; then the exact step
    is the next one. Its length, in mean distances, is infinite where it is no measure of how far
    alpha is, and negative where it ends below all entries, which is the end of it.
    """
    kind = pivot.dtype
    all_of = c == n
    c, a, b = c.to(WORK), a.to(WORK), b.to(WORK)
    # In mean distances everything follows from the relative variance of the distances.
    inverse = 1.0 / c
    mean = a * inverse
    square = c * b / (a * a)
    variance = tl.maximum(square - 1.0, 0.0)
    excess = c - k
    enough = excess > 0
    # One root for both: sqrt(variance/excess), and 1/variance.
    root = tl.rsqrt(variance * tl.abs(excess))
    exact = 1.0 - ratio * (variance * root)
    # Newton's step for a^2/b - K.
    newton = 0.5 * square * (1.0 - k * inverse * square) * (tl.abs(excess) * root * root)
    at_exact = pivot + (mean * exact).to(kind)
    low = tl.where(enough, tl.maximum(low, at_exact), low)
    climbs = enough & (exact > 0)
    high = tl.where(climbs, high, tl.minimum(high, pivot))
    # From below Newton's step tends to overshoot.
    step = tl.where(climbs, tl.maximum(exact, 0.3 * exact + 0.7 * newton), newton)
    following = pivot + (mean * step).to(kind)
    inside = (following >= low) & (following < high)
    following = tl.where(inside, following, tl.where(enough, low, 0.5 * (low + high)))
    near = enough & (tl.abs(following - pivot).to(WORK) * c < mean)
    length = tl.where(8 * excess > k, tl.abs(exact), INFINITY)
    length = tl.where(all_of & (at_exact < least), -1.0, length)
    return tl.where(near, at_exact, following), low, high, at_exact, near, length


@triton.jit
def magnitudes(x, SIGNED: tl.constexpr):
    """Return entries in the arithmetic of the search, and their sizes."""
    v = x if x.dtype == tl.float64 else x.to(tl.float32)
    w = tl.abs(v) if SIGNED else v
    return v, w


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
    if w.dtype == tl.float64:
        inside = w > spread_out(pivot)
        t = tl.where(inside, w - spread_out(pivot), 0.0)
        sums = sums_over(inside.to(tl.float32), t, t * t)
    else:
        t = tl.maximum(w - spread_out(pivot), 0.0)
        sums = sums_over(tl.where(t > 0, 1.0, 0.0), t, t * t)
    return sums


@triton.jit
def closed_form(c, mean, spread, excess, ratio):
    """Return the scale, and how far alpha is from the pivot (fact 2).

    From the number of entries in the support, the mean of their distances from the pivot, the sum
    of squares about that, and c - K.
    """
    scale = exact_root(exact_division(spread * c, excess))
    return scale, mean - exact_division(scale * ratio, c)


@triton.jit
def by_distances(scale, a, step, ratio):
    """Return the scale: from the sum of distances from alpha, unless the pivot is far from it.

    `a` is the sum of those from the pivot, `step` what they all lose. The sum has no more error
    than alpha itself, so that both norms hold; but it must not be a small difference.
    """
    rest = a - step
    return tl.where(tl.abs(step) <= rest, exact_division(rest, ratio), scale)


@triton.jit
def bits_of(v):
    """Return floats as integers; the smallest one is a negative zero."""
    return v.to(tl.int64 if v.dtype == tl.float64 else tl.int32, bitcast=True)


@triton.jit
def with_sign(p, v):
    """Return p >= 0 with the sign of v, zeros too.

    By bits: a comparison of v would be made early, and its outcomes kept in registers.
    """
    mask: tl.constexpr = -(2**63) if v.dtype == tl.float64 else -(2**31)
    return (bits_of(p) | (bits_of(v) & mask)).to(p.dtype, bitcast=True)


@triton.jit
def at_zeros(offset, at_pivot, at_top, limit, share):
    """Return whether zeros lie at alpha but for rounding, and whether they are in doubt.

    `at_pivot` and `at_top` are the pivot and the largest entry times the gain, `limit` is what
    zeros may receive and stay zero (`zeros_limit`), all of them at the norm of the result; `share`
    is (d - K)/(n - K): fewer entries than all give them more, by its inverse.
    """
    eps: tl.constexpr = 2.220446049250313e-16 if offset.dtype == tl.float64 else 1.1920929e-07
    received = offset - at_pivot
    noise = 8 * eps * (tl.abs(offset) + tl.abs(at_pivot) + tl.abs(at_top))
    beside = tl.abs(received) <= noise
    return beside, beside | ((received > 0) & (received * share <= 1.01 * limit))


@triton.jit
def zeros_stay(l1, square, ratio, room, n, top, BY_NORMS: tl.constexpr, BY_ENTRIES: tl.constexpr):
    """Whether zeros of a vector stay zero, from its norms in float64: `top` is as in `zeros_limit`.

    What they would receive over all n entries, from norms of ratio r instead of rho and K:
    (rho - r sqrt((n - K)/(n - r^2)))/n.
    """
    own = l1 / tl.sqrt(square)
    rest = room + (ratio - own) * (ratio + own)
    received = (ratio - own * tl.sqrt(room / rest)) / n
    limit = zeros_limit(ratio, room, n, top.to(tl.float64), BY_NORMS, BY_ENTRIES)
    # Close to sparseness 0 these norms do not tell.
    return (rest > 1e-3 * n) & (received <= limit)


@triton.jit
def norms_in_double(
    x_at,
    n,
    SIGNED: tl.constexpr,
    R: tl.constexpr,
    J: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
):
    """Return the L1 norm of every vector and the square of its L2 norm.

    The vectors are read again, piece by piece: as doubles they would take all registers.
    """
    l1, square = tl.zeros((R, 1, I), tl.float64), tl.zeros((R, 1, I), tl.float64)
    for j in range(J):
        place = j * I + tl.arange(0, I)[None, None, :]
        x = tl.load(x_at + place, mask=place < n, other=0.0)
        _, w = magnitudes(x, SIGNED)
        entries = w.to(tl.float64)
        l1 += entries
        square += entries * entries
    return pairs_over(l1, square)


@triton.jit
def offset_without(at_pivot):
    """Return an offset for which zeros stay zero, whatever rounding does."""
    eps: tl.constexpr = 2.220446049250313e-16 if at_pivot.dtype == tl.float64 else 1.1920929e-07
    return at_pivot - 2 * eps * tl.abs(at_pivot)


@triton.jit
def result_of(w, v, pivot, gain, offset, SIGNED: tl.constexpr, TYPE: tl.constexpr):
    """Return the entries of a result: (w - pivot) gain + offset where that is positive."""
    p = positive((w - pivot) * gain + offset)
    if SIGNED:
        p = with_sign(p, v)
        # A zero has no sign; in float16 neither has what rounds to zero.
        if TYPE == tl.float16:
            p = p.to(TYPE) + tl.full((), 0.0, TYPE)
        else:
            p = p + 0.0
    return p.to(TYPE)


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
    BY_NORMS: tl.constexpr,
    BY_ENTRIES: tl.constexpr,
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
    # Where there are no more vectors, the last one serves.
    x_at = given + spread_out(tl.minimum(row, rows - 1) * given_stride) + place
    if EVEN:
        x = tl.load(x_at)
    else:
        x = tl.load(x_at, mask=place < n, other=0.0)
    v, w = magnitudes(x, SIGNED)
    kind: tl.constexpr = w.dtype
    ratio, room, room_low, norm = goal_of(
        goals, goals_stride, row, exists, ratio_bits, room_bits, low_bits, norm_bits
    )
    k = (n - room).to(tl.float32)
    ratio32, room32 = ratio.to(tl.float32), room.to(tl.float32)
    if goals_stride != 0:
        start = start_for(k / n)

    # ---- the survey ----
    if SIGNED:
        # No magnitude lies below zero, and what is not there may as well be zero.
        total, squares, high = peaks_over(w, w * w, w)
        low = 0.0 * high
    else:
        upper, lower = w, w
        if not EVEN:
            upper, lower = tl.where(place < n, w, -INFINITY), tl.where(place < n, w, INFINITY)
        total, squares, high, low = survey_over(w, w * w, upper, lower)
    if not EVEN:
        # What is not there lies below every pivot.
        w = tl.where(place < n, w, -INFINITY)
    pivot, below = begin(total, squares, high, low, n, room32, ratio32, start)
    # NaN is in the sum; so are infinities.
    active = exists & (ratio32 > 1) & (room > 0) & (squares < INFINITY) & (total == total)
    active = active & (tl.maximum(tl.abs(high), tl.abs(low)) < ORDINARY)
    active = active & (high - low > 1 / ORDINARY)
    if ONLY_INCREASE:
        # Whoever may be sparse enough already is looked at with care.
        c, a, b = evaluate(w, (row * 0).to(kind))
        active = active & (c - k > k * (b * c / (a * a) - 1.0) * 1.001 + 1e-4 * c)

    # ---- the search; invariant, up to rounding: below <= alpha < above ----
    above = high
    c = (row * 0).to(tl.float32) - 1.0
    a = c.to(kind)
    b = a
    exact = row < 0
    sure = exact
    turn = 0
    # 0: all are through; 1 (in the loop): a count may be enough for the others; 2: not yet.
    state = tl.max(active.to(tl.int32), 0)
    while (turn < ROUNDS) & (state > 0):
        c1, a1, b1 = evaluate(w, pivot)
        following, below, above, at_exact, near, length = rough_step(
            pivot, below, above, c1, a1, b1, n, low, k, ratio32, tl.float32
        )
        found = (exact & (c1 == c)) | (length < 0)
        if given.dtype.element_ty == tl.float32:
            # Ties may lie in between: see below.
            found = found | (length < tl.minimum(NEAR, NEAR_PER_ENTRY * c1))
        sure = sure | (active & found)
        c, a, b = tl.where(active, c1, c), tl.where(active, a1, a), tl.where(active, b1, b)
        active = active & (sure == 0)
        if kind == tl.float64:
            state = tl.max(active.to(tl.int32), 0)
        else:
            look = near | (length < NEAR)
            state = tl.max(tl.where(active, tl.where(look, 1, 2), 0), 0)
            if state == 1:
                # Whether the exact step leads to the same entries, or nearly, and not far.
                between = tl.abs(count_over(w > spread_out(at_exact)) - c)
                light = between * tl.abs(at_exact - pivot) <= MISCOUNTED * a
                found = (between == 0) | (light & (length < NEAR))
                found = found & (2 * tl.abs(at_exact - pivot) * c <= a)
                sure = sure | (active & found)
                active = active & (sure == 0)
                state = tl.max(active.to(tl.int32), 0)
        pivot = tl.where(active, following, pivot)
        exact = near
        turn += 1

    # ---- the closed form on the support (fact 2) ----
    excess = excess_of(c, n, room, room_low).to(kind)
    c = c.to(kind)
    mean = exact_division(a, c)
    spread = b - a * mean
    # Near sparseness 0 beta, and with it alpha, would overflow.
    sure = sure & (excess > 1 / ORDINARY) & (mean > 1 / ORDINARY)
    if tl.max((sure & (a * mean > LONG_WAY * spread)).to(tl.int32), 0) > 0:
        # Entries so nearly equal, seen from the pivot, need sums about their mean.
        inside = w > spread_out(pivot)
        t = tl.where(inside, w - spread_out(pivot + mean), 0.0)
        a2, b2 = pairs_over(t, t * t)
        closer = exact_division(a2, c)
        mean = (pivot + mean - pivot) + closer
        spread = b2 - a2 * closer
        a = mean * c
        sure = sure & (spread > 0)
    scale, to_alpha = closed_form(c, mean, spread, tl.where(sure, excess, 1.0), ratio.to(kind))
    # Far above the pivot alpha would be a small difference.
    sure = sure & (mean <= 8 * (mean - to_alpha))
    if RULE == KEEP:
        size = exact_root(squares)
    elif RULE == FIXED:
        size = norm.to(kind)
    else:
        size = ratio.to(kind) * (pivot + mean) + exact_division(spread, scale)
    sure = sure & (size > 1 / ORDINARY) & (size < ORDINARY)
    if kind == tl.float64:
        # Closer calls than this are for those who try both supports; but zeros may lie at zero.
        alpha, margin = pivot + to_alpha, 2.8e-14 * (mean - to_alpha)
        under = tl.where(tl.abs(alpha) < margin, 0.0, alpha - margin)
        over, beyond = pairs_over(
            tl.where(w > spread_out(alpha + margin), 1.0, 0.0),
            tl.where(w > spread_out(under), 1.0, 0.0),
        )
        sure = sure & (over == c) & (beyond == c)
    elif given.dtype.element_ty == tl.float32:
        # To all digits, where ties may lie there, any number of them; in half types those that the
        # last digits decide about do not show. Rounding of alpha counts for little, unless it is
        # far from zero.
        beyond = count_over(w > spread_out(pivot + to_alpha))
        if tl.max((sure & (tl.abs(pivot) > 8 * mean)).to(tl.int32), 0) > 0:
            beyond = count_over(spread_out(to_alpha) < w - spread_out(pivot))
        sure = sure & (tl.abs((beyond - c) * to_alpha) <= MISCOUNTED * a)

    # ---- the result ----
    scale = by_distances(scale, a, c * to_alpha, ratio.to(kind))
    gain = exact_division(size, scale)
    offset = -to_alpha * gain
    limit = zeros_limit(
        ratio32, room32, n, (high * gain / size).to(tl.float32), BY_NORMS, BY_ENTRIES
    )
    beside, doubtful = at_zeros(
        offset, pivot * gain, high * gain, limit * size, excess / room.to(kind)
    )
    whole = sure & (c == n) & (pivot < 0)
    if tl.max((whole | (sure & doubtful)).to(tl.int32), 0) > 0:
        if SIGNED:
            low = tl.min(tl.min(w if EVEN else tl.where(place < n, w, INFINITY), 1), 1)
        zeros = (whole | doubtful) & (low == 0)
        if SIGNED:
            if tl.max((zeros & whole & sure).to(tl.int32), 0) > 0:
                # A negative zero becomes something positive.
                least: tl.constexpr = -(2**63) if kind == tl.float64 else -(2**31)
                negative = tl.min(tl.min(bits_of(v), 1), 1) == least
                sure = sure & ~(zeros & whole & negative)
        zeros = zeros & doubtful
        if tl.max((zeros & sure).to(tl.int32), 0) > 0:
            # Their norms in double tell; of long half rows from registers, which was faster.
            if given.dtype.element_ty.primitive_bitwidth == 16 and J * I > 512:
                entries = (w if EVEN else tl.where(place < n, w, 0.0)).to(tl.float64)
                l1, square = pairs_over(entries, entries * entries)
            else:
                at = given + spread_out(tl.minimum(row, rows - 1) * given_stride)
                l1, square = norms_in_double(at, n, SIGNED, R, J, I)
            top = (offset - pivot * gain + high * gain) / size
            stay = zeros_stay(l1, square, ratio, room, n, top, BY_NORMS, BY_ENTRIES)
            # Of a whole support the other entries would move.
            sure = sure & (~zeros | (stay & beside & ~whole))
            offset = tl.where(zeros, offset_without(pivot * gain), offset)
    TYPE: tl.constexpr = out.dtype.element_ty
    p = result_of(w, v, spread_out(pivot), spread_out(gain), spread_out(offset), SIGNED, TYPE)
    tl.store(out + spread_out(row * out_stride) + place, p, mask=there & spread_out(sure))
    tl.store(left + row, (sure == 0).to(tl.int8), mask=exists)
    if WITH_SCALE:
        tl.store(scales + row, exact_division(scale, size).to(tl.float64), mask=exists)
