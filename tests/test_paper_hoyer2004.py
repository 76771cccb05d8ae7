"""The alternating projection: same point, at most n rounds, and an error where it is lost."""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import error_in_eps, exact_projection, float_norms

from hoyer.paper import hoyer2004, potluru2013
from hoyer.paper.problems import KINDS, collection, random_vector


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 5, 64, 700])
@pytest.mark.parametrize("s", [0.1, 0.5, 0.9])
def test_finds_the_projection(kind, n, s):
    x = random_vector(kind, n, np.random.default_rng([n, int(10 * s)]))
    l1, l2 = 3 * (1 + (1 - s) * (math.sqrt(n) - 1)), 3.0
    found = hoyer2004.project(x, l1, l2)
    exact = exact_projection(x, l1=l1, l2=l2, nonnegative=True)
    assert error_in_eps(found.value, exact) <= 32
    assert 1 <= found.iterations <= n


def test_the_collection():
    """Right to 1e-9, or an error that says why: nothing else, and no warning."""
    right, reasons = 0, []
    for problem in collection():
        l1, l2 = float_norms(problem.x.size, **problem.target)
        try:
            value = hoyer2004.project(problem.x, l1, l2).value
        except (ValueError, FloatingPointError) as error:
            reasons.append(str(error))
            continue
        exact = exact_projection(problem.x, l1=l1, l2=l2, nonnegative=True)
        assert error_in_eps(value, exact) * 2**-52 <= 2e-9, problem.name
        right += 1
    assert right > 280
    known = re.compile("no unique shift|are no target|spoils the projection")
    assert all(known.search(reason) for reason in reasons)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=30), st.floats(0.05, 0.95))
def test_agrees_with_sorting(entries, s):
    x = np.array(entries)
    l1 = 1 + (1 - s) * (math.sqrt(x.size) - 1)
    assume(np.count_nonzero(x == x.max()) < l1**2 - 1e-6)
    try:
        value = hoyer2004.project(x, l1, 1.0).value
    except FloatingPointError:
        # Entries that agree in all but their last digits.
        largest = np.sort(x)[-int(l1**2) - 1 :]
        assert np.ptp(largest) < 1e-5 * np.ptp(x)
        return
    np.testing.assert_allclose(value, potluru2013.project(x, l1, 1.0).value, rtol=0, atol=2e-9)


def test_rounds_by_hand():
    # Round one leaves 1 negative, round two keeps the three others.
    assert hoyer2004.project([1.0, 2.0, 3.0, 4.0], 1.5, 1.0).iterations == 2
    # Decreasing sparseness: nothing becomes negative.
    assert hoyer2004.project([3.0, 1.0, 0.0, 0.0], math.sqrt(3.9), 1.0).iterations == 1


def test_a_vector_in_the_target_set_stays():
    found = hoyer2004.project([0.6, 0.0, 0.8, 0.0], 1.4, 1.0)
    np.testing.assert_allclose(found.value, [0.6, 0, 0.8, 0], rtol=0, atol=1e-15)


def test_too_few_rounds():
    with pytest.raises(RuntimeError, match="still negative after max_iterations = 1 rounds; 4 alw"):
        hoyer2004.project([1.0, 2.0, 3.0, 4.0], 1.5, 1.0, max_iterations=1)


@pytest.mark.parametrize("entry", [0.0, -3.0, 1e300])
def test_constant_vectors(entry):
    with pytest.raises(ValueError, match="5 entries of x equal the maximum"):
        hoyer2004.project(np.full(5, entry), 1.5, 1.0)


@pytest.mark.parametrize(("l1", "l2"), [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0), (1.5, 0.0)])
def test_norms_out_of_range(l1, l2):
    with pytest.raises(ValueError, match="are no target for a vector of length 4"):
        hoyer2004.project([1.0, 2.0, 3.0, 4.0], l1, l2)
