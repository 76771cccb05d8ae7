"""The exact reference of the other sets, against brute force over supports and binding norms."""

import itertools
from fractions import Fraction

import pytest
from mpmath import mp
from reference import brute_force, exact_projection

VECTORS = (
    [3, 1, 2],
    [1, 1, 1],
    [0, 0, 0, 0],
    [-1, -2, -3, -4],
    [5, -4, 0.25, 0],
    [1e-3, 2e-3, -1, 1, 1],
    [1e300, 1, -1e300],
    [2, 2, 1, 0.5, -0.125],
)
NORMS = (0.25, 1, 2, 3.5)


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("x", VECTORS, ids=str)
def test_as_near_as_brute_force(x, nonnegative):
    y = x if nonnegative else [abs(entry) for entry in x]
    for at_most, l1, l2 in itertools.product((False, True), NORMS, (None, *NORMS)):
        if not at_most and l2 is not None and not l2 <= l1 <= Fraction(len(x)) ** 0.5 * l2:
            continue
        target = {"l1": l1, "l2": l2, "at_most": at_most, "nonnegative": nonnegative}
        found, brute = exact_projection(x, **target).value, brute_force(x, **target)
        with mp.workprec(320):
            near, nearest = (
                sum((abs(p) - entry) ** 2 for p, entry in zip(value, y, strict=True))
                for value in (found, brute)
            )
            assert abs(near - nearest) <= 1e-60 * (1 + nearest), target
            if at_most:  # a convex set
                for p, q in zip(found, brute, strict=True):
                    assert abs(p - q) <= 1e-60, target


@pytest.mark.parametrize(
    ("x", "options", "active"),
    [
        ([1, 2], {"l1": 4}, "none"),
        ([1, 2], {"l1": 2}, "l1"),
        ([3, 4], {"l1": 9, "l2": 1}, "l2"),
        ([3, 3.5], {"l1": 1, "l2": 2}, "l1"),
        ([3, 4, 0], {"l1": 1.2, "l2": 1}, "both"),
    ],
)
def test_which_norms_bind(x, options, active):
    assert exact_projection(x, at_most=True, **options).active == active


def test_masks():
    x, where = [3, 1, 2, 9], [True, True, True, False]
    masked = exact_projection(x, sparseness=0.5, where=where)
    assert masked.value == [*exact_projection(x[:3], sparseness=0.5).value, 0]
    assert exact_projection(x, sparseness=0.5, where=[False] * 4).value == [0] * 4
    assert exact_projection([0, -5], sparseness=0.5, l2=3, where=[False, True]).value == [0, -3]
