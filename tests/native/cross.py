"""The core on machines that are not here: `make cross`.

Builds the stress test for every system that we promise something for, by the one compiler that
knows them all (zig, from the package index), and runs what can run here: programs for this machine,
for other processors under qemu-user, for Windows under wine, WebAssembly under wasmtime. For this
machine's own system it also builds the wheel and runs the tests on it. Prints the table of
docs/platforms.md, and fails where a cell is worse than it says there.
"""

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "platforms.md"
BUILD = ROOT / "build" / "cross"

# Those of CMakeLists.txt.
FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
CORES = {
    "baseline": [],
    "avx2": ["-march=x86_64_v3"],
    "avx512": ["-march=x86_64_v4", "-mprefer-vector-width=512"],
}
SHARED = ["groups", "machine", "openmp", "pool"]
ALONE = ["alone", "machine"]

COLUMNS = ("target", "compiled", "linked", "stress test", "tests of the wheel")
GOOD, BAD, NOT_RUN = "good", "failed", "not run"


@dataclass(frozen=True)
class Target:
    """A system to build for, as zig names it."""

    name: str

    @property
    def processor(self) -> str:
        return self.name.split("-")[0]

    @property
    def system(self) -> str:
        return self.name.split("-")[1]

    @property
    def cores(self) -> list[str]:
        return list(CORES) if self.processor == "x86_64" else ["baseline"]

    @property
    def flags(self) -> list[str]:
        flags = ["-target", self.name, *FLAGS]
        if self.processor == "x86_64":
            flags.append("-DHOYER_X86")
        if self.system == "wasi":
            flags.append("-fno-exceptions")
        return flags

    @property
    def program(self) -> Path:
        return BUILD / f"{self.name}-stress{'.wasm' if self.system == 'wasi' else '.exe'}"


TARGETS = [
    Target("x86_64-linux-gnu.2.28"),
    Target("x86_64-linux-musl"),
    Target("aarch64-linux-gnu.2.28"),
    Target("aarch64-linux-musl"),
    Target("x86_64-macos.11.0"),
    Target("aarch64-macos.11.0"),
    Target("x86_64-windows-gnu"),
    Target("aarch64-windows-gnu"),
    Target("wasm32-wasi"),
]


def called(*command: str | Path) -> bool:
    """Run a command, and say whether it went well; what it complains about goes to the screen."""
    done = subprocess.run([*map(str, command)], cwd=ROOT, stdout=sys.stderr, check=False)
    return done.returncode == 0


def zig(*arguments: str | Path) -> bool:
    """Run the compiler."""
    return called(sys.executable, "-m", "ziglang", "c++", *arguments)


def compilations(target: Target) -> Iterator[tuple[Path, list[str | Path]]]:
    """What to compile: the object, and the arguments that make it. The baseline's comes first."""

    def one(source: str, name: str, *more: str) -> tuple[Path, list[str | Path]]:
        made = BUILD / f"{target.name}-{name}.o"
        return made, [*target.flags, *WARNINGS, "-Inative", *more, "-c", source, "-o", made]

    for core in target.cores:
        yield one("native/run/kernels.cpp", core, f"-DHOYER_ISA={core}", *CORES[core])
    for name in ALONE if target.system == "wasi" else SHARED:
        yield one(f"native/run/{name}.cpp", name)
    yield one("tests/native/stress.cpp", "stress")


def runner(target: Target) -> list[str] | None:
    """The command that runs programs for a system: empty for this one, None if there is none."""
    here, system = platform.machine(), platform.system().lower()
    if target.system == "wasi":
        return [sys.executable, str(Path(__file__).with_name("wasi.py"))]
    if target.system == "windows" and target.processor == here and shutil.which("wine"):
        return ["wine"]
    if target.system != system:
        return None
    if target.processor == here:
        return []
    emulator = shutil.which(f"qemu-{target.processor}")
    return [emulator] if emulator else None


def environment(target: Target) -> dict[str, str]:
    """What wine and qemu are told: a Windows of its own, where Debian has foreign libraries."""
    libraries = f"/usr/{target.processor}-linux-gnu"
    mine = {"WINEPREFIX": str(BUILD / "wine"), "WINEDEBUG": "-all", "QEMU_LD_PREFIX": libraries}
    return mine | dict(os.environ)


def stress(target: Target, count: int) -> str:
    """Run the stress test and say how it went, and by whose help."""
    command = runner(target)
    if command is None:
        return NOT_RUN
    by = f" ({Path(command[-1]).stem.split('-')[0]})" if command else ""
    call = [*command, str(target.program), str(count)]
    done = subprocess.run(
        call, env=environment(target), text=True, capture_output=True, check=False, timeout=1800
    )
    cores = re.findall(r"^(\w+): good\r?$", done.stdout, re.MULTILINE)
    if done.returncode or not cores:
        print(done.stdout, done.stderr, file=sys.stderr)
        return BAD + by
    return GOOD + by


def is_here(target: Target) -> bool:
    """Whether it is this machine's own system, down to the C library."""
    library = "gnu" if platform.libc_ver()[0] == "glibc" else "musl"
    own = f"{platform.machine()}-{platform.system().lower()}-{library}"
    return target.name.partition(".")[0] == own


def wheel_tests(target: Target) -> str:
    """Build the wheel of this tree, install it, ask the tests that cibuildwheel asks.

    For this machine's own system: there is no Python for the others. By the compiler that pip
    finds, not by zig.
    """
    if not is_here(target):
        return NOT_RUN
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = shlex.split(settings["tool"]["cibuildwheel"]["test-command"])
    wheels, place = BUILD / "wheel", BUILD / "installed"
    shutil.rmtree(wheels, ignore_errors=True)
    venv.create(place, clear=True, with_pip=True)
    python, pip = place / "bin" / "python", ["-m", "pip", "--quiet"]
    good = (
        called(python, *pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT)
        and called(python, *pip, "install", f"{next(wheels.iterdir())}[test-arrays]")
        and called(python, *asked[1:])
    )
    return GOOD if good else BAD


def row(target: Target, count: int) -> tuple[str, ...]:
    """One line of the table."""
    jobs = list(compilations(target))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compiled = all(pool.map(lambda job: zig(*job[1]), jobs))
    linked = compiled and zig(
        "-target", target.name, *(made for made, _ in jobs), "-o", target.program
    )
    found = stress(target, count) if linked else NOT_RUN
    cells = (GOOD if compiled else BAD, GOOD if linked else BAD, found, wheel_tests(target))
    print("|", " | ".join((f"`{target.name}`", *cells)), "|", flush=True)
    return cells


def expected() -> dict[str, tuple[str, ...]]:
    """The table of the page."""
    lines = re.findall(r"^\| `([\w.-]+)` \|(.*)\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: tuple(cell.strip() for cell in cells.split("|")) for name, cells in lines}


def worse(target: Target, cells: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[str]:
    """What was promised and is not so. What cannot run here is no failure."""
    for column, found, promised in zip(COLUMNS[1:], cells, wanted, strict=True):
        if promised.startswith(GOOD) and found.startswith(BAD):
            yield f"{target.name}, {column}: {found}, where {PAGE.name} says {promised}"
        elif promised.startswith(GOOD) and found == NOT_RUN:
            print(f"{target.name}, {column}: not run, for want of the system, qemu-user or wine")


def main() -> int:
    """Build and run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="as zig names them; all if there are none")
    parser.add_argument("--count", type=int, default=10, help="of batches per thread and type")
    arguments = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    chosen = [t for t in TARGETS if not arguments.targets or t.name in arguments.targets]
    promised, failures = expected(), []
    print("|", " | ".join(COLUMNS), "|")
    print("|" + " --- |" * len(COLUMNS))
    for target in chosen:
        failures += worse(target, row(target, arguments.count), promised[target.name])
    print(*failures, sep="\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
