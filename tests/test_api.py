"""project, project_, solve and sparseness: every option, every kind of input, one front end."""

import inspect
import itertools
import math

import mpmath
import numpy as np
import pytest
from reference import error_in_eps, exact_projection

import hoyer

SOLVERS = ("auto", "bisection", "newton", "newton_sqr", "halley")
FLOATS = (np.float16, np.float32, np.float64)
EPS = np.finfo(np.float64).eps

# x = 1..10, sparseness 0.5, l2="keep": published beforehand, eight digits.
KNOWN = [0, 0, 0, 0, 0.62158264, 3.09527575, 5.56896887, 8.04266198, 10.5163551, 12.99004821]


def mp_sparseness(x):
    with mpmath.workdps(60):
        x = [mpmath.mpf(float(entry)) for entry in np.ravel(x)]
        root = mpmath.sqrt(len(x))
        l1 = mpmath.fsum(abs(entry) for entry in x)
        l2 = mpmath.sqrt(mpmath.fsum(entry**2 for entry in x))
        return float((root - l1 / l2) / (root - 1))


def bits(a):
    """The bytes of an array in native order: equal exactly when the numbers are."""
    a = np.asarray(a)
    return np.ascontiguousarray(a.astype(a.dtype.newbyteorder("="))).tobytes()


OPTIONS = {
    "l1": None,
    "l2": None,
    "axis": -1,
    "where": None,
    "nonnegative": False,
    "only_increase": False,
    "at_most": False,
    "solver": "auto",
    "check_finite": True,
}


class TestSignatures:
    @pytest.mark.parametrize("name", ["project", "project_", "solve"])
    def test_projections(self, name):
        parameters = dict(inspect.signature(getattr(hoyer, name)).parameters)
        assert list(parameters)[:2] == ["x", "sparseness"]
        x, sparseness = parameters.pop("x"), parameters.pop("sparseness")
        assert x.default is inspect.Parameter.empty
        assert sparseness.default is None
        assert sparseness.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
        expected = {**OPTIONS, "out": None} if name == "project" else OPTIONS
        assert {key: p.default for key, p in parameters.items()} == expected

    def test_sparseness(self):
        assert str(inspect.signature(hoyer.sparseness)).startswith("(x")
        assert inspect.signature(hoyer.sparseness).parameters["axis"].default == -1
        with pytest.raises(TypeError):
            hoyer.sparseness(np.ones((2, 2)), 0)

    @pytest.mark.parametrize(
        "name", ["project", "project_", "solve", "sparseness", "target_norms", "Projection"]
    )
    def test_documented_with_parameters_and_a_runnable_example(self, name):
        text = inspect.getdoc(getattr(hoyer, name))
        assert text
        assert ">>>" in text
        if name != "Projection":
            for section in ("Parameters", "Returns", "Raises"):
                assert f"{section}\n{'-' * len(section)}" in text
            for parameter in inspect.signature(getattr(hoyer, name)).parameters:
                assert parameter in text

    def test_members_of_projection_are_documented(self):
        text = inspect.getdoc(hoyer.Projection)
        for name in (
            "value",
            "shift",
            "scale",
            "support_size",
            "evaluations",
            "unique",
            "l1",
            "l2",
        ):
            assert name in text
        for name in ("jvp", "vjp", "jacobian", "target_gradient", "as_linear_operator"):
            assert inspect.getdoc(getattr(hoyer.Projection, name))


class TestKnownAnswers:
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_one_to_ten(self, solver):
        value = hoyer.project(np.arange(1, 11), 0.5, l2="keep", solver=solver)
        np.testing.assert_allclose(value, KNOWN, rtol=0, atol=5.1e-9)
        assert not value[:4].any()

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_two_entries_by_hand(self, solver):
        """n = 2: p = (a, b), a + b = 1.4, a² + b² = 1 has the two solutions 0.8 and 0.6."""
        for x, p in [([1, 3], [0.6, 0.8]), ([5, -9], [0.6, -0.8]), ([-1e-300, 0.0], [-0.8, 0.6])]:
            value = hoyer.project(x, l1=1.4, l2=1.0, solver=solver)
            np.testing.assert_allclose(value, p, rtol=16 * EPS)
        value = hoyer.project([-7.0, -2.0], l1=1.4, l2=1.0, nonnegative=True, solver=solver)
        np.testing.assert_allclose(value, [0.6, 0.8], rtol=16 * EPS)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_the_paper_s_erratum(self, solver):
        """x has zeros and must become less sparse: Algorithm 2 as printed gives NaN."""
        x = np.array([3.0, 1.0, 0.0, 0.0])
        l1 = math.sqrt(3.9)
        value = hoyer.project(x, l1=l1, l2=1.0, solver=solver)
        exact = exact_projection(x, l1=l1, l2=1.0)
        assert error_in_eps(value, exact) <= 32
        assert (value > 0).all()

    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_ends_of_the_range(self, solver, dtype):
        x = np.array([0.5, -2.0, 1.0, 2.0], dtype)
        one_hot = hoyer.project(x, 1.0, l2=3.0, solver=solver)
        np.testing.assert_array_equal(one_hot, [0, -3, 0, 0])  # the first maximum of |x|
        assert not np.signbit(one_hot[[0, 2, 3]]).any()
        np.testing.assert_array_equal(hoyer.project(x, 1.0, nonnegative=True), [0, 0, 0, 1])
        constant = hoyer.project(x, 0.0, l2=3.0, solver=solver)
        np.testing.assert_array_equal(constant, [1.5, -1.5, 1.5, 1.5])
        constant = hoyer.project(x, 0.0, l2=3.0, nonnegative=True, solver=solver)
        np.testing.assert_array_equal(constant, [1.5, 1.5, 1.5, 1.5])

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_more_ties_than_fit(self, solver):
        """m = 3 > K = 2.25: r = 1/4; first 1.5/3 + sqrt(2/3 r), others 1.5/3 - sqrt(r/6)."""
        x = np.array([0.0, 1.0, -5.0, 5.0, 2.0, 5.0])
        value = hoyer.project(x, l1=1.5, l2=1.0, solver=solver)
        first, other = 0.5 + math.sqrt(1 / 6), 0.5 - math.sqrt(1 / 24)
        np.testing.assert_allclose(value, [0, 0, -first, other, 0, other], rtol=8 * EPS)
        value = hoyer.project(x, l1=1.5, l2=1.0, nonnegative=True, solver=solver)
        # two tied entries only: m = 2 < K, so an ordinary projection; the tied ones come out equal
        assert value[3] == value[5] > value[4] > 0
        value = hoyer.project(np.zeros(3), l1=1.5, l2=1.0, nonnegative=True, solver=solver)
        np.testing.assert_allclose(value, [first, other, other], rtol=8 * EPS)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_exactly_as_many_ties_as_fit(self, solver):
        """m = K = 4: l1/m on the tied entries, nothing elsewhere."""
        x = np.array([3.0, 7.0, 7.0, 1.0, 7.0, -7.0, 6.999])
        value = hoyer.project(x, l1=2.0, l2=1.0, solver=solver)
        np.testing.assert_allclose(value, [0, 0.5, 0.5, 0, 0.5, -0.5, 0], atol=2 * EPS)
        assert np.count_nonzero(value) == 4

    def test_length_one(self):
        assert hoyer.project([5.0], l1=2.0, l2=2.0) == [2.0]
        assert hoyer.project([-5.0], l1=2.0, l2=2.0) == [-2.0]
        assert hoyer.project([-5.0], l1=2.0, l2=2.0, nonnegative=True) == [2.0]
        batch = hoyer.project([[-1.0], [0.0], [3.0]], l1=2.0, l2=2.0)
        np.testing.assert_array_equal(batch, [[-2.0], [2.0], [2.0]])


class TestSigns:
    def test_signs_return_and_zeros_are_positive(self, rng):
        x = rng.normal(size=(50, 30))
        x[:, ::7] = -0.0
        value = hoyer.project(x, 0.8)
        assert (value[x < 0] <= 0).all()
        assert (value[x >= 0] >= 0).all()
        assert not np.signbit(value[value == 0]).any()
        np.testing.assert_array_equal(np.abs(value), hoyer.project(np.abs(x), 0.8))

    def test_zero_entries_that_must_become_nonzero_become_positive(self):
        value = hoyer.project([-3.0, 0.0, -0.0, 0.0], 0.1)
        assert value[0] < 0
        assert (value[1:] > 0).all()

    def test_nonnegative_ignores_signs_only_as_order(self, rng):
        x = rng.normal(size=(20, 16))
        value = hoyer.project(x, 0.7, nonnegative=True)
        assert (value >= 0).all()
        assert not np.signbit(value).any()
        np.testing.assert_array_equal(value.argmax(-1), x.argmax(-1))

    def test_both_sets_agree_on_nonnegative_input(self, rng):
        x = rng.random((20, 64))
        np.testing.assert_array_equal(
            hoyer.project(x, 0.7), hoyer.project(x, 0.7, nonnegative=True)
        )


class TestTargets:
    def test_per_vector_targets_in_any_container(self):
        x = np.random.default_rng(8).normal(size=(3, 10))
        wanted = [0.5, 0.6, 0.7]
        expected = hoyer.project(x, np.array(wanted))
        for same in (wanted, tuple(wanted), np.array(wanted, np.float64)[::1]):
            np.testing.assert_array_equal(hoyer.project(x, same), expected)
        np.testing.assert_allclose(hoyer.sparseness(expected), wanted, rtol=1e-14)

    def test_switches_are_checked_every_time(self):
        x = np.arange(5.0)
        hoyer.project(x, 0.5, nonnegative=True)  # plans are remembered, and 1 equals True
        with pytest.raises(TypeError, match="nonnegative=1: must be True or False"):
            hoyer.project(x, 0.5, nonnegative=1)
        np.testing.assert_array_equal(
            hoyer.project(x, 0.5, nonnegative=np.True_), hoyer.project(x, 0.5, nonnegative=True)
        )

    """The result has the norms that were asked for, in every form of asking."""

    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_sparseness_alone_means_unit_norm(self, nonnegative, rng):
        x = rng.normal(size=(9, 40))
        value = hoyer.project(x, 0.75, nonnegative=nonnegative)
        np.testing.assert_allclose(np.linalg.norm(value, axis=-1), 1, rtol=32 * EPS)
        np.testing.assert_allclose(hoyer.sparseness(value), 0.75, rtol=64 * EPS)

    def test_sparseness_and_one_norm(self, rng):
        x = rng.normal(size=(9, 40))
        value = hoyer.project(x, 0.75, l2=3.0)
        np.testing.assert_allclose(np.linalg.norm(value, axis=-1), 3, rtol=32 * EPS)
        np.testing.assert_allclose(hoyer.sparseness(value), 0.75, rtol=64 * EPS)
        value = hoyer.project(x, 0.75, l1=3.0)
        np.testing.assert_allclose(np.abs(value).sum(-1), 3, rtol=32 * EPS)
        np.testing.assert_allclose(hoyer.sparseness(value), 0.75, rtol=64 * EPS)

    def test_both_norms(self, rng):
        value = hoyer.project(rng.normal(size=(9, 40)), l1=5.0, l2=2.0)
        np.testing.assert_allclose(np.linalg.norm(value, axis=-1), 2, rtol=32 * EPS)
        np.testing.assert_allclose(np.abs(value).sum(-1), 5, rtol=32 * EPS)

    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_keep(self, nonnegative, rng):
        x = rng.normal(size=(9, 40)) * np.logspace(-150, 150, 9)[:, None]
        value = hoyer.project(x, 0.75, l2="keep", nonnegative=nonnegative)
        np.testing.assert_allclose(hoyer.sparseness(value), 0.75, rtol=64 * EPS)
        np.testing.assert_allclose(
            np.linalg.norm(value, axis=-1), np.linalg.norm(x, axis=-1), rtol=64 * EPS
        )

    def test_keep_and_nearest_leave_zero_zero(self):
        for word, dtype in itertools.product(("keep", "nearest"), FLOATS):
            x = np.zeros((2, 5), dtype)
            x[0] = [1, -2, 3, 0, 4]
            value = hoyer.project(x, 0.5, l2=word)
            assert not value[1].any()
            assert not np.signbit(value[1]).any()
            assert value[0].any()

    def test_keep_at_the_ends_of_the_exponent_range(self):
        for scale in (1e-300, 5e-324, 1e300):
            x = np.array([3.0, -1.0, 2.0, 0.0]) * scale
            norm = np.linalg.norm(x / scale)
            value = hoyer.project(x, 0.0, l2="keep")
            np.testing.assert_allclose(np.abs(value), norm * scale / 2, rtol=32 * EPS, atol=5e-324)
            value = hoyer.project(x, 1.0, l2="keep")
            np.testing.assert_allclose(value, [norm * scale, 0, 0, 0], rtol=32 * EPS, atol=5e-324)

    @pytest.mark.parametrize("word", ["keep", "nearest"])
    def test_a_norm_beyond_the_range_of_results_within_it(self, word):
        x = np.full(4, 1e308)  # its norm is 2e308
        np.testing.assert_allclose(hoyer.project(x, 0.0, l2=word), x, rtol=32 * EPS)
        x = np.array([0.0, 0.0, 0.0, 1.5e308, 1.4e308, 1.5e308])
        expected = hoyer.project(np.ldexp(x, -10), 0.2, l2=word)
        assert expected.max() < 2.0**1014
        value = hoyer.project(x, 0.2, l2=word)
        np.testing.assert_allclose(value, np.ldexp(expected, 10), rtol=64 * EPS)

    def test_nearest_is_nearer_than_every_other_norm(self, rng):
        x = rng.normal(size=(8, 30))
        value = hoyer.project(x, 0.7, l2="nearest")
        np.testing.assert_allclose(hoyer.sparseness(value), 0.7, rtol=64 * EPS)
        distance = np.linalg.norm(value - x, axis=-1)
        norms = np.linalg.norm(value, axis=-1)
        for factor in (0.9, 0.999, 1.001, 1.1):
            other = hoyer.project(x, 0.7, l2=factor * norms)
            assert (np.linalg.norm(other - x, axis=-1) > distance).all()
        assert (np.linalg.norm(hoyer.project(x, 0.7, l2="keep") - x, axis=-1) > distance).all()
        # the residual of a projection onto a cone is orthogonal to the projection
        np.testing.assert_allclose(((x - value) * value).sum(-1), 0, atol=1e-13)

    def test_nearest_to_a_vector_that_points_away_is_zero(self):
        value = hoyer.project([-1.0, -2.0, -3.0], 0.5, l2="nearest", nonnegative=True)
        np.testing.assert_array_equal(value, 0)
        assert not np.signbit(value).any()

    def test_per_vector_targets(self, rng):
        x = rng.normal(size=(4, 3, 25))
        targets = rng.uniform(0.2, 0.9, (4, 3))
        norms = rng.uniform(0.5, 2, 3)
        value = hoyer.project(x, targets, l2=norms)
        np.testing.assert_allclose(hoyer.sparseness(value), targets, rtol=64 * EPS)
        np.testing.assert_allclose(
            np.linalg.norm(value, axis=-1), np.broadcast_to(norms, (4, 3)), rtol=32 * EPS
        )
        value = hoyer.project(x, targets[:, :1], l1=norms)
        np.testing.assert_allclose(
            np.abs(value).sum(-1), np.broadcast_to(norms, (4, 3)), rtol=32 * EPS
        )
        value = hoyer.project(x, l1=np.array([[2.0], [3.0], [4.0], [4.5]]), l2=1)
        np.testing.assert_allclose(
            np.abs(value).sum(-1),
            np.broadcast_to([[2.0], [3.0], [4.0], [4.5]], (4, 3)),
            rtol=32 * EPS,
        )
        value = hoyer.project(x[0, 0], targets[0, 0].reshape(()))
        np.testing.assert_allclose(hoyer.sparseness(value), targets[0, 0], rtol=64 * EPS)

    def test_per_vector_targets_follow_the_axis(self, rng):
        x = rng.normal(size=(4, 25, 3))
        targets = rng.uniform(0.2, 0.9, (4, 3))
        value = hoyer.project(x, targets, axis=1)
        np.testing.assert_allclose(hoyer.sparseness(value, axis=1), targets, rtol=64 * EPS)
        targets = rng.uniform(0.2, 0.9, 25)
        value = hoyer.project(x, targets, axis=(0, 2))
        np.testing.assert_allclose(hoyer.sparseness(value, axis=(0, 2)), targets, rtol=64 * EPS)

    @pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), (2, 1), None])
    @pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
    def test_per_vector_targets_with_the_axes_of_the_vectors(self, axis, name, rng):
        """As sums with keepdims=True are shaped."""
        x = rng.normal(size=(3, 4, 5))
        target = rng.uniform(0.2, 0.9, x.sum(axis, keepdims=True).shape)
        rest = {} if name == "sparseness" else {"sparseness": 0.5}
        expected = hoyer.project(x, **rest, axis=axis, **{name: target.squeeze(axis)})
        for given in (target, target.tolist(), np.asfortranarray(target)):
            options = {**rest, "axis": axis, name: given}
            np.testing.assert_array_equal(hoyer.project(x, **options), expected)
            np.testing.assert_array_equal(hoyer.project_(x.copy(), **options), expected)
            np.testing.assert_array_equal(hoyer.solve(x, **options).value, expected)
        along = axis if isinstance(axis, int) else 0 if axis is None else axis[0]
        long = np.repeat(target, 2, axis=along)
        with pytest.raises(ValueError, match=r"broadcasts to .* or that with the vectors' axes"):
            hoyer.project(x, **rest, axis=axis, **{name: long})

    def test_targets_with_and_without_the_axes_of_the_vectors_meet(self, rng):
        x = rng.normal(size=(3, 4, 25))
        sigma, norms = rng.uniform(0.2, 0.9, (3, 4)), rng.uniform(1, 2, (3, 1, 1))
        expected = hoyer.project(x, sigma, l2=np.broadcast_to(norms[..., 0], (3, 4)))
        np.testing.assert_array_equal(hoyer.project(x, sigma[..., None], l2=norms), expected)
        np.testing.assert_array_equal(hoyer.project(x, sigma, l2=norms), expected)
        by_sparse = hoyer.project_sparse(x[0], sigma[0][:, None], l2=norms[0]).toarray()
        np.testing.assert_allclose(by_sparse, expected[0], rtol=0, atol=8 * EPS)
        np.testing.assert_array_equal(hoyer.project(x[0, 0], [0.5]), hoyer.project(x[0, 0], 0.5))

    def test_targets_that_broadcast_keep_their_meaning(self, rng):
        """Those with fewer axes than x belong to the batch, lengths 1 or not."""
        x = rng.normal(size=(3, 4, 25))
        sigma = rng.uniform(0.2, 0.9, (3, 4))
        for target in (sigma[:, :1], sigma[:1], sigma[0], sigma[0, :1]):
            expected = hoyer.project(x, np.broadcast_to(target, (3, 4)))
            np.testing.assert_array_equal(hoyer.project(x, target), expected)
        square = rng.normal(size=(4, 4, 4))
        target = rng.uniform(0.2, 0.9, (4, 1))
        expected = hoyer.project(square, np.broadcast_to(target, (4, 4)), axis=1)
        np.testing.assert_array_equal(hoyer.project(square, target, axis=1), expected)

    def test_ends_of_the_range_mixed_with_others_in_one_batch(self, rng):
        x = rng.normal(size=(4, 16))
        value = hoyer.project(x, [0.0, 0.5, 1.0, 0.25])
        np.testing.assert_array_equal(np.abs(value[0]), 0.25)
        assert np.count_nonzero(value[2]) == 1
        np.testing.assert_allclose(hoyer.sparseness(value), [0.0, 0.5, 1.0, 0.25], atol=64 * EPS)


class TestOnlyIncrease:
    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_sparser_vectors_keep_their_direction(self, nonnegative, rng):
        x = rng.normal(size=(40, 30)) * rng.random((40, 30)) ** 3
        kept = np.maximum(x, 0) if nonnegative else x
        goal = 0.7 if nonnegative else 0.5
        sparser = hoyer.sparseness(kept) >= goal
        assert 5 < sparser.sum() < 35
        options = {"nonnegative": nonnegative, "only_increase": True}
        value = hoyer.project(x, goal, l2=2.0, **options)
        unit = kept / np.linalg.norm(kept, axis=-1, keepdims=True)
        np.testing.assert_allclose(value[sparser], 2 * unit[sparser], rtol=32 * EPS)
        expected = hoyer.project(x, goal, l2=2.0, nonnegative=nonnegative)
        np.testing.assert_allclose(value[~sparser], expected[~sparser], rtol=0, atol=64 * EPS)
        assert (hoyer.sparseness(value) >= goal - 64 * EPS).all()

    def test_the_norm_that_was_given_is_the_norm_it_gets(self):
        x = np.array([4.0, 0.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])  # sparseness 0.8
        for given, expected in [
            ({"sparseness": 0.5}, x / 5),
            ({"sparseness": 0.5, "l2": 10.0}, x * 2),
            ({"sparseness": 0.5, "l1": 14.0}, x * 2),
            ({"l1": 20.0, "l2": 10.0}, x * 2),
            ({"sparseness": 0.5, "l2": "keep"}, x),
            ({"sparseness": 0.5, "l2": "nearest"}, x),
        ]:
            value = hoyer.project(x, **given, only_increase=True)
            np.testing.assert_allclose(value, expected, rtol=8 * EPS)
            assert not np.signbit(value[value == 0]).any()
        assert hoyer.project(x, 0.9, only_increase=True)[2] > -3 / 5  # not sparse enough: projected
        np.testing.assert_allclose(
            hoyer.project(x, 0.9, only_increase=True), hoyer.project(x, 0.9), rtol=8 * EPS
        )

    def test_nonnegative_keeps_the_direction_of_the_positive_part(self):
        x = np.array([4.0, -1.0, 3.0, -2.0, 0.0, 0.0, -5.0, 0.0, 0.0])
        positive = np.maximum(x, 0)
        norm = np.linalg.norm(x)
        for given, expected in [
            ({"sparseness": 0.5}, positive / 5),
            ({"sparseness": 0.5, "l1": 14.0}, positive * 2),
            ({"sparseness": 0.5, "l2": "keep"}, positive * (norm / 5)),
            ({"sparseness": 0.5, "l2": "nearest"}, positive),
        ]:
            value = hoyer.project(x, **given, only_increase=True, nonnegative=True)
            np.testing.assert_allclose(value, expected, rtol=8 * EPS)
            assert not np.signbit(value).any()

    @pytest.mark.parametrize("negative", [-1e5, -1e150, -1e300])
    def test_the_size_of_negative_entries_does_not_matter(self, negative):
        """max(x, 0) is what counts, however small beside the rest."""
        x = np.array([3e-10, 4e-10, negative, negative / 2, 0.0, 0.0])
        options = {"nonnegative": True, "only_increase": True}
        value = hoyer.project(x, 0.3, **options)
        np.testing.assert_allclose(value, [0.6, 0.8, 0, 0, 0, 0], rtol=32 * EPS)
        value = hoyer.project(x, 0.3, l2="nearest", **options)
        np.testing.assert_allclose(value, np.maximum(x, 0), rtol=32 * EPS)

    def test_nearest_returns_the_very_same_vector(self, rng):
        x = rng.normal(size=30) ** 9
        value = hoyer.project(x, 0.3, l2="nearest", only_increase=True)
        np.testing.assert_array_equal(value, x)

    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_zero_vectors_are_projected(self, nonnegative):
        zero = np.zeros(4)
        expected = hoyer.project(zero, 0.5, nonnegative=nonnegative)
        value = hoyer.project(zero, 0.5, only_increase=True, nonnegative=nonnegative)
        np.testing.assert_array_equal(value, expected)

    def test_nothing_at_least_as_sparse_is_nearer_to_negative_vectors(self, rng):
        x = -rng.random(6)
        found = hoyer.project(x, 0.5, only_increase=True, nonnegative=True)
        for sparseness in np.linspace(0.5, 1, 11):
            others = hoyer.project(rng.normal(size=(200, 6)), sparseness, nonnegative=True)
            assert (found @ x >= others @ x - 4 * EPS).all()


class TestAxis:
    def test_every_axis_is_the_moved_axis(self, rng):
        x = rng.normal(size=(4, 5, 6))
        for axis in range(-3, 3):
            moved = np.moveaxis(x, axis, -1)
            expected = np.moveaxis(hoyer.project(np.ascontiguousarray(moved), 0.6), -1, axis)
            np.testing.assert_array_equal(hoyer.project(x, 0.6, axis=axis), expected)
            np.testing.assert_array_equal(
                hoyer.sparseness(x, axis=axis), hoyer.sparseness(np.ascontiguousarray(moved))
            )
            in_place = x.copy()
            hoyer.project_(in_place, 0.6, axis=axis)
            np.testing.assert_array_equal(in_place, expected)
            assert hoyer.solve(x, 0.6, axis=axis).scale.shape == moved.shape[:-1]

    @pytest.mark.parametrize("axis", [(1, 2), (2, 1), (-1, -2), (0, 2), (2, 0), (0, 1, 2), (1,)])
    def test_tuples_are_vectors_over_several_axes(self, axis, rng):
        x = rng.normal(size=(4, 5, 6))
        kept = [k for k in range(3) if k not in {a % 3 for a in axis}]
        inside = sorted(a % 3 for a in axis)
        order = kept + inside
        shape = [x.shape[k] for k in kept]
        flat = np.ascontiguousarray(x.transpose(order)).reshape([*shape, -1])
        value = hoyer.project(flat, 0.6).reshape([x.shape[k] for k in order])
        expected = value.transpose(np.argsort(order))
        tolerance = 64 * EPS if not kept else 0  # alone or in a batch: the last bits may differ
        np.testing.assert_allclose(
            hoyer.project(x, 0.6, axis=axis), expected, rtol=0, atol=tolerance
        )
        assert hoyer.sparseness(x, axis=axis).shape == tuple(shape)
        np.testing.assert_allclose(
            hoyer.sparseness(x, axis=axis), hoyer.sparseness(flat), rtol=8 * EPS
        )

    def test_filters_of_a_convolution(self, rng):
        filters = rng.normal(size=(8, 3, 5, 5)).astype(np.float32)
        value = hoyer.project(filters, 0.8, l2="keep", axis=(1, 2, 3))
        assert value.shape == filters.shape
        np.testing.assert_allclose(hoyer.sparseness(value, axis=(1, 2, 3)), 0.8, rtol=1e-5)
        np.testing.assert_allclose(
            np.linalg.norm(value.reshape(8, -1), axis=-1),
            np.linalg.norm(filters.reshape(8, -1), axis=-1),
            rtol=1e-5,
        )

    def test_none_is_the_whole_array(self, rng):
        x = rng.normal(size=(4, 5, 6))
        value = hoyer.project(x, 0.6, axis=None)
        np.testing.assert_array_equal(value.ravel(), hoyer.project(x.ravel(), 0.6))
        assert np.ndim(hoyer.sparseness(x, axis=None)) == 0
        assert np.ndim(hoyer.solve(x, 0.6, axis=None).scale) == 0
        in_place = np.asfortranarray(x)
        hoyer.project_(in_place, 0.6, axis=None)
        np.testing.assert_array_equal(in_place, value)

    def test_the_first_of_tied_entries_is_first_in_the_order_of_the_axes(self):
        x = np.zeros((2, 3))
        expected = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        for form in (x, np.asfortranarray(x), x[::-1], x[:, ::-1]):
            for axis in (None, (0, 1), (1, 0)):
                np.testing.assert_array_equal(hoyer.project(form, 1.0, axis=axis), expected)
        x[0, 2] = x[1, 0] = 4.0
        expected = [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
        for form in (x, np.asfortranarray(x)):
            np.testing.assert_array_equal(hoyer.project(form, 1.0, axis=(1, 0)), expected)

    @pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4), (0, 0, 4)])
    def test_empty_batches_give_empty_results(self, shape):
        x = np.ones(shape, np.float32)
        assert hoyer.project(x, 0.5).shape == shape
        assert hoyer.project(x, 0.5).dtype == np.float32
        assert hoyer.project_(x, 0.5, l2="keep") is x
        assert hoyer.sparseness(x).shape == shape[:-1]
        found = hoyer.solve(x, 0.5)
        assert found.value.shape == shape
        assert found.scale.shape == found.unique.shape == shape[:-1]
        assert found.jvp(x).shape == found.vjp(x).shape == shape
        assert found.jacobian().shape == (*shape, 4)
        assert all(gradient.shape == shape for gradient in found.target_gradient())


class TestDtypes:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_floats_are_kept(self, dtype):
        x = np.arange(1, 13).reshape(3, 4).astype(dtype)
        assert hoyer.project(x, 0.5).dtype == dtype
        assert hoyer.project(x, np.full(3, 0.5), l2=np.ones(3)).dtype == dtype
        assert hoyer.solve(x, 0.5).value.dtype == dtype
        assert hoyer.sparseness(x).dtype == dtype

    @pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64, np.bool_])
    def test_integers_and_booleans_become_float64(self, dtype):
        x = np.array([[1, 0, 1, 1], [0, 0, 1, 0]], dtype)
        value = hoyer.project(x, 0.4)
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value, hoyer.project(x.astype(np.float64), 0.4))
        assert hoyer.sparseness(x).dtype == np.float64
        np.testing.assert_array_equal(hoyer.sparseness(x), hoyer.sparseness(x.astype(np.float64)))

    def test_sequences(self):
        expected = hoyer.project(np.array([1.0, 5.0, 3.0]), 0.4)
        for x in ([1, 5, 3], (1.0, 5.0, 3.0), [np.float32(1), 5, 3.0]):
            value = hoyer.project(x, 0.4)
            assert isinstance(value, np.ndarray)
            assert value.dtype == np.float64
            np.testing.assert_array_equal(value, expected)
        np.testing.assert_array_equal(hoyer.project([True, False, False], 1.0), [1, 0, 0])
        assert hoyer.sparseness([0, 0, 7]) == 1

    @pytest.mark.parametrize("module", ["pandas.core.frame", "xarray.core.dataarray", "mine"])
    def test_objects_that_are_arrays_underneath(self, module):
        data = np.array([[1.0, 5.0, 3.0], [2.0, 0.0, 1.0]], np.float32)

        class Frame:
            def __array__(self, dtype=None, copy=None):
                return np.array(data, dtype=dtype, copy=True if copy is None else copy)

        Frame.__module__ = module
        value = hoyer.project(Frame(), 0.4)
        assert type(value) is np.ndarray
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, hoyer.project(data, 0.4))
        np.testing.assert_array_equal(hoyer.sparseness(Frame()), hoyer.sparseness(data))
        np.testing.assert_array_equal(hoyer.solve(Frame(), 0.4).value, value)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "Float32", "Float64", "int8", "Int64"])
    def test_frames_and_series(self, dtype, rng):
        """Labels are not kept: the result is an array."""
        pd = pytest.importorskip("pandas")
        data = rng.integers(-9, 9, size=(5, 4))
        frame = pd.DataFrame(data, index=list("vwxyz"), columns=list("abcd")).astype(dtype)
        expected = data.astype("f4" if dtype.endswith("32") else "f8")
        for function in (hoyer.project, lambda *a: hoyer.solve(*a).value):
            value = function(frame, 0.4)
            assert type(value) is np.ndarray
            assert value.dtype == expected.dtype
            np.testing.assert_array_equal(value, function(expected, 0.4))
            np.testing.assert_array_equal(function(frame["b"], 0.4), function(expected[:, 1], 0.4))
        np.testing.assert_array_equal(hoyer.sparseness(frame), hoyer.sparseness(expected))
        gini = hoyer.measures.gini
        np.testing.assert_allclose(gini(frame, axis=0), gini(expected, axis=0), rtol=4 * EPS)

    @pytest.mark.parametrize("dtype", ["Float32", "Float64", "Int8", "boolean"])
    def test_what_is_missing_in_a_frame_is_nan(self, dtype):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame({"a": [1, 0, 1], "b": [1, pd.NA, 0], "c": [0, 0, 1]}).astype(dtype)
        sigma = hoyer.sparseness(frame)
        assert sigma.dtype == ("f4" if dtype == "Float32" else "f8")
        np.testing.assert_array_equal(np.isnan(sigma), [False, True, False])
        with pytest.raises(ValueError, match="x has nan at entry 1 of vector 1;"):
            hoyer.project(frame, 0.5)
        assert np.isnan(hoyer.project(frame, 0.5, check_finite=False)[1]).all()
        with pytest.raises(ValueError, match="x has nan at entry 1;"):
            hoyer.project(frame["b"], 0.5)

    def test_columns_of_several_types(self):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame({"a": [1.5, 2.0], "b": [3, 4], "c": [True, False]})
        frame["d"] = pd.array([0.5, 0.25], "Float32")
        expected = np.array([[1.5, 3, 1, 0.5], [2, 4, 0, 0.25]])
        np.testing.assert_array_equal(hoyer.project(frame, 0.5), hoyer.project(expected, 0.5))

    def test_a_column_without_numbers_is_named(self):
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame({"a": [1.5, 2.0], 7: ["x", "y"], "when": pd.to_datetime([0, 1])})
        for columns, words in (
            (["a", 7], r"column 7 of x has dtype (str|object)"),
            (["a", "when"], r"column 'when' of x has dtype datetime64"),
            (["when"], r"column 'when' of x has dtype datetime64"),
        ):
            for function in (hoyer.sparseness, hoyer.measures.l0):
                with pytest.raises(TypeError, match=words + r".*: give real numbers as float16"):
                    function(frame[columns])
            with pytest.raises(TypeError, match=words):
                hoyer.project(frame[columns], 0.5)
        with pytest.raises(TypeError, match=r"x has dtype (str|object): give real numbers"):
            hoyer.project(frame[7], 0.5)
        missing = pd.Series([1, 2, pd.NA], dtype=object)
        for x in (missing, missing.to_frame("a")):
            with pytest.raises(TypeError, match=r"x has dtype object: .*or x\.convert_dtypes\(\)"):
                hoyer.project(x, 0.5)
            assert np.isnan(hoyer.sparseness(x.convert_dtypes())).any()
        frame["z"] = [1j, 2.0]
        with pytest.raises(TypeError, match=r"column 'z' of x has dtype complex128: give"):
            hoyer.project(frame[["a", "z"]], 0.5)

    def test_an_array_of_objects_can_be_converted(self):
        x = np.array([1, 2.5, None], dtype=object)
        with pytest.raises(TypeError, match=r"x has dtype object: .* or x\.astype\(float\)$"):
            hoyer.sparseness(x)
        assert np.isnan(hoyer.sparseness(x.astype(float)))

    def test_float16_is_computed_wide_and_rounded_once(self, rng):
        x = rng.normal(size=(20, 50)).astype(np.float16)
        wide = hoyer.project(x.astype(np.float64), 0.7)
        np.testing.assert_array_equal(hoyer.project(x, 0.7), wide.astype(np.float16))

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_large_float_targets_do_not_change_the_dtype(self, dtype):
        value = hoyer.project(np.array([3, 1, 2], dtype), np.float64(0.5), l2=np.float64(2))
        assert value.dtype == dtype


def unaligned(x):
    store = np.zeros(x.nbytes + 1, np.uint8)
    view = store[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    assert x.dtype.itemsize == 1 or not view.flags.aligned
    return view


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "fortran": np.asfortranarray,
    "reversed rows": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "reversed entries": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "reversed all": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "every second entry": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every third row": lambda x: np.repeat(x, 3, axis=0)[::3],
    "inside a wider array": lambda x: np.pad(x, ((1, 2), (3, 5)))[1:-2, 3:-5],
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "byte-swapped fortran": lambda x: np.asfortranarray(x.astype(x.dtype.newbyteorder())),
    "unaligned": unaligned,
    "read-only": read_only,
}


class TestLayouts:
    """The same bits for any strides."""

    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("shape", [(7, 33), (3, 1000), (1, 70000), (300, 5)])
    def test_input(self, layout, dtype, shape, rng):
        x = rng.normal(size=shape).astype(dtype)
        before = x.copy()
        y = LAYOUTS[layout](x)
        np.testing.assert_array_equal(x, y)
        for options in ({}, {"nonnegative": True}, {"l2": "nearest"}, {"solver": "newton"}):
            assert bits(hoyer.project(y, 0.7, **options)) == bits(hoyer.project(x, 0.7, **options))
        assert bits(hoyer.sparseness(y)) == bits(hoyer.sparseness(x))
        np.testing.assert_array_equal(y, before)

    @pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "read-only"])
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_in_place(self, layout, dtype, rng):
        x = rng.normal(size=(7, 333)).astype(dtype)
        expected = hoyer.project(x, 0.7, l2="keep")
        y = LAYOUTS[layout](x)
        assert hoyer.project_(y, 0.7, l2="keep") is y
        assert bits(y) == bits(expected)

    def test_in_place_leaves_what_lies_between_alone(self, rng):
        store = rng.normal(size=(9, 40))
        before = store.copy()
        inside = np.zeros(store.shape, bool)
        inside[1:8:2, 3:-4:3] = True
        hoyer.project_(store[1:8:2, 3:-4:3], 0.6)
        np.testing.assert_array_equal(store[~inside], before[~inside])
        np.testing.assert_array_equal(
            store[1:8:2, 3:-4:3], hoyer.project(before[1:8:2, 3:-4:3].copy(), 0.6)
        )

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_broadcast(self, dtype, rng):
        row = rng.normal(size=64).astype(dtype)
        x = np.broadcast_to(row, (5, 64))
        assert bits(hoyer.project(x, 0.7)) == bits(hoyer.project(np.array(x), 0.7))
        constant = np.broadcast_to(dtype(3), (5, 64))
        assert bits(hoyer.project(constant, 0.7)) == bits(hoyer.project(np.array(constant), 0.7))
        window = np.lib.stride_tricks.sliding_window_view(row, 16)
        assert bits(hoyer.project(window, 0.7)) == bits(hoyer.project(window.copy(), 0.7))

    def test_single_vectors(self, rng):
        store = rng.normal(size=3000)
        for view in (store[::3], store[::-1], store[10:500:7]):
            assert bits(hoyer.project(view, 0.9)) == bits(hoyer.project(view.copy(), 0.9))

    def test_gradients(self, rng):
        x = rng.normal(size=(6, 50))
        y = rng.normal(size=(6, 50))
        expected = hoyer.solve(x, 0.7, l2="keep")
        for layout in LAYOUTS.values():
            found = hoyer.solve(layout(x), 0.7, l2="keep")
            assert bits(found.jvp(layout(y))) == bits(expected.jvp(y))
            assert bits(found.vjp(layout(y))) == bits(expected.vjp(y))

    def test_more_dimensions_than_two(self, rng):
        x = rng.normal(size=(3, 4, 5, 6))
        for axes in itertools.permutations(range(4)):
            y = np.ascontiguousarray(x.transpose(axes)).transpose(np.argsort(axes))
            assert bits(hoyer.project(y, 0.6)) == bits(hoyer.project(x, 0.6))
            assert bits(hoyer.project(y, 0.6, axis=(1, 3))) == bits(
                hoyer.project(x, 0.6, axis=(1, 3))
            )


class TestOut:
    def test_is_returned_and_filled(self, rng):
        x = rng.normal(size=(5, 20))
        expected = hoyer.project(x, 0.7)
        out = np.full((5, 20), np.nan)
        before = x.copy()
        assert hoyer.project(x, 0.7, out=out) is out
        assert bits(out) == bits(expected)
        np.testing.assert_array_equal(x, before)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_x_itself_is_fine(self, dtype, rng):
        x = rng.normal(size=(5, 20)).astype(dtype)
        expected = hoyer.project(x, 0.7, l2="keep")
        assert hoyer.project(x, 0.7, l2="keep", out=x) is x
        assert bits(x) == bits(expected)
        y = rng.normal(size=(20, 5)).astype(dtype)
        expected = hoyer.project(y, 0.7, axis=0)
        alias = y[:]
        assert hoyer.project(y, 0.7, axis=0, out=alias) is alias
        assert bits(y) == bits(expected)

    @pytest.mark.parametrize(
        "layout", ["fortran", "reversed all", "every second entry", "unaligned"]
    )
    def test_any_layout(self, layout, rng):
        x = rng.normal(size=(5, 20))
        out = LAYOUTS[layout](np.zeros((5, 20)))
        assert hoyer.project(x, 0.7, out=out) is out
        assert bits(out) == bits(hoyer.project(x, 0.7))
        assert bits(hoyer.project(LAYOUTS[layout](x), 0.7, out=out)) == bits(hoyer.project(x, 0.7))

    def test_of_a_list(self):
        out = np.zeros(3)
        assert hoyer.project([1, 2, 3], 0.5, out=out) is out
        np.testing.assert_array_equal(out, hoyer.project([1, 2, 3], 0.5))


class TestEntriesAgree:
    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("nonnegative", [False, True])
    def test_project_in_place_and_solve(self, solver, nonnegative, rng):
        x = rng.normal(size=(11, 47))
        for given in (
            {"sparseness": 0.8},
            {"sparseness": 0.2, "l2": "keep"},
            {"sparseness": 0.8, "l2": "nearest"},
            {"l1": 3.0, "l2": 1.0, "only_increase": True},
        ):
            options = {**given, "nonnegative": nonnegative, "solver": solver}
            before = x.copy()
            value = hoyer.project(x, **options)
            np.testing.assert_array_equal(x, before)
            assert bits(hoyer.solve(x, **options).value) == bits(value)
            in_place = x.copy()
            assert hoyer.project_(in_place, **options) is in_place
            assert bits(in_place) == bits(value)
            np.testing.assert_array_equal(hoyer.project(x, **options, check_finite=False), value)

    def test_the_result_owns_its_memory(self, rng):
        x = rng.normal(size=20)
        assert not np.shares_memory(hoyer.project(x, 0.5), x)
        assert not np.shares_memory(hoyer.solve(x, 0.5).value, x)
        nearest = hoyer.solve(x, 0.0, l2="nearest", only_increase=True)
        assert not np.shares_memory(nearest.value, x)
        np.testing.assert_array_equal(nearest.value, x)

    def test_alone_or_in_a_batch(self, rng):
        for dtype, n in itertools.product((np.float32, np.float64), (3, 17, 300, 5000)):
            x = rng.normal(size=(9, n)).astype(dtype)
            batch = hoyer.project(x, 0.8)
            alone = np.stack([hoyer.project(row, 0.8) for row in x])
            scale = np.finfo(dtype).eps * np.abs(batch).max(-1, keepdims=True)
            assert (np.abs(batch - alone) <= 64 * scale).all()


class TestSparseness:
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_by_hand(self, dtype):
        assert hoyer.sparseness(np.array([0, 0, -7, 0], dtype)) == 1
        assert hoyer.sparseness(np.array([3, -3, 3, 3], dtype)) == 0
        # n = 4: (2 - 7/5) / (2 - 1)
        eps = np.finfo(dtype).eps
        assert abs(hoyer.sparseness(np.array([3, 0, -4, 0], dtype)) - dtype(0.6)) <= eps
        # n = 9: (3 - 7/5) / (3 - 1)
        x = np.array([3, 0, -4, 0, 0, 0, 0, 0, 0], dtype)
        assert abs(hoyer.sparseness(x) - dtype(0.8)) <= eps

    @pytest.mark.parametrize("n", [2, 3, 10, 257, 4096])
    def test_against_high_precision(self, n, rng):
        for x in (rng.random(n), rng.normal(size=n), rng.standard_cauchy(n), 1e8 + rng.random(n)):
            assert abs(hoyer.sparseness(x) - mp_sparseness(x)) <= 8 * EPS * (1 + n**-0.5)
            single = x.astype(np.float32)
            assert (
                abs(hoyer.sparseness(single) - mp_sparseness(single))
                <= 2 * np.finfo(np.float32).eps
            )

    def test_float16_is_computed_in_double_and_rounded(self, rng):
        x = rng.normal(size=(50, 64)).astype(np.float16)
        wide = hoyer.sparseness(x.astype(np.float64))
        np.testing.assert_array_equal(hoyer.sparseness(x), wide.astype(np.float16))
        large = np.full(100, 6e4, np.float16)
        large[0] = 0
        assert hoyer.sparseness(large) == np.float16(mp_sparseness(large))

    @pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e-160, 1e160, 1e300, 1e307])
    def test_scale_does_not_matter(self, scale, rng):
        x = rng.normal(size=30) * scale
        assert abs(hoyer.sparseness(x) - mp_sparseness(x)) <= 8 * EPS
        assert hoyer.sparseness(np.array([scale, 0, 0])) == 1

    def test_both_ends_of_the_range_in_one_vector(self):
        x = np.array([1e300, 1e-300, -1e300, 5e-324])
        assert abs(hoyer.sparseness(x) - mp_sparseness(x)) <= 8 * EPS

    def test_undefined_is_nan(self):
        x = np.array([[0, 0, 0], [1, np.nan, 2], [1, np.inf, 2], [-np.inf, 0, 0], [1, 2, 3]])
        np.testing.assert_array_equal(
            np.isnan(hoyer.sparseness(x)), [True, True, True, True, False]
        )
        assert np.isnan(hoyer.sparseness([-0.0, 0.0]))
        assert np.isnan(hoyer.sparseness([5.0]))
        assert np.isnan(hoyer.sparseness(np.ones((4, 1)))).all()
        assert np.isnan(hoyer.sparseness(np.ones((4, 1, 1)), axis=(1, 2))).all()

    def test_shapes(self, rng):
        x = rng.normal(size=(2, 3, 4))
        assert hoyer.sparseness(x).shape == (2, 3)
        assert hoyer.sparseness(x, axis=0).shape == (3, 4)
        assert hoyer.sparseness(x, axis=(0, 2)).shape == (3,)
        assert np.ndim(hoyer.sparseness(x, axis=None)) == 0
        assert np.ndim(hoyer.sparseness(x[0, 0])) == 0
        assert isinstance(float(hoyer.sparseness(x[0, 0])), float)

    def test_order_and_sign_do_not_matter(self, rng):
        x = rng.normal(size=100)
        expected = hoyer.sparseness(x)
        assert abs(hoyer.sparseness(-x[::-1]) - expected) <= 8 * EPS
        assert abs(hoyer.sparseness(np.sort(x)) - expected) <= 8 * EPS

    def test_the_result_is_always_an_admissible_target(self, rng):
        for n in range(2, 40):
            for x in (np.full(n, 0.1), np.eye(n)[n // 2] * 0.7, rng.random(n)):
                l1, l2 = hoyer.target_norms(n, hoyer.sparseness(x))
                assert l1 * (1 + 4 * EPS) >= l2
