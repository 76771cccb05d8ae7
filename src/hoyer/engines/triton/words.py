"""Vectors as words: entries, or pairs of them in the half types, as integers.

What can be done to the bits of a pair is done to both at once: signs, and zeros where p has them.
Lengths and strides are given in loads, V words each, so that the compiler knows how words are
aligned; parts of long vectors in pieces. A piece has three axes, (T, R, V): threads, vectors, and
the words of a load of up to 16 bytes. Triton gives threads to the first two, so that sums over the
last and over pieces cost no communication. Pieces are kept apart, in tuples, and worked on one
after the other: the compiler would otherwise form all terms of a sum before it adds them up, and
run out of registers.
"""

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from .device import bits_of, sign_of

MAGNITUDES, SIGNS = tl.constexpr(0x7FFF7FFF), tl.constexpr(-0x7FFF8000)
"""The bits of a pair that tell magnitudes, and signs."""


@dataclass(frozen=True)
class Shape:
    """How vectors are cut; a constant of the kernels."""

    kind: Any
    """The type of the entries, as Triton names it."""
    pairs: bool
    """Whether words are pairs of halves."""
    skip: bool
    """Whether y is left out where the result is zero."""
    number: int
    """Pieces that are read at a time."""
    threads: int
    words: int
    """Words of a load."""
    rows: int = 1
    held: int = 0
    """Pieces of p that stay in registers."""
    hold_all: bool = False
    """Whether y and x stay there, too."""
    even: bool = False
    """Whether these pieces end where the vectors do."""
    stream: bool = False
    """Whether vectors are longer."""

    @property
    def work(self) -> Any:
        """The type to compute in."""
        return tl.float64 if self.kind == tl.float64 else tl.float32

    @property
    def full(self) -> bool:
        """Whether there is a vector all along the pieces that are held."""
        return self.even or self.stream

    @property
    def step(self) -> int:
        """Words of a piece."""
        return self.threads * self.words

    @property
    def at_once(self) -> int:
        """Pieces of y that are read at a time beside those of p that are held."""
        return self.held if self.hold_all else self.number

    @property
    def turns(self) -> int:
        """How often."""
        return self.held // self.at_once if self.held else 0


@triton.jit
def spread(numbers):
    """Give numbers per vector the axes of a piece."""
    return numbers[None, :, None]


@triton.jit
def in_words(vectors, row, strides, SHAPE):
    """Return where vectors begin, as pointers to words."""
    found = ()
    for i in tl.static_range(len(vectors)):
        at = vectors[i]
        if SHAPE.pairs:
            at = at.to(tl.pointer_type(tl.int32), bitcast=True)
        found = found + (at + row * strides[i] * SHAPE.words,)
    return found


@triton.jit
def floats_of(words, KIND):
    """Return the entries of words, in the type to compute in."""
    if words.dtype.is_int():
        if tl.bfloat16 == KIND:
            low = (words << 16).to(tl.float32, bitcast=True)
            high = (words & -0x10000).to(tl.float32, bitcast=True)
        else:
            low = words.to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
            high = (words >> 16).to(tl.int16).to(KIND, bitcast=True).to(tl.float32)
        result = (low, high)
    else:
        result = (words,)
    return result


@triton.jit
def words_of(floats, KIND, PAIRS):
    """Return words of entries; those of pairs are rounded to the type of the data."""
    if PAIRS:
        low = floats[0].to(KIND).to(tl.int16, bitcast=True).to(tl.int32)
        high = floats[1].to(KIND).to(tl.int16, bitcast=True).to(tl.int32)
        result = (low & 0xFFFF) | (high << 16)
    else:
        result = floats[0]
    return result


@triton.jit
def inside(p):
    """Mark entries that are not zero by ones, to be added up; of pairs in both halves of words."""
    if p.dtype.is_int():
        # Adding carries any bit of a magnitude up to the sign's.
        marks = (((p & MAGNITUDES) + MAGNITUDES) >> 15) & 0x10001
    else:
        marks = (p != 0).to(p.dtype)
    return marks


@triton.jit
def marks_in(sums, PAIRS):
    """Return how many marks were added up."""
    return (sums & 0xFFFF) + (sums >> 16) if PAIRS else sums


@triton.jit
def sizes(p):
    """Return the magnitudes, as words."""
    return p & MAGNITUDES if p.dtype.is_int() else tl.abs(p)


@triton.jit
def signed(y, p):
    """Return y with the sign changed where p is negative."""
    if p.dtype.is_int():
        result = y ^ (p & SIGNS)
    else:
        result = (bits_of(y) ^ sign_of(p)).to(p.dtype, bitcast=True)
    return result


@triton.jit
def turned(y, p):
    """Return y times the sign of p: zero where that is, whatever y is there."""
    return signed(y & (inside(p) * 0xFFFF) if p.dtype.is_int() else tl.where(p != 0, y, 0.0), p)


@triton.jit
def places(SHAPE):
    """Return where the words of a piece lie, neighbouring threads side by side."""
    thread = tl.arange(0, SHAPE.threads)[:, None, None]
    return thread * SHAPE.words + tl.arange(0, SHAPE.words)[None, None, :]


@triton.jit
def is_there(exists, place, n, EVEN):
    """Whether there are such words; with EVEN they end where the vectors do."""
    return spread(exists) if EVEN else spread(exists) & (place < n)


@triton.jit
def _either(a, b):
    return a | b


@triton.jit
def is_met(p):
    """Whether loads meet anything but zeros of p."""
    size = sizes(p)
    if size.dtype.is_int():
        some = tl.reduce(size, 2, _either) != 0
    else:
        # This sum is needed anyway.
        some = tl.sum(size, 2) != 0
    return some[:, :, None]


# ---- pieces: `vectors` are p, y and x, which of them exist, and where they end ----


@triton.jit
def pieces_of(at, place, vectors, ps, FIRST, NUMBER, SKIP, EVEN, HINT, SHAPE):
    """Return pieces of the vectors at a pointer, from `place` on, in the type to compute in.

    With SKIP without those loads that meet only zeros of `ps`, from FIRST on.
    """
    exists, n = vectors[3], vectors[4]
    ALL: tl.constexpr = EVEN and exists.shape[0] == 1
    found = ()
    for i in tl.static_range(NUMBER):
        # Added in this order, all pieces share a pointer, and are loaded one after the other.
        here = at + place + i * SHAPE.step
        there = is_there(exists, place + i * SHAPE.step, n, EVEN)
        if SKIP:
            some = is_met(ps[FIRST + i])
            if not ALL:
                some = some & there
            words = tl.load(here, mask=some, other=0, eviction_policy=HINT)
        elif ALL:
            words = tl.load(here, eviction_policy=HINT)
        else:
            words = tl.load(here, mask=there, other=0, eviction_policy=HINT)
        if words.dtype.is_floating() and words.dtype != tl.float64:
            words = words.to(tl.float32)
        found = found + (words,)
    return found


@triton.jit
def y_and_x(vectors, place, ps, FIRST, NUMBER, WITH_X, EVEN, HINT, SHAPE):
    """Return pieces of y and x; y again where x is not wanted."""
    y = pieces_of(vectors[1], place, vectors, ps, FIRST, NUMBER, SHAPE.skip, EVEN, HINT, SHAPE)
    x = y
    if WITH_X:
        x = pieces_of(vectors[2], place, vectors, ps, FIRST, NUMBER, False, EVEN, HINT, SHAPE)
    return y, x


@triton.jit
def pieces_at(vectors, place, NUMBER, WITH_X, HINT, SHAPE):
    """Return pieces of p, y and x, which may lie beyond the ends of the vectors."""
    p = pieces_of(vectors[0], place, vectors, (), 0, NUMBER, False, False, HINT, SHAPE)
    y, x = y_and_x(vectors, place, p, 0, NUMBER, WITH_X, False, HINT, SHAPE)
    return p, y, x
