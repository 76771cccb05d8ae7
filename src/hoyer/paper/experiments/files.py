"""The directory of a run: files that are never half written, and one run at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hoyer.system import lock

__all__ = ["alone_with", "replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a file to write that takes the place of `path` when the block comes to its end."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Keep a file, and so its directory, from other runs: two would spoil each other's tables.

    Raises
    ------
    ValueError
        If another run has it.
    """
    with path.open() as file:
        try:
            lock(file.fileno(), wait=False)
        except (BlockingIOError, PermissionError):
            raise ValueError(
                f"another run is writing to {path.parent}: wait for it, or choose another directory"
            ) from None
        yield
