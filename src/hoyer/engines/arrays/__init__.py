"""Plain operations of one array library: the search, and Algorithm 3."""

from typing import Any

from ...plan import Plan
from ...projection import KEPT, SCALE
from .measure import sparseness
from .namespace import Namespace, namespace
from .products import NO_CHANGE, Products
from .search import check_solver, sums
from .search import project as forward

__all__ = ["check_solver", "derivatives", "forward", "namespace", "product", "sparseness", "sums"]


def derivatives(
    value: Any,
    record: Any,
    x: Any,
    plan: Plan,
    xp: Namespace,
    *,
    both_norms: bool | None = None,
) -> Products:
    """Return the derivatives of what `forward` found."""
    scale, kept = record[..., SCALE], record[..., KEPT]
    return Products(value, scale, x, kept, plan, xp, both_norms=both_norms)


def product(at: Products, y: Any, *, reverse: bool) -> Any:
    """Return the Jacobian, or its transpose, times y."""
    if reverse:
        return at.cotangent(y, None, by_x=True, by_target=False)[0]
    return at.tangent(y, NO_CHANGE)[0]
