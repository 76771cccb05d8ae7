"""What each device tells about its part of a vector, and what it writes.

By the compiled core, which XLA's programs for the CPU call, or by plain operations.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..arrays.histogram import BIN_COUNT
from ..arrays.namespace import Namespace, namespace
from .histogram import ABSENT, Keys, histogram
from .integers import power_of_two, scaled
from .solution import Line, Seen

LAST = (1 << 63) - 1
"""The key of an entry that does not exist, where the smallest is looked for."""


class Plain(NamedTuple):
    """A part, by plain operations."""

    x: Any
    where: Any
    """The mask, or None."""
    keys: Keys
    first: Any
    """Where in the vector the part starts."""

    @property
    def entries(self) -> Any:
        """The keys, of which those that a mask leaves out are `ABSENT`."""
        entries = self.keys.entries(self.x)
        return entries if self.where is None else jnp.where(self.where, entries, ABSENT)

    def outline(self) -> Any:
        """Return the fields of `Seen`, of this part alone."""
        entries, there = self.entries, self.entries != ABSENT
        top = entries.max(initial=ABSENT)
        tied = (entries == top) & there
        places = self.first + jnp.arange(entries.size, dtype=jnp.int64)
        marks = tied, entries == 0, there & (abs(entries) >= self.keys.not_finite)
        return jnp.stack(
            [
                top,
                jnp.where(there, entries, LAST).min(initial=LAST),
                jnp.where(tied, ABSENT, entries).max(initial=ABSENT),
                jnp.where(tied, places, LAST).min(initial=LAST),
                *(mark.sum(dtype=jnp.int64) for mark in marks),
            ]
        )

    def histogram(self, lower: Any, width: Any) -> Any:
        """Return that of this part: counts, and limbs of moments."""
        return histogram(self.entries, lower, width, self.keys)

    def written(self, line: Line) -> Any:
        """Return the results, in the type of x."""
        keys, entries = self.keys, self.keys.entries(self.x)
        m, exponent = keys.decoded(entries)
        t = m.astype(jnp.float64) * power_of_two(exponent - line.exponent)
        places = self.first + jnp.arange(entries.size, dtype=jnp.int64)
        base = jnp.where(places == line.place, line.first, line.base)
        p = base + ((t - line.reference) - line.rest) * line.gain
        p = jnp.where((entries > line.pivot) & (p > 0), p, 0.0)
        if not keys.nonnegative:
            p = jnp.where(keys.sizes(self.x)[1], -p, p)
        return _rounded(p, line.power, self.x.dtype, namespace(jnp))


class ByCore(NamedTuple):
    """The same, by the core."""

    x: Any
    where: Any
    keys: Keys
    first: Any

    def outline(self) -> Any:
        """Return the fields of `Seen`, of this part alone."""
        form = jax.ShapeDtypeStruct((len(Seen._fields),), jnp.int64)
        return self._asked("outline", form, self.first[None])

    def histogram(self, lower: Any, width: Any) -> Any:
        """Return that of this part: counts, and limbs of moments."""
        first, second = self.keys.moments
        form = jax.ShapeDtypeStruct((1 + first + second, BIN_COUNT), jnp.int64)
        return self._asked("histogram", form, jnp.stack([lower, width]), first=first)

    def written(self, line: Line) -> Any:
        """Return the results, in the type of x."""
        # The negative of the least integer is none.
        pivot = jnp.maximum(line.pivot, -LAST)
        line = line._replace(place=line.place - self.first, pivot=pivot)
        bits = [lax.bitcast_convert_type(number, jnp.int64) for number in line]
        form = jax.ShapeDtypeStruct(self.x.shape, self.x.dtype)
        return self._replace(where=None)._asked("write", form, jnp.stack(bits))

    def _asked(self, what: str, form: Any, numbers: Any, **more: int) -> Any:
        run: Any = jax.ffi.ffi_call(f"hoyer_{what}", form, vmap_method="broadcast_all")
        given = [self.x, numbers, *(() if self.where is None else (self.where,))]
        switches = {"nonnegative": int(self.keys.nonnegative), **more}
        return run(*given, **{name: np.int64(value) for name, value in switches.items()})


def _rounded(fraction: Any, exponent: Any, dtype: Any, xp: Namespace) -> Any:
    """Return fraction * 2**exponent in a type; subnormal numbers by their bits.

    Many a processor that runs XLA's programs is told to make zeros of them.
    """
    kind = xp.finfo(dtype)
    value = xp.narrowed(scaled(fraction, exponent), dtype)
    # An integer, in units of the least number.
    steps = jnp.round(scaled(fraction, exponent + kind.nmant - kind.minexp))
    bits = abs(steps).astype(f"int{kind.bits}") | (
        (steps < 0).astype(f"int{kind.bits}") << (kind.bits - 1)
    )
    subnormal = (abs(steps) < 2.0**kind.nmant) & (steps != 0)
    return jnp.where(subnormal, lax.bitcast_convert_type(bits, dtype), value)
