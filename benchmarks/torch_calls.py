"""What a user of PyTorch waits for: ``python -m benchmarks.torch_calls [--device cuda]``.

Wall-clock time of calls from Python, small and large, forward and backward, with a sparseness that
is learned, compiled, after the steps of an optimizer, in layers and in whole training steps; beside
`torch.softmax` in the same form, or the same step without a projection. Host time is that of calls
one after the other, which nobody waits for; all others include the wait for the device.
Contestants take turns, and ratios are taken within the rounds. Works without the compiled core.
"""

import argparse
import datetime
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import hoyer
from hoyer.torch import ProjectAfterStep, parametrizations

from .timing import Contestant, Quartiles, Settings, quartiles, race
from .torch_peers import sorting

SETTINGS = Settings(rounds=15, least=4e-3, most=3.0)
SIGMA = 0.9
Call = Callable[[], Any]


class Row(NamedTuple):
    """One comparison."""

    label: str
    ours: Call
    theirs: Call
    against: str
    goal: tuple[float, float] | None = None
    """The firm one, and the aim."""
    waits: bool = True
    """Whether the device is waited for after every call."""
    added: bool = False
    """Whether what ours takes beyond theirs is compared with theirs."""
    error: Callable[[], float] | None = None
    """In eps, where there is a result to look at."""
    everywhere: bool = False
    """Whether the goal is one for the CPU, too."""


class Outcome(NamedTuple):
    """What came of it."""

    row: Row
    ours: Quartiles
    theirs: Quartiles
    ratio: Quartiles
    error: float | None
    first: float

    @property
    def verdict(self) -> str:
        """Which goal is reached."""
        if self.row.goal is None:
            return ""
        firm, aim = self.row.goal
        return "aim" if self.ratio.median <= aim else "firm" if self.ratio.median <= firm else "no"


def error_of(x: Tensor, project: Callable[[Tensor], Tensor] | None = None) -> float:
    """Return the error of a projection against one in float64 by sorting, in eps.

    Those that keep the norm of x are divided by it.
    """
    x = x.detach()
    expected = sorting(x.double(), SIGMA)
    if project is None:
        found = hoyer.project(x, SIGMA).double()
    else:
        size = x.double().norm(dim=-1, keepdim=True)
        found = project(x).detach().double() / size
    off = (found - expected).abs().amax(-1) / expected.abs().amax(-1)
    return float(off.max()) / torch.finfo(x.dtype).eps


def backward(function: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Call:
    """Return a call that goes forward and backward."""

    def call() -> None:
        x.grad = None
        function(x).backward(y)

    return call


def calls(device: str) -> Iterator[Row]:
    """Yield calls on one tensor."""
    for rows, n in ((64, 64), (64, 256), (1024, 1024), (4096, 4096)):
        x = torch.randn(rows, n, device=device)
        ours, theirs = partial(hoyer.project, x, SIGMA), partial(torch.softmax, x, -1)
        row = Row(f"{rows} x {n}: host time", ours, theirs, "softmax", error=partial(error_of, x))
        yield row._replace(waits=False, goal=(4, 2.5) if n <= 256 else None)
        yield row._replace(
            label=f"{rows} x {n}: wall clock", goal=(1.2, 0.8) if n == 4096 else None
        )
    for rows, n in ((64, 256), (4096, 4096)):
        x = torch.randn(rows, n, device=device, requires_grad=True)
        y = torch.randn_like(x)
        sigma = torch.tensor(SIGMA, device=device, requires_grad=True)
        softmax = backward(lambda t: torch.softmax(t, -1), x, y)
        both = backward(lambda t: hoyer.project(t, SIGMA), x, y)
        learned = backward(partial(learning, sigma), x, y)
        shape, small = f"{rows} x {n}", n == 256
        row = Row(f"{shape}: forward and backward", both, softmax, "softmax")
        yield row._replace(goal=(2.5, 1.5) if small else None)
        row = Row(f"{shape}: learned sparseness, both ways", learned, softmax, "softmax")
        yield row._replace(goal=(5, 3) if small else None, everywhere=True)
        keeping = partial(hoyer.project, sparseness=SIGMA, l2="keep")
        row = Row(f"{shape}: l2='keep', both ways", backward(keeping, x, y), softmax, "softmax")
        yield row._replace(error=partial(error_of, x, keeping))
        compiled = torch.compile(lambda t: hoyer.project(t, SIGMA), fullgraph=True)
        other = torch.compile(lambda t: torch.softmax(t, -1), fullgraph=True)
        pair = backward(compiled, x, y), backward(other, x, y)
        yield Row(f"{shape}: compiled, both ways", *pair, "softmax, compiled")


def learning(sigma: Tensor, x: Tensor) -> Tensor:
    """Project onto a sparseness that is learned."""
    sigma.grad = None
    return hoyer.project(x, sigma)


def steps_of(layers: list[nn.Linear]) -> torch.optim.Optimizer:
    """Return a fused Adam on the weights of layers."""
    weights = [layer.weight for layer in layers]
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return torch.optim.Adam(weights, lr=1e-4, fused=True)


def after_step(layers: list[nn.Linear], handle: ProjectAfterStep) -> float:
    """Return the largest error of a projection of all weights, drawn anew for it."""

    def project(x: Tensor) -> Tensor:
        for layer, part in zip(layers, x.split([m.out_features for m in layers]), strict=True):
            layer.weight.data.copy_(part)
        handle.project()
        return torch.cat([layer.weight for layer in layers])

    return error_of(torch.cat([torch.randn_like(layer.weight) for layer in layers]), project)


def many(device: str) -> Iterator[Row]:
    """Yield many layers at once."""
    for count, size in ((60, 512), (60, 64)):
        ours, theirs = (
            [nn.Linear(size, size, bias=False, device=device) for _ in range(count)]
            for _ in range(2)
        )
        optimizer = steps_of(ours)
        handle = ProjectAfterStep(optimizer, [layer.weight for layer in ours], SIGMA)
        yield Row(
            f"ProjectAfterStep, {count} layers of {size} x {size}: added",
            optimizer.step,
            steps_of(theirs).step,
            "step of fused Adam",
            goal=(1.5, 0.7) if size == 512 else None,
            added=True,
            error=partial(after_step, ours, handle),
        )
    for at_once in (False, True):
        yield parametrized(device, at_once=at_once)
    for at_once in (False, True):
        yield parametrized(device, at_once=at_once, compiled="default")
    if device != "cpu":
        for at_once in (False, True):
            yield parametrized(device, at_once=at_once, compiled="reduce-overhead")


def parametrized(device: str, *, at_once: bool = False, compiled: str = "") -> Row:
    """Return 20 linear layers whose weights are projected, or not."""

    def make(*, projected: bool) -> Call:
        torch.manual_seed(0)
        layers = [nn.Linear(512, 512, device=device) for _ in range(20)]
        model: Any = nn.Sequential(*layers)
        if projected:
            for layer in layers:
                parametrizations.sparseness(layer, "weight", SIGMA)
            if at_once:
                parametrizations.at_once(model)
        x = torch.randn(256, 512, device=device)
        y = torch.randn_like(x)
        parameters = list(model.parameters())
        if compiled:
            model = torch.compile(model, mode=compiled)

        def call() -> None:
            for parameter in parameters:  # as an optimizer's zero_grad does
                parameter.grad = None
            model(x).backward(y)

        return call

    label = "20 parametrized linear layers" + ", at once" * at_once
    if compiled:
        label += ", compiled" + f" ({compiled})" * (compiled != "default")
    goal = (1.2, 1.1) if compiled else (1.6, 1.3)
    pair = make(projected=True), make(projected=False)
    return Row(f"{label}, both ways", *pair, "without", goal)


class Attention(nn.Module):
    """A block of a transformer, whose attention weights are sparse, or a softmax."""

    def __init__(self, width: int, heads: int, *, sparse: bool) -> None:
        super().__init__()
        self.heads, self.sparse = heads, sparse
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        """Attend, and go through the layers."""
        batch, length, width = x.shape
        parts = self.into(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if self.sparse:
            weights = hoyer.project(scores, l1=1.0, nonnegative=True)
        else:
            weights = torch.softmax(scores, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        y: Tensor = x + self.mlp(self.norms[1](x))
        return y


def training(device: str) -> Iterator[Row]:
    """Yield whole training steps, with and without projections."""

    def step_of(model: nn.Module, x: Tensor, chosen: list[Any]) -> Call:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        if chosen:
            ProjectAfterStep(optimizer, chosen, 0.7)

        def call() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return call

    def transformer(*, sparse: bool) -> Call:
        torch.manual_seed(0)
        model = nn.Sequential(*(Attention(256, 4, sparse=sparse) for _ in range(4))).to(device)
        chosen = [m.weight for m in model.modules() if isinstance(m, nn.Linear)] if sparse else []
        return step_of(model, torch.randn(8, 128, 256, device=device), chosen)

    def convolutional(*, sparse: bool) -> Call:
        torch.manual_seed(0)
        sizes = [(3, 32), (32, 64), (64, 128), (128, 128)]
        layers = [nn.Conv2d(a, b, 3, padding=1) for a, b in sizes]
        model = nn.Sequential(*(m for c in layers for m in (c, nn.ReLU(), nn.MaxPool2d(2))))
        chosen = [(layer, "weight") for layer in layers] if sparse else []
        return step_of(model.to(device), torch.randn(32, 3, 32, 32, device=device), chosen)

    name = "training step of a small transformer, simplex for softmax, all weights projected"
    yield Row(name, transformer(sparse=True), transformer(sparse=False), "without")
    name = "training step of a convolutional network, all filters projected"
    yield Row(name, convolutional(sparse=True), convolutional(sparse=False), "without")


def measure(row: Row, synchronize: Call) -> Outcome:
    """Race both."""

    def waiting(call: Call) -> Call:
        def run() -> None:
            call()
            synchronize()

        return run if row.waits else call

    begin = time.perf_counter()
    row.ours()
    synchronize()
    first = time.perf_counter() - begin
    pair = [("ours", waiting(row.ours)), ("theirs", waiting(row.theirs))]
    found = race([Contestant(name, call, synchronize) for name, call in pair], SETTINGS)
    synchronize()
    ours, theirs = found["ours"], found["theirs"]
    ratio = [a / b - row.added for a, b in zip(ours, theirs, strict=False)]
    error = None if row.error is None else row.error()
    return Outcome(row, quartiles(ours), quartiles(theirs), quartiles(ratio), error, first)


def markdown(outcomes: list[Outcome], machine: dict[str, Any]) -> str:
    """Return the report."""
    lines = [
        f"# What a user of PyTorch waits for, {machine['kind']}",
        "",
        f"`python -m benchmarks.torch_calls`, {machine['date']}; {machine['device']}, PyTorch "
        f"{machine['torch']}, {machine['threads']} threads; float32. Ratios are medians of those "
        "within the rounds, with quartiles; the first call includes what is compiled for it. "
        "Errors are the largest against float64, in eps times the largest entry.",
        "",
        "| case | against | goal (aim) | ratio | reached | ours (us) | theirs (us) | error (eps) "
        "| first call (s) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for o in outcomes:
        goal = "" if o.row.goal is None else f"{o.row.goal[0]} ({o.row.goal[1]})"
        error = "" if o.error is None else f"{o.error:.2f}"
        lines.append(
            f"| {o.row.label} | {o.row.against} | {goal} | {o.ratio.median:.2f} "
            f"({o.ratio.low:.2f} to {o.ratio.high:.2f}) | {o.verdict} | "
            f"{1e6 * o.ours.median:.4g} | {1e6 * o.theirs.median:.4g} | {error} | {o.first:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_calls", description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--only", default="", help="rows whose label has this in it")
    options = parser.parse_args()
    on_gpu = options.device != "cpu"
    machine: dict[str, Any] = {
        "kind": "CUDA" if on_gpu else "CPU",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    outcomes: list[Outcome] = []
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"torch_calls_{machine['kind'].lower()}"
    for source in (calls, many, training):
        for row in source(options.device):
            if options.only not in row.label:
                continue
            # Most goals are for CUDA; those for CPU tensors are `torch_cpu`'s.
            judged = row if on_gpu or row.everywhere else row._replace(goal=None)
            outcomes.append(measure(judged, torch.cuda.synchronize if on_gpu else lambda: None))
            o = outcomes[-1]
            print(
                f"{row.label}: {o.ratio.median:.2f} {o.verdict} ({1e6 * o.ours.median:.0f} us, "
                f"{1e6 * o.theirs.median:.0f} us)",
                flush=True,
            )
            # Written as it goes: a run that is cut short is not lost.
            path.with_suffix(".md").write_text(markdown(outcomes, machine), encoding="utf-8")
    record = {
        "machine": machine,
        "outcomes": [
            {
                "case": o.row.label,
                "against": o.row.against,
                "goal": o.row.goal,
                "ratio": o.ratio._asdict(),
                "reached": o.verdict,
                "ours, seconds": o.ours._asdict(),
                "theirs, seconds": o.theirs._asdict(),
                "error in eps": o.error,
                "first call, seconds": o.first,
            }
            for o in outcomes
        ],
    }
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
