"""``hoyer measure``: how sparse the vectors of a file are, by sixteen measures."""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console
from rich.table import Table

from ..measures import CRITERIA, MEASURES, Report
from ..measures import criteria as judge
from ..options import Axis
from .arguments import AxisOption
from .blocks import BLOCK, Vectors, as_vectors, blocks, describe
from .files import read_arrays, speaking_of
from .progress import progress_bar

Array: TypeAlias = npt.NDArray[Any]

# What a formula needs beside the vector: its magnitudes, their order, a few intermediate results.
COPIES = 5


def measure(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The vectors: a .npy, .npz or .csv file."),
    ] = None,
    axis: AxisOption = "-1",
    only: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Some measures alone, as hoyer,gini."),
    ] = None,
    criteria: Annotated[
        bool,
        typer.Option(
            "--criteria",
            help="Also say which of Hurley and Rickard's six criteria each measure satisfies, with "
            "counterexamples; without FILE, say only that.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with null where there is no number.")
    ] = False,
) -> None:
    """Measure how sparse the vectors of a file are.

    Prints Hoyer's sparseness and the other measures that Hurley and Rickard (2009) compare: for one
    vector its values, for several the smallest, the mean and the largest. Larger is sparser, but
    for the entropies h_s and h_s_prime.

    For example:

      hoyer measure weights.npy

      hoyer measure table.csv --axis 0 --only hoyer,gini

      hoyer measure --criteria
    """
    if file is None and not criteria:
        raise ValueError("nothing to measure: give FILE, or --criteria")
    names = parse_names(only)
    arrays = [] if file is None else list(measure_file(file, axis, names))
    reports = {name: judge(MEASURES[name]) for name in names} if criteria else {}
    if as_json:
        typer.echo(json.dumps(as_data(arrays, reports), indent=2, allow_nan=False))
        return
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False)
    for number, summary in enumerate(arrays):
        if number:
            console.print()
        print_values(console, summary)
    if reports:
        if arrays:
            console.print()
        print_criteria(console, reports)


def parse_names(text: str | None) -> tuple[str, ...]:
    """Return the measures that were named, or all of them."""
    if text is None:
        return tuple(MEASURES)
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in MEASURES:
            raise ValueError(f"--only: no measure {name!r}: choose from {', '.join(MEASURES)}")
    return names


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

    def numbers(self) -> tuple[float, float, float]:
        """Return smallest, mean and largest; NaN if there were none."""
        if self.count == 0:
            return math.nan, math.nan, math.nan
        return self.smallest, self.total / self.count, self.largest


@dataclass
class Summary:
    """The measures of all vectors of an array."""

    name: str
    dtype: str
    count: int
    """How many vectors there are."""
    length: int
    """Entries of a vector."""
    ranges: dict[str, Range]


def measure_file(
    path: Path, axis: Axis, names: Sequence[str], *, limit: int = BLOCK
) -> Iterator[Summary]:
    """Measure all arrays of a file, in blocks of at most `limit` entries.

    Raises
    ------
    ValueError
        If the file cannot be read, has no vectors, or has vectors too long for the memory.
    """
    for name, x in read_arrays(path):
        with speaking_of(name):
            vectors = as_vectors(x, axis)
            MEASURES[names[0]](np.empty((0, vectors.length), x.dtype))
            check_memory(vectors, names)
        yield measure_array(name, vectors, names, limit)


def measure_array(name: str, vectors: Vectors, names: Sequence[str], limit: int) -> Summary:
    """Measure all vectors of an array."""
    ranges = {key: Range() for key in names}
    size = vectors.array.size
    with progress_bar(name, size, show=size > limit) as advance:
        for index in blocks(vectors.batch, vectors.length, limit):
            block = vectors.array[index]
            for key in names:
                ranges[key].add(np.asarray(MEASURES[key](block, axis=vectors.axes)))
            advance(block.size)
    dtype = str(vectors.array.dtype)
    return Summary(name.rstrip(","), dtype, vectors.count, vectors.length, ranges)


def check_memory(vectors: Vectors, names: Sequence[str]) -> None:
    """Refuse vectors that are too long for the measures asked for; Hoyer's reads them in place."""
    if set(names) == {"hoyer"} and vectors.array.dtype.kind == "f":
        return
    needed, there = COPIES * 8 * vectors.length, spare_memory()
    if needed > there:
        raise ValueError(
            f"vectors of length {vectors.length} need about {needed / 2**30:.1f} GiB of memory, "
            f"{there / 2**30:.1f} GiB are free: '--only hoyer' needs none for floating numbers"
        )


def spare_memory() -> int:
    """Return how many bytes could still be used without swapping."""
    with open("/proc/meminfo", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("MemAvailable"))
    return int(line.split()[1]) * 1024


# ---- what is printed ----


def print_values(console: Console, summary: Summary) -> None:
    """Print the values of one array: a column for a vector, three for several."""
    columns = ["value"] if summary.count == 1 else ["smallest", "mean", "largest"]
    undefined = any(found.undefined for found in summary.ranges.values()) and summary.count > 1
    table = plain_table("measure", *columns, *(["undefined"] if undefined else []))
    for name, found in summary.ranges.items():
        numbers = [_number(number) for number in found.numbers()[: len(columns)]]
        table.add_row(name, *numbers, *([str(found.undefined)] if undefined else []))
    vectors = describe(summary.count, summary.length, summary.dtype)
    console.print(f"{summary.name}: {vectors}", style="bold")
    console.print(table)


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


def as_data(arrays: list[Summary], reports: dict[str, Report]) -> dict[str, Any]:
    """Return everything as plain data for JSON."""
    return {
        "arrays": [
            {
                "name": summary.name,
                "dtype": summary.dtype,
                "vectors": summary.count,
                "length": summary.length,
                "measures": {
                    name: dict(
                        zip(
                            ("smallest", "mean", "largest"),
                            map(_json, found.numbers()),
                            strict=True,
                        )
                    )
                    | {"undefined": found.undefined}
                    for name, found in summary.ranges.items()
                },
            }
            for summary in arrays
        ],
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


def _json(value: float) -> float | None:
    return value if math.isfinite(value) else None
