"""What is measured: which inputs, and who takes part."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import hoyer
from hoyer.paper.problems import random_vector

from . import machine, peers, reference
from .timing import Contestant, Quartiles, Settings, quartiles, race, ratios

Array = npt.NDArray[Any]

LIGHT = ("uniform", "halfnormal")
HEAVY = ("lognormal", "cauchy")
KINDS = LIGHT + HEAVY
SPARSENESS = (0.5, 0.75, 0.9, 0.99)
DTYPES = ("float32", "float64")

VECTOR_EXPONENTS = (4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26)
PEER_EXPONENTS = range(10, 23)
PEER_SPARSENESS = 0.9
ROW_LENGTHS = (16, 64, 256, 1024, 4096, 16384)
ROW_TOTAL = 2**22
STREAM_LEAST = 2**18
"""Shorter vectors live in the caches: a copy around them says nothing."""
CHECKED_ROWS = 32

# The contestants.
PROJECT = "hoyer.project(out=)"
PROJECT_NEW = "hoyer.project"
PRODUCT = "hoyer jvp(out=)"
PRODUCT_NEW = "hoyer jvp"
SPARSE = "hoyer.project_sparse"
TWO_THREADS, ONE_THREAD = "hoyer, 2 threads", "hoyer, 1 thread"
COPYTO = "numpy.copyto"
COPY = "numpy.copy"
STREAM = "streaming copy"
ABS = "numpy.abs"
SORT = "numpy.sort"
SORTING = "NumPy sorting"
NEWTON = "NumPy newton_sqr"
TORCHNMF = "torchnmf"
SOFTMAX = "torch.softmax(out=)"
SOFTMAX_NEW = "torch.softmax"

PROJECTORS: dict[str, peers.Projector] = {SORTING: peers.sorting, NEWTON: peers.newton_sqr}
if peers.torchnmf:
    PROJECTORS[TORCHNMF] = peers.nmf_projection


class Case(NamedTuple):
    """One input and what is done with it."""

    group: str
    """One of `GROUPS`."""
    n: int
    """Entries of a vector."""
    kind: str = "uniform"
    sparseness: float = 0.9
    dtype: str = "float32"
    rows: int = 1

    def __str__(self) -> str:
        what = f"{self.group}: n={self.n} {self.kind} {self.sparseness} {self.dtype}"
        return what if self.rows == 1 else f"{what}, {self.rows} rows"


class Outcome(NamedTuple):
    """What came out of a case."""

    case: Case
    seconds: dict[str, Quartiles]
    """Per contestant."""
    ratios: dict[str, dict[str, Quartiles]]
    """Of each call of hoyer, to everyone else, within the rounds."""
    errors: dict[str, float]
    """Of each projection, in eps."""
    evaluations: float
    """How often hoyer read the data before it wrote (mean over rows)."""


class Entered(NamedTuple):
    """A case made ready: who takes part, and how to judge their results."""

    contestants: list[Contestant]
    errors: dict[str, float]
    evaluations: float


@lru_cache(maxsize=1)
def data(kind: str, size: int, dtype: str) -> Array:
    """Draw non-negative entries, so that all contestants solve the same problem."""
    x = random_vector(kind, size, np.random.default_rng(size), dtype)
    np.abs(x, out=x)
    return x


@cache
def streaming_copy() -> Callable[[Array, Array], None] | None:
    """Return the streaming copy, compiled once."""
    return peers.streaming_copy()


def copies(x: Array) -> list[Contestant]:
    """Return the copies to compare with."""
    to = np.empty_like(x)
    contestants = [
        Contestant(COPYTO, partial(np.copyto, to, x)),
        Contestant(COPY, partial(np.copy, x)),
    ]
    stream = streaming_copy() if x.size >= STREAM_LEAST else None
    if stream:
        contestants.append(Contestant(STREAM, partial(stream, to, x)))
    return contestants


# ---- the groups ----


def vector(case: Case) -> Entered:
    """Enter one vector; at one sparseness also the peers."""
    x = data(case.kind, case.n, case.dtype)
    out = np.empty_like(x)
    contestants = [
        Contestant(PROJECT, partial(hoyer.project, x, case.sparseness, out=out)),
        Contestant(PROJECT_NEW, partial(hoyer.project, x, case.sparseness)),
        *copies(x),
    ]
    found = hoyer.solve(x, case.sparseness)
    exact = reference.solve(x, case.sparseness, float(found.shift))
    errors = {PROJECT: reference.error(exact, hoyer.project(x, case.sparseness, out=out))}
    if case.sparseness == PEER_SPARSENESS and case.n in [2**e for e in PEER_EXPONENTS]:
        l1, l2 = map(float, hoyer.target_norms(case.n, case.sparseness))
        contestants.append(Contestant(SORT, partial(np.sort, x)))
        for name, function in PROJECTORS.items():
            # torchnmf's alternation is not sure to end where entries must grow.
            if name != TORCHNMF or case.kind in LIGHT:
                contestants.append(Contestant(name, partial(function, x, l1, l2)))
                errors[name] = reference.error(exact, function(x, l1, l2))
    return Entered(contestants, errors, float(found.evaluations))


def rows(case: Case) -> Entered:
    """Enter many rows, against softmax, which reads and writes as much."""
    x = data(case.kind, case.n * case.rows, case.dtype).reshape(case.rows, case.n)
    out = np.empty_like(x)
    contestants = [
        Contestant(PROJECT, partial(hoyer.project, x, case.sparseness, out=out)),
        Contestant(PROJECT_NEW, partial(hoyer.project, x, case.sparseness)),
        Contestant(COPYTO, partial(np.copyto, np.empty_like(x), x)),
    ]
    if peers.torch:
        contestants.append(Contestant(SOFTMAX, peers.softmax(x, np.empty_like(x))))
        contestants.append(Contestant(SOFTMAX_NEW, peers.softmax(x)))
    error, evaluations = row_quality(x, case.sparseness)
    return Entered(contestants, {PROJECT: error}, evaluations)


def row_quality(x: Array, sparseness: float) -> tuple[float, float]:
    """Return the largest error among some of the rows, and the mean of the evaluations."""
    found = hoyer.solve(x, sparseness)
    worst = 0.0
    for i in np.linspace(0, len(x) - 1, min(CHECKED_ROWS, len(x))).astype(int):
        exact = reference.solve(x[i], sparseness, float(found.shift[i]))
        worst = max(worst, reference.error(exact, found.value[i]))
    return worst, float(np.mean(found.evaluations))


def gradient(case: Case) -> Entered:
    """Enter the product of the Jacobian with a vector, the projection being there already."""
    x = data(case.kind, case.n, case.dtype)
    y = random_vector("normal", case.n, np.random.default_rng(1), case.dtype)
    found = hoyer.solve(x, case.sparseness)
    exact = reference.solve(x, case.sparseness, float(found.shift))
    error = reference.derivative_error(exact, y, found.jvp(y))
    contestants = [
        Contestant(PRODUCT, partial(found.jvp, y, out=np.empty_like(x))),
        Contestant(PRODUCT_NEW, partial(found.jvp, y)),
        *copies(x),
    ]
    return Entered(contestants, {PRODUCT: error}, float(found.evaluations))


def single(case: Case) -> Entered:
    """Enter a single small call with everything included."""
    entered = vector(case)
    absolute = Contestant(ABS, partial(np.abs, data(case.kind, case.n, case.dtype)))
    return entered._replace(contestants=[*entered.contestants, absolute])


def sparse(case: Case) -> Entered:
    """Enter a compressed result."""
    x = data(case.kind, case.n, case.dtype)
    project_sparse: Callable[..., Any] = vars(hoyer)["project_sparse"]  # it may be missing
    found = hoyer.solve(x, case.sparseness)
    exact = reference.solve(x, case.sparseness, float(found.shift))
    error = reference.error(exact, project_sparse(x, case.sparseness).toarray().reshape(-1))
    contestants = [Contestant(SPARSE, partial(project_sparse, x, case.sparseness)), *copies(x)]
    return Entered(contestants, {SPARSE: error}, float(found.evaluations))


def threads(case: Case) -> Entered:
    """Enter rows, or one vector, with two threads and with one."""
    x = data(case.kind, case.n * case.rows, case.dtype).reshape(case.rows, case.n)
    call = partial(hoyer.project, x, case.sparseness, out=np.empty_like(x))
    contestants = [
        Contestant(name, call, partial(machine.set_threads, number))
        for number, name in ((2, TWO_THREADS), (1, ONE_THREAD))
    ]
    machine.set_threads(2)
    error, evaluations = row_quality(x, case.sparseness)
    return Entered(contestants, {TWO_THREADS: error}, evaluations)


GROUPS: dict[str, Callable[[Case], Entered]] = {
    "single": single,
    "vector": vector,
    "rows": rows,
    "gradient": gradient,
    "sparse": sparse,
    "threads": threads,
}


def measure(case: Case, settings: Settings) -> Outcome:
    """Run one case."""
    entered = GROUPS[case.group](case)
    seconds = race(entered.contestants, settings)
    ours = [name for name in seconds if name.startswith("hoyer")]
    return Outcome(
        case,
        {name: quartiles(values) for name, values in seconds.items()},
        {
            name: {
                other: ratios(seconds[name], values)
                for other, values in seconds.items()
                if other != name
            }
            for name in ours
        },
        entered.errors,
        entered.evaluations,
    )


# ---- the lists ----


def quick() -> Iterator[Case]:
    """Return every goal's cases at least once."""
    yield Case("single", 16)
    yield Case("single", 16, dtype="float64")
    for exponent in VECTOR_EXPONENTS:
        yield Case("vector", 2**exponent)
    for exponent, kind in product((10, 14, 18, 22), KINDS[1:]):
        yield Case("vector", 2**exponent, kind)
    for exponent, sparseness in product((10, 14, 18, 22), (0.5, 0.99)):
        yield Case("vector", 2**exponent, "halfnormal", sparseness)
    for exponent, kind, sparseness in product((14, 18), HEAVY, (0.5, 0.99)):
        yield Case("vector", 2**exponent, kind, sparseness)
    for exponent in (10, 14, 18):
        yield Case("vector", 2**exponent, dtype="float64")
    for n, kind in product(ROW_LENGTHS, LIGHT):
        yield Case("rows", n, kind, rows=ROW_TOTAL // n)
    for exponent in (10, 18, 26):
        yield Case("gradient", 2**exponent)
    yield Case("sparse", 2**26, sparseness=0.99)
    yield Case("threads", 1024, rows=65536)
    for exponent in (20, 24):
        yield Case("threads", 2**exponent)


def full() -> Iterator[Case]:
    """Return all the cases: those of the same input one after the other."""
    for dtype, kind, sparseness in product(DTYPES, LIGHT, SPARSENESS):
        yield Case("single", 16, kind, sparseness, dtype)
    for exponent, dtype, kind, sparseness in product(VECTOR_EXPONENTS, DTYPES, KINDS, SPARSENESS):
        yield Case("vector", 2**exponent, kind, sparseness, dtype)
    for n, dtype, kind, sparseness in product(ROW_LENGTHS, DTYPES, KINDS, SPARSENESS):
        yield Case("rows", n, kind, sparseness, dtype, ROW_TOTAL // n)
    for exponent, dtype, kind in product((10, 14, 18, 22, 26), DTYPES, LIGHT):
        for sparseness in (0.5, 0.9, 0.99):
            yield Case("gradient", 2**exponent, kind, sparseness, dtype)
    for dtype, kind in product(DTYPES, LIGHT):
        yield Case("sparse", 2**26, kind, 0.99, dtype)
    for kind, sparseness in product(LIGHT, (0.5, 0.9)):
        yield Case("threads", 1024, kind, sparseness, rows=65536)
        for exponent in (20, 22, 24, 26):
            yield Case("threads", 2**exponent, kind, sparseness)


def possible(cases: Iterable[Case]) -> tuple[list[Case], list[str]]:
    """Return the cases that can be run here, and notes on what is left out."""
    missing = {
        "sparse": None if hasattr(hoyer, "project_sparse") else "hoyer has no project_sparse",
        "threads": None if hasattr(hoyer, "set_num_threads") else "hoyer has no set_num_threads",
    }
    if missing["threads"] is None and len(machine.ALLOWED) == 1:
        missing["threads"] = "there is one core only"
    notes = [f"Group {group!r} left out: {why}." for group, why in missing.items() if why]
    if not peers.torch:
        notes.append("torch.softmax left out: PyTorch cannot be imported.")
    if not peers.torchnmf:
        notes.append("torchnmf left out: it cannot be imported.")
    if streaming_copy() is None:
        notes.append("Streaming copy left out: no compiler, or not x86-64.")
    return [case for case in cases if not missing.get(case.group)], notes
