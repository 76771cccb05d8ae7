"""Every family of arrays: the same results, the same options, the same errors as for NumPy's."""

import numpy as np
import pytest
from array_forms import FORMS, agree, vectors
from engines import FAMILIES

import hoyer

pytestmark = pytest.mark.engines(*FAMILIES)
each_form = pytest.mark.parametrize("form", FORMS)
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


def native(engine, options):
    """Options with arrays of the family for NumPy's."""
    return {name: engine.give(option) for name, option in options.items()}


@each_form
@each_dtype
@both_sets
def test_projections(engine, form, dtype, nonnegative, rng):
    """The type is kept; into a new array, into `out`, into x itself; x is not touched before."""
    x, options = vectors(rng, dtype), {"nonnegative": nonnegative, **FORMS[form]}
    expected, given = hoyer.project(x, **options), engine.give(x)
    options = native(engine, options)
    found = hoyer.project(given, **options)
    assert type(found) is type(given)
    agree(engine.take(found), expected)
    np.testing.assert_array_equal(engine.take(given), x)
    if not engine.arrays_change:
        return
    out = engine.give(np.zeros_like(x))
    assert hoyer.project(given, **options, out=out) is out
    agree(engine.take(out), expected)
    np.testing.assert_array_equal(engine.take(given), x)
    assert hoyer.project_(given, **options) is given
    agree(engine.take(given), expected)


@each_form
@each_dtype
@both_sets
def test_what_is_told_and_its_derivatives(engine, form, dtype, nonnegative, rng):
    x, options = vectors(rng, dtype), {"nonnegative": nonnegative, **FORMS[form]}
    found, expected = engine.solve(x, **options), hoyer.solve(x, **options)
    for name in ("value", "shift", "scale", "l1", "l2"):
        agree(getattr(found, name), getattr(expected, name))
    for name in ("support_size", "unique"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.support_size.dtype == found.evaluations.dtype == np.int64
    assert found.unique.dtype == np.bool_
    y = rng.normal(size=x.shape).astype(dtype)
    for name in ("jvp", "vjp"):
        product = getattr(expected, name)(y)
        agree(getattr(found, name)(y), product, 100)
        if engine.arrays_change:
            out = engine.give(y)
            assert getattr(found.native, name)(out, out=out) is out
            agree(engine.take(out), product, 100)
    agree(found.jacobian(), expected.jacobian(), 100)
    for a, b in zip(found.target_gradient(), expected.target_gradient(), strict=True):
        agree(a, b, 100)
    if "sparseness" in options:
        agree(found.sparseness_gradient(), expected.sparseness_gradient(), 100)
    else:
        with pytest.raises(ValueError, match=r"use target_gradient\(\)"):
            found.sparseness_gradient()


@each_dtype
@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 1), (-1, 0), (0, 2), None])
def test_sparseness(engine, axis, dtype, rng):
    x = vectors(rng, dtype)
    agree(engine.sparseness(x, axis=axis), hoyer.sparseness(x, axis=axis))
    assert np.isnan(engine.sparseness(np.array([3.0])))


@pytest.mark.parametrize("axis", [np.int64(1), np.array(1), (np.array(1),), [1]], ids=repr)
def test_numbers_of_axes(engine, axis, rng):
    """Whatever NumPy takes as the number of an axis, also what may hold another one next time."""
    x = rng.normal(size=(3, 4, 5))
    found = engine.take(hoyer.project(engine.give(x), 0.5, axis=axis))
    agree(found, hoyer.project(x, 0.5, axis=1))


@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (1, 2), None])
@pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
def test_targets_with_the_axes_of_the_vectors(engine, axis, name, rng):
    """As sums with keepdims=True are shaped."""
    x = rng.normal(size=(3, 4, 5))
    target = rng.uniform(0.2, 0.9, x.sum(axis, keepdims=True).shape)
    rest = {} if name == "sparseness" else {"sparseness": 0.5}
    expected = hoyer.project(x, **rest, axis=axis, **{name: target.squeeze(axis)})
    for given in (target, target.tolist()):
        options = {**rest, "axis": axis, name: given}
        agree(engine.project(x, **options), expected)
        agree(engine.solve(x, **options).value, expected)
    along = axis if isinstance(axis, int) else 0 if axis is None else axis[0]
    with pytest.raises(ValueError, match="does not fit vectors in a batch of shape"):
        engine.project(x, **rest, axis=axis, **{name: np.repeat(target, 2, axis=along)})


def test_integers_and_booleans_become_doubles(engine):
    x = np.array([[1, 2, 3, 4], [0, 5, 0, 1]])
    for given in (x, x > 1):
        agree(engine.project(given, 0.5), hoyer.project(given, 0.5))
        agree(engine.sparseness(given), hoyer.sparseness(given))
    words = r"cannot store its result in an? \w+ of (torch\.)?int64"
    with pytest.raises(TypeError, match=words if engine.arrays_change else "cannot be changed"):
        hoyer.project_(engine.give(x), 0.5)


def test_an_empty_batch(engine):
    found = engine.solve(np.zeros((0, 5)), 0.5)
    assert found.value.shape == (0, 5)
    assert found.scale.shape == (0,)
    assert found.jacobian().shape == (0, 5, 5)
    assert engine.project(np.zeros((2, 0, 5)), np.zeros((2, 0))).shape == (2, 0, 5)


def test_one_vector_as_a_linear_operator(engine, rng):
    pytest.importorskip("scipy")
    x, y = rng.normal(size=(2, 12))
    found, expected = engine.solve(x, 0.6).native, hoyer.solve(x, 0.6)
    np.testing.assert_allclose(found.as_linear_operator() @ y, expected.jvp(y), atol=1e-13)
    assert "support_size" in repr(found)
    with pytest.raises(ValueError, match="one vector"):
        engine.solve(np.stack([x, y]), 0.6).native.as_linear_operator()


# ---- what is refused ----

WRONG = {
    "target": {"sparseness": 1.5},
    "norms": {"l1": 9.0, "l2": 1.0},
    "no target": {},
    "too much": {"sparseness": 0.5, "l1": 1.0, "l2": 1.0},
    "rule": {"sparseness": 0.5, "l2": "kept"},
    "axis": {"sparseness": 0.5, "axis": 3},
    "axis twice": {"sparseness": 0.5, "axis": (0, 0)},
    "no axes": {"sparseness": 0.5, "axis": ()},
    "axis of floats": {"sparseness": 0.5, "axis": 0.5},
    "solver": {"sparseness": 0.5, "solver": "fast"},
    "switch": {"sparseness": 0.5, "nonnegative": 1},
    "shape": {"sparseness": np.full(5, 0.5)},
    "one of many": {"sparseness": np.array([0.5, 2.0, 0.5])},
    "too large": {"sparseness": 0.5, "l2": 1e39},
    "true": {"sparseness": True},
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_those_of_numpy(engine, case, rng):
    if engine.is_lazy and case == "one of many":
        pytest.skip("numbers in arrays are seen later: tests/test_dask.py")
    x = rng.normal(size=(3, 4)).astype(np.float32)
    with pytest.raises((ValueError, TypeError)) as expected:
        hoyer.project(x, **WRONG[case])
    in_place = [hoyer.project_] if engine.arrays_change else []
    for function in (hoyer.project, *in_place, hoyer.solve):
        given = engine.give(x)
        with pytest.raises(expected.type) as caught:
            function(given, **native(engine, WRONG[case]))
        assert str(caught.value) == str(expected.value)
        np.testing.assert_array_equal(engine.take(given), x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite(engine, bad, rng):
    if engine.is_lazy:
        pytest.skip("it is seen later, and the chunk is named: tests/test_dask.py")
    x = rng.normal(size=(3, 5, 4))
    x[1, 3, 2] = bad
    given = engine.give(x)
    for axis in (1, (1, 2), None):
        with pytest.raises(ValueError, match="finite") as expected:
            hoyer.project(x, 0.5, axis=axis)
        for function in (hoyer.project_ if engine.arrays_change else hoyer.project, hoyer.solve):
            with pytest.raises(ValueError, match="finite") as caught:
                function(given, 0.5, axis=axis)
            assert str(caught.value) == str(expected.value)
    np.testing.assert_array_equal(engine.take(given), x)
    expected = hoyer.project(x, 0.5, axis=1, check_finite=False)
    agree(engine.project(x, 0.5, axis=1, check_finite=False), expected)
    assert np.isnan(expected).sum() == 5


def test_impossible_targets_unchecked(engine, rng):
    x, sparseness = rng.normal(size=(4, 6)), np.array([0.5, -1.0, np.nan, 0.9])
    expected = hoyer.project(x, sparseness, check_finite=False)
    agree(engine.project(x, sparseness, check_finite=False), expected)
    assert np.isnan(expected).all(-1).tolist() == [False, True, True, False]


def test_an_out_that_does_not_fit(engine, rng):
    if not engine.arrays_change:
        pytest.skip("these arrays cannot be written to")
    x = engine.give(rng.normal(size=(2, 3)))
    found = hoyer.solve(x, 0.5)
    for call in (lambda out: hoyer.project(x, 0.5, out=out), lambda out: found.jvp(x, out=out)):
        with pytest.raises(
            ValueError, match=r"out has dtype \S*float32, the result has \S*float64"
        ):
            call(engine.give(np.zeros((2, 3), np.float32)))
        with pytest.raises(ValueError, match=r"out has shape \(3,\), the result has \(2, 3\)"):
            call(engine.give(np.zeros(3)))
        with pytest.raises(TypeError, match="out must be"):
            call([[0.0] * 3] * 2)


def test_arrays_that_do_not_fit(engine, rng):
    found = hoyer.solve(engine.give(rng.normal(size=(2, 3))), 0.5)
    with pytest.raises(ValueError, match=r"y has shape \(3,\)"):
        found.vjp(engine.give(np.zeros(3)))
    with pytest.raises(TypeError, match=r"complex128"):
        found.vjp(engine.give(np.zeros((2, 3), complex)))
    with pytest.raises(TypeError, match=r"complex128"):
        hoyer.project(engine.give(np.zeros(3, complex)), 0.5)
    with pytest.raises(ValueError, match="single number"):
        hoyer.project(engine.give(np.array(1.0)), 0.5)
    with pytest.raises(ValueError, match="without entries"):
        hoyer.project(engine.give(np.zeros((2, 0))), 0.5)
