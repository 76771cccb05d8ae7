"""A vector in parts: the projection of the whole, and the same bits however it is divided."""

import importlib.util
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from engines import EPS, SMALLEST, has_gpu, strict_namespace

import hoyer
from hoyer.engines import core, parts
from hoyer.engines.arrays import histogram, namespace
from hoyer.engines.arrays.histogram import NOWHERE, Grid, Parts, limb_count
from hoyer.options import Options
from hoyer.paper import problems
from hoyer.plan import plan_for
from hoyer.projection import Active

RNG = np.random.default_rng(15)
NUMPY = namespace(np)
CLOSE = 4
"""How far from the projection of the whole results may be, in eps."""
DTYPES = ("float64", "float32", "float16")


class OnNumpy:
    """Parts are NumPy arrays, read by the core or by plain operations."""

    def __init__(self, engine):
        self.engine = engine

    def give(self, array):
        return array

    def take(self, array):
        return np.asarray(array)


class OnStrict(OnNumpy):
    def __init__(self):
        import array_api_strict

        super().__init__(Parts(strict_namespace()(array_api_strict)))

    def give(self, array):
        return self.engine.xp.library.asarray(array, copy=True)


class OnTorch(OnNumpy):
    """On a GPU where there is one."""

    def __init__(self):
        import torch

        super().__init__(Parts(namespace(torch)))

    def give(self, array):
        device = "cuda" if has_gpu() else "cpu"
        return self.engine.xp.library.tensor(np.ascontiguousarray(array), device=device)

    def take(self, array):
        return array.cpu().numpy()


READERS = {"core": lambda: OnNumpy(core), "arrays": lambda: OnNumpy(Parts(namespace(np)))}
LIBRARIES = {"torch": OnTorch, "array_api_strict": OnStrict}
READERS |= {name: kind for name, kind in LIBRARIES.items() if importlib.util.find_spec(name)}


@pytest.fixture(params=READERS)
def reader(request):
    if request.param == "array_api_strict" and "float16" in request.node.name:
        pytest.skip("the standard has no halves")
    return READERS[request.param]()


def options(sparseness=None, **given):
    """Return options of `hoyer.project`."""
    defaults = {"l1": None, "l2": None, "axis": -1, "nonnegative": False, "only_increase": False}
    defaults |= {"solver": "auto", "check_finite": True}
    return Options(sparseness=sparseness, **defaults | given)


def project(pieces, reader=None, *, most_gathered=parts.GATHERED_AT_ONCE, **given):
    """Project a list of arrays as one vector; return that and the solution."""
    reader = reader or OnNumpy(core)
    n, dtype = sum(piece.size for piece in pieces), pieces[0].dtype
    plan = plan_for(n, options(**given))
    search = parts.search(plan, dtype, NUMPY, most_gathered)
    with np.errstate(all="ignore"):
        given_pieces = [reader.give(piece) for piece in pieces]
        values, solution = parts.project_parts(given_pieces, search, reader.engine, reader.take)
    taken = [reader.take(value) for value in values]
    for piece, value in zip(pieces, taken, strict=True):
        assert value.shape == piece.shape
        assert value.dtype == piece.dtype
    return np.concatenate([value.reshape(-1) for value in taken]), solution


def same_bits(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def check(x, value, solution, **given):
    """Compare with the projection of the whole."""
    whole = hoyer.solve(x, **given)
    name = str(x.dtype)
    top = float(abs(whole.value).max())
    unit = max(EPS[name] * top, SMALLEST[name])
    with np.errstate(over="ignore", invalid="ignore"):
        errors = abs(value.astype(float) / unit - whole.value.astype(float) / unit)
    assert errors[value != whole.value].max(initial=0) <= CLOSE
    # Entries that one has and the other has not are next to nothing.
    assert errors[(value != 0) != (whole.value != 0)].max(initial=0) <= 1
    assert solution.support_size == whole.support_size
    assert solution.unique == whole.unique
    np.testing.assert_allclose(
        [solution.formula.scale, solution.l1, solution.l2],
        [float(whole.scale), float(whole.l1), float(whole.l2)],
        rtol=1e-13,
        atol=1e-323,
    )
    size = max(abs(x.astype(float)).max(), SMALLEST["float64"])
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            solution.formula.shift / size, float(whole.shift) / size, rtol=1e-13, atol=1e-14
        )


# ---- the projection ----

SETS = [
    {"nonnegative": nonnegative, "only_increase": only_increase, "l2": rule}
    for rule in (None, "keep", "nearest")
    for nonnegative in (False, True)
    for only_increase in (False, True)
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_collection(dtype, reader):
    step = 1 if reader.engine is core else 7
    for number, problem in enumerate(problems.collection(dtype)[::step]):
        given = problem.target | {k: v for k, v in SETS[number % 12].items() if v is not None}
        if isinstance(given.get("l2"), str):
            if given.get("sparseness") is None:
                continue
            given.pop("l1", None)
        try:
            hoyer.solve(problem.x, **given)
        except ValueError:
            continue
        x = problem.x
        value, solution = project(np.array_split(x, 3), reader, **given)
        check(x, value, solution, **given)


def nasty(dtype):
    """Inputs, with targets, that are hard to get right."""
    large = {"float64": 1e300, "float32": 1e37, "float16": 6e4}[dtype]
    few = np.zeros(200)
    few[[17, 150]] = -3.0
    ties = np.repeat([1.0, -2.0, 0.5], [40, 30, 30])
    cases = {
        "normal": (RNG.standard_normal(1000), {"sparseness": 0.8}),
        "decreased": (RNG.standard_normal(300) ** 7, {"sparseness": 0.01}),
        "ties": (ties, {"sparseness": 0.7}),
        "as many ties as fit": (ties, {"l1": math.sqrt(30), "l2": 1.0}),
        "nearly as many ties": (ties, {"l1": np.nextafter(math.sqrt(30), 9), "l2": 1.0}),
        "constant": (np.full(50, -1.5), {"sparseness": 0.5}),
        "zeros": (np.zeros(50), {"sparseness": 0.5}),
        "zeros kept": (np.zeros(50), {"sparseness": 0.5, "l2": "keep"}),
        "sparseness 0": (2 + RNG.standard_normal(60), {"sparseness": 0.0, "l2": "nearest"}),
        "sparseness 1": (RNG.standard_normal(60), {"sparseness": 1.0}),
        "one-hot": (np.eye(1, 70, 69)[0], {"sparseness": 0.6}),
        "few": (few, {"sparseness": 0.3, "l1": 2.0}),
        "large": (RNG.standard_normal(99) * large / 8, {"sparseness": 0.6, "l2": "keep"}),
        "subnormal": (RNG.integers(-9, 9, 99) * SMALLEST[dtype], {"sparseness": 0.6}),
        "offset": (1e3 + RNG.random(500) / 4, {"sparseness": 0.9}),
        "one entry": (np.array([-2.0]), {"l1": 3.0, "l2": 3.0}),
        "two entries": (np.array([-2.0, 2.0]), {"sparseness": 0.5}),
    }
    for name, (x, target) in cases.items():
        yield name, x.astype(dtype), target
    if dtype == "float64":
        yield "far offset", 1e8 + RNG.random(500), {"sparseness": 0.9}


def divisions(x, counts):
    """Lists of parts that form one vector: so many of the same size, and others."""
    for count in counts:
        yield np.array_split(x, count)
    cuts = np.sort(RNG.integers(0, x.size + 1, 5))
    yield [np.empty(0, x.dtype), *np.split(x, cuts), np.empty(0, x.dtype)]


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_division_gives_the_same_bits(dtype, nonnegative, reader):
    for name, x, target in nasty(dtype):
        given = target | {"nonnegative": nonnegative}
        first = None
        for pieces in divisions(x, (1, 2, 7, 64) if reader.engine is core else (1, 7)):
            for most_gathered in (0, 10, 1 << 15):
                value, solution = project(pieces, reader, most_gathered=most_gathered, **given)
                assert solution.evaluations <= (7 if dtype == "float64" else 4), name
                # Any pivot between two entries does.
                solution = solution._replace(
                    evaluations=0, formula=solution.formula._replace(pivot=0.0)
                )
                if first is None:
                    first = value, solution
                    check(x, value, solution, **given)
                assert same_bits(value, first[0]), name
                assert repr(solution) == repr(first[1]), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_long_vectors(dtype):
    for draw in (RNG.standard_normal, RNG.standard_cauchy, lambda n: 100 + RNG.random(n)):
        x = np.clip(draw(10**6), -6e4, 6e4).astype(dtype)
        for sparseness in (0.2, 0.9, 0.999):
            value, solution = project(np.array_split(x, 7), sparseness=sparseness)
            check(x, value, solution, sparseness=sparseness)
            assert solution.evaluations <= 3


def test_floats_as_dense_as_can_be():
    """Every float between two numbers, three times: only the last histogram tells them apart."""
    for dtype, most in (("float64", 6), ("float32", 3)):
        x = np.full(70_000, 1.0, dtype)
        x.view(f"i{x.itemsize}")[:] += np.arange(x.size) // 3
        RNG.shuffle(x)
        for nonnegative in (False, True):
            given = {"sparseness": 0.3, "nonnegative": nonnegative}
            value, solution = project(np.array_split(x, 5), most_gathered=0, **given)
            check(x, value, solution, **given)
            assert solution.evaluations <= most


def test_the_order_of_answers_does_not_matter():
    pieces = np.array_split(RNG.standard_normal(5000), 9)
    offsets = np.cumsum([0, *(piece.size for piece in pieces)]).tolist()
    places = [parts.Place((offset,), (5000,)) for offset in offsets]
    search = parts.search(plan_for(5000, options(0.7)), np.dtype(float), NUMPY)
    request, solution = next(search), None
    while solution is None:
        pairs = list(zip(pieces, places, strict=False))
        random.shuffle(pairs)
        answers = [parts.answer(core, piece, request, place) for piece, place in pairs]
        while len(answers) > 1:
            # Any tree will do.
            some, answers = answers[:3], answers[3:]
            answers.append(parts.merged(request, some))
        try:
            request = search.send(answers[0])
        except StopIteration as stop:
            solution = stop.value
    assert solution == project(pieces, sparseness=0.7)[1]


def test_more_ties_than_fit_the_first_may_be_anywhere():
    x = np.zeros(100)
    x[[60, 61, 99]] = [-5, 5, 5]
    for pieces in (np.split(x, [50, 61]), np.split(x, [60]), np.split(x, [61, 61, 99])):
        value, solution = project(pieces, sparseness=0.95)
        assert solution.first == 60
        assert same_bits(value, hoyer.project(x, 0.95))


@pytest.mark.parametrize("l1", [None, 2.0])
@pytest.mark.parametrize("rule", [None, "keep", "nearest"])
def test_no_positive_entry(rule, l1):
    x = np.array([-3.0, -1.0, -2.0, -1.0, -4.0])
    given = {"sparseness": 0.5, "nonnegative": True, "only_increase": True}
    given |= {"l2": rule} if rule else {"l1": l1}
    value, solution = project(np.split(x, [1, 3]), **given)
    check(x, value, solution, **given)
    assert np.count_nonzero(value) == (rule != "nearest")


def test_a_vector_that_is_sparse_enough_keeps_its_bits():
    x = np.where(RNG.random(400) < 0.1, RNG.standard_cauchy(400), 0)
    given = {"sparseness": 0.2, "only_increase": True}
    for rule in ("keep", "nearest"):
        assert same_bits(project(np.array_split(x, 4), l2=rule, **given)[0], x + 0.0)
    value, solution = project(np.array_split(x, 4), l1=3.0, **given)
    check(x, value, solution, l1=3.0, **given)
    assert solution.active == Active.L1_DIRECTION


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_projected_vector_keeps_its_zeros(dtype, reader):
    for n in (20, 500):
        x = hoyer.project(RNG.standard_normal(n).astype(dtype), 0.8)
        value, solution = project(np.array_split(x, 3), reader, sparseness=0.8)
        check(x, value, solution, sparseness=0.8)
        assert not value[x == 0].any()


def test_arrays_of_any_shape(reader):
    x = RNG.standard_normal((6, 50, 2))
    pieces = [x[:2], x[2:3, ::-1], np.asfortranarray(x[3:])]
    value, _ = project(pieces, reader, sparseness=0.7)
    flat = np.concatenate([piece.reshape(-1) for piece in pieces])
    assert same_bits(value, project([flat], reader, sparseness=0.7)[0])


def test_not_finite(reader):
    for bad in (math.nan, math.inf, -math.inf):
        for dtype in ("float64", "float32"):
            pieces = [np.ones(5, dtype), np.array([1, bad, 2], dtype), np.array([bad], dtype)]
            with pytest.raises(ValueError, match="NaN or infinity at 2 of 9 entries"):
                project(pieces, reader, sparseness=0.5)
            value, solution = project(pieces, reader, sparseness=0.5, check_finite=False)
            assert np.isnan(value).all()
            assert np.isnan([solution.l1, solution.l2, solution.formula.shift]).all()


def test_an_impossible_target_gives_nan():
    value, solution = project([np.ones(3)], sparseness=1.5, check_finite=False)
    assert np.isnan(value).all()
    assert math.isnan(solution.l2)


def test_parts_that_are_not_the_whole():
    search = parts.search(plan_for(10, options(0.5)), np.dtype(float), NUMPY)
    with pytest.raises(ValueError, match="the parts have 9 entries, and a vector of 10 is wanted"):
        parts.project_parts([np.ones(4), np.ones(5)], search, core)


def test_no_parts():
    search = parts.search(plan_for(10, options(0.5)), np.dtype(float), NUMPY)
    with pytest.raises(ValueError, match="there are no parts"):
        parts.project_parts([], search, core)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sparseness": 0.5, "solver": "newton"}, "solver='newton' needs"),
        ({"sparseness": 0.5, "l2": 1e6}, "l2=1e\\+06 does not fit float16"),
        ({"sparseness": np.array([0.5, 0.6])}, "one target, and the plan has several"),
    ],
)
def test_what_is_refused(given, words):
    plan = plan_for(10, options(**given), (2,))
    with pytest.raises(ValueError, match=words):
        parts.search(plan, np.dtype(np.float16), NUMPY)


def number_of(limbs):
    return sum(limb << 48 * i for i, limb in enumerate(limbs))


def test_answers_of_many_parts_add_up():
    """The largest low bits, in as many parts as may be added without carries."""
    x, times = np.full(1 << 12, np.nextafter(2.0, 0.0)), 1 << 15
    request = next(parts.search(plan_for(x.size, options(0.5)), x.dtype, NUMPY))
    width, bins = request.grid.width, request.grid.bins
    low, limbs = int(x[:1].view(np.int64)[0]) & ((1 << width) - 1), limb_count(width)
    for engine in (Parts(NUMPY), core):
        answer = parts.answer(engine, x, request, parts.Place((0,), (x.size,)))
        for numbers in (answer * times, parts.merged(request, [answer * times])):
            table = numbers[2:].reshape(-1, bins).sum(1).tolist()
            first, second = number_of(table[1 : 1 + limbs]), number_of(table[1 + limbs :])
            assert (first, second) == (low * x.size * times, low**2 * x.size * times)


def test_limbs_of_many_entries_are_carried():
    """However many entries a part has, its answer can be added to those of many others."""
    x = np.linspace(1, 1.124, 1 << 23, dtype=np.float32)
    request = next(parts.search(plan_for(x.size, options(0.5)), x.dtype, NUMPY))
    answer = parts.answer(core, x, request, parts.Place((0,), (x.size,)))
    limbs = limb_count(request.grid.width)
    table = answer[2:].reshape(-1, request.grid.bins)
    assert (table[1:limbs] < 1 << 48).all()
    assert (table[1 + limbs : -1] < 1 << 48).all()
    wanted = [number_of(table[1 + limbs :, i].tolist()) << 17 for i in range(request.grid.bins)]
    many = parts.merged(request, (answer for _ in range(1 << 17)))[2:].reshape(table.shape)
    found = [number_of(many[1 + limbs :, i].tolist()) for i in range(request.grid.bins)]
    assert found == wanted


@pytest.mark.parametrize("masked", [False, True])
def test_large_parts_are_taken_in_pieces(masked, monkeypatch):
    x, where = RNG.standard_normal(1000), (RNG.random(1000) < 0.5 if masked else None)
    request = next(parts.search(plan_for(x.size, options(0.5)), x.dtype, NUMPY))
    engine = Parts(NUMPY)
    whole = engine.histogram(x, request.grid, False, where)
    monkeypatch.setattr(histogram, "MOST_AT_ONCE", 300)
    assert (engine.histogram(x, request.grid, False, where) == whole).all()


@pytest.mark.parametrize("most_gathered", [0, 1000])
def test_parts_that_change(most_gathered):
    search = parts.search(plan_for(500, options(0.5)), np.dtype(float), NUMPY, most_gathered)
    request = next(search)
    place = parts.Place((0,), (500,))
    request = search.send(parts.answer(core, RNG.standard_normal(500), request, place))
    with pytest.raises(ValueError, match="one thing now and another thing later"):
        search.send(parts.answer(core, 5 + RNG.random(500), request, place))


# ---- what engines say ----


def plain_histogram(x, grid, nonnegative):
    """Return the same by Python's integers: what is not finite, zeros, and moments of each bin."""
    bits = 64 if x.dtype == np.float64 else 32
    wide = x.astype(np.float64 if bits == 64 else np.float32)
    keys = abs(wide).view(f"i{bits // 8}").astype(object)
    if nonnegative:
        keys = np.where(wide < 0, -keys, keys)
    bins = {}
    for key in keys[np.isfinite(wide)]:
        distance, before = int(key) - grid.lower, 0
        for start, power, size in grid.levels if 0 <= distance < grid.span else ():
            number = (distance - start) >> power
            if 0 <= number < size:
                rest = distance % (1 << grid.width)
                count, first, second = bins.get(before + number, (0, 0, 0))
                bins[before + number] = (count + 1, first + rest, second + rest**2)
                break
            before += size
    return int((~np.isfinite(wide)).sum()), int((wide == 0).sum()), bins


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_histograms_hold_the_exact_moments(dtype, nonnegative, masked, reader):
    # From 2^13 entries on the core has another way to add.
    times = 10 if reader.engine is core else 1
    x = [RNG.standard_normal(900 * times), 1 + 1e-3 * RNG.random(90 * times), np.zeros(10 * times)]
    x = np.concatenate(x).astype(dtype)
    x[:3] = -np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal, -0.0
    mask = RNG.random(x.size) < 0.6 if masked else None
    bits = 64 if dtype == "float64" else 32
    one = int(np.ones(1, f"f{bits // 8}").view(f"i{bits // 8}")[0])
    grids = [parts.Keys(bits, nonnegative).first_grid, Grid(one, 1, 0, ((0, 0, 1),))]
    grids += [Grid(one, 250, 8, ((0, 3, 32),))]
    # All keys from 0 on, and all but the last.
    width, span = bits - 12, 1 << (bits - 1)
    grids += [Grid(0, span - i, width, ((0, width, 1 << 11),)) for i in range(2)]
    grids += [Grid(one, 999_999, 20, ((5001, 0, 1024), (4977, 4, 256), (-143, 10, 1024)))]
    if bits == 64:
        levels = ((3 << 41, 30, 2048), (2 << 41, 33, 1024), (0, 42, 1024))
        grids += [Grid(one, 1 << 52, 52, levels)]
    for grid in grids:
        where = None if mask is None else reader.give(mask)
        numbers = reader.take(reader.engine.histogram(reader.give(x), grid, nonnegative, where))
        assert numbers.dtype == np.int64
        entries = x if mask is None else x[mask]
        not_finite, zeros, bins = plain_histogram(entries, grid, nonnegative)
        assert numbers[:2].tolist() == [not_finite, zeros]
        table = numbers[2:].reshape(-1, grid.bins)
        limbs = limb_count(grid.width)
        assert len(table) == 1 + limbs + limb_count(2 * grid.width)
        assert set(np.flatnonzero(table[0])) == set(bins)
        for number, (count, first, second) in bins.items():
            assert table[0, number] == count
            column = table[1:, number].tolist()
            assert (number_of(column[:limbs]), number_of(column[limbs:])) == (first, second)


def test_many_entries_in_one_bin(reader):
    """Sums of squares grow beyond 64 bits, and beyond what the core adds up at once."""
    count = 5_000_000 if reader.engine is core else 100_000
    x = np.full(count, np.nextafter(2.0, 0))
    grid = parts.Keys(64, False).first_grid
    table = reader.take(reader.engine.histogram(reader.give(x), grid, False))[2:]
    (number,) = np.flatnonzero(table[: grid.bins])
    column = table.reshape(-1, grid.bins)[:, number].tolist()
    rest = (1 << grid.width) - 1
    assert column[0] == count
    assert number_of(column[1:3]) == count * rest
    assert number_of(column[3:]) == count * rest**2


def test_gathered_keys_and_neighbours(reader):
    x = np.array([0.5, -1.0, 1.0, -0.0, 3.0, -1.0])
    engine, keys = reader.engine, parts.Keys(64, True)
    one = int(np.ones(1).view(np.int64)[0])

    def asked(name, *arguments):
        return reader.take(getattr(engine, name)(reader.give(x), *arguments)).tolist()

    assert asked("gather", Grid(one, 1 << 51), False) == [one, one, one]
    assert asked("gather", Grid(one), True) == [one]
    assert asked("gather", Grid(-one), True) == [-one, -one]
    place = parts.Place((100,), (200,))
    below, first = asked("neighbours", one, False, None, place)
    assert Fraction(keys.value(below)) * keys.unit == Fraction(1, 2)
    assert first == -101
    assert asked("neighbours", -one, True) == [NOWHERE, -1]
    assert asked("neighbours", one + 1, True, None, place) == [one, NOWHERE]
    assert asked("neighbours", 1, True) == [0, NOWHERE]
    assert asked("gather", Grid(one), False, None, place) == [one, 101, one, 102, one, 105]
    mask = reader.give(np.arange(6) > 1)
    assert asked("gather", Grid(one), False, mask, place) == [one, 102, one, 105]
    assert asked("neighbours", -one, True, mask, place) == [NOWHERE, -105]
    assert asked("gather", Grid(-one), True, mask) == [-one]
    empty = engine.neighbours(reader.give(np.empty(0)), one, True, None, place)
    assert reader.take(empty).tolist() == [NOWHERE, NOWHERE]


@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("bits", [32, 64])
def test_keys_are_in_the_order_of_floats(bits, nonnegative):
    keys = parts.Keys(bits, nonnegative)
    x = np.ldexp(RNG.random(500), RNG.integers(-160, 128, 500))
    x = np.append(x, [0, SMALLEST[f"float{bits}"]]).astype(f"f{bits // 8}")
    for number, key in zip(x, x.view(f"i{bits // 8}"), strict=True):
        assert keys.value(int(key)) * keys.unit == Fraction(float(number))
        assert keys.value(-int(key)) * keys.unit == -Fraction(float(number))


def test_bfloat16():
    torch = pytest.importorskip("torch")
    xp = namespace(torch)
    x = torch.tensor(RNG.standard_normal(3000)).bfloat16()
    for engine in (Parts(xp), core):
        search = parts.search(plan_for(3000, options(0.8)), x.dtype, xp)
        value = torch.cat(parts.project_parts(x.split([1000, 0, 2000]), search, engine)[0])
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, hoyer.project(x, 0.8))


def test_the_core_is_careful():
    assert parts.Formula._fields == core._core.FORMULA_FIELDS
    x = np.ones(4)
    for width, levels, words in (
        (53, (), "moments are of 0 to 52 bits"),
        (52, ((0, 53, 1),), "2\\^0 to 2\\^52 keys wide"),
        (52, ((0, 0, 0),), "a level has 1 to 4096 bins"),
        (52, ((0, 0, 4000), (0, 1, 4000)), "4096 bins at most"),
        (52, ((0, 0, 1),) * 4, "up to three levels"),
    ):
        with pytest.raises(ValueError, match=words):
            core.histogram(x, Grid(0, 1, width, levels), False)
    with pytest.raises(ValueError, match="no such place"):
        core.write(x, parts.Formula(), False, 4)
    with pytest.raises(ValueError, match="x and out differ in shape"):
        core.write(x, parts.Formula(), False, out=np.ones(5))
    with pytest.raises(TypeError, match="expected float16"):
        core.histogram(np.ones(4, int), Grid(0, 4, 2, ((0, 0, 4),)), False)
    with pytest.raises(ValueError, match="x and where differ in shape"):
        core.gather(x, Grid(0), False, np.ones(5, bool))
    with pytest.raises(ValueError, match="masks are booleans"):
        core.gather(x, Grid(0), False, np.ones(4))


def test_in_place():
    x = np.array([1.0, -5.0, 5.0, 2.0])
    formula = parts.Formula(4.0, base=0.25, first=0.75)
    whole = core.write(x, formula, False, 1)
    assert whole.tolist() == [0, -0.75, 0.25, 0]
    assert core.write(x, formula, False, 1, out=x) is x
    assert same_bits(x, whole)
