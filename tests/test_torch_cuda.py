"""The CUDA kernels: what is promised, on a GPU; and, for short vectors, under Triton's interpreter.

``pytest -m gpu`` on a machine with a GPU; without one ``TRITON_INTERPRET=1 pytest -m gpu`` runs
those tests that do not need it, on the CPU. The reference is the literal formula in exact numbers,
or tensor operations in float64; the compiled core is not needed.

Problems that differ in their numbers alone are solved by one call: under the interpreter a launch
costs milliseconds, and on a GPU a second wherever a kernel has to be compiled anew.
"""

import math
import os

import interpreter
import numpy as np
import pytest
import test_degenerate
from engines import typed

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from torch.autograd import gradcheck  # noqa: E402

import hoyer  # noqa: E402
from hoyer.engines import triton as cuda  # noqa: E402
from hoyer.engines.triton import long, products, projections  # noqa: E402
from hoyer.engines.triton.table import CarefulCut, LongCut  # noqa: E402
from hoyer.families.torch import engines, functions  # noqa: E402
from hoyer.options import Options  # noqa: E402
from hoyer.plan import Plan  # noqa: E402
from hoyer.target import Target  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
GPU = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if GPU else "cpu"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU, or TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),
]
only_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")

if INTERPRETED:
    interpreter.mend()

FORMS = {
    "sparseness": {"sparseness": 0.6},
    "whole support": {"sparseness": 0.1},
    "with l2": {"sparseness": 0.6, "l2": 2.5},
    "with l1": {"sparseness": 0.6, "l1": 3.0},
    "both norms": {"l1": 1.5, "l2": 1.0},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "nonnegative": {"sparseness": 0.6, "nonnegative": True},
    "constant": {"sparseness": 0.0},
    "one-hot": {"sparseness": 1.0},
    "only_increase": {"sparseness": 0.35, "only_increase": True},
    "only_increase, l1": {"sparseness": 0.35, "l1": 2.0, "only_increase": True},
    "only_increase, nearest": {"sparseness": 0.35, "l2": "nearest", "only_increase": True},
    "only_increase, keep": {
        "sparseness": 0.35,
        "l2": "keep",
        "only_increase": True,
        "nonnegative": True,
    },
}
SMOOTH = [form for form in FORMS if form not in ("constant", "one-hot")]
RULES = ("sparseness", "keep", "nearest", "only_increase, l1")
"""Forms with formulas of their own."""
DOUBLE, SINGLE, HALF, BRAIN = torch.float64, torch.float32, torch.float16, torch.bfloat16
DTYPES = [DOUBLE, SINGLE, HALF, BRAIN]
LENGTHS = (2, 3, 5, 17, 33, 100, 257, 1000, 1025, 3000) if GPU else (3, 257, 1025, 4096)
LONG = (20000, 32769, 65536, 100001, 1 << 20, (1 << 22) + 3) if GPU else ()

each_form = pytest.mark.parametrize("form", FORMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Without a GPU the kernels take CPU tensors."""
    monkeypatch.setattr(engines, "KERNELS_WANTED", True)
    if not GPU:
        monkeypatch.setattr(engines, "core", None)
        monkeypatch.setattr(engines, "uses_kernels", lambda x: True)


@pytest.fixture
def no_registers(anew, monkeypatch):
    """Vectors go to the kernels for long ones, but for those that are shorter than a line there."""
    for module, name in ((projections, "FORWARD"), (products, "BACKWARD")):
        table = getattr(module, name)
        short = {
            size: [(n, cut) for n, cut in table[size] if n <= long.LINE.value]
            for size in projections.LONG
        }
        monkeypatch.setattr(module, name, short)


def on_device(x):
    return torch.from_numpy(np.array(x)).to(DEVICE)


def plain(x, **options):
    """The result by tensor operations in float64."""
    uses, core = engines.uses_kernels, engines.core
    engines.uses_kernels, engines.core = lambda x: False, None
    try:
        return hoyer.project(x.detach().double(), **options).cpu()
    finally:
        engines.uses_kernels, engines.core = uses, core


def errors(found, expected):
    """The largest error in any vector, relative to its largest entry."""
    found, expected = found.detach().double().cpu(), expected.double().cpu()
    unit = expected.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    return float(((found - expected).abs() / unit).amax())


# ---- the collection is judged in tests/test_collection.py, for every engine ----


def test_bad_halves_come_back_as_nan(rng):
    """Numbers of float32 that bfloat16 cannot hold."""
    x = on_device(rng.normal(size=(3, 20)).astype(np.float32))
    x[1, 4] = 3.4e38
    found = hoyer.project(x.to(BRAIN), 0.5, check_finite=False)
    assert found.isnan().all(-1).tolist() == [False, True, False]


@pytest.mark.engines("torch/triton")
class TestZerosOfLongOnes(test_degenerate.TestZeros):
    """Those of vectors in D, by the kernels for long vectors."""

    test_what_they_owe_is_the_others = None  # not asked of the kernels

    @pytest.fixture(autouse=True)
    def by_kernels_for_long_ones(self, no_registers):
        """Of those no shorter than a line."""

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_of_random_long_vectors(self, engine, dtype, rng):
        rows = 200 if GPU else 2
        for n in (3000, 20000) if GPU else (3000,):
            for share in (1.0, 0.6, 0.05):
                x = rng.normal(size=(rows, n)) * (rng.random((rows, n)) <= share)
                given, sigma = typed(x, dtype), rng.choice([0.1, 0.5, 0.9, 0.99], rows)
                for options in ({}, {"nonnegative": True}, {"l2": "keep"}):
                    once, _, revived = self.again(engine, given, sigma, **options)
                    assert (once == 0).any()
                    assert not revived.any()


@pytest.mark.parametrize("n", [1, 5, 300, 5000])
def test_masks_are_measured(n, rng):
    """Lengths, and targets from a table; rows that lie apart, or are all the same."""
    table = on_device(rng.normal(size=(4, n + 1)))
    wide = on_device(rng.random((6, n + 3)) < rng.random((6, 1)))
    for where in (wide[:, :n], wide[:1, 3:].expand(6, n), wide[:, :n].contiguous()):
        options = Options(None, 1.0, None, -1, True, False, "auto", True)
        plan = Plan.of(n, Target(None, None, None, None), options, where)
        found = cuda.measure(plan, table, torch.Size([2, 3]))
        lengths = where.sum(-1)
        assert found.lengths.tolist() == lengths.view(2, 3).tolist()
        for column, expected in zip(found.target, table[:, lengths], strict=True):
            assert column.flatten().tolist() == expected.tolist()


# ---- ordinary vectors: all forms, types, lengths and layouts ----


class TestAgainstTensorOperations:
    @pytest.mark.parametrize(
        ("form", "dtype"),
        [
            (form, dtype)
            for form in FORMS
            for dtype in DTYPES
            if dtype in (DOUBLE, SINGLE) or form in RULES
        ],
        ids=str,
    )
    def test_forms(self, form, dtype, rng):
        for n in (30, 1024) if GPU else (30,):
            x = on_device(rng.normal(size=(5, n))).to(dtype)
            found = hoyer.project(x, **FORMS[form])
            assert errors(found, plain(x, **FORMS[form])) <= 4 * torch.finfo(dtype).eps

    @pytest.mark.parametrize("n", LENGTHS + LONG)
    @pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
    def test_lengths(self, n, dtype, rng, largest):
        rows = 12 if n < 5000 and GPU else 2
        draws = {"normal": rng.normal, "lognormal": rng.lognormal, "cauchy": rng.standard_cauchy}
        for kind in draws if GPU else ("normal",):
            x = on_device(draws[kind](size=(rows, n)))
            x = (x / (1 + x.abs().amax() / 1e4)).to(dtype)
            for sparseness in (0.3, 0.9):
                found = hoyer.project(x, sparseness)
                error = errors(found, plain(x, sparseness=sparseness)) / torch.finfo(dtype).eps
                largest(f"error in eps: lengths, kernels, {dtype}", error)
                assert error <= 16, (kind, sparseness)

    @pytest.mark.parametrize("form", RULES[:3])
    @each_dtype
    def test_long_ones(self, form, dtype, rng, no_registers):
        """Of every kind, ordinary or not."""
        x = rng.normal(size=(6, 4100)).clip(-4, 4)
        x[1] += 1000
        x[2] = x[2].clip(-1, 1)
        x[3] = np.abs(x[3]) < 0.7
        x[4] = 0
        x[5] *= 1e-6
        x = on_device(x).to(dtype)
        expected = plain(x, **FORMS[form])
        assert errors(hoyer.project(x, **FORMS[form]), expected) <= 16 * torch.finfo(dtype).eps

    @each_form
    def test_a_target_for_each_vector(self, form, rng):
        options = dict(FORMS[form])
        x = on_device(rng.normal(size=(4, 30)))
        steps = torch.linspace(0, 0.05, 4, dtype=DOUBLE)
        expected = []
        for name in ("sparseness", "l1", "l2"):
            if isinstance(options.get(name), float) and 0 < options[name] < 1:
                options[name] = (options[name] + steps).to(DEVICE)
        for i in range(4):
            one = {k: float(v[i]) if torch.is_tensor(v) else v for k, v in options.items()}
            expected.append(plain(x[i], **one))
        assert errors(hoyer.project(x, **options), torch.stack(expected)) <= 4 * 2.3e-16

    @pytest.mark.parametrize("kind", ["ties", "constant", "zero", "subnormal", "huge", "offset"])
    @pytest.mark.parametrize("n", [1000] + [1 << 20] * GPU)
    def test_vectors_that_are_not_ordinary(self, kind, n, rng):
        x = on_device(rng.normal(size=n))
        x = {
            "ties": x.clamp(-1, 1),
            "constant": torch.ones_like(x),
            "zero": torch.zeros_like(x),
            "subnormal": x * 1e-310,
            "huge": x * 1e307,
            "offset": x * 1e-3 + 1e6,
        }[kind]
        for options in (FORMS["sparseness"], FORMS["nonnegative"]):
            assert errors(hoyer.project(x, **options), plain(x, **options)) <= 16 * 2.3e-16


class TestWhatLooksOrdinary:
    """Vectors that the fast kernels may take for ordinary, with any target."""

    @pytest.fixture(params=["registers", "long", "huge"])
    def way(self, request, anew, monkeypatch):
        if request.param != "registers":
            request.getfixturevalue("no_registers")
        if request.param == "huge":
            monkeypatch.setattr(projections, "HUGE", 1)
        return request.param

    @pytest.mark.parametrize("dtype", [DOUBLE, SINGLE], ids=str)
    @pytest.mark.parametrize("kind", ["ties", "integers", "offset", "nearly constant", "clusters"])
    def test_right_for_any_target(self, way, kind, dtype, rng, largest):
        if way == "huge" and dtype == DOUBLE:
            pytest.skip("there is no such way for doubles")
        short, lengthy = ((400, 300), (40, 9000)) if GPU else ((40, 200), (4, 5000))
        rows, n = short if way == "registers" else lengthy
        x = rng.normal(size=(rows, n))
        # Ties just below alpha: that of x with some sparseness, as of a part of x cut off there.
        alpha = rng.uniform(0.2, 1.5, size=(rows, 1))
        beside = alpha * (1 - 10 ** rng.uniform(-6, -3, size=(rows, 1)))
        kinds = {
            "ties": np.where(rng.random((rows, n)) < 0.3, beside, np.abs(x)),
            "integers": np.abs(np.round(10 * x)),
            "offset": x + 10 ** rng.uniform(2, 6, size=(rows, 1)),
            "nearly constant": 1 + 1e-7 * x,
            "clusters": 1 + (rng.random((rows, n)) < 0.3) + 1e-5 * x,
        }
        given = on_device(kinds[kind]).to(dtype)
        if kind in ("ties", "integers"):
            cut = np.maximum(given.double().cpu().numpy() - alpha * (3 if kind != "ties" else 1), 0)
            l1, l2 = cut.sum(-1), np.sqrt(np.square(cut).sum(-1))
            sigma = (math.sqrt(n) - l1 / l2) / (math.sqrt(n) - 1)
        else:
            sigma = rng.uniform(0.05, 0.95, size=rows)
        found = hoyer.project(given, on_device(sigma))
        expected = plain(given, sparseness=on_device(sigma))
        error = errors(found, expected) / torch.finfo(dtype).eps
        largest(f"error in eps: nearly ordinary, kernels, {dtype}", error)
        assert error <= 32

    @pytest.mark.parametrize("dtype", [DOUBLE, SINGLE], ids=str)
    @pytest.mark.parametrize("kind", ["normal", "lognormal", "standard_cauchy"])
    def test_what_is_ordinary_is_not_left(self, way, kind, dtype, rng, monkeypatch):
        """The fast kernels do it alone, but for one vector in fifty."""
        marks, careful = [], projections._careful
        monkeypatch.setattr(
            projections, "_careful", lambda *a: marks.append(float(a[4].sum())) or careful(*a)
        )
        if way == "huge" and dtype == DOUBLE:
            pytest.skip("there is no such way for doubles")
        rows, n = (50, 100) if way == "registers" else (8, 3000)
        rows *= 20 if GPU else 1
        x = on_device(getattr(rng, kind)(size=(rows, n))).to(dtype)
        for sparseness in (0.5, 0.9):
            hoyer.project(x, sparseness)
        assert sum(marks) <= rows // 25

    @pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)
    def test_noise_matters_for_zeros_alone(self, way, dtype, rng, monkeypatch):
        """Where alpha is next to zero, half types that have no zeros are not left."""
        marks, careful = [], projections._careful
        monkeypatch.setattr(projections, "_careful", lambda *a: marks.append(a[4]) or careful(*a))
        n, eps = 100 if way == "registers" else 3000, torch.finfo(dtype).eps
        x = on_device(rng.lognormal(size=(8, n))).to(dtype)
        for zeros in (False, True):
            x[:, 7] *= not zeros
            ratio = x.double().sum(-1) / x.double().norm(dim=-1) * (1 + eps / 2)
            sigma = (math.sqrt(n) - ratio) / (math.sqrt(n) - 1)
            assert errors(hoyer.project(x, sigma), plain(x, sparseness=sigma)) <= eps
            assert marks.pop().bool().tolist() == [zeros] * 8

    @pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)
    @pytest.mark.parametrize("below", [True, False], ids=["below", "above"])
    def test_ties_of_half_types(self, below, dtype, rng):
        """Half a unit in the last place, and a few eps of float32 times the largest entry."""
        rows, n = (400 if GPU else 40), 1000
        x = on_device(np.abs(rng.normal(size=(rows, n)))).to(dtype)
        tie = on_device(rng.uniform(0.2, 1.5, size=(rows, 1))).to(dtype)
        x = torch.where(on_device(rng.random((rows, n)) < 0.6), tie, x)
        apart = on_device(10 ** rng.uniform(-6, -2.5, size=(rows, 1)))
        alpha = tie.double() * (1 + (apart if below else -apart))
        cut = (x.double() - alpha).clamp(min=0)
        sigma = (math.sqrt(n) - cut.sum(-1) / cut.norm(dim=-1)) / (math.sqrt(n) - 1)
        found, expected = hoyer.project(x, sigma).double().cpu(), plain(x, sparseness=sigma)
        info = torch.finfo(dtype)
        exponents = torch.frexp(expected).exponent - 1
        unit = (torch.ldexp(torch.ones_like(expected), exponents) * info.eps).clamp(
            min=info.smallest_normal * info.eps
        )
        top = expected.amax(-1, keepdim=True)
        assert ((found - expected).abs() <= unit / 2 + 8 * 1.2e-7 * top).all()

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("sparseness", [1e-20, 1e-37, 1.6e-44, 1e-300])
    def test_hardly_any_sparseness(self, sparseness, dtype, rng):
        x = on_device(rng.normal(size=(3, 40))).to(dtype)
        value = hoyer.project(x, sparseness)
        expected = torch.copysign(torch.full_like(x, 40**-0.5), x)
        slack = 4 * torch.finfo(dtype).eps + 10 * sparseness**0.5
        torch.testing.assert_close(value, expected, rtol=slack, atol=0)

    def test_doubles_with_ties_a_hair_above_alpha(self, rng):
        rows = 200
        x = np.abs(rng.normal(size=(rows, 64))) + 1
        x[:, 16:] = 1
        alpha = 1 - rng.integers(1, 20, size=(rows, 1)) * 2.0**-52
        cut = np.maximum(x.astype(np.longdouble) - alpha, 0)
        l1 = (cut.sum(-1) / np.sqrt(np.square(cut).sum(-1))).astype(float)
        given, l1, l2 = on_device(x), on_device(l1), on_device(np.ones(rows))
        found = hoyer.project(given, l1=l1, l2=l2)
        assert errors(found, plain(given, l1=l1, l2=l2)) <= 20 * 2.3e-16

    @pytest.mark.parametrize("dtype", [DOUBLE, SINGLE], ids=str)
    def test_zeros_stay_zero_where_a_sample_sees_nothing_else(self, dtype, rng, no_registers):
        for _ in range(6):
            x = np.zeros(100000)
            x[rng.integers(len(x), size=5)] = rng.uniform(0.1, 1.1, size=5)
            given = on_device(x).to(dtype)
            l1, l2 = float(given.double().sum()), float(given.double().norm())
            found = hoyer.project(given, l1=l1, l2=l2)
            assert not found[given == 0].any()
            assert errors(found[None], given[None]) <= 8 * torch.finfo(dtype).eps

    def test_long_rows_of_doubles(self, rng, no_registers):
        rows = 400 if GPU else 40
        x = on_device(rng.normal(size=(rows, 5000)))
        sigma = on_device(rng.uniform(0.1, 0.9, size=rows))
        assert errors(hoyer.project(x, sigma), plain(x, sparseness=sigma)) <= 8 * 2.3e-16

    def test_views_of_negatives(self, rng):
        x = torch._neg_view(on_device(rng.normal(size=(3, 40))))
        expected = hoyer.project(x.resolve_neg(), 0.6)
        assert torch.equal(hoyer.project(x, 0.6), expected)
        out = torch._neg_view(torch.empty_like(expected))
        hoyer.project(x, 0.6, out=out)
        assert torch.equal(out, expected)


@pytest.mark.skipif(GPU, reason="there long vectors are shared anyway")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
class TestProgramsThatMeet:
    """Two groups of two programs, or of three."""

    @pytest.fixture(autouse=True)
    def groups(self, anew, monkeypatch):
        interpreter.run_side_by_side(monkeypatch)
        for module in (projections, products):
            monkeypatch.setattr(module, "multiprocessors", lambda device: 1)
        monkeypatch.setattr(projections, "_ALONE", 128)
        monkeypatch.setattr(projections, "careful_cut", lambda n: CarefulCut(128, 4, 4))
        cuts = {size: [(1 << 62, LongCut(2, 4, 6))] for size in projections.LONG}
        monkeypatch.setattr(projections, "LONG", cuts)

    @pytest.mark.parametrize("form", [*RULES, "constant"])
    def test_with_care(self, form, rng):
        x = rng.normal(size=(7, 900))
        x[1] = x[1].clip(-1, 1)
        x[2] = -3
        x[3] = 0
        x[4, 50:] = 0
        x[5] = x[5] ** 9 * 1e-300
        x[6, 700] = math.nan
        found = hoyer.solve(on_device(x), **FORMS[form], check_finite=False)
        assert found.value[6].isnan().all()
        expected = plain(on_device(x[:6]), **FORMS[form])
        # With "nearest" most of that is the error of the tensor operations.
        assert errors(found.value[:6], expected) <= 16 * 2.3e-16

    @pytest.mark.parametrize(
        ("form", "dtype"), [("sparseness", DOUBLE), ("keep", SINGLE), ("nearest", HALF)], ids=str
    )
    def test_ordinary_ones(self, form, dtype, rng, no_registers):
        x = on_device(rng.normal(size=(3, 8999))).to(dtype)
        x[1] = x[1].clamp(-1, 1)
        found = hoyer.project(x, **FORMS[form])
        assert errors(found, plain(x, **FORMS[form])) <= 8 * torch.finfo(dtype).eps

    def test_what_misses_is_written_again(self, rng, no_registers, monkeypatch):
        """As for huge vectors whose entries are not spread as evenly as they seem."""
        monkeypatch.setattr(projections, "HUGE", 1)
        monkeypatch.setattr(long, "EVEN_ENOUGH", tl.constexpr(1.0))
        for x in (rng.normal(size=(2, 8999)), rng.normal(size=(1, 8192)).round(2)):
            given = on_device(x).float()
            found = hoyer.project(given, 0.6)
            assert errors(found, plain(given, sparseness=0.6)) <= 16 * 1.2e-7
            again = given.clone()
            hoyer.project_(again, 0.6)
            assert errors(again, plain(given, sparseness=0.6)) <= 8 * 1.2e-7


class TestManners:
    def test_without_a_compiler_there_are_no_kernels(self, monkeypatch):
        monkeypatch.delenv("CC", raising=False)
        monkeypatch.setattr(engines.shutil, "which", lambda name: None)
        with pytest.warns(RuntimeWarning, match="need a C compiler for Triton .* by sorting"):
            assert engines.kernels.__wrapped__() is None
        monkeypatch.setenv("CC", "tcc")
        assert engines.kernels.__wrapped__() is cuda

    @each_dtype
    @pytest.mark.parametrize("way", ["registers", "long"])
    def test_no_zero_is_negative(self, way, dtype, rng, request):
        if way == "long":
            request.getfixturevalue("no_registers")
        x = on_device(rng.normal(size=(4, 600))).to(dtype)
        x[1, :300] *= 0
        for sparseness in (0.3, 0.8):
            found = hoyer.project(x, sparseness)
            assert (found == 0).any()
            assert not torch.signbit(found[found == 0]).any()

    @pytest.mark.parametrize("way", ["registers", "long"])
    def test_what_rounds_to_zero_has_no_sign(self, way, rng, request):
        if way == "long":
            request.getfixturevalue("no_registers")
        rows, n = 40, 600
        x = on_device(np.abs(rng.normal(size=(rows, n)))).to(HALF)
        x[:, 100:] = 0
        x[:, 7] = -1e-4
        alpha = x[:, 7:8].double().abs() - on_device(rng.uniform(0, 1e-7, size=(rows, 1)))
        cut = (x.double().abs() - alpha).clamp(min=0)
        l1, l2 = cut.sum(-1), cut.norm(dim=-1)
        expected = plain(x, l1=l1, l2=l2)[:, 7]
        assert ((expected < 0) & (expected > -(2.0**-25))).any()
        found = hoyer.project(x, l1=l1, l2=l2)
        assert not torch.signbit(found[found == 0]).any()

    @pytest.mark.parametrize("n", [20, 2500])
    def test_bad_vectors_are_nan_and_no_others(self, n, rng):
        x = on_device(rng.normal(size=(7, n))).float()
        good = hoyer.project(x, 0.6, check_finite=False)
        x[1, 3], x[4, n - 1], x[5, 0] = math.nan, math.inf, -math.inf
        for nonnegative in (False, True):
            found = hoyer.project(x, 0.6, nonnegative=nonnegative, check_finite=False)
            bad = found.isnan()
            assert bad[[1, 4, 5]].all()
            assert not bad[[0, 2, 3, 6]].any()
            if not nonnegative:
                torch.testing.assert_close(found[[0, 2, 3, 6]], good[[0, 2, 3, 6]])

    def test_bad_long_vectors(self, rng, no_registers):
        x = on_device(rng.normal(size=(4, 4100))).float()
        x[0, 4000], x[1, 7], x[3, 0] = math.nan, math.inf, -math.inf
        found = hoyer.project(x, 0.6, check_finite=False)
        assert found.isnan().all(-1).tolist() == [True, True, False, True]
        assert not found[2].isnan().any()

    def test_impossible_targets_are_nan(self, rng):
        x = on_device(rng.normal(size=(3, 50)))
        targets = torch.tensor([0.5, 1.5, math.nan], dtype=DOUBLE, device=DEVICE)
        found = hoyer.project(x, targets, check_finite=False)
        assert found.isnan().all(-1).tolist() == [False, True, True]

    def test_layouts(self, rng):
        x = on_device(rng.normal(size=(3, 4, 19)))
        for view in (x[:, ::2], x[..., :13], x[..., ::3], x.transpose(0, 1), x.expand(2, *x.shape)):
            expected = plain(view, sparseness=0.5)
            torch.testing.assert_close(hoyer.project(view, 0.5).cpu(), expected, rtol=0, atol=1e-14)
            room = torch.full((*view.shape, 2), math.nan, dtype=x.dtype, device=DEVICE)
            hoyer.project(view, 0.5, out=room[..., 0])
            torch.testing.assert_close(room[..., 0].cpu(), expected, rtol=0, atol=1e-14)
            assert room[..., 1].isnan().all()
        for axis in (0, 1, (0, 2), None):
            expected = plain(x, sparseness=0.5, axis=axis)
            found = hoyer.project(x, 0.5, axis=axis)
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-14)
            again = x.clone()
            hoyer.project_(again, 0.5, axis=axis)
            torch.testing.assert_close(again, found, rtol=0, atol=0)

    @pytest.mark.parametrize("n", [7, 1000, 4099, *LONG])
    def test_every_entry_is_written(self, n, rng):
        for rows in (1, 5, 67) if GPU else (3,):
            if rows * n > 1e7:
                continue
            x = on_device(rng.normal(size=(rows, n))).float()
            room = torch.full((rows + 2, n), math.nan, device=DEVICE)
            out = room[1:-1]
            hoyer.project(x, 0.7, out=out)
            assert not out.isnan().any()
            assert room[[0, -1]].isnan().all()
            torch.testing.assert_close(out, hoyer.project(x, 0.7), rtol=0, atol=0)

    def test_empty_and_single(self):
        assert hoyer.project(torch.zeros(0, 5, device=DEVICE), 0.5).shape == (0, 5)
        one = hoyer.project(torch.full((3, 1), -2.0, device=DEVICE), l1=1.5, l2=1.5)
        assert one.tolist() == [[-1.5]] * 3

    def test_paper_solvers_are_refused(self):
        with pytest.raises(ValueError, match="there is 'auto' alone"):
            hoyer.project(torch.ones(3, device=DEVICE), 0.5, solver="newton")


class TestDerivatives:
    @pytest.mark.parametrize("form", SMOOTH)
    def test_finite_differences(self, form, rng):
        x = (on_device(rng.normal(size=(3, 5))) + 0.3).requires_grad_()
        assert gradcheck(
            lambda v: hoyer.project(v, **FORMS[form]),
            (x,),
            check_forward_ad=True,
            fast_mode=not GPU,
        )

    @pytest.mark.parametrize(
        ("form", "n"),
        [(form, 257) for form in SMOOTH]
        + [(form, n) for form in RULES for n in [30, 4096] + [20000, 70000] * GPU],
    )
    def test_products_against_tensor_operations(self, form, n, rng):
        self.check_products(form, n, rng)

    @pytest.mark.parametrize("form", [*RULES, "only_increase, keep"])
    def test_products_of_long_ones(self, form, rng, no_registers):
        self.check_products(form, 3000, rng)

    def check_products(self, form, n, rng):
        x, y = on_device(rng.normal(size=(2, 3, n)))
        x[2, : n // 2] = 0  # sparse enough already
        x.requires_grad_()
        value = hoyer.project(x, **FORMS[form])
        found = torch.autograd.grad(value, x, y)[0]
        record = hoyer.solve(x.detach(), **FORMS[form])
        at = functions.products_of(record.derivatives.at)
        expected, change = at.cotangent(y, None, by_x=True, by_target=False)
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(record.vjp(y), expected, rtol=1e-11, atol=1e-13)
        nothing = type(change)(None, None, None)
        torch.testing.assert_close(record.jvp(y), at.tangent(y, nothing)[0], rtol=1e-11, atol=1e-13)

    def test_transformations(self, rng):
        x, y = on_device(rng.normal(size=(2, 4, 9)))
        matrices = hoyer.solve(x, 0.5).jacobian()

        def one(v):
            return hoyer.project(v, 0.5)

        for make in (torch.func.jacrev, torch.func.jacfwd):
            torch.testing.assert_close(torch.func.vmap(make(one))(x), matrices)
        value, tangent = torch.func.jvp(one, (x,), (y,))
        torch.testing.assert_close(value, hoyer.project(x, 0.5))
        torch.testing.assert_close(tangent, torch.einsum("bij,bj->bi", matrices, y))
        gradient = torch.func.grad(lambda v: (one(v) * y).sum())(x)
        torch.testing.assert_close(gradient, torch.einsum("bij,bi->bj", matrices, y))
        mapped = torch.func.vmap(one, in_dims=1, out_dims=1)(x.T)
        torch.testing.assert_close(mapped, hoyer.project(x.T, 0.5, axis=0))

    def test_learnable_targets(self, rng):
        x = (on_device(rng.normal(size=(3, 7))) + 0.3).requires_grad_()
        sigma = torch.tensor(0.55, dtype=DOUBLE, device=DEVICE, requires_grad=True)
        l2 = torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE, device=DEVICE, requires_grad=True)
        fast = {"fast_mode": not GPU}
        assert gradcheck(lambda v, s: hoyer.project(v, s, l2="keep"), (x, sigma), **fast)
        assert gradcheck(lambda v, s, a: hoyer.project(v, s, l2=a), (x, sigma, l2), **fast)

    @each_dtype
    def test_backward_of_every_type(self, dtype, rng):
        x, y = on_device(rng.normal(size=(2, 4, 300)))
        wide = x.clone().requires_grad_()
        narrow = x.to(dtype).requires_grad_()
        hoyer.project(wide, 0.7).backward(y)
        hoyer.project(narrow, 0.7).backward(y.to(dtype))
        off = (narrow.grad.double() - wide.grad).abs().max() / wide.grad.abs().max()
        assert off <= 40 * torch.finfo(dtype).eps


@only_gpu
# PyTorch's own: about gradients that cross streams, and about the mode that watches for waiting.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
class TestDevice:
    def test_nothing_is_asked_of_the_device(self, rng):
        x = on_device(rng.normal(size=(50, 600))).float().requires_grad_()
        huge = torch.randn(1 << 20, device=DEVICE, requires_grad=True)
        targets = torch.full((50,), 0.8, device=DEVICE)
        y = torch.randn(50, 600, device=DEVICE)
        for mode in ("default", "error"):  # at first kernels are compiled
            torch.cuda.set_sync_debug_mode(mode)
            try:
                hoyer.project(x, 0.8).backward(y)
                hoyer.project(x, targets).backward(y)
                hoyer.project(huge, 0.8).backward(huge.detach())
                hoyer.solve(x.detach(), 0.8)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    @pytest.mark.parametrize("n", [600, 20000, 100000, 1 << 23])
    def test_streams(self, n):
        """What a stream is about to write is what is projected there."""
        x, other = torch.randn(2, max(1, 20000 // n), n, device=DEVICE)
        expected = hoyer.project(other, 0.8)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(10_000_000)
            x.copy_(other)
            found = hoyer.project(x, 0.8)
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)

    @pytest.mark.parametrize("n", [600, 20000, 100000, 1 << 23])
    def test_graphs(self, n):
        """Forward and backward, ordinary vectors and others, replayed with new numbers."""
        x = torch.randn(max(1, 20000 // n), n, device=DEVICE, requires_grad=True)
        y = torch.randn_like(x)

        def step():
            value = hoyer.project(x, 0.8)
            return value, torch.autograd.grad(value, x, y)[0]

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = step()
        for other in (torch.randn_like(x), torch.randn_like(x).clamp(-1, 1)):
            x.data.copy_(other)
            for _ in range(2):
                graph.replay()
            torch.testing.assert_close(found, step(), rtol=0, atol=0)

    @pytest.mark.parametrize("shape", [(3000, 64), (300, 2048), (9, 100000), (1, 1 << 24)])
    def test_the_same_bits_every_time(self, shape):
        x = torch.randn(shape, device=DEVICE)
        x[0].clamp_(-1, 1)  # for those who look with care
        first = hoyer.project(x, 0.8)
        for _ in range(5):
            assert torch.equal(first, hoyer.project(x, 0.8))

    @pytest.mark.parametrize("shape", [(1 << 16, 256), (256, 1 << 16), (1, 1 << 26)])
    def test_memory(self, shape):
        """The input, the output and a few numbers per vector; so for the gradient."""

        def extra(function, result_bytes):
            function()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = function()
            peak = torch.cuda.max_memory_allocated()
            del result
            return peak - before - result_bytes

        x = torch.randn(shape, device=DEVICE)
        assert extra(lambda: hoyer.project(x, 0.8), x.nbytes) <= 64 * shape[0] + (1 << 20)
        assert extra(lambda: hoyer.project_(x, 0.8), 0) <= 64 * shape[0] + (1 << 20)
        x.requires_grad_()
        value, y = hoyer.project(x, 0.8), torch.randn_like(x)
        used = extra(lambda: torch.autograd.grad(value, x, y, retain_graph=True), x.nbytes)
        assert used <= 64 * shape[0] + x.nbytes // 100 + (1 << 20)

    def test_poisoned_memory(self):
        """The allocator hands out what was NaN before: of results and of notes all is written."""
        for shape in ((1000, 300), (20, 30000), (1, 1 << 22)):
            x = torch.randn(shape, device=DEVICE, requires_grad=True)
            y = torch.randn_like(x)
            value = hoyer.project(x, 0.8)
            gradient = torch.autograd.grad(value, x, y)[0]
            for _ in range(3):
                poison = [torch.full_like(x, math.nan) for _ in range(4)]
                poison += [
                    torch.full((count,), -1, device=DEVICE).byte() for count in (1, 20, 1000)
                ]
                poison += [torch.full((1000, 16), math.nan, device=DEVICE, dtype=DOUBLE)]
                del poison
                again = hoyer.project(x, 0.8)
                assert torch.equal(again, value)
                assert torch.equal(torch.autograd.grad(again, x, y)[0], gradient)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
    def test_several_devices(self):
        """A tensor is projected where it is, not where the current device is."""
        x = torch.randn(30, 500, device="cuda:1", requires_grad=True)
        with torch.cuda.device(0):
            value = hoyer.project(x, 0.8)
            value.backward(torch.ones_like(x))
            huge = hoyer.project(torch.randn(1 << 20, device="cuda:1"), 0.8)
        assert value.device == x.grad.device == huge.device == x.device
        assert errors(value, plain(x, sparseness=0.8)) <= 16 * 2.0**-23

    @pytest.mark.parametrize("n", [500, 100000])
    def test_compiled(self, n):
        x = torch.randn(20, n, device=DEVICE, requires_grad=True)
        y = torch.randn(20, n, device=DEVICE)

        def function(v):
            return (hoyer.project(v * 2, 0.7) * y).sum()

        torch.compile(function, fullgraph=True)(x).backward()
        found, x.grad = x.grad, None
        function(x).backward()
        torch.testing.assert_close(found, x.grad)

    def test_autocast_leaves_the_type(self):
        x = torch.randn(3, 50, device=DEVICE, requires_grad=True)
        with torch.autocast("cuda", BRAIN):
            value = hoyer.project(x, 0.5)
            assert value.dtype == torch.float32
            layer = torch.nn.Linear(40, 50, device=DEVICE)
            assert hoyer.project(layer(torch.randn(3, 40, device=DEVICE)), 0.5).dtype == BRAIN
        value.sum().backward()
        torch.testing.assert_close(value, hoyer.project(x, 0.5), rtol=0, atol=0)

    def test_a_sparseness_that_is_learned(self):
        """Gradient descent finds the sparseness of a given projection."""
        x = torch.randn(64, 300, device=DEVICE)
        wanted = hoyer.project(x, 0.8)
        sigma = torch.tensor(0.6, device=DEVICE, requires_grad=True)
        optimizer = torch.optim.Adam([sigma], 0.02)
        for _ in range(150):
            optimizer.zero_grad()
            (hoyer.project(x, sigma) - wanted).square().sum().backward()
            optimizer.step()
        assert abs(float(sigma.detach()) - 0.8) < 5e-3

    def test_more_than_two_to_the_31_entries(self):
        x = torch.randn((1 << 16) + 1, 1 << 15, dtype=HALF, device=DEVICE)
        out = hoyer.project(x, 0.9)
        assert errors(out[-2:], plain(x[-2:], sparseness=0.9)) <= 4 * 2.0**-10
        del out
        huge = x.view(-1)
        value = hoyer.project(huge, 0.99, l2="keep").view_as(x)
        norms = [float(v.norm(dtype=DOUBLE)) for v in (value, x)]
        # Some 200000 entries of about 100 are left: their rounding averages out.
        assert math.isclose(*norms, rel_tol=1e-3)
        assert math.isclose(float(hoyer.sparseness(value, axis=None)), 0.99, abs_tol=1e-3)
