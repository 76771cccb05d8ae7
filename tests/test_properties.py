"""Properties of the projection on what hypothesis makes up: ties, near-ties, every exponent."""

import math

import mpmath
import numpy as np
import pytest
from engines import Engine, for_all
from hypothesis import assume, note
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reference import (
    correctly_rounded,
    error_in_eps,
    exact_projection,
    norm_errors_in_eps,
    support_mismatch,
)

import hoyer

EPS = np.finfo(np.float64).eps
FLOATS = (np.float64, np.float32, np.float16)
SOLVERS = Engine.solvers

lengths = st.integers(2, 24)


def finite(dtype):
    width = 8 * np.dtype(dtype).itemsize
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


@st.composite
def free(draw, dtype):
    """Anything the dtype can hold."""
    return draw(hnp.arrays(dtype, draw(lengths), elements=finite(dtype)))


@st.composite
def ties(draw, dtype):
    """A handful of distinct values, most of them often."""
    pool = draw(st.lists(finite(dtype), min_size=1, max_size=3))
    picks = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=24))
    return np.array(picks, dtype)


@st.composite
def near_ties(draw, dtype):
    """Neighbours, a few ulps around one number."""
    centre = dtype(draw(st.sampled_from([1.0, 1.5, -1.0, 0.0, 2.0**-14, 1000.0, 3.0e4])))
    steps = draw(st.lists(st.integers(-3, 3), min_size=2, max_size=24))
    values = []
    for step in steps:
        value = centre
        for _ in range(abs(step)):
            value = np.nextafter(value, dtype(math.copysign(np.inf, step)))
        values.append(value)
    return np.array(values, dtype)


@st.composite
def geometric(draw, dtype):
    """Powers of two, all scales at once."""
    info = np.finfo(dtype)
    exponents = st.integers(info.minexp - info.nmant, info.maxexp - 1)
    powers = draw(st.lists(exponents, min_size=2, max_size=24))
    signs = draw(st.lists(st.sampled_from([1, -1]), min_size=len(powers), max_size=len(powers)))
    return np.ldexp(np.array(signs, dtype), powers).astype(dtype)


@st.composite
def shelves(draw, dtype):
    """A large number with a little on top: sums and differences are of different sizes."""
    base = draw(st.sampled_from([0.0, 1.0, -1.0, 1000.0]))
    small = draw(st.lists(st.integers(0, 40), min_size=2, max_size=24))
    unit = float(np.spacing(dtype(max(abs(base), 1.0))))
    return (base + unit * np.array(small)).astype(dtype)


def vectors(dtype):
    return st.one_of(free(dtype), ties(dtype), near_ties(dtype), geometric(dtype), shelves(dtype))


@st.composite
def targets(draw, n, dtype):
    """Anywhere, at the ends, and within an ulp of a K that is an integer."""
    kind = draw(st.sampled_from(["free", "end", "integer", "norms", "ulp"]))
    if kind == "free":
        return {"sparseness": draw(st.floats(0, 1))}
    if kind == "end":
        ends = [0.0, 1.0, EPS, 1 - EPS / 2, 1e-12, 1 - 1e-12, 5e-324]
        return {"sparseness": draw(st.sampled_from(ends))}
    k = draw(st.integers(1, n))
    nudge = draw(st.integers(-2, 2))
    if kind == "integer":
        root = math.sqrt(n)
        value = (root - math.sqrt(k)) / (root - 1)
        return {"sparseness": min(max(step(value, nudge), 0.0), 1.0)}
    norms = [1.0, 0.1, 3.0] if dtype is np.float16 else [1.0, 0.1, 3.0, 2.0**-30, 2.0**40]
    l2 = draw(st.sampled_from(norms))
    if kind == "ulp":
        l1 = step(math.sqrt(k) * l2, nudge)
        return {"l1": l1, "l2": l2}
    ratio = draw(st.floats(1, math.sqrt(n)))
    return {"l1": ratio * l2, "l2": l2}


def step(value, count):
    for _ in range(abs(count)):
        value = math.nextafter(value, math.inf if count > 0 else -math.inf)
    return value


@st.composite
def problems(draw, dtype=np.float64):
    x = draw(vectors(dtype))
    return x, draw(targets(x.size, dtype))


def window(x, exact, dtype, nonnegative):
    """Whether an entry lies so close to alpha that idempotence, not rounding, decides about it."""
    if exact.scale is None or exact.scale == 0:
        return False
    reach = 8 * float(np.finfo(dtype).eps) * exact.l1 / x.size
    entries = x.tolist() if nonnegative else np.abs(x).tolist()
    return any(abs(entry - exact.shift) / exact.scale <= reach for entry in entries)


def rounded(value, exact):
    """Whether entries are the exact ones, rounded; halfway between two halves either will do."""
    quantum = np.spacing(np.abs(value)).astype(np.float64)
    apart = [abs(a - b) for a, b in zip(value.tolist(), exact.value, strict=True)]
    smallest = float(np.finfo(value.dtype).smallest_subnormal)
    return correctly_rounded(value, exact) or all(
        gap <= (0.5 + 1e-9) * unit + smallest for gap, unit in zip(apart, quantum, strict=True)
    )


def cancellation(x, exact):
    """How ill-conditioned the norm of the nearest point is: it is a sum of both signs, <p, x>."""
    terms = [entry * p for entry, p in zip(x.tolist(), exact.value, strict=True)]
    total = abs(sum(terms))
    return max(1, sum(map(abs, terms)) / total) if total else 1


def decided(x, exact, nonnegative):
    """Whether K and the number of ties differ by more than the precision of the targets."""
    magnitude = x if nonnegative else np.abs(x)
    ties = np.count_nonzero(magnitude == magnitude.max())
    precision = 1e-28 if x.dtype == np.float64 else 1e-13  # float32 needs float64 targets only
    with mpmath.workprec(4000):
        ratio = (exact.l1 / exact.l2) ** 2
        return all(abs(ratio - k) > precision * k or ratio == k for k in (1, ties, x.size))


def floats_of(engine):
    return [dtype for dtype in FLOATS if dtype.__name__ in engine.dtypes]


def assert_as_promised(engine, x, target, solver="auto", **options):
    exact = exact_projection(x, **target, **options)
    if float(max(abs(entry) for entry in exact.value)) > float(np.finfo(x.dtype).max):
        assume(False)  # the result does not fit into the dtype
    found = engine.solve(x, **target, **options, solver=solver)
    note(f"value {found.value!r}, exact {[float(entry) for entry in exact.value]}")
    note(f"evaluations {found.evaluations}")
    assert found.value.dtype == x.dtype
    assert found.evaluations <= engine.most_evaluations + (200 if solver != "auto" else 0)
    tiny = float(np.finfo(x.dtype).tiny)
    near = window(x, exact, x.dtype, options.get("nonnegative", False))
    if x.dtype == np.float16:
        assert rounded(found.value, exact) or (near and error_in_eps(found.value, exact) <= 4)
    elif max(abs(entry) for entry in exact.value) > tiny / np.finfo(x.dtype).eps:
        bound = 32 * (cancellation(x, exact) if target.get("l2") == "nearest" else 1)
        assume(bound * EPS < 1)  # no digit of the norm is left
        assert error_in_eps(found.value, exact) <= bound
        assert max(norm_errors_in_eps(found.value, exact)) <= bound
        assert support_mismatch(found.value, exact) <= 32
    if exact.l2 != 0 and decided(x, exact, options.get("nonnegative", False)):
        assert bool(found.unique) is exact.unique or near
        if exact.scale is None:
            assert found.scale == 0
            assert math.isnan(found.shift)
        elif exact.scale > 1e-300:
            assert found.scale > 0
    return found, exact


class TestAsPromised:
    @for_all(st.data(), st.booleans())
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_the_exact_point_in_few_evaluations(self, engine, dtype, data, nonnegative):
        x, target = data.draw(problems(dtype))
        assert_as_promised(engine, x, target, nonnegative=nonnegative)

    @for_all(st.data(), st.booleans())
    @pytest.mark.engines("numpy/core")
    @pytest.mark.parametrize("solver", SOLVERS[1:])
    def test_by_every_solver(self, engine, solver, data, nonnegative):
        dtype = data.draw(st.sampled_from(floats_of(engine)))
        x, target = data.draw(problems(dtype))
        assert_as_promised(engine, x, target, solver, nonnegative=nonnegative)

    @for_all(st.data(), st.booleans(), st.sampled_from(["keep", "nearest"]))
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_with_free_and_kept_norms(self, engine, dtype, data, nonnegative, word):
        x = data.draw(vectors(dtype))
        sparseness = data.draw(st.floats(0, 1))
        # inside [tiny, max] of the norm: what the result's own type can hold
        assert_as_promised(
            engine, x, {"sparseness": sparseness, "l2": word}, nonnegative=nonnegative
        )

    @for_all(st.data(), st.booleans())
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_only_increasing(self, engine, dtype, data, nonnegative):
        x, target = data.draw(problems(dtype))
        options = {"nonnegative": nonnegative, "only_increase": True}
        exact = exact_projection(x, **target, **options)
        value = engine.project(x, **target, **options)
        bound = 4 if dtype is np.float16 else 32
        if error_in_eps(value, exact) > bound:
            # Keeping and projecting differ at the boundary itself, by the root of the distance from
            # it where entries are equal up to rounding: there both are as good.
            kept = (np.maximum(x, 0) if nonnegative else x).astype(np.float64)
            kept = np.ldexp(kept, -np.frexp(np.abs(kept).max())[1])
            wanted = float(exact.l1 / exact.l2) if exact.shift != 0 else None
            ratio = np.abs(kept).sum() / np.linalg.norm(kept)
            assert wanted == pytest.approx(ratio, rel=8 * EPS)
            direction = kept / np.linalg.norm(kept) * float(exact.l2)
            np.testing.assert_allclose(value, direction, rtol=64 * float(np.finfo(dtype).eps))

    @for_all(st.data())
    def test_in_a_batch_with_others(self, engine, data):
        n = data.draw(st.integers(2, 12))
        dtype = data.draw(st.sampled_from(floats_of(engine)))
        rows = data.draw(st.integers(1, 9))
        elements = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0]), finite(dtype))
        x = data.draw(hnp.arrays(dtype, (rows, n), elements=elements))
        goals = data.draw(hnp.arrays(np.float64, rows, elements=st.floats(0, 1)))
        found = engine.solve(x, goals)
        assert (found.evaluations <= engine.most_evaluations).all()
        for row, goal, value in zip(x, goals, found.value, strict=True):
            exact = exact_projection(row, sparseness=float(goal))
            bound = 4 if dtype is np.float16 else 32
            assert error_in_eps(value, exact) <= bound


class TestOptimality:
    """On D the projection is the point with the largest inner product with x."""

    def points_of(self, rng, n, l1, l2, count):
        """Random points of D: on a random support of d > K entries, a random direction."""
        found = []
        least = int((l1 / l2) ** 2) + 1
        for _ in range(100 * count):
            d = min(n, least + int(rng.integers(0, 3)))
            direction = rng.normal(size=d)
            direction -= direction.mean()
            radius = math.sqrt(max(l2**2 - l1**2 / d, 0))
            q = l1 / d + radius * direction / np.linalg.norm(direction)
            if (q >= 0).all():
                point = np.zeros(n)
                point[rng.choice(n, d, replace=False)] = q
                found.append(point)
            if len(found) == count:
                break
        assert len(found) > count // 4
        return np.array(found)

    @pytest.mark.parametrize("n", [3, 10, 50])
    @pytest.mark.parametrize("sparseness", [0.1, 0.4, 0.7, 0.9])
    def test_no_other_point_is_better(self, engine, n, sparseness, rng):
        l1, l2 = hoyer.target_norms(n, sparseness)
        others = self.points_of(rng, n, l1, l2, 200)
        np.testing.assert_allclose(np.linalg.norm(others, axis=-1), l2)
        np.testing.assert_allclose(others.sum(-1), l1)
        for x in (rng.normal(size=n), rng.random(n), rng.integers(0, 3, n).astype(float)):
            p = engine.project(x, sparseness, nonnegative=True)
            assert (others @ x <= p @ x + 1e-13 * np.abs(x).max() * l1).all()
            # points of D near p: p with two entries exchanged
            i, j = rng.integers(0, n, (2, 50))
            exchanged = np.repeat(p[None], 50, axis=0)
            exchanged[np.arange(50), i], exchanged[np.arange(50), j] = p[j], p[i]
            assert (exchanged @ x <= p @ x + 1e-13 * np.abs(x).max() * l1).all()

    @pytest.mark.parametrize("sparseness", [0.1, 0.4, 0.7, 0.9])
    def test_no_other_signed_point_is_nearer(self, engine, sparseness, rng):
        n = 20
        l1, l2 = hoyer.target_norms(n, sparseness)
        others = self.points_of(rng, n, l1, l2, 200) * rng.choice([-1.0, 1.0], n)
        x = rng.normal(size=n)
        p = engine.project(x, sparseness)
        assert (np.linalg.norm(others - x, axis=-1) >= np.linalg.norm(p - x) - 1e-13).all()

    @for_all(problems())
    def test_there_is_a_shift_and_a_scale(self, engine, problem):
        """The optimality conditions: one threshold separates the support, one factor fits it."""
        x, target = problem
        magnitude = np.abs(x)
        top = magnitude.max()
        assume(top > 1e-290)
        assume(top < 1e300)
        found = engine.solve(x, **target)
        # Near sparseness 0 shift and scale may lie beyond the largest float.
        assume(0 < found.scale < np.inf)
        p = np.abs(found.value)
        inside = magnitude > found.shift
        slack = 64 * EPS * (p.max() + top / found.scale)
        assert (p[~inside] <= slack).all()
        fitted = (magnitude[inside] - found.shift) / found.scale
        assert (np.abs(p[inside] - fitted) <= slack).all()


class TestInvariances:
    integers = hnp.arrays(np.int64, lengths, elements=st.integers(-1000, 1000))

    def assert_same(self, a, b, factor=64):
        assert (np.abs(a - b) <= factor * EPS * np.abs(a).max()).all()

    @for_all(integers, st.floats(0, 1), st.integers(-(2**40), 2**40))
    def test_shift(self, engine, x, sparseness, shift):
        """Nonnegative: x + t e has the same projection (integers: the sum is exact)."""
        p = engine.project(x, sparseness, nonnegative=True)
        moved = engine.project(x + shift, sparseness, nonnegative=True)
        self.assert_same(p, moved)

    @for_all(problems(), st.integers(-60, 60), st.booleans())
    def test_scale_by_powers_of_two(self, engine, problem, exponent, nonnegative):
        x, target = problem
        with np.errstate(over="ignore"):
            scaled = np.ldexp(x, exponent)
        assume(np.isfinite(scaled).all())
        assume((np.ldexp(scaled, -exponent) == x).all())
        p = engine.project(x, **target, nonnegative=nonnegative)
        self.assert_same(p, engine.project(scaled, **target, nonnegative=nonnegative))

    @for_all(integers, st.floats(0, 1), st.integers(1, 10**6), st.booleans())
    def test_scale_by_other_factors(self, engine, x, sparseness, factor, nonnegative):
        p = engine.project(x, sparseness, nonnegative=nonnegative)
        self.assert_same(p, engine.project(x * factor, sparseness, nonnegative=nonnegative))

    @for_all(problems(), st.randoms(use_true_random=False), st.booleans())
    def test_permutation(self, engine, problem, random, nonnegative):
        x, target = problem
        found = engine.solve(x, **target, nonnegative=nonnegative)
        ratio = found.l1 / found.l2
        magnitude = x if nonnegative else np.abs(x)
        assume(np.count_nonzero(magnitude == magnitude.max()) < ratio**2 * (1 - 1e-14))
        order = list(range(x.size))
        random.shuffle(order)
        permuted = engine.project(x[order], **target, nonnegative=nonnegative)
        self.assert_same(found.value[order], permuted)

    @for_all(problems(), st.data())
    def test_sign(self, engine, problem, data):
        x, target = problem
        assume((x != 0).all())
        signs = data.draw(hnp.arrays(np.float64, x.size, elements=st.sampled_from([-1.0, 1.0])))
        p = engine.project(x, **target)
        flipped = engine.project(x * signs, **target)
        np.testing.assert_array_equal(flipped, p * signs)
        np.testing.assert_array_equal(np.abs(p), engine.project(np.abs(x), **target))

    @for_all(problems())
    def test_signs_are_those_of_x(self, engine, problem):
        x, target = problem
        p = engine.project(x, **target)
        assert (p[x < 0] <= 0).all()
        assert (p[x >= 0] >= 0).all()
        assert not np.signbit(p[p == 0]).any()


class TestOrder:
    @for_all(st.data(), st.booleans())
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_larger_entries_stay_larger(self, engine, dtype, data, nonnegative):
        x, target = data.draw(problems(dtype))
        solver = data.draw(st.sampled_from(engine.solvers))
        found = engine.solve(x, **target, nonnegative=nonnegative, solver=solver)
        magnitude = x if nonnegative else np.abs(x)
        p = np.abs(found.value)
        order = np.argsort(magnitude, kind="stable")
        larger = magnitude[order][1:] > magnitude[order][:-1]
        assert (np.diff(p[order])[larger] >= 0).all()
        if found.scale > 0:
            equal = magnitude[order][1:] == magnitude[order][:-1]
            assert (np.diff(p[order])[equal] == 0).all()


class TestIdempotence:
    @for_all(st.data(), st.booleans())
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_twice_is_once(self, engine, dtype, data, nonnegative):
        x, target = data.draw(problems(dtype))
        solver = data.draw(st.sampled_from(engine.solvers))
        options = {**target, "nonnegative": nonnegative, "solver": solver}
        once = engine.project(x, **options)
        assume(np.isfinite(once).all())
        top = np.abs(once).max()
        info = np.finfo(dtype)
        assume(top > float(info.tiny) / float(info.eps))
        value = once
        for _ in range(3):
            found = engine.solve(value, **options)
            assert np.isfinite(found.value).all()
            if np.count_nonzero(value) > (found.l1 / found.l2) ** 2:  # else it is not in D
                assert not found.value[value == 0].any()
            moved = np.abs(found.value.astype(np.float64) - value.astype(np.float64)).max()
            assert moved <= 8 * float(info.eps) * float(top)
            limit = engine.most_evaluations + (0 if solver == "auto" else 200)
            assert found.evaluations <= limit
            value = found.value

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("n", [10, 300, 5000, 100_000])
    def test_of_long_vectors(self, engine, dtype, n, rng):
        n = n if engine.is_fast else min(n, 20 * engine.examples)
        for sparseness in (0.2, 0.6, 0.9, 0.99):
            once = engine.project(rng.normal(size=n).astype(dtype), sparseness)
            value = once
            for _ in range(3):
                again = engine.project(value, sparseness)
                assert not again[value == 0].any()
                moved = np.abs(again.astype(np.float64) - value.astype(np.float64)).max()
                assert moved <= 8 * float(np.finfo(dtype).eps) * float(np.abs(once).max())
                value = again


class TestSparseness:
    @for_all(st.data())
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_is_between_zero_and_one_and_a_legal_target(self, engine, dtype, data):
        x = data.draw(vectors(dtype))
        assume(x.any())
        value = engine.sparseness(x)
        assert value.dtype == dtype
        slack = 4 * float(np.finfo(dtype).eps)
        assert -slack <= value <= 1 + slack
        if dtype is np.float64:
            l1, l2 = hoyer.target_norms(x.size, float(value))
            assert l2 <= l1 * (1 + 4 * EPS)

    @for_all(problems())
    def test_of_a_projection_is_the_target(self, engine, problem):
        x, target = problem
        found = engine.solve(x, **target)
        n = x.size
        ratio = (
            target["l1"] / target["l2"] if "l1" in target else hoyer.target_norms(n, **target)[0]
        )
        wanted = (math.sqrt(n) - ratio) / (math.sqrt(n) - 1)
        spread = math.sqrt(n) / (math.sqrt(n) - 1)
        assert abs(engine.sparseness(found.value) - wanted) <= 80 * EPS * spread
