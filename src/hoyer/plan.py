"""What is asked of vectors of one length, resolved once: every engine works from a `Plan`.

`Options` is what a caller wrote; a plan is what it means. Plans for plain numbers are remembered,
in one place for all families; whatever can hold another number next time is resolved every time.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .options import Options, check
from .target import NEARLY, Target, resolve

plans: dict[Options, dict[int, "Plan"]] = {}
"""Those made for plain options, by these and by the length of the vectors: the one cache."""
_MOST = 256
"""Whoever has that many targets does not come back to the first ones soon."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Targets and switches for vectors of length `n`; made by `Plan.of`."""

    n: int
    target: Target
    """One number for all vectors, or one each, as arrays of the engine that is to use them."""
    options: Options
    """What was given; its targets may be arrays that can be differentiated."""
    rule: str
    """Which L2 norm results have: "fixed", "keep" or "nearest"."""
    both_norms: bool
    """Whether both norms were given, rather than a sparseness."""
    l1_given: bool
    """Whether the norm came as `l1` beside a sparseness."""
    nonnegative: bool
    """Whether results have no negative entries."""
    only_increase: bool
    """Whether vectors that are sparse enough keep their direction."""
    nearly_constant: bool
    """Whether the digits of results do not tell how their entries differ; False if not known."""
    needs_x: bool
    """Whether derivatives cannot be had from the results alone."""
    forms: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What engines have made of this plan for themselves."""

    @staticmethod
    def of(n: int, target: Target, options: Options) -> "Plan":
        """Return the plan for a target that was resolved."""
        ratio, rule = target.ratio, options.rule
        # Only what the host knows: nobody waits for a device to tell.
        known = isinstance(ratio, np.ndarray) and ratio.size == 1
        nearly_constant = known and float(ratio[0]) ** 2 > NEARLY * n
        return Plan(
            n,
            target,
            options,
            rule,
            options.sparseness is None,
            options.sparseness is not None and options.l1 is not None,
            bool(options.nonnegative),
            bool(options.only_increase),
            nearly_constant,
            rule == "keep" or nearly_constant,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Forms belong to engines of this process.
        return Plan.of, (self.n, self.target, self.options)


def derivative_plan(n: int, options: Options) -> Plan:
    """Return a plan for derivatives alone, which need no more than what was given."""
    return Plan.of(n, Target(None, None, None, None), options)


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
    plan = plain_plan(n, options)
    return _made(n, options, batch, axes) if plan is None else plan


def plain_plan(n: int, options: Options) -> Plan | None:
    """Return the plan if all options are plain words and numbers; the same one every time."""
    if not options.is_plain:
        return None
    try:
        return plans[options][n]
    except KeyError:
        pass
    plan = _made(n, options, (), ())
    for by in (plans, plans.get(options, {})):
        if len(by) >= _MOST:
            by.clear()
    plans.setdefault(options, {})[n] = plan
    return plan


def _made(n: int, options: Options, batch: tuple[int, ...], axes: tuple[int, ...]) -> Plan:
    check(options)
    target = resolve(n, *options[:3], batch, axes=axes, check=options.check_finite)
    return Plan.of(n, target, options)
