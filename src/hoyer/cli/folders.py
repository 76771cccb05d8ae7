"""Folders that appear when they are complete, or not at all, and which ones they may replace."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..system import keep_permissions, lock, open_folder
from .files import names_folder
from .names import STANDARD, printable, source_name, target_name
from .replace import part_name, remove_left_over, synchronize_folder

# What a Zarr array is made of: its metadata, and chunks under the names of either format.
ZARR_ENTRY = re.compile(r"zarr\.json|\.zarray|\.zattrs|\.zmetadata|c|(c\.)?\d+(\.\d+)*")


def is_zarr_array(path: Path) -> bool:
    """Whether a folder says of itself that it is a Zarr array, not a group of them."""
    if (path / ".zarray").is_file():
        return True
    try:
        metadata = json.loads((path / "zarr.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(metadata, dict) and metadata.get("node_type") == "array"


def refuse_folder(path: Path, given: list[Path], *, force: bool) -> None:
    """Refuse a name that no folder can have, and to replace anything that was not made by us.

    `given` is what the result is made from: the vectors, and the mask if there is one.
    """
    name = target_name(path)
    if path == STANDARD:
        raise ValueError(
            f"the result of {source_name(given[0])} is a folder, which {name} cannot take: name "
            "one as OUT"
        )
    if not names_folder(path):
        raise ValueError(
            f"{name}: the result of {source_name(given[0])} is a folder too, not a {path.suffix} "
            "file: give it another name"
        )
    if not path.exists():
        return
    for one in given:
        if path.resolve() in one.resolve().parents:
            raise ValueError(f"cannot write {name}: {source_name(one)} lies in it")
    reason = _foreign(path)
    if reason is not None:
        raise ValueError(
            f"cannot write {name}: it is there, and neither a Zarr array nor a folder of .npy "
            f"files alone{reason}"
        )
    if not force:
        raise ValueError(f"{name} exists: add --force to replace it")


def _foreign(path: Path) -> str | None:
    """Return why something must not be replaced, to follow other words; None if it may be."""
    if not path.is_dir():
        return ""
    with os.scandir(path) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if is_zarr_array(path):
        foreign = (entry for entry in entries if not ZARR_ENTRY.fullmatch(entry.name))
    else:
        foreign = (e for e in entries if not (e.name.endswith(".npy") and e.is_file()))
    first = next(foreign, None)
    if first is not None:
        return f": {printable(first.name)} is in it"
    return None if entries else ""


@contextmanager
def replacing_folder(path: Path, given: list[Path], *, force: bool) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `path` at the end of the block.

    It is to folders what `replacing` is to files: until the end it lies beside `path`, locked; it
    is removed if the block does not come to its end; a symbolic link stays one.
    """
    target = Path(os.path.realpath(path))
    refuse_folder(path, given, force=force)
    with writing(path):
        remove_left_over(target.parent)
        temporary, descriptor = create_part_folder(target.parent)
    try:
        yield temporary
        refuse_folder(path, given, force=force)
        with writing(path):
            if descriptor is not None and target.exists():
                keep_permissions(descriptor, target.stat())
            _take_place(temporary, target)
            synchronize_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Take every OSError for a failure to write."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot write {target_name(path)}: {error.strerror}") from error


def create_part_folder(folder: Path) -> tuple[Path, int | None]:
    """Create a folder for a result that is not complete, locked until its descriptor is closed.

    Windows opens no folders, so it can lock none: there is no descriptor, and nobody removes it.
    """
    while True:
        path = part_name(folder)
        path.mkdir()
        descriptor = open_folder(path)
        if descriptor is None:
            return path, None
        with suppress(OSError):  # where there are no locks, nobody removes what is locked
            lock(descriptor, wait=True)
        # Another run may have seen it before it was locked, and removed it as left over.
        if path.exists():
            return path, descriptor
        os.close(descriptor)


def _take_place(new: Path, target: Path) -> None:
    """Rename a folder to a name that another may have, which `new` is the name of afterwards.

    No folder can be renamed to one that is there, so for a moment there is none of that name.
    Whoever is killed then leaves the old one as .hoyer-….old, which is never taken for left over.
    """
    if not target.exists():
        new.rename(target)
        return
    old = new.with_suffix(".old")
    try:
        target.rename(old)
        new.rename(target)
    except BaseException:
        if old.exists() and not target.exists():
            old.rename(target)
        raise
    old.rename(new)
