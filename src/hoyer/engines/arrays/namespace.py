"""The functions the engine needs of an array library: all differences between libraries are here.

The engine is written in the words of the Array API standard, which NumPy and CuPy speak, and
PyTorch for the most part. It sums, compares and sorts along the last axis only, and keeps it.
"""

import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any

SAME = (
    "arange", "broadcast_to", "clip", "finfo", "float32", "float64", "floor", "full_like", "int32",
    "int64", "int8", "isfinite", "isinf", "isnan", "minimum", "ones_like", "sign", "sqrt", "square",
    "where", "zeros_like",
)  # fmt: skip
"""What has one name and one meaning everywhere."""

REDUCTIONS = {"total": "sum", "highest": "max", "lowest": "min", "any": "any", "all": "all"}
"""What is taken along the last axis, which stays with length 1, and its name in the standard."""


class Namespace:
    """An array library that follows the standard; a module like ``numpy`` or ``cupy``."""

    reductions = REDUCTIONS

    def __init__(self, library: Any) -> None:
        self.library = library
        for name in SAME:
            setattr(self, name, getattr(library, name))
        for name, theirs in self.reductions.items():
            setattr(self, name, partial(getattr(library, theirs), axis=-1, keepdims=True))
        self.bool = getattr(library, "bool", None) or library.bool_

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    # ---- along the last axis ----

    def length(self, entries: Any) -> Any:
        """Return how many entries vectors have."""
        return entries.shape[-1]

    def running_total(self, entries: Any) -> Any:
        """Return the sums of the entries up to each one, this one included."""
        name = "cumsum" if hasattr(self.library, "cumsum") else "cumulative_sum"
        return getattr(self.library, name)(entries, axis=-1)

    def joined(self, *parts: Any) -> Any:
        """Return arrays one after the other."""
        name = "concat" if hasattr(self.library, "concat") else "concatenate"
        return getattr(self.library, name)(parts, axis=-1)

    def descending(self, entries: Any) -> Any:
        """Return the entries sorted, the largest first."""
        return self.library.flip(self.library.sort(entries, axis=-1), axis=-1)

    def entry(self, entries: Any, index: Any) -> Any:
        """Return the entry with an index, which is a whole number of the entries' own type."""
        whole = self.int64 if index.dtype == self.float64 else self.int32
        return self.library.take_along_axis(entries, self.astype(index, whole), axis=-1)

    def numbered(self, entries: Any) -> Any:
        """Return 0, 1, 2, ... in the type of the entries."""
        return self.arange(entries.shape[-1], dtype=entries.dtype)

    def sums_by(self, group: Any, size: int, columns: list[Any]) -> list[Any]:
        """Return the sums of integers over each group, 0 to size - 1; all arrays have one axis.

        Sums may wrap around on the way, for differences of them do not.
        """
        library = self.library
        order = library.argsort(group)
        numbers = library.arange(size, dtype=group.dtype)
        ends = library.searchsorted(library.take(group, order), numbers, side="right")
        start = self.total(group[:0])
        sums = []
        for column in columns:
            totals = self.joined(start, self.running_total(library.take(column, order)))
            totals = library.take(totals, ends)
            sums.append(totals - self.joined(start, totals[:-1]))
        return sums

    # ---- types ----

    def wide(self, x: Any) -> Any:
        """Return the type to calculate in where x is: float64, where there is one."""
        return self.float64

    def eps(self, dtype: Any) -> float:
        """Return how far apart numbers of a type are at 1; of integers as of doubles."""
        try:
            return float(self.finfo(dtype).eps)
        except (TypeError, ValueError):
            return float(self.finfo(self.float64).eps)

    def astype(self, x: Any, dtype: Any) -> Any:
        """Return x in another type."""
        return x.astype(dtype)

    def view(self, x: Any, dtype: Any) -> Any:
        """Return the bits of x as numbers of another type of the same size."""
        return x.view(dtype)

    def power_of_two(self, size: Any) -> Any:
        """Return the largest power of two that is not above a size; it and its inverse are normal.

        At zero it is the least such number, at infinity and NaN the greatest.
        """
        wide = size.dtype == self.float64
        bits, digits, bias = (self.int64, 52, 1023) if wide else (self.int32, 23, 127)
        exponent = self.clip(self.view(size, bits) >> digits, 1, 2 * bias - 1)
        return self.view(exponent << digits, size.dtype)

    def narrowed(self, value: Any, dtype: Any) -> Any:
        """Round to nearest, once, to a type; what is or becomes zero has no sign.

        To halves many libraries round twice, by way of float32. So doubles get rid of digits first:
        next to a number that large there is none for them.
        """
        kind, given = self.finfo(dtype), self.finfo(value.dtype)
        if kind.bits == 16 and given.bits == 64:
            power = self.power_of_two(abs(value))
            power = self.clip(power, float(kind.smallest_normal), float(kind.max))
            large = power * (1.5 * float(kind.eps) / float(given.eps))
            value = (value + large) - large
        narrow = self.astype(value, dtype)
        return self.where(narrow == 0, 0.0, narrow)

    # ---- what compilers do ----

    def held(self, x: Any) -> Any:
        """Return x, a quotient, as it is: two quotients are not to become one.

        XLA makes a / (b c) of (a / b) / c, though b c may overflow.
        """
        return x

    # ---- derivatives ----

    def stopped(self, x: Any) -> Any:
        """Return x as a constant, which is not differentiated."""
        return x

    def with_value(self, computed: Any, value: Any) -> Any:
        """Return another value with the derivatives of what was computed."""
        return computed - self.stopped(computed) + value


class Torch(Namespace):
    """PyTorch, which takes ``axis`` and ``keepdims``, but has some names of its own."""

    reductions = REDUCTIONS | {"highest": "amax", "lowest": "amin"}

    def descending(self, entries: Any) -> Any:
        """Return the entries sorted, the largest first."""
        return self.library.sort(entries, -1, descending=True).values

    def entry(self, entries: Any, index: Any) -> Any:
        """Return the entry with an index, a whole number of any type."""
        return entries.gather(-1, index.long())

    def numbered(self, entries: Any) -> Any:
        """Return 0, 1, 2, ... in the type of the entries."""
        return self.arange(entries.shape[-1], dtype=entries.dtype, device=entries.device)

    def sums_by(self, group: Any, size: int, columns: list[Any]) -> list[Any]:
        """Return the sums of integers over each group, 0 to size - 1; all arrays have one axis."""
        return [column.new_zeros(size).index_add_(0, group, column) for column in columns]

    def wide(self, x: Any) -> Any:
        """Return the type to calculate in where x is."""
        return self.library.float32 if x.device.type == "mps" else self.float64

    def astype(self, x: Any, dtype: Any) -> Any:
        """Return x in another type."""
        return x.to(dtype)

    def stopped(self, x: Any) -> Any:
        """Return x as a constant, which is not differentiated."""
        return x.detach()


class Jax(Namespace):
    """JAX, whose arrays may stand for numbers that are not there yet."""

    def held(self, x: Any) -> Any:
        """Return x, a quotient, as it is: two quotients are not to become one."""
        return sys.modules["jax"].lax.optimization_barrier(x)

    def stopped(self, x: Any) -> Any:
        """Return x as a constant, which is not differentiated."""
        return sys.modules["jax"].lax.stop_gradient(x)


KINDS: dict[str, type[Namespace]] = {"torch": Torch, "jax.numpy": Jax}
"""Modules whose functions on arrays are not all those of the standard."""


@cache
def namespace(library: Any) -> Namespace:
    """Return what the engine needs of a library: its module of functions on arrays."""
    return KINDS.get(library.__name__, Namespace)(library)
