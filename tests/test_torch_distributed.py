"""DTensors: the same numbers as of one process, wherever entries lie; few words between ranks."""

import itertools
import math
import time
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from engines import EPS, SMALLEST

torch = pytest.importorskip("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch without gloo", allow_module_level=True)

import ranks as ranks_module  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from ranks import COUNT, Ranks  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.checkpoint import state_dict as states  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import hoyer  # noqa: E402
from hoyer.engines import core, parts  # noqa: E402
from hoyer.engines.arrays import namespace  # noqa: E402
from hoyer.options import Options  # noqa: E402
from hoyer.paper import problems  # noqa: E402
from hoyer.plan import plan_for  # noqa: E402
from hoyer.torch import (  # noqa: E402
    ProjectAfterStep,
    SparsenessProjection,
    parametrizations,
    sparseness_report,
)

CLOSE = 4
"""How far results may be from those of one process, in eps of the largest entry."""
FAR = 64
"""The same of gradients, where sums of numbers of both signs lose digits."""
DTYPES = ("float64", "float32", "float16", "bfloat16")

pytestmark = pytest.mark.filterwarnings("ignore:.*alltoall.*")


@pytest.fixture(scope="module")
def ranks():
    """Four processes; see ranks.py."""
    found = Ranks()
    yield found
    found.close()


# ---- what ranks do: each function gets the mesh ----


class Search:
    """Let ranks search vectors of any length together, instead of exchanging short ones."""

    def __enter__(self):
        from hoyer.families.torch import distributed

        self.module, self.before = distributed, distributed.MOST_GATHERED
        distributed.MOST_GATHERED = 0

    def __exit__(self, *_):
        self.module.MOST_GATHERED = self.before


def whole(x):
    """Return all of a DTensor, on every rank."""
    return x.full_tensor() if isinstance(x, DTensor) else x


def some(shape, dtype="float64", seed=0):
    """Return the same random numbers in all processes."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))


def counted(function):
    """Return a result, and how many collectives it took."""
    with CommDebugMode() as counts:
        result = function()
    return result, counts.get_total_counts()


def apart(a, b):
    """Return how far tensors are apart, in eps of the largest entry."""
    a, b = (x.detach().double() for x in (a, b))
    eps = torch.finfo(b.dtype).eps
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-300) / eps)


def project_all(mesh, names, dtype):
    """Project problems of the collection, each as one vector that ranks share; return bytes."""
    found = {}
    with Search():
        for problem in chosen(dtype):
            if problem.name in names:
                x = distribute_tensor(torch.from_numpy(problem.x), mesh, [Shard(0)])
                found[problem.name] = whole(hoyer.project(x, **problem.target)).numpy().tobytes()
    return found


def compare(  # noqa: PLR0917 - a case
    mesh, places, axis, shape, dtype, options, given, search
):
    """Compare forward and backward passes with those of one process; return what differs how far.

    `given` are targets that are tensors, which learn.
    """
    kind = getattr(torch, dtype)
    x, y = some(shape, dtype), some(shape, dtype, 1)
    results = []
    for distributed in (False, True):
        own = x.clone()
        if distributed:
            own = distribute_tensor(own, mesh, places)
        own.requires_grad_()
        targets = {n: torch.tensor(v, dtype=kind, requires_grad=True) for n, v in given.items()}

        def forward(own=own, targets=targets):
            return hoyer.project(own, axis=axis, **options, **targets)

        with Search() if search and distributed else nullcontext():
            value, sent = counted(forward)
        gradient = distribute_tensor(y, mesh, places) if distributed else y
        _, back = counted(partial(value.backward, gradient))
        grads = [whole(own.grad), *(t.grad for t in targets.values())]
        results.append((whole(value).detach(), grads))
    assert value.placements == tuple(places)
    assert value.dtype == kind
    (expected, gradients), (found, others) = results
    eps = torch.finfo(kind).eps / 2.0**-52
    far = apart(found, expected) / eps
    by_x, *by_targets = (apart(a, b) / eps for a, b in zip(others, gradients, strict=True))
    # Those by one target for all vectors are sums, in which much may cancel.
    worst = max([by_x, *(far / 16 for far in by_targets)])
    return far, worst, bool(torch.equal(found == 0, expected == 0)), sent, back


# ---- the projection ----


def chosen(dtype):
    """Return problems that one process can project, with lengths that ranks can share."""
    return [p for p in problems.collection(dtype) if 2 <= len(p.x) <= 5000]


def in_one_part(x, target):
    """Project as one part: the bits that every division must have."""
    given = {"sparseness": None, "l1": None, "l2": None, "axis": -1, "nonnegative": False}
    given |= {"only_increase": False, "solver": "auto", "check_finite": False, **target}
    plan = plan_for(len(x), Options(**given))
    search = parts.search(plan, x.dtype, namespace(np))
    with np.errstate(all="ignore"):
        return parts.project_parts([x], search, core)[0][0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_collection_has_the_same_bits_for_any_number_of_ranks(ranks, dtype, largest):
    every = chosen(dtype)
    names = [problem.name for problem in every][::3]
    two, four = (ranks.run(project_all, names, dtype, shape=(count,)) for count in (2, 4))
    assert len(names) > 50
    assert all(len(set(found.values())) == len(set(two[0].values())) for found in (*two, *four))
    for problem in every:
        if problem.name not in names:
            continue
        bits = in_one_part(problem.x, problem.target)
        assert {found[problem.name] for found in (*two, *four)} == {bits.tobytes()}, problem.name
        expected = hoyer.project(problem.x, **problem.target)
        top = float(abs(expected).max())
        error = float(abs(bits.astype(float) - expected.astype(float)).max())
        assert error <= CLOSE * (EPS[dtype] * top + SMALLEST[dtype]), problem.name
        if top > 0:
            largest(f"error of shared vectors, {dtype}, in eps", error / top / EPS[dtype])


WAYS = [
    pytest.param(axis, place, id=f"axis={axis} Shard({place[0].dim})")
    for axis, place in itertools.product(
        [-1, 0, (0, 2), None], [[Shard(0)], [Shard(1)], [Shard(2)]]
    )
]


@pytest.mark.parametrize(("axis", "places"), WAYS)
def test_vectors_anywhere(ranks, axis, places):
    """Whole vectors take no collectives, others an exchange there and back, or a few sums."""
    shape = (5, 7, 9)
    along = {None: (0, 1, 2), -1: (2,), 0: (0,)}.get(axis, axis)
    divided = places[0].dim in along
    for search in (False, True) if divided else (False,):
        found = ranks.run(compare, places, axis, shape, "float64", {"sparseness": 0.7}, {}, search)
        for far, worst, same_support, sent, back in found:
            assert far <= CLOSE
            assert worst <= 4 * FAR
            assert same_support
            if not divided:
                assert (sent, back) == (0, 0)
            elif search:
                assert sent <= 3
                assert back == 1
            else:
                # Of a single vector all ranks get all, and cut their parts out.
                assert sent == back == (1 if axis is None else 2)


SETS = {
    "sparseness": ({}, {"sparseness": 0.6}),
    "keep": ({"l2": "keep"}, {"sparseness": 0.6}),
    "nearest": ({"l2": "nearest"}, {"sparseness": 0.6}),
    "l1 given": ({}, {"sparseness": 0.6, "l1": 2.0}),
    "norms": ({}, {"l1": 2.1, "l2": 1.2}),
    "simplex": ({"nonnegative": True}, {"l1": 1.5}),
    "sphere": ({}, {"l1": 1.5}),
    "ball": ({"at_most": True}, {"l1": 3.0}),
    "balls": ({"at_most": True}, {"l1": 3.0, "l2": 1.2}),
    "only_increase": ({"only_increase": True, "l2": "keep"}, {"sparseness": 0.4}),
    "nonnegative": ({"nonnegative": True, "l2": "nearest"}, {"sparseness": 0.5}),
    "mask": ({"where": some((3, 4, 40), seed=5) > -0.7}, {"sparseness": 0.6}),
    "each": ({}, {"sparseness": np.linspace(0.2, 0.9, 12).reshape(3, 4)}),
    "one each way": ({"l2": "keep"}, {"sparseness": np.array([[0.3], [0.5], [0.8]])}),
}
SHARDS = [([Shard(2)], (4,)), ([Shard(0), Shard(2)], (2, 2)), ([Shard(2), Replicate()], (2, 2))]


@pytest.mark.parametrize("name", SETS)
def test_every_set_with_targets_that_learn(ranks, name):
    options, given = SETS[name]
    for (places, shape), search in itertools.product(SHARDS, (False, True)):
        found = ranks.run(
            compare, places, -1, (3, 4, 40), "float64", options, given, search, shape=shape
        )
        for far, worst, same_support, _, _ in found:
            assert far <= CLOSE
            assert worst <= FAR
            assert same_support


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(ranks, dtype):
    for search in (False, True):
        found = ranks.run(
            compare, [Shard(1)], -1, (3, 333), dtype, {"sparseness": 0.8}, {}, search, shape=(2,)
        )
        assert all(far <= CLOSE and worst <= FAR and same for far, worst, same, _, _ in found)


def test_two_dimensions_of_the_mesh_share_a_vector(ranks):
    found = ranks.run(
        compare, [Shard(0), Shard(0)], 0, (33, 3), "float64", {"sparseness": 0.8}, {}, True,
        shape=(2, 2),
    )  # fmt: skip
    for far, worst, same_support, sent, back in found:
        assert far <= CLOSE
        assert worst <= FAR
        assert same_support
        assert sent <= 2 * 3
        assert back == 2


def search_many(mesh, count, n, dtype):
    x = distribute_tensor(some((count, n), dtype), mesh, [Shard(1)]).requires_grad_()
    value, sent = counted(lambda: hoyer.project(x, 0.85, l2="keep"))
    gradient = distribute_tensor(some((count, n), dtype, 1), mesh, [Shard(1)])
    _, back = counted(partial(value.backward, gradient))
    return sent, back, whole(value).detach()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_long_vectors_take_few_collectives_however_many_they_are(ranks, dtype):
    n = parts.MOST_GATHERED + 1001
    for count in (1, 5):
        for sent, back, value in ranks.run(search_many, count, n, dtype):
            assert sent <= (3 if dtype == "float32" else 4)
            assert back == 1
            expected = hoyer.project(some((count, n), dtype), 0.85, l2="keep")
            assert float((value - expected).abs().max()) <= CLOSE * EPS[dtype] * float(value.max())


# ---- other functions ----


def other_functions(mesh, search):
    """Return what goes wrong with solve, sparseness, project_, out, targets that are DTensors."""
    x, y = some((4, 6, 30)), some((4, 6, 30), seed=1)
    expected, wrong = hoyer.solve(x, 0.7), []

    def same(what, a, b, far=FAR):
        if apart(whole(a), b) > far:
            wrong.append((what, apart(whole(a), b)))

    for places in ([Shard(0)], [Shard(2)], [Replicate()]):
        own = distribute_tensor(x, mesh, places)
        found = hoyer.solve(own, 0.7)
        for name in ("value", "shift", "scale", "support_size", "unique", "l1", "l2"):
            same((places, name), getattr(found, name), getattr(expected, name).double(), CLOSE)
        if found.value.placements != tuple(places) or (found.active != expected.active).any():
            wrong.append(places)
        for name in ("jvp", "vjp"):
            same((places, name), getattr(found, name)(y), getattr(expected, name)(y))
            shared = distribute_tensor(y, mesh, places)
            same((places, name), getattr(found, name)(shared), getattr(expected, name)(y))
        for a, b in zip(found.target_gradient(), expected.target_gradient(), strict=True):
            same((places, "target_gradient"), a, b)
        same((places, "by sparseness"), found.sparseness_gradient(), expected.sparseness_gradient())
        if not (search and places == [Shard(2)]):
            same((places, "jacobian"), found.jacobian(), expected.jacobian())
        written = own.clone()
        if hoyer.project_(written, 0.7) is not written:
            wrong.append("project_")
        same((places, "project_"), written, expected.value, CLOSE)
        out = torch.zeros_like(own)
        if hoyer.project(own, 0.7, out=out) is not out:
            wrong.append("out")
        same((places, "out"), out, expected.value, CLOSE)
        numbers = torch.linspace(0.3, 0.9, 24, dtype=torch.float64).reshape(4, 6)
        each = distribute_tensor(numbers, mesh, [Shard(1)])
        same((places, "each"), hoyer.project(own, each), hoyer.project(x, numbers), CLOSE)
        for axis in (-1, 0, None):
            a, b = own.detach().clone().requires_grad_(), x.clone().requires_grad_()
            sigma, single = hoyer.sparseness(a, axis=axis), hoyer.sparseness(b, axis=axis)
            same((places, axis, "sparseness"), sigma, single, CLOSE)
            whole(sigma.square().sum()).backward()
            single.square().sum().backward()
            same((places, axis, "its gradient"), a.grad, b.grad)
    return wrong


def other_kinds(mesh):
    """Return what becomes of integers, of nothing, of masks that are DTensors, and of a view."""
    found, whole_numbers = [], torch.arange(24).reshape(4, 6)
    value = hoyer.project(distribute_tensor(whole_numbers, mesh, [Shard(1)]), 0.5)
    found += [value.dtype == torch.float64, apart(whole(value), hoyer.project(whole_numbers, 0.5))]
    for places in ([Shard(0)], [Shard(1)]):
        nothing = distribute_tensor(torch.zeros(0, 6), mesh, places)
        value = hoyer.project(nothing, 0.5)
        found.append(value.shape == nothing.shape and value.placements == tuple(places))
        found.append(hoyer.sparseness(nothing).shape == (0,))
    x, mask = some((4, 40)), some((4, 40), seed=3) > -0.5
    expected = hoyer.project(x, 0.6, where=mask)
    for places, other in (([Shard(0)], [Shard(1)]), ([Shard(1)], [Shard(0)])):
        own, where = distribute_tensor(x, mesh, places), distribute_tensor(mask, mesh, other)
        found.append(apart(whole(hoyer.project(own, 0.6, where=where)), expected))
        found.append(apart(whole(hoyer.project(own, 0.6, where=mask.numpy())), expected))
        columns = own.T
        written = columns.clone()
        hoyer.project_(written, 0.6, axis=0, where=mask.T)
        found.append(apart(whole(written), expected.T))
        coming = own.redistribute(placements=other, async_op=True)
        found.append(apart(whole(hoyer.project(coming, 0.6, where=mask)), expected))
        coming = own.redistribute(placements=[Replicate()], async_op=True)
        hoyer.project_(coming, 0.6, where=mask)
        found.append(apart(whole(coming), expected))
        watched = 2 * own.clone().requires_grad_()
        hoyer.project_(watched, 0.6, where=mask)
        found.append(watched.requires_grad and apart(whole(watched), expected) <= CLOSE)
    return found


def search_other_kinds(mesh):
    with Search():
        return other_kinds(mesh)


def test_other_kinds(ranks):
    for case in (other_kinds, search_other_kinds):
        for found in ranks.run(case):
            assert all(one if isinstance(one, bool) else one <= CLOSE for one in found), found


def search_other_functions(mesh):
    with Search():
        return other_functions(mesh, True)


def test_other_functions(ranks):
    assert ranks.run(other_functions, False) == [[]] * COUNT
    assert ranks.run(search_other_functions) == [[]] * COUNT


def partial_sums(mesh):
    x = some((3, 8))
    own = DTensor.from_local(x / mesh.size(), mesh, [Partial()]).requires_grad_()
    value = hoyer.project(own, 0.5)
    whole(value.square().sum()).backward()
    return value.placements, whole(value).detach(), whole(own.grad)


def test_partial_sums_are_added_first(ranks):
    x = some((3, 8)).requires_grad_()
    expected = hoyer.project(x, 0.5)
    for placements, value, _ in ranks.run(partial_sums):
        assert placements == (Replicate(),)
        assert apart(value, expected) <= CLOSE


def second_derivatives(mesh, search):
    found = []
    for rule in (None, "keep", "nearest"):
        results = []
        for distributed in (False, True):
            x = some((5, 40))
            x = (distribute_tensor(x, mesh, [Shard(1)]) if distributed else x).requires_grad_()
            target = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
            value = hoyer.project(x, target, l2=rule)
            first = torch.autograd.grad(whole((value**3).sum()), (x, target), create_graph=True)
            sums = whole(first[0].square().sum()) + first[1].square()
            results.append([whole(g) for g in torch.autograd.grad(sums, (x, target))])
        found += [apart(a, b) for a, b in zip(results[1], results[0], strict=True)]
    return max(found)


def search_second_derivatives(mesh):
    with Search():
        return second_derivatives(mesh, True)


def test_second_derivatives(ranks):
    assert max(ranks.run(second_derivatives, False)) <= 16 * FAR
    assert max(ranks.run(search_second_derivatives)) <= 16 * FAR


def everything_together(mesh):
    arrays = [some((5, 7, 9)), 3 * some((6, 4), seed=1), some(50, seed=2)]
    expected, found = hoyer.project_together(arrays, 0.6, relative=True), []
    for places in (
        [Shard(0)] * 3,
        [Shard(1), Replicate(), Shard(0)],
        [Shard(2), Shard(1), Shard(0)],
    ):
        pairs = zip(arrays, places, strict=True)
        own = [distribute_tensor(x.clone(), mesh, [p]) for x, p in pairs]
        results = hoyer.project_together(own, 0.6, relative=True)
        pairs = zip(results, expected, strict=True)
        found.append(max(apart(whole(a), b) for a, b in pairs))
        hoyer.project_together(own, 0.6, relative=True, out=own)
        found += [apart(whole(a), b) for a, b in zip(own, expected, strict=True)]
    # Tensors that are no DTensors are the same on all ranks.
    mixed = [own[0], *arrays[1:]]
    mixed[0] = distribute_tensor(arrays[0].clone(), mesh, [Shard(2)])
    results = hoyer.project_together(mixed, 0.6, relative=True)
    found += [apart(whole(a), b) for a, b in zip(results, expected, strict=True)]
    if [type(one) for one in results] != [DTensor, torch.Tensor, torch.Tensor]:
        found.append(math.inf)
    return max(found)


def test_together(ranks):
    assert max(ranks.run(everything_together)) <= CLOSE


def compiled(mesh, search):
    x, found = some((4, 40)), []
    for places in ([Shard(0)], [Shard(1)], [Replicate()]):
        own = distribute_tensor(x, mesh, places).requires_grad_()
        function = torch.compile(lambda x: hoyer.project(2 * x, 0.7), backend="eager")
        with Search() if search else nullcontext():
            value = function(own)
        whole(value.square().sum()).backward()
        found.append(apart(whole(value), hoyer.project(x, 0.7)))
        found.append(float(own.grad.placements != tuple(places)))
    return max(found)


def test_in_compiled_code(ranks):
    for search in (False, True):
        assert max(ranks.run(compiled, search, shape=(2,))) <= CLOSE


# ---- bad input ----


def bad_numbers(mesh, search):
    """Return which vectors are NaN, on each rank, where one rank has NaN."""
    x = some((4, 40))
    x[1, 3] = math.nan
    found = []
    for places in ([Shard(0)], [Shard(1)]):
        value = hoyer.project(distribute_tensor(x, mesh, places), 0.5)
        found.append(whole(value).isnan().all(1).tolist())
        targets = torch.tensor([0.5, 0.5, 7.0, 0.5], dtype=torch.float64)
        value = hoyer.project(distribute_tensor(some((4, 40)), mesh, places), targets)
        found.append(whole(value).isnan().all(1).tolist())
    return found


def search_bad_numbers(mesh):
    with Search():
        return bad_numbers(mesh, True)


def test_no_rank_waits_for_one_that_has_nan(ranks):
    nan, impossible = [False, True, False, False], [False, False, True, False]
    expected = [nan, impossible, nan, impossible]
    assert ranks.run(bad_numbers, False) == [expected] * COUNT
    assert ranks.run(search_bad_numbers) == [expected] * COUNT


def refused(mesh):
    x = distribute_tensor(some((4, 8)), mesh, [Shard(0)])
    sums = DTensor.from_local(some((4, 8)), mesh, [Partial()])
    other = distribute_tensor(some((4, 8)), mesh, [Shard(1)])
    watched = x.clone().requires_grad_()
    calls = {
        "impossible": lambda: hoyer.project(x, 1.5),
        "wrong norms": lambda: hoyer.project(x, l1=9.0, l2=1.0),
        "too large": lambda: hoyer.project(x.half(), 0.5, l2=1e6),
        "axis": lambda: hoyer.project(x, 0.5, axis=2),
        "partial": lambda: hoyer.project_(sums, 0.5),
        "sparse": lambda: hoyer.project_sparse(x, 0.5),
        "plain out": lambda: hoyer.project(x, 0.5, out=torch.zeros(4, 8)),
        "other out": lambda: hoyer.project(x, 0.5, out=other),
        "leaf": lambda: hoyer.project_(watched, 0.5),
        "together": lambda: hoyer.project_together([watched], 0.5),
        "dtype": lambda: hoyer.project_(x.long(), 0.5),
        "y": lambda: hoyer.solve(x, 0.5).jvp(torch.zeros(3)),
        "target of a plain x": lambda: hoyer.project(some((4, 8)), l1=other.abs()[:, 0]),
        "target of an array": lambda: hoyer.project(np.ones((4, 8)), l1=other.abs()[:, 0]),
        "mask of a plain x": lambda: hoyer.project(some((4, 8)), 0.5, where=x > 0),
        "out of a plain x": lambda: hoyer.project(some((4, 8)), 0.5, out=other),
        "y of a plain x": lambda: hoyer.solve(some((4, 8)), 0.5).vjp(other),
    }
    words = {}
    for name, call in calls.items():
        try:
            call()
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            words[name] = f"{type(error).__name__}: {error}"
    with Search():
        try:
            hoyer.solve(other, 0.5).jacobian()
        except ValueError as error:
            words["jacobian"] = str(error)
        try:
            hoyer.project(other, 0.5, solver="newton")
        except ValueError as error:
            words["solver"] = str(error)
    return words


def test_errors_say_what_to_do(ranks):
    for words in ranks.run(refused):
        assert "sparseness must lie in [0, 1], got 1.5" in words["impossible"]
        assert words["wrong norms"].startswith("ValueError")
        assert "does not fit float16" in words["too large"]
        assert words["axis"].startswith("AxisError")
        assert "what is partial cannot be written: use project" in words["partial"]
        assert "x.full_tensor().cpu().numpy()" in words["sparse"]
        assert words["plain out"] == "TypeError: out must be a DTensor, as x is, not Tensor"
        assert "redistribute out first" in words["other out"]
        assert "call project_ under torch.no_grad()" in words["leaf"]
        assert "call it under torch.no_grad()" in words["together"]
        assert "in place x must be one of" in words["dtype"]
        assert "y has shape (3,), but the projection has shape (4, 8)" in words["y"]
        assert "l1 is a DTensor, and x is not" in words["target of a plain x"]
        assert "or pass l1.full_tensor()" in words["target of an array"]
        assert "pass where.full_tensor(), or make x a DTensor" in words["mask of a plain x"]
        assert "out is a DTensor, and x is not" in words["out of a plain x"]
        assert "y is a DTensor, and x is not" in words["y of a plain x"]
        assert "use jvp and vjp" in words["jacobian"]
        assert "solver='newton': x has vectors of 8 entries that ranks share" in words["solver"]
        assert "there is 'auto' alone; redistribute x" in words["solver"]


# ---- training ----


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))


def train(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        x = some((8, 16), "float32", step)
        model(x).square().mean().backward()
        optimizer.step()


def sharded(model, mesh):
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def numbers_in(model):
    return {name: whole(tensor).clone() for name, tensor in model.state_dict().items()}


def largest_difference(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def made(mesh, way, learns, handle):
    """Return a model and its optimizer; on one process, under FSDP2, TP, or both."""
    model = network()
    if way in ("tensor", "both"):
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"] if way == "both" else mesh, plan)
    if learns is not None:
        for number in (0, 2):
            parametrizations.sparseness(model[number], "weight", 0.6, learnable=learns)
    if way in ("data", "both"):
        model = sharded(model, mesh["data"] if way == "both" else mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, foreach=False)
    steps = None
    if handle is not None:
        weights = [(model[0], "weight"), (model[2], "weight")]
        steps = ProjectAfterStep(optimizer, weights, **handle)
    return model, optimizer, steps


def train_both(mesh, way, learns, handle):
    """Return how far a model is from one that was trained by one process; and both reports."""
    results = []
    for how in (None, way):
        model, optimizer, _ = made(mesh, how, learns, handle)
        train(model, optimizer, range(4))
        results.append((numbers_in(model), repr(sparseness_report(model))))
    (one, report), (other, same_report) = results
    return largest_difference(one, other), report, same_report


HANDLES = {
    "each unit": {"sparseness": 0.7},
    "each input": {"sparseness": 0.7, "dim": 0},
    "each layer": {"sparseness": 0.7, "dim": None},
    "units together": {"sparseness": 0.6, "together": True},
    "layers together": {"sparseness": 0.7, "together": True, "dim": None, "relative": True},
    "ball": {"l1": 1.0, "at_most": True},
    "a tensor": {"sparseness": torch.tensor(0.6)},
}
MODELS = {"data": (4,), "tensor": (2,), "both": (2, 2)}


@pytest.mark.parametrize("way", MODELS)
def test_a_projected_model_is_that_of_one_process(ranks, way):
    for handle in HANDLES.values():
        for far, report, same in ranks.run(train_both, way, None, handle, shape=MODELS[way]):
            assert far == 0.0 if way == "data" else far < 1e-6
            assert same == report


@pytest.mark.parametrize("way", MODELS)
@pytest.mark.parametrize("learns", [False, True])
def test_a_parametrized_model_is_that_of_one_process(ranks, way, learns):
    for far, report, same in ranks.run(train_both, way, learns, None, shape=MODELS[way]):
        assert far == 0.0 if way == "data" else far < 1e-6
        assert same == report


def resumed(mesh, folder, learns, handle):
    """Train six steps at once, and three and three with a checkpoint between; compare."""
    model, optimizer, _ = made(mesh, "data", learns, handle)
    train(model, optimizer, range(6))
    expected = numbers_in(model)
    model, optimizer, _ = made(mesh, "data", learns, handle)
    train(model, optimizer, range(3))
    group = mesh.get_group()
    saved = dict(zip(("model", "optimizer"), states.get_state_dict(model, optimizer), strict=True))
    dcp.save(saved, checkpoint_id=folder, process_group=group)
    again, optimizer, steps = made(mesh, "data", learns, handle)
    state = dict(zip(("model", "optimizer"), states.get_state_dict(again, optimizer), strict=True))
    dcp.load(state, checkpoint_id=folder, process_group=group)
    states.set_state_dict(
        again, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    loaded = largest_difference(numbers_in(model), numbers_in(again))
    count = None if steps is None else steps.steps
    train(again, optimizer, range(3, 6))
    return loaded, count, largest_difference(expected, numbers_in(again))


def resumed_from_whole_states(mesh, handle):
    """The same by way of whole states; the model comes first, then a fresh optimizer."""
    options = states.StateDictOptions(full_state_dict=True)
    model, optimizer, _ = made(mesh, "data", None, handle)
    train(model, optimizer, range(6))
    expected = numbers_in(model)
    model, optimizer, _ = made(mesh, "data", None, handle)
    train(model, optimizer, range(3))
    kept = [
        states.get_model_state_dict(model, options=options),
        states.get_optimizer_state_dict(model, optimizer, options=options),
    ]
    again, other, steps = made(mesh, "data", None, handle)
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(again, kept[0], options=options)
    states.set_optimizer_state_dict(again, other, kept[1], options=options)
    loaded = largest_difference(numbers_in(model), numbers_in(again))
    count = steps.steps
    train(again, other, range(3, 6))
    return loaded, count, largest_difference(expected, numbers_in(again))


@pytest.mark.parametrize(
    ("learns", "handle"),
    [
        (None, {"sparseness": 0.7}),
        (None, {"sparseness": 0.7, "every": 2, "dim": None}),
        (True, None),
    ],
)
def test_training_resumes_with_the_same_bits(ranks, tmp_path, learns, handle):
    for loaded, count, far in ranks.run(resumed, str(tmp_path), learns, handle):
        assert loaded == 0.0
        assert count == (None if handle is None else 3)
        assert far == 0.0


def test_training_resumes_from_whole_states(ranks):
    """PyTorch makes a step with learning rate 0 before it loads: nothing is projected then."""
    for handle in ({"sparseness": 0.7}, {"sparseness": 0.7, "dim": None}):
        for loaded, count, far in ranks.run(resumed_from_whole_states, handle):
            assert loaded == 0.0
            assert count == 3
            assert far == 0.0


def other_parts(mesh):
    """Return what other parts of hoyer.torch make of DTensors."""
    found = {}
    model = sharded(nn.Sequential(nn.Linear(6, 4)), mesh)
    target = parametrizations.sparseness(nn.Linear(6, 4), "weight", 0.5, learnable=True)
    target = sharded(nn.Sequential(target), mesh)[0].parametrizations.weight[0]
    target.sparseness = 0.8
    found["assigned"] = float(whole(target.sparseness.detach()))
    found["shown"] = repr(target)
    layer = SparsenessProjection(0.7)
    x = some((4, 8), "float32")
    value = layer(distribute_tensor(x, mesh, [Shard(1)]))
    found["layer"] = apart(whole(value), layer(x))
    found["placements"] = value.placements
    torch.manual_seed(0)
    results = []
    for distributed in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.ConvTranspose2d(6, 9, 3, groups=3))
        model = sharded(model, mesh) if distributed else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ProjectAfterStep(optimizer, (model[0], "weight"), 0.7)
        model(torch.ones(1, 6, 4, 4)).square().sum().backward()
        optimizer.step()
        results.append((numbers_in(model), repr(sparseness_report(model))))
    found["groups"] = largest_difference(results[0][0], results[1][0])
    found["reports"] = results[0][1] == results[1][1]
    weight = model[0].weight
    optimizer = torch.optim.SGD([weight], lr=0.0)
    handle = ProjectAfterStep(optimizer, (model[0], "weight"), 0.3)
    before = whole(weight.detach()).clone()
    with torch.no_grad():
        handle._project(torch.ones(()))
        found["skipped"] = torch.equal(whole(weight.detach()), before)
        handle._project(torch.zeros(()))
        found["not skipped"] = torch.equal(whole(weight.detach()), before)
    return found


def test_other_parts(ranks):
    for found in ranks.run(other_parts):
        assert found["assigned"] == pytest.approx(0.8)
        assert found["shown"].startswith("SparsenessProjection(sparseness=")
        assert found["layer"] <= CLOSE * EPS["float32"] / EPS["float64"]
        assert found["placements"] == (Shard(1),)
        assert found["groups"] == 0.0
        assert found["reports"]
        assert found["skipped"]
        assert not found["not skipped"]


def another_mesh(mesh):
    """Return errors where targets lie on a mesh of their own, as logits do under FSDP2 and TP."""
    x, numbers = some((4, 30)), torch.linspace(0.3, 0.9, 4, dtype=torch.float64)
    expected = x.clone().requires_grad_()
    target = numbers.clone().requires_grad_()
    value = hoyer.project(expected, target)
    value.square()[:, 0].sum().backward()
    found = []
    for places in ([Shard(0), Shard(1)], [Shard(1), Replicate()]):
        own = distribute_tensor(x, mesh, places).requires_grad_()
        each = distribute_tensor(numbers, mesh["data"], [Shard(0)]).requires_grad_()
        result = hoyer.project(own, each)
        whole(result.square()[:, 0].sum()).backward()
        found += [apart(whole(result), value), apart(whole(each.grad), target.grad) / 16]
        found.append(apart(whole(own.grad), expected.grad) / 16)
    return max(found)


def test_targets_on_another_mesh(ranks):
    assert max(ranks.run(another_mesh, shape=(2, 2))) <= CLOSE


def diverged(mesh):
    """Return which units are NaN after a step, where one rank's weights have NaN."""
    found = []
    for dim in (1, 0, None):
        model, optimizer, handle = made(mesh, "data", None, {"sparseness": 0.6, "dim": dim})
        if mesh.get_rank() == 0:
            model[0].weight.to_local().data[0, 0] = math.nan
        handle.project()
        train(model, optimizer, range(1))
        found.append(handle.steps)
        report = sparseness_report(model)
        found.append((report[0].undefined > 0, len(report)))
    return found


def test_no_rank_waits_for_weights_that_diverged(ranks):
    assert ranks.run(diverged) == [[1, (True, 3)] * 3] * COUNT


def beside(mesh, handle):
    """Return which vectors are NaN after a projection, where plain weights of one rank have NaN."""
    plain = nn.Parameter(some((3, 8), "float32"))
    shared = nn.Parameter(distribute_tensor(some((4, 8), "float32", 1), mesh, [Shard(1)]))
    whole_rows = nn.Parameter(distribute_tensor(some((4, 8), "float32", 2), mesh, [Shard(0)]))
    if mesh.get_rank() == 0:
        plain.data[1, 0] = math.nan
    params = [plain, shared, whole_rows]
    optimizer = torch.optim.SGD(params, lr=0.1)
    ProjectAfterStep(optimizer, params, **handle).project()
    sums = [whole(param.detach()).sum(-1) for param in params]
    return [x.isnan().tolist() for x in sums]


@pytest.mark.parametrize("sparseness", [0.6, torch.tensor(0.6)], ids=["number", "tensor"])
def test_no_rank_waits_for_plain_weights_beside_dtensors(ranks, sparseness):
    """`check_finite` is True, but in no parameter are numbers an error if one is a DTensor."""
    plain, *others = zip(*ranks.run(beside, {"sparseness": sparseness}), strict=True)
    assert plain == ([False, True, False], *[[False] * 3] * (COUNT - 1))
    assert others == [([False] * 4,) * COUNT] * 2


def too_large(mesh, handle, check):
    """Return what is said about norms that float16 does not have, and whether all is as before."""
    said = []
    for placement in (Shard(0), Shard(1), Replicate()):
        weight = nn.Parameter(distribute_tensor(some((4, 8), "float16"), mesh, [placement]))
        other = nn.Parameter(some((4, 8), "float16"))
        optimizer = torch.optim.SGD([other, weight], lr=0.1)
        steps = ProjectAfterStep(optimizer, [other, weight], 0.5, check_finite=check, **handle)
        weight.grad, other.grad = torch.zeros_like(weight), torch.zeros_like(other)
        try:
            optimizer.step()
        except ValueError as error:
            said.append(str(error))
        else:
            said.append(steps.steps)
        same = [whole(x.detach()).equal(some((4, 8), "float16")) for x in (weight, other)]
        said.append(all(same))
    return said


@pytest.mark.parametrize("handle", [{}, {"together": True}], ids=["each", "together"])
def test_norms_that_do_not_fit_the_type(ranks, handle):
    for said in ranks.run(too_large, {"l2": 1e6, **handle}, True):
        assert all("l2=1e+06 does not fit float16" in words for words in said[::2])
        assert said[1::2] == [True] * 3
    for said in ranks.run(too_large, {"l2": 1e6, **handle}, False):
        assert said == [1, False] * 3


def strided(mesh):
    """Return errors and collectives for what FSDP2 makes of weights under tensor parallelism."""
    found = []
    for axis in (0, 1, None):
        torch.manual_seed(0)
        expected = hoyer.project(nn.Linear(16, 12).weight.detach(), 0.7, axis=axis)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 12))
        parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
        weight = model[0].weight.detach()
        for how in (nullcontext(), Search()):
            with how:
                value = hoyer.project(weight, 0.7, axis=axis)
            found.append(apart(whole(value), expected) * EPS["float64"] / EPS["float32"])
        # The first of tied entries is the first of the whole.
        ties = torch.ones_like(weight)
        with Search():
            tied = hoyer.project(ties, 0.7, axis=axis)
        found.append(apart(whole(tied), hoyer.project(torch.ones(12, 16), 0.7, axis=axis)))
    return type(weight.placements[0]).__name__, max(found)


def test_fsdp_after_tensor_parallelism(ranks):
    for name, far in ranks.run(strided, shape=(2, 2)):
        assert name == "_StridedShard"
        assert far <= CLOSE


# ---- memory ----


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_memory_of_tensors_stays_resizable(dtype):
    """FSDP2 resizes that of parameters, which `Tensor.numpy` forbids."""
    x = some((8, 6), dtype)
    mask = some((8, 6)) > 0
    hoyer.project(x, 0.5, axis=0)
    hoyer.project(x, 0.5, where=mask)
    hoyer.solve(x.T, 0.5)
    hoyer.sparseness(x)
    hoyer.project_together([x], 0.5)
    hoyer.project_(x, 0.5, axis=0)
    norm = torch.ones(8, dtype=x.dtype)
    hoyer.project(x, 0.5, l2=norm)
    SparsenessProjection(0.5, l2=norm)(x)
    assert x.untyped_storage().resizable()
    assert mask.untyped_storage().resizable()
    assert norm.untyped_storage().resizable()


def gathered_and_freed(mesh):
    """Return what is said about a gathered weight that FSDP2 has freed."""
    layer = fully_shard(nn.Linear(6, 4), mesh=mesh)
    layer.unshard()
    weight = layer.weight.detach()
    norms = weight[:, 0]
    hoyer.project(weight, 0.5, axis=0)
    layer.reshard()
    words = []
    for call in (
        lambda: hoyer.project(weight, 0.5),
        lambda: hoyer.project_(weight, 0.5),
        lambda: hoyer.sparseness(weight),
        lambda: hoyer.project(torch.ones(4, 6), 0.5, l2=norms),
    ):
        with pytest.raises(ValueError, match="has no memory now") as error:
            call()
        words.append(str(error.value))
    return words


def test_weights_that_were_freed(ranks):
    for words in ranks.run(gathered_and_freed, shape=(2,)):
        assert all("FSDP2 frees gathered weights. Pass the DTensor" in said for said in words)


# ---- the ranks themselves ----


def one_waits(mesh, seconds):
    if mesh.get_rank() == 1:
        raise ValueError("what the other one waits for")
    time.sleep(seconds)


def test_whoever_waits_is_told_why(ranks, monkeypatch):
    ranks.run(gathered_and_freed, shape=(2,))
    monkeypatch.setattr(ranks_module, "PATIENCE", 1)
    with pytest.raises(TimeoutError, match="what the other one waits for") as error:
        ranks.run(one_waits, 60, shape=(2,))
    assert str(error.value).startswith("ranks [0] said nothing")
