"""The engine for CUDA tensors: Triton kernels that read a vector once and write it once.

Nothing is asked of the device in between: no synchronization, so that calls work in CUDA graphs and
on any stream. Vectors that are not ordinary are marked by the fast kernels and projected by
`careful` afterwards, which looks at the marks and mostly finds nothing to do. Masked vectors too
long for registers are all projected by `careful`: the samples of `long` know no masks. Upper bounds
of both norms are met by two projections, onto the L1 ball and onto vectors that are sparse enough,
and a choice: `two_balls`.
"""

import torch
import triton

from ...plan import Plan

if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 6):
    raise ImportError(f"Triton 3.6 or newer is needed, and this is {triton.__version__}")

from . import projections, two_balls
from .calls import measure, resolve
from .products import backward, forward, product
from .projections import Kept, Scattered

Tensor = torch.Tensor


def project(x: Tensor, plan: Plan, inner: int, out: Tensor, *, remember: bool) -> Kept:
    """Project into `out` (which may be x); return what derivatives need, if it is to be kept."""
    if plan.at_most and plan.rule != "free":
        return two_balls.project(x, plan, inner, out)
    return projections.project(x, plan, inner, out, remember=remember)


def solve(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections, and a record of each; every vector is looked at with care."""
    if plan.at_most and plan.rule != "free":
        return two_balls.solve(x, plan, inner)
    return projections.solve(x, plan, inner)


__all__ = [
    "Scattered",
    "backward",
    "forward",
    "measure",
    "product",
    "project",
    "resolve",
    "solve",
]
