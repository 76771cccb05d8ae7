"""What is done to one chunk of vectors that lie in several: look at it, write it, differentiate."""

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...engines import core, parts
from ...engines.arrays.histogram import Parts
from ...engines.arrays.namespace import namespace
from ...engines.parts import Place, Request, Result
from .. import not_finite
from .local import chunk_name
from .reading import Source
from .search import Said, merge, objects_like, requests_of, to_host


class Frame(NamedTuple):
    """Where vectors lie, the same for all chunks."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    """That of a whole vector, along these axes."""
    masked: bool
    """Whether a mask comes with every chunk."""

    def vectors(self, x: Any) -> tuple[Any, tuple[int, ...]]:
        """Return a chunk with the axes of its vectors at the end, and the shape of the others."""
        others = [i for i in range(x.ndim) if i not in self.axes]
        moved = x.transpose([*others, *self.axes])
        return moved, moved.shape[: len(others)]

    def masks(self, where: Any, x: Any) -> Any:
        """Return a chunk of the mask in the same manner, as an array of the kind that x is."""
        if where is None:
            return None
        library = engine_of(x).namespace_of(x).library
        if not isinstance(where, type(x)):
            where = library.asarray(where)
        return self.vectors(library.broadcast_to(where, x.shape))[0]

    def place(self, slices: tuple[slice, ...]) -> Place:
        """Return where in its vectors a chunk lies."""
        return Place(tuple(slices[i].start for i in self.axes), self.shape)

    def opened(self, more: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Return the mask, if there is one, and what else came with a chunk."""
        return (more[0], more[1:]) if self.masked else (None, more)

    def boxed(self, items: Iterable[Any], ndim: int, batch: tuple[int, ...]) -> Any:
        """Return objects, one for each vector, as an array with the axes of the vectors."""
        result = np.empty(math.prod(batch), object)
        for i, item in enumerate(items):
            result[i] = item
        sizes = iter(batch)
        return result.reshape([1 if i in self.axes else next(sizes) for i in range(ndim)])


class Blocks(NamedTuple):
    """Chunks that a task looks at one after the other: their numbers, and their slices of x."""

    numbers: tuple[tuple[int, ...], ...]
    slices: tuple[tuple[slice, ...], ...]


def engine_of(x: Any) -> Any:
    """Return who computes on the parts of a chunk."""
    if isinstance(x, np.ndarray):
        return core
    return Parts(namespace(sys.modules[type(x).__module__.partition(".")[0]]))


# ---- the passes ----


def look_first(
    x: Any, slices: Any, *more: Any, request: Request, checks: bool, digested: bool, frame: Frame
) -> Any:
    """Return what a chunk says to the first request; refuse NaN and infinity if asked to."""
    where, (place,) = frame.opened(more)
    count = math.prod(size for i, size in enumerate(x.shape) if i not in frame.axes)
    said = _look(x, where, slices, [request] * count, frame)
    if checks and any(one.answer[0] for one in said.ravel()):
        raise ValueError(_bad_entry(to_host(x), where, slices, place, frame.axes))
    if digested and said.size:
        first, *others = said.ravel()  # one of the vectors takes it along
        own = (chunk_name(place), digest(x))
        return objects_like(said, iter([first._replace(digests=(own,)), *others]))
    return said


def digest(x: Any) -> int:
    """Return the sum of a chunk's bits, 64 at a time, modulo 2**64: cheaper than to read them."""
    bits = x.ravel().view(f"u{x.dtype.itemsize}")
    per_word = 8 // bits.dtype.itemsize
    whole = len(bits) // per_word * per_word
    words = bits[:whole].view(np.uint64).sum(dtype=np.uint64), bits[whole:].sum(dtype=np.uint64)
    return sum(map(int, words)) % 2**64


def compared(x: Any, before: Any, place: Any) -> Any:
    """Return a chunk that has been read again if it is what it was."""
    name, known = chunk_name(place), before.item()
    if name in known and digest(x) != known[name]:
        raise ValueError(
            f"{name} says one thing now and another thing later: it is read several times, and "
            "must not change; write x to a store first, or call x.persist()"
        )
    return x


def look_further(x: Any, slices: Any, *more: Any, frame: Frame) -> Any:
    """Return what a chunk says to searches that go on."""
    where, (requests,) = frame.opened(more)
    return _look(x, where, slices, list(requests.ravel()), frame)


def look_rarely(  # noqa: PLR0917 - what a task has
    state: Any,
    source: Source | None,
    held: list[list[Any]],
    blocks: Blocks,
    again: tuple[bool, ...],
    frame: Frame,
) -> Any:
    """Return what some chunks say to searches that go on, if there are any.

    Of the arrays those that `again` says are read from the source; chunks of the others are held.
    """
    requests = requests_of(state)
    if not any(request for request in requests.ravel()):
        return np.full(requests.shape, None)

    def said() -> Iterator[Any]:
        for number, slices, own in zip(*blocks, held, strict=True):
            read = iter(() if source is None else source.read(number))
            kept = iter(own)
            x, *mask = (next(read if one else kept) for one in again)
            yield look_further(x, slices, *mask, requests, frame=frame)

    return merge(list(said()))


def _look(x: Any, where: Any, slices: Any, requests: list[Request | None], frame: Frame) -> Any:
    """Return what a chunk says to a request about each of its vectors; None where there is none."""
    moved, batch = frame.vectors(x)
    masks = frame.masks(where, x)
    engine, place = engine_of(x), frame.place(slices)

    def said() -> Iterator[Said | None]:
        for index, request in zip(np.ndindex(batch), requests, strict=True):
            if request is None:
                yield None
                continue
            mask = None if masks is None else masks[index]
            numbers = to_host(parts.answer(engine, moved[index], request, place, mask))
            yield Said(request, numbers)

    return frame.boxed(said(), x.ndim, batch)


def _bad_entry(x: Any, where: Any, slices: Any, place: Any, axes: tuple[int, ...]) -> str:
    """Say where in the whole array, and in which chunk, the first NaN or infinity is."""
    bad = ~np.isfinite(x) if where is None else ~np.isfinite(x) & to_host(where)
    local = [int(i) for i in np.argwhere(bad)[0]]
    whole = [i + part.start for i, part in zip(local, slices, strict=True)]
    entry = tuple(whole[i] for i in axes)
    known = isinstance(place[0], slice)
    counted = "" if known else ": vectors are counted from its first"
    vector = tuple(one for i, one in enumerate(whole if known else local) if i not in axes)
    which = f" of vector {vector if len(vector) > 1 else vector[0]}" if vector else ""
    words = not_finite(x[tuple(local)], entry if len(entry) > 1 else entry[0], which)
    return f"{words} (in {chunk_name(place)}{counted})"


def write(x: Any, slices: Any, *more: Any, frame: Frame) -> Any:
    """Return the results of a chunk."""
    where, (state,) = frame.opened(more)
    moved, batch = frame.vectors(x)
    masks = frame.masks(where, x)
    engine, place = engine_of(x), frame.place(slices)

    def written(index: tuple[int, ...], search: Any) -> Any:
        mask = None if masks is None else masks[index]
        return parts.write(engine, moved[index], search.solution, place, mask)

    if not batch:
        return written((), state.item())
    searches = zip(np.ndindex(batch), state.ravel(), strict=True)
    return _filled(x, ((index, written(index, search)) for index, search in searches), frame)


def _filled(x: Any, pieces: Iterable[tuple[Any, Any]], frame: Frame) -> Any:
    """Return an array like a chunk, from what its vectors are to have."""
    result = engine_of(x).namespace_of(x).library.empty_like(x)
    room = frame.vectors(result)[0]
    for index, piece in pieces:
        room[index] = piece
    return result


# ---- derivatives ----


def sums_of(x: Any, slices: Any, *more: Any, reverse: bool, frame: Frame) -> Any:
    """Return a chunk's share of the sums that products take."""
    where, (value, y, state) = frame.opened(more)
    directions, batch = frame.vectors(y)
    sums = (
        to_host(result.product_sums(directions[index], reverse=reverse))
        for index, result in _results(x, where, value, state, frame)
    )
    return frame.boxed(sums, x.ndim, batch)


def product_of(x: Any, slices: Any, *more: Any, reverse: bool, frame: Frame) -> Any:
    """Return a chunk of a product with the Jacobian."""
    where, (value, y, sums, state) = frame.opened(more)
    directions, totals = frame.vectors(y)[0], iter(sums.ravel())
    results = _results(x, where, value, state, frame)
    products = (
        (index, result.product(directions[index], next(totals), reverse=reverse))
        for index, result in results
    )
    return _filled(x, products, frame)


def by_norm(x: Any, slices: Any, *more: Any, number: int, frame: Frame) -> Any:
    """Return a chunk of the derivatives by l1, number 0, or by l2."""
    where, (value, state) = frame.opened(more)
    results = _results(x, where, value, state, frame)
    return _filled(x, ((i, result.target_gradient()[number]) for i, result in results), frame)


def by_sparseness(x: Any, slices: Any, *more: Any, frame: Frame) -> Any:
    """Return a chunk of the derivative by the sparseness."""
    where, (value, state) = frame.opened(more)
    results = _results(x, where, value, state, frame)
    return _filled(x, ((i, result.sparseness_gradient()) for i, result in results), frame)


def _results(
    x: Any, where: Any, value: Any, state: Any, frame: Frame
) -> Iterator[tuple[tuple[int, ...], Result]]:
    """Return the parts of a chunk's vectors, with what their derivatives need."""
    moved, batch = frame.vectors(x)
    values = frame.vectors(value)[0]
    masks = frame.masks(where, x)
    engine = engine_of(x)
    for index, search in zip(np.ndindex(batch), state.ravel(), strict=True):
        mask = None if masks is None else masks[index]
        own = values[index], search.solution, search.plan, moved[index], mask
        # What overflows is meant to, as on devices, which say nothing.
        with np.errstate(all="ignore"):
            yield index, Result(engine, *own)
