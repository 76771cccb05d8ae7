"""Derivatives of tensors: against finite differences, the lemma's matrix and NumPy's products."""

import math
import weakref

import numpy as np
import pytest
from test_degenerate import NEGATIVE
from test_degenerate import TestNothingPositive as NothingPositive
from test_torch_functions import ARGUMENTS, DTYPES, options_of

torch = pytest.importorskip("torch")

from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import hoyer  # noqa: E402
from hoyer.families.torch import engines, functions, operators  # noqa: E402

each_form = pytest.mark.parametrize("form", ARGUMENTS)
LEARNABLE = {
    "sparseness": ({"sparseness": 0.55}, {}),
    "sparseness, keep": ({"sparseness": 0.55}, {"l2": "keep"}),
    "sparseness, nearest": ({"sparseness": 0.55}, {"l2": "nearest"}),
    "sparseness and l2": ({"sparseness": 0.55, "l2": 1.5}, {}),
    "sparseness and l1": ({"sparseness": 0.55, "l1": 1.5}, {}),
    "sparseness, l1 given": ({"sparseness": 0.55}, {"l1": 2.5}),
    "l1 and l2": ({"l1": 2.1, "l2": 1.2}, {}),
    "l1, l2 given": ({"l1": 2.1}, {"l2": 1.2}),
    "l2, l1 given": ({"l2": 1.2}, {"l1": 2.1}),
    "l2": ({"l2": 1.5}, {"sparseness": 0.55}),
    "only_increase": ({"sparseness": 0.3, "l2": 1.5}, {"only_increase": True}),
    "only_increase, l1": ({"sparseness": 0.3, "l1": 1.5}, {"only_increase": True}),
    "nonnegative, nearest": (
        {"sparseness": 0.5},
        {"nonnegative": True, "l2": "nearest", "only_increase": True},
    ),
}
each_learnable = pytest.mark.parametrize("case", LEARNABLE)

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.engines("torch/core", "torch/arrays"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]


@pytest.fixture
def x(rng):
    # Away from the places where the support changes within a finite difference.
    return torch.from_numpy(rng.normal(size=(3, 7)) + 0.3).requires_grad_()


@pytest.fixture
def few(rng):
    """Two vectors: finite differences take the square of the number of entries."""
    return torch.from_numpy(rng.normal(size=(2, 5)) + 0.3).requires_grad_()


def check_everything(function, inputs):
    """First and second derivatives, forward and reverse, alone and in batches."""
    assert gradcheck(
        function,
        inputs,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )
    assert gradgradcheck(
        function, inputs, check_fwd_over_rev=True, check_rev_over_rev=True, check_batched_grad=True
    )


def test_second_derivatives_of_batches_with_several_axes():
    x = torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    assert gradgradcheck(lambda x: hoyer.project(x, 0.6, l2="keep"), (x,))


class TestFiniteDifferences:
    @each_form
    def test_by_x(self, engine, form, few):
        check_everything(lambda v: hoyer.project(v, **ARGUMENTS[form]), (few,))

    @each_learnable
    def test_by_x_and_targets(self, engine, case, few):
        numbers, rest = LEARNABLE[case]
        names = list(numbers)
        targets = [
            torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in numbers.values()
        ]
        check_everything(
            lambda v, *t: hoyer.project(v, **dict(zip(names, t, strict=True)), **rest),
            (few, *targets),
        )

    @each_learnable
    def test_by_a_target_for_each_vector(self, engine, case, few):
        numbers, rest = LEARNABLE[case]
        names = list(numbers)
        steps = torch.tensor([0.0, 0.05], dtype=torch.float64)
        targets = [(value + steps).requires_grad_() for value in numbers.values()]

        def function(v, *t):
            return hoyer.project(v, **dict(zip(names, t, strict=True)), **rest)

        assert gradcheck(function, (few, *targets), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(function, (few, *targets), check_fwd_over_rev=True)

    @pytest.mark.parametrize("axis", [0, None, (0, 1)])
    def test_other_axes(self, engine, axis, few):
        sigma = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
        check_everything(lambda v, s: hoyer.project(v, s, l2="keep", axis=axis), (few, sigma))

    def test_of_sparseness(self, engine, few):
        check_everything(hoyer.sparseness, (few,))
        check_everything(lambda v: hoyer.sparseness(v, axis=None), (few,))

    def test_a_third_derivative(self, engine, rng):
        x, y, z, u = torch.from_numpy(rng.normal(size=(4, 6)))

        def along(f, direction):
            return lambda v: jvp(f, (v,), (direction,))[1]

        def f(v):
            return hoyer.project(v, 0.4, l2="nearest")

        second = along(along(f, y), z)
        third = along(second, u)(x)
        h = 1e-5
        numeric = (second(x + h * u) - second(x - h * u)) / (2 * h)
        torch.testing.assert_close(third, numeric, rtol=1e-5, atol=1e-7)


class TestAgainstTheLemma:
    @each_form
    def test_jacobians(self, engine, form, x):
        """jacrev == jacfwd == the matrix of fact 7 and 8, by NumPy's products."""
        rows = x.detach()
        expected = hoyer.solve(rows.numpy(), **ARGUMENTS[form]).jacobian()
        for jacobian in (jacrev, jacfwd):
            found = vmap(jacobian(lambda v: hoyer.project(v, **ARGUMENTS[form])))(rows)
            np.testing.assert_allclose(found, expected, atol=1e-13)

    def test_fixed_norms_by_hand(self, engine, x):
        """(E - Pi)/beta on the support, Pi the projector onto span{e, p}."""
        row = x.detach()[0].abs()
        found = hoyer.solve(row, 0.5)
        inside = found.value > 0
        p, e = found.value[inside], torch.ones(int(inside.sum()), dtype=torch.float64)
        basis, _ = torch.linalg.qr(torch.stack((e, p), 1))
        block = (torch.diag(e) - basis @ basis.T) / found.scale
        expected = torch.zeros(7, 7, dtype=torch.float64)
        expected[inside.nonzero(), inside.nonzero().T] = block
        torch.testing.assert_close(jacrev(lambda v: hoyer.project(v, 0.5))(row), expected)

    @pytest.mark.parametrize(
        "target",
        [{"l1": 2.0, "l2": 1.0}, {"l1": 1.5, "l2": 1.0}, {"sparseness": 1.0}, {"sparseness": 0.0}],
    )
    def test_ties_and_ends(self, engine, target):
        rows = torch.tensor([[7.0, 1, 7, 5, 7, -7, 0], [2.0, 2, 2, 2, 2, 2, 2], [0.0] * 7]).double()
        expected = hoyer.solve(rows.numpy(), **target).jacobian()
        for jacobian in (jacrev, jacfwd):
            found = vmap(jacobian(lambda v: hoyer.project(v, **target)))(rows)
            np.testing.assert_allclose(found, expected, atol=1e-15)
        watched = rows.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(hoyer.project(watched, **target)[:, 1].sum(), watched)
        np.testing.assert_allclose(gradient, expected[:, 1], atol=1e-15)

    @pytest.mark.parametrize("word", ["keep", "nearest"])
    def test_zero_vectors_have_finite_gradients(self, engine, word):
        x = torch.zeros(2, 5, dtype=torch.float64)
        x[1] = torch.arange(5.0)
        x.requires_grad_()
        sigma = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        found = hoyer.project(x, sigma, l2=word)
        gradients = torch.autograd.grad(
            (found**2).sum() + found.sum(), (x, sigma), create_graph=True
        )
        assert all(g.isfinite().all() for g in gradients)
        again = torch.autograd.grad(gradients[0].sum(), (x, sigma))
        assert all(g.isfinite().all() for g in again)

    def test_target_gradients_at_the_ends(self, engine):
        x = torch.rand(4, 6, dtype=torch.float64)
        for end in (0.0, 1.0):
            sigma = torch.tensor(end, dtype=torch.float64, requires_grad=True)
            for word in (1.0, "keep", "nearest"):
                (gradient,) = torch.autograd.grad(hoyer.project(x, sigma, l2=word).sum(), sigma)
                assert gradient == 0

    @pytest.mark.parametrize("scale", [1e-200, 1e200])
    def test_extreme_scales(self, engine, scale, rng):
        """p does not depend on the scale of x, so its derivative is that of x over the scale."""
        x, y = torch.from_numpy(rng.normal(size=(2, 4, 8)))
        watched = (x * scale).requires_grad_()
        (found,) = torch.autograd.grad(hoyer.project(watched, 0.6), watched, y)
        plain = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(hoyer.project(plain, 0.6), plain, y)
        np.testing.assert_allclose(found * scale, expected, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("word", ["keep", "nearest"])
    def test_subnormal_vectors(self, engine, word, rng):
        """The result scales with x, so its derivative does not depend on the scale."""
        x, y = torch.from_numpy(rng.normal(size=(2, 4, 8)))
        small, large = (x * 1e-310).requires_grad_(), (x * 1e-310 * 2.0**1000).requires_grad_()
        found, expected = (
            torch.autograd.grad(hoyer.project(v, 0.6, l2=word), v, y)[0] for v in (small, large)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        found, expected = (
            jvp(lambda v: hoyer.project(v, 0.6, l2=word), (v.detach(),), (y,))[1]
            for v in (small, large)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("word", [1.0, "keep", "nearest"])
    def test_other_types(self, engine, dtype, word, rng):
        x, y = torch.from_numpy(rng.normal(size=(2, 4, 30)))
        x, y = x.to(dtype), y.to(dtype)
        sigma = torch.tensor(0.6, requires_grad=True)
        watched = x.clone().requires_grad_()
        found = torch.autograd.grad(hoyer.project(watched, sigma, l2=word), (watched, sigma), y)
        wide, s = (
            x.double().requires_grad_(),
            torch.tensor(sigma.item(), dtype=torch.float64).requires_grad_(),
        )
        expected = torch.autograd.grad(hoyer.project(wide, s, l2=word), (wide, s), y.double())
        assert (found[0].dtype, found[1].dtype) == (dtype, torch.float32)
        eps = max(torch.finfo(dtype).eps, 1e-7)
        assert (found[0].double() - expected[0]).abs().max() <= 16 * eps * expected[0].abs().max()
        assert math.isclose(found[1], expected[1], rel_tol=200 * eps, abs_tol=200 * eps)


@pytest.mark.parametrize("form", [{}, {"l2": "keep"}, {"l2": "nearest"}])
@pytest.mark.engines("torch/arrays")
def test_higher_derivatives_of_nearly_constant_results(engine, form, few):
    def function(v):
        return hoyer.project(v, 1e-4, **form)

    assert gradcheck(function, (few,), check_forward_ad=True)
    assert gradgradcheck(function, (few,), check_fwd_over_rev=True)


@pytest.mark.parametrize("name", ["l1", "l2"])
def test_by_the_norm_of_vectors_without_a_positive_entry(engine, name, rng):
    """They become one-hot: only the norm moves them."""
    x = torch.tensor(NothingPositive.vectors[:3])
    y = torch.from_numpy(rng.normal(size=(3, 4)))
    norm = torch.tensor([1.5, 2.0, 2.5], dtype=torch.float64)
    sigma = torch.full_like(norm, 0.5).requires_grad_()
    norm.requires_grad_()
    value = hoyer.project(x, sigma, **{name: norm}, **NEGATIVE)
    by_norm, by_sigma = torch.autograd.grad(value, (norm, sigma), y)
    torch.testing.assert_close(by_norm, (value * y).sum(-1).detach() / norm.detach())
    assert (by_sigma == 0).all()


class TestTransformations:
    @each_form
    def test_every_way_to_a_hessian(self, engine, form, x):
        rows = x.detach()

        def f(v):
            return (hoyer.project(v, **ARGUMENTS[form]) ** 3).sum()

        expected = torch.stack([torch.autograd.functional.hessian(f, row) for row in rows])
        for outer in (jacfwd, jacrev):
            for inner in (jacfwd, jacrev):
                torch.testing.assert_close(vmap(outer(inner(f)))(rows), expected)
        torch.testing.assert_close(vmap(hessian(f))(rows), expected)

    def test_grad_jvp_vjp(self, engine, x, rng):
        rows, y = x.detach(), torch.from_numpy(rng.normal(size=(3, 7)))
        solved = hoyer.solve(rows, 0.6, l2="keep")

        def f(v):
            return hoyer.project(v, 0.6, l2="keep")

        value, tangent = jvp(f, (rows,), (y,))
        assert torch.equal(value, solved.value)
        torch.testing.assert_close(tangent, solved.jvp(y))
        torch.testing.assert_close(vjp(f, rows)[1](y)[0], solved.vjp(y))
        torch.testing.assert_close(grad(lambda v: (f(v) * y).sum())(rows), solved.vjp(y))

    def test_vmap_over_everything(self, engine, rng):
        """x, sparseness and norms, each mapped or not, along any axis, nested."""
        x = torch.from_numpy(rng.normal(size=(4, 3, 6)))
        sigma, l2 = torch.from_numpy(rng.uniform(0.3, 0.8, size=(2, 4)))

        def by_hand(axis, sigmas, norms):
            parts = [
                hoyer.project(x.select(axis, i), s, l2=n)
                for i, (s, n) in enumerate(zip(sigmas, norms, strict=True))
            ]
            return torch.stack(parts)

        def f(v, s, n):
            return hoyer.project(v, s, l2=n)

        s, n = sigma[0], l2[0]
        cases = [
            (0, (0, 0, 0), (x, sigma, l2), by_hand(0, sigma, l2)),
            (0, (0, None, None), (x, s, n), by_hand(0, [s] * 4, [n] * 4)),
            (0, (0, 0, None), (x, sigma, n), by_hand(0, sigma, [n] * 4)),
            (1, (1, 0, None), (x, sigma[:3], n), by_hand(1, sigma[:3], [n] * 3)),
        ]
        for _, dims, arguments, expected in cases:
            torch.testing.assert_close(vmap(f, dims)(*arguments), expected)
        many = vmap(lambda t: hoyer.project(x, t))(sigma)
        torch.testing.assert_close(many, torch.stack([hoyer.project(x, t) for t in sigma]))
        nested = vmap(vmap(f, (0, None, None)), (0, 0, 0))(x, sigma, l2)
        torch.testing.assert_close(nested, by_hand(0, sigma, l2))
        inner = vmap(lambda v: hoyer.project(v, 0.5, axis=0), in_dims=2, out_dims=2)(x)
        torch.testing.assert_close(inner, hoyer.project(x, 0.5, axis=0))
        torch.testing.assert_close(vmap(hoyer.sparseness)(x), hoyer.sparseness(x))

    def test_a_target_per_vector_under_vmap(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(4, 3, 6)))
        sigma = torch.from_numpy(rng.uniform(0.3, 0.8, size=(4, 3)))
        torch.testing.assert_close(vmap(hoyer.project)(x, sigma), hoyer.project(x, sigma))
        torch.testing.assert_close(
            vmap(hoyer.project, (0, None))(x, sigma[0]), hoyer.project(x, sigma[0])
        )

    def test_per_sample_gradients(self, engine, rng):
        x = torch.from_numpy(rng.normal(size=(5, 6)))
        sigma = torch.tensor(0.5, dtype=torch.float64)

        def loss(s, v):
            return (hoyer.project(v, s, l2="nearest") ** 4).sum()

        found = vmap(grad(loss), (None, 0))(sigma, x)
        expected = torch.stack([grad(loss)(sigma, row) for row in x])
        torch.testing.assert_close(found, expected)

    def test_inside_of_autograd(self, engine, rng):
        """A transformed function in an ordinary graph."""
        x = torch.from_numpy(rng.normal(size=(4, 6))).requires_grad_()
        found = vmap(lambda v: hoyer.project(v, 0.5))(x)
        (gradient,) = torch.autograd.grad((found**3).sum(), x)
        (expected,) = torch.autograd.grad((hoyer.project(x, 0.5) ** 3).sum(), x)
        torch.testing.assert_close(gradient, expected)


class TestWhatIsSaved:
    @pytest.mark.parametrize(
        ("arguments", "numbers"),
        [
            ({}, 1),
            ({"l2": 2.0}, 1),
            ({"l2": "nearest"}, 2),
            ({"l2": "keep"}, 2),
            ({"only_increase": True}, 1.125),
            ({"l1": 2.0, "only_increase": True}, 1.125),
            ({"l2": "keep", "only_increase": True}, 2.125),
        ],
    )
    @pytest.mark.parametrize("axis", [1, 0])
    @pytest.mark.parametrize("learnable", [False, True])
    def test_the_output_and_a_few_numbers(self, arguments, numbers, axis, learnable):
        """The scale, the norm where no target tells it, and a byte for `only_increase`."""
        x = torch.randn(50, 50, dtype=torch.float64, requires_grad=True)
        sigma = torch.tensor(0.6, dtype=torch.float64, requires_grad=True) if learnable else 0.6
        sizes = {}

        def pack(tensor):
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            found = hoyer.project(x, sigma, axis=axis, **arguments)
        assert (x.data_ptr() in sizes) == (arguments.get("l2") == "keep")
        known = {found.data_ptr(), x.data_ptr()} | ({sigma.data_ptr()} if learnable else set())
        assert found.data_ptr() in sizes
        per_vector = sum(size for pointer, size in sizes.items() if pointer not in known) / 8 / 50
        assert per_vector <= numbers

    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_norms_that_follow_from_targets(self, name, rng):
        """They are not saved but asked for again: of all vectors, or of each."""
        x, y = torch.from_numpy(rng.normal(size=(2, 4, 9)))
        number = {"sparseness": 0.6, "l1": 2.5, "l2": 1.5}
        other = {"sparseness": {"l1": 2.5}, "l1": {"l2": 1.5}, "l2": {"l1": 2.5}}[name]
        for shape in ((), (4,), (1,)):
            target = torch.full(shape, number[name], dtype=torch.float64)
            watched = x.clone().requires_grad_()
            (found,) = torch.autograd.grad(
                hoyer.project(watched, **{name: target}, **other), watched, y
            )
            expected = hoyer.solve(x, **{name: number[name]}, **other).vjp(y)
            torch.testing.assert_close(found, expected)

    def test_zeros_without_memory(self, rng):
        """PyTorch has tensors of zeros that hold none, whose address must not be read."""
        x = torch.from_numpy(rng.normal(size=(3, 16))).requires_grad_()
        zeros = torch._efficientzerotensor((3, 16), dtype=torch.float64)
        plain = torch.zeros(3, 16, dtype=torch.float64)
        assert not torch.autograd.grad(hoyer.project(x, 0.6), x, zeros)[0].any()
        assert not hoyer.solve(x.detach(), 0.6).vjp(zeros).any()
        assert torch.equal(hoyer.project(zeros, 0.6), hoyer.project(plain, 0.6))
        assert torch.equal(hoyer.solve(zeros, 0.6).value, hoyer.project(plain, 0.6))

    def test_solve_projects_once(self, monkeypatch, rng):
        calls = []
        project = engines.CORE._project

        def counted(*arguments, **options):
            calls.append(1)
            return project(*arguments, **options)

        monkeypatch.setattr(engines.CORE, "_project", counted)
        x = torch.from_numpy(rng.normal(size=(5, 4))).requires_grad_()
        assert hoyer.solve(x, 0.5).value.requires_grad
        assert len(calls) == 1

    @pytest.mark.parametrize("rows", [3, 500])
    def test_a_finished_graph_holds_no_memory(self, rows):
        x = torch.randn(rows, 40, requires_grad=True) * 1
        found = hoyer.project(x, 0.5, l2="keep")
        given = weakref.ref(x)
        loss = found.square().sum()
        loss.backward()
        del x, found
        assert given() is None

    def test_results_can_be_resized(self):
        x = torch.randn(16, requires_grad=True)
        assert hoyer.project(x, 0.5).detach().resize_(100).shape == (100,)

    def test_results_must_not_change_before_the_backward_pass(self):
        x = torch.randn(16, requires_grad=True)
        found = hoyer.project(x, 0.5)
        found.detach().zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.sum().backward()

    def test_sparseness_keeps_one_wide_copy(self, rng):
        x = torch.from_numpy(rng.normal(size=(50, 40))).float().requires_grad_()
        sizes = {}

        def pack(tensor):
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            hoyer.sparseness(x)
        sizes.pop(x.data_ptr(), None)
        assert sum(sizes.values()) <= 1.5 * 8 * x.numel()

    def test_no_second_order_work_in_a_first_order_pass(self, monkeypatch, rng):
        """The gradient by x comes from the core in one pass."""

        def refuse(*_, **__):
            raise AssertionError("plain formulas were used")

        monkeypatch.setattr(functions, "gradients", refuse)
        x = torch.from_numpy(rng.normal(size=(5, 4))).requires_grad_()
        hoyer.project(x, 0.5, l2="keep").sum().backward()
        hoyer.project(x, 0.5, axis=0).sum().backward()
        assert x.grad.isfinite().all()


class TestClosedForm:
    """The formula for transformations inside compiled code, against Algorithm 3."""

    @each_learnable
    def test_derivatives_agree(self, case, x, monkeypatch):
        numbers, rest = LEARNABLE[case]
        names = list(numbers)
        targets = [torch.tensor(v, dtype=torch.float64) for v in numbers.values()]

        def project(v, *t):
            return hoyer.project(v, **dict(zip(names, t, strict=True)), **rest)

        def closed(v, *t):
            return operators._project_smoothly(
                v, options_of(**dict(zip(names, t, strict=True)), **rest), 1
            )

        arguments = (x.detach(), *targets)
        everything = tuple(range(len(arguments)))
        for mine, other in zip(
            jacfwd(closed, everything)(*arguments),
            jacrev(project, everything)(*arguments),
            strict=True,
        ):
            torch.testing.assert_close(mine, other)

    @pytest.mark.parametrize("form", [{"l2": 1.5}, {"l1": 1.5}, {"l2": "keep"}, {"l2": "nearest"}])
    def test_vectors_that_become_one_hot(self, form, monkeypatch):
        """Without a positive entry: what they are does not depend on x, but for a norm kept."""
        monkeypatch.setattr(engines, "core", None)
        x = torch.tensor([[-1.0, -2, -3, -4], [-3.0, 0, -1, -2]], dtype=torch.float64)
        options = {"sparseness": 0.5, "nonnegative": True, "only_increase": True}
        numbers = {k: x.new_tensor(v) for k, v in form.items() if not isinstance(v, str)}

        def project(v, *t):
            given = form | dict(zip(numbers, t, strict=True))
            return hoyer.project(v, **options, **given)

        def closed(v, *t):
            given = form | dict(zip(numbers, t, strict=True))
            return operators._project_smoothly(v, options_of(**options, **given), 1)

        arguments = (x, *numbers.values())
        everything = tuple(range(len(arguments)))
        for mine, other in zip(
            jacfwd(closed, everything)(*arguments),
            jacrev(project, everything)(*arguments),
            strict=True,
        ):
            torch.testing.assert_close(mine, other)


def test_sparseness_of_zero_rows_has_no_gradient(engine, rng):
    """It is NaN there; who leaves that out is not punished by the gradient."""
    x = torch.from_numpy(rng.normal(size=(3, 6)))
    x[1] = 0
    x.requires_grad_()
    found = hoyer.sparseness(x)
    assert found.isnan().tolist() == [False, True, False]
    (gradient,) = torch.autograd.grad(found.nansum(), x)
    others = x.detach()[[0, 2]].requires_grad_()
    (expected,) = torch.autograd.grad(hoyer.sparseness(others).sum(), others)
    torch.testing.assert_close(gradient[[0, 2]], expected)
    assert (gradient[1] == 0).all()


def test_bad_rows_have_gradients_of_their_own(engine):
    """NaN stays in its row."""
    x = torch.rand(3, 5, dtype=torch.float64)
    x[1, 2] = math.nan
    x.requires_grad_()
    found = hoyer.project(x, 0.5, check_finite=False)
    y = torch.rand(3, 5, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(found, x, y)
    good = x.detach()[[0, 2]].requires_grad_()
    (expected,) = torch.autograd.grad(hoyer.project(good, 0.5), good, y[[0, 2]])
    torch.testing.assert_close(gradient[[0, 2]], expected)


def test_gradients_that_are_not_contiguous(engine, x, rng):
    y = torch.from_numpy(rng.normal(size=(7, 3))).t()
    solved = hoyer.solve(x.detach(), 0.6)
    (found,) = torch.autograd.grad(hoyer.project(x, 0.6), x, y)
    torch.testing.assert_close(found, solved.vjp(y.contiguous()))
    (found,) = torch.autograd.grad(hoyer.project(x, 0.6).sum(), x)
    torch.testing.assert_close(found, solved.vjp(torch.ones(3, 7)))


class TestOneTargetForAll:
    """What the core sums over all vectors, beside what is said about each of them."""

    @each_learnable
    def test_its_gradient_is_the_sum(self, case, rng):
        learned, others = LEARNABLE[case]
        x = torch.from_numpy(rng.normal(size=(3, 5, 12))).requires_grad_()
        y = torch.from_numpy(rng.normal(size=(3, 5, 12)))
        grads = []
        for shape in ((), (1,), (5,), (3, 5)):
            targets = {
                name: torch.full(shape, number, dtype=torch.float64, requires_grad=True)
                for name, number in learned.items()
            }
            value = hoyer.project(x, **targets, **others)
            found = torch.autograd.grad(value, (x, *targets.values()), y)
            grads.append([found[0], *(gradient.sum() for gradient in found[1:])])
            assert [tuple(gradient.shape) for gradient in found[1:]] == [shape] * len(targets)
        for found in grads[1:]:
            torch.testing.assert_close(found, grads[0], rtol=1e-12, atol=1e-12)

    def test_of_its_own_type(self, rng):
        x = torch.from_numpy(rng.normal(size=(7, 30))).float().requires_grad_()
        for dtype in (torch.float16, torch.float32, torch.float64):
            sigma = torch.tensor(0.5, dtype=dtype, requires_grad=True)
            hoyer.project(x, sigma).sum().backward()
            assert sigma.grad.dtype == dtype

    def test_no_vectors(self):
        x, sigma = torch.empty(0, 4, requires_grad=True), torch.tensor(0.5, requires_grad=True)
        hoyer.project(x, sigma).sum().backward()
        assert sigma.grad == 0


@each_form
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_do_not_depend_on_strides(form, dtype, rng):
    """Of contiguous vectors the core writes the norms beside the scales; of others, records."""
    x = torch.from_numpy(rng.normal(size=(9, 20))).to(dtype)
    y = torch.from_numpy(rng.normal(size=(9, 20))).to(dtype)
    grads = []
    for given in (x.clone(), x.t().contiguous().t(), torch.stack([x, x], -1)[..., 0]):
        given.requires_grad_()
        grads.append(torch.autograd.grad(hoyer.project(given, **ARGUMENTS[form]), given, y)[0])
    assert torch.equal(grads[0], grads[1])
    assert torch.equal(grads[0], grads[2])


def test_a_gradient_too_large_for_its_type_is_infinite():
    sigma = torch.tensor(0.5, requires_grad=True)
    x = torch.tensor([4.0, 3.0, -2.0, 1.0, 0.5])
    value = hoyer.project(x, sigma, l2="keep")
    value.backward(torch.tensor([3e38, 0.0, 0.0, 0.0, 0.0]))
    assert sigma.grad.isinf()


RULES = {
    "plain": {"sparseness": 0.7},
    "keep": {"sparseness": 0.7, "l2": "keep"},
    "nearest": {"sparseness": 0.7, "l2": "nearest"},
    "increase": {"sparseness": 0.7, "only_increase": True},
    "ball": {"l1": 1.5, "at_most": True},
    "learned": {"sparseness": torch.tensor(0.7, requires_grad=True)},
}


def cubed(x, given):
    learned = [t for t in given.values() if isinstance(t, torch.Tensor)]
    return torch.autograd.grad((hoyer.project(x, **given) ** 3).sum(), [x, *learned])


@pytest.mark.parametrize("rule", RULES)
def test_the_default_device_does_not_matter(rule):
    x = torch.randn(4, 20, requires_grad=True)
    expected = cubed(x, RULES[rule])
    with torch.device("meta"):
        found = cubed(x, RULES[rule])
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("rule", RULES)
def test_what_hooks_make_of_saved_tensors(rule):
    """They may lie elsewhere, and have gaps."""

    def unpack(saved):
        if saved.dim() == 0:
            return saved
        apart = torch.full((*saved.shape, 2), 7, dtype=saved.dtype)
        apart[..., 0] = saved
        return apart[..., 0]

    x = torch.randn(4, 20, requires_grad=True)
    expected = cubed(x, RULES[rule])
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), unpack):
        found = cubed(x, RULES[rule])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
