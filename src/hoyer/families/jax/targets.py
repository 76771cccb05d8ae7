"""Targets and masks of JAX arrays: numbers are resolved on the host, others in the program.

What cannot be looked at (a tracer, an array of another device) goes into the program as it is, and
what is impossible becomes NaN there; all else is an error here, as for other arrays.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...engines.arrays.targets import check_fits, refuse_what_is_seen
from ...layout import Layout, check_mask
from ...options import Options, check
from ...plan import Plan, by_length, masked_plan, plan_for
from ...target import no_fit, not_real, refuse_lazy, without_axes
from . import engine
from .arrays import as_numpy, on_host, rows_of
from .engine import XP, Setting, bits_of

NAMES = ("sparseness", "l1", "l2")
_LONGEST_TABLE = 2**16
"""Of longer vectors a table for every length would take longer to make than its formulas."""


class Question(NamedTuple):
    """What a program is asked, and the arrays that it is asked with, after x."""

    setting: Setting
    arrays: tuple[Any, ...]


def question_of(
    options: Options, layout: Layout, dtype: Any, here: Layout | None = None
) -> Question:
    """Return what is asked of vectors, or say what is wrong with it.

    `here` is where the parts of vectors are that a device has, if it has parts only; the mask is
    for those.
    """
    check(options)
    mask = _mask(options.where, layout if here is None else here)
    # How many entries are left of a vector is known by all devices together.
    options = options._replace(where=mask if here is None or mask is None else jnp.asarray(mask))
    targets = [_seen(name, one, layout) for name, one in zip(NAMES, options[:3], strict=True)]
    options = options._replace(**dict(zip(NAMES, targets, strict=True)))
    if all(on_host(target) for target in targets):
        return _resolved(options, layout, dtype)
    return _given(options, layout)


def _setting(options: Options, form: str, nearly_constant: bool) -> Setting:
    numbers = [one is not None and not isinstance(one, str) for one in options[:3]]
    return Setting(
        (numbers[0], numbers[1], numbers[2]),
        options.rule,
        bool(options.nonnegative),
        bool(options.only_increase),
        bool(options.at_most),
        options.solver,
        form,
        options.where is not None,
        nearly_constant,
        engine.core is not None,
    )


def _mask(where: Any, layout: Layout) -> Any:
    """Return a mask in rows; an array of the host where it can be looked at."""
    if where is None:
        return None
    if not isinstance(where, jax.Array):
        refuse_lazy("where", where)
        where = np.asarray(where)
    check_mask(where, where.dtype == np.bool_, layout.shape)
    if on_host(where):
        return layout.rows(np.broadcast_to(np.asarray(where), layout.shape), np)
    return rows_of(jnp.broadcast_to(where, layout.shape), layout)


def _seen(name: str, target: Any, layout: Layout) -> Any:
    """Return a target: as a number or an array of the host where it can be looked at."""
    if target is None or isinstance(target, str | float | int):
        return target
    if on_host(target):
        return as_numpy(target) if isinstance(target, jax.Array) else target
    if target.dtype == np.bool_ or not jnp.issubdtype(target.dtype, np.number):
        raise TypeError(not_real(name, target))
    if jnp.issubdtype(target.dtype, np.complexfloating):
        raise TypeError(f"{name} has dtype {target.dtype}: give real numbers")
    given, batch = tuple(target.shape), layout.batch
    shape = without_axes(given, len(batch), layout.axes)
    ends = zip(shape[::-1], batch[::-1], strict=False)
    if len(shape) > len(batch) or not all(size in (1, wanted) for size, wanted in ends):
        raise ValueError(no_fit(given, batch))
    floats = target if jnp.issubdtype(target.dtype, np.floating) else target.astype(float)
    return floats.reshape(shape)


def _resolved(options: Options, layout: Layout, dtype: Any) -> Question:
    """Resolve targets that are all known."""
    where, options = options.where, options._replace(where=None)
    n, batch, axes = layout.length, layout.batch, layout.axes
    if where is None:
        plan = plan_for(n, options, batch, axes)
    elif isinstance(where, np.ndarray):
        lengths = np.count_nonzero(where, axis=-1)
        plan = masked_plan(n, options, where, np.asarray(lengths), batch, axes)
    else:
        return _for_any_mask(options, where, layout)
    if options.check_finite:
        check_fits(plan, dtype, XP)
    setting = _setting(options._replace(where=where), "goals", plan.nearly_constant)
    arrays = (_goals(plan, batch),) if where is None else (_goals(plan, batch), where)
    return Question(setting, arrays)


def _goals(plan: Plan, batch: tuple[int, ...]) -> Any:
    """Return the bits of a plan's targets, those of all vectors or of each."""
    goals = np.stack(plan.target, -1)
    shape = (4,) if goals.shape[0] == 1 else (*batch, 4)
    return bits_of(goals.reshape(shape))


def _for_any_mask(options: Options, where: Any, layout: Layout) -> Question:
    """Ask for whatever a mask will leave of vectors."""
    n, masked = layout.length, options._replace(where=where)
    if not options.is_plain or n > _LONGEST_TABLE:
        return _given(masked, layout)
    table = by_length(n, options)
    known: Any = table.forms.get("jax")
    if known is None:
        known = table.forms["jax"] = bits_of(np.stack(table.target, -1))
    return Question(_setting(masked, "table", table.nearly_constant), (known, where))


def _given(options: Options, layout: Layout) -> Question:
    """Leave targets to the program, where some of them are."""
    where = options.where
    refuse_what_is_seen(4 if where is not None else layout.length, options)
    arrays = [
        one if isinstance(one, jax.Array) else _number(one, layout)
        for one in options[:3]
        if one is not None and not isinstance(one, str)
    ]
    setting = _setting(options, "given", False)
    return Question(setting, (*arrays, *(() if where is None else (where,))))


def _number(target: Any, layout: Layout) -> Any:
    """Return a number of the host, or one for each vector, by its bits."""
    numbers = np.asarray(target, np.float64)
    shape = without_axes(numbers.shape, len(layout.batch), layout.axes)
    try:
        np.broadcast_to(numbers.reshape(shape), layout.batch)
    except ValueError:
        raise ValueError(no_fit(numbers.shape, layout.batch)) from None
    return bits_of(numbers.reshape(*shape, 1))
