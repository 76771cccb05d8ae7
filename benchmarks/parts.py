"""Vectors in parts: rounds, bytes and time, and a model of more: ``python -m benchmarks.parts``.

Three things, and all their numbers are printed by this script:

- rounds of communication, bytes and errors of the histogram search on data of many kinds;
- the same for vectors of up to 10**12 entries, which exist as a distribution only: the search asks,
  and is told how many entries would be where. At sizes that fit here both must agree;
- from these, from rates measured here, and from what a network is assumed to do: the time that the
  histogram, NewtonSqr and a sort take on many machines.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import hoyer
from hoyer.engines import core, parts
from hoyer.engines.arrays import namespace
from hoyer.engines.arrays.histogram import LIMB_BITS, Grid, limb_count
from hoyer.engines.exact import Keys, all_ends
from hoyer.options import Options
from hoyer.paper import problems
from hoyer.plan import Plan, plan_for

from . import machine

NUMPY = namespace(np)
CHUNK = 1 << 24
"""Entries that are drawn at a time."""


def options(given: dict[str, Any]) -> Options:
    """Return options of `hoyer.project`."""
    usual: dict[str, Any] = {"sparseness": None, "l1": None, "l2": None, "axis": -1}
    usual |= {"nonnegative": False, "only_increase": False, "solver": "auto"}
    return Options(**usual | {"check_finite": True} | given)


# ---- one search, and what it takes ----


class Taken(NamedTuple):
    """What a search took."""

    asked: str
    """The initials of its requests: histogram, gather, locate, neighbours."""
    bytes: int
    """The most that an answer had, of all parts together."""
    solution: parts.Solution


def taken(plan: Plan, dtype: Any, told: Callable[[parts.Request], Any]) -> Taken:
    """Drive a search by a function that has the answer of all parts."""
    search = parts.search(plan, np.dtype(dtype), NUMPY)
    asked, most, numbers = "", 0, None
    while True:
        try:
            request = search.send(numbers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return Taken(asked, most, stop.value)
        numbers = told(request)
        asked += request.what[0]
        most = max(most, numbers.nbytes)


def of_array(x: Any) -> Callable[[parts.Request], Any]:
    """Return what parts of an array say."""
    place = parts.Place((0,), (x.size,))
    return lambda request: parts.merged(request, [parts.answer(core, x, request, place)])


def of_chunks(draw: Callable[[Any, int], Any], n: int, dtype: Any) -> Any:
    """Return what chunks say that are drawn again for each request: no memory has them all."""

    def told(request: parts.Request) -> Any:
        answers = (
            parts.answer(core, x, request, parts.Place((start,), (n,)))
            for start, x in chunks(draw, n, dtype)
        )
        return parts.merged(request, answers)

    return told


def chunks(draw: Callable[[Any, int], Any], n: int, dtype: Any) -> Iterable[tuple[int, Any]]:
    """Draw entries from the same seeds every time."""
    for number, start in enumerate(range(0, n, CHUNK)):
        rng = np.random.default_rng([7, number])
        yield start, draw(rng, min(CHUNK, n - start)).astype(dtype)


# ---- data of many kinds ----

KINDS: dict[str, Callable[[Any, int], Any]] = {
    "half-normal": lambda rng, n: abs(rng.standard_normal(n)),
    "uniform": lambda rng, n: rng.random(n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
    "lognormal, sigma 3": lambda rng, n: rng.lognormal(sigma=3, size=n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "1000 + uniform": lambda rng, n: 1000 + rng.random(n),
    "normal, two decimals": lambda rng, n: np.round(rng.standard_normal(n), 2),
    "half within 1e-6 of 1": lambda rng, n: np.where(
        rng.random(n) < 0.5, 1 + 1e-6 * rng.random(n), rng.random(n)
    ),
}
EXTREMES = {
    "float64": {"normal, 1e-310": 1e-310, "normal, 1e300": 1e300},
    "float32": {"normal, 1e-42": 1e-42, "normal, 1e36": 1e36},
    "float16": {},
}
TARGETS: list[dict[str, Any]] = [{"sparseness": s} for s in (0.1, 0.5, 0.8, 0.9, 0.99, 0.999)]
TARGETS += [{"sparseness": 0.9, "l2": "nearest"}, {"sparseness": 0.7, "only_increase": True}]
TARGETS += [{"l1": 1.0}, {"l1": 100.0, "at_most": True}, {"l1": 30.0, "l2": 1.0, "at_most": True}]


def kinds_of(dtype: str) -> dict[str, Callable[[Any, int], Any]]:
    """Return how data of a type is drawn."""
    more = {
        name: lambda rng, n, scale=scale: rng.standard_normal(n) * scale
        for name, scale in EXTREMES[dtype].items()
    }
    return KINDS | more


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return a table of Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows] + [""]


def counted(numbers: Iterable[int]) -> str:
    """Return how often each number occurs."""
    return ", ".join(f"{number}: {times}" for number, times in sorted(Counter(numbers).items()))


def rounds_of_kinds(n: int) -> list[str]:
    """Measure rounds and bytes on data of many kinds, for all targets."""
    rows = []
    for dtype in ("float32", "float64"):
        for name, draw in kinds_of(dtype).items():
            x = draw(np.random.default_rng(0), n).astype(dtype)
            found = [
                taken(plan_for(n, options(target | {"nonnegative": nonnegative})), dtype, told)
                for told in [of_array(x)]
                for target in TARGETS
                for nonnegative in (False, True)
            ]
            rounds = counted(len(one.asked) for one in found)
            ways = ", ".join(
                f"{way}: {times}"
                for way, times in Counter(one.asked for one in found).most_common()
            )
            most = max(one.bytes for one in found)
            rows.append((dtype, name, rounds, ways, f"{most / 1e3:.1f}"))
            print(rows[-1], flush=True)
    head = ("type", "entries", "rounds: how often", "requests: how often", "most kB in a round")
    return table(head, rows)


def rounds_of_collection() -> list[str]:
    """Measure the same on the problem collection."""
    rows = []
    for dtype in ("float16", "float32", "float64"):
        found, most = [], 0
        for problem in problems.collection(dtype):
            plan = plan_for(problem.x.size, options(problem.target))
            one = taken(plan, dtype, of_array(problem.x))
            found.append(len(one.asked))
            most = max(most, one.bytes)
        rows.append((dtype, len(found), counted(found), f"{most / 1e3:.1f}"))
        print(rows[-1], flush=True)
    return table(("type", "problems", "rounds: how often", "most kB in a round"), rows)


# ---- vectors that exist as a distribution only ----


class Population:
    """So many entries of a distribution, as many everywhere as are expected there."""

    def __init__(self, law: Any, n: int, dtype: str) -> None:
        self.law, self.n, self.keys = law, n, Keys(64 if dtype == "float64" else 32, False)

    def values(self, keys: Any) -> Any:
        """Return the floats with some keys."""
        bits = self.keys.bits
        return np.asarray(keys, f"i{bits // 8}").view(f"f{bits // 8}").astype(float)

    def above(self, keys: Any) -> list[int]:
        """Return how many entries are not below some keys."""
        with np.errstate(over="ignore"):
            shares = self.law.sf(self.values(np.minimum(keys, self.largest)))
        return [math.floor(self.n * share) for share in shares.tolist()]

    @property
    def largest(self) -> int:
        """The key of infinity."""
        return ((1 << (self.keys.bits - 1 - self.keys.digits)) - 1) << self.keys.digits

    def told(self, request: parts.Request) -> Any:
        """Return what all parts together would say."""
        if request.what == "histogram":
            return self.histogram(request.grid)
        if request.what != "gather":
            raise ValueError("a distribution has no ties")
        lower, span, *_ = request.grid
        high, low = self.above([lower, lower + span])
        shares = (np.arange(high - low) + 0.5) / max(high - low, 1)
        return lower + (shares * span).astype(np.int64)

    def histogram(self, grid: Grid) -> Any:
        """Return a histogram of what is expected."""
        first = grid == self.keys.first_grid
        if first:
            starts = [min(number << grid.width, self.largest) for number in range(grid.bins + 1)]
            ends = np.array([starts[:-1], starts[1:]]).T
        else:
            ends = grid.lower + all_ends(grid).T
        # Of a bin that finer ones cover nothing is left.
        ends[:, 0] = ends.min(axis=1)
        counts = [a - b for a, b in zip(*(self.above(side) for side in ends.T), strict=True)]
        limbs = limb_count(grid.width), limb_count(2 * grid.width)
        result = np.zeros((1 + sum(limbs), grid.bins), np.int64)
        mask = (1 << grid.width) - 1
        for number in np.flatnonzero(counts).tolist():
            start, end = ends[number].tolist()
            origin = start & ~mask if first else grid.lower
            moments = self.moments(start - origin, end - origin, origin, counts[number])
            column = [counts[number]]
            for moment, size in zip(moments, limbs, strict=True):
                column += [
                    (moment >> (LIMB_BITS * i)) & ((1 << LIMB_BITS) - 1) for i in range(size - 1)
                ]
                column.append(moment >> (LIMB_BITS * (size - 1)))
            result[:, number] = column
        return np.concatenate([[0, 0], result.reshape(-1)])

    def moments(self, begin: int, end: int, origin: int, count: int) -> tuple[int, int]:
        """Return the sums of distances from a key, and of their squares, between two."""
        if end - begin == 1:
            return count * begin, count * begin * begin
        nodes, weights = np.polynomial.legendre.leggauss(8)
        distances = begin + (nodes + 1) / 2 * (end - begin)
        weights = weights * self.law.pdf(self.values(origin + distances.astype(np.int64)))
        if not weights.sum() > 0:
            weights = np.ones_like(weights)
        mean = float(np.average(distances, weights=weights))
        square = float(np.average((distances - mean) ** 2, weights=weights))
        # As integers, with a spread that is none of rounding.
        first = round(count * mean)
        second = -(-first * first // count) + round(count * square)
        return first, second


LAWS = {
    "half-normal": stats.halfnorm(),
    "exponential": stats.expon(),
    "lognormal": stats.lognorm(1.0),
    "Cauchy": stats.halfcauchy(),
}


def rounds_of_laws(real: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """Compare rounds on data and on distributions, and go on to what no machine here holds."""
    rows = []
    for dtype in ("float32", "float64"):
        for name, law in LAWS.items():
            for sparseness in (0.5, 0.9):
                cells = []
                for n in sizes:
                    plan = plan_for(n, options({"sparseness": sparseness}))
                    told = taken(plan, dtype, Population(law, n, dtype).told).asked
                    if n in real:
                        drawn = taken(plan, dtype, of_chunks(KINDS[name], n, dtype)).asked
                        told = f"{drawn} ({told})"
                    cells.append(told)
                rows.append((dtype, name, sparseness, *cells))
                print(rows[-1], flush=True)
    return table(("type", "distribution", "sparseness", *map(_power, sizes)), rows)


def _power(n: int) -> str:
    return f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else f"{n:.0e}"


# ---- rates, and the model ----


class Rates(NamedTuple):
    """Nanoseconds per entry, on one core."""

    histogram: float
    finer: float
    gather: float
    write: float
    evaluation: float
    """Count, sums and sums of squares above a pivot, which NewtonSqr takes each time."""
    sort: float
    """Divided by the logarithm (base 2) of the length."""


def rates_of(dtype: str, n: int = 1 << 24) -> Rates:
    """Measure them here."""
    hoyer.set_num_threads(1)
    x = np.random.default_rng(3).standard_normal(n).astype(dtype)
    keys, place = Keys(64 if dtype == "float64" else 32, False), parts.Place((0,), (n,))
    seen: dict[str, parts.Request] = {}
    plan = plan_for(n, options({"sparseness": 0.9}))
    told = of_array(x)

    def remembered(request: parts.Request) -> Any:
        seen["histogram" if request.grid == keys.first_grid else "finer"] = request
        return told(request)

    found = taken(plan, dtype, remembered).solution
    bounds = parts.Request("gather", Grid(seen["finer"].grid.lower, 64), False)

    def timed(function: Callable[[], Any]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return sorted(times)[2] / n * 1e9

    return Rates(
        timed(lambda: parts.answer(core, x, seen["histogram"], place)),
        timed(lambda: parts.answer(core, x, seen["finer"], place)),
        timed(lambda: parts.answer(core, x, bounds, place)),
        timed(lambda: parts.write(core, x, found, place)),
        timed(lambda: hoyer.sparseness(x)),
        timed(lambda: np.sort(x)) / math.log2(n),
    )


class Network(NamedTuple):
    """What is assumed of machines and what connects them."""

    name: str
    latency: float
    bandwidth: float
    """Bytes per second and machine."""
    memory: float
    """Bytes per second and machine that its entries are read with."""
    cores: int = 16

    def all_reduce(self, size: float, count: int) -> float:
        """Return the seconds to add up arrays of so many bytes: halving, then doubling."""
        steps = 2 * math.ceil(math.log2(count))
        return steps * self.latency + 2 * size * (count - 1) / count / self.bandwidth


NETWORKS = [
    Network("entries in memory, 100 Gbit/s", 20e-6, 12e9, 100e9),
    Network("entries on disks of 2 GB/s, 10 Gbit/s", 50e-6, 1.2e9, 2e9),
    Network("entries in memory, machines far apart: 50 ms, 100 Mbit/s", 50e-3, 12e6, 100e9),
]


SCALES = ((1e9, 1), (1e9, 10), (1e10, 100), (1e12, 100), (1e12, 1000), (1e13, 10000))
"""Entries, and machines that share them."""


def newton_rounds(sizes: Sequence[int]) -> tuple[list[str], tuple[int, int]]:
    """Count the evaluations of NewtonSqr, each of which is a round and a pass."""
    rows, all_counts = [], []
    for name in (*LAWS, "uniform", "1000 + uniform"):
        cells = []
        for n in sizes:
            x = KINDS[name](np.random.default_rng(1), n)
            counts = [
                int(hoyer.solve(x, sparseness, solver="newton_sqr").evaluations)
                for sparseness in (0.5, 0.9, 0.99)
            ]
            all_counts += counts
            cells.append(f"{min(counts)} to {max(counts)}")
        rows.append((name, *cells))
    return table(("entries", *map(_power, sizes)), rows), (min(all_counts), max(all_counts))


def seconds(network: Network, rates: Rates, n: float, count: int, entry: int) -> dict[str, Any]:
    """Return what each method takes; reading and computing overlap, so that the slower counts."""
    own = n / count

    def passing(rate: float, moved: float = 1.0) -> float:
        return max(own * entry * moved / network.memory, own * rate * 1e-9 / network.cores)

    first, finer = (65.6e3, 98.4e3) if entry == 4 else (98.4e3, 98.4e3)
    histogram = passing(rates.histogram) + network.all_reduce(first, count)
    histogram += passing(rates.finer) + network.all_reduce(finer, count)
    writing = passing(rates.write, 2.0)
    last = passing(rates.gather) + network.all_reduce(98.4e3, count)

    def newton(rounds: int) -> float:
        each = passing(rates.evaluation) + network.all_reduce(40, count)
        return rounds * each + writing

    # Each machine sorts what it has, sends nearly all of it to others, merges, and adds up.
    sorting = own * rates.sort * math.log2(max(own, 2)) * 1e-9 / network.cores
    moving = own * entry * (count - 1) / count / network.bandwidth + count * network.latency
    merging = own * rates.sort * math.log2(count) * 1e-9 / network.cores
    sums = 2 * network.all_reduce(24, count)
    sort = passing(0.0) + sorting + moving + merging + sums + writing
    return {
        "histogram, 2 rounds": histogram + writing,
        "3 rounds": histogram + last + writing,
        "NewtonSqr, 7 rounds": newton(7),
        "20 rounds": newton(20),
        "sort": sort,
    }


def bytes_sent(n: float, count: int, entry: int, rounds: tuple[int, int]) -> list[str]:
    """Return what one machine sends, per method."""
    each = 2 * (count - 1) / count
    first = 65.6e3 if entry == 4 else 98.4e3
    rows = [
        ("histogram, 2 rounds", f"{each * (first + 98.4e3) / 1e6:.2f} MB"),
        ("histogram, 3 rounds", f"{each * (first + 2 * 98.4e3) / 1e6:.2f} MB"),
        ("NewtonSqr", f"{each * 40 * rounds[0] / 1e3:.2f} to {each * 40 * rounds[1] / 1e3:.2f} kB"),
        ("sort", f"{n / count * entry * (count - 1) / count / 1e9:.1f} GB"),
    ]
    return table(("method", f"sent by each of {count} machines, n = {n:.0e}"), rows)


def modelled(rates: dict[str, Rates], rounds: tuple[int, int]) -> list[str]:
    """Return the model's tables."""
    lines = bytes_sent(1e12, 1000, 4, rounds)
    for network in NETWORKS:
        rows = []
        for n, count in (
            (1e9, 1),
            (1e9, 10),
            (1e10, 100),
            (1e12, 100),
            (1e12, 1000),
            (1e13, 10000),
        ):
            found = seconds(network, rates["float32"], n, count, 4)
            rows.append((f"{n:.0e}", count, *(f"{number:.3g}" for number in found.values())))
        lines += [
            f"Seconds for float32; {network.name}; {network.latency * 1e6:g} us, "
            f"{network.bandwidth / 1e9:g} GB/s, entries read at {network.memory / 1e9:g} GB/s, "
            f"{network.cores} cores:",
            "",
            *table(("n", "machines", *found), rows),
        ]
    return lines


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="shorter vectors")
    parser.add_argument("--rates", action="store_true", help="measure times only, for a later run")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    given.out.mkdir(exist_ok=True, parents=True)
    known, file = machine.describe(), given.out / "parts.json"
    if given.rates or not file.exists():
        found = {dtype: rates_of(dtype)._asdict() for dtype in ("float32", "float64")}
        file.write_text(json.dumps({"machine": known, "rates": found}, indent=1) + "\n")
        if given.rates:
            return
    timed = json.loads(file.read_text(encoding="utf-8"))
    rates = {dtype: Rates(**found) for dtype, found in timed["rates"].items()}
    sizes = [1 << 20, 1 << 24] if given.quick else [1 << 20, 1 << 24, 1 << 27]
    steps = [1 << e for e in ((10, 14, 18) if given.quick else (10, 14, 18, 22))]
    newton, range_of = newton_rounds(steps)
    lines = [
        "# Vectors in parts",
        "",
        f"`python -m benchmarks.parts{' --quick' if given.quick else ''}`, "
        f"{known['date']}; {known['cpu']}. "
        "Requests: h, a histogram; g, entries gathered; l, the same with their places; n, the "
        "neighbours of a key. Each is one round and one pass; the write is one more pass.",
        "",
        f"## Rounds on {_power(sizes[0])} entries, for {2 * len(TARGETS)} targets each",
        "",
        *rounds_of_kinds(sizes[0]),
        "## Rounds on the problem collection",
        "",
        *rounds_of_collection(),
        "## Requests as n grows: of data, and in brackets or alone of a distribution",
        "",
        *rounds_of_laws(sizes, [*sizes, 1 << 34, 10**12]),
        "## Rounds of NewtonSqr, sparseness 0.5 to 0.99",
        "",
        *newton,
        f"## Nanoseconds per entry, one core; load before: {timed['machine']['load before']}",
        "",
        *table(
            ("type", *Rates._fields[:-1], "sort, per bit of n"),
            [(name, *(f"{rate:.2f}" for rate in found)) for name, found in rates.items()],
        ),
        "## The model",
        "",
        *modelled(rates, range_of),
    ]
    (given.out / "parts.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
