"""`hoyer reproduce`: its options, what it says, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from typing import get_args

import pytest

from hoyer import cli
from hoyer.cli.progress import Meter
from hoyer.cli.reproduce import Choice
from hoyer.paper.experiments import EXPERIMENTS
from hoyer.paper.experiments.settings import Cell


@pytest.fixture
def run(capsys):
    """Run the command in this process; return exit code, stdout, stderr."""

    def run_command(*arguments):
        code = cli.run(["reproduce", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_every_experiment_can_be_chosen():
    assert get_args(Choice) == ("all", *EXPERIMENTS)


def test_one_experiment(run, tmp_path):
    out = tmp_path / "deep" / "inside"
    options = ("--vectors", 2, "--max-log2n", 4, "--seed", 3, "--out", out)
    code, shown, _ = run("dimensions", *options)
    assert code == 0
    assert "Bisection grow linearly" in shown
    assert "Figure 2" not in shown  # was not run
    assert "\n8 claims of the paper: 8 not tested\n" in shown
    assert "run with 2 vectors for each length and target" in " ".join(shown.split())
    assert f"\nwrote to {out}:\n" in shown
    assert shown.endswith(f"\nfor every figure beside its claims open {out / 'report.html'}\n")
    for name in ("report.md", "report.html", "dimensions.csv", "dimensions.png", "measured.csv"):
        assert f"  {name}\n" in shown
        assert (out / name).exists()


def test_without_out_every_setting_has_its_own_directory(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("--seed", 1), ("--dtype", "float32"), ("--distribution", "lognormal")):
        assert run("psi", "--jobs", 1, *arguments)[0] == 0
    assert sorted(path.name for path in (tmp_path / "hoyer-reproduce").iterdir()) == [
        "quick-lognormal-float64-seed0",
        "quick-uniform-float32-seed0",
        "quick-uniform-float64-seed0",
        "quick-uniform-float64-seed1",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("figure",), "Invalid value for 'experiment': 'figure' is not one of 'all', 'psi'"),
        (("psi", "--vectors", 3), "--vectors means nothing to the experiment 'psi'"),
        (
            ("solvers", "--max-log2n", 9),
            "--max-log2n means nothing to the experiment 'solvers': leave it out",
        ),
        (("solvers", "--vectors", 0), "vectors=0: must be at least 1"),
        (("solvers", "--vectors", "x"), "Invalid value for '--vectors': 'x' is no whole number"),
        (("dimensions", "--max-log2n", 99), "max_log2n=99: must lie between 2 and 30"),
        (("solvers", "--jobs", 0), "jobs=0: must be at least 1"),
        (("solvers", "--seed", -1), "seed=-1: must not be negative"),
        (("psi", "--dtype", "float16"), "Invalid value for '--dtype': 'float16' is not one of"),
    ],
)
def test_errors_are_one_line(run, tmp_path, arguments, message):
    code, shown, error = run(*arguments, "--out", tmp_path)
    assert (code, shown) == (2, "")
    assert error.startswith(f"hoyer: {message}")
    assert error.count("\n") == 1


def test_an_output_without_greek_letters(tmp_path):
    command = [sys.executable, "-m", "hoyer", "reproduce", "psi", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    assert b"\\u03a8 is strictly decreasing" in done.stdout
    assert "Ψ is strictly decreasing" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_the_output_is_set_up_in_one_place(run, tmp_path):
    before = sys.stdout.errors
    assert run("psi", "--out", tmp_path)[0] == 0
    assert sys.stdout.errors == before


def test_the_help_says_which_experiments_take_an_option(run):
    code, shown, _ = run("--help")
    shown = " ".join(shown.split())
    assert code == 0
    assert "2^N entries; for dimensions, agreement, gradient." in shown
    assert "protocol's number; for solvers, dimensions, agreement, gradient." in shown


def test_other_settings_in_the_directory(run, tmp_path):
    assert run("psi", "--out", tmp_path)[0] == 0
    code, _, error = run("psi", "--seed", 4, "--out", tmp_path)
    assert code == 2
    assert "made with seed=0, not 4" in error


def test_a_place_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, shown, error = run("psi", "--out", tmp_path / "file")
    assert (code, shown) == (2, "")
    assert error == f"hoyer: {tmp_path / 'file'} is a file: --out wants a directory\n"


def test_without_matplotlib_it_says_what_to_install(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, shown, error = run("psi", "--out", tmp_path)
    assert (code, shown) == (2, "")
    assert error == "hoyer: the command line needs matplotlib: run  pip install 'hoyer[cli]'\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_tells_how_to_go_on(tmp_path, jobs):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "hoyer", "reproduce", "agreement", "--max-log2n", "6"]
    command += ["--vectors", "20", "--jobs", str(jobs), "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not (out / "agreement.csv").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers as well
    shown, error = process.communicate(timeout=30)
    assert (process.returncode, shown) == (130, "")
    assert error.splitlines()[1:] == [
        f"hoyer: interrupted; results so far are in {out}, and the same command goes on where it "
        "stopped"
    ]
    assert not list(out.glob("report*"))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "of them from an earlier run" in done.stderr
    assert "report.html" in done.stdout


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def follow(monkeypatch):
    """Run two cells of an experiment, one being done before, and return what was shown."""

    def shown_on(stream):
        monkeypatch.setattr("sys.stderr", stream)
        told = Meter()
        cells = [Cell(1024, 0.5, 10), Cell(1024, 0.6, 10), Cell(1024, 0.7, 10)]
        told.begin(EXPERIMENTS["solvers"], cells[:1], cells[1:])
        for cell in cells[1:]:
            told.advance(cell)
        told.end()
        return stream.getvalue()

    return shown_on


def test_lines_where_there_is_no_terminal(follow):
    first, last = follow(io.StringIO()).splitlines()
    title = EXPERIMENTS["solvers"].title
    assert first == f"{title} (3 pairs of length and target, 1 of them from an earlier run)"
    assert last.startswith("  done in 0 s, ")


def test_a_line_for_what_is_all_there(capsys):
    told = Meter()
    told.begin(EXPERIMENTS["psi"], [Cell(20, 0.6, 1)], [])
    told.end()
    title = EXPERIMENTS["psi"].title
    assert (
        capsys.readouterr().err == f"{title} (1 pair of length and target, from an earlier run)\n"
    )


def test_a_bar_on_a_terminal(follow):
    text = follow(Terminal())
    assert "solvers" in text
    assert "3 of 3, " in text
    assert "vectors/s" in text
    assert "done in 0 s" in text
