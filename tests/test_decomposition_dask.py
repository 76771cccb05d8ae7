"""Estimators on Dask arrays: block by block, never the whole, the same as in memory."""

import weakref

import numpy as np
import pytest

da = pytest.importorskip("dask.array")
pytest.importorskip("sklearn")
import dask  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

import hoyer  # noqa: E402
from hoyer.decomposition import SparseDictionaryLearning, SparseNMF  # noqa: E402
from hoyer.decomposition.dask import rows_of  # noqa: E402
from hoyer.preprocessing import SparsenessProjector  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*stopped after max_iter")
CHUNKS = ((100, 0, 70, 130), (20, 20))
PROBLEMS = {
    "components": {"components_sparseness": 0.5},
    "codes": {"codes_sparseness": 0.5},
    "activations": {"activations_sparseness": 0.3},
    "shares": {"codes_l1": 1.0},
    "free": {"init": "random"},
    "hoyer": {"solver": "nmfsc", "components_sparseness": 0.4},
}


@pytest.fixture
def data(rng):
    return rng.random((300, 5)) @ rng.random((5, 40)) + 0.01 * rng.random((300, 40))


@pytest.fixture
def blocks(data, monkeypatch):
    """The same as a Dask array, which nobody makes a NumPy array of."""
    array = da.from_array(data, chunks=CHUNKS)

    def refuse(self, *arguments, **options):
        raise AssertionError("the whole was loaded")

    monkeypatch.setattr(da.Array, "__array__", refuse)
    return array


@pytest.mark.parametrize("case", PROBLEMS)
@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_nmf_is_the_same_algorithm(case, scale, data, blocks):
    options = {"random_state": 0, "max_iter": 15, **PROBLEMS[case]}
    expected, found = SparseNMF(5, **options), SparseNMF(5, **options)
    W = expected.fit_transform(data * scale)
    codes = found.fit_transform(blocks * scale)
    assert isinstance(codes, da.Array)
    assert codes.chunks == ((100, 0, 70, 130), (5,))
    assert found.n_iter_ == expected.n_iter_
    np.testing.assert_allclose(
        found.components_, expected.components_, rtol=0, atol=1e-6 * expected.components_.max()
    )
    np.testing.assert_allclose(codes.compute(), W, rtol=0, atol=1e-5 * W.max())
    np.testing.assert_allclose(found.reconstruction_err_, expected.reconstruction_err_, rtol=1e-6)


def test_transform_is_lazy_and_keeps_what_was_learned(data, blocks):
    model = SparseNMF(5, codes_sparseness=0.6, random_state=0, max_iter=10).fit(blocks)
    expected = model.transform(data)
    codes = model.transform(blocks)
    assert isinstance(codes, da.Array)
    assert codes.chunks == ((100, 0, 70, 130), (5,))
    model.fit(data[::-1] ** 2)
    np.testing.assert_allclose(codes.compute(), expected, rtol=0, atol=1e-6 * expected.max())


def test_partial_fit_takes_blocks_as_batches(data, blocks):
    whole, parts = (SparseNMF(4, components_sparseness=0.5, random_state=0) for _ in range(2))
    whole.partial_fit(blocks)
    for start, end in ((0, 100), (100, 170), (170, 300)):
        parts.partial_fit(data[start:end])
    assert whole.n_steps_ == 3
    np.testing.assert_array_equal(whole.components_, parts.components_)


def test_dictionary_learning(data, blocks):
    centred = blocks - blocks.mean(axis=0)
    options = {"codes_sparseness": 0.7, "max_iter": 15, "random_state": 0, "batch_size": 64}
    found = SparseDictionaryLearning(12, **options).fit(centred)
    expected = SparseDictionaryLearning(12, **options).fit(data - data.mean(axis=0))
    assert found.objective_[-1] < 1.2 * expected.objective_[-1]
    assert found.n_steps_ == found.n_iter_ * (2 + 2 + 3)
    codes = found.transform(centred).compute()
    np.testing.assert_allclose(hoyer.sparseness(codes), 0.7, rtol=1e-6)
    again = SparseDictionaryLearning(12, **options).fit(centred)
    np.testing.assert_array_equal(again.components_, found.components_)


def test_one_block_in_memory_at_a_time():
    """Blocks are read one after the other while batches are learned from."""
    alive, most, reads = set(), 0, 0

    def read(block_id=None):
        nonlocal most, reads
        block = np.random.default_rng(block_id).random((50, 8))
        reads += 1
        alive.add(reads)
        weakref.finalize(block, alive.discard, reads)
        most = max(most, len(alive))
        return block

    X = da.map_blocks(read, chunks=((50,) * 6, (8,)), dtype=float, meta=np.empty((0, 0)))
    with dask.config.set(scheduler="sync"):
        SparseNMF(3, random_state=0).partial_fit(X)
    assert reads == 6
    # The one before goes when the next is there.
    assert most <= 2
    assert not alive


def test_blocks_stay_small():
    """Rows are made whole without larger blocks than Dask makes by itself."""
    X = da.zeros((10**5, 10**4), chunks=(5 * 10**4, 100))
    rows = rows_of(X)
    assert rows.chunks[1] == (10**4,)
    assert max(rows.chunks[0]) * 10**4 * 8 <= 128 * 2**20
    assert rows_of(da.zeros((300, 40), chunks=CHUNKS)).chunks == (CHUNKS[0], (40,))


def test_codes_of_blocks_that_were_divided(data, blocks):
    """They have the blocks of the samples, however these were made whole."""
    model = SparseNMF(5, random_state=0, max_iter=10).fit(blocks)
    with dask.config.set({"array.chunk-size": "4kiB"}):
        codes = model.transform(blocks)
    assert codes.chunks == ((100, 0, 70, 130), (5,))
    np.testing.assert_allclose(codes.compute(), model.transform(data), rtol=0, atol=1e-6)


def test_samples_of_codes_are_lazy(data, blocks):
    model = SparseNMF(5, random_state=0, max_iter=10).fit(blocks)
    codes = model.transform(blocks)
    found = model.inverse_transform(codes)
    assert isinstance(found, da.Array)
    assert found.chunks == ((100, 0, 70, 130), (40,))
    expected = model.inverse_transform(model.transform(data))
    np.testing.assert_allclose(found.compute(), expected, rtol=1e-6, atol=1e-9)
    assert model.inverse_transform(codes.astype(np.float32)).dtype == np.float64
    with pytest.raises(ValueError, match="X has 4 columns, but SparseNMF has 5 components"):
        model.inverse_transform(codes[:, :4])


def test_projector(data, blocks):
    step = SparsenessProjector(0.6, l2="keep").fit(blocks)
    assert step.n_features_in_ == 40
    found = step.transform(blocks)
    assert found.chunks == blocks.chunks
    np.testing.assert_allclose(found.compute(), step.transform(data), rtol=0, atol=1e-14)
    assert step.transform(blocks.astype(np.float32)).dtype == np.float32
    assert step.transform((100 * blocks).astype(int)).dtype == np.float64


def test_what_is_refused(blocks):
    model = SparseNMF(3, max_iter=5)
    with pytest.raises(ValueError, match=r"NaN or infinity in the block X\[100:170\]"):
        model.fit(da.where(da.arange(300, chunks=300)[:, None] == 110, np.nan, blocks))
    with pytest.raises(ValueError, match=r"NaN.*\(in the block X\[100:170\]\)"):
        model.partial_fit(da.where(da.arange(300, chunks=300)[:, None] == 110, np.nan, blocks))
    assert not hasattr(model, "components_")
    for step in (model.fit, model.partial_fit, model.fit_transform):
        with pytest.raises(TypeError, match=r"X is of type dask\.delayed.*from_delayed\(X, shape"):
            step(dask.delayed(blocks))
    with pytest.raises(ValueError, match="Negative values in data passed to SparseNMF"):
        model.fit(-blocks)
    with pytest.raises(ValueError, match=r"X\.compute_chunk_sizes\(\)"):
        model.fit(blocks[blocks[:, 0] > 0])
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.fit(blocks[0])
    with pytest.raises(NotFittedError):
        model.transform(blocks)
    model.fit(blocks)
    with pytest.raises(ValueError, match="features"):
        model.transform(blocks[:, :20])
    with pytest.raises(ValueError, match="Expected 2D array"):
        SparsenessProjector(0.5).fit(blocks[0])
    with pytest.raises(ValueError, match="sparseness must lie in"):
        SparsenessProjector(1.5).fit(blocks)
