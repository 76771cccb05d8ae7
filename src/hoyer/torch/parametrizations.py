"""Weights that are sparse by construction, in the manner of `torch.nn.utils.parametrizations`."""

from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from .arguments import INPUTS, Dim, check_fit, dim_not_axis, vector_axes_of
from .joint import AtOnce, Removable
from .modules import SparsenessProjection

__all__ = ["at_once", "sparseness"]


def __dir__() -> list[str]:
    return __all__


@dim_not_axis
def sparseness(
    module: nn.Module,
    name: str,
    sparseness: Any = None,
    dim: Dim = INPUTS,
    *,
    l1: Any = None,
    l2: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    learnable: bool = False,
    check_finite: bool = True,
) -> nn.Module:
    """Parametrize a tensor of a module so that its vectors have a chosen sparseness, or norms.

    ``module.name`` becomes the projection of an unconstrained parameter,
    ``module.parametrizations.name.original``, which the optimizer sees. This makes the connections
    of a layer sparse. Assigning to ``module.name`` sets that parameter; reading it returns the
    projection. For inference, or for a ``state_dict`` that fits the plain layer,
    ``torch.nn.utils.parametrize.remove_parametrizations(module, name)`` leaves the sparse tensor.

    Parameters
    ----------
    module : nn.Module
        The module that owns the tensor.
    name : str
        The name of the tensor, usually "weight".
    sparseness : float, array_like or Tensor
        Target sparseness, one for all vectors or one for each.
        ``module.parametrizations.name[0].sparseness`` can be assigned to later.
    dim : int, tuple of int, None or "inputs", default "inputs"
        The axes that form a vector. "inputs" means the inputs of one unit of the layer (an output
        channel of a convolution, transposed or not, with groups or without; in an embedding, the
        vector of one entry). In transposed convolutions with groups, targets for each vector have
        the shape (groups, channels of a group).
    l1, l2, nonnegative, only_increase, at_most, learnable, check_finite
        As in `SparsenessProjection`; for example, ``l1=3.0, at_most=True`` keeps the weights of
        every unit in an L1 ball.

    Returns
    -------
    nn.Module
        The module itself.

    Warns
    -----
    UserWarning
        If some vectors are zero, or their largest entries tie (with `at_most` and `nonnegative`: no
        entry is positive), now or when they are assigned. The projection has no derivative there,
        so they would never move.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import parametrizations
    >>> layer = parametrizations.sparseness(torch.nn.Linear(100, 3), "weight", 0.9)
    >>> hoyer.sparseness(layer.weight.detach()).round(decimals=4)
    tensor([0.9000, 0.9000, 0.9000])
    """
    tensor = _tensor(module, name)
    vectors = vector_axes_of(dim, tensor, name, module)
    projection = SparsenessProjection(
        sparseness,
        vectors.axes,
        l1=l1,
        l2=l2,
        nonnegative=nonnegative,
        only_increase=only_increase,
        at_most=at_most,
        learnable=learnable,
        check_finite=check_finite,
    )
    projection.groups = vectors.groups
    projection.tensor_name = (
        f"{name} of {parametrize.type_before_parametrizations(module).__name__}"
    )
    targets = (projection.sparseness, projection.l1, projection.l2)
    check_fit(vectors, tensor, name, targets, dim, at_most)
    # It lives where its tensor does.
    projection.to(tensor.device)
    parametrize.register_parametrization(module, name, projection)
    lists: Any = module.parametrizations
    if type(lists[name]) is parametrize.ParametrizationList:
        lists[name].__class__ = _Parametrizations
    return module


def at_once(model: nn.Module) -> Removable:
    """Let all tensors of a model that `sparseness` parametrizes share a few calls.

    Whenever the model is called, those with vectors of the same length and the same options are
    copied into one tensor, projected together, and differentiated in one backward pass. This saves
    the overhead of separate calls, which dominates for small layers, especially on a GPU. The
    results are the same.

    Parameters
    ----------
    model : nn.Module
        The module that is called in training, as ``model(x)``. Calling its `forward`, or one of its
        layers, projects one by one. Only layers that are already parametrized take part.

    Returns
    -------
    Removable
        ``remove()`` ends it. Call `at_once` again after parametrizing or replacing layers: this
        replaces the earlier call for the same model.

    Notes
    -----
    Tensors are projected separately, as without this function, if they are larger than 16 MiB on a
    GPU or 256 KiB on the CPU, distributed or not contiguous, if their vectors do not lie along the
    last axes, if l1 or l2 is a tensor, if the sparseness is not the first of several
    parametrizations, in layers within `torch.utils.checkpoint`, in layers that are compiled by
    themselves, and with PyTorch 2.7 in all code that is not compiled. Results are valid for one
    call of the model, and for weights and settings that have not changed since it began: a weight
    that is read elsewhere is projected again.

    What differs is the graph. Layers share one backward pass, so calling ``backward`` for some of
    them first and for others later needs ``retain_graph=True``. Their gradients arrive together,
    once all are complete, and are parts of one tensor (to save a single one, clone it). Up to 64
    MiB of weights, and their gradients, are held in memory a second time. In compiled code, a layer
    that a call leaves out has a gradient of zeros instead of none, and changes of a weight between
    the beginning of a call and its use go unnoticed. After a KeyboardInterrupt, results stay in
    memory until the model is called again, or until ``remove()``.

    Examples
    --------
    >>> import torch
    >>> from hoyer.torch import parametrizations
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))
    >>> for layer in model:
    ...     _ = parametrizations.sparseness(layer, "weight", 0.9)
    >>> handle = parametrizations.at_once(model)
    >>> model(torch.ones(3, 64)).sum().backward()
    >>> handle.remove()
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}, not an nn.Module")
    hooks = AtOnce(model)
    if not hooks.found:
        raise ValueError(
            f"no tensor of this {type(model).__name__} is parametrized: call "
            "hoyer.torch.parametrizations.sparseness(layer, 'weight', 0.9) on its layers first"
        )
    return hooks.attach(model)


class _Parametrizations(parametrize.ParametrizationList):
    """PyTorch's list of the parametrizations of a tensor, faster where it has only one."""

    def forward(self) -> Tensor:
        """Return the tensor as its parametrizations make it."""
        # Not as attributes, for which `nn.Module` looks in three places.
        x, modules = self._parameters.get("original"), self._modules
        only: Any = modules.get("0") if len(modules) == 1 else None
        made: Tensor = super().forward() if x is None or only is None else only(x)
        return made

    def _get_name(self) -> str:
        return parametrize.ParametrizationList.__name__


def _tensor(module: nn.Module, name: str) -> Tensor:
    """Return the tensor to parametrize, or say why it cannot be."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module is of type {type(module).__name__}, not an nn.Module")
    if not isinstance(name, str):
        raise TypeError(
            f"name={name!r}: name the tensor, as in sparseness({type(module).__name__.lower()}, "
            "'weight', 0.9)"
        )
    kind = type(module).__name__
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        path, _, last = name.rpartition(".")
        hint = f": pass model.get_submodule({path!r}) and {last!r}" if path else ""
        raise ValueError(f"{kind} has no parameter or buffer {name!r}{hint}")
    if is_lazy(tensor):
        raise ValueError(f"{name} of {kind} has no shape yet: run a batch through the model first")
    if parametrize.is_parametrized(module, name):
        lists: Any = module.parametrizations
        if any(isinstance(part, SparsenessProjection) for part in lists[name]):
            raise ValueError(
                f"{name} of {kind} has a sparseness already: assign to "
                f"module.parametrizations.{name}[0].sparseness, or call "
                "torch.nn.utils.parametrize.remove_parametrizations first"
            )
    return tensor
