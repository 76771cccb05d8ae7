"""The whole way: run experiments, draw their figures, judge the claims, write the report."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hoyer.paper.experiments.claims import Claim
from hoyer.paper.experiments.figures import draw_figures, require_matplotlib
from hoyer.paper.experiments.report import write_report
from hoyer.paper.experiments.results import EXPERIMENTS, Results
from hoyer.paper.experiments.runner import MEASURED_FILE, Progress, run
from hoyer.paper.experiments.settings import Settings

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What a reproduction found, and which files it wrote."""

    results: Results
    claims: list[Claim]
    files: list[Path]


def reproduce(
    names: Iterable[str],
    settings: Settings,
    out: str | Path,
    *,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Reproduction:
    """Run experiments and report on all that are complete in the directory.

    Parameters
    ----------
    names : iterable of str
        Of the experiments: "psi", "solvers", "dimensions", "agreement", "gradient".
    settings : Settings
        With how many vectors of which kind.
    out : path
        Where results, figures and report go. Cells that are there already are not run again.
    jobs : int
        Worker processes; 1 works in this process.
    progress : Progress, optional
        Is told of every cell.

    Returns
    -------
    Reproduction
        The results, the verdict on each claim, the files.

    Raises
    ------
    ValueError
        If a name is unknown, the directory holds results of other settings, or another run is at
        work in it.
    OSError
        If the directory cannot be written.
    ModuleNotFoundError
        Without matplotlib; before anything is run.
    """
    require_matplotlib()
    chosen = list(names)
    for name in chosen:
        if name not in EXPERIMENTS:
            raise ValueError(f"experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}")
        if len(chosen) == 1:
            EXPERIMENTS[name].check_options(settings)
    directory = Path(out)
    for name in chosen:
        run(EXPERIMENTS[name], settings, out=directory, jobs=jobs, progress=progress)
    results = Results.collect(settings, directory)
    figures = draw_figures(results, directory)
    claims, reports = write_report(results, directory)
    tables = [directory / e.file for e in EXPERIMENTS.values() if results.of(e.name)]
    return Reproduction(results, claims, [*reports, *figures, *tables, directory / MEASURED_FILE])
