"""Arrays over several devices: what each of them computes, and what they tell each other.

XLA does not look into a foreign call, and would bring all of an array to every device for it. So
programs for several devices are told here how a `Function` divides: vectors are projected where they
are, whichever devices have them; and of a vector that is itself divided every device computes its
part (`Function.over`), or, if vectors are short, whole ones are brought together.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ...engines.parts import MOST_GATHERED

VECTOR = -1
"""The axis of vectors, among those of a batch, 0, 1, ..."""


def divides(context: Any) -> bool:
    """Whether a program that is being made is for several devices, which XLA divides it among."""
    place = context.module_context.axis_context
    devices = getattr(place, "device_assignment", None)
    return devices is not None and len(devices) > 1


def _on_devices() -> Any:
    some = custom_partitioning(lambda x: x)
    some.def_partition(lambda *_: None, sharding_rule="-> ")
    return jax.make_jaxpr(some)(0.0)


NEEDS_DEVICES = _on_devices()
"""What tells JAX, as a parameter of a primitive, that devices matter when programs are made."""


class Axes(NamedTuple):
    """Which axes of an array are those of the batch, or of the vectors; None for any other."""

    each: tuple[int | None, ...]

    @staticmethod
    def of(array: Any, shape: tuple[int, ...]) -> "Axes":
        """Return those of an array, beside vectors that have this shape."""
        *batch, _ = shape
        if array.ndim == len(shape) and array.dtype != jnp.uint32:
            return Axes((*range(len(batch)), VECTOR))
        # Targets have the last axes of a batch, or 1; doubles by their bits have one more.
        own = array.ndim - (array.dtype == jnp.uint32)
        first = len(batch) - own
        each = [
            first + i if first + i >= 0 and array.shape[i] == batch[first + i] != 1 else None
            for i in range(own)
        ]
        return Axes((*each, *(None,) * (array.ndim - own)))

    def rule(self, prefix: str) -> str:
        """Return the names of the axes, as Shardy wants them."""
        words = []
        for i, axis in enumerate(self.each):
            own = f"{prefix}{chr(ord('a') + i)}"
            words.append(own if axis is None else "n" if axis == VECTOR else f"b{axis}")
        return " ".join(words) if words else ""

    def spec(self, names: dict[int, tuple[str, ...]]) -> PartitionSpec:
        """Return over which axes of a mesh an array is divided."""
        chosen = (names.get(axis, ()) if axis is not None else () for axis in self.each)
        return PartitionSpec(*(one or None for one in chosen))


def divided(function: Any, compute: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Return a function of arrays that devices may share; `compute` takes a `Function` first."""
    given = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in given]
    vectors = tuple(given[0].shape)
    found = jax.eval_shape(lambda *arrays: compute(function, *arrays), *given)
    inputs = [Axes.of(one, vectors) for one in given]
    outputs = [Axes.of(one, vectors) for one in found]

    def whole(*arrays: Any) -> Any:
        return tuple(compute(function, *arrays))

    def names_in(mesh: Mesh, arrays: Sequence[Any]) -> dict[int, tuple[str, ...]]:
        names: dict[int, tuple[str, ...]] = {}
        for array, axes in zip(arrays, inputs, strict=True):
            if not isinstance(array.sharding, NamedSharding):
                continue
            for axis, on in zip(axes.each, array.sharding.spec, strict=False):
                taken = {name for some in names.values() for name in some}
                if axis is not None and on is not None and axis not in names:
                    listed = on if isinstance(on, tuple) else (on,)
                    if not taken & set(listed):
                        names[axis] = tuple(listed)
        return chosen(function, vectors, names, mesh)

    def shardings(mesh: Mesh, names: dict[int, tuple[str, ...]]) -> tuple[Any, Any]:
        return tuple(
            tuple(NamedSharding(mesh, axes.spec(names)) for axes in some)
            for some in (inputs, outputs)
        )

    def partition(mesh: Mesh, arrays: Any, results: Any) -> Any:
        names = names_in(mesh, arrays)
        over = names.get(VECTOR, ())
        before, after = shardings(mesh, names)

        def local(*parts: Any) -> Any:
            shapes = [
                sharding.shard_shape(one.shape) for one, sharding in zip(found, after, strict=True)
            ]
            own = function.over(over, shapes) if names else function
            return tuple(
                _summed(result, axes, names)
                for result, axes in zip(compute(own, *parts), outputs, strict=True)
            )

        return mesh, local, after, before

    def infer(mesh: Mesh, arrays: Any, results: Any) -> Any:
        return shardings(mesh, names_in(mesh, arrays))[1]

    words = [axes.rule(f"a{i}") for i, axes in enumerate(inputs)]
    told = [axes.rule(f"r{i}") for i, axes in enumerate(outputs)]
    wrapped = custom_partitioning(whole)
    wrapped.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=f"{', '.join(words)} -> {', '.join(told)}",
    )
    return wrapped


def _summed(result: Any, axes: Axes, names: dict[int, tuple[str, ...]]) -> Any:
    """Add up a gradient by a target that vectors on several devices share."""
    is_target = axes.each[: len(names)] and VECTOR not in axes.each
    lost = [on for axis, on in names.items() if axis != VECTOR and axis not in axes.each]
    del is_target
    return lax.psum(result, tuple(name for on in lost for name in on)) if lost else result


def chosen(
    function: Any, vectors: tuple[int, ...], names: dict[int, tuple[str, ...]], mesh: Mesh
) -> dict[int, tuple[str, ...]]:
    """Return how the arrays are to be divided, given how they are.

    Vectors stay divided where a function works on parts of them. If it does so by histograms, and
    the vectors are no longer than those, they are brought together, on as many devices as can be.
    """
    over = names.get(VECTOR)
    if over is None:
        return names
    many, n = math.prod(mesh.shape[name] for name in over), vectors[-1]
    if n % many == 0 and function.divides(n):
        return names
    names = {axis: on for axis, on in names.items() if axis != VECTOR}
    for axis, size in enumerate(vectors[:-1]):
        now = names.get(axis, ())
        if size % (many * math.prod(mesh.shape[name] for name in now)) == 0:
            return names | {axis: (*now, *over)}
    return names


SHORT = MOST_GATHERED
"""Vectors up to this length are no longer than the histograms by which they would be projected."""
