"""`project_sharded`: a vector that several devices share, within `jax.shard_map`."""

from typing import Any

import jax

from ..families.jax.sharded import project as _project
from ..options import Options


def project_sharded(
    x: Any,
    sparseness: Any = None,
    *,
    axis_name: str | tuple[str, ...],
    l1: Any = None,
    l2: Any = None,
    axis: int = -1,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    where: Any = None,
) -> "jax.Array":
    """Project vectors of which every device has a part, within `jax.shard_map`.

    Outside of it `hoyer.project` does the same by itself, for arrays whose vectors are divided over
    the devices of a mesh: this is for code that already runs once per device.

    Parameters
    ----------
    x : array
        The part of the vectors that is here. All devices have parts of the same length, in the
        order of the devices along `axis_name`; entries that fill up the last part are left out by
        `where`.
    sparseness, l1, l2 : float or array, optional
        What the whole vectors are to have, as in `hoyer.project`; the same on all devices.
    axis_name : str or tuple of str
        The axis of the mesh over which vectors are divided, or several axes.
    axis : int, default -1
        The axis of x along which the vectors lie.
    nonnegative, only_increase, at_most : bool, default False
        As in `hoyer.project`.
    where : array of bool, optional
        Which entries of x form the vectors; the others become 0.

    Returns
    -------
    jax.Array
        The part of the results that belongs to x; its bits do not depend on how many devices share
        the vector. It can be differentiated, by the targets as well.

    Examples
    --------
    >>> import functools, hoyer, jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.make_mesh((1,), ("parts",), axis_types=(jax.sharding.AxisType.Auto,))
    >>> @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("parts"), out_specs=P("parts"))
    ... def sparse(part):
    ...     return hoyer.jax.project_sharded(part, 0.8, l2="keep", axis_name="parts")
    >>> [round(p, 3) for p in sparse(jnp.array([3.0, -2.0, 1.0, 0.5])).tolist()]
    [3.677, -0.853, 0.0, 0.0]
    """
    names = (axis_name,) if isinstance(axis_name, str) else tuple(axis_name)
    options = Options(
        sparseness,
        l1,
        l2,
        axis,
        nonnegative,
        only_increase,
        "auto",
        check_finite=False,
        at_most=at_most,
        where=where,
    )
    return _project(x, options, names)
