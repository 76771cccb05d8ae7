"""The same bits run after run, for any number of callers, after fork; and Ctrl-C is heard."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import hoyer

CALLERS = 8


def workloads():
    generator = np.random.default_rng(7)
    return [
        (generator.normal(size=(400, 37)), {"sparseness": 0.8}),
        (generator.random((3, 70_000)).astype(np.float32), {"sparseness": 0.95}),
        (generator.standard_cauchy(300_000), {"sparseness": 0.9, "nonnegative": True}),
        (generator.normal(size=(50, 1000)).astype(np.float16), {"sparseness": 0.5, "l2": "keep"}),
        (generator.integers(0, 5, (100, 300)), {"sparseness": 0.7, "l2": "nearest"}),
        (generator.normal(size=(1000, 60)), {"sparseness": 0.7, "axis": 0, "solver": "halley"}),
    ]


def results():
    """The bytes of everything that is computed for the workloads."""
    out = []
    for x, options in workloads():
        found = hoyer.solve(x, **options)
        out.append(found.value.tobytes())
        out += [np.asarray(getattr(found, n)).tobytes() for n in ("shift", "scale", "evaluations")]
        out.append(found.vjp(np.ones(found.value.shape, found.value.dtype)).tobytes())
        out.append(np.asarray(hoyer.sparseness(x)).tobytes())
    return out


def test_run_after_run():
    first = results()
    for _ in range(3):
        assert results() == first


def test_a_fresh_interpreter_gives_the_same_bits(run_python):
    script = """
        import hashlib
        from test_concurrency import results
        print(hashlib.sha256(b"".join(results())).hexdigest())
    """
    assert run_python(script) == run_python(script)


def test_concurrent_callers_get_what_a_single_one_gets():
    expected = results()
    start = threading.Barrier(CALLERS)

    def call(_):
        start.wait()
        return [results() == expected for _ in range(2)]

    with ThreadPoolExecutor(CALLERS) as pool:
        assert all(all(equal) for equal in pool.map(call, range(CALLERS)))


def test_concurrent_callers_may_share_their_input_and_write_to_parts_of_one_output(rng):
    x = rng.normal(size=(64, 5000))
    expected = hoyer.project(x[:8], 0.9), hoyer.project(x[8:16], 0.9)
    out = np.empty_like(x)
    blocks = [slice(k, k + 8) for k in range(0, 64, 8)]
    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(lambda b: hoyer.project(x[b], 0.9, out=out[b]), blocks))
    np.testing.assert_array_equal(out[:8], expected[0])
    np.testing.assert_array_equal(out[8:16], expected[1])
    np.testing.assert_array_equal(out, np.concatenate([hoyer.project(x[b], 0.9) for b in blocks]))


def test_one_projection_serves_many_threads(rng):
    found = hoyer.solve(rng.normal(size=(50, 400)), 0.8, l2="keep")
    directions = rng.normal(size=(16, 50, 400))
    expected = [found.vjp(y).tobytes() for y in directions]
    with ThreadPoolExecutor(CALLERS) as pool:
        assert list(pool.map(lambda y: found.vjp(y).tobytes(), directions)) == expected


def test_the_gil_is_released(run_python):
    """A second thread counts while a long projection runs: it would stand still otherwise."""
    ticks = run_python("""
        import threading, time
        import numpy as np, hoyer
        x = np.random.default_rng(0).normal(size=(2**12, 2**11))
        hoyer.project(x[:2], 0.9, solver="bisection")
        running, ticks = threading.Event(), []
        def tick():
            running.wait()
            while running.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.001)
        thread = threading.Thread(target=tick)
        thread.start()
        running.set()
        start = time.perf_counter()
        hoyer.project_(x, 0.9, solver="bisection")
        end = time.perf_counter()
        running.clear()
        thread.join()
        inside = [t for t in ticks if start + 0.1 * (end - start) < t < end - 0.1 * (end - start)]
        print(len(inside))
    """)
    assert int(ticks) >= 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_fork_after_use_and_in_the_midst_of_it(run_python):
    """Children of a process whose threads are at work neither hang nor differ."""
    said = run_python(
        """
        import os, signal, threading, warnings
        from test_concurrency import results
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads: what we test
        expected = results()
        stop = threading.Event()
        def work():
            while not stop.is_set():
                results()
        threads = [threading.Thread(target=work) for _ in range(2)]
        for busy in (False, True):
            if busy:
                for thread in threads:
                    thread.start()
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    os._exit(0 if results() == expected else 3)
                _, status = os.waitpid(child, 0)
                print(os.waitstatus_to_exitcode(status))
        stop.set()
        for thread in threads:
            thread.join()
        print(results() == expected)
        """,
        timeout=300,
    )
    assert said.split() == ["0"] * 6 + ["True"]


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_multiprocessing(run_python, method):
    said = run_python(
        f"""
        import multiprocessing, warnings
        from test_concurrency import results
        warnings.simplefilter("ignore", DeprecationWarning)
        if __name__ == "__main__":
            expected = results()
            with multiprocessing.get_context("{method}").Pool(2) as pool:
                found = [pool.apply_async(results) for _ in range(2)]
                print(*(f.get(120) == expected for f in found))
        """
    )
    assert said.split() == ["True", "True"]


INTERRUPTED = """
    import signal, sys, threading, time, _thread
    import numpy as np, hoyer

    x = np.random.default_rng(0).random((2**16, 2**9))
    expected = hoyer.project(x[:64], 0.9, solver="bisection")
    original = x.copy()

    def seconds():
        start = time.perf_counter()
        hoyer.project(x[: 2**11], 0.9, solver="bisection")
        return time.perf_counter() - start

    delay = 4 * min(seconds() for _ in range(3))  # about an eighth of the whole
    {arm}
    try:
        start = time.perf_counter()
        hoyer.{call}
    except KeyboardInterrupt:
        print(time.perf_counter() - start - delay)
    else:
        sys.exit("not interrupted")
    untouched = (x == original).all(-1)
    print(untouched.sum(), len(x))
    written = np.flatnonzero(~untouched)
    again = hoyer.project(original[written], 0.9, solver="bisection")
    print(np.abs(again - x[written]).max(initial=0))  # whole vectors: none is half written
    np.testing.assert_array_equal(hoyer.project(original[:64], 0.9, solver="bisection"), expected)
"""


@pytest.mark.parametrize(
    "arm",
    [
        "signal.signal(signal.SIGALRM, signal.default_int_handler); "
        "signal.setitimer(signal.ITIMER_REAL, delay)",
        "threading.Timer(delay, _thread.interrupt_main).start()",
    ],
    ids=["signal", "interrupt_main"],
)
def test_an_interrupt_stops_between_two_vectors(run_python, arm):
    call = 'project_(x, 0.9, solver="bisection")'
    lines = run_python(INTERRUPTED.format(arm=arm, call=call)).splitlines()
    assert float(lines[0]) < 1
    untouched, rows = map(int, lines[1].split())
    assert 0 < untouched <= rows
    assert float(lines[2]) < 1e-12
