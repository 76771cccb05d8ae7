"""hoyer.torch.ProjectAfterStep: projected optimization, schedules, several processes."""

import io
import math
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from training import network, train  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    parametrizations,
    schedules,
)

pytestmark = pytest.mark.usefixtures("torch_seed")


class OneOfAnother(torch.optim.Adam):
    """An optimizer of a user, whose step calls that of PyTorch."""

    def step(self, closure=None):
        return super().step(closure)


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

    @pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
    @pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
    def test_steps_that_pytorch_makes_before_it_saves_do_not_count(self, make, rate):
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        model = nn.Linear(20, 4)
        optimizer = make(model.parameters(), lr=rate)
        handle = ProjectAfterStep(optimizer, model.weight, 0.8)
        before = model.weight.detach().clone()
        get_optimizer_state_dict(model, optimizer)
        assert handle.steps == 0
        assert torch.equal(model.weight, before)
        # One of the user's is another thing.
        optimizer.param_groups[0]["lr"] = 0.0
        optimizer.step()
        assert handle.steps == 1
        np.testing.assert_allclose(hoyer.sparseness(model.weight.detach()), 0.8, atol=1e-5)

    def test_nor_do_they_where_users_call_the_step_of_another_class(self):
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        model = nn.Linear(20, 4)
        optimizer = OneOfAnother(model.parameters())
        handle = ProjectAfterStep(optimizer, model.weight, 0.8)
        before = model.weight.detach().clone()
        get_optimizer_state_dict(model, optimizer)
        assert handle.steps == 0
        assert torch.equal(model.weight, before)

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
        with pytest.raises(
            ValueError, match=r"end=90: .* in \[0, 1\], got 90.0 \(did you mean 0.9\?\)"
        ):
            schedules.linear(0.1, 90, 10)
        with pytest.raises(ValueError, match=r"start=10: .*\(did you mean 0.1\?\)"):
            schedules.polynomial(10, 0.9, 10, power=2)
        with pytest.raises(ValueError, match=r"end=1.2: sparseness must lie in \[0, 1\], got 1.2$"):
            schedules.cubic(0.1, 1.2, 10)
        with pytest.raises(TypeError, match=r"start='0.1': .* must be a real number"):
            schedules.linear("0.1", 0.9, 10)
        with pytest.raises(ValueError, match="power=0: must be positive"):
            schedules.polynomial(0.1, 0.9, 10, power=0)


def _train_in_parallel(rank, meeting, queue):
    torch.set_num_threads(1)
    # By a file: a port that is free now may be taken a moment later.
    where = f"file://{meeting}"
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
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
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [
        context.Process(target=_train_in_parallel, args=(r, tmp_path / "meeting", queue))
        for r in (0, 1)
    ]
    for process in processes:
        process.start()
    found = sorted((queue.get(timeout=120) for _ in processes), key=lambda item: item[0])
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    for mine, other in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(hoyer.sparseness(found[0][2]), 0.6, atol=1e-5)
