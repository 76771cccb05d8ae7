"""Forms of a call, vectors for them, and how results of two array libraries are compared."""

import numpy as np

from hoyer.options import Options

DEFAULTS = Options(None, None, None, -1, False, False, "auto", True)

FORMS = {
    "sparseness": {"sparseness": 0.7},
    "columns": {"sparseness": 0.6, "axis": 1},
    "two axes": {"sparseness": 0.6, "axis": (0, 2)},
    "all axes": {"sparseness": 0.8, "axis": None},
    "norms": {"l1": 1.9, "l2": 1.1},
    "l1": {"sparseness": 0.5, "l1": 3.0},
    "l2": {"sparseness": 0.6, "l2": 2.5},
    "keep": {"sparseness": 0.7, "l2": "keep"},
    "keep, columns": {"sparseness": 0.7, "l2": "keep", "axis": 0},
    "nearest": {"sparseness": 0.7, "l2": "nearest"},
    "per vector": {"sparseness": np.linspace(0.3, 0.9, 12).reshape(3, 4)},
    "per vector, axes": {"sparseness": np.linspace(0.3, 0.9, 4).reshape(1, 4, 1), "axis": (0, 2)},
    "both per vector": {"l1": np.linspace(1.3, 1.9, 4), "l2": np.ones((3, 1))},
    "only increase": {"sparseness": 0.35, "only_increase": True},
    "only increase, l1": {"sparseness": 0.35, "l1": 2.0, "only_increase": True},
    "only increase, nearest": {"sparseness": 0.35, "l2": "nearest", "only_increase": True},
    "only increase, keep": {"sparseness": 0.35, "l2": "keep", "only_increase": True},
    "nearly constant": {"sparseness": 1e-6},
    "one-hot": {"sparseness": 1.0},
}


def vectors(rng, dtype):
    """An array for these forms; among its vectors one of zeros and one with ties."""
    x = rng.normal(size=(3, 4, 6)).astype(dtype)
    x[1, 2] = 0
    x[2, 0] = [1, -1, 1, 0.5, 1, 0]
    return x


def agree(found, expected, factor=1.0):
    """Compare NumPy arrays: as close as rounding allows, times a factor."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    eps = factor * 64 * np.finfo(found.dtype).eps
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    np.testing.assert_allclose(found, expected, rtol=eps, atol=eps * size)
