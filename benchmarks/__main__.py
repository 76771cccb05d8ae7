"""Run the CPU benchmark: ``python -m benchmarks [--quick] [--out DIR]``."""

import argparse
import sys
import time
from pathlib import Path

from . import cases, machine
from .goals import judge
from .report import GOAL_HEAD, Report, goal_row, table
from .timing import FULL, QUICK


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes, every goal once")
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/results"), help="where cpu.json, .md, .png go"
    )
    parser.add_argument("--only", choices=cases.GROUPS, nargs="+", help="these groups alone")
    return parser.parse_args()


def main() -> None:
    """Measure, judge, write."""
    options = arguments()
    described = machine.describe()
    settings = QUICK if options.quick else FULL
    wanted, notes = cases.possible(cases.quick() if options.quick else cases.full())
    if options.only:
        wanted = [case for case in wanted if case.group in options.only]
        notes.append(f"Only {', '.join(options.only)}.")

    start = time.perf_counter()
    machine.set_threads(1)
    outcomes = []
    for number, case in enumerate(wanted, 1):
        elapsed = time.perf_counter() - start
        print(f"[{elapsed:4.0f} s, {number}/{len(wanted)}] {case}", file=sys.stderr, flush=True)
        machine.pin(2 if case.group == "threads" else 1)
        outcomes.append(cases.measure(case, settings))
        machine.set_threads(1)
    described["seconds"] = round(time.perf_counter() - start)

    verdicts = judge(outcomes)
    print(table(GOAL_HEAD, map(goal_row, verdicts)))
    for path in Report(described, settings, notes, verdicts, outcomes).write(options.out):
        print(path)


if __name__ == "__main__":
    main()
