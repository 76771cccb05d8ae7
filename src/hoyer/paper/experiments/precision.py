"""Who is right: a projection checked against the closed form on its support, in long double.

If q = max((x - alpha) / beta, 0) with beta > 0 has the two norms of the target, q is the projection
of x: for every other p of these norms <p, x> = <p, x - alpha> + alpha l1 is at most
l2 ||max(x - alpha, 0)||_2 + alpha l1 = <q, x>, and on the target set the nearest point is the one
with the largest inner product. So no second search is needed to judge the first.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClosedForm", "closed_form", "error_of", "holds"]

Vector = NDArray[Any]

# Long doubles are made block by block: a second vector of them would be twice as large as x.
_BLOCK = 2**18


class ClosedForm(NamedTuple):
    """The numbers of q = max(base + (x - mean) / scale, 0), in long double."""

    mean: np.longdouble
    scale: np.longdouble
    base: np.longdouble


def closed_form(x: Vector, p: Vector, l1: float, l2: float) -> ClosedForm | None:
    """Return the closed form on the support of p, None if no vector with it has these norms.

    Parameters
    ----------
    x, p : ndarray
        The vector, and what may be its projection.
    l1, l2 : float
        The norms of the target, taken as exact.

    Examples
    --------
    >>> form = closed_form(np.array([3.0, 1.0]), np.array([1.2, 0.2]), 1.4, 1.48**0.5)
    >>> float(form.mean), round(float(form.scale), 12), float(form.base)
    (2.0, 2.0, 0.7)
    """
    d = int(np.count_nonzero(p))
    k = (Fraction(l1) / Fraction(l2)) ** 2
    if not d > k:
        return None
    gap = np.longdouble(float((d - k) / d))
    inside = (wide[own != 0] for wide, own in _blocks(x, p))
    mean = sum((block.sum() for block in inside), start=np.longdouble(0)) / d
    inside = (wide[own != 0] - mean for wide, own in _blocks(x, p))
    second = sum((np.square(block).sum() for block in inside), start=np.longdouble(0))
    return ClosedForm(mean, np.sqrt(second / gap) / l2, np.longdouble(l1) / d)


def holds(form: ClosedForm, x: Vector, l1: float, l2: float) -> bool:
    """Whether the closed form, clipped at zero, has both norms: then it is the projection.

    They may be off by what the type of x can tell: an entry that is zero to rounding may be missed
    in the support.
    """
    norm1 = norm2 = np.longdouble(0)
    for wide, _ in _blocks(x, x):
        q = _values(form, wide)
        norm1 += q.sum()
        norm2 += np.square(q).sum()
    tolerance = 16 * np.finfo(x.dtype).eps
    ratios = (norm1 / l1, np.sqrt(norm2) / l2)
    return all(bool(abs(ratio - 1) <= tolerance) for ratio in ratios)


def error_of(form: ClosedForm, x: Vector, p: Vector) -> float:
    """Return by how much p differs from the closed form, relative to the largest entry."""
    error = largest = np.longdouble(0)
    for wide, own in _blocks(x, p):
        q = _values(form, wide)
        error = max(error, np.abs(q - own).max())
        largest = max(largest, q.max())
    return float(error / largest)


def _values(form: ClosedForm, wide: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    values: NDArray[np.longdouble] = np.maximum(form.base + (wide - form.mean) / form.scale, 0)
    return values


def _blocks(x: Vector, p: Vector) -> Iterator[tuple[NDArray[np.longdouble], Vector]]:
    for start in range(0, x.size, _BLOCK):
        piece = slice(start, start + _BLOCK)
        yield x[piece].astype(np.longdouble), p[piece]
