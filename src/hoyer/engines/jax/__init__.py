"""One vector over several devices, in traced code: a few sums of integer histograms.

What is called here runs on every device, on its part of the vector, within `jax.shard_map` or
wherever else axes of a mesh have names; with types of 64 bits on.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ...plan import Plan
from ..arrays.closed_form import Goal, noise_of
from ..arrays.namespace import namespace
from .histogram import Keys
from .search import Ends, Search, exact_k
from .solution import Asked, Seen, solution_of, written

XP = namespace(jnp)


def forward(x: Any, plan: Plan, names: Any) -> tuple[Any, Any]:
    """Project vectors in the last axis, of which every device has a part; as `arrays.forward`.

    Parameters
    ----------
    x : array
        The part of each vector that is here; all parts have the same length, in the order of the
        devices along `names`.
    plan : Plan
        What is asked of the whole vectors; without a mask, for both norms.
    names : str or tuple of str
        The axes of the mesh over which vectors are divided.

    Returns
    -------
    value, record : array
        The part of the results, and the same record on every device.
    """
    batch = x.shape[:-1]
    goals = [jnp.asarray(numbers, jnp.float64) for numbers in plan.target]
    goals = [numbers.reshape(()) if numbers.size == 1 else numbers for numbers in goals]
    goals = [jnp.broadcast_to(numbers, batch).reshape(-1) for numbers in goals]
    rows = x.reshape(-1, x.shape[-1])
    value, record = jax.vmap(lambda row, *numbers: _one(row, plan, numbers, names))(rows, *goals)
    return value.reshape(x.shape), record.reshape(*batch, -1)


def _one(x: Any, plan: Plan, target: Any, names: Any) -> tuple[Any, Any]:
    """Project one vector."""
    keys = Keys.of(x.dtype, plan.nonnegative)
    entries = keys.entries(x)
    first = lax.axis_index(names).astype(jnp.int64) * x.shape[0]
    places = first + jnp.arange(x.shape[0], dtype=jnp.int64)
    seen = _seen(keys, entries, places, names)
    ratio, slack, slack_low, l2 = target
    possible = ~(jnp.isnan(ratio) | jnp.isnan(l2))
    fine = possible & (seen.bad == 0)
    # Bad vectors take part with numbers that do no harm; they become NaN at the end.
    entries = jnp.where(fine, entries, 0)
    seen = Seen(*(jnp.where(fine, one, 0) for one in seen))
    goal = Goal(
        plan.n,
        jnp.where(fine, ratio, 1.0),
        jnp.where(fine, slack, plan.n - 1.0),
        jnp.where(fine, slack_low, 0.0),
        XP,
    )
    asked = Asked(plan, goal, jnp.where(fine, l2, 1.0), keys, noise_of(x.dtype, XP.float64, XP))
    search = Search(keys, entries, Ends(seen.top, seen.bottom), exact_k(goal), names)
    found, rounds = solution_of(search, seen, asked)
    value = written(x, entries, places, found.line, keys)
    record = jnp.stack([
        found.shift, found.scale, found.support_size, rounds.astype(jnp.float64),
        found.unique.astype(jnp.float64), found.l1, found.l2, found.active,
    ])  # fmt: skip
    harm = jnp.asarray([jnp.nan, 0, 0, 0, 1, jnp.nan, jnp.nan, 0])
    record = jnp.where(fine, record, harm)
    return XP.narrowed(jnp.where(fine, value, jnp.nan), x.dtype), record


def _seen(keys: Keys, entries: Any, places: Any, names: Any) -> Seen:
    """Ask all parts for the ends, for ties at the maximum, and for what is not finite."""
    ends = lax.pmax(jnp.stack([entries.max(), -entries.min()]), names)
    top, bottom = ends[0], -ends[1]
    tied = entries == top
    least = jnp.iinfo(jnp.int64).min
    below = jnp.where(tied, least, entries).max()
    place = jnp.where(tied, -places, least).max()
    nearest = lax.pmax(jnp.stack([below, place]), names)
    marks = tied, entries == 0, abs(entries) >= keys.not_finite
    counts = lax.psum(jnp.stack([mark.sum(dtype=jnp.int64) for mark in marks]), names)
    return Seen(top, bottom, nearest[0], -nearest[1], *counts)
