"""Factorizations: ``python -m benchmarks.decomposition [--quick] [--out DIR]``.

On faces (ORL at half size, 25 components): block coordinate descent against our own version of
Hoyer's algorithm (time to its final objective, final objectives) and against scikit-learn's NMF
(time per iteration). On pieces of photographs: SparseDictionaryLearning against scikit-learn's
MiniBatchDictionaryLearning (with the faster of its two algorithms), judged by the signal-to-noise
ratio on photographs not learned from, at the same mean sparseness of the codes. One thread for
everybody; rivals take turns, and ratios are taken within a seed or a round.
"""

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import NMF, MiniBatchDictionaryLearning
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import hoyer
from examples.shipped import faces, patches
from hoyer.decomposition import SparseDictionaryLearning, SparseNMF

from . import machine
from .report import table
from .timing import Contestant, Quartiles, Settings, quartiles, race, ratios

Vectors = npt.NDArray[np.float64]

COMPONENTS, ITERATIONS, SPARSENESS = 25, 300, (0.6, 0.75)
TIMED_ITERATIONS = 50
ATOMS, PASSES, BATCH, ALPHA = 100, 3, 256, 1.0
LEARNED_FROM, HELD_OUT = ("camera", "chelsea", "coffee"), ("astronaut", "rocket")
ALGORITHMS = ("lars", "cd")
"""Of scikit-learn's, for the codes during learning."""


def lasso(model: Any, X: Vectors) -> Vectors:
    """Return the codes that the dictionary was learned with."""
    model.set_params(transform_algorithm="lasso_lars", transform_alpha=ALPHA)
    return np.asarray(model.transform(X))


def lasso_support(model: Any, X: Vectors) -> Vectors:
    """Return the best codes with the non-zero entries that the lasso chose."""
    codes = lasso(model, X)
    for code, x in zip(codes, X, strict=True):
        chosen = np.flatnonzero(code)
        code[chosen] = np.linalg.lstsq(model.components_[chosen].T, x, rcond=None)[0]
    return codes


def matching_pursuit(model: Any, X: Vectors) -> Vectors:
    """Return codes of ten entries, chosen one after the other."""
    model.set_params(transform_algorithm="omp", transform_n_nonzero_coefs=10)
    return np.asarray(model.transform(X))


CODERS: dict[str, Callable[[Any, Vectors], Vectors]] = {
    "lasso": lasso,
    "least squares on the support of the lasso": lasso_support,
    "orthogonal matching pursuit, 10 atoms": matching_pursuit,
}


class Outcome(NamedTuple):
    """One line of the report."""

    case: str
    against: str
    firm: str
    stretch: str
    measured: Quartiles
    unit: str
    verdict: str
    seconds: dict[str, Quartiles]
    """Of a whole fit, unless the case says otherwise."""
    error: str
    """How far the results are from what they promise, or how good they are."""


class Fit(NamedTuple):
    """A timed fit."""

    seconds: float
    model: Any


def verdict(value: float, firm: float, stretch: float, *, larger: bool) -> str:
    """Say which goal a value reaches."""
    sign = 1 if larger else -1
    if sign * value >= sign * stretch:
        return "stretch"
    return "firm" if sign * value >= sign * firm else "no"


def timed(make: Callable[[], Any]) -> Fit:
    """Return the result and how long it took."""
    start = time.perf_counter()
    model = make()
    return Fit(time.perf_counter() - start, model)


def factorized(X: Vectors, seed: int, iterations: int, **options: Any) -> Fit:
    """Fit the faces from a random start and return the estimator."""
    model = SparseNMF(
        COMPONENTS, init="random", random_state=seed, max_iter=iterations, tol=0, **options
    )
    return timed(lambda: model.fit(X))


# ---- the goals ----


def against_nmfsc(X: Vectors, sparseness: float, seeds: int) -> Iterator[Outcome]:
    """Compare the two solvers, seed by seed."""
    faster, lower, rises, deviations = [], [], [], []
    seconds: dict[str, list[float]] = {"nmfsc": [], "bcd to the same objective": []}
    iterations = []
    for seed in range(seeds):
        say(f"faces, sparseness {sparseness}, seed {seed}")
        options = {"components_sparseness": sparseness}
        reference = factorized(X, seed, ITERATIONS, solver="nmfsc", **options)
        whole = factorized(X, seed, ITERATIONS, **options).model
        final = reference.model.objective_[-1]
        reached = whole.objective_ <= final
        iterations.append(int(np.argmax(reached)) + 1 if reached.any() else ITERATIONS)
        ours = factorized(X, seed, iterations[-1], **options)
        faster.append(reference.seconds / ours.seconds if reached.any() else 0.0)
        lower.append(whole.objective_[-1] / final)
        rises.append(float(np.diff(whole.objective_).max() / whole.objective_[-1]))
        found = hoyer.sparseness(whole.components_)
        deviations.append(float(abs(found - sparseness).max()))
        for name, fit in zip(seconds, (reference, ours), strict=True):
            seconds[name].append(fit.seconds)
    times = {name: quartiles(values) for name, values in seconds.items()}
    error = f"sparseness off by {max(deviations):.1e}, largest rise {max(*rises, 0):.0e}"
    speed, gain = quartiles(faster), quartiles(lower)
    yield Outcome(
        f"time to NMFSC's final objective, sparseness {sparseness}",
        f"nmfsc, {ITERATIONS} iterations",
        "8 x faster",
        "15 x",
        speed,
        "x faster",
        verdict(speed.median, 8, 15, larger=True),
        times,
        f"{error}; iterations needed: {sorted(iterations)}",
    )
    stretch = 0.95 if sparseness == 0.75 else 0.0
    yield Outcome(
        f"final objective, sparseness {sparseness}, {seeds} seeds",
        f"nmfsc, {ITERATIONS} iterations",
        "not worse",
        "5 % lower" if sparseness == 0.75 else "",
        gain,
        "of nmfsc's",
        verdict(gain.median, 1, stretch, larger=False),
        {},
        error,
    )


def per_iteration(X: Vectors, sparseness: float, settings: Settings) -> Outcome:
    """Compare the time per iteration with scikit-learn's coordinate descent."""
    say(f"faces, time per iteration, sparseness {sparseness}")
    common: dict[str, Any] = {
        "init": "random",
        "random_state": 0,
        "max_iter": TIMED_ITERATIONS,
        "tol": 0,
    }
    ours = SparseNMF(COMPONENTS, components_sparseness=sparseness, **common)
    theirs = NMF(COMPONENTS, solver="cd", **common)
    measured = race(
        [Contestant("bcd", lambda: ours.fit(X)), Contestant("cd", lambda: theirs.fit(X))], settings
    )
    ratio = ratios(measured["bcd"], measured["cd"])
    found = hoyer.sparseness(ours.components_)
    return Outcome(
        f"time per iteration, sparseness {sparseness}",
        "scikit-learn NMF (cd)",
        "1.5 x",
        "1.0 x",
        ratio,
        "x its time",
        verdict(ratio.median, 1.5, 1.0, larger=False),
        {
            f"{name}, one iteration": quartiles(t / TIMED_ITERATIONS for t in times)
            for name, times in measured.items()
        },
        f"sparseness off by {abs(found - sparseness).max():.1e}",
    )


def dictionaries(seeds: int) -> Iterator[Outcome]:
    """Compare dictionaries learned from the same patches in as many passes."""
    train, test = patches(LEARNED_FROM, 10_000, seed=0), patches(HELD_OUT, 4_000, seed=1)
    scale = train.std()
    train, test = train / scale, test / scale
    theirs: dict[str, list[Fit]] = {name: [] for name in ALGORITHMS}
    for seed in range(seeds):
        for algorithm, fits in theirs.items():
            say(f"patches, scikit-learn ({algorithm}), seed {seed}")
            model = MiniBatchDictionaryLearning(
                ATOMS,
                alpha=ALPHA,
                fit_algorithm=algorithm,
                batch_size=BATCH,
                max_iter=PASSES,
                tol=0,
                max_no_improvement=None,
                random_state=seed,
            )
            fits.append(timed(lambda model=model: model.fit(train)))  # type: ignore[misc]
    for name in CODERS:
        yield compare_dictionaries(train, test, name, theirs)


def compare_dictionaries(
    train: Vectors, test: Vectors, name: str, rivals: dict[str, list[Fit]]
) -> Outcome:
    """Learn our dictionaries for the sparseness that their codes have; compare with the faster."""
    times = {rival: quartiles(fit.seconds for fit in fits) for rival, fits in rivals.items()}
    fastest = min(times, key=lambda rival: times[rival].median)
    theirs = rivals[fastest]
    gains, faster, deviations, targets, levels = [], [], [], [], []
    seconds = []
    for seed, their in enumerate(theirs):
        codes = CODERS[name](their.model, test)
        target = float(np.nanmean(hoyer.sparseness(codes)))
        say(f"patches, ours at {target:.3f}, seed {seed}")
        model = SparseDictionaryLearning(
            ATOMS,
            codes_sparseness=target,
            batch_size=BATCH,
            max_iter=PASSES,
            tol=0,
            random_state=seed,
        )
        ours = timed(lambda model=model: model.fit(train))  # type: ignore[misc]
        own = model.transform(test)
        deviations.append(float(abs(hoyer.sparseness(own) - target).max()))
        level = signal_to_noise(test, their.model.inverse_transform(codes))
        gains.append(signal_to_noise(test, model.inverse_transform(own)) - level)
        faster.append(their.seconds / ours.seconds)
        seconds.append(ours.seconds)
        targets.append(target)
        levels.append(level)
    gain, speed = quartiles(gains), quartiles(faster)
    if gain.median > 0 and speed.median >= 10:
        reached = "stretch"
    else:
        reached = "firm" if gain.median >= -0.5 and speed.median >= 5 else "no"
    return Outcome(
        f"dictionary, held-out SNR; codes by {name} have sparseness {np.median(targets):.3f}",
        f"scikit-learn MiniBatchDictionaryLearning ({fastest}), {np.median(levels):.2f} dB",
        "within 0.5 dB in a fifth of the time",
        "better in a tenth",
        gain,
        f"dB better, {speed.median:.3g} x faster ({speed.low:.3g} to {speed.high:.3g})",
        reached,
        {
            "ours": quartiles(seconds),
            **{f"scikit-learn ({rival})": time for rival, time in times.items()},
        },
        f"sparseness off by {max(deviations):.1e}",
    )


def signal_to_noise(X: Vectors, approximation: Vectors) -> float:
    """Return the ratio of the energies of signal and error, in dB."""
    return float(10 * np.log10(np.sum(X**2) / np.sum((X - approximation) ** 2)))


# ---- the report ----


def say(what: str) -> None:
    """Show how far the run is."""
    print(what, file=sys.stderr, flush=True)


def shown(q: Quartiles, digits: int = 3) -> str:
    """Return a median with its quartiles."""
    return f"{q.median:.{digits}g} ({q.low:.{digits}g} to {q.high:.{digits}g})"


def markdown(outcomes: list[Outcome], described: dict[str, Any], seeds: int) -> str:
    """Return the report."""
    head = ("case", "against", "firm", "stretch", "measured (quartiles)", "met?", "error")
    rows = [
        (
            o.case,
            o.against,
            o.firm,
            o.stretch,
            f"{shown(o.measured)} {o.unit}",
            o.verdict,
            o.error,
        )
        for o in outcomes
    ]
    times = [
        (o.case, name, shown(Quartiles(*(1e3 * v for v in q))))
        for o in outcomes
        for name, q in o.seconds.items()
    ]
    return "\n".join(
        [
            "# Factorizations",
            "",
            f"`python -m benchmarks.decomposition`, {described['date']}; {described['cpu']}, "
            f"{described['instruction set']}, one thread; {seeds} seeds; load of the machine "
            f"before: {described['load before']}, after: {described['load after']}. Faces: ORL at "
            f"half size, 400 x 2576, {COMPONENTS} components, random starts, float64. Patches: "
            f"8 x 8, {ATOMS} atoms, {PASSES} passes in batches of {BATCH}; learned from "
            f"{', '.join(LEARNED_FROM)}, judged on {', '.join(HELD_OUT)}. Fits are timed whole, "
            "with their start and final codes. Medians over seeds or rounds, with quartiles.",
            "",
            table(head, rows),
            "",
            "Milliseconds:",
            "",
            table(("case", "who", "time"), times),
            "",
        ]
    )


def plain(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome for JSON."""
    fields = outcome._asdict()
    fields["measured"] = outcome.measured._asdict()
    fields["seconds"] = {name: q._asdict() for name, q in outcome.seconds.items()}
    return fields


def main() -> None:
    """Measure, judge, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decomposition", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, three rounds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    described = machine.describe()
    machine.pin(1)
    machine.set_threads(1)
    seeds = 2 if options.quick else 10
    settings = Settings(rounds=3 if options.quick else 9, least=1e-3, most=60.0)
    X = faces()
    with threadpool_limits(1):
        outcomes = [o for s in SPARSENESS for o in against_nmfsc(X, s, seeds)]
        outcomes += [per_iteration(X, s, settings) for s in SPARSENESS]
        outcomes += dictionaries(1 if options.quick else 3)
    described["load after"] = round(os.getloadavg()[0], 2)
    text = markdown(outcomes, described, seeds)
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "decomposition.md").write_text(text, encoding="utf-8")
    record = {"machine": described, "outcomes": [plain(o) for o in outcomes]}
    path = options.out / "decomposition.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
