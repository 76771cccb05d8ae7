"""Data in a Dask array: products with it are passes over its blocks of rows, which come and go."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes
from numpy.random import RandomState

from ..families import calling
from ..families.dask.arrays import floats_of, is_known, restored, together
from .data import Floats

OVERSAMPLES = 10
"""Columns more than wanted, from which singular vectors are found."""
POWER_ITERATIONS = 4
MERGED = 8
"""Sums of blocks that are added up at a time."""


def rows_of(X: Any) -> da.Array:
    """Return a Dask array of samples as whole rows of float32 or float64; nothing is computed.

    Blocks have the rows that they had, unless they would be too large with all columns.
    """
    if isinstance(X, da.Array) and X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: X has shape {X.shape}")
    with calling("X"):
        X, _ = floats_of(X, -1)
    if X.dtype == np.float16:
        X = X.astype(np.float64)
    if X.numblocks[1] == 1:
        return X
    most = parse_bytes(dask.config.get("array.chunk-size"))
    if max(X.chunks[0], default=0) * X.shape[1] * X.dtype.itemsize > most:
        return together(X, (1,))
    return X.rechunk({1: -1})


def blocks_of(X: da.Array) -> Iterator[Floats]:
    """Return the blocks of rows one after the other, computed one at a time."""
    for i in range(X.numblocks[0]):
        (block,) = dask.compute(X.blocks[i])
        if len(block):
            yield block


@contextmanager
def naming_block(start: int, stop: int) -> Iterator[None]:
    """Let errors say in which block of rows they were found."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} (in the block X[{start}:{stop}])") from None


def learn_blocks(X: Any, learn: Callable[[Floats], Any]) -> None:
    """Learn from the blocks of rows, one after the other; none stays in memory."""
    start = 0
    for block in blocks_of(rows_of(X)):
        stop = start + len(block)
        with naming_block(start, stop):
            learn(block)
        start = stop


class Rows:
    """A data matrix that never is in memory as a whole; see `hoyer.decomposition.data`.

    Parameters
    ----------
    X : dask.array.Array
        Whole rows of float32 or float64, in blocks.
    """

    def __init__(self, X: da.Array) -> None:
        if not is_known(X.shape):
            raise ValueError(
                "X has blocks of unknown sizes, and the number of samples is needed: call "
                "X.compute_chunk_sizes() first"
            )
        if not X.shape[0]:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape})")
        self._set(X)
        parts = [dask.delayed(_summary)(block) for block in self._blocks]
        found = np.array(dask.compute(*parts))
        for number, (least, most, _) in enumerate(found):
            if not math.isfinite(least) or not math.isfinite(most):
                start, stop = self._ends[number : number + 2]
                raise ValueError(f"Input X contains NaN or infinity in the block X[{start}:{stop}]")
        self.least, self.most = float(found[:, 0].min()), float(found[:, 1].max())
        self.total = float(found[:, 2].sum())

    def _set(self, X: da.Array) -> None:
        self.array, self.shape, self.dtype, self.size = X, X.shape, X.dtype, X.size
        self._ends = [0, *np.cumsum(X.chunks[0]).tolist()]
        self._blocks = [
            block for block, rows in zip(X.to_delayed().ravel(), X.chunks[0], strict=True) if rows
        ]
        self._ends = sorted(set(self._ends))

    def __len__(self) -> int:
        return int(self.shape[0])

    def __mul__(self, factor: Any) -> "Rows":
        result = object.__new__(Rows)
        result._set(self.array * factor)
        for name in ("least", "most", "total"):
            setattr(result, name, getattr(self, name) * float(factor))
        return result

    def __matmul__(self, right: Floats) -> Floats:
        """Return X @ right, which has as many rows as X."""
        shared = dask.delayed(np.ascontiguousarray(right))
        products = dask.compute(*(dask.delayed(_times)(block, shared) for block in self._blocks))
        return np.concatenate(products)

    def __getitem__(self, chosen: Any) -> Floats:
        """Return some rows, in any order."""
        order = np.argsort(chosen)
        rows = np.empty((len(order), self.shape[1]), self.dtype)
        (rows[order],) = dask.compute(self.array[np.asarray(chosen)[order]])
        return rows

    def any(self, axis: int) -> Any:
        """Return which rows have an entry other than zero."""
        (found,) = dask.compute((self.array != 0).any(axis=axis))
        return found

    def transposed_times(self, left: Floats) -> Floats:
        """Return left @ X, for `left` with as many columns as X has rows."""
        product: Floats = self._summed(_cross, left)
        return product

    def squared_norm(self) -> float:
        """Return the squared Frobenius norm, added up in float64."""
        return float(self._summed(_square))

    def squared_distance(self, codes: Floats, components: Floats) -> float:
        """Return the squared Frobenius norm of X - codes.T @ components; codes are r x n."""
        return float(self._summed(_distance, codes, shared=components))

    def singular_vectors(
        self, count: int, random_state: RandomState
    ) -> tuple[Floats, Floats, Floats]:
        """Return the first left singular vectors, values and right ones, about.

        By power iterations, as scikit-learn's `randomized_svd`, each of them one pass.
        """
        columns = min(count + OVERSAMPLES, *self.shape)
        basis = random_state.standard_normal((self.shape[1], columns)).astype(self.dtype)
        for _ in range(POWER_ITERATIONS):
            basis, _ = np.linalg.qr(self._summed(_power, shared=basis))
        left, values, right = np.linalg.svd(self @ basis, full_matrices=False)
        return left[:, :count], values[:count], (right @ basis.T)[:count]

    def shuffled(self, size: int, random_state: RandomState) -> Iterator[Floats]:
        """Return batches of samples: blocks in random order, and samples within each of them."""
        for i in random_state.permutation(len(self._blocks)):
            (block,) = dask.compute(self._blocks[i])
            order = random_state.permutation(len(block))
            for start in range(0, len(order), size):
                yield block[order[start : start + size]]

    def _summed(self, function: Any, columns: Floats | None = None, shared: Any = None) -> Any:
        """Return the sum over all blocks of a function.

        It has the block, those of the columns that belong to its rows, and what all share.
        """
        more = () if shared is None else (dask.delayed(shared),)
        parts = []
        for block, (start, stop) in zip(self._blocks, pairwise(self._ends), strict=True):
            own = () if columns is None else (np.ascontiguousarray(columns[:, start:stop]),)
            parts.append(dask.delayed(function)(block, *own, *more))
        # Invariant: the sum of all parts is that of the blocks; there are fewer each time.
        while len(parts) > 1:
            parts = [dask.delayed(sum)(parts[i : i + MERGED]) for i in range(0, len(parts), MERGED)]
        (result,) = dask.compute(parts[0])
        return result


def _summary(block: Floats) -> tuple[float, float, float]:
    return float(block.min()), float(block.max()), float(block.sum(dtype=np.float64))


def _times(block: Floats, right: Floats) -> Floats:
    return block @ right


def _cross(block: Floats, columns: Floats) -> Floats:
    return columns @ block


def _power(block: Floats, basis: Floats) -> Floats:
    product: Floats = block.T @ (block @ basis)
    return product


def _square(block: Floats) -> float:
    wide = block.astype(np.float64, copy=False)
    return float(np.vdot(wide, wide))


def _distance(block: Floats, columns: Floats, components: Floats) -> float:
    return _square(block - columns.T @ components)


# ---- what estimators do with Dask arrays ----


def encoded(estimator: Any, X: da.Array, chunks: Any) -> da.Array:
    """Return the codes of samples, given as `rows_of` them, lazily, in blocks of these sizes."""
    count = len(estimator.components_)
    return restored(_mapped(estimator, X, "transform", count, X.dtype), (chunks,))


def decoded(estimator: Any, codes: da.Array) -> da.Array:
    """Return the samples that codes, as `rows_of` them, stand for, block by block and lazily."""
    kind = np.result_type(codes.dtype, estimator.components_.dtype)
    return _mapped(estimator, codes, "inverse_transform", estimator.components_.shape[1], kind)


def _mapped(estimator: Any, X: da.Array, method: str, columns: int, dtype: Any) -> da.Array:
    """Return a method of all blocks, as rows of so many columns."""
    # A copy: what is learned later must not change what was asked for now.
    shared = dask.delayed(copy(estimator), pure=True)
    return X.map_blocks(
        _applied,
        estimator=shared,
        method=method,
        columns=columns,
        kind=dtype,
        dtype=dtype,
        chunks=(X.chunks[0], (columns,)),
        meta=np.empty((0, 0), dtype),
        token=f"hoyer-{method}",
    )


def _applied(block: Floats, estimator: Any, method: str, columns: int, kind: Any) -> Floats:
    if not len(block):
        return np.empty((0, columns), kind)
    result: Floats = getattr(estimator, method)(block)
    return result


def in_blocks(codes: Floats, X: Any) -> da.Array:
    """Return codes of samples in memory as a Dask array, divided as the samples are."""
    return da.from_array(codes, chunks=(X.chunks[0], -1))
