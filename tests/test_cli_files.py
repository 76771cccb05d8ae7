"""The command line on files: archives, results whole or not at all, damage, traps."""

import json
import os
import pickle
import re
import signal
import stat
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from command_line import Trap, command, contents, npy_file
from reference import HAS_LONG_DOUBLE

import hoyer
from hoyer.cli.project import project_file


class TestArchives:
    def test_a_single_number_is_copied(self, run, folder, rng):
        arrays = {"w": rng.normal(size=(3, 8)), "step": np.array(17), "b": np.arange(5.0)}
        np.savez_compressed("in.npz", **arrays)
        code, out, _ = run("project", "in.npz", "out.npz", "-s", "0.8")
        assert (code, out.splitlines()) == (
            0,
            [
                "out.npz, array 'w': 3 vectors of length 8, float64",
                "out.npz, array 'step': a single number, copied",
                "out.npz, array 'b': 1 vector of length 5, float64",
            ],
        )
        with np.load("out.npz") as found:
            assert list(found) == list(arrays)
            assert (found["step"].dtype, found["step"][()]) == (np.int64, 17)
            np.testing.assert_array_equal(found["w"], hoyer.project(arrays["w"], 0.8))

    def test_single_values_are_called_what_they_are(self, run, refused, folder):
        arrays = {
            "w": np.arange(4.0),
            "name": "relu",
            "raw": b"x",
            "day": np.datetime64("2020", "D"),
        }
        np.savez("in.npz", **{name: np.asarray(x) for name, x in arrays.items()})
        _, out, _ = run("project", "in.npz", "out.npz", "-s", "0.8")
        assert out.splitlines()[1:] == [
            "out.npz, array 'name': a text, copied",
            "out.npz, array 'raw': a text, copied",
            "out.npz, array 'day': a single value of type datetime64[D], copied",
        ]
        _, _, err = run("measure", "in.npz")
        assert err == "left out, as single values are no vectors: name, raw, day\n"
        text = refused("measure", "in.npz", "--arrays", "name")
        assert text == "in.npz, array 'name', is a text, not a vector"
        text = refused("project", "in.npz", "o.npz", "-s", "0.8", "--arrays", "day")
        assert text == "in.npz, array 'day', is a single value of type datetime64[D], not a vector"

    @pytest.mark.parametrize("way", ["csr", "csc", "coo", "bsr", "dia", "vector"])
    def test_a_sparse_array_of_scipy(self, run, refused, folder, way):
        sparse = pytest.importorskip("scipy.sparse")
        x = np.arange(12.0).reshape(4, 3)
        whole = sparse.coo_array(x[0]) if way == "vector" else sparse.coo_array(x).asformat(way)
        sparse.save_npz("in.npz", whole)
        for arguments in (("project", "in.npz", "o.npz", "-s", "0.7"), ("measure", "in.npz")):
            text = refused(*arguments)
            assert text.startswith("in.npz is a sparse array of SciPy's: its members (")
            assert "x.toarray()" in text
            assert "hoyer.project_sparse(x.toarray(), ...)" in text
        assert run("measure", "in.npz", "--arrays", "data")[0] == 0
        flags = ("-s", "0.7", "--arrays", "data", "--axis", "all")
        assert run("project", "in.npz", "o.npz", *flags)[0] == 0
        # What the message advises works.
        try:
            loaded = sparse.load_npz("in.npz")
        except ValueError:
            assert way == "vector"
            pytest.skip("this SciPy cannot load the vector that it saved")
        found = hoyer.project_sparse(loaded.toarray(), 0.7).toarray()
        np.testing.assert_array_equal(found, hoyer.project(loaded.toarray(), 0.7))
        np.testing.assert_allclose(hoyer.sparseness(loaded), hoyer.sparseness(loaded.toarray()))

    @pytest.mark.parametrize(
        ("bad", "flags", "text"),
        [
            (np.array(["a", "b"]), [], "in.npz, array 'bad', has dtype <U1"),
            (np.ones(1), [], "in.npz, array 'bad': sparseness=0.9: vectors of length 1"),
            (np.ones(4), ["--axis", "1"], "in.npz, array 'bad': axis=1: x has"),
            (np.array([None]), [], "in.npz, array 'bad', holds pickled Python objects"),
        ],
    )
    def test_an_array_that_does_not_suit(self, run, refused, bad, flags, text):
        np.savez("in.npz", w=np.ones((3, 4)), bad=bad)
        line = refused("project", "in.npz", "out.npz", "-s", "0.9", *flags)
        assert line.startswith(text)
        assert line.endswith("; name the arrays that are meant with --arrays")
        flags = [*flags, "--arrays", "w"]
        assert run("project", "in.npz", "out.npz", "-s", "0.9", *flags)[0] == 0
        assert run("measure", "in.npz", *flags)[0] == 0
        if bad.shape != (1,) or bad.dtype == object:
            line = refused("measure", "in.npz", *flags[:-2])
            assert line.endswith("; name the arrays that are meant with --arrays")
        # Of one that is alone, or a target that none could have, it says no such thing.
        assert "--arrays" not in refused("project", "in.npz", "o.npz", "-s", "1.5", *flags)
        assert "--arrays" not in refused("project", "in.npz", "o.npz", "-s", "1.5")
        np.savez("in.npz", bad=bad)
        assert "--arrays" not in refused("project", "in.npz", "o.npz", "-s", "0.9", *flags[:-2])

    def test_some_arrays(self, run, refused, folder, rng):
        w = rng.normal(size=(3, 8))
        np.savez_compressed("in.npz", w=w, names=np.array(["a"]), bad=np.array([Trap()], object))
        with zipfile.ZipFile("in.npz", "a") as archive:
            archive.writestr("notes.txt", "hello")
        code, out, _ = run("project", "in.npz", "out.npz", "-s", "0.8", "--arrays", "w")
        assert (code, out.splitlines()) == (
            0,
            [
                "out.npz, array 'w': 3 vectors of length 8, float64",
                "out.npz: 3 other members copied",
            ],
        )
        with zipfile.ZipFile("in.npz") as old, zipfile.ZipFile("out.npz") as new:
            assert new.namelist() == old.namelist()
            for name in ("names.npy", "bad.npy", "notes.txt"):
                assert new.read(name) == old.read(name)
                assert new.getinfo(name).compress_type == old.getinfo(name).compress_type
        with np.load("out.npz") as found:
            np.testing.assert_array_equal(found["w"], hoyer.project(w, 0.8))
        assert not Trap.sprung
        _, out, _ = run("measure", "in.npz", "--only", "hoyer", "--arrays", "w", "--json")
        assert [(a["file"], a["array"]) for a in json.loads(out)["arrays"]] == [("in.npz", "w")]
        text = refused("measure", "in.npz", "--arrays", "w, x")
        assert text == "--arrays: in.npz has no array 'x', but w, names, bad, notes.txt"
        text = refused("project", "in.npz", "o.npz", "-s", "0.8", "--arrays", ",")
        assert text.startswith("Invalid value for '--arrays': ',' has no name, or an empty one")

    def test_a_single_number_that_was_asked_for(self, refused, run, folder):
        np.savez("in.npz", w=np.arange(5.0), n=3)
        text = refused("project", "in.npz", "o.npz", "-s", "0.8", "--arrays", "n")
        assert text.startswith("in.npz, array 'n', is a single number, not a vector")
        code, out, err = run("measure", "in.npz", "--only", "hoyer")
        assert (code, out.count("array")) == (0, 1)
        assert err == "left out, as single values are no vectors: n\n"
        np.savez("in.npz", n=3)
        assert refused("measure", "in.npz") == "in.npz has no vectors, only single values: n"

    @pytest.mark.parametrize("verb", ["project", "measure"])
    def test_names_that_the_terminal_cannot_write(self, folder, verb):
        name = os.fsdecode(b"\xff.npz")
        np.savez(name, **{"日": np.arange(4.0)})
        arguments = [name, "-s", "0.9", name, "-f"] if verb == "project" else [name]
        environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        process = command("", verb, *arguments, env=environment)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        first = r"\udcff.npz, array '\u65e5': 1 vector of length 4, float64"
        assert out.splitlines()[0] == first

    def test_two_arrays_of_one_name(self, refused, folder):
        np.save("a.npy", np.arange(4.0))
        with zipfile.ZipFile("in.npz", "w") as archive:
            archive.write("a.npy")
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.write("a.npy")
        text = "in.npz has 2 arrays of the name 'a': which one is meant cannot be told"
        assert refused("project", "in.npz", "out.npz", "-s", "0.9") == text
        assert refused("measure", "in.npz") == text

    def test_names_do_not_reach_the_terminal_as_they_are(self, run, refused, folder):
        name = "\x1b[2J\x07\u202eevil\n"
        np.savez("in.npz", **{name: np.arange(4.0)})
        shown = r"\x1b[2J\x07\u202eevil\n"
        for arguments in (("project", "in.npz", "out.npz", "-s", "0.9"), ("measure", "in.npz")):
            code, out, err = run(*arguments)
            assert (code, err) == (0, "")
            assert f"npz, array '{shown}': 1 vector" in out
        np.savez("in.npz", **{name: np.array([1.0, np.nan]), "x\x1b": np.arange(3)})
        text = refused("project", "in.npz", "o.npz", "-s", "0.9")
        assert text.startswith(f"in.npz, array '{shown}', has nan")
        assert r"x\x1b" in refused("project", "in.npz", "o.npz", "-s", "0.9", "--arrays", "y")
        _, out, _ = run("measure", "in.npz", "--json")
        assert json.loads(out)["arrays"][0]["array"] == name

    @pytest.mark.parametrize("way", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_damaged_compression(self, refused, folder, rng, way):
        np.save("a.npy", rng.normal(size=200))
        with zipfile.ZipFile("in.npz", "w", way) as archive:
            archive.write("a.npy")
        data = bytearray(Path("in.npz").read_bytes())
        data[40:200] = bytes(160)
        Path("in.npz").write_bytes(data)
        for arguments in (("project", "in.npz", "out.npz", "-s", "0.9"), ("measure", "in.npz")):
            assert refused(*arguments).startswith("in.npz, array 'a', is ")

    def test_a_bomb(self, refused, folder, monkeypatch):
        np.savez_compressed("in.npz", a=np.zeros(10**6))
        monkeypatch.setattr("hoyer.cli.blocks.spare_memory", lambda: 2**20)
        text = refused("measure", "in.npz")
        assert text == "in.npz, array 'a', needs about 0.0 GiB of memory, 0.0 GiB are free"

    def test_a_header_that_lies(self, refused, folder):
        with zipfile.ZipFile("in.npz", "w") as archive:
            archive.writestr("a.npy", npy_file("(2147483648, 64)") + bytes(80))
        text = "in.npz, array 'a', is incomplete: it ends before its last number"
        assert refused("measure", "in.npz") == text


class TestReplacing:
    def test_an_existing_file_is_kept_without_force(self, run, refused, matrix):
        np.save("out.npy", np.zeros(3))
        text = refused("project", "in.npy", "out.npy", "-s", "0.9")
        assert text == "out.npy exists: add --force to replace it"
        assert refused("project", "in.npy", "in.npy", "-s", "0.9").startswith("in.npy exists")
        text = refused("project", "missing.npy", "out.npy", "-s", "0.9")
        assert text == "cannot read missing.npy: No such file or directory"
        assert run("project", "in.npy", "out.npy", "-s", "0.9", "--force")[0] == 0
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(matrix, 0.9))

    @pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
    def test_in_and_out_may_be_the_same_file(self, run, matrix, suffix):
        np.savez("in.npz", x=matrix)
        np.savetxt("in.csv", matrix, delimiter=",", fmt="%.17g")
        assert run("project", f"in.{suffix}", f"in.{suffix}", "-s", "0.9", "-f")[0] == 0
        found = {
            "npy": lambda: np.load("in.npy"),
            "npz": lambda: np.load("in.npz")["x"],
            "csv": lambda: np.loadtxt("in.csv", delimiter=","),
        }[suffix]()
        np.testing.assert_array_equal(found, hoyer.project(matrix, 0.9))

    def test_permissions(self, run, folder, matrix):
        before = os.umask(0o027)
        try:
            run("project", "in.npy", "new.npy", "-s", "0.9")
            np.save("old.npy", matrix)
            os.chmod("old.npy", 0o604)
            run("project", "in.npy", "old.npy", "-s", "0.9", "--force")
        finally:
            os.umask(before)
        assert stat.S_IMODE(os.stat("new.npy").st_mode) == 0o640
        assert stat.S_IMODE(os.stat("old.npy").st_mode) == 0o604

    def test_a_link_stays_a_link(self, run, folder, matrix):
        (folder / "there").mkdir()
        np.save("there/real.npy", matrix)
        os.symlink("there/real.npy", "link.npy")
        assert run("project", "in.npy", "link.npy", "-s", "0.9", "--force")[0] == 0
        assert Path("link.npy").is_symlink()
        np.testing.assert_array_equal(np.load("there/real.npy"), hoyer.project(matrix, 0.9))

    def test_only_files_are_replaced(self, refused, matrix, folder):
        (folder / "out.npy").mkdir()
        os.symlink("/dev/full", "full.npy")
        for name in ("out.npy", "full.npy"):
            text = refused("project", "in.npy", name, "-s", "0.9", "--force")
            assert text == f"cannot write {name}: it is there and not a regular file"
        assert Path("/dev/full").is_char_device()

    def test_a_file_that_appears_meanwhile_is_kept(self, folder, matrix, monkeypatch):
        def meddle(*_):
            Path("out.npy").write_text("mine", encoding="utf-8")

        monkeypatch.setattr(os, "fsync", meddle)
        with pytest.raises(ValueError, match=r"out\.npy exists"):
            project_file(Path("in.npy"), Path("out.npy"), -1, {"sparseness": 0.9})
        assert Path("out.npy").read_text(encoding="utf-8") == "mine"
        assert sorted(path.name for path in folder.iterdir()) == ["in.npy", "out.npy"]

    def test_a_missing_folder(self, refused, matrix):
        text = refused("project", "in.npy", "nowhere/out.npy", "-s", "0.9")
        assert text == "cannot write nowhere/out.npy: No such file or directory"

    def test_a_disk_that_is_full(self, refused, matrix, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        text = refused("project", "in.npy", "out.npy", "-s", "0.9")
        assert text == "cannot write out.npy: No space left on device"

    @pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
    @pytest.mark.parametrize("existing", [False, True])
    def test_a_file_that_may_not_grow(self, folder, matrix, suffix, existing):
        np.savez("in.npz", x=matrix)
        np.savetxt("in.csv", matrix, delimiter=",")
        if existing:
            Path(f"out.{suffix}").write_text("precious", encoding="utf-8")
        before = contents(folder)
        script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
        process = command(script, "project", f"in.{suffix}", f"out.{suffix}", "-s", "0.9", "-f")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, "")
        assert err == f"hoyer: cannot write out.{suffix}: File too large\n"
        assert contents(folder) == before

    @pytest.mark.parametrize(
        ("number", "code", "text"),
        [(signal.SIGINT, 130, "hoyer: interrupted\n"), (signal.SIGTERM, 143, "")],
    )
    def test_an_interrupt_leaves_nothing_behind(self, folder, rng, number, code, text):
        np.save("in.npy", rng.random((2**18, 8), np.float32))
        np.save("out.npy", np.ones(3))
        before = contents(folder)
        script = """
from hoyer.cli import blocks
blocks.BLOCK = 8  # a vector at a time takes seconds
"""
        process = command(script, "project", "in.npy", "out.npy", "-s", "0.9", "--force")
        deadline = time.monotonic() + 60
        while not list(folder.glob(".hoyer-*.part")) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        assert list(folder.glob(".hoyer-*.part"))
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (code, "", text)
        assert contents(folder) == before

    def test_what_a_killed_run_left_is_removed(self, run, folder, rng):
        np.save("in.npy", rng.random((2**18, 8), np.float32))
        script = """
from hoyer.cli import blocks
blocks.BLOCK = 8  # a vector at a time takes seconds
"""
        process = command(script, "project", "in.npy", "out.npy", "-s", "0.9")
        deadline = time.monotonic() + 60
        while not list(folder.glob(".hoyer-*.part")) and time.monotonic() < deadline:
            time.sleep(0.01)
        (left,) = folder.glob(".hoyer-*.part")
        np.save("small.npy", np.arange(5.0))
        process.send_signal(signal.SIGSTOP)  # in use, however slowly
        assert run("project", "small.npy", "a.npy", "-s", "0.9")[0] == 0
        assert left.exists()
        process.kill()
        process.communicate(timeout=60)
        assert left.exists()
        assert run("project", "small.npy", "b.npy", "-s", "0.9")[0] == 0
        assert sorted(path.name for path in folder.iterdir()) == [
            "a.npy",
            "b.npy",
            "in.npy",
            "small.npy",
        ]

    def test_only_incomplete_results_are_removed(self, run, folder, matrix):
        mine = [".hoyer-notes.part", ".hoyer-0123456789ab.part.txt", "x.hoyer-0123456789ab.part"]
        fcntl = pytest.importorskip("fcntl")
        for name in mine:
            Path(name).write_text("mine", encoding="utf-8")
        os.symlink("in.npy", ".hoyer-0123456789ab.part")
        locked = Path(".hoyer-ba9876543210.part")
        Path(".hoyer-cccccccccccc.part").write_text("", encoding="utf-8")
        with locked.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert run("project", "in.npy", "out.npy", "-s", "0.9")[0] == 0
            assert locked.exists()
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [*mine, ".hoyer-0123456789ab.part", locked.name, "in.npy", "out.npy"]
        )

    def test_a_new_part_that_another_run_took_for_left_over(self, run, folder, matrix, monkeypatch):
        fcntl = pytest.importorskip("fcntl")
        lock, removed = fcntl.flock, []

        def late(file, how):
            if not removed and how == fcntl.LOCK_EX:
                (path,) = folder.glob(".hoyer-*.part")
                path.unlink()
                removed.append(path)
            lock(file, how)

        monkeypatch.setattr(fcntl, "flock", late)
        assert run("project", "in.npy", "out.npy", "-s", "0.9")[0] == 0
        assert removed
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(matrix, 0.9))


class TestBadInput:
    def test_npy(self, refused, folder, rng):
        whole = np.arange(100.0).reshape(10, 10)
        np.save("in.npy", whole)
        data = Path("in.npy").read_bytes()

        def line():
            return refused("project", "in.npy", "out.npy", "-s", "0.9")

        Path("in.npy").write_bytes(b"")
        assert line() == "in.npy is empty"
        for end in (-1, -300, 130, 70, 8):
            Path("in.npy").write_bytes(data[:end])
            assert line() == "in.npy is incomplete: it ends before its last number"
        Path("in.npy").write_bytes(pickle.dumps(whole))
        assert line() == "in.npy is not a .npy file (hoyer never loads pickled objects)"
        Path("in.npy").write_bytes(data.replace(b"descr", b"desks"))
        assert line().startswith("in.npy is not a .npy file, or is damaged: ")
        np.save("in.npy", np.array([Trap()], object), allow_pickle=True)
        assert line().startswith("in.npy holds pickled Python objects, which hoyer never loads")
        for bad, text in (
            (np.float64(3), "in.npy is a single number, not a vector"),
            (np.ones(3, complex), "in.npy has dtype complex128: give real numbers as float16"),
            *[(np.ones(3, np.longdouble), "in.npy has dtype float128")] * HAS_LONG_DOUBLE,
            (np.array(["a", "b"]), "in.npy has dtype <U1"),
            (np.zeros(3, "f4,f4"), "in.npy has dtype [('f0', '<f4')"),
            (np.ones((3, 0)), "in.npy of shape (3, 0) has vectors without entries along axis -1"),
            (np.ones((3, 1)), "in.npy: sparseness=0.9: vectors of length 1 have no sparseness"),
            ([1.0, np.nan], "in.npy has nan at entry 1 (counted from 0); only finite vectors"),
            ([[1.0, 2], [-np.inf, 3]], "in.npy has -inf at entry 0 of vector 1 (counted from 0)"),
        ):
            np.save("in.npy", bad)
            assert line().startswith(text)

    @pytest.mark.parametrize(
        ("shape", "descr"),
        [
            ("(4611686018427387904, 4)", "'<f8'"),
            ("(0, 4611686018427387904, 4)", "'<f8'"),
            (f"({10**40},)", "'<f8'"),
            ("(-1, 4)", "'<f8'"),
            (f"({'1, ' * 65})", "'<f8'"),
            ("(True, [])", "'<f8'"),
            ("(3,)", "()"),
            ("(3,)", "[(1, 2)]"),
            ("(3,)", "('<f8', (2,))"),
            ("(3,)", "(" * 300 + ")" * 300),
            ("(3,)", "-" * 5000 + "1"),
        ],
    )
    @pytest.mark.parametrize("kind", ["npy", "npz"])
    def test_absurd_headers(self, refused, folder, shape, descr, kind):
        data = npy_file(shape, descr) + bytes(100)
        Path("in.npy").write_bytes(data)
        with zipfile.ZipFile("in.npz", "w") as archive:
            archive.writestr("a.npy", data)
        for arguments in (("project", f"in.{kind}", f"o.{kind}", "-s", "0.9"), ("measure",)):
            text = refused(*arguments, *([f"in.{kind}"] if len(arguments) == 1 else []))
            assert re.match(
                r"in\.npy is not a \.npy file, or is damaged: "
                r"|in\.npz, array 'a', is not an array of plain numbers, or is damaged: ",
                text,
            )
            assert len(text) < 400

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_versions(self, run, refused, folder, version):
        x = np.arange(5.0)
        Path("in.npy").write_bytes(npy_file("(5,)", version=min(version, 2)) + x.tobytes())
        data = bytearray(Path("in.npy").read_bytes())
        data[6] = version
        Path("in.npy").write_bytes(data)
        assert run("project", "in.npy", "out.npy", "-s", "0.9")[0] == 0
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(x, 0.9))
        data[6] = 9
        Path("in.npy").write_bytes(data)
        assert "its format has version (9, 0)" in refused("project", "in.npy", "o.npy", "-s", "0.9")

    def test_a_file_of_python_2(self, run, folder):
        Path("in.npy").write_bytes(npy_file("(5L,)") + np.arange(5.0).tobytes())
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert run("measure", "in.npy", "--only", "hoyer")[0] == 0

    def test_damage_of_any_kind_is_one_line(self, refused, run, folder, rng):
        np.save("whole.npy", rng.normal(size=(3, 5)))
        for way, save in enumerate((np.savez, np.savez_compressed)):
            save(f"whole{way}.npz", a=rng.normal(size=(3, 5)), b=np.arange(4))
        with zipfile.ZipFile("whole2.npz", "w", zipfile.ZIP_LZMA) as archive:
            archive.write("whole.npy")
        Path("whole.csv").write_text(',a,"b"\r\nx,1,2\n"y\n",3e5,inf\n', encoding="utf-8")
        for path in sorted(folder.iterdir()):
            whole = path.read_bytes()
            for _ in range(20):
                data = bytearray(whole)
                for place in rng.integers(len(data), size=rng.integers(1, 4)):
                    data[place] = rng.integers(256)
                cut = data[: rng.integers(len(data) + 1)] if rng.random() < 0.3 else data
                Path("in" + path.suffix).write_bytes(cut)
                code, out, err = run("measure", "in" + path.suffix, "--only", "hoyer")
                assert (code, out == "") in ((0, False), (2, True)), bytes(cut)
                assert err.count("\n") <= 1
                names = ("in" + path.suffix, "out" + path.suffix)
                code, _, err = run("project", *names, "-s", "0.5", "--no-check-finite", "-f")
                assert (code, err.count("\n")) in ((0, 0), (2, 1)), bytes(cut)

    def test_npz(self, refused, folder):
        np.savez("in.npz", good=np.arange(40.0), other=np.arange(3.0))
        data = Path("in.npz").read_bytes()

        def line():
            return refused("project", "in.npz", "out.npz", "-s", "0.9")

        Path("in.npz").write_bytes(b"")
        assert line() == "in.npz is empty"
        for broken in (data[:-1], data[:100], b"junk", pickle.dumps(3)):
            Path("in.npz").write_bytes(broken)
            assert line().startswith("in.npz is not a .npz archive, or is damaged: ")
        Path("in.npz").write_bytes(data.replace(np.float64(7).tobytes(), np.float64(8).tobytes()))
        assert "Bad CRC-32" in line()
        np.savez("in.npz", good=np.arange(4.0), bad=np.array([Trap()], object))
        assert line().startswith("in.npz, array 'bad', holds pickled Python objects")
        np.savez("in.npz", good=np.arange(4.0), bad=np.array([1.0, np.inf]))
        assert line().startswith("in.npz, array 'bad', has inf at entry 1")
        np.savez("in.npz", bad=1, worse=2.5)
        assert line() == "in.npz has nothing to project, only single values"
        with zipfile.ZipFile("in.npz", "w") as archive:
            archive.writestr("notes.txt", "hello")
        assert line() == (
            "in.npz has 'notes.txt' in it, which is no array: name those that are meant with "
            "--arrays"
        )
        with zipfile.ZipFile("in.npz", "w") as archive:
            archive.writestr("cut.npy", data[30:90])
        assert line().startswith("in.npz, array 'cut', is ")
        zipfile.ZipFile("in.npz", "w").close()
        assert line() == "in.npz has no arrays"

    @pytest.mark.parametrize(
        ("content", "text"),
        [
            (b"", "in.csv is empty"),
            (b"\n \n", "in.csv is empty"),
            (b"a,b\n", "in.csv has a header but no numbers"),
            (b"1,2\n3,x\n", "in.csv, line 2, column 1 (counted from 0): 'x' is no number"),
            (b"1,,3\n4,5,6\n", "in.csv, line 1, column 1 (counted from 0): the number is missing"),
            (b",2\n,5\n", "in.csv, line 1, column 0 (counted from 0): the number is missing"),
            (b"a\n1,2,3\n", "in.csv, line 2: 3 fields, but 1 name in the header"),
            (b"1,NA\n4,5\n", "in.csv, line 1, column 1 (counted from 0): the number is missing"),
            (b"id,2\n4,5\n", "in.csv, line 1 has names ('id') and numbers ('2'): add --header"),
            (b",,x\n1,2,3\n", "in.csv has several columns without a name: say with --index-col"),
            (b"1,5;2,5\n", "in.csv, line 1, column 0 (counted from 0): '1,5' has a comma: write"),
            (b"a;b\n1;2,5\n", "in.csv, line 2, column 'b': '2,5' has a comma: write 1.5, not 1,5"),
            (b"a b\n1 2\n", "in.csv, line 2, column 'a b': '1 2' is several numbers: say with"),
            (b"a,b\n1_0,2\n", "in.csv, line 2, column 'a': '1_0' is no number"),
            (b"\x1b,b\n,2\n", "in.csv, line 2, column '\\x1b': the number is missing"),
            (
                b"1,2\n" + b"x" * 200_000 + b",2\n",
                "in.csv, line 2 cannot be split into fields: field larger",
            ),
            (b"x" * 200_000, "in.csv, line 1 cannot be split into fields: field larger"),
            (b'"a,b\n1,2\n', "in.csv, line 2 cannot be split into fields: unexpected end"),
            (b"a,b\n\n1,2\n3,\n", "in.csv, line 4, column 'b': the number is missing ('')"),
            (b"1,2\n3\n", "in.csv, line 2: 1 field, but 2 in the lines before"),
            (b"1,2\n3,4,5\n", "in.csv, line 2: 3 fields, but 2 in the lines before"),
            (b"a,b\n1,2\n3,4,5\n", "in.csv, line 3: 3 fields, but 2 names in the header"),
            (b"a,b,c\n1,2\n", "in.csv, line 2: 2 fields, but 3 names in the header"),
            (b"1,2\n3,4j\n", "in.csv, line 2, column 1 (counted from 0): '4j' is no number"),
            (b"1,2\n3,nan\n", "in.csv has nan at entry 1 of vector 1 (counted from 0)"),
            (b"\x80\x04\xff", "in.csv is not a .csv or .tsv file: it is no text in UTF-8"),
        ],
    )
    def test_csv(self, refused, folder, content, text):
        Path("in.csv").write_bytes(content)
        assert refused("project", "in.csv", "out.csv", "-s", "0.9").startswith(text)

    @pytest.mark.parametrize("suffix", ["npy", "npz", "csv"])
    def test_files_that_cannot_be_read(self, refused, folder, suffix):
        line = refused("project", f"in.{suffix}", f"out.{suffix}", "-s", "0.9")
        assert line == f"cannot read in.{suffix}: No such file or directory"
        (folder / f"in.{suffix}").mkdir()
        line = refused("project", f"in.{suffix}", f"out.{suffix}", "-s", "0.9")
        assert line == f"cannot read in.{suffix}: Is a directory"

    def test_nothing_is_unpickled(self, run, folder):
        np.save("in.npy", np.array([Trap()], object), allow_pickle=True)
        np.savez("in.npz", x=np.array([Trap()], object))
        Path("raw.npy").write_bytes(pickle.dumps(Trap()))
        for name in ("in.npy", "in.npz", "raw.npy"):
            for arguments in (["project", name, f"out{name[-4:]}", "-s", "0.9"], ["measure", name]):
                assert run(*arguments)[0] == 2
        assert not Trap.sprung
