"""The data matrix, dense, sparse or in blocks: products with it, its norm, its scale."""

import math
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

Floats: TypeAlias = npt.NDArray[Any]
Matrix: TypeAlias = Any
"""A dense array, a SciPy sparse array or matrix by rows or columns, or `Rows` of a Dask array."""

Array = TypeVar("Array")

_BLOCK = 2**20
"""Entries of a dense residual to form at a time."""


def is_in_blocks(X: Matrix) -> bool:
    """Whether X are `hoyer.decomposition.dask.Rows`, a file that only those with Dask can load."""
    return hasattr(X, "squared_distance")


def rows_times(rows: Floats, X: Matrix) -> Floats:
    """Return rows @ X, dense and by rows."""
    if is_in_blocks(X):
        return np.ascontiguousarray(X.transposed_times(rows))
    return np.ascontiguousarray(rows @ X)


def rows_times_transposed(rows: Floats, X: Matrix) -> Floats:
    """Return rows @ X.T, dense and by rows."""
    if sparse.issparse(X) or is_in_blocks(X):
        return np.ascontiguousarray((X @ rows.T).T)
    return np.ascontiguousarray(rows @ X.T)


def entries(X: Matrix) -> Floats:
    """Return the stored entries of a matrix in memory."""
    return np.asarray(X.data if sparse.issparse(X) else X)


def size(X: Matrix) -> int:
    """Return how many entries are stored."""
    return int(X.size if is_in_blocks(X) else entries(X).size)


def total(X: Matrix) -> float:
    """Return the sum of all entries, added up in float64."""
    return float(X.total if is_in_blocks(X) else entries(X).sum(dtype=np.float64))


def largest(X: Matrix) -> float:
    """Return the largest magnitude."""
    if is_in_blocks(X):
        return float(max(X.most, -X.least))
    values = entries(X)
    return float(max(values.max(), -values.min())) if values.size else 0.0


def inner(a: Floats, b: Floats) -> float:
    """Return the sum of products of entries, added up in float64."""
    return float(np.vdot(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)))


def squared_norm(X: Matrix) -> float:
    """Return the squared Frobenius norm."""
    if is_in_blocks(X):
        return float(X.squared_norm())
    values = entries(X)
    return inner(values, values)


def to_moderate_scale(X: Matrix, dtype: Any = None) -> tuple[Matrix, float]:
    """Return X in a unit in which squares neither overflow nor vanish, and that unit.

    The unit is a power of two, so nothing is rounded; 1, and X as it is, for ordinary data. `dtype`
    is the type that the squares will have, if not that of X.
    """
    most = largest(X)
    limit = 2.0**100 if (dtype or X.dtype) == np.float64 else 2.0**20
    if most == 0 or 1 / limit <= most <= limit:
        return X, 1.0
    # The unit itself must be a normal number of this type, and so must its inverse.
    bound = 1000 if X.dtype == np.float64 else 120
    exponent = min(max(math.frexp(most)[1], -bound), bound)
    return scaled(X, 2.0**-exponent), 2.0**exponent


def scaled(values: Array, factor: float) -> Array:
    """Return values times a factor, in their own type; the same array for the factor 1."""
    array: Any = values
    return values if factor == 1 else array * array.dtype.type(factor)


def row_norms(rows: Floats) -> Floats:
    """Return the norms of rows of any scale; no square overflows or vanishes."""
    largest = abs(rows).max(axis=1)
    largest[largest == 0] = 1
    shares = rows / largest[:, None]
    return np.asarray(largest * np.sqrt(np.einsum("ij,ij->i", shares, shares)))


def residual_norm(X: Matrix, codes: Floats, components: Floats) -> float:
    """Return the Frobenius norm of X - codes.T @ components; codes are r x n.

    Dense residuals are formed in blocks; for sparse X the square is expanded, which is exact to
    about the square root of eps.
    """
    if sparse.issparse(X):
        cross = inner(rows_times(codes, X), components)
        square = squared_norm(X) - 2 * cross + inner(codes @ codes.T, components @ components.T)
        return math.sqrt(max(square, 0.0))
    if is_in_blocks(X):
        return math.sqrt(X.squared_distance(codes, components))
    square = 0.0
    block = max(_BLOCK // X.shape[1], 1)
    for start in range(0, X.shape[0], block):
        part = slice(start, start + block)
        square += squared_norm(X[part] - codes[:, part].T @ components)
    return math.sqrt(square)
