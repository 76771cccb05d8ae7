"""SparseNMF: sparseness, descent, agreement of its methods, nasty data, errors."""

import inspect
import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import hoyer
from hoyer.decomposition import SparseNMF, nmf

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:codes_sparseness=.* has no effect:UserWarning"),
]

CONSTRAINTS = [
    {},
    {"components_sparseness": 0.6},
    {"activations_sparseness": 0.5},
    {"codes_sparseness": 0.4},
    {"components_sparseness": 0.5, "activations_sparseness": 0.3},
    {"components_sparseness": 0.5, "codes_sparseness": 0.3},
]
CASES = [(solver, c) for solver in ("bcd", "nmfsc") for c in CONSTRAINTS]
CASES = [case for case in CASES if case[0] == "bcd" or "codes_sparseness" not in case[1]]
BOTH = pytest.mark.parametrize(("solver", "constraints"), CASES)
ALL = pytest.mark.parametrize("constraints", CONSTRAINTS)


@pytest.fixture
def X(rng):
    return rng.uniform(size=(40, 5)) @ rng.exponential(size=(5, 24)) + 0.1 * rng.uniform(
        size=(40, 24)
    )


def check_factors(model, W, X, tol=1e-6):
    """Both factors are feasible, finite and at the promised scale."""
    H = model.components_
    assert W.shape == (X.shape[0], len(H))
    assert H.shape[1] == X.shape[1]
    for factor in (W, H):
        assert np.isfinite(factor).all()
        assert factor.min() >= 0
    norms = np.linalg.norm(H, axis=1)
    unit = abs(norms - 1) < 1e-5
    if model.components_sparseness is not None:
        assert unit.all()
        np.testing.assert_allclose(hoyer.sparseness(H), model.components_sparseness, atol=tol)
    else:
        assert (unit | (norms == 0)).all()
    if model.activations_sparseness is not None:
        found = hoyer.sparseness(W, axis=0)
        np.testing.assert_allclose(found, model.activations_sparseness, atol=tol)
    if model.codes_sparseness is not None and len(H) > 1:
        used = W.any(axis=1)
        assert (used | ~np.asarray(X @ H.T > 0).any(axis=1)).all()
        np.testing.assert_allclose(hoyer.sparseness(W[used]), model.codes_sparseness, atol=tol)


def check_agreement(X, H, again, W):
    """`transform` repeats the codes of the fit, except where those are better."""
    X, again, W = (array / (X.max() or 1) for array in (X, again, W))
    other = (again != W).any(axis=1)
    errors = [np.linalg.norm(X[other] - codes[other] @ H, axis=1) for codes in (W, again)]
    assert (errors[0] < errors[1]).all()


@BOTH
@pytest.mark.parametrize("init", ["nndsvda", "random"])
def test_sparseness_descent_and_error(solver, constraints, init, X):
    model = SparseNMF(
        5, solver=solver, init=init, random_state=0, tol=0, max_iter=60, **constraints
    )
    W = model.fit_transform(X)
    check_factors(model, W, X)
    assert model.objective_.shape == (model.n_iter_,)
    assert np.diff(model.objective_).max() <= 1e-12 * np.sum(X**2)
    error = np.linalg.norm(X - W @ model.components_)
    assert model.reconstruction_err_ == pytest.approx(error)
    assert model.objective_[-1] < 0.5 * model.objective_[0] or model.objective_[-1] < 0.05 * np.sum(
        X**2
    )
    # The final codes are at least about as good as those of the last iteration.
    assert error**2 / 2 <= model.objective_[-1] * 1.02


@ALL
def test_at_the_end_no_row_can_be_improved(constraints, X, rng):
    """Any other feasible component, or activation, in the place of one is no better."""
    model = SparseNMF(4, random_state=0, tol=1e-12, max_iter=3000, **constraints)
    W = model.fit_transform(X)
    H = model.components_

    def error(W, H):
        return np.sum((X - W @ H) ** 2)

    least = error(W, H) * (1 - 1e-6)
    for _ in range(200):
        j, size = rng.integers(4), rng.choice([1, 0.1, 0.01])
        other = H.copy()
        other[j] = np.maximum(H[j] + size * rng.normal(size=H.shape[1]), 0)
        if model.components_sparseness is not None:
            other[j] = hoyer.project(other[j], model.components_sparseness)
        other[j] /= np.linalg.norm(other[j])
        assert error(W, other) >= least
        if model.codes_sparseness is None:
            changed = W.copy()
            column = np.maximum(W[:, j] + size * rng.normal(size=len(W)), 0)
            if model.activations_sparseness is not None:
                column = hoyer.project(column, model.activations_sparseness, l2="keep")
            changed[:, j] = column
            assert error(changed, H) >= least


def test_without_constraints_it_is_as_good_as_scikit_learn(X):
    ours = SparseNMF(5, init="random", random_state=0, tol=1e-7, max_iter=1000).fit(X)
    theirs = NMF(5, init="random", random_state=0, tol=1e-7, max_iter=1000).fit(X)
    assert ours.reconstruction_err_ <= theirs.reconstruction_err_ * 1.02


def test_planted_parts_are_found(rng):
    parts = np.kron(np.eye(4), np.ones(6)) / np.sqrt(6)
    X = rng.exponential(size=(100, 4)) @ parts
    target = hoyer.sparseness(parts[0])
    model = SparseNMF(4, components_sparseness=target, random_state=0, tol=1e-10, max_iter=1000)
    model.fit(X)
    order = np.argmax(model.components_ @ parts.T, axis=0)
    np.testing.assert_allclose(model.components_[order], parts, atol=1e-4)
    assert model.reconstruction_err_ < 1e-3


class TestCodesWithASum:
    @pytest.fixture
    def mixtures(self, rng):
        """Shares of three spectra, each of them pure in some samples."""
        shares = np.vstack([np.eye(3), rng.dirichlet(np.ones(3), size=60)])
        return shares, shares @ (0.1 + rng.exponential(size=(3, 30)))

    @pytest.mark.parametrize("total", [1.0, 20.0])
    @pytest.mark.parametrize("more", [{}, {"components_sparseness": 0.5}])
    def test_they_are_shares(self, total, more, X):
        model = SparseNMF(4, codes_l1=total, random_state=0, **more)
        W = model.fit_transform(X)
        for codes in (W, model.transform(X), model.transform(X[:7] * 3)):
            np.testing.assert_allclose(codes.sum(axis=1), total)
            assert codes.min() >= 0
        assert np.diff(model.objective_).max() <= 1e-12 * np.sum(X**2)
        error = np.linalg.norm(X - W @ model.components_)
        assert model.reconstruction_err_ == pytest.approx(error)
        assert error < 0.35 * np.linalg.norm(X)
        if more:
            np.testing.assert_allclose(hoyer.sparseness(model.components_), 0.5, atol=1e-7)

    def test_the_codes_are_the_best(self, X):
        """Optimality on a simplex: no component in use has a larger slope than any other."""
        model = SparseNMF(4, codes_l1=1.0, random_state=0).fit(X)
        codes, H = model.transform(X), model.components_
        slope = (codes @ H - X) @ H.T
        excess = slope - slope.min(axis=1, keepdims=True)
        assert (np.where(codes > 0, excess, 0).max(axis=1) <= 1e-2 * np.sum(X**2, axis=1)).all()

    def test_pure_samples_are_found(self, mixtures):
        shares, X = mixtures
        model = SparseNMF(3, codes_l1=1.0, random_state=0, tol=1e-9, max_iter=5000)
        W = model.fit_transform(X)
        assert model.reconstruction_err_ < 1e-2 * np.linalg.norm(X)
        # Each component is about one of the spectra, up to what mixtures leave open.
        order = np.argmax(shares.T @ W, axis=1)
        assert sorted(order) == [0, 1, 2]

    def test_together_with_a_sparseness(self, X):
        model = SparseNMF(6, codes_l1=1.0, codes_sparseness=0.6, random_state=0)
        for codes in (model.fit_transform(X), model.transform(X)):
            np.testing.assert_allclose(codes.sum(axis=1), 1)
            np.testing.assert_allclose(hoyer.sparseness(codes), 0.6, atol=1e-7)

    @pytest.mark.parametrize("scale", [2.0**-500, 2.0**500])
    def test_scales_belong_to_the_components(self, scale, X):
        plain = SparseNMF(4, codes_l1=1.0, random_state=0, max_iter=30, tol=0)
        other = SparseNMF(4, codes_l1=1.0, random_state=0, max_iter=30, tol=0)
        W = plain.fit_transform(X)
        np.testing.assert_allclose(other.fit_transform(X * scale), W, atol=1e-6)
        np.testing.assert_allclose(other.components_ / scale, plain.components_, rtol=1e-5)
        np.testing.assert_allclose(other.transform(X * scale), plain.transform(X), atol=1e-6)

    def test_custom_factors_are_not_changed(self, X, rng):
        W, H = rng.uniform(size=(len(X), 4)), rng.uniform(size=(4, X.shape[1]))
        before = W.copy(), H.copy()
        for layout in (np.ascontiguousarray, np.asfortranarray):
            given = layout(W)
            SparseNMF(4, codes_l1=1.0, init="custom", max_iter=5, tol=0).fit(X, W=given, H=H)
            np.testing.assert_array_equal(given, before[0])
            np.testing.assert_array_equal(H, before[1])

    def test_no_mini_batches(self):
        with pytest.raises(AttributeError, match=r"codes_l1=1\.0: partial_fit keeps components of"):
            SparseNMF(4, codes_l1=1.0).partial_fit  # noqa: B018


@pytest.mark.parametrize("sparseness", [0.0, 1.0])
@pytest.mark.parametrize(
    "name", ["components_sparseness", "activations_sparseness", "codes_sparseness"]
)
def test_ends_of_the_range(name, sparseness, X):
    model = SparseNMF(3, random_state=0, max_iter=30, **{name: sparseness})
    check_factors(model, model.fit_transform(X), X)


@BOTH
def test_equal_seeds_equal_results(solver, constraints, X):
    models = [
        SparseNMF(4, init="random", solver=solver, random_state=7, max_iter=20, **constraints)
        for _ in range(2)
    ]
    first, second = (model.fit_transform(X) for model in models)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    np.testing.assert_array_equal(models[0].objective_, models[1].objective_)
    other = SparseNMF(4, init="random", solver=solver, random_state=8, max_iter=20, **constraints)
    assert abs(other.fit(X).components_ - models[0].components_).max() > 1e-3


@BOTH
def test_float32_is_close_to_float64(solver, constraints, X):
    double = SparseNMF(4, solver=solver, random_state=0, max_iter=30, tol=0, **constraints)
    single = SparseNMF(4, solver=solver, random_state=0, max_iter=30, tol=0, **constraints)
    double.fit(X)
    W32 = single.fit_transform(X.astype(np.float32))
    assert W32.dtype == single.components_.dtype == np.float32
    check_factors(single, W32, X, tol=1e-4)
    assert single.reconstruction_err_ == pytest.approx(double.reconstruction_err_, rel=0.01)
    np.testing.assert_allclose(single.objective_, double.objective_, rtol=0.02)
    np.testing.assert_allclose(single.components_, double.components_, atol=0.02)
    assert single.transform(X).dtype == np.float64
    assert double.transform(X.astype(np.float32)).dtype == np.float32


@BOTH
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array, sparse.csr_matrix])
def test_sparse_data_as_dense(solver, constraints, kind, X):
    X = X * (np.quantile(X, 0.7) < X)
    options = {"solver": solver, "init": "random", "random_state": 0, "max_iter": 15, **constraints}
    dense, compressed = SparseNMF(4, **options), SparseNMF(4, **options)
    W = dense.fit_transform(X)
    found = compressed.fit_transform(kind(X))
    assert type(found) is np.ndarray
    np.testing.assert_allclose(found, W, atol=1e-6)
    np.testing.assert_allclose(compressed.components_, dense.components_, atol=1e-7)
    assert compressed.reconstruction_err_ == pytest.approx(dense.reconstruction_err_, rel=1e-6)
    np.testing.assert_allclose(compressed.transform(kind(X)), dense.transform(X), atol=1e-6)


def test_sparse_data_are_not_made_dense():
    size = 200_000
    rng = np.random.default_rng(0)
    X = sparse.random_array((size, size), density=2e-10, random_state=rng, format="csr")
    X = X + sparse.csr_array(([1.0], ([0], [0])), shape=X.shape)
    model = SparseNMF(2, components_sparseness=0.99, init="random", random_state=0, max_iter=2)
    W = model.fit_transform(X)
    check_factors(model, W, X)


NASTY = {
    "zero rows": lambda x: x * (np.arange(len(x)) % 3 > 0)[:, None],
    "zero columns": lambda x: x * (np.arange(x.shape[1]) % 3 > 0),
    "zero": lambda x: x * 0,
    "constant": lambda x: x * 0 + 3,
    "one sample": lambda x: x[:1],
    "two features": lambda x: x[:, :2],
    "two samples": lambda x: x[:2],
    "rank one": lambda x: np.outer(x[:, 0], x[0]),
    "one entry": lambda x: np.where(x == x.max(), x, 0),
    "huge": lambda x: x * 1e300,
    "tiny": lambda x: x * 1e-300,
    "subnormal": lambda x: x * 1e-310,
    "mixed scales": lambda x: x * np.geomspace(1e-150, 1e150, len(x))[:, None],
    "integers": lambda x: (x * 10).astype(int),
    "Fortran": np.asfortranarray,
    "reversed": lambda x: x[::-1, ::-1],
}


# One component, and more than either side, where that could make a difference.
COUNTS = [(name, 3) for name in NASTY]
COUNTS += [(name, n) for name in ("zero", "zero rows", "one sample", "rank one") for n in (1, 45)]


@BOTH
@pytest.mark.parametrize(("name", "count"), COUNTS)
def test_nasty_data(solver, constraints, name, count, X):
    X = NASTY[name](X)
    X.flags.writeable = False
    model = SparseNMF(count, solver=solver, random_state=0, max_iter=5, **constraints)
    if len(X) == 1 and "activations_sparseness" in constraints:
        with pytest.raises(ValueError, match="n_samples = 1"):
            model.fit(X)
        return
    W = model.fit_transform(X)
    check_factors(model, W, X)
    assert np.isfinite(model.reconstruction_err_)
    if name != "huge":
        rise = np.diff(model.objective_, prepend=np.inf).max()
        assert rise <= 1e-12 * np.sum(np.square(X, dtype=float)) + 1e-290
    again = model.transform(X)
    if "activations_sparseness" not in constraints:
        check_agreement(X, model.components_, again, W)


@BOTH
@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e-6, 1e6, 1e20, 1e36])
def test_float32_at_all_scales(solver, constraints, scale, X):
    X = (X * scale).astype(np.float32)
    model = SparseNMF(4, solver=solver, random_state=0, max_iter=15, **constraints)
    check_factors(model, model.fit_transform(X), X, tol=1e-4)
    rise = np.diff(model.objective_, prepend=np.inf).max()
    assert rise <= 1e-6 * np.sum(np.square(X, dtype=float))


@pytest.mark.parametrize("exponent", [-900, -200, -7, 7, 200, 900])
def test_the_scale_of_the_data_is_only_a_unit(exponent, X):
    model = SparseNMF(4, components_sparseness=0.6, random_state=0, max_iter=30)
    W, H = model.fit_transform(X), model.components_
    scaled = SparseNMF(4, components_sparseness=0.6, random_state=0, max_iter=30)
    found = scaled.fit_transform(np.ldexp(X, exponent))
    np.testing.assert_allclose(scaled.components_, H, atol=1e-8)
    np.testing.assert_allclose(np.ldexp(found, -exponent), W, atol=1e-7)
    expected = np.ldexp(model.reconstruction_err_, exponent)
    assert scaled.reconstruction_err_ == pytest.approx(expected)


@pytest.mark.parametrize(
    "constraints", [c for c in CONSTRAINTS if "activations_sparseness" not in c]
)
class TestTransform:
    def test_agrees_with_fit_transform(self, constraints, X):
        model = SparseNMF(4, random_state=0, **constraints)
        W = model.fit_transform(X)
        np.testing.assert_array_equal(model.transform(X), W)
        np.testing.assert_allclose(model.inverse_transform(W), W @ model.components_)
        product = model.inverse_transform(sparse.csr_array(W))
        assert type(product) is np.ndarray
        np.testing.assert_allclose(product, W @ model.components_)

    def test_a_code_depends_on_its_sample_alone(self, constraints, X, rng):
        model = SparseNMF(4, random_state=0, **constraints).fit(X)
        new = rng.uniform(size=(25, X.shape[1]))
        together = model.transform(new)
        order = rng.permutation(25)
        np.testing.assert_allclose(model.transform(new[order]), together[order], atol=1e-9)
        alone = np.vstack([model.transform(x[None]) for x in new])
        np.testing.assert_allclose(alone, together, atol=1e-9)
        if model.codes_sparseness is not None:
            np.testing.assert_allclose(
                hoyer.sparseness(together), model.codes_sparseness, atol=1e-6
            )


def test_transform_gives_new_samples_the_best_codes_whatever_the_activations(X):
    model = SparseNMF(4, activations_sparseness=0.6, random_state=0)
    W = model.fit_transform(X)
    free = model.transform(X)
    better = np.linalg.norm(X - free @ model.components_, axis=1)
    assert (better <= np.linalg.norm(X - W @ model.components_, axis=1) + 1e-6).all()


class TestPartialFit:
    @pytest.mark.parametrize(
        "constraints", [c for c in CONSTRAINTS if "activations_sparseness" not in c]
    )
    def test_batches_approach_a_fit(self, constraints, rng):
        parts = rng.exponential(size=(4, 20))
        X = rng.exponential(size=(2000, 4)) @ parts
        model = SparseNMF(4, random_state=0, **constraints)
        errors = []
        for start in range(0, 2000, 100):
            assert model.partial_fit(X[start : start + 100]) is model
            W = model.transform(X[:200])
            check_factors(model, W, X[:200])
            errors.append(np.linalg.norm(X[:200] - W @ model.components_))
        assert model.n_steps_ == 20
        whole = SparseNMF(4, random_state=0, **constraints).fit(X)
        best = np.linalg.norm(X[:200] - whole.transform(X[:200]) @ whole.components_)
        assert errors[-1] <= 1.3 * best + 0.02 * np.linalg.norm(X[:200])
        assert errors[-1] < errors[0]

    def test_goes_on_from_a_fit(self, X):
        model = SparseNMF(4, components_sparseness=0.5, random_state=0).fit(X)
        before = model.components_.copy()
        model.partial_fit(X[:4])
        check_factors(model, model.transform(X), X)
        assert 0 < abs(model.components_ - before).max() < 0.3
        assert model.n_steps_ == 1

    @pytest.mark.parametrize("scale", [1e-300, 1e-3, 1e300])
    def test_scales(self, scale, X):
        model = SparseNMF(4, components_sparseness=0.5, random_state=0)
        reference = SparseNMF(4, components_sparseness=0.5, random_state=0)
        for part in np.array_split(X, 4):
            model.partial_fit(part * scale)
            reference.partial_fit(part)
        np.testing.assert_allclose(model.components_, reference.components_, atol=1e-6)

    @pytest.mark.parametrize("first", [np.float32, np.float64])
    def test_batches_of_other_types(self, first, X):
        model = SparseNMF(3, components_sparseness=0.5, random_state=0)
        model.partial_fit(X.astype(first))
        for dtype in (np.float32, np.float64, int):
            model.partial_fit(X.astype(dtype))
            assert model.components_.dtype == first
        check_factors(model, model.transform(X), X, tol=1e-4)

    def test_sparse_batches(self, X):
        dense, compressed = (SparseNMF(3, init="random", random_state=0) for _ in range(2))
        for part in np.array_split(X, 3):
            dense.partial_fit(part)
            compressed.partial_fit(sparse.csr_array(part))
        np.testing.assert_allclose(compressed.components_, dense.components_, atol=1e-8)

    def test_not_for_all_problems(self, X):
        model = SparseNMF(3, activations_sparseness=0.5)
        assert not hasattr(model, "partial_fit")
        assert not hasattr(SparseNMF(3, solver="nmfsc"), "partial_fit")
        why = "activations_sparseness=0.5 is about all samples together, which partial_fit never"
        with pytest.raises(AttributeError, match=why):
            model.partial_fit(X)
        with pytest.raises(AttributeError, match=why):
            SparseNMF.partial_fit(model, X)
        with pytest.raises(AttributeError, match="solver='nmfsc': partial_fit needs solver='bcd'"):
            SparseNMF(3, solver="nmfsc").partial_fit(X)
        assert list(inspect.signature(SparseNMF.partial_fit).parameters) == ["self", "X", "y"]
        assert SparseNMF.partial_fit.__doc__.startswith("Improve the components")
        with pytest.raises(ValueError, match="custom"):
            SparseNMF(3, init="custom").partial_fit(X)

    def test_a_failure_leaves_things_as_they_were(self, X, monkeypatch):
        model = SparseNMF(3, random_state=0).partial_fit(X)
        before = pickle.dumps(model)

        def interrupt(*args, **kwargs):
            raise KeyboardInterrupt

        monkeypatch.setattr(nmf, "sweep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X)
        assert pickle.dumps(model) == before
        with pytest.raises(ValueError, match="features"):
            model.partial_fit(X[:, :5])
        assert pickle.dumps(model) == before


class TestInterrupted:
    @pytest.mark.parametrize("solver", ["bcd", "nmfsc"])
    @pytest.mark.parametrize("fitted_before", [False, True])
    def test_a_fit_that_does_not_end_leaves_no_fit(self, solver, fitted_before, X, monkeypatch):
        model = SparseNMF(3, solver=solver, random_state=0)
        if fitted_before:
            model.fit(X)
        model.set_output(transform="default")
        original, calls = nmf.SOLVERS[solver].iterate, []

        def interrupted(self):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return original(self)

        monkeypatch.setattr(nmf.SOLVERS[solver], "iterate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
        assert not [name for name in vars(model) if name.endswith("_")]
        with pytest.raises(NotFittedError):
            model.transform(X)
        with pytest.raises(NotFittedError):
            model.inverse_transform(np.ones((2, 3)))
        assert model.fit(X).transform(X).shape == (40, 3)


def test_few_iterations_of_a_fit_do_not_spoil_its_codes(X):
    model = SparseNMF(4, components_sparseness=0.5, random_state=0, max_iter=1)
    W = model.fit_transform(X)
    assert np.linalg.norm(X - W @ model.components_) ** 2 / 2 <= model.objective_[-1] * (1 + 1e-9)


class TestCustom:
    def test_starts_there(self, X):
        first = SparseNMF(4, components_sparseness=0.5, random_state=0, tol=1e-9, max_iter=500)
        W = first.fit_transform(X)
        H = first.components_
        second = SparseNMF(4, components_sparseness=0.5, init="custom", max_iter=1)
        second.fit(X, W=W, H=H)
        assert second.objective_[0] == pytest.approx(first.objective_[-1], rel=1e-6)
        assert second.components_ is not H

    def test_what_is_given_is_made_feasible_and_not_changed(self, X, rng):
        W, H = rng.uniform(size=(40, 3)), rng.uniform(size=(3, 24))
        copies = W.copy(), H.copy()
        for constraints in CONSTRAINTS:
            model = SparseNMF(init="custom", max_iter=2, **constraints)
            check_factors(model, model.fit_transform(X, W=W, H=H), X)
            assert model.n_components_ == 3
        np.testing.assert_array_equal(W, copies[0])
        np.testing.assert_array_equal(H, copies[1])

    def test_errors(self, X):
        W, H = np.ones((40, 3)), np.ones((3, 24))
        custom = SparseNMF(3, init="custom")
        with pytest.raises(ValueError, match="both W and H"):
            custom.fit(X, W=W)
        with pytest.raises(
            ValueError, match=re.escape("H has shape (3, 23), but must have (3, 24)")
        ):
            custom.fit(X, W=W, H=H[:, 1:])
        with pytest.raises(ValueError, match="Negative values"):
            custom.fit(X, W=-W, H=H)
        with pytest.raises(ValueError, match="NaN"):
            custom.fit(X, W=W * np.nan, H=H)
        with pytest.raises(ValueError, match="init='custom'"):
            SparseNMF(3).fit(X, W=W, H=H)


class TestErrors:
    @pytest.mark.parametrize(
        ("parameters", "text"),
        [
            (
                {"components_sparseness": 1.5},
                r"components_sparseness=1.5: must be None or a number in \[0, 1\]$",
            ),
            ({"components_sparseness": 1.2}, r"a number in \[0, 1\]$"),
            ({"components_sparseness": 90}, r"a number in \[0, 1\] \(did you mean 0.9\?\)$"),
            ({"activations_sparseness": "much"}, "activations_sparseness='much'"),
            ({"codes_sparseness": -0.1}, "codes_sparseness=-0.1"),
            ({"codes_sparseness": True}, "codes_sparseness=True"),
            ({"codes_sparseness": float("nan")}, "codes_sparseness=nan"),
            ({"codes_sparseness": 0.5, "activations_sparseness": 0.5}, "choose one"),
            ({"codes_sparseness": 0.5, "solver": "nmfsc"}, "needs solver='bcd'"),
            ({"codes_l1": 0}, "codes_l1=0: must be None or a positive number"),
            ({"codes_l1": -1.0}, r"codes_l1=-1\.0: must be None or a positive number"),
            ({"codes_l1": "one"}, "codes_l1='one'"),
            ({"codes_l1": 1.0, "activations_sparseness": 0.5}, "choose one"),
            ({"codes_l1": 1.0, "solver": "nmfsc"}, "needs solver='bcd'"),
            ({"solver": "cd"}, "solver='cd': choose one of 'bcd', 'nmfsc'"),
            ({"init": "nndsvd"}, "init='nndsvd': choose one of 'nndsvda', 'random', 'custom'"),
            ({"init": "nndsvda", "n_components": 25}, r"at most min\(n_samples, n_features\) = 24"),
            ({"n_components": 0}, "n_components=0: must be an integer of at least 1"),
            ({"n_components": 2.5}, "n_components=2.5"),
            ({"max_iter": 0}, "max_iter=0"),
            ({"n_init": 0}, "n_init=0: must be an integer of at least 1"),
            ({"n_init": 2, "init": "custom"}, "n_init=2 starts .* init='custom': .*init='random'"),
            ({"n_init": 3, "init": "nndsvda"}, "n_init=3 starts .* init='nndsvda': .*init=None"),
            ({"tol": -1}, "tol=-1"),
            ({"tol": None}, "tol=None"),
        ],
    )
    def test_parameters(self, parameters, text, X):
        with pytest.raises(ValueError, match=text):
            SparseNMF(**parameters).fit(X)

    def test_data(self, X):
        with pytest.raises(ValueError, match="Negative values in data"):
            SparseNMF(2).fit(-X)
        with pytest.raises(ValueError, match="NaN"):
            SparseNMF(2).fit(np.where(X > 1, X, np.nan))
        with pytest.raises(ValueError, match="n_features = 1"):
            SparseNMF(1, components_sparseness=0.5).fit(X[:, :1])
        with pytest.raises(NotFittedError):
            SparseNMF(2).transform(X)
        model = SparseNMF(2).fit(X)
        with pytest.raises(ValueError, match="features"):
            model.transform(X[:, 1:])
        with pytest.raises(ValueError, match="X has 3 columns, but SparseNMF has 2 components"):
            model.inverse_transform(np.ones((4, 3)))


@pytest.fixture(scope="module")
def digits():
    return load_digits().data


def two_blobs(seed=0):
    """The data of scikit-learn's checks: two points of the diagonal, and noise."""
    X, _ = make_blobs(30, centers=[[0, 0, 0], [1, 1, 1]], random_state=seed, cluster_std=0.1)
    X = StandardScaler().fit_transform(X)
    return X - X.min()


class TestStopping:
    @BOTH
    def test_the_end_by_tol(self, solver, constraints, X):
        """For the first time ten decreases in a row are small, and the last is the least."""
        options = {"solver": solver, "random_state": 0, **constraints}
        model = SparseNMF(4, tol=1e-2, max_iter=1000, **options).fit(X)
        assert model.n_iter_ < 1000
        more = SparseNMF(4, tol=0, max_iter=model.n_iter_, **options).fit(X)
        np.testing.assert_array_equal(more.objective_, model.objective_)
        lows = np.minimum.accumulate(model.objective_)
        decrease = lows[:-1] - lows[1:]
        small = decrease <= 1e-2 * lows[:-1]
        ends = [
            end
            for end in range(10, len(decrease) + 1)
            if small[end - 10 : end].all() and decrease[end - 1] <= decrease[end - 10 : end].min()
        ]
        assert ends == [len(decrease)]

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    def test_a_plateau_is_no_end(self):
        model = SparseNMF(3, components_sparseness=0.5, random_state=0).fit(two_blobs())
        assert model.objective_[20] > 0.55
        assert model.objective_[-1] == pytest.approx(0.113, rel=0.03)

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    def test_a_plateau_of_digits(self, digits):
        model = SparseNMF(16, components_sparseness=0.9, init="random", random_state=3)
        assert model.fit(digits / 16).objective_[-1] == pytest.approx(1277.2, rel=0.005)
        assert model.objective_[45] == pytest.approx(1422, rel=0.001)

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("tol", [0, 1e-4])
    def test_rounding_alone_ends_a_fit(self, tol, dtype, rng):
        """Of an exact factorization nothing but rounding is left of the objective."""
        part = np.outer(rng.uniform(1, 2, size=4), rng.uniform(1, 2, size=5))
        X = np.kron(np.eye(3), part).astype(dtype)
        model = SparseNMF(3, init="random", random_state=0, tol=tol, max_iter=3000).fit(X)
        assert model.n_iter_ < 1000
        assert model.reconstruction_err_ <= 1e-2 * np.linalg.norm(X)

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("seed", [0, 2, 3])
    @pytest.mark.parametrize("count", [None, 2])
    def test_nothing_left_ends_a_fit(self, count, seed, dtype):
        """As soon as the error is no more than tol of the data, however fast it still falls."""
        rng = np.random.default_rng(seed)
        X = rng.random((20, 5)) if count is None else rng.random((20, 2)) @ rng.random((2, 5))
        X = X.astype(dtype)
        model = SparseNMF(count, random_state=0).fit(X)
        assert model.n_iter_ < model.max_iter
        enough = max(1e-8, 4 * np.finfo(dtype).eps) * np.linalg.norm(X) ** 2 / 2
        assert (model.objective_[:-1] > enough).all()
        assert model.objective_[-1] <= 4 * enough

    @pytest.mark.parametrize("solver", ["bcd", "nmfsc"])
    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    def test_the_end_by_max_iter_is_a_warning(self, solver, X):
        model = SparseNMF(4, random_state=0, tol=1e-9, max_iter=12, solver=solver)
        pipeline = make_pipeline(FunctionTransformer(), model)
        for call in (model.fit_transform, model.fit, pipeline.fit, pipeline.fit_transform):
            with pytest.warns(ConvergenceWarning, match="=12 iterations, .* tol=1e-09") as caught:
                call(X)
            assert [warning.filename for warning in caught] == [__file__]

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    def test_all_iterations_were_asked_for(self, X):
        assert SparseNMF(4, random_state=0, tol=0, max_iter=12).fit(X).n_iter_ == 12

    def test_verbose(self, X, capsys):
        SparseNMF(3, random_state=0, tol=0, max_iter=21, verbose=1).fit(X)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(",")[0] for line in lines] == [
            f"SparseNMF: iteration {number}" for number in (10, 20, 21)
        ]
        assert lines[-1].endswith("done")
        SparseNMF(3, random_state=0, tol=0, max_iter=5, verbose=2).fit(X)
        assert len(capsys.readouterr().out.splitlines()) == 5
        SparseNMF(3, random_state=0, max_iter=5).fit(X)
        assert capsys.readouterr().out == ""


def test_rounding_does_not_end_the_search_of_a_factor_for_good():
    """In float32 Hoyer's algorithm finds no step for one factor before the other is done."""
    options = {"solver": "nmfsc", "components_sparseness": 0.5, "tol": 0, "max_iter": 300}
    ends = [
        SparseNMF(3, random_state=6, **options).fit(two_blobs(6).astype(dtype)).objective_[-1]
        for dtype in (np.float64, np.float32)
    ]
    assert ends[1] == pytest.approx(ends[0], rel=0.2)


class TestStarts:
    def test_the_best_one_is_kept(self, digits):
        """Seed 3 alone ends in a poor optimum."""
        options = {"components_sparseness": 0.9, "init": "random", "random_state": 3}
        models = [SparseNMF(16, n_init=n, **options).fit(digits) for n in (1, 2, 4, 4)]
        ends = [model.objective_[-1] for model in models]
        assert ends[0] > ends[1] >= ends[2] == ends[3]
        assert ends[2] / 256 < 1.03 * 1149
        np.testing.assert_array_equal(models[2].components_, models[3].components_)
        for model in models:
            assert model.n_iter_ == len(model.objective_)
            assert model.reconstruction_err_**2 / 2 <= model.objective_[-1] * (1 + 1e-9)

    def test_one_after_the_other_from_the_same_random_numbers(self, X):
        state = np.random.RandomState(5)
        alone = [
            SparseNMF(4, init="random", components_sparseness=0.6, random_state=state).fit(X)
            for _ in range(3)
        ]
        best = min(alone, key=lambda model: model.objective_[-1])
        together = SparseNMF(4, init="random", components_sparseness=0.6, random_state=5, n_init=3)
        np.testing.assert_array_equal(together.fit(X).components_, best.components_)
        np.testing.assert_array_equal(together.objective_, best.objective_)

    def test_by_default_the_first_is_from_singular_vectors(self, X):
        """So that more starts cannot make it worse."""
        ends = [
            SparseNMF(4, components_sparseness=0.6, random_state=0, n_init=n).fit(X).objective_
            for n in (1, 2, 5)
        ]
        given = SparseNMF(4, components_sparseness=0.6, random_state=0, init="nndsvda").fit(X)
        np.testing.assert_array_equal(ends[0], given.objective_)
        assert ends[0][-1] >= ends[1][-1] >= ends[2][-1]
        assert ends[0][-1] > ends[2][-1]

    @pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
    def test_one_warning_about_the_best(self, X):
        model = SparseNMF(4, random_state=0, n_init=3, max_iter=11, tol=1e-9)
        with pytest.warns(ConvergenceWarning, match="max_iter=11") as caught:
            model.fit(X)
        assert len(caught) == 1

    def test_verbose(self, X, capsys):
        SparseNMF(3, random_state=0, n_init=2, tol=0, max_iter=10, verbose=1).fit(X)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(", obj")[0] for line in lines] == [
            f"SparseNMF: start {number} of 2, iteration 10" for number in (1, 2)
        ]


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array])
def test_entries_stored_twice_mean_their_sum(kind, X):
    once = kind(np.where(np.median(X) < X, X, 0))
    twice = kind(
        (
            np.repeat(once.data, 2) * np.tile([3.0, -2.0], once.nnz),
            np.repeat(once.indices, 2),
            2 * once.indptr,
        ),
        shape=once.shape,
    )
    models = [SparseNMF(3, random_state=0, components_sparseness=0.5) for _ in range(2)]
    codes = [m.fit_transform(data) for m, data in zip(models, (once, twice), strict=True)]
    assert twice.nnz == 2 * once.nnz
    np.testing.assert_allclose(codes[1], codes[0], atol=1e-9)
    np.testing.assert_allclose(models[1].objective_, models[0].objective_)
    np.testing.assert_allclose(models[1].reconstruction_err_, models[0].reconstruction_err_)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "scales", [(0, 200), (-200, 0), (None, 200), (None, -200), (200, 0), (-200, None)]
)
def test_batches_of_any_scale(scales, dtype, X):
    exponent = 1 if dtype == np.float64 else 0.15
    first, second = (
        (X * (0.0 if s is None else 10.0 ** (s * exponent))).astype(dtype) for s in scales
    )
    model = SparseNMF(3, random_state=0).partial_fit(first).partial_fit(second)
    H = model.components_
    assert H.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-5)
    for batch in (first, second):
        if batch.any():
            left = batch / batch.max() - model.transform(batch) / batch.max() @ H
            assert np.linalg.norm(left) < 0.5 * np.linalg.norm(batch / batch.max())


def test_large_float64_batches_after_float32_ones(X):
    model = SparseNMF(3, random_state=0).partial_fit(X.astype(np.float32))
    for scale in (1e25, 1e200):
        model.partial_fit(X * scale)
        np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1, rtol=1e-5)


def test_partial_fit_after_other_parameters(X):
    X[:, :3] = 0
    model = SparseNMF(30, init="random", components_sparseness=0.3, random_state=0)
    model.partial_fit(X[:2])
    assert (np.diag(model._statistics_.gram) == 0).any()
    model.set_params(components_sparseness=0.6).partial_fit(X[:2])
    np.testing.assert_allclose(hoyer.sparseness(model.components_), 0.6, atol=1e-6)
    before = model.components_
    with pytest.raises(ValueError, match=r"n_components=7, but .* learned with 30"):
        model.set_params(n_components=7).partial_fit(X)
    assert model.components_ is before


def test_components_that_vanished_add_no_error():
    B = abs(np.random.default_rng(0).normal(size=(12, 9)))
    B[3], B[:, 2] = 0, 0
    model = SparseNMF(
        1,
        solver="nmfsc",
        init="random",
        components_sparseness=1.0,
        activations_sparseness=1.0,
        random_state=0,
        max_iter=15,
        tol=0,
    )
    check_factors(model, model.fit_transform(B), B)
    np.testing.assert_allclose(model.reconstruction_err_**2 / 2, model.objective_[-1], rtol=1e-12)


@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_final_codes_are_no_worse_than_those_of_the_solver(constraints, rng):
    X = rng.uniform(size=(12, 9))
    model = SparseNMF(15, random_state=0, max_iter=2000, tol=1e-7, **constraints)
    W = model.fit_transform(X)
    check_factors(model, W, X)
    square = np.sum(X**2)
    assert model.reconstruction_err_**2 / 2 <= model.objective_[-1] + 1e-11 * square
    np.testing.assert_allclose(
        model.reconstruction_err_, np.linalg.norm(X - W @ model.components_), atol=1e-9
    )


@BOTH
@pytest.mark.parametrize("scale", [1e-200, 1e150, 1e300])
def test_custom_factors_of_any_scale(solver, constraints, scale, X):
    if "codes_sparseness" in constraints:
        constraints = {**constraints, "codes_sparseness": 0.3}
    W, H = np.full((40, 3), 1 / scale), scale * abs(np.random.default_rng(0).normal(size=(3, 24)))
    model = SparseNMF(3, solver=solver, init="custom", max_iter=20, **constraints)
    check_factors(model, model.fit_transform(X, W=W, H=H), X)
    assert np.isfinite(model.objective_).all()


def test_custom_factors_that_cannot_be(X):
    model = SparseNMF(init="custom")
    with pytest.raises(ValueError, match=r"H has shape \(\), but must have two dimensions"):
        model.fit(X, W=np.ones((40, 3)), H=3.0)
    with pytest.raises(ValueError, match="too large for float64"):
        model.fit(X, W=np.full((40, 3), 1e200), H=np.full((3, 24), 1e200))


def test_a_single_component_has_no_use_for_a_sparseness_of_codes(X):
    text = r"codes_sparseness=0.6 has no effect: n_components = 1, and codes of length 1 have no"
    for call in ("fit", "partial_fit", "fit_transform"):
        model = SparseNMF(1, codes_sparseness=0.6, random_state=0)
        with pytest.warns(UserWarning, match=text) as caught:
            getattr(model, call)(X)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match=text):
        SparseNMF(codes_sparseness=0.6, random_state=0).fit(X[:, :1])
