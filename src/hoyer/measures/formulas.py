"""The measures of Hurley and Rickard's Table I, in its order: one function and one formula each.

In the formulas c is a vector of magnitudes, ``c_j = |x_j|``, N its length, ``c_(1) <= ... <=
c_(N)`` its entries in order. Sums are taken in float64 and in units of the largest entry, so that
they overflow or underflow only where their value does. In the code c may lack some of the zeros,
those that a sparse array does not store: they count where N does, and nowhere else.
"""

import math
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ..api import sparseness as hoyer
from ..families import is_sparse, refuse_foreign
from ..families.numpy.arrays import as_floats, view
from ..families.numpy.nonzeros import nonzeros
from ..options import AnyFunction, Axis, refuse_dim

Floats: TypeAlias = npt.NDArray[np.float64]

SHARED = """\
Parameters
----------
x : array_like or SciPy sparse array
    Real vectors.
{}axis : int, tuple of int or None, default -1
    The axis along which the vectors lie; several axes together form one vector, None takes the
    whole array as one.

Returns
-------
float64 or array of float64
    One number per vector; NaN for vectors with NaN or infinity.

Raises
------
TypeError, ValueError
    For arrays and axes that `hoyer.sparseness` does not take, and for parameters out of range.

"""
"""What the documentation of all measures has in common; their own parameters go in between."""

MEASURES: dict[str, Callable[..., Any]] = {}
"""All measures by name, in the paper's order."""


def measure(function: AnyFunction) -> AnyFunction:
    """Add a measure to `MEASURES`, complete its documentation, let it say what `dim` is here."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if "dim" in options:
            refuse_dim(options["dim"])
        return function(*arguments, **options)

    before, examples, after = cleandoc(function.__doc__ or "").partition("Examples\n")
    before, _, own = before.partition("Parameters\n----------\n")
    wrapped.__doc__ = before + SHARED.format(own.rstrip() + "\n" * bool(own)) + examples + after
    MEASURES[function.__name__] = wrapped
    return cast(AnyFunction, wrapped)


@measure
def l0(x: Any, *, axis: Axis = -1) -> Any:
    """Return how many entries are zero: ``#{j : c_j = 0}``.

    From 0 (no entry is zero) to N (all are).

    Examples
    --------
    >>> l0([[0.0, 1.0, 0.0], [3.0, 1.0, 2.0]])
    array([2., 0.])
    """
    return evaluate(x, axis, lambda c, n: n - (c != 0).sum(-1))


@measure
def l0_eps(x: Any, *, eps: float = 0.01, axis: Axis = -1) -> Any:
    """Return how many entries are almost zero: ``#{j : c_j <= eps}``.

    From 0 to N. It depends on the scale of x.

    Parameters
    ----------
    eps : float, default 0.01
        What still counts as zero; not negative.

    Examples
    --------
    >>> l0_eps([0.0, 0.02, -0.001, 3.0]), l0_eps([0.0, 0.02, -0.001, 3.0], eps=0.1)
    (np.float64(2.0), np.float64(3.0))
    """
    require(eps >= 0, f"eps={eps!r}: must not be negative")
    return evaluate(x, axis, lambda c, n: n - (c > eps).sum(-1))


@measure
def neg_l1(x: Any, *, axis: Axis = -1) -> Any:
    """Return the negative sum of magnitudes: ``-sum_j c_j``.

    From minus infinity to 0, the value of a zero vector. It depends on the scale of x.

    Examples
    --------
    >>> neg_l1([[1.0, -2.0, 3.0], [0.0, 0.0, 1.0]])
    array([-6., -1.])
    """
    return neg_lp(x, p=1.0, axis=axis)


@measure
def neg_lp(x: Any, *, p: float = 0.5, axis: Axis = -1) -> Any:
    """Return the negative lp quasi-norm: ``-(sum_j c_j^p)^(1/p)``, 0 < p <= 1.

    From minus infinity to 0, the value of a zero vector. It depends on the scale of x.

    Parameters
    ----------
    p : float, default 0.5
        The exponent, above 0 and at most 1.

    Examples
    --------
    >>> neg_lp([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]])
    array([-4., -2.])
    """
    require(0 < p <= 1, f"p={p!r}: must lie in (0, 1]; neg_lp_minus is for p < 0")

    def formula(c: Floats, _: int) -> Any:
        top: Floats = c.max(-1)
        shares = c / np.where(top > 0, top, 1.0)[..., None]
        return -top * (shares**p).sum(-1) ** (1 / p)

    return evaluate(x, axis, formula)


@measure
def l2_over_l1(x: Any, *, axis: Axis = -1) -> Any:
    """Return the quotient of norms: ``sqrt(sum_j c_j^2) / sum_j c_j``.

    From 1 / sqrt(N) (all magnitudes alike) to 1 (a single nonzero entry); NaN for zero vectors.

    Examples
    --------
    >>> l2_over_l1([[1.0, -1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]]).round(3)
    array([0.5  , 1.   , 0.714])
    """
    return evaluate(x, axis, lambda c, _: np.sqrt((c**2).sum(-1)) / c.sum(-1), in_units=True)


@measure
def neg_tanh(x: Any, *, a: float = 1.0, b: float = 1.0, axis: Axis = -1) -> Any:
    """Return a smooth count of zeros, minus N: ``-sum_j tanh((a c_j)^b)``.

    From -N to 0, the value of a zero vector. It depends on the scale of x.

    Parameters
    ----------
    a, b : float, default 1
        Slope and exponent, both positive.

    Examples
    --------
    >>> neg_tanh([[100.0, 0.0, 0.0], [1.0, 1.0, 0.0]]).round(3)
    array([-1.   , -1.523])
    """
    require(a > 0 and b > 0, f"a={a!r}, b={b!r}: both must be positive")
    return evaluate(x, axis, lambda c, _: -np.tanh((a * c) ** b).sum(-1))


@measure
def neg_log(x: Any, *, axis: Axis = -1) -> Any:
    """Return the negative sum of logarithms: ``-sum_j log(1 + c_j^2)``.

    From minus infinity to 0, the value of a zero vector. It depends on the scale of x.

    Examples
    --------
    >>> neg_log([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]]).round(3)
    array([-1.386, -1.609])
    """
    return evaluate(x, axis, lambda c, _: -np.logaddexp(0.0, 2 * np.log(c)).sum(-1))


@measure
def kappa4(x: Any, *, axis: Axis = -1) -> Any:
    """Return the kurtosis: ``sum_j c_j^4 / (sum_j c_j^2)^2``.

    From 1 / N (all magnitudes alike) to 1 (a single nonzero entry); NaN for zero vectors.

    Examples
    --------
    >>> kappa4([[1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0], [3.0, 1.0, 0.0, 0.0]])
    array([0.25, 1.  , 0.82])
    """
    return evaluate(x, axis, lambda c, _: (c**4).sum(-1) / (c**2).sum(-1) ** 2, in_units=True)


@measure
def u_theta(x: Any, *, theta: float = 0.5, axis: Axis = -1) -> Any:
    """Return how closely a share theta of the entries lie together.

    ``1 - min_i (c_(i+k-1) - c_(i)) / (c_(N) - c_(1))`` with ``k = ceil(N theta)``: the shortest
    interval that holds k entries, relative to the range of all. From 0 to 1 (k entries are equal);
    NaN for vectors whose magnitudes are all alike (zero vectors among them), and if k = N.

    Parameters
    ----------
    theta : float, default 0.5
        The share of the entries, above 0 and below 1.

    Examples
    --------
    >>> u_theta([[1.0, 2.0, 4.0, 11.0], [0.0, 0.0, 4.0, 11.0]])
    array([0.9, 1. ])
    """
    require(0 < theta < 1, f"theta={theta!r}: must lie between 0 and 1")

    def formula(c: Floats, n: int) -> Any:
        # Rounded before the ceiling: 100 * 0.07 is 7, not a bit more.
        k = math.ceil(round(n * theta, 9))
        if k == n:
            return np.full(c.shape[:-1], np.nan)
        c, missing = np.sort(c, -1), n - c.shape[-1]
        ends, lowest = c[..., k - 1 :], c[..., 0]
        widths = ends - c[..., : ends.shape[-1]]
        if missing:
            # Of the intervals that begin at a zero which is not there, the first is the shortest.
            first = c[..., [k - 1 - missing]] if missing < k else np.zeros_like(c[..., :1])
            widths, lowest = np.concatenate([first, widths], -1), np.zeros_like(lowest)
        return 1 - widths.min(-1) / (c[..., -1] - lowest)

    return evaluate(x, axis, formula, in_units=True)


@measure
def neg_lp_minus(x: Any, *, p: float = -1.0, axis: Axis = -1) -> Any:
    """Return the negative sum of negative powers: ``-sum_{c_j != 0} c_j^p``, p < 0.

    From minus infinity to 0; zeros do not count, and a zero vector has 0. It depends on the scale
    of x.

    Parameters
    ----------
    p : float, default -1
        The exponent, negative.

    Examples
    --------
    >>> neg_lp_minus([[2.0, 4.0, 0.0], [2.0, 400.0, 0.0]])
    array([-0.75  , -0.5025])
    """
    require(p < 0, f"p={p!r}: must be negative; neg_lp is for 0 < p <= 1")
    return evaluate(x, axis, lambda c, _: -over_nonzero(lambda entry: entry**p, c))


@measure
def h_g(x: Any, *, axis: Axis = -1) -> Any:
    """Return the Gaussian entropy, negated: ``-sum_{c_j != 0} log c_j^2``.

    Any real number; zeros do not count, and a zero vector has 0. It depends on the scale of x.

    Examples
    --------
    >>> h_g([[1.0, 1.0], [1.9, 0.1]]).round(3)
    array([0.   , 3.321])
    """
    return evaluate(x, axis, lambda c, _: -2 * over_nonzero(np.log, c))


@measure
def h_s(x: Any, *, axis: Axis = -1) -> Any:
    """Return Shannon's formula for the energies: ``-sum_j e_j log e_j^2``, ``e = c^2 / ||c||_2^2``.

    From 0 (a single nonzero entry) to 2 log N (all magnitudes alike), with 0 log 0 = 0. As in the
    paper this is an entropy, and *smaller* for sparser vectors; its negative measures sparsity. NaN
    for zero vectors.

    Examples
    --------
    >>> h_s([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]).round(3)
    array([2.773, 1.386])
    """

    def formula(c: Floats, _: int) -> Any:
        energy = c**2 / (c**2).sum(-1, keepdims=True)
        return -2 * over_nonzero(lambda entry: entry * np.log(entry), energy)

    return evaluate(x, axis, formula, in_units=True)


@measure
def h_s_prime(x: Any, *, axis: Axis = -1) -> Any:
    """Return Shannon's formula for the magnitudes as they are: ``-sum_j c_j log c_j^2``.

    Any real number, with 0 log 0 = 0; a zero vector has 0. As in the paper this is an entropy, no
    measure of sparsity: it is neither larger nor smaller for sparser vectors, and depends on the
    scale of x.

    Examples
    --------
    >>> h_s_prime([[0.5, 0.5], [1.0, 0.0]]).round(3)
    array([1.386, 0.   ])
    """
    return evaluate(x, axis, lambda c, _: -2 * over_nonzero(lambda entry: entry * np.log(entry), c))


MEASURES["hoyer"] = hoyer


@measure
def pq_mean(x: Any, *, p: float = 1.0, q: float = 2.0, axis: Axis = -1) -> Any:
    """Return the negative quotient of two means, p <= 1 < q.

    ``-(1/N sum_j c_j^p)^(1/p) / (1/N sum_j c_j^q)^(1/q)``. From -1 (all magnitudes alike) to
    ``-N^(1/q - 1/p)`` (a single nonzero entry). A mean with p = 0 is the geometric mean; with
    p <= 0 the mean of a vector with a zero is 0, so that the measure is 0 for all of those, but NaN
    for zero vectors.

    Parameters
    ----------
    p : float, default 1
        The exponent above, at most 1. With p > 0 the measure satisfies all six `criteria`.
    q : float, default 2
        The exponent below, above 1.

    Examples
    --------
    >>> pq_mean([[1.0, 1.0, 1.0, 1.0], [0.0, 3.0, 0.0, 0.0]])
    array([-1. , -0.5])
    """
    require(p <= 1 < q < math.inf, f"p={p!r}, q={q!r}: needs p <= 1 < q, q finite")
    return evaluate(x, axis, lambda c, n: -power_mean(c, p, n) / power_mean(c, q, n), in_units=True)


@measure
def gini(x: Any, *, axis: Axis = -1) -> Any:
    """Return the Gini index: ``1 - 2 sum_k (c_(k) / ||c||_1) (N - k + 1/2) / N``.

    From 0 (all magnitudes alike) to 1 - 1/N (a single nonzero entry): twice the area between the
    Lorenz curve of the magnitudes and the diagonal; NaN for zero vectors. It satisfies all six
    `criteria`.

    Examples
    --------
    >>> gini([[1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0], [0.0, 3.0, 0.0, 0.0]])
    array([0.  , 0.25, 0.75])
    """

    def formula(c: Floats, n: int) -> Any:
        # The same number as sum_k (2k - N - 1) c_(k) / (N ||c||_1), in which nothing cancels
        # where all entries are nearly alike.
        weights = 2.0 * np.arange(n - c.shape[-1], n) + 1 - n
        return np.sort(c, -1) @ weights / (n * c.sum(-1))

    return evaluate(x, axis, formula, in_units=True)


# ---- what they share ----


def evaluate(
    x: Any, axis: Axis, formula: Callable[[Floats, int], Any], *, in_units: bool = False
) -> Any:
    """Apply a formula to the magnitudes of every vector, in units of its largest if `in_units`.

    In units of its largest entry a zero vector is NaN, and so is what a formula makes of it. The
    formula is also given the length of the vectors; from sparse arrays they come without all of
    their zeros.
    """
    refuse_foreign(x)
    if not is_sparse(x):
        vectors = view(np.abs(as_floats(x), dtype=np.float64), axis)
        # A matrix: sorting, for one, takes arrays of at most 32 axes.
        c = vectors.array.reshape(-1, vectors.length).astype(np.float64, copy=False)
        values = _values(c, vectors.length, formula, in_units=in_units)
        return values.reshape(vectors.batch)[()]
    found = nonzeros(x, axis)
    values = np.empty(len(found.counts))
    for which, rows in found.blocks():
        c = np.abs(rows, dtype=np.float64)
        values[which] = _values(c, found.length, formula, in_units=in_units)
    return values.reshape(found.batch)[()]


def _values(c: Floats, n: int, formula: Callable[[Floats, int], Any], *, in_units: bool) -> Floats:
    """Apply a formula to rows of magnitudes, which are overwritten."""
    finite = np.isfinite(c).all(-1)
    with np.errstate(all="ignore"):
        if in_units:
            c /= c.max(-1, keepdims=True)
        values: Floats = np.where(finite, formula(c, n), np.nan)
    return values + 0.0  # no minus zero


def over_nonzero(function: Callable[[Floats], Any], c: Floats) -> Floats:
    """Sum a function over the entries that are not zero."""
    nonzero = c != 0
    total: Floats = np.where(nonzero, function(np.where(nonzero, c, 1.0)), 0.0).sum(-1)
    return total


def power_mean(c: Floats, p: float, n: int) -> Floats:
    """Return the mean of order p: 1 the arithmetic, 0 the geometric, -1 the harmonic mean."""
    if p <= 0 and c.shape[-1] < n:
        return np.zeros(c.shape[:-1])
    if p == 0:
        return np.asarray(np.exp(np.log(c).mean(-1)))
    # In units of the entry that dominates the sum, whose power is then 1.
    unit: Floats = c.max(-1) if p > 0 else c.min(-1)
    mean = (((c / unit[..., None]) ** p).sum(-1) / n) ** (1 / p)
    return np.where(unit > 0, unit * mean, 0.0)


def require(condition: bool, message: str) -> None:
    """Raise a ValueError with this message unless the condition holds."""
    if not condition:
        raise ValueError(message)
