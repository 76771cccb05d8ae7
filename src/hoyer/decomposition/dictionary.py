"""`SparseDictionaryLearning`: online dictionary learning with codes of exact sparseness."""

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.random import RandomState
from sklearn.utils import check_array, check_random_state

from .blocks import RowSet, project_rows, sweep
from .codes import CodeSet, sparse_codes
from .data import Floats, Matrix, is_in_blocks, squared_norm, to_moderate_scale
from .fitting import (
    Decomposition,
    Progress,
    Statistics,
    check_count,
    check_number,
    check_sparseness,
    whole_or_not_at_all,
)

UNUSED = 1e-6
"""An atom whose share in the codes is less than this part of the average is replaced."""
CODES_AT_ONCE = 8192
"""Samples that `transform` encodes at a time, to stay in the cache."""


def _moved(moves: Floats, usage: Floats) -> float:
    """Return the root mean square of the distances that atoms in use have moved.

    Atoms that no code uses are replaced again and again, which says nothing about the others.
    """
    used = moves[usage > 0]
    return float(np.linalg.norm(used)) / math.sqrt(max(len(used), 1))


class SparseDictionaryLearning(Decomposition):
    """Dictionary learning, online, in which every code has exactly the sparseness asked for.

    Minimises ``||X - C D||^2 / 2`` over codes C (samples x atoms), every row of which has the given
    sparseness and any norm, and dictionaries D (atoms x features), `components_`, whose rows have
    norm 1 and, if asked for, a sparseness as well. Signs are free everywhere.

    Parameters
    ----------
    n_components : int, optional
        How many atoms; the number of features if not given.
    codes_sparseness : float, default 0.8
        Sparseness in [0, 1] of the code of every sample. If there is only one atom it has no
        effect, and a warning says so.
    components_sparseness : float, optional
        Sparseness in [0, 1] of every atom.
    refinements : int, default 5
        Projected gradient steps, at most, after the projection of a sample's correlations with the
        atoms, while learning.
    transform_refinements : int, default 50
        The same in `transform`: more steps, better codes; 0 is the fastest encoder.
    max_iter : int, default 100
        Passes over the data at most.
    batch_size : int, default 256
        Samples of a mini-batch.
    forgetting : float, default 5
        How fast codes of the past lose their weight: it is ``(1 - b/t)**forgetting`` when b of the
        t samples seen so far are new.
    tol : float, default 1e-2
        The fit ends when the atoms in use differ from those of the pass before by no more than
        this, as root mean square of their distances; if `max_iter` passes are not enough for that
        there is a ConvergenceWarning. Mini-batches keep atoms moving, about half as far after twice
        as many passes; the first few bring most. With 0 it ends early only if a pass moves
        nothing at all, and there is no warning.
    dict_init : array_like of shape (n_components, n_features), optional
        The first atoms; random samples of the data if not given.
    random_state : int, RandomState instance or None, default None
        Seed of the first atoms and of the order of the samples.
    verbose : int, default 0
        1 prints every tenth pass, 2 each.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The atoms.
    objective_ : ndarray of shape (iterations,)
        Half the mean squared error per sample of each pass of `fit`, measured while it learned.
    n_iter_ : int
        Passes made by `fit`.
    n_steps_ : int
        Mini-batches seen.
    n_components_ : int
        Number of atoms.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, if X had any.

    See Also
    --------
    SparseNMF : For non-negative data.
    hoyer.project : The projection underneath.

    Notes
    -----
    *From the literature*: the online algorithm with running sums of codes times codes and codes
    times data, block coordinate descent on the atoms, and the forgetting of early codes (Mairal et
    al. 2010); the step lengths (Barzilai and Borwein 1988); the projection (Thom and Palm). An
    encoder that projects correlations onto a sparseness is at the heart of Thom, Rapp and Palm
    (2015).

    *Ours*: codes under the exact constraint with a free norm that is fitted in each step, refined
    by steps that never make a code worse; atoms of exact sparseness by the exact solution of each
    block; atoms that no code uses are replaced by samples.

    A sample that is zero, or orthogonal to all atoms, has the code zero, which has no sparseness.
    Data are taken as they are: centre them before, if they should be centred.

    References
    ----------
    - Mairal et al., "Online learning for matrix factorization and sparse coding", JMLR 11, 2010.
    - Barzilai and Borwein, "Two-point step size gradient methods", IMA J. Numer. Anal. 8, 1988.
    - Thom, Rapp and Palm, "Efficient dictionary learning with sparseness-enforcing projections",
      IJCV 114, 2015.

    Examples
    --------
    >>> import hoyer
    >>> from hoyer.decomposition import SparseDictionaryLearning
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data
    >>> X -= X.mean(axis=0)
    >>> model = SparseDictionaryLearning(100, codes_sparseness=0.85, random_state=0).fit(X)
    >>> codes = model.transform(X)
    >>> hoyer.sparseness(codes).round(6)[:4]
    array([0.85, 0.85, 0.85, 0.85])
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        codes_sparseness: float = 0.8,
        components_sparseness: float | None = None,
        refinements: int = 5,
        transform_refinements: int = 50,
        max_iter: int = 100,
        batch_size: int = 256,
        forgetting: float = 5.0,
        tol: float = 1e-2,
        dict_init: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.codes_sparseness = codes_sparseness
        self.components_sparseness = components_sparseness
        self.refinements = refinements
        self.transform_refinements = transform_refinements
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.forgetting = forgetting
        self.tol = tol
        self.dict_init = dict_init
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the atoms in passes over the data, mini-batch by mini-batch.

        Parameters
        ----------
        X : array_like or Dask array of shape (n_samples, n_features)
            Data of any sign. Of a Dask array one block of rows is in memory at a time: mini-batches
            are drawn from blocks in random order, each of which is read once in every pass.
        y : ignored
            For pipelines.

        Returns
        -------
        SparseDictionaryLearning
            The estimator itself. If the fit fails or is interrupted it is unfitted.
        """
        with whole_or_not_at_all(self, keep=False):
            X, unit = to_moderate_scale(self._validated(X, reset=True))
            random_state = check_random_state(self.random_state)
            components = self._first_components(X, random_state)
            sums = Statistics.none(components, unit)
            self._warn_of_single_codes(len(components))
            progress = Progress(type(self).__name__, self.verbose, "pass")
            values: list[float] = []
            steps = 0
            # Invariant: the atoms are feasible; a pass ends the loop when it hardly moves them.
            for number in range(1, self.max_iter + 1):
                before, error = components.copy(), 0.0
                for batch in self._batches(X, random_state):
                    sums, lost = self._step(batch, components, sums, random_state)
                    error += lost
                    steps += 1
                values.append(error / len(X) * unit * unit)
                converged = _moved(components - before, np.diag(sums.gram)) <= self.tol
                last = converged or number == self.max_iter
                progress.report(number, "error", values[-1], last=last)
                if converged:
                    break
            else:
                self._warn_of_convergence("passes", "the atoms moved by no more than")
            self._set_learned(components, sums, steps)
            self.objective_, self.n_iter_ = np.array(values), len(values)
        return self

    # ---- the fit ----

    def _batches(self, X: Matrix, random_state: RandomState) -> Iterator[Floats]:
        """Return all samples in mini-batches, in random order."""
        if is_in_blocks(X):
            yield from X.shuffled(self.batch_size, random_state)
            return
        order = random_state.permutation(len(X))
        for start in range(0, len(X), self.batch_size):
            yield X[order[start : start + self.batch_size]]

    def _step(
        self, X: Floats, atoms: Floats, sums: Statistics, random_state: RandomState
    ) -> tuple[Statistics, float]:
        """Learn from a batch, atoms in place; return the new sums and half the squared error."""
        cross = X @ atoms.T
        codes = self._codes(cross, atoms @ atoms.T, self.refinements)
        gram = codes.T @ codes
        # At its best scale a code c explains <c, cross>: that much of the square is gone.
        error = (squared_norm(X) - float(np.einsum("ij,ij->", codes, cross))) / 2
        sums = sums.updated(gram, codes.T @ X, len(X), self.forgetting)
        sweep(atoms, sums.cross, sums.gram, self._atom_set())
        self._replace_unused(X, atoms, sums, random_state)
        return sums, error

    def _learn(
        self, X: Floats, components: Floats, sums: Statistics, random_state: RandomState
    ) -> Statistics:
        return self._step(X, components, sums, random_state)[0]

    def _encode(self, X: Floats, components: Floats) -> Floats:
        gram = components @ components.T
        codes = np.empty((len(X), len(components)), X.dtype)
        for start in range(0, len(X), CODES_AT_ONCE):
            part = slice(start, start + CODES_AT_ONCE)
            codes[part] = self._codes(X[part] @ components.T, gram, self.transform_refinements)
        return codes

    def _codes(self, cross: Floats, gram: Floats, steps: int) -> Floats:
        tol = float(np.finfo(cross.dtype).eps) ** 0.5
        allowed = CodeSet(self.codes_sparseness, nonnegative=False)
        return sparse_codes(cross, gram, allowed, steps=steps, tol=tol)

    def _replace_unused(
        self, X: Floats, atoms: Floats, sums: Statistics, random_state: RandomState
    ) -> None:
        """Replace atoms that no code uses by samples, and forget the past of these atoms."""
        usage = np.diag(sums.gram)
        unused = np.flatnonzero(usage <= UNUSED * usage.mean())
        if unused.size:
            atoms[unused] = self._samples_as_atoms(X, unused.size, random_state)
            sums.gram[unused] = 0
            sums.gram[:, unused] = 0
            sums.cross[unused] = 0

    def _first_components(self, X: Floats, random_state: RandomState) -> Floats:
        features = X.shape[1]
        count = features if self.n_components is None else int(self.n_components)
        if self.dict_init is None:
            return self._samples_as_atoms(X, count, random_state)
        atoms: Floats = check_array(
            self.dict_init, dtype=X.dtype, input_name="dict_init", copy=True
        )
        if self.n_components is None:
            count = len(atoms)
        if atoms.shape != (count, features):
            raise ValueError(
                f"dict_init has shape {atoms.shape}, but must have {(count, features)}"
            )
        project_rows(atoms, self._atom_set())
        return atoms

    def _samples_as_atoms(self, X: Floats, count: int, random_state: RandomState) -> Floats:
        """Return so many samples as atoms; random vectors where there are too few samples."""
        atoms = random_state.standard_normal((count, X.shape[1])).astype(X.dtype)
        useful = np.flatnonzero(X.any(axis=1))
        chosen = random_state.permutation(useful)[:count]
        atoms[: len(chosen)] = X[chosen]
        project_rows(atoms, self._atom_set())
        return atoms

    def _atom_set(self) -> RowSet:
        return RowSet(self.components_sparseness, nonnegative=False, normalized=True)

    # ---- checks ----

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_count("refinements", self.refinements, 0)
        check_count("transform_refinements", self.transform_refinements, 0)
        check_count("batch_size", self.batch_size, 1)
        check_number("forgetting", self.forgetting)
        check_sparseness("codes_sparseness", self.codes_sparseness, 2, "component", needed=True)
