"""Long integers in traced code: limbs of 26 bits in the last axis, the lowest first.

A limb is an integer of 64 bits, so that products of limbs can be added up before anything is
carried. A number has many such forms; sums of them are sums of limbs, of any sign.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax

LIMB = 26
_LOW = (1 << LIMB) - 1


def carried(limbs: Any, size: int) -> Any:
    """Return the same number in `size` limbs, each from -1 to 2**26 but the last, which is signed.

    Limbs may have been anything. The number must be less than half of what `size` limbs hold.
    """
    limbs = resized(limbs, size)
    last = jnp.arange(size) == size - 1
    # A carry of 37 bits leaves one of 12, and that one of 1.
    for _ in range(3):
        carry = jnp.where(last, 0, limbs >> LIMB)
        limbs = limbs - (carry << LIMB) + moved(carry, 1)
    return limbs


def resized(limbs: Any, size: int) -> Any:
    """Return so many limbs: with zeros, or without the last ones."""
    return _padded(limbs, 0, size - limbs.shape[-1])


def moved(limbs: Any, places: int) -> Any:
    """Return limbs so many places further up; the last ones are lost."""
    return _padded(limbs, places, -places)


def _padded(limbs: Any, low: int, high: int) -> Any:
    if low == high == 0:
        return limbs
    edges = [(0, 0, 0)] * (limbs.ndim - 1) + [(low, high, 0)]
    return lax.pad(limbs, jnp.zeros((), limbs.dtype), edges)


def product(a: Any, b: Any, size: int) -> Any:
    """Return a product in `size` limbs, carried; the factors are."""
    return carried(raw_product(a, b), size)


def raw_product(a: Any, b: Any) -> Any:
    """Return the same, not carried."""
    rows, columns = a.shape[-1], b.shape[-1]
    width = rows + columns
    table = resized(a[..., :, None] * b[..., None, :], width)
    # Read as rows that are shorter by one, each row starts one place further right.
    flat = table.reshape(*table.shape[:-2], rows * width)[..., : rows * (width - 1)]
    return flat.reshape(*flat.shape[:-1], rows, width - 1).sum(-2)


def sign(limbs: Any) -> Any:
    """Return whether a number that was carried is above, at or below 0: 1, 0 or -1."""
    size = limbs.shape[-1] + limbs.shape[-1] % 2
    pairs = resized(limbs, size).reshape(*limbs.shape[:-1], size // 2, 2)
    pairs = (pairs[..., 1] << LIMB) + pairs[..., 0]
    # Invariant: `top` is what the pairs so far amount to, or 4 of that sign: whatever is left of
    # the number is less than 2, in units of the last of these pairs.
    top = pairs[..., -1]
    for i in range(size // 2 - 2, -1, -1):
        top = (jnp.clip(top, -4, 4) << (2 * LIMB)) + pairs[..., i]
    return jnp.sign(top)


def placed(limbs: Any, shift: Any, size: int) -> Any:
    """Return numbers times 2**shift, rounded down limb by limb, in `size` limbs; not carried.

    Limbs were carried. What is lost is less than a few units.
    """
    whole, part = shift // LIMB, shift % LIMB
    raised = resized(limbs, limbs.shape[-1] + 1) << part[..., None]
    # The upper half of each limb that was raised, but the last one, is the next one's.
    high = jnp.where(jnp.arange(limbs.shape[-1] + 1) < limbs.shape[-1] - 1, raised >> LIMB, 0)
    pieces = raised - (high << LIMB) + moved(high, 1)
    source = jnp.arange(size) - whole[..., None]
    there = (source >= 0) & (source < pieces.shape[-1])
    index = jnp.clip(source, 0, pieces.shape[-1] - 1)
    return jnp.where(there, jnp.take_along_axis(pieces, index, -1), 0)


def limbs_of(number: Any, size: int) -> Any:
    """Return integers of 64 bits as limbs, carried."""
    return carried(number[..., None], size)


def as_float(limbs: Any) -> tuple[Any, Any]:
    """Return a number as fraction * 2**exponent.

    The fraction is rounded once, and 0, or of a size from 2**78 to 2**105.
    """
    negative = sign(limbs) < 0
    limbs = _resolved(jnp.where(negative[..., None], -limbs, limbs))
    number = jnp.arange(limbs.shape[-1])
    highest = jnp.max(jnp.where(limbs != 0, number, 0), -1)
    index = highest[..., None] - jnp.arange(4)
    four = jnp.where(index >= 0, jnp.take_along_axis(limbs, jnp.clip(index, 0, None), -1), 0)
    upper, lower = ((four[..., i] << LIMB) + four[..., i + 1] for i in (0, 2))
    fraction = upper.astype(jnp.float64) * 2.0**52 + lower.astype(jnp.float64)
    return jnp.where(negative, -fraction, fraction), (highest - 3) * LIMB


def _resolved(limbs: Any) -> Any:
    """Carry to the end: all limbs are from 0 on, and below 2**26 but for the last."""

    def step(_: Any, limbs: Any) -> Any:
        return carried(limbs, limbs.shape[-1])

    return lax.fori_loop(jnp.int32(0), jnp.int32(-(-limbs.shape[-1] // 3)), step, limbs)


def power_of_two(exponent: Any) -> Any:
    """Return 2**exponent as a float64, or the nearest one that is normal."""
    exponent = jnp.clip(exponent, -1022, 1023).astype(jnp.int64)
    return lax.bitcast_convert_type((exponent + 1023) << 52, jnp.float64)


def scaled(fraction: Any, exponent: Any) -> Any:
    """Return fraction * 2**exponent, for exponents up to twice those of floats."""
    half = exponent // 2
    return fraction * power_of_two(half) * power_of_two(exponent - half)
