"""Dask arrays: lazy, chunk by chunk, the same bits however a vector is divided."""

import weakref

import numpy as np
import pytest
from array_forms import FORMS, agree, vectors
from engines import EPS
from mpmath import mp, mpf

import hoyer
from hoyer.engines import parts

da = pytest.importorskip("dask.array")
import cloudpickle  # noqa: E402 - which comes with Dask
import dask  # noqa: E402
from dask.delayed import delayed  # noqa: E402

from hoyer.families.dask import reading, split  # noqa: E402

SYNC = {"scheduler": "sync"}


def cut(rng, n, pieces):
    """Return sizes of so many chunks, some of which may be empty."""
    ends = np.sort(rng.integers(0, n + 1, pieces - 1))
    return tuple(int(size) for size in np.diff([0, *ends, n]))


@pytest.fixture
def searching(monkeypatch):
    """Divided vectors are never brought together, however short they are."""
    monkeypatch.setattr(parts, "MOST_GATHERED", 0)


def unread(shape, chunks, dtype="float64"):
    """Return an array that must not be computed."""

    def read(block_id=None):
        raise AssertionError(f"chunk {block_id} was read")

    return da.map_blocks(
        read,
        chunks=da.core.normalize_chunks(chunks, shape),
        dtype=dtype,
        meta=np.empty((0,) * len(shape), dtype),
    )


def counted(x, chunks, log):
    """Return an array whose chunks say when they are read."""
    blocks = da.core.normalize_chunks(chunks, x.shape)

    def read(block_info=None):
        place = block_info[None]["array-location"]
        log.append(tuple(place))
        return x[tuple(slice(*one) for one in place)]

    return da.map_blocks(read, chunks=blocks, dtype=x.dtype, meta=x[:0])


class Alive:
    """Counts the chunks that are alive at the same time."""

    def __init__(self):
        self.now, self.most, self.reads = 0, 0, 0

    def read(self, number, size):
        """Return a chunk, and count it as long as somebody has it."""
        chunk = np.random.default_rng(number).normal(size=size)
        weakref.finalize(chunk, self._gone)
        self.now += 1
        self.reads += 1
        self.most = max(self.most, self.now)
        return chunk

    def _gone(self):
        self.now -= 1

    def piece(self, number, size):
        """Return an array of one such chunk."""
        return da.from_delayed(delayed(self.read, pure=True)(number, size), (size,), float)

    def __dask_tokenize__(self):
        return "alive", id(self)


# ---- lazy ----

LAZY = {
    "local": ((40, 8), (10, 8), -1),
    "together": ((40, 8), (10, 4), -1),
    "columns": ((40, 8), (10, 8), 0),
    "searched": ((1 << 17,), (1 << 15,), -1),
    "searched, rows": ((2, 1 << 17), (1, 1 << 15), -1),
    "searched, all": ((4, 1 << 15), (2, 1 << 14), None),
}


@pytest.mark.parametrize("case", LAZY)
def test_nothing_is_computed_before_it_is_asked_for(case):
    shape, chunks, axis = LAZY[case]
    x = unread(shape, chunks)
    assert hoyer.project(x, 0.5, axis=axis).chunks == x.chunks
    batch = x.sum(axis=axis).shape
    found = hoyer.solve(x, 0.5, axis=axis, where=x > 0)
    assert found.value.shape == shape
    assert found.shift.shape == found.support_size.shape == batch
    assert hoyer.sparseness(x, axis=axis).shape == batch
    targets = unread(batch, batch or ())
    assert hoyer.project(x, targets, axis=axis).chunks == x.chunks
    assert found.vjp(x).chunks == found.jvp(x).chunks == x.chunks
    found.target_gradient(), found.sparseness_gradient()


@pytest.mark.parametrize("case", LAZY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_type_meta_and_names(case, dtype):
    """What Dask knows of a result is right, and the same call has the same name."""
    shape, chunks, axis = LAZY[case]
    x = da.random.default_rng(0).normal(size=shape, chunks=chunks).astype(dtype)
    first, second = (hoyer.project(x, 0.5, axis=axis) for _ in range(2))
    assert first.name == second.name
    assert sorted(map(str, first.dask)) == sorted(map(str, second.dask))
    assert hoyer.project(x, 0.6, axis=axis).name != first.name
    assert first.dtype == dtype
    assert type(first._meta) is np.ndarray
    value = first.compute()
    assert value.dtype == dtype
    assert value.shape == shape
    found = hoyer.solve(x, 0.5, axis=axis)
    for name in ("value", "shift", "support_size", "unique", "active_code"):
        array = getattr(found, name)
        assert np.asarray(array.compute()).dtype == array.dtype, name
    measured = hoyer.sparseness(x, axis=axis)
    assert np.asarray(measured.compute()).dtype == measured.dtype == dtype


def test_graphs_are_small():
    """Whole vectors: a task for each chunk. Divided ones: three passes, and a little more."""
    x = unread((512, 8), (1, 8))
    assert len(dict(hoyer.project(x, 0.5).dask)) - len(dict(x.dask)) == 512
    assert len(hoyer.project(x, 0.5).dask.layers) == len(x.dask.layers) + 1
    x = unread((1 << 20,), (1 << 11,))
    passes = hoyer.project(x, 0.5)
    assert len(cloudpickle.dumps(passes.dask)) < 500 * 512
    graph = dict(dask.optimize(passes)[0].dask)
    assert len(graph) < 7 * 512


def test_few_passes():
    """A vector on disk is read three times: twice to find alpha, once to write."""
    log = []
    x = np.random.default_rng(1).normal(size=1 << 18).astype(np.float32)
    found = hoyer.project(counted(x, 1 << 15, log), 0.9).compute(**SYNC)
    assert len(log) == 3 * 8
    np.testing.assert_array_equal(found, hoyer.project(x, 0.9))
    log.clear()
    hoyer.sparseness(counted(x, 1 << 15, log)).compute(**SYNC)
    assert len(log) == 8
    log.clear()
    rows = counted(x.reshape(512, -1), (64, 512), log)
    hoyer.project(rows, 0.9).compute(**SYNC)
    assert len(log) == 8


def test_what_is_read_again():
    """What is in memory is kept; what a few tasks make is made again."""
    x = da.random.default_rng(0).normal(size=100, chunks=10)
    assert reading.can_read_again(x)
    assert reading.can_read_again(abs(x) + 1)
    assert not reading.can_read_again(x / x.sum())
    assert not reading.can_read_again(da.from_array(np.zeros(1 << 18), chunks=1 << 16))
    assert not reading.can_read_again(da.zeros(1 << 18, chunks=1 << 16).persist())
    # By the data of all chunks together, and the tasks of each.
    assert not reading.can_read_again(da.from_array(np.zeros(1 << 18), chunks=1 << 10))
    assert not reading.can_read_again(da.concatenate([x, x / x.sum()]))
    assert reading.can_read_again(da.concatenate([x[:10] + i for i in range(40)]))
    assert reading.can_read_again(da.random.RandomState(0).normal(size=1 << 18, chunks=1 << 15))


PIECES, SIZE = 24, 1 << 12


@pytest.mark.parametrize("mask", ["none", "in memory", "other chunks", "broadcast"])
def test_few_chunks_are_alive(mask, rng, searching):
    """However many pieces are joined, and whatever the mask is made of."""
    alive = Alive()
    x = da.concatenate([alive.piece(i, SIZE) for i in range(PIECES)])
    kept = rng.random(x.shape) < 0.9
    where = {
        "none": None,
        "in memory": kept,
        "other chunks": da.from_array(kept, chunks=PIECES * SIZE // 5),
        "broadcast": np.array([True]),
    }[mask]
    expected = np.concatenate([np.random.default_rng(i).normal(size=SIZE) for i in range(PIECES)])
    sums = hoyer.project(x, 0.9, where=where).sum()
    np.testing.assert_allclose(
        sums.compute(**SYNC), hoyer.project(expected, 0.9, where=mask_of(where)).sum(), rtol=1e-9
    )
    assert alive.reads >= 3 * PIECES
    assert alive.most <= 3
    assert alive.now == 0


def mask_of(where):
    return where.compute() if isinstance(where, da.Array) else where


def test_data_is_in_the_graph_once(searching):
    """Small chunks of an array in memory are kept, and not written into every pass."""
    x = np.random.default_rng(0).normal(size=1 << 17)
    passes = hoyer.project(da.from_array(x, chunks=1 << 12), 0.5)
    assert len(cloudpickle.dumps(passes.dask)) < 1.5 * x.nbytes


def test_chunks_are_sent_requests_alone(searching, monkeypatch):
    """What searches have heard, about 100 kB per vector, stays with them."""
    sizes = []
    for name in ("look_further", "look_rarely"):
        look = getattr(split.parts, name)

        def measured(*arguments, look=look, **options):
            arrays = [one for one in arguments if getattr(one, "dtype", None) == np.dtype(object)]
            sizes.append(sum(len(cloudpickle.dumps(array)) for array in arrays))
            return look(*arguments, **options)

        monkeypatch.setattr(split.parts, name, measured)
    x = np.random.default_rng(3).normal(size=40_000)
    hoyer.project(da.from_array(x, chunks=5_000), 0.9).compute(**SYNC)
    assert sizes
    assert max(sizes) < 2000


@pytest.mark.parametrize("again", [True, False], ids=["again", "kept"])
def test_passes_that_are_rarely_needed(again, monkeypatch):
    """Heavy tails in float64, and ties: more than two requests, whether chunks are kept or not."""
    rng = np.random.default_rng(3)
    monkeypatch.setattr(split, "can_read_again", lambda array: again)
    nasty = {
        "tails": np.exp(rng.normal(size=40_000) * 60) * rng.choice([-1, 1], 40_000),
        "ties": rng.choice([1.0, 2.0, 3.0], 40_000),
        "near": 1 + rng.integers(0, 1 << 40, 40_000) * 2.0**-52,
    }
    most = 0
    for name, x in nasty.items():
        for target in (0.3, 0.9, 0.9999):
            source = da.from_array(x, chunks=5_000)
            found = hoyer.solve(source, target)
            expected = hoyer.solve(x, target)
            value, size, unique, rounds = dask.compute(
                found.value, found.support_size, found.unique, found.evaluations, **SYNC
            )
            np.testing.assert_allclose(
                value,
                expected.value,
                rtol=0,
                atol=64 * EPS["float64"] * abs(expected.value).max(),
                err_msg=name,
            )
            assert unique == expected.unique
            assert size == expected.support_size
            most = max(most, rounds)
    assert most > 2


def test_sources_that_change_are_found_out():
    """Random numbers that are drawn again whenever they are read."""
    rng = np.random.default_rng()
    x = da.map_blocks(
        lambda block_id=None: rng.normal(size=1 << 15),
        chunks=((1 << 15,) * 4,),
        dtype=float,
        meta=np.empty(0),
    )
    with pytest.raises(ValueError, match="one thing now and another thing later"):
        hoyer.project(x, 0.9).compute(**SYNC)


@pytest.mark.parametrize("changed", [2, 3])
def test_a_single_entry_that_changes_is_found_out(changed, searching):
    """In the second pass, or in the one that writes; counts in bins need not notice it."""
    reads = []

    def read(block_id=None):
        reads.append(block_id)
        chunk = np.random.default_rng(block_id[0]).normal(size=5000)
        if reads.count(block_id) == changed and block_id == (2,):
            chunk[7] = np.nextafter(chunk[7], 9)
        return chunk

    x = da.map_blocks(read, chunks=((5000,) * 4,), dtype=float, meta=np.empty(0))
    with pytest.raises(ValueError, match=r"chunk x\[10000:15000\] says one thing now and another"):
        hoyer.project(x, 0.9).compute(**SYNC)


# ---- the same, however divided ----


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_same_bits_for_every_partition(dtype, searching, rng):
    x = rng.normal(size=5000).astype(dtype)
    x[100:200] = x[0]
    for options in ({"sparseness": 0.8}, {"sparseness": 0.5, "l2": "keep"}, {"l1": 20.0}):
        first = None
        for pieces in (2, 3, 5, 9):
            array = da.from_array(x, chunks=(cut(rng, len(x), pieces),))
            found = hoyer.solve(array, **options)
            told = dask.compute(
                found.value, found.shift, found.scale, hoyer.sparseness(array), **SYNC
            )
            first = told if first is None else first
            for one, other in zip(told, first, strict=True):
                np.testing.assert_array_equal(one, other)
        agree(first[0], hoyer.project(x, **options))


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (0, 2), (1, 2), None])
@pytest.mark.parametrize("chunks", [(2, 3, 4), (3, 2, 5), (6, 7, 8), ((0, 6), (3, 0, 4), (1, 7))])
def test_any_axis_in_any_chunks(axis, chunks, rng, monkeypatch):
    x = rng.normal(size=(6, 7, 8))
    mask = rng.random(x.shape) < 0.8
    y = rng.normal(size=x.shape)
    target = rng.uniform(0.3, 0.9, x.sum(axis, keepdims=True).shape)
    expected = hoyer.solve(x, target, axis=axis, where=mask)
    for most in (0, 1 << 15):
        monkeypatch.setattr(parts, "MOST_GATHERED", most)
        array = da.from_array(x, chunks=chunks)
        for where in (mask, da.from_array(mask, chunks=3)):
            for targets in (target, da.from_array(target, chunks=2)):
                found = hoyer.solve(array, targets, axis=axis, where=where)
                assert found.value.chunks == array.chunks
                value, size, product = dask.compute(
                    found.value, found.support_size, found.vjp(y), **SYNC
                )
                agree(value, expected.value)
                agree(product, expected.vjp(y), 100)
                np.testing.assert_array_equal(size, expected.support_size)


def test_masks_and_targets_that_broadcast(searching, rng):
    x = rng.normal(size=(4, 50))
    array = da.from_array(x, chunks=(2, 20))
    for where in (rng.random(50) < 0.5, rng.random((4, 1)) < 0.5, np.True_):
        agree(
            hoyer.project(array, 0.5, where=where).compute(**SYNC),
            hoyer.project(x, 0.5, where=where),
        )
    dependent = hoyer.project(array, 0.5, where=array > 0).compute(**SYNC)
    agree(dependent, hoyer.project(x, 0.5, where=x > 0))
    norms = abs(array).sum(axis=1)
    given = {"l1": norms, "at_most": True}
    agree(
        hoyer.project(array, **given).compute(**SYNC),
        hoyer.project(x, l1=abs(x).sum(1), at_most=True),
    )


@pytest.mark.parametrize("size", [1e300, 1e-310, 1.0])
def test_sparseness_of_every_size(size, searching, rng):
    x = rng.normal(size=1000) * size
    array = da.from_array(x, chunks=(cut(rng, 1000, 5),))
    np.testing.assert_allclose(
        hoyer.sparseness(array).compute(**SYNC), hoyer.sparseness(x), rtol=1e-14
    )
    for special in (np.zeros(10), np.array([np.nan, *np.ones(9)]), np.array([np.inf, *np.ones(9)])):
        assert np.isnan(hoyer.sparseness(da.from_array(special, chunks=3)).compute(**SYNC))


def test_sparseness_of_vectors_that_are_nearly_constant(searching, rng):
    near = 1 + rng.normal(size=1000) * 1e-12
    with mp.workprec(300):
        entries = [mpf(entry) for entry in near.tolist()]
        l2, root = mp.sqrt(sum(entry**2 for entry in entries)), mp.sqrt(1000)
        exact = float((root - sum(entries) / l2) / (root - 1))
    found = hoyer.sparseness(da.from_array(near, chunks=300)).compute(**SYNC)
    np.testing.assert_allclose(found, exact, rtol=1e-14)


def test_unknown_sizes(rng):
    """Where vectors are whole, nobody needs to know how many there are."""
    x = rng.normal(size=(100, 6))
    known = da.from_array(x, chunks=(30, 6))
    array = known[known[:, 0] > 0]
    kept = x[x[:, 0] > 0]
    agree(hoyer.project(array, 0.5).compute(**SYNC), hoyer.project(kept, 0.5))
    agree(hoyer.solve(array, 0.5).shift.compute(**SYNC), hoyer.solve(kept, 0.5).shift)
    agree(hoyer.sparseness(array).compute(**SYNC), hoyer.sparseness(kept))
    narrow = known.rechunk((30, 3))[known[:, 0] > 0]
    agree(hoyer.project(narrow, 0.5).compute(**SYNC), hoyer.project(kept, 0.5))
    own = abs(array).sum(axis=1)
    agree(hoyer.project(array, l1=own, at_most=True).compute(**SYNC), kept)
    with pytest.raises(ValueError, match=r"unknown sizes along axis 0.*compute_chunk_sizes"):
        hoyer.project(array, 0.5, axis=0)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        hoyer.project(array, np.full(len(kept), 0.5))
    one = known.rechunk((100, 3))[known.rechunk((100, 6))[:, 0] > 0]
    with pytest.raises(ValueError, match=r"unknown sizes along axis 0.*compute_chunk_sizes"):
        hoyer.project(one, 0.5, axis=None)


def test_unknown_sizes_of_divided_vectors(searching, rng):
    """Their number is not known, so chunks are called by theirs; masks are spread within them."""
    x = rng.normal(size=(100, 60))
    known = da.from_array(x, chunks=(30, 20))
    chosen = x[:, 0] > 0
    array, kept = known[da.from_array(chosen, chunks=30)], x[chosen]
    agree(hoyer.project(array, 0.5).compute(**SYNC), hoyer.project(kept, 0.5))
    for where in (rng.random(60) < 0.7, np.True_):
        agree(
            hoyer.project(array, 0.5, where=where).compute(**SYNC),
            hoyer.project(kept, 0.5, where=where),
        )
    x[np.flatnonzero(chosen)[-1], 45] = np.nan
    last = np.count_nonzero(chosen[90:]) - 1
    bad = hoyer.project(da.from_array(x, chunks=(30, 20))[da.from_array(chosen, chunks=30)], 0.5)
    with pytest.raises(
        ValueError,
        match=rf"entry 45 of vector {last};.*chunk \(3, 2\) of x, whose place is not known",
    ):
        bad.compute(**SYNC)


# ---- what is refused ----


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_chunk_is_named(bad, monkeypatch, rng):
    x = rng.normal(size=(6, 8))
    x[4, 5] = bad
    rows = hoyer.project(da.from_array(x, chunks=(2, 8)), 0.5)
    with pytest.raises(
        ValueError, match=rf"x has {bad} at entry 5 of vector 0; .*the chunk x\[4:6, 0:8\]"
    ):
        rows.compute(**SYNC)
    monkeypatch.setattr(parts, "MOST_GATHERED", 0)
    divided = hoyer.project(da.from_array(x, chunks=(3, 4)), 0.5)
    with pytest.raises(
        ValueError, match=rf"x has {bad} at entry 5 of vector 4; .*the chunk x\[3:6, 4:8\]"
    ):
        divided.compute(**SYNC)
    unchecked = hoyer.project(da.from_array(x, chunks=(3, 4)), 0.5, check_finite=False)
    agree(unchecked.compute(**SYNC), hoyer.project(x, 0.5, check_finite=False))


def test_impossible_targets_in_arrays(rng):
    x = da.from_array(rng.normal(size=(6, 8)), chunks=(2, 8))
    result = hoyer.project(x, da.from_array(np.array([0.5, 0.5, 0.5, 1.5, 0.5, 0.5]), chunks=3))
    with pytest.raises(ValueError, match=r"got 1\.5.*the chunk x\[2:4, 0:8\]"):
        result.compute(**SYNC)


def test_impossible_targets_of_divided_vectors(searching, rng):
    x = da.from_array(rng.normal(size=(6, 8)), chunks=(2, 4))
    targets = da.from_array(np.array([0.5, 0.5, 0.5, 1.5, 0.5, 0.5]), chunks=3)
    with pytest.raises(ValueError, match=r"got 1\.5.*\(vector 3, in the chunks x\[2:4, :\]\)"):
        hoyer.project(x, targets).compute(**SYNC)
    some = x[x[:, 0] < np.inf]
    norms = abs(some).sum(axis=1) * 0 - 1
    with pytest.raises(ValueError, match=r"vector 0 of chunk \(\d, 0\) of x, whose place is not"):
        hoyer.project(some, l1=norms).compute(**SYNC)


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax"])
def test_targets_and_masks_are_not_computed_behind_the_back(kind):
    """If x is in memory and they are not."""
    x = np.ones((4, 5))
    if kind == "torch":
        x = pytest.importorskip("torch").from_numpy(x)
    elif kind == "jax":
        x = pytest.importorskip("jax.numpy").asarray(x)
    numbers, mask = unread((4,), 2), unread((4, 5), 2, "bool")
    for name, given in {
        "sparseness": {"sparseness": numbers},
        "l1": {"l1": numbers, "l2": 1.0},
        "where": {"sparseness": 0.5, "where": mask},
    }.items():
        for function in (hoyer.project, hoyer.solve):
            with pytest.raises(TypeError, match=rf"{name} is of type dask.*{name}\.compute\(\)"):
                function(x, **given)


def test_what_cannot_be_written():
    x = da.ones((4, 4), chunks=2)
    with pytest.raises(
        TypeError, match=r"out=.*Dask arrays cannot be changed; leave out=.*to_zarr"
    ):
        hoyer.project(x, 0.5, out=np.empty((4, 4)))
    with pytest.raises(TypeError, match=r"cannot be changed in place: use x = project\(x"):
        hoyer.project_(x, 0.5)
    with pytest.raises(TypeError, match="out="):
        hoyer.solve(x, 0.5).jvp(x, out=x)
    with pytest.raises(TypeError, match="project_sparse returns a SciPy sparse array"):
        hoyer.project_sparse(x, 0.5)
    with pytest.raises(TypeError, match=r"x is a Dask array: project_together .* pass x\.compute"):
        hoyer.project_together(x, 0.5)


def test_other_collections():
    class Frame:
        __module__ = "dask.dataframe.core"

        def to_dask_array(self, lengths=None):
            raise AssertionError

    with pytest.raises(TypeError, match=r"pass x\.to_dask_array\(lengths=True\)"):
        hoyer.project(Frame(), 0.5)
    with pytest.raises(TypeError, match=r"dask\.array\.from_delayed"):
        hoyer.project(delayed(np.ones)(3), 0.5)
    masked = da.ma.masked_array(da.ones(8, chunks=4), da.zeros(8, chunks=4, dtype=bool))
    with pytest.raises(TypeError, match=r"chunks are of type numpy\.ma.*map_blocks"):
        hoyer.project(masked, 0.5)


def test_a_jacobian_of_long_vectors_is_refused(searching):
    found = hoyer.solve(da.ones(100, chunks=30), 0.5)
    with pytest.raises(
        ValueError, match="100 entries in several chunks has 10000 entries: use jvp"
    ):
        found.jacobian()


def test_forms_in_processes(rng):
    """Plans and tasks travel to other processes."""
    x = vectors(rng, "float64")
    results = [
        hoyer.project(da.from_array(x, chunks=(2, 2, 6)), **options) for options in FORMS.values()
    ]
    for result, options in zip(
        dask.compute(*results, scheduler="processes", num_workers=2), FORMS.values(), strict=True
    ):
        agree(result, hoyer.project(x, **options))
