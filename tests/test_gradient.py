"""Derivatives: the paper's matrix, central differences in high precision, and their laws."""

import functools
import math
import pickle

import numpy as np
import pytest
from engines import FAMILIES
from reference import (
    numeric_jvp,
    numeric_sparseness_derivative,
    numeric_target_derivative,
)

import hoyer
from hoyer.paper import algorithms

EPS = np.finfo(np.float64).eps
SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")

FORMS = {
    "sparseness": {"sparseness": 0.6},
    "less sparse": {"sparseness": 0.02},
    "very sparse": {"sparseness": 0.9},
    "sparseness, l2": {"sparseness": 0.6, "l2": 3.5},
    "sparseness, l1": {"sparseness": 0.6, "l1": 3.5},
    "both norms": {"l1": 1.75, "l2": 0.9},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "keep, less sparse": {"sparseness": 0.02, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "nearest, less sparse": {"sparseness": 0.02, "l2": "nearest"},
}
# What only_increase keeps: vectors that are sparser than the target already.
KEPT = {
    "sparseness": {"sparseness": 0.1},
    "sparseness, l2": {"sparseness": 0.1, "l2": 3.5},
    "sparseness, l1": {"sparseness": 0.1, "l1": 3.5},
    "both norms": {"l1": 5.2, "l2": 2.0},
    "keep": {"sparseness": 0.1, "l2": "keep"},
    "nearest": {"sparseness": 0.1, "l2": "nearest"},
}
ASYMMETRIC = {"keep", "keep, less sparse"}

each_form = pytest.mark.parametrize("form", FORMS)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


def numeric_jacobian(x, **options):
    """Column by column, by central differences of the exact projection."""
    return _numeric_jacobian(x.dtype.name, x.tobytes(), tuple(options.items()))


@functools.cache
def _numeric_jacobian(dtype, bits, options):
    x = np.frombuffer(bits, dtype)
    columns = [numeric_jvp(x, unit, **dict(options)) for unit in np.eye(x.size)]
    return np.array([[float(entry) for entry in column] for column in columns]).T


def assert_close(found, expected, tolerance=1e-12, unit=1e-300):
    """Equal but for a share of the largest number, or of the unit where all of them may be zero."""
    expected = np.asarray(expected)
    bound = tolerance * max(np.abs(expected).max(), unit)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


class TestAgainstCentralDifferences:
    @each_form
    @both_sets
    @pytest.mark.parametrize("n", [2, 3, 8])
    def test_every_target_form(self, engine, form, nonnegative, n, rng):
        options = {**FORMS[form], "nonnegative": nonnegative}
        if "l1" in options and "sparseness" not in options:
            options["l1"] = options["l2"] * (1 + 0.4 * (math.sqrt(n) - 1))
        for _ in range(3):
            x = rng.normal(size=n)
            found = engine.solve(x, **options)
            expected = numeric_jacobian(x, **options)
            y = rng.normal(size=n)
            unit = 1 / (found.scale or 1)  # the matrix is a projector over beta
            assert_close(found.jacobian(), expected, 1e-11, unit)
            assert_close(found.jvp(y), expected @ y, 1e-11, unit)
            assert_close(found.vjp(y), expected.T @ y, 1e-11, unit)

    @pytest.mark.parametrize("form", KEPT)
    @both_sets
    def test_only_increase(self, engine, form, nonnegative, rng):
        options = {**KEPT[form], "nonnegative": nonnegative, "only_increase": True}
        x = rng.normal(size=(6, 8)) ** 3
        kept = np.maximum(x, 0) if nonnegative else x
        assert (engine.sparseness(kept) > 0.35).all()
        for row in x:
            found = engine.solve(row, **options)
            assert found.shift == 0
            expected = numeric_jacobian(row, **options)
            y, unit = rng.normal(size=8), 1 / found.scale
            assert_close(found.jacobian(), expected, 1e-12, unit)
            assert_close(found.jvp(y), expected @ y, 1e-12, unit)
            assert_close(found.vjp(y), expected.T @ y, 1e-12, unit)

    @each_form
    @both_sets
    def test_only_increase_where_there_is_something_to_increase(
        self, engine, form, nonnegative, rng
    ):
        x = 1 + 0.1 * rng.random(8)
        options = {**FORMS[form], "nonnegative": nonnegative}
        if FORMS[form].get("sparseness") == 0.02:
            options["sparseness"] = 0.3
        found = engine.solve(x, **options, only_increase=True)
        unit = 1 / found.scale  # two entries have no way to move: the matrix is zero
        assert_close(found.jacobian(), numeric_jacobian(x, **options), 1e-10, unit)

    @each_form
    def test_zeros_that_become_nonzero_have_the_derivatives_of_the_chosen_sign(self, engine, form):
        x = np.array([0.0, -3.0, 1.0, -0.0, 2.0])
        options = {**FORMS[form]}
        if "sparseness" in options:
            options["sparseness"] = 0.05
        else:
            options["l1"] = 0.95 * math.sqrt(5) * options["l2"]
        found = engine.solve(x, **options)
        assert (found.value[[0, 3]] > 0).all()
        assert not found.unique
        assert_close(found.jacobian(), numeric_jacobian(x, **options), 1e-11)

    def test_kept_zeros_move_like_all_other_entries(self, engine):
        """Signed and only_increase: p = x / |x|, whose derivative does not ask for signs."""
        x = np.array([0.0, -3.0, 0.0, 4.0, 0.0, 0.0])
        u = x / 5
        found = engine.solve(x, 0.2, only_increase=True)
        assert_close(found.jacobian(), (np.eye(6) - np.outer(u, u)) / 5)
        found = engine.solve(x, 0.2, l2="nearest", only_increase=True)
        assert_close(found.jacobian(), np.eye(6))

    @pytest.mark.parametrize("scale", [1e-150, 1e-9, 1e9, 1e150])
    def test_other_scales(self, engine, scale, rng):
        x = rng.normal(size=6)
        for form in ("sparseness", "keep", "nearest"):
            expected = engine.solve(x, **FORMS[form]).jacobian()
            found = engine.solve(x * scale, **FORMS[form]).jacobian()
            if form == "sparseness":
                assert_close(found * scale, expected, 1e-11)
            else:
                assert_close(found, expected, 1e-11)

    def test_an_offset_does_not_cost_digits(self, engine):
        x = 1e8 + np.array([0.25, 1.0, 0.5, 2.0, 1.75])
        for sparseness in (0.1, 0.5, 0.8):
            options = {"sparseness": sparseness, "nonnegative": True}
            found = engine.solve(x, **options)
            expected = numeric_jacobian(x, **options)
            assert_close(found.jacobian(), expected, 1e-11, 1 / found.scale)

    def test_where_k_is_close_to_the_size_of_the_support(self, engine):
        """b = d l2² - l1² by subtraction has lost its digits here."""
        x = np.array([5.0, 4.0, 3.5, 1.0, 0.5])
        for gap in (1e-3, 1e-6, 1e-9):
            l1 = math.sqrt(3 * (1 - gap))
            found = engine.solve(x, l1=l1, l2=1.0)
            assert_close(found.jacobian(), numeric_jacobian(x, l1=l1, l2=1.0), 1e-5)

    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    def test_narrow_types(self, engine, dtype, rng):
        x = rng.normal(size=8).astype(dtype)
        y = rng.normal(size=8).astype(dtype)
        for form in ("sparseness", "less sparse", "keep", "nearest"):
            found = engine.solve(x, **FORMS[form])
            expected = numeric_jacobian(x, **FORMS[form])
            tolerance = 50 * float(np.finfo(dtype).eps)
            wide = y.astype(np.float64)
            assert_close(found.jvp(y), expected @ wide, tolerance)
            assert_close(found.vjp(y), expected.T @ wide, tolerance)
            assert_close(found.jacobian(), expected, tolerance)
            assert found.jvp(y).dtype == dtype
            assert found.vjp(y).dtype == dtype


class TestLongVectors:
    """Of results beyond the caches the support is noted while they are read, where it is small."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("shift", [0, 3], ids=["aligned", "not aligned"])
    def test_the_formula(self, dtype, shift):
        rng = np.random.default_rng(7)
        n = (1 << 23) + 12_345  # more than caches of 64 MiB hold, of floats
        memory = rng.normal(size=(2, n + shift)).astype(dtype)
        x, y = memory[:, shift:]
        x[: 1 << 18] *= 3  # here the support is dense,
        x[1 << 19 : 1 << 20] = 0  # here there is none
        found = hoyer.solve(x, 0.9)
        p, given = np.float64(found.value), np.float64(y)
        inside = p != 0
        assert 0.01 < inside.mean() < 0.1
        assert inside[: 1 << 18].mean() > 0.25
        sign, count = np.sign(p[inside]), inside.sum()
        q = np.abs(p[inside]) - np.abs(p).sum() / count
        w = sign * given[inside]
        expected = sign * (w - w.mean() - q * (q @ w) / (q @ q)) / found.scale
        size = np.abs(expected).max()
        product = np.empty(n + shift, dtype)[shift:]
        assert found.jvp(y, out=product) is product
        assert not product[~inside].any()
        assert np.abs(product[inside] - expected).max() <= 4 * np.finfo(dtype).eps * size
        # In place, and by one thread or two, the same comes out.
        threads = hoyer.get_num_threads()
        hoyer.set_num_threads(3 - min(threads, 2))
        try:
            found.jvp(y, out=y)
        finally:
            hoyer.set_num_threads(threads)
        np.testing.assert_array_equal(y, product)


class TestAgainstThePaper:
    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("n", [3, 10, 60])
    def test_the_lemma_s_matrix_and_algorithm_3(self, solver, n, rng):
        for sparseness in (0.1, 0.5, 0.8):
            x = rng.random(n)
            l1, l2 = hoyer.target_norms(n, sparseness, l2=1.5)
            p = algorithms.project(x, l1, l2).value
            expected = algorithms.jacobian(x, p, l1, l2)
            found = hoyer.solve(x, l1=l1, l2=l2, solver=solver)
            y, unit = rng.normal(size=n), 1 / found.scale
            product = algorithms.gradient_product(y, x, p, l1, l2)
            assert_close(found.jacobian(), expected, 1e-9, unit)
            assert_close(found.jvp(y), product, 1e-9, unit)
            assert_close(found.vjp(y), product, 1e-9, unit)


class TestLaws:
    @each_form
    @both_sets
    def test_jvp_and_vjp_are_transposes_and_agree_with_the_matrix(
        self, engine, form, nonnegative, rng
    ):
        x = rng.normal(size=(5, 9))
        found = engine.solve(x, **FORMS[form], nonnegative=nonnegative)
        matrix = found.jacobian()
        y, z = rng.normal(size=(2, 5, 9))
        forward, backward = found.jvp(y), found.vjp(z)
        assert_close(forward, np.einsum("bij,bj->bi", matrix, y))
        assert_close(backward, np.einsum("bij,bi->bj", matrix, z))
        np.testing.assert_allclose(
            (forward * z).sum(-1), (y * backward).sum(-1), rtol=1e-9, atol=1e-11
        )

    @each_form
    @both_sets
    def test_symmetry_where_promised(self, engine, form, nonnegative, rng):
        found = engine.solve(rng.normal(size=(5, 9)), **FORMS[form], nonnegative=nonnegative)
        matrix, y = found.jacobian(), rng.normal(size=(5, 9))
        if form in ASYMMETRIC:
            assert np.abs(matrix - matrix.swapaxes(-1, -2)).max() > 1e-3
            assert np.abs(found.jvp(y) - found.vjp(y)).max() > 1e-3
        else:
            assert_close(matrix, matrix.swapaxes(-1, -2))
            # Without the core both are right, but not the same to the last bit.
            exactly = engine.is_fast or "nearest" not in form
            assert_close(found.jvp(y), found.vjp(y), 0 if exactly else 1e-14)

    @pytest.mark.parametrize("form", ["sparseness", "less sparse", "sparseness, l1", "both norms"])
    def test_fixed_norms_annihilate_e_and_p(self, engine, form, rng):
        x = rng.normal(size=(5, 40))
        found = engine.solve(x, **FORMS[form], nonnegative=True)
        slack = 1e-13 / found.scale[:, None]
        assert (np.abs(found.jvp(np.ones((5, 40)))) <= slack).all()
        assert (np.abs(found.jvp(found.value)) <= slack * np.abs(found.value).max()).all()
        signed = engine.solve(x, **FORMS[form])
        signs = np.where(x < 0, -1.0, 1.0)
        slack = 1e-13 / signed.scale[:, None]
        assert (np.abs(signed.jvp(signs)) <= slack).all()
        assert (np.abs(signed.jvp(signed.value)) <= slack).all()
        assert (np.abs(signed.jvp(x)) <= slack * np.abs(x).max()).all()  # scaling x moves nothing

    @pytest.mark.parametrize("form", ["sparseness", "less sparse", "both norms"])
    def test_positive_semidefinite_with_two_directions_lost(self, engine, form, rng):
        found = engine.solve(rng.normal(size=(6, 12)), **FORMS[form])
        for matrix, scale, d in zip(found.jacobian(), found.scale, found.support_size, strict=True):
            values = np.linalg.eigvalsh(matrix) * scale  # those of a projector: 0 and 1
            np.testing.assert_allclose(values, [0.0] * (12 - d + 2) + [1.0] * (d - 2), atol=1e-11)

    def test_nothing_moves_outside_the_support(self, engine, rng):
        x = rng.normal(size=(6, 30))
        for target in FORMS.values():
            found = engine.solve(x, **target)
            z = found.jvp(rng.normal(size=(6, 30)))
            assert not z[found.value == 0].any()

    def test_keep_moves_along_p_when_x_grows(self, engine, rng):
        """Homogeneous of degree one: J x = p, for "keep" and for "nearest"."""
        x = rng.normal(size=(6, 30))
        for word in ("keep", "nearest"):
            found = engine.solve(x, 0.7, l2=word)
            assert_close(found.jvp(x), found.value)

    def test_linear(self, engine, rng):
        found = engine.solve(rng.normal(size=(3, 20)), 0.7, l2="keep")
        y, z = rng.normal(size=(2, 3, 20))
        for product in (found.jvp, found.vjp):
            assert_close(product(2 * y - 3 * z), 2 * product(y) - 3 * product(z), 1e-11)
            assert not product(np.zeros((3, 20))).any()

    def test_the_arguments_are_not_written(self, rng):
        y = rng.normal(size=(3, 20))
        before = y.copy()
        found = hoyer.solve(rng.normal(size=(3, 20)), 0.7, l2="keep")
        value = found.value.copy()
        found.jvp(y), found.vjp(y), found.jacobian(), found.target_gradient()
        np.testing.assert_array_equal(y, before)
        np.testing.assert_array_equal(found.value, value)

    def test_lists_and_integers_are_taken(self):
        found = hoyer.solve([1.0, 4.0, 2.0, 3.0], 0.3)
        expected = found.jvp(np.array([1.0, 0.0, 0.0, 2.0]))
        np.testing.assert_array_equal(found.jvp([1, 0, 0, 2]), expected)
        np.testing.assert_array_equal(found.vjp(np.array([1, 0, 0, 2])), expected)


@pytest.mark.engines(*FAMILIES)
class TestShapes:
    def test_each_vector_of_a_batch_on_its_own(self, engine, rng):
        x, y = rng.normal(size=(2, 2, 3, 8))
        for target in FORMS.values():
            batch = engine.solve(x, **target)
            matrices, (by_l1, by_l2) = batch.jacobian(), batch.target_gradient()
            assert matrices.shape == (2, 3, 8, 8)
            assert by_l1.shape == by_l2.shape == x.shape
            for index in np.ndindex(2, 3):
                alone = engine.solve(x[index], **target)
                assert_close(batch.jvp(y)[index], alone.jvp(y[index]), 1e-11)
                assert_close(batch.vjp(y)[index], alone.vjp(y[index]), 1e-11)
                assert_close(matrices[index], alone.jacobian(), 1e-11)
                assert_close(by_l1[index], alone.target_gradient()[0], 1e-11)
                assert_close(by_l2[index], alone.target_gradient()[1], 1e-11)

    @pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (2, 0), (1, 2), None])
    def test_along_any_axes(self, engine, axis, rng):
        """The matrix orders the entries of a vector by ascending axes, whatever order was given."""
        x, y = rng.normal(size=(2, 2, 3, 4))
        axes = (0, 1, 2) if axis is None else np.atleast_1d(axis)
        inside = sorted(a % 3 for a in axes)
        order = [k for k in range(3) if k not in inside] + inside
        shape = tuple(x.shape[k] for k in order[: 3 - len(inside)])

        def flat(a):
            return np.ascontiguousarray(a.transpose(order)).reshape(*shape, -1)

        for word in (1.0, "keep"):
            found = engine.solve(x, 0.6, l2=word, axis=axis)
            expected = engine.solve(flat(x), 0.6, l2=word)
            n = flat(x).shape[-1]
            assert found.jacobian().shape == (*shape, n, n)
            assert_close(found.jacobian(), expected.jacobian(), 1e-12)
            assert_close(flat(found.jvp(y)), expected.jvp(flat(y)), 1e-12)
            assert_close(flat(found.vjp(y)), expected.vjp(flat(y)), 1e-12)
            for mine, other in zip(
                found.target_gradient(), expected.target_gradient(), strict=True
            ):
                assert mine.shape == x.shape
                assert_close(flat(mine), other, 1e-12)


class TestTies:
    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("signs", [(1, 1, 1, 1), (1, -1, -1, 1)])
    def test_as_many_as_fit(self, engine, solver, signs):
        """m = K = 4: (E - e e^T / m) / beta on the tied entries."""
        x = np.array([1.0, 7.0, 7.0, 5.0, 7.0, 7.0, 0.0])
        tied = np.flatnonzero(x == 7)
        x[tied] *= signs
        found = engine.solve(x, l1=2.0, l2=1.0, solver=solver)
        e = np.zeros(7)
        e[tied] = signs
        beta = (7 - 5) * 4 / 2.0
        expected = (np.diag(np.abs(e)) - np.outer(e, e) / 4) / beta
        assert_close(found.jacobian(), expected)
        y = np.arange(7.0) ** 2
        assert_close(found.jvp(y), expected @ y)
        assert_close(found.vjp(y), expected @ y)
        for gradient in found.target_gradient():  # b = 0
            np.testing.assert_array_equal(gradient, 0)

    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize(
        "x", [np.zeros(5), np.full(5, -2.0), np.array([3.0, 1.0, -3.0, 3.0, 0.0])]
    )
    def test_more_than_fit(self, engine, solver, x):
        """m > K: defined as zero in x; the targets still move the point, with d = m."""
        for nonnegative in (False, True):
            if nonnegative and x[0] == 3:
                x = np.abs(x)
            found = engine.solve(x, l1=1.5, l2=1.0, solver=solver, nonnegative=nonnegative)
            assert found.scale == 0
            y = np.arange(5.0) - 1
            np.testing.assert_array_equal(found.jvp(y), 0)
            np.testing.assert_array_equal(found.vjp(y), 0)
            np.testing.assert_array_equal(found.jacobian(), 0)
            expected = numeric_target_derivative(x, 1.5, 1.0, nonnegative=nonnegative)
            for mine, numeric in zip(found.target_gradient(), expected, strict=True):
                assert_close(mine, [float(entry) for entry in numeric], 1e-12)

    def test_more_than_fit_with_free_and_kept_norms(self, engine):
        """Only the norm follows x: p̂ p̂^T for the nearest, p x^T / |x|² for the kept norm."""
        x = np.array([3.0, 1.0, -3.0, 3.0, 0.0, 2.0])
        unit = engine.project(x, 0.7)
        assert np.count_nonzero(unit) == 3
        found = engine.solve(x, 0.7, l2="nearest")
        assert_close(found.jacobian(), np.outer(unit, unit))
        found = engine.solve(x, 0.7, l2="keep")
        assert_close(found.jacobian(), np.outer(found.value, x) / (x @ x))

    def test_sparseness_one(self, engine):
        """One-hot: m = K = 1, nothing can move."""
        found = engine.solve([3.0, -8.0, 4.0], 1.0)
        np.testing.assert_array_equal(found.jacobian(), 0)
        np.testing.assert_array_equal(found.jvp([1.0, 2.0, 3.0]), 0)
        found = engine.solve([3.0, -8.0, 4.0], 1.0, l2="nearest")
        assert_close(found.jacobian(), np.diag([0.0, 1.0, 0.0]))

    def test_sparseness_zero(self, engine):
        """The constant vector: nothing can move."""
        found = engine.solve([3.0, -8.0, 4.0], 0.0)
        np.testing.assert_array_equal(found.jacobian(), 0)
        np.testing.assert_array_equal(found.vjp([1.0, 2.0, 3.0]), 0)
        u = np.array([1.0, -1.0, 1.0]) / math.sqrt(3)
        found = engine.solve([3.0, -8.0, 4.0], 0.0, l2="nearest")
        assert_close(found.jacobian(), np.outer(u, u))

    @pytest.mark.parametrize("word", ["keep", "nearest"])
    def test_a_zero_vector_has_finite_products(self, engine, word):
        x = np.zeros((2, 4))
        x[1] = [1, 2, 3, 4]
        found = engine.solve(x, 0.5, l2=word)
        for z in (found.jvp(np.ones((2, 4))), found.vjp(np.ones((2, 4))), found.jacobian()):
            assert np.isfinite(z).all()
        alone = engine.solve(x[1], 0.5, l2=word)
        assert_close(found.jacobian()[1], alone.jacobian())

    def test_the_nearest_to_a_vector_that_points_away_stays_zero(self, engine):
        found = engine.solve([-1.0, -2.0, -3.0], 0.5, l2="nearest", nonnegative=True)
        np.testing.assert_array_equal(found.jvp([1.0, 2.0, 3.0]), 0)
        np.testing.assert_array_equal(found.jacobian(), 0)


@pytest.mark.engines(*FAMILIES)
class TestTargetGradient:
    @each_form
    @both_sets
    def test_partial_derivatives_at_the_norms_found(self, engine, form, nonnegative, rng):
        for _ in range(3):
            x = rng.normal(size=8) + 0.5
            found = engine.solve(x, **FORMS[form], nonnegative=nonnegative)
            assert found.l2 > 0
            expected = numeric_target_derivative(
                x, float(found.l1), float(found.l2), nonnegative=nonnegative
            )
            mine = found.target_gradient()
            assert isinstance(mine, tuple)
            assert len(mine) == 2
            for gradient, numeric in zip(mine, expected, strict=True):
                assert_close(gradient, [float(entry) for entry in numeric], 1e-10)

    def test_the_norms_grow_as_they_are_told(self, engine, rng):
        """d|p|₁/dl1 = 1, d|p|₂/dl1 = 0, and the other way round."""
        x = rng.normal(size=(7, 40))
        found = engine.solve(x, l1=3.0, l2=1.2)
        by_l1, by_l2 = found.target_gradient()
        signs = np.sign(found.value)
        np.testing.assert_allclose((signs * by_l1).sum(-1), 1, rtol=1e-11)
        np.testing.assert_allclose((signs * by_l2).sum(-1), 0, atol=1e-11)
        np.testing.assert_allclose((found.value * by_l1).sum(-1), 0, atol=1e-11)
        np.testing.assert_allclose((found.value * by_l2).sum(-1), 1.2, rtol=1e-11)

    def test_both_norms_together_scale_the_point(self, engine, rng):
        """Euler: l1 dp/dl1 + l2 dp/dl2 = p."""
        found = engine.solve(rng.normal(size=(7, 40)), 0.8, l2=2.0)
        by_l1, by_l2 = found.target_gradient()
        sum_ = found.l1[:, None] * by_l1 + found.l2[:, None] * by_l2
        assert_close(sum_, found.value, 1e-11)


WITH_SPARSENESS = [form for form in FORMS if "sparseness" in FORMS[form]]


@pytest.mark.engines(*FAMILIES)
class TestSparsenessGradient:
    @pytest.mark.parametrize("form", WITH_SPARSENESS)
    @both_sets
    @pytest.mark.parametrize("n", [2, 3, 8, 20])
    def test_against_central_differences(self, engine, form, nonnegative, n, rng):
        options = {**FORMS[form], "nonnegative": nonnegative}
        for _ in range(3):
            x = rng.normal(size=n) + 0.5
            found = engine.solve(x, **options)
            numeric = [float(entry) for entry in numeric_sparseness_derivative(x, **options)]
            assert_close(found.sparseness_gradient(), numeric, 1e-10, found.l2)

    @pytest.mark.parametrize("form", [form for form in KEPT if "sparseness" in KEPT[form]])
    @both_sets
    def test_only_increase(self, engine, form, nonnegative, rng):
        """Zero for what kept its direction, and for no other vector."""
        options = {**KEPT[form], "nonnegative": nonnegative, "only_increase": True}
        x = np.stack([rng.normal(size=8) ** 3, 3 + 0.1 * rng.random(8)])
        found = engine.solve(x, **options)
        assert found.shift[0] == 0
        numeric = [[float(e) for e in numeric_sparseness_derivative(v, **options)] for v in x]
        assert not np.any(numeric[0])
        np.testing.assert_array_equal(found.sparseness_gradient()[0], 0)
        assert_close(found.sparseness_gradient()[1], numeric[1], 1e-10)

    @pytest.mark.parametrize("l2", [1.0, 2.5, "keep", "nearest"])
    def test_ties(self, engine, l2):
        """More entries at the maximum than the target allows: derivatives with d = m."""
        x = np.array([3.0, -3.0, 1.0, 3.0, 3.0, 0.5])
        for sigma in (0.4, 0.7, 0.9):
            found = engine.solve(x, sigma, l2=l2)
            assert found.scale == 0
            numeric = [float(e) for e in numeric_sparseness_derivative(x, sigma, l2=l2)]
            assert_close(found.sparseness_gradient(), numeric, 1e-10)

    @pytest.mark.parametrize("given", [{}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}])
    def test_zero_where_all_entries_are_equal(self, engine, given):
        x = np.array([[1.0, -2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
        for sigma in (0.0, 1.0):
            np.testing.assert_array_equal(engine.solve(x, sigma, **given).sparseness_gradient(), 0)
        square = np.array([2.0, 2.0, 2.0, 2.0, 1.0, 0.5, 0.0, 0.5, 1.0])  # m = K = 4
        found = engine.solve(square, 0.5, **given)
        np.testing.assert_array_equal(np.flatnonzero(found.value), range(4))
        np.testing.assert_array_equal(found.sparseness_gradient(), 0)

    def test_vectors_that_stay_zero(self, engine):
        x = np.array([[0.0, 0.0, 0.0], [3.0, 1.0, 2.0], [-1.0, -2.0, -3.0]])
        gradient = engine.solve(x, 0.5, l2="keep").sparseness_gradient()
        np.testing.assert_array_equal(gradient[0], 0)
        gradient = engine.solve(x, 0.5, l2="nearest", nonnegative=True).sparseness_gradient()
        np.testing.assert_array_equal(gradient[[0, 2]], 0)
        assert gradient[1].any()

    @pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (2, 1), None])
    @pytest.mark.parametrize("given", [{}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}])
    def test_any_axis_and_a_target_for_each_vector(self, engine, axis, given, rng):
        x = rng.normal(size=(3, 4, 5))
        sigma = rng.uniform(0.3, 0.8, x.sum(axis).shape)
        found = engine.solve(x, sigma, axis=axis, **given).sparseness_gradient()
        assert found.shape == x.shape
        step = 1e-6
        above, below = (
            engine.project(x, s, axis=axis, **given) for s in (sigma + step, sigma - step)
        )
        np.testing.assert_allclose(found, (above - below) / (2 * step), rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    @pytest.mark.parametrize("given", [{}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}])
    def test_narrow_types(self, engine, dtype, given, rng):
        x = rng.normal(size=(6, 12)).astype(dtype)
        found = engine.solve(x, 0.6, **given).sparseness_gradient()
        assert found.dtype == dtype
        wide = engine.solve(x.astype(np.float64), 0.6, **given).sparseness_gradient()
        np.testing.assert_allclose(found, wide, atol=40 * np.finfo(dtype).eps * np.abs(wide).max())

    def test_the_sparseness_grows_as_it_is_told(self, engine, rng):
        """One per unit, of every result, however its norm is found."""
        x = rng.normal(size=(7, 40))
        for given in ({}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}):
            found = engine.solve(x, 0.7, **given)
            p, moved = found.value, found.sparseness_gradient()
            l1, l2 = np.abs(p).sum(-1), np.linalg.norm(p, axis=-1)
            by_l1, by_l2 = (np.sign(p) * moved).sum(-1), (p * moved).sum(-1) / l2
            rate = -(by_l1 / l2 - l1 * by_l2 / l2**2) / (math.sqrt(40) - 1)
            np.testing.assert_allclose(rate, 1, rtol=1e-10)

    def test_two_norms_have_another_gradient(self, engine):
        found = engine.solve([1.0, 2.0, 3.0], l1=1.3, l2=1.0)
        with pytest.raises(ValueError, match=r"this one has norms alone: use target_gradient\(\)"):
            found.sparseness_gradient()

    def test_pickle(self, rng):
        found = hoyer.solve(rng.normal(size=(3, 9)), 0.6, l2="nearest")
        other = pickle.loads(pickle.dumps(found))
        np.testing.assert_array_equal(other.sparseness_gradient(), found.sparseness_gradient())


class TestLinearOperator:
    @pytest.mark.parametrize("word", [1.0, "keep", "nearest"])
    def test_of_one_vector(self, word, rng):
        linalg = pytest.importorskip("scipy.sparse.linalg")
        x, y = rng.normal(size=(2, 12))
        found = hoyer.solve(x, 0.6, l2=word)
        operator = found.as_linear_operator()
        assert isinstance(operator, linalg.LinearOperator)
        assert operator.shape == (12, 12)
        assert operator.dtype == np.float64
        np.testing.assert_array_equal(operator.matvec(y), found.jvp(y))
        np.testing.assert_array_equal(operator.rmatvec(y), found.vjp(y))
        assert_close(operator @ np.eye(12), found.jacobian())
        assert_close(operator.T @ np.eye(12), found.jacobian().T)

    def test_of_an_array_that_is_one_vector(self, rng):
        pytest.importorskip("scipy")
        x, y = rng.normal(size=(2, 3, 4))
        found = hoyer.solve(x, 0.6, axis=None)
        operator = found.as_linear_operator()
        assert operator.shape == (12, 12)
        np.testing.assert_array_equal(operator @ y.ravel(), found.jvp(y).ravel())

    def test_in_an_iterative_solver(self, rng):
        """Damped least squares with the operator gives what the dense matrix gives."""
        linalg = pytest.importorskip("scipy.sparse.linalg")
        x, y = rng.normal(size=(2, 10))
        found = hoyer.solve(x, 0.5, l2="keep")
        mine = linalg.lsqr(found.as_linear_operator(), y, damp=0.1, atol=1e-14, btol=1e-14)[0]
        matrix = found.jacobian()
        expected = np.linalg.solve(matrix.T @ matrix + 0.01 * np.eye(10), matrix.T @ y)
        np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-9)


class TestUnchecked:
    def test_a_vector_of_nan_does_not_spoil_the_others(self, engine, rng):
        x = rng.normal(size=(3, 10))
        expected = engine.solve(x, 0.6)
        y = rng.normal(size=(3, 10))
        x[1, 4] = math.nan
        found = engine.solve(x, 0.6, check_finite=False)
        np.testing.assert_array_equal(found.jvp(y)[[0, 2]], expected.jvp(y)[[0, 2]])
        np.testing.assert_array_equal(found.vjp(y)[[0, 2]], expected.vjp(y)[[0, 2]])
