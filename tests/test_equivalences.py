"""Different ways to the same point: five solvers, the literal algorithms, the older methods."""

import itertools
import math

import numpy as np
import pytest

import hoyer
from hoyer.paper import algorithms, hoyer2004, potluru2013, problems

EPS = np.finfo(np.float64).eps
SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")
PAPER_SOLVERS = SOLVERS[1:]
SIZES = (2, 3, 5, 16, 100, 1024)
SPARSENESS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.975)


def norms(n, sparseness):
    """Plain float64 norms: both sides of a comparison get the very same numbers."""
    root = math.sqrt(n)
    return root - sparseness * (root - 1), 1.0


def cases(kinds, sizes=SIZES, repeats=3):
    for kind, n, sparseness, repeat in itertools.product(kinds, sizes, SPARSENESS, range(repeats)):
        generator = np.random.default_rng([ord(kind[0]), n, int(1000 * sparseness), repeat])
        yield problems.random_vector(kind, n, generator), *norms(n, sparseness)


@pytest.mark.parametrize("solver", PAPER_SOLVERS)
@pytest.mark.parametrize("kind", ["uniform", "halfnormal"])
def test_evaluation_counts_are_those_of_the_literal_algorithm(solver, kind):
    compared = 0
    for x, l1, l2 in cases([kind], repeats=5):
        try:
            literal = algorithms.project(x, l1, l2, solver)
        except FloatingPointError:
            continue  # rounding keeps the literal algorithm from finishing: no count to compare
        for options in ({}, {"nonnegative": True}):
            found = hoyer.solve(x, l1=l1, l2=l2, solver=solver, **options)
            assert found.evaluations == literal.evaluations, (x.size, l1, l2)
        compared += 1
    assert compared > 150


@pytest.mark.parametrize("solver", PAPER_SOLVERS)
def test_evaluation_counts_of_vectors_of_any_sign_are_those_after_shifting(solver, rng):
    for n, sparseness in itertools.product((5, 100, 1000), SPARSENESS):
        x = rng.integers(-(2**20), 2**20, n) / 2**10  # x - min x is exact
        l1, l2 = norms(n, sparseness)
        literal = algorithms.project(x - x.min(), l1, l2, solver)
        found = hoyer.solve(x, l1=l1, l2=l2, solver=solver, nonnegative=True)
        assert found.evaluations == literal.evaluations


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_literal_algorithm_finds_the_same_point(solver):
    literal_solver = "newton_sqr" if solver == "auto" else solver
    for x, l1, l2 in cases(["uniform", "halfnormal", "lognormal"]):
        try:
            literal = algorithms.project(x, l1, l2, literal_solver)
        except FloatingPointError:
            continue
        found = hoyer.solve(x, l1=l1, l2=l2, solver=solver)
        # The raw sums of Algorithm 1 lose digits: the oracle vouches for 1e-9.
        np.testing.assert_allclose(
            found.value, literal.value, rtol=0, atol=1e-9 * literal.value.max()
        )
        assert found.shift == pytest.approx(literal.shift, rel=1e-7, abs=1e-9 * literal.scale)
        assert found.scale == pytest.approx(literal.scale, rel=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_sorting_finds_the_same_point(solver):
    for x, l1, l2 in cases(problems.KINDS):
        sorting = potluru2013.project(x, l1, l2)
        found = hoyer.solve(x, l1=l1, l2=l2, nonnegative=True, solver=solver)
        bound = 32 * EPS * sorting.value.max()
        np.testing.assert_allclose(found.value, sorting.value, rtol=0, atol=bound)
        signed = hoyer.solve(x, l1=l1, l2=l2, solver=solver)
        sorting = potluru2013.project(np.abs(x), l1, l2)
        bound = 32 * EPS * sorting.value.max()
        np.testing.assert_allclose(np.abs(signed.value), sorting.value, rtol=0, atol=bound)


def test_alternating_projections_find_the_same_point():
    for x, l1, l2 in cases(["uniform", "halfnormal", "normal"], sizes=(2, 3, 5, 16, 100)):
        value = hoyer.project(x, l1=l1, l2=l2, nonnegative=True)
        alternating = hoyer2004.project(x, l1, l2).value
        # Its differences lose digits where K is close to d.
        np.testing.assert_allclose(value, alternating, rtol=0, atol=1e-11 * value.max())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_five_solvers_agree(dtype):
    eps = np.finfo(dtype).eps
    for wide, l1, l2 in cases(problems.KINDS):
        x = wide.astype(dtype)
        results = [hoyer.solve(x, l1=l1, l2=l2, solver=solver) for solver in SOLVERS]
        for other in results[1:]:
            bound = 32 * eps * np.abs(results[0].value).max()
            np.testing.assert_allclose(other.value, results[0].value, rtol=0, atol=bound)
            assert other.scale == pytest.approx(results[0].scale, rel=1e-6)
            assert other.unique == results[0].unique


def test_the_solvers_agree_on_ties_to_the_last_bit(rng):
    for m in range(1, 9):
        x = rng.random(8)
        x[:m] = 1.5
        x = rng.permutation(x)
        for l1 in (1.0, 1.25, math.sqrt(2), 2.0, math.sqrt(8)):
            results = [hoyer.solve(x, l1=l1, l2=1.0, solver=solver) for solver in SOLVERS]
            if results[0].scale == 0:
                for other in results[1:]:
                    np.testing.assert_array_equal(other.value, results[0].value)
                    assert other.scale == 0


def test_every_way_to_say_the_same_target(engine, rng):
    x = rng.normal(size=(6, 100))
    expected = engine.project(x, 0.5)  # ratio 5.5 exactly
    atol = 64 * EPS
    for given in (
        {"sparseness": 0.5, "l2": 1.0},
        {"sparseness": 0.5, "l1": 5.5},
        {"l1": 5.5, "l2": 1.0},
        {"sparseness": np.full(6, 0.5)},
        {"l1": np.full(6, 5.5), "l2": np.ones((1,))},
        {"sparseness": [0.5] * 6, "l2": 1},
    ):
        np.testing.assert_allclose(engine.project(x, **given), expected, rtol=0, atol=atol)
    norm = np.linalg.norm(x, axis=-1)
    kept = engine.project(x, 0.5, l2="keep")
    np.testing.assert_allclose(engine.project(x, 0.5, l2=norm), kept, rtol=0, atol=100 * atol)
    np.testing.assert_allclose(norm[:, None] * expected, kept, rtol=0, atol=100 * atol)
    nearest = engine.project(x, 0.5, l2="nearest")
    inner = (expected * x).sum(-1, keepdims=True)
    np.testing.assert_allclose(inner * expected, nearest, rtol=0, atol=100 * atol)


def test_norms_only_scale_the_result(engine, rng):
    x = rng.normal(size=(5, 30))
    unit = engine.project(x, 0.7)
    for norm in (2.0**-500, 1e-3, 3.0, 1e10, 2.0**500):
        value = engine.project(x, 0.7, l2=norm)
        np.testing.assert_allclose(value / norm, unit, rtol=0, atol=32 * EPS)


def test_a_wider_type_of_the_same_numbers(engine, rng):
    x = rng.normal(size=(20, 64)).astype(np.float32)
    wide = engine.project(x.astype(np.float64), 0.8)
    narrow = engine.project(x, 0.8)
    bound = 32 * np.finfo(np.float32).eps * np.abs(wide).max()
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=bound)


def test_sparser_input_is_no_special_case(engine):
    """Increasing and decreasing meet where x is in D itself."""
    x = np.array([0.8, 0.6, 0.0, 0.0])
    for delta in (-1e-9, 1e-9):
        value = engine.project(x, l1=1.4 + delta, l2=1.0, nonnegative=True)
        np.testing.assert_allclose(value, x, atol=1e-8)
