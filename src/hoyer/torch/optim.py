"""`ProjectAfterStep`: projected gradient descent with any optimizer."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..api import project_
from ..options import Axis

_KEY = "hoyer_project_after_step"


class ProjectAfterStep:
    """Project parameters onto a sparseness after steps of an optimizer.

    The optimizer is used as before; whoever calls its ``step`` (a training loop, an AMP
    ``GradScaler``, which skips it after an overflow) also triggers the projection.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer whose steps count.
    params : Tensor or iterable of Tensor
        Which of its parameters are projected.
    sparseness : float or Tensor
        Target sparseness; with a schedule the largest that it may ask for.
    dim : int, tuple of int or None
        The axes that form a vector, as `axis` in `hoyer.project`.
    l2 : float, "keep" or "nearest", default "keep"
        The norm of the projected vectors.
    every : int, default 1
        Project after each step whose number, counted from the warm-up, this divides.
    warmup : int, default 0
        Steps at the beginning after which nothing is projected.
    schedule : callable, optional
        From the number of steps since the warm-up (1 for the first) to the sparseness asked for;
        see `hoyer.torch.schedules`.
    nonnegative : bool, default False
        As in `hoyer.project`.
    only_increase : bool, optional
        As in `hoyer.project`; by default True with a schedule, so that what is sparser than the
        schedule asks for stays so, and False without.

    Attributes
    ----------
    steps : int
        How many steps of the optimizer were seen. It travels in the optimizer's ``state_dict``.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import ProjectAfterStep
    >>> layer = torch.nn.Linear(50, 4)
    >>> optimizer = torch.optim.Adam(layer.parameters())
    >>> handle = ProjectAfterStep(optimizer, layer.weight, 0.85, dim=1)
    >>> layer(torch.ones(50)).sum().backward()
    >>> optimizer.step()
    >>> hoyer.sparseness(layer.weight.detach()).round(decimals=4)
    tensor([0.8500, 0.8500, 0.8500, 0.8500])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        params: Tensor | Iterable[Tensor],
        sparseness: float | Tensor,
        *,
        dim: Axis,
        l2: Any = "keep",
        every: int = 1,
        warmup: int = 0,
        schedule: Callable[[int], float] | None = None,
        nonnegative: bool = False,
        only_increase: bool | None = None,
    ) -> None:
        self.params = [params] if isinstance(params, Tensor) else list(params)
        _check(optimizer, self.params, sparseness, every, warmup)
        self.limit = sparseness
        self.dim = dim
        self.l2 = l2
        self.every = every
        self.warmup = warmup
        self.schedule = schedule
        self.nonnegative = nonnegative
        self.only_increase = schedule is not None if only_increase is None else only_increase
        self.steps = 0
        self._place = sum(
            1 for hook in optimizer._optimizer_step_post_hooks.values() if _ours(hook)
        )
        self._hooks = [
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._save),
            optimizer.register_load_state_dict_pre_hook(self._load),
        ]

    @property
    def sparseness(self) -> float | Tensor:
        """What would be asked for now."""
        if self.schedule is None:
            return self.limit
        wanted = self.schedule(max(self.steps - self.warmup, 0))
        if isinstance(self.limit, Tensor):
            return self.limit.clamp(max=wanted)
        return min(wanted, self.limit)

    @torch.no_grad()
    def project(self) -> None:
        """Project all parameters now."""
        for param in self.params:
            project_(
                param,
                self.sparseness,
                l2=self.l2,
                axis=self.dim,
                nonnegative=self.nonnegative,
                only_increase=self.only_increase,
            )

    def remove(self) -> None:
        """Leave the optimizer alone from now on."""
        for hook in self._hooks:
            hook.remove()

    def state_dict(self) -> dict[str, Any]:
        """Return what must be kept to go on later: the number of steps."""
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where another one stopped."""
        self.steps = int(state_dict["steps"])

    # ---- what the optimizer calls ----

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self.steps += 1
        since = self.steps - self.warmup
        if since > 0 and since % self.every == 0:
            self.project()

    def _save(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        state_dict.setdefault(_KEY, {})[self._place] = self.state_dict()
        return state_dict

    def _load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
        saved = state_dict.get(_KEY, {}).get(self._place)
        if saved is not None:
            self.load_state_dict(saved)


def _ours(hook: Any) -> bool:
    return isinstance(getattr(hook, "__self__", None), ProjectAfterStep)


def _check(
    optimizer: Optimizer, params: list[Tensor], sparseness: Any, every: int, warmup: int
) -> None:
    if not params:
        raise ValueError("params is empty: there is nothing to project")
    known = {id(param) for group in optimizer.param_groups for param in group["params"]}
    for number, param in enumerate(params):
        if not isinstance(param, Tensor):
            raise TypeError(f"params[{number}] is of type {type(param).__name__}, not a tensor")
        if id(param) not in known:
            raise ValueError(
                f"params[{number}], of shape {tuple(param.shape)}, is no parameter of the optimizer"
            )
    if every < 1 or warmup < 0:
        raise ValueError(f"every={every} must be at least 1, and warmup={warmup} at least 0")
    target = torch.as_tensor(sparseness)
    if not bool(((target >= 0) & (target <= 1)).all()):
        raise ValueError(f"sparseness must lie in [0, 1], got {sparseness!r}")
