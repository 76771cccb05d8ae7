"""`project_together`: many vectors, one mean sparseness, on every engine, against exact arithmetic.

The mean is promised to 1e-12, whatever the entries are, and reached to 1e-15; shares are the best
ones, so that no other vectors of that mean are nearer.
"""

import math

import numpy as np
import pytest
from engines import ENGINES
from mpmath import mp, mpf
from reference import cost_together, exact_projection, exact_together

import hoyer
from hoyer import price
from hoyer.engines import core
from hoyer.paper import problems

# Dask arrays are refused (tests/test_dask.py).
pytestmark = pytest.mark.engines(*(name for name in ENGINES if not ENGINES[name].is_lazy))

MEAN = 1e-12
"""What is promised of the mean, of doubles."""


def mean_of(arrays, weights=None, axis=None):
    """The mean sparseness of vectors that have one, in exact arithmetic."""
    with mp.workprec(200):
        shares, counts = [], []
        for i, array in enumerate(arrays):
            rows = array.reshape(1, -1) if axis is None else array
            for row in rows:
                if row.size > 1 and np.any(row):
                    entries = [mpf(float(e)) for e in row]
                    root = mpf(row.size) ** mpf("0.5")
                    l1 = sum(map(abs, entries))
                    l2 = sum(e * e for e in entries) ** mpf("0.5")
                    shares.append((root - l1 / l2) / (root - 1))
                    counts.append(mpf(1 if weights is None else weights[i]))
        return float(sum(s * w for s, w in zip(shares, counts, strict=True)) / sum(counts))


def draw(rng, kind):
    """Draw some vectors of lengths from 2 to 12."""
    sizes = rng.integers(2, 13, size=rng.integers(1, 5))
    xs = [rng.standard_normal(n) for n in sizes]
    if kind == "scales":
        return [x * 10.0 ** rng.integers(-6, 7) for x in xs]
    if kind == "ties":
        return [np.round(x) for x in xs if np.round(x).any()] or [np.ones(3)]
    if kind == "constant":
        return [np.full(len(x), abs(x[0])) for x in xs]
    if kind == "offset":
        return [1e6 + x for x in xs]
    return xs


KINDS = ("normal", "scales", "ties", "constant", "offset")


# ---- against exact arithmetic ----


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
def test_against_the_exact_projection(engine, kind, nonnegative, rng, largest):
    for _ in range(max(2, engine.some(12))):
        xs, s = draw(rng, kind), float(rng.random())
        found = engine.project_together(xs, s, nonnegative=nonnegative)
        exact = exact_together(xs, s, nonnegative=nonnegative)
        off = abs(mean_of(found) - s)
        largest(f"{engine.name}: mean of vectors projected together", off)
        assert off <= MEAN
        cost = cost_together(xs, found, None)
        bound = sum(float(np.sum(x * x)) for x in xs)
        assert abs(float(cost - exact.cost)) <= 1e-13 * bound
        for x, p in zip(xs, found, strict=True):
            np.testing.assert_allclose(np.linalg.norm(p), np.linalg.norm(x), rtol=1e-14)
        if kind in ("normal", "scales"):
            for p, value in zip(found, exact.values, strict=True):
                wanted = np.array([float(e) for e in value])
                np.testing.assert_allclose(p, wanted, rtol=0, atol=1e-12 * abs(wanted).max())


@pytest.mark.parametrize(
    "options",
    [
        {"relative": True},
        {"floor": 0.3},
        {"weights": True},
        {"l2": True},
        {"only_increase": True},
        {"relative": True, "floor": 0.25, "weights": True, "nonnegative": True},
        {"only_increase": True, "nonnegative": True, "floor": 0.2},
    ],
    ids=str,
)
def test_options_against_the_exact_projection(options, rng):
    for trial in range(25):
        xs, s = draw(rng, KINDS[trial % 3]), float(rng.uniform(0.35, 0.95))
        numbers = {
            name: list(rng.uniform(0.5, 3.0, size=len(xs))) if options.get(name) is True else None
            for name in ("weights", "l2")
        }
        given = {name: value for name, value in options.items() if name not in numbers}
        given |= {name: value for name, value in numbers.items() if value is not None}
        found = hoyer.project_together(xs, s, **given)
        exact = exact_together(xs, s, **given)
        got, wanted = mean_of(found, numbers["weights"]), float(exact_mean(exact, numbers))
        assert abs(got - wanted) <= MEAN
        assert wanted >= s - 1e-15
        norms = numbers["l2"] or [float(np.linalg.norm(x)) for x in xs]
        cost = cost_together(xs, found, norms if options.get("relative") else None)
        scale = float(exact.cost) + sum(float(np.sum(x * x)) for x in xs) * 1e-1
        assert abs(float(cost - exact.cost)) <= 1e-12 * max(scale, 1.0)
        lowest = options.get("floor", 0.0)
        assert all(hoyer.sparseness(p) >= lowest - 1e-14 for p in found)


def exact_mean(exact, numbers):
    """The mean of the exact results; with `only_increase` they may be sparser than asked for."""
    values = [np.array([float(e) for e in value]) for value in exact.values]
    return mean_of(values, numbers["weights"])


def test_the_reference_itself(rng):
    """No other shares are better: two vectors, by a search over the ratio of the first."""
    s = 0.6
    for kind in ("normal", "scales"):
        xs = [draw(rng, kind)[0], rng.standard_normal(5)]
        exact = exact_together(xs, s)

        def cost(first, xs=xs):
            second = 2 * mpf(s) - first
            return cost_together(
                xs,
                [
                    exact_projection(x, sparseness=share, l2="keep").value
                    for x, share in zip(xs, (first, second), strict=True)
                ],
                None,
            )

        for step in (mpf("1e-3"), mpf("-1e-3"), mpf("0.05"), mpf("-0.05")):
            moved = exact.sparseness[0] + step
            if 0 <= moved <= 1 and 0 <= 2 * s - moved <= 1:
                assert cost(moved) > exact.cost


def test_nasty_vectors_of_every_kind(engine, rng, largest):
    """Any three vectors of the collection, whatever they are, meet the mean."""
    pool = [p.x for p in problems.collection(np.float64) if 2 <= p.x.size <= 64]
    for _ in range(max(4, engine.some(150))):
        xs = [pool[i] for i in rng.integers(len(pool), size=3)]
        s = float(rng.choice([0.0, 0.2, 0.7, 0.95, 1.0]))
        for relative in (False, True):
            found = engine.project_together(xs, s, relative=relative)
            if all(np.isfinite(p).all() for p in found) and any(p.any() for p in found):
                if min(abs(p).max() for p in found if p.any()) < 1e-290:
                    continue  # subnormal results have no digits to spare
                off = abs(mean_of(found) - s)
                largest(f"{engine.name}: mean of nasty vectors projected together", off)
                assert off <= MEAN, (xs, s, relative)


@pytest.mark.parametrize("spread", [1e-9, 1e-12, 1e-14, 1e-15])
def test_entries_that_hardly_differ(engine, spread, rng, largest):
    """Where rounding decides about supports the mean is met all the same."""
    for _ in range(max(4, engine.some(100))):
        xs = [
            1 + spread * rng.standard_normal(n) for n in rng.integers(2, 9, size=rng.integers(1, 4))
        ]
        for s in (float(rng.random()), 1 - 10.0 ** -rng.uniform(2, 12)):
            off = abs(mean_of(engine.project_together(xs, s)) - s)
            largest(f"{engine.name}: mean of entries that hardly differ", off)
            assert off <= MEAN
    x = np.array([1e15 - 1, 1e15, 1e15 - 1])
    (found,) = engine.project_together([x], 0.9305967252829377)
    np.testing.assert_allclose(found, engine.project(x, 0.9305967252829377, l2="keep"), rtol=1e-12)


def test_zeros_that_are_the_largest_entries(engine, rng, largest):
    """The price is 0 there, and zeros are tied."""
    a, b = np.array([0.0, 0, 0, -1]), np.array([0.0, 0, 0, 0, -0.1, 0, 0])
    assert abs(mean_of(engine.project_together([a, b], 0.6, nonnegative=True)) - 0.6) <= MEAN
    for _ in range(max(4, engine.some(100))):
        sizes = rng.integers(2, 8, size=rng.integers(1, 4))
        xs = [np.round(rng.standard_normal(n), 1) * (rng.random(n) < 0.5) for n in sizes]
        xs = [np.minimum(x, 0) if rng.random() < 0.6 else x for x in xs]
        if all(x.any() for x in xs):
            s = float(rng.random())
            found = engine.project_together(xs, s, nonnegative=True)
            assert abs(mean_of(found) - s) <= MEAN
            exact = exact_together(xs, s, nonnegative=True)
            assert abs(float(cost_together(xs, found, None) - exact.cost)) <= 1e-12
    shares = engine.project_together([np.zeros(4), np.zeros(9)], 0.6, l2=1.0)
    np.testing.assert_allclose([hoyer.sparseness(p) for p in shares], [1.0, 0.2], atol=1e-14)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1e300, 1e-300), (1e-300, 1e-300), (1e300, 1.0, 1e-300), (5e-320, 1)]
)
def test_sizes_at_the_ends_of_the_range(sizes, relative, rng):
    for s in (0.1, 0.9):
        xs = [np.round(8 * rng.standard_normal(9)) * size for size in sizes]
        found = hoyer.project_together(xs, s, relative=relative)
        exact = exact_together(xs, s, relative=relative, bits=2600)
        # Subnormal entries have few digits.
        assert abs(mean_of(found) - s) <= (MEAN if min(sizes) > 1e-310 else 1e-3)
        for p, share in zip(found, exact.sparseness, strict=True):
            np.testing.assert_allclose(hoyer.sparseness(p), float(share), atol=2e-3)


def test_one_vector_is_the_projection(engine, rng):
    x = rng.standard_normal(50)
    for s in (0.0, 0.3, 0.9, 1.0):
        (found,) = engine.project_together([x], s)
        np.testing.assert_allclose(found, engine.project(x, s, l2="keep"), rtol=0, atol=1e-14)


def test_equal_vectors_get_equal_shares(engine, rng):
    x = rng.standard_normal(30)
    found = engine.project_together([x, -x, x[::-1].copy()], 0.7)
    wanted = engine.project(x, 0.7, l2="keep")
    for p, sign in zip((found[0], found[1], found[2][::-1]), (1, -1, 1), strict=True):
        np.testing.assert_allclose(p, sign * wanted, rtol=0, atol=1e-13)


def test_one_shift_for_vectors_of_one_length_and_norm(rng):
    x = rng.standard_normal((6, 40))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    found = hoyer.project_together(x, 0.8, axis=-1)
    scales = [np.abs(row[row != 0]).max() for row in found]
    shifts = []
    for row, p in zip(x, found, strict=True):
        inside = p != 0
        # |x| = shift + beta |p| on the support.
        shifts.append(np.polyfit(abs(p[inside]), abs(row[inside]), 1)[1])
    np.testing.assert_allclose(shifts, shifts[0], rtol=1e-12)
    assert len(set(np.round(scales, 6))) > 1


# ---- long vectors, many vectors ----


@pytest.mark.engines("numpy/core", "torch/core")
def test_long_vectors_are_found_from_a_sample(engine, rng):
    xs = [rng.standard_normal(n).astype(np.float32) for n in (300_000, 20_000, 70_001)]
    found = engine.project_together(xs, 0.8)
    slow = hoyer.project_together([x.astype(float) for x in xs], 0.8)
    for p, wanted in zip(found, slow, strict=True):
        np.testing.assert_allclose(p, wanted, rtol=0, atol=3e-7 * abs(wanted).max())
    assert abs(np.mean([hoyer.sparseness(p) for p in slow]) - 0.8) < 1e-14


def test_the_sample_changes_nothing(rng, monkeypatch):
    """Where the search begins is not where it ends: heavy tails deceive any sample."""
    for draws in (rng.standard_cauchy, rng.standard_normal):
        xs = [draws(n) for n in (200_000, 100_000, 50_000)]
        sampled = hoyer.project_together(xs, 0.6)
        with monkeypatch.context() as patch:
            patch.setattr(core, "sample_sizes", lambda lengths, rows: None)
            plain = hoyer.project_together(xs, 0.6)
        for p, q in zip(sampled, plain, strict=True):
            np.testing.assert_allclose(p, q, rtol=0, atol=1e-12 * abs(q).max())


def test_few_passes(rng):
    """A pass reads all the data: there must not be many."""
    from hoyer.engines.core import Members

    def passes(xs, s):
        members = Members([(x, 1, False) for x in xs], False)
        many = len(xs)
        asked = price.Asked(
            s, ["keep"] * many, [0.0] * many, [None] * many, False, False, False, True
        )
        return price.shares_of(members, asked, [""] * many).passes

    xs = [rng.standard_normal(n) for n in (300, 3000, 30_000, 300_000)]
    assert max(passes(xs, s) for s in (0.1, 0.5, 0.9, 0.99)) <= 8
    nasty = [2.0 ** -np.arange(-500.0, 500.0), -(3.0 ** -np.arange(300.0))]
    assert max(passes(nasty, s) for s in (0.1, 0.5, 0.9, 0.99)) <= 60


def test_rows_of_one_array(engine, rng):
    x = rng.standard_normal((40, 16)) * rng.lognormal(size=(40, 1))
    found = engine.project_together([x], 0.6, axis=-1)[0]
    listed = engine.project_together(list(x), 0.6)
    np.testing.assert_allclose(found, listed, rtol=0, atol=1e-12)
    assert abs(mean_of([found], axis=-1) - 0.6) <= MEAN


# ---- what may be given ----


class TestStructures:
    def test_a_list_a_tuple_a_dict_and_an_array(self, rng):
        x, y = rng.standard_normal(7), rng.standard_normal((2, 3))
        listed = hoyer.project_together([x, y], 0.5)
        assert type(listed) is list
        assert [p.shape for p in listed] == [(7,), (2, 3)]
        tupled = hoyer.project_together((x, y), 0.5)
        assert type(tupled) is tuple
        named = hoyer.project_together({"a": x, "b": y}, 0.5)
        assert list(named) == ["a", "b"]
        single = hoyer.project_together(np.stack([x, -2 * x]), 0.5, axis=1)
        assert type(single) is np.ndarray
        for p, q in zip(listed, [*named.values()], strict=True):
            np.testing.assert_array_equal(p, q)
        np.testing.assert_array_equal(listed[1], tupled[1])
        assert hoyer.project_together([], 0.5) == []
        assert hoyer.project_together({}, 0.5) == {}

    def test_numbers_for_each(self, rng):
        x, y = rng.standard_normal((2, 9))
        for weights in ([1.0, 3.0], np.array([1.0, 3.0]), (1, 3)):
            found = hoyer.project_together([x, y], 0.5, weights=weights)
            shares = [hoyer.sparseness(p) for p in found]
            assert abs((shares[0] + 3 * shares[1]) / 4 - 0.5) < 1e-14
        named = hoyer.project_together({"a": x, "b": y}, 0.5, weights={"b": 3.0, "a": 1.0})
        np.testing.assert_array_equal(named["a"], found[0])
        rows = hoyer.project_together(np.stack([x, y]), 0.5, weights=[1.0, 3.0], axis=-1)
        np.testing.assert_allclose(rows[0], found[0], rtol=0, atol=1e-14)
        floors = hoyer.project_together([x, y], 0.5, floor=[0.49, 0.0])
        assert hoyer.sparseness(floors[0]) >= 0.49 - 1e-15

    def test_an_axis_for_each(self, rng):
        x, y = rng.standard_normal((4, 5)), rng.standard_normal((3, 2, 6))
        found = hoyer.project_together([x, y], 0.5, axis=[0, (1, 2)])
        shares = [*hoyer.sparseness(found[0], axis=0), *hoyer.sparseness(found[1], axis=(1, 2))]
        assert len(shares) == 8
        assert abs(np.mean(shares) - 0.5) < 1e-14

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_types_and_strides(self, dtype, rng):
        x = rng.standard_normal((40, 30)).astype(dtype)
        for view in (x, x.T, x[::2, ::-3], x.astype(x.dtype.newbyteorder()), np.asfortranarray(x)):
            found = hoyer.project_together([view, x[0].copy()], 0.5)
            again = hoyer.project_together([np.array(view, dtype), x[0].copy()], 0.5)
            assert found[0].dtype == dtype
            for p, q in zip(found, again, strict=True):
                np.testing.assert_array_equal(p, q)

    def test_integers_and_lists_of_numbers(self):
        found = hoyer.project_together([np.array([3, 1, 0]), [1.0, 5.0]], 0.5)
        assert [p.dtype for p in found] == [np.float64] * 2

    def test_out(self, rng):
        xs = [rng.standard_normal(5), rng.standard_normal((3, 4))]
        wanted = hoyer.project_together(xs, 0.6)
        places = [np.empty(5), np.empty((3, 4))]
        assert hoyer.project_together(xs, 0.6, out=places) is places
        for p, q in zip(places, wanted, strict=True):
            np.testing.assert_array_equal(p, q)
        assert hoyer.project_together(xs, 0.6, out=xs) is xs
        np.testing.assert_array_equal(xs[1], wanted[1])

    def test_out_in_the_memory_of_others(self, rng):
        """Each result is right, whatever lies where it goes; and nothing is written too early."""
        a, b = rng.standard_normal((2, 6))
        wanted = hoyer.project_together([a, b], 0.6, weights=[1.0, 3.0])
        x, y = a.copy(), b.copy()
        hoyer.project_together([x, y], 0.6, weights=[1.0, 3.0], out=[y, x])
        np.testing.assert_array_equal([y, x], wanted)
        columns = np.stack([a, b], axis=1)
        hoyer.project_together(list(columns.T), 0.6, weights=[1.0, 3.0], out=list(columns.T))
        np.testing.assert_array_equal(columns.T, wanted)

    @pytest.mark.parametrize("bad", ["shape", "dtype", "read-only"])
    def test_nothing_is_written_where_a_place_does_not_fit(self, bad, rng):
        a, b = rng.standard_normal((2, 6))
        before, place = (
            a.copy(),
            np.empty(5 if bad == "shape" else 6, "f4" if bad == "dtype" else "f8"),
        )
        place.flags.writeable = bad != "read-only"
        with pytest.raises(ValueError, match=bad if bad != "shape" else "shape"):
            hoyer.project_together([a, b], 0.6, out=[a, place])
        np.testing.assert_array_equal(a, before)
        with pytest.raises(ValueError, match="float16"):
            hoyer.project_together([a, b.astype("f2")], 0.6, l2=1e6, out=[a, np.empty(6, "f2")])
        np.testing.assert_array_equal(a, before)

    def test_vectors_without_a_sparseness(self, engine, rng):
        x = rng.standard_normal(9)
        given = [np.zeros(4), x, np.array([-2.0])]
        found = engine.project_together(given, 0.7)
        assert not found[0].any()
        np.testing.assert_allclose(found[1], engine.project(x, 0.7, l2="keep"), atol=1e-14)
        np.testing.assert_array_equal(found[2], [-2.0])
        found = engine.project_together(given, 0.7, l2=3.0)
        np.testing.assert_allclose([np.linalg.norm(p) for p in found], 3.0)
        shares = [float(hoyer.sparseness(p)) for p in found[:2]]
        assert abs(np.mean(shares) - 0.7) < MEAN

    def test_empty_batches(self):
        found = hoyer.project_together([np.zeros((0, 5)), np.arange(4.0)], 0.5, axis=-1)
        assert found[0].shape == (0, 5)
        assert abs(hoyer.sparseness(found[1]) - 0.5) < 1e-15

    def test_only_increase_keeps_what_is_sparse_enough(self, engine):
        xs = [np.array([3.0, 0.0, 0.0, 0.0]), np.array([1.0, 0.5, 0.0])]
        found = engine.project_together(xs, 0.5, only_increase=True)
        for p, x in zip(found, xs, strict=True):
            np.testing.assert_allclose(p, x, rtol=1e-15)
        found = engine.project_together(xs, 0.95, only_increase=True)
        assert abs(mean_of(found) - 0.95) <= MEAN

    def test_zeros_stay_where_it_is_projected_again(self, engine, rng):
        for s in (0.4, 0.8):
            xs = [rng.standard_normal(n) for n in (5, 40, 300)]
            once = engine.project_together(xs, s)
            twice = engine.project_together(once, s)
            for p, q in zip(once, twice, strict=True):
                assert not q[p == 0].any()
                np.testing.assert_allclose(q, p, rtol=0, atol=1e-13)

    def test_the_first_of_tied_vectors_are_made_sparser(self):
        found = hoyer.project_together([np.ones(4), np.ones(4), np.ones(4)], 0.5)
        shares = [float(hoyer.sparseness(p)) for p in found]
        np.testing.assert_allclose(shares, [1.0, 0.5, 0.0], atol=1e-15)


class TestNotFinite:
    def test_said_with_the_name_of_the_array(self):
        for arrays, name in (
            ([np.ones(3), np.array([1.0, np.nan])], r"arrays\[1\]"),
            ({"w": np.array([[1.0, 2.0], [np.inf, 3.0]])}, r"arrays\['w'\]"),
        ):
            with pytest.raises(ValueError, match=name + " has (nan|inf) at entry"):
                hoyer.project_together(arrays, 0.5, axis=-1)

    def test_nothing_is_written_in_place(self, rng):
        xs = [rng.standard_normal(5), np.array([1.0, np.nan])]
        before = xs[0].copy()
        with pytest.raises(ValueError, match="nan"):
            hoyer.project_together(xs, 0.5, out=xs)
        np.testing.assert_array_equal(xs[0], before)

    def test_left_out_of_the_mean(self, engine, rng):
        x = rng.standard_normal(9)
        found = engine.project_together([x, np.array([1.0, math.nan])], 0.6, check_finite=False)
        assert np.isnan(found[1]).all()
        np.testing.assert_allclose(found[0], engine.project(x, 0.6, l2="keep"), atol=1e-14)


X, OUT = np.array([1.0, 2.0, 3.0]), np.empty(3)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (([X], 1.5), {}, ValueError, r"sparseness must lie in \[0, 1\], got 1.5"),
        (([X], [0.5]), {}, ValueError, "the mean is one number"),
        (([X], None), {}, ValueError, "the mean is one number"),
        (([X], 0.5), {"l2": "nearest"}, ValueError, "no single best share"),
        (([X], 0.5), {"l2": "keeps"}, ValueError, "must be 'keep', or a number"),
        (([X, X], 0.5), {"l2": ["nearest", "keep"]}, ValueError, "no single best share"),
        (([X], 0.5), {"l2": None}, ValueError, "must be 'keep', or a number"),
        (([X], 0.5), {"floor": None}, ValueError, "must be a number"),
        (([X, X], 0.5), {"weights": [1e300, 1e-300]}, ValueError, "counts for nothing"),
        (([X, X], 0.5), {"out": [np.empty(3), None]}, TypeError, "out must be a NumPy array"),
        (([X, 2 * X], 0.5), {"out": [OUT, OUT]}, ValueError, "the same array twice"),
        (([X], 0.5), {"l2": -1.0}, ValueError, "must be positive and finite"),
        (([X], 0.5), {"floor": 1.2}, ValueError, "between 0 and 1"),
        (([X], 0.5), {"floor": 0.6}, ValueError, "above sparseness=0.5"),
        (([X], 0.5), {"weights": [0.0]}, ValueError, "must be positive and finite"),
        (([X], 0.5), {"weights": [1.0, 2.0]}, ValueError, "2 entries for 1 arrays"),
        (([X], 0.5), {"relative": 1}, TypeError, "relative=1: must be True or False"),
        (([X], 0.5), {"nonnegative": 1}, TypeError, "must be True or False"),
        (([X], 0.5), {"axis": 3}, ValueError, "axis=3"),
        (([X], 0.5), {"dim": 0}, TypeError, "axis here"),
        (([X], 0.5), {"out": [np.empty(4)]}, ValueError, "out has shape"),
        (([X], 0.5), {"out": X}, ValueError, "out is not structured like arrays"),
        (({"a": X}, 0.5), {"weights": {"b": 1.0}}, ValueError, "none for 'a'"),
        (({"a": X}, 0.5), {"weights": [1.0]}, TypeError, "give a dict of the same names"),
        (([X], 0.5), {"weights": {"b": 1.0}}, TypeError, "as arrays are given"),
        (([1.0, 2.0], 0.5), {}, TypeError, "a list of numbers"),
        (([("a", X)], 0.5), {}, TypeError, "pass a dict"),
        ((iter([X]), 0.5), {}, TypeError, "pass a list or a dict"),
        (([np.array(["a"])], 0.5), {}, TypeError, "real numbers"),
        (([np.zeros((3, 0))], 0.5), {}, ValueError, "without entries"),
    ],
)
def test_what_makes_no_sense(arguments, options, error, words):
    with pytest.raises(error, match=words):
        hoyer.project_together(*arguments, **options)


def test_arrays_of_two_families():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="arrays of one family"):
        hoyer.project_together([X, torch.ones(3)], 0.5)


def test_sparse_arrays_are_refused():
    scipy = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"arrays\[0\] is a SciPy sparse array"):
        hoyer.project_together([scipy.csr_array(np.eye(3))], 0.5)
