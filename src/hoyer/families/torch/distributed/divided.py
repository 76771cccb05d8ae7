"""Vectors that ranks share as differentiable functions: one all-reduce in a backward pass."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import torch
from torch._compile import _disable_dynamo
from torch.autograd import forward_ad
from torch.distributed.tensor import DTensor

from ....engines import arrays, parts
from ....engines.arrays.products import NO_CHANGE
from ....options import Options
from ....projection import RECORD_FIELDS, Projection
from .. import FIELD_TYPES, engines
from ..functions import by_targets_of
from ..targets import Targets, filled, tensors_of
from ..tensors import Tensor, is_watched, rows_of
from .derivatives import ShardedDerivatives
from .places import Place
from .ranks import Ranks, all_summed, heard_of_all, spoken_once, summed
from .search import Found, parts_of, search


# How many rounds a search takes depends on the numbers: compiled code calls these functions.
@_disable_dynamo
def project(place: Place, x: DTensor, options: Options) -> DTensor:
    """Project vectors that ranks share, which are last in x."""
    return place.give(_projected(place, x, options)[0], place)


@_disable_dynamo
def solve(place: Place, x: DTensor, options: Options) -> Projection[DTensor]:
    """Project them, and tell what was found; ranks that share a vector all know it."""
    value, found = _projected(place, x, options)
    table = [solution.record for solution in found.solutions]
    records = torch.tensor(table, dtype=torch.float64, device=value.device)
    records = records.reshape(*found.batch, len(RECORD_FIELDS))
    fields = {
        name: place.of_vectors(records[..., i].to(FIELD_TYPES.get(name, records.dtype)))
        for i, name in enumerate(RECORD_FIELDS)
    }
    fields["active_code"] = fields.pop("active")
    own = _Derivatives(found, value.detach().clone())
    derivatives = ShardedDerivatives(own, place, place)
    return Projection(place.give(value, place), derivatives=derivatives, **fields)


@_disable_dynamo
def sparseness(place: Place, x: DTensor) -> DTensor:
    """Return sigma of vectors that ranks share."""
    rows = rows_of(place.take(x), place.inner)
    sigma: Tensor = arrays.sparseness(rows, Ranks(place))
    return place.of_vectors(spoken_once(sigma, place))


def _projected(place: Place, x: DTensor, options: Options) -> tuple[Tensor, Found]:
    """Return what this rank has of the results, and what is known of all."""
    local, options = place.take(x), place.options(options, x)
    targets = tensors_of(options)
    if not is_watched(local, *targets):
        return search(place, local, options)
    if forward_ad._current_level >= 0:
        raise RuntimeError(
            "vectors that ranks share have no forward-mode derivatives: use reverse mode, or "
            "solve(x, ...).jvp(y)"
        )
    told: list[Found] = []

    def find(x: Tensor) -> tuple[Tensor, Found]:
        value, found = search(place, x, options)
        told.append(found)
        return value, found

    value: Tensor = _project(local, *targets, find)[0]
    return value, told[0]


# ---- derivatives ----


class Dividing(torch.autograd.Function):
    """value, scale = projection of vectors of which this rank has parts."""

    @staticmethod
    def forward(  # noqa: PLR0917 - as `apply` passes them on
        ctx: Any,
        x: Tensor,
        sparseness: Any,
        l1: Any,
        l2: Any,
        find: Callable[[Tensor], tuple[Tensor, Found]],
    ) -> tuple[Tensor, Tensor]:
        """Search, and keep the result and what is known of it."""
        value, found = find(x)
        scale = found.scales(value)
        # Tensors are saved where autograd sees if somebody changes them.
        ctx.found = found._replace(x=None, plan=replace(found.plan, where=None))
        ctx.save_for_backward(value, scale, found.x, found.plan.where, sparseness, l1, l2)
        ctx.set_materialize_grads(False)
        return value, scale

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        """Return the gradients; in plain operations if somebody differentiates again."""
        g_value, g_scale = gradients
        if g_value is None and g_scale is None:
            return (None,) * 5
        value, scale, x, where, *targets = ctx.saved_tensors
        found = ctx.found._replace(x=x, plan=replace(ctx.found.plan, where=where))
        back = _Backward(found, value, scale, targets, ctx.needs_input_grad[:4])
        if torch.is_grad_enabled() or g_scale is not None:
            return *back.by_formula(g_value, g_scale), None
        return *back.at_once(g_value), None


_project: Any = Dividing.apply


class _Backward(NamedTuple):
    """A backward pass: gradients by x, sparseness, l1 and l2."""

    found: Found
    value: Tensor
    scale: Tensor
    targets: Any
    needed: tuple[bool, ...]

    def at_once(self, y: Tensor) -> tuple[Any, ...]:
        """Return the gradients by one all-reduce of a few numbers for each vector."""
        by_target, place = any(self.needed[1:]), self.found.place
        results, rows = self.found.results(self.value), parts_of(y, place)
        sums = _sums(place, results, rows, reverse=True, by_target=by_target)
        by_x = self.value.new_empty(self.value.shape)
        into = parts_of(by_x, place)
        said: list[Targets] = []
        for result, row, total, written in zip(results, rows, sums, into, strict=True):
            written.copy_(result.product(row, total, reverse=True))
            if by_target:
                said.append(result.target_products(total))
        return by_x, *(self._by_target(i, said) for i in range(3))

    def _by_target(self, i: int, said: list[Targets]) -> Tensor | None:
        """Return the gradient by a target: one number collects what all vectors say."""
        target: Tensor | None = self.targets[i]
        if target is None or not self.needed[1 + i]:
            return None
        wide: Any = {"dtype": torch.float64, "device": target.device}
        numbers = [torch.as_tensor(gradients[i], **wide).reshape(1) for gradients in said]
        column = torch.cat([torch.zeros(0, **wide), *numbers]).reshape(self.found.batch)
        return column.sum_to_size(target.shape).to(target.dtype)

    def by_formula(self, g_value: Tensor | None, g_scale: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients in plain operations, which can be differentiated again."""
        found, place = self.found, self.found.place
        by_x, change = found.products(self.value, self.scale).cotangent(
            None if g_value is None else rows_of(g_value, place.inner),
            None if g_scale is None else all_summed(g_scale, place.groups),
            by_x=self.needed[0],
            by_target=any(self.needed[1:]),
        )
        by_x = None if by_x is None else by_x.reshape(self.value.shape)
        heard = [None if t is None else heard_of_all(t, place.groups) for t in self.targets]
        targets = filled(heard, found.plan.options[:3])
        by_targets = by_targets_of(found.plan, targets, change, self.needed)
        return by_x, *(None if g is None else spoken_once(g, place) for g in by_targets)


def _sums(
    place: Place,
    results: list[parts.Result],
    rows: list[Tensor],
    *,
    reverse: bool,
    by_target: bool = False,
) -> list[Tensor]:
    """Return the sums that products take, over all ranks, of each vector."""
    shares = [
        result.product_sums(row, reverse=reverse, by_target=by_target)
        for result, row in zip(results, rows, strict=True)
    ]
    return list(summed(torch.stack(shares), place.groups)) if shares else []


class _Derivatives(NamedTuple):
    """The derivatives of solved projections, of which this rank has parts."""

    found: Found
    value: Tensor

    def product(self, y: Tensor, *, reverse: bool, out: Any = None) -> Tensor:
        """Return the Jacobian, or its transpose, times y."""
        found, place = self.found, self.found.place
        y = y.to(self.value.device, self.value.dtype)
        if is_watched(y):
            products = found.products(self.value, found.scales(self.value))
            whole = rows_of(y, place.inner)
            if reverse:
                moved = products.cotangent(whole, None, by_x=True, by_target=False)[0]
            else:
                moved = products.tangent(whole, NO_CHANGE)[0]
            by_formula: Tensor = moved.reshape(self.value.shape)
            return by_formula
        results, rows = found.results(self.value), parts_of(y, place)
        every = zip(results, rows, _sums(place, results, rows, reverse=reverse), strict=True)
        return self._stacked([one.product(row, sums, reverse=reverse) for one, row, sums in every])

    def jacobian(self) -> NoReturn:
        """Refuse: it would have the square of a long vector's entries."""
        raise ValueError(
            f"jacobian() of vectors of {self.found.place.length} entries that ranks share would be "
            "too large: use jvp and vjp"
        )

    def target_gradient(self) -> tuple[Tensor, Tensor]:
        """Return the derivatives by l1 and by l2 at the norms found."""
        pairs = [one.target_gradient() for one in self.found.results(self.value)]
        return self._stacked([a for a, _ in pairs]), self._stacked([b for _, b in pairs])

    def sparseness_gradient(self) -> Tensor | None:
        """Return the derivative by the sparseness."""
        if self.found.plan.both_norms:
            return None
        results = self.found.results(self.value)
        return self._stacked([one.sparseness_gradient() for one in results])

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        return None if self.found.batch else self.found.place.length

    def as_numpy(self, array: Tensor) -> Any:
        """Return a tensor as a NumPy array."""
        return engines.result_as_numpy(array)

    def _stacked(self, rows: list[Tensor]) -> Tensor:
        """Return parts of vectors in the shape of the result."""
        if not rows:
            return torch.empty_like(self.value)
        return torch.stack(rows).to(self.value.dtype).reshape(self.value.shape)
