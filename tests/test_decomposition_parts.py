"""The parts of the factorizations: each subproblem is solved to its optimum."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import nnls

import hoyer
from hoyer.decomposition.blocks import (
    RowSet,
    normalize_rows,
    objective,
    sweep,
    worthwhile_sweeps,
)
from hoyer.decomposition.codes import CodeSet, nonnegative_codes, sparse_codes
from hoyer.decomposition.data import (
    residual_norm,
    rows_times,
    rows_times_transposed,
    squared_norm,
    to_moderate_scale,
)
from hoyer.decomposition.factors import nndsvda, random_factors

SETS = [
    RowSet(sparseness, nonnegative, normalized)
    for sparseness in (None, 0.0, 0.4, 0.8, 1.0)
    for nonnegative in (True, False)
    for normalized in (True, False)
]


def members(allowed, rng, length, count=3000):
    """Random points of the set, of all scales."""
    rows = rng.normal(size=(count, length)) * rng.choice([0.1, 1, 3], size=(count, 1))
    if allowed.nonnegative:
        rows = abs(rows)
    if allowed.sparseness is not None:
        rows = hoyer.project(rows, allowed.sparseness, l2="keep", nonnegative=allowed.nonnegative)
    if allowed.normalized:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@pytest.mark.parametrize("allowed", SETS)
@pytest.mark.parametrize("kind", ["normal", "positive", "negative", "zero", "constant"])
def test_no_member_of_a_set_is_nearer_than_the_nearest(allowed, kind, rng):
    length = 6
    target = {
        "normal": rng.normal(size=length),
        "positive": rng.uniform(size=length),
        "negative": -rng.uniform(0.1, 1, size=length),
        "zero": np.zeros(length),
        "constant": np.full(length, 2.0),
    }[kind]
    given, out = target.copy(), np.full(length, np.nan)
    allowed.nearest(target, out)
    np.testing.assert_array_equal(target, given)
    if allowed.sparseness is not None:
        assert hoyer.sparseness(out) == pytest.approx(allowed.sparseness, abs=1e-7)
    if allowed.nonnegative:
        assert out.min() >= 0
    if allowed.normalized:
        assert np.linalg.norm(out) == pytest.approx(1)
    distances = np.linalg.norm(members(allowed, rng, length) - target, axis=1)
    assert np.linalg.norm(out - target) <= distances.min() + 1e-12


@pytest.mark.parametrize("allowed", SETS)
def test_a_sweep_never_raises_the_objective(allowed, rng):
    X = abs(rng.normal(size=(30, 20)))
    codes = abs(rng.normal(size=(5, 30)))
    rows = np.empty((5, 20))
    for row in rows:
        allowed.nearest(abs(rng.normal(size=20)), row)
    cross, gram, half = codes @ X, codes @ codes.T, squared_norm(X) / 2
    values = []
    for _ in range(10):
        values.append(objective(half, rows, cross, gram))
        sweep(rows, cross, gram, allowed)
    assert max(np.diff(values)) <= 1e-12 * half
    assert values[-1] < values[0] or (allowed.sparseness == 0 and allowed.nonnegative)


def test_the_objective_is_half_the_squared_residual(rng):
    X, codes, rows = (rng.normal(size=shape) for shape in ((30, 20), (5, 30), (5, 20)))
    expected = np.sum((X - codes.T @ rows) ** 2) / 2
    found = objective(squared_norm(X) / 2, rows, codes @ X, codes @ codes.T)
    assert found == pytest.approx(expected, rel=1e-12)
    assert residual_norm(X, codes, rows) ** 2 / 2 == pytest.approx(expected, rel=1e-12)
    for kind in (sparse.csr_array, sparse.csc_matrix):
        assert residual_norm(kind(X), codes, rows) ** 2 / 2 == pytest.approx(expected, rel=1e-9)


def test_rows_without_weight_stay(rng):
    rows = abs(rng.normal(size=(3, 8)))
    before = rows.copy()
    gram = np.diag([1.0, 0.0, 2.0])
    sweep(rows, rng.normal(size=(3, 8)), gram, RowSet(0.5, True, False))
    np.testing.assert_array_equal(rows[1], before[1])
    assert np.isfinite(rows).all()
    assert (rows[0] != before[0]).any()


def test_scale_moves_from_the_rows_to_the_codes(rng):
    rows, codes = rng.normal(size=(4, 6)), rng.normal(size=(4, 9))
    rows[2] = 0
    product = codes.T @ rows
    normalize_rows(rows, codes)
    np.testing.assert_allclose(codes.T @ rows, product, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1, 1, 0, 1])


def test_more_sweeps_only_where_products_are_dear():
    assert worthwhile_sweeps(stored=1000, length=100, count=10) == 1
    assert worthwhile_sweeps(stored=400 * 2576, length=2576, count=25) == 2
    assert worthwhile_sweeps(stored=10**9, length=10, count=10) == 3


@pytest.mark.parametrize("samples", [1, 7, 50])
def test_nonnegative_codes_are_the_best_ones(samples, rng):
    components, X = abs(rng.normal(size=(6, 20))), abs(rng.normal(size=(samples, 20)))
    codes = nonnegative_codes(X @ components.T, components @ components.T, tol=1e-10, max_iter=5000)
    for code, x in zip(codes, X, strict=True):
        np.testing.assert_allclose(code, nnls(components.T, x)[0], atol=1e-6)


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("sparseness", [0.0, 0.3, 0.7, 1.0])
def test_sparse_codes(sparseness, nonnegative, rng):
    components, X = rng.normal(size=(5, 12)), rng.normal(size=(40, 12))
    if nonnegative:
        components, X = abs(components), abs(X)
    cross, gram = X @ components.T, components @ components.T

    def errors(codes):
        return np.sum((X - codes @ components) ** 2, axis=1)

    found = [
        sparse_codes(cross, gram, CodeSet(sparseness, nonnegative), steps=steps, tol=0.0)
        for steps in (0, 1, 5, 100)
    ]
    for codes in found:
        np.testing.assert_allclose(hoyer.sparseness(codes), sparseness, atol=1e-7)
        assert not nonnegative or codes.min() >= 0
        # The scale is the best one.
        assert (errors(codes) <= errors(codes * 1.001) + 1e-12).all()
        assert (errors(codes) <= errors(codes * 0.999) + 1e-12).all()
    for worse, better in pairwise(found):
        assert (errors(better) <= errors(worse) + 1e-10).all()
    # No point of the set close by is better.
    codes = found[-1]
    for size in (1e-2, 1e-3):
        near = hoyer.project(
            codes
            + size * np.linalg.norm(codes, axis=1, keepdims=True) * rng.normal(size=codes.shape),
            sparseness,
            l2="keep",
            nonnegative=nonnegative,
        )
        assert np.mean(errors(codes) <= errors(near) + 1e-9) > 0.95
    allowed = CodeSet(sparseness, nonnegative)
    warm = sparse_codes(cross, gram, allowed, steps=3, tol=0.0, start=codes)
    assert (errors(warm) <= errors(codes) + 1e-10).all()


def test_the_code_of_a_sample_without_correlation_is_zero(rng):
    cross = np.vstack([np.zeros(4), rng.normal(size=4)])
    codes = sparse_codes(cross, np.eye(4), CodeSet(0.5, False), steps=5, tol=0.0)
    assert not codes[0].any()
    np.testing.assert_allclose(codes[1], hoyer.project(cross[1], 0.5, l2="nearest"), atol=1e-12)


def test_a_single_component_has_free_codes(rng):
    cross = rng.normal(size=(9, 1))
    gram = np.array([[2.0]])
    signed = sparse_codes(cross, gram, CodeSet(0.9, False), steps=2, tol=0.0)
    np.testing.assert_allclose(signed, cross / 2)
    positive = sparse_codes(cross, gram, CodeSet(0.9, True), steps=2, tol=0.0)
    np.testing.assert_allclose(positive, np.maximum(cross, 0) / 2)


@pytest.mark.parametrize(
    "kind", [np.asarray, np.asfortranarray, sparse.csr_array, sparse.csc_array]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_are_dense_by_rows_and_keep_the_type(kind, dtype, rng):
    X = rng.normal(size=(7, 5)).astype(dtype)
    left, right = rng.normal(size=(3, 7)).astype(dtype), rng.normal(size=(3, 5)).astype(dtype)
    for found, expected in (
        (rows_times(left, kind(X)), left @ X),
        (rows_times_transposed(right, kind(X)), right @ X.T),
    ):
        assert type(found) is np.ndarray
        assert found.flags.c_contiguous
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-40, 1.0, 1e40, 1e308])
def test_scale_of_the_data(scale):
    X = np.array([[1.0, 0.5], [0.25, 0.0]]) * scale
    moderate, unit = to_moderate_scale(X)
    np.testing.assert_array_equal(moderate * unit, X)
    assert np.isfinite(squared_norm(moderate))
    assert squared_norm(moderate) > 0
    assert scale != 1 or moderate is X


@pytest.mark.parametrize("start", [nndsvda, random_factors])
def test_first_factors(start, rng):
    X = rng.uniform(size=(30, 4)) @ rng.uniform(size=(4, 20))
    dense = start(X, 4, np.random.RandomState(0))
    compressed = start(sparse.csr_array(X), 4, np.random.RandomState(0))
    for factor, other, length in zip(dense, compressed, (30, 20), strict=True):
        assert factor.shape == (4, length)
        assert factor.min() > 0
        np.testing.assert_allclose(factor, other, rtol=1e-6)
    scale = np.linalg.norm(dense[0].T @ dense[1]) / np.linalg.norm(X)
    assert 0.3 < scale < 3


def test_nndsvda_starts_near_a_matrix_of_rank_one(rng):
    X = np.outer(rng.uniform(1, 2, size=9), rng.uniform(1, 2, size=6))
    codes, components = nndsvda(X, 1, np.random.RandomState(0))
    np.testing.assert_allclose(codes.T @ components, X, rtol=1e-6)
