"""Long vectors that ranks share: all of them search together, and each writes its part.

`hoyer.engines.parts` searches for each vector. Its requests for all vectors are answered together,
in one all-reduce of integers; so the bits of results do not depend on the number of ranks. A
gradient takes one of a few doubles for each vector.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor

from ....engines import arrays, parts
from ....engines.arrays.histogram import Parts
from ....engines.arrays.products import NO_CHANGE, Products
from ....options import Options
from ....plan import Plan, derivative_plan, plan_for
from ....projection import RECORD_FIELDS, Projection
from .. import FIELD_TYPES, engines
from ..functions import by_targets_of
from ..targets import NAMES, Targets, filled, tensors_of, with_targets
from ..tensors import XP, Tensor, is_watched, rows_of
from .derivatives import ShardedDerivatives
from .places import Place
from .ranks import Ranks, all_summed, heard_of_all, spoken_once, summed

AT_ONCE = 512
"""So many vectors are searched together: their histograms take about 50 MB."""


def project(place: Place, x: DTensor, options: Options) -> DTensor:
    """Project vectors that ranks share, which are last in x."""
    return place.give(_solved(place, x, options)[0], place)


def solve(place: Place, x: DTensor, options: Options) -> Projection[DTensor]:
    """Project them, and tell what was found; ranks that share a vector all know it."""
    value, found = _solved(place, x, options)
    records = torch.tensor(
        [solution.record for solution in found.solutions], dtype=torch.float64, device=value.device
    )
    records = records.reshape(*found.batch, len(RECORD_FIELDS))
    fields = {
        name: place.of_vectors(records[..., i].to(FIELD_TYPES.get(name, records.dtype)))
        for i, name in enumerate(RECORD_FIELDS)
    }
    fields["active_code"] = fields.pop("active")
    derivatives = ShardedDerivatives(_Derivatives(found, value.detach().clone()), place, place)
    return Projection(place.give(value, place), derivatives=derivatives, **fields)


def sparseness(place: Place, x: DTensor) -> DTensor:
    """Return sigma of vectors that ranks share."""
    rows = rows_of(place.take(x), place.inner)
    sigma: Tensor = arrays.sparseness(rows, Ranks(place))
    return place.of_vectors(spoken_once(sigma, place))


# ---- the search ----


class _Found(NamedTuple):
    """What is known of the vectors of which this rank has parts."""

    place: Place
    plans: list[Plan]
    """One for each vector."""
    plan: Plan
    """What they have in common."""
    solutions: list[parts.Solution]
    batch: tuple[int, ...]
    """The shape of the batch of these vectors."""
    x: Tensor | None
    """What was projected, where results do not tell enough."""

    def results(self, value: Tensor) -> list[parts.Result]:
        """Return the results of which this rank has parts."""
        rows = _parts_of(value, self.place)
        given = [None] * len(rows) if self.x is None else _parts_of(self.x, self.place)
        masks = _masks(self.plan.where, self.place, len(rows))
        every = zip(rows, self.solutions, self.plans, given, masks, strict=True)
        return [
            parts.Result(_engine_for(value), p, solution, plan, x, where)
            for p, solution, plan, x, where in every
        ]

    def products(self, value: Tensor, scale: Tensor) -> Products:
        """Return their derivatives in plain operations, each sum one over all ranks."""
        inner, plan = self.place.inner, self.plan
        active = None
        if engines.some_differ(plan):
            codes = [solution.active for solution in self.solutions]
            active = torch.tensor(codes, dtype=torch.int8, device=value.device).reshape(self.batch)
        x = None if self.x is None else rows_of(self.x, inner)
        return Products(rows_of(value, inner), scale, x, active, plan, Ranks(self.place))


def _solved(place: Place, x: DTensor, options: Options) -> tuple[Tensor, _Found]:
    """Return what this rank has of the results, and what is known of all."""
    local, options = place.take(x), place.options(options, x)
    targets, found = tensors_of(options), []
    if not is_watched(local, *targets):
        value, _, known = _search(place, local, options)
        return value, known

    def find(x: Tensor) -> tuple[Tensor, Tensor, _Found]:
        value, scale, known = _search(place, x, options)
        found.append(known)
        return value, scale, known

    if forward_ad._current_level >= 0:
        _refuse_forward_mode()
    value = _project(local, *targets, find)[0]
    return value, found[0]


def _refuse_forward_mode() -> NoReturn:
    raise RuntimeError(
        "vectors that ranks share have no forward-mode derivatives: use reverse mode, or "
        "solve(x, ...).jvp(y)"
    )


@torch.no_grad()
def _search(place: Place, x: Tensor, options: Options) -> tuple[Tensor, Tensor, _Found]:
    """Search for all vectors of which this rank has parts; return its results, and the scales."""
    rows = _parts_of(x, place)
    batch = tuple(x.shape[: x.dim() - place.inner])
    plans, plan = _plans(place, batch, options, x)
    masks = _masks(plan.where, place, len(rows))
    at = parts.Place(place.starts(), place.shape[len(place.batch) :])
    solutions: list[parts.Solution] = []
    for begin in range(0, len(rows), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        solutions += _together(place, rows[some], masks[some], plans[some], at)
    engine, value = _engine_for(x), torch.empty_like(x)
    written = zip(_parts_of(value, place, writes=True), rows, solutions, masks, strict=True)
    for into, row, solution, where in written:
        into.copy_(parts.write(engine, row, solution, at, where))
    scales = [solution.formula.scale for solution in solutions]
    scale = torch.tensor(scales, dtype=XP.wide(x), device=x.device).reshape(batch)
    kept = x if plan.needs_x else None
    return value, scale, _Found(place, plans, plan, solutions, batch, kept)


def _together(
    place: Place, rows: list[Tensor], masks: list[Any], plans: list[Plan], at: parts.Place
) -> list[parts.Solution]:
    """Search for several vectors at the same time, all of them in the same rounds."""
    limit = parts.GATHERED_AT_ONCE // place.sharing
    searches = [
        parts.search(plan, row.dtype, XP, limit) for plan, row in zip(plans, rows, strict=True)
    ]
    solutions: dict[int, parts.Solution] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(rows)))
    # Each round answers all searches that have not ended; ranks agree on which these are.
    while answers:
        requests = {}
        for i, numbers in answers.items():
            try:
                requests[i] = searches[i].send(numbers)
            except StopIteration as stop:
                solutions[i] = stop.value
        if not requests:
            break
        answers = _answered(place, requests, rows, masks, at, limit)
    return [solutions[i] for i in range(len(rows))]


def _answered(
    place: Place,
    requests: dict[int, parts.Request],
    rows: list[Tensor],
    masks: list[Any],
    at: parts.Place,
    limit: int,
) -> dict[int, Any]:
    """Return what all ranks say to some requests, by one all-reduce.

    Histograms are added. Other answers have a place for each rank, and those of all other ranks
    are zeros.
    """
    engine, pieces = _engine_for(rows[0]), []
    for i, request in requests.items():
        own = torch.as_tensor(parts.answer(engine, rows[i], request, at, masks[i]))
        pieces.append(own if request.what == "histogram" else _at_own_place(own, place, limit))
    numbers = summed(torch.cat(pieces), place.groups).cpu().numpy()
    ends = np.cumsum([len(piece) for piece in pieces])[:-1]
    said = zip(requests.items(), np.split(numbers, ends), strict=True)
    return {i: _merged(request, row, place) for (i, request), row in said}


def _at_own_place(answer: Tensor, place: Place, limit: int) -> Tensor:
    """Return an answer of up to `limit` numbers where no other rank has any."""
    table = answer.new_zeros((place.sharing, max(limit, 2) + 1))
    table[place.number, 0] = len(answer)
    table[place.number, 1 : 1 + len(answer)] = answer
    return table.reshape(-1)


def _merged(request: parts.Request, numbers: Any, place: Place) -> Any:
    if request.what == "histogram":
        return parts.merged(request, [numbers])
    rows = numbers.reshape(place.sharing, -1)
    return parts.merged(request, [row[1 : 1 + row[0]] for row in rows])


def _engine_for(x: Tensor) -> Any:
    """Return who answers for a part."""
    if engines.uses_core(x):
        from ....engines import core  # noqa: PLC0415 - there is one

        return core
    return Parts(XP)


def _parts_of(x: Tensor, place: Place, *, writes: bool = False) -> list[Tensor]:
    """Return the parts of vectors that this rank has, one after the other."""
    inner = x.shape[x.dim() - place.inner :]
    count = math.prod(x.shape[: x.dim() - place.inner])
    together = x.view if writes else x.reshape
    return list(together(count, *inner).unbind(0))


def _masks(where: Tensor | None, place: Place, count: int) -> list[Any]:
    return (
        [None] * count if where is None else [one.contiguous() for one in _parts_of(where, place)]
    )


def _plans(
    place: Place, batch: tuple[int, ...], options: Options, x: Tensor
) -> tuple[list[Plan], Plan]:
    """Return what is asked of each vector, and what all plans have in common.

    With a mask ranks count first, together, how many entries it leaves.
    """
    where, plain, n = options.where, options._replace(where=None), place.length
    columns = [_numbers(target, batch) for target in options[:3]]
    count = math.prod(batch)
    each = [with_targets(plain, [column[i] for column in columns]) for i in range(count)]
    common, lengths = derivative_plan(n, _without_tensors(plain)), None
    if where is None:
        plans = [plan_for(n, one) for one in each]
    else:
        counts = where.sum(tuple(range(-place.inner, 0))).reshape(-1)
        counts = summed(counts, place.groups)
        every = zip(each, counts.tolist(), strict=True)
        plans = [parts.plan_with_mask(n, left, one) for one, left in every]
        lengths = counts.reshape(batch)
    nearly = any(plan.nearly_constant for plan in plans)
    needs_x = any(plan.needs_x for plan in plans)
    common = replace(common, where=where, lengths=lengths, nearly_constant=nearly, needs_x=needs_x)
    return plans, common


def _numbers(target: Any, batch: tuple[int, ...]) -> Any:
    """Return a target for each vector, in a row, as numbers of the host."""
    if not isinstance(target, torch.Tensor):
        return [target] * math.prod(batch)
    return list(engines.as_numpy(target.detach().expand(batch)).reshape(-1))


def _without_tensors(options: Options) -> Options:
    return with_targets(options, (0.5 if isinstance(t, torch.Tensor) else t for t in options[:3]))


# ---- derivatives ----


class Dividing(torch.autograd.Function):
    """value, scale = projection of vectors of which this rank has parts."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        ctx: Any, x: Tensor, sparseness: Any, l1: Any, l2: Any, find: Any
    ) -> tuple[Tensor, Tensor]:
        """Search, and keep the result and what is known of it."""
        value, scale, found = find(x)
        ctx.found = found._replace(x=None, plan=replace(found.plan, where=None))
        # Where somebody changes what is needed later, autograd says so.
        ctx.save_for_backward(value, scale, found.x, found.plan.where, sparseness, l1, l2)
        ctx.set_materialize_grads(False)
        return value, scale

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Return the gradients, by one all-reduce; by several if they are differentiated again."""
        g_value, g_scale = gradients
        if g_value is None and g_scale is None:
            return (None,) * 5
        value, scale, x, where, *tensors = ctx.saved_tensors
        found = ctx.found._replace(x=x, plan=replace(ctx.found.plan, where=where))
        by_formula = torch.is_grad_enabled() or g_scale is not None
        gradients_of = _gradients_by_formula if by_formula else _gradients
        given = g_value if not by_formula else (g_value, g_scale)
        return *gradients_of(found, value, scale, tensors, given, ctx.needs_input_grad[:4]), None


_project: Any = Dividing.apply


def _gradients(
    found: _Found, value: Tensor, scale: Tensor, targets: Any, y: Tensor, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """Return the gradients by x, sparseness, l1 and l2: one pass for sums, and one for results."""
    by_target = any(needed[1:])
    results, rows = found.results(value), _parts_of(y, found.place)
    sums = _product_sums(found, results, rows, reverse=True, by_target=by_target)
    by_x = torch.empty_like(value)
    into = _parts_of(by_x, found.place, writes=True)
    by_targets: list[tuple[Any, ...]] = []
    for result, row, total, written in zip(results, rows, sums, into, strict=True):
        written.copy_(result.product(row, total, reverse=True))
        if by_target:
            by_targets.append(result.target_products(total))
    columns = [_column(found, by_targets, i, target) for i, target in enumerate(targets)]
    return by_x, *(c if wanted else None for c, wanted in zip(columns, needed[1:], strict=True))


def _column(found: _Found, by_targets: list[Any], i: int, target: Tensor | None) -> Any:
    """Return the gradient by one of the targets; one number collects what all vectors say."""
    if target is None:
        return None
    numbers = [torch.as_tensor(one[i], dtype=torch.float64).reshape(()) for one in by_targets]
    column = torch.stack(numbers) if numbers else torch.zeros(0, dtype=torch.float64)
    column = column.to(target.device).reshape(found.batch)
    return column.sum_to_size(target.shape).to(target.dtype)


def _product_sums(
    found: _Found,
    results: list[parts.Result],
    rows: list[Tensor],
    *,
    reverse: bool,
    by_target: bool,
) -> Iterator[Tensor]:
    """Return the sums that products take, over all ranks, of each vector."""
    shares = [
        result.product_sums(row, reverse=reverse, by_target=by_target)
        for result, row in zip(results, rows, strict=True)
    ]
    if not shares:
        return iter(())
    return iter(summed(torch.stack(shares), found.place.groups))


def _gradients_by_formula(
    found: _Found, value: Tensor, scale: Tensor, targets: Any, given: Any, needed: tuple[bool, ...]
) -> tuple[Any, ...]:
    """Return the gradients in plain operations, which can be differentiated again."""
    groups, inner = found.place.groups, found.place.inner
    g_value, g_scale = given
    g_scale = None if g_scale is None else all_summed(g_scale, groups)
    by_x, change = found.products(value, scale).cotangent(
        None if g_value is None else rows_of(g_value, inner),
        g_scale,
        by_x=needed[0],
        by_target=any(needed[1:]),
    )
    by_x = None if by_x is None else by_x.reshape(value.shape)
    heard = [None if t is None else heard_of_all(t, groups) for t in targets]
    everything = filled(heard, found.plan.options[:3])
    by_targets = by_targets_of(found.plan, everything, change, needed)
    return by_x, *(None if g is None else spoken_once(g, found.place) for g in by_targets)


class _Derivatives(NamedTuple):
    """The derivatives of solved projections, of which this rank has parts."""

    found: _Found
    value: Tensor

    def product(self, y: Tensor, *, reverse: bool, out: Any = None) -> Tensor:
        """Return the Jacobian, or its transpose, times y."""
        found, y = self.found, y.to(self.value.device, self.value.dtype)
        if is_watched(y):
            scales = [solution.formula.scale for solution in found.solutions]
            scale = torch.tensor(scales, dtype=XP.wide(y), device=y.device).reshape(found.batch)
            products, rows = found.products(self.value, scale), rows_of(y, found.place.inner)
            if reverse:
                by_x = products.cotangent(rows, None, by_x=True, by_target=False)[0]
            else:
                by_x = products.tangent(rows, NO_CHANGE)[0]
            return by_x.reshape(self.value.shape)
        results, rows = found.results(self.value), _parts_of(y, found.place)
        sums = _product_sums(found, results, rows, reverse=reverse, by_target=False)
        every = zip(results, rows, sums, strict=True)
        return self._stacked(
            [one.product(row, total, reverse=reverse) for one, row, total in every]
        )

    def jacobian(self) -> NoReturn:
        """Refuse: it would have the square of a long vector's entries."""
        n = self.found.place.length
        raise ValueError(
            f"jacobian() of vectors of {n} entries that ranks share would be too large: use jvp "
            "and vjp"
        )

    def target_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        pairs = [one.target_gradient() for one in self.found.results(self.value)]
        return self._stacked([a for a, _ in pairs]), self._stacked([b for _, b in pairs])

    def sparseness_gradient(self) -> Tensor | None:
        """Return the derivative by the sparseness."""
        if self.found.plan.both_norms:
            return None
        return self._stacked([one.sparseness_gradient() for one in self.found.results(self.value)])

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.found.batch else self.found.place.length

    def as_numpy(self, array: Tensor) -> Any:
        """Return a tensor as a NumPy array."""
        return engines.as_numpy(array)

    def _stacked(self, rows: list[Tensor]) -> Tensor:
        """Return parts of vectors in the shape of the result."""
        if not rows:
            return torch.empty_like(self.value)
        return torch.stack(rows).to(self.value.dtype).reshape(self.value.shape)
