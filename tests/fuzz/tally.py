"""What was tried, how far off it was, and what was found."""

from collections import Counter
from typing import Any

import numpy as np

from .draw import Case

SUBJECTS = ("path", "dtype", "instructions", "distribution", "target")


class Tally:
    """Counts and largest errors; travels between processes as plain data."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.counts: Counter[tuple[str, str]] = Counter()
        self.largest: dict[tuple[str, str, str], float] = {}
        self.findings: list[dict[str, Any]] = []

    def tried(self, case: Case, vectors: int) -> None:
        """Count vectors that were judged."""
        kind = case.name.partition(":")[0]
        labels = (case.path, case.type.name, kind, case.distribution, case.form)
        self.counts.update(dict.fromkeys(zip(SUBJECTS, labels, strict=True), vectors))
        for name in ("nonnegative", "only_increase", "at_most", "where"):
            if np.any(case.options.get(name, False)):
                self.counts["options", name] += vectors

    def count(self, name: str, number: int = 1) -> None:
        """Count something else."""
        self.counts["", name] += number

    def saw(self, what: str, case: Case, number: float) -> None:
        """Remember the largest number of a sort."""
        if number == 0:
            return
        key = (what, case.type.name, case.path)
        self.largest[key] = max(self.largest.get(key, 0.0), float(number))

    def found(self, case: Case, row: int | None, what: str, error: float) -> None:
        """Note a violation."""
        self.count("violations")
        sort = f"{what}: {case.path}, {case.type.name}"
        self.counts["violation", sort] += 1
        if self.counts["violation", sort] > 1:
            return  # one example will do
        x = [] if row is None else case.x[row].tolist()
        self.findings.append(
            {
                "case": case.name,
                "row": row,
                "what": what,
                "error": float(error),
                "about": f"{case.path}, {case.type.name}, {case.distribution}, {case.form}",
                "options": {name: _one(value, row) for name, value in case.options.items()},
                "x": [float(entry).hex() for entry in x],
            }
        )

    def send(self) -> dict[str, Any]:
        """Everything so far, as JSON takes it."""
        return {
            "counts": [[*key, number] for key, number in self.counts.items()],
            "largest": [[*key, number] for key, number in self.largest.items()],
            "findings": self.findings,
        }

    def receive(self, state: dict[str, Any]) -> None:
        """Add what another process sent."""
        for *key, number in state["counts"]:
            self.counts[tuple(key)] += number
        for *key, number in state["largest"]:
            self.largest[tuple(key)] = max(self.largest.get(tuple(key), 0.0), number)
        self.findings += state["findings"]

    def summary(self, repeat: str) -> str:
        """All of it, to be read; `repeat` is the command that repeats a case."""
        lines = []
        for subject in (*SUBJECTS, "options"):
            rows = sorted((-n, name) for (kind, name), n in self.counts.items() if kind == subject)
            lines += ["", f"vectors by {subject}"]
            lines += [f"  {name:28} {-n:12,}" for n, name in rows]
        lines += ["", "largest seen (errors in eps)"]
        for what in sorted({key[0] for key in self.largest}):
            for (_, kind, path), number in sorted(
                (key, number) for key, number in self.largest.items() if key[0] == what
            ):
                lines.append(f"  {what:23} {kind:9} {path:16} {number:10.4g}")
        lines += [
            "",
            *(f"{name:30} {n:12,}" for (kind, name), n in sorted(self.counts.items()) if not kind),
        ]
        broken = sorted(
            (-n, name) for (kind, name), n in self.counts.items() if kind == "violation"
        )
        lines += [f"  {name:60} {-n:10,}" for n, name in broken]
        # Results before derivatives.
        self.findings.sort(key=lambda finding: finding["what"].startswith(("jvp", "vjp", "by")))
        for finding in self.findings[:20]:
            lines += ["", self._told(finding), f"  {repeat.format(case=finding['case'])}"]
        total = sum(n for (kind, _), n in self.counts.items() if kind == "path")
        lines += ["", f"{total:,} vectors, {self.counts['', 'violations']:,} violations"]
        return "\n".join(lines)

    @staticmethod
    def _told(finding: dict[str, Any], entries: int = 16) -> str:
        x, rest = finding["x"], len(finding["x"]) - entries
        more = f" and {rest} more" if rest > 0 else ""
        return (
            f"{finding['what']} ({finding['error']:.4g}): {finding['about']}, row {finding['row']}"
            f"\n  {finding['options']}\n  x = [{', '.join(x[:entries])}]{more}"
        )


def _one(value: Any, row: int | None) -> Any:
    """The number that concerns a row, exactly."""
    if isinstance(value, np.ndarray) and value.ndim > 1 and row is not None:
        return value[row].tolist()
    if isinstance(value, np.ndarray) and row is not None:
        value = float(value[row])
    return repr(value) if isinstance(value, np.ndarray | np.float32) else value
