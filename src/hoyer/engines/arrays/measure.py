"""Hoyer's sparseness in plain array operations, which automatic differentiation can follow."""

import math
from typing import Any

from .namespace import Namespace
from .products import largest


def sparseness(x: Any, xp: Namespace) -> Any:
    """Return sigma of the vectors in the last axis, in the precision of x.

    With mean m and sum of squares V about it over the magnitudes, S = V + n m^2 their sum of
    squares and r the ratio of norms, n - r^2 = n V/S, and sigma = n V / (S (sqrt(n) + r)
    (sqrt(n) - 1)): no digits are lost near sparseness 0. Where sigma is not defined its gradient
    is zero.
    """
    n, size = xp.length(x), abs(x)
    # In units of the largest entry no square overflows or vanishes; sigma does not depend on them.
    size = xp.astype(size, xp.wide(x))
    size = size / largest(size, xp)
    mean = xp.total(size) / n
    # What is differentiated keeps the deviations, and nothing else that is wide.
    spread = xp.total(xp.square(size - mean))
    square = spread + n * xp.square(mean)
    # Nowhere, for vectors of length 1.
    there = square > 0 if n > 1 else square < 0
    safe = xp.where(there, square, 1.0)
    # A compiler's symbol for a length is no int.
    root = math.sqrt(n) if isinstance(n, int) else n**0.5
    step = root - 1 if n > 1 else 1.0
    sigma = n * spread / (safe * (root + n * mean / xp.sqrt(safe)) * step)
    sigma = xp.with_value(sigma, xp.clip(xp.stopped(sigma), 0, 1))
    return xp.astype(xp.where(there, sigma, math.nan)[..., 0], x.dtype)
