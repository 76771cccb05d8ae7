"""SciPy's sparse arrays and matrices: they are measured, but not projected."""

from typing import Any, NoReturn

import numpy as np

from ..options import Axis, Options
from ..target import with_zeros
from .numpy import measure
from .numpy.nonzeros import nonzeros


def project(x: Any, options: Options, out: Any) -> NoReturn:
    """Refuse: zeros that are not stored may become nonzero."""
    _refuse(x)


def project_(x: Any, options: Options) -> NoReturn:
    """Refuse, as `project` does."""
    project(x, options, None)


def project_sparse(x: Any, options: Options) -> NoReturn:
    """Refuse, as `project` does."""
    project(x, options, None)


def solve(x: Any, options: Options) -> NoReturn:
    """Refuse, as `project` does."""
    project(x, options, None)


def sparseness(x: Any, axis: Axis) -> Any:
    """Return sigma of every vector, from its nonzero entries, in the precision of x."""
    found = nonzeros(x, axis)
    result = np.empty(len(found.counts))
    for vectors, rows in found.blocks(least=2):
        result[vectors] = with_zeros(found.length, rows.shape[1], measure(rows))
    return result.reshape(found.batch).astype(found.values.dtype)[()]


def shares(arrays: list[Any], axes: list[Axis], asked: Any, names: list[str]) -> NoReturn:
    """Refuse, as `project` does."""
    _refuse(arrays[0], names[0])


def check_place(x: Any, out: Any) -> NoReturn:
    """Refuse, as `project` does."""
    _refuse(x)


def span(x: Any) -> None:
    """Tell nothing."""


def _refuse(x: Any, name: str = "x") -> NoReturn:
    raise TypeError(
        f"{name} is a SciPy sparse array ({type(x).__name__}); its zeros would not stay zero: pass "
        f"{name}.toarray()"
    )
