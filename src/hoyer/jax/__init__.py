"""Sparse networks with JAX: projections of trees, an optax transformation, vectors over devices.

`hoyer.project`, `hoyer.solve` and `hoyer.sparseness` take JAX arrays and tracers as they are; here
is what only makes sense for trees of parameters, and for arrays on several devices.
"""

try:
    import jax as _jax  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    raise ImportError("hoyer.jax needs JAX: pip install 'hoyer[jax]'") from error

from .optim import KeepSparsenessState, keep_sparseness
from .shards import project_sharded
from .trees import project_together, projection_sparseness

__all__ = [
    "KeepSparsenessState",
    "keep_sparseness",
    "project_sharded",
    "project_together",
    "projection_sparseness",
]


def __dir__() -> list[str]:
    return __all__
