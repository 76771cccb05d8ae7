"""The parametrized tensors of a model, projected by a few calls when the model is called."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from ..api import project
from ..families.torch.joined import is_joinable, parts_of, project_joined, rows_together
from ..layout import vector_axes
from ..options import Options
from ..target import without_axes
from .modules import Ready, SparsenessProjection, same_objects, settled, state_of_call

_LARGEST = {"cuda": 2**24, "cpu": 2**18}
"""Bytes beyond which a tensor is projected by itself: copying it would cost more than a call."""
_TOGETHER = 4
"""So many of the largest are projected by one call, which needs memory for all of them."""

_ORDINARY = (Tensor, nn.Parameter)


class _Member(NamedTuple):
    """A tensor that is parametrized, and whose vectors are its last axes."""

    lists: Any
    """All parametrizations of its module, by the names of tensors."""
    name: str
    stored: Any
    """PyTorch's list of its parametrizations, which has the parameter itself."""
    projection: SparsenessProjection
    dim: Any
    """That of the projection, and how many axes the tensor had, when this was looked at."""
    ndim: int
    first: int
    """Which axis is the first of its vectors."""


class _Part(NamedTuple):
    """What is projected, and onto which sparseness."""

    number: int
    """Which member it is of."""
    x: Tensor
    batch: torch.Size
    """The shape of x without the axes of its vectors."""
    sparseness: Any
    projection: SparsenessProjection
    settings: tuple[Any, ...]
    """Those of the projection; none in compiled code, which looks at them by itself."""

    @property
    def fits(self) -> bool:
        """Whether the sparseness is that of these vectors."""
        if not isinstance(self.sparseness, Tensor):
            return True
        shape = self._shape_of_targets()
        sizes = zip(reversed(shape), reversed(self.batch), strict=False)
        return len(shape) <= len(self.batch) and all(size in {1, of} for size, of in sizes)

    @property
    def targets(self) -> Tensor:
        """The sparseness of every vector, where it is a tensor."""
        shape = self._shape_of_targets()
        targets: Tensor = self.sparseness.reshape(shape).expand(self.batch).reshape(-1)
        return targets

    def _shape_of_targets(self) -> tuple[int, ...]:
        axes = tuple(range(len(self.batch), self.x.dim()))
        return without_axes(tuple(self.sparseness.shape), len(self.batch), axes)


class _Batch(NamedTuple):
    """What one call takes."""

    n: int
    options: Options
    parts: list[_Part]


class _Seen(NamedTuple):
    """Members as they are now."""

    tensors: list[Any]
    """Each with its settings; None where it is not a parametrization any longer."""
    objects: list[Any]
    values: list[Any]
    """What decides which of them go together: the very same objects, and equal values."""


class _Known(NamedTuple):
    """Which members went together, but no tensors, which would live on."""

    objects: list[Any]
    values: list[Any]
    batches: list[tuple[int, Options, list[tuple[int, torch.Size]]]]
    """Length and options, and of each member its number and its shape without axes of vectors."""

    def holds_for(self, seen: _Seen) -> bool:
        """Whether the same members go together again."""
        return self.values == seen.values and same_objects(self.objects, seen.objects)


class Removable:
    """What `parametrizations.at_once` returns."""

    def __init__(self, hooks: "AtOnce", *handles: RemovableHandle) -> None:
        self._hooks: AtOnce | None = hooks
        self._handles = handles

    def remove(self) -> None:
        """Have every tensor projected by itself again."""
        for handle in self._handles:
            handle.remove()
        if self._hooks is not None:
            self._hooks.forget()
            self._hooks = None  # they hold the tensors of the model


class AtOnce:
    """Hooks of a model: before its forward pass projections are made, after it forgotten."""

    def __init__(self, model: nn.Module) -> None:
        # (Not the model itself, which would be kept alive by its own hooks.)
        self.found = False
        """Whether there is any tensor that `SparsenessProjection` parametrizes."""
        self.members = list(self._members(model))
        self._known: _Known | None = None
        """What went together in the call before."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is soon found again."""
        return self.__dict__ | {"_known": None}

    def _members(self, model: nn.Module) -> Iterator[_Member]:
        for module in model.modules():
            if not parametrize.is_parametrized(module):
                continue
            lists: Any = module.parametrizations
            for name, stored in lists.items():
                projection = stored[0]
                self.found |= any(isinstance(part, SparsenessProjection) for part in stored)
                if isinstance(projection, SparsenessProjection) and hasattr(stored, "original"):
                    ndim = stored.original.dim()
                    if projection.groups > 1:
                        continue
                    axes = vector_axes(projection.dim, ndim)
                    if axes[0] == ndim - len(axes):
                        yield _Member(
                            lists, name, stored, projection, projection.dim, ndim, axes[0]
                        )

    def attach(self, model: nn.Module) -> Removable:
        """Become hooks of the model, in place of any that it has."""
        self.forget()
        # (Those of a copy of a model have nobody who could remove them.)
        for hooks in (model._forward_pre_hooks, model._forward_hooks):
            for key in [k for k, h in hooks.items() if isinstance(_owner(h), AtOnce)]:
                _owner(hooks.pop(key)).forget()
                model._forward_hooks_always_called.pop(key, None)
        before = model.register_forward_pre_hook(self.begin)
        after = model.register_forward_hook(self.end, always_call=True)
        return Removable(self, before, after)

    def begin(self, model: nn.Module, _: Any) -> None:
        """Project, and lay the results where the parametrizations look for them."""
        if _is_replica(model):
            return
        state = state_of_call()
        if state is None:
            return
        with _counting_changes():
            for batch in self._batches():
                _project(batch, state)

    def end(self, model: nn.Module, *_: Any) -> None:
        """Forget the results."""
        if not _is_replica(model):
            self.forget()

    def forget(self) -> None:
        """Have parametrizations look for nothing."""
        lay = _setter()
        for member in self.members:
            lay(member.projection, "_ready", None)

    def _batches(self) -> list[_Batch]:
        """Return what is projected together; as in the call before, if nothing else has changed."""
        if torch.compiler.is_compiling():
            return list(self._batches_anew())
        seen, known = self._seen(), self._known
        if known is None or not known.holds_for(seen):
            batches = list(self._batches_anew())
            places = [(b.n, b.options, [(p.number, p.batch) for p in b.parts]) for b in batches]
            self._known = _Known(seen.objects, seen.values, places)
            return batches
        return [
            _Batch(n, options, [self._part(number, batch, seen) for number, batch in places])
            for n, options, places in known.batches
        ]

    def _part(self, number: int, batch: torch.Size, seen: _Seen) -> _Part:
        """Return the part that a member is again."""
        projection = self.members[number].projection
        x, settings = seen.tensors[number]
        sparseness = settings[2]
        if settings[0] is not None or settings[1] is not None:
            sparseness = projection.sparseness
        return _Part(number, x, batch, sparseness, projection, settings)

    def _seen(self) -> _Seen:
        """Look at all that `_batches_anew` looks at, but for what members are."""
        seen = _Seen([], [], [torch.is_grad_enabled()])
        objects, values = seen.objects, seen.values
        for member in self.members:
            if member.lists._modules.get(member.name) is not member.stored:
                seen.tensors.append(None)
                objects.append(None)
                continue
            x = member.stored.original
            settings = member.projection._settings()
            seen.tensors.append((x, settings))
            objects += type(x), settings[0] is None, settings[1] is None, *settings[2:]
            if type(x) in _ORDINARY:
                values += x.shape, x.device, x.dtype, x.requires_grad, x.is_contiguous()
                values.append(x.is_inference())
            for given in settings[:2]:
                if given is not None:
                    values += given.shape, given.device, given.requires_grad
                    values.append(given.is_inference())
        return seen

    def _batches_anew(self) -> Iterator[_Batch]:
        """Find what is projected together."""
        for (n, options, *_), group in self._groups().items():
            for alike in _alike(group):
                for some in _divided(alike):
                    if len(some) > 1:
                        yield _Batch(n, options, some)

    def _groups(self) -> dict[Any, list[_Part]]:
        """Return what goes together but for its sparseness, by length, options, types, devices.

        Those with a gradient are apart from those without, which would get one.
        """
        groups: dict[Any, list[_Part]] = defaultdict(list)
        compiling = torch.compiler.is_compiling()
        for number, member in enumerate(self.members):
            lists, name, stored, projection, dim, ndim, first = member
            if lists._modules.get(name) is not stored or projection.dim != dim:
                continue
            x = stored.original
            if not _is_small(x) or x.dim() != ndim:
                continue
            if not compiling and projection._changes_unnoticed(x):
                continue
            sparseness, *rest = projection._options()
            by_tensors, watched = isinstance(sparseness, Tensor), x.requires_grad
            if by_tensors:
                if sparseness.device != x.device:
                    continue
                watched = watched, sparseness.requires_grad
            options = Options(None, *rest)
            if options.is_plain:
                shape = x.shape
                settings = () if compiling else projection._settings()
                part = _Part(number, x, shape[:first], sparseness, projection, settings)
                if part.fits:  # else it says what is wrong when it is asked for
                    key = shape[first:].numel(), options, by_tensors, watched, x.dtype, x.device
                    groups[key].append(part)
        return groups


def _alike(group: list[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts of a group with the same sparseness, or all of them if it is in tensors.

    (A key with that number would have compiled code made again for every other one.)
    """
    if isinstance(group[0].sparseness, Tensor):
        yield group
        return
    while group:
        number = group[0].sparseness
        yield [part for part in group if part.sparseness == number]
        group = [part for part in group if part.sparseness != number]


def _owner(hook: Any) -> Any:
    """Return whose method a hook is."""
    return getattr(hook, "__self__", None)


@contextmanager
def _counting_changes() -> Iterator[None]:
    """Have PyTorch count changes of results, which it does not in inference mode."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        yield
        return
    with torch.inference_mode(mode=False), torch.no_grad():
        yield


def _is_replica(model: nn.Module) -> bool:
    """Whether it is one of `nn.DataParallel`, whose parameters are others than those seen here."""
    return bool(getattr(model, "_is_replica", False))


def _is_small(x: Any) -> bool:
    """Whether x is an ordinary tensor, one entry after the other, that is better not alone."""
    if type(x) not in _ORDINARY:
        return False
    # (An empty tensor has no bytes, on any device.)
    most = _LARGEST.get(x.device.type, -1)
    small: bool = x.nbytes <= most and x.is_contiguous()
    return small


def _divided(group: list[_Part]) -> Iterator[list[_Part]]:
    """Yield the parts of a group that one call takes."""
    most = _TOGETHER * _LARGEST[group[0].x.device.type]
    some: list[_Part] = []
    size = 0
    for part in group:
        size += part.x.nbytes
        if size > most:
            yield some
            some, size = [], part.x.nbytes
        some.append(part)
    yield some


def _project(batch: _Batch, state: Any) -> None:
    """Project tensors by one call, and lay down the results."""
    n, options, parts = batch
    tensors = [part.x for part in parts]
    targets: list[Tensor] = []
    if isinstance(parts[0].sparseness, Tensor):
        targets = [part.targets for part in parts]
    else:
        options = Options(parts[0].sparseness, *options[1:])
    try:
        if is_joinable(tensors[0]):
            values = project_joined(tensors, n, options, targets)
        else:
            asked = options._asdict() | ({"sparseness": torch.cat(targets)} if targets else {})
            values = parts_of(project(rows_together(tensors, n), **asked), tensors, n)
    except ValueError:
        return  # one by one they say which of them is wrong
    lay = _setter()
    compiling = torch.compiler.is_compiling()
    for part, value in zip(parts, values, strict=True):
        version = 0 if compiling else value._version
        now = () if compiling else settled(part.x, part.settings)
        ready = Ready(part.x, value, state, part.settings, now, version)
        lay(part.projection, "_ready", ready)


def _setter() -> Any:
    """Return how attributes of modules are set, which takes `nn.Module` longer than all the rest.

    PyTorch's compiler follows the ordinary way only.
    """
    return setattr if torch.compiler.is_compiling() else object.__setattr__
