"""The other sets, and masks: simplex, L1 sphere, L1 ball, two balls, on every engine.

The promise is that of tests/test_collection.py, with other targets for the same vectors: each
problem of the collection asks every set for norms of another size against its own.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from engines import BOUND, EPS, FAMILIES, SMALLEST, Bfloat16, typed
from fuzz import oracle
from mpmath import mp
from reference import (
    VALUE_PRECISION,
    brute_force,
    exact_projection,
    norm_errors_in_eps,
    numeric_jvp,
    support_mismatch,
)
from test_collection import (
    DTYPES,
    RECORD,
    beyond_rounding,
    collection,
    has_subnormals,
    solved_by,
)

import hoyer

SETS = {
    "simplex": {"nonnegative": True},
    "L1 sphere": {},
    "L1 ball, nonnegative": {"at_most": True, "nonnegative": True},
    "L1 ball": {"at_most": True},
    "two balls, nonnegative": {"at_most": True, "nonnegative": True},
    "two balls": {"at_most": True},
}
CONVEX = tuple(name for name in SETS if name != "L1 sphere")
MASKED = (
    *SETS,
    "sparseness",
    "sparseness, nonnegative",
    "sparseness, l1",
    "sparseness, keep",
    "sparseness, nearest",
    "sparseness, only increase",
)
"""What masks go with: all there is."""
LONGEST = {"float64": 300, "float32": 128, "float16": 64, "bfloat16": 64}
"""Vectors of the collection that exact arithmetic is asked for."""
TOP = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0, "bfloat16": 3.38e38}

long_if_interpreted = pytest.mark.engines(*FAMILIES, slow=["torch/triton"])
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_set = pytest.mark.parametrize("chosen", SETS)
each_convex_set = pytest.mark.parametrize("chosen", CONVEX)


def switches(chosen):
    """The options of a set that are no numbers."""
    if chosen in SETS:
        return SETS[chosen]
    word = next((word for word in ("keep", "nearest") if word in chosen), None)
    return ({"l2": word} if word else {}) | {
        "nonnegative": "nonnegative" in chosen,
        "only_increase": "only" in chosen,
    }


# ---- what is asked of the collection ----


class Question:
    """A vector, the set it is projected onto, and what is right."""

    def __init__(self, name, x, chosen, target, where=None):
        self.name, self.x, self.chosen, self.target, self.where = name, x, chosen, target, where

    @functools.cached_property
    def exact(self):
        given = np.asarray(self.x, np.float64)
        given = given if self.where is None else np.where(self.where, given, 0)
        return exact_projection(given, **switches(self.chosen), **self.target, where=self.where)

    @property
    def counted(self):
        """The entries that count."""
        x = np.asarray(self.x, np.float64)
        return x if self.where is None else x[self.where]

    @functools.cached_property
    def fits(self):
        """Whether the type can hold what is right."""
        top = TOP["bfloat16" if isinstance(self.x, Bfloat16) else self.x.dtype.name]
        return all(abs(entry) <= top / 2 for entry in self.exact.value)


def norms_for(x, chosen, number, dtype):
    """Norms: 1, or some share of those of x, as far as the type has them."""
    y = np.maximum(x if switches(chosen).get("nonnegative") else np.abs(x), 0)
    top = float(y.max(initial=0)) or 1.0
    first, second = float((y / top).sum()), float(np.sqrt(np.square(y / top).sum()))
    unit = 1 / max(top, 1e-300)
    forms = (
        (unit, 0.6 * unit),
        (0.5 * first, 0.55 * second),
        (0.02 * first, 0.9 * second),
        (0.2 * first, 0.25 * second),
        (1.5 * first, 0.7 * second),
        (0.9 * first, 0.3 * second),
        (1e-6, 1e-5),
        (first, second),
        (1e6 * first, 2 * second),
        (0.97 * first, 0.99 * second),
        (0.8 * first, 0.9 * second),
    )
    least, most = SMALLEST[dtype] / EPS[dtype] ** 2, TOP[dtype] / 8
    l1, l2 = (
        min(max(norm * top if math.isfinite(norm * top) else most, least), most)
        for norm in forms[number % len(forms)]
    )
    return {"l1": l1, "l2": l2} if "two" in chosen else {"l1": l1}


def mask_for(n, number):
    """Seven of ten entries; sometimes one, or none."""
    rng = np.random.default_rng(number)
    where = rng.random(n) < 0.7
    if number % 11 == 0:
        where = np.arange(n) == rng.integers(n)
    return where & (number % 17 != 0)


def poisoned(x, where):
    """Whatever is masked may be anything."""
    x = x.copy()
    x[~where] = np.resize([np.nan, np.inf, -np.inf, 7.0], np.count_nonzero(~where))
    return x


@functools.cache
def questions(dtype, chosen, masked=False):
    """One for each problem of the collection that is not too long."""
    asked, step = [], (*SETS, *MASKED[len(SETS) :]).index(chosen)
    for number, problem in enumerate(collection(dtype)):
        if problem.x.size > LONGEST[dtype]:
            continue
        x, where = problem.x, None
        if masked:
            where = mask_for(x.size, number)
            x = poisoned(np.asarray(x), where)
            x = x.view(Bfloat16) if dtype == "bfloat16" else x
        counted = np.asarray(problem.x, np.float64)[... if where is None else where]
        if chosen in SETS:
            target = norms_for(counted, chosen, number + step, dtype)
        else:
            target = {"sparseness": float(problem.target.get("sparseness", 0.5))}
            target |= {"l1": 2.5} if "l1" in chosen else {}
        asked.append(Question(problem.name, x, chosen, target, where))
    return asked


def batches(dtype, chosen, masked=False):
    """Yield questions that one call answers, and what it is given."""
    groups = {}
    for question in questions(dtype, chosen, masked):
        if question.fits:
            groups.setdefault(question.x.size, []).append(question)
    for group in groups.values():
        x = np.stack([np.asarray(question.x) for question in group])
        options = {
            name: np.array([question.target[name] for question in group])
            for name in group[0].target
        }
        if masked:
            options["where"] = np.stack([question.where for question in group])
        yield group, x.view(Bfloat16) if dtype == "bfloat16" else x, options


# ---- what is promised ----


def error_beyond_subnormals(value, exact, dtype):
    """The largest error of an entry, in eps times the largest entry."""
    if not np.isfinite(value).all():
        return math.inf
    with mp.workprec(VALUE_PRECISION):
        pairs = zip(value.tolist(), exact.value, strict=True)
        error = max(abs(a - b) for a, b in pairs) - mp.mpf(SMALLEST[dtype])
        top = max(abs(entry) for entry in exact.value)
        if error <= 0:
            return 0.0
        return float(error / (EPS[dtype] * top)) if top else math.inf


def complaints_about(question, value, dtype, once):
    """What is wrong with a result: a list of sentences, and the error in eps."""
    exact, found = question.exact, []
    outside = ~question.where if question.where is not None else np.zeros(value.size, bool)
    if np.any(value[outside] != 0) or np.signbit(value[outside]).any():
        found.append("masked entries are not +0")
    error = error_beyond_subnormals(value, exact, dtype)
    kept = (question.x == 0) & (value == 0)
    if "16" in dtype:
        # One rounding, of numbers that are right to a few eps of float32; zeros may be kept.
        noise = 4 * (2.0**-23 if dtype == "bfloat16" or not once else 2.0**-40)
        off = beyond_rounding(value, exact, dtype) if error < math.inf else math.inf
        allowed = error <= 8 and any(
            keeps and wanted != 0 for keeps, wanted in zip(kept, exact.value, strict=True)
        )
        top = float(max(abs(entry) for entry in exact.value))
        if not (off <= noise + (SMALLEST[dtype] / top if top else 0) or allowed):
            found.append(f"off by {off:.3g} of the largest entry beyond rounding")
        return found, error
    if not error <= BOUND:
        found.append(f"off by {error:.3g} eps")
        return found, error
    if exact.l2 > 0 and float(exact.l2) > SMALLEST[dtype] / EPS[dtype] ** 2:
        for name, off in zip(("l1", "l2"), norm_errors_in_eps(value, exact), strict=True):
            if exact.active in (name, "both") and not off <= BOUND:
                found.append(f"{name} off by {off:.3g} eps")
        mismatch = support_mismatch(value, exact)
        if not mismatch <= BOUND:
            found.append(f"supports differ by an entry of {mismatch:.3g} eps")
    return found, error


def on_a_border(question):
    """Whether rounding decides which bound binds."""
    exact, target = question.exact, question.target

    def near(norm, bound):
        return bound is not None and math.isclose(float(norm), bound, rel_tol=1e-11)

    if exact.active == "none":
        return near(exact.l1, target["l1"]) or near(exact.l2, target.get("l2"))
    top = max(abs(question.counted), default=0)
    if exact.shift is not None and abs(float(exact.shift)) <= 1e-11 * top:
        return True
    return (near(exact.scale or 0, 1.0) and exact.active != "l1") or (
        exact.active == "l1" and near(exact.l2, target.get("l2"))
    )


def complaints_about_record(question, value, told, most):
    """alpha, beta, d, uniqueness, the norms and which of them bind agree with the exact ones."""
    exact = question.exact
    complaints = [
        f"{name} {told[name]} not {float(getattr(exact, name))}"
        for name in ("l1", "l2")
        if not math.isclose(told[name], float(getattr(exact, name)), rel_tol=1e-12, abs_tol=5e-324)
    ]
    if not told["evaluations"] <= most:
        complaints.append(f"{told['evaluations']} evaluations")
    zero = np.asarray(question.x) == 0
    unique = exact.unique or not np.any(zero & (value != 0))
    if bool(told["unique"]) is not bool(unique):
        complaints.append(f"unique {told['unique']}")
    if not question.counted.size:
        if (told["support_size"], told["scale"], told["active"]) != (0, 0, "none"):
            complaints.append(f"of no entry: {told}")
        return complaints
    if exact.l2 == 0:
        return complaints
    at_most = SETS[question.chosen].get("at_most", False)
    if told["active"] != exact.active:
        if at_most and on_a_border(question):
            # Shift, scale and support are those of the other case, which has the same values.
            return complaints
        complaints.append(f"active {told['active']} not {exact.active}")
    half = value.dtype == np.float16 or isinstance(question.x, Bfloat16)
    same = [entry != 0 for entry in exact.value] == (value != 0).tolist()
    if not half and same and told["support_size"] != exact.support_size:
        complaints.append("wrong support_size")
    if exact.scale is None:
        return complaints
    scale, shift = float(exact.scale), float(exact.shift)
    if not math.isclose(told["scale"], scale, rel_tol=1e-8):
        complaints.append(f"scale {told['scale']} not {scale}")
    reach = max(abs(shift), float(max(abs(entry) for entry in exact.value)) * scale)
    if not abs(told["shift"] - shift) <= 1e-8 * reach + 5e-324:
        complaints.append(f"shift {told['shift']} not {shift}")
    return complaints


def complaints_about_moving(once, twice, dtype):
    """What is wrong with the projection of a projection."""
    zero = once == 0
    once, twice = once.astype(np.float64), twice.astype(np.float64)
    unit = max(EPS[dtype] * np.abs(once).max(), SMALLEST[dtype])
    moved, revived = np.abs(twice - once).max() / unit, np.abs(twice[zero]).max(initial=0) / unit
    complaints = [] if moved <= 8 else [f"moved by {moved:.3g} eps"]
    return complaints + ([f"a zero became {revived:.3g} eps"] if revived else [])


class Verdict:
    """What is wrong with the answers of an engine, and the largest numbers seen."""

    def __init__(self, engine, dtype, chosen, largest):
        self.engine, self.dtype, self.largest = engine, dtype, largest
        self.what = f"{chosen}, {engine}, {dtype}"
        self.wrong = []

    def judge(self, question, value, told=None, again=None):
        engine = self.engine
        if engine.flushes_subnormals and has_subnormals(question.x, question.exact, self.dtype):
            return
        assert value.dtype == (np.float32 if self.dtype == "bfloat16" else self.dtype)
        complaints, error = complaints_about(
            question, value, self.dtype, self.engine.rounds_halves_once
        )
        self.largest(f"error in eps: {self.what}", error)
        if told is not None:
            complaints += complaints_about_record(
                question, value, told, self.engine.most_evaluations
            )
            self.largest(f"evaluations: {self.what}", told["evaluations"])
        if again is not None and not complaints:
            complaints += complaints_about_moving(value, again, self.dtype)
        self.wrong += [
            f"{question.name}, {question.target}: {complaint}" for complaint in complaints
        ]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        few, count = "\n".join(self.wrong[:12]), len(self.wrong)
        assert kind or not self.wrong, f"{count} complaints:\n{few}"


def told_by(found):
    return {name: getattr(found.native, name) for name in ("active",)} | {
        name: getattr(found, name) for name in RECORD
    }


def one_of(told, i):
    return {name: field[i] for name, field in told.items()}


# ---- the collection ----


@long_if_interpreted
@each_dtype
@each_set
def test_the_collection(engine, dtype, chosen, largest):
    options = switches(chosen)
    with Verdict(engine, dtype, chosen, largest) as verdict:
        for group, x, target in batches(dtype, chosen):
            if engine.is_costly and dtype != "float64":
                values = engine.project(x, **options, **target)
                for question, value in zip(group, values, strict=True):
                    verdict.judge(question, value)
                continue
            found = engine.solve(x, **options, **target)
            told, value = told_by(found), found.value
            quick = engine.project(x, **options, **target) if engine.has_two_ways else value
            again = engine.project(value, **options, **target)
            for i, question in enumerate(group):
                verdict.judge(question, value[i], one_of(told, i), again[i])
                if quick[i].tobytes() != value[i].tobytes():
                    verdict.judge(question, quick[i])


@long_if_interpreted
@each_dtype
@pytest.mark.parametrize("chosen", MASKED)
def test_the_collection_with_masks(engine, dtype, chosen, largest):
    options = switches(chosen)
    if engine.is_costly and dtype in ("float16", "float32"):
        pytest.skip("asked of the widest and the narrowest type")
    with Verdict(engine, dtype, f"{chosen}, masked", largest) as verdict:
        for group, x, target in batches(dtype, chosen, masked=True):
            if engine.is_costly and dtype != "float64":
                values = engine.project(x, **options, **target)
                for question, value in zip(group, values, strict=True):
                    verdict.judge(question, value)
                continue
            found = engine.solve(x, **options, **target)
            told, value = told_by(found), found.value
            quick = engine.project(x, **options, **target) if engine.has_two_ways else value
            for i, question in enumerate(group):
                verdict.judge(question, value[i], one_of(told, i) if chosen in SETS else None)
                if quick[i].tobytes() != value[i].tobytes():
                    verdict.judge(question, quick[i])


@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@each_set
def test_alone(engine, chosen, masked, largest):
    """Single vectors with numbers for targets, every few problems."""
    options, dtype = switches(chosen), "float64"
    with Verdict(engine, dtype, f"{chosen}, alone", largest) as verdict:
        some = [question for question in questions(dtype, chosen, masked) if question.fits]
        for question in some[:: 3 if engine.is_fast else 150 if engine.is_costly else 40]:
            target = question.target | ({"where": question.where} if masked else {})
            found = engine.solve(question.x, **options, **target)
            verdict.judge(question, found.value, told_by(found))
            verdict.judge(question, engine.project(question.x, **options, **target))


# ---- every small vector ----

SMALL = [vector for n in (1, 2, 3, 4) for vector in itertools.product((-2, -1, 0, 1, 2), repeat=n)]
SMALL_NORMS = ((1.0, 0.75), (2.5, 1.25), (2.5, 2.0))


@functools.cache
def brutally(ordered, chosen, l1, l2):
    """The nearest point to a vector in descending order, by brute force."""
    options = {"at_most": False, "nonnegative": False} | SETS[chosen]
    found = brute_force(ordered, l1=l1, l2=l2 if "two" in chosen else None, **options)
    return np.abs(np.array(found, dtype=float))


@long_if_interpreted
@each_set
@pytest.mark.parametrize("norms", SMALL_NORMS, ids=str)
def test_every_small_vector(engine, chosen, norms):
    """Against brute force over supports and binding norms, of the vector in descending order."""
    options = switches(chosen)
    l1, l2 = norms
    target = {"l1": l1, "l2": l2} if "two" in chosen else {"l1": l1}
    for n in (1, 2, 3, 4):
        x = np.array([vector for vector in SMALL if len(vector) == n], float)
        y = x if options.get("nonnegative") else np.abs(x)
        order = np.argsort(-y, axis=1, kind="stable")
        value = np.abs(np.take_along_axis(engine.project(x, **options, **target), order, 1))
        descending = np.take_along_axis(y, order, 1)
        expected = np.array([brutally(tuple(row), chosen, l1, l2) for row in descending.tolist()])
        np.testing.assert_allclose(value, expected, rtol=0, atol=4e-15)


# ---- longer vectors, by long doubles ----

LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 65, 130, 257, 500, 1024, 2500, 4099, 9000, 40_000)


def draw_rows(rng, kind, shape):
    return {
        "normal": lambda: rng.normal(size=shape),
        "cauchy": lambda: rng.standard_cauchy(shape),
        "sparse": lambda: rng.normal(size=shape) * (rng.random(shape) < 0.1),
        "offset": lambda: rng.normal(size=shape) + 1e6,
        "integers": lambda: rng.integers(-4, 5, shape).astype(float),
    }[kind]()


@long_if_interpreted
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["normal", "cauchy", "sparse", "offset", "integers"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@each_set
def test_every_length(engine, dtype, kind, *, masked, chosen, rng, largest):
    if engine.is_costly and (kind != "normal" or dtype == "float64"):
        pytest.skip("the way of every length is that of any numbers")
    if engine.name == "torch/core" and kind != "normal":
        pytest.skip("the core has been asked by way of NumPy arrays")
    if not engine.is_fast and dtype == "float32" and kind != "normal":
        pytest.skip("computed as float64 is, whatever the length")
    lengths = LENGTHS if engine.is_fast else LENGTHS[::4]
    for n in lengths:
        rows = 3 if n > 100 or not engine.is_fast else 12
        x = draw_rows(rng, kind, (rows, n)).astype(dtype)
        y = np.maximum(x if "nonnegative" in SETS[chosen] else np.abs(x), 0).astype(np.float64)
        share = np.resize([0.05, 0.6, 0.97], rows)
        options = {**SETS[chosen], "l1": share * (y.sum(1) + 0.1)}
        if "two" in chosen:
            options["l2"] = np.resize([0.1, 0.5, 0.8], rows) * (np.linalg.norm(y, axis=1) + 0.1)
        if masked:
            options["where"] = rng.random((rows, n)) < 0.7
        found = oracle.project(x, options)
        right = found.unit * found.norm[:, None]
        value = engine.project(x, **options)
        top = np.maximum(right.max(1, keepdims=True), SMALLEST[dtype])
        error = (np.abs(np.abs(value) - right) / (top * EPS[dtype])).max(1)[found.sure]
        largest(f"error in eps: lengths, {chosen}, {engine}, {dtype}", error.max(initial=0))
        assert (error <= BOUND).all(), (n, error)
        negative = (x < 0) & ("nonnegative" not in SETS[chosen])
        assert not (np.signbit(value) != (negative & (value != 0))).any()
        by_l1 = found.sure & np.isin(found.active, ("l1", "both"))
        sums = np.array([math.fsum(row) for row in np.abs(value.astype(np.float64))])
        off = np.abs(sums / options["l1"] - 1)[by_l1] / EPS[dtype]
        assert (off <= BOUND).all(), (n, off)


# ---- what projections onto convex sets are ----


def some_norms(chosen, rows, rng):
    norms = {"l1": 10 ** rng.uniform(-2, 1.5, rows)}
    if "two" in chosen:
        norms["l2"] = 10 ** rng.uniform(-1.5, 1, rows)
    return norms


@each_convex_set
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_no_two_points_move_apart(engine, chosen, n, rng):
    rows = engine.some(200)
    x = rng.normal(size=(rows, n)) * 10 ** rng.uniform(-1, 1, (rows, 1))
    y = x + rng.normal(size=(rows, n)) * 10 ** rng.uniform(-9, 1, (rows, 1))
    options = {**SETS[chosen], **some_norms(chosen, rows, rng)}
    p, q = engine.project(x, **options), engine.project(y, **options)
    noise = BOUND * EPS["float64"] * np.sqrt(n) * np.maximum(np.abs(p).max(1), np.abs(q).max(1))
    apart = np.linalg.norm(p - q, axis=1)
    assert (apart <= np.linalg.norm(x - y, axis=1) * (1 + 1e-12) + noise).all()


@each_convex_set
@pytest.mark.parametrize("n", [2, 7, 40])
def test_no_other_point_is_nearer(engine, chosen, n, rng):
    """<x - p, z - p> <= 0 for every z of the set: random ones, and the vertices."""
    rows = engine.some(100)
    x = rng.normal(size=(rows, n)) * 10 ** rng.uniform(-1, 1.5, (rows, 1))
    norms = some_norms(chosen, rows, rng)
    p = engine.project(x, **SETS[chosen], **norms)
    least = np.minimum(norms["l1"], norms.get("l2", np.inf))
    hot = np.eye(n)[np.abs(x - p).argmax(1)] * np.sign(x - p)
    others = [
        engine.project(rng.normal(size=(rows, n)), **SETS[chosen], **norms),
        engine.project(x + rng.normal(size=(rows, n)), **SETS[chosen], **norms),
        np.eye(n)[(x - p).argmax(1)] * least[:, None],
    ]
    if "at_most" in SETS[chosen]:
        others.append(np.zeros_like(x))
        others += [] if "nonnegative" in SETS[chosen] else [hot * least[:, None]]
    for z in others:
        inner = ((x - p) * (z - p)).sum(1)
        reach = np.linalg.norm(x - p, axis=1) * (np.abs(p).max(1) + np.linalg.norm(z - p, axis=1))
        assert (inner <= BOUND * EPS["float64"] * np.sqrt(n) * reach).all()


@each_dtype
def test_the_simplex_does_not_see_an_offset(engine, dtype, rng):
    """But for a last digit: shifts are rounded, and these differ."""
    x = rng.integers(-64, 65, (engine.some(60), 30)) / 64
    value = engine.project(typed(x, dtype), l1=1.0, nonnegative=True).astype(np.float64)
    moved = engine.project(typed(x - 1, dtype), l1=1.0, nonnegative=True).astype(np.float64)
    assert (np.abs(moved - value) <= 2 * EPS[dtype] * value.max(1, keepdims=True)).all()
    assert (np.abs(value.sum(1) - 1) <= 4 * EPS[dtype]).all()


@each_set
def test_powers_of_two_change_no_digit(engine, chosen, rng):
    """Where squares may overflow or vanish another way is taken, which rounds elsewhere."""
    x = rng.normal(size=(engine.some(40), 12))
    options = SETS[chosen]
    norms = some_norms(chosen, len(x), rng)
    value = engine.project(x, **options, **norms)
    off = (8 if "two" in chosen else 4) * EPS["float64"] * np.abs(value).max(1, keepdims=True)
    for power, limit in ((0.25, 0), (4, 0), (2.0**-700, off), (2.0**40, off), (2.0**700, off)):
        scaled = {name: norm * power for name, norm in norms.items()}
        found = engine.project(x * power, **options, **scaled)
        assert (np.abs(found / power - value) <= limit).all()


# ---- extremes ----

EXTREME = {
    "one entry": [[3.0], [-0.25], [0.0], [-0.0], [1e300], [1e-310]],
    "zero": [[0.0] * 5, [-0.0] * 5],
    "constant": [[0.7] * 6, [-0.7] * 6, [1e300] * 6, [1e-300] * 6],
    "ties": [[2.0, 2.0, 2.0, 1.0, 1.0], [1.0, -2.0, 2.0, -2.0, 0.0]],
    "offset": [[1e16, 1e16 + 2, 1e16 + 4], [1e8, 1e8 + 1, -1e8]],
    "largest": [[1.7e308, -1.7e308, 1e308, 0.0], [1e300, 1e300, -1e300, 1.0]],
    "smallest": [[5e-324, 1e-323, 0.0, -5e-324], [1e-308, 2e-308, -1e-310, 0.0]],
    "both ends": [[1e308, 1e-308, -1e-320, 1.0], [1.0, 1e-16, 1e-32, -1e-200]],
    "below zero": [[-1.0, -2.0, -3.0], [-1e-300, -1e300, -1.0]],
}


@long_if_interpreted
@each_set
@pytest.mark.parametrize("kind", EXTREME)
def test_extremes(engine, chosen, kind, largest):
    """Against norms of every size, alone and in a batch."""
    if engine.flushes_subnormals and kind in ("one entry", "smallest", "both ends"):
        pytest.skip("of subnormal numbers nothing is left")
    norms = (1e-300, 1e-9, 0.25, 1.0, 3.0, 1e9, 1e300)
    pairs = [(l1, l1 * share) for l1 in norms for share in (0.4, 0.75, 3.0)]
    targets = (
        [{"l1": l1, "l2": l2} for l1, l2 in pairs if l2 < 1e300]
        if "two" in chosen
        else [{"l1": l1} for l1 in norms]
    )
    with Verdict(engine, "float64", f"{chosen}, extremes", largest) as verdict:
        for x in np.array(EXTREME[kind]):
            asked = [Question(f"{x}", x, chosen, target) for target in targets]
            columns = {name: np.array([target[name] for target in targets]) for name in targets[0]}
            many = np.tile(x, (len(targets), 1))
            found = engine.solve(many, **SETS[chosen], **columns)
            told, value = told_by(found), found.value
            again = engine.project(value, **SETS[chosen], **columns)
            for i, question in enumerate(asked):
                verdict.judge(question, value[i], one_of(told, i), again[i])
            for question in asked if engine.is_fast else asked[3:4]:
                alone = engine.project(x, **SETS[chosen], **question.target)
                verdict.judge(question, alone)


def test_a_shift_far_below_tiny_entries(engine):
    """And far above all others: measured in the entries of the support it is no number."""
    x = np.array([-3e276, 8e-271, -1e238, -1e-153])
    found = engine.solve(x, l1=1e200, nonnegative=True)
    np.testing.assert_allclose(found.value, [0, 5e199, 0, 5e199], rtol=1e-15)
    assert math.isclose(found.shift, -5e199)
    assert found.support_size == 2


@pytest.mark.parametrize("nonnegative", [False, True])
def test_bounds_of_zero_leave_zero(engine, nonnegative):
    x = np.array([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -2.0]])
    for target in ({"l1": 0.0}, {"l1": 0.0, "l2": 2.0}, {"l1": 1.0, "l2": 0.0}):
        found = engine.solve(x, **target, at_most=True, nonnegative=nonnegative)
        np.testing.assert_array_equal(found.value, np.zeros_like(x))
        assert not np.signbit(found.value).any()
        np.testing.assert_array_equal(found.l1, [0, 0, 0])
        np.testing.assert_array_equal(found.l2, [0, 0, 0])
        np.testing.assert_array_equal(found.unique, [True, True, True])
        np.testing.assert_array_equal(found.vjp(np.ones_like(x)), np.zeros_like(x))


def test_vectors_within_the_bounds_come_back_as_they_are(engine, rng):
    x = rng.normal(size=(4, 9))
    x[0, 3] = -0.0
    for target in ({"l1": 1e3}, {"l1": 1e3, "l2": 1e3}, {"l1": 1e308, "l2": 50.0}):
        value = engine.project(x, **target, at_most=True)
        np.testing.assert_array_equal(value, x)
        value = engine.project(x, **target, at_most=True, nonnegative=True)
        np.testing.assert_array_equal(value, np.maximum(x, 0))
        found = engine.solve(x, **target, at_most=True)
        assert list(found.native.active) == ["none"] * 4


def test_a_bound_that_never_binds_changes_nothing(engine, rng):
    """l1 beyond sqrt(n) l2, and l2 beyond l1."""
    x = rng.normal(size=(5, 16)) * 3
    small = {"l1": 1.5, "at_most": True}
    np.testing.assert_allclose(
        engine.project(x, **small, l2=40.0), engine.project(x, **small), rtol=0, atol=1e-15
    )
    value = engine.project(x, l1=1e5, l2=0.5, at_most=True)
    expected = x / np.linalg.norm(x, axis=1, keepdims=True) / 2
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-15)


def test_zeros_of_the_sphere_are_revived_with_a_positive_sign(engine):
    x = np.array([[2.0, -0.0, 0.0, -1.0]])
    found = engine.solve(x, l1=5.0)
    np.testing.assert_allclose(found.value, [[2.5, 0.5, 0.5, -1.5]], rtol=1e-15)
    assert not found.unique[0]
    found = engine.solve(x, l1=5.0, nonnegative=True)
    np.testing.assert_allclose(found.value, [[3.0, 1.0, 1.0, 0.0]], atol=4e-15)
    assert found.unique[0]


# ---- derivatives ----

REGIMES = {
    "simplex": ("simplex", {"l1": 1.0}, "l1"),
    "simplex, whole": ("simplex", {"l1": 40.0}, "l1"),
    "L1 sphere": ("L1 sphere", {"l1": 1.5}, "l1"),
    "L1 sphere, larger": ("L1 sphere", {"l1": 30.0}, "l1"),
    "L1 ball": ("L1 ball", {"l1": 1.5}, "l1"),
    "L1 ball, within": ("L1 ball", {"l1": 100.0}, "none"),
    "L1 ball, nonnegative": ("L1 ball, nonnegative", {"l1": 1.5}, "l1"),
    "L1 ball, nonnegative, within": ("L1 ball, nonnegative", {"l1": 100.0}, "none"),
    "two balls, within": ("two balls", {"l1": 100.0, "l2": 50.0}, "none"),
    "two balls, l2": ("two balls", {"l1": 5.0, "l2": 1.0}, "l2"),
    "two balls, l1": ("two balls", {"l1": 1.5, "l2": 1.4}, "l1"),
    "two balls, both": ("two balls", {"l1": 1.5, "l2": 0.8}, "both"),
    "two balls, nonnegative, within": (
        "two balls, nonnegative",
        {"l1": 100.0, "l2": 50.0},
        "none",
    ),
    "two balls, nonnegative, l2": ("two balls, nonnegative", {"l1": 5.0, "l2": 1.0}, "l2"),
    "two balls, nonnegative, l1": ("two balls, nonnegative", {"l1": 1.5, "l2": 1.4}, "l1"),
    "two balls, nonnegative, both": ("two balls, nonnegative", {"l1": 1.5, "l2": 0.9}, "both"),
}
DIFFERENTIATED = np.array([2.5, -1.75, 2.25, 0.5, -0.25, 2.0, 1.5, -2.25])
each_regime = pytest.mark.parametrize("regime", REGIMES)
masks = pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
DERIVATIVE_MASK = np.array([True, True, True, True, True, False, True, True])


def derived(regime, masked):
    """What the engines are asked, and what the reference is."""
    chosen, target, active = REGIMES[regime]
    options = {**SETS[chosen], **target}
    if masked:
        options["where"] = DERIVATIVE_MASK
    x = poisoned(DIFFERENTIATED, DERIVATIVE_MASK) if masked else DIFFERENTIATED
    return x, options, active


@functools.cache
def exact_jacobian(regime, masked):
    _, options, active = derived(regime, masked)
    assert exact_projection(DIFFERENTIATED, **options).active == active
    columns = [numeric_jvp(DIFFERENTIATED, column, **options) for column in np.eye(8)]
    return np.array(columns, dtype=float).T


@long_if_interpreted
@each_regime
@masks
def test_products(engine, regime, masked, rng):
    x, options, active = derived(regime, masked)
    expected = exact_jacobian(regime, masked)
    np.testing.assert_allclose(expected, expected.T, rtol=0, atol=1e-15)
    found = engine.solve(x, **options)
    assert found.native.active == active
    y = rng.normal(size=8)
    limit = {"rtol": 0, "atol": BOUND * EPS["float64"] * max(1, np.abs(expected).max())}
    np.testing.assert_allclose(found.jvp(y), expected @ y, **limit)
    np.testing.assert_allclose(found.vjp(y), expected @ y, **limit)
    np.testing.assert_allclose(found.jacobian(), expected, **limit)
    np.testing.assert_allclose(engine.gradient(x, y, **options), expected @ y, **limit)


@long_if_interpreted
@each_regime
def test_products_of_many(engine, regime, rng):
    """Different regimes, masks and bounds side by side; float32 as well."""
    x, options, _ = derived(regime, False)
    where = np.stack([np.ones(8, bool), DERIVATIVE_MASK, np.zeros(8, bool)])
    many = np.stack([x, poisoned(x, DERIVATIVE_MASK), np.full(8, np.nan)])
    expected = [exact_jacobian(regime, False), exact_jacobian(regime, True), np.zeros((8, 8))]
    y = rng.normal(size=(3, 8))
    for dtype in ("float64", "float32"):
        found = engine.solve(many.astype(dtype), **options, where=where)
        given = y.astype(dtype)
        wanted = np.stack([j @ v for j, v in zip(expected, given, strict=True)])
        limit = {"rtol": 0, "atol": 4 * BOUND * EPS[dtype]}
        np.testing.assert_allclose(found.jvp(given), wanted, **limit)
        np.testing.assert_allclose(found.vjp(given), wanted, **limit)
        reverse = engine.gradient(many.astype(dtype), given, **options, where=where)
        np.testing.assert_allclose(reverse, wanted, **limit)


@functools.cache
def exact_target_derivatives(regime, masked):
    """By l1 and by l2, from central differences; 0 by a norm that is not given."""
    _, options, _ = derived(regime, masked)
    step = mp.mpf(2) ** -300
    found = []
    for name in ("l1", "l2"):
        if name not in options:
            found.append(np.zeros(8))
            continue
        with mp.workprec(1400):
            ends = [options[name] + step, options[name] - step]
            plus, minus = (
                exact_projection(DIFFERENTIATED, **{**options, name: end}, precision=1400).value
                for end in ends
            )
            found.append(
                np.array([float((a - b) / (2 * step)) for a, b in zip(plus, minus, strict=True)])
            )
    return found


@each_regime
@masks
def test_derivatives_by_the_norms(engine, regime, masked):
    x, options, _ = derived(regime, masked)
    found = engine.solve(x, **options).target_gradient()
    for part, expected in zip(found, exact_target_derivatives(regime, masked), strict=True):
        np.testing.assert_allclose(part, expected, rtol=0, atol=2 * BOUND * EPS["float64"])


def test_derivatives_within_the_bounds_are_those_of_nothing(engine):
    """At zeros, too: vectors in the inside of a ball may move anywhere."""
    x, y = np.array([1.0, 0.0, -2.0, -0.0]), np.array([1.0, 2.0, 3.0, 4.0])
    found = engine.solve(x, l1=9.0, at_most=True)
    np.testing.assert_array_equal(found.jvp(y), y)
    np.testing.assert_array_equal(found.vjp(y), y)
    found = engine.solve(x, l1=9.0, l2=9.0, at_most=True, nonnegative=True)
    np.testing.assert_array_equal(found.vjp(y), [1, 0, 0, 0])


def test_at_the_bound_it_counts_as_inactive(engine):
    x = np.array([1.0, -2.0, 0.5])
    found = engine.solve(x, l1=3.5, at_most=True)
    assert found.native.active == "none"
    np.testing.assert_array_equal(found.value, x)
    np.testing.assert_array_equal(found.jvp([1.0, 1.0, 1.0]), [1, 1, 1])


# ---- masks ----

OLD_FORMS = (
    {"sparseness": 0.6},
    {"sparseness": 0.6, "l2": 2.0},
    {"sparseness": 0.6, "l1": 2.0},
    {"sparseness": 0.6, "l2": "keep"},
    {"sparseness": 0.6, "l2": "nearest"},
    {"sparseness": 0.6, "only_increase": True},
    {"l1": 1.6, "l2": 1.0},
    {"l1": 1.6, "l2": 1.0, "nonnegative": True},
    {"l1": 1.0, "nonnegative": True},
    {"l1": 9.0},
    {"l1": 1.0, "at_most": True},
    {"l1": 1.5, "l2": 1.0, "at_most": True},
)


class TestMasks:
    """Entries outside do not exist."""

    @pytest.mark.parametrize("form", OLD_FORMS, ids=str)
    def test_as_without_these_entries(self, engine, form, rng):
        n, kept = 23, np.arange(23) % 3 != 1
        x = rng.normal(size=(6, n)) + 0.3
        expected = np.zeros((6, n))
        expected[:, kept] = engine.project(x[:, kept], **form)
        value = engine.project(poisoned(x[0], kept), **form, where=kept)
        np.testing.assert_allclose(value, expected[0], rtol=0, atol=2e-15)
        for where in (kept, kept[None], np.broadcast_to(kept, (6, n))):
            value = engine.project(x, **form, where=np.array(where))
            np.testing.assert_allclose(value, expected, rtol=0, atol=2e-15)
            assert not value[:, ~kept].any()

    @pytest.mark.parametrize("form", OLD_FORMS, ids=str)
    def test_a_mask_that_masks_nothing(self, engine, form, rng):
        x = rng.normal(size=(5, 31))
        value = engine.project(x, **form, where=np.ones((5, 31), bool))
        np.testing.assert_allclose(value, engine.project(x, **form), rtol=0, atol=2e-15)

    @long_if_interpreted
    @pytest.mark.parametrize("form", OLD_FORMS, ids=str)
    def test_derivatives(self, engine, form, rng):
        kept = np.arange(13) % 4 != 2
        x, y = rng.normal(size=(2, 3, 13))
        inner = engine.solve(x[:, kept], **form)
        found = engine.solve(np.where(kept, x, np.nan), **form, where=kept)
        for name in ("jvp", "vjp"):
            expected = np.zeros((3, 13))
            expected[:, kept] = getattr(inner, name)(y[:, kept])
            value = getattr(found, name)(y)
            np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14)
            assert not value[:, ~kept].any()
        reverse = engine.gradient(np.where(kept, x, np.inf), y, **form, where=kept)
        np.testing.assert_allclose(reverse, found.vjp(y), rtol=0, atol=1e-14)

    def test_none_left(self, engine):
        x = np.array([[np.nan, np.inf, 1.0], [1.0, 2.0, 3.0]])
        where = np.array([[False] * 3, [True] * 3])
        for form in OLD_FORMS:
            possible = form | ({"l1": 1.2} if "l1" in form and "l2" in form else {})
            found = engine.solve(x, **possible, where=where)
            np.testing.assert_array_equal(found.value[0], [0, 0, 0])
            np.testing.assert_array_equal([found.l1[0], found.l2[0], found.scale[0]], [0, 0, 0])
            assert found.unique[0]
            assert math.isnan(found.shift[0])
            assert found.native.active[0] == "none"
            assert found.support_size[0] == 0
            np.testing.assert_array_equal(found.vjp(np.ones((2, 3)))[0], [0, 0, 0])

    @pytest.mark.parametrize(
        ("form", "expected"),
        [
            ({"sparseness": 0.3}, [-1.0, 1.0, 1.0]),
            ({"sparseness": 0.3, "l2": 2.5}, [-2.5, 2.5, 2.5]),
            ({"sparseness": 0.3, "l1": 2.5}, [-2.5, 2.5, 2.5]),
            ({"sparseness": 0.3, "l2": "keep"}, [-3.0, 4.0, 0.0]),
            ({"sparseness": 0.3, "l2": "nearest"}, [-3.0, 4.0, 0.0]),
            ({"sparseness": 0.3, "nonnegative": True}, [1.0, 1.0, 1.0]),
            ({"l1": 2.0, "l2": 2.0}, [-2.0, 2.0, 2.0]),
            ({"l1": 2.0}, [-2.0, 2.0, 2.0]),
            ({"l1": 2.0, "nonnegative": True}, [2.0, 2.0, 2.0]),
            ({"l1": 3.5, "at_most": True}, [-3.0, 3.5, 0.0]),
            ({"l1": 3.5, "l2": 2.0, "at_most": True}, [-2.0, 2.0, 0.0]),
        ],
        ids=str,
    )
    def test_one_left_takes_the_norm(self, engine, form, expected):
        where = np.eye(3, dtype=bool)
        x = np.where(where, np.array([[-3.0, 4.0, 0.0]]), np.nan)
        value = engine.project(x, **form, where=where)
        np.testing.assert_allclose(value, np.diag(expected), rtol=1e-15)

    def test_zeros_that_count_are_revived_and_others_are_not(self, engine):
        x = np.array([2.0, 0.0, 0.0, -1.0])
        value = engine.project(x, l1=5.0, where=np.array([True, True, False, True]))
        np.testing.assert_allclose(value, [8 / 3, 2 / 3, 0, -5 / 3], rtol=1e-15)

    def test_lengths_of_many_rows(self, engine, rng):
        """As attention has them: a row sees the entries up to its own."""
        n = 40
        x = rng.normal(size=(n, n))
        where = np.tril(np.ones((n, n), bool))
        value = engine.project(x, l1=1.0, nonnegative=True, where=where)
        np.testing.assert_allclose(value.sum(1), 1, rtol=4e-16 * n)
        assert not value[~where].any()
        value = engine.project(x, 0.7, where=where)
        own = [engine.sparseness(row[: i + 1]) for i, row in enumerate(value) if i]
        np.testing.assert_allclose(own, 0.7, rtol=1e-13)

    def test_axes(self, engine, rng):
        x = rng.normal(size=(4, 5, 6))
        where = rng.random((4, 5, 6)) < 0.7
        rows = engine.project(
            x.transpose(0, 2, 1).copy(), l1=1.0, where=where.transpose(0, 2, 1).copy()
        )
        value = engine.project(x, l1=1.0, where=where, axis=1)
        np.testing.assert_array_equal(value, rows.transpose(0, 2, 1))
        whole = engine.project(x, l1=1.0, where=where, axis=None)
        flat = engine.project(x.reshape(-1), l1=1.0, where=where.reshape(-1))
        np.testing.assert_array_equal(whole.reshape(-1), flat)
        pairs = engine.project(x, l1=1.0, where=where, axis=(0, 2))
        moved = x.transpose(1, 0, 2).reshape(5, 24)
        expected = engine.project(moved, l1=1.0, where=where.transpose(1, 0, 2).reshape(5, 24))
        np.testing.assert_array_equal(pairs.transpose(1, 0, 2).reshape(5, 24), expected)

    @pytest.mark.engines("numpy/core")
    def test_wrong_masks(self, engine):
        x = np.ones((3, 4))
        for where in (np.ones((3, 4)), np.ones((3, 4), int), "yes", [[1, 0, 1, 1]] * 3):
            with pytest.raises((TypeError, ValueError), match="where"):
                hoyer.project(x, 0.5, where=where)
        with pytest.raises(ValueError, match="where"):
            hoyer.project(x, 0.5, where=np.ones((2, 4), bool))
        with pytest.raises(ValueError, match="impossible"):
            hoyer.project(x, l1=1.9, l2=1.0, where=np.array([True, True, False, False]))

    @pytest.mark.engines("numpy/core")
    def test_what_counts_must_be_finite(self, engine):
        x = np.array([1.0, np.nan, 2.0])
        where = np.array([True, True, False])
        with pytest.raises(ValueError, match=r"finite|NaN"):
            hoyer.project(x, 0.5, where=where)


# ---- ways into it ----


@pytest.mark.engines("numpy/core")
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "masked"])
@each_set
class TestWays:
    """Results in place, in other arrays, along other axes, as sparse matrices."""

    def asked(self, chosen, masked, rng):
        x = rng.normal(size=(7, 20)) * 2
        options = {**SETS[chosen], "l1": 2.0} | ({"l2": 0.9} if "two" in chosen else {})
        if masked:
            options["where"] = rng.random((7, 20)) < 0.7
        return x, options

    def test_in_place_and_out(self, engine, chosen, masked, rng):
        x, options = self.asked(chosen, masked, rng)
        expected = hoyer.project(x, **options)
        own = x.copy()
        assert hoyer.project_(own, **options) is own
        np.testing.assert_array_equal(own, expected)
        out = np.empty((7, 40))[:, ::2]
        assert hoyer.project(x, out=out, **options) is out
        np.testing.assert_array_equal(out, expected)
        own = x.copy()
        hoyer.project(own, out=own, **options)
        np.testing.assert_array_equal(own, expected)

    def test_layouts(self, engine, chosen, masked, rng):
        x, options = self.asked(chosen, masked, rng)
        expected = hoyer.project(x, **options)
        flipped = dict(options)
        if masked:
            flipped["where"] = options["where"].T
        np.testing.assert_array_equal(hoyer.project(x.T, axis=0, **flipped).T, expected)
        np.testing.assert_array_equal(hoyer.project(np.asfortranarray(x), **options), expected)
        copy = np.ascontiguousarray(x.T)
        np.testing.assert_array_equal(hoyer.project(copy, axis=0, **flipped).T, expected)

    def test_sparse(self, engine, chosen, masked, rng):
        x, options = self.asked(chosen, masked, rng)
        found = hoyer.project_sparse(x, **options)
        np.testing.assert_array_equal(found.toarray(), hoyer.project(x, **options))

    def test_threads(self, engine, chosen, masked, rng):
        x, options = self.asked(chosen, masked, rng)
        x = np.tile(x, (600, 8))
        if masked:
            options["where"] = np.tile(options["where"], (600, 8))
        expected = hoyer.project(x, **options)
        before = hoyer.get_num_threads()
        hoyer.set_num_threads(2)
        try:
            np.testing.assert_array_equal(hoyer.project(x, **options), expected)
        finally:
            hoyer.set_num_threads(before)


# ---- refusals ----


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sparseness": 0.5, "at_most": True}, "only_increase=True instead"),
        ({"l1": 1.0, "l2": 1.0, "at_most": True, "only_increase": True}, "one of the two"),
        ({"l1": 1.0, "l2": "keep", "at_most": True}, "leave l2 out"),
        ({"l2": 1.0, "at_most": True}, "give l1 as well"),
        ({"at_most": True}, "no target"),
        ({"l1": 1.0, "only_increase": True}, "give l2 as well"),
        ({"l1": 0.0}, "positive"),
        ({"l1": -1.0, "at_most": True}, "not negative"),
        ({"l1": 1.0, "l2": -1.0, "at_most": True}, "not negative"),
        ({"l1": math.nan}, "positive"),
        ({"l1": math.inf, "at_most": True}, "finite"),
        ({"l2": 1.0}, "no target"),
        ({"l1": 1.0, "l2": "keep"}, "no target"),
    ],
    ids=str,
)
def test_what_makes_no_sense(engine, options, words):
    for ask in (engine.project, solved_by(engine)):
        with pytest.raises(ValueError, match=words):
            ask(np.array([1.0, 2.0, -3.0]), **options)


@pytest.mark.parametrize("solver", ["bisection", "newton", "newton_sqr", "halley"])
@pytest.mark.parametrize("options", [{"l1": 1.0}, {"l1": 1.0, "at_most": True}], ids=str)
def test_the_papers_solvers_need_both_norms(engine, solver, options):
    with pytest.raises(ValueError, match="the paper's solvers"):
        engine.project(np.array([1.0, 2.0]), solver=solver, **options)


def test_switches_must_be_switches(engine):
    with pytest.raises(TypeError, match="at_most=1"):
        engine.project(np.array([1.0, 2.0]), l1=1.0, at_most=1)
