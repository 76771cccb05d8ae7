"""Tensors that share a sparseness: derivatives, transformations, and steps of optimizers."""

import copy

import numpy as np
import pytest

import hoyer

torch = pytest.importorskip("torch")
from hoyer.torch import ProjectAfterStep, schedules  # noqa: E402

pytestmark = pytest.mark.usefixtures("torch_seed")

OPTIONS = [
    {},
    {"axis": -1},
    {"relative": True},
    {"nonnegative": True},
    {"l2": 2.0},
    {"floor": 0.45},
    {"weights": [1.0, 2.0, 3.0]},
    {"only_increase": True},
    {"relative": True, "axis": [0, 1, 0], "nonnegative": True},
]


def tensors(dtype=torch.float64):
    shapes = ((7,), (3, 5), (4,))
    return [(torch.randn(*shape, dtype=torch.float64) * 3).to(dtype) for shape in shapes]


def together(*xs, **options):
    """The results as a tuple, which checks of gradients take."""
    sparseness, *arrays = xs
    return tuple(hoyer.project_together(list(arrays), sparseness, **options))


class TestDerivatives:
    @pytest.mark.parametrize("options", OPTIONS, ids=str)
    def test_against_differences(self, options):
        given = torch.tensor(0.55, dtype=torch.float64), *tensors()
        given = [x.requires_grad_() for x in given]

        def function(*xs):
            return together(*xs, **options)

        check = torch.autograd.gradcheck
        assert check(function, given, atol=1e-6, check_forward_ad=True)

    @pytest.mark.parametrize("options", [{}, {"relative": True, "axis": -1}], ids=str)
    def test_second_derivatives(self, options):
        given = torch.tensor(0.55, dtype=torch.float64), *tensors()
        given = [x.requires_grad_() for x in given]
        check = torch.autograd.gradgradcheck
        assert check(lambda *xs: together(*xs, **options), given, atol=1e-5)

    def test_by_the_norms(self):
        norms = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
        xs = tensors()
        check = torch.autograd.gradcheck
        assert check(lambda n: tuple(hoyer.project_together(xs, 0.5, l2=list(n))), (norms,))

    def test_the_mean_stays(self):
        """Whatever the entries do, nothing changes the mean of the results."""
        xs = [x.requires_grad_() for x in tensors()]
        found = hoyer.project_together(xs, 0.6)
        mean = sum(hoyer.sparseness(p, axis=None) for p in found) / 3
        for gradient in torch.autograd.grad(mean, xs):
            assert gradient.abs().max() < 1e-13

    def test_where_a_vector_takes_what_others_leave(self):
        """Of equal entries the first is made larger, and does not move with them."""
        xs = [torch.ones(4, dtype=torch.float64), tensors()[0]]
        sigma = torch.tensor(0.4, dtype=torch.float64)
        given = [x.requires_grad_() for x in (sigma, *xs)]
        found = together(*given)
        shares = [hoyer.sparseness(p) for p in found]
        assert 0 < shares[0] < 1
        (by_mean,) = torch.autograd.grad(shares[0], sigma, retain_graph=True)
        assert abs(by_mean - 2) < 1e-12
        gradient = torch.autograd.grad(shares[0] + shares[1], given[2], retain_graph=True)[0]
        assert gradient.abs().max() < 1e-13

    @pytest.mark.parametrize("options", [{"only_increase": True}, {"floor": 0.2}], ids=str)
    def test_vectors_at_their_bounds(self, options):
        xs = [torch.tensor([3.0, 0.1, 0.0, 0.0, 0.0], dtype=torch.float64).requires_grad_()]
        (found,) = hoyer.project_together(xs, 0.2, **options)
        (gradient,) = torch.autograd.grad((found**2).sum(), xs)
        # The norm is kept.
        np.testing.assert_allclose(gradient, 2 * xs[0].detach(), atol=1e-12)

    def test_sizes_at_the_ends_of_the_range(self):
        for size in (1e-200, 1e200):
            given = [x.mul(size).requires_grad_() for x in tensors()]
            plain = [(x.detach() / size).requires_grad_() for x in given]
            wanted, found = (
                torch.autograd.grad(sum(p[..., 0].sum() for p in together(0.6, *xs)), xs)
                for xs in (plain, given)
            )
            for a, b in zip(wanted, found, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_narrow_types(self, dtype):
        xs = [x.requires_grad_() for x in tensors(dtype)]
        wide = [x.detach().double().requires_grad_() for x in xs]
        ours, exact = (
            torch.autograd.grad(sum((p.float() ** 2)[..., 0].sum() for p in together(0.6, *a)), a)
            for a in (xs, wide)
        )
        for a, b in zip(ours, exact, strict=True):
            assert a.dtype == dtype
            eps = torch.finfo(dtype).eps
            np.testing.assert_allclose(a.double(), b, atol=60 * eps * b.abs().max())

    def test_plain_operations_give_the_same(self, monkeypatch):
        from hoyer.families.torch import engines

        def gradients():
            xs = [x.clone().requires_grad_() for x in given]
            found = together(0.6, *xs, axis=-1)
            return *found, *torch.autograd.grad(sum(p[..., 0].sum() for p in found), xs)

        given = tensors()
        wanted = gradients()
        monkeypatch.setattr(engines, "core", None)
        for a, b in zip(gradients(), wanted, strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), atol=1e-12)


class TestTransformations:
    def test_torch_func(self):
        first, _, third = tensors()

        def value(x):
            return (hoyer.project_together([x, first], 0.5)[0] ** 3).sum()

        x = third.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(value(x), x)
        np.testing.assert_allclose(torch.func.grad(value)(third), wanted, atol=1e-13)
        along = torch.randn_like(third)
        _, moved = torch.func.jvp(value, (third,), (along,))
        np.testing.assert_allclose(moved, (wanted * along).sum(), atol=1e-12)

    def test_compiled_code_leaves_its_graph(self):
        xs = tensors()

        @torch.compile(backend="eager")
        def function(x, y):
            return hoyer.project_together([x * 2, y], 0.5)

        for p, q in zip(function(xs[0], xs[2]), together(0.5, xs[0] * 2, xs[2]), strict=True):
            np.testing.assert_allclose(p, q, atol=1e-14)

    def test_parameters_by_name(self):
        model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 2))
        given = {name: w for name, w in model.named_parameters() if w.dim() > 1}
        found = hoyer.project_together(given, 0.6)
        assert list(found) == ["0.weight", "1.weight"]
        mean = sum(float(hoyer.sparseness(p.detach().double(), axis=None)) for p in found.values())
        assert abs(mean / 2 - 0.6) < 1e-6
        with pytest.raises(TypeError, match="a list or a dict, such as"):
            hoyer.project_together(model.named_parameters(), 0.6)
        with pytest.raises(TypeError, match="is a module"):
            hoyer.project_together(model, 0.6)

    def test_out_and_gradients(self):
        xs = [x.requires_grad_() for x in tensors()]
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            hoyer.project_together(xs, 0.5, out=[torch.empty_like(x) for x in xs])
        with torch.no_grad():
            hoyer.project_together(xs, 0.5, out=xs)
        mean = sum(float(hoyer.sparseness(x.detach(), axis=None)) for x in xs) / 3
        assert abs(mean - 0.5) < 1e-14

    def test_a_mean_out_of_range(self):
        for mean in (torch.tensor(1.5), torch.tensor(-0.1)):
            with pytest.raises(ValueError, match=r"sparseness must lie in \[0, 1\]"):
                hoyer.project_together(tensors(), mean)
        with pytest.raises(ValueError, match="the mean is one number"):
            hoyer.project_together(tensors(), torch.tensor([0.5, 0.5]))


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(144, 12),
        torch.nn.ReLU(),
        torch.nn.Linear(12, 3),
    ).double()


def weights_of(model):
    return [(layer, "weight") for layer in model if hasattr(layer, "weight")]


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.randn(4, 1, 8, 8, dtype=torch.float64)).square().sum().backward()
    optimizer.step()


def mean_of(model, dim=None):
    shares = []
    for layer, name in weights_of(model):
        weight = getattr(layer, name).detach()
        axes = tuple(range(1, weight.dim())) if dim == "inputs" else None
        shares.append(hoyer.sparseness(weight, axis=axes).reshape(-1))
    return float(torch.cat(shares).mean())


class TestProjectAfterStep:
    @pytest.mark.parametrize("dim", [None, "inputs"])
    @pytest.mark.parametrize("options", [{}, {"relative": True, "floor": 0.5}], ids=str)
    def test_one_number_for_a_network(self, dim, options):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = ProjectAfterStep(
            optimizer, weights_of(model), 0.8, dim=dim, together=True, **options
        )
        for _ in range(3):
            step(model, optimizer)
            assert abs(mean_of(model, dim) - 0.8) < 1e-13
        handle.sparseness = 0.85
        step(model, optimizer)
        assert abs(mean_of(model, dim) - 0.85) < 1e-13
        assert "together=True" in repr(handle)

    def test_weights_of_the_mean(self):
        model = network()
        given = weights_of(model)
        sizes = [float(getattr(layer, name).numel()) for layer, name in given]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        ProjectAfterStep(optimizer, given, 0.8, dim=None, together=True, weights=sizes)
        step(model, optimizer)
        shares = [float(hoyer.sparseness(layer.weight.detach(), axis=None)) for layer, _ in given]
        assert abs(np.average(shares, weights=sizes) - 0.8) < 1e-13

    def test_with_a_schedule_and_copies(self):
        model = network()
        optimizer = torch.optim.Adam(model.parameters())
        schedule = schedules.linear(0.4, 0.9, steps=4)
        options = {"dim": None, "together": True, "floor": 0.5, "schedule": schedule}
        ProjectAfterStep(optimizer, weights_of(model), 0.9, **options)
        means = []
        for _ in range(4):
            step(model, optimizer)
            means.append(mean_of(model))
        assert means == sorted(means)
        assert abs(means[-1] - 0.9) < 1e-12
        model, optimizer = copy.deepcopy((model, optimizer))
        step(model, optimizer)
        assert abs(mean_of(model) - 0.9) < 1e-12

    def test_an_overflow_leaves_everything(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = ProjectAfterStep(optimizer, weights_of(model), 0.8, dim=None, together=True)
        before = copy.deepcopy(model.state_dict())
        handle._project(torch.ones(()))
        for name, value in model.state_dict().items():
            assert torch.equal(value, before[name])
        handle._project(torch.zeros(()))
        assert abs(mean_of(model) - 0.8) < 1e-13

    def test_training_that_diverged_is_told_by_name(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = ProjectAfterStep(optimizer, weights_of(model), 0.8, dim=None, together=True)
        with torch.no_grad():
            model[2].weight[0, 0] = torch.nan
        with pytest.raises(
            ValueError, match=r"params\[1\] \(weight of Linear\).*training diverged"
        ):
            handle.project()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"floor": 0.2}, "floor=0.2 needs together=True"),
            ({"relative": True}, "relative=True needs together=True"),
            ({"weights": [1.0]}, "needs together=True"),
            ({"together": True, "l1": 1.0}, "share a mean sparseness"),
            ({"together": True, "l2": "nearest"}, "no single best share"),
            ({"together": True, "floor": 0.9}, "floor=0.9 is above the mean"),
            ({"together": True, "floor": 1.5}, "floor=1.5"),
            ({"together": True, "weights": [1.0]}, "1 entries for 3 parameters"),
        ],
        ids=str,
    )
    def test_what_makes_no_sense(self, options, words):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with pytest.raises(ValueError, match=words):
            ProjectAfterStep(optimizer, weights_of(model), 0.8, dim=None, **options)
        with pytest.raises(TypeError, match="together=1"):
            ProjectAfterStep(optimizer, weights_of(model), 0.8, together=1)
