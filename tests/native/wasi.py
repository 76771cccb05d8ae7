"""Runs a program for WebAssembly: `python wasi.py PROGRAM ARGUMENTS`."""

import sys

import wasmtime


def main(program: str, *arguments: str) -> int:
    """Return the program's exit status."""
    engine = wasmtime.Engine()
    linker, store = wasmtime.Linker(engine), wasmtime.Store(engine)
    linker.define_wasi()
    system = wasmtime.WasiConfig()
    system.argv = [program, *arguments]
    system.inherit_stdout()
    system.inherit_stderr()
    store.set_wasi(system)
    module = wasmtime.Module.from_file(engine, program)
    start = linker.instantiate(store, module).exports(store)["_start"]
    try:
        start(store)
    except wasmtime.ExitTrap as ended:
        return ended.code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
