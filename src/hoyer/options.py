"""What a caller asks for beside the array: the options that every backend understands."""

from collections.abc import Callable, Sequence
from inspect import signature
from types import NoneType
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

Axis: TypeAlias = int | tuple[int, ...] | None
Numbers: TypeAlias = float | npt.NDArray[np.floating[Any] | np.integer[Any]] | Sequence[float]
NormRule: TypeAlias = Literal["keep", "nearest"]
Solver: TypeAlias = Literal["auto", "bisection", "newton", "newton_sqr", "halley"]

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

SOLVERS: tuple[str, ...] = get_args(Solver)
NORM_RULES: tuple[str, ...] = get_args(NormRule)

# A number has one meaning, whichever of these types it is of. (Not bool, which is no number here,
# and not float32: how far a target out of range is clamped depends on its precision.)
_NUMBERS = {float, int, np.float64}
_PLAIN = {*_NUMBERS, NoneType, str}


class Options(NamedTuple):
    """The arguments of `hoyer.project` that are not arrays of vectors, as they were given.

    Targets are numbers, or arrays of whatever family the backend works on.
    """

    sparseness: Any
    l1: Any
    l2: Any
    axis: Axis
    nonnegative: bool
    only_increase: bool
    solver: Solver
    check_finite: bool

    @property
    def refuse_dim(dim: object) -> NoReturn:
    """Say what `dim` is called here."""
    raise TypeError(f"dim={dim!r}: what is dim in PyTorch and in hoyer.torch is axis here")


def hiding_dim(function: AnyFunction) -> AnyFunction:
    """Take `dim`, which a function has only to refuse it, out of the signature that it shows.

    (To collect unknown arguments instead would cost every small call a dictionary.)
    """
    shown = signature(function)
    kept = [p for name, p in shown.parameters.items() if name != "dim"]
    function.__signature__ = shown.replace(parameters=kept)  # type: ignore[attr-defined]
    return function
