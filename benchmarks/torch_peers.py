"""A projection by sorting, written in PyTorch: what one would do without this library."""

import torch

Tensor = torch.Tensor


def sorting(x: Tensor, sparseness: float) -> Tensor:
    """Project rows by sorting, in differentiable PyTorch: the closed form on every prefix."""
    n = x.shape[-1]
    rho = 1 + (1 - sparseness) * (n**0.5 - 1)
    w = x.abs()
    with torch.no_grad():
        first = int(rho**2) + 1
        ordered = w.sort(-1, descending=True).values
        d = torch.arange(first, n + 1, dtype=x.dtype, device=x.device)
        sums = ordered.cumsum(-1)[..., first - 1 :]
        squares = ordered.square().cumsum(-1)[..., first - 1 :]
        spread = (d * squares - sums.square()).clamp(min=0)
        alpha = ((sums - rho * (spread / (d - rho**2)).sqrt()) / d).amax(-1, keepdim=True)
        inside = w > alpha
    count = inside.sum(-1, keepdim=True)
    kept = torch.where(inside, w, 0.0)
    mean = kept.sum(-1, keepdim=True) / count
    deviation = torch.where(inside, w - mean, 0.0)
    beta = (deviation.square().sum(-1, keepdim=True) / (1 - rho**2 / count)).sqrt()
    return torch.where(inside, rho / count + deviation / beta, 0.0) * x.sign()
