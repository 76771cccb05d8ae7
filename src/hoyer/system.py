"""What differs between operating systems: locks, open files, memory, processors, signals.

Asked for by feature, here and nowhere else. Where a system lacks something the function says what
happens instead.
"""

import ctypes
import errno
import importlib
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "KEEPS_OPEN_FILES",
    "NO_LINKS",
    "NO_WAIT",
    "ending_signals",
    "keep_permissions",
    "lock",
    "open_folder",
    "processors",
    "reserve",
    "spare_memory",
    "total_memory",
]

KEEPS_OPEN_FILES = os.name == "nt"
"""Whether a file cannot be renamed, replaced or removed while somebody has it open, or mapped."""

NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
"""A flag for opening what may be a pipe that nobody writes to; files do not care."""

NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)
"""A flag for opening what may be a link, which is then an error."""

# Far behind the end of any file, so that what Windows locks can still be read.
_FAR = 2**43


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file, or folder, until it is closed or this process ends.

    Raises
    ------
    OSError
        If it cannot be locked; without `wait` also, as a `BlockingIOError` or `PermissionError`, if
        another process, or another descriptor, has locked it.
    """
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ModuleNotFoundError:
        _lock_far(importlib.import_module("msvcrt"), descriptor, wait=wait)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _lock_far(msvcrt: Any, descriptor: int, *, wait: bool) -> None:
    """Lock a byte where no file has one: Windows locks bytes, which nobody else may then read."""
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
                return
            except OSError as error:
                # LK_LOCK gives up after ten seconds.
                if not wait or error.errno != errno.EDEADLOCK:
                    raise
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def open_folder(path: Path) -> int | None:
    """Open a folder; None on systems that open files alone."""
    try:
        return os.open(path, os.O_RDONLY)
    except PermissionError:
        if KEEPS_OPEN_FILES:
            return None
        raise


def keep_permissions(descriptor: int, old: os.stat_result) -> None:
    """Give an open file the owner and the permissions of another, where the system has them."""
    if not hasattr(os, "fchown"):
        return
    with suppress(PermissionError):  # only root gives files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o7777)


def reserve(file: BinaryIO, size: int) -> None:
    """Make a file so long, and see to it that the disk has room for it.

    Where nothing can be reserved, what is free at the moment must be enough.
    """
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
            return
        except OSError as error:
            # Some file systems reserve nothing; glibc then writes zeros, other libraries refuse.
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    free = shutil.disk_usage(Path(file.name).parent).free if isinstance(file.name, str) else size
    if free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.truncate(size)


def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def spare_memory() -> int:
    """Return how many bytes could still be used without swapping; where nobody knows, all."""
    if hasattr(ctypes, "windll"):
        return _windows_memory().available
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return total_memory()


def total_memory() -> int:
    """Return how many bytes of memory the machine has."""
    if hasattr(ctypes, "windll"):
        return _windows_memory().total
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Memory(ctypes.Structure):
    """MEMORYSTATUSEX."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )
    total: int
    available: int


def _windows_memory() -> _Memory:
    found = _Memory(length=ctypes.sizeof(_Memory))
    windows: Any = ctypes.__dict__["windll"]
    if not windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(found)):
        raise OSError("Windows does not tell how much memory there is")
    return found


def ending_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to end, beside that of Ctrl-C."""
    return [signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])
