"""torch.compile, torch.export and torch.library: one node in the graph, the same numbers."""

import io

import pytest
from test_torch_functions import ARGUMENTS, options_of

torch = pytest.importorskip("torch")

from functorch.compile import make_boxed_func  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import hoyer  # noqa: E402
import hoyer.torch  # noqa: E402
from hoyer.families.torch import engines, operators  # noqa: E402

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

each_form = pytest.mark.parametrize("form", ARGUMENTS)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def x(rng):
    return torch.from_numpy(rng.normal(size=(4, 10))).requires_grad_()


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, **options)


def nop_boxed(graph, inputs):
    return make_boxed_func(graph.forward)


def same_with_gradients(function, traced, *inputs):
    a, b = function(*inputs), traced(*inputs)
    torch.testing.assert_close(a, b)
    watched = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if watched:
        expected = torch.autograd.grad((a**3).sum(), watched)
        found = torch.autograd.grad((b**3).sum(), watched)
        torch.testing.assert_close(found, expected)


class TestCompile:
    @each_form
    @pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
    def test_equals_eager(self, form, dynamic, x):
        def function(v):
            return hoyer.project(v, **ARGUMENTS[form])

        traced = compiled(function, backend="aot_eager", dynamic=dynamic)
        same_with_gradients(function, traced, x)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_by_inductor(self, dtype, x):
        """The whole way to generated code, with a learnable target."""

        def function(v, s):
            return hoyer.project(v * 2, s, l2="keep", axis=0) + 1

        sigma = torch.tensor(0.5, requires_grad=True)
        value = x.detach().to(dtype).requires_grad_()
        a, b = function(value, sigma), compiled(function)(value, sigma)
        torch.testing.assert_close(a, b)
        expected = torch.autograd.grad(a.float().square().sum(), (value, sigma))
        found = torch.autograd.grad(b.float().square().sum(), (value, sigma))
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)

    @each_form
    @pytest.mark.parametrize("learned", [False, True], ids=["number", "learned"])
    @pytest.mark.skipif(engines.core is None, reason="no core")
    def test_backward_is_the_cores(self, form, learned):
        """One node of the graph, with the numbers of eager code, wherever the vectors lie."""
        given = dict(ARGUMENTS[form])
        if learned and "sparseness" not in given:
            pytest.skip("no sparseness")
        sigma = torch.tensor(given.pop("sparseness", 0.5), requires_grad=True)
        seen = []

        def count(graph, inputs):
            names = [str(node.target) for node in graph.graph.nodes]
            seen.append(names.count("hoyer.multiply.default"))
            return make_boxed_func(graph.forward)

        def function(v, s):
            asked = {} if form == "both norms" else {"sparseness": s if learned else 0.6}
            return hoyer.project(v, **asked, **given)

        backend = aot_autograd(fw_compiler=nop_boxed, bw_compiler=count)
        y = torch.randn(6, 40)
        for x in (torch.randn(6, 40), torch.randn(40, 6).t(), torch.randn(6, 2, 40)[:, 1] * 1e20):
            x.requires_grad_()
            inputs = (x, sigma) if learned else (x,)
            found = torch.autograd.grad(compiled(function, backend=backend)(x, sigma), inputs, y)
            expected = torch.autograd.grad(function(x, sigma), inputs, y)
            torch.testing.assert_close(found, expected)
        by_formulas = learned and given.get("l2") == "nearest"
        assert all(count == (0 if by_formulas else 1) for count in seen)
        assert seen

    def test_no_recompilation(self, x):
        counter = CompileCounterWithBackend("aot_eager")
        traced = compiled(lambda v: hoyer.project(v, 0.6) * 2, backend=counter)
        for _ in range(9):
            traced(x.detach() + 1)
        hoyer.project(x, 0.3)
        traced(x.detach())
        assert counter.frame_count == 1

    def test_no_recompilation_for_other_shapes(self, x):
        counter = CompileCounterWithBackend("aot_eager")
        traced = compiled(lambda v: hoyer.project(v, 0.6) * 2, backend=counter, dynamic=True)
        for rows, columns in zip(range(4, 14), range(30, 10, -2), strict=True):
            v = torch.rand(rows, columns)
            torch.testing.assert_close(traced(v), 2 * hoyer.project(v, 0.6))
        assert counter.frame_count == 1

    @pytest.mark.parametrize("device", ["cpu", "meta"])
    @pytest.mark.parametrize("target", [{}, {"l2": "keep"}, {"l1": 1.5}], ids=str)
    def test_numbers_that_change(self, device, target, x):
        """As any function of a float: compiled for the first number, then for all of them."""
        counter = CompileCounterWithBackend("aot_eager")
        traced = compiled(lambda v, s: hoyer.project(v, s, **target), backend=counter)
        x = x.detach().to(device)
        for sigma in (0.3, 0.31, 0.5, 0.9, 0.45, 0.77, 0.12, 0.66, 0.67, 0.68):
            found = traced(x, sigma)
            if device == "cpu":
                torch.testing.assert_close(found, hoyer.project(x, sigma, **target))
        assert counter.frame_count == 2

    def test_numbers_that_change_by_inductor(self, x):
        counter = CompileCounterWithBackend("inductor")
        traced = compiled(lambda v, s: hoyer.project(v, s, l2="keep"), backend=counter)
        for step in range(10):
            sigma = 0.2 + 0.07 * step
            torch.testing.assert_close(traced(x, sigma), hoyer.project(x, sigma, l2="keep"))
        assert counter.frame_count == 2

    def test_numbers_are_read_on_the_host(self):
        """A device is not asked for a number that the host knows; impossible ones are errors."""
        number = torch.tensor(1.5, dtype=torch.float64)
        x = torch.empty(3, 4, device="meta")
        assert operators._as_host_number(number, x) == 1.5
        assert operators._as_host_number(number, torch.empty(3, 4)) == 1.5
        single = number.float()
        assert operators._as_host_number(single, torch.empty(3, 4)) is single
        with pytest.raises(ValueError, match=r"sparseness must lie in \[0, 1\], got 1.5"):
            operators._project(x, *operators._arguments(options_of(sparseness=number), 1))

    def test_targets_that_are_tensors_or_lists(self, x):
        sigma = torch.tensor([0.3, 0.4, 0.5, 0.6], requires_grad=True)
        for axis in (0, 1):
            s = sigma if axis == 1 else sigma[0].detach().requires_grad_()

            def function(v, t, axis=axis):
                return hoyer.project(v, t, l2=1.5, axis=axis)

            same_with_gradients(function, compiled(function, backend="aot_eager"), x, s)
        traced = compiled(lambda v: hoyer.project(v, [0.3, 0.4, 0.5, 0.6]), backend="eager")
        torch.testing.assert_close(traced(x), hoyer.project(x, [0.3, 0.4, 0.5, 0.6]))

    def test_other_functions(self, x):
        v = x.detach()
        for function in (
            lambda t: hoyer.sparseness(t, axis=0),
            lambda t: hoyer.project_(t.clone(), 0.5),
            lambda t: hoyer.project(t, 0.5, out=torch.empty_like(t)),
        ):
            torch.testing.assert_close(compiled(function, backend="aot_eager")(v), function(v))

    def test_out_must_fit(self, x):
        v = x.detach()
        for out, text in (
            (torch.empty(4, 9, dtype=v.dtype), "out has shape"),
            (torch.empty(4, 10), "out has dtype"),
        ):
            traced = compiled(lambda t, o: hoyer.project(t, 0.5, out=o), backend="eager")
            with pytest.raises(Exception, match=text):
                traced(v, out)

    def test_errors_arrive(self, x):
        bad = x.detach().clone()
        bad[1, 2] = torch.nan
        with pytest.raises(ValueError, match="nan at entry 2 of vector 1"):
            compiled(lambda v: hoyer.project(v, 0.5), backend="aot_eager")(bad)

    def test_a_module(self, x):
        layer = hoyer.torch.SparsenessProjection(0.6, learnable=True).double()
        traced = torch.compile(layer, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(traced(x), layer(x))
        traced(x).square().sum().backward()
        assert layer.logit.grad.isfinite()

    def test_parametrized_weights(self):
        model = torch.nn.Sequential(torch.nn.Linear(10, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        for layer in (model[0], model[2]):
            hoyer.torch.parametrizations.sparseness(layer, "weight", 0.7)
        v = torch.rand(5, 10)
        traced = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(traced(v), model(v))

    def test_the_first_call_may_be_compiled(self, run_python):
        text = run_python("""
            import warnings
            warnings.simplefilter("error", UserWarning)
            import torch, hoyer
            x = torch.rand(3, 8)
            f = torch.compile(lambda v: hoyer.project(v, 0.5), fullgraph=True, backend="eager")
            print(torch.equal(f(x), hoyer.project(x, 0.5)))
        """)
        assert text.strip() == "True"


class TestTransformationsInCompiledCode:
    @pytest.mark.parametrize(
        "name", ["grad", "jvp", "jacrev", "jacfwd", "vmap", "hessian", "per sample"]
    )
    @pytest.mark.parametrize("form", ["sparseness", "keep", "only_increase, l1"])
    def test_equals_eager(self, name, form, x):
        func = torch.func

        def f(v):
            return hoyer.project(v, **ARGUMENTS[form])

        def loss(v):
            return (f(v) ** 3).sum()

        functions = {
            "grad": func.grad(loss),
            "jvp": lambda v: func.jvp(f, (v,), (v * v,))[1],
            "jacrev": lambda v: func.jacrev(f)(v[0]),
            "jacfwd": lambda v: func.jacfwd(f)(v[0]),
            "vmap": torch.vmap(f),
            "hessian": lambda v: func.jacfwd(func.jacrev(loss))(v[0]),
            "per sample": torch.vmap(func.grad(loss)),
        }
        function, v = functions[name], x.detach()
        torch.testing.assert_close(compiled(function, backend="aot_eager")(v), function(v))

    @pytest.mark.parametrize("only_increase", [False, True])
    @pytest.mark.parametrize("rule", [1.0, "keep", "nearest"])
    def test_zeros_and_extreme_scales(self, rule, only_increase, x):
        weights = torch.arange(10.0, dtype=torch.float64)

        def loss(v):
            return (hoyer.project(v, 0.5, l2=rule, only_increase=only_increase) * weights).sum()

        traced = compiled(torch.func.grad(loss), backend="aot_eager")
        v = x.detach().clone()
        v[1] = 0
        for scale in (0.0, 1.0, 1e200, 1e-170):
            found, expected = traced(v * scale), torch.func.grad(loss)(v * scale)
            assert expected.isfinite().all()
            tolerance = 1e-10 * float(expected.abs().max())
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=tolerance)

    def test_learnable_norms_at_ties(self):
        """As many ties as fit, more than fit, and a single entry: b = 0 at the first."""
        rows = [[7, 1, 7, 5, 7, -7, 0], [2] * 7, [0, 0, 0, 0, 3, 0, 0]]
        x = torch.tensor(rows, dtype=torch.float64)
        norms = [torch.tensor(norm, dtype=torch.float64) for norm in (2.0, 1.0)]

        def function(v, a, b):
            return torch.func.jacrev(lambda *t: hoyer.project(t[0], l1=t[1], l2=t[2]), (0, 1, 2))(
                v, a, b
            )

        found = compiled(function, backend="aot_eager")(x, *norms)
        torch.testing.assert_close(found, function(x, *norms))

    @pytest.mark.parametrize("rule", [1.0, "keep", "nearest"])
    def test_learnable_sparseness(self, rule, x):
        sigma = torch.tensor([0.3, 0.4, 0.5, 0.6], dtype=torch.float64)

        def function(v, s):
            def loss(v, s):
                return (hoyer.project(v, s, l2=rule, only_increase=True) ** 3).sum()

            return torch.func.grad(loss, (0, 1))(v, s)

        found = compiled(function, backend="aot_eager")(x.detach(), sigma)
        torch.testing.assert_close(found, function(x.detach(), sigma))


class TestExport:
    def test_with_a_free_batch(self, x):
        class Model(torch.nn.Module):
            def forward(self, v):
                return hoyer.project(v, 0.6, l2="keep") + hoyer.sparseness(v)[:, None]

        v = x.detach().float()
        program = torch.export.export(
            Model(), (v,), dynamic_shapes={"v": {0: torch.export.Dim("batch", min=2)}}
        )
        assert any("hoyer.project" in str(node.target) for node in program.graph.nodes)
        other = torch.rand(7, 10)
        torch.testing.assert_close(program.module()(other), Model()(other))
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer)
        torch.testing.assert_close(loaded.module()(other), Model()(other))

    def test_loaded_by_a_fresh_process(self, run_python, tmp_path):
        """`import hoyer.torch` is all it takes."""

        class Model(torch.nn.Module):
            def forward(self, v):
                return hoyer.project(v, 0.5, l2="keep")

        v, path = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), tmp_path / "program.pt2"
        torch.export.save(torch.export.export(Model(), (v,)), path)
        text = run_python(f"""
            import torch, hoyer.torch
            program = torch.export.load({str(path)!r})
            print(program.module()(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist())
        """)
        assert text.strip() == str(Model()(v).tolist())

    def test_a_network(self):
        model = torch.nn.Sequential(
            torch.nn.Linear(10, 8), hoyer.torch.SparsenessProjection(0.6), torch.nn.Linear(8, 3)
        )
        hoyer.torch.parametrizations.sparseness(model[0], "weight", 0.7)
        v = torch.rand(5, 10)
        program = torch.export.export(model, (v,))
        torch.testing.assert_close(program.module()(v), model(v))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
class TestTorchScript:
    @pytest.mark.parametrize("watched", [False, True])
    def test_traced(self, watched, x):
        """The projection stands in the graph, not what it gave for the example."""
        other = torch.randn(4, 10, dtype=torch.float64)
        for function in (
            lambda v: hoyer.project(v, 0.6) * 2,
            lambda v: hoyer.project(v, 0.6, l2="keep", axis=0),
            hoyer.sparseness,
        ):
            with torch.set_grad_enabled(watched):
                traced = torch.jit.trace(function, (x,))
                torch.testing.assert_close(traced(other), function(other))


class TestOperator:
    @pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # PyTorch's own
    def test_graphs_that_were_traced_have_gradients(self, x):
        """Traced on numbers that nobody watches, or decomposed: run on ones that somebody does."""

        def function(v):
            return hoyer.project(v, 0.6)

        class Model(torch.nn.Module):
            def forward(self, v):
                return function(v)

        y = torch.randn_like(x)
        expected = torch.autograd.grad(function(x), x, y)
        program = torch.export.export(Model(), (x.detach(),)).run_decompositions()
        for graph in (make_fx(function)(x.detach()), program.module()):
            torch.testing.assert_close(torch.autograd.grad(graph(x), x, y), expected)

    def test_transformed_and_traced(self, x):
        def function(v):
            return torch.func.grad(lambda t: hoyer.project(t, 0.6)[0].square().sum() * t.sum())(v)

        v = x.detach()
        torch.testing.assert_close(make_fx(function)(v)(v), function(v))

    def test_locate_has_no_derivatives(self, x):
        arguments = operators._arguments(options_of(sparseness=0.6), 1)
        with pytest.raises(RuntimeError, match="has no derivatives"):
            torch.ops.hoyer.locate(x, *arguments)

    @each_form
    def test_opcheck(self, form, x):
        given = dict(ARGUMENTS[form])
        for learnable in (False, True):
            if learnable:
                given |= {
                    name: torch.tensor(value, dtype=torch.float64, requires_grad=True)
                    for name, value in given.items()
                    if isinstance(value, float)
                }
            arguments = operators._arguments(options_of(**given), 1)
            for value in (x, x.detach(), x.detach().bfloat16(), x.detach().t()):
                checked = torch.library.opcheck(
                    torch.ops.hoyer.project.default, (value, *arguments)
                )
                assert set(checked.values()) == {"SUCCESS"}
            plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in arguments]
            checked = torch.library.opcheck(torch.ops.hoyer.locate.default, (x.detach(), *plain))
            assert set(checked.values()) == {"SUCCESS"}

    def test_several_axes(self, x):
        arguments = operators._arguments(options_of(sparseness=0.6, l2="nearest"), 2)
        checked = torch.library.opcheck(
            torch.ops.hoyer.project.default, (x.detach().reshape(2, 4, 5), *arguments)
        )
        assert set(checked.values()) == {"SUCCESS"}

    def test_without_the_core(self, x, monkeypatch):
        monkeypatch.setattr(engines, "core", None)

        def function(v):
            return hoyer.project(v, 0.6, l2="keep")

        same_with_gradients(function, compiled(function, backend="aot_eager"), x)
