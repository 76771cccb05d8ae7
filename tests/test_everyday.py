"""The one call of the core that projects an array: what it takes, what it leaves to Python."""

import gc
import inspect
import itertools
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import SOLVERS
from plans import own_plan
from reference import needs_long_double

import hoyer
from hoyer import _core
from hoyer.engines.core import plan_of
from hoyer.options import Options
from hoyer.plan import plans

FLOATS = (np.float16, np.float32, np.float64)
SHAPES = ((1,), (2,), (37,), (5000,), (1, 9), (40, 33), (3, 300), (2, 17, 20), (1, 1, 64))
FORMS = (
    {"sparseness": 0.8},
    {"sparseness": 0.8, "l1": 3.0},
    {"sparseness": 0.8, "l2": 2.5},
    {"sparseness": 0.8, "l2": "keep"},
    {"sparseness": 0.8, "l2": "nearest"},
    {"l1": 1.5, "l2": 1.25},
    {"sparseness": 0.0},
    {"sparseness": 1.0, "l2": "keep"},
)


def options_of(**given):
    default = dict.fromkeys(("sparseness", "l1", "l2"))
    default |= {"axis": -1, "nonnegative": False, "only_increase": False}
    return Options(**default | {"solver": "auto", "check_finite": True} | given)


def everyday(x, out=None, **given):
    return _core.project_array(x, out, options_of(**given), plans, plan_of)


def refused(x, out=None, **given):
    with pytest.raises(ValueError, match="sparseness"):
        everyday(x, out, **given)


def long_way(x, **given):
    """The same through a plan and an array of its own; NaN where nothing is written."""
    options, out = options_of(**given), np.full_like(x, np.nan)
    plan = own_plan(x.shape[-1], options, x.shape[:-1])
    _core.project(x, out, plan, 1, False)
    return out


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def unaligned(x):
    view = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


class Subclass(np.ndarray):
    pass


class TestTheSameBits:
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("shape", SHAPES)
    def test_every_shape_and_form(self, dtype, shape, rng):
        x = rng.normal(size=shape).astype(dtype)
        for form, nonnegative, only in itertools.product(FORMS, (False, True), (False, True)):
            given = {**form, "nonnegative": nonnegative, "only_increase": only}
            if shape[-1] == 1:
                given |= {"sparseness": None, "l1": 1.5, "l2": 1.5}
            expected = long_way(x, **given)
            assert same(everyday(x, **given), expected)
            out = np.full_like(x, np.nan)
            assert everyday(x, out, **given) is out
            assert same(out, expected)
            in_place = x.copy()
            assert everyday(in_place, in_place, **given) is in_place
            assert same(in_place, expected)
            alias = x.copy()
            view = alias[:]
            assert everyday(alias, view, **given) is view
            assert same(alias, expected)

    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_every_solver(self, dtype, solver, rng):
        for shape in ((700,), (19, 50)):
            x = rng.normal(size=shape).astype(dtype)
            for nonnegative in (False, True):
                given = {"sparseness": 0.7, "solver": solver, "nonnegative": nonnegative}
                assert same(everyday(x, **given), long_way(x, **given))

    @pytest.mark.parametrize("shape", [(30,), (8, 30), (2, 4, 30)])
    def test_names_of_the_last_axis(self, shape, rng):
        x = rng.normal(size=shape)
        expected = everyday(x, sparseness=0.6)
        assert same(everyday(x, sparseness=0.6, axis=x.ndim - 1), expected)
        assert same(everyday(x, sparseness=0.6, axis=(-1,)), expected)
        for other in (x.ndim, (-1, -1), (), np.int64(-1), True, 1.0, 1 << 70, -1 << 70):
            assert everyday(x, sparseness=0.6, axis=other) is None
        for other in (0, None, -x.ndim, (0, -1) if x.ndim > 1 else (0,)):
            last = tuple(range(x.ndim)) if other is None else other
            moved = np.moveaxis(x, last, range(-np.size(last), 0))
            rows = np.ascontiguousarray(moved).reshape(*moved.shape[: -np.size(last)], -1)
            expected = hoyer.project(rows, 0.6).reshape(moved.shape)
            found = everyday(x, sparseness=0.6, axis=other)
            assert same(
                np.ascontiguousarray(np.moveaxis(found, last, range(-np.size(last), 0))), expected
            )
        assert same(hoyer.project(x.reshape(-1), 0.6), hoyer.project(x, 0.6, axis=None).reshape(-1))

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_public_functions_agree_with_each_other(self, dtype, rng):
        x = rng.normal(size=(20, 60)).astype(dtype)
        expected = long_way(x, sparseness=0.7, l2="keep")
        assert same(hoyer.project(x, 0.7, l2="keep"), expected)
        assert same(hoyer.solve(x, 0.7, l2="keep").value, expected)
        assert same(hoyer.project(np.asfortranarray(x), 0.7, l2="keep").copy("C"), expected)
        assert same(hoyer.project(x.view(Subclass), 0.7, l2="keep"), expected)
        assert same(hoyer.project_(x, 0.7, l2="keep"), expected)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_calls_like_earlier_ones(self, dtype, rng):
        for shape in ((16,), (3, 40), (2, 3, 20)):
            x = rng.normal(size=shape).astype(dtype)
            for form in ({"sparseness": 0.7}, {"sparseness": 0.7, "l2": "keep"}, {"l1": 2.0}):
                expected = long_way(x, **dict.fromkeys(("sparseness",)) | form)
                for _ in range(3):
                    assert same(hoyer.project(x, **form), expected)
                    assert same(hoyer.project(np.asfortranarray(x), **form).copy("C"), expected)
                    out = np.empty_like(x)
                    assert hoyer.project(x, out=out, **form) is out
                    assert same(out, expected)
                    assert same(hoyer.project_(x.copy(), **form), expected)
                    swapped = x.astype(x.dtype.newbyteorder())
                    assert same(hoyer.project(swapped, **form), expected)

    def test_more_targets_in_turns_than_are_remembered_by_name(self, rng):
        x = rng.normal(size=16)
        targets = [0.3 + i / 100 for i in range(50)]
        expected = [long_way(x, sparseness=t) for t in targets]
        for _ in range(3):
            for target, value in zip(targets, expected, strict=True):
                assert same(hoyer.project(x, target), value)

    def test_what_can_change_is_looked_at_again(self, rng):
        x = rng.normal(size=30)
        target = np.array(0.5)
        before = [hoyer.project(x, target) for _ in range(3)][-1]
        target[()] = 0.9
        assert same(before, long_way(x, sparseness=0.5))
        assert same(hoyer.project(x, target), long_way(x, sparseness=0.9))
        where = np.ones(30, bool)
        hoyer.project(x, 0.5, where=where)
        where[:10] = False
        assert not hoyer.project(x, 0.5, where=where)[:10].any()

    def test_refused_vectors_are_refused_again(self, rng):
        x = rng.normal(size=(5, 30))
        hoyer.project(x, 0.7)
        x[3, 4] = np.nan
        for _ in range(2):
            with pytest.raises(ValueError, match="entry 4 of vector 3"):
                hoyer.project(x, 0.7)
            kept = x.copy()
            with pytest.raises(ValueError, match="entry 4 of vector 3"):
                hoyer.project_(kept, 0.7)
            assert same(kept, x)

    @pytest.mark.parametrize("function", [hoyer.project, hoyer.project_])
    def test_a_third_argument_needs_its_name(self, function):
        for extra in ((1.0,), (None,), (1.0, 2.0)):
            with pytest.raises(TypeError, match=f"{extra[0]!r} as third argument"):
                function(np.ones(4), 0.5, *extra)
        with pytest.raises(TypeError):
            function(np.ones(4), 0.5, norm=1.0)
        kinds = [p.kind for p in inspect.signature(function).parameters.values()]
        assert set(kinds[2:]) == {inspect.Parameter.KEYWORD_ONLY}
        assert "rest" not in inspect.signature(function).parameters

    def test_unchecked_vectors_come_back_as_nan(self, rng):
        x = rng.normal(size=(40, 20))
        x[[3, 17, 39], [0, 5, 19]] = np.nan, np.inf, -np.inf
        given = {"sparseness": 0.7, "check_finite": False}
        assert same(everyday(x, **given), long_way(x, **given))
        assert np.isnan(hoyer.project(x, 0.7, check_finite=False)).all(-1).sum() == 3
        in_place = x.copy()
        hoyer.project_(in_place, 0.7, check_finite=False)
        assert same(in_place, long_way(x, **given))


class TestWhatIsSpecial:
    """What the core does not take as it is, is None, and nothing is written."""

    x = np.arange(1.0, 41.0).reshape(4, 10)

    @pytest.mark.parametrize(
        "other",
        [
            x.tolist(),
            x.view(Subclass),
            np.ma.masked_less(x, 3),
            unaligned(x),
            x.astype(np.int64),
            pytest.param(x.astype(np.longdouble), marks=needs_long_double),
            x.astype(complex),
            x.astype("M8[s]"),
            np.array(3.0),
            np.empty((4, 0)),
            np.zeros((4, 10), [("a", "f8")]),
        ],
    )
    def test_arrays(self, other):
        out = np.full(np.shape(other), 7.0)
        assert everyday(other, sparseness=0.5) is None
        assert everyday(other, out, sparseness=0.5) is None
        assert (out == 7).all()

    @pytest.mark.parametrize(
        "other",
        [np.asfortranarray(x), x[:, ::-1], x[::2], x[:, 1:7:2], x.T, x.astype(">f8"), x[:0]],
    )
    def test_arrays_that_are_not_contiguous(self, other):
        plain = np.array(other, np.float64, order="C")
        expected = hoyer.project(plain, 0.5)
        found = hoyer.project(other, 0.5)
        assert (found.dtype, found.shape) == (np.float64, other.shape)
        np.testing.assert_array_equal(found, expected)
        for out in (np.empty_like(plain), np.empty_like(plain, order="F"), np.empty_like(other)):
            assert hoyer.project(other, 0.5, out=out) is out
            np.testing.assert_array_equal(out, expected)
        store = np.array(other, order="K")
        np.testing.assert_array_equal(hoyer.project_(store, 0.5), expected)

    @pytest.mark.parametrize(
        ("given", "other"),
        [
            ({"sparseness": 1}, {"sparseness": 1.0}),
            ({"sparseness": np.float64(0.5)}, {"sparseness": 0.5}),
            ({"sparseness": np.full(4, 0.5)}, {"sparseness": 0.5}),
            ({"sparseness": 0.5, "l2": 1}, {"sparseness": 0.5, "l2": 1.0}),
            (
                {"sparseness": 0.5, "nonnegative": np.True_},
                {"sparseness": 0.5, "nonnegative": True},
            ),
        ],
    )
    def test_options_of_other_types(self, given, other):
        assert same(everyday(self.x, **given), everyday(self.x, **other))

    @pytest.mark.parametrize(
        "given",
        [
            {"sparseness": True},
            {"sparseness": "0.5"},
            {"sparseness": 0.5, "l2": "kept"},
            {"sparseness": 0.5, "l2": b"keep"},
            {"sparseness": 0.5, "l1": "keep"},
            {"sparseness": 0.5, "nonnegative": 1},
            {"sparseness": 0.5, "only_increase": None},
            {"sparseness": 0.5, "check_finite": 0},
            {"sparseness": 0.5, "solver": "secant"},
            {"sparseness": 0.5, "solver": 0},
            {"sparseness": 1.5},
            {"sparseness": float("nan")},
            {"l2": 1.0},
            {"l1": 9.0, "l2": 1.0},
            {},
        ],
    )
    def test_options(self, given):
        out = np.full((4, 10), 7.0)
        assert everyday(self.x, sparseness=0.5) is not None
        with pytest.raises((ValueError, TypeError)):
            everyday(self.x, out, **given)
        assert (out == 7).all()

    @pytest.mark.parametrize(
        ("out", "error", "words"),
        [
            (np.zeros((4, 10), np.float32), ValueError, "out has dtype float32"),
            (np.zeros((10, 4)), ValueError, r"out has shape \(10, 4\)"),
            (np.zeros((1, 4, 10)), ValueError, r"out has shape \(1, 4, 10\)"),
            (np.zeros(40), ValueError, r"out has shape \(40,\)"),
            (np.broadcast_to(0.0, (4, 10)), ValueError, "out is read-only"),
            (np.ma.zeros((4, 10)), TypeError, "out is a masked array"),
            ([0.0] * 40, TypeError, "out must be a NumPy array, not list"),
        ],
    )
    def test_out_that_does_not_fit(self, out, error, words):
        with pytest.raises(error, match=words):
            hoyer.project(self.x, 0.5, out=out)
        assert not np.any(out)

    @pytest.mark.parametrize("shift", [-30, -10, -1, 1, 10, 39])
    def test_out_that_overlaps(self, shift):
        store = np.arange(200.0)
        x, out = (store[at : at + 40].reshape(4, 10) for at in (80, 80 + shift))
        assert everyday(x, out, sparseness=0.5) is None
        with pytest.raises(ValueError, match="out overlaps x without being x"):
            hoyer.project(x, 0.5, out=out)
        np.testing.assert_array_equal(store, np.arange(200.0))

    @pytest.mark.parametrize("shift", [-40, 40])
    def test_out_that_touches(self, shift):
        store = np.arange(200.0)
        x, out = (store[at : at + 40].reshape(4, 10) for at in (80, 80 + shift))
        assert everyday(x, out, sparseness=0.5) is out
        assert same(out, hoyer.project(x, 0.5))

    def test_the_same_memory_in_another_shape_or_type(self):
        x = np.arange(1.0, 17.0).reshape(4, 4)
        for out in (x.reshape(2, 8), x.reshape(-1), x.view(np.float32), x.T):
            with pytest.raises(ValueError, match="out"):
                hoyer.project(x, 0.5, out=out)
        np.testing.assert_array_equal(x, np.arange(1.0, 17.0).reshape(4, 4))

    def test_read_only_x_is_fine_but_not_in_place(self):
        x = self.x.copy()
        x.flags.writeable = False
        assert same(hoyer.project(x, 0.5), hoyer.project(self.x, 0.5))
        for call in (lambda: hoyer.project_(x, 0.5), lambda: hoyer.project(x, 0.5, out=x)):
            with pytest.raises(ValueError, match="is read-only"):
                call()
        assert same(x, self.x)

    def test_subclasses_masks_and_packed_arrays_through_the_public_functions(self):
        expected = hoyer.project(self.x, 0.5)
        found = hoyer.project(self.x.view(Subclass), 0.5)
        assert type(found) is np.ndarray
        assert same(found, expected)
        out = np.zeros((4, 10)).view(Subclass)
        assert hoyer.project(self.x, 0.5, out=out) is out
        assert same(np.asarray(out), expected)
        with pytest.raises(TypeError, match="x is a masked array"):
            hoyer.project(np.ma.masked_less(self.x, 3), 0.5)
        for x in (unaligned(self.x), self.x.astype(">f8")):
            np.testing.assert_array_equal(hoyer.project(x, 0.5), expected)
            assert hoyer.project_(x, 0.5) is x
            np.testing.assert_array_equal(x, expected)

    @pytest.mark.parametrize("call", [hoyer.project, hoyer.project_])
    def test_none_is_no_array(self, call):
        with pytest.raises(TypeError, match="NoneType") as caught:
            call(None, 0.5)
        assert "incompatible function arguments" not in str(caught.value)

    @pytest.mark.parametrize("shape", [(0, 5), (0, 1, 5), (2, 0, 5)])
    def test_empty_batches(self, shape):
        x = np.empty(shape)
        assert hoyer.project(x, 0.5).shape == shape
        assert hoyer.project_(x, 0.5) is x
        with pytest.raises(ValueError, match="sparseness must lie in"):
            hoyer.project(x, 1.5)

    def test_a_norm_beyond_the_type(self):
        x = np.arange(9.0)
        assert hoyer.project(x, 0.5, l2=1e5).max() > 65504
        for dtype, l2 in ((np.float16, 1e5), (np.float32, 1e39)):
            hoyer.project(x, 0.5, l2=l2)  # remembered for float64
            with pytest.raises(ValueError, match="does not fit"):
                hoyer.project(x.astype(dtype), 0.5, l2=l2)


class TestOptionsThatAreEqualButOfAnotherType:
    """1 == 1.0 == True, but calls made before must not decide what they mean."""

    x = np.arange(1.0, 13.0).reshape(2, 6)

    @pytest.mark.parametrize("name", ["nonnegative", "only_increase", "check_finite"])
    def test_switches(self, name):
        for value, equal in ((True, 1), (False, 0), (True, 1.0), (False, 0.0)):
            for _ in range(2):
                hoyer.project(self.x, 0.5, **{name: value})
                with pytest.raises(TypeError, match=f"{name}={equal!r}: must be True or False"):
                    hoyer.project(self.x, 0.5, **{name: equal})

    def test_sparseness(self):
        one_hot = hoyer.project(self.x, 1.0)
        assert (np.count_nonzero(one_hot, axis=-1) == 1).all()
        for equal in (1, np.float32(1), np.float64(1), np.int8(1), np.array(1.0)):
            assert same(hoyer.project(self.x, equal), one_hot)
        constant = hoyer.project(self.x, 0.0)
        for equal in (-0.0, 0, np.float64(0)):
            assert same(hoyer.project(self.x, equal), constant)

    def test_norms(self):
        expected = hoyer.project(self.x, 0.5, l2=2.0)
        assert same(hoyer.project(self.x, 0.5, l2=2), expected)
        assert not same(hoyer.project(self.x, 0.5, l1=2.0), expected)
        assert same(hoyer.project(self.x, 0.5, l1=2), hoyer.project(self.x, 0.5, l1=2.0))

    @pytest.mark.parametrize("axis", [True, False, 1.0, "1", np.True_])
    def test_axis(self, axis):
        hoyer.project(self.x, 0.5, axis=1)
        hoyer.project(self.x, 0.5, axis=0)
        with pytest.raises(TypeError, match="axis="):
            hoyer.project(self.x, 0.5, axis=axis)

    def test_text(self):
        keep = hoyer.project(self.x, 0.5, l2="keep")
        assert same(hoyer.project(self.x, 0.5, l2=np.str_("keep")), keep)
        assert same(hoyer.project(self.x, 0.5, l2="".join("keep")), keep)


class TestPlans:
    def test_more_targets_than_are_remembered(self, rng):
        x = rng.normal(size=30)
        targets = [float(t) for t in np.linspace(0.05, 0.95, 300)]
        first = [hoyer.project(x, t) for t in targets]
        for target, value in zip(reversed(targets), reversed(first), strict=True):
            assert same(hoyer.project(x, target), value)
            assert abs(hoyer.sparseness(value) - target) < 1e-14

    def test_everything_that_tells_calls_apart(self, rng):
        x = rng.normal(size=(3, 24))
        keys = [
            {"sparseness": s, "l1": l1, "l2": l2, "nonnegative": n, "solver": solver}
            for s, l1, l2 in (
                (0.5, None, None),
                (0.25, None, None),
                (0.5, 0.25, None),
                (0.5, None, 0.25),
                (0.25, None, 0.5),
                (0.25, 0.5, None),
                (None, 0.5, 0.25),
                (0.5, None, "keep"),
                (0.5, None, "nearest"),
            )
            for n in (False, True)
            for solver in SOLVERS
        ]
        for _ in range(2):  # the second time all of them are remembered
            for given in keys:
                assert same(everyday(x, **given), long_way(x, **given))
        for n in (2, 3, 23, 24):  # the length is part of it
            assert same(
                everyday(x[0, :n].copy(), sparseness=0.5), long_way(x[0, :n], sparseness=0.5)
            )

    def test_only_increase_and_checks_are_told_apart(self):
        x = np.array([[0.0, 0.0, 9.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
        plain, only = hoyer.project(x, 0.3), hoyer.project(x, 0.3, only_increase=True)
        assert not same(plain[0], only[0])
        assert same(hoyer.project(x, 0.3), plain)
        x[0, 0] = np.nan
        assert np.isnan(hoyer.project(x, 0.3, check_finite=False)[0]).all()
        with pytest.raises(ValueError, match="x has nan at entry 0 of vector 0"):
            hoyer.project(x, 0.3)


class Changeable:
    """A number that may change, in the manner of a tensor: hashed by identity."""

    def __init__(self, number):
        self.number = number

    def __array__(self, dtype=None, copy=None):
        return np.array(self.number, dtype)


class TestTargetsThatChange:
    """What was made of a target is remembered only where it can never change."""

    x = np.arange(1.0, 13.0).reshape(2, 6)
    calls = (
        hoyer.project,
        lambda x, **given: hoyer.project(np.asfortranarray(x), **given),
        lambda x, **given: hoyer.project_(x.copy(), **given),
        lambda x, **given: hoyer.solve(x, **given).value,
        lambda x, **given: hoyer.project_sparse(x, **given).toarray(),
        lambda x, **given: np.array(hoyer.target_norms(6, **given)),
    )

    @pytest.mark.parametrize("call", calls)
    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_objects(self, call, name):
        rest = {} if name == "sparseness" else {"sparseness": 0.5}
        target = Changeable(0.25)
        for number in (0.25, 0.75, 0.25):
            target.number = number
            expected = call(self.x, **rest, **{name: number})
            np.testing.assert_array_equal(call(self.x, **rest, **{name: target}), expected)

    @pytest.mark.parametrize("call", calls)
    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_arrays_and_tensors_without_axes(self, call, name):
        torch = pytest.importorskip("torch")
        rest = {} if name == "sparseness" else {"sparseness": 0.5}
        for target in (np.array(0.25), torch.tensor(0.25)):
            for number in (0.25, 0.75, 0.25):
                target[...] = number
                expected = call(self.x, **rest, **{name: number})
                np.testing.assert_array_equal(call(self.x, **rest, **{name: target}), expected)

    @pytest.mark.parametrize("first", [np.float32, float])
    def test_how_precise_a_number_is_decides_how_far_it_is_clamped(self, first):
        """A float32 next to 1 counts as 1; the same number as a double is out of range."""
        number = np.nextafter(np.float32(1), np.float32(2))
        for kind in (first, np.float32, float, np.float32):
            for call in self.calls:
                if kind is float:
                    with pytest.raises(ValueError, match="sparseness must lie in"):
                        call(self.x, sparseness=float(number))
                else:
                    call(self.x, sparseness=number)


class TestNotFinite:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("shape", [(4, 9), (40, 9), (100, 300), (3, 5000)])
    def test_named_and_nothing_lost_in_place(self, bad, dtype, shape, rng):
        x = rng.normal(size=shape).astype(dtype)
        x[-2, 7] = bad
        x[-1, 2] = np.nan
        before = x.copy()
        words = f"x has {bad} at entry 7 of vector {shape[0] - 2};"
        for call in (
            lambda: hoyer.project(x, 0.6),
            lambda: hoyer.project(x, 0.6, out=np.empty_like(x)),
            lambda: hoyer.project(x, 0.6, out=x),
            lambda: hoyer.project(x, 0.6, out=x[:]),
            lambda: hoyer.project_(x, 0.6),
        ):
            with pytest.raises(ValueError, match=words):
                call()
            assert same(x, before)

    @pytest.mark.parametrize("n", [1, 2, 20, 3000, 70_000])
    def test_a_single_vector_in_place(self, n, rng):
        for place in {0, n // 2, n - 1}:
            x = rng.normal(size=n)
            x[place] = np.nan
            before = x.copy()
            for given in ({"l1": 1.0, "l2": 1.0}, {"l2": "keep", "sparseness": 0.5}):
                if n == 1 and "sparseness" in given:
                    continue
                for only in (False, True):
                    with pytest.raises(ValueError, match=f"x has nan at entry {place};"):
                        hoyer.project_(x, **given, only_increase=only)
                    assert same(x, before)

    def test_another_out_holds_whole_results_or_what_it_held(self, rng):
        x = rng.normal(size=(100, 30))
        expected = hoyer.project(x, 0.6)
        x[61, 4] = np.nan
        out = np.full_like(x, 7.0)
        with pytest.raises(ValueError, match="x has nan at entry 4 of vector 61;"):
            hoyer.project(x, 0.6, out=out)
        written = (out != 7).any(axis=-1)
        assert not written[61]
        np.testing.assert_allclose(out[written], expected[written], rtol=0, atol=1e-15)

    def test_in_three_dimensions(self):
        x = np.arange(1.0, 25.0).reshape(2, 3, 4)
        x[1, 2, 3] = np.inf
        with pytest.raises(ValueError, match=r"x has inf at entry 3 of vector \(1, 2\);"):
            hoyer.project(x, 0.5)


class TestNothingIsHeld:
    def test_reference_counts(self, rng):
        x, out = rng.normal(size=(3, 50)), np.empty((3, 50))
        bad = x.copy()
        bad[1, 2] = np.nan
        sparseness, axis = 0.123456, 1 - 2
        counted = (x, out, bad, sparseness, axis, plan_of, np.empty_like)
        for call in (
            lambda: hoyer.project(x, sparseness, axis=axis),
            lambda: hoyer.project(x, sparseness, out=out),
            lambda: hoyer.project_(out, sparseness),
            lambda: everyday(x, x[::-1], sparseness=sparseness),
            lambda: refused(x, sparseness=1.5),
            lambda: everyday(bad, out, sparseness=sparseness),
            lambda: everyday(bad, sparseness=sparseness),
        ):
            call()
            call()  # the plan that the first one made is remembered by the objects it is for
            before = [sys.getrefcount(thing) for thing in counted]
            for _ in range(50):
                call()
            after = [sys.getrefcount(thing) for thing in counted]
            assert after[:5] == before[:5]
            assert np.abs(np.subtract(after, before)).max() < 10

    def test_arrays_die_and_can_be_resized(self, rng):
        x, out = rng.normal(size=24), np.zeros(24)
        hoyer.project(x, 0.5)
        hoyer.project(x, 0.5, out=out)
        hoyer.project_(x, 0.5)
        refused(x, out, sparseness=1.5)
        x.resize(48)  # refused while anyone else holds the array
        out.resize(48)
        assert not x[24:].any()
        result = hoyer.project(x, 0.5)
        gone = [weakref.ref(array) for array in (x, out, result)]
        del x, out, result
        gc.collect()
        assert [one() for one in gone] == [None, None, None]

    def test_the_result_is_an_array_of_its_own(self, rng):
        x = rng.normal(size=(4, 20))
        value = hoyer.project(x, 0.5)
        assert value.flags.owndata
        assert value.flags.writeable
        assert value.flags.c_contiguous
        assert not np.shares_memory(value, x)
        again = hoyer.project(x, 0.5)
        value[...] = 0
        assert again.any()

    def test_memory_does_not_grow(self, run_python):
        grown = run_python("""
            import numpy as np, hoyer
            def resident():
                with open("/proc/self/status") as status:
                    return next(int(s.split()[1]) for s in status if s.startswith("VmRSS"))
            x, out = np.random.default_rng(0).normal(size=(2, 2000)), np.empty((2, 2000))
            bad = np.full((2, 2000), np.nan)
            def calls(count):
                for i in range(count):
                    hoyer.project(x, 0.5)
                    hoyer.project(x, 0.1 + 0.8 * i / count, out=out)  # a plan each
                    hoyer.project_(out, 0.5)
                    try:
                        hoyer.project(bad, 0.5)
                    except ValueError:
                        pass
            calls(600)
            before = resident()
            calls(3000)
            print(resident() - before)
        """)
        assert int(grown) < 2048  # KiB; one of the results held each time were 90 MiB


def test_many_threads(rng):
    """Plans are made, dropped and used at the same time."""
    x = [rng.normal(size=shape) for shape in ((50,), (20, 30), (3, 3000))]
    targets = [float(t) for t in np.linspace(0.1, 0.9, 120)]
    expected = {t: [long_way(a, sparseness=t) for a in x] for t in targets}

    def work(seed):
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(targets))
        wrong = 0
        for i in order:
            for array, value in zip(x, expected[targets[i]], strict=True):
                wrong += not same(hoyer.project(array, targets[i]), value)
                wrong += not same(hoyer.project_(array.copy(), targets[i]), value)
            hoyer.project(x[0], float(generator.uniform(0.1, 0.9)))  # a plan for nobody else
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0


def test_the_core_knows_the_options_in_their_order():
    assert Options._fields == _core.OPTION_FIELDS
