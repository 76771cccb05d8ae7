"""Where to start: in standard deviations from the mean, for normal vectors or their magnitudes."""

import math
from functools import lru_cache

_MEAN = math.sqrt(2 / math.pi)
_DEVIATION = math.sqrt(1 - 2 / math.pi)


def _share(pivot: float, *, magnitudes: bool) -> float:
    """Return E[t]^2/E[t^2], t = max(z - pivot, 0), for z standard normal or its magnitude."""
    if magnitudes and pivot < 0:
        first, second = _MEAN - pivot, 1 - 2 * pivot * _MEAN + pivot * pivot
        return first * first / second
    density = math.exp(-0.5 * pivot * pivot) / math.sqrt(2 * math.pi)
    above = 0.5 * math.erfc(pivot / math.sqrt(2))
    first = density - pivot * above
    second = (1 + pivot * pivot) * above - pivot * density
    if not (first > 0 and second > 0):
        return 0.0
    return (2 if magnitudes else 1) * first * first / second


@lru_cache(maxsize=1024)
def normal_start(share: float, *, magnitudes: bool) -> float:
    """Return the pivot at which a vector has the wanted K/n."""
    low, high = -6.0, 8.0
    # Invariant: the share falls with the pivot, and the wanted one lies in between.
    for _ in range(30):
        middle = (low + high) / 2
        if _share(middle, magnitudes=magnitudes) > share:
            low = middle
        else:
            high = middle
    return (low - _MEAN) / _DEVIATION if magnitudes else low
