"""Hoyer's own algorithm (2004): projected gradient for constrained factors, products for free ones.

Kept as the reference that block coordinate descent is measured against. It is written with the
same small products, so that it differs in the algorithm alone.
"""

import numpy as np

from ..api import project
from ..options import NormRule
from .blocks import normalize_rows, objective
from .data import Floats, rows_times, rows_times_transposed
from .factors import Factors, Problem

GROWTH = 1.2
AVOID_ZERO = 1e-9
"""Added to the divisors of a multiplicative update, in units of the largest."""


class HoyerProjectedGradient:
    """The reference solver.

    Activations have norm 1 between iterations; components keep, in the projection, the norm that
    the gradient step gave them.
    """

    def __init__(self, problem: Problem, factors: Factors) -> None:
        self.problem, self.factors = problem, factors
        self.code_step = self.component_step = 1.0

    def iterate(self) -> float:
        """Improve both factors and return the objective."""
        problem, (codes, components) = self.problem, self.factors
        normalize_rows(codes, components)
        cross, gram = rows_times(codes, problem.X), codes @ codes.T
        components, self.component_step = self._updated(
            components, cross, gram, problem.components_sparseness, "keep", step=self.component_step
        )
        cross = rows_times_transposed(components, problem.X)
        gram = components @ components.T
        codes, self.code_step = self._updated(
            codes, cross, gram, problem.activations_sparseness, 1.0, step=self.code_step
        )
        self.factors = Factors(codes, components)
        return objective(problem.half_square, codes, cross, gram)

    def _updated(
        self,
        rows: Floats,
        cross: Floats,
        gram: Floats,
        sparseness: float | None,
        norm: float | NormRule,
        *,
        step: float,
    ) -> tuple[Floats, float]:
        """Return the new rows, and the step length to begin with next time."""
        if sparseness is None:
            # Lee and Seung's update, which cannot raise the objective.
            divisor = gram @ rows
            divisor += rows.dtype.type(AVOID_ZERO) * divisor.max() + np.finfo(rows.dtype).tiny
            return rows * (cross / divisor), step
        slope = gram @ rows - cross
        half_square = self.problem.half_square
        before = objective(half_square, rows, cross, gram)
        least = float(np.finfo(rows.dtype).eps * abs(rows).max())
        steepest, length = float(abs(slope).max()), step
        # Invariant: all longer steps raised the objective; ends at those that move no entry.
        while length * steepest > least:
            trial = project(
                rows - rows.dtype.type(length) * slope, sparseness, l2=norm, nonnegative=True
            )
            if objective(half_square, trial, cross, gram) <= before:
                return trial, length * GROWTH
            length /= 2
        # The rows are the best for the other factor as it is; it will change.
        return rows, step
