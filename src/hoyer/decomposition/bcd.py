"""Block coordinate descent for `SparseNMF`, and the codes of samples for given components."""

import numpy as np

from .blocks import normalize_rows, objective, sweep, worthwhile_sweeps
from .codes import CodeSet, nonnegative_codes, sparse_codes
from .data import Floats, Matrix, rows_times, rows_times_transposed, size
from .factors import Factors, Problem

EAGER_ITERATIONS, EAGERNESS = 6, 2
"""In the first iterations this many times more sweeps pay."""
CODE_STEPS = 4
"""Projected gradient steps for sparse codes within one iteration."""


class BlockCoordinateDescent:
    """The fast solver: every row of both factors is set to its optimum, in turn."""

    def __init__(self, problem: Problem, factors: Factors) -> None:
        self.problem, self.factors = problem, factors
        self.iterations = 0
        self.gram = factors.components @ factors.components.T

    def iterate(self) -> float:
        """Improve both factors in place and return the objective, which rises by rounding only."""
        problem, (codes, components) = self.problem, self.factors
        samples, features = problem.X.shape
        stored, count = size(problem.X), len(components)
        eager = EAGERNESS if self.iterations < EAGER_ITERATIONS else 1
        self.iterations += 1

        cross, gram = rows_times_transposed(components, problem.X), self.gram
        if problem.code_set.is_free:
            sweeps = eager * worthwhile_sweeps(stored, samples, count)
            sweep(codes, cross, gram, problem.activation_set, sweeps)
        else:
            codes[:] = sparse_codes(
                np.ascontiguousarray(cross.T),
                gram,
                problem.code_set,
                steps=CODE_STEPS,
                tol=0.0,
                start=np.ascontiguousarray(codes.T),
            ).T

        cross, gram = rows_times(codes, problem.X), codes @ codes.T
        sweeps = eager * worthwhile_sweeps(stored, features, count)
        sweep(components, cross, gram, problem.component_set, sweeps)
        self.gram = components @ components.T
        value = objective(problem.half_square, components, cross, gram, self.gram)
        if problem.code_set.l1 is not None:
            return value
        norms = normalize_rows(components, codes)
        squares = norms * norms
        if squares.min() > np.finfo(squares.dtype).tiny:
            self.gram /= norms[:, None] * norms
        else:
            self.gram = components @ components.T
        return value


def encode(X: Matrix, components: Floats, allowed: CodeSet, *, max_iter: int) -> Floats:
    """Return the non-negative codes of samples, one per row, each by itself.

    Codes of a set are looked for from the best codes without the constraint and, where there may be
    other optima, from the correlations as well; the better of both is returned.
    """
    cross = np.ascontiguousarray(rows_times_transposed(components, X).T)
    gram = components @ components.T
    tol = float(np.sqrt(np.finfo(cross.dtype).eps))
    free = nonnegative_codes(cross, gram, tol=tol, max_iter=max_iter)
    if allowed.is_free:
        return free
    second = sparse_codes(cross, gram, allowed, steps=max_iter, tol=tol, start=free)
    if allowed.is_convex:
        return second
    first = sparse_codes(cross, gram, allowed, steps=max_iter, tol=tol)
    # At its best scale a code c explains <c, cross> of its sample's squared norm, at a given one
    # 2 <c, cross> - <c, gram c>.
    by = cross if allowed.l1 is None else 2 * cross - (first + second) @ gram
    gain = np.einsum("ij,ij->i", second - first, by)
    return np.where(gain[:, None] > 0, second, first)
