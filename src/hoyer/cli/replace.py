"""Files that appear when they are complete, or not at all."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` at the end of the block.

    Until then it lies beside it under another name, and it is removed if the block does not come to
    its end. Every OSError inside the block is taken for a failure to write.

    Parameters
    ----------
    path : Path
        Where the file is to be. A symbolic link stays one: what it points to is replaced.
    force : bool
        Whether a file may be there already; it is replaced, and its permissions are kept.

    Raises
    ------
    ValueError
        If a file is there and `force` is not set, or if it cannot be written.
    """
    target = Path(os.path.realpath(path))
    refuse_existing(path, force=force)
    temporary = target.with_name(f".hoyer-{secrets.token_hex(6)}.part")
    try:
        with temporary.open("x+b") as file:
            keep_permissions(file.fileno(), target)
            yield file
            file.flush()
            os.fsync(file.fileno())
        refuse_existing(path, force=force)
        temporary.replace(target)
        synchronize_folder(target.parent)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def refuse_existing(path: Path, *, force: bool) -> None:
    """Refuse to write over what is there, unless it is a file and `force` is set."""
    if not path.exists():
        return
    if not path.is_file():
        raise ValueError(f"cannot write {path}: it is there and not a regular file")
    if not force:
        raise ValueError(f"{path} exists: add --force to replace it")


def keep_permissions(descriptor: int, target: Path) -> None:
    """Give the new file the owner and the permissions of the one it will replace."""
    if not target.exists():
        return
    old = target.stat()
    with suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def synchronize_folder(folder: Path) -> None:
    """Bring the new name to the disk as well, where the file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
