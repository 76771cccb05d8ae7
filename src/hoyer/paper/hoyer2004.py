"""The alternating projection of Hoyer (2004) between a hyperplane, a sphere and the orthant."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hoyer.paper.algorithms import check_arguments, check_projection, shifted_to_zero

__all__ = ["Result", "project"]


def __dir__() -> list[str]:
    return __all__


class Result(NamedTuple):
    """The projection and what it cost."""

    value: NDArray[np.float64]
    """The projection p."""
    iterations: int
    """How often the sphere was reached."""


def project(x: "ArrayLike", l1: float, l2: float, max_iterations: int | None = None) -> Result:
    """Project any real vector onto D = {p >= 0, ||p||_1 = l1, ||p||_2 = l2} by alternation.

    Go to the hyperplane of all s with sum l1; from its midpoint through s to the sphere of radius
    l2; if entries became negative, set them to zero for good, return to the hyperplane by a shift
    of the others, and go to the sphere again. Every round but the last fixes an entry at zero, so
    there are at most n rounds.

    Parameters
    ----------
    x : array_like
        Vector of n numbers, of any sign.
    l1, l2 : float
        Target norms with l2 < l1 < sqrt(n) * l2.
    max_iterations : int, optional
        How many rounds to allow; n if not given.

    Returns
    -------
    Result
        The projection and the number of rounds.

    Raises
    ------
    ValueError
        If `x` is not finite, the norms are outside the admissible interval, or at least
        (l1 / l2)**2 entries equal the maximum (as in a constant vector): there is no direction in
        which to leave the midpoint, or the projection is not unique.
    RuntimeError
        If `max_iterations` rounds were not enough.
    FloatingPointError
        If rounding spoils the result by more than 1e-9 of its maximum.

    References
    ----------
    P. O. Hoyer, "Non-negative matrix factorization with sparseness constraints", Journal of
    Machine Learning Research 5, 1457-1469, 2004.

    Examples
    --------
    >>> result = project([1.0, 2.0, 3.0, 4.0], 1.5, 1.0)
    >>> result.value.round(6)
    array([0.      , 0.146447, 0.5     , 0.853553])
    >>> result.iterations
    2
    """
    x, l1, l2 = check_arguments(x, l1, l2)
    limit = x.size if max_iterations is None else max_iterations
    # Powers of two, so that squares stay in range and no digit is lost.
    exponent = math.frexp(l2)[1]
    radius, total = math.ldexp(l2, -exponent), math.ldexp(l1, -exponent)
    t = shifted_to_zero(x)
    everything = np.ones(x.size, dtype=bool)
    with np.errstate(all="ignore"):
        free, iterations = _alternate(_of_order_one(t, everything), total, radius, limit)
        # The last round once more, from x itself: rounding errors of the earlier ones are gone.
        s = _to_hyperplane(_of_order_one(t, free), free, total)
        s = np.maximum(_to_sphere(s, free, total, radius), 0.0)
        value = np.ldexp(s, exponent)
    check_projection(x, value, l1, l2)
    return Result(value, iterations)


def _of_order_one(t: NDArray[np.float64], free: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Scale so that the smallest free entry is between -1 and -1/2."""
    scaled: NDArray[np.float64] = np.ldexp(t, -math.frexp(t[free].min())[1])
    return scaled


def _alternate(
    x: NDArray[np.float64], l1: float, l2: float, limit: int
) -> tuple[NDArray[np.bool_], int]:
    """Alternate until no entry is negative; return which ones were not set to zero."""
    free = np.ones(x.size, dtype=bool)
    s = _to_hyperplane(x, free, l1)
    # Invariant: s sums to l1, and its entries outside `free` are zero, as they are in the result.
    for iteration in range(1, limit + 1):
        s = _to_sphere(s, free, l1, l2)
        negative = s < 0
        # Without a positive entry, rounding has spoilt s: the caller's check will say so.
        if not (negative.any() and np.any(s > 0)):
            return free, iteration
        free &= ~negative
        s = _to_hyperplane(np.where(free, s, 0.0), free, l1)
    msg = f"entries are still negative after max_iterations = {limit} rounds; {x.size} always do"
    raise RuntimeError(msg)


def _to_hyperplane(
    s: NDArray[np.float64], free: NDArray[np.bool_], l1: float
) -> NDArray[np.float64]:
    """Shift the free entries so that they sum to l1."""
    return np.where(free, s - (s[free].sum() - l1) / np.count_nonzero(free), 0.0)


def _to_sphere(
    s: NDArray[np.float64], free: NDArray[np.bool_], l1: float, l2: float
) -> NDArray[np.float64]:
    """Go from the midpoint of the free entries through s as far as norm l2."""
    midpoint = np.where(free, l1 / np.count_nonzero(free), 0.0)
    direction = s - midpoint
    # ||midpoint + a * direction||**2 = l2**2 is a quadratic equation in a; its root a >= 0.
    squared = np.square(direction).sum()
    half_linear = (midpoint * direction).sum()
    constant = np.square(midpoint).sum() - l2**2
    a = (np.sqrt(half_linear**2 - squared * constant) - half_linear) / squared
    result: NDArray[np.float64] = midpoint + a * direction
    return result
