"""PyTorch on a GPU: ``python -m benchmarks.torch_cuda [--out DIR]``.

`hoyer.project` forward and backward against a copy, torch.softmax, a projection by sorting written
in PyTorch, and entmax's sparsemax and entmax_bisect where that is installed; onto the other sets,
and with masks that leave seven of ten entries. Times are those of the
device, by events, the host ahead of it; contestants take turns, and ratios are taken within the
rounds. Half a gigabyte or more moves in every call, so that nothing stays in the cache. First calls
are timed in processes of their own, which compile the kernels for this one. Works without the
compiled core.
"""

import argparse
import datetime
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

import hoyer
from hoyer.engines import arrays
from hoyer.engines.arrays.products import Products
from hoyer.families.torch import engines
from hoyer.families.torch.targets import plan_of
from hoyer.families.torch.tensors import XP
from hoyer.options import Options

from .timing import Quartiles, quartiles
from .torch_peers import sorting

Tensor = torch.Tensor

OURS, COPY, SOFTMAX = "hoyer.project", "copy", "torch.softmax"
NORMAL = "hoyer.project, normal"
UNMASKED = "hoyer.project, no mask"
SORTING, SPARSEMAX, BISECT = "sorting in torch", "entmax.sparsemax", "entmax.entmax_bisect"
ROUNDS = 9
BYTES = 1 << 28
"""Of the input, unless one vector has more."""
WORKERS = 8
"""Processes that compile."""


SETS: dict[str, dict[str, Any]] = {
    "simplex": {"l1": 1.0, "nonnegative": True},
    "L1 ball": {"l1": 1.0, "at_most": True},
    "two balls": {"l1": 3.0, "l2": 1.0, "at_most": True},
}
"""The other sets, all of them smaller than the vectors: nothing stays as it is."""
LEFT = 0.7
"""The share of entries that masks leave."""


class Case(NamedTuple):
    """One comparison, and its goal."""

    direction: str
    dtype: str
    n: int
    sparseness: float
    kind: str = "normal"
    rows: int = 0
    other: str = ""
    """One of the other sets, in place of the sparseness."""
    masked: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What `hoyer.project` is asked for, but for the mask."""
        return SETS[self.other] if self.other else {"sparseness": self.sparseness}

    @property
    def vectors(self) -> int:
        """How many vectors there are."""
        return self.rows or max(1, BYTES // (self.n * getattr(torch, self.dtype).itemsize))

    @property
    def goal(self) -> tuple[str, float | None, float | None]:
        """Whom to compare with; the firm bound and the stretch, None without one."""
        if self.masked and self.direction == "forward":
            return UNMASKED, 1.6, 1.2
        if self.direction == "backward":
            return SOFTMAX, 0.6, 0.5
        if self.other == "simplex" and 512 <= self.n <= 4096:
            return COPY, 1.2, 1.08
        if self.other:
            return COPY, None, None
        if self.kind != "normal":
            return NORMAL, 2.0, 1.3
        if self.dtype in ("float16", "bfloat16"):
            return SOFTMAX, 1.0, 0.7
        if self.dtype == "float64":
            return COPY, 2.0, 1.3
        if self.rows == 1:
            return COPY, 1.9, 1.6
        for longest, firm, stretch in FLOAT32:
            if self.n <= longest:
                return COPY, firm, stretch
        return COPY, 2.4, 1.6

    @property
    def floor(self) -> float:
        """What must be moved, in copies."""
        return 1.5 if self.direction == "backward" else 1.0


FLOAT32 = (
    (128, 3.0, 1.5),
    (256, 1.8, 1.3),
    (512, 1.4, 1.15),
    (4096, 1.2, 1.05),
    (16384, 1.4, 1.15),
    (32768, 1.8, 1.3),
)


class Outcome(NamedTuple):
    """What came of it."""

    case: Case
    milliseconds: dict[str, Quartiles]
    ratio: Quartiles
    error: float
    first: float
    """Seconds of the first call, with what is compiled in it."""

    @property
    def verdict(self) -> str:
        """Which goal is reached."""
        _, firm, stretch = self.case.goal
        if firm is None or stretch is None:
            return ""
        reached = self.ratio.median
        return "stretch" if reached <= stretch else "firm" if reached <= firm else "missed"


def cases() -> list[Case]:
    """Return all comparisons."""
    both = (0.5, 0.9)
    lengths = (64, 128, 256, 512, 1024, 2048, 4096, 16384, 32768, 65536, 1 << 20)
    found = [Case("forward", "float32", n, s) for n in lengths for s in both]
    found += [Case("forward", "float32", n, s, rows=1) for n in (1 << 26, 1 << 30) for s in both]
    forward = {
        "bfloat16": [512, 1024, 4096, 16384, 32768],
        "float16": [512, 1024, 4096, 32768],
        "float64": [512, 1024, 4096, 16384],
    }
    backward = {
        "float32": [64, 256, 1024, 4096, 16384, 32768, 65536, 1 << 20],
        "bfloat16": [512, 1024, 4096, 32768],
        "float16": [4096],
        "float64": [1024, 8192],
    }
    found += [Case("forward", d, n, s) for d, sizes in forward.items() for n in sizes for s in both]
    found += [Case("backward", d, n, 0.9) for d, sizes in backward.items() for n in sizes]
    heavy = [
        (n, kind)
        for n in (64, 256, 4096, 32768, 65536, 1 << 20)
        for kind in ("cauchy", "lognormal")
    ]
    found += [Case("forward", "float32", n, 0.9, kind) for n, kind in heavy]
    simplex = (64, 256, 512, 1024, 2048, 4096, 16384)
    asked = [("forward", n, "simplex") for n in simplex]
    asked += [("forward", n, other) for other in ("L1 ball", "two balls") for n in (1024, 4096)]
    asked += [("backward", n, other) for other in SETS for n in (1024, 4096)]
    found += [Case(d, "float32", n, 0.9, other=other) for d, n, other in asked]
    return found + [
        Case(direction, "float32", n, 0.9, other=other, masked=True)
        for direction in ("forward", "backward")
        for other in ("", "simplex")
        for n in (1024, 4096)
    ]


def data(case: Case) -> Tensor:
    """Draw the input."""
    torch.manual_seed(0)
    x = torch.empty(case.vectors, case.n, device="cuda", dtype=torch.float32)
    draw = {"normal": x.normal_, "cauchy": x.cauchy_, "lognormal": x.log_normal_}
    return draw[case.kind]().to(getattr(torch, case.dtype))


def mask(case: Case, x: Tensor) -> dict[str, Any]:
    """Draw the mask, if there is one, as `hoyer.project` takes it."""
    if not case.masked:
        return {}
    torch.manual_seed(1)
    return {"where": torch.rand(x.shape, device=x.device) < LEFT}


def contestants(case: Case, x: Tensor) -> dict[str, Callable[[], Any]]:
    """Return what is timed."""
    sigma, out = case.sparseness, torch.empty_like(x)
    asked, where = case.options, mask(case, x)
    if case.direction == "backward":
        gradient = torch.randn_like(x)
        leaf = x.requires_grad_()
        ours, theirs = hoyer.project(leaf, **asked, **where), torch.softmax(leaf, -1)
        return {
            OURS: lambda: torch.autograd.grad(ours, leaf, gradient, retain_graph=True),
            COPY: lambda: out.copy_(gradient),
            SOFTMAX: lambda: torch.autograd.grad(theirs, leaf, gradient, retain_graph=True),
        }
    found: dict[str, Callable[[], Any]] = {
        OURS: lambda: hoyer.project(x, **asked, **where, out=out),
        COPY: lambda: out.copy_(x),
    }
    if case.masked:
        found[UNMASKED] = lambda: hoyer.project(x, **asked, out=out)
    if case.kind != "normal":
        plain_x = data(case._replace(kind="normal"))
        found[NORMAL] = lambda: hoyer.project(plain_x, **asked, out=out)
    if case.rows != 1:
        found[SOFTMAX] = lambda: torch.softmax(x, -1)
    ordinary = not case.other and not case.masked
    if case.dtype == "float32" and x.numel() <= 1 << 26 and sigma == 0.9 and ordinary:
        found[SORTING] = lambda: sorting(x, sigma)
        entmax = optional("entmax")
        if entmax is not None:
            found[SPARSEMAX] = lambda: entmax.sparsemax(x, dim=-1)
            found[BISECT] = lambda: entmax.entmax_bisect(x, dim=-1)
    return found


def optional(name: str) -> Any:
    """Import a module, or return None without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def race(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Let the contestants take turns; return milliseconds, round by round."""
    for call in calls.values():
        call()
        call()
    torch.cuda.synchronize()
    marks = []
    for _ in range(ROUNDS):
        for name, call in calls.items():
            # The host gets ahead while the device sleeps.
            torch.cuda._sleep(400_000)
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            marks.append((name, begin, end))
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, begin, end in marks:
        times[name].append(begin.elapsed_time(end))
    return times


def error_of(case: Case, x: Tensor) -> float:
    """Return the largest error in eps, of some vectors, against tensor operations in float64."""
    eps = torch.finfo(x.dtype).eps
    if case.n > 1 << 26:
        return error_by_parts(x.detach()[0], case.sparseness) / eps
    some = x.detach()[: max(1, (1 << 20) // case.n)]
    where = mask(case, some)
    asked: dict[str, Any] = {"sparseness": None, "l1": None, "l2": None} | case.options
    options = Options(
        asked["sparseness"],
        asked["l1"],
        asked["l2"],
        -1,
        asked.get("nonnegative", False),
        False,
        "auto",
        True,
        asked.get("at_most", False),
        where.get("where"),
    )
    plan = plan_of(some, 1, options)
    if case.direction == "forward":
        exact = arrays.forward(some.double(), plan, XP)[0]
        found = hoyer.project(some, **case.options, **where).double()
        worst = ((found - exact).abs().amax(-1) / exact.abs().amax(-1)).max()
        return float(worst) / eps
    # At the same result: another one may lack an entry, or have one more.
    gradient = torch.randn_like(some)
    leaf = some.clone().requires_grad_()
    hoyer.project(leaf, **case.options, **where).backward(gradient)
    at = engines.engine_for(some).solved(some, plan, 1)
    here = Products(at.value.double(), at.scale, None, at.active, plan, XP)
    wanted = here.product(gradient.double(), reverse=True)
    assert leaf.grad is not None
    return float((leaf.grad.double() - wanted).abs().max() / wanted.abs().max()) / eps


def error_by_parts(x: Tensor, sparseness: float) -> float:
    """Return the largest error of one huge vector, over its largest entry."""
    ratio = 1 + (1 - sparseness) * (len(x) ** 0.5 - 1)
    parts = x.split(1 << 26)
    alpha = -1.0
    # The exact step never ends beyond alpha, and from there on it only gets nearer.
    for _ in range(60):
        above = [p.abs()[p.abs() > alpha].double() for p in parts]
        count = sum(a.numel() for a in above)
        mean = sum(float(a.sum()) for a in above) / count
        spread = sum(float((a - mean).square().sum()) for a in above)
        scale = (spread / (1 - ratio * ratio / count)) ** 0.5
        last, alpha = alpha, mean - scale * ratio / count
        if alpha <= last:
            break
    found = hoyer.project(x, sparseness)
    worst = top = 0.0
    for part, result in zip(parts, found.split(1 << 26), strict=True):
        exact = (part.double().abs() - alpha).clamp(min=0) / scale * part.sign()
        worst = max(worst, float((result.double() - exact).abs().max()))
        top = max(top, float(exact.abs().max()))
    return worst / top


def first_calls(number: int) -> dict[str, float]:
    """Time the first call of every case whose turn it is: compiling is most of it."""
    hoyer.project(torch.randn(2, 5, device="cuda", dtype=torch.float64), 0.5)
    seconds = {}
    for case in cases()[number::WORKERS]:
        small = case._replace(rows=1 if case.rows == 1 else max(2, (1 << 22) // case.n))
        x = data(small._replace(n=min(case.n, 1 << 26)))
        torch.cuda.synchronize()
        start = time.perf_counter()
        contestants(small, x)[OURS]()
        torch.cuda.synchronize()
        seconds[label(case)] = time.perf_counter() - start
    return seconds


def all_first_calls() -> dict[str, float]:
    """Let several processes do that."""
    command = [sys.executable, "-m", "benchmarks.torch_cuda", "--first"]
    running = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, text=True)
        for i in range(WORKERS)
    ]
    found: dict[str, float] = {}
    for worker in running:
        printed, _ = worker.communicate()
        found |= json.loads(printed.splitlines()[-1]) if printed.strip() else {}
    return found


def measure(case: Case, first: float) -> Outcome:
    """Measure one case."""
    x = data(case)
    times = race(contestants(case, x))
    against = case.goal[0]
    ratio = quartiles(a / b for a, b in zip(times[OURS], times[against], strict=True))
    return Outcome(
        case, {name: quartiles(t) for name, t in times.items()}, ratio, error_of(case, x), first
    )


# ---- reports ----


def label(case: Case) -> str:
    """Return the case in words."""
    shape = f"one vector of 2^{case.n.bit_length() - 1}" if case.rows == 1 else f"rows of {case.n}"
    kind = "" if case.kind == "normal" else f", {case.kind}"
    masked = ", masked" if case.masked else ""
    target = case.other or case.sparseness
    return f"{case.direction}, {case.dtype}, {shape}, {target}{kind}{masked}"


def markdown(outcomes: list[Outcome], machine: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        "# PyTorch on a GPU",
        "",
        f"`python -m benchmarks.torch_cuda`, {machine['date']}; {machine['device']}, PyTorch "
        f"{machine['torch']}, Triton {machine['triton']}. Ratios are medians of those within the "
        "rounds, with quartiles; `of roofline` is the time that the bytes to be moved take at the "
        "speed of the copy, over ours. Errors are the largest against float64, in eps times the "
        "largest entry (of gradients: at the same result). Device times; first calls compile, "
        "eight processes at a time.",
        "",
        "| case | goal (stretch) | ratio | reached | / copy | of roofline | / sorting "
        "| error (eps) | first call (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for o in outcomes:
        against, firm, stretch = o.case.goal
        median = {name: q.median for name, q in o.milliseconds.items()}
        goal = f"{firm} ({stretch}) x {against}" if firm else f"none: x {against}"
        copies = median[OURS] / median[COPY]
        sort = f"{median[SORTING] / median[OURS]:.0f} x faster" if SORTING in median else ""
        lines.append(
            f"| {label(o.case)} | {goal} | {o.ratio.median:.2f} "
            f"({o.ratio.low:.2f} to {o.ratio.high:.2f}) | {o.verdict} | {copies:.2f} | "
            f"{o.case.floor / copies:.0%} | {sort} | {o.error:.2f} | {o.first:.1f} |"
        )
    lines += ["", "Milliseconds per call (medians):", ""]
    names = list(dict.fromkeys(name for o in outcomes for name in o.milliseconds))
    lines += [f"| case | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for o in outcomes:
        cells = [f"{o.milliseconds[n].median:.4g}" if n in o.milliseconds else "" for n in names]
        lines.append(f"| {label(o.case)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(outcomes: list[Outcome], path: Path) -> None:
    """Draw time over that of a copy against the length."""
    pyplot: Any = optional("matplotlib.pyplot")
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(figsize=(7, 4))
    shown = [
        (OURS, "float32", "forward"),
        (SOFTMAX, "float32", "forward"),
        (OURS, "bfloat16", "forward"),
        (SOFTMAX, "bfloat16", "forward"),
        (OURS, "float32", "backward"),
        (SOFTMAX, "float32", "backward"),
    ]
    for name, dtype, direction in shown:
        points = [
            (o.case.n, o.milliseconds[name].median / o.milliseconds[COPY].median)
            for o in outcomes
            if (o.case.dtype, o.case.direction, o.case.kind) == (dtype, direction, "normal")
            and o.case.sparseness == 0.9
            and not (o.case.other or o.case.masked)
            and name in o.milliseconds
        ]
        style = "-o" if name == OURS else "--"
        axes.plot(*zip(*points, strict=True), style, label=f"{name}, {dtype}, {direction}")
    axes.set(
        xscale="log", xlabel="entries per vector", ylabel="time over that of a copy", ylim=(0, 5)
    )
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    return {
        "case": outcome.case._asdict(),
        "rows": outcome.case.vectors,
        "milliseconds": {name: q._asdict() for name, q in outcome.milliseconds.items()},
        "ratio": outcome.ratio._asdict(),
        "goal": outcome.case.goal,
        "reached": outcome.verdict,
        "error in eps": outcome.error,
        "first call, seconds": outcome.first,
    }


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_cuda", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first is not None:
        print(json.dumps(first_calls(options.first)))
        return
    triton: Any = optional("triton")
    machine = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    outcomes = []
    options.out.mkdir(parents=True, exist_ok=True)
    first = all_first_calls()
    for case in cases():
        try:
            outcomes.append(measure(case, first.get(label(case), float("nan"))))
        except RuntimeError as error:
            print(f"{label(case)}: {error}", flush=True)
            continue
        last = outcomes[-1]
        print(f"{label(case)}: {last.ratio.median:.3f} {last.verdict}", flush=True)
        # Written as it goes: a run that is cut short is not lost.
        (options.out / "torch_cuda.md").write_text(markdown(outcomes, machine), encoding="utf-8")
        record = {"machine": machine, "outcomes": [plain(o) for o in outcomes]}
        (options.out / "torch_cuda.json").write_text(
            json.dumps(record, indent=1) + "\n", encoding="utf-8"
        )
    plot(outcomes, options.out / "torch_cuda.png")


if __name__ == "__main__":
    main()
