"""`SparsenessProjection`: the projection as a layer."""

import math
import threading
from collections.abc import Iterable
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.exceptions import AxisError
from torch import Tensor, nn

from ..api import project, solve
from ..options import Axis, Options
from ..warn import warn
from .arguments import (
    VectorAxes,
    array_of,
    axes_of,
    check_combination,
    copy_into,
    described,
    dim_not_axis,
    has_numbers,
    norms_of,
    target_of,
)

_LEAST = 1e-4
"""A learnable sparseness stays this far from 0 and 1, so that the sigmoid keeps a slope."""
_LARGEST_LOGIT = math.log((1 - _LEAST) / _LEAST)
_top_saved_hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


class Ready(NamedTuple):
    """A projection that was made before it is asked for: see `joint`."""

    x: Tensor
    value: Tensor
    state: tuple[Any, ...]
    """Who may have it: what `state_of_call` says."""
    settings: tuple[Any, ...]
    """What `SparsenessProjection._settings` says."""
    settled: tuple[Any, ...]
    """What x and the tensors of the target were: what `settled` says; nothing in compiled code."""
    version: int
    """How often the value had been changed."""


def state_of_call() -> tuple[Any, ...] | None:
    """Return what one part of a forward pass may have otherwise than the next.

    That is whether gradients are wanted, and by whom what they need is kept: checkpoints keep
    nothing, and compute it again. Compiled code and eager code take nothing from each other.
    None if nobody can tell: PyTorch does not say who keeps what before 2.8.
    """
    if torch.compiler.is_compiling():
        return "compiled", torch.is_grad_enabled()
    if _top_saved_hooks is None:
        return None
    return (
        threading.get_ident(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        _top_saved_hooks(True),
    )


def settled(x: Tensor, settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the state of x and of the tensors of its target, so that changes are noticed."""
    stream = torch._C._cuda_getCurrentRawStream(x.get_device()) if x.is_cuda else 0
    logit, target = settings[:2]
    if logit is target is None:
        address = x.data_ptr() if torch._C._has_storage(x) else 0
        return x._version, address, x.requires_grad, stream
    return *map(_state_of, (x, logit, target)), stream


def same_objects(some: Iterable[Any], others: Iterable[Any]) -> bool:
    """Whether these are the very same objects, one by one."""
    return all(map(is_, some, others))


class SparsenessProjection(nn.Module):
    """Project vectors onto a chosen sparseness, or onto chosen norms: a sparse activation.

    Parameters
    ----------
    sparseness : float, array_like or Tensor
        Target sparseness in [0, 1], one for all vectors or one for each (anything that broadcasts
        to the input's shape without `dim`). Several numbers are stored as the buffer `target`; a
        single number is a setting like the ``p`` of ``nn.Dropout`` and not part of the
        ``state_dict``. It may be omitted if l1 is given, alone or with l2.
    dim : int, tuple of int or None, default -1
        The axes that form a vector (`axis` in `hoyer.project`); None treats the whole input as one.
    l1, l2 : float, Tensor, or for l2 "keep" or "nearest", optional
        The norm of the result, as in `hoyer.project`: at most one with a sparseness; without it,
        both or l1 alone (which, with `nonnegative`, means the simplex of vectors that sum to l1).
        If neither is given, ``l2="keep"`` is used (in `hoyer.project`, 1). A tensor becomes a
        buffer, an ``nn.Parameter`` a parameter that is learned. "keep" means the norm of all of x:
        with `nonnegative`, its negative entries count, although they come out as zero.
    nonnegative, only_increase, at_most : bool, default False
        As in `hoyer.project`.
    learnable : bool, default False
        Whether the sparseness is a parameter. It is stored as `logit`, which has at least one axis,
        as FSDP2 requires, and stays between 0.0001 and 0.9999, whatever an optimizer does to it.
        Weight decay pulls it towards 0.5: put `logit` into a param group with ``weight_decay=0``.
    check_finite : bool, default True
        As in `hoyer.project`: if False, vectors with NaN or infinity come out as NaN.

    Attributes
    ----------
    groups : int
        1, except for the weights of transposed convolutions with groups: the first axis is split
        into this many parts before the axes of `dim` are counted.

    Notes
    -----
    Entries that come out as zero get no gradient. With a target that is high from the beginning,
    some units may therefore never learn: start low and raise it by assigning to `sparseness`.

    Attention weights are vectors on the simplex. To make most of them exactly zero, use
    ``SparsenessProjection(l1=1.0, nonnegative=True)`` in place of a softmax. `forward` accepts
    padding as a mask.

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

    Attention over sequences of three tokens and of one, padded to three:

    >>> attend = SparsenessProjection(l1=1.0, nonnegative=True)
    >>> scores = torch.tensor([[1.0, 0.5, -1.0], [2.0, 9.0, 9.0]])
    >>> attend(scores, where=torch.tensor([[True, True, True], [True, False, False]]))
    tensor([[0.7500, 0.2500, 0.0000],
            [1.0000, 0.0000, 0.0000]])
    """

    l1: Any
    l2: Any
    logit: Tensor | None
    target: Tensor | None
    at_most = False
    _is_single = False
    """Whether the logit, though it has an axis, stands for one number."""
    tensor_name = ""
    """What a parametrization projects, as in "weight of Linear", where that is known."""
    _ready: Ready | None = None
    """What was made at once for a whole model."""

    @dim_not_axis
    def __init__(
        self,
        sparseness: Any = None,
        dim: Axis = -1,
        *,
        l1: Any = None,
        l2: Any = None,
        nonnegative: bool = False,
        only_increase: bool = False,
        at_most: bool = False,
        learnable: bool = False,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        check_combination(sparseness, l1, l2, nonnegative, only_increase, check_finite, at_most)
        self.dim = axes_of(dim)
        self.nonnegative = nonnegative
        self.only_increase = only_increase
        self.at_most = at_most
        self.learnable = learnable
        self.check_finite = check_finite
        self.groups = 1
        norms = norms_of(sparseness, l1, l2, at_most=at_most)
        for name, norm in zip(("l1", "l2"), norms, strict=True):
            if isinstance(norm, Tensor) and not isinstance(norm, nn.Parameter):
                self.register_buffer(name, norm.detach().clone())
            else:
                setattr(self, name, norm)
        self._number: float | None = None
        self.register_buffer("target", None)
        self.register_parameter("logit", None)
        if learnable and sparseness is None:
            raise ValueError(
                "learnable=True is for a sparseness, and there is none; to learn a norm pass it as "
                "an nn.Parameter"
            )
        if learnable:
            logit = _logit(target_of(sparseness))
            self._is_single = logit.dim() == 0
            self.logit = nn.Parameter(logit.reshape(1) if self._is_single else logit)
        elif sparseness is not None:
            self._set_constant(sparseness)

    @property
    def sparseness(self) -> float | Tensor | None:
        """The target as it is now: a number, or a tensor that can be differentiated.

        Assign to it to change it; of a learnable one this sets the logit. None if norms were given
        instead.
        """
        if self.logit is not None:
            sparseness = _sigmoid(self.logit)
            return _as_number(sparseness) if self._is_single else sparseness
        return self.target if self._number is None else self._number

    @sparseness.setter
    def sparseness(self, value: Any) -> None:
        self._check_sparseness(value)
        self._ready = None
        if self.logit is None:
            self._set_constant(value)
        else:
            logit = _logit(target_of(value)).to(self.logit)
            with torch.no_grad():
                copy_into(self.logit, logit.expand(self.logit.shape))

    def _check_sparseness(self, value: Any) -> None:
        """Refuse a sparseness that does not go with the norms and switches that there are."""
        switches = (self.nonnegative, self.only_increase, self.check_finite, self.at_most)
        check_combination(value, self.l1, self.l2, *switches)
        norms_of(value, self.l1, self.l2)

    def _set_constant(self, value: Any) -> None:
        if isinstance(value, Tensor) and value.requires_grad:
            raise ValueError(
                "sparseness requires grad: pass learnable=True (it is then kept as a logit)"
            )
        given = target_of(value)
        if isinstance(given, Tensor) and (given.dim() > 0 or not has_numbers(given)):
            self._number, self.target = None, given.detach().clone()
        else:
            self._number, self.target = float(given), None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load; states that were saved before every logit had an axis as well."""
        logit = state_dict.get(f"{prefix}logit")
        if self._is_single and isinstance(logit, Tensor) and logit.dim() == 0:
            state_dict[f"{prefix}logit"] = logit.reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """Return x with every vector projected.

        Parameters
        ----------
        x : Tensor
            The vectors.
        where : Tensor of bool, optional
            Which entries form them, as in `hoyer.project`: the others (padding, say) come out as
            zero, whatever they are. It broadcasts to the shape of x.
        """
        value = self._made_before(x) if where is None else None
        if value is not None:
            return value
        try:
            options = self._options(self.dim, self._mask(x, where))
            projected: Tensor = project(self._split(x), **options._asdict())
        except AxisError as error:
            # What is axis there is dim here.
            raise AxisError(str(error).replace("axis=", "dim=", 1)) from None
        except ValueError as error:
            if not self.tensor_name:
                raise
            raise ValueError(f"{self.tensor_name} of shape {tuple(x.shape)}: {error}") from error
        return projected if self.groups == 1 else projected.flatten(0, 1)

    def right_inverse(self, value: Tensor) -> Tensor:
        """Return what is stored when `value` is assigned to a parametrized tensor: itself."""
        self._warn_of_lost(value)
        return value

    def _split(self, x: Tensor) -> Tensor:
        return VectorAxes(self.dim, self.groups).split(x)

    def _mask(self, x: Tensor, where: Tensor | None) -> Tensor | None:
        """Return a mask of x as one of what `_split` makes of it."""
        return where if self.groups == 1 or where is None else self._split(where.expand(x.shape))

    def _made_before(self, x: Tensor) -> Tensor | None:
        """Return the projection of x if it was made before, and nothing has changed since."""
        ready = self._ready  # another thread may take it away
        if ready is None or ready.x is not x or ready.state != state_of_call():
            return None
        if torch.compiler.is_compiling():
            return ready.value  # it cannot be made to depend on such numbers as below
        same = (
            ready.value._version == ready.version
            and same_objects(ready.settings, self._settings())
            and ready.settled == settled(x, ready.settings)
        )
        return ready.value if same else None

    def _settings(self) -> tuple[Any, ...]:
        """Return all that a projection depends on but x: the tensors of the target first."""
        # Not as attributes, for which `nn.Module` looks in three places.
        own = self.__dict__
        return (
            own["_parameters"]["logit"],
            own["_buffers"]["target"],
            own["_number"],
            own.get("l1", _ELSEWHERE),
            own.get("l2", _ELSEWHERE),
            own["dim"],
            own["groups"],
            own["nonnegative"],
            own["only_increase"],
            self.at_most,
            own["check_finite"],
        )

    def _changes_unnoticed(self, x: Tensor) -> bool:
        """Whether x or the target may change without a count of it, as inference tensors do."""
        return any(t is not None and t.is_inference() for t in (x, *self._settings()[:2]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to one call of a model."""
        state = self.__dict__.copy()
        state.pop("_ready", None)
        return state

    def _options(self, axis: Axis = -1, where: Tensor | None = None) -> Options:
        """Return what is asked of vectors along an axis."""
        return Options(
            self.sparseness,
            self.l1,
            self.l2,
            axis,
            self.nonnegative,
            self.only_increase,
            "auto",
            self.check_finite,
            self.at_most,
            where,
        )

    @torch.no_grad()
    def _warn_of_lost(self, value: Tensor) -> None:
        """Warn of weights at which the projection has no derivative: they would never move."""
        if not has_numbers(value):
            return
        found = solve(
            self._split(value), **self._options(self.dim)._asdict() | {"check_finite": False}
        )
        # Within bounds zero is a vector like others, unless it has no positive entry.
        lost = (found.l2 == 0) & (self.nonnegative or not self.at_most)
        if not isinstance(self.l2, str) or self.l2 == "keep":
            # With "nearest" the norm still depends on x. Where only signs are a choice there is a
            # scale, and derivatives.
            lost = lost | (~found.unique & (found.scale == 0))
        if lost.any():
            how = (
                "have no positive entry"
                if self.at_most
                else "are zero, or have largest entries of the same size"
            )
            warn(
                f"{int(lost.sum())} of {lost.numel()} vectors of "
                f"{self.tensor_name or 'a parametrized tensor'} of shape {tuple(value.shape)} "
                f"{how}: no gradient turns them into another direction, so training leaves them as "
                "they are; fill them with random numbers, as torch.nn.init does"
            )

    def extra_repr(self) -> str:
        """Return the settings, for display."""
        return described(self, self.sparseness)


def _logit(sparseness: float | Tensor) -> Tensor:
    """Return the logit of a sparseness, in the default type."""
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


_ELSEWHERE = object()
"""In place of a norm that has become a parameter or a buffer."""


def _state_of(given: Tensor | None) -> tuple[Any, ...] | None:
    """Return what tells a tensor, as it is now, from others and from itself earlier or later."""
    if given is None:
        return None
    return (
        id(given),
        given._version if not given.is_inference() else -1,
        given.data_ptr() if torch._C._has_storage(given) else 0,
        given.requires_grad,
    )


def _as_number(one: Tensor) -> Tensor:
    """Return a tensor of one entry without its axis."""
    # Of a DTensor the axis may be one that ranks share.
    return one.reshape(()) if has_numbers(one) else one.sum()


def _sigmoid(logit: Tensor) -> Tensor:
    """Return the sparseness that a logit stands for.

    Far out, where the sigmoid is flat, the value stays and so does the slope: what an optimizer
    drove there can come back. Half types could not tell 0.999 from 1.
    """
    wide = logit.float() if logit.dtype in (torch.float16, torch.bfloat16) else logit
    value = wide.detach()
    return torch.sigmoid(value.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT) + (wide - value))
