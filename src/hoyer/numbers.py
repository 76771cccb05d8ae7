"""Arrays of numbers in units that are powers of two; floats as integers in the same order."""

import struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]


def in_units(numbers: Floats, exponents: Integers) -> Floats:
    """Return numbers over powers of two."""
    return np.ldexp(numbers, -exponents)


def exponents_of(sizes: Floats) -> Integers:
    """Return the powers of two at or just above sizes."""
    return np.frexp(sizes)[1].astype(np.int64)


def key_of(number: float) -> int:
    """Return the integer of a number: they are in the same order, and without gaps."""
    key: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return key if key >= 0 else -(key & 0x7FFFFFFFFFFFFFFF)


def number_of(key: int) -> float:
    """Return the number of an integer."""
    bits = key if key >= 0 else (-key) | -0x8000000000000000
    number: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return number


def middle_of(low: float, high: float) -> float:
    """Return the number in the middle of all numbers between two."""
    return number_of((key_of(low) + key_of(high)) // 2)


def steps_between(low: float, high: float) -> float:
    """Return how many numbers there are from one to another."""
    return float(key_of(high) - key_of(low))
