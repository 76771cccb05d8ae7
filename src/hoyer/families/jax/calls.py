"""Functions of arrays that JAX may transform in any way, computed with 64-bit types inside.

`call` is one primitive of JAX with a rule for each transformation; what it computes is a
`Function`. Derivatives, their transposes and what is mapped over an axis are functions again, so
any nesting ends here. Within, 64-bit types are on, whatever the user's configuration; what goes in
and comes out has types of this configuration, so that none of JAX's own rules meets one that it
would refuse.

On the CPU a function may call the compiled core; elsewhere, and by default, it is plain operations.
Which of the two a program contains is decided when that is compiled for a platform.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .sharding import NEEDS_DEVICES, alike, as_typed, divided, divides, everywhere_whole, typed

Shape: TypeAlias = tuple[tuple[int, ...], Any]
"""The shape and the dtype of an array."""


class Function:
    """What is computed: an object that can be hashed, since programs are remembered by it."""

    along_last_axis = False
    """Whether this is a function of vectors in the last axis, each on its own: see `sharding`."""

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the results, with 64-bit types on."""
        raise NotImplementedError

    @property
    def sums(self) -> int | None:
        """From which result on they are sums over all vectors, or devices have parts of them."""
        return None

    def divides(self, n: int) -> bool:
        """Whether vectors of this length, of which devices have parts, are to stay there."""
        return False

    def over(self, names: tuple[str, ...], shapes: Sequence[tuple[int, ...]]) -> "Function":
        """Return the function of one device's part of the arrays: results have these shapes.

        Vectors themselves are divided over axes of a mesh with these names, or over none.
        """
        return self

    def plain(self, *given: Any) -> list[Any]:
        """Compute by plain operations, which any transformation can follow."""
        raise NotImplementedError

    def by_core(self, *given: Any) -> list[Any]:
        """Compute on the CPU."""
        return self.plain(*given)

    def along(
        self, moves: tuple[bool, ...], given: Sequence[Any], found: Sequence[Any]
    ) -> tuple["Function", Sequence[Any]]:
        """Return how results move, as a function of some arrays and the tangents there are.

        `moves` says which of the arrays `given` have a tangent; `found` are the results. Of these
        the first ones, `differentiable` of them, have tangents.
        """
        return Along(self, moves), given

    def differentiable(self, given: Sequence[Shape]) -> int:
        """Return how many of the results, the first ones, can be differentiated."""
        return len(self.results(given))

    def backwards(
        self, linear: tuple[bool, ...], shapes: tuple[Shape, ...], wanted: tuple[bool, ...]
    ) -> "Function":
        """Return the transpose in some arrays, in which this is linear.

        It is a function of the other arrays and of the gradients that are `wanted`: those by some
        of the results.
        """
        return Backwards(self, linear, shapes, wanted)

    def mapped(
        self, given: Sequence[Any], axes: Sequence[int | None], size: int
    ) -> tuple["Function", Sequence[Any]]:
        """Return a function, and arrays for it, that does the same along an axis.

        That axis comes first in all results.
        """
        return Mapped(self, tuple(axes), size), given


def call(function: Function, *given: Any) -> list[Any]:
    """Compute a function of arrays."""
    arrays = alike(given if function.along_last_axis else everywhere_whole(given))
    results: list[Any] = _call.bind(*arrays, function=function, jaxpr=NEEDS_DEVICES)
    return results


# ---- what follows from any function ----


@dataclass(frozen=True)
class Along(Function):
    """How results move along the tangents of some of the arrays."""

    function: Function
    moves: tuple[bool, ...]

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        own = given[: len(self.moves)]
        return self.function.results(own)[: self.function.differentiable(own)]

    def plain(self, *given: Any) -> list[Any]:
        count = len(self.moves)
        known, tangents = given[:count], iter(given[count:])
        moving = [array for array, moves in zip(known, self.moves, strict=True) if moves]

        def results(*moved: Any) -> list[Any]:
            arrays = merged(self.moves, known, moved)
            shapes = [(array.shape, array.dtype) for array in arrays]
            return list(self.function.plain(*arrays))[: self.function.differentiable(shapes)]

        return list(jax.jvp(results, moving, [next(tangents) for _ in moving])[1])


@dataclass(frozen=True)
class Backwards(Function):
    """The transpose of a function in those arrays in which it is linear."""

    function: Function
    linear: tuple[bool, ...]
    shapes: tuple[Shape, ...]
    wanted: tuple[bool, ...]

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        return list(self.shapes)

    def plain(self, *given: Any) -> list[Any]:
        count = len(self.linear) - sum(self.linear)
        known, gradients = given[:count], given[count:]
        rest = tuple(not is_linear for is_linear in self.linear)

        def results(*arrays: Any) -> list[Any]:
            found = self.function.plain(*merged(rest, self._placed(arrays), known))
            return [one for one, wanted in zip(found, self.wanted, strict=True) if wanted]

        inputs = [jax.ShapeDtypeStruct(*shape) for shape in self.shapes]
        kinds = [one.dtype for one in jax.eval_shape(results, *inputs)]
        # What comes in may have been rounded to a type that the configuration allows.
        wide = [one.astype(kind) for one, kind in zip(gradients, kinds, strict=True)]
        return list(jax.linear_transpose(results, *inputs)(wide))

    def _placed(self, arrays: Sequence[Any]) -> list[Any]:
        each = iter(arrays)
        return [next(each) if is_linear else None for is_linear in self.linear]


@dataclass(frozen=True)
class Mapped(Function):
    """The same along an axis of some of the arrays."""

    function: Function
    axes: tuple[int | None, ...]
    size: int

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        found = self.function.results(self._inner(given))
        return [((self.size, *shape), dtype) for shape, dtype in found]

    def differentiable(self, given: Sequence[Shape]) -> int:
        return self.function.differentiable(self._inner(given))

    def plain(self, *given: Any) -> list[Any]:
        # JAX maps over no axis at all only if it is told how long that is.
        compute = jax.vmap(self.function.plain, self.axes, axis_size=self.size)
        return list(compute(*given))

    def _inner(self, given: Sequence[Shape]) -> list[Shape]:
        return [
            (shape if axis is None else (*shape[:axis], *shape[axis + 1 :]), dtype)
            for (shape, dtype), axis in zip(given, self.axes, strict=True)
        ]


def merged(chosen: Sequence[bool], others: Sequence[Any], some: Sequence[Any]) -> list[Any]:
    """Return arrays with some of them put in the places of those that are chosen."""
    each = iter(some)
    return [next(each) if one else other for one, other in zip(chosen, others, strict=True)]


# ---- the primitive ----

_call = Primitive("hoyer")
_call.multiple_results = True


@cache
def _compiled(function: Function) -> Any:
    return jax.jit(partial(_call.bind, function=function, jaxpr=NEEDS_DEVICES))


def _run(*given: Any, function: Function, **_: Any) -> Any:
    # The primitive has no other way to compute than a program.
    with jax.disable_jit(False):
        return _compiled(function)(*given)


def _shapes(*given: Any, function: Function, **_: Any) -> list[ShapedArray]:
    found = [
        jax.ShapeDtypeStruct(shape, jax.dtypes.canonicalize_dtype(dtype))
        for shape, dtype in function.results([(one.shape, one.dtype) for one in given])
    ]
    return typed(function, given, found)


_call.def_impl(_run)
_call.def_abstract_eval(_shapes)


def _lowered(name: str) -> Callable[..., Any]:
    """Return the rule that makes operations of a function: those of its method of this name."""

    def compute(function: Function, *given: Any, kinds: tuple[Any, ...]) -> list[Any]:
        with jax.enable_x64(True):
            found = getattr(function, name)(*given)
            return [one.astype(kind) for one, kind in zip(found, kinds, strict=True)]

    def rule(context: Any, *given: Any, function: Function, **_: Any) -> Any:
        kinds = tuple(one.dtype for one in context.avals_out)
        run = partial(compute, kinds=kinds)
        if function.along_last_axis and divides(context):
            lowered = divided(function, run, context.avals_in)
        else:
            lowered = partial(run, function)
        return mlir.lower_fun(lowered, True)(context, *given)

    return rule


def _moved(primals: Any, tangents: Any, *, function: Function, **_: Any) -> tuple[Any, Any]:
    found = call(function, *primals)
    moves = tuple(not isinstance(one, ad.Zero) for one in tangents)
    zeros = [ad.Zero(jax.typeof(one).to_tangent_aval()) for one in found]
    if not any(moves):
        return found, zeros
    along, arrays = function.along(moves, primals, found)
    moved = call(along, *arrays, *(one for one in tangents if not isinstance(one, ad.Zero)))
    moved = [as_typed(one, zero.aval) for one, zero in zip(moved, zeros, strict=False)]
    return found, [*moved, *zeros[len(moved) :]]


def _transposed(gradients: Any, *given: Any, function: Function, **_: Any) -> list[Any]:
    linear = tuple(ad.is_undefined_primal(one) for one in given)
    avals = [one.aval for one in given if ad.is_undefined_primal(one)]
    wanted = tuple(not isinstance(one, ad.Zero) for one in gradients)
    if any(wanted):
        shapes = tuple((aval.shape, np.dtype(aval.dtype)) for aval in avals)
        known = (one for one in given if not ad.is_undefined_primal(one))
        back = function.backwards(linear, shapes, wanted)
        arrive = (one for one in gradients if not isinstance(one, ad.Zero))
        found = [
            as_typed(one, aval)
            for one, aval in zip(call(back, *known, *arrive), avals, strict=True)
        ]
    else:
        found = [ad.Zero(aval) for aval in avals]
    return merged(linear, [None] * len(linear), found)


def _mapped(given: Any, axes: Any, *, function: Function, **_: Any) -> tuple[Any, list[int]]:
    size = next(
        array.shape[axis] for array, axis in zip(given, axes, strict=True) if axis is not None
    )
    function, given = function.mapped(given, axes, size)
    found = call(function, *given)
    return found, [0] * len(found)


ad.primitive_jvps[_call] = _moved
ad.primitive_transposes[_call] = _transposed
batching.primitive_batchers[_call] = _mapped
mlir.register_lowering(_call, _lowered("plain"))
mlir.register_lowering(_call, _lowered("by_core"), platform="cpu")


# ---- axes that are mapped over ----


def batch_first(array: Any, axis: int | None, missing: int) -> Any:
    """Put a mapped axis before all others, with axes of length 1 between, where some are missing.

    What has no such axis stays as it is.
    """
    if axis is None:
        return array
    array = jnp.moveaxis(array, axis, 0)
    return array.reshape(array.shape[0], *(1,) * missing, *array.shape[1:]) if missing else array


def everywhere(array: Any, axis: int | None, size: int) -> Any:
    """Put a mapped axis before all others; what has no such axis is repeated along it."""
    if axis is None:
        return jnp.broadcast_to(array, (size, *array.shape))
    return jnp.moveaxis(array, axis, 0)
