"""`SparseNMF`: non-negative matrix factorization with exact sparseness."""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.random import RandomState
from scipy import sparse
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_non_negative

from ..api import project
from ..options import is_dask
from .bcd import BlockCoordinateDescent, encode
from .blocks import RowSet, has_weight, negligible, normalize_rows, sweep
from .codes import CodeSet
from .data import (
    Floats,
    Matrix,
    inner,
    is_in_blocks,
    residual_norm,
    rows_times,
    rows_times_transposed,
    scaled,
    squared_norm,
    to_moderate_scale,
)
from .factors import INITS, Factors, Problem, nndsvda, random_factors
from .fitting import (
    AvailableIf,
    Decomposition,
    Progress,
    Statistics,
    check_choice,
    check_count,
    check_number,
    check_sparseness,
    nothing_left,
    settled,
    whole_or_not_at_all,
)
from .nmfsc import HoyerProjectedGradient

SOLVERS: dict[str, type[BlockCoordinateDescent] | type[HoyerProjectedGradient]] = {
    "bcd": BlockCoordinateDescent,
    "nmfsc": HoyerProjectedGradient,
}
CODE_ITERATIONS = 200
"""Sweeps or steps that codes are allowed at least: they are cheap, and seldom need as many."""
FORGETTING = 5.0
"""How fast `SparseNMF.partial_fit` forgets codes of the past."""


class Descent(NamedTuple):
    """The result of one start."""

    codes: Floats
    components: Floats
    objectives: list[float]
    """The objective after each iteration."""
    converged: bool


class SparseNMF(Decomposition):
    """Non-negative matrix factorization whose factors have exactly the sparseness you choose.

    Minimises ``||X - W H||^2 / 2`` over non-negative W (samples x components) and H (components x
    features, `components_`) whose rows or columns have the given sparseness; the rows of W may also
    have a given sum. Without any of these options, it is ordinary non-negative matrix
    factorization.

    Parameters
    ----------
    n_components : int, optional
        The number of components; by default the number of features.
    components_sparseness : float, optional
        Sparseness in [0, 1] of each component (row of H): for parts that are local, or topics of
        few words.
    activations_sparseness : float, optional
        Sparseness in [0, 1] of each column of W, over the samples of the training data: each
        component is used by few samples (Hoyer's other factor). It cannot be combined with
        `codes_sparseness`, because in general no matrix has both.
    codes_sparseness : float, optional
        Sparseness in [0, 1] of each row of W, also in `transform`: each sample uses few components.
        If there is only one component, it has no effect, and a warning says so.
    codes_l1 : float, optional
        Sum of each row of W, also in `transform`: with 1, codes are the shares of the components in
        a sample (mixtures, spectral unmixing). It can be combined with `codes_sparseness`. H then
        has the scale of the data, and there is no `partial_fit`.
    solver : {"bcd", "nmfsc"}, default "bcd"
        "bcd" is block coordinate descent, the fast one. "nmfsc" is Hoyer's original algorithm,
        for reference; it does not support `codes_sparseness` and `codes_l1`.
    init : {"nndsvda", "random", "custom"}, optional
        Where to start: singular vectors, random numbers, or the W and H given to `fit`. By default
        "nndsvda" if `n_components` is not larger than either side of X, else "random".
    n_init : int, default 1
        The number of starts; the fit with the lowest objective is kept. Sparse factorizations have
        many local optima, so several starts are worth their time. They need init="random", or the
        default, which then uses "nndsvda" for the first start and "random" for the others.
    max_iter : int, default 500
        The largest number of iterations of each start (and, if more than 200, of sweeps or steps in
        `transform`).
    tol : float, default 1e-4
        The fit ends when each of the last ten iterations has lowered the objective by no more than
        this fraction of it, and the last one by the least; or when the norm of X - W H is at most
        this fraction of that of X, or hidden by rounding. If `max_iter` iterations are not enough,
        there is a ConvergenceWarning. With 0, the fit ends when ten iterations have brought no
        improvement, and there is no warning.
    random_state : int, RandomState instance or None, default None
        Seed for the initial factors of all starts.
    verbose : int, default 0
        1 prints every tenth iteration, 2 each.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        H. Unless `codes_l1` is given, its rows have norm 1 (without `components_sparseness`, rows
        that are not needed are zero).
    reconstruction_err_ : float
        Frobenius norm of X - W H after `fit`.
    objective_ : ndarray of shape (iterations,)
        ``||X - W H||^2 / 2`` after each iteration of the best start (infinity if it overflows).
    n_iter_ : int
        Iterations made by `fit`, from the best start.
    n_steps_ : int
        Mini-batches seen by `partial_fit` since.
    n_components_ : int
        Number of components.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    See Also
    --------
    SparseDictionaryLearning : For data of any sign, online.
    hoyer.project : The projection underneath.

    Notes
    -----
    *Scale.* Multiplying a component by a number and its activation by the inverse changes nothing,
    including the sparseness; so components have norm 1, and W has the scale. Scales matter only
    with `codes_sparseness`, and the norm of 1 is then part of the problem. If the sum of codes is
    given, it is the other way round: components have the scale.

    *Algorithm.* With everything else fixed, the best row of H, or column of W, of a given
    sparseness is a projection of its correlation with the residual (Potluru et al. 2013); without a
    sparseness, it is the positive part of that (HALS, Cichocki et al. 2007). Codes take projected
    gradient steps whose scale is fitted exactly. No step raises the objective beyond rounding. New
    here: the norm is optimised along with the direction; several sweeps use each product with the
    data; sparse codes.

    *fit_transform and transform.* They agree, with two exceptions. `activations_sparseness` is a
    property of the training data as a whole, so `transform` gives each new sample the best
    non-negative code. And a sample whose code in the fit was better than what `transform` finds
    keeps it, which may happen with sparse codes or with more components than features.

    *Choosing a target.* Targets are met exactly, so a low one makes components less sparse: first
    fit without a target and look at `hoyer.sparseness` of the components. With two targets at once
    (few parts, few of them used), only little of a sample can be explained.

    *Zero.* A sample that is zero, or orthogonal to all components, has the code zero, which has
    no sparseness (unless `codes_l1` is given).

    References
    ----------
    - Hoyer, "Non-negative matrix factorization with sparseness constraints", JMLR 5, 2004.
    - Potluru et al., "Block coordinate descent for sparse NMF", ICLR 2013.
    - Cichocki, Zdunek and Amari, "Hierarchical ALS algorithms for nonnegative matrix and 3D tensor
      factorization", ICA 2007.
    - Mairal et al., "Online learning for matrix factorization and sparse coding", JMLR 11, 2010.

    Examples
    --------
    >>> import hoyer
    >>> from hoyer.decomposition import SparseNMF
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> model = SparseNMF(16, components_sparseness=0.7, random_state=0)
    >>> W = model.fit_transform(X)
    >>> W.shape, model.components_.shape
    ((1797, 16), (16, 64))
    >>> hoyer.sparseness(model.components_).round(6)[:4]
    array([0.7, 0.7, 0.7, 0.7])
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        components_sparseness: float | None = None,
        activations_sparseness: float | None = None,
        codes_sparseness: float | None = None,
        codes_l1: float | None = None,
        solver: str = "bcd",
        init: str | None = None,
        n_init: int = 1,
        max_iter: int = 500,
        tol: float = 1e-4,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.components_sparseness = components_sparseness
        self.activations_sparseness = activations_sparseness
        self.codes_sparseness = codes_sparseness
        self.codes_l1 = codes_l1
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> Self:
        """Learn the components.

        Parameters
        ----------
        X : array_like, sparse array or Dask array of shape (n_samples, n_features)
            Non-negative data. A Dask array is never in memory as a whole: every iteration takes two
            passes over its blocks of rows, and does the same as if it were. W is in memory.
        y : ignored
            For pipelines.
        W, H : array_like, optional
            With ``init="custom"``, where to start; made feasible if need be.

        Returns
        -------
        SparseNMF
            The estimator itself. If the fit fails or is interrupted it is unfitted.
        """
        self.fit_transform(X, W=W, H=H)
        return self

    def fit_transform(self, X: Any, y: Any = None, W: Any = None, H: Any = None) -> Any:
        """Learn the components and return W.

        Parameters
        ----------
        X, y, W, H
            As in `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            The codes of the samples; of a Dask array one, in the same blocks.
        """
        given = X
        with whole_or_not_at_all(self, keep=False):
            X, unit = to_moderate_scale(self._validated(X, reset=True))
            custom = self._custom(X, unit, W, H)
            self._warn_of_single_codes(self._count(X) if custom is None else len(custom.codes))
            codes, components, values, _ = self._best_descent(self._problem(X), custom)
            if self.activations_sparseness is None:
                codes = self._better_codes(X, components, codes)
            sums = Statistics(codes @ codes.T, rows_times(codes, X), X.shape[0], unit)
            of_codes, of_components = self._units(unit)
            self._set_learned(scaled(components, of_components), sums, 0)
            self.objective_ = np.array([value * unit * unit for value in values])
            self.n_iter_ = len(values)
            self.reconstruction_err_ = residual_norm(X, codes, components) * unit
        found = scaled(np.ascontiguousarray(codes.T), of_codes)
        if is_dask(given):
            from .dask import in_blocks  # noqa: PLC0415 - for those who have Dask

            return in_blocks(found, given)
        return found

    # ---- mini-batches ----

    def _check_available(self) -> None:
        """Refuse `partial_fit` for problems that it cannot solve."""
        if self.activations_sparseness is not None:
            raise AttributeError(
                f"activations_sparseness={self.activations_sparseness!r} is about all samples "
                "together, which partial_fit never sees: use fit, or codes_sparseness"
            )
        if self.solver != "bcd":
            raise AttributeError(f"solver={self.solver!r}: partial_fit needs solver='bcd'")
        if self.codes_l1 is not None:
            raise AttributeError(
                f"codes_l1={self.codes_l1!r}: partial_fit keeps components of norm 1, and so needs "
                "codes of any norm: use fit"
            )

    partial_fit = AvailableIf(Decomposition.partial_fit, _check_available)

    def _check_online(self) -> None:
        self._check_available()
        if self.init == "custom":
            raise ValueError("init='custom' is for fit; partial_fit starts from its first batch")

    def _starts_anew(self) -> bool:
        # If all batches so far were zero, this one is the first that says where to start.
        return self._statistics_.empty

    def _first_components(self, X: Matrix, random_state: RandomState) -> Floats:
        return self._start(self._problem(X), random_state).components

    def _learn(self, X: Matrix, components: Floats, sums: Statistics, _: RandomState) -> Statistics:
        codes = np.ascontiguousarray(self._encode(X, components).T)
        sums = sums.updated(codes @ codes.T, rows_times(codes, X), X.shape[0], FORGETTING)
        allowed = RowSet(self.components_sparseness, nonnegative=True, normalized=True)
        sweep(components, sums.cross, sums.gram, allowed)
        if self.components_sparseness is not None:
            # The target may have changed since the last batch.
            self._sparsen(components, ~has_weight(sums.gram))
        return sums

    # ---- the fit ----

    def _problem(self, X: Matrix) -> Problem:
        """Return the problem, after checking that X allows it."""
        check_sparseness(
            "activations_sparseness", self.activations_sparseness, X.shape[0], "sample"
        )
        return Problem(
            X,
            squared_norm(X) / 2,
            self.components_sparseness,
            self.activations_sparseness,
            self._code_set(),
        )

    def _code_set(self) -> CodeSet:
        l1 = None if self.codes_l1 is None else float(self.codes_l1)
        return CodeSet(self.codes_sparseness, nonnegative=True, l1=l1)

    def _units(self, unit: float) -> tuple[float, float]:
        """Return the units of codes and components if the data have this one."""
        return (unit, 1.0) if self.codes_l1 is None else (1.0, unit)

    def _best_descent(self, problem: Problem, custom: Factors | None) -> Descent:
        """Return the start that led to the lowest objective, and warn if it has not converged."""
        random_state = check_random_state(self.random_state)
        name, several = type(self).__name__, self.n_init > 1

        def descent(number: int) -> Descent:
            factors = self._start(problem, random_state, custom, first=number == 1)
            start = f"start {number} of {self.n_init}, " if several else ""
            return self._descend(
                problem, factors, Progress(name, self.verbose, f"{start}iteration")
            )

        best = min(map(descent, range(1, self.n_init + 1)), key=lambda d: d.objectives[-1])
        if not best.converged:
            self._warn_of_convergence("iterations", "the objective stood still by")
        return best

    def _descend(self, problem: Problem, factors: Factors, progress: Progress) -> Descent:
        """Iterate until the objective stands still."""
        solver = SOLVERS[self.solver](problem, factors)
        values: list[float] = []
        lows: list[float] = []
        converged = False
        # Invariant: both factors are feasible, and the objective has risen by rounding at most.
        while not converged and len(values) < self.max_iter:
            values.append(solver.iterate())
            lows.append(min([values[-1], *lows[-1:]]))
            converged = settled(lows, self.tol) or nothing_left(
                values[-1], problem.half_square, self.tol, problem.X.dtype
            )
            last = converged or len(values) == self.max_iter
            progress.report(len(values), "objective", values[-1], last=last)
        codes, components = solver.factors
        if self.codes_l1 is not None:
            return Descent(codes, components, values, converged)
        normalize_rows(components, codes)
        if self.components_sparseness is not None:
            self._revive(components, codes, math.sqrt(2 * problem.half_square))
        return Descent(codes, components, values, converged)

    def _sparsen(self, components: Floats, which: Any) -> None:
        components[which] = project(components[which], self.components_sparseness, nonnegative=True)

    def _revive(self, components: Floats, codes: Floats, size: float) -> None:
        """Give components that vanished the sparseness they must have, and codes without weight.

        `size` is the norm of X: beside it the codes are nothing, though they keep their sparseness.
        """
        vanished = np.flatnonzero(~components.any(axis=1))
        if vanished.size:
            self._sparsen(components, vanished)
            rows = codes[vanished]
            normalize_rows(rows, np.ones_like(rows))
            codes[vanished] = rows * codes.dtype.type(negligible(size, codes.dtype))

    def _encode(self, X: Matrix, components: Floats) -> Floats:
        most = max(self.max_iter, CODE_ITERATIONS)
        return encode(X, components, self._code_set(), max_iter=most)

    def _better_codes(self, X: Matrix, components: Floats, codes: Floats) -> Floats:
        """Return the codes that `transform` gives, but the solver's for samples they fit better.

        Differences within the accuracy of `transform` do not count.
        """
        encoded = self._encode(X, components)
        own = np.ascontiguousarray(codes.T)
        cross = rows_times_transposed(components, X).T
        gram = components @ components.T
        move = own - encoded
        # Half the squared error of the solver's codes, minus that of the encoded ones.
        middle = (own + encoded) / 2
        change = np.einsum("ij,ij->i", move, middle @ gram - cross)
        accuracy = float(np.finfo(cross.dtype).eps) ** 0.75
        worthwhile = change < -accuracy * np.einsum("ij,ij->i", encoded, abs(cross))
        encoded[worthwhile] = own[worthwhile]
        return np.ascontiguousarray(encoded.T)

    def _start(
        self,
        problem: Problem,
        random_state: RandomState,
        custom: Factors | None = None,
        *,
        first: bool = True,
    ) -> Factors:
        """Return feasible factors to start from: custom ones if there are any."""
        X, count, smaller = problem.X, self._count(problem.X), min(problem.X.shape)
        init = self.init or ("nndsvda" if first and count <= smaller else "random")
        if custom is not None:
            factors = custom
        elif init == "random":
            factors = random_factors(X, count, random_state)
        elif count <= smaller:
            factors = nndsvda(X, count, random_state)
        else:
            raise ValueError(
                f"init='nndsvda' gives at most min(n_samples, n_features) = {smaller} "
                f"components, but n_components={count}; init='random' gives any number"
            )
        problem.make_feasible(factors)
        return factors

    def _custom(self, X: Matrix, unit: float, W: Any, H: Any) -> Factors | None:
        """Return the factors that `fit` was given; None without init="custom"."""
        if self.init != "custom":
            if W is not None or H is not None:
                raise ValueError(f"W and H are for init='custom', but init={self.init!r}")
            return None
        if W is None or H is None:
            raise ValueError("init='custom' needs both W and H")
        if self.n_components is None and np.ndim(H) != 2:
            raise ValueError(f"H has shape {np.shape(H)}, but must have two dimensions")
        count = int(self.n_components or np.shape(H)[0])
        factors = []
        shapes = ((X.shape[0], count), (count, X.shape[1]))
        for name, given, shape in zip("WH", (W, H), shapes, strict=True):
            array = check_array(given, dtype=X.dtype, input_name=name)
            check_non_negative(array, f"SparseNMF (input {name})")
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, but must have {shape}")
            factors.append(array)
        codes, components = factors[0].T.copy(), factors[1].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            of_codes, of_components = self._units(1 / unit)
            codes, components = scaled(codes, of_codes), scaled(components, of_components)
            if self.codes_l1 is None:
                normalize_rows(components, codes)
            usable = np.isfinite(inner(codes, codes)) and np.isfinite(components).all()
        if not usable:
            raise ValueError(
                f"W up to {factors[0].max():.3g} times H up to {factors[1].max():.3g} is too large "
                f"for {X.dtype}; choose W and H such that W @ H is about as large as X"
            )
        return Factors(codes, components)

    # ---- checks ----

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice("solver", self.solver, tuple(SOLVERS))
        if self.init is not None:
            check_choice("init", self.init, INITS)
        if check_count("n_init", self.n_init, 1) > 1 and self.init not in (None, "random"):
            raise ValueError(
                f"n_init={self.n_init!r} starts would all be the same with init={self.init!r}: "
                "choose init='random', or init=None for singular vectors first, random ones after"
            )
        check_sparseness("codes_sparseness", self.codes_sparseness, 2, "component")
        if self.codes_l1 is not None:
            check_number("codes_l1", self.codes_l1, positive=True)
        for name in ("codes_sparseness", "codes_l1"):
            value = getattr(self, name)
            if value is not None and self.activations_sparseness is not None:
                raise ValueError(
                    f"{name}={value!r} and activations_sparseness={self.activations_sparseness!r} "
                    "ask for the rows and the columns of the same matrix, which in general cannot "
                    "have both: choose one"
                )
            if value is not None and self.solver == "nmfsc":
                raise ValueError(
                    f"{name}={value!r} needs solver='bcd'; Hoyer's algorithm (solver='nmfsc') "
                    "constrains components and activations only"
                )

    def _validated(self, X: Any, *, reset: bool) -> Matrix:
        X = super()._validated(X, reset=reset)
        if is_in_blocks(X):
            if X.least < 0:
                raise ValueError(
                    f"Negative values in data passed to {type(self).__name__} (input X)."
                )
            return X
        if sparse.issparse(X) and not X.has_canonical_format:
            # Entries stored twice mean their sum; squares and signs are those of the sum.
            X = X.copy()
            X.sum_duplicates()
        check_non_negative(X, f"{type(self).__name__} (input X)")
        return X

    def _count(self, X: Matrix) -> int:
        return int(self.n_components or X.shape[1])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags
