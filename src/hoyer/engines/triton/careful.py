"""Every vector, whatever it is, of any length: in float64, reading it as often as that takes.

What is compared and summed is s = top - w, the distance from the largest entry: ties are exact
zeros, and an offset of the data does not matter. The support is {s < alpha}; here the exact step
never ends below the right alpha (fact 3 in these terms). Sums are scaled by a power of two that
follows the support, so that squares neither overflow nor vanish.

One program works on a vector, or a group of them, which then meet after every reading.

Loops say `while`: Triton's interpreter takes no bounds from a kernel's arguments.
"""

import triton
import triton.language as tl

from .device import (
    INFINITY,
    KEEP,
    NAN,
    NEAREST,
    TO_L1,
    TO_L2,
    excess_of,
    gathered,
    goal_of,
    meet,
    share,
    zeros_limit,
)

# What an evaluation is for.
SEARCH, CHALLENGE, DONE = (tl.constexpr(i) for i in range(3))

SCAN = tl.constexpr(128)
"""Vectors whose marks are looked at together."""

PATIENCE = tl.constexpr(40)
"""Evaluations after which only the number of floats left is bisected."""

LIMIT = tl.constexpr(120)
"""Evaluations after which the search ends where it is: by then no float is left in between."""


@triton.jit
def inverse_power(value):
    """Return the inverse of the power of two of a positive number, kept away from the ends."""
    exponent = (value.to(tl.int64, bitcast=True) >> 52) & 2047
    exponent = tl.minimum(tl.maximum(exponent, 2), 2044)
    return ((2046 - exponent) << 52).to(tl.float64, bitcast=True)


@triton.jit
def halfway(low, high):
    """Return the float with as many floats between it and either end; both are positive."""
    a, b = low.to(tl.int64, bitcast=True), high.to(tl.int64, bitcast=True)
    return (a + ((b - a) >> 1)).to(tl.float64, bitcast=True)


@triton.jit
def quotient(a, b, c):
    """Return a/b/c, the larger divisor first: what comes in between must not overflow."""
    return a / tl.maximum(b, c) / tl.minimum(b, c)


@triton.jit
def next_above(value):
    """Return the next larger double of a positive one."""
    return (value.to(tl.int64, bitcast=True) + 1).to(tl.float64, bitcast=True)


@triton.jit
def piece(given, begin, n, BLOCK: tl.constexpr, SIGNED: tl.constexpr):
    """Return entries of a vector (their magnitudes), and which of them exist."""
    place = begin + tl.arange(0, BLOCK).to(tl.int64)
    there = place < n
    x = tl.load(given + place, mask=there, other=0.0).to(tl.float64)
    return x, tl.abs(x) if SIGNED else x, there, place


@triton.jit
def joined_sum(slot: tl.constexpr, room, G: tl.constexpr, W: tl.constexpr):
    """Add up what the programs of a group left in a slot."""
    return tl.sum(gathered(slot, room, G, W, 0.0), 0)


@triton.jit
def joined_max(slot: tl.constexpr, room, G: tl.constexpr, W: tl.constexpr):
    """Return the largest of them."""
    return tl.max(gathered(slot, room, G, W, -INFINITY), 0)


@triton.jit
def joined_min(slot: tl.constexpr, room, G: tl.constexpr, W: tl.constexpr):
    """Return the smallest of them."""
    return tl.min(gathered(slot, room, G, W, INFINITY), 0)


@triton.jit
def closed_form(count, mean, lack, spread, unit, excess, ratio):
    """Return beta in units, and alpha in those of the data, where it may overflow (fact 2)."""
    # By two roots: their quotient may be huge.
    beta = tl.sqrt(spread * count) / tl.sqrt(tl.where(excess > 0, excess, 1.0))
    return beta, mean + (lack + beta * (ratio / count)) / unit


@triton.jit
def project_vector(
    given,
    out,
    scales,
    kepts,
    records,
    goals,
    counter,
    here,
    member,
    turn,
    row,
    n,
    given_stride,
    out_stride,
    goals_stride: tl.constexpr,
    ratio_bits,
    room_bits,
    low_bits,
    norm_bits,
    BY_NORMS: tl.constexpr,
    BY_ENTRIES: tl.constexpr,
    SIGNED: tl.constexpr,
    RULE: tl.constexpr,
    L1_GIVEN: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    WITH_SCALE: tl.constexpr,
    WITH_RECORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    G: tl.constexpr,
    W: tl.constexpr,
):
    """Project one vector by this program, or the group that it is a member of; return the turn."""
    x_at = given + row * given_stride
    ratio, room, room_low, norm = goal_of(
        goals, goals_stride, row, row >= 0, ratio_bits, room_bits, low_bits, norm_bits
    )
    k = n - room
    first, step = member.to(tl.int64) * BLOCK, G * BLOCK

    # ---- the survey: ends, finiteness ----
    top_t = tl.full((BLOCK,), -INFINITY, tl.float64)
    low_t = tl.full((BLOCK,), INFINITY, tl.float64)
    bad_t = tl.zeros((BLOCK,), tl.float64)
    begin = first
    while begin < n:
        x, w, there, _ = piece(x_at, begin, n, BLOCK, SIGNED)
        top_t = tl.maximum(top_t, tl.where(there, w, -INFINITY))
        low_t = tl.minimum(low_t, tl.where(there, w, INFINITY))
        bad_t += tl.where(tl.abs(x) < INFINITY, 0.0, 1.0)
        begin += step
    top, low, bad = tl.max(top_t, 0), tl.min(low_t, 0), tl.sum(bad_t, 0)
    if G > 1:
        there_room = here + (turn % 2) * (W * 8)
        share(top, 0, there_room, member, W)
        share(low, 1, there_room, member, W)
        share(bad, 2, there_room, member, W)
        meet(counter, turn, G)
        turn += 1
        top = joined_max(0, there_room, G, W)
        low = joined_min(1, there_room, G, W)
        bad = joined_sum(2, there_room, G, W)
    valid = (bad == 0) & (ratio == ratio) & (norm == norm)
    # Bad vectors take part with numbers that do no harm; they become NaN at the end.
    top, low = tl.where(bad == 0, top, 0.0), tl.where(bad == 0, low, 0.0)
    ratio = tl.where(valid, ratio, 1.0)
    room, room_low = tl.where(valid, room, n - 1.0), tl.where(valid, room_low, 0.0)
    k = n - room

    # ---- ties, the next smaller entry, norms ----
    size = tl.maximum(tl.abs(top), tl.abs(low))
    size = tl.where(size > 0, size, 1.0)
    # Halved where differences could overflow; raised out of the subnormal, by 2^300 in factors that
    # Triton does not take for too large.
    half = tl.where(top - low < INFINITY, 1.0, 0.5).to(tl.float64)
    raised = (half * 1.2676506002282294e30) * 1.2676506002282294e30 * 1.2676506002282294e30
    half = tl.where(size < 1e-250, raised, half)
    peak = top * half
    ties_t = tl.zeros((BLOCK,), tl.float64)
    next_t = tl.full((BLOCK,), INFINITY, tl.float64)
    place_t = tl.full((BLOCK,), INFINITY, tl.float64)
    own_t, count_t, sum_t = ties_t, ties_t, ties_t
    begin = first
    while begin < n:
        x, w, there, place = piece(x_at, begin, n, BLOCK, SIGNED)
        s = peak - w * half
        tied = there & (w == top)
        ties_t += tl.where(tied, 1.0, 0.0)
        place_t = tl.minimum(place_t, tl.where(tied, place.to(tl.float64), INFINITY))
        next_t = tl.minimum(next_t, tl.where(there & (s > 0), s, INFINITY))
        own_t += (x / size) * (x / size)
        count_t += tl.where(there & (w > 0), 1.0, 0.0)
        sum_t += tl.where(there & (w > 0), w / size, 0.0)
        begin += step
    ties, second, first_tie = tl.sum(ties_t, 0), tl.min(next_t, 0), tl.min(place_t, 0)
    own, count0, sum0 = tl.sum(own_t, 0), tl.sum(count_t, 0), tl.sum(sum_t, 0)
    if G > 1:
        there_room = here + (turn % 2) * (W * 8)
        share(ties, 0, there_room, member, W)
        share(second, 1, there_room, member, W)
        share(first_tie, 2, there_room, member, W)
        share(own, 3, there_room, member, W)
        share(count0, 4, there_room, member, W)
        share(sum0, 5, there_room, member, W)
        meet(counter, turn, G)
        turn += 1
        ties = joined_sum(0, there_room, G, W)
        second = joined_min(1, there_room, G, W)
        first_tie = joined_min(2, there_room, G, W)
        own = joined_sum(3, there_room, G, W)
        count0 = joined_sum(4, there_room, G, W)
        sum0 = joined_sum(5, there_room, G, W)

    # ---- whoever is sparse enough keeps direction; or is one-hot, without positive entries ----
    kept = row < 0
    hot = row < 0
    positive = 1.0 + 0.0 * top
    if ONLY_INCREASE:
        # l1^2/l2^2 <= K over the c nonzero entries, without loss where they are equal:
        # c (c - K) <= K V/mean^2.
        centre0 = sum0 / tl.maximum(count0, 1.0)
        spread_t = tl.zeros((BLOCK,), tl.float64)
        begin = first
        while begin < n:
            x, w, there, _ = piece(x_at, begin, n, BLOCK, SIGNED)
            t = tl.where(there & (w > 0), w / size - centre0, 0.0)
            spread_t += t * t
            begin += step
        spread0 = tl.sum(spread_t, 0)
        if G > 1:
            there_room = here + (turn % 2) * (W * 8)
            share(spread0, 0, there_room, member, W)
            meet(counter, turn, G)
            turn += 1
            spread0 = joined_sum(0, there_room, G, W)
        room0 = excess_of(count0, n, room, room_low)
        enough = count0 * room0 <= k * (spread0 / centre0 / centre0)
        hot = (count0 == 0) & (low < 0) & valid
        kept = hot | ((count0 > 0) & enough & valid)
        positive = tl.where(hot, 1.0, tl.sqrt(spread0 + sum0 * centre0))
        sum0 = tl.where(hot, 1.0, sum0)

    # ---- the search ----
    reads = 2.0 + (1.0 if ONLY_INCREASE else 0.0)
    constant = ((room + room_low) <= 0) & (kept == 0)
    excess = excess_of(ties, n, room, room_low)
    tied_case = (constant == 0) & (excess >= 0) & (kept == 0)
    state = tl.where(constant | tied_case | kept | (valid == 0), DONE, SEARCH)
    farthest = peak - low * half
    # Invariant: nearer <= alpha <= farther, up to rounding.
    nearer, farther = second, farthest * 2
    q = INFINITY + 0.0 * peak
    count, mean, spread, unit = n + 0.0 * peak, 0.0 * peak, 0.0 * peak, 1.0 + 0.0 * peak
    lack, beta = mean, mean
    # Not another name for q: Triton would take the one for the other, and lose what the loop does.
    bound = INFINITY + 0.0 * peak
    spent = 0
    while state != DONE:
        # Two readings: the support's mean and ends, then the spread about that mean.
        rough_unit = inverse_power(tl.minimum(q, farthest))
        c_t = tl.zeros((BLOCK,), tl.float64)
        a_t = c_t
        last_t = tl.full((BLOCK,), -INFINITY, tl.float64)
        next_t = tl.full((BLOCK,), INFINITY, tl.float64)
        begin = first
        while begin < n:
            x, w, there, _ = piece(x_at, begin, n, BLOCK, SIGNED)
            s = peak - w * half
            inside = there & (s < q)
            c_t += tl.where(inside, 1.0, 0.0)
            a_t += tl.where(inside, s * rough_unit, 0.0)
            last_t = tl.maximum(last_t, tl.where(inside, s, -INFINITY))
            next_t = tl.minimum(next_t, tl.where(there & (s >= q), s, INFINITY))
            begin += step
        c1, a1, last, beyond = (
            tl.sum(c_t, 0),
            tl.sum(a_t, 0),
            tl.max(last_t, 0),
            tl.min(next_t, 0),
        )
        if G > 1:
            there_room = here + (turn % 2) * (W * 8)
            share(c1, 0, there_room, member, W)
            share(a1, 1, there_room, member, W)
            share(last, 2, there_room, member, W)
            share(beyond, 3, there_room, member, W)
            meet(counter, turn, G)
            turn += 1
            c1 = joined_sum(0, there_room, G, W)
            a1 = joined_sum(1, there_room, G, W)
            last = joined_max(2, there_room, G, W)
            beyond = joined_min(3, there_room, G, W)
        mean1 = a1 / c1 / rough_unit
        unit1 = inverse_power(last)
        d_t = tl.zeros((BLOCK,), tl.float64)
        v_t = d_t
        begin = first
        while begin < n:
            x, w, there, _ = piece(x_at, begin, n, BLOCK, SIGNED)
            s = peak - w * half
            t = tl.where(there & (s < q), (s - mean1) * unit1, 0.0)
            d_t += t
            v_t += t * t
            begin += step
        d1, v1 = tl.sum(d_t, 0), tl.sum(v_t, 0)
        if G > 1:
            there_room = here + (turn % 2) * (W * 8)
            share(d1, 0, there_room, member, W)
            share(v1, 1, there_room, member, W)
            meet(counter, turn, G)
            turn += 1
            d1 = joined_sum(0, there_room, G, W)
            v1 = joined_sum(1, there_room, G, W)
        # What the mean lacks is the same for all entries and adds up in their sum: kept apart.
        lack1 = d1 / c1
        v1 -= d1 * (d1 / c1)
        reads += 2.0
        spent += 1
        excess1 = excess_of(c1, n, room, room_low)
        beta1, alpha1 = closed_form(c1, mean1, lack1, v1, unit1, excess1, ratio)
        enough1 = excess1 > 0
        # Nothing lies between the support and its alpha; what is not beyond the lower bound of
        # alpha belongs to it, whatever rounding says.
        reaches = (last < alpha1) | (last <= nearer)
        consistent = enough1 & reaches & (alpha1 <= beyond)
        accept = False
        previous = q
        if state == SEARCH:
            if enough1:
                farther = tl.minimum(farther, tl.maximum(alpha1, nearer))
                nearer = tl.maximum(nearer, tl.where(alpha1 > beyond, q, nearer))
            else:
                nearer = tl.maximum(nearer, beyond)
            # Newton's step on l1^2/l2^2 - K, in the units of the support.
            t1 = (q - mean1) * unit1
            b1 = v1 / c1 + t1 * t1
            newton = q - (t1 * t1 * c1 - k * b1) * b1 / (2 * t1 * c1 * (b1 - t1 * t1)) / unit1
            following = tl.where(enough1, alpha1, 0.5 * nearer + 0.5 * farther)
            useful = (newton > nearer) & (newton < farther) & (c1 > 1)
            use = useful & ((enough1 == 0) | ((alpha1 < q) & (newton < alpha1)))
            following = tl.where(use, newton, following)
            if (spent >= 5) & ((spent % 2 == 1) | (spent > PATIENCE)):
                geometric = tl.sqrt(nearer) * tl.sqrt(farther)
                by_floats = (spent % 8 == 7) | (spent > PATIENCE)
                following = tl.where(by_floats, halfway(nearer, farther), geometric)
            within = (following > nearer) & (following <= farther)
            following = tl.where(within, following, farther)
            stuck = (following == q) | (spent >= LIMIT)
            accept = consistent | (stuck & enough1)
            # Too few entries, and nowhere else to look: those next to them belong to it.
            q = tl.where(accept, q, tl.where(stuck, next_above(beyond), following))
            state = tl.where(spent > LIMIT + 8, DONE, state)
        else:
            # The support without its last entries is right if it lacks nothing by its own
            # account: where K is a rounding error below a number of near-ties the two
            # differ by the root of that error.
            accept = enough1 & (alpha1 <= beyond)
            state = tl.where(accept, state, DONE)
        if accept:
            count, mean, spread, unit, lack = c1, mean1, v1, unit1, lack1
            beta, bound = beta1, previous
            even = (ratio / c1) * beta1
            doubtful = even + ((mean1 - last) * unit1 + lack1) <= 9.1e-13 * even
            q = last
            state = tl.where(doubtful & (spent < LIMIT), CHALLENGE, DONE)

    # ---- zeros of a vector that is in D already, up to rounding ----
    base = ratio / count
    # Not from the mean distance, next to which lie the zeros.
    at_zero = base - (sum0 / n) * (size * half * unit) / beta
    at_top = base + (mean * unit + lack) / beta
    bare = (low == 0) & (count == n) & (tied_case == 0) & (constant == 0) & (kept == 0)
    bare = bare & (at_zero <= zeros_limit(ratio, room, n, at_top, BY_NORMS, BY_ENTRIES))

    # ---- the norm, as a fraction times a power; the result at unit norm ----
    interior = (constant == 0) & (tied_case == 0) & (kept == 0)
    fraction, power = norm, 1.0 + 0.0 * norm
    if RULE == KEEP:
        fraction, power = tl.sqrt(own), size
    root_n = tl.sqrt(n.to(tl.float64))
    if RULE == NEAREST:
        fraction, power = ratio * (top / size), size
        if interior | constant:
            # Not by the mean distance: the mean of the entries may be small next to the maximum.
            m_t = tl.zeros((BLOCK,), tl.float64)
            begin = first
            while begin < n:
                x, w, there, _ = piece(x_at, begin, n, BLOCK, SIGNED)
                counts = there & (peak - w * half < bound)
                m_t += tl.where(counts, w / size, 0.0)
                begin += step
            reads += 1.0
            total = tl.sum(m_t, 0)
            if G > 1:
                there_room = here + (turn % 2) * (W * 8)
                share(total, 0, there_room, member, W)
                meet(counter, turn, G)
                turn += 1
                total = joined_sum(0, there_room, G, W)
            along = spread / tl.where(beta > 0, beta, 1.0) / (size * unit * half)
            fraction = tl.where(constant, total / root_n, base * total + along)
        fraction = tl.maximum(fraction, 0.0)
    l1 = ratio * fraction * power
    mark = 0.0
    if kept:
        mark = TO_L1 * 1.0 if L1_GIVEN else TO_L2 * 1.0
        if RULE == NEAREST:
            fraction, power = tl.where(hot, 0.0, positive), size
        elif L1_GIVEN:
            fraction = fraction * ratio * positive / sum0
        l1 = fraction * power * (sum0 / positive)
    rest = tl.maximum(excess, 0.0) / ties
    single = excess_of(1.0 + 0.0 * ties, n, room, room_low) == 0
    equal = excess == 0
    tie_first = ratio / ties + tl.sqrt((ties - 1) * rest / ties)
    tie_other = ratio / ties - tl.sqrt(rest / tl.maximum(ties * (ties - 1), 1.0))
    tie_other = tl.where(single & (equal == 0), 0.0, tl.maximum(tie_other, 0.0))
    tie_first = tl.where(equal, ratio / ties, tie_first)
    tie_other = tl.where(equal, ratio / ties, tie_other)
    zero = fraction == 0
    same = (fraction * power == positive * size) & kept & (hot == 0)

    # ---- the pass that writes ----
    y_at = out + row * out_stride
    begin = first
    while begin < n:
        x, w, there, place = piece(x_at, begin, n, BLOCK, SIGNED)
        s = peak - w * half
        inside = tl.maximum(base + ((mean - s) * unit + lack) / beta, 0.0)
        p = tl.where((s < bound) & ((bare == 0) | (w != 0)), inside, 0.0)
        if tied_case:
            p = tl.where(w == top, tie_other, 0.0)
            p = tl.where(place.to(tl.float64) == first_tie, tie_first, p)
        if constant:
            p = tl.full((BLOCK,), 0.0, tl.float64) + 1 / root_n
        if kept:
            p = tl.maximum(w, 0.0) / size / positive
        if hot:
            p = tl.where(place.to(tl.float64) == first_tie, 1.0, 0.0).to(tl.float64)
        p = p * fraction * power
        if same:
            p = tl.maximum(w, 0.0)
        if SIGNED:
            p = tl.where(x < 0, -p, p)
        p = tl.where(zero, 0.0, p)
        p = tl.where(valid, p, NAN)
        # What rounds to zero has no sign either.
        lost = p.to(out.dtype.element_ty).to(tl.float64) == 0
        tl.store(y_at + place, tl.where(lost, 0.0, p).to(out.dtype.element_ty), mask=there)
        begin += step

    # ---- what is told about it ----
    if member == 0:
        # In quarters: alpha may be out of reach for distances, and not for the data.
        beyond_mean = (lack + beta * (ratio / count)) * 0.25 / unit
        shift = ((peak * 0.25 - mean * 0.25) - beyond_mean) / half / 0.25
        beta_told = beta
        unit_told = unit * half
        shift = tl.where(bare, 0.0, shift)
        number = tl.where(bare, count0, count)
        choice = SIGNED & (low == 0) & (count == n)
        unique = bare | (choice == 0)
        if tied_case:
            shift = tl.where(equal, (peak - second) / half, NAN)
            beta_told = tl.where(equal, second * (ties / ratio), 0.0)
            unit_told = half
            number = tl.where(single & (equal == 0), 1.0, ties)
            unique = equal
        if constant:
            shift = NAN + 0.0 * shift
            beta_told = 0.0 * ties
            number = n + 0.0 * ties
            unique = (SIGNED & (low == 0)) == 0
        if kept:
            shift = tl.where(hot, NAN, 0.0 * ties)
            beta_told = tl.where(hot, 0.0, positive)
            unit_told = 1 / size
            number = tl.where(hot, 1.0, count0)
            unique = (hot == 0) | (ties == 1)
        blank = zero | (valid == 0)
        shift = tl.where(blank, NAN, shift)
        told = tl.where(blank, 0.0, quotient(beta_told / fraction, unit_told, power))
        l2 = tl.where(valid, fraction * power, NAN)
        l1 = tl.where(valid, tl.where(zero, 0.0, l1), NAN)
        mark = tl.where(blank, 0.0, mark)
        if WITH_SCALE:
            tl.store(scales + row, told)
        if ONLY_INCREASE:
            if WITH_SCALE:
                tl.store(kepts + row, mark.to(tl.int8))
        if WITH_RECORDS:
            record = records + row * 8
            tl.store(record, shift)
            tl.store(record + 1, told)
            tl.store(record + 2, tl.where(blank, 0.0, number))
            tl.store(record + 3, reads)
            tl.store(record + 4, tl.where(blank | unique, 1.0, 0.0))
            tl.store(record + 5, l1)
            tl.store(record + 6, l2)
            tl.store(record + 7, mark)
    return turn


# Compiled once for all lengths: to load a little faster is not worth the wait for the compiler.
@triton.jit(
    do_not_specialize=[
        "rows",
        "share_of_rows",
        "n",
        "given_stride",
        "out_stride",
        "ratio_bits",
        "room_bits",
        "low_bits",
        "norm_bits",
    ],
)
def project_carefully(
    given,
    out,
    left,
    scales,
    kepts,
    records,
    goals,
    counters,
    rooms,
    rows,
    share_of_rows,
    n,
    given_stride,
    out_stride,
    goals_stride: tl.constexpr,
    ratio_bits,
    room_bits,
    low_bits,
    norm_bits,
    BY_NORMS: tl.constexpr,
    BY_ENTRIES: tl.constexpr,
    SIGNED: tl.constexpr,
    RULE: tl.constexpr,
    L1_GIVEN: tl.constexpr,
    ONLY_INCREASE: tl.constexpr,
    EVERY: tl.constexpr,
    WITH_SCALE: tl.constexpr,
    WITH_RECORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    G: tl.constexpr,
    W: tl.constexpr,
):
    """Project the vectors that `left` names (all of them if EVERY)."""
    group = tl.program_id(0) // G
    member = tl.program_id(0) % G
    counter = counters + group
    here = rooms + group * (2 * W * 8)
    turn = 1
    first_row = group.to(tl.int64) * share_of_rows
    last_row = tl.minimum(first_row + share_of_rows, rows)
    block = first_row
    while block < last_row:
        some = tl.arange(0, SCAN) + block
        if EVERY:
            busy = True
        else:
            busy = tl.max(tl.load(left + some, mask=some < last_row, other=0), 0) != 0
        if busy:
            row = block
            while row < tl.minimum(block + SCAN, last_row):
                wanted = True if EVERY else tl.load(left + row) != 0
                if wanted:
                    turn = project_vector(
                        given,
                        out,
                        scales,
                        kepts,
                        records,
                        goals,
                        counter,
                        here,
                        member,
                        turn,
                        row,
                        n,
                        given_stride,
                        out_stride,
                        goals_stride,
                        ratio_bits,
                        room_bits,
                        low_bits,
                        norm_bits,
                        BY_NORMS,
                        BY_ENTRIES,
                        SIGNED,
                        RULE,
                        L1_GIVEN,
                        ONLY_INCREASE,
                        WITH_SCALE,
                        WITH_RECORDS,
                        BLOCK,
                        G,
                        W,
                    )
                row += 1
        block += SCAN
