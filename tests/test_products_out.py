"""`Projection.jvp` and `vjp` with `out`: the same numbers, in the caller's memory."""

import numpy as np
import pytest

import hoyer

FLOATS = (np.float16, np.float32, np.float64)
FORMS = (
    {},
    {"l2": "keep"},
    {"l2": "nearest"},
    {"nonnegative": True},
    {"only_increase": True, "l1": 2.0},
    {"only_increase": True, "l2": "keep"},
)
# The shape, and the axis of its vectors: alone, short, side by side, in several parts.
SHAPES = (((60,), -1), ((40, 21), -1), ((21, 40), 0), ((3, 20, 5), 1), ((4, 6, 7), (0, 2)))

each_method = pytest.mark.parametrize("method", ["jvp", "vjp"])
each_float = pytest.mark.parametrize("dtype", FLOATS)


def bits(a):
    return np.ascontiguousarray(a).tobytes()


def unaligned(x):
    view = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


ROOMS = {
    "C": lambda a: np.array(a, order="C"),
    "F": lambda a: np.array(a, order="F"),
    "reversed": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "unaligned": unaligned,
}


@each_method
@each_float
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_the_same_in_any_room_and_in_place(method, dtype, shape, axis, rng):
    x, y = rng.normal(size=(2, *shape)).astype(dtype)
    for form in FORMS:
        found = hoyer.solve(x, 0.6, axis=axis, **form)
        call = getattr(found, method)
        expected = call(y)
        assert expected.any()
        value = found.value.copy()
        for room in ROOMS.values():
            out = room(np.full(shape, np.nan, dtype))
            assert call(y, out=out) is out
            assert bits(out) == bits(expected)
            given = room(y)
            assert bits(given) == bits(y)
            assert call(given, out=given) is given
            assert bits(given) == bits(expected)
            alias = room(y)
            assert call(alias, out=alias[:]) is not alias
            assert bits(alias) == bits(expected)
        assert bits(found.value) == bits(value)
        assert bits(call(y)) == bits(expected)


@each_method
def test_directions_that_must_be_converted(method, rng):
    found = hoyer.solve(rng.normal(size=(4, 30)).astype(np.float32), 0.6)
    call = getattr(found, method)
    out = np.empty((4, 30), np.float32)
    whole = rng.integers(-5, 5, size=(4, 30))
    expected = call(whole.astype(np.float32))
    for y in (whole, whole.tolist(), whole.astype(">f4"), whole.astype(np.float64)):
        out[...] = np.nan
        assert call(y, out=out) is out
        assert bits(out) == bits(expected)


@each_method
def test_out_beside_y_in_one_array(method, rng):
    found = hoyer.solve(rng.normal(size=(6, 20)), 0.6, l2="keep")
    call = getattr(found, method)
    store = rng.normal(size=(6, 40))
    y, out = store[:, ::2], store[:, 1::2]
    expected = call(y.copy())
    assert call(y, out=out) is out
    assert bits(out) == bits(expected)


@each_method
@pytest.mark.parametrize("form", [{}, {"l2": "keep"}], ids=str)
class TestRefusals:
    def found(self, form):
        return hoyer.solve(np.arange(1.0, 13.0).reshape(3, 4), 0.5, **form)

    @pytest.mark.parametrize(
        ("out", "error", "words"),
        [
            (np.zeros(12), ValueError, r"out has shape \(12,\), the result has \(3, 4\)"),
            (np.zeros((4, 3)), ValueError, r"out has shape \(4, 3\), the result has \(3, 4\)"),
            (np.zeros((1, 3, 4)), ValueError, "out has shape"),
            (np.zeros((3, 4), np.float32), ValueError, "out has dtype float32"),
            (np.zeros((3, 4), np.int64), ValueError, "out has dtype int64"),
            (np.zeros((3, 4), complex), ValueError, "out has dtype complex128"),
            (np.broadcast_to(0.0, (3, 4)), ValueError, "out is read-only"),
            (
                np.lib.stride_tricks.as_strided(np.zeros(6), (3, 4), (8, 8)),
                ValueError,
                "share memory",
            ),
            (np.ma.zeros((3, 4)), TypeError, "out is a masked array"),
            ([[0.0] * 4] * 3, TypeError, "out must be a NumPy array, not list"),
        ],
    )
    def test_out_that_does_not_fit(self, method, form, out, error, words):
        with pytest.raises(error, match=words):
            getattr(self.found(form), method)(np.ones((3, 4)), out=out)
        assert not np.any(out)

    def test_the_value_stays_what_it_is(self, method, form):
        found = self.found(form)
        before = found.value.copy()
        # It is read-only; memory behind it that is not must be refused all the same.
        store = np.zeros((5, 4))
        store[1:4] = before
        y = np.ones((3, 4))
        for out in (found.value, found.value[:], found.value[::-1]):
            with pytest.raises(ValueError, match=r"read-only|shares memory"):
                getattr(found, method)(y, out=out)
        inside = found.derivatives._replace(value=store[1:4])
        product = inside.product(y, reverse=method == "vjp")
        for out in (store[1:4], store[:3], store[2:], store[3:0:-1]):
            with pytest.raises(ValueError, match="out shares memory with the projection"):
                inside.product(y, reverse=method == "vjp", out=out)
        np.testing.assert_array_equal(store[1:4], before)
        np.testing.assert_array_equal(getattr(found, method)(y), product)

    def test_the_remembered_x_stays_what_it_is(self, method, form):
        found = self.found(form)
        if found.derivatives.x is None:
            assert form == {}
            return
        with pytest.raises(ValueError, match="out shares memory with the projection"):
            getattr(found, method)(np.ones((3, 4)), out=found.derivatives.x)

    def test_partly_the_direction(self, method, form):
        store = np.arange(1.0, 25.0)
        for y, out in (
            (store[:12], store[1:13]),
            (store[1:13], store[:12]),
            (store[:12], store[11::-1]),
        ):
            with pytest.raises(ValueError, match="out overlaps"):
                getattr(self.found(form), method)(y.reshape(3, 4), out=out.reshape(3, 4))
        np.testing.assert_array_equal(store, np.arange(1.0, 25.0))

    def test_a_wrong_direction_writes_nothing(self, method, form):
        out = np.full((3, 4), 7.0)
        for y, error in ((np.ones(4), ValueError), (np.ones((3, 4), complex), TypeError)):
            with pytest.raises(error, match="y has"):
                getattr(self.found(form), method)(y, out=out)
        assert (out == 7).all()


@each_method
def test_byte_swapped_out(method, rng):
    found = hoyer.solve(rng.normal(size=(4, 30)), 0.6)
    y = rng.normal(size=(4, 30))
    expected = getattr(found, method)(y)
    out = np.empty((4, 30), ">f8")
    assert getattr(found, method)(y, out=out) is out
    np.testing.assert_array_equal(out, expected)
    swapped = y.astype(">f8")
    assert getattr(found, method)(swapped, out=swapped) is swapped
    np.testing.assert_array_equal(swapped, expected)


def test_of_a_byte_swapped_projection(rng):
    x, y = rng.normal(size=(2, 4, 30))
    found = hoyer.solve(x.astype(">f8"), 0.6, l2="keep")
    expected = hoyer.solve(x, 0.6, l2="keep")
    out = np.empty((4, 30))
    assert bits(found.jvp(y.astype(">f8"), out=out)) == bits(expected.jvp(y))
    assert bits(found.vjp(y, out=out)) == bits(expected.vjp(y))


@each_method
def test_empty_batches(method):
    out = np.empty((0, 5))
    assert getattr(hoyer.solve(np.empty((0, 5)), 0.5), method)(np.empty((0, 5)), out=out) is out
