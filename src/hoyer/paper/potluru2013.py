"""The sorting algorithm of Potluru et al. (2013): the closed form on every prefix at once."""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoyer.paper.algorithms import check_arguments

__all__ = ["Result", "project"]


def __dir__() -> list[str]:
    return __all__


BLOCK = 2**16


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


def project(x: "ArrayLike", l1: float, l2: float) -> Result:
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
    order = np.argsort(-x, kind="stable")
    descending = x[order]
    k, rho = (Fraction(l1) / Fraction(l2)) ** 2, np.longdouble(l1) / np.longdouble(l2)
    # d - K, from the exact value at the shortest prefix with d > K.
    first = int(k) + 1
    first_gap = np.longdouble(float(first - k))

    alpha, size, gap = np.longdouble(-np.inf), first, first_gap
    with np.errstate(all="ignore"):
        for d, mean, second in _prefixes(descending, first):
            gaps = first_gap + (d - first)
            alphas = mean - np.sqrt(second * d / gaps) * rho / d
            best = int(np.argmax(alphas))
            if not alphas[best] <= alpha:
                alpha, size, gap = alphas[best], int(d[best]), gaps[best]
            if np.isnan(alpha):
                break
        # The second sum of the chosen prefix once more, by pairwise summation.
        t = descending[:size].astype(np.longdouble) - np.longdouble(descending[0])
        mean = t.mean()
        centred = t - mean
        scale = np.sqrt(np.square(centred).sum() * size / gap)
        sorted_value = np.maximum(l2 * (rho / size + centred / scale), 0).astype(np.float64)
    if not (np.all(np.isfinite(sorted_value)) and 0 < scale < np.inf and not np.isnan(alpha)):
        msg = "the sums over x leave the range of long double"
        raise FloatingPointError(msg)

    value = np.zeros(x.size)
    value[order[:size]] = sorted_value
    shift = np.longdouble(x.max()) + mean - scale * rho / size
    return Result(value, float(shift), float(scale / l2), int(np.count_nonzero(value)))


def _prefixes(
    descending: NDArray[np.float64], first: int
) -> Iterator[tuple[NDArray[np.longdouble], NDArray[np.longdouble], NDArray[np.longdouble]]]:
    """Size, mean and second sum of every prefix from size `first` on, one block after the other.

    The entries count as differences to the maximum: all of one sign, so that no sum over a prefix
    cancels. The second sum is about the mean (the recurrence of Welford: no cancellation). Blocks
    keep the long doubles, twice as wide as the data, out of the memory that n needs.
    """
    total = last_mean = last_second = np.longdouble(0)
    for start in range(0, descending.size, BLOCK):
        t = descending[start : start + BLOCK].astype(np.longdouble) - np.longdouble(descending[0])
        d = np.arange(start + 1, start + t.size + 1).astype(np.longdouble)
        sums = np.cumsum(np.concatenate(([total], t)))[1:]
        mean = sums / d
        steps = np.square(t - np.concatenate(([last_mean], mean[:-1]))) * ((d - 1) / d)
        second = np.cumsum(np.concatenate(([last_second], steps)))[1:]
        total, last_mean, last_second = sums[-1], mean[-1], second[-1]
        wanted = slice(max(first - 1 - start, 0), None)
        if first <= start + t.size:
            yield d[wanted], mean[wanted], second[wanted]
