"""The command line on .csv and .tsv files: delimiters, headers, labels, what is no number."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import hoyer


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
        # Version 3 reads all digits by itself, and warns of the argument by which older ones do.
        digits = (
            {} if int(pandas.__version__.split(".")[0]) > 2 else {"float_precision": "round_trip"}
        )
        frame = pandas.DataFrame(self.X, index=["one", 'two, "2"\n\n!'], columns=["x", "y", "z"])
        for given in (frame, frame.rename(columns={"x": 0, "y": 1, "z": 2}), frame["x"]):
            given.to_csv("in.csv")
            assert run("project", "in.csv", "out.csv", "-s", "0.6", "-f")[0] == 0
            found = pandas.read_csv("out.csv", index_col=0, **digits)
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
