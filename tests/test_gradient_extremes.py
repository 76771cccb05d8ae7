"""Derivatives where p, y or beta leave the ordinary range, or p has lost its digits to rounding.

The promise: within 32 eps of max|y|/beta where that is a number of the type (and of max|y| where
the norm follows x), give or take one subnormal number.
"""

import functools
import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from engines import BOUND, ENGINES, EPS, SMALLEST
from mpmath import mp, mpf
from reference import exact_projection, numeric_jvp, numeric_target_derivative

# Every case is a program of its own to XLA.
pytestmark = pytest.mark.engines(
    *(name for name, engine in ENGINES.items() if not engine.flushes_subnormals),
    slow=[name for name, engine in ENGINES.items() if engine.flushes_subnormals],
)
LARGEST = {"float32": 2.0**127, "float64": 2.0**1023}
LEAST = SMALLEST
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


BETA_IS_LOST = ("subnormal x", "subnormal beta", "beta below all floats", "beta above all floats")
"""Extremes of doubles whose beta is no normal float64: not every engine keeps it."""

NEEDS_SUBNORMALS = (
    "large x",
    "subnormal x",
    "subnormal y",
    "subnormal beta",
    "beta below all floats",
    "subnormal y, keep",
)
"""What cannot be where programs make zeros of subnormal numbers, as XLA's do on the CPU.

(The products with large x are such numbers.)
"""
LOST = "programs of this engine make zeros of subnormal numbers"


def flushed(engine, case=True):
    """Skip a test of subnormal numbers where there are none."""
    if engine.flushes_subnormals and case:
        pytest.skip(LOST)


SIZES = list(itertools.product([1.0, 1e-300], [1e300, math.inf]))
both_types = pytest.mark.parametrize("dtype", ["float32", "float64"])


@functools.cache
def exact_product(dtype, bits, along, options):
    """J y by central differences with a step that suits the sizes of x and y, and beta."""
    x, y = np.frombuffer(bits, dtype), np.frombuffer(along, dtype)
    step = Fraction(1, 2**300) * Fraction(float(np.abs(x).max())) / Fraction(float(np.abs(y).max()))
    exact = exact_projection(x, **dict(options))
    return numeric_jvp(x, y, h=step, **dict(options)), exact.scale


def error_of(z, x, y, **options):
    """The largest error in units of what is promised."""
    given = (x.dtype.name, x.tobytes(), y.tobytes(), tuple(options.items()))
    expected, scale = exact_product(*given)
    with mp.workprec(400):
        # Vectors that kept their direction have a scale of their own.
        size = max(mpf(float(abs(v))) for v in y)
        unit = size / scale
        if isinstance(options.get("l2"), str):
            unit = max(unit, size)
        info = np.finfo(x.dtype)
        bound = mpf(float(info.eps)) * unit + mpf(float(info.smallest_subnormal))
        errors = [abs(mpf(float(a)) - b) for a, b in zip(z, expected, strict=True)]
        assert all(mpmath.isfinite(error) for error in errors)
        return float(max(errors) / bound)


def products(engine, x, y, target):
    """Every way to J y: alone, one of many next to ordinary ones, and as a gradient."""
    rows = np.stack(
        [np.linspace(1, 2, x.size).astype(x.dtype), *[x] * (20 if engine.is_fast else 2)]
    )
    along = np.stack([np.ones_like(y), *[y] * (len(rows) - 1)])
    many = engine.solve(rows, **target).jvp(along)
    found = [engine.solve(x, **target).jvp(y), many[1], many[-1]]
    if not isinstance(target.get("l2"), str):  # symmetric, so the same
        found += [engine.gradient(rows, along, **target)[-1], engine.solve(x, **target).vjp(y)]
    return found


class TestExtremes:
    """Sizes of x, y and beta at the ends of the range, and p that has lost its digits."""

    lengths = (3, 8, 33)

    def error(self, engine, x, y, target):
        return max(error_of(z, x, y, **target) for z in products(engine, x, y, target))

    @both_types
    @pytest.mark.parametrize("name", CASES)
    def test_products(self, engine, name, dtype, rng, largest):
        flushed(engine, name in NEEDS_SUBNORMALS)
        x_size, y_size, target = CASES[name]
        is_lost = name in BETA_IS_LOST and dtype == "float64" and not engine.keeps_every_beta
        for n in self.lengths if engine.examples > 5 else (8,):
            x = (rng.normal(size=n) * x_size(dtype) / 4).astype(dtype)
            y = (rng.normal(size=n) * y_size(dtype) / 4).astype(dtype)
            if is_lost:
                assert not np.isnan(products(engine, x, y, target)).any()
                continue
            error = self.error(engine, x, y, target)
            largest(f"error in eps: derivatives at extremes, {engine}, {dtype}", error)
            assert error <= BOUND

    @both_types
    @pytest.mark.parametrize("target", [{"sparseness": 0.1}, {"sparseness": 0.1, "l1": 1e-5}])
    def test_direction_kept_where_beta_is_no_float(self, engine, target, dtype, rng):
        if dtype == "float64" and not engine.keeps_every_beta:
            pytest.skip("beta is lost")
        x = (rng.normal(size=9) ** 3 * (LARGEST[dtype] / 64)).astype(dtype)
        target = {**target, **({} if "l1" in target else {"l2": 1e-8}), "only_increase": True}
        y = (rng.normal(size=9) * (LARGEST[dtype] / 16)).astype(dtype)
        assert error_of(engine.solve(x, **target).jvp(y), x, y, **target) <= BOUND

    @both_types
    def test_offset(self, engine, dtype, rng):
        """Entries that differ in their last digits, hardly any sparseness."""
        x = (1 + rng.normal(size=20) * 1e-3).astype(dtype)
        y = rng.normal(size=20).astype(dtype)
        assert self.error(engine, x, y, {"sparseness": 1e-9}) <= BOUND

    @both_types
    def test_target_gradient_of_nearly_equal_entries(self, engine, dtype, rng):
        if not engine.knows_small_spreads:
            pytest.skip("of norms alone the spread of equal entries is not known")
        x = rng.normal(size=12).astype(dtype)
        l1 = float(np.sqrt(12) * (1 - 1e-9))
        found = engine.solve(x, l1=l1, l2=1.0).target_gradient()
        expected = numeric_target_derivative(x, l1, 1.0, h=Fraction(1, 2**300))
        for a, b in zip(found, expected, strict=True):
            exact = np.array([float(entry) for entry in b])
            atol = BOUND * EPS[dtype] * np.abs(exact).max()
            np.testing.assert_allclose(a, exact, rtol=0, atol=atol)

    @both_types
    @pytest.mark.parametrize("l2", [1.0, "nearest"])
    @pytest.mark.parametrize("only_increase", [False, True])
    @pytest.mark.parametrize("sizes", SIZES, ids=str)
    def test_large_where_the_result_is_zero(self, engine, l2, dtype, sizes, only_increase):
        flushed(engine, sizes[0] < 1)
        options = {"sparseness": 0.5, "l2": l2, "only_increase": only_increase}
        x = np.array([4.0, 3.0, 3.5, 0.1, 0.2], dtype)
        size, large = max(sizes[0], 100 * LEAST[dtype]), sizes[1]
        large = min(large, LARGEST[dtype] / 2) if large < math.inf else large
        y = np.array([size, -2 * size, 5 * size, large, 0.0], dtype)
        solved = engine.solve(x, **options)
        assert solved.support_size == 3
        small = np.where(solved.value != 0, y, 0).astype(dtype)
        np.testing.assert_array_equal(solved.vjp(y), solved.vjp(small))
        np.testing.assert_array_equal(solved.jvp(y), solved.jvp(small))
        assert np.count_nonzero(solved.vjp(y)) == 3
        found = engine.gradient(x, y, **options)
        np.testing.assert_allclose(found, solved.vjp(small), rtol=1e-5, atol=0)

    def test_infinite_where_the_result_is_zero_and_the_norm_is_kept(self, engine):
        """The gradient does not depend on it."""
        flushed(engine)
        x, y = np.array([[4.0, 3.0, 0.1, 0.2], [1e-310, 3e-310, math.inf, 0.0]])
        solved = engine.solve(x, 0.7, l2="keep")
        assert np.abs(solved.vjp(y)).max() > 1e-311
        np.testing.assert_array_equal(solved.vjp(y), solved.vjp(np.where(np.isinf(y), 0.0, y)))

    @both_types
    @pytest.mark.parametrize(
        "options",
        [
            {"sparseness": 0.3},
            {"sparseness": 0.3, "l2": 0.001},
            {"sparseness": 0.3, "l2": "keep"},
            {"sparseness": 0.3, "l2": "nearest"},
            {"sparseness": 0.05, "only_increase": True},
            {"sparseness": 0.05, "l1": 0.01, "only_increase": True},
        ],
        ids=str,
    )
    def test_products_with_a_few_subnormal_steps_are_rounded_once(
        self, engine, options, dtype, rng
    ):
        """Those of y and of y times a power of two differ by that, and less than a step."""
        flushed(engine)
        steps = 149 if dtype == "float32" else 1074
        for n in self.lengths if engine.examples > 5 else (8,):
            x = (rng.normal(size=(4, n)) * 2 + 0.5).astype(dtype)
            y = rng.integers(-20, 21, (4, n)).astype(dtype)
            # Sums that are taken as they come are zero here.
            x[0] *= 0.001
            y[0] = (np.arange(n) % 3 == 1).astype(dtype) - (np.arange(n) % 3 == 0)
            y[0, 0] -= y[0].sum()
            small = np.ldexp(y, -steps)
            assert np.count_nonzero(small) == np.count_nonzero(y)
            solved = engine.solve(x, **options)
            for product in (solved.jvp, solved.vjp):
                found = product(small).astype(np.float64)
                found = np.ldexp(np.ldexp(found, steps // 2), steps - steps // 2)
                np.testing.assert_allclose(found, product(y), rtol=1e-4, atol=1)

    def test_large_opposites_where_entries_are_equal(self, engine):
        """Their sums are zero, which says nothing about their size."""
        x, y = np.array([[3.0, 3.0, 3.0, 3.0, 1.0, 0.0], [1.0, -1.0, 2.0, -2.0, 0.0, 0.0]])
        solved = engine.solve(x, l1=2.0, l2=1.0)
        np.testing.assert_allclose(solved.jvp(y), y / solved.scale, rtol=1e-7)
        np.testing.assert_allclose(solved.jvp(y * 1e200), y * 1e200 / solved.scale, rtol=1e-7)

    def test_vectors_that_keep_their_direction_move_where_they_are_zero(self, engine):
        flushed(engine)
        x = np.array([3.0, 4.0, 0.0, 0.0, 0.0])
        y = np.array([4e-320, -3e-320, math.inf, -1e-320, 0.0])
        solved = engine.solve(x, 0.1, l2=1.0, only_increase=True)
        for product in (solved.jvp, solved.vjp):
            np.testing.assert_allclose(product(y), y / 5, rtol=1e-12, atol=5e-324)

    @pytest.mark.parametrize("y_size", [1.0, 2.0**501, 2.0**1000])
    @pytest.mark.parametrize(
        "target", [{"sparseness": 0.1, "l2": 16.0}, {"l1": 64.0, "l2": 32.0}], ids=str
    )
    def test_beta_near_the_largest_float(self, engine, target, y_size, rng):
        """At unit norm it is none."""
        # The inverse of the largest entry is subnormal.
        flushed(engine)
        x = np.linspace(1, 0.1, 8)
        if "l1" in target:
            x[:4] = 1  # as many ties as fit
        x, y = x * 2.0**1023, rng.normal(size=8)
        assert 2.0**1018 < engine.solve(x, **target).scale < math.inf
        assert self.error(engine, x, y * y_size, target) <= BOUND


@pytest.mark.engines("numpy/core")
class TestBetaBelowTheNormalNumbers:
    """Of tensors beta must be a normal number (README)."""

    @pytest.mark.parametrize("ties", [1, 2])
    def test_as_many_ties_as_fit_where_beta_is_subnormal(self, engine, ties):
        """Entries that are all equal have no spread; the product takes away their mean."""
        x = np.array([1.5] * ties + [1.0, 0.5]) * 2.0**-1060
        y = np.array([3.0, 1.0, 2.0, 5.0])[: ties + 2] * 2.0**-1070
        result = engine.solve(x, l1=float(np.sqrt(ties)), l2=1.0)
        expected = [0.0] * len(x)
        if ties == 2:
            # The first of two: (3 - 2) 2^-1070/beta with beta = (1.5 - 1) 2^-1060 sqrt(2).
            expected[:2] = [2.0**-10 * 2 / np.sqrt(2), -(2.0**-10) * 2 / np.sqrt(2)]
        np.testing.assert_allclose(result.jvp(y), expected, rtol=1e-3, atol=1e-17)

    def test_a_direction_is_kept_where_beta_is_below_all_floats(self, engine):
        x = np.array([6.0, 1.0, 2.0]) * 2.0**-1074
        y = np.array([1.0, -2.0, 4.0]) * 2.0**-1000
        target = {"sparseness": 0.1, "l1": 16.0, "only_increase": True}
        assert error_of(engine.solve(x, **target).jvp(y), x, y, **target) <= BOUND
