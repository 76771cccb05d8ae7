"""The results of a run, all experiments together: what figures, claims and report are made of."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hoyer.paper.experiments.agreement import AGREEMENT, Agreement
from hoyer.paper.experiments.counts import Counts
from hoyer.paper.experiments.dimensions import DIMENSIONS
from hoyer.paper.experiments.experiment import AnyExperiment, Measurement
from hoyer.paper.experiments.gradient import GRADIENT, Gradient
from hoyer.paper.experiments.psi import PSI, Point
from hoyer.paper.experiments.runner import load
from hoyer.paper.experiments.settings import Settings
from hoyer.paper.experiments.solvers import SOLVERS

__all__ = ["EXPERIMENTS", "Results"]

EXPERIMENTS: dict[str, AnyExperiment] = {
    experiment.name: experiment for experiment in (PSI, SOLVERS, DIMENSIONS, AGREEMENT, GRADIENT)
}


@dataclass(frozen=True, slots=True)
class Results:
    """The records of every experiment; an empty list where it was not run to its end."""

    settings: Settings
    psi: list[Point] = field(default_factory=list)
    solvers: list[Counts] = field(default_factory=list)
    dimensions: list[Counts] = field(default_factory=list)
    agreement: list[Agreement] = field(default_factory=list)
    gradient: list[Gradient] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    unfinished: frozenset[str] = frozenset()
    """Experiments that were begun."""

    @classmethod
    def collect(cls, settings: Settings, directory: Path) -> "Results":
        """Read what is complete in a directory."""
        records: dict[str, list[Any]] = {}
        measurements: list[Measurement] = []
        unfinished = set()
        for name, experiment in EXPERIMENTS.items():
            found = load(experiment, settings, directory)
            if found is not None:
                records[name] = found.records
                measurements += found.measurements
            elif (directory / experiment.file).exists():
                unfinished.add(name)
        return cls(settings, **records, measurements=measurements, unfinished=frozenset(unfinished))

    def of(self, name: str) -> list[Any]:
        """Return the records of an experiment."""
        records: list[Any] = getattr(self, name)
        return records

    def measured(self, experiment: str, what: str, unit: str) -> dict[int, float]:
        """Return measurements over the length of the vectors."""
        return {
            row.n: row.value
            for row in self.measurements
            if (row.experiment, row.what, row.unit) == (experiment, what, unit)
        }
