"""`projected_gradient`: minimise a smooth function over vectors of a given sparseness."""

from collections.abc import Callable
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from scipy.optimize import OptimizeResult
except ImportError:
    raise ImportError("hoyer.optimize needs SciPy: pip install 'hoyer[scipy]'") from None

from .api import project
from .options import Axis, NormRule, Numbers

__all__ = ["projected_gradient"]

Floats = npt.NDArray[Any]

SUFFICIENT = 1e-4
"""Part of the decrease that a step's length promises, which it must at least bring."""
LONGEST, SHORTEST = 1e10, 1e-10
"""Bounds of the first step length of an iteration, in units of the first one of all."""
MESSAGES = (
    "the projected gradient step is no longer than tol",
    "max_iter iterations were made",
    "no step along the projected gradient lowers the function any more",
    "the callback raised StopIteration",
)


def projected_gradient(
    fun: Callable[..., Any],
    x0: npt.ArrayLike,
    sparseness: Numbers | None = None,
    *,
    l1: Numbers | None = None,
    l2: Numbers | NormRule | None = None,
    axis: Axis = -1,
    nonnegative: bool = False,
    only_increase: bool = False,
    jac: bool | Callable[..., Any] = True,
    args: tuple[Any, ...] = (),
    tol: float = 1e-6,
    max_iter: int = 1000,
    memory: int = 10,
    monotone: bool = False,
    callback: Callable[[OptimizeResult], object] | None = None,
) -> OptimizeResult:
    """Minimise a smooth function over vectors of a given sparseness.

    Looks for a local minimum of ``fun(x)`` over all arrays x whose vectors (along `axis`) have the
    target that `hoyer.project` would give them, by steps ``project(x - t * gradient)``.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)`` for an array shaped like `x0`: the value, or with ``jac=True`` the pair of
        value and gradient.
    x0 : array_like
        Where to start; projected first. float32 and float64 keep their type, others become
        float64.
    sparseness, l1, l2, axis, nonnegative, only_increase
        The target, as in `hoyer.project`. With ``l2="keep"`` every vector keeps the norm that it
        has in `x0`; with ``l2="nearest"`` norms are free; with `only_increase` vectors may be
        sparser than asked for.
    jac : True or callable, default True
        True if `fun` returns the gradient too, else a function ``jac(x, *args)``.
    args : tuple
        More arguments for `fun` and `jac`.
    tol : float, default 1e-6
        Success: the step that the search accepts, or would have to, moves x by no more than `tol`
        times its norm.
    max_iter : int, default 1000
        Iterations at most.
    memory : int, default 10
        A step may raise the function as long as it stays below the largest of so many last
        values.
    monotone : bool, default False
        Never raise the function: the same as ``memory=1``.
    callback : callable, optional
        Called after each iteration with an `OptimizeResult` that has x, fun, jac, nit, nfev and
        optimality; if it raises StopIteration the search ends.

    Returns
    -------
    scipy.optimize.OptimizeResult
        ``x`` (the best that was seen), ``fun``, ``jac`` (the gradient there), ``nit``, ``nfev``,
        ``optimality`` (how far the last step moved, relative to the norm of x), ``status`` (0:
        converged, 1: max_iter, 2: no decrease found, 3: stopped by the callback), ``success``,
        ``message``.

    Raises
    ------
    ValueError, TypeError
        As `hoyer.project` for bad targets and arrays; if the function or its gradient is not finite
        at the start, or does not have the right shape.
    ImportError
        Without SciPy.

    Notes
    -----
    Step lengths are those of Barzilai and Borwein (1988), accepted by the non-monotone rule of
    Grippo, Lampariello and Lucidi as in the spectral projected gradient method (Birgin, Martinez
    and Raydan 2000). The set is not convex, so the search goes along the projections of shorter
    and shorter steps rather than along a line, and asks for a decrease in proportion to
    ``||move||^2 / t``, which short enough steps always bring.

    Examples
    --------
    The first principal component among vectors of sparseness 0.6:

    >>> import numpy as np
    >>> from hoyer.optimize import projected_gradient
    >>> data = np.random.default_rng(0).normal(size=(200, 10)) * [3, 2, 2, 1, 1, 1, 1, 1, 1, 1]
    >>> covariance = data.T @ data / 200
    >>> found = projected_gradient(
    ...     lambda x: (-x @ covariance @ x / 2, -covariance @ x), np.ones(10), 0.6)
    >>> found.success, np.flatnonzero(found.x > 0.1)
    (True, array([0]))
    """
    search = _Search(fun, jac, args)
    x = np.array(x0, dtype=_floating(x0), order="C")
    if not isinstance(memory, int | np.integer) or memory < 1:
        raise ValueError(f"memory={memory!r}: must be an integer of at least 1")
    if not tol >= 0:
        raise ValueError(f"tol={tol!r}: must be at least 0")
    if index(max_iter) < 0:
        raise ValueError(f"max_iter={max_iter!r}: must be at least 0")
    if isinstance(l2, str) and l2 == "keep":
        l2 = _norms(x, axis)

    def onto(point: Floats) -> Floats:
        return project(
            point,
            sparseness,
            l1=l1,
            l2=l2,
            axis=axis,
            nonnegative=nonnegative,
            only_increase=only_increase,
        )

    x = onto(x)
    value, slope = search.evaluate(x)
    if not (np.isfinite(value) and np.isfinite(slope).all()):
        raise ValueError(f"fun(x0) = {value} or its gradient is not finite at the projected x0")
    return _minimise(
        search, onto, x, value, slope, tol, max_iter, 1 if monotone else memory, callback
    )


class _Search:
    """The function with its gradient, and how often it was asked."""

    def __init__(
        self, fun: Callable[..., Any], jac: bool | Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if jac is not True and not callable(jac):
            raise TypeError(
                f"jac={jac!r}: must be True, if fun returns value and gradient, or a function"
            )
        self.fun, self.jac, self.args = fun, jac, args
        self.calls = 0

    def evaluate(self, x: Floats) -> tuple[float, Floats]:
        """Return value and gradient at x."""
        self.calls += 1
        if callable(self.jac):
            value, slope = self.fun(x, *self.args), self.jac(x, *self.args)
        else:
            found = self.fun(x, *self.args)
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise TypeError(
                    "fun must return the pair (value, gradient) with jac=True; it returned "
                    f"{type(found).__name__}"
                )
            value, slope = found
        slope = np.asarray(slope, dtype=x.dtype)
        if slope.shape != x.shape:
            raise ValueError(f"the gradient has shape {slope.shape}, but x has {x.shape}")
        return float(value), slope


def _minimise(
    search: _Search,
    onto: Callable[[Floats], Floats],
    x: Floats,
    value: float,
    slope: Floats,
    tol: float,
    max_iter: int,
    memory: int,
    callback: Callable[[OptimizeResult], object] | None,
) -> OptimizeResult:
    """Run the search from a feasible point."""
    first = _first_length(x, slope)
    length, moved, status, number = first, np.inf, 1, 0
    best = (value, x, slope)
    recent = [value]
    # Invariant: x is feasible, value and slope are those at x, best is the lowest seen.
    for number in range(1, max_iter + 1):
        found = _step(search, onto, x, slope, max(recent), length, tol)
        moved = found.moved
        if found.trial is None:
            status = 0 if moved <= tol else 2
            break
        new, new_value, new_slope = found.trial
        length = _next_length(new - x, new_slope - slope, found.length, first)
        x, value, slope = new, new_value, new_slope
        recent = [*recent, value][-memory:]
        if value < best[0]:
            best = (value, x, slope)
        if callback is not None:
            try:
                callback(_result(x, value, slope, number, search.calls, moved))
            except StopIteration:
                status = 3
                break
        if moved <= tol:
            status = 0
            break
    value, x, slope = best
    result = _result(x, value, slope, number, search.calls, moved)
    result.update(status=status, success=status == 0, message=MESSAGES[status])
    return result


class _Step(NamedTuple):
    """What came of looking for a step."""

    trial: tuple[Floats, float, Floats] | None
    """The new point with value and gradient; None if there was none."""
    length: float
    moved: float
    """How far the last trial lies from x, relative to the norm of x."""


def _step(
    search: _Search,
    onto: Callable[[Floats], Floats],
    x: Floats,
    slope: Floats,
    bound: float,
    length: float,
    tol: float,
) -> _Step:
    """Halve the step until it brings the function far enough below the bound."""
    size = _norm(x) or 1.0
    # Invariant: all longer steps failed. Ends when a step succeeds or moves x by rounding only.
    while True:
        new = onto(x - x.dtype.type(length) * slope)
        move = _norm(new - x)
        if move <= np.finfo(x.dtype).eps * size:
            return _Step(None, length, move / size)
        value, new_slope = search.evaluate(new)
        enough = bound - SUFFICIENT * move * move / (2 * length)
        if value <= enough and np.isfinite(new_slope).all():
            return _Step((new, value, new_slope), length, move / size)
        if move <= tol * size:
            return _Step(None, length, move / size)
        length /= 2


def _first_length(x: Floats, slope: Floats) -> float:
    """Return the length of a step that is as long as x."""
    steepness = _norm(slope)
    return (_norm(x) or 1.0) / steepness if steepness > 0 else 1.0


def _next_length(move: Floats, bend: Floats, length: float, first: float) -> float:
    """Return the step length of Barzilai and Borwein; a longer one where the function is concave."""
    curvature = float(np.vdot(move, bend))
    proposed = float(np.vdot(move, move)) / curvature if curvature > 0 else 10 * length
    return min(max(proposed, SHORTEST * first), LONGEST * first)


def _result(
    x: Floats, value: float, slope: Floats, number: int, calls: int, moved: float
) -> OptimizeResult:
    return OptimizeResult(x=x, fun=value, jac=slope, nit=number, nfev=calls, optimality=moved)


def _norm(x: Floats) -> float:
    return float(np.linalg.norm(x.ravel()))


def _norms(x: Floats, axis: Axis) -> Floats:
    """Return the norm of each vector."""
    return np.sqrt(np.sum(np.square(x), axis=axis))


def _floating(x: npt.ArrayLike) -> Any:
    """Return the type in which to work."""
    given = np.asarray(x).dtype
    if given.kind not in "fiub":
        raise TypeError(f"x0 has the type {given}: only real numbers can be projected")
    return given if given in (np.float32, np.float64) else np.dtype(np.float64)
