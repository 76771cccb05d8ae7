"""The derivatives of a solved projection of a DTensor: those of the ranks, at their places."""

from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor

from ....projection import Derivatives
from ..engines import result_as_numpy
from ..tensors import Tensor, check_like
from .places import Place


class ShardedDerivatives(NamedTuple):
    """What this rank knows about its vectors, and where results belong."""

    own: Derivatives[Tensor]
    """Of what this rank has, the axes of the vectors last."""
    whole: Place
    """Where vectors were projected."""
    place: Place
    """Where they came from."""

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> DTensor:
        """Return the Jacobian, or its transpose, times y; which may be the same on all ranks."""
        result = self._back(self.own.product(self._there(y), reverse=reverse))
        if out is None:
            return result
        if not isinstance(out, DTensor):
            raise TypeError(f"out must be a DTensor, not {type(out).__name__}")
        check_like(out, result)
        with torch.no_grad():
            out.copy_(result)
        return out

    def jacobian(self) -> DTensor:
        """Return the dense Jacobian of every vector, where this was projected."""
        return self.whole.of_matrices(self.own.jacobian())

    def target_gradient(self) -> tuple[DTensor, DTensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        by_l1, by_l2 = self.own.target_gradient()
        return self._back(by_l1), self._back(by_l2)

    def sparseness_gradient(self) -> DTensor | None:
        """Return the derivative by the sparseness."""
        found = self.own.sparseness_gradient()
        return None if found is None else self._back(found)

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.place.batch else self.place.length

    def as_numpy(self, array: Any) -> Any:
        """Return a DTensor as a NumPy array, the whole of it on every rank; bfloat16 as float32."""
        return result_as_numpy(array.full_tensor() if isinstance(array, DTensor) else array)

    def _there(self, y: Any) -> Tensor:
        """Return what this rank needs of y, its vectors last."""
        y = y if isinstance(y, torch.Tensor) else torch.as_tensor(y)
        shape = self.place.given_shape
        if tuple(y.shape) != shape:
            raise ValueError(f"y has shape {tuple(y.shape)}, but the projection has shape {shape}")
        return self.whole.take(self.place.last(y))

    def _back(self, local: Tensor) -> DTensor:
        return self.whole.give(local, self.place)
