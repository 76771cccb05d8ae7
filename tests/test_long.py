"""One long vector: written backwards, in parts, past the caches; the same bits in any room."""

import itertools

import numpy as np
import pytest
from plans import own_plan

import hoyer
from hoyer import _core
from hoyer.options import Options

PART = 1 << 18  # entries per task
LONG = (1 << 24) + 17  # 64 MiB of floats: beyond the last-level cache, and a part of 17 entries
SEVERAL = 2 * PART + 1234
NEVER = 1 << 60


@pytest.fixture
def threads():
    """Set the number of threads for one test."""
    before = hoyer.get_num_threads()
    yield hoyer.set_num_threads
    hoyer.set_num_threads(before)


@pytest.fixture(scope="module")
def x():
    values = np.random.default_rng(0).standard_normal(LONG, dtype=np.float32)
    values.flags.writeable = False
    return values


@pytest.fixture(scope="module")
def room():
    """Memory for `x` at any offset from a cache line, as entries and as a buffer around them."""
    store = np.empty(LONG + 64, np.float32)
    line = -store.ctypes.data // 4 % 16

    def at(offset):
        begin = 16 + line + offset
        store[:begin] = store[begin + LONG :] = 7
        return store[
            begin : begin + LONG
        ], lambda: (store[:begin] == 7).all() and (store[begin + LONG :] == 7).all()

    return at


def same(a, b):
    """The same bits, signs of zeros included, without a copy of either."""
    kind = f"u{a.itemsize}"
    return a.dtype == b.dtype and np.array_equal(a.view(kind), b.view(kind))


def run(x, out, sparseness, *, nonnegative=False, **thresholds):
    """Project with other thresholds than the default ones; return the reads of the vector."""
    options = Options(sparseness, None, None, -1, nonnegative, False, "auto", True)
    plan = own_plan(x.size, options)
    plan.sample(**thresholds)
    records = np.empty((1, len(_core.RECORD_FIELDS)))
    in_place = np.shares_memory(x, out)
    assert _core.project(x, out, plan, 1, in_place, False, False, records) == -1
    return records[0, _core.RECORD_FIELDS.index("evaluations")]


def sparse_run(x, sparseness, **thresholds):
    """The same through the sparse result, as a dense array."""
    plan = own_plan(x.size, Options(sparseness, None, None, -1, False, False, "auto", True))
    plan.sample(**thresholds)
    bad, starts, indices, raw = _core.project_sparse(x, plan, 1, False)
    assert bad == -1
    values = raw.view(x.dtype)
    assert starts.tolist() == [0, values.size]
    assert (np.diff(indices) > 0).all()
    assert values.all()
    dense = np.zeros_like(x)
    dense[indices] = values
    return dense


class TestAnyOffset:
    """Whole cache lines are written past the caches: what comes before and after them is not."""

    @pytest.mark.parametrize("sparseness", [0.9, 0.9995])  # the second: few entries among zeros
    def test_project(self, x, room, sparseness):
        expected = hoyer.project_(x.copy(), sparseness)  # in place nothing goes past the caches
        shift, scale = (getattr(hoyer.solve(x, sparseness), name) for name in ("shift", "scale"))
        picked = np.flatnonzero(expected)[:: max(1, np.count_nonzero(expected) // 1000)]
        by_formula = (np.abs(x[picked], dtype=np.float64) - shift) / scale * np.sign(x[picked])
        np.testing.assert_allclose(expected[picked], by_formula, rtol=0, atol=1e-7)
        for offset in range(16):
            out, rest_is_untouched = room(offset)
            out[...] = np.nan
            assert hoyer.project(x, sparseness, out=out) is out
            assert same(out, expected)
            assert rest_is_untouched()
        for offset in (0, 1, 15):
            out, rest_is_untouched = room(offset)
            out[...] = x
            hoyer.project_(out, sparseness)
            assert same(out, expected)
            assert rest_is_untouched()

    @pytest.mark.parametrize("method", ["jvp", "vjp"])
    def test_products(self, x, room, method):
        found = hoyer.solve(x, 0.9)
        call = getattr(found, method)
        expected = x.copy()
        call(expected, out=expected)
        assert np.count_nonzero(expected) == np.count_nonzero(found.value)
        for offset in (0, 1, 7, 15):
            out, rest_is_untouched = room(offset)
            out[...] = np.nan
            call(x, out=out)
            assert same(out, expected)
            assert rest_is_untouched()

    @pytest.mark.parametrize("dtype", [np.float16, np.float64])
    def test_other_types(self, dtype):
        n = (1 << 24) + 1000 if dtype == np.float16 else (1 << 22) + 1000
        x = np.random.default_rng(1).standard_normal(n, dtype=np.float32).astype(dtype)
        expected = hoyer.project_(x.copy(), 0.9)
        per_line = 64 // x.itemsize
        store = np.empty(n + 3 * per_line, dtype)
        line = -store.ctypes.data // x.itemsize % per_line
        for offset in (0, 1, per_line - 1):
            store[...] = 7
            out = store[line + offset :][:n]
            hoyer.project(x, 0.9, out=out)
            assert same(out, expected)
            assert (store[: line + offset] == 7).all()
            assert (store[line + offset + n :] == 7).all()

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_a_last_part_that_ends_before_the_next_cache_line(self, dtype, run_python):
        run_python(f"""
            import numpy as np, hoyer
            dtype = np.dtype("{dtype}")
            generator, per_line = np.random.default_rng(0), 64 // dtype.itemsize
            whole = (1 << 26) // dtype.itemsize
            x = generator.standard_normal(whole + per_line, dtype=np.float32).astype(dtype)
            store = np.empty(x.size + 3 * per_line, dtype)
            line = -store.ctypes.data // dtype.itemsize % per_line
            for more, offset in ((1, 1), (5, 3), (per_line - 1, 1), (2, per_line // 2)):
                given = x[: whole + more]
                expected = hoyer.project_(given.copy(), 0.9)
                store[...] = 7
                begin = line + offset
                out = store[begin : begin + given.size]
                hoyer.project(given, 0.9, out=out)
                assert np.array_equal(out, expected)
                assert (store[:begin] == 7).all() and (store[begin + given.size :] == 7).all()
        """)


class TestPositions:
    """Where little is left, its places are noted and everything else is filled with zeros."""

    @pytest.mark.parametrize("sparseness", [0.6, 0.9, 0.99])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("count", [1, 2])
    def test_with_and_without(self, sparseness, dtype, count, threads):
        threads(count)
        x = np.random.default_rng(2).standard_normal(SEVERAL, dtype=np.float32).astype(dtype)
        expected, value = np.full_like(x, np.nan), np.full_like(x, np.nan)
        assert run(x, expected, sparseness, rare=0.0) == 1
        assert run(x, value, sparseness, rare=1.0, buffer_bytes=1 << 26) == 1
        assert same(value, expected)
        assert same(sparse_run(x, sparseness, rare=1.0, buffer_bytes=1 << 26), expected)
        assert same(sparse_run(x, sparseness, rare=0.0), expected)
        in_place = x.copy()
        run(in_place, in_place, sparseness, rare=1.0, buffer_bytes=1 << 26)
        assert same(in_place, expected)

    def test_past_the_caches(self, x, room):
        expected = hoyer.project_(x.copy(), 0.999)
        for offset in (0, 5):
            out, rest_is_untouched = room(offset)
            for rare in (0.0, 1.0):
                out[...] = np.nan
                assert run(x, out, 0.999, rare=rare) == 1
                assert same(out, expected)
                assert rest_is_untouched()

    @pytest.mark.parametrize("sparseness", [0.5, 0.9, 0.9995])
    def test_sparse_results(self, x, sparseness):
        found = hoyer.project_sparse(x, sparseness)
        dense = np.zeros_like(x)
        dense[found.coords[0]] = found.data
        assert same(dense, hoyer.project(x, sparseness))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_places_of_a_bracket_that_missed_are_forgotten(self, dtype):
        rng = np.random.default_rng(3)
        narrow = {"shortest": 600, "longest_lane": 0, "standard_errors": 0.05, "rare": 1.0}
        for n in (600, 1000, 3000, 5000):
            for sparseness in (0.5, 0.7, 0.87, 0.95):
                for _ in range(5):
                    x = rng.normal(size=n).astype(dtype)
                    value, expected = np.empty_like(x), np.empty_like(x)
                    run(x, value, sparseness, **narrow)
                    run(x, expected, sparseness, shortest=NEVER, longest_lane=0, rough=False)
                    limit = 4 * float(np.finfo(dtype).eps) * np.abs(expected).max()
                    assert np.abs(value - expected).max() <= limit
                    assert same(sparse_run(x, sparseness, **narrow), value)

    def test_a_sample_that_deceives(self):
        n, share = 1 << 21, 512
        x = np.random.default_rng(1).normal(size=n).astype(np.float32)
        place, lines = 0.5, x.reshape(-1, 16)
        for i in range(256):  # the lines that Sampled::draw takes
            place = (place + 0.6180339887498949) % 1
            lines[int((i + place) * share)] *= np.float32(1.1)
        sparseness = 1 - ((6.05 * share) ** 0.5 - 1) / (n**0.5 - 1)
        expected = hoyer.project(x, sparseness, solver="newton_sqr")
        limit = 32 * float(np.finfo(np.float32).eps) * np.abs(expected).max()
        assert np.abs(hoyer.project(x, sparseness) - expected).max() <= limit


KINDS = {
    "normal": lambda r, n: r.standard_normal(n),
    "uniform": lambda r, n: r.random(n),
    "heavy tails": lambda r, n: r.standard_cauchy(n),
    "sorted": lambda r, n: np.sort(r.standard_normal(n)),
    "blocks": lambda r, n: np.repeat(r.standard_normal(n // 4096 + 1), 4096)[:n],
    "few values": lambda r, n: r.integers(-9, 9, n).astype(float),
    "one outlier": lambda r, n: np.concatenate([r.standard_normal(n - 1), [1e6]]),
    "mostly zero": lambda r, n: np.where(r.random(n) < 0.01, r.standard_normal(n), 0),
    "scaled": lambda r, n: r.standard_normal(n) * 1e-30,
}
CALLS = {
    "project": lambda x: hoyer.project(x, 0.9),
    "in place": lambda x: hoyer.project_(x.copy(), 0.9),
    "whole support": lambda x: hoyer.project(x, 0.01),
    "keep": lambda x: hoyer.project(x, 0.9, l2="keep", nonnegative=True),
    "nearest": lambda x: hoyer.project(x, 0.9, l2="nearest"),
    "only increase": lambda x: hoyer.project(x, 0.3, only_increase=True),
    "newton": lambda x: hoyer.project(x, 0.9, solver="newton"),
    "sparse": lambda x: hoyer.project_sparse(x, 0.9).toarray(),
    "sparseness": lambda x: np.asarray(hoyer.sparseness(x)),
}


class TestThreads:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_every_function_on_every_kind(self, kind, dtype, threads):
        x = KINDS[kind](np.random.default_rng(4), SEVERAL).astype(dtype)
        alone = {}
        for count in (1, 2, 5):
            threads(count)
            for name, call in CALLS.items():
                value = call(x)
                if count == 1:
                    alone[name] = value
                assert same(value, alone[name]), name
        assert same(alone["in place"], alone["project"])
        assert same(alone["sparse"], alone["project"])

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @pytest.mark.parametrize("form", [{}, {"l2": "keep"}, {"l2": "nearest"}], ids=str)
    def test_derivatives_and_records(self, dtype, form, threads):
        x, y = np.random.default_rng(5).standard_normal((2, SEVERAL), np.float32).astype(dtype)
        for sparseness in (0.02, 0.9):
            alone = None
            for count in (1, 2, 5):
                threads(count)
                found = hoyer.solve(x, sparseness, **form)
                results = [found.value, found.jvp(y), found.vjp(y), *found.target_gradient()]
                in_place = y.copy()
                results.append(found.vjp(in_place, out=in_place))
                fields = ("shift", "scale", "support_size", "evaluations", "unique", "l1", "l2")
                numbers = [float(getattr(found, field)) for field in fields]
                assert same(results[-1], results[2])
                if alone is None:
                    alone = results, numbers
                assert numbers == alone[1]
                assert all(same(a, b) for a, b in zip(results, alone[0], strict=True))

    @pytest.mark.parametrize(
        "thresholds",
        [
            {"standard_errors": 0.02},
            {"standard_errors": 0.02, "rough": False},
            {"buffer_bytes": 1 << 16},
            {"buffer_bytes": 1 << 18, "fewest": 1.0},
            {"standard_errors": 20.0, "fewest": 20.0},
            {"rough": False, "shortest": NEVER},
            {"shortest": NEVER},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("kind", ["normal", "heavy tails", "sorted"])
    def test_every_search(self, kind, thresholds, threads):
        x = KINDS[kind](np.random.default_rng(6), SEVERAL).astype(np.float32)
        full = np.empty_like(x)
        run(x, full, 0.8, shortest=NEVER, rough=False)
        threads(1)
        alone = np.empty_like(x)
        reads = run(x, alone, 0.8, **thresholds)
        limit = 4 * float(np.finfo(np.float32).eps) * np.abs(full).max()
        assert np.abs(alone - full).max() <= limit
        for count in (2, 5):
            threads(count)
            value = np.empty_like(x)
            assert run(x, value, 0.8, **thresholds) == reads
            assert same(value, alone)
            in_place = x.copy()
            run(in_place, in_place, 0.8, **thresholds)
            assert same(in_place, alone)
        assert same(sparse_run(x, 0.8, **thresholds), alone)

    def test_the_longest(self, x, threads):
        threads(1)
        value, sparseness = hoyer.project(x, 0.95), hoyer.sparseness(x)
        for count in (2, 5):
            threads(count)
            assert same(hoyer.project(x, 0.95), value)
            assert hoyer.sparseness(x) == sparseness


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("sparseness", [0.5, 0.9, 0.9995])
def test_nan_in_any_part(count, sparseness, threads):
    threads(count)
    x = np.random.default_rng(7).standard_normal(SEVERAL, dtype=np.float32)
    for place in (0, 1, PART - 1, PART, 2 * PART + 5, SEVERAL - 1):
        for bad in (np.nan, -np.inf):
            spoilt = x.copy()
            spoilt[place] = bad
            before = spoilt.copy()
            words = f"x has {bad} at entry {place};"
            with pytest.raises(ValueError, match=words):
                hoyer.project_(spoilt, sparseness)
            assert same(spoilt, before)
            out = np.full_like(x, 7)
            with pytest.raises(ValueError, match=words):
                hoyer.project(spoilt, sparseness, out=out)
            assert (out == 7).all()  # a single vector is read before it is written
            with pytest.raises(ValueError, match=words):
                hoyer.project_sparse(spoilt, sparseness)
    assert np.isnan(hoyer.project(spoilt, sparseness, check_finite=False)).all()
    assert np.isnan(hoyer.sparseness(spoilt))


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_ramps_deceive_the_sample(power):
    # What is found after a miss must be written where it is, not where the missed bracket was.
    x = np.linspace(0, 1, 10**6) ** power
    for sparseness in (0.9, 0.97, 0.99):
        p = hoyer.project(x, sparseness)
        assert hoyer.sparseness(p) == pytest.approx(sparseness, abs=1e-12)
        assert np.linalg.norm(p) == pytest.approx(1, abs=1e-13)


class TestHeavyTails:
    """A few entries that a sample has or lacks decide; mostly two readings are enough still."""

    DRAWS = {  # noqa: RUF012
        "lognormal": lambda rng, n: rng.lognormal(size=n),
        "wider": lambda rng, n: rng.lognormal(sigma=2, size=n),
        "three degrees of freedom": lambda rng, n: rng.standard_t(3, n),
        "two": lambda rng, n: rng.standard_t(2, n),
        "Cauchy": lambda rng, n: rng.standard_cauchy(n),
        "even heavier": lambda rng, n: rng.standard_cauchy(n) ** 3,
    }

    @pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
    @pytest.mark.parametrize("kind", DRAWS)
    def test_exact_in_few_readings(self, kind, nonnegative):
        limits = np.finfo(np.float32)
        reads = []
        for n, sparseness in itertools.product(
            (1 << 14, 1 << 16, 1 << 18), (0.3, 0.5, 0.75, 0.9, 0.99, 0.999)
        ):
            x = self.DRAWS[kind](np.random.default_rng(n), n)
            x = np.clip(x, -1e30, 1e30).astype(np.float32)
            value, full = np.empty_like(x), np.empty_like(x)
            reads.append(run(x, value, sparseness, nonnegative=nonnegative))
            run(x, full, sparseness, nonnegative=nonnegative, shortest=NEVER, rough=False)
            assert np.abs(value - full).max() <= 4 * float(limits.eps) * np.abs(full).max()
        assert max(reads) <= 12
        # Squares of the heaviest are too large for sums of floats, and no sample is looked at.
        if kind != "even heavier":
            assert np.mean(np.array(reads) <= 3) >= 0.8


class TestLongerThanTheBuffer:
    """Where a bracket has too many entries for the buffer, it is narrowed; few readings do."""

    DRAWS = {  # noqa: RUF012
        "uniform": lambda rng, n: rng.random(n),
        "normal": lambda rng, n: rng.normal(size=n),
        "lognormal": lambda rng, n: rng.lognormal(size=n),
        "three degrees of freedom": lambda rng, n: rng.standard_t(3, n),
        "integers": lambda rng, n: rng.integers(0, 100, n),
    }

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("kind", DRAWS)
    def test_exact_in_few_readings(self, kind, dtype):
        n, reads = 1 << 22, []
        for seed, sparseness in itertools.product(range(2), (0.5, 0.75, 0.9)):
            x = self.DRAWS[kind](np.random.default_rng(seed), n).astype(dtype)
            value, full = np.empty_like(x), np.empty_like(x)
            # As much room for its length as there is for 2^26 doubles.
            reads.append(run(x, value, sparseness, buffer_bytes=n * x.itemsize // 128))
            run(x, full, sparseness, shortest=NEVER, rough=False)
            assert np.abs(value - full).max() <= 4 * np.finfo(dtype).eps * np.abs(full).max()
        assert max(reads) >= 2  # the bracket was too wide at least once
        assert np.mean(np.array(reads) <= 3) >= 0.8
