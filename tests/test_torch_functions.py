"""Tensors: the same functions with the same results, on both engines, and PyTorch's manners."""

import copy
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.dlpack import to_dlpack  # noqa: E402

import hoyer  # noqa: E402
from hoyer.families.torch import (  # noqa: E402
    engines,
    functions,
    targets,
    tensors,
)
from hoyer.options import Options  # noqa: E402
from hoyer.projection import RECORD_FIELDS  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.engines("torch/core", "torch/arrays")

ARGUMENTS = {
    "sparseness": {"sparseness": 0.6},
    "with l2": {"sparseness": 0.6, "l2": 2.5},
    "with l1": {"sparseness": 0.6, "l1": 3.0},
    "both norms": {"l1": 1.5, "l2": 1.0},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "nonnegative": {"sparseness": 0.6, "nonnegative": True},
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
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]

each_form = pytest.mark.parametrize("form", ARGUMENTS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_axis = pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (2, 1), None])


def options_of(**given):
    """What a family is asked to do: the arguments of `hoyer.project`."""
    defaults = {"sparseness": None, "l1": None, "l2": None, "axis": -1, "nonnegative": False}
    defaults |= {"only_increase": False, "solver": "auto", "check_finite": True}
    return Options(**{**defaults, **given})


def close(a, b, eps=8):
    a, b = a.detach().double(), torch.tensor(np.asarray(b), dtype=torch.float64)
    assert a.shape == b.shape
    scale = b.abs().max() if b.numel() else 1.0
    assert bool(((a - b).abs() <= eps * 2.3e-16 * scale).all()), (a - b).abs().max()


def tolerance(dtype):
    return 2 * torch.finfo(dtype).eps


class TestLikeNumPy:
    @each_form
    def test_bfloat16(self, engine, form, rng):
        """Which NumPy does not have."""
        dtype = torch.bfloat16
        x = torch.from_numpy(rng.normal(size=(4, 30))).to(dtype)
        found = hoyer.project(x, **ARGUMENTS[form])
        assert found.dtype == dtype
        expected = torch.from_numpy(hoyer.project(x.double().numpy(), **ARGUMENTS[form]))
        assert (found.double() - expected).abs().max() <= tolerance(dtype) * expected.abs().max()

    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_targets_that_change(self, engine, name, rng):
        x = torch.from_numpy(rng.normal(size=(3, 8)))
        rest = {} if name == "sparseness" else {"sparseness": 0.5}
        array, tensor = np.array(0.25), torch.tensor(0.25, dtype=torch.float64)
        for number in (0.25, 0.75, 0.25):
            expected = hoyer.project(x, **rest, **{name: number})
            for target in (array, tensor):
                target[...] = number
                assert torch.equal(hoyer.project(x, **rest, **{name: target}), expected)

    @pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (1, 2), None])
    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_targets_with_the_axes_of_the_vectors(self, engine, axis, name, rng):
        x = torch.from_numpy(rng.normal(size=(3, 4, 5)))
        dims = (0, 1, 2) if axis is None else axis
        target = 0.1 + 0.8 * torch.rand_like(x.sum(dims, keepdim=True))
        per_vector = target.squeeze(dims)
        rest = {} if name == "sparseness" else {"sparseness": 0.5}
        expected = hoyer.project(x, **rest, axis=axis, **{name: per_vector})
        assert torch.equal(hoyer.project(x, **rest, axis=axis, **{name: target}), expected)
        learnt = target.requires_grad_()
        hoyer.project(x, **rest, axis=axis, **{name: learnt})[..., 1].sum().backward()
        assert learnt.grad.shape == target.shape
        assert learnt.grad.abs().sum() > 0
        wide = torch.cat([target, target], (dims if isinstance(dims, int) else dims[0]))
        with pytest.raises(ValueError, match="does not fit vectors in a batch of shape"):
            hoyer.project(x, **rest, axis=axis, **{name: wide})

    @pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
    @pytest.mark.parametrize("only_increase", [False, True])
    @pytest.mark.parametrize("given", [{}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}])
    def test_the_gradient_by_the_sparseness_is_that_of_autograd(
        self, engine, axis, given, only_increase, rng
    ):
        x, y = torch.from_numpy(rng.normal(size=(2, 3, 4, 5)))
        options = {**given, "axis": axis, "only_increase": only_increase}
        shape = x.numpy().sum(axis).shape
        sigma = torch.from_numpy(rng.uniform(0.3, 0.6, shape)).requires_grad_()
        (expected,) = torch.autograd.grad((hoyer.project(x, sigma, **options) * y).sum(), sigma)
        gradient = hoyer.solve(x, sigma, **options).sparseness_gradient()
        assert gradient.shape == x.shape
        close(expected, (gradient * y).numpy().sum(axis), 1e3)
        array = hoyer.solve(x.numpy(), sigma.detach().numpy(), **options).sparseness_gradient()
        close(gradient, array, 1e3)

    @each_axis
    def test_products_along_any_axis(self, engine, axis, rng):
        x, y = rng.normal(size=(2, 3, 4, 5))
        for word in (1.0, "keep"):
            expected = hoyer.solve(x, 0.6, l2=word, axis=axis)
            found = hoyer.solve(torch.from_numpy(x), 0.6, l2=word, axis=axis)
            close(found.value, expected.value)
            close(found.vjp(torch.from_numpy(y)), expected.vjp(y), 1e3)
            close(found.jacobian(), expected.jacobian(), 1e3)
            for mine, other in zip(
                found.target_gradient(), expected.target_gradient(), strict=True
            ):
                close(mine, other, 1e3)

    @each_axis
    @each_dtype
    def test_sparseness(self, engine, axis, dtype, rng):
        x = torch.from_numpy(rng.normal(size=(3, 4, 5))).to(dtype)
        found = hoyer.sparseness(x, axis=axis)
        assert found.dtype == dtype
        expected = torch.as_tensor(hoyer.sparseness(x.double().numpy(), axis=axis))
        assert found.shape == expected.shape
        assert (found.double() - expected).abs().max() <= 4 * torch.finfo(dtype).eps

    def test_sparseness_of_extremes(self, engine):
        rows = [
            [0.0] * 4,
            [0, 0, 5, 0],
            [1, 1, 1, 1],
            [1e300] * 4,
            [1e-320, 0, 0, 0],
            [math.inf, 1, 1, 1],
        ]
        found = hoyer.sparseness(torch.tensor(rows, dtype=torch.float64))
        expected = hoyer.sparseness(np.array(rows))
        np.testing.assert_allclose(found, expected, atol=1e-15)
        assert hoyer.sparseness(torch.ones(1)).isnan()

    @each_dtype
    def test_sparseness_does_not_depend_on_who_watches(self, engine, dtype, rng):
        def tell(x):
            watched = x.clone().requires_grad_()
            sigma = hoyer.sparseness(watched)
            assert torch.equal(sigma, hoyer.sparseness(x))
            assert 0 <= float(sigma.detach()) <= 1
            dual = torch.func.jvp(hoyer.sparseness, (x,), (x,))[0]
            assert 0 <= float(dual) <= 1
            sigma.backward()
            return watched.grad

        for n in (*range(2, 12), 50, 100):
            x = torch.zeros(n, dtype=dtype)
            x[n // 2] = rng.uniform(0.1, 1)
            assert ((tell(x) * x).abs() <= 8 * torch.finfo(dtype).eps).all()
            tell(torch.from_numpy(rng.normal(size=n)).to(dtype))
            tell(torch.full((n,), 0.7, dtype=dtype))

    def test_the_slope_at_the_upper_end(self, engine):
        """Next to a unit vector sigma falls linearly, though it rounds to one there."""
        x = torch.tensor([1.0, 1e-20, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
        hoyer.sparseness(x).backward()
        torch.testing.assert_close(x.grad, torch.tensor([0.0, -1.0, 0.0, 0.0]).double())

    def test_a_target_per_vector(self, engine, rng):
        x = rng.normal(size=(3, 4, 20))
        sigma, norm = rng.uniform(0.3, 0.9, size=4), rng.uniform(1, 2, size=(3, 1))
        expected = hoyer.project(x, sigma, l2=norm)
        tensor = torch.from_numpy(x)
        close(hoyer.project(tensor, torch.from_numpy(sigma), l2=torch.from_numpy(norm)), expected)
        close(hoyer.project(tensor, sigma, l2=norm.tolist()), expected)
        close(hoyer.project(tensor, list(sigma), l2=norm), expected)

    def test_numpy_integers_as_axes(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(3, 4, 5)))
        for axis, other in (
            (np.int64(0), 0),
            ((np.int8(1), np.int64(-1)), (1, 2)),
            ([0, 2], (0, 2)),
        ):
            assert torch.equal(hoyer.project(x, 0.5, axis=axis), hoyer.project(x, 0.5, axis=other))

    @pytest.mark.parametrize("axis", [2, (2,), (-1,), (1, 2), (-2, -1), (0, 1, 2), None])
    def test_names_of_the_last_axes(self, axis, rng):
        """Weights of layers come with such axes."""
        x = torch.from_numpy(rng.normal(size=(3, 4, 5))).requires_grad_()
        y = torch.from_numpy(rng.normal(size=(3, 4, 5)))
        arguments = {"sparseness": 0.6, "l2": "keep", "axis": axis}
        found = hoyer.project(x, **arguments)
        solved = hoyer.solve(x.detach(), **arguments)
        assert torch.equal(found, solved.value)
        (gradient,) = torch.autograd.grad(found, x, y, retain_graph=True)
        torch.testing.assert_close(gradient, solved.vjp(y))
        (again,) = torch.autograd.grad(found, x, y, create_graph=True)
        torch.testing.assert_close(again, gradient)

    def test_the_records_are_those_of_the_core(self):
        assert engines.core.RECORD_FIELDS == RECORD_FIELDS

    def test_results_beyond_the_largest_number_are_infinite(self, engine):
        for dtype in DTYPES[1:]:
            x = torch.tensor([1.0, -0.9, 0.8, 0.1], dtype=dtype) * torch.finfo(dtype).max
            found = hoyer.project(x, 0.9, l2="keep")
            assert found.tolist()[:2] == [math.inf, found[1].item()]
            assert not found.isnan().any()


class TestLayouts:
    def test_strided_transposed_expanded_and_flipped(self, engine, rng):
        base = torch.from_numpy(rng.normal(size=(6, 8, 10)))
        for x in (
            base[::2, :, 1::3],
            base.transpose(0, 2),
            base[:1].expand(4, 8, 10),
            base.permute(2, 0, 1)[1:, ::2],
            base[0, 0].expand(3, 10),
            base[..., :1].expand(6, 8, 5),
        ):
            expected = hoyer.project(np.ascontiguousarray(x.numpy()), 0.5)
            close(hoyer.project(x, 0.5), expected)
            watched = x.clone().requires_grad_()
            hoyer.project(watched, 0.5).sum().backward()
            gradient = torch.func.vjp(lambda v: hoyer.project(v, 0.5).sum(), x)[1](
                torch.tensor(1.0, dtype=torch.float64)
            )[0]
            np.testing.assert_allclose(watched.grad, gradient, atol=1e-12)

    def test_channels_last(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(2, 3, 4, 5))).to(memory_format=torch.channels_last)
        close(hoyer.project(x, 0.5, axis=(1, 2, 3)), hoyer.project(x.numpy(), 0.5, axis=(1, 2, 3)))

    @pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5)])
    def test_empty_batches(self, engine, shape):
        x = torch.zeros(shape, requires_grad=True)
        for word in (1.0, "keep", "nearest"):
            found = hoyer.project(x, 0.5, l2=word)
            assert found.shape == shape
            (gradient,) = torch.autograd.grad(found.sum(), x)
            assert gradient.shape == shape
        assert hoyer.solve(x.detach(), 0.5).support_size.shape == shape[:-1]
        assert hoyer.sparseness(x).shape == shape[:-1]

    @pytest.mark.parametrize("watched", [False, True])
    def test_no_copy(self, watched, rng, monkeypatch):
        """A tensor goes to the core as it is: only the output is new memory."""
        seen = []

        class Watched:
            def __getattr__(self, name):
                return getattr(core, name)

            def project(self, given, out, *rest):
                # Whoever looks into such a capsule uses it up.
                given, out = torch.from_dlpack(given), torch.from_dlpack(out)
                seen.append((given.data_ptr(), given.stride(), out.data_ptr()))
                return core.project(to_dlpack(given), to_dlpack(out), *rest)

            def project_memory(self, given, out, *rest):
                seen.append((given, None, out))
                return core.project_memory(given, out, *rest)

        core = engines.core
        monkeypatch.setattr(engines, "core", Watched())
        x = torch.from_numpy(rng.normal(size=(30, 500))).requires_grad_(watched)
        for v, axis in ((x, -1), (x, 0), (x.t(), -1), (x[::2, 3:], -1), (x, None)):
            found = hoyer.project(v, 0.5, axis=axis)
            given, strides, out = seen.pop()
            assert given == v.data_ptr()
            assert out == found.data_ptr()
            expected = None if v.is_contiguous() and axis != 0 else v.stride()
            assert strides == expected or sorted(strides) == sorted(expected)
            hoyer.project(v.detach(), 0.5, axis=axis, out=torch.empty_like(v.detach()))
            assert seen.pop()[0] == v.data_ptr()

    def test_large_results(self):
        """From 32 MiB on in large pages: the same numbers, forwards and backwards."""
        x = torch.randn(4, engines.LARGE // 16, requires_grad=True)
        found = hoyer.project(x, 0.9)
        assert found.nbytes >= engines.LARGE
        expected = hoyer.solve(x.detach().numpy(), 0.9)
        np.testing.assert_array_equal(found.detach().numpy(), expected.value)
        y = torch.ones_like(found)
        (gradient,) = torch.autograd.grad(found, x, y)
        np.testing.assert_allclose(gradient.numpy(), expected.vjp(y.numpy()), rtol=1e-4, atol=1e-6)

    def test_kernels_can_be_turned_off(self, monkeypatch):
        assert engines.KERNELS_WANTED
        monkeypatch.setattr(engines, "KERNELS_WANTED", False)
        assert not engines.uses_kernels(SimpleNamespace(is_cuda=True))

    def test_old_devices_go_without_kernels(self, monkeypatch):
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        capability = {0: (9, 0), 1: (7, 0)}
        monkeypatch.setattr(torch.cuda, "get_device_capability", capability.__getitem__)
        monkeypatch.setattr(engines, "kernels", lambda: "kernels")
        monkeypatch.setattr(engines, "can_run_on", engines.can_run_on.__wrapped__)
        for device, runs in ((0, True), (1, False)):
            x = SimpleNamespace(is_cuda=True, get_device=lambda device=device: device)
            assert engines.uses_kernels(x) is runs

    def test_negative_bit(self, engine):
        x = torch.conj(torch.tensor([1 + 1j, 2 - 3j, 4 + 2j, 1 + 0j], dtype=torch.complex128)).imag
        assert x.is_neg()
        close(hoyer.project(x, 0.5), hoyer.project(x.resolve_neg().numpy(), 0.5))
        dense = torch._neg_view(torch.randn(3, 4, dtype=torch.float64))
        assert torch.equal(hoyer.project(dense, 0.5), hoyer.project(dense.clone(), 0.5))
        with pytest.raises(ValueError, match="nan at entry 3"):
            hoyer.project(torch._neg_view(torch.tensor([1.0, 2.0, 3.0, math.nan])), 0.5)

    @pytest.mark.parametrize(
        "given",
        [
            lambda view: {"sparseness": view},
            lambda view: {"sparseness": view[1]},
            lambda view: {"sparseness": list(view)},
            lambda view: {"sparseness": 0.5, "l2": view},
            lambda view: {"l1": 2 * view, "l2": view},
            lambda view: {"l1": torch.ones(2), "l2": view},
        ],
    )
    def test_targets_with_a_negative_bit(self, engine, given):
        x = torch.randn(2, 9, dtype=torch.float64)
        view = torch._neg_view(torch.tensor([-0.5, -0.6], dtype=torch.float64))
        assert view.is_neg()
        plain = torch.tensor([0.5, 0.6], dtype=torch.float64)
        expected = hoyer.project(x, **given(plain))
        assert torch.equal(hoyer.project(x, **given(view)), expected)
        watched = x.clone().requires_grad_()
        assert torch.equal(hoyer.project(watched, **given(view)).detach(), expected)
        assert torch.equal(hoyer.project_(x.clone(), **given(view)), expected)


class TestInPlace:
    @each_dtype
    def test_writes_and_tells_autograd(self, engine, dtype, rng):
        x = torch.from_numpy(rng.normal(size=(4, 10))).to(dtype)
        expected, version = hoyer.project(x, 0.6), x._version
        assert hoyer.project_(x, 0.6) is x
        assert torch.equal(x, expected)
        assert x._version > version

    def test_views_and_axes(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(4, 10, 3)))
        expected = hoyer.project(x, 0.6, axis=1)
        hoyer.project_(x[1:, ::1], 0.6, axis=1)
        assert torch.equal(x[1:], expected[1:])

    def test_a_saved_tensor_must_not_change(self, engine):
        x = torch.rand(4, requires_grad=True)
        y = x * 1
        z = y.exp()
        hoyer.project_(z.detach(), 0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()

    def test_the_usual_error_for_leaves(self, engine):
        x = torch.rand(4, requires_grad=True)
        before = x.detach().clone()
        with pytest.raises(RuntimeError, match=r"^a leaf Variable that requires .*no_grad\(\)"):
            hoyer.project_(x, 0.5)
        assert torch.equal(x, before)
        with torch.no_grad():
            hoyer.project_(x, 0.5)
        assert torch.equal(x, hoyer.project(before, 0.5))

    def test_gradients_flow_through_other_tensors(self, engine):
        x = torch.rand(6, dtype=torch.float64, requires_grad=True)
        y = x * 2
        hoyer.project_(y, 0.5)
        (gradient,) = torch.autograd.grad((y**3).sum(), x)
        (expected,) = torch.autograd.grad((hoyer.project(2 * x, 0.5) ** 3).sum(), x)
        np.testing.assert_allclose(gradient, expected, atol=1e-14)

    @pytest.mark.parametrize("sparseness", [0.0, 0.01, 0.5])
    @pytest.mark.parametrize("rule", [1.0, "keep", "nearest"])
    def test_gradients_flow_by_any_rule(self, engine, rule, sparseness):
        """With "keep", and of entries that are nearly equal, the derivative needs x as it was."""
        x = torch.rand(6, dtype=torch.float64, requires_grad=True)
        found = hoyer.project_(x * 2, sparseness, l2=rule)
        (gradient,) = torch.autograd.grad((found**3).sum(), x)
        other = hoyer.project(2 * x, sparseness, l2=rule)
        (expected,) = torch.autograd.grad((other**3).sum(), x)
        np.testing.assert_allclose(gradient, expected, atol=1e-14)

    def test_gradients_flow_to_targets(self, engine):
        x = torch.rand(6, dtype=torch.float64)
        sigma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        (expected,) = torch.autograd.grad((hoyer.project(x, sigma) ** 3).sum(), sigma)
        (gradient,) = torch.autograd.grad((hoyer.project_(x.clone(), sigma) ** 3).sum(), sigma)
        assert gradient == expected

    def test_tangents_are_those_of_the_result(self, engine):
        x, y = torch.rand(2, 6, dtype=torch.float64)
        with forward_ad.dual_level():
            expected = forward_ad.unpack_dual(hoyer.project(forward_ad.make_dual(x, y), 0.5))
            changed = forward_ad.make_dual(x.clone(), y)
            hoyer.project_(changed, 0.5)
            found = forward_ad.unpack_dual(changed)
            assert torch.equal(found.primal, expected.primal)
            assert torch.equal(found.tangent, expected.tangent)

    def test_a_refusal_leaves_the_graph_alone(self, engine):
        x = torch.rand(6, requires_grad=True)
        y = x.exp()
        with pytest.raises(ValueError, match=r"got 1\.5"):
            hoyer.project_(y, 1.5)
        y.sum().backward()
        assert torch.equal(x.grad, y)

    def test_views_that_show_negatives(self, engine):
        x = torch._neg_view(torch.randn(4, dtype=torch.float64))
        expected = hoyer.project(x.clone(), 0.5)
        assert torch.equal(hoyer.project_(x, 0.5), expected)

    def test_refusals(self, engine):
        with pytest.raises(TypeError, match=r"cannot store its result in a tensor of torch.int64"):
            hoyer.project_(torch.arange(4), 0.5)
        with pytest.raises(ValueError, match="share memory"):
            hoyer.project_(torch.rand(4).expand(3, 4), 0.5)

    def test_nothing_is_written_if_a_vector_is_bad(self, engine):
        x = torch.rand(3, 4)
        x[2, 1] = math.nan
        before = x.clone()
        with pytest.raises(ValueError, match="nan at entry 1 of vector 2"):
            hoyer.project_(x, 0.5)
        assert torch.equal(x.nan_to_num(7.0), before.nan_to_num(7.0))


class TestOut:
    def test_writes(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(4, 10)))
        out = torch.empty(10, 4, dtype=torch.float64).t()
        assert hoyer.project(x, 0.5, out=out) is out
        close(out, hoyer.project(x.numpy(), 0.5))
        hoyer.project(x, 0.5, out=x)
        assert torch.equal(x, out)

    def test_refusals(self, engine):
        x = torch.rand(4, 10)
        with pytest.raises(ValueError, match=r"out has shape \(4, 9\), the result has \(4, 10\)"):
            hoyer.project(x, 0.5, out=torch.empty(4, 9))
        with pytest.raises(
            ValueError, match=r"out has dtype torch.float64, the result has torch.f"
        ):
            hoyer.project(x, 0.5, out=torch.empty(4, 10, dtype=torch.float64))
        with pytest.raises(TypeError, match="out must be a tensor, not ndarray"):
            hoyer.project(x, 0.5, out=np.empty((4, 10), np.float32))
        with pytest.raises(ValueError, match="out overlaps x"):
            hoyer.project(x[:3], 0.5, out=x[1:])
        with pytest.raises(ValueError, match="share memory"):
            hoyer.project(x, 0.5, out=torch.empty(10).expand(4, 10))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(torch.rand(4, 10), torch.rand(4, 10))
            for given, out in ((dual, torch.empty(4, 10)), (x, dual)):
                with pytest.raises(RuntimeError, match="has a tangent: leave out="):
                    hoyer.project(given, 0.5, out=out)
        with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
            hoyer.project(x.requires_grad_(), 0.5, out=torch.empty(4, 10))

    def test_views_that_show_negatives(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(4, 10)))
        out = torch._neg_view(torch.zeros(4, 10, dtype=torch.float64))
        hoyer.project(x, 0.5, out=out)
        assert torch.equal(out, hoyer.project(x, 0.5))


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "kind", "text"),
        [
            ({"sparseness": 1.5}, ValueError, r"sparseness must lie in \[0, 1\], got 1.5"),
            ({"sparseness": torch.tensor([0.5, 1.5, 0.1])}, ValueError, "got 1.5 at index 1"),
            ({"l1": 9.0, "l2": 1.0}, ValueError, "l1=9.0 and l2=1.0 are impossible"),
            (
                {"l1": torch.tensor(9.0), "l2": 1.0},
                ValueError,
                "impossible for vectors of length 4",
            ),
            ({"sparseness": 0.5, "solver": "magic"}, ValueError, "unknown solver 'magic'"),
            (
                {"sparseness": 0.5, "nonnegative": 1},
                TypeError,
                "nonnegative=1: must be True or False",
            ),
            ({"sparseness": 0.5, "l2": "big"}, ValueError, "l2='big'"),
            ({}, ValueError, "is no target"),
            (
                {"sparseness": torch.rand(2)},
                ValueError,
                r"shape \(2,\) does not fit .* shape \(3,\)",
            ),
            ({"sparseness": "much"}, TypeError, "must be a real number"),
            ({"sparseness": torch.rand(3) + 1j}, TypeError, "has dtype torch.complex64"),
            (
                {"sparseness": 0.5, "l2": torch.ones(3).to(torch.float8_e4m3fn)},
                TypeError,
                "l2 has dtype torch.float8_e4m3fn: give real numbers as float16",
            ),
            ({"sparseness": 0.5, "axis": 2}, IndexError, "x has 2 axes"),
            ({"sparseness": 0.5, "axis": (0, -3)}, ValueError, "x has 2 axes"),
            ({"sparseness": 0.5, "axis": -1.0}, TypeError, "must be an int, a tuple of ints"),
            ({"sparseness": 0.5, "axis": True}, TypeError, "must be an int, a tuple of ints"),
            (
                {"sparseness": torch.rand(3).to_sparse()},
                TypeError,
                r"sparse_coo tensor: pass a dense one, sparseness.to_dense\(\)",
            ),
            (
                {"sparseness": [torch.tensor(0.5, requires_grad=True)] * 3},
                TypeError,
                r"give one tensor, torch.stack\(sparseness\)",
            ),
            ({"sparseness": 0.5, "axis": 1.0}, TypeError, "must be an int, a tuple of ints"),
            ({"sparseness": 0.5, "axis": (0, -2)}, ValueError, "names an axis twice"),
            ({"sparseness": 0.5, "axis": ()}, ValueError, "leaves nothing to project"),
            ({"sparseness": 0.5, "l2": 1e39}, ValueError, "does not fit float32"),
        ],
    )
    def test_bad_arguments(self, engine, arguments, kind, text):
        for x in (torch.rand(3, 4), torch.rand(3, 4, requires_grad=True)):
            with pytest.raises(kind, match=text):
                hoyer.project(x, **arguments)
            with pytest.raises(kind, match=text):
                hoyer.solve(x, **arguments)

    @pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's, about formats to come
    def test_bad_tensors(self, engine):
        with pytest.raises(TypeError, match=r"dtype torch.complex64"):
            hoyer.project(torch.zeros(3, dtype=torch.complex64), 0.5)
        with pytest.raises(TypeError, match=r"dtype torch.float8"):
            hoyer.project(torch.zeros(3).to(torch.float8_e4m3fn), 0.5)
        with pytest.raises(TypeError, match=r"sparse_coo tensor: pass a dense one"):
            hoyer.project(torch.eye(3).to_sparse(), 0.5)
        with pytest.raises(TypeError, match=r"sparse_csr tensor: pass a dense one"):
            hoyer.project(torch.eye(3).to_sparse_csr(), 0.5)
        for function in (hoyer.project, hoyer.project_, hoyer.solve):
            with pytest.raises(TypeError, match=r"mkldnn tensor: pass a dense one"):
                function(torch.eye(3).to_mkldnn(), 0.5)
            with pytest.raises(TypeError, match=r"nested tensor: pass the tensors in it one by"):
                function(torch.nested.nested_tensor([torch.rand(3), torch.rand(4)]), 0.5)
        with pytest.raises(ValueError, match="single number"):
            hoyer.project(torch.tensor(1.0), 0.5)
        with pytest.raises(ValueError, match="without entries"):
            hoyer.project(torch.zeros(3, 0), 0.5)
        with pytest.raises(ValueError, match="length 1 have no sparseness"):
            hoyer.project(torch.zeros(3, 1), 0.5)
        with pytest.raises(TypeError, match="does not take tensors"):
            hoyer.project_sparse(torch.rand(3, 4), 0.5)

    @pytest.mark.parametrize(
        "value", [True, np.True_, [True, False], torch.tensor(True), torch.tensor([True, False])]
    )
    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_true_and_false_are_no_targets(self, name, value, engine):
        given = {"sparseness": 0.5} | {name: value}
        text = rf"^{name}=.*: {name} must be a real number or .* booleans are not accepted"
        for function in (hoyer.project, hoyer.solve):
            with pytest.raises(TypeError, match=text):
                function(torch.rand(2, 9), **given)

    def test_true_is_no_norm_beside_a_tensor_on_a_device(self):
        l1 = torch.tensor(2.0, device="meta")
        with pytest.raises(TypeError, match="l2=True: l2 must be a real number"):
            hoyer.project(torch.rand(2, 9, device="meta"), l1=l1, l2=True)

    def test_what_is_no_tensor(self):
        with pytest.raises(TypeError, match=r"Linear, which is no tensor: pass one of its param"):
            hoyer.project(torch.nn.Linear(3, 4), 0.5)
        with pytest.raises(TypeError, match="symbolic_trace cannot follow hoyer"):
            torch.fx.symbolic_trace(lambda v: hoyer.project(v, 0.5))
        with pytest.raises(TypeError, match=r"measures works on NumPy arrays: pass x\.detach\(\)"):
            hoyer.measures.gini(torch.rand(3))
        sigma = torch.tensor(0.5, requires_grad=True)
        with pytest.raises(TypeError, match=r"make x a tensor as well, or pass sparseness.detach"):
            hoyer.project(np.arange(4.0), sigma)

    def test_mixed_devices(self, engine):
        x = torch.rand(3, 4)
        with pytest.raises(ValueError, match="sparseness is on meta and x on cpu"):
            hoyer.project(x, torch.zeros(3, device="meta"))
        with pytest.raises(ValueError, match="out has device meta, the result has cpu"):
            hoyer.project(x, 0.5, out=torch.empty(3, 4, device="meta"))
        with pytest.raises(ValueError, match="y is on meta, the projection on cpu"):
            hoyer.solve(x, 0.5).jvp(torch.zeros(3, 4, device="meta"))
        with pytest.raises(ValueError, match=r"y has shape \(4,\)"):
            hoyer.solve(x, 0.5).jvp(torch.zeros(4))

    def test_nan_and_infinity(self, engine):
        x = torch.rand(2, 3, 4)
        x[1, 0, 2] = math.inf
        for tensor in (x, x.clone().requires_grad_(), x.bfloat16()):
            with pytest.raises(ValueError, match=r"inf at entry 2 of vector \(1, 0\)"):
                hoyer.project(tensor, 0.5)

    def test_unchecked_bad_vectors_become_nan_alone(self, engine):
        x = torch.rand(5, 6, dtype=torch.float64)
        good = hoyer.project(x, 0.5)
        x[1, 2] = math.nan
        x[3, 0] = -math.inf
        for word in (1.0, "keep", "nearest"):
            for only in (False, True):
                found = hoyer.project(x, 0.5, l2=word, only_increase=only, check_finite=False)
                assert found[[1, 3]].isnan().all()
                assert not found[[0, 2, 4]].isnan().any()
        found = hoyer.project(x, 0.5, check_finite=False)
        assert torch.equal(found[[0, 2, 4]], good[[0, 2, 4]])

    def test_the_paper_s_solvers_need_the_core(self, monkeypatch):
        x = torch.rand(5)
        assert torch.allclose(hoyer.project(x, 0.5, solver="newton"), hoyer.project(x, 0.5))
        monkeypatch.setattr(engines, "core", None)
        with pytest.raises(ValueError, match=r"solver='newton' needs .* CPU tensors"):
            hoyer.project(x, 0.5, solver="newton")


class TestStandIns:
    def test_meta_tensors(self, engine):
        x = torch.empty(3, 4, 5, device="meta", dtype=torch.bfloat16)
        found = hoyer.project(x, 0.5, axis=(0, 2), l2="keep")
        assert (found.shape, found.dtype, found.device.type) == (x.shape, x.dtype, "meta")
        assert hoyer.sparseness(x, axis=1).shape == (3, 5)

    def test_fake_tensors(self, engine):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.empty(3, 4, requires_grad=True)
            found = hoyer.project(x, 0.5)
            assert (found.shape, found.device.type) == ((3, 4), "cpu")
            found.sum().backward()
            assert x.grad.shape == (3, 4)

    def test_tracing_by_make_fx(self, engine):
        from torch.fx.experimental.proxy_tensor import make_fx

        x = torch.rand(3, 4)
        graph = make_fx(lambda v: hoyer.project(v, 0.5) * 2)(x)
        other = torch.rand(3, 4)
        assert torch.equal(graph(other), 2 * hoyer.project(other, 0.5))

    def test_subclasses_without_storage_tricks(self, engine):
        class Plain(torch.Tensor):
            pass

        x = torch.rand(3, 4).as_subclass(Plain)
        close(hoyer.project(x, 0.5).as_subclass(torch.Tensor), hoyer.project(x.numpy(), 0.5), 1e9)

    def test_solve_says_where_it_does_not_work(self):
        with pytest.raises(TypeError, match="use project there"):
            hoyer.solve(torch.empty(3, device="meta"), 0.5)


class TestProjection:
    def test_pickle_and_repr(self, rng):
        found = hoyer.solve(torch.from_numpy(rng.normal(size=(3, 10))), 0.5, l2="keep")
        other = pickle.loads(pickle.dumps(found))
        assert torch.equal(other.value, found.value)
        y = torch.ones(3, 10, dtype=torch.float64)
        assert torch.equal(other.vjp(y), found.vjp(y))
        assert "one per vector" in repr(found)
        assert "support_size=" in repr(hoyer.solve(torch.rand(5), 0.5))

    def test_the_value_can_be_differentiated(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(3, 10))).requires_grad_()
        found = hoyer.solve(x, 0.5)
        (gradient,) = torch.autograd.grad((found.value**3).sum() + found.scale.sum(), x)
        y = torch.from_numpy(rng.normal(size=(3, 10)))
        moved = hoyer.solve(x.detach() + 1e-7 * y, 0.5)
        rate = ((moved.value**3).sum() + moved.scale.sum()) - (
            (found.value**3).sum() + found.scale.sum()
        ).detach()
        assert math.isclose(float(rate) / 1e-7, float((gradient * y).sum()), rel_tol=1e-4)

    @each_dtype
    def test_linear_operator(self, engine, dtype, rng):
        """NumPy arrays in and out."""
        pytest.importorskip("scipy")
        x, y = torch.from_numpy(rng.normal(size=(2, 12))).to(dtype)
        found = hoyer.solve(x.requires_grad_(), 0.6, l2="keep")
        operator = found.as_linear_operator()
        assert (
            operator.dtype == (x.float() if dtype == torch.bfloat16 else x).detach().numpy().dtype
        )
        numbers = y.double().numpy()
        close(found.jvp(y), operator @ numbers)
        close(found.vjp(y), operator.T @ numbers)
        assert (operator @ np.eye(12)).shape == (12, 12)
        assert operator.matvec(numbers).flags.writeable

    def test_products_can_be_differentiated(self, engine, rng):
        """They are linear in y."""
        x, y = torch.from_numpy(rng.normal(size=(2, 3, 10)))
        found, y = hoyer.solve(x, 0.5, l2="keep"), y.requires_grad_()
        for product, transposed in ((found.jvp, found.vjp), (found.vjp, found.jvp)):
            (gradient,) = torch.autograd.grad((product(y) * x).sum(), y)
            torch.testing.assert_close(gradient, transposed(x))
        one = hoyer.solve(x[0], 0.5)
        torch.testing.assert_close(torch.vmap(one.jvp)(x), torch.stack([one.jvp(row) for row in x]))

    def test_products_into_a_tensor(self, engine, rng):
        x, y = torch.from_numpy(rng.normal(size=(2, 3, 10)))
        found = hoyer.solve(x, 0.5, l2="keep")
        out = torch.empty(10, 3, dtype=torch.float64).t()
        assert found.vjp(y, out=out) is out
        assert torch.equal(out, found.vjp(y))
        expected = found.jvp(y)
        assert torch.equal(found.jvp(y, out=y), expected)
        with pytest.raises(ValueError, match="out has shape"):
            found.jvp(y, out=torch.empty(3, dtype=torch.float64))
        with pytest.raises(TypeError, match="out must be a tensor"):
            found.jvp(y, out=np.empty((3, 10)))

    def test_changing_the_value_does_not_change_the_derivatives(self, rng):
        x = torch.from_numpy(rng.normal(size=10))
        found = hoyer.solve(x, 0.6)
        before = found.jacobian()
        found.value.zero_()
        assert torch.equal(found.jacobian(), before)


class TestAutocastAndModes:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_autocast_changes_nothing(self, engine, dtype, rng):
        """The projection is exact in every type: it takes what it is given."""
        x = torch.from_numpy(rng.normal(size=(4, 10))).float().requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            found = hoyer.project(x, 0.6)
            (gradient,) = torch.autograd.grad((found**3).sum(), x)
        assert found.dtype == torch.float32
        assert torch.equal(found, hoyer.project(x, 0.6))
        (expected,) = torch.autograd.grad((hoyer.project(x, 0.6) ** 3).sum(), x)
        torch.testing.assert_close(gradient, expected)
        layer = torch.nn.Linear(10, 8)
        with torch.autocast("cpu", dtype=dtype):
            hidden = layer(x.detach())
            assert hidden.dtype == dtype
            assert hoyer.project(hidden, 0.6).dtype == dtype
            hoyer.project(hidden, 0.6, l2="keep").float().square().sum().backward()
        assert layer.weight.grad.isfinite().all()

    def test_inference_mode(self, engine):
        with torch.inference_mode():
            x = torch.rand(4, 10)
            expected = hoyer.project(x, 0.5)
            assert torch.equal(hoyer.project_(x, 0.5), expected)

    def test_copies_of_results(self, engine):
        found = hoyer.project(torch.rand(4, 10), 0.5)
        assert torch.equal(copy.deepcopy(found), found)


def test_without_the_core(run_python):
    """The plain path imports and runs where nothing was compiled."""
    text = run_python("""
        import sys
        sys.modules["hoyer._core"] = None
        import torch, hoyer
        x = torch.tensor([[1.0, 2.0, 3.0, 4.0]], requires_grad=True)
        p = hoyer.project(x, 0.5)
        p.pow(2).sum().backward()
        print([round(v, 3) for v in p[0].tolist()], hoyer.sparseness(p.detach()).item())
        print(hoyer.solve(x.detach(), 0.5).support_size.item())
    """)
    assert "[0.0, 0.146, 0.5, 0.854] 0.5" in text
    assert text.strip().endswith("3")


def test_no_framework_is_loaded_for_arrays(run_python):
    text = run_python("""
        import sys, hoyer
        hoyer.project([1.0, 2.0, 3.0], 0.5)
        print("torch" in sys.modules, "torch" in dir(hoyer))
    """)
    assert text.split() == ["False", "True"]


def solved(x, options):
    """The vectors in the last axis, with what derivatives need, by plain operations."""
    return engines.ARRAYS.solved(x, targets.plan_of(x, 1, options), 1)


class TestOtherDevices:
    """What runs there, on tensors without numbers: nothing can be asked of them."""

    @each_form
    @pytest.mark.parametrize("learnable", [False, True])
    def test_nothing_waits(self, form, learnable):
        given = dict(ARGUMENTS[form])
        x = torch.empty(3, 4, 50, device="meta", dtype=torch.float16)
        if learnable:
            given |= {
                name: torch.empty(4, device="meta")
                for name, value in given.items()
                if isinstance(value, float)
            }
        options = targets.as_given(options_of(**given), tensors.vectors_last(x, -1))
        at = solved(x, options)
        assert at.value.device.type == at.scale.device.type == "meta"
        assert at.value.dtype == torch.float16
        needed = (True, *(t is not None for t in targets.tensors_of(options)))
        results = functions.gradients(at, options[:3], (x, at.scale), needed)
        assert all((r is not None) == n for r, n in zip(results, needed, strict=True))
        value, scale = functions.tangents(at, options[:3], (x, *targets.tensors_of(options)))
        assert (value.shape, scale.shape) == (x.shape, (3, 4))

    def test_they_would_notice(self):
        total = torch.empty(3, device="meta").sum()
        for look in (total.item, total.__bool__, total.nonzero):
            with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
                look()

    def test_numbers_of_the_host_are_taken_along(self):
        """A tensor of no axes, a list or an array; where a device is, none of them waits."""
        x = torch.empty(3, 50, device="meta")
        sigma = torch.tensor(0.5, requires_grad=True)
        found = targets.as_given(options_of(sparseness=sigma, l2=2), tensors.vectors_last(x, -1))
        assert found.sparseness.device.type == "meta"
        assert found.sparseness.requires_grad
        for given in ([0.5, 0.6, 0.7], np.array([0.5, 0.6, 0.7])):
            found = targets.as_given(options_of(sparseness=given), tensors.vectors_last(x, -1))
            assert (found.sparseness.device.type, found.sparseness.shape) == ("meta", (3,))
        assert hoyer.project(x, sigma).requires_grad

    def test_numbers_are_still_checked(self):
        """What the host knows is an error there, too."""
        x = torch.empty(3, 50, device="meta")
        for sigma, text in ((1.5, "got 1.5"), (None, "is no target")):
            with pytest.raises(ValueError, match=text):
                solved(x, options_of(sparseness=sigma))
