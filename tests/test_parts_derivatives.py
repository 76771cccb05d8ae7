"""Derivatives of a vector in parts: those of the whole, with one merge of a few numbers."""

import importlib.util
import math

import numpy as np
import pytest
from engines import EPS
from test_parts import NUMPY, OnNumpy, OnTorch, options

import hoyer
from hoyer.engines import core, parts
from hoyer.engines.arrays import namespace
from hoyer.engines.arrays.histogram import Parts
from hoyer.engines.arrays.products import forward_changes
from hoyer.plan import plan_for

RNG = np.random.default_rng(20)
CLOSE = 32
"""In eps of the largest entry of y, over beta: what docs/explanation/numerics.md promises."""
FEW = 20
"""So many doubles at most are merged, times the units they may be in."""
TARGETS = [
    {"sparseness": 0.6},
    {"sparseness": 0.02},
    {"sparseness": 1.0},
    {"sparseness": 0.0},
    {"sparseness": 0.6, "l1": 3.0},
    {"sparseness": 0.6, "l2": "keep"},
    {"sparseness": 0.02, "l2": "keep"},
    {"sparseness": 0.6, "l2": "nearest"},
    {"sparseness": 0.3, "only_increase": True},
    {"sparseness": 0.9, "only_increase": True},
    {"sparseness": 0.3, "only_increase": True, "l1": 2.0},
    {"sparseness": 0.3, "only_increase": True, "l2": "keep"},
    {"sparseness": 0.3, "only_increase": True, "l2": "nearest"},
    {"l1": 1.5, "l2": 1.0},
    {"l1": 1.5},
    {"l1": 1e5},
    {"l1": 1.5, "at_most": True},
    {"l1": 1.5, "l2": 1.0, "at_most": True},
    {"l1": 1e5, "l2": 1.0, "at_most": True},
    {"l1": 1e5, "l2": 1e5, "at_most": True},
]
DRAWS = {
    "normal": RNG.standard_normal,
    "Cauchy": RNG.standard_cauchy,
    "nearly constant": lambda n: 1 + 1e-3 * RNG.random(n),
    "ties": lambda n: np.round(RNG.standard_normal(n)) * 2,
}
READERS = {"core": lambda: OnNumpy(core), "arrays": lambda: OnNumpy(Parts(namespace(np)))}
if importlib.util.find_spec("torch"):
    READERS["torch"] = OnTorch


class Divided:
    """A projection in parts, with its derivatives."""

    def __init__(self, x, given, reader, where=None):
        self.reader, self.cuts = reader, np.sort(RNG.integers(0, x.size + 1, 3))
        if where is None:
            plan = plan_for(x.size, options(**given))
        else:
            plan = parts.plan_with_mask(x.size, parts.length(where), options(**given))
        pieces = self.cut(x)
        masks = [None] * len(pieces) if where is None else self.cut(where)
        search = parts.search(plan, x.dtype, NUMPY)
        values, self.solution = parts.project_parts(
            pieces, search, reader.engine, reader.take, masks=masks
        )
        self.parts = [
            parts.Result(reader.engine, p, self.solution, plan, x if plan.needs_x else None, mask)
            for p, x, mask in zip(values, pieces, masks, strict=True)
        ]

    def cut(self, array):
        return [self.reader.give(one) for one in np.split(array, self.cuts)]

    def join(self, pieces):
        return np.concatenate([self.reader.take(piece) for piece in pieces])

    def sums(self, y, **how):
        pairs = zip(self.parts, self.cut(y), strict=True)
        shares = [self.reader.take(part.product_sums(piece, **how)) for part, piece in pairs]
        assert shares[0].dtype == np.float64
        assert shares[0].size <= 3 * FEW
        return self.reader.give(np.sum(shares, axis=0))

    def product(self, y, *, reverse):
        sums = self.sums(y, reverse=reverse)
        pairs = zip(self.parts, self.cut(y), strict=True)
        return self.join([part.product(piece, sums, reverse=reverse) for part, piece in pairs])


def close(a, b, y, whole):
    """Compare products."""
    eps = EPS[str(a.dtype)]
    a, b, y = (array.astype(float) for array in (a, b, y))
    size = abs(y).max() / float(whole.scale) if float(whole.scale) > 0 else 0.0
    size = max(size, float(abs(b).max()), 1e-300)
    assert abs(a / size - b / size).max() <= CLOSE * eps


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("name", READERS)
def test_products_are_those_of_the_whole(name, draw, monkeypatch):
    monkeypatch.setattr(parts, "BLOCK", 50)
    reader = READERS[name]()
    for given in TARGETS:
        for nonnegative in (False, True):
            for n in (6, 300):
                x, y = DRAWS[draw](n), RNG.standard_normal(n)
                target = given | {"nonnegative": nonnegative}
                whole, divided = hoyer.solve(x, **target), Divided(x, target, reader)
                close(divided.product(y, reverse=False), whole.jvp(y), y, whole)
                close(divided.product(y, reverse=True), whole.vjp(y), y, whole)


@pytest.mark.parametrize("name", READERS)
def test_gradients_by_the_target(name):
    reader = READERS[name]()
    for given in TARGETS:
        x, y = RNG.standard_normal(200), RNG.standard_normal(200)
        whole, divided = hoyer.solve(x, **given), Divided(x, given, reader)
        pairs = zip(*(part.target_gradient() for part in divided.parts), strict=True)
        by_norms = [divided.join(pieces) for pieces in pairs]
        for mine, theirs in zip(by_norms, whole.target_gradient(), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-13)
        if "sparseness" not in given:
            continue
        steep = divided.join([part.sparseness_gradient() for part in divided.parts])
        np.testing.assert_allclose(steep, whole.sparseness_gradient(), rtol=1e-11, atol=1e-12)
        sums = divided.sums(y, reverse=True, by_target=True)
        for part in divided.parts:
            found = part.target_products(sums)[0]
            wanted = float(whole.sparseness_gradient() @ y)
            np.testing.assert_allclose(float(found), wanted, rtol=1e-10, atol=1e-11)


def test_gradients_by_norms():
    x, y = RNG.standard_normal(150), RNG.standard_normal(150)
    for given in ({"l1": 3.0, "l2": 1.0}, {"l1": 3.0}, {"l1": 3.0, "l2": 1.0, "at_most": True}):
        whole, divided = hoyer.solve(x, **given), Divided(x, given, OnNumpy(core))
        sums = divided.sums(y, reverse=True, by_target=True)
        _, by_l1, by_l2 = divided.parts[0].target_products(sums)
        wanted = [float(gradient @ y) for gradient in whole.target_gradient()]
        found = [float(by_l1), 0.0 if by_l2 is None else float(by_l2)]
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)


def test_the_target_may_move_forwards():
    x, y = RNG.standard_normal(100), RNG.standard_normal(100)
    divided, whole = Divided(x, {"sparseness": 0.7}, OnNumpy(core)), hoyer.solve(x, 0.7)
    change = forward_changes(100, (0.7, None, None), (np.array(0.25), None, None), NUMPY)
    sums = divided.sums(y, reverse=False)
    moved = [
        part.product(piece, sums, reverse=False, change=change)
        for part, piece in zip(divided.parts, divided.cut(y), strict=True)
    ]
    wanted = whole.jvp(y) + 0.25 * whole.sparseness_gradient()
    np.testing.assert_allclose(divided.join(moved), wanted, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", READERS)
def test_masks(name):
    reader = READERS[name]()
    for given in ({"sparseness": 0.6}, {"sparseness": 0.6, "l2": "keep"}, {"l1": 2.0}):
        x, y, mask = RNG.standard_normal(200), RNG.standard_normal(200), RNG.random(200) < 0.6
        x[~mask], y[~mask] = math.nan, math.inf
        with np.errstate(invalid="ignore"):
            whole, divided = hoyer.solve(x, where=mask, **given), Divided(x, given, reader, mask)
            for reverse, product in ((False, whole.jvp), (True, whole.vjp)):
                z = divided.product(y, reverse=reverse)
                np.testing.assert_allclose(z, product(y), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("y_scale", [1e-300, 1e200, 1e300])
def test_extreme_scales(y_scale):
    """Parts whose y differ by hundreds of orders of magnitude."""
    for scale in (1.0, 1e-200, 1e200):
        for given in ({"sparseness": 0.5}, {"sparseness": 0.5, "l2": "keep"}):
            x = RNG.standard_normal(400) * scale
            y = RNG.standard_normal(400) * y_scale
            y[:200] *= 1e-150
            whole, divided = hoyer.solve(x, **given), Divided(x, given, OnNumpy(core))
            with np.errstate(all="ignore"):
                for reverse, product in ((False, whole.jvp), (True, whole.vjp)):
                    wanted = product(y)
                    if not np.isfinite(wanted).all():
                        continue
                    close(divided.product(y, reverse=reverse), wanted, y, whole)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_other_types(dtype):
    for given in TARGETS[:8]:
        x, y = (RNG.standard_normal(500).astype(dtype) for _ in range(2))
        whole, divided = hoyer.solve(x, **given), Divided(x, given, OnNumpy(core))
        for reverse, product in ((False, whole.jvp), (True, whole.vjp)):
            z = divided.product(y, reverse=reverse)
            assert z.dtype == x.dtype
            close(z, product(y), y, whole)
