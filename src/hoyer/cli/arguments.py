"""Options that several commands share, and how text becomes a value."""

import csv
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..options import NORM_RULES, Axis

VECTORS = (
    "The vectors: a .npy, .npz, .csv or .tsv file, a Zarr store, a folder of .npy files, or - for "
    "standard input."
)


def parsed_option(
    parse: Callable[[str], Any], metavar: str, text: str, *names: str, default: str | bool = True
) -> Any:
    """Return an option whose value a function reads from what the user writes."""
    return typer.Option(*names, parser=parse, metavar=metavar, help=text, show_default=default)


def parser(convert: Callable[[str], Any], problem: str) -> Callable[[str], Any]:
    """Return a function that converts what the user writes, or says what the problem with it is."""

    def parse(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} {problem}") from None

    return parse


def _axis(text: str) -> Axis:
    if text == "all":
        return None
    axes = tuple(map(int, text.split(",")))
    return axes if len(axes) > 1 else axes[0]


parse_number = parser(float, "is no number")
parse_integer = parser(int, "is no whole number")
parse_norm = parser(
    lambda text: text if text in NORM_RULES else float(text),
    "is no number, nor 'keep' or 'nearest'",
)
parse_axis = parser(_axis, "is no axis (-1), nor several (0,2), nor 'all'")


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names that were written: "a,b"; one with a comma must be in quotes."""
    names = tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))
    if not all(names) or not names:
        raise typer.BadParameter(f"{text!r} has no name, or an empty one: give names as a,b")
    return names


def parse_delimiter(text: str) -> str:
    """Return the character that was written; a tab also by its name."""
    sign = "\t" if text in ("tab", r"\t") else text
    if len(sign) != 1 or sign.isalnum() or sign in '.+-_"\r\n':
        raise typer.BadParameter(
            f"{text!r} is no single character between numbers, as ',' or ';' or '|', nor 'tab'"
        )
    return sign


AxisOption = Annotated[
    Any,
    parsed_option(
        parse_axis,
        "AXIS",
        "Where the vectors lie: -1, the last axis, makes every row of a matrix a vector, 0 every "
        "column; several as 0,2; 'all' takes the whole array as one vector.",
    ),
]

ArraysOption = Annotated[
    Any, parsed_option(parse_names, "NAMES", "Arrays of an .npz archive, as a,b.", default="all")
]

DelimiterOption = Annotated[
    Any,
    parsed_option(
        parse_delimiter,
        "CHARACTER",
        "What separates the fields of a .csv file; 'tab' is one, and that of a .tsv file.",
        default="tab, semicolon or comma, by the first line",
    ),
]

HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line of a .csv file is a header. Years and other numbers are data "
        "unless --header is given, but for 0,1,2... as pandas names columns.",
        show_default="if it has names",
    ),
]

IndexOption = Annotated[
    str | None,
    typer.Option(
        "--index-col",
        metavar="COLUMN",
        help="A column of a .csv file that has labels, no numbers: counted from 0, or by its name.",
        show_default="a first one whose name is empty, as pandas writes an index without a name",
    ),
]
