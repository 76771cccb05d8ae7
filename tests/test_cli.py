"""The command line: files in, files out, one line for every error, nothing half written."""

import contextlib
import csv
import fcntl
import io
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hoyer
from hoyer import cli
from hoyer.cli import measure as measuring
from hoyer.cli.blocks import blocks, first_not_finite, spare_memory
from hoyer.cli.project import project_file
from hoyer.measures import MEASURES


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def limit(request, monkeypatch):
    """How many entries a block may have."""
    monkeypatch.setattr("hoyer.cli.blocks.BLOCK", request.param)
    return request.param


@pytest.fixture
def run(capsys):
    """Run a command in this process; return exit code, stdout, stderr."""

    def run_command(*arguments):
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


@pytest.fixture
def refused(run, folder):
    """Run a command that must fail with one line and change no file; return the line."""

    def refused_command(*arguments):
        before = contents(folder)
        code, out, err = run(*arguments)
        assert code == 2, (out, err)
        assert out == ""
        assert err.startswith("hoyer: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        assert contents(folder) == before
        return err.removeprefix("hoyer: ").strip()

    return refused_command


@pytest.fixture
def matrix(folder, rng):
    x = rng.normal(size=(50, 20))
    np.save("in.npy", x)
    return x


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def command(script, *arguments, **options):
    """Start a fresh interpreter that runs the command line after a script."""
    code = f"{script}\nimport hoyer.cli; hoyer.cli.main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


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


class TestTables:
    """.csv files as other programs write them."""

    X = np.array([[1.0, 2.0, 4.0], [0.1, -7.25, 3e-5]])
    ROWS = ("1.0,2.0,4.0", "0.1,-7.25,3e-05")

    def check(self, run, lines, expected, *flags):
        """Project a table and look at every field of the result but the numbers."""
        Path("in.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        code, out, err = run("project", "in.csv", "out.csv", "-s", "0.6", "--force", *flags)
        assert (code, err) == (0, "")
        p = hoyer.project(self.X, 0.6)
        text = Path("out.csv").read_text(encoding="utf-8").split("\n")
        numbers = [[repr(value) for value in row] for row in p.tolist()]
        assert text == [*(line.format(*numbers) for line in expected), ""]
        return out

    @pytest.mark.parametrize("names", ["x,y,z", "0,1,2", '"a,b",y,z'])
    def test_the_index_that_pandas_writes(self, run, folder, names):
        lines = [f",{names}", f"10,{self.ROWS[0]}", f"007,{self.ROWS[1]}"]
        wanted = [f",{names}", "10,{0[0]},{0[1]},{0[2]}", "007,{1[0]},{1[1]},{1[2]}"]
        out = self.check(run, lines, wanted)
        assert out == (
            "out.csv: 2 vectors of length 3, float64; labels in column 0 (counted from 0) carried "
            "over\n"
        )

    def test_a_frame_and_a_series_of_pandas(self, run, folder):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(self.X, index=["one", 'two, "2"\n\n!'], columns=["x", "y", "z"])
        for given in (frame, frame.rename(columns={"x": 0, "y": 1, "z": 2}), frame["x"]):
            given.to_csv("in.csv")
            assert run("project", "in.csv", "out.csv", "-s", "0.6", "-f")[0] == 0
            found = pandas.read_csv("out.csv", index_col=0)
            assert list(found.index) == list(frame.index)
            expected = np.reshape(hoyer.project(given.to_numpy(), 0.6), found.shape)
            np.testing.assert_array_equal(found.to_numpy(), expected)

    @pytest.mark.parametrize("column", ["1", "id"])
    def test_an_index_column_by_number_or_name(self, run, folder, column):
        lines = ["x,id,y,z", "1.0,a b,2.0,4.0", '0.1,"c,""d""",-7.25,3e-05']
        wanted = ["x,id,y,z", "{0[0]},a b,{0[1]},{0[2]}", '{1[0]},"c,""d""",{1[1]},{1[2]}']
        out = self.check(run, lines, wanted, "--index-col", column)
        assert out.endswith("float64; labels in column 'id' carried over\n")

    @pytest.mark.parametrize(
        "label", ["a\rb", "a\nb", "a\r\n\r\nb", 'a"b', "a,b", " a", "", "a;\t"]
    )
    def test_labels_are_carried_over_as_they_are(self, run, folder, label):
        with Path("in.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["", "x", "y"], [label, 1, 2], ["c", 3, 5]])
        assert run("project", "in.csv", "out.csv", "-s", "0.6")[0] == 0
        with Path("out.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert [row[0] for row in rows] == ["", label, "c"]
        found = np.array([row[1:] for row in rows[1:]], float)
        np.testing.assert_array_equal(found, hoyer.project([[1.0, 2.0], [3.0, 5.0]], 0.6))

    def test_labels_without_a_header(self, run, refused, folder):
        lines = [f"a,{self.ROWS[0]}", f"b,{self.ROWS[1]}"]
        wanted = ["a,{0[0]},{0[1]},{0[2]}", "b,{1[0]},{1[1]},{1[2]}"]
        self.check(run, lines, wanted, "--no-header", "--index-col", 0)
        for flags in ([], ["--index-col", "0"]):
            text = refused("project", "in.csv", "x.csv", "-s", "0.6", *flags)
            assert text.startswith("in.csv, line 1 has names ('a') and numbers ('1.0'): add")

    def test_a_header_of_numbers(self, run, folder):
        lines = ["2019,2020,2021", *self.ROWS]
        rows = ["{0[0]},{0[1]},{0[2]}", "{1[0]},{1[1]},{1[2]}"]
        self.check(run, lines, ["2019,2020,2021", *rows], "--header")
        self.check(run, self.ROWS, rows, "--no-header")
        self.check(run, self.ROWS, rows)

    def test_a_name_among_numbers_is_a_header_if_it_is_the_index(self, run, folder):
        lines = ["name,2019,2020,2021", *(f"a,{row}" for row in self.ROWS)]
        wanted = [lines[0], "a,{0[0]},{0[1]},{0[2]}", "a,{1[0]},{1[1]},{1[2]}"]
        self.check(run, lines, wanted, "--index-col", "name")

    @pytest.mark.parametrize("sign", [";", "\t", ",", "|", " "])
    def test_delimiters(self, run, folder, sign):
        flags = ["--delimiter", sign] if sign in "| " else []
        rows = [row.replace(",", sign) for row in self.ROWS]
        wanted = [
            row.replace(",", sign) for row in ("{0[0]},{0[1]},{0[2]}", "{1[0]},{1[1]},{1[2]}")
        ]
        self.check(run, rows, wanted, *flags)
        names = sign.join(["x", '"y;\t,\u001c| y"', "z"])
        self.check(run, [names, *rows], [names, *wanted], *flags)
        tab = ["--delimiter", "tab"] if sign == "\t" else ["--delimiter", sign]
        self.check(run, [names, *rows], [names, *wanted], *tab)

    @pytest.mark.parametrize("sign", ["\x1c", "\x85", "\u2028", "\x0b", "\x0c"])
    def test_only_ends_of_lines_end_lines(self, run, folder, sign):
        Path("in.csv").write_text(f"a{sign}1,b\n1,2\n3,5\n", encoding="utf-8")
        _, out, _ = run("project", "in.csv", "out.csv", "-s", "0.6")
        assert out == "out.csv: 2 vectors of length 2, float64\n"
        text = Path("out.csv").read_text(encoding="utf-8")
        assert text.startswith(f"a{sign}1,b\n")

    @pytest.mark.parametrize("end", ["\r\n", "\r"])
    def test_other_ends_of_lines(self, run, folder, end):
        text = end.join(["", "a,b", "", '"1",2', " ", "3,5", ""])
        Path("in.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert run("project", "in.csv", "out.csv", "-s", "0.6")[0] == 0
        found = np.loadtxt("out.csv", delimiter=",", skiprows=1)
        np.testing.assert_array_equal(found, hoyer.project([[1.0, 2.0], [3.0, 5.0]], 0.6))

    @pytest.mark.parametrize(
        ("flags", "text"),
        [
            (
                ["--index-col", "9"],
                "--index-col: in.csv has no column '9': give a number from 0 to",
            ),
            (["--index-col", "b"], "--index-col: in.csv has several columns 'b': give a number"),
            (
                ["--index-col", "q"],
                "--index-col: in.csv has no column 'q': give a number from 0 to",
            ),
            (["--index-col", "0", "--delimiter", "|"], "in.csv: --index-col '0': its only column"),
            (["--no-header"], "in.csv, line 1, column 0 (counted from 0): 'a' is no number"),
            (["--delimiter", ";;"], "Invalid value for '--delimiter': ';;' is no single character"),
            (["--delimiter", "1"], "Invalid value for '--delimiter': '1' is no single character"),
            (["--delimiter", ""], "Invalid value for '--delimiter': '' is no single character"),
            (["--arrays", "a"], "--arrays is for .npz archives, but in.csv is a .csv file"),
            (["--index-col", "a"], "in.csv, line 3: 4 fields, but 3 names in the header"),
        ],
    )
    def test_what_is_refused(self, refused, folder, flags, text):
        Path("in.csv").write_text("a,b,b\n1,2,3\n1,2,3,4\n", encoding="utf-8")
        assert refused("project", "in.csv", "out.csv", "-s", "0.6", *flags).startswith(text)

    @pytest.mark.parametrize("flag", [["--delimiter", ";"], ["--index-col", "0"], ["--header"]])
    def test_options_of_tables_are_not_ignored_elsewhere(self, refused, matrix, flag):
        text = refused("project", "in.npy", "out.npy", "-s", "0.9", *flag)
        assert text.startswith(
            "--delimiter, --header and --index-col are for .csv and .tsv files, but in.npy"
        )

    def test_columns_that_pandas_has_counted(self, run, folder):
        np.savetxt("in.csv", self.X, delimiter=",", header="0,1,2", comments="")
        note = (
            "in.csv, line 1 is taken for a header, as it counts from 0 to 2, which is how pandas "
            "names columns: add --no-header if it is numbers\n"
        )
        code, out, err = run("project", "in.csv", "out.csv", "-s", "0.6")
        assert (code, err) == (0, note)
        assert out == "out.csv: 2 vectors of length 3, float64\n"
        text = Path("out.csv").read_text(encoding="utf-8")
        assert text.startswith("0,1,2\n")
        found = np.loadtxt("out.csv", delimiter=",", skiprows=1)
        np.testing.assert_array_equal(found, hoyer.project(self.X, 0.6))
        code, out, err = run("measure", "in.csv", "--only", "hoyer")
        assert (code, out.splitlines()[0]) == (0, "in.csv: 2 vectors of length 3, float64")
        assert err == note
        for flag, count in (("--no-header", 3), ("--header", 2)):
            code, out, err = run("measure", "in.csv", "--only", "hoyer", flag)
            assert (code, err) == (0, "")
            assert out.startswith(f"in.csv: {count} vectors of length 3")

    def test_a_line_that_counts_but_is_alone_has_numbers(self, run, folder):
        Path("in.csv").write_text("0,1,2\n", encoding="utf-8")
        code, out, err = run("measure", "in.csv", "--only", "hoyer")
        assert (code, err) == (0, "")
        assert out.startswith("in.csv: 1 vector of length 3")

    def test_a_column_that_begins_with_zero(self, run, folder):
        Path("in.csv").write_text("0\n1.5\n2.0\n", encoding="utf-8")
        code, out, err = run("measure", "in.csv", "--only", "hoyer")
        assert (code, out.splitlines()[0]) == (0, "in.csv: 1 vector of length 3, float64")
        assert err == (
            "in.csv, line 1 is taken for a number, 0: add --header if it is the name that pandas "
            "gives a column without one\n"
        )

    def test_years_above_an_index(self, run, refused, folder):
        lines = [",2001,2002,2003", f"a,{self.ROWS[0]}", f"7,{self.ROWS[1]}"]
        Path("in.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        code, out, err = run("project", "in.csv", "out.csv", "-s", "0.6")
        assert code == 0
        assert "2 vectors of length 3, float64; labels in column 0 (counted from 0)" in out
        assert err == (
            "in.csv, line 1 is taken for a header above an index, as only its first field is "
            "empty: add --no-header if it is numbers\n"
        )
        rows = [line.split(",") for line in Path("out.csv").read_text("utf-8").splitlines()]
        assert [row[0] for row in rows] == ["", "a", "7"]
        assert rows[0][1:] == ["2001", "2002", "2003"]
        text = refused("project", "in.csv", "x.csv", "-s", "0.6", "--no-header")
        assert text == "in.csv, line 1, column 0 (counted from 0): the number is missing ('')"
        # Where the field is empty in other lines as well, it is no index.
        Path("in.csv").write_text(",2001\n,3\n5,6\n", encoding="utf-8")
        assert refused("project", "in.csv", "x.csv", "-s", "0.6") == (
            "in.csv, line 1, column 0 (counted from 0): the number is missing (''); add --header "
            "if the line is a header"
        )

    @pytest.mark.parametrize(
        ("text", "option"),
        [
            ("name,a,b\nr1,1,2\nr2,3,4\n", "name"),
            ("the name,a,b\nr1,1,2\nr2,3,4\n", "'the name'"),
            ("a,a,b\nr1,1,2\nr2,3,4\n", "0"),
            ("a,b,name\n1,2,r1\n3,4,r2\n", "name"),
        ],
    )
    def test_a_column_of_text_is_an_index(self, run, refused, folder, text, option):
        Path("in.csv").write_text(text, encoding="utf-8")
        line = refused("project", "in.csv", "out.csv", "-s", "0.6")
        assert line.endswith(f"'r1' is no number; add --index-col {option} if these are labels")
        flags = ("--index-col", option.strip("'"))
        assert run("project", "in.csv", "out.csv", "-s", "0.6", *flags)[0] == 0
        Path("in.csv").write_text(text.replace("r2", "5"), encoding="utf-8")
        assert refused("measure", "in.csv").endswith("'r1' is no number")

    def test_tabs(self, run, refused, folder):
        np.savetxt("in.tsv", self.X, delimiter="\t", header="a, b\tb\tc", comments="")
        assert run("project", "in.tsv", "out.tsv", "-s", "0.6")[0] == 0
        assert Path("out.tsv").read_text(encoding="utf-8").startswith("a, b\tb\tc\n")
        found = np.loadtxt("out.tsv", delimiter="\t", skiprows=1)
        np.testing.assert_array_equal(found, hoyer.project(self.X, 0.6))
        _, out, _ = run("measure", "in.tsv", "--only", "hoyer")
        assert out.startswith("in.tsv: 2 vectors of length 3")
        text = refused("project", "in.tsv", "out.csv", "-s", "0.6")
        assert text == "out.csv: the result of in.tsv must be a .tsv file too"
        # Commas do not separate here, whatever the first line has.
        Path("in.tsv").write_text("1,2\n3,4\n", encoding="utf-8")
        assert "'1,2' has a comma" in refused("measure", "in.tsv", "--no-header")

    def test_a_missing_number_is_nan_if_that_is_wanted(self, run, refused, folder):
        Path("in.csv").write_text("a,b,c\n1,,4\nNA,2,3\n1,2,4\n", encoding="utf-8")
        assert refused("project", "in.csv", "out.csv", "-s", "0.6").startswith(
            "in.csv, line 2, column 'b': the number is missing ('')"
        )
        code, _, err = run("project", "in.csv", "out.csv", "-s", "0.6", "--no-check-finite")
        assert (code, err) == (0, "")
        found = np.loadtxt("out.csv", delimiter=",", skiprows=1)
        expected = hoyer.project([1.0, 2.0, 4.0], 0.6)
        np.testing.assert_array_equal(found, [[np.nan] * 3, [np.nan] * 3, expected])
        for bad in ("1_0", "x", "\u0663"):
            Path("in.csv").write_text(f"a,b\n1,\n{bad},2\n", encoding="utf-8")
            text = refused("project", "in.csv", "o.csv", "-s", "0.6", "--no-check-finite")
            assert text == f"in.csv, line 3, column 'a': {bad!r} is no number"
        _, out, _ = run("project", "--help")
        assert "a missing number of a .csv or .tsv file is NaN too" in " ".join(out.split())

    def test_measure_reads_the_same_tables(self, run, folder):
        Path("in.csv").write_text(";a;b\n9;0;1\n9;0;3\n", encoding="utf-8")
        _, out, _ = run("measure", "in.csv", "--only", "hoyer")
        assert out.splitlines()[0] == (
            "in.csv: 2 vectors of length 2, float64; labels in column 0 (counted from 0) left out"
        )
        Path("in.csv").write_text("9|0|x\n9|0|y\n", encoding="utf-8")
        flags = ("--delimiter", "|", "--no-header", "--index-col", "2", "--json")
        _, out, _ = run("measure", "in.csv", "--only", "hoyer", *flags)
        (array,) = json.loads(out)["arrays"]
        assert (array["labels"], array["length"]) == ("column 2 (counted from 0)", 2)
        assert array["measures"]["hoyer"]["mean"] == 1.0


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
        loaded = sparse.load_npz("in.npz")
        found = hoyer.project_sparse(loaded.toarray(), 0.7).toarray()
        np.testing.assert_array_equal(found, hoyer.project(loaded.toarray(), 0.7))
        np.testing.assert_allclose(hoyer.sparseness(loaded), hoyer.sparseness(loaded.toarray()))

    @pytest.mark.parametrize(
        ("bad", "flags", "text"),
        [
            (np.array(["a", "b"]), [], "in.npz, array 'bad', has dtype <U1"),
            (np.ones(1), [], "in.npz, array 'bad': sparseness=0.9: vectors of length 1"),
            (np.ones(4), ["--axis", "1"], "in.npz, array 'bad': axis: axis 1 is out of bounds"),
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


def npy_file(shape, descr="'<f8'", version=1):
    """The header of a .npy file."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 * version, "little") + text


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
            "projected, and no mask is made of -inf: take the entries that count and project those "
            "alone, y[keep] = hoyer.project(x[keep], ...) (--no-check-finite returns NaN for such "
            "vectors)"
        )

    @pytest.mark.parametrize("limit", [2, 100], indirect=True)
    def test_in_blocks(self, folder, limit):
        x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 4.0]])
        np.save("in.npy", x)
        options = {"sparseness": 0.6, "check_finite": False}
        project_file(Path("in.npy"), Path("out.npy"), -1, options)
        expected = hoyer.project(x, 0.6, check_finite=False)
        np.testing.assert_allclose(np.load("out.npy"), expected, atol=1e-15)


def test_the_session_of_the_readme(run, folder):
    x = np.random.default_rng(0).normal(size=(1000, 64)).astype("float32")
    np.save("weights.npy", x)
    readme = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
    session = readme.split("```console\n")[1].split("```")[0]
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


class TestReplacing:
    def test_an_existing_file_is_kept_without_force(self, run, refused, matrix):
        np.save("out.npy", np.zeros(3))
        text = refused("project", "in.npy", "out.npy", "-s", "0.9")
        assert text == "out.npy exists: add --force to replace it"
        assert refused("project", "in.npy", "in.npy", "-s", "0.9").startswith("in.npy exists")
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
            (np.ones(3, np.longdouble), "in.npy has dtype float128"),
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


class Trap:
    """Notices when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True


class TestOptions:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ([], "no target: give --sparseness"),
            (["--l1", "3"], "no target: give --sparseness"),
            (["-s", "high"], "Invalid value for '--sparseness' / '-s': 'high' is no number"),
            (["-s", "1.5"], "in.npy: sparseness must lie in [0, 1], got 1.5"),
            (["-s", "nan"], "in.npy: sparseness must lie in [0, 1], got nan"),
            (["--l1", "50", "--l2", "1"], "in.npy: l1=50.0 and l2=1.0 are impossible for vectors"),
            (["-s", "0.5", "--l1", "2", "--l2", "1"], "in.npy: sparseness=0.5, l1=2.0, l2=1.0: "),
            (["-s", "0.5", "--l2", "x"], "Invalid value for '--l2': 'x' is no number, nor 'keep'"),
            (["-s", "0.5", "--axis", "x"], "Invalid value for '--axis': 'x' is no axis (-1), nor"),
            (["-s", "0.5", "--axis", "5"], "in.npy: axis: axis 5 is out of bounds"),
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


class TestMeasure:
    def test_several_vectors(self, run, matrix):
        code, out, err = run("measure", "in.npy")
        assert (code, err) == (0, "")
        assert "\x1b" not in out
        lines = out.splitlines()
        assert lines[0] == "in.npy: 50 vectors of length 20, float64"
        assert lines[1].split() == ["measure", "smallest", "mean", "largest"]
        rows = {line.split()[0]: [float(part) for part in line.split()[1:4]] for line in lines[2:]}
        assert list(rows) == ["hoyer", *(name for name in MEASURES if name != "hoyer")]
        assert max(map(len, lines)) <= 100
        for name, measure in MEASURES.items():
            values = measure(matrix)
            expected = [values.min(), values.mean(), values.max()]
            np.testing.assert_allclose(rows[name], expected, rtol=1e-5)

    def test_one_vector(self, run, folder):
        Path("x.csv").write_text("1,2,2\n", encoding="utf-8")
        _, out, _ = run("measure", "x.csv", "--only", "gini, l0")
        assert out.splitlines() == [
            "x.csv: 1 vector of length 3, float64",
            "measure     value",
            "gini     0.133333  the Gini index",
            "l0              0  how many entries are zero",
        ]

    def test_every_array_of_an_archive(self, run, folder):
        np.savez("x.npz", a=np.ones((2, 3)), b=np.arange(4))
        _, out, _ = run("measure", "x.npz", "--only", "hoyer")
        assert out.splitlines()[0] == "x.npz, array 'a': 2 vectors of length 3, float64"
        assert "x.npz, array 'b': 1 vector of length 4, int64" in out

    def test_undefined_values_are_counted(self, run, folder):
        np.save("x.npy", [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, np.nan, 2.0]])
        _, out, _ = run("measure", "x.npy", "--only", "hoyer,l0")
        assert [line.split() for line in out.splitlines()[1:]] == [
            ["measure", "smallest", "mean", "largest", "undefined"],
            [
                "hoyer",
                "0.53331",
                "0.53331",
                "0.53331",
                "2",
                "Hoyer's",
                "sparseness",
                "of",
                "vectors",
            ],
            ["l0", "1", "2", "3", "1", "how", "many", "entries", "are", "zero"],
        ]

    def test_axis(self, run, matrix):
        _, out, _ = run("measure", "in.npy", "--axis", "0", "--only", "gini")
        assert out.startswith("in.npy: 20 vectors of length 50")
        _, out, _ = run("measure", "in.npy", "--axis", "all", "--only", "gini")
        assert out.startswith("in.npy: 1 vector of length 1000")

    @pytest.mark.parametrize("limit", [1, 50, 10**6], indirect=True)
    def test_blocks_do_not_matter(self, matrix, limit):
        (found,) = measuring.measure_file(Path("in.npy"), 0, tuple(MEASURES))
        for name, measure in MEASURES.items():
            values = measure(matrix, axis=0)
            expected = [values.min(), values.mean(), values.max()]
            found_numbers = [*found.ranges[name].numbers().values()]
            np.testing.assert_allclose(found_numbers, expected, rtol=1e-12)

    def test_json(self, run, folder):
        np.save("x.npy", [[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
        _, out, _ = run("measure", "x.npy", "--json", "--only", "gini,u_theta", "--axis", "all")
        data = json.loads(out)
        assert data["criteria"] == {}
        (array,) = data["arrays"]
        assert (array["file"], array["array"]) == ("x.npy", None)
        assert (array["vectors"], array["length"]) == (1, 6)
        assert array["measures"]["gini"]["mean"] == pytest.approx(
            hoyer.measures.gini([1.0, 2.0, 2.0, 0.0, 0.0, 0.0])
        )
        np.save("x.npy", np.zeros(3))
        _, out, _ = run("measure", "x.npy", "--json", "--only", "gini", "--criteria")
        data = json.loads(out)
        assert data["arrays"][0]["measures"]["gini"] == {
            "smallest": None,
            "mean": None,
            "largest": None,
            "undefined": 1,
        }
        assert data["criteria"]["gini"]["D4"]["holds"] is True

    @pytest.mark.parametrize("axis", ["-1", "0", "all"])
    def test_as_many_axes_as_numpy_has(self, run, folder, axis):
        x = np.arange(1.0, 5.0)
        np.save("x.npy", x.reshape((2,) + (1,) * 62 + (2,)))
        code, out, err = run("measure", "x.npy", "--json", "--axis", axis)
        assert (code, err) == (0, "")
        (found,) = json.loads(out)["arrays"]
        rows = {"-1": x.reshape(2, 2), "0": x.reshape(2, 2).T, "all": x}[axis]
        for name, measure in MEASURES.items():
            mean = found["measures"][name]["mean"]
            expected = measure(rows).mean()
            assert mean == pytest.approx(expected, nan_ok=True) or (
                mean is None and np.isnan(expected)
            )

    def test_a_line_on_each_measure(self, run):
        code, out, _ = run("measure", "--list")
        first, *lines = out.splitlines()
        assert code == 0
        assert [line.split()[0] for line in lines][:3] == ["hoyer", "l0", "l0_eps"]
        assert {line.split()[0] for line in lines} == set(MEASURES)
        assert "l2_over_l1    the quotient of norms: sqrt(sum_j c_j^2) / sum_j c_j" in lines
        start = lines[0].index("Hoyer's sparseness")
        for line in [first, *lines]:
            assert len(line) <= 100
            assert line[start - 1] == " " != line[start]
        _, out, _ = run("measure", "--list", "--json", "--only", "gini")
        assert list(json.loads(out)["measures"]) == ["gini"]

    def test_criteria(self, run):
        code, out, _ = run("measure", "--criteria")
        assert code == 0
        lines = out.splitlines()
        assert lines[1].split() == ["measure", "D1", "D2", "D3", "D4", "P1", "P2"]
        rows = {line.split()[0]: line.split()[1:] for line in lines[2 : 2 + len(MEASURES)]}
        assert rows["gini"] == rows["pq_mean"] == ["yes"] * 6
        assert rows["hoyer"] == ["yes", "yes", "yes", "no", "yes", "yes"]
        assert "D4 Cloning: to repeat the vector leaves it as it is" in lines
        assert "  hoyer         S(1, 2) = 0.1752, but S(1, 2, 1, 2) = 0.1026" in lines

    def test_vectors_too_long_for_the_memory(self, refused, run, matrix, monkeypatch):
        monkeypatch.setattr("hoyer.cli.blocks.spare_memory", lambda: 700)
        text = refused("measure", "in.npy")
        assert text.startswith("in.npy: a vector of length 20 needs about 0.0 GiB of memory")
        assert run("measure", "in.npy", "--only", "hoyer")[0] == 0

    def test_there_is_some_memory(self):
        assert 2**20 < spare_memory() < 2**50

    @pytest.mark.parametrize(
        ("array", "text"),
        [
            (np.float64(3), "x.npy is a single number"),
            (np.ones(2, complex), "x.npy has dtype complex128"),
            (np.ones((2, 0)), "x.npy of shape (2, 0) has vectors without entries"),
        ],
    )
    def test_what_is_refused(self, refused, folder, array, text):
        np.save("x.npy", array)
        assert refused("measure", "x.npy").startswith(text)
        assert refused("measure", "y.npy") == "cannot read y.npy: No such file or directory"
