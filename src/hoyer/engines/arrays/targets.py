"""Targets resolved where their arrays are, by the formulas of `hoyer.target`."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ...options import Options
from ...plan import Plan
from ...target import Target, from_bounds, from_l1, from_norms, from_sparseness, resolve
from .namespace import Namespace
from .products import is_array


def resolve_there(n: Any, options: Options, xp: Namespace) -> Target:
    """Turn targets into a `Target` where at least one is an array; nothing is looked at.

    Impossible ones become NaN: to see them would stall the device. What can be seen without a look
    at an array's numbers is an error.

    Parameters
    ----------
    n : int or array
        Length of the vectors; or of each of them, shaped like the batch. Then targets may all be
        numbers.
    options : Options
        What was asked for.
    xp : Namespace
        The arrays' library.
    """
    own = hasattr(n, "shape")
    refuse_what_is_seen(4 if own else n, options)
    arrays = [target for target in options[:3] if is_array(target)]
    like = n if own else arrays[0]
    like = xp.stopped(xp.astype(like, xp.wide(like)))
    if own:
        # Of those without any entries nothing is asked.
        n = xp.clip(like, 1.0, None)

    def number(target: Any) -> Any:
        if is_array(target):
            given = xp.stopped(xp.astype(target, like.dtype))
            return given + 0.0 * n if own else given
        return xp.full_like(like, float(target))

    def norm(target: Any) -> Any:
        value = number(target)
        least = value >= 0 if options.at_most else value > 0
        return xp.where(least & xp.isfinite(value), value, math.nan)

    tolerance = 4 * max((xp.eps(array.dtype) for array in arrays), default=xp.eps(like.dtype))
    sparseness, l1, l2 = options[:3]
    if sparseness is None:
        if l2 is None:
            return from_l1(n, norm(l1), xp.library)
        first, second = norm(l1), norm(l2)
        first, second = first + 0 * second, second + 0 * first
        if options.at_most:
            return from_bounds(n, first, second, xp.library)
        ratio, slack, _ = from_norms(n, first, second, tolerance, xp.library)
        return Target(ratio, *slack, second)
    ratio, slack, _ = from_sparseness(n, number(sparseness), tolerance, xp.library)
    if isinstance(l2, str):
        return Target(ratio, *slack, xp.ones_like(ratio))
    if l1 is not None:
        return Target(ratio, *slack, norm(l1) / ratio)
    return Target(ratio, *slack, xp.ones_like(ratio) if l2 is None else norm(l2))


def check_fits(plan: Plan, dtype: Any, xp: Namespace) -> None:
    """Refuse norms, resolved on the host, that no vector of a type can have.

    Upper bounds may be as large as they like.
    """
    target, name = plan.target, "l2"
    if plan.at_most or not isinstance(target.l2, np.ndarray):
        return
    norms = sizes = target.l2
    if plan.rule == "free":
        # Of n entries the largest is at least l1/n; n is what `slack` holds then.
        name, norms = "l1", target.ratio
        sizes = norms / np.maximum(target.slack, 1.0)
    largest = float(xp.finfo(dtype).max)
    if float(sizes.max(initial=0)) > largest:
        most = float(norms[sizes.argmax()])
        raise ValueError(
            f"a target with {name}={most:g} does not fit {str(dtype).rpartition('.')[2]}, whose "
            f"largest number is {largest:g}: convert x to a wider type first"
        )


def refuse_what_is_seen(n: int, options: Options) -> None:
    """Resolve with numbers that are right for arrays: all else that can be wrong is found."""
    sparseness, l1, l2 = options[:3]
    given = [0.5 if is_array(target) else target for target in (sparseness, l1, l2)]
    if sparseness is None and l1 is not None and l2 is not None and not isinstance(l2, str):
        # Of two norms one may be a number: together they can only be judged on the device.
        given = [None, math.sqrt(math.sqrt(n)), 1.0]
    _resolved(n, given[0], given[1], given[2], at_most=bool(options.at_most))


# (Typed: 1 is a number here and True is none.)
@lru_cache(maxsize=256, typed=True)
def _resolved(n: int, sparseness: Any, l1: Any, l2: Any, *, at_most: bool) -> Target:
    return resolve(n, sparseness, l1, l2, (), at_most=at_most)
