"""The scripts of the guide to several machines run as they stand, in processes of their own."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "several_machines.md"
SCRIPTS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def printed(tmp_path, framework, words, *start):
    """What the script that has these words prints."""
    if find_spec(framework) is None:
        pytest.skip(f"without {framework}")
    (script,) = (text for text in SCRIPTS if words in text)
    path = tmp_path / "script.py"
    path.write_text(script, encoding="utf-8")
    settings = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *start, str(path)],
        check=False,
        capture_output=True,
        text=True,
        env=settings,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_training_under_fsdp(tmp_path):
    report = printed(tmp_path, "torch", "fully_shard", *TORCHRUN)
    assert re.search(r"^0\.weight +128 x 64 +0\.\d+ ", report, re.MULTILINE)
    assert re.search(r"^2\.weight +10 x 128 +0\.800 +0\.800 +0\.800 ", report, re.MULTILINE)


@pytest.mark.slow
def test_a_vector_on_two_ranks(tmp_path):
    said = printed(tmp_path, "torch", "distribute_tensor", *TORCHRUN).splitlines()
    assert len(said) == 2
    for line in said:
        placements, sparseness = line.rsplit(" ", 1)
        assert placements == "(Shard(dim=0),) (Shard(dim=0),)"
        assert float(sparseness) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.slow
def test_vectors_on_two_devices_of_jax(tmp_path):
    said = printed(tmp_path, "jax", "jax_num_cpu_devices")
    assert "PartitionSpec(None, 'model')" in said or "P(None, 'model')" in said
    assert said.rstrip().endswith("[0.9 0.9 0.9]")
