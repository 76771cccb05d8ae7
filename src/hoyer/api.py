"""The functions a user calls: pack the options, choose the family of the array, hand over.

Each takes arrays of any family in `hoyer.families` and returns arrays of the same family.
"""

from operator import index
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .families import compiled_core, repeated, select
from .options import Axis, NormRule, Numbers, Options, Solver, hiding_dim, refuse_dim, refuse_rest
from .plan import plans
from .projection import Projection

if TYPE_CHECKING:
    from jax import Array
    from torch import Tensor

Float = TypeVar("Float", np.float16, np.float32, np.float64)

# A named tuple's own constructor is written in Python, and costs as much as a small projection.
_options = tuple.__new__


@overload
def sparseness(x: "Tensor", *, axis: Axis = -1) -> "Tensor": ...
@overload
def sparseness(x: "Array", *, axis: Axis = -1) -> "Array": ...
@overload
def sparseness(x: npt.NDArray[Float], *, axis: None) -> Float: ...
@overload
def sparseness(x: npt.ArrayLike, *, axis: Axis = -1) -> Any: ...
@hiding_dim
def sparseness(x: Any, *, axis: Axis = -1, dim: Any = ...) -> Any:
    """Return Hoyer's sparseness of vectors.

    ``(sqrt(n) - ||x||_1 / ||x||_2) / (sqrt(n) - 1)``: 0 for a vector whose entries all have the
    same magnitude, 1 for a vector with a single nonzero entry.

    Parameters
    ----------
    x : array_like, torch.Tensor, jax.Array, cupy.ndarray, dask.array.Array or SciPy sparse array
        Real vectors. In sparse arrays, zeros that are not stored count, but are never created.
    axis : int, tuple of int or None, default -1
        The axis along which the vectors lie; several axes together form one vector, and None treats
        the whole array as one. It is called `axis` for PyTorch tensors, too.

    Returns
    -------
    array
        One number per vector, in the precision of x; NaN for zero vectors, vectors of length 1, and
        vectors with NaN or infinity. Entries of tensors that are zero get no gradient, so
        neither do zero vectors.

    Raises
    ------
    TypeError
        If x has no real numbers, or is an array hoyer does not work on.
    ValueError
        If x is a single number, or its vectors have no entries.

    Examples
    --------
    >>> import hoyer
    >>> hoyer.sparseness([[1.0, 1.0, 1.0, 1.0], [0.0, -5.0, 0.0, 0.0], [4.0, 3.0, 2.0, 1.0]])
    array([0.        , 1.        , 0.17425814])
    """
    if dim is not ...:
        refuse_dim(dim)
    return select(x).sparseness(x, axis)


@overload
def project(
    x: "Tensor",
    sparseness: "Numbers | Tensor | None" = None,
    *,
    l1: "Numbers | Tensor | None" = None,
    l2: "Numbers | Tensor | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    out: "Tensor | None" = None,
    check_finite: bool = True,
) -> "Tensor": ...
@overload
def project(  # type: ignore[overload-overlap]
    x: "Array",
    sparseness: "Numbers | Array | None" = None,
    *,
    l1: "Numbers | Array | None" = None,
    l2: "Numbers | Array | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    out: None = None,
    check_finite: bool = True,
) -> "Array": ...
@overload
def project(
    x: npt.NDArray[Float],
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    out: npt.NDArray[Float] | None = None,
    check_finite: bool = True,
) -> npt.NDArray[Float]: ...
@overload
def project(
    x: npt.ArrayLike,
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    out: npt.NDArray[np.float64] | None = None,
    check_finite: bool = True,
) -> npt.NDArray[np.float64]: ...
@hiding_dim
def project(  # noqa: PLR0917 - see `hiding_dim`
    x: Any,
    sparseness: Any = None,
    rest: Any = ...,
    l1: Any = None,
    l2: Any = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    out: Any = None,
    check_finite: bool = True,
    dim: Any = ...,
) -> Any:
    """Project vectors onto the set of vectors with a given sparseness, or with given norms.

    For every vector x, this solves ``min ||p - x||_2`` over all p with ``||p||_1 = l1`` and
    ``||p||_2 = l2`` (and ``p >= 0`` if `nonnegative`). It is the Euclidean projection onto the set
    of vectors whose `hoyer.sparseness` has the given value. `l1` alone leaves the L2 norm free, and
    `at_most` makes both norms upper bounds.

    Parameters
    ----------
    x : array_like, torch.Tensor, jax.Array, cupy.ndarray or dask.array.Array
        Real vectors. For Dask arrays the result is a Dask array, and nothing is computed yet.
        float16, bfloat16 (tensors, JAX), float32 and float64 keep their type; integers and booleans
        become float64 (in JAX without x64: float32). pandas objects are converted to arrays without
        their labels (missing values in columns of nullable types become NaN; columns of objects
        need ``convert_dtypes()``).
    sparseness : float or array, optional
        Target sparseness in [0, 1], one for all vectors or one for each: an array that broadcasts
        to the shape of x without the vectors' axes, or has these axes with length 1. Alone, it
        implies ``l2=1``. Targets that are tensors or JAX arrays can be differentiated, as x can.
    l1, l2 : float or array, optional
        Target norms: at most one of them with `sparseness`; without it, both or l1 alone (which,
        with `nonnegative`, means the simplex of vectors that sum to l1). With `sparseness`, l2 can
        also be "keep" (every vector keeps its own norm, which includes its negative entries even if
        `nonnegative`; zero stays zero) or "nearest" (the nearest vector of that sparseness,
        whatever its norm).
    axis : int, tuple of int or None, default -1
        The axis along which the vectors lie; several axes together form one vector (such as the
        filters of a convolution), and None treats the whole array as one. It is called `axis` for
        PyTorch tensors, too.
    where : array of bool, optional
        Only entries where this is True form the vectors and count towards their length; all others,
        whatever they are, come out as 0. Broadcasts to the shape of x. A vector without any such
        entry becomes 0; with `sparseness`, a single one takes the whole norm.
    nonnegative : bool, default False
        Project onto vectors without negative entries. By default, the magnitudes are projected and
        the signs restored, which is the same for x >= 0.
    only_increase : bool, default False
        Vectors that are already sparse enough keep their direction (with `nonnegative`: that of
        max(x, 0)) and are only scaled to the norm. With `nonnegative`, a nonzero vector without
        positive entries becomes its largest entry alone, scaled to the norm: the nearest vector
        that is at least as sparse if the L2 norm is given or kept, but not if `l1` is given.
    at_most : bool, default False
        l1, or l1 and l2, are upper bounds: the L1 ball, or its intersection with the L2 ball.
        Vectors inside are returned unchanged (with `nonnegative`: their positive parts).
    solver : {"auto", "bisection", "newton", "newton_sqr", "halley"}, default "auto"
        The search; all give the same result. "auto" is fast on every input; the others are the
        paper's, for comparison.
    out : array, optional
        Where to write the result, with the same shape and type; it may be x itself.
    check_finite : bool, default True
        Raise an error for NaN or infinity in x. If False, such vectors come back as NaN. (-inf is
        not a mask: to leave entries out, use `where`.)

    Returns
    -------
    array
        The projected vectors, shaped like x; `out` if that was given.

    Raises
    ------
    ValueError
        If the target is impossible or incomplete, if `out` does not fit, or if x has NaN or
        infinity. In place, nothing has been written then; another `out` may hold some results.
    TypeError
        If x has no real numbers, or is an array hoyer does not work on.

    See Also
    --------
    project_ : The same in place.
    solve : The same, with shift, scale, support, evaluations and derivatives.

    Notes
    -----
    Where the nearest point is not unique (more entries share the maximum than the target allows),
    the first of these entries is made larger than the others, and ``solve(...).unique`` is False.
    So with `sparseness`, a zero vector becomes one whose first entry is the largest; with l2 "keep"
    or "nearest" it stays zero.

    Results are accurate to a few units in the last place for every finite input. The exception is
    ``l2="nearest"`` with `nonnegative` and x of both signs, where the norm ``<p, x>`` may lose
    digits to cancellation.

    References
    ----------
    M. Thom and G. Palm, "Efficient Sparseness-Enforcing Projections".

    Examples
    --------
    >>> import hoyer
    >>> hoyer.project([1.0, 2.0, 3.0, 4.0], 0.5).round(3)    # of norm 1 (the default)
    array([0.   , 0.146, 0.5  , 0.854])
    >>> hoyer.project([[1.0, -2.0, 3.0], [0.5, 0.1, 0.2]], sparseness=0.8, l2="keep").round(3)
    array([[ 0.   , -0.596,  3.694],
           [ 0.541,  0.   ,  0.087]])

    The nearest vector of that sparseness, whatever its norm; columns as vectors:

    >>> hoyer.project([1.0, 2.0, 3.0, 4.0], 0.5, l2="nearest").round(3)
    array([0.   , 0.763, 2.604, 4.445])
    >>> hoyer.project([[3.0, 1.0], [2.0, 4.0], [1.0, 0.0]], 0.8, axis=0).round(3)
    array([[0.987, 0.159],
           [0.159, 0.987],
           [0.   , 0.   ]])

    The simplex of vectors that sum to 1 (sparsemax), with the last entry masked; the ball of
    vectors whose magnitudes sum to at most 3:

    >>> counts = [True, True, True, False]
    >>> hoyer.project([2.0, 1.5, 0.5, 9.0], l1=1.0, nonnegative=True, where=counts)
    array([0.75, 0.25, 0.  , 0.  ])
    >>> hoyer.project([2.0, -1.5, 0.5], l1=3.0, at_most=True)
    array([ 1.66666667, -1.16666667,  0.16666667])
    """
    if rest is not ... or dim is not ...:
        refuse_rest(rest, dim)
    given = (
        sparseness,
        l1,
        l2,
        axis,
        nonnegative,
        only_increase,
        solver,
        check_finite,
        at_most,
        where,
    )
    # A call like an earlier one is not looked at any closer.
    again = repeated.get(type(x))
    if again is not None:
        done = again(x, out, given, plans)
        if done is not None:
            return done
    return select(x).project(x, _options(Options, given), out)


@overload
def project_(
    x: "Tensor",
    sparseness: "Numbers | Tensor | None" = None,
    *,
    l1: "Numbers | Tensor | None" = None,
    l2: "Numbers | Tensor | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> "Tensor": ...
@overload
def project_(
    x: npt.NDArray[Float],
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> npt.NDArray[Float]: ...
@hiding_dim
def project_(  # noqa: PLR0917 - see `hiding_dim`
    x: Any,
    sparseness: Any = None,
    rest: Any = ...,
    l1: Any = None,
    l2: Any = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
    dim: Any = ...,
) -> Any:
    """Project vectors in place, with bounded extra space, and return them.

    All vectors are checked before the first is written. An interrupt (Ctrl-C) between two vectors
    leaves some projected and some not; calling again finishes the work.

    Parameters
    ----------
    x : array
        Real vectors of a floating type, writable. Vectors that are not contiguous pass through a
        buffer of a megabyte, or of one vector if that is longer.
    sparseness, l1, l2, axis, where, nonnegative, only_increase, at_most, solver, check_finite
        As in `project`.

    Returns
    -------
    array
        x.

    Raises
    ------
    ValueError, TypeError
        As in `project`, and for arrays that cannot hold the result: read-only, overlapping
        themselves, or not of a floating type. Nothing is written then.

    Examples
    --------
    >>> import hoyer, numpy as np
    >>> x = np.array([1.0, 2.0, 3.0, 4.0])
    >>> hoyer.project_(x, 0.5) is x
    True
    >>> x.round(3)
    array([0.   , 0.146, 0.5  , 0.854])
    """
    if rest is not ... or dim is not ...:
        refuse_rest(rest, dim)
    given = (
        sparseness,
        l1,
        l2,
        axis,
        nonnegative,
        only_increase,
        solver,
        check_finite,
        at_most,
        where,
    )
    # A call like an earlier one is not looked at any closer.
    again = repeated.get(type(x))
    if again is not None:
        done = again(x, x, given, plans)
        if done is not None:
            return done
    return select(x).project_(x, _options(Options, given))


@hiding_dim
def project_sparse(
    x: Any,
    sparseness: "Numbers | None" = None,
    *,
    l1: "Numbers | None" = None,
    l2: "Numbers | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
    dim: Any = ...,
) -> Any:
    """Project vectors and return the result as a SciPy sparse array, never forming the dense one.

    Parameters
    ----------
    x : array_like
        One vector, or a matrix whose rows (``axis=-1``) or columns (``axis=0``) are projected.
    sparseness, l1, l2, axis, where, nonnegative, only_increase, at_most, solver, check_finite
        As in `project`.

    Returns
    -------
    scipy.sparse.coo_array, csr_array or csc_array
        One-dimensional for one vector; by rows or by columns for a matrix. float16 becomes
        float32, which SciPy's sparse arrays need.

    Raises
    ------
    ValueError, TypeError
        As in `project`, and for arrays of more than two axes.
    ImportError
        Without SciPy.

    Examples
    --------
    >>> import hoyer
    >>> result = hoyer.project_sparse([1.0, 2.0, 3.0, 4.0], 0.5)
    >>> result.coords[0], result.data.round(3)
    (array([1, 2, 3]), array([0.146, 0.5  , 0.854]))
    """
    if dim is not ...:
        refuse_dim(dim)
    options = _options(
        Options,
        (
            sparseness,
            l1,
            l2,
            axis,
            nonnegative,
            only_increase,
            solver,
            check_finite,
            at_most,
            where,
        ),
    )
    return select(x).project_sparse(x, options)


@overload
def solve(
    x: "Tensor",
    sparseness: "Numbers | Tensor | None" = None,
    *,
    l1: "Numbers | Tensor | None" = None,
    l2: "Numbers | Tensor | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> "Projection[Tensor]": ...
@overload
def solve(  # type: ignore[overload-overlap]
    x: "Array",
    sparseness: "Numbers | Array | None" = None,
    *,
    l1: "Numbers | Array | None" = None,
    l2: "Numbers | Array | NormRule | None" = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> "Projection[Array]": ...
@overload
def solve(
    x: npt.NDArray[Float],
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> Projection[npt.NDArray[Float]]: ...
@overload
def solve(
    x: npt.ArrayLike,
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
) -> Projection[npt.NDArray[np.float64]]: ...
@hiding_dim
def solve(
    x: Any,
    sparseness: Any = None,
    *,
    l1: Any = None,
    l2: Any = None,
    axis: Axis = -1,
    where: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    solver: Solver = "auto",
    check_finite: bool = True,
    dim: Any = ...,
) -> Projection[Any]:
    """Project vectors and return the result with how it was found, and its derivatives.

    Parameters
    ----------
    x : array_like
        Real vectors.
    sparseness, l1, l2, axis, where, nonnegative, only_increase, at_most, solver, check_finite
        As in `project`.

    Returns
    -------
    Projection
        `value`, `shift`, `scale`, `support_size`, `evaluations`, `unique`, `l1`, `l2`, `active`
        (which norms bind), and the methods `jvp`, `vjp`, `jacobian`, `target_gradient`,
        `sparseness_gradient` and `as_linear_operator`.

    Raises
    ------
    ValueError, TypeError
        As in `project`.

    Examples
    --------
    >>> import hoyer
    >>> result = hoyer.solve([1.0, 2.0, 3.0, 4.0], 0.5)
    >>> result.value.round(3), int(result.support_size)
    (array([0.   , 0.146, 0.5  , 0.854]), 3)
    >>> result.jvp([1.0, 0.0, 0.0, -1.0]).round(3)
    array([ 0.   , -0.059,  0.118, -0.059])
    """
    if dim is not ...:
        refuse_dim(dim)
    options = _options(
        Options,
        (
            sparseness,
            l1,
            l2,
            axis,
            nonnegative,
            only_increase,
            solver,
            check_finite,
            at_most,
            where,
        ),
    )
    return select(x).solve(x, options)


def set_num_threads(count: int) -> None:
    """Set how many threads one call may use on the CPU.

    For arrays the first of these that is there decides:

    1. what was set here, or by ``threadpoolctl.threadpool_limits`` (where the core is listed as
       ``"hoyer"``);
    2. the environment variable ``HOYER_NUM_THREADS``;
    3. ``OMP_NUM_THREADS``, which joblib and loky set for their workers;
    4. the number of processors that this process may run on at the time of the call, and no more
       than its control group has time for (``cpu.max``, ``cpu.cfs_quota_us``), rounded up.

    Variables are read at the first call. PyTorch's CPU tensors have as many threads as PyTorch,
    ``torch.get_num_threads()``, and no more than 1. or 2. say.

    Results do not depend on the number, and small calls use one thread anyway. While several
    threads call at once, one of the calls has helpers and the others work alone.

    Parameters
    ----------
    count : int
        At least 1. It holds until another number is set.

    Raises
    ------
    ValueError
        If `count` is less than 1.
    TypeError
        If it is no int.

    Examples
    --------
    >>> import hoyer
    >>> before = hoyer.get_num_threads()
    >>> hoyer.set_num_threads(1)
    >>> hoyer.get_num_threads()
    1
    >>> hoyer.set_num_threads(before)
    """
    try:
        number = index(count)
    except TypeError:
        raise TypeError(f"count={count!r}: the number of threads must be an int") from None
    if number < 1:
        raise ValueError(f"count={count!r}: the number of threads must be at least 1")
    compiled_core().set_thread_count(number)


def get_num_threads() -> int:
    """Return how many threads the next call on an array may use; see `set_num_threads`."""
    return int(compiled_core().thread_count())
