"""What a caller asks for beside the array: the options that every family understands."""

from collections.abc import Callable, Sequence
from inspect import signature
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
_PLAIN = {float, int, np.float64, str}


class Options(NamedTuple):
    """The arguments of `hoyer.project` that are not arrays of vectors, as they were given.

    Targets are numbers, or arrays of the same family as x.
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
    def rule(self) -> str:
        """Which L2 norm results have: "fixed", "keep" or "nearest"."""
        return self.l2 if isinstance(self.l2, str) else "fixed"

    @property
    def is_plain(self) -> bool:
        """Whether all options are plain words and numbers: what is made of them may be remembered.

        Tensors and arrays without axes, and objects that become one, may hold another number next
        time; and what has no meaning must not be taken for something equal that has (1 for True).
        """
        given: tuple[Any, ...] = self
        sparseness, l1, l2, axis, nonnegative, only_increase, solver, check_finite = given
        return (
            (sparseness is None or type(sparseness) in _PLAIN)
            and (l1 is None or type(l1) in _PLAIN)
            and (l2 is None or type(l2) in _PLAIN)
            and (nonnegative is False or nonnegative is True)
            and (only_increase is False or only_increase is True)
            and (check_finite is True or check_finite is False)
            and type(solver) is str
            and (type(axis) is int or axis is None or _are_ints(axis))
        )


def _are_ints(axis: Any) -> bool:
    return type(axis) is tuple and all(type(one) is int for one in axis)


def check(options: Options) -> None:
    """Refuse options that no family could understand.

    Raises
    ------
    ValueError
        For an unknown solver, naming those there are.
    TypeError
        For switches that are neither True nor False.
    """
    if options.solver not in SOLVERS:
        names = ", ".join(repr(name) for name in SOLVERS)
        raise ValueError(f"unknown solver {options.solver!r}: choose one of {names}")
    for name in ("nonnegative", "only_increase", "check_finite"):
        value = getattr(options, name)
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name}={value!r}: must be True or False")


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
