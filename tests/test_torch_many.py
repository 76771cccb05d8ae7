"""Many CPU tensors in one call of the core: the bits of single calls, and all or nothing."""

import copy
import multiprocessing
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import hoyer  # noqa: E402
from hoyer.families.torch import engines  # noqa: E402
from hoyer.families.torch.many import Many  # noqa: E402
from hoyer.options import Options  # noqa: E402
from hoyer.torch import ProjectAfterStep  # noqa: E402

if engines.core is None:
    pytest.skip("no core", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("torch_seed")

ASKED = {
    "keep": {"sparseness": 0.8, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "unit": {"sparseness": 0.9},
    "both": {"l1": 1.5, "l2": 1.0},
    "l1 ball": {"l1": 0.5, "at_most": True},
    "increase": {"sparseness": 0.3, "only_increase": True},
    "nonnegative": {"sparseness": 0.7, "nonnegative": True, "l2": "keep"},
    "simplex": {"l1": 1.0, "nonnegative": True},
    "unchecked": {"sparseness": 0.8, "check_finite": False},
    "newton": {"sparseness": 0.8, "solver": "newton"},
}


def options(sparseness=None, l1=None, l2=None, **rest):
    given = {"nonnegative": False, "only_increase": False, "solver": "auto", "check_finite": True}
    given |= {"at_most": False, "where": None, **rest}
    return Options(sparseness, l1, l2, -1, **given)


def tensors():
    """Return tensors of many kinds, each with the axes of its vectors."""
    steps = torch.randn(40, 3, 30)
    return [
        (torch.randn(64, 64), -1),
        (torch.randn(20, 64).t(), -1),
        (torch.randn(50, 33), 0),
        (torch.randn(8, 4, 3, 3), (1, 2, 3)),
        (torch.randn(8, 4, 3, 3).to(memory_format=torch.channels_last), (1, 2, 3)),
        (torch.randn(5, 70)[:, ::2], -1),
        (steps[:, 1], -1),
        (torch.randn(300, 700), -1),
        (torch.randn(7, 100, dtype=torch.float64), -1),
        (torch.randn(9, 300).half(), -1),
        (torch.randn(300, 9).bfloat16(), 0),
        (torch.randn(2**18 + 5), -1),
        (torch.randn(3, 2**18 + 1), None),
        (torch.randn(12), 0),
        (torch.randn(0, 5), -1),
    ]


def many(pairs, asked, threads=2):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Many().project_([x for x, _ in pairs], [axis for _, axis in pairs], asked)
    finally:
        torch.set_num_threads(before)


class TestBits:
    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("form", ASKED)
    def test_are_those_of_single_calls(self, form, threads):
        pairs = tensors()
        expected = [hoyer.project(x, **ASKED[form], axis=axis) for x, axis in pairs]
        assert many(pairs, options(**ASKED[form]), threads) == [len(pairs) - 1]
        for (x, _), wanted in zip(pairs, expected, strict=True):
            assert torch.equal(x, wanted)

    def test_targets_may_be_tensors(self):
        for sparseness in (torch.tensor(0.7), torch.linspace(0.2, 0.9, 64)):
            pairs = [(torch.randn(64, 30), -1), (torch.randn(25, 64), 0)]
            expected = [hoyer.project(x, sparseness, l2="keep", axis=axis) for x, axis in pairs]
            assert many(pairs, options(sparseness, l2="keep")) == []
            assert all(torch.equal(x, y) for (x, _), y in zip(pairs, expected, strict=True))

    def test_where_memory_is_shared_tensors_take_turns(self):
        whole = torch.randn(40, 60)
        expected = whole.clone()
        for view in (expected[:30], expected[10:], expected[:, :20].t()):
            hoyer.project_(view, 0.8)
        pairs = [(view, -1) for view in (whole[:30], whole[10:], whole[:, :20].t())]
        pairs.insert(1, (torch.randn(4, 4), -1))
        assert many(pairs, options(0.8)) == []
        assert torch.equal(whole, expected)

    def test_empty_ones_and_others(self):
        meta = torch.empty(3, 4, device="meta")
        assert many([(torch.randn(2, 3), -1), (meta, -1)], options(0.5)) == [0, 1]
        assert many([(torch.empty(0, 4), -1)], options(0.5)) == [0]
        negative = torch._neg_view(torch.randn(3, 4))
        assert many([(negative, -1), (torch.randn(3, 4), -1)], options(0.5)) == [0]

    def test_threads_of_python(self):
        inputs = [[torch.randn(30, 200) for _ in range(10)] for _ in range(4)]
        expected = [[hoyer.project(x, 0.8) for x in group] for group in inputs]

        def work(group):
            many([(x, -1) for x in group], options(0.8))

        workers = [threading.Thread(target=work, args=(group,)) for group in inputs]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for group, wanted in zip(inputs, expected, strict=True):
            assert all(torch.equal(x, y) for x, y in zip(group, wanted, strict=True))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_in_a_forked_child(self):
        group = [torch.randn(500, 200) for _ in range(3)]
        many([(x.clone(), -1) for x in group], options(0.8))
        expected = [hoyer.project(x, 0.8) for x in group]
        context = multiprocessing.get_context("fork")
        found = context.Queue()
        child = context.Process(target=_project_in_child, args=(group, found))
        child.start()
        results = [torch.tensor(x) for x in found.get(timeout=60)]
        child.join(60)
        assert all(torch.equal(x, y) for x, y in zip(results, expected, strict=True))


def _project_in_child(group, found):
    many([(x, -1) for x in group], options(0.8))
    found.put([x.tolist() for x in group])


class TestAllOrNothing:
    @pytest.mark.parametrize("number", [float("nan"), float("inf")])
    @pytest.mark.parametrize("which", range(14))
    def test_one_bad_entry_anywhere(self, which, number):
        pairs = tensors()
        bad, axis = pairs[which]
        bad[(-1,) * bad.dim()] = number
        before = [x.clone() for x, _ in pairs]
        with pytest.raises(ValueError, match="only finite vectors") as error:
            many(pairs, options(0.8, l2="keep"))
        assert all(
            torch.equal(
                x,
                y,
            )
            or x is bad
            for (x, _), y in zip(pairs, before, strict=True)
        )
        torch.testing.assert_close(bad, before[which], equal_nan=True, rtol=0, atol=0)
        with pytest.raises(ValueError, match="only finite vectors") as single:
            hoyer.project_(bad, 0.8, l2="keep", axis=axis)
        assert str(error.value) == str(single.value)

    def test_the_first_of_several_is_told(self):
        pairs = [(torch.randn(400, 300), -1) for _ in range(4)]
        pairs[3][0][0, 0] = pairs[2][0][399, 7] = pairs[2][0][398, 5] = float("nan")
        with pytest.raises(ValueError, match="entry 5 of vector 398"):
            many(pairs, options(0.8))

    def test_unchecked(self):
        pairs = [(torch.randn(4, 30), -1) for _ in range(3)]
        pairs[1][0][2, 3] = float("nan")
        assert many(pairs, options(0.8, check_finite=False)) == []
        assert pairs[1][0].isnan().sum() == 30
        assert pairs[0][0].isfinite().all()
        assert pairs[2][0].isfinite().all()

    @pytest.mark.parametrize(
        ("last", "asked", "words"),
        [
            (torch.randn(4, 1).expand(4, 5), options(0.5), "entries that share memory"),
            (torch.randn(4, 5).half(), options(0.5, l2=1e6), "does not fit float16"),
            (torch.randn(4, 5), options(l1=3.0, l2=1.0), "l1"),
        ],
    )
    def test_what_is_refused(self, last, asked, words):
        first = torch.randn(6, 50)
        before = first.clone()
        with pytest.raises(ValueError, match=words):
            many([(first, -1), (last, -1)], asked)
        assert torch.equal(first, before)


class TestProjectAfterStep:
    @staticmethod
    def model():
        layers = [nn.Linear(20, 30), nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 6, 3, groups=2)]
        return nn.ModuleList([*layers, nn.Linear(5, 7).double(), nn.Embedding(9, 12)])

    def test_all_layers_at_once(self, monkeypatch):
        model = self.model()
        calls = []
        real = engines.core.project_many

        class Counting:
            def __getattr__(self, name):
                return getattr(real_core, name)

            def project_many(self, *given):
                calls.append(given)
                return real(*given)

        real_core = engines.core
        monkeypatch.setattr(engines, "core", Counting())
        twin = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        handle = ProjectAfterStep(optimizer, [(layer, "weight") for layer in model], 0.7)
        versions = [layer.weight._version for layer in model]
        handle.project()
        assert len(calls) == 1
        for layer, other, version in zip(model, twin, versions, strict=True):
            alone = ProjectAfterStep(
                torch.optim.SGD(other.parameters(), lr=0.1), (other, "weight"), 0.7
            )
            alone.project()
            assert torch.equal(layer.weight, other.weight)
            assert layer.weight.requires_grad
            assert layer.weight.is_leaf
            assert layer.weight._version > version

    def test_memory_that_moves(self):
        model = self.model()
        handle = ProjectAfterStep(
            torch.optim.SGD(model.parameters(), lr=0.1), [(m, "weight") for m in model], 0.7
        )
        handle.project()
        for _ in range(2):
            with torch.no_grad():
                for layer in model:
                    layer.weight.data = torch.randn_like(layer.weight)
            handle.project()
            for layer in (model[0], model[3], model[4]):
                sigma = hoyer.sparseness(layer.weight.detach())
                torch.testing.assert_close(sigma, torch.full_like(sigma, 0.7))
        model[0].weight.data = torch.randn(20, 30).t()
        handle.project()
        sigma = hoyer.sparseness(model[0].weight.detach())
        torch.testing.assert_close(sigma, torch.full_like(sigma, 0.7))

    def test_the_bad_parameter_is_named_and_nothing_is_written(self):
        model = self.model()
        handle = ProjectAfterStep(
            torch.optim.SGD(model.parameters(), lr=0.1), [(m, "weight") for m in model], 0.7
        )
        with torch.no_grad():
            model[2].weight[1, 1, 0, 2] = float("inf")
        before = [layer.weight.detach().clone() for layer in model]
        with pytest.raises(ValueError, match=r"weight of ConvTranspose2d\) .* has infinity"):
            handle.project()
        assert all(torch.equal(m.weight, old) for m, old in zip(model, before, strict=True))

    @pytest.mark.parametrize("how", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
    def test_copies(self, how):
        model = self.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ProjectAfterStep(optimizer, [(m, "weight") for m in model], 0.7).project()
        other, same = how((model, optimizer))
        for layer in other:
            layer.weight.grad = torch.ones_like(layer.weight)
        old = model[0].weight.detach().clone()
        same.step()
        assert torch.equal(model[0].weight, old)
        sigma = hoyer.sparseness(other[0].weight.detach())
        torch.testing.assert_close(sigma, torch.full_like(sigma, 0.7))


def test_memory_that_is_gone():
    """Code that offloads weights resizes their memory to nothing: left to hoyer.project_."""
    x = torch.randn(3, 8)
    x.untyped_storage().resize_(0)
    with torch.no_grad():
        assert Many().project_([x], [-1], options(0.8)) == [0]


def test_sparse_parameters_are_refused_with_words():
    weight = nn.Parameter(torch.randn(3, 8).to_sparse())
    handle = ProjectAfterStep(torch.optim.SGD([weight], lr=0.1), [weight], 0.8, dim=-1)
    with pytest.raises(TypeError, match="sparse_coo tensor: pass a dense one"):
        handle.project()


def test_negative_views_of_known_memory():
    x = torch.randn(3, 8)
    negative = torch._neg_view(x)
    many, asked = Many(), options(0.6, nonnegative=True)
    with torch.no_grad():
        assert many.project_([x], [-1], asked) == []
        assert many.project_([negative], [-1], asked) == [0]
