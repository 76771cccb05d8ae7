"""The fuzzer itself: its oracle against exact arithmetic, and errors that it must find."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mpmath
import numpy as np
import pytest
from reference import PRECISION, exact_projection, numeric_jvp, numeric_target_derivative

import hoyer
import hoyer.projection

pytest.importorskip("torch")

from fuzz import draw, oracle, paths
from fuzz.judge import Judge
from fuzz.tally import Tally

SHORT = {"batch": paths.Path(paths.batch, types=paths.TENSORS, rows=8, longest=64)}


def drawn(count, kinds=SHORT):
    return (draw.draw(f"avx2:{number}", 0, kinds) for number in range(count))


def exactly(number):
    """A long double as one of mpmath's numbers."""
    fraction, exponent = np.frexp(number)
    return mpmath.ldexp(int(np.ldexp(fraction, 64)), int(exponent) - 64)


def apart(a, b):
    """The relative distance of numbers that a float need not hold."""
    return float(abs(a / b - 1)) if b else float(a != 0)


def test_the_oracle_agrees_with_exact_arithmetic():
    checked = 0
    for case in drawn(60):
        found, judge = oracle.project(case.x, case.options), Judge(case, Tally())
        for row in np.flatnonzero(found.sure).tolist():
            options, x = judge.targets(row), judge.x[row].astype(np.float64)
            if options["only_increase"] and options["nonnegative"] and x.max() <= 0:
                continue
            exact = exact_projection(x, **options)
            where = f"{case.name}, row {row}"
            with mpmath.workprec(PRECISION):
                unit = [exactly(entry) for entry in found.unit[row]]
                pairs = zip(exact.value, unit, strict=True)
                off = max(abs(abs(a) - b * exact.l2) for a, b in pairs)
                assert off <= 2.0**-58 * max(abs(entry) for entry in exact.value), where
                assert apart(exactly(found.norm[row]), exact.l2) < 1e-17, where
                if exact.scale is not None:
                    scale = exact.scale * exact.l2
                    assert apart(exactly(found.scale[row]), scale) < 1e-15, where
            chosen = not options["nonnegative"] and ((x == 0) & (found.unit[row] > 0)).any()
            if not options["at_most"]:
                assert exact.unique == (not found.tied[row] and not chosen), where
            assert exact.active == found.active[row] or judge.border[row] or not exact.l2, where
            checked += 1
    assert checked > 300 or not oracle.DECIDES


def test_the_oracle_is_mostly_sure():
    sure = np.concatenate([oracle.project(case.x, case.options).sure for case in drawn(200)])
    assert sure.mean() > 0.95 or not oracle.DECIDES


def test_without_positive_entries_only_increase_chooses_one():
    x = np.array([[-2.0, -1.0, -3.0, -1.0], [-1.0, 0.0, 0.0, -2.0]])
    options = {"sparseness": 0.3, "l2": 2.5, "nonnegative": True, "only_increase": True}
    found = oracle.project(x, options)
    np.testing.assert_array_equal(found.unit, [[0, 1, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(found.norm * found.ratio, [2.5, 2.5])


TARGETS = {
    "l2": {"sparseness": 0.6},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "alone": {"sparseness": 0.05, "l2": 3.0, "only_increase": True},
    "alone, l1": {"sparseness": 0.05, "l1": 3.0, "only_increase": True},
    "alone, keep": {"sparseness": 0.05, "l2": "keep", "only_increase": True},
    "whole": {"sparseness": 0.05},
    "l1 sphere": {"l1": 2.5},
    "ball": {"l1": 2.5, "at_most": True},
    "within": {"l1": 1e3, "l2": 1e3, "at_most": True},
    "two balls, l1": {"l1": 1.5, "l2": 1.4, "at_most": True},
    "two balls, both": {"l1": 1.5, "l2": 0.9, "at_most": True},
    "alone, two balls": {"l1": 5.0, "l2": 1.0, "at_most": True},
}
ACTIVE = {
    "l1 sphere": "l1",
    "ball": "l1",
    "within": "none",
    "two balls, l1": "l1",
    "alone, two balls": "l2",
}


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("form", TARGETS)
def test_the_products_agree_with_central_differences(form, nonnegative, rng):
    options = {
        "only_increase": False,
        "at_most": False,
        **TARGETS[form],
        "nonnegative": nonnegative,
    }
    x = rng.normal(size=(1, 7)) ** 3
    x[0, 2] = 3.0
    if "sparseness" not in options:
        x = np.array([[2.5, -1.7, 2.25, 0.5, -0.25, 2.0, 1.5]])
    y, z = rng.normal(size=(2, 1, 7))
    case = draw.Case("avx2:0", "products", draw.TYPES["float64"], "", "", x, options, rng)
    judge, found = Judge(case, Tally()), oracle.project(x, options)
    assert found.active[0] == ACTIVE.get(form, "both")
    assert found.alone[0] == form.startswith("alone")
    signs = np.where(judge.negative, -1, 1)
    free = np.full(x.shape, form == "within" and not nonnegative)
    at = oracle.At(found.unit, found.scale, found.norm, signs * x, found.alone, found.active, free)
    forward = signs * judge._derivatives(at, found.excess, signs * y)["jvp"][0]
    reverse = signs * judge._derivatives(at, found.excess, signs * z)["vjp"][0]
    expected = np.array(numeric_jvp(x[0], y[0], **options), dtype=float)
    np.testing.assert_allclose(forward[0].astype(float), expected, rtol=0, atol=1e-15 * 50)
    np.testing.assert_allclose(float((forward * z).sum()), float((reverse * y).sum()), rtol=1e-13)
    # The same formula in mpmath's numbers, on the exact projection.
    with mpmath.workprec(PRECISION):
        exact, exact_signs, _ = oracle.exactly_at(x[0], options)
        given = np.array([[mpmath.mpf(entry) for entry in y[0]]], dtype=object) * exact_signs
        long_way = oracle.product(exact, given, case.rule, reverse=False)[0] * exact_signs
    np.testing.assert_allclose(long_way[0].astype(float), expected, rtol=0, atol=1e-15)


def test_the_derivatives_by_the_target_agree_with_central_differences(rng):
    x = rng.normal(size=(1, 7))
    found = oracle.project(x, {"l1": 1.9, "l2": 1.1})
    expected = numeric_target_derivative(x[0], 1.9, 1.1)
    parts = oracle.by_target(found.unit, found.excess, found.active)
    for part, wanted in zip(parts, expected, strict=True):
        np.testing.assert_allclose(
            np.where(x[0] < 0, -1, 1) * part[0].astype(float),
            np.array(wanted, dtype=float),
            rtol=1e-13,
        )


def test_the_same_seed_draws_the_same_case():
    first, second = (draw.draw("avx2:7", 3, paths.CORE) for _ in range(2))
    assert first.x.tobytes() == second.x.tobytes()
    assert repr(first[:5]) == repr(second[:5])
    assert repr(first.options) == repr(second.options)
    others = [draw.draw(name, 3, paths.CORE).x.tobytes() for name in ("avx2:8", "avx512:7")]
    assert first.x.tobytes() not in others


# ---- planted errors ----


def off(p):
    return p + np.where(np.abs(p) == np.abs(p).max(1)[:, None], 100 * np.finfo(p.dtype).eps * p, 0)


def revive(p):
    return np.where(p == 0, np.finfo(p.dtype).eps * p.max(), p).astype(p.dtype)


def lose_sign(p):
    return np.abs(p)


def lose_entry(p):
    return np.where(np.abs(p) == np.abs(p).max(1)[:, None], 0, p).astype(p.dtype)


def not_a_number(p):
    return np.where(p == p.max(), np.nan, p).astype(p.dtype)


def negative_zero(p):
    return np.where(p == 0, -0.0, p).astype(p.dtype)


def judged(path, dtype, x, options):
    """What the fuzzer has to say about a batch of its own kind."""
    tally = Tally()
    options = {"nonnegative": False, "only_increase": False, "at_most": False, **options}
    rng = np.random.default_rng(0)
    kind = draw.TYPES[dtype]
    case = draw.Case("avx2:0", path, kind, "normal", "", x.astype(dtype), options, rng)
    paths.run(case, paths.CORE[path], tally)
    return [finding["what"] for finding in tally.findings]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("spoil", [off, lose_sign, lose_entry, not_a_number, negative_zero])
def test_a_spoilt_result_is_found(spoil, dtype, rng, monkeypatch):
    x, project = rng.normal(size=(5, 20)), hoyer.project
    assert judged("batch", dtype, x, {"sparseness": 0.6}) == []
    monkeypatch.setattr(hoyer, "project", lambda *args, **given: spoil(project(*args, **given)))
    assert judged("batch", dtype, x, {"sparseness": 0.6})
    assert judged("batch", dtype, rng.normal(size=(1, 20000)), {"sparseness": 0.6})


def test_a_revived_zero_is_found(rng, monkeypatch):
    x, project = rng.normal(size=(5, 20)), hoyer.project
    assert judged("again", "float32", x, {"sparseness": 0.6}) == []
    calls = []

    def second(*args, **given):
        calls.append(1)
        return project(*args, **given) if len(calls) == 1 else revive(project(*args, **given))

    monkeypatch.setattr(hoyer, "project", second)
    assert "a zero revived when projected again" in judged(
        "again", "float32", x, {"sparseness": 0.6}
    )


def test_other_bits_and_errors_raised_are_found(rng, monkeypatch):
    x, project_ = rng.normal(size=(5, 20)), hoyer.project_

    def one_ulp(x, *args, **given):
        project_(x, *args, **given)[2, 3] *= 1 + 2.0**-52

    monkeypatch.setattr(hoyer, "project_", one_ulp)
    assert judged("in place", "float64", x, {"sparseness": 0.1}) == ["in place: other bits"]
    assert "raised ValueError" in judged("batch", "float64", x, {"sparseness": 1.5})[0]


@pytest.mark.parametrize(
    ("name", "what"), [("jvp", "jvp"), ("vjp", "vjp"), ("target_gradient", "by l1")]
)
def test_a_wrong_derivative_is_found(name, what, rng, monkeypatch):
    x, right = rng.normal(size=(5, 20)), getattr(hoyer.projection.Projection, name)
    long = rng.normal(size=(2, 1000))
    assert judged("products", "float64", x, {"sparseness": 0.6}) == []
    monkeypatch.setattr(
        hoyer.projection.Projection,
        name,
        lambda self, *args: np.asarray(right(self, *args)) * (1 + 2.0**-44),
    )
    assert what in judged("products", "float64", x, {"sparseness": 0.6})
    assert what in judged("products", "float64", long, {"sparseness": 0.6})


def test_a_wrong_record_is_found(rng, monkeypatch):
    x, solve = rng.normal(size=(5, 20)), hoyer.solve
    assert judged("solve", "float64", x, {"sparseness": 0.6}) == []

    class Spoilt:
        def __init__(self, found):
            self.found = found

        def __getattr__(self, name):
            given = getattr(self.found, name)
            return ~given if name == "unique" else given * 1.001 if name == "scale" else given

    monkeypatch.setattr(hoyer, "solve", lambda *args, **given: Spoilt(solve(*args, **given)))
    found = judged("solve", "float64", x, {"sparseness": 0.6})
    assert found == ["record: scale", "record: unique"]


# ---- the command ----


def start(*arguments):
    here = Path(__file__).parent
    return subprocess.Popen(
        [sys.executable, "-m", "fuzz", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(here)},
        cwd=here,
    )


def test_a_short_run_ends_clean_and_says_what_it_tried():
    run = start("--seconds", "2", "--kinds", "baseline")
    text, _ = run.communicate(timeout=200)
    for part in ("vectors by path", "vectors by distribution", "largest seen", ", 0 violations"):
        assert part in text
    assert run.returncode == 0, text


def test_an_interrupt_ends_with_the_summary_so_far():
    run = start("--seconds", "100", "--kinds", "baseline")
    time.sleep(8)
    run.send_signal(signal.SIGINT)
    text, _ = run.communicate(timeout=100)
    assert "vectors by path" in text
    assert "seconds, seed 0" in text
