"""The CUDA kernels: what is promised, on a GPU; and, for short vectors, under Triton's interpreter.

``pytest -m gpu`` on a machine with a GPU; without one ``TRITON_INTERPRET=1 pytest -m gpu`` runs
those tests that do not need it, on the CPU. The reference is the literal formula in exact numbers,
or tensor operations in float64; the compiled core is not needed.
"""

import math
import os

import mpmath
import numpy as np
import pytest
from mpmath import mp
from reference import VALUE_PRECISION, exact_projection
from test_collection import COLLECTION, complaints_about, solved

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch.autograd import gradcheck  # noqa: E402

import hoyer  # noqa: E402
from hoyer.backends.torch import engines  # noqa: E402
from hoyer.backends.torch.search import FIELDS  # noqa: E402

GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU else "cpu"
STRIDE = 1 if GPU else 25
"""The interpreter takes part of the collection only."""
SLACK = 4 if GPU else 24
"""Eps: the interpreter adds up one entry after the other, where a GPU adds in a tree."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU, or TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]
only_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")

CASES = [(dtype, category) for dtype in ("float64", "float32") for category in COLLECTION[dtype]]
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
DTYPES = [torch.float64, torch.float32, torch.float16]
if GPU:
    # Triton's interpreter cuts bfloat16 off where the GPU rounds.
    DTYPES.append(torch.bfloat16)
LENGTHS = (2, 3, 5, 17, 33, 100, 257, 1000, 1025, 3000) if GPU else (2, 5, 100, 1025)
LONG = (5000, 20000, 32769, 65536, 100001, 1 << 20, (1 << 22) + 3) if GPU else ()

each_category = pytest.mark.parametrize(("dtype", "category"), CASES)
each_form = pytest.mark.parametrize("form", FORMS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Without a GPU the kernels take CPU tensors."""
    monkeypatch.setattr(engines, "KERNELS_WANTED", True)
    if not GPU:
        monkeypatch.setattr(engines, "core", None)
        monkeypatch.setattr(engines, "uses_kernels", lambda x: True)


def on_device(x):
    return torch.from_numpy(np.array(x)).to(DEVICE)


def plain(x, **options):
    """The result by tensor operations in float64, on the CPU."""
    uses, core = engines.uses_kernels, engines.core
    engines.uses_kernels, engines.core = lambda x: False, None
    try:
        return hoyer.project(x.detach().double().cpu(), **options)
    finally:
        engines.uses_kernels, engines.core = uses, core


def errors(found, expected):
    """The largest error in every vector, in eps of its largest entry."""
    found, expected = found.detach().double().cpu(), expected.double().cpu()
    unit = expected.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    return ((found - expected).abs() / unit).amax()


@each_category
@both_sets
def test_what_is_promised(dtype, category, nonnegative, largest):
    wrong, worst = [], 0.0
    for problem, exact in solved(dtype, category, nonnegative)[::STRIDE]:
        value = hoyer.project(on_device(problem.x), nonnegative=nonnegative, **problem.target)
        complaints, error = complaints_about(value.cpu().numpy(), exact, dtype, category == "in D")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst = max(worst, error)
    largest(f"error in eps: collection, kernels, {dtype}", worst)
    assert not wrong, "\n".join(wrong)


@each_category
def test_how_it_was_found(dtype, category):
    """Alpha, beta, d, uniqueness and the norms agree with the exact ones."""
    wrong = []
    for problem, exact in solved(dtype, category, False)[::STRIDE]:
        found = hoyer.solve(on_device(problem.x), **problem.target)
        for name in ("l1", "l2"):
            a, b = float(getattr(found, name)), float(getattr(exact, name))
            if not math.isclose(a, b, rel_tol=1e-12):
                wrong.append(f"{problem.name}: {name} {a} not {b}")
        if exact.l2 == 0 or category == "in D":
            continue
        if 0 < problem.target.get("sparseness", 1) < 1e-30:
            continue  # no double-double tells it from zero, where there is no alpha
        if bool(found.unique) is not exact.unique:
            wrong.append(f"{problem.name}: unique {bool(found.unique)}")
        if exact.scale is None:
            if not (float(found.scale) == 0 and math.isnan(float(found.shift))):
                wrong.append(f"{problem.name}: scale {float(found.scale)}")
            continue
        scale = float(exact.scale)
        if 1e-290 < scale < 1e290 and not math.isclose(float(found.scale), scale, rel_tol=1e-8):
            wrong.append(f"{problem.name}: scale {float(found.scale)} not {scale}")
        if not float(found.evaluations) <= 150:
            wrong.append(f"{problem.name}: {float(found.evaluations)} readings")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("category", COLLECTION["float16"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype, category):
    """One rounding, of numbers that are right to a few eps of float32."""
    if not GPU and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter cuts off where the GPU rounds")
    wrong = []
    for problem in COLLECTION["float16"][category][::STRIDE]:
        x = on_device(problem.x).to(dtype)
        exact = exact_projection(x.double().cpu().numpy(), **problem.target)
        found = hoyer.project(x, **problem.target)
        assert found.dtype == dtype
        noise = 4 * (torch.finfo(dtype).eps if category == "in D" else 2.0**-23)
        off = beyond_rounding(found.double().cpu().tolist(), exact.value, torch.finfo(dtype))
        if not off <= noise:
            wrong.append(f"{problem.name}: off by {off:.3g} of the largest entry beyond rounding")
    assert not wrong, "\n".join(wrong)


def beyond_rounding(values, exact, info):
    """By how much errors exceed half a unit in the last place, relative to the largest entry."""
    digits = -round(math.log2(info.eps))
    with mp.workprec(VALUE_PRECISION):
        worst, top = mp.mpf(0), max(abs(b) for b in exact)
        smallest = mp.mpf(info.smallest_normal * info.eps)
        for a, b in zip(values, exact, strict=True):
            quantum = max(smallest, mpmath.ldexp(1, mpmath.frexp(b)[1] - 1 - digits))
            worst = max(worst, abs(a - b) - quantum / 2)
        return float(worst / top) if top else float(worst)


class TestAgainstTensorOperations:
    @each_form
    @each_dtype
    def test_forms(self, form, dtype, rng):
        for n in (30, 1024) if GPU else (30,):
            x = on_device(rng.normal(size=(5, n))).to(dtype)
            found = hoyer.project(x, **FORMS[form])
            assert errors(found, plain(x, **FORMS[form])) <= SLACK * torch.finfo(dtype).eps

    @pytest.mark.parametrize("n", LENGTHS + LONG)
    @pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
    def test_lengths(self, n, dtype, rng, largest):
        rows = 37 if n < 2000 and GPU else 3
        for kind in ("normal", "lognormal", "cauchy") if GPU else ("normal",):
            draw = {"normal": rng.normal, "lognormal": rng.lognormal, "cauchy": rng.standard_cauchy}
            x = on_device(draw[kind](size=(rows, n)))
            x = (x / (1 + x.abs().amax() / 1e4)).to(dtype)
            for sparseness in (0.3, 0.9):
                found = hoyer.project(x, sparseness)
                error = errors(found, plain(x, sparseness=sparseness)) / torch.finfo(dtype).eps
                largest(f"error in eps: lengths, kernels, {dtype}", error)
                assert error <= 4 * SLACK, (kind, sparseness)

    @each_form
    def test_a_target_for_each_vector(self, form, rng):
        options = dict(FORMS[form])
        x = on_device(rng.normal(size=(6, 200)))
        steps = torch.linspace(0, 0.05, 6, dtype=torch.float64)
        expected = []
        for name in ("sparseness", "l1", "l2"):
            if isinstance(options.get(name), float) and 0 < options[name] < 1:
                options[name] = (options[name] + steps).to(DEVICE)
        for i in range(6):
            one = {k: float(v[i]) if torch.is_tensor(v) else v for k, v in options.items()}
            expected.append(plain(x[i], **one))
        assert errors(hoyer.project(x, **options), torch.stack(expected)) <= SLACK * 2.3e-16


class TestManners:
    def test_bad_vectors_are_nan_and_no_others(self, rng):
        for n in (20, 700, 2500):
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

    def test_impossible_targets_are_nan(self, rng):
        x = on_device(rng.normal(size=(3, 50)))
        targets = torch.tensor([0.5, 1.5, math.nan], dtype=torch.float64, device=DEVICE)
        found = hoyer.project(x, targets, check_finite=False) if GPU else None
        if found is not None:
            assert found.isnan().all(-1).tolist() == [False, True, True]

    def test_layouts(self, rng):
        x = on_device(rng.normal(size=(6, 10, 40)))
        for view in (x[:, ::2], x[..., :33], x[..., ::3], x.transpose(0, 1), x.expand(2, *x.shape)):
            torch.testing.assert_close(
                hoyer.project(view, 0.5).cpu(), plain(view, sparseness=0.5), rtol=0, atol=1e-14
            )
        for axis in (0, 1, (0, 2), None):
            expected = plain(x, sparseness=0.5, axis=axis)
            found = hoyer.project(x, 0.5, axis=axis)
            torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-14)
            again = x.clone()
            hoyer.project_(again, 0.5, axis=axis)
            torch.testing.assert_close(again, found, rtol=0, atol=0)

    @pytest.mark.parametrize("n", [7, 64, 1000, 3000, *LONG])
    def test_every_entry_is_written(self, n, rng):
        for rows in (1, 5, 67):
            if rows * n > 1e7 or (rows > 5 and not GPU):
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
        x = (on_device(rng.normal(size=(3, 7))) + 0.3).requires_grad_()
        assert gradcheck(lambda v: hoyer.project(v, **FORMS[form]), (x,), check_forward_ad=True)

    @pytest.mark.parametrize("form", SMOOTH)
    @pytest.mark.parametrize("n", [30, 257, 1000] + [20000, 70000] * GPU)
    def test_products_against_tensor_operations(self, form, n, rng):
        x, y = on_device(rng.normal(size=(2, 3, n)))
        found, expected = hoyer.solve(x, **FORMS[form]), None
        record = found.derivatives
        at = record._linearization()
        for reverse in (False, True):
            if reverse:
                expected = at.cotangent(y, None, by_x=True, by_target=False)[0]
            else:
                expected = at.tangent(
                    y, type(at.cotangent(y, None, by_x=False, by_target=False)[1])(None, None, None)
                )[0]
            product = found.vjp(y) if reverse else found.jvp(y)
            torch.testing.assert_close(product, expected, rtol=1e-11, atol=1e-13)

    def test_learnable_targets(self, rng):
        x = (on_device(rng.normal(size=(3, 7))) + 0.3).requires_grad_()
        sigma = torch.tensor(0.55, dtype=torch.float64, device=DEVICE, requires_grad=True)
        assert gradcheck(lambda v, s: hoyer.project(v, s, l2="keep"), (x, sigma))

    @each_dtype
    def test_backward_of_every_type(self, dtype, rng):
        x, y = on_device(rng.normal(size=(2, 4, 300)))
        wide = x.clone().requires_grad_()
        narrow = x.to(dtype).requires_grad_()
        hoyer.project(wide, 0.7).backward(y)
        hoyer.project(narrow, 0.7).backward(y.to(dtype))
        off = (narrow.grad.double() - wide.grad).abs().max() / wide.grad.abs().max()
        assert off <= 40 * torch.finfo(dtype).eps

    def test_ties_have_no_gradient(self):
        x = torch.tensor([[2.0, 2.0, 2.0, 1.0]], device=DEVICE, requires_grad=True)
        hoyer.project(x, 0.9).backward(torch.tensor([[1.0, 2.0, 3.0, 4.0]], device=DEVICE))
        assert x.grad.tolist() == [[0.0] * 4]


@only_gpu
class TestDevice:
    def test_nothing_is_asked_of_the_device(self, rng):
        x = on_device(rng.normal(size=(50, 600))).float().requires_grad_()
        huge = torch.randn(1 << 20, device=DEVICE)
        y = torch.randn(50, 600, device=DEVICE)
        for _ in range(2):
            torch.cuda.set_sync_debug_mode("error" if _ else 0)
            try:
                hoyer.project(x, 0.8).backward(y)
                hoyer.project(huge, 0.8)
                hoyer.solve(x.detach(), 0.8)
            finally:
                torch.cuda.set_sync_debug_mode(0)

    @pytest.mark.parametrize("n", [600, 5000, 100000, 1 << 23])
    def test_graphs_and_streams(self, n, rng):
        x = torch.randn(max(1, 20000 // n), n, device=DEVICE)
        expected = hoyer.project(x, 0.8)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                found = hoyer.project(x, 0.8)
        torch.cuda.current_stream().wait_stream(side)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = hoyer.project(x, 0.8)
        other = torch.randn_like(x)
        x.copy_(other)
        graph.replay()
        torch.testing.assert_close(found, hoyer.project(other, 0.8), rtol=0, atol=0)

    @pytest.mark.parametrize("shape", [(3000, 64), (300, 2048), (9, 100000), (1, 1 << 24)])
    def test_the_same_bits_every_time(self, shape):
        x = torch.randn(shape, device=DEVICE)
        first = hoyer.project(x, 0.8)
        for _ in range(5):
            assert torch.equal(first, hoyer.project(x, 0.8))

    @pytest.mark.parametrize("shape", [(1 << 16, 256), (256, 1 << 16), (1, 1 << 26)])
    def test_memory(self, shape):
        x = torch.randn(shape, device=DEVICE)
        hoyer.project(x, 0.8)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = hoyer.project(x, 0.8)
        extra = torch.cuda.max_memory_allocated() - before - out.nbytes
        assert extra <= 64 * shape[0] + (20 << 20)

    def test_compiled(self, rng):
        x = on_device(rng.normal(size=(20, 500))).float().requires_grad_()
        y = torch.randn(20, 500, device=DEVICE)

        def function(v):
            return (hoyer.project(v * 2, 0.7) * y).sum()

        torch.compile(function, fullgraph=True)(x).backward()
        found, x.grad = x.grad, None
        function(x).backward()
        torch.testing.assert_close(found, x.grad)

    def test_transformations(self, rng):
        x = on_device(rng.normal(size=(4, 9)))
        jacobian = torch.func.vmap(torch.func.jacrev(lambda v: hoyer.project(v, 0.5)))(x)
        forward = torch.func.vmap(torch.func.jacfwd(lambda v: hoyer.project(v, 0.5)))(x)
        torch.testing.assert_close(jacobian, forward)
        torch.testing.assert_close(jacobian, hoyer.solve(x, 0.5).jacobian())

    def test_autocast_leaves_the_type(self):
        with torch.autocast("cuda", torch.bfloat16):
            assert hoyer.project(torch.randn(3, 50, device=DEVICE), 0.5).dtype == torch.float32

    def test_beyond_two_to_the_31(self):
        x = torch.randn((1 << 16) + 1, 1 << 15, dtype=torch.float16, device=DEVICE)
        out = hoyer.project(x, 0.9)
        assert errors(out[-2:], plain(x[-2:], sparseness=0.9)) <= 4 * 2.0**-10
        del out
        one = x.view(-1)
        norms = hoyer.project(one, 0.9).float().norm()
        assert abs(float(norms) - 1) < 0.05

    @pytest.mark.parametrize("kind", ["ties", "constant", "zero", "denormal", "huge"])
    def test_long_vectors_that_are_not_ordinary(self, kind):
        n = 1 << 20
        x = torch.randn(n, device=DEVICE, dtype=torch.float64)
        x = {
            "ties": x.clamp(-1, 1),
            "constant": torch.ones_like(x),
            "zero": torch.zeros_like(x),
            "denormal": x * 1e-310,
            "huge": x * 1e307,
        }[kind]
        expected = plain(x, sparseness=0.7)
        assert errors(hoyer.project(x, 0.7), expected) <= 16 * 2.3e-16


def test_records_have_the_fields_of_the_core():
    from hoyer.backends.torch import cuda

    assert len(FIELDS) == cuda.FIELDS
