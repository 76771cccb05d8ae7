"""The machine: what it is, and which of its cores this process runs on."""

import datetime
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hoyer
from hoyer import _core

PACKAGES = ("hoyer", "numpy", "scipy", "scikit-learn", "torch", "torchnmf", "jax", "jaxlib")

ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""The cores this process was given."""

KEPT, FRESH = "memory used again", "fresh memory"
MEMORY = {
    KEPT: {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(2**40),
    },
    FRESH: {"MALLOC_MMAP_THRESHOLD_": str(2**20)},
}
"""What tells glibc's allocator, when a process starts, where large arrays come from.

By itself it keeps or returns them by what was freed before and by which thread, so that one
contestant may have to fetch every page anew, and the other none, in whole series.
"""


def start_again_with(memory: str) -> None:
    """Let this process start again, unless it was started so, with arrays from such memory."""
    wanted = MEMORY[memory]
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, sys.orig_argv, os.environ | wanted)


def describe() -> dict[str, Any]:
    """Return what a reader needs to judge the numbers; nothing that names the machine."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu_model(),
        "instruction set": _core.ISA,
        "cores": len(ALLOWED) or os.cpu_count(),
        "pinned": bool(ALLOWED),
        "caches": caches(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
        "load before": round(os.getloadavg()[0], 2),
    }


def cpu_model() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def caches() -> dict[str, str]:
    """Return the sizes of the data caches of one core."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (folder / name).read_text(encoding="utf-8").strip()
            for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found[f"L{level}"] = size
    return found


def installed(name: str) -> str | None:
    """Return the version of a package, None without it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pin(cores: int) -> None:
    """Keep all threads of this process on the last so many of its cores, where this can be done.

    Threads that exist already are moved too: a thread pool made while the process sat on one core
    would stay there.
    """
    if ALLOWED:
        for task in threads():
            os.sched_setaffinity(task, ALLOWED[-cores:])


def threads() -> Iterable[int]:
    """Return the system's numbers of the threads of this process."""
    folder = Path("/proc/self/task")
    return [int(task.name) for task in folder.iterdir()] if folder.is_dir() else [0]


def set_threads(number: int) -> None:
    """Set hoyer's number of threads, if it has any."""
    if hasattr(hoyer, "set_num_threads"):
        hoyer.set_num_threads(number)
