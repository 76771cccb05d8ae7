"""The CUDA kernels compile for a Hopper GPU, on a machine without one; nothing is launched."""

import importlib

import pytest

import hoyer

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    triton.knobs.runtime.interpret, reason="the interpreter compiles nothing"
)

LENGTHS = {64: 64, 4096: 8, 100_000: 2, 1 << 21: 1}
"""One for each kind of kernel, forward or backward, with how many rows."""
MOST_SHARED = 227 << 10
"""Bytes of shared memory that a program on such a GPU can have."""


class Hopper:
    """As much of a driver as compiling takes."""

    def get_current_target(self):
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0


@pytest.fixture
def compiled(monkeypatch):
    """Kernels by their names, compiled for what is asked of CPU tensors; results mean nothing."""
    from hoyer.engines.triton import launch
    from hoyer.families.torch import engines, targets

    kernels = {}

    def compile_only(self, kernel, programs, *arguments, **options):
        # Tape.launch itself, up to the launch.
        found = kernel.warmup(*arguments, grid=(programs,), **{"enable_fp_fusion": True, **options})
        kernels[kernel.__name__] = found

    monkeypatch.setattr(engines, "KERNELS_WANTED", True)
    monkeypatch.setattr(engines, "core", None)
    monkeypatch.setattr(engines, "uses_kernels", lambda x: True)
    monkeypatch.setattr(launch, "REMEMBER", False)
    monkeypatch.setattr(launch.Tape, "launch", compile_only)
    monkeypatch.setattr(targets, "on_host", lambda x: False)
    monkeypatch.setattr(triton.runtime.driver, "_active", Hopper())
    return kernels


def both_ways(x, **options):
    value = hoyer.project(x.requires_grad_(), **options)
    value.backward(torch.ones_like(value))


def check(kernels, *names):
    assert set(names) <= kernels.keys()
    for kernel in kernels.values():
        assert "sm_90" in kernel.asm["ptx"]
        assert kernel.metadata.shared <= MOST_SHARED


@pytest.mark.parametrize("n", LENGTHS)
def test_kernels_of_every_length(compiled, n):
    both_ways(torch.ones(LENGTHS[n], n), sparseness=0.9)
    forward = "project_rows" if n < 1 << 13 else "project_long"
    backward = ("sum_parts", "combine_parts", "write_parts") if n > 1 << 20 else ("multiply_rows",)
    check(compiled, forward, "project_carefully", *backward)


def test_masks_have_a_kernel(compiled):
    both_ways(torch.ones(8, 256), sparseness=0.9, where=torch.ones(8, 256, dtype=torch.bool))
    check(compiled, "measure_masks")


def test_learned_targets_have_a_kernel(compiled):
    both_ways(torch.ones(8, 256), sparseness=torch.full((8,), 0.9).requires_grad_())
    check(compiled, "resolve_targets")


OPTIONS = {
    "nonnegative": {"sparseness": 0.9, "nonnegative": True},
    "keep": {"sparseness": 0.9, "l2": "keep"},
    "nearest": {"sparseness": 0.9, "l2": "nearest"},
    "increase": {"sparseness": 0.9, "only_increase": True},
    "l1": {"l1": 1.0},
    "ball": {"l1": 1.0, "at_most": True},
    "balls": {"l1": 2.0, "l2": 1.0, "at_most": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_every_set_and_type(compiled, n, options, dtype):
    both_ways(torch.ones(LENGTHS[n], n, dtype=dtype), **options)
    check(compiled)


def test_kernels_say_whether_operations_are_fused(monkeypatch):
    """A later version of Triton decides otherwise, and warns of it until then."""
    from hoyer.engines.triton import launch

    asked = {}

    class Kernel:
        def __getitem__(self, grid):
            return lambda *arguments, **options: asked.update(options)

    launch.Tape().launch(Kernel(), 1, num_warps=4)
    assert asked == {"num_warps": 4, "enable_fp_fusion": True}
