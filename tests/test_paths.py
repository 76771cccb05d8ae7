"""Every path of the fast search, forced on small vectors, gives what the full search gives."""

import os
import subprocess
import sys

import numpy as np
import pytest
from plans import own_masked_plan, own_plan
from reference import error_in_eps, exact_projection

import hoyer
from hoyer import _core
from hoyer.options import Options
from hoyer.paper.problems import KINDS, collection, random_vector

NEVER = 1 << 60
# Thresholds (SamplingRules in native/jobs.hpp) under which vectors of any length take the path.
SHORT = {"shortest": NEVER, "longest_lane": 0}
SAMPLED = {"shortest": 600, "longest_lane": 0, "rough": False}
PATHS = {
    "full": SHORT | {"rough": False},
    "lanes": SHORT | {"rough": False, "longest_lane": NEVER, "shortest_sifted": NEVER},
    "lanes, sifted": SHORT
    | {"rough": False, "longest_lane": NEVER, "shortest_sifted": 1, "sifted_share": 1.0},
    "rough": SHORT | {"shortest_bracket": NEVER},
    "rough bracket": SHORT | {"shortest_bracket": 2},
    "sampled": SAMPLED,
    "sampled, positions noted": SAMPLED | {"rare": 1.0},
    "sampled, small buffer: two sides or fallback": SAMPLED
    | {"buffer_bytes": 1 << 13, "fewest": 1.0},
    "sampled, narrow bracket: misses": SAMPLED | {"standard_errors": 0.05},
    "sampled, positions noted: misses": SAMPLED
    | {"rare": 1.0, "standard_errors": 0.05, "rough": True},
    "sampled, aimed": SAMPLED | {"rough": True},
    "sampled, wide bracket": SAMPLED | {"standard_errors": 12.0, "fewest": 20.0},
}

LANES = ("lanes", "lanes, sifted")

each_path = pytest.mark.parametrize("path", PATHS)
both_sets = pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])


def options_for(target, nonnegative, where=None):
    norms = (target.get(name) for name in ("sparseness", "l1", "l2"))
    at_most = target.get("at_most", False)
    return Options(*norms, -1, nonnegative, False, "auto", True, at_most, where)


def run(x, target, path, *, nonnegative=False, where=None):
    """Project with other thresholds than the default ones; also return the reads of the vector."""
    options, mask = options_for(target, nonnegative, where), ()
    if where is None:
        plan = own_plan(x.shape[-1], options, x.shape[:-1])
    else:
        mask = where, where.sum(-1)
        plan = own_masked_plan(x.shape[-1], options, mask[1])
    plan.sample(**PATHS[path])
    out = np.full_like(x, np.nan)
    records = np.empty((x.size // x.shape[-1], len(_core.RECORD_FIELDS)))
    assert _core.project(x, out, plan, 1, False, False, False, records, *mask) == -1
    return out, records[:, _core.RECORD_FIELDS.index("evaluations")]


@each_path
@both_sets
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_the_collection(path, nonnegative, dtype):
    for problem in collection(dtype):
        if problem.x.size > 300 and path != "full":
            continue
        exact = exact_projection(problem.x, **problem.target, nonnegative=nonnegative)
        # Sixteen times the same vector: a whole group of lanes.
        x = np.tile(problem.x, (16, 1)) if path in LANES else problem.x
        value, _ = run(x, problem.target, path, nonnegative=nonnegative)
        for one in value.reshape(-1, problem.x.size)[:1]:
            assert error_in_eps(one, exact) <= 32, problem.name
        assert (value == value.reshape(-1, problem.x.size)[0]).all()


@each_path
@both_sets
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_random_vectors(path, nonnegative, kind, dtype):
    rng = np.random.default_rng(2)
    for n in (600, 1000, 5000):
        for sparseness in (0.1, 0.4, 0.6, 0.8, 0.9, 0.99):
            x = random_vector(kind, n, rng, dtype)
            target = {"sparseness": sparseness}
            value, _ = run(x, target, path, nonnegative=nonnegative)
            expected, _ = run(x, target, "full", nonnegative=nonnegative)
            limit = 4 * float(np.finfo(dtype).eps) * np.abs(expected).max()
            assert np.abs(value - expected).max() <= limit
            mismatch = (value == 0) != (expected == 0)
            assert (np.abs(value[mismatch]) <= limit).all()
            assert (np.abs(expected[mismatch]) <= limit).all()


@both_sets
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("path", LANES)
def test_lanes(path, nonnegative, kind, dtype):
    rng = np.random.default_rng(9)
    for n in (2, 3, 5, 16, 31, 48, 100, 256, 700):
        rows = 77  # four groups and a rest
        x = np.stack([random_vector(kind, n, rng, dtype) for _ in range(rows)])
        target = {"sparseness": rng.random(rows)}
        value, reads = run(x, target, path, nonnegative=nonnegative)
        expected, _ = run(x, target, "full", nonnegative=nonnegative)
        limit = 4 * float(np.finfo(dtype).eps) * np.abs(expected).max(axis=-1, keepdims=True)
        assert (np.abs(value - expected) <= limit).all()
        assert (reads <= 64).all()


@pytest.mark.parametrize("path", LANES)
def test_lanes_with_every_kind_of_trouble_side_by_side(path):
    x = np.random.default_rng(10).normal(size=(16, 20))
    x[1] = 0
    x[2] = 3
    x[3, 4:9] = 7
    x[5] *= 1e200
    x[6] *= 1e-300
    x[7] += 1e9
    x[8] = np.eye(20)[3]
    value, _ = run(x, {"sparseness": 0.7}, path)
    expected, _ = run(x, {"sparseness": 0.7}, "full")
    np.testing.assert_allclose(value, expected, rtol=0, atol=4 * np.finfo(float).eps)
    x[11, 3] = np.nan
    unchecked = hoyer.project(x, 0.7, check_finite=False)
    assert np.isnan(unchecked[11]).all()
    np.testing.assert_allclose(np.delete(unchecked, 11, 0), np.delete(expected, 11, 0), atol=1e-15)
    with pytest.raises(ValueError, match="entry 3 of vector 11"):
        hoyer.project(x, 0.7)


def arrangements(x):
    yield "sorted", np.sort(x)
    yield "reversed", np.sort(x)[::-1].copy()
    yield "blocks", np.repeat(x[: x.size // 16], 16)
    yield "periodic", np.tile(x[:64], x.size // 64)
    yield "mostly zero", np.where(np.arange(x.size) % 37 == 0, x, 0)
    yield "one outlier", np.concatenate([x[:-1], [6e4]]).astype(x.dtype)
    yield "rounded", np.round(x, 1)


@each_path
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_structure_that_a_sample_may_miss(path, dtype):
    x = np.random.default_rng(3).normal(size=4096).astype(dtype)
    for name, vector in arrangements(x):
        for sparseness in (0.3, 0.7, 0.95):
            value, _ = run(vector, {"sparseness": sparseness}, path)
            expected, _ = run(vector, {"sparseness": sparseness}, "full")
            limit = 4 * float(np.finfo(dtype).eps) * np.abs(expected).max()
            assert np.abs(value - expected).max() <= limit, (name, sparseness)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("n", [192, 512, 1024, 2048])
def test_sifted_rows_of_every_structure(n, dtype):
    x = np.random.default_rng(11).normal(size=n).astype(dtype)
    rows = np.stack([vector for _, vector in arrangements(x)] * 5)
    for sparseness in (0.7, 0.9, 0.99):
        value = hoyer.project(rows, sparseness)
        expected, _ = run(rows, {"sparseness": sparseness}, "full")
        limit = 4 * float(np.finfo(dtype).eps) * np.abs(expected).max(axis=-1, keepdims=True)
        assert (np.abs(value - expected) <= limit).all()


@pytest.mark.parametrize("l2", [2.0, "keep", "nearest"])
@both_sets
def test_sifted_rows_with_every_norm(l2, nonnegative):
    x = np.random.default_rng(12).normal(size=(40, 300)).astype(np.float32)
    value = hoyer.project(x, 0.9, l2=l2, nonnegative=nonnegative)
    expected = hoyer.project(x.astype(float), 0.9, l2=l2, nonnegative=nonnegative)
    limit = 4 * np.finfo(np.float32).eps * np.abs(expected).max(axis=-1, keepdims=True)
    assert (np.abs(value - expected) <= limit).all()


SETS = {
    "sparseness": {"sparseness": 0.8},
    "norms": {"l1": 2.5, "l2": 1.5},
    "l1": {"l1": 1.3},
    "l1, large supports": {"l1": 30.0},
    "L1 ball": {"l1": 1.3, "at_most": True},
    "two balls, both bind": {"l1": 2.0, "l2": 1.0, "at_most": True},
    "two balls, l1 binds": {"l1": 2.0, "l2": 1.9, "at_most": True},
    "two balls, any": {"l1": 25.0, "l2": 4.0, "at_most": True},
}
each_set = pytest.mark.parametrize("name", SETS)


def vectors_of_every_kind(rows, n, dtype, rng):
    """Vectors of all kinds, with ties, zeros and some that are within every bound."""
    x = np.stack([random_vector(KINDS[i % len(KINDS)], n, rng, dtype) for i in range(rows)])
    x[1], x[2, ::2], x[3] = 1, 0, np.round(x[3])
    x[4] *= 1e-3
    return x


def check_rows(found, x, target, nonnegative, where):
    """Each result is that of the full search for what the mask leaves, and zero elsewhere."""
    assert not found[~where].any()
    for p, row, mask in zip(found, x, where, strict=True):
        if not mask.any():
            continue
        left = np.ascontiguousarray(row[mask])
        expected, _ = run(left, target, "full", nonnegative=nonnegative)
        limit = 4 * float(np.finfo(x.dtype).eps) * np.abs(expected).max()
        assert np.abs(p[mask].astype(float) - expected).max() <= limit


@each_path
@each_set
@both_sets
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_sets(path, name, nonnegative, dtype):
    rng = np.random.default_rng(3)
    for n in (40, 64, 700, 1025):
        x = vectors_of_every_kind(37, n, dtype, rng)
        value, _ = run(x, SETS[name], path, nonnegative=nonnegative)
        check_rows(value, x, SETS[name], nonnegative, np.ones(x.shape, bool))


@each_path
@each_set
@both_sets
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_masks(path, name, nonnegative, dtype):
    """All, none, two, runs, any share; what does not count may be anything."""
    rng = np.random.default_rng(4)
    for n in (40, 64, 513, 1025):
        x = vectors_of_every_kind(37, n, dtype, rng)
        share = rng.choice([0.1, 0.4, 0.7, 0.95], (37, 1))
        where = rng.random(x.shape) < share
        where[5], where[6] = True, np.arange(n) >= n // 3
        where[7] = np.arange(n) % 200 < 150
        where[:, :9] = True  # as many as both norms need
        if "sparseness" in SETS[name] or "l2" not in SETS[name]:
            where[8], where[9] = False, np.isin(np.arange(n), (2, n - 1))
        x[~where] = rng.choice([np.nan, np.inf, -np.inf, 60000.0, 0.0], size=(~where).sum())
        value, _ = run(x, SETS[name], path, nonnegative=nonnegative, where=where)
        check_rows(value, x, SETS[name], nonnegative, where)


@each_path
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@each_set
def test_no_path_overlooks_what_counts(path, bad, name):
    """With masks as well; what they leave out is not looked at."""
    rng = np.random.default_rng(5)
    for n in (40, 700, 1025):
        x, where = rng.normal(size=(32, n)).astype(np.float32), rng.random((32, n)) < 0.7
        where[:, :9] = True
        x[~where] = bad
        for place in (0, 8, n - 1):
            before, x[20, place], where[20, place] = x[20, place], bad, True
            options, lengths = options_for(SETS[name], True, where), where.sum(-1)
            plan = own_masked_plan(n, options, lengths)
            plan.sample(**PATHS[path])
            out = np.empty_like(x)
            assert _core.project(x, out, plan, 1, False, False, False, None, where, lengths) == 20
            x[20, place] = before if np.isfinite(before) else 0


def test_the_paths_are_taken():
    # One read where the sample succeeds, two with the rough start, several in full.
    x = np.random.default_rng(4).normal(size=(48, 8192)).astype(np.float32)
    for sparseness in (0.5, 0.9):
        target = {"sparseness": sparseness}
        assert np.median(run(x, target, "sampled")[1]) == 1
        assert np.median(run(x, target, "rough bracket")[1]) == 2
        assert np.median(run(x, target, "full")[1]) >= 3
        missed = run(x, target, "sampled, narrow bracket: misses")[1]
        assert np.median(missed) > 3


@pytest.mark.parametrize(
    "path", ["rough", "rough bracket", "sampled", "sampled, narrow bracket: misses"]
)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_no_path_overlooks_nan_or_infinity(path, bad):
    for place in (0, 1, 777, 4000, 4999):
        x = np.random.default_rng(5).normal(size=5000)
        x[place] = bad
        options = Options(0.8, None, None, -1, False, False, "auto", True)
        plan = own_plan(x.size, options)
        plan.sample(**PATHS[path])
        out = np.full_like(x, 7.0)
        assert _core.project(x, out, plan, 1, False) == 0
        assert (out == 7).all()


def test_other_instruction_sets_agree(tmp_path):
    code = """
import sys, numpy as np, hoyer
from hoyer import _core
rng = np.random.default_rng(6)
parts, products = [], []
for n in (16, 100, 1000, 10000):
    for dtype in (np.float64, np.float32, np.float16):
        x = rng.normal(size=(3, n)).astype(dtype)
        parts.append(hoyer.project(x, 0.8).astype(np.float64).reshape(-1))
for dtype in (np.float64, np.float32):
    x, y = rng.normal(size=(2, 5_000_000)).astype(dtype)
    product = hoyer.solve(x, 0.95).jvp(y)
    products.append(product[::5].astype(np.float64) / np.abs(product).max())
np.savez(sys.argv[1], projections=np.concatenate(parts), products=np.concatenate(products))
print(_core.ISA)
"""
    results = {}
    for isa in ("baseline", "avx2", "avx512"):
        target = tmp_path / f"{isa}.npz"
        done = subprocess.run(
            [sys.executable, "-c", code, str(target)],
            env={**os.environ, "HOYER_ISA": isa},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            assert f"ValueError: HOYER_ISA='{isa}' in the environment: choose one of" in done.stderr
            continue
        assert done.stdout.strip() == isa
        results[isa] = np.load(target)
    assert "baseline" in results
    expected = results["baseline"]
    for found in results.values():
        value = found["projections"]
        np.testing.assert_allclose(value, expected["projections"], rtol=0, atol=1e-3)
        # float64 and float32 parts agree to the last digits: sums are taken in the same lanes.
        assert np.mean(value == expected["projections"]) > 0.95
        np.testing.assert_allclose(found["products"], expected["products"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("array", ["np.arange(4.0)", "torch.arange(4.0)"])
def test_an_instruction_set_that_does_not_exist(array, run_python):
    """Said for tensors as well, which could do without the core."""
    if "torch" in array:
        pytest.importorskip("torch")
    module = "torch" if "torch" in array else "numpy as np"
    text = run_python(
        f"""
        import hoyer, {module}
        try:
            hoyer.project({array}, 0.5)
        except ValueError as error:
            print(error)
        """,
        HOYER_ISA="foo",
    )
    runs = ", ".join(_core.AVAILABLE_ISAS)
    assert text.startswith("HOYER_ISA='foo' in the environment: choose one of ")
    assert f"of which this processor runs {runs};" in text
    assert set(_core.AVAILABLE_ISAS) <= set(_core.COMPILED_ISAS) <= {"avx512", "avx2", "baseline"}
    assert _core.AVAILABLE_ISAS[-1] == "baseline"


def test_no_instruction_set_in_particular(run_python):
    assert run_python("from hoyer import _core; print(_core.ISA)", HOYER_ISA="").split() == [
        _core.AVAILABLE_ISAS[0]
    ]


def test_solve_and_project_agree_bit_for_bit():
    x = np.random.default_rng(7).normal(size=(5, 6000))
    np.testing.assert_array_equal(hoyer.solve(x, 0.9).value, hoyer.project(x, 0.9))
