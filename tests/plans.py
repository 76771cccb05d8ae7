"""Plans of a test's own, whose thresholds it may change."""

from dataclasses import replace

from hoyer.engines.core import core_plan
from hoyer.plan import masked_plan, plan_for


def own_plan(n, options, batch=()):
    """Return the core's plan for these options; nobody else uses it."""
    return core_plan(replace(plan_for(n, options, batch), forms={}))


def own_masked_plan(n, options, lengths):
    """Return the same for vectors whose masks, in the options, leave so many entries."""
    plan = masked_plan(n, options, options.where, lengths, lengths.shape, (1,))
    return core_plan(replace(plan, forms={}))
