"""What both estimators share: their base, checks of parameters, the end of a fit, its sums."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from numbers import Integral, Real
from types import MethodType
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..options import is_dask
from ..target import likely_meant
from ..warn import warn
from .data import Floats, Matrix, entries, scaled, to_moderate_scale

PATIENCE = 10
"""This many small decreases in a row end a fit."""
ROUNDING = 4
"""In units of eps times the objective of zero factors: below, an objective is rounding alone."""


def check_sparseness(
    name: str, value: Any, length: int, what: str, *, needed: bool = False
) -> None:
    """Refuse a sparseness that vectors of this length cannot have; None is fine if not needed.

    `what` is what the entries of such a vector stand for: "feature", "sample" or "component".
    """
    if value is None and not needed:
        return
    if not _is(value, Real) or not 0 <= float(value) <= 1:
        hint = likely_meant(float(value)) if _is(value, Real) else ""
        raise ValueError(
            f"{name}={value!r}: must be {'' if needed else 'None or '}a number in [0, 1]{hint}"
        )
    if length < 2:
        raise ValueError(
            f"{name}={value!r} needs vectors of at least 2 entries, but n_{what}s = {length}"
        )


def check_count(name: str, value: Any, least: int) -> int:
    """Return an integer parameter, or say what is wrong with it."""
    if not _is(value, Integral) or value < least:
        raise ValueError(f"{name}={value!r}: must be an integer of at least {least}")
    return int(value)


def check_number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return a parameter that is a number of at least 0, or say what is wrong with it."""
    if not _is(value, Real) or not 0 <= float(value) < np.inf or (positive and value == 0):
        what = "None or a positive number" if positive else "a number of at least 0"
        raise ValueError(f"{name}={value!r}: must be {what}")
    return float(value)


def _is(value: object, kind: type) -> bool:
    """Whether a value is a number of this kind; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r}: choose one of {names}")


class AvailableIf:
    """A method that an estimator has only if a check raises no AttributeError.

    As by scikit-learn's `available_if`, but the error is the check's own, which says why.
    """

    def __init__(self, method: Callable[..., Any], check: Callable[[Any], None]) -> None:
        self.method, self.check = method, check

    def __get__(self, estimator: Any, owner: type) -> Callable[..., Any]:
        if estimator is None:
            return self.method
        self.check(estimator)
        return MethodType(self.method, estimator)


@contextmanager
def whole_or_not_at_all(estimator: Any, *, keep: bool) -> Iterator[None]:
    """Undo what a fit has set if it does not come to its end.

    Afterwards the estimator is as it was before if `keep`, else unfitted.
    """
    attributes = vars(estimator)

    def forget() -> dict[str, Any]:
        # By convention the names of what a fit sets end in one _.
        names = [name for name in attributes if name.endswith("_") and not name.endswith("__")]
        return {name: attributes.pop(name) for name in names}

    before = forget()
    if keep:
        attributes.update(before)
    try:
        yield
    except BaseException:
        forget()
        attributes.update(before if keep else {})
        raise


class Decomposition(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An estimator whose samples are codes times `components_`, up to an error.

    Subclasses give it `_first_components(X, random_state)`, `_learn(X, components, sums,
    random_state)`, which improves components in place by a batch and returns the new sums, and
    `_encode(X, components)`, the codes of samples, one per row.
    """

    components_: Floats
    _statistics_: "Statistics"
    n_components_: int
    n_steps_: int

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Improve the components by a mini-batch, all of X, which is seen once and forgotten.

        The first one also chooses where to start, so it should have several times as many samples
        as there are components. Codes for the components as they are go into running sums, and one
        sweep over the components minimises what these sums say (Mairal et al. 2010). `SparseNMF`
        has no such method with `activations_sparseness`, which is about all samples together, nor
        with ``solver="nmfsc"``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Data as for `fit`. The first batch decides between float32 and float64. Of a Dask array
            every block of rows is a mini-batch, and is in memory by itself; blocks that would
            exceed Dask's ``array.chunk-size`` with all columns are divided.
        y : ignored
            For pipelines.

        Returns
        -------
        Self
            The estimator itself, as it was before if this fails or is interrupted.
        """
        self._check_online()
        if is_dask(X):
            from .dask import learn_blocks  # noqa: PLC0415 - for those who have Dask

            with whole_or_not_at_all(self, keep=True):
                learn_blocks(X, self.partial_fit)
            return self
        first = not hasattr(self, "components_")
        with whole_or_not_at_all(self, keep=True):
            X = self._validated(X, reset=first)
            if not first and self.n_components not in (None, len(self.components_)):
                raise ValueError(
                    f"n_components={self.n_components!r}, but the batches so far were learned with "
                    f"{len(self.components_)} components: keep that number, or use fit"
                )
            random_state = check_random_state(self.random_state)
            if first or self._starts_anew():
                dtype = X.dtype if first else self.components_.dtype
                X, unit = to_moderate_scale(X, dtype)
                X = X.astype(dtype, copy=False)
                components = self._first_components(X, random_state)
                sums = Statistics.none(components, unit)
            else:
                components = self.components_.copy()
                X, sums = self._statistics_.in_common_unit(X)
            if first:
                self._warn_of_single_codes(len(components))
            sums = self._learn(X, components, sums, random_state)
            if not np.isfinite(components).all():
                raise ValueError(
                    "the batch makes components that are not finite; is its scale right?"
                )
            self._set_learned(components, sums, 1 if first else self.n_steps_ + 1)
        return self

    def transform(self, X: Any) -> Any:
        """Return the codes of samples for the components as they are.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Data as for `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The best codes found, of exactly the sparseness `codes_sparseness` if that is given;
            those of `SparseNMF` are not negative, and sum to `codes_l1` if that is given. Those of
            a Dask array are one, in the same blocks of samples; nothing is computed yet.
        """
        check_is_fitted(self, "components_")
        if is_dask(X):
            from .dask import encoded  # noqa: PLC0415 - for those who have Dask

            return encoded(self, self._checked(X, reset=False), X.chunks[0])
        X, unit = to_moderate_scale(self._validated(X, reset=False))
        of_codes, of_components = self._units(unit)
        components = scaled(self.components_.astype(X.dtype, copy=False), 1 / of_components)
        return scaled(self._encode(X, components), of_codes)

    def inverse_transform(self, X: Any) -> Any:
        """Return the samples that codes stand for: ``codes @ components_``.

        Parameters
        ----------
        X : array_like, Dask array or sparse array of shape (n_samples, n_components)
            Codes.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Samples. Those of a Dask array are one, in the same blocks; nothing is computed yet.
        """
        check_is_fitted(self, "components_")
        if is_dask(X):
            from .dask import decoded, rows_of  # noqa: PLC0415 - for those who have Dask

            codes = rows_of(X)
            self._check_codes(codes)
            return decoded(self, codes)
        codes = check_array(X, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32])
        self._check_codes(codes)
        return np.asarray(codes @ self.components_)

    def _check_codes(self, codes: Any) -> None:
        """Refuse codes that are not one for each component."""
        if codes.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {codes.shape[1]} columns, but {type(self).__name__} has "
                f"{len(self.components_)} components"
            )

    def _units(self, unit: float) -> tuple[float, float]:
        """Return the units of codes and components if the data have this one."""
        return unit, 1.0

    def _check_online(self) -> None:
        """Refuse `partial_fit` where it makes no sense, and say why."""

    def _starts_anew(self) -> bool:
        """Whether a batch that is not the first still has to choose where to start."""
        return False

    def _check_parameters(self) -> None:
        check_count("max_iter", self.max_iter, 1)
        check_number("tol", self.tol)
        if self.n_components is not None:
            check_count("n_components", self.n_components, 1)

    def _validated(self, X: Any, *, reset: bool) -> Matrix:
        """Return the data if these and all parameters are fine."""
        if is_dask(X):
            from .dask import Rows  # noqa: PLC0415 - for those who have Dask

            return Rows(self._checked(X, reset=reset))
        self._check_parameters()
        formats = ("csr", "csc") if self.__sklearn_tags__().input_tags.sparse else False
        X = validate_data(
            self, X, accept_sparse=formats, dtype=[np.float64, np.float32], reset=reset
        )
        check_sparseness("components_sparseness", self.components_sparseness, X.shape[1], "feature")
        return X

    def _checked(self, X: Any, *, reset: bool) -> Any:
        """Return a Dask array of samples if all is fine that can be seen without its numbers."""
        from .dask import rows_of  # noqa: PLC0415 - for those who have Dask

        self._check_parameters()
        X = rows_of(X)
        validate_data(self, X, skip_check_array=True, reset=reset)
        check_sparseness("components_sparseness", self.components_sparseness, X.shape[1], "feature")
        return X

    def _set_learned(self, components: Floats, sums: "Statistics", steps: int) -> None:
        """Set what has been learned in so many mini-batches."""
        self.components_, self._statistics_ = components, sums
        self.n_components_, self.n_steps_ = len(components), steps

    def _warn_of_single_codes(self, count: int) -> None:
        """Say that a sparseness of codes means nothing for a single component.

        No error: scikit-learn's checks set ``n_components=1`` whatever else was asked for.
        """
        if self.codes_sparseness is not None and count == 1:
            warn(
                f"codes_sparseness={self.codes_sparseness!r} has no effect: n_components = 1, and "
                "codes of length 1 have no sparseness; choose more components"
            )

    def _warn_of_convergence(self, rounds: str, goal: str) -> None:
        """Say that all rounds were made before the goal was reached, unless tol=0 asks for all."""
        if self.tol > 0:
            warn(
                f"{type(self).__name__} stopped after max_iter={self.max_iter} {rounds}, before "
                f"{goal} tol={self.tol}; more would improve it",
                ConvergenceWarning,
            )

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def settled(lows: Sequence[float], tol: float) -> bool:
    """Whether a descent is over, from the lowest objective seen up to each iteration.

    The last decreases must all be small, and the very last the least of them: near a saddle point
    they are small too, but grow while the iterates leave it. The lowest objective instead of the
    last one: where only rounding is left, objectives rise and fall, but new lows become rare.
    """
    recent = lows[-PATIENCE - 1 :]
    decreases = [before - after for before, after in pairwise(recent)]
    small = all(d <= tol * low for d, low in zip(decreases, recent, strict=False))
    return len(decreases) == PATIENCE and small and decreases[-1] <= min(decreases)


def nothing_left(objective: float, half_square: float, tol: float, dtype: np.dtype[Any]) -> bool:
    """Whether the factors leave at most the part `tol` of the data, which have half this square.

    Or so little that rounding hides it; a tol of 0 asks for every step that can be had.
    """
    least = max(tol * tol, ROUNDING * float(np.finfo(dtype).eps))
    return tol > 0 and objective <= least * half_square


class Progress:
    """Lines about a fit: every tenth round with verbose=1, each with verbose=2."""

    def __init__(self, name: str, verbose: int, round_name: str) -> None:
        self.name, self.verbose, self.round_name = name, int(verbose), round_name
        self.start = time.perf_counter()

    def report(self, number: int, what: str, value: float, *, last: bool = False) -> None:
        """Say how far the fit has come."""
        if self.verbose and (last or self.verbose > 1 or number % 10 == 0):
            seconds, end = time.perf_counter() - self.start, ", done" if last else ""
            print(
                f"{self.name}: {self.round_name} {number}, {what} {value:.6g}, {seconds:.1f} s{end}"
            )


class Statistics(NamedTuple):
    """Sums over the samples seen so far: of codes times codes, and of codes times data."""

    gram: Floats
    cross: Floats
    samples: int
    unit: float = 1.0
    """The unit in which the data were measured when they were added up."""

    @classmethod
    def none(cls, components: Floats, unit: float) -> "Statistics":
        """Return the sums before the first sample."""
        count = len(components)
        gram = np.zeros((count, count), components.dtype)
        return cls(gram, np.zeros_like(components), 0, unit)

    def updated(self, gram: Floats, cross: Floats, samples: int, forgetting: float) -> "Statistics":
        """Return the sums with one more batch.

        The past counts ``(1 - b/t)**forgetting`` when b of t samples are new (Mairal et al. 2010,
        who count batches): early codes came from bad components.
        """
        total = self.samples + samples
        weight = gram.dtype.type((1 - samples / total) ** forgetting)
        return Statistics(weight * self.gram + gram, weight * self.cross + cross, total, self.unit)

    @property
    def empty(self) -> bool:
        """Whether no sample has contributed to the sums yet."""
        return not (self.gram.any() or self.cross.any())

    def in_common_unit(self, X: Matrix) -> tuple[Matrix, "Statistics"]:
        """Return a batch, in the sums' type, and the sums, both in the larger of their units."""
        dtype = self.gram.dtype
        if not entries(X).any():
            return X.astype(dtype, copy=False), self
        measured, unit = to_moderate_scale(X, dtype)
        if not self.empty and unit <= self.unit:
            return scaled(X, 1 / self.unit).astype(dtype, copy=False), self
        ratio = 0.0 if self.empty else self.unit / unit
        factor = dtype.type(ratio * ratio)
        sums = Statistics(factor * self.gram, factor * self.cross, self.samples, unit)
        return measured.astype(dtype, copy=False), sums
