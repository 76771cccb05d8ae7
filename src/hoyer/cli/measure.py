"""``hoyer measure``: how sparse the vectors of a file are, by sixteen measures."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from ..measures import CRITERIA, MEASURES, Report
from ..measures import criteria as judge
from ..options import Axis
from .arguments import (
    VECTORS,
    ArraysOption,
    AxisOption,
    DelimiterOption,
    HeaderOption,
    IndexOption,
    parse_names,
    parsed_option,
)
from .blocks import Array, Vectors, as_vectors, blocks, describe, exceeds_block, require_memory
from .files import Reading, is_folder, read_arrays
from .names import listed, source_name, speaking_of
from .progress import progress_bar
from .tables import Dialect

# Hoyer's own first, the others as in the paper.
NAMES = tuple(sorted(MEASURES, key=lambda name: name != "hoyer"))

# Copies of a vector that a formula needs: magnitudes, their order, intermediate results.
COPIES = 5


def measure(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help=VECTORS)] = None,
    *,
    axis: AxisOption = "-1",
    only: Annotated[
        Any, parsed_option(parse_names, "NAMES", "Some measures, as hoyer,gini.", default="all")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Say what each measure is.")] = False,
    criteria: Annotated[
        bool,
        typer.Option(
            "--criteria",
            help="Say which of Hurley and Rickard's six criteria each measure satisfies, with "
            "counterexamples.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with null where there is no number.")
    ] = False,
    arrays: ArraysOption = None,
    delimiter: DelimiterOption = None,
    header: HeaderOption = None,
    index_col: IndexOption = None,
) -> None:
    """Measure how sparse the vectors of a file are.

    Prints Hoyer's sparseness and the other measures that Hurley and Rickard (2009) compare: for one
    vector its values, for several the smallest, the mean and the largest. Larger is sparser, but
    for the entropies h_s and h_s_prime. Single values in an .npz archive are left out.

    For example:

      hoyer measure weights.npy

      hoyer measure table.csv --axis 0 --only hoyer,gini

      hoyer measure --list --criteria
    """
    if file is None and not (criteria or listing):
        raise ValueError("nothing to measure: give FILE, --list or --criteria")
    for name in only or ():
        if name not in MEASURES:
            raise ValueError(f"--only: no measure {name!r}: choose from {', '.join(NAMES)}")
    names = tuple(dict.fromkeys(only)) if only else NAMES
    reading = Reading(arrays, Dialect(delimiter, header, index_col))
    summaries = [] if file is None else list(measure_file(file, axis, names, reading))
    reports = {name: judge(MEASURES[name]) for name in names} if criteria else {}
    if as_json:
        data = as_data(summaries, names if listing else (), reports)
        typer.echo(json.dumps(data, indent=2, allow_nan=False))
        return
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    parts: list[tuple[Callable[[Console, Any], None], Any]]
    parts = [(print_values, summary) for summary in summaries]
    parts += [(print_list, names)] * listing + [(print_criteria, reports)] * criteria
    for number, (print_part, content) in enumerate(parts):
        if number:
            console.print()
        print_part(console, content)


def explain(name: str) -> str:
    """Return what a measure is, with its formula: the first line of its documentation."""
    text = str(MEASURES[name].__doc__).splitlines()[0]
    return text.removeprefix("Return ").removesuffix(".").replace("``", "")


# ---- the values ----


@dataclass
class Range:
    """Smallest, mean and largest of the numbers seen."""

    count: int = 0
    total: float = 0.0
    smallest: float = math.inf
    largest: float = -math.inf
    undefined: int = 0

    def add(self, values: Array) -> None:
        """Take more numbers into account; NaN counts as undefined."""
        defined = values[~np.isnan(values)].astype(np.float64)
        self.undefined += values.size - defined.size
        self.count += defined.size
        self.total += float(defined.sum())
        self.smallest = float(defined.min(initial=self.smallest))
        self.largest = float(defined.max(initial=self.largest))

    def numbers(self) -> dict[str, float]:
        """Return smallest, mean and largest; NaN if there were none."""
        if self.count == 0:
            return dict.fromkeys(("smallest", "mean", "largest"), math.nan)
        mean = self.total / self.count
        return {"smallest": self.smallest, "mean": mean, "largest": self.largest}

    def as_data(self) -> dict[str, float | None]:
        """Return the numbers for JSON, which has neither NaN nor infinity."""
        numbers = self.numbers().items()
        finite = {key: value if math.isfinite(value) else None for key, value in numbers}
        return finite | {"undefined": self.undefined}


class Summary(NamedTuple):
    """The measures of all vectors of an array."""

    name: str
    """What messages call it."""
    about: dict[str, Any]
    """Its file, its name there, labels left out, dtype, how many vectors and of which length."""
    ranges: dict[str, Range]


def measure_file(
    path: Path,
    axis: Axis,
    names: Sequence[str],
    reading: Reading = Reading(),  # noqa: B008 - a tuple
) -> Iterator[Summary]:
    """Measure the arrays of a file, block by block.

    A file that cannot be read or has no vectors, and vectors too long for the memory, are errors.
    """
    if is_folder(path):
        yield measure_folder(path, axis, names, reading)
        return
    single = []
    none_yet = True
    for found in read_arrays(path, reading):
        x, name = found.values, found.name
        if found.single:
            single.append(str(found.array))
            continue
        none_yet = False
        with speaking_of(name, found.advice):
            vectors = as_vectors(x, axis)
            check_numbers(vectors, names)
        with speaking_of(name):
            check_memory(vectors, names)
        about = {"file": str(path), "array": found.array, "labels": found.labels}
        ranges = measure_array(name, [vectors], vectors.array.size, names)
        yield Summary(name.rstrip(","), about | shape_of(vectors), ranges)
    if none_yet:
        raise ValueError(
            f"{source_name(path)} has no vectors, only single values: {listed(single)}"
        )
    if single:
        typer.echo(f"left out, as single values are no vectors: {listed(single)}", err=True)


def measure_folder(path: Path, axis: Axis, names: Sequence[str], reading: Reading) -> Summary:
    """Measure the array in a folder, a Zarr store or .npy files, piece by piece."""
    name = source_name(path)
    reading.check(name, None)
    from .dask import new_run, opened, pieces_of, sparseness_of  # noqa: PLC0415 - it needs Dask

    folder: Any = opened(path, new_run())
    with speaking_of(name):
        vectors = as_vectors(folder.array, axis)
        check_numbers(vectors, names)
        if names == ("hoyer",):
            ranges = {"hoyer": Range()}
            ranges["hoyer"].add(np.asarray(sparseness_of(vectors)))
        else:
            check_memory(vectors, names)
            pieces = pieces_of(folder.read, axis)
            ranges = measure_array(name, pieces, vectors.array.size, names)
    about = {"file": str(path), "array": None, "labels": None}
    return Summary(name, about | shape_of(vectors), ranges)


def shape_of(vectors: Vectors) -> dict[str, Any]:
    """Return what is told about the vectors beside their measures."""
    dtype = str(vectors.array.dtype)
    return {"dtype": dtype, "vectors": vectors.number, "length": vectors.length}


def measure_array(
    name: str, pieces: Iterable[Vectors], size: int, names: Sequence[str]
) -> dict[str, Range]:
    """Measure all vectors of an array of this size, which comes in pieces."""
    ranges = {key: Range() for key in names}
    with progress_bar(name.rstrip(","), size, show=exceeds_block(size)) as advance:
        for vectors in pieces:
            for index in blocks(vectors.batch, vectors.length):
                block = vectors.array[index]
                for key in names:
                    ranges[key].add(np.asarray(MEASURES[key](block, axis=vectors.axes)))
                advance(block.size)
    return ranges


def check_numbers(vectors: Vectors, names: Sequence[str]) -> None:
    """Refuse what cannot be measured, whatever the numbers are."""
    MEASURES[names[0]](np.empty((0, vectors.length), vectors.array.dtype))


def check_memory(vectors: Vectors, names: Sequence[str]) -> None:
    """Refuse vectors too long for the measures asked for; Hoyer's reads them in place."""
    if tuple(names) == ("hoyer",) and vectors.array.dtype.kind == "f":
        return
    require_memory(
        f"a vector of length {vectors.length}",
        COPIES * 8 * vectors.length,
        ": '--only hoyer' needs none for floating numbers",
    )


# ---- what is printed ----


def print_values(console: Console, summary: Summary) -> None:
    """Print the values of one array: a column for a vector, three for several."""
    about, several = summary.about, summary.about["vectors"] != 1
    columns = ["smallest", "mean", "largest"] if several else ["value"]
    undefined = several and any(found.undefined for found in summary.ranges.values())
    table = plain_table("measure", *columns, *(["undefined"] if undefined else []))
    table.add_column("", style="dim")
    for name, found in summary.ranges.items():
        numbers = list(map(_number, found.numbers().values()))[: len(columns)]
        what = explain(name).partition(":")[0]
        table.add_row(name, *numbers, *([str(found.undefined)] if undefined else []), what)
    vectors = describe(about["vectors"], about["length"], about["dtype"])
    left_out = "" if about["labels"] is None else f"; labels in {about['labels']} left out"
    console.print(f"{summary.name}: {vectors}{left_out}", style="bold")
    print_table(console, table)


def print_list(console: Console, names: Sequence[str]) -> None:
    """Print what each measure is."""
    table = plain_table("measure")
    table.add_column("for magnitudes c of N entries, in order c_(1) <= ... <= c_(N)")
    for name in names:
        table.add_row(name, explain(name))
    print_table(console, table)


def print_criteria(console: Console, reports: dict[str, Report]) -> None:
    """Print which measure satisfies which criterion, and why the others do not."""
    table = plain_table("measure", *(criterion.label for criterion in CRITERIA))
    for name, report in reports.items():
        table.add_row(name, *("yes" if verdict.holds else "no" for verdict in report))
    trials = max(verdict.trials for report in reports.values() for verdict in report)
    console.print(f"criteria (yes: no counterexample in up to {trials} trials)", style="bold")
    console.print(table)
    for criterion in CRITERIA:
        console.print()
        console.print(f"{criterion.label} {criterion.name}: {criterion.says}", style="bold")
        for name, report in reports.items():
            verdict = report[criterion.label]
            if not verdict.holds:
                console.print(f"  {name:12}  {verdict.counterexample or verdict.finding()}")


def plain_table(*columns: str) -> Table:
    """Return a table of numbers without frames, which reads well in a pipe too."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table without blanks at the ends of its lines."""
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        typer.echo(line.rstrip())


def as_data(
    arrays: list[Summary], listing: Sequence[str], reports: dict[str, Report]
) -> dict[str, Any]:
    """Return everything as plain data for JSON."""
    return {
        "arrays": [
            summary.about
            | {"measures": {name: found.as_data() for name, found in summary.ranges.items()}}
            for summary in arrays
        ],
        "measures": {name: explain(name) for name in listing},
        "criteria": {
            name: {
                verdict.criterion.label: {"holds": verdict.holds, "finding": verdict.finding()}
                for verdict in report
            }
            for name, report in reports.items()
        },
    }


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.6g}"
