"""What is right, for many vectors at once: long doubles, and K from exact integers.

Long doubles have 64 bits and so much range that nothing overflows, nothing is subnormal, and no
vector needs a scale. Sums lose little, as they are taken of distances from the maximum. Where these
digits do not decide (`sure` is False), and wherever a result disagrees, tests/reference.py has the
last word. Where long doubles are plain doubles nothing is ever sure.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import mpmath
import numpy as np
from reference import PRECISION, exact_projection

WIDE = np.longdouble
UNIT = np.finfo(WIDE).eps / 2
DECIDES = UNIT < 2.0**-60
ROOT_BITS = 1300
"""Bits of a square root: n - K is 1e-324 for the smallest sparseness, and has 128 bits then."""


class Found(NamedTuple):
    """Projections: one row of `unit` for each vector, else one number."""

    unit: Any
    """Magnitudes of the results at norm 1."""
    norm: Any
    """The norms that results have, l2."""
    ratio: Any
    """l1 / l2."""
    shift: Any
    scale: Any
    """alpha, and beta at norm 1; NaN where there is none: ties, constants."""
    excess: Any
    """d - K."""
    size: Any
    tied: Any
    """Whether there are other nearest points: more than K entries share the maximum."""
    alone: Any
    """Whether a vector kept its direction."""
    sure: Any
    active: Any
    """Which norms bind: "l1", "l2", "both" or "none"; of vectors that are `alone`, see there."""


# ---- the target ----


def _pair(top: int, bottom: int) -> tuple[Any, Any]:
    """A quotient of integers as the sum of two long doubles."""
    if top <= 0:
        return WIDE(0), WIDE(0)
    shift = 130 - top.bit_length() + bottom.bit_length()
    digits = (top << shift) // bottom if shift > 0 else top // (bottom << -shift)
    rest = digits.bit_length() - 64
    high, low = digits >> rest, digits & ((1 << rest) - 1)
    return np.ldexp(WIDE(high), rest - shift), np.ldexp(WIDE(low), -shift)


@lru_cache(maxsize=4096)
def _root(n: int) -> int:
    return math.isqrt(n << 2 * ROOT_BITS)


@lru_cache(maxsize=65536)
def room_of(n: int, sparseness: Any, l1: Any, l2: Any) -> tuple[Any, Any]:
    """n - K for one target, from integers."""
    if sparseness is None:
        (a, b), (c, d) = l1.as_integer_ratio(), l2.as_integer_ratio()
        top, bottom = (a * d) ** 2, (b * c) ** 2
        top = min(max(top, bottom), n * bottom)  # what lies outside by rounding is clamped
        return _pair(n * bottom - top, bottom)
    a, b = sparseness.as_integer_ratio()
    if a in (0, b):
        return WIDE(0 if a == 0 else n - 1), WIDE(0)
    ratio = (a << ROOT_BITS) + (b - a) * _root(n)
    unit = b << ROOT_BITS
    return _pair(n * unit**2 - ratio**2, unit**2)


def _each(value: Any, rows: int) -> list[Any]:
    """A target for each vector, as Python's numbers."""
    if value is None or isinstance(value, str):
        return [value] * rows
    return np.broadcast_to(np.asarray(value, np.float64), (rows,)).tolist()


def targets_of(options: dict[str, Any], rows: int) -> list[dict[str, Any]]:
    """The target of each vector, as tests/reference.py takes it."""
    names = ("sparseness", "l1", "l2")
    columns = [_each(options.get(name), rows) for name in names]
    return [dict(zip(names, numbers, strict=True)) for numbers in zip(*columns, strict=True)]


# ---- the projection ----


class _Support(NamedTuple):
    size: Any
    mean: Any
    scale: Any
    unit: Any


def _closed_form(t: Any, last: Any, excess: Any, ratio: Any) -> _Support:
    """The result on the support of entries that are at least `last`."""
    inside = t >= last[:, None]
    size = inside.sum(1)
    mean = np.where(inside, t, 0).sum(1) / size
    away = np.where(inside, t - mean[:, None], 0)
    more = away.sum(1) / size
    mean, away = mean + more, np.where(inside, away - more[:, None], 0)
    scale = np.sqrt((away**2).sum(1) * size / excess)
    level = np.where(inside, (ratio / size)[:, None], 0)
    return _Support(size, mean, scale, np.maximum(level + away / scale[:, None], 0))


def _bounds(t: Any, k: Any) -> tuple[Any, Any]:
    """How many entries, in descending order, are surely above alpha, and how many perhaps."""
    i = np.arange(t.shape[1], dtype=WIDE)
    sums, squares = np.cumsum(t, axis=1) - t, np.cumsum(t * t, axis=1) - t * t
    l1, l2 = sums - i * t, squares - 2 * t * sums + i * t * t
    gap = l1 * l1 - k[:, None] * l2
    noise = 8 * UNIT * (i + 1) * -t * (l1 + k[:, None] * -t)
    # At the maximum, and for the second largest value, both sums are what they are: inside.
    first = (t == 0).sum(1)[:, None]
    inside = (gap < -noise) | (i <= first)
    outside = (gap > noise) & ~inside
    n = t.shape[1]
    some = outside.any(1)
    return np.where(inside.all(1), n, (~inside).argmax(1)), np.where(some, outside.argmax(1), n)


def _searched(t: Any, excess_at: Any, k: Any, ratio: Any) -> tuple[_Support, Any]:
    """The result where alpha has to be searched, and whether it is sure."""
    descending = -np.sort(-t, axis=1)
    low, high = _bounds(descending, k)

    def at(count: Any, rows: Any) -> tuple[_Support, Any]:
        last = np.take_along_axis(descending[rows], count[:, None] - 1, 1)[:, 0]
        excess = excess_at((t[rows] >= last[:, None]).sum(1), rows)
        return _closed_form(t[rows], last, excess, ratio[rows]), excess

    everyone = np.arange(len(t))
    found, excess = at(high, everyone)
    sure = (excess > found.size * 2.0**-60) | (found.size == t.shape[1])
    open_rows = np.flatnonzero(low < high)
    if open_rows.size:
        # Which support it is does not matter where both give the same.
        other, _ = at(low[open_rows], open_rows)
        apart = np.abs(other.unit - found.unit[open_rows]).max(1)
        sure[open_rows] &= apart < 2.0**-60 * found.unit[open_rows].max(1)
    return found, sure


def project(x: Any, options: dict[str, Any]) -> Found:
    """Project the rows of x, any real floats; `options` are those of `hoyer.project`."""
    with np.errstate(all="ignore"):
        return _project(x, options) if options.get("where") is None else _masked(x, options)


def some_rows(options: dict[str, Any], rows: Any) -> dict[str, Any]:
    """The options of some of the rows: numbers and masks that each has of its own."""
    return {
        name: value[rows] if isinstance(value, np.ndarray) and value.ndim else value
        for name, value in options.items()
    }


def _masked(x: Any, options: dict[str, Any]) -> Found:
    """Project the entries that count: rows with as many of them are a batch without masks."""
    where, plain = options["where"], {k: v for k, v in options.items() if k != "where"}
    lengths = where.sum(1)
    order = np.argsort(~where, axis=1, kind="stable")
    parts: list[Any] = [None] * len(Found._fields)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        columns = order[rows, :length]
        found = _of_one_length(x[rows[:, None], columns], some_rows(plain, rows))
        unit = np.zeros((len(rows), x.shape[1]), WIDE)
        np.put_along_axis(unit, columns, found.unit, 1)
        for i, field in enumerate(found._replace(unit=unit)):
            if parts[i] is None:
                parts[i] = np.zeros((len(x), *field.shape[1:]), field.dtype)
            parts[i][rows] = field
    return Found(*parts)


def _of_one_length(x: Any, options: dict[str, Any]) -> Found:
    """Project rows that masks left: of no entry nothing is asked, a single one takes the norm."""
    rows, n = x.shape
    if n == 0:
        nothing, no = np.full(rows, WIDE(0)), np.zeros(rows, bool)
        size, active = np.zeros(rows, np.int64), np.full(rows, "none")
        unknown = nothing + np.nan
        return Found(
            np.zeros((rows, 0), WIDE), nothing, nothing, unknown, unknown, nothing, size, no, no,
            ~no, active,
        )  # fmt: skip
    if n > 1 or options.get("sparseness") is None:
        return _project(x, options)
    y = x[:, 0].astype(WIDE)
    l1, l2 = options.get("l1"), options.get("l2")
    # What is kept is the norm of negative entries, too.
    nearest = options.get("nonnegative") and isinstance(l2, str) and l2 == "nearest"
    own = np.maximum(y, 0) if nearest else np.abs(y)
    given = own if isinstance(l2, str) else l2 if l1 is None else l1
    norm = np.broadcast_to(np.asarray(1 if given is None else given, WIDE), (rows,)).copy()
    one, no = np.ones(rows, WIDE), np.zeros(rows, bool)
    unit = (norm > 0).astype(WIDE)[:, None]
    return Found(
        unit, norm, one, one * np.nan, one * np.nan, one * 0, (norm > 0).astype(np.int64), no, no,
        ~no & bool(DECIDES), np.full(rows, "both"),
    )  # fmt: skip


def _project(x: Any, options: dict[str, Any]) -> Found:
    if options.get("at_most") or (options.get("sparseness") is None and options.get("l2") is None):
        return _bounded(x, options)
    rows, n = x.shape
    nonnegative = bool(options.get("nonnegative"))
    wide = x.astype(WIDE)
    entries = wide if nonnegative else np.abs(wide)
    targets = targets_of(options, rows)
    pairs = [room_of(n, t["sparseness"], t["l1"], _number(t["l2"])) for t in targets]
    high, low = (np.array(part, dtype=WIDE) for part in zip(*pairs, strict=True))

    def excess_at(count: Any, at: Any = slice(None)) -> Any:
        return (high[at] - (n - count)) + low[at]

    k = n - high - low
    ratio = np.sqrt(k)
    top = entries.max(1)
    t = entries - top[:, None]
    tied = t == 0
    m = tied.sum(1)
    spare = excess_at(m)  # m - K
    sure = (spare == 0) | (np.abs(spare) > n * 2.0**-60) | (m == n)
    flat, many, exactly = high == 0, spare > 0, spare == 0
    # What is searched for these rows is replaced.
    special = flat | many | exactly
    found, decided = _searched(t, excess_at, np.where(special, 1, k), ratio)
    sure &= decided | special
    below = np.where(tied, -np.inf, entries).max(1)
    first = np.arange(n) == tied.argmax(1)[:, None]
    r = spare / m
    level = np.where(k == 1, 0, ratio / m - np.sqrt(r / (m * np.maximum(m - 1, 1))))
    peak = ratio / m + np.sqrt(r * (m - 1) / m)
    unit = np.select(
        [flat[:, None], many[:, None], exactly[:, None]],
        [
            np.broadcast_to(1 / ratio[:, None], x.shape),
            np.where(first, peak[:, None], np.where(tied, level[:, None], 0)),
            np.where(tied, (ratio / m)[:, None], 0),
        ],
        found.unit,
    )
    scale = np.select([flat | many, exactly], [np.nan, (top - below) * m / ratio], found.scale)
    shift = np.where(exactly, below, top + found.mean - scale * ratio / found.size)
    alone = np.zeros(rows, bool)
    if options.get("only_increase"):
        own, alone, barren, unsure = _only_increased(entries, k)
        unit = np.where(alone[:, None], np.maximum(entries, 0) / own[:, None], unit)
        unit = np.where(barren[:, None], first, unit)
        scale = np.where(alone, own, np.where(barren, np.nan, scale))
        shift = np.where(alone, 0, shift)
        sure &= ~unsure
    single = alone | (options.get("only_increase", False) & nonnegative & (top <= 0))
    total = np.where(single, unit.sum(1), ratio)
    norm = _norm(entries, unit, targets, total)
    unit = np.where(norm[:, None] == 0, 0, unit)
    size = np.count_nonzero(unit, axis=1)
    jumps = many & ~flat & ~alone & (norm > 0)
    excess = excess_at(np.where(many, m, size))
    return Found(
        unit, norm, total, shift, scale, excess, size, jumps, alone, sure & bool(DECIDES),
        np.full(rows, "both"),
    )  # fmt: skip


def _simplex(y: Any, l1: Any) -> tuple[Any, Any]:
    """The nearest p >= 0 with entries that sum up to l1, and the largest of them.

    It is measured downwards from the maximum: nothing cancels.
    """
    below = y.max(1)[:, None] - y
    sums = np.cumsum(np.sort(below, axis=1), axis=1)
    # Every support gives a lower bound of alpha.
    top = ((l1[:, None] + sums) / np.arange(1, y.shape[1] + 1)).min(1)[:, None]
    inside = below < top
    top = (l1[:, None] + _sum(np.where(inside, below, 0))) / np.maximum(inside.sum(1), 1)[:, None]
    return np.maximum(top - below, 0), top[:, 0]


def _bounded(x: Any, options: dict[str, Any]) -> Found:
    """Project onto the sets that l1 alone makes, or upper bounds."""
    rows = len(x)
    wide = x.astype(WIDE)
    y = wide if options.get("nonnegative") else np.abs(wide)
    targets = targets_of(options, rows)
    l1 = np.array([target["l1"] for target in targets], dtype=WIDE)
    l2 = np.array([np.inf if t["l2"] is None else t["l2"] for t in targets], dtype=WIDE)
    positive = np.maximum(y, 0)
    total, own = positive.sum(1), np.sqrt((positive**2).sum(1))
    value, top = _simplex(y, l1)
    size = np.sqrt((value**2).sum(1))
    at_most = bool(options.get("at_most"))
    within = (total <= l1) & (own <= l2) & at_most
    scaled = ~within & (own > l2) & (total * l2 <= l1 * own)
    one = ~within & ~scaled & (size <= l2)
    both = ~within & ~scaled & ~one & (l1 > 0) & (l2 > 0)
    active = np.select([within, scaled, one], ["none", "l2", "l1"], "both")
    value = np.select(
        [within[:, None], scaled[:, None]], [positive, positive * (l2 / own)[:, None]], value
    )
    nothing = (l1 == 0) | (l2 == 0)
    value[nothing] = 0
    norm = np.sqrt((value**2).sum(1))
    beta = np.where(scaled, own / l2, np.where(nothing & ~within, np.nan, 1))
    shift = np.where(within | scaled, 0, y.max(1) - top)
    unit = value / np.where(norm == 0, 1, norm)[:, None]
    count = np.count_nonzero(value, axis=1)
    no = np.zeros(rows, bool)
    found = Found(
        unit, norm, unit.sum(1), shift, beta * norm, count.astype(WIDE), count, no, scaled.copy(),
        ~no & bool(DECIDES), active,
    )  # fmt: skip
    if not both.any():
        return found
    at = np.flatnonzero(both)
    plain = {k: v for k, v in some_rows(options, at).items() if k != "at_most"}
    parts = _project(x[at], plain | {"l1": l1[at].astype(float), "l2": l2[at].astype(float)})
    for ours, theirs in zip(found, parts, strict=True):
        ours[at] = theirs
    # Where long doubles do not tell whether both norms bind.
    found.sure[at] &= size[at] > l2[at] * (1 + 2.0**-52)
    return found


def _number(l2: Any) -> Any:
    return None if isinstance(l2, str) else l2


def _only_increased(entries: Any, k: Any) -> tuple[Any, Any, Any, Any]:
    """Norms of positive parts; who is sparse enough, who has no such part; who is near the edge."""
    clipped = np.maximum(entries, 0)
    own = np.sqrt((clipped**2).sum(1))
    gap = clipped.sum(1) ** 2 - k * own**2
    alone = (gap <= 0) & (own > 0)
    noise = 64 * UNIT * np.sqrt(entries.shape[1]) * k * own**2
    unsure = (np.abs(gap) <= noise) & (own > 0) & (k > 1)  # at K = 1 it is the same
    return own, alone, (own == 0) & (entries < 0).any(1), unsure


def _norm(entries: Any, unit: Any, targets: list[dict[str, Any]], total: Any) -> Any:
    given = targets[0]
    if given["l2"] == "keep":
        return np.sqrt((entries**2).sum(1))
    if given["l2"] == "nearest":
        return np.maximum((unit * entries).sum(1), 0)
    if given["l2"] is not None:
        return np.array([target["l2"] for target in targets], dtype=WIDE)
    if given["l1"] is not None:
        return np.array([target["l1"] for target in targets], dtype=WIDE) / total
    return np.ones(len(targets), WIDE)


# ---- the derivatives; arrays of long doubles, or of mpmath's numbers ----


class At(NamedTuple):
    """A projection to be differentiated: magnitudes at norm 1, one row for each vector."""

    unit: Any
    scale: Any
    """beta at norm 1; 0 where the projection jumps."""
    norm: Any
    x: Any
    """x with the signs of the result."""
    alone: Any
    active: Any
    """As in `Found`; an array of one word for vectors that all have both norms."""
    free: Any
    """Which entries may move though they are zero."""


def product(at: At, y: Any, rule: str, *, reverse: bool) -> tuple[Any, Any]:
    """The Jacobian, or its transpose, times y (which has the signs of the result as well).

    `rule` says which norm is set: l2, keep, nearest, or l1 (beside a sparseness). Also returns what
    errors are measured in: the largest |y| on the support over beta, and the norm's own part.
    """
    support = (at.unit > 0) | at.free
    inner = np.where(support, y, 0 * at.unit)
    along = _sum(at.unit * inner)
    if rule == "l1":
        total = _sum(at.unit)
        kept = inner - (along / total if reverse else at.unit * (_sum(inner) / total))
    else:
        kept = inner - at.unit * along
    size = np.maximum(support.sum(1), 1)[:, None]
    away = np.where(support, at.unit - _sum(at.unit) / size, 0 * at.unit)
    spread = _sum(away * away)
    spread = np.where(spread == 0, 1 + spread, spread)
    level = inner - _sum(inner) / size
    moved = level - away * (_sum(away * inner) / spread)
    by_l1, by_none = (np.asarray(at.active == word)[:, None] for word in ("l1", "none"))
    moved = np.where(by_none, inner, np.where(by_l1, level, moved))
    jumps = at.scale == 0
    factor = np.where(jumps, 0 * at.norm, at.norm / np.where(jumps, 1 + at.scale, at.scale))
    result = np.where(support, np.where(at.alone[:, None], kept, moved), 0 * inner)
    result, largest = result * factor[:, None], np.abs(inner).max(1) * factor
    if rule not in ("keep", "nearest"):
        return result, largest
    # The norm's own part: an outer product. Its sum may cancel; its error follows the terms.
    left, right, weight = at.unit, at.unit * inner, 1
    if rule == "keep":
        weight = at.norm[:, None] / _sum(at.x * at.x)
        left, right = (at.x, right) if reverse else (at.unit, at.x * y)
    positive = at.norm[:, None] > 0
    # Entries of the result are right to an eps of the largest, not each to an eps of its own.
    lost = (at.unit.max(1) * np.abs(inner).max(1))[:, None]
    part, reach = (
        np.where(positive, a * (weight * b), 0 * at.unit)
        for a, b in ((left, _sum(right)), (np.abs(left), _sum(np.abs(right)) + lost))
    )
    return result + part, largest + reach.max(1)


def by_target(unit: Any, excess: Any, active: Any) -> tuple[Any, Any]:
    """The derivatives by l1 and by l2, without signs; zero where d = K, and by idle bounds."""
    first, second = _by_both(unit, excess)
    by_l1, by_l2, by_none = (np.asarray(active == word)[:, None] for word in ("l1", "l2", "none"))
    size = np.maximum((unit > 0).sum(1), 1)[:, None]
    alone = np.where(unit > 0, 1 / (size + 0 * unit), 0 * unit)
    first = np.where(by_l1, alone, np.where(by_l2 | by_none, 0 * unit, first))
    return first, np.where(by_l2, unit, np.where(by_l1 | by_none, 0 * unit, second))


def _by_both(unit: Any, excess: Any) -> tuple[Any, Any]:
    excess = excess[:, None]
    support = (unit > 0) & (excess != 0)
    size = np.maximum(support.sum(1), 1)[:, None]
    ratio = _sum(unit)
    away = (unit - ratio / size) / np.where(excess == 0, 1 + excess, excess)
    away = np.where(support, away, 0 * unit)
    return np.where(support, 1 / (size + 0 * unit) - ratio * away, 0 * unit), size * away


def _sum(array: Any) -> Any:
    return array.sum(1)[:, None]


# ---- the same for one vector, exactly ----


def exactly_at(x: Any, options: dict[str, Any]) -> tuple[At, Any, Any]:
    """One vector in high precision: what is differentiated, its signs, and d - K."""
    with mpmath.mp.workprec(PRECISION):
        exact = exact_projection(x, **options, precision=PRECISION)
        signs = [-1 if entry < 0 and not options.get("nonnegative") else 1 for entry in x.tolist()]
        size = sum(abs(value) for value in exact.value)
        unit = [abs(value) / (exact.l2 or 1) for value in exact.value]
        ratio = size / (exact.l2 or 1)
        alone = exact.shift == 0 and (bool(options.get("only_increase")) or exact.active == "l2")
        free = exact.active == "none" and not options.get("nonnegative")
        where = options.get("where")
        may_move = np.ones(len(x), bool) if where is None else np.asarray(where)
        at = At(
            _numbers([unit]),
            _numbers([(exact.scale or mpmath.mpf(0)) * exact.l2]),
            _numbers([exact.l2]),
            _numbers([[s * mpmath.mpf(entry) for s, entry in zip(signs, x.tolist(), strict=True)]]),
            np.array([alone]),
            np.array([exact.active]),
            free & may_move[None],
        )
        excess = exact.support_size - ratio**2
        if abs(excess) < mpmath.ldexp(exact.support_size, 32 - PRECISION):
            excess = mpmath.mpf(0)  # no more than our own rounding
        return at, np.array(signs), _numbers([excess])


def _numbers(values: Any) -> Any:
    return np.array(values, dtype=object)
