"""Launches of the CUDA kernels from a tape: the same bits as by Triton's own launches."""

import copy
import itertools
import threading
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from test_torch_cuda import DEVICE, FORMS, GPU, INTERPRETED, kernels  # noqa: E402, F401
from test_torch_functions import options_of  # noqa: E402

import hoyer  # noqa: E402
from hoyer.engines import triton as cuda  # noqa: E402
from hoyer.engines.triton import launch  # noqa: E402
from hoyer.plan import plain_plan  # noqa: E402
from hoyer.torch import ProjectAfterStep  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not (GPU or INTERPRETED), reason="needs a GPU, or TRITON_INTERPRET=1"),
    pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),
]
only_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")

SETS = {
    **FORMS,
    "simplex": {"l1": 1.0, "nonnegative": True},
    "L1 ball": {"l1": 3.0, "at_most": True},
    "two balls": {"l1": 3.0, "l2": 1.0, "at_most": True},
}
SHAPES = [(64, 256), (7, 33), (1, 2), (5, 1), (300, 4096), (3, 100_000), (1, 1 << 22)]


def bits(function, monkeypatch):
    """What Triton's own launches give, and those from a tape."""
    with monkeypatch.context() as m:
        m.setattr(launch, "REMEMBER", False)
        expected = function()
    for _ in range(2):  # what was seen twice is remembered
        function()
    runs, run = [], launch.Program.run
    with monkeypatch.context() as m:
        m.setattr(launch.Program, "run", lambda *a: runs.append(run(*a)) or runs[-1])
        found = function()
    assert runs, "nothing came from a tape"
    assert all(runs)
    return expected, found


def close(found, expected, eps=4):
    """Results may depend on the vectors beside: on when the search ends for all of them."""
    for a, b in zip(found, expected, strict=True):
        most = eps * torch.finfo(a.dtype).eps * float(b.abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=most)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@only_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("form", SETS)
def test_forward_and_backward(form, dtype, monkeypatch):
    x = torch.randn(64, 256, device="cuda").to(dtype).requires_grad_()
    x.data[3] = 1  # for those who look with care
    y = torch.randn_like(x)

    def both():
        value = hoyer.project(x, **SETS[form])
        return value, *torch.autograd.grad(value, x, y)

    same(*bits(both, monkeypatch))


@only_gpu
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape, monkeypatch):
    form = {"sparseness": 0.8} if shape[1] > 1 else {"l1": 1.0}
    x, y = torch.randn(2, *shape, device="cuda")
    x.requires_grad_()

    def both():
        value = hoyer.project(x, **form)
        return value, *torch.autograd.grad(value, x, y)

    same(*bits(both, monkeypatch))


@only_gpu
@pytest.mark.parametrize("n", [100, 3000, 50_000])
def test_masks(n, monkeypatch):
    x = torch.randn(20, n, device="cuda", requires_grad=True)
    where, y = torch.rand(20, n, device="cuda") < 0.7, torch.randn(20, n, device="cuda")

    def both():
        value = hoyer.project(x, 0.7, where=where)
        return value, *torch.autograd.grad(value, x, y)

    same(*bits(both, monkeypatch))


@only_gpu
def test_in_place(monkeypatch):
    x = torch.randn(50, 300, device="cuda")
    same(*bits(lambda: hoyer.project_(x.clone(), 0.8), monkeypatch))


@only_gpu
def test_other_layouts(monkeypatch):
    """Strides, and addresses that are no multiples of 16 bytes, have programs of their own."""
    base = torch.randn(101, 301, device="cuda")
    views = [base[1:, 1:], base[:100, :300], base[:, :300].T, base[::2, 1:297], base.flatten()[1:]]
    for view, again in itertools.product(views, range(2)):
        same(*bits(lambda view=view: hoyer.project(view, 0.8), monkeypatch))
        same(*bits(lambda view=view: hoyer.project_(view.clone(), 0.8), monkeypatch))
        view.mul_(2 + again)


@only_gpu
@pytest.mark.parametrize("learned", ["sparseness", "with l2", "with l1", "l1", "each"])
def test_learned_targets(learned, monkeypatch):
    x, y = torch.randn(2, 40, 256, device="cuda")
    x.requires_grad_()
    number = torch.tensor(0.8, device="cuda", requires_grad=True)
    given = {
        "sparseness": lambda: {"sparseness": number},
        "with l2": lambda: {"sparseness": number, "l2": 2 * number},
        "with l1": lambda: {"sparseness": 0.8, "l1": number},
        "l1": lambda: {"l1": number, "nonnegative": True},
        "each": lambda: {"sparseness": number * torch.linspace(0, 1, 40, device="cuda")},
    }[learned]

    def both():
        value = hoyer.project(x, **given())
        return value, *torch.autograd.grad(value, (x, number), y)

    same(*bits(both, monkeypatch))
    numbers = {
        name: target if isinstance(target, float | bool) else target.detach().cpu().numpy()
        for name, target in given().items()
    }
    expected = hoyer.project(x.detach(), **numbers)
    # (Where a search begins, and so its last bits, is computed otherwise.)
    close([hoyer.project(x.detach(), **given()).detach()], [expected])


@only_gpu
def test_impossible_targets_are_nan():
    x = torch.randn(4, 50, device="cuda")
    sigma = torch.tensor([0.5, 1.5, -0.1, float("nan")], device="cuda")
    found = hoyer.project(x, sigma)
    assert found.isnan().all(-1).tolist() == [False, True, True, True]
    norm = torch.tensor([1.0, 0.0, -1.0, float("inf")], device="cuda")
    found = hoyer.project(x, 0.5, l2=norm)
    assert found.isnan().all(-1).tolist() == [False, True, True, True]


@only_gpu
def test_threads(monkeypatch):
    """Frames and scratch memory belong to one thread at a time."""
    given = torch.randn(8, 64, 256, device="cuda")
    given[:, ::5] = 1  # for those who look with care
    expected = [hoyer.project(x, 0.9) for x in given]
    wrong, made, new = [], [], launch._new_scratch
    monkeypatch.setattr(launch, "_new_scratch", lambda: made.append(1) or new())

    def work(i):
        found = (hoyer.project(given[i], 0.9) for _ in range(200))
        wrong.extend(i for value in found if not torch.equal(value, expected[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(made) <= 8


@only_gpu
def test_a_thread_that_has_not_met_the_device():
    x, found = torch.randn(64, 256, device="cuda"), []
    expected = [hoyer.project(x, 0.9) for _ in range(2)][1]
    thread = threading.Thread(target=lambda: found.append(hoyer.project(x, 0.9, out=x.clone())))
    thread.start()
    thread.join()
    same(found[0], expected)


@only_gpu
def test_graphs_do_not_share_memory_with_others():
    """A captured call keeps its own scratch memory, whatever runs beside it."""
    x = torch.randn(64, 256, device="cuda")
    x[::3] = 1
    expected = [hoyer.project(x, 0.9) for _ in range(2)][1]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = hoyer.project(x, 0.9)
    side = torch.cuda.Stream()
    for _ in range(50):
        graph.replay()
        with torch.cuda.stream(side):
            hoyer.project(x, 0.9)
    torch.cuda.synchronize()
    same(found, expected)


def test_what_is_remembered(monkeypatch):
    """What was seen twice; the oldest keys go first."""
    monkeypatch.setattr(launch, "_driver", lambda: "driver")
    tape, programs = SimpleNamespace(program=lambda: "program"), launch.Programs()
    for key in range(launch._MOST):
        programs.keep(key, tape)
    assert set(programs.values()) == {None}
    programs.keep(5, tape)
    assert programs[5] == "program"
    programs.keep("new", tape)
    assert len(programs) == launch._MOST
    assert 0 not in programs
    assert not programs.run("new", [], 0)
    monkeypatch.setattr(launch, "REMEMBER", False)
    programs.keep("other", tape)
    assert "other" not in programs
    assert not programs.run(5, [], 0)


@only_gpu
def test_many_shapes_are_forgotten():
    for count in range(1, 300):
        hoyer.project(torch.randn(count, 4, device="cuda"), 0.5)
    x = torch.randn(299, 4, device="cuda")
    same(*(hoyer.project(x, 0.5) for _ in range(2)))


@only_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device():
    x = torch.randn(64, 256, device="cuda:1")
    expected = hoyer.project(x.to("cuda:0"), 0.9)
    for _ in range(3):
        same(hoyer.project(x, 0.9).to("cuda:0"), expected)


def scattered(sizes, n, dtype, offset=0):
    """Tensors of some vectors each, in memory of their own, perhaps at odd places."""
    return [torch.randn(k * n + offset, device=DEVICE).to(dtype)[offset:].view(k, n) for k in sizes]


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("form", ["sparseness", "keep", "with l2", "simplex", "L1 ball"])
def test_scattered_vectors(form, dtype, offset):
    """Vectors of several tensors by the same launches: as one by one."""
    tensors = scattered((3, 1, 70, 8), 48, dtype, offset)
    tensors[2][5] = 1  # for those who look with care
    plan = plain_plan(48, options_of(**SETS[form]))
    expected = [hoyer.project(x, **SETS[form]) for x in tensors]
    together = cuda.Scattered(tensors, 48)
    assert together.project(plan)
    close(tensors, expected)
    # Again, in place: the same program for what is there now.
    expected = [hoyer.project(x.mul_(3), **SETS[form]) for x in tensors]
    assert together.project(plan)
    close(tensors, expected)


def test_scattered_vectors_refuse_what_is_no_case_of_theirs():
    tensors = scattered((3, 4), 48, torch.float32)
    together = cuda.Scattered(tensors, 48)
    before = [x.clone() for x in tensors]
    assert not together.project(plain_plan(48, options_of(l1=3.0, l2=1.0, at_most=True)))
    same(tensors, before)
    assert not cuda.Scattered.can(tensors[0].T, 3)


@only_gpu
def test_all_layers_after_a_step():
    """`ProjectAfterStep` on many layers: as one by one, whatever becomes of the tensors."""
    sizes = [(64, 32), (32, 64), (64, 16), (32, 8), (32, 40_000)]
    layers = [torch.nn.Linear(*size, bias=False, device="cuda") for size in sizes]
    weights = [layer.weight for layer in layers]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    handle = ProjectAfterStep(optimizer, weights, 0.8)
    for change in (lambda: None, lambda: weights[1].data.add_(1), lambda: move(weights[0])):
        change()
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        moved = [torch.add(weight.detach(), weight.grad, alpha=-0.1) for weight in weights]
        expected = [hoyer.project(x, 0.8, l2="keep") for x in moved]
        versions = [weight._version for weight in weights]
        optimizer.step()
        # (The step itself may be rounded otherwise.)
        close([weight.detach() for weight in weights], expected, eps=32)
        assert all(w._version > v for w, v in zip(weights, versions, strict=True))
    other = copy.deepcopy((layers, optimizer))[1]
    assert other._hoyer_handles[0]._many is not handle._many


@only_gpu
def test_layers_that_share_memory():
    """They are projected one after the other, as ever."""
    layers = [torch.nn.Linear(32, 20, bias=False, device="cuda") for _ in range(3)]
    weights = [layer.weight for layer in layers]
    weights[1].data = weights[0].data[3:15]
    handle = ProjectAfterStep(torch.optim.SGD(weights, lr=0.1), weights, 0.8)
    first, third = weights[0].detach().clone(), weights[2].detach().clone()
    expected = hoyer.project(first, 0.8, l2="keep")
    expected[3:15] = hoyer.project(expected[3:15], 0.8, l2="keep")
    handle.project()
    close(
        [weights[0].detach(), weights[2].detach()], [expected, hoyer.project(third, 0.8, l2="keep")]
    )


@only_gpu
def test_layers_in_a_graph():
    """A captured step goes on when the handle is gone and tensors have moved."""
    layers = [torch.nn.Linear(32, 20, bias=False, device="cuda") for _ in range(3)]
    weights = [layer.weight for layer in layers]
    handle = ProjectAfterStep(torch.optim.SGD(weights, lr=0.1), weights, 0.8)
    for _ in range(3):
        handle.project()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        handle.project()
    handle.remove()
    del handle
    fresh = [torch.randn_like(weight) for weight in weights]
    for weight, values in zip(weights, fresh, strict=True):
        weight.data.copy_(values)
    _ = [torch.full((100,), 10**12, device="cuda") for _ in range(20)]
    graph.replay()
    close([w.detach() for w in weights], [hoyer.project(x, 0.8, l2="keep") for x in fresh])


@only_gpu
@pytest.mark.parametrize("form", ["sparseness", "keep", "only_increase", "simplex", "L1 ball"])
@pytest.mark.parametrize("learned", [False, True], ids=["given", "learned"])
def test_compiled_backward(form, learned):
    """The kernels' own backward pass, in compiled code."""
    torch.compiler.reset()  # every form is a compilation of the same function: there is a limit
    given = dict(SETS[form])
    x = torch.randn(4, 5, 60, device="cuda", requires_grad=True)
    y = torch.randn(4, 5, device="cuda")[..., None].expand(4, 5, 60)
    targets = []
    if learned:
        name = "sparseness" if "sparseness" in given else "l1"
        targets = [torch.tensor(given[name], device="cuda", requires_grad=True)]
        given[name] = targets[0]

    def function(v):
        return hoyer.project(v, axis=(1, 2), **given)

    found = []
    for one in (function, torch.compile(function, fullgraph=True)):
        value = one(x)
        found.append((value, *torch.autograd.grad(value, [x, *targets], y)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def move(weight):
    weight.data = weight.data.clone()
