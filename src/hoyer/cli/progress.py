"""How far commands have got: a live bar on a terminal; elsewhere nothing, or plain lines."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ..paper.experiments.experiment import AnyExperiment
from ..paper.experiments.runner import Progress as ProgressOfRun
from ..paper.experiments.settings import Cell

Advance: TypeAlias = Callable[[int], None]

# Without a terminal, a line is printed every so many seconds, not after every cell.
SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress_bar(name: str, total: int, *, show: bool) -> Iterator[Advance]:
    """Show a bar on stderr while the block runs, if that is a terminal; yield its advance."""
    if not (show and sys.stderr.isatty()):
        yield lambda amount: None
        return
    bar = _Bar(sys.stderr, name, _Clock(total), transient=True)
    try:
        yield bar.advance
    finally:
        bar.stop()


def meter() -> ProgressOfRun:
    """Return what reports on experiments: a bar for each on a terminal, lines elsewhere."""
    return _Bars(sys.stderr) if sys.stderr.isatty() else _Lines(sys.stderr)


class _Clock:
    """Work done, work to do, and the time it takes."""

    def __init__(self, todo: int, before: int = 0) -> None:
        self.before = before
        self.todo = todo
        self.done = 0
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self._start, 1e-9)

    @property
    def left(self) -> str:
        """How long it will take, if the rest of the work goes as fast as what is done."""
        return _duration(self.seconds * (self.todo / self.done - 1)) if self.done else "?"

    def note(self) -> str:
        """Return the text behind the bar."""
        return f"{100 * self.done // max(self.todo, 1)}%, {self.left} left"


class _CellClock(_Clock):
    """A clock for the cells of an experiment; their cost is the work."""

    def __init__(self, before: Sequence[Cell], todo: Sequence[Cell]) -> None:
        super().__init__(sum(cell.cost for cell in todo), sum(cell.cost for cell in before))
        self.found = len(before)
        self.cells = self.found
        self.all_cells = len(before) + len(todo)
        self._vectors = 0

    def advance(self, cell: Cell) -> None:
        self.done += cell.cost
        self.cells += 1
        self._vectors += cell.vectors

    @property
    def finished(self) -> bool:
        return self.cells == self.all_cells

    @property
    def rate(self) -> str:
        rate = self._vectors / self.seconds
        return f"{rate:,.0f} vectors/s" if rate >= 10 else f"{rate:.2g} vectors/s"

    def note(self) -> str:
        cells = f"{self.cells} of {self.all_cells}"
        if self.cells == self.found:
            return cells
        end = f"done in {_duration(self.seconds)}" if self.finished else f"{self.left} left"
        return f"{cells}, {self.rate}, {end}"


class _Note(ProgressColumn):
    """The column that shows what the clock of a bar says."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def render(self, task: Task) -> Text:
        return Text(self._clock.note())


class _Bar:
    """A bar that moves as its clock counts."""

    def __init__(self, stream: TextIO, name: str, clock: _Clock, *, transient: bool) -> None:
        self._clock = clock
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            _Note(clock),
            console=Console(file=stream),
            transient=transient,
        )
        total = clock.before + clock.todo
        self._task = self._bar.add_task(name, total=total, completed=clock.before)
        self._bar.start()

    def advance(self, amount: int) -> None:
        self._clock.done += amount
        self.show()

    def show(self) -> None:
        self._bar.update(self._task, completed=self._clock.before + self._clock.done)

    def stop(self) -> None:
        self._bar.stop()


class _Bars:
    """A bar for each experiment, from its beginning to its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self._clock = _CellClock(done, todo)
        self._bar = _Bar(self._stream, f"{experiment.name:10}", self._clock, transient=False)

    def advance(self, cell: Cell) -> None:
        self._clock.advance(cell)
        self._bar.show()

    def end(self) -> None:
        self._bar.stop()


class _Lines:
    """Plain lines: the beginning of an experiment, one every few seconds, its end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        self._clock = _CellClock(done, todo)
        self._said = time.monotonic()
        pairs = "1 pair" if self._clock.all_cells == 1 else f"{self._clock.all_cells} pairs"
        share = f" {len(done)} of them" if todo else ""
        found = f",{share} from an earlier run" if done else ""
        self._say(f"{experiment.title} ({pairs} of length and target{found})")

    def advance(self, cell: Cell) -> None:
        self._clock.advance(cell)
        if time.monotonic() - self._said >= SECONDS_BETWEEN_LINES and not self._clock.finished:
            self._said = time.monotonic()
            self._say(f"  {self._clock.note()}")

    def end(self) -> None:
        if self._clock.finished and self._clock.cells > self._clock.found:
            self._say(f"  done in {_duration(self._clock.seconds)}, {self._clock.rate}")

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
