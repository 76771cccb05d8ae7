"""Vectors of which every device has a part, where code runs once per device (`jax.shard_map`)."""

from operator import index
from typing import Any

from ...engines.jax import axis_count
from ...layout import layout_of
from ...options import Options, check
from .arrays import Array, float_type, moved_back, rows_of
from .calls import call
from .engine import Project
from .targets import question_of


def project(x: Any, options: Options, names: tuple[str, ...]) -> Array:
    """Project vectors along one axis, which devices share along axes of a mesh."""
    check(options)
    dtype, here = float_type(x), layout_of(tuple(x.shape), index(options.axis))  # type: ignore[arg-type]
    (axis,) = here.axes
    shape = list(x.shape)
    shape[axis] *= axis_count(names)
    setting, arrays = question_of(options, layout_of(tuple(shape), axis), dtype, here)
    value = call(Project(setting, names=names), rows_of(x.astype(dtype), here), *arrays)[0]
    result: Array = moved_back(value, here)
    return result
