"""`projected_gradient`: minimise a smooth function over the sets that `project` knows."""

from collections.abc import Callable
from functools import partial
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

try:
    from scipy.optimize import OptimizeResult
except ImportError:
    raise ImportError("hoyer.optimize needs SciPy: pip install 'hoyer[scipy]'") from None

from .api import project
from .layout import check_mask
from .options import Axis, NormRule, Numbers, Options, hiding_dim, refuse_dim
from .options import check as check_options
from .target import resolve

__all__ = ["projected_gradient"]


def __dir__() -> list[str]:
    return __all__


Floats = npt.NDArray[Any]

SUFFICIENT = 1e-4
"""The part of the decrease promised by the length of a step that it must at least bring."""
LONGEST, SHORTEST = 1e10, 1e-10
"""Bounds of the step length an iteration starts with, in units of the very first one."""
DIFFERENT = 0.5
"""Below this ratio of the two step lengths of Barzilai and Borwein the shorter is taken."""
VISIBLE = 0.75
"""Moves of at least this power of eps change a smooth function by more than rounding does."""
STEPS_TO_COMPARE = 10
"""The longest of this many steps decides whether the search has converged."""
MESSAGES = (
    "steps along the projected gradient move x no further than tol",
    "max_iter iterations were made",
    "no step along the projected gradient lowers the function any more",
    "the callback raised StopIteration",
)


@hiding_dim
def projected_gradient(
    fun: Callable[..., Any],
    x0: "npt.ArrayLike",
    sparseness: "Numbers | None" = None,
    *,
    l1: "Numbers | None" = None,
    l2: "Numbers | NormRule | None" = None,
    axis: Axis = -1,
    where: "npt.ArrayLike | None" = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    at_most: bool = False,
    jac: bool | Callable[..., Any] = True,
    args: tuple[Any, ...] = (),
    tol: float = 1e-6,
    max_iter: int = 1000,
    memory: int = 10,
    monotone: bool = False,
    callback: "Callable[[OptimizeResult], object] | None" = None,
    dim: Any = ...,
) -> "OptimizeResult":
    """Minimise a smooth function over vectors of a given sparseness, or with given norms.

    Looks for a local minimum of ``fun(x)`` over all arrays x whose vectors (along `axis`) lie in
    the set that `hoyer.project` would bring them to, by steps ``project(x - t * gradient)``.

    Parameters
    ----------
    fun : callable
        ``fun(x, *args)`` for an array shaped like `x0`: the value, or with ``jac=True`` the pair of
        value and gradient.
    x0 : array_like
        Where to start; projected first. float32 and float64 keep their type, others become
        float64.
    sparseness, l1, l2, axis, where, nonnegative, only_increase, at_most
        The target, as in `hoyer.project`: a sparseness alone means norm 1. With ``l2="keep"`` every
        vector keeps the norm that it has in `x0`; with ``l2="nearest"`` norms are free, which is
        what regression wants; with `only_increase` vectors may be sparser than asked for. l1 alone
        is the simplex (`nonnegative`) or the L1 sphere, with `at_most` the L1 ball: the lasso with
        a bound. What `where` leaves out stays 0, whatever the gradient is there.
    jac : True or callable, default True
        True if `fun` returns the gradient too, else a function ``jac(x, *args)``.
    args : tuple
        More arguments for `fun` and `jac`.
    tol : float, default 1e-6
        Success: a step as long as the longest of the last ten would move x by no more than `tol`
        times its norm, or no step that moves x further lowers the function, while shorter ones do
        not raise it.
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
        ``optimality`` (what is compared with `tol`), ``status`` (0: converged, 1: max_iter, 2: no
        decrease found, 3: stopped by the callback), ``success``, ``message``.

    Raises
    ------
    ValueError, TypeError
        As `hoyer.project` for bad targets and arrays; if the function or its gradient is not finite
        at the start, or does not have the right shape.
    ImportError
        Without SciPy.

    Notes
    -----
    From the literature: the spectral projected gradient method (Birgin, Martinez and Raydan 2000),
    with the step lengths of Barzilai and Borwein (1988), between which it chooses like Zhou, Gao
    and Dai (2006), and the non-monotone rule of Grippo, Lampariello and Lucidi (1986). Ours: the
    set is not convex, so the search goes along the projections of shorter and shorter steps rather
    than along a line, and asks for a decrease in proportion to ``||move||^2 / t``, which short
    enough steps always bring. (Balls and the simplex are convex: of a convex function the minimum
    is found there.) Signs of entries that are zero can change, others hardly do: start
    several times where they are not known.

    References
    ----------
    - Birgin, Martinez and Raydan, "Nonmonotone spectral projected gradient methods on convex sets",
      SIAM J. Optim. 10, 2000.
    - Zhou, Gao and Dai, "Gradient methods with adaptive step-sizes", Comput. Optim. Appl. 35, 2006.

    Examples
    --------
    Least squares with few equations, for a vector known to be sparse:

    >>> import hoyer, numpy as np
    >>> from hoyer.optimize import projected_gradient
    >>> truth = np.array([0.0, 3.0, 0.0, 0.0, -4.0, 0.0, 0.0, 1.0, 0.0, 0.0])
    >>> A = np.random.default_rng(0).normal(size=(8, 10))
    >>> b = A @ truth
    >>> def half_square(x):
    ...     residual = A @ x - b
    ...     return residual @ residual / 2, A.T @ residual
    >>> found = projected_gradient(
    ...     half_square, A.T @ b, hoyer.sparseness(truth), l2="nearest", tol=1e-8)
    >>> found.success, bool(abs(found.x - truth).max() < 1e-6)
    (True, True)
    """
    if dim is not ...:
        refuse_dim(dim)
    if index(memory) < 1:
        raise ValueError(f"memory={memory!r}: must be at least 1")
    if index(max_iter) < 0:
        raise ValueError(f"max_iter={max_iter!r}: must be at least 0")
    if not tol >= 0:
        raise ValueError(f"tol={tol!r}: must be at least 0")
    check_options(
        Options(sparseness, l1, l2, axis, nonnegative, only_increase, "auto", True, at_most)
    )
    if isinstance(l2, str) and sparseness is None:
        resolve(2, None, l1, l2, ())  # which says what is wrong
    x = np.array(x0, dtype=_floating(x0), order="C")
    mask = None if where is None else np.asarray(where)
    if mask is not None:
        check_mask(mask, mask.dtype == bool, x.shape)
        x = np.where(mask, x, x.dtype.type(0))
    function = _Function(fun, jac, args, mask)
    switches = {"nonnegative": nonnegative, "only_increase": only_increase, "at_most": at_most}
    onto = _nearest_in_set(x, axis, l2, sparseness=sparseness, l1=l1, where=mask, **switches)
    start = function.at(onto(x))
    if not start.finite:
        raise ValueError(
            f"fun is {start.value} at the projected x0, and it or its gradient is not finite"
        )
    # The size of 0, as a start, is that of the set.
    bounds = [float(np.max(bound)) for bound in (l1, l2) if at_most and bound is not None]
    search = _Search(function, onto, start, tol, reach=min(bounds, default=1.0))
    return search.minimum(max_iter, 1 if monotone else memory, callback)


def _nearest_in_set(x: Floats, axis: Axis, l2: Any, **target: Any) -> Callable[[Floats], Floats]:
    """Return the projection onto the target; with l2="keep" the norms are those of x."""
    zero = np.False_
    if isinstance(l2, str) and l2 == "keep":
        norms = _norms(x, axis)
        zero = norms == 0
        l2 = np.where(zero, 1, norms).astype(x.dtype).squeeze(axis)
    nearest: Callable[..., Any] = partial(project, axis=axis, l2=l2, **target)
    if not zero.any():
        return nearest
    # Vectors that are zero keep that norm.
    return lambda point: np.where(zero, 0, nearest(point)).astype(x.dtype)


class _Point(NamedTuple):
    """A feasible point, with the function and its gradient there."""

    x: Floats
    value: float
    slope: Floats

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.isfinite(self.slope).all())


class _Function:
    """The function with its gradient, and how often it was called."""

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: bool | Callable[..., Any],
        args: tuple[Any, ...],
        mask: Floats | None,
    ) -> None:
        if jac is not True and not callable(jac):
            raise TypeError(
                f"jac={jac!r}: must be True, if fun returns value and gradient, or a function"
            )
        self.fun, self.jac, self.args, self.mask = fun, jac, args, mask
        self.calls = 0

    def at(self, x: Floats) -> _Point:
        """Return the point x with value and gradient; the function gets a copy."""
        self.calls += 1
        if callable(self.jac):
            value, slope = self.fun(x.copy(), *self.args), self.jac(x.copy(), *self.args)
        else:
            found = self.fun(x.copy(), *self.args)
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise TypeError(
                    "with jac=True fun must return the pair (value, gradient); it returned "
                    f"{type(found).__name__}"
                )
            value, slope = found
        # A copy: functions may return the same buffer each time.
        slope = np.array(slope, dtype=x.dtype)
        if slope.shape != x.shape:
            raise ValueError(f"the gradient has shape {slope.shape}, but x has {x.shape}")
        if self.mask is not None:
            slope = np.where(self.mask, slope, x.dtype.type(0))
        return _Point(x, float(value), slope)


class _Step(NamedTuple):
    """The outcome of the search for a step."""

    point: _Point | None
    """Where the step leads; None if no step was good enough."""
    length: float
    moved: float
    """How far the last trial lies from x, relative to the norm of x."""
    plausible: bool = True
    """If no step was good enough: whether rounding, or x being a minimum, explains that."""


class _Search:
    """The search from a feasible point, over the points that `onto` projects to.

    A step of length 1 is one from the start that is as long as x: a length in plain numbers,
    squared norm by function value, could overflow. Where x is zero, `reach` stands for its norm.
    """

    def __init__(
        self,
        function: _Function,
        onto: Callable[[Floats], Floats],
        start: _Point,
        tol: float,
        *,
        reach: float,
    ) -> None:
        self.function, self.onto, self.start, self.tol = function, onto, start, tol
        self.size = _norm(start.x) or reach or 1.0
        self.steepness = _norm(start.slope) or 1.0

    def minimum(
        self, max_iter: int, memory: int, callback: Callable[[OptimizeResult], object] | None
    ) -> OptimizeResult:
        """Return the lowest point found."""
        point, function, tol, length = self.start, self.function, self.tol, 1.0
        best, recent, lengths = point, [point.value], [0.0]
        status, number, moved = 1, 0, np.inf
        # Invariant: the point is feasible, best is the lowest seen; at most max_iter rounds.
        for number in range(1, max_iter + 1):
            step = self._step(point, bound=max(recent), length=length)
            if step.point is None:
                moved = step.moved
                status = 0 if moved <= tol and step.plausible else 2
                break
            # A short step follows a steep direction and says little about the flat ones.
            lengths = [*lengths, step.length][-STEPS_TO_COMPARE:]
            moved = step.moved * (max(lengths) / step.length)
            length = self._next_length(point, step.point, step.length)
            point = step.point
            best = min(best, point, key=lambda p: p.value)
            recent = [*recent, point.value][-memory:]
            if callback is not None:
                try:
                    shown = _Point(point.x.copy(), point.value, point.slope.copy())
                    callback(_result(shown, nit=number, nfev=function.calls, optimality=moved))
                except StopIteration:
                    status = 3
                    break
            if moved <= tol:
                status = 0
                break
        result = _result(best, nit=number, nfev=function.calls, optimality=moved)
        result.update(status=status, success=status == 0, message=MESSAGES[status])
        return result

    def _step(self, point: _Point, *, bound: float, length: float) -> _Step:
        """Halve the step until it brings the function far enough below the bound."""
        x, size = point.x, _norm(point.x) or self.size
        enough = self.tol * size
        eps = float(np.finfo(x.dtype).eps)
        least, visible = eps * size, eps**VISIBLE * size
        direction = point.slope / x.dtype.type(self.steepness)
        longest, plausible, isolated = 0.0, True, False
        # Invariant: all longer steps failed. Ends when one succeeds or moves x by rounding only.
        while length > 0:
            with np.errstate(over="ignore", invalid="ignore"):
                goal = x - x.dtype.type(length * self.size) * direction
            if not np.isfinite(goal).all():
                length /= 2
                continue
            new = self.onto(goal)
            move = _norm(new - x)
            longest = max(longest, move)
            if move <= least:
                plausible = plausible or isolated or longest <= enough
                return _Step(None, length, move / size, plausible)
            trial = self.function.at(new)
            promise = (move / self.size) * (move * self.steepness) / (2 * length)
            if trial.finite and trial.value <= bound - SUFFICIENT * promise:
                return _Step(trial, length, move / size)
            if move > visible or not trial.finite:
                rounding = 4 * eps * abs(point.value)
                plausible = trial.finite and trial.value <= point.value + rounding
            # If the next step, half as long, leads back to x, then there is nothing in between: the
            # set of sparseness 1 consists of such points.
            isolated = trial.finite and move > visible
            # Below tol the search goes on only to see whether the function rises however short the
            # step is, as it does with a wrong gradient.
            if move <= enough and (plausible or longest <= enough or move <= visible):
                return _Step(None, length, move / size, plausible or longest <= enough)
            length /= 2
        return _Step(None, length, np.inf, plausible=False)

    def _next_length(self, point: _Point, new: _Point, length: float) -> float:
        """Return a step length of Barzilai and Borwein; ten times the last one where concave.

        Of their two lengths the shorter one, if they differ much: the move was then not along one
        direction of curvature, and the longer one would do harm in the others.
        """
        move, bend = new.x - point.x, new.slope - point.slope
        moved, bent = _norm(move), _norm(bend)
        cosine = float(np.vdot(move / (moved or 1.0), bend / (bent or 1.0)))
        if cosine > 0:
            ratio = (moved / self.size) / (bent / self.steepness)
            long, short = ratio / cosine, ratio * cosine
            proposed = short if short < DIFFERENT * long else long
        else:
            proposed = 10 * length
        return min(max(proposed, SHORTEST), LONGEST)


def _result(point: _Point, **more: float) -> OptimizeResult:
    return OptimizeResult(x=point.x, fun=point.value, jac=point.slope, **more)


def _norm(x: Floats) -> float:
    largest = float(abs(x).max(initial=0))
    return largest * float(np.linalg.norm((x / largest).ravel())) if largest > 0 else 0.0


def _norms(x: Floats, axis: Axis) -> Floats:
    """Return the norm of each vector, with axes of length 1; no square overflows or vanishes."""
    largest = abs(x).max(axis=axis, keepdims=True, initial=0)
    largest[largest == 0] = 1
    return np.asarray(largest * np.sqrt(np.square(x / largest).sum(axis=axis, keepdims=True)))


def _floating(x: npt.ArrayLike) -> np.dtype[Any]:
    """Return the type to compute in."""
    given = np.asarray(x).dtype
    if given.kind not in "fiub":
        raise TypeError(f"x0 has the type {given}: only real numbers can be projected")
    return given if given in (np.float32, np.float64) else np.dtype(np.float64)
