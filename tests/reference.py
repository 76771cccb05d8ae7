"""The high-precision reference: the projection by exact integers and long square roots.

The given floats count as real numbers. Entries become integers over a common denominator, sums and
comparisons are exact, and only K = (l1 / l2)**2, where it is irrational, and the final square root
are rounded, to far more digits than any float has. The formulas are those of the closed form on a
support; there is no root search that could fail.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from numpy.typing import NDArray

# Bits of K and of the root: K may be 2**-1074 away from an integer, and squares of entries 2**4196
# from each other.
PRECISION = 4400
# Bits of the entries of a result, and of errors.
VALUE_PRECISION = 320
# The same where two results are subtracted that differ by 2**-300.
DIFFERENCE_PRECISION = 1400
CLAMP = 4 * Fraction(1, 2**52)

# On Windows and on Apple's processors long doubles are doubles, and judge nothing.
HAS_LONG_DOUBLE = bool(np.finfo(np.longdouble).eps < np.finfo(np.float64).eps)
needs_long_double = pytest.mark.skipif(not HAS_LONG_DOUBLE, reason="long doubles are doubles here")

Real = Any  # float, int, Fraction, mpf, NumPy scalar
Vector = Iterable[Any]  # of such numbers: an array, a list


class Exact(NamedTuple):
    """A projection in high precision; `value` is a long-double array for huge vectors."""

    value: Any
    shift: Any
    scale: Any
    support_size: int
    unique: bool
    l1: Any
    l2: Any
    active: str = "both"
    """Which norms bind: "l1", "l2", "both" or "none"."""


class _Target(NamedTuple):
    """K as a fraction, exact or rounded to PRECISION bits, and its square root."""

    k: Fraction
    rho: mpf
    l1: Fraction | None
    l2: Fraction | str | None

    def norm(self, own: mpf, inner: mpf) -> mpf:
        """The norm of the result, given that of x and the inner product of x with p / |p|."""
        if self.l2 == "keep":
            return own
        if self.l2 == "nearest":
            return max(inner, mpf(0))
        if isinstance(self.l2, Fraction):
            return _mpf(self.l2)
        return _mpf(self.l1) / self.rho if self.l1 is not None else mpf(1)


class _Unit(NamedTuple):
    """The projection for l2 = 1, in the order of x."""

    value: list[mpf]
    shift: mpf | None
    scale: mpf | None
    support_size: int
    unique: bool


def _fraction(number: Real) -> Fraction:
    if isinstance(number, mpf):
        sign, man, exp, _ = number._mpf_
        exact: Fraction = (-1) ** sign * man * Fraction(2) ** exp
        return exact
    top, bottom = number.as_integer_ratio()
    return Fraction(top, bottom)


def _mpf(number: Fraction) -> mpf:
    return mpf(number.numerator) / number.denominator


def _target(n: int, sparseness: Real, l1: Real, l2: Real) -> _Target:
    first = None if l1 is None else _fraction(l1)
    second = l2 if l2 is None or isinstance(l2, str) else _fraction(l2)
    for name, norm in (("l1", first), ("l2", second)):
        if isinstance(norm, Fraction) and norm <= 0:
            raise ValueError(f"{name} = {norm} must be positive")
    if sparseness is None:
        if first is None or not isinstance(second, Fraction):
            raise ValueError("both norms are needed where there is no sparseness")
        k = (first / second) ** 2
        # 4 eps in a norm are 8 eps in K.
        low, high = 1 - 2 * CLAMP, n * (1 + 2 * CLAMP)
        if not low <= k <= high:
            raise ValueError(f"l1 / l2 must be in [1, sqrt({n})], got {mpmath.sqrt(_mpf(k))}")
        first = None  # l2 rules where K was clamped
        k = min(max(k, Fraction(1)), Fraction(n))
    else:
        if first is not None and second is not None:
            raise ValueError("with a sparseness at most one norm")
        if n < 2:
            raise ValueError("a vector of length 1 has no sparseness")
        s = _fraction(sparseness)
        if not -CLAMP <= s <= 1 + CLAMP:
            raise ValueError(f"sparseness must be in [0, 1], got {sparseness}")
        k = _k_of(n, min(max(s, Fraction(0)), Fraction(1)))
    return _Target(k, mpmath.sqrt(_mpf(k)), first, second)


def _k_of(n: int, s: Fraction) -> Fraction:
    """(sqrt(n) - s * (sqrt(n) - 1))**2, exact where it is rational."""
    if s in (0, 1):
        return Fraction(n) if s == 0 else Fraction(1)
    root = math.isqrt(n)
    if root**2 != n:
        scale = 2**PRECISION
        return (s + (1 - s) * Fraction(math.isqrt(n * scale**2), scale)) ** 2
    return (s + (1 - s) * root) ** 2


def _integers(x: Vector) -> tuple[list[int], int]:
    """Numerators over a common denominator."""
    if isinstance(x, np.ndarray):
        if x.dtype == np.longdouble and HAS_LONG_DOUBLE:
            raise TypeError("long double entries do not survive tolist()")
        x = x.tolist()
    ratios = [
        (_fraction(entry) if isinstance(entry, mpf) else entry).as_integer_ratio() for entry in x
    ]
    denominator = math.lcm(*(ratio[1] for ratio in ratios))
    return [top * (denominator // bottom) for top, bottom in ratios], denominator


def _unit_projection(x: Sequence[int], target: _Target, precision: int) -> _Unit:
    """Project integers onto D for l2 = 1, in high precision."""
    n, k, rho = len(x), target.k, target.rho
    top = max(x)
    m = x.count(top)
    if k == n:
        return _Unit([1 / rho] * n, None, None, n, True)
    if m > k:
        return _tied(x, top, m, k, rho)
    if m == k:
        lower = max(entry for entry in x if entry < top)
        value = [rho / m if entry == top else mpf(0) for entry in x]
        return _Unit(value, mpf(lower), (top - lower) * m / rho, m, True)

    descending = sorted(x, reverse=True)
    sums = list(accumulate(descending, initial=0))
    squares = list(accumulate((entry**2 for entry in descending), initial=0))

    def outside(i: int) -> bool:
        """Whether Psi(descending[i]) >= 0, that is, whether the entry is not above alpha."""
        a, s1, s2 = descending[i], sums[i], squares[i]
        l1, l2_squared = s1 - i * a, s2 - 2 * a * s1 + i * a**2
        return l1**2 * k.denominator >= k.numerator * l2_squared and l1 > 0

    # Invariant: entries up to `low` are inside the support, those from `high` on outside.
    low, high = m, n
    while high - low > 1:
        middle = (low + high) // 2
        if outside(middle):
            high = middle
        else:
            low = middle
    # descending[m], the second largest value, is inside because of m < K.
    d = high
    second_sum = Fraction(d * squares[d] - sums[d] ** 2, d)
    scale = mpmath.sqrt(_mpf(second_sum / (1 - k / d)))
    shift = _mpf(Fraction(sums[d], d)) - scale * rho / d
    threshold = descending[d - 1]
    with mp.workprec(precision):
        mean, factor = +(rho / d), 1 / (d * scale)
        value = [
            max(mean + (d * entry - sums[d]) * factor, mpf(0)) if entry >= threshold else mpf(0)
            for entry in x
        ]
    return _Unit(value, shift, scale, sum(entry > 0 for entry in value), True)


def _tied(x: Sequence[int], top: int, m: int, k: Fraction, rho: mpf) -> _Unit:
    """The rule for m > K entries at the maximum: the first of them gets more than the others."""
    r = 1 - k / m
    first = rho / m + mpmath.sqrt(_mpf(r * (m - 1) / m))
    other = rho / m - mpmath.sqrt(_mpf(r / (m * (m - 1)))) if k != 1 else mpf(0)
    value = [other if entry == top else mpf(0) for entry in x]
    value[x.index(top)] = first
    return _Unit(value, None, None, m if k != 1 else 1, False)


def exact_projection(
    x: Vector,
    *,
    sparseness: Real = None,
    l1: Real = None,
    l2: Real = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    where: Iterable[bool] | None = None,
    precision: int = VALUE_PRECISION,
) -> Exact:
    """Project one vector exactly; the arguments are those of `hoyer.project`.

    Shift and scale are None where there is no alpha: K = n, and more than K ties at the maximum.
    With `only_increase`, a vector that is left alone has shift 0, and `l1` is its actual norm; one
    without positive entries, if there must be no negative ones, becomes its largest entry. With
    l2="keep" or "nearest" a result that is zero counts as unique.
    """
    options: dict[str, Any] = {"nonnegative": nonnegative, "precision": precision}
    if where is not None:
        targets = {"sparseness": sparseness, "l1": l1, "l2": l2}
        options |= targets | {"only_increase": only_increase, "at_most": at_most}
        return _masked(list(_plain(x)), list(_plain(where)), options)
    if at_most or (sparseness is None and l2 is None):
        if sparseness is not None or only_increase or l1 is None or isinstance(l2, str):
            raise ValueError("at_most goes with l1, or with l1 and l2 as numbers")
        return _bounded(x, l1, l2, at_most=at_most, **options)
    with mp.workprec(PRECISION):
        signed, denominator = _integers(x)
        n = len(signed)
        target = _target(n, sparseness, l1, l2)
        entries = signed if nonnegative else [abs(entry) for entry in signed]
        own = mpmath.sqrt(mpf(sum(entry**2 for entry in entries))) / denominator
        clipped = [max(entry, 0) for entry in entries]
        left_alone = only_increase and any(clipped)
        if left_alone:
            total, square = sum(clipped), sum(entry**2 for entry in clipped)
            left_alone = total**2 * target.k.denominator <= target.k.numerator * square
        below_zero = only_increase and not any(clipped) and any(entries)
        if left_alone:
            unit = _scaled_only(clipped)
        elif below_zero:
            unit = _one_hot(entries)
        else:
            unit = _unit_projection(entries, target, precision)
        with mp.workprec(precision):
            inner = mpmath.fdot(unit.value, [mpf(entry) for entry in entries]) / denominator
        found = left_alone or below_zero
        norm1 = mpmath.fsum(unit.value) if found else target.rho
        norm2 = target.norm(own, inner)
        if found and target.l1 is not None:
            norm2 = _mpf(target.l1) / norm1
        negative = [not nonnegative and entry < 0 for entry in signed]
        with mp.workprec(precision):
            value = [
                -entry * norm2 if minus else entry * norm2
                for entry, minus in zip(unit.value, negative, strict=True)
            ]
        chosen = not nonnegative and any(
            entry == 0 and p > 0 for entry, p in zip(signed, unit.value, strict=True)
        )
        if norm2 == 0:
            zeros = [mpf(0)] * n
            return Exact(zeros, None, None, 0, True, mpf(0), mpf(0))
        return Exact(
            value,
            None if unit.shift is None else unit.shift / denominator,
            None if unit.scale is None else unit.scale / (denominator * norm2),
            unit.support_size,
            unit.unique and not chosen,
            norm1 * norm2,
            norm2,
        )


def _masked(x: list[Any], where: list[bool], options: dict[str, Any]) -> Exact:
    """Project the entries that count; the others are zero, and a single one takes the norm."""
    chosen = [entry for entry, counts in zip(x, where, strict=True) if counts]
    zero = Exact([mpf(0)] * len(x), None, None, 0, True, mpf(0), mpf(0), "none")
    if not chosen:
        return zero
    if len(chosen) == 1 and options["sparseness"] is not None:
        options["sparseness"] = None
        norm = options["l1"] if options["l1"] is not None else options["l2"]
        if isinstance(norm, str):
            signed, nearest = _fraction(chosen[0]), norm == "nearest"
            norm = max(signed, Fraction(0)) if nearest and options["nonnegative"] else abs(signed)
        options["l1"] = options["l2"] = Fraction(1) if norm is None else norm
        if options["l1"] == 0:
            return zero
    found = exact_projection(chosen, **options)
    entries = iter(found.value)
    return found._replace(value=[next(entries) if counts else mpf(0) for counts in where])


def _bounded(
    x: Vector, l1: Real, l2: Real, *, at_most: bool, nonnegative: bool, precision: int
) -> Exact:
    """Project onto a simplex, an L1 sphere, an L1 ball, or its intersection with an L2 ball.

    The nearest point of one ball that lies in the other is the nearest of both; if there is none,
    both norms bind.
    """
    given = [_fraction(entry) for entry in _plain(x)]
    y = given if nonnegative else [abs(entry) for entry in given]
    signs = [-1 if entry < 0 and not nonnegative else 1 for entry in given]
    first, second = _fraction(l1), None if l2 is None else _fraction(l2)
    if first < 0 or (second is not None and second < 0) or (first == 0 and not at_most):
        raise ValueError("norms must be positive, and bounds not negative")
    positive = [max(entry, Fraction(0)) for entry in y]
    total, square = sum(positive), sum(entry**2 for entry in positive)
    with mp.workprec(PRECISION):
        if first == 0 or second == 0:
            # Such a bound binds even at 0, which is all there is: nothing moves with x.
            zeros = [Fraction(0)] * len(y)
            return _signed(zeros, signs, None, None, "l1" if second is None else "both", precision)
        within = second is None or square <= second**2
        if at_most and within and total <= first:
            return _signed(positive, signs, Fraction(0), Fraction(1), "none", precision)
        if second is not None and not within and total**2 * second**2 <= first**2 * square:
            scale = mpmath.sqrt(_mpf(square)) / _mpf(second)
            return _signed([_mpf(e) / scale for e in positive], signs, 0, scale, "l2", precision)
        value, shift = _simplex(y, first)
        if second is None or sum(entry**2 for entry in value) <= second**2:
            found = _signed(value, signs, shift, Fraction(1), "l1", precision)
            revived = any(e == 0 and p > 0 for e, p in zip(given, value, strict=True))
            return found._replace(unique=nonnegative or at_most or not revived)
    return exact_projection(
        given, l1=first, l2=second, nonnegative=nonnegative, precision=precision
    )


def _simplex(y: Sequence[Fraction], l1: Fraction) -> tuple[list[Fraction], Fraction]:
    """The nearest p >= 0 with entries that sum up to l1, and the shift."""
    descending = sorted(y, reverse=True)
    sums = accumulate(descending)
    shifts = [(total - l1) / size for size, total in enumerate(sums, 1)]
    shift = max(shifts)  # every support's shift is a lower bound
    return [max(entry - shift, Fraction(0)) for entry in y], shift


def _signed(  # noqa: PLR0917
    value: Sequence[Any], signs: Sequence[int], shift: Any, scale: Any, active: str, precision: int
) -> Exact:
    """Return numbers p >= 0 with their signs and norms."""

    def rounded(number: Any) -> Any:
        return _mpf(number) if isinstance(number, Fraction) else number

    with mp.workprec(precision):
        entries = [rounded(p) for p in value]
        l1, l2 = mpmath.fsum(entries), mpmath.sqrt(mpmath.fsum(p * p for p in entries))
        result = [sign * p for sign, p in zip(signs, entries, strict=True)]
    size = sum(p > 0 for p in value)
    return Exact(result, rounded(shift), rounded(scale), size, True, l1, l2, active)


def brute_force(
    x: Vector, *, l1: Real = None, l2: Real = None, at_most: bool, nonnegative: bool
) -> list[mpf]:
    """The nearest point of a set of norms: every support and every choice of norms that bind.

    Whatever the search does, this does not: it tries all points where the distance can be least,
    and takes the nearest that is in the set. For a handful of entries.
    """
    with mp.workprec(PRECISION):
        given = [_mpf(_fraction(entry)) for entry in _plain(x)]
        y = given if nonnegative else [abs(entry) for entry in given]
        first = None if l1 is None else _mpf(_fraction(l1))
        second = None if l2 is None else _mpf(_fraction(l2))
        tolerance = mpf(2) ** (-PRECISION // 2)

        def belongs(p: list[mpf]) -> bool:
            sizes = (mpmath.fsum(p), mpmath.sqrt(mpmath.fsum(e * e for e in p)))
            for size, norm in zip(sizes, (first, second), strict=True):
                room = tolerance * (1 + abs(norm)) if norm is not None else 0
                if norm is not None and (
                    size > norm + room or (not at_most and size < norm - room)
                ):
                    return False
            return min(p) >= 0

        def distance(p: list[mpf]) -> mpf:
            return mpmath.fsum((a - b) ** 2 for a, b in zip(p, y, strict=True))

        points = [p for p in _critical_points(y, first, second) if belongs(p)]
        nearest = min(points, key=distance)
        return [p if a >= 0 or nonnegative else -p for p, a in zip(nearest, given, strict=True)]


def _critical_points(y: list[mpf], l1: mpf | None, l2: mpf | None) -> Iterable[list[mpf]]:
    """Points with each support where none, one or both of the norms bind."""
    n = len(y)
    for chosen in range(2**n):
        inside = [bool(chosen >> i & 1) for i in range(n)]
        entries = [entry for entry, there in zip(y, inside, strict=True) if there]
        for numbers in _on_support(entries, l1, l2):
            values = iter(numbers)
            yield [next(values) if there else mpf(0) for there in inside]


def _on_support(y: list[mpf], l1: mpf | None, l2: mpf | None) -> Iterable[list[mpf]]:
    yield y
    d, total = len(y), mpmath.fsum(y)
    if d == 0:
        return
    mean = total / d
    if l1 is not None:
        yield [entry - mean + l1 / d for entry in y]
    size = mpmath.sqrt(mpmath.fsum(entry**2 for entry in y))
    if l2 is not None and size > 0:
        yield [entry * l2 / size for entry in y]
    if l1 is None or l2 is None:
        return
    spread = mpmath.sqrt(mpmath.fsum((entry - mean) ** 2 for entry in y))
    rest = l2**2 - l1**2 / d
    if spread > 0 and rest >= 0:
        yield [l1 / d + (entry - mean) * mpmath.sqrt(rest) / spread for entry in y]
    elif rest >= 0 and d > 1:
        # Entries that are all equal: any direction is as good; the first is made larger.
        root = mpmath.sqrt(rest / (d * (d - 1)))
        yield [l1 / d + root * (d - 1), *([l1 / d - root] * (d - 1))]


class Together(NamedTuple):
    """Vectors projected together, in high precision."""

    values: list[Any]
    sparseness: list[Any]
    cost: Any
    """The sum of squared distances, as they are measured."""


def exact_together(
    vectors: Sequence[Vector],
    sparseness: Real,
    *,
    l2: Sequence[Real] | None = None,
    floor: Real = 0,
    weights: Sequence[Real] | None = None,
    relative: bool = False,
    nonnegative: bool = False,
    only_increase: bool = False,
    bits: int = 400,
) -> Together:
    """Project vectors exactly so that their mean sparseness is as given; all of them have one.

    One price for all, by bisection, and each vector's ratio straight from its entries; to so many
    bits, which must be more if vectors differ much in size.
    """
    with mp.workprec(2 * bits):
        given = [[_mpf(_fraction(entry)) for entry in _plain(x)] for x in vectors]
        ys = given if nonnegative else [[abs(entry) for entry in x] for x in given]
        norms = [mpmath.sqrt(mpmath.fsum(e * e for e in x)) for x in given]
        if l2 is not None:
            norms = [_mpf(_fraction(norm)) for norm in l2]
        omega = [_mpf(_fraction(w)) for w in weights or [1] * len(ys)]
        roots = [mpmath.sqrt(len(y)) for y in ys]
        gains = [w / (root - 1) for w, root in zip(omega, roots, strict=True)]
        mean = _mpf(_fraction(sparseness))
        total = sum(g * root for g, root in zip(gains, roots, strict=True)) - mean * sum(omega)
        size = [norm if relative else 1 / norm for norm in norms]
        paces = [g * k for g, k in zip(gains, size, strict=True)]
        highest = [root - _mpf(_fraction(floor)) * (root - 1) for root in roots]

        def ratios(price: mpf) -> list[mpf]:
            return [
                min(max(_ratio_above(y, price * pace), mpf(1)), high)
                for y, pace, high in zip(ys, paces, highest, strict=True)
            ]

        def excess(found: list[mpf]) -> mpf:
            return sum(g * t for g, t in zip(gains, found, strict=True)) - total

        high = max(max(y) / pace for y, pace in zip(ys, paces, strict=True)) + mpf(2) ** -bits
        span = max(abs(e) / pace for y, pace in zip(ys, paces, strict=True) for e in y) + high + 1
        low = mpf(0) if only_increase else -span
        while not only_increase and excess(ratios(low)) < 0 and span < mpf(2) ** (3 * bits):
            span, low = span**2 + 4, -(span**2)
        # Invariant: the price is at least low and less than high, if it is not 0.
        for _ in range(bits):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(ratios(middle)) >= 0 else (low, middle)
        found, least = ratios(low), ratios(high)
        over = excess(found)
        for i, gain in enumerate(gains):
            less = min(max(over, mpf(0)) / gain, found[i] - least[i])
            found[i] -= less
            over -= gain * less
        shares = [(root - t) / (root - 1) for root, t in zip(roots, found, strict=True)]
        values = [
            exact_projection(
                x,
                sparseness=min(max(share, mpf(0)), mpf(1)),
                l2=_fraction(norm),
                nonnegative=nonnegative,
                only_increase=only_increase,
            ).value
            for x, share, norm in zip(given, shares, norms, strict=True)
        ]
        return Together(values, shares, cost_together(given, values, norms if relative else None))


def _ratio_above(y: list[mpf], shift: mpf) -> mpf:
    """||q||_1/||q||_2 of what lies above the shift; 0 if nothing does."""
    q = [entry - shift for entry in y if entry > shift]
    return mpmath.fsum(q) / mpmath.sqrt(mpmath.fsum(e * e for e in q)) if q else mpf(0)


def cost_together(x: Sequence[Vector], p: Sequence[Vector], norms: Sequence[Any] | None) -> mpf:
    """The sum of squared distances, relative to the norms if those are given."""
    with mp.workprec(DIFFERENCE_PRECISION):
        costs = (
            mpmath.fsum(
                (_mpf(_fraction(a)) - _mpf(_fraction(b))) ** 2 for a, b in zip(u, v, strict=True)
            )
            for u, v in zip(map(_plain, x), map(_plain, p), strict=True)
        )
        sizes = norms if norms is not None else [mpf(1)] * len(x)
        return sum(cost / size**2 for cost, size in zip(costs, sizes, strict=True))


def _one_hot(x: Sequence[int]) -> _Unit:
    """The vector p >= 0 of any sparseness that is nearest to an x without positive entries.

    <p, x> is at most the largest entry times the L1 norm of p, which is least for a single entry.
    """
    top = max(x)
    value = [mpf(0)] * len(x)
    value[x.index(top)] = mpf(1)
    return _Unit(value, None, None, 1, x.count(top) == 1)


def _scaled_only(x: Sequence[int]) -> _Unit:
    scale = mpmath.sqrt(mpf(sum(entry**2 for entry in x)))
    value = [entry / scale for entry in x]
    return _Unit(value, mpf(0), scale, sum(entry > 0 for entry in x), True)


def numeric_jvp(
    x: Vector, y: Vector, h: Real = None, *, nonnegative: bool = False, **target: Any
) -> list[mpf]:
    """Central difference of the exact projection along y.

    Signs are held fixed (a zero counts as positive), so that at x_i = 0 the derivative is that of
    the chosen sign. The default step 2**-300 leaves an error of about 2**-600.
    """
    step = Fraction(1, 2**300) if h is None else _fraction(h)
    entries, along = ([_fraction(entry) for entry in _plain(v)] for v in (x, y))
    signs = [-1 if entry < 0 and not nonnegative else 1 for entry in entries]

    def at(t: Fraction) -> list[mpf]:
        moved = [s * (a + t * b) for s, a, b in zip(signs, entries, along, strict=True)]
        exact = exact_projection(moved, nonnegative=True, precision=DIFFERENCE_PRECISION, **target)
        with mp.workprec(DIFFERENCE_PRECISION):
            return [s * p for s, p in zip(signs, exact.value, strict=True)]

    return _central(at(step), at(-step), step)


def numeric_target_derivative(
    x: Vector, l1: Real, l2: Real, h: Real = None, *, nonnegative: bool = False
) -> tuple[list[mpf], list[mpf]]:
    """Central differences of the exact projection with respect to l1 and to l2."""
    step = Fraction(1, 2**300) if h is None else _fraction(h)
    entries = [_fraction(entry) for entry in _plain(x)]
    first, second = _fraction(l1), _fraction(l2)

    def at(along1: Fraction, along2: Fraction) -> list[mpf]:
        return list(
            exact_projection(
                entries,
                l1=first + along1,
                l2=second + along2,
                nonnegative=nonnegative,
                precision=DIFFERENCE_PRECISION,
            ).value
        )

    zero = Fraction(0)
    return (
        _central(at(step, zero), at(-step, zero), step),
        _central(at(zero, step), at(zero, -step), step),
    )


def numeric_sparseness_derivative(
    x: Vector, sparseness: Real, h: Real = None, **options: Any
) -> list[mpf]:
    """Central differences of the exact projection with respect to the sparseness."""
    step = Fraction(1, 2**300) if h is None else _fraction(h)
    entries = [_fraction(entry) for entry in _plain(x)]

    def at(sigma: Fraction) -> list[mpf]:
        exact = exact_projection(
            entries, sparseness=sigma, precision=DIFFERENCE_PRECISION, **options
        )
        return list(exact.value)

    sigma = _fraction(sparseness)
    return _central(at(sigma + step), at(sigma - step), step)


def _plain(x: Vector) -> Vector:
    return x.tolist() if isinstance(x, np.ndarray) else x


def _central(plus: list[mpf], minus: list[mpf], step: Fraction) -> list[mpf]:
    with mp.workprec(DIFFERENCE_PRECISION):
        return [(a - b) / (2 * _mpf(step)) for a, b in zip(plus, minus, strict=True)]


def _eps(p: NDArray[Any]) -> mpf:
    return mpf(float(np.finfo(p.dtype).eps))


def _largest(exact: Exact) -> Any:
    return max(abs(entry) for entry in exact.value)


def error_in_eps(p: NDArray[Any], exact: Exact) -> float:
    """Largest error of an entry, in eps of the dtype of p times the largest entry.

    Where the exact result is zero the error is 0 if p is zero, and infinite otherwise.
    """
    if not np.all(np.isfinite(p)):
        return math.inf
    if isinstance(exact.value, np.ndarray):
        error = np.abs(p.astype(np.longdouble) - exact.value).max() / np.abs(exact.value).max()
        return float(error / np.finfo(p.dtype).eps)
    with mp.workprec(VALUE_PRECISION):
        error = max(abs(a - b) for a, b in zip(p.tolist(), exact.value, strict=True))
        return _ratio(error, _eps(p) * _largest(exact))


def _ratio(error: mpf, unit: mpf) -> float:
    if unit == 0:
        return 0.0 if error == 0 else math.inf
    return float(error / unit)


def norm_errors_in_eps(p: NDArray[Any], exact: Exact) -> tuple[float, float]:
    """Relative errors of the L1 and of the L2 norm of p, in eps of its dtype."""
    if not np.all(np.isfinite(p)):
        return math.inf, math.inf
    if isinstance(exact.value, np.ndarray):
        wide = np.abs(p.astype(np.longdouble))
        norms, eps = (wide.sum(), np.sqrt(np.square(wide).sum())), np.finfo(p.dtype).eps
        pairs = zip(norms, (exact.l1, exact.l2), strict=True)
        first, second = (float(abs(norm / wanted - 1) / eps) for norm, wanted in pairs)
        return first, second
    with mp.workprec(PRECISION):
        entries, denominator = _integers(p)
        norm1 = mpf(sum(abs(entry) for entry in entries)) / denominator
        norm2 = mpmath.sqrt(mpf(sum(entry**2 for entry in entries))) / denominator
        return (
            _ratio(abs(norm1 - exact.l1), _eps(p) * exact.l1),
            _ratio(abs(norm2 - exact.l2), _eps(p) * exact.l2),
        )


def support_mismatch(p: NDArray[Any], exact: Exact) -> float:
    """Largest entry that is zero in only one of p and exact, in eps times the largest entry."""
    if isinstance(exact.value, np.ndarray):
        value = np.abs(exact.value)
        differ = (p == 0) != (value == 0)
        size = np.maximum(np.abs(p), value)[differ].max(initial=0)
        return float(size / (np.finfo(p.dtype).eps * value.max()))
    with mp.workprec(VALUE_PRECISION):
        sizes = [
            max(abs(mpf(a)), abs(b))
            for a, b in zip(p.tolist(), exact.value, strict=True)
            if (a == 0) != (b == 0)
        ]
        return _ratio(max(sizes, default=mpf(0)), _eps(p) * _largest(exact))


def correctly_rounded(p: NDArray[Any], exact: Exact) -> bool:
    """Whether every entry is the exact one rounded to nearest, give or take one subnormal."""
    info = np.finfo(p.dtype)
    smallest = mpf(float(info.smallest_subnormal))
    with mp.workprec(VALUE_PRECISION):
        for a, b in zip(p.tolist(), exact.value, strict=True):
            quantum = max(smallest, mpmath.ldexp(1, mpmath.frexp(b)[1] - 1 - info.nmant))
            if not abs(a - mpmath.nint(b / quantum) * quantum) <= smallest:
                return False
    return True


def float_norms(
    n: int, *, sparseness: float | None = None, l1: float | None = None, l2: Any = None
) -> tuple[float, float]:
    """Plain float64 norms for a target, for methods that take l1 and l2 only.

    They are rounded: compare such a method with `exact_projection(x, l1=l1, l2=l2)`. The words
    "keep" and "nearest" become a norm of 1.
    """
    if sparseness is None:
        assert l1 is not None
        return l1, float(l2)
    ratio = 1 + (1 - sparseness) * (math.sqrt(n) - 1)
    if l1 is not None:
        return l1, l1 / ratio
    norm = 1.0 if l2 is None or isinstance(l2, str) else float(l2)
    return ratio * norm, norm


def longdouble_projection(
    x: NDArray[Any],
    *,
    sparseness: float | None = None,
    l1: float | None = None,
    l2: float | str | None = None,
    nonnegative: bool = False,
) -> Exact:
    """Project a huge generic vector (fewer than K ties, K between its ends) in long double."""
    wide = x.astype(np.longdouble)
    entries = wide if nonnegative else np.abs(wide)
    n = x.size
    if sparseness is None:
        assert l1 is not None
        assert isinstance(l2, float)
        rho = np.longdouble(l1) / np.longdouble(l2)
    else:
        rho = 1 + (1 - np.longdouble(sparseness)) * (np.sqrt(np.longdouble(n)) - 1)
    descending = np.sort(entries)[::-1]
    # Invariant: the first `low` entries are above alpha, those from `high` on are not.
    low, high = int(np.count_nonzero(entries == descending[0])), n
    if not low < rho**2 < n:
        raise ValueError("long double serves generic vectors only")
    while high - low > 1:
        middle = (low + high) // 2
        t = descending[:middle] - descending[middle]
        if t.sum() ** 2 >= rho**2 * np.square(t).sum():
            high = middle
        else:
            low = middle
    d = high
    mean = descending[:d].mean()
    second = np.square(descending[:d] - mean).sum()
    scale = np.sqrt(second / (1 - rho**2 / d))
    shift = mean - scale * rho / d
    unit = np.where(entries >= descending[d - 1], rho / d + (entries - mean) / scale, 0)
    unit = np.maximum(unit, 0)
    if l2 == "keep":
        norm = np.sqrt(np.square(wide).sum())
    elif l2 == "nearest":
        norm = np.maximum((unit * entries).sum(), 0)
    elif l2 is None:
        norm = np.longdouble(1) if l1 is None else np.longdouble(l1) / rho
    else:
        norm = np.longdouble(l2)
    value = norm * unit
    if not nonnegative:
        value = np.where(wide < 0, -value, value)
    return Exact(value, shift, scale / norm, d, True, rho * norm, norm)
