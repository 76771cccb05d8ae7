"""Hoyer's sparseness in plain tensor operations, which autograd can follow."""

import math

from .tensors import Tensor, length_of, wide_type


def sparseness_of(x: Tensor, inner: int) -> Tensor:
    """Return sigma of the vectors in the last `inner` axes, in the precision of x.

    With mean m and sum of squares V about it over the magnitudes, S their sum of squares and r the
    ratio of norms, n - r^2 = n V/S, and sigma = n V / (S (sqrt(n) + r) (sqrt(n) - 1)): no digits
    are lost near sparseness 0.
    """
    n = length_of(x, inner)
    dims = tuple(range(-inner, 0))
    size = x.to(wide_type(x.device)).abs()
    # In units of the largest entry no square overflows or vanishes; sigma does not depend on them.
    size = size / size.detach().amax(dims, keepdim=True)
    total = size.sum(dims, keepdim=True)
    square = size.square().sum(dims)
    spread = (size - total / n).square().sum(dims)
    ratio = total.reshape(square.shape) / square.sqrt()
    root = n**0.5
    result = n * spread / (square * (root + ratio) * (root - 1) if n > 1 else math.nan * square)
    return result.to(x.dtype)
