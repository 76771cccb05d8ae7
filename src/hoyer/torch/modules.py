"""`SparsenessProjection`: the projection as a layer."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..api import project
from ..options import Axis
from .arguments import (
    array_of,
    axes_of,
    check_switches,
    constant,
    has_numbers,
    norm_of,
    shown,
    target_of,
)

_LEAST = 1e-4
"""A learnable sparseness stays this far from 0 and 1, where the sigmoid has a slope still."""
_LARGEST_LOGIT = math.log((1 - _LEAST) / _LEAST)


class SparsenessProjection(nn.Module):
    """Project vectors onto a chosen sparseness: an activation with sparse activity.

    Parameters
    ----------
    sparseness : float, array_like or Tensor
        Target sparseness in [0, 1], one for all vectors or one for each (whatever broadcasts to the
        input's shape without `dim`). Several numbers are kept as the buffer `target`; a single one
        is a setting like the ``p`` of ``nn.Dropout``, which is not in the ``state_dict``.
    dim : int, tuple of int or None, default -1
        The axes that form a vector (`axis` in `hoyer.project`); None takes the whole input as one.
    l2 : float, Tensor, "keep" or "nearest", default "keep"
        The norm of the result, as in `hoyer.project` (whose default is 1). A tensor becomes a
        buffer, an ``nn.Parameter`` a parameter. "keep" is the norm of all of x: together with
        `nonnegative` its negative entries count, though they come out as zero.
    nonnegative, only_increase : bool, default False
        As in `hoyer.project`.
    learnable : bool, default False
        Whether the sparseness is a parameter. It is stored as `logit` and kept between 0.0001 and
        0.9999, whatever an optimizer does to it. Weight decay pulls it to 0.5: put `logit` into a
        param group with ``weight_decay=0``.
    check_finite : bool, default True
        As in `hoyer.project`: if False, vectors with NaN or infinity come out as NaN.

    Notes
    -----
    Entries that come out as zero get no gradient. A target that is high from the beginning can so
    leave units behind that never learn: start low and raise it, by assigning to `sparseness`.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import SparsenessProjection
    >>> layer = torch.nn.Sequential(torch.nn.Linear(20, 50), SparsenessProjection(0.8))
    >>> hoyer.sparseness(layer(torch.ones(3, 20)).detach()).round(decimals=4)
    tensor([0.8000, 0.8000, 0.8000])
    >>> layer[1].sparseness = 0.9
    >>> layer[1]
    SparsenessProjection(sparseness=0.9, dim=-1, l2='keep')
    """

    logit: Tensor | None
    target: Tensor | None

    def __init__(
        self,
        sparseness: Any,
        dim: Axis = -1,
        *,
        l2: Any = "keep",
        nonnegative: bool = False,
        only_increase: bool = False,
        learnable: bool = False,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        check_switches(nonnegative, only_increase, check_finite)
        self.dim = axes_of(dim)
        self.nonnegative = nonnegative
        self.only_increase = only_increase
        self.learnable = learnable
        self.check_finite = check_finite
        norm = norm_of(l2)
        if isinstance(norm, Tensor) and not isinstance(norm, nn.Parameter):
            self.register_buffer("l2", norm.detach().clone())
        else:
            self.l2 = norm
        self._number: float | None = None
        self.register_buffer("target", None)
        self.register_parameter("logit", None)
        if learnable:
            self.logit = nn.Parameter(_logit(target_of(sparseness)))
        else:
            self._set_constant(sparseness)

    @property
    def sparseness(self) -> float | Tensor:
        """The target as it is now: a number, or a tensor that can be differentiated.

        Assign to it to change it; of a learnable one this sets the logit.
        """
        if self.logit is not None:
            return _sigmoid(self.logit)
        return self.target if self._number is None else self._number  # type: ignore[return-value]

    @sparseness.setter
    def sparseness(self, value: Any) -> None:
        if self.logit is None:
            self._set_constant(value)
        else:
            logit = _logit(target_of(value)).to(self.logit)
            with torch.no_grad():
                self.logit.copy_(logit.expand_as(self.logit))

    def _set_constant(self, value: Any) -> None:
        given = constant(value)
        if isinstance(given, Tensor):
            self._number, self.target = None, given.detach().clone()
        else:
            self._number, self.target = given, None

    def forward(self, x: Tensor) -> Tensor:
        """Return x with every vector projected."""
        return project(
            x,
            self.sparseness,
            l2=self.l2,
            axis=self.dim,
            nonnegative=self.nonnegative,
            only_increase=self.only_increase,
            check_finite=self.check_finite,
        )

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return what is stored when `value` is assigned to a parametrized tensor: itself."""
        return value

    def extra_repr(self) -> str:
        """Say what was asked for."""
        words = [
            f"sparseness={shown(self.sparseness)}",
            f"dim={self.dim}",
            f"l2={shown(self.l2)}",
        ]
        words += [
            f"{name}=True"
            for name in ("nonnegative", "only_increase", "learnable")
            if getattr(self, name)
        ]
        return ", ".join(words + ([] if self.check_finite else ["check_finite=False"]))


def _logit(sparseness: float | Tensor) -> Tensor:
    """Return where the sigmoid has these values, in the default type."""
    dtype = torch.get_default_dtype()
    if isinstance(sparseness, Tensor) and not has_numbers(sparseness):
        return torch.empty_like(sparseness, dtype=dtype)
    device = sparseness.device if isinstance(sparseness, Tensor) else None
    numbers = np.float64(array_of(sparseness))
    if not ((numbers >= _LEAST) & (numbers <= 1 - _LEAST)).all():
        raise ValueError(
            f"sparseness={sparseness!r}: a learnable sparseness must start inside (0, 1), between "
            f"{_LEAST:g} and {1 - _LEAST:g}"
        )
    return torch.tensor(np.log(numbers / (1 - numbers)), dtype=dtype, device=device)


def _sigmoid(logit: Tensor) -> Tensor:
    """Return the sparseness that a logit stands for.

    Far out, where the sigmoid is flat, the value stays and so does the slope: what an optimizer
    drove there can come back. Half types could not tell 0.999 from 1.
    """
    wide = logit.float() if logit.dtype in (torch.float16, torch.bfloat16) else logit
    value = wide.detach()
    return torch.sigmoid(value.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT) + (wide - value))
