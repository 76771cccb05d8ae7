"""What a caller asks for beside the array: the options that every backend understands."""

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Axis: TypeAlias = int | tuple[int, ...] | None
Numbers: TypeAlias = float | npt.NDArray[np.floating[Any] | np.integer[Any]] | list[float]
NormRule: TypeAlias = Literal["keep", "nearest"]
Solver: TypeAlias = Literal["auto", "bisection", "newton", "newton_sqr", "halley"]

SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")
NORM_RULES = ("keep", "nearest")


class Options(NamedTuple):
    """The arguments of `hoyer.project` that are not arrays of vectors, as they were given."""

    sparseness: Numbers | None
    l1: Numbers | None
    l2: Numbers | NormRule | None
    axis: Axis
    nonnegative: bool
    only_increase: bool
    solver: Solver
    check_finite: bool


def check_solver(solver: str) -> None:
    """Refuse a solver that does not exist.

    Raises
    ------
    ValueError
        Naming the solvers there are.
    """
    if solver not in SOLVERS:
        names = ", ".join(repr(name) for name in SOLVERS)
        raise ValueError(f"unknown solver {solver!r}: choose one of {names}")
