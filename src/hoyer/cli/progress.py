"""How far commands have got: a live bar on a terminal; elsewhere nothing, or plain lines."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ..paper.experiments.experiment import AnyExperiment
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
    clock = _Clock(total)

    def advance(amount: int) -> None:
        clock.done += amount
        bar.advance(bar.task_ids[0], amount)

    with _bar(name, clock, transient=True) as bar:
        yield advance


def _bar(name: str, clock: "_Clock", *, transient: bool) -> Progress:
    """Return a bar on stderr that shows what its clock says."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _Note(clock),
        console=Console(file=sys.stderr),
        transient=transient,
    )
    bar.add_task(name, total=clock.before + clock.todo, completed=clock.before)
    return bar


class _Note(ProgressColumn):
    """The column behind a bar."""

    def __init__(self, clock: "_Clock") -> None:
        super().__init__()
        self._clock = clock

    def render(self, task: Task) -> Text:
        return Text(self._clock.note())


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


class Meter:
    """Reports on experiments: a bar for each on a terminal; elsewhere lines, one every few seconds.

    It is what `hoyer.paper.experiments.runner` calls a Progress.
    """

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        """Say which experiment runs, and how much of it was found done."""
        self._clock = clock = _CellClock(done, todo)
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = _bar(f"{experiment.name:10}", clock, transient=False)
            self._bar.start()
            return
        self._said = time.monotonic()
        pairs = "1 pair" if clock.all_cells == 1 else f"{clock.all_cells} pairs"
        share = f" {len(done)} of them" if todo else ""
        found = f",{share} from an earlier run" if done else ""
        _say(f"{experiment.title} ({pairs} of length and target{found})")

    def advance(self, cell: Cell) -> None:
        """Count a cell that is done."""
        self._clock.advance(cell)
        if self._bar:
            self._bar.advance(self._bar.task_ids[0], cell.cost)
        elif time.monotonic() - self._said >= SECONDS_BETWEEN_LINES and not self._clock.finished:
            self._said = time.monotonic()
            _say(f"  {self._clock.note()}")

    def end(self) -> None:
        """Say how long the experiment took."""
        clock = self._clock
        if self._bar:
            self._bar.stop()
        elif clock.finished and clock.cells > clock.found:
            _say(f"  done in {_duration(clock.seconds)}, {clock.rate}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
