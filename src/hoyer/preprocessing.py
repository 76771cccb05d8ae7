"""`SparsenessProjector`: the projection as a step of a scikit-learn pipeline."""

from typing import Any, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils.validation import validate_data
except ImportError:
    raise ImportError(
        "hoyer.preprocessing needs scikit-learn: pip install 'hoyer[sklearn]'"
    ) from None

from .api import project, sparseness
from .options import NormRule, Solver, is_dask

__all__ = ["SparsenessProjector"]

SPARSENESS = 0.75
"""The default: scikit-learn wants estimators that work without arguments."""


def __dir__() -> list[str]:
    return __all__


class SparsenessProjector(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Project every sample onto a given sparseness, or onto given norms.

    `hoyer.project` of each row. The transformer has no state: `fit` only checks.

    Parameters
    ----------
    sparseness : float, optional
        Target sparseness in [0, 1]. By default 0.75, unless l1 is given, which needs none.
    l1, l2 : float, optional
        Target norms, as in `hoyer.project`; l2 can also be "keep" or "nearest". Without any the
        rows get norm 1, rows of zeros included, which become some vector of this sparseness; with
        "keep" they stay zero. l1 alone, with `nonnegative`, makes shares of the rows, which sum to
        l1.
    nonnegative, only_increase, at_most : bool, default False
        As in `hoyer.project`; with `at_most` the norms are upper bounds.
    solver : str, default "auto"
        As in `hoyer.project`.

    Attributes
    ----------
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    See Also
    --------
    hoyer.project : The function behind it.

    Examples
    --------
    >>> from hoyer.preprocessing import SparsenessProjector
    >>> SparsenessProjector(0.5).fit_transform([[1.0, 2.0, 3.0, 4.0]]).round(3)
    array([[0.   , 0.146, 0.5  , 0.854]])
    >>> SparsenessProjector(l1=1.0, nonnegative=True).fit_transform([[0.1, 0.5, 0.8, -2.0]])
    array([[0.  , 0.35, 0.65, 0.  ]])
    """

    def __init__(
        self,
        sparseness: float | None = None,
        *,
        l1: float | None = None,
        l2: float | NormRule | None = None,
        nonnegative: bool = False,
        only_increase: bool = False,
        at_most: bool = False,
        solver: Solver = "auto",
    ) -> None:
        self.sparseness = sparseness
        self.l1 = l1
        self.l2 = l2
        self.nonnegative = nonnegative
        self.only_increase = only_increase
        self.at_most = at_most
        self.solver = solver

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and the data; there is nothing to learn.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Data. Of a Dask array the shape and the type are checked; nothing is computed.
        y : ignored
            For pipelines.

        Returns
        -------
        SparsenessProjector
            The estimator itself.
        """
        X = self._validated(X, reset=True)
        self._projected(np.ones((1, X.shape[1]), X.dtype) if is_dask(X) else X[:1])
        return self

    def transform(self, X: Any) -> Any:
        """Return the projected rows.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Data.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows, projected; of a Dask array one in the same chunks, lazily.
        """
        return self._projected(self._validated(X, reset=False))

    def _validated(self, X: Any, *, reset: bool) -> Any:
        if is_dask(X):
            return self._validated_lazily(X, reset=reset)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=reset)

    def _validated_lazily(self, X: Any, *, reset: bool) -> Any:
        """Return a Dask array of floats, after checks that need none of its numbers."""
        sparseness(X)  # which says what is wrong
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: shape {X.shape}")
        X = validate_data(self, X, skip_check_array=True, reset=reset)
        return X if X.dtype in (np.float64, np.float32) else X.astype(np.float64)

    def _projected(self, X: Any) -> Any:
        options = self.get_params()
        if self.sparseness is None and self.l1 is None and not self.at_most:
            options["sparseness"] = SPARSENESS
        try:
            return project(X, **options)
        except ValueError as error:
            if X.shape[1] > 1:
                raise
            # One feature is too few for most targets; scikit-learn's checks look for these words.
            raise ValueError(f"{error} (n_features = 1)") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
