"""Targets that are tensors, resolved for every vector in one launch, as `hoyer.target` does it.

That is for a sparseness, alone or with a norm, and for l1 alone. Pairs of norms are resolved by
plain operations: rarely does anybody learn them.
"""

import triton
import triton.language as tl

BLOCK = tl.constexpr(256)
"""Vectors per program."""

COLUMNS = tl.constexpr(4)
"""Numbers of a target: see `goal_of`."""

# Double-double arithmetic. Launches say enable_fp_fusion=False: fused operations would spoil it.


@triton.jit
def two_sum(a, b):
    """Return a + b, rounded, and what is lost by it."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@triton.jit
def two_product(a, b):
    """Return a b, rounded, and what is lost by it."""
    product = a * b
    # The upper halves of their digits.
    a1, b1 = a * 134217729.0, b * 134217729.0
    a1, b1 = a1 - (a1 - a), b1 - (b1 - b)
    a2, b2 = a - a1, b - b1
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


@triton.jit
def pair_sum(a, a_low, b, b_low):
    """Return the sum of two pairs as a pair."""
    high, low = two_sum(a, b)
    return two_sum(high, low + (a_low + b_low))


@triton.jit
def pair_product(a, a_low, b, b_low):
    """Return the product of two pairs as a pair."""
    high, low = two_product(a, b)
    return two_sum(high, low + (a * b_low + a_low * b))


@triton.jit
def number_of(given, number, stride, row, there):
    """Return a tensor's number for each vector, or the same number for all."""
    if given is None:
        found = number + (row * 0).to(tl.float64)
    else:
        found = tl.load(given + row * stride, mask=there, other=1.0).to(tl.float64)
    return found


@triton.jit
def norm_or_nan(value, AT_MOST):
    """Return a norm, or an upper bound of one, and NaN for what cannot be one."""
    if AT_MOST:
        least = value >= 0
    else:
        least = value > 0
    return tl.where(least & (value < float("inf")), value, float("nan"))


@triton.jit
def resolve_targets(
    goals,
    sparseness,
    norm,
    sparseness_number: tl.float64,
    norm_number: tl.float64,
    sparseness_stride,
    norm_stride,
    rows,
    n: tl.float64,
    root: tl.float64,
    root_low: tl.float64,
    tolerance: tl.float64,
    BY_SPARSENESS: tl.constexpr,
    BY_L1: tl.constexpr,
    AT_MOST: tl.constexpr,
):
    """Write the goal of each vector.

    The norm is l1 (BY_L1) or l2. `root` is the square root of n in two parts. A sparseness outside
    [0, 1] by at most `tolerance` is clamped.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = row < rows
    size = norm_or_nan(number_of(norm, norm_number, norm_stride, row, there), AT_MOST)
    zero = (row * 0).to(tl.float64)
    if BY_SPARSENESS:
        sigma = number_of(sparseness, sparseness_number, sparseness_stride, row, there)
        good = (sigma >= -tolerance) & (sigma <= 1 + tolerance)
        sigma = tl.where(sigma < 0, 0.0, tl.where(sigma > 1, 1.0, sigma))
        sigma = tl.where(good, sigma, float("nan"))
        step, step_low = pair_sum(root + zero, root_low + zero, zero - 1.0, zero)
        rest, rest_low = two_sum(zero + 1.0, -sigma)
        ratio, ratio_low = pair_product(rest, rest_low, step, step_low)
        ratio, ratio_low = pair_sum(zero + 1.0, zero, ratio, ratio_low)
        slack, slack_low = pair_product(sigma, zero, step, step_low)
        both, both_low = pair_sum(root + zero, root_low + zero, ratio, ratio_low)
        slack, slack_low = pair_product(slack, slack_low, both, both_low)
        last = sigma == 1
        ratio = tl.where(last, 1.0, ratio)
        slack = tl.where(last, n - 1.0, slack)
        slack_low = tl.where(last, 0.0, slack_low)
        if BY_L1:
            size = size / ratio
    else:
        ratio, slack, slack_low, size = size, zero + n, zero, zero + 1.0
    numbers = (ratio, slack, slack_low, size)
    for i in tl.static_range(4):
        tl.store(goals + row * COLUMNS + i, numbers[i], mask=there)
