"""What is JAX's own: transformations, tracing, types with and without x64, who computes where."""

import shutil
import subprocess
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from array_forms import FORMS, agree

import hoyer

jax = pytest.importorskip("jax")
jnp = jax.numpy

from hoyer.families.jax import engine as jax_engine  # noqa: E402
from hoyer.target import from_norms, from_sparseness  # noqa: E402

SETS = {
    "l1 alone": {"l1": 1.5},
    "L1 ball": {"l1": 2.0, "at_most": True},
    "two balls": {"l1": 2.0, "l2": 1.1, "at_most": True},
}
ALL_FORMS = {**FORMS, **SETS}
NAMES = ("sparseness", "l1", "l2")
each_form = pytest.mark.parametrize("form", ALL_FORMS)


@pytest.fixture(params=["core", "arrays"])
def computed_by(request, monkeypatch):
    """Both engines: the core, and plain operations as on other devices."""
    if request.param == "arrays":
        monkeypatch.setattr(jax_engine, "core", None)
    return request.param


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.normal(size=(3, 4, 6)))


def learned(form):
    """The targets of a form that are numbers, as arrays, and the rest of the options."""
    options = dict(ALL_FORMS[form])
    numbers = {
        name: jnp.asarray(options.pop(name))
        for name in NAMES
        if not isinstance(options.get(name, ""), str)
    }
    return numbers, options


def projection(names, options):
    """A function of x and targets."""
    return lambda x, *targets: hoyer.project(x, **dict(zip(names, targets, strict=True)), **options)


# ---- derivatives ----

SMOOTH = [form for form in ALL_FORMS if form not in ("one-hot", "nearly constant")]
SOME = ("norms", "keep", "only increase, l1", "two balls")


def check_derivatives(form, x, *, nonnegative):
    from jax.test_util import check_grads

    numbers, options = learned(form)
    function = jax.jit(projection(numbers, {**options, "nonnegative": nonnegative}))
    close = {"atol": 2e-4, "rtol": 2e-4, "eps": 1e-6}
    check_grads(function, (x, *numbers.values()), 2, ("fwd", "rev"), **close)


@pytest.mark.parametrize("form", SOME)
def test_derivatives_of_both_orders_in_both_modes(form, x):
    """By x and all targets, against differences."""
    check_derivatives(form, x, nonnegative=form == "norms")


@pytest.mark.slow
@pytest.mark.parametrize("form", SMOOTH)
@pytest.mark.parametrize("nonnegative", [False, True], ids=["signed", "nonnegative"])
def test_all_derivatives(form, nonnegative, x, computed_by):
    check_derivatives(form, x, nonnegative=nonnegative)


@each_form
def test_gradients_are_those_of_numpy(form, x, rng):
    """Of x, with targets that are numbers: both products, at ties and at zero vectors, too."""
    x = np.array(x)
    x[1, 2], x[2, 0] = 0, [1, -1, 1, 0.5, 1, 0]
    y, options = rng.normal(size=x.shape), ALL_FORMS[form]
    expected = hoyer.solve(x, **options)
    value, pull = jax.vjp(lambda x: hoyer.project(x, **options), jnp.asarray(x))
    agree(value, expected.value)
    agree(pull(jnp.asarray(y))[0], expected.vjp(y), 100)
    moved = jax.jvp(lambda x: hoyer.project(x, **options), (jnp.asarray(x),), (jnp.asarray(y),))[1]
    agree(moved, expected.jvp(y), 100)


def test_learned_targets_are_those_of_numpy(rng):
    x = rng.normal(size=(5, 12))
    sigma, l2 = rng.uniform(0.3, 0.9, 5), rng.uniform(1, 2, 5)
    y = rng.normal(size=x.shape)
    expected = hoyer.solve(x, sigma, l2=l2)

    def value(sigma, l2):
        return (hoyer.project(jnp.asarray(x), sigma, l2=l2) * y).sum()

    by_sigma, by_l2 = jax.grad(value, (0, 1))(jnp.asarray(sigma), jnp.asarray(l2))
    agree(by_sigma, (expected.sparseness_gradient() * y).sum(-1), 100)
    agree(by_l2, (expected.value * y).sum(-1) / l2, 100)


def test_third_derivatives(x):
    """Deeper than anybody's rule was written for."""

    def along(t):
        return (hoyer.project(x[0, 0] + t * x[0, 1], 0.5 + 0.1 * t) ** 2 * x[0, 2]).sum()

    third = jax.grad(jax.jacfwd(jax.grad(along)))(0.01)
    second = jax.hessian(along)
    assert float(third) == pytest.approx(float(second(0.011) - second(0.009)) / 0.002, rel=1e-3)


def test_rematerialisation_scan_and_loops(x):
    """Training as it is written: checkpoints, steps in a scan, a loop with an end of its own."""

    def step(w, _):
        gradient = jax.grad(lambda w: jnp.square(hoyer.project(w, 0.6) - x).sum())(w)
        return hoyer.project(w - 0.1 * gradient, 0.6, l2="keep"), None

    expected = x
    for _ in range(3):
        expected, _ = step(expected, None)
    found = jax.jit(lambda w: jax.lax.scan(step, w, None, length=3)[0])(x)
    agree(found, expected, 100)
    ended = jax.lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1], None)[0]), (0, x)
    )
    agree(ended[1], expected, 100)

    def loss(w):
        return (jax.lax.scan(jax.checkpoint(step), w, None, length=2)[0] ** 3).sum()

    agree(
        jax.jit(jax.grad(loss))(x),
        jax.grad(lambda w: (step(step(w, 0)[0], 0)[0] ** 3).sum())(x),
        1e3,
    )


def test_sparseness_can_be_differentiated(x, computed_by):
    from jax.test_util import check_grads

    function = partial(hoyer.sparseness, axis=(0, 2))
    agree(jax.jit(function)(x), hoyer.sparseness(np.asarray(x), axis=(0, 2)))
    check_grads(function, (x,), 2, ("fwd", "rev"), atol=1e-5, rtol=1e-5, eps=1e-5)


# ---- tracing ----


@each_form
def test_compiled_or_not_the_bits_are_the_same(form, x):
    options = ALL_FORMS[form]

    def function(x):
        return hoyer.project(x, **options)

    np.testing.assert_array_equal(jax.jit(function)(x), function(x))
    np.testing.assert_array_equal(function(x), hoyer.project(np.asarray(x), **options))


def test_every_argument_can_be_mapped_over(x, rng):
    """In one call, whose results are those of a loop."""
    sigma, l2 = jnp.asarray(rng.uniform(0.3, 0.9, 3)), jnp.asarray(rng.uniform(1, 2, (4, 3)))
    where = jnp.asarray(rng.random((3, 4, 6)) < 0.8)

    def function(x, sigma, l2, where):
        return hoyer.project(x, sigma, l2=l2, where=where)

    given, axes = (x, sigma, l2, where), (0, 0, 1, 0)
    for chosen in np.ndindex(2, 2, 2, 2):
        if not any(chosen):
            continue
        mapped = [axis if one else None for one, axis in zip(chosen, axes, strict=True)]

        def at(i, mapped=mapped):
            return [
                array if axis is None else jnp.take(array, i, axis)
                for array, axis in zip(given, mapped, strict=True)
            ]

        fixed = [
            one if axis is not None else at(0)[i]
            for i, (one, axis) in enumerate(zip(given, mapped, strict=True))
        ]
        # What is not mapped over must fit the vectors of one step.
        if mapped[0] is None:
            fixed[0] = x[0]
        if mapped[1] is None:
            fixed[1] = sigma[0]
        if mapped[2] is None:
            fixed[2] = l2[:, 0]
        if mapped[3] is None:
            fixed[3] = where[0]
        found = jax.vmap(function, mapped)(*fixed)
        for i in range(3):
            one = [
                a if axis is None else jnp.take(a, i, axis)
                for a, axis in zip(fixed, mapped, strict=True)
            ]
            agree(found[i], function(*one))


def test_gradients_can_be_mapped_over(x, rng):
    sigma = jnp.asarray(rng.uniform(0.3, 0.9, 3))
    y = jnp.asarray(rng.normal(size=(3, 4, 6)))

    def value(x, sigma, y):
        return (hoyer.project(x, sigma) * y).sum()

    pair = jax.grad(value, (0, 1))
    for axes in ((0, 0, 0), (0, None, 0), (None, 0, None), (None, None, 0)):
        given = [
            one if axis == 0 else one[0] for one, axis in zip((x, sigma, y), axes, strict=True)
        ]
        by_x, by_sigma = jax.jit(jax.vmap(pair, axes))(*given)
        for i in range(3):
            one = [a if axis is None else a[i] for a, axis in zip(given, axes, strict=True)]
            expected = pair(*one)
            agree(by_x[i], expected[0], 10)
            agree(by_sigma[i], expected[1], 10)
    hessians = jax.vmap(jax.hessian(lambda x: value(x, 0.6, y[0, 0])))(x[0])
    agree(hessians[1], jax.hessian(lambda x: value(x, 0.6, y[0, 0]))(x[0, 1]), 100)


def test_programs_contain_no_python(x):
    """No callback; for the CPU the core, elsewhere plain operations."""

    def function(x, sigma):
        return jax.grad(lambda x: (hoyer.project(x, sigma) ** 2).sum())(x)

    assert "callback" not in str(jax.make_jaxpr(function)(x, 0.7))
    traced = jax.jit(function).trace(x, 0.7)
    on_cpu = traced.lower().as_text()
    assert "custom_call @hoyer_project" in on_cpu
    assert "custom_call @hoyer_multiply" in on_cpu
    elsewhere = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @hoyer" not in elsewhere
    assert "callback" not in on_cpu + elsewhere


def test_no_target_is_compiled_in(x):
    """A program is made for a shape, not for a number."""
    traces = []

    @jax.jit
    def function(x, sigma):
        traces.append(1)
        return hoyer.project(x, sigma)

    for sigma in (0.3, 0.5, 0.7):
        function(x, sigma)
    assert len(traces) == 1
    from hoyer.families.jax import _projecting

    programs, sizes = _projecting.cache_info().currsize, []
    for sigma in (0.31, 0.5, 0.71):
        hoyer.project(x, sigma)
        hoyer.project(x, np.full((3, 4), sigma))
        sizes.append(_projecting.cache_info().currsize)
    assert sizes[0] == sizes[-1] <= programs + 1


def test_bad_vectors_are_nan_in_traced_code(rng, computed_by):
    """Alone: no other vector is touched, and nothing is raised."""
    x = rng.normal(size=(4, 6))
    good = hoyer.project(x, 0.6)
    x[1, 2], x[3, 0] = np.nan, -np.inf
    found = np.asarray(jax.jit(lambda x: hoyer.project(x, 0.6))(jnp.asarray(x)))
    assert np.isnan(found).all(-1).tolist() == [False, True, False, True]
    agree(found[::2], good[::2])
    sigma = jnp.array([0.6, 1.5, np.nan, 0.6])
    x = jnp.asarray(rng.normal(size=(4, 6)))
    found = np.asarray(jax.jit(hoyer.project)(x, sigma))
    assert np.isnan(found).all(-1).tolist() == [False, True, True, False]
    norms = jax.jit(lambda l1, l2: hoyer.project(x, l1=l1, l2=l2))(
        jnp.array([2.0, 9.0, -1, 2]), 1.0
    )
    assert np.isnan(norms).all(-1).tolist() == [False, True, True, False]


def test_masks_that_are_traced(rng, computed_by):
    """Lengths are known to nobody before: a table of targets, or formulas, serves them all."""
    x, where = rng.normal(size=(5, 9)), rng.random((5, 9)) < 0.6
    where[0], where[1] = False, np.arange(9) == 3
    forms = [{"sparseness": 0.6}, {"sparseness": 0.6, "l2": "keep"}, {"l1": 1.5}]
    for options in forms if computed_by == "core" else forms[1:2]:
        expected = hoyer.project(x, **options, where=where)
        found = jax.jit(lambda x, where, o=options: hoyer.project(x, **o, where=where))(x, where)
        agree(found, expected)
        agree(hoyer.project(jnp.asarray(x), **options, where=where), expected)
    sigma = rng.uniform(0.3, 0.9, 5)
    expected = hoyer.project(x, sigma, where=where)
    agree(jax.jit(lambda x, s, m: hoyer.project(x, s, where=m))(x, sigma, where), expected)
    pull = jax.vjp(lambda x: hoyer.project(x, 0.6, where=where), jnp.asarray(x))[1]
    y = rng.normal(size=x.shape)
    agree(pull(jnp.asarray(y))[0], hoyer.solve(x, 0.6, where=where).vjp(y), 100)


def test_solved_projections_are_trees(x):
    """What `solve` returns goes into and out of compiled functions, mapped ones as well."""
    expected = hoyer.solve(np.asarray(x), 0.6)
    found = jax.jit(lambda x: hoyer.solve(x, 0.6))(x)
    assert isinstance(found, hoyer.Projection)
    np.testing.assert_array_equal(found.value, expected.value)
    assert found.active.tolist() == expected.active.tolist()
    assert len(jax.tree.leaves(found)) > 9
    y = jnp.ones_like(x)
    agree(jax.jit(lambda p, y: p.vjp(y))(found, y), expected.vjp(np.ones(x.shape)), 100)
    mapped = jax.vmap(lambda x: hoyer.solve(x, 0.6).scale)(x)
    agree(mapped, expected.scale)
    by_x = jax.grad(lambda x: hoyer.solve(x, 0.6).scale.sum())(x)
    step = 1e-6 * np.ones(x.shape) * np.asarray(x)[..., ::-1]
    up, down = (hoyer.solve(np.asarray(x) + sign * step, 0.6).scale.sum() for sign in (1, -1))
    assert (by_x * step).sum() == pytest.approx((up - down) / 2, rel=1e-5)


# ---- types ----


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_without_x64(dtype, rng, computed_by):
    """The same values: 64-bit types are used inside, and none comes out."""
    x = rng.normal(size=(6, 40)).astype(np.float32)
    with jax.enable_x64(True):
        wide = jnp.asarray(x, dtype)
        expected = np.asarray(hoyer.project(wide, 0.7)).astype(np.float64)
    with jax.enable_x64(False):
        given = jnp.asarray(x, dtype)
        found = jax.jit(lambda x: hoyer.project(x, 0.7))(given)
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found).astype(np.float64), expected)
        if computed_by == "arrays":
            return
        found = hoyer.project(given, 0.7)
        np.testing.assert_array_equal(np.asarray(found).astype(np.float64), expected)
        told = hoyer.solve(given, 0.7)
        assert {told.scale.dtype, told.shift.dtype, told.l2.dtype} == {np.dtype(np.float32)}
        assert told.support_size.dtype == np.int32


def test_derivatives_without_x64(rng, computed_by):
    """Of any order, in loops as well: no type turns up that the configuration does not allow."""
    x, y = rng.normal(size=(2, 6, 20)).astype(np.float32)
    wide = hoyer.solve(x.astype(np.float64), 0.7)
    with jax.enable_x64(False):
        given = jnp.asarray(x)

        def value(x, sigma):
            return (hoyer.project(x, sigma) * y).sum()

        by_x, by_sigma = jax.jit(jax.grad(value, (0, 1)))(given, 0.7)
        assert by_x.dtype == by_sigma.dtype == np.float32
        size = np.abs(wide.vjp(y)).max()
        assert np.abs(by_x - wide.vjp(y)).max() < 8 * 2**-23 * size
        np.testing.assert_allclose(by_sigma, (wide.sparseness_gradient() * y).sum(), rtol=1e-5)
        moved = jax.jvp(value, (given, 0.7), (given * 0.5, 1.0))[1]
        assert moved.dtype == np.float32

        def steps(x):
            def step(x, _):
                return x - 0.1 * jax.grad(value)(x, 0.7), None

            return (jax.lax.scan(step, x, None, length=3)[0] ** 2).sum()

        assert jax.jit(jax.grad(steps))(given).dtype == np.float32
        curved = jax.hessian(lambda x: (hoyer.project(x, 0.7) ** 3).sum())(given[0])
    with jax.enable_x64(True):
        expected = jax.hessian(lambda x: (hoyer.project(x, 0.7) ** 3).sum())(
            jnp.asarray(x[0], np.float64)
        )
    np.testing.assert_allclose(curved, expected, atol=1e-4 * np.abs(expected).max())


def test_integers_become_what_jax_makes_of_them():
    x = np.array([[1, 2, 3, 4], [0, 5, 0, 1]])
    for x64, kind in ((True, np.float64), (False, np.float32)):
        with jax.enable_x64(x64):
            assert hoyer.project(jnp.asarray(x), 0.5).dtype == kind
            agree(hoyer.project(jnp.asarray(x), 0.5), hoyer.project(x, 0.5).astype(kind))
            assert hoyer.sparseness(jnp.asarray(x) > 1).dtype == kind


def test_numbers_keep_their_digits_without_x64():
    """A target of 0.9 is no float32: beside vectors of that type its other digits count."""
    x = np.array([1.0, 1.0, 1.0, 1.0, *np.linspace(0, 0.9, 12)], np.float32)
    ratio = np.nextafter(2.0, 0.0)
    expected = hoyer.project(x.astype(np.float64), l1=ratio, l2=1.0)
    with jax.enable_x64(False):
        found = jax.jit(lambda x: hoyer.project(x, l1=ratio, l2=1.0))(jnp.asarray(x))
        mixed = jax.jit(lambda x, l2: hoyer.project(x, l1=ratio, l2=l2))(jnp.asarray(x), 1.0)
    for one in (found, mixed):
        assert np.abs(one - expected).max() < 4 * 2**-23


# ---- what is refused ----


def test_nothing_changes_in_place(x):
    with pytest.raises(TypeError, match=r"in place; write x = hoyer\.project\(x, \.\.\.\)"):
        hoyer.project_(x, 0.5)
    with pytest.raises(TypeError, match="leave out=, project returns a new array"):
        hoyer.project(x, 0.5, out=x)
    with pytest.raises(TypeError, match="leave out=, a new array is returned"):
        hoyer.solve(x, 0.5).jvp(x, out=x)
    with pytest.raises(TypeError, match="BCOO"):
        hoyer.project_sparse(x, 0.5)
    with pytest.raises(TypeError, match="leave out=, new arrays are returned"):
        hoyer.project_together([x], 0.5, out=[x])


def test_static_errors_come_while_tracing(x):
    """What can be seen without numbers is an error in traced code as well."""
    for options, words in (
        ({"sparseness": 1.5}, r"sparseness must lie in \[0, 1\]"),
        ({"sparseness": 0.5, "axis": 7}, "x has 3 axes"),
        ({"sparseness": 0.5, "solver": "fast"}, "unknown solver"),
        ({"sparseness": jnp.full(5, 0.5)}, "does not fit vectors in a batch of shape"),
        ({"sparseness": 0.5, "where": jnp.ones(6)}, "give booleans"),
        ({"sparseness": True}, "booleans are not accepted"),
    ):
        with pytest.raises((ValueError, TypeError, IndexError), match=words):
            jax.jit(lambda x, o=options: hoyer.project(x, **o))(x)
    with pytest.raises(ValueError, match="does not fit vectors in a batch of shape"):
        jax.jit(hoyer.project)(x, jnp.full(5, 0.5))
    with pytest.raises(TypeError, match="booleans are not accepted"):
        jax.jit(hoyer.project)(x, jnp.array(True))
    with pytest.raises(TypeError, match="complex"):
        hoyer.project(x + 1j, 0.5)


def test_plain_operations_have_one_solver(x, monkeypatch):
    monkeypatch.setattr(jax_engine, "core", None)
    with pytest.raises(ValueError, match="needs hoyer's compiled core"):
        hoyer.project(x, 0.5, solver="newton")


def test_together_is_for_eager_code(x):
    arrays = [x, x[0, :2] * 2]
    found = hoyer.project_together(arrays, 0.6)
    expected = hoyer.project_together([np.asarray(one) for one in arrays], 0.6)
    for one, other in zip(found, expected, strict=True):
        assert isinstance(one, jax.Array)
        agree(one, other)
    with pytest.raises(TypeError, match=r"call it outside of jax\.jit"):
        jax.jit(lambda x: hoyer.project_together([x], 0.6))(x)


# ---- the interface to XLA ----

LAYOUTS = {
    "Buffer": ("XLA_FFI_Buffer", ("type dtype", "data data", "rank rank", "sizes dims")),
    "Buffers": ("XLA_FFI_Args", ("size size", "items args")),
    "Attributes": ("XLA_FFI_Attrs", ("size size", "types types", "names names", "items attrs")),
    "Name": ("XLA_FFI_ByteSpan", ("data ptr", "size len")),
    "Scalar": ("XLA_FFI_Scalar", ("type dtype", "value value")),
    "Api": ("XLA_FFI_Api", ("version api_version", "create_error XLA_FFI_Error_Create")),
    "ErrorArguments": ("XLA_FFI_Error_Create_Args", ("message message", "code errc")),
    "Metadata": ("XLA_FFI_Metadata", ("version api_version", "traits traits")),
    "MetadataExtension": ("XLA_FFI_Metadata_Extension", ("metadata metadata",)),
    "Version": ("XLA_FFI_Api_Version", ("major major_version", "minor minor_version")),
    "CallFrame": (
        "XLA_FFI_CallFrame",
        ("api api", "stage stage", "arguments args", "results rets", "attributes attrs"),
    ),
}


def test_layouts_are_those_of_the_header(tmp_path):
    """The structs that our handlers are called with, as jaxlib's own header has them."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    lines = ["#include <cstddef>", '#include "xla/ffi/api/c_api.h"', '#include "binding/xla.hpp"']
    for ours, (theirs, fields) in LAYOUTS.items():
        for field in fields:
            mine, other = field.split()
            same = f"offsetof(hoyer::xla::{ours}, {mine}) == offsetof({theirs}, {other})"
            lines.append(f"static_assert({same});")
    for name, other in {
        "boolean": "PRED",
        "s64": "S64",
        "u32": "U32",
        "f64": "F64",
        "bf16": "BF16",
    }.items():
        lines.append(f"static_assert(int(hoyer::xla::Type::{name}) == XLA_FFI_DataType_{other});")
    lines.append(
        "static_assert(int(hoyer::xla::Stage::execute) == XLA_FFI_ExecutionStage_EXECUTE);"
    )
    source = tmp_path / "layouts.cpp"
    source.write_text("\n".join(lines), encoding="utf-8")
    native = Path(__file__).parents[1] / "native"
    folders = [f"-I{native}", f"-I{jax.ffi.include_dir()}"]
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", *folders, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_quotients_stay_two(rng, computed_by):
    """Norms next to the largest double: XLA must not divide by a product, which overflows."""
    x = 1e301 * rng.normal(size=40)
    expected, found = (hoyer.solve(given, l1=1e308) for given in (x, jnp.asarray(x)))
    assert int(found.support_size) == expected.support_size
    np.testing.assert_allclose(np.asarray(found.value), expected.value, rtol=1e-14)


def test_subnormal_numbers_are_numbers(rng):
    """XLA computes without them, the core with them, on whatever thread."""
    x = rng.uniform(0.1, 1, (3000, 40)).astype(np.float32) * np.float32(1e-41)
    found = jax.jit(lambda x: hoyer.project(x, 0.6))(jnp.asarray(x))
    np.testing.assert_array_equal(found, hoyer.project(x, 0.6))


def test_threads_change_no_bits(rng):
    x = jnp.asarray(rng.normal(size=(500, 1000)))
    function = jax.jit(lambda x: hoyer.project(x, 0.8))
    before, results = hoyer.get_num_threads(), []
    for count in (1, 2, 3):
        hoyer.set_num_threads(count)
        results.append(np.asarray(function(x)))
    hoyer.set_num_threads(before)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_without_jit(x):
    """Debugging: JAX's own functions run operation by operation, and ours as ever."""
    expected = hoyer.project(x, 0.6)
    gradient = jax.grad(lambda x: (hoyer.project(x, 0.6) ** 3).sum())
    by_x = gradient(x)
    with jax.disable_jit():
        assert (hoyer.project(x, 0.6) == expected).all()
        assert (jax.jit(partial(hoyer.project, sparseness=0.6))(x) == expected).all()
        np.testing.assert_allclose(gradient(x), by_x, rtol=1e-12)
        assert hoyer.sparseness(x).shape == x.shape[:-1]


def test_what_jax_traces_goes_with_its_arrays():
    x = np.arange(8.0)
    with pytest.raises(TypeError, match=r"sparseness is traced by JAX.*jax.numpy.asarray"):
        jax.grad(lambda sigma: hoyer.project(x, sigma).sum())(0.5)
    with pytest.raises(TypeError, match=r"where is traced by JAX.*jax.numpy.asarray"):
        jax.jit(lambda mask: hoyer.project(x, 0.6, where=mask))(np.ones(8, bool))


def test_keys_are_no_numbers():
    with pytest.raises(TypeError, match="give real numbers"):
        hoyer.project(jax.random.split(jax.random.key(0), 4), 0.5)


@pytest.mark.parametrize("resolve", [from_sparseness, from_norms])
def test_traced_targets_have_all_digits(resolve):
    """XLA joins constants, which double-double would not survive."""
    n, tolerance = 2**16, 1e-15
    targets = (0.9812345678912345,) if resolve is from_sparseness else (5.1, 1.7)
    with jax.enable_x64(True):
        run = jax.jit(lambda *given: resolve(n, *given, tolerance, jnp)[1])
        found = run(*(jnp.float64(one) for one in targets))
    told = resolve(n, *(np.float64(one) for one in targets), tolerance, np)[1]
    exact, own = (sum(Fraction(float(part)) for part in pair) for pair in (told, found))
    assert abs(own - exact) <= n * Fraction(1, 2**100)
