"""Algorithm 3 on arrays: what a projection keeps in order to be differentiated."""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ...engines.core import _core
from ...options import Axis
from ...projection import RECORD_FIELDS, Active
from ...target import NEARLY
from .arrays import (
    Array,
    Mask,
    check_apart,
    check_like,
    mask_rows,
    native_view,
    passable,
    refuse_masked,
    view,
)

Records: TypeAlias = npt.NDArray[np.float64]


def needs_x(records: Records, norm: str) -> bool:
    """Whether the derivatives of these projections cannot be had from their values alone.

    They depend on x where its norm is kept. Where entries of the support are nearly equal the value
    has lost the digits of their differences, and where beta is not a normal number those of beta.
    Neither matters where l1 binds alone, or no norm does: the support is all that is needed.
    """
    if norm == "keep":
        return True
    active = records[:, RECORD_FIELDS.index("active")]
    records = records[(active != Active.L1) & (active != Active.NONE)]
    scale, size, l1, l2 = (
        records[:, RECORD_FIELDS.index(name)] for name in ("scale", "support_size", "l1", "l2")
    )
    info = np.finfo(np.float64)
    with np.errstate(all="ignore"):
        equal = (l1 / l2) ** 2 > NEARLY * size
        odd = (scale > 0) & ~((scale >= info.smallest_normal) & (scale <= info.max))
    return bool(np.any((equal & (scale > 0)) | odd))


class ArrayDerivatives(NamedTuple):
    """A projection's result and what Algorithm 3 needs beside it."""

    value: Array
    records: Records
    x: Array | None
    """What was projected, where `needs_x` says so."""
    axis: Axis
    norm: str
    nonnegative: bool
    fixed: str | None
    """The norm that stays ("l1", "l2") where the sparseness moves; None if both were given."""
    where: Mask | None = None
    """Which entries form the vectors, if not all: it broadcasts to the value. x is 0 elsewhere."""

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Array:
        """Return the Jacobian, or its transpose, times y."""
        refuse_masked(y, "y")
        given = np.asarray(y)
        if given.shape != self.value.shape:
            raise ValueError(
                f"y has shape {given.shape}, but the projection has shape {self.value.shape}"
            )
        if given.dtype.kind not in "fiub":
            raise TypeError(f"y has dtype {given.dtype}; give real numbers")
        if out is None:
            result = np.empty_like(self.value)
        else:
            result = out
            self._check_out(out, given)
        given = given.astype(self.value.dtype, copy=False)
        if self.where is not None and self._moves_outside():
            given = np.where(self.where, given, given.dtype.type(0))
        written = view(result, self.axis)
        if written.swapped or not passable(written.array):
            result[...] = self.product(given, reverse=reverse)
            return result
        vectors = view(self.value, self.axis)
        original = None if self.x is None else view(self.x, self.axis).array
        _core.gradient_product(
            vectors.array,
            native_view(given, self.axis).array,
            original,
            written.array,
            vectors.inner,
            self.records,
            self.norm,
            self.nonnegative,
            reverse,
        )
        if self._moves_outside():
            self._clear(result)
        return result

    def _moves_outside(self) -> bool:
        """Whether entries that a mask leaves out would take part: the core sees a whole vector.

        Where derivatives are confined to the support nothing is to be done.
        """
        if self.where is None:
            return False
        active = self.records[:, RECORD_FIELDS.index("active")]
        confined = (active == Active.BOTH) | (active == Active.L1)
        return self.norm == "keep" or not confined.all()

    def _clear(self, *results: Array) -> None:
        """Set what a mask leaves out to 0."""
        if self.where is not None:
            for result in results:
                np.copyto(result, 0, where=~self.where)

    def _check_out(self, out: Any, y: Array) -> None:
        check_like(out, self.value)
        check_apart(out, y, "y")
        if any(np.may_share_memory(out, kept) for kept in (self.value, self.x) if kept is not None):
            raise ValueError("out shares memory with the projection: pass other memory")

    def jacobian(self) -> Array:
        """Return the dense Jacobian: its rows are the transposed products with unit vectors."""
        batch, n = self._vectors()

        def repeated(array: Array) -> Array:
            rows = np.ascontiguousarray(view(array, self.axis).array).reshape(*batch, 1, n)
            return np.broadcast_to(rows, (*batch, n, n))

        result = np.empty((*batch, n, n), self.value.dtype)
        units = np.broadcast_to(np.eye(n, dtype=self.value.dtype), result.shape)
        records = np.repeat(self.records, n, axis=0)
        _core.gradient_product(
            repeated(self.value),
            units,
            None if self.x is None else repeated(self.x),
            result,
            1,
            records,
            self.norm,
            self.nonnegative,
            True,
        )
        if self.where is not None:
            rows = mask_rows(self.where, self.value.shape, self.axis).reshape(*batch, n)
            np.copyto(result, 0, where=~(rows[..., None] & rows[..., None, :]))
        return result

    def target_gradient(self) -> tuple[Array, Array]:
        """Return the derivatives by l1 and by l2."""
        by_l1, by_l2 = np.empty_like(self.value), np.empty_like(self.value)
        vectors = view(self.value, self.axis)
        _core.target_gradient(
            vectors.array,
            None if self.x is None else view(self.x, self.axis).array,
            view(by_l1, self.axis).array,
            view(by_l2, self.axis).array,
            vectors.inner,
            self.records,
        )
        self._clear(by_l1, by_l2)
        return by_l1, by_l2

    def sparseness_gradient(self) -> Array | None:
        """Return the derivative by the sparseness, along which l1/l2 falls by sqrt(n) - 1.

        With masks n is the number of entries that are left.
        """
        if self.fixed is None:
            return None
        wide = self.value.astype(np.float64)
        vectors = view(wide, self.axis)
        found = dict(zip(RECORD_FIELDS, self.records.T, strict=True))
        l1, l2 = found["l1"], found["l2"]
        # By how much l2 grows with the ratio l1/l2, both in shares of themselves.
        growth: Any = -1.0 if self.fixed == "l1" else 0.0
        if self.norm == "nearest":
            growth = 1 - found["scale"]
        inverse = np.divide(l2, l1, out=np.zeros_like(l1), where=l1 > 0)
        ratio = (1 - np.sqrt(self._lengths())) * (found["active"] == Active.BOTH)

        def lifted(numbers: Records) -> Records:
            return np.expand_dims(numbers.reshape(vectors.batch), vectors.axes)

        x = None if self.x is None else self.x.astype(np.float64)
        by_l1, by_l2 = self._replace(value=wide, x=x).target_gradient()
        along1, along2 = ratio * l2 * (1 + growth), ratio * l2 * inverse * growth
        gradient = lifted(along1) * by_l1 + lifted(along2) * by_l2
        return (gradient + 0.0).astype(self.value.dtype)  # no minus zero

    def _lengths(self) -> Any:
        """Return the entries of a vector, or of each of them."""
        vectors = view(self.value, self.axis)
        if self.where is None:
            return vectors.length
        lengths = np.empty(len(self.records), np.int64)
        _core.count(mask_rows(self.where, self.value.shape, self.axis), vectors.inner, lengths)
        return lengths

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""
        batch, n = self._vectors()
        return None if batch else n

    def as_numpy(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def _vectors(self) -> tuple[tuple[int, ...], int]:
        vectors = view(self.value, self.axis)
        return vectors.batch, vectors.length
