"""The estimators among scikit-learn's own: its checks, pipelines, searches, names, containers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import hoyer
from hoyer.decomposition import SparseDictionaryLearning, SparseNMF
from hoyer.preprocessing import SparsenessProjector

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # Many of scikit-learn's checks set n_components=1.
    pytest.mark.filterwarnings("ignore:codes_sparseness=.* has no effect:UserWarning"),
    # Raised by scikit-learn for one of its own checks, which needs a variable in the environment.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

ESTIMATORS = [
    SparseNMF(),
    SparseNMF(components_sparseness=0.5),
    SparseNMF(components_sparseness=0.6, n_init=2),
    SparseNMF(codes_sparseness=0.5),
    SparseNMF(codes_l1=1.0),
    SparseNMF(4, init="random", components_sparseness=0.5, solver="nmfsc"),
    SparseNMF(activations_sparseness=0.5),
    SparseDictionaryLearning(),
    SparseDictionaryLearning(5, components_sparseness=0.3),
    SparsenessProjector(),
    SparsenessProjector(0.5, l2="keep", nonnegative=True),
    SparsenessProjector(None, l1=1.2, l2=1.0),
]


def not_expected(estimator):
    """Sparse activations are a property of the training data as a whole: see SparseNMF's notes."""
    if getattr(estimator, "activations_sparseness", None) is None:
        return {}
    reason = "transform cannot give single samples the sparseness of a column"
    return {
        "check_transformer_general": reason,
        "check_transformer_data_not_an_array": reason,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=not_expected)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    data = load_digits(n_class=4)
    return data.data, data.target


def test_a_pipeline_and_a_search(digits):
    X, y = digits
    pipeline = make_pipeline(
        FunctionTransformer(np.sqrt),
        SparseNMF(8, random_state=0, max_iter=20),
        SparsenessProjector(0.3),
        LogisticRegression(max_iter=500),
    )
    grid = {
        "sparsenmf__components_sparseness": [None, 0.6],
        "sparsenessprojector__sparseness": [0.2, 0.6],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_clones_and_names(estimator, digits):
    X = digits[0][:80]
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    names = [f"pixel {number}" for number in range(X.shape[1])]
    copy.set_output(transform="pandas")
    codes = copy.fit_transform(pd.DataFrame(X, columns=names))
    assert list(codes.columns) == list(copy.get_feature_names_out())
    prefix = type(estimator).__name__.lower()
    expected = "pixel 0" if prefix == "sparsenessprojector" else f"{prefix}0"
    assert codes.columns[0] == expected
    assert list(copy.feature_names_in_) == names


def test_representations_say_what_was_asked():
    assert repr(SparseNMF(5, components_sparseness=0.6)) == (
        "SparseNMF(components_sparseness=0.6, n_components=5)"
    )


class TestProjector:
    def test_rows_as_by_project(self, rng):
        X = rng.normal(size=(6, 9))
        for options in (
            {"sparseness": 0.4},
            {"sparseness": 0.4, "l2": "keep"},
            {"sparseness": 0.4, "l1": 2.0, "nonnegative": True},
            {"sparseness": None, "l1": 2.0, "l2": 1.0},
            {"sparseness": 0.2, "only_increase": True, "solver": "newton"},
            {"l1": 1.0, "nonnegative": True},
            {"l1": 2.0},
            {"l1": 2.0, "at_most": True},
            {"l1": 4.0, "l2": 2.0, "at_most": True, "nonnegative": True},
        ):
            np.testing.assert_array_equal(
                SparsenessProjector(**options).fit_transform(X), hoyer.project(X, **options)
            )

    def test_it_needs_no_fit_and_changes_nothing(self, rng):
        X = rng.normal(size=(6, 9))
        before = X.copy()
        found = SparsenessProjector(0.7).transform(X)
        np.testing.assert_allclose(hoyer.sparseness(found), 0.7)
        np.testing.assert_array_equal(X, before)
        single = SparsenessProjector(0.7).transform(X.astype(np.float32))
        assert single.dtype == np.float32

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"sparseness": 1.5}, "1.5"),
            ({"sparseness": 0.5, "l1": 1, "l2": 1}, "l1"),
            ({"solver": "fast"}, "unknown solver 'fast'"),
            ({"at_most": True}, "l1=None, l2=None is no target"),
            ({"at_most": True, "l2": 1.0}, "in an L2 ball nothing becomes sparse"),
            ({"at_most": True, "sparseness": 0.5}, "bounds are given as l1"),
            ({"l1": 1.0, "only_increase": True}, "one norm says nothing about sparseness"),
        ],
    )
    def test_errors_come_with_the_fit(self, options, text, rng):
        with pytest.raises(ValueError, match=text):
            SparsenessProjector(**options).fit(rng.normal(size=(6, 9)))

    def test_one_feature(self):
        with pytest.raises(ValueError, match="n_features = 1"):
            SparsenessProjector().fit([[1.0], [2.0]])
        norms = SparsenessProjector(None, l1=2.0, l2=2.0)
        np.testing.assert_array_equal(norms.fit_transform([[1.0], [-3.0]]), [[2.0], [-2.0]])
        with pytest.raises(ValueError, match=r"l1=2.0 and l2=1.0 .*n_features = 1"):
            SparsenessProjector(None, l1=2.0, l2=1.0).fit([[1.0], [2.0]])

    @pytest.mark.parametrize("options", [{}, {"l2": "keep"}, {"l2": 2.0}])
    def test_the_default_sparseness(self, options, rng):
        X = rng.normal(size=(6, 9))
        np.testing.assert_array_equal(
            SparsenessProjector(**options).fit_transform(X), hoyer.project(X, 0.75, **options)
        )

    def test_both_norms_are_a_target(self, rng):
        X = rng.normal(size=(6, 9))
        model = clone(SparsenessProjector(l1=1.5, l2=1.0))
        np.testing.assert_array_equal(model.fit_transform(X), hoyer.project(X, l1=1.5, l2=1.0))
        assert model.get_params()["sparseness"] is None
        with pytest.raises(ValueError, match=r"sparseness=None, l1=1\.5, l2='keep' is no target"):
            model.set_params(l2="keep").fit(X)
