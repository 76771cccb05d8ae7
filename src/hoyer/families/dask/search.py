"""The search for the projection of a vector in chunks, between the passes over these."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ...engines import parts
from ...engines.arrays.namespace import namespace
from ...engines.exact import Keys, bins_of, total_of
from ...engines.guess import most_divisions
from ...engines.parts import Request, Solution
from ...options import Options
from ...plan import Plan, plan_for
from .local import chunk_name

HOST = namespace(np)


class Said(NamedTuple):
    """What one chunk, or several together, answer to a request about one vector."""

    request: Request
    answer: Any
    digests: tuple[tuple[str, int], ...] = ()
    """Of the chunks that say it, with their names, to know them again."""


class Search(NamedTuple):
    """The search for one vector, as far as it has come: it can be taken up anywhere.

    A generator cannot travel between workers, so answers are kept, and heard again by a new one.
    """

    plan: Plan
    dtype: Any
    answers: tuple[Any, ...] = ()
    request: Request | None = None
    """What is wanted of the chunks; None if the search has ended."""
    solution: Solution | None = None

    def told(self, said: Said) -> "Search":
        """Return the search after one more answer."""
        answers = (*self.answers, said.answer)
        steps = parts.search(self.plan, self.dtype, HOST)
        try:
            request = next(steps)
            for one in answers:
                request = steps.send(one)
        except StopIteration as stop:
            return self._replace(answers=(), request=None, solution=stop.value)
        return self._replace(answers=answers, request=request)


def first_request(nonnegative: bool, dtype: Any) -> Request:
    """Return what is asked first, whatever the target is."""
    plain = Options(0.5, None, None, None, nonnegative, False, "auto", True)
    return next(parts.search(plan_for(4, plain), dtype, HOST))


def most_requests(nonnegative: bool, dtype: Any) -> int:
    """Return how many a search may take: until all keys lie apart, and one about neighbours."""
    width = Keys(key_bits(dtype), nonnegative).first_grid.width
    return 1 + most_divisions(width) + 1


def key_bits(dtype: Any) -> int:
    """Return the size of a type's keys; halves have those of float32."""
    return max(8 * int(dtype.itemsize), 32)


def to_host(numbers: Any) -> Any:
    """Return an array of whoever computes as a NumPy array."""
    return numbers.get() if hasattr(numbers, "get") else np.asarray(numbers)


# ---- many vectors: arrays of objects, one for each, which have the vectors' axes of length 1 ----


def objects_like(array: Any, items: Iterator[Any]) -> Any:
    """Return an array of objects in the shape of another."""
    result = np.empty(array.size, object)
    for i, item in enumerate(items):
        result[i] = item
    return result.reshape(array.shape)


def begin(
    said: Any,
    place: Any,
    *arrays: Any,
    names: tuple[str, ...],
    options: Options,
    n: int,
    dtype: Any,
    axes: tuple[int, ...],
) -> Any:
    """Return searches after the first answers; `arrays` are targets, and how many entries count."""
    targets = [np.broadcast_to(to_host(array), said.shape).ravel() for array in arrays]

    def begun(i: int, one: Said) -> Search:
        pairs = zip(names, targets, strict=True)
        own: dict[str, Any] = {name: np.asarray(target[i]) for name, target in pairs}
        count = own.pop("where", None)
        asked = options._replace(axis=None, **own)
        plan = plan_for(n, asked) if count is None else parts.plan_with_mask(n, int(count), asked)
        return Search(plan, dtype).told(one)

    def searches() -> Iterator[Search]:
        for i, one in enumerate(said.ravel()):
            try:
                yield begun(i, one)
            except ValueError as error:
                index = np.unravel_index(i, said.shape)
                raise ValueError(f"{error}{_vector_name(place, index, axes)}") from None

    return objects_like(said, searches())


def _vector_name(place: Any, index: Any, axes: tuple[int, ...]) -> str:
    """Say which vector it is, and in which chunks; nothing if there is one alone."""
    batch = [i for i in range(len(place)) if i not in axes]
    own = [int(index[i]) for i in batch]
    if not batch:
        return ""
    if not isinstance(place[0], slice):
        return f" (vector {_bare(own)} of {chunk_name(place)})"
    whole = [place[i].start + one for i, one in zip(batch, own, strict=True)]
    ends = (":" if i in axes else f"{one.start}:{one.stop}" for i, one in enumerate(place))
    return f" (vector {_bare(whole)}, in the chunks x[{', '.join(ends)}])"


def _bare(index: list[int]) -> Any:
    return tuple(index) if len(index) > 1 else index[0]


def requests_of(state: Any) -> Any:
    """Return what searches want of the chunks, which need not see how far they have come."""
    return objects_like(state, (search.request for search in state.ravel()))


def digests_of(said: Any) -> Any:
    """Return the digests of the chunks that said this together; none if they have no vectors."""
    box = np.empty((1,) * said.ndim, object)
    box[...] = dict(said.ravel()[0].digests) if said.size else {}
    return box


def advance(state: Any, said: Any) -> Any:
    """Return searches after the answers that some of them wanted; these may come in pieces."""
    said = merge(said)
    pairs = zip(state.ravel(), said.ravel(), strict=True)
    return objects_like(state, (one if news is None else one.told(news) for one, news in pairs))


def ended(state: Any) -> Any:
    """Return searches that have come to their end, as all of them have."""
    for search in state.ravel():
        if search.solution is None:
            raise RuntimeError("a search took more requests than it can: this is an error in hoyer")
    return state


def unchanged(said: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """Return it, as a reduction asks for."""
    return said


def merge(said: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """Return what several chunks say together."""
    arrays = list(_leaves(said))
    groups = zip(*(array.ravel() for array in arrays), strict=True)
    return objects_like(arrays[0], (_merged(group) for group in groups))


def _merged(group: tuple[Said | None, ...]) -> Said | None:
    told = [one for one in group if one is not None]
    if group[0] is None:
        return None
    request = group[0].request
    digests = tuple(chain.from_iterable(one.digests for one in told))
    return Said(request, parts.merged(request, (one.answer for one in told)), digests)


def add(sums: Any, axis: Any = None, keepdims: Any = None) -> Any:
    """Return sums over several chunks together."""
    first, *others = _leaves(sums)
    return sum(others, first)


def _leaves(blocks: Any) -> Iterator[Any]:
    if isinstance(blocks, list):
        for one in blocks:
            yield from _leaves(one)
    else:
        yield blocks


# ---- numbers for each vector ----


def field_of(state: Any, axes: tuple[int, ...], number: int, dtype: Any) -> Any:
    """Return one field of the records."""
    (state,) = _leaves(state)
    numbers = [search.solution.record[number] for search in state.ravel()]
    return np.array(numbers, float).reshape(state.shape).squeeze(axes).astype(dtype)


def sigma_of(said: Any, axes: tuple[int, ...], n: int, dtype: Any) -> Any:
    """Return the sparseness of vectors from the answers to the first request."""
    (said,) = _leaves(said)
    numbers = [_sigma(one.answer, n, key_bits(dtype)) for one in said.ravel()]
    return np.array(numbers, float).reshape(said.shape).squeeze(axes).astype(dtype)


def _sigma(numbers: Any, n: int, bits: int) -> float:
    keys = Keys(bits, nonnegative=False)
    total = total_of(bins_of(numbers[2:], keys.first_grid, keys))
    if numbers[0] or not total.second or n == 1:
        return math.nan
    # n - (l1/l2)**2 is exact, and keeps its digits near sparseness 0.
    slack = float(Fraction(n * total.second - total.first**2, total.second))
    root, ratio = math.sqrt(n), math.sqrt(max(n - slack, 1.0))
    return min(slack / ((root + ratio) * (root - 1)), 1.0)
