"""Block coordinate descent: one row of a factor at a time, each to its exact optimum.

With the other factor fixed, the objective ``||X - codes.T @ rows||^2 / 2`` needs the data only in
``cross = codes @ X`` and ``gram = codes @ codes.T``. As a function of row j it is, up to constants,
``gram[j, j] / 2 * ||row - target||^2`` with

    target = (cross[j] - sum over k != j of gram[j, k] * rows[k]) / gram[j, j],

so that its minimum over any set of rows is the point of the set nearest to `target`: the projection
if a sparseness is asked for (Potluru et al. 2013), the positive part if not (HALS).
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..api import project
from .data import Floats, inner, row_norms

MOST_SWEEPS = 3
"""Over the rows of a factor, for one product with the data."""


class RowSet(NamedTuple):
    """The set that every row of a factor comes from."""

    sparseness: float | None
    """Of each row; None if it is free."""
    nonnegative: bool
    normalized: bool
    """Whether rows have norm 1; if not, any norm."""

    def nearest(self, target: Floats, out: Floats) -> None:
        """Write the point of the set that is nearest to `target` to `out`."""
        if self.normalized:
            self._nearest_normalized(target, out)
        elif self.sparseness is None:
            self._nearest_signed(target, out)
        else:
            project(target, self.sparseness, l2="nearest", nonnegative=self.nonnegative, out=out)
            if not out @ target > 0:
                # Zero would be nearest, but has no sparseness: a row at the scale of rounding
                # stands for it.
                self._nearest_normalized(target, out)
                out *= negligible(float(abs(target).max()), target.dtype)

    def _nearest_normalized(self, target: Floats, out: Floats) -> None:
        if self.sparseness is not None:
            project(target, self.sparseness, nonnegative=self.nonnegative, out=out)
            return
        self._nearest_signed(target, out)
        norm = math.sqrt(float(out @ out))
        if norm > 0:
            out /= norm
        else:
            out[np.argmax(target)] = 1

    def _nearest_signed(self, target: Floats, out: Floats) -> None:
        np.maximum(target, 0, out=out) if self.nonnegative else np.copyto(out, target)


def negligible(size: float, dtype: np.dtype[Any]) -> float:
    """Return a norm that is negligible beside `size`, but whose square does not vanish."""
    limits = np.finfo(dtype)
    smallest = math.sqrt(float(limits.tiny) / float(limits.eps))
    return max(float(limits.eps) * size, smallest)


def project_rows(rows: Floats, allowed: RowSet) -> None:
    """Replace every row by the nearest point of the set, in place."""
    for row in rows:
        allowed.nearest(row.copy(), row)


def sweep(rows: Floats, cross: Floats, gram: Floats, allowed: RowSet, sweeps: int = 1) -> None:
    """Update the rows in place, one after the other, in this many sweeps.

    Rows whose diagonal entry of `gram` vanishes have no influence on the objective and stay.
    """
    weights = np.diag(gram)
    alive = np.flatnonzero(has_weight(gram))
    inverse = 1 / weights[alive, None]
    goals, others = cross[alive] * inverse, gram[alive] * inverse
    others[np.arange(len(alive)), alive] = 0
    target, nearest = np.empty_like(rows[0]), allowed.nearest
    # Invariant: no update raises the objective, each is the minimum over its row.
    for _ in range(sweeps):
        for j, goal, other in zip(alive, goals, others, strict=True):
            np.dot(other, rows, out=target)
            np.subtract(goal, target, out=target)
            nearest(target, rows[j])


def has_weight(gram: Floats) -> npt.NDArray[np.bool_]:
    """Return which rows influence the objective."""
    return np.asarray(np.diag(gram) > np.finfo(gram.dtype).tiny)


def worthwhile_sweeps(stored: int, length: int, count: int) -> int:
    """Return how many sweeps over `count` rows of `length` pay for each product with the data.

    More of them use the product better, as long as they cost little beside it. The product takes
    ``stored * count`` operations, a sweep ``length * count**2`` slower ones.
    """
    return min(1 + stored // (16 * length * count), MOST_SWEEPS)


def objective(
    half_square: float, rows: Floats, cross: Floats, gram: Floats, rows_gram: Floats | None = None
) -> float:
    """Return ||X - codes.T @ rows||^2 / 2, from half the squared norm of X and the products.

    `rows_gram` is rows @ rows.T, if that is known already.
    """
    if rows_gram is None:
        rows_gram = rows @ rows.T
    return max(half_square - inner(cross, rows) + inner(gram, rows_gram) / 2, 0.0)


def normalize_rows(rows: Floats, codes: Floats) -> Floats:
    """Give the rows norm 1 and the codes their norms, in place; return the norms.

    Zero rows stay zero; their norm counts as 1.
    """
    squares = np.einsum("ij,ij->i", rows, rows)
    limits = np.finfo(rows.dtype)
    ordinary = squares.min() > limits.tiny / limits.eps and squares.max() < np.inf
    norms = np.sqrt(squares) if ordinary else row_norms(rows)
    norms[norms == 0] = 1
    rows /= norms[:, None]
    codes *= norms[:, None]
    return np.asarray(norms)
