"""How sparseness rises over time: functions of the number of steps, for `ProjectAfterStep`.

Any function from the number of steps (1 for the first) to a sparseness will do; these are the usual
ones, which can be printed and pickled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .arguments import as_sparseness, check_count

__all__ = ["Polynomial", "Schedule", "cubic", "linear", "polynomial"]


def __dir__() -> list[str]:
    return __all__


Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Polynomial:
    """A schedule whose distance from `end` falls like ``(1 - step/steps)**power``."""

    start: float
    end: float
    steps: int
    power: float

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 1)
        for name in ("start", "end"):
            value = getattr(self, name)
            as_sparseness(f"{name}={value!r}", value)
        if not self.power > 0:
            raise ValueError(f"power={self.power}: must be positive")

    def __call__(self, step: int) -> float:
        """Return the sparseness after so many steps."""
        left = 1 - min(max(step, 0), self.steps) / self.steps
        return self.end - (self.end - self.start) * float(left**self.power)


def linear(start: float, end: float, steps: int) -> Polynomial:
    """Return a schedule that goes from `start` to `end` in equal steps, and stays there.

    Parameters
    ----------
    start, end : float
        Sparseness before the first step and from the last one on.
    steps : int
        How many steps it takes.

    Examples
    --------
    >>> from hoyer.torch import schedules
    >>> [schedules.linear(0.5, 0.9, 4)(step) for step in (1, 2, 4, 9)]
    [0.6, 0.7, 0.9, 0.9]
    """
    return polynomial(start, end, steps, power=1)


def cubic(start: float, end: float, steps: int) -> Polynomial:
    """Return a schedule that rises quickly at first and slowly at last.

    Parameters
    ----------
    start, end, steps
        As in `linear`.

    Examples
    --------
    >>> from hoyer.torch import schedules
    >>> [round(schedules.cubic(0.5, 0.9, 4)(step), 3) for step in (1, 2, 3, 4)]
    [0.731, 0.85, 0.894, 0.9]
    """
    return polynomial(start, end, steps, power=3)


def polynomial(start: float, end: float, steps: int, *, power: float) -> Polynomial:
    """Return a schedule whose distance from `end` falls like ``(1 - step/steps)**power``.

    Parameters
    ----------
    start, end, steps
        As in `linear`.
    power : float
        1 is `linear`, 3 is `cubic`; below 1 it rises slowly at first.

    Examples
    --------
    >>> from hoyer.torch import schedules
    >>> schedules.polynomial(0.5, 0.9, 4, power=2)
    Polynomial(start=0.5, end=0.9, steps=4, power=2)
    >>> schedules.polynomial(0.5, 0.9, 4, power=2)(2)
    0.8
    """
    return Polynomial(start, end, steps, power)
