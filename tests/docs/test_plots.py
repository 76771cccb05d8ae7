"""The benchmark plots: what was measured, missed goals included."""

import json
from pathlib import Path

import pytest

RESULTS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("*.json"))
READY = ".plots[data-state=ready]"


@pytest.fixture
def plots(visit):
    seen = visit("benchmarks/plots.html")
    seen.page.wait_for_selector(READY)
    yield seen.page
    assert seen.complaints == []


def missed(value):
    """How many verdicts in a file of results say no."""
    if isinstance(value, list):
        return sum(map(missed, value))
    if not isinstance(value, dict):
        return 0
    verdicts = [value[key] for key in ("met", "reached", "verdict") if key in value]
    here = any(str(one).split()[:1] in (["no"], ["missed"], ["False"]) for one in verdicts)
    return here + sum(map(missed, value.values()))


def test_every_missed_goal_is_there(plots):
    count = sum(missed(json.loads(path.read_text())) for path in RESULTS)
    assert count > 0
    plots.get_by_label("Only those missed").check()
    assert plots.locator(".state.missed").count() == count
    assert plots.locator(".state").count() == count
    assert plots.get_by_role("status").text_content().endswith(f"{count} missed.")


def test_every_benchmark_can_be_drawn(plots):
    choices = plots.locator("[data-part=curve] option")
    assert choices.count() > 25
    for value in choices.evaluate_all("(all) => all.map(({ value }) => value)"):
        plots.locator("[data-part=curve]").select_option(value)
        for unit in ("time", "baseline"):
            plots.locator("[data-part=unit]").select_option(unit)
            lines = plots.locator(".plots .frame polyline")
            assert lines.count() >= 2, value
            assert not any("NaN" in points for points in lines.evaluate_all(
                "(all) => all.map((line) => line.getAttribute('points'))"
            )), value  # fmt: skip


def test_points_are_what_was_measured(plots):
    cases = json.loads((RESULTS[0].parent / "cpu.json").read_text())["cases"]
    case = next(c for c in cases if c["group"] == "vector" and c["n"] == 1 << 18)
    seconds = case["seconds"]["hoyer.project(out=)"][0]
    title = plots.locator("title", has_text="hoyer.project(out=), one vector of 262,144").first
    assert f"{seconds / case['n'] * 1e9:.3g} ns per entry" in title.text_content()


def test_curves_are_hidden_by_keyboard(plots):
    before = plots.locator(".plots .frame polyline").count()
    button = plots.locator("[data-part=legend] button").first
    button.focus()
    plots.keyboard.press("Enter")
    assert plots.locator(".plots .frame polyline").count() == before - 1
    assert button.get_attribute("aria-pressed") == "false"
    # The focus is still on it.
    plots.keyboard.press("Enter")
    assert plots.locator(".plots .frame polyline").count() == before
