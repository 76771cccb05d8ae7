"""`Projection`: the value of a projection, how it was found, and its derivatives."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


RECORD_FIELDS = ("shift", "scale", "support_size", "evaluations", "unique", "l1", "l2", "active")
"""What every engine tells about a vector: a row of doubles, in this order."""

SHIFT, SCALE, SUPPORT, EVALUATIONS, UNIQUE, L1, L2, ACTIVE = range(len(RECORD_FIELDS))


class Active:
    """Which norms bind, as engines mark it in a record: it decides what the derivative is.

    The derivative is (E - the projector onto the normals of these norms)/beta on the support.
    Vectors that keep their direction move everywhere, and those within all bounds, too.
    """

    BOTH = 0
    L2 = 1
    """The direction is kept, and brought to the L2 norm."""
    L1_DIRECTION = 2
    """The direction is kept, and brought to the L1 norm."""
    L1 = 3
    """A multiple of the signs is subtracted; beta is 1."""
    NONE = 4
    """Within all bounds: as it was (beta is 1, alpha 0); or no entry is left of it."""


ACTIVE_NAMES = ("both", "l2", "l1", "l1", "none")

Array_co = TypeVar("Array_co", covariant=True)


class Derivatives(Protocol[Array_co]):
    """What a family stores to differentiate a projection: plain data with a few functions."""

    def product(self, y: Any, *, reverse: bool, out: Any = None) -> Array_co:
        """Return the Jacobian, or its transpose, times y, in `out` if that is given."""

    def jacobian(self) -> Array_co:
        """Return the dense Jacobian of every vector."""

    def target_gradient(self) -> tuple[Array_co, Array_co]:
        """Return the derivatives by l1 and by l2."""

    def sparseness_gradient(self) -> Array_co | None:
        """Return the derivative by the sparseness; None if both norms were given instead."""

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""

    def as_numpy(self, array: Any) -> Any:
        """Return an array of the family as a NumPy array."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Projection(Generic[Array_co]):
    """A projection with everything that was found on the way.

    Attributes are arrays shaped like the input with the vectors' axis removed (numbers for a single
    vector), except `value`.

    Attributes
    ----------
    value : array
        The projected vectors, shaped like the input. NumPy arrays are read-only, since the
        derivatives are computed from them; of tensors the derivatives keep a copy.
    shift : array
        alpha: what is subtracted. NaN where there is no such number (see `unique`, and target
        sparseness 0).
    scale : array
        beta: what is divided by; ``value = max((x - shift) / scale, 0)`` (without `nonnegative`
        that of ``abs(x)``, with the signs of x given back). 0 where there is no shift.
    support_size : array of int
        d: how many entries may be nonzero.
    evaluations : array of int
        Calls of the paper's Algorithm 1; with ``solver="auto"`` every full read of the vector
        before the result is written.
    unique : array of bool
        False where other points are equally near: more entries share the maximum than the target
        allows, or an entry 0 received a nonzero value whose sign was a choice.
    l1, l2 : array
        The norms of the result.
    active : array of str
        Which norms bind: "l1", "l2", "both" or "none"; of NumPy's arrays, whatever x is.
    active_code : array of int
        The same as a number, which engines work with.
    derivatives
        What the methods work with; differs from family to family.

    Examples
    --------
    >>> import hoyer
    >>> result = hoyer.solve([3.0, 1.0, 2.0, 0.0], sparseness=0.6)
    >>> result.value.round(3)
    array([0.883, 0.05 , 0.467, 0.   ])
    >>> int(result.support_size), bool(result.unique)
    (3, True)
    """

    value: Array_co
    shift: Any
    scale: Any
    support_size: Any
    evaluations: Any
    unique: Any
    l1: Any
    l2: Any
    active_code: Any
    derivatives: Derivatives[Array_co]

    def __repr__(self) -> str:
        fields = RECORD_FIELDS[:ACTIVE]
        if self.derivatives.single() is None:
            found = f"{', '.join(fields)}: one per vector"
        else:
            found = ", ".join(f"{name}={getattr(self, name)!s}" for name in fields)
        array: Any = self.value
        few = math.prod(array.shape) <= 20
        value = repr(array) if few else f"{array.dtype} array of shape {tuple(array.shape)}"
        return f"Projection({found}, value={value})"

    @property
    def active(self) -> Any:
        """Which norms bind: "l1", "l2", "both" or "none"; an array of them, one for each vector.

        Of Dask arrays it is computed; `active_code` is not.

        With given norms and with a sparseness that is "both"; vectors that only keep their
        direction have one norm ("l2", or "l1" if that was given). With ``at_most=True`` a bound
        binds if the vector would otherwise be beyond it; "none" is for vectors within all of them.

        Examples
        --------
        >>> import hoyer
        >>> hoyer.solve([[0.1, 0.2], [3.0, 0.0], [3.0, 2.9]], l1=1.2, l2=1.0, at_most=True).active
        array(['none', 'l2', 'l1'], dtype='<U4')
        """
        names = np.array(ACTIVE_NAMES)[self.derivatives.as_numpy(self.active_code)]
        return names if names.ndim else str(names)

    def jvp(self, y: Any, *, out: Any = None) -> Array_co:
        """Return the derivative in direction `y`: the Jacobian times y (Algorithm 3).

        Where more entries share the maximum than the target allows (`scale` is 0) the projection
        jumps; its derivative is defined as zero there, apart from that of a norm that follows x.

        Parameters
        ----------
        y : array
            Directions, shaped like `value`.
        out : array, optional
            Where to put the result: shaped and typed like `value`; y itself is fine.

        Returns
        -------
        array
            Shaped like `value`; `out` if that was given.
        """
        return self.derivatives.product(y, reverse=False, out=out)

    def vjp(self, y: Any, *, out: Any = None) -> Array_co:
        """Return the transposed Jacobian times `y`: what backpropagation needs.

        It equals `jvp` (the Jacobian is symmetric) except with ``l2="keep"`` and for vectors that
        kept their direction at a given L1 norm.

        Parameters
        ----------
        y : array
            Shaped like `value`.
        out : array, optional
            As for `jvp`.

        Returns
        -------
        array
            Shaped like `value`; `out` if that was given.
        """
        return self.derivatives.product(y, reverse=True, out=out)

    def jacobian(self) -> Array_co:
        """Return the dense Jacobian: shape ``batch + (n, n)``, entry [i, j] is dp_i/dx_j."""
        return self.derivatives.jacobian()

    def target_gradient(self) -> tuple[Array_co, Array_co]:
        """Return the derivatives of the value by l1 and by l2.

        They are those of the projection onto fixed norms, at the norms `l1` and `l2` of this
        result. For the sparseness see `sparseness_gradient`.

        Returns
        -------
        by_l1, by_l2 : array
            Shaped like `value`.
        """
        return self.derivatives.target_gradient()

    def sparseness_gradient(self) -> Array_co:
        """Return the derivative of the value by the target sparseness.

        The rest of the target stays as it was given: l2 (1 if no norm was), or l1, or the rule:
        with "keep" every vector's own norm, with "nearest" x, so that the norm moves as well. Zero
        for vectors that kept their direction, and where all entries of the support are equal (as
        they are for sparseness 0 and 1), where the projection reacts like a square root.

        Returns
        -------
        array
            Shaped like `value`: the derivatives of each entry by the sparseness of its vector.

        Raises
        ------
        ValueError
            If both norms were given rather than a sparseness.

        Examples
        --------
        >>> import hoyer
        >>> hoyer.solve([1.0, 2.0, 3.0, 4.0], 0.5).sparseness_gradient().round(3)
        array([ 0.   , -1.04 , -0.333,  0.374])
        """
        gradient = self.derivatives.sparseness_gradient()
        if gradient is None:
            raise ValueError(
                "sparseness_gradient() is for targets with a sparseness, this one has norms alone: "
                "use target_gradient()"
            )
        return gradient

    def as_linear_operator(self) -> "LinearOperator":
        """Return the Jacobian of a single vector as a SciPy linear operator.

        It works on NumPy arrays, whatever family the projection belongs to.

        Raises
        ------
        ValueError
            For a batch of vectors.
        ImportError
            Without SciPy.
        """
        array: Any = self.value
        n = self.derivatives.single()
        if n is None:
            raise ValueError(
                "as_linear_operator() is for one vector, this is a batch: value has shape "
                f"{tuple(array.shape)}; use jvp and vjp, or solve one vector at a time"
            )
        try:
            from scipy.sparse.linalg import LinearOperator  # noqa: PLC0415 - SciPy is optional
        except ImportError:
            raise ImportError("as_linear_operator() needs SciPy: pip install scipy") from None
        shape = tuple(array.shape)
        as_numpy = self.derivatives.as_numpy

        def flat(product: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda y: as_numpy(product(y.reshape(shape))).reshape(-1)

        # A lazy array is not computed for its type.
        kind = array.dtype if isinstance(array.dtype, np.dtype) else as_numpy(array).dtype
        operator = LinearOperator((n, n), matvec=flat(self.jvp), rmatvec=flat(self.vjp), dtype=kind)
        return cast("LinearOperator", operator)
