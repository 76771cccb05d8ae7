"""Where the projection reacts like a square root: K a rounding error from a number of near-ties.

Found in review: there a comparison rounded to eps picks the wrong support, and costs 1e8 eps.
"""

import numpy as np
import pytest
from reference import error_in_eps, exact_projection, norm_errors_in_eps

import hoyer

BOUND = 32

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


def check(x, target, nonnegative, **options):
    exact = exact_projection(x, **target, nonnegative=nonnegative, **options)
    result = hoyer.solve(x, **target, nonnegative=nonnegative, **options)
    assert error_in_eps(result.value, exact) <= BOUND
    assert max(norm_errors_in_eps(result.value, exact)) <= BOUND
    return result, exact


@pytest.mark.parametrize("solver", ["auto", "bisection", "newton", "newton_sqr", "halley"])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_found_in_review(name, nonnegative, solver):
    x, target = CASES[name]
    exact = exact_projection(np.array(x), **target, nonnegative=nonnegative)
    result = hoyer.solve(np.array(x), **target, nonnegative=nonnegative, solver=solver)
    assert error_in_eps(result.value, exact) <= BOUND
    # Zeros that would be revived by rounding noise alone stay zero, and nothing was chosen.
    zeros = np.array(x) == 0
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
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_near_ties_with_k_a_hair_from_their_number(dtype, nonnegative):
    rng = np.random.default_rng(11)
    for _ in range(300):
        check(*near_ties(rng, dtype), nonnegative)


@pytest.mark.parametrize("sparseness", [1e-17, 1e-20, 1e-27, 1e-31, 1e-100, 5e-324])
def test_tiny_sparseness_keeps_its_digits(sparseness):
    rng = np.random.default_rng(3)
    for n in (2, 5, 100, 1000):
        check(rng.normal(size=n), {"sparseness": sparseness}, False)
        check(np.eye(n)[0], {"sparseness": sparseness}, True)


def test_only_increase_compares_exactly():
    # Equal entries have sparseness 0, which is less than 1e-17: they are projected.
    result, exact = check(np.ones(4), {"sparseness": 1e-17}, False, only_increase=True)
    assert not result.unique
    assert not exact.unique
    # Every vector has at least sparseness 0: none is.
    x = np.array([0.3, 0.1, 0.7])
    np.testing.assert_array_equal(
        hoyer.project(x, 0.0, l2="nearest", only_increase=True), x, strict=True
    )


def test_super_exponential_families_end():
    rng = np.random.default_rng(0)
    most = 0
    for _ in range(300):
        x = -np.exp2(-np.exp2(rng.uniform(0, 11, 3000)) + 500)
        k = rng.uniform(100, 300)
        most = max(
            most,
            int(hoyer.solve(x, l1=float(np.sqrt(k)), l2=1.0, nonnegative=True).evaluations),
        )
    steep = -np.ldexp(1.0, 555 - 9 * np.arange(200))
    for solver in ("auto", "bisection", "newton", "newton_sqr", "halley"):
        result = hoyer.solve(steep, 0.5, nonnegative=True, solver=solver)
        assert result.evaluations <= (64 if solver == "auto" else 264)
    assert most <= 64


@pytest.mark.parametrize(
    "target",
    [
        {"sparseness": 0.5, "l2": -1.0},
        {"sparseness": 0.5, "l1": float("nan")},
        {"sparseness": 0.5, "l2": float("inf")},
        {"l1": 5.0, "l2": 1.0},
    ],
)
def test_impossible_norms_unchecked_give_nan(target):
    for x in ([3.0, 2.0, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0]):
        assert np.all(np.isnan(hoyer.project(x, **target, check_finite=False)))


def test_what_vanishes_in_a_narrow_type_has_no_sign():
    x = np.array([-1, -1, 0, 0], np.float16)
    assert not np.signbit(hoyer.project(x, 1 - 2.0**-30)[1:]).any()
    x = np.array([-1, -0.5, 0.2], np.float32)
    assert not np.signbit(hoyer.project(x, 0.5, l2=1e-46)).any()


def test_scale_near_sparseness_zero_may_be_large():
    result = hoyer.solve([3.0, 1.0], 1e-300)
    exact = exact_projection(np.array([3.0, 1.0]), sparseness=1e-300)
    np.testing.assert_allclose(result.scale, float(exact.scale), rtol=1e-12)


def test_near_the_largest_float():
    largest = np.finfo(float).max
    x = np.concatenate([np.full(85, 1.7e308), np.linspace(0, 1e308, 100)])
    scaled = hoyer.project(x * 2.0**-20, 0.05, l2="nearest") * 2.0**20
    np.testing.assert_allclose(hoyer.project(x, 0.05, l2="nearest"), scaled, rtol=1e-14)
    x = largest * np.array([1, 0.6, -0.5, 0.1])
    result = hoyer.solve(x, 0.5, l2=1e10, nonnegative=True)
    same = hoyer.solve(x * 2.0**-10, 0.5, l2=1e10, nonnegative=True)
    np.testing.assert_allclose(result.scale, same.scale * 2.0**10, rtol=1e-14)
    # x lies in the span of e and p, along which nothing moves.
    assert np.abs(result.jvp(x)).max() <= 32 * 2.3e-16 * (largest / result.scale)


# ---- projected again ----


def projected_again(x, **target):
    once = hoyer.project(x, **target)
    return once, hoyer.project(once, **target)


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
    ],
)
def test_noise_of_our_own_sums_revives_no_zero(x, sparseness):
    once, twice = projected_again(np.array(x), sparseness=sparseness)
    np.testing.assert_array_equal(twice == 0, once == 0)
    np.testing.assert_allclose(twice, once, rtol=0, atol=4 * 2.3e-16)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [2, 3, 5, 10, 40, 100])
def test_zeros_stay_zero(rng, dtype, n):
    """Few entries with a spread, many targets: results of projections are in D up to rounding."""
    x = rng.normal(size=(4000, n)) * (rng.random((4000, n)) < rng.random((4000, 1)))
    x[:, 0] += 1e-3
    once, twice = projected_again(x.astype(dtype), sparseness=rng.random(4000))
    assert not twice[once == 0].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zeros_that_deserve_more_than_noise_are_revived(dtype):
    """A hundred eps short of the target is no rounding error."""
    eps = float(np.finfo(dtype).eps)
    x = np.array([3.0, 1.0, 0.0, 0.0], dtype)
    ratio = 4 / np.sqrt(10) * (1 + 100 * eps)
    result = hoyer.solve(x, l1=ratio, l2=1.0)
    assert result.support_size == 4
    assert not result.unique
    assert error_in_eps(result.value, exact_projection(x, l1=ratio, l2=1.0)) <= BOUND


# ---- at least as sparse, but nothing is positive ----


@pytest.mark.parametrize(
    ("x", "options", "value", "unique"),
    [
        ([-1.0, -2.0, -3.0, -4.0], {}, [1, 0, 0, 0], True),
        ([-1.0, 0.0, -0.0, -4.0], {}, [0, 1, 0, 0], False),
        ([-3.0, -4.0, -12.0, -3.0], {"l2": 2.5}, [2.5, 0, 0, 0], False),
        ([-12.0, -4.0, -3.0, 0.0], {"l2": "keep"}, [0, 0, 0, 13], True),
        ([-12.0, -4.0, -3.0, -1.0], {"l2": "nearest"}, [0, 0, 0, 0], True),
        ([-12.0, -4.0, -3.0, -1.0], {"l1": 3.0}, [0, 0, 0, 3], True),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_only_increase_without_positive_entries(x, options, value, unique, dtype):
    """At least as sparse, not negative, nearest: the largest entry alone."""
    options = {"sparseness": 0.5, **options, "nonnegative": True, "only_increase": True}
    x = np.array(x, dtype)
    result = hoyer.solve(x, **options)
    np.testing.assert_array_equal(result.value, np.array(value, dtype))
    assert result.unique == unique
    np.testing.assert_array_equal(hoyer.project(np.stack([x] * 40), **options)[17], result.value)
    y = np.array([1.0, 2.0, 3.0, 4.0], dtype)
    # Moving x a little moves nothing but the norm, where that is kept.
    follows = 0.0
    if options.get("l2") == "keep":
        follows = float(x.astype(np.float64) @ y) / 13 / 13
    np.testing.assert_allclose(result.jvp(y), result.value.astype(np.float64) * follows, rtol=1e-3)
    if result.l2 > 0:
        by_l1, by_l2 = result.target_gradient()
        fixed = (by_l1, by_l2) if "l1" in options else (by_l2, by_l1)
        np.testing.assert_allclose(fixed[0], result.value / result.l2, rtol=1e-3)
        assert not fixed[1].any()
