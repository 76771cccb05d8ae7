"""In place means constant extra space; out of place means the output and nothing else."""

import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak from /proc"
)

MEASURE = """
    import numpy as np
    import hoyer

    def kibibytes(field):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(field))

    def fill(shape, dtype):
        x = np.empty(shape, dtype)
        generator, flat = np.random.default_rng(0), x.reshape(-1)
        for start in range(0, flat.size, 2**16):
            piece = flat[start : start + 2**16]
            piece[...] = generator.random(piece.size, np.float32) - 0.25
        return x

    hoyer.project_(np.arange(9.0, dtype="{dtype}"), 0.5)  # the core is loaded, its threads started
    hoyer.solve(fill(2**20, "{dtype}"), 0.5)
    x = fill({shape}, "{dtype}")
    before = kibibytes("VmRSS")
    {call}
    print(kibibytes("VmHWM") - before)
    l2 = np.sqrt(np.square(x, dtype=np.float64).sum(-1)) if {check} else 1.0
    assert np.allclose(l2, 1.0, rtol=1e-5), l2
"""


def growth(run_python, shape, dtype, call, check=True):
    """By how many MiB the peak of resident memory rises above what was there before the call."""
    script = MEASURE.format(shape=shape, dtype=dtype, call=call, check=check)
    return int(run_python(script)) / 1024


def test_in_place_on_a_vector_of_256_mebibytes(run_python, largest):
    grown = growth(run_python, 2**26, "float32", "hoyer.project_(x, 0.9)", check=False)
    largest("memory, MiB: project_ on 2**26 float32", grown)
    assert grown <= 8


@pytest.mark.parametrize(
    ("shape", "dtype", "call"),
    [
        (2**23, "float64", "hoyer.project_(x, 0.9)"),
        (2**24, "float32", "hoyer.project_(x, 0.9, nonnegative=True)"),
        (2**23, "float64", "hoyer.project_(x, 0.9, solver='newton_sqr')"),
        (2**23, "float64", "hoyer.project_(x, 0.9, solver='newton_sqr', nonnegative=True)"),
        (2**24, "float32", "hoyer.project(x, 0.9, out=x)"),
        ((16, 2**19), "float64", "hoyer.project_(x, 0.9)"),
        ((2**17, 64), "float64", "hoyer.project_(x, 0.9)"),
        ((8, 2**10, 2**10), "float64", "hoyer.project_(x, 0.9, axis=(1, 2)); x = x.reshape(8, -1)"),
    ],
)
def test_in_place_needs_constant_space(run_python, shape, dtype, call):
    assert growth(run_python, shape, dtype, call) <= 8


@pytest.mark.parametrize("shape", [2**24, (2**18, 64)])
def test_out_of_place_makes_the_output_and_no_other_copy(run_python, shape):
    grown = growth(run_python, shape, "float32", "x = hoyer.project(x, 0.9)")
    assert 60 <= grown <= 64 + 8  # the lower bound shows that the measuring works


def test_a_strided_batch_is_buffered_one_vector_per_thread(run_python):
    grown = growth(run_python, (2**13, 2**10), "float64", "hoyer.project_(x, 0.9, axis=0)", False)
    assert grown <= 16
