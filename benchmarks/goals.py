"""The goals, and whether the outcomes meet them."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, NamedTuple

from . import cases
from .cases import Outcome

Measure = Callable[[list[Outcome]], list[float]]


class Goal(NamedTuple):
    """A number to reach by all the cases it is about."""

    case: str
    against: str
    firm: float
    stretch: float | None
    measure: Measure
    """One number per case."""
    faster: bool = False
    """Whether the number says how many times faster, rather than how much time it takes."""
    fresh: Measure | None = None
    """The same for a result in a new array, for comparison."""


class Verdict(NamedTuple):
    """What became of a goal."""

    goal: Goal
    values: list[float]
    fresh: list[float]

    @property
    def median(self) -> float:
        """The middle one of the cases."""
        return median(self.values)

    @property
    def worst(self) -> float:
        """The case that is furthest from the goal."""
        return min(self.values) if self.goal.faster else max(self.values)

    def reached(self, value: float, bound: float | None) -> bool:
        """Whether the value is on the right side of the bound."""
        if bound is None:
            return False
        return value >= bound if self.goal.faster else value <= bound

    @property
    def met(self) -> str:
        """What the median reaches, and in how many cases the firm goal is met."""
        if not self.values:
            return "not measured"
        count = sum(self.reached(value, self.goal.firm) for value in self.values)
        if self.reached(self.median, self.goal.stretch):
            word = "stretch"
        elif self.reached(self.median, self.goal.firm):
            word = "firm"
        else:
            word = "no"
        return f"{word} ({count} of {len(self.values)} cases)"

    def plain(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
        fields = {name: getattr(self.goal, name) for name in ("case", "against", "firm", "stretch")}
        fields["faster"] = self.goal.faster
        if self.values:
            fields |= {"median": self.median, "worst": self.worst, "cases": len(self.values)}
        if self.fresh:
            fields["median in a new array"] = median(self.fresh)
        return fields | {"met": self.met}


def ratio(ours: str, theirs: str, *, inverse: bool = False, **wanted: Any) -> Measure:
    """Measure the ratio of two contestants in the cases with the wanted fields.

    A tuple names several values that will do.
    """

    def select(outcomes: list[Outcome]) -> list[float]:
        found = [
            one.ratios[ours][theirs].median
            for one in outcomes
            if ours in one.ratios
            and theirs in one.ratios[ours]
            and all(matches(getattr(one.case, name), value) for name, value in wanted.items())
        ]
        return [1 / value for value in found] if inverse else found

    return select


def matches(value: Any, wanted: Any) -> bool:
    """Whether a field is the wanted one, or one of them."""
    return value in wanted if isinstance(wanted, tuple | range) else bool(value == wanted)


def flatness(outcomes: list[Outcome]) -> list[float]:
    """Return, per kind of input, the largest time per element over the smallest."""
    times = defaultdict(list)
    for one in outcomes:
        case = one.case
        if case.group == "vector" and case.kind in cases.LIGHT and case.n >= 2**16:
            line = (case.kind, case.sparseness, case.dtype)
            times[line].append(one.seconds[cases.PROJECT].median / case.n)
    lines = times.values()
    longest = max(map(len, lines), default=0)
    return [max(line) / min(line) for line in lines if len(line) == longest]


def vector(n: int, firm: float, stretch: float, **wanted: Any) -> Goal:
    """Return the goal for one light-tailed vector of n entries."""
    name = f"one vector 2^{n.bit_length() - 1}" + "".join(f" {value}" for value in wanted.values())
    wanted |= {"group": "vector", "kind": cases.LIGHT, "n": n}
    measure, fresh = (
        ratio(ours, cases.COPYTO, **wanted) for ours in (cases.PROJECT, cases.PROJECT_NEW)
    )
    return Goal(name, cases.COPYTO, firm, stretch, measure, fresh=fresh)


def heavy(firm: float, stretch: float) -> Goal:
    """Return the goal for one long heavy-tailed vector."""
    sizes = tuple(2**e for e in range(14, 27))
    measure, fresh = (
        ratio(ours, cases.COPYTO, group="vector", kind=cases.HEAVY, n=sizes)
        for ours in (cases.PROJECT, cases.PROJECT_NEW)
    )
    name = "heavy tails, one vector >= 2^14"
    return Goal(name, cases.COPYTO, firm, stretch, measure, fresh=fresh)


def rows(name: str, lengths: tuple[int, ...], firm: float, stretch: float) -> Goal:
    """Return the goal for rows of several lengths."""
    measure, fresh = (
        ratio(ours, theirs, group="rows", kind=cases.LIGHT, n=lengths)
        for ours, theirs in (
            (cases.PROJECT, cases.SOFTMAX),
            (cases.PROJECT_NEW, cases.SOFTMAX_NEW),
        )
    )
    return Goal(name, "torch.softmax", firm, stretch, measure, fresh=fresh)


def peer(name: str) -> Goal:
    """Return the goal against another way to project, which makes a new array as a rule."""
    sizes = tuple(2**e for e in cases.PEER_EXPONENTS)
    measure, fresh = (
        ratio(ours, name, inverse=True, group="vector", kind=cases.LIGHT, n=sizes)
        for ours in (cases.PROJECT, cases.PROJECT_NEW)
    )
    return Goal("one vector 2^10 ... 2^22", name, 20, 100, measure, faster=True, fresh=fresh)


GOALS = [
    vector(2**10, 10, 6),
    vector(2**14, 4.5, 3),
    vector(2**18, 2.5, 2.2),
    vector(2**22, 2.5, 1.6, dtype="float32"),
    vector(2**26, 1.3, 1.1, dtype="float32"),
    Goal(
        "project_sparse 2^26, sparseness 0.99",
        cases.COPYTO,
        0.5,
        0.45,
        ratio(cases.SPARSE, cases.COPYTO, group="sparse", kind=cases.LIGHT),
    ),
    rows("rows of 16 ... 256", (16, 64, 256), 1.8, 1.0),
    rows("rows of 1024 ... 16384", (1024, 4096, 16384), 1.0, 0.7),
    Goal(
        "gradient product 2^26",
        cases.COPYTO,
        1.9,
        1.7,
        ratio(cases.PRODUCT, cases.COPYTO, group="gradient", kind=cases.LIGHT, n=2**26),
        fresh=ratio(cases.PRODUCT_NEW, cases.COPYTO, group="gradient", kind=cases.LIGHT, n=2**26),
    ),
    heavy(7, 5),
    Goal(
        "single call, n = 16, everything included",
        cases.ABS,
        4.5,
        3,
        ratio(cases.PROJECT_NEW, cases.ABS, group="single", kind=cases.LIGHT),
    ),
    Goal(
        "2 threads, 65536 rows of 1024",
        cases.ONE_THREAD,
        1.4,
        1.8,
        ratio(cases.TWO_THREADS, cases.ONE_THREAD, inverse=True, group="threads", rows=65536),
        faster=True,
    ),
    Goal(
        "2 threads, one vector >= 2^20",
        cases.ONE_THREAD,
        1.4,
        1.8,
        ratio(cases.TWO_THREADS, cases.ONE_THREAD, inverse=True, group="threads", rows=1),
        faster=True,
    ),
    Goal("time per element, 2^16 ... 2^26", "itself", 1.5, None, flatness),
    peer(cases.TORCHNMF),
    peer(cases.SORTING),
    peer(cases.NEWTON),
]


def judge(outcomes: Iterable[Outcome]) -> list[Verdict]:
    """Hold the outcomes against the goals."""
    listed = list(outcomes)
    return [
        Verdict(goal, goal.measure(listed), goal.fresh(listed) if goal.fresh else [])
        for goal in GOALS
    ]
