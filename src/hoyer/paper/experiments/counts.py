"""Evaluations of the auxiliary function: what Figures 2 and 3 of the paper count."""

from dataclasses import dataclass

import numpy as np

import hoyer
from hoyer.options import Solver
from hoyer.paper.experiments.experiment import Outcome, Stopwatch
from hoyer.paper.experiments.settings import Cell, Settings, draw, generator

__all__ = [
    "ALL_SOLVERS",
    "NAMES",
    "PAPER_SOLVERS",
    "Counts",
    "count_evaluations",
    "last_solver",
]

PAPER_SOLVERS: tuple[Solver, ...] = ("bisection", "newton", "newton_sqr", "halley")
ALL_SOLVERS: tuple[Solver, ...] = (*PAPER_SOLVERS, "auto")

NAMES = {
    "bisection": "Bisection",
    "newton": "Newton",
    "newton_sqr": "NewtonSqr",
    "halley": "Halley",
    "auto": "auto",
}
"""What figures and report call the solvers: the paper's own names for its own."""

# Of how many vectors of a cell the time is taken.
TIMED = 15


@dataclass(frozen=True, slots=True)
class Counts:
    """How many evaluations a solver needed for the vectors of a cell."""

    n: int
    sparseness: float
    vectors: int
    solver: str
    """One of the paper's, or "auto", for which reads of the vector are counted."""
    mean: float
    sd: float
    """Standard deviation over the vectors; 0 for a single one."""
    least: int
    most: int


def count_evaluations(experiment: str, settings: Settings, cell: Cell) -> Outcome[Counts]:
    """Count the evaluations of every solver on the very same vectors."""
    found: dict[Solver, list[int]] = {solver: [] for solver in ALL_SOLVERS}
    watch = Stopwatch()
    work = np.empty(cell.n, settings.dtype)
    for index in range(cell.vectors):
        x = draw(settings, cell.n, generator(settings, experiment, cell, index))
        for solver in ALL_SOLVERS:
            result = hoyer.solve(x, cell.sparseness, nonnegative=True, solver=solver)
            found[solver].append(int(result.evaluations))
            del result  # one projected vector at a time
            if index < TIMED:
                # In place, as the paper does it: no time goes into fresh memory.
                work[...] = x
                with watch(solver):
                    hoyer.project_(work, cell.sparseness, nonnegative=True, solver=solver)
    records = [_counts(cell, solver, numbers) for solver, numbers in found.items()]
    return Outcome(records, watch.measurements(experiment, cell))


def _counts(cell: Cell, solver: str, numbers: list[int]) -> Counts:
    sd = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return Counts(*cell, solver, float(np.mean(numbers)), sd, min(numbers), max(numbers))


def last_solver(record: Counts) -> bool:
    """Whether a record is the last one of its cell."""
    return record.solver == ALL_SOLVERS[-1]
