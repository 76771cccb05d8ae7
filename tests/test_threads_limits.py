"""How many threads arrays get: what is set, variables, control groups, affinity, threadpoolctl."""

import os

import numpy as np
import pytest

import hoyer
from hoyer import _core

VARIABLES = ("HOYER_NUM_THREADS", "OMP_NUM_THREADS")
AVAILABLE = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
PRINT = "import hoyer; print(hoyer.get_num_threads())"


@pytest.fixture
def count_with(run_python, monkeypatch):
    """Return what a new process prints with these variables alone."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return lambda script=PRINT, **variables: run_python(script, **variables).split()


@pytest.mark.parametrize(
    ("variables", "count"),
    [
        ({"HOYER_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"HOYER_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}, 3),
        ({"OMP_NUM_THREADS": "5,2,1"}, 5),
        ({"HOYER_NUM_THREADS": "many", "OMP_NUM_THREADS": "5"}, 5),
        ({"HOYER_NUM_THREADS": "0", "OMP_NUM_THREADS": "-1"}, None),
        ({"OMP_NUM_THREADS": "dynamic"}, None),
        ({}, None),
    ],
)
def test_variables(count_with, variables, count):
    granted = _core.group_processors()
    expected = count or (min(granted, AVAILABLE) if granted else AVAILABLE)
    assert count_with(**variables) == [str(expected)]


def test_a_number_that_is_set_comes_first(count_with):
    script = """
        import hoyer
        hoyer.set_num_threads(4)
        print(hoyer.get_num_threads())
        hoyer.set_num_threads(1)
        print(hoyer.get_num_threads())
        hoyer.set_num_threads(6)
        print(hoyer.get_num_threads())
    """
    variables = {"HOYER_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}
    assert count_with(script, **variables) == ["4", "1", "6"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_processors_are_counted_when_they_are_needed(count_with):
    script = """
        import os, hoyer
        before = hoyer.get_num_threads()
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        print(hoyer.get_num_threads())
        hoyer.set_num_threads(2)
        print(hoyer.get_num_threads())
        hoyer.set_num_threads(1)
        print(hoyer.get_num_threads())
    """
    assert count_with(script) == ["1", "2", "1"]


GROUPS = {
    "version 2": ("0::/a/b\n", {"a/b/cpu.max": "250000 100000\n"}, 3),
    "no limit": ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n"}, 0),
    "that of a parent": (
        "0::/a/b\n",
        {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"},
        2,
    ),
    "the least": (
        "0::/a/b\n",
        {"a/b/cpu.max": "400000 100000\n", "cpu.max": "200000 100000\n"},
        2,
    ),
    "less than one": ("0::/\n", {"cpu.max": "10000 100000\n"}, 1),
    "version 1": (
        "5:memory:/m\n4:cpu,cpuacct:/c\n0::/\n",
        {"cpu,cpuacct/c/cpu.cfs_quota_us": "400000", "cpu,cpuacct/c/cpu.cfs_period_us": "100000"},
        4,
    ),
    "version 1, no limit": (
        "4:cpu:/c\n",
        {"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000\n"},
        0,
    ),
    "a path of the host": (
        "4:cpuacct,cpu:/docker/0123\n",
        {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
        2,
    ),
    "another controller": (
        "4:cpuset:/c\n",
        {"cpu/c/cpu.cfs_quota_us": "100000\n", "cpu/c/cpu.cfs_period_us": "100000\n"},
        0,
    ),
    "a path without a slash": ("0::a/b\n", {"cpu.max": "200000 100000\n"}, 2),
    "nonsense": ("0::/\n4:cpu\n\n", {"cpu.max": "many of them\n"}, 0),
    "no files": ("0::/\n", {}, 0),
}


@pytest.mark.parametrize("name", GROUPS)
def test_control_groups(tmp_path, name):
    groups, limits, expected = GROUPS[name]
    files = {f"sys/fs/cgroup/{path}": text for path, text in limits.items()}
    for path, text in {"proc/self/cgroup": groups, **files}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="ascii")
    assert _core.group_processors(str(tmp_path)) == expected


def test_no_control_groups(tmp_path):
    assert _core.group_processors(str(tmp_path)) == 0


# ---- others who limit threads ----


@pytest.mark.parametrize("first", ["hoyer", "threadpoolctl"])
def test_threadpoolctl(count_with, first):
    pytest.importorskip("threadpoolctl")
    script = f"""
        import {first}
        import numpy as np, hoyer, threadpoolctl
        threadpoolctl.threadpool_info()  # before there is a core
        hoyer.project(np.ones(3), 0.5)
        ours = [one for one in threadpoolctl.threadpool_info() if one["user_api"] == "hoyer"]
        print(*(one["num_threads"] for one in ours))
        with threadpoolctl.threadpool_limits(1):
            print(hoyer.get_num_threads())
        print(hoyer.get_num_threads())
        with threadpoolctl.threadpool_limits({{"hoyer": 2}}):
            print(hoyer.get_num_threads())
        with threadpoolctl.threadpool_limits(1, user_api="blas"):
            print(hoyer.get_num_threads())
        hoyer.set_num_threads(7)
        with threadpoolctl.threadpool_limits(1):
            print(hoyer.get_num_threads())
        print(hoyer.get_num_threads())
    """
    found = count_with(script, OMP_NUM_THREADS="5")
    assert found == ["5", "1", "5", "2", "5", "1", "7"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
@pytest.mark.skipif(AVAILABLE < 2, reason="one processor")
def test_limits_of_others_leave_none_behind(count_with):
    pytest.importorskip("threadpoolctl")
    script = """
        import os, numpy, hoyer, threadpoolctl
        hoyer.project([1.0, 2.0, 3.0], 0.5)
        for limited in ({}, {"user_api": "blas"}):
            with threadpoolctl.threadpool_limits(1, **limited):
                pass
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        print(hoyer.get_num_threads())
        with threadpoolctl.threadpool_limits(1):
            os.sched_setaffinity(0, range(os.cpu_count()))
            print(hoyer.get_num_threads())
    """
    assert count_with(script) == ["1", "1"]


def test_without_threadpoolctl(count_with):
    script = """
        import sys
        sys.modules["threadpoolctl"] = None
        import hoyer
        print(hoyer.get_num_threads())
    """
    assert count_with(script, OMP_NUM_THREADS="5") == ["5"]


def test_workers_of_joblib(count_with):
    pytest.importorskip("joblib")
    script = """
        import hoyer
        from joblib import Parallel, delayed, parallel_config
        with parallel_config(backend="loky", inner_max_num_threads=3):
            print(*Parallel(2)(delayed(hoyer.get_num_threads)() for _ in range(2)))
    """
    assert count_with(script) == ["3", "3"]


def test_a_limit_set_for_a_while_leaves_no_trace():
    before = hoyer.get_num_threads()
    x = np.random.default_rng(0).normal(size=(3000, 200))
    expected = hoyer.project(x, 0.8)
    hoyer.set_num_threads(before + 3)
    np.testing.assert_array_equal(hoyer.project(x, 0.8), expected)
    hoyer.set_num_threads(before)
    assert hoyer.get_num_threads() == before
