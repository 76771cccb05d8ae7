"""The problem that `SparseNMF` solves, and the factors its solvers improve: where they start."""

from typing import NamedTuple

import numpy as np
from numpy.random import RandomState
from sklearn.utils.extmath import randomized_svd

from .blocks import RowSet, normalize_rows, project_rows
from .codes import CodeSet
from .data import Floats, Matrix, is_in_blocks, total

INITS = ("nndsvda", "random", "custom")


class Factors(NamedTuple):
    """Both factors by rows, one row per component: W.T (components x samples) and H."""

    codes: Floats
    components: Floats


class Problem(NamedTuple):
    """The data and what is asked of the factors."""

    X: Matrix
    half_square: float
    """Half the squared norm of X: the objective of zero factors."""
    components_sparseness: float | None
    activations_sparseness: float | None
    code_set: CodeSet

    @property
    def component_set(self) -> RowSet:
        """The set of components. Sparse codes depend on their scale, which is therefore fixed.

        If the norm of codes is given, components have the scale of the data.
        """
        normalized = self.code_set.l1 is None and not self.code_set.is_free
        return RowSet(self.components_sparseness, nonnegative=True, normalized=normalized)

    @property
    def activation_set(self) -> RowSet:
        """The set of columns of W, unless its rows are constrained."""
        return RowSet(self.activations_sparseness, nonnegative=True, normalized=False)

    def make_feasible(self, factors: Factors) -> None:
        """Give factors their sparseness and the components norm 1, in place.

        If the norm of codes is given it goes to them, and the scale to the components.
        """
        codes, components = factors
        if self.components_sparseness is not None:
            project_rows(components, self.component_set)
        if self.activations_sparseness is not None:
            project_rows(codes, self.activation_set)
        if self.code_set.l1 is not None:
            mean = float(codes.sum(axis=0, dtype=np.float64).mean()) / self.code_set.l1
            if mean > 0:
                codes /= codes.dtype.type(mean)
                components *= components.dtype.type(mean)
            codes[:] = self.code_set.nearest(np.ascontiguousarray(codes.T)).T
            return
        normalize_rows(components, codes)
        if not self.code_set.is_free:
            points = np.ascontiguousarray(codes.T)
            directions = self.code_set.nearest(points)
            codes[:] = directions.T * np.sqrt(np.einsum("ij,ij->i", points, points))


def random_factors(X: Matrix, count: int, random_state: RandomState) -> Factors:
    """Return |normal| codes (r x n) and components whose product is about as large as X."""
    scale = _average_entry(X, count)
    sizes = ((count, X.shape[0]), (count, X.shape[1]))
    return Factors(
        *((scale * abs(random_state.standard_normal(size))).astype(X.dtype) for size in sizes)
    )


def nndsvda(X: Matrix, count: int, random_state: RandomState) -> Factors:
    """Return codes (r x n) and components from the singular vectors of X, zeros filled in.

    Every pair of singular vectors u, v is replaced by its positive parts or its negative parts,
    whichever pair is longer, at the same singular value, and zeros are filled in, since exact zeros
    can be stuck (the variant "a" of Boutsidis and Gallopoulos 2008; they fill in the mean of X, we
    the average entry of random factors, which suits data of every scale).
    """
    if is_in_blocks(X):
        left, values, right = X.singular_vectors(count, random_state)
    else:
        left, values, right = randomized_svd(X, count, random_state=random_state)
    codes, components = np.empty((count, X.shape[0])), np.empty((count, X.shape[1]))
    for j, (u, value, v) in enumerate(zip(left.T, values, right, strict=True)):
        pairs = [(np.maximum(sign * u, 0), np.maximum(sign * v, 0)) for sign in (1, -1)]
        lengths = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in pairs]
        best = int(np.argmax(lengths))
        for out, part in zip((codes, components), pairs[best], strict=True):
            norm = np.linalg.norm(part)
            out[j] = part * (np.sqrt(value * lengths[best]) / norm) if norm > 0 else 0
    average = _average_entry(X, count)
    for factor in (codes, components):
        factor[factor < 1e-6 * average] = average
    return Factors(codes.astype(X.dtype), components.astype(X.dtype))


def _average_entry(X: Matrix, count: int) -> float:
    """Return the constant entry of two factors whose product has the mean of X."""
    mean = total(X) / float(X.shape[0] * X.shape[1])
    return float(np.sqrt(mean / count))
