"""The engine of plain array operations, and the family of Array API arrays that it serves.

Arrays of array-api-strict have what the standard promises and nothing else.
"""

import math
import pickle

import array_api_strict as strict
import numpy as np
import pytest
from array_forms import DEFAULTS, agree
from engines import StrictArrays
from test_collection import PARTS, SETS, batches, judged

import hoyer
from hoyer.engines import arrays
from hoyer.engines.arrays.namespace import namespace
from hoyer.engines.arrays.targets import resolve_there
from hoyer.families import array_api
from hoyer.plan import Plan
from hoyer.target import Target, resolve

both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Let hoyer work on arrays of array-api-strict."""
    StrictArrays().use(monkeypatch)
    # NumPy, which is below, warns of what devices do in silence.
    with np.errstate(all="ignore"):
        yield


def as_strict(options):
    """Options with strict arrays for NumPy's."""
    return {k: strict.asarray(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}


# ---- what is promised, on the collection, is judged in tests/test_collection.py ----


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("chosen", ["signed", "nonnegative"])
def test_halves_are_rounded_once(part, chosen):
    """By the family of Array API arrays, as of CuPy: array-api-strict has no halves."""
    wrong = []
    for numbers, x, target in batches("float16", part, chosen):
        options = DEFAULTS._replace(**SETS[chosen], **target)
        for number, value in zip(numbers, array_api.project(x, options, None), strict=True):
            complaints, _ = judged("float16", number, chosen, value.tobytes(), True)
            wrong += [f"{number}: {complaint}" for complaint in complaints]
    assert not wrong, "\n".join(wrong)


def test_derivatives_do_not_change_with_the_arrays(rng):
    x = rng.normal(size=(3, 8))
    given, y = strict.asarray(x, copy=True), strict.asarray(rng.normal(size=(3, 8)))
    for l2 in (1.0, "keep"):
        found = hoyer.solve(given, 0.7, l2=l2)
        before = np.asarray(found.jvp(y)).copy()
        found.value[...] = 0.0
        given[...] = strict.asarray(x[::-1].copy())
        np.testing.assert_array_equal(np.asarray(found.jvp(y)), before)
        given[...] = strict.asarray(x)


def test_one_vector_as_a_linear_operator(rng):
    x, y = rng.normal(size=(2, 12))
    found, expected = hoyer.solve(strict.asarray(x), 0.6), hoyer.solve(x, 0.6)
    np.testing.assert_allclose(found.as_linear_operator() @ y, expected.jvp(y), atol=1e-13)
    assert "support_size" in repr(found)
    with pytest.raises(ValueError, match="one vector"):
        hoyer.solve(strict.asarray([x, y]), 0.6).as_linear_operator()


# ---- what is refused ----


def test_what_cannot_be_done():
    x = strict.asarray([[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]])
    with pytest.raises(ValueError, match=r"solver='newton' .* 'auto' alone"):
        hoyer.project(x, 0.5, solver="newton")
    with pytest.raises(TypeError, match=r"project_sparse .* array_api_strict"):
        hoyer.project_sparse(x, 0.5)
    with pytest.raises(TypeError, match="x has dtype complex128: give real numbers"):
        hoyer.project(strict.asarray([1.0j, 2.0]), 0.5)
    with pytest.raises(TypeError, match="cannot store its result in an array of int64"):
        hoyer.project_(strict.asarray([1, 2, 3]), 0.5)
    with pytest.raises(ValueError, match="single number"):
        hoyer.project(strict.asarray(1.0), 0.5)
    with pytest.raises(ValueError, match="without entries"):
        hoyer.project(strict.zeros((2, 0)), 0.5)


def test_an_out_that_does_not_fit():
    x = strict.asarray([[1.0, 2.0, 3.0], [3.0, 1.0, 1.0]])
    found = hoyer.solve(x, 0.5)
    for call in (lambda out: hoyer.project(x, 0.5, out=out), lambda out: found.jvp(x, out=out)):
        with pytest.raises(ValueError, match="out has dtype float32, the result has float64"):
            call(strict.zeros((2, 3), dtype=strict.float32))
        with pytest.raises(ValueError, match=r"out has shape \(3,\), the result has \(2, 3\)"):
            call(strict.zeros(3))
        with pytest.raises(TypeError, match="out must be one of the arrays of array_api_strict"):
            call(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"y has shape \(3,\)"):
        found.vjp(strict.zeros(3))
    with pytest.raises(TypeError, match="y has dtype complex128"):
        found.vjp(strict.zeros((2, 3), dtype=strict.complex128))


def test_arrays_that_cannot_be_changed(monkeypatch):
    x = strict.asarray([1.0, 2.0, 3.0])

    def refuse(*_):
        raise TypeError("arrays are immutable")

    monkeypatch.setattr(type(x), "__setitem__", refuse)
    with pytest.raises(TypeError, match=r"x cannot be written to \(arrays are immutable\)"):
        hoyer.project_(x, 0.5)
    with pytest.raises(TypeError, match="out cannot be written to"):
        hoyer.project(x, 0.5, out=strict.asarray(x, copy=True))


def test_measures_do_not_take_arrays_of_other_libraries():
    kind = type("ndarray", (), {"__module__": "cupy"})
    with pytest.raises(TypeError, match=r"cupy.ndarray, which hoyer.measures .* x.get\(\)"):
        hoyer.measures.gini(kind())


# ---- the parts ----


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_powers_of_two(dtype):
    info = np.finfo(dtype)
    most = np.array(2.0 ** (info.maxexp - 2), dtype)
    ends = [0, info.smallest_subnormal, info.tiny, info.max, math.inf, math.nan]
    inner = [1.0, 0.75, np.nextafter(1, 0, dtype=dtype), 3.0, 4.0, most]
    least = info.tiny
    expected = [least, least, least, most, most, most, 1, 0.5, 0.5, 2, 4, most]
    found = namespace(np).power_of_two(np.array([*ends, *inner], dtype))
    np.testing.assert_array_equal(found, np.array(expected, dtype))
    assert (1 / found >= info.tiny).all()


def doubles_near_ties(kind, rng):
    """Doubles next to the middle between two numbers of a narrower type, and far from it."""
    grid = np.ldexp(rng.integers(2**11, 2**12, 4000).astype(float), rng.integers(-40, 6, 4000))
    nudge = rng.choice([0.0, 1e-9, -1e-9, 2.0**-52, -(2.0**-52), 0.1], 4000)
    x = grid * (1 + nudge) * rng.choice([-1, 1], 4000)
    ends = [0.0, 1e-30, 65519.9, 65520.0, -1e300, math.inf, -math.inf, math.nan, 2.0**-25]
    return np.concatenate([x, ends, np.exp2(rng.uniform(-150, 130, 1000))])


def test_doubles_become_halves_in_one_rounding(rng):
    torch = pytest.importorskip("torch")
    x = doubles_near_ties(np.float16, rng)
    expected = x.astype(np.float16) + np.float16(0)
    np.testing.assert_array_equal(namespace(np).narrowed(x, np.float16), expected)
    xp = namespace(torch)
    np.testing.assert_array_equal(xp.narrowed(torch.tensor(x), torch.float16).numpy(), expected)
    # bfloat16: eight digits, by whole numbers of the last one.
    _, exponent = np.frexp(x)
    last = np.maximum(exponent - 8, -133)
    expected = np.ldexp(np.rint(np.ldexp(x, -last)), last)
    expected[np.abs(expected) >= 2.0**128] *= math.inf
    found = xp.narrowed(torch.tensor(x), torch.bfloat16).double().numpy()
    np.testing.assert_array_equal(found, expected)
    assert not np.signbit(found[found == 0]).any()


def test_sums_above_pivots(rng):
    x = rng.normal(size=(5, 30)) + 100
    pivots = np.array([100.0, 99.5, 90.0, 110.0, x[4].max()])
    found = arrays.sums(strict.asarray(x), strict.asarray(pivots), namespace(strict))
    for i, (row, pivot) in enumerate(zip(x, pivots, strict=True)):
        count, mean, deviation, below, above = (float(numbers[i]) for numbers in found)
        inside = row[row > pivot]
        assert count == inside.size
        assert above == inside.min(initial=math.inf)
        assert below == row[row <= pivot].max(initial=-math.inf)
        if count:
            assert mean == pytest.approx(inside.mean(), rel=1e-15)
            assert deviation == pytest.approx(inside.std(), rel=1e-12)


GIVEN = {
    "sparseness": (np.array([0.1, 0.5, 1.0, 1 + 2e-16, -1e-16, 1.1, math.nan]), None, None),
    "float32": (np.array([0.1, 0.5, 1 + 2e-7], np.float32), None, None),
    "rule": (np.array([0.1, 2.0]), None, "keep"),
    "l1": (np.array([0.1, 0.5]), 2.0, None),
    "l2": (0.5, None, np.array([1.0, -1.0, math.inf, 3.0])),
    "integers": (0.5, None, np.array([1, 2, 3])),
    "norms": (None, np.array([1.0, 1.5, 3.0, 4.0, 5.0, 1e300]), 1.0),
    "both norms": (None, np.array([[1.5], [1e-300]]), np.array([1.0, 1e-300])),
}


@pytest.mark.parametrize("case", GIVEN)
def test_targets_resolved_where_they_are(case):
    """Those on a device, which nobody looks at; here NumPy's stand for them."""
    sparseness, l1, l2 = GIVEN[case]
    options = DEFAULTS._replace(sparseness=sparseness, l1=l1, l2=l2)
    found = resolve_there(16, options, namespace(np))
    shape = np.broadcast_shapes(*(np.shape(t) for t in options[:3] if not isinstance(t, str)))
    expected = resolve(16, sparseness, l1, l2, shape, check=False)
    assert found[4:] == expected[4:]
    for name, a, b in zip(Target._fields[:4], found, expected, strict=False):
        np.testing.assert_array_equal(np.broadcast_to(a, shape).reshape(-1), b, err_msg=name)


def test_targets_on_a_device_that_can_be_seen_to_be_wrong():
    options = DEFAULTS._replace(sparseness=np.array([0.5, 0.6]))
    xp = namespace(np)
    for wrong in ({"l1": 1.0, "l2": 1.0}, {"l2": "kept"}, {"l2": -1.0}, {"l1": "keep"}):
        with pytest.raises(ValueError, match=r"l1|l2"):
            resolve_there(4, options._replace(**wrong), xp)
    with pytest.raises(ValueError, match="length 1"):
        resolve_there(1, options, xp)


def test_plans_with_arrays_of_the_library(rng):
    """What a family on a device hands over."""
    x, xp = rng.normal(size=(2, 3, 8)), namespace(np)
    options = DEFAULTS._replace(sparseness=np.array([0.3, 0.6, 0.9]))
    plan = Plan.of(8, resolve_there(8, options, xp), options)
    value, record = arrays.forward(x, plan, xp)
    agree(value, hoyer.project(x, options.sparseness))
    assert record.shape == (2, 3, 8)


def test_projections_can_be_pickled(rng):
    x, y = strict.asarray(rng.normal(size=(2, 6))), strict.asarray(rng.normal(size=(2, 6)))
    found = hoyer.solve(x, strict.asarray([0.5, 0.6]), l2="keep")
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(np.asarray(again.vjp(y)), np.asarray(found.vjp(y)))
