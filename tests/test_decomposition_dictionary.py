"""SparseDictionaryLearning: exact codes, unit atoms, recovery, nasty data, errors."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import hoyer
from hoyer.decomposition import SparseDictionaryLearning, dictionary


@pytest.fixture
def X(rng):
    return planted(rng, samples=600)[0]


def planted(rng, samples, atoms=12, features=20, used=2):
    """Samples made of a few random atoms each."""
    D = rng.normal(size=(atoms, features))
    D /= np.linalg.norm(D, axis=1, keepdims=True)
    codes = np.zeros((samples, atoms))
    for row in codes:
        row[rng.permutation(atoms)[:used]] = rng.choice([-1, 1], used) * rng.uniform(1, 2, used)
    return codes @ D, D


def check(model, X, tol=1e-6):
    codes, atoms = model.transform(X), model.components_
    assert codes.shape == (len(X), len(atoms))
    assert np.isfinite(codes).all()
    assert np.isfinite(atoms).all()
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, rtol=1e-5)
    if model.components_sparseness is not None:
        np.testing.assert_allclose(hoyer.sparseness(atoms), model.components_sparseness, atol=tol)
    used = codes.any(axis=1)
    np.testing.assert_array_equal(used, X.any(axis=1))
    if len(atoms) > 1:
        np.testing.assert_allclose(hoyer.sparseness(codes[used]), model.codes_sparseness, atol=tol)
    return codes


@pytest.mark.parametrize("codes_sparseness", [0.0, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("components_sparseness", [None, 0.0, 0.5, 1.0])
def test_sparseness(codes_sparseness, components_sparseness, X):
    model = SparseDictionaryLearning(
        15,
        codes_sparseness=codes_sparseness,
        components_sparseness=components_sparseness,
        random_state=0,
        max_iter=3,
        tol=0,
        batch_size=100,
    )
    check(model.fit(X), X)
    assert model.n_steps_ == 6 * model.n_iter_
    assert model.objective_.shape == (model.n_iter_,)
    for _ in range(3):
        check(model.partial_fit(X[:50]), X)
    assert model.n_steps_ == 6 * model.n_iter_ + 3


def test_planted_atoms_are_found(rng):
    X, D = planted(rng, samples=3000)
    model = SparseDictionaryLearning(
        12, codes_sparseness=0.8, random_state=1, max_iter=30, batch_size=200, tol=0
    ).fit(X)
    found = abs(model.components_ @ D.T).max(axis=0)
    assert np.median(found) > 0.98
    error = np.mean((X - model.inverse_transform(model.transform(X))) ** 2)
    assert error < 0.05 * np.mean(X**2)


def test_learning_lowers_the_error(X):
    model = SparseDictionaryLearning(
        20, codes_sparseness=0.7, random_state=0, max_iter=15, transform_refinements=5
    ).fit(X)
    assert model.objective_[-1] < 0.6 * model.objective_[0]
    error = np.sum((X - model.inverse_transform(model.transform(X))) ** 2) / (2 * len(X))
    assert error == pytest.approx(model.objective_[-1], rel=0.3)


def test_refinements_make_codes_better(X):
    model = SparseDictionaryLearning(30, codes_sparseness=0.7, random_state=0, max_iter=3, tol=0)
    model.fit(X)
    errors = []
    for refinements in (0, 3, 30):
        codes = check(model.set_params(transform_refinements=refinements), X)
        errors.append(np.sum((X - codes @ model.components_) ** 2, axis=1))
    assert (np.diff(errors, axis=0) <= 1e-9).all()
    assert errors[1].sum() < errors[0].sum()


def test_a_code_depends_on_its_sample_alone(X):
    """But for BLAS, which rounds products of other sizes differently: see `decomposition.codes`."""
    model = SparseDictionaryLearning(15, random_state=0, max_iter=2, tol=0).fit(X)
    together = model.transform(X[:30])
    alone = np.vstack([model.transform(x[None]) for x in X[:30]])
    np.testing.assert_allclose(alone, together, atol=1e-5)
    errors = [
        np.sum((X[:30] - codes @ model.components_) ** 2, axis=1) for codes in (alone, together)
    ]
    np.testing.assert_allclose(*errors, rtol=1e-7)


def test_equal_seeds_equal_results(X):
    first, second, other = (
        SparseDictionaryLearning(10, random_state=seed, max_iter=3, tol=0).fit(X)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert abs(first.components_ - other.components_).max() > 1e-3


def test_partial_fit_is_what_fit_does(X):
    """One pass in the order of the data, batch by batch, from the same atoms."""
    atoms = X[:10]
    model = SparseDictionaryLearning(dict_init=atoms, random_state=0)
    for start in range(0, 600, 100):
        model.partial_fit(X[start : start + 100])
    assert model.n_components_ == 10
    assert model.n_steps_ == 6
    whole = SparseDictionaryLearning(
        dict_init=atoms, random_state=0, max_iter=1, tol=0, batch_size=100
    ).fit(X)
    errors = [np.sum((X - m.inverse_transform(m.transform(X))) ** 2) for m in (model, whole)]
    assert errors[0] == pytest.approx(errors[1], rel=0.1)


def test_float32_is_close_to_float64(X):
    double, single = (
        SparseDictionaryLearning(12, random_state=0, max_iter=3, tol=0).fit(X.astype(dtype))
        for dtype in (np.float64, np.float32)
    )
    assert single.components_.dtype == np.float32
    codes = check(single, X.astype(np.float32), tol=1e-4)
    assert codes.dtype == np.float32
    np.testing.assert_allclose(single.objective_, double.objective_, rtol=0.1)


@pytest.mark.parametrize("first", [np.float32, np.float64])
def test_batches_of_other_types(first, X):
    model = SparseDictionaryLearning(5, random_state=0).partial_fit(X.astype(first))
    for dtype in (np.float32, np.float64, int):
        model.partial_fit(X.astype(dtype))
        assert model.components_.dtype == first
    check(model, X, tol=1e-4)


NASTY = {
    "zero rows": lambda x: x * (np.arange(len(x)) % 3 > 0)[:, None],
    "zero columns": lambda x: x * (np.arange(x.shape[1]) % 3 > 0),
    "zero": lambda x: x * 0,
    "constant": lambda x: x * 0 - 3,
    "one sample": lambda x: x[:1],
    "two features": lambda x: x[:, :2],
    "rank one": lambda x: np.outer(x[:, 0], x[0]),
    "equal samples": lambda x: np.tile(x[:1], (20, 1)),
    "huge": lambda x: x * 1e300,
    "tiny": lambda x: x * 1e-300,
    "integers": lambda x: (x * 10).astype(int),
    "Fortran": np.asfortranarray,
}


@pytest.mark.filterwarnings("ignore:codes_sparseness=.* has no effect:UserWarning")
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("count", [1, 4, 30])
@pytest.mark.parametrize("components_sparseness", [None, 0.4])
def test_nasty_data(name, count, components_sparseness, X):
    X = NASTY[name](X[:60])
    X.flags.writeable = False
    model = SparseDictionaryLearning(
        count,
        codes_sparseness=0.6,
        components_sparseness=components_sparseness,
        random_state=0,
        max_iter=2,
        tol=0,
        batch_size=25,
    )
    check(model.fit(X), X)
    check(model.partial_fit(X), X)


def test_unused_atoms_are_replaced(X):
    atoms = np.zeros((5, 20))
    atoms[:, 0] = 1
    X = X.copy()
    X[:, 0] = 0
    atoms[0] = X[0]
    model = SparseDictionaryLearning(
        dict_init=atoms, codes_sparseness=1.0, random_state=0, max_iter=5, tol=0, batch_size=100
    ).fit(X)
    usage = (model.transform(X) ** 2).sum(axis=0)
    assert (usage > 0).sum() >= 4


def test_interrupted(X, monkeypatch):
    model = SparseDictionaryLearning(5, random_state=0, max_iter=2).partial_fit(X)
    before = pickle.dumps(model)
    original, calls = dictionary.sweep, []

    def interrupted(*args):
        calls.append(1)
        if len(calls) in (1, 4):
            raise KeyboardInterrupt
        return original(*args)

    monkeypatch.setattr(dictionary, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X)
    assert pickle.dumps(model) == before
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.transform(X)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"codes_sparseness": 1.5}, "codes_sparseness=1.5"),
        ({"codes_sparseness": None}, "codes_sparseness=None"),
        ({"components_sparseness": "much"}, "components_sparseness='much'"),
        ({"n_components": 0}, "n_components=0"),
        ({"refinements": -1}, "refinements=-1"),
        ({"transform_refinements": 1.5}, r"transform_refinements=1\.5"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"forgetting": -1}, "forgetting=-1"),
        ({"tol": float("inf")}, "tol=inf"),
        ({"n_components": 3, "dict_init": np.ones((2, 20))}, r"\(2, 20\), but must have \(3, 20\)"),
    ],
)
def test_errors(parameters, text, X):
    with pytest.raises(ValueError, match=text):
        SparseDictionaryLearning(**parameters).fit(X)
    with pytest.raises(ValueError, match=text):
        SparseDictionaryLearning(**parameters).partial_fit(X)


def test_one_feature():
    with pytest.raises(ValueError, match="n_features = 1"):
        SparseDictionaryLearning(2, components_sparseness=0.5).fit([[1.0], [2.0]])


class TestStopping:
    def test_the_end_by_tol(self):
        X = load_digits().data
        X -= X.mean(axis=0)
        options = {"codes_sparseness": 0.6, "random_state": 0}
        end = SparseDictionaryLearning(16, **options).fit(X).n_iter_
        assert end < 50
        atoms = [
            SparseDictionaryLearning(16, max_iter=n, tol=0, **options).fit(X).components_
            for n in (end - 2, end - 1, end)
        ]
        moved = [np.linalg.norm(new - old) / np.sqrt(16) for old, new in pairwise(atoms)]
        assert moved[0] > 1e-2 >= moved[1]

    def test_the_end_by_max_iter_is_a_warning(self, X):
        model = SparseDictionaryLearning(10, random_state=0, max_iter=2)
        for call in (model.fit, model.fit_transform):
            with pytest.warns(ConvergenceWarning, match=r"=2 passes, .* tol=0.01") as caught:
                call(X)
            assert [warning.filename for warning in caught] == [__file__]
        assert model.n_iter_ == 2

    @pytest.mark.parametrize("name", ["zero", "rank one", "one sample"])
    def test_replacing_atoms_that_nobody_needs_is_no_progress(self, name, X):
        model = SparseDictionaryLearning(30, codes_sparseness=0.6, random_state=0)
        assert model.fit(NASTY[name](X[:60])).n_iter_ < model.max_iter


def test_verbose(X, capsys):
    SparseDictionaryLearning(5, random_state=0, max_iter=3, tol=0, verbose=2).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"SparseDictionaryLearning: pass {number}" for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("scales", [(1.0, 1e200), (1e-200, 1.0), (0.0, 1e200), (1e200, 1.0)])
def test_batches_of_any_scale(scales, rng):
    X = rng.normal(size=(60, 9))
    model = SparseDictionaryLearning(7, random_state=0)
    for scale in scales:
        model.partial_fit(X * scale)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1)
    with pytest.raises(ValueError, match=r"n_components=8, but .* learned with 7"):
        model.set_params(n_components=8).partial_fit(X)


def test_a_single_atom_has_no_use_for_a_sparseness(X):
    text = r"codes_sparseness=0.6 has no effect: n_components = 1, and codes of length 1 have no"
    for call in ("fit", "partial_fit", "fit_transform"):
        model = SparseDictionaryLearning(1, codes_sparseness=0.6, tol=0, max_iter=2)
        with pytest.warns(UserWarning, match=text) as caught:
            getattr(model, call)(X)
        assert [warning.filename for warning in caught] == [__file__]
    model.partial_fit(X)  # which was said before
    with pytest.warns(UserWarning, match=text):
        SparseDictionaryLearning(dict_init=X[:1], codes_sparseness=0.6, tol=0, max_iter=2).fit(X)
