"""Algorithm 3 for a vector in parts: the products of `Products`, with one merge of a few numbers.

What the products are made of beside y is known of the whole vector: its norms, the size of its
support, how much entries differ. What is left are sums over all parts that are linear in y. So the
formulas are gone through twice: first to hear which sums they take, of which every part has its
share; then with those of all parts.

Sums are taken in one of three units, so that they neither overflow nor vanish, and those in one
unit are added: parts need not agree on it beforehand.
"""

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

from ...plan import Plan
from ...projection import Active
from .namespace import Namespace
from .products import NO_CHANGE, Changes, Products, moderate, moderate_units


class PartProducts(Products):
    """The derivatives of one part of a projection, an array with one axis.

    Parameters
    ----------
    value : array
        The part of the result.
    solution : hoyer.engines.parts.Solution
        What is known of the whole.
    x, where : array or None
        The part of what was projected, needed where `Plan.needs_x`; and which entries count.
    plan : Plan
        What was asked for.
    xp : Namespace
        The arrays' library.
    """

    def __init__(  # noqa: PLR0917 - as `Products`
        self, value: Any, solution: Any, x: Any, where: Any, plan: Plan, xp: Namespace
    ) -> None:
        self.solution = solution
        self._sums: Any = None
        self._heard: list[Any] = []
        bound = plan.only_increase or plan.at_most
        self._none = none = xp.astype(xp.total(value[:0]), xp.wide(value))
        active = none[0] + float(solution.active) if bound else None
        scale = none[0] + solution.formula.scale
        plan = replace(plan, where=where, forms={})
        super().__init__(value, scale, x, active, plan, self._merging(xp))
        # x has all the digits, by the formula that made p of it.
        formula = solution.formula
        self.compares_x = x is not None and formula.gain != 0 and solution.active == Active.BOTH

    def _merging(self, xp: Namespace) -> Namespace:
        """Return the library with sums that are those of all parts."""
        merging: Any = copy(xp)
        merging.own_total, merging.total = xp.total, self._total
        # Sums are all that parts exchange.
        del merging.any, merging.all, merging.highest, merging.lowest
        whole: Namespace = merging
        return whole

    def heard(self, y: Any, *, reverse: bool, by_target: bool) -> Any:
        """Return this part's share of the sums, for each unit that they may be in."""
        self._go_through(y, NO_CHANGE, reverse=reverse, by_target=by_target)
        xp = self.xp
        own = xp.joined(*self._heard, self._share)
        units = moderate_units(self.wide, xp)
        return xp.joined(*(xp.where(self._size == unit, own, 0.0 * own) for unit in units))

    def finished(
        self, y: Any, sums: Any, *, reverse: bool, by_target: bool, change: Changes = NO_CHANGE
    ) -> tuple[Any, Changes]:
        """Return this part of a product, and the gradients by the target, from all sums."""
        self._sums = iter(self._in_one_unit(sums))
        return self._go_through(y, change, reverse=reverse, by_target=by_target)

    def _go_through(
        self, y: Any, change: Changes, *, reverse: bool, by_target: bool
    ) -> tuple[Any, Changes]:
        if reverse:
            return self.cotangent(y, None, by_x=True, by_target=by_target)
        return self.tangent(y, change)[0], NO_CHANGE

    def _in_one_unit(self, sums: Any) -> list[Any]:
        """Return the sums in the largest unit that a part has used, and remember this unit."""
        xp = self.xp
        first, *others = moderate_units(self.wide, xp)
        sums = xp.library.reshape(xp.astype(sums, self.wide), (1 + len(others), -1))
        size, total = self._none + first, sums[0, :]
        for unit, row in zip(others, (sums[1, :], sums[2, :]), strict=True):
            # The last number says how large y is.
            used = row[-1:] > 0
            total = xp.where(used, row + total * (size / unit), total)
            size = xp.where(used, xp.zeros_like(size) + unit, size)
        # No part has anything: then any unit will do.
        self._size = xp.where(total[-1:] > 0, size, xp.ones_like(size))
        return [total[i : i + 1] for i in range(total.shape[0] - 1)]

    def _total(self, entries: Any) -> Any:
        """Return the sum over all parts; while these are heard, note that of this one."""
        if self._sums is not None:
            return next(self._sums)
        self._heard.append(self.xp.own_total(entries))
        return self._none

    # ---- what is known of the whole ----

    def _unit_of(self, value: Any) -> Any:
        return self._none + self.solution.unit

    @cached_property
    def count(self) -> Any:
        """The size of the support, at least 1."""
        return self._none + max(float(self.solution.support_size), 1.0)

    @cached_property
    def l1(self) -> Any:
        """The L1 norm, in units."""
        return self._none + self.solution.sizes[0]

    @cached_property
    def l2_squared(self) -> Any:
        """The squared L2 norm, in units."""
        return self._none + self.solution.sizes[1] ** 2

    @cached_property
    def deviations(self) -> Any:
        """Q with the signs of p: zero outside of the support."""
        if not self.compares_x:
            return self.p - self.sign * (self.l1 / self.count)
        formula, xp = self.solution.formula, self.xp
        w = self.sign * xp.astype(self.given, self.wide)
        t = (w * formula.before - formula.reference * formula.before) * formula.after
        q = (t - formula.mean) * formula.gain * (formula.power / self.unit)
        return self._inside(self.sign * q)

    @cached_property
    def spread(self) -> Any:
        """Q = <q, q>."""
        return self.l2_squared * self.solution.spread

    @cached_property
    def spreads(self) -> Any:
        """Whether entries differ."""
        return self._none + self.solution.spread > 0

    @cached_property
    def norm_by_x(self) -> tuple[Any, Any] | None:
        """dlog(l2)/dx, and the unit it has to be divided by."""
        if self.rule != "keep":
            return super().norm_by_x
        # The norm of x is that of the result.
        x = self.xp.astype(self.given, self.wide) / self.unit
        return x * self._inverse(self.l2_squared), self.unit

    def _unit_for(self, sizes: Any) -> Any:
        if self._sums is None:
            size = self.xp.own_total(sizes)
            self._size = moderate(size, self.xp)
            self._share = size / self._size
        return self._size
