"""What is asked of the library: every way into it, each with results of its own to be judged."""

import os
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import hoyer

from .draw import Case, Type
from .judge import MOST_EVALUATIONS, Judge
from .tally import Tally

NUMPY = ("float64", "float32", "float16")
TENSORS = (*NUMPY, "bfloat16")


class Path(NamedTuple):
    """A way to run a case; how often it is taken, and on how much."""

    run: Callable[[Case, Judge], None]
    weight: float = 1.0
    types: tuple[str, ...] = NUMPY
    rows: int = 1024
    entries: int = 2**16
    longest: int = 2**20


# ---- NumPy ----


def batch(case: Case, judge: Judge) -> None:
    judge.values(hoyer.project(case.x, **case.options))


def single(case: Case, judge: Judge) -> None:
    judge.values(np.stack([hoyer.project(x, **judge.targets(i)) for i, x in enumerate(case.x)]))


def solve(case: Case, judge: Judge) -> None:
    found = hoyer.solve(case.x, **case.options)
    judge.values(found.value)
    judge.records(found)
    judge.same(found.value, hoyer.project(case.x, **case.options), "solve and project")


def in_place(case: Case, judge: Judge) -> None:
    x, out, expected = case.x.copy(), np.empty_like(case.x), hoyer.project(case.x, **case.options)
    hoyer.project_(x, **case.options)
    judge.values(x)
    judge.same(x, expected, "in place")
    judge.same(hoyer.project(case.x, out=out, **case.options), expected, "out")
    x = case.x.copy()
    judge.same(hoyer.project(x, out=x, **case.options), expected, "out=x")


def layout(case: Case, judge: Judge) -> None:
    x, expected = case.x, hoyer.project(case.x, **case.options)
    judge.values(expected)
    strided = np.zeros((x.shape[0], 2 * x.shape[1]), x.dtype)[:, ::2]
    strided[...] = x
    others = {
        "strided": strided,
        "reversed": np.ascontiguousarray(x[:, ::-1])[:, ::-1],
        "by columns": np.asfortranarray(x),
        "swapped": x.astype(x.dtype.newbyteorder()),
    }
    for name, other in others.items():
        value = hoyer.project(other, **case.options)
        judge.same(value.astype(x.dtype, copy=False), expected, name)
    turned = {k: v.T if k == "where" else v for k, v in case.options.items()}
    columns = hoyer.project(np.ascontiguousarray(x.T), axis=0, **turned)
    judge.same(columns.T, expected, "axis 0")
    for other in (strided.copy().T.copy().T, strided):
        hoyer.project_(other, **case.options)
        judge.same(other, expected, "strided, in place")


def sparse(case: Case, judge: Judge) -> None:
    found = hoyer.project_sparse(case.x, **case.options).toarray()
    dense = hoyer.project(case.x, **case.options)
    judge.values(dense)
    judge.same(found.astype(dense.dtype) + 0, dense, "sparse and dense")


def threads(case: Case, judge: Judge) -> None:
    expected = hoyer.project(case.x, **case.options)
    hoyer.set_num_threads(2)
    try:
        value = hoyer.project(case.x, **case.options)
    finally:
        hoyer.set_num_threads(1)
    judge.values(value)
    judge.same(value, expected, "two threads")


def again(case: Case, judge: Judge) -> None:
    once = hoyer.project(case.x, **case.options)
    judge_again(case, judge, once, hoyer.project(once, check_finite=False, **case.options))


def judge_again(case: Case, judge: Judge, once: Any, twice: Any) -> None:
    judge.values(once)
    judge.again(once, twice)
    fine = np.isfinite(once).all(1)
    if fine.all():  # a result is an input like any other
        Judge(case._replace(x=once), judge.tally).values(twice, "again")


def paper(case: Case, judge: Judge) -> None:
    solver = str(case.rng.choice(["bisection", "newton", "newton_sqr", "halley"]))
    found = hoyer.solve(case.x, solver=solver, **case.options)
    judge.values(found.value)
    judge.evaluations(found, 200 + MOST_EVALUATIONS)


def directions(case: Case, value: Any) -> Any:
    """What derivatives are multiplied with: of every size, and infinite where it has no say."""
    kind, rng = case.type, case.rng
    y = rng.normal(size=value.shape)
    scales = [1.0, 1.0, kind.top / 8, kind.smallest * 8, 10 ** rng.uniform(-4, 4)]
    y = np.clip(y * rng.choice(scales, (len(y), 1)), -kind.top, kind.top)
    if rng.random() < 0.2 and case.rule != "keep":
        # Vectors within bounds may move everywhere.
        moving = case.options.get("where", True) if case.options["at_most"] else False
        y = np.where((value == 0) & np.logical_not(moving) & (rng.random(y.shape) < 0.5), np.inf, y)
    if kind.name == "bfloat16":
        return np.float32(y).view(np.uint32).__and__(np.uint32(0xFFFF0000)).view(np.float32)
    return y.astype(kind.held)


def products(case: Case, judge: Judge) -> None:
    found = hoyer.solve(case.x, **case.options)
    y = directions(case, found.value)
    by_l1, by_l2 = found.target_gradient()
    results = {"jvp": found.jvp(y), "vjp": found.vjp(y), "by l1": by_l1, "by l2": by_l2}
    judge.products(found.value, y, results)


# ---- tensors ----


def as_tensor(x: Any, kind: Type) -> Any:
    import torch

    return torch.from_numpy(np.array(x)).to(getattr(torch, kind.name))


def as_array(x: Any) -> Any:
    import torch

    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def tensor_options(case: Case) -> dict[str, Any]:
    import torch

    return {
        name: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        for name, value in case.options.items()
    }


def tensors(case: Case, judge: Judge) -> None:
    x, options = as_tensor(case.x, case.type), tensor_options(case)
    value = hoyer.project(x, **options)
    judge.values(as_array(value))
    if case.rng.random() < 0.3:
        twice = hoyer.project(value, check_finite=False, **options)
        judge_again(case, judge, as_array(value), as_array(twice))


def tensor_products(case: Case, judge: Judge) -> None:
    x, options = as_tensor(case.x, case.type), tensor_options(case)
    if case.rng.random() < 0.5:
        x.requires_grad_()
        value = hoyer.project(x, **options)
        y = directions(case, as_array(value))
        value.backward(as_tensor(y, case.type))
        results = {"vjp": x.grad}
    else:
        found = hoyer.solve(x, **options)
        value = found.value
        y = directions(case, as_array(value))
        given = as_tensor(y, case.type)
        by_l1, by_l2 = found.target_gradient()
        results = {"jvp": found.jvp(given), "vjp": found.vjp(given), "by l1": by_l1, "by l2": by_l2}
    arrays = {name: as_array(result) for name, result in results.items()}
    judge.products(as_array(value), y, arrays)


def without_core(run: Callable[[Case, Judge], None], kernels: bool) -> Any:
    """The same by plain tensor operations, or by the kernels, under Triton's interpreter."""

    def with_other_engine(case: Case, judge: Judge) -> None:
        from hoyer.families.torch import engines

        before = engines.core, engines.uses_kernels
        engines.core, engines.uses_kernels = None, lambda x: kernels
        try:
            run(case, judge)
        finally:
            engines.core, engines.uses_kernels = before

    return with_other_engine


CORE = {
    "batch": Path(batch, 4.0),
    "single": Path(single, 1.0, rows=48),
    "solve": Path(solve, 2.0),
    "in place": Path(in_place, 1.0),
    "layout": Path(layout, 1.0),
    "sparse": Path(sparse, 0.7),
    "two threads": Path(threads, 0.3, rows=4096, entries=2**18),
    "again": Path(again, 3.0),
    "paper": Path(paper, 0.7, rows=128),
    "products": Path(products, 2.0, rows=512),
    "tensors": Path(tensors, 1.0, TENSORS),
    "tensor products": Path(tensor_products, 1.0, TENSORS, rows=512),
    "plain tensors": Path(without_core(tensors, False), 0.7, TENSORS, longest=4096),
    "plain products": Path(
        without_core(tensor_products, False), 0.7, TENSORS, rows=512, longest=4096
    ),
}
KERNELS = {
    "kernels": Path(without_core(tensors, True), 2.0, TENSORS, 32, 2**13, 4096),
    "kernel products": Path(without_core(tensor_products, True), 1.0, TENSORS, 16, 2**12, 2048),
}


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def known() -> dict[str, Path]:
    """What this process can run."""
    return KERNELS if INTERPRETED else CORE


def prepare() -> None:
    """Set up this process: one thread, and the interpreter where it is asked for."""
    import torch

    if INTERPRETED:
        import interpreter

        interpreter.mend()
    torch.set_num_threads(1)
    hoyer.set_num_threads(1)


def run(case: Case, path: Path, tally: Tally) -> None:
    """Run a case; whatever the library raises is a finding, too."""
    judge = Judge(case, tally)
    try:
        path.run(case, judge)
    except Exception as error:
        home = os.path.dirname(hoyer.__file__)
        if not any(f.filename.startswith(home) for f in traceback.extract_tb(error.__traceback__)):
            raise
        tally.found(case, None, f"raised {type(error).__name__}: {str(error)[:200]}", 0)
