"""Plain operations of JAX on a GPU: ``python -m benchmarks.jax_gpu [--quick] [--out DIR]``.

`hoyer.project` and its gradient against jax.nn.softmax, on the default device of JAX: rows of 1024
and 4096, float32. It needs neither the compiled core nor any other package: with
``PYTHONPATH=src`` it runs from a checkout, wherever JAX does. Each timing is that of one program
which applies a function several times, one result being what the next one is given, so that not the
launch is measured; what plain operations take does not depend on the numbers.
"""

import argparse
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hoyer
from hoyer.families.jax import engine

from .jax_peers import sorting
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
SPARSENESS, REPEATS, BOUND = 0.9, 16, 30.0
SHAPES = ((16384, 1024), (4096, 4096))
SMALL = ((256, 1024), (64, 4096))
"""The same for a trial on the CPU."""


class Case(NamedTuple):
    """One comparison."""

    direction: str
    rows: int
    n: int

    def __str__(self) -> str:
        return f"{self.direction}, {self.rows} rows of {self.n}"


class Outcome(NamedTuple):
    """What came out of a case."""

    case: Case
    seconds: dict[str, Quartiles]
    ratio: Quartiles
    error: float
    """Largest error of the projection, in eps of float32 times the largest entry of the vector."""


def project(x: Any) -> Any:
    """Return the projection."""
    return hoyer.project(x, SPARSENESS)


def applied(direction: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a program that applies a function, or its gradient, several times."""

    def once(x: Any) -> Any:
        if direction == "forward":
            return function(x)
        value, pull = jax.vjp(function, x)
        return pull(value + x)[0]

    return jax.jit(lambda x: lax.fori_loop(0, REPEATS, lambda _, x: once(x), x))


def error_of(x: Any) -> float:
    """Return the largest error of the projection, against float64 on the host."""
    found = np.asarray(jax.jit(project)(x), np.float64)
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        exact = np.asarray(sorting(jnp.asarray(np.asarray(x, np.float64)), SPARSENESS))
    worst = np.abs(found - exact).max(-1) / np.abs(exact).max(-1)
    return float(worst.max() / np.finfo(np.float32).eps)


def measure(case: Case, settings: Settings) -> Outcome:
    """Let both take turns on one input."""
    numbers = np.random.default_rng(0).standard_normal((case.rows, case.n)).astype(np.float32)
    x = jnp.asarray(numbers)
    functions = {OURS: project, SOFTMAX: lambda x: jax.nn.softmax(x, axis=-1)}
    programs = {name: applied(case.direction, one) for name, one in functions.items()}
    calls = {name: (lambda run=run: run(x).block_until_ready()) for name, run in programs.items()}
    found = race([Contestant(name, call) for name, call in calls.items()], settings)
    seconds = {name: quartiles(t / REPEATS for t in times) for name, times in found.items()}
    return Outcome(case, seconds, ratios(found[OURS], found[SOFTMAX]), error_of(x[:64]))


def markdown(outcomes: list[Outcome], extent: str) -> str:
    """Return the report."""
    device = jax.devices()[0]
    by = "compiled core" if device.platform == "cpu" and engine.core is not None else "operations"
    lines = [
        "# JAX by plain operations",
        "",
        f"`python -m benchmarks.jax_gpu{extent}`, "
        f"{datetime.datetime.now(datetime.UTC).date().isoformat()}; {device.device_kind} "
        f"({device.platform}), JAX {jax.__version__}, projected by: {by}; sparseness {SPARSENESS}, "
        f"float32, normal data, {REPEATS} applications in one program. A ratio is the median of "
        "those within the rounds, with its quartiles; the error is the largest against float64, in "
        "eps times the largest entry. A gradient is forward and backward pass.",
        "",
        "| case | goal | ratio | met? | error (eps) |",
        "|---|---|---|---|---|",
    ]
    for o in outcomes:
        ratio = f"{o.ratio.median:.3g} ({o.ratio.low:.3g} to {o.ratio.high:.3g})"
        # Only the projection has a goal.
        goal = f"{BOUND:g} x {SOFTMAX}" if o.case.direction == "forward" else ""
        met = ("yes" if o.ratio.median <= BOUND else "no") if goal else ""
        lines.append(f"| {o.case} | {goal} | {ratio} | {met} | {o.error:.2f} |")
    return "\n".join([*lines, *microseconds(outcomes)]) + "\n"


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jax_gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    shapes = SMALL if jax.devices()[0].platform == "cpu" else SHAPES
    outcomes = []
    for direction in ("forward", "gradient"):
        for shape in shapes:
            case = Case(direction, *shape)
            outcomes.append(measure(case, QUICK if given.quick else FULL))
            print(outcomes[-1], flush=True)
    text = markdown(outcomes, " --quick" if given.quick else "")
    print(text)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "jax_gpu.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
