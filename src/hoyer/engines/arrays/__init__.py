"""Plain operations of one array library: the search, and Algorithm 3."""

from typing import Any

from ...plan import Plan
from ...projection import ACTIVE, SCALE
from .measure import sparseness
from .members import Members
from .namespace import Namespace, namespace
from .products import Products
from .project import check_solver, sums
from .project import project as forward

__all__ = ["Members", "check_solver", "derivatives", "forward", "namespace", "sparseness", "sums"]


def derivatives(value: Any, record: Any, x: Any, plan: Plan, xp: Namespace) -> Products:
    """Return the derivatives of what `forward` found."""
    return Products(value, record[..., SCALE], x, record[..., ACTIVE], plan, xp)
