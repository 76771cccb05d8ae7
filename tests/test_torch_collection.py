"""What is promised, on every input of the collection, for tensors of every type on both engines."""

import math

import mpmath
import numpy as np
import pytest
from mpmath import mp
from reference import VALUE_PRECISION, error_in_eps, exact_projection, longdouble_projection
from test_collection import COLLECTION, complaints_about, solved
from test_torch_functions import engine  # noqa: F401 - a fixture

torch = pytest.importorskip("torch")

import hoyer  # noqa: E402
from hoyer.families.torch import engines  # noqa: E402
from hoyer.paper import problems  # noqa: E402

torch.set_num_threads(1)

DTYPES = ("float64", "float32", "float16")
CASES = [(dtype, category) for dtype in DTYPES for category in COLLECTION[dtype]]
each_category = pytest.mark.parametrize(("dtype", "category"), CASES)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


def project(x, **arguments):
    return hoyer.project(torch.from_numpy(np.array(x)), **arguments).numpy()


@each_category
@both_sets
def test_what_is_promised(engine, dtype, category, nonnegative, largest):  # noqa: F811
    wrong, worst = [], 0.0
    for problem, exact in solved(dtype, category, nonnegative):
        value = project(problem.x, nonnegative=nonnegative, **problem.target)
        complaints, error = complaints_about(value, exact, dtype, category == "in D")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst = max(worst, error)
    largest(f"error in eps: collection, tensors, {engine}, {dtype}", worst)
    assert not wrong, "\n".join(wrong)


@each_category
def test_how_it_was_found(dtype, category, monkeypatch):
    """The plain search says the same about its results as the core does."""
    wrong = []
    for problem in COLLECTION[dtype][category]:
        for nonnegative in (False, True):
            options = {"nonnegative": nonnegative, **problem.target}
            expected = hoyer.solve(problem.x, **options)
            with monkeypatch.context() as patch:
                patch.setattr(engines, "core", None)
                found = hoyer.solve(torch.from_numpy(problem.x.copy()), **options)
            for name in ("l1", "l2"):
                a, b = float(getattr(found, name)), float(getattr(expected, name))
                if not math.isclose(a, b, rel_tol=1e-12):
                    wrong.append(f"{problem.name}: {name} {a} not {b}")
            if category == "in D":
                continue  # a whole plateau lies at alpha itself, within rounding
            if bool(found.unique) != bool(expected.unique):
                wrong.append(f"{problem.name}: unique {found.unique}")
            if (float(found.scale) == 0) != (float(expected.scale) == 0):
                wrong.append(f"{problem.name}: scale {found.scale} not {expected.scale}")
            if 1e-290 < float(expected.scale) < 1e290 and not math.isclose(
                float(found.scale), float(expected.scale), rel_tol=1e-8
            ):
                wrong.append(f"{problem.name}: scale {found.scale} not {expected.scale}")
            noise = np.count_nonzero((found.value.numpy() == 0) != (expected.value == 0))
            if (
                abs(int(found.support_size) - int(expected.support_size)) > noise
                and dtype != "float16"
            ):
                wrong.append(f"{problem.name}: support {found.support_size}")
    assert not wrong, "\n".join(wrong)


@each_category
def test_only_increase(dtype, category, monkeypatch):
    monkeypatch.setattr(engines, "core", None)
    wrong = []
    for problem in COLLECTION[dtype][category]:
        for nonnegative in (False, True) if problem.x.size <= 300 else ():
            options = {**problem.target, "nonnegative": nonnegative, "only_increase": True}
            exact = exact_projection(problem.x, **options)
            if any(abs(entry) > float(np.finfo(dtype).max) for entry in exact.value):
                continue
            complaints, _ = complaints_about(
                project(problem.x, **options), exact, dtype, category == "in D"
            )
            wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@each_category
@both_sets
def test_projecting_again_moves_nothing(dtype, category, nonnegative, monkeypatch):
    monkeypatch.setattr(engines, "core", None)
    wrong = []
    eps = float(np.finfo(dtype).eps)
    for problem in COLLECTION[dtype][category]:
        options = {**problem.target, "nonnegative": nonnegative}
        once = project(problem.x, **options)
        twice = project(once, **options)
        unit = max(eps * float(np.abs(once).max()), float(np.finfo(dtype).smallest_subnormal))
        moved = np.abs(twice.astype(np.float64) - once.astype(np.float64)).max() / unit
        if not moved <= 8:
            wrong.append(f"{problem.name}: moved by {moved:.3g} eps")
        revived = float(np.abs(twice[once == 0]).max(initial=0)) / unit
        # Where K is a rounding error from the number of nonzero entries accuracy wins.
        if revived > (1 if category in ("near-ties", "end of range") else 0):
            wrong.append(f"{problem.name}: a zero became {revived:.3g} eps")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("category", COLLECTION["float32"])
@both_sets
def test_bfloat16(engine, category, nonnegative):  # noqa: F811
    """Correctly rounded, but that the core, which has no such type, works in float32."""
    wrong = []
    for problem in COLLECTION["float32"][category]:
        x = torch.from_numpy(problem.x.copy()).bfloat16()
        if not x.isfinite().all():
            continue
        exact = exact_projection(x.double().numpy(), nonnegative=nonnegative, **problem.target)
        found = hoyer.project(x, nonnegative=nonnegative, **problem.target)
        assert found.dtype == torch.bfloat16
        noise = 4 * (torch.finfo(x.dtype).eps if category == "in D" else 2.0**-23)
        off = _beyond_rounding(found.double().tolist(), exact.value)
        if not off <= noise:
            wrong.append(f"{problem.name}: off by {off:.3g} of the largest entry beyond rounding")
    assert not wrong, "\n".join(wrong)


class Zeros:
    """Zeros of vectors that are in D already, up to rounding: they stay zero, for every engine.

    Engines are chosen by the class that inherits from this one.
    """

    device = "cpu"
    rows, lengths = 60, (2, 3, 5, 7, 16, 33, 100, 200)

    def again(self, x, sparseness, **options):
        """Project twice; return the first result, and which zeros of it were revived."""
        once = hoyer.project(x.to(self.device), sparseness, **options)
        twice = hoyer.project(once, sparseness, **options)
        moved = (twice.double() - once.double()).abs().max() / once.double().abs().max()
        assert moved <= 8 * torch.finfo(x.dtype).eps
        return once, (once == 0) & (twice != 0)

    def test_two_of_a_hundred_doubles(self):
        x = torch.zeros(100, dtype=torch.float64)
        x[:2] = torch.tensor([56.41680982005, 96.51702216166707], dtype=x.dtype)
        once, revived = self.again(x, 0.989)
        assert (once == 0).sum() == 98
        assert not revived.any()

    def test_two_entries_next_to_one_hot(self):
        for entries in ([3.0, 4.0], [0.0, 4.0], [-0.0, -1e-300]):
            x = torch.tensor(entries, dtype=torch.float64)
            once, revived = self.again(x, 1 - 1e-16)
            assert not revived.any()
            assert once[x.to(self.device) == 0].tolist() == [0.0] * int((x == 0).sum())

    def test_what_is_noise_in_bfloat16(self):
        """Zeros would get 8.6e-4, which is the rounding of the norms of such a vector."""
        x = torch.tensor([0, -1.5, 1.5, 0.5, -1, -0.0, 1], dtype=torch.bfloat16)
        exact = exact_projection(x.double().numpy(), sparseness=0.32)
        found = hoyer.solve(x.to(self.device), 0.32)
        for value in (found.value, hoyer.project(x.to(self.device), 0.32)):
            assert torch.equal(value.cpu() == 0, x == 0)
            others = [(a, b) for a, b in zip(value.tolist(), exact.value, strict=True) if a]
            assert _beyond_rounding(*zip(*others, strict=True)) <= 2.0**-21
        assert (int(found.support_size), bool(found.unique), float(found.shift)) == (5, True, 0.0)
        assert math.isclose(float(found.scale), float(exact.scale), rel_tol=1e-12)

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_zeros_receive_what_is_no_noise(self, dtype, rng):
        """Just below the limit they stay, just above it they do not."""
        kind, n = getattr(torch, dtype), 12
        eps = torch.finfo(kind).eps * (1 if dtype.endswith("16") else 4)
        x = torch.from_numpy(rng.uniform(1, 2, size=(20, n))).to(kind)
        x[:, ::3] = 0
        wide = x.double()
        own = wide.sum(-1) / wide.norm(dim=-1)
        for share in (0.5, 8.0):
            sigma = (math.sqrt(n) - own * (1 + share * eps)) / (math.sqrt(n) - 1)
            found = hoyer.project(x.to(self.device), sigma.to(self.device)).cpu()
            assert ((found != 0) == ((x != 0) | (share > 1))).all()

    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
    def test_random_vectors(self, dtype, rng):
        wrong = []
        for n in self.lengths:
            sigma = torch.from_numpy(rng.choice([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999], 999))
            for share in (1.0, 0.6, max(0.05, 2 / n)):
                x = rng.normal(size=(self.rows, n)) * (rng.random((self.rows, n)) <= share)
                x = np.round(3 * x) / 3 if share == 0.6 else x
                given = torch.from_numpy(x).to(getattr(torch, dtype))
                for options in ({}, {"nonnegative": True}, {"l2": "keep"}):
                    target = sigma[: self.rows].to(self.device)
                    _, revived = self.again(given, target, **options)
                    wrong += [f"{n}, {share}, {options}: {int(revived.sum())}"] * revived.any()
        assert not wrong, "\n".join(wrong)


class TestZeros(Zeros):
    @pytest.fixture(autouse=True)
    def chosen(self, engine):  # noqa: F811
        """The core, and plain tensor operations."""


NEGATIVE = {"nonnegative": True, "only_increase": True}
NEGATIVE_FORMS = (
    {"sparseness": 0.5},
    {"sparseness": 0.5, "l2": 2.5},
    {"sparseness": 0.5, "l1": 3.0},
    {"sparseness": 0.5, "l2": "keep"},
    {"sparseness": 0.5, "l2": "nearest"},
    {"l1": 1.5, "l2": 1.0},
    {"sparseness": 0.0},
    {"sparseness": 1.0},
)


class NothingPositive:
    """`only_increase` and `nonnegative`: one-hot is nearest to a vector without positive entries.

    Engines are chosen by the class that inherits from this one.
    """

    device = "cpu"
    vectors = ([-1.0, -2, -3, -4], [-3.0, 0, -1, -2], [-2.0, -1, -1, -5], [-1e-310, -1e308, 0, 0])

    def test_values_and_records(self):
        x = torch.tensor(self.vectors, dtype=torch.float64, device=self.device)
        for form in NEGATIVE_FORMS:
            found = hoyer.solve(x, **form, **NEGATIVE)
            for i, vector in enumerate(self.vectors):
                exact = exact_projection(vector, **form, **NEGATIVE)
                assert error_in_eps(found.value[i].cpu().numpy(), exact) <= 2
                assert math.isclose(float(found.l1[i]), float(exact.l1), rel_tol=1e-15)
                assert math.isclose(float(found.l2[i]), float(exact.l2), rel_tol=1e-15)
                assert int(found.support_size[i]) == exact.support_size
                assert bool(found.unique[i]) == exact.unique
                assert math.isnan(found.shift[i])
                assert found.scale[i] == 0
            value = hoyer.project(x, **form, **NEGATIVE)
            assert torch.equal(value, found.value)
        # A zero vector is projected, and so are others as before.
        x = torch.tensor([[0.0] * 4, [-1.0, 3, 2, -4]], dtype=torch.float64, device=self.device)
        found = hoyer.project(x, 0.5, **NEGATIVE)
        for value, vector in zip(found.cpu().numpy(), x.tolist(), strict=True):
            exact = exact_projection(vector, sparseness=0.5, **NEGATIVE)
            assert error_in_eps(value, exact) <= 8

    def test_derivatives(self, rng):
        x = torch.tensor(self.vectors[:3], dtype=torch.float64, device=self.device)
        y = torch.from_numpy(rng.normal(size=(3, 4))).to(self.device)
        size = x.norm(dim=-1, keepdim=True)
        for form in NEGATIVE_FORMS:
            watched = x.clone().requires_grad_()
            value = hoyer.project(watched, **form, **NEGATIVE)
            (found,) = torch.autograd.grad(value, watched, y)
            solved = hoyer.solve(x, **form, **NEGATIVE)
            p, dot = value.detach(), (value.detach() * y).sum(-1, keepdim=True)
            keeps = float(form.get("l2") == "keep")
            reverse, forward = dot * x / size**2, p * (x * y).sum(-1, keepdim=True) / size**2
            torch.testing.assert_close(found, keeps * reverse)
            torch.testing.assert_close(solved.vjp(y), keeps * reverse)
            torch.testing.assert_close(solved.jvp(y), keeps * forward)

    @pytest.mark.parametrize("name", ["l1", "l2"])
    def test_derivatives_by_the_norm(self, name, rng):
        x = torch.tensor(self.vectors[:3], dtype=torch.float64, device=self.device)
        y = torch.from_numpy(rng.normal(size=(3, 4))).to(self.device)
        norm = torch.tensor([1.5, 2.0, 2.5], dtype=torch.float64, device=self.device)
        sigma = torch.full_like(norm, 0.5).requires_grad_()
        norm.requires_grad_()
        value = hoyer.project(x, sigma, **{name: norm}, **NEGATIVE)
        by_norm, by_sigma = torch.autograd.grad(value, (norm, sigma), y)
        torch.testing.assert_close(by_norm, (value * y).sum(-1).detach() / norm.detach())
        assert (by_sigma == 0).all()


class TestNothingPositive(NothingPositive):
    @pytest.fixture(autouse=True)
    def chosen(self, engine):  # noqa: F811
        """The core, and plain tensor operations."""


def _beyond_rounding(values, exact):
    """By how much errors exceed half a unit in the last place, relative to the largest entry."""
    with mp.workprec(VALUE_PRECISION):
        worst, top = mp.mpf(0), max(abs(b) for b in exact)
        for a, b in zip(values, exact, strict=True):
            quantum = max(mpmath.ldexp(1, -133), mpmath.ldexp(1, mpmath.frexp(b)[1] - 8))
            worst = max(worst, abs(a - b) - quantum / 2)
        return float(worst / top) if top else float(worst)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_one_batch(engine, dtype):  # noqa: F811
    """Vectors of one length, stacked with their own targets, are projected as promised, too."""
    groups = {}
    for category in COLLECTION[dtype]:
        for problem, exact in solved(dtype, category, nonnegative=False):
            if set(problem.target) == {"sparseness"}:
                groups.setdefault(problem.x.size, []).append((problem, exact))
    wrong = []
    for group in groups.values():
        x = torch.from_numpy(np.stack([problem.x for problem, _ in group]))
        targets = torch.tensor([p.target["sparseness"] for p, _ in group], dtype=torch.float64)
        for (problem, exact), value in zip(group, hoyer.project(x, targets).numpy(), strict=True):
            complaints, _ = complaints_about(value, exact, dtype, problem.category == "in D")
            wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("category", COLLECTION["float64"])
def test_targets_that_no_host_looks_at(category, monkeypatch):
    """On a device targets are resolved there, in double-double as well: the same promise holds."""
    from hoyer.families.torch import targets

    monkeypatch.setattr(engines, "core", None)
    monkeypatch.setattr(targets, "on_host", lambda x: False)
    wrong = []
    for problem, exact in solved("float64", category, False):
        target = {
            name: torch.tensor(v, dtype=torch.float64) if isinstance(v, float) else v
            for name, v in problem.target.items()
        }
        value = hoyer.project(torch.from_numpy(problem.x.copy()), **target).numpy()
        complaints, _ = complaints_about(value, exact, "float64", category == "in D")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_million_entries(dtype, largest, monkeypatch):
    monkeypatch.setattr(engines, "core", None)
    wrong, worst = [], 0.0
    for problem in problems.collection(dtype, large=True):
        if problem.category != "large":
            continue
        exact = longdouble_projection(problem.x, **problem.target)
        value = project(problem.x, **problem.target)
        complaints, _ = complaints_about(value, exact, dtype)
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst = max(worst, error_in_eps(value, exact))
    largest(f"error in eps: n = 2**20, tensors, plain, {dtype}", worst)
    assert not wrong, "\n".join(wrong)
