"""The derivatives of a solved projection as methods: what `Projection` works with on tensors."""

import math
from typing import Any, NamedTuple

import torch

from ...engines.arrays.products import Linearization, Setting, nearly_constant
from ...projection import KEPT, L1, SCALE
from . import engines
from .engines import Task
from .targets import Changes
from .tensors import Tensor, Vectors, batch_of, check_out, is_watched, length_of, vectors_last


class TensorDerivatives(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it, axes of the vectors last."""

    value: Tensor
    records: Tensor
    x: Tensor | None
    setting: Setting
    axes: tuple[int, ...]
    l1_given: bool
    """Whether l1 stays where the sparseness moves."""

    @staticmethod
    def of(vectors: Vectors, value: Tensor, records: Tensor, task: Task) -> "TensorDerivatives":
        """Keep copies: what the user does to the result must not change its derivatives."""
        n = length_of(vectors.tensor, task.inner)
        setting = task.setting._replace(nearly_constant=nearly_constant(n, task.options))
        needed = setting.rule == "keep" or setting.nearly_constant
        x = vectors.tensor.detach().clone() if needed else None
        l1_given = task.options.l1 is not None
        value = value.detach().clone()
        return TensorDerivatives(value, records, x, setting, vectors.axes, l1_given)

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Tensor:
        """Return the Jacobian, or its transpose, times y."""
        if out is None:
            return self._product(y, reverse=reverse)
        if not isinstance(out, torch.Tensor):
            raise TypeError(f"out must be a tensor, not {type(out).__name__}")
        check_out(out, self._back(self.value))
        with torch.no_grad():
            return out.copy_(self._product(y, reverse=reverse))

    def _product(self, y: Any, *, reverse: bool) -> Tensor:
        shape = self._back(self.value).shape
        given = torch.as_tensor(y)
        if given.shape != shape:
            raise ValueError(
                f"y has shape {tuple(given.shape)}, but the projection has shape {tuple(shape)}"
            )
        if given.device != self.value.device and given.dim() > 0 and isinstance(y, torch.Tensor):
            raise ValueError(f"y is on {given.device}, the projection on {self.value.device}")
        if given.is_complex():
            raise TypeError(f"y has dtype {given.dtype}; give real numbers")
        given = given.to(self.value.device, self.value.dtype)
        along = vectors_last(given, self.axes or tuple(range(-self.setting.inner, 0))).tensor
        if engines.uses_core(self.value) and not is_watched(along):
            records = self.records.reshape(-1, self.records.shape[-1]).numpy()
            result = engines.product(
                self.value, along, self.x, records, self.setting, reverse=reverse
            )
            return self._back(result)
        # The kernels look at results alone, and do not see how nearly constant entries differ.
        seen = engines.uses_kernels(self.value) and not self.setting.nearly_constant
        if seen and not is_watched(along):
            scale, kept = (self.records[..., p] for p in (SCALE, KEPT))
            found = engines.Found(self.value, scale, kept.to(torch.int8), None)
            result = engines.kernels().product(found, along, self.x, self.setting, reverse=reverse)
            return self._back(result)
        at = self._linearization()
        if reverse:
            product, _ = at.cotangent(along, None, by_x=True, by_target=False)
            assert product is not None
        else:
            product, _ = at.tangent(along, Changes(None, None, None))
        return self._back(product)

    def jacobian(self) -> Tensor:
        """Return the dense Jacobian: its columns are the products with unit vectors."""
        inner = self.setting.inner
        batch, n = batch_of(self.value, inner), length_of(self.value, inner)

        def repeated(tensor: Tensor | None) -> Tensor | None:
            if tensor is None:
                return None
            return tensor.reshape(*batch, 1, n).expand(*batch, n, n)

        value = repeated(self.value)
        assert value is not None
        columns = [self.records[..., p].unsqueeze(-1).expand(*batch, n) for p in (SCALE, KEPT)]
        setting = self.setting._replace(inner=1)
        at = Linearization(value, columns[0], repeated(self.x), columns[1], setting)
        units = torch.eye(n, dtype=value.dtype, device=value.device).expand(*batch, n, n)
        rows, _ = at.cotangent(units, None, by_x=True, by_target=False)
        assert rows is not None
        return rows

    def target_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        first, second = self._linearization().by_norms()
        return self._back(first), self._back(second)

    def sparseness_gradient(self) -> Tensor | None:
        """Return the derivative by the sparseness, along which l1/l2 falls by sqrt(n) - 1."""
        if self.setting.both_norms:
            return None
        # As if both norms had been given: zero where the entries are all equal.
        at = self._linearization(self.setting._replace(both_norms=True))
        steep = 1 - math.sqrt(length_of(self.value, self.setting.inner))
        ratio = torch.full_like(self.records[..., L1], steep)
        norm = -ratio * at.drop(at.inverse_ratio) if self.l1_given else None
        return self._back(at.tangent(None, Changes(ratio, norm, None))[0])

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        inner = self.setting.inner
        return None if batch_of(self.value, inner) else length_of(self.value, inner)

    def as_numpy(self, array: Tensor) -> Any:
        """Return a tensor of any device as a NumPy array, bfloat16 as float32."""
        array = array.detach().cpu()
        return engines.as_array(array.float() if array.dtype == torch.bfloat16 else array)

    def _back(self, tensor: Tensor) -> Tensor:
        return Vectors(tensor, self.setting.inner, self.axes).back(tensor)

    def _linearization(self, setting: Setting | None = None) -> Linearization:
        scale, kept = (self.records[..., p] for p in (SCALE, KEPT))
        return Linearization(self.value, scale, self.x, kept, setting or self.setting)
