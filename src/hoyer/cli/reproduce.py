"""`hoyer reproduce`: the paper's experiments, with the verdict on each of its claims."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hoyer.cli.meter import meter
from hoyer.paper.experiments import EXPERIMENTS, Settings
from hoyer.paper.experiments.claims import Claim, Verdict
from hoyer.paper.experiments.reproduce import reproduce as run_and_report
from hoyer.paper.experiments.settings import Distribution, Dtype

__all__ = ["reproduce"]

Choice: TypeAlias = Literal["all", "psi", "solvers", "dimensions", "agreement", "gradient"]

_STYLES = {Verdict.YES: "green", Verdict.NO: "bold red", Verdict.OPEN: "dim"}


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def reproduce(  # noqa: PLR0917 - the options of the command
    experiment: Annotated[Choice, typer.Argument(help="Which experiment to run.")] = "all",
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick", help="The paper's own protocol (hours), or a minute's worth of it."
        ),
    ] = False,
    vectors: Annotated[
        int | None,
        typer.Option(help="Random vectors in every cell, instead of the protocol's number."),
    ] = None,
    max_log2n: Annotated[
        int | None,
        typer.Option("--max-log2n", help="The longest vectors have 2^N entries.", metavar="N"),
    ] = None,
    distribution: Annotated[
        Distribution, typer.Option(help="How the entries of the vectors are distributed.")
    ] = "uniform",
    dtype: Annotated[Dtype, typer.Option(help="The type of the vectors.")] = "float64",
    seed: Annotated[int, typer.Option(help="Another seed gives other vectors.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Worker processes; results do not depend on it.", show_default="all processors"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where results, figures and report go.",
            metavar="DIR",
            show_default="hoyer-reproduce/ and a name for the settings",
        ),
    ] = None,
) -> None:
    """Repeat the experiments of the paper and compare what it claims with what comes out.

    Writes tables (CSV), figures (PNG, SVG) and a report (Markdown, HTML). A run that was stopped
    goes on where it was when the same command is given again.
    """
    settings = Settings(full, vectors, max_log2n, distribution, dtype, seed)
    directory = out or Path("hoyer-reproduce") / settings.label
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    count = _processors() if jobs is None else jobs
    try:
        found = run_and_report(names, settings, directory, jobs=count, progress=meter())
    except KeyboardInterrupt:
        print(
            f"hoyer: stopped; results so far are in {directory}, and the same command goes on "
            "from there",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None
    except ImportError as error:
        raise ValueError(str(error)) from None
    _show([claim for claim in found.claims if found.results.of(claim.experiment)])
    print(f"\nwrote to {directory}:")
    for path in found.files:
        print(f"  {path.name}")


def _show(claims: list[Claim]) -> None:
    """Print the table of claims, as wide as the terminal."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("where", "claim in the paper", "measured", "verdict", show_lines=True)
    for claim in claims:
        finding = claim.finding
        verdict = Text(finding.verdict, style=_STYLES[finding.verdict])
        table.add_row(claim.where, claim.text, Text(str(finding)), verdict)
    console.print(table)
