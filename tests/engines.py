"""Who computes, and on whose arrays: what the same tests run on, one after the other.

An `Engine` has the functions of `hoyer` for NumPy arrays: it hands them over as arrays of its
family, lets its engine compute, and returns NumPy arrays. The fixture `engine` goes through those
that this process can run: under Triton's interpreter, or on a GPU, the kernels, which are marked
`gpu`. ``@pytest.mark.engines(...)`` names the ones that a test is for.
"""

import functools
import importlib.util
import inspect
import os
import zlib

import hypothesis
import numpy as np
import pytest

import hoyer
import hoyer.layout

# JAX reads it when it is imported: without, there would be no float64 to test.
os.environ.setdefault("JAX_ENABLE_X64", "1")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BOUND = 32
"""What is promised of every engine: errors of values, norms and derivatives, in eps."""
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
SMALLEST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


class Bfloat16(np.ndarray):
    """Numbers of float32 that stand for bfloat16, which NumPy does not have."""


def typed(x, dtype):
    """Return numbers rounded to a type."""
    x = np.asarray(x)
    if dtype != "bfloat16":
        return x.astype(dtype)
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    nearest = bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))
    return (nearest & 0xFFFF0000).astype(np.uint32).view(np.float32).view(Bfloat16)


class Engine:
    """The core on NumPy arrays; and what others have in common with it."""

    name = "numpy/core"
    dtypes = ("float64", "float32", "float16")
    solvers = ("auto", "bisection", "newton", "newton_sqr", "halley")
    is_fast = True
    """Whether a call takes microseconds: others are asked less often."""
    is_costly = False
    """Whether a call may take a tenth of a second, as interpreted ones do."""
    examples = 60
    """How many made up by hypothesis it is asked for."""
    asked_every = 1
    """Of so many tests `make test` has one for it, chosen by its name; `make test-all` has all."""
    has_two_ways = True
    """Whether `project` and `solve` are not the same inside."""
    arrays_change = True
    """Whether arrays of the family can be written to."""
    most_evaluations = 64
    keeps_every_beta = True
    """Whether derivatives are right where beta is no normal float64."""
    knows_small_spreads = True
    """Whether derivatives are right where entries are nearly equal, though no sparseness says."""
    revives = ()
    """Categories of the collection where accuracy may give a zero an eps."""
    flushes_subnormals = False
    """Whether numbers below the normal ones are lost before anybody sees them."""
    rounds_halves_once = True
    """Whether float16 is correctly rounded, to the last tie."""
    is_lazy = False
    """Whether results, and errors that depend on numbers, come when `take` asks for them."""

    def __repr__(self):
        return self.name

    @property
    def marks(self):
        return ()

    def some(self, count):
        """Return how many of so many cases there is time for."""
        return count if self.is_fast else max(1, count * self.examples // 200)

    def use(self, monkeypatch):
        """Let the library use this engine until the test ends."""

    def give(self, array):
        """Return a copy of a NumPy array in this family; other things as they are."""
        return array.copy() if isinstance(array, np.ndarray) else array

    def take(self, array):
        """Return an array of this family, or several, as NumPy's."""
        return array

    def project(self, x, *target, **options):
        return self._asked(hoyer.project, x, *target, **options)

    def solve(self, x, *target, **options):
        return Found(self, self._native(hoyer.solve, x, *target, **options))

    def sparseness(self, x, **options):
        return self._asked(hoyer.sparseness, x, **options)

    def project_together(self, arrays, *target, **options):
        given = [self.give(array) for array in arrays]
        return [self.take(result) for result in hoyer.project_together(given, *target, **options)]

    def gradient(self, x, y, **options):
        """Return the transposed Jacobian times y as a training loop gets it."""
        return self.solve(x, **options).vjp(y)

    def _asked(self, function, *arguments, **options):
        return self.take(self._native(function, *arguments, **options))

    def _native(self, function, *arguments, **options):
        options = {name: self.give(option) for name, option in options.items()}
        return function(*map(self.give, map(as_array, arguments)), **options)


class Found:
    """A `Projection` with NumPy arrays."""

    def __init__(self, engine, native):
        self.engine, self.native = engine, native

    def __getattr__(self, name):
        found = getattr(self.native, name)
        if not callable(found):
            return self.engine.take(found)
        return lambda *y: self.engine.take(found(*map(self.engine.give, map(as_array, y))))


class FoundInPieces(Found):
    """One without dense Jacobians: they are made of products here, to be compared."""

    def __init__(self, engine, native, axis):
        super().__init__(engine, native)
        self.axis = axis

    def jacobian(self):
        shape, dtype = self.native.value.shape, self.native.value.dtype
        axes = hoyer.layout.vector_axes(self.axis, len(shape))
        layout = hoyer.layout.Layout(shape, axes)
        rows = []
        for i in range(layout.length):
            units = np.zeros((*layout.batch, layout.length), dtype)
            units[..., i] = 1
            rows.append(layout.rows(self.vjp(layout.back(units, np)), np))
        return np.stack(rows, axis=-2)


def as_array(x):
    """Return lists as arrays: a list is NumPy's, whoever is to compute."""
    return np.array(x) if isinstance(x, list) else x


class Tensors(Engine):
    """Tensors on the CPU."""

    device = "cpu"
    dtypes = (*Engine.dtypes, "bfloat16")

    def give(self, array):
        import torch

        if not isinstance(array, np.ndarray | np.generic):
            return array
        # Negative strides are more than a tensor can have.
        tensor = torch.from_numpy(np.array(array, order="C")).to(self.device)
        return tensor.bfloat16() if isinstance(array, Bfloat16) else tensor

    def take(self, array):
        import torch

        if isinstance(array, tuple):
            return tuple(map(self.take, array))
        array = array.detach().cpu()
        if array.dtype == torch.bfloat16:
            return array.float().numpy().view(Bfloat16)[()]
        return array.numpy()[()]

    def gradient(self, x, y, **options):
        import torch

        x = self.give(x).requires_grad_()
        value = self._native(hoyer.project, x, **options)
        return self.take(torch.autograd.grad(value, x, self.give(y))[0])


class CoreTensors(Tensors):
    """By the core."""

    name = "torch/core"
    examples = 10
    keeps_every_beta = False


class PlainTensors(Tensors):
    """By plain tensor operations, as on devices without kernels."""

    name = "torch/arrays"
    solvers = ("auto",)
    is_fast = False
    examples = 20
    has_two_ways = False
    keeps_every_beta = False
    revives = ("near-ties", "end of range")

    def use(self, monkeypatch):
        from hoyer.families.torch import engines

        monkeypatch.setattr(engines, "core", None)


class Kernels(PlainTensors):
    """By the CUDA kernels; on the CPU by Triton's interpreter."""

    name = "torch/triton"
    is_costly = True
    examples = 3
    has_two_ways = True
    most_evaluations = 150
    rounds_halves_once = False
    knows_small_spreads = False

    @property
    def device(self):
        return "cpu" if INTERPRETED else "cuda"

    @property
    def marks(self):
        return (
            pytest.mark.gpu,
            pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),
        )

    def use(self, monkeypatch):
        from hoyer.families.torch import engines

        monkeypatch.setattr(engines, "KERNELS_WANTED", True)
        if INTERPRETED:
            import interpreter

            interpreter.mend()
            super().use(monkeypatch)
            monkeypatch.setattr(engines, "uses_kernels", lambda x: True)


class StrictArrays(Engine):
    """Arrays that have what the Array API standard promises, and nothing else."""

    name = "strict/arrays"
    solvers = ("auto",)
    dtypes = ("float64", "float32")
    is_fast = False
    examples = 8
    has_two_ways = False
    keeps_every_beta = False
    revives = PlainTensors.revives

    @property
    def marks(self):
        # NumPy, which is below, warns of what devices do in silence.
        return (pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),)

    def use(self, monkeypatch):
        from hoyer import families
        from hoyer.engines.arrays.namespace import KINDS

        monkeypatch.setitem(KINDS, "array_api_strict", strict_namespace())
        monkeypatch.setitem(families.FAMILIES, "array_api_strict", "array_api")
        by_type = functools.cache(families._by_type.__wrapped__)
        monkeypatch.setattr(families, "_by_type", by_type)

    def give(self, array):
        import array_api_strict as strict

        if not isinstance(array, np.ndarray | np.generic):
            return array
        return strict.asarray(array, copy=True)

    def take(self, array):
        return tuple(map(self.take, array)) if isinstance(array, tuple) else np.asarray(array)[()]


class CoreJax(Engine):
    """JAX arrays on the CPU: by the core, which XLA's programs call."""

    name = "jax/core"
    dtypes = (*Engine.dtypes, "bfloat16")
    is_fast = False
    is_costly = True
    examples = 4
    asked_every = 8  # XLA compiles for every new shape
    arrays_change = False
    keeps_every_beta = False

    def give(self, array):
        import jax.numpy as jnp

        if not isinstance(array, np.ndarray | np.generic):
            return array
        kind = jnp.bfloat16 if isinstance(array, Bfloat16) else None
        return jnp.array(np.asarray(array), dtype=kind)

    def take(self, array):
        if isinstance(array, tuple):
            return tuple(map(self.take, array))
        array = np.asarray(array)
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32).view(Bfloat16)[()]
        return array[()]

    def gradient(self, x, y, **options):
        import jax

        options = {name: self.give(option) for name, option in options.items()}
        pull = jax.vjp(lambda x: hoyer.project(x, **options), self.give(x))[1]
        return self.take(pull(self.give(y))[0])


class PlainJax(CoreJax):
    """By plain operations, as on devices that the core does not know."""

    name = "jax/arrays"
    solvers = ("auto",)
    examples = 2
    asked_every = 60
    flushes_subnormals = True  # as XLA's programs do on the CPU
    has_two_ways = False
    revives = PlainTensors.revives

    def use(self, monkeypatch):
        from hoyer.families.jax import engine

        monkeypatch.setattr(engine, "core", None)


class Chunks(Engine):
    """Dask arrays in chunks: vectors along the last axis are whole, others are brought together."""

    name = "dask/chunks"
    is_fast = False
    is_costly = True
    is_lazy = True
    examples = 6
    asked_every = 8
    arrays_change = False

    def give(self, array):
        import dask.array as da

        if not isinstance(array, np.ndarray):
            return array
        return da.from_array(array.copy(), chunks=self.sizes(array.shape))

    def sizes(self, shape):
        """Return chunks: two along the first axis, and along that of single vectors."""
        return tuple(halves(n) if i == 0 else n for i, n in enumerate(shape))

    def take(self, array):
        import dask

        if isinstance(array, tuple):
            return tuple(map(self.take, array))
        return np.asarray(dask.compute(array, scheduler="sync")[0])[()]


class Pieces(Chunks):
    """Dask arrays in chunks all of whose vectors are divided, and searched where they are."""

    name = "dask/search"
    solvers = ("auto",)
    examples = 3
    asked_every = 12
    has_two_ways = False

    def sizes(self, shape):
        """Return chunks: from two to nine along the last axis, some of them empty."""
        if not shape:
            return ()
        rng = np.random.default_rng(zlib.crc32(repr(shape).encode()))
        ends = np.sort(rng.integers(0, shape[-1] + 1, rng.integers(1, 9)))
        last = np.diff([0, *ends, shape[-1]]).tolist() if shape[-1] else [0]
        return (*map(halves, shape[:-1]), tuple(last))

    def solve(self, x, *target, **options):
        native = self._native(hoyer.solve, x, *target, **options)
        return FoundInPieces(self, native, options.get("axis", -1))

    def use(self, monkeypatch):
        from hoyer.engines import parts

        monkeypatch.setattr(parts, "MOST_GATHERED", 0)


def halves(n):
    """Return the sizes of two chunks, of which one may be empty."""
    return (n // 2, n - n // 2) if n else (0,)


@functools.cache
def strict_namespace():
    from hoyer.engines.arrays.namespace import Namespace

    class Strict(Namespace):
        """The standard has no way to see a float's bits, and no methods."""

        def astype(self, x, dtype):
            return self.library.astype(x, dtype)

        def view(self, x, dtype):
            names = {"float64", "float32", "int64", "int32"}
            name = next(name for name in names if dtype == getattr(self.library, name))
            return self.library.asarray(np.asarray(x).view(name))

    return Strict


def has_gpu():
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def can_run(engine):
    """Whether this process can."""
    if isinstance(engine, Kernels):
        return INTERPRETED or has_gpu()
    if isinstance(engine, Tensors):
        return importlib.util.find_spec("torch") is not None
    if isinstance(engine, CoreJax):
        return importlib.util.find_spec("jax") is not None and not INTERPRETED
    if isinstance(engine, Chunks):
        return importlib.util.find_spec("dask") is not None and not INTERPRETED
    return not isinstance(engine, StrictArrays) or importlib.util.find_spec("array_api_strict")


ALL = (
    Engine(),
    CoreTensors(),
    PlainTensors(),
    StrictArrays(),
    CoreJax(),
    PlainJax(),
    Chunks(),
    Pieces(),
    Kernels(),
)
ENGINES = {engine.name: engine for engine in ALL if can_run(engine)}
FAMILIES = (
    "numpy/core",
    "torch/core",
    "torch/arrays",
    "strict/arrays",
    "jax/core",
    "jax/arrays",
    "dask/chunks",
    "dask/search",
)
"""One for each family and what it computes with where nothing must be asked of a device."""


def for_all(*strategies):
    """Return `hypothesis.given`, with as many examples as the test's engine has time for."""

    def decorate(test):
        parameters = inspect.signature(test).parameters
        names = list(parameters)[-len(strategies) :]
        drawn = dict(zip(names, strategies, strict=True))

        @functools.wraps(test)
        def run(*bound, engine, **fixed):
            most = hypothesis.settings.default.max_examples
            share = engine.examples / Engine.examples

            @hypothesis.settings(max_examples=max(1, round(most * share)))
            @hypothesis.given(**drawn)
            def attempt(**made_up):
                test(*bound, engine=engine, **fixed, **made_up)

            attempt()

        kept = [parameter for name, parameter in parameters.items() if name not in drawn]
        run.__signature__ = inspect.Signature(kept)
        return run

    return decorate
