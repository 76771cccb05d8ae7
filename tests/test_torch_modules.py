"""hoyer.torch: the projection as a layer, its targets, and loading the package."""

import copy
import io
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from training import Training, network  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    SparsenessProjection,
    parametrizations,
    schedules,
    sparseness_report,
)

pytestmark = pytest.mark.usefixtures("torch_seed")


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

    def test_an_axis_is_called_dim(self):
        with pytest.raises(IndexError, match=r"^dim=1: x has 1 axis: use -1 or 0$"):
            SparsenessProjection(0.5, dim=1)(torch.randn(3))


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

    def test_states_from_before_logits_had_an_axis(self):
        layer = nn.Sequential(SparsenessProjection(0.5, learnable=True))
        state = {"0.logit": torch.tensor(1.0)}
        layer.load_state_dict(state)
        assert state["0.logit"].shape == ()
        assert layer[0].logit.tolist() == [1.0]
        assert float(layer[0].sparseness.detach()) == pytest.approx(1 / (1 + math.exp(-1)))

    def test_optimizers_from_before_logits_had_an_axis(self):
        """The line that docs/guides/several_machines.md gives for Adam."""
        layer = SparsenessProjection(0.5, learnable=True)
        optimizer = torch.optim.Adam(layer.parameters(), amsgrad=True)
        layer(torch.randn(3, 8)).sum().backward()
        optimizer.step()
        saved = optimizer.state_dict()
        for name in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"):
            saved["state"][0][name] = saved["state"][0][name].reshape(())
        optimizer.load_state_dict(saved)
        # fmt: off
        for p, s in optimizer.state.items(): s.update({k: v.reshape(p.shape) for k, v in s.items() if k != "step"})  # noqa: E501, E701
        # fmt: on
        optimizer.step()
        assert optimizer.state[layer.logit]["exp_avg"].shape == (1,)
        assert optimizer.state[layer.logit]["step"] == 2

    @pytest.mark.parametrize("kind", [nn.Parameter, lambda t: t.requires_grad_()])
    def test_a_target_that_requires_grad_is_not_made_a_constant(self, kind):
        for shape in ((), (4,)):
            given = kind(torch.full(shape, 0.5))
            with pytest.raises(ValueError, match="sparseness requires grad: pass learnable=True"):
                SparsenessProjection(given)
            with pytest.raises(ValueError, match="sparseness requires grad: pass learnable=True"):
                parametrizations.sparseness(nn.Linear(9, 4), "weight", given)
            layer = SparsenessProjection(given, learnable=True)
            # FSDP2 takes no parameters without an axis.
            assert layer.logit.shape == (shape or (1,))
            assert layer.sparseness.shape == shape

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
            (90, ValueError, r"got 90.0 \(did you mean 0.9\?\)"),
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

    def test_l1_alone(self):
        x = torch.randn(3, 9)
        layer = SparsenessProjection(l1=2.0, nonnegative=True)
        assert torch.equal(layer(x), hoyer.project(x, l1=2.0, nonnegative=True))
        assert repr(layer) == "SparsenessProjection(dim=-1, l1=2, nonnegative=True)"

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
            ({"l1": 2.0, "l2": "keep"}, ValueError, "l1=2.0, l2='keep' is no target"),
            ({"sparseness": 0.5, "l1": 2.0, "l2": 1.0}, ValueError, "with at most one norm"),
            ({"sparseness": 0.5, "l1": 2.0, "l2": "keep"}, ValueError, "with at most one norm"),
            ({"sparseness": 0.5, "l1": "keep"}, ValueError, "l1='keep': l1 must be a number"),
            ({"sparseness": 0.5, "l1": -1}, ValueError, "l1 must be positive and finite, got -1.0"),
            (
                {"l1": 2.0, "l2": 1.0, "learnable": True},
                ValueError,
                "is for a sparseness",
            ),
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
