"""Every vector, whatever it is, of any length: in float64, reading it as often as that takes.

What is compared and summed is s = top - w, the distance from the largest entry: ties are exact
zeros, and an offset of the data does not matter. The support is {s < alpha}; here the exact step
never ends below the right alpha. Sums are scaled by a power of two that follows the support, so
that squares neither overflow nor vanish.

One program works on a vector, or a team of them, which then meet after every reading.

Loops say `while`: Triton's interpreter takes no bounds from a kernel's arguments.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from . import meeting
from .device import (
    FREE,
    INFINITY,
    KEEP,
    L1_ALONE,
    NEAREST,
    TO_L1,
    TO_L2,
    WITHIN,
    goal_of,
    length_of,
    place_of,
)
from .formula import closed_form, excess_of, newton_step, tied_entries, zeros_limit
from .meeting import join, number_and_member, reduced

# What an evaluation is for.
SEARCH, CHALLENGE, DONE = (tl.constexpr(i) for i in range(3))

SCAN = tl.constexpr(128)
"""Vectors whose marks are looked at together."""

COARSE = tl.constexpr(1e-3)
"""Rounding of entries, as `Case` has it, that only half types have."""

PATIENCE = tl.constexpr(40)
"""Evaluations after which only the number of floats left is bisected."""

LIMIT = tl.constexpr(120)
"""Evaluations after which the search ends where it is: by then no float is left in between."""


@dataclass(frozen=True)
class Team(meeting.Team):
    """How programs share a vector, and what is wanted of it."""

    every: bool
    """Whether all vectors are projected, or those that were left."""
    records: bool
    """Whether these are written."""
    block: int
    """Entries that a program reads at a time."""


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


# ---- readings: `vector` is where it begins, where this program does, where it ends, and the team;
# where its mask begins, and how many entries count ----
# `units` are what entries are divided by, what distances are multiplied by, and the top like them.


@triton.jit
def block_of(vector, begin, TEAM):
    """Return entries of a vector and what is projected of them, which of them exist, and where."""
    x_at, _, n, _, mask_at, _ = vector
    place = begin + tl.arange(0, TEAM.block).to(tl.int64)
    there = place < n
    if TEAM.case.masked:
        there = tl.load(mask_at + place, mask=there, other=0) != 0
    x = tl.load(x_at + place, mask=there, other=0.0).to(tl.float64)
    return x, tl.abs(x) if TEAM.case.signed else x, there, place


@triton.jit
def read(vector, ADD, numbers, HOW, turn, TEAM):
    """Go through a vector, and return sums, largest or smallest numbers, as HOW says.

    ADD takes those so far, a block of the vector, and `numbers` that it wants to know.
    """
    sums = ()
    for i in tl.static_range(len(HOW)):
        fill = -INFINITY if HOW[i] == ">" else INFINITY if HOW[i] == "<" else 0.0
        sums = sums + (tl.full((TEAM.block,), fill, tl.float64),)
    begin = vector[1]
    while begin < vector[2]:
        sums = ADD(sums, block_of(vector, begin, TEAM), numbers)
        begin += TEAM.programs * TEAM.block
    return join(reduced(sums, HOW), vector[3], turn, HOW, TEAM)


@triton.jit
def add_survey(sums, block, numbers):
    """Add the largest and the smallest entry, and how many are not finite."""
    high, low, bad = sums
    x, w, there, _ = block
    high = tl.maximum(high, tl.where(there, w, -INFINITY))
    low = tl.minimum(low, tl.where(there, w, INFINITY))
    return high, low, bad + tl.where(tl.abs(x) < INFINITY, 0.0, 1.0)


@triton.jit
def add_ends(sums, block, numbers):
    """Add the number of ties at the top, the next distance, and the place of the first tie.

    And the square of the norm; number and sum of the positive entries, these over `size`.
    """
    ties, second, first, square, count, total = sums
    x, w, there, place = block
    top, size, half, peak = numbers
    s = peak - w * half
    tied = there & (w == top)
    ties += tl.where(tied, 1.0, 0.0)
    first = tl.minimum(first, tl.where(tied, place.to(tl.float64), INFINITY))
    second = tl.minimum(second, tl.where(there & (s > 0), s, INFINITY))
    square += (x / size) * (x / size)
    count += tl.where(there & (w > 0), 1.0, 0.0)
    total += tl.where(there & (w > 0), w / size, 0.0)
    return ties, second, first, square, count, total


@triton.jit
def add_scaled(sums, block, numbers):
    """Add the positive entries, times a power of two: nothing is rounded but the sum."""
    return (sums[0] + tl.where(block[2] & (block[1] > 0), block[1] * numbers[0], 0.0),)


@triton.jit
def add_squares(sums, block, numbers):
    """Add the squares of what `entries_by_l1` returns, over the largest of it."""
    p = entries_by_l1(block[1], numbers) / numbers[0]
    return (sums[0] + tl.where(block[2], p * p, 0.0),)


@triton.jit
def add_positive(sums, block, numbers):
    """Add the squares of positive entries about their mean."""
    size, centre = numbers
    t = tl.where(block[2] & (block[1] > 0), block[1] / size - centre, 0.0)
    return (sums[0] + t * t,)


@triton.jit
def add_support(sums, block, numbers):
    """Add number and sum of the distances below q, the last of them, and the next beyond."""
    count, total, last, beyond = sums
    _, w, there, _ = block
    half, peak, q, unit = numbers
    s = peak - w * half
    inside = there & (s < q)
    count += tl.where(inside, 1.0, 0.0)
    total += tl.where(inside, s * unit, 0.0)
    last = tl.maximum(last, tl.where(inside, s, -INFINITY))
    beyond = tl.minimum(beyond, tl.where(there & (s >= q), s, INFINITY))
    return count, total, last, beyond


@triton.jit
def add_spread(sums, block, numbers):
    """Add the distances below q, and their squares, about a mean and in units."""
    half, peak, q, mean, unit = numbers
    s = peak - block[1] * half
    t = tl.where(block[2] & (s < q), (s - mean) * unit, 0.0)
    return sums[0] + t, sums[1] + t * t


@triton.jit
def add_below(sums, block, numbers):
    """Add the entries over `size` whose distances are below a bound."""
    size, half, peak, bound = numbers
    _, w, there, _ = block
    return (sums[0] + tl.where(there & (peak - w * half < bound), w / size, 0.0),)


@triton.jit
def units_of(top, low):
    """Return the units: see above.

    Distances are halved where they could overflow, and raised out of the subnormal numbers: by
    2^300, in factors that Triton does not take for too large.
    """
    size = tl.maximum(tl.abs(top), tl.abs(low))
    size = tl.where(size > 0, size, 1.0)
    half = tl.where(top - low < INFINITY, 1.0, 0.5).to(tl.float64)
    raised = (half * 1.2676506002282294e30) * 1.2676506002282294e30 * 1.2676506002282294e30
    half = tl.where(size < 1e-250, raised, half)
    return size, half, top * half


# ---- the search ----


@triton.jit
def evaluate(vector, units, q, goal, farthest, turn, TEAM):
    """Return the support below q and its closed form, by two readings: mean and ends, then spread.

    As number, mean, what the mean lacks, spread, unit, beta; alpha, the last entry, the next one
    beyond, and count - K. The mean is in the units of distances, the rest in those of the support.
    """
    ratio, slack, slack_low, _ = goal
    CASE: tl.constexpr = TEAM.case
    n = vector[5]
    _, half, peak = units
    rough_unit = inverse_power(tl.minimum(q, farthest))
    read1, turn = read(vector, add_support, (half, peak, q, rough_unit), "++><", turn, TEAM)
    c, a, last, beyond = read1
    mean, unit = a / c / rough_unit, inverse_power(last)
    read2, turn = read(vector, add_spread, (half, peak, q, mean, unit), "++", turn, TEAM)
    d, v = read2
    # What the mean lacks is the same for all entries and adds up in their sum: kept apart.
    lack = d / c
    v -= d * (d / c)
    if CASE.rule == FREE:
        excess = c
        beta, step = closed_form(c, v, c, ratio * half, FREE, True)
        alpha = mean + lack / unit + step
    else:
        excess = excess_of(c, n, slack, slack_low)
        divisor = tl.where(excess > 0, excess, 1.0)
        beta, step = closed_form(c, v, divisor, ratio, CASE.rule, True)
        # In the units of distances alpha may overflow.
        alpha = mean + (lack + step) / unit
    return (c, mean, lack, v, unit, beta), (alpha, last, beyond, excess), turn


@triton.jit
def next_cut(q, nearer, farther, support, alpha, enough, k, spent, RULE):
    """Return where to cut next, between `nearer` and `farther`.

    Where Newton's step leads, if it is of use, else where the exact step does; if the search takes
    long, halfway between the two.
    """
    c, mean, _, v, unit, _ = support
    newton = alpha
    if RULE != FREE:
        newton = q - newton_step((q - mean) * unit, v, c, k) / unit
    following = tl.where(enough, alpha, 0.5 * nearer + 0.5 * farther)
    useful = (newton > nearer) & (newton < farther) & (c > 1)
    use = useful & ((enough == 0) | ((alpha < q) & (newton < alpha)))
    following = tl.where(use, newton, following)
    if (spent >= 5) & ((spent % 2 == 1) | (spent > PATIENCE)):
        geometric = tl.sqrt(nearer) * tl.sqrt(farther)
        by_floats = (spent % 8 == 7) | (spent > PATIENCE)
        following = tl.where(by_floats, halfway(nearer, farther), geometric)
    within = (following > nearer) & (following <= farther)
    return tl.where(within, following, farther)


@triton.jit
def search(vector, units, low, second, goal, idle, turn, TEAM):
    """Find the support, unless there is nothing to search (`idle`).

    Return number, mean, what the mean lacks, spread, unit and beta of the support (see `evaluate`),
    the bound that its distances are below, evaluations, and the turn.
    """
    CASE: tl.constexpr = TEAM.case
    ratio, n = goal[0], vector[5]
    k = n - goal[1]
    peak = units[2]
    farthest = peak - low * units[1]
    state = tl.where(idle, DONE, SEARCH)
    # Invariant: nearer <= alpha <= farther, up to rounding.
    nearer, farther = second, farthest * 2
    q = INFINITY + 0.0 * peak
    if CASE.rule == FREE:
        # The largest entry gets what alpha is below it: no less than the mean, no more than all.
        most = ratio * units[1] * (1.0 + 8.9e-16)
        nearer, farther, q = ratio * units[1] / n * (1.0 - 8.9e-16), most, most
    count, mean, spread, unit = n + 0.0 * peak, 0.0 * peak, 0.0 * peak, 1.0 + 0.0 * peak
    lack, beta = mean, mean
    # Not another name for q: Triton would take the one for the other, and lose what the loop does.
    bound = INFINITY + 0.0 * peak
    spent = 0
    while state != DONE:
        support, ends, turn = evaluate(vector, units, q, goal, farthest, turn, TEAM)
        alpha, last, beyond, excess = ends
        spent += 1
        enough = excess > 0
        # Nothing lies between the support and its alpha; what is not beyond the lower bound of
        # alpha belongs to it, whatever rounding says.
        reaches = (last < alpha) | (last <= nearer)
        consistent = enough & reaches & (alpha <= beyond)
        # A support whose own alpha lies beyond the next entry, by more than rounding, lacks it.
        lacks = enough & (alpha > beyond * 1.000001)
        accept = False
        previous = q
        if state == SEARCH:
            if enough:
                farther = tl.minimum(farther, tl.maximum(alpha, nearer))
                known = tl.where(lacks, beyond, tl.where(alpha > beyond, q, nearer))
                nearer = tl.maximum(nearer, known)
            else:
                nearer = tl.maximum(nearer, beyond)
            following = next_cut(q, nearer, farther, support, alpha, enough, k, spent, CASE.rule)
            stuck = (following == q) | (spent >= LIMIT)
            accept = consistent | (stuck & enough & ((lacks == 0) | (spent >= LIMIT)))
            # Too few entries, and nowhere else to look: those next to them belong to it.
            q = tl.where(accept, q, tl.where(stuck, next_above(beyond), following))
            state = tl.where(spent > LIMIT + 8, DONE, state)
        else:
            # The support without its last entries is right if it lacks nothing by its own
            # account: where K is a rounding error below a number of near-ties the two
            # differ by the root of that error.
            accept = enough & (alpha <= beyond)
            state = tl.where(accept, state, DONE)
        if accept:
            count, mean, lack, spread, unit, beta = support
            bound = previous
            if CASE.rule == FREE:
                # Whether the last entries are counted makes no difference.
                state = tl.where(state == DONE, state, DONE)
            else:
                even = (ratio / count) * beta
                doubtful = even + ((mean - last) * unit + lack) <= 9.1e-13 * even
                q = last
                state = tl.where(doubtful & (spent < LIMIT), CHALLENGE, DONE)
    return (count, mean, lack, spread, unit, beta), bound, spent, turn


# ---- the result ----


@triton.jit
def first_look(vector, goal, turn, TEAM):
    """Return the ends of a vector, whether it is valid, and its target.

    Bad vectors take part with numbers that do no harm; they become NaN at the end.
    """
    ratio, slack, slack_low, norm = goal
    n = vector[5]
    found, turn = read(vector, add_survey, (), "><+", turn, TEAM)
    top, low, bad = found
    valid = (bad == 0) & (ratio == ratio) & (norm == norm)
    if TEAM.case.masked:
        # Of a vector without entries nothing is asked.
        valid = valid | (n == 0)
        top, low = tl.where(n == 0, 0.0, top), tl.where(n == 0, 0.0, low)
    top, low = tl.where(bad == 0, top, 0.0), tl.where(bad == 0, low, 0.0)
    ratio = tl.where(valid, ratio, 1.0)
    slack, slack_low = tl.where(valid, slack, n - 1.0), tl.where(valid, slack_low, 0.0)
    return (top, low), valid, (ratio, slack, slack_low, norm), turn


@triton.jit
def keep_direction(vector, size, low, sums, goal, valid, turn, TEAM):
    """Return whether a vector keeps its direction, or is one-hot; both norms of what it keeps.

    It keeps its positive entries if they are sparse enough, and becomes one-hot if it has none.
    Sparse enough is l1^2/l2^2 <= K over the c nonzero entries, without loss where they are equal:
    c (c - K) <= K V/mean^2.
    """
    count, total = sums
    _, slack, slack_low, _ = goal
    n = vector[5]
    centre = total / tl.maximum(count, 1.0)
    read1, turn = read(vector, add_positive, (size, centre), "+", turn, TEAM)
    spread = read1[0]
    excess = excess_of(count, n, slack, slack_low)
    enough = count * excess <= (n - slack) * (spread / centre / centre)
    hot = (count == 0) & (low < 0) & valid
    active = hot | ((count > 0) & enough & valid)
    l2 = tl.where(hot, 1.0, tl.sqrt(spread + total * centre))
    return active, hot, l2, tl.where(hot, 1.0, total), turn


@triton.jit
def is_bare(units, low, flags, support, total, goal, n, CASE):
    """Whether zeros stay zero, as the vector is in the set already, up to rounding."""
    constant, tied, active, _, _ = flags
    count, mean, lack, _, unit, beta = support
    ratio, slack, _, _ = goal
    size, half, _ = units
    base = ratio / count
    # Not from the mean distance, next to which lie the zeros.
    at_zero = base - (total / n) * (size * half * unit) / beta
    at_top = base + (mean * unit + lack) / beta
    bare = (low == 0) & (count == n) & (tied == 0) & (constant == 0) & (active == 0)
    return bare & (at_zero <= zeros_limit(ratio, slack, n, at_top, CASE))


@triton.jit
def nearest_norm(vector, units, top, support, bound, flags, ratio, turn, TEAM):
    """Return the norm that is nearest to x, as a fraction of `size`, readings, and the turn."""
    constant, tied, active, _, _ = flags
    count, _, _, spread, unit, beta = support
    size, half, peak = units
    fraction = ratio * (top / size)
    reads = 0.0
    if ((constant == 0) & (tied == 0) & (active == 0)) | constant:
        # Not by the mean distance: the mean of the entries may be small next to the maximum.
        read1, turn = read(vector, add_below, (size, half, peak, bound), "+", turn, TEAM)
        total, reads = read1[0], 1.0
        rest = spread / tl.where(beta > 0, beta, 1.0) / (size * unit * half)
        root_n = tl.sqrt(vector[5].to(tl.float64))
        fraction = tl.where(constant, total / root_n, (ratio / count) * total + rest)
    return tl.maximum(fraction, 0.0), reads, turn


@triton.jit
def norm_if_kept(norm, size, ratio, l2, total, hot, CASE):
    """Return norm, L1 norm and mark of a vector that keeps its direction."""
    fraction, power = norm
    if CASE.rule == NEAREST:
        fraction, power = tl.where(hot, 0.0, l2), size
    elif CASE.l1_given:
        fraction = fraction * ratio * l2 / total
    mark = TO_L1 * 1.0 if CASE.l1_given else TO_L2 * 1.0
    return fraction, power, fraction * power * (total / l2), mark


@triton.jit
def write(vector, y_at, units, top, inner, ties, l2, norm, flags, TEAM):
    """Write a result.

    `inner` is what entries follow from otherwise, `ties` the first and the other tied entries and
    the place of the first, `l2` the norm of what keeps its direction, `norm` the one of the result.
    """
    begin, n, size_of = vector[1], vector[2], vector[5]
    size, half, peak = units
    base, mean, lack, unit, beta, bound, bare = inner
    tie_first, tie_other, first_tie = ties
    fraction, power = norm
    constant, tied, active, hot, valid = flags
    same = (fraction * power == l2 * size) & active & (hot == 0)
    while begin < n:
        x, w, there, place = block_of(vector, begin, TEAM)
        s = peak - w * half
        inside = tl.maximum(base + ((mean - s) * unit + lack) / beta, 0.0)
        p = tl.where((s < bound) & ((bare == 0) | (w != 0)), inside, 0.0)
        if tied:
            p = tl.where(w == top, tie_other, 0.0)
            p = tl.where(place.to(tl.float64) == first_tie, tie_first, p)
        if constant:
            p = tl.full((TEAM.block,), 0.0, tl.float64) + 1 / tl.sqrt(size_of.to(tl.float64))
        if active:
            p = tl.maximum(w, 0.0) / size / l2
        if hot:
            p = tl.where(place.to(tl.float64) == first_tie, 1.0, 0.0).to(tl.float64)
        p = p * fraction * power
        if same:
            p = tl.maximum(w, 0.0)
        p = tl.where(fraction == 0, 0.0, p)
        store_block(p, x, there, place, n, y_at, valid, TEAM)
        begin += TEAM.programs * TEAM.block


@triton.jit
def store_block(p, x, there, place, n, y_at, valid, TEAM):
    """Give magnitudes their signs, and write them; NaN for what is not valid."""
    if TEAM.case.signed:
        p = tl.where(x < 0, -p, p)
    p = tl.where(valid, p, float("nan"))
    if TEAM.case.masked:
        p = tl.where(there, p, 0.0)
        there = place < n
    # What rounds to zero has no sign either.
    lost = p.to(y_at.dtype.element_ty).to(tl.float64) == 0
    tl.store(y_at + place, tl.where(lost, 0.0, p).to(y_at.dtype.element_ty), mask=there)


@triton.jit
def account(n, units, support, bare, ends, low, l2, flags, goal, SIGNED):
    """Return alpha and beta, this in units, these units, the size of the support, uniqueness."""
    ratio, slack, slack_low, _ = goal
    count, mean, lack, _, unit, beta = support
    size, half, peak = units
    ties, second, _, _, positive, _ = ends
    constant, tied, active, hot, _ = flags
    # In quarters: alpha may be out of reach for distances, and not for the data.
    beyond_mean = (lack + beta * (ratio / count)) * 0.25 / unit
    shift = ((peak * 0.25 - mean * 0.25) - beyond_mean) / half / 0.25
    shift = tl.where(bare, 0.0, shift)
    unit = unit * half
    number = tl.where(bare, positive, count)
    unique = bare | ((SIGNED & (low == 0) & (count == n)) == 0)
    if tied:
        equal = excess_of(ties, n, slack, slack_low) == 0
        single = excess_of(1.0 + 0.0 * ties, n, slack, slack_low) == 0
        shift = tl.where(equal, (peak - second) / half, float("nan"))
        beta = tl.where(equal, second * (ties / ratio), 0.0)
        unit = half
        number = tl.where(single & (equal == 0), 1.0, ties)
        unique = equal
    if constant:
        shift = float("nan") + 0.0 * shift
        beta = 0.0 * ties
        number = n + 0.0 * ties
        unique = (SIGNED & (low == 0)) == 0
    if active:
        shift = tl.where(hot, float("nan"), 0.0 * ties)
        beta = tl.where(hot, 0.0, l2)
        unit = 1 / size
        number = tl.where(hot, 1.0, positive)
        unique = (hot == 0) | (ties == 1)
    return shift, beta, unit, number, unique


@triton.jit
def tell(told, blank, valid, norms, mark, reads, row, to, TEAM):
    """Write what derivatives need, and the record of a vector; `blank` is a result of zeros.

    `told` are alpha, beta, the size of the support and uniqueness, `norms` those of the result.
    """
    shift, scale, number, unique = told
    scales, kepts, records = to
    zero = blank
    blank = zero | (valid == 0)
    scale = tl.where(blank, 0.0, scale)
    mark = tl.where(valid, mark, 0.0)
    if TEAM.case.with_scale:
        tl.store(scales + row, scale)
        if TEAM.case.marks:
            tl.store(kepts + row, mark.to(tl.int8))
    if TEAM.records:
        nan = float("nan")
        record = records + row * 8
        tl.store(record, tl.where(blank, nan, shift))
        tl.store(record + 1, scale)
        tl.store(record + 2, tl.where(blank, 0.0, number))
        tl.store(record + 3, reads)
        tl.store(record + 4, tl.where(blank | unique, 1.0, 0.0))
        tl.store(record + 5, tl.where(valid, tl.where(zero, 0.0, norms[0]), nan))
        tl.store(record + 6, tl.where(valid, norms[1], nan))
        tl.store(record + 7, mark)


@triton.jit
def project_vector(vector, y_at, row, goal, to, turn, TEAM):
    """Project one vector by this program, or the team that it is a member of; return the turn."""
    CASE: tl.constexpr = TEAM.case
    n = vector[5]
    span, valid, goal, turn = first_look(vector, goal, turn, TEAM)
    top, low = span
    ratio, slack, slack_low, norm = goal
    units = units_of(top, low)
    ends, turn = read(vector, add_ends, (top,) + units, "+<<+++", turn, TEAM)
    ties, second, first_tie, square, count, total = ends
    active, hot, l2 = row < 0, row < 0, 1.0 + 0.0 * top
    reads = 2.0
    if CASE.only_increase:
        active, hot, l2, total, turn = keep_direction(
            vector, units[0], low, (count, total), goal, valid, turn, TEAM
        )
        reads = 3.0
    empty = n == 0
    constant = ((slack + slack_low) <= 0) & (active == 0)
    tied = (constant == 0) & (excess_of(ties, n, slack, slack_low) >= 0) & (active == 0)
    flags = (constant, tied, active, hot, valid)
    idle = constant | tied | active | (valid == 0)
    if CASE.masked:
        idle = idle | empty
    support, bound, spent, turn = search(vector, units, low, second, goal, idle, turn, TEAM)
    reads += 2.0 * spent
    bare = is_bare(units, low, flags, support, total, goal, n, CASE)

    # The norm, as a fraction times a power.
    fraction, power = norm, 1.0 + 0.0 * norm
    if CASE.rule == KEEP:
        fraction, power = tl.sqrt(square), units[0]
    elif CASE.rule == NEAREST:
        fraction, read_more, turn = nearest_norm(
            vector, units, top, support, bound, flags, ratio, turn, TEAM
        )
        power = units[0]
        reads += read_more
    l1, mark = ratio * fraction * power, 0.0
    if active:
        fraction, power, l1, mark = norm_if_kept(
            (fraction, power), units[0], ratio, l2, total, hot, CASE
        )
    if CASE.masked:
        fraction = tl.where(empty, 0.0, fraction)
    size = (fraction, power)
    inner = (ratio / support[0], support[1], support[2], support[4], support[5], bound, bare)
    at_ties = tied_entries(ties, n, goal) + (first_tie,)
    write(vector, y_at, units, top, inner, at_ties, l2, size, flags, TEAM)
    if vector[1] == 0:
        shift, beta, unit, number, unique = account(
            n, units, support, bare, ends, low, l2, flags, goal, CASE.signed
        )
        zero = fraction == 0
        mark = tl.where(zero, 0.0, mark)
        if CASE.masked:
            mark = tl.where(empty, WITHIN * 1.0, mark)
        told = (shift, quotient(beta / fraction, unit, power), number, unique)
        tell(told, zero, valid, (l1, fraction * power), mark, reads, row, to, TEAM)
    return turn


# ---- l1 alone ----


@triton.jit
def entries_by_l1(w, numbers):
    """Return what entries become: max(w - alpha, 0), from distances; or as they were (`stay`).

    `bare` says that zeros stay zero, `rest` what the others then get.
    """
    _, base, mean, lack, half, peak, bound, bare, rest, stay = numbers
    s = peak - w * half
    p = tl.where(s < bound, tl.maximum(base + ((mean - s) + lack) / half, 0.0), 0.0)
    p = tl.where(bare, tl.where(w > 0, tl.maximum(w + rest, 0.0), 0.0), p)
    return tl.where(stay, tl.maximum(w, 0.0), p)


@triton.jit
def project_by_l1(vector, y_at, row, goal, to, turn, TEAM):
    """Project one vector where l1 alone is given: as `project_vector`, without scale and ties."""
    CASE: tl.constexpr = TEAM.case
    n = vector[5]
    span, valid, goal, turn = first_look(vector, goal, turn, TEAM)
    top, low = span
    ratio = goal[0]
    units = units_of(top, low)
    size, half, peak = units
    ends, turn = read(vector, add_ends, (top,) + units, "+<<+++", turn, TEAM)
    positive = ends[4]
    reads = 2.0
    stay = row < 0
    unit = inverse_power(size)
    sums, turn = read(vector, add_scaled, (unit,), "+", turn, TEAM)
    total = sums[0]
    if CASE.at_most:
        stay = (total <= ratio * unit) & (ratio > 0) & valid & (n > 0)
    # Of a vector without entries nothing is asked, and to a bound of 0 only zeros fit.
    none = ((ratio == 0) & (stay == 0)) | (n == 0)
    idle = stay | none | (valid == 0)
    support, bound, spent, turn = search(vector, units, low, ends[1], goal, idle, turn, TEAM)
    count, mean, lack, _, by, _ = support
    reads += 2.0 * spent + 1.0
    lack = lack / by
    base = ratio / count
    highest = base + mean / half
    # Zeros that lack no more than rounding explains stay zero; the others get it.
    lacking = ratio - total / unit
    bare = (low == 0) & (count == n) & (idle == 0) & (positive > 0)
    bare = bare & (lacking / n <= zeros_limit(ratio, n, n, highest, CASE))
    # Half types are what the formula says, rounded once.
    rest = lacking / (n if CASE.by_entries > COARSE else tl.maximum(positive, 1.0))
    largest = tl.where(stay, tl.maximum(top, 0.0), tl.where(bare, top + rest, highest))
    largest = tl.where(largest > 0, largest, 1.0)
    numbers = (largest, base, mean, lack, half, peak, bound, bare, rest, stay)
    square = 0.0 * top
    if TEAM.records:
        squares, turn = read(vector, add_squares, numbers, "+", turn, TEAM)
        square, reads = squares[0], reads + 1.0
    begin = vector[1]
    while begin < vector[2]:
        x, w, there, place = block_of(vector, begin, TEAM)
        p = tl.where(none, 0.0, entries_by_l1(w, numbers))
        store_block(p, x, there, place, vector[2], y_at, valid, TEAM)
        begin += TEAM.programs * TEAM.block
    if vector[1] == 0:
        shift = (peak * 0.25 - mean * 0.25) / half / 0.25 - base
        shift = tl.where(stay | bare, 0.0, shift)
        number = tl.where(stay | bare, positive, count)
        unique = stay | bare | ((CASE.signed & (low == 0) & (count == n)) == 0)
        norm = tl.where(none, 0.0, largest * tl.sqrt(square))
        l1 = tl.where(stay, total / unit, ratio)
        told = (shift, 1.0 - 0.0 * top, number, unique)
        mark = tl.where(stay | (n == 0), WITHIN * 1.0, L1_ALONE * 1.0)
        tell(told, none, valid, (l1, norm), mark, reads, row, to, TEAM)
    return turn


# Compiled once for all lengths: to load a little faster is not worth the wait for the compiler.
@triton.jit(do_not_specialize=["rows", "n", "given_stride", "out_stride", "share_of_rows"])
def project_carefully(
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
    kepts,
    records,
    slots,
    share_of_rows,
    TEAM: tl.constexpr,
):
    """Project the vectors that `left` names, or all of them."""
    CASE: tl.constexpr = TEAM.case
    number, member = number_and_member(TEAM)
    first = member.to(tl.int64) * TEAM.block
    turn = 1
    block = number * share_of_rows
    last_row = tl.minimum(block + share_of_rows, rows)
    while block < last_row:
        some = tl.arange(0, SCAN) + block
        if TEAM.every:
            busy = True
        else:
            busy = tl.max(tl.load(left + some, mask=some < last_row, other=0), 0) != 0
        if busy:
            row = block
            while row < tl.minimum(block + SCAN, last_row):
                wanted = True if TEAM.every else tl.load(left + row) != 0
                if wanted:
                    numbers = (ratio, slack, slack_low, norm)
                    goal = goal_of(goals, row, row >= 0, numbers, CASE)
                    mask_at = given
                    if CASE.masked:
                        mask_at = masks[0] + row * masks[1]
                    size = length_of(goals, row, row >= 0, n, CASE)
                    x_at = given + place_of(row, given_stride, CASE)
                    vector = (x_at, first, n, slots, mask_at, size)
                    to = (scales, kepts, records)
                    y_at = out + place_of(row, out_stride, CASE)
                    if CASE.rule == FREE:
                        turn = project_by_l1(vector, y_at, row, goal, to, turn, TEAM)
                    else:
                        turn = project_vector(vector, y_at, row, goal, to, turn, TEAM)
                row += 1
        block += SCAN
