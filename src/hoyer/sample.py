"""Some entries of some of many vectors: from them their price can be guessed (`hoyer.price`)."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .numbers import Flags, Floats, Integers, in_units

_SAMPLED = 1 << 15
"""Entries of all samples together, about; fewer are not sampled."""
_SMALLEST_SAMPLE = 256
"""Entries of one vector's sample, at least."""


class Sample:
    """Some entries of some vectors, sorted: from them the price can be guessed.

    Parameters
    ----------
    blocks : sequence of (vectors, entries)
        The numbers of vectors, and as many rows with some of their entries (magnitudes, without
        `nonnegative`).
    """

    def __init__(self, blocks: Sequence[tuple[Integers, Floats]]) -> None:
        by_width: dict[int, list[tuple[Integers, Floats]]] = {}
        for vectors, entries in blocks:
            by_width.setdefault(entries.shape[1], []).append((vectors, entries))
        self._blocks = [
            (np.concatenate([v for v, _ in some]), np.concatenate([e for _, e in some]))
            for some in by_width.values()
        ]

    @staticmethod
    def among(blocks: Sequence[tuple[Integers, Floats]], there: Flags) -> "Sample | None":
        """Return a sample of those vectors that are there, counted without the others."""
        numbers = np.cumsum(there) - 1
        some = [(numbers[v][there[v]], entries[there[v]]) for v, entries in blocks]
        some = [block for block in some if len(block[0])]
        return Sample(some) if some else None

    def price(self, search: Any) -> float | None:
        """Return the price that these entries have in a search for that of all, or None."""
        chosen = np.concatenate([vectors for vectors, _ in self._blocks])
        blocks = [
            _Sorted(in_units(entries, search.units[vectors][:, None]))
            for vectors, entries in self._blocks
        ]
        ends = np.cumsum([len(block.entries) for block in blocks])[:-1]

        def look(pivots: Floats, _: Floats) -> Floats:
            parts = zip(blocks, np.split(pivots, ends), strict=True)
            return np.concatenate([block.sums(part) for block, part in parts])

        summary = np.concatenate([block.summary() for block in blocks], axis=1)
        sizes = (block.entries.shape for block in blocks)
        counts = np.concatenate([np.full(rows, float(width)) for rows, width in sizes])
        _, low, high = search.part(chosen, counts, summary, look).run(None)
        price = 0.5 * low + 0.5 * high
        return price if math.isfinite(price) else None


class _Sorted:
    """Rows of entries, the largest first, with sums up to each of them."""

    def __init__(self, entries: Floats) -> None:
        self.entries = np.sort(entries, axis=1)[:, ::-1]
        self.centre = self.entries.mean(axis=1, keepdims=True)
        t = self.entries - self.centre
        start = np.zeros_like(self.centre)
        self.sum = np.concatenate([start, np.cumsum(t, axis=1)], axis=1)
        self.squares = np.concatenate([start, np.cumsum(t * t, axis=1)], axis=1)
        ends = np.full_like(self.centre, math.inf)
        self.bounded = np.concatenate([ends, self.entries, -ends], axis=1)

    def summary(self) -> Floats:
        """Return what `SUMMARY` names, in rows."""
        deviation = np.sqrt(self.squares[:, -1] / self.entries.shape[1])
        return np.stack([self.entries[:, -1], self.entries[:, 0], self.centre[:, 0], deviation])

    def sums(self, pivots: Floats) -> Floats:
        """Return what `SUMS` names."""
        count = np.count_nonzero(self.entries > pivots[:, None], axis=1)
        at = np.arange(len(count)), count
        mean = self.sum[at] / count
        variance = np.maximum(self.squares[at] / count - mean * mean, 0.0)
        below, above = self.bounded[at[0], count + 1], self.bounded[at]
        mean = mean + self.centre[:, 0]
        return np.stack([count, mean, np.sqrt(variance), below, above], axis=1)


def sample_sizes(lengths: Sequence[int], rows: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return how many vectors of each array to look at, and how many entries of each of them.

    None if all entries are so few that a sample pays no more than a pass over them.
    """
    entries = [n * count for n, count in zip(lengths, rows, strict=True)]
    if sum(entries) < 4 * _SAMPLED:
        return None
    many = max(1, sum(rows))
    width = max(_SMALLEST_SAMPLE, _SAMPLED // many)
    share = min(
        1.0, _SAMPLED / sum(min(n, width) * count for n, count in zip(lengths, rows, strict=True))
    )
    return [
        (min(count, math.ceil(share * count)), min(n, width))
        for n, count in zip(lengths, rows, strict=True)
    ]


def thinned(array: Any, inner: int, rows: int, width: int) -> tuple[Integers, Any]:
    """Return the numbers of some vectors, and some entries of each: as many as said, or a few less.

    Parameters
    ----------
    array : array
        With the vectors in its last `inner` axes; of any library that slices as NumPy does.
    inner, rows, width : int
        How many axes a vector has; how many vectors and entries are wanted.
    """
    batch, sizes = (
        tuple(array.shape[: array.ndim - inner]),
        tuple(array.shape[array.ndim - inner :]),
    )
    cut: list[Any] = []
    spare = max(1.0, math.prod(sizes) / width)
    # Every few entries along every axis: entries next to each other may be alike.
    for axis, size in enumerate(sizes):
        step = max(1, min(size, int(spare ** (1 / (inner - axis)))))
        spare = max(1.0, spare / step)
        cut.append(slice(step // 2, None, step))
    count = math.prod(batch)
    vectors = np.arange(count)[:: max(1, count // rows)][:rows]
    entries = array[(*[slice(None)] * len(batch), *cut)]
    if batch:
        entries = entries[np.unravel_index(vectors, batch)]
    entries = entries.reshape(len(vectors), -1)
    found = entries.shape[1]
    return vectors, entries[:, :: max(1, found // width)][:, :width]
