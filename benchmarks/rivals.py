"""Right results: ``python -m benchmarks.rivals [--out DIR]``, ours beside those of others.

Float32 vectors of every kind that goes wrong somewhere, onto the simplex, the L1 ball and the L1
sphere. A result is wrong if an entry is off by more than a thousandth of the largest entry of the
exact one (for which the given floats count as real numbers).

The magnitudes of such vectors onto a sparseness and norm 1, and groups of them onto a mean
sparseness: a result is wrong if either is off by more than a thousandth.
"""

import argparse
import datetime
import importlib.metadata
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import hoyer
from hoyer.paper import hoyer2004

from . import peers, reference

Array = npt.NDArray[Any]
Projector = Callable[[Array, float], Any]
Grouped = Callable[[list[Array], float], list[Array]]

WRONG = 1e-3
"""Errors beyond this, in the largest entry, or of the mean sparseness."""
LENGTHS = (3, 64, 1000)
SHORT = 64
"""The longest vectors for a general solver, which takes half a minute for one of 1000 entries."""
NORMS = (1e-20, 1e-6, 1e-2, 0.5, 1.0, 3.0, 1e2, 1e6, 1e20)
SETS = SIMPLEX, BALL, SPHERE = "simplex", "L1 ball", "L1 sphere"
OURS, SPARSEMAX, SLSQP = "hoyer.project", "entmax.sparsemax", "SciPy's SLSQP, float64"
OPTAX = {
    "projection_simplex": SIMPLEX,
    "projection_l1_ball": BALL,
    "projection_l1_sphere": SPHERE,
}
SPARSENESS = "a sparseness"
DEGREES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
GROUP, TOGETHER = "a mean sparseness", "hoyer.project_together"
COUNTS = (1, 2, 8, 30)
"""Vectors of a group."""
MEANS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)


def _half_zero(rng: np.random.Generator, n: int) -> Array:
    return rng.normal(size=n) * (rng.random(n) < 0.5)


KINDS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.random(n),
    "constant": lambda rng, n: np.full(n, 0.7),
    "few integers": lambda rng, n: rng.integers(-2, 3, n).astype(float),
    "half zero": _half_zero,
    "negative": lambda rng, n: -1 - rng.random(n),
    "offset of 1e4": lambda rng, n: 1e4 + rng.normal(size=n),
    "offset of 1e8": lambda rng, n: 1e8 + 8.0 * rng.integers(0, 50, n),
    "near-ties": lambda rng, n: 1 + 2.0**-23 * rng.integers(0, 4, n),
    "huge": lambda rng, n: 1e37 * rng.normal(size=n).clip(-3, 3),
    "tiny": lambda rng, n: 1e-37 * rng.normal(size=n),
    "heavy tails": lambda rng, n: rng.lognormal(0, 8, n),
}


class NoResultError(Exception):
    """Somebody says that there is no result."""


class NotAskedError(Exception):
    """A case cannot be put to somebody; it does not count."""


class Count(NamedTuple):
    """How one of the contestants did on one set."""

    name: str
    set: str
    cases: int
    none: int
    """An error was raised, or the contestant says itself that it found nothing."""
    not_finite: int
    wrong: int
    """Finite, and off by more than `WRONG`."""
    worst: float
    """The largest error of finite results, in the largest entry, or of the mean."""
    kinds: dict[str, int]
    """How many of all failures are with each kind of vectors."""


def cases(longest: int = LENGTHS[-1]) -> Iterator[tuple[str, Array, float]]:
    """Yield a vector and l1, with the vector's kind."""
    for kind, n, l1 in itertools.product(KINDS, LENGTHS, NORMS):
        rng = np.random.default_rng([n, list(KINDS).index(kind)])
        if n <= longest:
            yield kind, KINDS[kind](rng, n).astype(np.float32), l1


def groups() -> Iterator[tuple[str, list[Array], float]]:
    """Yield vectors of several lengths and a mean sparseness, with the kind of the vectors."""
    for kind, count in itertools.product(KINDS, COUNTS):
        rng = np.random.default_rng([count, list(KINDS).index(kind)])
        lengths = rng.integers(3, 200, count)
        vectors = [KINDS[kind](rng, int(n)).astype(np.float32) for n in lengths]
        yield from ((kind, vectors, mean) for mean in MEANS)


def magnitudes() -> Iterator[tuple[str, Array, float]]:
    """Yield vectors without negative entries and a sparseness, with the vector's kind."""
    for kind, n, sparseness in itertools.product(KINDS, LENGTHS, DEGREES):
        rng = np.random.default_rng([n, list(KINDS).index(kind)])
        yield kind, np.abs(KINDS[kind](rng, n)).astype(np.float32), sparseness


def exact(x: Array, l1: float, onto: str) -> Array:
    """Return the right result, in long double."""
    y = x if onto == SIMPLEX else np.abs(x)
    if onto == BALL and y.astype(np.longdouble).sum() <= l1:
        return x.astype(np.longdouble)
    value = reference.simplex(y, l1)
    return value if onto == SIMPLEX else np.copysign(value, x)


def ours() -> Iterator[tuple[str, str, Projector]]:
    """Yield this library on all sets."""
    yield OURS, SIMPLEX, lambda x, l1: hoyer.project(x, l1=l1, nonnegative=True)
    yield OURS, BALL, lambda x, l1: hoyer.project(x, l1=l1, at_most=True)
    yield OURS, SPHERE, lambda x, l1: hoyer.project(x, l1=l1)


def others() -> Iterator[tuple[str, str, Projector]]:
    """Yield the others that are installed."""
    torch, entmax = peers.optional("torch"), peers.optional("entmax")
    if entmax:
        yield SPARSEMAX, SIMPLEX, lambda x, l1: by_sparsemax(torch, entmax, x, np.float32(l1))
    pot = peers.optional("ot.utils")
    if pot:
        yield "ot.utils.proj_simplex", SIMPLEX, lambda x, l1: pot.proj_simplex(x, np.float32(l1))
    optimize = peers.optional("scipy.optimize")
    if optimize:
        yield SLSQP, SIMPLEX, lambda x, l1: by_quadratic_programming(optimize, x, l1)
    jax, optax = peers.optional("jax"), peers.optional("optax.projections")
    if optax:
        for name, onto in OPTAX.items():
            yield f"optax {name}", onto, compiled(jax, getattr(optax, name))


def compiled(jax: Any, project: Projector) -> Projector:
    """Return a function of JAX as it is mostly called."""
    call = jax.jit(project)
    return lambda x, l1: call(x, np.float32(l1))


def by_sparsemax(torch: Any, entmax: Any, x: Array, l1: np.float32) -> Array:
    """Project with sparsemax, which knows a sum of 1 alone: x is scaled, and so is the result."""
    scaled = x / l1
    if not np.isfinite(scaled).all():
        raise NotAskedError
    value: Array = entmax.sparsemax(torch.from_numpy(scaled), dim=0).numpy() * l1
    return value


def by_quadratic_programming(optimize: Any, x: Array, l1: float) -> Array:
    """Project onto the simplex with SciPy's general solver, from the middle, in float64."""
    y = x.astype(np.float64)
    found = optimize.minimize(
        lambda p: 0.5 * np.sum((p - y) ** 2),
        np.full(y.size, l1 / y.size),
        jac=lambda p: p - y,
        method="SLSQP",
        bounds=[(0, None)] * y.size,
        constraints={"type": "eq", "fun": lambda p: p.sum() - l1, "jac": np.ones_like},
    )
    if not found.success:
        raise NoResultError(found.message)
    value: Array = found.x
    return value


# ---- a sparseness ----


def sparse() -> Iterator[tuple[str, Projector]]:
    """Yield those who project onto a sparseness, at norm 1."""
    yield OURS, hoyer.project
    if peers.torchnmf:
        yield "torchnmf", onto_norms(peers.nmf_projection)
    yield "Hoyer (2004), float64", onto_norms(by_alternation)
    yield "sorting (Potluru et al. 2013), in NumPy", onto_norms(peers.sorting)
    yield "NewtonSqr (the paper), in NumPy", onto_norms(peers.newton_sqr)


def onto_norms(project: peers.Projector) -> Projector:
    """Return a function of the sparseness for one of both norms."""
    return lambda x, sparseness: project(x, *map(float, hoyer.target_norms(x.size, sparseness)))


def by_alternation(x: Array, l1: float, l2: float) -> Array:
    """Project with Hoyer's own method, as nmfpack has it, as `hoyer.paper` writes it down."""
    value: Array = hoyer2004.project(x.astype(np.float64), l1, l2).value
    return value


# ---- groups ----


def by_one_threshold(xs: list[Array], sparseness: float) -> list[Array]:
    """Give vectors a mean sparseness by the formulas of grouped sparse projection.

    All vectors lose one threshold, over sqrt(n) - 1 each, and are brought to norm 1. What is left
    of none of its entries is a single 1. The threshold at which the mean is right is found by
    bisection: 100 steps, or until the mean is right to 1e-6.

    R. Ohib et al., "Explicit group sparse projection with applications to deep learning and NMF",
    TMLR 2022. Their results have the norms that are nearest to the vectors; here it is 1.
    """

    def cut(threshold: float) -> list[Array]:
        found = []
        for x in xs:
            y = np.abs(x)
            z = np.maximum(y - x.dtype.type(threshold / (np.sqrt(x.size) - 1)), 0)
            z = z if z.any() else (np.arange(x.size) == y.argmax()).astype(x.dtype)
            found.append(np.copysign(z / np.linalg.norm(z), x))
        return found

    def lack(found: list[Array]) -> float:
        return sparseness - float(np.mean([hoyer.sparseness(z) for z in found]))

    found = cut(0.0)
    low, high = 0.0, max(float(np.abs(x).max() * (np.sqrt(x.size) - 1)) for x in xs)
    steps = 0
    # Invariant: low is too small, and high is too large; ends after 100 steps.
    while (lack(found) > 0 if steps == 0 else abs(lack(found)) > 1e-6) and steps < 100:
        middle, steps = (low + high) / 2, steps + 1
        found = cut(middle)
        low, high = (middle, high) if lack(found) > 0 else (low, middle)
    return found


def grouped() -> Iterator[tuple[str, Grouped]]:
    """Yield those who take groups."""
    yield TOGETHER, lambda xs, s: hoyer.project_together(xs, s, l2=1.0, only_increase=True)
    yield "GSP, its formulas in float32", by_one_threshold
    yield (
        "GSP, its formulas in float64",
        lambda xs, s: by_one_threshold([x.astype(np.float64) for x in xs], s),
    )


def mean_sparseness(xs: list[Array]) -> float:
    """Return the mean in long double; the units of the vectors do not matter."""
    shares = []
    for x in xs:
        y = np.abs(x.astype(np.longdouble))
        y /= y.max()
        root = np.sqrt(np.longdouble(x.size))
        shares.append((root - y.sum() / np.sqrt(np.square(y).sum())) / (root - 1))
    return float(np.mean(shares))


# ---- counting ----


def vector_errors(
    onto: str, project: Projector, longest: int
) -> Iterator[tuple[str, float | None]]:
    """Yield the kind of every case, and the error: None without a result, NaN if not finite."""
    for kind, x, l1 in cases(longest):
        right = exact(x, l1, onto)
        try:
            found = attempt(project, x, l1)
        except NotAskedError:
            continue
        if found is None:
            yield kind, None
            continue
        value = np.asarray(found).astype(np.longdouble)
        # A zero that becomes nonzero may take either sign.
        value, right = np.where(x == 0, np.abs([value, right]), [value, right])
        yield kind, float(np.abs(value - right).max() / np.abs(right).max())


def sparseness_errors(project: Projector) -> Iterator[tuple[str, float | None]]:
    """Yield the kind of every case, and how far sparseness or norm are off."""
    for kind, x, sparseness in magnitudes():
        found = attempt(project, x, sparseness)
        if found is None:
            yield kind, None
            continue
        value = np.asarray(found).astype(np.longdouble)
        norm = float(np.sqrt(np.square(value).sum()))
        if not 0 < norm < np.inf:
            yield kind, float("nan")
            continue
        yield kind, max(abs(mean_sparseness([value]) - sparseness), abs(norm - 1))


def group_errors(project: Grouped) -> Iterator[tuple[str, float | None]]:
    """Yield the same for groups: the error of the mean; sparser vectors may stay as they are."""
    for kind, xs, mean in groups():
        found = attempt(project, xs, mean)
        if found is None:
            yield kind, None
        else:
            yield kind, abs(mean_sparseness(found) - max(mean, mean_sparseness(xs)))


def attempt(project: Callable[[Any, float], Any], x: Any, target: float) -> Any:
    """Return what a call returns, or None if it raises an error."""
    try:
        return project(x, target)
    except (NoResultError, ArithmeticError, ValueError, IndexError, RuntimeError):
        return None


def count(name: str, onto: str, errors: Iterable[tuple[str, float | None]]) -> Count:
    """Sum up the errors of all cases."""
    total = none = not_finite = wrong = 0
    worst = 0.0
    kinds: dict[str, int] = {}
    for kind, error in errors:
        total += 1
        if error is None:
            none += 1
        elif not np.isfinite(error):
            not_finite += 1
        else:
            worst, wrong = max(worst, error), wrong + (error > WRONG)
        if error is None or not error <= WRONG:
            kinds[kind] = kinds.get(kind, 0) + 1
    return Count(name, onto, total, none, not_finite, wrong, worst, kinds)


def counts() -> Iterator[Count]:
    """Let everybody answer."""
    order = {onto: i for i, onto in enumerate(SETS)}
    for name, onto, project in sorted([*ours(), *others()], key=lambda one: order[one[1]]):
        yield count(
            name, onto, vector_errors(onto, project, SHORT if name == SLSQP else LENGTHS[-1])
        )
    for name, project in sparse():
        yield count(name, SPARSENESS, sparseness_errors(project))
    for name, project_group in grouped():
        yield count(name, GROUP, group_errors(project_group))


# ---- reports ----


def table(found: list[Count], error: str) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"| set | by | cases | no result | not finite | wrong | {error} | failures by kind |"
    yield "|---" * 8 + "|"
    for c in found:
        kinds = ", ".join(f"{kind} {n}" for kind, n in c.kinds.items())
        yield (
            f"| {c.set} | {c.name} | {c.cases} | {c.none} | {c.not_finite} | {c.wrong} | "
            f"{c.worst:.2g} | {kinds} |"
        )


def markdown(found: list[Count], versions: dict[str, str]) -> str:
    """Return the report."""
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# Right results",
        "",
        f"`python -m benchmarks.rivals`, {datetime.datetime.now(datetime.UTC).date()}; {told}.",
        "",
        f"Float32 vectors of {len(KINDS)} kinds ({', '.join(KINDS)}), lengths "
        f"{', '.join(map(str, LENGTHS))}, {len(NORMS)} values of l1 from {NORMS[0]:g} to "
        f"{NORMS[-1]:g}: {len(list(cases()))} cases. No result: an error is raised, or success is "
        f"denied. Wrong: an entry is off by more than {WRONG:g} of the largest entry of the exact "
        "result. sparsemax knows no other sum than 1: it is given x / l1 (where that is finite), "
        "and its result is multiplied by l1. optax runs under `jax.jit`. SLSQP gets vectors of up "
        f"to {SHORT} entries alone, since longer ones take it many seconds each.",
        "",
        *table([c for c in found if c.set in SETS], "worst (of the largest entry)"),
        "",
        "The magnitudes of the same vectors onto a sparseness of "
        f"{', '.join(map(str, DEGREES))} and norm 1: {len(list(magnitudes()))} cases. Wrong: "
        f"sparseness or norm of the result are off by more than {WRONG:g}; whether it is the "
        "nearest such vector is not asked. torchnmf gets float32, as networks have it; what is "
        "in NumPy sums in float64.",
        "",
        *table([c for c in found if c.set == SPARSENESS], "worst (of sparseness or norm)"),
        "",
        f"Groups of {', '.join(map(str, COUNTS))} vectors of such a kind, of 3 to 199 entries "
        f"each, and means of {', '.join(map(str, MEANS))}: {len(list(groups()))} cases. Wrong: "
        f"the mean sparseness of the results is off by more than {WRONG:g} (groups that are "
        "sparser than that themselves are to stay so). GSP is written down here "
        "from the formulas of Ohib et al. (2022), with a bisection of up to 100 steps: where "
        "largest entries are equal, no threshold gives the mean.",
        "",
        *table([c for c in found if c.set == GROUP], "worst (of the mean)"),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Ask, count, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(counts())
    versions = {}
    for name in ("hoyer", "entmax", "POT", "scipy", "optax", "jax", "torchnmf"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    text = markdown(found, versions)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "rivals.md").write_text(text, encoding="utf-8")
    record = {"versions": versions, "counts": [one._asdict() for one in found]}
    (options.out / "rivals.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
