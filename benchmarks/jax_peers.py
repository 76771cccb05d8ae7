"""A projection by sorting, written in jax.numpy: what one would do without this library."""

import jax
import jax.numpy as jnp

Array = jax.Array


def sorting(x: Array, sparseness: float) -> Array:
    """Project rows by sorting: the closed form on every prefix that is long enough."""
    n = x.shape[-1]
    ratio = 1 + (1 - sparseness) * (n**0.5 - 1)
    sizes = jnp.abs(x)
    shift = jax.lax.stop_gradient(_shift(sizes, ratio))
    inside = sizes > shift
    count = inside.sum(-1, keepdims=True)
    mean = jnp.where(inside, sizes, 0.0).sum(-1, keepdims=True) / count
    deviation = jnp.where(inside, sizes - mean, 0.0)
    scale = jnp.sqrt(jnp.square(deviation).sum(-1, keepdims=True) / (1 - ratio**2 / count))
    return jnp.where(inside, ratio / count + deviation / scale, 0.0) * jnp.sign(x)


def _shift(sizes: Array, ratio: float) -> Array:
    n, first = sizes.shape[-1], int(ratio**2) + 1
    ordered = -jnp.sort(-sizes, axis=-1)
    count = jnp.arange(first, n + 1, dtype=sizes.dtype)
    sums = jnp.cumsum(ordered, axis=-1)[..., first - 1 :]
    squares = jnp.cumsum(jnp.square(ordered), axis=-1)[..., first - 1 :]
    spread = jnp.clip(count * squares - jnp.square(sums), 0)
    shifts = (sums - ratio * jnp.sqrt(spread / (count - ratio**2))) / count
    return shifts.max(-1, keepdims=True)
