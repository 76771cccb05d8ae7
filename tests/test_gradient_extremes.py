"""Derivatives where p, y or beta leave the ordinary range, or p has lost its digits to rounding.

The promise: within 32 eps of max|y|/beta where that is a number of the type (and of max|y| where
the norm follows x), give or take one subnormal number.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from reference import exact_projection, numeric_jvp, numeric_target_derivative

import hoyer

LARGEST = {"float32": 2.0**127, "float64": 2.0**1023}
LEAST = {"float32": 2.0**-149, "float64": 2.0**-1074}
NORMAL = {"float32": 2.0**-126, "float64": 2.0**-1022}

# Sizes of x and y as functions of the type, and the target.
CASES = {
    "ordinary": (lambda t: 1.0, lambda t: 1.0, {"sparseness": 0.5}),
    "large x": (lambda t: LARGEST[t] / 16, lambda t: 1.0, {"sparseness": 0.5}),
    "subnormal x": (lambda t: LEAST[t] * 1000, lambda t: 1e-30, {"sparseness": 0.5}),
    "large y": (lambda t: 1.0, lambda t: LARGEST[t] / 8, {"sparseness": 0.5}),
    "large x and y": (lambda t: LARGEST[t] / 16, lambda t: LARGEST[t] / 8, {"sparseness": 0.5}),
    "subnormal y": (lambda t: 1e-5, lambda t: LEAST[t] * 1000, {"sparseness": 0.5}),
    "sparseness 1e-6": (lambda t: 1.0, lambda t: 1.0, {"sparseness": 1e-6}),
    "sparseness 1e-10": (lambda t: 1.0, lambda t: 1.0, {"sparseness": 1e-10}),
    "sparseness 1e-30": (lambda t: 1.0, lambda t: 1.0, {"sparseness": 1e-30}),
    "subnormal beta": (
        lambda t: NORMAL[t] * 4,
        lambda t: NORMAL[t] * 1000,
        {"sparseness": 0.5, "l2": 1e5},
    ),
    "beta below all floats": (
        lambda t: LEAST[t] * 1000,
        lambda t: NORMAL[t] * 1000,
        {"sparseness": 0.5, "l2": 1e12},
    ),
    "beta above all floats": (
        lambda t: LARGEST[t] / 16,
        lambda t: LARGEST[t] / 8,
        {"sparseness": 0.5, "l2": 1e-8},
    ),
    "large y, keep": (lambda t: 1.0, lambda t: LARGEST[t] / 16, {"sparseness": 0.5, "l2": "keep"}),
    "subnormal y, keep": (
        lambda t: 1e-5,
        lambda t: LEAST[t] * 1000,
        {"sparseness": 0.5, "l2": "keep"},
    ),
    "sparseness 1e-10, keep": (
        lambda t: 1.0,
        lambda t: 1.0,
        {"sparseness": 1e-10, "l2": "keep"},
    ),
    "large y, nearest": (
        lambda t: 1.0,
        lambda t: LARGEST[t] / 16,
        {"sparseness": 0.5, "l2": "nearest"},
    ),
    "sparseness 1e-10, nearest": (
        lambda t: 1.0,
        lambda t: 1.0,
        {"sparseness": 1e-10, "l2": "nearest"},
    ),
}


def exact_product(x, y, **options):
    """J y by central differences with a step that suits the sizes of x and y."""
    step = Fraction(1, 2**300) * Fraction(float(np.abs(x).max())) / Fraction(float(np.abs(y).max()))
    return numeric_jvp(x, y, h=step, **options)


def error_of(z, x, y, **options):
    """The largest error in units of what is promised."""
    expected = exact_product(x, y, **options)
    with mp.workprec(400):
        exact = exact_projection(x, **options)
        # Vectors that kept their direction have a scale of their own.
        size = max(mpf(float(abs(v))) for v in y)
        unit = size / exact.scale
        if isinstance(options.get("l2"), str):
            unit = max(unit, size)
        info = np.finfo(x.dtype)
        bound = mpf(float(info.eps)) * unit + mpf(float(info.smallest_subnormal))
        errors = [abs(mpf(float(a)) - b) for a, b in zip(z, expected, strict=True)]
        assert all(mpmath.isfinite(error) for error in errors)
        return float(max(errors) / bound)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [3, 8, 33])
@pytest.mark.parametrize("name", CASES)
def test_products(name, n, dtype, rng, largest):
    x_size, y_size, target = CASES[name]
    x = (rng.normal(size=n) * x_size(dtype) / 4).astype(dtype)
    y = (rng.normal(size=n) * y_size(dtype) / 4).astype(dtype)
    result = hoyer.solve(x, **target)
    error = error_of(result.jvp(y), x, y, **target)
    if not isinstance(target.get("l2"), str):
        # Symmetric, so the same.
        np.testing.assert_array_equal(result.vjp(y), result.jvp(y))
    # As one of many, next to ordinary ones.
    batch = hoyer.solve(np.stack([np.ones(n, dtype), *[x] * 20]), **target)
    many = batch.jvp(np.stack([np.ones(n, dtype), *[y] * 20]))
    error = max(error, *(error_of(row, x, y, **target) for row in (many[1], many[20])))
    largest(f"error in eps: derivatives at extremes, {dtype}", error)
    assert error <= 32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", [{"sparseness": 0.1}, {"sparseness": 0.1, "l1": 1e-5}])
def test_direction_kept_where_beta_is_no_float(target, dtype, rng):
    x = (rng.normal(size=9) ** 3 * (LARGEST[dtype] / 64)).astype(dtype)
    target = {**target, **({} if "l1" in target else {"l2": 1e-8}), "only_increase": True}
    y = (rng.normal(size=9) * (LARGEST[dtype] / 16)).astype(dtype)
    assert error_of(hoyer.solve(x, **target).jvp(y), x, y, **target) <= 32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_offset(dtype, rng):
    """Entries that differ in their last digits, hardly any sparseness."""
    x = (1 + rng.normal(size=20) * 1e-3).astype(dtype)
    y = rng.normal(size=20).astype(dtype)
    assert error_of(hoyer.solve(x, 1e-9).jvp(y), x, y, sparseness=1e-9) <= 32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_target_gradient_of_nearly_equal_entries(dtype, rng):
    x = rng.normal(size=12).astype(dtype)
    l1 = float(np.sqrt(12) * (1 - 1e-9))
    found = hoyer.solve(x, l1=l1, l2=1.0).target_gradient()
    expected = numeric_target_derivative(x, l1, 1.0, h=Fraction(1, 2**300))
    for a, b in zip(found, expected, strict=True):
        exact = np.array([float(entry) for entry in b])
        np.testing.assert_allclose(
            a, exact, rtol=0, atol=32 * np.finfo(dtype).eps * np.abs(exact).max()
        )


@pytest.mark.parametrize("l2", [1.0, "nearest"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_where_the_result_is_zero(l2, dtype):
    x = np.array([4.0, 3.0, 0.1, 0.2], dtype)
    result = hoyer.solve(x, 0.7, l2=l2)
    y = np.array([1.0, -2.0, np.inf, 0.0], dtype)
    np.testing.assert_array_equal(result.value[2:], 0)
    finite = np.where(np.isinf(y), 0, y).astype(dtype)
    np.testing.assert_array_equal(result.vjp(y), result.vjp(finite))


@pytest.mark.parametrize("ties", [1, 2])
def test_as_many_ties_as_fit_where_beta_is_subnormal(ties):
    """Entries that are all equal have no spread; the product takes away their mean."""
    x = np.array([1.5] * ties + [1.0, 0.5]) * 2.0**-1060
    y = np.array([3.0, 1.0, 2.0, 5.0])[: ties + 2] * 2.0**-1070
    result = hoyer.solve(x, l1=float(np.sqrt(ties)), l2=1.0)
    expected = [0.0] * len(x)
    if ties == 2:
        # The first of two: (3 - 2) 2^-1070/beta with beta = (1.5 - 1) 2^-1060 sqrt(2).
        expected[:2] = [2.0**-10 * 2 / np.sqrt(2), -(2.0**-10) * 2 / np.sqrt(2)]
    np.testing.assert_allclose(result.jvp(y), expected, rtol=1e-3)


def test_a_direction_is_kept_where_beta_is_below_all_floats():
    x = np.array([6.0, 1.0, 2.0]) * 2.0**-1074
    y = np.array([1.0, -2.0, 4.0]) * 2.0**-1000
    target = {"sparseness": 0.1, "l1": 16.0, "only_increase": True}
    assert error_of(hoyer.solve(x, **target).jvp(y), x, y, **target) <= 32
