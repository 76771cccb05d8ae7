"""hoyer.target_norms: the two norms that a target names, in every form a target can take."""

import math

import mpmath
import numpy as np
import pytest

import hoyer

EPS = np.finfo(np.float64).eps


def exact_ratio(n, sparseness):
    """l1/l2 of a vector with n entries and this sparseness, to 50 digits (Hoyer's definition)."""
    with mpmath.workdps(50):
        root = mpmath.sqrt(n)
        return root - mpmath.mpf(sparseness) * (root - 1)


@pytest.mark.parametrize(
    ("n", "given", "norms"),
    [
        (4, {"sparseness": 0.5}, (1.5, 1.0)),
        (100, {"sparseness": 0.5}, (5.5, 1.0)),
        (100, {"sparseness": 0.5, "l2": 2.0}, (11.0, 2.0)),
        (100, {"sparseness": 0.5, "l1": 11.0}, (11.0, 2.0)),
        (9, {"sparseness": 0.0}, (3.0, 1.0)),
        (9, {"sparseness": 1.0}, (1.0, 1.0)),
        (9, {"sparseness": 0.0, "l1": 6.0}, (6.0, 2.0)),
        (9, {"sparseness": 1.0, "l1": 6.0}, (6.0, 6.0)),
        (9, {"l1": 5.0, "l2": 2.0}, (5.0, 2.0)),
        (9, {"l1": 2.0, "l2": 2.0}, (2.0, 2.0)),
        (9, {"l1": 6.0, "l2": 2.0}, (6.0, 2.0)),
        (1, {"l1": 3.0, "l2": 3.0}, (3.0, 3.0)),
        (2, {"sparseness": 1.0}, (1.0, 1.0)),
    ],
)
def test_norms_that_are_exact_in_floating_point(n, given, norms):
    assert hoyer.target_norms(n, **given) == norms


@pytest.mark.parametrize("n", [2, 3, 10, 1000, 2**20, 10**12])
@pytest.mark.parametrize(
    "sparseness",
    [1e-300, 1e-16, 1e-12, 0.1, 0.5, 2 / 3, 0.9, 1 - 1e-12, 1 - EPS, 1 - EPS / 2],
)
def test_norms_are_right_to_the_last_digits(n, sparseness):
    ratio = exact_ratio(n, sparseness)
    l1, l2 = hoyer.target_norms(n, sparseness)
    assert l2 == 1.0
    assert abs(l1 - ratio) <= EPS * ratio
    l1, l2 = hoyer.target_norms(n, sparseness, l2=0.3)
    assert l2 == 0.3
    assert abs(l1 - ratio * mpmath.mpf(0.3)) <= 2 * EPS * l1
    l1, l2 = hoyer.target_norms(n, sparseness, l1=0.3)
    assert l1 == 0.3
    assert abs(l2 - mpmath.mpf(0.3) / ratio) <= 2 * EPS * l2


def test_sparseness_may_be_positional_and_the_norms_may_not():
    assert hoyer.target_norms(4, 0.5) == hoyer.target_norms(4, sparseness=0.5)
    with pytest.raises(TypeError):
        hoyer.target_norms(4, 0.5, 1.0)


def test_scalars_give_floats():
    for given in ({"sparseness": 0.5}, {"sparseness": 0, "l2": 1}, {"l1": 3, "l2": 2}):
        l1, l2 = hoyer.target_norms(4, **given)
        assert isinstance(l1, float)
        assert isinstance(l2, float)


def test_arrays_give_arrays_one_entry_per_vector():
    l1, l2 = hoyer.target_norms(4, [0.0, 0.5, 1.0])
    assert isinstance(l1, np.ndarray)
    assert isinstance(l2, np.ndarray)
    np.testing.assert_array_equal(l1, [2.0, 1.5, 1.0])
    np.testing.assert_array_equal(l2, [1.0, 1.0, 1.0])

    l1, l2 = hoyer.target_norms(4, np.array([[0.0], [0.5]]), l2=np.array([1.0, 2.0]))
    np.testing.assert_array_equal(l1, [[2.0, 4.0], [1.5, 3.0]])
    np.testing.assert_array_equal(np.broadcast_to(l2, (2, 2)), [[1.0, 2.0], [1.0, 2.0]])

    l1, l2 = hoyer.target_norms(4, l1=np.array([1.0, 2.0]), l2=1.0)
    np.testing.assert_array_equal(l1, [1.0, 2.0])
    np.testing.assert_array_equal(np.broadcast_to(l2, 2), [1.0, 1.0])


@pytest.mark.parametrize("beyond", [EPS, 2 * EPS, 4 * EPS])
def test_up_to_four_eps_outside_is_clamped(beyond):
    assert hoyer.target_norms(9, 1 + beyond) == (1.0, 1.0)
    assert hoyer.target_norms(9, -beyond) == (3.0, 1.0)
    value = hoyer.project([3.0, 1.0, 2.0, 0.0], 1 + beyond)
    np.testing.assert_array_equal(value, [1.0, 0.0, 0.0, 0.0])
    value = hoyer.project([3.0, 1.0, 2.0, 0.0], -beyond)
    np.testing.assert_allclose(value, 0.5, rtol=4 * EPS)
    value = hoyer.project([3.0, 1.0, 2.0, 0.0], l1=1 - beyond / 2, l2=1.0)
    assert np.count_nonzero(value) == 1
    assert value[0] == pytest.approx(1.0, rel=8 * EPS)
    value = hoyer.project([3.0, 1.0, 2.0, 0.0], l1=2 + 2 * beyond, l2=1.0)
    np.testing.assert_allclose(value, 0.5, rtol=8 * EPS)


@pytest.mark.parametrize("n", [2, 3, 7, 10, 1000])
def test_the_float_nearest_to_the_largest_ratio_is_admissible(n):
    value = hoyer.project(np.arange(n), l1=math.sqrt(n), l2=1.0)
    np.testing.assert_allclose(value, 1 / math.sqrt(n), rtol=8 * math.sqrt(n * EPS))
    np.testing.assert_allclose(np.abs(value).sum(), math.sqrt(n), rtol=32 * EPS)


@pytest.mark.parametrize("sparseness", [1 + 1e-12, 1.5, -1e-12, -1.0, math.inf, -math.inf])
def test_sparseness_out_of_range(sparseness):
    with pytest.raises(ValueError, match=r"sparseness.*\b0\b.*\b1\b") as caught:
        hoyer.target_norms(9, sparseness)
    assert repr(sparseness).removesuffix(".0") in str(caught.value)


@pytest.mark.parametrize(("l1", "l2"), [(0.5, 1.0), (3.5, 1.0), (1 - 1e-12, 1.0), (3 + 1e-11, 1.0)])
def test_norms_out_of_range_name_the_admissible_interval(l1, l2):
    with pytest.raises(ValueError, match=r"l1") as caught:
        hoyer.target_norms(9, l1=l1, l2=l2)
    text = str(caught.value)
    assert repr(l1) in text
    assert "9" in text  # which n
    assert "1" in text.replace(repr(l1), "").replace("l1", "").replace("l2", "")
    assert "3" in text.replace(repr(l1), "")  # the upper end, sqrt(9) * l2


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "form",
    [
        lambda bad: {"sparseness": 0.5, "l1": bad},
        lambda bad: {"sparseness": 0.5, "l2": bad},
        lambda bad: {"l1": bad, "l2": 1.0},
        lambda bad: {"l1": 1.5, "l2": bad},
    ],
)
def test_norms_are_positive_and_finite(bad, form):
    with pytest.raises(ValueError, match=r"l[12]"):
        hoyer.target_norms(9, **form(bad))
    with pytest.raises(ValueError, match=r"l[12]"):
        hoyer.project(np.arange(9.0), **form(bad))


def test_sparseness_nan():
    with pytest.raises(ValueError, match=r"sparseness.*nan"):
        hoyer.target_norms(9, math.nan)
    with pytest.raises(ValueError, match=r"sparseness.*nan"):
        hoyer.project(np.arange(9.0), math.nan)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"l2": 1.0},
        {"sparseness": 0.5, "l1": 1.5, "l2": 1.0},
        {"l2": "keep"},
        {"l2": "nearest"},
        {"l1": 1.5, "l2": "keep"},
        {"l1": 1.5, "l2": "nearest"},
        {"sparseness": 0.5, "l1": 1.5, "l2": "keep"},
        {"sparseness": 0.5, "l1": 1.5, "l2": "nearest"},
        {"sparseness": 0.5, "l2": "kept"},
    ],
)
@pytest.mark.parametrize("function", [hoyer.project, hoyer.project_, hoyer.solve])
def test_a_target_is_sparseness_with_at_most_one_norm_or_l1_or_both_norms(function, given):
    x = np.arange(9.0)
    with pytest.raises(ValueError, match=r"sparseness|l1|l2"):
        function(x, **given)
    np.testing.assert_array_equal(x, np.arange(9.0))


def test_an_unknown_word_for_l2_is_repeated_with_the_known_ones():
    with pytest.raises(ValueError, match="kept") as caught:
        hoyer.project(np.arange(9.0), 0.5, l2="kept")
    assert "keep" in str(caught.value).replace("kept", "")
    assert "nearest" in str(caught.value)


@pytest.mark.parametrize("word", ["keep", "nearest"])
def test_words_are_for_l2_of_a_projection_only(word):
    with pytest.raises((ValueError, TypeError), match="l1"):
        hoyer.project(np.arange(9.0), 0.5, l1=word)
    with pytest.raises((ValueError, TypeError), match="l2"):
        hoyer.target_norms(9, 0.5, l2=word)  # without a vector there is no norm to keep


@pytest.mark.parametrize("n", [0, -1, -9])
def test_n_below_one(n):
    with pytest.raises(ValueError, match=str(n)):
        hoyer.target_norms(n, 0.5)
    with pytest.raises(ValueError, match=str(n)):
        hoyer.target_norms(n, l1=1.0, l2=1.0)


def test_sparseness_is_not_defined_for_length_one():
    with pytest.raises(
        ValueError, match="length 1 have no sparseness; give equal l1 and l2 instead"
    ):
        hoyer.target_norms(1, 0.5)
    with pytest.raises(ValueError, match="l1"):
        hoyer.target_norms(1, l1=2.0, l2=1.0)


def test_one_bad_entry_among_many_targets_is_named():
    targets = np.full(5, 0.5)
    targets[3] = 1.25
    with pytest.raises(ValueError, match=r"1\.25"):
        hoyer.target_norms(9, targets)
    with pytest.raises(ValueError, match=r"1\.25"):
        hoyer.project(np.ones((5, 9)), targets)


def test_a_percentage():
    with pytest.raises(ValueError, match=r"got 90\.0 \(did you mean 0\.9\?\)$"):
        hoyer.project([1.0, 2.0, 3.0], 90)
    with pytest.raises(ValueError, match=r"got 12\.5 at index 1 \(did you mean 0\.125\?\)$"):
        hoyer.target_norms(9, [0.5, 12.5])
    for other in (1.2, 1.5, 101.0, -5.0):
        with pytest.raises(ValueError, match=rf"got {other}$"):
            hoyer.project([1.0, 2.0, 3.0], other)


@pytest.mark.parametrize("value", [True, False, np.True_, np.array(True), [True, False]])
@pytest.mark.parametrize("name", ["sparseness", "l1", "l2"])
def test_true_and_false_are_no_targets(name, value):
    given = {"sparseness": 0.5} | {name: value}
    text = rf"^{name}=.*(True|False).*: {name} must be a real number.* booleans are not accepted"
    with pytest.raises(TypeError, match=text):
        hoyer.target_norms(9, **given)
    with pytest.raises(TypeError, match=text):
        hoyer.project(np.ones((2, 9)), **given)
