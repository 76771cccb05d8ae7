"""What both estimators share: checks of parameters, fits that succeed whole or not at all."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from ..target import as_share
from .data import Floats, Matrix, entries, in_unit, to_moderate_scale


def check_sparseness(
    name: str, value: Any, length: int, what: str, *, needed: bool = False
) -> None:
    """Refuse a sparseness that vectors of this length cannot have; None is fine if not needed.

    `what` says of what there is only one if the length is 1: "feature" or "sample".
    """
    if value is None and not needed:
        return
    if not _is(value, Real) or not 0 <= float(value) <= 1:
        hint = as_share(float(value)) if _is(value, Real) else ""
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


def check_number(name: str, value: Any) -> float:
    """Return a parameter that is a number of at least 0, or say what is wrong with it."""
    if not _is(value, Real) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name}={value!r}: must be a number of at least 0")
    return float(value)


def _is(value: object, kind: type) -> bool:
    """Whether a value is a number of this kind; True and False are none."""
    return isinstance(value, kind) and not isinstance(value, bool | np.bool_)


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse a word that is none of the choices."""
    if value not in choices:
        names = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r}: choose one of {names}")


@contextmanager
def whole_or_not_at_all(estimator: Any, *, keep: bool) -> Iterator[None]:
    """Undo what a fit has set if it does not come to its end.

    Afterwards the estimator is as it was before if `keep`, else unfitted.
    """
    if not keep:
        _set_fitted(estimator, {})
    before = _fitted(estimator)
    try:
        yield
    except BaseException:
        _set_fitted(estimator, before)
        raise


def _fitted(estimator: Any) -> dict[str, Any]:
    """Return the attributes that a fit has set: by convention their names end in one _."""
    return {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.endswith("__")
    }


def _set_fitted(estimator: Any, attributes: dict[str, Any]) -> None:
    for name in _fitted(estimator):
        delattr(estimator, name)
    vars(estimator).update(attributes)


def decoded(estimator: Any, codes: Any) -> Floats:
    """Return codes times components, after checking that they fit."""
    check_is_fitted(estimator, "components_")
    codes = check_array(codes, accept_sparse=("csr", "csc"), dtype=[np.float64, np.float32])
    components = estimator.components_
    if codes.shape[1] != len(components):
        raise ValueError(
            f"X has {codes.shape[1]} columns, but {type(estimator).__name__} has "
            f"{len(components)} components"
        )
    return np.asarray(codes @ components)


class Progress:
    """Lines about a fit: every tenth iteration with verbose=1, each with verbose=2."""

    def __init__(self, name: str, verbose: int, unit: str = "iteration") -> None:
        self.name, self.verbose, self.unit = name, int(verbose), unit
        self.start = time.perf_counter()

    def report(self, number: int, what: str, value: float, *, last: bool = False) -> None:
        """Say how far the fit has come."""
        if self.verbose and (last or self.verbose > 1 or number % 10 == 0):
            seconds = time.perf_counter() - self.start
            end = ", done" if last else ""
            print(f"{self.name}: {self.unit} {number}, {what} {value:.6g}, {seconds:.1f} s{end}")


class Statistics(NamedTuple):
    """Sums over the samples seen so far: of codes times codes, and of codes times data."""

    gram: Floats
    cross: Floats
    samples: int
    unit: float = 1.0
    """In which the data were measured when they were added up."""

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
        """Whether no sample has had any part in the sums yet."""
        return not (self.gram.any() or self.cross.any())

    def in_common_unit(self, X: Matrix) -> tuple[Matrix, "Statistics"]:
        """Return a batch, in the sums' type, and the sums, both in the larger of their units."""
        dtype = self.gram.dtype
        if not entries(X).any():
            return X.astype(dtype, copy=False), self
        measured, unit = to_moderate_scale(X, dtype)
        if not self.empty and unit <= self.unit:
            return in_unit(X, 1 / self.unit).astype(dtype, copy=False), self
        ratio = 0.0 if self.empty else self.unit / unit
        factor = dtype.type(ratio * ratio)
        sums = Statistics(factor * self.gram, factor * self.cross, self.samples, unit)
        return measured.astype(dtype, copy=False), sums


def check_same_count(given: int | None, components: Floats) -> None:
    """Refuse a number of components that changed between batches."""
    if given is not None and given != len(components):
        raise ValueError(
            f"n_components={given!r}, but the batches so far were learned with {len(components)} "
            "components: keep that number, or use fit"
        )


def check_finite(components: Floats) -> None:
    """Refuse components that a batch has made useless."""
    if not np.isfinite(components).all():
        raise ValueError("the batch makes components that are not finite; is its scale right?")
