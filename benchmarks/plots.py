"""All committed results in one form, for the plots of the documentation: ``make docs`` calls it.

A curve is how long every contestant took, by the length of the vectors. A goal is a ratio that was
aimed at, and what was measured, whether it was met or missed.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
FEWEST = 3
"""A curve has at least so many lengths."""

Curves = dict[str, dict[str, Any]]


def loaded(name: str) -> Any:
    """Return what one benchmark has written."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def quartiles(value: Any) -> list[float]:
    """Return median, lower and upper quartile, in whichever of two ways they were written."""
    three = [value["median"], value["low"], value["high"]] if isinstance(value, dict) else value
    return [float(f"{number:.4g}") for number in three]


def add(
    curves: Curves, name: str, baseline: str, at: tuple[int, int], times: dict[str, Any]
) -> None:
    """Add the times of all contestants, in seconds, for `at`: how long, and how many vectors."""
    curve = curves.setdefault(name, {"name": name, "baseline": baseline, "series": {}})
    for contestant, seconds in times.items():
        point = {"n": at[0], "rows": at[1], "seconds": quartiles(seconds)}
        curve["series"].setdefault(contestant, []).append(point)


# ---- curves ----


def numpy_curves(curves: Curves) -> None:
    """NumPy arrays on the CPU."""
    names = {"vector": "one vector", "rows": "rows", "gradient": "gradient"}
    for case in loaded("cpu")["cases"]:
        if case["group"] in names:
            what = f"{names[case['group']]}, sparseness {case['sparseness']}, {case['kind']}"
            what += f", {case['dtype']}"
            baseline = "torch.softmax" if case["group"] == "rows" else "numpy.copyto"
            add(curves, what, baseline, (case["n"], case["rows"]), case["seconds"])


def set_curves(curves: Curves) -> None:
    """Other sets, on the CPU."""
    for outcome in loaded("sets")["outcomes"]:
        case = outcome["case"]
        what = case["what"] + (", masked" if case["masked"] else "")
        baseline = "the same without a mask" if case["masked"] else "project(.9)"
        add(curves, what, baseline, (case["n"], case["rows"]), outcome["seconds"])


def torch_curves(curves: Curves) -> None:
    """Tensors on the CPU."""
    for outcome in loaded("torch_cpu")["outcomes"]:
        case = outcome["case"]
        threads = f"{case['threads']} thread{'s' * (case['threads'] > 1)}"
        at = (case["n"], case["rows"])
        add(curves, f"{case['direction']}, {threads}", "torch.softmax", at, outcome["seconds"])


def cuda_curves(curves: Curves) -> None:
    """Tensors on a GPU."""
    for outcome in loaded("torch_cuda")["outcomes"]:
        case = outcome["case"]
        times = {
            name: [value / 1e3 for value in quartiles(milliseconds)]
            for name, milliseconds in outcome["milliseconds"].items()
        }
        add(curves, cuda_case(case), "copy", (case["n"], outcome["rows"]), times)


def cuda_case(case: dict[str, Any]) -> str:
    """Return what was measured, but for the length."""
    what = case["other"] or f"sparseness {case['sparseness']}"
    masked = ", masked" * case["masked"]
    return f"{case['direction']}, {what}, {case['kind']}, {case['dtype']}{masked}"


def jax_curves(curves: Curves) -> None:
    """JAX on the CPU."""
    for outcome in loaded("jax_cpu")["outcomes"]:
        case = outcome["case"]
        at = (case["n"], case["rows"])
        add(curves, case["direction"], "jax.nn.softmax", at, outcome["seconds"])


# ---- goals ----

REACHED = {
    "no": "missed",
    "missed": "missed",
    "firm": "firm",
    "aim": "stretch",
    "stretch": "stretch",
}
"""What benchmarks say about a goal, and the word for it here."""


def goal(
    case: str,
    against: str,
    bounds: tuple[Any, Any],
    ratio: Any,
    reached: str,
    *,
    faster: bool = False,
) -> dict[str, Any]:
    """Return a goal: `bounds` are the firm one and what was hoped for; `faster`: more is better."""
    return {
        "case": case,
        "against": against,
        "firm": bounds[0],
        "stretch": bounds[1],
        "faster": faster,
        "ratio": quartiles(ratio),
        "reached": REACHED[reached],
    }


def numpy_goals() -> Iterator[dict[str, Any]]:
    """NumPy arrays on the CPU."""
    for one in loaded("cpu")["goals"]:
        reached = one["met"].partition(" ")[0]
        ratio = [one["median"]] * 2 + [one["worst"]]
        bounds = one["firm"], one["stretch"]
        yield goal(one["case"], one["against"], bounds, ratio, reached, faster=one["faster"])


def set_goals() -> Iterator[dict[str, Any]]:
    """Other sets, on the CPU."""
    for outcome in loaded("sets")["outcomes"]:
        case = outcome["case"]
        what = f"{case['what']}, rows of {case['n']}" + ", masked" * case["masked"]
        for one in outcome["goals"]:
            if one["firm"] is None:
                continue
            median, low, high = quartiles(outcome["ratios"][one["against"]])
            ratio = [1 / median, 1 / high, 1 / low] if one["faster"] else [median, low, high]
            bounds = one["firm"], one["aim"]
            yield goal(what, one["against"], bounds, ratio, one["reached"], faster=one["faster"])


def torch_goals() -> Iterator[dict[str, Any]]:
    """Tensors on the CPU: whole passes, then single calls."""
    for outcome in loaded("torch_cpu")["outcomes"]:
        case = outcome["case"]
        what = f"{case['direction']}, {case['rows']} x {case['n']}, threads: {case['threads']}"
        reached = "firm" if outcome["met"] else "no"
        yield goal(what, outcome["against"], (outcome["bound"], None), outcome["ratio"], reached)
    yield from call_goals("torch_calls_cpu")


def call_goals(name: str) -> Iterator[dict[str, Any]]:
    """Single calls, layers and steps of PyTorch."""
    for one in loaded(name)["outcomes"]:
        if one["goal"]:
            yield goal(one["case"], one["against"], one["goal"], one["ratio"], one["reached"])


def cuda_goals() -> Iterator[dict[str, Any]]:
    """Tensors on a GPU."""
    for outcome in loaded("torch_cuda")["outcomes"]:
        case, (against, *bounds) = outcome["case"], outcome["goal"]
        if bounds[0] is None:
            continue
        size = f"one vector of {case['n']}" if outcome["rows"] == 1 else f"rows of {case['n']}"
        what = f"{cuda_case(case)}, {size}"
        yield goal(what, against, (bounds[0], bounds[1]), outcome["ratio"], outcome["reached"])
    yield from call_goals("torch_calls_cuda")


def jax_goals() -> Iterator[dict[str, Any]]:
    """JAX on the CPU."""
    for outcome in loaded("jax_cpu")["outcomes"]:
        case = outcome["case"]
        what = f"{case['direction']}, {case['rows']} x {case['n']}"
        for against, one in outcome["goals"].items():
            reached = "firm" if one["met"] else "no"
            yield goal(what, against, (one["bound"], None), one["ratio"], reached)


def factorization_goals() -> Iterator[dict[str, Any]]:
    """Factorizations; some of their goals are words."""
    for one in loaded("decomposition")["outcomes"]:
        firm, stretch = (_number(one[name]) for name in ("firm", "stretch"))
        faster = one["unit"] == "x faster"
        found = goal(
            one["case"],
            one["against"],
            (firm, stretch),
            one["measured"],
            one["verdict"],
            faster=faster,
        )
        words = (
            {}
            if firm
            else {"words": f"{one['firm']}: {one['measured']['median']:.2f} {one['unit']}"}
        )
        yield found | words


def _number(words: str) -> float | None:
    """Return the ratio that a goal in words begins with, if it is one."""
    if words == "not worse":
        return 1.0
    found = re.match(r"([\d.]+) x", words)
    return float(found[1]) if found else None


# ---- all of it ----

Part = tuple[str, str, Callable[[Curves], None] | None, Callable[[], Iterator[dict[str, Any]]]]
PARTS: tuple[Part, ...] = (
    ("NumPy, CPU", "cpu", numpy_curves, numpy_goals),
    ("Other sets, CPU", "sets", set_curves, set_goals),
    ("PyTorch, CPU", "torch_cpu", torch_curves, torch_goals),
    ("PyTorch, GPU", "torch_cuda", cuda_curves, cuda_goals),
    ("JAX, CPU", "jax_cpu", jax_curves, jax_goals),
    ("Factorizations, CPU", "decomposition", None, factorization_goals),
)


def collected() -> list[dict[str, Any]]:
    """Return all parts, each with its curves, its goals, and where and when it was measured."""
    return [collected_part(*part) for part in PARTS]


def collected_part(
    name: str,
    file: str,
    draw: Callable[[Curves], None] | None,
    goals: Callable[[], Any],
) -> dict[str, Any]:
    """Return one part."""
    curves: Curves = {}
    if draw is not None:
        draw(curves)
    machine = loaded(file)["machine"]
    return {
        "name": name,
        "report": f"{file}.html",
        "machine": machine.get("cpu") or machine["device"],
        "date": machine["date"],
        "curves": [curve for curve in map(_sorted, curves.values()) if curve["lengths"] >= FEWEST],
        "goals": list(goals()),
    }


def _sorted(curve: dict[str, Any]) -> dict[str, Any]:
    series = [
        {"name": name, "points": sorted(points, key=lambda point: (point["n"], point["rows"]))}
        for name, points in curve["series"].items()
    ]
    lengths = len({point["n"] for one in series for point in one["points"]})
    return curve | {"series": series, "lengths": lengths}


def main() -> None:
    """Write everything to the file that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(collected(), separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
