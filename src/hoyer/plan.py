"""What is asked of vectors of one length, resolved once: every engine works from a `Plan`.

`Options` is what a caller wrote; a plan is what it means. Plans for plain numbers are remembered,
in one place for all families; whatever can hold another number next time is resolved every time.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .options import Options, check
from .target import NEARLY, Target, resolve

_plans: dict[tuple[Any, ...], "Plan"] = {}
_MOST = 256
"""Whoever has that many targets does not come back to the first ones soon."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Targets and switches for vectors of length `n`."""

    n: int
    target: Target
    """One number for all vectors, or one each, as arrays of the engine that is to use them."""
    options: Options
    """What was given; its targets may be arrays that can be differentiated."""
    forms: dict[str, Any] = field(default_factory=dict, repr=False)
    """What engines have made of this plan for themselves, by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Forms belong to engines of this process.
        return Plan, (self.n, self.target, self.options)

    @property
    def rule(self) -> str:
        """Which L2 norm results have: "fixed", "keep" or "nearest"."""
        return self.options.rule

    @property
    def both_norms(self) -> bool:
        """Whether both norms were given, rather than a sparseness."""
        return self.options.sparseness is None

    @property
    def nonnegative(self) -> bool:
        """Whether results have no negative entries."""
        return bool(self.options.nonnegative)

    @property
    def only_increase(self) -> bool:
        """Whether vectors that are sparse enough keep their direction."""
        return bool(self.options.only_increase)

    @property
    def nearly_constant(self) -> bool:
        """Whether the digits of results do not tell how their entries differ.

        Only known for plain numbers: nobody waits for a device to tell.
        """
        ratio = self.target.ratio
        if not isinstance(ratio, np.ndarray) or ratio.size > 1:
            return False
        return float(ratio[0]) ** 2 > NEARLY * self.n

    @property
    def needs_x(self) -> bool:
        """Whether derivatives cannot be had from the results alone."""
        return self.rule == "keep" or self.nearly_constant


def derivative_plan(n: int, options: Options) -> Plan:
    """Return a plan for derivatives alone, which need no more than what was given."""
    return Plan(n, Target(None, None, None, None, options.rule, False), options)


def plan_for(
    n: int, options: Options, batch: tuple[int, ...] = (), axes: tuple[int, ...] = ()
) -> Plan:
    """Return the plan for vectors of length n whose targets are numbers, or arrays of the host.

    Parameters
    ----------
    n : int
        Length of the vectors.
    options : Options
        What was asked for.
    batch : tuple of int
        Shape of the batch of vectors, to which targets broadcast.
    axes : tuple of int
        Those of the vectors, which targets may have as well, of length 1.

    Raises
    ------
    ValueError, TypeError
        If the target is impossible or incomplete, or an option has no meaning.
    """
    plain = options.is_plain
    key = (n, *options[:3], *options[4:]) if plain else ()
    known = _plans.get(key)
    if known is not None:
        return known
    check(options)
    target = resolve(n, *options[:3], batch, axes=axes, check=options.check_finite)
    plan = Plan(n, target, options)
    if plain:
        if len(_plans) >= _MOST:
            _plans.clear()
        _plans[key] = plan
    return plan
