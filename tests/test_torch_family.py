"""One norm, upper bounds and masks on tensors: values, and derivatives of every kind."""

import io
import itertools
import math

import numpy as np
import pytest
import reference
from test_torch_functions import DTYPES, options_of
from test_torch_gradients import check_everything

torch = pytest.importorskip("torch")

from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap  # noqa: E402

import hoyer  # noqa: E402
from hoyer.families.torch import engines, functions, operators, targets, tensors  # noqa: E402

torch.set_num_threads(1)
pytestmark = [
    pytest.mark.engines("torch/core", "torch/arrays"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SETS = {
    "simplex": {"l1": 1.0, "nonnegative": True},
    "L1 sphere": {"l1": 1.3},
    "L1 ball": {"l1": 1.3, "at_most": True},
    "L1 ball, nonnegative": {"l1": 1.3, "at_most": True, "nonnegative": True},
    "two balls": {"l1": 1.6, "l2": 1.0, "at_most": True},
    "two balls, nonnegative": {"l1": 1.6, "l2": 1.0, "at_most": True, "nonnegative": True},
}
RULES = {
    "sparseness": {"sparseness": 0.6},
    "with l1": {"sparseness": 0.6, "l1": 3.0},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "both norms": {"l1": 1.3, "l2": 1.0},
    "nonnegative": {"sparseness": 0.6, "nonnegative": True},
    "nearly constant": {"sparseness": 0.01},
    "only_increase": {"sparseness": 0.35, "only_increase": True},
    "only_increase, l1": {"sparseness": 0.35, "l1": 2.0, "only_increase": True},
    "only_increase, keep": {
        "sparseness": 0.35, "l2": "keep", "only_increase": True, "nonnegative": True
    },
}  # fmt: skip
FORMS = SETS | RULES

each_set = pytest.mark.parametrize("name", SETS)
each_form = pytest.mark.parametrize("name", FORMS)

SIZES = torch.tensor([0.1, 0.7, 3.0, 3.0])[:, None].double()


@pytest.fixture
def x(rng):
    """Vectors within bounds, between them and beyond; the last is beyond that of l2 alone."""
    rows = torch.from_numpy(rng.normal(size=(4, 6)) + 0.3)
    rows[3] = torch.tensor([1.0, 0.05, -0.02, 0.04, 0.01, -0.03])
    return (rows * SIZES).requires_grad_()


@pytest.fixture
def mask():
    rows = [[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0]]
    return torch.tensor(rows, dtype=torch.bool)


def padded(x, mask, *stand_ins):
    """What is masked becomes something that must not matter."""
    stand_ins = itertools.cycle(stand_ins or (math.nan, -math.inf, math.inf, 1e300))
    x = x.detach().clone()
    for place in (~mask).nonzero():
        x[tuple(place)] = next(stand_ins)
    return x


def near(a, b, eps=16):
    """Whether results are equal to rounding, vectors in the last axis."""
    bound = eps * torch.finfo(a.dtype).eps * b.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    assert a.shape == b.shape
    assert bool(((a - b).abs() <= bound).all()), (a, b)


class TestValues:
    @each_set
    def test_equals_the_exact_result(self, engine, name, x):
        found = hoyer.solve(x.detach(), **SETS[name])
        for i, row in enumerate(x.detach().numpy()):
            exact = reference.exact_projection(row, **SETS[name])
            assert reference.error_in_eps(found.value[i].numpy(), exact) <= 32
            assert found.active[i] == exact.active

    def test_sparsemax(self, engine, rng):
        """The threshold by sorting: the largest support whose entries stay positive."""
        scores = torch.from_numpy(rng.normal(size=(20, 30)) * 2)
        ordered = scores.sort(-1, descending=True).values
        sums = ordered.cumsum(-1)
        count = torch.arange(1, 31)
        size = (1 + count * ordered > sums).sum(-1, keepdim=True)
        shift = (sums.gather(-1, size - 1) - 1) / size
        found = hoyer.solve(scores, l1=1.0, nonnegative=True)
        near(found.value, (scores - shift).clamp(min=0))
        torch.testing.assert_close(found.shift, shift[:, 0])
        assert (found.active == "l1").all()

    @each_form
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_a_masked_vector_equals_the_rest_alone(self, engine, name, dtype, x, mask):
        given = padded(x, mask).to(dtype)
        found = hoyer.project(given, where=mask, **FORMS[name])
        assert (found[~mask] == 0).all()
        assert not found[~mask].signbit().any()
        for row, kept, value in zip(given, mask, found, strict=True):
            near(value[kept], hoyer.project(row[kept], **FORMS[name]), 4)

    @each_form
    def test_vectors_of_one_entry_and_of_none(self, engine, name):
        x = torch.tensor([[math.nan, -3.0, 5.0], [math.nan, math.inf, 1.0]], dtype=torch.float64)
        mask = torch.tensor([[False, True, False], [False, False, False]])
        if name == "both norms":
            with pytest.raises(ValueError, match="impossible for vectors of length 1"):
                hoyer.project(x, where=mask, **FORMS[name])
            return
        found = hoyer.solve(x, where=mask, **FORMS[name])
        exact = reference.exact_projection([0, -3.0, 0], where=[False, True, False], **FORMS[name])
        near(found.value[0], torch.tensor([float(p) for p in exact.value], dtype=torch.float64))
        assert (found.value[1] == 0).all()
        assert found.active[1] == "none"
        assert (found.support_size[1], found.unique[1], found.scale[1]) == (0, True, 0)
        assert (found.vjp(torch.ones_like(x))[~mask] == 0).all()

    @pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (2, 1), None])
    @pytest.mark.parametrize("name", ["simplex", "keep", "two balls", "only_increase, l1"])
    def test_any_axis(self, engine, axis, name, rng):
        x = torch.from_numpy(rng.normal(size=(3, 4, 5)))
        mask = torch.from_numpy(rng.random((3, 4, 5)) < 0.7)
        watched = padded(x, mask).requires_grad_()
        found = hoyer.project(watched, where=mask, axis=axis, **FORMS[name])
        axes = tuple(range(3)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = sorted(a % 3 for a in axes)
        batch = [a for a in range(3) if a not in axes]
        moved = [t.permute(*batch, *axes).flatten(len(batch)) for t in (x, mask, found)]
        rows, kept, values = (t.reshape(-1, t.shape[-1]) for t in moved)
        for row, some, value in zip(rows.numpy(), kept.numpy(), values, strict=True):
            exact = reference.exact_projection(row, where=some, **FORMS[name])
            assert reference.error_in_eps(value.detach().numpy(), exact) <= 32
        y = torch.from_numpy(rng.normal(size=x.shape))
        (by_x,) = torch.autograd.grad(found, watched, y)
        torch.testing.assert_close(hoyer.solve(
            watched.detach(), where=mask, axis=axis, **FORMS[name]
        ).vjp(y), by_x)  # fmt: skip
        assert (by_x[~mask] == 0).all()

    def test_masks_of_any_kind_and_shape(self, engine, x):
        x = x.detach()
        one = [True, False, True, True, True, False]
        expected = hoyer.project(x, l1=1.0, where=torch.tensor(one).expand(4, 6))
        for where in (one, np.array(one), torch.tensor(one), torch.tensor([one])):
            assert hoyer.project(x, l1=1.0, where=where).equal(expected)
        rows = torch.tensor([[True], [False], [True], [True]])
        found = hoyer.project(x, l1=1.0, where=rows)
        assert (found[1] == 0).all()
        assert found[0].equal(hoyer.project(x[0], l1=1.0))
        assert hoyer.project(x, l1=1.0, where=True).equal(hoyer.project(x, l1=1.0))
        across = hoyer.project(x.t(), l1=1.0, where=torch.tensor(one)[:, None], axis=0)
        assert across.t().equal(expected)

    def test_in_place_and_into_another(self, engine, x, mask):
        for name, form in FORMS.items():
            given = padded(x, mask)
            expected = hoyer.project(given, where=mask, **form)
            out = torch.empty_like(given)
            assert hoyer.project(given, where=mask, out=out, **form) is out
            assert out.equal(expected), name
            hoyer.project_(given, where=mask, **form)
            assert given.equal(expected), name

    @pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5)])
    def test_empty_batches(self, engine, shape):
        x = torch.empty(shape, requires_grad=True)
        l1 = torch.tensor(1.0, requires_grad=True)
        for where in (None, torch.ones(5, dtype=torch.bool)):
            for at_most in (False, True):
                found = hoyer.project(x, l1=l1, where=where, at_most=at_most)
                assert found.shape == shape
                by_x, by_l1 = torch.autograd.grad(found.sum(), (x, l1))
                assert by_x.shape == shape
                assert by_l1 == 0

    def test_only_what_counts_is_checked(self, engine, x, mask):
        given = padded(x, mask)
        given[2, 3] = math.nan
        for function in (hoyer.project, hoyer.project_, hoyer.solve):
            with pytest.raises(ValueError, match="nan at entry 3 of vector 2"):
                function(given.clone(), l1=1.0, where=mask)
        found = hoyer.project(given, l1=1.0, where=mask, check_finite=False)
        assert found[2].isnan()[mask[2]].all()
        assert found[[0, 1, 3]].isfinite().all()

    def test_what_is_no_mask(self, engine, x):
        x = x.detach()
        for where, kind, text in (
            (torch.ones(6), TypeError, "where has dtype torch.float32: give booleans"),
            (np.ones(6), TypeError, "where has dtype float64"),
            ([1, 0, 1, 1, 0, 1], TypeError, "where has dtype int64"),
            (torch.ones(5).bool(), ValueError, r"\(5,\), which does not broadcast .* \(4, 6\)"),
            (torch.ones(1, 4, 6).bool(), ValueError, "does not broadcast"),
            (torch.ones(6, device="meta").bool(), ValueError, "where is on meta and x on cpu"),
            (torch.ones(6).bool().to_sparse(), TypeError, "pass a dense one, where.to_dense()"),
        ):
            with pytest.raises(kind, match=text):
                hoyer.project(x, l1=1.0, where=where)

    def test_what_does_not_go_together(self, engine, x):
        for options, text in (
            ({"sparseness": 0.5, "at_most": True}, "bounds are given as l1"),
            ({"l1": 1.0, "only_increase": True}, "one norm says nothing"),
            ({"l1": 1.0, "solver": "newton"}, "need both norms"),
            ({"l1": torch.tensor(1.0), "only_increase": True}, "one norm says nothing"),
        ):
            for where in (None, torch.ones(6, dtype=torch.bool)):
                with pytest.raises(ValueError, match=text):
                    hoyer.project(x, where=where, **options)


class TestFiniteDifferences:
    @each_set
    def test_by_x(self, engine, name, x):
        check_everything(lambda v: hoyer.project(v, **SETS[name]), (x,))

    @each_form
    def test_by_x_with_a_mask(self, engine, name, x, mask):
        some = x.detach()[1:3, :5].clone().requires_grad_()
        where = mask[1:3, :5]
        check_everything(lambda v: hoyer.project(v, where=where, **FORMS[name]), (some,))

    @each_form
    @pytest.mark.parametrize("each", [False, True], ids=["one for all", "one for each"])
    def test_by_targets(self, engine, name, each, x, mask):
        if not each and engine.name == "torch/arrays":
            pytest.skip("the sum of what each vector says, which the core's are as well")
        form, count = FORMS[name], 2
        names = [key for key in ("sparseness", "l1", "l2") if isinstance(form.get(key), float)]
        steps = torch.tensor([0.0, 0.01], dtype=torch.float64) if each else torch.zeros(())
        numbers = [(form[key] + steps.double()).requires_grad_() for key in names]
        some = x.detach()[1 : 1 + count, :5].clone().requires_grad_()
        # Those without a mask that are no new sets are in test_torch_gradients.
        for where in (None, mask[1:3, :5]) if name in SETS else (mask[1:3, :5],):

            def function(v, *t, where=where):
                given = form | dict(zip(names, t, strict=True))
                return hoyer.project(v, where=where, **given)

            check_everything(function, (some, *numbers))

    def test_norms_that_do_not_bind_get_no_gradient(self, engine, x):
        l1, l2 = (torch.full((4,), v, dtype=torch.float64).requires_grad_() for v in (1.6, 1.0))
        found = hoyer.solve(x, l1=l1, l2=l2, at_most=True)
        assert set(found.active) == {"none", "l1", "both", "l2"}
        y = torch.linspace(-1, 2, 6, dtype=torch.float64)
        by_l1, by_l2 = torch.autograd.grad(found.value @ y, (l1, l2), torch.ones(4).double())
        assert ((by_l1 != 0).numpy() == np.isin(found.active, ["l1", "both"])).all()
        assert ((by_l2 != 0).numpy() == np.isin(found.active, ["l2", "both"])).all()

    def test_what_is_masked_may_be_anything(self, engine, x, mask):
        for name, form in FORMS.items():
            results = []
            for stand_ins in ((), (0.5,)):
                given = padded(x, mask, *stand_ins).requires_grad_()
                y = padded(torch.ones(4, 6).double(), mask, *stand_ins)
                value = hoyer.project(given, where=mask, **form)
                (by_x,) = torch.autograd.grad(value, given, y)
                assert (by_x[~mask] == 0).all(), name
                results += [(value.detach(), by_x)]
            torch.testing.assert_close(results[0], results[1])

    def test_a_mask_must_not_change_before_the_backward_pass(self, engine, x, mask):
        found = hoyer.project(x, l1=1.0, where=mask)
        mask[0, 0] = False
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            found.sum().backward()


class TestProjection:
    @each_form
    @pytest.mark.parametrize("masked", [False, True])
    def test_products_are_those_of_autograd(self, engine, name, masked, x, mask):
        where = mask if masked else None
        given = (padded(x, mask) if masked else x.detach()).requires_grad_()
        found = hoyer.solve(given, where=where, **FORMS[name])
        jacobian = found.jacobian().detach()
        y = torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(4, 6)
        (by_x,) = torch.autograd.grad(found.value, given, y, retain_graph=True)
        kept = torch.ones(4, 6).bool() if where is None else where
        zeroed = torch.where(kept, y, 0.0)
        torch.testing.assert_close(torch.einsum("bij,bi->bj", jacobian, zeroed), by_x)
        torch.testing.assert_close(found.vjp(y), by_x)
        forward = torch.einsum("bij,bj->bi", jacobian, zeroed)
        torch.testing.assert_close(found.jvp(padded(y, kept)), forward)
        assert (jacobian[~kept] == 0).all()

    @each_form
    @pytest.mark.parametrize("masked", [False, True])
    def test_gradients_by_targets(self, engine, name, masked, x, mask):
        where, form = mask if masked else None, FORMS[name]
        found = hoyer.solve(x.detach(), where=where, **form)
        names = [key for key in ("sparseness", "l1", "l2") if isinstance(form.get(key), float)]
        numbers = [torch.tensor(form[key], dtype=torch.float64) for key in names]

        def function(*t):
            given = form | dict(zip(names, t, strict=True))
            return hoyer.project(x.detach(), where=where, **given)

        by = dict(zip(names, jacfwd(function, tuple(range(len(names))))(*numbers), strict=True))
        if "sparseness" in by:
            torch.testing.assert_close(found.sparseness_gradient(), by["sparseness"])
        else:
            first, second = found.target_gradient()
            torch.testing.assert_close(first, by["l1"])
            torch.testing.assert_close(second, by.get("l2", torch.zeros_like(second)))

    def test_changing_the_mask_does_not_change_the_derivatives(self, engine, x, mask):
        found = hoyer.solve(x.detach(), l1=9.0, at_most=True, where=mask)
        before = found.jacobian()
        mask.fill_(False)
        assert found.jacobian().equal(before)


class TestTransformations:
    @each_form
    @pytest.mark.parametrize("masked", [False, True])
    def test_every_way_to_a_hessian(self, engine, name, masked, x, mask):
        where = mask[1] if masked else None

        def loss(v):
            return (hoyer.project(v, where=where, **FORMS[name]) ** 3).sum()

        v = x.detach()[1]
        expected = torch.autograd.functional.hessian(loss, v)
        for found in (
            hessian(loss),
            jacrev(jacrev(loss)),
            jacfwd(jacfwd(loss)),
            jacrev(grad(loss)),
        ):
            torch.testing.assert_close(found(v), expected)

    @each_form
    def test_vmap(self, engine, name, x, mask):
        form, x = FORMS[name], x.detach()

        def project(v, m):
            return hoyer.project(v, where=m, **form)

        expected = project(x, mask)
        for places in ((0, 0), (1, 1), (0, 1), (1, 0)):
            given = [t if place == 0 else t.t() for t, place in zip((x, mask), places, strict=True)]
            torch.testing.assert_close(vmap(project, places)(*given), expected)
        torch.testing.assert_close(vmap(project, (0, None))(x, mask[1]), project(x, mask[1]))
        one = x[2].expand(4, 6)
        torch.testing.assert_close(vmap(project, (None, 0))(x[2], mask), project(one, mask))

        def loss(v, m):
            return (project(v, m) ** 3).sum()

        each = torch.stack([grad(loss)(v, m) for v, m in zip(x, mask, strict=True)])
        torch.testing.assert_close(vmap(grad(loss))(x, mask), each)

    def test_vmap_over_targets(self, engine, x, mask):
        l1, v = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64), x.detach()
        for where in (None, mask):
            found = vmap(lambda t: hoyer.project(v, l1=t, where=where))(l1)  # noqa: B023
            each = torch.stack([hoyer.project(v, l1=t, where=where) for t in l1])
            torch.testing.assert_close(found, each)
            by_l1 = vmap(grad(lambda t: (hoyer.project(v, l1=t, where=where) ** 2).sum()))(  # noqa: B023
                l1
            )
            assert (by_l1 > 0).all()

    def test_forward_mode(self, engine, x, mask):
        v, y = x.detach(), torch.linspace(-1, 2, 24, dtype=torch.float64).reshape(4, 6)
        for name, form in FORMS.items():
            _, tangent = jvp(lambda v: hoyer.project(v, where=mask, **form), (v,), (y,))  # noqa: B023
            expected = hoyer.solve(v, where=mask, **form).jvp(y)
            torch.testing.assert_close(tangent, expected, msg=name)

    @each_form
    @pytest.mark.parametrize("masked", [False, True])
    def test_the_formula_for_compiled_transformations(self, name, masked, x, mask):
        form = FORMS[name]
        names = [key for key in ("sparseness", "l1", "l2") if isinstance(form.get(key), float)]
        numbers = [torch.tensor(form[key], dtype=torch.float64) for key in names]
        where = mask if masked else None

        def given(t):
            return form | dict(zip(names, t, strict=True)) | {"where": where}

        def closed(v, *t):
            return operators._project_smoothly(v, options_of(**given(t)), 1)

        def project(v, *t):
            return hoyer.project(v, **given(t))

        arguments = (x.detach(), *numbers)
        everything = tuple(range(len(arguments)))
        for mine, other in zip(
            jacfwd(closed, everything)(*arguments),
            jacrev(project, everything)(*arguments),
            strict=True,
        ):
            torch.testing.assert_close(mine, other)


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh")
class TestTracing:
    @each_form
    def test_compiled(self, name, x, mask):
        def function(v, m):
            return hoyer.project(v, where=m, **FORMS[name])

        traced = torch.compile(function, fullgraph=True, backend="aot_eager")
        for where in (mask, ~mask | mask[:1]) if name != "both norms" else (mask,):
            given, results = padded(x, where).requires_grad_(), []
            for f in (function, traced):
                value = f(given, where)
                results += [(value, *torch.autograd.grad((value**3).sum(), given))]
            torch.testing.assert_close(*results)

    @each_set
    def test_compiled_without_a_mask(self, name, x):
        def function(v):
            return hoyer.project(v, **SETS[name])

        traced = torch.compile(function, fullgraph=True, backend="aot_eager")
        (expected,) = torch.autograd.grad((function(x) ** 3).sum(), x)
        (found,) = torch.autograd.grad((traced(x) ** 3).sum(), x)
        torch.testing.assert_close(found, expected)

    @pytest.mark.parametrize("name", ["simplex", "two balls", "keep"])
    def test_transformations_in_compiled_code(self, name, x, mask):
        def function(v, m):
            return grad(lambda v: (hoyer.project(v, where=m, **FORMS[name]) ** 3).sum())(v)

        v = x.detach()
        traced = torch.compile(function, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(traced(v, mask), function(v, mask))

    def test_exported(self):
        class Attention(torch.nn.Module):
            def forward(self, scores, where):
                return hoyer.project(scores, l1=1.0, nonnegative=True, where=where)

        scores, where = torch.randn(2, 3, 5), torch.rand(2, 1, 5) < 0.7
        program = torch.export.export(Attention(), (scores, where))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer).module()
        other = torch.randn(2, 3, 5)
        torch.testing.assert_close(loaded(other, ~where), Attention()(other, ~where))

    @each_form
    def test_opcheck(self, name, x, mask):
        for where in (None, mask):
            arguments = operators._arguments(options_of(**FORMS[name], where=where), 1)
            for value in (x, x.detach().bfloat16()):
                checked = torch.library.opcheck(
                    torch.ops.hoyer.project.default, (value, *arguments)
                )
                assert set(checked.values()) == {"SUCCESS"}

    def test_fake_and_meta(self, mask):
        from torch._subclasses import FakeTensorMode

        found = hoyer.project(torch.empty(4, 6, device="meta"), l1=1.0, where=mask.to("meta"))
        assert (found.device.type, found.shape) == ("meta", (4, 6))
        with FakeTensorMode() as mode:
            x, where = mode.from_tensor(torch.rand(4, 6)), mode.from_tensor(mask)
            assert hoyer.project(x, l1=1.0, l2=0.9, at_most=True, where=where).shape == (4, 6)


class TestOtherDevices:
    """Tensors without numbers: nothing can be asked of them."""

    @each_form
    @pytest.mark.parametrize("learnable", [False, True])
    @pytest.mark.parametrize("n", [50, targets._LONGEST_TABLE + 1])
    @pytest.mark.parametrize("masked", [False, True])
    def test_nothing_waits(self, name, learnable, n, masked):
        given = dict(FORMS[name])
        x = torch.empty(3, 4, n, device="meta", dtype=torch.float16)
        if learnable:
            given |= {
                key: torch.empty(4, device="meta")
                for key, value in given.items()
                if type(value) is float
            }
        if masked:
            given["where"] = torch.empty(n, device="meta", dtype=torch.bool)
        options = targets.as_given(options_of(**given), tensors.vectors_last(x, -1))
        at = engines.ARRAYS.solved(x, targets.plan_of(x, 1, options), 1)
        assert at.value.device.type == at.scale.device.type == "meta"
        needed = (True, *(t is not None for t in targets.tensors_of(options)))
        results = functions.gradients(at, options[:3], (x, at.scale), needed)
        assert all((r is not None) == n for r, n in zip(results, needed, strict=True))
        value, scale = functions.tangents(at, options[:3], (x, *targets.tensors_of(options)))
        assert (value.shape, scale.shape) == (x.shape, (3, 4))

    @each_form
    @pytest.mark.parametrize("longest", [0, 2**16], ids=["formulas", "table"])
    @pytest.mark.parametrize("learnable", [False, True])
    def test_plans_of_devices_are_those_of_the_host(  # noqa: PLR0917
        self, name, longest, learnable, x, mask, monkeypatch
    ):
        given = dict(FORMS[name])
        if learnable:
            given |= {
                key: torch.tensor(value, dtype=torch.float64)
                for key, value in given.items()
                if type(value) is float
            }
        vectors = tensors.vectors_last(x.detach(), -1)
        options = targets.as_given(options_of(**given, where=mask), vectors)
        here = targets.plan_of(x, 1, options)
        monkeypatch.setattr(targets, "on_host", lambda x: False)
        monkeypatch.setattr(targets, "_LONGEST_TABLE", longest)
        there = targets.plan_of(x, 1, options)
        assert there.lengths.equal(here.lengths)
        for a, b in zip(there.target, here.target, strict=True):
            found = a.expand(4).numpy()
            np.testing.assert_allclose(found, np.broadcast_to(b, 4), rtol=1e-15, atol=1e-15)
