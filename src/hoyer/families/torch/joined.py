"""Several tensors projected, and differentiated, as the rows of one: one call each way.

A call has a price of its own, which for small tensors is most of it. What is joined is copied
twice, together before a call and together again before its backward pass.
"""

from itertools import accumulate
from typing import Any

import torch
from torch.autograd import forward_ad

from ...options import Options
from .engines import Solved, engine_for
from .functions import by_targets_of, gradients, is_plain
from .targets import Targets, as_given, filled, plan_of, with_targets
from .tensors import Tensor, Vectors, is_real, is_watched, transforming


def is_joinable(x: Tensor) -> bool:
    """Whether x, and others of its type and device, are looked at by nothing but eager code."""
    return is_real(x) and not (forward_ad._current_level >= 0 or transforming())


def project_joined(
    tensors: list[Tensor], n: int, options: Options, targets: list[Tensor]
) -> list[Tensor]:
    """Return the projections of tensors of one kind, whose entries form vectors of length n.

    `targets` are the sparseness of each vector of each tensor, if the options have none. A tensor
    whose projection is not used gets no gradient, nor does its target, as if it had been projected
    by itself.
    """
    with torch.no_grad():
        rows = rows_together(tensors, n)
        if targets:
            options = with_targets(options, (torch.cat(targets), *options[1:3]))
        options = as_given(options, Vectors(rows, 1, (), n))
        plan = plan_of(rows, 1, options)
    engine = engine_for(rows)
    if not is_watched(*tensors, *targets):
        return parts_of(engine.value(rows, plan, 1), tensors, n)
    apply: Any = Joined.apply
    found = apply(engine.solved(rows, plan, 1), len(tensors), *tensors, *targets)
    return list(found[:-1])


def rows_together(tensors: Any, n: int) -> Tensor:
    """Return the vectors of all tensors as rows of one."""
    return torch.cat([t if t.dim() == 2 and t.shape[1] == n else t.reshape(-1, n) for t in tensors])


def parts_of(rows: Tensor, like: Any, n: int) -> list[Tensor]:
    """Return the rows of each tensor, in its shape: the inverse of `rows_together`."""
    parts = rows.split([tensor.numel() // n for tensor in like])
    return [
        part if part.shape == tensor.shape else part.view(tensor.shape)
        for part, tensor in zip(parts, like, strict=True)
    ]


class Joined(torch.autograd.Function):
    """values, scale = projections of several tensors, which were found as rows of one."""

    @staticmethod
    def forward(ctx: Any, at: Solved, count: int, *given: Tensor) -> tuple[Tensor, ...]:
        """Keep the results, a few numbers per vector, the targets; tensors if there is need."""
        tensors, targets = given[:count], given[count:]
        ctx.plan, ctx.count = at.plan, count
        values = parts_of(at.value, tensors, at.plan.n)
        if at.x is None:
            tensors = ()
        ctx.save_for_backward(at.scale, at.active, at.norms, at.x, *values, *targets, *tensors)
        ctx.targets = len(targets)
        ctx.set_materialize_grads(False)
        return *values, at.scale

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients; in one pass of the engine if nobody differentiates again."""
        g_values, g_scale = given[:-1], given[-1]
        if all(g is None for g in given):
            count: int = 2 + ctx.count + ctx.targets
            return (None,) * count
        saved: tuple[Any, ...] = ctx.saved_tensors
        scale, active, norms, x, *rest = saved
        values, rest = rest[: ctx.count], rest[ctx.count :]
        targets, tensors = rest[: ctx.targets], rest[ctx.targets :]
        n = ctx.plan.n
        pairs = zip(g_values, values, strict=True)
        y = rows_together([torch.zeros_like(v) if g is None else g for g, v in pairs], n)
        sparseness = torch.cat(targets) if targets else None
        named = filled((sparseness, None, None), ctx.plan.options[:3])
        needed = True, any(ctx.needs_input_grad[2 + ctx.count :]), False, False
        if g_scale is None and is_plain(y):
            at = Solved(_memory_of(values, n), scale, active, norms, x, ctx.plan, 1)
            found = _by_engine(at, y, named, needed)
        else:
            # Whoever differentiates again follows the results, and what was projected.
            x = rows_together(tensors, n) if tensors else None
            at = Solved(rows_together(values, n), scale, active, norms, x, ctx.plan, 1)
            found = gradients(at, named, (y, g_scale), needed)
        by_rows: Any = found[0]
        by_sparseness = found[1]
        used = [g is not None or g_scale is not None for g in g_values]
        by_tensors = _of_those(used, parts_of(by_rows, values, n))
        if by_sparseness is None:
            return None, None, *by_tensors, *(None,) * ctx.targets
        by_targets: Any = by_sparseness.split([target.numel() for target in targets])
        return None, None, *by_tensors, *_of_those(used, by_targets)


def _of_those(used: list[bool], gradients: Any) -> list[Tensor | None]:
    return [g if u else None for g, u in zip(gradients, used, strict=True)]


def _by_engine(
    at: Solved, y: Tensor, targets: Targets, needed: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Return the gradients by the rows and by their sparseness, first of all."""
    found = engine_for(y).product(at, y, by_target=needed[1])
    if found is None:
        return gradients(at, targets, (y, None), needed)
    return found[0], by_targets_of(at.plan, targets, found[1], needed)[0] if needed[1] else None


def _memory_of(values: list[Tensor], n: int) -> Tensor:
    """Return the rows that `Joined.forward` divided, or rows like these if hooks changed them."""
    first = values[0]
    ends = accumulate(v.nbytes for v in values)
    expected = (first.data_ptr() + end for end in ends)
    if all(v.data_ptr() + v.nbytes == end for v, end in zip(values, expected, strict=True)):
        rows = sum(v.numel() for v in values) // n
        end = (first.storage_offset() + rows * n) * first.element_size()
        if first.untyped_storage().nbytes() >= end:
            return first.detach().as_strided((rows, n), (n, 1))
    return rows_together(values, n)
