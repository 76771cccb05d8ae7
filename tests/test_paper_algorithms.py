"""Algorithms 1 to 3: the paper's formulas, its errata, and every way in which they may fail."""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import error_in_eps, exact_projection, float_norms, norm_errors_in_eps, numeric_jvp

from hoyer.paper import algorithms, hoyer2004, potluru2013
from hoyer.paper.algorithms import SOLVERS, auxiliary, gradient_product, jacobian, project
from hoyer.paper.problems import collection, random_vector

each_solver = pytest.mark.parametrize("solver", SOLVERS)


def ratio(n, s):
    return 1 + (1 - s) * (math.sqrt(n) - 1)


class TestAuxiliary:
    x = np.array([0.5, 4.0, 1.25, 0.0, 3.0, 2.0, 3.0])

    def psi(self, alpha):
        """The definition of the auxiliary function."""
        shrunk = np.maximum(self.x - alpha, 0)
        return np.linalg.norm(shrunk, 1) / np.linalg.norm(shrunk) - 1.5

    @pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0, 1.7, 2.5, 2.999])
    def test_values(self, alpha):
        found = auxiliary(self.x, 3.0, 2.0, alpha)
        quotient = self.psi(alpha) + 1.5
        assert found.psi == pytest.approx(self.psi(alpha), rel=1e-12)
        assert found.psi_sqr == pytest.approx(quotient**2 - 2.25, rel=1e-12)
        assert found.support_size == np.count_nonzero(self.x > alpha)
        assert found.norm1 == self.x[self.x > alpha].sum()
        assert found.norm2_squared == np.square(self.x[self.x > alpha]).sum()

    @pytest.mark.parametrize("alpha", [0.1, 1.0, 1.7, 2.5])
    def test_derivatives(self, alpha):
        found = auxiliary(self.x, 3.0, 2.0, alpha)
        h = 1e-4
        low, middle, high = (self.psi(alpha + step) for step in (-h, 0, h))
        assert found.dpsi == pytest.approx((high - low) / (2 * h), rel=1e-6)
        assert found.ddpsi == pytest.approx((high - 2 * middle + low) / h**2, rel=1e-4)
        squares = ((high + 1.5) ** 2 - (low + 1.5) ** 2) / (2 * h)
        assert found.dpsi_sqr == pytest.approx(squares, rel=1e-6)

    def test_finished_exactly_between_the_neighbours_of_the_root(self):
        # Psi changes its sign between the entries 2 and 3.
        assert self.psi(2.0) > 0 > self.psi(2.99)
        for alpha in np.linspace(0, 2.99, 300):
            assert auxiliary(self.x, 3.0, 2.0, alpha).finished == (2.0 <= alpha < 3.0)

    def test_below_the_smallest_entry_zero_is_the_neighbour(self):
        # (1, 2, 3) has quotient 1.6036, and 1.5 is reached between 0 and 1.
        assert auxiliary(np.array([1.0, 2.0, 3.0]), 1.5, 1.0, 0.25).finished


class TestProject:
    @each_solver
    @pytest.mark.parametrize("kind", ["uniform", "halfnormal", "lognormal"])
    @pytest.mark.parametrize("n", [2, 7, 100, 1024])
    @pytest.mark.parametrize("s", [0.1, 0.5, 0.8])
    def test_all_methods_agree(self, solver, kind, n, s):
        x = random_vector(kind, n, np.random.default_rng([n, int(10 * s), 7]))
        l1, l2 = 2 * ratio(n, s), 2.0
        found = project(x, l1, l2, solver)
        exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
        for value in (
            found.value,
            potluru2013.project(x, l1, l2).value,
            hoyer2004.project(x, l1, l2).value,
        ):
            assert error_in_eps(value, exact) <= 1e5
            assert max(norm_errors_in_eps(value, exact)) <= 1e5
        assert found.support_size == exact.support_size
        assert found.shift == pytest.approx(float(exact.shift), rel=1e-9, abs=1e-9)
        assert found.scale == pytest.approx(float(exact.scale), rel=1e-9)
        assert found.evaluations <= 60

    @each_solver
    def test_the_collection(self, solver):
        """Right to 1e-9 or an error that says why, for x as it is and shifted to x >= 0."""
        right, undefined, spoilt = 0, [], []
        for problem in collection():
            l1, l2 = float_norms(problem.x.size, **problem.target)
            with np.errstate(over="ignore"):
                x = problem.x - min(problem.x.min(), 0)
            if not np.isfinite(x).all():
                continue
            try:
                found = project(x, l1, l2, solver)
            except ValueError as error:
                undefined.append(str(error))
                continue
            except FloatingPointError as error:
                spoilt.append(str(error))
                continue
            exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
            assert error_in_eps(found.value, exact) * 2**-52 <= 2e-9, problem.name
            assert found.evaluations <= 200
            right += 1
        assert right > 220
        assert 0 < len(spoilt) < 100
        assert all("rounding" in reason for reason in spoilt)
        assert all(re.search("no unique shift|are no target", reason) for reason in undefined)

    @each_solver
    @given(
        st.lists(st.integers(0, 1000), min_size=2, max_size=30),
        st.floats(0.05, 0.95),
        st.integers(0, 2**32 - 1),
    )
    def test_optimality(self, solver, entries, s, seed):
        x = np.array(entries, dtype=np.float64)
        l1 = ratio(x.size, s)
        assume(np.count_nonzero(x == x.max()) < l1**2 - 1e-6)
        try:
            p, alpha, beta, d, evaluations, path = project(x, l1, 1.0, solver)
            assert len(path) == evaluations
        except FloatingPointError:
            assume(False)
        assert np.count_nonzero(p) == d
        np.testing.assert_allclose(p, np.maximum((x - alpha) / beta, 0), rtol=0, atol=1e-9)
        assert p.sum() == pytest.approx(l1, rel=1e-8)
        assert np.linalg.norm(p) == pytest.approx(1, rel=1e-12)
        others = np.random.default_rng(seed).normal(size=(5, x.size))
        for other in others:
            q = potluru2013.project(other, l1, 1.0).value
            assert np.linalg.norm(q - x) >= np.linalg.norm(p - x) - 1e-7 * x.max()

    @each_solver
    def test_known_answer(self, solver):
        x = np.arange(1.0, 11.0)
        l2 = math.sqrt(385)
        value = project(x, l2 * ratio(10, 0.5), l2, solver).value
        expected = [0, 0, 0, 0, 0.62158264, 3.09527575, 5.56896887]
        expected += [8.04266198, 10.5163551, 12.99004821]
        np.testing.assert_allclose(value, expected, rtol=0, atol=6e-9)

    @each_solver
    def test_zeros_in_x_when_sparseness_decreases(self, solver):
        """The erratum: as printed, d = 2 makes the root that of a negative number."""
        x = np.array([3.0, 1.0, 0.0, 0.0])
        found = project(x, math.sqrt(3.9), 1.0, solver)
        exact = exact_projection(x, l1=math.sqrt(3.9), l2=1.0, nonnegative=True)
        assert error_in_eps(found.value, exact) <= 100
        assert found.support_size == 4
        assert found.shift < 0
        assert found.evaluations == 1

    @each_solver
    def test_decreasing_sparseness_takes_one_evaluation(self, solver):
        x = np.array([9.0, 1.0, 0.5, 0.25, 0.125])
        assert project(x, 2.2, 1.0, solver).evaluations == 1

    def test_evaluations_by_hand(self):
        x = [1.0, 2.0, 3.0, 4.0]
        # The bracket is [0, 3]; K = 2.25 asks for 1 <= alpha < 2, and the first midpoint is there.
        assert project(x, 1.5, 1.0, "bisection").evaluations == 2
        # K = 1.1025 asks for 2 <= alpha < 3: midpoints 1.5 and 2.25.
        assert project(x, 1.05, 1.0, "bisection").evaluations == 3
        # Quotients 1.86 at 0 and 1.71 at 1: the root is in between; midpoints 1.75 and 0.875.
        assert project([1.0, 3.0, 3.5, 4.0], 1.8, 1.0, "bisection").evaluations == 3

    def test_a_newton_step_by_hand(self):
        # At 1.5 the support is (2, 3, 4), q = (0.5, 1.5, 2.5), so that l1 = 4.5, l2**2 = 8.75.
        x = np.array([1.0, 2.0, 3.0, 4.0])
        psi = 4.5 / math.sqrt(8.75) - 1.3
        assert auxiliary(x, 1.3, 1.0, 1.5).psi == pytest.approx(psi, rel=1e-14)
        step = -psi * math.sqrt(8.75) / (4.5**2 / 8.75 - 3)
        # The root is in [2, 3), where the quotient falls from 1.34 to 1, and so is the next point.
        assert 2 <= 1.5 + step < 3
        assert project(x, 1.3, 1.0, "newton").evaluations == 3

    def test_derivatives_need_fewer_evaluations_than_bisection(self):
        total = dict.fromkeys(SOLVERS, 0)
        for seed in range(20):
            x = random_vector("uniform", 1024, np.random.default_rng(seed))
            for solver in SOLVERS:
                total[solver] += project(x, ratio(1024, 0.5), 1.0, solver).evaluations
        assert max(total["newton"], total["newton_sqr"], total["halley"]) < total["bisection"]
        assert min(total.values()) == total["newton_sqr"]

    def test_vectors_in_the_target_set_stay(self):
        for s in (0.2, 0.5, 0.9):
            p = potluru2013.project(np.arange(30.0), ratio(30, s), 1.0).value
            again = project(p, ratio(30, s), 1.0).value
            np.testing.assert_allclose(again, p, rtol=0, atol=1e-13)

    def test_does_not_change_its_input(self):
        x = np.array([1.0, 2.0, 3.0, 4.0])
        project(x, 1.5, 1.0)
        assert x.tolist() == [1, 2, 3, 4]


class TestErrors:
    x = (1.0, 2.0, 3.0, 4.0)

    def test_unknown_solver(self):
        message = "unknown solver 'secant'; the paper has 'bisection', 'newton', 'newton_sqr', 'hal"
        with pytest.raises(ValueError, match=message):
            project(self.x, 1.5, 1.0, "secant")

    def test_negative_entries(self):
        with pytest.raises(ValueError, match=r"x\[1\] is -2.0; x - min\(x\) has the same proj"):
            project([1.0, -2.0, 3.0], 1.5, 1.0)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_not_finite(self, bad):
        with pytest.raises(ValueError, match=rf"must be finite, but x\[2\] is {bad}"):
            project([1.0, 2.0, bad], 1.5, 1.0)

    def test_shape(self):
        with pytest.raises(ValueError, match=r"one vector, got an array of shape \(2, 2\)"):
            project([[1.0, 2.0], [3.0, 4.0]], 1.5, 1.0)

    @pytest.mark.parametrize(
        ("l1", "l2"), [(1.0, 1.0), (2.0, 1.0), (0.9, 1.0), (3.0, 1.0), (1.5, 1.5)]
    )
    def test_norms_out_of_range(self, l1, l2):
        message = rf"between l2 and sqrt\(n\) \* l2, in \({l2}, {2 * l2}\)"
        with pytest.raises(ValueError, match=message):
            project(self.x, l1, l2)

    @pytest.mark.parametrize(("l1", "l2"), [(1.5, 0.0), (1.5, -1.0), (np.nan, 1.0), (1.5, np.nan)])
    def test_norms_that_are_none(self, l1, l2):
        with pytest.raises(ValueError, match="no target for a vector of length 4: need l2 > 0"):
            project(self.x, l1, l2)

    @pytest.mark.parametrize("x", [[], [1.0]])
    def test_too_short(self, x):
        with pytest.raises(ValueError, match=f"no target for a vector of length {len(x)}"):
            project(x, 1.5, 1.0)

    @pytest.mark.parametrize("m", [4, 5, 9])
    def test_ties(self, m):
        x = np.where(np.arange(9) < m, 2.0, 1.0)
        message = rf"{m} entries of x equal the maximum 2.0, and .* = 4 is not greater than their"
        with pytest.raises(ValueError, match=message):
            project(x, 2.0, 1.0)

    def test_one_tie_less_is_fine(self):
        x = np.where(np.arange(9) < 3, 2.0, 1.0)
        x[8] = 0.0
        exact = exact_projection(x, l1=2.0, l2=1.0, nonnegative=True)
        assert error_in_eps(project(x, 2.0, 1.0).value, exact) < 1e4

    @each_solver
    @pytest.mark.parametrize(
        "x",
        [
            1e8 + np.linspace(0, 1, 50),
            1e300 * np.linspace(0.01, 1, 50),
            1e-300 * np.linspace(0.01, 1, 50),
            np.concatenate((1 + 1e-12 * np.arange(20), np.linspace(0, 0.5, 80))),
        ],
        ids=["offset", "large", "small", "near-ties"],
    )
    def test_spoilt_sums(self, solver, x):
        with pytest.raises(FloatingPointError, match="rounding"):
            project(x, ratio(x.size, 0.8), 1.0, solver)

    @pytest.mark.parametrize("value", [[1.2, 0.1], [1.4, 0.0], [np.nan, 1.0], [0.0, 0.0]])
    def test_check_projection(self, value):
        with pytest.raises(FloatingPointError, match="of its maximum"):
            algorithms.check_projection(np.array([3.0, 1.0]), np.array(value), 1.4, 1.48**0.5)


class TestGradient:
    @pytest.mark.parametrize("n", [2, 5, 12, 30])
    @pytest.mark.parametrize("s", [0.2, 0.5, 0.8])
    def test_against_central_differences(self, n, s):
        rng = np.random.default_rng([n, int(10 * s)])
        x, y = rng.random(n), rng.normal(size=n)
        l1, l2 = 3 * ratio(n, s), 3.0
        value = project(x, l1, l2).value
        numeric = numeric_jvp(x, y, l1=l1, l2=l2, nonnegative=True)
        expected = np.array([float(entry) for entry in numeric])
        product = gradient_product(y, x, value, l1, l2)
        np.testing.assert_allclose(product, expected, rtol=1e-8, atol=1e-8)
        assert (product[value == 0] == 0).all()
        np.testing.assert_allclose(jacobian(x, value, l1, l2) @ y, product, rtol=1e-9, atol=1e-10)

    def test_symmetric_positive_semidefinite_and_blind_to_e_and_p(self):
        x = np.random.default_rng(1).random(20)
        value = project(x, ratio(20, 0.6), 1.0).value
        gradient = jacobian(x, value, ratio(20, 0.6), 1.0)
        np.testing.assert_allclose(gradient, gradient.T, rtol=0, atol=1e-15)
        eigenvalues = np.linalg.eigvalsh(gradient)
        assert eigenvalues.min() > -1e-12
        assert np.count_nonzero(eigenvalues > 1e-9) == np.count_nonzero(value) - 2
        for vector in (np.ones(20), value):
            product = gradient_product(vector, x, value, ratio(20, 0.6), 1.0)
            np.testing.assert_allclose(product, 0, atol=1e-12)

    def test_lost_digits_in_a(self):
        x = 1e8 + np.linspace(0, 1, 50)
        value = potluru2013.project(x, ratio(50, 0.5), 1.0).value
        with pytest.raises(FloatingPointError, match=r"a = .* lost too many digits"):
            gradient_product(x, x, value, ratio(50, 0.5), 1.0)

    def test_lost_digits_in_b(self):
        x = np.array([1.0, 2.0, 4.0, 3.0])
        l1 = math.nextafter(2.0, 0)
        value = potluru2013.project(x, l1, 1.0).value
        with pytest.raises(FloatingPointError, match=r"b = .* lost too many digits"):
            jacobian(x, value, l1, 1.0)
