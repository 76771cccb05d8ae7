"""The command: two workers at a time, each with an instruction set, for so many seconds."""

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

from .tally import Tally

SHARES = {"avx512": 0.3, "avx2": 0.35, "baseline": 0.2, "triton": 0.15}
"""Kinds of workers, instruction sets of the core and the kernels; the share of time of each."""
SILENCE = 180
"""Seconds without a word after which a worker hangs."""


def work(kind: str, seed: int, seconds: float, first: int, case: str | None) -> None:
    """Run cases first, first + 2, ... (or the one that is given), saying how it goes."""
    names = [case] if case else (f"{kind}:{number}" for number in itertools.count(first, 2))
    tally = Tally()
    with contextlib.suppress(KeyboardInterrupt):
        _work(names, seed, seconds, tally)
    _say(tally.send())


def _work(names: Iterable[str], seed: int, seconds: float, tally: Tally) -> None:
    from . import draw, paths

    warnings.simplefilter("ignore")
    paths.prepare()
    known = paths.known()
    end, spoke = time.monotonic() + seconds, time.monotonic()
    for name in names:
        _say({"case": name})
        try:
            drawn = draw.draw(name, seed, known)
            paths.run(drawn, known[drawn.path], tally)
        except Exception:
            _say({"broken": name, "trace": traceback.format_exc()})
        now = time.monotonic()
        if now >= end:
            return
        if now - spoke > 2:
            spoke = now
            _say(tally.send())
            tally.clear()


def _say(word: dict[str, Any]) -> None:
    print(json.dumps(word), flush=True)


def available() -> list[str]:
    """The kinds of workers that run on this machine."""
    from hoyer import _core

    return [kind for kind in SHARES if kind in ("triton", *_core.AVAILABLE_ISAS)]


class Fuzz:
    """One run: what workers say, added up."""

    def __init__(self, seed: int) -> None:
        self.seed, self.tally, self.lock = seed, Tally(), threading.Lock()
        self.broken: list[str] = []
        self.children: list[subprocess.Popen[str]] = []
        self.stopped = False

    def worker(self, kind: str, seconds: float, first: int = 0, case: str | None = None) -> None:
        """Let one worker run, and listen."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment |= {"TRITON_INTERPRET": "1"} if kind == "triton" else {"HOYER_ISA": kind}
        command = [sys.executable, "-m", "fuzz", "--worker", kind, "--seed", str(self.seed)]
        command += ["--seconds", str(seconds), "--first", str(first)]
        command += ["--case", case] if case else []
        # In a session of its own: Ctrl-C is passed on once, by `run`.
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True
        )
        self.children.append(child)
        last = "nothing"
        while True:
            watch = threading.Timer(SILENCE, child.kill)
            watch.start()
            line = child.stdout.readline()
            watch.cancel()
            if not line:
                break
            word = json.loads(line)
            last = word.get("case", last)
            with self.lock:
                if "counts" in word:
                    self.tally.receive(word)
                if "broken" in word:
                    self.broken.append(f"{word['broken']} broke the fuzzer:\n{word['trace']}")
        if child.wait():
            self.broken.append(f"a worker ended with {child.returncode} in case {last}")

    def run(self, kinds: list[str], seconds: float) -> None:
        """Two workers at a time, each kind for its share of the time."""
        whole = sum(SHARES[kind] for kind in kinds)

        def slot(first: int) -> None:
            middle = first * len(kinds) // 2
            for kind in kinds[middle:] + kinds[:middle]:
                if self.stopped:
                    return
                self.worker(kind, seconds * SHARES[kind] / whole, first)

        slots = [threading.Thread(target=slot, args=(first,)) for first in (0, 1)]
        for each in slots:
            each.start()
        try:
            for each in slots:
                each.join()
        except KeyboardInterrupt:
            self.stopped = True
            for child in self.children:
                child.send_signal(signal.SIGINT)
            for each in slots:
                each.join()


def main() -> int:
    """Read the arguments and run; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="kind:number, as a finding names it")
    parser.add_argument("--kinds", nargs="+", choices=list(SHARES), help="these workers alone")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, given.seed, given.seconds, given.first, given.case)
        return 0
    fuzz, start = Fuzz(given.seed), time.monotonic()
    if given.case:
        fuzz.worker(given.case.partition(":")[0], 0, case=given.case)
    else:
        fuzz.run(given.kinds or available(), given.seconds)
    print(fuzz.tally.summary(f"make fuzz SEED={given.seed} CASE={{case}}"))
    print(*fuzz.broken, sep="\n", end="\n" if fuzz.broken else "")
    print(f"{time.monotonic() - start:.0f} seconds, seed {given.seed}")
    return 1 if fuzz.broken or fuzz.tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
