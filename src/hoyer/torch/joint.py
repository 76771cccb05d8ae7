"""The parametrized tensors of a model, projected by a few calls when the model is called."""

from collections import defaultdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from ..api import project
from ..families.torch.joined import is_joinable, parts_of, project_joined, rows_together
from ..layout import vector_axes
from ..options import Options
from .modules import SparsenessProjection

_LARGEST = {"cuda": 2**24, "cpu": 2**18}
"""Bytes of a tensor from which on it is projected by itself: copying it would cost more than a
call."""

_ORDINARY = (Tensor, nn.Parameter)


class _Member(NamedTuple):
    """A tensor that is parametrized."""

    stored: Any
    """PyTorch's list of its parametrizations, which has the parameter itself."""
    projection: SparsenessProjection


class Removable:
    """What `parametrizations.at_once` returns."""

    def __init__(self, *hooks: RemovableHandle) -> None:
        self._hooks = hooks

    def remove(self) -> None:
        """Have every tensor projected by itself again."""
        for hook in self._hooks:
            hook.remove()


class _Part(NamedTuple):
    """What is projected, and onto which sparseness."""

    x: Tensor
    batch: torch.Size
    """The shape of x without the axes of its vectors."""
    sparseness: Any
    projection: SparsenessProjection


class AtOnce:
    """Hooks of a model: before its forward pass projections are made, after it forgotten."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._axes: dict[Any, tuple[int, ...]] = {}
        self.members = [
            _Member(stored, stored[0])
            for module in model.modules()
            if parametrize.is_parametrized(module)
            for stored in module.parametrizations.values()  # type: ignore[union-attr, operator]
            if isinstance(stored[0], SparsenessProjection) and hasattr(stored, "original")
        ]

    def attach(self) -> Removable:
        """Become hooks of the model."""
        before = self.model.register_forward_pre_hook(self.begin)
        return Removable(before, self.model.register_forward_hook(self.end, always_call=True))

    def begin(self, model: nn.Module, _: Any) -> None:
        """Project, and lay the results where the parametrizations look for them."""
        if model is not self.model:
            return  # a replica, whose parameters are others
        for (n, options, *_), group in self._groups().items():
            if len(group) > 1:
                _project(group, n, options)

    def end(self, model: nn.Module, *_: Any) -> None:
        """Forget the results."""
        if model is self.model:
            lay = _setter()
            for _, projection in self.members:
                lay(projection, "ready", None)

    def _batch(self, x: Any, projection: SparsenessProjection) -> torch.Size | None:
        """Return the shape of x before the axes of vectors that lie one after the other, or None.

        None is for all that goes its own way.
        """
        if type(x) not in _ORDINARY or x.nbytes > _LARGEST.get(x.device.type, 0):
            return None
        key = projection.dim, x.dim()
        axes = self._axes.get(key) or self._axes.setdefault(key, vector_axes(*key))
        first = key[1] - len(axes)
        lie_in_order = axes[0] == first and projection.groups == 1 and x.is_contiguous()
        return x.shape[:first] if lie_in_order else None

    def _groups(self) -> dict[Any, list[_Part]]:
        """Return what one call can do, by length and options, types and devices."""
        groups: dict[Any, list[_Part]] = defaultdict(list)
        for stored, projection in self.members:
            x = stored.original
            batch = self._batch(x, projection)
            if batch is None:
                continue
            options = projection.options()
            sparseness = options[0]
            by_tensors = isinstance(sparseness, Tensor)
            if by_tensors:
                if sparseness.device != x.device:
                    continue
                options = Options(None, *options[1:])
            if options.is_plain:
                n = x.shape[len(batch) :].numel()
                key = n, options, by_tensors, x.dtype, x.device
                groups[key].append(_Part(x, batch, sparseness, projection))
        return groups


def _project(group: list[_Part], n: int, options: Options) -> None:
    """Project the tensors of a group by one call, and lay down the results."""
    tensors = [part.x for part in group]
    if isinstance(group[0].sparseness, Tensor):
        targets = (part.sparseness.expand(part.batch).reshape(-1) for part in group)
        options = Options(torch.cat(list(targets)), *options[1:])
    if is_joinable(tensors[0]):
        try:
            values = project_joined(tensors, n, options)
        except ValueError:
            return  # one by one they say which of them is wrong
    else:
        values = parts_of(project(rows_together(tensors, n), **options._asdict()), tensors, n)
    lay = _setter()
    for part, value in zip(group, values, strict=True):
        lay(part.projection, "ready", (part.x, value))


def _setter() -> Any:
    """Return how attributes of modules are set, which takes `nn.Module` longer than all the rest.

    PyTorch's compiler follows the ordinary way only.
    """
    return setattr if torch.compiler.is_compiling() else object.__setattr__
