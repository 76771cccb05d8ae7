"""What an experiment is: cells, a function that measures one, and records to keep."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from hoyer.paper.experiments.settings import Cell, Settings

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)
else:
    R = TypeVar("R")

__all__ = ["Experiment", "Measurement", "Outcome", "Stopwatch"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A time or a space: what differs from run to run, and is kept apart from the results."""

    experiment: str
    n: int
    sparseness: float
    what: str
    """The solver or method that was measured."""
    unit: str
    """"s" of one processor per vector, or "byte"."""
    value: float


@dataclass(frozen=True, slots=True)
class Outcome(Generic[R]):
    """What came out of one cell."""

    records: Sequence[R]
    measurements: Sequence[Measurement] = ()


@dataclass(frozen=True, slots=True)
class Experiment(Generic[R]):
    """One experiment of the paper."""

    name: str
    title: str
    record: type[R]
    """The dataclass of the results; its fields are the columns of the CSV file."""
    cells: Callable[[Settings], list[Cell]]
    """The points of the experiment, in the order of the file."""
    measure: Callable[[Settings, Cell], Outcome[R]]
    """The work of one cell. Its records depend on the settings and the cell, on nothing else."""
    closes: Callable[[R], bool]
    """Whether a record is the last one of its cell."""
    bytes_per_entry: int
    """About what the work needs at its peak, so that jobs together do not exhaust the memory."""
    options: frozenset[str] = frozenset({"vectors", "max_log2n"})
    """Which of the settings that only some experiments have it looks at."""

    @property
    def file(self) -> str:
        """The name of the CSV file."""
        return f"{self.name}.csv"

    def check_options(self, settings: Settings) -> None:
        """Refuse settings that this experiment would ignore.

        Raises
        ------
        ValueError
            Naming the setting.
        """
        for name in ("vectors", "max_log2n"):
            if getattr(settings, name) is not None and name not in self.options:
                option = "--" + name.replace("_", "-")
                raise ValueError(
                    f"{option} means nothing to the experiment {self.name!r}: leave it out"
                )


@dataclass(slots=True)
class Stopwatch:
    """Times of several things that are done again and again."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        """Take the processor's time for the statement's body, which must not use other threads."""
        # What else the machine is doing does not count.
        start = time.thread_time()
        yield
        self.seconds.setdefault(what, []).append(time.thread_time() - start)

    def measurements(self, experiment: str, cell: Cell) -> list[Measurement]:
        """Return the median of each thing's times, to four digits: the rest is noise."""
        return [
            Measurement(
                experiment, cell.n, cell.sparseness, what, "s", float(f"{np.median(times):.4g}")
            )
            for what, times in self.seconds.items()
        ]


AnyExperiment = Experiment[Any]
