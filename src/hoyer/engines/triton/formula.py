"""From the sums over a support to the result: the one place that knows the set.

Two sets, told apart by the rule: {|x|_1 = ratio l2, |x|_2 = l2}, and with FREE {|x|_1 = ratio}.
K = ratio^2, and n - K travels as two numbers, `slack` and `slack_low`, since K may be a rounding
error away from a count. Where l1 alone is given K is 0 and the scale is 1: any count will do, ties
are nothing special, and where an entry near alpha is counted makes no difference.
"""

import triton
import triton.language as tl

from .device import (
    FIXED,
    FREE,
    KEEP,
    exact_division,
    exact_root,
    positive,
    start_by_l1,
    with_sign,
)


@triton.jit
def excess_of(count, n, slack, slack_low):
    """Return count - K with twice the digits of K."""
    return ((count.to(tl.float64) - n) + slack) + slack_low


@triton.jit
def closed_form(count, spread, excess, ratio, RULE, EXTREME):
    """Return the scale beta, and how far alpha lies from the mean of the support.

    From the number of its entries, the sum of squares about their mean, and count - K > 0. With
    EXTREME by two roots, as their quotient may be huge.
    """
    if RULE == FREE:
        scale = 1.0 + 0.0 * ratio
        step = exact_division(ratio, count)
    elif EXTREME:
        scale = tl.sqrt(spread * count) / tl.sqrt(excess)
        step = scale * (ratio / count)
    else:
        scale = exact_root(exact_division(spread * count, excess))
        step = exact_division(scale * ratio, count)
    return scale, step


@triton.jit
def newton_step(t, spread, count, k):
    """Return Newton's step for l1^2/l2^2 - K, from a pivot t below the mean of the support."""
    b = spread / count + t * t
    return (t * t * count - k * b) * b / (2 * t * count * (b - t * t))


@triton.jit
def rough_steps(a, square, inverse, excess, k, ratio, RULE):
    """Return the exact step and Newton's, in mean distances of the entries from the pivot.

    `a` is the sum of the distances, `square` their mean square in mean distances, `inverse` one
    over their number, `excess` their number less K. For l1 alone Newton's step is the exact one. In
    its place comes the step of a tail that has this mean and this mean square: for the generalized
    Pareto distribution the sum of distances falls like (1 - e z)^(1/e), e = 2/square - 1, which is
    1 for equal entries, 1/2 for uniform ones, 0 for an exponential tail.
    """
    if RULE == FREE:
        share = ratio / a
        exact = 1.0 - share
        e = (2.0 / square - 1.0).to(tl.float32)
        e = tl.where(tl.abs(e) < 1e-3, 1e-3, e)
        newton = ((1.0 - tl.exp2(e * tl.log2(share.to(tl.float32)))) / e).to(exact.dtype)
    else:
        variance = tl.maximum(square - 1.0, 0.0)
        # One root for both: sqrt(variance/excess), and 1/variance.
        root = tl.rsqrt(variance * tl.abs(excess))
        exact = 1.0 - ratio * (variance * root)
        newton = 0.5 * square * (1.0 - k * inverse * square) * (tl.abs(excess) * root * root)
    return exact, newton


@triton.jit
def trial_step(exact, newton, climbs, RULE):
    """Return the step to try, from these two, and whether alpha lies above."""
    if RULE == FREE:
        step = newton
    else:
        # From below Newton's step tends to overshoot.
        step = tl.where(climbs, tl.maximum(exact, 0.3 * exact + 0.7 * newton), newton)
    return step


@triton.jit
def share_of_goal(count, a, k, ratio, RULE):
    """Return the goal as a share of the sums over a support, for `newton_on_sums`."""
    return ratio / a if RULE == FREE else k / count


@triton.jit
def newton_on_sums(count, a, b, goal, RULE):
    """Return Newton's step from sums of distances `a` and squares `b`, negative upwards.

    All are shares of what they are at the pivot, the goal as in `share_of_goal`.
    """
    if RULE == FREE:
        step = (goal - a) / count
    else:
        step = (a * a - goal * b) / (2.0 * a * (goal - count))
    return step


@triton.jit
def exact_on_sums(count, a, b, k, ratio, RULE):
    """Return the exact step in mean distances from sums over a support, in double."""
    if RULE == FREE:
        step = 1.0 - ratio / a
    else:
        relative = count * b / (a * a)
        share = tl.maximum(relative - 1.0, 0.0) / tl.where(count > k, count - k, 1.0)
        step = 1.0 - ratio * tl.sqrt(share)
    return step


@triton.jit
def guesses(deviation, top, extent, n, slack, ratio, start, CASE):
    """Return three guesses of alpha, measured from the mean of n entries.

    As if they were normal (or their magnitudes half-normal); as if the upper tail were uniform; and
    what the closed form over all of them says, a lower bound.
    """
    if CASE.rule == FREE:
        mean = ratio / n
        normal = start_by_l1(mean / deviation, CASE.signed) * deviation
        uniform = top - tl.sqrt(2.0 * extent * mean)
        whole = -mean
    else:
        normal = start * deviation
        uniform = top * (1.0 - tl.minimum(1.0, 2.6666667 * (1.0 - slack / n)))
        whole = -ratio * deviation * tl.sqrt(1.0 / slack)
    return normal, uniform, whole


@triton.jit
def tied_entries(ties, n, goal):
    """Return the first of tied entries at unit norm, and the others."""
    ratio, slack, slack_low, _ = goal
    excess = excess_of(ties, n, slack, slack_low)
    single = excess_of(1.0 + 0.0 * ties, n, slack, slack_low) == 0
    rest = tl.maximum(excess, 0.0) / ties
    equal = excess == 0
    first = ratio / ties + tl.sqrt((ties - 1) * rest / ties)
    other = ratio / ties - tl.sqrt(rest / tl.maximum(ties * (ties - 1), 1.0))
    other = tl.where(single & (equal == 0), 0.0, tl.maximum(other, 0.0))
    return tl.where(equal, ratio / ties, first), tl.where(equal, ratio / ties, other)


@triton.jit
def scale_by_distances(scale, a, step, ratio, RULE):
    """Return the scale from the sum of distances from alpha, unless the pivot is far from it.

    `a` is the sum of those from the pivot, `step` what they all lose. The sum has no more error
    than alpha itself, so that both norms hold; but it must not be a small difference.
    """
    if RULE != FREE:
        rest = a - step
        scale = tl.where(tl.abs(step) <= rest, exact_division(rest, ratio), scale)
    return scale


@triton.jit
def norm_of(squares, norm, ratio, centre, spread, scale, RULE):
    """Return the norm of a result in the arithmetic of the data.

    `squares` is the squared norm of x, `norm` the one that was asked for, `centre` the mean of the
    support. The nearest of all norms is that of the point in the cone which is nearest to x. Where
    any norm will do, results are written as they come.
    """
    if RULE == FREE:
        size = 1.0 + 0.0 * scale
    elif RULE == KEEP:
        size = exact_root(squares)
    elif RULE == FIXED:
        size = norm.to(scale.dtype)
    else:
        size = ratio * centre + exact_division(spread, scale)
    return size


@triton.jit
def zeros_limit(ratio, slack, n, top, CASE):
    """Return what zeros of a whole support may receive at most, at unit norm, to stay zero.

    `top` is the largest entry of the result, the constants are those of `noise_of` in
    `engines.arrays.closed_form`, and so is the rule.
    """
    if CASE.rule == FREE:
        # What all of them receive is what the norm lacks.
        limit = CASE.by_norms * (ratio / n)
    else:
        by_norms = CASE.by_norms * (ratio / slack)
        limit = tl.minimum(by_norms, CASE.by_entries * (ratio / n + top))
    return limit


@triton.jit
def at_zeros(line, goal, n, excess, CASE):
    """Return whether zeros lie at alpha but for rounding, and whether they are in doubt.

    `line` is what the result follows from: pivot, gain, offset, the largest entry and the norm;
    `excess` is d - K: fewer entries than all give zeros more, by (n - K)/(d - K).
    """
    pivot, gain, offset, top, size = line
    eps: tl.constexpr = 2.220446049250313e-16 if offset.dtype == tl.float64 else 1.1920929e-07
    ratio, slack = goal[0].to(tl.float32), goal[1].to(tl.float32)
    limit = zeros_limit(ratio, slack, n, (top * gain / size).to(tl.float32), CASE) * size
    received = offset - pivot * gain
    noise = 8 * eps * (tl.abs(offset) + tl.abs(pivot * gain) + tl.abs(top * gain))
    beside = tl.abs(received) <= noise
    share = excess / goal[1].to(offset.dtype)
    return beside, beside | ((received > 0) & (received * share <= 1.01 * limit))


@triton.jit
def zeros_stay(l1, square, line, goal, n, CASE):
    """Return whether zeros of a vector stay zero, from its norms in float64, and an offset.

    What they would receive over all n entries, from norms of ratio r instead of rho and K:
    (rho - r sqrt((n - K)/(n - r^2)))/n. With that offset they stay zero, whatever rounding does.
    """
    pivot, gain, offset, top, size = line
    ratio, slack, _, _ = goal
    eps: tl.constexpr = 2.220446049250313e-16 if offset.dtype == tl.float64 else 1.1920929e-07
    # Here, not further down: Triton 3.6 then takes 39 registers more for rows of 512 halves.
    largest = (offset - pivot * gain + top * gain) / size
    own = l1 / tl.sqrt(square)
    rest = slack + (ratio - own) * (ratio + own)
    received = (ratio - own * tl.sqrt(slack / rest)) / n
    limit = zeros_limit(ratio, slack, n, largest.to(tl.float64), CASE)
    # Close to sparseness 0 these norms do not tell.
    stay = (rest > 1e-3 * n) & (received <= limit)
    return stay, pivot * gain - 2 * eps * tl.abs(pivot * gain)


@triton.jit
def result_of(w, v, line, SIGNED, TYPE):
    """Return the entries of a result: (w - pivot) gain + offset where that is positive."""
    pivot, gain, offset = line
    p = positive((w - pivot) * gain + offset)
    if SIGNED:
        p = with_sign(p, v)
        # A zero has no sign; in float16 neither has what rounds to zero.
        if TYPE == tl.float16:
            p = p.to(TYPE) + tl.full((), 0.0, TYPE)
        else:
            p = p + 0.0
    return p.to(TYPE)
