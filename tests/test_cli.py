"""The command line: files in, files out, one line for every error, nothing half written."""

import contextlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from command_line import command

import hoyer
from hoyer import cli
from hoyer.cli.blocks import blocks, first_not_finite
from hoyer.cli.project import project_file


class TestProject:
    @pytest.mark.parametrize(
        ("flags", "keywords"),
        [
            (["--sparseness", "0.9"], {"sparseness": 0.9}),
            (["-s", "0.9", "--l2", "keep"], {"sparseness": 0.9, "l2": "keep"}),
            (["-s", "0.9", "--l2", "nearest"], {"sparseness": 0.9, "l2": "nearest"}),
            (["-s", "0.9", "--l1", "3"], {"sparseness": 0.9, "l1": 3.0}),
            (["--l1", "2", "--l2", "1.5"], {"l1": 2.0, "l2": 1.5}),
            (["-s", "0.6", "--axis", "0"], {"sparseness": 0.6, "axis": 0}),
            (["-s", "0.6", "--axis", "all"], {"sparseness": 0.6, "axis": None}),
            (["-s", "0.6", "--axis", "-1,0"], {"sparseness": 0.6, "axis": (-1, 0)}),
            (["-s", "0.6", "--nonnegative"], {"sparseness": 0.6, "nonnegative": True}),
            (["-s", "0.1", "--only-increase"], {"sparseness": 0.1, "only_increase": True}),
            (["-s", "0.6", "--solver", "newton"], {"sparseness": 0.6, "solver": "newton"}),
            (["--l1", "1", "--nonnegative"], {"l1": 1.0, "nonnegative": True}),
            (["--l1", "3"], {"l1": 3.0}),
            (["--l1", "3", "--at-most"], {"l1": 3.0, "at_most": True}),
            (["--l1", "9", "--l2", "3", "--at-most"], {"l1": 9.0, "l2": 3.0, "at_most": True}),
        ],
    )
    def test_every_option_is_that_of_the_library(self, run, matrix, flags, keywords):
        assert run("project", "in.npy", "out.npy", *flags)[0] == 0
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(matrix, **keywords))

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "int16", "bool"])
    def test_types(self, run, folder, rng, dtype):
        x = (rng.random((6, 9)) * 7).astype(dtype)
        np.save("in.npy", x)
        code, out, _ = run("project", "in.npy", "out.npy", "-s", "0.7")
        expected = hoyer.project(x, 0.7)
        found = np.load("out.npy")
        np.testing.assert_array_equal(found, expected)
        assert code == 0
        assert found.dtype == expected.dtype
        assert out == f"out.npy: 6 vectors of length 9, {expected.dtype}\n"

    def test_the_order_in_the_file_is_kept(self, run, folder, rng):
        np.save("in.npy", np.asfortranarray(rng.random((4, 5))))
        run("project", "in.npy", "out.npy", "-s", "0.7")
        assert np.load("out.npy").flags.f_contiguous
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(np.load("in.npy"), 0.7))

    def test_an_empty_batch(self, run, refused, folder):
        np.save("in.npy", np.ones((0, 5)))
        assert "sparseness must lie in [0, 1]" in refused(
            "project", "in.npy", "out.npy", "-s", "1.5"
        )
        assert run("project", "in.npy", "out.npy", "-s", "0.5")[0] == 0
        assert np.load("out.npy").shape == (0, 5)

    def test_npz_keeps_names_and_compression(self, run, folder, rng):
        arrays = {"weights": rng.normal(size=(3, 8)), "deep/bias": np.arange(5)}
        for save, way in ((np.savez, 0), (np.savez_compressed, zipfile.ZIP_DEFLATED)):
            save("in.npz", **arrays)
            code, out, _ = run("project", "in.npz", "out.npz", "-s", "0.8", "--force")
            assert code == 0
            assert out.splitlines() == [
                "out.npz, array 'weights': 3 vectors of length 8, float64",
                "out.npz, array 'deep/bias': 1 vector of length 5, float64",
            ]
            with np.load("out.npz", allow_pickle=False) as found:
                assert set(found) == set(arrays)
                for name, x in arrays.items():
                    np.testing.assert_array_equal(found[name], hoyer.project(x, 0.8))
            with zipfile.ZipFile("out.npz") as archive:
                assert {member.compress_type for member in archive.infolist()} == {way}

    @pytest.mark.parametrize("header", ["", 'height,weight,"age, in years"\n', "\ufeffa,b,c\n"])
    def test_csv(self, run, folder, header):
        x = np.array([[1.0, 2.0, 4.0], [0.1, -7.25, 3e-5]])
        Path("in.csv").write_text(header + "1,2,4\n0.1,-7.25,3e-5\n\n", encoding="utf-8")
        assert run("project", "in.csv", "out.csv", "-s", "0.6")[0] == 0
        text = Path("out.csv").read_text(encoding="utf-8")
        assert text.startswith(header.lstrip("\ufeff"))
        found = np.loadtxt("out.csv", delimiter=",", skiprows=int(bool(header)))
        np.testing.assert_array_equal(found, hoyer.project(x, 0.6))

    def test_a_csv_file_of_one_column_is_one_vector(self, run, folder):
        Path("in.csv").write_text("value\n3\n1\n2\n", encoding="utf-8")
        _, out, _ = run("project", "in.csv", "out.csv", "-s", "0.6")
        assert out == "out.csv: 1 vector of length 3, float64\n"
        lines = Path("out.csv").read_text(encoding="utf-8").splitlines()
        assert lines[0] == "value"
        np.testing.assert_array_equal(np.array(lines[1:], float), hoyer.project([3.0, 1, 2], 0.6))


class TestMask:
    @pytest.fixture
    def masked(self, matrix, rng):
        """A matrix and the mask in the file mask.npy; what it leaves out of in.npy is NaN."""
        mask = rng.random(matrix.shape) < 0.7
        np.save("mask.npy", mask)
        np.save("in.npy", np.where(mask, matrix, np.nan))
        return matrix, mask

    @pytest.mark.parametrize(
        ("flags", "keywords"),
        [
            (["-s", "0.6"], {"sparseness": 0.6}),
            (["--l1", "1", "--nonnegative"], {"l1": 1.0, "nonnegative": True}),
            (["-s", "0.6", "--axis", "0"], {"sparseness": 0.6, "axis": 0}),
            (["-s", "0.6", "--axis", "all"], {"sparseness": 0.6, "axis": None}),
        ],
    )
    def test_as_by_the_library(self, run, masked, monkeypatch, flags, keywords):
        matrix, mask = masked
        for block in (2**22, 70):
            monkeypatch.setattr("hoyer.cli.blocks.BLOCK", block)
            code, *_ = run("project", "in.npy", "out.npy", *flags, "--where", "mask.npy", "-f")
            assert code == 0
            expected = hoyer.project(matrix, where=mask, **keywords)
            np.testing.assert_allclose(np.load("out.npy"), expected, rtol=0, atol=4e-15)
            assert not np.load("out.npy")[~mask].any()

    def test_it_broadcasts(self, run, matrix):
        mask = np.arange(20) < 15
        np.save("mask.npy", mask)
        assert run("project", "in.npy", "out.npy", "-s", "0.6", "--where", "mask.npy")[0] == 0
        np.testing.assert_array_equal(np.load("out.npy"), hoyer.project(matrix, 0.6, where=mask))

    def test_missing_numbers_of_a_table_may_be_left_out(self, run, refused, folder):
        Path("in.csv").write_text("1,2,,4\n4,3,2,\n", encoding="utf-8")
        mask = np.array([[True, True, False, True], [True, True, True, False]])
        np.save("mask.npy", mask)
        assert run("project", "in.csv", "out.csv", "-s", "0.6", "--where", "mask.npy")[0] == 0
        x = [[1.0, 2.0, 0.0, 4.0], [4.0, 3.0, 2.0, 0.0]]
        found = np.loadtxt("out.csv", delimiter=",")
        np.testing.assert_array_equal(found, hoyer.project(x, 0.6, where=mask))
        np.save("mask.npy", np.array([True, True, True, False]))
        said = refused("project", "in.csv", "new.csv", "-s", "0.6", "--where", "mask.npy")
        assert said.startswith("in.csv has nan at entry 2 of vector 0 (counted from 0)")

    def test_the_entry_that_is_named_is_one_that_counts(self, refused, masked):
        matrix, mask = masked
        bad = np.where(mask, matrix, np.nan)
        row, column = np.argwhere(mask)[-1]
        bad[row, column] = np.inf
        np.save("in.npy", bad)
        said = refused("project", "in.npy", "out.npy", "-s", "0.6", "--where", "mask.npy")
        assert said.startswith(f"in.npy has inf at entry {column} of vector {row} (counted from 0)")

    def test_files_that_are_no_masks(self, refused, matrix):
        def said(name):
            return refused("project", "in.npy", "out.npy", "-s", "0.6", "--where", name)

        np.save("mask.npy", np.ones(20))
        assert said("mask.npy").startswith("--where: mask.npy has dtype float64: give a .npy file")
        np.save("mask.npy", np.ones(7, bool))
        assert said("mask.npy") == (
            "--where: mask.npy has shape (7,), which does not broadcast to that of in.npy, (50, 20)"
        )
        np.savez("mask.npz", mask=np.ones(20, bool))
        assert said("mask.npz").startswith("--where: mask.npz is a .npz file: give a .npy file")
        assert said("none.npy").startswith("cannot read none.npy")
        assert refused("project", "-", "-", "-s", "0.6", "--where", "-").startswith(
            "--where - with"
        )


class TestStandardStreams:
    @pytest.fixture
    def feed(self, monkeypatch):
        """Give bytes to standard input."""

        def feed_bytes(data):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

        return feed_bytes

    @pytest.fixture
    def run_binary(self, capsysbinary):
        def run_command(*arguments):
            code = cli.run([str(argument) for argument in arguments])
            captured = capsysbinary.readouterr()
            return code, captured.out, captured.err.decode()

        return run_command

    @pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
    def test_all_kinds(self, run_binary, feed, matrix, kind):
        np.savez("in.npz", x=matrix)
        np.savetxt("in.csv", matrix, delimiter=";", fmt="%.17g")
        run_binary("project", f"in.{kind}", f"out.{kind}", "-s", "0.9")
        expected = Path(f"out.{kind}").read_bytes()
        feed(Path(f"in.{kind}").read_bytes())
        array = ", array 'x'" if kind == "npz" else ""
        words = f"standard output{array}: 50 vectors of length 20, float64\n"
        code, out, err = run_binary("project", "-", "-", "-s", "0.9")
        assert (code, err) == (0, words)
        assert kind == "npz" or out == expected  # an archive has the time in it
        if kind == "npz":
            with np.load(io.BytesIO(out)) as found:
                np.testing.assert_array_equal(found["x"], hoyer.project(matrix, 0.9))
        code, out, _ = run_binary("project", f"in.{kind}", "-", "-s", "0.9")
        assert code == 0
        assert kind == "npz" or out == expected
        feed(Path(f"in.{kind}").read_bytes())
        assert run_binary("project", "-", f"back.{kind}", "-s", "0.9")[0] == 0
        assert kind == "npz" or Path(f"back.{kind}").read_bytes() == expected
        feed(Path(f"in.{kind}").read_bytes())
        code, out, _ = run_binary("measure", "-", "--only", "hoyer", "--json")
        (found,) = json.loads(out)["arrays"]
        assert (code, found["file"], found["vectors"]) == (0, "-", 50)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            (b"", "standard input is empty"),
            (b"\x93NUMPY\x01", "standard input is incomplete: it ends before its last number"),
            (b"PK\x03\x04", "standard input is not a .npz archive, or is damaged"),
            (b"\x80\xff", "standard input is not a .csv or .tsv file: it is no text in UTF-8"),
            (b"1,x\n", "standard input, line 1 has names ('x') and numbers ('1')"),
            (
                b"1 2 3 4\n",
                "standard input has a header but no numbers: '1 2 3 4' is several numbers: say "
                "with --delimiter what separates them",
            ),
            (b"1,2\n", "out.npy: the result of standard input must be a .csv file too"),
        ],
    )
    def test_what_is_refused(self, refused, feed, folder, data, text):
        feed(data)
        target = "out.npy" if data == b"1,2\n" else "-"
        assert refused("project", "-", target, "-s", "0.9").startswith(text)

    def test_an_error_leaves_nothing_on_standard_output(self, refused, feed, folder):
        np.savez("in.npz", good=np.arange(100.0), bad=[1.0, np.nan])
        assert "'bad', has nan" in refused("project", "in.npz", "-", "-s", "0.9")

    @pytest.mark.parametrize("stream", ["stdin", "stdout"])
    def test_a_closed_stream(self, refused, matrix, monkeypatch, stream):
        monkeypatch.setattr(sys, stream, None)
        source, word = ("-", "read standard input") if stream == "stdin" else ("in.npy", "write")
        assert refused("project", source, "-", "-s", "0.9").startswith(f"cannot {word}")

    @pytest.mark.parametrize(("name", "code"), [("in.npy", 2), ("in.npz", 2), ("in.csv", 0)])
    def test_a_terminal_gets_text_only(self, matrix, name, code):
        np.savez("in.npz", x=matrix)
        Path("in.csv").write_text("1,2\n", encoding="utf-8")
        terminal, end = os.openpty()
        process = command("", "project", name, "-", "-s", "0.9", stdout=end)
        _, err = process.communicate(timeout=60)
        os.close(end)
        os.close(terminal)
        assert process.returncode == code
        if code:
            assert err == (
                f"hoyer: the result of {name} is a {name[-4:]} file, and standard output is a "
                "terminal: redirect it with > FILE\n"
            )

    def test_a_reader_that_goes_away(self, folder, rng):
        np.save("in.npy", rng.random((1000, 100)))
        process = command("", "project", "in.npy", "-", "-s", "0.9", text=False)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(60) != 0

    def test_a_pipe_by_its_name(self, refused, folder):
        for kind in ("npy", "npz", "csv"):
            os.mkfifo(f"in.{kind}")
            for arguments in (("project", f"in.{kind}", f"o.{kind}", "-s", "0.9"), ("measure",)):
                text = refused(*arguments, *([f"in.{kind}"] if len(arguments) == 1 else []))
                assert text == (
                    f"cannot read in.{kind}: it is no regular file: give - instead, and redirect "
                    "it to standard input"
                )
        os.symlink("/dev/zero", "zero.csv")
        assert refused("measure", "zero.csv").startswith("cannot read zero.csv: it is no regular")


class TestNotFinite:
    @pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
    def test_they_become_nan_if_that_is_wanted(self, run, folder, kind):
        x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 4.0], [np.inf, 0.0, 1.0]])
        np.save("in.npy", x)
        np.savez("in.npz", x=x)
        np.savetxt("in.csv", x, delimiter=",")
        names = (f"in.{kind}", f"out.{kind}", "-s", "0.6")
        assert run("project", *names)[0] == 2
        assert run("project", *names, "--no-check-finite")[0] == 0
        found = {
            "npy": lambda: np.load("out.npy"),
            "npz": lambda: np.load("out.npz")["x"],
            "csv": lambda: np.loadtxt("out.csv", delimiter=","),
        }[kind]()
        np.testing.assert_array_equal(found, hoyer.project(x, 0.6, check_finite=False))

    def test_the_error_says_what_to_do(self, refused, folder):
        np.save("in.npy", [[1.0, 2.0], [3.0, np.nan]])
        assert refused("project", "in.npy", "out.npy", "-s", "0.6") == (
            "in.npy has nan at entry 1 of vector 1 (counted from 0); only finite vectors can be "
            "projected (--no-check-finite returns NaN for such vectors)"
        )
        np.savez("in.npz", x=[1.0, -np.inf])
        assert refused("project", "in.npz", "out.npz", "-s", "0.6") == (
            "in.npz, array 'x', has -inf at entry 1 (counted from 0); only finite vectors can be "
            "projected, and no mask is made of -inf: to leave entries out, give a mask as --where "
            "(--no-check-finite returns NaN for such vectors)"
        )

    @pytest.mark.parametrize("limit", [2, 100], indirect=True)
    def test_in_blocks(self, folder, limit):
        x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 4.0]])
        np.save("in.npy", x)
        options = {"sparseness": 0.6, "check_finite": False}
        project_file(Path("in.npy"), Path("out.npy"), -1, options)
        expected = hoyer.project(x, 0.6, check_finite=False)
        np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-15)


def test_the_session_of_the_guide(run, folder):
    x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    np.save("weights.npy", x)
    guide = Path(__file__).parents[1] / "docs" / "guides" / "command_line.md"
    session = guide.read_text(encoding="utf-8").split("```console\n")[1].split("```")[0]
    for step in session.removeprefix("$ ").split("\n$ "):
        line, expected = step.strip().split("\n", 1)
        program, *arguments = line.split()
        code, out, _ = run(*arguments)
        assert (program, code, out.strip()) == ("hoyer", 0, expected)


class TestBlocks:
    @pytest.mark.parametrize("shape", [(), (7,), (3, 4), (2, 3, 5), (1, 1, 9)])
    @pytest.mark.parametrize("limit", [1, 6, 11, 10**6], indirect=True)
    def test_they_cover_everything_once_in_order(self, shape, limit):
        seen = np.zeros(shape, int)
        for number, index in enumerate(blocks(shape, 2), 1):
            assert (seen[index] == 0).all()
            assert 2 * seen[index].size <= max(limit, 2)
            seen[index] = number
        assert (seen > 0).all()
        assert (np.diff(seen.ravel()) >= 0).all()

    @pytest.mark.parametrize("limit", [1, 5, 100], indirect=True)
    def test_the_first_that_is_not_finite(self, limit):
        x = np.zeros((3, 4, 5))
        assert first_not_finite(x) is None
        x[2, 0, 1], x[1, 3, 2] = np.nan, np.inf
        assert first_not_finite(x) == (1, 3, 2)

    # 7 entries: single vectors, longer than a block; 60: a few vectors at a time.
    @pytest.mark.parametrize("limit", [7, 60, 10**6], indirect=True)
    @pytest.mark.parametrize("axis", [-1, 0, 1, (0, 2), None])
    @pytest.mark.parametrize("dtype", ["float32", "int32", ">f8"])
    def test_the_result_does_not_depend_on_them(self, folder, rng, limit, axis, dtype):
        x = (100 * rng.normal(size=(6, 11, 4))).astype(dtype)
        np.save("in.npy", x)
        project_file(Path("in.npy"), Path("out.npy"), axis, {"sparseness": 0.6})
        expected = hoyer.project(x, 0.6, axis=axis)
        found = np.load("out.npy")
        assert found.dtype == expected.dtype
        # Alone or in a batch a vector may differ in its last bits.
        np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.finfo(found.dtype).eps)

    @pytest.mark.parametrize("limit", [8], indirect=True)
    def test_a_long_column_becomes_contiguous(self, folder, rng, limit):
        x = rng.normal(size=(30, 2))
        np.save("in.npy", x)
        project_file(Path("in.npy"), Path("out.npy"), 0, {"sparseness": 0.6})
        assert np.load("out.npy").flags.f_contiguous
        np.testing.assert_allclose(np.load("out.npy"), hoyer.project(x, 0.6, axis=0), atol=1e-15)

    @pytest.mark.parametrize("limit", [2, 8, 1000], indirect=True)
    def test_a_bad_number_is_found_where_it_is(self, folder, limit):
        x = np.ones((3, 4, 5))
        x[1, 2, 3] = np.nan
        np.save("in.npy", x)
        for axis, place in (
            (-1, "entry 3 of vector (1, 2)"),
            ((0, 2), "entry (1, 3) of vector 2"),
            (None, "entry (1, 2, 3) (counted"),
        ):
            with pytest.raises(ValueError, match=r"in\.npy has nan at") as caught:
                project_file(Path("in.npy"), Path("o.npy"), axis, {"sparseness": 0.5})
            assert place in str(caught.value)
        assert [path.name for path in folder.iterdir()] == ["in.npy"]

    @pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA")
    @pytest.mark.parametrize("axis", ["-1", "all"])
    def test_files_larger_than_the_memory_allowed(self, folder, axis):
        rows = np.lib.format.open_memmap("in.npy", "w+", np.float32, (2**19, 128))
        rows[...] = np.random.default_rng(0).random(128, np.float32)
        del rows
        script = """
import resource, sys
import numpy as np, hoyer, hoyer.cli.app
hoyer.project(np.ones((2, 3)), 0.5)
resource.setrlimit(resource.RLIMIT_DATA, (200 * 2**20, 200 * 2**20))
try:
    np.array(np.load("in.npy"))
except MemoryError:
    print("does not fit")
"""
        environment = {**os.environ, "HOYER_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
        process = command(
            script, "project", "in.npy", "out.npy", "-s", "0.9", "--axis", axis, env=environment
        )
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.startswith("does not fit\nout.npy: ")
        found = np.load("out.npy", mmap_mode="r")
        vectors = found if axis == "-1" else np.reshape(found, (1, -1))
        np.testing.assert_allclose(hoyer.sparseness(vectors[:5]), 0.9, atol=1e-5)

    def test_a_bar_on_a_terminal_only(self, folder, rng):
        np.save("in.npy", rng.random((2000, 8)))
        script = """
from hoyer.cli import blocks
blocks.BLOCK = 8
"""
        terminal, end = os.openpty()
        options = {"stderr": end, "env": {**os.environ, "TERM": "xterm", "COLUMNS": "80"}}
        process = command(script, "project", "in.npy", "out.npy", "-s", "0.9", **options)
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(terminal, 4096):
                shown += piece
        os.close(terminal)
        out, _ = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "out.npy: 2000 vectors of length 8, float64\n")
        assert b"in.npy" in shown
        assert b"100%" in shown


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ([], "no target: give --sparseness"),
            (["--l2", "3"], "no target: give --sparseness"),
            (["--l2", "3", "--at-most"], "no target: give --sparseness"),
            (["-s", ".5", "--at-most"], "in.npy: sparseness=0.5 with --at-most: bounds are given"),
            (["--l1", "3", "--only-increase"], "in.npy: --only-increase with l1=3.0 alone: one"),
            (["--l1", "3", "--l2", "keep"], "in.npy: sparseness=None, l1=3.0, l2='keep' is no"),
            (["-s", "high"], "Invalid value for '--sparseness' / '-s': 'high' is no number"),
            (["-s", "1.5"], "in.npy: sparseness must lie in [0, 1], got 1.5"),
            (["-s", "nan"], "in.npy: sparseness must lie in [0, 1], got nan"),
            (["--l1", "50", "--l2", "1"], "in.npy: l1=50.0 and l2=1.0 are impossible for vectors"),
            (["-s", "0.5", "--l1", "2", "--l2", "1"], "in.npy: sparseness=0.5, l1=2.0, l2=1.0: "),
            (["-s", "0.5", "--l2", "x"], "Invalid value for '--l2': 'x' is no number, nor 'keep'"),
            (["-s", "0.5", "--axis", "x"], "Invalid value for '--axis': 'x' is no axis (-1), nor"),
            (["-s", "0.5", "--axis", "5"], "in.npy: axis=5: x has"),
            (["-s", "0.5", "--solver", "x"], "Invalid value for '--solver': 'x' is not one of"),
            (["-s", "0.5", "--fast"], "No such option: --fast"),
            (["-s", "0.5", "third"], "Got unexpected extra argument"),
            (["-s"], "Option '-s' requires an argument."),
        ],
    )
    def test_project(self, refused, matrix, arguments, text):
        assert refused("project", "in.npy", "out.npy", *arguments).startswith(text)

    def test_kinds_of_files(self, refused, matrix):
        text = refused("project", "in.npy", "out.csv", "-s", "0.9")
        assert text == "out.csv: the result of in.npy must be a .npy file too"
        text = refused("project", "in.zarr", "out.zarr", "-s", "0.9")
        assert text == "cannot read in.zarr: No such file or directory"
        Path("in.txt").touch()
        text = refused("project", "in.txt", "out.txt", "-s", "0.9")
        assert text == "in.txt: the name must end in .npy, .npz, .csv, .tsv"

    def test_no_such_thing(self, refused):
        assert refused("proiect") == "No such command 'proiect'. Did you mean 'project'?"
        assert refused("project", "in.npy") == "Missing argument 'OUT'."
        assert refused("--fast").startswith("No such option: --fast")
        assert refused("measure") == "nothing to measure: give FILE, --list or --criteria"
        assert refused("measure", "x.npy", "--only", "gino").startswith(
            "--only: no measure 'gino': choose from hoyer, l0, "
        )

    def test_help_and_version(self, run):
        assert run("--version") == (0, f"hoyer {hoyer.__version__}\n", "")
        for arguments in ([], ["--help"], ["-h"]):
            code, out, err = run(*arguments)
            assert (code, err) == (0, "")
            assert "project" in out
            assert "measure" in out
            assert "reproduce" in out
            assert "..." not in out.partition("Commands:")[2]  # nothing is cut off
        for name in ("project", "measure"):
            code, out, _ = run(name, "--help")
            assert code == 0
            assert f"hoyer {name} weights.npy" in out
            assert "\x1b" not in out

    @pytest.mark.parametrize("missing", ["typer", "rich"])
    def test_without_the_extra_it_says_what_to_install(self, missing):
        process = command(f"import sys; sys.modules['{missing}'] = None", "--version")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (2, "")
        assert err == f"hoyer: the command line needs {missing}: run  pip install 'hoyer[cli]'\n"

    def test_a_reader_that_goes_away(self):
        process = command("", "measure", "--criteria", bufsize=0)
        process.stdout.close()
        assert process.stderr.read() == ""
        process.stderr.close()
        assert process.wait(60) != 0

    @pytest.mark.parametrize(
        "program", [["-m", "hoyer"], [str(Path(sys.executable).parent / "hoyer")]]
    )
    def test_the_two_ways_to_call_it(self, program):
        start = [sys.executable, *program] if program[0] == "-m" else program
        done = subprocess.run([*start, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"hoyer {hoyer.__version__}\n"
        done = subprocess.run([*start, "bake"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (2, "hoyer: No such command 'bake'.\n")
