"""The experiments: resumable to the byte, independent of jobs, and honest in their verdicts."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import hoyer
from hoyer.paper.experiments import (
    EXPERIMENTS,
    Agreement,
    Counts,
    Gradient,
    Measurement,
    Settings,
    agreement,
    dimensions,
    gradient,
    psi,
    solvers,
)
from hoyer.paper.experiments.claims import Verdict, judge, rules
from hoyer.paper.experiments.counts import ALL_SOLVERS, PAPER_SOLVERS
from hoyer.paper.experiments.figures import FIGURES, draw_figures
from hoyer.paper.experiments.files import alone_with, replacing
from hoyer.paper.experiments.precision import closed_form, error_of, holds
from hoyer.paper.experiments.report import protocol_rows, write_report
from hoyer.paper.experiments.reproduce import reproduce
from hoyer.paper.experiments.results import Results
from hoyer.paper.experiments.runner import run
from hoyer.paper.experiments.settings import Cell, draw, generator
from hoyer.paper.experiments.space import BUFFER_BYTES, extra_bytes
from hoyer.paper.problems import random_vector

SMALL = Settings(vectors=2, max_log2n=5)
TABLES = ("dimensions.csv", "agreement.csv", "gradient.csv")


def bytes_of(directory):
    return {name: (directory / name).read_bytes() for name in TABLES}


def run_all(directory, jobs=1, settings=SMALL):
    for name in ("dimensions", "agreement", "gradient"):
        run(EXPERIMENTS[name], settings, out=directory, jobs=jobs)
    return bytes_of(directory)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """What an uninterrupted run by one job leaves behind."""
    return run_all(tmp_path_factory.mktemp("reference"))


# ---- what comes out ----


def test_solvers_follow_the_paper_s_protocol():
    records = solvers(Settings(vectors=3))
    assert {record.n for record in records} == {1024}
    targets = [0.2, 0.225, 0.25]
    assert sorted({record.sparseness for record in records})[:3] == targets
    assert max(record.sparseness for record in records) == 0.975
    assert len(records) == 32 * len(ALL_SOLVERS)
    assert all(record.vectors == 3 for record in records)
    assert len(EXPERIMENTS["solvers"].cells(Settings(full=True))) == 32
    assert {cell.vectors for cell in EXPERIMENTS["solvers"].cells(Settings(full=True))} == {1000}


def test_the_full_protocol_goes_as_far_as_the_paper():
    settings = Settings(full=True)
    cells = EXPERIMENTS["dimensions"].cells(settings)
    assert [cell.n for cell in cells] == [2**k for k in range(2, 27)]
    assert {cell.vectors for cell in cells if cell.n <= 2**22} == {1000}
    assert {cell.vectors for cell in cells if cell.n > 2**22} == {100}
    for name in ("agreement", "gradient"):
        cells = EXPERIMENTS[name].cells(settings)
        assert {cell.n for cell in cells} == {2**k for k in range(2, 27)}
        targets = pytest.approx(np.arange(1, 40) * 0.025)
        for n in (4, 2**22):
            assert [cell.sparseness for cell in cells if cell.n == n] == targets
        for top, vectors in ((12, 1000), (16, 100), (20, 10), (26, 1)):
            assert {cell.vectors for cell in cells if cell.n == 2**top} == {vectors}
        longest = [cell.sparseness for cell in cells if cell.n == 2**26]
        assert (longest[0], len(longest), longest[-1]) == (0.025, 11, 0.975)


def test_counts_are_those_of_the_solvers():
    settings = Settings(vectors=4, max_log2n=6)
    cell = Cell(64, 0.9, 4)
    vectors = [draw(settings, 64, generator(settings, "dimensions", cell, i)) for i in range(4)]
    for record in dimensions(settings):
        if record.n == 64:
            found = [
                int(hoyer.solve(x, 0.9, nonnegative=True, solver=record.solver).evaluations)
                for x in vectors
            ]
            assert record.mean == np.mean(found)
            assert record.sd == pytest.approx(np.std(found, ddof=1))
            assert (record.least, record.most) == (min(found), max(found))


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_auto_reads_as_often_as_readme_says(kind):
    rng = np.random.default_rng(0)
    sizes = (64, 128, 2**14, 2**18)
    rows = {n: random_vector(kind, 20 * n, rng).reshape(20, n) for n in sizes}
    for target in (0.5, 0.75, 0.9):
        reads = {n: hoyer.solve(x, target).evaluations for n, x in rows.items()}
        assert 4 <= reads[64].mean() <= 7
        assert np.median(reads[128]) == 2
        assert np.median(reads[2**14]) <= (1 if target == 0.9 else 2)
        assert np.median(reads[2**18]) == 1


def test_psi_paths_are_those_of_the_solvers():
    points = psi()
    (zero,) = (point for point in points if point.series == "zero")
    for solver in PAPER_SOLVERS:
        path = [point for point in points if point.series == solver]
        assert path[0].alpha == 0
        assert [point.finished for point in path] == [0] * (len(path) - 1) + [1]
    curve = [point for point in points if point.series == "curve"]
    assert all((point.psi > 0) == (point.alpha < zero.alpha) for point in curve)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_agreement_and_gradient_in_both_types(dtype):
    settings = Settings(vectors=2, max_log2n=6, dtype=dtype)
    eps = np.finfo(dtype).eps
    for record in agreement(settings):
        assert max(record.hoyer2004, record.potluru2013) < 64 * eps
        assert record.precision < 4 * eps
        assert (record.disagreements, record.at_fault) == (0, "")
    assert max(record.deviation for record in gradient(settings)) < max(1e-8, 64 * eps)


def test_a_wrong_result_of_an_older_algorithm_is_found_and_named(monkeypatch):
    from hoyer.paper import hoyer2004

    right = hoyer2004.project

    def wrong(x, l1, l2):
        result = right(x, l1, l2)
        return result._replace(value=result.value * (1 + 1e-9))

    monkeypatch.setattr(hoyer2004, "project", wrong)
    settings = Settings(vectors=1, max_log2n=2)
    records = agreement(settings)
    assert {record.at_fault for record in records} == {"hoyer2004"}
    assert all(record.disagreements == 1 for record in records)
    finding = verdicts(Results(settings, agreement=records))["numerically equal"]
    assert finding.verdict == Verdict.NO
    assert "at fault: hoyer2004" in finding.reason


def test_the_check_in_higher_precision_knows_right_from_wrong():
    x = np.array([4.0, 3.0, 2.0, 1.0])
    l1, l2 = hoyer.target_norms(4, 0.5)
    p = hoyer.project(x, 0.5)
    form = closed_form(x, p, l1, l2)
    assert holds(form, x, l1, l2)
    assert error_of(form, x, p) < 1e-15
    assert error_of(form, x, p + 1e-6) > 1e-7
    for support in ([1.0, 1, 1, 1], [1.0, 1, 0, 1]):
        form = closed_form(x, np.array(support), l1, l2)
        assert form is None or not holds(form, x, l1, l2)


# ---- resuming ----


def test_jobs_and_order_do_not_matter(tmp_path, reference):
    assert run_all(tmp_path, jobs=2) == reference


def test_cells_that_do_not_fit_the_memory_run_one_at_a_time(monkeypatch):
    from hoyer.paper.experiments import runner

    monkeypatch.setattr(runner, "total_memory", lambda: 0)
    settings = Settings(vectors=1)
    assert run(EXPERIMENTS["solvers"], settings, jobs=2).records == solvers(settings)


SLOW_RUN = """
    import sys, time
    from pathlib import Path
    from hoyer.paper.experiments import EXPERIMENTS, Settings
    from hoyer.paper.experiments.runner import run

    class Slow:
        def begin(self, experiment, done, todo): print(experiment.name, len(done), flush=True)
        def advance(self, cell): time.sleep(0.01)
        def end(self): pass

    if __name__ == "__main__":
        for name in ("dimensions", "agreement", "gradient"):
            settings = Settings(vectors=2, max_log2n=5)
            out, jobs = sys.argv[1], int(sys.argv[2])
            run(EXPERIMENTS[name], settings, out=out, jobs=jobs, progress=Slow())
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_goes_on_where_it_was(tmp_path, reference, jobs):
    script = tmp_path / "slow.py"
    script.write_text(textwrap.dedent(SLOW_RUN))
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(out), str(jobs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    table = out / "agreement.csv"
    deadline = time.monotonic() + 60
    while not (table.exists() and table.stat().st_size > 3000):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not (out / "gradient.csv").exists()
    before = len(table.read_bytes().splitlines())
    assert before < len(reference["agreement.csv"].splitlines())
    seen = Progress()
    run(EXPERIMENTS["agreement"], SMALL, out=out, progress=seen)
    assert seen.done >= before - 2
    assert run_all(out, jobs) == reference


class Progress:
    done = todo = ended = 0

    def begin(self, experiment, done, todo):
        self.done, self.todo = len(done), len(todo)

    def advance(self, cell):
        self.todo -= 1

    def end(self):
        self.ended += 1


@pytest.mark.parametrize("lost", [1, 7, 60, 200])
def test_a_torn_end_is_cut_off(tmp_path, reference, lost):
    run_all(tmp_path)
    for name in TABLES:
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-lost])
    seen = Progress()
    run(EXPERIMENTS["dimensions"], SMALL, out=tmp_path, progress=seen)
    assert (seen.done < 4, seen.todo, seen.ended) == (True, 0, 1)
    assert run_all(tmp_path) == reference


def test_a_second_run_measures_nothing_anew(tmp_path):
    run_all(tmp_path)
    times = (tmp_path / "measured.csv").read_bytes()
    seen = Progress()
    run(EXPERIMENTS["agreement"], SMALL, out=tmp_path, progress=seen)
    assert seen.done == len(EXPERIMENTS["agreement"].cells(SMALL))
    assert (tmp_path / "measured.csv").read_bytes() == times


def test_times_are_apart_from_results(tmp_path):
    run(EXPERIMENTS["dimensions"], SMALL, out=tmp_path)
    with (tmp_path / "measured.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["what"] for row in rows} == set(ALL_SOLVERS)
    assert all(row["unit"] == "s" and float(row["value"]) > 0 for row in rows)
    header = (tmp_path / "dimensions.csv").read_text().splitlines()[0]
    assert header == "n,sparseness,vectors,solver,mean,sd,least,most"


# ---- refusals ----


def test_a_directory_of_other_settings_is_refused(tmp_path):
    run(EXPERIMENTS["psi"], Settings(), out=tmp_path)
    with pytest.raises(ValueError, match=r"made with seed=0, not 7.*another directory"):
        run(EXPERIMENTS["psi"], Settings(seed=7), out=tmp_path)
    (tmp_path / "settings.json").write_text(json.dumps({"version": "0"}))
    with pytest.raises(ValueError, match="version=0, not"):
        psi(out=tmp_path)
    (tmp_path / "settings.json").write_text("nonsense")
    with pytest.raises(ValueError, match="does not hold the settings"):
        psi(out=tmp_path)
    (tmp_path / "settings.json").unlink()
    with pytest.raises(ValueError, match=r"measured\.csv but no settings\.json"):
        psi(out=tmp_path)


def test_a_file_that_is_no_table_is_refused(tmp_path):
    psi(out=tmp_path)
    (tmp_path / "psi.csv").write_text("something\nelse\n")
    with pytest.raises(ValueError, match=r"psi\.csv, line 1 is not a record"):
        psi(out=tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError, match="file"):
        psi(out=blocked)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"distribution": "normal"}, "distribution='normal': choose one of 'uniform'"),
        ({"dtype": "float16"}, "dtype='float16': choose one of 'float64', 'float32'"),
        ({"vectors": 0}, "vectors=0"),
        ({"max_log2n": 1}, "max_log2n=1: must lie between 2 and 30"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_out_of_range(given, message):
    with pytest.raises(ValueError, match=message):
        Settings(**given)


def test_settings_that_would_be_ignored_are_refused():
    with pytest.raises(ValueError, match="--vectors means nothing to the experiment 'psi'"):
        psi(Settings(vectors=3))
    with pytest.raises(ValueError, match="--max-log2n means nothing to the experiment 'solvers'"):
        solvers(Settings(max_log2n=3))
    with pytest.raises(ValueError, match="jobs=0"):
        psi(jobs=0)


def dies(settings, cell):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(settings, cell):
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [(dies, OSError, r"died \(exit code -9\)"), (fails, ValueError, "no luck")],
)
def test_trouble_in_a_worker_reaches_the_caller(measure, error, message):
    experiment = replace(EXPERIMENTS["solvers"], measure=measure)
    with pytest.raises(error, match=message):
        run(experiment, Settings(vectors=1), jobs=2)


# ---- verdicts ----

FIGURE_2 = (0.2, 0.5, 0.9)
MEANS = {"bisection": 10.0, "newton": 7.0, "newton_sqr": 5.0, "halley": 6.0, "auto": 2.0}


def counts(n, sparseness, solver, mean, sd=0.5):
    return Counts(n, sparseness, 1000, solver, mean, sd, 1, 20)


def figure_2(**changes):
    """Records that bear out every claim about Figure 2; `changes` spoils them at 0.5."""
    return [
        counts(1024, s, solver, changes.get(solver, mean) if s == 0.5 else mean)
        for s in FIGURE_2
        for solver, mean in MEANS.items()
    ]


def shape(solver, k, **changes):
    rule = {
        "bisection": lambda k: 1.5 + k,
        "newton": lambda k: 10 * (1 - 2 ** (-k / 5)),
        "newton_sqr": lambda k: min(4 + k / 8, 5.4 - 0.05 * k),
        "halley": lambda k: 8 * (1 - 2 ** (-k / 4)),
        "auto": lambda k: 1.0,
        **changes,
    }
    return rule[solver](k)


def figure_3(top=26, **changes):
    return [
        counts(2**k, 0.9, solver, shape(solver, k, **changes))
        for k in range(8, top + 1)
        for solver in ALL_SOLVERS
    ]


def times(power=1.0, extra=4096.0):
    for k in range(15, 27):
        yield Measurement("dimensions", 2**k, 0.9, "newton_sqr", "s", 1e-9 * 2 ** (power * k))
        for solver in ("newton_sqr", "auto"):
            yield Measurement("dimensions", 2**k, 0.9, solver, "byte", extra)


def equal(**changes):
    fields = (4, 0.5, 10, 1e-15, 0, 1e-16, 0, 1e-16, 0, 0, 0, "")
    return [replace(Agreement(*fields), **changes)]


def verdicts(results):
    """The findings by a few words of their claim."""
    words = (
        "strictly decreasing",
        "steps of Ψ′",
        "every solver ends",
        "about the same number",
        "fewer than Bisection",
        "best solver for every",
        "linearly in log n",
        "sublinearly",
        "again the best",
        "Newton needs 10",
        "only 4 iterations",
        "fewer evaluations as n grows",
        "numerically equal",
        "sorting",
        "central difference",
        "linear time",
        "constant additional space",
    )
    claims = judge(results)
    assert len(claims) == len(words)
    return {
        word: claim.finding for word, claim in zip(words, claims, strict=True) if word in claim.text
    }


def results(**given):
    return Results(
        Settings(),
        **{
            "psi": psi(),
            "solvers": figure_2(),
            "dimensions": figure_3(),
            "agreement": equal(),
            "gradient": [Gradient(4, 0.5, 10, 1e-9, 0, 1e-11, 0)],
            "measurements": list(times()),
            **given,
        },
    )


def test_records_that_bear_everything_out():
    found = verdicts(results())
    assert len(found) == 17
    assert {finding.verdict for finding in found.values()} == {Verdict.YES}, found


def test_without_records_nothing_is_claimed():
    found = verdicts(Results(Settings()))
    assert {finding.verdict for finding in found.values()} == {Verdict.OPEN}
    reason = "The experiment was not run: hoyer reproduce gradient"
    assert str(found["central difference"]) == reason


def test_an_experiment_that_was_begun(tmp_path):
    reproduce(["gradient", "psi"], SMALL, tmp_path)
    table = tmp_path / "gradient.csv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[:-1]), encoding="utf-8")
    found = verdicts(Results.collect(SMALL, tmp_path))
    reason = "The experiment was not run to its end: hoyer reproduce gradient"
    assert str(found["central difference"]) == reason
    assert str(found["again the best"]) == "The experiment was not run: hoyer reproduce dimensions"


@pytest.mark.parametrize("vectors", [1, 9, 10])
def test_a_mean_of_a_few_vectors_is_not_judged(vectors):
    few = results(
        solvers=[replace(record, vectors=vectors) for record in figure_2(newton=4.5)],
        dimensions=[replace(record, vectors=vectors) for record in figure_3()],
    )
    found = verdicts(few)
    of_means = [
        "about the same number",
        "fewer than Bisection",
        "best solver for every",
        "linearly in log n",
        "sublinearly",
        "again the best",
        "Newton needs 10",
        "only 4 iterations",
        "fewer evaluations as n grows",
    ]
    assert {found[word].verdict == Verdict.OPEN for word in of_means} == {vectors < 10}
    assert all(found[word].verdict == Verdict.YES for word in found.keys() - set(of_means))
    if vectors == 1:
        assert str(found["only 4 iterations"]) == (
            "run with 1 vector for each length and target. Not tested: a mean with its standard "
            "error takes 10 or more"
        )


@pytest.mark.parametrize(
    ("word", "given", "reason"),
    [
        ("about the same number", {"solvers": figure_2(bisection=14.0)}, "sparseness 0.5"),
        ("fewer than Bisection", {"solvers": figure_2(halley=10.5)}, "Halley 10.50, Bisection 10"),
        ("best solver for every", {"solvers": figure_2(newton=4.5)}, "NewtonSqr 5.00, Newton 4.5"),
        ("linearly in log n", {"dimensions": figure_3(bisection=lambda k: 2 ** (k / 4))}, "R²"),
        ("linearly in log n", {"dimensions": figure_3(bisection=lambda k: 30 - k)}, "R²"),
        ("sublinearly", {"dimensions": figure_3(newton=lambda k: k**2 / 50)}, "Newton"),
        ("again the best", {"dimensions": figure_3(halley=lambda k: 3.0)}, "Halley 3.00"),
        ("Newton needs 10", {"dimensions": figure_3(newton=lambda k: k / 2)}, "from 10"),
        ("only 4 iterations", {"dimensions": figure_3(newton_sqr=lambda k: 5.5)}, "from 4"),
        ("fewer evaluations as", {"dimensions": figure_3(newton_sqr=lambda k: k / 8)}, "not fall"),
        ("numerically equal", {"agreement": equal(hoyer2004=1e-3)}, "for 1 pair of length"),
        ("numerically equal", {"agreement": equal(hoyer2004=float("inf"))}, "for 1 pair of length"),
        ("numerically equal", {"agreement": equal(precision=1e-3)}, "both alike, but hoyer"),
        ("numerically equal", {"agreement": equal(precision=1e-14)}, "both alike, but hoyer"),
        ("sorting", {"agreement": equal(potluru2013=1e-3, at_fault="potluru2013")}, "potluru2013"),
        (
            "central difference",
            {"gradient": [Gradient(4, 0.5, 9, 0.1, 0, 1e-9, 0)]},
            "for 1 pair of length",
        ),
        ("linear time", {"measurements": list(times(power=1.5))}, "exponent"),
        ("constant additional space", {"measurements": list(times(extra=2**24))}, "1 MiB"),
    ],
)
def test_records_that_must_fail(word, given, reason):
    found = verdicts(results(**given))
    finding = next(value for key, value in found.items() if word in key)
    assert finding.verdict == Verdict.NO
    assert reason in finding.reason
    assert finding.reason in str(finding)


def test_spoilt_curves_fail():
    points = psi()
    bumpy = [replace(p, psi=p.psi + (p.step == 40)) if p.series == "curve" else p for p in points]
    assert verdicts(results(psi=bumpy))["strictly decreasing"].verdict == Verdict.NO
    level = [replace(p, psi=1.0) if p.series == "curve" and p.psi > 1 else p for p in points]
    assert verdicts(results(psi=level))["strictly decreasing"].verdict == Verdict.NO
    smooth = [replace(p, dpsi=-p.alpha) if p.series == "curve" else p for p in points]
    assert verdicts(results(psi=smooth))["steps of Ψ′"].verdict == Verdict.NO
    lost = [replace(p, finished=0) if p.series == "halley" else p for p in points]
    finding = verdicts(results(psi=lost))["every solver ends"]
    assert (finding.verdict, finding.reason) == (Verdict.NO, "not found by Halley")


def test_chance_is_not_held_against_a_claim():
    # 0.02 more, with a standard error of 0.016 for each.
    assert verdicts(results(solvers=figure_2(newton=4.98)))["best solver for every"].verdict == (
        Verdict.YES
    )


def test_short_vectors_leave_claims_open():
    found = verdicts(results(dimensions=figure_3(top=20), measurements=[]))
    for word in ("Newton needs 10", "only 4 iterations", "linear time", "constant additional"):
        finding = next(value for key, value in found.items() if word in key)
        assert finding.verdict == Verdict.OPEN


def test_constant_space_needs_vectors_larger_than_the_limit():
    short = [row for row in times() if row.unit == "s" or row.n <= 2**18]
    finding = verdicts(results(measurements=short))["constant additional space"]
    assert (finding.verdict, finding.reason) == (
        Verdict.OPEN,
        "Not tested: it takes vectors of 4 MiB or more, and Linux",
    )


def test_half_normal_entries_refute_the_paper():
    settings = Settings(vectors=100, distribution="halfnormal")
    finding = verdicts(Results(settings, solvers=solvers(settings)))["best solver for every"]
    assert finding.verdict == Verdict.NO
    assert "These entries are halfnormal" in finding.reason


# ---- figures and report ----


def test_figures_and_report_are_made_without_a_screen(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    settings = Settings(vectors=1, max_log2n=4)
    made = reproduce(EXPERIMENTS, settings, tmp_path)
    names = {path.name for path in made.files}
    figures = {"psi", "solvers", "dimensions", "time_and_space", "agreement", "gradient"}
    assert {f"{name}{suffix}" for name in figures for suffix in (".png", ".svg")} <= names
    assert {path.name for path in tmp_path.iterdir()} == names | {"settings.json"}
    for path in made.files:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
            assert 10_000 < len(content) < 300_000
        if path.suffix == ".svg":
            assert content.rstrip().endswith(b"</svg>")
    markdown = (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    for claim in made.claims:
        assert claim.text in markdown
    assert page.count("data:image/svg+xml;base64,") == len(figures)
    assert page.count("<img") == len(figures)
    assert "http" not in page  # stands alone
    before = {path: path.read_bytes() for path in made.files}
    reproduce(EXPERIMENTS, settings, tmp_path)
    assert {path: path.read_bytes() for path in made.files} == before


def test_the_report_says_what_was_run_and_by_which_rules(tmp_path):
    settings = Settings(full=True)
    rows = [row for e in EXPERIMENTS.values() for row in protocol_rows(e, settings)]
    targets = "0.025, 0.05, …, 0.975 (39)"
    coarse = "0.025, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.975"
    assert [row[:4] for row in rows if row[0] in {"psi", "solvers", "dimensions", "gradient"}] == [
        ("psi", "20", "0.6", "1"),
        ("solvers", "2¹⁰", "0.2, 0.225, …, 0.975 (32)", "1000"),
        ("dimensions", "2² … 2²²", "0.9", "1000"),
        ("dimensions", "2²³ … 2²⁶", "0.9", "100"),
        ("gradient", "2² … 2¹²", targets, "1000"),
        ("gradient", "2¹³ … 2¹⁶", targets, "100"),
        ("gradient", "2¹⁷ … 2²⁰", targets, "10"),
        ("gradient", "2²¹ … 2²²", targets, "1"),
        ("gradient", "2²³ … 2²⁶", coarse, "1"),
    ]
    text = " ".join(rules(settings))
    for threshold in (
        "10%",
        "0.98",
        "9.2·10⁻¹³",
        "7.1·10⁻¹⁵",
        "1.0·10⁻⁵",
        "0.2 of 1",
        "fewer than 10 vectors",
        "1 MiB",
        "up to 4 MiB, and no further",
    ):
        assert threshold in text


def test_a_claim_that_failed_does_not_look_like_one_that_held(tmp_path):
    spoilt = results(psi=[], dimensions=[], agreement=[], gradient=[], measurements=[])
    spoilt = replace(spoilt, solvers=figure_2(newton=4.5))
    draw_figures(spoilt, tmp_path)
    write_report(spoilt, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count('<td class="yes">✓ reproduced</td>') == 2
    assert page.count('<td class="no">✗ not reproduced</td>') == 1
    assert page.count('<td class="open">– not tested</td>') == 14


def sections(text, heading):
    """The parts of a report by their titles; what comes before the first one has none."""
    parts = re.split(heading, text)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


@pytest.fixture
def report(tmp_path):
    """Write a report without the experiment `agreement`; return Markdown, page, claims."""
    checks = [Gradient(4, target, 10, 1e-9, 0, 1e-11, 0) for target in (0.5, 0.6)]
    found = results(agreement=[], gradient=checks)
    draw_figures(found, tmp_path)
    claims, paths = write_report(found, tmp_path)
    return *(path.read_text(encoding="utf-8") for path in paths), claims


def test_each_claim_stands_with_the_figure_that_bears_it_out(report):
    markdown, page, claims = report
    markdown = sections(markdown, r"(?m)^## (.*)$")
    page = sections(page, "<h2 id=.*?>(.*?)</h2>")
    assert list(markdown) == list(page)
    assert {claim.figure for claim in claims} == set(FIGURES)
    for claim in claims:
        run = claim.figure != "agreement"
        title = FIGURES[claim.figure].title if run else "Experiments that were not run"
        assert claim.text in markdown[title]
        assert unescape(page[title]).replace("\xa0", " ").count(claim.text) == 1
        assert (f"({claim.figure}.png)" in markdown[title]) == run
        assert page[title].count("<img") == run
    assert {claim.where for claim in claims if claim.figure == "time_and_space"} == {"Theorem 1"}


def test_the_contents_lead_to_every_part(report):
    markdown, page, _ = report
    headings = re.findall('<h2 id="(.*?)">(.*?)</h2>', page)
    assert len(headings) == len(FIGURES) + 2
    assert re.findall('<li><a href="#(.*?)">(.*?)</a>', page) == headings
    assert "<span>6 reproduced</span>" in page  # the claims about Figure 3
    for anchor, title in headings:
        assert f"- [{title}](#{anchor})" in markdown


def test_the_report_is_set_like_the_figures_and_fits_a_phone(report):
    markdown, page, _ = report
    page = re.sub('base64,[^"]*', "", page)
    for text in (markdown, page):
        assert "2²⁶" in text
        assert "Ψ′" in text
        assert not re.findall(r"Psi|alpha|beta|\^|\de-\d|newton_sqr", text)
    assert '<meta name="viewport" content="width=device-width' in page
    assert "img { display: block; width: 100%" in page
    # A claim becomes a paragraph; other tables are moved sideways within their own place.
    kinds = re.findall('<div class="(claims|data)"><table>', page)
    assert len(kinds) == page.count("<table>")
    assert kinds.count("data") == 1
    assert ".data, figure span { display: block; overflow-x: auto; }" in page


def test_the_committed_reports_are_what_their_tables_say():
    paper = Path(__file__).parents[1] / "docs" / "paper"
    for directory in (paper, paper / "agreement"):
        given = json.loads((directory / "settings.json").read_text())
        del given["version"]
        text = (directory / "report.md").read_text(encoding="utf-8").replace("\\*", "*")
        for claim in judge(Results.collect(Settings(**given), directory)):
            assert f"| {claim.where} | {claim.text} | {claim.finding} | " in text, directory


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_the_extra_space_of_auto_keeps_to_its_bound():
    found = extra_bytes(Settings(), 2**24, 0.9, "auto")
    assert 2**20 < found <= BUFFER_BYTES  # the lower bound shows that the measuring works


def test_the_bound_of_the_extra_space_is_drawn():
    axes = FIGURES["time_and_space"].build(results()).axes[1]
    assert any({*line.get_ydata()} == {BUFFER_BYTES / 1024} for line in axes.lines)
    assert [text.get_text() for text in axes.texts] == ["bounded by 4 MiB per thread"]


def test_infinite_deviations_are_drawn(tmp_path):
    records = agreement(Settings(vectors=1, max_log2n=4))
    records = [replace(r, hoyer2004=float("inf")) if r.n == 8 else r for r in records]
    assert len(draw_figures(Results(Settings(), agreement=records), tmp_path)) == 2


def test_two_runs_do_not_share_a_directory(tmp_path):
    with (
        alone_with(Settings().claim(tmp_path)),
        pytest.raises(ValueError, match="another run is writing to"),
    ):
        psi(out=tmp_path)
    assert psi(out=tmp_path)


def test_a_file_is_replaced_when_it_is_complete(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write_until_the_disk_is_full():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_until_the_disk_is_full()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("table.csv", "old")]


def test_a_report_covers_what_the_directory_has(tmp_path):
    made = reproduce(["psi"], Settings(), tmp_path)
    assert {path.stem for path in made.files} == {"report", "psi", "measured"}
    made = reproduce(["solvers"], Settings(), tmp_path)
    assert {path.stem for path in made.files} == {"report", "psi", "solvers", "measured"}


def test_unknown_experiment(tmp_path):
    with pytest.raises(ValueError, match="experiment 'figure': choose one of psi, solvers"):
        reproduce(["figure"], Settings(), tmp_path)


def test_a_missing_matplotlib_says_how_to_get_it(run_python):
    text = run_python("""
        import sys
        sys.modules["matplotlib"] = None
        from hoyer.paper.experiments import Settings, solvers
        from hoyer.paper.experiments.reproduce import reproduce
        print(len(solvers(Settings(vectors=1))))
        try:
            reproduce(["psi"], Settings(), "/nowhere")
        except ImportError as error:
            print(error)
    """)
    assert text.splitlines() == ["160", "figures need matplotlib: pip install 'hoyer[cli]'"]
