"""Size and speed of the explorer's core: `python tests/native/explorer.py FILE.wasm`.

The file is the one of `make docs` (native/binding/wasm.cpp); wasmtime runs it, from `make cross`.
"""

import gzip
import sys
import time
from pathlib import Path

import numpy as np
import wasmtime

COUNT = 2**20
RECORD = 64  # bytes; native/jobs.hpp has eight doubles


class Core:
    """What docs/_static/explorer/core.js is in a browser."""

    def __init__(self, program: bytes) -> None:
        engine = wasmtime.Engine()
        linker, self.store = wasmtime.Linker(engine), wasmtime.Store(engine)
        linker.define_wasi()
        self.store.set_wasi(wasmtime.WasiConfig())
        module = wasmtime.Module(engine, program)
        self.exports = linker.instantiate(self.store, module).exports(self.store)
        self.call("_initialize")

    def call(self, name: str, *arguments: float) -> int:
        """Call an exported function."""
        return self.exports[name](self.store, *arguments)

    def place(self, values: np.ndarray) -> int:
        """Copy an array to the module's memory, and return where it is."""
        where = self.call("allocate", values.nbytes)
        self.exports["memory"].write(self.store, values.tobytes(), where)
        return where

    def seconds(self, values: np.ndarray, sparseness: float) -> float:
        """Least time of projecting a vector onto a sparseness, its l2 norm kept."""
        x, out = self.place(values), self.place(values)
        record = self.call("allocate", RECORD)
        norm = float(np.linalg.norm(values))
        # No l1; the rule that takes l2 as it is; signed; neither of the inequalities.
        options = (sparseness, float("nan"), norm, 0, 0, 0, 0)
        times = []
        for _ in range(51):
            start = time.perf_counter()
            good = self.call("project", x, out, len(values), *options, record)
            times.append(time.perf_counter() - start)
            if not good:
                raise SystemExit("the core refused the vector")
        memory = self.exports["memory"].read(self.store, out, out + values.nbytes)
        found = np.frombuffer(memory)
        l1, root = np.abs(found).sum() / np.linalg.norm(found), len(values) ** 0.5
        if abs((root - l1) / (root - 1) - sparseness) > 1e-9:
            raise SystemExit("the result has another sparseness")
        return min(times)


def main(path: str) -> None:
    """Print the sizes, and the times for a few sparsenesses."""
    program = Path(path).read_bytes()
    packed = len(gzip.compress(program, 9, mtime=0))
    print(f"{len(program) / 1e3:.0f} kB, {packed / 1e3:.0f} kB compressed")
    core = Core(program)
    x = np.random.default_rng(0).normal(size=COUNT)
    for sparseness in (0.1, 0.5, 0.9):
        print(f"2^20 doubles, sparseness {sparseness}: {core.seconds(x, sparseness) * 1e3:.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1])
