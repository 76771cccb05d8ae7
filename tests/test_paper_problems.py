"""The collection of inputs holds what it says, and is the same every time."""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mpf
from reference import error_in_eps, exact_projection, needs_long_double

from hoyer.paper.problems import KINDS, collection, random_vector

DTYPES = (np.float64, np.float32, np.float16)

each_dtype = pytest.mark.parametrize("dtype", DTYPES)

CATEGORIES = {
    *KINDS,
    "forms",
    "sorted",
    "near-binary",
    "integers",
    "one-hot",
    "short",
    "constant",
    "zero",
    "negative zero",
    "all negative",
    "subnormal",
    "large scale",
    "small scale",
    "both scales",
    "geometric",
    "offset",
    "near-ties",
    "ties below K",
    "ties at K",
    "ties above K",
    "K one ulp below an integer",
    "K one ulp above an integer",
    "in D",
    "sparser than target",
    "zeros, decrease",
    "end of range",
    "full range",
}


def of(category, dtype=np.float64):
    found = [problem for problem in collection(dtype) if problem.category == category]
    assert found
    return found


def k_of(problem):
    if "l1" in problem.target and "l2" in problem.target:
        return (Fraction(problem.target["l1"]) / Fraction(problem.target["l2"])) ** 2
    root = math.isqrt(problem.x.size)
    s = Fraction(problem.target["sparseness"])
    assert root**2 == problem.x.size
    return (s + (1 - s) * root) ** 2


def multiplicity(x):
    return int(np.count_nonzero(x == x.max()))


class TestCollection:
    @each_dtype
    def test_shape(self, dtype):
        problems = collection(dtype)
        assert 250 <= len(problems) <= 450
        assert len({problem.name for problem in problems}) == len(problems)
        for problem in problems:
            assert problem.x.dtype == dtype
            assert problem.x.ndim == 1
            assert problem.x.size >= 2
            assert np.isfinite(problem.x).all()

    @each_dtype
    def test_categories(self, dtype):
        assert {problem.category for problem in collection(dtype)} == CATEGORIES

    @each_dtype
    def test_targets_are_admissible_and_results_representable(self, dtype):
        top, least = (float(getattr(np.finfo(dtype), name)) for name in ("max", "tiny"))
        for problem in collection(dtype):
            if problem.x.size > 300:
                continue
            exact = exact_projection(problem.x, **problem.target)
            largest = max(abs(entry) for entry in exact.value)
            assert largest == 0 or 16 * least <= largest <= top, problem.name

    @each_dtype
    def test_the_same_every_time(self, dtype):
        for first, second in zip(collection(dtype), collection(dtype), strict=True):
            assert first.name == second.name
            assert first.target == second.target
            assert first.x.tobytes() == second.x.tobytes()

    def test_another_seed_gives_other_numbers_under_the_same_names(self):
        zero, one = collection(seed=0), collection(seed=1)
        assert [problem.name for problem in zero] == [problem.name for problem in one]
        differ = [not np.array_equal(a.x, b.x) for a, b in zip(zero, one, strict=True)]
        assert sum(differ) > 200

    def test_large_adds_vectors_of_length_2_to_the_20(self):
        small, all_of_them = collection(), collection(large=True)
        added = all_of_them[len(small) :]
        assert {problem.x.size for problem in added} == {2**20}
        assert {problem.name.split()[0] for problem in added} == {
            "large/uniform",
            "large/normal",
            "large/cauchy",
            "large/ties",
        }

    @pytest.mark.parametrize(
        "dtype",
        [np.int64, np.complex128, pytest.param(np.longdouble, marks=needs_long_double)],
    )
    def test_other_dtypes(self, dtype):
        with pytest.raises(ValueError, match="choose one of float64, float32, float16"):
            collection(dtype)


class TestCategories:
    @pytest.mark.parametrize(("dtype", "scale"), list(zip(DTYPES, (1e300, 1e37, 1e4), strict=True)))
    def test_scales(self, dtype, scale):
        for problem in of("large scale", dtype):
            assert np.abs(problem.x).max() > 0.5 * scale
        for problem in of("small scale", dtype):
            # A Cauchy variable may be a thousand times its scale.
            assert 0 < np.abs(problem.x).max() < 1e4 / scale
        for problem in of("both scales", dtype):
            size = np.abs(problem.x.astype(np.float64))
            assert size.max() > 0.5 * scale
            assert size.min() < 1 / scale

    @pytest.mark.parametrize(("dtype", "offset"), list(zip(DTYPES, (1e8, 1e4, 1e2), strict=True)))
    def test_offsets(self, dtype, offset):
        for problem in of("offset", dtype):
            assert abs(np.median(problem.x.astype(np.float64))) == pytest.approx(offset, rel=0.1)

    @each_dtype
    def test_geometric_sequences_span_the_exponents(self, dtype):
        info = np.finfo(dtype)
        by_name = {problem.name: problem.x for problem in of("geometric", dtype)}
        x = by_name["geometric/increasing s=0.5"]
        assert x[0] == info.smallest_subnormal
        assert 2 * float(x[-1]) > float(info.max)
        assert (np.diff(x) > 0).all()
        assert (np.diff(by_name["geometric/decreasing s=0.5"]) < 0).all()
        assert (by_name["geometric/negative s=0.5"] == -x).all()
        if dtype is np.float64:
            steps = by_name["geometric/-2**-i s=0.3"]
            assert steps[0] == -(2.0**1000)
            assert steps[-1] == -(2.0**-999)

    @each_dtype
    def test_subnormals(self, dtype):
        for problem in of("subnormal", dtype):
            if "one" not in problem.name:
                size = np.abs(problem.x)
                assert ((size > 0) & (size < np.finfo(dtype).tiny)).any(), problem.name

    def test_negative_zeros(self):
        for problem in of("negative zero"):
            assert (np.signbit(problem.x) & (problem.x == 0)).any()

    @each_dtype
    def test_full_range(self, dtype):
        top = np.finfo(dtype).max
        assert any(
            (problem.x == top).any() and (problem.x == -top).any()
            for problem in of("full range", dtype)
        )

    @each_dtype
    @pytest.mark.parametrize(
        ("category", "compare"),
        [
            ("ties below K", lambda m, k: 1 < m < k),
            ("ties at K", lambda m, k: m == k),
            ("ties above K", lambda m, k: m > k),
        ],
    )
    def test_ties(self, dtype, category, compare):
        for problem in of(category, dtype):
            x = np.abs(problem.x) if "signed" in problem.name else problem.x
            assert compare(multiplicity(x), k_of(problem)), problem.name

    @pytest.mark.parametrize(("side", "sign"), [("below", -1), ("above", 1)])
    def test_one_ulp_from_an_integer(self, side, sign):
        for problem in of(f"K one ulp {side} an integer"):
            k = k_of(problem)
            assert 0 < sign * (k - round(k)) < 64 * 2**-52, problem.name
        assert {multiplicity(problem.x) for problem in of(f"K one ulp {side} an integer")} >= {
            3,
            4,
            5,
        }

    @each_dtype
    def test_near_ties(self, dtype):
        for problem in of("near-ties", dtype):
            values = np.unique(problem.x.astype(np.float64))
            if "ulp" in problem.name or "K=4" in problem.name:
                assert 0 < values[-1] - values[-2] <= 2 * np.finfo(dtype).eps

    @each_dtype
    def test_vectors_in_the_target_set_hardly_move(self, dtype):
        for problem in of("in D", dtype):
            if problem.x.size == 10 and "as is" in problem.name:
                exact = exact_projection(problem.x, **problem.target, nonnegative=True)
                assert error_in_eps(problem.x, exact) < 50, problem.name
                assert sum(p == 0 for p in exact.value) <= np.count_nonzero(problem.x == 0)

    @each_dtype
    def test_decreasing_sparseness(self, dtype):
        zeros = of("zeros, decrease", dtype)
        assert all((problem.x == 0).any() for problem in zeros)
        for problem in zeros + of("sparser than target", dtype):
            exact = exact_projection(np.abs(problem.x), **problem.target, nonnegative=True)
            assert exact.shift < 0
            assert exact.support_size == problem.x.size

    def test_ends_of_the_range(self):
        targets = {problem.target.get("sparseness") for problem in of("end of range")}
        assert targets == {0, 5e-324, 1e-12, 1 - 1e-12, math.nextafter(1, 0), 1, None}


class TestRandomVector:
    @pytest.mark.parametrize("kind", KINDS)
    @each_dtype
    def test_distribution(self, kind, dtype):
        x = random_vector(kind, 4001, np.random.default_rng(0), dtype)
        assert x.dtype == dtype
        assert x.shape == (4001,)
        assert np.isfinite(x).all()
        median = {"uniform": 0.5, "halfnormal": 0.6745, "lognormal": 1.0}.get(kind, 0.0)
        assert float(np.median(x)) == pytest.approx(median, abs=0.06)
        assert (x.min() < 0) == (kind in {"normal", "cauchy"})

    def test_unknown_kind(self):
        with pytest.raises(ValueError, match="unknown kind 'beta'; choose one of 'uniform'"):
            random_vector("beta", 3, np.random.default_rng(0))


def test_the_erratum_is_in_the_collection():
    problem = next(p for p in collection() if p.name == "zeros, decrease/erratum")
    exact = exact_projection(problem.x, **problem.target, nonnegative=True)
    assert problem.x.tolist() == [3, 1, 0, 0]
    assert min(exact.value) > mpf("0.3")
