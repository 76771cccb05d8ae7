"""What is promised (32 eps, supports, norms, counts), on every input of the collection.

By every engine, and every vector twice: alone with numbers for targets, and in a batch of those of
its length, each with a target of its own. Engines that take milliseconds for a call are asked for
all in batches, and for one vector of every category alone.
"""

import functools
import math

import mpmath
import numpy as np
import pytest
from engines import BOUND, EPS, SMALLEST, Bfloat16, typed
from mpmath import mp
from reference import (
    VALUE_PRECISION,
    correctly_rounded,
    error_in_eps,
    exact_projection,
    longdouble_projection,
    needs_long_double,
    norm_errors_in_eps,
    support_mismatch,
)

import hoyer
from hoyer.paper import problems

DTYPES = ("float64", "float32", "float16", "bfloat16")
PAPER_SOLVERS = ("bisection", "newton", "newton_sqr", "halley")
MOST_BY_THE_PAPER = 264
PARTS = {"to 10": (2, 10), "13 to 31": (13, 31), "40 to 300": (40, 300), "from 500": (500, 10**9)}
"""Lengths of vectors."""
SETS = {
    "signed": {"nonnegative": False},
    "nonnegative": {"nonnegative": True},
    "signed, only increase": {"nonnegative": False, "only_increase": True},
    "nonnegative, only increase": {"nonnegative": True, "only_increase": True},
}

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_part = pytest.mark.parametrize("part", PARTS)
each_set = pytest.mark.parametrize("chosen", SETS)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


@functools.cache
def collection(dtype):
    """The problems; those of bfloat16 are those of float32, as far as they fit."""
    if dtype != "bfloat16":
        return problems.collection(dtype)
    return [
        problem._replace(x=rounded)
        for problem in problems.collection("float32")
        if np.isfinite(rounded := typed(problem.x, "bfloat16")).all()
    ]


@functools.cache
def exact_for(dtype, number, chosen):
    problem = collection(dtype)[number]
    return exact_projection(np.asarray(problem.x), **SETS[chosen], **problem.target)


def numbers_of(dtype, part, chosen):
    """Which problems of the collection have these lengths, and ask for something of this set."""
    shortest, longest = PARTS[part]
    if "only" in chosen:
        longest = min(longest, 300)
    for number, problem in enumerate(collection(dtype)):
        if not shortest <= problem.x.size <= longest:
            continue
        if "only" in chosen:
            exact = exact_for(dtype, number, chosen)
            # A kept direction may have a norm that the type cannot hold.
            largest = 2.0**127 if dtype == "bfloat16" else float(np.finfo(dtype).max)
            if any(abs(entry) > largest for entry in exact.value):
                continue
        yield number


def batches(dtype, part, chosen, every=True):
    """Yield problems that one call solves: their numbers, vectors and targets.

    Of vectors without negative entries the two sets ask for the same: not every one is needed.
    """
    groups = {}
    for number in numbers_of(dtype, part, chosen):
        problem = collection(dtype)[number]
        if not every and SETS[chosen]["nonnegative"] and not (problem.x < 0).any():
            continue
        form = tuple((k, v if isinstance(v, str) else None) for k, v in problem.target.items())
        groups.setdefault((problem.x.size, form), []).append(number)
    for (_, form), numbers in groups.items():
        some = [collection(dtype)[number] for number in numbers]
        target = {
            name: word or np.array([float(problem.target[name]) for problem in some])
            for name, word in form
        }
        x = np.stack([problem.x for problem in some])
        yield numbers, x.view(Bfloat16) if dtype == "bfloat16" else x, target


def complaints_about(value, exact, dtype, reprojected=False, once=True):
    """What is wrong with a result: a list of sentences, and the error in eps."""
    found = []
    error = error_in_eps(value, exact) * float(np.finfo(value.dtype).eps) / EPS[dtype]
    if dtype == "bfloat16" or (dtype == "float16" and not once):
        # One rounding, of numbers that are right to a few eps of float32.
        off = beyond_rounding(value, exact, dtype)
        if not off <= 4 * (EPS[dtype] if reprojected else 2.0**-23):
            found.append(f"off by {off:.3g} of the largest entry beyond rounding")
    elif dtype == "float16":
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


def beyond_rounding(value, exact, dtype):
    """By how much errors exceed half a unit in the last place, relative to the largest entry."""
    digits = -round(math.log2(EPS[dtype]))
    with mp.workprec(VALUE_PRECISION):
        worst, top = mp.mpf(0), max(abs(b) for b in exact.value)
        for a, b in zip(value.tolist(), exact.value, strict=True):
            quantum = max(SMALLEST[dtype], mpmath.ldexp(1, mpmath.frexp(b)[1] - 1 - digits))
            worst = max(worst, abs(a - b) - quantum / 2)
        return float(worst / top) if top else float(worst)


@functools.cache
def judged(dtype, number, chosen, bits, once):
    """What is wrong with these bits: most engines find the same ones."""
    value = np.frombuffer(bits, np.float32 if dtype == "bfloat16" else dtype)
    in_d = collection(dtype)[number].category == "in D"
    return complaints_about(value, exact_for(dtype, number, chosen), dtype, in_d, once)


RECORD = ("l1", "l2", "unique", "scale", "shift", "support_size", "evaluations")


def complaints_about_record(problem, exact, value, told, *, signed, most):
    """alpha, beta, d, uniqueness and the norms agree with the exact ones."""
    complaints = [
        f"{name} {told[name]} not {float(getattr(exact, name))}"
        for name in ("l1", "l2")
        if not math.isclose(told[name], float(getattr(exact, name)), rel_tol=1e-12)
    ]
    if not told["evaluations"] <= most:
        complaints.append(f"{told['evaluations']} evaluations")
    if exact.l2 == 0:
        return complaints
    in_d = problem.category == "in D"
    unique = exact.unique
    if in_d and signed and exact.scale is not None:
        # Rounded outputs: the exact answer may give zeros an eps; here they are to stay zero.
        unique = not np.any((problem.x == 0) & (value != 0))
    if bool(told["unique"]) is not bool(unique):
        complaints.append(f"unique {told['unique']}")
    if 0 < problem.target.get("sparseness", 1) < 1e-30:
        return complaints  # no double-double tells it from zero, where there is no alpha
    if exact.scale is None:
        if not (told["scale"] == 0 and math.isnan(told["shift"])):
            complaints.append(f"scale {told['scale']}, shift {told['shift']}")
        return complaints
    # In D a whole plateau lies at alpha itself, within rounding; halves lose entries to it.
    exactly = not in_d and value.dtype != np.float16 and not isinstance(value, Bfloat16)
    if exactly and told["support_size"] != exact.support_size:
        complaints += ["wrong support_size"] * (support_mismatch(value, exact) == 0)
    if 1e-300 < exact.scale < 1e300:
        rel = 1e-2 if in_d else 1e-8
        scale, shift = float(exact.scale), float(exact.shift)
        if not math.isclose(told["scale"], scale, rel_tol=rel):
            complaints.append(f"scale {told['scale']} not {scale}")
        reach = max(abs(shift) / scale, float(max(abs(entry) for entry in exact.value)))
        if not abs(told["shift"] - shift) / scale <= rel * reach:
            complaints.append(f"shift {told['shift']} not {shift}")
    return complaints


def complaints_about_moving(engine, problem, once, twice, dtype):
    """What is wrong with the projection of a projection."""
    zero = once == 0
    once, twice = once.astype(np.float64), twice.astype(np.float64)
    # Among the subnormals of a kept norm an eps is less than the distance of two numbers.
    unit = max(EPS[dtype] * np.abs(once).max(), SMALLEST[dtype])
    moved, revived = np.abs(twice - once).max() / unit, np.abs(twice[zero]).max(initial=0) / unit
    complaints = [] if moved <= 8 else [f"moved by {moved:.3g} eps"]
    # Where K is a rounding error from the number of nonzero entries accuracy may win.
    if revived > (1 if problem.category in engine.revives else 0):
        complaints.append(f"a zero became {revived:.3g} eps")
    return complaints, moved


def has_subnormals(x, exact, dtype):
    """Whether x, or the result, has entries below the normal numbers of the type."""
    least = SMALLEST[dtype] / EPS[dtype]
    sizes = np.abs(np.concatenate([np.asarray(x, float), np.array(exact.value, float)]))
    return bool(((sizes > 0) & (sizes < 2 * least)).any())


class Verdict:
    """What is wrong with the answers of an engine, and the largest numbers seen."""

    def __init__(self, engine, dtype, chosen, largest):
        self.engine, self.dtype, self.chosen, self.largest = engine, dtype, chosen, largest
        self.wrong = []

    def judge(self, number, quick, value, told=None, again=()):
        """A result of project, that of solve with its record, and those results projected again."""
        problem, exact = collection(self.dtype)[number], exact_for(self.dtype, number, self.chosen)
        engine, dtype = self.engine, self.dtype
        if engine.flushes_subnormals and has_subnormals(problem.x, exact, dtype):
            return
        for result in (quick, value):
            assert result.dtype == (np.float32 if dtype == "bfloat16" else dtype)
        complaints = []
        for bits in {quick.tobytes(), value.tobytes()}:
            about, error = judged(dtype, number, self.chosen, bits, engine.rounds_halves_once)
            complaints += about
            self.largest(f"error in eps: collection, {engine}, {dtype}", error)
        if told is not None and "only" not in self.chosen:
            complaints += complaints_about_record(
                problem,
                exact,
                value,
                told,
                signed=self.chosen == "signed",
                most=engine.most_evaluations,
            )
            self.largest(f"evaluations: collection, {engine}, {dtype}", told["evaluations"])
            for twice in again:
                about, moved = complaints_about_moving(engine, problem, value, twice, dtype)
                complaints += about
                self.largest(f"error in eps: projected again, {engine}, {dtype}", moved)
        self.wrong += [f"{problem.name}: {complaint}" for complaint in complaints]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        assert kind or not self.wrong, "\n".join(self.wrong)


def told_by(found):
    return {name: getattr(found, name) for name in RECORD}


@each_dtype
@each_part
@each_set
def test_in_batches(engine, dtype, part, chosen, largest):
    options = SETS[chosen]
    if engine.is_costly and "only" in chosen and dtype != "float64":
        pytest.skip("asked of doubles alone")
    with Verdict(engine, dtype, chosen, largest) as verdict:
        for numbers, x, target in batches(dtype, part, chosen, every=engine.is_fast):
            if engine.is_costly and (chosen != "signed" or "16" in dtype):
                ask = engine.project if "only" not in chosen else solved_by(engine)
                for number, value in zip(numbers, ask(x, **options, **target), strict=True):
                    verdict.judge(number, value, value)
                continue
            found = engine.solve(x, **options, **target)
            told, value, quick = told_by(found), found.value, found.value
            again = [engine.project(value, **options, **target)]
            if engine.has_two_ways:
                quick = engine.project(x, **options, **target)
                again.append(solved_by(engine)(value, **options, **target))
            for i, number in enumerate(numbers):
                record = {name: field[i] for name, field in told.items()}
                verdict.judge(number, quick[i], value[i], record, [a[i] for a in again])


def solved_by(engine):
    """What `solve` finds, whose way need not be that of `project`."""
    return lambda *arguments, **options: engine.solve(*arguments, **options).value


def is_first(dtype, number):
    """Whether the problem is the first of its category."""
    earlier = collection(dtype)[:number]
    return all(other.category != collection(dtype)[number].category for other in earlier)


@each_dtype
@each_part
@each_set
def test_alone(engine, dtype, part, chosen, largest):
    options = SETS[chosen]
    if (not engine.is_fast and chosen != "signed") or (engine.is_costly and "16" in dtype):
        pytest.skip("the way of a single vector is that of many")
    with Verdict(engine, dtype, chosen, largest) as verdict:
        for number in numbers_of(dtype, part, chosen):
            problem = collection(dtype)[number]
            if not engine.is_fast and not is_first(dtype, number):
                continue
            found = engine.solve(problem.x, **options, **problem.target)
            quick = engine.project(problem.x, **options, **problem.target)
            again = [engine.project(found.value, **options, **problem.target)]
            verdict.judge(number, quick, found.value, told_by(found), again)


@pytest.mark.parametrize("dtype", DTYPES[:3])
@each_part
@both_sets
def test_every_solver_ends_with_the_same_result(dtype, part, nonnegative, largest):
    chosen = "nonnegative" if nonnegative else "signed"
    wrong, worst, most = [], 0.0, 0
    for number in numbers_of(dtype, part, chosen):
        problem, exact = collection(dtype)[number], exact_for(dtype, number, chosen)
        judged = {}  # most solvers agree to the last bit: judge a result once
        for solver in PAPER_SOLVERS:
            options = {"nonnegative": nonnegative, "solver": solver}
            found = hoyer.solve(problem.x, **problem.target, **options)
            bits = found.value.tobytes()
            if bits not in judged:
                in_d = problem.category == "in D"
                judged[bits] = complaints_about(found.value, exact, dtype, in_d)
            complaints, error = judged[bits]
            wrong += [f"{solver}, {problem.name}: {complaint}" for complaint in complaints]
            if found.evaluations > MOST_BY_THE_PAPER:
                wrong.append(f"{solver}, {problem.name}: {found.evaluations} evaluations")
            worst, most = max(worst, error), max(most, int(found.evaluations))
    largest(f"error in eps: collection, the paper's solvers, {dtype}", worst)
    largest(f"evaluations: collection, the paper's solvers, {dtype}", most)
    assert not wrong, "\n".join(wrong)


@pytest.mark.engines("torch/arrays")
@each_part
def test_targets_that_no_host_looks_at(engine, part, monkeypatch):
    """On a device targets are resolved there, in double-double as well: the same promise holds."""
    from hoyer.families.torch import targets

    monkeypatch.setattr(targets, "on_host", lambda x: False)
    wrong = []
    for numbers, x, target in batches("float64", part, "signed"):
        for number, value in zip(numbers, engine.project(x, **target), strict=True):
            problem, exact = collection("float64")[number], exact_for("float64", number, "signed")
            complaints, _ = complaints_about(value, exact, "float64", problem.category == "in D")
            wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


@needs_long_double
@pytest.mark.engines("numpy/core", slow=["torch/arrays"])
@pytest.mark.parametrize(
    ("dtype", "nonnegative"), [("float64", False), ("float64", True), ("float32", False)]
)
def test_a_million_entries(engine, dtype, nonnegative, largest):
    wrong, worst, most = [], 0.0, 0
    for problem in problems.collection(dtype, large=True):
        if problem.category != "large":
            continue
        exact = longdouble_projection(problem.x, nonnegative=nonnegative, **problem.target)
        found = engine.solve(problem.x, nonnegative=nonnegative, **problem.target)
        complaints, error = complaints_about(found.value, exact, dtype)
        if found.evaluations > engine.most_evaluations:
            complaints.append(f"{found.evaluations} evaluations")
        wrong += [f"{problem.name}: {complaint}" for complaint in complaints]
        worst, most = max(worst, error), max(most, int(found.evaluations))
    largest(f"error in eps: n = 2**20, {engine}, {dtype}", worst)
    largest(f"evaluations: n = 2**20, {engine}, {dtype}", most)
    assert most > 0
    assert not wrong, "\n".join(wrong)


@needs_long_double
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


@both_sets
def test_a_long_geometric_family_ends_quickly(engine, nonnegative):
    """x_i = -2**-i, i = -1000 ... 999: every scale at once."""
    x = -np.exp2(-np.arange(-1000.0, 1000.0))
    targets = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    found = engine.solve(np.tile(x, (6, 1)), targets, nonnegative=nonnegative)
    assert (found.evaluations <= engine.most_evaluations).all()
    for sparseness, value in zip(targets.tolist(), found.value, strict=True):
        exact = exact_projection(x, sparseness=sparseness, nonnegative=nonnegative)
        assert error_in_eps(value, exact) <= BOUND
        if engine.is_fast:
            found = engine.solve(x, sparseness, nonnegative=nonnegative)
            assert found.evaluations <= engine.most_evaluations
            assert error_in_eps(found.value, exact) <= BOUND
