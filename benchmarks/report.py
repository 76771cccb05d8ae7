"""The report: JSON for machines, Markdown for readers, and a plot."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np

from . import cases
from .cases import Case, Outcome
from .goals import Verdict
from .timing import Quartiles, Settings

mpl.use("Agg")
from matplotlib import pyplot as plt

INPUTS = {
    "uniform": "uniform",
    "halfnormal": "|normal|",
    "lognormal": "lognormal",
    "cauchy": "|Cauchy|",
}
OURS = {
    "vector": cases.PROJECT,
    "rows": cases.PROJECT,
    "gradient": cases.PRODUCT,
    "single": cases.PROJECT_NEW,
    "sparse": cases.SPARSE,
    "threads": cases.TWO_THREADS,
}
TITLES = {
    "vector": "One vector",
    "rows": "Many rows",
    "gradient": "Gradient product",
    "single": "A single small call",
    "sparse": "Compressed result",
    "threads": "Two threads",
}
SHORT = {cases.COPYTO: "copyto", cases.COPY: "copy", cases.ONE_THREAD: "1 thread"}

GOAL_HEAD = (
    "case",
    "against",
    "firm",
    "stretch",
    "measured (median)",
    "worst case",
    "met?",
    "in a new array",
)

Rows = Iterable[Sequence[str]]


class Report(NamedTuple):
    """A finished run."""

    machine: dict[str, Any]
    settings: Settings
    notes: list[str]
    verdicts: list[Verdict]
    outcomes: list[Outcome]

    def write(self, folder: Path) -> list[Path]:
        """Write the three files and return where they are."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"cpu.{suffix}" for suffix in ("json", "md", "png")]
        paths[0].write_text(as_json(self), encoding="utf-8")
        paths[1].write_text(as_markdown(self), encoding="utf-8")
        plotted = plot(self.outcomes, paths[2])
        return paths if plotted else paths[:2]


# ---- JSON ----


def as_json(report: Report) -> str:
    """Return the run as JSON, one line per goal and per case."""
    head = {
        "machine": report.machine,
        "settings": report.settings._asdict(),
        "notes": report.notes,
    }
    parts = [f'"{name}": {json.dumps(value)}' for name, value in head.items()]
    parts.append(listed("goals", [verdict.plain() for verdict in report.verdicts]))
    parts.append(listed("cases", [plain(outcome) for outcome in report.outcomes]))
    return "{\n" + ",\n".join(parts) + "\n}\n"


def listed(name: str, values: list[dict[str, Any]]) -> str:
    """Return a list with a line per value."""
    return f'"{name}": [\n' + ",\n".join(json.dumps(value) for value in values) + "\n]"


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON; times and ratios as [median, lower, upper quartile]."""

    def rounded(values: Quartiles) -> list[float]:
        return [float(f"{value:.4g}") for value in values]

    return {
        **outcome.case._asdict(),
        "seconds": {name: rounded(value) for name, value in outcome.seconds.items()},
        "ratios": {
            ours: {other: rounded(value) for other, value in others.items()}
            for ours, others in outcome.ratios.items()
        },
        "errors": {name: float(f"{value:.3g}") for name, value in outcome.errors.items()},
        "evaluations": round(outcome.evaluations, 2),
    }


# ---- Markdown ----


def as_markdown(report: Report) -> str:
    """Return the run for a reader: the goals first, then every case."""
    parts = [
        "# CPU benchmark",
        "## Goals",
        table(
            GOAL_HEAD,
            map(goal_row, report.verdicts),
        ),
        "Light tails and one thread if nothing else is said. Numbers are times relative to the "
        "opponent's, in the same round; with x, how many times faster. A goal has many cases "
        "(inputs, sparseness, types): *measured* is the median over them, *met?* says what it "
        "reaches, and in brackets in how many cases the firm goal is met. Copies and projections "
        "write to an array that is there already, except for the last column: there a projection "
        "makes a new array for its result, as `project_sparse` always does "
        "(softmax does the same then, copyto does not).",
        "## Machine",
        machine_lines(report),
    ]
    pivots = [pivot(report.outcomes, dtype) for dtype in cases.DTYPES]
    if any(pivots):
        picture = "![Time relative to numpy.copyto](cpu.png)"
        parts += ["## Time relative to copyto", picture, *filter(None, pivots)]
    parts += [
        "## All cases",
        "Ratios are medians over the rounds with quartiles in brackets; *copyto*, *softmax* and so "
        "on: time relative to that opponent. Errors in eps of the type, relative to the largest "
        "entry. *passes*: reads of the data before the result is written (mean over rows).",
    ]
    for group, title in TITLES.items():
        chosen = [one for one in report.outcomes if one.case.group == group]
        if chosen:
            parts += [f"### {title}", case_table(chosen, OURS[group])]
    parts += [peer_section(report.outcomes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Rows) -> str:
    """Return a table in Markdown."""
    cells = [[cell.replace("|", r"\|") for cell in line] for line in (head, *rows)]
    lines = [cells[0], ["---"] * len(head), *cells[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def goal_row(verdict: Verdict) -> list[str]:
    """Return a goal as a row."""
    goal = verdict.goal
    cross = "x" if goal.faster else ""
    bounds = ["-" if bound is None else f"{bound:g}{cross}" for bound in (goal.firm, goal.stretch)]
    measured = ["-", "-"]
    if verdict.values:
        measured = [f"{short(value)}{cross}" for value in (verdict.median, verdict.worst)]
    fresh = f"{short(median(verdict.fresh))}{cross}" if verdict.fresh else ""
    return [goal.case, goal.against, *bounds, *measured, verdict.met, fresh]


def short(value: float) -> str:
    """Return a number with about three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def machine_lines(report: Report) -> str:
    """Return machine, versions and notes as a list."""
    machine = report.machine
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    cached = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    pinned = "pinned to one core" if machine["pinned"] else "not pinned"
    lines = [
        f"{machine['date']}; {machine['cpu']}, {machine['cores']} cores, {cached}; "
        f"{machine['system']}; {pinned}; load {machine['load before']} before the run",
        f"hoyer's core for {machine['instruction set']}; Python {machine['python']}; {packages}",
        f"{report.settings.rounds} rounds, everyone taking turns; fast calls repeated for "
        f"{report.settings.least * 1e3:g} ms; slow ones drop out after {report.settings.most:g} s",
        *report.notes,
    ]
    return "\n".join(f"- {line}" for line in lines)


def size(n: int) -> str:
    """Return n as a power of two."""
    return f"2^{n.bit_length() - 1}"


def pivot(outcomes: list[Outcome], dtype: str) -> str:
    """Return the ratios to copyto: inputs down, sizes across."""
    found = {
        (one.case.kind, one.case.sparseness, one.case.n): one.ratios[cases.PROJECT][cases.COPYTO]
        for one in outcomes
        if one.case.group == "vector" and one.case.dtype == dtype
    }
    sizes = sorted({n for _, _, n in found})
    lines = sorted({(cases.KINDS.index(kind), sparseness) for kind, sparseness, _ in found})
    rows = [
        [
            f"{INPUTS[cases.KINDS[kind]]} {sparseness}",
            *(
                short(cell.median)
                if (cell := found.get((cases.KINDS[kind], sparseness, n)))
                else ""
                for n in sizes
            ),
        ]
        for kind, sparseness in lines
    ]
    return table([dtype, *map(size, sizes)], rows) if rows else ""


def case_table(outcomes: list[Outcome], ours: str) -> str:
    """Return a table with a row per case."""
    opponents = list(dict.fromkeys(name for one in outcomes for name in one.ratios[ours]))
    opponents = [name for name in opponents if name not in {cases.SORT, *cases.PROJECTORS}]

    def row(one: Outcome) -> list[str]:
        against = [one.ratios[ours].get(name) for name in opponents]
        error = one.errors.get(ours, next(iter(one.errors.values())))
        return [
            *describe(one.case),
            duration(one.seconds[ours].median),
            *("" if cell is None else spread(cell) for cell in against),
            f"{error:.2g}",
            f"{one.evaluations:.3g}",
        ]

    heads = [SHORT.get(name, name) for name in opponents]
    head = ("n", "input", "sparseness", "type", f"`{ours}`", *heads, "error", "passes")
    return table(head, map(row, outcomes))


def peer_section(outcomes: list[Outcome]) -> str:
    """Return how many times slower the peers are, and their errors."""
    names = [cases.SORT, *cases.PROJECTORS]
    chosen = [one for one in outcomes if cases.SORT in one.ratios.get(cases.PROJECT, {})]
    if not chosen:
        return ""

    def cell(one: Outcome, name: str) -> str:
        if name not in one.ratios[cases.PROJECT]:
            return ""
        times = f"{short(1 / one.ratios[cases.PROJECT][name].median)}x"
        return f"{times} ({one.errors[name]:.2g})" if name in one.errors else times

    rows = [
        [*describe(one.case), f"{one.errors[cases.PROJECT]:.2g}"]
        + [cell(one, name) for name in names]
        for one in chosen
    ]
    head = ("n", "input", "sparseness", "type", "our error", *names)
    return (
        "### Peers\n\nHow many times as long they take as "
        f"`{cases.PROJECT}`, and in brackets their error in eps; `numpy.sort` only sorts.\n\n"
        + table(head, rows)
    )


def describe(case: Case) -> list[str]:
    """Return what tells a case from others."""
    n = size(case.n) if case.rows == 1 else f"{case.rows} x {case.n}"
    return [n, INPUTS[case.kind], str(case.sparseness), case.dtype]


def spread(value: Quartiles) -> str:
    """Return the median with its quartiles."""
    return f"{short(value.median)} ({short(value.low)} to {short(value.high)})"


def duration(seconds: float) -> str:
    """Return a time in a unit that suits it."""
    for unit, factor in (("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{short(seconds * factor)} {unit}"
    return f"{short(seconds * 1e9)} ns"


# ---- the plot ----


def plot(outcomes: list[Outcome], path: Path) -> bool:
    """Draw the ratio to copyto against n: a panel per type, a line per input and sparseness.

    Without vectors there is nothing to draw, and the answer is False.
    """
    chosen = [one for one in outcomes if one.case.group == "vector"]
    dtypes = [dtype for dtype in cases.DTYPES if any(one.case.dtype == dtype for one in chosen)]
    if not dtypes:
        return False
    figure, axes = plt.subplots(
        1, len(dtypes), figsize=(5.5 * len(dtypes) + 1, 5), sharex=True, sharey=True, squeeze=False
    )
    colours = dict(
        zip(cases.KINDS, ("tab:blue", "tab:green", "tab:orange", "tab:red"), strict=True)
    )
    styles = dict(zip(cases.SPARSENESS, (":", "-.", "-", "--"), strict=True))
    for axis, dtype in zip(axes[0], dtypes, strict=True):
        for kind, sparseness in [(k, s) for k in cases.KINDS for s in cases.SPARSENESS]:
            line = [
                (one.case.n, *one.ratios[cases.PROJECT][cases.COPYTO])
                for one in chosen
                if one.case[2:5] == (kind, sparseness, dtype)
            ]
            if line:
                n, middle, low, high = np.array(sorted(line)).T
                look: dict[str, Any] = {"color": colours[kind], "ls": styles[sparseness]}
                axis.plot(n, middle, label=f"{INPUTS[kind]} {sparseness}", lw=1.3, **look)
                axis.fill_between(n, low, high, color=colours[kind], alpha=0.12, lw=0)
        axis.set(xscale="log", yscale="log", title=dtype, xlabel="entries of the vector")
        axis.set_xscale("log", base=2)
        axis.axhline(1, color="black", lw=0.8)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("time of hoyer.project relative to numpy.copyto")
    axes[0][0].yaxis.set_major_formatter("{x:g}")
    handles: dict[str, Any] = {}
    for axis in axes[0]:
        handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)
    return True
