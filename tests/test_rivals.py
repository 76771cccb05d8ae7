"""The sets that have other names elsewhere: agreement with other people's code where it is right.

`benchmarks/rivals.py` counts where it is not.
"""

import warnings

import numpy as np
import pytest

import hoyer

SIZES = (0.3, 1.0, 4.0)


def imported(name):
    """A module that need not be there, and may warn of whatever it likes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


@pytest.fixture
def x(rng):
    """Vectors, of which the others are right about all."""
    return rng.normal(size=(12, 40)) * np.geomspace(0.1, 5, 12)[:, None]


# ---- the simplex ----


def test_sparsemax_of_entmax(x):
    entmax, torch = imported("entmax"), imported("torch")
    expected = entmax.sparsemax(torch.from_numpy(x), dim=-1).numpy()
    np.testing.assert_allclose(
        hoyer.project(x, l1=1.0, nonnegative=True), expected, rtol=0, atol=1e-14
    )


def test_the_gradient_of_sparsemax(x):
    entmax, torch = imported("entmax"), imported("torch")
    given = torch.from_numpy(x).requires_grad_()
    y = torch.from_numpy(np.cos(np.arange(x.size)).reshape(x.shape))
    theirs = torch.autograd.grad(entmax.sparsemax(given, dim=-1), given, y)[0]
    ours = torch.autograd.grad(hoyer.project(given, l1=1.0, nonnegative=True), given, y)[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)


@pytest.mark.parametrize("l1", SIZES)
def test_proj_simplex_of_pot(x, l1):
    ot = imported("ot.utils")
    expected = ot.proj_simplex(np.ascontiguousarray(x.T), l1).T
    np.testing.assert_allclose(
        hoyer.project(x, l1=l1, nonnegative=True), expected, rtol=0, atol=1e-14
    )


# ---- optax, in float32 ----

OPTAX = {
    "projection_simplex": {"nonnegative": True},
    "projection_l1_ball": {"at_most": True},
    "projection_l1_sphere": {},
}


@pytest.mark.parametrize("l1", SIZES)
@pytest.mark.parametrize("name", OPTAX)
def test_projections_of_optax(x, name, l1):
    project = getattr(imported("optax.projections"), name)
    x = x.astype(np.float32)
    expected = np.stack([np.asarray(project(row, l1)) for row in x])
    np.testing.assert_allclose(
        hoyer.project(x, l1=l1, **OPTAX[name]), expected, rtol=0, atol=3e-6 * max(1, l1)
    )


# ---- SciPy's general solver ----


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("l1", "l2"), [(1.0, 0.7), (2.0, 0.8), (0.5, 2.0), (3.0, 0.4)])
def test_two_balls_by_sequential_quadratic_programming(rng, l1, l2, nonnegative):
    """In terms of p = u - v with u, v >= 0: sum(u + v) <= l1, |u - v|^2 <= l2^2."""
    optimize = imported("scipy.optimize")
    for _ in range(3):
        n = 4
        x = rng.normal(size=n) * 2

        def p_of(z):
            return z[:n] - z[n:]  # noqa: B023 - n is one number

        bounds = [(0, None)] * n + [(0, 0 if nonnegative else None)] * n
        found = optimize.minimize(
            lambda z, x=x: np.sum((p_of(z) - x) ** 2),
            np.full(2 * n, 0.01),
            method="SLSQP",
            bounds=bounds,
            constraints=[
                {"type": "ineq", "fun": lambda z: l1 - z.sum()},
                {"type": "ineq", "fun": lambda z: l2**2 - np.sum(p_of(z) ** 2)},
            ],
            options={"maxiter": 500, "ftol": 1e-15},
        )
        ours = hoyer.project(x, l1=l1, l2=l2, at_most=True, nonnegative=nonnegative)
        np.testing.assert_allclose(ours, p_of(found.x), rtol=0, atol=1e-5)
        # Nobody is nearer who keeps to the bounds.
        assert np.sum((ours - x) ** 2) <= np.sum((p_of(found.x) - x) ** 2) + 1e-7


# ---- penalised matrix decomposition, sparse canonical correlation ----


def soft_threshold_step(x, c):
    """The step of these methods: soft thresholding, brought to norm 1, with an L1 norm of c.

    Without a threshold if the L1 norm is small enough then; else the threshold is found by
    bisection.
    """

    def step(threshold):
        cut = np.sign(x) * np.maximum(np.abs(x) - threshold, 0)
        return cut / np.linalg.norm(cut)

    if np.abs(step(0.0)).sum() <= c:
        return step(0.0)
    low, high = 0.0, np.abs(x).max()
    # Invariant: the L1 norm is above c at low, and below it at high.
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if np.abs(step(middle)).sum() > c else (low, middle)
    return step(low)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("n", [5, 30, 400])
def test_the_step_of_penalised_matrix_decomposition(rng, n, share):
    """The L1 ball meets the L2 sphere: `only_increase` with both norms."""
    c = 1 + share * (np.sqrt(n) - 1)
    for x in rng.normal(size=(6, n)) ** 3 * np.geomspace(1e-3, 1e3, 6)[:, None]:
        ours = hoyer.project(x, l1=c, l2=1.0, only_increase=True)
        np.testing.assert_allclose(ours, soft_threshold_step(x, c), rtol=0, atol=1e-12)
        assert np.abs(ours).sum() <= c * (1 + 1e-14)


def test_a_rank_one_decomposition_with_sparse_factors(rng):
    """Alternating such steps finds the sparse factors of a matrix with some noise."""
    u, v = np.zeros(60), np.zeros(40)
    u[:6], v[5:10] = 1 / np.sqrt(6), 1 / np.sqrt(5)
    matrix = 20 * np.outer(u, v) + 0.3 * rng.normal(size=(60, 40))
    right = matrix[0] / np.linalg.norm(matrix[0])
    for _ in range(30):
        left = hoyer.project(matrix @ right, l1=np.sqrt(6), l2=1.0, only_increase=True)
        right = hoyer.project(matrix.T @ left, l1=np.sqrt(5), l2=1.0, only_increase=True)
    assert set(np.flatnonzero(left)) >= set(range(6))
    assert abs(left @ u) > 0.99
    assert abs(right @ v) > 0.99
