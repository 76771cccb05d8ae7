"""`project_sparse`: the nonzero entries of `project`, bit for bit."""

import numpy as np
import pytest
from scipy import sparse

import hoyer
from hoyer.paper.problems import collection


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_the_collection(dtype, nonnegative):
    for problem in collection(dtype):
        options = {**problem.target, "nonnegative": nonnegative}
        found = hoyer.project_sparse(problem.x, **options)
        assert isinstance(found, sparse.coo_array)
        assert np.all(found.data != 0)
        dense = hoyer.project(problem.x, **options)
        np.testing.assert_array_equal(found.toarray(), dense, err_msg=problem.name)


@pytest.mark.parametrize("sparseness", [0.2, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [100, 5000, 100_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_vectors(n, sparseness, dtype):
    x = np.random.default_rng(n).normal(size=n).astype(dtype)
    np.testing.assert_array_equal(
        hoyer.project_sparse(x, sparseness).toarray(), hoyer.project(x, sparseness)
    )


def test_ties_in_different_blocks():
    x = np.zeros(2000)
    x[[100, 700, 1900]] = 3
    found = hoyer.project_sparse(x, l1=1.2, l2=1.0)
    np.testing.assert_array_equal(found.toarray(), hoyer.project(x, l1=1.2, l2=1.0))
    assert found.coords[0].tolist() == [100, 700, 1900]
    assert found.data[0] > found.data[1] == found.data[2]


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_matrices(axis):
    x = np.random.default_rng(1).normal(size=(30, 50))
    found = hoyer.project_sparse(x, 0.8, axis=axis, l2="keep")
    assert isinstance(found, sparse.csc_array if axis == 0 else sparse.csr_array)
    assert found.has_sorted_indices
    np.testing.assert_array_equal(found.toarray(), hoyer.project(x, 0.8, axis=axis, l2="keep"))


def test_other_layouts_and_empty_batches():
    x = np.random.default_rng(2).normal(size=(20, 60))
    expected = hoyer.project(x, 0.8)
    for same in (np.asfortranarray(x), x.astype(">f8"), x.tolist()):
        np.testing.assert_array_equal(hoyer.project_sparse(same, 0.8).toarray(), expected)
    assert hoyer.project_sparse(np.empty((0, 5)), 0.5).shape == (0, 5)


def test_errors():
    with pytest.raises(ValueError, match=r"x has shape \(2, 3, 4\) and axis=-1: sparse results"):
        hoyer.project_sparse(np.ones((2, 3, 4)), 0.5)
    with pytest.raises(ValueError, match="axis=None"):
        hoyer.project_sparse(np.ones((2, 3)), 0.5, axis=None)
    with pytest.raises(ValueError, match="x has nan at entry 1 of vector 1"):
        hoyer.project_sparse([[1.0, 2.0], [3.0, np.nan]], 0.5)
    with pytest.raises(ValueError, match="sparseness must lie in"):
        hoyer.project_sparse([1.0, 2.0], 1.5)
