"""DTensors that share a sparseness: the search on sums that all ranks know.

Each rank looks at the vectors, or the parts of vectors, that it has. What it finds goes into a
table with a row for each vector and each rank that has a part of it, and one all-reduce in a pass
makes the table of all ranks, on which they search alike.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Replicate

from ....options import Axis
from ....price import SUMMARY, SUMS, Asked, Members, shares_of, split_shares
from ... import calling
from ..tensors import Tensor, is_watched
from ..together import members_of, on_host
from .places import Place, shared, vectors_of
from .ranks import summed


def shares(tensors: list[Any], axes: list[Axis], asked: Asked, names: list[str]) -> list[Any]:
    """Return the sparseness that the vectors of each tensor get; some may be no DTensors."""
    given = [norm for norm in asked.norms if isinstance(norm, torch.Tensor)]
    target = asked.sparseness if isinstance(asked.sparseness, torch.Tensor) else None
    if is_watched(*tensors, *given, target):
        raise RuntimeError(
            "project_together cannot be differentiated for DTensors: call it under "
            "torch.no_grad(), or pass x.detach()"
        )
    mesh = next(x.device_mesh for x in tensors if isinstance(x, DTensor))
    own = []
    for x, axis, name in zip(tensors, axes, names, strict=True):
        with calling(name):
            own.append(_Own.of(shared(x, mesh), axis))
    members = _Members(own, asked.nonnegative)
    found = shares_of(members, on_host(_everywhere(asked)), names)
    parts = split_shares(members, found.sparseness)
    # Of a type whose numbers make no plans that are remembered: they do not come back.
    return [
        np.longdouble(part) if np.ndim(part) == 0 and part is not None else part for part in parts
    ]


def _everywhere(asked: Asked) -> Asked:
    """Return what is asked for with all numbers of DTensors on every rank."""

    def whole(value: Any) -> Any:
        return value.full_tensor() if isinstance(value, DTensor) else value

    norms, floors, weights = (
        [whole(one) for one in given] for given in (asked.norms, asked.floors, asked.weights)
    )
    sparseness = whole(asked.sparseness)
    return asked._replace(sparseness=sparseness, norms=norms, floors=floors, weights=weights)


class _Own(NamedTuple):
    """What this rank has of a DTensor."""

    place: Place
    local: Tensor
    rows: Any
    """Which of all vectors those are that it has, or has parts of; a number for each."""
    speaks: bool
    """Whether no other rank has the same, and says so."""

    @staticmethod
    def of(x: DTensor, axis: Axis) -> "_Own":
        """Look at a DTensor."""
        stored: Any = x.detach()
        place, there = vectors_of(stored, axis)
        numbers = torch.arange(int(np.prod(place.batch)), device=there.device)
        rows = place.of_batch(numbers.reshape(place.batch)).reshape(-1).cpu().numpy()
        coordinate = place.mesh.get_coordinate()
        same = (m for m, p in enumerate(place.placements) if isinstance(p, Replicate))
        return _Own(place, place.take(there), rows, not any(coordinate[m] for m in same))

    @property
    def length(self) -> int:
        """Entries of the parts of vectors that this rank has."""
        return self.local.numel() // max(len(self.rows), 1)


class _Members:
    """The vectors of several DTensors, all that ranks have; see `hoyer.price.Members`."""

    def __init__(self, own: list[_Own], nonnegative: bool) -> None:
        self._own = own
        self.batches = [one.place.batch for one in own]
        self.lengths = [one.place.length for one in own]
        # Those of which this rank has nothing are left to others.
        self._here = [i for i, one in enumerate(own) if one.local.numel()]
        tensors = [own[i].local for i in self._here]
        inners = [own[i].place.inner for i in self._here]
        self._members: Members = members_of(tensors, inners, nonnegative)
        self._ends = np.cumsum([int(np.prod(batch)) for batch in self.batches])[:-1]

    def summary(self) -> Any:
        """Return what `SUMMARY` names, a row per vector."""
        return self._joined(self._members.summary() if self._here else None, _summaries, SUMMARY)

    def look(self, pivots: Any, references: Any) -> Any:
        """Return what `SUMS` names, a row per vector."""
        found = None
        if self._here:
            found = self._members.look(self._picked(pivots), self._picked(references))
        return self._joined(found, _sums, SUMS)

    def sample(self) -> None:
        """Return nothing: to guess a price would take another exchange."""

    def between(self, lows: Any, highs: Any, references: Any) -> None:
        """Return nothing: entries stay where they are."""

    def _picked(self, numbers: Any) -> Any:
        """Return the numbers of this rank's vectors, of those of all vectors."""
        parts = np.split(numbers, self._ends)
        return np.concatenate([parts[i][self._own[i].rows] for i in self._here])

    def _joined(self, found: Any, merge: Any, names: tuple[str, ...]) -> Any:
        """Return what all ranks have found, of all vectors."""
        tables = [
            np.zeros((int(np.prod(one.place.batch)), one.place.sharing, 1 + len(names)))
            for one in self._own
        ]
        sizes = np.cumsum([len(self._own[i].rows) for i in self._here])[:-1]
        parts = np.split(found, sizes) if self._here else []
        for i, part in zip(self._here, parts, strict=True):
            one = self._own[i]
            if one.speaks:
                tables[i][one.rows, one.place.number] = np.c_[np.full(len(part), one.length), part]
        return np.concatenate([merge(table) for table in self._reduced(tables)])

    def _reduced(self, tables: list[Any]) -> list[Any]:
        """Add the tables of all ranks, those of one mesh at once."""
        meshes: list[Any] = []
        for one in self._own:
            if one.place.mesh not in meshes:
                meshes.append(one.place.mesh)
        for mesh in meshes:
            which = [i for i, one in enumerate(self._own) if one.place.mesh == mesh]
            flat = np.concatenate([tables[i].reshape(-1) for i in which])
            numbers = torch.from_numpy(flat).to(self._own[which[0]].local.device)
            groups = [mesh.get_group(m) for m in range(mesh.ndim)]
            flat = summed(numbers, groups).cpu().numpy()
            cuts = np.cumsum([tables[i].size for i in which])[:-1]
            for i, table in zip(which, np.split(flat, cuts), strict=True):
                tables[i] = table.reshape(tables[i].shape)
        return tables


def _summaries(table: Any) -> Any:
    """Merge what ranks say about the whole of their parts: size, low, high, mean, deviation."""
    size, low, high, mean, deviation = np.moveaxis(table, -1, 0)
    there = size > 0
    mean, deviation = _moments(np.where(there, size, 0.0), mean, deviation)
    low = np.where(there, low, np.inf).min(1, initial=np.inf)
    high = np.where(there, high, -np.inf).max(1, initial=-np.inf)
    return np.stack([low, high, mean, deviation], -1)


def _sums(table: Any) -> Any:
    """Merge what they say about entries above a pivot: count, mean, deviation, below, above."""
    size, count, mean, deviation, below, above = np.moveaxis(table, -1, 0)
    there = size > 0
    count = np.where(there, count, 0.0)
    mean, deviation = _moments(count, mean, deviation)
    below = np.where(there, below, -np.inf).max(1, initial=-np.inf)
    above = np.where(there, above, np.inf).min(1, initial=np.inf)
    return np.stack([count.sum(1), mean, deviation, below, above], -1)


def _moments(count: Any, means: Any, deviations: Any) -> tuple[Any, Any]:
    """Return mean and standard deviation of several parts together; no square overflows."""
    if count.shape[1] == 1:
        return means[:, 0], deviations[:, 0]
    filled = count > 0
    share = count / np.maximum(count.sum(1, keepdims=True), 1.0)
    means = np.where(filled, means, 0.0)
    mean = (share * means).sum(1, keepdims=True)
    away = np.where(filled, means - mean, 0.0)
    spread = np.where(filled, deviations, 0.0)
    unit = np.maximum(np.abs(away), spread).max(1, keepdims=True)
    unit = np.where(unit > 0, unit, 1.0)
    squares = (share * ((away / unit) ** 2 + (spread / unit) ** 2)).sum(1)
    return mean[:, 0], unit[:, 0] * np.sqrt(squares)
