"""JAX on the CPU: ``python -m benchmarks.jax_cpu [--quick] [--out DIR]``.

Under jit `hoyer.project` and its gradient against jax.nn.softmax and a projection by sorting
written in jax.numpy, and the dispatch of a small call against jnp.abs; one thread. All contestants
take turns, and ratios are taken within the rounds (see README.md).
"""

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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

OURS, SOFTMAX = "hoyer.project", "jax.nn.softmax"
SORTING, ABS = "sorting in jax.numpy", "jnp.abs"
ROWS, LENGTHS, LONG = 4096, (256, 1024, 4096), 2**22
SPARSENESS = 0.9


class Case(NamedTuple):
    """One comparison."""

    direction: str
    rows: int
    n: int
    memory: str = machine.KEPT
    """Where everybody's results go: one of `machine.MEMORY`."""

    def __str__(self) -> str:
        shape = f"{self.rows} rows of {self.n}" if self.rows > 1 else f"one vector of {self.n}"
        fresh = "" if self.memory == machine.KEPT else f", {self.memory}"
        return f"{self.direction}, {shape}{fresh}"

    @property
    def goals(self) -> dict[str, float]:
        """The largest ratios that are wanted, by whom they are to."""
        if self.direction == "dispatch":
            return {ABS: 2.0}
        return {SOFTMAX: 1.3, SORTING: 0.1} if self.direction == "forward" else {SOFTMAX: 1.5}


class Judged(NamedTuple):
    """A ratio, and the goal."""

    ratio: Quartiles
    bound: float

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio.median <= self.bound


class Outcome(NamedTuple):
    """What came out of a case."""

    case: Case
    seconds: dict[str, Quartiles]
    judged: dict[str, Judged]
    error: float
    """Largest error of our result, in eps of float32 times the largest entry of the vector."""


def functions() -> dict[str, Callable[..., Any]]:
    """Return the contestants."""
    import jax  # noqa: PLC0415 - the processors are chosen before
    import jax.numpy as jnp  # noqa: PLC0415

    from .jax_peers import sorting  # noqa: PLC0415

    return {
        OURS: lambda x: hoyer.project(x, SPARSENESS),
        SOFTMAX: lambda x: jax.nn.softmax(x, axis=-1),
        SORTING: lambda x: sorting(x, SPARSENESS),
        ABS: jnp.abs,
    }


def timed_call(case: Case, function: Callable[..., Any], x: Any, y: Any) -> Callable[[], Any]:
    """Return what is timed: a compiled call, until its result is there."""
    import jax  # noqa: PLC0415

    if case.direction == "gradient":
        pull = jax.jit(lambda x, y: jax.vjp(function, x)[1](y)[0])
        return lambda: pull(x, y).block_until_ready()
    compiled = jax.jit(function)
    return lambda: compiled(x).block_until_ready()


def error_of(case: Case, found: Any, x: Any, y: Any) -> float:
    """Return the largest error of what was found against float64, in eps of float32."""
    wide = x.astype(np.float64)
    if case.direction == "gradient":
        exact = hoyer.solve(wide, SPARSENESS).vjp(y.astype(np.float64))
    else:
        exact = hoyer.project(wide, SPARSENESS)
    worst = np.abs(np.asarray(found, np.float64) - exact).max(-1) / np.abs(exact).max(-1)
    return float(worst.max() / np.finfo(np.float32).eps)


def measure(case: Case, settings: Settings) -> Outcome:
    """Let everybody take turns on one input, on one processor."""
    machine.pin(1)
    hoyer.set_num_threads(1)
    import jax.numpy as jnp  # noqa: PLC0415

    rng = np.random.default_rng(0)
    shape = (case.rows, case.n) if case.rows > 1 else (case.n,)
    x, y = rng.normal(size=(2, *shape)).astype(np.float32)
    given = jnp.asarray(x), jnp.asarray(y)
    contest = {
        name: timed_call(case, function, *given)
        for name, function in functions().items()
        if name == OURS or name in case.goals
    }
    found = contest[OURS]()
    for call in contest.values():
        call()
    seconds = race([Contestant(name, call) for name, call in contest.items()], settings)
    judged = {
        name: Judged(ratios(seconds[OURS], seconds[name]), bound)
        for name, bound in case.goals.items()
    }
    middle = {name: quartiles(times) for name, times in seconds.items()}
    return Outcome(case, middle, judged, error_of(case, found, x, y))


def in_new_process(case: Case, settings: Settings) -> Outcome:
    """Measure where JAX has not looked for processors yet, nor anybody for memory."""
    before = dict(os.environ)
    os.environ.update(machine.MEMORY[case.memory])
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(measure, case, settings).result()
    finally:
        os.environ.clear()
        os.environ.update(before)


def cases() -> list[Case]:
    """Return all comparisons."""
    shapes = [*((ROWS, n) for n in LENGTHS), (1, LONG)]
    ways = "forward", "gradient"
    many = [Case(way, *shape) for way in ways for shape in shapes]
    fresh = [Case(way, 1, LONG, machine.FRESH) for way in ways]
    return [*many, *fresh, Case("dispatch", 1, 16)]


def markdown(outcomes: list[Outcome], described: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        "# JAX on the CPU",
        "",
        f"`python -m benchmarks.jax_cpu{described['extent']}`, {described['date']}; "
        f"{described['cpu']}, {described['instruction set']}; sparseness {SPARSENESS}, float32, "
        "normal data, one thread, all under jit, each call until its result is there; load of the "
        "machine before: "
        f"{described['load before']}. A ratio is the median of those within the rounds, with its "
        "quartiles; the error is the largest against float64, in eps times the largest entry. A "
        "gradient is forward and backward pass in one program. The allocator keeps the memory of "
        "results and uses it again, for everybody; with fresh memory it takes pages from the "
        "system in every call (`MEMORY` in `benchmarks/machine.py`). Left to itself it changes "
        "between the two from one call to the next.",
        "",
        "| case | goal | ratio | met? | error (eps) |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {o.case} | {j.bound} x {name} | {j.ratio.median:.3g} ({j.ratio.low:.3g} to "
        f"{j.ratio.high:.3g}) | {'yes' if j.met else 'no'} | {o.error:.2f} |"
        for o in outcomes
        for name, j in o.judged.items()
    ]
    lines += microseconds(outcomes)
    return "\n".join(lines) + "\n"


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    return {
        "case": outcome.case._asdict(),
        "seconds": {name: q._asdict() for name, q in outcome.seconds.items()},
        "goals": {
            name: {"ratio": j.ratio._asdict(), "bound": j.bound, "met": j.met}
            for name, j in outcome.judged.items()
        },
        "error in eps": outcome.error,
    }


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_cpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    described = machine.describe() | {"extent": " --quick" if options.quick else ""}
    outcomes = []
    for case in cases():
        print(case, file=sys.stderr, flush=True)
        outcomes.append(in_new_process(case, QUICK if options.quick else FULL))
    text = markdown(outcomes, described)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "jax_cpu.md").write_text(text, encoding="utf-8")
    record = {"machine": described, "outcomes": [plain(o) for o in outcomes]}
    (options.out / "jax_cpu.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
