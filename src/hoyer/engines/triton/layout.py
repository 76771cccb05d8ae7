"""Tensors as rows of neighbouring entries; how many multiprocessors their device has."""

import os
from functools import lru_cache
from typing import TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor


def as_rows(x: Tensor, n: int) -> Tensor:
    """Return the vectors as rows of neighbouring entries; a copy where they lie apart."""
    count = x.numel() // n
    # What a view of negatives shows is not what its memory holds.
    x = x.resolve_neg()
    try:
        flat = x.view(count, n)
    except RuntimeError:
        return x.contiguous().view(count, n)
    return flat if n == 1 or flat.stride(1) == 1 else flat.contiguous()


def rows_to_write(out: Tensor, given: Tensor) -> Tensor:
    """Return rows to write to: those of the result, unless its entries lie apart."""
    try:
        flat = out.detach().view(given.shape)
    except RuntimeError:
        flat = None
    if flat is not None and (flat.shape[1] == 1 or flat.stride(1) == 1) and not out.is_neg():
        return flat
    return torch.empty_like(given, memory_format=torch.contiguous_format)


def bring_back(written: Tensor, out: Tensor) -> None:
    """Copy what was written elsewhere to where it belongs."""
    if written.data_ptr() != out.data_ptr():
        with torch.no_grad():
            out.detach().copy_(written.view(out.shape))


def lie_in_order(x: Tensor) -> bool:
    """Whether memory holds the entries as they are, one after the other."""
    return x.is_contiguous() and not x.is_neg()


def as_lines(x: Tensor, n: int) -> tuple[Tensor, int]:
    """Return a tensor in whose memory the vectors lie as `as_rows` has them, and how far apart."""
    if lie_in_order(x):
        return x, n
    rows = as_rows(x.detach(), n)
    return rows, rows.stride(0)


@lru_cache(maxsize=64)
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; none where programs run one by one."""
    if device.type != "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return 0
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
