"""CuPy's arrays: ``pytest -m gpu`` on a machine with a GPU; the compiled core is not needed.

The reference is the same code on NumPy's arrays, which tests/test_arrays.py judges.
"""

import math

import numpy as np
import pytest
from array_forms import DEFAULTS, FORMS, agree, vectors

import hoyer
from hoyer.families import array_api

cupy = pytest.importorskip("cupy")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cupy.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning"),
]
each_form = pytest.mark.parametrize("form", FORMS)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
FACTOR = {"float64": 1, "float32": 1, "float16": 0.05}


@pytest.fixture(params=FACTOR)
def x(request, rng):
    """Vectors of every type."""
    return vectors(rng, request.param)


def on_device(options):
    """Options with CuPy's arrays for NumPy's."""
    return {k: cupy.asarray(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}


@each_form
@both_sets
@pytest.mark.parametrize("where", ["host", "device"])
def test_projections(x, form, nonnegative, where):
    """Targets may lie on the host or on the device."""
    options = {"nonnegative": nonnegative, **FORMS[form]}
    expected = array_api.project(x, DEFAULTS._replace(**options), None)
    given = on_device(options) if where == "device" else options
    x = cupy.asarray(x)
    factor = FACTOR[x.dtype.name]
    value = hoyer.project(x, **given)
    assert isinstance(value, cupy.ndarray)
    agree(value.get(), expected, factor)
    out = cupy.full_like(x, math.nan)
    assert hoyer.project(x, **given, out=out) is out
    agree(out.get(), expected, factor)
    turned = cupy.asfortranarray(x)[:, ::-1]
    assert hoyer.project_(x, **given) is x
    agree(x.get(), expected, factor)
    if form in ("sparseness", "keep", "nearest"):
        assert hoyer.project_(turned, **given) is turned
        agree(turned.get(), expected[:, ::-1], factor)


@each_form
@both_sets
def test_what_is_told_and_its_derivatives(x, form, nonnegative, rng):
    options = {"nonnegative": nonnegative, **FORMS[form]}
    expected = array_api.solve(x, DEFAULTS._replace(**options))
    found = hoyer.solve(cupy.asarray(x), **on_device(options))
    for name in ("shift", "scale", "l1", "l2"):
        agree(getattr(found, name).get(), getattr(expected, name), 4)
    for name in ("support_size", "unique", "evaluations"):
        np.testing.assert_array_equal(getattr(found, name).get(), getattr(expected, name))
    factor = 100 * FACTOR[x.dtype.name]
    y = rng.normal(size=x.shape).astype(x.dtype)
    for name in ("jvp", "vjp"):
        product = getattr(found, name)(cupy.asarray(y))
        agree(product.get(), getattr(expected, name)(y), factor)
    agree(found.jacobian().get(), expected.jacobian(), factor)
    for a, b in zip(found.target_gradient(), expected.target_gradient(), strict=True):
        agree(a.get(), b, factor)
    if options.get("sparseness") is not None:
        agree(found.sparseness_gradient().get(), expected.sparseness_gradient(), factor)


@pytest.mark.parametrize("axis", [-1, 0, (0, 1), None])
def test_sparseness(x, axis):
    expected = array_api.sparseness(x, axis)
    agree(hoyer.sparseness(cupy.asarray(x), axis=axis).get(), expected)


def test_many_vectors(rng):
    x = rng.normal(size=(2000, 700)).astype(np.float32)
    expected = array_api.project(x, DEFAULTS._replace(sparseness=0.8), None)
    agree(hoyer.project(cupy.asarray(x), 0.8).get(), expected)


def test_an_empty_batch():
    found = hoyer.solve(cupy.zeros((0, 5)), 0.5)
    assert found.value.shape == (0, 5)
    assert found.scale.shape == (0,)


def test_bad_vectors_come_back_as_nan(rng):
    """To look for them would stall the device."""
    x = cupy.asarray(rng.normal(size=(4, 6)))
    x[1, 2] = math.nan
    x[2, 0] = -math.inf
    sparseness = cupy.asarray([0.5, 0.5, 0.5, 1.5])
    assert cupy.isnan(hoyer.project(x, 0.5)).all(-1).tolist() == [False, True, True, False]
    assert cupy.isnan(hoyer.project(x, sparseness)).all(-1).tolist() == [False, True, True, True]


def test_what_is_refused():
    x = cupy.asarray([[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match=r"sparseness must lie in \[0, 1\], got 1.5"):
        hoyer.project(x, 1.5)
    with pytest.raises(ValueError, match=r"a target of shape \(3,\) does not fit"):
        hoyer.project(x, cupy.full(3, 0.5))
    with pytest.raises(ValueError, match=r"give sparseness with at most one norm"):
        hoyer.project(x, cupy.full(2, 0.5), l1=1.0, l2=1.0)
    with pytest.raises(TypeError, match="sparseness must be a real number"):
        hoyer.project(x, cupy.asarray([True, False]))
    with pytest.raises(ValueError, match="out has dtype float32, the result has float64"):
        hoyer.project(x, 0.5, out=cupy.zeros((2, 3), cupy.float32))
    with pytest.raises(TypeError, match=r"out must be one of .* not numpy\.ndarray"):
        hoyer.project(x, 0.5, out=np.zeros((2, 3)))
    with pytest.raises(ValueError, match="share memory"):
        hoyer.project_(cupy.broadcast_to(x[0], (2, 3)), 0.5)
    with pytest.raises(TypeError, match=r"project_sparse .* the arrays of cupy"):
        hoyer.project_sparse(x, 0.5)
    with pytest.raises(TypeError, match="x has dtype complex128"):
        hoyer.project(x + 1j, 0.5)


def test_measures_ask_for_numpy_arrays():
    pytest.importorskip("hoyer._core")
    with pytest.raises(TypeError, match=r"hoyer.measures does not work on.*x.get\(\)"):
        hoyer.measures.gini(cupy.ones((2, 3)))
