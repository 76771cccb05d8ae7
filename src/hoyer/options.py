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

RULES = {"fixed": 0, "keep": 1, "nearest": 2, "free": 3}
"""Which L2 norm results have, and its number in the engines: the one given, that of x, the one that
makes them nearest to x, or any: then l1 alone is given."""

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
    at_most: bool = False
    where: Any = None

    @property
    def rule(self) -> str:
        """Which L2 norm results have: a name of `RULES`."""
        if isinstance(self.l2, str):
            return self.l2
        return "free" if self.sparseness is None and self.l2 is None else "fixed"

    @property
    def is_plain(self) -> bool:
        """Whether all options are plain words and numbers: what is made of them may be remembered.

        Tensors and arrays without axes, and objects that become one, may hold another number next
        time; and what has no meaning must not be taken for something equal that has (1 for True).
        """
        given: tuple[Any, ...] = self
        sparseness, l1, l2, axis, nonnegative, only_increase, solver, check_finite = given[:8]
        at_most, where = given[8:]
        return (
            (sparseness is None or type(sparseness) in _PLAIN)
            and (l1 is None or type(l1) in _PLAIN)
            and (l2 is None or type(l2) in _PLAIN)
            and (nonnegative is False or nonnegative is True)
            and (only_increase is False or only_increase is True)
            and (check_finite is True or check_finite is False)
            and (at_most is False or at_most is True)
            and where is None
            and type(solver) is str
            and (type(axis) is int or axis is None or _are_ints(axis))
        )


def _are_ints(axis: Any) -> bool:
    return type(axis) is tuple and all(type(one) is int for one in axis)


def check(options: Options) -> None:
    """Refuse options that no family could understand, and those that do not go together.

    Raises
    ------
    ValueError
        For an unknown solver, naming those there are; for a set that is none.
    TypeError
        For switches that are neither True nor False.
    """
    if options.solver not in SOLVERS:
        names = ", ".join(repr(name) for name in SOLVERS)
        raise ValueError(f"unknown solver {options.solver!r}: choose one of {names}")
    for name in ("nonnegative", "only_increase", "at_most", "check_finite"):
        value = getattr(options, name)
        if not isinstance(value, bool | np.bool_):
            raise TypeError(f"{name}={value!r}: must be True or False")
    if options.at_most:
        _check_bounds(options)
    if options.l1 is not None and options.rule == "free":
        _check_one_norm(options)


def _check_bounds(options: Options) -> None:
    """Refuse what has no meaning beside upper bounds."""
    if options.sparseness is not None:
        raise ValueError(
            f"sparseness={options.sparseness!r} with at_most=True: bounds are given as l1, or as "
            "l1 and l2; for vectors at least this sparse use only_increase=True instead"
        )
    if options.only_increase:
        raise ValueError(
            "only_increase=True with at_most=True: vectors within the bounds come back as they are "
            "anyway; give one of the two"
        )
    if isinstance(options.l2, str):
        raise ValueError(
            f"l2={options.l2!r} with at_most=True: a bound is a number; leave l2 out for the L1 "
            "ball"
        )
    if options.l1 is None and options.l2 is not None:
        raise ValueError(
            f"l2={options.l2!r} with at_most=True and without l1: in an L2 ball nothing becomes "
            "sparse; give l1 as well, or scale x by min(1, l2 / norm) yourself"
        )
    if options.solver != "auto":
        raise ValueError(
            f"solver={options.solver!r} with at_most=True: the paper's solvers find vectors with "
            "both norms given; use 'auto'"
        )


def _check_one_norm(options: Options) -> None:
    """Refuse what needs both norms."""
    if options.only_increase:
        raise ValueError(
            f"only_increase=True with l1={options.l1!r} alone: one norm says nothing about "
            "sparseness; give l2 as well, or at_most=True for the L1 ball"
        )
    if options.solver != "auto":
        raise ValueError(
            f"solver={options.solver!r} with l1={options.l1!r} alone: the paper's solvers need "
            "both norms; use 'auto', or give l2 as well"
        )


def refuse_dim(dim: object) -> NoReturn:
    """Say what `dim` is called here."""
    raise TypeError(f"dim={dim!r}: what is dim in PyTorch and in hoyer.torch is axis here")


def refuse_rest(rest: object, dim: object) -> NoReturn:
    """Refuse what functions take only to refuse it: a third argument without a name, and `dim`."""
    if rest is ...:
        refuse_dim(dim)
    raise TypeError(
        f"{rest!r} as third argument: x and sparseness may be given without names, everything else "
        "by name, as l2=..."
    )


def hiding_dim(function: AnyFunction) -> AnyFunction:
    """Take what a function has only to refuse it out of the signature that it shows.

    That is `dim`, and `rest` in small calls: what follows it is given by name. (Python looks for
    each argument that has to be named in a dictionary, which takes as long as a tenth of a small
    call. To collect unknown arguments instead would cost every call a dictionary.)
    """
    shown = signature(function)
    kept, named = [], False
    for name, parameter in shown.parameters.items():
        if name == "rest":
            named = True
        elif name != "dim":
            kept.append(parameter.replace(kind=parameter.KEYWORD_ONLY) if named else parameter)
    function.__signature__ = shown.replace(parameters=kept)  # type: ignore[attr-defined]
    return function


def is_dask(x: Any) -> bool:
    """Whether x is a collection of Dask's: an array, a frame, or something delayed."""
    return any(base.__module__.partition(".")[0] == "dask" for base in type(x).__mro__)
