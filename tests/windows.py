"""Windows as Python's programs notice it, on Linux: `pretend()` before `hoyer.cli` is loaded.

No fcntl, no SIGHUP, no owners, nothing to reserve disk space or to count processors by; folders
cannot be opened; what is open or mapped can be neither removed nor replaced nor renamed; locks are
msvcrt's.
"""

import contextlib
import ctypes
import importlib
import os
import shutil
import signal
import sys
import types
from pathlib import Path

MISSING = ("fchown", "fchmod", "posix_fallocate", "sched_getaffinity", "sysconf")
MISSING += ("O_NONBLOCK", "O_NOFOLLOW")
MEMORY = 2**34


def pretend():
    """Take away what Windows does not have, and put there what it has instead."""
    import fcntl

    # What asks others than us which system this is: it knows already.
    others = ("multiprocessing.connection", "subprocess", "typer", "rich.progress")
    for name in (*others, "dask.array", "distributed", "locket"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    sys.modules["msvcrt"] = _msvcrt(fcntl)
    sys.modules["fcntl"] = None
    del signal.SIGHUP
    for name in MISSING:
        delattr(os, name)
    os.open = _opening_files_alone(os.open)
    for name in ("unlink", "remove", "replace", "rename"):
        setattr(os, name, _sparing_what_is_open(getattr(os, name)))
    shutil.rmtree = _rmtree
    kernel32 = types.SimpleNamespace(GlobalMemoryStatusEx=_memory)
    ctypes.windll = types.SimpleNamespace(kernel32=kernel32)

    from hoyer import system

    system.KEEPS_OPEN_FILES = True


def _msvcrt(fcntl):
    def locking(descriptor, mode, size):
        assert size == 1
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 2**40, "what others read is locked"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if mode == 2 else 0))
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    return types.SimpleNamespace(LK_LOCK=1, LK_NBLCK=2, locking=locking)


def _opening_files_alone(real):
    def opening(path, flags, *arguments, **options):
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, *arguments, **options)

    return opening


def _is_held(path):
    path = os.path.realpath(path)
    opened = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            opened.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue
    return path in opened or f" {path}\n" in Path("/proc/self/maps").read_text(encoding="utf-8")


def _sparing_what_is_open(real):
    def doing(*paths, **options):
        # What is taken away, and what would be lost where another takes its place.
        for path in paths:
            if "dir_fd" not in options and Path(path).is_file() and _is_held(path):
                raise PermissionError(13, "The process cannot access the file", str(path))
        return real(*paths, **options)

    return doing


def _rmtree(path, ignore_errors=False):
    """The real one opens folders."""
    for folder, _, names in os.walk(path, topdown=False):
        for name in names:
            os.unlink(Path(folder, name))
        os.rmdir(folder)


def _memory(found):
    found._obj.total, found._obj.available = 2 * MEMORY, MEMORY
    return 1
