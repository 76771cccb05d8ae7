"""Files that appear when they are complete, or not at all."""

import atexit
import gc
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..system import KEEPS_OPEN_FILES, NO_LINKS, NO_WAIT, keep_permissions, lock, open_folder
from .names import STANDARD, target_name

PART = re.compile(r"\.hoyer-[0-9a-f]{12}\.part")


@contextmanager
def replacing(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` at the end of the block.

    Until then it lies beside it under another name, and it is removed if the block does not come to
    its end; those of runs that were killed are removed as well. A symbolic link stays one: what it
    points to is replaced. With `force` a file that is there is replaced, and its permissions are
    kept; without it is an error. For standard output ("-") it is a temporary file, printed at the
    end of the block. Every OSError inside the block is taken for a failure to write.
    """
    try:
        if path == STANDARD:
            with tempfile.TemporaryFile() as file:
                yield file
                file.seek(0)
                shutil.copyfileobj(file, sys.stdout.buffer)
                sys.stdout.buffer.flush()
        else:
            with replacing_file(path, force=force) as file:
                yield file
    except BrokenPipeError:  # nobody wants to read on: no error to speak of
        raise
    except OSError as error:
        raise ValueError(f"cannot write {target_name(path)}: {error.strerror or error}") from error


@contextmanager
def replacing_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Do what `replacing` does for a path, and let every OSError through."""
    target = Path(os.path.realpath(path))
    refuse_existing(path, force=force)
    remove_left_over(target.parent)
    temporary, file = create_part(target.parent)
    try:
        # It stays open, and therefore locked, until it has its final name, if that can be.
        with file:
            if target.exists():
                keep_permissions(file.fileno(), target.stat())
            yield file
            file.flush()
            os.fsync(file.fileno())
            refuse_existing(path, force=force)
            if not KEEPS_OPEN_FILES:
                temporary.replace(target)
        if KEEPS_OPEN_FILES:
            temporary.replace(target)
        synchronize_folder(target.parent)
    finally:
        _remove(temporary)


def _remove(path: Path) -> None:
    """Remove a file that is incomplete, or has its final name already.

    Where the error that ended the run still holds a map of it, and the system keeps what is open or
    mapped, it is removed when this process ends.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError:
        if KEEPS_OPEN_FILES:
            atexit.register(_remove_at_last, path)


def _remove_at_last(path: Path) -> None:
    # From Python 3.12 on what the error held may be waiting for the garbage collector.
    gc.collect()
    with suppress(OSError):
        path.unlink()


def part_name(folder: Path) -> Path:
    """Return a new name for a result that is not complete; `PART` knows it."""
    return folder / f".hoyer-{secrets.token_hex(6)}.part"


def create_part(folder: Path) -> tuple[Path, BinaryIO]:
    """Create a file for a result that is not complete; it is locked as long as it is open."""
    while True:
        path = part_name(folder)
        file = path.open("x+b")
        with suppress(OSError):  # where there are no locks, nobody removes what is locked
            lock(file.fileno(), wait=True)
        # Another run may have seen it before it was locked, and removed it as left over.
        if os.fstat(file.fileno()).st_nlink:
            return path, file
        file.close()


FRESH = 3600.0
"""Seconds for which a result is left alone that nobody has locked, where it must be closed, and so
unlocked, to get its final name."""


def remove_left_over(folder: Path) -> None:
    """Remove the incomplete results of runs that were killed: those that nobody has locked."""
    names = []
    with suppress(OSError):  # a folder may be written to without being readable
        names = [name for name in os.listdir(folder) if PART.fullmatch(name)]
    for name in names:
        path = folder / name
        with suppress(OSError):
            if KEEPS_OPEN_FILES and time.time() - path.stat().st_mtime < FRESH:
                continue
            descriptor = os.open(path, os.O_RDONLY | NO_LINKS | NO_WAIT)
            try:
                lock(descriptor, wait=False)
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    shutil.rmtree(path)
                elif not KEEPS_OPEN_FILES:
                    path.unlink()
            finally:
                os.close(descriptor)
            if KEEPS_OPEN_FILES:
                path.unlink()


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there, unless it is a file and `force` is set."""
    if path == STANDARD or not path.exists():
        return
    if not path.is_file():
        raise ValueError(f"cannot write {target_name(path)}: it is there and not a regular file")
    if not force:
        raise ValueError(f"{target_name(path)} exists: add --force to replace it")


def synchronize_folder(folder: Path) -> None:
    """Write the new name to disk as well, where the file system can do that."""
    with suppress(OSError):
        descriptor = open_folder(folder)
        if descriptor is None:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
