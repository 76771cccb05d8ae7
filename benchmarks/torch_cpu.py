"""PyTorch on the CPU: ``python -m benchmarks.torch_cpu [--quick] [--out DIR]``.

Forward and backward of `hoyer.project` on tensors against torch.softmax, a projection by sorting
written in PyTorch, and entmax's sparsemax and entmax_bisect; one thread and two. All contestants
take turns, and ratios are taken within the rounds (see README.md).
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import entmax
import numpy as np
import torch

import hoyer

from . import machine
from .timing import (
    FULL,
    QUICK,
    Contestant,
    Quartiles,
    Settings,
    microseconds,
    quartiles,
    race,
    ratios,
)
from .torch_peers import sorting

OURS, SOFTMAX = "hoyer.project", "torch.softmax"
SORTING, SPARSEMAX, BISECT = "sorting in torch", "entmax.sparsemax", "entmax.entmax_bisect"
WRAPPED = "torch.softmax in a Python autograd.Function"
ROWS, LENGTHS = 4096, (256, 512, 1024, 2048, 4096)
SPARSENESS = 0.9

Tensor = torch.Tensor
Result = TypeVar("Result")


class Case(NamedTuple):
    """One comparison."""

    direction: str
    rows: int
    n: int
    threads: int

    def __str__(self) -> str:
        shape = f"{self.rows} rows of {self.n}" if self.rows > 1 else f"one vector of {self.n}"
        return f"{self.direction}, {shape}, {self.threads} thread{'s' * (self.threads > 1)}"


class Outcome(NamedTuple):
    """What came out of it."""

    case: Case
    seconds: dict[str, Quartiles]
    ratio: Quartiles
    """Ours over the one that the goal names."""
    bound: float
    against: str
    error: float
    """Largest error of our result, in eps of float32 times the largest entry."""

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio.median <= self.bound


class Wrapped(torch.autograd.Function):
    """torch.softmax as a user would wrap it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Softmax of the last axis."""
        value = torch.softmax(x, -1)
        ctx.save_for_backward(value)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Its gradient product."""
        (value,) = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, value, -1, value.dtype)


def functions() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the contestants."""
    return {
        OURS: lambda x: hoyer.project(x, SPARSENESS),
        SOFTMAX: lambda x: torch.softmax(x, -1),
        SORTING: lambda x: sorting(x, SPARSENESS),
        SPARSEMAX: lambda x: entmax.sparsemax(x, dim=-1),
        BISECT: lambda x: entmax.entmax_bisect(x, alpha=1.5, dim=-1),
    }


def contestants(case: Case, x: Tensor, names: dict[str, Any]) -> Iterator[Contestant]:
    """Return what is timed: calls on x, or backward passes of graphs made once."""
    gradient = torch.randn(x.shape)
    for name, function in names.items():
        if case.direction == "forward":
            yield Contestant(name, lambda f=function: f(x))  # type: ignore[misc]
        elif case.direction == "backward":
            value = function(x)
            yield Contestant(
                name,
                lambda v=value: torch.autograd.grad(v, x, gradient, retain_graph=True),  # type: ignore[misc]
            )
        else:
            yield Contestant(name, lambda f=function: torch.autograd.grad(f(x), x, gradient))  # type: ignore[misc]


def error_of(x: Tensor) -> float:
    """Return the largest error of our result against float64, in eps of float32."""
    exact = hoyer.project(x.detach().double().numpy(), SPARSENESS)
    found = hoyer.project(x, SPARSENESS).detach().double().numpy()
    worst = np.abs(found - exact).max(-1) / np.abs(exact).max(-1)
    return float(worst.max() / np.finfo(np.float32).eps)


def measure(case: Case, settings: Settings) -> Outcome:
    """Let everybody take turns on one input."""
    machine.pin(case.threads)
    torch.set_num_threads(case.threads)
    hoyer.set_num_threads(case.threads)
    torch.manual_seed(0)
    shape = (case.rows, case.n) if case.rows > 1 else (case.n,)
    x = torch.randn(shape, requires_grad=True)
    if case.rows > 1:
        bound = 1.3 if case.direction == "backward" and case.threads > 1 else 1.2
        against, names = SOFTMAX, functions()
    else:
        against, bound = WRAPPED, 1.8
        names = {OURS: functions()[OURS], WRAPPED: Wrapped.apply, SOFTMAX: functions()[SOFTMAX]}
    # What is imported at the first call is none of the race's business.
    small = torch.randn(2, 4, requires_grad=True)
    for function in names.values():
        torch.autograd.grad(function(small), small, torch.ones(2, 4))
    seconds = race(list(contestants(case, x, names)), settings)
    return Outcome(
        case,
        {name: quartiles(times) for name, times in seconds.items()},
        ratios(seconds[OURS], seconds[against]),
        bound,
        against,
        error_of(x),
    )


def in_new_process(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function where nothing has happened before.

    What earlier cases leave in the heap decides whether a large result gets memory that has been
    written before, which takes a third of the time.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def cases(*, quick: bool) -> list[Case]:
    """Return all comparisons, or those that show every goal once."""
    lengths = (256, 1024, 4096) if quick else LENGTHS
    threads = (1,) if quick or len(machine.ALLOWED) == 1 else (1, 2)
    many = [
        Case(direction, ROWS, n, t)
        for t in threads
        for direction in ("forward", "backward")
        for n in lengths
    ]
    return [*many, Case("forward", 1, 16, 1), Case("forward and backward", 1, 16, 1)]


def markdown(outcomes: list[Outcome], described: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        "# PyTorch on the CPU",
        "",
        f"`python -m benchmarks.torch_cpu`, {described['date']}; {described['cpu']}, "
        f"{described['instruction set']}; sparseness {SPARSENESS}, float32, normal data, results "
        "in new tensors; load of the machine before: "
        f"{described['load before']}. A ratio is the median of those within the rounds, with its "
        "quartiles; the error is the largest against float64, in eps times the largest entry.",
        "",
        "| case | goal | ratio | met? | error (eps) |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {o.case} | {o.bound} x {o.against} | {o.ratio.median:.2f} ({o.ratio.low:.2f} to "
        f"{o.ratio.high:.2f}) | {'yes' if o.met else 'no'} | {o.error:.2f} |"
        for o in outcomes
    ]
    lines += microseconds(outcomes)
    return "\n".join(lines) + "\n"


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    return {
        "case": outcome.case._asdict(),
        "seconds": {name: q._asdict() for name, q in outcome.seconds.items()},
        "ratio": outcome.ratio._asdict(),
        "against": outcome.against,
        "bound": outcome.bound,
        "met": outcome.met,
        "error in eps": outcome.error,
    }


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_cpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one thread, every goal once")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    described = machine.describe()
    outcomes = []
    for case in cases(quick=options.quick):
        print(case, file=sys.stderr, flush=True)
        outcomes.append(in_new_process(measure, case, QUICK if options.quick else FULL))
    text = markdown(outcomes, described)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "torch_cpu.md").write_text(text, encoding="utf-8")
    record = {"machine": described, "outcomes": [plain(o) for o in outcomes]}
    (options.out / "torch_cpu.json").write_text(
        json.dumps(record, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
