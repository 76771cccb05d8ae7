"""``hoyer reproduce``: the paper's experiments, with the verdict on each of its claims."""

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..paper.experiments import EXPERIMENTS, Settings
from ..paper.experiments.claims import Claim, Verdict, tally
from ..paper.experiments.reproduce import reproduce as run_and_report
from ..paper.experiments.settings import Distribution, Dtype
from ..system import processors
from .arguments import parse_integer, parsed_option
from .progress import Meter

Choice: TypeAlias = Literal["all", "psi", "solvers", "dimensions", "agreement", "gradient"]


def _takers(option: str) -> str:
    """Return which experiments use an option."""
    return ", ".join(name for name, found in EXPERIMENTS.items() if option in found.options)


VectorsOption = Annotated[
    int | None,
    parsed_option(
        parse_integer,
        "NUMBER",
        "Random vectors for each length and target, instead of the protocol's number; "
        f"for {_takers('vectors')}.",
    ),
]

LengthOption = Annotated[
    int | None,
    parsed_option(
        parse_integer,
        "N",
        f"The longest vectors have 2^N entries; for {_takers('max_log2n')}.",
        "--max-log2n",
    ),
]

JobsOption = Annotated[
    int | None,
    parsed_option(
        parse_integer,
        "NUMBER",
        "Worker processes; results do not depend on it.",
        default="all processors",
    ),
]


class Interrupted(Exception):  # noqa: N818 - the user's wish, no error
    """The user stopped a command; the message says what that means."""


STYLES = {Verdict.YES: "green", Verdict.NO: "bold red", Verdict.OPEN: "dim"}


def reproduce(
    experiment: Annotated[Choice, typer.Argument(help="Which experiment to run.")] = "all",
    *,
    full: Annotated[
        bool,
        typer.Option(
            "--full/--quick",
            help="The paper's own protocol (half an hour or more), or a minute's worth of it.",
        ),
    ] = False,
    vectors: VectorsOption = None,
    max_log2n: LengthOption = None,
    distribution: Annotated[
        Distribution, typer.Option(help="How the entries of the vectors are distributed.")
    ] = "uniform",
    dtype: Annotated[Dtype, typer.Option(help="The type of the vectors.")] = "float64",
    seed: Annotated[
        int, parsed_option(parse_integer, "NUMBER", "Another seed, other vectors.")
    ] = 0,
    jobs: JobsOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where results, figures and report go.",
            metavar="DIR",
            show_default="hoyer-reproduce/ and a name for the settings",
        ),
    ] = None,
) -> None:
    """Repeat the experiments of the paper and judge its claims.

    Writes tables (CSV), figures (PNG, SVG) and a report (Markdown, HTML) with what was measured for
    each claim. A run that was stopped goes on where it was when the same command is given again.

    For example:

      hoyer reproduce

      hoyer reproduce solvers --distribution halfnormal

      hoyer reproduce all --full --out paper
    """
    settings = Settings(full, vectors, max_log2n, distribution, dtype, seed)
    directory = out or Path("hoyer-reproduce") / settings.label
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file: --out wants a directory")
    names = list(EXPERIMENTS) if experiment == "all" else [experiment]
    count = processors() if jobs is None else jobs
    try:
        found = run_and_report(names, settings, directory, jobs=count, progress=Meter())
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; results so far are in {directory}, and the same command goes on where "
            "it stopped"
        ) from None
    claims = [claim for claim in found.claims if found.results.of(claim.experiment)]
    print_claims(claims)
    typer.echo(f"\n{len(claims)} claims of the paper: {tally(claims)}")
    typer.echo(f"\nwrote to {directory}:")
    for path in found.files:
        typer.echo(f"  {path.name}")
    typer.echo(f"\nfor every figure beside its claims open {directory / 'report.html'}")


def print_claims(claims: list[Claim]) -> None:
    """Print the table of claims, as wide as the terminal."""
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    table = Table("where", "claim in the paper", "measured", "verdict", show_lines=True)
    for claim in claims:
        finding = claim.finding
        verdict = Text(finding.verdict, style=STYLES[finding.verdict])
        table.add_row(claim.where, Text(claim.text), Text(str(finding)), verdict)
    console.print(table)
