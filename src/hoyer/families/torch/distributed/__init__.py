"""DTensors: vectors are projected where they are; those that ranks share meet, or are searched.

All ranks call the same functions with the same arguments, and reach every collective in the same
order, whatever their numbers are. So no numbers are an error: a vector with NaN or infinity, or
with an impossible target in a tensor, comes back as NaN, as on accelerators.
"""

import dataclasses
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ....engines.arrays.targets import check_fits, refuse_what_is_seen
from ....engines.parts import MOST_GATHERED
from ....layout import vector_axes
from ....options import Axis, Options
from ....options import check as check_options
from ....plan import plain_plan
from ....projection import Projection
from ... import torch as families
from .. import check_floating, refuse_leaf, refuse_watched
from .. import check_place as check_place_here
from .. import project as project_here
from .. import project_ as project_here_
from .. import solve as solve_here
from .. import sparseness as sparseness_here
from ..targets import as_given, tensors_of
from ..tensors import DTYPES, XP, Tensor, check_like, is_watched, vectors_last
from ..tensors import span as span_of
from . import divided
from .derivatives import ShardedDerivatives
from .places import Place, dim_of, memory_of, vectors_of
from .together import shares as shares

ALONGSIDE = families
"""The family whose tensors may stand beside DTensors."""
increment_version: Any = torch.autograd.graph.increment_version

# ---- the functions of the protocol `Family` ----


def project(x: Any, options: Options, out: Any) -> Any:
    """Project x into `out`, or into a new DTensor at the same places."""
    if not isinstance(x, DTensor):
        # Beside DTensors, in `project_together`: all ranks have the same.
        return project_here(x, options, out)
    if out is not None:
        return _project_out(x, options, out)
    place, there = vectors_of(x, options.axis)
    _check(place, there, options)
    if is_shared(place):
        return divided.project(place, there, options)
    whole = place.whole
    value = project_here(whole.take(there), whole.options(options, there), None)
    return whole.give(value, place)


def project_(x: DTensor, options: Options) -> DTensor:
    """Project x in place: each rank writes what it has."""
    check_floating(x)
    _refuse_partial("x", x)
    if is_watched(x, *tensors_of(options)):
        refuse_leaf(x)
        # The derivative may need x as it was.
        before: Any = x.clone()
        x.copy_(project(before, options, None))
        return x
    place, there = vectors_of(x, options.axis)
    if place.divided:
        memory_of(x).copy_(memory_of(project(x, options, None)))
    else:
        _check(place, there, options)
        project_here_(memory_of(there), place.options(options, there))
    increment_version(x)
    return x


def solve(x: DTensor, options: Options) -> Projection[DTensor]:
    """Project x and keep what was found; numbers of vectors lie where these were projected."""
    place, there = vectors_of(x, options.axis)
    _check(place, there, options)
    if is_shared(place):
        return divided.solve(place, there, options)
    whole = place.whole
    found = solve_here(whole.take(there), whole.options(options, there))
    fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    value, derivatives = fields.pop("value"), fields.pop("derivatives")
    derivatives = ShardedDerivatives(derivatives, whole, place)
    fields = {name: whole.of_vectors(numbers) for name, numbers in fields.items()}
    return Projection(whole.give(value, place), derivatives=derivatives, **fields)


def project_sparse(x: DTensor, options: Options) -> Any:
    """Refuse: the result is a SciPy sparse array, of which one process has all."""
    raise TypeError(
        "project_sparse returns SciPy sparse arrays and does not take DTensors: pass "
        "x.full_tensor().cpu().numpy(), or use project(x, ...)"
    )


def sparseness(x: DTensor, axis: Axis) -> DTensor:
    """Return sigma of every vector; of those that ranks share by sums over all of them."""
    place, there = vectors_of(x, axis)
    if place.divided:
        return divided.sparseness(place, there)
    return place.of_vectors(sparseness_here(place.take(there), tuple(range(-place.inner, 0))))


def check_place(x: Tensor, out: Tensor) -> None:
    """Refuse an `out` that cannot take the projection of x, or that autograd looks at."""
    if not isinstance(x, DTensor):
        check_place_here(x, out)
        return
    refuse_watched(x, out)
    floats: Any = x if x.dtype in DTYPES else vectors_last(x, None).tensor
    _check_out(out, floats)


def span(x: Tensor) -> tuple[int, int]:
    """Return the memory of what this rank has."""
    return span_of(memory_of(x) if isinstance(x, DTensor) else x)


def whole_vectors(x: Tensor, axis: Axis) -> Tensor | None:
    """Return the memory of what this rank has of x, if its vectors are whole; None if not.

    It is x itself, if that is no DTensor.
    """
    if not isinstance(x, DTensor):
        return x
    dims = map(dim_of, x.placements)
    if set(dims) & set(vector_axes(axis, x.dim())) or any(p.is_partial() for p in x.placements):
        return None
    return memory_of(x)


# ---- the walk of a call ----


def is_shared(place: Place) -> bool:
    """Whether ranks search a vector together, rather than bring it together: it is long."""
    return bool(place.divided) and place.length > MOST_GATHERED


def _check(place: Place, there: DTensor, options: Options) -> None:
    """Refuse what all ranks can see to be wrong, before they begin."""
    check_options(options)
    if is_shared(place) and options.solver != "auto":
        raise ValueError(
            f"solver={options.solver!r}: x has vectors of {place.length} entries that ranks share, "
            f"and for more than {MOST_GATHERED} there is 'auto' alone; redistribute x so that each "
            "rank has whole vectors"
        )
    check_targets(place.length, there.dtype, options)


def check_targets(length: int, dtype: torch.dtype, options: Options) -> None:
    """Refuse targets that all ranks can see to be wrong for vectors of a length and a type."""
    plan = plain_plan(length, options)
    if plan is None:
        refuse_what_is_seen(length if options.where is None else 4, options)
    elif options.check_finite:
        check_fits(plan, dtype, XP)


def _project_out(x: DTensor, options: Options, out: DTensor) -> DTensor:
    place, there = vectors_of(x, options.axis)
    floats = place.give(memory_of(there), place)
    _check_out(out, floats)
    vectors = vectors_last(floats, options.axis)
    refuse_watched(x, out, *tensors_of(as_given(options, vectors)))
    if place.divided:
        memory_of(out).copy_(memory_of(project(x, options, None)))
        increment_version(out)
        return out
    _check(place, there, options)
    written = memory_of(vectors_of(out, options.axis)[1])
    project_here(place.take(there), place.options(options, there), written)
    increment_version(out)
    return out


def _check_out(out: Any, x: DTensor) -> None:
    """Refuse an `out` that lies elsewhere than the result."""
    if not isinstance(out, DTensor):
        raise TypeError(f"out must be a DTensor, as x is, not {type(out).__name__}")
    check_like(out, x)
    _refuse_partial("out", out)
    mine, wanted = (out.device_mesh, out.placements), (x.device_mesh, x.placements)
    if mine != wanted:
        raise ValueError(
            f"out has placements {out.placements} on {out.device_mesh}, the result has "
            f"{x.placements} on {x.device_mesh}: redistribute out first"
        )


def _refuse_partial(name: str, x: DTensor) -> None:
    """Refuse to write what waits for a reduction."""
    if any(p.is_partial() for p in x.placements):
        raise ValueError(
            f"{name} has placements {x.placements}, and what is partial cannot be written: use "
            "project, or redistribute it first"
        )
