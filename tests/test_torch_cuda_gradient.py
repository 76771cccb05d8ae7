"""Products with derivatives by the CUDA kernels, against plain operations in float64.

The reference is evaluated at the very p and scale that the kernels get, rounded as they are, so
that nothing but the product is judged. ``TRITON_INTERPRET=1 pytest -m gpu`` runs short vectors on
the CPU, cut as long ones are on a GPU. There most of the time is the compiler's: a second for each
combination of type, length and setting, so that not all are gone through.
"""

import os

import interpreter
import numpy as np
import pytest
import test_gradient_extremes
from test_torch_functions import options_of

mpmath = pytest.importorskip("mpmath")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch.autograd import forward_ad  # noqa: E402

import hoyer  # noqa: E402
from hoyer.engines import triton as cuda  # noqa: E402
from hoyer.engines.arrays.products import Changes, Products  # noqa: E402
from hoyer.engines.triton import products  # noqa: E402
from hoyer.engines.triton.table import ProductCut  # noqa: E402
from hoyer.families.torch import engines, tensors  # noqa: E402
from hoyer.plan import derivative_plan  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
GPU = torch.cuda.is_available() and not INTERPRETED
if INTERPRETED:
    interpreter.mend()
DEVICE = "cuda" if GPU else "cpu"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU, or TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),
]
only_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")

HALF = torch.bfloat16
LENGTHS = {
    torch.float64: (40, 257, 4096, 16384, 40001),
    torch.float32: (2, 64, 1000, 8192, 16384, 32768, 65536, 300000),
    torch.float16: (17, 100, 1024, 70000),
    torch.bfloat16: (16, 512, 4096, 8190, 32768, 1 << 20),
}
SETTINGS = {
    "fixed": {},
    "both norms": {"sparseness": None, "l1": 2.0, "l2": 1.0},
    "keep": {"l2": "keep"},
    "nearest": {"l2": "nearest"},
    "nonnegative": {"nonnegative": True},
    "nearest, nonnegative": {"l2": "nearest", "nonnegative": True},
}
CUTS = {
    "held": ProductCut(4, 2, 32, 1),
    "read again": ProductCut(4, 1, 32, 1, group=2, skip=False),
    "streamed": ProductCut(2, 1, 16, 1, group=2),
    "all streamed": ProductCut(0, 1, 32, 1, group=2),
    "shared": None,
}
"""Ways through the kernels, cut small."""

each_cut = pytest.mark.parametrize("cut", CUTS)
each_setting = pytest.mark.parametrize("setting", SETTINGS)
some_kept = pytest.mark.parametrize("kept", [False, True], ids=["free", "some kept"])


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    """Without a GPU the kernels take CPU tensors."""
    monkeypatch.setattr(engines, "KERNELS_WANTED", True)
    if not GPU:
        monkeypatch.setattr(engines, "core", None)
        monkeypatch.setattr(engines, "uses_kernels", lambda x: True)


@pytest.fixture
def cut_as(anew, monkeypatch):
    """Cut all vectors in one way."""

    def use(name):
        monkeypatch.setattr(products, "cut_for", lambda table, itemsize, n: CUTS[name])
        small = ProductCut(2, 1, 32, 1)
        monkeypatch.setattr(products, "SHARED", dict.fromkeys((2, 4, 8), small))

    return use


class Problem:
    """A result to differentiate at, and directions."""

    def __init__(self, rng, shape, dtype, setting, *, kept=False, share=0.3):
        x, y = rng.normal(size=(2, *shape))
        p = np.sign(x) * np.maximum(np.abs(x) - np.quantile(np.abs(x), 1 - share), 0)
        if setting.get("nonnegative"):
            p = np.maximum(p, 0)
        given = {"sparseness": 0.5, **setting}
        self.plan = derivative_plan(shape[1], options_of(**given))
        self.p, self.x, self.y = (torch.from_numpy(a).to(DEVICE, dtype) for a in (p, x, y))
        self.scale = torch.from_numpy(rng.uniform(0.5, 2, size=shape[:1])).to(DEVICE)
        marks = torch.arange(shape[0], device=DEVICE) % 3
        self.kept = marks.to(torch.int8) if kept else None
        columns = (*shape[:1], len(Changes._fields))
        self.moves = torch.from_numpy(rng.normal(size=columns)).to(DEVICE)

    @property
    def found(self):
        return engines.Solved(self.p, self.scale, self.kept, None, self.x, self.plan, 1)

    @property
    def eps(self):
        return torch.finfo(self.p.dtype).eps

    def reference(self):
        args = (self.p.double(), self.scale, self.x.double(), self.kept, self.plan)
        return Products(*args, tensors.XP)

    def product_error(self):
        """Error of vjp, in eps of |y|/beta."""
        y = self.y.double()
        expected, _ = self.reference().cotangent(y, None, by_x=True, by_target=False)
        found = cuda.product(self.found, self.y, reverse=True)
        unit = y.abs().amax(-1, keepdim=True) / self.scale[:, None]
        return error_in_eps(found, expected, unit, self.eps)

    def reverse_errors(self):
        """Errors of vjp, and of the gradients by the target, in eps of |p||y|."""
        y = self.y.double()
        by_x, change = self.reference().cotangent(y, None, by_x=True, by_target=True)
        found, numbers = cuda.backward(self.found, self.y)
        none = torch.zeros_like(change.ratio)
        expected = torch.stack([none if moved is None else moved for moved in change], -1)
        l2 = self.p.double().norm(dim=-1, keepdim=True)
        size = (y.norm(dim=-1, keepdim=True) * l2).clamp(min=1e-300)
        size = torch.maximum(size, expected.abs())
        unit = y.abs().amax(-1, keepdim=True) / self.scale[:, None]
        return (
            error_in_eps(found, by_x, unit, self.eps),
            error_in_eps(numbers, expected, size, min(self.eps, 2.0**-23)),
        )

    def forward_errors(self):
        """Errors of jvp in eps of the largest entry or |y|/beta, and of beta's tangent."""
        y = self.y.double()
        ratio, log_norm, kept, l1 = self.moves.unbind(-1)
        change = Changes(ratio, log_norm, None if self.kept is None else kept, l1)
        value, scale = self.reference().tangent(y, change)
        found, moved = cuda.forward(self.found, self.y, self.moves)
        unit = y.abs().amax(-1, keepdim=True) / self.scale[:, None]
        unit = torch.maximum(unit, value.abs().amax(-1, keepdim=True))
        l2 = self.p.double().norm(dim=-1)
        size = torch.maximum(y.norm(dim=-1) / l2.clamp(min=1e-300), scale.abs())
        eps = min(self.eps, 2.0**-23)
        return error_in_eps(found, value, unit, self.eps), error_in_eps(moved, scale, size, eps)


def error_in_eps(found, expected, unit, eps):
    off = (found.double() - expected).abs()
    return float((off / torch.maximum(unit, expected.abs()).clamp(min=1e-300)).max()) / eps


def check(problem, largest, name, limit=16):
    for kind, errors in (
        ("vjp", problem.reverse_errors()),
        ("jvp", problem.forward_errors()),
    ):
        largest(f"error in eps: {kind} by the kernels, {problem.p.dtype}", errors[0])
        assert errors[0] <= limit, (name, kind, errors)
        assert errors[1] <= 4 * limit, (name, kind, errors)


class TestProducts:
    @each_setting
    @some_kept
    def test_settings(self, setting, kept, rng, largest):
        dtype = HALF if kept else torch.float32
        check(Problem(rng, (3, 20), dtype, SETTINGS[setting], kept=kept), largest, dtype)

    @each_cut
    def test_ways_through_the_kernels(self, cut, rng, largest, cut_as):
        cut_as(cut)
        n = {"streamed": 90, "all streamed": 90, "shared": 150}.get(cut, 100)
        check(Problem(rng, (2, n), torch.float32, SETTINGS["keep"], kept=True), largest, cut)
        assert Problem(rng, (2, n), HALF, SETTINGS["fixed"]).product_error() <= 2

    @pytest.mark.parametrize("dtype", LENGTHS, ids=str)
    def test_lengths(self, dtype, rng, largest):
        for n in LENGTHS[dtype] if GPU else LENGTHS[dtype][:1]:
            for rows in (3, 150) if GPU else (3,):
                problem = Problem(rng, (rows, n), dtype, SETTINGS["fixed"], share=0.03 + 1 / n)
                error = problem.product_error()
                largest(f"error in eps: vjp by the kernels, {dtype}", error)
                assert error <= 16, (n, rows)

    @only_gpu
    @pytest.mark.parametrize(
        ("rows", "n", "dtype"),
        [(150, 40002, torch.float16), (4, 300000, torch.float32), (150, 20000, torch.float64)],
    )
    def test_long_vectors_with_everything(self, rows, n, dtype, rng, largest):
        for name in ("keep", "nearest"):
            check(Problem(rng, (rows, n), dtype, SETTINGS[name], kept=True), largest, (name, n))

    @pytest.mark.parametrize("cut", ["held", pytest.param("streamed", marks=only_gpu), "shared"])
    def test_sums_that_plain_arithmetic_cannot_take(self, cut, rng, cut_as):
        cut_as(cut)
        rule = SETTINGS["keep" if GPU else "fixed"]
        sizes = Problem(rng, (2, 50), torch.float32, rule)
        for i, factor in enumerate((1e37, 1e-37)):
            sizes.p[i] *= factor
            sizes.x[i] *= factor
        assert sizes.product_error() <= 16

        spreads = Problem(rng, (4, 50), torch.float32, rule)
        p = spreads.p
        p[0] = torch.sign(p[0]) * 0.3
        # Differences of a few units in the last place, which float64 can judge.
        steps = torch.from_numpy(rng.integers(0, 100, size=50)).to(DEVICE)
        p[1] = torch.sign(p[1]) * (1 + 2.0**-23 * steps)
        p[2:] = 0
        p[3, 3] = -0.7
        assert spreads.product_error() <= 16
        assert spreads.forward_errors()[0] <= 16

    @pytest.mark.parametrize("cut", ["held", "shared"])
    def test_nearly_equal_doubles(self, cut, rng, cut_as):
        """Against more digits: entries differ by a few units in the last place."""
        cut_as(cut)
        problem = Problem(rng, (1, 40), torch.float64, SETTINGS["fixed"])
        steps = torch.from_numpy(rng.integers(0, 100, size=(1, 40)).astype(float)).to(DEVICE)
        problem.p = torch.sign(problem.p) * (1 + 2.0**-52 * steps)
        found = cuda.product(problem.found, problem.y, reverse=True)
        with mpmath.workdps(60):
            p, y = (
                np.array([mpmath.mpf(v) for v in t[0].tolist()]) for t in (problem.p, problem.y)
            )
            inside = p != 0
            u = np.where(p > 0, y, -y)[inside]
            w = abs(p[inside]) - abs(p[inside]).mean()
            product = np.where(p > 0, 1, -1)[inside] * (u - u.mean() - w * (w @ u) / (w @ w))
            expected = np.zeros(40)
            expected[inside] = product / mpmath.mpf(float(problem.scale[0]))
        unit = float(problem.y.abs().max() / problem.scale[0])
        assert abs(found[0].cpu().numpy() - expected).max() <= 8 * problem.eps * unit

    def test_equal_entries_have_no_slope(self, rng):
        problem = Problem(rng, (3, 50), torch.float32, SETTINGS["fixed"])
        problem.p = torch.full_like(problem.p, 0.1)
        y = problem.y
        found = cuda.product(problem.found, y, reverse=True)
        expected = (y - y.mean(-1, keepdim=True)) / problem.scale[:, None]
        torch.testing.assert_close(found, expected.float(), rtol=0, atol=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
    def test_what_is_not_finite_stays_where_it_is(self, dtype, rng):
        problem = Problem(rng, (3, 50), dtype, SETTINGS["fixed"])
        good = cuda.product(problem.found, problem.y, reverse=True)
        problem.y[0, problem.p[0] == 0] = torch.inf
        problem.p[1] = torch.nan
        found = cuda.product(problem.found, problem.y, reverse=True)
        assert found[1].isnan().all()
        # The others may be read again with it, and differ in their last bits.
        assert (found - good)[[0, 2]].abs().max() <= 8 * torch.finfo(dtype).eps * good.abs().max()

    def test_with_and_without_targets(self, rng):
        problem = Problem(rng, (3, 20), torch.float32, SETTINGS["fixed"])
        found, _ = cuda.backward(problem.found, problem.y)
        again = cuda.product(problem.found, problem.y, reverse=True)
        assert torch.equal(found, again)

    def test_vectors_that_lie_apart(self, rng):
        problem = Problem(rng, (4, 64), torch.float32, SETTINGS["fixed"])
        expected = cuda.product(problem.found, problem.y, reverse=True)
        for shift in (1, 2, 4):
            room = torch.zeros(4, 64 + shift, device=DEVICE)
            room[:, shift:] = problem.y
            found = cuda.product(problem.found, room[:, shift:], reverse=True)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.engines("torch/triton")
class TestExtremesOfLongOnes(test_gradient_extremes.TestExtremes):
    """Sizes at the ends of the range, by several programs."""

    @pytest.fixture(autouse=True)
    def shared(self, anew, monkeypatch):
        """Cut every product into parts."""
        monkeypatch.setattr(products, "BACKWARD", {size: [] for size in products.BACKWARD})
        monkeypatch.setattr(products, "SHARED", dict.fromkeys((2, 4, 8), ProductCut(1, 1, 4, 1)))


class TestFunctions:
    def test_gradients_of_targets(self, monkeypatch):
        """In one pass with that of x; tensor operations are used where these are differentiated."""
        calls = []
        backward = cuda.backward
        monkeypatch.setattr(cuda, "backward", lambda *a: calls.append(1) or backward(*a))
        for options in ({"l2": "nearest"}, {"l1": 2.0, "only_increase": True}):
            results = []
            for kernels_too in (True, False):
                x = torch.from_numpy(np.sin(np.arange(27.0)).reshape(3, 9)).to(DEVICE)
                sigma = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64, device=DEVICE)
                x.requires_grad_()
                sigma.requires_grad_()
                value = hoyer.project(x, sigma, **options)
                y = torch.cos(torch.arange(27.0, dtype=torch.float64, device=DEVICE)).view(3, 9)
                results.append(
                    torch.autograd.grad(value, (x, sigma), y, create_graph=not kernels_too)
                )
            for a, b in zip(*results, strict=True):
                torch.testing.assert_close(a, b.detach(), rtol=1e-11, atol=1e-12)
        assert len(calls) == 2

    def test_forward_mode(self, rng, monkeypatch):
        x, dx = torch.from_numpy(rng.normal(size=(2, 3, 9))).to(DEVICE)
        sigma = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64, device=DEVICE)
        calls = []
        forward = cuda.forward
        monkeypatch.setattr(cuda, "forward", lambda *a: calls.append(1) or forward(*a))
        for moved, options in ((False, {"l2": "keep"}), (True, {}), (True, {"l1": 2.0})):
            results = []
            for watched in (False, True):
                with forward_ad.dual_level():
                    given = x.clone().requires_grad_(watched)
                    step = torch.full_like(sigma, 0.1)
                    targets = forward_ad.make_dual(sigma, step) if moved else sigma
                    value = hoyer.project(forward_ad.make_dual(given, dx), targets, **options)
                    results.append(forward_ad.unpack_dual(value).tangent.detach())
            torch.testing.assert_close(*results, rtol=1e-11, atol=1e-12)
        assert len(calls) == 3
