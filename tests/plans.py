"""Plans of a test's own, whose thresholds it may change."""

from dataclasses import replace

from hoyer.engines.core import core_plan
from hoyer.plan import plan_for


def own_plan(n, options, batch=()):
    """Return the core's plan for these options; nobody else uses it."""
    return core_plan(replace(plan_for(n, options, batch), forms={}))
