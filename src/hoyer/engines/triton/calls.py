"""Plans in the kernels' terms; targets that are resolved on the device."""

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import triton

from ...options import RULES, Options
from ...plan import Plan
from ...target import Target, square_root
from ..arrays.closed_form import noise_of
from ..arrays.namespace import namespace
from . import masks, targets
from .device import Case
from .launch import Programs, Tape, alignment
from .layout import as_rows
from .start import normal_start

Tensor: TypeAlias = torch.Tensor


class Call(NamedTuple):
    """What the kernels are told about a plan."""

    n: int
    goals: Tensor | None
    """The targets of all vectors, if each has its own."""
    numbers: tuple[float, ...]
    """The target otherwise, as in `device.goal_of`."""
    start: float
    case: Case
    masks: tuple[Tensor, int] | None
    """Which entries count, a byte for each, and how far the masks of two vectors lie apart."""
    programs: Programs
    """What was launched for such calls."""
    table: Tensor | None = None
    """Where the vectors begin, if they are scattered: see `Case`."""


def call_for(x: Tensor, plan: Plan, inner: int, *, remember: bool) -> Call:
    """Return a plan in the kernels' terms, made once for plain numbers."""
    form = ("triton", x.dtype, remember)
    known: Call | None = plan.forms.get(form)
    if known is not None:
        return known
    target, n, signed, mask = plan.target, plan.n, not plan.nonnegative, None
    goals, start = plan.forms.get(_GOALS), 1.0
    numbers: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0)
    if plan.where is not None:
        where = as_rows(plan.where, n)
        mask = where.view(torch.uint8), where.stride(0)
        if goals is None:
            goals = _goals((*target, plan.lengths), x, inner)
    elif goals is not None:
        pass
    elif isinstance(target.ratio, np.ndarray) and target.ratio.size == 1:
        numbers = tuple(float(part[0]) for part in target[:4])
        if plan.rule != "free":
            start = normal_start((n - numbers[1]) / n, magnitudes=signed)
    else:
        goals = _goals(target, x, inner)
    case, programs = _case_for(
        n,
        x.dtype,
        plan.rule,
        signed=signed,
        # Only vectors that keep their direction are concerned: no need to compile for others.
        l1_given=plan.l1_given and plan.only_increase,
        only_increase=plan.only_increase,
        own_goals=goals is not None,
        with_scale=remember,
        at_most=plan.at_most,
        masked=mask is not None,
    )
    if goals is not None:
        return Call(n, goals, numbers, start, case, mask, programs)
    call = plan.forms[form] = Call(n, goals, numbers, start, case, mask, Programs())
    return call


@lru_cache(maxsize=256)
def _case_for(n: int, dtype: torch.dtype, rule: str, **switches: bool) -> tuple[Case, Programs]:
    """Return what such calls share, and what was launched for those that bring their targets."""
    noise = noise_of(dtype, torch.float64, namespace(torch))
    return Case(*noise, rule=RULES[rule], **switches), Programs()


_GOALS = "triton, goals"
"""The form of a plan with the targets of all vectors, where `measure` or `resolve` has them."""


_MEASURING = Programs()


def measure(plan: Plan, table: Tensor, batch: torch.Size) -> Plan:
    """Return a plan with the lengths that its mask leaves, and the targets that go with them.

    `table` has the four numbers of a target for each length up to n. One launch instead of a sum
    over booleans, which is slow, a lookup, and several operations that bring it into order.
    """
    assert plan.where is not None
    mask = as_rows(plan.where, plan.n)
    count = mask.shape[0]
    lengths = mask.new_empty(count, dtype=torch.int64)
    goals = table.new_empty((count, masks.COLUMNS.value))
    width = min(masks.BLOCK.value, triton.next_power_of_2(plan.n))
    if count:
        given = mask.view(torch.uint8), table, lengths, goals
        sizes = count, plan.n, mask.stride(0)
        addresses = [t.data_ptr() for t in given]
        device = mask.get_device()
        key = *sizes, device, alignment(addresses)
        if not _MEASURING.run(key, addresses, device):
            tape = Tape(*given)
            with torch.cuda.device_of(mask):
                programs = -(-count * width // masks.BLOCK.value)
                tape.launch(masks.measure_masks, programs, *given, *sizes, width)
            _MEASURING.keep(key, tape)
    target = Target(*goals[:, :4].view(*batch, 4).unbind(-1))
    return replace(plan, target=target, lengths=lengths.view(batch), forms={_GOALS: goals})


_RESOLVING = Programs()


def resolve(
    n: int, options: Options, plain: Options, batch: torch.Size, like: Tensor
) -> Plan | None:
    """Return the plan for targets of which some are tensors; None for pairs of norms.

    It keeps `plain`, options without tensors. One launch instead of some hundred operations on a
    few numbers each.
    """
    sparseness, l1, l2 = options[:3]
    if sparseness is None and l2 is not None:
        return None
    count = batch.numel()
    norm = l1 if l1 is not None else 1.0 if l2 is None or isinstance(l2, str) else l2
    goals = like.new_empty((count, targets.COLUMNS.value), dtype=torch.float64)
    tensors, numbers, strides = [], [], []
    tolerance = float(torch.finfo(torch.float64).eps)
    for target in (sparseness, norm):
        tensor, number, stride = None, target, 0
        if isinstance(target, torch.Tensor):
            tensor, number = target.detach(), 1.0
            if tensor.is_floating_point():
                tolerance = max(tolerance, torch.finfo(tensor.dtype).eps)
            if tensor.numel() > 1:
                tensor, stride = tensor.expand(batch).contiguous(), 1
        tensors.append(tensor)
        numbers.append(1.0 if number is None else float(number))
        strides.append(stride)
    if count:
        given = goals, *tensors
        addresses = [0 if t is None else t.data_ptr() for t in given]
        device, by = like.get_device(), (sparseness is not None, l1 is not None, options.at_most)
        kinds = tuple(None if t is None else t.dtype for t in tensors)
        key = n, device, count, kinds, *numbers, *strides, tolerance, by, alignment(addresses)
        if not _RESOLVING.run(key, addresses, device):
            tape, programs = Tape(*given), -(-count // targets.BLOCK.value)
            sizes = count, n, *square_root(n), 4 * tolerance
            with torch.cuda.device_of(like):
                tape.launch(
                    targets.resolve_targets,
                    programs,
                    *given,
                    *numbers,
                    *strides,
                    *sizes,
                    *by,
                    enable_fp_fusion=False,
                )
            _RESOLVING.keep(key, tape)
    target = Target(*goals.view(*batch, 4).unbind(-1))
    plan = Plan.of(n, target, plain)
    plan.forms[_GOALS] = goals
    return plan


def _goals(columns: tuple[Any, ...], x: Tensor, inner: int) -> Tensor:
    """Return the numbers of each vector side by side: those of its target, and its length."""
    batch = x.shape[: x.dim() - inner]
    count = batch.numel()
    tensors = (torch.tensor(c, device="cpu") if isinstance(c, np.ndarray) else c for c in columns)
    wide = (c.to(x.device, torch.float64, non_blocking=True) for c in tensors)
    return torch.stack(
        [(c if c.numel() == count else c.expand(batch)).reshape(-1) for c in wide], -1
    )
