"""First factors for non-negative matrix factorization."""

import numpy as np
from sklearn.utils.extmath import randomized_svd

from .data import Floats, Matrix, entries

INITS = ("nndsvda", "random", "custom")


def random_factors(
    X: Matrix, count: int, random_state: np.random.RandomState
) -> tuple[Floats, Floats]:
    """Return |normal| codes (r x n) and components whose product is about as large as X."""
    scale = np.sqrt(_mean(X) / count)
    sizes = ((count, X.shape[0]), (count, X.shape[1]))
    codes, components = (
        (scale * abs(random_state.standard_normal(size))).astype(X.dtype) for size in sizes
    )
    return codes, components


def nndsvda(
    X: Matrix, count: int, random_state: np.random.RandomState
) -> tuple[Floats, Floats]:
    """Return codes (r x n) and components from the singular vectors of X, zeros filled in.

    Every pair of singular vectors u, v is replaced by its positive parts or its negative parts,
    whichever pair is longer, at the same singular value; zeros become the mean of X (the variant
    "a" of Boutsidis and Gallopoulos 2008: exact zeros would be stuck).
    """
    left, values, right = randomized_svd(X, count, random_state=random_state)
    codes, components = np.empty((count, X.shape[0])), np.empty((count, X.shape[1]))
    for j, (u, value, v) in enumerate(zip(left.T, values, right, strict=True)):
        pairs = [(np.maximum(sign * u, 0), np.maximum(sign * v, 0)) for sign in (1, -1)]
        lengths = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in pairs]
        best = int(np.argmax(lengths))
        for out, part in zip((codes, components), pairs[best], strict=True):
            norm = np.linalg.norm(part)
            out[j] = part * (np.sqrt(value * lengths[best]) / norm) if norm > 0 else 0
    mean = _mean(X)
    for factor in (codes, components):
        factor[factor < 1e-6 * np.sqrt(mean)] = mean
    return codes.astype(X.dtype), components.astype(X.dtype)


def _mean(X: Matrix) -> float:
    return float(entries(X).sum(dtype=np.float64)) / (X.shape[0] * X.shape[1])
