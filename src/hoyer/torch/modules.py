"""`SparsenessProjection`: the projection as a layer."""

from typing import Any

import torch
from torch import Tensor, nn

from ..api import project
from ..options import Axis


class SparsenessProjection(nn.Module):
    """Project vectors onto a chosen sparseness: an activation with sparse activity.

    Parameters
    ----------
    sparseness : float or Tensor
        Target sparseness in [0, 1], one for all vectors or one for each (a tensor that broadcasts
        to the input's shape without `dim`).
    dim : int, tuple of int or None, default -1
        The axes that form a vector; None takes the whole input as one.
    l2 : float, "keep" or "nearest", default "keep"
        The norm of the result, as in `hoyer.project`.
    nonnegative, only_increase : bool, default False
        As in `hoyer.project`.
    learnable : bool, default False
        Whether the sparseness is a parameter. It is stored as `logit` and kept inside (0, 1),
        whatever an optimizer does to it.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import SparsenessProjection
    >>> layer = torch.nn.Sequential(torch.nn.Linear(20, 50), SparsenessProjection(0.8))
    >>> hoyer.sparseness(layer(torch.ones(3, 20)).detach()).round(decimals=4)
    tensor([0.8000, 0.8000, 0.8000])
    """

    logit: Tensor | None

    def __init__(
        self,
        sparseness: float | Tensor,
        dim: Axis = -1,
        *,
        l2: Any = "keep",
        nonnegative: bool = False,
        only_increase: bool = False,
        learnable: bool = False,
    ) -> None:
        super().__init__()
        given = torch.as_tensor(sparseness, dtype=torch.get_default_dtype() if learnable else None)
        low, high = (0.0, 1.0)
        if not bool(((given >= low) & (given <= high)).all()):
            raise ValueError(f"sparseness must lie in [0, 1], got {sparseness!r}")
        if learnable and not bool(((given > low) & (given < high)).all()):
            raise ValueError(
                f"sparseness={sparseness!r}: a learnable sparseness must start inside (0, 1)"
            )
        self.dim = dim
        self.l2 = l2
        self.nonnegative = nonnegative
        self.only_increase = only_increase
        self.learnable = learnable
        self._number: float | None = None
        if learnable:
            self.logit = nn.Parameter(torch.logit(given.detach().clone()))
        else:
            self.logit = None
            if isinstance(sparseness, Tensor) and sparseness.dim() > 0:
                self.register_buffer("_each", given.detach().clone())
            else:
                self._number = float(sparseness)

    @property
    def sparseness(self) -> float | Tensor:
        """The target as it is now: a number, or a tensor that can be differentiated."""
        if self.logit is not None:
            tiny = torch.finfo(self.logit.dtype).eps
            return torch.sigmoid(self.logit).clamp(tiny, 1 - tiny)
        if self._number is not None:
            return self._number
        each: Tensor = self.get_buffer("_each")
        return each

    def forward(self, x: Tensor) -> Tensor:
        """Return x with every vector projected."""
        return project(
            x,
            self.sparseness,
            l2=self.l2,
            axis=self.dim,
            nonnegative=self.nonnegative,
            only_increase=self.only_increase,
        )

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return what is stored when `value` is assigned to a parametrized tensor: itself."""
        return value

    def extra_repr(self) -> str:
        """Say what was asked for."""
        target = self.sparseness
        if isinstance(target, Tensor):
            shown = (
                f"{float(target.detach()):.4g}" if target.dim() == 0 else f"{tuple(target.shape)}"
            )
        else:
            shown = f"{target:g}"
        words = [f"sparseness={shown}", f"dim={self.dim}", f"l2={self.l2!r}"]
        words += [
            f"{name}=True"
            for name in ("nonnegative", "only_increase", "learnable")
            if getattr(self, name)
        ]
        return ", ".join(words)
