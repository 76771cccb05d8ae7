"""The problem that `SparseNMF` solves, and the pair of factors its solvers improve."""

from typing import NamedTuple

import numpy as np

from .blocks import RowSet, to_unit_rows
from .codes import code_directions
from .data import Floats, Matrix, squared_norm


class Factors(NamedTuple):
    """Both factors by rows, one row per component: W.T (components x samples) and H."""

    codes: Floats
    components: Floats


class Problem(NamedTuple):
    """The data and what is asked of the factors."""

    X: Matrix
    half_square: float
    """Of the norm of X: the objective of zero factors."""
    components_sparseness: float | None
    activations_sparseness: float | None
    codes_sparseness: float | None

    @classmethod
    def of(
        cls,
        X: Matrix,
        components_sparseness: float | None,
        activations_sparseness: float | None,
        codes_sparseness: float | None,
    ) -> "Problem":
        """Return the problem for these data."""
        half = squared_norm(X) / 2
        return cls(X, half, components_sparseness, activations_sparseness, codes_sparseness)

    @property
    def component_set(self) -> RowSet:
        """Where components come from. Sparse codes depend on their scale, so that it is fixed."""
        unit = self.codes_sparseness is not None
        return RowSet(self.components_sparseness, nonnegative=True, unit=unit)

    @property
    def activation_set(self) -> RowSet:
        """Where columns of W come from, unless it is the rows that are constrained."""
        return RowSet(self.activations_sparseness, nonnegative=True, unit=False)

    def make_feasible(self, factors: Factors) -> None:
        """Give factors their sparseness and the components norm 1, in place."""
        codes, components = factors
        if self.components_sparseness is not None:
            _project_rows(components, self.component_set)
        if self.activations_sparseness is not None:
            _project_rows(codes, self.activation_set)
        to_unit_rows(components, codes)
        if self.codes_sparseness is not None:
            points = np.ascontiguousarray(codes.T)
            directions = code_directions(points, self.codes_sparseness, nonnegative=True)
            codes[:] = directions.T * np.sqrt(np.einsum("ij,ij->i", points, points))


def _project_rows(rows: Floats, allowed: RowSet) -> None:
    for row in rows:
        allowed.nearest(row.copy(), row)
