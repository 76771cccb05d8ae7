"""CPU tensors on PyTorch's threads: the same bits, no second pool, forks, workers, interrupts."""

import threading

import numpy as np
import pytest

import hoyer

torch = pytest.importorskip("torch")

from hoyer.families.torch import engines  # noqa: E402

if engines.core is None:
    pytest.skip("no core", allow_module_level=True)
LENT = engines.lend_threads()
lent = pytest.mark.skipif(not LENT, reason="PyTorch does not compute with GCC's OpenMP runtime")


@pytest.fixture(autouse=True)
def number_restored():
    """Let tests set both numbers of threads."""
    before = torch.get_num_threads(), hoyer.get_num_threads()
    yield
    torch.set_num_threads(before[0])
    hoyer.set_num_threads(before[1])


@pytest.fixture(scope="module")
def rows():
    return torch.randn(3000, 200, generator=torch.Generator().manual_seed(0))


def backward(x):
    x = x.clone().requires_grad_()
    hoyer.project(x, 0.8).backward(torch.ones_like(x).cumsum(0))
    return x.grad


CALLS = {
    "project": lambda x: hoyer.project(x, 0.8),
    "backward": backward,
    "in place": lambda x: hoyer.project_(x.clone(), 0.8),
    "strided": lambda x: hoyer.project(x, 0.8, axis=0),
    "masked": lambda x: hoyer.project(x, 0.8, where=x > -1),
    "bfloat16": lambda x: hoyer.project(x.bfloat16(), 0.8),
    "shift": lambda x: hoyer.solve(x, 0.8, l2="keep").shift,
    "jvp": lambda x: hoyer.solve(x, 0.8).jvp(x),
    "sparseness": hoyer.sparseness,
    "together": lambda x: hoyer.project_together([x], 0.8)[0],
    "long": lambda x: hoyer.project(x, 0.8, axis=None),
}


@pytest.mark.parametrize("runtime", [pytest.param(True, marks=lent), False], ids=["lent", "own"])
@pytest.mark.parametrize("call", CALLS)
def test_the_same_bits_for_any_number(call, runtime, rows):
    torch.set_num_threads(1)
    alone = CALLS[call](rows)
    if not runtime:
        engines.core.find_openmp("a library that is not loaded")
    try:
        for count in (2, 3, 8):
            torch.set_num_threads(count)
            assert torch.equal(CALLS[call](rows), alone)
    finally:
        engines.lend_threads()


COUNT = """
    import os, sys
    import numpy as np, torch, hoyer
    from hoyer.families.torch import engines

    def threads():
        return len(os.listdir("/proc/self/task"))

    def more(call):
        before = threads()
        call()
        return threads() - before

    x = torch.randn(4096, 64)
"""


@lent
def test_no_threads_beside_those_that_pytorch_has(run_python):
    said = run_python(
        COUNT
        + """
    torch.set_num_threads(3)
    torch.softmax(x, -1)
    print(more(lambda: hoyer.project(x, 0.9)))
    y = x.clone().requires_grad_()
    print(more(lambda: hoyer.project(y, 0.9).sum().backward()))
    hoyer.set_num_threads(2)
    print(more(lambda: hoyer.project(x, 0.9)), more(lambda: torch.softmax(x, -1)))
    print(more(lambda: hoyer.project(x.numpy(), 0.9)))  # an array has the pool's
    """
    )
    assert said.split() == ["0", "0", "0", "0", "1"]


@pytest.mark.parametrize("limit", [{}, {"OMP_NUM_THREADS": "1"}], ids=["", "OMP_NUM_THREADS=1"])
@pytest.mark.parametrize("runtime", [pytest.param(True, marks=lent), False], ids=["lent", "own"])
def test_as_many_as_pytorch_says_and_no_more_than_hoyer_says(run_python, runtime, limit):
    said = run_python(
        COUNT
        + f"""
    if not {runtime}:
        engines.core.find_openmp("a library that is not loaded")
    project = lambda: hoyer.project(x, 0.9)
    torch.set_num_threads(1)
    print(more(project))
    hoyer.set_num_threads(1)
    torch.set_num_threads(3)
    print(more(project))
    hoyer.set_num_threads(9)
    print(more(project))
    print(more(project))
    """,
        **limit,
    )
    assert said.split() == ["0", "0", "2", "0"]


def test_limits_of_threadpoolctl_hold_for_tensors(run_python):
    pytest.importorskip("threadpoolctl")
    said = run_python(
        COUNT
        + """
    from threadpoolctl import threadpool_limits
    project = lambda: hoyer.project(x, 0.9)
    torch.set_num_threads(3)
    with threadpool_limits(1):
        print(more(project))
    with threadpool_limits({"hoyer": 1}):
        print(more(project))
    print(more(project))
    """,
        OMP_NUM_THREADS="3",
    )
    assert said.split() == ["0", "0", "2"]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_first_bad_vector_is_named(count, rows):
    torch.set_num_threads(count)
    x = rows.clone()
    x[[2999, 1234, 777], [5, 6, 7]] = torch.nan
    with pytest.raises(ValueError, match="entry 7 of vector 777"):
        hoyer.project(x, 0.8)


def test_many_callers_at_once(rows):
    torch.set_num_threads(3)
    expected = hoyer.project(rows, 0.8), backward(rows), hoyer.project(rows.numpy(), 0.8)
    failures = []

    def call():
        for _ in range(5):
            found = hoyer.project(rows, 0.8), backward(rows), hoyer.project(rows.numpy(), 0.8)
            same = [np.array_equal(f, e) for f, e in zip(found, expected, strict=True)]
            failures.extend(name for name, good in enumerate(same) if not good)

    callers = [threading.Thread(target=call) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


FORKED = """
    import os, signal, sys, warnings
    import numpy as np, torch
    warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: what we test
    torch.set_num_threads(2)
    x = torch.randn(4096, 64)
    torch.softmax(x, -1)

    def in_child(work):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if work() else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_neither_hangs_nor_differs(run_python):
    said = run_python(
        FORKED
        + """
    import hoyer
    expected = hoyer.project(x, 0.9)
    same = lambda: np.array_equal(hoyer.project(x, 0.9), expected)  # torch.equal would hang there
    in_child(lambda: all(same() for _ in range(3)))
    print(same())

    def grandchild():
        child = os.fork()
        if child == 0:
            os._exit(0 if same() else 3)
        return os.waitpid(child, 0)[1] == 0 and same()

    in_child(grandchild)
    torch.set_num_threads(1)
    in_child(same)
    torch.set_num_threads(3)
    in_child(same)
    print(same())
    """
    )
    assert said.split() == ["0", "True", "0", "0", "0", "True"]


def test_a_child_that_uses_tensors_first(run_python):
    """Only the core is there before the fork."""
    said = run_python(
        FORKED
        + """
    import hoyer
    expected = hoyer.project(x.numpy(), 0.9)
    in_child(lambda: np.array_equal(hoyer.project(x, 0.9), expected))
    """
    )
    assert said.split() == ["0"]


def test_a_child_of_multiprocessing_that_loads_hoyer_first(run_python):
    said = run_python(
        FORKED
        + """
    import multiprocessing

    def work():
        signal.alarm(60)
        import hoyer
        same = np.array_equal(hoyer.project(x, 0.9), hoyer.project(x.numpy(), 0.9))
        sys.exit(0 if same else 3)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode, "hoyer" in sys.modules)
    """
    )
    assert said.split() == ["0", "False"]


def test_workers_of_a_data_loader(run_python):
    said = run_python(
        FORKED
        + """
    import hoyer
    from torch.utils.data import DataLoader, Dataset

    class Projected(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            signal.alarm(60)
            return hoyer.project(x + i, 0.9), torch.get_num_threads()

    expected = [hoyer.project(x + i, 0.9) for i in range(4)]
    loader = DataLoader(Projected(), batch_size=None, num_workers=2, multiprocessing_context="fork")
    for (found, threads), wanted in zip(loader, expected, strict=True):
        print(threads, torch.equal(found, wanted))
    """
    )
    assert said.split() == ["1", "True"] * 4


@lent
def test_inside_a_parallel_region(run_python):
    """Every thread of somebody else's team projects by itself."""
    said = run_python(
        COUNT
        + """
    import ctypes
    maps = open("/proc/self/maps").read().split()
    path = next(p for p in maps if os.path.basename(p).startswith("libgomp"))
    gomp = ctypes.CDLL(path)
    torch.set_num_threads(3)
    expected, found = hoyer.project(x, 0.9), []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def run(_):
        found.append(torch.equal(hoyer.project(x, 0.9), expected))

    def team():
        gomp.GOMP_parallel(run, None, 3, 0)

    print(more(team))
    print(*found)
    print(torch.equal(hoyer.project(x, 0.9), expected))
    """
    )
    assert said.split() == ["0", "True", "True", "True", "True"]


def test_an_interrupt_is_heard(run_python):
    said = run_python("""
        import signal
        import torch, hoyer
        torch.set_num_threads(2)
        x = torch.rand(2**16, 2**9)
        expected = hoyer.project(x[:64], 0.9)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            for _ in range(100):
                hoyer.project(x, 0.9, solver="bisection")
        except KeyboardInterrupt:
            print("interrupted", torch.equal(hoyer.project(x[:64], 0.9), expected))
    """)
    assert said.split() == ["interrupted", "True"]
