"""What JAX is asked to compute: projections, their derivatives, and sparseness.

Vectors lie in the last axis. On the CPU the compiled core computes, which XLA's programs call
themselves; elsewhere the engine of plain operations. Targets come as arrays: as goals that the host
has resolved, or as they were given, to be resolved where they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...engines import arrays
from ...engines import jax as shards
from ...engines.arrays.namespace import Namespace, namespace
from ...engines.arrays.products import (
    NO_CHANGE,
    Changes,
    Products,
    forward_changes,
    reverse_changes,
)
from ...engines.arrays.targets import resolve_there
from ...options import NORM_RULES, RULES, SOLVERS, Options, Solver
from ...plan import Plan, derivative_plan
from ...projection import ACTIVE, L2, RECORD_FIELDS, SCALE
from ...target import Target
from .calls import Along, Backwards, Function, Shape, batch_first, everywhere
from .sharding import SHORT

core: Any
"""The compiled core, or None without it."""
try:
    from ...engines.core import _core as core
except ImportError:
    core = None
else:
    for _name, _handler in core.XLA_HANDLERS.items():
        jax.ffi.register_ffi_target(_name, _handler, platform="cpu")

XP = namespace(jnp)
"""JAX as the engine of plain operations wants it."""


@cache
def spread(names: tuple[str, ...]) -> Namespace:
    """Return the same for vectors divided over axes of a mesh with these names."""
    return shards.Spread(jnp, names) if names else XP


FIELD_TYPES = {
    "support_size": np.dtype(np.int64),
    "evaluations": np.dtype(np.int64),
    "unique": np.dtype(np.bool_),
    "active": np.dtype(np.int8),
}
WIDE, MARK = np.dtype(np.float64), FIELD_TYPES["active"]

# ---- what is asked ----


class Setting(NamedTuple):
    """What programs depend on beside shapes and types: no number among it."""

    targets: tuple[bool, bool, bool]
    """Which of sparseness, l1 and l2 were given as numbers."""
    rule: str
    nonnegative: bool
    only_increase: bool
    at_most: bool
    solver: Solver
    form: str
    """How targets come: "goals", resolved; "table", resolved for each length; or "given"."""
    masked: bool
    nearly_constant: bool
    """Whether results may be; see `Plan`."""
    uses_core: bool
    """Whether programs for the CPU call the compiled core."""

    @property
    def some_differ(self) -> bool:
        """Whether the norms that bind differ from vector to vector."""
        return self.only_increase or self.at_most

    @property
    def needs_x(self) -> bool:
        """Whether derivatives cannot be had from the results alone."""
        return self.rule == "keep" or self.nearly_constant

    @property
    def target_count(self) -> int:
        """How many arrays the targets are."""
        return sum(self.targets) if self.form == "given" else 1

    def options(self, targets: Sequence[Any]) -> Options:
        """Return options with these targets."""
        sparseness, l1, l2 = targets
        if self.rule in NORM_RULES:
            l2 = self.rule
        switches = self.nonnegative, self.only_increase, self.solver, False, self.at_most
        return Options(sparseness, l1, l2, -1, *switches)

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """Return sparseness, l1 and l2, those that were not given as None."""
        each = iter(arrays)
        return [next(each) if given else None for given in self.targets]

    def asked(self, *, reverse: bool = False) -> Any:
        """Return what the core is asked for, as one number."""
        places = core.XLA_PLACES
        switches = {
            "nonnegative": self.nonnegative,
            "only_increase": self.only_increase,
            "l1_given": self.targets[0] and self.targets[1],
            "at_most": self.at_most,
            "reverse": reverse,
            "rule": RULES[self.rule],
            "solver": SOLVERS.index(self.solver),
        }
        return np.int64(sum(int(value) << places[name] for name, value in switches.items()))


def bits_of(numbers: Any) -> Any:
    """Return doubles of the host by their bits: two integers for each number in the last axis.

    So a double reaches a program whatever types the user's configuration allows.
    """
    numbers = np.ascontiguousarray(numbers, np.float64)
    return numbers.view(np.uint32).reshape(*numbers.shape[:-1], 2 * numbers.shape[-1])


def numbers_of(bits: Any) -> Any:
    """Return doubles by their bits: the inverse of `bits_of`, in a program."""
    pairs = bits.reshape(*bits.shape[:-1], bits.shape[-1] // 2, 2)
    return jax.lax.bitcast_convert_type(pairs, jnp.float64)


def _as_target(array: Any) -> Any:
    """Return a target that was given, as floats: the bits of a number are these of one double."""
    return numbers_of(array)[..., 0] if array.dtype == jnp.uint32 else array


def everywhere_summed(numbers: Any, names: tuple[str, ...]) -> Any:
    """Add up what devices have along some axes of a mesh."""
    return jax.lax.psum(numbers, names) if names else numbers


class Question(NamedTuple):
    """Vectors' targets and masks, in the terms of a program."""

    setting: Setting
    n: int
    targets: Sequence[Any]
    """As `Setting.form` says."""
    where: Any
    names: tuple[str, ...] = ()
    """The axes of a mesh over which vectors are divided; `n` is the length of whole ones."""

    @property
    def lengths(self) -> Any:
        """How many entries masks leave of each vector; None without."""
        if self.where is None:
            return None
        return everywhere_summed(jnp.sum(self.where, axis=-1, dtype=jnp.int64), self.names)

    def given(self) -> list[Any]:
        """Return sparseness, l1 and l2 as they were given, if that is known."""
        if self.setting.form != "given":
            return [None, None, None]
        return self.setting.filled([_as_target(one) for one in self.targets])

    def goals(self) -> Any:
        """Return l1/l2, n - K in two parts and l2, in a last axis: as doubles or by their bits."""
        form = self.setting.form
        if form == "goals":
            return self.targets[0]
        if form == "table":
            return jnp.take(self.targets[0], self.lengths, axis=0)
        lengths = self.lengths
        options = self.setting.options(self.given())
        target = resolve_there(self.n if lengths is None else lengths, options, XP)
        return jnp.stack(jnp.broadcast_arrays(*target), -1)

    def norms(self) -> tuple[Any, Any]:
        """Return l1/l2 and l2 that were asked for."""
        ratio, _, _, l2 = self._columns()
        return ratio, l2

    def _columns(self) -> Iterator[Any]:
        goals = self.goals()
        if goals.dtype == jnp.uint32:
            goals = numbers_of(goals)
        return (goals[..., i] for i in range(4))

    def plan(self) -> Plan:
        """Return the plan for a projection by plain operations."""
        options = self.setting.options(self._placeholders())
        return Plan.of(self.n, Target(*self._columns()), options, self.where, self.lengths)

    def derivative_plan(self) -> Plan:
        """Return a plan for derivatives."""
        setting = self.setting
        return replace(
            derivative_plan(self.n, setting.options(self._placeholders())),
            nearly_constant=setting.nearly_constant,
            needs_x=setting.needs_x,
            where=self.where,
            lengths=self.lengths,
        )

    def _placeholders(self) -> list[Any]:
        """Return something for each target that was given: plans look at no number."""
        return [0.5 if given else None for given in self.setting.targets]


# ---- projections ----


@dataclass(frozen=True)
class Project(Function):
    """The projection of vectors: x, the targets, the mask if there is one.

    Results are the value and the scales, then which norms bind where that differs, and l2 where no
    target tells it; with `detail` all fields of a record.
    """

    along_last_axis = True

    setting: Setting
    detail: bool = False
    names: tuple[str, ...] = ()
    """The axes of a mesh over which vectors are divided."""

    def divides(self, n: int) -> bool:
        """Whether histograms are shorter than vectors, and this set can be had from them."""
        return self.setting.solver == "auto" and n > SHORT

    def over(self, names: tuple[str, ...], shapes: Sequence[tuple[int, ...]]) -> Function:
        return replace(self, names=names)

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        shape, dtype = given[0]
        batch, setting = shape[:-1], self.setting
        found = [(shape, dtype), (batch, WIDE)]
        if setting.some_differ:
            found.append((batch, MARK))
        if setting.rule in NORM_RULES:
            found.append((batch, WIDE))
        if self.detail:
            found += [(batch, FIELD_TYPES.get(name, WIDE)) for name in RECORD_FIELDS]
        return found

    def differentiable(self, given: Sequence[Shape]) -> int:
        return 2

    def plain(self, *given: Any) -> list[Any]:
        if self.names:
            return self._in_parts(given, by_core=False)
        x, question = self._question(given)
        value, records = arrays.forward(x, question.plan(), XP)
        return self._told(value, records)

    def _in_parts(self, given: Sequence[Any], *, by_core: bool) -> list[Any]:
        x, question = self._question(given)
        return self._told(*shards.forward(x, question.plan(), self.names, by_core=by_core))

    def by_core(self, *given: Any) -> list[Any]:
        setting = self.setting
        if not setting.uses_core:
            return self.plain(*given)
        if self.names:
            return self._in_parts(given, by_core=True)
        x, question = self._question(given)
        batch, goals = x.shape[:-1], question.goals()
        more: tuple[Any, ...] = ()
        if goals.ndim > 1:
            goals = jnp.broadcast_to(goals, (*batch, goals.shape[-1]))
        if setting.masked:
            more = question.where, question.lengths
        short = not (self.detail or setting.some_differ or setting.rule in NORM_RULES)
        told = (*batch,) if short else (*batch, len(RECORD_FIELDS))
        results = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(told, WIDE)
        run = jax.ffi.ffi_call("hoyer_project", results)
        value, about = run(x, goals, *more, asked=setting.asked())
        return [value, about] if short else self._told(value, about)

    def _question(self, given: Sequence[Any]) -> tuple[Any, Question]:
        x, *targets = given
        where = targets.pop() if self.setting.masked else None
        n = shards.whole_length(x, self.names)
        return x, Question(self.setting, n, targets, where, self.names)

    def _told(self, value: Any, records: Any) -> list[Any]:
        found = [value, records[..., SCALE]]
        if self.setting.some_differ:
            found.append(records[..., ACTIVE].astype(MARK))
        if self.setting.rule in NORM_RULES:
            found.append(records[..., L2])
        if self.detail:
            for i, name in enumerate(RECORD_FIELDS):
                found.append(records[..., i].astype(FIELD_TYPES.get(name, WIDE)))
        return found

    def along(
        self, moves: tuple[bool, ...], given: Sequence[Any], found: Sequence[Any]
    ) -> tuple[Function, Sequence[Any]]:
        x, *rest = given
        known = [*found[: self.known], *([x] if self.setting.needs_x else []), *rest]
        targets = moves[1 : 1 + self.setting.target_count]
        return Moves(self.setting, moves[0], targets, self.names), known

    @property
    def known(self) -> int:
        """How many of the results derivatives start from."""
        return 2 + self.setting.some_differ + (self.setting.rule in NORM_RULES)

    def mapped(
        self, given: Sequence[Any], axes: Sequence[int | None], size: int
    ) -> tuple[Function, Sequence[Any]]:
        (x, *rest), (axis, *places) = given, axes
        x = everywhere(x, axis, size)
        return self, [x, *_mapped_question(self.setting, rest, places, x)]


def _mapped_question(
    setting: Setting, given: Sequence[Any], axes: Sequence[int | None], x: Any
) -> list[Any]:
    """Return targets and mask of mapped vectors: their new axis is the first of the batch's."""
    targets, where = list(given), None
    if setting.masked:
        mask, axis = targets.pop(), axes[len(targets)]
        where = everywhere(mask, axis, x.shape[0])
    found = [
        _mapped_target(target, axis, x.ndim - 2)
        for target, axis in zip(targets, axes, strict=False)
    ]
    return found if where is None else [*found, where]


def _mapped_target(target: Any, axis: int | None, batch: int) -> Any:
    """Put the mapped axis of a target before those of a batch with so many axes."""
    if axis is None:
        return target
    last = target.dtype == jnp.uint32
    return batch_first(target, axis, batch - (target.ndim - 1 - last))


# ---- derivatives ----


class Solved(NamedTuple):
    """A projection, and all that its derivatives need to know."""

    value: Any
    scale: Any
    active: Any
    """Which norms bind, where that differs from vector to vector."""
    l2: Any
    """Of the results, where no target tells it."""
    x: Any
    """What was projected, where the results do not tell enough."""
    question: Question

    @staticmethod
    def of(setting: Setting, known: Sequence[Any], names: tuple[str, ...] = ()) -> "Solved":
        """Return the arrays by their names; vectors are divided over axes with these `names`."""
        value, scale, *rest = known
        active = rest.pop(0) if setting.some_differ else None
        l2 = rest.pop(0) if setting.rule in NORM_RULES else None
        x = rest.pop(0) if setting.needs_x else None
        where = rest.pop() if setting.masked else None
        question = Question(setting, shards.whole_length(value, names), rest, where, names)
        return Solved(value, scale, active, l2, x, question)

    @property
    def lengths(self) -> Any:
        """How many entries vectors have: a number, or one for each."""
        lengths = self.question.lengths
        return self.question.n if lengths is None else lengths

    def products(self) -> Products:
        """Return the derivatives by plain operations."""
        plan, xp = self.question.derivative_plan(), spread(self.question.names)
        return Products(self.value, self.scale, self.x, self.active, plan, xp)

    def exchanged(self, y: Any) -> list[Any]:
        """Return the transpose times y of vectors in parts, with one exchange, where that can be.

        Where results are nearly constant x has to say how they differ.
        """
        plan = self.question.derivative_plan()
        if plan.nearly_constant:
            return []
        names = self.question.names
        return [shards.gathered_product(self.value, self.scale, self.x, y, plan, names)]

    def multiplied(self, y: Any, *, reverse: bool) -> Any:
        """Return the Jacobian (or its transpose) times y by the core."""
        setting, where = self.question.setting, self.question.where
        batch = self.scale.shape
        goals = jnp.stack(jnp.broadcast_arrays(*self.question.norms()), -1)
        if goals.ndim > 1:
            goals = jnp.broadcast_to(goals, (*batch, 2))
        norms = jnp.zeros((0,), WIDE) if self.l2 is None else self.l2.astype(WIDE)
        active = jnp.zeros((0,), MARK) if self.active is None else self.active
        x: tuple[Any, ...] = () if self.x is None else (self.x,)
        if where is not None:
            # Others look at the support alone, all of which a mask leaves.
            x = tuple(jnp.where(where, one, 0) for one in x)
            if self.active is not None or setting.rule == "keep":
                y = jnp.where(where, y, 0)
        run = jax.ffi.ffi_call("hoyer_multiply", jax.ShapeDtypeStruct(y.shape, y.dtype))
        given = self.value, y, self.scale.astype(WIDE), goals, norms, active, *x
        return run(*given, asked=setting.asked(reverse=reverse))


@dataclass(frozen=True)
class Moves(Function):
    """How value and scales move with x and with the targets, where these have tangents.

    A function of what is known (see `Solved`) and of the tangents, in which it is linear.
    """

    along_last_axis = True

    setting: Setting
    by_x: bool
    by_targets: tuple[bool, ...]
    names: tuple[str, ...] = ()
    """The axes of a mesh over which vectors are divided."""

    def divides(self, n: int) -> bool:
        """Say yes: devices tell each other a few sums."""
        return True

    def over(self, names: tuple[str, ...], shapes: Sequence[tuple[int, ...]]) -> Function:
        return replace(self, names=names)

    @property
    def known(self) -> int:
        """How many arrays come before the tangents."""
        setting = self.setting
        extra = setting.some_differ + (setting.rule in NORM_RULES) + setting.needs_x
        return 2 + extra + setting.target_count + setting.masked

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        return [given[0], (given[1][0], WIDE)]

    def plain(self, *given: Any) -> list[Any]:
        at, dx, targets = self._seen(given)
        return list(at.products().tangent(dx, self._change(at, targets)))

    def by_core(self, *given: Any) -> list[Any]:
        if self.names or not (self.setting.uses_core and self.by_x):
            return self.plain(*given)
        at, dx, targets = self._seen(given)
        products, change = at.products(), self._change(at, targets)
        value = at.multiplied(dx, reverse=False)
        if any(self.by_targets):
            value = value + products.tangent(None, change)[0]
        return [value, products.tangent(dx, change)[1]]

    def _seen(self, given: Sequence[Any]) -> tuple[Solved, Any, list[Any]]:
        """Return the projection, and the tangents: of x, and of sparseness, l1 and l2."""
        at = Solved.of(self.setting, given[: self.known], self.names)
        tangents = iter(given[self.known :])
        dx = next(tangents) if self.by_x else None
        moved = [next(tangents) if moves else None for moves in self.by_targets]
        return at, dx, self.setting.filled(moved) if any(self.by_targets) else []

    @staticmethod
    def _change(at: Solved, tangents: list[Any]) -> Changes:
        if not tangents:
            return NO_CHANGE
        options = at.question.setting.options(at.question.given())
        change = forward_changes(at.lengths, options[:3], tuple(tangents), XP)
        batch = at.scale.shape
        return Changes(*(None if one is None else jnp.broadcast_to(one, batch) for one in change))

    def backwards(
        self, linear: tuple[bool, ...], shapes: tuple[Shape, ...], wanted: tuple[bool, ...]
    ) -> Function:
        if linear != (False,) * self.known + (True,) * (len(linear) - self.known):
            return Backwards(self, linear, shapes, wanted)
        return Gradients(
            self.setting, self.by_x, self.by_targets, shapes[self.by_x :], wanted, self.names
        )

    def mapped(
        self, given: Sequence[Any], axes: Sequence[int | None], size: int
    ) -> tuple[Function, Sequence[Any]]:
        known, batch = _mapped_known(self, given, axes, size)
        tangents, places = list(given[self.known :]), list(axes[self.known :])
        found = [everywhere(tangents.pop(0), places.pop(0), size)] if self.by_x else []
        found += [
            _mapped_target(one, axis, batch) for one, axis in zip(tangents, places, strict=True)
        ]
        return self, [*known, *found]


@dataclass(frozen=True)
class Gradients(Function):
    """The gradients by x and by the targets, of what depends on value or scales: see `Moves`.

    A function of what is known and of the gradients by value and scales that are `wanted`.
    """

    along_last_axis = True

    setting: Setting
    by_x: bool
    by_targets: tuple[bool, ...]
    shapes: tuple[Shape, ...]
    """Of the gradients by targets."""
    wanted: tuple[bool, ...]
    names: tuple[str, ...] = ()
    """The axes of a mesh over which vectors are divided."""

    def divides(self, n: int) -> bool:
        """Say yes: devices tell each other a few sums."""
        return True

    @property
    def known(self) -> int:
        """How many arrays come before the gradients."""
        return Moves(self.setting, False, ()).known

    @property
    def sums(self) -> int:
        """From which result on they are sums over all vectors, or devices have parts of them."""
        return int(self.by_x)

    def over(self, names: tuple[str, ...], shapes: Sequence[tuple[int, ...]]) -> Function:
        kinds = (dtype for _, dtype in self.shapes)
        own = tuple(zip(shapes[self.by_x :], kinds, strict=True))
        return replace(self, shapes=own, names=names)

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        return [*([given[0]] if self.by_x else []), *self.shapes]

    def plain(self, *given: Any) -> list[Any]:
        return self._gradients(given, by_core=False)

    def by_core(self, *given: Any) -> list[Any]:
        by_core = self.setting.uses_core and self.by_x and self.wanted == (True, False)
        return self._gradients(given, by_core=by_core and not self.names)

    def _gradients(self, given: Sequence[Any], *, by_core: bool) -> list[Any]:
        at = Solved.of(self.setting, given[: self.known], self.names)
        gradients = iter(given[self.known :])
        g_value, g_scale = (next(gradients) if wanted else None for wanted in self.wanted)
        found, change, by_target = [], NO_CHANGE, any(self.by_targets)
        simple = self.by_x and self.wanted == (True, False) and not by_target
        if by_core:
            found = [at.multiplied(g_value, reverse=True)]
        elif simple and self.names and not self.setting.some_differ:
            found = at.exchanged(g_value)
        if not found or by_target:
            by_x, change = at.products().cotangent(
                g_value, g_scale, by_x=self.by_x and not by_core, by_target=by_target
            )
            if by_x is not None:
                found = [by_x]
        return [*found, *self._by_targets(at, change)] if by_target else found

    def _by_targets(self, at: Solved, change: Changes) -> list[Any]:
        options = at.question.setting.options(at.question.given())
        gradients = reverse_changes(at.lengths, options[:3], change, XP)
        there = [one for one, given in zip(gradients, self.setting.targets, strict=True) if given]
        batch, each, results = at.scale.shape, iter(self.shapes), []
        for gradient, target, wanted in zip(
            there, at.question.targets, self.by_targets, strict=True
        ):
            if wanted:
                shape, dtype = next(each)
                whole = jnp.broadcast_to(gradient, batch)
                results.append(_summed(whole, target.shape).reshape(shape).astype(dtype))
        if not self.names:
            return results
        # Of a target that devices share each has a part of the gradient: one of them has it all.
        own = jax.lax.axis_index(self.names) == 0
        return [jnp.where(own, result, jnp.zeros_like(result)) for result in results]

    def backwards(
        self, linear: tuple[bool, ...], shapes: tuple[Shape, ...], wanted: tuple[bool, ...]
    ) -> Function:
        usual = linear == (False,) * self.known + (True,) * (len(linear) - self.known)
        if not usual or self.wanted != (True, False) or not all(wanted) or any(self.by_targets):
            return Backwards(self, linear, shapes, wanted)
        return _ValueMoves(self.setting, self.by_x, self.by_targets, self.names)

    def mapped(
        self, given: Sequence[Any], axes: Sequence[int | None], size: int
    ) -> tuple[Function, Sequence[Any]]:
        known, batch = _mapped_known(self, given, axes, size)
        targets = self._repeated(known, batch, size)
        found = [
            everywhere(one, axis, size)
            for one, axis in zip(given[self.known :], axes[self.known :], strict=True)
        ]
        shapes = tuple(((size, *shape), dtype) for shape, dtype in self.shapes)
        return replace(self, shapes=shapes), [*targets, *found]

    def _repeated(self, known: list[Any], batch: int, size: int) -> list[Any]:
        """Let each target whose gradient is wanted have the mapped axis: gradients have it."""
        first = self.known - self.setting.masked - self.setting.target_count
        for i, wanted in enumerate(self.by_targets):
            target = known[first + i]
            if wanted and target.ndim <= batch:
                known[first + i] = batch_first(
                    everywhere(target, None, size), 0, batch - target.ndim
                )
        return known


@dataclass(frozen=True)
class _ValueMoves(Moves):
    """How the value alone moves."""

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        return super().results(given)[:1]

    def plain(self, *given: Any) -> list[Any]:
        return super().plain(*given)[:1]

    def by_core(self, *given: Any) -> list[Any]:
        return super().by_core(*given)[:1]

    def backwards(
        self, linear: tuple[bool, ...], shapes: tuple[Shape, ...], wanted: tuple[bool, ...]
    ) -> Function:
        return super().backwards(linear, shapes, (*wanted, False))


def _mapped_known(
    function: Any, given: Sequence[Any], axes: Sequence[int | None], size: int
) -> tuple[list[Any], int]:
    """Return what is known of mapped vectors, and how many axes the batch of one had."""
    setting, known = function.setting, list(given[: function.known])
    cut = function.known - setting.target_count - setting.masked
    found = [everywhere(one, axis, size) for one, axis in zip(known[:cut], axes, strict=False)]
    rest = _mapped_question(setting, known[cut:], axes[cut : function.known], found[0])
    return [*found, *rest], found[0].ndim - 2


def _summed(array: Any, shape: tuple[int, ...]) -> Any:
    """Add up what was broadcast from a shape."""
    array = array.sum(tuple(range(array.ndim - len(shape))))
    axes = tuple(i for i, size in enumerate(shape) if size == 1 and array.shape[i] != 1)
    return array.sum(axes, keepdims=True)


# ---- sparseness ----


@dataclass(frozen=True)
class Measure(Function):
    """Sigma of vectors."""

    along_last_axis = True

    uses_core: bool
    names: tuple[str, ...] = ()
    """The axes of a mesh over which vectors are divided."""

    def divides(self, n: int) -> bool:
        """Say yes: devices tell each other a few sums."""
        return True

    def over(self, names: tuple[str, ...], shapes: Sequence[tuple[int, ...]]) -> Function:
        return replace(self, names=names)

    def results(self, given: Sequence[Shape]) -> list[Shape]:
        shape, dtype = given[0]
        return [(shape[:-1], dtype)]

    def plain(self, *given: Any) -> list[Any]:
        (x,) = given
        return [arrays.sparseness(x, spread(self.names))]

    def by_core(self, *given: Any) -> list[Any]:
        if self.names or not self.uses_core:
            return self.plain(*given)
        (x,) = given
        run = jax.ffi.ffi_call("hoyer_sparseness", jax.ShapeDtypeStruct(x.shape[:-1], WIDE))
        return [run(x).astype(x.dtype)]

    def mapped(
        self, given: Sequence[Any], axes: Sequence[int | None], size: int
    ) -> tuple[Function, Sequence[Any]]:
        return self, [everywhere(given[0], axes[0], size)]


__all__ = [
    "Along",
    "Gradients",
    "Measure",
    "Moves",
    "Project",
    "Question",
    "Setting",
    "Solved",
    "bits_of",
    "core",
]
