"""Extra space of a projection in place, seen from outside: the peak of a process of its own."""

import subprocess
import sys

import numpy as np

import hoyer
from hoyer.engines.core import BUFFER_BYTES
from hoyer.options import Solver
from hoyer.paper.experiments.settings import Settings, draw

__all__ = ["BUFFER_BYTES", "extra_bytes"]

_STATUS = "/proc/self/status"


def extra_bytes(settings: Settings, n: int, sparseness: float, solver: Solver) -> int | None:
    """Return by how much the resident memory grows while a vector is projected in place.

    Parameters
    ----------
    settings : Settings
        The kind of vector.
    n : int
        Its length.
    sparseness : float
        The target.
    solver : str
        As in `hoyer.project`.

    Returns
    -------
    int or None
        In bytes, to the page. None where the system does not tell (anywhere but on Linux).
    """
    if not sys.platform.startswith("linux"):
        return None
    arguments = (settings, n, sparseness, solver)
    script = f"from {__name__} import Settings, _measure; print(_measure(*{arguments!r}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise OSError(f"measuring the space for n = {n} failed: {done.stderr.strip()[-300:]}")
    return int(done.stdout)


def _measure(settings: Settings, n: int, sparseness: float, solver: Solver) -> int:
    hoyer.set_num_threads(1)
    # The core is loaded and its workspace has seen a long vector before the measurement begins.
    hoyer.project_(draw(settings, 2**16, np.random.default_rng(0)), sparseness, solver=solver)
    x = draw(settings, n, np.random.default_rng(settings.seed))
    before = _kibibytes("VmRSS")
    hoyer.project_(x, sparseness, solver=solver)
    return 1024 * max(_kibibytes("VmHWM") - before, 0)


def _kibibytes(name: str) -> int:
    with open(_STATUS, encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))
