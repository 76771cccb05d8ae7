"""Many tensors in place at once: on CUDA those with vectors of one length share their launches."""

from typing import Any, NamedTuple

import torch

from ...options import Axis, Options
from ...plan import plain_plan
from . import engines
from .tensors import DTYPES, Tensor, is_real, is_watched, span, vectors_last


class _Group(NamedTuple):
    """Tensors that share launches."""

    members: list[int]
    length: int
    dtype: torch.dtype
    scattered: Any


class Many:
    """Projects the same tensors again and again; remembers where they are."""

    def __init__(self) -> None:
        self._key: Any = None
        self._groups: list[_Group] = []

    def project_(self, tensors: list[Tensor], axes: list[Axis], options: Options) -> list[int]:
        """Project tensors in place along their own axes each; return which of them are left.

        Those are for `hoyer.project_`: nothing is gained for them here, or somebody watches them.
        """
        left = list(range(len(tensors)))
        # A graph that is captured would go on using tables that nobody keeps for it.
        if (
            not options.is_plain
            or is_watched(*tensors)
            or not all(x.is_cuda and is_real(x) for x in tensors)
            or torch.cuda.is_current_stream_capturing()
        ):
            self._key, self._groups = None, []
            return left
        key = [(x.data_ptr(), x.shape, x.stride(), x.dtype) for x in tensors], axes
        if key != self._key:
            self._key, self._groups = key, _grouped(tensors, axes)
        # All that can be wrong is found before anything is written.
        plans = [plain_plan(group.length, options) for group in self._groups]
        for group, plan in zip(self._groups, plans, strict=True):
            if plan is not None:
                engines.check_without_core(plan, group.dtype)
        done: set[int] = set()
        for group, plan in zip(self._groups, plans, strict=True):
            if plan is not None and group.scattered.project(plan):
                done.update(group.members)
        for i in done:
            torch.autograd.graph.increment_version(tensors[i])
        return [i for i in left if i not in done]


def _grouped(tensors: list[Tensor], axes: list[Axis]) -> list[_Group]:
    """Return which tensors share launches: not those that share memory."""
    found: dict[Any, list[int]] = {}
    shared = _overlapping(tensors)
    for i, (x, axis) in enumerate(zip(tensors, axes, strict=True)):
        if i not in shared and x.dtype in DTYPES and x.numel() and engines.uses_kernels(x):
            vectors = vectors_last(x, axis)
            if not vectors.axes and engines.kernels().Scattered.can(x, vectors.length):
                found.setdefault((vectors.length, x.dtype, x.device), []).append(i)
    return [
        _Group(who, n, dtype, engines.kernels().Scattered([tensors[i] for i in who], n))
        for (n, dtype, _), who in found.items()
        if len(who) > 1
    ]


def _overlapping(tensors: list[Tensor]) -> set[int]:
    """Return which tensors have memory that others have as well."""
    spans = sorted((*span(x), i) for i, x in enumerate(tensors))
    found: set[int] = set()
    last_end, last = 0, -1
    for begin, end, i in spans:
        if begin < last_end:
            found |= {last, i}
        if end > last_end:
            last_end, last = end, i
    return found
