"""Vectors that are not contiguous pass through tiles: the same bits for any strides."""

import sys

import numpy as np
import pytest
from conftest import SOLVERS

import hoyer

FLOATS = (np.float16, np.float32, np.float64)
# Tiles have 16 vectors of floats, 8 of doubles: none, less than one, one, one and a bit, several.
BATCHES = (1, 7, 8, 9, 15, 16, 17, 33, 100)
TILE_LIMIT = 1 << 14  # longer vectors are copied one at a time


def columns(x):
    """The rows of x as columns of a C-ordered array."""
    return np.ascontiguousarray(x.T)


def bits(a):
    return np.ascontiguousarray(a).tobytes()


# An array of vectors (batch, n) -> the same vectors in another layout, and the axis they lie along.
LAYOUTS = {
    "columns": lambda x: (columns(x), 0),
    "F rows": lambda x: (np.array(x, order="F"), -1),
    "F columns": lambda x: (np.array(x.T, order="F"), 0),
    "columns upwards": lambda x: (columns(x[:, ::-1])[::-1], 0),
    "columns from the right": lambda x: (columns(x[::-1])[:, ::-1], 0),
    "both": lambda x: (columns(x[::-1, ::-1])[::-1, ::-1], 0),
    "columns of a wider array": lambda x: (np.pad(columns(x), ((1, 2), (3, 5)))[1:-2, 3:-5], 0),
    "every second column": lambda x: (np.repeat(columns(x), 2, axis=1)[:, ::2], 0),
    "every third entry": lambda x: (np.repeat(columns(x), 3, axis=0)[::3], 0),
    "byte-swapped columns": lambda x: (columns(x).astype(x.dtype.newbyteorder()), 0),
    "rows backwards": lambda x: (np.ascontiguousarray(x[:, ::-1])[:, ::-1], -1),
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
each_float = pytest.mark.parametrize("dtype", FLOATS)


def as_rows(x, axis):
    """Vectors along `axis` as rows in native byte order."""
    return np.moveaxis(x, axis, -1).astype(x.dtype.newbyteorder("="))


@each_layout
@each_float
class TestMatrices:
    @pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 40, 300])
    def test_project(self, layout, dtype, n, rng):
        target = {"sparseness": 0.7} if n > 1 else {"l1": 2.0, "l2": 2.0}
        for batch in BATCHES:
            x = rng.normal(size=(batch, n)).astype(dtype)
            y, axis = LAYOUTS[layout](x)
            before = y.copy()
            expected = hoyer.project(x, **target)
            assert bits(as_rows(hoyer.project(y, **target, axis=axis), axis)) == bits(expected)
            assert bits(y) == bits(before)
            # Into an array of the same layout, of the contiguous one, and in place.
            out, _ = LAYOUTS[layout](np.zeros_like(x))
            assert hoyer.project(y, **target, axis=axis, out=out) is out
            assert bits(as_rows(out, axis)) == bits(expected)
            contiguous = np.full(y.shape, 7, dtype)
            hoyer.project(y, **target, axis=axis, out=contiguous)
            assert bits(as_rows(contiguous, axis)) == bits(expected)
            assert hoyer.project_(y, **target, axis=axis) is y
            assert bits(as_rows(y, axis)) == bits(expected)

    def test_from_contiguous_vectors_into_others(self, layout, dtype, rng):
        for batch, n in ((33, 20), (20, 333)):
            x = rng.normal(size=(batch, n)).astype(dtype)
            out, axis = LAYOUTS[layout](np.zeros_like(x))
            hoyer.project(np.moveaxis(x, -1, axis), 0.7, axis=axis, out=out)
            assert bits(as_rows(out, axis)) == bits(hoyer.project(x, 0.7))

    def test_every_way_to_ask(self, layout, dtype, rng):
        x = rng.normal(size=(21, 45)).astype(dtype)
        x[3] = 0
        x[4] = 1
        x[19] = np.eye(45)[7]
        y, axis = LAYOUTS[layout](x)
        each = np.linspace(0, 1, 21)
        for given in (
            {"sparseness": 0.4, "l2": "keep"},
            {"sparseness": 0.4, "l2": "nearest", "nonnegative": True},
            {"sparseness": 0.8, "only_increase": True},
            {"sparseness": each, "l2": each + 1},
            *({"sparseness": 0.6, "solver": solver} for solver in SOLVERS),
        ):
            found, expected = hoyer.solve(y, **given, axis=axis), hoyer.solve(x, **given)
            assert bits(as_rows(found.value, axis)) == bits(expected.value)
            for name in ("shift", "scale", "support_size", "evaluations", "unique", "l1", "l2"):
                assert bits(getattr(found, name)) == bits(getattr(expected, name))

    def test_sparseness_and_derivatives(self, layout, dtype, rng):
        for batch, n in ((5, 40), (16, 17), (37, 130)):
            x, d = rng.normal(size=(2, batch, n)).astype(dtype)
            (y, axis), (e, _) = LAYOUTS[layout](x), LAYOUTS[layout](d)
            assert bits(hoyer.sparseness(y, axis=axis)) == bits(hoyer.sparseness(x))
            for given in ({}, {"l2": "keep"}, {"l2": "nearest"}, {"only_increase": True}):
                found = hoyer.solve(y, 0.6, **given, axis=axis)
                expected = hoyer.solve(x, 0.6, **given)
                for name in ("jvp", "vjp"):
                    product = getattr(expected, name)(d)
                    assert bits(as_rows(getattr(found, name)(e), axis)) == bits(product)
                    # Directions of another layout than the value's.
                    straight = np.ascontiguousarray(e.astype(dtype))
                    assert bits(as_rows(getattr(found, name)(straight), axis)) == bits(product)
                for a, b in zip(found.target_gradient(), expected.target_gradient(), strict=True):
                    assert bits(as_rows(a, axis)) == bits(b)
                if n < 50:
                    assert bits(found.jacobian()) == bits(expected.jacobian())

    def test_nan_is_found_and_nothing_is_lost_in_place(self, layout, dtype, rng):
        for batch, bad in ((5, 4), (16, 15), (40, 33), (40, 0)):
            x = rng.normal(size=(batch, 30)).astype(dtype)
            x[bad, 11] = np.nan
            y, axis = LAYOUTS[layout](x)
            before = y.copy()
            words = f"x has nan at entry 11 of vector {bad};"
            with pytest.raises(ValueError, match=words):
                hoyer.project(y, 0.6, axis=axis)
            out, _ = LAYOUTS[layout](np.full_like(x, 7))
            with pytest.raises(ValueError, match=words):
                hoyer.project(y, 0.6, axis=axis, out=out)
            rows, expected = as_rows(out, axis), hoyer.project(x, 0.6, check_finite=False)
            untouched = (rows == 7).all(axis=-1)
            assert untouched[bad]
            np.testing.assert_array_equal(rows[~untouched], expected[~untouched])
            for call in (
                lambda: hoyer.project_(y, 0.6, axis=axis),  # noqa: B023 - called at once
                lambda: hoyer.project(y, 0.6, axis=axis, out=y),  # noqa: B023
            ):
                with pytest.raises(ValueError, match=words):
                    call()
                assert bits(y) == bits(before)
            unchecked = hoyer.project(y, 0.6, axis=axis, check_finite=False)
            assert bits(as_rows(unchecked, axis)) == bits(expected)


@pytest.mark.parametrize("layout", ["columns", "F rows", "columns upwards", "byte-swapped columns"])
@each_float
def test_around_the_largest_tile(layout, dtype, rng):
    for n in (TILE_LIMIT - 1, TILE_LIMIT, TILE_LIMIT + 1):
        x = rng.normal(size=(18, n)).astype(dtype)
        y, axis = LAYOUTS[layout](x)
        expected = hoyer.solve(x, 0.8)
        found = hoyer.solve(y, 0.8, axis=axis)
        assert bits(as_rows(found.value, axis)) == bits(expected.value)
        assert bits(as_rows(found.jvp(y), axis)) == bits(expected.jvp(x))
        assert bits(hoyer.sparseness(y, axis=axis)) == bits(hoyer.sparseness(x))
        hoyer.project_(y, 0.8, axis=axis)
        assert bits(as_rows(y, axis)) == bits(expected.value)


@each_float
def test_what_lies_between_is_left_alone(dtype, rng):
    store = rng.normal(size=(44, 61)).astype(dtype)
    for part in (np.s_[2:-1, 3:-4], np.s_[1::2, 5:], np.s_[::-1, 50:7:-1], np.s_[3:, ::3]):
        y = store.copy()
        expected = store.copy()
        expected[part] = hoyer.project(np.ascontiguousarray(store[part].T), 0.6).T
        hoyer.project_(y[part], 0.6, axis=0)
        assert bits(y) == bits(expected)
        y = store.copy()
        hoyer.project(store[part], 0.6, axis=0, out=y[part])
        assert bits(y) == bits(expected)


AXES = (0, 1, 2, 3, (0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (0, 1, 2), (1, 2, 3), (0, 2, 3), None)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("order", ["C", "F", "mixed", "reversed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_axes_in_the_middle_and_several(axis, order, dtype, rng):
    shape = (5, 19, 4, 17)
    x, d = rng.normal(size=(2, *shape)).astype(dtype)

    def laid_out(a):
        if order == "mixed":
            return np.ascontiguousarray(a.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2)
        if order == "reversed":
            return np.ascontiguousarray(a[::-1, :, ::-1, ::-1])[::-1, :, ::-1, ::-1]
        return np.array(a, order=order)

    axes = tuple(range(4)) if axis is None else (axis,) if isinstance(axis, int) else sorted(axis)
    last = tuple(range(4 - len(axes), 4))

    def rows(a):
        """In the documented order: the remaining axes, then the vectors' axes, as in x."""
        moved = np.moveaxis(a, axes, last)
        batch = moved.shape[: 4 - len(axes)]
        return np.ascontiguousarray(moved).reshape(int(np.prod(batch)), -1)

    y, e = laid_out(x), laid_out(d)
    expected = hoyer.solve(rows(x), 0.7, l2="keep")
    found = hoyer.solve(y, 0.7, l2="keep", axis=axis)
    assert bits(rows(found.value)) == bits(expected.value)
    assert bits(rows(found.jvp(e))) == bits(expected.jvp(rows(d)))
    assert bits(rows(found.vjp(e))) == bits(expected.vjp(rows(d)))
    assert bits(hoyer.sparseness(y, axis=axis)) == bits(hoyer.sparseness(rows(x)))
    out = laid_out(np.zeros_like(x))
    hoyer.project(y, 0.7, l2="keep", axis=axis, out=out)
    assert bits(rows(out)) == bits(expected.value)
    hoyer.project_(y, 0.7, l2="keep", axis=axis)
    assert bits(rows(y)) == bits(expected.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_broadcast_vectors(dtype, rng):
    column = rng.normal(size=(50, 1)).astype(dtype)
    for x in (np.broadcast_to(column, (50, 40)), np.broadcast_to(column.T, (40, 50)).T):
        expected = hoyer.project(np.ascontiguousarray(x.T), 0.7)
        assert bits(hoyer.project(x, 0.7, axis=0).T) == bits(expected)
    flat = np.broadcast_to(dtype(2), (50, 40))
    assert bits(hoyer.project(flat, 0.7, axis=0)) == bits(hoyer.project(flat.copy(), 0.7, axis=0))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_threads(count, rng):
    before = hoyer.get_num_threads()
    x = rng.normal(size=(700, 130))
    expected = hoyer.project(x, 0.7)
    try:
        hoyer.set_num_threads(count)
        for layout in LAYOUTS.values():
            y, axis = layout(x)
            assert bits(as_rows(hoyer.project(y, 0.7, axis=axis), axis)) == bits(expected)
            hoyer.project_(y, 0.7, axis=axis)
            assert bits(as_rows(y, axis)) == bits(expected)
    finally:
        hoyer.set_num_threads(before)


@pytest.mark.parametrize("axis", [0, 1, -1, -2, None, (0,), np.int64(0)], ids=str)
def test_sparse_results_of_other_layouts(axis, rng):
    shape = (40, 37) if axis is not None else (300,)
    for x in (rng.normal(size=shape), np.asfortranarray(rng.normal(size=shape))[::-1]):
        found = hoyer.project_sparse(x, 0.7, axis=axis)
        np.testing.assert_array_equal(found.toarray(), hoyer.project(x, 0.7, axis=axis))


@pytest.mark.parametrize("axis", [(1,), (-1,)], ids=str)
def test_sparse_rows_named_by_a_tuple(axis, rng):
    x = rng.normal(size=(5, 7))
    found = hoyer.project_sparse(x, 0.7, axis=axis)
    np.testing.assert_array_equal(found.toarray(), hoyer.project(x, 0.7, axis=axis))


def test_a_byte_order_that_is_named(rng):
    """As arrays from Zarr stores have it: the machine's own, but said so."""
    x = rng.normal(size=(5, 20))
    named = x.astype(np.dtype("f8").newbyteorder("<" if sys.byteorder == "little" else ">"))
    np.testing.assert_array_equal(hoyer.project(named, 0.5), hoyer.project(x, 0.5))
    np.testing.assert_array_equal(hoyer.project_(named.copy(), 0.5), hoyer.project(x, 0.5))
    np.testing.assert_array_equal(hoyer.solve(named, 0.5).value, hoyer.project(x, 0.5))
