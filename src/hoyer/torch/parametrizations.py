"""Weights that are sparse by construction, in the manner of `torch.nn.utils.parametrizations`."""

from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..options import Axis
from .modules import SparsenessProjection

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def sparseness(
    module: nn.Module,
    name: str,
    sparseness: float | Tensor,
    dim: Axis | str = "inputs",
    *,
    l2: Any = "keep",
    nonnegative: bool = False,
    only_increase: bool = False,
    learnable: bool = False,
) -> nn.Module:
    """Parametrize a tensor of a module so that its vectors have a chosen sparseness.

    ``module.name`` becomes the projection of an unconstrained parameter
    ``module.parametrizations.name.original``, which an optimizer sees: sparse connectivity.
    Assigning to ``module.name`` sets that parameter; reading gives its projection.

    Parameters
    ----------
    module : nn.Module
        Where the tensor is.
    name : str
        Its name, mostly "weight".
    sparseness : float or Tensor
        Target sparseness, one for all vectors or one for each.
    dim : int, tuple of int, None or "inputs", default "inputs"
        The axes that form a vector. "inputs": what flows into one unit, that is all axes but that
        of the outputs (the first; of transposed convolutions the second).
    l2, nonnegative, only_increase, learnable
        As in `SparsenessProjection`.

    Returns
    -------
    nn.Module
        The module itself. `torch.nn.utils.parametrize.remove_parametrizations` ends it.

    Examples
    --------
    >>> import hoyer, torch
    >>> from hoyer.torch import parametrizations
    >>> layer = parametrizations.sparseness(torch.nn.Linear(100, 3), "weight", 0.9)
    >>> hoyer.sparseness(layer.weight.detach()).round(decimals=4)
    tensor([0.9000, 0.9000, 0.9000])
    """
    tensor = getattr(module, name, None)
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    axes = input_axes(module, tensor) if isinstance(dim, str) and dim == "inputs" else dim
    if isinstance(axes, str):
        raise ValueError(f"dim={dim!r}: give an int, a tuple of ints, None or 'inputs'")
    projection = SparsenessProjection(
        sparseness,
        axes,
        l2=l2,
        nonnegative=nonnegative,
        only_increase=only_increase,
        learnable=learnable,
    )
    # It follows the tensor it belongs to.
    projection.to(tensor.device)
    return parametrize.register_parametrization(module, name, projection)


def input_axes(module: nn.Module, tensor: Tensor) -> tuple[int, ...]:
    """Return the axes over which one unit of a layer collects its inputs."""
    if tensor.dim() < 2:
        return (0,)
    output = 1 if isinstance(module, _TRANSPOSED) else 0
    return tuple(axis for axis in range(tensor.dim()) if axis != output)
