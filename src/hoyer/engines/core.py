"""The compiled core, and plans in its own form: it works on rows of floats on the CPU.

To import this module is to load the core; an ImportError says how to get it.
"""

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..options import Options
from ..plan import Plan, masked_plan, plan_for, table_for
from ..sample import sample_sizes, thinned
from . import limits
from .arrays.histogram import NOWHERE, Grid
from .arrays.namespace import Namespace, namespace

try:
    from .. import _core
except ImportError as error:
    raise ImportError(
        "hoyer's compiled core (hoyer._core) cannot be loaded: install a wheel with 'pip install "
        "hoyer', or build it with 'pip install .' in a checkout (this needs a C++20 compiler)"
    ) from error
if _core.ISA is None:
    raise ValueError(
        f"HOYER_ISA={os.environ['HOYER_ISA']!r} in the environment: choose one of "
        f"{', '.join(_core.COMPILED_ISAS)}, of which this processor runs "
        f"{', '.join(_core.AVAILABLE_ISAS)}; without HOYER_ISA the first of these is taken"
    )
limits.register()

__all__ = [
    "BUFFER_BYTES",
    "Members",
    "_core",
    "core_plan",
    "gather",
    "histogram",
    "masked_plan_of",
    "namespace_of",
    "neighbours",
    "plan_of",
    "write",
]

BUFFER_BYTES: int = _core.BUFFER_BYTES
"""The most that the buffer of solver="auto" takes, per thread."""
_SMALL = float(np.finfo(np.float16).max)


def core_plan(plan: Plan) -> _core.Plan:
    """Return a plan as the core takes it, made once."""
    known: _core.Plan | None = plan.forms.get("core")
    if known is None:
        ratio, slack, slack_low, l2 = plan.target
        known = plan.forms["core"] = _core.Plan(
            ratio,
            slack,
            slack_low,
            l2,
            plan.rule,
            plan.nonnegative,
            plan.only_increase,
            plan.l1_given,
            plan.at_most,
            plan.options.solver,
            bool(plan.options.check_finite),
            plan.is_table,
            plan.both_norms,
        )
    return known


def plan_of(n: int, options: Options, batch: tuple[int, ...], axes: tuple[int, ...]) -> _core.Plan:
    """Return the core's form of a plan; see `hoyer.plan.plan_for`."""
    return core_plan(plan_for(n, options, batch, axes))


def masked_plan_of(
    n: int, options: Options, where: Any, lengths: Any, axes: tuple[int, ...]
) -> _core.Plan:
    """Return the core's form of a plan for vectors with masks; see `hoyer.plan.masked_plan`."""
    plain = options._replace(where=None)
    # What is made for other lengths, too, must not be too large for any type there.
    if plain.is_plain and (plain.l1 is None or plain.l1 <= _SMALL):
        if plain.rule == "free":
            return plan_of(n, plain, (), ())
        if lengths.size == 1 and lengths.item() > 1 and plain.sparseness is not None:
            # One vector is one of the length that is left, whose plan is remembered.
            return plan_of(lengths.item(), plain, (), ())
        table = table_for(n, plain, lengths.size)
        if table is not None and table.serves_all:
            return core_plan(table)
    return core_plan(masked_plan(n, options, where, lengths, lengths.shape, axes))


# ---- what `hoyer.engines.parts` asks of arrays on the CPU, with native floats and any strides;
# see `hoyer.engines.arrays.histogram.Parts` ----


def histogram(x: Any, grid: Grid, nonnegative: bool, where: Any = None) -> Any:
    """Return how many entries are not finite, and zero; then per bin counts and moments."""
    return _core.histogram(x, *grid, nonnegative, where)


def gather(x: Any, grid: Grid, nonnegative: bool, where: Any = None, place: Any = None) -> Any:
    """Return the keys that are asked for; with a place each is followed by that in the vector."""
    found = _core.gather(x, grid.lower, grid.span, nonnegative, where, place is not None)
    if place is not None:
        found[1::2] = place.from_part(found[1::2], x.shape)
    return found


def neighbours(x: Any, key: int, nonnegative: bool, where: Any = None, place: Any = None) -> Any:
    """Return the next smaller key, and the place of the first entry with this key, negated."""
    found = _core.neighbours(x, key, nonnegative, where)
    if place is not None and found[1] != NOWHERE:
        found[1] = -place.from_part(-int(found[1]), x.shape)
    return found


def write(  # noqa: PLR0917 - as other engines, and where to
    x: Any,
    formula: Sequence[float],
    nonnegative: bool,
    place: int = -1,
    where: Any = None,
    out: Any = None,
) -> Any:
    """Write one part of a result into `out`, which may be x, or into a new array of its kind."""
    if out is None:
        out = x.new_empty(x.shape) if hasattr(x, "new_empty") else np.empty_like(x)
    _core.write(x, out, tuple(formula), nonnegative, place, where)
    return out


def namespace_of(x: Any) -> Namespace:
    """Return the library of an array that the core works on."""
    name = "numpy" if isinstance(x, np.ndarray) else type(x).__module__.partition(".")[0]
    return namespace(sys.modules[name])


class Members:
    """Vectors of several arrays that share a sparseness; see `hoyer.price`.

    Parameters
    ----------
    arrays : sequence of (array, int, bool)
        As the core takes them: with the vectors in the last axes, how many of these a vector has,
        and whether bytes are in foreign order.
    nonnegative : bool
        Whether the entries themselves count, not their magnitudes.
    threads : int
        How many threads of a library that lends its own; 0: the core's.
    """

    def __init__(
        self, arrays: Sequence[tuple[Any, int, bool]], nonnegative: bool, threads: int = 0
    ) -> None:
        self._arrays, self._nonnegative, self._threads = arrays, nonnegative, threads
        shapes = [tuple(array.shape) for array, _, _ in arrays]
        inners = [inner for _, inner, _ in arrays]
        cut = [len(shape) - inner for shape, inner in zip(shapes, inners, strict=True)]
        self.batches = [shape[:at] for shape, at in zip(shapes, cut, strict=True)]
        self.lengths = [math.prod(shape[at:]) for shape, at in zip(shapes, cut, strict=True)]
        self._ends = np.cumsum([math.prod(batch) for batch in self.batches])[:-1]
        self._known: list[Any] = []

    def summary(self) -> Any:
        """Return what `price.SUMMARY` names, a row per vector."""
        self._known = []
        for (array, inner, swapped), batch in zip(self._arrays, self.batches, strict=True):
            found = np.empty((math.prod(batch), len(_core.SUMMARY_FIELDS)))
            _core.summary(array, inner, swapped, self._nonnegative, found, self._threads)
            self._known.append(found)
        return np.concatenate(self._known)

    def look(self, pivots: Any, references: Any) -> Any:
        """Return what `price.SUMS` names, a row per vector."""
        all_sums = np.empty((len(pivots), 1, len(_core.SUM_FIELDS)))
        parts = (
            np.split(numbers, self._ends) for numbers in (pivots[:, None], references, all_sums)
        )
        for (array, inner, swapped), known, above, near, found in zip(
            self._arrays, self._known, *parts, strict=True
        ):
            given = array, above, inner, swapped, self._nonnegative
            _core.sums(*given, found, known, near, self._threads)
        return all_sums[:, 0]

    def between(self, lows: Any, highs: Any, references: Any) -> tuple[Any, Any, Any]:
        """Return what lies above the higher pivots, as `look` does, and the entries between both.

        Those come with the numbers of their vectors, in ascending order.
        """
        all_sums = np.empty((len(lows), len(_core.SUM_FIELDS)))
        parts = (np.split(numbers, self._ends) for numbers in (lows, highs, references, all_sums))
        counts, entries = [], []
        for (array, inner, swapped), known, low, high, near, found in zip(
            self._arrays, self._known, *parts, strict=True
        ):
            given = array, low, high, inner, swapped, self._nonnegative
            starts, some = _core.between(*given, found, known, near, self._threads)
            counts.append(np.diff(starts))
            entries.append(some)
        vectors = np.repeat(np.arange(len(lows)), np.concatenate(counts))
        return all_sums, vectors, np.concatenate(entries)

    def sample(self) -> list[tuple[Any, Any]] | None:
        """Return some entries of some vectors, as `Sample` takes them; None of a few."""
        rows = [math.prod(batch) for batch in self.batches]
        sizes = sample_sizes(self.lengths, rows)
        if sizes is None:
            return None
        blocks, before = [], 0
        for (array, inner, swapped), count, size in zip(self._arrays, rows, sizes, strict=True):
            if count:
                vectors, entries = thinned(array, inner, *size)
                if swapped:
                    entries = entries.byteswap()
                wide = np.asarray(entries.float() if hasattr(entries, "float") else entries, float)
                blocks.append((before + vectors, wide if self._nonnegative else abs(wide)))
            before += count
        return blocks
