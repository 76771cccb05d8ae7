"""Runs the cells of an experiment: here or in worker processes, on from where a run stopped."""

import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import hoyer
from hoyer.paper.experiments.experiment import AnyExperiment, Experiment, Measurement, Outcome
from hoyer.paper.experiments.files import alone_with
from hoyer.paper.experiments.settings import Cell, Settings
from hoyer.paper.experiments.table import Table
from hoyer.system import total_memory

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

__all__ = ["MEASURED_FILE", "Progress", "Run", "load", "run", "run_alone"]

MEASURED_FILE = "measured.csv"

Measure = Callable[[Settings, Cell], Outcome[Any]]


class Progress(Protocol):
    """Who wants to know how a run gets on."""

    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        """Note that an experiment begins, and which of its cells were there already."""

    def advance(self, cell: Cell) -> None:
        """Note that a cell is finished."""

    def end(self) -> None:
        """Note that all cells are finished, or that the run was stopped."""


class _Nobody:
    def begin(self, experiment: AnyExperiment, done: Sequence[Cell], todo: Sequence[Cell]) -> None:
        pass

    def advance(self, cell: Cell) -> None:
        pass

    def end(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Run(Generic[R]):
    """All that came out of an experiment."""

    records: list[R]
    measurements: list[Measurement]


def run_alone(
    experiment: Experiment[R], settings: Settings | None, out: str | Path | None, jobs: int
) -> list[R]:
    """Run one experiment and return its records; settings that it would ignore are refused."""
    chosen = settings or Settings()
    experiment.check_options(chosen)
    return run(experiment, chosen, out=out, jobs=jobs).records


def run(
    experiment: Experiment[R],
    settings: Settings,
    *,
    out: str | Path | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Run[R]:
    """Measure all cells of an experiment that are not in the directory yet.

    Every finished cell is appended to the tables in the directory. When all are there the tables
    are put in order, so that they do not show in which order, in how many runs, and by how many
    jobs the cells were measured.

    Parameters
    ----------
    experiment : Experiment
        What to do.
    settings : Settings
        With how many vectors of which kind.
    out : path, optional
        The directory; without one nothing is kept.
    jobs : int
        Worker processes; 1 works in this process.
    progress : Progress, optional
        Is told of every cell.

    Returns
    -------
    Run
        Records and measurements, in the order of the cells.

    Raises
    ------
    ValueError
        If `jobs` is less than 1, the directory holds something else, or another run is at work in
        it.
    OSError
        If the directory cannot be written, or a worker process died.
    """
    if jobs < 1:
        raise ValueError(f"jobs={jobs}: must be at least 1")
    told = progress or _Nobody()
    if out is None:
        return _run(experiment, settings, None, jobs, told)
    directory = Path(out)
    with alone_with(settings.claim(directory)):
        return _run(experiment, settings, _Store(directory, experiment), jobs, told)


def _run(
    experiment: Experiment[R],
    settings: Settings,
    store: "_Store[R] | None",
    jobs: int,
    told: Progress,
) -> Run[R]:
    cells = experiment.cells(settings)
    found = {} if store is None else store.load()
    todo = [cell for cell in cells if cell not in found]
    told.begin(experiment, [cell for cell in cells if cell in found], todo)
    try:
        with closing(_measure(experiment, settings, todo, jobs)) as outcomes:
            for cell, outcome in outcomes:
                if store is not None:
                    store.append(outcome)
                found[cell] = outcome
                told.advance(cell)
    finally:
        told.end()
    ordered = [found[cell] for cell in cells]
    if store is not None:
        store.rewrite(ordered)
    return _joined(ordered)


def load(experiment: Experiment[R], settings: Settings, directory: Path) -> Run[R] | None:
    """Return what an earlier run left in a directory, None unless it is complete."""
    found = _Store(directory, experiment).load()
    cells = experiment.cells(settings)
    if not all(cell in found for cell in cells):
        return None
    return _joined([found[cell] for cell in cells])


def _joined(outcomes: list[Outcome[R]]) -> Run[R]:
    return Run(
        [record for outcome in outcomes for record in outcome.records],
        [measurement for outcome in outcomes for measurement in outcome.measurements],
    )


class _Store(Generic[R]):
    """The tables of an experiment in a directory: its results, and the measurements of all."""

    def __init__(self, directory: Path, experiment: Experiment[R]) -> None:
        self.experiment = experiment
        self.results = Table(directory / experiment.file, experiment.record, experiment.closes)
        self.measured = Table(directory / MEASURED_FILE, Measurement, lambda _: True)

    def load(self) -> dict[Cell, Outcome[R]]:
        mine: dict[tuple[int, float], dict[tuple[str, str], Measurement]] = {}
        for (row,) in self.measured.load():
            if row.experiment == self.experiment.name:
                # After a crash between the two tables a cell is measured again: the last counts.
                mine.setdefault((row.n, row.sparseness), {})[row.what, row.unit] = row
        found = {}
        for group in self.results.load():
            first: Any = group[0]
            cell = Cell(first.n, first.sparseness, first.vectors)
            found[cell] = Outcome(group, [*mine.get(cell[:2], {}).values()])
        return found

    def append(self, outcome: Outcome[R]) -> None:
        # The results come last: only they say that a cell is done.
        self.measured.append(outcome.measurements)
        self.results.append(outcome.records)

    def rewrite(self, outcomes: list[Outcome[R]]) -> None:
        others = [row for (row,) in self.measured.load() if row.experiment != self.experiment.name]
        joined = _joined(outcomes)
        rows = sorted([*others, *joined.measurements], key=lambda row: row.experiment)
        self.measured.rewrite(rows)
        self.results.rewrite(joined.records)


def _measure(
    experiment: Experiment[R], settings: Settings, cells: list[Cell], jobs: int
) -> Generator[tuple[Cell, Outcome[R]], None, None]:
    if jobs > 1 and len(cells) > 1:
        yield from _in_workers(experiment, settings, cells, min(jobs, len(cells)))
        return
    with _one_thread():
        for cell in cells:
            yield cell, experiment.measure(settings, cell)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let the core use one thread, as in the workers: times are then comparable."""
    before = hoyer.get_num_threads()
    hoyer.set_num_threads(1)
    try:
        yield
    finally:
        hoyer.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class _Worker:
    process: BaseProcess
    connection: "Connection[Any, Any]"


def _in_workers(
    experiment: Experiment[R], settings: Settings, cells: list[Cell], jobs: int
) -> Iterator[tuple[Cell, Outcome[R]]]:
    """Measure cells in worker processes; yield them as they are finished."""
    budget = total_memory() * 3 // 4
    # The dearest first: a long one at the end would keep a single worker busy.
    waiting = deque(sorted(cells, key=lambda cell: cell.cost, reverse=True))
    workers: list[_Worker] = []
    busy: dict[Any, tuple[_Worker, Cell, int]] = {}
    try:
        with _without_interrupts():
            workers += [_start(experiment.measure, settings) for _ in range(jobs)]
        idle = list(workers)
        # Invariant: the cells in work together fit the budget, or there is just one.
        while waiting or busy:
            while waiting and idle:
                need = waiting[0].n * experiment.bytes_per_entry
                if busy and sum(size for _, _, size in busy.values()) + need > budget:
                    break
                worker, cell = idle.pop(), waiting.popleft()
                worker.connection.send(cell)
                busy[worker.connection] = worker, cell, need
            for connection in wait([*busy]):
                worker, cell, _ = busy.pop(connection)
                yield cell, _received(worker)
                idle.append(worker)
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.connection.close()


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that a Ctrl-C passes by: it is for their parent, who ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(measure: Measure, settings: Settings) -> _Worker:
    # A fresh interpreter: a fork would copy locks that other threads of a notebook hold.
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, measure, settings), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _work(connection: "Connection[Any, Any]", measure: Measure, settings: Settings) -> None:
    """Measure the cells that a worker process is sent, until nobody is there."""
    hoyer.set_num_threads(1)
    while True:
        try:
            cell = connection.recv()
            try:
                answer: object = measure(settings, cell)
            except Exception as error:
                # The parent raises it again.
                answer = error
            connection.send(answer)
        except (EOFError, BrokenPipeError):
            return


def _received(worker: _Worker) -> Any:
    try:
        answer = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        raise OSError(
            f"a worker process died (exit code {worker.process.exitcode}), perhaps for want of "
            "memory: fewer jobs need less, and the same command goes on where it stopped"
        ) from None
    if isinstance(answer, BaseException):
        raise answer
    return answer
