"""Numbers in .csv and .tsv files: delimiter, header, a column of labels, and what is wrong."""

import csv
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator
from itertools import chain, islice
from types import SimpleNamespace
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import typer

from .blocks import Array
from .names import quoted

Rows: TypeAlias = Iterator[tuple[int, list[str]]]

# What people and programs write for a missing number, in lower case.
MISSING = ("", "na", "n/a", "#n/a", "<na>", "null", "none", "-", "?")


class Dialect(NamedTuple):
    """How to read a .csv file; None means that the file will tell."""

    delimiter: str | None = None
    header: bool | None = None
    """Whether the first line is a header."""
    labels: str | None = None
    """Number or name of the column of labels."""
    missing: bool = False
    """Whether a missing number is NaN rather than an error."""


class Table(NamedTuple):
    """The numbers of a .csv file, one row of the array per line, and the text around them."""

    values: Array
    """Two axes; a single column is one vector and has one axis."""
    delimiter: str
    header: list[str] | None
    label_column: int | None
    """Which column has labels instead of numbers."""
    labels: list[str]
    note: str = ""
    """What the user should know about how the first line was read."""

    def print_note(self) -> None:
        """Print the note, once all is done: an error must be a single line."""
        if self.note:
            typer.echo(self.note, err=True)

    def label_column_name(self) -> str | None:
        """Return what messages call the column of labels."""
        column = self.label_column
        return None if column is None else _column(self.header, column)


def read_csv(file: BinaryIO, name: str, dialect: Dialect) -> Table:
    """Read a table of numbers from an open file, at its beginning; messages call it `name`."""
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        return _Reader(text, name, dialect).read()
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not a .csv or .tsv file: it is no text in UTF-8") from None
    finally:
        text.detach()


def write_csv(file: BinaryIO, table: Table) -> None:
    """Write numbers with as many digits as it takes to read them back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    # Python quotes a field with a line break only if it is the line break that it writes itself.
    lines = SimpleNamespace(write=lambda line: text.write(line.removesuffix("\r\n") + "\n"))
    writer = csv.writer(lines, delimiter=table.delimiter, lineterminator="\r\n")
    if table.header is not None:
        writer.writerow(table.header)
    for number, values in enumerate(table.values.reshape(len(table.values), -1)):
        row = [repr(value) for value in values.tolist()]
        if table.label_column is not None:
            row.insert(table.label_column, table.labels[number])
        writer.writerow(row)
    text.detach()  # flushed, but left open


# ---- reading ----


class _Reader:
    """Reads one file; `header` and `label_column` are known once its first line has been seen."""

    def __init__(self, text: io.TextIOWrapper, name: str, dialect: Dialect) -> None:
        self.text, self.name, self.dialect = text, name, dialect
        self.delimiter = dialect.delimiter or self._find_delimiter()
        self.header: list[str] | None = None
        self.label_column: int | None = None

    def read(self) -> Table:
        rows = self._rows()
        line, first = next(rows, (0, []))
        if not first:
            raise ValueError(f"{self.name} is empty")
        second = list(islice(rows, 1))
        is_header, note = self._judge_first(line, first, chain(second, rows))
        self.header = first if is_header else None
        if is_header and not second:
            glued = (one for one in first if _kind(one) in ("commas", "several"))
            several = next((f": {_problem(one)}" for one in glued), "")
            raise ValueError(f"{self.name} has a header but no numbers{several}")
        self.label_column = self._find_labels(len(first))
        skipped = line if is_header else 0
        values = self._numbers(skipped, len(first))
        labels: list[str] = []
        if self.label_column is not None:
            labels = [row[self.label_column] for _, row in self._rows(skipped)]
            if len(labels) != len(values):
                raise ValueError(f"{self.name}: its labels have quotation marks that do not match")
        vectors = values[:, 0] if values.shape[1] == 1 else values
        return Table(vectors, self.delimiter, self.header, self.label_column, labels, note)

    def _numbers(self, skipped: int, width: int) -> Array:
        """Read the numbers after the lines to skip, or say what is wrong with them."""
        columns = None
        if self.label_column is not None:
            columns = [number for number in range(width) if number != self.label_column]
        try:
            try:
                values = self._load(skipped, columns, None)
            except ValueError:
                # To call a Python function for each field is slow: only where some may be missing.
                if not self.dialect.missing:
                    raise
                values = self._load(skipped, columns, _number_or_nan)
        except ValueError as error:
            raise ValueError(f"{self.name}, {self._misfit(skipped) or error}") from error
        # NumPy knows nothing of the header, and accepts lines that are too long if it skips a
        # column.
        unsure = columns or (self.header is not None and len(self.header) != values.shape[1])
        if unsure and (misfit := self._misfit(skipped)):
            raise ValueError(f"{self.name}, {misfit}")
        return values

    def _load(
        self, skipped: int, columns: list[int] | None, convert: Callable[[str], float] | None
    ) -> Array:
        """Read the numbers of all columns, or of some, with NumPy."""
        self.text.seek(0)
        return np.loadtxt(
            (line for line in islice(self.text, skipped, None) if line.strip(" \r\n")),
            delimiter=self.delimiter,
            ndmin=2,
            comments=None,
            quotechar='"',
            usecols=columns,
            converters=convert,
            encoding=None,
        )

    def _rows(self, skipped: int = 0) -> Rows:
        """Yield the fields of all lines that are not blank, with the number of the line."""
        self.text.seek(0)
        reader = csv.reader(self.text, delimiter=self.delimiter, strict=True)
        try:
            for row in reader:
                blank = not row or (len(row) == 1 and row[0].isspace())
                if reader.line_num > skipped and not blank:
                    yield reader.line_num, row
        except csv.Error as error:
            raise ValueError(
                f"{self.name}, line {reader.line_num} cannot be split into fields: {error}"
            ) from error

    def _find_delimiter(self) -> str:
        """Return which of tab, semicolon and comma, in this order, the first line has unquoted."""
        self.text.seek(0)
        line = next((line for line in self.text if line.strip()), "")
        bare = re.sub(r'"[^"]*("|$)', "", line)
        # Commas occur in prose and in numbers too, semicolons hardly ever, tabs never.
        return next((sign for sign in "\t;" if sign in bare), ",")

    def _judge_first(self, line: int, row: list[str], others: Rows) -> tuple[bool, str]:
        """Whether the first line is a header, and what to tell the user if that is in doubt."""
        if self.dialect.header is not None:
            return self.dialect.header, ""
        where = f"{self.name}, line {line}"
        counted = [str(number) for number in range(len(row))]
        # What `DataFrame.to_csv` writes above columns without names, with and without an index.
        if len(row) > 1 and row == ["", *counted[:-1]]:
            return True, ""
        second = next(others, None)
        if second and row == counted == ["0"]:
            return False, (
                f"{where} is taken for a number, 0: add --header if it is the name that pandas "
                "gives a column without one"
            )
        if second and row == counted:
            return True, (
                f"{where} is taken for a header, as it counts from 0 to {len(row) - 1}, which is "
                "how pandas names columns: add --no-header if it is numbers"
            )
        # Above an index without a name pandas writes an empty field, and then names that are
        # numbers.
        above_index = len(row) > 1 and not row[0].strip() and all(map(_is_number, row[1:]))
        if second and above_index and all(other[0].strip() for _, other in chain([second], others)):
            return True, (
                f"{where} is taken for a header above an index, as only its first field is empty: "
                "add --no-header if it is numbers"
            )
        return self._has_names(where, row), ""

    def _has_names(self, where: str, row: list[str]) -> bool:
        """Whether a line has names and no numbers; if it has both, the user must say what it is."""
        wanted = self.dialect.labels
        if wanted in row and not str(wanted).isdecimal():
            return True
        numbers = [field for field in row if _kind(field) in ("number", "commas")]
        names = [field for field in row if _kind(field) in ("text", "several")]
        if names and numbers:
            raise ValueError(
                f"{where} has names ({quoted(names[0])}) and numbers ({quoted(numbers[0])}): add "
                "--header if it is the header, or --no-header; and --index-col for a column of "
                "labels"
            )
        return bool(names)

    def _find_labels(self, width: int) -> int | None:
        """Return which column has labels: the one asked for, or the first if it has no name."""
        name, header, wanted = self.name, self.header, self.dialect.labels
        if width == 1 and wanted is not None:
            raise ValueError(f"{name}: --index-col {wanted!r}: its only column must be numbers")
        if wanted is None:
            if header is None or width == 1 or header[0].strip():
                return None
            if all(field.strip() for field in header[1:]):
                return 0
            raise ValueError(
                f"{name} has several columns without a name: say with --index-col which has labels"
            )
        if wanted.isdecimal() and int(wanted) < width:
            return int(wanted)
        if header is not None and header.count(wanted) == 1:
            return header.index(wanted)
        known = f", or one of the names {quoted(', '.join(header))}" if header else ""
        many = "several columns" if header and wanted in header else "no column"
        raise ValueError(
            f"--index-col: {name} has {many} {wanted!r}: give a number from 0 to {width - 1}{known}"
        )

    def _misfit(self, skipped: int) -> str | None:
        """Say which line is the first that cannot be read, and why."""
        header, rows = self.header, self._rows(skipped)
        width = len(header or ())
        for count, (line, row) in enumerate(rows):
            width = width or len(row)
            if len(row) != width:
                names = "name" if width == 1 else "names"
                others = f"{names} in the header" if header else "in the lines before"
                fields = "1 field" if len(row) == 1 else f"{len(row)} fields"
                return f"line {line}: {fields}, but {width} {others}"
            for number, field in enumerate(row):
                fine = _is_number(field) or (self.dialect.missing and _is_missing(field))
                if number != self.label_column and not fine:
                    first = count == 0 and self.label_column is None and width > 1
                    below = (other[number] for _, other in rows if other[number:])
                    hint = self._way_out(field, below, number) if first else ""
                    return f"line {line}, {_column(header, number)}: {_problem(field)}{hint}"
        return None

    def _way_out(self, first: str, below: Iterator[str], number: int) -> str:
        """Say which option helps if the first line, or a whole column, is not numbers."""
        unclear = self.header is None and self.dialect.header is None
        if unclear and number == 0 and _kind(first) == "missing":
            return "; add --header if the line is a header"
        if all(_kind(field) == "text" for field in chain([first], below)):
            return f"; add --index-col {_option(self.header, number)} if these are labels"
        return ""


# ---- fields ----


# What is wrong with a field that is not a number, by what `_kind` calls it.
PROBLEMS = {
    "missing": "the number is missing ({})",
    "commas": "{} has a comma: write 1.5, not 1,5, and 1000, not 1,000",
    "several": "{} is several numbers: say with --delimiter what separates them",
    "text": "{} is no number",
}


def _kind(field: str) -> str:
    """Return what a field is: a "number", or which of `PROBLEMS` it has."""
    if _is_number(field):
        return "number"
    if _is_missing(field):
        return "missing"
    if "," in field and _is_number(field.replace(",", "")):
        return "commas"
    parts = re.split(r"[ \t;,|:]+", field.strip())
    return "several" if len(parts) > 1 and all(map(_is_number, parts)) else "text"


def _is_number(field: str) -> bool:
    try:
        _number(field)
    except ValueError:
        return False
    return True


def _number(field: str) -> float:
    """Return the number that NumPy reads; unlike Python it refuses 1_000."""
    if not field.isascii() or "_" in field:
        raise ValueError(PROBLEMS["text"].format(quoted(field)))
    return float(field)


def _number_or_nan(field: str) -> float:
    return math.nan if _is_missing(field) else _number(field)


def _is_missing(field: str) -> bool:
    return field.strip().lower() in MISSING


def _problem(field: str) -> str:
    return PROBLEMS[_kind(field)].format(quoted(field))


def _column(header: list[str] | None, number: int) -> str:
    if header and header[number].strip():
        return f"column {quoted(header[number])}"
    return f"column {number} (counted from 0)"


def _option(header: list[str] | None, number: int) -> str:
    """Return how to name a column on the command line."""
    name = header[number] if header else ""
    clear = header and header.count(name) == 1 and name.isprintable() and not name.isdecimal()
    return shlex.quote(name) if clear and name.strip() else str(number)
