"""JAX over eight devices of the host: ``python -m benchmarks.jax_devices [--quick] [--out DIR]``.

What it costs that an array is divided: the same call on the array as a whole, on one device, takes
turns with it. The host has fewer processors than devices, so this is about the work, not about what
several machines would gain; and how many numbers travel is read off the compiled programs.
"""

import argparse
import os
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

DEVICES = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402 - devices are made when JAX starts
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import hoyer  # noqa: E402

from . import machine  # noqa: E402
from .timing import FULL, QUICK, Contestant, Quartiles, Settings, race, ratios  # noqa: E402

DIVIDED, WHOLE = "divided", "whole"
SPARSENESS, BALL = 0.9, 1000.0
BYTES = {"f32": 4, "s64": 8, "f64": 8, "s32": 4, "u32": 4, "pred": 1}


class Case(NamedTuple):
    """An array, and how it is divided."""

    name: str
    shape: tuple[int, ...]
    spec: P
    function: Callable[[Any], Any]


class Outcome(NamedTuple):
    """What came out of a case."""

    name: str
    ratio: Quartiles
    traffic: str
    error: float
    """Largest difference from the call on the whole, in eps times the largest entry."""


def project(x: Any) -> Any:
    """Return the projection."""
    return hoyer.project(x, SPARSENESS)


def gradient(x: Any) -> Any:
    """Return the gradient of a sum of cubes of the projection."""
    return jax.grad(lambda x: jnp.sum(project(x) ** 3))(x)


def ball(x: Any) -> Any:
    """Return the projection onto the L1 ball."""
    return hoyer.project(x, l1=BALL, at_most=True)


CASES = [
    Case("rows of 1024, divided by rows", (4096, 1024), P("d", None), project),
    Case("the same, gradient", (4096, 1024), P("d", None), gradient),
    Case("rows of 1024, each divided", (4096, 1024), P(None, "d"), project),
    Case("one vector of 2^22", (2**22,), P("d"), project),
    Case("the same, gradient", (2**22,), P("d"), gradient),
    Case("the same onto an L1 ball", (2**22,), P("d"), ball),
]


def traffic(text: str) -> str:
    """Return how many operations of each kind move how many bytes, by the text of a program.

    Loops count once: the search of a vector in parts repeats its last sum once or twice.
    """
    found = []
    for kind in ("all-gather", "all-to-all", "all-reduce"):
        moves = re.findall(rf"= (\S.*) {kind}(?:-start)?\(", text)
        if moves:
            size = sum(_bytes(shapes) for shapes in moves)
            found.append(f"{len(moves)} {kind} ({size} bytes)")
    return ", ".join(found) or "nothing"


def _bytes(shapes: str) -> int:
    sizes = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(
        BYTES[kind] * int(np.prod([int(size) for size in shape.split(",") if size]))
        for kind, shape in sizes
        if kind in BYTES
    )


def outcome(case: Case, settings: Settings) -> Outcome:
    """Measure one case."""
    x = np.random.default_rng(0).standard_normal(case.shape).astype(np.float32)
    mesh = jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    arrays = {DIVIDED: jax.device_put(x, NamedSharding(mesh, case.spec)), WHOLE: jnp.asarray(x)}
    run = jax.jit(case.function)
    results = {name: np.asarray(run(array)) for name, array in arrays.items()}
    error = abs(results[DIVIDED] - results[WHOLE]).max() / abs(results[WHOLE]).max()
    contestants = [
        Contestant(name, lambda array=array: jax.block_until_ready(run(array)))  # type: ignore[misc]
        for name, array in arrays.items()
    ]
    seconds = race(contestants, settings)
    text = run.lower(arrays[DIVIDED]).compile().as_text() or ""
    ratio = ratios(seconds[DIVIDED], seconds[WHOLE])
    return Outcome(case.name, ratio, traffic(text), float(error / np.finfo(np.float32).eps))


def report(outcomes: list[Outcome], load: float, *, quick: bool) -> str:
    """Return the page of results."""
    known = machine.describe()
    lines = [
        "# JAX over eight devices of the host",
        "",
        f"`python -m benchmarks.jax_devices{' --quick' if quick else ''}`, "
        f"{date.today().isoformat()}; {known.get('cpu', '')}, {os.cpu_count()} processors; "
        f"sparseness {SPARSENESS}, float32, normal data, under jit; "
        f"load of the machine before: {load:.2f}. A ratio is that to the same call on the whole "
        "array, on one device: the median of those within the rounds, with its quartiles. What "
        "travels is read off the compiled program, per device; loops count once (a vector in parts "
        "repeats its largest sum once or twice). The difference is in eps times the largest entry. "
        "The allocator keeps memory and uses it again (`MEMORY` in `benchmarks/machine.py`).",
        "",
        "| case | divided / whole | what travels | difference (eps) |",
        "|---|---|---|---|",
    ]
    for one in outcomes:
        ratio = f"{one.ratio.median:.3g} ({one.ratio.low:.3g} to {one.ratio.high:.3g})"
        lines.append(f"| {one.name} | {ratio} | {one.traffic} | {one.error:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure all cases, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    machine.start_again_with(machine.KEPT)
    load = os.getloadavg()[0]
    outcomes = []
    for case in CASES:
        outcomes.append(outcome(case, QUICK if given.quick else FULL))
        print(outcomes[-1], flush=True)
    given.out.mkdir(exist_ok=True, parents=True)
    (given.out / "jax_devices.md").write_text(
        report(outcomes, load, quick=given.quick), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
