"""Trees of parameters, projected leaf by leaf, as one vector, or together."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..api import project
from ..families import calling, refuse_bad
from ..options import Axis
from ..together import project_together as _project_together

TREE = "tree"
AxisOf: TypeAlias = Axis | str | Callable[[Any], Axis]
"""The axes of vectors, "tree" for one vector of all leaves, or a function of a leaf."""


def projection_sparseness(
    params: Any,
    sparseness: Any = None,
    *,
    l1: Any = None,
    l2: Any = "keep",
    axis: AxisOf = -1,
    mask: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    check_finite: bool = True,
) -> Any:
    """Project the leaves of a tree onto a sparseness, in the manner of ``optax.projections``.

    Parameters
    ----------
    params : tree of arrays
        What is projected: parameters, or a single array.
    sparseness : float or array, optional
        Target sparseness, in [0, 1], traced or not. (It is the second argument, where jaxopt's
        ``ProjectedGradient`` passes ``hyperparams_proj``.)
    l1, l2 : optional
        The norms, as in `hoyer.project`. By default every vector keeps its own, unless `l1` is
        given.
    axis : int, tuple of int, None, "tree" or callable, default -1
        The axes that form a vector, as in `hoyer.project`. "tree": all leaves together are one
        vector, which is what optax's own projections take a tree for. A function gets a leaf and
        returns its axes: what flows into one unit is ``lambda w: tuple(range(w.ndim - 1))`` for
        Flax, whose kernels have the units last, and ``lambda w: tuple(range(1, w.ndim))`` for
        Equinox, whose layers have them first.
    mask : tree of bool, or callable, optional
        Which leaves are projected; a tree like `params`, or a prefix of it, or a function that
        makes one of `params`, as in ``optax.masked``. All of them by default.
    nonnegative, only_increase, at_most, check_finite : bool
        As in `hoyer.project`.

    Returns
    -------
    tree of arrays
        Like `params`.

    Examples
    --------
    >>> import hoyer, jax, jax.numpy as jnp
    >>> from hoyer.jax import projection_sparseness
    >>> params = {"w": jnp.array([[3.0, -2.0, 1.0, 0.5]]), "b": jnp.ones(2)}
    >>> sparse = projection_sparseness(params, 0.8, mask={"w": True, "b": False})
    >>> [[round(w, 3) for w in row] for row in sparse["w"].tolist()], sparse["b"].tolist()
    ([[3.677, -0.853, 0.0, 0.0]], [1.0, 1.0])

    One vector of all leaves:

    >>> both = projection_sparseness(params, 0.8, axis="tree")
    >>> round(float(hoyer.sparseness(jnp.concatenate([both["w"][0], both["b"]]))), 4)
    0.8
    """
    given = {
        "l1": l1,
        "l2": norm_of(l1, l2),
        "nonnegative": nonnegative,
        "only_increase": only_increase,
        "at_most": at_most,
        "check_finite": check_finite,
    }
    chosen = masked(params, mask)
    names = jax.tree.map_with_path(lambda path, _: f"params{jax.tree_util.keystr(path)}", params)
    jax.tree.map(_refuse_integers, params, names, chosen)
    if isinstance(axis, str):
        if axis != TREE:
            raise ValueError(f"axis={axis!r}: the only word for it is {TREE!r}; or give axes")
        return _as_one(params, names, chosen, sparseness, given)

    def leaf(x: Any, name: str, is_chosen: bool) -> Any:
        if not is_chosen:
            return x
        axes = axis(x) if callable(axis) else axis
        with calling(name):
            return project(jnp.asarray(x), sparseness, axis=axes, **given)

    return jax.tree.map(leaf, params, names, chosen)


def _refuse_integers(x: Any, name: str, chosen: bool) -> None:
    """Refuse leaves whose type cannot hold what they would become."""
    kind = jnp.result_type(x)
    if chosen and not jnp.issubdtype(kind, jnp.floating):
        raise TypeError(
            f"{name} has dtype {kind}, which cannot hold a projection: make it a float, or leave "
            "it out by mask="
        )


def norm_of(l1: Any, l2: Any) -> Any:
    """Return the L2 norm that is asked for: kept only if nothing else is said."""
    return None if l1 is not None and isinstance(l2, str) and l2 == "keep" else l2


def masked(params: Any, mask: Any) -> Any:
    """Return a tree like `params` that says which leaves are chosen."""
    if mask is None:
        return jax.tree.map(lambda _: True, params)
    # A model that can be called is a tree nevertheless.
    tree = mask(params) if callable(mask) and jax.tree_util.all_leaves([mask]) else mask
    chosen = jax.tree.map(lambda one, part: jax.tree.map(lambda _: one, part), tree, params)
    for one in jax.tree.leaves(tree):
        if not isinstance(one, bool | np.bool_):
            raise TypeError(f"mask has {one!r}: give True or False for each leaf")
    return chosen


def _as_one(params: Any, names: Any, chosen: Any, sparseness: Any, given: dict[str, Any]) -> Any:
    leaves, form = jax.tree.flatten(params)
    taken = jax.tree.leaves(chosen)
    some = [x for x, is_taken in zip(leaves, taken, strict=True) if is_taken]
    flat, back = ravel_pytree(some)
    try:
        with calling("the vector of all leaves"):
            found = iter(back(project(flat, sparseness, **given)) if flat.size else [])
    except ValueError:
        own = [x for x, is_taken in zip(jax.tree.leaves(names), taken, strict=True) if is_taken]
        _refuse_bad_leaf(some, own)
        raise
    new = [next(found) if is_taken else x for x, is_taken in zip(leaves, taken, strict=True)]
    return jax.tree.unflatten(form, new)


def _refuse_bad_leaf(leaves: list[Any], names: list[str]) -> None:
    """Say which leaf has NaN or infinity, if one has, and if it can be looked at."""
    for x, name in zip(leaves, names, strict=True):
        if not isinstance(x, jax.core.Tracer) and not bool(jnp.isfinite(x).all()):
            refuse_bad(np.asarray(x, np.float32), jnp.ndim(x), name)


def project_together(params: Any, sparseness: Any, *, mask: Any = None, **given: Any) -> Any:
    """Project the leaves of a tree so that the mean of their sparsenesses is as given.

    `hoyer.project_together` for any tree of arrays: each leaf (or each vector along `axis`) gets
    its own share. It looks at all vectors before it projects the first, so it is for code that is
    not traced: call it between compiled steps.

    Parameters
    ----------
    params : tree of arrays
        The parameters.
    sparseness : float
        The mean, in [0, 1].
    mask : tree of bool, or callable, optional
        Which leaves take part, as in `projection_sparseness`; all of them by default. Biases, which
        have small norms, would take most of the sparseness.
    **given
        As in `hoyer.project_together`: `l2`, `floor`, `relative`, `axis`, `nonnegative`,
        `only_increase`, `check_finite`; of these `l2`, `floor` and `axis`, and `weights`, may be
        trees like `params`.

    Returns
    -------
    tree of arrays
        Like `params`.

    Examples
    --------
    >>> import hoyer, jax.numpy as jnp
    >>> first, last = jnp.array([3.0, -2.0, 1.0, 0.5]), jnp.array([1.0, 0.9, -0.8])
    >>> layers = {"first": {"w": first}, "last": last}
    >>> sparse = hoyer.jax.project_together(layers, 0.5)
    >>> [round(float(hoyer.sparseness(w)), 3) for w in (sparse["first"]["w"], sparse["last"])]
    [0.363, 0.637]
    """
    if "out" in given:
        raise TypeError(
            "out=...: JAX arrays cannot be changed; leave out=, new arrays are returned"
        )
    paths, form = jax.tree_util.tree_flatten_with_path(params)
    taken = jax.tree.leaves(masked(params, mask))
    names = [f"params{jax.tree_util.keystr(path)}" for path, _ in paths]
    arrays = {
        name: jnp.asarray(x) for name, (_, x), one in zip(names, paths, taken, strict=True) if one
    }
    for name in ("l2", "floor", "weights", "axis"):
        if name in given:
            given[name] = _by_name(given[name], form, names, arrays)
    found = _project_together(arrays, sparseness, **given)
    new = [found.get(name, x) for name, (_, x) in zip(names, paths, strict=True)]
    return jax.tree.unflatten(form, new)


def _by_name(value: Any, form: Any, names: list[str], arrays: dict[str, Any]) -> Any:
    """Return what is given for each leaf by its name; what is given for all as it is."""
    is_axes = lambda one: isinstance(one, tuple) or one is None  # noqa: E731 - a leaf of axes
    leaves, own = jax.tree.flatten(value, is_leaf=is_axes)
    if own != form or form.num_leaves == 1:
        return value
    return {name: one for name, one in zip(names, leaves, strict=True) if name in arrays}
