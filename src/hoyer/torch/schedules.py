"""How sparseness rises over time: functions of the number of steps, for `ProjectAfterStep`."""

from collections.abc import Callable

Schedule = Callable[[int], float]


def linear(start: float, end: float, steps: int) -> Schedule:
    """Return a schedule that goes from `start` to `end` in equal steps, and stays there.

    Examples
    --------
    >>> from hoyer.torch import schedules
    >>> [schedules.linear(0.5, 0.9, 4)(step) for step in (1, 2, 4, 9)]
    [0.6, 0.7, 0.9, 0.9]
    """
    return polynomial(start, end, steps, power=1)


def cubic(start: float, end: float, steps: int) -> Schedule:
    """Return a schedule that rises quickly at first and slowly at last."""
    return polynomial(start, end, steps, power=3)


def polynomial(start: float, end: float, steps: int, *, power: float) -> Schedule:
    """Return a schedule whose distance from `end` falls like (1 - step/steps)**power."""
    if steps < 1:
        raise ValueError(f"steps={steps}: a schedule takes at least one step")
    for name, value in (("start", start), ("end", end)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value}: a sparseness must lie in [0, 1]")

    def schedule(step: int) -> float:
        left = 1 - min(max(step, 0), steps) / steps
        return end - (end - start) * float(left**power)

    return schedule
