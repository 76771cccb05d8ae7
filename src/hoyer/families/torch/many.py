"""Many tensors in place at once: the core does all those on the CPU in one call.

On CUDA those with vectors of one length share their launches.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from ...options import Axis, Options
from ...plan import plain_plan
from .. import describe_bad
from . import engines
from .targets import as_given, plan_of, with_targets
from .tensors import (
    DTYPES,
    Tensor,
    Vectors,
    check_in_place,
    is_real,
    is_watched,
    span,
    vectors_last,
)

increment_version: Any = torch.autograd.graph.increment_version


class Many:
    """Projects the same tensors again and again; remembers where they are."""

    def __init__(self) -> None:
        self._key: Any = None
        self._on_host: _OnHost | None = None
        self._groups: list[_Group] = []

    def project_(self, tensors: list[Tensor], axes: list[Axis], options: Options) -> list[int]:
        """Project tensors in place along their own axes each; return which of them are left.

        Those are for `hoyer.project_`: nothing is gained for them here, or somebody watches them.
        Of the others, where a vector is refused, none has been written to.
        """
        if is_watched(*tensors) or not all(map(_is_plain, tensors)):
            return list(range(len(tensors)))
        places = [(x.data_ptr(), x.shape, x.stride(), x.dtype, x.device) for x in tensors]
        key = places, [x.is_neg() for x in tensors], axes
        if key != self._key:
            self._key, self._on_host, self._groups = None, _OnHost.of(tensors, axes), []
            if any(x.is_cuda for x in tensors):
                self._groups = _grouped(tensors, axes)
            self._key = key
        launches = self._launches(options)
        done: list[int] = []
        if self._on_host is not None:
            self._on_host.project(options)
            done += self._on_host.members
        for group, plan in launches:
            if group.scattered.project(plan):
                done += group.members
        increment_version([tensors[i] for i in done])
        known = set(done)
        return [i for i in range(len(tensors)) if i not in known]

    def _launches(self, options: Options) -> list[tuple["_Group", Any]]:
        """Return which tensors share launches, each time with what is asked of them."""
        # A graph that is captured would go on using tables that nobody keeps for it.
        if not self._groups or not options.is_plain or torch.cuda.is_current_stream_capturing():
            return []
        launches = [(group, plain_plan(group.length, options)) for group in self._groups]
        # All that can be wrong is found before anything is written.
        for group, plan in launches:
            if plan is not None:
                engines.check_without_core(plan, group.dtype)
        return [(group, plan) for group, plan in launches if plan is not None]


# ---- the core ----


class _OnHost(NamedTuple):
    """Tensors that the core projects in one call."""

    members: list[int]
    vectors: list[Vectors]
    ends: list[int]
    """How many vectors there are up to the end of each tensor."""
    arrays: Any

    @staticmethod
    def of(tensors: list[Tensor], axes: list[Axis]) -> "_OnHost | None":
        """Return those that the core can reach; None if there is none."""
        members = [i for i, x in enumerate(tensors) if _is_reached(x)]
        if not members:
            return None
        vectors = [vectors_last(tensors[i], axes[i]) for i in members]
        for one in vectors:
            check_in_place("x", one.tensor)
        shared = _overlapping([tensors[i] for i in members])
        described = [
            (x.data_ptr(), x.shape, x.stride(), inner, engines.ELEMENTS[x.dtype], i in shared)
            for i, (x, inner, _, _) in enumerate(vectors)
        ]
        rows = (one.tensor.numel() // one.length for one in vectors)
        return _OnHost(members, vectors, list(accumulate(rows)), engines.core.Arrays(described))

    def project(self, options: Options) -> None:
        """Project all of them, or nothing."""
        plans = self._plans(options)
        bad = engines.core.project_many(self.arrays, plans, torch.get_num_threads())
        if bad >= 0:
            which = bisect_right(self.ends, bad)
            x, inner, _, _ = self.vectors[which]
            number = bad - (self.ends[which - 1] if which else 0)
            raise ValueError(describe_bad(engines.as_numpy(x), inner, number))

    def _plans(self, options: Options) -> list[Any]:
        """Return what is asked of each tensor, as the core takes it."""
        from ...engines.core import core_plan  # noqa: PLC0415 - there is a core

        if options.is_plain:
            lengths = {one.length for one in self.vectors}
            made = {n: core_plan(plain_plan(n, options)) for n in lengths}  # type: ignore[arg-type]
            return [made[one.length] for one in self.vectors]
        targets = (t.cpu() if isinstance(t, torch.Tensor) else t for t in options[:3])
        options = with_targets(options, targets)
        return [
            core_plan(plan_of(one.tensor, one.inner, as_given(options, one)))
            for one in self.vectors
        ]


def _is_plain(x: Tensor) -> bool:
    """Whether a tensor has memory, with strides."""
    return is_real(x) and x.layout is torch.strided and not x.is_nested


def _is_reached(x: Tensor) -> bool:
    """Whether the core can project a tensor in place, wherever its entries lie."""
    return (
        engines.uses_core(x)
        and x.dtype in DTYPES
        and not (x.is_neg() or x._is_zerotensor())
        and x.numel() > 0
        and x.data_ptr() != 0
    )


# ---- the kernels ----


class _Group(NamedTuple):
    """Tensors that share launches."""

    members: list[int]
    length: int
    dtype: torch.dtype
    scattered: Any


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
