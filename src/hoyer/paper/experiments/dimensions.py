"""Figure 3 of the paper: evaluations over the length of the vectors; their time and space."""

from pathlib import Path

from hoyer.options import Solver
from hoyer.paper.experiments.counts import Counts, count_evaluations, last_solver
from hoyer.paper.experiments.experiment import Experiment, Measurement, Outcome
from hoyer.paper.experiments.runner import run_alone
from hoyer.paper.experiments.settings import Cell, Settings, Steps
from hoyer.paper.experiments.space import extra_bytes

__all__ = ["DIMENSIONS", "SPACE_FROM", "SPACE_SOLVERS", "dimensions"]

SPARSENESS = 0.9
# A copy of a shorter vector would not stand out from the page that is the unit of measurement.
SPACE_FROM = 2**16
SPACE_SOLVERS: tuple[Solver, ...] = ("newton_sqr", "auto")


QUICK: Steps = ((15, 200), (18, 50), (22, 10))
FULL: Steps = ((22, 1000), (26, 100))


def _cells(settings: Settings) -> list[Cell]:
    return [
        Cell(n, SPARSENESS, settings.count(n, quick=QUICK, full=FULL))
        for n in settings.sizes(quick=22, full=26)
    ]


def _measure(settings: Settings, cell: Cell) -> Outcome[Counts]:
    outcome = count_evaluations("dimensions", settings, cell)
    return Outcome(outcome.records, [*outcome.measurements, *_space(settings, cell)])


def _space(settings: Settings, cell: Cell) -> list[Measurement]:
    if cell.n < SPACE_FROM:
        return []
    found = {name: extra_bytes(settings, cell.n, cell.sparseness, name) for name in SPACE_SOLVERS}
    return [
        Measurement("dimensions", cell.n, cell.sparseness, name, "byte", float(grown))
        for name, grown in found.items()
        if grown is not None
    ]


DIMENSIONS = Experiment(
    name="dimensions",
    title="Figure 3: evaluations over the length of the vectors",
    record=Counts,
    cells=_cells,
    measure=_measure,
    closes=last_solver,
    bytes_per_entry=32,
)


def dimensions(
    settings: Settings | None = None, *, out: str | Path | None = None, jobs: int = 1
) -> list[Counts]:
    """Count the evaluations of all solvers for sparseness 0.9 and n = 4, 8, 16, ...

    Parameters
    ----------
    settings : Settings, optional
        How many vectors of which kind, and how long; the quick protocol by default.
    out : path, optional
        A directory to keep results in; with it, a run that was stopped goes on where it was.
    jobs : int
        Worker processes; 1 works in this process.

    Returns
    -------
    list of Counts
        One record for each length and solver. Times and space are measured too; they are in
        ``measured.csv`` of the directory.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, dimensions
    >>> records = dimensions(Settings(vectors=5, max_log2n=6))
    >>> [record.n for record in records if record.solver == "newton"]
    [4, 8, 16, 32, 64]
    """
    return run_alone(DIMENSIONS, settings, out, jobs)
