"""What is promised (32 eps, supports, norms, counts), on every input of the collection."""

import functools
import math

import numpy as np
import pytest
from reference import (
    correctly_rounded,
    error_in_eps,
    exact_projection,
    longdouble_projection,
    norm_errors_in_eps,
    support_mismatch,
)

import hoyer
from hoyer.paper import problems

BOUND = 32
MOST_EVALUATIONS = 64
DTYPES = ("float64", "float32", "float16")
PAPER_SOLVERS = ("bisection", "newton", "newton_sqr", "halley")


def by_category(dtype):
    groups = {}
    for problem in problems.collection(dtype):
        groups.setdefault(problem.category, []).append(problem)
    return groups


COLLECTION = {dtype: by_category(dtype) for dtype in DTYPES}
CASES = [(dtype, category) for dtype in DTYPES for category in COLLECTION[dtype]]

each_category = pytest.mark.parametrize(("dtype", "category"), CASES)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


@functools.cache
def solved(dtype, category, nonnegative):
    """The problems of a category, each with its exact projection."""
    return [
        (problem, exact_projection(problem.x, nonnegative=nonnegative, **problem.target))
        for problem in COLLECTION[dtype][category]
    ]


def complaints_about(value, exact, dtype, reprojected=False):
    """What is wrong with a result: a list of sentences, and the error in eps."""
    found = []
    error = error_in_eps(value, exact)
    if value.dtype != dtype:
        found.append(f"dtype {value.dtype}")
    if dtype == "float16":
        if not (correctly_rounded(value, exact) or (reprojected and error <= 4)):
            found.append(f"not correctly rounded: off by {error:.3g} eps")
    else:
        if not error <= BOUND:
            found.append(f"off by {error:.3g} eps")
        norm1, norm2 = norm_errors_in_eps(value, exact)
        if not max(norm1, norm2) <= BOUND:
            found.append(f"norms off by {norm1:.3g} and {norm2:.3g} eps")
        mismatch = support_mismatch(value, exact)
        if not mismatch <= BOUND:
            found.append(f"supports differ by an entry of {mismatch:.3g} eps")
    return found, error


@each_category
@both_sets
def test_what_is_promised(dtype, category, nonnegative, largest):
    wrong, worst, most = [], 0.0, 0
    for problem, exact in solved(dtype, category, nonnegative):
        found = hoyer.solve(problem.x, nonnegative=nonnegative, **problem.target)
        complaints, error = complaints_about(found.value, exact, dtype, category == "in D")
        if found.evaluations > MOST_EVALUATIONS:
            complaints.append(f"{found.evaluations} evaluations")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst, most = max(worst, error), max(most, int(found.evaluations))
    largest(f"error in eps: collection, auto, {dtype}", worst)
    largest(f"evaluations: collection, auto, {dtype}", most)
    assert not wrong, "\n".join(wrong)


@each_category
@both_sets
def test_how_it_was_found(dtype, category, nonnegative):
    """alpha, beta, d, uniqueness and the norms agree with the exact ones."""
    wrong = []
    for problem, exact in solved(dtype, category, nonnegative):
        found = hoyer.solve(problem.x, nonnegative=nonnegative, **problem.target)

        def check(right, *what, name=problem.name):
            if not right:
                wrong.append(" ".join(map(str, (name, *what))))

        for name in ("l1", "l2"):
            norm, wanted = float(getattr(found, name)), float(getattr(exact, name))
            check(math.isclose(norm, wanted, rel_tol=1e-12), name, norm, "not", wanted)
        if exact.l2 == 0:
            continue
        if category == "in D" and not nonnegative and exact.scale is not None:
            # Rounded outputs: the exact answer may give zeros an eps; here they are to stay zero.
            chosen = np.any((problem.x == 0) & (found.value != 0))
            check(bool(found.unique) is not bool(chosen), "unique", found.unique)
        else:
            check(bool(found.unique) is exact.unique, "unique", found.unique)
        if 0 < problem.target.get("sparseness", 1) < 1e-30:
            continue  # no double-double tells it from zero, where there is no alpha
        if exact.scale is None:
            check(found.scale == 0 and math.isnan(found.shift), "scale", found.scale, found.shift)
            continue
        if category != "in D":  # there a whole plateau lies at alpha itself, within rounding
            mismatch = support_mismatch(found.value, exact)
            check(
                found.support_size == exact.support_size or mismatch > 0 or dtype == "float16",
                "support",
                found.support_size,
                "not",
                exact.support_size,
            )
        if 1e-300 < exact.scale < 1e300:
            rel = 1e-8 if category != "in D" else 1e-2
            check(
                math.isclose(found.scale, exact.scale, rel_tol=rel),
                f"scale {found.scale} not {float(exact.scale)}",
            )
            unit = max(abs(entry) for entry in exact.value)
            reach = max(abs(float(exact.shift)) / float(exact.scale), float(unit))
            off = abs(float(found.shift) - float(exact.shift)) / float(exact.scale)
            check(off <= rel * reach, f"shift {found.shift} not {float(exact.shift)}")
    assert not wrong, "\n".join(wrong)


@each_category
@both_sets
def test_every_solver_ends_with_the_same_result(dtype, category, nonnegative, largest):
    wrong, worst, most = [], 0.0, 0
    for problem, exact in solved(dtype, category, nonnegative):
        judged = {}  # most solvers agree to the last bit: judge a result once
        for solver in PAPER_SOLVERS:
            options = {"nonnegative": nonnegative, "solver": solver}
            found = hoyer.solve(problem.x, **problem.target, **options)
            bits = found.value.tobytes()
            if bits not in judged:
                judged[bits] = complaints_about(found.value, exact, dtype, category == "in D")
            complaints, error = judged[bits]
            wrong += [f"{solver}, {problem.name}: {complaint}" for complaint in complaints]
            if found.evaluations > 200 + MOST_EVALUATIONS:
                wrong.append(f"{solver}, {problem.name}: {found.evaluations} evaluations")
            worst, most = max(worst, error), max(most, int(found.evaluations))
    largest(f"error in eps: collection, the paper's solvers, {dtype}", worst)
    largest(f"evaluations: collection, the paper's solvers, {dtype}", most)
    assert not wrong, "\n".join(wrong)


@each_category
@both_sets
def test_projecting_again_moves_nothing(dtype, category, nonnegative, largest):
    """Zeros stay zero, nothing moves beyond rounding, nothing becomes NaN."""
    wrong, worst = [], 0.0
    eps = float(np.finfo(dtype).eps)
    for problem in COLLECTION[dtype][category]:
        options = {**problem.target, "nonnegative": nonnegative}
        once = hoyer.project(problem.x, **options)
        twice = hoyer.project(once, **options)
        top = float(np.abs(once).max())
        # Among the subnormals of a kept norm an eps is less than the distance of two numbers.
        eps_top = max(eps * top, float(np.finfo(dtype).smallest_subnormal))
        moved = np.abs(twice.astype(np.float64) - once.astype(np.float64)).max() / eps_top
        if not moved <= 8:
            wrong.append(f"{problem.name}: moved by {moved:.3g} eps")
        if twice[once == 0].any():
            revived = np.abs(twice[once == 0]).max() / eps_top
            wrong.append(f"{problem.name}: a zero became {revived:.3g} eps")
        worst = max(worst, moved)
    largest(f"error in eps: projected again, auto, {dtype}", worst)
    assert not wrong, "\n".join(wrong)


@each_category
def test_only_increase(dtype, category):
    wrong = []
    for problem in COLLECTION[dtype][category]:
        for nonnegative in (False, True) if problem.x.size <= 300 else ():
            options = {**problem.target, "nonnegative": nonnegative, "only_increase": True}
            exact = exact_projection(problem.x, **options)
            if any(abs(entry) > float(np.finfo(dtype).max) for entry in exact.value):
                continue
            value = hoyer.project(problem.x, **options)
            # On the boundary x is in D itself, and to keep it or to project it is the same.
            complaints, _ = complaints_about(value, exact, dtype, category == "in D")
            wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_as_one_batch(dtype):
    """Vectors of one length, stacked with their own targets, are projected as promised, too."""
    groups = {}
    for category in COLLECTION[dtype]:
        for problem, exact in solved(dtype, category, nonnegative=False):
            if set(problem.target) == {"sparseness"}:
                groups.setdefault(problem.x.size, []).append((problem, exact))
    wrong = []
    for group in groups.values():
        x = np.stack([problem.x for problem, _ in group])
        targets = np.array([problem.target["sparseness"] for problem, _ in group])
        batch = hoyer.solve(x, targets)
        assert (batch.evaluations <= MOST_EVALUATIONS).all()
        for (problem, exact), value in zip(group, batch.value, strict=True):
            complaints, _ = complaints_about(value, exact, dtype, problem.category == "in D")
            wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("dtype", "nonnegative"), [("float64", False), ("float64", True), ("float32", False)]
)
def test_a_million_entries(dtype, nonnegative, largest):
    wrong, worst, most = [], 0.0, 0
    for problem in problems.collection(dtype, large=True):
        if problem.category != "large":
            continue
        exact = longdouble_projection(problem.x, nonnegative=nonnegative, **problem.target)
        found = hoyer.solve(problem.x, nonnegative=nonnegative, **problem.target)
        complaints, error = complaints_about(found.value, exact, dtype)
        if found.evaluations > MOST_EVALUATIONS:
            complaints.append(f"{found.evaluations} evaluations")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst, most = max(worst, error), max(most, int(found.evaluations))
    largest(f"error in eps: n = 2**20, auto, {dtype}", worst)
    largest(f"evaluations: n = 2**20, auto, {dtype}", most)
    assert most > 0
    assert not wrong, "\n".join(wrong)


def test_a_million_float16_entries():
    for problem in problems.collection("float16", large=True):
        if problem.category == "large" and problem.target["sparseness"] == 0.9:
            wide = longdouble_projection(problem.x, **problem.target)
            value = hoyer.project(problem.x, **problem.target)
            expected = wide.value.astype(np.float16)
            apart = np.abs(value.astype(np.float64) - expected.astype(np.float64))
            smallest = float(np.finfo(np.float16).smallest_subnormal)
            # A long double is rounded twice here: a tie between two halves may go the other way.
            assert np.count_nonzero(apart > smallest) <= 2, problem.name
            assert error_in_eps(value, wide) <= 1, problem.name


def test_a_long_geometric_family_ends_quickly():
    """x_i = -2**-i, i = -1000 ... 999: every scale at once."""
    x = -np.exp2(-np.arange(-1000.0, 1000.0))
    for sparseness in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        for nonnegative in (False, True):
            found = hoyer.solve(x, sparseness, nonnegative=nonnegative)
            assert found.evaluations <= MOST_EVALUATIONS
            exact = exact_projection(x, sparseness=sparseness, nonnegative=nonnegative)
            assert error_in_eps(found.value, exact) <= BOUND
