"""From the sums over a support to the result: the one place that knows the set.

Everything here is about {|x|_1 = ratio l2, |x|_2 = l2} alone. K = ratio^2, and n - K travels as
two numbers, `room` and `room_low`, since K may be a rounding error away from a count.
"""

import triton
import triton.language as tl

from .device import FIXED, KEEP, exact_division, exact_root, positive, with_sign


@triton.jit
def excess_of(count, n, room, room_low):
    """Return count - K with twice the digits of K."""
    return ((count.to(tl.float64) - n) + room) + room_low


@triton.jit
def closed_form(count, spread, excess, ratio, EXTREME: tl.constexpr):
    """Return the scale beta, and how far alpha lies from the mean of the support.

    From the number of its entries, the sum of squares about their mean, and count - K > 0. With
    EXTREME by two roots, as their quotient may be huge.
    """
    if EXTREME:
        scale = tl.sqrt(spread * count) / tl.sqrt(excess)
        step = scale * (ratio / count)
    else:
        scale = exact_root(exact_division(spread * count, excess))
        step = exact_division(scale * ratio, count)
    return scale, step


@triton.jit
def scale_by_distances(scale, a, step, ratio):
    """Return the scale from the sum of distances from alpha, unless the pivot is far from it.

    `a` is the sum of those from the pivot, `step` what they all lose. The sum has no more error
    than alpha itself, so that both norms hold; but it must not be a small difference.
    """
    rest = a - step
    return tl.where(tl.abs(step) <= rest, exact_division(rest, ratio), scale)


@triton.jit
def norm_of(squares, norm, ratio, centre, spread, scale, RULE: tl.constexpr):
    """Return the norm of a result in the arithmetic of the data.

    `squares` is the squared norm of x, `norm` the one that was asked for, `centre` the mean of the
    support. The nearest of all norms is that of the point in the cone which is nearest to x.
    """
    if RULE == KEEP:
        size = exact_root(squares)
    elif RULE == FIXED:
        size = norm.to(scale.dtype)
    else:
        size = ratio * centre + exact_division(spread, scale)
    return size


@triton.jit
def zeros_limit(ratio, room, n, top, CASE: tl.constexpr):
    """Return what zeros of a whole support may receive at most, at unit norm, to stay zero.

    `top` is the largest entry of the result, the constants are those of `search.Noise`; the rule is
    that of `engines.arrays.search`.
    """
    by_norms = CASE.by_norms * (ratio / room)
    return tl.minimum(by_norms, CASE.by_entries * (ratio / n + top))


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
def zeros_stay(l1, square, ratio, room, n, top, CASE: tl.constexpr):
    """Whether zeros of a vector stay zero, from its norms in float64: `top` is as in `zeros_limit`.

    What they would receive over all n entries, from norms of ratio r instead of rho and K:
    (rho - r sqrt((n - K)/(n - r^2)))/n.
    """
    own = l1 / tl.sqrt(square)
    rest = room + (ratio - own) * (ratio + own)
    received = (ratio - own * tl.sqrt(room / rest)) / n
    limit = zeros_limit(ratio, room, n, top.to(tl.float64), CASE)
    # Close to sparseness 0 these norms do not tell.
    return (rest > 1e-3 * n) & (received <= limit)


@triton.jit
def offset_without_zeros(at_pivot):
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
