"""Arrays in .npy files, which are mapped, and in .npz archives. Nothing is ever unpickled."""

import errno
import os
import textwrap
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from ..system import reserve
from .blocks import Array, require_memory
from .names import listed, printable

MAGIC = b"\x93NUMPY"
# How a first member begins, and an archive without members.
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
VERSIONS = ((1, 0), (2, 0), (3, 0))
MOST_AXES = 64

# Bytes to copy at a time.
PIECE = 2**20

# The arrays that `scipy.sparse.save_npz` writes: in every format, and in each of them.
SCIPY_ALWAYS = {"data", "shape", "format"}
SCIPY_PLACES = ({"indices", "indptr"}, {"row", "col"}, {"coords"}, {"offsets"})


class FileArray(NamedTuple):
    """An array of a file."""

    name: str
    """What messages call it; a verb may follow."""
    array: str | None
    """Its own name, if it has one."""
    values: Array
    labels: str | None = None
    """What messages call the column of labels beside it."""
    single: bool = False
    """Whether it is a single value among arrays that nobody has asked for."""
    advice: str = ""
    """What to do if it does not suit."""


# ---- .npy ----


class Header(NamedTuple):
    """What a .npy file says about its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int
    """Where its numbers begin."""

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return prod(self.shape) * self.dtype.itemsize


def open_npy(file: BinaryIO, name: str) -> Array:
    """Map the array of an open file into memory, read-only."""
    start = file.read(len(MAGIC))
    if not start:
        raise ValueError(f"{name} is empty")
    if start != MAGIC:
        raise ValueError(f"{name} is not a .npy file (hoyer never loads pickled objects)")
    file.seek(0)
    header = read_header(file, name, "a .npy file", os.fstat(file.fileno()).st_size)
    if header.size == 0:
        return np.empty(header.shape, header.dtype)
    order: Literal["C", "F"] = "F" if header.fortran else "C"
    return np.asarray(np.memmap(file, header.dtype, "r", header.start, header.shape, order))


def create_npy(file: BinaryIO, shape: tuple[int, ...], dtype: Any, *, fortran: bool) -> Array:
    """Map a new array of an open file into memory, for writing; reserve the disk space first."""
    described = np.lib.format.dtype_to_descr(np.dtype(dtype))
    header = {"descr": described, "fortran_order": fortran, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    start, size = file.tell(), prod(shape) * np.dtype(dtype).itemsize
    file.flush()
    if size == 0:
        return np.empty(shape, dtype)
    # A full disk is an error now, rather than a crash when a mapped page cannot be stored.
    reserve(file, start + size)
    return np.asarray(np.memmap(file, dtype, "r+", start, shape, "F" if fortran else "C"))


def read_header(file: Any, name: str, wanted: str, size: int) -> Header:
    """Read what a .npy file of `size` bytes says about its array, and do not believe all of it.

    NumPy takes any shape and type from a header, and warns or fails in many ways later. Here it is
    a ValueError if it makes no sense, is of pickled objects, or of more numbers than the file has.
    """
    with damage(name, wanted):
        version = np.lib.format.read_magic(file)
        if version not in VERSIONS:
            raise ValueError(f"its format has version {version}")
        # Version 3 differs from 2 only in the names of fields, which plain numbers do not have.
        first = version == VERSIONS[0]
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        header = Header(*read(file), file.tell())
        if header.dtype.hasobject:
            raise ValueError("Object arrays")
        if header.dtype.subdtype is not None:
            raise ValueError(f"its numbers are of type {header.dtype}")
        shape, item = header.shape, max(header.dtype.itemsize, 1)
        too_large = prod(max(n, 1) for n in shape) * item >= 2**63
        if len(shape) > MOST_AXES or min(shape, default=0) < 0 or too_large:
            raise ValueError(f"no array can have the shape {shape}")
        if header.start + header.size > size:
            raise EOFError
    return header


# ---- .npz ----


class Archive(NamedTuple):
    """An open .npz archive."""

    name: str
    file: zipfile.ZipFile
    chosen: tuple[str, ...] | None
    """Arrays that the user has named; None: all."""

    def members(self) -> list[tuple[zipfile.ZipInfo, bool]]:
        """Return all members, each with whether it is chosen; refuse archives without vectors."""
        members = self.file.infolist()
        names = [array_name(member) for member in members]
        if not names:
            raise ValueError(f"{self.name} has no arrays")
        name, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise ValueError(
                f"{self.name} has {count} arrays of the name '{printable(name)}': which one is "
                "meant cannot be told"
            )
        for name in self.chosen or ():
            if name not in names:
                raise ValueError(
                    f"--arrays: {self.name} has no array '{name}', but {listed(names)}"
                )
        scipy = any(SCIPY_ALWAYS | places <= set(names) for places in SCIPY_PLACES)
        if scipy and self.chosen is None:
            raise ValueError(
                f"{self.name} is a sparse array of SciPy's: its members ({listed(names)}) are no "
                "vectors. Load it as x = scipy.sparse.load_npz(...) and save x.toarray() with "
                "numpy.save, or call hoyer.project_sparse(x.toarray(), ...) for a sparse result "
                "(hoyer.sparseness takes x as it is); --arrays takes members as they are"
            )
        return [
            (member, self.chosen is None or array_name(member) in self.chosen) for member in members
        ]

    def label(self, member: zipfile.ZipInfo) -> str:
        """Return what messages call an array."""
        return f"{self.name}, array '{printable(array_name(member))}',"

    def read(self, member: zipfile.ZipInfo) -> FileArray:
        """Return an array, if it is complete, of plain numbers, and fits into memory."""
        name, wanted = self.label(member), "an array of plain numbers"
        alone = self.chosen is not None or len(self.file.infolist()) == 1
        advice = "" if alone else "; name the arrays that are meant with --arrays"
        if not member.filename.endswith(".npy"):
            raise ValueError(
                f"{self.name} has '{printable(member.filename)}' in it, which is no array: name "
                "those that are meant with --arrays"
            )
        with damage(name, wanted):
            file = self.file.open(member)
        with file:
            try:
                header = read_header(file, name, wanted, member.file_size)
            except ValueError as error:
                raise ValueError(f"{error}{advice}") from error
            require_memory(name, header.size)
            with damage(name, wanted):
                file.seek(0)
                values = np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        single = values.ndim == 0 and self.chosen is None
        return FileArray(name, array_name(member), values, single=single, advice=advice)

    def copy(self, member: zipfile.ZipInfo, target: zipfile.ZipFile) -> None:
        """Append a member to another archive unchanged, whatever it is."""
        name, wanted = self.label(member), "readable"
        with damage(name, wanted):
            file = self.file.open(member)
        with file, target.open(_like(member), "w", force_zip64=True) as out:
            while True:
                with damage(name, wanted):
                    piece = file.read(PIECE)
                if not piece:
                    return
                out.write(piece)


@contextmanager
def open_npz(file: BinaryIO, name: str, chosen: tuple[str, ...] | None) -> Iterator[Archive]:
    """Open an archive."""
    if os.fstat(file.fileno()).st_size == 0:
        raise ValueError(f"{name} is empty")
    with damage(name, "a .npz archive"):
        archive = zipfile.ZipFile(file)
    with archive:
        yield Archive(name, archive, chosen)


def write_member(archive: zipfile.ZipFile, like: zipfile.ZipInfo, array: Array) -> None:
    """Append an array to an archive, under the name and with the compression it had before."""
    with archive.open(_like(like), "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def array_name(member: zipfile.ZipInfo) -> str:
    """Return the name that `numpy.load` gives an array."""
    return member.filename.removesuffix(".npy")


def _like(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    new = zipfile.ZipInfo(member.filename)
    new.compress_type = member.compress_type
    return new


# ---- what is wrong ----


@contextmanager
def damage(name: str, wanted: str) -> Iterator[None]:
    """Turn whatever NumPy, zipfile and the decompressors raise into a message for the user."""
    try:
        with warnings.catch_warnings():
            # NumPy warns of files that Python 2 wrote, which are as good as others.
            warnings.simplefilter("ignore")
            yield
    except MemoryError:
        raise
    # Which exceptions damaged bytes lead to is not documented; there are a dozen.
    except Exception as error:
        # EINVAL: damage made zipfile seek to a place before the beginning of the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise ValueError(f"cannot read {name.rstrip(',')}: {error.strerror}") from error
        text = textwrap.shorten(str(error), 200, placeholder=" ...")
        said = f"is not {wanted}, or is damaged: {text}"
        if "Object arrays" in text:
            said = "holds pickled Python objects, which hoyer never loads: save plain numbers"
        elif isinstance(error, EOFError) or "EOF" in text:
            said = "is incomplete: it ends before its last number"
        raise ValueError(f"{name} {said}") from error
