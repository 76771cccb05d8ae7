"""Statements of the paper about the auxiliary function and the solvers no other test covers."""

import numpy as np
import pytest

import hoyer
from hoyer.paper import algorithms
from hoyer.paper.problems import random_vector

N = 200
L1, L2 = hoyer.target_norms(N, 0.7)


def psi(x, alpha):
    return algorithms.auxiliary(x, L1, L2, alpha).psi


@pytest.fixture(params=["uniform", "halfnormal"])
def x(request):
    return random_vector(request.param, N, np.random.default_rng(5))


def test_psi_is_continuous_across_the_entries(x):
    # Lemma auxprops (a): no step of psi at an entry, though its derivative steps there.
    for entry in np.sort(x)[:-2]:
        gap = 1e-9
        left, right = (algorithms.auxiliary(x, L1, L2, entry + s * gap) for s in (-1, 1))
        assert abs(left.psi - right.psi) < 1e-6
    assert any(
        abs(
            algorithms.auxiliary(x, L1, L2, entry - 1e-9).dpsi
            - algorithms.auxiliary(x, L1, L2, entry + 1e-9).dpsi
        )
        > 1e-3
        for entry in np.sort(x)[:-2]
    )


def test_psi_decreases_and_is_constant_above_the_second_largest_entry(x):
    # Lemma auxprops (c).
    second, first = np.sort(x)[-2:]
    values = [psi(x, alpha) for alpha in np.linspace(0, second, 400, endpoint=False)]
    assert np.all(np.diff(values) < 0)
    plateau = [psi(x, alpha) for alpha in np.linspace(second, first, 10, endpoint=False)]
    np.testing.assert_allclose(plateau, 1 - L1 / L2, rtol=0, atol=1e-7)


def test_the_support_is_larger_than_k(x):
    # Remark norms_equivalent, sharpened: d >= K, here for every sparseness.
    for sparseness in np.linspace(0.05, 0.95, 19):
        result = hoyer.solve(x, sparseness)
        assert result.support_size > (result.l1 / result.l2) ** 2


def test_on_half_normal_input_newton_needs_fewer_evaluations_than_newton_sqr():
    # Erratum: "NewtonSqr performs best" is true of uniform input only.
    rng = np.random.default_rng(7)
    for kind, better in [("halfnormal", "newton"), ("uniform", "newton_sqr")]:
        vectors = np.stack([random_vector(kind, 1024, rng) for _ in range(100)])
        for sparseness in (0.5, 0.9, 0.975):
            mean = {
                solver: hoyer.solve(vectors, sparseness, solver=solver).evaluations.mean()
                for solver in ("newton", "newton_sqr")
            }
            assert min(mean, key=mean.get) == better, (kind, sparseness, mean)
