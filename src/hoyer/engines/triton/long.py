"""Rows beyond the registers of one program, and one huge vector: one or several programs for each.

Every program solves a sample that it holds in registers, and the mean of what they find is the
first pivot. Then the whole vector is read until the exact step is short enough (see `rows`) and few
entries lie about the pivot, mostly twice; rows up to a few million entries stay in the cache
meanwhile. Programs meet after every reading. A last one writes.

Of huge vectors nothing stays in the cache, so one reading has to do. The sample is large then, and
the pivot so near to alpha that the entries in between look evenly spread: counts on both sides of
the pivot say how dense they are, and the step takes them into account. As data can be made that
are not spread evenly at any scale, the pass that writes adds up what it writes; where that misses
the target, it writes again.

Whatever is not ordinary is left, marked, to `careful`.
"""

import triton
import triton.language as tl

from .device import (
    FIXED,
    INFINITY,
    KEEP,
    ORDINARY,
    add_up,
    excess_of,
    gathered,
    goal_of,
    meet,
    positive,
    positive_or_nan,
    share,
    start_for,
    survey_over,
    wide_length,
    zeros_limit,
)
from .rows import (
    at_zeros,
    begin,
    bits_of,
    by_distances,
    closed_form,
    evaluate,
    exact_division,
    exact_root,
    magnitudes,
    offset_without,
    result_of,
    rough_step,
    zeros_stay,
)

ROUNDS = tl.constexpr(12)
LINE = tl.constexpr(32)
"""Neighbouring entries that a sample takes together."""

NEAR = tl.constexpr(4e-4)
MISCOUNTED = tl.constexpr(1e-6)
"""As in `rows`; here for all entries that may lie between pivot and alpha."""

FAR = tl.constexpr(16)
"""Squared mean distance, in variances, from which on the sums have lost too many digits."""

EVEN_ENOUGH = tl.constexpr(8e-7)
"""What the step may lack, in mean distances, where it rests on an even spread."""

MISSED = tl.constexpr(2.5e-6)
"""How far alpha may be, in mean distances, from where the sums over the result say it is."""

WRITES = tl.constexpr(3)
"""How often a result is written at most."""


@triton.jit
def sampled(
    x_at,
    n,
    k,
    start,
    member,
    SIGNED: tl.constexpr,
    J: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    G: tl.constexpr,
):
    """Solve a sample of J I entries, lines from all over the vector, other ones for each member.

    Return alpha, a lower bound, the largest entry, and number and mean distance of the support.
    """
    size: tl.constexpr = J * I
    number = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    stride = (n - LINE) // (size // LINE * G - 1)
    line = (number // LINE * G + member).to(tl.int64)
    v, w = magnitudes(tl.load(x_at + line * stride + number % LINE), SIGNED)
    a, b, high, low = survey_over(w, w * w, w, w)
    whole = size + 0 * (a > 0).to(tl.int32)
    few = tl.maximum(k * size / n, 1.0)
    ratio = tl.sqrt(few)
    pivot, least = begin(a, b, high, low, whole, size - few, ratio, start)
    below, above = least, high
    c = few
    turn = 0
    going = True
    while (turn < ROUNDS) & going:
        c1, a, b = evaluate(w, pivot)
        c = tl.max(c1, 0).to(tl.float32)
        pivot, below, above, _, near, length = rough_step(
            pivot, below, above, c1, a, b, size, low, few, ratio, tl.float32
        )
        # A quarter of what the sample is off by itself.
        rough = length < 0.25 * tl.rsqrt(few)
        going = tl.max(((near | rough) == 0).to(tl.int32), 0) > 0
        turn += 1
    near_by = tl.max(a, 0).to(tl.float32) / c
    return tl.max(pivot, 0), tl.max(least, 0), tl.max(high, 0), c, near_by


@triton.jit
def block_at(
    x_at,
    block,
    ends,
    EVEN: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
    POLICY: tl.constexpr,
):
    """Return the places of a block, which of them exist, and what is there."""
    place = tl.arange(0, J)[:, None] * (T * V) + tl.arange(0, T * V)[None, :]
    if EVEN:
        there = place >= 0
        x = tl.load(x_at + block + place, eviction_policy=POLICY)
    else:
        there = place < (ends - block).to(tl.int32)
        x = tl.load(x_at + block + place, mask=there, other=0.0, eviction_policy=POLICY)
    return place, there, x


@triton.jit
def sum_of_thread(tile, T: tl.constexpr, V: tl.constexpr):
    """Add up what every thread holds of a block: all pieces, and the entries of a load."""
    return tl.sum(tl.sum(tile, 0).reshape(T, V), 1)


@triton.jit
def _join_samples(a0, b0, c0, h0, l0, a1, b1, c1, h1, l1):
    return a0 + a1, b0 + b1, c0 + c1, tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def _join_readings(c0, a0, b0, f0, e0, l0, o0, c1, a1, b1, f1, e1, l1, o1):
    return c0 + c1, a0 + a1, b0 + b1, f0 + f1, e0 + e1, tl.minimum(l0, l1), o0 + o1


@triton.jit
def add_block(
    sums,
    x_at,
    block,
    ends,
    pivot,
    margin,
    SIGNED: tl.constexpr,
    OWN: tl.constexpr,
    EVEN: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add a block to the sums of every thread: one of each, as registers are for data."""
    c, a, b, f, e, low, own = sums
    place, there, x = block_at(x_at, block, ends, EVEN, J, T, V, "evict_last")
    v, w = magnitudes(x, SIGNED)
    upper = w if EVEN else tl.where(there, w, -INFINITY)
    distance = upper - pivot
    # NaN has to show in the sums.
    t = positive_or_nan(distance)
    c += sum_of_thread((t > 0).to(tl.float32), T, V)
    a += sum_of_thread(t, T, V)
    b += sum_of_thread(t * t, T, V)
    f += sum_of_thread((distance > -margin).to(tl.float32), T, V)
    e += sum_of_thread((distance > margin).to(tl.float32), T, V)
    if not SIGNED:
        lower = w if EVEN else tl.where(there, w, INFINITY)
        low = tl.minimum(low, tl.min(tl.min(lower, 0).reshape(T, V), 1))
    if OWN:
        own += sum_of_thread(v * v, T, V)
    return c, a, b, f, e, low, own


@triton.jit
def read_part(
    x_at,
    begins,
    ends,
    pivot,
    margin,
    SIGNED: tl.constexpr,
    OWN: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Add up a part of a vector.

    Return the entries above the pivot: how many, their distances, the squares; how many lie above
    the pivot less and plus a margin; the smallest entry (0 for magnitudes); the sum of all squares.
    """
    kind: tl.constexpr = pivot.dtype
    width: tl.constexpr = J * T * V
    count = tl.zeros((T,), tl.float32)
    none = tl.zeros((T,), kind)
    least = tl.zeros((T,), kind) if SIGNED else tl.full((T,), INFINITY, kind)
    sums = (count, none, none, count, count, least, none)
    full = begins + tl.maximum(ends - begins, 0) // width * width
    block = begins
    while block < full:
        sums = add_block(sums, x_at, block, ends, pivot, margin, SIGNED, OWN, True, J, T, V)
        block += width
    if full < ends:
        sums = add_block(sums, x_at, full, ends, pivot, margin, SIGNED, OWN, False, J, T, V)
    # All at once, as every reduction waits for all warps.
    c, a, b, f, e, low, own = sums
    return tl.reduce(
        # Counts of huge parts are too large for float32.
        (c.to(tl.float64), a, b, f.to(tl.float64), e.to(tl.float64), low, own),
        0,
        _join_readings,
    )


@triton.jit
def look_for_zeros(x_at, begins, ends, SIGNED: tl.constexpr, WIDTH: tl.constexpr):
    """Return 2 if a part of a vector has negative zeros, else 1 if it has zeros, else 0; its norms.

    That is the sum of its entries, and of their squares.
    """
    some = tl.zeros((WIDTH,), tl.int32)
    l1 = tl.zeros((WIDTH,), tl.float64)
    square = l1
    place = tl.arange(0, WIDTH)
    block = begins
    while block < ends:
        there = place < ends - block
        x = tl.load(x_at + block + place, mask=there, other=1.0)
        v, w = magnitudes(x, SIGNED)
        some = tl.maximum(some, tl.where(w == 0, tl.where(bits_of(v) < 0, 2, 1), 0))
        entries = tl.where(there, w, 0.0).to(tl.float64)
        l1 += entries
        square += entries * entries
        block += WIDTH
    return tl.max(some, 0).to(tl.float64), tl.sum(l1, 0), tl.sum(square, 0)


@triton.jit
def write_block(
    sums,
    x_at,
    y_at,
    block,
    ends,
    pivot,
    gain,
    offset,
    SIGNED: tl.constexpr,
    CHECK: tl.constexpr,
    EVEN: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Write a block of a result, and add it to the sums that every thread has."""
    c, a, b = sums
    place, there, x = block_at(x_at, block, ends, EVEN, J, T, V, "evict_first")
    v, w = magnitudes(x, SIGNED)
    p = result_of(w, v, pivot, gain, offset, SIGNED, y_at.dtype.element_ty)
    if EVEN:
        tl.store(y_at + block + place, p, cache_modifier=".cs")
    else:
        tl.store(y_at + block + place, p, mask=there, cache_modifier=".cs")
    if CHECK:
        t = positive((w - pivot) * gain + offset)
        if not EVEN:
            t = tl.where(there, t, 0.0)
        c += sum_of_thread((t > 0).to(tl.float32), T, V)
        a += sum_of_thread(t, T, V)
        b += sum_of_thread(t * t, T, V)
    return c, a, b


@triton.jit
def write_part(
    x_at,
    y_at,
    begins,
    ends,
    pivot,
    gain,
    offset,
    SIGNED: tl.constexpr,
    CHECK: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
):
    """Write a part of a result; return number, sum and sum of squares of what is not zero."""
    width: tl.constexpr = J * T * V
    none = tl.zeros((T,), pivot.dtype)
    sums = (tl.zeros((T,), tl.float32), none, none)
    # From the end: what was read last is in the cache still.
    full = begins + tl.maximum(ends - begins, 0) // width * width
    if full < ends:
        sums = write_block(
            sums, x_at, y_at, full, ends, pivot, gain, offset, SIGNED, CHECK, False, J, T, V
        )
    block = full - width
    while block >= begins:
        sums = write_block(
            sums, x_at, y_at, block, ends, pivot, gain, offset, SIGNED, CHECK, True, J, T, V
        )
        block -= width
    c, a, b = sums
    return add_up(c.to(tl.float64), a, b, 0)


@triton.jit
def even_sums(x, square, density, slope):
    """Return number, sum and sum of squares of distances from x, over those from the pivot.

    Distances are in mean ones. Entries at x number `density` + `slope` x per mean distance, over
    the number above the pivot; `square` is the mean square there. The derivative of the sum of
    squares is minus twice the sum, that of the sum minus the number.
    """
    c = 1.0 - x * (density + 0.5 * slope * x)
    a = 1.0 - x + x * x * (0.5 * density + slope * x / 6.0)
    b = square - 2.0 * x + x * x - x * x * x * (density / 3.0 + slope * x / 12.0)
    return c, a, b


@triton.jit
def even_step(x, square, share_of_k, density, slope):
    """Return x, one of Newton's steps nearer to alpha; `share_of_k` is K over the number."""
    c, a, b = even_sums(x, square, density, slope)
    return x - (a * a - share_of_k * b) / (2.0 * a * (share_of_k - c))


@triton.jit(
    do_not_specialize=["rows", "groups", "ratio_bits", "room_bits", "low_bits", "norm_bits"],
)
def project_long(
    given,
    out,
    left,
    scales,
    goals,
    counters,
    rooms,
    rows,
    groups,
    n,
    part,
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
    CHECK: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    V: tl.constexpr,
    SAMPLE: tl.constexpr,
    G: tl.constexpr,
    W: tl.constexpr,
):
    """Project vectors, G programs for each; `part` entries are every program's share."""
    group = tl.program_id(0) // G
    member = tl.program_id(0) % G
    counter = counters + group
    here = rooms + group.to(tl.int64) * (2 * W * 8)
    begins = member.to(tl.int64) * part
    ends = tl.minimum(begins + part, wide_length(n, begins))
    turn = 1
    row = group.to(tl.int64)
    while row < rows:
        x_at = given + row * given_stride
        ratio, room, room_low, norm = goal_of(
            goals, goals_stride, row, row >= 0, ratio_bits, room_bits, low_bits, norm_bits
        )
        kind: tl.constexpr = tl.float64 if given.dtype.element_ty == tl.float64 else tl.float32
        # In double where digits count alone: its divisions and roots hold up everybody.
        k, k32, ratio32 = n - room, (n - room).to(tl.float32), ratio.to(tl.float32)
        guess = start
        if goals_stride != 0:
            guess = start_for(k32 / n)
        first, least, most, few, near_by = sampled(
            x_at, n, k32, guess, member, SIGNED, SAMPLE, T * V, G
        )
        if G > 1:
            there_room = here + (turn % 2) * (W * 8)
            share(first, 0, there_room, member, W)
            share(few, 1, there_room, member, W)
            share(near_by, 2, there_room, member, W)
            share(most, 3, there_room, member, W)
            share(least, 4, there_room, member, W)
            meet(counter, turn, G)
            turn += 1
            first, few, near_by, most, least = tl.reduce(
                (
                    gathered(0, there_room, G, W, 0.0).to(kind),
                    gathered(1, there_room, G, W, 0.0).to(tl.float32),
                    gathered(2, there_room, G, W, 0.0).to(tl.float32),
                    gathered(3, there_room, G, W, -INFINITY).to(kind),
                    gathered(4, there_room, G, W, INFINITY).to(kind),
                ),
                0,
                _join_samples,
            )
            first, near_by = first / G, near_by / G
        pivot = first
        # Four times what the sample is off by.
        margin = near_by * 6.0 * tl.rsqrt(few)
        if ONLY_INCREASE:
            pivot = 0 * pivot

        # ---- the search; invariant, up to rounding: below <= alpha < above ----
        below, above = least - (most - least), most + (most - least)
        none = ratio * 0.0
        c, a, b = none - 1.0, none, none
        exact, sure, even, ordinary, whole = none > 1, none > 1, none > 1, none > 1, none > 1
        alpha = none
        lowest, square = least, none
        turns = 0
        going = True
        while going:
            c1, a0, b0, f1, e1, lowest, own = read_part(
                x_at, begins, ends, pivot, margin, SIGNED, RULE == KEEP, J, T, V
            )
            a1, b1, square = a0.to(tl.float64), b0.to(tl.float64), own.to(tl.float64)
            if G > 1:
                there_room = here + (turn % 2) * (W * 8)
                share(c1, 0, there_room, member, W)
                share(a1, 1, there_room, member, W)
                share(b1, 2, there_room, member, W)
                share(f1, 3, there_room, member, W)
                share(e1, 4, there_room, member, W)
                share(lowest, 5, there_room, member, W)
                share(square, 6, there_room, member, W)
                meet(counter, turn, G)
                turn += 1
                c1, a1, b1, f1, e1, lowest, square = tl.reduce(
                    (
                        gathered(0, there_room, G, W, 0.0),
                        gathered(1, there_room, G, W, 0.0),
                        gathered(2, there_room, G, W, 0.0),
                        gathered(3, there_room, G, W, 0.0),
                        gathered(4, there_room, G, W, 0.0),
                        gathered(5, there_room, G, W, INFINITY).to(kind),
                        gathered(6, there_room, G, W, 0.0),
                    ),
                    0,
                    _join_readings,
                )
            ordinary = (b1 < ORDINARY * ORDINARY) & (lowest > -ORDINARY)
            ordinary = ordinary & (tl.abs(pivot) < ORDINARY)
            turns += 1
            many, total, squares = c1.to(tl.float32), a1.to(tl.float32), b1.to(tl.float32)
            if ONLY_INCREASE & (turns == 1):
                # Whoever may be sparse enough already is looked at with care.
                excess = k32 * (squares * many / (total * total) - 1.0)
                going = ordinary & (many - k32 > excess * 1.001 + 1e-4 * many)
                pivot = first
            else:
                inverse = 1.0 / many
                mean1 = total * inverse
                wide = margin / mean1
                if kind == tl.float64:
                    following, below, above, _, near, length = rough_step(
                        pivot, below, above, c1, a1, b1, n, lowest, k, ratio, tl.float64
                    )
                else:
                    following, below, above, _, near, length = rough_step(
                        pivot, below, above, c1, a1, b1, n, lowest, k32, ratio32, tl.float32
                    )
                whole = length < 0
                sure = (exact & (c1 == c)) | whole
                if kind != tl.float64:
                    # So many may lie between pivot and alpha, ties perhaps.
                    beside = tl.maximum(f1 - c1, c1 - e1).to(tl.float32) * inverse
                    few_there = (beside * length <= MISCOUNTED) & (length <= wide)
                    sure = sure | ((length < NEAR) & few_there)
                # The same step with what lies between pivot and alpha, if it is spread evenly: as
                # many on either side of the pivot, give or take chance and a slope.
                inside, uneven = f1 - e1, (c1 - e1) - (f1 - c1)
                some = inside.to(tl.float32) * inverse
                density, slope = (
                    some / (2.0 * wide),
                    uneven.to(tl.float32) * inverse / (wide * wide),
                )
                relative, of_k = many * squares / (total * total), k32 * inverse
                step = even_step(
                    (following - pivot).to(tl.float32) / mean1, relative, of_k, density, slope
                )
                step = even_step(step, relative, of_k, density, slope)
                step = even_step(step, relative, of_k, density, slope)
                x = tl.abs(step)
                chance = 6.0 * tl.sqrt(some * inverse) + wide * some
                smooth = (tl.abs(uneven.to(tl.float32) * inverse) <= chance) & (x < wide)
                smooth = smooth & (8 * (many - k32) > k32) & (some > 0)
                by_step = smooth & (near == 0)
                following = tl.where(by_step, pivot + (step * mean1).to(kind), following)
                # What it lacks: chance, and what is not a slope.
                off = 0.5 * x * tl.sqrt(x * inverse) + x * x * x * x
                if CHECK:
                    even = smooth & (sure == 0) & (off < EVEN_ENOUGH)
                    if even:
                        # Now to all digits.
                        mean2 = a1 / c1
                        relative2 = c1 * b1 / (a1 * a1)
                        density2, slope2 = density.to(tl.float64), slope.to(tl.float64)
                        x2 = even_step(step.to(tl.float64), relative2, k / c1, density2, slope2)
                        by_c, by_a, by_b = even_sums(x2, relative2, density2, slope2)
                        alpha = pivot.to(tl.float64) + x2 * mean2
                        b1 = a1 * mean2 * by_b
                        a1 = a1 * by_a
                        c1 = c1 * by_c
                        sure = even
                        following = alpha.to(kind)
                # Next time a window about as wide as that, so that few entries are in doubt.
                narrow = tl.maximum(8.0 * off, 1e-6) * mean1
                margin = tl.where(smooth, tl.minimum(narrow, 0.25 * margin), 0.25 * margin)
                c, a, b = c1, a1, b1
                exact = near
                going = (sure == 0) & (turns < ROUNDS) & ordinary
                pivot = tl.where(going | even, following, pivot)

        # ---- the closed form on the support (fact 2), or alpha as it was found ----
        excess = excess_of(c, n, room, room_low)
        mean2 = a / c
        mean, spread = mean2.to(kind), (b - a * mean2).to(kind)
        all_of = c == n
        # A support that K hardly leaves room for is for those who try others.
        right = sure & ordinary & (ratio > 1) & (room > 0) & (excess > 1e-5 * c)
        a, c, excess = a.to(kind), c.to(kind), excess.to(kind)
        right = right & (a * mean <= FAR * spread) & (mean > 1 / ORDINARY)
        # So are pivots that are hardly told from their neighbours.
        grid: tl.constexpr = 2.220446049250313e-16 if kind == tl.float64 else 1.1920929e-07
        right = right & (grid * tl.abs(pivot) <= 2e-4 * mean)
        excess = tl.where(excess > 0, excess, 1.0)
        scale, to_alpha = closed_form(c, mean, spread, excess, ratio.to(kind))
        if CHECK:
            # Sums about alpha itself, where entries are spread evenly.
            to_alpha = tl.where(even, (alpha - pivot.to(tl.float64)).to(kind), to_alpha)
            a = tl.where(even, a + c * to_alpha, a)
            mean = tl.where(even, mean + to_alpha, mean)
        scale = by_distances(scale, a, c * to_alpha, ratio.to(kind))
        # The same with sums that kept more digits.
        right = right & ((whole == 0) | (to_alpha <= lowest - pivot))
        if RULE == KEEP:
            size = exact_root(square.to(kind))
        elif RULE == FIXED:
            size = norm.to(kind)
        else:
            size = ratio.to(kind) * (pivot + mean) + exact_division(spread, scale)
        right = right & (size > 1 / ORDINARY) & (size < ORDINARY)

        # ---- the pass that writes ----
        gain = exact_division(size, scale)
        # The largest distance is no less than the sum of squares over the sum.
        top = tl.maximum(most, pivot + mean + exact_division(spread, a))
        offset = -to_alpha * gain
        limit = zeros_limit(
            ratio32,
            room.to(tl.float32),
            n,
            (top * gain / size).to(tl.float32),
            BY_NORMS,
            BY_ENTRIES,
        )
        beside, doubtful = at_zeros(
            offset, pivot * gain, top * gain, limit * size, excess / room.to(kind)
        )
        all_of = all_of & (pivot < 0)
        if right & (all_of | doubtful):
            zeros, l1, squared = look_for_zeros(x_at, begins, ends, SIGNED, T * V)
            if G > 1:
                there_room = here + (turn % 2) * (W * 8)
                share(zeros, 0, there_room, member, W)
                share(l1, 1, there_room, member, W)
                share(squared, 2, there_room, member, W)
                meet(counter, turn, G)
                turn += 1
                zeros = tl.max(gathered(0, there_room, G, W, 0.0), 0)
                l1 = tl.sum(gathered(1, there_room, G, W, 0.0), 0)
                squared = tl.sum(gathered(2, there_room, G, W, 0.0), 0)
            if (zeros > 0) & (lowest == 0):
                if doubtful:
                    largest = (offset - pivot * gain + top * gain) / size
                    stay = zeros_stay(l1, squared, ratio, room, n, largest, BY_NORMS, BY_ENTRIES)
                    # Of a whole support the other entries would move.
                    right = stay & beside & ~all_of & ~even
                    offset = offset_without(pivot * gain)
                else:
                    # A negative zero becomes something positive: not here.
                    right = (zeros == 1) if SIGNED else right
        accepted = right
        going = right
        writes = 0
        y_at = out + row * out_stride
        while going:
            c0, a0, b0 = write_part(
                x_at, y_at, begins, ends, pivot, gain, offset, SIGNED, CHECK, J, T, V
            )
            going = False
            if CHECK:
                if even:
                    c1, a1, b1 = c0, a0.to(tl.float64), b0.to(tl.float64)
                    if G > 1:
                        there_room = here + (turn % 2) * (W * 8)
                        share(c1, 0, there_room, member, W)
                        share(a1, 1, there_room, member, W)
                        share(b1, 2, there_room, member, W)
                        meet(counter, turn, G)
                        turn += 1
                        c1, a1, b1 = add_up(
                            gathered(0, there_room, G, W, 0.0),
                            gathered(1, there_room, G, W, 0.0),
                            gathered(2, there_room, G, W, 0.0),
                            0,
                        )
                    # How far alpha is from where the exact step leads; in units of the result.
                    relative2 = c1 * b1 / (a1 * a1)
                    room2 = tl.maximum(relative2 - 1.0, 0.0) / tl.where(c1 > k, c1 - k, 1.0)
                    lack = (1.0 - ratio * tl.sqrt(room2)).to(kind)
                    writes += 1
                    fine = (c1 > k) & (tl.abs(lack) < MISSED)
                    going = (fine == 0) & (writes < WRITES) & (c1 > k)
                    accepted = fine | going
                    if going:
                        to_alpha += lack * (a1 / c1).to(kind) / gain
                        scale = (a1 / ratio).to(kind) * (1.0 - lack) / gain
                        gain = exact_division(size, scale)
                        offset = -to_alpha * gain
        if member == 0:
            tl.store(left + row, tl.where(accepted, 0, 1).to(tl.int8))
            if WITH_SCALE:
                tl.store(scales + row, exact_division(scale, size).to(tl.float64))
        row += groups
