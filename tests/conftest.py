"""What all tests share: fixtures, hypothesis' profile, the summary of the largest errors seen."""

import os
import signal
import subprocess
import sys
import textwrap
import zlib
from pathlib import Path

import numpy as np
import pytest
from command_line import contents
from engines import ENGINES
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")
PAPER_SOLVERS = SOLVERS[1:]
LARGEST = "largest "


def pytest_configure(config):
    words = "engines(*names, slow=[]): the engines that a test is for, and those for test-all"
    config.addinivalue_line("markers", words)


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", list(engines_for(metafunc.definition)), indirect=True)


@pytest.hookimpl(tryfirst=True)  # before those that are marked slow are left out
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if can_have(getattr(item, "callspec", None))]
    for item in items:
        if not is_asked_daily(item):
            item.add_marker(pytest.mark.slow)


def is_asked_daily(item):
    """Whether a test belongs to `make test` for all that its engine says; the same ones always."""
    case = getattr(item, "callspec", None)
    every = getattr(case.params.get("engine"), "asked_every", 1) if case else 1
    return zlib.crc32(item.nodeid.partition("tests/")[2].encode()) % every == 0


def can_have(case):
    """Whether the case's engine, if there is one, has the case's dtype and solver."""
    params = case.params if case else {}
    engine, dtype = params.get("engine"), params.get("dtype")
    if not hasattr(engine, "solvers"):
        return True  # no engine, or none that runs here: pytest says so
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None)
    has_type = name is None or name in engine.dtypes
    return has_type and params.get("solver", "auto") in engine.solvers


def engines_for(test):
    """Those that this process can run and the test is for, all if it does not say."""
    marker = test.get_closest_marker("engines")
    slow = marker.kwargs.get("slow", ()) if marker else ()
    for name, engine in ENGINES.items():
        if marker is None or name in (*marker.args, *slow):
            marks = [*engine.marks, pytest.mark.slow] if name in slow else engine.marks
            yield pytest.param(engine, id=name, marks=marks)


@pytest.fixture
def anew(monkeypatch):
    """Kernels are not launched from a tape: what a test changes about them is seen."""
    from hoyer.engines.triton import launch

    monkeypatch.setattr(launch, "REMEMBER", False)


@pytest.fixture
def engine(request, monkeypatch):
    """Every engine, on every family of arrays (tests/engines.py)."""
    request.param.use(monkeypatch)
    return request.param


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell has background jobs ignore Ctrl-C, and so would every process that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    """A generator that starts at the same place in every test."""
    return np.random.default_rng(20260)


@pytest.fixture
def largest(record_property):
    """Report a number whose maximum over all tests is printed at the end of the run."""

    def report(name, value):
        record_property(LARGEST + name, float(value))

    return report


@pytest.fixture
def run_python():
    """Run a script in a fresh interpreter; return what it printed, fail with what it said.

    Without OMP_NUM_THREADS, unless given: Dask sets it in a process that starts a cluster.
    """

    def run(script, timeout=120, **environment):
        inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            capture_output=True,
            check=False,
            text=True,
            timeout=timeout,
            env={**inherited, **environment},
            cwd=Path(__file__).parent,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def torch_seed():
    """PyTorch's generator starts at the same place, too."""
    pytest.importorskip("torch").manual_seed(0)


# ---- the command line ----


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run the command line in this process; return exit code, stdout, stderr."""

    def run_command(*arguments):
        from hoyer import cli

        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture
def limit(request, monkeypatch):
    """How many entries a block of the command line may have."""
    monkeypatch.setattr("hoyer.cli.blocks.BLOCK", request.param)
    return request.param


@pytest.fixture
def refused(run, folder):
    """Run a command that must fail with one line and change no file; return the line."""

    def refused_command(*arguments):
        before = contents(folder)
        code, out, err = run(*arguments)
        assert code == 2, (out, err)
        assert out == ""
        assert err.startswith("hoyer: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        assert contents(folder) == before
        return err.removeprefix("hoyer: ").strip()

    return refused_command


@pytest.fixture
def matrix(folder, rng):
    """A matrix that also lies in the file in.npy."""
    x = rng.normal(size=(50, 20))
    np.save("in.npy", x)
    return x


def pytest_terminal_summary(terminalreporter):
    # Reports travel from xdist's workers to the controller with their properties.
    seen: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name.startswith(LARGEST):
                    seen[name] = max(value, seen.get(name, value))
    if seen:
        terminalreporter.section("largest seen")
        for name in sorted(seen):
            terminalreporter.write_line(f"{name.removeprefix(LARGEST):58} {seen[name]:10.4g}")
