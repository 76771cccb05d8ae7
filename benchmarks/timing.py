"""Interleaved timing: all contestants of a case take turns, so that drifts hit them alike."""

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np


class Contestant(NamedTuple):
    """Something that can be called and timed."""

    name: str
    call: Callable[[], Any]
    before: Callable[[], Any] | None = None
    """Called before each timing, untimed."""


class Quartiles(NamedTuple):
    """Median and spread over the rounds."""

    median: float
    low: float
    high: float


class Settings(NamedTuple):
    """How long to measure."""

    rounds: int
    """Timings per contestant."""
    least: float
    """Seconds of one timing: fast calls are repeated to fill them."""
    most: float
    """Seconds after which a slow contestant drops out, once it took part in three rounds (in one,
    if a single call takes that long)."""


WARM = 5e-3
"""Calls faster than this many seconds are made once untimed, to bring their data to the cache."""

QUICK = Settings(rounds=5, least=2e-3, most=0.5)
FULL = Settings(rounds=7, least=3e-3, most=1.5)


def race(contestants: list[Contestant], settings: Settings) -> dict[str, list[float]]:
    """Let the contestants take turns and return the seconds per call of each, round by round.

    Contestants too slow for all the rounds take part in the first ones.
    """
    estimates = {one.name: estimate(one) for one in contestants}
    repeats = {name: math.ceil(settings.least / seconds) for name, seconds in estimates.items()}
    seconds: dict[str, list[float]] = {one.name: [] for one in contestants}
    gc.collect()
    gc.disable()
    try:
        for number in range(settings.rounds):
            for one in contestants:
                needed = 3 if estimates[one.name] < settings.most else 1
                if number < needed or sum(seconds[one.name]) < settings.most:
                    warm = estimates[one.name] < WARM
                    seconds[one.name].append(timed(one, repeats[one.name], warm=warm))
    finally:
        gc.enable()
    return seconds


def estimate(one: Contestant) -> float:
    """Warm up and return roughly the seconds of a call."""
    repeats = 1
    first = timed(one, 1, warm=False)
    if first > 0.1:
        return first
    # Invariant: what was timed so far is too short to count; the repeats double until it is not.
    while (seconds := timed(one, repeats, warm=False)) * repeats < 5e-4:
        repeats *= 2
    return seconds


def timed(one: Contestant, repeats: int, *, warm: bool) -> float:
    """Return the seconds per call, averaged over the repeats."""
    call = one.call
    if one.before is not None:
        one.before()
    if warm:
        call()
    turns = range(repeats)
    start = time.perf_counter()
    for _ in turns:
        call()
    return (time.perf_counter() - start) / repeats


def quartiles(values: Iterable[float]) -> Quartiles:
    """Return the median and the quartiles."""
    low, median, high = np.quantile(list(values), [0.25, 0.5, 0.75])
    return Quartiles(float(median), float(low), float(high))


def ratios(ours: list[float], theirs: list[float]) -> Quartiles:
    """Return median and quartiles of the ratios within the rounds that both took part in."""
    return quartiles(a / b for a, b in zip(ours, theirs, strict=False))


def microseconds(outcomes: Sequence[Any]) -> list[str]:
    """Return a table of times, a row for each outcome, which has a case and seconds by name."""
    names = list(dict.fromkeys(name for o in outcomes for name in o.seconds))
    lines = ["", "Microseconds per call (medians):", ""]
    lines += [f"| case | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for o in outcomes:
        cells = [f"{o.seconds[n].median * 1e6:.4g}" if n in o.seconds else "" for n in names]
        lines.append(f"| {o.case} | {' | '.join(cells)} |")
    return lines
