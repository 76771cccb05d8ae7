"""The sets that have other names elsewhere: agreement with other people's code where it is right.

`benchmarks/rivals.py` counts where it is not.
"""

import warnings
from pathlib import Path

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
    project, jax = getattr(imported("optax.projections"), name), imported("jax")
    x = x.astype(np.float32)
    # Other tests have JAX use doubles, which optax mixes with floats.
    with jax.enable_x64(False):
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


def component(blocks, sparsity):
    """One component of sparse generalised canonical correlation, all blocks joined to all others.

    The weights of a block of p variables have norm 1, and an L1 norm of at most sparsity * sqrt(p).
    Returns the weights, the scores and the sum of the squared covariances of different blocks.
    """
    bounds = [
        share * np.sqrt(block.shape[1]) for share, block in zip(sparsity, blocks, strict=True)
    ]

    def step(i, x):
        return hoyer.project(x, l1=bounds[i], l2=1.0, only_increase=True)

    weights = [step(i, np.linalg.svd(block)[2][0]) for i, block in enumerate(blocks)]
    scores = np.stack([block @ a for block, a in zip(blocks, weights, strict=True)])
    for _ in range(100):
        for i, block in enumerate(blocks):
            others = (scores @ scores[i]) * (np.arange(len(blocks)) != i)
            weights[i] = step(i, block.T @ (others @ scores))
            scores[i] = block @ weights[i]
    covariances = scores @ scores.T / scores.shape[1]
    return weights, scores, np.sum(np.square(covariances)) - np.sum(np.diag(covariances) ** 2)


def test_published_examples_of_rgcca():
    """Land, industry and regimes of 47 countries (Russett 1964), as RGCCA comes with them.

    Expected are the criteria, to four digits, and the numbers of selected variables which the tests
    of RGCCA hold (its file tests/testthat/_snaps/print.rgcca.md), for one component and for two.
    """
    table = np.loadtxt(Path(__file__).with_name("russett.csv"), delimiter=",", skiprows=1)
    regimes = np.stack([table[:, 5] == 1, table[:, 5] == 3], axis=1)
    blocks = [
        (block - block.mean(axis=0)) / block.std(axis=0) / np.sqrt(block.shape[1])
        for block in (table[:, :3], table[:, 3:5], regimes.astype(float))
    ]
    weights, _, criterion = component(blocks, (0.7, 1.0, 0.9))
    assert round(criterion, 4) == 0.9348
    assert [np.count_nonzero(a) for a in weights] == [2, 2, 2]

    weights, scores, first = component(blocks, (0.8, 1.0, 0.9))
    assert [np.count_nonzero(a) for a in weights] == [2, 2, 2]
    rest = [x - np.outer(y, y @ x) / (y @ y) for x, y in zip(blocks, scores, strict=True)]
    weights, _, second = component(rest, (1.0, 0.9, 0.8))
    assert [np.count_nonzero(a) for a in weights] == [3, 2, 2]
    assert round(first + second, 4) == 0.9958


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


# ---- grouped sparse projection ----


def one_threshold(xs, sparseness):
    """Grouped sparse projection, by bisection to the last digit.

    Ohib et al. (2022): of all unit vectors with this mean sparseness, those with the largest sum of
    inner products with xs. All lose one threshold, over sqrt(n) - 1, and are brought to norm 1.
    """

    def cut(threshold):
        found = []
        for x in xs:
            z = np.maximum(np.abs(x) - threshold / (np.sqrt(x.size) - 1), 0)
            z = z if z.any() else 1.0 * (np.arange(x.size) == np.abs(x).argmax())
            found.append(np.copysign(z / np.linalg.norm(z), x))
        return found

    low, high = 0.0, max(np.abs(x).max() * np.sqrt(x.size) for x in xs)
    # Invariant: the mean is too small at low, and not at high.
    while low < (middle := (low + high) / 2) < high:
        enough = np.mean([hoyer.sparseness(z) for z in cut(middle)]) >= sparseness
        low, high = (low, middle) if enough else (middle, high)
    return cut(high)


@pytest.mark.parametrize("sparseness", [0.4, 0.7, 0.95])
@pytest.mark.parametrize("lengths", [(20,), (20, 20, 20), (3, 10, 500), range(2, 40)])
def test_grouped_sparse_projection(rng, lengths, sparseness):
    """Unit norms asked for: it is the same problem."""
    xs = [rng.normal(size=n) * rng.uniform(0.3, 3) for n in lengths]
    theirs = one_threshold(xs, sparseness)
    ours = hoyer.project_together(xs, sparseness, l2=1.0, only_increase=True)
    for p, z in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p, z, rtol=0, atol=1e-10)


def test_grouped_sparse_projection_of_unit_vectors(rng):
    """With `relative=True` it is that of the directions, given their norms back."""
    xs = [rng.normal(size=n) * size for n, size in ((30, 1e-3), (50, 1.0), (20, 1e4))]
    norms = [np.linalg.norm(x) for x in xs]
    theirs = one_threshold([x / norm for x, norm in zip(xs, norms, strict=True)], 0.6)
    ours = hoyer.project_together(xs, 0.6, relative=True)
    for p, z, norm in zip(ours, theirs, norms, strict=True):
        np.testing.assert_allclose(p / norm, z, rtol=0, atol=1e-10)


def test_the_published_example_of_grouped_sparse_projection():
    """The columns of rand(4, 6) in a fresh MATLAB (seed 5489), from the readme of the authors.

    Their results have the norms that are nearest to the columns, and a mean of 0.5 to three digits:
    that of the published numbers is 0.5001.
    """
    columns = np.random.RandomState(5489).random_sample((6, 4))
    published = np.array(
        [
            [0.6646, 0.9495, 0, 0.9732],
            [0.6324, 0, 0, 0],
            [0.9460, 0.9657, 0, 0.9809],
            [1.0705, 0, 0.5972, 0],
            [0, 0.9337, 0.5657, 1.0641],
            [0.1704, 0, 0.7874, 1.0581],
        ]
    )
    reached = float(np.mean(hoyer.sparseness(published)))
    assert abs(reached - 0.5) < 1e-3
    directions = hoyer.project_together(columns, reached, l2=1.0, axis=-1, only_increase=True)
    ours = directions * np.sum(directions * columns, axis=-1, keepdims=True)
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-4)


def test_ties_have_no_threshold_and_yet_a_mean():
    """No threshold is right where largest entries tie; the mean is met all the same."""
    xs = [np.ones(9), np.array([2.0, 2.0, 1.0, 0.0])]
    assert abs(np.mean([hoyer.sparseness(z) for z in one_threshold(xs, 0.3)]) - 0.3) > 0.1
    ours = hoyer.project_together(xs, 0.3, l2=1.0, only_increase=True)
    assert abs(np.mean([hoyer.sparseness(p) for p in ours]) - 0.3) < 1e-14
