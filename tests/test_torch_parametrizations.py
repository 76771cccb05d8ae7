"""hoyer.torch.parametrizations: weights that are sparse by construction; what an input is."""

import copy
import io
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from training import line_of, network, train  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    SparsenessProjection,
    parametrizations,
    sparseness_report,
)

pytestmark = pytest.mark.usefixtures("torch_seed")


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
