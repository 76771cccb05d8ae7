"""DTensors over two processes: ``python -m benchmarks.torch_distributed [--quick] [--out DIR]``.

What a user would do without us takes turns with the call on a DTensor: bring all of it to every
rank, project, and keep the own part. Where vectors are whole, it is the call on the local tensor.
The processes share one machine, so what they send goes through its memory: over a network
the rival would lose by more. What is sent is counted.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.multiprocessing.spawn import spawn

import hoyer

from . import machine
from .timing import Quartiles, ratios

PROCESSES, SPARSENESS = 2, 0.9
ROUNDS, QUICK = 15, 5


class Case(NamedTuple):
    """A DTensor, and what is done with it."""

    name: str
    shape: tuple[int, ...]
    dim: int
    """Along which it is divided."""
    dtype: torch.dtype
    backward: bool = False


class Outcome(NamedTuple):
    """What came out of a case."""

    name: str
    rival: str
    ratio: Quartiles
    milliseconds: float
    collectives: int
    kilobytes: float
    """What a rank hands to all-reduces."""


CASES = [
    Case("rows of 1024, whole", (8192, 1024), 0, torch.float32),
    Case("the same, forward and backward", (8192, 1024), 0, torch.float32, True),
    Case("rows of 1024, each divided", (8192, 1024), 1, torch.float32),
    Case("one vector of 2^24", (2**24,), 0, torch.float32),
    Case("the same, forward and backward", (2**24,), 0, torch.float32, True),
    Case("eight vectors of 2^20, each divided", (8, 2**20), 1, torch.float32),
    Case("one vector of 2^22, float64", (2**22,), 0, torch.float64),
]


def project(x: Any, gradient: Any) -> Any:
    """Project, and go back if there is a gradient."""
    return back(x, hoyer.project(x, SPARSENESS), gradient)


def gathered(x: Any, gradient: Any) -> Any:
    """Do the same by bringing all to every rank; autograd brings the gradients back."""
    mesh, placements = x.device_mesh, x.placements
    whole = hoyer.project(x.full_tensor(), SPARSENESS)
    return back(x, distribute_local(whole, mesh, placements), gradient)


def back(x: Any, value: Any, gradient: Any) -> Any:
    """Go back if there is a gradient; each time anew, rather than to add to what was there."""
    if gradient is not None:
        x.grad = None
        value.backward(gradient)
    return value


def distribute_local(whole: Any, mesh: Any, placements: Any) -> DTensor:
    """Return the own part of what every rank has."""
    shared = DTensor.from_local(whole, mesh, [Replicate()], run_check=False)
    return shared.redistribute(placements=placements)


def contestants(case: Case, mesh: Any) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """Return the rival's name, our call and the rival's."""
    torch.manual_seed(0)
    x = distribute_tensor(torch.randn(case.shape, dtype=case.dtype), mesh, [Shard(case.dim)])
    y = distribute_tensor(torch.randn(case.shape, dtype=case.dtype), mesh, [Shard(case.dim)])
    x.requires_grad_(case.backward)
    given = y if case.backward else None
    if case.dim != len(case.shape) - 1:
        own = x.to_local().detach().clone().requires_grad_(case.backward)
        local = y.to_local() if case.backward else None
        return "the local tensor", lambda: project(x, given), lambda: project(own, local)
    return "all of it on every rank", lambda: project(x, given), lambda: gathered(x, given)


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds from when all ranks begin to when all have ended."""
    dist.barrier()
    start = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - start


def sent(call: Callable[[], Any]) -> tuple[int, float]:
    """Return how many collectives a call makes, and how many kilobytes a rank sums up."""
    sizes: list[int] = []
    own: Any = dist.all_reduce

    def counting(numbers: Any, *rest: Any, **named: Any) -> Any:
        sizes.append(numbers.nbytes)
        return own(numbers, *rest, **named)

    setattr(dist, "all_reduce", counting)  # noqa: B010 - mypy knows its type
    try:
        with CommDebugMode() as counts:
            call()
    finally:
        dist.all_reduce = own
    return counts.get_total_counts(), sum(sizes) / 1e3


def outcome(case: Case, mesh: Any, rounds: int) -> Outcome:
    """Measure one case."""
    rival, ours, theirs = contestants(case, mesh)
    timed(ours), timed(theirs)
    collectives, kilobytes = sent(ours)
    mine, others = [], []
    for _ in range(rounds):
        mine.append(timed(ours))
        others.append(timed(theirs))
    median = 1e3 * statistics.median(mine)
    return Outcome(case.name, rival, ratios(mine, others), median, collectives, kilobytes)


def run(rank: int, folder: str, rounds: int, out: Path) -> None:
    """Do what one of the processes does."""
    torch.set_num_threads(1)
    where = f"file://{Path(folder) / 'meeting'}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    load, outcomes = os.getloadavg()[0], []
    for case in CASES:
        outcomes.append(outcome(case, mesh, rounds))
        if rank == 0:
            print(outcomes[-1], flush=True)
    if rank == 0:
        text = report(outcomes, load, quick=rounds == QUICK)
        (out / "torch_distributed.md").write_text(text, encoding="utf-8")
    dist.destroy_process_group()


def report(outcomes: list[Outcome], load: float, *, quick: bool) -> str:
    """Return the page of results."""
    known = machine.describe()
    lines = [
        "# DTensors over two processes",
        "",
        f"`python -m benchmarks.torch_distributed{' --quick' if quick else ''}`, "
        f"{date.today().isoformat()}; {known.get('cpu', '')}, {os.cpu_count()} processors; gloo, "
        f"one thread in each process; sparseness {SPARSENESS}, normal data; load of the machine "
        f"before: {load:.2f}. A ratio is that of the times of a call on a DTensor and of its "
        "rival, measured in turns: the median of those within the rounds, with its quartiles. "
        "(gloo has no all-to-all for DTensors: there an exchange is an all-gather.) What a rank "
        "hands to the all-reduces of a search is in the last column.",
        "",
        "| case | rival | ours / rival | ms | collectives | kB summed up |",
        "|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        ratio = f"{one.ratio.median:.3g} ({one.ratio.low:.3g} to {one.ratio.high:.3g})"
        kilobytes = f"{one.kilobytes:.0f}" if one.kilobytes else "–"
        lines.append(
            f"| {one.name} | {one.rival} | {ratio} | {one.milliseconds:.3g} | {one.collectives} | "
            f"{kilobytes} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all cases, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True, parents=True)
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (folder, QUICK if given.quick else ROUNDS, given.out), nprocs=PROCESSES)


if __name__ == "__main__":
    main()
