"""The sorting algorithm of Potluru et al. (2013): the closed form on every prefix at once."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoyer.paper.algorithms import check_arguments

__all__ = ["Result", "project"]


class Result(NamedTuple):
    """The projection and how it came about."""

    value: NDArray[np.float64]
    """The projection p."""
    shift: float
    """The number alpha with p = max((x - alpha) / beta, 0)."""
    scale: float
    """The number beta."""
    support_size: int
    """The number d of positive entries of p."""


def project(x: ArrayLike, l1: float, l2: float) -> Result:
    """Project any real vector onto D = {p >= 0, ||p||_1 = l1, ||p||_2 = l2} by sorting it.

    The support of the projection holds the d largest entries for some d > K = (l1 / l2)**2, and
    the closed form of a prefix is a lower bound of alpha with equality at the right d: the largest
    of them is alpha. Sums run in long double, the widest type that NumPy has; where it is no
    wider than double, vectors that fill the whole exponent range raise an error.

    Parameters
    ----------
    x : array_like
        Vector of n numbers, of any sign.
    l1, l2 : float
        Target norms with l2 < l1 < sqrt(n) * l2.

    Returns
    -------
    Result
        The projection, alpha, beta and d.

    Raises
    ------
    ValueError
        If `x` is not finite, the norms are outside the admissible interval, or at least K entries
        equal the maximum.
    FloatingPointError
        If the sums over- or underflow.

    References
    ----------
    V. K. Potluru et al., "Block coordinate descent for sparse NMF", arXiv:1301.3527, 2013.

    Examples
    --------
    >>> result = project([1.0, 2.0, 3.0, 4.0], 1.5, 1.0)
    >>> result.value.round(6)
    array([0.      , 0.146447, 0.5     , 0.853553])
    >>> result.support_size, round(result.scale, 6)
    (3, 2.828427)
    """
    x, l1, l2 = check_arguments(x, l1, l2)
    n = x.size
    order = np.argsort(-x, kind="stable")
    # Differences to the maximum: all of one sign, so that no sum over a prefix cancels.
    t = x[order].astype(np.longdouble) - np.longdouble(x.max())
    d = np.arange(1, n + 1).astype(np.longdouble)

    # Mean and second sum about it for every prefix (the recurrence of Welford: no cancellation).
    mean = np.cumsum(t) / d
    second = np.zeros_like(t)
    second[1:] = np.cumsum(np.square(t[1:] - mean[:-1]) * (d[:-1] / d[1:]))

    # d - K, from the exact value at the shortest prefix with d > K.
    k = (Fraction(l1) / Fraction(l2)) ** 2
    first = int(k) + 1
    candidates = slice(first - 1, n)
    gap = np.longdouble(float(first - k)) + (d[candidates] - first)
    rho = np.longdouble(l1) / np.longdouble(l2)
    with np.errstate(all="ignore"):
        beta = np.sqrt(second[candidates] * d[candidates] / gap)
        alpha = mean[candidates] - beta * rho / d[candidates]
        best = int(np.argmax(alpha))
        size = first + best
        # The second sum of the chosen prefix once more, by pairwise summation.
        centred = t[:size] - t[:size].mean()
        scale = np.sqrt(np.square(centred).sum() * size / gap[best])
        sorted_value = np.maximum(l2 * (rho / size + centred / scale), 0).astype(np.float64)
    if not (np.all(np.isfinite(sorted_value)) and 0 < scale < np.inf):
        msg = "the sums over x leave the range of long double"
        raise FloatingPointError(msg)

    value = np.zeros(n)
    value[order[:size]] = sorted_value
    shift = np.longdouble(x.max()) + t[:size].mean() - scale * rho / size
    return Result(value, float(shift), float(scale / l2), int(np.count_nonzero(value)))
