"""Hurley and Rickard's six criteria, and the search for counterexamples to them.

A criterion changes a vector and says what this must do to its sparsity. The search tries many
vectors and changes: it can refute a criterion, never prove one. Vectors are non-negative with at
least two nonzero entries: a single nonzero entry is as sparse as can be, and there no measure could
satisfy Scaling and Bill Gates at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Booleans: TypeAlias = npt.NDArray[np.bool_]
Measure: TypeAlias = Callable[[Floats], Any]

# Lengths of the random vectors.
LENGTHS = (2, 3, 4, 5, 8, 12)
# Differences below this, relative to the largest value seen, count as rounding.
ROUNDING = 1e-10


class Change(NamedTuple):
    """Vectors before and after a change, along the last axis.

    The first axis counts trials. A trial is passed if for one index of the second axis the measure
    does as it should for all of the third; most criteria have a single change there.
    """

    before: Floats
    after: Floats


Changes: TypeAlias = Callable[[Floats, np.random.Generator], Change]


@dataclass(frozen=True)
class Criterion:
    """What a measure of sparsity should do when a vector changes."""

    label: str
    """D1 to D4 (Dalton's laws), P1 and P2, as in the paper."""
    name: str
    says: str
    """The change and what it must do to the measure, in words."""
    changes: "Changes"
    """Makes the change to each of the vectors (rows of one length) that it applies to."""
    effect: str
    """The same in one word: the measure "falls", "stays" or "rises"."""


@dataclass(frozen=True)
class Counterexample:
    """A vector and a change after which a measure does not do what a criterion asks."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    value_before: float
    value_after: float

    def __str__(self) -> str:
        # Four digits are for reading; more only if they are needed to tell the two apart.
        for digits in (4, 10):
            first, second = f"{self.value_before:.{digits}g}", f"{self.value_after:.{digits}g}"
            if first != second:
                return f"S{_row(self.before)} = {first}, but S{_row(self.after)} = {second}"
        both = f"{self.value_before:.4g}"
        return f"S{_row(self.before)} = {both}, and S{_row(self.after)} = {both} too"


@dataclass(frozen=True)
class Verdict:
    """What the search found about one criterion."""

    criterion: Criterion
    trials: int
    """How many changes were tried: those for which the measure was defined before and after."""
    counterexample: Counterexample | None

    @property
    def holds(self) -> bool:
        """Whether changes were tried, and none was a counterexample."""
        return self.trials > 0 and self.counterexample is None

    def finding(self) -> str:
        """Return the finding in words."""
        if self.counterexample is not None:
            return f"counterexample: {self.counterexample}"
        if self.trials == 0:
            return "not tested: the measure is not defined for the vectors tried"
        return f"no counterexample in {self.trials} trials"

    def __str__(self) -> str:
        return f"{self.criterion.label} {self.criterion.name}: {self.finding()}"


@dataclass(frozen=True)
class Report:
    """The six verdicts on one measure, in order; printing it gives a table."""

    verdicts: tuple[Verdict, ...]

    def __getitem__(self, label: str) -> Verdict:
        """Return the verdict on the criterion "D1", ..., "P2"."""
        by_label = {verdict.criterion.label: verdict for verdict in self.verdicts}
        if label not in by_label:
            raise KeyError(f"{label!r}: the criteria are {', '.join(by_label)}")
        return by_label[label]

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self.verdicts)

    @property
    def satisfied(self) -> tuple[str, ...]:
        """The labels of the criteria without a counterexample."""
        return tuple(verdict.criterion.label for verdict in self.verdicts if verdict.holds)

    def __str__(self) -> str:
        width = max(len(verdict.criterion.name) for verdict in self.verdicts)
        return "\n".join(
            f"{verdict.criterion.label}  {verdict.criterion.name:{width}}  {verdict.finding()}"
            for verdict in self.verdicts
        )


def criteria(measure: "Measure", *, trials: int = 2000, seed: int = 0) -> Report:
    """Test a measure of sparsity on the six criteria of Hurley and Rickard.

    ==== ============ ============================================
    D1   Robin Hood   to take from the rich for the poor lowers it
    D2   Scaling      to multiply the vector leaves it as it is
    D3   Rising Tide  to add the same to all lowers it
    D4   Cloning      to repeat the vector leaves it as it is
    P1   Bill Gates   to make the very rich richer raises it
    P2   Babies       to append a zero raises it
    ==== ============ ============================================

    Parameters
    ----------
    measure : callable
        From an array of non-negative vectors along its last axis to one number per vector, larger
        for sparser vectors; NaN where it is not defined. A function of a single vector becomes one
        with ``numpy.vectorize(function, signature="(n)->()")``.
    trials : int, default 2000
        How many vectors to try for each criterion: first those of two or three small integers, then
        random ones of up to 12 entries.
    seed : int, default 0
        Of the random vectors and changes. The same seed gives the same report.

    Returns
    -------
    Report
        For each criterion "no counterexample in N trials", or the first counterexample. Vectors to
        which the criterion does not apply, or for which the measure is NaN, are no trials.

    Raises
    ------
    ValueError
        If `trials` is less than 1, or the measure does not return one number per vector.

    Notes
    -----
    "Lowers" and "raises" are strict. Vectors have at least two nonzero entries, and for Robin Hood
    and Rising Tide two that differ. Differences below 1e-10 of the largest value count as rounding.
    Bill Gates says that *some* wealth counts as very rich; additions of 1 to 1000 times the sum of
    the vector are tried, so that a counterexample to it is evidence, not proof.

    Examples
    --------
    >>> from hoyer import measures
    >>> print(measures.criteria(measures.hoyer))
    D1  Robin Hood   no counterexample in 1941 trials
    D2  Scaling      no counterexample in 2000 trials
    D3  Rising Tide  no counterexample in 1946 trials
    D4  Cloning      counterexample: S(1, 2) = 0.1752, but S(1, 2, 1, 2) = 0.1026
    P1  Bill Gates   no counterexample in 2000 trials
    P2  Babies       no counterexample in 2000 trials
    >>> measures.criteria(measures.gini).satisfied
    ('D1', 'D2', 'D3', 'D4', 'P1', 'P2')
    """
    if trials < 1:
        raise ValueError(f"trials={trials!r}: must be at least 1")
    return Report(tuple(judge(measure, criterion, trials, seed) for criterion in CRITERIA))


def judge(measure: Measure, criterion: Criterion, trials: int, seed: int) -> Verdict:
    """Look for a counterexample to one criterion."""
    rng = np.random.default_rng(seed)
    tried = 0
    for vectors in candidates(trials, rng):
        change = criterion.changes(vectors, rng)
        old, new = values(measure, change.before), values(measure, change.after)
        defined: Booleans = np.all(~np.isnan(old) & ~np.isnan(new), axis=(1, 2))
        fine = obeys(criterion.effect, old, new)
        passed: Booleans = np.any(np.all(fine, axis=2), axis=1)
        failed = np.flatnonzero(defined & ~passed)
        if failed.size:
            trial = int(failed[0])
            tried += int(defined[: trial + 1].sum())
            place = (trial, 0, int(np.argmin(fine[trial, 0])))
            before, after = (tuple(vectors[place].tolist()) for vectors in change)
            found = Counterexample(before, after, float(old[place]), float(new[place]))
            return Verdict(criterion, tried, found)
        tried += int(defined.sum())
    return Verdict(criterion, tried, None)


def candidates(count: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield `count` vectors in groups of one length, small and simple ones first."""
    for length in (2, 3):
        simple = np.array(list(product(range(4), repeat=length)), float)
        simple = np.repeat(simple[(simple > 0).sum(1) >= 2], 4, axis=0)[:count]
        count -= len(simple)
        yield simple
    for group, length in enumerate(LENGTHS):
        yield random_vectors(count // (len(LENGTHS) - group), length, rng)
        count -= count // (len(LENGTHS) - group)


def random_vectors(count: int, length: int, rng: np.random.Generator) -> Floats:
    """Return vectors of many kinds: flat and peaked, small and large, with and without zeros."""

    def one_of(*choices: float) -> Floats:
        return rng.choice(choices, (count, 1))

    vectors = one_of(0.5, 1, 3) * rng.random((count, length)) ** one_of(0.5, 1, 4)
    vectors = np.maximum(vectors.round(2), 0.05)
    vectors[:, 2:][rng.random((count, length - 2)) < one_of(0, 0.3, 0.6)] = 0
    return rng.permuted(vectors, axis=1)


def values(measure: Measure, vectors: Floats) -> Floats:
    """Return the measure of all vectors along the last axis."""
    if vectors.size == 0:
        return np.zeros(vectors.shape[:-1])
    result = np.asarray(measure(vectors), float)
    if result.shape != vectors.shape[:-1]:
        raise ValueError(
            f"the measure gave shape {result.shape} for vectors in an array of shape "
            f"{vectors.shape}: it must give one number per vector along the last axis, here shape "
            f"{vectors.shape[:-1]}; numpy.vectorize(measure, signature='(n)->()') does that"
        )
    return result


def obeys(effect: str, old: Floats, new: Floats) -> Booleans:
    """Say where the measure fell, stayed or rose as it should, up to rounding."""
    both = np.abs(np.concatenate([old.ravel(), new.ravel()]))
    rounding = float(ROUNDING * both[np.isfinite(both)].max(initial=0.0))
    if effect == "falls":
        return np.less(new, old - rounding)
    if effect == "rises":
        return np.greater(new, old + rounding)
    with np.errstate(invalid="ignore"):
        return np.equal(new, old) | np.less_equal(np.abs(new - old), rounding)


# ---- the changes ----


def rob(vectors: Floats, rng: np.random.Generator) -> Change:
    """Move some of an entry to a smaller one, less than would make them equal."""
    vectors = varied(vectors)
    rows = np.arange(len(vectors))
    rich = pick(vectors > vectors.min(1, keepdims=True), rng)
    poor = pick(vectors < vectors[rows, rich][:, None], rng)
    gap = vectors[rows, rich] - vectors[rows, poor]
    amount = gap * rng.choice([0.125, 0.25, 0.375], len(vectors))
    after = vectors.copy()
    after[rows, rich] -= amount
    after[rows, poor] += amount
    return single(vectors, after)


def scale(vectors: Floats, rng: np.random.Generator) -> Change:
    """Multiply by a number."""
    return single(vectors, vectors * rng.choice([0.001, 0.5, 2, 1000], (len(vectors), 1)))


def raise_all(vectors: Floats, rng: np.random.Generator) -> Change:
    """Add the same number to all entries."""
    vectors = varied(vectors)
    return single(vectors, vectors + rng.choice([0.1, 0.5, 2], (len(vectors), 1)))


def repeat(vectors: Floats, rng: np.random.Generator) -> Change:
    """Put two copies of the vector one after another, three of the longer ones."""
    return single(vectors, np.tile(vectors, (1, 2 if vectors.shape[1] <= 4 else 3)))


def enrich(vectors: Floats, rng: np.random.Generator) -> Change:
    """Make an entry large, by several amounts, and then larger, by several more."""
    total = vectors.sum(1)[:, None, None]
    large = total * np.array([1.0, 10.0, 100.0, 1000.0])[:, None]
    more = (total + large) * np.array([0.1, 1.0, 10.0])
    chosen = np.eye(vectors.shape[1])[rng.integers(0, vectors.shape[1], len(vectors))]
    base, unit = vectors[:, None, None, :], chosen[:, None, None, :]
    before = base + np.broadcast_to(large, more.shape)[..., None] * unit
    return Change(before, before + more[..., None] * unit)


def append_zero(vectors: Floats, rng: np.random.Generator) -> Change:
    """Append an entry that is zero."""
    return single(vectors, np.pad(vectors, ((0, 0), (0, 1))))


def single(before: Floats, after: Floats) -> Change:
    """Return one change per trial."""
    return Change(before[:, None, None, :], after[:, None, None, :])


def pick(allowed: Booleans, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    """Choose one of the allowed places in each row."""
    return np.asarray(np.where(allowed, rng.random(allowed.shape), -1.0).argmax(1))


def varied(vectors: Floats) -> Floats:
    """Return the vectors that have entries which differ."""
    return np.asarray(vectors[np.ptp(vectors, axis=1) > 0])


def _row(vector: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{entry:g}" for entry in vector) + ")"


CRITERIA = (
    Criterion("D1", "Robin Hood", "to take from the rich for the poor lowers it", rob, "falls"),
    Criterion("D2", "Scaling", "to multiply the vector leaves it as it is", scale, "stays"),
    Criterion("D3", "Rising Tide", "to add the same to all lowers it", raise_all, "falls"),
    Criterion("D4", "Cloning", "to repeat the vector leaves it as it is", repeat, "stays"),
    Criterion("P1", "Bill Gates", "to make the very rich richer raises it", enrich, "rises"),
    Criterion("P2", "Babies", "to append a zero raises it", append_zero, "rises"),
)
