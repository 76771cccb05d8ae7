"""What all kernels share: constants of a call, the target of a vector, and sums over tiles.

A tile has three axes, (R, J, I): R vectors, each cut into J pieces of I entries. Triton gives the
last axis to neighbouring threads, then the vectors, and keeps the middle one in registers: so it is
the table's choice how many threads work on a vector (I over the entries of a 16-byte load), and
sums over J cost no communication.

Arguments in capitals are constants: kernels are compiled for each of their values.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from ...options import RULES
from ...projection import Active

FIXED, KEEP, NEAREST, FREE = (
    tl.constexpr(RULES[name]) for name in ("fixed", "keep", "nearest", "free")
)
"""Where the L2 norm of a result comes from."""

BOTH, TO_L2, TO_L1, L1_ALONE, WITHIN = (
    tl.constexpr(code)
    for code in (Active.BOTH, Active.L2, Active.L1_DIRECTION, Active.L1, Active.NONE)
)
"""How vectors are marked: both norms bind; brought to one of them, the direction kept; by l1 alone;
within all bounds."""

INFINITY = tl.constexpr(float("inf"))

ORDINARY = tl.constexpr(1e12)
"""Beyond this, or its inverse, a vector is not for fast arithmetic."""


@dataclass(frozen=True)
class Case:
    """What all vectors of a call share."""

    by_norms: float
    by_entries: float
    """The two fields of `search.Noise`."""
    signed: bool
    """Whether entries may be negative, so that magnitudes are projected."""
    rule: int
    """FIXED, KEEP, NEAREST or FREE."""
    l1_given: bool
    only_increase: bool
    own_goals: bool
    """Whether every vector has a target of its own."""
    with_scale: bool
    """Whether derivatives will be asked for."""
    at_most: bool = False
    """Whether vectors within the L1 norm stay as they are; only with FREE."""
    masked: bool = False
    """Whether vectors have entries that do not count; then goals end with how many do."""
    scattered: int = 0
    """If not 0, vectors lie anywhere: in place of a stride there is a table of where they begin,
    counted in entries, all of which this divides."""

    @property
    def columns(self) -> int:
        """Numbers of a vector's own goal."""
        return 5 if self.masked else 4

    @property
    def marks(self) -> bool:
        """Whether vectors are marked for derivatives: where not all are of one kind."""
        return self.with_scale and (self.only_increase or self.at_most)


@triton.jit
def goal_of(goals, row, there, numbers, CASE):
    """Return l1/l2, n - K in two parts, and l2: of every vector its own, or the same for all."""
    found = ()
    for i in tl.static_range(4):
        if CASE.own_goals:
            found = found + (tl.load(goals + row * CASE.columns + i, mask=there, other=1.0),)
        else:
            found = found + (numbers[i] + (row * 0).to(tl.float64),)
    return found


@triton.jit
def place_of(row, stride, CASE):
    """Return where vectors begin."""
    if CASE.scattered == 0:
        place = row * stride
    else:
        place = tl.load(stride + row)
    if CASE.scattered == 16:
        # So that loads of 16 bytes are made of it.
        place = tl.multiple_of(place, 16)
    return place


@triton.jit
def length_of(goals, row, there, n, CASE):
    """Return how many entries of a vector count."""
    if CASE.masked:
        n = tl.load(goals + row * CASE.columns + 4, mask=there, other=0.0).to(tl.int32)
    return n


@triton.jit
def start_for(share):
    """Return roughly the start of `start.normal_start`, for targets that no host looks at."""
    u = tl.sqrt(-2.0 * tl.log(tl.minimum(tl.maximum(share, 1e-9), 0.97)))
    c = 0.01928285 * u - 0.34809784
    c = c * u + 2.33051085
    c = c * u - 7.09082008
    c = c * u + 11.35648471
    return c * u - 7.32938989


@triton.jit
def start_by_l1(share, SIGNED):
    """Return where E[max(z - c, 0)] = share, for z standard normal, or its magnitude standardized.

    Roughly: polynomials fitted down to a share of 1e-6.
    """
    small = tl.minimum(tl.maximum(share, 1e-7), 1.0)
    u = tl.sqrt(0.35 - tl.log(small))
    if SIGNED:
        c = 0.026457856 * u - 0.28784459
        c = c * u + 1.1583774
        c = c * u + 0.43901612
        c = c * u - 1.5894257
    else:
        c = 0.013874325 * u - 0.13451861
        c = c * u + 0.40910478
        c = c * u + 1.2748799
        c = c * u - 1.7818209
    # Nearly all entries lie above.
    return tl.where(share > 1.0, -share, c)


# `tl.maximum` takes five times the instructions of a comparison and a selection in float64.
@triton.jit
def maximum_of(a, b):
    """Return the larger one; NaN may get lost."""
    return tl.where(a > b, a, b) if a.dtype == tl.float64 else tl.maximum(a, b)


@triton.jit
def positive(a):
    """Return a where it is positive, zero elsewhere."""
    return tl.where(a > 0, a, 0.0) if a.dtype == tl.float64 else tl.maximum(a, 0.0)


@triton.jit
def positive_or_nan(a):
    """Return a where it is positive or not a number, zero elsewhere."""
    if a.dtype == tl.float64:
        result = tl.where(a <= 0, 0.0, a)
    else:
        result = tl.maximum(a, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return result


@triton.jit
def magnitudes(x, SIGNED):
    """Return entries in the arithmetic of the search, and their sizes."""
    v = x if x.dtype == tl.float64 else x.to(tl.float32)
    return v, tl.abs(v) if SIGNED else v


@triton.jit
def exact_division(a, b):
    """Return a/b, correctly rounded."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def exact_root(a):
    """Return the square root of a, correctly rounded."""
    return tl.sqrt_rn(a) if a.dtype == tl.float32 else tl.sqrt(a)


@triton.jit
def bits_of(v):
    """Return floats as integers; the smallest one is a negative zero."""
    return v.to(tl.int64 if v.dtype == tl.float64 else tl.int32, bitcast=True)


@triton.jit
def sign_of(v):
    """Return the signs of floats: all bits of the integers but the first are zero."""
    return bits_of(v) & (-(2**63) if v.dtype == tl.float64 else -(2**31))


@triton.jit
def with_sign(p, v):
    """Return p >= 0 with the sign of v, zeros too.

    By bits: a comparison of v would be made early, and its outcomes kept in registers.
    """
    return (bits_of(p) | sign_of(v)).to(p.dtype, bitcast=True)


# ---- sums: several numbers at a time, as every reduction waits for all warps ----


@triton.jit
def add2(a0, b0, a1, b1):  # noqa: D103
    return a0 + a1, b0 + b1


@triton.jit
def add3(a0, b0, c0, a1, b1, c1):  # noqa: D103
    return a0 + a1, b0 + b1, c0 + c1


@triton.jit
def add4(a0, b0, c0, d0, a1, b1, c1, d1):  # noqa: D103
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1


@triton.jit
def add5(a0, b0, c0, d0, e0, a1, b1, c1, d1, e1):  # noqa: D103
    return a0 + a1, b0 + b1, c0 + c1, d0 + d1, e0 + e1


@triton.jit
def join_extremes(h0, l0, h1, l1):  # noqa: D103
    return tl.maximum(h0, h1), tl.minimum(l0, l1)


@triton.jit
def _join_peaks(a0, b0, h0, a1, b1, h1):
    return a0 + a1, b0 + b1, maximum_of(h0, h1)


@triton.jit
def _join_survey(a0, b0, h0, l0, a1, b1, h1, l1):
    return a0 + a1, b0 + b1, tl.maximum(h0, h1), tl.minimum(l0, l1)


# ---- over the vectors of a tile ----


@triton.jit
def sums_over(c, a, b):
    """Add up three tiles over each vector."""
    return tl.reduce(tl.reduce((c, a, b), 1, add3), 1, add3)


@triton.jit
def pairs_over(a, b):
    """Add up two tiles over each vector."""
    return tl.reduce(tl.reduce((a, b), 1, add2), 1, add2)


@triton.jit
def peaks_over(a, b, high):
    """Add up two tiles, and take the largest of another."""
    return tl.reduce(tl.reduce((a, b, high), 1, _join_peaks), 1, _join_peaks)


@triton.jit
def survey_over(a, b, high, low):
    """Add up two tiles, and take the largest and the smallest of two others."""
    return tl.reduce(tl.reduce((a, b, high, low), 1, _join_survey), 1, _join_survey)


@triton.jit
def count_over(tile):
    """Return how often a tile is true, over each vector."""
    return tl.sum(tl.sum(tl.where(tile, 1.0, 0.0), 1), 1)


@triton.jit
def spread_out(numbers):
    """Give numbers per vector the axes of a tile."""
    return numbers[:, None, None]
