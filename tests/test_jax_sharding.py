"""JAX arrays over eight devices: rows where they are, vectors in parts, the same bits for any.

The processes that other tests run in have one device: there this file runs itself in another one.
"""

import functools
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402 - only with JAX
from engines import EPS, SMALLEST  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import hoyer  # noqa: E402
from hoyer.engines import jax as shards  # noqa: E402
from hoyer.engines.arrays.histogram import BIN_COUNT  # noqa: E402
from hoyer.engines.jax import integers  # noqa: E402
from hoyer.engines.jax.histogram import Bins, Keys  # noqa: E402
from hoyer.families.jax.engine import bits_of, numbers_of  # noqa: E402
from hoyer.families.jax.sharding import SHORT  # noqa: E402
from hoyer.options import Options  # noqa: E402
from hoyer.paper import problems  # noqa: E402
from hoyer.plan import Plan, plan_for  # noqa: E402
from hoyer.projection import ACTIVE_NAMES, RECORD_FIELDS  # noqa: E402
from hoyer.target import Target  # noqa: E402

DEVICES = 8
FLAG = f"--xla_force_host_platform_device_count={DEVICES}"
inside = FLAG in os.environ.get("XLA_FLAGS", "")
eight = pytest.mark.skipif(not inside, reason="runs in a process of its own, with eight devices")
RNG = np.random.default_rng(18)
CLOSE = 4
"""How far from the projection of the whole results may be, in eps."""
FAR = 32
"""The same of gradients, which are sums of numbers of both signs."""
SIZE = 512
"""The length of the arrays that problems of any length are put into, under a mask."""


@pytest.mark.skipif(inside, reason="this is that process")
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_with_eight_devices(which):
    environment = os.environ | {"XLA_FLAGS": FLAG, "JAX_PLATFORMS": "cpu"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    switches = ["-q", "-x", "-p", "no:cacheprovider", "-m", which]
    command = [sys.executable, "-m", "pytest", *switches, __file__]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def mesh_of(devices=DEVICES, kind=AxisType.Auto, shape=None, names=("d",)):
    shape = shape or (devices,)
    kinds = (kind,) * len(names)
    return jax.make_mesh(shape, names, axis_types=kinds, devices=jax.devices()[:devices])


def collectives(function, *arrays):
    """Return how many operations of each kind move data between devices."""
    text = function.lower(*arrays).compile().as_text()
    kinds = ("all-gather", "all-reduce", "all-to-all", "collective-permute")
    found = {kind: len(re.findall(rf" {kind}(?:-start)?\(", text)) for kind in kinds}
    return {kind: count for kind, count in found.items() if count}


def apart(a, b):
    """Return how far two arrays are apart, in eps times the largest entry."""
    a, b = np.asarray(a), np.asarray(b)
    return abs(a - b).max() / abs(b).max() / EPS["float32"]


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


# ---- rows over devices ----


@eight
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_rows_are_projected_where_they_are(kind):
    x = RNG.standard_normal((16, 300)).astype(np.float32)
    xs = jax.device_put(x, NamedSharding(mesh_of(kind=kind), P("d", None)))

    def loss(x, sparseness):
        return jnp.sum(hoyer.project(x, sparseness, l2="keep") ** 3)

    project = jax.jit(lambda x: hoyer.project(x, 0.8, l2="keep"))
    gradient = jax.jit(jax.grad(loss))
    assert collectives(project, xs) == {}
    assert collectives(gradient, xs, 0.8) == {}
    for function in (project, lambda x: hoyer.project(x, 0.8, l2="keep")):
        value = function(xs)
        assert value.sharding.spec == P("d", None)
        assert same_bits(value, hoyer.project(jnp.asarray(x), 0.8, l2="keep"))
    assert same_bits(gradient(xs, 0.8), jax.grad(loss)(jnp.asarray(x), 0.8))
    # A target that all rows share has the sum of their gradients.
    by_target = jax.jit(jax.grad(loss, 1))
    assert collectives(by_target, xs, 0.8) == {"all-reduce": 1}
    np.testing.assert_allclose(
        by_target(xs, 0.8), jax.grad(loss, 1)(jnp.asarray(x), 0.8), rtol=1e-5
    )
    assert collectives(jax.jit(hoyer.sparseness), xs) == {}
    assert same_bits(hoyer.sparseness(xs), hoyer.sparseness(jnp.asarray(x)))


@eight
def test_what_else_goes_with_rows():
    x = RNG.standard_normal((16, 40, 3)).astype(np.float32)
    mesh = mesh_of(shape=(4, 2), names=("a", "b"))
    xs = jax.device_put(x, NamedSharding(mesh, P("a", None, None)))
    where = jax.device_put(x > 0, xs.sharding)
    targets = jax.device_put(
        np.linspace(0.3, 0.9, 16).astype(np.float32), NamedSharding(mesh, P("a"))
    )

    def project(x, where, targets):
        return hoyer.project(x, targets[:, None], axis=1, where=where)

    assert collectives(jax.jit(project), xs, where, targets) == {}
    whole = project(*(jnp.asarray(np.asarray(one)) for one in (xs, where, targets)))
    assert same_bits(jax.jit(project)(xs, where, targets), whole)
    mapped = jax.jit(jax.vmap(lambda x, s: hoyer.project(x, s, axis=0), in_axes=(0, 0)))
    assert collectives(mapped, xs, targets) == {}
    solved = jax.jit(lambda x: hoyer.solve(x, 0.7, axis=1).scale)
    assert collectives(solved, xs) == {}
    bad = x.copy()
    bad[3, 5, 1] = np.nan
    with pytest.raises(ValueError, match="vector \\(3, 1\\)"):
        hoyer.project(jax.device_put(bad, xs.sharding), 0.8, axis=1)


@eight
def test_types_say_how_results_are_divided():
    mesh = mesh_of(kind=AxisType.Explicit)
    xs = jax.device_put(
        RNG.standard_normal((16, 32)).astype(np.float32), NamedSharding(mesh, P("d"))
    )

    @jax.jit
    def added(x):
        value = hoyer.project(x, 0.8)
        assert jax.typeof(value).sharding.spec == P("d", None)
        assert jax.typeof(hoyer.sparseness(value)).sharding.spec == P("d")
        return x + value

    assert added(xs).sharding.spec == P("d", None)


@eight
def test_inside_of_shard_map():
    x = RNG.standard_normal((16, 32)).astype(np.float32)

    def loss(project, x, sparseness):
        return jnp.sum(project(x, sparseness) ** 3)

    whole = jax.grad(functools.partial(loss, hoyer.project), (0, 1))(jnp.asarray(x), 0.8)
    for check in (True, False):
        project = jax.shard_map(
            hoyer.project, mesh=mesh_of(), in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check
        )
        found = jax.jit(jax.grad(functools.partial(loss, project), (0, 1)))(x, 0.8)
        for a, b in zip(found, whole, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


# ---- vectors over devices, short and long ----


@eight
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_short_vectors_are_exchanged_for_rows(kind):
    x = RNG.standard_normal((16, 256)).astype(np.float32)
    xs = jax.device_put(x, NamedSharding(mesh_of(kind=kind), P(None, "d")))
    project = jax.jit(lambda x: hoyer.project(x, 0.8))
    assert collectives(project, xs) == {"all-to-all": 2}
    assert project(xs).sharding.spec == P(None, "d")
    assert same_bits(project(xs), hoyer.project(jnp.asarray(x), 0.8))
    # Sums do for the rest.
    products = jax.jit(jax.grad(lambda x: jnp.sum(hoyer.sparseness(x))))
    if kind == AxisType.Auto:
        assert set(collectives(products, xs)) <= {"all-reduce"}
    np.testing.assert_allclose(products(xs), products(jnp.asarray(x)), rtol=1e-4, atol=1e-6)
    one = jax.device_put(x[0], NamedSharding(mesh_of(kind=kind), P("d")))
    assert same_bits(hoyer.project(one, 0.8), hoyer.project(jnp.asarray(x[0]), 0.8))


@eight
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_long_vector_stays_where_it_is(kind):
    n = 2 * SHORT
    x = RNG.standard_normal(n).astype(np.float32)
    xs = jax.device_put(x, NamedSharding(mesh_of(kind=kind), P("d")))

    def loss(x, sparseness):
        value = hoyer.project(x, sparseness)
        return jnp.sum(value**3), value

    both = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    assert set(collectives(both, xs, jnp.float32(0.8))) == {"all-reduce"}
    forward = jax.jit(lambda x: hoyer.project(x, 0.8))
    assert collectives(forward, xs) == {"all-reduce": 1}
    if kind == AxisType.Auto:
        backward = jax.jit(lambda solved, y: solved.vjp(y))
        assert collectives(backward, hoyer.solve(xs, 0.8, l2="keep"), xs) == {"all-reduce": 1}
    (_, value), (by_x, by_target) = both(xs, jnp.float32(0.8))
    (_, whole), (all_x, all_target) = both(jnp.asarray(x), jnp.float32(0.8))
    assert value.sharding.spec == by_x.sharding.spec == P("d")
    assert apart(value, whole) <= CLOSE
    assert apart(by_x, all_x) <= FAR
    assert apart(by_target, all_target) <= FAR


@eight
def test_sparseness_of_a_vector_over_devices():
    x = RNG.standard_normal(4096).astype(np.float32)
    xs = jax.device_put(x, NamedSharding(mesh_of(), P("d")))
    assert set(collectives(jax.jit(hoyer.sparseness), xs)) == {"all-reduce"}
    np.testing.assert_allclose(hoyer.sparseness(xs), hoyer.sparseness(x), rtol=1e-6)


# ---- the search over devices ----

SETS = [
    {},
    {"nonnegative": True, "l2": "nearest"},
    {"nonnegative": True, "only_increase": True, "l2": "keep"},
]


def options(sparseness=None, **given):
    names = {"l1": None, "l2": None, "nonnegative": False, "only_increase": False} | given
    names.setdefault("at_most", False)
    return Options(sparseness, axis=-1, solver="auto", check_finite=False, **names)


@functools.cache
def program(devices, switches, numbers, by_core):
    """Return the projection of a vector in parts, of any length up to SIZE: the rest is masked.

    `numbers` are the names of the targets that are given as such.
    """

    def run(x, where, goals):
        with jax.enable_x64(True):
            each = numbers_of(goals)
            target = Target(*(each[i] for i in range(4)))
            lengths = jax.lax.psum(where.sum(dtype=jnp.int64), "d")
            asked = options(**dict.fromkeys(numbers, 0.5), **dict(switches))
            plan = Plan.of(SIZE, target, asked, where, lengths)
            value, record = shards.forward(x, plan, ("d",), by_core=by_core)
            return value, jax.lax.bitcast_convert_type(record, jnp.uint32)

    parts = P("d")
    mesh, specs = mesh_of(devices), (parts, parts, P())
    # What a foreign call returns is of no such type, unless calls are lowered as one primitive:
    # `test_project_sharded` has the search by the core with these types.
    return jax.jit(
        jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=(parts, P()), check_vma=not by_core)
    )


def project(x, devices=DEVICES, by_core=True, **given):
    """Return the projection of one vector in parts, and its record."""
    goals = bits_of(np.stack(plan_for(x.size, options(**given)).target, -1)[0])
    switches = {k: v for k, v in given.items() if isinstance(v, bool | str)}
    # One program serves all targets of both norms.
    numbers: tuple[str, ...] = ("sparseness",)
    if given.get("at_most") or given.get("sparseness") is given.get("l2") is None:
        numbers = tuple(name for name in ("l1", "l2") if given.get(name) is not None)
    run = program(devices, tuple(sorted(switches.items())), numbers, by_core)
    places = np.sort(np.random.default_rng(x.size).permutation(SIZE)[: x.size])
    padded, where = np.full(SIZE, np.nan, x.dtype), np.zeros(SIZE, bool)
    padded[places], where[places] = x, True
    value, record = run(padded, where, goals)
    value = np.asarray(value)
    assert value.dtype == x.dtype
    assert not value[~where].any()
    numbers = np.asarray(record).view(np.float64).reshape(-1)
    return value[places], dict(zip(RECORD_FIELDS, numbers, strict=True))


def check(x, value, record, given):
    """Compare with the projection of the whole."""
    whole, name = hoyer.solve(x, **given), str(x.dtype)
    unit = max(EPS[name] * float(abs(whole.value).max()), SMALLEST[name])
    with np.errstate(over="ignore", invalid="ignore"):
        errors = abs(value.astype(float) / unit - whole.value.astype(float) / unit)
    errors = errors[value != whole.value]
    assert errors.max(initial=0) <= CLOSE
    if ACTIVE_NAMES[int(record["active"])] != whole.active and "both" in (
        whole.active,
        ACTIVE_NAMES[int(record["active"])],
    ):
        # At a border, up to rounding: here the comparison is exact.
        return
    assert ACTIVE_NAMES[int(record["active"])] == whole.active
    assert record["support_size"] == whole.support_size
    assert bool(record["unique"]) == whole.unique
    for field in ("scale", "l1", "l2"):
        # XLA makes zeros of subnormal numbers.
        np.testing.assert_allclose(
            record[field], float(getattr(whole, field)), rtol=1e-13, atol=3e-308, err_msg=field
        )


ROUNDS = {"float16": 3, "float32": 3, "float64": 4}
"""How many sums over all devices it may take."""


def judged(dtype, switches, step, by_core=True):
    count = 0
    for problem in problems.collection(dtype)[::step]:
        given = problem.target | switches
        if isinstance(given.get("l2"), str):
            if given.get("sparseness") is None:
                continue
            given.pop("l1", None)
        if problem.x.size > SIZE or given.get("sparseness") == SMALLEST["float64"]:
            # Of a target that is subnormal XLA makes the one next to it.
            continue
        try:
            hoyer.solve(problem.x, **given)
        except ValueError:
            continue
        value, record = project(problem.x, by_core=by_core, **given)
        check(problem.x, value, record, given)
        assert record["evaluations"] <= ROUNDS[dtype], problem
        count += 1
    assert count > 20


@eight
@pytest.mark.parametrize("switches", SETS, ids=str)
def test_the_collection(switches):
    judged("float32", switches, 3)


@eight
@pytest.mark.slow
def test_the_collection_by_plain_operations():
    judged("float32", {"nonnegative": True}, 5, by_core=False)


BALLS = [
    {"l1": 3.0},
    {"l1": 3.0, "nonnegative": True},
    {"l1": 3.0, "at_most": True},
    {"l1": 3.0, "l2": 1.5, "at_most": True},
    {"l1": 3.0, "l2": 1.5, "at_most": True, "nonnegative": True},
]


@eight
@pytest.mark.parametrize(
    ("given", "by_core"),
    [
        (BALLS[0], True),
        (BALLS[3], True),
        *(pytest.param(BALLS[i], True, marks=pytest.mark.slow) for i in (1, 2, 4)),
        *(pytest.param(BALLS[i], False, marks=pytest.mark.slow) for i in (0, 4)),
    ],
)
def test_one_norm_and_upper_bounds(given, by_core):
    for name, (numbers, _) in nasty().items():
        for factor in (0.01, 1.0, 100.0) if by_core else (1.0,):
            x = numbers.astype(np.float32)
            size = max(float(abs(x).max()), 1e-3) * factor
            own = {k: v if isinstance(v, bool) else v * size for k, v in given.items()}
            value, record = project(x, by_core=by_core, **own)
            check(x, value, record, own)
            assert record["evaluations"] <= ROUNDS["float32"], name
            within = whole_norms(x, own) if own.get("at_most") else False
            if within:
                assert same_bits(value, np.maximum(x, 0) if own.get("nonnegative") else x), name


def whole_norms(x, given):
    """Whether a vector is clearly within its bounds."""
    w = np.maximum(x, 0) if given.get("nonnegative") else abs(x)
    w = w.astype(float)
    return w.sum() < 0.9 * given["l1"] and np.sqrt((w**2).sum()) < 0.9 * given.get("l2", math.inf)


@eight
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_of_light_and_heavy_tails(dtype):
    generator = np.random.default_rng(4)
    draws = {
        "normal": generator.standard_normal(SIZE),
        "lognormal": np.exp(6 * generator.standard_normal(SIZE)),
        "cauchy": generator.standard_cauchy(SIZE) ** 3,
        "neighbours": 1 + np.arange(SIZE) * 2.0**-52,
        "two clusters": np.where(np.arange(SIZE) % 2, 1 + 2.0**-51, 1.0) + (np.arange(SIZE) < 9),
    }
    with jax.enable_x64(True):
        for name, numbers in draws.items():
            for sparseness in (0.3, 0.9, 0.99):
                x = numbers.astype(dtype)
                value, record = project(x, sparseness=sparseness)
                check(x, value, record, {"sparseness": sparseness})
                assert record["evaluations"] <= ROUNDS[dtype], (name, sparseness)


@eight
@pytest.mark.parametrize("given", BALLS[1::2], ids=str)
def test_long_vectors_stay_where_they_are_for_any_set(given):
    x = RNG.standard_normal(2 * SHORT)
    for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
        whole = jnp.asarray(x, dtype)
        xs = jax.device_put(whole, NamedSharding(mesh_of(), P("d")))
        run = jax.jit(lambda x: hoyer.project(x, **given))
        assert collectives(run, xs) == {"all-reduce": 1}
        found, expected = run(xs), run(whole)
        assert found.dtype == dtype
        unit = float(jnp.finfo(dtype).eps) * float(abs(expected).max())
        assert float(abs(found.astype(float) - expected.astype(float)).max()) <= CLOSE * unit


@eight
def test_the_collection_as_halves():
    judged("float16", {}, 4)


@eight
def test_the_collection_as_doubles():
    with jax.enable_x64(True):
        judged("float64", {"nonnegative": True}, 3)


def nasty():
    """Inputs, with a sparseness, that are hard to get right."""
    ties = np.repeat([1.0, -2.0, 0.5], [40, 30, 30])
    return {
        "normal": (RNG.standard_normal(SIZE), 0.8),
        "decreased": (RNG.standard_normal(300) ** 7, 0.01),
        "ties": (ties, 0.7),
        "as many ties as fit": (np.repeat([2.0, 1.0], [4, 12]), 2 / 3),
        "constant": (np.full(50, -1.5), 0.5),
        "zeros": (np.zeros(50), 0.5),
        "sparseness 0": (2 + RNG.standard_normal(60), 0.0),
        "sparseness 1": (RNG.standard_normal(60), 1.0),
        "one-hot": (np.eye(1, 70, 69)[0], 0.6),
        "large": (RNG.standard_normal(99) * 1e37, 0.6),
        "subnormal": (RNG.integers(-9, 9, 99) * SMALLEST["float32"], 0.6),
        "offset": (1e3 + RNG.random(500) / 4, 0.9),
        "two entries": (np.array([-2.0, 2.0]), 0.5),
        "projected": (hoyer.project(RNG.standard_normal(500).astype(np.float32), 0.8), 0.8),
    }


@eight
def test_any_number_of_devices_gives_the_same_bits():
    for name, (numbers, sparseness) in nasty().items():
        x = numbers.astype(np.float32)
        given = {"sparseness": sparseness}
        first, record = project(x, 8, **given)
        check(x, first, record, given)
        assert record["evaluations"] <= 3, name
        for devices in (1, 2):
            value, other = project(x, devices, **given)
            assert same_bits(value, first), name
            assert other == record or math.isnan(record["shift"]), name
        if name == "projected":
            assert not first[x == 0].any()


@eight
def test_bad_vectors_are_nan():
    x = RNG.standard_normal(100).astype(np.float32)
    for bad in (math.nan, math.inf, -math.inf):
        value, record = project(np.append(x, np.float32(bad)), sparseness=0.5)
        assert np.isnan(value).all()
        assert math.isnan(record["l2"])
    assert np.isnan(project(x, sparseness=1.5)[0]).all()


@eight
def test_the_first_of_too_many_ties_is_on_any_device():
    x = np.zeros(100, np.float32)
    x[[60, 61, 99]] = [-5, 5, 5]
    assert same_bits(project(x, sparseness=0.95)[0], hoyer.project(x, 0.95))


@eight
def test_project_sharded():
    x = RNG.standard_normal((2, 400)).astype(np.float32)
    mesh = mesh_of(shape=(4, 2), names=("a", "b"))
    specs = P(None, ("a", "b"))

    def sharded(x, *targets, **given):
        return jax.shard_map(
            lambda x, *own: hoyer.jax.project_sharded(x, *own, axis_name=("a", "b"), **given),
            mesh=mesh,
            in_specs=(specs, *(P() for _ in targets)),
            out_specs=specs,
        )(x, *targets)

    def loss(project, x, sparseness):
        value = project(x, sparseness)
        return jnp.sum(value**3), value

    both = [
        jax.jit(jax.value_and_grad(functools.partial(loss, one), (0, 1), has_aux=True))
        for one in (sharded, hoyer.project)
    ]
    (_, value), gradients = both[0](x, jnp.float32(0.8))
    (_, whole), others = both[1](jnp.asarray(x), jnp.float32(0.8))
    assert apart(value, whole) <= CLOSE
    for a, b in zip(gradients, others, strict=True):
        assert apart(a, b) <= FAR
    for given in (BALLS[0], BALLS[3]):
        found = jax.jit(functools.partial(sharded, **given))(x)
        assert apart(found, hoyer.project(x, **given)) <= CLOSE


@eight
def test_ties_of_doubles_whose_low_bits_are_not_zero():
    """Sums of low bits are carried from limb to limb, and still tell the key of what is alike."""
    generator = np.random.default_rng(7)
    with jax.enable_x64(True):
        for tie in (0.1, 1 / 3, math.pi, 1 + 2.0**-52):
            x = generator.random(SIZE) * tie / 2
            places = generator.permutation(SIZE)
            x[places[:90]] = tie
            x[places[90:120]] = tie * (1 + generator.random(30))
            for below in (3e-9, 1e-3):
                p = np.maximum(x - tie * (1 - below), 0)
                sparseness = float(hoyer.sparseness(p))
                value, record = project(x, sparseness=sparseness)
                check(x, value, record, {"sparseness": sparseness})
                assert record["support_size"] == 120


@eight
@pytest.mark.parametrize("rule", ["keep", pytest.param("nearest", marks=pytest.mark.slow)])
def test_gradients_where_a_device_has_no_support(rule):
    n = 2 * SHORT
    generator = np.random.default_rng(5)
    x = generator.standard_normal(n) * np.where(np.arange(n) < n // 2, 1.0, 1e-3)
    y = generator.standard_normal(n)
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(lambda x: hoyer.project(x, 0.9, l2=rule) @ y))
        for size in (1e-170, 1e150):
            xs = jax.device_put(x * size, NamedSharding(mesh_of(2), P("d")))
            found, whole = (np.asarray(gradient(one)) for one in (xs, jnp.asarray(x * size)))
            assert abs(found - whole).max() <= FAR * EPS["float64"] * abs(whole).max()


# ---- long integers ----


def number(limbs):
    return sum(int(limb) << (integers.LIMB * i) for i, limb in enumerate(np.asarray(limbs)))


@pytest.mark.parametrize("carry", [False, True])
def test_entries_that_are_alike_have_one_key(carry):
    kinds = Keys(64, nonnegative=False)
    first, second = kinds.moments
    with jax.enable_x64(True):
        for count in (1, 7, 900, 2**31):
            low = int(RNG.integers(2**kinds.width))
            limbs = [
                [(one >> (integers.LIMB * i)) & (2**integers.LIMB - 1) for i in range(size)]
                for one, size in ((low, first), (low * low, second))
            ]
            table = np.zeros((1 + first + second, BIN_COUNT), np.int64)
            table[:, 5] = [count, *(count * np.concatenate(limbs))]
            if carry:
                for i in (*range(1, first), *range(first + 1, first + second)):
                    over, table[i, 5] = divmod(int(table[i, 5]), 2**integers.LIMB)
                    table[i + 1, 5] += over
            width = jnp.int64(kinds.width)
            same, key = Bins.of(jnp.asarray(table), jnp.int64(kinds.lower), width, kinds).alike(5)
            assert same
            assert key == kinds.lower + (5 << kinds.width) + low


def test_long_integers():
    with jax.enable_x64(True):
        for _ in range(50):
            a, b = (RNG.integers(-(2**60), 2**60, 5) for _ in range(2))
            x, y = (integers.carried(jnp.asarray(one), 8) for one in (a, b))
            assert number(x) == number(a)
            assert number(integers.product(x, y, 17)) == number(a) * number(b)
            difference = integers.carried(x - y, 9)
            assert integers.sign(difference) == np.sign(number(a) - number(b))
            assert integers.sign(integers.carried(x - x, 9)) == 0
            shift = int(RNG.integers(0, 100))
            moved = integers.placed(integers.carried(jnp.asarray(a), 7), jnp.int64(shift), 14)
            assert number(moved) == number(a) << shift
            fraction, exponent = integers.as_float(difference)
            exact = number(a) - number(b)
            assert math.isclose(math.ldexp(float(fraction), int(exponent)), exact, rel_tol=2**-52)
