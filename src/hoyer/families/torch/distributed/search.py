"""Long vectors that ranks share: all of them search together, and each writes its part.

`hoyer.engines.parts` searches for each vector. What the searches ask in one round is answered
together, in one all-reduce of integers: so it takes as many for many vectors as for one, and the
bits of results do not depend on the number of ranks.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from ....engines import parts
from ....engines.arrays.histogram import Parts
from ....engines.arrays.products import Products
from ....options import Options
from ....plan import Plan, derivative_plan, plan_for
from .. import engines
from ..targets import with_targets
from ..tensors import XP, Tensor, rows_of
from .places import Place
from .ranks import Ranks, summed

AT_ONCE = 512
"""So many vectors are searched together: their histograms take about 50 MB."""


class Found(NamedTuple):
    """What is known of the vectors of which this rank has parts."""

    place: Place
    batch: tuple[int, ...]
    """The shape of the batch of these vectors."""
    solutions: list[parts.Solution]
    plans: list[Plan]
    """What was asked of each vector."""
    plan: Plan
    """What they have in common."""
    x: Tensor | None
    """What was projected, where results do not tell enough."""

    def per_vector(self, numbers: list[float], dtype: torch.dtype, device: Any) -> Tensor:
        """Return numbers of the vectors, in the shape of the batch."""
        return torch.tensor(numbers, dtype=dtype, device=device).reshape(self.batch)

    def scales(self, like: Tensor) -> Tensor:
        """Return beta of every vector."""
        scales = [solution.formula.scale for solution in self.solutions]
        return self.per_vector(scales, XP.wide(like), like.device)

    def results(self, value: Tensor) -> list[parts.Result]:
        """Return the results, of which this rank has parts, for their derivatives."""
        rows, engine = parts_of(value, self.place), engine_for(value)
        given: list[Any] = [None] * len(rows)
        if self.x is not None:
            given = parts_of(self.x, self.place)
        masks = _masks(self.plan.where, self.place, len(rows))
        every = zip(rows, self.solutions, self.plans, given, masks, strict=True)
        return [parts.Result(engine, *one) for one in every]

    def products(self, value: Tensor, scale: Tensor) -> Products:
        """Return their derivatives in plain operations, each sum one over all ranks."""
        inner, active = self.place.inner, None
        if engines.some_differ(self.plan):
            codes = [float(solution.active) for solution in self.solutions]
            active = self.per_vector(codes, torch.int8, value.device)
        x = None if self.x is None else rows_of(self.x, inner)
        return Products(rows_of(value, inner), scale, x, active, self.plan, Ranks(self.place))


@torch.no_grad()
def search(place: Place, x: Tensor, options: Options) -> tuple[Tensor, Found]:
    """Project the vectors of which this rank has parts; return its parts of the results."""
    rows = parts_of(x, place)
    batch = tuple(x.shape[: x.dim() - place.inner])
    plans, plan = _plans(place, batch, options)
    masks = _masks(plan.where, place, len(rows))
    at = parts.Place(place.starts(), place.shape[len(place.batch) :])
    solutions: list[parts.Solution] = []
    for begin in range(0, len(rows), AT_ONCE):
        some = slice(begin, begin + AT_ONCE)
        solutions += _Round(place, at, rows[some], masks[some]).searched(plans[some])
    engine, value = engine_for(x), x.new_empty(x.shape)
    written = zip(parts_of(value, place), rows, solutions, masks, strict=True)
    for into, row, solution, where in written:
        into.copy_(parts.write(engine, row, solution, at, where))
    return value, Found(place, batch, solutions, plans, plan, x if plan.needs_x else None)


class _Round(NamedTuple):
    """Several vectors that are searched at the same time, and what this rank has of them."""

    place: Place
    at: parts.Place
    """Where in each vector its part lies."""
    rows: list[Tensor]
    masks: list[Any]

    @property
    def limit(self) -> int:
        """How many entries of all ranks together may be gathered: each has a place for so many."""
        return parts.GATHERED_AT_ONCE // self.place.sharing

    def searched(self, plans: list[Plan]) -> list[parts.Solution]:
        """Return the solutions: as many rounds as the longest search takes."""
        pairs = zip(plans, self.rows, strict=True)
        searches = [parts.search(plan, row.dtype, XP, self.limit) for plan, row in pairs]
        solutions: dict[int, parts.Solution] = {}
        answers: dict[int, Any] = dict.fromkeys(range(len(searches)))
        # The searches are those that have not ended, and all ranks agree on them.
        while answers:
            requests = {}
            for i, numbers in answers.items():
                try:
                    requests[i] = searches[i].send(numbers)
                except StopIteration as stop:
                    solutions[i] = stop.value
            answers = self._answered(requests) if requests else {}
        return [solutions[i] for i in range(len(searches))]

    def _answered(self, requests: dict[int, parts.Request]) -> dict[int, Any]:
        """Return what all ranks say to some requests; the host waits for one all-reduce.

        Histograms are added. Other answers have a place for each rank, where others have zeros.
        """
        engine, pieces = engine_for(self.rows[0]), []
        for i, request in requests.items():
            own = parts.answer(engine, self.rows[i], request, self.at, self.masks[i])
            numbers = torch.as_tensor(own)
            pieces.append(numbers if request.what == "histogram" else self._apart(numbers))
        sums = summed(torch.cat(pieces), self.place.groups).cpu().numpy()
        ends = np.cumsum([len(piece) for piece in pieces])[:-1]
        said = zip(requests.items(), np.split(sums, ends), strict=True)
        return {i: self._merged(request, numbers) for (i, request), numbers in said}

    def _apart(self, answer: Tensor) -> Tensor:
        """Return an answer, and how long it is, where no other rank has anything."""
        place = self.place
        table = answer.new_zeros((place.sharing, 1 + max(self.limit, 2)))
        table[place.number, 0] = len(answer)
        table[place.number, 1 : 1 + len(answer)] = answer
        return table.reshape(-1)

    def _merged(self, request: parts.Request, numbers: Any) -> Any:
        if request.what == "histogram":
            return parts.merged(request, [numbers])
        table = numbers.reshape(self.place.sharing, -1)
        return parts.merged(request, [row[1 : 1 + row[0]] for row in table])


def engine_for(x: Tensor) -> Any:
    """Return who answers for a part."""
    if not engines.uses_core(x):
        return Parts(XP)
    from ....engines import core  # noqa: PLC0415 - there is one

    return core


def parts_of(x: Tensor, place: Place) -> list[Tensor]:
    """Return the parts of vectors that this rank has; views, if x has its entries in order."""
    first = x.dim() - place.inner
    count = math.prod(x.shape[:first])
    return list(x.reshape(count, *x.shape[first:]).unbind(0))


def _masks(where: Tensor | None, place: Place, count: int) -> list[Any]:
    return [None] * count if where is None else parts_of(where.contiguous(), place)


def _plans(place: Place, batch: tuple[int, ...], options: Options) -> tuple[list[Plan], Plan]:
    """Return what is asked of each vector, and what all of that has in common.

    With a mask ranks first count, together, how many entries it leaves.
    """
    where, n = options.where, place.length
    options = options._replace(where=None)
    columns = [_numbers(target, batch) for target in options[:3]]
    each = [with_targets(options, targets) for targets in zip(*columns, strict=True)]
    lengths = None
    if where is None:
        plans = [plan_for(n, one) for one in each]
    else:
        counts = where.sum(tuple(range(-place.inner, 0)))
        lengths = summed(counts, place.groups)
        every = zip(each, lengths.reshape(-1).tolist(), strict=True)
        plans = [parts.plan_with_mask(n, count, one) for one, count in every]
    numbers = (0.5 if isinstance(target, torch.Tensor) else target for target in options[:3])
    common = replace(
        derivative_plan(n, with_targets(options, numbers)),
        where=where,
        lengths=lengths,
        nearly_constant=any(plan.nearly_constant for plan in plans),
        needs_x=any(plan.needs_x for plan in plans),
    )
    return plans, common


def _numbers(target: Any, batch: tuple[int, ...]) -> list[Any]:
    """Return a target for each vector, as numbers of the host."""
    if not isinstance(target, torch.Tensor):
        return [target] * math.prod(batch)
    return list(engines.as_numpy(target.detach().expand(batch)).reshape(-1))
