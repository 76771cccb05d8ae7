"""The derivatives of a solved projection as methods: what `Projection` works with on tensors."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ...plan import Plan
from .engines import Solved, engine_for, from_records, result_as_numpy
from .functions import products_of
from .tensors import (
    Tensor,
    Vectors,
    batch_of,
    check_out,
    is_watched,
    moved_back,
    refuse_distributed,
    rows_of,
    vectors_last,
)


class TensorDerivatives(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it, axes of the vectors last."""

    at: Solved
    axes: tuple[int, ...]

    @staticmethod
    def of(vectors: Vectors, value: Tensor, records: Tensor, plan: Plan) -> "TensorDerivatives":
        """Keep copies: what the user does to the result must not change its derivatives."""
        x, value = vectors.tensor.detach(), value.detach().clone()
        if plan.where is not None:
            plan = replace(plan, where=plan.where.clone())
        at = from_records(x.clone() if plan.needs_x else x, value, records, plan, vectors.inner)
        return TensorDerivatives(at, vectors.axes)

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Tensor:
        """Return the Jacobian, or its transpose, times y."""
        if out is None:
            return self._product(y, reverse=reverse)
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"out must be a tensor, not {type(out).__name__}")
        check_out(out, self._back(self.at.value))
        with torch.no_grad():
            return out.copy_(self._product(y, reverse=reverse))

    def _product(self, y: Any, *, reverse: bool) -> Tensor:
        shape = self._back(self.at.value).shape
        given = torch.as_tensor(y)
        refuse_distributed("y", given, self.at.value)
        if given.shape != shape:
            raise ValueError(
                f"y has shape {tuple(given.shape)}, but the projection has shape {tuple(shape)}"
            )
        if given.device != self.at.value.device and given.dim() > 0 and isinstance(y, torch.Tensor):
            raise ValueError(f"y is on {given.device}, the projection on {self.at.value.device}")
        if given.is_complex():
            raise TypeError(f"y has dtype {given.dtype}; give real numbers")
        given = given.to(self.at.value.device, self.at.value.dtype)
        given = vectors_last(given, self.axes or tuple(range(-self.at.inner, 0))).tensor
        if not is_watched(given):
            found = engine_for(self.at.value).product(self.at, given, reverse=reverse)
            if found is not None:
                return self._back(found[0])
        rows = rows_of(given, self.at.inner)
        return self._back(products_of(self.at).product(rows, reverse=reverse))

    def jacobian(self) -> Tensor:
        """Return the dense Jacobian."""
        rows: Tensor = products_of(self.at).jacobian()
        return rows

    def target_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        first, second = products_of(self.at).by_norms()
        return self._back(first), self._back(second)

    def sparseness_gradient(self) -> Tensor | None:
        """Return the derivative by the sparseness."""
        if self.at.plan.both_norms:
            return None
        return self._back(products_of(self.at).by_sparseness())

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if batch_of(self.at.value, self.at.inner) else self.at.plan.n

    def as_numpy(self, array: Tensor) -> Any:
        """Return a tensor of any device as a NumPy array, bfloat16 as float32."""
        return result_as_numpy(array)

    def _back(self, tensor: Tensor) -> Tensor:
        return moved_back(tensor.reshape(self.at.value.shape), self.at.inner, self.axes)
