"""Where the projection reacts like a square root: K a rounding error from a number of near-ties.

Found in review: there a comparison rounded to eps picks the wrong support, and costs 1e8 eps.
"""

import math

import numpy as np
import pytest
from engines import BOUND, EPS, SMALLEST, typed
from reference import error_in_eps, exact_projection, norm_errors_in_eps
from test_collection import beyond_rounding

import hoyer

DTYPES = ["float64", "float32", "float16", "bfloat16"]
each_dtype = pytest.mark.parametrize("dtype", DTYPES)

CASES = {
    "two near-ties on a tied background": (
        [1, 1 - 2**-53, 0.1, 0.1, 0.1],
        {"l1": 1.414213562373095, "l2": 1.0},
    ),
    "two near-ties far above": (
        [-4.05e-190, -6.015377331146368e-14, -0.15012364991689992],
        {"l1": 1.1711024008642876, "l2": 0.8280944491149843},
    ),
    "steep geometric": (
        [-(2.0 ** (936 - 153 * i)) for i in range(8)],
        {"sparseness": 0.4530818393219729},
    ),
    "two near-ties above zeros": (
        [0.999999894902933, 0.9999998176018841] + [0.0] * 6,
        {"l1": 1.414213562373095, "l2": 1.0},
    ),
    "three near-ties above a zero": (
        [0.0, 0.999, 0.9996667, 1.0],
        {"l1": 1.7320508, "l2": 1.0},
    ),
    "rounding puts the exact step on an entry": (
        [0.9999999990686774, 0.999999999992724, 0, 0, 0],
        {"l1": 58.6901215845719, "l2": 41.50018296111375},
    ),
    "the same, three above": (
        [0.9971246909288273, 0.9896759803880291, 0.9925064058211406, 0.6207109179052344],
        {"sparseness": 0.2680080471137629},
    ),
    "five near-ties above two that differ by an ulp": (
        [
            0.9999999314166712,
            0.999999961813176,
            0.9999999453451465,
            0.9999998787885341,
            0.9999999452592895,
            -0.6070177426444189,
            -0.6070177426444187,
            -4.000624584454683,
            -3.2849930591088183,
            -4.1883175442382505,
        ],
        {"sparseness": 0.42834909675590177},
    ),
    "sums that are not quite sharp": (
        [
            0.9999999998944276,
            0.9999999999656669,
            0.9999999998418391,
            0.9985130346261349,
            0.9985130346245584,
            0.9985130346262324,
            0.9985130346261349,
            0.9979819172056155,
            0.9977999439710682,
            0.9974300945763759,
        ],
        {"l1": 1.7320508075688767, "l2": 1.0},
    ),
    "one entry, almost no sparseness": ([1.0] + [0.0] * 15, {"sparseness": 4e-28}),
    "small, almost no sparseness": ([0.0, 1.0, 2.0, 3.0], {"sparseness": 4e-28}),
    "long, almost no sparseness": ([1.0] + [0.0] * 999, {"sparseness": 1e-31}),
    "one entry, almost all sparseness": ([0.0, 1.0, 0.0, 0.0], {"sparseness": 1 - 2**-53}),
}


def check(engine, x, target, **options):
    exact = exact_projection(x, **target, **options)
    result = engine.solve(x, **target, **options)
    assert error_in_eps(result.value, exact) <= BOUND
    assert max(norm_errors_in_eps(result.value, exact)) <= BOUND
    return result, exact


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("name", CASES)
class TestFoundInReview:
    def test_by_every_engine(self, engine, name, nonnegative):
        self.check(name, engine.solve, nonnegative=nonnegative)

    @pytest.mark.parametrize("solver", ["bisection", "newton", "newton_sqr", "halley"])
    def test_by_the_paper(self, name, nonnegative, solver):
        self.check(name, hoyer.solve, nonnegative=nonnegative, solver=solver)

    def check(self, name, solve, nonnegative, **options):
        x, target = np.array(CASES[name][0], float), CASES[name][1]
        exact = exact_projection(x, **target, nonnegative=nonnegative)
        result = solve(x, **target, nonnegative=nonnegative, **options)
        assert error_in_eps(result.value, exact) <= BOUND
        # Zeros that would be revived by rounding noise alone stay zero, and nothing was chosen.
        zeros = x == 0
        noise = max((float(exact.value[i]) for i in np.flatnonzero(zeros)), default=0.0)
        stay = 0 < noise < 12 * 2.3e-16 and not result.value[zeros].any()
        assert bool(result.unique) == (exact.unique or stay)


def near_ties(rng, dtype):
    """m near-ties on a background of zeros, ties or noise, and K a hair from m."""
    m, rest = int(rng.integers(2, 6)), int(rng.integers(1, 12))
    spread = 10.0 ** rng.uniform(-17, -3)
    top = 1 - spread * rng.random(m)
    background = [np.zeros(rest), np.full(rest, 0.1), rng.random(rest) * 0.5][rng.integers(3)]
    x = np.concatenate([top, background]).astype(dtype)
    rng.shuffle(x)
    offset = float(rng.choice([0, 1e-16, 1e-15, 1e-12, 1e-8, 1e-5])) * rng.choice([-1, 1])
    l1 = np.sqrt(m) * (1 + offset)
    return x, {"l1": float(np.clip(l1, 1.0, np.sqrt(x.size))), "l2": 1.0}


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_near_ties_with_k_a_hair_from_their_number(engine, dtype, nonnegative):
    rng = np.random.default_rng(11)
    for _ in range(engine.some(300)):
        check(engine, *near_ties(rng, dtype), nonnegative=nonnegative)


@pytest.mark.parametrize("sparseness", [1e-17, 1e-20, 1e-27, 1e-31, 1e-100, 5e-324])
def test_tiny_sparseness_keeps_its_digits(engine, sparseness):
    rng = np.random.default_rng(3)
    for n in (2, 5, 100, 1000):
        check(engine, rng.normal(size=n), {"sparseness": sparseness})
        check(engine, np.eye(n)[0], {"sparseness": sparseness}, nonnegative=True)


def test_only_increase_compares_exactly(engine):
    # Equal entries have sparseness 0, which is less than 1e-17: they are projected.
    result, exact = check(engine, np.ones(4), {"sparseness": 1e-17}, only_increase=True)
    assert not result.unique
    assert not exact.unique
    # Every vector has at least sparseness 0: none is.
    x = np.array([0.3, 0.1, 0.7])
    value = engine.project(x, 0.0, l2="nearest", only_increase=True)
    np.testing.assert_allclose(value, x, rtol=0 if engine.is_fast else 4 * EPS["float64"])


def test_super_exponential_families_end(engine):
    rng = np.random.default_rng(0)
    for _ in range(engine.some(300)):
        x = -np.exp2(-np.exp2(rng.uniform(0, 11, 3000)) + 500)
        k = rng.uniform(100, 300)
        found = engine.solve(x, l1=float(np.sqrt(k)), l2=1.0, nonnegative=True)
        assert found.evaluations <= engine.most_evaluations


def test_steep_vectors_end_by_every_solver():
    steep = -np.ldexp(1.0, 555 - 9 * np.arange(200))
    for solver in ("auto", "bisection", "newton", "newton_sqr", "halley"):
        result = hoyer.solve(steep, 0.5, nonnegative=True, solver=solver)
        assert result.evaluations <= (64 if solver == "auto" else 264)


@pytest.mark.parametrize(
    "target",
    [
        {"sparseness": 0.5, "l2": -1.0},
        {"sparseness": 0.5, "l1": float("nan")},
        {"sparseness": 0.5, "l2": float("inf")},
        {"l1": 5.0, "l2": 1.0},
    ],
)
def test_impossible_norms_unchecked_give_nan(engine, target):
    for x in ([3.0, 2.0, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0]):
        assert np.all(np.isnan(engine.project(x, **target, check_finite=False)))


@pytest.mark.parametrize(
    ("dtype", "x", "target"),
    [
        ("float16", [-1, -1, 0, 0], {"sparseness": 1 - 2.0**-30}),
        ("float32", [-1, -0.5, 0.2], {"sparseness": 0.5, "l2": 1e-46}),
    ],
)
def test_what_vanishes_in_a_narrow_type_has_no_sign(engine, dtype, x, target):
    value = engine.project(typed(x, dtype), **target)
    assert not np.signbit(value[value == 0]).any()
    assert (value == 0).any()


def test_scale_near_sparseness_zero_may_be_large(engine):
    result = engine.solve([3.0, 1.0], 1e-300)
    exact = exact_projection(np.array([3.0, 1.0]), sparseness=1e-300)
    np.testing.assert_allclose(result.scale, float(exact.scale), rtol=1e-12)


@pytest.mark.engines("numpy/core", "torch/core")
def test_the_shift_may_be_further_from_the_largest_entry_than_floats_reach(engine):
    x = np.array([1e-190, -1e180, 9.36e307])
    found = engine.solve(x, 0.0766, l2="nearest")
    assert found.support_size == 3
    np.testing.assert_allclose(found.shift, -found.value[0] * found.scale, rtol=1e-14)


def test_near_the_largest_float(engine):
    largest = np.finfo(float).max
    x = np.concatenate([np.full(85, 1.7e308), np.linspace(0, 1e308, 100)])
    scaled = engine.project(x * 2.0**-20, 0.05, l2="nearest") * 2.0**20
    np.testing.assert_allclose(engine.project(x, 0.05, l2="nearest"), scaled, rtol=1e-14)
    x = largest * np.array([1, 0.6, -0.5, 0.1])
    result = engine.solve(x, 0.5, l2=1e10, nonnegative=True)
    same = engine.solve(x * 2.0**-10, 0.5, l2=1e10, nonnegative=True)
    np.testing.assert_allclose(result.scale, same.scale * 2.0**10, rtol=1e-14)
    # x lies in the span of e and p, along which nothing moves.
    assert np.abs(result.jvp(x)).max() <= 32 * 2.3e-16 * (largest / result.scale)


@pytest.mark.parametrize("entries", [(0, 1), (1, 0), (0, 0, 1), (0, 1, 2)])
@pytest.mark.parametrize("sparseness", [0.2, 0.5, 0.9])
def test_the_nearest_vector_to_the_least_numbers(engine, entries, sparseness):
    if engine.flushes_subnormals:
        pytest.skip("there they are zero")
    x, least = np.array(entries, float), SMALLEST["float64"]
    wanted = hoyer.project(x, sparseness, l2="nearest")
    found = engine.project(x * least, sparseness, l2="nearest") / least
    assert np.abs(found - wanted).max() <= 0.51


@pytest.mark.parametrize("n", [354, 2000])
def test_the_norm_of_the_nearest_vector_to_few_entries(engine, n):
    """Their mean is small next to the largest."""
    x = np.zeros(n)
    x[n // 3] = -0.2308
    exact = exact_projection(x, sparseness=0.107, l2="nearest")
    found = engine.solve(x, 0.107, l2="nearest")
    assert float(found.l2) == pytest.approx(float(exact.l2), rel=1e-15, abs=0)


# ---- projected again ----


class TestZeros:
    """Those of vectors that are in D already, up to rounding: they stay zero."""

    def again(self, engine, x, *target, **options):
        """Project twice; return the first result, and which zeros of it were revived."""
        once = engine.project(x, *target, **options)
        twice = engine.project(once, *target, **options)
        return once, twice, (once == 0) & (twice != 0)

    @pytest.mark.parametrize(
        ("x", "sparseness"),
        [
            ([56.41680982005, 96.51702216166707] + [0.0] * 98, 0.989),
            # The first entry is where sums are taken about, by AVX2: zero is far from it.
            (
                [0.04808932510399298, *[0.0] * 59, 0.09155560385630729]
                + [0.0] * 99
                + [0.9946381192240469, *[0.0] * 259],
                0.993111535524868,
            ),
            ([1.0, 0.0], 1 - 1e-16),
            ([0.0, -3.0], 1 - 1e-16),
            ([3.0, 4.0], 1 - 1e-16),
            ([-0.0, -1e-300], 1 - 1e-16),
        ],
    )
    def test_noise_of_our_own_sums_revives_none(self, engine, x, sparseness):
        once, twice, revived = self.again(engine, np.array(x), sparseness)
        assert not revived.any()
        assert not once[np.array(x) == 0].any()
        np.testing.assert_allclose(twice, once, rtol=0, atol=4 * 2.3e-16)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_random_vectors(self, engine, dtype, rng):
        """Few entries with a spread, many targets, signed or not, of their own norm or of one."""
        sigmas = [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999]
        rows = 500 if engine.is_fast else 3 * engine.examples
        for n in (2, 3, 5, 7, 16, 33, 100, 200) if engine.is_fast else (2, 5, 33, 200):
            sigma = np.where(rng.random(rows) < 0.5, rng.choice(sigmas, rows), rng.random(rows))
            x = rng.normal(size=(rows, n)) * (rng.random((rows, n)) < rng.random((rows, 1)))
            x[::3] = np.round(3 * x[::3]) / 3
            x[:, 0] += 1e-3
            for options in ({}, {"nonnegative": True}, {"l2": "keep"}):
                given = typed(x, dtype)
                once, twice, revived = self.again(engine, given, sigma, **options)
                assert not revived.any(), (n, options)
                top = np.abs(once).max(-1, keepdims=True).astype(np.float64)
                moved = np.abs(twice.astype(np.float64) - once.astype(np.float64))
                assert (moved <= 8 * EPS[dtype] * top).all(), (n, options)

    @pytest.mark.engines("numpy/core", "torch/core", "torch/arrays", "strict/arrays")
    def test_what_they_owe_is_the_others(self, engine, rng):
        """A little of each of many zeros is much of the sum."""
        sparseness, n = 0.99999, 100_000
        x = np.zeros((6, n))
        x[:, 1:1000] = 1 + rng.integers(0, 2, (6, 999)) * 1e-3
        x[:, 0] = 1e5
        twice = engine.project(engine.project(x, sparseness), sparseness)
        assert (np.count_nonzero(twice, axis=1) == 1000).all()
        l1, _ = hoyer.target_norms(n, sparseness)
        sums = [math.fsum(row) for row in twice]
        np.testing.assert_allclose(sums, l1, rtol=BOUND * EPS["float64"])

    @pytest.mark.engines("torch/core", "torch/arrays", "torch/triton")
    def test_what_is_noise_in_bfloat16(self, engine):
        """Zeros would get 8.6e-4, which is the rounding of the norms of such a vector."""
        x = typed([0, -1.5, 1.5, 0.5, -1, -0.0, 1], "bfloat16")
        exact = exact_projection(np.asarray(x), sparseness=0.32)
        found = engine.solve(x, 0.32)
        for value in (found.value, engine.project(x, 0.32)):
            np.testing.assert_array_equal(value == 0, x == 0)
            some = exact._replace(value=[b for a, b in zip(value, exact.value, strict=True) if a])
            assert beyond_rounding(value[value != 0], some, "bfloat16") <= 2.0**-21
        assert (int(found.support_size), bool(found.unique), float(found.shift)) == (5, True, 0.0)
        assert math.isclose(float(found.scale), float(exact.scale), rel_tol=1e-12)

    @each_dtype
    def test_zeros_receive_what_is_no_noise(self, engine, dtype, rng):
        """Just below the limit they stay, just above it they do not."""
        n, eps = 12, EPS[dtype] * (1 if dtype.endswith("16") else 4)
        x = rng.uniform(1, 2, size=(20, n))
        x[:, ::3] = 0
        x = typed(x, dtype)
        wide = np.asarray(x, np.float64)
        own = wide.sum(-1) / np.linalg.norm(wide, axis=-1)
        for share in (0.5, 8.0):
            sigma = (math.sqrt(n) - own * (1 + share * eps)) / (math.sqrt(n) - 1)
            found = engine.project(x, sigma)
            assert ((found != 0) == ((x != 0) | (share > 1))).all()

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_what_deserves_more_than_noise_is_revived(self, engine, dtype):
        """A hundred eps short of the target is no rounding error."""
        x = np.array([3.0, 1.0, 0.0, 0.0], dtype)
        ratio = 4 / np.sqrt(10) * (1 + 100 * EPS[dtype])
        result = engine.solve(x, l1=ratio, l2=1.0)
        assert result.support_size == 4
        assert not result.unique
        assert error_in_eps(result.value, exact_projection(x, l1=ratio, l2=1.0)) <= BOUND


# ---- at least as sparse, but nothing is positive ----

NEGATIVE = {"nonnegative": True, "only_increase": True}
NEGATIVE_FORMS = (
    {"sparseness": 0.5},
    {"sparseness": 0.5, "l2": 2.5},
    {"sparseness": 0.5, "l1": 3.0},
    {"sparseness": 0.5, "l2": "keep"},
    {"sparseness": 0.5, "l2": "nearest"},
    {"l1": 1.5, "l2": 1.0},
    {"sparseness": 0.0},
    {"sparseness": 1.0},
)


class TestNothingPositive:
    """`only_increase` and `nonnegative`: one-hot is nearest to them."""

    vectors = np.array(
        [
            [-1.0, -2, -3, -4],
            [-3.0, 0, -1, -2],
            [-2.0, -1, -1, -5],
            [-12.0, -4, -3, 0],
            [-1.0, 0.0, -0.0, -4.0],
            [-1e-310, -1e308, 0, 0],
        ]
    )

    @pytest.mark.parametrize("dtype", DTYPES[:3])
    @pytest.mark.parametrize("form", NEGATIVE_FORMS, ids=str)
    def test_values_and_records(self, engine, dtype, form):
        wide = dtype == "float64" and not engine.flushes_subnormals
        x = (self.vectors if wide else self.vectors[:-1]).astype(dtype)
        found = engine.solve(x, **form, **NEGATIVE)
        for i, vector in enumerate(x):
            exact = exact_projection(vector, **form, **NEGATIVE)
            assert error_in_eps(found.value[i], exact) <= 2
            assert math.isclose(found.l1[i], float(exact.l1), rel_tol=1e-15)
            assert math.isclose(found.l2[i], float(exact.l2), rel_tol=1e-15)
            assert found.support_size[i] == exact.support_size
            assert bool(found.unique[i]) == exact.unique
            assert math.isnan(found.shift[i])
            assert found.scale[i] == 0
            alone = engine.project(vector, **form, **NEGATIVE)
            np.testing.assert_array_equal(alone, found.value[i])
        np.testing.assert_array_equal(engine.project(x, **form, **NEGATIVE), found.value)

    def test_others_are_projected(self, engine):
        """Zero vectors, and those with a positive entry."""
        x = np.array([[0.0] * 4, [-1.0, 3, 2, -4]])
        for vector, value in zip(x, engine.project(x, 0.5, **NEGATIVE), strict=True):
            exact = exact_projection(vector, sparseness=0.5, **NEGATIVE)
            assert error_in_eps(value, exact) <= 8

    @pytest.mark.parametrize("form", NEGATIVE_FORMS, ids=str)
    def test_derivatives(self, engine, form, rng):
        """Moving x a little moves nothing but the norm, where that is kept."""
        x, y = self.vectors[:3], rng.normal(size=(3, 4))
        found = engine.solve(x, **form, **NEGATIVE)
        p, size = found.value, np.linalg.norm(x, axis=-1, keepdims=True) ** 2
        kept = float(form.get("l2") == "keep")
        reverse = kept * (p * y).sum(-1, keepdims=True) * x / size
        np.testing.assert_allclose(found.vjp(y), reverse, rtol=1e-12)
        np.testing.assert_allclose(engine.gradient(x, y, **form, **NEGATIVE), reverse, rtol=1e-12)
        forward = kept * p * (x * y).sum(-1, keepdims=True) / size
        np.testing.assert_allclose(found.jvp(y), forward, rtol=1e-12)
        if (found.l2 > 0).all():
            by_l1, by_l2 = found.target_gradient()
            fixed = (by_l1, by_l2) if "l1" in form and "l2" not in form else (by_l2, by_l1)
            np.testing.assert_allclose(fixed[0], p / found.l2[:, None], rtol=1e-12)
            assert not fixed[1].any()
