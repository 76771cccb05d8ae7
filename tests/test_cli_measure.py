"""``hoyer measure``: values, lists, criteria, JSON."""

import json
from pathlib import Path

import numpy as np
import pytest

import hoyer
from hoyer.cli import measure as measuring
from hoyer.cli.blocks import spare_memory
from hoyer.measures import MEASURES


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
