"""Simplex, balls and masks in the engine of plain array operations, against the exact reference."""

import math

import numpy as np
import pytest
from array_forms import DEFAULTS
from engines import BOUND, ENGINES
from mpmath import mp, mpf
from reference import (
    VALUE_PRECISION,
    correctly_rounded,
    exact_projection,
    norm_errors_in_eps,
    numeric_jvp,
    support_mismatch,
)

import hoyer
from hoyer.engines import arrays
from hoyer.engines.arrays.namespace import namespace
from hoyer.engines.arrays.products import forward_changes, reverse_changes
from hoyer.engines.arrays.targets import resolve_there
from hoyer.paper import problems
from hoyer.plan import Plan, masked_plan, plan_for
from hoyer.projection import ACTIVE, L1, L2, SCALE, SHIFT, SUPPORT, UNIQUE, Active
from hoyer.target import Target, resolve

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")

XP = namespace(np)
NONE = float(Active.NONE)
SETS = {
    "norm": {"l1": 1.25},
    "small norm": {"l1": 1e-3},
    "large norm": {"l1": 300.0},
    "ball": {"l1": 1.25, "at_most": True},
    "large ball": {"l1": 30.0, "at_most": True},
    "only 0": {"l1": 0.0, "at_most": True},
    "two balls": {"l1": 1.5, "l2": 1.0, "at_most": True},
    "l1 of two balls": {"l1": 1.0, "l2": 9.0, "at_most": True},
    "l2 of two balls": {"l1": 90.0, "l2": 1.0, "at_most": True},
    "only 0 in two balls": {"l1": 1.0, "l2": 0.0, "at_most": True},
}
SPARSE = {
    "sparseness": {"sparseness": 0.6},
    "sparseness 0": {"sparseness": 0.0},
    "sparseness 1": {"sparseness": 1.0},
    "keep": {"sparseness": 0.6, "l2": "keep"},
    "nearest": {"sparseness": 0.6, "l2": "nearest"},
    "only increase": {"sparseness": 0.4, "only_increase": True},
    "l1, only increase": {"sparseness": 0.4, "l1": 2.0, "only_increase": True},
}
each_set = pytest.mark.parametrize("chosen", SETS)
every_set = pytest.mark.parametrize("chosen", SETS | SPARSE)
both_signs = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


def options_of(target, nonnegative=False):
    return DEFAULTS._replace(**target, nonnegative=nonnegative, check_finite=False)


def solved(x, target, nonnegative=False, where=None, xp=XP):
    """Return values, records and the plan of rows, as NumPy arrays."""
    options, n, batch = options_of(target, nonnegative), x.shape[-1], x.shape[:-1]
    if where is None:
        plan = plan_for(n, options, batch)
    else:
        mask = xp.library.asarray(where.copy())
        plan = masked_plan(n, options, mask, np.count_nonzero(where, axis=-1), batch)
    value, record = arrays.forward(xp.library.asarray(x.copy()), plan, xp)
    return np.asarray(value), np.asarray(record), plan


def nasty(dtype):
    """Ties, zeros, no positive entries, offsets, the ends of the range, many small entries."""
    info = np.finfo(dtype)
    most, least = float(info.max), float(info.tiny)
    rng = np.random.default_rng(5)
    given = [
        [1.0],
        [-2.0],
        [0.0],
        [1.0, 1, 1],
        [0.0, 0, 0, 0],
        [-1.0, -2, -3, -4],
        [5, -4, 0.25, 0],
        [2, 2, 1, 0.5, -0.125],
        [1.25, 0, 0, 0],
        [most / 4, 1, -most / 4],
        [most, -most, 1],
        [most, most, most],
        [least / 4, least / 2, 0, -least / 8],
        [1e4 + 1, 1e4, 1e4 - 1],
        rng.normal(size=40) * (most / 1e3),
        rng.normal(size=60),
        rng.normal(size=30) + 1000,
        rng.standard_cauchy(100),
        np.round(2 * rng.normal(size=50)),
        np.concatenate([[2.0], np.full(500, 1 - 1e-3)]),
        np.concatenate([[1.0], rng.uniform(0, 1e-5, 500)]),
    ]
    return [np.asarray(x, dtype) for x in given]


def error_of(value, exact):
    """The largest error, in eps of the largest entry, or subnormal numbers if that is more."""
    info = np.finfo(value.dtype)
    with mp.workprec(VALUE_PRECISION):
        unit = mpf(float(info.eps)) * max(map(abs, exact.value))
        unit = max(unit, mpf(float(info.smallest_subnormal)))
        pairs = zip(value.tolist(), exact.value, strict=True)
        return float(max(abs(a - b) for a, b in pairs) / unit)


def complaint(value, exact):
    """What is wrong with a result, if anything is."""
    if not np.isfinite(value).all():
        return "not finite"
    if value.dtype == np.float16:
        return "" if correctly_rounded(value, exact) else "not correctly rounded"
    if not error_of(value, exact) <= 6:
        return f"off by {error_of(value, exact)} eps"
    if max(map(abs, exact.value)) <= 4 * float(np.finfo(value.dtype).tiny):
        return ""
    norm1, norm2 = norm_errors_in_eps(value, exact)
    norms = {"l1": norm1, "l2": norm2, "both": max(norm1, norm2), "none": 0.0}
    if not norms[exact.active] <= BOUND:
        return f"norms off by {norm1} and {norm2} eps"
    if not support_mismatch(value, exact) <= BOUND:
        return "another support"
    return ""


# ---- values and records ----


@each_set
@both_signs
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_nasty_vectors(chosen, nonnegative, dtype):
    target = SETS[chosen]
    for x in nasty(dtype):
        value, record, _ = solved(x[None], target, nonnegative)
        exact = exact_projection(x, nonnegative=nonnegative, **target)
        assert not (problem := complaint(value[0], exact)), (x, problem)
        assert not np.signbit(value[value == 0]).any()
        assert bool(record[0, UNIQUE]) == exact.unique, x
        if exact.shift is None:
            assert math.isnan(record[0, SHIFT])
            assert record[0, SCALE] == 0
        elif exact.active in ("l1", "none"):
            assert record[0, SCALE] == 1
        if dtype != "float16":
            assert record[0, SUPPORT] == pytest.approx(exact.support_size, abs=1)
            assert record[0, L1] == pytest.approx(float(exact.l1), rel=1e-14)
            assert record[0, L2] == pytest.approx(float(exact.l2), rel=1e-14)


@each_set
@both_signs
def test_the_collection(chosen, nonnegative):
    target, wrong = SETS[chosen], []
    for problem in problems.collection("float64")[::9]:
        if problem.x.size <= 300:
            value = solved(problem.x[None], target, nonnegative)[0][0]
            exact = exact_projection(problem.x, nonnegative=nonnegative, **target)
            if said := complaint(value, exact):
                wrong.append(f"{problem.name if hasattr(problem, 'name') else problem}: {said}")
    assert not wrong, "\n".join(wrong)


@both_signs
@pytest.mark.parametrize("at_most", [False, True])
def test_norms_of_every_size_against_the_data(nonnegative, at_most, rng):
    for x in (rng.normal(size=30), rng.normal(size=30) * 1e300, rng.uniform(size=20) + 1e8):
        top = np.abs(x).max()
        for factor in (1e-300, 1e-16, 1e-8, 0.1, 1.5, 29.0, 1e5, 1e16):
            target = {"l1": float(top * factor), "at_most": at_most}
            if not 0 < target["l1"] < math.inf:
                continue
            value = solved(x[None], target, nonnegative)[0][0]
            exact = exact_projection(x, nonnegative=nonnegative, **target)
            assert not (said := complaint(value, exact)), (target, said)


def test_which_norms_bind():
    x = np.array([[1, 2, 0], [3, 3.5, 0], [3, 4, 0], [3, 0, 0], [0, 0, 0]], float)
    target = {
        "l1": np.array([4, 1, 1.2, 4, 1.0]),
        "l2": np.array([9, 2, 1, 1, 1.0]),
        "at_most": True,
    }
    active = solved(x, target)[1][:, ACTIVE]
    np.testing.assert_array_equal(
        active, [Active.NONE, Active.L1, Active.BOTH, Active.L2, Active.NONE]
    )


def test_what_is_within_the_bounds_keeps_its_bits(rng):
    x = rng.normal(size=(50, 7))
    l1 = np.abs(x).sum(-1) * 1.000001
    value, record, _ = solved(x, {"l1": l1, "at_most": True})
    np.testing.assert_array_equal(value, x)
    assert (record[:, ACTIVE] == Active.NONE).all()
    # At the bound it does not count.
    whole = np.round(4 * x)
    record = solved(whole, {"l1": np.abs(whole).sum(-1), "at_most": True})[1]
    assert (record[:, ACTIVE] == Active.NONE).all()


@both_signs
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("at_most", [False, True])
def test_zeros_stay_where_it_is_projected_again(nonnegative, dtype, at_most, rng):
    for n in (3, 30, 300):
        x = rng.normal(size=(20, n)).astype(dtype)
        target = {"l1": 0.7, "at_most": at_most}
        once = solved(x, target, nonnegative)[0]
        twice, record, _ = solved(once, target, nonnegative)
        np.testing.assert_array_equal(twice == 0, once == 0)
        eps = 4 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(twice.astype(float), once.astype(float), atol=eps * once.max())
        assert record[:, UNIQUE].all()


def test_bad_vectors_and_targets_become_nan():
    x = np.array([[1, math.nan, 2], [1, math.inf, 2], [1, 2, 3], [1, 2, 3]])
    for more in ({}, {"l2": 1.0}):
        target = {"l1": np.array([1.0, 1.0, -1.0, 1.0]), "at_most": True, **more}
        value, record, _ = solved(x, target)
        assert np.isnan(value[:3]).all()
        assert np.isnan(record[:3, L1]).all()
        assert np.isfinite(value[3]).all()


def test_tensors_give_the_same(rng):
    torch = pytest.importorskip("torch")
    x, where = rng.normal(size=(20, 9)), rng.random((20, 9)) < 0.7
    for target in (SETS | SPARSE).values():
        for mask in (None, where):
            expected = solved(x, target, where=mask)
            found = solved(x, target, where=mask, xp=namespace(torch))
            for a, b in zip(found[:2], expected[:2], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-15)


# ---- masks ----


@every_set
@both_signs
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_masks_leave_shorter_vectors(chosen, nonnegative, dtype, rng):
    target = (SETS | SPARSE)[chosen]
    x = np.round(rng.normal(size=(40, 12)) * 4).astype(dtype) / 4
    x[:10] = rng.normal(size=(10, 12))
    x[10:14] = -np.abs(x[10:14])
    x[14:17] = 0
    where = rng.random(x.shape) < np.linspace(0.02, 1, 40)[:, None]
    where[20:24] = False
    hidden = np.where(where, x, rng.choice([math.nan, math.inf, -math.inf, 1e4, -7], x.shape))
    value, record, _ = solved(hidden.astype(dtype), target, nonnegative, where)
    assert (value[~where] == 0).all()
    assert not np.signbit(value[~where]).any()
    for i in range(40):
        assert (
            error_of(value[i], exact_projection(x[i], **target, **as_masked(where[i], nonnegative)))
            <= 6
        )
        if not where[i].any():
            np.testing.assert_array_equal(record[i], [math.nan, 0, 0, record[i, 3], 1, 0, 0, NONE])
            continue
        if where[i].sum() > 1 or "sparseness" not in target:
            # What is not there is as if it had never been, but for the order of sums.
            short, told, _ = solved(x[i, where[i]][None], target, nonnegative)
            np.testing.assert_array_equal(value[i, where[i]] == 0, short[0] == 0)
            few = 4 * float(np.finfo(dtype).eps) * np.abs(short).max()
            np.testing.assert_allclose(value[i, where[i]], short[0], rtol=0, atol=few)
            np.testing.assert_allclose(record[i], told[0], rtol=1e-14)


def as_masked(where, nonnegative):
    return {"where": where.tolist(), "nonnegative": nonnegative}


def test_a_mask_may_be_empty_whatever_the_target():
    x, where = np.ones((2, 3)), np.array([[False] * 3, [True] * 3])
    options = options_of({"sparseness": 0.5})
    target = Target(*(np.array([math.nan, 1.0]) for _ in range(4)))
    value, _ = arrays.forward(x, Plan.of(3, target, options, where, where.sum(-1)), XP)
    assert (value[0] == 0).all()


# ---- derivatives ----


def products(x, target, nonnegative=False, where=None):
    value, record, plan = solved(x, target, nonnegative, where)
    return arrays.derivatives(value, record, x, plan, XP), value, record


@every_set
@both_signs
@pytest.mark.parametrize("masked", [False, True])
def test_products_with_the_jacobian(chosen, nonnegative, masked, rng):
    target = (SETS | SPARSE)[chosen]
    x, y = rng.normal(size=(2, 12, 9))
    where = rng.random(x.shape) < 0.8 if masked else None
    at, *_ = products(x, target, nonnegative, where)
    found, dense = at.product(y, reverse=False), at.jacobian()
    for i in range(len(x)):
        more = {"where": where[i].tolist()} if masked else {}
        along = y[i] * where[i] if masked else y[i]
        if masked and where[i].sum() <= 1:
            continue
        exact = numeric_jvp(x[i], along, nonnegative=nonnegative, **target, **more)
        np.testing.assert_allclose(
            found[i], np.array(exact, float), rtol=1e-12, atol=1e-13 * np.abs(y).max()
        )
    np.testing.assert_allclose(dense @ y[..., None], found[..., None], atol=1e-13)
    backward = at.product(y, reverse=True)
    np.testing.assert_allclose(
        np.swapaxes(dense, -1, -2) @ y[..., None], backward[..., None], atol=1e-13
    )
    if masked:
        assert (found[~where] == 0).all()
        assert (backward[~where] == 0).all()


@pytest.mark.parametrize(
    "chosen", ["norm", "ball", "two balls", "l1 of two balls", "l2 of two balls"]
)
@both_signs
def test_derivatives_by_the_norms(chosen, nonnegative, rng):
    target = SETS[chosen]
    x, g = rng.normal(size=(2, 30, 9))
    at, *_ = products(x, target, nonnegative)
    names, step = [name for name in ("l1", "l2") if name in target], 1e-6
    numbers = tuple(np.full(30, target[name]) if name in target else None for name in ("l1", "l2"))
    change = at.cotangent(g, None, by_x=False, by_target=True)[1]
    reverse = reverse_changes(9, (None, *numbers), change, XP)
    for name in names:
        moved = [
            solved(x, {**target, name: target[name] + h}, nonnegative)[0] for h in (step, -step)
        ]
        exact = (moved[0] - moved[1]) / (2 * step)
        place = ("l1", "l2").index(name)
        np.testing.assert_allclose(at.by_norms()[place], exact, atol=1e-7)
        along = [None, None, None]
        along[1 + place] = np.ones(30)
        forward = forward_changes(9, (None, *numbers), tuple(along), XP)
        np.testing.assert_allclose(at.tangent(None, forward)[0], exact, atol=1e-7)
        np.testing.assert_allclose(reverse[1 + place], (g * exact).sum(-1), atol=1e-6)


def test_derivatives_by_bounds_of_zero_are_zero(rng):
    x = rng.normal(size=(3, 5))
    for l1, l2 in ((0.0, None), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)):
        target = {"l1": l1, "l2": l2, "at_most": True}
        at = products(x, target)[0]
        for numbers in ((l1, l2), [None if t is None else np.full(3, t) for t in (l1, l2)]):
            along = (None, np.ones(3), None if l2 is None else np.ones(3))
            change = forward_changes(5, (None, *numbers), along, XP)
            assert (at.tangent(x, change)[0] == 0).all()
            change = at.cotangent(x, None, by_x=False, by_target=True)[1]
            for gradient in reverse_changes(5, (None, *numbers), change, XP):
                assert gradient is None or (gradient == 0).all()
        assert all((gradient == 0).all() for gradient in at.by_norms())


def test_the_sparseness_moves_vectors_of_their_own_length(rng):
    x, where = rng.normal(size=(20, 9)), rng.random((20, 9)) < 0.8
    where[:, :2] = True
    for more in ({}, {"l1": 2.0}, {"l2": "keep"}, {"l2": "nearest"}):
        at = products(x, {"sparseness": 0.6, **more}, where=where)[0]
        plus, minus = (
            solved(x, {"sparseness": 0.6 + h, **more}, where=where)[0] for h in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(at.by_sparseness(), (plus - minus) / 2e-6, atol=1e-6)
        change = forward_changes(
            where.sum(-1),
            (np.full(20, 0.6), more.get("l1"), more.get("l2")),
            (np.ones(20), None, None),
            XP,
        )
        np.testing.assert_allclose(at.tangent(None, change)[0], at.by_sparseness(), atol=1e-12)


# ---- targets on a device, the family ----


@pytest.mark.parametrize("lengths", [None, np.array([9, 4, 1, 0, 2])])
@pytest.mark.parametrize(
    "target",
    [
        {"l1": np.array([1.0, 2.0, 0.5, -1.0, 1e300])},
        {"l1": np.array([1.0, 2.0, 0.0, 1e-300, math.inf]), "at_most": True},
        {"l1": np.array([1.0, 2.0, 0.0, 3e300, 1.0]), "l2": 1.0, "at_most": True},
        {"l1": 1.0, "l2": np.array([1.0, 1e-300, 0.0, 0.7, math.nan]), "at_most": True},
        {"l1": np.array([1.0, 1.2, 1.4, 1.0, 1.3]), "l2": 1.0},
        {"sparseness": np.array([0.0, 0.5, 0.7, 1.0, 0.9])},
        {"sparseness": np.array([0.0, 0.5, 0.7, 1.0, 0.9]), "l1": 2.0},
    ],
)
def test_targets_resolved_where_they_are(lengths, target):
    options = options_of(target)
    found = resolve_there(9 if lengths is None else lengths, options, XP)
    n = 9 if lengths is None else lengths.astype(float)
    expected = resolve(n, *options[:3], (5,), at_most=bool(options.at_most), check=False)
    for name, a, b in zip(Target._fields, found, expected, strict=True):
        there = np.ones(5, bool) if lengths is None else lengths > 0
        np.testing.assert_array_equal(np.broadcast_to(a, 5)[there], b[there], err_msg=name)


def test_numbers_resolved_for_lengths_on_a_device():
    lengths = np.array([9, 4, 2, 0])
    for target in ({"sparseness": 0.5}, {"l1": 2.0}, {"l1": 1.2, "l2": 1.0, "at_most": True}):
        found = resolve_there(lengths, options_of(target), XP)
        assert found.slack.shape == (4,)
        assert np.isfinite(np.stack(found)).all()
    with pytest.raises(ValueError, match="l1 must be positive"):
        resolve_there(lengths, options_of({"l1": -2.0}), XP)


@pytest.fixture
def strict(monkeypatch):
    engine = ENGINES.get("strict/arrays") or pytest.skip("no array-api-strict")
    engine.use(monkeypatch)
    return engine


def test_strict_arrays_with_masks_and_bounds(strict, rng):
    x = rng.normal(size=(4, 3, 5))
    where = rng.random((3, 5)) < 0.7
    for axis in (-1, 0, (0, 2), None):
        for target in (*SETS.values(), SPARSE["keep"], SPARSE["sparseness"]):
            hidden = np.where(where, x, math.nan)
            given = strict.give(hidden), {**target, "axis": axis, "where": strict.give(where)}
            found = strict.take(hoyer.project(given[0], **given[1]))
            moved = np.moveaxis(x, axis, -1) if isinstance(axis, int) else x
            if axis == -1:
                mask = np.broadcast_to(where, x.shape)
                np.testing.assert_array_equal(found, solved(moved, target, where=mask)[0])
            assert (found[~np.broadcast_to(where, x.shape)] == 0).all()
            out = strict.give(np.full(x.shape, 7.0))
            assert hoyer.project(given[0], out=out, **given[1]) is out
            np.testing.assert_array_equal(strict.take(out), found)
            told = hoyer.solve(given[0], **given[1])
            np.testing.assert_array_equal(strict.take(told.value), found)
            y = rng.normal(size=x.shape)
            forward, backward = (
                strict.take(product(strict.give(y))) for product in (told.jvp, told.vjp)
            )
            np.testing.assert_allclose((forward * y).sum(), (backward * y).sum(), rtol=1e-12)
            hoyer.project_(given[0], **given[1])
            np.testing.assert_array_equal(strict.take(given[0]), found)


def test_what_strict_arrays_refuse(strict):
    x = strict.give(np.array([[1.0, 2.0, 3.0], [3.0, math.nan, 1.0]]))
    with pytest.raises(ValueError, match="where has shape"):
        hoyer.project(x, l1=1.0, where=strict.give(np.ones((3, 3), bool)))
    with pytest.raises(TypeError, match="where has dtype"):
        hoyer.project(x, l1=1.0, where=strict.give(np.ones((2, 3))))
    with pytest.raises(ValueError, match="x has nan at entry 1 of vector 1"):
        hoyer.project(x, l1=1.0, where=strict.give(np.ones((2, 3), bool)))
    there = np.array([[True, True, True], [True, False, True]])
    assert np.isfinite(strict.take(hoyer.project(x, l1=1.0, where=strict.give(there)))).all()
    small = strict.give(np.ones(3, np.float32))
    with pytest.raises(ValueError, match=r"a target with l1=1e\+40 does not fit float32"):
        hoyer.project(small, l1=1e40)
    assert strict.take(hoyer.project(small, l1=1e40, at_most=True)).tolist() == [1, 1, 1]


def test_a_device_without_a_look(strict, monkeypatch, rng):
    """As if the arrays lay on a device: the lengths stay there."""
    from hoyer.families import array_api

    x, where = rng.normal(size=(5, 8)), rng.random((5, 8)) < 0.6
    target = {"sparseness": 0.5, "where": strict.give(where)}
    expected = strict.take(hoyer.project(strict.give(x), **target))
    monkeypatch.setattr(array_api, "_on_host", lambda _: False)
    found = strict.take(hoyer.project(strict.give(x), **target))
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    told = hoyer.solve(strict.give(x), l1=strict.give(np.arange(1.0, 6)), where=target["where"])
    np.testing.assert_allclose(
        np.abs(strict.take(told.value)).sum(-1), np.arange(1.0, 6) * where.any(-1), rtol=1e-14
    )
