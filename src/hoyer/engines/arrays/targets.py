"""Targets resolved where their arrays are, by the formulas of `hoyer.target`."""

import math
from typing import Any

from ...options import Options
from ...target import Target, from_norms, from_sparseness, resolve
from .namespace import Namespace
from .products import is_array


def resolve_there(n: int, options: Options, xp: Namespace) -> Target:
    """Turn targets of which at least one is an array into a `Target`; nothing is looked at.

    Impossible ones become NaN: to see them would stall the device. What can be seen without a look
    at an array's numbers is an error.
    """
    sparseness, l1, l2 = _stand_ins(n, options)
    resolve(n, sparseness, l1, l2, ())
    arrays = [target for target in options[:3] if is_array(target)]
    like = xp.stopped(xp.astype(arrays[0], xp.wide(arrays[0])))

    def number(target: Any) -> Any:
        if is_array(target):
            return xp.stopped(xp.astype(target, like.dtype))
        return xp.full_like(like, float(target))

    def norm(target: Any) -> Any:
        value = number(target)
        return xp.where((value > 0) & xp.isfinite(value), value, math.nan)

    tolerance = 4 * max(xp.eps(array.dtype) for array in arrays)
    sparseness, l1, l2 = options[:3]
    if sparseness is None:
        first, second = norm(l1), norm(l2)
        first, second = first + 0 * second, second + 0 * first
        ratio, slack, _ = from_norms(n, first, second, tolerance, xp.library)
        return Target(ratio, *slack, second)
    ratio, slack, _ = from_sparseness(n, number(sparseness), tolerance, xp.library)
    if isinstance(l2, str):
        return Target(ratio, *slack, xp.ones_like(ratio))
    if l1 is not None:
        return Target(ratio, *slack, norm(l1) / ratio)
    return Target(ratio, *slack, xp.ones_like(ratio) if l2 is None else norm(l2))


def check_fits(target: Target, dtype: Any, xp: Namespace) -> None:
    """Refuse norms, resolved on the host, that no vector of a type can have."""
    most, largest = float(target.l2.max(initial=0)), float(xp.finfo(dtype).max)
    if most > largest:
        raise ValueError(
            f"a target with l2={most:g} does not fit {str(dtype).rpartition('.')[2]}, whose "
            f"largest number is {largest:g}: convert x to a wider type first"
        )


def _stand_ins(n: int, options: Options) -> list[Any]:
    """Return numbers that are right, with which everything else that can be wrong is found."""
    sparseness, l1, l2 = options[:3]
    if sparseness is None and l1 is not None and l2 is not None and not isinstance(l2, str):
        # Of two norms one may be a number: together they can only be judged on the device.
        return [None, math.sqrt(math.sqrt(n)), 1.0]
    return [0.5 if is_array(target) else target for target in (sparseness, l1, l2)]
