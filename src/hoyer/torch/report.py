"""How sparse a network is, layer by layer."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..api import sparseness
from .parametrizations import input_axes


class SparsenessRecord(NamedTuple):
    """One tensor of a network."""

    name: str
    shape: tuple[int, ...]
    sparseness: float
    """Mean over the vectors that flow into one unit each; NaN if all of them are zero."""
    lowest: float
    """The least sparse of these vectors."""
    highest: float
    zeros: float
    """Fraction of entries that are exactly zero."""
    l1: float
    """Norms of the whole tensor."""
    l2: float


class SparsenessReport(NamedTuple):
    """Records, and a table of them as text."""

    records: tuple[SparsenessRecord, ...]

    def __str__(self) -> str:
        head = ("tensor", "shape", "sparseness", "lowest", "highest", "zeros", "l1", "l2")
        rows = [head, *(_row(record) for record in self.records)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * max(map(len, lines)))
        return "\n".join(lines)


def _row(record: SparsenessRecord) -> tuple[str, ...]:
    shape = " x ".join(map(str, record.shape))
    sigmas = (f"{v:.3f}" for v in (record.sparseness, record.lowest, record.highest))
    return (
        record.name,
        shape,
        *sigmas,
        f"{record.zeros:.1%}",
        f"{record.l1:.4g}",
        f"{record.l2:.4g}",
    )


@torch.no_grad()
def sparseness_report(model: nn.Module, *, least_axes: int = 2) -> SparsenessReport:
    """Measure the sparseness of the weights of a network.

    Parameters
    ----------
    model : nn.Module
        The network. Parametrized tensors are seen as they are used, not as they are stored.
    least_axes : int, default 2
        Tensors with fewer axes (biases) are left out.

    Returns
    -------
    SparsenessReport
        `records`, one per tensor; as a string a table.

    Examples
    --------
    >>> import torch
    >>> from hoyer.torch import sparseness_report
    >>> layer = torch.nn.Linear(4, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.0, 0.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    >>> print(sparseness_report(layer))
    tensor  shape  sparseness  lowest  highest  zeros  l1     l2
    ------------------------------------------------------------
    weight  2 x 4       0.500   0.000    1.000  37.5%   6  2.828
    """
    return SparsenessReport(
        tuple(
            _measure(name, module, tensor)
            for name, module, tensor in _tensors(model)
            if tensor.dim() >= least_axes and tensor.is_floating_point()
        )
    )


def _tensors(model: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Every parameter once, under the name it is used by."""
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, parametrize.ParametrizationList):
            seen.update(id(parameter) for parameter in module.parameters())
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        if parametrize.is_parametrized(module):
            lists: Any = module.parametrizations
            for name in lists:
                yield prefix + name, module, getattr(module, name)
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield prefix + name, module, parameter


def _measure(name: str, module: nn.Module, tensor: Tensor) -> SparsenessRecord:
    wide = tensor.detach().double()
    sigma = sparseness(wide, axis=input_axes(module, wide)).reshape(-1)
    known = sigma[~sigma.isnan()]
    lowest, mean, highest = (
        (float(known.min()), float(known.mean()), float(known.max()))
        if known.numel()
        else (float("nan"),) * 3
    )
    zeros = float((wide == 0).double().mean()) if wide.numel() else float("nan")
    l1, l2 = (float(torch.linalg.vector_norm(wide, order)) for order in (1, 2))
    return SparsenessRecord(name, tuple(wide.shape), mean, lowest, highest, zeros, l1, l2)
