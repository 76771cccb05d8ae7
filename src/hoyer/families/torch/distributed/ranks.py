"""What ranks that share vectors tell each other: sums, which can be differentiated.

Between two of these functions every rank computes as if it were alone, also on numbers that are
the same on all of them: the gradient by such a number is the sum of what all ranks say. Where it
leaves for a DTensor, on which all of them agree, `spoken_once` sees to it that it counts once.
"""

from typing import Any

import torch
import torch.distributed as dist

from ....engines.arrays.namespace import Torch
from ..tensors import Tensor
from .places import Place


def summed(numbers: Tensor, groups: list[Any], operation: Any = dist.ReduceOp.SUM) -> Tensor:
    """Return the sum (or the maximum) of what the ranks have; `numbers` are overwritten."""
    numbers = numbers.contiguous()
    for group in groups:
        dist.all_reduce(numbers, operation, group=group)
    return numbers


class _Sum(torch.autograd.Function):
    """The sum over ranks of what each of them has."""

    @staticmethod
    def forward(ctx: Any, numbers: Tensor, groups: list[Any]) -> Tensor:
        ctx.groups = groups
        return summed(numbers.clone(), groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return all_summed(gradients[0], ctx.groups), None


class _Heard(torch.autograd.Function):
    """A number on which all ranks agree: its gradient is what they all say."""

    @staticmethod
    def forward(ctx: Any, number: Tensor, groups: list[Any]) -> Tensor:
        ctx.groups = groups
        return number.view_as(number)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return all_summed(gradients[0], ctx.groups), None


class _Once(torch.autograd.Function):
    """A number on which all ranks agree, and about which one of them speaks."""

    @staticmethod
    def forward(ctx: Any, number: Tensor, speaks: bool) -> Tensor:
        ctx.speaks = speaks
        return number.view_as(number)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0]
        if not ctx.speaks:
            # Not just zeros: who differentiates them again meets the others at collectives.
            gradient = gradient.masked_fill(torch.ones_like(gradient, dtype=torch.bool), 0.0)
        return gradient, None


all_summed: Any = _Sum.apply
heard_of_all: Any = _Heard.apply
_once: Any = _Once.apply


def spoken_once(number: Tensor, place: Place) -> Tensor:
    """Return a number on which all ranks agree, for a DTensor that has it on all of them."""
    once: Tensor = _once(number, place.number == 0)
    return once


class Ranks(Torch):
    """PyTorch's functions for rows whose entries several ranks have."""

    def __init__(self, place: Place) -> None:
        super().__init__(torch)
        self._groups, self._length = place.groups, place.length
        self.total = self._total
        self.highest, self.lowest = self._highest, self._lowest

    def length(self, entries: Tensor) -> int:
        """Return how many entries vectors have."""
        return self._length

    def _total(self, entries: Tensor) -> Tensor:
        total: Tensor = all_summed(entries.sum(-1, keepdim=True), self._groups)
        return total

    def _highest(self, entries: Tensor) -> Tensor:
        # A rank may have none.
        least = torch.full_like(entries[..., :1].sum(-1, keepdim=True), -torch.inf)
        own = torch.cat([entries.detach(), least], -1).amax(-1, keepdim=True)
        return summed(own, self._groups, dist.ReduceOp.MAX)

    def _lowest(self, entries: Tensor) -> Tensor:
        return -self._highest(-entries)
