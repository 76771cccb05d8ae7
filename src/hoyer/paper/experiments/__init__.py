"""The paper's experiments, each a function that returns its records.

`psi`, `solvers` and `dimensions` are Figures 1 to 3, `agreement` and `gradient` the two checks
that the paper reports in words. ``hoyer reproduce`` runs them, draws them, and compares what was
measured with what the paper claims.
"""

from hoyer.paper.experiments.agreement import Agreement, agreement
from hoyer.paper.experiments.counts import Counts
from hoyer.paper.experiments.dimensions import dimensions
from hoyer.paper.experiments.experiment import Measurement
from hoyer.paper.experiments.gradient import Gradient, gradient
from hoyer.paper.experiments.psi import Point, psi
from hoyer.paper.experiments.results import EXPERIMENTS
from hoyer.paper.experiments.settings import Settings
from hoyer.paper.experiments.solvers import solvers

__all__ = [
    "EXPERIMENTS",
    "Agreement",
    "Counts",
    "Gradient",
    "Measurement",
    "Point",
    "Settings",
    "agreement",
    "dimensions",
    "gradient",
    "psi",
    "solvers",
]


def __dir__() -> list[str]:
    return __all__
