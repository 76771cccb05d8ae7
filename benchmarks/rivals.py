"""Right results: ``python -m benchmarks.rivals [--out DIR]``, ours beside those of others.

Float32 vectors of every kind that goes wrong somewhere, onto the simplex, the L1 ball and the L1
sphere. A result counts as wrong if it is not finite, or if an entry is off by more than a
thousandth of the largest entry of the exact one (for which the given floats count as real numbers).
"""

import argparse
import datetime
import importlib.metadata
import itertools
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import hoyer

from . import peers, reference

Array = npt.NDArray[Any]
Projector = Callable[[Array, float], Any]

WRONG = 1e-3
"""Errors beyond this, in the largest entry."""
LENGTHS = (3, 64, 1000)
NORMS = (1e-20, 1e-6, 1e-2, 0.5, 1.0, 3.0, 1e2, 1e6, 1e20)
SIMPLEX, BALL, SPHERE = "simplex", "L1 ball", "L1 sphere"
OURS = "hoyer.project"


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


class Count(NamedTuple):
    """How one of the contestants did on one set."""

    name: str
    set: str
    cases: int
    not_finite: int
    wrong: int
    """Finite, and off by more than `WRONG`."""
    worst: float
    """The largest error of finite results, in the largest entry."""


def cases() -> Iterator[tuple[str, Array, float]]:
    """Yield a vector and l1, with the vector's kind."""
    for kind, n, l1 in itertools.product(KINDS, LENGTHS, NORMS):
        rng = np.random.default_rng([n, list(KINDS).index(kind)])
        yield kind, KINDS[kind](rng, n).astype(np.float32), l1


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
    """Yield the others that are installed; sparsemax knows a sum of 1 alone, so x is scaled."""
    torch, entmax = peers.optional("torch"), peers.optional("entmax")
    if entmax:
        yield (
            "entmax.sparsemax",
            SIMPLEX,
            lambda x, l1: (
                entmax.sparsemax(torch.from_numpy(x / np.float32(l1)), dim=0).numpy()
                * np.float32(l1)
            ),
        )
    pot = peers.optional("ot.utils")
    if pot:
        yield "ot.utils.proj_simplex", SIMPLEX, lambda x, l1: pot.proj_simplex(x, np.float32(l1))
    optax = peers.optional("optax.projections")
    if optax:
        yield "optax projection_simplex", SIMPLEX, optax.projection_simplex
        yield "optax projection_l1_ball", BALL, optax.projection_l1_ball
        yield "optax projection_l1_sphere", SPHERE, optax.projection_l1_sphere


def count(name: str, onto: str, project: Projector) -> Count:
    """Ask for every case; whatever is raised counts as no finite result."""
    total = not_finite = wrong = 0
    worst = 0.0
    for _, x, l1 in cases():
        total += 1
        right = exact(x, l1, onto)
        try:
            found = np.asarray(project(x, l1)).astype(np.longdouble)
        except (ArithmeticError, ValueError, IndexError):
            found = np.full(x.shape, np.nan, np.longdouble)
        if not np.isfinite(found).all():
            not_finite += 1
            continue
        error = float(np.abs(found - right).max() / np.abs(right).max())
        worst, wrong = max(worst, error), wrong + (error > WRONG)
    return Count(name, onto, total, not_finite, wrong, worst)


def counts() -> list[Count]:
    """Let everybody answer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = [*ours(), *others()]
        order = {onto: i for i, onto in enumerate((SIMPLEX, BALL, SPHERE))}
        return [count(*one) for one in sorted(listed, key=lambda one: order[one[1]])]


def markdown(found: list[Count], versions: dict[str, str]) -> str:
    """Return the report."""
    cases_each = found[0].cases
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# Right results",
        "",
        f"`python -m benchmarks.rivals`, {datetime.datetime.now(datetime.UTC).date()}; {told}. "
        f"{cases_each} cases each, float32: {len(KINDS)} kinds of vectors ({', '.join(KINDS)}), "
        f"lengths {', '.join(map(str, LENGTHS))}, l1 from {NORMS[0]:g} to {NORMS[-1]:g}. A result "
        f"is wrong if an entry is off by more than {WRONG:g} of the largest entry of the exact "
        "one. sparsemax knows no other sum than 1: it is given x / l1, and its result is "
        "multiplied by l1.",
        "",
        "| set | by | not finite | wrong | worst error of a finite result (of the largest entry) |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {c.set} | {c.name} | {c.not_finite} | {c.wrong} | {c.worst:.2g} |" for c in found]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Ask, count, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    found = counts()
    versions = {}
    for name in ("hoyer", "entmax", "POT", "optax", "jax"):
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
