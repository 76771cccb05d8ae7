"""Rows that fit in registers: read once, search, write once.

The search runs in the arithmetic of the data (float32 for the half types), from a start that mean
and standard deviation suggest. The exact step, to the alpha that the closed form has for the
entries above a pivot, never ends above the right alpha; Newton's step shows the way. The support is
the right one when there are the same entries above its own exact step: an evaluation there says so,
or a mere count. That much is not even needed: where the pivot is off alpha by a small share e of
the mean distance, an entry in between moves the exact step by e/d of it at most, and about e d/2 of
them are to be expected; and the result is cut off at zero, not at the pivot. How many there are is
counted in the end. All other vectors (ties, ends of the range, extreme scales, NaN) are left to
`careful`, marked.

Entries that do not exist, as the tile is longer than the vector or a mask leaves them out, lie at
minus infinity: below every pivot, and zero in the result.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from .device import (
    BOTH,
    FREE,
    INFINITY,
    L1_ALONE,
    ORDINARY,
    WITHIN,
    bits_of,
    count_over,
    exact_division,
    goal_of,
    length_of,
    magnitudes,
    pairs_over,
    peaks_over,
    place_of,
    positive,
    spread_out,
    start_for,
    sums_over,
    survey_over,
)
from .formula import (
    at_zeros,
    closed_form,
    excess_of,
    guesses,
    norm_of,
    result_of,
    rough_steps,
    scale_by_distances,
    trial_step,
    zeros_stay,
)

ROUNDS = tl.constexpr(16)
"""Evaluations after which a search has to be more careful."""

NEAR = tl.constexpr(2e-4)
"""How far from alpha a pivot may be in float32, in mean distances: half its square is below eps."""

NEAR_ENOUGH = tl.constexpr(5e-5)
"""The same without a count on the way: chance lets few entries lie that close, even in a million
rows, and those that have too many take a pass of `careful`, for which all others wait."""

NEAR_PER_ENTRY = tl.constexpr(2e-7)
"""The same for few entries, d: a single one between pivot and alpha counts for e/d."""

MISCOUNTED = tl.constexpr(5e-7)
"""What entries between pivot and alpha may have in the sum of all distances."""

MISCOUNTED_DOUBLE = tl.constexpr(4e-16)
"""The same in float64, where it does not matter whether entries at alpha are counted."""

CLOSE = tl.constexpr(1e-5)
"""How near to its bound a norm has to be taken in double."""

LONG_WAY = tl.constexpr(3)
"""Squared mean distance, in variances, from which on sums about the pivot lose too many digits."""


@dataclass(frozen=True)
class Tile:
    """How a program holds its vectors: see `device`."""

    pieces: int
    rows: int
    width: int
    even: bool
    """Whether the pieces end where the vectors do."""


@triton.jit
def begin(a, b, high, low, n, slack, ratio, start, CASE):
    """Return the first pivot and a lower bound of alpha, from sums and ends of n entries.

    As if the entries were normal (or their magnitudes half-normal), or their tail uniform; or below
    all of them, where the closed form over all of them says so: the bound.
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
    normal, uniform, whole = guesses(deviation, top, extent, n, slack, ratio, start, CASE)
    if CASE.rule == FREE:
        pivot = tl.where(known, tl.minimum(normal, uniform), uniform)
        # The largest entry gets no more than the norm; all entries together get no less.
        pivot = tl.maximum(tl.maximum(pivot, top - ratio), whole)
        pivot = tl.where(whole < bottom, whole, pivot)
        below = tl.minimum(whole - 1e-3 * (deviation + ratio / n), pivot)
    else:
        pivot = tl.where(known, tl.minimum(normal, uniform), uniform)
        # Tails this long are not normal; then the bound is nearer.
        pivot = tl.where(known & (top > 12 * deviation), tl.minimum(pivot, whole), pivot)
        pivot = tl.where(known & (whole < bottom + 1e-3 * deviation), bottom - 1e-3 * extent, pivot)
        pivot = tl.minimum(pivot, top - 1e-3 * extent)
        below = tl.minimum(whole - 1e-3 * deviation, pivot)
    return mean + pivot.to(kind), mean + below.to(kind)


@triton.jit
def rough_step(pivot, low, high, sums, n, least, k, ratio, RULE, WORK):
    """Return the next pivot, the bracket, where the exact step ends, if it is near, and its length.

    `sums` begin with those of `evaluate`, over n entries, none of which lies below `least`.
    Invariant, up to rounding: low <= alpha < high.
    Near is where less than an entry is to be expected between pivot and alpha; then the exact step
    is the next one. Its length, in mean distances, is infinite where it is no measure of how far
    alpha is, and negative where it ends below all entries, which is the end of it.
    """
    kind = pivot.dtype
    all_of = sums[0] == n
    c, a, b = sums[0].to(WORK), sums[1].to(WORK), sums[2].to(WORK)
    k, ratio = k.to(WORK), ratio.to(WORK)
    # In mean distances everything follows from the relative variance of the distances.
    inverse = 1.0 / c
    mean = a * inverse
    square = c * b / (a * a)
    excess = c - k
    enough = excess > 0
    exact, newton = rough_steps(a, square, inverse, excess, k, ratio, RULE)
    at_exact = pivot + (mean * exact).to(kind)
    low = tl.where(enough, tl.maximum(low, at_exact), low)
    climbs = enough & (exact > 0)
    high = tl.where(climbs, high, tl.minimum(high, pivot))
    step = trial_step(exact, newton, climbs, RULE)
    following = pivot + (mean * step).to(kind)
    inside = (following >= low) & (following < high)
    following = tl.where(inside, following, tl.where(enough, low, 0.5 * (low + high)))
    near = enough & (tl.abs(following - pivot).to(WORK) * c < mean)
    length = tl.where(8 * excess > k, tl.abs(exact), INFINITY)
    length = tl.where(all_of & (at_exact < least), -1.0, length)
    return tl.where(near, at_exact, following), low, high, at_exact, near, length


@triton.jit
def evaluate(w, pivot):
    """Return the number of entries above the pivot, the sums of distances and of their squares."""
    if w.dtype == tl.float64:
        inside = w > spread_out(pivot)
        t = tl.where(inside, w - spread_out(pivot), 0.0)
    else:
        t = tl.maximum(w - spread_out(pivot), 0.0)
        inside = t > 0
    return sums_over(inside.to(tl.float32), t, t * t)


@triton.jit
def norms_in_double(x_at, n, SIGNED, TILE):
    """Return the L1 norm of every vector and the square of its L2 norm.

    The vectors are read again, piece by piece: as doubles they would take all registers.
    """
    l1 = tl.full((TILE.rows, 1, TILE.width), 0, tl.float64)
    square = l1
    for j in range(TILE.pieces):
        place = j * TILE.width + tl.arange(0, TILE.width)[None, None, :]
        _, w = magnitudes(tl.load(x_at + place, mask=place < n, other=0.0), SIGNED)
        entries = w.to(tl.float64)
        l1 += entries
        square += entries * entries
    return pairs_over(l1, square)


@triton.jit
def l1_in_double(w, x_at, n, CASE, TILE):
    """Return the L1 norm of every vector's positive part; see `norms_in_double`."""
    if CASE.masked:
        total = tl.sum(tl.sum(positive(w).to(tl.float64), 1), 1)
    else:
        l1 = tl.full((TILE.rows, 1, TILE.width), 0, tl.float64)
        for j in range(TILE.pieces):
            place = j * TILE.width + tl.arange(0, TILE.width)[None, None, :]
            x = tl.load(x_at + place, mask=place < n, other=0.0)
            l1 += positive(magnitudes(x, CASE.signed)[1]).to(tl.float64)
        total = tl.sum(tl.sum(l1, 1), 1)
    return total


@triton.jit
def any_of(conditions):
    """Whether one of the vectors of a tile is meant."""
    return tl.max(conditions.to(tl.int32), 0) > 0


@triton.jit
def survey(w, there, CASE, TILE):
    """Return the sum of the entries and of their squares, the largest and the smallest one."""
    if CASE.signed:
        # No magnitude lies below zero, and what is not there may as well be zero.
        total, squares, high = peaks_over(w, w * w, w)
        low = 0.0 * high
    else:
        upper, lower = w, w
        if CASE.masked or not TILE.even:
            upper, lower = tl.where(there, w, -INFINITY), tl.where(there, w, INFINITY)
        total, squares, high, low = survey_over(w, w * w, upper, lower)
    return total, squares, high, low


@triton.jit
def within_bound(w, x_row, total, ratio, n, able, CASE, TILE):
    """Return which of the vectors that are `able` are within the L1 norm, to all digits.

    `w` are their entries, or minus infinity, `total` is their sum.
    """
    length = total
    if not CASE.signed:
        length = tl.sum(tl.sum(positive(w), 1), 1)
    bound = ratio.to(length.dtype)
    inside = able & (length <= bound)
    if any_of(able & (tl.abs(length - bound) <= CLOSE * bound)):
        inside = able & (l1_in_double(w, x_row, n, CASE, TILE) <= ratio)
    return inside


@triton.jit
def search(w, active, pivot, below, above, least, n, k, ratio, RULE, TYPE):
    """Find the supports of the vectors that are `active`.

    Return the last pivot, the sums over what is above it (see `evaluate`), and whether that is the
    support. Invariant, up to rounding: below <= alpha < above.
    """
    kind: tl.constexpr = w.dtype
    c = (active.to(tl.int32) * 0).to(tl.float32) - 1.0
    a = c.to(kind)
    b = a
    exact = c > 0
    sure = exact
    turn = 0
    # 0: all are through; 1 (in the loop): a count may be enough for the others; 2: not yet.
    state = tl.max(active.to(tl.int32), 0)
    while (turn < ROUNDS) & (state > 0):
        sums = evaluate(w, pivot)
        c1, a1, b1 = sums
        following, below, above, at_exact, near, length = rough_step(
            pivot, below, above, sums, n, least, k, ratio, RULE, tl.float32
        )
        found = (exact & (c1 == c)) | (length < 0)
        if TYPE == tl.float32:
            # Ties may lie in between: see `support_is_right`.
            found = found | (length < tl.minimum(NEAR_ENOUGH, NEAR_PER_ENTRY * c1))
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
    return pivot, c, a, b, sure


@triton.jit
def moments(w, pivot, c, a, b, sure, RULE):
    """Return the sum of distances from the pivot, their mean, and the sum of squares about it."""
    mean = exact_division(a, c)
    spread = b - a * mean
    sure = sure & (mean > 1 / ORDINARY)
    if RULE == FREE:
        # Nothing follows from the squares.
        pass
    elif any_of(sure & (a * mean > LONG_WAY * spread)):
        # Entries so nearly equal, seen from the pivot, need sums about their mean.
        t = tl.where(w > spread_out(pivot), w - spread_out(pivot + mean), 0.0)
        a2, b2 = pairs_over(t, t * t)
        closer = exact_division(a2, c)
        mean = (pivot + mean - pivot) + closer
        spread = b2 - a2 * closer
        a = mean * c
        sure = sure & (spread > 0)
    return a, mean, spread, sure


@triton.jit
def support_is_right(w, pivot, to_alpha, c, a, mean, sure, RULE, TYPE):
    """Whether the entries above alpha are those that were summed, or nearly."""
    if w.dtype == tl.float64 and RULE == FREE:
        beyond = count_over(spread_out(to_alpha) < w - spread_out(pivot))
        sure = sure & (tl.abs((beyond - c) * to_alpha) <= MISCOUNTED_DOUBLE * a)
    elif w.dtype == tl.float64:
        # Closer calls than this are for those who try both supports; but zeros may lie at zero.
        alpha, margin = pivot + to_alpha, 2.8e-14 * (mean - to_alpha)
        under = tl.where(tl.abs(alpha) < margin, 0.0, alpha - margin)
        over, beyond = pairs_over(
            tl.where(w > spread_out(alpha + margin), 1.0, 0.0),
            tl.where(w > spread_out(under), 1.0, 0.0),
        )
        sure = sure & (over == c) & (beyond == c)
    elif TYPE == tl.float32:
        # To all digits, where ties may lie there, any number of them; in half types those that the
        # last digits decide about do not show. Rounding of alpha counts for little, unless it is
        # far from zero.
        beyond = count_over(w > spread_out(pivot + to_alpha))
        if any_of(sure & (tl.abs(pivot) > 8 * mean)):
            beyond = count_over(spread_out(to_alpha) < w - spread_out(pivot))
        sure = sure & (tl.abs((beyond - c) * to_alpha) <= MISCOUNTED * a)
    return sure


@triton.jit
def settle_zeros(w, v, x_row, place, low, n, line, goal, c, excess, sure, CASE, TILE):
    """Decide about zeros that lie near alpha, or in a whole support: see `formula.at_zeros`.

    Return the offset, and for which vectors that is right: the others are left.
    """
    pivot, offset = line[0], line[2]
    kind: tl.constexpr = w.dtype
    beside, doubtful = at_zeros(line, goal, n, excess, CASE)
    whole = sure & (c == n) & (pivot < 0)
    if any_of(whole | (sure & doubtful)):
        if CASE.signed:
            if CASE.masked:
                low = tl.min(tl.min(tl.where(w >= 0, w, INFINITY), 1), 1)
            else:
                low = tl.min(tl.min(w if TILE.even else tl.where(place < n, w, INFINITY), 1), 1)
        zeros = (whole | doubtful) & (low == 0)
        if CASE.signed:
            if any_of(zeros & whole & sure):
                # A negative zero becomes something positive.
                least: tl.constexpr = -(2**63) if kind == tl.float64 else -(2**31)
                negative = tl.min(tl.min(bits_of(v), 1), 1) == least
                sure = sure & ~(zeros & whole & negative)
        zeros = zeros & doubtful
        if CASE.rule == FREE:
            # What they do not receive is the others'.
            sure = sure & ~zeros
        elif any_of(zeros & sure):
            # Their norms in double tell; of long half rows from registers, which was faster.
            half: tl.constexpr = x_row.dtype.element_ty.primitive_bitwidth == 16
            if CASE.masked:
                entries = tl.where(w > -INFINITY, w, 0.0).to(tl.float64)
                l1, square = pairs_over(entries, entries * entries)
            elif half and TILE.pieces * TILE.width > 512:
                entries = (w if TILE.even else tl.where(place < n, w, 0.0)).to(tl.float64)
                l1, square = pairs_over(entries, entries * entries)
            else:
                l1, square = norms_in_double(x_row, n, CASE.signed, TILE)
            stay, without = zeros_stay(l1, square, line, goal, n, CASE)
            # Of a whole support the other entries would move.
            sure = sure & (~zeros | (stay & beside & ~whole))
            offset = tl.where(zeros, without, offset)
    return offset, sure


@triton.jit
def is_ordinary(total, squares, high, low, exists, goal, CASE):
    """Whether vectors and their targets are of moderate size, and have something to search."""
    ratio, slack = goal[0].to(tl.float32), goal[1]
    # NaN is in the sum; so are infinities.
    if CASE.rule == FREE:
        fine = exists & (ratio > 1 / ORDINARY) & (ratio < ORDINARY)
        fine = fine & (squares < INFINITY) & (total == total)
        fine = fine & (tl.maximum(tl.abs(high), tl.abs(low)) < ORDINARY)
    else:
        fine = exists & (ratio > 1) & (slack > 0) & (squares < INFINITY) & (total == total)
        fine = fine & (tl.maximum(tl.abs(high), tl.abs(low)) < ORDINARY)
        fine = fine & (high - low > 1 / ORDINARY)
    return fine


@triton.jit
def load_tile(x_row, masks, row, place, n, CASE, TILE):
    """Return entries of vectors, zero where there are none, and where there are some."""
    there = place < n
    if CASE.masked:
        mask, stride = masks[0], masks[1]
        # Loads of 16 bytes would give a thread that many entries, and x the same layout: in place
        # of 16 bytes of x as well.
        wide: tl.constexpr = 128 // x_row.dtype.element_ty.primitive_bitwidth
        at = tl.max_contiguous(mask + spread_out(row * stride) + place, [1, 1, wide])
        there = tl.load(at, mask=there, other=0) != 0
        x = tl.load(x_row + place, mask=place < n, other=0.0)
        x = tl.where(there, x, 0.0)
    elif TILE.even:
        x = tl.load(x_row + place)
    else:
        x = tl.load(x_row + place, mask=there, other=0.0)
    return x, there


@triton.jit(do_not_specialize=["rows"])
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
    ratio: tl.float64,
    slack: tl.float64,
    slack_low: tl.float64,
    norm: tl.float64,
    masks,
    marks,
    start,
    CASE: tl.constexpr,
    TILE: tl.constexpr,
):
    """Project some vectors per program; write 1 to `left` for those that need more care."""
    TYPE: tl.constexpr = given.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * TILE.rows + tl.arange(0, TILE.rows)
    exists = row < rows
    place = tl.arange(0, TILE.pieces)[None, :, None] * TILE.width
    place = place + tl.arange(0, TILE.width)[None, None, :]
    to_write = spread_out(exists) & (place < (TILE.pieces * TILE.width if TILE.even else n))
    # Where there are no more vectors, the last one serves.
    last = tl.minimum(row, rows - 1)
    x_row = given + spread_out(place_of(last, given_stride, CASE))
    x, there = load_tile(x_row, masks, last, place, n, CASE, TILE)
    v, w = magnitudes(x, CASE.signed)
    kind: tl.constexpr = w.dtype
    goal = goal_of(goals, row, exists, (ratio, slack, slack_low, norm), CASE)
    ratio, slack, slack_low, norm = goal
    size = length_of(goals, row, exists, n, CASE)
    k = (size - slack).to(tl.float32)
    ratio32, slack32 = ratio.to(tl.float32), slack.to(tl.float32)
    if CASE.own_goals:
        start = start_for(k / size)

    total, squares, high, low = survey(w, there, CASE, TILE)
    if CASE.masked or not TILE.even:
        # What is not there lies below every pivot.
        w = tl.where(there, w, -INFINITY)
    pivot, below = begin(total, squares, high, low, size, slack32, ratio32, start, CASE)
    active = is_ordinary(total, squares, high, low, exists, goal, CASE)
    # Vectors that stay as they are: those within a bound, and those without entries.
    stay = exists & (row < 0)
    if CASE.at_most:
        stay = within_bound(w, x_row, total, ratio, n, active, CASE, TILE)
    if CASE.masked:
        empty = exists & (size == 0)
        stay = stay | empty
    if CASE.at_most or CASE.masked:
        active = active & ~stay
    if CASE.only_increase:
        # Whoever may be sparse enough already is looked at with care.
        c, a, b = evaluate(w, (row * 0).to(kind))
        active = active & (c - k > k * (b * c / (a * a) - 1.0) * 1.001 + 1e-4 * c)
    pivot, c, a, b, sure = search(
        w, active, pivot, below, high, low, size, k, ratio32, CASE.rule, TYPE
    )

    excess = excess_of(c, size, slack, slack_low).to(kind)
    c = c.to(kind)
    # Near sparseness 0 beta, and with it alpha, would overflow.
    sure = sure & (excess > 1 / ORDINARY)
    a, mean, spread, sure = moments(w, pivot, c, a, b, sure, CASE.rule)
    divisor = tl.where(sure, excess, 1.0)
    scale, step = closed_form(c, spread, divisor, ratio.to(kind), CASE.rule, False)
    to_alpha = mean - step
    # Far above the pivot alpha would be a small difference.
    sure = sure & (mean <= 8 * (mean - to_alpha))
    l2 = norm_of(squares, norm, ratio.to(kind), pivot + mean, spread, scale, CASE.rule)
    sure = sure & (l2 > 1 / ORDINARY) & (l2 < ORDINARY)
    sure = support_is_right(w, pivot, to_alpha, c, a, mean, sure, CASE.rule, TYPE)

    scale = scale_by_distances(scale, a, c * to_alpha, ratio.to(kind), CASE.rule)
    gain = exact_division(l2, scale)
    line = (pivot, gain, -to_alpha * gain, high, l2)
    offset, sure = settle_zeros(
        w, v, x_row, place, low, size, line, goal, c, excess, sure, CASE, TILE
    )
    if CASE.at_most or CASE.masked:
        sure = sure | stay
        pivot, gain = tl.where(stay, 0.0, pivot), tl.where(stay, 1.0, gain)
        offset = tl.where(stay, 0.0, offset)
    line = (spread_out(pivot), spread_out(gain), spread_out(offset))
    p = result_of(w, v, line, CASE.signed, out.dtype.element_ty)
    if CASE.scattered != 0:
        row_to_write = last
    else:
        row_to_write = row
    y_row = out + spread_out(place_of(row_to_write, out_stride, CASE))
    tl.store(y_row + place, p, mask=to_write & spread_out(sure))
    tl.store(left + row, (sure == 0).to(tl.int8), mask=exists)
    if CASE.with_scale:
        scale = exact_division(scale, l2).to(tl.float64)
        if CASE.masked:
            scale = tl.where(empty, 0.0, scale)
        tl.store(scales + row, scale, mask=exists)
    if CASE.marks and (CASE.at_most or CASE.masked):
        mark = tl.where(stay, WITHIN, L1_ALONE if CASE.rule == FREE else BOTH)
        tl.store(marks + row, mark.to(tl.int8), mask=exists)
