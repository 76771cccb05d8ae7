"""Tables of records on disk: CSV files that grow cell by cell and survive a crash."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hoyer.paper.experiments.files import replacing

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

__all__ = ["Table"]


class Table(Generic[R]):
    """A CSV file with one record per line, in groups that count only when they are complete.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    record : type
        A dataclass of ints, floats and words: its fields are the columns.
    closes : callable
        Whether a record is the last one of its group. A group is written at once, so where its
        last record is whole, all of it is.
    """

    def __init__(self, path: Path, record: type[R], closes: Callable[[R], bool]) -> None:
        self.path = path
        self.record = record
        self.closes = closes
        self._types: list[Any] = [field.type for field in fields(record)]
        self._header = [field.name for field in fields(record)]

    def load(self) -> list[list[R]]:
        """Return the complete groups; what a crash left behind them is cut off the file.

        Raises
        ------
        ValueError
            If a line before the last is not a record: then this is another kind of file.
        """
        if not self.path.exists():
            return []
        groups: list[list[R]] = []
        group: list[R] = []
        content = self.path.read_bytes()
        lines = content.splitlines(keepends=True)
        kept = 0
        position = 0
        for number, line in enumerate(lines, 1):
            position += len(line)
            if not line.endswith(b"\n"):
                break
            record = self._parse(number, line.decode("utf-8", "replace").rstrip("\n"))
            if record is None:
                kept = position
                continue
            group.append(record)
            if self.closes(record):
                groups.append(group)
                group = []
                kept = position
        if kept < len(content):
            with self.path.open("r+b") as file:
                file.truncate(kept)
        return groups

    def append(self, records: Iterable[R]) -> None:
        """Add a group at the end of the file."""
        text = self._text(records)
        with self.path.open("ab") as file:
            if file.tell() == 0:
                text = self._line(self._header) + text
            file.write(text.encode())

    def rewrite(self, records: Iterable[R]) -> None:
        """Replace the whole file, at once."""
        with replacing(self.path) as temporary:
            temporary.write_bytes((self._line(self._header) + self._text(records)).encode())

    def _text(self, records: Iterable[R]) -> str:
        return "".join(self._line(astuple(record)) for record in records)

    @staticmethod
    def _line(values: Sequence[Any]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerow(values)
        return buffer.getvalue()

    def _parse(self, number: int, line: str) -> R | None:
        """Return the record of a line, None for the header."""
        if number == 1 and line == ",".join(self._header):
            return None
        values = next(csv.reader([line]), [])
        try:
            if number == 1:
                raise ValueError
            return self.record(
                *(kind(value) for kind, value in zip(self._types, values, strict=True))
            )
        except ValueError:
            raise ValueError(
                f"{self.path}, line {number} is not a record of ({', '.join(self._header)}): "
                "delete the file to make it anew"
            ) from None
