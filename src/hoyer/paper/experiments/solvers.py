"""Figure 2 of the paper: evaluations over the target sparseness, for vectors of length 1024."""

from pathlib import Path

from hoyer.paper.experiments.counts import Counts, count_evaluations, last_solver
from hoyer.paper.experiments.experiment import Experiment, Outcome
from hoyer.paper.experiments.runner import run_alone
from hoyer.paper.experiments.settings import Cell, Settings

__all__ = ["SOLVERS", "solvers"]

N = 1024
SPARSENESS = [round(0.2 + 0.025 * step, 3) for step in range(32)]


def _cells(settings: Settings) -> list[Cell]:
    vectors = settings.count(N, quick=((10, 200),), full=((10, 1000),))
    return [Cell(N, sparseness, vectors) for sparseness in SPARSENESS]


def _measure(settings: Settings, cell: Cell) -> Outcome[Counts]:
    return count_evaluations("solvers", settings, cell)


SOLVERS = Experiment(
    name="solvers",
    title="Figure 2: evaluations over the target sparseness",
    record=Counts,
    cells=_cells,
    measure=_measure,
    closes=last_solver,
    bytes_per_entry=32,
    options=frozenset({"vectors"}),
)


def solvers(
    settings: Settings | None = None, *, out: str | Path | None = None, jobs: int = 1
) -> list[Counts]:
    """Count the evaluations of all solvers for n = 1024 and sparseness 0.2, 0.225, ..., 0.975.

    Parameters
    ----------
    settings : Settings, optional
        How many vectors of which kind; the quick protocol by default.
    out : path, optional
        A directory to keep results in; with it, a run that was stopped goes on where it was.
    jobs : int
        Worker processes; 1 works in this process.

    Returns
    -------
    list of Counts
        One record for each target and solver.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, solvers
    >>> records = solvers(Settings(vectors=2))
    >>> len(records), records[0].solver, records[0].sparseness
    (160, 'bisection', 0.2)
    """
    return run_alone(SOLVERS, settings, out, jobs)
