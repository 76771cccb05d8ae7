"""Sparseness and norms: the one place that knows how they belong together, and to which set.

The set a vector is projected onto is given by two norms, l1 and l2, whose ratio fixes the
sparseness: ``l1/l2 = sqrt(n) - sparseness * (sqrt(n) - 1)`` for vectors of length n. The
projection reacts like a square root where K = (l1/l2)**2 approaches the size of the support, so
n - K is carried in double-double: a pair (high, low) with twice the digits, also of tiny values.
"""

import math
from operator import index
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .options import NORM_RULES, NormRule, Numbers, is_dask

Floats: TypeAlias = npt.NDArray[np.float64]
Pair: TypeAlias = tuple[Floats, Floats]

NEARLY = 0.95
"""The share of K in the size of a support from which on its entries are so nearly equal that a
result's digits do not tell how they differ: derivatives then need x."""


class Target(NamedTuple):
    """What every vector is asked for; each number stands alone or once per vector.

    They are arrays of whoever computes with them: of NumPy, or of a device. l1 is ratio * l2 in any
    case. Where l1 alone is given, l2 is 1, and K counts as 0. Upper bounds of which one never
    binds may have any ratio (it is kept between 1/2 and 2 sqrt(n), which changes no set); a ratio
    of 0 says that only 0 is within them.
    """

    ratio: Any
    """l1 / l2."""
    slack: Any
    """n - K with K = (l1 / l2)**2: 0 at sparseness 0, n - 1 at sparseness 1."""
    slack_low: Any
    """What `slack` lacks of the exact difference."""
    l2: Any
    """The L2 norm; 1 where every vector has its own, or any."""


def target_norms(
    n: int,
    sparseness: "Numbers | None" = None,
    *,
    l1: "Numbers | None" = None,
    l2: "Numbers | None" = None,
) -> tuple[Any, Any]:
    """Return the norms (l1, l2) that stand for a target.

    Parameters
    ----------
    n : int
        Length of the vectors.
    sparseness : float or array, optional
        Target sparseness in [0, 1].
    l1, l2 : float or array, optional
        Target norms. With `sparseness` at most one of them (neither means ``l2=1``), without it
        both.

    Returns
    -------
    l1, l2 : float or ndarray
        Floats if all that was given are numbers.

    Raises
    ------
    ValueError
        If the target is incomplete, over-determined or impossible for vectors of length `n`.
    TypeError
        If n is no int.

    Examples
    --------
    >>> import hoyer
    >>> hoyer.target_norms(100, 0.5)
    (5.5, 1.0)
    >>> hoyer.target_norms(100, 1.0, l1=3.0)
    (3.0, 3.0)
    """
    if isinstance(l1, str) or isinstance(l2, str):
        raise ValueError(
            f"l1={l1!r}, l2={l2!r}: with 'keep' and 'nearest' the norm depends on the vector; "
            "give a number"
        )
    if sparseness is None and (l1 is None or l2 is None):
        raise ValueError(_no_target(l1, l2, "both l1 and l2 as numbers"))
    try:
        length = index(n)
    except TypeError:
        raise TypeError(f"n={n!r}: the length of the vectors must be an int") from None
    target = _resolve(length, sparseness, l1, l2, True)
    first = target.ratio * target.l2
    if l1 is not None:
        # What was given, unless it had to be clamped.
        given = np.asarray(l1, np.float64)
        first = (
            given
            if sparseness is not None
            else np.where(abs(first - given) <= given * 4e-16, given, first)
        )
    pair = np.broadcast_arrays(first, target.l2)
    if pair[0].ndim == 0:
        return float(pair[0]), float(pair[1])
    return pair[0].copy(), pair[1].copy()


def resolve(
    n: int | Floats,
    sparseness: Numbers | None,
    l1: Numbers | None,
    l2: Numbers | NormRule | None,
    batch: tuple[int, ...],
    *,
    axes: tuple[int, ...] = (),
    at_most: bool = False,
    check: bool = True,
) -> Target:
    """Turn what the user gave into a `Target`, or say what is wrong with it.

    Parameters
    ----------
    n : int or array
        Length of the vectors; or of each of them, where masks leave them unequal, shaped like the
        batch. Of those that have one entry left it takes the norm; of those without any nothing is
        asked.
    sparseness, l1, l2, at_most
        As in `hoyer.project`.
    batch : tuple of int
        Shape of the batch of vectors; targets given per vector are broadcast to it.
    axes : tuple of int
        Those of the vectors, which targets may have as well, of length 1.
    check : bool
        Whether an impossible target is an error; if not, its ratio is NaN.

    Returns
    -------
    Target
        With one-dimensional arrays: a single number, or one for each vector of the batch.
    """
    given: tuple[Any, Any, Any] = (sparseness, l1, l2)
    first, second, third = (_without_axes(value, len(batch), axes) for value in given)
    return _per_vector(_resolve(n, first, second, third, check, at_most=at_most), batch)


def _without_axes(value: Any, ndim: int, axes: tuple[int, ...]) -> Any:
    if not axes or value is None or isinstance(value, str):
        return value
    shape = np.shape(value)
    return np.reshape(value, without_axes(shape, ndim, axes)) if len(shape) > ndim else value


def without_axes(shape: tuple[int, ...], ndim: int, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a target without the axes of the vectors, if it has them, of length 1.

    A batch has `ndim` axes beside them, so that no target which broadcasts to it has as many.
    """
    if len(shape) != ndim + len(axes) or any(shape[axis] != 1 for axis in axes):
        return shape
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def no_fit(shape: tuple[int, ...], batch: tuple[int, ...]) -> str:
    """Say why a target does not fit, and what would."""
    return (
        f"a target of shape {shape} does not fit vectors in a batch of shape {batch}: give one "
        f"number, or an array that broadcasts to {batch} (x's shape without the vectors' axes), or "
        "that with the vectors' axes of length 1 (as keepdims=True leaves them)"
    )


def _per_vector(target: Target, batch: tuple[int, ...]) -> Target:
    given = np.broadcast_shapes(target.ratio.shape, target.l2.shape)
    try:
        ratio, slack, slack_low, norms = (
            np.ascontiguousarray(np.broadcast_to(array, batch if given else (1,))).reshape(-1)
            for array in (target.ratio, target.slack, target.slack_low, target.l2)
        )
    except ValueError:
        raise ValueError(no_fit(given, batch)) from None
    return Target(ratio, slack, slack_low, norms)


def _no_target(l1: Any, l2: Any, norms: str) -> str:
    return (
        f"sparseness=None, l1={l1!r}, l2={l2!r} is no target: give sparseness (and at most one "
        f"norm), or {norms}"
    )


def _resolve(
    n: Any, sparseness: Any, l1: Any, l2: Any, check: bool, *, at_most: bool = False
) -> Target:
    if isinstance(n, int):
        if n < 1:
            raise ValueError(f"vectors of length {n}: a vector needs at least one entry")
        empty: Any = np.False_
    else:
        empty, n = n < 1, np.maximum(n, 1.0)
    if isinstance(l1, str):
        raise ValueError(f"l1={l1!r}: l1 must be a number; only l2 can be 'keep' or 'nearest'")
    if isinstance(l2, str) and l2 not in NORM_RULES:
        raise ValueError(f"l2={l2!r}: l2 must be a number, 'keep' or 'nearest'")
    if sparseness is None:
        if l1 is None or isinstance(l2, str):
            raise ValueError(_no_target(l1, l2, "l1, or both l1 and l2, as numbers"))
        first = _norm("l1", l1, check, zero=at_most)
        if l2 is None:
            return from_l1(n, first, np)
        second = _norm("l2", l2, check, zero=at_most)
        if at_most:
            with np.errstate(over="ignore", under="ignore"):
                first, second = np.broadcast_arrays(first, second)
                return from_bounds(n, first, second, np)
        first, second = (np.where(empty, 1.0, norm) for norm in (first, second))
        return _from_norms(n, first, second, _tolerance(l1, l2), check)
    if l1 is not None and l2 is not None:
        raise ValueError(
            f"sparseness={sparseness!r}, l1={l1!r}, l2={l2!r}: give sparseness with at most one "
            "norm, or both norms without sparseness"
        )
    ratio, slack = _from_sparseness(n, sparseness, check)
    one = np.ones(())
    if isinstance(l2, str):
        return Target(ratio, *slack, one)
    if l1 is not None:
        return Target(ratio, *slack, _norm("l1", l1, check) / ratio)
    return Target(ratio, *slack, one if l2 is None else _norm("l2", l2, check))


def _numbers(name: str, value: Any) -> Floats:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be lost: pass a plain array")
    refuse_lazy(name, value)
    try:
        array = np.asarray(value)
    except RuntimeError as error:
        # A tensor whose gradient would be lost, or whose memory holds something else.
        plain = "full_tensor()" if hasattr(value, "full_tensor") else "detach()"
        raise TypeError(
            f"{name} is a tensor that is no plain number here ({error}): make x a tensor as well, "
            f"or pass {name}.{plain}"
        ) from None
    except TypeError as error:
        refuse_traced(name, error)
        raise
    if array.dtype.kind not in "fiu":
        raise TypeError(not_real(name, value))
    return array.astype(np.float64)


def refuse_lazy(name: str, value: Any) -> None:
    """Refuse what Dask has not computed, where x is no Dask array: it may be large, or slow."""
    if is_dask(value):
        kind = type(value)
        raise TypeError(
            f"{name} is of type {kind.__module__}.{kind.__qualname__}, and x is no Dask array: "
            f"pass {name}.compute(), or make x one with dask.array.from_array"
        )


def refuse_traced(name: str, error: TypeError) -> None:
    """Say what to do about something that JAX traces, if that is why it is no array of NumPy's."""
    if type(error).__name__ == "TracerArrayConversionError":
        raise TypeError(
            f"{name} is traced by JAX, and x is none of its arrays: pass jax.numpy.asarray(x)"
        ) from None


def not_real(name: str, value: Any) -> str:
    """Say what a target must be that is something else."""
    return (
        f"{name}={value!r}: {name} must be a real number or an array of them; booleans are "
        "not accepted"
    )


def _tolerance(*values: Any) -> float:
    """Four eps of the least precise number given: so far outside its range a target is clamped."""
    kinds = [np.asarray(value).dtype for value in values]
    return 4 * max(float(np.finfo(k if k.kind == "f" else np.float64).eps) for k in kinds)


def _first_bad(values: Floats, bad: npt.NDArray[np.bool_]) -> tuple[str, float]:
    """Where the first offending number is (in words, for arrays) and what it is."""
    if values.ndim == 0:
        return "", float(values)
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return f" at index {index if len(index) > 1 else index[0]}", float(values[index])


def _norm(name: str, value: Any, check: bool, *, zero: bool = False) -> Floats:
    norm = _numbers(name, value)
    bad = ~(((norm > 0) | ((norm == 0) & zero)) & np.isfinite(norm))
    if not bad.any():
        return norm
    if check:
        where, number = _first_bad(norm, bad)
        what = "not negative" if zero else "positive"
        raise ValueError(f"{name} must be {what} and finite, got {number}{where}")
    return np.where(bad, np.nan, norm)


def _from_sparseness(n: Any, sparseness: Any, check: bool) -> tuple[Floats, Pair]:
    sigma = _numbers("sparseness", sparseness)
    if isinstance(n, int) and n == 1:
        raise ValueError(
            f"sparseness={sparseness!r}: vectors of length 1 have no sparseness; give equal l1 "
            "and l2 instead"
        )
    ratio, slack, bad = from_sparseness(n, sigma, _tolerance(sparseness), np)
    if check and bad.any():
        where, number = _first_bad(sigma, bad)
        raise ValueError(
            f"sparseness must lie in [0, 1], got {number}{where}{likely_meant(number)}"
        )
    return ratio, slack


def likely_meant(number: float) -> str:
    """Ask in brackets for the sparseness that is meant, if one out of range looks like per cent.

    Nobody means 2 per cent: numbers not far above 1 are mistakes of another kind.
    """
    return f" (did you mean {number / 100:g}?)" if 5 <= number <= 100 else ""


def _from_norms(n: Any, l1: Floats, l2: Floats, tolerance: float, check: bool) -> Target:
    l1, l2, lengths = np.broadcast_arrays(l1, l2, n)
    with np.errstate(over="ignore", under="ignore"):
        ratio, slack, bad = from_norms(n, l1, l2, tolerance, np)
    if check and bad.any():
        (where, first), (_, second), (_, size) = (_first_bad(a, bad) for a in (l1, l2, lengths))
        raise ValueError(
            f"l1={first} and l2={second}{where} are impossible for vectors of length {size:g}: l1 "
            f"must lie between l2 and sqrt({size:g}) * l2, here in [{second:g}, "
            f"{math.sqrt(size) * second:g}]"
        )
    return Target(ratio, *slack, l2)


# ---- the formulas; xp is numpy, or another library with the same few functions on its arrays ----


def from_sparseness(
    n: Any, sigma: Any, tolerance: float, xp: Any
) -> tuple[Any, tuple[Any, Any], Any]:
    """l1/l2 = 1 + (1 - sparseness)(sqrt(n) - 1), and n - K from it.

    The textbook form sqrt(n) - sparseness (sqrt(n) - 1) loses up to 1800 eps. And n - K is
    sparseness (sqrt(n) - 1)(sqrt(n) + l1/l2): a product, which keeps its digits near sparseness 0.

    Parameters
    ----------
    n : int or array of float64
        Length of the vectors; at least 2, or 1 in an array of them, where the ratio is 1.
    sigma : array of float64
        The sparseness.
    tolerance : float
        So far outside its range it is clamped; beyond that everything is NaN.
    xp : module
        numpy, or another library with its ``where`` and ``clip``.

    Returns
    -------
    ratio, slack, bad : array, pair of arrays, array of bool
        l1/l2, n - K in double-double, and where sigma was out of range.
    """
    bad = ~((sigma >= -tolerance) & (sigma <= 1 + tolerance))
    sigma = xp.where(bad, math.nan, xp.clip(sigma, 0.0, 1.0))
    ratio, slack = below_one(n, sigma)
    # Sparseness 1 is exact, as sparseness 0 is by itself.
    last = sigma == 1
    return (
        xp.where(last, 1.0, ratio),
        (xp.where(last, n - 1.0, slack[0]), xp.where(last, 0.0, slack[1])),
        bad,
    )


def below_one(n: Any, sigma: Any) -> tuple[Any, tuple[Any, Any]]:
    """Return l1/l2 and n - K of a sparseness in [0, 1), a number or an array."""
    one = _computed(1.0, sigma)
    high, low = square_root(n)
    root = high * one, low * one
    step = _sum(root, (-one, 0.0))
    ratio = _sum((one, 0.0), _product(_two_sum(one, -sigma), step))
    return ratio[0], _product(_product((sigma, 0.0), step), _sum(root, ratio))


def with_zeros(n: int, k: int, sigma: Floats) -> Floats:
    """Return the sparseness of vectors of length n which have that of `sigma` over k entries.

    The other entries are zero: n - K grows by n - k, and K stays.
    """
    if k == n:
        return sigma
    ratio, slack, _ = from_sparseness(k, sigma, _tolerance(sigma), np)
    root, step = square_root(n)[0], _sum(square_root(n), (-1.0, 0.0))[0]
    more: Floats = (slack[0] + (n - k)) / ((root + ratio) * step)
    return more


def from_l1(n: Any, l1: Any, xp: Any) -> Target:
    """Return the target of vectors of which l1 alone is given."""
    none = xp.zeros_like(l1 + n * 0.0)
    return Target(l1 + none, none + n, none, none + 1.0)


def from_bounds(n: Any, l1: Any, l2: Any, xp: Any) -> Target:
    """Return the target of vectors whose norms have upper bounds; `xp` as in `from_norms`."""
    none = (l1 == 0) | (l2 == 0)
    l1, l2 = xp.where(none, 1.0, l1), xp.where(none, 1.0, l2)
    # Bounds that never bind are brought nearer: nothing overflows.
    first = xp.minimum(l1, 2 * square_root(n)[0] * l2)
    second = xp.minimum(l2, 2 * l1)
    (ratio, _), slack = _ratio_and_slack(n, first, second, xp)
    return Target(
        xp.where(none, 0.0, ratio),
        xp.where(none, n * 1.0, slack[0]),
        xp.where(none, 0.0, slack[1]),
        xp.where(none, 0.0, second + 0.0 * ratio),
    )


def _ratio_and_slack(n: Any, l1: Any, l2: Any, xp: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    # Mantissas and exponents apart: a quotient of moderate size may have extreme terms.
    (m1, e1), (m2, e2) = xp.frexp(l1), xp.frexp(l2)
    quotient = m1 / m2
    product = _two_product(quotient, m2)
    rest = ((m1 - product[0]) - product[1]) / m2
    high, low = (xp.ldexp(part, e1 - e2) for part in (quotient, rest))
    # n - K, K the square of the quotient.
    square = _product((high, low), (high, low))
    return (high, low), _sum((_computed(n, quotient), 0.0), (-square[0], -square[1]))


def from_norms(
    n: Any, l1: Any, l2: Any, tolerance: float, xp: Any
) -> tuple[Any, tuple[Any, Any], Any]:
    """l1/l2, and n - K from it; see `from_sparseness` (`xp` needs ``frexp`` and ``ldexp``, too)."""
    (high, low), slack = _ratio_and_slack(n, l1, l2, xp)
    root = square_root(n)[0]
    # n - K is outside of [0, n - 1] only where the target is clamped.
    bad = ~((high >= 1 - tolerance) & (high <= root * (1 + tolerance)))
    small = (high < 1) | ((high == 1) & (low <= 0))
    large = (slack[0] < 0) | ((slack[0] == 0) & (slack[1] <= 0))

    def within(value: Any, at_least: float, at_most: float) -> Any:
        clamped = xp.where(small, at_least, xp.where(large, at_most, value))
        return xp.where(bad, math.nan, clamped)

    return (
        within(high, 1.0, root),
        (within(slack[0], n - 1.0, 0.0), within(slack[1], 0.0, 0.0)),
        bad,
    )


# ---- double-double arithmetic: a pair (high, low) stands for their sum; arrays or numbers ----


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _computed(constant: Any, finite: Any) -> Any:
    """Return a constant plus 0 times a number that XLA does not know.

    It would take (1 - a) - 1 for -a, and so lose what double-double is there to keep.
    """
    return constant + 0.0 * finite


def _two_product(a: Any, b: Any) -> tuple[Any, Any]:
    product = a * b
    # The upper halves of their digits.
    a1, b1 = a * 134217729.0, b * 134217729.0
    a1, b1 = a1 - (a1 - a), b1 - (b1 - b)
    a2, b2 = a - a1, b - b1
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _sum(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    high, low = _two_sum(a[0], b[0])
    return _two_sum(high, low + (a[1] + b[1]))


def _product(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    high, low = _two_product(a[0], b[0])
    return _two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def square_root(n: Any) -> tuple[Any, Any]:
    """Return the square root of n, a number or an array, in double-double."""
    root = math.sqrt(n) if isinstance(n, int) else n**0.5
    square = _two_product(root, root)
    high, low = _two_sum(root, ((n - square[0]) - square[1]) / (2 * root))
    return high, low
