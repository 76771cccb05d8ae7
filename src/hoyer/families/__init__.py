"""Which code works on which kind of array: one module per array family, chosen by type.

A family is a module with the functions of the protocol `Family`. None is imported before an array
of it turns up.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from ..options import Axis, Options
from ..price import Asked
from ..projection import Projection

# Top-level module of an array's type -> the family that works on it. (For tensors and SciPy's
# sparse arrays see below.)
FAMILIES: dict[str, str] = {
    "numpy": "numpy",
    "cupy": "array_api",
    "jax": "jax",
    "jaxlib": "jax",
    "dask": "dask",
}

# Array families that must not be turned into NumPy arrays behind the user's back, and how the user
# does it.
FOREIGN = {
    "torch": "x.detach().cpu().numpy()",
    "jax": "numpy.asarray(x)",
    "jaxlib": "numpy.asarray(x)",
    "cupy": "x.get()",
    "tensorflow": "x.numpy()",
    "dask": "x.compute()",
    "sparse": "x.todense()",
}


class Family(Protocol):
    """What a family offers; see `hoyer.api` for the meaning of each function."""

    def project(self, x: Any, options: Options, out: Any) -> Any:
        """Project x into `out`, or into a new array if that is None."""

    def project_(self, x: Any, options: Options) -> Any:
        """Project x in place and return it."""

    def project_sparse(self, x: Any, options: Options) -> Any:
        """Project x and return the nonzero entries."""

    def solve(self, x: Any, options: Options) -> Projection[Any]:
        """Project x and say how."""

    def sparseness(self, x: Any, axis: Axis) -> Any:
        """Return sigma of every vector."""

    def shares(
        self, arrays: list[Any], axes: list[Axis], asked: Asked, names: list[str]
    ) -> list[Any]:
        """Return the sparseness that the vectors of each array get; None where they have none.

        Errors call the arrays by their names.
        """

    def check_place(self, x: Any, out: Any) -> None:
        """Refuse an `out` that cannot take the projection of x."""

    def span(self, x: Any) -> tuple[int, int] | None:
        """Return where the memory of an array begins and ends; None if that is not known."""


def select(x: Any) -> Family:
    """Return the family of `x`; lists, numbers and whatever offers ``__array__`` go to NumPy.

    Raises
    ------
    TypeError
        For arrays of a family that nobody here works on, with the conversion that would do.
    """
    try:
        return _known[type(x)]
    except KeyError:
        return _chosen(x)


def select_common(arrays: list[Any]) -> Family | None:
    """Return the family that works on all of some arrays; None if there is none.

    That of DTensors takes other tensors along, which are the same on all ranks.
    """
    families = [select(array) for array in arrays]
    for family in families:
        if all(other in (family, getattr(family, "ALONGSIDE", None)) for other in families):
            return family
    return None


_known: dict[type, Family] = {}
"""Families of ordinary types; others are looked up every time."""

repeated: dict[type, Callable[[Any, Any, tuple[Any, ...], Any], Any]] = {}
"""How a family does calls like earlier ones: from x, out, the fields of `Options`, and the plans
made so far. None comes back where there is more to do, as if nothing had been tried."""


def _chosen(x: Any) -> Family:
    kind: Any = type(x)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        # PyTorch's compiler follows import statements, no other ways to import.
        from . import torch as tensors  # noqa: PLC0415 - only for those who have tensors

        family: Any = tensors
        if tensors.is_distributed(x):
            from .torch import distributed  # noqa: PLC0415 - only for those who have DTensors

            family = distributed
    else:
        family = _by_type(kind)
    ordinary = (torch.Tensor, torch.nn.Parameter) if torch is not None else ()
    if kind is np.ndarray or kind in ordinary:
        _known[kind] = family
        if hasattr(family, "project_known"):
            repeated[kind] = family.project_known
    return cast(Family, family)


@lru_cache(maxsize=256)
def _by_type(kind: type) -> Family:
    for base in kind.__mro__:
        family, _, rest = base.__module__.partition(".")
        if family in FAMILIES:
            return cast(Family, import_module(f".{FAMILIES[family]}", __name__))
        if family == "scipy" and rest.startswith("sparse"):
            return cast(Family, import_module(".sparse", __name__))
        if family == "torch" and not _is_tensor(kind):
            raise TypeError(_no_tensor(kind))
        if family in FOREIGN:
            raise TypeError(_foreign(kind, "hoyer", family))
    return cast(Family, import_module(".numpy", __name__))


def _foreign(kind: type, who: str, family: str) -> str:
    return (
        f"x is of type {kind.__module__}.{kind.__qualname__}, which {who} does not work on; "
        f"convert it first: {FOREIGN[family]}"
    )


def _is_tensor(kind: type) -> bool:
    return any(base.__module__ == "torch" and base.__name__ == "Tensor" for base in kind.__mro__)


def _no_tensor(kind: type) -> str:
    """Say what to do about something of PyTorch's that is no tensor."""
    name = f"x is of type {kind.__module__}.{kind.__qualname__}, which is no tensor: "
    if any(base.__name__ == "Module" for base in kind.__mro__):
        return name + "pass one of its parameters, such as x.weight, or see hoyer.torch"
    if kind.__name__ == "Proxy":
        return (
            name + "torch.fx.symbolic_trace cannot follow hoyer; use torch.export, or torch.fx.wrap"
        )
    return name + "pass a tensor"


def refuse_foreign(x: Any) -> None:
    """Refuse arrays that only become NumPy arrays when their owner says so.

    Raises
    ------
    TypeError
        With the conversion that would do.
    """
    kind: Any = type(x)
    if _is_tensor(kind):
        raise TypeError(
            f"x is a tensor ({kind.__qualname__}), and hoyer.measures works on NumPy arrays: pass "
            f"{FOREIGN['torch']}"
        )
    for base in kind.__mro__:
        family = base.__module__.partition(".")[0]
        if family in FOREIGN and family in FAMILIES:
            raise TypeError(_foreign(kind, "hoyer.measures", family))
    _by_type(kind)


def is_sparse(x: Any) -> bool:
    """Whether x is one of SciPy's sparse arrays and matrices."""
    return any(base.__module__.startswith("scipy.sparse") for base in type(x).__mro__)


@contextmanager
def calling(name: str) -> Iterator[None]:
    """Let errors speak of an array by its name, instead of x."""
    try:
        yield
    except (TypeError, ValueError, IndexError) as error:
        # Not where somebody's own word is quoted.
        words = re.sub(r"(?<!['\"])\bx\b(?!['\"])", lambda _: name, str(error))
        raise type(error)(words) from None


def refuse_bad(x: Any, inner: int, name: str = "x") -> None:
    """Refuse NaN and infinity in NumPy arrays, whose last axes are those of the vectors."""
    fine = np.isfinite(x).all(tuple(range(-inner, 0))).reshape(-1)
    if not fine.all():
        raise ValueError(describe_bad(x, inner, int(np.argmin(fine)), name=name))


def describe_bad(x: Any, inner: int, number: int, where: Any = None, *, name: str = "x") -> str:
    """Say which entry of a vector is NaN or infinity; vectors lie in the last axes of an array.

    `where` has the shape of x, if not all entries count. The array is called `name`.
    """
    batch = x.shape[: x.ndim - inner]
    index = tuple(int(i) for i in np.unravel_index(number, batch)) if batch else ()
    places = np.argwhere(~np.isfinite(x[index]) & (True if where is None else where[index]))
    if not len(places):
        return f"{name} had NaN or infinity when it was read, and changed since"
    place = tuple(int(i) for i in places[0])
    which = f" of vector {index if len(index) > 1 else index[0]}" if index else ""
    entry = place if len(place) > 1 else place[0]
    return not_finite(x[index + place], entry, which, name)


def not_finite(number: Any, entry: Any, which: str, name: str = "x") -> str:
    """Say where an array has NaN or infinity, and what to do about it."""
    what = "only finite vectors can be projected"
    if number == -math.inf and name == "x":
        what += (
            ", and no mask is made of -inf: to leave entries out, pass where=isfinite(x) (True for "
            "entries that count)"
        )
    return (
        f"{name} has {number} at entry {entry}{which}; {what} (check_finite=False returns NaN for "
        "such vectors)"
    )


def compiled_core() -> Any:
    """Return the compiled core, or raise an ImportError that says how to get it."""
    return import_module("..engines.core", __name__)._core
