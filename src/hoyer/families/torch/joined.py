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
from .targets import Targets, as_given, filled, plan_of, tensors_of
from .tensors import Tensor, Vectors, is_real, is_watched, transforming


def is_joinable(x: Tensor) -> bool:
    """Whether x, and others of its type and device, are looked at by nothing but eager code."""
    return is_real(x) and not (forward_ad._current_level >= 0 or transforming())


def project_joined(tensors: list[Tensor], n: int, options: Options) -> list[Tensor]:
    """Return the projections of tensors of one kind, whose entries form vectors of length n.

    Targets are numbers, or tensors with one entry for each vector of all of them. A tensor whose
    projection is not used gets no gradient, as if it had been projected by itself.
    """
    with torch.no_grad():
        rows = rows_together(tensors, n)
        options = as_given(options, Vectors(rows, 1, (), n))
        plan = plan_of(rows, 1, options)
    engine, targets = engine_for(rows), tensors_of(options)
    if not is_watched(*tensors, *targets):
        return parts_of(engine.value(rows, plan, 1), tensors, n)
    apply: Any = Joined.apply
    found = apply(engine.solved(rows, plan, 1), *targets, *tensors)
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
    def forward(
        ctx: Any, at: Solved, sparseness: Any, l1: Any, l2: Any, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        """Keep the results, a few numbers per vector, and the tensors if results do not tell."""
        ctx.plan, ctx.count = at.plan, len(tensors)
        values = parts_of(at.value, tensors, at.plan.n)
        given = () if at.x is None else tensors
        numbers = at.scale, at.active, at.norms, at.x
        ctx.save_for_backward(*numbers, sparseness, l1, l2, *values, *given)
        ctx.set_materialize_grads(False)
        return *values, at.scale

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients; in one pass of the engine if nobody differentiates again."""
        g_values, g_scale = given[:-1], given[-1]
        nothing = (None,) * (4 + ctx.count)
        if all(g is None for g in given):
            return nothing
        scale, active, norms, x, *rest = ctx.saved_tensors
        targets, values, tensors = rest[:3], rest[3 : 3 + ctx.count], rest[3 + ctx.count :]
        n, needed = ctx.plan.n, (True, *ctx.needs_input_grad[1:4])
        pairs = zip(g_values, values, strict=True)
        y = rows_together([torch.zeros_like(v) if g is None else g for g, v in pairs], n)
        named = filled(targets, ctx.plan.options[:3])
        if g_scale is None and is_plain(y):
            at = Solved(_memory_of(values, n), scale, active, norms, x, ctx.plan, 1)
            by_rows, *by_targets = _by_engine(at, y, named, needed)
        else:
            # Whoever differentiates again follows the results, and what was projected.
            x = rows_together(tensors, n) if tensors else None
            at = Solved(rows_together(values, n), scale, active, norms, x, ctx.plan, 1)
            by_rows, *by_targets = gradients(at, named, (y, g_scale), needed)
        by_tensors = parts_of(by_rows, values, n)
        if g_scale is None:
            used = (g is not None for g in g_values)
            by_tensors = [g if u else None for g, u in zip(by_tensors, used, strict=True)]
        return None, *by_targets, *by_tensors


def _by_engine(
    at: Solved, y: Tensor, targets: Targets, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """Return the gradients by the rows, sparseness, l1 and l2."""
    by_target = any(needed[1:])
    found = engine_for(y).product(at, y, by_target=by_target)
    if found is None:
        return gradients(at, targets, (y, None), needed)
    if not by_target:
        return found[0], None, None, None
    return found[0], *by_targets_of(at.plan, targets, found[1], needed)


def _memory_of(values: list[Tensor], n: int) -> Tensor:
    """Return the rows that `Joined.forward` divided, or rows like these if hooks changed them."""
    first = values[0]
    ends = accumulate(v.nbytes for v in values)
    expected = (first.data_ptr() + end for end in ends)
    if all(v.data_ptr() + v.nbytes == end for v, end in zip(values, expected, strict=True)):
        rows = sum(v.numel() for v in values) // n
        if first.untyped_storage().nbytes() >= rows * n * first.element_size():
            return first.detach().as_strided((rows, n), (n, 1))
    return rows_together(values, n)
