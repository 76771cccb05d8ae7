"""Arrays over several devices: what each of them computes, and what they tell each other.

XLA does not look into a foreign call, and would bring all of an array to every device for it. So
programs for several devices are told here how a `Function` divides: vectors are projected where
they are, whichever devices have them; and of a vector that is itself divided every device computes
its part (`Function.over`), or, if vectors are short, whole ones are brought together.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, reshard
from jax.sharding import PartitionSpec as P

from ...engines.jax.search import varies
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

    def spec(self, names: "Names") -> P:
        """Return over which axes of a mesh an array is divided."""
        chosen = (names.get(axis, ()) if axis is not None else () for axis in self.each)
        return P(*(one or None for one in chosen))


Names: TypeAlias = dict[int, tuple[str, ...]]
"""Over which axes of a mesh the axes of a batch are divided, and the vectors."""


def alike(given: Sequence[Any]) -> Sequence[Any]:
    """Let arrays vary over the same axes of a mesh, within `jax.shard_map`.

    So what is shared by several devices gets the sum of their gradients.
    """
    varying = [varies(one) for one in given]
    every = frozenset().union(*varying)
    if not every:
        return given
    return [
        lax.pcast(one, tuple(every - own), to="varying") if every - own else one
        for one, own in zip(given, varying, strict=True)
    ]


def everywhere_whole(given: Sequence[Any]) -> Sequence[Any]:
    """Return arrays whose types do not say that they are divided.

    Functions that follow from others by JAX's rules are made of operations, not all of which it
    lets be divided by types. (Where only the compiler divides arrays it divides these as well.)
    """
    return [_whole(one) if _spec_says(jax.typeof(one).sharding.spec) else one for one in given]


def _whole(array: Any) -> Any:
    return reshard(array, jax.typeof(array).sharding.update(spec=P(*(None,) * array.ndim)))


def as_typed(array: Any, aval: Any) -> Any:
    """Return an array divided as its type is to say."""
    if jax.typeof(array).sharding.spec == aval.sharding.spec or not _spec_says(aval.sharding.spec):
        return array
    return reshard(array, aval.sharding)


def _spec_says(spec: P) -> bool:
    return any(names is not None for names in spec)


def spread(rows: Any) -> bool:
    """Whether the type of an array says that vectors, in the last axis, are divided."""
    spec = jax.typeof(rows).sharding.spec
    return len(spec) == rows.ndim and spec[-1] is not None


def typed(function: Any, given: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Return the types of results, which tell how they are divided where those of arrays do."""
    first, names = given[0], {}
    if function.along_last_axis and any(_spec_says(one.sharding.spec) for one in given):
        names = _names(given, [Axes.of(one, first.shape) for one in given])
    specs = [
        Axes.of(one, first.shape).spec(names) if names else P(*(None,) * one.ndim) for one in found
    ]
    return [
        _type(first, one, first.sharding.update(spec=spec))
        for one, spec in zip(found, specs, strict=True)
    ]


def _type(like: Any, found: Any, sharding: Any) -> Any:
    return like.update(shape=found.shape, dtype=found.dtype, weak_type=False, sharding=sharding)


def _names(arrays: Sequence[Any], axes: Sequence[Axes]) -> Names:
    """Return how arrays are divided, the first of which has most to say."""
    names: Names = {}
    for array, own in zip(arrays, axes, strict=True):
        spec = getattr(array.sharding, "spec", ())
        for axis, on in zip(own.each, spec, strict=False):
            listed = on if isinstance(on, tuple) else () if on is None else (on,)
            taken = {name for some in names.values() for name in some}
            if axis is not None and listed and axis not in names and not taken & set(listed):
                names[axis] = listed
    return names


def divided(function: Any, compute: Callable[..., Any], given: Sequence[Any]) -> Any:
    """Return a function of arrays that devices may share; `compute` takes a `Function` first."""
    given = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in given]
    vectors = tuple(given[0].shape)
    found = jax.eval_shape(lambda *arrays: compute(function, *arrays), *given)
    inputs = [Axes.of(one, vectors) for one in given]
    outputs = [Axes.of(one, vectors) for one in found]
    sums = len(found) if function.sums is None else function.sums

    def names_of(mesh: Mesh, arrays: Sequence[Any]) -> Names:
        return chosen(function, vectors, _names(arrays, inputs), mesh)

    def shardings(mesh: Mesh, names: Names, axes: Sequence[Axes]) -> tuple[NamedSharding, ...]:
        return tuple(NamedSharding(mesh, one.spec(names)) for one in axes)

    def partition(mesh: Mesh, arrays: Any, _: Any) -> Any:
        names = names_of(mesh, arrays)
        after = shardings(mesh, names, outputs)
        shapes = [to.shard_shape(one.shape) for one, to in zip(found, after, strict=True)]
        own = function.over(names.get(VECTOR, ()), shapes) if names else function

        def local(*parts: Any) -> Any:
            results = list(compute(own, *parts))
            for i in range(sums, len(results)):
                lost = [on for axis, on in names.items() if axis not in outputs[i].each]
                results[i] = lax.psum(results[i], sum(lost, ())) if lost else results[i]
            return tuple(results)

        return mesh, local, after, shardings(mesh, names, inputs)

    def infer(mesh: Mesh, arrays: Any, _: Any) -> Any:
        return shardings(mesh, names_of(mesh, arrays), outputs)

    words = [axes.rule(f"a{i}") for i, axes in enumerate(inputs)]
    told = [axes.rule(f"r{i}") for i, axes in enumerate(outputs)]
    wrapped = custom_partitioning(lambda *arrays: tuple(compute(function, *arrays)))
    wrapped.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=f"{', '.join(words)} -> {', '.join(told)}",
    )
    return wrapped


def chosen(function: Any, vectors: tuple[int, ...], names: Names, mesh: Mesh) -> Names:
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
