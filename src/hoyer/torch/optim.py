"""`ProjectAfterStep`: projected gradient descent with any optimizer."""

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..api import project, project_
from ..families.torch.many import Many, increment_version
from ..families.torch.tensors import is_distributed
from ..layout import Layout, vector_axes
from ..options import Options
from ..together import project_together
from ..warn import warn
from .arguments import (
    INPUTS,
    Dim,
    alongside,
    check_combination,
    check_count,
    check_fit,
    copy_into,
    described,
    dim_not_axis,
    has_numbers,
    norms_of,
    options_of,
    target_of,
    vector_axes_of,
)
from .optim_arguments import (
    check_optimizer,
    check_schedule,
    check_shared,
    numbers_of,
    only_increase_of,
    parameters_of,
    scheduled,
)

_KEY = "hoyer_project_after_step"
"""The key of the first param group under which a saved optimizer keeps the handles' states."""
_HANDLES = "_hoyer_handles"
"""The attribute of an optimizer that lists its handles: each is a `ProjectAfterStep`."""
_HOOKS = (
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_post_hooks",
)
"""What PyTorch calls the dictionaries that the hooks of a handle are in."""


class ProjectAfterStep:
    """Project parameters onto a sparseness after steps of an optimizer.

    Use the optimizer as before: every call of its ``step`` (by a training loop or an AMP
    ``GradScaler``) also triggers the projection, until `remove` is called. You need not keep a
    reference to this object.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer whose steps count.
    params : Tensor, (nn.Module, str), or iterable of these
        The parameters to project, including frozen ones (without a gradient): tensors, or layers
        with the name of a parameter, as in ``(layer, "weight")``.
    sparseness : float, array_like or Tensor
        Target sparseness, one for all vectors or one for each; a tensor is read again every time.
        With a schedule, it is an upper limit: the target is the smaller of the two. It may be
        omitted if norms are given, and can be assigned to later.
    dim : int, tuple of int, None or "inputs", default "inputs"
        The axes that form a vector (`axis` in `hoyer.project`). "inputs" means the inputs of one
        unit, as in `hoyer.torch.parametrizations.sparseness`. For a bare tensor this is clear if it
        has two axes (all but the first); if it has more, give `dim`, or the layer, as in
        ``(layer, "weight")``.
    l1, l2 : float, Tensor, or for l2 "keep" or "nearest", optional
        The norm of the projected vectors, as in `SparsenessProjection`; kept by default.
    every : int, default 1
        Project after every step whose number, counted from the warm-up, is a multiple of this.
    warmup : int, default 0
        The number of steps at the beginning after which nothing is projected.
    schedule : callable, optional
        Maps the number of steps since the warm-up (1 for the first) to a sparseness; see
        `hoyer.torch.schedules`. Schedules from there must not end above `sparseness`, nor fall
        unless `only_increase` is given.
    nonnegative, at_most : bool, default False
        As in `hoyer.project`.
    only_increase : bool, optional
        As in `hoyer.project`. By default it is True with a schedule, so that vectors sparser than
        the schedule asks stay as they are, and False without.
    check_finite : bool, default True
        Whether NaN or infinity in a parameter, or a norm too large for its type, is an error. NaN
        and infinity are looked for only on the CPU, and not at all if one parameter is a DTensor,
        since other ranks would wait for the one that raised: such vectors become NaN.
    together : bool, default False
        Whether `sparseness` is the mean over the vectors of all parameters, each of which gets its
        own sparseness, as in `hoyer.project_together`: one number for the whole network.
    floor, weights, relative : optional
        As in `hoyer.project_together`: a sparseness that no vector falls below (lowered if a
        schedule asks for less on average), weights in the mean (a list with one number per
        parameter, or a tensor with one per vector), and whether distances are relative to the
        norms. They need `together`.

    Attributes
    ----------
    steps : int
        How many steps of the optimizer were seen.

    Notes
    -----
    `steps` is saved in the optimizer's ``state_dict``. When that is loaded, it goes to the
    `ProjectAfterStep` on the same parameters, whether that exists already or is created later; one
    that finds nothing in a loaded state warns, and continues counting. If an optimizer makes a step
    while nothing has claimed the loaded steps, a warning says that nothing is projected. (To notice
    this, `hoyer.torch` adds a hook to all optimizers when it is imported.)

    A deep copy of the optimizer has a copy of its `ProjectAfterStep`, and so has one that was
    pickled: copy model and optimizer together, as in ``copy.deepcopy((model, optimizer))``.
    A shallow copy of the optimizer does not project, and warns.

    Steps that PyTorch makes itself, with learning rate 0, before it saves or loads a state
    (`torch.distributed.checkpoint.state_dict`) do not count. Weights that are DTensors (FSDP2,
    tensor parallelism) are projected wherever they lie.

    A step that a ``GradScaler`` skips because of an overflow is neither counted nor projected.
    Fused optimizers on devices other than the CPU are the exception: only the device knows that the
    step was skipped, so it counts, but the parameters stay as they are.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import ProjectAfterStep, schedules
    >>> layer = torch.nn.Linear(50, 4)
    >>> optimizer = torch.optim.Adam(layer.parameters())
    >>> ProjectAfterStep(optimizer, layer.weight, 0.85, schedule=schedules.linear(0.2, 0.85, 2))
    ProjectAfterStep(1 tensor, sparseness=0.85, dim='inputs', l2='keep', \
schedule=Polynomial(start=0.2, end=0.85, steps=2, power=1), only_increase=True, steps=0)
    >>> for step in (1, 2):
    ...     layer(torch.ones(50)).sum().backward()
    ...     optimizer.step()
    >>> hoyer.sparseness(layer.weight.detach()).round(decimals=4)
    tensor([0.8500, 0.8500, 0.8500, 0.8500])

    One number for all layers of a network:

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> weights = [layer.weight for layer in model]
    >>> _ = ProjectAfterStep(optimizer, weights, 0.75, dim=None, together=True, relative=True)
    >>> model(torch.ones(64)).sum().backward()
    >>> optimizer.step()
    >>> both = [hoyer.sparseness(weight.detach(), axis=None) for weight in weights]
    >>> round(float(sum(both)) / 2, 4)
    0.75
    """

    @dim_not_axis
    def __init__(
        self,
        optimizer: Optimizer,
        params: Tensor | tuple[nn.Module, str] | Iterable[Tensor | tuple[nn.Module, str]],
        sparseness: Any = None,
        *,
        dim: Dim = INPUTS,
        l1: Any = None,
        l2: Any = None,
        every: int = 1,
        warmup: int = 0,
        schedule: Callable[[int], float] | None = None,
        nonnegative: bool = False,
        only_increase: bool | None = None,
        check_finite: bool = True,
        together: bool = False,
        floor: float = 0.0,
        weights: Any = None,
        relative: bool = False,
        at_most: bool = False,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        given = parameters_of(params)
        self.params = [one.param for one in given]
        self._names = [one.name for one in given]
        self._numbers = numbers_of(optimizer, given)
        self.at_most = at_most
        if together and sparseness is None:
            raise TypeError("sparseness is missing: with together=True it is the mean, in [0, 1]")
        self.l1, self.l2 = norms_of(sparseness, l1, l2, at_most=at_most)
        self.dim = dim
        self._vectors = [vector_axes_of(dim, one.param, one.name, one.layer) for one in given]
        self.schedule = schedule
        self.together, self.floor, self.weights, self.relative = together, floor, weights, relative
        self.limit = self._limit(sparseness)
        self.every = check_count("every", every, 1)
        self.warmup = check_count("warmup", warmup, 0)
        self.only_increase = only_increase_of(only_increase, schedule)
        self.nonnegative = nonnegative
        self.check_finite = check_finite
        switches = (nonnegative, self.only_increase, check_finite, at_most)
        check_combination(sparseness, self.l1, self.l2, *switches)
        self.steps = 0
        self._many = Many()
        self._hooks: list[Any] = []
        for other in _handles(optimizer):
            if set(other._numbers) & set(self._numbers):
                warn(f"some of params are projected by {other!r} as well; the new one comes last")
        self._attach()
        self._claim()

    @property
    def sparseness(self) -> float | Tensor | None:
        """What would be asked for now; None if both norms were given instead.

        Assign to it to change the target; with a schedule this sets the largest that it gets.
        """
        if self.schedule is None or self.limit is None:
            return self.limit
        wanted = scheduled(self.schedule, max(self.steps - self.warmup, 0))
        if isinstance(self.limit, Tensor):
            return self.limit.clamp(max=wanted)
        return min(wanted, self.limit)

    @sparseness.setter
    def sparseness(self, value: Any) -> None:
        norms_of(value, self.l1, self.l2, at_most=self.at_most)
        self.limit = self._limit(value)

    def _limit(self, sparseness: Any) -> float | Tensor | None:
        """Return a target that fits the parameters and the schedule."""
        limit = None if sparseness is None else target_of(sparseness)
        for param, name, vectors in zip(self.params, self._names, self._vectors, strict=True):
            targets = (limit, self.l1, self.l2)
            check_fit(vectors, param, name, targets, self.dim, self.at_most)
        check_schedule(self.schedule, limit)
        check_shared(self, limit)
        return limit

    def project(self) -> None:
        """Project all parameters now."""
        self._project(None)

    def remove(self) -> None:
        """Leave the optimizer alone from now on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        handles = vars(self.optimizer).get(_HANDLES, [])
        if self in handles:
            handles.remove(self)
        if not handles:
            for name in (_HANDLES, "__getstate__"):
                vars(self.optimizer).pop(name, None)

    def state_dict(self) -> dict[str, Any]:
        """Return what must be kept to go on later: the number of steps."""
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another one stopped."""
        if "steps" not in state_dict:
            raise ValueError(
                "state_dict has no 'steps', as that of a ProjectAfterStep has, {'steps': 3}: got "
                f"{list(state_dict)}"
            )
        self.steps = check_count("steps", state_dict["steps"], 0)

    def __repr__(self) -> str:
        many = f"{len(self.params)} tensor{'s' if len(self.params) > 1 else ''}"
        return f"ProjectAfterStep({many}, {described(self, self.limit)}, steps={self.steps})"

    # ---- copies: they belong to the copy of the optimizer ----

    def __copy__(self) -> NoReturn:
        raise TypeError(
            "a shallow copy of a ProjectAfterStep would project twice after each step: make "
            "another one, or copy it with all it belongs to, copy.deepcopy((model, optimizer))"
        )

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_hooks": bool(self._hooks)}
        # It knows where these tensors are, not where copies will be.
        del state["_many"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._many = Many()
        self._hooks = []
        if state["_hooks"]:
            # The optimizer may not have its state yet; what is set here it will keep.
            for name in _HOOKS:
                vars(self.optimizer).setdefault(name, OrderedDict())
            self._attach()

    # ---- what the optimizer calls ----

    def _attach(self) -> None:
        self._hooks = [
            self.optimizer.register_step_post_hook(self._after_step),
            self.optimizer.register_state_dict_post_hook(self._save),
            self.optimizer.register_load_state_dict_post_hook(self._load),
        ]
        handles = vars(self.optimizer).setdefault(_HANDLES, [])
        if self not in handles:
            handles.append(self)
        # PyTorch's own `__getstate__` leaves out the hooks.
        own = functools.partial(_state_with_handles, self.optimizer)
        vars(self.optimizer)["__getstate__"] = own

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        # A GradScaler tells fused optimizers by this tensor to skip the step themselves.
        overflow: Tensor | None = getattr(optimizer, "found_inf", None)
        if overflow is not None and overflow.device.type == "cpu":
            if bool(overflow):
                return
            overflow = None
        if _is_rehearsal(optimizer):
            return
        self.steps += 1
        since = self.steps - self.warmup
        if since > 0 and since % self.every == 0:
            self._project(overflow)

    @torch.no_grad()
    def _project(self, overflow: Tensor | None) -> None:
        """Project all parameters unless `overflow`, which stays on its device, is not zero."""
        wanted = self.sparseness
        pairs = zip(self.params, self._vectors, strict=True)
        params = [vectors.split(stored) for stored, vectors in pairs]
        given = options_of(self, wanted, -1)
        distributed = any(map(is_distributed, params))
        if distributed:
            self._check_targets(params, given)
            # Numbers that one rank has must not keep it from going on with the others.
            given["check_finite"] = False
        if self.together:
            self._project_together(params, given, overflow)
            return
        left = list(range(len(params)))
        if overflow is None:
            options = Options(solver="auto", where=None, **given)
            try:
                left = self._project_many(params, options, distributed)
            except ValueError as error:
                for number in left:
                    self._explain(number, error)
                raise
        for number in left:
            param, vectors = params[number], self._vectors[number]
            arguments: dict[str, Any] = {
                name: value.to(param.device) if isinstance(value, Tensor) else value
                for name, value in given.items()
            }
            arguments["axis"] = vectors.axes
            try:
                if overflow is None and self._is_stored(number):
                    project_(param, **arguments)
                else:
                    self._write(number, project(param, **arguments), overflow)
            except ValueError as error:
                self._explain(number, error)
                raise

    def _check_targets(self, params: list[Tensor], given: dict[str, Any]) -> None:
        """Refuse targets that all ranks see to be wrong, before any of them begins."""
        from ..families.torch.distributed import check_targets  # noqa: PLC0415 - DTensors are here

        options = Options(solver="auto", where=None, **given)
        for param, vectors in zip(params, self._vectors, strict=True):
            layout = Layout(tuple(param.shape), vector_axes(vectors.axes, param.dim()))
            check_targets(layout.length, param.dtype, options)

    def _project_many(self, params: list[Tensor], options: Options, distributed: bool) -> list[int]:
        """Project what can be projected in one call; return which parameters are left."""
        if not distributed:
            return self._many.project_(params, [v.axes for v in self._vectors], options)
        from ..families.torch.distributed import whole_vectors  # noqa: PLC0415 - DTensors are here

        here: dict[int, Tensor] = {}
        if options.is_plain:
            for number, (param, vectors) in enumerate(zip(params, self._vectors, strict=True)):
                own = whole_vectors(param, vectors.axes) if self._is_stored(number) else None
                if own is not None:
                    here[number] = own
        numbers = list(here)
        axes = [self._vectors[number].axes for number in numbers]
        left = self._many.project_(list(here.values()), axes, options)
        done = set(numbers) - {numbers[i] for i in left}
        increment_version([params[number] for number in done])
        return [number for number in range(len(params)) if number not in done]

    def _write(self, number: int, result: Tensor, overflow: Tensor | None) -> None:
        """Write a result unless `overflow`, which stays on its device, is not zero."""
        stored, vectors = self.params[number], self._vectors[number]
        result = result if vectors.groups == 1 else result.flatten(0, 1)
        if overflow is not None:
            skipped = overflow.to(stored.device, non_blocking=True) != 0
            result = torch.where(alongside(stored, skipped), stored, result)
        copy_into(stored, result)

    def _is_stored(self, number: int) -> bool:
        """Whether what is projected is the parameter's own memory; see `VectorAxes.split`."""
        return self._vectors[number].groups == 1 or not is_distributed(self.params[number])

    def _project_together(
        self, params: list[Tensor], given: dict[str, Any], overflow: Tensor | None
    ) -> None:
        """Project all parameters so that their mean sparseness is as given."""
        wanted = given["sparseness"]
        in_place = overflow is None and all(map(self._is_stored, range(len(params))))
        try:
            results = project_together(
                params,
                wanted,
                l2=self.l2,
                floor=min(self.floor, float(wanted)),
                weights=self.weights,
                relative=self.relative,
                axis=[vectors.axes for vectors in self._vectors],
                nonnegative=self.nonnegative,
                only_increase=self.only_increase,
                out=params if in_place else None,
                check_finite=given["check_finite"],
            )
        except ValueError as error:
            for number in range(len(params)):
                self._explain(number, error)
            raise
        if not in_place:
            for number, result in enumerate(results):
                self._write(number, result, overflow)

    def _explain(self, number: int, error: ValueError) -> None:
        """Name the parameter that is not finite, if that is the cause of an error."""
        param = self.params[number]
        if not has_numbers(param) or bool(param.isfinite().all()):
            return
        what = "nan" if bool(param.isnan().any()) else "infinity"
        raise ValueError(
            f"{self._names[number]} of shape {tuple(param.shape)} has {what} after step "
            f"{self.steps}: training diverged (with check_finite=False such vectors become NaN)"
        ) from error

    def _save(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        group = state_dict["param_groups"][0]
        group[_KEY] = [*group.get(_KEY, []), {"params": self._numbers, **self.state_dict()}]
        return state_dict

    def _load(self, optimizer: Optimizer) -> None:
        if not self._claim():
            warn(
                f"the loaded state of the optimizer has no steps for {self!r}, which goes on "
                "counting: was it saved without it?"
            )

    def _claim(self) -> bool:
        """Take the steps that were loaded for these parameters, if they are there."""
        group = self.optimizer.param_groups[0]
        entries = group.get(_KEY, [])
        for i, entry in enumerate(entries):
            if entry["params"] == self._numbers:
                self.load_state_dict(entry)
                group[_KEY] = entries[:i] + entries[i + 1 :]
                if not group[_KEY]:
                    del group[_KEY]
                return True
        return False


def _is_rehearsal(optimizer: Optimizer) -> bool:
    """Whether PyTorch makes a step only to see which state an optimizer has.

    `torch.distributed.checkpoint.state_dict` does so before it reads or loads a state, with
    learning rate 0 and gradients 0. Users may mean such a step: so it matters who calls.
    """
    # Rates that are tensors on other devices may be 0: to look at them would wait for the device.
    rates = (group.get("lr", 0.0) for group in optimizer.param_groups)
    if any(rate != 0 for rate in rates if not isinstance(rate, Tensor) or rate.is_cpu):
        return False
    # Optimizers of others, which call the `step` of another class, may stand between.
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.distributed.checkpoint.state_dict":
            return True
        frame = frame.f_back
    return False


def _handles(optimizer: Optimizer) -> list[ProjectAfterStep]:
    """Return the handles of an optimizer.

    A shallow copy of an optimizer lists those of the other one as well.
    """
    return [one for one in vars(optimizer).get(_HANDLES, []) if one.optimizer is optimizer]


def _lacking(optimizer: Optimizer, numbers: list[int]) -> list[int]:
    """Return which of the parameters no handle projects."""
    projected = {number for handle in _handles(optimizer) for number in handle._numbers}
    return [number for number in numbers if number not in projected]


def _state_with_handles(optimizer: Optimizer) -> dict[str, Any]:
    """Return what copies and pickles of an optimizer are made of, its handles included."""
    state = type(optimizer).__getstate__(optimizer)
    return {**state, _HANDLES: list(_handles(optimizer))}


_told: WeakKeyDictionary[Optimizer, Any] = WeakKeyDictionary()
"""The loaded states without a handle that each optimizer has been warned of."""


def _before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """Warn, once, if an optimizer should project and does not."""
    _warn_of_copied(optimizer)
    groups = getattr(optimizer, "param_groups", None)
    unclaimed = groups[0].get(_KEY) if groups else None
    if unclaimed is not None and _told.get(optimizer) is not unclaimed:
        _told[optimizer] = unclaimed
        _warn_of_unclaimed(optimizer, unclaimed)


def _warn_of_copied(optimizer: Optimizer) -> None:
    """Warn if a shallow copy lists the handles of the original, and forget those."""
    handles = vars(optimizer).get(_HANDLES, [])
    strangers = [one for one in handles if one.optimizer is not optimizer]
    if not strangers:
        return
    vars(optimizer)[_HANDLES] = _handles(optimizer)
    lacking = [_lacking(optimizer, one._numbers) for one in strangers]
    if any(lacking):
        warn(
            f"this {type(optimizer).__name__} is a shallow copy of one with a ProjectAfterStep on "
            f"its parameters {'; '.join(str(one) for one in lacking if one)} (counted from 0), and "
            "has none itself: after its steps they are not projected. Copy both with the model, "
            "copy.deepcopy((model, optimizer)), or make another ProjectAfterStep(optimizer, ...)"
        )


def _warn_of_unclaimed(optimizer: Optimizer, unclaimed: list[dict[str, Any]]) -> None:
    """Warn if a state was saved with handles that are not there."""
    for entry in unclaimed:
        lacking = _lacking(optimizer, entry["params"])
        what = (
            f"there is none now on {lacking}: they are not projected"
            if lacking
            else f"its {entry['steps']} steps wait: they are projected by others now, which count "
            "anew"
        )
        warn(
            f"the state of this {type(optimizer).__name__} was saved with a ProjectAfterStep on "
            f"its parameters {entry['params']} (counted from 0), and {what}. Make it again, "
            "ProjectAfterStep(optimizer, ...) with the same parameters, and it goes on where it "
            f"was; or forget it, optimizer.param_groups[0].pop({_KEY!r})"
        )


register_optimizer_step_pre_hook(_before_step)
