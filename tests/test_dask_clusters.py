"""Dask arrays on a cluster: larger than its memory, with a worker that dies, from a Zarr store."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import hoyer

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

LIMIT = "256MiB"
"""The memory of a worker, half of which it needs for its programs."""
SECONDS = 100
"""After which a test has failed, and does not hang."""


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit=LIMIT,
            dashboard_address=":0",
            silence_logs=50,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def result_of(client, array):
    return client.compute(array).result(timeout=SECONDS)


def long_vector(exponent, chunks):
    rng = da.random.default_rng(7)
    return rng.standard_normal(1 << exponent, dtype=np.float32, chunks=(1 << exponent) // chunks)


def test_larger_than_the_memory(client):
    """The sum of squares of a projection, of an array that no worker could hold."""
    x = long_vector(26, 32)
    p = hoyer.project(x, 0.9)
    checked = result_of(client, da.stack([(p.astype(float) ** 2).sum(), abs(p).sum(dtype=float)]))
    l1 = 1 + 0.1 * (2.0**13 - 1)
    np.testing.assert_allclose(checked, [1.0, l1], rtol=1e-5)
    assert not any(client.run(spilled).values())
    np.testing.assert_allclose(result_of(client, hoyer.sparseness(p)), 0.9, rtol=1e-6)


def spilled(dask_worker):
    return len(getattr(dask_worker.data, "disk", None) or ())


def test_the_same_bits_as_in_threads(client):
    x = long_vector(18, 7)
    found = hoyer.solve(x, 0.8, l2="keep")
    told = (found.value, found.shift, found.support_size, found.vjp(x))
    there = [result_of(client, one) for one in told]
    here = [one.compute(scheduler="threads") for one in told]
    for one, other in zip(there, here, strict=True):
        np.testing.assert_array_equal(one, other)
    kept = client.persist(x)
    np.testing.assert_array_equal(result_of(client, hoyer.project(kept, 0.8, l2="keep")), here[0])


def test_a_worker_that_dies(client):
    """The scheduler has its work done again, and the result is the same."""
    x = long_vector(22, 64).map_blocks(slowly)
    expected = hoyer.project(x, 0.9).sum(dtype=float).compute(scheduler="threads")
    future = client.compute(hoyer.project(x, 0.9).sum(dtype=float))
    victim = next(iter(client.scheduler_info()["workers"].values()))["nanny"]
    pids = client.run(os.getpid, nanny=False)
    assert victim
    killer = threading.Timer(0.4, os.kill, [next(iter(pids.values())), signal.SIGKILL])
    killer.start()
    assert future.result(timeout=SECONDS) == expected
    killer.join()


def slowly(block):
    time.sleep(0.01)
    return block


def test_a_zarr_store(client, tmp_path, rng):
    pytest.importorskip("zarr")
    x = rng.normal(size=(3, 1 << 16)).astype(np.float32)
    source, target = str(tmp_path / "x.zarr"), str(tmp_path / "p.zarr")
    da.to_zarr(da.from_array(x, chunks=(2, 10_000)), source)
    stored = da.from_zarr(source)
    result_of(client, da.to_zarr(hoyer.project(stored, 0.7), target, compute=False))
    found = da.from_zarr(target)
    assert found.chunks == stored.chunks
    np.testing.assert_allclose(found.compute(), hoyer.project(x, 0.7), rtol=0, atol=1e-8)


def test_errors_come_back(client):
    x = long_vector(17, 4)
    bad = da.where(da.arange(1 << 17, chunks=1 << 15) == 70_000, np.nan, x)
    with pytest.raises(ValueError, match=r"x has nan at entry 70000; .*x\[65536:98304\]"):
        result_of(client, hoyer.project(bad, 0.9))
