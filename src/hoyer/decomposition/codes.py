"""Codes: how every sample, on its own, is best made from given components.

All functions minimise ``||x - code @ components||^2 / 2`` for each sample, from the products
``cross = X @ components.T`` (one row per sample) and ``gram = components @ components.T``. A code
depends on its own sample, not on the others it came with: each stops by itself. But BLAS rounds
products of other sizes differently, which can change sparse codes by about 1e-5.
"""

from typing import NamedTuple

import numpy as np

from ..api import project
from .blocks import has_weight
from .data import Floats

FIRST_STEP, LONGEST_STEP = 4.0, 1000.0
"""Step lengths, in units of the one that cannot fail."""
WORTH_TAKING_OUT = 0.2
"""The part of the samples that must be done before the rest continues in smaller arrays."""
SHRINKAGE = 0.4
"""How much shorter a step is after one that failed."""


class CodeSet(NamedTuple):
    """The set that the code of every sample comes from."""

    sparseness: float | None
    nonnegative: bool
    l1: float | None = None
    """The L1 norm, that is the sum where no entry is negative; None if codes may have any norm."""

    @property
    def is_free(self) -> bool:
        """Whether nothing is asked of codes but, maybe, signs."""
        return self.sparseness is None and self.l1 is None

    @property
    def is_convex(self) -> bool:
        """Whether there are no other optima than the best."""
        return self.nonnegative and self.sparseness is None

    def nearest(self, points: Floats) -> Floats:
        """Return the codes nearest to the points, rows; of norm 1 if they may have any.

        A single number has no sparseness, only a sign.
        """
        if points.shape[1] == 1:
            negative = (points < 0) & (not self.nonnegative)
            size = 1 if self.l1 is None else self.l1
            return np.where(negative, -size, size).astype(points.dtype)
        return project(points, self.sparseness, l1=self.l1, nonnegative=self.nonnegative)

    def fitted(self, codes: Floats, cross: Floats, gram: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the codes at their best scale if it is free, times `gram`, and what they explain.

        That is by how much they lower the squared error of code zero.
        """
        images = codes @ gram
        fit, energy = _row_dot(codes, cross), _row_dot(codes, images)
        if self.l1 is not None:
            return codes, images, 2 * fit - energy
        fit = np.maximum(fit, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(energy > 0, fit / energy, 0).astype(cross.dtype)[:, None]
        return codes * scale, images * scale, fit * scale[:, 0]


def nonnegative_codes(cross: Floats, gram: Floats, *, tol: float, max_iter: int) -> Floats:
    """Return codes without negative entries, by coordinate descent.

    A sample is done when a sweep changes none of its entries by more than `tol` times the largest.
    """
    weights = np.diag(gram)
    alive = np.flatnonzero(has_weight(gram))
    result = np.zeros_like(cross)
    if not alive.size:
        return result
    others = gram[np.ix_(alive, alive)] / weights[alive, None]
    np.fill_diagonal(others, 0)
    goals = np.ascontiguousarray(cross.T[alive]) / weights[alive, None]
    found = np.zeros_like(goals)
    codes, target = found.copy(), np.empty_like(goals[0])
    active = np.arange(goals.shape[1])
    done = np.zeros(len(active), bool)
    # Invariant: `found` has the codes that are done; the others get better with every sweep.
    for _ in range(max_iter):
        before = codes.copy()
        for row, goal, other in zip(codes, goals, others, strict=True):
            np.dot(other, codes, out=target)
            np.subtract(goal, target, out=target)
            np.maximum(target, 0, out=row)
        still = abs(codes - before).max(axis=0) <= tol * codes.max(axis=0)
        new = still & ~done
        found[:, active[new]] = codes[:, new]
        done |= still
        if done.all():
            break
        # Samples that are done stay among the others, ignored, until taking them out pays.
        if done.mean() > WORTH_TAKING_OUT:
            active, goals, codes = active[~done], goals[:, ~done].copy(), codes[:, ~done].copy()
            done, target = np.zeros(len(active), bool), np.empty_like(goals[0])
    found[:, active[~done]] = codes[:, ~done]
    result[:, alive] = found.T
    return result


def sparse_codes(
    cross: Floats,
    gram: Floats,
    allowed: CodeSet,
    *,
    steps: int,
    tol: float,
    start: Floats | None = None,
) -> Floats:
    """Return codes of this set, by projected gradient.

    They start from the codes `start` (projected first), by default from the rows of `cross`. A
    sample is done after so many steps, or when one lowers its objective by no more than the part
    `tol` of what the code explains. Samples without correlation to any component get the code zero,
    unless codes have a given norm.

    With the scale of a direction p chosen best, a code explains ``<p, cross>^2 / <p, gram p>``, and
    at a given one ``2 <p, cross> - <p, gram p>``; this is what grows. A step of length 1/L, L the
    largest eigenvalue of `gram`, minimises a bound of the objective over the set exactly, so it
    cannot fail; longer ones (Barzilai and Borwein) are tried first, taken only where they do not
    make things worse, and shortened where they do.
    """
    safe = 1 / max(float(np.linalg.eigvalsh(gram)[-1]), float(np.finfo(gram.dtype).tiny))
    done = np.zeros_like(cross)
    correlated = abs(cross).max(axis=1, initial=0) > 0
    active = np.flatnonzero(correlated | (allowed.l1 is not None))
    cross = cross[active]
    directions = (cross if start is None else start[active]).copy()
    lost = ~directions.any(axis=1)
    directions[lost] = cross[lost]
    codes, images, explained = allowed.fitted(allowed.nearest(directions), cross, gram)
    length = np.full(len(codes), FIRST_STEP * safe, dtype=cross.dtype)
    # Invariant: codes are feasible, images = codes @ gram, and no code has become worse.
    for _ in range(steps):
        slope = images - cross
        trial, trial_images, trial_explained = allowed.fitted(
            allowed.nearest(codes - length[:, None] * slope), cross, gram
        )
        gained = trial_explained - explained
        better = gained >= 0
        was_safe = length <= safe
        proposed = _next_length(trial - codes, trial_images - images, safe)
        shorter = np.maximum(SHRINKAGE * length, safe)
        length = np.where(better, proposed, shorter).astype(cross.dtype)
        for kept, new in ((codes, trial), (images, trial_images), (explained, trial_explained)):
            kept[better] = new[better]
        moving = np.where(better, gained > tol * abs(explained), ~was_safe)
        done[active] = codes
        if not moving.any():
            break
        if not moving.all():
            active, cross, codes, images = (a[moving] for a in (active, cross, codes, images))
            explained, length = explained[moving], length[moving]
    done[active] = codes
    return done


def _next_length(move: Floats, bend: Floats, safe: float) -> Floats:
    """Return the step lengths of Barzilai and Borwein for the next step of each code."""
    curvature = _row_dot(move, bend)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        proposed = np.where(curvature > 0, _row_dot(move, move) / curvature, safe)
    return np.asarray(np.clip(np.nan_to_num(proposed, nan=safe), safe, LONGEST_STEP * safe))


def _row_dot(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", a, b))
