"""JAX arrays as the rest of this folder wants them: floating, vectors last; and who may look."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...layout import Layout, layout_of
from ...options import Axis

Array: TypeAlias = jax.Array

DTYPES = ("float16", "bfloat16", "float32", "float64")


def float_type(x: Any) -> Any:
    """Return the type of results: that of x, or of integers and booleans JAX's own for floats."""
    kind = x.dtype
    if kind.name in DTYPES:
        return kind
    if isinstance(kind, np.dtype) and kind.kind in "iub" and kind.name != "bfloat16":
        return jnp.zeros((), float).dtype
    raise TypeError(
        f"x has dtype {kind.name}: give real numbers as {', '.join(DTYPES)}, integers or booleans"
    )


def vectors_of(x: Any, axis: Axis) -> Layout:
    """Return where the vectors along `axis` lie."""
    return layout_of(tuple(x.shape), axis)


def rows_of(x: Any, layout: Layout) -> Any:
    """Return an array with the vectors in its last axis."""
    return x if _are_rows(layout) else layout.rows(x, jnp)


def moved_back(rows: Any, layout: Layout) -> Any:
    """Return rows where the vectors came from."""
    return rows if _are_rows(layout) else layout.back(rows, jnp)


def _are_rows(layout: Layout) -> bool:
    return layout.axes == (len(layout.shape) - 1,)


def is_traced(*arrays: Any) -> bool:
    """Whether some of these stand for numbers that are not there."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def on_host(array: Any) -> bool:
    """Whether the numbers of an array are there, and to look at them makes nobody wait."""
    if isinstance(array, jax.core.Tracer):
        return False
    if not isinstance(array, jax.Array):
        return True
    # Of an array that is spread over processes only a part is here.
    return array.is_fully_addressable and all(d.platform == "cpu" for d in array.devices())


def as_numpy(array: Any) -> Any:
    """Return an array of any device as a NumPy array, bfloat16 as float32."""
    array = np.asarray(array)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
