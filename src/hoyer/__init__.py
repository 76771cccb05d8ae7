"""Project vectors onto a chosen sparseness: exactly, for every input, with gradients."""

from .api import (
    get_num_threads,
    project,
    project_,
    project_sparse,
    set_num_threads,
    solve,
    sparseness,
)
from .projection import Projection
from .target import target_norms

__version__ = "0.1.0"

__all__ = [
    "Projection",
    "__version__",
    "get_num_threads",
    "project",
    "project_",
    "project_sparse",
    "set_num_threads",
    "solve",
    "sparseness",
    "target_norms",
]


def __dir__() -> list[str]:
    return __all__
