"""Where the vectors of a DTensor lie: whole on a rank, or shared by several; and the way there."""

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from ....options import Axis, Options
from ..targets import as_given, with_targets
from ..tensors import Tensor, Vectors, moved_back, vectors_last

Placements: TypeAlias = tuple[Any, ...]


def dim_of(placement: Any) -> int | None:
    """Return which dimension a placement divides: shards do, those with strides as well."""
    return getattr(placement, "dim", None)


def is_strided(placement: Any) -> bool:
    """Whether others divided the dimension before, as tensor parallelism does before FSDP2."""
    return hasattr(placement, "split_factor")


class Place(NamedTuple):
    """Where a DTensor lies whose vectors are in its last axes."""

    mesh: Any
    placements: Placements
    """None of them is partial."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    inner: int
    """How many of the last axes form a vector."""
    axes: tuple[int, ...]
    """Where those axes were; empty if they were last already."""

    # ---- the ranks ----

    @property
    def batch(self) -> tuple[int, ...]:
        """The shape of the batch of vectors, those of all ranks."""
        return self.shape[: len(self.shape) - self.inner]

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return math.prod(self.shape[len(self.batch) :])

    @property
    def given_shape(self) -> tuple[int, ...]:
        """The shape with the axes where they were."""
        if not self.axes:
            return self.shape
        own = dict(zip(self.axes, self.shape[len(self.batch) :], strict=True))
        others = iter(self.batch)
        return tuple(own[i] if i in own else next(others) for i in range(len(self.shape)))

    @property
    def divided(self) -> tuple[int, ...]:
        """The dimensions of the mesh whose ranks share vectors."""
        first = len(self.batch)
        dims = (dim_of(placement) for placement in self.placements)
        return tuple(m for m, dim in enumerate(dims) if dim is not None and dim >= first)

    @property
    def sharing(self) -> int:
        """How many ranks share a vector."""
        return math.prod(self.mesh.size(m) for m in self.divided)

    @property
    def number(self) -> int:
        """Which of those ranks this one is."""
        number, coordinate = 0, self.mesh.get_coordinate()
        for m in self.divided:
            number = number * self.mesh.size(m) + coordinate[m]
        return number

    @property
    def groups(self) -> list[Any]:
        """Among whom sums over vectors are taken, one after the other."""
        return [self.mesh.get_group(m) for m in self.divided]

    # ---- other places ----

    @property
    def whole(self) -> "Place":
        """Where each rank has whole vectors; here, if it has them already.

        They are dealt out along the longest axis of the batch; without any all ranks get them.
        """
        if not self.divided:
            return self
        kept = [p for m, p in enumerate(self.placements) if m not in self.divided]
        # What strides say about an axis holds as long as nobody else divides it.
        strided = {dim_of(p) for p in kept if is_strided(p)}
        free = [i for i in range(len(self.batch)) if i not in strided and self.batch[i] > 1]
        dealt = Shard(max(free, key=lambda i: self.batch[i])) if free else Replicate()
        return self._replace(
            placements=tuple(
                dealt if m in self.divided else p for m, p in enumerate(self.placements)
            )
        )

    def take(self, x: DTensor) -> Tensor:
        """Return what this rank has here of x, whose vectors are last; it can be differentiated."""
        if tuple(x.placements) != self.placements:
            x = x.redistribute(placements=self.placements)
        local: Tensor = x.to_local(grad_placements=self.placements)
        # What is still on its way arrives with the first operation.
        return local.clone() if isinstance(local, AsyncCollectiveTensor) else local

    def give(self, local: Tensor, to: "Place") -> DTensor:
        """Return local results as one DTensor, at another place, its axes where they were."""
        value = _joined(local, self.mesh, self.placements, self.shape, self.stride)
        if to.placements != self.placements:
            value = value.redistribute(placements=to.placements)
        moved: Any = moved_back(value, self.inner, self.axes)
        given: DTensor = moved
        return given

    # ---- numbers of vectors ----

    def of_vectors(self, numbers: Tensor) -> DTensor:
        """Return a number for each local vector as a DTensor shaped like the batch."""
        batch = self.batch
        return _joined(numbers, self.mesh, self._with_vectors(batch), batch, strides_of(batch))

    def of_batch(self, numbers: Tensor) -> Tensor:
        """Return those of numbers, which are shaped like the batch on all ranks, that are here."""
        there = shared(numbers, self.mesh).redistribute(placements=self._with_vectors(self.batch))
        return there.to_local()

    def of_matrices(self, matrices: Tensor) -> DTensor:
        """Return a square matrix for each local vector as a DTensor."""
        shape = (*self.batch, self.length, self.length)
        return _joined(
            matrices, self.mesh, self._with_vectors(self.batch), shape, strides_of(shape)
        )

    def last(self, y: Tensor) -> DTensor:
        """Return a tensor of the given shape, which may be the same on all ranks, vectors last."""
        moved: Any = shared(y, self.mesh)
        if self.axes:
            moved = moved.movedim(self.axes, tuple(range(-self.inner, 0)))
        there: DTensor = moved
        return there

    def options(self, options: Options, x: DTensor) -> Options:
        """Return the options for what this rank has of x, whose vectors are last.

        Targets and masks that are no DTensors are the same on all ranks.
        """
        vectors = Vectors(x, self.inner, self.axes, self.length)
        options = as_given(options, vectors)
        targets = (self._target(value) for value in options[:3])
        axis = tuple(range(-self.inner, 0))
        # A rank that raised an error would be waited for by the others.
        options = with_targets(options, targets)._replace(axis=axis, check_finite=False)
        if options.where is None:
            return options
        where = shared(options.where, self.mesh).redistribute(placements=self.placements)
        return options._replace(where=where.to_local())

    def _target(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if not isinstance(value, DTensor) and not (value.dim() or value.requires_grad):
            return value
        placements = self._with_vectors(value.shape)
        here = shared(value, self.mesh).redistribute(placements=placements)
        return here.to_local(grad_placements=self._of_gradients(placements))

    def _with_vectors(self, shape: Sequence[int]) -> Placements:
        """Return where numbers lie that broadcast to the batch, so that vectors find theirs."""
        batch, missing = self.batch, len(self.batch) - len(shape)
        found: list[Any] = []
        for placement in self.placements:
            dim = dim_of(placement)
            at = -1 if dim is None or dim >= len(batch) else dim - missing
            cut = at >= 0 and shape[at] == batch[at + missing]
            found.append(_moved(placement, at) if cut else Replicate())
        return tuple(found)

    def _of_gradients(self, placements: Placements) -> Placements:
        """Return where gradients by such numbers lie: partial where vectors of others count.

        Ranks that share a vector all know its whole gradient.
        """
        first = len(self.batch)
        pairs = ((dim_of(p), own) for p, own in zip(self.placements, placements, strict=True))
        return tuple(
            Partial() if dim_of(own) is None and dim is not None and dim < first else own
            for dim, own in pairs
        )

    # ---- parts of vectors ----

    def starts(self) -> tuple[int, ...]:
        """Return where along each axis of the vectors the part of this rank starts."""
        coordinate, starts = self.mesh.get_coordinate(), []
        for axis in range(len(self.batch), len(self.shape)):
            start, size = 0, self.shape[axis]
            for m in self._order(axis):
                # As `torch.chunk` does it.
                step = -(-size // self.mesh.size(m))
                before = min(step * coordinate[m], size)
                start, size = start + before, min(step, size - before)
            starts.append(start)
        return tuple(starts)

    def _order(self, axis: int) -> list[int]:
        """Return in which order dimensions of the mesh divide an axis, one after the other."""
        own = [m for m, placement in enumerate(self.placements) if dim_of(placement) == axis]
        strided = [m for m in own if is_strided(self.placements[m])]
        plain = [m for m in own if m not in strided]
        for m in strided:
            later = math.prod(self.mesh.size(other) for other in plain if other > m)
            if len(strided) > 1 or self.placements[m].split_factor != later:
                raise ValueError(
                    f"x has placements {self.placements}, by which the entries of a vector that a "
                    "rank has are no neighbours: redistribute x first, with Shard in each of them"
                )
        # FSDP2 divides what tensor parallelism, further inside of the mesh, has divided before.
        return plain + strided


def vectors_of(x: DTensor, axis: Axis) -> tuple[Place, DTensor]:
    """Return where the vectors of x lie, and x with these last; what is partial is reduced."""
    if any(p.is_partial() for p in x.placements):
        reduced = [Replicate() if p.is_partial() else p for p in x.placements]
        x = x.redistribute(placements=reduced)
    if x.device_mesh.get_coordinate() is None:
        raise ValueError(
            f"this rank has nothing of x, which is on {x.device_mesh}: let the ranks of that mesh "
            "call alone"
        )
    moved, inner, axes, _ = vectors_last(x, axis)
    there: Any = moved
    shape, stride = tuple(there.shape), tuple(there.stride())
    placements = tuple(there.placements)
    return Place(there.device_mesh, placements, shape, stride, inner, axes), there


def memory_of(x: DTensor) -> Tensor:
    """Return what this rank has of x, as it is stored; nobody differentiates it."""
    with torch.no_grad():
        local: Any = x.to_local()
    stored: Tensor = local.wait() if isinstance(local, AsyncCollectiveTensor) else local
    return stored.detach()


def shared(value: Tensor, mesh: Any) -> DTensor:
    """Return a tensor that is the same on all ranks as a DTensor; one of this mesh as it is."""
    if isinstance(value, DTensor):
        if value.device_mesh == mesh:
            return value
        value = value.full_tensor()
    everywhere = (Replicate(),) * mesh.ndim
    return DTensor.from_local(value, mesh, everywhere, run_check=False)


def strides_of(shape: Sequence[int]) -> list[int]:
    """Return those of entries one after the other."""
    return list(accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1))[::-1]


def _joined(
    local: Tensor, mesh: Any, placements: Placements, shape: Sequence[int], stride: Sequence[int]
) -> DTensor:
    """Return local tensors as one DTensor, whose shards may be uneven, or empty."""
    known: Any = {"shape": torch.Size(shape), "stride": tuple(stride)} if shape else {}
    return DTensor.from_local(local, mesh, placements, run_check=False, **known)


def _moved(placement: Any, dim: int) -> Any:
    """Return a shard of another dimension, of the same kind."""
    if is_strided(placement):
        return type(placement)(dim, split_factor=placement.split_factor)
    return Shard(dim)
