"""The high-precision reference checks itself: by optimality conditions, closed forms and hand."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from reference import (
    PRECISION,
    Exact,
    correctly_rounded,
    error_in_eps,
    exact_projection,
    longdouble_projection,
    needs_long_double,
    norm_errors_in_eps,
    numeric_jvp,
    numeric_target_derivative,
    support_mismatch,
)

from hoyer.paper import potluru2013

TINY = mpf(10) ** -90


def floats(exact):
    return np.array([float(entry) for entry in exact.value])


def norms_of(value):
    with mp.workprec(PRECISION):
        return mpmath.fsum(value, absolute=True), mpmath.sqrt(mpmath.fsum(value, squared=True))


def exact_fraction(value):
    """The entries of a float vector, or one number, as long mpf."""
    with mp.workprec(PRECISION):
        return [mpf(entry) for entry in value]


@st.composite
def generic(draw):
    """A vector over the whole exponent range and two norms with fewer than K ties."""
    entry = st.floats(allow_nan=False, allow_infinity=False)
    x = draw(st.lists(entry, min_size=2, max_size=12))
    n = len(x)
    l2 = draw(st.floats(1e-30, 1e30))
    l1 = l2 * draw(st.floats(1.001, math.sqrt(n) * 0.999))
    assume(x.count(max(x)) < (Fraction(l1) / Fraction(l2)) ** 2)
    return x, l1, l2


class TestOptimality:
    @given(generic())
    @settings(max_examples=150)
    def test_stationary_and_feasible(self, problem):
        """P = max((x - alpha) / beta, 0) with beta > 0 and both norms right is the projection."""
        x, l1, l2 = problem
        exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
        assert exact.unique
        assert exact.scale > 0
        with mp.workprec(PRECISION):
            top = max(exact.value)
            for entry, p in zip(exact_fraction(x), exact.value, strict=True):
                assert abs(max((entry - exact.shift) / exact.scale, 0) - p) <= TINY * top
            norm1, norm2 = norms_of(exact.value)
            assert abs(norm1 / mpf(l1) - 1) <= TINY
            assert abs(norm2 / mpf(l2) - 1) <= TINY
        assert exact.support_size == sum(entry > 0 for entry in exact.value)

    @given(generic(), st.integers(0, 2**32 - 1))
    def test_no_other_point_is_closer(self, problem, seed):
        x, l1, l2 = problem
        exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
        rng = np.random.default_rng(seed)
        with mp.workprec(PRECISION):
            best = mpmath.fdot(exact.value, exact_fraction(x))
            slack = mpf(1e-14) * l2 * norms_of(exact_fraction(x))[1]
            for _ in range(5):
                other = potluru2013.project(rng.normal(size=len(x)), l1, l2).value
                assert mpmath.fdot(exact_fraction(other), exact_fraction(x)) <= best + slack

    @given(generic(), st.integers(-40, 40), st.integers(-(2**40), 2**40))
    def test_shift_and_scale_change_nothing(self, problem, exponent, shift):
        x, l1, l2 = problem
        moved = [Fraction(entry) * Fraction(2) ** exponent + shift for entry in x]
        plain = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
        other = exact_projection(moved, l1=l1, l2=l2, nonnegative=True)
        top = max(plain.value)
        assert max(abs(a - b) for a, b in zip(plain.value, other.value, strict=True)) <= TINY * top


class TestKnownAnswers:
    def test_one_to_ten(self):
        exact = exact_projection(np.arange(1.0, 11.0), sparseness=0.5, l2="keep")
        expected = [0, 0, 0, 0, 0.62158264, 3.09527575, 5.56896887]
        expected += [8.04266198, 10.5163551, 12.99004821]
        np.testing.assert_allclose(floats(exact), expected, rtol=0, atol=6e-9)
        assert exact.support_size == 6
        assert float(exact.l2) == pytest.approx(math.sqrt(385), rel=1e-15)

    def test_zeros_in_x_when_sparseness_decreases(self):
        exact = exact_projection([3.0, 1.0, 0.0, 0.0], l1=math.sqrt(3.9), l2=1.0, nonnegative=True)
        assert exact.support_size == 4
        assert exact.shift < 0
        # On the full support: mean 1, second sum 6, r = l2**2 - l1**2 / 4 = 0.025.
        k = Fraction(math.sqrt(3.9)) ** 2
        beta = math.sqrt(6 / (1 - k / 4))
        assert float(exact.scale) == pytest.approx(beta, rel=1e-14)
        assert float(exact.value[0]) == pytest.approx(math.sqrt(3.9) / 4 + 2 / beta, rel=1e-14)

    def test_two_entries_form_a_right_angle(self):
        # (3, 4) / 5 has norms 7/5 and 1, and the order of x decides which entry is larger.
        exact = exact_projection([-7, 2], l1=Fraction(7, 5), l2=1, nonnegative=True)
        assert [Fraction(3, 5), Fraction(4, 5)] == [
            Fraction(float(entry)).limit_denominator(100) for entry in exact.value
        ]


class TestTies:
    def test_more_than_k_ties(self):
        exact = exact_projection([1.0, 3.0, 0.0, 3.0, 3.0], l1=1.5, l2=1.0)
        # m = 3, r = 1 - 2.25 / 3 = 1/4.
        first, other = 0.5 + math.sqrt(1 / 6), 0.5 - math.sqrt(1 / 24)
        np.testing.assert_allclose(floats(exact), [0, first, 0, other, other], rtol=1e-15)
        assert (exact.shift, exact.scale, exact.support_size) == (None, None, 3)
        assert not exact.unique
        norm1, norm2 = norms_of(exact.value)
        assert abs(norm1 - mpf(1.5)) < TINY
        assert abs(norm2 - 1) < TINY

    def test_exactly_k_ties(self):
        exact = exact_projection([2.0, 1.0, 2.0, 2.0, 2.0, 0.0], l1=2.0, l2=1.0, nonnegative=True)
        assert exact.value == [0.5, 0, 0.5, 0.5, 0.5, 0]
        assert (exact.shift, exact.scale, exact.support_size) == (1, 2, 4)
        assert exact.unique

    def test_k_is_exact_where_the_root_of_n_is(self):
        x = np.where(np.arange(25) < 9, 1.0, 0.25)
        assert exact_projection(x, sparseness=0.5).unique  # K = 9 and nine ties
        more = np.where(np.arange(25) < 10, 1.0, 0.25)
        assert not exact_projection(more, sparseness=0.5).unique

    def test_one_ulp_of_the_target_decides(self):
        x = np.where(np.arange(16) < 4, 1.0, 0.5)
        below, above = math.nextafter(2 / 3, 0), math.nextafter(2 / 3, 1)
        assert exact_projection(x, sparseness=below).unique
        tied = exact_projection(x, sparseness=above)
        assert not tied.unique
        # K is about 4 - 1e-16: r = 1 - K / 4 is 1e-16, and the entries differ by its root.
        assert 1e-9 < tied.value[0] - tied.value[1] < 1e-7

    def test_constant_and_zero_vectors(self):
        for entry in (0.0, 5.0, -5.0):
            exact = exact_projection([entry] * 4, l1=1.5, l2=1.0, nonnegative=True)
            assert not exact.unique
            assert exact.value[0] > exact.value[1] == exact.value[2] == exact.value[3] > 0


class TestEnds:
    def test_sparseness_zero(self):
        exact = exact_projection([1.0, -2.0, 3.0], sparseness=0.0)
        np.testing.assert_allclose(floats(exact), np.array([1, -1, 1]) / math.sqrt(3), rtol=1e-15)
        assert exact.unique
        assert exact.support_size == 3
        assert exact.scale is None

    def test_sparseness_one(self):
        exact = exact_projection([1.0, -2.0, 1.5], sparseness=1.0)
        assert exact.value == [0, -1, 0]
        assert (exact.shift, exact.support_size, exact.unique) == (1.5, 1, True)
        tied = exact_projection([1.0, 2.0, 2.0], sparseness=1.0)
        assert tied.value == [0, 1, 0]
        assert (tied.support_size, tied.unique) == (1, False)

    @pytest.mark.parametrize("s", [5e-324, 1e-12, 1 - 1e-12, math.nextafter(1, 0)])
    @pytest.mark.parametrize("n", [3, 16])
    def test_next_to_the_ends(self, s, n):
        exact = exact_projection(np.arange(1.0, n + 1), sparseness=s)
        with mp.workprec(PRECISION):
            root = mpmath.sqrt(n)
            reached = (root - exact.l1 / exact.l2) / (root - 1)
            assert abs(reached / mpf(s) - 1) < mpf(10) ** -300
            assert abs(norms_of(exact.value)[1] - 1) < TINY
        assert exact.support_size == (n if s < 0.5 else 2)

    def test_targets_a_little_outside_are_clamped(self):
        x = [1.0, 2.0, 4.0]
        assert exact_projection(x, sparseness=1 + 2**-52).value == [0, 0, 1]
        assert exact_projection(x, l1=1 - 2**-52, l2=1.0).value == [0, 0, 1]

    def test_errors(self):
        with pytest.raises(ValueError, match=r"in \[0, 1\], got 1.001"):
            exact_projection([1.0, 2.0], sparseness=1.001)
        with pytest.raises(ValueError, match=r"in \[1, sqrt\(2\)\], got 1.5"):
            exact_projection([1.0, 2.0], l1=1.5, l2=1.0)
        with pytest.raises(ValueError, match="length 1"):
            exact_projection([1.0], sparseness=0.5)
        with pytest.raises(ValueError, match="at most one norm"):
            exact_projection([1.0, 2.0], sparseness=0.5, l1=1.2, l2=1.0)
        with pytest.raises(ValueError, match="both norms"):
            exact_projection([1.0, 2.0], l2=1.0)
        with pytest.raises(ValueError, match="must be positive"):
            exact_projection([1.0, 2.0], sparseness=0.5, l2=-1.0)


class TestSigns:
    def test_signs_are_given_back(self):
        x = np.array([3.0, -4.0, 0.5, -0.0])
        signed, plain = (
            exact_projection(v, sparseness=0.6, nonnegative=flag)
            for v, flag in ((x, False), (np.abs(x), True))
        )
        assert signed.value[::2] == plain.value[::2]
        assert signed.value[1] + plain.value[1] == 0 < plain.value[1]
        assert signed.value[3] == 0
        assert signed.unique

    def test_a_sign_that_was_chosen(self):
        exact = exact_projection([3.0, -1.0, 0.0, -0.0], sparseness=0.01)
        assert [mpmath.sign(entry) for entry in exact.value] == [1, -1, 1, 1]
        assert not exact.unique
        assert exact_projection([3.0, 1.0, 0.0, 0.0], sparseness=0.01, nonnegative=True).unique

    def test_negative_entries_in_the_nonnegative_set(self):
        exact = exact_projection([-3.0, -1.0, -2.0], sparseness=1.0, nonnegative=True)
        assert exact.value == [0, 1, 0]


class TestNorms:
    x = (3.0, -1.0, 0.5, 2.0)

    def test_both_ways_to_give_one_norm(self):
        unit = exact_projection(self.x, sparseness=0.5)
        doubled = exact_projection(self.x, sparseness=0.5, l2=2.0)
        by_l1 = exact_projection(self.x, sparseness=0.5, l1=3.0)  # rho = 1.5 for n = 4
        np.testing.assert_allclose(floats(doubled), 2 * floats(unit), rtol=1e-15)
        np.testing.assert_allclose(floats(by_l1), 2 * floats(unit), rtol=1e-15)
        assert float(by_l1.l1) == 3
        assert float(doubled.scale) == pytest.approx(float(unit.scale) / 2, rel=1e-15)

    def test_keep(self):
        exact = exact_projection(self.x, sparseness=0.5, l2="keep")
        assert float(exact.l2) == pytest.approx(math.sqrt(14.25), rel=1e-15)

    def test_nearest_is_nearer_than_its_multiples(self):
        exact = exact_projection(self.x, sparseness=0.5, l2="nearest")
        value, x = floats(exact), np.array(self.x)
        distance = np.linalg.norm(value - x)
        for factor in (0.99, 1.01):
            assert np.linalg.norm(factor * value - x) > distance
        assert float(exact.l2) == pytest.approx(np.linalg.norm(value), rel=1e-14)

    @pytest.mark.parametrize("norm", ["keep", "nearest"])
    def test_zero_stays_zero(self, norm):
        exact = exact_projection([0.0] * 3, sparseness=0.5, l2=norm)
        assert exact.value == [0, 0, 0]
        assert exact.l2 == 0

    def test_nearest_to_a_negative_vector_is_zero(self):
        exact = exact_projection([-1.0, -2.0], sparseness=0.5, l2="nearest", nonnegative=True)
        assert exact.value == [0, 0]


class TestOnlyIncrease:
    def test_a_sparse_vector_keeps_its_direction(self):
        exact = exact_projection([4.0, 0.0, -3.0, 0.0], sparseness=0.1, only_increase=True)
        np.testing.assert_allclose(floats(exact), [0.8, 0, -0.6, 0], rtol=1e-15)
        assert (exact.shift, exact.scale, exact.support_size) == (0, 5, 2)
        assert float(exact.l1) == pytest.approx(1.4, rel=1e-15)

    def test_nonnegative_keeps_the_direction_of_the_positive_part(self):
        options = {"sparseness": 0.1, "only_increase": True, "nonnegative": True}
        exact = exact_projection([4.0, 0.0, -7.0, 3.0], **options)
        np.testing.assert_allclose(floats(exact), [0.8, 0, 0, 0.6], rtol=1e-15)

    def test_nonnegative_without_positive_entries_is_the_largest_alone(self):
        """Against every other support, by the optimality condition: <p, x> is largest."""
        x = [-4.0, -1.0, -7.0, -3.0]
        options = {"sparseness": 0.1, "only_increase": True, "nonnegative": True}
        exact = exact_projection(x, **options)
        assert floats(exact).tolist() == [0, 1, 0, 0]
        for sparseness in (0.1, 0.4, 0.7, 0.999):
            other = exact_projection(x, sparseness=sparseness, nonnegative=True)
            assert sum(p * e for p, e in zip(other.value, x, strict=True)) < -1

    def test_norms(self):
        x = [4.0, 0.0, -3.0, 0.0]
        by_l1 = exact_projection(x, sparseness=0.1, l1=7.0, only_increase=True)
        np.testing.assert_allclose(floats(by_l1), x, rtol=1e-15)
        for norm in ("keep", "nearest"):
            kept = exact_projection(x, sparseness=0.1, l2=norm, only_increase=True)
            np.testing.assert_allclose(floats(kept), x, rtol=1e-15)

    def test_others_are_projected(self):
        for x in ([1.0, 2.0, 3.0, 4.0], [0.0] * 4):
            plain = exact_projection(x, sparseness=0.5)
            assert exact_projection(x, sparseness=0.5, only_increase=True) == plain


class TestErrors:
    with mp.workprec(200):
        exact = Exact(
            [mpf(1) / 3, mpf(0), mpf(2) / 3], None, None, 2, True, mpf(1), mpmath.sqrt(5) / 3
        )

    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
    def test_of_a_rounded_result(self, dtype):
        p = np.array([1 / 3, 0, 2 / 3]).astype(dtype)
        assert 0 < error_in_eps(p, self.exact) <= 0.5
        assert max(norm_errors_in_eps(p, self.exact)) <= 1
        assert support_mismatch(p, self.exact) == 0
        assert correctly_rounded(p, self.exact)
        assert correctly_rounded(p + np.finfo(dtype).smallest_subnormal, self.exact)
        p[0] = np.nextafter(p[0], dtype(1))
        assert not correctly_rounded(p, self.exact)

    def test_of_a_wrong_result(self):
        eps = 2.0**-52
        p = np.array([1 / 3, 3 * eps * 2 / 3, 2 / 3])
        assert error_in_eps(p, self.exact) == pytest.approx(3, rel=1e-12)
        assert support_mismatch(p, self.exact) == pytest.approx(3, rel=1e-12)
        scaled = np.array([1 / 3, 0, 2 / 3]) * (1 + 8 * eps)
        for error in norm_errors_in_eps(scaled, self.exact):
            assert 7 <= error <= 9

    def test_of_nan(self):
        p = np.array([1 / 3, np.nan, 2 / 3])
        assert error_in_eps(p, self.exact) == math.inf
        assert norm_errors_in_eps(p, self.exact) == (math.inf, math.inf)
        assert not correctly_rounded(p.astype(np.float16), self.exact)

    def test_of_zero(self):
        zero = exact_projection([0.0, 0.0], sparseness=0.5, l2="keep")
        assert error_in_eps(np.zeros(2), zero) == 0
        assert norm_errors_in_eps(np.zeros(2), zero) == (0, 0)
        assert error_in_eps(np.array([0, 1e-300]), zero) == math.inf

    def test_halves_round_to_even_and_to_subnormals(self):
        smallest = 2.0**-24
        exact = self.exact._replace(value=[mpf(1) + mpf(2) ** -11, mpf(smallest) * 0.5])
        assert correctly_rounded(np.array([1, 0], dtype=np.float16), exact)
        assert not correctly_rounded(np.array([1 + 2**-10, 0], dtype=np.float16), exact)
        assert correctly_rounded(np.array([1, smallest], dtype=np.float16), exact)


class TestLongDouble:
    @needs_long_double
    @pytest.mark.parametrize("kind", ["uniform", "normal"])
    @pytest.mark.parametrize("nonnegative", [False, True])
    @pytest.mark.parametrize(
        "target",
        [
            {"sparseness": 0.3},
            {"sparseness": 0.9, "l2": "keep"},
            {"sparseness": 0.6, "l2": "nearest"},
            {"sparseness": 0.6, "l1": 3.0},
            {"l1": 7.0, "l2": 1.5},
        ],
    )
    def test_agrees_with_the_exact_projection(self, kind, nonnegative, target):
        x = getattr(np.random.default_rng(3), kind)(size=300)
        wide = longdouble_projection(x, nonnegative=nonnegative, **target)
        exact = exact_projection(x, nonnegative=nonnegative, **target)
        p = wide.value.astype(np.float64)
        assert error_in_eps(p, exact) <= 0.51
        assert support_mismatch(p, exact) == 0
        assert wide.support_size == exact.support_size
        for name in ("shift", "scale", "l1", "l2"):
            rel = float(getattr(wide, name)) / float(getattr(exact, name)) - 1
            assert abs(rel) <= 4e-16
        assert error_in_eps(floats(exact), wide) <= 0.51
        assert max(norm_errors_in_eps(floats(exact), wide)) <= 4
        assert support_mismatch(floats(exact), wide) == 0

    def test_refuses_ties(self):
        with pytest.raises(ValueError, match="generic"):
            longdouble_projection(np.ones(5), sparseness=0.5)


class TestDerivatives:
    x = np.array([0.3, -1.1, 2.0, 1.7, -0.2, 0.9])
    y = np.array([1.0, 0.5, -0.25, 2.0, -3.0, 0.125])

    def projector(self, value, scale):
        """(E - Pi) / beta on the support, Pi the projector onto span{e, p} (fact 7)."""
        support = value != 0
        signs = np.where(self.x < 0, -1.0, 1.0) * support
        basis, _ = np.linalg.qr(np.stack([signs, value], axis=1))
        return (np.diag(support.astype(float)) - basis @ basis.T) / scale

    def test_fixed_norms(self):
        exact = exact_projection(self.x, l1=1.7, l2=1.0)
        expected = self.projector(floats(exact), float(exact.scale)) @ self.y
        found = [float(entry) for entry in numeric_jvp(self.x, self.y, l1=1.7, l2=1.0)]
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)

    def test_kept_norm(self):
        exact = exact_projection(self.x, sparseness=0.5, l2="keep")
        value = floats(exact)
        jacobian = self.projector(value, float(exact.scale))
        jacobian += np.outer(value, self.x) / (self.x @ self.x)
        found = numeric_jvp(self.x, self.y, sparseness=0.5, l2="keep")
        np.testing.assert_allclose(
            np.array(found, dtype=float), jacobian @ self.y, rtol=1e-13, atol=1e-15
        )

    def test_nearest(self):
        unit = exact_projection(self.x, sparseness=0.5)
        value = floats(unit)
        jacobian = np.outer(value, value)
        jacobian += (value @ self.x) * self.projector(value, float(unit.scale))
        found = numeric_jvp(self.x, self.y, sparseness=0.5, l2="nearest")
        np.testing.assert_allclose(
            np.array(found, dtype=float), jacobian @ self.y, rtol=1e-13, atol=1e-15
        )

    def test_the_sign_of_a_zero_is_held(self):
        x = [3.0, -1.0, 0.0]
        signed = numeric_jvp(x, [0.0, 0.0, 1.0], sparseness=0.01)
        plain = numeric_jvp([3.0, 1.0, 0.0], [0.0, 0.0, 1.0], sparseness=0.01, nonnegative=True)
        assert signed[2] > 0
        assert signed[::2] == plain[::2]
        assert signed[1] + plain[1] == 0 > plain[1]

    def test_mpf_input_and_step(self):
        with mp.workprec(200):
            x = [mpf(entry) / 3 for entry in range(1, 6)]
            found = numeric_jvp(x, [1, 0, 0, 0, -1], mpf(2) ** -80, l1=1.7, l2=1)
        finer = numeric_jvp(x, [1, 0, 0, 0, -1], l1=1.7, l2=1)
        for a, b in zip(found, finer, strict=True):
            assert abs(a - b) <= mpf(2) ** -150

    def test_targets(self):
        l1, l2 = 1.7, 1.25
        exact = exact_projection(self.x, l1=l1, l2=l2)
        p = floats(exact)
        support = p != 0
        e = np.where(self.x < 0, -1.0, 1.0) * support
        b = exact.support_size * l2**2 - l1**2
        by_l1, by_l2 = numeric_target_derivative(self.x, l1, l2)
        expected1 = (l2**2 * e - l1 * p) / b
        expected2 = l2 * (exact.support_size * p - l1 * e) / b
        np.testing.assert_allclose(np.array(by_l1, dtype=float), expected1, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(np.array(by_l2, dtype=float), expected2, rtol=1e-13, atol=1e-15)
