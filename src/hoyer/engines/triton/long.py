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

from dataclasses import dataclass

import triton
import triton.language as tl

from . import meeting
from .device import (
    FREE,
    INFINITY,
    KEEP,
    L1_ALONE,
    ORDINARY,
    WITHIN,
    add3,
    bits_of,
    exact_division,
    goal_of,
    magnitudes,
    positive,
    positive_or_nan,
    start_for,
    survey_over,
)
from .formula import (
    at_zeros,
    closed_form,
    exact_on_sums,
    excess_of,
    newton_on_sums,
    norm_of,
    result_of,
    scale_by_distances,
    share_of_goal,
    zeros_stay,
)
from .meeting import exchange, join, number_and_member
from .rows import CLOSE, begin, evaluate, rough_step

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


@dataclass(frozen=True)
class Team(meeting.Team):
    """How programs share a vector.

    A vector is where it begins, where the part of this program does and where that ends, its
    length, and the team's slots.
    """

    check: bool
    """Whether a result may be written again: see above."""
    pieces: int
    """Loads of a thread per block."""
    threads: int
    entries: int
    """Entries of a load."""
    sample: int
    """Pieces of the sample that a program solves."""

    @property
    def piece(self) -> int:
        """Entries that all threads load at a time."""
        return self.threads * self.entries

    @property
    def block(self) -> int:
        """Entries that are in registers at a time."""
        return self.pieces * self.piece


@triton.jit
def solve_sample(vector, k, ratio, start, TEAM):
    """Solve a sample, lines from all over the vector, other ones for each member of the team.

    Return alpha, a lower bound, the largest entry, and number and mean distance of the support.
    """
    CASE: tl.constexpr = TEAM.case
    x_at, n = vector[0], vector[3]
    size: tl.constexpr = TEAM.sample * TEAM.piece
    number = tl.arange(0, TEAM.sample)[None, :, None] * TEAM.piece
    number = number + tl.arange(0, TEAM.piece)[None, None, :]
    stride = (n - LINE) // (size // LINE * TEAM.programs - 1)
    line = (number // LINE * TEAM.programs + number_and_member(TEAM)[1]).to(tl.int64)
    v, w = magnitudes(tl.load(x_at + line * stride + number % LINE), TEAM.case.signed)
    a, b, high, low = survey_over(w, w * w, w, w)
    whole = size + 0 * (a > 0).to(tl.int32)
    few = tl.maximum(k * size / n, 1.0)
    if CASE.rule == FREE:
        # The norm of the sample has its share of the entries.
        ratio = ratio.to(tl.float32) * (size / n)
        few, slack = 0.0 * ratio, size + 0.0 * ratio
    else:
        ratio = tl.sqrt(few)
        slack = size - few
    pivot, least = begin(a, b, high, low, whole, slack, ratio, start, CASE)
    below, above = least, high
    c = few
    turn = 0
    going = True
    while (turn < ROUNDS) & going:
        sums = evaluate(w, pivot)
        c, a = tl.max(sums[0], 0).to(tl.float32), sums[1]
        pivot, below, above, _, near, length = rough_step(
            pivot, below, above, sums, size, low, few, ratio, CASE.rule, tl.float32
        )
        # A quarter of what the sample is off by itself.
        rough = length < 0.25 * tl.rsqrt(c if CASE.rule == FREE else few)
        going = tl.max(((near | rough) == 0).to(tl.int32), 0) > 0
        turn += 1
    near_by = tl.max(a, 0).to(tl.float32) / c
    return tl.max(pivot, 0), tl.max(least, 0), tl.max(high, 0), c, near_by


@triton.jit
def places(TEAM):
    """Return the places of the entries of a block."""
    return tl.arange(0, TEAM.pieces)[:, None] * TEAM.piece + tl.arange(0, TEAM.piece)[None, :]


@triton.jit
def load_block(vector, block, there, POLICY, TEAM):
    """Return the entries of a block that are there."""
    at = vector[0] + block + places(TEAM)
    return tl.load(at, mask=there, other=0.0, eviction_policy=POLICY)


@triton.jit
def load_whole(vector, block, there, POLICY, TEAM):
    """Return the entries of a whole block, if it is there."""
    all_of = tl.full((TEAM.pieces, TEAM.piece), 1, tl.int1)
    return load_block(vector, block, all_of & there, POLICY, TEAM)


@triton.jit
def sum_of_thread(tile, TEAM):
    """Add up what every thread holds of a block: all pieces, and the entries of a load."""
    return tl.sum(tl.sum(tile, 0).reshape(TEAM.threads, TEAM.entries), 1)


@triton.jit
def _join_samples(a0, b0, c0, h0, l0, a1, b1, c1, h1, l1):
    return a0 + a1, b0 + b1, c0 + c1, tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def _join_readings(c0, a0, b0, f0, e0, l0, o0, c1, a1, b1, f1, e1, l1, o1):
    return c0 + c1, a0 + a1, b0 + b1, f0 + f1, e0 + e1, tl.minimum(l0, l1), o0 + o1


@triton.jit
def add_block(sums, x, there, pivot, margin, EVEN, TEAM):
    """Add a block, EVEN if it is whole, to the sums of every thread."""
    c, a, b, f, e, low, own = sums
    v, w = magnitudes(x, TEAM.case.signed)
    upper = w if EVEN else tl.where(there, w, -INFINITY)
    distance = upper - pivot
    # NaN has to show in the sums.
    t = positive_or_nan(distance)
    c += sum_of_thread((t > 0).to(tl.float32), TEAM)
    a += sum_of_thread(t, TEAM)
    b += sum_of_thread(t * t, TEAM)
    f += sum_of_thread((distance > -margin).to(tl.float32), TEAM)
    e += sum_of_thread((distance > margin).to(tl.float32), TEAM)
    if not TEAM.case.signed:
        lower = w if EVEN else tl.where(there, w, INFINITY)
        low = tl.minimum(low, tl.min(tl.min(lower, 0).reshape(TEAM.threads, TEAM.entries), 1))
    if TEAM.case.rule == KEEP:
        own += sum_of_thread(v * v, TEAM)
    return c, a, b, f, e, low, own


@triton.jit
def _in_all_digits(sums):
    """Return the sums of a reading in float64, but for the smallest entry."""
    c, a, b, f, e, low, own = sums
    c, a, b = c.to(tl.float64), a.to(tl.float64), b.to(tl.float64)
    return c, a, b, f.to(tl.float64), e.to(tl.float64), low, own.to(tl.float64)


@triton.jit
def read(vector, pivot, margin, onward, turn, TEAM):
    """Add up the whole vector, every program its part, `onward` or from its end.

    Return the entries above the pivot: how many, their distances, the squares; how many lie above
    the pivot less and plus a margin; the smallest entry (0 for magnitudes); the sum of all squares.
    """
    begins, ends = vector[1], vector[2]
    count = tl.full((TEAM.threads,), 0.0, tl.float32)
    none = tl.full((TEAM.threads,), 0.0, pivot.dtype)
    least = tl.full((TEAM.threads,), 0.0 if TEAM.case.signed else INFINITY, pivot.dtype)
    sums = (count, none, none, count, count, least, none)
    whole = (tl.maximum(ends - begins, 0) // TEAM.block).to(tl.int32)
    full = begins + whole * TEAM.block
    if full < ends:
        there = places(TEAM) < (ends - full).to(tl.int32)
        x = load_block(vector, full, there, "evict_last", TEAM)
        sums = add_block(sums, x, there, pivot, margin, False, TEAM)
    step = tl.where(onward, TEAM.block, -TEAM.block)
    block = tl.where(onward, begins, full - TEAM.block)
    # A block is on its way while the one before is added up.
    x = load_whole(vector, block, whole > 0, "evict_last", TEAM)
    while whole > 0:
        block += step
        whole -= 1
        on_its_way = load_whole(vector, block, whole > 0, "evict_last", TEAM)
        sums = add_block(sums, x, True, pivot, margin, True, TEAM)
        x = on_its_way
    c, a, b, f, e, low, own = sums
    # Counts of huge parts are too large for float32.
    c, f, e = c.to(tl.int32), f.to(tl.int32), e.to(tl.int32)
    sums = tl.reduce((c, a, b, f, e, low, own), 0, _join_readings)
    if TEAM.programs > 1:
        WIDE: tl.constexpr = pivot.dtype == tl.float64
        sums = _in_all_digits(exchange(sums, vector[4], turn, "+++++<+", WIDE, TEAM))
        sums = tl.reduce(sums, 0, _join_readings)
    return _in_all_digits(sums), turn + 1


@triton.jit
def look_for_zeros(vector, TEAM):
    """Return 2 if a part of a vector has negative zeros, else 1 if it has zeros, else 0; its norms.

    That is the sum of its entries, and of their squares.
    """
    x_at, block, ends = vector[0], vector[1], vector[2]
    some = tl.full((TEAM.piece,), 0, tl.int32)
    l1 = tl.full((TEAM.piece,), 0, tl.float64)
    square = l1
    place = tl.arange(0, TEAM.piece)
    while block < ends:
        there = place < ends - block
        x = tl.load(x_at + block + place, mask=there, other=1.0)
        v, w = magnitudes(x, TEAM.case.signed)
        some = tl.maximum(some, tl.where(w == 0, tl.where(bits_of(v) < 0, 2, 1), 0))
        entries = tl.where(there, w, 0.0).to(tl.float64)
        l1 += entries
        square += entries * entries
        block += TEAM.piece
    return tl.max(some, 0).to(tl.float64), tl.sum(l1, 0), tl.sum(square, 0)


@triton.jit
def write_block(sums, x, there, at, line, EVEN, TEAM):
    """Write a block of a result, EVEN if it is whole, and add it to the sums of every thread."""
    c, a, b = sums
    pivot, gain, offset = line
    v, w = magnitudes(x, TEAM.case.signed)
    p = result_of(w, v, line, TEAM.case.signed, at.dtype.element_ty)
    if EVEN:
        tl.store(at + places(TEAM), p, cache_modifier=".cs")
    else:
        tl.store(at + places(TEAM), p, mask=there, cache_modifier=".cs")
    if TEAM.check:
        t = positive((w - pivot) * gain + offset)
        if not EVEN:
            t = tl.where(there, t, 0.0)
        c += sum_of_thread((t > 0).to(tl.float32), TEAM)
        a += sum_of_thread(t, TEAM)
        b += sum_of_thread(t * t, TEAM)
    return c, a, b


@triton.jit
def write_part(vector, y_at, line, onward, TEAM):
    """Write a part of a result, `onward` or from its end.

    Return number, sum and sum of squares of what is not zero.
    """
    begins, ends = vector[1], vector[2]
    none = tl.full((TEAM.threads,), 0.0, line[0].dtype)
    sums = (tl.full((TEAM.threads,), 0.0, tl.float32), none, none)
    whole = (tl.maximum(ends - begins, 0) // TEAM.block).to(tl.int32)
    full = begins + whole * TEAM.block
    step = tl.where(onward, TEAM.block, -TEAM.block)
    block = tl.where(onward, begins, full - TEAM.block)
    x = load_whole(vector, block, whole > 0, "evict_first", TEAM)
    while whole > 0:
        whole -= 1
        following = block + step
        on_its_way = load_whole(vector, following, whole > 0, "evict_first", TEAM)
        sums = write_block(sums, x, True, y_at + block, line, True, TEAM)
        x, block = on_its_way, following
    if full < ends:
        there = places(TEAM) < (ends - full).to(tl.int32)
        rest = load_block(vector, full, there, "evict_first", TEAM)
        sums = write_block(sums, rest, there, y_at + full, line, False, TEAM)
    c, a, b = sums
    return tl.reduce((c.to(tl.float64), a, b), 0, add3)


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
def even_step(x, square, goal, density, slope, RULE):
    """Return x, one of Newton's steps nearer to alpha; `goal` is that of `share_of_goal`."""
    c, a, b = even_sums(x, square, density, slope)
    return x - newton_on_sums(c, a, b, goal, RULE)


@triton.jit
def first_pivot(vector, k, ratio, start, turn, TEAM):
    """Return where the samples of all programs say alpha is, bounds of it, how far that may be off.

    As pivot, largest entry, lower bound, margin (four times what a sample is off by), next turn.
    """
    first, least, most, few, near_by = solve_sample(vector, k, ratio, start, TEAM)
    if TEAM.programs > 1:
        WIDE: tl.constexpr = first.dtype == tl.float64
        found = (first, few, near_by, most, least)
        found = exchange(found, vector[4], turn, "+++><", WIDE, TEAM)
        first, few, near_by, most, least = tl.reduce(found, 0, _join_samples)
        first, near_by = first / TEAM.programs, near_by / TEAM.programs
    return first, most, least, near_by * 6.0 * tl.rsqrt(few), turn + 1


@triton.jit
def spread_evenly(following, pivot, margin, sums, k, ratio, near, RULE):
    """Return the step that takes into account what lies between pivot and alpha, spread evenly.

    That is, as many on either side of the pivot, give or take chance and a slope. Return the next
    pivot, the step in mean distances, density and slope of the entries about the pivot, whether
    they are spread evenly, and what the step then lacks.
    """
    c1, a1, b1, f1, e1, _, _ = sums
    many, total, squares = c1.to(tl.float32), a1.to(tl.float32), b1.to(tl.float32)
    inverse = 1.0 / many
    mean = total * inverse
    wide = margin / mean
    inside, uneven = f1 - e1, (c1 - e1) - (f1 - c1)
    some = inside.to(tl.float32) * inverse
    density, slope = some / (2.0 * wide), uneven.to(tl.float32) * inverse / (wide * wide)
    relative = many * squares / (total * total)
    if RULE == FREE:
        goal = share_of_goal(many, total, k, ratio.to(tl.float32), RULE)
    else:
        goal = k * inverse
    step = (following - pivot).to(tl.float32) / mean
    step = even_step(step, relative, goal, density, slope, RULE)
    step = even_step(step, relative, goal, density, slope, RULE)
    step = even_step(step, relative, goal, density, slope, RULE)
    x = tl.abs(step)
    chance = 6.0 * tl.sqrt(some * inverse) + wide * some
    smooth = (tl.abs(uneven.to(tl.float32) * inverse) <= chance) & (x < wide)
    smooth = smooth & (8 * (many - k) > k) & (some > 0)
    by_step = smooth & (near == 0)
    following = tl.where(by_step, pivot + (step * mean).to(pivot.dtype), following)
    # What it lacks: chance, and what is not a slope.
    off = 0.5 * x * tl.sqrt(x * inverse) + x * x * x * x
    return following, step, density, slope, smooth, off


@triton.jit
def sums_at_alpha(pivot, step, density, slope, k, ratio, sums, RULE):
    """Return alpha, and the sums above it in all digits, of entries that are spread evenly."""
    c, a, b, _, _, _, _ = sums
    mean = a / c
    relative = c * b / (a * a)
    density, slope = density.to(tl.float64), slope.to(tl.float64)
    goal = share_of_goal(c, a, k, ratio, RULE)
    x = even_step(step.to(tl.float64), relative, goal, density, slope, RULE)
    by_c, by_a, by_b = even_sums(x, relative, density, slope)
    return pivot.to(tl.float64) + x * mean, c * by_c, a * by_a, a * mean * by_b


@triton.jit
def is_found(sums, c, exact, length, margin, WORK):
    """Whether a pivot has the right entries above it, or nearly."""
    c1, a1, _, f1, e1, _, _ = sums
    sure = (exact & (c1 == c)) | (length < 0)
    if WORK != tl.float64:
        inverse = 1.0 / c1.to(tl.float32)
        wide = margin / (a1.to(tl.float32) * inverse)
        # So many may lie between pivot and alpha, ties perhaps.
        beside = tl.maximum(f1 - c1, c1 - e1).to(tl.float32) * inverse
        few_there = (beside * length <= MISCOUNTED) & (length <= wide)
        sure = sure | ((length < NEAR) & few_there)
    return sure


@triton.jit
def search(vector, start, k, ratio, turn, TEAM):
    """Find the support.

    Return the last pivot; number, sum and sum of squares above it; alpha, and whether that was
    found because entries are spread evenly; whether it is the support, and all entries; the
    smallest and the largest entry, the sum of all squares, the number of readings, and the turn;
    whether the vector is within its bound, and to stay as it is.
    """
    CASE: tl.constexpr = TEAM.case
    x_at, n = vector[0], vector[3]
    kind: tl.constexpr = tl.float64 if x_at.dtype.element_ty == tl.float64 else tl.float32
    k32 = k.to(tl.float32)
    first, most, least, margin, turn = first_pivot(vector, k32, ratio, start, turn, TEAM)
    pivot = 0 * first if CASE.only_increase else first
    # Invariant, up to rounding: below <= alpha < above.
    below, above = least - (most - least), most + (most - least)
    none = ratio * 0.0
    c, a, b = none - 1.0, none, none
    exact, sure, even, ordinary, whole = none > 1, none > 1, none > 1, none > 1, none > 1
    alpha = none
    stay = none > 1
    lowest, square = least, none
    turns = 0
    going = True
    if CASE.at_most:
        # Too close to its bound a vector is looked at with care.
        at_zero, turn = read(vector, 0 * first, margin, False, turn, TEAM)
        fine = (at_zero[2] < ORDINARY * ORDINARY) & (at_zero[5] > -ORDINARY)
        stay = fine & (at_zero[1] < ratio * (1.0 - CLOSE))
        going = fine & (at_zero[1] > ratio * (1.0 + CLOSE))
    while going:
        # There and back: what was read last is in the cache still.
        sums, turn = read(vector, pivot, margin, turns % 2 == 0, turn, TEAM)
        c1, a1, b1, _, _, lowest, square = sums
        ordinary = (b1 < ORDINARY * ORDINARY) & (lowest > -ORDINARY)
        ordinary = ordinary & (tl.abs(pivot) < ORDINARY)
        turns += 1
        if CASE.only_increase & (turns == 1):
            # Whoever may be sparse enough already is looked at with care.
            many, total, squares = c1.to(tl.float32), a1.to(tl.float32), b1.to(tl.float32)
            excess = k32 * (squares * many / (total * total) - 1.0)
            going = ordinary & (many - k32 > excess * 1.001 + 1e-4 * many)
            pivot = first
        else:
            # In float64, which is slow, for doubles alone.
            following, below, above, at_exact, near, length = rough_step(
                pivot, below, above, sums, n, lowest, k, ratio, CASE.rule, kind
            )
            whole = length < 0
            sure = is_found(sums, c, exact, length, margin, kind)
            following, step, density, slope, smooth, off = spread_evenly(
                following, pivot, margin, sums, k32, ratio, near, CASE.rule
            )
            # Next time a window about as wide as that, so that few entries are in doubt.
            narrow = tl.maximum(8.0 * off, 1e-6) * (a1.to(tl.float32) * (1.0 / c1.to(tl.float32)))
            margin = tl.where(smooth, tl.minimum(narrow, 0.25 * margin), 0.25 * margin)
            if TEAM.check:
                even = smooth & (sure == 0) & (off < EVEN_ENOUGH)
                if even:
                    alpha, c1, a1, b1 = sums_at_alpha(
                        pivot, step, density, slope, k, ratio, sums, CASE.rule
                    )
                    sure = even
                    following = alpha.to(kind)
            c, a, b = c1, a1, b1
            exact = near
            going = (sure == 0) & (turns < ROUNDS) & ordinary
            pivot = tl.where(going | even, following, pivot)
    found = sure & ordinary
    return pivot, c, a, b, alpha, even, found, whole, lowest, most, square, turns, turn, stay


@triton.jit
def settle_zeros(vector, line, goal, whole, excess, even, right, lowest, turn, TEAM):
    """Decide about zeros that lie near alpha, or in a whole support: see `rows.settle_zeros`."""
    CASE: tl.constexpr = TEAM.case
    offset, n = line[2], vector[3]
    beside, doubtful = at_zeros(line, goal, n, excess, CASE)
    if right & (whole | doubtful):
        joined, turn = join(look_for_zeros(vector, TEAM), vector[4], turn, ">++", TEAM)
        zeros, l1, square = joined
        if (zeros > 0) & (lowest == 0):
            if CASE.rule == FREE:
                # What they do not receive is the others'; a negative zero as below.
                right = (doubtful == 0) & ((zeros == 1) if CASE.signed else right)
            elif doubtful:
                stay, offset = zeros_stay(l1, square, line, goal, n, CASE)
                # Of a whole support the other entries would move.
                right = stay & beside & ~whole & ~even
            else:
                # A negative zero becomes something positive: not here.
                right = (zeros == 1) if CASE.signed else right
    return offset, right, turn


@triton.jit
def write(vector, y_at, line, to_alpha, scale, goal, even, right, onward, turn, TEAM):
    """Write a result, again if what was written misses the target.

    Return the scale, whether the result is right, and the turn.
    """
    pivot, gain, offset, _, size = line
    RULE: tl.constexpr = TEAM.case.rule
    ratio, k = goal[0], vector[3] - goal[1]
    accepted = right
    going = right
    writes = 0
    while going:
        c0, a0, b0 = write_part(vector, y_at, (pivot, gain, offset), onward, TEAM)
        going = False
        if TEAM.check:
            if even:
                sums = (c0, a0.to(tl.float64), b0.to(tl.float64))
                joined, turn = join(sums, vector[4], turn, "+++", TEAM)
                c, a, b = joined
                # How far alpha is from where the exact step leads; in units of the result.
                lack = exact_on_sums(c, a, b, k, ratio, RULE).to(scale.dtype)
                writes += 1
                fine = (c > k) & (tl.abs(lack) < MISSED)
                going = (fine == 0) & (writes < WRITES) & (c > k)
                accepted = fine | going
                if going:
                    to_alpha += lack * (a / c).to(scale.dtype) / gain
                    if RULE != FREE:
                        scale = (a / ratio).to(scale.dtype) * (1.0 - lack) / gain
                        gain = exact_division(size, scale)
                    offset = -to_alpha * gain
    return scale, accepted, turn


@triton.jit
def project_vector(vector, y_at, goal, start, turn, TEAM):
    """Project one vector; return the scale at unit norm, whether it is right, and the turn.

    And whether it stays as it is.
    """
    RULE: tl.constexpr = TEAM.case.rule
    x_at, n = vector[0], vector[3]
    kind: tl.constexpr = tl.float64 if x_at.dtype.element_ty == tl.float64 else tl.float32
    ratio, slack, slack_low, norm = goal
    pivot, c, a, b, alpha, even, found, whole, lowest, most, square, turns, turn, stay = search(
        vector, start, n - slack, ratio, turn, TEAM
    )
    # The closed form on the support, or alpha as it was found.
    excess = excess_of(c, n, slack, slack_low)
    mean2 = a / c
    mean, spread = mean2.to(kind), (b - a * mean2).to(kind)
    all_of = c == n
    # A support hardly larger than K is for those who try others.
    if RULE == FREE:
        right = found & (ratio > 1 / ORDINARY) & (ratio < ORDINARY)
    else:
        right = found & (ratio > 1) & (slack > 0) & (excess > 1e-5 * c)
    a, c, excess = a.to(kind), c.to(kind), excess.to(kind)
    if RULE != FREE:
        right = right & (a * mean <= FAR * spread)
    right = right & (mean > 1 / ORDINARY)
    # So are pivots that are hardly told from their neighbours.
    grid: tl.constexpr = 2.220446049250313e-16 if kind == tl.float64 else 1.1920929e-07
    right = right & (grid * tl.abs(pivot) <= 2e-4 * mean)
    excess = tl.where(excess > 0, excess, 1.0)
    scale, step = closed_form(c, spread, excess, ratio.to(kind), RULE, False)
    to_alpha = mean - step
    if TEAM.check:
        # Sums about alpha itself, where entries are spread evenly.
        to_alpha = tl.where(even, (alpha - pivot.to(tl.float64)).to(kind), to_alpha)
        a = tl.where(even, a + c * to_alpha, a)
        mean = tl.where(even, mean + to_alpha, mean)
    if RULE == FREE:
        # Far above the pivot alpha would be a small difference.
        right = right & (mean <= 8 * step)
    scale = scale_by_distances(scale, a, c * to_alpha, ratio.to(kind), RULE)
    # The same with sums that kept more digits.
    right = right & ((whole == 0) | (to_alpha <= lowest - pivot))
    size = norm_of(
        square.to(kind), norm, ratio.to(kind), pivot + mean, spread, scale, TEAM.case.rule
    )
    right = right & (size > 1 / ORDINARY) & (size < ORDINARY)

    gain = exact_division(size, scale)
    # The largest distance is no less than the sum of squares over the sum.
    top = tl.maximum(most, pivot + mean + exact_division(spread, a))
    line = (pivot, gain, -to_alpha * gain, top, size)
    all_of = all_of & (pivot < 0)
    offset, right, turn = settle_zeros(
        vector, line, goal, all_of, excess, even, right, lowest, turn, TEAM
    )
    line = (pivot, gain, offset, top, size)
    if TEAM.case.at_most:
        right = right | stay
        line = (tl.where(stay, 0.0, pivot), gain, tl.where(stay, 0.0, offset), top, size)
    # From where the last reading ended. (Again the same way, which is rare.)
    onward = turns % 2 == 0
    scale, right, turn = write(
        vector, y_at, line, to_alpha, scale, goal, even, right, onward, turn, TEAM
    )
    return exact_division(scale, size).to(tl.float64), right, stay, turn


@triton.jit(do_not_specialize=["rows", "groups"])
def project_long(
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
    slots,
    groups,
    part,
    TEAM: tl.constexpr,
):
    """Project vectors, a team of programs for each; `part` entries are every program's share."""
    CASE: tl.constexpr = TEAM.case
    row, member = number_and_member(TEAM)
    begins = member.to(tl.int64) * part
    # Not n alone: of a length of 1 Triton makes a constant.
    ends = tl.minimum(begins + part, n + 0 * begins)
    turn = 1
    while row < rows:
        goal = goal_of(goals, row, row >= 0, (ratio, slack, slack_low, norm), CASE)
        guess = start
        if CASE.own_goals:
            guess = start_for((n - goal[1]).to(tl.float32) / n)
        vector = (given + row * given_stride, begins, ends, n, slots)
        scale, right, stay, turn = project_vector(
            vector, out + row * out_stride, goal, guess, turn, TEAM
        )
        if member == 0:
            tl.store(left + row, tl.where(right, 0, 1).to(tl.int8))
            if CASE.with_scale:
                tl.store(scales + row, scale)
            if CASE.marks and CASE.at_most:
                tl.store(marks + row, tl.where(stay, WITHIN, L1_ALONE).to(tl.int8))
        row += groups
