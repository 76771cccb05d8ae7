"""The closed form on a known support, in operations that any transformation can follow.

It is for transformations that no rule of ours reaches. The support comes from a projection without
derivatives; the rest is p = l2 (rho/d + q/|q| sqrt(1 - rho^2/d)), q the deviations of x from its
mean on the support; where l1 binds alone p = l1/d + q, and x itself where no norm does.
"""

from typing import Any, NamedTuple

from ...options import NORM_RULES
from ...plan import Plan
from ...projection import Active
from .namespace import Namespace
from .products import Given, differ, is_array, largest, lengths_of, mask_of, root


def closed_form(  # noqa: PLR0917 - as `Products` takes them
    x: Any, value: Any, scale: Any, active: Any, plan: Plan, xp: Namespace
) -> Any:
    """Return a projection's value with the derivatives of the closed form, of all orders.

    Parameters
    ----------
    x : array
        What was projected; vectors in the last axis.
    value, scale, active : array
        What was found, per entry and per vector: not differentiated.
    plan : Plan
        What was asked for; its targets may be differentiated.
    xp : Namespace
        The arrays' library.
    """
    where = mask_of(plan, x, xp)
    at = _located(x if where is None else xp.where(where, x, 0.0), value, scale, xp)
    change = _formula(at, active[..., None], plan)
    if plan.rule in NORM_RULES:
        change = change * at.x_unit
    # The numbers are those found, the derivatives those of the formula.
    return value + xp.astype(change - xp.stopped(change), x.dtype)


class Located(NamedTuple):
    """What is projected and where its support is; x and p in units of their largest entries."""

    x: Any
    x_unit: Any
    p: Any
    p_unit: Any
    scale: Any
    sign: Any
    size: Any
    """Of the support, at least 1."""
    xp: Namespace

    def deviations(self, entries: Any) -> Any:
        """Return how entries deviate from their mean on the support, with its signs."""
        inside = self.xp.where(self.sign == 0, 0.0, entries)
        return inside - self.sign * (self.xp.total(self.sign * entries) / self.size)

    def length(self, entries: Any) -> Any:
        """Return the L2 norm of every vector; none at zero is differentiated."""
        square = self.xp.total(self.xp.square(entries))
        return root(square, square > 0, self.xp)


def _located(x: Any, value: Any, scale: Any, xp: Namespace) -> Located:
    wide = xp.wide(x)
    x, value = xp.astype(x, wide), xp.astype(value, wide)
    x_unit, p_unit = largest(x, xp), largest(value, xp)
    sign = xp.sign(value)
    size = xp.clip(xp.total(abs(sign)), 1, None)
    return Located(x / x_unit, x_unit, value / p_unit, p_unit, scale[..., None], sign, size, xp)


def _formula(at: Located, active: Any, plan: Plan) -> Any:
    """Return the result as a function of x and the target, in units of x where its norm counts."""
    xp = at.xp
    given = Given.of(lengths_of(plan, at.scale, xp), plan.options[:3], xp)
    given = Given(given.n, *(t[..., None] if is_array(t) else t for t in given[1:]))
    if plan.rule == "free":
        result = _l1_alone(at, given)
    else:
        result = _both_norms(at, given, active, plan)
        if plan.at_most:
            result = xp.where(active == Active.L1, _l1_alone(at, given), result)
    if not plan.at_most:
        return result
    return xp.where(active == Active.NONE, _part(at, plan) * at.x_unit, result)


def _l1_alone(at: Located, given: Given) -> Any:
    return at.deviations(at.x) * at.x_unit + at.sign * (given.l1 / at.size)


def _both_norms(at: Located, given: Given, active: Any, plan: Plan) -> Any:
    """Return what has both norms, and what kept its direction."""
    xp, may_keep = at.xp, plan.only_increase or plan.at_most
    spreads, ratio = differ(at.p, at.sign, xp), given.ratio(xp)
    unit = _at_unit_norm(at, spreads, ratio)
    norm = _norm(at, unit, given, plan.rule)
    if plan.both_norms and is_array(norm):
        # Where b = 0 the derivatives by two given norms are defined as zero.
        moves = spreads | (active != Active.BOTH) if may_keep else spreads
        norm = xp.where(moves, norm, xp.stopped(norm))
    if not may_keep:
        return unit * norm
    direction = _direction(at, norm, given, active, plan)
    return xp.where(active != Active.BOTH, direction, unit * norm)


def _part(at: Located, plan: Plan) -> Any:
    """Return x, or its positive part."""
    return at.xp.where(at.sign > 0, at.x, 0.0) if plan.nonnegative else at.x


def _at_unit_norm(at: Located, spreads: Any, ratio: Any) -> Any:
    xp, has_shift = at.xp, at.scale > 0
    moving = at.deviations(at.x)
    q = xp.where(has_shift, moving, at.deviations(at.p))
    # Any length will do, and this one can be squared.
    q = q / largest(q, xp)
    rest = 1 - ratio * ratio / at.size
    turned = q / xp.where(spreads, at.length(q), 1.0) * root(rest, rest > 0, xp)
    # As many ties as fit: they move as one, each about their mean.
    beta = xp.where(has_shift, at.scale, 1.0)
    size = at.length(at.p)
    gain = at.x_unit / at.p_unit / beta / xp.where(size > 0, size, 1.0)
    level = at.sign * xp.stopped(ratio / at.size)
    tied = level + moving * xp.where(has_shift, gain, 0.0)
    return xp.where(spreads, at.sign * (ratio / at.size) + turned, tied)


def _norm(at: Located, unit: Any, given: Given, rule: str) -> Any:
    if rule == "keep":
        return at.length(at.x)
    if rule == "nearest":
        return at.xp.clip(at.xp.total(unit * at.x), 0, None)
    if given.l2 is None:
        return 1.0 if given.l1 is None else given.l1 / given.ratio(at.xp)
    return given.l2


def _direction(at: Located, norm: Any, given: Given, active: Any, plan: Plan) -> Any:
    """Return x, or its positive part, brought to norm: for vectors that keep their direction.

    What has no positive part became one-hot, which does not depend on x.
    """
    xp = at.xp
    part = xp.where(at.scale > 0, _part(at, plan), at.p)
    if plan.rule == "nearest":
        return part
    size = at.length(part)
    direction = part / xp.where(size > 0, size, 1.0) * norm
    if given.l1 is None or given.sparseness is None:
        return direction
    size = xp.total(part * at.sign)
    to_l1 = part / xp.where(size > 0, size, 1.0) * given.l1
    return xp.where(active == Active.L1_DIRECTION, to_l1, direction)
