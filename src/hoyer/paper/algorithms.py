"""Algorithms 1, 2 and 3 of the paper, line by line, in plain NumPy and float64.

They are oracles. Where the method is not defined they raise a ValueError; where floating point
spoils the raw sums that the paper forms, or keeps Algorithm 1 from ever reporting `finished`, they
raise a FloatingPointError. They never return a wrong result and never hang.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "SOLVERS",
    "Auxiliary",
    "Result",
    "auxiliary",
    "check_arguments",
    "check_projection",
    "gradient_product",
    "jacobian",
    "project",
    "shifted_to_zero",
]


def __dir__() -> list[str]:
    return __all__


Vector = NDArray[np.float64]

EVALUATION_LIMIT = 200
TOLERANCE = 1e-9


class Auxiliary(NamedTuple):
    """What Algorithm 1 returns for one shift alpha."""

    psi: float
    """Psi(alpha), which vanishes at the shift of the projection."""
    dpsi: float
    """First derivative of Psi."""
    ddpsi: float
    """Second derivative of Psi."""
    psi_sqr: float
    """Psi with squared quotients, the function that NewtonSqr works on."""
    dpsi_sqr: float
    """First derivative of `psi_sqr`."""
    finished: bool
    """Whether Psi changes its sign between the two entries next to alpha."""
    norm1: float
    """Sum of the entries above alpha."""
    norm2_squared: float
    """Sum of the squares of the entries above alpha."""
    support_size: int
    """Number d of entries above alpha."""


class Result(NamedTuple):
    """What Algorithm 2 returns, and what it cost."""

    value: "Vector"
    """The projection p."""
    shift: float
    """The number alpha with p = max((x - alpha) / beta, 0)."""
    scale: float
    """The number beta."""
    support_size: int
    """The number d of positive entries of p."""
    evaluations: int
    """How often Algorithm 1 was called, the call at alpha = 0 included."""
    path: tuple[float, ...]
    """The shifts at which Algorithm 1 was called, in their order; the first is 0."""


class _Sliced(NamedTuple):
    """Input of Algorithm 3: the support I and what the lemma on the gradient builds on it."""

    support: NDArray[np.bool_]
    p: Vector
    d: int
    a: float
    b: float


def check_arguments(
    x: "ArrayLike", l1: float, l2: float, *, nonnegative: bool = False
) -> "tuple[Vector, float, float]":
    """Convert the input of a projection onto D, or say what is wrong with it.

    All comparisons with K = (l1 / l2)**2 are exact: the given floats count as real numbers.

    Parameters
    ----------
    x : array_like
        The vector to project.
    l1, l2 : float
        The norms of the target set D.
    nonnegative : bool
        Whether negative entries are an error, as they are for Algorithm 2.

    Returns
    -------
    tuple
        `x` as a new float64 vector, `l1` and `l2` as Python floats.

    Raises
    ------
    ValueError
        If `x` is not a vector of finite numbers, if l2 < l1 < sqrt(n) * l2 fails, or if so many
        entries equal the maximum that no shift alpha exists.

    Examples
    --------
    >>> check_arguments([3, 1, 0], 1.5, 1)
    (array([3., 1., 0.]), 1.5, 1.0)
    """
    vector = np.array(x, dtype=np.float64)
    if vector.ndim != 1:
        msg = f"x must be one vector, got an array of shape {vector.shape}"
        raise ValueError(msg)
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        msg = f"x must be finite, but x[{bad[0]}] is {vector[bad[0]]}"
        raise ValueError(msg)
    if nonnegative and vector.size and vector.min() < 0:
        i = int(vector.argmin())
        msg = (
            f"x must not be negative, but x[{i}] is {vector[i]}; "
            "x - min(x) has the same projection and would do"
        )
        raise ValueError(msg)
    n, l1, l2 = vector.size, float(l1), float(l2)
    _check_norms(n, l1, l2)
    ties = int(np.count_nonzero(vector == vector.max()))
    k = (Fraction(l1) / Fraction(l2)) ** 2
    if ties >= k:
        msg = (
            f"{ties} entries of x equal the maximum {vector.max()}, and (l1 / l2)**2 = "
            f"{float(k):.17g} is not greater than their number: no unique shift alpha exists"
        )
        raise ValueError(msg)
    return vector, l1, l2


def _check_norms(n: int, l1: float, l2: float) -> None:
    finite = math.isfinite(l1) and math.isfinite(l2) and l2 > 0
    if not (finite and l2 < l1 and Fraction(l1) ** 2 < n * Fraction(l2) ** 2):
        msg = f"l1 = {l1!r} and l2 = {l2!r} are no target for a vector of length {n}: need l2 > 0"
        if finite:
            msg += f" and l1 between l2 and sqrt(n) * l2, in ({l2!r}, {math.sqrt(n) * l2!r})"
        raise ValueError(msg)


def shifted_to_zero(x: "Vector") -> "Vector":
    """Subtract the maximum, which does not change the projection; halve x if that overflows.

    Parameters
    ----------
    x : ndarray
        A vector of finite numbers.

    Returns
    -------
    ndarray
        x - max(x), or half of it.

    Examples
    --------
    >>> shifted_to_zero(np.array([3.0, 5.0, 4.0]))
    array([-2.,  0., -1.])
    >>> shifted_to_zero(np.array([1e308, -1e308]))
    array([ 0.e+000, -1.e+308])
    """
    with np.errstate(over="ignore"):
        t: Vector = x - x.max()
    if np.all(np.isfinite(t)):
        return t
    halves: Vector = x / 2 - x.max() / 2
    return halves


def check_projection(x: "Vector", value: "Vector", l1: float, l2: float) -> None:
    """Check that `value` is the projection of `x`, by the closed form on its own support.

    With I the support of `value`, mu the mean of x over I and s the norm of x - mu over I, the
    first lemma of the paper demands p = l1 / d + (x - mu) * sqrt(l2**2 - l1**2 / d) / s on I and
    x <= alpha elsewhere. Sums about the mean are stable where the raw sums of Algorithm 1 are not.

    Parameters
    ----------
    x, value : ndarray
        The vector and what is to be its projection onto D.
    l1, l2 : float
        The norms of D.

    Raises
    ------
    FloatingPointError
        If `value` is off by more than 1e-9 of its largest entry.

    Examples
    --------
    >>> check_projection(np.array([3.0, 1.0]), np.array([1.2, 0.2]), 1.4, 1.48**0.5)
    >>> check_projection(np.array([3.0, 1.0]), np.array([1.1, 0.3]), 1.4, 1.48**0.5)
    ... # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FloatingPointError: rounding, overflow or underflow spoils the projection: it is off by 0.091...
    """
    error = math.inf
    support = value > 0
    d = int(np.count_nonzero(support))
    # b / (d * l2**2), which a difference of floats would spoil where K is close to d.
    gap = 1 - (Fraction(l1) / Fraction(l2)) ** 2 / max(d, 1)
    if gap > 0 and np.all(np.isfinite(value)):
        with np.errstate(all="ignore"):
            t = shifted_to_zero(x)
            t = np.ldexp(t, -math.frexp(t[support].min())[1])
            centred = t - t[support].mean()
            beta = math.sqrt(np.sum(centred[support] ** 2)) / (math.sqrt(gap) * l2)
            expected = np.maximum(l1 / d + centred / beta, 0)
            error = float(np.max(np.abs(value - expected)) / value.max())
    if not error <= TOLERANCE:
        msg = (
            "rounding, overflow or underflow spoils the projection: "
            f"it is off by {error:.2g} of its maximum"
        )
        raise FloatingPointError(msg)


def auxiliary(x: "Vector", l1: float, l2: float, alpha: float) -> Auxiliary:
    """Algorithm 1: the auxiliary function Psi, its derivatives, and the test for the sign change.

    Psi(alpha) is the quotient of the L1 and the L2 norm of max(x - alpha, 0), less l1 / l2.

    Parameters
    ----------
    x : ndarray
        Vector of non-negative float64 numbers.
    l1, l2 : float
        Target norms with l2 < l1 < sqrt(n) * l2.
    alpha : float
        Where to evaluate, with 0 <= alpha < max(x).

    Returns
    -------
    Auxiliary
        The nine numbers that Algorithm 1 returns.

    Examples
    --------
    >>> at_two = auxiliary(np.array([4.0, 3.0, 1.0]), 1.25, 1.0, 2.0)
    >>> at_two.norm1, at_two.norm2_squared, at_two.support_size, at_two.finished
    (7.0, 25.0, 2, True)
    >>> round(at_two.psi, 6)
    0.091641
    """
    # Scan through x: the sums over the entries above alpha, and the neighbours of alpha.
    above = x - alpha > 0
    inside, outside = x[above], x[~above]
    d = inside.size
    x_k = inside.min(initial=np.inf)
    x_j = outside.max(initial=0.0)

    # Overflow, a quotient 0 / 0, or the root of a difference that rounding turned negative end in
    # a NaN here; it makes `finished` false, and `project` falls back to Bisection.
    with np.errstate(all="ignore"):
        norm1 = inside.sum()
        norm2_squared = np.square(inside).sum()

        # Psi(alpha), Psi'(alpha) and Psi''(alpha).
        l1_alpha = norm1 - d * alpha
        l2_alpha_squared = norm2_squared - 2 * alpha * norm1 + d * np.square(alpha)
        psi = l1_alpha / np.sqrt(l2_alpha_squared) - l1 / l2
        dpsi = (l1_alpha**2 / l2_alpha_squared - d) / np.sqrt(l2_alpha_squared)
        ddpsi = 3 * dpsi * l1_alpha / l2_alpha_squared

        # The same for the squared quotients.
        psi_sqr = l1_alpha**2 / l2_alpha_squared - np.square(l1) / np.square(l2)
        dpsi_sqr = 2 * l1_alpha / np.sqrt(l2_alpha_squared) * dpsi

        # Psi(x_j) >= 0 and Psi(x_k) < 0.
        finished = l2 * (norm1 - d * x_j) >= l1 * np.sqrt(
            norm2_squared - 2 * x_j * norm1 + d * x_j**2
        ) and l2 * (norm1 - d * x_k) < l1 * np.sqrt(norm2_squared - 2 * x_k * norm1 + d * x_k**2)

    return Auxiliary(
        float(psi),
        float(dpsi),
        float(ddpsi),
        float(psi_sqr),
        float(dpsi_sqr),
        bool(finished),
        float(norm1),
        float(norm2_squared),
        d,
    )


def _newton(alpha: float, aux: Auxiliary) -> float:
    return alpha - aux.psi / aux.dpsi


def _newton_sqr(alpha: float, aux: Auxiliary) -> float:
    return alpha - aux.psi_sqr / aux.dpsi_sqr


def _halley(alpha: float, aux: Auxiliary) -> float:
    h = 1 - aux.psi * aux.ddpsi / (2 * aux.dpsi**2)
    h = max(0.5, min(1.5, h))
    return alpha - aux.psi / (h * aux.dpsi)


def _out_of_bounds(_alpha: float, _aux: Auxiliary) -> float:
    """Step of Bisection: leave it to the safeguard."""
    return math.nan


_STEPS: dict[str, Callable[[float, Auxiliary], float]] = {
    "bisection": _out_of_bounds,
    "newton": _newton,
    "newton_sqr": _newton_sqr,
    "halley": _halley,
}

SOLVERS = tuple(_STEPS)


def _next_alpha(solver: str, alpha: float, aux: Auxiliary, lo: float, up: float) -> float:
    """One iteration of root-finding, safeguarded by the bracket [lo, up]."""
    try:
        candidate = _STEPS[solver](alpha, aux)
    except ArithmeticError:
        candidate = math.nan
    # The paper asks for alpha < lo or alpha > up. Said this way round, NaN is out of bounds too.
    if not lo <= candidate <= up:
        return lo + (up - lo) / 2
    return candidate


def project(x: "ArrayLike", l1: float, l2: float, solver: str = "newton_sqr") -> Result:
    """Algorithm 2: the projection of x >= 0 onto D = {p >= 0, ||p||_1 = l1, ||p||_2 = l2}.

    Parameters
    ----------
    x : array_like
        Vector of n non-negative numbers.
    l1, l2 : float
        Target norms with l2 < l1 < sqrt(n) * l2.
    solver : {"bisection", "newton", "newton_sqr", "halley"}
        How to find the zero of the auxiliary function.

    Returns
    -------
    Result
        The projection, alpha, beta, d, and how often Algorithm 1 was called.

    Raises
    ------
    ValueError
        If the method is not defined for the input: entries negative or not finite, norms outside
        the admissible interval, at least (l1 / l2)**2 entries equal to the maximum, an unknown
        solver.
    FloatingPointError
        If Algorithm 1 cannot report `finished`, or if the raw sums lost so many digits that the
        result is wrong by more than 1e-9 of its maximum.

    Examples
    --------
    >>> result = project([1.0, 2.0, 3.0, 4.0], 1.5, 1.0)
    >>> result.value.round(6)
    array([0.      , 0.146447, 0.5     , 0.853553])
    >>> result.support_size, result.evaluations, result.path
    (3, 2, (0.0, 1.5))
    """
    if solver not in _STEPS:
        msg = f"unknown solver {solver!r}; the paper has {', '.join(map(repr, _STEPS))}"
        raise ValueError(msg)
    x, l1, l2 = check_arguments(x, l1, l2, nonnegative=True)
    n = x.size

    # Check whether sparseness should be increased or decreased.
    alpha = 0.0
    aux = auxiliary(x, l1, l2, alpha)
    path = [alpha]
    norm1, norm2_squared, d = aux.norm1, aux.norm2_squared, aux.support_size
    if aux.psi <= 0:
        # Erratum: the evaluation at alpha = 0 counts x_i > 0 only, but all n coordinates of the
        # projection are positive now. Entries that are zero do not change the two sums.
        d = n
    else:
        lo, up = 0.0, float(x[x != x.max()].max())
        alpha = lo + (up - lo) / 2
        aux = auxiliary(x, l1, l2, alpha)
        path.append(alpha)
        # Invariant: the zero of Psi is in [lo, up].
        while not aux.finished:
            # Erratum: the paper tests Psi(a).
            if aux.psi > 0:
                lo = alpha
            else:
                up = alpha
            previous, alpha = alpha, _next_alpha(solver, alpha, aux, lo, up)
            # Erratum: in floating point `finished` can stay false for ever.
            if alpha == previous or len(path) == EVALUATION_LIMIT:
                msg = (
                    f"after {len(path)} evaluations at shift {previous!r} rounding errors keep "
                    "Algorithm 1 from finding the sign change of its auxiliary function"
                )
                raise FloatingPointError(msg)
            aux = auxiliary(x, l1, l2, alpha)
            path.append(alpha)
        norm1, norm2_squared, d = aux.norm1, aux.norm2_squared, aux.support_size

    # Correct interval has been found, compute exact value for alpha.
    with np.errstate(all="ignore"):
        a = d * norm2_squared - np.square(norm1)
        b = d * np.square(l2) - np.square(l1)
        alpha = float((norm1 - l1 * np.sqrt(a / b)) / d)

        # Compute result of the projection.
        t = np.maximum(x - alpha, 0)
        rho = np.square(t).sum()
        value = l2 / np.sqrt(rho) * t
    check_projection(x, value, l1, l2)
    scale, support_size = float(np.sqrt(rho)) / l2, int(np.count_nonzero(value))
    return Result(value, alpha, scale, support_size, len(path), tuple(path))


def _slice(x: Vector, value: Vector, l1: float, l2: float) -> _Sliced:
    """Slice by the support of `value`; a and b as in the lemma on the gradient."""
    support = value > 0
    x_sliced, p = x[support], value[support]
    d = p.size
    norm2_squared = np.square(x_sliced).sum()
    a = float(d * norm2_squared - np.square(x_sliced.sum()))
    b = d * l2**2 - l1**2
    eps = float(np.finfo(np.float64).eps)
    for name, difference, minuend in (("a", a, d * norm2_squared), ("b", b, d * l2**2)):
        # The subtraction leaves a relative error of about eps * minuend / difference.
        if not difference > eps * minuend / TOLERANCE:
            msg = (
                f"{name} = {difference!r} is a difference of numbers as large as {minuend!r} and "
                "lost too many digits for the gradient"
            )
            raise FloatingPointError(msg)
    return _Sliced(support, p, d, a, b)


def gradient_product(
    y: "ArrayLike", x: "ArrayLike", value: "ArrayLike", l1: float, l2: float
) -> "Vector":
    """Algorithm 3: the gradient of the projection onto D, times a vector.

    The gradient is symmetric, so the product serves forward and reverse mode alike.

    Parameters
    ----------
    y : array_like
        The vector to multiply with.
    x, value : array_like
        The projected vector, and its projection p as Algorithm 2 returns it.
    l1, l2 : float
        The norms of p.

    Returns
    -------
    ndarray
        The product, zero outside the support of p.

    Raises
    ------
    FloatingPointError
        If a or b of the paper, both of them differences, lost their digits.

    Examples
    --------
    >>> x = [1.0, 2.0, 3.0, 4.0]
    >>> p = project(x, 1.5, 1.0).value
    >>> gradient_product([5.0, 1.0, 0.0, 0.0], x, p, 1.5, 1.0).round(6)
    array([ 0.      ,  0.058926, -0.117851,  0.058926])
    """
    y, x, value = (np.asarray(vector, dtype=np.float64) for vector in (y, x, value))
    support, p, d, a, b = _slice(x, value, l1, l2)

    # Scan and slice input vector. Erratum: the paper reads z where its input is y, and mixes i
    # with j.
    y_sliced = y[support]
    sum_y = y_sliced.sum()
    scp_py = (p * y_sliced).sum()

    # Compute product with gradient in sliced space.
    z_sliced = np.sqrt(b / a) * y_sliced
    z_sliced = z_sliced + (l1 * sum_y - d * scp_py) / np.sqrt(a * b) * p
    z_sliced = z_sliced + (l1 * scp_py - l2**2 * sum_y) / np.sqrt(a * b)

    # Unslice to yield final result.
    z = np.zeros_like(y)
    z[support] = z_sliced
    return z


def jacobian(x: "ArrayLike", value: "ArrayLike", l1: float, l2: float) -> "NDArray[np.float64]":
    """Gradient of the projection onto D as a dense matrix, by the paper's last lemma.

    Parameters
    ----------
    x, value : array_like
        The projected vector, and its projection p.
    l1, l2 : float
        The norms of p.

    Returns
    -------
    ndarray
        The n times n matrix V^T G V.

    Raises
    ------
    FloatingPointError
        If a or b of the paper, both of them differences, lost their digits.

    Examples
    --------
    >>> x = [1.0, 2.0, 3.0, 4.0]
    >>> gradient = jacobian(x, project(x, 1.5, 1.0).value, 1.5, 1.0)
    >>> (gradient @ [5.0, 1.0, 0.0, 0.0]).round(6)
    array([ 0.      ,  0.058926, -0.117851,  0.058926])
    """
    x, value = (np.asarray(vector, dtype=np.float64) for vector in (x, value))
    support, p, d, a, b = _slice(x, value, l1, l2)
    e = np.ones(d)
    v = np.eye(x.size)[support]
    dyads = l2**2 * np.outer(e, e) + d * np.outer(p, p) - l1 * (np.outer(e, p) + np.outer(p, e))
    g = np.sqrt(b / a) * np.eye(d) - dyads / np.sqrt(a * b)
    gradient: NDArray[np.float64] = v.T @ g @ v
    return gradient
