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
from hoyer.backends.torch import engines  # noqa: E402
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


def test_what_is_noise_in_bfloat16(engine):  # noqa: F811
    """Zeros that receive 8.6e-4 receive it: that is far above the noise of what was computed."""
    x = torch.tensor([0, -1.5, 1.5, 0.5, -1, -0.0, 1], dtype=torch.bfloat16)
    exact = exact_projection(x.double().numpy(), sparseness=0.32)
    found = hoyer.project(x, 0.32).double().tolist()
    assert min(abs(entry) for entry in found) > 8e-4
    assert _beyond_rounding(found, exact.value) <= 2.0**-21


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
    from hoyer.backends.torch import targets

    monkeypatch.setattr(engines, "core", None)
    on_device = targets._on_device
    monkeypatch.setattr(
        targets, "goal_for", lambda n, options, x, batch, wide: on_device(n, options, x, wide)
    )
    monkeypatch.setattr(engines.search, "goal_for", targets.goal_for)
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
