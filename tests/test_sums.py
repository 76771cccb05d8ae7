"""Algorithm 1 of the compiled core, for groups and vectors in parts, against long doubles."""

import numpy as np
import pytest
from reference import HAS_LONG_DOUBLE

from hoyer import price
from hoyer.families.numpy import _core

RNG = np.random.default_rng(20)


def sums(x, pivots, *, nonnegative=False, inner=1, swapped=False):
    """Return what the core says about each vector and pivot, by name."""
    pivots = np.atleast_2d(np.asarray(pivots, dtype=float))
    rows = x.size // int(np.prod(x.shape[x.ndim - inner :]))
    out = np.empty((rows, pivots.shape[1], len(_core.SUM_FIELDS)))
    _core.sums(x, pivots, inner, swapped, nonnegative, out)
    return dict(zip(_core.SUM_FIELDS, np.moveaxis(out, -1, 0), strict=True))


def check(x, pivots, *, nonnegative=False, **layout):
    """Compare with plain sums over rows of long doubles."""
    if not HAS_LONG_DOUBLE:
        pytest.skip("long doubles are doubles here")
    found = sums(x, pivots, nonnegative=nonnegative, **layout)
    entries = np.atleast_2d(x).astype(np.longdouble)
    if not nonnegative:
        entries = abs(entries)
    eps = np.finfo(float).eps
    smallest = np.finfo(float).smallest_subnormal
    for i, row in enumerate(entries.reshape(len(found["count"]), -1)):
        for j, pivot in enumerate(np.broadcast_to(np.atleast_2d(pivots), found["count"].shape)[i]):
            at = (i, j)
            above, rest = row[row > pivot], row[row <= pivot]
            assert found["count"][at] == above.size
            assert found["below"][at] == rest.max(initial=-np.inf)
            assert found["above"][at] == above.min(initial=np.inf)
            if above.size == 0:
                assert np.isnan(found["mean"][at])
                assert np.isnan(found["deviation"][at])
                continue
            # As differences from one of the entries equal ones have no deviation at all.
            t = above - above[0]
            mean = above[0] + t.mean()
            deviation = np.sqrt(((t - t.mean()) ** 2).mean())
            assert abs(found["mean"][at] - mean) <= 2 * eps * abs(above).max() + smallest
            assert abs(found["deviation"][at] - deviation) <= 8 * eps * deviation + smallest


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 100, 5000])
def test_against_long_double(n, dtype, nonnegative):
    x = RNG.standard_normal((5, n)).astype(dtype)
    check(x, RNG.standard_normal((5, 4)), nonnegative=nonnegative)
    check(x, [-10.0, 0.0, 0.3, 10.0], nonnegative=nonnegative)


def test_long_vectors():
    x = RNG.standard_normal((1, 700_001))
    check(x, [0.0, 1.0, 4.0])


def test_the_entry_at_the_pivot_is_below():
    x = np.array([[1.0, 2.0, 3.0]])
    found = sums(x, [2.0])
    assert [found[name].item() for name in ("count", "below", "above")] == [1, 2, 3]


def test_pivots_between_two_numbers_of_a_narrow_type():
    x = np.array([[1.0, np.nextafter(np.float32(1), np.float32(2))]], dtype=np.float32)
    check(x, [1.0, 1.0 + 1e-9, 1.0 - 1e-9, 1e300, -1e300], nonnegative=True)


def test_ties():
    x = np.repeat([0.1, 0.3, 0.7], [3, 400, 500])[None]
    check(x, [0.05, 0.1, 0.2, 0.3, 0.5, 0.7])
    found = sums(x, [0.3])
    assert [found[name].item() for name in ("mean", "deviation")] == [0.7, 0]


def test_small_differences_of_large_entries():
    x = 1e6 + 1e-9 * RNG.standard_normal((3, 1000))
    check(x, [0.0, 1e6])


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-160, 1e160, 1e300])
def test_extreme_sizes(size):
    x = np.round(100 * RNG.standard_normal((4, 50))) * size
    check(x, [[0.0, 30 * size, -30 * size]], nonnegative=True)
    check(x, [[0.0, 30 * size]])


def test_the_largest_numbers_of_both_signs():
    largest = np.finfo(float).max
    check(np.array([[largest, -largest, largest / 2, 0.0]]), [-np.inf, 0.0], nonnegative=True)


@pytest.mark.parametrize("view", [np.s_[::2, ::-3], np.s_[:, ::2], np.s_[::-1]])
def test_strides(view):
    x = RNG.standard_normal((8, 90))[view]
    check(x, RNG.standard_normal((len(x), 2)))


def test_transposed_and_swapped():
    x = RNG.standard_normal((40, 6))
    check(x.T, [0.5])
    found = sums(x.byteswap(), [0.5], swapped=True)
    for name, numbers in sums(x, [0.5]).items():
        np.testing.assert_array_equal(found[name], numbers)


def test_vectors_of_several_axes():
    x = RNG.standard_normal((3, 4, 5))
    check(x, [0.5], inner=2)


def test_not_finite():
    x = np.ones((3, 4))
    x[1, 2] = np.nan
    found = sums(x, [[0.5], [0.5], [np.nan]])
    assert np.isnan(found["count"]).ravel().tolist() == [False, True, True]


def test_the_names_are_those_that_vectors_together_use():
    assert _core.SUM_FIELDS == price.SUMS
    assert _core.SUMMARY_FIELDS == price.SUMMARY


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6, -1e6])
def test_summaries_and_what_they_spare(nonnegative, offset):
    """With a summary and references the sums are the same; a bracket divides them."""
    x = offset + RNG.standard_normal((4, 3000))
    known = np.empty((4, len(price.SUMMARY)))
    _core.summary(x, 1, False, nonnegative, known)
    y = x if nonnegative else abs(x)
    wanted = [y.min(1), y.max(1), y.mean(1), y.std(1)]
    np.testing.assert_allclose(known.T, wanted, rtol=1e-9)
    low, high = (np.quantile(y, q, axis=1) for q in (0.7, 0.8))
    plain, quick = (np.empty((4, 1, len(price.SUMS))) for _ in range(2))
    _core.sums(x, high[:, None], 1, False, nonnegative, plain)
    _core.sums(x, high[:, None], 1, False, nonnegative, quick, known, known[:, 2].copy())
    np.testing.assert_allclose(quick, plain, rtol=1e-12)
    above = np.empty((4, len(price.SUMS)))
    starts, entries = _core.between(
        x, low, high, 1, False, nonnegative, above, known, plain[:, 0, 1].copy()
    )
    np.testing.assert_allclose(above[:, :3], plain[:, 0, :3], rtol=1e-12)
    for i, row in enumerate(y):
        inside = row[(row > low[i]) & (row <= high[i])]
        np.testing.assert_array_equal(np.sort(entries[starts[i] : starts[i + 1]]), np.sort(inside))


def test_shapes_are_checked():
    x = np.ones((3, 4))
    out = np.empty((3, 2, len(_core.SUM_FIELDS)))
    with pytest.raises(ValueError, match="one row, or one per vector"):
        _core.sums(x, np.zeros((2, 2)), 1, False, False, out)
    with pytest.raises(ValueError, match="out is of another shape"):
        _core.sums(x, np.zeros((3, 1)), 1, False, False, out)
    with pytest.raises(ValueError, match="vectors without entries"):
        _core.sums(np.ones((3, 0)), np.zeros((3, 2)), 1, False, False, out)
