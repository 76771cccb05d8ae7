"""Rows beyond the registers of one program, and one huge vector: several programs for each.

All programs of a group solve the same small sample of the vector, each for itself; then, together,
a quarter of the vector once (if it is huge), and the whole of it until the exact step is short
enough (see `rows`), mostly once or twice. They meet after every reading; rows up to a few million
entries stay in the cache meanwhile. The last reading writes. Whatever is not ordinary is left,
marked, to `careful`.
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
    share,
    start_for,
    survey_over,
)
from .rows import begin, evaluate, larger, rough_step

ROUNDS = tl.constexpr(12)
LINE = tl.constexpr(32)
"""Neighbouring entries that a sample takes together."""

NEAR = tl.constexpr(1.5e-3)
"""As in `rows`, and less strict: half the square is some eps of l1/d, the mean of a result."""

NEAR_IN_DOUBLE = tl.constexpr(1.5e-8)

SKIP = tl.constexpr(4)
"""Of so many blocks one takes part in the first reading."""


@triton.jit
def magnitudes(x, SIGNED: tl.constexpr):
    """Return entries in the arithmetic of the search, and their sizes."""
    v = x if x.dtype == tl.float64 else x.to(tl.float32)
    return v, tl.abs(v) if SIGNED else v


@triton.jit
def largest_piece(tile):
    """Return the largest entries over the pieces, NaN where there is one."""
    return tl.reduce(tile, 1, larger)


@triton.jit
def sampled(x_at, n, k, start, SIGNED: tl.constexpr, J: tl.constexpr, I: tl.constexpr):  # noqa: E741
    """Solve a sample of J I entries, lines from all over the vector; return alpha and the ends."""
    size: tl.constexpr = J * I
    number = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    stride = (n - LINE) // (size // LINE - 1)
    x = tl.load(x_at + (number // LINE).to(tl.int64) * stride + number % LINE)
    signed, w = magnitudes(x, SIGNED)
    a, b, high, low = survey_over(w, w * w, w, w)
    few = tl.maximum(k * size / n, 1.0).to(tl.float32)
    ratio = tl.sqrt(few)
    pivot = begin(a, b, high, low, size + 0.0 * a, ratio.to(a.dtype), few.to(a.dtype), start)
    below, above = low - (high - low), high
    turn = 0
    going = True
    while (turn < ROUNDS) & going:
        c, a, b = evaluate(w, pivot)
        pivot, below, above, near, length = rough_step(
            pivot, below, above, c, a, b, few, ratio, tl.float32
        )
        going = tl.max((near == 0).to(tl.int32), 0) > 0
        turn += 1
    return pivot, high, low


@triton.jit(
    do_not_specialize=["rows", "groups", "ratio_bits", "room_bits", "low_bits", "norm_bits"],
)
def project_long(
    given,
    out,
    left,
    scales,
    norms,
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
    SIGNED: tl.constexpr,
    RULE: tl.constexpr,
    WITH_SCALE: tl.constexpr,
    WITH_NORMS: tl.constexpr,
    J: tl.constexpr,
    I: tl.constexpr,  # noqa: E741
    SAMPLE: tl.constexpr,
    G: tl.constexpr,
    W: tl.constexpr,
):
    """Project vectors, G programs for each; `part` entries are every program's share."""
    group = tl.program_id(0) // G
    member = tl.program_id(0) % G
    counter = counters + group
    here = rooms + group * (2 * W * 8)
    width: tl.constexpr = J * I
    place = tl.arange(0, J)[None, :, None] * I + tl.arange(0, I)[None, None, :]
    begins = member.to(tl.int64) * part
    ends = tl.minimum(begins + part, n.to(tl.int64))
    turn = 1
    row = group.to(tl.int64)
    while row < rows:
        x_at = given + row * given_stride
        ratio, room, room_low, norm = goal_of(
            goals, goals_stride, row, row >= 0, ratio_bits, room_bits, low_bits, norm_bits
        )
        k = n - room
        guess = start
        if goals_stride != 0:
            guess = start_for((k / n).to(tl.float32))
        pivot, high, low = sampled(x_at, n, k, guess, SIGNED, SAMPLE, I)
        kind: tl.constexpr = pivot.dtype
        extent = (high - low).to(tl.float64)

        # ---- the search, together; invariant, up to rounding: below <= alpha < above ----
        below, above = low.to(tl.float64) - extent, high.to(tl.float64) + extent
        none = 0.0 * below
        c, a, b = none - 1.0, none, none
        mean = none
        exact, sure = none > 1, none > 1
        highest, lowest, square = tl.max(high, 0), tl.min(low, 0), tl.sum(none, 0)
        skip = tl.where(part >= 16 * SKIP * width, SKIP, 1)
        turns = 0
        going = True
        while going:
            # One number per thread and column: with more of them registers run out.
            count_t = tl.zeros((1, I), kind)
            sum_t, squares_t, own_t = count_t, count_t, count_t
            high_t = tl.full((1, I), -INFINITY, kind)
            low_t = tl.full((1, I), INFINITY, kind)
            seen_here = ends * 0
            block = begins
            while block < ends:
                there = place < (ends - block).to(tl.int32)
                v, w = magnitudes(tl.load(x_at + block + place, mask=there, other=0.0), SIGNED)
                upper = tl.where(there, w, -INFINITY)
                high_t = larger(high_t, largest_piece(upper))
                low_t = tl.minimum(low_t, tl.min(tl.where(there, w, INFINITY), 1))
                if RULE == KEEP:
                    own_t += tl.sum(v * v, 1)
                t = tl.maximum(upper - pivot[:, None, None], 0.0)
                c1, a1, b1 = add_up((t > 0).to(kind), t, t * t)
                count_t += c1
                sum_t += a1
                squares_t += b1
                seen_here += tl.minimum(ends - block, width)
                block += skip * width
            c1 = tl.sum(count_t.to(tl.float64), 1)
            a1 = tl.sum(sum_t.to(tl.float64), 1)
            b1 = tl.sum(squares_t.to(tl.float64), 1)
            seen = none + seen_here.to(tl.float64)
            square = tl.sum(tl.sum(own_t.to(tl.float64), 1), 0)
            highest = tl.max(tl.reduce(high_t, 1, larger), 0)
            lowest = tl.min(tl.min(low_t, 1), 0)
            if G > 1:
                there_room = here + (turn % 2) * (W * 8)
                share(tl.sum(c1, 0), 0, there_room, member)
                share(tl.sum(a1, 0), 1, there_room, member)
                share(tl.sum(b1, 0), 2, there_room, member)
                share(tl.sum(seen, 0), 3, there_room, member)
                share(highest, 4, there_room, member)
                share(lowest, 5, there_room, member)
                share(square, 6, there_room, member)
                meet(counter, turn, G)
                turn += 1
                c1 = none + tl.sum(gathered(0, there_room, G, W, 0.0), 0)
                a1 = none + tl.sum(gathered(1, there_room, G, W, 0.0), 0)
                b1 = none + tl.sum(gathered(2, there_room, G, W, 0.0), 0)
                seen = none + tl.sum(gathered(3, there_room, G, W, 0.0), 0)
                highs = gathered(4, there_room, G, W, -INFINITY)
                # A NaN among them must not vanish.
                lost = tl.sum(tl.where(highs == highs, 0.0, highs), 0)
                highest = (tl.max(highs, 0) + lost).to(kind)
                lowest = tl.min(gathered(5, there_room, G, W, INFINITY), 0).to(kind)
                square = tl.sum(gathered(6, there_room, G, W, 0.0), 0)
            part_seen = seen / n
            following, below, above, near, length = rough_step(
                pivot.to(tl.float64),
                below,
                above,
                c1,
                a1,
                b1,
                k * part_seen,
                ratio * tl.sqrt(part_seen),
                tl.float64,
            )
            close = length < (NEAR_IN_DOUBLE if kind == tl.float64 else NEAR)
            whole = skip == 1
            if whole:
                sure = close | (exact & (c1 == c))
            else:
                # A quarter says where to look, and nothing for certain.
                below, above = low.to(tl.float64) - extent, high.to(tl.float64) + extent
            c, a, b = c1, a1, b1
            exact = near
            turns += 1
            done = tl.max(sure.to(tl.int32), 0) > 0
            ordinary = (highest < ORDINARY) & (highest > -ORDINARY) & (lowest > -ORDINARY)
            going = (done == 0) & (turns < ROUNDS) & ordinary
            skip = skip * 0 + 1
            pivot = tl.where(going, following.to(kind), pivot)

        # ---- the closed form on the support (fact 2) ----
        excess = excess_of(c, n, room, room_low)
        mean = a / c
        spread = b - a * mean
        allowed = tl.where((ratio > 1) & (room > 0), 1.0, -1.0) * excess > 0
        right = sure & allowed & (a * mean <= 64 * spread) & (mean > 1 / ORDINARY)
        scale = tl.sqrt(spread * c / tl.where(excess > 0, excess, 1.0))
        to_alpha = mean - scale * ratio / c
        # All entries: zeros may have to stay out.
        bare = tl.where(lowest != 0, 1.0, -1.0) + none
        right = right & ((c < n) | (bare > 0))
        scale = (a - c * to_alpha) / ratio
        if RULE == KEEP:
            size = tl.sqrt(square) + none
        elif RULE == FIXED:
            size = norm + none
        else:
            size = ratio * (pivot.to(tl.float64) + mean) + spread / scale
        right = right & (size > 1 / ORDINARY) & (size < ORDINARY)

        # ---- the pass that writes ----
        accepted = tl.max(right.to(tl.int32), 0) > 0
        gain = (size / scale).to(kind)
        offset = (-to_alpha * size / scale).to(kind)
        y_at = out + row * out_stride
        tiny: tl.constexpr = 2.9802322387695312e-08 if out.dtype.element_ty == tl.float16 else 0.0
        if accepted:
            # From the end: what was read last is in the cache still.
            block = begins + (ends - begins - 1) // width * width
            while block >= begins:
                there = place < (ends - block).to(tl.int32)
                v, w = magnitudes(tl.load(x_at + block + place, mask=there, other=0.0), SIGNED)
                p = (w - pivot[:, None, None]) * gain[:, None, None] + offset[:, None, None]
                p = tl.where(p > tiny, p, 0.0)
                if SIGNED:
                    p = tl.where(v < 0, 0.0 - p, p)
                tl.store(y_at + block + place, p.to(out.dtype.element_ty), mask=there)
                block -= width
        if member == 0:
            tl.store(left + row, tl.where(accepted, 0, 1).to(tl.int8))
            if WITH_SCALE:
                tl.store(scales + row, tl.sum(scale / size, 0))
            if WITH_NORMS:
                tl.store(norms + row * 2, tl.sum(ratio * size, 0))
                tl.store(norms + row * 2 + 1, tl.sum(size, 0))
        row += groups
