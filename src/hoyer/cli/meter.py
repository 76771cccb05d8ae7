"""How a reproduction gets on: a live bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from hoyer.paper.experiments.experiment import AnyExperiment
from hoyer.paper.experiments.runner import Progress as ProgressOfRun
from hoyer.paper.experiments.settings import Cell

__all__ = ["meter"]

# Without a terminal: a line after so many seconds, not after every cell.
_SECONDS_BETWEEN_LINES = 10.0


def meter(stream: TextIO | None = None) -> ProgressOfRun:
    """Return a bar if the stream (standard error) is a terminal, and lines if it is not."""
    target = stream or sys.stderr
    return _Bar(target) if target.isatty() else _Lines(target)


class _Clock:
    """Cells, vectors and work of one experiment, done and to do."""

    def __init__(self, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self.found = len(done)
        self.cells = self.found
        self.all_cells = len(done) + len(todo)
        self.vectors = 0
        self.work = 0
        self.all_work = sum(cell.cost for cell in todo)
        self.start = time.monotonic()

    def advance(self, cell: Cell) -> None:
        self.cells += 1
        self.vectors += cell.vectors
        self.work += cell.cost

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.start, 1e-9)

    @property
    def rate(self) -> str:
        rate = self.vectors / self.seconds
        return f"{rate:,.0f} vectors/s" if rate >= 10 else f"{rate:.2g} vectors/s"

    @property
    def left(self) -> float:
        """Seconds to go, if the rest of the work goes as fast as what is done."""
        return self.seconds * (self.all_work / self.work - 1) if self.work else float("inf")


class _Lines:
    """Plain lines: the beginning, one every few seconds, the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self._clock = _Clock(done, todo)
        self._said = time.monotonic()
        found = f", {len(done)} of them from an earlier run" if done else ""
        self._say(f"{experiment.title}: {_cells(self._clock.all_cells)}{found}")

    def advance(self, cell: Cell) -> None:
        clock = self._clock
        clock.advance(cell)
        if time.monotonic() - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            cells = f"{clock.cells} of {clock.all_cells} cells"
            self._say(f"  {cells}, {clock.rate}, about {_duration(clock.left)} left")

    def end(self) -> None:
        clock = self._clock
        if clock.found < clock.cells == clock.all_cells:
            self._say(f"  done in {_duration(clock.seconds)}, {clock.rate}")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _cells(number: int) -> str:
    return "1 cell" if number == 1 else f"{number} cells"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


class _Note(ProgressColumn):
    """Cells, rate, and time left of the clock that a task carries."""

    def render(self, task: Task) -> Text:
        clock: _Clock = task.fields["clock"]
        cells = f"{clock.cells}/{clock.all_cells} cells"
        if not clock.vectors:
            return Text(cells)
        time_left = f"{_duration(clock.left)} left"
        if clock.cells == clock.all_cells:
            time_left = f"done in {_duration(clock.seconds)}"
        return Text(f"{cells}, {clock.rate}, {time_left}")


class _Bar:
    """A bar that lives from the beginning of an experiment to its end."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream)

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self._clock = _Clock(done, todo)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Note(),
            console=self._console,
        )
        name = f"{experiment.name:10}"
        before = sum(cell.cost for cell in done)
        total = before + self._clock.all_work
        self._task = self._bar.add_task(name, total=total, completed=before, clock=self._clock)
        self._bar.start()

    def advance(self, cell: Cell) -> None:
        self._clock.advance(cell)
        self._bar.advance(self._task, cell.cost)

    def end(self) -> None:
        self._bar.stop()
