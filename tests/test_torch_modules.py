"""hoyer.torch: layers, parametrizations, projected optimization, the report."""

import copy
import io
import linecache
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    SparsenessProjection,
    parametrizations,
    schedules,
    sparseness_report,
)

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def network():
    return nn.Sequential(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 3))


def train(model, optimizer, steps=3, loss=None):
    x, y = torch.randn(8, 20), torch.randn(8, 3)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


class TestSparsenessProjection:
    def test_as_activation(self):
        x = torch.randn(5, 30)
        layer = SparsenessProjection(0.8)
        assert torch.equal(layer(x), hoyer.project(x, 0.8, l2="keep"))
        np.testing.assert_allclose(hoyer.sparseness(layer(x)), 0.8, atol=1e-6)
        torch.testing.assert_close(layer(x).norm(dim=-1), x.norm(dim=-1))

    @pytest.mark.parametrize("dim", [0, (1, 2), None])
    def test_arguments_reach_the_projection(self, dim):
        x = torch.randn(4, 5, 6)
        layer = SparsenessProjection(0.3, dim, l2=2.0, nonnegative=True, only_increase=True)
        expected = hoyer.project(x, 0.3, l2=2.0, axis=dim, nonnegative=True, only_increase=True)
        assert torch.equal(layer(x), expected)

    def test_a_target_per_vector_is_a_buffer(self):
        sigma = torch.tensor([0.2, 0.5, 0.8])
        layer = SparsenessProjection(sigma)
        assert torch.equal(
            layer(torch.ones(3, 9).cumsum(1)),
            hoyer.project(torch.ones(3, 9).cumsum(1), sigma, l2="keep"),
        )
        assert set(layer.state_dict()) == {"target"}
        assert layer.double().sparseness.dtype == torch.float64

    @pytest.mark.parametrize("sign", [1, -1])
    def test_learnable_sparseness_moves_and_stays_inside(self, sign):
        layer = SparsenessProjection(0.5, learnable=True)
        assert math.isclose(float(layer.sparseness.detach()), 0.5, rel_tol=1e-6)
        x = torch.randn(6, 30)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.3)
        for _ in range(30):
            optimizer.zero_grad()
            (sign * layer(x).abs().sum()).backward()
            optimizer.step()
        sigma = float(layer.sparseness.detach())
        assert 0.9 < sigma < 1 if sign == 1 else 0 < sigma < 0.1

    @pytest.mark.parametrize("logit", [-1e4, 1e4])
    def test_extreme_logits(self, logit):
        layer = SparsenessProjection(0.5, learnable=True)
        with torch.no_grad():
            layer.logit.fill_(logit)
        assert 0 < float(layer.sparseness.detach()) < 1
        assert layer(torch.randn(3, 10)).isfinite().all()

    def test_copies_pickles_and_state(self):
        for learnable in (False, True):
            layer = SparsenessProjection(0.7, learnable=learnable)
            x = torch.randn(3, 10)
            for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
                assert torch.equal(other(x), layer(x))
            buffer = io.BytesIO()
            torch.save(layer, buffer)
            buffer.seek(0)
            assert torch.equal(torch.load(buffer, weights_only=False)(x), layer(x))
        fresh = SparsenessProjection(0.2, learnable=True)
        fresh.load_state_dict(layer.state_dict())
        assert torch.equal(fresh(x), layer(x))

    def test_repr_and_errors(self):
        text = repr(SparsenessProjection(0.7, (1, 2), nonnegative=True, learnable=True))
        inside = "sparseness=0.7, dim=(1, 2), l2='keep', nonnegative=True, learnable=True"
        assert text == f"SparsenessProjection({inside})"
        with pytest.raises(ValueError, match=r"sparseness must lie in \[0, 1\], got 1.5"):
            SparsenessProjection(1.5)
        with pytest.raises(ValueError, match=r"must start inside \(0, 1\)"):
            SparsenessProjection(1.0, learnable=True)


class TestTargetsOfModules:
    @pytest.mark.parametrize("learnable", [False, True])
    @pytest.mark.parametrize("given", [0.5, [0.5, 0.6], np.float32(0.5)], ids=str)
    def test_built_on_meta(self, given, learnable):
        with torch.device("meta"):
            layer = SparsenessProjection(given, learnable=learnable)
            assert layer(torch.randn(2, 9)).shape == (2, 9)
        assert "sparseness=" in repr(layer)

    def test_built_of_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            for given in (0.5, [0.5, 0.6]):
                for learnable in (False, True):
                    layer = SparsenessProjection(given, learnable=learnable)
                    assert layer(torch.randn(2, 9)).shape == (2, 9)
                    assert "sparseness=" in repr(layer)

    def test_tensors_on_meta_are_believed(self):
        for shape in ((), (3,)):
            given = torch.empty(shape, device="meta")
            for learnable in (False, True):
                layer = SparsenessProjection(given, l2=given, learnable=learnable)
                assert layer.sparseness.shape == shape
                assert "sparseness=" in repr(layer)

    def test_built_on_meta_and_loaded(self):
        trained = SparsenessProjection([0.3, 0.8], learnable=True)
        with torch.device("meta"):
            layer = SparsenessProjection([0.5, 0.5], learnable=True)
        layer = layer.to_empty(device="cpu")
        layer.load_state_dict(trained.state_dict())
        x = torch.randn(2, 9)
        assert torch.equal(layer(x), trained(x))

    @pytest.mark.parametrize("kind", [nn.Parameter, lambda t: t.requires_grad_()])
    def test_a_target_that_requires_grad_is_not_made_a_constant(self, kind):
        for shape in ((), (4,)):
            given = kind(torch.full(shape, 0.5))
            with pytest.raises(ValueError, match="sparseness requires grad: pass learnable=True"):
                SparsenessProjection(given)
            with pytest.raises(ValueError, match="sparseness requires grad: pass learnable=True"):
                parametrizations.sparseness(nn.Linear(9, 4), "weight", given)
            assert SparsenessProjection(given, learnable=True).logit.shape == shape

    @pytest.mark.parametrize(
        "make", [list, tuple, np.array, torch.tensor], ids=lambda f: f.__name__
    )
    def test_several_numbers_in_any_form(self, make):
        given = make([0.5, 0.6])
        x = torch.randn(2, 9)
        expected = hoyer.project(x, torch.tensor([0.5, 0.6]), l2="keep")
        assert torch.equal(SparsenessProjection(given)(x), expected)
        torch.testing.assert_close(SparsenessProjection(given, learnable=True)(x), expected)

    @pytest.mark.parametrize("learnable", [False, True])
    @pytest.mark.parametrize(
        ("given", "error", "text"),
        [
            ("0.5", TypeError, "sparseness='0.5': sparseness must be a real number"),
            (None, TypeError, "sparseness is missing"),
            (torch.tensor([0.5, 1.2]), ValueError, r"in \[0, 1\], got 1.2\d* at index 1"),
            ([[0.5], [-1.0]], ValueError, r"got -1.0 at index \(1, 0\)"),
            (90, ValueError, r"got 90.0 \(0.9 for 90 %\)"),
            (math.nan, ValueError, "got nan"),
        ],
    )
    def test_what_is_no_target(self, given, error, text, learnable):
        with pytest.raises(error, match=text):
            SparsenessProjection(given, learnable=learnable)

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"l2": "kep"}, ValueError, "l2='kep': l2 must be a number, 'keep' or 'nearest'"),
            ({"l2": -1.0}, ValueError, "l2 must be positive and finite, got -1.0"),
            ({"l2": torch.ones(3).requires_grad_()}, ValueError, "pass it as an nn.Parameter"),
            ({"dim": "junk"}, TypeError, "dim='junk': must be an int, a tuple of ints, or None"),
            ({"dim": 1.5}, TypeError, "dim=1.5"),
            ({"nonnegative": "no"}, TypeError, "nonnegative='no': must be True or False"),
            ({"check_finite": 1}, TypeError, "check_finite=1"),
        ],
    )
    def test_options_are_checked_when_it_is_made(self, options, error, text):
        with pytest.raises(error, match=text):
            SparsenessProjection(0.5, **options)

    def test_a_tensor_as_norm_is_a_buffer_and_a_parameter_a_parameter(self):
        x = torch.randn(3, 9)
        norms = torch.tensor([1.0, 2.0, 3.0])
        layer = SparsenessProjection(0.5, l2=norms)
        assert torch.equal(layer.state_dict()["l2"], norms)
        assert layer.to(torch.float64).l2.dtype == torch.float64
        learned = SparsenessProjection(0.5, l2=nn.Parameter(norms))
        learned(x).sum().backward()
        assert [name for name, _ in learned.named_parameters()] == ["l2"]
        assert learned.l2.grad.shape == (3,)

    def test_targets_with_a_negative_bit(self):
        view = torch._neg_view(torch.tensor([-0.5, -0.6]))
        x = torch.randn(2, 9)
        for options in ({"sparseness": view}, {"sparseness": 0.5, "l2": view}):
            plain = {name: torch.as_tensor(value).clone() for name, value in options.items()}
            expected = SparsenessProjection(**plain)(x)
            assert torch.equal(SparsenessProjection(**options)(x), expected)
        learned = SparsenessProjection(view, learnable=True).sparseness.detach()
        torch.testing.assert_close(learned, torch.tensor([0.5, 0.6]))

    def test_without_check_finite_nan_comes_back_as_nan(self):
        x = torch.randn(2, 9)
        x[1, 3] = math.nan
        with pytest.raises(ValueError, match="check_finite=False"):
            SparsenessProjection(0.5)(x)
        layer = SparsenessProjection(0.5, check_finite=False)
        assert layer(x).isnan().any(1).tolist() == [False, True]
        assert repr(layer).endswith("check_finite=False)")

    def test_assigning_a_target(self):
        x = torch.randn(2, 30)
        layer = SparsenessProjection(0.2)
        for value in (0.8, [0.3, 0.4], torch.tensor([0.5, 0.6]), 0.9):
            layer.sparseness = value
            wanted = torch.tensor(value) if isinstance(value, list) else value
            assert torch.equal(layer(x), hoyer.project(x, wanted, l2="keep"))
        assert layer.state_dict() == {}
        with pytest.raises(ValueError, match=r"got 1.5"):
            layer.sparseness = 1.5
        assert layer.sparseness == 0.9

    def test_assigning_to_a_learnable_target_keeps_the_parameter(self):
        layer = SparsenessProjection(0.2, learnable=True)
        logit = layer.logit
        layer.sparseness = 0.8
        assert layer.logit is logit
        assert float(layer.sparseness.detach()) == pytest.approx(0.8)
        with pytest.raises(ValueError, match=r"must start inside \(0, 1\)"):
            layer.sparseness = 1.0

    @pytest.mark.parametrize("logit", [-30.0, 30.0, 1e30])
    def test_a_saturated_target_comes_back(self, logit):
        layer = SparsenessProjection(0.5, learnable=True)
        with torch.no_grad():
            layer.logit.fill_(logit)
        sigma = layer.sparseness
        assert 1e-5 < float(sigma.detach()) < 1 - 1e-5
        sigma.backward()
        assert float(layer.logit.grad) > 1e-5

    @pytest.mark.parametrize("logit", [-2.0, 0.5, 40.0])
    def test_forward_and_second_derivatives_of_a_learnable_target(self, logit):
        layer = SparsenessProjection(0.5, learnable=True).double()

        def sigma(logit):
            return torch.func.functional_call(layer, {"logit": logit}, (x,))

        x = torch.randn(12, dtype=torch.float64)
        at = torch.tensor(logit, dtype=torch.float64)
        forward, backward = torch.func.jacfwd(sigma)(at), torch.func.jacrev(sigma)(at)
        torch.testing.assert_close(forward, backward)
        assert (forward != 0).any()
        assert torch.func.jacfwd(torch.func.jacrev(sigma))(at).isfinite().all()

    def test_targets_near_one_in_half_precision(self):
        torch.set_default_dtype(torch.bfloat16)
        try:
            layer = SparsenessProjection(0.999, learnable=True)
        finally:
            torch.set_default_dtype(torch.float32)
        assert layer.logit.dtype == torch.bfloat16
        assert float(layer.sparseness.detach()) == pytest.approx(0.999, abs=1e-4)
        x = torch.randn(3, 50, dtype=torch.bfloat16)
        y = layer(x)
        assert y.dtype == torch.bfloat16
        y.square().sum().backward()
        assert layer.logit.grad.isfinite()

    def test_learnable_targets_in_compiled_code(self):
        layer = SparsenessProjection(0.6, learnable=True)
        x = torch.randn(3, 50)
        traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(traced(x), layer(x))


class TestParametrization:
    def test_linear(self):
        layer = nn.Linear(30, 4)
        before = layer.weight.detach().clone()
        assert parametrizations.sparseness(layer, "weight", 0.8) is layer
        assert torch.equal(layer.weight, hoyer.project(before, 0.8, l2="keep"))
        assert torch.equal(layer.parametrizations.weight.original, before)

    @pytest.mark.parametrize(
        ("layer", "axes"),
        [
            (nn.Conv2d(3, 4, 5), (1, 2, 3)),
            (nn.ConvTranspose1d(3, 4, 5), (0, 2)),
            (nn.Bilinear(3, 4, 5), (1, 2)),
            (nn.Embedding(5, 8), (1,)),
            (nn.LayerNorm(8), (0,)),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_what_flows_into_one_unit(self, layer, axes):
        with torch.no_grad():
            layer.weight.copy_(torch.randn_like(layer.weight))
        before = layer.weight.detach().clone()
        parametrizations.sparseness(layer, "weight", 0.7)
        assert torch.equal(layer.weight, hoyer.project(before, 0.7, l2="keep", axis=axes))

    def test_training_keeps_the_sparseness(self):
        model = network()
        parametrizations.sparseness(model[0], "weight", 0.9, dim=1)
        parametrizations.sparseness(model[2], "weight", 0.6, dim=0, l2=1.0, learnable=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        train(model, optimizer, 5)
        np.testing.assert_allclose(hoyer.sparseness(model[0].weight.detach()), 0.9, atol=1e-5)
        target = model[2].parametrizations.weight[0]
        assert target.logit.grad is not None
        sigma = float(target.sparseness.detach())
        assert sigma != pytest.approx(0.6, abs=1e-4)
        found = hoyer.sparseness(model[2].weight.detach(), axis=0)
        np.testing.assert_allclose(found, sigma, atol=1e-5)

    def test_assignment(self):
        layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.8)
        value = torch.randn(4, 30)
        layer.weight = value
        assert torch.equal(layer.weight, hoyer.project(value, 0.8, l2="keep"))
        sparse = layer.weight.detach().clone()
        layer.weight = sparse
        torch.testing.assert_close(layer.weight.detach(), sparse)
        assert torch.equal(layer.weight == 0, sparse == 0)

    def test_state_and_copies(self):
        layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.8, learnable=True)
        assert set(layer.state_dict()) == {
            "bias",
            "parametrizations.weight.original",
            "parametrizations.weight.0.logit",
        }
        other = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.5, learnable=True)
        buffer = io.BytesIO()
        torch.save(layer.state_dict(), buffer)
        buffer.seek(0)
        other.load_state_dict(torch.load(buffer, weights_only=True))
        assert torch.equal(other.weight, layer.weight)
        assert torch.equal(copy.deepcopy(layer).weight, layer.weight)

    def test_removal_leaves_the_sparse_weight(self):
        layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.8)
        weight = layer.weight.detach().clone()
        parametrize.remove_parametrizations(layer, "weight")
        assert torch.equal(layer.weight, weight)
        assert isinstance(layer.weight, nn.Parameter)

    def test_errors(self):
        with pytest.raises(ValueError, match="Linear has no parameter or buffer 'wait'"):
            parametrizations.sparseness(nn.Linear(3, 4), "wait", 0.5)
        with pytest.raises(ValueError, match="dim='rows'"):
            parametrizations.sparseness(nn.Linear(3, 4), "weight", 0.5, dim="rows")
        with pytest.raises(ValueError, match=r"got -0.5"):
            parametrizations.sparseness(nn.Linear(3, 4), "weight", -0.5)

    def test_the_same_tensor_twice(self):
        layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.8)
        with pytest.raises(ValueError, match=r"parametrizations.weight\[0\].sparseness"):
            parametrizations.sparseness(layer, "weight", 0.5)
        layer.parametrizations.weight[0].sparseness = 0.5
        np.testing.assert_allclose(hoyer.sparseness(layer.weight.detach()), 0.5, atol=1e-5)

    @pytest.mark.parametrize(
        ("call", "error", "text"),
        [
            (lambda m: (m, 0.5), TypeError, "name=0.5: name the tensor, as in sparseness"),
            (lambda m: (m, "0.weight", 0.5), ValueError, r"get_submodule\('0'\) and 'weight'"),
            (lambda m: (m[0], "weight"), TypeError, "sparseness is missing"),
            (lambda m: (m[0].weight, "weight", 0.5), TypeError, "module is of type Parameter"),
            (
                lambda m: (nn.Linear(1, 3), "weight", 0.5),
                ValueError,
                r"weight of shape \(3, 1\) has vectors of length 1",
            ),
            (lambda m: (nn.LazyLinear(3), "weight", 0.5), ValueError, "has no shape yet"),
            (lambda m: (m[0], "weight", 0.5, 5), IndexError, r"dim=5: weight of shape \(12, 20\)"),
            (lambda m: (m[0], "weight", 0.5, (1, -1)), ValueError, "names an axis twice"),
            (
                lambda m: (m[0], "weight", [0.5, 0.6]),
                ValueError,
                r"shape \(2,\) does not fit weight of shape \(12, 20\)",
            ),
        ],
    )
    def test_hints(self, call, error, text):
        with pytest.raises(error, match=text):
            parametrizations.sparseness(*call(network()))

    def test_it_stands_on_other_parametrizations(self):
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(30, 4))
        parametrizations.sparseness(layer, "weight", 0.8)
        np.testing.assert_allclose(hoyer.sparseness(layer.weight.detach()), 0.8, atol=1e-5)

    def test_on_meta(self):
        with torch.device("meta"):
            layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.8, learnable=True)
        assert layer.weight.shape == (4, 30)
        trained = parametrizations.sparseness(nn.Linear(30, 4), "weight", 0.7, learnable=True)
        layer.to_empty(device="cpu").load_state_dict(trained.state_dict())
        assert torch.equal(layer.weight, trained.weight)

    @pytest.mark.parametrize("number", ["nan", "inf"])
    def test_what_is_not_finite_names_the_tensor(self, number):
        layer = parametrizations.sparseness(nn.Linear(9, 4), "weight", 0.8)
        with torch.no_grad():
            layer.parametrizations.weight.original[2, 3] = float(number)
        text = rf"^weight of Linear of shape \(4, 9\): x has {number} at entry 3 of vector 2"
        with pytest.raises(ValueError, match=text):
            layer(torch.randn(2, 9))
        fresh = nn.Conv2d(3, 4, 2)
        fresh.weight.data.fill_(float(number))
        with pytest.raises(
            ValueError, match=rf"^weight of Conv2d of shape .*: x has {number} at entry"
        ):
            parametrizations.sparseness(fresh, "weight", 0.8)

    def test_a_learned_target_that_is_nan_names_the_tensor(self):
        layer = parametrizations.sparseness(nn.Linear(9, 4), "weight", 0.8, learnable=True)
        with torch.no_grad():
            layer.parametrizations.weight[0].logit.fill_(math.nan)
        with pytest.raises(
            ValueError, match=r"^weight of Linear of shape .*: sparseness .* got nan"
        ):
            layer(torch.randn(2, 9))

    def test_export_to_the_plain_layer(self):
        layer = parametrizations.sparseness(nn.Linear(30, 4), "weight", [0.2, 0.4, 0.6, 0.8])
        weight = layer.weight.detach().clone()
        plain = nn.Linear(30, 4)
        plain.load_state_dict(parametrize.remove_parametrizations(layer, "weight").state_dict())
        assert torch.equal(plain.weight, weight)


LAYERS = [
    (lambda: nn.Linear(6, 4), [(6,)]),
    (lambda: nn.Bilinear(3, 5, 4), [(3,), (5,)]),
    (lambda: nn.Conv1d(4, 6, 3), [(4, 7)]),
    (lambda: nn.Conv2d(4, 6, 3, groups=2), [(4, 5, 5)]),
    (lambda: nn.Conv3d(2, 3, 2), [(2, 3, 3, 3)]),
    (lambda: nn.ConvTranspose1d(4, 6, 3), [(4, 5)]),
    (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), [(4, 5)]),
    (lambda: nn.ConvTranspose2d(3, 5, 2), [(3, 4, 4)]),
    (lambda: nn.ConvTranspose2d(8, 8, 3, groups=8), [(8, 4, 4)]),
    (lambda: nn.ConvTranspose2d(6, 4, 3, groups=2), [(6, 4, 4)]),
    (lambda: nn.ConvTranspose3d(4, 4, 2, groups=2), [(4, 3, 3, 3)]),
    (lambda: nn.LazyConvTranspose2d(6, 3, groups=3), [(3, 4, 4)]),
]


@pytest.mark.parametrize(("make", "shapes"), LAYERS)
class TestInputsOfUnits:
    """ "inputs" are the weights that an output unit depends on, for every layer and every tool."""

    def vectors(self, make, shapes):
        """Return a layer, and which weights each of its outputs depends on, as autograd sees it."""
        layer = make()
        outputs = layer(*(torch.rand(1, *shape) + 0.5 for shape in shapes))[0]
        masks = [
            torch.autograd.grad(output.sum(), layer.weight, retain_graph=True)[0] != 0
            for output in outputs
        ]
        # Everything belongs to one of them.
        assert torch.equal(sum(mask.int() for mask in masks), torch.ones_like(masks[0]).int())
        return layer, masks

    def check(self, layer, masks, before):
        weight = layer.weight.detach()
        for mask in masks:
            assert torch.equal(weight[mask], hoyer.project(before[mask], 0.6, l2="keep"))
        (record,) = sparseness_report(layer)
        assert (record.vectors, record.undefined) == (len(masks), 0)
        assert (record.lowest, record.highest) == pytest.approx((0.6, 0.6), abs=1e-5)

    def test_parametrization(self, make, shapes):
        layer, masks = self.vectors(make, shapes)
        before = layer.weight.detach().clone()
        parametrizations.sparseness(layer, "weight", 0.6)
        self.check(layer, masks, before)
        layer(*(torch.rand(1, *shape) for shape in shapes)).square().sum().backward()
        assert layer.parametrizations.weight.original.grad.shape == before.shape
        self.check(copy.deepcopy(layer), masks, before)

    def test_project_after_step(self, make, shapes):
        layer, masks = self.vectors(make, shapes)
        before = layer.weight.detach().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
        for params in ((layer, "weight"), [(layer, "weight")]):
            handle = ProjectAfterStep(optimizer, params, 0.6)
            layer.weight.grad = torch.ones_like(before)
            optimizer.step()
            self.check(layer, masks, before)
            handle.remove()
            with torch.no_grad():
                layer.weight.copy_(before)


class TestGroups:
    def test_targets_of_keepdims_shape(self):
        targets = torch.tensor([[0.2], [0.3], [0.4], [0.5]])
        layer = nn.Linear(9, 4)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
        ProjectAfterStep(optimizer, layer.weight, targets, only_increase=False)
        layer.weight.grad = torch.ones_like(layer.weight)
        optimizer.step()
        torch.testing.assert_close(hoyer.sparseness(layer.weight.detach()), targets[:, 0])
        layer = parametrizations.sparseness(nn.Linear(9, 4), "weight", targets)
        torch.testing.assert_close(hoyer.sparseness(layer.weight.detach()), targets[:, 0])

    def test_a_target_for_each_channel(self):
        layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
        with pytest.raises(
            ValueError, match=r"shape \(4,\) does not fit .* broadcasts to \(2, 2\)"
        ):
            parametrizations.sparseness(layer, "weight", [0.2, 0.3, 0.4, 0.5])
        parametrizations.sparseness(layer, "weight", [[0.2, 0.3], [0.4, 0.5]])
        weight = layer.weight.detach()
        found = [
            hoyer.sparseness(weight[3 * g : 3 * g + 3, c], axis=None) for g, c in np.ndindex(2, 2)
        ]
        np.testing.assert_allclose(found, [0.2, 0.3, 0.4, 0.5], atol=1e-5)
        assert "dim=(1, 3, 4), l2='keep', groups=2" in repr(layer)

    def test_other_tensors_of_a_transposed_convolution(self):
        layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
        layer.code = nn.Parameter(torch.randn(4, 10))
        parametrizations.sparseness(layer, "code", 0.5)
        np.testing.assert_allclose(hoyer.sparseness(layer.code.detach()), 0.5, atol=1e-5)

    def test_axes_that_are_named_are_those_of_the_tensor(self):
        layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
        before = layer.weight.detach().clone()
        parametrizations.sparseness(layer, "weight", 0.5, dim=(0, 2, 3))
        assert torch.equal(layer.weight, hoyer.project(before, 0.5, l2="keep", axis=(0, 2, 3)))

    def test_a_skipped_step_of_a_fused_optimizer(self):
        layer = nn.ConvTranspose2d(6, 4, 3, groups=2)
        before = layer.weight.detach().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        handle = ProjectAfterStep(optimizer, (layer, "weight"), 0.6)
        handle._project(torch.tensor(1.0))
        assert torch.equal(layer.weight, before)
        handle._project(torch.tensor(0.0))
        parts = before.unflatten(0, (2, 3))
        expected = hoyer.project(parts, 0.6, l2="keep", axis=(1, 3, 4)).flatten(0, 1)
        assert torch.equal(layer.weight, expected)

    def test_attention(self):
        layer = nn.MultiheadAttention(8, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
        ProjectAfterStep(optimizer, [(layer, "in_proj_weight"), layer.out_proj.weight], 0.6)
        layer.in_proj_weight.grad = torch.zeros_like(layer.in_proj_weight)
        optimizer.step()
        report = sparseness_report(layer)
        assert [(r.name, r.vectors) for r in report] == [
            ("in_proj_weight", 24),
            ("out_proj.weight", 8),
        ]
        for record in report:
            assert (record.lowest, record.highest) == pytest.approx((0.6, 0.6), abs=1e-5)

    def test_a_vector_of_its_own(self):
        """Given with its layer, a tensor of one axis is one vector, as in a parametrization."""
        layer = nn.LayerNorm(9)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(9))
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
        ProjectAfterStep(optimizer, (layer, "weight"), 0.6).project()
        assert float(hoyer.sparseness(layer.weight.detach())) == pytest.approx(0.6, abs=1e-5)


def line_of(told):
    """Return the line of this file that the one warning shows."""
    (warning,) = told
    assert warning.filename == __file__
    return linecache.getline(__file__, warning.lineno).strip()


class TestWeightsThatNeverMove:
    @pytest.mark.parametrize(
        ("fill", "count", "l2"),
        [
            (nn.init.zeros_, 4, "keep"),
            (nn.init.zeros_, 4, "nearest"),
            (nn.init.zeros_, 4, 1.0),
            (nn.init.ones_, 4, "keep"),
            (nn.init.ones_, 4, 1.0),
            (lambda weight: weight[1].zero_(), 1, "keep"),
        ],
    )
    def test_they_are_told(self, fill, count, l2):
        layer = nn.Linear(40, 4)
        with torch.no_grad():
            fill(layer.weight)
        text = rf"{count} of 4 vectors .* shape \(4, 40\) are zero, .* torch.nn.init"
        with pytest.warns(UserWarning, match=text) as told:
            parametrizations.sparseness(layer, "weight", 0.8, l2=l2)
        assert len(told) == 1
        # It is true: no gradient changes where they point to.
        layer(torch.randn(5, 40)).square().sum().backward()
        stored = layer.parametrizations.weight.original
        angles = nn.functional.cosine_similarity(stored.grad, stored.detach())
        assert int(((stored.grad == 0).all(1) | (angles.abs() > 1 - 1e-6)).sum()) == count

    def test_ties_with_the_nearest_norm_can_move(self):
        layer = nn.Linear(9, 4)
        nn.init.ones_(layer.weight)
        parametrizations.sparseness(layer, "weight", 0.8, l2="nearest")
        layer(torch.randn(5, 9)).square().sum().backward()
        assert (layer.parametrizations.weight.original.grad.std(dim=1) > 0).all()

    def test_when_assigned(self):
        layer = parametrizations.sparseness(nn.Linear(9, 4), "weight", 0.8)
        with pytest.warns(UserWarning, match="4 of 4 vectors") as told:
            layer.weight = torch.zeros(4, 9)
        assert len(told) == 1
        layer.weight = torch.randn(4, 9)

    @pytest.mark.parametrize("l2", ["keep", 1.0])
    def test_zeros_that_become_nonzero_can_move(self, l2):
        """Their sign is a choice, but there are derivatives."""
        layer = nn.Linear(10, 3)
        with torch.no_grad():
            layer.weight[:, 0] = 0
        parametrizations.sparseness(layer, "weight", 0.1, l2=l2)
        assert (layer.weight[:, 0] != 0).all()
        layer(torch.randn(5, 10)).square().sum().backward()
        assert (layer.parametrizations.weight.original.grad.std(dim=1) > 0).all()

    def test_the_warning_names_the_tensor_and_shows_the_callers_line(self):
        layer = nn.Linear(9, 4)
        nn.init.zeros_(layer.weight)
        text = r"4 of 4 vectors of weight of Linear of shape \(4, 9\) are zero"
        with pytest.warns(UserWarning, match=text) as told:
            parametrizations.sparseness(layer, "weight", 0.8)
        with pytest.warns(UserWarning, match=text) as told_again:
            layer.weight = torch.zeros(4, 9)
        bare = nn.Linear(9, 4)
        nn.init.zeros_(bare.weight)
        with pytest.warns(UserWarning, match="vectors of a parametrized tensor of shape") as plain:
            parametrize.register_parametrization(bare, "weight", SparsenessProjection(0.5))
        lines = [line_of(one) for one in (told, told_again, plain)]
        assert lines[0] == 'parametrizations.sparseness(layer, "weight", 0.8)'
        assert lines[1] == "layer.weight = torch.zeros(4, 9)"
        assert lines[2].startswith("parametrize.register_parametrization(")


class TestBothNorms:
    def test_one_norm_beside_a_sparseness(self):
        x = torch.randn(3, 9)
        layer = SparsenessProjection(0.7, l1=2.0)
        assert torch.equal(layer(x), hoyer.project(x, 0.7, l1=2.0))
        assert repr(layer) == "SparsenessProjection(sparseness=0.7, dim=-1, l1=2)"

    def test_both_norms(self):
        x = torch.randn(3, 9)
        layer = SparsenessProjection(l1=2.0, l2=1.0)
        assert torch.equal(layer(x), hoyer.project(x, l1=2.0, l2=1.0))
        assert layer.sparseness is None
        assert repr(layer) == "SparsenessProjection(dim=-1, l1=2, l2=1)"
        with pytest.raises(ValueError, match="give sparseness with at most one norm"):
            layer.sparseness = 0.5
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert torch.equal(other(x), layer(x))

    def test_tensors_are_buffers_and_parameters_parameters(self):
        x = torch.randn(3, 9)
        norms = torch.tensor([1.5, 2.0, 2.5])
        layer = SparsenessProjection(l1=norms, l2=nn.Parameter(torch.ones(3)))
        assert set(layer.state_dict()) == {"l1", "l2"}
        assert [name for name, _ in layer.named_parameters()] == ["l2"]
        assert torch.equal(layer(x), hoyer.project(x, l1=norms, l2=torch.ones(3)))
        layer(x).sum().backward()
        assert layer.l2.grad.shape == (3,)

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({}, TypeError, "sparseness is missing: .* or both l1 and l2"),
            ({"l2": 2.0}, TypeError, "sparseness is missing"),
            ({"l1": 2.0}, ValueError, "l1=2.0, l2=None is no target"),
            ({"l1": 2.0, "l2": "keep"}, ValueError, "l1=2.0, l2='keep' is no target"),
            ({"sparseness": 0.5, "l1": 2.0, "l2": 1.0}, ValueError, "with at most one norm"),
            ({"sparseness": 0.5, "l1": 2.0, "l2": "keep"}, ValueError, "with at most one norm"),
            ({"sparseness": 0.5, "l1": "keep"}, ValueError, "l1='keep': l1 must be a number"),
            ({"sparseness": 0.5, "l1": -1}, ValueError, "l1 must be positive and finite, got -1.0"),
            ({"l1": 2.0, "l2": 1.0, "learnable": True}, ValueError, "learnable=True: without a"),
            (
                {"sparseness": 0.5, "l1": torch.ones(3).requires_grad_()},
                ValueError,
                "l1 requires grad: pass it as an nn.Parameter",
            ),
        ],
    )
    def test_too_few_and_too_many(self, options, error, text):
        with pytest.raises(error, match=text):
            SparsenessProjection(**options)

    def test_parametrizations(self):
        layer = nn.Linear(9, 4)
        before = layer.weight.detach().clone()
        parametrizations.sparseness(layer, "weight", l1=2.0, l2=1.0)
        assert torch.equal(layer.weight, hoyer.project(before, l1=2.0, l2=1.0))
        with pytest.raises(ValueError, match="impossible for vectors of length 9"):
            parametrizations.sparseness(nn.Linear(9, 4), "weight", l1=4.0, l2=1.0)

    def test_after_steps(self):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, l1=3.0, l2=1.0)
        run.step()
        torch.testing.assert_close(run.weight.detach().abs().sum(1), torch.full((4,), 3.0))
        torch.testing.assert_close(run.weight.detach().norm(dim=1), torch.ones(4))
        assert repr(handle) == "ProjectAfterStep(1 tensor, dim='inputs', l1=3, l2=1, steps=1)"
        handle.remove()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.5, l1=3.0)
        run.step()
        handle.remove()
        expected = hoyer.project(run.weight.detach(), 0.5, l1=3.0)
        torch.testing.assert_close(run.weight.detach(), expected)
        with pytest.raises(ValueError, match="a schedule is one of sparseness"):
            ProjectAfterStep(
                run.optimizer, run.weight, l1=3.0, l2=1.0, schedule=schedules.linear(0, 1, 9)
            )


@pytest.mark.parametrize(
    "call",
    [
        lambda m, o: SparsenessProjection(0.5, axis=0),
        lambda m, o: parametrizations.sparseness(m[0], "weight", 0.5, axis=0),
        lambda m, o: ProjectAfterStep(o, m[0].weight, 0.5, axis=0),
        lambda m, o: sparseness_report(m, axis=0),
    ],
)
def test_axis_is_called_dim(call):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"axis=0: in hoyer.torch it is called dim, .*: dim=0"):
        call(model, optimizer)


class TestProjectAfterStep:
    @pytest.mark.parametrize(
        "make",
        [
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            lambda p: torch.optim.Adam(p, lr=0.01),
            lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
            lambda p: torch.optim.RMSprop(p, lr=0.01),
        ],
        ids=["SGD", "Adam", "AdamW", "RMSprop"],
    )
    def test_with_any_optimizer(self, make):
        model = network()
        optimizer = make(model.parameters())
        weights = [model[0].weight, model[2].weight]
        handle = ProjectAfterStep(optimizer, weights, 0.8, dim=1)
        before = [w.detach().clone() for w in weights]
        train(model, optimizer)
        for weight, old in zip(weights, before, strict=True):
            assert not torch.equal(weight, old)
            np.testing.assert_allclose(hoyer.sparseness(weight.detach()), 0.8, atol=1e-5)
        assert handle.steps == 3

    def test_it_is_the_projection_of_the_step(self):
        first, second = network(), network()
        second.load_state_dict(first.state_dict())
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (first, second)]
        ProjectAfterStep(optimizers[1], second[0].weight, 0.7, dim=1, l2=1.0, nonnegative=True)
        for model, optimizer in zip((first, second), optimizers, strict=True):
            torch.manual_seed(1)
            train(model, optimizer, 1)
        expected = hoyer.project(first[0].weight.detach(), 0.7, l2=1.0, nonnegative=True)
        assert torch.equal(second[0].weight, expected)

    def test_every_warmup_and_schedule(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        weight = model[0].weight
        handle = ProjectAfterStep(
            optimizer,
            weight,
            0.85,
            dim=1,
            every=2,
            warmup=3,
            schedule=lambda step: min(0.5 + 0.05 * step, 0.9),
        )
        seen = []
        for _ in range(13):
            train(model, optimizer, 1)
            seen.append((float(hoyer.sparseness(weight.detach()).min()), handle.sparseness))
        assert handle.only_increase
        initial = seen[2][0]
        assert initial < 0.5
        assert (
            abs(seen[3][0] - initial) < 0.05
        )  # the first step after the warm-up is not the second
        for step in (5, 7, 9):
            assert seen[step - 1][0] == pytest.approx(0.5 + 0.05 * (step - 3), abs=1e-5)
        assert seen[-1] == (pytest.approx(0.85, abs=1e-5), 0.85)

    def test_a_schedule_leaves_sparser_vectors_alone(self):
        weight = nn.Parameter(torch.eye(4, 20) + 1e-3)
        optimizer = torch.optim.SGD([weight], lr=0.0)
        ProjectAfterStep(optimizer, weight, 0.9, dim=1, schedule=lambda step: 0.3)
        before = weight.detach().clone()
        weight.sum().backward()
        optimizer.step()
        torch.testing.assert_close(weight.detach(), before)

    def test_state_travels_with_the_optimizer(self):
        def made(weight):
            optimizer = torch.optim.Adam([weight], lr=0.01)
            rising = schedules.cubic(0, 0.9, 10)
            handles = [ProjectAfterStep(optimizer, weight, 0.9, dim=1, schedule=rising)]
            with pytest.warns(UserWarning, match="the new one comes last"):
                handles.append(ProjectAfterStep(optimizer, weight, 0.9, dim=1, warmup=100))
            return optimizer, handles

        weight = nn.Parameter(torch.randn(4, 20))
        optimizer, handles = made(weight)
        handles[1].steps = 50
        for _ in range(5):
            weight.grad = torch.randn(4, 20)
            optimizer.step()
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        buffer.seek(0)
        state = torch.load(buffer, weights_only=True)
        other = nn.Parameter(weight.detach().clone())
        fresh, loaded = made(other)
        fresh.load_state_dict(state)
        assert [h.steps for h in loaded] == [5, 55]
        assert loaded[0].sparseness == handles[0].sparseness
        gradient = torch.randn(4, 20)
        for opt, param in ((optimizer, weight), (fresh, other)):
            param.grad = gradient.clone()
            opt.step()
        assert torch.equal(weight, other)
        plain = torch.optim.Adam([nn.Parameter(torch.randn(4, 20))])
        plain.load_state_dict(state)
        alone = ProjectAfterStep(plain, plain.param_groups[0]["params"], 0.5, dim=1)
        alone.load_state_dict(handles[1].state_dict())
        assert alone.steps == handles[1].steps

    def test_grad_scaler_skips_overflowing_steps(self):
        weight = nn.Parameter(torch.randn(4, 20))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        handle = ProjectAfterStep(optimizer, weight, 0.8, dim=1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for factor, steps in ((math.inf, 0), (1.0, 1)):
            optimizer.zero_grad()
            scaler.scale(weight.sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            assert handle.steps == steps
        np.testing.assert_allclose(hoyer.sparseness(weight.detach()), 0.8, atol=1e-5)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_compiled_models_see_the_projected_weights(self):
        model = network()
        traced = torch.compile(model, backend="aot_eager", fullgraph=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        ProjectAfterStep(optimizer, model[0].weight, 0.8, dim=1)
        train(traced, optimizer)
        x = torch.randn(4, 20)
        torch.testing.assert_close(traced(x), model(x))
        np.testing.assert_allclose(hoyer.sparseness(model[0].weight.detach()), 0.8, atol=1e-5)

    def test_removal(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ProjectAfterStep(optimizer, model[0].weight, 0.8, dim=1)
        handle.remove()
        train(model, optimizer, 1)
        assert handle.steps == 0
        assert "hoyer_project_after_step" not in str(optimizer.state_dict())
        handle.project()
        np.testing.assert_allclose(hoyer.sparseness(model[0].weight.detach()), 0.8, atol=1e-5)

    def test_errors(self):
        model = network()
        optimizer = torch.optim.SGD([model[0].weight], lr=0.1)
        with pytest.raises(ValueError, match="is no parameter of the optimizer"):
            ProjectAfterStep(optimizer, model[2].weight, 0.5, dim=1)
        with pytest.raises(ValueError, match="params is empty"):
            ProjectAfterStep(optimizer, [], 0.5, dim=1)
        with pytest.raises(TypeError, match="of type str, not a tensor"):
            ProjectAfterStep(optimizer, ["weight"], 0.5, dim=1)
        with pytest.raises(ValueError, match="every=0: must be at least 1"):
            ProjectAfterStep(optimizer, model[0].weight, 0.5, dim=1, every=0)
        with pytest.raises(ValueError, match="got 2"):
            ProjectAfterStep(optimizer, model[0].weight, 2.0, dim=1)
        with pytest.raises(ValueError, match="steps=0"):
            schedules.linear(0, 1, 0)
        with pytest.raises(ValueError, match=r"end=1.5"):
            schedules.cubic(0, 1.5, 3)


class Training:
    """A weight, an optimizer, and steps with random gradients."""

    def __init__(self, *shapes, make=torch.optim.SGD, **options):
        self.weights = [nn.Parameter(torch.randn(shape)) for shape in shapes or [(4, 20)]]
        self.optimizer = make(self.weights, lr=0.01, **options)

    @property
    def weight(self):
        return self.weights[0]

    def step(self, times=1):
        for _ in range(times):
            for weight in self.weights:
                weight.grad = torch.randn_like(weight)
            self.optimizer.step()


def round_trip(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


class TestHandles:
    """What happens around the steps of a `ProjectAfterStep`."""

    @pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD])
    def test_grad_scaler_with_a_fused_optimizer(self, make):
        run = Training(make=make, fused=True)
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        before = run.weight.detach().clone()
        for factor, steps in ((math.inf, 0), (1.0, 1)):
            run.optimizer.zero_grad()
            scaler.scale(run.weight.sum() * factor).backward()
            scaler.step(run.optimizer)
            scaler.update()
            assert handle.steps == steps
            assert torch.equal(run.weight, before) == (steps == 0)
        np.testing.assert_allclose(hoyer.sparseness(run.weight.detach()), 0.8, atol=1e-5)

    def test_an_overflow_known_on_the_device_alone(self):
        """The way of other devices, where no one may look at the number."""
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        before = run.weight.detach().clone()
        handle._project(torch.tensor(1.0))
        assert torch.equal(run.weight, before)
        handle._project(torch.tensor(0.0))
        assert torch.equal(run.weight, hoyer.project(before, 0.8, l2="keep"))

    def test_steps_are_found_again_whenever_the_handle_is_made(self):
        run = Training(make=torch.optim.Adam)
        ProjectAfterStep(run.optimizer, run.weight, 0.8)
        run.step(7)
        state = round_trip(run.optimizer.state_dict())
        before, after = Training(make=torch.optim.Adam), Training(make=torch.optim.Adam)
        handles = [ProjectAfterStep(before.optimizer, before.weight, 0.8)]
        before.optimizer.load_state_dict(state)
        after.optimizer.load_state_dict(state)
        # What no one has asked for yet is not lost when it is saved again.
        again = round_trip(after.optimizer.state_dict())
        after.optimizer.load_state_dict(again)
        handles.append(ProjectAfterStep(after.optimizer, after.weight, 0.8))
        assert [handle.steps for handle in handles] == [7, 7]
        assert "hoyer" not in str(before.optimizer.param_groups + after.optimizer.param_groups)

    def test_a_saved_state_does_not_change_any_more(self):
        run = Training()
        ProjectAfterStep(run.optimizer, run.weight, 0.8)
        run.step(2)
        state = run.optimizer.state_dict()
        run.step(3)
        fresh = Training()
        handle = ProjectAfterStep(fresh.optimizer, fresh.weight, 0.8)
        for _ in range(2):
            fresh.optimizer.load_state_dict(state)
            assert handle.steps == 2
            fresh.step()

    def test_removal_then_resume(self):
        shapes = [(4, 20), (5, 20), (6, 20)]
        run = Training(*shapes)
        first, second = (ProjectAfterStep(run.optimizer, w, 0.8) for w in run.weights[:2])
        run.step(2)
        first.remove()
        third = ProjectAfterStep(run.optimizer, run.weights[2], 0.8)
        run.step(3)
        assert (first.steps, second.steps, third.steps) == (2, 5, 3)
        state = round_trip(run.optimizer.state_dict())
        fresh = Training(*shapes)
        # The handles and their parameters in another order, too.
        handles = [ProjectAfterStep(fresh.optimizer, fresh.weights[i], 0.8) for i in (2, 1)]
        fresh.optimizer.load_state_dict(state)
        assert [handle.steps for handle in handles] == [3, 5]

    def test_the_order_of_parameters_does_not_matter(self):
        run, fresh = Training((4, 20), (5, 20)), Training((4, 20), (5, 20))
        ProjectAfterStep(run.optimizer, run.weights, 0.8)
        run.step(3)
        handle = ProjectAfterStep(fresh.optimizer, fresh.weights[::-1], 0.8)
        fresh.optimizer.load_state_dict(run.optimizer.state_dict())
        assert handle.steps == 3

    def test_a_state_without_steps_is_told(self):
        run = Training()
        state = run.optimizer.state_dict()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        run.step(4)
        with pytest.warns(UserWarning, match="no steps for ProjectAfterStep") as told:
            run.optimizer.load_state_dict(state)
        assert line_of(told) == "run.optimizer.load_state_dict(state)"
        assert handle.steps == 4

    def test_copies_hang_on_the_copied_optimizer(self):
        run = Training()
        rising = schedules.linear(0.1, 0.9, 10)
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.9, schedule=rising)
        run.step(3)
        for copied in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
            other, twin = copied((run, handle))
            assert repr(twin) == repr(handle)
            other.step(7)
            assert (handle.steps, twin.steps) == (3, 10)
            np.testing.assert_allclose(hoyer.sparseness(other.weight.detach()), 0.9, atol=1e-5)
        handle.remove()
        other, twin = copy.deepcopy((run, handle))
        other.step()
        assert twin.steps == 3

    @pytest.mark.parametrize(
        "copied",
        [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],
        ids=["deepcopy", "pickle"],
    )
    @pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
    def test_a_copied_optimizer_goes_on_by_itself(self, make, copied):
        """Nobody holds the handle, and copies of copies have it, too."""
        model = network()
        optimizer = make(model.parameters(), lr=0.01)
        rising = schedules.linear(0.1, 0.9, 10)
        ProjectAfterStep(optimizer, model[0].weight, 0.9, schedule=rising)
        ProjectAfterStep(optimizer, model[2].weight, 0.5, l2=1.0)
        train(model, optimizer, 3)
        kept = model[0].weight.detach().clone()
        for _ in range(2):
            model, optimizer = copied((model, optimizer))
            entries = optimizer.state_dict()["param_groups"][0]["hoyer_project_after_step"]
            assert [entry["steps"] for entry in entries] == [3, 3]
        train(model, optimizer, 7)
        np.testing.assert_allclose(hoyer.sparseness(model[0].weight.detach()), 0.9, atol=1e-5)
        np.testing.assert_allclose(hoyer.sparseness(model[2].weight.detach()), 0.5, atol=1e-5)
        assert not torch.equal(kept, model[0].weight)
        assert [
            h["steps"]
            for h in round_trip(optimizer.state_dict())["param_groups"][0][
                "hoyer_project_after_step"
            ]
        ] == [10, 10]

    @pytest.mark.parametrize("first", [True, False])
    def test_a_copy_has_each_handle_once(self, first):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        for copied in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
            both = copied((handle, run) if first else (run, handle))
            twin, other = both if first else both[::-1]
            other.step(2)
            assert (twin.steps, handle.steps) == (2, 0)
            assert twin.optimizer is other.optimizer
            twin.remove()
            other.step()
            assert twin.steps == 2
            assert "hoyer" not in str(copy.deepcopy(other.optimizer).state_dict())

    def test_steps_without_a_handle_are_told_once(self):
        run = Training((4, 20), (5, 20))
        ProjectAfterStep(run.optimizer, run.weights[1], 0.8)
        run.step(3)
        state = round_trip(run.optimizer.state_dict())
        fresh = Training((4, 20), (5, 20))
        fresh.optimizer.load_state_dict(state)
        text = (
            r"saved with a ProjectAfterStep on its parameters \[1\] .* not projected. Make it again"
        )
        with pytest.warns(UserWarning, match=text) as told:
            fresh.step(3)
        assert len(told) == 1
        # The steps still wait for their handle.
        handle = ProjectAfterStep(fresh.optimizer, fresh.weights[1], 0.8)
        assert handle.steps == 3
        handle.remove()
        fresh.optimizer.load_state_dict(state)
        with pytest.warns(UserWarning, match=text):
            fresh.step()
        fresh.optimizer.load_state_dict(state)
        fresh.optimizer.param_groups[0].pop("hoyer_project_after_step")
        fresh.step()

    def test_only_parameters_without_a_handle_are_named(self):
        shapes = [(4, 20)] * 5
        run = Training(*shapes)
        ProjectAfterStep(run.optimizer, run.weights[::2], 0.8)
        state = run.optimizer.state_dict()
        fresh = Training(*shapes)
        fresh.optimizer.load_state_dict(state)
        ProjectAfterStep(fresh.optimizer, fresh.weights[0], 0.8)
        text = r"on its parameters \[0, 2, 4\] .* there is none now on \[2, 4\]: they are not proj"
        with pytest.warns(UserWarning, match=text) as told:
            fresh.step(2)
        assert line_of(told) == "self.optimizer.step()"

    def test_steps_that_no_handle_goes_on_with(self):
        run, fresh = Training((4, 20), (5, 20)), Training((4, 20), (5, 20))
        ProjectAfterStep(run.optimizer, run.weights, 0.8)
        run.step(3)
        fresh.optimizer.load_state_dict(run.optimizer.state_dict())
        handles = [ProjectAfterStep(fresh.optimizer, weight, 0.8) for weight in fresh.weights]
        text = r"parameters \[0, 1\] .*, and its 3 steps wait: they are projected by others now"
        with pytest.warns(UserWarning, match=text):
            fresh.step()
        assert [handle.steps for handle in handles] == [1, 1]

    def test_a_shallow_copy_of_the_optimizer_says_that_it_projects_nothing(self):
        run = Training((4, 20), (5, 20))
        for weight in run.weights:
            ProjectAfterStep(run.optimizer, weight, 0.8)
        other = copy.copy(run.optimizer)
        text = r"a shallow copy .* parameters \[0\]; \[1\] .* not projected.*copy.deepcopy"
        with pytest.warns(UserWarning, match=text) as told:
            other.step()
        assert line_of(told) == "other.step()"
        other.step()
        run.step()
        np.testing.assert_allclose(hoyer.sparseness(run.weight.detach()), 0.8, atol=1e-5)
        # One with handles of its own projects, and need not be told.
        other = copy.copy(run.optimizer)
        handle = ProjectAfterStep(other, run.weights, 0.5)
        other.step()
        assert hoyer.sparseness(run.weight.detach()).tolist() == pytest.approx([0.5] * 4, abs=1e-5)
        handle.remove()
        other.step()
        assert handle.steps == 1

    def test_beside_a_parametrized_layer(self):
        """Deep copies go on; PyTorch pickles no parametrized model, as README says."""
        model = network()
        parametrizations.sparseness(model[0], "weight", 0.8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        ProjectAfterStep(optimizer, model[2].weight, 0.5)
        with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
            pickle.dumps((model, optimizer))
        twin, other = copy.deepcopy((model, optimizer))
        train(twin, other)
        found = [record.sparseness for record in sparseness_report(twin)]
        assert found == pytest.approx([0.8, 0.5], abs=1e-5)

    def test_a_handle_is_not_copied_alone(self):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        with pytest.raises(TypeError, match=r"would project twice.*copy.deepcopy\(\(model, optimi"):
            copy.copy(handle)
        run.step()
        assert handle.steps == 1

    @pytest.mark.parametrize(
        ("state", "error", "text"),
        [
            ({}, ValueError, r"state_dict has no 'steps', .* got \[\]"),
            ({"state": {}, "param_groups": []}, ValueError, r"got \['state', 'param_groups'\]"),
            ({"steps": -3}, ValueError, "steps=-3: must be at least 0"),
            ({"steps": 2.5}, TypeError, "steps=2.5: must be an int"),
        ],
    )
    def test_what_is_no_state(self, state, error, text):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8)
        with pytest.raises(error, match=text):
            handle.load_state_dict(state)
        assert handle.steps == 0

    def test_optimizers_of_any_kind_pass_the_global_hook(self):
        class Wrapper(torch.optim.Optimizer):
            """Has neither param groups nor state of its own."""

            def __init__(self, inner):
                self.inner = inner
                self._optimizer_step_pre_hooks = {}
                self._optimizer_step_post_hooks = {}
                self._patch_step_function()

            def step(self, closure=None):
                self.inner.step()

        run = Training()
        ProjectAfterStep(run.optimizer, run.weight, 0.8)
        run.weight.grad = torch.randn(4, 20)
        Wrapper(run.optimizer).step()
        np.testing.assert_allclose(hoyer.sparseness(run.weight.detach()), 0.8, atol=1e-5)

    def test_nan_names_parameter_and_step(self):
        run = Training((4, 20), (64, 20))
        ProjectAfterStep(run.optimizer, run.weights, 0.8)
        run.step(2)
        run.weights[1].data[3, 5] = math.nan
        text = r"params\[1\] of shape \(64, 20\) has nan after step 3: training diverged"
        with pytest.raises(ValueError, match=text):
            run.step()
        run.weights[1].data[3, 5] = math.inf
        with pytest.raises(ValueError, match="has infinity after step 4"):
            run.step()

    def test_nan_names_layer_and_parameter_where_they_are_known(self):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ProjectAfterStep(optimizer, [(model[0], "weight"), (model[2], "weight")], 0.5)
        model[2].weight.data[1, 1] = math.nan
        text = r"params\[1\] \(weight of Linear\) of shape \(3, 12\) has nan after step 0"
        with pytest.raises(ValueError, match=text):
            handle.project()

    def test_nan_that_is_wanted(self):
        run = Training()
        ProjectAfterStep(run.optimizer, run.weight, 0.8, check_finite=False)
        run.weight.data[3, 5] = math.nan
        run.step()
        assert run.weight.isnan().any(1).tolist() == [False, False, False, True]

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"dim": 5}, IndexError, r"dim=5: params\[0\] of shape \(4, 20\) has 2 axes"),
            ({"dim": "outputs"}, ValueError, "dim='outputs': give an int"),
            ({"dim": 1.0}, TypeError, "dim=1.0: must be an int"),
            ({"l2": "kept"}, ValueError, "l2='kept'"),
            ({"schedule": 0.9}, TypeError, "schedule=0.9: give a function"),
            ({"schedule": "linear"}, TypeError, "schedule='linear': give a function"),
            ({"schedule": schedules.linear}, TypeError, "is made first, as in schedules.linear"),
            ({"schedule": lambda step: 1.5}, ValueError, r"schedule\(1\) is 1.5"),
            ({"schedule": lambda step: 80}, ValueError, r"schedule\(1\) is 80.*0.8 for 80 %"),
            ({"schedule": lambda step: None}, TypeError, "cannot be called"),
            (
                {"schedule": schedules.linear(0.1, 0.9, 100)},
                ValueError,
                "ends above sparseness=0.5, the largest that is asked for",
            ),
            ({"only_increase": "yes"}, TypeError, "only_increase='yes': must be True or False"),
            ({"every": 2.5}, TypeError, "every=2.5: must be an int"),
            ({"warmup": -1}, ValueError, "warmup=-1: must be at least 0"),
            ({"sparseness": 50}, ValueError, r"got 50.0 \(0.5 for 50 %\)"),
            (
                {"sparseness": [0.5, 0.6]},
                ValueError,
                r"does not fit params\[0\] of shape \(4, 20\)",
            ),
            ({"sparseness": "0.5"}, TypeError, "must be a real number"),
        ],
    )
    def test_arguments_are_checked_at_once(self, options, error, text):
        run = Training()
        with pytest.raises(error, match=text):
            ProjectAfterStep(run.optimizer, run.weight, **{"sparseness": 0.5, **options})
        assert not run.optimizer._optimizer_step_post_hooks

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            ({"every": 0}, ValueError),
            ({"warmup": -1}, ValueError),
            ({"schedule": 0.9}, TypeError),
            ({"sparseness": 70}, ValueError),
            ({"only_increase": "yes"}, TypeError),
        ],
    )
    def test_nothing_is_told_of_what_is_refused(self, options, error):
        run = Training()
        ProjectAfterStep(run.optimizer, run.weight, 0.5)
        # A warning would be another error.
        with pytest.raises(error):
            ProjectAfterStep(run.optimizer, run.weight, **{"sparseness": 0.5, **options})
        with pytest.warns(UserWarning, match="the new one comes last") as told:
            ProjectAfterStep(run.optimizer, run.weight, 0.6)
        assert line_of(told) == "ProjectAfterStep(run.optimizer, run.weight, 0.6)"

    def test_a_falling_schedule_must_say_what_shall_fall(self):
        run = Training()
        falling = schedules.cubic(0.9, 0.1, 4)
        text = r"falls, .* only_increase=True .* pass only_increase=False"
        with pytest.raises(ValueError, match=text):
            ProjectAfterStep(run.optimizer, run.weight, 0.9, schedule=falling)
        assert not run.optimizer._optimizer_step_post_hooks
        options = {"schedule": falling, "only_increase": False}
        ProjectAfterStep(run.optimizer, run.weight, 0.9, **options)
        run.step(4)
        np.testing.assert_allclose(hoyer.sparseness(run.weight.detach()), 0.1, atol=1e-5)
        options = {"schedule": schedules.linear(0.5, 0.5, 3), "only_increase": None}
        fresh = Training()
        assert ProjectAfterStep(fresh.optimizer, fresh.weight, 0.9, **options).only_increase

    def test_assigning_a_target(self):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.3)
        for value in (0.7, [0.2, 0.4, 0.6, 0.8], torch.tensor(0.5)):
            handle.sparseness = value
            run.step()
            found = hoyer.sparseness(run.weight.detach())
            np.testing.assert_allclose(found, np.broadcast_to(value, 4), atol=1e-5)
        for wrong, error, text in (
            (70, ValueError, r"got 70.0 \(0.7 for 70 %\)"),
            ("0.7", TypeError, "must be a real number"),
            ([0.5, 0.6], ValueError, r"does not fit params\[0\] of shape \(4, 20\)"),
            (None, TypeError, "sparseness is missing"),
        ):
            with pytest.raises(error, match=text):
                handle.sparseness = wrong
        assert float(handle.sparseness) == 0.5

    def test_assigning_a_target_beside_norms_or_a_schedule(self):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, l1=3.0, l2=1.0)
        with pytest.raises(ValueError, match="with at most one norm"):
            handle.sparseness = 0.5
        handle.sparseness = None
        handle.remove()
        rising = schedules.linear(0.1, 0.5, 10)
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.8, schedule=rising)
        with pytest.raises(ValueError, match=r"ends above sparseness=0\.4"):
            handle.sparseness = 0.4
        handle.sparseness = 0.6
        assert handle.limit == 0.6
        assert handle.sparseness == pytest.approx(0.1)

    def test_a_bias_among_the_parameters(self):
        run = Training((4, 20), (20,))
        with pytest.raises(IndexError, match=r"dim=1: params\[1\] of shape \(20,\) has 1 axes"):
            ProjectAfterStep(run.optimizer, run.weights, 0.5, dim=1)
        with pytest.raises(ValueError, match=r"params\[1\] of shape \(20,\) .*is it a bias"):
            ProjectAfterStep(run.optimizer, run.weights, 0.5)
        ProjectAfterStep(run.optimizer, run.weights[1], 0.5, dim=0)
        run.step()
        assert float(hoyer.sparseness(run.weights[1].detach())) == pytest.approx(0.5, abs=1e-5)

    def test_a_tensor_of_many_axes_needs_its_layer(self):
        layer = nn.Conv2d(3, 5, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        text = (
            r" of shape \(5, 3, 2, 2\) may belong to a convolution or to a transposed "
            r"one, .*\(layer, 'weight'\), or name the axes, dim=\(1, 2, 3\)"
        )
        with pytest.raises(ValueError, match=r"^params\[0\]" + text):
            ProjectAfterStep(optimizer, layer.weight, 0.6)
        nn.utils.parametrizations.weight_norm(layer)
        stored = layer.parametrizations.weight
        optimizer = torch.optim.SGD(stored.parameters(), lr=0.1)
        name = r"^params\[0\] \(original1 of ParametrizationList\)"
        with pytest.raises(ValueError, match=name + text):
            ProjectAfterStep(optimizer, (stored, "original1"), 0.6)

    @pytest.mark.parametrize(
        ("call", "error", "text"),
        [
            (lambda o, m: (o, m, 0.5), TypeError, r"get_submodule\('0'\), 'weight'\)"),
            (lambda o, m: (o, m.named_parameters(), 0.5), TypeError, "without their names"),
            (lambda o, m: (o, o.param_groups[0], 0.5), TypeError, r"pass group\['params'\]"),
            (lambda o, m: (o, "weight", 0.5), TypeError, "params is of type str"),
            (lambda o, m: (o, 0.5, m[0].weight), TypeError, "params is of type float"),
            (lambda o, m: (m[0].weight, o, 0.5), TypeError, "the order is ProjectAfterStep"),
            (
                lambda o, m: (torch.optim.lr_scheduler.StepLR(o, 1), m[0].weight, 0.5),
                TypeError,
                "type StepLR: pass the optimizer that it drives",
            ),
            (lambda o, m: (None, m[0].weight, 0.5), TypeError, "type NoneType: pass a torch.optim"),
            (lambda o, m: (o, [m[0].weight] * 2, 0.5), ValueError, "same parameter twice"),
            (lambda o, m: (o, m[2].weight, 0.5), ValueError, "it is projected already"),
            (lambda o, m: (o, (m[2], "weight"), 0.5), ValueError, "it is projected already"),
            (lambda o, m: (o, [m[0]], 0.5), TypeError, r"is a module: pass \(linear, 'weight'\)"),
            (
                lambda o, m: (o, [(m[0], "wait")], 0.5),
                ValueError,
                r"params\[0\] is \(Linear, 'wait'\): Linear has no parameter 'wait'",
            ),
            (lambda o, m: (o, nn.LazyLinear(3).weight, 0.5), ValueError, "has no shape yet"),
            (lambda o, m: (o, m[0].weight, None), TypeError, "sparseness is missing"),
            (lambda o, m: (o, m[0].weight), TypeError, "sparseness is missing"),
        ],
    )
    def test_hints(self, call, error, text):
        model = network()
        parametrizations.sparseness(model[2], "weight", 0.5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(error, match=text):
            ProjectAfterStep(*call(optimizer, model))

    def test_a_tensor_as_target_is_read_anew(self):
        run = Training()
        target = torch.tensor(0.3)
        handle = ProjectAfterStep(run.optimizer, run.weight, target)
        for value in (0.5, 0.8):
            target.fill_(value)
            run.step()
            np.testing.assert_allclose(hoyer.sparseness(run.weight.detach()), value, atol=1e-5)
        handle.schedule = schedules.linear(0.1, 0.2, 1)
        assert float(handle.sparseness) == pytest.approx(0.2)

    def test_targets_per_vector_rise_to_their_own(self):
        run = Training()
        handle = ProjectAfterStep(
            run.optimizer, run.weight, [0.3, 0.5, 0.7, 0.9], schedule=schedules.linear(0, 0.9, 9)
        )
        run.step(6)
        torch.testing.assert_close(handle.sparseness, torch.tensor([0.3, 0.5, 0.6, 0.6]))
        run.step(3)
        found = hoyer.sparseness(run.weight.detach())
        assert (found >= torch.tensor([0.3, 0.5, 0.7, 0.9]) - 1e-5).all()

    def test_repr(self):
        run = Training()
        handle = ProjectAfterStep(run.optimizer, run.weight, 0.5, dim=1, every=2, warmup=3)
        run.step()
        inside = "1 tensor, sparseness=0.5, dim=1, l2='keep', every=2, warmup=3, steps=1"
        assert repr(handle) == f"ProjectAfterStep({inside})"
        handle.remove()
        several = ProjectAfterStep(run.optimizer, run.weight, [0.1, 0.2, 0.3, 0.4], l2=2.0)
        assert "sparseness=tensor of shape (4,), dim='inputs', l2=2, steps" in repr(several)


class TestSchedules:
    def test_printed_compared_and_pickled(self):
        schedule = schedules.cubic(0.1, 0.9, 10)
        assert pickle.loads(pickle.dumps(schedule)) == schedule
        assert repr(schedule) == "Polynomial(start=0.1, end=0.9, steps=10, power=3)"
        assert schedule(0) == pytest.approx(0.1)
        assert schedule(10) == schedule(1000) == 0.9

    def test_errors(self):
        with pytest.raises(TypeError, match=r"steps=10.5: must be an int"):
            schedules.linear(0.1, 0.9, 10.5)
        with pytest.raises(ValueError, match=r"end=90: .* in \[0, 1\], got 90.0 \(0.9 for 90 %\)"):
            schedules.linear(0.1, 90, 10)
        with pytest.raises(ValueError, match=r"start=10: .*\(0.1 for 10 %\)"):
            schedules.polynomial(10, 0.9, 10, power=2)
        with pytest.raises(ValueError, match=r"end=1.2: sparseness must lie in \[0, 1\], got 1.2$"):
            schedules.cubic(0.1, 1.2, 10)
        with pytest.raises(TypeError, match=r"start='0.1': .* must be a real number"):
            schedules.linear("0.1", 0.9, 10)
        with pytest.raises(ValueError, match="power=0: must be positive"):
            schedules.polynomial(0.1, 0.9, 10, power=0)


class TestReport:
    def test_records_and_table(self):
        model = network()
        parametrizations.sparseness(model[0], "weight", 0.8, learnable=True)
        with torch.no_grad():
            model[2].weight.zero_()
        report = sparseness_report(model)
        assert [r.name for r in report.records] == ["0.weight", "2.weight"]
        first, second = report.records
        weight = model[0].weight.detach().double()
        assert first.shape == (12, 20)
        assert first.sparseness == pytest.approx(0.8, abs=1e-6)
        assert first.lowest <= first.sparseness <= first.highest
        assert first.zeros == pytest.approx(float((weight == 0).double().mean()))
        assert (first.l1, first.l2) == pytest.approx(
            (float(weight.abs().sum()), float(weight.norm()))
        )
        assert math.isnan(second.sparseness)
        assert second.zeros == 1
        lines = str(report).splitlines()
        assert lines[0].split() == [
            "tensor",
            "shape",
            "sparseness",
            "lowest",
            "highest",
            "zeros",
            "l1",
            "l2",
        ]
        assert lines[2].startswith("0.weight  12 x 20       0.800")
        assert lines[4].startswith("2.weight: 3 of 3 vectors have no sparseness")
        assert len(lines) == 5
        assert repr(report) == str(report)

    def test_shared_and_small_tensors(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        assert [r.name for r in sparseness_report(model).records] == ["0.weight"]
        names = [r.name for r in sparseness_report(model, least_axes=1).records]
        assert names == ["0.weight", "0.bias", "1.bias"]

    def test_a_sequence_of_records(self):
        report = sparseness_report(network())
        assert len(report) == 2
        assert [record.name for record in report] == ["0.weight", "2.weight"]
        assert report[-1].shape == (3, 12)
        assert "left out of the mean" in type(report[0]).__doc__

    @pytest.mark.parametrize("tool", ["prune", "spectral_norm", "weight_norm"])
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_tensors_that_hooks_compute(self, tool):
        layer = nn.Linear(20, 6)
        if tool == "prune":
            prune.l1_unstructured(layer, "weight", amount=0.5)
        else:
            getattr(nn.utils, tool)(layer)
        layer(torch.randn(2, 20))
        (record,) = sparseness_report(layer)
        assert record.name == "weight"
        assert record.zeros == (0.5 if tool == "prune" else 0)
        assert record.l2 == pytest.approx(float(layer.weight.detach().norm()), rel=1e-5)

    def test_tied_to_a_parametrized_tensor(self):
        model = nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.Linear(8, 4)})
        model["b"].weight = model["a"].weight
        parametrizations.sparseness(model["a"], "weight", 0.8)
        first, second = sparseness_report(model)
        assert (first.name, second.name) == ("a.weight", "b.weight")
        assert second.zeros == 0 < first.zeros

    def test_computed_tensors_are_not_taken_for_each_other(self):
        layers = [parametrizations.sparseness(nn.Linear(8, 4), "weight", 0.5) for _ in range(20)]
        assert len(sparseness_report(nn.Sequential(*layers))) == 20

    def test_vectors_without_a_sparseness_are_told(self):
        layer = nn.Linear(8, 4)
        with torch.no_grad():
            layer.weight[0] = 0
            layer.weight[1, 1] = math.nan
        report = sparseness_report(layer)
        assert (report[0].vectors, report[0].undefined) == (4, 2)
        assert report[0].sparseness == pytest.approx(
            float(hoyer.sparseness(layer.weight.detach()[2:]).mean())
        )
        assert "weight: 2 of 4 vectors have no sparseness" in str(report)
        (single,) = sparseness_report(nn.Linear(1, 3))
        assert (single.vectors, single.undefined) == (3, 3)

    @pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
    def test_what_cannot_be_measured_is_told(self):
        model = nn.ModuleDict(
            {
                "empty": nn.Linear(0, 3),
                "lazy": nn.LazyLinear(3),
                "meta": nn.Linear(2, 3, device="meta"),
            }
        )
        report = sparseness_report(model)
        assert len(report) == 0
        lines = str(report).splitlines()
        assert lines[0] == "no weights to measure"
        assert "empty.weight: no entries in shape (3, 0)" in lines
        assert "meta.weight: no numbers on device meta" in lines
        assert lines[2].startswith("lazy.weight: not initialized")
        assert str(sparseness_report(nn.ReLU())) == "no weights to measure"

    def test_dim(self):
        layer = nn.Linear(20, 6)
        (record,) = sparseness_report(layer, dim=0)
        expected = hoyer.sparseness(layer.weight.detach(), axis=0)
        assert record.vectors == 20
        assert record.highest == pytest.approx(float(expected.max()), rel=1e-5)
        with pytest.raises(IndexError, match=r"dim=2: weight of shape \(6, 20\) has 2 axes"):
            sparseness_report(layer, dim=2)
        with pytest.raises(ValueError, match="dim='rows'"):
            sparseness_report(layer, dim="rows")

    @pytest.mark.parametrize("given", [torch.ones(3, 4), nn.Linear(3, 4).state_dict()])
    def test_what_is_no_model(self, given):
        with pytest.raises(TypeError, match=r"pass the nn.Module itself"):
            sparseness_report(given)


def _train_in_parallel(rank, port, queue):
    import os

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = network()
    parametrizations.sparseness(model[0], "weight", 0.8, learnable=True)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(parallel.parameters(), lr=0.01)
    ProjectAfterStep(optimizer, model[2].weight, 0.6, dim=1)
    torch.manual_seed(rank)
    train(parallel, optimizer, 3)
    queue.put((rank, model[0].weight.detach().numpy(), model[2].weight.detach().numpy()))
    torch.distributed.destroy_process_group()


def test_distributed_data_parallel(tmp_path):
    """Two processes with different data end with the same sparse weights."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_train_in_parallel, args=(r, port, queue)) for r in (0, 1)]
    for process in processes:
        process.start()
    found = sorted((queue.get(timeout=120) for _ in processes), key=lambda item: item[0])
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    for mine, other in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(hoyer.sparseness(found[0][2]), 0.6, atol=1e-5)


def test_lazy_loading(run_python):
    text = run_python("""
        import sys, hoyer
        before = "hoyer.torch" in sys.modules
        layer = hoyer.torch.SparsenessProjection(0.5)
        print(before, "hoyer.torch" in sys.modules, layer.sparseness)
    """)
    assert text.split() == ["False", "True", "0.5"]


def test_without_pytorch_it_says_what_to_install(run_python):
    text = run_python("""
        import sys
        sys.modules["torch"] = None
        import hoyer
        for load in (lambda: hoyer.torch, lambda: __import__("hoyer.torch")):
            try:
                load()
            except ImportError as error:
                print(error)
    """)
    assert text.splitlines() == ["hoyer.torch needs PyTorch: pip install 'hoyer[torch]'"] * 2
