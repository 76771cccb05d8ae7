"""Arrays in files: .npy (mapped, never read whole), .npz and .csv. Nothing is ever unpickled."""

import csv
import io
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

SUFFIXES = (".npy", ".npz", ".csv")
MAGIC = b"\x93NUMPY"


def kind_of(path: Path) -> str:
    """Return the suffix that says what kind of file this is.

    Raises
    ------
    ValueError
        If it is none that hoyer knows.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{path}: the name must end in {', '.join(SUFFIXES)}")
    return suffix


def read_arrays(path: Path) -> Iterator[tuple[str, Array]]:
    """Yield every array of a file of any kind, with how to speak of it in a message."""
    kind = kind_of(path)
    if kind == ".npy":
        yield str(path), open_npy(path)
    elif kind == ".npz":
        for member, array in read_npz(path):
            yield f"{path}, array '{array_name(member)}',", array
    else:
        yield str(path), read_csv(path).values


@contextmanager
def speaking_of(name: str) -> Iterator[None]:
    """Turn errors of the library, which calls the array x, into errors that name the file."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        raise ValueError(name + (text[1:] if text.startswith("x ") else f": {text}")) from error


# ---- .npy ----


def open_npy(path: Path) -> Array:
    """Map an array into memory, to be read only.

    Raises
    ------
    ValueError
        If it cannot be read, or is no complete array of plain numbers.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
        if not start:
            raise ValueError(f"{path} is empty")
        if start != MAGIC:
            raise ValueError(f"{path} is not a .npy file (hoyer never loads pickled objects)")
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, SyntaxError, TypeError, OverflowError, tokenize.TokenError) as error:
        raise ValueError(_what_is_wrong(path, "a .npy file", error)) from error


def create_npy(file: BinaryIO, shape: tuple[int, ...], dtype: Any, *, fortran: bool) -> Array:
    """Map a new array of an open file into memory, to be written; the space is set aside first."""
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
        "fortran_order": fortran,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    start, size = file.tell(), int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    file.flush()
    if size == 0:
        return np.empty(shape, dtype)
    # A full disk is an error here and now, not a crash when a mapped page cannot be stored.
    os.posix_fallocate(file.fileno(), 0, start + size)
    return np.asarray(np.memmap(file, dtype, "r+", start, shape, "F" if fortran else "C"))


# ---- .npz ----


def read_npz(path: Path) -> Iterator[tuple[zipfile.ZipInfo, Array]]:
    """Yield the arrays of an archive, one at a time, with what the archive says of them.

    Raises
    ------
    ValueError
        If it cannot be read, or has something else than arrays of plain numbers.
    """
    try:
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if not members:
                raise ValueError(f"{path} has no arrays")
            for member in members:
                yield member, _read_member(path, archive, member)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from error
    except zipfile.BadZipFile as error:
        raise ValueError(_what_is_wrong(path, "a .npz archive", error)) from error


def write_member(archive: zipfile.ZipFile, like: zipfile.ZipInfo, array: Array) -> None:
    """Append an array to an archive, under the name and with the compression it had before."""
    member = zipfile.ZipInfo(like.filename)
    member.compress_type = like.compress_type
    with archive.open(member, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def array_name(member: zipfile.ZipInfo) -> str:
    """Return the name that `numpy.load` gives an array."""
    return member.filename.removesuffix(".npy")


def _read_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    if not member.filename.endswith(".npy"):
        raise ValueError(f"{path} has '{member.filename}' in it, which is no array")
    try:
        with archive.open(member) as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except (
        ValueError,
        SyntaxError,
        TypeError,
        OverflowError,
        EOFError,
        RuntimeError,
        tokenize.TokenError,
        zlib.error,
    ) as error:
        name = f"{path}, array '{array_name(member)}',"
        raise ValueError(_what_is_wrong(name, "an array of plain numbers", error)) from error


def _what_is_wrong(name: Path | str, wanted: str, error: Exception) -> str:
    """Put an error of NumPy or zipfile into the words of a user."""
    text = str(error)
    if text.startswith(str(name)):
        return text
    if "Object arrays" in text or "Python objects" in text:
        return f"{name} holds pickled Python objects, which hoyer never loads: save plain numbers"
    if "mmap length" in text or "EOF" in text:
        return f"{name} is incomplete: it ends before its last number"
    return f"{name} is not {wanted}, or is damaged: {text}"


# ---- .csv ----


class Table(NamedTuple):
    """The numbers of a .csv file: one row of the array per line."""

    header: list[str] | None
    values: Array
    """Two axes; a single column is one vector and has one axis."""


def read_csv(path: Path) -> Table:
    """Read numbers separated by commas; a first line with anything else is the header.

    Raises
    ------
    ValueError
        If it cannot be read; naming the line if a field is no number or one is missing.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a .csv file: it is no text in UTF-8") from None
    header = next(csv.reader(io.StringIO(text)), [])
    has_header = bool(header) and not all(map(_is_number, header))
    lines = text.splitlines()[has_header:]
    if not any(line.strip() for line in lines):
        raise ValueError(
            f"{path} has a header but no numbers" if has_header else f"{path} is empty"
        )
    try:
        values = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None, quotechar='"')
    except ValueError as error:
        raise ValueError(f"{path}, {_bad_line(lines, has_header) or error}") from error
    return Table(header if has_header else None, values[:, 0] if values.shape[1] == 1 else values)


def write_csv(file: BinaryIO, table: Table) -> None:
    """Write numbers with the digits that give them back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    if table.header is not None:
        writer.writerow(table.header)
    rows = table.values.reshape(len(table.values), -1)
    writer.writerows(map(repr, row.tolist()) for row in rows)
    text.detach()  # flushed, but left open


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _bad_line(lines: list[str], has_header: bool) -> str | None:
    """Say which line of a table is the first that does not fit, and why."""
    width = 0
    for number, line in enumerate(lines, 1 + has_header):
        fields = next(csv.reader([line]), [])
        if not fields:
            continue
        width = width or len(fields)
        for field in fields:
            if not _is_number(field):
                return f"line {number}: {field!r} is no number"
        if len(fields) != width:
            return f"line {number}: {len(fields)} numbers, but {width} in the lines before"
    return None
