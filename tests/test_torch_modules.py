"""hoyer.torch: layers, parametrizations, projected optimization, the report."""

import copy
import io
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

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
        ids=str,
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
        ids=str,
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

    def test_shared_and_small_tensors(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        model[1].weight = model[0].weight
        assert [r.name for r in sparseness_report(model).records] == ["0.weight"]
        names = [r.name for r in sparseness_report(model, least_axes=1).records]
        assert names == ["0.weight", "0.bias", "1.bias"]


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
