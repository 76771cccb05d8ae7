"""What is promised and what came out; exact arithmetic has the last word."""

import math
from functools import cached_property
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from reference import VALUE_PRECISION, Exact, exact_projection, norm_errors_in_eps

from . import oracle
from .draw import Case
from .oracle import WIDE
from .tally import Tally

BOUND = 32
SUSPECT = 4
"""Errors beyond this, in eps, are looked at exactly; long doubles are never so far off."""
MOVED = 8
"""So far may a result move when it is projected again."""
MOST_EVALUATIONS = 64
HALF_NOISE = 8
"""Half types are rounded once: so many eps of what they were computed in are on top of that."""
CANCELS = ", <p, x> cancels"
"""Errors there are measured by what may be lost, and told apart."""
LONGEST = 4096
"""No exact arithmetic for longer vectors."""


def near(a: Any, b: Any, relative: float) -> Any:
    """Whether numbers agree, elementwise; two infinities and two NaNs do."""
    with np.errstate(all="ignore"):
        close = np.abs(a - b) <= relative * np.abs(b) + 5e-324
    return close | (a == b) | (np.isnan(a) & np.isnan(b))


class Judge:
    """Holds results of one case against the promise."""

    def __init__(self, case: Case, tally: Tally) -> None:
        self.case, self.tally, self.type = case, tally, case.type
        self.options, self.where = case.options, case.options.get("where")
        self.x = case.x if self.where is None else np.where(self.where, case.x, 0)
        """The vectors; entries that do not count are zero here."""
        self.half = self.type.name in ("float16", "bfloat16")
        # float16 is computed in double, but for the kernels; all else in float32.
        double = self.type.name == "float16" and "kernel" not in case.path
        self.noise = HALF_NOISE * (2.0**-52 if double else 2.0**-23)

    @cached_property
    def right(self) -> oracle.Found:
        """What is right, as far as long doubles tell."""
        return oracle.project(self.x, self.options)

    @cached_property
    def expected(self) -> Any:
        """The right values, with signs."""
        with np.errstate(all="ignore"):
            value = self.right.unit * self.right.norm[:, None]
        return np.where(self.negative, -value, value)

    @property
    def negative(self) -> Any:
        return (self.x < 0) & (not self.options["nonnegative"])

    @cached_property
    def loss(self) -> Any:
        """What the norm loses under "nearest" where <p, x> cancels (see the decisions)."""
        right, mixed = self.right, self.options["nonnegative"] & (self.x < 0).any(1)
        if self.case.rule != "nearest":
            return np.zeros(len(self.x), WIDE)
        gone = right.norm == 0  # <p, x> was not positive: any entry may have been in the support
        support = np.where((right.unit > 0) | gone[:, None], np.abs(self.x), 0).max(1)
        return np.where(mixed, right.ratio * support, 0)

    @property
    def entry_loss(self) -> Any:
        """The same for the entries: the norm is lost, and they follow it."""
        return self.loss * np.where(self.right.norm == 0, 1, self.right.unit.max(1))

    def targets(self, row: int) -> dict[str, Any]:
        """All that `exact_projection` needs to know about one row."""
        one = {name: value for name, value in self.options.items() if name != "solver"}
        for name in ("sparseness", "l1", "l2"):
            value = one.get(name)
            if value is not None and not isinstance(value, str):
                one[name] = float(np.broadcast_to(value, (len(self.x),))[row])
        if self.where is not None:
            one["where"] = self.where[row]
        return one

    @cached_property
    def lengths(self) -> Any:
        """How many entries count, of every row."""
        n = self.x.shape[1]
        return np.full(len(self.x), n) if self.where is None else np.maximum(self.where.sum(1), 1)

    def _bad_signs(self, value: Any) -> Any:
        """Entries with a sign that x does not give them, and masked ones that are not +0."""
        bad = np.signbit(value) != (self.negative & (value != 0))
        return bad if self.where is None else bad | ((value != 0) & ~self.where)

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """l1 and l2 of every row; infinite where they are not numbers."""
        columns = zip(*((t["l1"], t["l2"]) for t in self._targets), strict=True)
        first, second = (
            np.array([np.inf if v is None or isinstance(v, str) else v for v in column], WIDE)
            for column in columns
        )
        return first, second

    @property
    def _targets(self) -> Any:
        return oracle.targets_of(self.options, len(self.x))

    @cached_property
    def border(self) -> Any:
        """Where rounding decides which bounds bind."""
        right = self.right
        if not self.options["at_most"]:
            return np.zeros(len(self.x), bool)
        l1, l2 = self.bounds
        with np.errstate(all="ignore"):
            first, second = near(right.norm * right.ratio, l1, 1e-11), near(right.norm, l2, 1e-11)
            top = np.abs(self.x).max(1)
            unshifted = np.abs(right.shift) <= 1e-11 * top
            unscaled = near(right.scale, right.norm, 1e-11)
        return np.select(
            [right.active == word for word in ("none", "l2", "l1")],
            [first | second, first | unscaled, unshifted | second],
            unshifted | unscaled,
        )

    # ---- values ----

    def values(self, value: Any, what: str = "value") -> None:
        """Entries, norms, signs, supports (which errors of entries imply) of every row."""
        value = np.asarray(value)
        if value.shape != self.x.shape:
            return self.tally.found(self.case, None, f"{what}: shape {value.shape}", 0)
        top = np.abs(self.expected).max(1)
        with np.errstate(all="ignore"):
            apart = np.abs(value.astype(WIDE) - self.expected)
            error = self._in_eps(apart.max(1) - self.type.smallest, top + self.entry_loss)
            norms = error if self.half else self._norm_errors(np.abs(value.astype(WIDE)))
            beyond = self._beyond_rounding(apart) if self.half else 0 * top
        signs = self._bad_signs(value).any(1)
        wrong, doubt = (
            ~(np.maximum(error, norms) <= limit) | signs | (beyond > noise)
            for limit, noise in ((BOUND, self.noise * (top + self.entry_loss)), (SUSPECT, 0))
        )
        fits = top < self.type.top * (1 - 2 * self.type.eps)
        self.tally.count("beyond the type's range", int((~fits).sum()))
        sure = self.right.sure & fits
        if self.x.shape[1] > LONGEST:
            # Too long for exact arithmetic: long doubles have the last word.
            wrong &= ~self._zeros_kept(value, error)
            for row in np.flatnonzero(sure & wrong).tolist():
                self.tally.found(self.case, row, f"{what}: long", error[row])
            doubt = wrong
        clear = sure & ~doubt
        for some, note in ((clear & (self.loss == 0), ""), (clear & (self.loss > 0), CANCELS)):
            self.tally.saw("error" + note, self.case, error[some].max(initial=0))
            self.tally.saw("norms" + note, self.case, norms[some].max(initial=0))
        judged = int(clear.sum())
        judged += self._look_closer(value, np.flatnonzero(sure & doubt), 64, what)
        # Of those that long doubles leave open as many as there is time for.
        rest = np.flatnonzero(fits & ~self.right.sure)
        judged += self._look_closer(value, rest, 1 + 600 // self.x.shape[1], what)
        self.tally.tried(self.case, judged)
        return None

    def _in_eps(self, error: Any, unit: Any) -> Any:
        ratio = np.maximum(error, 0) / (self.type.eps * unit)
        return np.where(unit == 0, np.where(error <= 0, 0, np.inf), ratio)

    def _norm_errors(self, size: Any) -> Any:
        # Where entries are subnormal each may be off by one.
        slack = self.type.smallest * self.x.shape[1]
        l2 = self.right.norm
        l1 = l2 * self.right.ratio
        first = self._in_eps(np.abs(size.sum(1) - l1) - slack, l1 + self.loss * self.right.ratio)
        second = self._in_eps(np.abs(np.sqrt((size**2).sum(1)) - l2) - slack, l2 + self.loss)
        # Norms that do not bind follow from the entries.
        active = self.right.active
        return np.maximum(
            np.where(np.isin(active, ("l1", "both")), first, 0),
            np.where(np.isin(active, ("l2", "both")), second, 0),
        )

    def _beyond_rounding(self, apart: Any) -> Any:
        """By how much errors exceed half a unit in the last place, a bit less than that."""
        power = np.exp2(np.floor(np.log2(np.abs(self.expected))))
        quantum = np.maximum(power * self.type.eps, self.type.smallest)
        return (apart - quantum * WIDE(0.5 - 1e-9)).max(1)

    def _look_closer(self, value: Any, rows: Any, limit: int, what: str) -> int:
        """Judge single rows by exact arithmetic; return how many were."""
        if self.x.shape[1] > LONGEST:
            self.tally.count("left open: too long", len(rows))
            return 0
        self.tally.count("left open", max(len(rows) - limit, 0))
        for row in rows[:limit].tolist():
            self.tally.count("decided exactly")
            exact = exact_projection(self.x[row].astype(np.float64), **self.targets(row))
            for complaint, error in self._complaints(value[row], row, exact):
                self.tally.found(self.case, row, f"{what}: {complaint}", error)
        return min(len(rows), limit)

    def _complaints(self, value: Any, row: int, exact: Exact) -> Any:
        if self._bad_signs(np.broadcast_to(value, self.x.shape))[row].any():
            yield "a sign", 0.0
        if not np.isfinite(value).all():
            yield "not finite", math.inf
            return
        error = self._exact_error(value, row, exact)
        note = CANCELS if self.loss[row] > 0 else ""
        self.tally.saw("error" + note, self.case, error)
        if self.half:
            yield from self._complaints_about_half(value, row, exact, error)
            return
        if not error <= BOUND:
            yield "entries", error
        slack = self.type.smallest * value.size
        lost = float(self.loss[row]) * np.array([float(self.right.ratio[row]), 1.0])
        norms = norm_errors_in_eps(value, exact) if exact.l2 else (0.0, 0.0)
        for name, found, reach in zip(("l1", "l2"), norms, lost, strict=True):
            if exact.active not in (name, "both"):
                continue
            norm = getattr(exact, name)
            left = found / (1 + (reach + slack / self.type.eps) / float(norm)) if norm else 0.0
            self.tally.saw("norms" + note, self.case, left)
            if not left <= BOUND:
                yield "norms", left

    def _exact_error(self, value: Any, row: int, exact: Exact) -> float:
        with mp.workprec(VALUE_PRECISION):
            top = max(abs(entry) for entry in exact.value) + mpf(float(self.entry_loss[row]))
            worst = max(
                abs(mpf(a) - b) for a, b in zip(value.tolist(), exact.value, strict=True)
            ) - mpf(self.type.smallest)
            if worst <= 0:
                return 0.0
            return float(worst / (self.type.eps * top)) if top else math.inf

    def _complaints_about_half(self, value: Any, row: int, exact: Exact, error: float) -> Any:
        if self._zeros_kept(value, error)[row]:
            return
        with mp.workprec(VALUE_PRECISION):
            smallest = mpf(self.type.smallest)
            worst = mpf(0)
            for a, b in zip(value.tolist(), exact.value, strict=True):
                power = mpmath.ldexp(1, mpmath.frexp(b)[1] - 1)
                quantum = max(power * self.type.eps, smallest)
                subnormal = smallest if quantum == smallest else 0
                worst = max(worst, abs(mpf(a) - b) - quantum / 2 - subnormal)
            top = max(abs(entry) for entry in exact.value) + mpf(float(self.entry_loss[row]))
            if worst > self.noise * top:
                yield "not correctly rounded", error

    def _zeros_kept(self, value: Any, error: Any) -> Any:
        """Rows of half types in D up to rounding, which keep their zeros (see the numerics).

        What these would get is less than rounding of the others may be.
        """
        zero = self.x == 0
        right, n = self.right, self.lengths
        top = right.unit.max(1)
        with np.errstate(all="ignore"):
            level = 4 * (right.ratio / n + top)
            noise = np.minimum(right.ratio / (n - right.ratio**2), level)
            noise = np.where(right.active == "l1", level, noise)
        kept = zero.any(1) & ~(zero & (value != 0)).any(1)
        return self.half & kept & (error <= np.maximum(1, noise / top))

    # ---- two results ----

    def same(self, a: Any, b: Any, what: str) -> None:
        """Whether results have the same bits."""
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            self.tally.found(self.case, None, f"{what}: {a.dtype} {a.shape}, not {b.dtype}", 0)
        elif a.tobytes() != b.tobytes():
            rows = np.flatnonzero((a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}")).any(1))
            for row in rows[:3].tolist():
                self.tally.found(self.case, row, f"{what}: other bits", len(rows))

    def again(self, once: Any, twice: Any) -> None:
        """Whether a result that was projected again kept its zeros, and hardly moved."""
        with np.errstate(all="ignore"):
            wide, top = once.astype(WIDE), np.abs(once).max(1).astype(WIDE)
            unit = np.maximum(self.type.eps * top, self.type.smallest)
            moved = np.abs(twice.astype(WIDE) - wide).max(1) / unit
            revived = np.where(once == 0, np.abs(twice), 0).max(1) / unit
            # Where all the spread that is asked for is rounding it may go elsewhere.
            spread = np.sqrt(np.maximum(self.right.excess, 0) / self.right.size) * self.right.norm
            noise = np.where(spread < 2 * math.sqrt(self.x.shape[1]) * unit, spread / unit, 0)
        finite = np.isfinite(once).all(1) & (self.loss == 0)
        self.tally.saw("projected again", self.case, (moved - noise)[finite].max(initial=0))
        for row in np.flatnonzero(finite & ~(moved - noise <= MOVED))[:3].tolist():
            self.tally.found(self.case, row, "moved when projected again", moved[row])
        # Where K is a rounding error from the number of nonzero entries accuracy wins.
        k = self.right.ratio**2
        close = np.abs(np.count_nonzero(once, axis=1) - k) <= 8 * self.type.eps * k
        close &= self.right.active == "both"
        # What rounding left further from the target than it may be is not in D.
        with np.errstate(all="ignore"):
            own = np.abs(wide).sum(1) / np.sqrt((wide**2).sum(1))
            short = (self.right.ratio - own) / self.right.ratio
            l1 = self.bounds[0]
            short = np.where(self.right.active == "l1", 1 - np.abs(wide).sum(1) / l1, short)
        outside = short > (1 if self.half else 4) * self.type.eps
        self.tally.count("results beyond the ratio's rounding", int((finite & outside).sum()))
        finite &= ~outside
        for row in np.flatnonzero(finite & (revived > close))[:3].tolist():
            self.tally.found(self.case, row, "a zero revived when projected again", revived[row])

    # ---- how it was found ----

    def records(self, found: Any) -> None:
        """Norms, alpha, beta, uniqueness; the support up to entries that are rounding."""
        right, value = self.right, np.asarray(found.value)
        with np.errstate(all="ignore"):
            shift, scale = (np.asarray(part, np.float64) for part in (found.shift, found.scale))
            wanted, l2 = right.scale / right.norm, right.norm
            l1 = l2 * right.ratio
            same = ((value != 0) == (right.unit > 0)).all(1)
            # With zeros that were kept "nearest" has another norm.
            free = (self.loss > 0) | (~same & (self.case.rule == "nearest"))
            fine = {
                # A norm beyond the largest double is infinite.
                "l2": near(found.l2, l2.astype(np.float64), 1e-12) | free,
                "l1": near(found.l1, l1.astype(np.float64), 1e-12) | free,
            }
            regular = (wanted > 1e-290) & (wanted < 1e290) & (right.norm > 0) & (self.loss == 0)
            # Zeros may have been kept, and no double-double tells such a K from n.
            vague = (right.excess > 0) & (right.excess < 1e-30)
            regular &= same & ~vague
            fine["scale"] = ~regular | near(scale, wanted, 1e-8)
            reach = np.maximum(np.abs(right.shift), np.abs(self.x).max(1)) * 1e-8 + 5e-324
            # (Beyond the largest double it is infinite.)
            rounded = np.asarray(right.shift, np.float64)
            fine["shift"] = ~regular | (shift == rounded) | (np.abs(shift - right.shift) <= reach)
        noise = BOUND * self.type.eps * np.abs(self.expected).max(1)[:, None]
        visible = (np.abs(self.expected) > noise).sum(1)
        size = np.asarray(found.support_size)
        # An entry at alpha, but for rounding, may count.
        entries = self.x if self.options["nonnegative"] else np.abs(self.x)
        with np.errstate(all="ignore"):
            at_most = (entries - right.shift[:, None] > -1e-12 * right.scale[:, None]).sum(1)
        at_most = np.where(same, np.maximum(at_most, right.size), self.x.shape[1])
        possible = (size >= np.where(same, right.size, visible)) & (size <= at_most)
        fine["support size"] = possible | self.half | (right.norm == 0)
        signed = (self.x == 0) & (not self.options["nonnegative"])
        chosen, tiny = ((signed & (part != 0)).any(1) for part in (value, right.unit))
        unique = np.asarray(found.unique)
        # What is too small for the type was a choice, too; zeros that were kept were none.
        alike = (unique == (~right.tied & ~chosen)) | (unique == (~right.tied & ~tiny))
        fine["unique"] = alike | vague | self._barren | (right.norm == 0) | (self.loss > 0)
        if self.options["at_most"] or self.case.rule == "free":
            alike = np.asarray(found.active) == right.active
            fine["active"] = alike | self.border | ((right.norm == 0) & (self.x != 0).any(1))
        tame = np.abs(self.expected).max(1) < self.type.top
        for what, right_rows in fine.items():
            for row in np.flatnonzero(right.sure & tame & ~right_rows)[:3].tolist():
                self.tally.found(self.case, row, f"record: {what}", 0)
        self.evaluations(found, MOST_EVALUATIONS)

    def evaluations(self, found: Any, limit: int) -> None:
        """How often the vector was read."""
        most = np.asarray(found.evaluations)
        self.tally.saw("evaluations", self.case, most.max())
        for row in np.flatnonzero(most > limit)[:3].tolist():
            self.tally.found(self.case, row, "evaluations", most[row])

    # ---- derivatives ----

    def products(self, value: Any, y: Any, results: dict[str, Any]) -> None:
        """jvp, vjp and the derivatives by the target, where the support is beyond doubt."""
        right = self.right
        with np.errstate(all="ignore"):
            same = ((right.unit > 0) == (np.asarray(value) != 0)).all(1)
            rows = right.sure & same & (self.loss == 0) & (right.norm > 0) & ~self._on_the_edge()
            blur, told = self._blur()
            rows &= told & np.isfinite(value).all(1)
            scale = np.where(np.isnan(right.scale), 0, right.scale)
            signs = np.where(self.negative, -1, 1)
            free = (right.active == "none")[:, None] & (not self.options["nonnegative"])
            free = free & (True if self.where is None else self.where)
            at = oracle.At(
                right.unit, scale, right.norm, signs * self.x.astype(WIDE), right.alone,
                right.active, np.broadcast_to(free, self.x.shape),
            )  # fmt: skip
            answers = self._derivatives(at, right.excess, signs * y.astype(WIDE))
        for name, result in results.items():
            wanted, unit = answers[name]
            unit = unit * blur
            with np.errstate(all="ignore"):
                slack = self.type.smallest
                off = np.abs(np.asarray(result, WIDE) * signs - wanted).max(1) - slack
                error = self._in_eps(off, unit)
                fine = rows & (unit < self.type.top / 4) & ~np.isnan(unit)
                if name.startswith("by"):
                    fine &= (~right.alone | self.options["at_most"]) & ~self._barren
                doubt = fine & ~(error <= SUSPECT)
            self.tally.saw(name, self.case, error[fine & ~doubt].max(initial=0))
            self.tally.count("gradients", int(fine.sum()))
            for row in np.flatnonzero(doubt)[:2].tolist():
                exact = error[row]
                if self.x.shape[1] <= LONGEST // 8:
                    exact = self._exact_product_error(row, y, name, np.asarray(result)[row])
                    exact /= float(blur[row])
                self.tally.saw(name, self.case, exact)
                if not exact <= BOUND:
                    self.tally.found(self.case, row, self._sort_of(name, row, y), exact)
        self.tally.tried(self.case, int(rows.sum()))

    @property
    def _barren(self) -> Any:
        """Rows without positive entries that become one-hot."""
        return self.options["only_increase"] & (self.x.max(1) <= 0)

    def _blur(self) -> tuple[Any, Any]:
        """How much errors of products may grow (README), and where that is told at all.

        Subnormal results have few digits; so have the differences of nearly equal entries, unless
        x is kept to tell them, and there beta must be a float.
        """
        right, kind, n = self.right, self.type, self.x.shape[1]
        beta, top = right.scale / right.norm, right.unit.max(1)
        away = np.where(right.unit > 0, np.abs(right.unit - _mean(right.unit)), 0).max(1)
        lost = np.where(away > 0, top / np.where(away > 0, away, 1), np.inf)
        normal = ((beta > 2.3e-308) & (beta < 1.7e308)) | np.isnan(beta) | (beta == 0)
        plain = not any(isinstance(value, np.ndarray) for value in self.options.values())
        seen = normal
        if self.case.path != "products":
            seen = normal & plain & (right.ratio**2 > 0.999 * n)
        lost = np.where((right.size == 1) | (right.active != "both"), 1, lost)
        blur = (1 + kind.normal / (right.norm * top)) * np.where(seen, 1, 1 + lost)
        # Of such a target, 1 - K/n, a double has few digits, too.
        told = ~((right.excess > 0) & (right.excess < 1e-290))
        if self.case.path != "products":
            told &= normal
        # Too long to be judged exactly, and too much of it lost for long doubles.
        return blur, told & ((n <= LONGEST // 8) | ((lost < 1e3) & (right.size > 1)))

    def _sort_of(self, name: str, row: int, y: Any) -> str:
        """What is special about a product that went wrong."""
        right, kind = self.right, self.type
        unit, beta = right.unit[row], right.scale[row] / right.norm[row]
        given = np.abs(np.where(unit > 0, y[row], 0)).max()
        signs = {
            "p hardly varies": unit.max() < 1.01 * unit[unit > 0].min(),
            "beta overflows": beta > kind.top,
            "beta subnormal": beta < kind.normal,
            "y near the largest": given > kind.top / 1000,
            "y subnormal": given < kind.normal * 1000,
            "p subnormal": right.norm[row] * unit.max() < kind.normal / kind.eps,
            "y infinite outside the support": np.isinf(y[row]).any(),
        }
        return ", ".join([name, *(sign for sign, holds in signs.items() if holds)])

    def _on_the_edge(self) -> Any:
        """Where a rounding error decides whether a vector is alone; alone with zeros."""
        zeros = self.right.alone & ((self.x == 0) & self._counted).any(1)
        if not self.options["only_increase"]:
            return self.border | zeros
        size = np.maximum(self.x if self.options["nonnegative"] else np.abs(self.x), 0).astype(WIDE)
        k = size.sum(1) ** 2 / (size**2).sum(1)
        edge = np.abs(k - self.right.size + self.right.excess) < 1e-13 * k
        return edge | zeros

    @property
    def _counted(self) -> Any:
        return np.True_ if self.where is None else self.where

    def _derivatives(self, at: oracle.At, excess: Any, y: Any) -> dict[str, tuple[Any, Any]]:
        """What is right, and the unit of its errors."""
        rule = self.case.rule
        answers = {
            "jvp": oracle.product(at, y, rule, reverse=False),
            "vjp": oracle.product(at, y, rule, reverse=True),
        }
        parts = oracle.by_target(at.unit, excess, at.active)
        for name, part in zip(("by l1", "by l2"), parts, strict=True):
            # They are made of the deviations of p from its mean, as far as p has them.
            away = np.where(at.unit > 0, np.abs(at.unit - _mean(at.unit)), 0)
            lost = at.unit.max(1) / np.where(away.max(1) > 0, away.max(1), at.unit.max(1))
            answers[name] = part, np.abs(part).max(1) * (1 + lost)
        return answers

    def _exact_product_error(self, row: int, y: Any, name: str, result: Any) -> float:
        self.tally.count("decided exactly")
        with mp.workprec(oracle.PRECISION):
            at, signs, excess = oracle.exactly_at(self.x[row].astype(np.float64), self.targets(row))
            given = np.array([[mpf(float(entry)) for entry in y[row]]], dtype=object) * signs
            wanted, unit = self._derivatives(at, excess, given)[name]
            if unit[0] > self.type.top / 4:
                return 0.0
            if not np.isfinite(np.asarray(result, np.float64)).all():
                return math.inf
            found = np.array([mpf(float(entry)) for entry in result], dtype=object) * signs
            off = max(abs(a - b) for a, b in zip(found, wanted[0], strict=True))
            off -= mpf(self.type.smallest)
            return (
                0.0 if off <= 0 else float(off / (self.type.eps * unit[0])) if unit[0] else math.inf
            )


def _mean(unit: Any) -> Any:
    return (unit.sum(1) / (unit > 0).sum(1))[:, None]
