"""Project vectors onto a chosen sparseness: exactly, for every input, with gradients."""

from importlib import import_module
from typing import Any

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
from .together import project_together

__version__ = "0.1.0"

__all__ = [
    "Projection",
    "__version__",
    "get_num_threads",
    "project",
    "project_",
    "project_sparse",
    "project_together",
    "set_num_threads",
    "solve",
    "sparseness",
    "target_norms",
]

# Parts that are loaded when they are first asked for.
LAZY = ("decomposition", "jax", "measures", "optimize", "paper", "preprocessing", "torch")


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *LAZY]
