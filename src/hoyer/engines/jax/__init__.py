"""One vector over several devices, in traced code: a few sums of integer histograms.

What is called here runs on every device, on its part of the vector, within `jax.shard_map` or
wherever else axes of a mesh have names; with types of 64 bits on.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...plan import Plan
from ...projection import Active
from ..arrays.closed_form import Goal, noise_of
from ..arrays.namespace import Jax
from .gradient import gathered_product
from .histogram import XP, Bins, Keys
from .part import LAST, ByCore, Plain
from .search import Ends, Form, Found, Search, State, varies, varying
from .solution import Asked, Seen, form_of, solution_of


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


def forward(x: Any, plan: Plan, names: Any, *, by_core: bool = False) -> tuple[Any, Any]:
    """Project vectors in the last axis, of which every device has a part; as `arrays.forward`.

    Parameters
    ----------
    x : array
        The part of each vector that is here; all parts have the same length, in the order of the
        devices along `names`.
    plan : Plan
        What is asked of the whole vectors. A mask is that of the part, lengths those of the whole.
    names : str or tuple of str
        The axes of the mesh over which vectors are divided.
    by_core : bool
        Whether the compiled core makes histograms and writes, as programs for the CPU may.

    Returns
    -------
    value, record : array
        The part of the results, and the same record on every device.
    """
    batch, n = x.shape[:-1], plan.n if plan.lengths is None else plan.lengths
    numbers = [jnp.asarray(one, jnp.float64) for one in (*plan.target, n)]
    numbers = [one.reshape(()) if one.size == 1 else one for one in numbers]
    numbers = [jnp.broadcast_to(one, batch) for one in numbers]
    masks = () if plan.where is None else (plan.where,)
    project = partial(_one, plan, names, ByCore if by_core else Plain)
    for _ in batch:
        project = jax.vmap(project)
    return project(x, *numbers, *masks)


def _one(plan: Plan, names: Any, kind: Any, x: Any, *numbers: Any) -> tuple[Any, Any]:
    """Project one vector."""
    ratio, slack, slack_low, l2, n, *masks = numbers
    where, keys = masks[0] if masks else None, Keys.of(x.dtype, plan.nonnegative)
    part = kind(x, where, keys, lax.axis_index(names).astype(jnp.int64) * x.shape[0])
    # Targets that are bad are replaced by some that do no harm. Entries that are stay as they are:
    # the search ends with whatever it finds. Either way results become NaN at the end.
    fine = ~(jnp.isnan(ratio) | jnp.isnan(l2)) & (n > 0)
    goal = Goal(
        n,
        jnp.where(fine, ratio, 1.0),
        jnp.where(fine, slack, n - 1.0),
        jnp.where(fine, slack_low, 0.0),
        XP,
    )
    asked = Asked(plan, goal, jnp.where(fine, l2, 1.0), keys, noise_of(x.dtype, XP.float64, XP))
    form = form_of(plan, goal, asked.l2)
    support, seen, table = _searched(part, form, names)
    fine = fine & (seen.bad == 0)
    bins = Bins.of(table, jnp.int64(keys.lower), jnp.int64(keys.width), keys)
    search = Search(keys, Ends(seen.top, seen.bottom), form)
    found = solution_of(search, support, bins, seen, asked)
    value = part.written(found.line)
    if plan.at_most:
        value = _unchanged(found.same, x, value, keys)
    # Of a vector without entries nothing is asked, nor wrong.
    bad = jnp.where(n > 0, math.nan, 0.0)
    harm = math.nan, 0.0, 0.0, 0.0, 1.0, bad, bad, jnp.where(n > 0, 0.0, float(Active.NONE))
    record = [
        jnp.where(fine, told, other)
        for told, other in zip(
            (*found[1:4], support.rounds, *found[4:8]),
            (*harm[:3], support.rounds, *harm[4:]),
            strict=True,
        )
    ]
    value = jnp.where(fine, value, bad.astype(x.dtype))
    if where is not None:
        value = jnp.where(where, value, 0)
    return value, jnp.stack([one.astype(jnp.float64) for one in record])


def _unchanged(same: Any, x: Any, value: Any, keys: Keys) -> Any:
    """Return the entries as they are, where that is the result.

    By their bits: XLA would make zeros of subnormal numbers.
    """
    sizes, negative = keys.sizes(x)
    zero = (sizes == 0) | (negative & keys.nonnegative)
    kind = f"int{XP.finfo(x.dtype).bits}"
    own, other = (lax.bitcast_convert_type(one, kind) for one in (x, value))
    bits = jnp.where(same, jnp.where(zero, jnp.zeros_like(own), own), other)
    return lax.bitcast_convert_type(bits, x.dtype)


class _Known(NamedTuple):
    """What all parts have said so far."""

    state: State
    seen: Seen
    table: Any
    """The first histogram."""


def _searched(part: Any, form: Form, names: Any) -> tuple[Found, Seen, Any]:
    """Find the support of a vector; return what else is known by then as well."""
    keys, rows = part.keys, _own_row(part, names)
    axes = varies(rows) - frozenset(names)
    axes = axes.union(*(varies(numbers) for numbers in form if numbers is not None))

    def step(known: _Known) -> _Known:
        state = known.state
        own = part.histogram(state.lower, state.width)
        # What else is wanted goes along, so that there is one sum in a round.
        told = lax.psum(jnp.concatenate([own.reshape(-1), rows.reshape(-1)]), names)
        table = told[: own.size].reshape(own.shape)
        seen = _together(Seen(*told[own.size :].reshape(rows.shape).T))
        search = Search(keys, Ends(seen.top, seen.bottom), form)
        first = jnp.where(state.rounds == 0, table, known.table)
        # What was summed over devices need not vary where the form does.
        next_known: _Known = varying(_Known(search.divided(state, table), seen, first), axes)
        return next_known

    numbers = jax.eval_shape(part.histogram, jnp.int64(0), jnp.int64(0))
    nothing = Seen(*(jnp.int64(0) for _ in Seen._fields))
    known = _Known(State.first(keys), nothing, jnp.zeros(numbers.shape, jnp.int64))
    # Invariant: that of `State`; bins get narrower until one key is left.
    known = lax.while_loop(lambda known: ~known.state.done, step, varying(known, axes))
    return known.state.found, known.seen, known.table


def _own_row(part: Any, names: Any) -> Any:
    """Return a table with a row for each part, zeros but for this one: their sum has all."""
    row = part.outline()
    rows = varying(jnp.zeros((axis_count(names), row.size), jnp.int64), varies(row))
    return rows.at[lax.axis_index(names)].set(row)


def _together(parts: Seen) -> Seen:
    """Return what is known of a vector by what is of its parts."""
    top = parts.top.max()
    has_top = parts.top == top
    return Seen(
        top,
        parts.bottom.min(),
        jnp.where(has_top, parts.below, parts.top).max(),
        jnp.where(has_top, parts.place, LAST).min(),
        jnp.where(has_top, parts.ties, 0).sum(),
        parts.zeros.sum(),
        parts.bad.sum(),
    )


__all__ = ["Spread", "axis_count", "forward", "gathered_product", "whole_length"]
