"""One vector over several devices, in traced code: a few sums of integer histograms.

What is called here runs on every device, on its part of the vector, within `jax.shard_map` or
wherever else axes of a mesh have names; with types of 64 bits on.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...plan import Plan
from ...projection import Active
from ..arrays.closed_form import Goal, noise_of
from ..arrays.namespace import Jax
from .histogram import ABSENT, XP, Keys
from .search import Ends, Search, exact_k
from .solution import Asked, Seen, solution_of, written


class Spread(Jax):
    """JAX for vectors of which every device has a part: sums and extremes are of the whole."""

    def __init__(self, library: Any, names: Any) -> None:
        super().__init__(library)
        self.names = names
        for name, merge in (("total", lax.psum), ("highest", lax.pmax), ("lowest", lax.pmin)):
            setattr(self, name, partial(_merged, getattr(self, name), merge, names))
        # Sums and extremes are all that derivatives and sparseness are made of.
        del self.any, self.all

    def length(self, entries: Any) -> Any:
        """Return how many entries vectors have, on all devices together."""
        return whole_length(entries, self.names)


def whole_length(x: Any, names: tuple[str, ...]) -> int:
    """Return the length of vectors of which devices along some axes of a mesh have parts like x."""
    return int(x.shape[-1]) * axis_count(names)


def axis_count(names: tuple[str, ...]) -> int:
    """Return over how many parts vectors are divided."""
    return math.prod(int(lax.axis_size(name)) for name in names)


def _merged(reduce: Any, merge: Any, names: Any, entries: Any) -> Any:
    return merge(reduce(entries), names)


def forward(x: Any, plan: Plan, names: Any) -> tuple[Any, Any]:
    """Project vectors in the last axis, of which every device has a part; as `arrays.forward`.

    Parameters
    ----------
    x : array
        The part of each vector that is here; all parts have the same length, in the order of the
        devices along `names`.
    plan : Plan
        What is asked of the whole vectors: both norms. A mask is that of the part, lengths those of
        the whole.
    names : str or tuple of str
        The axes of the mesh over which vectors are divided.

    Returns
    -------
    value, record : array
        The part of the results, and the same record on every device.
    """
    batch, n = x.shape[:-1], plan.n if plan.lengths is None else plan.lengths
    numbers = [jnp.asarray(one, jnp.float64) for one in (*plan.target, n)]
    numbers = [one.reshape(()) if one.size == 1 else one for one in numbers]
    numbers = [jnp.broadcast_to(one, batch) for one in numbers]
    where = jnp.ones(x.shape, bool) if plan.where is None else plan.where
    project = partial(_one, plan, names)
    for _ in batch:
        project = jax.vmap(project)
    return project(x, where, *numbers)


def _one(plan: Plan, names: Any, x: Any, where: Any, *numbers: Any) -> tuple[Any, Any]:
    """Project one vector."""
    keys = Keys.of(x.dtype, plan.nonnegative)
    entries = keys.entries(x)
    if plan.where is not None:
        entries = jnp.where(where, entries, ABSENT)
    first = lax.axis_index(names).astype(jnp.int64) * x.shape[0]
    places = first + jnp.arange(x.shape[0], dtype=jnp.int64)
    seen = _seen(keys, entries, places, names)
    ratio, slack, slack_low, l2, n = numbers
    fine = ~(jnp.isnan(ratio) | jnp.isnan(l2)) & (seen.bad == 0) & (n > 0)
    # Bad vectors take part with numbers that do no harm; they become NaN at the end.
    entries = jnp.where(fine, entries, 0)
    seen = Seen(*(jnp.where(fine, one, 0) for one in seen))
    goal = Goal(
        n,
        jnp.where(fine, ratio, 1.0),
        jnp.where(fine, slack, n - 1.0),
        jnp.where(fine, slack_low, 0.0),
        XP,
    )
    asked = Asked(plan, goal, jnp.where(fine, l2, 1.0), keys, noise_of(x.dtype, XP.float64, XP))
    search = Search(keys, entries, Ends(seen.top, seen.bottom), exact_k(goal), names)
    found, rounds = solution_of(search, seen, asked)
    value = written(x, entries, places, found.line, keys)
    # Of a vector without entries nothing is asked, nor wrong.
    bad = jnp.where(n > 0, math.nan, 0.0)
    harm = math.nan, 0.0, 0.0, 0.0, 1.0, bad, bad, jnp.where(n > 0, 0.0, float(Active.NONE))
    record = [
        jnp.where(fine, told, other)
        for told, other in zip(
            (*found[1:4], rounds, *found[4:8]), (*harm[:3], rounds, *harm[4:]), strict=True
        )
    ]
    value = jnp.where(fine, value, jnp.where(where, bad, 0.0).astype(x.dtype))
    return value, jnp.stack([one.astype(jnp.float64) for one in record])


def _seen(keys: Keys, entries: Any, places: Any, names: Any) -> Seen:
    """Ask all parts for the ends, for ties at the maximum, and for what is not finite."""
    there = entries != ABSENT
    # Not the negative: that of the least integer is none.
    highest = (entries.max(initial=ABSENT), jnp.where(there, ~entries, ABSENT).max(initial=ABSENT))
    ends = lax.pmax(jnp.stack(highest), names)
    top, bottom = ends[0], ~ends[1]
    tied = entries == top
    below = jnp.where(tied, ABSENT, entries).max(initial=ABSENT)
    place = jnp.where(tied, -places, ABSENT).max(initial=ABSENT)
    nearest = lax.pmax(jnp.stack([below, place]), names)
    marks = tied, entries == 0, there & (abs(entries) >= keys.not_finite)
    counts = lax.psum(jnp.stack([mark.sum(dtype=jnp.int64) for mark in marks]), names)
    return Seen(top, bottom, nearest[0], -nearest[1], *counts)
