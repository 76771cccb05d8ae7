"""Dask arrays: projected chunk by chunk, lazily; nothing is computed before the user asks for it.

Vectors that lie whole in a chunk are projected there. Those that are divided are brought together
if they are short; long ones stay where they are, and a few sums over all chunks tell the rest.
"""

from typing import Any, NoReturn

import dask.array as da

from ...options import Axis, Options
from ...price import Asked
from ...projection import Projection
from . import local, split
from .arrays import (
    UNCHANGEABLE,
    checked,
    floats_of,
    given_of,
    refuse_out,
    restored,
    together,
    way_of,
)

# ---- the functions of the protocol `Family` ----


def project(x: Any, options: Options, out: Any) -> da.Array:
    """Project x, lazily."""
    refuse_out(out)
    x, axes = floats_of(x, options.axis)
    checked(x, axes, options)
    way = way_of(x, axes)
    if way == "search":
        return split.project(given_of(x, axes, options))
    moved = together(x, axes) if way == "together" else x
    return restored(local.project(given_of(moved, axes, options)), x.chunks)


def project_(x: Any, options: Options) -> NoReturn:
    """Refuse: a Dask array is a plan for numbers, not their memory."""
    floats_of(x, options.axis)
    raise TypeError(
        f"{UNCHANGEABLE} in place: use x = project(x, ...), and da.store to write it somewhere"
    )


def project_sparse(x: Any, options: Options) -> NoReturn:
    """Refuse: the result is one SciPy sparse array in memory."""
    floats_of(x, options.axis)
    raise TypeError(
        "project_sparse returns a SciPy sparse array, and works on NumPy arrays: use "
        "project(x, ...), or x.map_blocks(hoyer.project_sparse, ...) for the rows of each chunk"
    )


def solve(x: Any, options: Options) -> Projection[da.Array]:
    """Project x and tell how; all fields are Dask arrays."""
    x, axes = floats_of(x, options.axis)
    checked(x, axes, options)
    way = way_of(x, axes)
    if way == "search":
        return split.solve(given_of(x, axes, options))
    moved = together(x, axes) if way == "together" else x
    return local.solve(given_of(moved, axes, options), x.chunks)


def sparseness(x: Any, axis: Axis) -> da.Array:
    """Return sigma of every vector, in the precision of x."""
    x, axes = floats_of(x, axis)
    way = way_of(x, axes)
    if way == "search":
        return split.sparseness(x, axes)
    return local.sparseness(together(x, axes) if way == "together" else x, axes)


def shares(arrays: list[Any], axes: list[Axis], asked: Asked, names: list[str]) -> NoReturn:
    """Refuse: the price is found in a few dozen passes over all vectors."""
    raise TypeError(
        f"{names[0]} is a Dask array: project_together looks at all vectors again and again, and "
        "needs them in memory: pass x.compute(), or give each vector its share with project"
    )


def check_place(x: Any, out: Any) -> None:
    """Refuse, as there is nothing to write to."""
    refuse_out(out)


def span(x: Any) -> None:
    """Tell nothing: a Dask array is in no place."""


__all__ = [
    "check_place",
    "project",
    "project_",
    "project_sparse",
    "shares",
    "solve",
    "span",
    "sparseness",
]
