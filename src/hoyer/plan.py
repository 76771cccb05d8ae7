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
_SHORT = 1024
"""Targets for all lengths up to this one are made once, even for a single vector."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Targets and switches for vectors of length `n`; made by `Plan.of`."""

    n: int
    target: Target
    """One number for all vectors, or one each, as arrays of the engine that is to use them."""
    options: Options
    """What was given; its targets may be arrays that can be differentiated."""
    rule: str
    """Which L2 norm results have: a name of `options.RULES`."""
    at_most: bool
    """Whether the norms are upper bounds."""
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
    where: Any = None
    """Which entries form the vectors, if not all: an array of booleans of whoever computes, shaped
    like what is projected. The others come out as 0, whatever they are."""
    lengths: Any = None
    """How many entries of each vector `where` leaves, shaped like the batch; None: n of all."""
    forms: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What engines have made of this plan for themselves."""

    @staticmethod
    def of(
        n: int, target: Target, options: Options, where: Any = None, lengths: Any = None
    ) -> "Plan":
        """Return the plan for a target that was resolved."""
        ratio, rule = target.ratio, options.rule
        # Only what the host knows: nobody waits for a device to tell.
        known = isinstance(ratio, np.ndarray) and (ratio.size == 1 or lengths is not None)
        nearly_constant = known and rule != "free" and _some_nearly_constant(n, ratio, lengths)
        return Plan(
            n,
            target,
            options,
            rule,
            bool(options.at_most),
            options.sparseness is None,
            options.sparseness is not None and options.l1 is not None,
            bool(options.nonnegative),
            bool(options.only_increase),
            nearly_constant,
            rule == "keep" or nearly_constant,
            where,
            lengths,
        )

    @property
    def is_table(self) -> bool:
        """Whether there is a target for each length, from 0 on, rather than for each vector."""
        return self.where is None and self.lengths is not None

    @property
    def serves_all(self) -> bool:
        """Whether none of the targets of a table is impossible; found out once."""
        known: bool | None = self.forms.get("serves all")
        if known is None:
            known = self.forms["serves all"] = not np.isnan(self.target.ratio).any()
        return known

    def __reduce__(self) -> tuple[Any, ...]:
        # Forms belong to engines of this process.
        return Plan.of, (self.n, self.target, self.options, self.where, self.lengths)


def _some_nearly_constant(n: int, ratio: Any, lengths: Any) -> bool:
    if lengths is None:
        number: float = ratio.item()
        return number * number > NEARLY * n
    entries = np.reshape(lengths, -1)
    # A single entry differs from no other one.
    return bool(np.any((ratio**2 > NEARLY * entries) & (entries > 1)))


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


def masked_plan(  # noqa: PLR0917 - as `plan_for`, and what masks add
    n: int,
    options: Options,
    where: Any,
    lengths: Any,
    batch: tuple[int, ...] = (),
    axes: tuple[int, ...] = (),
) -> Plan:
    """Return the plan for vectors of which a mask leaves some entries; targets are as before.

    Parameters
    ----------
    n : int
        Length of the vectors with all their entries.
    options : Options
        What was asked for.
    where : array of bool
        `Plan.where`.
    lengths : ndarray of int
        `Plan.lengths`.
    batch, axes : tuple of int
        As in `plan_for`.
    """
    options = options._replace(where=None)
    check(options)
    table = table_for(n, options, lengths.size)
    target = None if table is None else _looked_up(table, lengths)
    if target is None:
        target = _resolved(lengths.astype(np.float64), options, batch, axes)
    return Plan.of(n, target, options, where, lengths)


def table_for(n: int, options: Options, vectors: int) -> Plan | None:
    """Return `by_length` for plain targets, unless it is large and the vectors are few."""
    serves = options.is_plain and n > 1 and (vectors > n or n <= _SHORT)
    return by_length(n, options) if serves else None


def _looked_up(table: Plan, lengths: Any) -> Target | None:
    """Look up what vectors of these lengths are asked for.

    None if that is impossible for one of them: whoever asks vector by vector says for which.
    """
    found = Target(*(column[lengths.reshape(-1)] for column in table.target))
    return None if table.options.check_finite and np.isnan(found.ratio).any() else found


def by_length(n: int, options: Options) -> Plan:
    """Return a plan for one vector of each length up to n, whose targets are plain numbers.

    Impossible ones are NaN. It is the same one every time, for vectors that have a plan.
    """
    plan = plain_plan(n, options) if n > 1 else None
    table: Plan | None = None if plan is None else plan.forms.get("lengths")
    if table is None:
        check(options)
        lengths = np.arange(n + 1.0)
        target = _resolved(lengths, options._replace(check_finite=False), lengths.shape, ())
        table = Plan.of(n, target, options, lengths=lengths)
        if plan is not None:
            plan.forms["lengths"] = table
    return table


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
    return Plan.of(n, _resolved(n, options, batch, axes), options)


def _resolved(n: Any, options: Options, batch: tuple[int, ...], axes: tuple[int, ...]) -> Target:
    return resolve(
        n,
        *options[:3],
        batch,
        axes=axes,
        at_most=bool(options.at_most),
        check=options.check_finite,
    )
