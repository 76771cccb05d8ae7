"""`keep_sparseness`: projected gradient descent with any optimizer of optax."""

from operator import index
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ..target import target_norms
from .trees import AxisOf, masked, projection_sparseness


class KeepSparsenessState(NamedTuple):
    """What `keep_sparseness` remembers from step to step."""

    count: Any
    """How many steps were seen."""


def keep_sparseness(
    sparseness: Any = None,
    *,
    l1: Any = None,
    l2: Any = "keep",
    axis: AxisOf = -1,
    mask: Any = None,
    every: int = 1,
    warmup: int = 0,
    nonnegative: bool = False,
    only_increase: bool | None = None,
    at_most: bool = False,
) -> Any:
    """Change updates so that parameters have the chosen sparseness once they are applied.

    Put this last in ``optax.chain``, after whatever makes the step: the parameters that the step
    would lead to are projected, and the update leads there instead. Other leaves are left alone.

    Parameters
    ----------
    sparseness : float, array or callable, optional
        Target sparseness; or a schedule, such as ``optax.linear_schedule(0.2, 0.9, 1000)``: a
        function from the number of steps since the warm-up (1 for the first) to a sparseness. It
        may be omitted if norms are given.
    l1, l2, axis, mask, nonnegative, at_most
        As in `projection_sparseness`, except for the mask: by default, floating-point leaves with
        at least two axes are projected, so that biases, scales and tables are left alone.
        ``lambda params: True`` selects all leaves.
    every : int, default 1
        Project after every step whose number, counted from the warm-up, is a multiple of this.
    warmup : int, default 0
        The number of steps at the beginning after which nothing is projected.
    only_increase : bool, optional
        As in `hoyer.project`. By default it is True with a schedule, so that vectors sparser than
        the schedule asks stay as they are, and False without. For a falling schedule there is no
        default: False follows it, True keeps what has been reached.

    Raises
    ------
    ValueError
        Without a target; for a schedule that falls (at one of its first steps, or from one power of
        two to the next), unless `only_increase` is given.

    Returns
    -------
    optax.GradientTransformation
        Its ``update`` needs the parameters: ``optimizer.update(gradients, state, params)``.

    Notes
    -----
    ``optax.apply_updates`` adds and rounds. Zeros are exact. For float16 and bfloat16 parameters,
    updates are float32, so that the sum is the projection, bit for bit. Other entries may be off by
    half a unit in the last place of the old parameter or of the change, whichever is larger;
    ``projection_sparseness(params, ...)`` removes even that.

    ``optax.inject_hyperparams`` turns numbers into arrays; name those that must stay numbers, as in
    ``inject_hyperparams(keep_sparseness, static_args=("every", "warmup", "axis"))``.

    Compiled code raises no errors: a schedule that leaves [0, 1] makes parameters NaN, and so do
    updates with NaN or infinity.

    Examples
    --------
    >>> import hoyer, jax, jax.numpy as jnp, optax
    >>> params = {"w": jax.random.normal(jax.random.key(0), (4, 50)), "b": jnp.zeros(4)}
    >>> schedule = optax.linear_schedule(0.2, 0.85, 2)
    >>> optimizer = optax.chain(optax.adam(1e-2), hoyer.jax.keep_sparseness(schedule))
    >>> state = optimizer.init(params)
    >>> loss = lambda params: jnp.sum((params["w"] @ jnp.ones(50) + params["b"]) ** 2)
    >>> for step in (1, 2):
    ...     updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> [round(sigma, 4) for sigma in hoyer.sparseness(params["w"]).tolist()]
    [0.85, 0.85, 0.85, 0.85]
    """
    optax = _optax()
    every, warmup = _count("every", every, 1), _count("warmup", warmup, 0)
    scheduled = callable(sparseness)
    if sparseness is None and l1 is None:
        raise ValueError(
            "keep_sparseness needs a target: a sparseness in [0, 1], a schedule of it, or l1"
        )
    if scheduled and only_increase is None:
        _refuse_falling(sparseness)
    if sparseness is not None and not scheduled and not isinstance(sparseness, jax.Array):
        target_norms(2, sparseness)
    given = {
        "l1": l1,
        "l2": l2,
        "axis": axis,
        "nonnegative": nonnegative,
        "only_increase": scheduled if only_increase is None else only_increase,
        "at_most": at_most,
        "check_finite": False,
    }
    projected = _matrices if mask is None else mask

    def init(params: Any) -> KeepSparsenessState:
        chosen = masked(params, projected)
        # What is wrong with the arguments is an error here, not in the middle of the training.
        target = jnp.asarray(0.5) if scheduled else sparseness
        run = lambda tree: projection_sparseness(tree, target, mask=chosen, **given)  # noqa: E731
        jax.eval_shape(run, params)
        if not any(jax.tree.leaves(chosen)):
            raise ValueError("no leaf of params is to be projected: see mask")
        return KeepSparsenessState(jnp.zeros((), jnp.int32))

    def update(
        updates: Any, state: KeepSparsenessState, params: Any = None
    ) -> tuple[Any, KeepSparsenessState]:
        if params is None:
            raise ValueError(
                "keep_sparseness projects the parameters: pass them, as in "
                "optimizer.update(gradients, state, params)"
            )
        count = optax.safe_increment(state.count)
        since = count - warmup
        target = sparseness(since) if scheduled else sparseness
        chosen = masked(params, projected)

        def project(updates: Any) -> Any:
            new = jax.tree.map(_added, params, updates)
            new = projection_sparseness(new, target, mask=chosen, **given)
            return jax.tree.map(_leading, params, new, updates, chosen)

        def leave(updates: Any) -> Any:
            return jax.tree.map(lambda p, u, c: _wide(p, u) if c else u, params, updates, chosen)

        if every == 1 and warmup == 0:
            return project(updates), KeepSparsenessState(count)
        due = (since > 0) & (since % every == 0)
        return jax.lax.cond(due, project, leave, updates), KeepSparsenessState(count)

    return optax.GradientTransformation(init, update)


_LOOKED_AT = (*range(1, 33), *(2**i for i in range(6, 21)))
"""The steps at which a schedule is looked at before the training."""


def _refuse_falling(schedule: Any) -> None:
    """Refuse a schedule whose sparseness falls, where it can be looked at."""
    highest, since = -1.0, 0
    for step in _LOOKED_AT:
        now = schedule(jnp.int32(step))
        if isinstance(now, jax.core.Tracer) or jnp.ndim(now) > 0:
            return
        if float(now) < highest - _ROUNDING:
            raise ValueError(
                f"the schedule falls, from {highest:.4g} at step {since} to {float(now):.4g} at "
                f"step {step}: pass only_increase=False to follow it, or only_increase=True to "
                "hold what has been reached"
            )
        if float(now) > highest:
            highest, since = float(now), step


_ROUNDING = 1e-6
"""What schedules in float32 may fall by without being meant to."""


def _matrices(params: Any) -> Any:
    def is_one(x: Any) -> bool:
        return jnp.ndim(x) > 1 and jnp.issubdtype(jnp.result_type(x), jnp.floating)

    return jax.tree.map(is_one, params)


def _added(param: Any, update: Any) -> Any:
    """Return what `optax.apply_updates` makes of a leaf."""
    return jnp.asarray(param + update).astype(jnp.asarray(param).dtype)


def _leading(param: Any, new: Any, update: Any, chosen: bool) -> Any:
    """Return the update that leads from a parameter to another."""
    return _wide(param, new) - _wide(param, param) if chosen else update


def _wide(param: Any, leaf: Any) -> Any:
    """Return a leaf with enough digits for a difference of halves to be exact."""
    kind = jnp.asarray(param).dtype
    return jnp.asarray(leaf).astype(jnp.float32 if kind.itemsize == 2 else kind)


def _count(name: str, value: Any, least: int) -> int:
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: must be an integer") from None
    if isinstance(value, bool) or number < least:
        raise ValueError(f"{name}={value!r}: must be an integer, at least {least}")
    return number


def _optax() -> Any:
    try:
        import optax  # noqa: PLC0415 - for this function alone
    except ModuleNotFoundError as error:
        raise ImportError("hoyer.jax.keep_sparseness needs optax: pip install optax") from error
    return optax
