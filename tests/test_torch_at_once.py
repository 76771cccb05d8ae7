"""hoyer.torch.parametrizations.at_once: the same as one by one, by a few calls."""

import copy
import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import hoyer  # noqa: E402
from hoyer.families.torch import joined  # noqa: E402
from hoyer.torch import joint, modules, parametrizations  # noqa: E402

pytestmark = pytest.mark.usefixtures("torch_seed")

ALONE = modules._top_saved_hooks is None
together = pytest.mark.skipif(ALONE, reason="one by one with PyTorch 2.7, if not compiled")


class Network(nn.Module):
    """Layers of several kinds, some of which have vectors of one length; one may be left out."""

    def __init__(self, **options):
        super().__init__()
        self.filters = nn.Conv2d(3, 20, 4)
        self.hidden = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        self.wide = nn.Linear(20, 48)
        self.narrow = nn.Linear(48, 6)
        self.back = nn.ConvTranspose1d(6, 4, 5)
        self.grouped = nn.ConvTranspose1d(4, 2, 3, groups=2)
        layers = (self.filters, *self.hidden, self.wide, self.narrow, self.back, self.grouped)
        for layer in layers:
            parametrizations.sparseness(layer, "weight", 0.8, **options)
        self.skip = False

    def forward(self, x):
        x = self.filters(x).flatten(1)
        for layer in self.hidden[1:] if self.skip else self.hidden:
            x = torch.relu(layer(x))
        return self.grouped(self.back(self.narrow(self.wide(x))[..., None]))


def pair(**options):
    """Two equal networks, the second of which projects at once."""
    one = Network(**options)
    with torch.no_grad():
        for part in one.modules():
            if isinstance(part, hoyer.torch.SparsenessProjection) and part.logit is not None:
                part.logit += torch.rand_like(part.logit)
    other = copy.deepcopy(one)
    parametrizations.at_once(other)
    return one, other


@pytest.fixture
def batch():
    return torch.randn(7, 3, 5, 7)[..., :4, :4] + 0.1


@pytest.fixture
def joint_calls(monkeypatch):
    """How many tensors were projected together, call by call."""
    if ALONE:
        pytest.skip(together.kwargs["reason"])
    counts = []

    def counted(tensors, *rest):
        counts.append(len(tensors))
        return joined.project_joined(tensors, *rest)

    monkeypatch.setattr("hoyer.torch.joint.project_joined", counted)
    return counts


def gradients(model, x):
    model.zero_grad()
    value = model(x)
    (value**2).sum().backward()
    return value, [p.grad for p in model.parameters()]


def same(a, b, tol=0.0):
    for one, other in zip(a, b, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=tol, atol=tol)


OPTIONS = [
    {},
    {"l2": 1.0},
    {"l2": "nearest"},
    {"l2": "nearest", "learnable": True},
    {"nonnegative": True},
    {"only_increase": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_as_one_by_one(options, batch, joint_calls):
    one, other = pair(**options)
    (a, by_a), (b, by_b) = gradients(one, batch), gradients(other, batch)
    tol = 1e-5 if "learnable" in options else 0.0
    same([a, *by_a], [b, *by_b], tol)
    # Filters and narrow: 48 entries; hidden and wide: 20; transposed ones lie in another order.
    assert sorted(joint_calls) == [2, 5]


def test_learned(batch, joint_calls):
    one, other = pair(learnable=True)
    (a, by_a), (b, by_b) = gradients(one, batch), gradients(other, batch)
    torch.testing.assert_close(a, b)
    same(by_a, by_b, 1e-5)
    assert sorted(joint_calls) == [2, 5]


def test_targets_of_their_own(batch, joint_calls):
    """A number for each vector, and numbers that differ: not for one call, or as its rows."""
    one = Network()
    for i, layer in enumerate(one.hidden):
        layer.parametrizations.weight[0].sparseness = 0.5 + 0.1 * i
    one.filters.parametrizations.weight[0].sparseness = torch.linspace(0.3, 0.9, 20)
    one.narrow.parametrizations.weight[0].sparseness = torch.linspace(0.4, 0.6, 6)
    other = copy.deepcopy(one)
    parametrizations.at_once(other)
    (a, by_a), (b, by_b) = gradients(one, batch), gradients(other, batch)
    torch.testing.assert_close(a, b)
    same(by_a, by_b, 1e-5)
    assert joint_calls == [2, 2]  # filters and narrow; 0.8 and hidden[3], which has it as well


@together
def test_targets_beside_axes_of_length_one():
    """Of the batch, and of the vectors."""
    layers = [nn.Conv2d(48, 5, 1), nn.Conv2d(3, 1, 4), nn.Linear(48, 5)]
    for layer in layers:
        shape = layer.weight.shape[:1]
        parametrizations.sparseness(layer, "weight", torch.rand(shape) / 2 + 0.3)
    expected = [layer.weight.detach() for layer in layers]

    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self):
            return [layer.weight for layer in self.layers]

    model = Weights()
    parametrizations.at_once(model)
    same(model(), expected, 1e-6)
    assert all(w.grad_fn.name() == "JoinedBackward" for w in model())


def test_training_takes_the_same_way(batch):
    ways = []
    for model in pair():
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            (model(batch) ** 2).sum().backward()
            optimizer.step()
        ways.append([p.detach().clone() for p in model.parameters()])
    same(*ways)


@pytest.mark.parametrize("learnable", [False, True])
def test_a_layer_that_is_left_out_gets_no_gradient(learnable, batch):
    one, other = pair(learnable=learnable)
    one.skip = other.skip = True
    same(gradients(one, batch)[1], gradients(other, batch)[1], 1e-5)
    left_out = other.hidden[0].parametrizations.weight
    assert left_out.original.grad is None
    if learnable:
        assert left_out[0].logit.grad is None


@pytest.mark.parametrize(
    "options", [{}, {"l2": 1.0}, {"learnable": True}, {"learnable": True, "l2": "nearest"}], ids=str
)
def test_second_derivatives(options, batch):
    found = []
    for model in pair(**options):
        model.double()
        parameters = list(model.parameters())
        value = (model(batch.double()) ** 2).sum()
        first = torch.autograd.grad(value, parameters, create_graph=True)
        found.append(torch.autograd.grad(sum((g**2).sum() for g in first), parameters))
    same(*found, tol=1e-9)


def test_without_gradients(batch, joint_calls):
    one, other = pair()
    with torch.no_grad():
        assert torch.equal(one(batch), other(batch))
    assert len(joint_calls) == 2


def test_results_are_good_for_one_call(batch):
    """Weights that are read elsewhere are those of now."""
    _, model = pair()
    model(batch)
    layer = model.hidden[0]
    layer.weight = torch.randn(20, 20)
    stored = layer.parametrizations.weight.original
    assert torch.equal(layer.weight, hoyer.project(stored, 0.8, l2="keep"))


def test_a_failed_call_leaves_nothing_behind(batch):
    _, model = pair()
    with pytest.raises(RuntimeError):
        model(batch[:, :2])
    for layer in model.hidden:
        assert layer.parametrizations.weight[0]._ready is None


def test_errors_name_the_tensor(batch):
    _, model = pair()
    with torch.no_grad():
        model.hidden[2].parametrizations.weight.original[3, 4] = float("nan")
    with pytest.raises(ValueError, match=r"weight of Linear of shape \(20, 20\): .*NaN"):
        model(batch)


def test_copies_project_their_own_weights(batch, joint_calls):
    _, model = pair()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.add_(torch.randn_like(p), alpha=0.1)
    joint_calls.clear()
    found = gradients(twin, batch)
    assert sorted(joint_calls) == [2, 5]
    one = Network()
    one.load_state_dict(twin.state_dict())
    expected = gradients(one, batch)
    assert torch.equal(found[0], expected[0])
    same(found[1], expected[1])


def test_removed(batch, joint_calls):
    model = Network()
    handle = parametrizations.at_once(model)
    model(batch)
    assert joint_calls
    joint_calls.clear()
    handle.remove()
    model(batch)
    assert not joint_calls
    # So is one whose parametrization went.
    parametrizations.at_once(model)
    parametrize.remove_parametrizations(model.hidden[0], "weight")
    model(batch)
    assert torch.isfinite(model(batch)).all()


def compiled_with(model, seen):
    """A compiled model; `seen` gets the projections in its graph."""
    torch.compiler.reset()

    def backend(graph, _):
        seen.extend(node.target for node in graph.graph.nodes if "hoyer" in str(node.target))
        return graph.forward

    return torch.compile(model, fullgraph=True, backend=backend)


# PyTorch asks tensors for `.grad`, and hides the warning that comes of it.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_compiled(batch):
    """Hooks of a user's module are a graph of their own, whose results the other one takes."""
    one, other = pair()
    seen = []
    compiled = compiled_with(other, seen)
    (a, by_a), (b, by_b) = gradients(one, batch), gradients(compiled, batch)
    torch.testing.assert_close(a, b)
    same(by_a, by_b, 1e-5)
    assert len(seen) == 4  # twice joined, and the transposed ones
    with torch.no_grad():
        for model in (one, other):
            model.hidden[1].parametrizations.weight.original.mul_(-1)
    torch.testing.assert_close(one(batch), compiled(batch))


@pytest.mark.parametrize("learnable", [False, True])
def test_compiled_with_its_hooks(learnable):
    """Those of PyTorch's own containers are in the graph: one projection for all."""
    one = nn.Sequential(*(nn.Linear(20, 20) for _ in range(4)))
    for layer in one:
        parametrizations.sparseness(layer, "weight", 0.8, learnable=learnable)
    other, seen = copy.deepcopy(one), []
    parametrizations.at_once(other)
    compiled, x = compiled_with(other, seen), torch.randn(3, 20)
    for sigma in (0.8, 0.7, 0.6, 0.5, 0.4):
        for model in (one, other):
            for layer in model:
                layer.parametrizations.weight[0].sparseness = sigma
        (a, by_a), (b, by_b) = gradients(one, x), gradients(compiled, x)
        torch.testing.assert_close(a, b)
        same(by_a, by_b, 1e-5)
    # Once more where PyTorch learns that the number is none that stays.
    assert len(seen) <= 2


def test_func(batch):
    """Parameters from outside, mapped and differentiated by torch.func."""
    one, other = pair()
    several = {k: torch.stack([p, p * torch.rand_like(p)]) for k, p in one.named_parameters()}

    def loss_of(model):
        def loss(parameters):
            return (torch.func.functional_call(model, parameters, (batch,)) ** 2).sum()

        return loss

    found = [torch.vmap(torch.func.grad(loss_of(m)))(several) for m in (one, other)]
    same(*(found_in.values() for found_in in found), tol=1e-5)
    parameters = dict(one.named_parameters())
    along = {k: torch.randn_like(p) for k, p in parameters.items()}
    found = [torch.func.jvp(loss_of(m), (parameters,), (along,)) for m in (one, other)]
    same(*found, tol=1e-4)


def test_saved_tensors_that_hooks_replaced(batch):
    """In other memory, and there in another order."""
    one, other = pair()
    expected = gradients(one, batch)[1]
    kept = []

    def unpack(tensor):
        kept.append(torch.empty(1000))
        return tensor.clone()

    for function in (torch.clone, unpack):
        with torch.autograd.graph.saved_tensors_hooks(torch.clone, function):
            found = gradients(other, batch)[1]
        same(expected, found)


def layers(count=2, **options):
    model = nn.Sequential(*(nn.Linear(20, 20) for _ in range(count)))
    for layer in model:
        parametrizations.sparseness(layer, "weight", 0.8, **options)
    return model


class Around(nn.Module):
    """A model whose forward pass a test writes."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, x):
        return self.call(self.model, x)


def alike(call, model, x, tol=0.0, at_once=True):
    """What a call of a model, and the gradients, are with `at_once` is what they are without."""
    one = Around(model, call)
    other = copy.deepcopy(one)
    if at_once:
        parametrizations.at_once(other)
    (a, by_a), (b, by_b) = gradients(one, x), gradients(other, x)
    same([a, *by_a], [b, *by_b], tol)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("rows", [7, 20])
def test_checkpoints_go_their_own_way(rows, reentrant):
    """As nothing is kept for them: also where what is kept looks like what is not."""

    def call(model, x):
        x = model[0](x)
        return model[2](checkpoint(model[1], x, use_reentrant=reentrant))

    alike(call, layers(3), torch.randn(rows, 20))


@pytest.mark.filterwarnings("ignore:.*inference:UserWarning")
def test_layers_that_want_gradients_where_the_model_does_not():
    model = Around(layers(), lambda model, x: torch.enable_grad()(model)(x))
    parametrizations.at_once(model)
    with torch.no_grad():
        value = model(torch.randn(3, 20))
    value.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    model.call = lambda model, x: torch.inference_mode(mode=False)(model)(x)
    x = torch.randn(3, 20)
    with torch.inference_mode():
        value = model(x)
    value.sum().backward()


def test_threads_keep_to_their_own():
    """What one has made no other one takes."""
    model = Around(layers(), lambda model, x: model(x))
    parametrizations.at_once(model)
    meet = threading.Barrier(2)

    def call(inner, x):
        meet.wait(60)  # both have projected
        value = inner(x)
        meet.wait(60)
        return value

    model.call = call
    values = {}

    def run(name):
        with torch.set_grad_enabled(name == "training"):
            values[name] = model(torch.ones(3, 20)).sum()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("training", "evaluation")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    values["training"].backward()
    assert all(p.grad is not None for p in model.parameters())
    assert not values["evaluation"].requires_grad


def test_what_changes_between_projection_and_use():
    def call(model, x):
        with torch.no_grad():
            model[0].parametrizations.weight.original.neg_()
            model[0].parametrizations.weight.original[:, :3] = 0
        model[1].parametrizations.weight[0].sparseness = 0.5
        return model(x)

    # (Where norms are kept autograd wants the weights as they were, and says so.)
    alike(call, layers(3, l2=1.0), torch.randn(3, 20))
    alike(call, layers(3, l2=1.0, learnable=True), torch.randn(3, 20), 1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_compiled_layers_within_checkpoints_go_their_own_way():
    """What is computed again must be what was computed first."""

    def call(model, x):
        layer = torch.compile(model[1], backend="aot_eager")
        return model[2](checkpoint(layer, model[0](x), use_reentrant=False))

    alike(call, layers(3), torch.randn(3, 20), 1e-6)


def test_compiled_layers_see_what_changed():
    compiled = []

    def call(model, x):
        with torch.no_grad():
            model[0].parametrizations.weight.original[:, :3] = 0
        compiled.append(torch.compile(model[0], backend="eager"))
        return model[1](compiled[-1](x))

    alike(call, layers(2, l2=1.0), torch.randn(3, 20))


def test_compiled_code_that_turns_gradients_on():
    def call(model, x):
        with torch.enable_grad():
            return model(x)

    model = Around(layers(), call)
    parametrizations.at_once(model)
    with torch.no_grad():
        value = torch.compile(model, backend="aot_eager")(torch.randn(3, 20))
    value.sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_an_interrupt_of_compiled_code_leaves_nothing_stale():
    interrupts = []

    @torch._dynamo.disable
    def maybe():
        if interrupts:
            raise KeyboardInterrupt

    def call(model, x):
        x = model[0](x)
        maybe()
        return model[1](x)

    model = Around(layers(2), call)
    parametrizations.at_once(model)
    compiled = torch.compile(model, backend="eager")
    compiled(torch.randn(3, 20))
    interrupts.append(True)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.randn(3, 20))
    layer = model.model[0]
    stored = layer.parametrizations.weight.original
    with torch.no_grad():
        stored.mul_(-3)
    assert torch.equal(layer.weight, hoyer.project(stored, 0.8, l2="keep"))


SETTINGS = {"l2": 5.0, "nonnegative": True, "dim": 0, "only_increase": True}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_change_before_their_use(name):
    def call(model, x):
        setattr(model[0].parametrizations.weight[0], name, SETTINGS[name])
        return model(x)

    alike(call, layers(3), torch.randn(3, 20))


def new_logit(model):
    layer = model[0].parametrizations.weight[0]
    layer.logit = nn.Parameter(layer.logit.detach() + 2.5)


def new_data_of_logit(model):
    logit = model[0].parametrizations.weight[0].logit
    logit.data = logit.data + 2.5


def frozen(model):
    model[0].parametrizations.weight[0].logit.requires_grad_(False)


def thawed(model):
    for layer in model:
        layer.parametrizations.weight.original.requires_grad_(True)


CHANGES = [(new_logit, True), (new_data_of_logit, True), (frozen, True), (thawed, False)]


@pytest.mark.parametrize(("change", "learnable"), CHANGES, ids=lambda c: getattr(c, "__name__", ""))
def test_parameters_that_change_before_their_use(change, learnable):
    model = layers(3, l2=1.0, learnable=learnable)
    for layer in model[:2]:
        layer.parametrizations.weight.original.requires_grad_(False)

    def call(model, x):
        change(model)
        return model(x)

    alike(call, model, torch.randn(3, 20), 1e-5)


def test_targets_from_outside():
    def call(model, x):
        target = {"parametrizations.weight.0.logit": torch.tensor([2.5])}
        return model[1](torch.func.functional_call(model[0], target, (x,)))

    alike(call, layers(3, learnable=True), torch.randn(3, 20), 1e-5)


def test_norms_that_become_parameters_before_their_use():
    def call(model, x):
        model[0].parametrizations.weight[0].l1 = nn.Parameter(torch.tensor(2.0))
        return model(x)

    model = layers(3)
    for layer in model:
        layer.parametrizations.weight[0].l2 = None
    alike(call, model, torch.randn(3, 20), 1e-6)


def test_targets_that_do_not_fit(joint_calls):
    """Only those who use them are told."""
    model = Around(layers(4, learnable=False), lambda model, x: model[:3](x))
    for layer in model.model:
        layer.parametrizations.weight[0].sparseness = torch.full((20,), 0.8)
    model.model[3].parametrizations.weight[0].sparseness = torch.full((3,), 0.8)
    parametrizations.at_once(model)
    model(torch.randn(3, 20))
    assert joint_calls == [3]
    model.call = lambda model, x: model(x)
    with pytest.raises(ValueError, match=r"of Linear of shape \(20, 20\): a target of shape"):
        model(torch.randn(3, 20))


def test_once_more_takes_the_place_of_the_earlier_call(joint_calls):
    model = layers(3)
    earlier = parametrizations.at_once(model)
    twin = copy.deepcopy(model)
    handles = [parametrizations.at_once(model), parametrizations.at_once(twin)]
    for one, handle in zip((model, twin), handles, strict=True):
        joint_calls.clear()
        one(torch.randn(3, 20))
        assert joint_calls == [3]
        earlier.remove()
        one(torch.randn(3, 20))
        assert joint_calls == [3, 3]
        handle.remove()
        one(torch.randn(3, 20))
        assert joint_calls == [3, 3]


def test_data_that_is_replaced_before_its_use():
    def call(model, x):
        weight = model[0].parametrizations.weight.original
        weight.data = -weight.data
        return model(x)

    alike(call, layers(3, l2=1.0), torch.randn(3, 20))


def test_a_weight_that_was_changed_is_projected_anew():
    def call(model, x):
        with torch.no_grad():
            model[0].weight.mul_(2)
            changed = model[0].weight.sum()
        return model(x) + changed

    alike(call, layers(3, l2=1.0), torch.randn(3, 20), 1e-6)


def test_a_weight_that_was_changed_in_inference_mode():
    def call(model, x):
        return model(x) + model[0].weight.mul_(2).sum() + model[0].weight.sum()

    one = Around(layers(3, l2=1.0), call)
    other = copy.deepcopy(one)
    parametrizations.at_once(other)
    x = torch.randn(3, 20)
    with torch.inference_mode():
        torch.testing.assert_close(other(x), one(x), rtol=0, atol=0)


def test_targets_of_inference_mode():
    model = layers(3)
    for layer in model:
        layer.parametrizations.weight[0].sparseness = torch.full((20, 1), 0.8)
    x = torch.randn(3, 20)
    expected = model(x)
    parametrizations.at_once(model)
    with torch.inference_mode():
        model[0].parametrizations.weight[0].sparseness = torch.full((20, 1), 0.8)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("removed", [False, True])
def test_a_model_is_not_kept_alive(removed):
    model = layers(3)
    alive = weakref.ref(model)
    handle = parametrizations.at_once(model)
    weight = weakref.ref(model[0].parametrizations.weight.original)
    if removed:
        handle.remove()
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()
    gc.collect()
    assert not removed or weight() is None


def test_sparseness_after_another_parametrization(joint_calls):
    class Twice(nn.Module):
        def forward(self, x):
            return 2 * x

    model = layers(3)
    first = nn.Linear(20, 20)
    parametrize.register_parametrization(first, "weight", Twice())
    parametrizations.sparseness(first, "weight", 0.8)
    parametrizations.at_once(nn.Sequential(first))
    both = nn.Sequential(first, *model)
    parametrizations.at_once(both)
    both(torch.randn(3, 20))
    assert joint_calls == [3]


@pytest.mark.filterwarnings("ignore:Initializing zero-element:UserWarning")
def test_empty_layers_of_any_device():
    model = nn.Sequential(nn.Linear(5, 0, device="meta"))
    parametrizations.sparseness(model[0], "weight", 0.8)
    parametrizations.at_once(model)
    assert model(torch.ones(2, 5, device="meta")).shape == (2, 0)


def test_an_interrupt_leaves_nothing_stale():
    """PyTorch does not run hooks after one."""

    def interrupted(model, x):
        raise KeyboardInterrupt

    model = Around(layers(), interrupted)
    handle = parametrizations.at_once(model)
    layer = model.model[0]
    for end in (lambda: None, handle.remove):
        with pytest.raises(KeyboardInterrupt):
            model(torch.randn(3, 20))
        end()
        with torch.no_grad():
            layer.parametrizations.weight.original.normal_()
        stored = layer.parametrizations.weight.original
        assert torch.equal(layer.weight, hoyer.project(stored, 0.8, l2="keep"))
    assert layer.parametrizations.weight[0]._ready is None


def test_copies_in_the_middle():
    model = Around(layers(), lambda model, x: copy.deepcopy(model)(x))
    parametrizations.at_once(model)
    assert torch.isfinite(model(torch.randn(3, 20))).all()


def test_targets_that_keep_the_axes_of_vectors():
    model = layers()
    for layer in model:
        layer.parametrizations.weight[0].sparseness = torch.linspace(0.3, 0.9, 20)[:, None]
    alike(lambda model, x: model(x), model, torch.randn(3, 20), 1e-5)


def test_frozen_layers_stay_apart():
    """Nothing is differentiated that need not be."""
    model = layers(4)
    model[:2].requires_grad_(False)
    parametrizations.at_once(model)
    seen = []
    for layer in model:
        layer.register_forward_hook(lambda *given: seen.append(given[2].requires_grad))
    model(torch.randn(3, 20))
    assert seen == [False, False, True, True]


def test_one_projection_in_several_layers(joint_calls):
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20))
    shared = hoyer.torch.SparsenessProjection(0.8)
    for layer in model:
        parametrize.register_parametrization(layer, "weight", shared)
    alike(lambda model, x: model(x), model, torch.randn(3, 20))
    assert joint_calls == [2]


def test_types_apart(joint_calls):
    model = layers(4)
    model[1].double()
    model[3].double()

    def call(model, x):
        return model[3](model[2](model[1](model[0](x).double()).float()).double())

    alike(call, model, torch.randn(3, 20), 1e-6)
    assert joint_calls == [2, 2]


def test_replicas_project_by_themselves(joint_calls):
    model = layers()
    parametrizations.at_once(model)
    replica = model._replicate_for_data_parallel()
    replica(torch.randn(3, 20))
    assert joint_calls == []


def test_dual_tensors():
    model = layers()
    parametrizations.at_once(model)
    x = torch.randn(3, 20)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        found = torch.autograd.forward_ad.unpack_dual(model(dual)).tangent
    _, expected = torch.func.jvp(model, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(found, expected)


@together
def test_results_that_were_changed_are_noticed():
    model = nn.Sequential(*(nn.Linear(20, 20) for _ in range(3)))
    for layer in model:
        parametrizations.sparseness(layer, "weight", 0.8)
    parametrizations.at_once(model)
    seen = []
    model[1].register_forward_pre_hook(lambda layer, _: seen.append(layer.weight))
    value = model(torch.randn(2, 20)).sum()
    with torch.no_grad():
        seen[0].mul_(2)
    with pytest.raises(RuntimeError, match=r"modified inplace|inplace operation"):
        value.backward()


@together
def test_one_backward_pass():
    """What the docstring says of several calls of `backward`."""
    model = layers()
    x = torch.randn(2, 20, requires_grad=True)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = model

        def forward(self, x):
            return [layer(x).sum() for layer in self.layers]

    both = Both()
    parametrizations.at_once(both)
    first, second = both(x)
    first.backward()
    with pytest.raises(RuntimeError, match="second time"):
        second.backward()


def test_what_is_no_model():
    with pytest.raises(TypeError, match=r"model is of type list, not an nn\.Module"):
        parametrizations.at_once([nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="no tensor of this Linear is parametrized"):
        parametrizations.at_once(nn.Linear(2, 2))


@pytest.mark.parametrize(("rows", "calls"), [(2**11, [2]), (2**11 + 1, [])])
def test_large_tensors_go_their_own_way(rows, calls, joint_calls):
    """Of more than 2**18 bytes on the CPU."""
    model = nn.ModuleList(nn.Linear(32, rows) for _ in range(2))
    for layer in model:
        parametrizations.sparseness(layer, "weight", 0.8)
    model.forward = lambda: None
    parametrizations.at_once(model)
    model()
    assert joint_calls == calls


def test_no_call_takes_all_memory(joint_calls):
    model = nn.ModuleList(nn.Linear(32, 2**11) for _ in range(9))
    for layer in model:
        parametrizations.sparseness(layer, "weight", 0.8)
    model.forward = lambda: None
    parametrizations.at_once(model)
    model()
    assert joint_calls == [4, 4]  # the last one is alone


def learned_and_given():
    """Two frozen layers, one of which learns its sparseness, and the model of both."""
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20))
    parametrizations.sparseness(model[0], "weight", 0.8, learnable=True)
    parametrizations.sparseness(model[1], "weight", torch.full((20, 1), 0.8))
    for layer in model:
        layer.parametrizations.weight.original.requires_grad_(False)
    parametrizations.at_once(model)
    return model


@together
def test_a_call_without_gradients_changes_nothing_about_the_next():
    wanted = []
    for model in (learned_and_given(), learned_and_given()):
        if wanted:
            with torch.no_grad():
                model(torch.ones(1, 20))
        wanted.append([])
        for layer in model:
            layer.register_forward_hook(lambda m, *_: wanted[-1].append(m.weight.requires_grad))
        model(torch.ones(1, 20))
    assert wanted == [[True, False]] * 2


@together
def test_what_goes_together_is_found_once(batch, monkeypatch):
    one, other = pair()
    anew = joint.AtOnce._batches_anew
    times = []

    def counted(self):
        times.append(1)
        return anew(self)

    monkeypatch.setattr(joint.AtOnce, "_batches_anew", counted)

    def calls():
        before = len(times)
        (a, by_a), (b, by_b) = gradients(one, batch), gradients(other, batch)
        same([a, *by_a], [b, *by_b])
        return len(times) - before

    assert (calls(), calls()) == (1, 0)
    changes = [
        lambda model: setattr(model.hidden[1].parametrizations.weight[0], "sparseness", 0.6),
        lambda model: setattr(model.hidden[2].parametrizations.weight[0], "nonnegative", True),
        lambda model: model.wide.parametrizations.weight.original.requires_grad_(False),
    ]
    for change in changes:
        change(one)
        change(other)
        assert (calls(), calls()) == (1, 0)
    for model in (one, other):
        weight = model.hidden[3].parametrizations.weight
        weight.original = nn.Parameter(weight.original.detach() + 1)
    assert calls() == 0


def two_layers():
    """Two layers that are projected at once."""
    model = nn.Sequential(nn.Linear(20, 20), nn.Linear(20, 20))
    for layer in model:
        parametrizations.sparseness(layer, "weight", 0.8)
    parametrizations.at_once(model)
    return model


@together
def test_no_tensor_lives_on():
    model = two_layers()
    weights = {name: (2 * w).exp() for name, w in model.named_parameters()}
    torch.func.functional_call(model, weights, torch.ones(1, 20))
    gone = [weakref.ref(w) for w in weights.values()]
    weights.clear()
    gc.collect()
    assert [w() for w in gone] == [None] * 4


@together
def test_hooks_of_a_projection_are_called():
    model = two_layers()
    calls = []
    model[0].parametrizations.weight[0].register_full_backward_hook(lambda *_: calls.append("back"))
    everywhere = nn.modules.module.register_module_forward_hook(
        lambda module, *_: calls.append(type(module).__name__)
    )
    try:
        model(torch.ones(1, 20)).sum().backward()
    finally:
        everywhere.remove()
    assert calls.count("SparsenessProjection") == 2
    assert calls.count("back") == 1


def test_another_module_in_place_of_a_projection():
    layer = parametrizations.sparseness(nn.Linear(20, 20), "weight", 0.8)
    layer.parametrizations.weight[0] = nn.Identity()
    assert layer.weight is layer.parametrizations.weight.original
    assert "ParametrizationList(" in repr(layer)
