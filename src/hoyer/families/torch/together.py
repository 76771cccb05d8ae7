"""Tensors that share a sparseness: the search on their numbers, and its derivatives.

The price mu of `hoyer.price` solves sum g_i t_i(x_i, mu k_i) = total, over the vectors whose ratio
t_i = ||q||_1 / ||q||_2, q = max(|x_i| - mu k_i, 0), follows it. `Price` is the function that finds
it, and differentiates it as an implicit one; everything else is plain tensor operations.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from ...engines.arrays import Members as PlainMembers
from ...options import Axis
from ...price import Asked, Members, Shares, shares_of, split_shares
from ...target import target_norms
from .. import calling, describe_bad
from . import engines
from .tensors import XP, Tensor, Vectors, batch_of, is_watched, rows_of, vectors_last


@torch.compiler.disable  # type: ignore[untyped-decorator]
def shares(tensors: list[Tensor], axes: list[Axis], asked: Asked, names: list[str]) -> list[Any]:
    """Return the sparseness that the vectors of each tensor get; it can be differentiated."""
    for x, name in zip(tensors, names, strict=True):
        if x.is_meta or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0:
            raise TypeError(
                f"project_together must see the numbers in {name}: it does not work on tensors "
                "without any, nor while PyTorch traces a function"
            )
    vectors = []
    for x, axis, name in zip(tensors, axes, names, strict=True):
        with calling(name):
            vectors.append(vectors_last(x, axis))
    given = [norm for norm in asked.norms if isinstance(norm, torch.Tensor)]
    target = asked.sparseness if isinstance(asked.sparseness, torch.Tensor) else None
    if not is_watched(*tensors, *given, target) or not tensors:
        members, found = _found([one.tensor for one in vectors], vectors, asked, names)
        parts = split_shares(members, found.sparseness)
        # Of a type whose numbers make no plans that are remembered: they do not come back.
        return [
            np.longdouble(part) if np.ndim(part) == 0 and part is not None else part
            for part in parts
        ]
    return _differentiable(vectors, asked, names)


# ---- the search ----


def _found(
    tensors: list[Tensor], vectors: list[Vectors], asked: Asked, names: list[str]
) -> tuple[Members, Shares]:
    """Return what the vectors in the last axes of tensors get."""
    members = members_of(tensors, [one.inner for one in vectors], asked.nonnegative)

    def refuse(array: int, vector: int) -> None:
        # Other devices are waited for, but not asked: there NaN comes back, as everywhere.
        if tensors[array].is_cpu:
            x = engines.as_numpy(tensors[array])
            inner, name = vectors[array].inner, names[array]
            raise ValueError(describe_bad(x, inner, vector, name=name))

    refusing = refuse if asked.check_finite else None
    return members, shares_of(members, on_host(asked), names, refusing)


def members_of(tensors: list[Tensor], inners: list[int], nonnegative: bool) -> Members:
    """Return the vectors as an engine looks at them."""
    if engines.core is not None and all(x.is_cpu for x in tensors):
        from ...engines.core import Members as CoreMembers  # noqa: PLC0415 - there is a core

        arrays = [(engines.to_look_at(x), n, False) for x, n in zip(tensors, inners, strict=True)]
        return CoreMembers(arrays, nonnegative, torch.get_num_threads())
    rows = [rows_of(x.detach(), inner) for x, inner in zip(tensors, inners, strict=True)]
    return PlainMembers(rows, nonnegative, XP, _fetch, _send)


def _fetch(tensors: list[Tensor]) -> list[Any]:
    """Return tensors as NumPy arrays; those of one device come together."""
    sizes, shapes = [x.numel() for x in tensors], [x.shape for x in tensors]
    flat = [x.to(XP.wide(x)).reshape(-1) for x in tensors]
    devices = {x.device for x in flat}
    parts = torch.cat(flat).cpu().split(sizes) if len(devices) == 1 else [x.cpu() for x in flat]
    return [
        np.asarray(part.numpy(), float).reshape(shape)
        for part, shape in zip(parts, shapes, strict=True)
    ]


def _send(numbers: Any, like: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=XP.wide(like), device=like.device)


def on_host(asked: Asked) -> Asked:
    """Return what is asked for with numbers in place of tensors."""
    sparseness = asked.sparseness
    if isinstance(sparseness, torch.Tensor):
        number = engines.as_numpy(sparseness)[()]
        target_norms(2, number)  # which says what is wrong
        sparseness = min(max(float(number), 0.0), 1.0)
    lists = (
        [engines.as_numpy(one) if isinstance(one, torch.Tensor) else one for one in given]
        for given in (asked.norms, asked.floors, asked.weights)
    )
    norms, floors, weights = lists
    return asked._replace(sparseness=sparseness, norms=norms, floors=floors, weights=weights)


# ---- derivatives ----


class _Found(NamedTuple):
    """Numbers of all vectors where the search ended, in columns; none can be differentiated."""

    sparseness: Tensor
    share: Tensor
    """g, over which the sum of ratios is taken."""
    pace: Tensor
    free: Tensor
    """1 where the ratio follows the price."""
    tied: Tensor
    """1 where it is what others leave."""
    norms: Tensor

    @staticmethod
    def of(table: Tensor) -> "_Found":
        """Read the columns of a table."""
        return _Found(*table.unbind(-1))

    @property
    def pinned(self) -> Tensor:
        """Whether the price stays where it is: at the entries of a vector that are tied."""
        return (self.tied > 0).any()

    def paces(self, norms: Tensor, relative: bool) -> Tensor:
        """Return the paces, which are proportional to the norms, or to their inverse."""
        usable = self.free > 0
        known, now = torch.where(usable, self.norms, 1.0), torch.where(usable, norms, 1.0)
        return torch.where(usable, self.pace, 0.0) * (now / known if relative else known / now)


def _differentiable(vectors: list[Vectors], asked: Asked, names: list[str]) -> list[Any]:
    """Return the shares as functions of tensors and targets."""
    norms = _joined([_norms(one, norm) for one, norm in zip(vectors, asked.norms, strict=True)])
    mean = torch.as_tensor(asked.sparseness, dtype=norms.dtype, device=norms.device)
    tensors = [one.tensor for one in vectors]
    price, table = find_price((vectors, asked, names), mean, norms, *tensors)
    found, sizes = _Found.of(table), [x.tensor.numel() // x.length for x in vectors]
    paces = price * found.paces(norms, asked.relative)
    parts = zip(vectors, tensors, paces.split(sizes), found.free.split(sizes), strict=True)
    ratio = _joined([ratio_of(one, asked.nonnegative, *part) for one, *part in parts])
    # By how much one vector must move for the others, where it takes what they leave.
    others = _moving(mean) + _moving((found.share * ratio).sum())
    ratio = ratio - found.tied * others / torch.where(found.tied > 0, found.share, 1.0)
    lengths = zip(sizes, vectors, strict=True)
    root = torch.cat([ratio.new_full((size,), one.length**0.5) for size, one in lengths])
    exact = found.sparseness - _moving(ratio) / torch.where(root > 1, root - 1, 1.0)
    return [
        None
        if one.length == 1
        else part.reshape(batch_of(one.tensor, one.inner)).to(one.tensor.device)
        for part, one in zip(exact.split(sizes), vectors, strict=True)
    ]


def _moving(x: Tensor) -> Tensor:
    """Return zeros that move with x."""
    return x - x.detach()


def _norms(vectors: Vectors, given: Any) -> Tensor:
    """Return the norms that results have, one for each vector."""
    x, inner = vectors.tensor, vectors.inner
    if isinstance(given, str):
        rows = rows_of(x, inner).to(XP.wide(x))
        rows = torch.where(rows.detach().isfinite().all(-1, keepdim=True), rows, 0.0)
        unit = XP.power_of_two(rows.detach().abs().amax(-1, keepdim=True))
        # Squares of the largest and the smallest numbers are no floats.
        sizes: Tensor = torch.linalg.vector_norm(rows / unit, dim=-1) * unit[..., 0]
        return sizes.reshape(-1)
    norms = torch.as_tensor(given, dtype=XP.wide(x), device=x.device)
    return norms.broadcast_to(batch_of(x, inner)).reshape(-1)


def _joined(parts: list[Tensor]) -> Tensor:
    """Return numbers of all vectors, where the first of them are."""
    return torch.cat([part.to(parts[0].device) for part in parts])


class _Ratio(NamedTuple):
    """The ratio of the norms of q = max(y - shift, 0), and its derivatives; 0 where it is held."""

    value: Tensor
    by_shift: Tensor
    by_x: Tensor
    """A row for each vector."""

    @staticmethod
    def of(vectors: Vectors, x: Tensor, shift: Tensor, free: Tensor, nonnegative: bool) -> "_Ratio":
        """Calculate it, in units of the largest entry, for the vectors that are free."""
        rows = rows_of(x, vectors.inner).reshape(-1, vectors.length)
        # What is not free may not be finite.
        rows = torch.where(free.to(rows.device)[:, None] > 0, rows.to(XP.wide(rows)), 0.0)
        sign = torch.ones_like(rows) if nonnegative else torch.where(rows < 0, -1.0, 1.0)
        shift, free = (one.to(rows.device)[:, None] for one in (shift, free > 0))
        unit = XP.power_of_two(rows.detach().abs().amax(-1, keepdim=True))
        unit = torch.where(free, unit, 1.0)
        q = torch.where(free, sign * rows / unit - shift / unit, 0.0).clamp(min=0.0)
        inside = (q > 0).to(q.dtype)
        first, squares = q.sum(-1, keepdim=True), (q * q).sum(-1, keepdim=True)
        size = torch.where(free, squares, 1.0).sqrt()
        ratio, count = first / size, inside.sum(-1, keepdim=True)
        by_entry = inside / size - q * (ratio / (size * size))
        by_shift = (ratio * ratio - count) / size
        return _Ratio(
            ratio[:, 0], (by_shift / unit)[:, 0], torch.where(free, sign * by_entry / unit, 0.0)
        )


class Ratio(torch.autograd.Function):
    """The ratios of the vectors of one tensor, which keeps no more than what it is given."""

    @staticmethod
    def forward(
        vectors: Vectors, nonnegative: bool, x: Tensor, shift: Tensor, free: Tensor
    ) -> Tensor:
        """Calculate them."""
        return _Ratio.of(vectors, x, shift, free, nonnegative).value

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep everything."""
        ctx.vectors, ctx.nonnegative = inputs[:2]
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Return the gradients; they can be differentiated again."""
        if gradients[0] is None:
            return (None,) * 5
        x, shift, free = ctx.saved_tensors
        found = _Ratio.of(ctx.vectors, x, shift, free, ctx.nonnegative)
        by_x = (gradients[0][:, None] * found.by_x).reshape(x.shape).to(x.dtype)
        return None, None, by_x, (gradients[0] * found.by_shift).to(shift.device), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        """Return how the ratios move."""
        x, shift, free = ctx.saved_tensors
        found = _Ratio.of(ctx.vectors, x, shift, free, ctx.nonnegative)
        moved = torch.zeros_like(found.value)
        if tangents[2] is not None:
            moved = moved + (found.by_x * tangents[2].reshape(found.by_x.shape)).sum(-1)
        if tangents[3] is not None:
            moved = moved + found.by_shift * tangents[3].to(moved.device)
        return moved


class Price(torch.autograd.Function):
    """The price at which the mean of all vectors is as asked, and what was found about them.

    With H(mu, x, k) the sum over g times the ratio, of vectors that are free, H = total(mean) holds
    everywhere, so that d mu = (d total - the differential of H by all else)/(dH/d mu).
    """

    @staticmethod
    def forward(job: Any, mean: Tensor, norms: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Search on the numbers."""
        vectors, asked, names = job
        given = asked._replace(sparseness=mean)
        found = _found(list(tensors), vectors, given, names)[1]
        sizes = [x.numel() // one.length for x, one in zip(tensors, vectors, strict=True)]
        root = np.sqrt(np.repeat([float(one.length) for one in vectors], sizes))
        share = found.weight / np.where(root > 1, root - 1, 1.0)
        there = [found.sparseness, share, found.pace, found.free, found.tied]
        table = torch.tensor(np.stack(there, -1), dtype=norms.dtype, device=norms.device)
        price = norms.new_tensor(found.price)
        return price, torch.cat([table, norms[:, None]], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep everything."""
        ctx.job = inputs[0]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs[2:], *output)
        ctx.save_for_forward(*inputs[2:], *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Return the gradients of the price; they can be differentiated again."""
        gradient, slopes = gradients[0], _Slopes.of(ctx)
        if gradient is None:
            return (None,) * (3 + len(slopes.by_tensors))
        # total falls by as much as the mean rises: weights sum to 1.
        along = gradient * slopes.inverse
        by_tensors = (-along.to(by.device) * by for by in slopes.by_tensors)
        return None, -along, -along * slopes.by_norms, *by_tensors

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        """Return how the price moves."""
        _, mean, norms, *tensors = tangents
        slopes = _Slopes.of(ctx)
        moved = torch.zeros_like(slopes.inverse)
        if mean is not None:
            moved = moved - mean
        if norms is not None:
            moved = moved - (slopes.by_norms * norms).sum()
        for by, along in zip(slopes.by_tensors, tensors, strict=True):
            if along is not None:
                moved = moved - (by * along).sum().to(moved.device)
        return moved * slopes.inverse, None


class _Slopes(NamedTuple):
    """The derivatives of the sum over g times the ratio."""

    inverse: Tensor
    """One over that by the price; 0 where the price stays."""
    by_norms: Tensor
    by_tensors: list[Tensor]

    @staticmethod
    def of(ctx: Any) -> "_Slopes":
        """Calculate them from what `Price` kept."""
        vectors, asked, _ = ctx.job
        norms, *tensors, price, table = ctx.saved_tensors
        found = _Found.of(table)
        paces = found.paces(norms, asked.relative)
        sizes = [one.tensor.numel() // one.length for one in vectors]
        shifts, frees, shares = (
            numbers.split(sizes) for numbers in (price * paces, found.free, found.share)
        )
        parts = zip(vectors, tensors, shifts, frees, strict=True)
        ratios = [_Ratio.of(*part, asked.nonnegative) for part in parts]
        by_shift = found.share * _joined([one.by_shift for one in ratios])
        by_price = (by_shift * paces).sum()
        held = found.pinned | ~(by_price < 0)
        inverse = torch.where(held, 0.0, 1 / torch.where(held, 1.0, by_price))
        turn = 1.0 if asked.relative else -1.0
        by_norms = turn * by_shift * price * paces / torch.where(norms > 0, norms, 1.0)
        by_tensors = [
            (share.to(one.by_x.device)[:, None] * one.by_x).reshape(x.shape).to(x.dtype)
            for share, one, x in zip(shares, ratios, tensors, strict=True)
        ]
        return _Slopes(inverse, by_norms, by_tensors)


# PyTorch does not say what types these have.
find_price: Any = Price.apply
ratio_of: Any = Ratio.apply
