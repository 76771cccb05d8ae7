"""A vector in parts, for every set: random parts, grids of chunks, masks, exact arithmetic."""

import itertools
import math

import numpy as np
import pytest
from engines import EPS, SMALLEST
from reference import error_in_eps, exact_projection
from test_parts import NUMPY, OnNumpy, check, options, project, same_bits

import hoyer
from hoyer.engines import core, parts
from hoyer.engines.arrays import namespace
from hoyer.engines.arrays.histogram import Parts
from hoyer.paper import problems
from hoyer.plan import plan_for
from hoyer.projection import ACTIVE_NAMES

RNG = np.random.default_rng(19)
DTYPES = ("float64", "float32", "float16")
ARRAYS = OnNumpy(Parts(namespace(np)))
NORMS = {
    "l1": {"l1": 1.5},
    "much l1": {"l1": 50.0},
    "ball": {"l1": 1.5, "at_most": True},
    "large ball": {"l1": 50.0, "at_most": True},
    "two balls": {"l1": 1.5, "l2": 0.75, "at_most": True},
    "flat balls": {"l1": 50.0, "l2": 0.75, "at_most": True},
    "only l1": {"l1": 1.5, "l2": 2.0, "at_most": True},
    "no balls": {"l1": 0.0, "l2": 0.75, "at_most": True},
}
SETS = {
    f"{name}{' nonnegative' * nonnegative}": given | {"nonnegative": nonnegative}
    for name, given in NORMS.items()
    for nonnegative in (False, True)
}


def random_parts(x):
    """1 to 9 of them, some of which may be empty."""
    cuts = np.sort(RNG.integers(0, x.size + 1, RNG.integers(0, 9)))
    return np.split(x, cuts)


def tolerant(x, value, solution, **given):
    """Compare with the projection of the whole, whose norms are known to its own rounding."""
    whole = hoyer.solve(x, **given)
    name = str(x.dtype)
    unit = max(EPS[name] * float(abs(whole.value).max()), SMALLEST[name])
    with np.errstate(all="ignore"):
        errors = abs(value.astype(float) / unit - whole.value.astype(float) / unit)
    if errors[value != whole.value].max(initial=0) > 4:
        # Where the result reacts like a square root the whole may be off as well.
        assert error_in_eps(value, exact_projection(x, **given)) <= 4
    assert errors[(value != 0) != (whole.value != 0)].max(initial=0) <= 1
    if solution.support_size != whole.support_size:
        # Entries between the two shifts are next to nothing.
        assert solution.support_size == exact_projection(x, **given).support_size
    assert solution.unique == whole.unique
    assert ACTIVE_NAMES[solution.active] == whole.active or near_border(x, **given)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            [solution.l1, solution.l2], [float(whole.l1), float(whole.l2)], rtol=1e-12, atol=1e-320
        )


def near_border(x, **given):
    """Whether rounding decides which bounds bind."""
    w = np.clip(x, 0, None) if given["nonnegative"] else abs(x)
    sizes = float(w.sum(dtype=float)), float(np.sqrt((w.astype(float) ** 2).sum()))
    wanted = given["l1"], given.get("l2", math.inf)
    pairs = [*zip(sizes, wanted, strict=True), (sizes[0] * wanted[1], sizes[1] * wanted[0])]
    return any(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SETS)
def test_the_collection_in_random_parts(name, dtype):
    given = SETS[name]
    for problem in problems.collection(dtype):
        x = problem.x
        value, solution = project(random_parts(x), **given)
        tolerant(x, value, solution, **given)
        assert solution.evaluations <= 4


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SETS)
def test_every_division_gives_the_same_bits(name, dtype):
    given = SETS[name]
    few = np.zeros(300)
    few[[5, 200, 201]] = [0.5, -0.5, 0.25]
    draws = (
        RNG.standard_normal(2000),
        RNG.standard_cauchy(2000).clip(-6e4, 6e4),
        np.round(RNG.standard_normal(500), 1),
        few,
        few[few != 0] / 5,
        np.zeros(7),
        -RNG.random(40),
    )
    for reader, draw in itertools.product((OnNumpy(core), ARRAYS), draws):
        x, first = draw.astype(dtype), None
        for gathered in (0, 30, 1 << 13):
            value, _ = project(random_parts(x), reader, most_gathered=gathered, **given)
            first = value if first is None else first
            assert same_bits(value, first), (name, gathered)


@pytest.mark.parametrize("name", [*SETS, "both", "keep", "nearest", "increase"])
def test_against_exact_arithmetic(name):
    others = {
        "both": {"sparseness": 0.7},
        "keep": {"sparseness": 0.7, "l2": "keep"},
        "nearest": {"sparseness": 0.7, "l2": "nearest"},
        "increase": {"sparseness": 0.3, "only_increase": True},
    }
    given = (SETS | others)[name]
    for dtype in ("float64", "float32"):
        for draw in (
            RNG.standard_normal(60),
            RNG.standard_cauchy(60),
            10 + RNG.random(60),
            np.round(RNG.standard_normal(60), 1),
            RNG.standard_normal(60) * (1e-300 if dtype == "float64" else 1e-38),
        ):
            x = draw.astype(dtype)
            value, _ = project(random_parts(x), **given)
            assert error_in_eps(value, exact_projection(x, **given)) <= 4


def test_bounds_of_huge_and_tiny_norms():
    for scale in (1e300, 1e-300):
        x = RNG.standard_normal(500) * scale
        for given in ({"l1": 9 * scale}, {"l1": 9 * scale, "l2": 2 * scale}):
            for more in ({"at_most": True}, {}):
                if "l2" in given or more or scale:
                    value, solution = project(random_parts(x), **given, **more)
                    tolerant(x, value, solution, nonnegative=False, **given, **more)


# ---- grids of chunks, and masks ----


def grid_of(x, cuts):
    """Yield the chunks of an array that is cut along every axis, and where they lie."""
    ends = [[0, *cut, size] for cut, size in zip(cuts, x.shape, strict=True)]
    for corner in itertools.product(*(range(len(end) - 1) for end in ends)):
        slices = tuple(slice(end[i], end[i + 1]) for end, i in zip(ends, corner, strict=True))
        yield slices, parts.Place(tuple(one.start for one in slices), x.shape)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("reader", [OnNumpy(core), ARRAYS], ids=["core", "arrays"])
def test_grids_of_chunks(reader, masked):
    """Ties at the maximum: the first in C order of the whole is not in the first chunk."""
    x = np.round(RNG.standard_normal((6, 8, 10)), 1)
    x[tuple(np.array([(0, 5, 3), (0, 6, 1), (3, 0, 0), (5, 7, 9)]).T)] = 9.0, -9.0, 9.0, 9.0
    mask = RNG.random(x.shape) < 0.7 if masked else np.ones(x.shape, bool)
    mask[0, 5, 3] = mask[0, 6, 1] = mask[3, 0, 0] = True
    x[~mask] = math.nan
    for given in ({"sparseness": 0.97}, {"sparseness": 0.6, "l2": "keep"}, {"l1": 3.0}):
        places = list(grid_of(x, ([2], [4, 4], [3, 7])))
        count = sum(parts.length(mask[slices]) for slices, _ in places)
        plan = parts.plan_with_mask(x.size, count, options(**given))
        with np.errstate(invalid="ignore"):
            values, solution = parts.project_parts(
                [x[slices] for slices, _ in places],
                parts.search(plan, x.dtype, NUMPY),
                reader.engine,
                places=[place for _, place in places],
                masks=[mask[slices] for slices, _ in places],
            )
        value = np.empty_like(x)
        for (slices, _), piece in zip(places, values, strict=True):
            value[slices] = piece
        whole = hoyer.solve(x, axis=None, where=mask, **given)
        np.testing.assert_allclose(value, whole.value, rtol=1e-15, atol=1e-15)
        assert solution.support_size == whole.support_size
        assert solution.unique == whole.unique
        if given.get("sparseness") == 0.97:
            assert solution.first == np.ravel_multi_index((0, 5, 3), x.shape)


def test_places():
    x = np.arange(210).reshape(5, 6, 7)
    for slices, place in grid_of(x, ([1], [2, 2, 5], [3])):
        part = x[slices]
        for local, number in enumerate(part.reshape(-1).tolist()):
            assert place.from_part(local, part.shape) == number
            assert place.in_part(number, part.shape) == local
        outside = set(range(-1, 210)) - set(part.reshape(-1).tolist())
        assert all(place.in_part(number, part.shape) == -1 for number in outside)


@pytest.mark.parametrize("count", [0, 1])
def test_masks_that_leave_little(count):
    x, mask = np.array([1.0, -2.0, 3.0]), np.arange(3) < count
    for given in ({"sparseness": 0.5}, {"l1": 2.0}, {"l1": 2.0, "l2": 2.0, "at_most": True}):
        plan = parts.plan_with_mask(3, count, options(**given))
        values, solution = parts.project_parts(
            [x[:2], x[2:]],
            parts.search(plan, x.dtype, NUMPY),
            core,
            masks=[mask[:2], mask[2:]],
        )
        whole = hoyer.solve(x, where=mask, **given)
        assert np.concatenate(values).tolist() == whole.value.tolist()
        assert ACTIVE_NAMES[solution.active] == whole.active
        assert [solution.l1, solution.l2] == [float(whole.l1), float(whole.l2)]


def test_masks_at_any_strides():
    x = RNG.standard_normal((40, 60))
    mask = (RNG.random((60, 40)) < 0.5).T
    plan = parts.plan_with_mask(x.size, parts.length(mask), options(0.8))
    pieces, masks = [x[:20, ::-1], x[20:]], [mask[:20, ::-1], mask[20:]]
    flat, own = (np.concatenate([one.reshape(-1) for one in some]) for some in (pieces, masks))
    whole = hoyer.project(flat, 0.8, where=own)
    for engine in (core, ARRAYS.engine):
        search = parts.search(plan, x.dtype, NUMPY)
        values, _ = parts.project_parts(pieces, search, engine, masks=masks)
        value = np.concatenate([one.reshape(-1) for one in values])
        np.testing.assert_allclose(value, whole, rtol=1e-14, atol=1e-15)


def test_records():
    x = RNG.standard_normal(300)
    for given in ({"sparseness": 0.7}, {"l1": 2.0}, {"l1": 9.0, "l2": 1.0, "at_most": True}):
        value, solution = project(random_parts(x), **given)
        check(x, value, solution, **given)
        assert solution.record[-1] == hoyer.solve(x, **given).active_code


# ---- how many rounds ----


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_few_rounds(dtype):
    n = 1 << 17
    kinds = (
        abs(RNG.standard_normal(n)),
        RNG.lognormal(size=n),
        RNG.standard_cauchy(n),
        1000 + RNG.random(n),
        np.round(RNG.standard_normal(n), 2),
        np.where(RNG.random(n) < 0.5, 1 + 1e-6 * RNG.random(n), RNG.random(n)),
        RNG.standard_normal(n) * SMALLEST[dtype] * 1000,
    )
    for draw, target in itertools.product(
        kinds, ({"sparseness": 0.3}, {"sparseness": 0.9}, {"l1": 9.0}, {"l1": 9.0, "at_most": True})
    ):
        x = draw.astype(dtype)
        plan = plan_for(n, options(**target))
        search = parts.search(plan, x.dtype, NUMPY)
        place, numbers, rounds = parts.Place((0,), (n,)), None, 0
        while True:
            try:
                request = search.send(numbers)
            except StopIteration:
                break
            numbers = parts.answer(core, x, request, place)
            assert numbers.nbytes <= 100_000
            rounds += 1
        assert rounds <= 3
