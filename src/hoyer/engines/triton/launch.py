"""Launches written down on a tape, so that the same again takes new addresses and nothing else.

Triton looks at every argument of a launch, to find what was compiled for such arguments; that takes
40 microseconds of the host's time, for a kernel that takes two. So what a computation launches, and
the memory it needs meanwhile, is written down the first time. Whoever asks for the same again (the
key under which a program is kept has to say everything but addresses: shapes, strides, types, the
device, and addresses modulo 16, for which kernels are compiled as well) has the driver launch what
was compiled then. Where the driver does not say how a kernel's parameters lie in memory, and under
Triton's interpreter, every launch is Triton's own.

A frame, the memory that the driver reads a launch from, is used by one thread at a time, and so is
the scratch memory kept for a stream: whoever takes one takes it away until the launch is made.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

Tensor = torch.Tensor

_KINDS = {
    "i1": "?",
    "u1": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "q",
    "u64": "Q",
    "fp16": "e",
    "fp32": "f",
    "fp64": "d",
}
"""Types of parameters, as Triton calls them and as `struct` does; pointers apart."""

_BEFORE = 2
"""Slots 0 and 1 are scratch memory and zeroed scratch memory; the given tensors follow."""
_ALIGNED = 16
"""What Triton looks for in addresses."""

_SCRATCH = 1 << 16
"""Bytes of scratch memory that stay with a stream: small calls need no more."""
_MOST = 256
"""Keys of one kind that are remembered."""


def alignment(addresses: list[int]) -> Any:
    """Return what a kernel's code depends on in addresses."""
    together = 0
    for address in addresses:
        together |= address
    return together % _ALIGNED and tuple(address % _ALIGNED for address in addresses)


REMEMBER = True
"""Whether programs are kept and run at all. (Tests that cut vectors otherwise turn it off.)"""


class Programs(dict[Any, "Program | None"]):
    """Programs by their keys, the oldest of which are forgotten; None for what was seen once.

    What does not come back, such as batches that all differ in size, is not worth a program.
    """

    def run(self, key: Any, addresses: list[int], device: int) -> bool:
        """Run the program of this key with these addresses; False if there is none that can."""
        program = self.get(key)
        return program is not None and REMEMBER and program.run(addresses, device)

    def keep(self, key: Any, tape: "Tape") -> None:
        """Remember what a tape has, if it can be run again."""
        if not REMEMBER or _driver() is None:
            return
        seen = key in self
        if not seen and len(self) >= _MOST:
            self.pop(next(iter(self)), None)
        self[key] = tape.program() if seen else None


class _Written(NamedTuple):
    """One launch on a tape."""

    compiled: Any
    programs: int
    arguments: tuple[Any, ...]


class Tape:
    """Launches and memory of a computation on `given`, done and written down one by one."""

    def __init__(self, *given: Tensor | None) -> None:
        self._given = given
        self._launches: list[_Written] = []
        self._memory: list[tuple[Tensor, bool]] = []

    def launch(self, kernel: Any, programs: int, *arguments: Any, **options: Any) -> None:
        """Launch some programs of a kernel."""
        # Triton's default changes with version 3.10; the measured kernels have fused operations.
        options.setdefault("enable_fp_fusion", True)
        compiled = kernel[(programs,)](*arguments, **options)
        self._launches.append(_Written(compiled, programs, arguments))

    def empty(self, like: Tensor, size: Any, dtype: torch.dtype) -> Tensor:
        """Return memory that is needed until the last launch."""
        tensor = like.new_empty(size, dtype=dtype)
        self._memory.append((tensor, False))
        return tensor

    def zeros(self, like: Tensor, size: Any, dtype: torch.dtype) -> Tensor:
        """Return memory full of zeros, which is needed until the last launch."""
        tensor = like.new_zeros(size, dtype=dtype)
        self._memory.append((tensor, True))
        return tensor

    def program(self) -> "Program | None":
        """Return what was done in a form that can be done again; None if the driver cannot."""
        places, sizes = {}, [0, 0]
        for tensor, zero in self._memory:
            begin = tensor.data_ptr()
            places[begin, begin + tensor.nbytes] = int(zero), sizes[zero]
            sizes[zero] += -(-tensor.nbytes // _ALIGNED) * _ALIGNED
        launches = []
        for written in self._launches:
            launch = self._again(written, places)
            if launch is None:
                return None
            launches.append(launch)
        return Program(launches, *sizes)

    def _again(self, written: _Written, places: dict[Any, Any]) -> "_Launch | None":
        """Return a launch for other addresses, if all of its parameters are understood."""
        compiled, programs, arguments = written
        metadata = getattr(compiled, "metadata", None)
        if metadata is None or _has_more(metadata):
            return None
        layout = _parameters(compiled.function)
        values = list(_flat(arguments, tuple(compiled.src.signature.values())))
        # Behind its own parameters a kernel has addresses of memory that these kernels do not ask
        # for.
        if len(values) > len(layout) or any(size != 8 for _, size in layout[len(values) :]):
            return None
        numbers, addresses = [], []
        for (value, kind), (place, size) in zip(values, layout, strict=False):
            if isinstance(value, Tensor):
                origin = self._origin(value, places)
                if origin is None or size != 8 or place % 8:
                    return None
                addresses.append((place, *origin))
            elif _KINDS.get(kind) is None or struct.calcsize(_KINDS[kind]) != size:
                return None
            else:
                numbers.append((place, _KINDS[kind], value))
        total = layout[-1][0] + layout[-1][1]
        return _Launch(compiled, programs, numbers, addresses, total)

    def _origin(self, tensor: Tensor, places: dict[Any, Any]) -> tuple[int, int] | None:
        """Return which of the given tensors this is, or where in which memory it begins."""
        for i, given in enumerate(self._given):
            if given is tensor:
                return _BEFORE + i, 0
        at = tensor.data_ptr()
        for (begin, end), (slot, offset) in places.items():
            if begin <= at < end:
                return slot, offset + at - begin
        return None


def _has_more(metadata: Any) -> bool:
    """Whether a launch takes more than a grid, threads and parameters."""
    wanted = ("global_scratch_size", "profile_scratch_size", "launch_pdl", "instrumentation_mode")
    return metadata.num_ctas != 1 or any(getattr(metadata, name, 0) for name in wanted)


def _flat(values: Sequence[Any], kinds: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """Yield the values that are parameters of a kernel, with their types: constants are not."""
    for value, kind in zip(values, kinds, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(value, kind)
        elif kind != "constexpr":
            yield value, kind


# ---- the driver ----


@cache
def _driver() -> Any:
    """Return CUDA's driver, which PyTorch has loaded; None where it lacks what is needed."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        launch, ask = driver.cuLaunchKernelEx, driver.cuFuncGetParamInfo
        allocate, exchange = driver.cuMemAlloc_v2, driver.cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
    launch.argtypes = [ctypes.c_void_p] * 4
    ask.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    exchange.argtypes = [ctypes.c_void_p]
    return driver


def _parameters(function: int) -> list[tuple[int, int]]:
    """Return where each parameter of a kernel lies, and its size; nothing if that is not known."""
    driver = _driver()
    layout: list[tuple[int, int]] = []
    place, size = ctypes.c_size_t(), ctypes.c_size_t()
    while driver and not driver.cuFuncGetParamInfo(
        function, len(layout), ctypes.addressof(place), ctypes.addressof(size)
    ):
        layout.append((place.value, size.value))
    return layout


# A frame: the driver's CUlaunchConfig, one CUlaunchAttribute, the list by which parameters are
# handed over, their size, and the parameters.
_CONFIG = struct.Struct("=7I4x2QI4x")
_STREAM = 32
_ATTRIBUTE_AT = 64
_COOPERATIVE = struct.pack("=I4xI60x", 2, 1)
_EXTRA_AT = _ATTRIBUTE_AT + len(_COOPERATIVE)
_EXTRA = struct.Struct("=5Q")
_BUFFER_POINTER, _BUFFER_SIZE = 1, 2
_SIZE_AT = _EXTRA_AT + _EXTRA.size
_PARAMETERS_AT = _SIZE_AT + 8


class _Frame(NamedTuple):
    """Memory that the driver reads a launch from."""

    words: Any
    """All of it, as numbers of eight bytes."""
    config: int
    extra: int
    memory: Any


class _Launch:
    """A compiled kernel, and all of its launch but addresses and stream."""

    def __init__(
        self,
        compiled: Any,
        programs: int,
        numbers: list[tuple[int, str, Any]],
        addresses: list[tuple[int, int, int]],
        size: int,
    ) -> None:
        self._compiled = compiled  # Triton unloads a kernel with the last reference to it
        self._function = compiled.function
        self._places = tuple(
            ((_PARAMETERS_AT + place) // 8, slot, offset) for place, slot, offset in addresses
        )
        metadata = compiled.metadata
        cooperative = bool(metadata.launch_cooperative_grid)
        template = bytearray(-(-(_PARAMETERS_AT + size) // 8) * 8)
        threads = 32 * metadata.num_warps
        _CONFIG.pack_into(
            template, 0, programs, 1, 1, threads, 1, 1, metadata.shared, 0, 0, cooperative
        )
        template[_ATTRIBUTE_AT : _ATTRIBUTE_AT + len(_COOPERATIVE)] = _COOPERATIVE
        struct.pack_into("=Q", template, _SIZE_AT, size)
        for place, kind, value in numbers:
            struct.pack_into("=" + kind, template, _PARAMETERS_AT + place, value)
        self._template = bytes(template)
        self._frames: list[_Frame] = []
        self._start = _driver().cuLaunchKernelEx

    def start(self, addresses: list[int], stream: int) -> int:
        """Launch with these addresses; return the driver's error, 0 if there is none."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        words, config, extra, _ = frame
        for place, slot, offset in self._places:
            words[place] = addresses[slot] + offset
        words[_STREAM // 8] = stream
        error: int = self._start(config, self._function, None, extra)
        self._frames.append(frame)
        return error

    def _new_frame(self) -> _Frame:
        memory = (ctypes.c_uint64 * (len(self._template) // 8)).from_buffer_copy(self._template)
        begin = ctypes.addressof(memory)
        words: Any = memoryview(memory).cast("B").cast("Q")
        words[_STREAM // 8 + 1] = begin + _ATTRIBUTE_AT
        extra = _BUFFER_POINTER, begin + _PARAMETERS_AT, _BUFFER_SIZE, begin + _SIZE_AT, 0
        for i, word in enumerate(extra):
            words[_EXTRA_AT // 8 + i] = word
        return _Frame(words, begin, begin + _EXTRA_AT, memory)


# (PyTorch without CUDA does not have them.)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)

_free_scratch: dict[tuple[int, int], list[int]] = {}
"""Scratch memory that nobody uses, by device and stream: as much as threads used at once. What is
launched next on a stream comes after what uses it now; captured graphs, which run at any time, have
their own. It comes from the driver: PyTorch wants back what it lends while a graph is prepared."""
_RELAXED = 2


def _new_scratch() -> int:
    """Return the address of memory that stays; 0 if there is none."""
    driver, address, mode = _driver(), ctypes.c_uint64(), ctypes.c_int(_RELAXED)
    # Another thread may be capturing a graph, which this has nothing to do with.
    driver.cuThreadExchangeStreamCaptureMode(ctypes.addressof(mode))
    error = driver.cuMemAlloc_v2(ctypes.addressof(address), _SCRATCH)
    driver.cuThreadExchangeStreamCaptureMode(ctypes.addressof(mode))
    return 0 if error else address.value


class Program:
    """Launches one after the other, and the memory that they share."""

    def __init__(self, launches: list[_Launch], scratch: int, zeros: int) -> None:
        self._launches, self._scratch, self._zeros = launches, scratch, zeros

    def run(self, addresses: list[int], device: int) -> bool:
        """Launch with the addresses of what was given; False, with nothing done, if that fails."""
        if _current_device() != device:
            with torch.cuda.device(device):
                return self.run(addresses, device)
        stream, free = _current_stream(device), None
        slots = [0, 0, *addresses]
        if self._scratch:
            if self._scratch <= _SCRATCH and not _capturing():
                free = _free_scratch.setdefault((device, stream), [])
                try:
                    slots[0] = free.pop()
                except IndexError:
                    slots[0] = _new_scratch()
            if not slots[0]:
                free = None
                scratch = torch.empty(self._scratch, dtype=torch.uint8, device=device)
                slots[0] = scratch.data_ptr()
        if self._zeros:
            zeros = torch.zeros(self._zeros, dtype=torch.uint8, device=device)
            slots[1] = zeros.data_ptr()
        begun = False
        try:
            for launch in self._launches:
                error = launch.start(slots, stream)
                if error:
                    if begun:
                        raise RuntimeError(f"CUDA's driver did not launch a kernel: error {error}")
                    return False
                begun = True
        finally:
            if free is not None:
                free.append(slots[0])
        return True
