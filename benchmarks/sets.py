"""The other sets, and masks: ``python -m benchmarks.sets [--quick] [--out DIR]``.

The projection onto the simplex against this library's own projection onto a sparseness, entmax's
sparsemax and a compiled form of Condat's algorithm (condat.cpp); calls with masks against the same
calls without; many arrays that share a sparseness against one call for each. One thread, float32;
all contestants take turns, and ratios are taken within the rounds (see README.md).
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import entmax
import numpy as np
import numpy.typing as npt
import torch

import hoyer

from . import machine, peers, reference
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
from .torch_cpu import in_new_process

Array = npt.NDArray[Any]
Calls = dict[str, Callable[[], Any]]

OURS, OWN = "ours", "project(.9)"
SPARSEMAX, CONDAT = "entmax.sparsemax", "Condat 2016, compiled"
WHOLE, ONE_BY_ONE = "the same without a mask", "60 calls of project"
ENTRIES = 1 << 22
"""Of all rows together."""
MASKED_SHARE = 0.3
LAYERS, WEIGHTS = 60, 10**7
SETS: dict[str, dict[str, Any]] = {
    "simplex": {"l1": 1.0, "nonnegative": True},
    "simplex, large support": {"l1": None, "nonnegative": True},
    "L1 ball": {"l1": 1.0, "at_most": True},
    "two balls": {"l1": 3.0, "l2": 1.0, "at_most": True},
    "sparseness": {"sparseness": 0.9},
}
LARGE = 0.1
"""The sum asked for where the support is to be large, in that of the positive entries."""


class Case(NamedTuple):
    """One comparison."""

    what: str
    """A name of `SETS`, or "together"."""
    n: int
    rows: int
    masked: bool = False

    def __str__(self) -> str:
        if self.what == "together":
            return f"project_together, {LAYERS} layers, {WEIGHTS:.0e} weights"
        shape = f"{self.rows} rows of {self.n}" if self.rows > 1 else f"2^{self.n.bit_length() - 1}"
        masks = f", {MASKED_SHARE:.0%} masked" if self.masked else ""
        return f"{self.what}, {shape}{masks}"

    @property
    def goals(self) -> list["Goal"]:
        """What is to be reached."""
        if self.what == "together":
            return [Goal(ONE_BY_ONE, 4.0, 2.5)]
        if self.masked:
            return [Goal(WHOLE, 1.6, 1.2)]
        if self.what == "simplex":
            return [
                Goal(OWN, 1.3, 1.0),
                Goal(SPARSEMAX, 20.0, 100.0, faster=True),
                Goal(CONDAT, 2.0, 3.0, faster=True),
            ]
        return [Goal(OWN, None, None)]


class Goal(NamedTuple):
    """A number to reach against somebody; without numbers it is told for comparison."""

    against: str
    firm: float | None
    aim: float | None
    faster: bool = False
    """Whether the number says how many times faster, rather than how much time it takes."""

    def verdict(self, ratio: float) -> str:
        """Say what a ratio of times reaches."""
        if self.firm is None or self.aim is None:
            return ""
        reached = 1 / ratio if self.faster else ratio
        for word, bound in (("aim", self.aim), ("firm", self.firm)):
            if reached >= bound if self.faster else reached <= bound:
                return word
        return "no"


class Outcome(NamedTuple):
    """What came of it."""

    case: Case
    seconds: dict[str, Quartiles]
    ratios: dict[str, Quartiles]
    """Ours over each of the others."""
    error: float
    """The largest of some of our results, in eps times the largest entry; NaN if not told."""


def cases(*, quick: bool) -> list[Case]:
    """Return all comparisons, or those that show every goal once."""
    shapes = [(n, ENTRIES // n) for n in (64, 1024, 16384)] + [(1 << 24, 1)]
    found = [Case("simplex", n, rows) for n, rows in shapes]
    if not quick:
        others = ("simplex, large support", "L1 ball", "two balls")
        found += [Case(what, n, rows) for what in others for n, rows in shapes]
    kinds = ("simplex",) if quick else ("simplex", "sparseness", "L1 ball")
    shapes = [*shapes[:3], (1 << 22, 1)]
    found += [Case(what, n, rows, masked=True) for what in kinds for n, rows in shapes]
    return found + [Case("together", 0, 1)] * hasattr(hoyer, "project_together")


def data(case: Case) -> Array:
    """Draw the input."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((case.rows, case.n), dtype=np.float32)


def options_of(case: Case, x: Array) -> dict[str, Any]:
    """Return what is asked of `hoyer.project`."""
    options = dict(SETS[case.what])
    if "l1" in options and options["l1"] is None:
        options["l1"] = LARGE * float(np.maximum(x, 0).sum(-1, dtype=np.float64).mean())
    if case.masked:
        options["where"] = np.random.default_rng(1).random(x.shape) >= MASKED_SHARE
    return options


def contestants(case: Case, x: Array, options: dict[str, Any]) -> Calls:
    """Return what is timed; whoever can writes to an array that is there already."""
    out = np.empty_like(x)
    found: Calls = {OURS: lambda: hoyer.project(x, out=out, **options)}
    if case.masked:
        whole = {name: value for name, value in options.items() if name != "where"}
        found[WHOLE] = lambda: hoyer.project(x, out=out, **whole)
        return found
    nonnegative = bool(options.get("nonnegative"))
    found[OWN] = lambda: hoyer.project(x, 0.9, nonnegative=nonnegative, out=out)
    if nonnegative:
        tensor, condat = torch.from_numpy(x), peers.condat()
        if case.what == "simplex":
            found[SPARSEMAX] = lambda: entmax.sparsemax(tensor, dim=-1)
        if condat is not None:
            found[CONDAT] = lambda: condat(out, x, options["l1"])
    return found


def layers() -> list[Array]:
    """Draw the weights of a network with layers of many sizes."""
    rng = np.random.default_rng(0)
    shares = rng.lognormal(0, 1, LAYERS)
    sizes = np.maximum(shares / shares.sum() * WEIGHTS, 100).astype(int)
    return [rng.standard_normal(size, dtype=np.float32) for size in sizes]


def together() -> Calls:
    """Return the calls for arrays that share a sparseness."""
    weights = layers()
    return {
        OURS: lambda: hoyer.project_together(weights, 0.9),
        ONE_BY_ONE: lambda: [hoyer.project(one, 0.9, l2="keep") for one in weights],
    }


def exact_rows(x: Array, options: dict[str, Any]) -> Iterator[Array]:
    """Project rows in long double, where l1 alone is given."""
    for row, where in zip(x, options.get("where", np.ones(x.shape, bool)), strict=True):
        counted = row[where]
        y = counted if options.get("nonnegative") else np.abs(counted)
        value = np.zeros(row.shape, np.longdouble)
        inside = options.get("at_most") and np.maximum(y, 0).sum(dtype=np.float64) <= options["l1"]
        p = np.maximum(y, 0) if inside else reference.simplex(y, options["l1"])
        value[where] = p if options.get("nonnegative") else np.copysign(p, counted)
        yield value


def error_of(x: Array, options: dict[str, Any]) -> float:
    """Return the largest error of our result, of some rows, in eps."""
    some: dict[str, Any] = {
        name: value[:64] if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    value = hoyer.project(x[:64], **some)
    if set(options) & {"l2", "sparseness"}:
        # In float64, which is right to some eps of its own.
        exact = hoyer.project(x[:64].astype(np.float64), **some)
    else:
        exact = np.stack(list(exact_rows(x[:64], some)))
    return float(reference.row_errors(value, exact).max())


def measure(case: Case, settings: Settings) -> Outcome:
    """Let everybody take turns on one input."""
    machine.pin(1)
    torch.set_num_threads(1)
    hoyer.set_num_threads(1)
    error = float("nan")
    if case.what == "together":
        calls = together()
    else:
        x = data(case)
        options = options_of(case, x)
        calls, error = contestants(case, x, options), error_of(x, options)
    seconds = race([Contestant(name, call) for name, call in calls.items()], settings)
    return Outcome(
        case,
        {name: quartiles(times) for name, times in seconds.items()},
        {name: ratios(seconds[OURS], times) for name, times in seconds.items() if name != OURS},
        error,
    )


# ---- reports ----


def goal_rows(outcome: Outcome) -> Iterator[str]:
    """Return the lines of a case: one for each of its goals that was measured."""
    for goal in outcome.case.goals:
        if goal.against not in outcome.ratios:
            continue
        ratio = outcome.ratios[goal.against]
        told = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        if goal.faster:
            told = f"{1 / ratio.median:.1f} x faster ({1 / ratio.high:.1f} to {1 / ratio.low:.1f})"
        wanted = "" if goal.firm is None else f"{goal.firm:g} ({goal.aim:g})"
        wanted += " x faster" * goal.faster
        error = "" if np.isnan(outcome.error) else f"{outcome.error:.2f}"
        yield (
            f"| {outcome.case} | {goal.against} | {wanted} | {told} | "
            f"{goal.verdict(ratio.median)} | {error} |"
        )


def markdown(outcomes: list[Outcome], described: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        "# Simplex, balls and masks on the CPU",
        "",
        f"`python -m benchmarks.sets`, {described['date']}; {described['cpu']}, "
        f"{described['instruction set']}; float32, normal data, one thread, results in arrays that "
        "are there already (sparsemax and project_together make new ones); load of the machine "
        f"before: {described['load before']}. A ratio is the median of those within the rounds, "
        "with its quartiles; errors are the largest against long double (two balls and sparseness: "
        "against float64), in eps times the largest entry.",
        "",
        "| case | against | goal (aim) | ratio | reached | error (eps) |",
        "|---|---|---|---|---|---|",
    ]
    lines += [row for outcome in outcomes for row in goal_rows(outcome)]
    lines += microseconds(outcomes)
    return "\n".join(lines) + "\n"


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    return {
        "case": outcome.case._asdict(),
        "seconds": {name: q._asdict() for name, q in outcome.seconds.items()},
        "ratios": {name: q._asdict() for name, q in outcome.ratios.items()},
        "goals": [
            goal._asdict() | {"reached": goal.verdict(outcome.ratios[goal.against].median)}
            for goal in outcome.case.goals
            if goal.against in outcome.ratios
        ],
        "error in eps": None if np.isnan(outcome.error) else outcome.error,
    }


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sets", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every goal once")
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
    (options.out / "sets.md").write_text(text, encoding="utf-8")
    record = {"machine": described, "outcomes": [plain(o) for o in outcomes]}
    (options.out / "sets.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
