"""``hoyer project`` on Zarr stores and folders of .npy files."""

import os
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from command_line import contents

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


@pytest.mark.parametrize("axis", ["-1", "0", "all"])
@pytest.mark.parametrize("only", [["--only", "hoyer"], ["--only", "hoyer,gini,l0"], []])
@pytest.mark.parametrize("limit", [100, 1 << 26])
def test_measures(parts, store, folder, run, monkeypatch, axis, only, limit):  # noqa: PLR0917
    monkeypatch.setattr("hoyer.cli.dask.PIECE_BYTES", limit)
    monkeypatch.setattr("hoyer.cli.dask.spare_memory", lambda: 0)
    for name, x in {"in": parts, "in.zarr": store}.items():
        np.save("whole.npy", x)
        code, out, err = run("measure", name, "--axis", axis, *only)
        assert (code, err) == (0, "")
        assert out == run("measure", "whole.npy", "--axis", axis, *only)[1].replace(
            "whole.npy", name
        )


@pytest.mark.parametrize("limit", [1, 1000, 3000])
def test_measures_of_vectors_in_many_chunks(folder, run, rng, monkeypatch, limit):
    pytest.importorskip("zarr")
    monkeypatch.setattr("hoyer.cli.dask.PIECE_BYTES", limit)
    monkeypatch.setattr("hoyer.cli.dask.spare_memory", lambda: 0)
    x = rng.normal(size=(4, 50, 7))
    da.to_zarr(da.from_array(x, chunks=(3, 50, 2)), "in.zarr")
    np.save("in.npy", x)
    for axis in ("1", "0,2"):
        _, out, _ = run("measure", "in.zarr", "--axis", axis, "--only", "gini,l0")
        _, expected, _ = run("measure", "in.npy", "--axis", axis, "--only", "gini,l0")
        assert out == expected.replace("in.npy", "in.zarr")


def test_chunks_are_read_once_where_there_is_memory(folder, run, rng, monkeypatch):
    pytest.importorskip("zarr")
    from hoyer.cli.dask import Readable

    regions, read = [], Readable.__getitem__
    monkeypatch.setattr(
        Readable, "__getitem__", lambda own, region: (regions.append(region), read(own, region))[1]
    )
    monkeypatch.setattr("hoyer.cli.dask.spare_memory", lambda: 0)
    monkeypatch.setattr("hoyer.cli.dask.PIECE_BYTES", 50 * 20 * 8)
    da.to_zarr(da.from_array(rng.normal(size=(100, 20)), chunks=(7, 3)), "in.zarr")
    assert run("measure", "in.zarr", "--only", "gini,l0")[0] == 0
    assert [region[0] for region in regions] == [slice(0, 49), slice(49, 98), slice(98, 100)]


def test_damage_is_told_in_one_line(store, folder, run, refused):
    for chunk in (folder / "in.zarr" / "c" / "0").iterdir():
        chunk.write_bytes(chunk.read_bytes()[:10])
    for words in (["measure", "in.zarr"], ["measure", "in.zarr", "--only", "hoyer"]):
        assert refused(*words).startswith("in.zarr: it cannot be read (")
    said = refused("project", "in.zarr", "out.zarr", "-s", "0.5")
    assert said.startswith("in.zarr: it cannot be read (")
    assert not (folder / "out.zarr").exists()


def test_what_cannot_be_measured(folder, refused):
    assert refused("measure", "none.zarr") == "cannot read none.zarr: No such file or directory"
    (folder / "empty").mkdir()
    assert refused("measure", "empty").startswith("empty is no Zarr store, and has no .npy files")
    np.save(folder / "empty" / "1.npy", np.array(["a"]))
    assert "empty" in refused("measure", "empty")
    assert "--arrays is for .npz archives" in refused("measure", "empty", "--arrays", "a")


@pytest.fixture
def cluster():
    """The address of a scheduler with one worker."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as started:
        yield started.scheduler_address


def test_on_a_cluster(store, folder, run, cluster):
    assert run("project", "in.zarr", "out.zarr", "-s", "0.7", "--scheduler", cluster)[0] == 0
    found = da.from_zarr("out.zarr").compute()
    np.testing.assert_allclose(found, hoyer.project(store, 0.7), rtol=0, atol=1e-14)


def test_two_runs_on_one_cluster(parts, folder, cluster, monkeypatch):
    from hoyer.cli import dask as command

    monkeypatch.setattr(command, "CHUNK_BYTES", 400)
    np.save("mask.npy", parts > 0)
    runs = [("b", 0.9), ("a", 0.7)]

    def project_next():
        name, sparseness = runs.pop()
        options = {"sparseness": sparseness, "nonnegative": True}
        given = {"where": Path("mask.npy"), "scheduler": cluster}
        command.project_folder(Path("in"), Path(name), -1, options, **given)

    # The second run begins and ends when the first has written one chunk, and holds the others.
    @contextmanager
    def another_run_meanwhile(*_, **__):
        yield lambda _: runs and project_next()

    monkeypatch.setattr(command, "progress_bar", another_run_meanwhile)
    project_next()
    for name, sparseness in (("a", 0.7), ("b", 0.9)):
        expected = hoyer.project(parts, sparseness, nonnegative=True, where=parts > 0)
        np.testing.assert_allclose(joined(folder / name), expected, rtol=0, atol=1e-6)


def test_workers_in_another_folder(parts, folder, run, monkeypatch, tmp_path_factory):
    from hoyer.cli import dask as command

    compute = command._store

    def elsewhere(*arguments):
        os.chdir(tmp_path_factory.mktemp("elsewhere"))
        compute(*arguments)
        os.chdir(folder)

    monkeypatch.setattr(command, "_store", elsewhere)
    np.save("mask.npy", parts[0] > 0)
    assert run("project", "in", "out", "--l1", "1", "--where", "mask.npy")[0] == 0
    np.testing.assert_allclose(abs(joined(folder / "out")).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (20,), (50, 1), (1, 20), (50, 20)])
def test_masks_are_read_in_pieces(parts, folder, run, rng, monkeypatch, shape):  # noqa: PLR0917
    from hoyer.cli import dask as command

    largest, read = [0], command._read

    def measured(piece):
        block = read(piece)
        largest.append(block.nbytes)
        return block

    monkeypatch.setattr(command, "_read", measured)
    monkeypatch.setattr(command, "CHUNK_BYTES", 400)
    mask = np.asarray(rng.random(shape) < 0.8) if shape else np.array(True)
    np.save("mask.npy", mask)
    code, _, err = run("project", "in", "out", "--l1", "1", "--where", "mask.npy")
    assert (code, err) == (0, "")
    assert max(largest) <= 400
    expected = hoyer.project(parts, l1=1, where=mask)
    np.testing.assert_allclose(joined(folder / "out"), expected, rtol=0, atol=1e-6)


def test_every_chunk_is_one_task(folder, rng):
    from hoyer.cli.dask import Parts

    (folder / "in").mkdir()
    for i in range(40):
        np.save(folder / "in" / f"{i}.npy", rng.normal(size=(3, 4)))
    array = Parts.opened(folder / "in", "run").array
    assert len(array.__dask_graph__()) == array.npartitions == 40
    np.testing.assert_array_equal(array[3:6].compute(), np.load(folder / "in" / "1.npy"))


@pytest.mark.parametrize("version", [2, 3])
def test_what_zarr_says_beside_the_numbers(store, folder, run, version):
    import zarr

    names = {"dimension_names": ("time", "gene")} if version == 3 else {}
    given = zarr.create_array(
        "x.zarr", data=store, zarr_format=version, attributes={"unit": "m"}, **names
    )
    assert run("project", "x.zarr", "y.zarr", "-s", "0.7")[0] == 0
    found = zarr.open_array("y.zarr")
    assert found.metadata.zarr_format == version
    assert dict(found.attrs) == {"unit": "m"}
    kept = [getattr(one.metadata, "dimension_names", None) for one in (given, found)]
    assert kept[0] == kept[1]
    np.testing.assert_allclose(found[:], hoyer.project(store, 0.7), rtol=0, atol=1e-14)
    assert run("project", "x.zarr", "y.zarr", "-s", "0.9", "--force")[0] == 0


@pytest.mark.parametrize("version", [2, 3])
def test_compression_is_kept_for_numbers_of_the_same_type(store, folder, run, version):
    zarr = pytest.importorskip("zarr")
    numcodecs = pytest.importorskip("numcodecs")
    codec = zarr.codecs.GzipCodec(level=7) if version == 3 else numcodecs.GZip(level=7)
    for given, kept in ((store, True), ((100 * store).astype(np.int16), False)):
        options = {"zarr_format": version, "compressors": codec, "chunks": (16, 7)}
        if version == 3:
            options["shards"] = (32, 14)
        zarr.create_array("x.zarr", data=given, overwrite=True, **options)
        assert run("project", "x.zarr", "y.zarr", "-s", "0.7", "--force")[0] == 0
        found = zarr.open_array("y.zarr")
        assert (found.compressors == (codec,)) == kept
        np.testing.assert_allclose(found[:], hoyer.project(given, 0.7), rtol=0, atol=1e-12)


def test_filters_are_not_kept(folder, run, rng):
    zarr = pytest.importorskip("zarr")
    numcodecs = pytest.importorskip("numcodecs")
    x = np.round(10 * abs(rng.normal(size=(6, 50)))) + 200
    fits_x_alone = numcodecs.FixedScaleOffset(offset=190, scale=1, dtype="<f8", astype="u1")
    zarr.create_array("in.zarr", data=x, zarr_format=2, filters=[fits_x_alone])
    assert run("project", "in.zarr", "out.zarr", "-s", "0.9")[0] == 0
    np.testing.assert_allclose(hoyer.sparseness(zarr.open_array("out.zarr")[:]), 0.9)


class TestWhatIsReplaced:
    """--force replaces arrays, and nothing else."""

    def test_other_things_in_a_folder(self, parts, folder, refused):
        home = folder / "home"
        (home / "sub").mkdir(parents=True)
        (home / "sub" / "f").write_text("mine", encoding="utf-8")
        np.save(home / "x.npy", parts)
        words = "neither a Zarr array nor a folder of .npy files alone: sub is in it"
        assert words in refused("project", "in", "home", "-s", "0.5", "--force")
        (home / "sub").rename(home / "z.npy")
        assert "z.npy is in it" in refused("project", "in", "home", "-s", "0.5", "--force")

    def test_groups(self, store, folder, refused, run):
        import zarr

        group = zarr.create_group("g.zarr")
        group.create_array("x", data=store)
        words = "cannot write g.zarr: g.zarr/x lies in it"
        assert refused("project", "g.zarr/x", "g.zarr", "-s", "0.5", "--force") == words
        assert "x is in it" in refused("project", "in.zarr", "g.zarr", "-s", "0.5", "--force")
        assert run("project", "g.zarr/x", "g.zarr/y", "-s", "0.5")[0] == 0
        assert set(zarr.open_group("g.zarr").array_keys()) == {"x", "y"}

    def test_other_things_in_an_array(self, store, folder, refused):
        (folder / "in.zarr" / "thesis.tex").write_text("mine", encoding="utf-8")
        words = "thesis.tex is in it"
        assert words in refused("project", "in.zarr", "in.zarr", "-s", "0.5", "--force")

    def test_the_mask(self, parts, folder, refused):
        (folder / "out").mkdir()
        np.save("out/mask.npy", parts > 0)
        flags = ["-s", "0.5", "--force", "--where", "out/mask.npy"]
        assert refused("project", "in", "out", *flags).endswith("out/mask.npy lies in it")

    def test_a_symbolic_link_stays_one(self, parts, folder, run):
        (folder / "elsewhere").mkdir()
        os.symlink("elsewhere/real", "link")
        for flags in (["-s", "0.5"], ["-s", "0.7", "--force"]):
            assert run("project", "in", "link", *flags)[0] == 0
            assert os.readlink("link") == "elsewhere/real"
        assert os.listdir("elsewhere") == ["real"]
        np.testing.assert_allclose(hoyer.sparseness(joined(folder / "link")), 0.7, rtol=1e-5)

    def test_permissions(self, parts, folder, run):
        (folder / "in").chmod(0o750)
        assert run("project", "in", "in", "-s", "0.5", "--force")[0] == 0
        assert (folder / "in").stat().st_mode & 0o777 == 0o750

    @pytest.mark.parametrize("failing", [1, 2])
    def test_a_rename_that_fails(self, parts, folder, refused, monkeypatch, failing):
        rename, calls = Path.rename, []

        def fails(self, target):
            calls.append(target)
            if len(calls) == failing:
                raise OSError(5, "Input/output error", str(self))
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", fails)
        words = "cannot write in: Input/output error"
        assert refused("project", "in", "in", "-s", "0.5", "--force") == words
        np.testing.assert_array_equal(joined(folder / "in"), parts)

    def test_what_killed_runs_left(self, parts, folder, run):
        left, lost = folder / ".hoyer-0123456789ab.part", folder / ".hoyer-0123456789ab.old"
        for path in (left, lost):
            (path / "c").mkdir(parents=True)
        assert run("project", "in", "out", "-s", "0.5")[0] == 0
        assert not left.exists()
        assert lost.exists()  # of a run between two renames: all there is of a result
        from hoyer.cli.folders import create_part_folder

        locked, descriptor = create_part_folder(folder)
        assert run("project", "in", "out", "-s", "0.7", "--force")[0] == 0
        assert locked.exists()
        os.close(descriptor)
        assert run("project", "in", "out", "-s", "0.7", "--force")[0] == 0
        assert not locked.exists()

    def test_something_that_appears_meanwhile(self, parts, folder, run, monkeypatch):
        from hoyer.cli import dask as command

        compute = command._store

        def slow(*arguments):
            compute(*arguments)
            (folder / "out").mkdir()
            (folder / "out" / "thesis.tex").write_text("mine", encoding="utf-8")

        monkeypatch.setattr(command, "_store", slow)
        code, _, err = run("project", "in", "out", "-s", "0.5", "--force")
        assert code == 2
        assert "thesis.tex is in it" in err
        assert [name for name, *_ in sorted(contents(folder / "out").items())] == ["thesis.tex"]


def test_names_that_no_folder_has(parts, folder, refused):
    words = "the result of in is a folder, which standard output cannot take: name one as OUT"
    assert refused("project", "in", "-", "-s", "0.5") == words
    (folder / "there.npy").mkdir()
    for name in ("out.npy", "out.CSV", "there.npy"):
        line = refused("project", "in", name, "-s", "0.5")
        assert line.startswith(f"{name}: the result of in is a folder too, not a ")
    words = "cannot write nowhere/out: No such file or directory"
    assert refused("project", "in", "nowhere/out", "-s", "0.5") == words
    words = "--arrays is for .npz archives, but in is a folder"
    assert refused("project", "in", "out", "-s", "0.5", "--arrays", "a") == words
    words = "--where -: the mask of in is read piece by piece: give it as a .npy file"
    assert refused("project", "in", "out", "-s", "0.5", "--where", "-") == words
    np.save("mask.npy", parts[:3] > 0)
    words = "--where: mask.npy has shape (3, 20), which does not broadcast to that of in, (50, 20)"
    assert refused("project", "in", "out", "-s", "0.5", "--where", "mask.npy") == words


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
    (folder / "in" / "info").touch()
    assert "is a stack of Dask's" in refused("project", "in", "out", "-s", "0.7")
