"""Algorithm 3 for vectors of which every device has a part: one exchange of a few numbers.

It is the product of `hoyer.engines.arrays.products` by x alone, where the norms that bind are the
same for all vectors. Sums about the mean of all entries are had from those about the mean of each
part, which nobody has to know beforehand and where nothing cancels. Each device brings its numbers
in units of its own, so that none of them overflows.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from ...plan import Plan
from ..arrays.products import moderate
from .histogram import XP
from .search import varies, varying


class _Sums(NamedTuple):
    """What a part, or a vector, has on the support: a are sizes of p, w gradients along its signs.

    Both are in units: `size` that of a, `unit` that of w, and `norm` that of x. A part where all a
    are 0 has size 0, and the norm likewise: it has no say in the units of the whole.
    """

    count: Any
    size: Any
    mean: Any
    """Of a."""
    spread: Any
    """The sum of squares of a about its mean."""
    low: Any
    high: Any
    unit: Any
    total: Any
    """The sum of w."""
    slope: Any
    """The sum of (a - mean) w."""
    norm: Any
    squares: Any
    """The sum of squares of x, where its norm is kept."""


def gathered_product(  # noqa: PLR0917 - what was found, then what was asked for, as everywhere
    value: Any, scale: Any, x: Any, y: Any, plan: Plan, names: Any
) -> Any:
    """Return the transposed Jacobian times y, of the part of each vector that is here.

    `plan` says what was asked for: no bounds, nothing nearly constant, both norms or l1 alone.
    """
    p, sign = value.astype(jnp.float64), jnp.sign(value).astype(jnp.float64)
    kept = plan.rule == "keep"
    x = x.astype(jnp.float64) if kept else jnp.zeros_like(p[..., :1])
    if kept and plan.where is not None:
        x = jnp.where(plan.where, x, 0.0)
    w = jnp.where(sign == 0, 0.0, y.astype(jnp.float64)) * sign
    own = _own(p, sign, x, w)
    whole = _merged(_exchanged(own, names))
    unit, mean = whole.unit, whole.mean
    size, norm = _or_one(whole.size), _or_one(whole.norm)
    a, w = p * sign / size, w / unit
    beta = scale.astype(jnp.float64)[..., None]
    centred = w - whole.total / jnp.maximum(whole.count, 1)
    if plan.rule != "free":
        differ = (whole.low < whole.high) & (whole.spread > 0)
        steep = jnp.where(differ, whole.slope / jnp.where(differ, whole.spread, 1.0), 0.0)
        centred = centred - (a - mean) * steep
    found = sign * jnp.where(beta > 0, centred / jnp.where(beta > 0, beta, 1.0), 0.0)
    along = whole.slope + mean * whole.total
    if plan.rule == "nearest":
        squares = whole.spread + whole.count * mean * mean
        found = found + sign * a * _over(along, squares)
    elif kept:
        found = found + x / norm * (_over(along, whole.squares) * (size / norm))
    return (found * unit).astype(value.dtype)


def _over(a: Any, b: Any) -> Any:
    return jnp.where(b > 0, a / jnp.where(b > 0, b, 1.0), 0.0)


def _or_one(size: Any) -> Any:
    """Return what numbers of a size can be divided by: 1 if all of them are 0."""
    return jnp.where(size > 0, size, 1.0)


def _own(p: Any, sign: Any, x: Any, w: Any) -> _Sums:
    """Return what the part has that is here, each with an axis of length 1."""
    size, norm = (XP.highest(abs(XP.stopped(one))) for one in (p, x))
    # Where there is nothing this is the least of all units.
    unit = moderate(XP.total(abs(jnp.where(abs(w) < jnp.inf, w, 0.0))), XP)
    inside, a, w = sign != 0, p * sign / _or_one(size), w / unit
    count = XP.total(inside.astype(jnp.float64))
    mean = XP.total(a) / jnp.maximum(count, 1)
    deviations = jnp.where(inside, a - mean, 0.0)
    return _Sums(
        count,
        size,
        mean,
        XP.total(jnp.square(deviations)),
        XP.lowest(jnp.where(inside, a, jnp.inf)),
        XP.highest(jnp.where(inside, a, -jnp.inf)),
        unit,
        XP.total(w),
        XP.total(deviations * w),
        norm,
        XP.total(jnp.square(x / _or_one(norm))),
    )


def _exchanged(own: _Sums, names: Any) -> _Sums:
    """Return the numbers of all parts, in a last axis: a sum with zeros for all others."""
    row = jnp.concatenate(own, -1)[..., None, :]
    here = lax.axis_index(names)
    count = 1
    for name in names:
        count *= int(lax.axis_size(name))
    rows = varying(jnp.zeros((*row.shape[:-2], count, row.shape[-1]), row.dtype), varies(row))
    rows = jnp.where(jnp.arange(count)[:, None] == here, row, rows)
    told = lax.psum(rows, names)
    return _Sums(*(told[..., i] for i in range(len(own))))


def _merged(parts: _Sums) -> _Sums:
    """Return what the whole has."""
    there = parts.count > 0
    size, unit, norm = (XP.highest(one) for one in (parts.size, parts.unit, parts.norm))
    by_size, by_norm = parts.size / _or_one(size), parts.norm / _or_one(norm)
    by_unit = parts.unit / unit
    count = XP.total(parts.count)
    means, totals = parts.mean * by_size, parts.total * by_unit
    mean = XP.total(parts.count * means) / jnp.maximum(count, 1)
    off = jnp.where(there, means - mean, 0.0)
    spread = XP.total(parts.spread * jnp.square(by_size) + parts.count * jnp.square(off))
    slope = XP.total(parts.slope * (by_size * by_unit) + off * totals)
    ends = (
        XP.lowest(jnp.where(there, parts.low * by_size, jnp.inf)),
        XP.highest(jnp.where(there, parts.high * by_size, -jnp.inf)),
    )
    squares = XP.total(parts.squares * jnp.square(by_norm))
    return _Sums(count, size, mean, spread, *ends, unit, XP.total(totals), slope, norm, squares)
