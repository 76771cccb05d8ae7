"""hoyer.torch.ProjectAfterStep: what it keeps, loads, copies, refuses and warns of."""

import copy
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from training import Training, line_of, network, round_trip, train  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    parametrizations,
    schedules,
    sparseness_report,
)

pytestmark = pytest.mark.usefixtures("torch_seed")


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
            ({"schedule": lambda step: 80}, ValueError, r"schedule\(1\) is 80.*did you mean 0.8"),
            ({"schedule": lambda step: None}, TypeError, "cannot be called"),
            (
                {"schedule": schedules.linear(0.1, 0.9, 100)},
                ValueError,
                "ends above sparseness=0.5, the largest that is asked for",
            ),
            ({"only_increase": "yes"}, TypeError, "only_increase='yes': must be True or False"),
            ({"every": 2.5}, TypeError, "every=2.5: must be an int"),
            ({"warmup": -1}, ValueError, "warmup=-1: must be at least 0"),
            ({"sparseness": 50}, ValueError, r"got 50.0 \(did you mean 0.5\?\)"),
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
            (70, ValueError, r"got 70.0 \(did you mean 0.7\?\)"),
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
