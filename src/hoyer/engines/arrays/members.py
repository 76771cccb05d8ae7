"""Vectors of several arrays that share a sparseness, by plain operations of their library."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...sample import sample_sizes
from .namespace import Namespace
from .project import summary, sums


class Members:
    """Vectors of several arrays, as `hoyer.price` looks at them.

    Parameters
    ----------
    rows : sequence of arrays
        With the vectors in the last axis.
    nonnegative : bool
        Whether the entries themselves count, not their magnitudes.
    xp : Namespace
        Their library.
    fetch : callable
        Brings a list of arrays to the host, as NumPy arrays of doubles; the host waits for it.
    send : callable
        Brings a NumPy array to where one of the rows is.
    """

    def __init__(
        self,
        rows: Sequence[Any],
        nonnegative: bool,
        xp: Namespace,
        fetch: Callable[[list[Any]], list[Any]],
        send: Callable[[Any, Any], Any],
    ) -> None:
        self._rows, self._nonnegative, self._xp = rows, nonnegative, xp
        self._fetch, self._send = fetch, send
        self.batches = [tuple(one.shape[:-1]) for one in rows]
        self.lengths = [int(one.shape[-1]) for one in rows]
        self._ends = np.cumsum([math.prod(batch) for batch in self.batches])[:-1]

    def summary(self) -> Any:
        """Return what `price.SUMMARY` names, a row per vector."""
        return self._told([summary(self._entries(rows), self._xp) for rows in self._rows])

    def look(self, pivots: Any, references: Any) -> Any:
        """Return what `price.SUMS` names, a row per vector; a reference is not needed."""
        xp, parts = (
            self._xp,
            zip(self._rows, np.split(pivots, self._ends), self.batches, strict=True),
        )
        return self._told(
            [
                sums(self._entries(rows), self._send(above.reshape(batch), rows), xp).told(xp)
                for rows, above, batch in parts
            ]
        )

    def sample(self) -> list[tuple[Any, Any]] | None:
        """Return some entries of some vectors, as `Sample` takes them; None of a few."""
        counts = [math.prod(batch) for batch in self.batches]
        sizes = sample_sizes(self.lengths, counts)
        if sizes is None:
            return None
        starts = np.cumsum([0, *counts[:-1]])
        there = [i for i, count in enumerate(counts) if count]
        chosen = [self._thinned(i, *sizes[i]) for i in there]
        fetched = self._fetch([entries for _, entries in chosen])
        return [
            (starts[i] + vectors, entries if self._nonnegative else abs(entries))
            for i, (vectors, _), entries in zip(there, chosen, fetched, strict=True)
        ]

    def between(self, lows: Any, highs: Any, references: Any) -> None:
        """Offer no such pass: what comes of it has no shape beforehand."""

    def _thinned(self, number: int, many: int, width: int) -> tuple[Any, Any]:
        """Return the numbers of some vectors of an array, and some entries of each."""
        n = self.lengths[number]
        rows = self._xp.library.reshape(self._rows[number], (-1, n))
        step, every = max(1, rows.shape[0] // many), n // width
        some = rows[::step, every // 2 :: every]
        return np.arange(0, rows.shape[0], step), some[:, :width]

    def _entries(self, rows: Any) -> Any:
        return rows if self._nonnegative else abs(rows)

    def _told(self, columns: list[Any]) -> Any:
        """Return numbers in the last axis of many arrays as the rows of one, on the host."""
        flat = [self._xp.library.reshape(one, (-1, one.shape[-1])) for one in columns]
        return np.concatenate(self._fetch(flat))
