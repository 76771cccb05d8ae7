"""The problem that `SparseNMF` solves, and the pair of factors its solvers improve."""

from typing import NamedTuple

import numpy as np

from .blocks import RowSet, normalize_rows, project_rows
from .codes import code_directions
from .data import Floats, Matrix


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
    codes_sparseness: float | None

    @property
    def component_set(self) -> RowSet:
        """The set of components. Sparse codes depend on their scale, which is therefore fixed."""
        normalized = self.codes_sparseness is not None
        return RowSet(self.components_sparseness, nonnegative=True, normalized=normalized)

    @property
    def activation_set(self) -> RowSet:
        """The set of columns of W, unless its rows are constrained."""
        return RowSet(self.activations_sparseness, nonnegative=True, normalized=False)

    def make_feasible(self, factors: Factors) -> None:
        """Give factors their sparseness and the components norm 1, in place."""
        codes, components = factors
        if self.components_sparseness is not None:
            project_rows(components, self.component_set)
        if self.activations_sparseness is not None:
            project_rows(codes, self.activation_set)
        normalize_rows(components, codes)
        if self.codes_sparseness is not None:
            points = np.ascontiguousarray(codes.T)
            directions = code_directions(points, self.codes_sparseness, nonnegative=True)
            codes[:] = directions.T * np.sqrt(np.einsum("ij,ij->i", points, points))
