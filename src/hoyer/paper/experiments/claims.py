"""What the paper claims, and whether the records bear it out."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hoyer.paper.experiments.agreement import OURS, promise
from hoyer.paper.experiments.agreement import tolerance as agreement_tolerance
from hoyer.paper.experiments.counts import NAMES, PAPER_SOLVERS, Counts
from hoyer.paper.experiments.figures import FIGURES
from hoyer.paper.experiments.gradient import tolerance as gradient_tolerance
from hoyer.paper.experiments.psi import CURVE, ENTRIES, ZERO
from hoyer.paper.experiments.results import Results
from hoyer.paper.experiments.settings import Settings, power, scientific
from hoyer.paper.experiments.space import BUFFER_BYTES

__all__ = ["Claim", "Finding", "Verdict", "judge", "rules", "tally"]

# What "about the same", "linearly" and the like are taken to mean. The paper gives no numbers;
# these were set when the first quick results for uniform entries were known.
CONSTANT_WITHIN = 0.1
LINEAR_FIT = 0.98
ITERATIONS_WITHIN = 1.0
TIME_EXPONENT_WITHIN = 0.2
TIME_FROM = 2**15
SPACE_LIMIT = 2**20
# A copy of the longest vector must stand out from what is allowed.
SPACE_VECTOR = 4 * SPACE_LIMIT
FALLING_FROM = 2**8
# Of fewer vectors neither the mean nor its standard error says anything.
LEAST_VECTORS = 10
LARGEST = 2**26

# Figures whose claims are about means over the vectors.
_OF_MEANS = ("solvers", "dimensions")
_DERIVATIVE_SOLVERS = PAPER_SOLVERS[1:]

_WHY_NOT_UNIFORM = (
    "for uniform entries ℓ₁²/ℓ₂² is linear in α, so that NewtonSqr lands next to the zero; "
    "with an unbounded tail it falls like an exponential, and Newton's steps on its root are twice "
    "as long"
)


class Verdict(StrEnum):
    """Whether a claim was borne out."""

    YES = "reproduced"
    NO = "not reproduced"
    OPEN = "not tested"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured for a claim."""

    verdict: Verdict
    measured: str
    reason: str = ""
    """Why a claim does not hold, or could not be tested."""

    def __str__(self) -> str:
        if self.reason and self.verdict is Verdict.NO:
            return f"{self.measured}. Why not: {self.reason}"
        return ". ".join(part for part in (self.measured, self.reason) if part)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the paper with what became of it."""

    where: str
    """Where the paper says so."""
    text: str
    figure: str
    """Which figure shows it: a key of `FIGURES`."""
    finding: Finding

    @property
    def experiment(self) -> str:
        """Which experiment tests it."""
        return FIGURES[self.figure].experiment


def judge(results: Results) -> list[Claim]:
    """Judge every claim of the paper by the records there are.

    Parameters
    ----------
    results : Results
        Of one or more experiments; claims of the others are "not tested".

    Returns
    -------
    list of Claim
        In the order of the paper's figures.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, solvers
    >>> settings = Settings(vectors=100)
    >>> claims = judge(Results(settings, solvers=solvers(settings)))
    >>> [str(claim.finding.verdict) for claim in claims if claim.where == "Figure 2"]
    ['reproduced', 'reproduced', 'reproduced']
    """
    return [
        Claim(where, text, figure, _found(figure, results, finding))
        for where, text, figure, finding in _CLAIMS
    ]


def _found(figure: str, results: Results, finding: Callable[[Results], Finding]) -> Finding:
    experiment = FIGURES[figure].experiment
    records = results.of(experiment)
    if not records:
        end = " to its end" if experiment in results.unfinished else ""
        reason = f"The experiment was not run{end}: hoyer reproduce {experiment}"
        return Finding(Verdict.OPEN, "", reason)
    if figure in _OF_MEANS and (few := min(record.vectors for record in records)) < LEAST_VECTORS:
        measured = f"run with {few} vector{'' if few == 1 else 's'} for each length and target"
        reason = f"Not tested: a mean with its standard error takes {LEAST_VECTORS} or more"
        return Finding(Verdict.OPEN, measured, reason)
    return finding(results)


def tally(claims: list[Claim]) -> str:
    """Return what became of claims, and of how many of them.

    Examples
    --------
    >>> from hoyer.paper.experiments import Settings, psi
    >>> tally(judge(Results(Settings(), psi=psi())))
    '3 reproduced, 14 not tested'
    """
    counts = Counter(claim.finding.verdict for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])


def rules(settings: Settings) -> list[str]:
    """Return by which rules claims are judged, one in a sentence."""
    return [
        "The paper gives no thresholds; these were set when first results for uniform entries were "
        "known.",
        "A mean exceeds another if it does so by more than two standard errors, the two means "
        "taken as independent; what is within them counts as equal, for the claim. Means of fewer "
        f"than {LEAST_VECTORS} vectors are not judged.",
        f"“About the same” means within {CONSTANT_WITHIN:.0%} of the average.",
        f"“Linearly in log n” means a straight line with R² of at least {LINEAR_FIT}; "
        "“sublinearly”, a smaller slope in the upper half of the lengths than in the lower; “fewer "
        f"as n grows”, a falling straight line from n = {power(FALLING_FROM)} on, and fewer at its "
        "end.",
        f"A number of iterations is met within {ITERATIONS_WITHIN:g}.",
        f"“Numerically equal” means within {scientific(agreement_tolerance(settings.dtype))} of "
        f"the largest entry: 4096 eps of float64, and the {scientific(promise(settings.dtype))} "
        "that hoyer's own result may be off when it is checked in higher precision.",
        f"The gradient is verified if no entry deviates by more than "
        f"{scientific(gradient_tolerance(settings.dtype))} of max|y|/β, ten times the rounding "
        "error that is admitted in a difference quotient, from a quotient whose two points have "
        "the same support.",
        f"“Linear time” means an exponent within {TIME_EXPONENT_WITHIN} of 1 for n from "
        f"{power(TIME_FROM)} on; “constant space”, at most {SPACE_LIMIT // 2**20} MiB for vectors "
        f"of up to {SPACE_VECTOR // 2**20} MiB or more. Both are asked of {NAMES['newton_sqr']}. "
        "For auto, which is not the paper's, extra space is bounded instead: its buffer grows with "
        f"the vector up to {BUFFER_BYTES // 2**20} MiB, and no further.",
    ]


def _all_of(count: int, total: int) -> str:
    return f"all {total}" if count == total else f"{count} of {total}"


def _verdict(holds: bool, measured: str, reason: str = "") -> Finding:
    return Finding(Verdict.YES if holds else Verdict.NO, measured, "" if holds else reason)


# ---- Figure 1 ----


def _psi_falls(results: Results) -> Finding:
    curve = [point for point in results.psi if point.series == CURVE]
    entries = [point.alpha for point in results.psi if point.series == ENTRIES]
    # Lemma auxprops (c): from the second largest entry on Psi is constant.
    falling = [point for point in curve if point.alpha <= entries[-1]]
    steps = np.diff([point.alpha for point in falling])
    # Between neighbours in floating point there is nothing but rounding.
    differences = np.diff([point.psi for point in falling])[steps > 1e-9]
    wrong = int(np.count_nonzero(differences >= 0))
    changes = int(np.count_nonzero(np.diff(np.sign([point.psi for point in curve])) != 0))
    measured = (
        f"Ψ falls in {_all_of(differences.size - wrong, differences.size)} steps along α, and "
        f"changes its sign {'once' if changes == 1 else f'{changes} times'}"
    )
    return _verdict(wrong == 0 and changes == 1, measured, "Ψ has another shape")


def _steps_at_entries(results: Results) -> Finding:
    curve = [point for point in results.psi if point.series == CURVE]
    entries = [point.alpha for point in results.psi if point.series == ENTRIES]
    alpha = np.array([point.alpha for point in curve])
    slope = np.array([point.dpsi for point in curve])
    # Points next to each other in floating point show what happens at a single number.
    jump = np.diff(alpha) <= 4 * np.spacing(alpha[1:])
    heights = np.abs(np.diff(slope))
    places = alpha[1:][jump & (heights > 1e-6 * np.ptp(slope))]
    found = np.isin(entries, places)
    strangers = int(np.count_nonzero(~np.isin(places, entries)))
    measured = (
        f"{_all_of(int(found.sum()), len(entries))} entries below the largest have a step, and "
        f"elsewhere there are {strangers or 'none'}"
    )
    return _verdict(bool(found.all()) and not strangers, measured, "the steps are elsewhere")


def _paths_end(results: Results) -> Finding:
    (zero,) = (point for point in results.psi if point.series == ZERO)
    ends = {name: [p for p in results.psi if p.series == name][-1] for name in PAPER_SOLVERS}
    lost = [name for name, point in ends.items() if not point.finished]
    counts = ", ".join(f"{NAMES[name]} {point.step + 1}" for name, point in ends.items())
    measured = (
        f"the zero is α* = {zero.alpha:.4f}, with Ψ(α*) = {scientific(zero.psi, 0)}; evaluations: "
        f"{counts}"
    )
    missed = ", ".join(NAMES[name] for name in lost)
    return _verdict(not lost and abs(zero.psi) < 1e-9, measured, f"not found by {missed}")


# ---- Figures 2 and 3 ----


def _series(records: list[Counts], solver: str) -> list[Counts]:
    return [record for record in records if record.solver == solver]


def _span(records: list[Counts]) -> str:
    means = [record.mean for record in records]
    return f"{min(means):.2f} to {max(means):.2f}"


def _exceeds(first: Counts, second: Counts) -> bool:
    """Whether a mean is above another by more than chance: two standard errors."""
    error = math.hypot(first.sd, second.sd) / math.sqrt(first.vectors)
    return first.mean > second.mean + 2 * error


def _place(record: Counts) -> str:
    return f"n = {power(record.n)}, sparseness {record.sparseness:g}"


def _constant_bisection(results: Results) -> Finding:
    series = _series(results.solvers, "bisection")
    means = np.array([record.mean for record in series])
    off = float(np.abs(means / means.mean() - 1).max())
    worst = series[int(np.abs(means - means.mean()).argmax())]
    measured = f"{_span(series)} evaluations, at most {off:.0%} from their average"
    reason = (
        f"at {_place(worst)} it needs {worst.mean:.2f}; it needs fewer where the entries next to "
        "α* lie further apart, and one where x is sparser than the target already"
    )
    return _verdict(off <= CONSTANT_WITHIN, measured, reason)


def _violations(records: list[Counts], better: str, others: tuple[str, ...]) -> list[str]:
    """Describe every place where a solver needs more evaluations than another."""
    rivals = {(r.n, r.sparseness, r.solver): r for r in records}
    return [
        f"{_place(mine)}: {NAMES[better]} {mine.mean:.2f}, {NAMES[other]} {rival.mean:.2f}"
        for mine in _series(records, better)
        for other in others
        if _exceeds(mine, rival := rivals[mine.n, mine.sparseness, other])
    ]


def _listed(places: list[str]) -> str:
    rest = f"; and {len(places) - 3} more" if len(places) > 3 else ""
    return "; ".join(places[:3]) + rest


def _below_bisection(results: Results) -> Finding:
    failures = [
        place
        for solver in _DERIVATIVE_SOLVERS
        for place in _violations(results.solvers, solver, ("bisection",))
    ]
    spans = ", ".join(f"{NAMES[s]} {_span(_series(results.solvers, s))}" for s in PAPER_SOLVERS)
    return _verdict(not failures, f"evaluations: {spans}", f"not at {_listed(failures)}")


def _newton_sqr_best(records: list[Counts], of_what: str, results: Results) -> Finding:
    others = tuple(name for name in PAPER_SOLVERS if name != "newton_sqr")
    failures = _violations(records, "newton_sqr", others)
    places = len(_series(records, "newton_sqr"))
    best = places - len(_spots(failures))
    measured = f"fewest evaluations, to within chance, for {_all_of(best, places)} {of_what}"
    reason = f"not at {_listed(failures)}"
    if results.settings.distribution != "uniform":
        reason += f". These entries are {results.settings.distribution}: {_WHY_NOT_UNIFORM}"
    return _verdict(not failures, measured, reason)


def _spots(failures: list[str]) -> set[str]:
    return {failure.partition(":")[0] for failure in failures}


def _best_over_sparseness(results: Results) -> Finding:
    return _newton_sqr_best(results.solvers, "targets", results)


def _best_over_lengths(results: Results) -> Finding:
    return _newton_sqr_best(results.dimensions, "lengths", results)


def _line(records: list[Counts]) -> tuple[float, float]:
    """Slope per doubling of n, and the coefficient of determination, of the straight line."""
    x = np.log2([record.n for record in records])
    y = np.array([record.mean for record in records])
    slope, offset = np.polyfit(x, y, 1)
    rest, total = (float(np.square(z).sum()) for z in (y - slope * x - offset, y - y.mean()))
    return float(slope), 1 - rest / total if total else 1.0


def _too_short(records: list[Counts], least: int) -> Finding | None:
    top = max(record.n for record in records)
    if top >= least:
        return None
    reason = f"Not tested: it takes vectors up to n = {power(least)}"
    return Finding(Verdict.OPEN, f"run up to n = {power(top)}", reason)


def _linear_bisection(results: Results) -> Finding:
    series = _series(results.dimensions, "bisection")
    if short := _too_short(series, 2**8):
        return short
    slope, fit = _line(series)
    measured = f"{slope:.2f} evaluations more per doubling of n, R² = {fit:.4f}"
    return _verdict(fit >= LINEAR_FIT and slope > 0, measured, f"R² is below {LINEAR_FIT}")


def _sublinear(results: Results) -> Finding:
    if short := _too_short(results.dimensions, 2**12):
        return short
    slopes = {}
    for solver in _DERIVATIVE_SOLVERS:
        series = _series(results.dimensions, solver)
        half = (len(series) + 1) // 2
        slopes[solver] = _line(series[:half])[0], _line(series[half:])[0]
    each = "; ".join(
        f"{NAMES[solver]} {low:+.2f}, then {high:+.2f}" for solver, (low, high) in slopes.items()
    )
    failures = [NAMES[s] for s, (low, high) in slopes.items() if not high < max(low, 1e-6)]
    measured = f"evaluations more per doubling of n, in the lower and the upper half: {each}"
    return _verdict(not failures, measured, f"growth does not slow down for {', '.join(failures)}")


def _iterations(solver: str, claimed: int) -> Callable[[Results], Finding]:
    def finding(results: Results) -> Finding:
        last = _series(results.dimensions, solver)[-1]
        error = last.sd / math.sqrt(last.vectors)
        measured = f"{last.mean:.2f} ± {error:.2f} evaluations at n = {power(last.n)}"
        if last.n != LARGEST:
            reason = f"Not tested: the claim is about n = {power(LARGEST)}, which --full goes to"
            return Finding(Verdict.OPEN, measured, reason)
        measured += ", the one at α = 0 included"
        reason = f"more than {ITERATIONS_WITHIN:g} from {claimed}"
        if results.settings.distribution != "uniform":
            reason += f" for {results.settings.distribution} entries"
        return _verdict(abs(last.mean - claimed) <= ITERATIONS_WITHIN, measured, reason)

    return finding


def _falling(results: Results) -> Finding:
    if short := _too_short(results.dimensions, 2**12):
        return short
    series = [r for r in _series(results.dimensions, "newton_sqr") if r.n >= FALLING_FROM]
    first, last = series[0], series[-1]
    slope, _ = _line(series)
    measured = (
        f"{first.mean:.2f} at n = {power(first.n)}, {last.mean:.2f} at n = {power(last.n)}: "
        f"{slope:+.3f} per doubling"
    )
    reason = "it does not fall"
    if results.settings.distribution != "uniform":
        reason += f" for {results.settings.distribution} entries: {_WHY_NOT_UNIFORM}"
    return _verdict(slope < 0 and last.mean < first.mean, measured, reason)


# ---- Agreement and gradient ----


def _equal(method: str) -> Callable[[Results], Finding]:
    def finding(results: Results) -> Finding:
        records = results.agreement
        limit = agreement_tolerance(results.settings.dtype)
        worst = max(records, key=lambda record: float(getattr(record, method)))
        deviation, error = getattr(worst, method), max(record.precision for record in records)
        compared = sum(record.vectors - record.undefined for record in records)
        measured = (
            f"largest deviation {scientific(deviation)} of the largest entry over {compared} "
            f"vectors; hoyer's own result is off by at most {scientific(error)} when it is checked "
            "in higher precision"
        )
        bad = [record for record in records if not getattr(record, method) <= limit]
        blame = sorted({name for record in bad for name in record.at_fault.split("+")})
        reason = f"{_too_far(len(bad), limit)}; at fault: {', '.join(blame)}"
        right = error <= promise(results.settings.dtype)
        if not bad and not right:
            reason = f"both alike, but {OURS} is off by {scientific(error)} in higher precision"
        return _verdict(not bad and right, measured, reason)

    return finding


def _too_far(cells: int, limit: float) -> str:
    pairs = "1 pair" if cells == 1 else f"{cells} pairs"
    return f"more than {scientific(limit)} for {pairs} of length and target"


def _gradient_verified(results: Results) -> Finding:
    limit = gradient_tolerance(results.settings.dtype)
    tested = [record for record in results.gradient if record.kinks < record.vectors]
    vectors = sum(record.vectors for record in results.gradient)
    kinks = sum(record.kinks for record in results.gradient)
    if not tested:
        measured = f"{kinks} of {vectors} vectors are too close to a kink"
        return Finding(Verdict.OPEN, measured, "Not tested: it takes others")
    worst = max(record.deviation for record in tested)
    median = float(np.median([record.median for record in tested]))
    left_out = f"; {kinks} more, too close to a kink, left out" if kinks else ""
    measured = (
        f"largest deviation {scientific(worst)}, typically {scientific(median, 0)}, over "
        f"{vectors - kinks} vectors{left_out}"
    )
    bad = [record for record in tested if not record.deviation <= limit]
    return _verdict(not bad, measured, _too_far(len(bad), limit))


# ---- Time and space ----


def _linear_time(results: Results) -> Finding:
    seconds = results.measured("dimensions", "newton_sqr", "s")
    times = {n: value for n, value in seconds.items() if n >= TIME_FROM}
    if len(times) < 3:
        top = power(4 * TIME_FROM)
        reason = (
            f"Not tested: calls on short vectors are mostly overhead, it takes vectors up to n = "
            f"{top}"
        )
        return Finding(Verdict.OPEN, "", reason)
    lengths = np.array(sorted(times))
    each = np.array([times[n] for n in lengths.tolist()])
    exponent = float(np.polyfit(np.log(lengths), np.log(each), 1)[0])
    nanoseconds = 1e9 * each / lengths
    measured = (
        f"{NAMES['newton_sqr']} takes {nanoseconds.min():.1f} to {nanoseconds.max():.1f} ns per "
        f"entry for n from {power(TIME_FROM)} to {power(int(lengths[-1]))}: time grows like a "
        f"power of n with exponent {exponent:.2f}"
    )
    reason = f"the exponent is more than {TIME_EXPONENT_WITHIN} from 1 on this machine"
    return _verdict(abs(exponent - 1) <= TIME_EXPONENT_WITHIN, measured, reason)


def _constant_space(results: Results) -> Finding:
    found = results.measured("dimensions", "newton_sqr", "byte")
    itemsize = np.dtype(results.settings.dtype).itemsize
    top = max(found, default=0)
    if top * itemsize < SPACE_VECTOR:
        reason = f"Not tested: it takes vectors of {SPACE_VECTOR // 2**20} MiB or more, and Linux"
        return Finding(Verdict.OPEN, "", reason)
    ours, worst = results.measured("dimensions", "auto", "byte"), max(found.values())
    measured = (
        f"in place, for vectors of up to {top * itemsize / 2**20:.0f} MiB, {NAMES['newton_sqr']} "
        f"needs at most {worst / 1024:.0f} KiB more (counted in pages of 4 KiB); auto, bounded by "
        f"{BUFFER_BYTES // 2**20} MiB, {max(ours.values()) / 1024:.0f} KiB"
    )
    limit = f"{SPACE_LIMIT // 2**20} MiB"
    return _verdict(worst <= SPACE_LIMIT, measured, f"it needs more than {limit}")


_CLAIMS: tuple[tuple[str, str, str, Callable[[Results], Finding]], ...] = (
    ("Figure 1", "Ψ is strictly decreasing and has exactly one zero", "psi", _psi_falls),
    (
        "Figure 1",
        "the steps of Ψ′ are exactly at the entries of x",
        "psi",
        _steps_at_entries,
    ),
    ("Figure 1", "every solver ends between the neighbours of the zero", "psi", _paths_end),
    (
        "Figure 2",
        "Bisection needs about the same number of evaluations for every sparseness",
        "solvers",
        _constant_bisection,
    ),
    (
        "Figure 2",
        "solvers that use the derivative need fewer than Bisection everywhere",
        "solvers",
        _below_bisection,
    ),
    (
        "Figure 2",
        "NewtonSqr is the best solver for every sparseness",
        "solvers",
        _best_over_sparseness,
    ),
    (
        "Figure 3",
        "the evaluations of Bisection grow linearly in log n",
        "dimensions",
        _linear_bisection,
    ),
    (
        "Figure 3",
        "those of the solvers that use the derivative grow sublinearly in log n",
        "dimensions",
        _sublinear,
    ),
    ("Figure 3", "NewtonSqr is again the best solver", "dimensions", _best_over_lengths),
    (
        "Figure 3",
        f"Newton needs 10 iterations in the mean at n = {power(LARGEST)}",
        "dimensions",
        _iterations("newton", 10),
    ),
    (
        "Figure 3",
        f"NewtonSqr needs only 4 iterations at n = {power(LARGEST)}",
        "dimensions",
        _iterations("newton_sqr", 4),
    ),
    ("Section 7", "NewtonSqr needs fewer evaluations as n grows", "dimensions", _falling),
    (
        "Section 7",
        "Hoyer's algorithm and the proposed one give numerically equal results",
        "agreement",
        _equal("hoyer2004"),
    ),
    (
        "Section 7",
        "different approaches compute the same result: sorting (Potluru et al.)",
        "agreement",
        _equal("potluru2013"),
    ),
    (
        "Section 7",
        "the gradient agrees with the central difference quotient",
        "gradient",
        _gradient_verified,
    ),
    ("Theorem 1", "the projection takes linear time", "time_and_space", _linear_time),
    ("Theorem 1", "it takes constant additional space", "time_and_space", _constant_space),
)
