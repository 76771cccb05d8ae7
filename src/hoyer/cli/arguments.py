"""Options that several commands share, and how their text becomes a value."""

from typing import Annotated, Any

import typer

from ..options import NORM_RULES, Axis


def parse_number(text: str) -> float:
    """Return the number that was written."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number") from None


def parse_integer(text: str) -> int:
    """Return the whole number that was written."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number") from None


def parse_norm(text: str) -> float | str:
    """Return the norm that was written: a number, "keep" or "nearest"."""
    if text in NORM_RULES:
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number, nor 'keep' or 'nearest'") from None


def parse_axis(text: str) -> Axis:
    """Return the axis that was written: "-1", "0,2" or "all"."""
    if text == "all":
        return None
    try:
        axes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no axis (-1), nor several (0,2), nor 'all'"
        ) from None
    return axes if len(axes) > 1 else axes[0]


AxisOption = Annotated[
    Any,
    typer.Option(
        parser=parse_axis,
        metavar="AXIS",
        help="Where the vectors lie: -1, the last axis, makes every row of a matrix a vector, 0 "
        "every column; several as 0,2; 'all' takes the whole array as one vector.",
    ),
]
