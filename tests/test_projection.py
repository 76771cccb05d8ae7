"""Projection: the value and how it was found, for every vector."""

import math
import pickle

import numpy as np
import pytest

import hoyer

SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")
EPS = np.finfo(np.float64).eps
ATTRIBUTES = ("shift", "scale", "support_size", "evaluations", "unique", "l1", "l2")


def assert_explains_its_value(found, x, nonnegative=False, eps=EPS):
    """p = max((x - alpha) / beta, 0), d entries, the norms as stated."""
    p, magnitude = np.abs(found.value), np.asarray(x if nonnegative else np.abs(x))
    shift, scale = found.shift[..., None], found.scale[..., None]
    explained = np.maximum((magnitude - shift) / scale, 0)
    largest = p.max(-1, keepdims=True)
    reach = np.maximum(np.abs(magnitude), np.abs(shift)).max(-1, keepdims=True) / scale
    assert (np.abs(explained - p) <= 64 * eps * (largest + reach)).all()
    np.testing.assert_array_equal(found.support_size, np.count_nonzero(p, axis=-1))
    wide = p.astype(np.float64)
    np.testing.assert_allclose(found.l1, wide.sum(-1), rtol=64 * eps)
    np.testing.assert_allclose(found.l2, np.sqrt((wide**2).sum(-1)), rtol=64 * eps)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_shift_scale_and_support_explain_the_value(solver, nonnegative, dtype, rng):
    x = rng.normal(size=(20, 50)).astype(dtype)
    options = {"solver": solver, "nonnegative": nonnegative}
    for sparseness in (0.05, 0.3, 0.7, 0.95):
        found = hoyer.solve(x, sparseness, **options)
        assert_explains_its_value(found, x, nonnegative, np.finfo(dtype).eps)
        assert found.unique.all()
        np.testing.assert_allclose(found.l2, 1)
    found = hoyer.solve(x, l1=3.0, l2=0.7, **options)
    assert_explains_its_value(found, x, nonnegative, np.finfo(dtype).eps)


@pytest.mark.parametrize("word", ["keep", "nearest"])
def test_free_and_kept_norms_are_reported(word, rng):
    x = rng.normal(size=(20, 50)) * np.logspace(-3, 3, 20)[:, None]
    found = hoyer.solve(x, 0.7, l2=word)
    assert_explains_its_value(found, x)
    np.testing.assert_allclose(found.l1 / found.l2, hoyer.target_norms(50, 0.7)[0], rtol=32 * EPS)
    if word == "keep":
        np.testing.assert_allclose(found.l2, np.linalg.norm(x, axis=-1), rtol=32 * EPS)


def test_shapes_follow_the_axis(rng):
    x = rng.normal(size=(2, 3, 4))
    for axis, shape in [(-1, (2, 3)), (0, (3, 4)), (1, (2, 4)), ((0, 2), (3,)), (None, ())]:
        found = hoyer.solve(x, 0.5, axis=axis)
        assert isinstance(found, hoyer.Projection)
        assert found.value.shape == x.shape
        for name in ATTRIBUTES:
            assert np.shape(getattr(found, name)) == shape, name


def test_types(rng):
    for x in (rng.normal(size=(3, 8)), rng.normal(size=8)):
        found = hoyer.solve(x, 0.5)
        assert np.asarray(found.unique).dtype == np.bool_
        assert np.asarray(found.support_size).dtype.kind == "i"
        assert np.asarray(found.evaluations).dtype.kind == "i"
        for name in ("shift", "scale", "l1", "l2"):
            assert np.asarray(getattr(found, name)).dtype == np.float64


def test_of_one_vector(rng):
    x = rng.normal(size=30)
    found = hoyer.solve(x, 0.8)
    batch = hoyer.solve(x[None], 0.8)
    assert int(found.support_size) == batch.support_size[0]
    assert bool(found.unique) is True
    assert float(found.scale) == pytest.approx(batch.scale[0], rel=1e-14)
    assert float(found.shift) == pytest.approx(batch.shift[0], rel=1e-14)
    assert float(found.l2) == 1


def test_evaluations_are_counted_per_vector(rng):
    x = np.stack([rng.random(1000), np.arange(1000.0), rng.standard_cauchy(1000)])
    for solver in SOLVERS:
        batch = hoyer.solve(x, 0.9, solver=solver)
        alone = [hoyer.solve(row, 0.9, solver=solver) for row in x]
        assert (batch.evaluations >= 1).all()
        if solver != "auto":
            np.testing.assert_array_equal(batch.evaluations, [int(a.evaluations) for a in alone])
    assert hoyer.solve(x, 0.9, solver="bisection").evaluations.max() > 5


def test_less_sparse_targets_take_the_paper_s_one_evaluation():
    x = np.array([9.0, 1.0, 0.0, 0.0])
    for solver in SOLVERS[1:]:
        assert hoyer.solve(x, 0.2, solver=solver).evaluations == 1


class TestWithoutShift:
    """Where there is no alpha: scale 0, shift NaN."""

    def test_more_ties_than_fit(self):
        found = hoyer.solve(np.array([[2.0, 2.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]]), l1=1.5, l2=1.0)
        assert np.isnan(found.shift[0])
        assert found.scale[0] == 0
        assert not found.unique[0]
        assert found.support_size[0] == 3
        assert found.scale[1] > 0
        assert found.unique[1]

    def test_zero_and_constant_vectors(self):
        for x in (np.zeros(5), np.full(5, 3.0), np.full(5, -3.0)):
            found = hoyer.solve(x, 0.5)
            assert np.isnan(found.shift)
            assert found.scale == 0
            assert not found.unique
            assert found.l2 == 1

    def test_target_sparseness_zero(self):
        for nonnegative in (False, True):
            found = hoyer.solve([1.0, 2.0, 4.0], 0.0, nonnegative=nonnegative)
            assert np.isnan(found.shift)
            assert found.scale == 0
            assert found.support_size == 3
            assert found.unique

    def test_signed_target_zero_with_zero_entries_is_a_choice(self):
        assert not hoyer.solve([1.0, 0.0, 4.0], 0.0).unique
        assert hoyer.solve([1.0, 0.0, 4.0], 0.0, nonnegative=True).unique


class TestExactlyAsManyTiesAsFit:
    """m = K: alpha is the next smaller value, beta = (max - alpha) m / l1."""

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_four(self, solver):
        x = np.array([3.0, 7.0, -7.0, 1.0, 7.0, 7.0, -5.0])
        found = hoyer.solve(x, l1=2.0, l2=1.0, solver=solver)
        assert found.shift == 5
        assert found.scale == pytest.approx((7 - 5) * 4 / 2.0, rel=4 * EPS)
        assert found.support_size == 4
        assert found.unique
        found = hoyer.solve(x[x != -7], l1=math.sqrt(3), l2=1.0, nonnegative=True, solver=solver)
        assert np.count_nonzero(found.value > 1e-7) == 3

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_one(self, solver):
        found = hoyer.solve([3.0, -8.0, 4.0], 1.0, l2=2.0, solver=solver)
        np.testing.assert_array_equal(found.value, [0, -2, 0])
        assert found.shift == 4
        assert found.scale == pytest.approx((8 - 4) / 2.0, rel=4 * EPS)
        assert found.support_size == 1
        assert found.unique
        found = hoyer.solve([-3.0, -8.0, -4.0], 1.0, l2=2.0, nonnegative=True, solver=solver)
        np.testing.assert_array_equal(found.value, [2, 0, 0])
        assert found.shift == -4
        assert found.scale == pytest.approx((-3 + 4) / 2.0, rel=4 * EPS)

    def test_sparseness_one_with_two_maxima_is_a_choice(self):
        found = hoyer.solve([3.0, -8.0, 8.0], 1.0)
        np.testing.assert_array_equal(found.value, [0, -1, 0])
        assert not found.unique
        assert found.scale == 0
        assert np.isnan(found.shift)


class TestUnique:
    def test_the_sign_of_a_zero_was_a_choice(self):
        x = np.array([3.0, 0.0, 1.0, -2.0])
        assert not hoyer.solve(x, 0.05).unique
        assert hoyer.solve(x, 0.05, nonnegative=True).unique
        assert hoyer.solve(x, 0.9).unique  # the zero stays zero

    def test_per_vector(self):
        x = np.array([[3.0, 0.0, 1.0, -2.0], [3.0, 0.5, 1.0, -2.0], [2.0, 2.0, 2.0, 2.0]])
        np.testing.assert_array_equal(hoyer.solve(x, 0.05).unique, [False, True, False])


class TestOnlyIncrease:
    sparse = np.array([4.0, 0.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    @pytest.mark.parametrize(
        ("given", "scale", "l1", "l2"),
        [
            ({"sparseness": 0.5}, 5.0, 1.4, 1.0),
            ({"sparseness": 0.5, "l2": 10.0}, 0.5, 14.0, 10.0),
            ({"sparseness": 0.5, "l1": 14.0}, 0.5, 14.0, 10.0),
            ({"l1": 20.0, "l2": 10.0}, 0.5, 14.0, 10.0),
            ({"sparseness": 0.5, "l2": "keep"}, 1.0, 7.0, 5.0),
            ({"sparseness": 0.5, "l2": "nearest"}, 1.0, 7.0, 5.0),
        ],
    )
    def test_kept_vectors_have_shift_zero_and_the_ratio_of_norms(self, given, scale, l1, l2):
        found = hoyer.solve(np.stack([self.sparse, np.arange(9.0)]), **given, only_increase=True)
        assert found.shift[0] == 0
        assert found.scale[0] == pytest.approx(scale, rel=8 * EPS)
        assert found.unique[0]
        assert found.support_size[0] == 2
        assert found.l1[0] == pytest.approx(l1, rel=8 * EPS)
        assert found.l2[0] == pytest.approx(l2, rel=8 * EPS)
        np.testing.assert_allclose(found.value[0], self.sparse / scale, rtol=8 * EPS)
        assert found.shift[1] > 0  # the other one was projected
        assert found.l1[1] / found.l2[1] == pytest.approx(2.0, rel=8 * EPS)

    def test_nonnegative(self):
        x = np.array([4.0, -9.0, 3.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
        found = hoyer.solve(x, 0.5, l2=10.0, only_increase=True, nonnegative=True)
        np.testing.assert_allclose(found.value, np.maximum(x, 0) * 2, rtol=8 * EPS)
        assert found.shift == 0
        assert found.scale == pytest.approx(0.5, rel=8 * EPS)
        assert found.support_size == 2
        assert found.unique

    def test_exactly_as_sparse_is_kept(self):
        """(4, 3, 0, 0) has sparseness 0.6 exactly."""
        found = hoyer.solve([4.0, 3.0, 0.0, 0.0], l1=7.0, l2=5.0, only_increase=True)
        np.testing.assert_allclose(found.value, [4, 3, 0, 0], rtol=8 * EPS)
        assert found.unique


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "given", [{}, {"l2": "keep"}, {"l2": "nearest"}, {"only_increase": True}, {"nonnegative": True}]
)
def test_pickling_keeps_everything_the_products_included(protocol, given, rng):
    x = rng.normal(size=(4, 12)) ** 3
    y = rng.normal(size=(4, 12))
    found = hoyer.solve(x, 0.6, **given)
    copy = pickle.loads(pickle.dumps(found, protocol))
    assert type(copy) is type(found)
    for name in ("value", *ATTRIBUTES):
        np.testing.assert_array_equal(getattr(copy, name), getattr(found, name))
    np.testing.assert_array_equal(copy.jvp(y), found.jvp(y))
    np.testing.assert_array_equal(copy.vjp(y), found.vjp(y))
    np.testing.assert_array_equal(copy.jacobian(), found.jacobian())


def test_pickling_a_single_vector_and_another_axis(rng):
    for axis in (None, 0, (0, 1)):
        found = hoyer.solve(rng.normal(size=(4, 5)), 0.6, axis=axis)
        copy = pickle.loads(pickle.dumps(found))
        y = rng.normal(size=(4, 5))
        np.testing.assert_array_equal(copy.jvp(y), found.jvp(y))
        assert np.shape(copy.unique) == np.shape(found.unique)


def test_a_projection_does_not_change_when_its_input_does(rng):
    x = rng.normal(size=(3, 10))
    for word in (1.0, "keep", "nearest"):
        found = hoyer.solve(x, 0.5, l2=word)
        value, product = found.value.copy(), found.vjp(np.ones((3, 10)))
        untouched = x.copy()
        x *= -7
        np.testing.assert_array_equal(found.value, value)
        np.testing.assert_array_equal(found.vjp(np.ones((3, 10))), product)
        x[...] = untouched
