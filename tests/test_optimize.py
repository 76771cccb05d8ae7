"""projected_gradient: optima, targets, the line search, callbacks, results, errors."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import hoyer
from hoyer.optimize import projected_gradient

TARGETS = [
    {"sparseness": 0.6},
    {"sparseness": 0.6, "nonnegative": True},
    {"sparseness": 0.3, "l2": 4.0},
    {"sparseness": 0.3, "l1": 4.0},
    {"l1": 2.0, "l2": 1.0},
    {"sparseness": 0.6, "l2": "nearest"},
    {"sparseness": 0.6, "l2": "keep"},
    {"sparseness": 0.5, "only_increase": True},
    {"sparseness": 0.0},
    {"sparseness": 1.0},
]


@pytest.fixture
def quadratic(rng):
    A = rng.normal(size=(30, 12))
    b = rng.normal(size=30) * 3

    def fun(x):
        residual = x @ A.T - b
        return np.sum(residual**2) / 2, residual @ A

    return fun


def feasible(x, x0, target, axis=-1):
    n = x.shape[axis]
    target = dict(target)
    if target.get("l2") == "keep":
        target["l2"] = np.linalg.norm(x0, axis=axis)
    nonnegative = target.pop("nonnegative", False)
    increase = target.pop("only_increase", False)
    assert not nonnegative or x.min() >= 0
    sigma = hoyer.sparseness(x, axis=axis)
    if increase:
        assert (sigma >= target["sparseness"] - 1e-9).all()
    elif "sparseness" in target:
        np.testing.assert_allclose(sigma, target["sparseness"], atol=1e-7)
    if target.get("l2") != "nearest" and not increase:
        l1, l2 = hoyer.target_norms(n, **target)
        np.testing.assert_allclose(np.linalg.norm(x, axis=axis), l2)
        np.testing.assert_allclose(abs(x).sum(axis=axis), l1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("monotone", [False, True])
def test_local_minima(target, monotone, quadratic, rng):
    x0 = rng.normal(size=12)
    values = []
    found = projected_gradient(
        quadratic, x0, **target, monotone=monotone, callback=lambda r: values.append(r.fun)
    )
    assert isinstance(found, OptimizeResult)
    assert found.success, found.message
    assert found.status == 0
    feasible(found.x, x0, target)
    value, slope = quadratic(found.x)
    assert found.fun == value
    np.testing.assert_array_equal(found.jac, slope)
    assert found.nit >= len(values)
    assert found.nfev >= found.nit
    if values:
        assert found.fun <= min(values)
    if monotone:
        assert (np.diff(values) <= 0).all()
    # No feasible point nearby is lower.
    options = dict(target)
    if options.get("l2") == "keep":
        options["l2"] = float(np.linalg.norm(x0))
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(100):
            near = hoyer.project(found.x + size * rng.normal(size=12), **options)
            # Signs are chosen by the start: look at the same ones.
            if np.linalg.norm(near - found.x) < 5 * size:
                assert quadratic(near)[0] >= found.fun - 1e-6 * abs(found.fun)


@pytest.mark.parametrize("sparseness", [0.2, 0.5, 0.9])
def test_a_linear_function_is_minimised_by_the_projection(sparseness, rng):
    c = rng.normal(size=20)
    found = projected_gradient(
        lambda x: (-c @ x, -c), rng.uniform(size=20), sparseness, nonnegative=True, tol=1e-10
    )
    np.testing.assert_allclose(found.x, hoyer.project(c, sparseness, nonnegative=True), atol=1e-7)
    assert found.success


def test_the_nearest_point_to_a_point_is_its_projection(rng):
    z = rng.normal(size=20)
    found = projected_gradient(
        lambda x: (np.sum((x - z) ** 2) / 2, x - z), z + 0.1, 0.7, l2="nearest", tol=1e-10
    )
    np.testing.assert_allclose(found.x, hoyer.project(z, 0.7, l2="nearest"), atol=1e-7)


@pytest.mark.parametrize("axis", [0, 1, (0, 1), None])
def test_rows_columns_and_whole_arrays(axis, rng):
    z = rng.normal(size=(5, 8))
    found = projected_gradient(
        lambda x: (np.sum((x - z) ** 2) / 2, x - z), z, 0.6, axis=axis, tol=1e-9
    )
    assert found.x.shape == z.shape
    np.testing.assert_allclose(found.x, hoyer.project(z, 0.6, axis=axis), atol=1e-7)


CONVEX = [
    {"l1": 1.0, "nonnegative": True},
    {"l1": 1.5, "at_most": True},
    {"l1": 1.5, "at_most": True, "nonnegative": True},
    {"l1": 1.5, "l2": 0.9, "at_most": True},
    {"l1": 100.0, "at_most": True},
]


@pytest.mark.parametrize("target", CONVEX)
@pytest.mark.parametrize("start", [np.zeros, np.ones, lambda n: np.arange(-5.0, n - 5)])
def test_the_minimum_over_convex_sets(target, start, quadratic):
    """A step along the gradient leads back to it, from wherever the search began."""
    found = projected_gradient(quadratic, start(12), tol=1e-10, **target)
    assert found.success
    for length in (1e-3, 1.0):
        back = hoyer.project(found.x - length * found.jac, **target)
        np.testing.assert_allclose(back, found.x, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_balls_of_every_size_from_zero(scale, quadratic):
    def scaled(x):
        value, slope = quadratic(x / scale)
        return value, slope / scale

    plain = projected_gradient(quadratic, np.zeros(12), l1=1.5, at_most=True, tol=1e-10)
    found = projected_gradient(scaled, np.zeros(12), l1=1.5 * scale, at_most=True, tol=1e-10)
    assert found.success
    np.testing.assert_allclose(found.x / scale, plain.x, atol=1e-6)


@pytest.mark.parametrize(
    "target", [{"l1": 1.0, "nonnegative": True}, {"sparseness": 0.6, "l2": "keep"}]
)
def test_what_a_mask_leaves_out_does_not_count(target, quadratic, rng):
    mask = np.arange(12) % 4 != 1
    x0 = np.where(mask, rng.normal(size=12), np.nan)

    def masked(x):
        assert not x[~mask].any()
        value, slope = quadratic(x)
        return value, np.where(mask, slope, np.nan)

    def shorter(x):
        full = np.zeros(12)
        full[mask] = x
        value, slope = quadratic(full)
        return value, slope[mask]

    found = projected_gradient(masked, x0, where=mask, **target)
    assert found.success
    np.testing.assert_allclose(found.x[mask], projected_gradient(shorter, x0[mask], **target).x)


def test_targets_per_vector(rng):
    z = rng.normal(size=(3, 8))
    targets = [0.2, 0.5, 0.8]
    found = projected_gradient(lambda x: (np.sum((x - z) ** 2) / 2, x - z), z, targets)
    np.testing.assert_allclose(hoyer.sparseness(found.x), targets, atol=1e-9)


def test_jac_as_a_function_and_args(quadratic, rng):
    x0 = rng.normal(size=12)
    whole = projected_gradient(quadratic, x0, 0.5)
    parts = projected_gradient(
        lambda x, scale: scale * quadratic(x)[0],
        x0,
        0.5,
        jac=lambda x, scale: scale * quadratic(x)[1],
        args=(1.0,),
    )
    np.testing.assert_array_equal(whole.x, parts.x)
    assert whole.nfev == parts.nfev


def test_barzilai_borwein_needs_few_evaluations_on_a_badly_scaled_problem(rng):
    scales = np.geomspace(1, 1e2, 30)
    z = hoyer.project(rng.normal(size=30), 0.5) * 10

    def fun(x):
        return np.sum(scales * (x - z) ** 2) / 2, scales * (x - z)

    # Started with the signs of the solution: which signs a vector has is not a smooth question.
    start = np.sign(z) * rng.uniform(size=30)
    found = projected_gradient(fun, start, 0.5, l2="nearest", tol=1e-9, max_iter=3000)
    np.testing.assert_allclose(found.x, z, atol=1e-5)
    assert found.nfev < 500


class TestResult:
    def test_max_iter(self, quadratic, rng):
        found = projected_gradient(quadratic, rng.normal(size=12), 0.5, tol=0, max_iter=3)
        assert (found.status, found.success, found.nit) == (1, False, 3)
        assert "max_iter" in found.message
        nothing = projected_gradient(quadratic, rng.normal(size=12), 0.5, max_iter=0)
        assert (nothing.nit, nothing.nfev, nothing.success) == (0, 1, False)
        feasible(nothing.x, None, {"sparseness": 0.5})

    def test_the_callback_can_stop(self, quadratic, rng):
        def stop(result):
            assert {"x", "fun", "jac", "nit", "nfev", "optimality"} <= set(result)
            if result.nit == 2:
                raise StopIteration

        found = projected_gradient(quadratic, rng.normal(size=12), 0.5, tol=0, callback=stop)
        assert (found.status, found.nit, found.success) == (3, 2, False)
        assert "callback" in found.message

    def test_exact_minima_end_the_search(self, rng):
        for sparseness in (0.0, 1.0):
            c = rng.uniform(size=9)
            found = projected_gradient(
                lambda x, c=c: (-c @ x, -c), c, sparseness, nonnegative=True, tol=0
            )
            assert found.nfev < 60
            assert found.success

    def test_a_gradient_of_zero(self):
        found = projected_gradient(lambda x: (1.0, 0 * x), [1.0, 2.0, 3.0], 0.5)
        assert found.success
        assert found.nit == 1

    def test_float32(self, quadratic, rng):
        x0 = rng.normal(size=12)
        double = projected_gradient(quadratic, x0, 0.5, tol=1e-4)
        single = projected_gradient(quadratic, x0.astype(np.float32), 0.5, tol=1e-4)
        assert single.x.dtype == np.float32
        assert single.fun == pytest.approx(double.fun, rel=1e-3)
        assert projected_gradient(quadratic, range(12), 0.5).x.dtype == np.float64

    def test_the_start_is_not_changed(self, quadratic, rng):
        x0 = rng.normal(size=12)
        before = x0.copy()
        projected_gradient(quadratic, x0, 0.5)
        np.testing.assert_array_equal(x0, before)

    def test_functions_that_reuse_their_gradient_array(self, quadratic, rng):
        buffer = np.empty(12)

        def fun(x):
            value, buffer[:] = quadratic(x)
            return value, buffer

        x0 = rng.normal(size=12)
        expected = projected_gradient(quadratic, x0, 0.5)
        np.testing.assert_array_equal(projected_gradient(fun, x0, 0.5).x, expected.x)

    def test_places_where_the_function_is_not_finite_are_avoided(self, rng):
        z = rng.uniform(0.5, 1, size=8)

        def fun(x):
            if np.linalg.norm(x) > 3:
                return np.nan, x * np.nan
            return -z @ x * 100, -100 * z

        found = projected_gradient(fun, z, 0.3, l2="nearest", nonnegative=True, max_iter=200)
        assert np.isfinite(found.fun)
        assert np.linalg.norm(found.x) == pytest.approx(3, rel=0.01)


class TestErrors:
    def test_arguments(self, quadratic):
        x = np.arange(12.0)
        with pytest.raises(TypeError, match="jac=False: must be True"):
            projected_gradient(quadratic, x, 0.5, jac=False)
        with pytest.raises(ValueError, match="memory=0"):
            projected_gradient(quadratic, x, 0.5, memory=0)
        with pytest.raises(ValueError, match="max_iter=-1"):
            projected_gradient(quadratic, x, 0.5, max_iter=-1)
        with pytest.raises(ValueError, match="tol=nan"):
            projected_gradient(quadratic, x, 0.5, tol=float("nan"))
        with pytest.raises(ValueError, match=r"1\.5"):
            projected_gradient(quadratic, x, 1.5)
        with pytest.raises(ValueError, match="nan"):
            projected_gradient(quadratic, x * np.nan, 0.5)
        with pytest.raises(TypeError, match="complex"):
            projected_gradient(quadratic, x * 1j, 0.5)

    def test_masks(self, quadratic):
        with pytest.raises(TypeError, match="where has dtype int64: give booleans"):
            projected_gradient(quadratic, np.ones(12), 0.5, where=np.ones(12, int))
        with pytest.raises(ValueError, match=r"where has shape \(5,\), which does not broadcast"):
            projected_gradient(quadratic, np.ones(12), 0.5, where=np.ones(5, bool))

    def test_functions(self):
        x = np.arange(4.0)
        with pytest.raises(TypeError, match="must return the pair"):
            projected_gradient(lambda x: 1.0, x, 0.5)
        with pytest.raises(ValueError, match=r"shape \(3,\), but x has \(4,\)"):
            projected_gradient(lambda x: (1.0, x[1:]), x, 0.5)
        with pytest.raises(ValueError, match="not finite"):
            projected_gradient(lambda x: (np.inf, x), x, 0.5)


@pytest.mark.parametrize("l2", ["keep", "nearest", 1.0])
@pytest.mark.parametrize(
    ("dtype", "scale"),
    [(np.float64, 2.0**660), (np.float64, 2.0**-660), (np.float32, 2.0**80)],
)
def test_every_scale_of_x(l2, dtype, scale, quadratic, rng):
    x0 = rng.normal(size=(3, 12)).astype(dtype)
    unit = dtype(scale)

    def scaled(x):
        value, slope = quadratic((x / unit).astype(float))
        return value, slope / scale

    def plain(x):
        return quadratic(x.astype(float))

    reference = projected_gradient(plain, x0, 0.6, l2=l2, max_iter=20)
    found = projected_gradient(
        scaled, x0 * unit, 0.6, l2=l2 if isinstance(l2, str) else unit, max_iter=20
    )
    assert found.x.dtype == dtype
    np.testing.assert_allclose(found.x / unit, reference.x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.fun, reference.fun, rtol=1e-4)


def test_zero_vectors_keep_their_norm(quadratic, rng):
    x0 = rng.normal(size=(3, 12))
    x0[1] = 0
    found = projected_gradient(quadratic, x0, 0.6, l2="keep")
    alone = projected_gradient(quadratic, x0[[0]], 0.6, l2="keep")
    assert found.success
    assert not found.x[1].any()
    np.testing.assert_allclose(found.x[0], alone.x[0], atol=1e-4)
    columns = projected_gradient(lambda x: (0.0, 0 * x), x0.T, 0.6, l2="keep", axis=0)
    np.testing.assert_allclose(columns.x, hoyer.project(x0.T, 0.6, l2="keep", axis=0))


@pytest.mark.parametrize("tol", [1e-6, 1e-3, 0.0])
def test_a_wrong_gradient_is_no_success(tol, quadratic, rng):
    def wrong(x):
        value, slope = quadratic(x)
        return value, -slope

    found = projected_gradient(wrong, rng.normal(size=12), 0.6, tol=tol, monotone=True)
    assert not found.success
    assert found.status == 2


def test_a_function_that_is_finite_at_the_start_only(rng):
    values = iter([1.0])
    found = projected_gradient(
        lambda x: (next(values, np.nan), np.arange(12.0)), rng.normal(size=12), 0.6
    )
    assert (found.success, found.status, found.fun) == (False, 2, 1.0)


def test_functions_and_callbacks_may_write_into_x(quadratic, rng):
    def vandal(x):
        result = quadratic(x)
        x[:] = np.nan
        return result

    def write(state):
        state.x[:] = np.nan
        state.jac[:] = np.nan

    x0 = rng.normal(size=12)
    expected = projected_gradient(quadratic, x0, 0.6)
    found = projected_gradient(vandal, x0, 0.6, callback=write)
    np.testing.assert_array_equal(found.x, expected.x)
    apart = projected_gradient(
        lambda x: vandal(x)[0], x0, 0.6, jac=lambda x: vandal(x)[1], callback=write
    )
    np.testing.assert_array_equal(apart.x, expected.x)
