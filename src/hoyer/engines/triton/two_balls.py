"""Upper bounds of both norms: two projections, and a choice for every vector."""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
import triton

from ...plan import Plan
from ...projection import ACTIVE, EVALUATIONS, SCALE
from ...target import Target
from . import bounds, projections
from .launch import Tape
from .layout import as_rows, bring_back, rows_to_write
from .projections import Kept

Tensor: TypeAlias = torch.Tensor


def _two_plans(x: Tensor, plan: Plan) -> tuple[Plan, Plan]:
    """Return the plans for the L1 ball, and for vectors of norm l2 that are sparse enough.

    The latter stands in for targets that there are no such vectors for: nobody looks at these.
    """
    known: tuple[Plan, Plan] | None = plan.forms.get("triton, two plans")
    if known is not None:
        return known
    ratio, slack, slack_low, l2 = plan.target
    xp: Any = np if isinstance(ratio, np.ndarray) else torch
    n: Any = plan.n
    if plan.lengths is not None:
        lengths = np.asarray(plan.lengths) if xp is np else plan.lengths
        n = lengths.reshape(ratio.shape)
    full, none = n + 0.0 * ratio, 0.0 * ratio
    ball = Target(ratio * l2, full, none, none + 1.0)
    # A ratio of 1 has one-hot vectors alone; of 0 there is none.
    few = ratio <= 1
    sphere = Target(
        xp.where(few, 1.0 + none, ratio),
        xp.where(few, full - 1.0, slack),
        xp.where(few, none, slack_low),
        xp.where(ratio == 0, 1.0 + none, l2 + none),
    )
    first = replace(plan, target=ball, rule="free", forms={})
    second = replace(plan, target=sphere, at_most=False, only_increase=True, forms={})
    if plan.where is None and xp is np and ratio.size == 1:
        plan.forms["triton, two plans"] = first, second
    return first, second


def _precise(x: Tensor) -> Tensor:
    """Return vectors in a type whose digits decide which norms bind."""
    return x.float() if x.element_size() == 2 else x


def _choose(
    ball: Tensor, sparse: Tensor, out: Tensor, found: tuple[Tensor, Tensor], l2: Tensor
) -> Tensor:
    """Write one of two results for every vector, and return where it was the second.

    `ball` and `sparse` are rows, `found` are scales and marks of the latter: see `bounds.choose`.
    """
    count, n = ball.shape
    scale, active = found
    batch, takes = scale.shape, ball.new_zeros(count, dtype=torch.int8)
    width = min(bounds.BLOCK.value, triton.next_power_of_2(n))
    in_place = ball.data_ptr() == out.data_ptr()
    if count:
        with torch.cuda.device_of(ball):
            Tape().launch(
                bounds.choose,
                -(-count * width // bounds.BLOCK.value),
                ball,
                sparse,
                out,
                scale.contiguous(),
                active.contiguous(),
                l2,
                takes,
                count,
                n,
                ball.stride(0),
                out.stride(0),
                min(l2.dim(), 1),
                width,
                in_place,
            )
    return takes.view(torch.bool).view(batch)


def _bound(plan: Plan, batch: torch.Size, like: Tensor) -> Tensor:
    """Return the bound of the L2 norm of every vector; 0 where that of the L1 norm is no larger.

    There it never binds.
    """
    ratio, _, _, l2 = plan.target
    if isinstance(ratio, np.ndarray):
        l2 = np.where(ratio <= 1, 0.0, l2)
        if l2.size == 1:
            return like.new_full((), float(l2.reshape(-1)[0]))
        l2 = torch.tensor(l2, device="cpu").to(like.device, non_blocking=True)
    else:
        l2 = torch.where(ratio <= 1, 0.0, l2)
    if l2.numel() == 1:
        return l2.reshape(())
    return l2.reshape(batch) if l2.numel() == batch.numel() else l2.expand(batch).contiguous()


def project(x: Tensor, plan: Plan, inner: int, out: Tensor) -> Kept:
    """Project onto the vectors whose norms have upper bounds, by two projections and a choice.

    The one onto the L1 ball is the last of them, and goes where the result belongs: that may be x.
    """
    given = _precise(x.detach())
    first, second = _two_plans(x, plan)
    rows = as_rows(given, plan.n)
    written = rows_to_write(out, rows)
    ball = written if written.dtype == rows.dtype else torch.empty_like(rows)
    sparse = torch.empty_like(rows, memory_format=torch.contiguous_format)
    other_scale, other_active = projections.project(given, second, inner, sparse, remember=True)
    scale, active = projections.project(given, first, inner, ball, remember=True)
    assert scale is not None
    assert active is not None
    assert other_scale is not None
    assert other_active is not None
    l2 = _bound(plan, scale.shape, scale)
    take = _choose(ball, sparse, written, (other_scale, other_active), l2)
    bring_back(written, out)
    return torch.where(take, other_scale, scale), torch.where(take, other_active, active)


def solve(x: Tensor, plan: Plan, inner: int) -> tuple[Tensor, Tensor]:
    """Return the projections and their records: see `project`."""
    given = _precise(x.detach())
    (one, told), (other, told2) = (
        projections.solve(given, part, inner) for part in _two_plans(x, plan)
    )
    l2 = _bound(plan, told.shape[:-1], told)
    value = torch.empty_like(x)
    ball = as_rows(one, plan.n)
    sparse, written = as_rows(other, plan.n).contiguous(), rows_to_write(value, ball)
    found = told2[..., SCALE], told2[..., ACTIVE].to(torch.int8)
    take = _choose(ball, sparse, written, found, l2)
    bring_back(written, value)
    reads = told[..., EVALUATIONS] + told2[..., EVALUATIONS]
    records = torch.where(take[..., None], told2, told)
    records[..., EVALUATIONS] = reads
    return value, records
