"""Which vectors and targets are drawn: all of a case follows from its seed, kind and number."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import oracle

Options = dict[str, Any]


class Type(NamedTuple):
    """What is to be known of a floating type, NumPy's or not."""

    name: str
    held: str
    """The NumPy type that holds its numbers."""
    eps: float
    top: float
    normal: float
    smallest: float


TYPES = {
    kind.name: kind
    for kind in (
        *(
            Type(name, name, *(float(getattr(np.finfo(name), part)) for part in
                 ("eps", "max", "tiny", "smallest_subnormal")))
            for name in ("float64", "float32", "float16")
        ),
        Type("bfloat16", "float32", 2.0**-7, (2 - 2.0**-7) * 2.0**127, 2.0**-126, 2.0**-133),
    )
}  # fmt: skip


class Case(NamedTuple):
    """A batch of vectors, what is asked of them, and on which path."""

    name: str
    path: str
    type: Type
    distribution: str
    form: str
    x: Any
    options: Options
    rng: np.random.Generator

    @property
    def rule(self) -> str:
        """Which norm results have: l2, keep, nearest, l1 beside a sparseness, or free beside l1."""
        l2 = self.options.get("l2")
        if isinstance(l2, str):
            return l2
        if l2 is None and self.options.get("sparseness") is None:
            return "free"
        return "l1" if l2 is None and self.options.get("l1") is not None else "l2"


def rounded(x: Any, kind: Type) -> Any:
    """Numbers of a type, within its range."""
    x = np.clip(np.asarray(x, np.float64), -kind.top, kind.top)
    if kind.name != "bfloat16":
        return x.astype(kind.held)
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    # What rounds beyond the largest is cut off instead.
    return np.clip(bits.astype(np.uint32).view(np.float32), -kind.top, kind.top)


# ---- vectors ----


def _signed(rng: Any, x: Any) -> Any:
    return x * rng.choice([-1.0, 1.0], x.shape) if rng.random() < 0.5 else x


def _near_ties(rng: Any, shape: Any, kind: Type) -> Any:
    values = rng.uniform(0.5, 2, (shape[0], int(rng.integers(1, 4))))
    picked = np.take_along_axis(values, rng.integers(0, values.shape[1], shape), 1)
    return picked * (1 + kind.eps * rng.integers(-3, 4, shape))


def _geometric(rng: Any, shape: Any, kind: Type) -> Any:
    steps = rng.permuted(np.broadcast_to(np.arange(shape[1]), shape), axis=1)
    x = rng.choice([0.5, 0.9, 1.0 - 2.0**-10, 0.1]) ** steps
    return rng.choice([-1.0, 1.0, 1.0]) * x * (kind.top / 4 if rng.random() < 0.3 else 1.0)


def _wide(rng: Any, shape: Any, kind: Type) -> Any:
    low, high = math.log2(kind.smallest), math.log2(kind.top)
    return np.exp2(rng.uniform(low, high, shape)) * rng.choice([-1.0, 1.0], shape)


def _few_nonzero(rng: Any, shape: Any, kind: Type) -> Any:
    share = rng.choice([3 / shape[1], 0.1, 0.5])
    return np.where(rng.random(shape) < share, rng.lognormal(size=shape) * 50, 0.0)


def _one_hot(rng: Any, shape: Any, kind: Type) -> Any:
    hot = np.arange(shape[1]) == rng.integers(0, shape[1], (shape[0], 1))
    return np.where(hot, rng.normal(size=(shape[0], 1)), 0.0)


def _zeros(rng: Any, shape: Any, kind: Type) -> Any:
    return np.where(rng.random(shape) < 0.5, 0.0, -0.0)


def _signs_of_zero(rng: Any, shape: Any, kind: Type) -> Any:
    return np.where(
        rng.random(shape) < 0.5, rng.normal(size=shape).round(1), _zeros(rng, shape, kind)
    )


DISTRIBUTIONS: dict[str, Callable[[Any, Any, Type], Any]] = {
    "normal": lambda rng, shape, kind: rng.normal(size=shape),
    "uniform": lambda rng, shape, kind: rng.random(shape),
    "lognormal": lambda rng, shape, kind: _signed(
        rng, rng.lognormal(0, rng.uniform(0.5, 6), shape)
    ),
    "cauchy": lambda rng, shape, kind: rng.standard_cauchy(shape),
    "integers": lambda rng, shape, kind: rng.integers(-3, 1 + int(rng.integers(2, 40)), shape),
    "few values": lambda rng, shape, kind: rng.choice(rng.normal(size=3), shape),
    "quantized": lambda rng, shape, kind: (
        np.rint(rng.normal(size=shape) * 2.0 ** rng.integers(0, 9)) / 16
    ),
    "constant": lambda rng, shape, kind: np.broadcast_to(rng.normal(size=(shape[0], 1)), shape),
    "zeros": _zeros,
    "one-hot": _one_hot,
    "few nonzero": _few_nonzero,
    "near-ties": lambda rng, shape, kind: _signed(rng, _near_ties(rng, shape, kind)),
    "offset": lambda rng, shape, kind: (
        rng.normal(size=shape) + rng.choice([-1, 1]) * 10 ** rng.uniform(1, -math.log10(kind.eps))
    ),
    "geometric": _geometric,
    "huge": lambda rng, shape, kind: np.clip(rng.normal(size=shape), -3, 3) * (kind.top / 4),
    "tiny": lambda rng, shape, kind: rng.normal(size=shape) * (kind.normal * 4),
    "subnormal": lambda rng, shape, kind: rng.integers(-9, 30, shape) * kind.smallest,
    "wide": _wide,
    "signs of zero": _signs_of_zero,
}
AFTERWARDS = ("projected", "nearly projected", "mixed")
"""Distributions that need others first."""
PLAIN = ("normal", "uniform", "lognormal", "cauchy", "offset")
"""Those that long doubles decide: for vectors too long for exact arithmetic."""


def vectors(rng: Any, name: str, shape: tuple[int, int], kind: Type, options: Options) -> Any:
    """Rows of one distribution, rounded to the type."""
    if name == "mixed":
        names = rng.choice(list(DISTRIBUTIONS), 4)
        parts = [rounded(DISTRIBUTIONS[each](rng, shape, kind), kind) for each in names]
        return np.choose(rng.integers(0, 4, (shape[0], 1)), parts)
    if name not in AFTERWARDS:
        return rounded(DISTRIBUTIONS[name](rng, shape, kind), kind)
    # The oracle projects, not the library: what is drawn must not depend on what is tested.
    x = rounded(rng.normal(size=shape) ** int(rng.integers(1, 4)), kind)
    found = oracle.project(x, options)
    value = np.copysign(found.unit * found.norm[:, None], x if not options["nonnegative"] else 1)
    value = np.nan_to_num(value.astype(np.float64))
    if name == "nearly projected":
        value = value * (1 + kind.eps * rng.integers(-2, 3, shape))
    return rounded(value, kind)


# ---- targets ----


def _ulps(rng: Any, value: float, steps: int = 3) -> float:
    for _ in range(int(rng.integers(0, steps + 1))):
        value = float(np.nextafter(value, rng.choice([-1.0, 1.0]) * np.inf))
    return value


_REACH = {"float64": 285.0, "float32": 28.0, "bfloat16": 28.0, "float16": 1.5}
"""Powers of ten that norms may have."""


def _norm_for(rng: Any, kind: Type) -> float:
    """A norm: mostly moderate, sometimes as extreme as the type allows."""
    reach = _REACH[kind.name]
    exponent = rng.uniform(-reach, reach) if rng.random() < 0.15 else rng.uniform(-1, 1.5)
    return float(10.0**exponent)


def _sparseness_for(rng: Any, n: int) -> float:
    """Uniform, or where K is an integer, give or take few ulps."""
    if rng.random() < 0.7:
        return float(rng.random())
    root = math.sqrt(n)
    exact = (root - math.sqrt(int(rng.integers(1, n + 1)))) / (root - 1)
    return min(max(_ulps(rng, exact), 0.0), 1.0)


def _both_norms(rng: Any, n: int, kind: Type) -> Options:
    l2 = _norm_for(rng, kind)
    if rng.random() < 0.5:
        ratio = math.sqrt(int(rng.integers(1, n + 1)))
        l1 = _ulps(rng, ratio * l2, 2)
    else:
        l1 = l2 * rng.uniform(1, math.sqrt(n))
    return {"l1": min(max(l1, l2), l2 * math.sqrt(n)), "l2": l2}


FORMS: dict[str, Callable[[Any, int, int, Type], Options]] = {
    "sparseness": lambda rng, n, rows, kind: {"sparseness": float(rng.random())},
    "integer K": lambda rng, n, rows, kind: {"sparseness": _sparseness_for(rng, n)},
    "ends": lambda rng, n, rows, kind: {
        "sparseness": float(rng.choice([0.0, 1.0, 1 - 2.0**-53, 1 - 1e-10, 5e-324]))
    },
    "very sparse": lambda rng, n, rows, kind: {"sparseness": float(1 - 10 ** -rng.uniform(1, 5))},
    "tiny": lambda rng, n, rows, kind: {
        "sparseness": float(10 ** -rng.uniform(4, 300 if rng.random() < 0.5 else 20))
    },
    "both norms": lambda rng, n, rows, kind: _both_norms(rng, n, kind),
    "with l1": lambda rng, n, rows, kind: {
        "sparseness": _sparseness_for(rng, n), "l1": _norm_for(rng, kind)
    },
    "with l2": lambda rng, n, rows, kind: {
        "sparseness": _sparseness_for(rng, n), "l2": _norm_for(rng, kind)
    },
    "keep": lambda rng, n, rows, kind: {"sparseness": _sparseness_for(rng, n), "l2": "keep"},
    "nearest": lambda rng, n, rows, kind: {"sparseness": _sparseness_for(rng, n), "l2": "nearest"},
    "per row": lambda rng, n, rows, kind: {
        "sparseness": np.array([_sparseness_for(rng, n) for _ in range(rows)])
    },
    "both per row": lambda rng, n, rows, kind: {
        "sparseness": rng.random(rows), "l2": rng.uniform(0.5, 2, rows)
    },
    "float32 target": lambda rng, n, rows, kind: {"sparseness": np.float32(rng.random())},
    "l1": lambda rng, n, rows, kind: {"l1": _norm_for(rng, kind)},
    "l1 per row": lambda rng, n, rows, kind: {"l1": rng.uniform(0.5, 2, rows) * n**0.5},
    "ball": lambda rng, n, rows, kind: {"l1": _norm_for(rng, kind), "at_most": True},
    "two balls": lambda rng, n, rows, kind: _two_bounds(rng, n, kind),
}  # fmt: skip
LATER = ("l1", "l1 per row", "ball", "two balls")
"""Sets that the paper's solvers do not know. Mostly their norms are a share of those of x."""


def _two_bounds(rng: Any, n: int, kind: Type) -> Options:
    """Mostly with a ratio for which both may bind."""
    l2 = _norm_for(rng, kind)
    ratio = rng.uniform(1, math.sqrt(n)) if rng.random() < 0.7 else 10 ** rng.uniform(-2, 3)
    return {"l1": float(ratio * l2), "l2": l2, "at_most": True}


OFTEN = ("sparseness", "very sparse", "very sparse")
"""What is asked for more often than by its share."""


def target(rng: Any, form: str, n: int, rows: int, kind: Type) -> Options:
    """The options of a case; a vector of length 1 has but one target."""
    whole = n > 1 or form in LATER
    options = FORMS[form](rng, n, rows, kind) if whole else {"l1": 2.5, "l2": 2.5}
    options["nonnegative"] = bool(rng.random() < 0.4)
    options["only_increase"] = bool(rng.random() < 0.15) and form not in LATER
    options.setdefault("at_most", False)
    return options


def fitted(rng: Any, x: Any, options: Options, kind: Type) -> Options:
    """Norms that are some share of those of x, as far as the type has them."""
    reach = 10.0 ** _REACH[kind.name]
    size = float(np.median(np.abs(x.astype(np.longdouble)).sum(1)))
    factor = 10 ** rng.uniform(-3, 0.3) * size / np.max(options["l1"])
    found = {
        name: np.clip(options[name] * factor, 1 / reach, reach)
        for name in ("l1", "l2")
        if name in options
    }
    plain = {name: value if np.ndim(value) else float(value) for name, value in found.items()}
    return options | (plain if size > 0 else {})


# ---- masks ----


def mask(rng: Any, shape: tuple[int, int]) -> Any:
    """Which entries count: most, few, in some rows one, none or all."""
    where = rng.random(shape) < rng.choice([0.1, 0.5, 0.7, 0.95], (shape[0], 1))
    for what in (np.arange(shape[1]) == rng.integers(0, shape[1], (shape[0], 1)), False, True):
        where = np.where(rng.random((shape[0], 1)) < 0.03, what, where)
    return where


def poisoned(rng: Any, x: Any, where: Any) -> Any:
    """Entries that do not count may be anything."""
    some = ~where & (rng.random(x.shape) < 0.5)
    return np.where(some, rng.choice([np.nan, np.inf, -np.inf], x.shape).astype(x.dtype), x)


# ---- cases ----


def length(rng: Any, longest: int) -> int:
    """Mostly short: what is searched in lanes, in registers, in buffers, by samples."""
    reach = rng.choice([8, 64, 512, 4096, 2**20], p=[0.15, 0.4, 0.35, 0.095, 0.005])
    low = {8: 1, 64: 2, 512: 65, 4096: 513, 2**20: 2**14}[int(reach)]
    return min(round(math.exp(rng.uniform(math.log(low), math.log(reach)))), longest)


def draw(name: str, seed: int, paths: dict[str, Any]) -> Case:
    """The case of this name, "kind:number"; `paths` says what there is to choose from."""
    kind, _, number = name.partition(":")
    rng = np.random.default_rng([seed, int.from_bytes(kind.encode(), "big"), int(number)])
    weights = np.array([path.weight for path in paths.values()])
    path = str(rng.choice(list(paths), p=weights / weights.sum()))
    chosen = paths[path]
    type_ = TYPES[str(rng.choice(chosen.types))]
    n = length(rng, chosen.longest)
    rows = int(min(chosen.rows, max(1, chosen.entries // n)))
    forms = [form for form in (*FORMS, *OFTEN, *LATER) if path != "paper" or form not in LATER]
    form = str(rng.choice(forms))
    options = target(rng, form, n, rows, type_)
    names = PLAIN if n > 4096 else (*DISTRIBUTIONS, *AFTERWARDS)
    distribution = str(rng.choice(names))
    if rng.random() < 0.2 and form != "both norms":
        options["where"] = mask(rng, (rows, n))
    x = vectors(rng, distribution, (rows, n), type_, options)
    if form in LATER and distribution not in AFTERWARDS and rng.random() < 0.7:
        options = fitted(rng, x, options, type_)
    if "where" in options:
        x = poisoned(rng, x, options["where"])
    return Case(name, path, type_, distribution, form, x, options, rng)
