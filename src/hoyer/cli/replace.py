"""Files that appear when they are complete, or not at all."""

import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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
        raise ValueError(f"cannot write {target_name(path)}: {error.strerror}") from error


@contextmanager
def replacing_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Do what `replacing` does for a path, and let every OSError through."""
    target = Path(os.path.realpath(path))
    refuse_existing(path, force=force)
    remove_left_over(target.parent)
    temporary, file = create_part(target.parent)
    try:
        # It stays open, and therefore locked, until it has its final name.
        with file:
            keep_permissions(file.fileno(), target)
            yield file
            file.flush()
            os.fsync(file.fileno())
            refuse_existing(path, force=force)
            temporary.replace(target)
        synchronize_folder(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def part_name(folder: Path) -> Path:
    """Return a new name for a result that is not complete; `PART` knows it."""
    return folder / f".hoyer-{secrets.token_hex(6)}.part"


def create_part(folder: Path) -> tuple[Path, BinaryIO]:
    """Create a file for a result that is not complete; it is locked as long as it is open."""
    while True:
        path = part_name(folder)
        file = path.open("x+b")
        with suppress(OSError):  # where there are no locks, nobody removes what is locked
            fcntl.flock(file, fcntl.LOCK_EX)
        # Another run may have seen it before it was locked, and removed it as left over.
        if os.fstat(file.fileno()).st_nlink:
            return path, file
        file.close()


def remove_left_over(folder: Path) -> None:
    """Remove the incomplete results of runs that were killed: those that nobody has locked."""
    names = []
    with suppress(OSError):  # a folder may be written to without being readable
        names = [name for name in os.listdir(folder) if PART.fullmatch(name)]
    for name in names:
        path = folder / name
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    shutil.rmtree(path)
                else:
                    path.unlink()
            finally:
                os.close(descriptor)


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there, unless it is a file and `force` is set."""
    if path == STANDARD or not path.exists():
        return
    if not path.is_file():
        raise ValueError(f"cannot write {target_name(path)}: it is there and not a regular file")
    if not force:
        raise ValueError(f"{target_name(path)} exists: add --force to replace it")


def keep_permissions(descriptor: int, target: Path) -> None:
    """Give the new file the owner and the permissions of the one it will replace."""
    if not target.exists():
        return
    old = target.stat()
    with suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def synchronize_folder(folder: Path) -> None:
    """Write the new name to disk as well, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
