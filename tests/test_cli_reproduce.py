"""`hoyer reproduce`: its options, what it says, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from hoyer.cli.meter import meter
from hoyer.cli.reproduce import reproduce
from hoyer.paper.experiments import EXPERIMENTS
from hoyer.paper.experiments.settings import Cell

app = typer.Typer()
app.command()(reproduce)

COMMAND = """
import typer
from hoyer.cli.reproduce import reproduce
app = typer.Typer()
app.command()(reproduce)
if __name__ == "__main__":
    app(standalone_mode=True)
"""


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_one_experiment(tmp_path):
    out = tmp_path / "deep" / "inside"
    done = invoke("dimensions", "--vectors", 2, "--max-log2n", 4, "--seed", 3, "--out", out)
    assert done.exit_code == 0, done.output
    assert "Bisection grow linearly" in done.output
    assert "Figure 2" not in done.output  # was not run
    for name in ("report.md", "report.html", "dimensions.csv", "dimensions.png", "measured.csv"):
        assert f"  {name}\n" in done.output
        assert (out / name).exists()


def test_without_out_every_setting_has_its_own_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("--seed", 1), ("--dtype", "float32"), ("--distribution", "lognormal")):
        assert invoke("psi", "--jobs", 1, *arguments).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "hoyer-reproduce").iterdir()) == [
        "quick-lognormal-float64-seed0",
        "quick-uniform-float32-seed0",
        "quick-uniform-float64-seed0",
        "quick-uniform-float64-seed1",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("psi", "--vectors", 3), "--vectors means nothing to the experiment 'psi'"),
        (("solvers", "--vectors", 0), "vectors=0: a cell needs at least 1 vector"),
        (("dimensions", "--max-log2n", 99), "max_log2n=99: must lie between 2 and 30"),
        (("solvers", "--jobs", 0), "jobs=0: must be at least 1"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, message):
    done = invoke(*arguments, "--out", tmp_path)
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_other_settings_in_the_directory(tmp_path):
    assert invoke("psi", "--out", tmp_path).exit_code == 0
    done = invoke("psi", "--seed", 4, "--out", tmp_path)
    assert "made with seed=0, not 4" in str(done.exception)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_tells_how_to_go_on(tmp_path, jobs):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    out = tmp_path / "out"
    command = [sys.executable, script, "agreement", "--vectors", "20", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [*command, "--out", out], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (out / "agreement.csv").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers as well
    error = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert error.splitlines()[1:] == [
        f"hoyer: stopped; results so far are in {out}, and the same command goes on from there"
    ]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def follow(stream):
    told = meter(stream)
    cells = [Cell(1024, 0.5, 10), Cell(1024, 0.6, 10), Cell(1024, 0.7, 10)]
    told.begin(EXPERIMENTS["solvers"], cells[:1], cells[1:])
    for cell in cells[1:]:
        told.advance(cell)
    told.end()
    return stream.getvalue()


def test_lines_where_there_is_no_terminal():
    first, last = follow(io.StringIO()).splitlines()
    assert first == f"{EXPERIMENTS['solvers'].title}: 3 cells, 1 of them from an earlier run"
    assert last.startswith("  done in 0 s, ")


def test_a_bar_on_a_terminal():
    text = follow(Terminal())
    assert "solvers" in text
    assert "3/3 cells" in text
    assert "vectors/s" in text
    assert "done in 0 s" in text
