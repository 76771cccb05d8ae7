"""Sparse networks: modules, parametrizations and projected optimization for PyTorch.

`hoyer.project`, `hoyer.solve` and `hoyer.sparseness` work on tensors as they are; here is what only
makes sense in a network. What is `axis` there is `dim` here, and norms are kept by default.
"""

try:
    import torch as _torch  # noqa: F401 - to say what is missing
except ModuleNotFoundError as error:
    raise ImportError("hoyer.torch needs PyTorch: pip install 'hoyer[torch]'") from error

from ..families import torch as _operators  # noqa: F401 - what exported programs are made of
from . import parametrizations, schedules
from .modules import SparsenessProjection
from .optim import ProjectAfterStep
from .report import SparsenessRecord, SparsenessReport, sparseness_report

__all__ = [
    "ProjectAfterStep",
    "SparsenessProjection",
    "SparsenessRecord",
    "SparsenessReport",
    "parametrizations",
    "schedules",
    "sparseness_report",
]


def __dir__() -> list[str]:
    return __all__
