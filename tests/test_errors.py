"""What is refused: the error repeats what was given and says what would do; nothing is written."""

import inspect
import math
import re
import warnings

import numpy as np
import pytest

import hoyer

ENTRIES = [hoyer.project, hoyer.project_, hoyer.solve]
SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")


def foreign(module, name="Tensor"):
    """An object whose type says it comes from another array library."""
    return type(name, (), {"__module__": module, "__array__": lambda *_, **__: np.ones(4)})()


@pytest.mark.parametrize("function", ENTRIES)
def test_target_out_of_range(function):
    x = np.arange(16.0)
    for given, parts in [
        ({"sparseness": 1.25}, ["1.25", "0", "1"]),
        ({"sparseness": -0.25}, ["-0.25", "0", "1"]),
        ({"l1": 9.0, "l2": 2.0}, ["9.0", "16", "2", "8"]),
        ({"l1": 1.5, "l2": 2.0}, ["1.5", "16", "2", "8"]),
    ]:
        with pytest.raises(ValueError, match=r"sparseness|l1") as caught:
            function(x, **given)
        for part in parts:
            assert part in str(caught.value), (part, str(caught.value))
    np.testing.assert_array_equal(x, np.arange(16.0))


@pytest.mark.parametrize("function", ENTRIES)
def test_the_interval_is_the_one_of_this_length(function):
    """The same norms are right for vectors of 16 entries and wrong for 4."""
    function(np.arange(16.0), l1=3.0, l2=1.0)
    with pytest.raises(ValueError, match="l1") as caught:
        function(np.arange(4.0), l1=3.0, l2=1.0)
    assert "4" in str(caught.value)
    assert "2" in str(caught.value).replace("l2", "")


@pytest.mark.parametrize("function", ENTRIES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_says_which_vector_first(function, bad):
    x = np.arange(35.0).reshape(5, 7)
    x[3, 2] = bad
    x[4, 0] = bad
    before = x.copy()
    with pytest.raises(ValueError, match=r"(?i)nan|inf|finite") as caught:
        function(x, 0.5)
    assert "3" in str(caught.value)
    assert "4" not in str(caught.value)
    np.testing.assert_array_equal(x, before)


def test_not_finite_says_which_vector_by_its_index_in_the_batch():
    x = np.ones((2, 8, 3))
    x[1, 5, 2] = math.nan
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        hoyer.project(x, 0.5, axis=1)
    with pytest.raises(ValueError, match=r"(?i)nan|finite"):
        hoyer.project(x, 0.5, axis=None)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 1, 62, 63, 64, 65, 1000, 4095, 4096, 4999])
def test_not_finite_is_found_wherever_it_hides(dtype, bad, where, rng):
    x = rng.random(5000).astype(dtype)
    x[where] = bad
    before = x.copy()
    for given in ({}, {"nonnegative": True}, {"l2": "nearest"}):
        with pytest.raises(ValueError, match=r"(?i)nan|inf|finite"):
            hoyer.project_(x, 0.7, **given)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("solver", SOLVERS)
def test_unchecked_a_bad_vector_comes_back_as_nan_and_no_other_is_touched(solver, rng):
    good = rng.normal(size=(6, 20))
    x = good.copy()
    x[1, 3] = math.nan
    x[2, 0] = math.inf
    x[4, 19] = -math.inf
    x[5] = math.nan
    for nonnegative in (False, True):
        options = {"nonnegative": nonnegative, "solver": solver, "check_finite": False}
        expected = hoyer.project(good, 0.8, **options)
        value = hoyer.project(x, 0.8, **options)
        assert np.isnan(value[[1, 2, 4, 5]]).all()
        np.testing.assert_array_equal(value[[0, 3]], expected[[0, 3]])
        in_place = x.copy()
        assert hoyer.project_(in_place, 0.8, **options) is in_place
        np.testing.assert_array_equal(in_place, value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 33, 1000, 70000])
def test_unchecked_nan_does_not_pass_for_a_tie_or_an_end_of_the_range(dtype, n, rng):
    for where in {0, n // 2, n - 1}:
        for bad in (math.nan, math.inf, -math.inf):
            x = rng.random(n).astype(dtype)
            x[where] = bad
            ends = ({"sparseness": 0.0}, {"sparseness": 1.0}, {"sparseness": 0.5})
            for given in ends if n > 1 else ({"l1": 1.0, "l2": 1.0},):
                value = hoyer.project(x, **given, check_finite=False)
                assert np.isnan(value).all(), (where, bad, given)
    x = np.full(n, math.nan, dtype)
    given = {"l1": 1.0, "l2": 1.0} if n == 1 else {"sparseness": 0.5}
    assert np.isnan(hoyer.project(x, **given, check_finite=False)).all()


@pytest.mark.parametrize("given", [{"l2": "keep"}, {"l2": "nearest"}, {"only_increase": True}])
def test_unchecked_nan_in_every_target_form(given, rng):
    x = rng.normal(size=(3, 12))
    x[1, 4] = math.nan
    value = hoyer.project(x, 0.6, check_finite=False, **given)
    assert np.isnan(value[1]).all()
    assert np.isfinite(value[[0, 2]]).all()


def test_unchecked_an_impossible_target_gives_nan_for_its_vector_only(rng):
    x = rng.random((4, 9))
    targets = np.array([0.5, 1.5, math.nan, 0.9])
    value = hoyer.project(x, targets, check_finite=False)
    assert np.isnan(value[[1, 2]]).all()
    np.testing.assert_array_equal(value[[0, 3]], hoyer.project(x, [0.5, 0.5, 0.5, 0.9])[[0, 3]])


def test_solve_unchecked_reports_that_there_is_no_shift(rng):
    x = rng.random((3, 9))
    x[1, 4] = math.nan
    found = hoyer.solve(x, 0.5, check_finite=False)
    assert np.isnan(found.value[1]).all()
    assert np.isnan(found.shift[1])
    assert found.scale[1] == 0
    assert np.isfinite(found.shift[[0, 2]]).all()
    assert (found.scale[[0, 2]] > 0).all()


@pytest.mark.parametrize("function", ENTRIES)
def test_unknown_solver_lists_the_five(function):
    x = np.arange(9.0)
    with pytest.raises(ValueError, match="newton_squared") as caught:
        function(x, 0.5, solver="newton_squared")
    for solver in SOLVERS:
        assert solver in str(caught.value)
    np.testing.assert_array_equal(x, np.arange(9.0))


@pytest.mark.parametrize("function", [hoyer.project, hoyer.solve, hoyer.sparseness])
@pytest.mark.parametrize(
    "name", ["complex128", "complex64", "object", "<U3", "|S3", "M8[D]", "m8[D]"]
)
def test_dtypes_without_order_or_arithmetic(function, name):
    x = np.zeros(4, np.dtype(name))
    arguments = () if function is hoyer.sparseness else (0.5,)
    with pytest.raises(TypeError) as caught:
        function(x, *arguments)
    assert x.dtype.name in str(caught.value) or str(x.dtype) in str(caught.value)
    if name != "object":
        with pytest.raises(TypeError):
            function(x.tolist(), *arguments)


@pytest.mark.parametrize("function", [hoyer.project, hoyer.solve, hoyer.sparseness])
def test_masked_arrays(function):
    x = np.ma.masked_less(np.arange(4.0), 1)
    with pytest.raises(TypeError, match=r"\.filled\("):
        function(x, **({} if function is hoyer.sparseness else {"sparseness": 0.5}))


@pytest.mark.parametrize("function", [*ENTRIES, hoyer.project_sparse])
@pytest.mark.parametrize("form", ["csr_array", "csr_matrix", "coo_array"])
def test_scipy_sparse(function, form):
    sparse = pytest.importorskip("scipy.sparse")
    x = getattr(sparse, form)(np.eye(4))
    with pytest.raises(TypeError, match=rf"sparse array \({form}\).*toarray\(\)"):
        function(x, sparseness=0.5)


@pytest.mark.parametrize("function", ENTRIES)
def test_minus_infinity_is_no_mask(function):
    x = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, -math.inf, 3.0, 4.0]])
    words = r"x has -inf at entry 1 of vector 1; .*pass where=isfinite\(x\)"
    with pytest.raises(ValueError, match=words):
        function(x, 0.5)
    x[1, 1] = math.inf
    with pytest.raises(ValueError, match=r"x has inf at entry 1 of vector 1; (?!.*where)"):
        function(x, 0.5)


@pytest.mark.parametrize("function", [hoyer.project, hoyer.project_, hoyer.solve, hoyer.sparseness])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("tensorflow.python.framework.ops", "EagerTensor"),
    ],
)
def test_arrays_of_libraries_without_a_backend_are_not_converted_silently(function, module, name):
    library = module.split(".")[0].removesuffix("lib")
    with pytest.raises(TypeError, match=f"(?i){library}") as caught:
        function(
            foreign(module, name), **({} if function is hoyer.sparseness else {"sparseness": 0.5})
        )
    assert re.search(r"numpy|asarray|\.get\(\)|\.compute\(\)", str(caught.value))


@pytest.mark.parametrize("function", [*ENTRIES, hoyer.sparseness])
def test_zero_dimensions_and_zero_length(function):
    given = {} if function is hoyer.sparseness else {"sparseness": 0.5}
    with pytest.raises(ValueError, match=r"(?i)0-d|dimension|scalar|axis"):
        function(np.array(3.0), **given)
    with pytest.raises(ValueError, match=r"(?i)length|empty|entries|axis"):
        function(np.ones(0), **given)
    with pytest.raises(ValueError, match=r"(?i)length|empty|entries|axis"):
        function(np.ones((3, 0)), **given)
    with pytest.raises(ValueError, match=r"(?i)length|empty|entries|axis"):
        function(np.ones((0, 3)), axis=0, **given)


@pytest.mark.parametrize("function", ENTRIES)
def test_sparseness_of_vectors_of_length_one(function):
    x = np.ones((5, 1))
    with pytest.raises(ValueError, match=r"length|entries|n") as caught:
        function(x, 0.5)
    assert "1" in str(caught.value)
    assert "sparseness" in str(caught.value)
    np.testing.assert_array_equal(x, np.ones((5, 1)))


@pytest.mark.parametrize("function", [*ENTRIES, hoyer.sparseness])
@pytest.mark.parametrize("axis", [2, -3, (0, 2), (0, 0), (1, -1), 17])
def test_axis_out_of_range_or_twice(function, axis):
    given = {} if function is hoyer.sparseness else {"sparseness": 0.5}
    x = np.ones((4, 4))
    # NumPy calls a repeated axis a plain ValueError.
    error = ValueError if axis in [(0, 0), (1, -1)] else np.exceptions.AxisError
    with pytest.raises(error, match="axis"):
        function(x, axis=axis, **given)
    np.testing.assert_array_equal(x, 1)


@pytest.mark.parametrize("function", [*ENTRIES, hoyer.sparseness])
@pytest.mark.parametrize(
    "axis", [1.0, "rows", (0.5, 1), [0.0], True, np.True_, (0, np.True_), np.array(True)]
)
def test_axis_of_another_type(function, axis):
    given = {} if function is hoyer.sparseness else {"sparseness": 0.5}
    with pytest.raises(TypeError, match="must be an int, a tuple of ints, or None"):
        function(np.ones((4, 4)), axis=axis, **given)


@pytest.mark.parametrize("function", ENTRIES)
@pytest.mark.parametrize("option", ["sparseness", "l1", "l2"])
def test_targets_that_do_not_broadcast_name_both_shapes(function, option):
    x = np.ones((3, 5, 16))
    given = {"sparseness": {}, "l1": {"sparseness": 0.5}, "l2": {"sparseness": 0.5}}[option]
    with pytest.raises(ValueError, match=r"target|sparseness|l1|l2") as caught:
        function(x, **given, **{option: np.full((4, 5), 0.75)})
    assert "(4, 5)" in str(caught.value)
    assert "(3, 5)" in str(caught.value)
    # broadcasting must not enlarge the batch
    with pytest.raises(ValueError, match=re.escape("(2, 3, 5)")):
        function(x, **given, **{option: np.full((2, 3, 5), 0.75)})
    with pytest.raises(ValueError, match=re.escape("(2,)")):
        function(x[0, 0], **given, **{option: np.full(2, 0.75)})
    np.testing.assert_array_equal(x, 1)


def test_targets_that_are_not_numbers():
    for bad in ("0.5", "half", [0.5, "x"], 0.5j, object()):
        with pytest.raises((TypeError, ValueError), match="sparseness"):
            hoyer.project(np.arange(4.0), bad)
    with pytest.raises((TypeError, ValueError), match="l1"):
        hoyer.project(np.arange(4.0), 0.5, l1="keep")


def test_shares_in_per_cent_are_recognised():
    for given, words in ((90, r"got 90\.0 \(did you mean 0\.9\?\)"), (2, r"got 2\.0$")):
        with pytest.raises(ValueError, match=words):
            hoyer.project(np.arange(4.0), given)


def test_lengths_are_ints():
    with pytest.raises(TypeError, match=r"n=10\.0: the length of the vectors must be an int"):
        hoyer.target_norms(10.0, 0.5)


@pytest.mark.parametrize("function", [hoyer.project, hoyer.solve, hoyer.project_sparse])
def test_lists_of_vectors_of_unequal_lengths(function):
    words = "x is a list of vectors of unequal lengths, from 2 to 3: project each by itself"
    with pytest.raises(ValueError, match=words):
        function([[1.0, 2.0], [1.0, 2.0, 3.0]], 0.5)
    with pytest.raises(ValueError, match="x is a tuple of vectors of unequal lengths: project"):
        function(([[1.0, 2.0], [1.0]], [[1.0], [2.0]]), 0.5)


@pytest.mark.parametrize("function", ENTRIES)
def test_options_are_keywords(function):
    with pytest.raises(TypeError):
        function(np.arange(4.0), 0.5, 1.0)
    with pytest.raises(TypeError):
        function(np.arange(4.0), 0.5, sparsity=0.5)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        *((f, (0.5,)) for f in (*ENTRIES, hoyer.project_sparse)),
        *((f, ()) for f in (hoyer.sparseness, *hoyer.measures.MEASURES.values())),
    ],
)
@pytest.mark.parametrize("dim", [1, None, (0, 1)])
def test_dim_is_called_axis_here(function, arguments, dim):
    words = f"dim={dim!r}: what is dim in PyTorch and in hoyer.torch is axis here"
    with pytest.raises(TypeError, match=re.escape(words)):
        function(np.ones((3, 4)), *arguments, dim=dim)
    assert "dim" not in inspect.signature(function).parameters
    assert not any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    with pytest.raises(TypeError, match="unexpected keyword argument 'dims'"):
        function(np.ones((3, 4)), *arguments, dims=1)


class TestOut:
    x = np.arange(1.0, 13.0).reshape(3, 4)

    def refused(self, out, error, match, x=None):
        x = self.x if x is None else x
        before, kept = x.copy(), np.array(out, copy=True)
        with pytest.raises(error, match=match) as caught:
            hoyer.project(x, 0.5, out=out)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(out, kept)
        return str(caught.value)

    def test_wrong_shape(self):
        text = self.refused(np.zeros((4, 3)), ValueError, "out")
        assert "(4, 3)" in text
        assert "(3, 4)" in text
        self.refused(np.zeros((1, 3, 4)), ValueError, "out")
        self.refused(np.zeros(12), ValueError, "out")

    @pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.complex128])
    def test_wrong_dtype(self, dtype):
        text = self.refused(np.zeros((3, 4), dtype), (TypeError, ValueError), "out")
        assert np.dtype(dtype).name in text
        assert "float64" in text

    def test_the_result_of_integers_is_float64(self):
        x = np.arange(12).reshape(3, 4)
        self.refused(np.zeros((3, 4), np.int64), (TypeError, ValueError), "float64", x)
        out = np.zeros((3, 4))
        assert hoyer.project(x, 0.5, out=out) is out

    def test_read_only(self):
        out = np.zeros((3, 4))
        out.flags.writeable = False
        self.refused(out, ValueError, r"(?i)read-only|writ")

    def test_not_an_array(self):
        with pytest.raises(TypeError, match="out"):
            hoyer.project(self.x, 0.5, out=[[0.0] * 4] * 3)

    def test_partial_overlap(self):
        store = np.arange(1.0, 20.0)
        x = store[:12].reshape(3, 4)
        for out in (store[1:13].reshape(3, 4), store[4:16].reshape(3, 4), x[::-1], x[:, ::-1]):
            before = store.copy()
            with pytest.raises(ValueError, match=r"(?i)overlap|shares?\b.*memory"):
                hoyer.project(x, 0.5, out=out)
            np.testing.assert_array_equal(store, before)

    def test_interleaved_but_disjoint_is_no_overlap(self):
        store = np.arange(1.0, 25.0)
        expected = hoyer.project(store[::2].copy(), 0.5)
        out = store[1::2]
        assert hoyer.project(store[::2], 0.5, out=out) is out
        np.testing.assert_array_equal(out, expected)

    def test_out_that_overlaps_itself(self):
        out = np.lib.stride_tricks.as_strided(np.zeros(6), (3, 4), (8, 8))
        with pytest.raises(ValueError, match=r"(?i)overlap|shares?\b.*memory|itself"):
            hoyer.project(self.x, 0.5, out=out)
        assert not out.any()
        repeated = np.lib.stride_tricks.as_strided(np.zeros(4), (3, 4), (0, 8))
        with pytest.raises(ValueError, match=r"(?i)overlap|shares?\b.*memory|itself"):
            hoyer.project(self.x, 0.5, out=repeated)
        assert not repeated.any()

    @pytest.mark.parametrize(
        ("given", "match"),
        [
            ({"sparseness": 2.0}, "2"),
            ({}, "sparseness"),
            ({"sparseness": 0.5, "solver": "secant"}, "secant"),
        ],
    )
    def test_nothing_is_written_on_another_error(self, given, match):
        out = np.full((3, 4), 7.0)
        with pytest.raises(ValueError, match=match):
            hoyer.project(self.x, **given, out=out)
        np.testing.assert_array_equal(out, 7)

    def test_nothing_is_written_in_place_on_nan_in_the_last_vector(self):
        x = np.arange(12.0).reshape(3, 4)
        x[2, 3] = math.nan
        before = x.copy()
        for out in (x, x[:]):
            with pytest.raises(ValueError, match="2"):
                hoyer.project(x, 0.5, out=out)
            np.testing.assert_array_equal(x, before)


class TestInPlace:
    def test_read_only(self):
        x = np.arange(9.0)
        x.flags.writeable = False
        with pytest.raises(ValueError, match=r"(?i)read-only|writ"):
            hoyer.project_(x, 0.5)
        np.testing.assert_array_equal(x, np.arange(9.0))

    @pytest.mark.parametrize(
        "dtype", [np.int64, np.int8, np.bool_, np.uint16, np.complex64, object]
    )
    def test_floating_arrays_only(self, dtype):
        x = np.ones(9, dtype)
        with pytest.raises(TypeError, match="float"):
            hoyer.project_(x, 0.5)
        assert (x == 1).all()

    @pytest.mark.parametrize("x", [[1.0, 2.0], (1.0, 2.0), 3.0, "12"])
    def test_arrays_only(self, x):
        with pytest.raises(TypeError, match="works in place on NumPy arrays and tensors, not on"):
            hoyer.project_(x, 0.5)

    def test_masked(self):
        x = np.ma.masked_less(np.arange(4.0), 1)
        with pytest.raises(TypeError, match=r"\.filled\("):
            hoyer.project_(x, 0.5)
        np.testing.assert_array_equal(x.data, np.arange(4.0))

    def test_array_that_overlaps_itself(self):
        x = np.lib.stride_tricks.as_strided(np.arange(6.0), (3, 4), (8, 8))
        before = x.copy()
        with pytest.raises(ValueError, match=r"(?i)overlap|shares?\b.*memory|itself"):
            hoyer.project_(x, 0.5)
        np.testing.assert_array_equal(x, before)

    def test_every_vector_is_checked_before_the_first_is_written(self):
        x = np.arange(1.0, 10001.0).reshape(1000, 10)
        x[-1, -1] = math.nan
        before = x.copy()
        with pytest.raises(ValueError, match="999"):
            hoyer.project_(x, 0.5)
        np.testing.assert_array_equal(x, before)

    def test_every_target_is_checked_before_the_first_vector_is_written(self):
        x = np.arange(1.0, 101.0).reshape(10, 10)
        before = x.copy()
        targets = np.full(10, 0.5)
        targets[-1] = 1.5
        with pytest.raises(ValueError, match=r"1\.5"):
            hoyer.project_(x, targets)
        np.testing.assert_array_equal(x, before)


class TestProducts:
    @pytest.mark.parametrize("method", ["jvp", "vjp"])
    @pytest.mark.parametrize("shape", [(4,), (3, 1), (1, 3, 4), (4, 3), (), (3, 5)])
    def test_exactly_the_shape_of_the_value(self, method, shape):
        found = hoyer.solve(np.arange(12.0).reshape(3, 4), 0.5)
        with pytest.raises(ValueError, match=re.escape(str(shape))) as caught:
            getattr(found, method)(np.ones(shape))
        assert "(3, 4)" in str(caught.value)

    @pytest.mark.parametrize("method", ["jvp", "vjp"])
    def test_numbers_only(self, method):
        found = hoyer.solve(np.arange(4.0), 0.5)
        for bad in (np.ones(4, complex), np.array(["1"] * 4), np.ones(4, object)):
            with pytest.raises(TypeError):
                getattr(found, method)(bad)

    def test_a_linear_operator_is_of_one_vector(self):
        pytest.importorskip("scipy")
        found = hoyer.solve(np.arange(12.0).reshape(3, 4), 0.5)
        with pytest.raises(ValueError, match=r"one vector|single vector|\(3, 4\)|3"):
            found.as_linear_operator()


def test_refusals_and_hard_inputs_do_not_warn(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hoyer.project(np.zeros(5), 0.5)
        hoyer.project(np.zeros(5), 0.5, l2="keep")
        hoyer.project(np.zeros(5), 0.5, l2="nearest", only_increase=True)
        hoyer.project(np.array([1e308, -1e308, 1e-320]), 0.5, l2="keep")
        hoyer.project(np.array([1.0, math.nan]), 0.5, check_finite=False)
        hoyer.project(np.float16([2e4, 6e-8, 2e4]), 0.5, l2="keep")
        hoyer.sparseness([[0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1e308, 1e308]])
        hoyer.sparseness([1.0])
        with pytest.raises(ValueError, match=r"(?i)nan|finite"):
            hoyer.project(np.array([1.0, math.nan]), 0.5)
