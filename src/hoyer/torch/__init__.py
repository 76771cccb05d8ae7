"""Sparse networks: modules, parametrizations and projected optimization for PyTorch.

`hoyer.project`, `hoyer.solve` and `hoyer.sparseness` work on tensors as they are; here is what only
makes sense in a network.
"""

from ..backends import torch as _operators  # noqa: F401 - what exported programs are made of
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
