"""The others: copies, the sorting algorithm and newton_sqr in plain NumPy, PyTorch, torchnmf."""

import ctypes
import importlib
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Projector = Callable[[Array, float, float], Array]


def optional(name: str) -> Any:
    """Import a module, or return None without it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = optional("torch")
torchnmf = optional("torchnmf.nmf")
if torch:
    torch.set_num_threads(1)


def sorting(x: Array, l1: float, l2: float) -> Array:
    """Project x >= 0 by sorting: the closed form on every prefix, of which the largest is alpha.

    Potluru et al. (2013) with plain float64 sums; `hoyer.paper.potluru2013` has the accurate form.
    """
    descending = np.sort(x)[::-1].astype(np.float64)
    first = int((l1 / l2) ** 2) + 1
    d = np.arange(first, x.size + 1, dtype=np.float64)
    norm1 = np.cumsum(descending)[first - 1 :]
    norm2_squared = np.cumsum(np.square(descending))[first - 1 :]
    variance = np.maximum(d * norm2_squared - np.square(norm1), 0)
    alpha = np.max((norm1 - l1 * np.sqrt(variance / (d * l2**2 - l1**2))) / d)
    return cut(x, float(alpha), l2)


def newton_sqr(x: Array, l1: float, l2: float) -> Array:
    """Project x >= 0 by Newton's method on l1^2 / l2^2: the paper's Algorithm 2 in plain NumPy."""
    target = (l1 / l2) ** 2
    low, high, alpha = 0.0, float(x.max()), 0.0
    # Invariant: the zero is in [low, high], or below 0; ends since the bracket shrinks.
    for _ in range(100):
        above = x[x > alpha]
        d = above.size
        norm1 = float(above.sum(dtype=np.float64))
        norm2_squared = float(np.square(above, dtype=np.float64).sum())
        if d > target:
            variance = max(d * norm2_squared - norm1**2, 0.0)
            exact = (norm1 - l1 * np.sqrt(variance / (d * l2**2 - l1**2))) / d
            if np.count_nonzero(x > exact) == d:
                alpha = float(exact)
                break
        cut1 = norm1 - d * alpha
        cut2_squared = norm2_squared - 2 * alpha * norm1 + d * alpha**2
        psi = cut1**2 / cut2_squared - target if d else -target
        low, high = (alpha, high) if psi > 0 else (low, alpha)
        slope = 2 * cut1 * (cut1**2 / cut2_squared - d) / cut2_squared if d else 0.0
        step = alpha - psi / slope if slope else low
        alpha = step if low < step < high else (low + high) / 2
    return cut(x, alpha, l2)


def cut(x: Array, alpha: float, l2: float) -> Array:
    """Return max(x - alpha, 0), brought to the norm."""
    value = np.maximum(x - alpha, 0)
    norm = np.sqrt(np.square(value).sum(dtype=np.float64))
    value *= float(l2 / norm)
    return value


def nmf_projection(x: Array, l1: float, l2: float) -> Array:
    """Project x >= 0 with torchnmf: Hoyer's alternating projections, as it ships them."""
    result: Array = torchnmf._proj_func(torch.from_numpy(x), l1, l2**2).numpy()
    return result


def softmax(x: Array, out: Array | None = None) -> Callable[[], Any]:
    """Return a call of torch.softmax on the rows of x."""
    tensor = torch.from_numpy(x)
    if out is None:
        return lambda: torch.softmax(tensor, -1)
    room = torch.from_numpy(out)
    return lambda: torch.softmax(tensor, -1, out=room)


STREAM = """
#include <emmintrin.h>
#include <stddef.h>
void stream(void *to, const void *from, size_t bytes) {
    __m128i *out = to;
    const __m128i *in = from;
    for (size_t i = 0; i < bytes / 16; i += 4)
        for (size_t j = i; j < i + 4; ++j)
            _mm_stream_si128(out + j, _mm_loadu_si128(in + j));
    _mm_sfence();
}
"""


def compiled(text: str, compiler: str, ending: str, *flags: str) -> ctypes.CDLL | None:
    """Compile a source and load it; None if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, f"peer.{ending}"), Path(folder, "peer.so")
        source.write_text(text, encoding="utf-8")
        command = [compiler, "-O3", *flags, "-shared", "-fPIC", "-o", str(library), str(source)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
        return ctypes.CDLL(str(library))


def condat() -> Callable[[Array, Array, float], None] | None:
    """Compile Condat's projection onto the simplex (condat.cpp); None without a compiler.

    It takes contiguous rows of float32 to project to, rows to project, and the sum of a result.
    """
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    text = Path(__file__).with_name("condat.cpp").read_text(encoding="utf-8")
    library = compiled(text, compiler, "cpp", "-march=native")
    if library is None:
        return None
    function, pointer, size = library.condat, ctypes.c_void_p, ctypes.c_ssize_t
    function.argtypes = [pointer, pointer, size, size, ctypes.c_double, pointer]
    function.restype = None
    room = np.empty(0, np.float32)

    def call(out: Array, x: Array, l1: float) -> None:
        nonlocal room
        n = x.shape[-1]
        room = room if room.size >= n else np.empty(n, np.float32)
        function(out.ctypes.data, x.ctypes.data, x.size // n, n, l1, room.ctypes.data)

    return call


def streaming_copy() -> Callable[[Array, Array], None] | None:
    """Compile a copy that writes around the caches; None without a compiler or on other machines.

    It copies whole cache lines to memory aligned to 16 bytes.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or platform.machine() != "x86_64":
        return None
    library = compiled(STREAM, compiler, "c")
    if library is None:
        return None
    function = library.stream
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    function.restype = None

    def copy(to: Array, origin: Array) -> None:
        function(to.ctypes.data, origin.ctypes.data, origin.nbytes)

    return copy
