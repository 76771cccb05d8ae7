"""Files of any kind, and standard input: which kind it is, and the arrays in it."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ..system import NO_WAIT
from .blocks import Array
from .names import STANDARD, printable, source_name
from .npy import MAGIC, ZIP_MAGIC, FileArray, open_npy, open_npz
from .tables import Dialect, Table, read_csv

TABLES = (".csv", ".tsv")
SUFFIXES = (".npy", ".npz", *TABLES)


class Reading(NamedTuple):
    """What the user says about a file besides its name."""

    arrays: tuple[str, ...] | None = None
    """The chosen arrays of an archive; None: all."""
    dialect: Dialect = Dialect()

    def check(self, name: str, kind: str | None) -> None:
        """Refuse options that mean nothing for a file of this kind; None is a folder."""
        what = "a folder" if kind is None else f"a {kind} file"
        if self.arrays is not None and kind != ".npz":
            raise ValueError(f"--arrays is for .npz archives, but {name} is {what}")
        if self.dialect._replace(missing=False) != Dialect() and kind not in TABLES:
            raise ValueError(
                f"--delimiter, --header and --index-col are for .csv and .tsv files, but {name} is "
                f"{what}"
            )


class Source(NamedTuple):
    """A file open for reading, at its beginning."""

    file: BinaryIO
    name: str
    kind: str
    """The suffix for what is in it."""


@contextmanager
def open_source(path: Path, reading: Reading) -> Iterator[Source]:
    """Open a file, or standard input, which is first copied to a temporary file."""
    name = source_name(path)
    if names_folder(path) and not path.exists():
        raise ValueError(f"cannot read {name}: No such file or directory")
    kind = None if path == STANDARD else kind_of(path)
    try:
        file = _copy_of_input() if path == STANDARD else _open_regular(path)
    except OSError as error:
        raise ValueError(f"cannot read {name}: {error.strerror}") from error
    with file:
        kind = kind or _recognise(file)
        reading.check(name, kind)
        yield Source(file, name, kind)


@contextmanager
def open_mask(path: Path | None) -> Iterator[FileArray | None]:
    """Map the booleans of a .npy file into memory; None if no mask is wanted."""
    if path is None:
        yield None
        return
    with open_source(path, Reading()) as source:
        wanted = "give a .npy file of booleans, as numpy.save writes it, True for what counts"
        if source.kind != ".npy":
            raise ValueError(f"--where: {source.name} is a {source.kind} file: {wanted}")
        mask = FileArray(source.name, None, open_npy(source.file, source.name))
        if mask.values.dtype != bool:
            raise ValueError(f"--where: {source.name} has dtype {mask.values.dtype}: {wanted}")
        yield mask


def broadcast_mask(mask: FileArray, name: str, shape: tuple[int, ...]) -> Array:
    """View a mask with the shape of the array of this name; nothing is copied."""
    try:
        return np.broadcast_to(mask.values, shape)
    except ValueError:
        raise ValueError(
            f"--where: {mask.name} has shape {mask.values.shape}, which does not broadcast to "
            f"that of {name.rstrip(',')}, {shape}"
        ) from None


def names_folder(path: Path) -> bool:
    """Whether this may be the name of a folder: "-", and names of files, are none."""
    return path != STANDARD and path.suffix.lower() not in SUFFIXES


def is_folder(path: Path) -> bool:
    """Whether this is a folder, of a Zarr store or of .npy files."""
    return names_folder(path) and path.is_dir()


def kind_of(path: Path) -> str:
    """Return the suffix that says what kind of file this is, if hoyer knows that kind."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{printable(str(path))}: the name must end in {', '.join(SUFFIXES)}")
    return suffix


def read_table(source: Source, reading: Reading) -> Table:
    """Read a .csv or .tsv file."""
    dialect = reading.dialect
    if source.kind == ".tsv" and dialect.delimiter is None:
        dialect = dialect._replace(delimiter="\t")
    return read_csv(source.file, source.name, dialect)


def read_arrays(path: Path, reading: Reading) -> Iterator[FileArray]:
    """Yield the chosen arrays of a file of any kind, single values of an archive included."""
    with open_source(path, reading) as source:
        if source.kind == ".npy":
            yield FileArray(source.name, None, open_npy(source.file, source.name))
        elif source.kind == ".npz":
            with open_npz(source.file, source.name, reading.arrays) as archive:
                yield from (archive.read(member) for member, meant in archive.members() if meant)
        else:
            table = read_table(source, reading)
            yield FileArray(source.name, None, table.values, table.label_column_name())
            table.print_note()


def _open_regular(path: Path) -> BinaryIO:
    file = open(  # noqa: SIM115 - the caller closes it
        path, "rb", opener=lambda name, flags: os.open(name, flags | NO_WAIT)
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(
            f"cannot read {source_name(path)}: it is no regular file: give - instead, and redirect "
            "it to standard input"
        )
    return file


def _copy_of_input() -> BinaryIO:
    if sys.stdin is None:
        raise ValueError("cannot read standard input: it is closed")
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    shutil.copyfileobj(sys.stdin.buffer, file)
    file.seek(0)
    return file


def _recognise(file: BinaryIO) -> str:
    start = file.read(len(MAGIC))
    file.seek(0)
    if start == MAGIC:
        return ".npy"
    return ".npz" if start.startswith(ZIP_MAGIC) else ".csv"
