"""The derivatives of a solved projection as methods: what `Projection` works with on tensors."""

import math
from typing import Any, NamedTuple

import torch

from ...engines.arrays import product
from ...engines.arrays.products import Changes, Products
from ...plan import Plan
from ...projection import KEPT, L1, SCALE
from .engines import Solved, as_array, engine_for
from .functions import products_of
from .tensors import XP, Tensor, Vectors, batch_of, check_out, is_watched, rows_of, vectors_last


class TensorDerivatives(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it, axes of the vectors last."""

    at: Solved
    records: Tensor
    axes: tuple[int, ...]

    @staticmethod
    def of(vectors: Vectors, value: Tensor, records: Tensor, plan: Plan) -> "TensorDerivatives":
        """Keep copies: what the user does to the result must not change its derivatives."""
        value, scale, kept = value.detach().clone(), records[..., SCALE], records[..., KEPT]
        x = vectors.tensor.detach().clone() if plan.needs_x else None
        at = Solved(value, scale, kept.to(torch.int8), None, x, plan, vectors.inner)
        return TensorDerivatives(at, records, vectors.axes)

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
        engine = engine_for(self.at.value)
        if engine.can_multiply(self.at.plan) and not is_watched(given):
            return self._back(engine.product(self.at, self.records, given, reverse=reverse))
        rows = rows_of(given, self.at.inner)
        return self._back(product(products_of(self.at), rows, reverse=reverse))

    def jacobian(self) -> Tensor:
        """Return the dense Jacobian: its rows are the transposed products with unit vectors."""
        batch, n = batch_of(self.at.value, self.at.inner), self.at.plan.n

        def repeated(tensor: Tensor | None) -> Tensor | None:
            if tensor is None:
                return None
            return tensor.reshape(*batch, 1, n).expand(*batch, n, n)

        value = repeated(self.at.value)
        assert value is not None
        assert self.at.kept is not None
        scale, kept = (
            numbers.unsqueeze(-1).expand(*batch, n) for numbers in (self.at.scale, self.at.kept)
        )
        at = Products(value, scale, repeated(self.at.x), kept, self.at.plan, XP)
        units = torch.eye(n, dtype=value.dtype, device=value.device).expand(*batch, n, n)
        rows: Tensor = product(at, units, reverse=True)
        return rows

    def target_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        first, second = products_of(self.at).by_norms()
        return self._back(first), self._back(second)

    def sparseness_gradient(self) -> Tensor | None:
        """Return the derivative by the sparseness, along which l1/l2 falls by sqrt(n) - 1."""
        if self.at.plan.both_norms:
            return None
        # As if both norms had been given: zero where the entries are all equal.
        at = products_of(self.at, both_norms=True)
        ratio = torch.full_like(self.records[..., L1], 1 - math.sqrt(self.at.plan.n))
        l1_stays = self.at.plan.options.l1 is not None
        norm = -ratio * at.inverse_ratio[..., 0] if l1_stays else None
        return self._back(at.tangent(None, Changes(ratio, norm, None))[0])

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if batch_of(self.at.value, self.at.inner) else self.at.plan.n

    def as_numpy(self, array: Tensor) -> Any:
        """Return a tensor of any device as a NumPy array, bfloat16 as float32."""
        array = array.detach().cpu()
        return as_array(array.float() if array.dtype == torch.bfloat16 else array)

    def _back(self, tensor: Tensor) -> Tensor:
        tensor = tensor.reshape(self.at.value.shape)
        return Vectors(tensor, self.at.inner, self.axes).back(tensor)
