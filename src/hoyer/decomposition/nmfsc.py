"""Hoyer's own algorithm (2004): projected gradient for constrained factors, products for free ones.

Kept as the reference that block coordinate descent is measured against. It is written with the
small products of `blocks`, so that it differs from it in the algorithm alone.
"""

import math
from typing import NamedTuple

import numpy as np

from ..api import project
from .blocks import objective, to_unit_rows
from .data import Floats, Matrix, rows_times, rows_times_transposed

_SMALLEST_STEP = 1e-200
_GROWTH = 1.2
_AVOID_ZERO = 1e-9
"""Added to the divisor of a multiplicative update, as in Hoyer's own program."""


class State(NamedTuple):
    """The factors (codes are r x n) and the step lengths their gradients came to."""

    codes: Floats
    components: Floats
    codes_step: float = 1.0
    components_step: float = 1.0


def iterate(
    X: Matrix,
    half_square: float,
    state: State,
    components_sparseness: float | None,
    activations_sparseness: float | None,
) -> tuple[State, float]:
    """Return the factors after one more iteration, and their objective.

    Activations have norm 1 throughout; components keep, in the projection, the norm that the
    gradient step gave them.
    """
    codes, components, codes_step, components_step = state
    cross, gram = rows_times(codes, X), codes @ codes.T
    if components_sparseness is None:
        components = _multiplied(components, cross, gram)
    else:
        components, components_step = _gradient_step(
            components, cross, gram, components_sparseness, "keep", components_step, half_square
        )

    cross, gram = rows_times_transposed(components, X), components @ components.T
    if activations_sparseness is None:
        codes = _multiplied(codes, cross, gram)
    else:
        codes, codes_step = _gradient_step(
            codes, cross, gram, activations_sparseness, 1.0, codes_step, half_square
        )
    value = objective(half_square, codes, cross, gram)
    if activations_sparseness is None:
        to_unit_rows(codes, components)
    return State(codes, components, codes_step, components_step), value


def _multiplied(rows: Floats, cross: Floats, gram: Floats) -> Floats:
    """Return the multiplicative update of Lee and Seung, which cannot raise the objective."""
    updated: Floats = rows * (cross / (gram @ rows + _AVOID_ZERO))
    return updated


def _gradient_step(
    rows: Floats,
    cross: Floats,
    gram: Floats,
    sparseness: float,
    norm: float | str,
    step: float,
    half_square: float,
) -> tuple[Floats, float]:
    """Return the rows after one projected gradient step, and the length to begin with next time."""
    slope = gram @ rows - cross
    before = objective(half_square, rows, cross, gram)
    # Invariant: no step longer than this one did; it halves until one does or none can.
    while step > _SMALLEST_STEP:
        trial = project(rows - rows.dtype.type(step) * slope, sparseness, l2=norm, nonnegative=True)  # type: ignore[call-overload]
        if objective(half_square, trial, cross, gram) <= before:
            return trial, step * _GROWTH
        step /= 2
    return rows, math.nextafter(_SMALLEST_STEP, 1)
