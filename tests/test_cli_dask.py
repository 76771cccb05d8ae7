"""``hoyer project`` on Zarr stores and folders of .npy files."""

import numpy as np
import pytest

import hoyer

da = pytest.importorskip("dask.array")


@pytest.fixture
def parts(folder, rng):
    """A matrix that lies in the folder `in` in three files, one of them empty."""
    x = rng.normal(size=(50, 20)).astype(np.float32)
    (folder / "in").mkdir()
    for number, (start, end) in {9: (0, 17), 10: (17, 17), 11: (17, 50)}.items():
        np.save(folder / "in" / f"part-{number}.npy", x[start:end])
    return x


@pytest.fixture
def store(folder, rng):
    """A matrix in the Zarr array in.zarr."""
    pytest.importorskip("zarr")
    x = rng.normal(size=(50, 20))
    da.to_zarr(da.from_array(x, chunks=(16, 7)), "in.zarr")
    return x


def joined(path):
    return np.concatenate([np.load(path / f"part-{number}.npy") for number in (9, 10, 11)])


@pytest.mark.parametrize(
    ("flags", "keywords"),
    [
        (["-s", "0.7"], {"sparseness": 0.7}),
        (["-s", "0.7", "--axis", "0"], {"sparseness": 0.7, "axis": 0}),
        (
            ["-s", "0.8", "--axis", "all", "--l2", "keep"],
            {"sparseness": 0.8, "axis": None, "l2": "keep"},
        ),
        (["--l1", "1", "--nonnegative"], {"l1": 1.0, "nonnegative": True}),
    ],
)
def test_folders_of_parts(parts, folder, run, flags, keywords, monkeypatch):  # noqa: PLR0917
    monkeypatch.setattr("hoyer.cli.dask.CHUNK_BYTES", 400)
    code, out, err = run("project", "in", "out", *flags)
    assert (code, err) == (0, "")
    assert out.startswith("out: ")
    assert "float32" in out
    expected = hoyer.project(parts, **keywords)
    np.testing.assert_allclose(
        joined(folder / "out"), expected, rtol=0, atol=1e-6 * abs(expected).max()
    )
    assert sorted(path.name for path in folder.iterdir()) == ["in", "out"]


def test_zarr_stores(store, folder, run):
    code, out, _ = run("project", "in.zarr", "out.zarr", "-s", "0.7")
    assert code == 0
    assert out.startswith("out.zarr: 50 vectors of length 20")
    found = da.from_zarr("out.zarr")
    assert found.chunks == da.from_zarr("in.zarr").chunks
    np.testing.assert_allclose(found.compute(), hoyer.project(store, 0.7), rtol=0, atol=1e-14)


def test_masks(store, folder, run, rng):
    mask = rng.random(20) < 0.7
    np.save("mask.npy", mask)
    assert run("project", "in.zarr", "out.zarr", "-s", "0.7", "--where", "mask.npy")[0] == 0
    found = da.from_zarr("out.zarr").compute()
    np.testing.assert_allclose(found, hoyer.project(store, 0.7, where=mask), rtol=0, atol=1e-14)


def test_over_itself(store, run, refused):
    assert "out" not in refused("project", "in.zarr", "in.zarr", "-s", "0.7")
    assert run("project", "in.zarr", "in.zarr", "-s", "0.7", "--force")[0] == 0
    np.testing.assert_allclose(hoyer.sparseness(da.from_zarr("in.zarr").compute()), 0.7)


def test_on_a_cluster(store, folder, run):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        assert run("project", "in.zarr", "out.zarr", "-s", "0.7", "--scheduler", address)[0] == 0
    found = da.from_zarr("out.zarr").compute()
    np.testing.assert_allclose(found, hoyer.project(store, 0.7), rtol=0, atol=1e-14)


def test_what_is_refused(parts, folder, refused, run):
    (folder / "empty").mkdir()
    assert "no .npy files" in refused("project", "empty", "out", "-s", "0.7")
    assert refused("project", "in", "empty", "-s", "0.7").startswith("cannot write empty")
    assert "exists: add --force" in refused("project", "in", "in", "-s", "0.7")
    assert "sparseness must lie in [0, 1]" in refused("project", "in", "out", "-s", "1.7")
    words = "--scheduler is for Zarr stores and folders"
    np.save("x.npy", parts)
    assert words in refused("project", "x.npy", "y.npy", "-s", "0.5", "--scheduler", "tcp://a:1")
    assert "--delimiter" in refused("project", "in", "out", "-s", "0.5", "--delimiter", ";")
    parts[20, 3] = np.nan
    np.save(folder / "in" / "part-11.npy", parts[17:])
    assert refused("project", "in", "out", "-s", "0.7").startswith(
        "in has nan at entry 3 of vector 3;"
    )
    np.save(folder / "in" / "part-12.npy", parts[:, :3])
    assert "are alike otherwise" in refused("project", "in", "out", "-s", "0.7")
