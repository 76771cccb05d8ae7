"""Dask arrays on two small workers: ``python -m benchmarks.dask_arrays [--quick] [--out DIR]``.

A vector on disk in 32 chunks, larger than its half of the workers' memory: what a projection takes
beside reading the file once, beside ``x / norm(x)``, and beside a sort, for which workers may need
far more memory. The result is summed up chunk by chunk, so that it never is in one place. And many
small chunks of rows, beside a copy of each.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import dask.array as da
import numpy as np
from dask.distributed import Client, KilledWorker, LocalCluster

import hoyer
from hoyer.families.dask import split

from . import machine
from .timing import Contestant, Quartiles, Settings, race, ratios

SPARSENESS = 0.9
CHUNKS = 32
WORKERS = 2
MEMORY, MEMORY_TO_SORT = "384MiB", "6GiB"
CLUSTER: dict[str, Any] = {
    "n_workers": WORKERS,
    "threads_per_worker": 1,
    "memory_limit": MEMORY,
    "dashboard_address": ":0",
}
READ, PROJECT, NORM, SORT = "read once", "project", "x / norm", "sort"


class Line(NamedTuple):
    """A measurement beside its goal."""

    case: str
    against: str
    measured: str
    firm: str
    aim: str


def stored(folder: Path, exponent: int) -> da.Array:
    """Write normal numbers to a stack of .npy files, and return it."""
    n = 1 << exponent
    x = da.random.default_rng(exponent).normal(size=n, chunks=n // CHUNKS).astype(np.float32)
    da.to_npy_stack(str(folder), x)
    return da.from_npy_stack(str(folder), mmap_mode=None)


def evict(folder: Path) -> None:
    """Let the system forget what it has in memory of some files."""
    os.sync()
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def summed(x: da.Array) -> Callable[[], Any]:
    """Return a call that computes all chunks, and keeps none."""
    return lambda: x.sum(dtype=np.float64).compute()


def largest_memory(client: Client, call: Callable[[], Any]) -> tuple[float, float]:
    """Return by how many bytes a worker has grown at most during a call, and what it spilled."""
    client.run(_watch)
    call()
    peaks = client.run(_watched).values()
    spilled = client.run(_spilled).values()
    return max(peaks), sum(spilled)


def _watch(dask_worker: Any) -> None:
    """Begin to note the memory of this worker, hundreds of times a second."""
    import gc  # noqa: PLC0415 - on the worker
    import threading  # noqa: PLC0415

    import psutil  # noqa: PLC0415

    gc.collect()
    process = psutil.Process()
    dask_worker.hoyer_base = dask_worker.hoyer_peak = process.memory_info().rss
    dask_worker.hoyer_watching = True

    def watch() -> None:
        while dask_worker.hoyer_watching:
            rss = process.memory_info().rss
            dask_worker.hoyer_peak = max(dask_worker.hoyer_peak, rss)
            time.sleep(0.002)

    threading.Thread(target=watch, daemon=True).start()


def _watched(dask_worker: Any) -> float:
    dask_worker.hoyer_watching = False
    return float(dask_worker.hoyer_peak - dask_worker.hoyer_base)


def _spilled(dask_worker: Any) -> float:
    data = dask_worker.data
    return float(getattr(data, "spilled_total", (0, 0))[0]) if hasattr(data, "disk") else 0.0


def divided(folder: Path, exponent: int, settings: Settings) -> list[Line]:
    """Measure one vector in chunks on disk."""
    x = stored(folder / "x", exponent)
    contestants = {
        READ: summed(x),
        PROJECT: summed(hoyer.project(x, SPARSENESS)),
        NORM: summed(x / da.sqrt((x * x).sum(dtype=np.float64)).astype(np.float32)),
    }
    with patch.object(split, "can_read_again", lambda array: False):
        keeping = summed(hoyer.project(x, SPARSENESS))
    chunk = x.nbytes / CHUNKS
    lines = []
    with LocalCluster(**CLUSTER) as cluster, Client(cluster) as client:
        contestants[PROJECT]()
        seconds = race([Contestant(*pair) for pair in contestants.items()], settings)
        for name in (PROJECT, NORM):
            found = ratios(seconds[name], seconds[READ])
            goals = ("3", "2.2") if name == PROJECT else ("", "")
            lines.append(Line(f"{name}, 2^{exponent} float32", READ, _spread(found), *goals))
        forget = partial(evict, folder / "x")
        cold = race(
            [Contestant(name, contestants[name], forget) for name in (READ, PROJECT)], settings
        )
        found = ratios(cold[PROJECT], cold[READ])
        lines.append(
            Line(
                f"project, 2^{exponent} float32, not in the page cache before",
                READ,
                _spread(found),
                "3",
                "2.2",
            )
        )
        print(f"cold read {np.median(cold[READ]):.2f} s", flush=True)
        peak, spilled = largest_memory(client, contestants[PROJECT])
        lines.append(
            Line(
                "peak memory of a worker while it projects, less the chunk it works on",
                "a chunk",
                f"{peak / chunk - 1:.1f} ({spilled / 2**20:.0f} MiB spilled)",
                "2",
                "1",
            )
        )
        peak, spilled = largest_memory(client, contestants[READ])
        lines.append(Line("the same while it reads", "a chunk", f"{peak / chunk - 1:.1f}", "", ""))
        start = time.perf_counter()
        keeping()
        took = time.perf_counter() - start
        kept_ratio = took / float(np.median(seconds[READ]))
        lines.append(Line("project, chunks kept in memory", READ, f"{kept_ratio:.2f}", "", ""))
        print(f"read {np.median(seconds[READ]):.2f} s", flush=True)
    return lines


def beside_a_sort(folder: Path, exponent: int) -> list[Line]:
    """Measure a projection and a sort of a vector, by turns; both on the same large workers.

    Also see whether the sort comes to its end on the small ones, which may run out of memory.
    """
    x = stored(folder / "y", exponent)
    # Dask has no sort of arrays; that of frames exchanges all entries by their quantiles.
    frame = x[:, None].to_dask_dataframe(columns=["x"])
    calls: dict[str, Callable[[], Any]] = {
        PROJECT: summed(hoyer.project(x, SPARSENESS)),
        SORT: lambda: frame.sort_values("x").x.sum().compute(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    with LocalCluster(**CLUSTER) as cluster, Client(cluster):
        try:
            calls[SORT]()
            ended = "it ends"
        except KilledWorker:
            ended = "killed: no memory"
    large = CLUSTER | {"memory_limit": MEMORY_TO_SORT}
    with LocalCluster(**large) as cluster, Client(cluster):
        calls[PROJECT]()
        for _ in range(3):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)
    faster = ratios(seconds[SORT], seconds[PROJECT])
    case = f"project, 2^{exponent} float32, workers of {MEMORY_TO_SORT}: times as fast"
    return [
        Line(f"whether the sort ends on workers of {MEMORY}, as projections do", "", ended, "", ""),
        Line(case, "a Dask sort", _spread(faster), "50", "80"),
    ]


def rows(settings: Settings) -> list[Line]:
    """Measure what a chunk costs beside the work in it: many small ones, in threads."""
    x = np.random.default_rng(0).normal(size=(4096, 64)).astype(np.float32)
    lines = []
    for height in (4, 64):
        array = da.from_array(x, chunks=(height, 64)).persist()
        blocks = [x[i : i + height] for i in range(0, len(x), height)]
        projected: Any = hoyer.project(array, SPARSENESS)
        copied = array.map_blocks(np.copy)
        calls: dict[str, Callable[[], Any]] = {
            "dask project": partial(projected.compute, scheduler="sync"),
            "dask copy": partial(copied.compute, scheduler="sync"),
            "project": partial(_each, partial(hoyer.project, sparseness=SPARSENESS), blocks),
            "copy": partial(_each, np.copy, blocks),
        }
        seconds = race([Contestant(*pair) for pair in calls.items()], settings)
        ours = np.subtract(seconds["dask project"], seconds["project"])
        theirs = np.subtract(seconds["dask copy"], seconds["copy"])
        found = ratios(ours.tolist(), theirs.tolist())
        case = f"rows in {len(blocks)} chunks of {height} x 64: overhead per chunk"
        lines.append(Line(case, "map_blocks of a copy", _spread(found), "1.2", "1.05"))
    return lines


def _each(function: Callable[[Any], Any], blocks: list[Any]) -> list[Any]:
    return [function(one) for one in blocks]


def _spread(found: Quartiles) -> str:
    return f"{found.median:.2f} ({found.low:.2f}–{found.high:.2f})"


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="vectors an eighth as long")
    parser.add_argument("--only", choices=["rows", "divided", "sort"], nargs="+")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    exponent = 24 if options.quick else 27
    settings = Settings(rounds=5, least=1e-3, most=20.0)
    folder = Path(tempfile.mkdtemp())
    only = options.only or ["rows", "divided", "sort"]
    lines = []
    try:
        if "rows" in only:
            lines += rows(settings)
        if "divided" in only:
            lines += divided(folder, exponent, settings)
        if "sort" in only:
            lines += beside_a_sort(folder, exponent)
    finally:
        shutil.rmtree(folder)
    head = Line("case", "against", "median (quartiles)", "firm goal", "aim")
    table = [head, Line(*("---",) * len(head)), *lines]
    text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    print(text)
    if options.only:
        return
    told = ", ".join(f"{name} {value}" for name, value in machine.describe().items())
    about = (
        f"# Dask arrays\n\n{date.today()}; {told}. By `python -m "
        f"benchmarks.dask_arrays`: {WORKERS} workers of one thread and {MEMORY}, vectors of normal "
        f"numbers in {CHUNKS} chunks on disk (in the page cache, but where said), sparseness "
        f"{SPARSENESS}. Ratios of rounds that take turns.\n\n"
    )
    (options.out / "dask.md").write_text(about + text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
