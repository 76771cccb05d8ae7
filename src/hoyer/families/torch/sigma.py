"""Hoyer's sparseness in plain tensor operations, which autograd can follow."""

import math

import torch

from ...engines.arrays.products import largest
from .tensors import Tensor, length_of, total, wide_type


def sparseness_of(x: Tensor, inner: int) -> Tensor:
    """Return sigma of the vectors in the last `inner` axes, in the precision of x.

    With mean m and sum of squares V about it over the magnitudes, S = V + n m^2 their sum of
    squares and r the ratio of norms, n - r^2 = n V/S, and sigma = n V / (S (sqrt(n) + r)
    (sqrt(n) - 1)): no digits are lost near sparseness 0. Where sigma is not defined its gradient
    is zero.
    """
    n = length_of(x, inner)
    wide = wide_type(x.device)
    # In units of the largest entry no square overflows or vanishes; sigma does not depend on them.
    size = x.abs()
    unit = largest(size.to(wide), inner)
    size = size.to(wide) / unit
    mean = total(size, inner) / n
    # Autograd keeps the deviations, and nothing else that is wide.
    spread = total((size - mean).square(), inner)
    square = spread + n * mean.square()
    there = (square > 0) & (n > 1)
    safe = torch.where(there, square, 1.0)
    root = math.sqrt(n) if isinstance(n, int) else n**0.5
    step = root - 1 if n > 1 else 1.0
    sigma = n * spread / (safe * (root + n * mean / safe.sqrt()) * step)
    sigma = with_value(sigma, sigma.detach().clamp(0, 1))
    result = torch.where(there, sigma, math.nan)
    return result.reshape(x.shape[: x.dim() - inner]).to(x.dtype)


def with_value(computed: Tensor, value: Tensor) -> Tensor:
    """Return another value with the derivatives of what was computed."""
    return computed - computed.detach() + value
