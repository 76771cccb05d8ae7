"""`Projection`: the value of a projection, how it was found, and its derivatives."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


class Derivatives(Protocol):
    """What a backend stores to differentiate a projection: plain data with four functions."""

    def product(self, y: Any, *, reverse: bool) -> Any:
        """Return the Jacobian, or its transpose, times y."""

    def jacobian(self) -> Any:
        """Return the dense Jacobian of every vector."""

    def target_gradient(self) -> tuple[Any, Any]:
        """Return the derivatives by l1 and by l2."""

    def single(self) -> int | None:
        """Return the number of entries if there is just one vector."""


class Projection:
    """A projection with everything that was found on the way.

    Attributes are arrays shaped like the input with the vectors' axis removed (numbers for a single
    vector), except `value`.

    Attributes
    ----------
    value : array
        The projected vectors, shaped like the input.
    shift : array
        alpha: what is subtracted. NaN where there is no such number (see `unique`, and target
        sparseness 0).
    scale : array
        beta: what is divided by; ``value = max((x - shift) / scale, 0)``. 0 where there is no
        shift.
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

    Examples
    --------
    >>> import hoyer
    >>> result = hoyer.solve([3.0, 1.0, 2.0, 0.0], sparseness=0.6)
    >>> result.value.round(3)
    array([0.883, 0.05 , 0.467, 0.   ])
    >>> int(result.support_size), bool(result.unique)
    (3, True)
    """

    __slots__ = (
        "_derivatives",
        "evaluations",
        "l1",
        "l2",
        "scale",
        "shift",
        "support_size",
        "unique",
        "value",
    )

    def __init__(
        self,
        value: Any,
        *,
        shift: Any,
        scale: Any,
        support_size: Any,
        evaluations: Any,
        unique: Any,
        l1: Any,
        l2: Any,
        derivatives: Derivatives,
    ) -> None:
        self.value = value
        self.shift = shift
        self.scale = scale
        self.support_size = support_size
        self.evaluations = evaluations
        self.unique = unique
        self.l1 = l1
        self.l2 = l2
        self._derivatives = derivatives

    def __repr__(self) -> str:
        if self._derivatives.single() is None:
            return (
                f"Projection of a batch: value of shape {tuple(self.value.shape)}, {self._names()}"
            )
        return (
            f"Projection(shift={self.shift!s}, scale={self.scale!s}, "
            f"support_size={self.support_size!s}, evaluations={self.evaluations!s}, "
            f"unique={self.unique!s}, l1={self.l1!s}, l2={self.l2!s}, value={self.value!r})"
        )

    def _names(self) -> str:
        return "shift, scale, support_size, evaluations, unique, l1, l2 one per vector"

    def jvp(self, y: Any) -> Any:
        """Return the derivative in direction `y`: the Jacobian times y (Algorithm 3).

        Parameters
        ----------
        y : array
            Directions, shaped like `value`.

        Returns
        -------
        array
            Shaped like `value`.
        """
        return self._derivatives.product(y, reverse=False)

    def vjp(self, y: Any) -> Any:
        """Return the transposed Jacobian times `y`: what backpropagation needs.

        It equals `jvp` (the Jacobian is symmetric) except with ``l2="keep"`` and for vectors that
        kept their direction at a given L1 norm.

        Parameters
        ----------
        y : array
            Shaped like `value`.

        Returns
        -------
        array
            Shaped like `value`.
        """
        return self._derivatives.product(y, reverse=True)

    def jacobian(self) -> Any:
        """Return the dense Jacobian: shape ``batch + (n, n)``, entry [i, j] is dp_i/dx_j."""
        return self._derivatives.jacobian()

    def target_gradient(self) -> tuple[Any, Any]:
        """Return the derivatives of the value by l1 and by l2.

        They are those of the projection onto fixed norms, at the norms `l1` and `l2` of this
        result.

        Returns
        -------
        by_l1, by_l2 : array
            Shaped like `value`.
        """
        return self._derivatives.target_gradient()

    def as_linear_operator(self) -> "LinearOperator":
        """Return the Jacobian of a single vector as a SciPy linear operator.

        Raises
        ------
        ValueError
            For a batch of vectors.
        ImportError
            Without SciPy.
        """
        n = self._derivatives.single()
        if n is None:
            raise ValueError(
                "as_linear_operator() is for one vector, this is a batch: value has shape "
                f"{tuple(self.value.shape)}; use jvp and vjp, or solve one vector at a time"
            )
        try:
            from scipy.sparse.linalg import LinearOperator  # noqa: PLC0415 - SciPy is optional
        except ImportError:
            raise ImportError(
                "as_linear_operator() needs SciPy: pip install hoyer[scipy]"
            ) from None
        shape = self.value.shape

        def flat(product: Callable[[Any], Any]) -> Callable[[Any], Any]:
            return lambda y: product(y.reshape(shape)).reshape(-1)

        operator = LinearOperator(
            (n, n), matvec=flat(self.jvp), rmatvec=flat(self.vjp), dtype=self.value.dtype
        )
        return cast("LinearOperator", operator)
