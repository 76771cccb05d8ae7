"""Compressed results: the nonzero entries of a projection as a SciPy sparse array."""

from typing import Any


def compressed(
    values: Any, indices: Any, starts: Any, shape: tuple[int, ...], *, by_rows: bool
) -> Any:
    """Return one vector in coordinate form, or a matrix compressed by rows or by columns.

    `values` and `indices` are the nonzero entries and their places within their vectors, one vector
    after the other; `starts` is where each vector begins, and the end of the last. `shape` is that
    of the dense result, whose rows (or columns, if not `by_rows`) are the vectors.
    """
    try:
        from scipy import sparse  # noqa: PLC0415 - SciPy is optional
    except ImportError:
        raise ImportError("project_sparse needs SciPy: pip install scipy") from None
    if len(shape) == 1:
        return sparse.coo_array((values, (indices,)), shape=shape)
    kind = sparse.csr_array if by_rows else sparse.csc_array
    return kind((values, indices, starts), shape=shape)
