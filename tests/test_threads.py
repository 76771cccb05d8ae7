"""The threads that arrays have: the same bits for any number, errors, forks and many callers."""

import os
import threading

import numpy as np
import pytest

import hoyer


@pytest.fixture
def threads():
    """Set the number of threads for one test."""
    before = hoyer.get_num_threads()
    yield hoyer.set_num_threads
    hoyer.set_num_threads(before)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(3000, 200))


CALLS = {
    "project": lambda x: hoyer.project(x, 0.8),
    "strided": lambda x: hoyer.project(x.T, 0.8, axis=0),
    "keep": lambda x: hoyer.project(x, 0.8, l2="keep", only_increase=True),
    "float16": lambda x: hoyer.project(x.astype(np.float16), 0.8),
    "jvp": lambda x: hoyer.solve(x, 0.8).jvp(x),
    "evaluations": lambda x: hoyer.solve(x, 0.8).evaluations,
    "sparseness": hoyer.sparseness,
    "long": lambda x: hoyer.project(x, 0.8, axis=None),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_same_bits_for_any_number(call, rows, threads):
    threads(1)
    alone = CALLS[call](rows)
    for count in (2, 3, 8):
        threads(count)
        np.testing.assert_array_equal(CALLS[call](rows), alone)


@pytest.mark.parametrize("sparseness", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_long_vector(dtype, sparseness, threads):
    x = np.random.default_rng(1).normal(size=(1 << 20) + 12345).astype(dtype)
    threads(1)
    alone = hoyer.solve(x, sparseness)
    assert alone.evaluations == 1
    for count in (2, 5):
        threads(count)
        found = hoyer.solve(x, sparseness)
        np.testing.assert_array_equal(found.value, alone.value)
        assert found.shift == alone.shift
    x[-1] = np.inf
    with pytest.raises(ValueError, match="x has inf"):
        hoyer.project(x, sparseness)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_first_bad_vector_is_named(count, rows, threads):
    threads(count)
    x = rows.copy()
    x[[2999, 1234, 777], [5, 6, 7]] = np.nan
    with pytest.raises(ValueError, match="entry 7 of vector 777"):
        hoyer.project(x, 0.8)
    before = x.copy()
    with pytest.raises(ValueError, match="entry 7 of vector 777"):
        hoyer.project_(x, 0.8)
    np.testing.assert_array_equal(x, before)


def test_many_callers_at_once(rows, threads):
    threads(3)
    expected = hoyer.project(rows, 0.8)
    failures = []

    def call():
        results = [hoyer.project(rows, 0.8) for _ in range(5)]
        failures.extend(r for r in results if not np.array_equal(r, expected))

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_a_forked_child_has_a_pool_of_its_own(rows, threads):
    threads(2)
    expected = hoyer.project(rows, 0.8)  # the parent's pool is running now
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(hoyer.project(rows, 0.8), expected) for _ in range(3))
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(hoyer.project(rows, 0.8), expected)


def test_numbers_that_make_no_sense(threads):
    with pytest.raises(ValueError, match="count=0: the number of threads must be at least 1"):
        threads(0)
    with pytest.raises(TypeError, match=r"count=2\.5: the number of threads must be an int"):
        threads(2.5)
