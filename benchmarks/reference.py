"""The reference: the closed form over the support in long double, and errors in eps against it."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CHUNK = 2**20
"""Entries that are compared at a time: long double takes four times the memory of float32."""


class Reference(NamedTuple):
    """The projection onto unit norm: p = max(ratio / d + (x - mean) / scale, 0)."""

    x: Array
    ratio: np.longdouble
    """l1 / l2, and l1."""
    d: int
    mean: np.longdouble
    scale: np.longdouble

    @property
    def shift(self) -> np.longdouble:
        """The shift alpha: entries up to it become zero."""
        return np.longdouble(self.mean - self.scale * self.ratio / self.d)

    @property
    def largest(self) -> float:
        """The largest entry of p."""
        return float(self.values(self.x.max(keepdims=True))[0])

    def values(self, x: Array) -> Array:
        """Return the entries of p that belong to these of x."""
        centred = x.astype(np.longdouble) - self.mean
        value: Array = np.maximum(self.ratio / self.d + centred / self.scale, 0)
        return value


def solve(x: Array, sparseness: float, start: float) -> Reference:
    """Project x >= 0 (with generic entries) onto unit norm, in long double.

    From any start below alpha the closed form over the entries above it rises to alpha; a start in
    the right place, such as hoyer's, is confirmed by one step that changes nothing.

    Raises
    ------
    ArithmeticError
        If the start does not lead to a support that reproduces itself.
    """
    ratio = 1 + (1 - np.longdouble(sparseness)) * (np.sqrt(np.longdouble(x.size)) - 1)
    alpha = start
    # Invariant: alpha is a lower bound, or the start; it rises, over finitely many supports.
    for _ in range(100):
        above = x[x > np.float64(alpha)].astype(np.longdouble)
        d = above.size
        if d <= ratio**2:
            break
        mean = above.mean()
        scale = np.sqrt(np.square(above - mean).sum() / (1 - ratio**2 / d))
        alpha = float(mean - scale * ratio / d)
        if np.count_nonzero(x > np.float64(alpha)) == d:
            return Reference(x, ratio, d, mean, scale)
    raise ArithmeticError(f"no projection of {x.size} entries to {sparseness} from shift {start!r}")


def error(reference: Reference, value: Array) -> float:
    """Return the largest error of an entry, in eps of its type times the largest entry."""
    worst = max(
        float(np.abs(value[part].astype(np.longdouble) - reference.values(reference.x[part])).max())
        for part in parts(value.size)
    )
    return worst / (reference.largest * float(np.finfo(value.dtype).eps))


def derivative_error(reference: Reference, y: Array, product: Array) -> float:
    """Return the largest error of an entry of the derivative along y, in eps times |y| / scale.

    On the support p = ratio / d + c with c centred; its derivative along y is what centring and
    removing the part along c leave of y, divided by the scale. Little may be left: |y| / scale is
    what rounding errors are made from.
    """
    support = reference.x > np.float64(reference.shift)
    centred = (reference.x[support].astype(np.longdouble) - reference.mean) / reference.scale
    along = y[support].astype(np.longdouble)
    along -= along.mean()
    along -= centred * ((centred * along).sum() / np.square(centred).sum())
    inside = np.abs(product[support].astype(np.longdouble) - along / reference.scale)
    outside = np.abs(product[~support])
    worst = max(float(inside.max()), float(outside.max(initial=0)))
    unit = float(np.abs(y).max() / reference.scale)
    return worst / (unit * float(np.finfo(product.dtype).eps))


def parts(size: int) -> Iterator[slice]:
    """Cut a vector into pieces."""
    return (slice(start, start + CHUNK) for start in range(0, size, CHUNK))


def simplex(y: Array, l1: float) -> Array:
    """Project rows onto the vectors p >= 0 with the sum l1, in long double.

    Measured downwards from the maximum nothing cancels; every support gives an upper bound of the
    largest entry of p, the right one gives that entry.
    """
    wide = y.astype(np.longdouble)
    below = wide.max(-1, keepdims=True) - wide
    sums = l1 + np.cumsum(np.sort(below, axis=-1), axis=-1)
    top = (sums / np.arange(1, y.shape[-1] + 1)).min(-1, keepdims=True)
    value: Array = np.maximum(top - below, 0)
    return value


def row_errors(value: Array, exact: Array) -> Array:
    """Return the largest error of an entry of every row, in eps times its largest entry."""
    worst = np.abs(value - exact).max(-1) / np.abs(exact).max(-1)
    found: Array = (worst / np.finfo(value.dtype).eps).astype(np.float64)
    return found
