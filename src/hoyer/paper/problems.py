"""The one collection of inputs that tests, experiments and benchmarks share.

A problem is a vector and the keyword arguments that `hoyer.project` takes for its target. The name
of a problem is its category, a slash, and what tells it from the others in there.
"""

import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hoyer.paper import potluru2013

__all__ = ["KINDS", "Problem", "collection", "random_vector"]


def __dir__() -> list[str]:
    return __all__


Vector = NDArray[Any]

_GENERATORS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "uniform": lambda rng, n: rng.random(n),
    "halfnormal": lambda rng, n: np.abs(rng.standard_normal(n)),
    "normal": lambda rng, n: rng.standard_normal(n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
}

KINDS = tuple(_GENERATORS)
"""The kinds of `random_vector`."""


class Problem(NamedTuple):
    """A vector and a target."""

    name: str
    """Unique within a collection."""
    x: "Vector"
    """The vector to project."""
    target: dict[str, Any]
    """Keyword arguments of `hoyer.project`."""

    @property
    def category(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]


class _Limits(NamedTuple):
    """Where the categories find the extremes of a dtype."""

    scale: float
    """A power of ten whose square overflows."""
    offset: float
    """A number so large that offset + u keeps about half of the digits of u."""
    max: float
    smallest: float
    min_exponent: int
    max_exponent: int


_LIMITS = {
    "float64": _Limits(1e300, 1e8, float(np.finfo(np.float64).max), 2.0**-1074, -1074, 1023),
    "float32": _Limits(1e37, 1e4, float(np.finfo(np.float32).max), 2.0**-149, -149, 127),
    "float16": _Limits(1e4, 1e2, float(np.finfo(np.float16).max), 2.0**-24, -24, 15),
}


def random_vector(
    kind: str, n: int, rng: np.random.Generator, dtype: "DTypeLike" = np.float64
) -> "Vector":
    """Draw a vector with independent entries.

    Parameters
    ----------
    kind : {"uniform", "halfnormal", "normal", "lognormal", "cauchy"}
        The distribution, in its standard form.
    n : int
        The length.
    rng : numpy.random.Generator
        Where the random numbers come from.
    dtype : dtype
        A floating-point type; values beyond its range are clipped.

    Returns
    -------
    ndarray
        The vector.

    Raises
    ------
    ValueError
        If the kind is not one of `KINDS`.

    Examples
    --------
    >>> random_vector("uniform", 3, np.random.default_rng(0)).round(3)
    array([0.637, 0.27 , 0.041])
    """
    if kind not in _GENERATORS:
        msg = f"unknown kind {kind!r}; choose one of {', '.join(map(repr, KINDS))}"
        raise ValueError(msg)
    return _cast(_GENERATORS[kind](rng, n), np.dtype(dtype))


def collection(
    dtype: "DTypeLike" = np.float64, *, seed: int = 0, large: bool = False
) -> list[Problem]:
    """Build the collection: every kind of input that a projection must get right.

    Parameters
    ----------
    dtype : dtype
        float64, float32 or float16; scales, offsets and ulps follow it.
    seed : int
        Another seed gives other random numbers under the same names.
    large : bool
        Whether to add vectors of length 2**20.

    Returns
    -------
    list of Problem
        The same problems on every call, in the same order.

    Raises
    ------
    ValueError
        If the dtype is none of the three.

    Examples
    --------
    >>> first = collection()[0]
    >>> first.name, first.x.shape, first.target
    ('uniform/n=4 s=0.2', (4,), {'sparseness': 0.2})
    """
    dtype = np.dtype(dtype)
    if dtype.name not in _LIMITS:
        msg = f"no collection for dtype {dtype.name}; choose one of {', '.join(_LIMITS)}"
        raise ValueError(msg)
    factory = _Factory(dtype, seed)
    problems = [problem for category in _CATEGORIES for problem in category(factory)]
    if large:
        problems += _large(factory)
    return problems


def _cast(values: ArrayLike, dtype: np.dtype[Any]) -> Vector:
    limit = np.finfo(dtype).max
    return np.clip(np.asarray(values, dtype=np.float64), -limit, limit).astype(dtype)


class _Factory:
    """Makes problems of one dtype, each with a generator seeded by its name."""

    def __init__(self, dtype: np.dtype[Any], seed: int) -> None:
        self.dtype = dtype
        self.seed = seed
        self.limits = _LIMITS[dtype.name]

    def rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def draw(self, name: str, kind: str, n: int) -> NDArray[np.float64]:
        return _GENERATORS[kind](self.rng(name), n)

    def shuffled(self, name: str, values: ArrayLike) -> Vector:
        """Cast the values and put them in random order."""
        return self.rng(name + " order").permutation(self.cast(values))

    def cast(self, values: ArrayLike) -> Vector:
        return _cast(values, self.dtype)

    def problem(self, name: str, values: ArrayLike, **target: Any) -> Problem:
        return Problem(name, self.cast(values), target)

    def next_below(self, value: float) -> float:
        """Return the next smaller number of the dtype."""
        return float(np.nextafter(self.dtype.type(value), self.dtype.type(-np.inf)))


def _random(f: _Factory) -> Iterator[Problem]:
    for kind in KINDS:
        for n in (4, 31, 256, 1024):
            for s in (0.2, 0.5, 0.8, 0.975):
                name = f"{kind}/n={n} s={s}"
                yield f.problem(name, f.draw(name, kind, n), sparseness=s)


def _forms(f: _Factory) -> Iterator[Problem]:
    for kind in ("uniform", "normal", "lognormal"):
        for n in (10, 100):
            x = f.draw(f"forms/{kind} n={n}", kind, n)
            name = f"forms/{kind} n={n}"
            yield f.problem(f"{name} keep", x, sparseness=0.7, l2="keep")
            yield f.problem(f"{name} nearest", x, sparseness=0.7, l2="nearest")
            yield f.problem(f"{name} with l1", x, sparseness=0.7, l1=3.0)
            yield f.problem(f"{name} with l2", x, sparseness=0.7, l2=0.125)
            yield f.problem(f"{name} both norms", x, l1=6.0, l2=2.5)
    yield f.problem("forms/1 to 10 keep", np.arange(1.0, 11.0), sparseness=0.5, l2="keep")
    big, small = math.sqrt(f.limits.max) / 4, 4 / math.sqrt(f.limits.max)
    for label, norm in (("large", big), ("small", small)):
        x = f.draw("forms/norm", "halfnormal", 20)
        yield f.problem(f"forms/{label} l2", x, sparseness=0.6, l2=norm)
        yield f.problem(f"forms/{label} l1 and l2", x, l1=2.5 * norm, l2=norm)


def _sorted(f: _Factory) -> Iterator[Problem]:
    for n in (10, 500):
        x = np.sort(f.draw(f"sorted/n={n}", "normal", n))
        for s in (0.3, 0.9):
            yield f.problem(f"sorted/ascending n={n} s={s}", x, sparseness=s)
            yield f.problem(f"sorted/descending n={n} s={s}", x[::-1], sparseness=s)


def _near_binary(f: _Factory) -> Iterator[Problem]:
    for n in (16, 200):
        for s in (0.3, 0.6, 0.9):
            for noise in (1e-9, 8 * float(np.finfo(f.dtype).eps)):
                name = f"near-binary/n={n} s={s} noise={noise:.0e}"
                rng = f.rng(name)
                x = rng.integers(0, 2, n) + noise * rng.random(n)
                yield f.problem(name, x, sparseness=s)


def _integers(f: _Factory) -> Iterator[Problem]:
    for n in (16, 128, 1000):
        for values in (3, 10):
            for s in (0.4, 0.9):
                name = f"integers/n={n} values={values} s={s}"
                yield f.problem(name, f.rng(name).integers(0, values, n), sparseness=s)
    for s in (0.1, 0.6):
        name = f"integers/signed s={s}"
        yield f.problem(name, f.rng(name).integers(-4, 5, 100), sparseness=s)


def _one_hot(f: _Factory) -> Iterator[Problem]:
    for n in (2, 3, 16, 256):
        for s in (0.1, 0.9, 1.0):
            yield f.problem(f"one-hot/n={n} s={s}", np.eye(n)[n // 2], sparseness=s)
    yield f.problem("one-hot/negative", -3 * np.eye(9)[4], sparseness=0.5)
    yield f.problem("one-hot/keep", 5 * np.eye(9)[4], sparseness=0.5, l2="keep")
    yield f.problem("one-hot/nearest", 5 * np.eye(9)[4], sparseness=0.5, l2="nearest")


def _short(f: _Factory) -> Iterator[Problem]:
    cases: dict[str, list[float]] = {
        "n=2 distinct": [1, 2],
        "n=2 mixed": [-1, 3],
        "n=2 with zero": [0, 7],
        "n=2 equal": [2, 2],
        "n=3 distinct": [2, 5, 3],
        "n=3 mixed": [-2, 1, 0.5],
        "n=3 two maxima": [4, 1, 4],
        "n=3 two minima": [1, 4, 1],
    }
    for label, values in cases.items():
        for s in (0.25, 0.95):
            yield f.problem(f"short/{label} s={s}", values, sparseness=s)


def _constant(f: _Factory) -> Iterator[Problem]:
    for n in (2, 16, 100):
        for value in (1.0, -0.1):
            for s in (0.0, 0.5, 1.0):
                yield f.problem(f"constant/{value} n={n} s={s}", np.full(n, value), sparseness=s)
    yield f.problem("constant/m = K = n", np.full(4, 3.0), l1=2.0, l2=1.0)
    yield f.problem("constant/keep", np.full(5, 3.0), sparseness=0.5, l2="keep")


def _zero(f: _Factory) -> Iterator[Problem]:
    for n in (2, 16):
        for s in (0.0, 0.5, 1.0):
            yield f.problem(f"zero/n={n} s={s}", np.zeros(n), sparseness=s)
    for norm in ("keep", "nearest"):
        yield f.problem(f"zero/{norm}", np.zeros(7), sparseness=0.5, l2=norm)
    yield f.problem("negative zero/all", np.full(5, -0.0), sparseness=0.5)
    yield f.problem("negative zero/both signs", [0.0, -0.0, 0.0, -0.0], sparseness=0.4)
    yield f.problem("negative zero/decrease", [-0.0, 3.0, 0.0, -1.0], sparseness=0.05)
    yield f.problem("negative zero/increase", [-0.0, 3.0, 0.0, -1.0, 2.0], sparseness=0.7)
    yield f.problem("negative zero/maximum", [-0.0, -3.0, 0.0, -1.0], sparseness=0.7)


def _negative(f: _Factory) -> Iterator[Problem]:
    for n in (3, 100):
        for s in (0.1, 0.5, 0.9):
            name = f"all negative/n={n} s={s}"
            yield f.problem(name, -f.draw(name, "uniform", n) - 0.01, sparseness=s)
    name = "all negative/nearest"
    yield f.problem(name, -f.draw(name, "uniform", 20) - 0.1, sparseness=0.5, l2="nearest")


def _subnormal(f: _Factory) -> Iterator[Problem]:
    tiny = f.limits.smallest
    for n in (2, 10, 100):
        for s in (0.2, 0.8):
            name = f"subnormal/n={n} s={s}"
            yield f.problem(name, tiny * f.rng(name).integers(-9, 10, n), sparseness=s)
    yield f.problem("subnormal/1 to 10", tiny * np.arange(1.0, 11.0), sparseness=0.5)
    # Only the input is subnormal: the result keeps a norm that is well above.
    normal = tiny / float(np.finfo(f.dtype).eps) * 2.0 ** np.arange(6, 9)
    x = np.concatenate((tiny * np.arange(10.0), normal))
    yield f.problem("subnormal/keep", x, sparseness=0.3, l2="keep")
    x = np.concatenate((tiny * np.arange(5.0), [1.0, 0.5]))
    yield f.problem("subnormal/beside one", x, sparseness=0.2)
    yield f.problem("subnormal/below one", 1 - np.minimum(x, 0.9), sparseness=0.2)


def _scaled(f: _Factory) -> Iterator[Problem]:
    scale = f.limits.scale
    for kind in ("uniform", "normal", "cauchy"):
        for n in (10, 300):
            for label, factor in (("large", scale), ("small", 1 / scale)):
                for s in (0.3, 0.9):
                    name = f"{label} scale/{kind} n={n} s={s}"
                    yield f.problem(name, factor * f.draw(name, kind, n), sparseness=s)
    for s in (0.1, 0.5, 0.9):
        name = f"both scales/half and half s={s}"
        x = f.draw(name, "normal", 40) * np.repeat([scale, 1 / scale], 20)
        yield f.problem(name, f.shuffled(name, x), sparseness=s)
        name = f"both scales/one large s={s}"
        x = f.draw(name, "uniform", 30) / scale
        x[17] = scale
        yield f.problem(name, x, sparseness=s)
        yield f.problem(f"both scales/one large negative s={s}", -x, sparseness=s)


def _geometric(f: _Factory) -> Iterator[Problem]:
    exponents = np.arange(f.limits.min_exponent, f.limits.max_exponent + 1.0)
    x = np.exp2(exponents)
    for s in (0.05, 0.5, 0.9, 0.99):
        yield f.problem(f"geometric/increasing s={s}", x, sparseness=s)
        yield f.problem(f"geometric/decreasing s={s}", x[::-1], sparseness=s)
        yield f.problem(f"geometric/negative s={s}", -x, sparseness=s)
    yield f.problem("geometric/both signs", np.concatenate((-x[::4], x[::4])), sparseness=0.7)
    yield f.problem("geometric/wide steps", x[::9], sparseness=0.3)
    wide = min(1000, f.limits.max_exponent)
    steps = np.exp2(-np.arange(-wide, float(min(wide, -f.limits.min_exponent))))
    for s in (0.3, 0.9):
        yield f.problem(f"geometric/-2**-i s={s}", -steps, sparseness=s)
    yield f.problem("geometric/ratio 1.1", 1.1 ** -np.arange(200.0), sparseness=0.8)
    yield f.problem("geometric/below one", 1 - np.exp2(-np.arange(1.0, 60.0)), sparseness=0.5)


def _offset(f: _Factory) -> Iterator[Problem]:
    for kind in ("uniform", "normal", "cauchy"):
        for s in (0.2, 0.7, 0.95):
            name = f"offset/{kind} s={s}"
            yield f.problem(name, f.limits.offset + f.draw(name, kind, 100), sparseness=s)
    name = "offset/negative"
    yield f.problem(name, f.draw(name, "normal", 50) - f.limits.offset, sparseness=0.6)
    name = "offset/last digits"
    x = f.limits.offset * (1 + float(np.finfo(f.dtype).eps) * f.rng(name).integers(0, 20, 50))
    yield f.problem(name, x, sparseness=0.6)


def _near_ties(f: _Factory) -> Iterator[Problem]:
    below = f.next_below(1.0)
    gaps = {"1 ulp": 1 - below, "2 ulp": 1 - f.next_below(below), "1e-9": 1e-9}
    for label, gap in gaps.items():
        for n, near in ((4, 2), (16, 4), (100, 20)):
            for s in (0.3, 0.8):
                name = f"near-ties/{label} n={n} near={near} s={s}"
                x = f.draw(name, "uniform", n) * 0.9
                x[:near] = 1 - gap
                x[0] = 1.0
                yield Problem(name, f.shuffled(name, x), {"sparseness": s})
    # K = 4 with three, four and five entries within an ulp of the maximum.
    for near in (3, 4, 5):
        x = np.linspace(0.1, 0.8, 16)
        x[:near] = below
        x[near // 2] = 1.0
        yield f.problem(f"near-ties/K=4 near={near}", x, l1=2.0, l2=1.0)


def _tied(f: _Factory, name: str, n: int, m: int) -> Vector:
    x = f.draw(name, "uniform", n) * 0.9
    x[:m] = 1.0
    return f.shuffled(name, x)


def _ties(f: _Factory) -> Iterator[Problem]:
    # (n, l1, l2, K, the numbers of tied entries)
    cases = (
        (16, 2.0, 1.0, 4, (2, 3, 4, 5, 8, 16)),
        (64, 3.0, 1.0, 9, (8, 9, 10)),
        (64, 12.0, 3.0, 16, (15, 16, 17)),
        (5, 0.5, 0.25, 4, (3, 4)),
        (6, 1.5, 1.0, 2.25, (2, 3)),
    )
    for n, l1, l2, k, multiplicities in cases:
        for m in multiplicities:
            where = "below" if m < k else "at" if m == k else "above"
            name = f"ties {where} K/n={n} K={k} m={m}"
            yield Problem(name, _tied(f, name, n, m), {"l1": l1, "l2": l2})
    yield f.problem("ties at K/signed", [-2, 1, 2, 0.5, -2, 2, 0], l1=2.0, l2=1.0)
    yield f.problem("ties above K/signed", [-2, 1, 2, 0.5, -2, 2, 0], l1=1.5, l2=1.0)
    # The square root of 16 and of 25 is exact, and so is K for these values of the sparseness.
    for n, s, k in ((16, 0.5, 6.25), (25, 0.5, 9), (25, 0.75, 4)):
        for m in (int(k), int(k) + 1):
            where = "below" if m < k else "at" if m == k else "above"
            name = f"ties {where} K/n={n} s={s} m={m}"
            yield Problem(name, _tied(f, name, n, m), {"sparseness": s})


def _ulp_from_integer(f: _Factory) -> Iterator[Problem]:
    for label, direction, opposite in (("below", 0.0, 1.0), ("above", math.inf, 0.0)):
        for m in (1, 3, 4, 5):
            name = f"K one ulp {label} an integer/l1=2 m={m}"
            target = {"l1": math.nextafter(2.0, direction), "l2": 1.0}
            yield Problem(name, _tied(f, name, 16, m), target)
            # For n = 16 a sparseness of 2/3 means K = 4; more sparseness, smaller K.
            name = f"K one ulp {label} an integer/s=0.667 m={m}"
            s = math.nextafter(2 / 3, opposite)
            yield Problem(name, _tied(f, name, 16, m), {"sparseness": s})
        name = f"K one ulp {label} an integer/n=100"
        s = math.nextafter(5 / 9, opposite)
        yield f.problem(name, f.draw(name, "normal", 100), sparseness=s)
        name = f"K one ulp {label} an integer/l2"
        target = {"l1": 3.0, "l2": math.nextafter(1.0, 2 * opposite)}
        yield Problem(name, _tied(f, name, 50, 9), target)
    # The float 2 / 3 is less than the fraction, so that K is a third of an ulp above 4.
    name = "K one ulp above an integer/s=2/3 rounded"
    yield Problem(name, _tied(f, name, 16, 4), {"sparseness": 2 / 3})


def _in_target_set(f: _Factory) -> Iterator[Problem]:
    moves = {"as is": (1.0, 0.0), "scaled": (3.0, 0.0), "shifted": (1.0, 7.0), "both": (0.7, -2.0)}
    for n in (10, 100, 1000):
        for s in (0.2, 0.5, 0.8, 0.95):
            name = f"in D/n={n} s={s}"
            rho = 1 + (1 - s) * (math.sqrt(n) - 1)
            p = potluru2013.project(f.draw(name, "normal", n), rho, 1.0).value
            for label, (scale, shift) in moves.items():
                if n == 10 or label == "as is":
                    x = f.cast(p).astype(np.float64) * scale + shift
                    yield f.problem(f"{name} {label}", x, sparseness=s)
    p = potluru2013.project(np.arange(1.0, 9.0), 1.75, 1.0).value
    yield f.problem("in D/both norms", p, l1=1.75, l2=1.0)
    yield f.problem("in D/keep", p, sparseness=0.5, l2="keep")
    yield f.problem("in D/negative", -p, l1=1.75, l2=1.0)
    yield f.problem("in D/constant", np.full(4, 0.5), sparseness=0.0)
    yield f.problem("in D/one-hot", np.eye(4)[1], sparseness=1.0)
    yield f.problem("in D/0.6 and 0.8", [0.6, 0.0, 0.8, 0.0], l1=1.4, l2=1.0)


def _decrease(f: _Factory) -> Iterator[Problem]:
    for n in (8, 100):
        for s in (0.05, 0.3):
            name = f"sparser than target/n={n} s={s}"
            x = f.draw(name, "cauchy", n) ** 3
            yield f.problem(name, x, sparseness=s)
            name = f"zeros, decrease/n={n} s={s}"
            x = np.where(np.arange(n) % 5 == 0, f.draw(name, "normal", n), 0.0)
            yield f.problem(name, x, sparseness=s)
    # The case that Algorithm 2 as printed answers with NaN.
    yield f.problem("zeros, decrease/erratum", [3, 1, 0, 0], l1=math.sqrt(3.9), l2=1.0)
    yield f.problem("zeros, decrease/keep", [3, 1, 0, 0], sparseness=0.1, l2="keep")
    yield f.problem("zeros, decrease/nearest", [3, 1, 0, 0], sparseness=0.1, l2="nearest")


def _ends(f: _Factory) -> Iterator[Problem]:
    ends = {
        "0": 0.0,
        "0 + ulp": math.nextafter(0.0, 1.0),
        "1e-12": 1e-12,
        "1 - 1e-12": 1 - 1e-12,
        "1 - ulp": math.nextafter(1.0, 0.0),
        "1": 1.0,
    }
    for label, s in ends.items():
        for n in (2, 3, 16, 100):
            name = f"end of range/s={label} n={n}"
            yield f.problem(name, f.draw(name, "normal", n), sparseness=s)
        name = f"end of range/s={label} ties"
        yield f.problem(name, f.rng(name).integers(0, 3, 20), sparseness=s)
    name = "end of range/norms"
    x = f.draw(name, "uniform", 9)
    yield f.problem(f"{name} s=0", x, l1=3.0, l2=1.0)
    yield f.problem(f"{name} s=0 less an ulp", x, l1=math.nextafter(3.0, 0.0), l2=1.0)
    yield f.problem(f"{name} s=1 less an ulp", x, l1=math.nextafter(1.0, 2.0), l2=1.0)
    yield f.problem(f"{name} s=1", x, l1=1.0, l2=1.0)


def _full_range(f: _Factory) -> Iterator[Problem]:
    top = f.limits.max
    for s in (0.2, 0.7):
        name = f"full range/ends and random s={s}"
        x = f.draw(name, "normal", 20)
        x[:2] = top, -top
        yield f.problem(name, x, sparseness=s)
        yield f.problem(f"full range/ends and zeros s={s}", [0, top, 0, -top, 0, 0], sparseness=s)
        name = f"full range/uniform s={s}"
        yield f.problem(name, top * (2 * f.draw(name, "uniform", 50) - 1), sparseness=s)
        name = f"full range/at the top s={s}"
        x = f.next_below(top) + (top - f.next_below(top)) * (np.arange(30) % 7 == 0)
        yield f.problem(name, x, sparseness=s)
    yield f.problem("full range/all maximal", np.full(6, top), sparseness=0.5)
    yield f.problem("full range/two", [top, -top], sparseness=0.5)
    yield f.problem("full range/smallest beside largest", [top, f.limits.smallest], sparseness=0.5)


def _large(f: _Factory) -> Iterator[Problem]:
    n = 2**20
    for kind in ("uniform", "normal", "cauchy"):
        for s in (0.5, 0.9):
            name = f"large/{kind} s={s}"
            yield f.problem(name, f.draw(name, kind, n), sparseness=s)
    for s in (0.5, 0.9):
        name = f"large/ties s={s}"
        yield f.problem(name, f.rng(name).integers(0, 1000, n) / 1000, sparseness=s)


_CATEGORIES = (
    _random,
    _forms,
    _sorted,
    _near_binary,
    _integers,
    _one_hot,
    _short,
    _constant,
    _zero,
    _negative,
    _subnormal,
    _scaled,
    _geometric,
    _offset,
    _near_ties,
    _ties,
    _ulp_from_integer,
    _in_target_set,
    _decrease,
    _ends,
    _full_range,
)
