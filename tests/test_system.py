"""Systems that lack what Linux has: the command line on a Windows that `windows.py` pretends."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hoyer import system

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="files that are held are found in /proc"
)

HERE = Path(__file__).parent


@pytest.fixture
def windows(tmp_path):
    """Runs a script on the pretended Windows, in a folder of its own."""

    def run(script, *arguments):
        start = f"import sys; sys.path.insert(0, {str(HERE)!r}); import windows; windows.pretend()"
        return subprocess.run(
            [sys.executable, "-c", f"{start}\n{script}", *map(str, arguments)],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def hoyer(windows):
    """The command line there."""
    pytest.importorskip("typer")
    return lambda *arguments: windows("from hoyer.cli import main; main()", *arguments)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_of_every_kind(hoyer, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 10))
    np.save(tmp_path / "in.npy", x)
    np.savez(tmp_path / "in.npz", x=x)
    np.savetxt(tmp_path / "in.csv", x, delimiter=",")
    for kind in ("npy", "npz", "csv"):
        done = hoyer("project", f"in.{kind}", f"out.{kind}", "-s", "0.5")
        assert done.returncode == 0, done.stderr
        again = hoyer("project", f"in.{kind}", f"out.{kind}", "-s", "0.6", "--force")
        assert again.returncode == 0, again.stderr
    assert not [name for name in names(tmp_path) if name.endswith(".part")]
    rows = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["x"], rows, rtol=1e-12)


def test_nothing_is_left_of_a_run_that_failed(hoyer, tmp_path):
    x = np.ones((4, 10))
    x[2, 3] = np.nan
    np.save(tmp_path / "in.npy", x)
    done = hoyer("project", "in.npy", "out.npy", "-s", "0.5")
    assert done.returncode == 2
    assert "NaN" in done.stderr
    assert names(tmp_path) == ["in.npy"]


def test_a_folder_of_files(hoyer, tmp_path):
    pytest.importorskip("dask")
    (tmp_path / "in").mkdir()
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / "in" / name, np.random.default_rng(0).normal(size=(4, 10)))
    done = hoyer("project", "in", "out", "-s", "0.5")
    assert done.returncode == 0, done.stderr
    assert names(tmp_path) == ["in", "out"]
    assert names(tmp_path / "out") == ["a.npy", "b.npy"]
    again = hoyer("project", "in", "out", "-s", "0.6", "--force")
    assert again.returncode == 0, again.stderr
    assert names(tmp_path) == ["in", "out"]


def test_left_over_files_go_and_locked_ones_stay(windows, tmp_path):
    old = tmp_path / ".hoyer-000000000000.part"
    old.write_bytes(b"left over")
    os.utime(old, (0, 0))
    (tmp_path / ".hoyer-000000000001.part").write_bytes(b"just closed, to get its final name")
    script = """
from pathlib import Path
from hoyer.cli.replace import create_part, remove_left_over
path, file = create_part(Path())
remove_left_over(Path())
print(path.exists(), len(list(Path().iterdir())))
file.write(b"can be written")
file.flush()
print(path.read_bytes())
"""
    done = windows(script)
    assert done.stdout == "True 2\nb'can be written'\n", done.stderr


def test_one_run_at_a_time(windows):
    script = """
from pathlib import Path
from hoyer.paper.experiments.files import alone_with
path = Path("settings.json")
path.touch()
with alone_with(path):
    try:
        with alone_with(path):
            print("two at once")
    except ValueError as error:
        print(error)
with alone_with(path):
    print("again")
"""
    first, second = windows(script).stdout.splitlines()
    assert first.startswith("another run is writing to .")
    assert second == "again"


def test_memory_processors_and_signals(windows):
    script = """
from hoyer import system
print(system.spare_memory(), system.total_memory(), system.processors() >= 1)
print(*(signal.name for signal in system.ending_signals()))
"""
    assert windows(script).stdout == f"{2**34} {2**35} True\nSIGTERM\n"


def test_a_full_disk(windows):
    script = """
import shutil
from hoyer import system
shutil.disk_usage = lambda path: type("", (), {"free": 1000})
with open("file", "wb") as file:
    system.reserve(file, 900)
    print(file.seek(0, 2))
    try:
        system.reserve(file, 1001)
    except OSError as error:
        print(error.strerror)
"""
    assert windows(script).stdout == "900\nNo space left on device\n"


def test_the_numbers_of_this_machine():
    assert 2**20 < system.spare_memory() <= system.total_memory() < 2**50
    assert 1 <= system.processors() <= os.cpu_count()
