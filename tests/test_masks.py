"""Vectors with masks: the entries that `where` leaves, as if there were no others."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from engines import BOUND
from mpmath import mp, mpf
from reference import (
    correctly_rounded,
    error_in_eps,
    exact_projection,
    norm_errors_in_eps,
    support_mismatch,
)
from test_collection import beyond_rounding
from test_properties import cancellation

import hoyer
from hoyer.projection import Active

ENGINES = ("numpy/core",)
"""Those that are asked everything; tests/test_sets.py has questions for all of them."""
pytestmark = pytest.mark.engines(*ENGINES)
kernels_too = pytest.mark.engines(*ENGINES, slow=["torch/triton"])

both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
each_dtype = pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])

TARGETS = {
    "sparseness": {"sparseness": 0.7},
    "l2": {"sparseness": 0.6, "l2": 2.5},
    "l1": {"sparseness": 0.5, "l1": 3.0},
    "keep": {"sparseness": 0.7, "l2": "keep"},
    "nearest": {"sparseness": 0.7, "l2": "nearest"},
    "constant": {"sparseness": 0.0},
    "nearly constant": {"sparseness": 1e-6},
    "one-hot": {"sparseness": 1.0},
    "only increase": {"sparseness": 0.35, "only_increase": True},
    "only increase, l1": {"sparseness": 0.35, "l1": 2.0, "only_increase": True},
    "only increase, keep": {"sparseness": 0.35, "l2": "keep", "only_increase": True},
    "only increase, nearest": {"sparseness": 0.35, "l2": "nearest", "only_increase": True},
}
NORMS = {"l1": 1.2, "l2": 1.0}
"""Possible from two entries on."""
each_target = pytest.mark.parametrize("target", [*TARGETS, "norms"])


def options_of(target, nonnegative=False):
    return {"nonnegative": nonnegative, **(NORMS if target == "norms" else TARGETS[target])}


def masks_for(rows, n, rng, least=0):
    """Masks of all kinds: none, all, one, a prefix, every other entry, any."""
    masks = rng.random((rows, n)) < rng.random((rows, 1))
    masks[0], masks[1], masks[2] = False, True, False
    masks[2, n // 2] = True
    masks[3] = np.arange(n) < n // 3
    masks[4] = np.arange(n) % 2 == 0
    masks[5:, :least] = True
    return masks if least == 0 else masks[1:][masks[1:].sum(1) >= least]


def masked_vectors(rng, rows, n, dtype, least=0):
    """Vectors, some with ties and zeros, and their masks; what is masked is no number."""
    x, where = rng.normal(size=(rows, n)).astype(dtype), masks_for(rows, n, rng, least)
    x = x[: len(where)]
    x[-1], x[-2, ::2], x[-3] = 1, 0, np.round(x[-3])
    x[~where] = rng.choice([np.nan, np.inf, -np.inf, 60000.0, 0.0], size=(~where).sum())
    return x, where


def bits(array):
    """The bits of numbers: +0 and -0 differ."""
    return np.asarray(array).view(f"u{array.dtype.itemsize}")


# ---- values ----


@kernels_too
@each_target
@each_dtype
@both_sets
def test_against_the_exact_projection(  # noqa: PLR0917
    engine, target, dtype, nonnegative, rng, largest
):
    options = options_of(target, nonnegative)
    least = 2 if target == "norms" else 0
    for x, where in (few(rng, 6, dtype, least), masked_vectors(rng, 24, 40, dtype, least)):
        found = engine.project(x, where=where, **options)
        assert found.dtype == dtype
        assert (bits(found)[~where] == 0).all()
        for p, row, mask in zip(found, x, where, strict=True):
            if mask.sum() == 1 and "sparseness" in options:
                check_single(p[mask], row[mask], options)
            elif mask.any():
                check_value(p[mask], row[mask], options, largest, engine)


def few(rng, n, dtype, least):
    """Every mask of a short vector that leaves enough."""
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    where = masks[masks.sum(1) >= least]
    x = rng.normal(size=where.shape).astype(dtype)
    x[~where] = np.nan
    return x, where


def check_value(p, x, options, largest, engine):
    exact = exact_projection(x, **options)
    value, norms = error_in_eps(p, exact), norm_errors_in_eps(p, exact)
    if p.dtype == np.float16:
        if engine.rounds_halves_once:
            assert correctly_rounded(p, exact)
        else:
            assert beyond_rounding(p, exact, "float16") <= 4 * 2.0**-23
        return
    # The norm of the nearest point is a sum of both signs (docs/internals/decisions.md).
    loss = cancellation(x, exact) if options.get("l2") == "nearest" else 1
    largest(f"masks: error of values, in eps, {engine}", value / loss)
    assert max(value, *norms) <= BOUND * loss
    assert support_mismatch(p, exact) <= BOUND


def check_single(p, x, options):
    """One entry takes the norm, whatever the sparseness."""
    norm = options.get("l1", options.get("l2", 1.0))
    if norm == "keep" or (options.get("l2") == "nearest" and not options["nonnegative"]):
        norm = abs(x[0])
    elif norm == "nearest":
        norm = max(x[0], 0)
    sign = -1 if x[0] < 0 and not options["nonnegative"] else 1
    np.testing.assert_allclose(p, [sign * norm], rtol=2 * np.finfo(p.dtype).eps)


@each_target
@each_dtype
@both_sets
@pytest.mark.parametrize("shape", [(40, 5), (200, 24), (64, 70), (40, 300), (3, 3000), (2, 20000)])
def test_as_projecting_what_is_left(  # noqa: PLR0917
    engine, target, dtype, nonnegative, shape, rng
):
    """To the last bits, whether vectors of one length come together or alone."""
    options, rows = options_of(target, nonnegative), max(9, shape[0])
    x, where = masked_vectors(rng, rows, shape[1], dtype, 2)
    found = engine.project(x, where=where, **options)
    eps = 8 * np.finfo(dtype).eps
    for p, row, mask in zip(found, x, where, strict=True):
        alone = engine.project(row[mask], **options)
        np.testing.assert_allclose(p[mask], alone, rtol=0, atol=eps * abs(alone).max())
    assert (bits(found)[~where] == 0).all()


def test_all_true_is_no_mask(engine, rng):
    for shape in ((100, 30), (50, 700), (3, 20000)):
        x = rng.normal(size=shape).astype(np.float32)
        plain = engine.project(x, 0.8)
        for where in (np.ones(shape, bool), np.array(True), np.ones(shape[1], bool)):
            np.testing.assert_array_equal(bits(engine.project(x, 0.8, where=where)), bits(plain))


def test_one_mask_for_many(engine, rng):
    """As many vectors without the other entries."""
    for n in (24, 700):
        x, where = rng.normal(size=(50, n)).astype(np.float32), rng.random(n) < 0.7
        found = engine.project(x, 0.8, where=where)
        expected = engine.project(np.ascontiguousarray(x[:, where]), 0.8)
        np.testing.assert_array_equal(bits(found[:, where]), bits(expected))
        assert (found[:, ~where] == 0).all()


@kernels_too
def test_vectors_without_entries(engine):
    x, where = np.full((3, 4), np.nan), np.zeros((3, 4), bool)
    where[1], x[1] = True, [1.0, 2.0, 3.0, 4.0]
    for options in (*TARGETS.values(), NORMS):
        found = engine.solve(x, where=where, **options)
        assert (bits(found.value[[0, 2]]) == 0).all()
        for name, value in {
            "support_size": 0,
            "scale": 0,
            "l1": 0,
            "l2": 0,
            "unique": True,
            "active_code": Active.NONE,
            "shift": np.nan,
        }.items():
            np.testing.assert_array_equal(getattr(found, name)[[0, 2]], value, err_msg=name)
        np.testing.assert_array_equal(found.value[1], engine.solve(x[1], **options).value)
        for array in (found.jvp(np.ones_like(x)), found.jacobian(), *found.target_gradient()):
            assert (array[[0, 2]] == 0).all()
            assert np.isfinite(array).all()


@kernels_too
def test_targets_of_each_vector(engine, rng):
    """Masks and arrays of targets together."""
    x, where = masked_vectors(rng, 60, 20, "float64", 3)
    sigma, norms = rng.uniform(0, 1, len(x)), rng.uniform(0.5, 2, len(x))
    found = engine.project(x, sigma, l2=norms, where=where)
    for p, row, mask, s, norm in zip(found, x, where, sigma, norms, strict=True):
        exact = exact_projection(row[mask], sparseness=s, l2=norm)
        assert error_in_eps(p[mask], exact) <= BOUND
    ratios = 1 + rng.random(len(x)) * (np.sqrt(where.sum(1)) - 1)
    found = engine.project(x, l1=ratios * norms, l2=norms[:, None], where=where)
    for p, row, mask, ratio, norm in zip(found, x, where, ratios, norms, strict=True):
        assert error_in_eps(p[mask], exact_projection(row[mask], l1=ratio * norm, l2=norm)) <= BOUND


# ---- arrays of any layout ----


@pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (1, 2), (2, 0, 1), None])
@pytest.mark.parametrize("shape", [(6, 7, 9), (20, 3, 65), (5, 70, 4)])
@each_dtype
def test_axes(engine, axis, shape, dtype, rng):
    """The masks of vectors along any axes; masks that broadcast, whatever their strides."""
    x = rng.normal(size=shape).astype(dtype)
    whole = rng.random(shape) < 0.6
    for where in (
        whole,
        np.asfortranarray(whole),
        whole[:, ::-1, :],
        whole[:, :1],
        whole[0],
        whole[..., :1],
        whole[0, 0],
        np.array(True),
    ):
        mask = np.broadcast_to(where, shape)
        expected = expected_along(engine, x, mask, axis)
        found = engine.project(np.where(mask, x, np.nan), 0.7, where=where, axis=axis)
        eps = 8 * np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=0, atol=eps)
        assert (bits(found)[~mask] == 0).all()


def expected_along(engine, x, mask, axis):
    """Vector by vector."""
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(one % x.ndim for one in axes)
    last = range(-len(axes), 0)
    result = np.zeros_like(x)
    rows, masks, results = (np.moveaxis(one, axes, last) for one in (x, mask, result))
    for index in np.ndindex(rows.shape[: x.ndim - len(axes)]):
        left = masks[index]
        if left.sum() == 1:
            results[index][left] = np.sign(rows[index][left])
        elif left.any():
            results[index][left] = engine.project(rows[index][left], 0.7)
    return result


@kernels_too
def test_out_and_in_place(engine, rng):
    for n in (20, 700, 20000):
        x, where = masked_vectors(rng, 40, n, "float32")
        expected = engine.project(x, 0.7, where=where)
        given, mask, out = engine.give(x), engine.give(where), engine.give(np.zeros_like(x))
        assert hoyer.project(given, 0.7, where=mask, out=out) is out
        np.testing.assert_array_equal(engine.take(out), expected)
        assert hoyer.project_(given, 0.7, where=mask) is given
        np.testing.assert_array_equal(engine.take(given), expected)
        np.testing.assert_array_equal(engine.take(mask), where)


@kernels_too
def test_empty_batches(engine):
    found = engine.solve(np.zeros((0, 5)), 0.5, where=np.zeros((0, 5), bool))
    assert found.value.shape == found.jvp(np.zeros((0, 5))).shape == (0, 5)
    where = np.ones(5, bool)
    assert engine.project(np.zeros((2, 0, 5)), 0.5, where=where).shape == (2, 0, 5)


# ---- what is told, and derivatives ----


@kernels_too
@each_target
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@both_sets
def test_what_is_told(engine, target, dtype, nonnegative, rng):
    options = options_of(target, nonnegative)
    x, where = masked_vectors(rng, 40, 12, dtype, 2)
    found = engine.solve(x, where=where, **options)
    np.testing.assert_allclose(
        found.value, engine.project(x, where=where, **options), atol=8 * np.finfo(dtype).eps
    )
    for i, (row, mask) in enumerate(zip(x, where, strict=True)):
        alone = engine.solve(row[mask], **options)
        for name in ("support_size", "unique", "active_code"):
            assert getattr(found, name)[i] == getattr(alone, name), name
        for name in ("shift", "scale", "l1", "l2"):
            expected = getattr(alone, name)
            np.testing.assert_allclose(getattr(found, name)[i], expected, rtol=1e-5, atol=1e-12)


@kernels_too
@each_target
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@both_sets
def test_derivatives(engine, target, dtype, nonnegative, rng):
    """Those of what is left, with zeros elsewhere, whatever y is there."""
    options = options_of(target, nonnegative)
    x, where = masked_vectors(rng, 40, 12, dtype, 2)
    y = rng.normal(size=x.shape).astype(dtype)
    y[~where] = rng.choice([np.nan, np.inf, 1e30], size=(~where).sum())
    found = engine.solve(x, where=where, **options)
    products, jacobian = [found.jvp(y), found.vjp(y)], found.jacobian()
    gradients = list(found.target_gradient())
    if "sparseness" in options:
        gradients.append(found.sparseness_gradient())
    for array in products + gradients:
        assert (bits(array)[~where] == 0).all()
    for i, (row, mask) in enumerate(zip(x, where, strict=True)):
        alone = engine.solve(row[mask], **options)
        # Where as many norms bind as entries are left the derivative is zero, up to rounding.
        size = 1 / float(alone.scale) if alone.scale > 0 else 0.0
        near(products[0][i][mask], alone.jvp(y[i][mask]), size * abs(y[i][mask]).max())
        near(products[1][i][mask], alone.vjp(y[i][mask]), size * abs(y[i][mask]).max())
        near(jacobian[i][np.ix_(mask, mask)], alone.jacobian(), size)
        assert (jacobian[i][~mask] == 0).all()
        assert (jacobian[i][:, ~mask] == 0).all()
        expected = list(alone.target_gradient())
        if "sparseness" in options:
            expected.append(alone.sparseness_gradient())
        for gradient, one in zip(gradients, expected, strict=True):
            near(gradient[i][mask], one)


def near(found, expected, size=0.0):
    """Up to rounding; by what is promised of both, 32 eps of `size`, where they vanish."""
    eps = np.finfo(found.dtype).eps
    limit = 1000 * eps * (1e-30 + abs(expected).max()) + 64 * eps * size
    np.testing.assert_allclose(found, expected, rtol=1000 * eps, atol=limit)


@kernels_too
def test_derivatives_of_long_vectors(engine, rng):
    x, where = masked_vectors(rng, 12, 3000, "float64", 2)
    y = np.where(where, rng.normal(size=x.shape), np.nan)
    found = engine.solve(x, 0.8, where=where)
    product = found.vjp(y)
    assert (bits(product)[~where] == 0).all()
    for p, row, mask, given in zip(product, x, where, y, strict=True):
        near(p[mask], engine.solve(row[mask], 0.8).vjp(given[mask]))


@kernels_too
def test_the_derivative_by_differences(engine, rng):
    x, where = rng.normal(size=30), rng.random(30) < 0.6
    y, h = np.where(where, rng.normal(size=30), 0), Fraction(1, 2**40)
    with mp.workprec(200):
        ends = [
            exact_projection(
                [Fraction(a) + sign * h * Fraction(b) for a, b in zip(x, y, strict=True)],
                sparseness=0.6,
                where=where,
                precision=200,
            ).value
            for sign in (1, -1)
        ]
        steps = [float((a - b) / (2 * mpf(1) / 2**40)) for a, b in zip(*ends, strict=True)]
    np.testing.assert_allclose(engine.solve(x, 0.6, where=where).jvp(y), steps, atol=1e-10)


# ---- what is refused ----


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3, 5, 4), (40, 5, 20)])
def test_not_finite(engine, bad, shape, rng):
    """The entry is named that counts, the first of all; nothing is written in place."""
    x, where = rng.normal(size=shape), np.ones(shape, bool)
    x[0, 0], where[0, 0] = np.nan, False
    x[1, 3, 2] = x[2, 0, 0] = bad
    where[1, 0] = False
    x[1, 1, :2], where[1, 1, :2] = np.nan, False
    given, mask = engine.give(x), engine.give(where)
    for axis, words in ((-1, r"entry 2 of vector \(1, 3\)"), (1, r"entry 3 of vector \(1, 2\)")):
        for function in (hoyer.project, hoyer.project_, hoyer.solve):
            with pytest.raises(ValueError, match=rf"x has {bad} at {words};"):
                function(given, 0.5, where=mask, axis=axis)
        np.testing.assert_array_equal(engine.take(given), x)
    with pytest.raises(ValueError, match=r"at entry \(1, 3, 2\);"):
        hoyer.project_(given, 0.5, where=mask, axis=None)
    np.testing.assert_array_equal(engine.take(given), x)
    found = engine.project(x, 0.5, where=where, check_finite=False)
    assert np.isnan(found[1, 3][where[1, 3]]).all()
    assert (found[~where] == 0).all()
    assert np.isnan(found).sum() == where[1, 3].sum() + where[2, 0].sum()


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        (np.ones((3, 4), int), TypeError, "where has dtype .*int64: give booleans"),
        (np.ones((3, 4)), TypeError, "where has dtype .*float64: give booleans"),
        (np.ones((4, 3), bool), ValueError, r"where has shape \(4, 3\), which does not broadcast"),
        (np.ones((1, 3, 4), bool), ValueError, r"where has shape \(1, 3, 4\)"),
        (np.ones(3, bool), ValueError, r"that of x, \(3, 4\)"),
    ],
)
def test_what_is_no_mask(engine, where, error, words, rng):
    x = rng.normal(size=(3, 4))
    for function in (hoyer.project, hoyer.project_, hoyer.solve):
        given = engine.give(x)
        with pytest.raises(error, match=words):
            function(given, 0.5, where=engine.give(where))
        np.testing.assert_array_equal(engine.take(given), x)


def test_norms_that_are_impossible_for_what_is_left(engine, rng):
    x, where = rng.normal(size=(30, 5)), np.ones((30, 5), bool)
    where[7, :3] = False
    words = r"l1=1.5 and l2=1.0 at index 7 are impossible for vectors of length 2: l1 must lie"
    with pytest.raises(ValueError, match=words):
        engine.project(x, l1=1.5, l2=1.0, where=where)
    found = engine.project(x, l1=1.5, l2=1.0, where=where, check_finite=False)
    assert np.isnan(found[7, 3:]).all()
    assert (found[7, :3] == 0).all()
    assert np.isfinite(np.delete(found, 7, 0)).all()
    where[7] = False  # nothing is asked of nothing
    assert (engine.project(x, l1=1.5, l2=1.0, where=where)[7] == 0).all()


# ---- NumPy ----


@pytest.mark.engines("numpy/core")
class TestNumPy:
    """What only NumPy's arrays can be."""

    def test_lists(self, engine):
        found = hoyer.project([1, 2, 3, 4, 9], 0.5, where=[True, True, True, True, False])
        np.testing.assert_array_equal(found, [*hoyer.project([1.0, 2.0, 3.0, 4.0], 0.5), 0])
        with pytest.raises(TypeError, match="give booleans"):
            hoyer.project([1.0, 2.0], 0.5, where=[1, 0])

    def test_frames(self, engine, rng):
        pandas = pytest.importorskip("pandas")
        x = rng.normal(size=(6, 5))
        frame = pandas.DataFrame(x)
        expected = hoyer.project(x, 0.5, where=x > -0.5)
        np.testing.assert_array_equal(hoyer.project(frame, 0.5, where=frame > -0.5), expected)

    def test_masked_arrays_are_refused(self, engine):
        mask = np.ma.masked_array([True, False], [False, True])
        with pytest.raises(TypeError, match=r"where is a masked array.*where\.filled"):
            hoyer.project([1.0, 2.0], 0.5, where=mask)

    @pytest.mark.parametrize("dtype", [">f8", ">f4", ">f2"])
    def test_foreign_byte_order(self, engine, dtype, rng):
        x, where = rng.normal(size=(40, 12)).astype(dtype), rng.random((40, 12)) < 0.7
        expected = hoyer.project(x.astype(dtype.replace(">", "<")), 0.6, where=where)
        np.testing.assert_array_equal(hoyer.project(x, 0.6, where=where), expected)
        out = np.zeros_like(x)
        hoyer.project(x, 0.6, where=where, out=out)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(hoyer.project_(x, 0.6, where=where), expected)

    def test_strange_memory(self, engine, rng):
        """Read-only, reversed, packed; masks that are views of what is written."""
        x, where = rng.normal(size=(30, 9)), rng.random((30, 9)) < 0.7
        expected = hoyer.project(x, 0.6, where=where)
        x.flags.writeable = where.flags.writeable = False
        np.testing.assert_array_equal(hoyer.project(x, 0.6, where=where), expected)
        turned = hoyer.project(x[:, ::-1], 0.6, where=where[:, ::-1])
        np.testing.assert_allclose(turned, expected[:, ::-1], atol=1e-15)
        packed = np.zeros((30, 9), [("byte", "u1"), ("x", "f8"), ("where", "?")])
        packed["x"], packed["where"] = x, where
        np.testing.assert_array_equal(
            hoyer.project(packed["x"], 0.6, where=packed["where"]), expected
        )
        hoyer.project_(packed["x"], 0.6, where=packed["where"])
        np.testing.assert_array_equal(packed["x"], expected)
        np.testing.assert_array_equal(packed["where"], where)
        out = np.zeros((30, 9))
        seen = out.view(bool).reshape(30, 9, 8)[:, :, 0]
        seen[...] = where
        hoyer.project(x, 0.6, where=seen, out=out)
        np.testing.assert_array_equal(out, expected)

    @pytest.mark.parametrize("axis", [0, 1])
    @each_dtype
    def test_sparse_results(self, engine, axis, dtype, rng):
        pytest.importorskip("scipy")
        for shape in ((40, 50), (70, 3000), (3000, 70)):
            x, where = rng.normal(size=shape).astype(dtype), rng.random(shape) < 0.4
            where[0], where[:, 0] = False, False
            for sparseness in (0.5, 0.95, 1.0):
                options = {"sparseness": sparseness, "axis": axis, "where": where}
                found, expected = hoyer.project_sparse(x, **options), hoyer.project(x, **options)
                np.testing.assert_array_equal(found.toarray(), expected)
        x[:] = 1  # ties: the first of them
        found = hoyer.project_sparse(x, 0.9, axis=axis, where=where).toarray()
        np.testing.assert_array_equal(found, hoyer.project(x, 0.9, axis=axis, where=where))

    def test_one_long_sparse_result(self, engine, rng):
        pytest.importorskip("scipy")
        x, where = rng.normal(size=300_000).astype(np.float32), rng.random(300_000) < 0.5
        for sparseness in (0.8, 0.99, 0.999):
            found = hoyer.project_sparse(x, sparseness, where=where).toarray()
            np.testing.assert_array_equal(found, hoyer.project(x, sparseness, where=where))

    def test_threads(self, engine, rng):
        """The bits do not depend on their number."""
        before = hoyer.get_num_threads()
        try:
            for shape in ((5000, 33), (400, 700), (1, 700_000)):
                x, where = rng.normal(size=shape).astype(np.float32), rng.random(shape) < 0.7
                results = []
                for threads in (1, 2, 3):
                    hoyer.set_num_threads(threads)
                    results.append(hoyer.project(x, 0.8, where=where))
                np.testing.assert_array_equal(bits(results[0]), bits(results[1]))
                np.testing.assert_array_equal(bits(results[0]), bits(results[2]))
        finally:
            hoyer.set_num_threads(before)

    def test_projections_keep_their_masks(self, engine, rng):
        """Through pickle, and whatever becomes of the caller's mask."""
        x, where = rng.normal(size=(4, 9)), rng.random((4, 9)) < 0.7
        found = hoyer.solve(x, 0.4, l2="keep", where=where)
        y = rng.normal(size=x.shape)
        expected = found.jvp(y)
        again = pickle.loads(pickle.dumps(found))
        where[...] = False
        np.testing.assert_array_equal(found.jvp(y), expected)
        np.testing.assert_array_equal(again.jvp(y), expected)
        out = np.empty_like(y)
        assert found.jvp(y, out=out) is out
        np.testing.assert_array_equal(out, expected)

    def test_as_linear_operator(self, engine, rng):
        pytest.importorskip("scipy")
        x, y, where = rng.normal(size=12), rng.normal(size=12), np.arange(12) % 3 > 0
        found = hoyer.solve(x, 0.6, where=where)
        np.testing.assert_array_equal(found.as_linear_operator() @ y, found.jvp(y))
