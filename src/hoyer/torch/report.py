"""How sparse a network is, layer by layer."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from ..api import sparseness
from ..families.torch.tensors import is_distributed
from .arguments import INPUTS, Dim, dim_not_axis, full, has_numbers, vector_axes_of

_HEAD = ("tensor", "shape", "sparseness", "lowest", "highest", "zeros", "l1", "l2")
_STORED = ("_orig", "_v", "_g")
"""Endings under which PyTorch's older tools store what they compute a tensor from."""


@dataclass(frozen=True)
class SparsenessRecord:
    """One tensor of a network.

    Attributes
    ----------
    name : str
        As in ``model.named_parameters()``.
    shape : tuple of int
        Its shape.
    sparseness : float
        Mean over its vectors; NaN if none of them has a sparseness.
    lowest, highest : float
        Of the least and of the most sparse vector.
    zeros : float
        Fraction of entries that are exactly zero.
    l1, l2 : float
        Norms of the whole tensor.
    vectors : int
        How many vectors there are.
    undefined : int
        How many of them have no sparseness and are left out of the mean: zero vectors, those with
        NaN or infinity, and those of length 1.
    """

    name: str
    shape: tuple[int, ...]
    sparseness: float
    lowest: float
    highest: float
    zeros: float
    l1: float
    l2: float
    vectors: int
    undefined: int


@dataclass(frozen=True, repr=False)
class SparsenessReport(Sequence[SparsenessRecord]):
    """A sequence of records, which is displayed as a table; `total` has all of them as one.

    Attributes
    ----------
    records : tuple of SparsenessRecord
        One per tensor.
    skipped : dict
        From the names of tensors that could not be measured to the reason.
    """

    records: tuple[SparsenessRecord, ...]
    skipped: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    @property
    def total(self) -> SparsenessRecord | None:
        """All tensors as one, named "all": every vector counts alike; None if there are none.

        With ``dim="inputs"`` its sparseness is the mean that is asked of
        ``ProjectAfterStep(..., together=True)``.
        """
        return _total(self.records) if self.records else None

    def __repr__(self) -> str:
        lines = _table(self.records) if self.records else ["no weights to measure"]
        notes = {
            record.name: f"{record.undefined} of {record.vectors} vectors have no sparseness "
            "(zero, not finite or of length 1) and are left out"
            for record in self.records
            if record.undefined
        }
        return "\n".join(
            [*lines, *(f"{name}: {note}" for name, note in (notes | self.skipped).items())]
        )


def _total(records: tuple[SparsenessRecord, ...]) -> SparsenessRecord:
    """Return what all tensors have together."""
    known = [one for one in records if one.undefined < one.vectors]
    counts = [one.vectors - one.undefined for one in known]
    sums = (one.sparseness * count for one, count in zip(known, counts, strict=True))
    entries = [math.prod(one.shape) for one in records]
    zeros = (one.zeros * size for one, size in zip(records, entries, strict=True))
    return SparsenessRecord(
        "all",
        (sum(entries),),
        math.fsum(sums) / sum(counts) if known else math.nan,
        min((one.lowest for one in known), default=math.nan),
        max((one.highest for one in known), default=math.nan),
        math.fsum(zeros) / sum(entries),
        math.fsum(one.l1 for one in records),
        math.hypot(*(one.l2 for one in records)),
        sum(one.vectors for one in records),
        sum(one.undefined for one in records),
    )


def _table(records: tuple[SparsenessRecord, ...]) -> list[str]:
    rows = [_HEAD, *map(_row, records)]
    if len(records) > 1:
        total = _total(records)
        rows.append((total.name, f"{total.vectors} vectors", *_row(total)[2:]))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    if len(records) > 1:
        lines.insert(-1, rule)
    lines.insert(1, rule)
    return lines


def _row(record: SparsenessRecord) -> tuple[str, ...]:
    shape = " x ".join(map(str, record.shape))
    sigmas = (f"{v:.3f}" for v in (record.sparseness, record.lowest, record.highest))
    norms = (f"{v:.4g}" for v in (record.l1, record.l2))
    return record.name, shape, *sigmas, f"{record.zeros:.1%}", *norms


@dim_not_axis
@torch.no_grad()
def sparseness_report(
    model: nn.Module, *, dim: Dim = INPUTS, least_axes: int = 2
) -> SparsenessReport:
    """Measure the sparseness of the weights of a network.

    Parameters
    ----------
    model : nn.Module
        The network. Parametrized tensors are seen as they are used, not as they are stored; those
        of ``torch.nn.utils.prune`` and of hooks like the old ``spectral_norm`` as the last forward
        pass used them. Of DTensors (FSDP2, tensor parallelism) the whole is measured: all ranks
        must call this, and get the same report.
    dim : int, tuple of int, None or "inputs", default "inputs"
        The axes that form a vector. "inputs": what flows into one unit, as in
        `hoyer.torch.parametrizations.sparseness`.
    least_axes : int, default 2
        Tensors with fewer axes (biases) are left out.

    Returns
    -------
    SparsenessReport
        A sequence of records, one per tensor, which is displayed as a table.

    Examples
    --------
    >>> import torch
    >>> from hoyer.torch import sparseness_report
    >>> layer = torch.nn.Linear(4, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[0.0, 0.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    >>> report = sparseness_report(layer)
    >>> report
    tensor  shape  sparseness  lowest  highest  zeros  l1     l2
    ------------------------------------------------------------
    weight  2 x 4       0.500   0.000    1.000  37.5%   6  2.828
    >>> [(record.name, record.zeros) for record in report]
    [('weight', 0.375)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model is of type {type(model).__name__}: pass the nn.Module itself (of a single "
            "tensor hoyer.sparseness tells)"
        )
    records: list[SparsenessRecord] = []
    skipped: dict[str, str] = {}
    for name, module, tensor in _tensors(model):
        if not is_lazy(tensor) and (tensor.dim() < least_axes or not tensor.is_floating_point()):
            continue
        if reason := _unmeasurable(tensor):
            skipped[name] = reason
        else:
            records.append(_measure(name, module, tensor, dim))
    return SparsenessReport(tuple(records), skipped)


def _unmeasurable(tensor: Tensor) -> str:
    """Return why a tensor cannot be measured; an empty text if it can."""
    if is_lazy(tensor):
        return "not initialized, run a batch through the model first"
    if tensor.numel() == 0:
        return f"no entries in shape {tuple(tensor.shape)}"
    if has_numbers(tensor) or (is_distributed(tensor) and not tensor.is_meta):
        return ""
    return f"no numbers on device {tensor.device}"


def _tensors(model: nn.Module) -> Iterator[tuple[str, nn.Module, Tensor]]:
    """Yield every tensor once, under the name by which it is used."""
    inner: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, parametrize.ParametrizationList):
            inner.update(module.modules())
    seen: set[int] = set()
    for path, module in model.named_modules():
        if module in inner:
            continue
        prefix = f"{path}." if path else ""
        for name, tensor in _used(module).items():
            if isinstance(tensor, nn.Parameter):
                # Shared tensors are stored ones; computed ones have no lasting identity.
                if id(tensor) in seen:
                    continue
                seen.add(id(tensor))
            yield prefix + name, module, tensor


def _used(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of a module as it uses them, by name."""
    found: dict[str, Tensor] = {}
    if parametrize.is_parametrized(module):
        lists: Any = module.parametrizations
        found |= {name: getattr(module, name) for name in lists}
    for name, parameter in module.named_parameters(recurse=False):
        # Where a hook computes a tensor from a parameter it sets a plain attribute.
        bases = (name.removesuffix(end) for end in _STORED if name.endswith(end))
        base = next((b for b in bases if isinstance(vars(module).get(b), Tensor)), name)
        found[base] = vars(module).get(base, parameter)
    return found


def _measure(name: str, module: nn.Module, tensor: Tensor, dim: Dim) -> SparsenessRecord:
    wide = tensor.detach().double()
    vectors = vector_axes_of(dim, wide, name, module)
    sigma = full(sparseness(vectors.split(wide), axis=vectors.axes)).reshape(-1)
    count, undefined = sigma.numel(), int(sigma.isnan().sum())
    known = sigma[~sigma.isnan()] if undefined < count else sigma
    mean, lowest, highest = map(float, (known.mean(), known.min(), known.max()))
    l1, l2 = (float(full(torch.linalg.vector_norm(wide, order))) for order in (1, 2))
    zeros, shape = int(full((wide == 0).sum())) / wide.numel(), tuple(wide.shape)
    return SparsenessRecord(name, shape, mean, lowest, highest, zeros, l1, l2, count, undefined)
