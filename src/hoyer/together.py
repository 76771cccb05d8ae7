"""`project_together`: many vectors, one mean sparseness."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .families import Family, calling, select, select_common
from .options import Axis, Options, hiding_dim, refuse_dim
from .options import check as check_options
from .price import Asked
from .target import target_norms


@hiding_dim
def project_together(
    arrays: Any,
    sparseness: Any,
    *,
    l2: Any = "keep",
    floor: Any = 0.0,
    weights: Any = None,
    relative: bool = False,
    axis: Any = None,
    nonnegative: bool = False,
    only_increase: bool = False,
    out: Any = None,
    check_finite: bool = True,
    dim: Any = ...,
) -> Any:
    """Project many vectors so that their mean sparseness is as given.

    Each vector gets its own sparseness: those that lose little by it become sparser than others.
    This solves ``min sum_i ||p_i - x_i||_2^2`` over all p with ``||p_i||_2 = l2_i`` whose
    `hoyer.sparseness` is as given on average, and at least `floor` for each (and ``p_i >= 0`` if
    `nonnegative`). With one vector it is `hoyer.project`; with ``l2=1`` and `only_increase` it is
    grouped sparse projection.

    Parameters
    ----------
    arrays : list, tuple or dict of arrays, or an array
        The vectors, of any lengths. All arrays belong to one family (NumPy arrays, PyTorch tensors,
        JAX arrays); their dtypes may differ. For a model, pass ``{name: w for name, w in
        model.named_parameters() if w.dim() > 1}``: biases, which have small norms, would take most
        of the sparseness.
    sparseness : float
        The mean, in [0, 1]. A tensor can be differentiated, as the arrays can.
    l2 : "keep", float, or one number for each vector, default "keep"
        The norms of the results: those that the vectors have, or given ones. Give a number for each
        array in a list or dict like `arrays`, or one for each vector as an array shaped like the
        array without `axis`. ("nearest", as in `project`, has no single best solution.)
    floor : float, or one number for each vector, default 0
        A sparseness that no vector falls below.
    weights : one positive number for each vector, optional
        Their weights in the mean; by default all count equally. ``[w.size for w in arrays]`` makes
        it a mean over entries.
    relative : bool, default False
        Whether distances are measured in units of each vector's norm, ``||p_i - x_i|| / l2_i``.
        Without it, vectors of small norm, which cost least, are the first to become very sparse.
    axis : int, tuple of int, None, or a list or dict of these like `arrays`, default None
        The axis along which the vectors of each array lie; several axes together form one vector,
        and by default every array is one. With ``axis=-1`` all rows of all arrays share the mean.
    nonnegative : bool, default False
        Project onto vectors without negative entries, as in `project`.
    only_increase : bool, default False
        If the mean is already at least `sparseness`, all vectors keep their directions (except
        those below their floor). Otherwise no vector becomes less sparse than it is.
    out : like `arrays`, optional
        Where to write the results; they may be the arrays themselves.
    check_finite : bool, default True
        Raise an error for NaN or infinity. If False, such vectors come back as NaN, and do not
        count in the mean.

    Returns
    -------
    list, tuple, dict or array
        The projected vectors, in the same structure as `arrays`; `out` if that was given.

    Raises
    ------
    ValueError
        If the target is impossible (floors above the sparseness, numbers out of range), if `out` or
        the numbers for each vector do not fit, or if an array has NaN or infinity. In place,
        nothing has been written then.
    TypeError
        If the arrays are of several families, or of none that hoyer works on.

    See Also
    --------
    project : Every vector with the same sparseness.

    Notes
    -----
    Zero vectors with ``l2="keep"``, and vectors of length 1, have no sparseness: they do not count
    in the mean, and keep their norm. The mean is exact up to rounding, whatever the entries are.
    Where the largest entries tie, other solutions may be as good: the first vectors are made
    sparser.

    On a GPU, the host waits for sums over each array several times.

    References
    ----------
    R. Ohib, N. Gillis, N. Dalmasso, S. Shah, V. Potluru and S. Plis, "Explicit group sparse
    projection with applications to deep learning and NMF", TMLR 2022.

    Examples
    --------
    >>> import hoyer, numpy as np
    >>> layers = {"first": np.array([3.0, -2.0, 1.0, 0.5]), "second": np.array([1.0, 0.9, -0.8])}
    >>> sparse = hoyer.project_together(layers, 0.5)
    >>> {name: p.round(3) for name, p in sparse.items()}
    {'first': array([ 3.098, -1.968,  0.838,  0.274]), 'second': array([1.484, 0.497, 0.   ])}
    >>> [float(hoyer.sparseness(p).round(3)) for p in sparse.values()]
    [0.363, 0.637]
    """
    if dim is not ...:
        refuse_dim(dim)
    form = _Form.of(arrays)
    family = _family_of(form)
    switches = (nonnegative, only_increase, "auto", check_finite)
    check_options(Options(None, None, None, None, *switches))  # type: ignore[arg-type]
    if not isinstance(relative, bool | np.bool_):
        raise TypeError(f"relative={relative!r}: must be True or False")
    target = _checked_target(sparseness, family)
    asked = Asked(
        target,
        [_checked("l2", value, name) for value, name in form.each("l2", l2)],
        [_checked("floor", value, name) for value, name in form.each("floor", floor)],
        [_checked("weights", value, name) for value, name in form.each("weights", weights)],
        bool(relative),
        bool(nonnegative),
        bool(only_increase),
        bool(check_finite),
    )
    axes = [one for one, _ in form.each("axis", axis)]
    outs = form.like(out)
    if not form.arrays:
        return form.rebuilt([], out)
    directly = out is None or _are_apart(family, form, outs)
    found = family.shares(form.arrays, axes, asked, form.names)
    # A norm that a type cannot hold is an error, which must come before anything is written.
    directly = directly and (out is None or all(isinstance(norm, str) for norm in asked.norms))
    results = [
        family.project(array, _options(share, norm, along, asked), place if directly else None)
        for array, share, norm, along, place in zip(
            form.arrays, found, asked.norms, axes, outs, strict=True
        )
    ]
    if not directly:
        for place, result in zip(outs, results, strict=True):
            place[...] = result
    return form.rebuilt(results, out)


def _are_apart(family: Family, form: "_Form", outs: list[Any]) -> bool:
    """Check where results go; return whether each may be written before the others are known.

    Not so if it may be in the memory of another array, or if that is not known.
    """
    for array, place, name in zip(form.arrays, outs, form.names, strict=True):
        with calling(name):
            family.check_place(array, place)
    pairs = zip(form.arrays, outs, strict=True)
    known = [(family.span(x), family.span(place)) for x, place in pairs]
    spans = [(a, b) for a, b in known if a is not None and b is not None]
    if len(spans) < len(known):
        return False
    numbered = sorted((place, i) for i, (_, place) in enumerate(spans))
    for (first, _), (second, _) in pairwise(numbered):
        if first == second and first[0] < first[1]:
            raise ValueError("out has the same array twice: results would be lost")
    pieces = sorted((*span, i) for i, pair in enumerate(spans) for span in pair)
    reach, owner = 0, -1
    for begin, end, i in pieces:
        if begin < reach and i != owner and begin < end:
            return False
        if end > reach:
            reach, owner = end, i
    return True


def _options(share: Any, norm: Any, axis: Axis, asked: Asked) -> Options:
    """Return what is asked of the vectors of one array, once their shares are known."""
    # A mask that leaves everything: a single entry, which has no sparseness, takes the norm.
    where = np.True_ if share is None else None
    sparseness = 0.5 if share is None else share
    return Options(
        sparseness,
        None,
        norm,
        axis,
        asked.nonnegative,
        asked.only_increase,
        "auto",
        asked.check_finite,
        where=where,
    )


# ---- the structure of what was given ----


class _Form(NamedTuple):
    """Arrays, and how they were given."""

    kind: str
    """A list, a dict, or one array."""
    keys: tuple[Any, ...]
    arrays: list[Any]
    given: Any

    @property
    def names(self) -> list[str]:
        """What errors call the arrays."""
        if self.kind == "array":
            return ["x"]
        return [f"arrays[{key!r}]" for key in self.keys]

    @staticmethod
    def of(arrays: Any) -> "_Form":
        """Look at what was given."""
        if isinstance(arrays, Mapping):
            return _Form("dict", tuple(arrays), list(arrays.values()), arrays)
        if isinstance(arrays, list | tuple):
            if all(isinstance(one, float | int) for one in arrays) and arrays:
                raise TypeError(
                    "arrays is a list of numbers: pass a list of arrays, or a single array (as "
                    "numpy.array(...)) with the axis of its vectors"
                )
            pairs = [isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str) for a in arrays]
            if any(pairs):
                raise TypeError("arrays has pairs of names and arrays: pass a dict, dict(arrays)")
            return _Form("list", tuple(range(len(arrays))), list(arrays), arrays)
        if hasattr(arrays, "named_parameters"):
            raise TypeError(
                f"arrays is a module ({type(arrays).__name__}): pass some of its parameters, such "
                "as {name: w for name, w in model.named_parameters() if w.dim() > 1}"
            )
        if isinstance(arrays, Iterator):
            raise TypeError(
                f"arrays is of type {type(arrays).__name__}: pass a list or a dict, such as "
                "{name: w for name, w in model.named_parameters() if w.dim() > 1}"
            )
        return _Form("array", (0,), [arrays], arrays)

    def each(self, what: str, value: Any) -> list[tuple[Any, str]]:
        """Return an argument for each array, and the array's name."""
        return list(zip(self._spread(what, value), self.names, strict=True))

    def _spread(self, what: str, value: Any) -> list[Any]:
        many = len(self.arrays)
        if self.kind == "dict" and isinstance(value, Mapping):
            lacking = [key for key in self.keys if key not in value]
            strange = [key for key in value if key not in self.keys]
            if lacking or strange:
                wrong = f"none for {lacking[0]!r}" if lacking else f"one for {strange[0]!r}"
                raise ValueError(f"{what} has {wrong}: give one for each of the arrays' names")
            return [value[key] for key in self.keys]
        if isinstance(value, Mapping):
            raise TypeError(
                f"{what} is a dict, and arrays is none: give {what} as arrays are given"
            )
        if self.kind == "array" or value is None or isinstance(value, str):
            return [value] * many
        # A tuple names axes.
        listed = isinstance(value, list) or (isinstance(value, tuple) and what != "axis")
        listed = listed or (what != "axis" and len(getattr(value, "shape", ())) == 1)
        if not listed:
            return [value] * many
        if self.kind == "dict":
            raise TypeError(
                f"{what} is a list, and arrays is a dict: give a dict of the same names"
            )
        if len(value) != many:
            raise ValueError(
                f"{what} has {len(value)} entries for {many} arrays: give one for all, or one each"
            )
        return list(value)

    def like(self, out: Any) -> list[Any]:
        """Return where the result of each array goes."""
        if out is None:
            return [None] * len(self.arrays)
        if isinstance(out, Mapping) and self.kind == "dict" and set(out) == set(self.keys):
            return [out[key] for key in self.keys]
        alike = isinstance(out, list | tuple) if self.kind == "list" else self.kind == "array"
        if not alike or (self.kind == "list" and len(out) != len(self.arrays)):
            raise ValueError("out is not structured like arrays: give as many arrays, or the names")
        return list(out) if self.kind == "list" else [out]

    def rebuilt(self, results: list[Any], out: Any) -> Any:
        """Return results as the arrays were given."""
        if out is not None:
            return out
        if self.kind == "array":
            return results[0]
        if self.kind == "dict":
            return dict(zip(self.keys, results, strict=True))
        return tuple(results) if isinstance(self.given, tuple) else results


def _family_of(form: _Form) -> Family:
    """Return the family that all arrays belong to."""
    if not form.arrays:
        return select(np.zeros(1))
    family = select_common(form.arrays)
    if family is not None:
        return family
    first, *others = (type(array).__module__.partition(".")[0] for array in form.arrays)
    pairs = zip(form.names[1:], others, strict=True)
    name, other = next((pair for pair in pairs if pair[1] != first), (form.names[-1], others[-1]))
    raise TypeError(
        f"{form.names[0]} is an array of {first} and {name} one of {other}: give arrays of one "
        "family"
    )


# ---- numbers ----


def _checked_target(sparseness: Any, family: Family) -> Any:
    """Return the mean, if it is one number in [0, 1]; a tensor if the arrays are tensors."""
    if hasattr(sparseness, "requires_grad") and select(sparseness) is family:
        if sparseness.ndim:
            raise ValueError(_one_number(sparseness))
        return sparseness
    if sparseness is None or np.ndim(sparseness):
        raise ValueError(_one_number(sparseness))
    target_norms(2, sparseness)  # which says what is wrong
    return min(max(float(sparseness), 0.0), 1.0)


def _one_number(sparseness: Any) -> str:
    return (
        f"sparseness={sparseness!r}: the mean is one number in [0, 1]; for a sparseness of each "
        "vector use hoyer.project"
    )


def _checked(what: str, value: Any, name: str) -> Any:
    """Return the numbers for one array, which errors call `name`: an array, a tensor or a word."""
    if (value is None and what == "weights") or (what == "l2" and value == "keep"):
        return value
    if isinstance(value, str) or value is None:
        why = " (with free norms there is no single best share)" if value == "nearest" else ""
        words = "'keep', or " if what == "l2" else ""
        raise ValueError(
            f"{what}={value!r} for {name}: must be {words}a number for each vector{why}"
        )
    if hasattr(value, "requires_grad"):
        if value.requires_grad and what != "l2":
            raise ValueError(f"{what} for {name} cannot be differentiated: pass {what}.detach()")
        return value
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "fiu":
        raise TypeError(f"{what}={value!r} for {name}: must be a real number or an array of them")
    return numbers.astype(np.float64)
