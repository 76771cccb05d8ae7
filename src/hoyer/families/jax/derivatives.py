"""The derivatives of a solved projection as methods: what `Projection` works with on JAX arrays."""

from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ...layout import Layout
from ...projection import Projection
from .arrays import as_numpy, moved_back, rows_of
from .calls import Function, Shape, call
from .engine import Moves, Setting, Solved


@partial(jax.tree_util.register_dataclass, data_fields=["known"], meta_fields=["setting", "layout"])
@dataclass(frozen=True)
class ArrayDerivatives:
    """A projection's result and what Algorithm 3 needs beside it, in rows (see `Solved`)."""

    known: tuple[Any, ...]
    setting: Setting
    layout: Layout

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Any:
        """Return the Jacobian, or its transpose, times y."""
        if out is not None:
            raise TypeError(
                "out=...: JAX arrays cannot be changed; leave out=, a new array is returned"
            )
        given, value = jnp.asarray(y), self.known[0]
        shape = self.layout.shape
        if given.shape != shape:
            raise ValueError(f"y has shape {given.shape}, but the projection has shape {shape}")
        if jnp.issubdtype(given.dtype, jnp.complexfloating):
            raise TypeError(f"y has dtype {given.dtype}; give real numbers")
        rows = rows_of(given.astype(value.dtype), self.layout)
        moves: Function = Moves(self.setting, True, (False,) * self.setting.target_count)
        if reverse:
            linear = (False,) * len(self.known) + (True,)
            shapes = ((rows.shape, rows.dtype),)
            moves = moves.backwards(linear, shapes, (True, False))
        return moved_back(call(moves, *self.known, rows)[0], self.layout)

    def jacobian(self) -> Any:
        """Return the dense Jacobian."""
        return call(_Told("jacobian", self.setting), *self.known)[0]

    def target_gradient(self) -> tuple[Any, Any]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        first, second = call(_Told("by_norms", self.setting), *self.known)
        return moved_back(first, self.layout), moved_back(second, self.layout)

    def sparseness_gradient(self) -> Any:
        """Return the derivative by the sparseness."""
        if not self.setting.targets[0]:
            return None
        found = call(_Told("by_sparseness", self.setting), *self.known)[0]
        return moved_back(found, self.layout)

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.layout.batch else self.layout.length

    def as_numpy(self, array: Any) -> Any:
        """Return an array of any device as a NumPy array, bfloat16 as float32."""
        return as_numpy(array)


@dataclass(frozen=True)
class _Told(Function):
    """What a method of `Products` tells about a projection."""

    name: str
    setting: Setting

    def results(self, given: Any) -> list[Shape]:
        shape, dtype = given[0]
        if self.name == "jacobian":
            return [((*shape, shape[-1]), dtype)]
        return [(shape, dtype)] * (2 if self.name == "by_norms" else 1)

    def plain(self, *given: Any) -> list[Any]:
        found = getattr(Solved.of(self.setting, given).products(), self.name)()
        return list(found) if isinstance(found, tuple) else [found]


# A projection can be what a compiled function takes, or what it returns.
jax.tree_util.register_dataclass(
    Projection, data_fields=[field.name for field in fields(Projection)], meta_fields=[]
)
