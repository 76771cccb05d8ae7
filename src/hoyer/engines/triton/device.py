"""What all kernels share: constants of a call, the target of a vector, and sums over tiles.

A tile has three axes, (R, J, I): R vectors, each cut into J pieces of I entries. Triton gives the
last axis to neighbouring threads, then the vectors, and keeps the middle one in registers: so it is
the table's choice how many threads work on a vector (I over the entries of a 16-byte load), and
sums over J cost no communication.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

FIXED, KEEP, NEAREST = (tl.constexpr(i) for i in range(3))
"""Where the norm of a result comes from."""

TO_L2, TO_L1 = tl.constexpr(1), tl.constexpr(2)
"""How vectors that kept their direction are marked."""

INFINITY = tl.constexpr(float("inf"))

ORDINARY = tl.constexpr(1e12)
"""Beyond this, or its inverse, a vector is not for fast arithmetic."""


@dataclass(frozen=True)
class Case:
    """What all vectors of a call share; a constant of the kernels, which are compiled for each."""

    by_norms: float
    by_entries: float
    """The two fields of `search.Noise`."""
    signed: bool
    """Whether entries may be negative, so that magnitudes are projected."""
    rule: int
    """FIXED, KEEP or NEAREST."""
    l1_given: bool
    only_increase: bool
    own_goals: bool
    """Whether every vector has a target of its own."""
    with_scale: bool
    """Whether derivatives will be asked for."""


@triton.jit
def as_double(bits):
    """Return the double with these bits: kernels take numbers as float32, or as integers."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def goal_of(goals, row, there, bits, CASE: tl.constexpr):
    """Return l1/l2, n - K in two parts, and l2: of every vector its own, or the same for all."""
    if CASE.own_goals:
        at = goals + row * 4
        ratio = tl.load(at, mask=there, other=1.0)
        room = tl.load(at + 1, mask=there, other=0.0)
        low = tl.load(at + 2, mask=there, other=0.0)
        norm = tl.load(at + 3, mask=there, other=1.0)
    else:
        zero = (row * 0).to(tl.float64)
        ratio, room = as_double(bits[0]) + zero, as_double(bits[1]) + zero
        low, norm = as_double(bits[2]) + zero, as_double(bits[3]) + zero
    return ratio, room, low, norm


@triton.jit
def filled(value, WIDTH: tl.constexpr, KIND: tl.constexpr):
    """Return a number as often as that."""
    return tl.full((WIDTH,), value, KIND)


@triton.jit
def wide_length(n, number):
    """Return a length in the type of `number`: of a length of 1 Triton makes a constant."""
    return n + 0 * number


@triton.jit
def start_for(share):
    """Return roughly the start of `start.normal_start`, for targets that no host looks at."""
    u = tl.sqrt(-2.0 * tl.log(tl.minimum(tl.maximum(share, 1e-9), 0.97)))
    c = 0.01928285 * u - 0.34809784
    c = c * u + 2.33051085
    c = c * u - 7.09082008
    c = c * u + 11.35648471
    return c * u - 7.32938989


# `tl.maximum` takes five times the instructions of a comparison and a selection in float64.
@triton.jit
def maximum_of(a, b):
    """Return the larger one; NaN may get lost."""
    if a.dtype == tl.float64:
        result = tl.where(a > b, a, b)
    else:
        result = tl.maximum(a, b)
    return result


@triton.jit
def positive(a):
    """Return a where it is positive, zero elsewhere."""
    if a.dtype == tl.float64:
        result = tl.where(a > 0, a, 0.0)
    else:
        result = tl.maximum(a, 0.0)
    return result


@triton.jit
def positive_or_nan(a):
    """Return a where it is positive or not a number, zero elsewhere."""
    if a.dtype == tl.float64:
        result = tl.where(a <= 0, 0.0, a)
    else:
        result = tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return result


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


# ---- sums over the vectors of a tile ----


@triton.jit
def _join_sums(c0, a0, b0, c1, a1, b1):
    return c0 + c1, a0 + a1, b0 + b1


@triton.jit
def add_up(c, a, b, AXIS: tl.constexpr):
    """Add up three tensors along an axis."""
    return tl.reduce((c, a, b), AXIS, _join_sums)


@triton.jit
def sums_over(c, a, b):
    """Add up three tiles over each vector."""
    c, a, b = add_up(c, a, b, 1)
    return add_up(c, a, b, 1)


@triton.jit
def _join_pairs(a0, b0, a1, b1):
    return a0 + a1, b0 + b1


@triton.jit
def pairs_over(a, b):
    """Add up two tiles over each vector."""
    a, b = tl.reduce((a, b), 1, _join_pairs)
    return tl.reduce((a, b), 1, _join_pairs)


@triton.jit
def _join_peaks(a0, b0, h0, a1, b1, h1):
    return a0 + a1, b0 + b1, maximum_of(h0, h1)


@triton.jit
def peaks_over(a, b, high):
    """Add up two tiles, and take the largest of another."""
    a, b, high = tl.reduce((a, b, high), 1, _join_peaks)
    return tl.reduce((a, b, high), 1, _join_peaks)


@triton.jit
def _join_survey(a0, b0, h0, l0, a1, b1, h1, l1):
    return a0 + a1, b0 + b1, tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def survey_over(a, b, high, low):
    """Add up two tiles, and take the largest and the smallest of two others."""
    a, b, high, low = tl.reduce((a, b, high, low), 1, _join_survey)
    return tl.reduce((a, b, high, low), 1, _join_survey)


@triton.jit
def count_over(tile):
    """Return how often a tile is true, over each vector."""
    return tl.sum(tl.sum(tl.where(tile, 1.0, 0.0), 1), 1)


@triton.jit
def spread_out(numbers):
    """Give numbers per vector the axes of a tile."""
    return numbers[:, None, None]
