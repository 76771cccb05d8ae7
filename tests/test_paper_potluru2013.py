"""The sorting algorithm against the high-precision reference."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import (
    error_in_eps,
    exact_projection,
    float_norms,
    norm_errors_in_eps,
    support_mismatch,
)

from hoyer.paper import potluru2013
from hoyer.paper.problems import collection


def test_the_collection():
    """Right to an eps wherever a unique shift exists, a clear error elsewhere."""
    right = 0
    for problem in collection():
        x = problem.x
        l1, l2 = float_norms(x.size, **problem.target)
        exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
        if exact.scale is None or np.count_nonzero(x == x.max()) == (l1 / l2) ** 2:
            with pytest.raises(ValueError, match=r"no (unique shift|target)"):
                potluru2013.project(x, l1, l2)
            continue
        found = potluru2013.project(x, l1, l2)
        assert error_in_eps(found.value, exact) <= 1, problem.name
        assert max(norm_errors_in_eps(found.value, exact)) <= 4, problem.name
        assert support_mismatch(found.value, exact) <= 1, problem.name
        right += 1
    assert right > 300


@given(
    st.lists(st.integers(-20, 20), min_size=2, max_size=20),
    st.floats(0.02, 0.98),
    st.floats(0.1, 10),
)
def test_integers_with_duplicates(entries, s, l2):
    x = np.array(entries, dtype=np.float64)
    l1 = (1 + (1 - s) * (math.sqrt(x.size) - 1)) * l2
    assume(np.count_nonzero(x == x.max()) < (l1 / l2) ** 2 - 1e-9)
    found = potluru2013.project(x, l1, l2)
    exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
    assert error_in_eps(found.value, exact) <= 2
    assert found.scale == pytest.approx(float(exact.scale), rel=1e-13)
    tolerance = 1e-13 * float(exact.scale) * l1
    assert found.shift == pytest.approx(float(exact.shift), rel=1e-13, abs=tolerance)
    assert abs(found.support_size - exact.support_size) == 0 or (
        support_mismatch(found.value, exact) <= 1
    )


def test_order_of_the_entries_does_not_matter():
    rng = np.random.default_rng(5)
    x = rng.normal(size=50)
    order = rng.permutation(50)
    value = potluru2013.project(x, 4.0, 1.0).value
    np.testing.assert_array_equal(potluru2013.project(x[order], 4.0, 1.0).value, value[order])


def test_does_not_change_its_input():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    potluru2013.project(x, 1.5, 1.0)
    assert x.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("m", [4, 5])
def test_ties(m):
    x = np.where(np.arange(9) < m, 2.0, 1.0)
    with pytest.raises(ValueError, match=rf"{m} entries of x equal the maximum 2.0.*= 4 is not"):
        potluru2013.project(x, 2.0, 1.0)


def test_not_finite():
    with pytest.raises(ValueError, match=r"x\[1\] is nan"):
        potluru2013.project([1.0, np.nan, 2.0], 1.5, 1.0)
