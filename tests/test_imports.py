"""The rule of imports: downwards only, the core late, a framework only by its own files."""

import ast
import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hoyer"

# From the top down. A part may import parts of a lower rank, and its own files.
RANKS = {
    "__main__": 8,
    "cli": 7,
    "decomposition": 6,
    "preprocessing": 6,
    "optimize": 6,
    "torch": 6,
    "jax": 6,
    "__init__": 5,
    "measures": 4,
    "api": 3,
    "together": 3,
    "families": 2.5,
    "engines": 2,
    "projection": 1,
    "compressed": 1,
    "layout": 1,
    "plan": 1.5,
    "target": 1,
    "price": 0.5,
    "sample": 0.2,
    "numbers": 0,
    "options": 0,
    "warn": 0,
    "system": 0,
    "_core": 0,
}
# `paper` stands apart: it may use the library's public names, and only the cli may use it.
APART = "paper"

# Which files may import a library that is not a run-time dependency, and whether at their top.
FRAMEWORKS = {
    "torch": ("torch", "triton"),
    "triton": ("triton",),
    "jax": ("jax",),
    "jaxlib": ("jax",),
    "flax": ("jax",),
    "optax": ("jax",),
    "cupy": ("cupy",),
    "dask": ("dask",),
    "zarr": ("dask",),
    "tensorflow": ("tensorflow",),
    "sklearn": ("decomposition", "preprocessing", "optimize"),
    "scipy": ("projection", "compressed", "decomposition", "optimize", "paper"),
    "matplotlib": ("cli", "paper"),
    "rich": ("cli",),
    "typer": ("cli",),
    "threadpoolctl": ("limits",),
    "mpmath": (),
    "pandas": (),
    "xarray": (),
}
EVERYWHERE = {"numpy", "hoyer"} | set(sys.stdlib_module_names)


def files():
    return sorted(SOURCE.rglob("*.py")) + sorted(SOURCE.rglob("*.pyi"))


def part(module):
    """Which part of the package a dotted name inside it belongs to."""
    return module.split(".")[0] if module else "__init__"


def name_of(path):
    """The dotted name of a file inside the package: families.numpy; empty for hoyer itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def exists(module):
    base = SOURCE.joinpath(*module.split("."))
    return module == "_core" or base.is_dir() or base.with_suffix(".py").exists()


def imports(path):
    """Each import of a file: the absolute name, and whether importing the file runs it."""
    name = name_of(path)
    package = f"hoyer.{name}".rstrip(".").split(".")
    if path.stem != "__init__":
        package = package[:-1]

    def visit(node, at_top):
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                if module.split(".")[0] == "hoyer" and exists(inner.removeprefix("hoyer.")):
                    yield inner, at_top
                else:
                    yield module, at_top
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from visit(child, at_top)
        else:
            inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, at_top and not inside)

    return list(visit(ast.parse(path.read_text(encoding="utf-8")), True))


def inner_imports(path):
    for module, at_top in imports(path):
        if module.split(".")[0] == "hoyer":
            yield part(module.removeprefix("hoyer").removeprefix(".")), at_top


def test_there_is_something_to_check():
    names = {name_of(path) for path in files()}
    assert {"", "api", "target", "projection", "paper.algorithms"} <= names
    assert any(name.startswith("families.") for name in names)
    assert any(module == "numpy" for path in files() for module, _ in imports(path))
    assert any(list(inner_imports(path)) for path in files())


def test_every_file_has_a_place():
    for path in files():
        where = part(name_of(path))
        assert where in RANKS or where == APART, f"{path}: give it a rank"


def test_downwards_only():
    for path in files():
        where = part(name_of(path))
        if where == APART:
            continue
        for target, _ in inner_imports(path):
            if target in (where, APART):
                continue
            assert RANKS[target] < RANKS[where], f"{path} imports {target}, which stands above it"


def test_paper_is_imported_by_itself_and_the_cli_alone():
    for path in files():
        if part(name_of(path)) not in (APART, "cli"):
            assert APART not in {target for target, _ in inner_imports(path)}, path


def test_the_core_is_loaded_by_its_engine_alone():
    for path in files():
        if name_of(path) not in ("engines.core", "_core"):
            assert "_core" not in {target for target, _ in inner_imports(path)}, path


def test_frameworks_are_imported_by_their_own_files_alone():
    for path in files():
        name = name_of(path)
        for module, _ in imports(path):
            library = module.split(".")[0]
            if library in EVERYWHERE:
                continue
            assert library in FRAMEWORKS, f"{path} imports {library}: a dependency we do not have"
            assert set(FRAMEWORKS[library]) & set(name.split(".")), f"{path} imports {library}"


def test_optional_libraries_are_not_needed_to_load_the_numpy_side():
    for path in files():
        if part(name_of(path)) in ("__init__", "api", "target", "projection", "measures"):
            outside = {m.split(".")[0] for m, at_top in imports(path) if at_top} - EVERYWHERE
            assert not outside, f"{path} imports {outside} at its top"


def test_hoyer_itself_does_not_load_the_core_or_a_framework(run_python):
    loaded = run_python("""
        import sys
        import hoyer
        hoyer.__version__, hoyer.__all__
        print(*sys.modules)
    """).split()
    assert "hoyer" in loaded
    assert "hoyer._core" not in loaded
    tops = {module.split(".")[0] for module in loaded}
    assert not tops & set(FRAMEWORKS)
    assert not [module for module in loaded if module.startswith("hoyer.paper")]


def test_using_it_loads_no_framework(run_python):
    loaded = run_python("""
        import sys
        import hoyer
        found = hoyer.solve([1.0, 2.0, 3.0], 0.5, l2="keep")
        found.jvp([1.0, 0.0, 0.0]), found.jacobian(), found.target_gradient()
        hoyer.sparseness([1.0, 2.0]), hoyer.project([[1.0, 2.0]], 0.5)
        print(*sys.modules)
    """).split()
    assert "hoyer._core" in loaded
    # threadpoolctl must know of the core before anybody asks it, if it is there at all.
    tops = {module.split(".")[0] for module in loaded} - {"threadpoolctl"}
    assert not tops & set(FRAMEWORKS)
    assert not [module for module in loaded if module.startswith("hoyer.paper")]


@pytest.mark.parametrize("call", ["project([1.0, 2.0], 0.5)", "solve([1.0, 2.0], 0.5)"])
def test_a_missing_core_says_how_to_get_it(run_python, call):
    text = run_python(f"""
        import sys
        sys.modules["hoyer._core"] = None
        import hoyer
        try:
            hoyer.{call}
        except ImportError as error:
            print(error)
    """)
    assert "core" in text
    assert "install" in text


def test_a_missing_scipy_says_how_to_get_it(run_python):
    text = run_python("""
        import sys
        for name in ("scipy", "scipy.sparse", "scipy.sparse.linalg"):
            sys.modules[name] = None
        import hoyer
        found = hoyer.solve([1.0, 2.0, 3.0], 0.5)
        print(found.jacobian().shape)
        try:
            found.as_linear_operator()
        except ImportError as error:
            print(error)
    """)
    assert "(3, 3)" in text
    assert "scipy" in text.lower()
    assert "install" in text


@pytest.mark.parametrize("part", ["decomposition", "preprocessing"])
def test_a_missing_scikit_learn_says_how_to_get_it(run_python, part):
    text = run_python(f"""
        import sys
        sys.modules["sklearn"] = None
        import hoyer
        try:
            hoyer.{part}
        except ImportError as error:
            print(error)
    """)
    assert text.strip() == f"hoyer.{part} needs scikit-learn: pip install 'hoyer[sklearn]'"


def test_optimize_needs_scipy_and_says_so(run_python):
    text = run_python("""
        import sys
        sys.modules["scipy"] = sys.modules["scipy.optimize"] = None
        try:
            import hoyer.optimize
        except ImportError as error:
            print(error)
    """)
    assert text.strip() == "hoyer.optimize needs SciPy: pip install 'hoyer[scipy]'"


@pytest.mark.parametrize(
    "name",
    [
        "decomposition.SparseNMF",
        "measures.gini",
        "optimize.projected_gradient",
        "paper.algorithms.project",
        "paper.experiments.solvers",
        "paper.hoyer2004.project",
        "paper.potluru2013.project",
        "paper.problems.random_vector",
        "preprocessing.SparsenessProjector",
        "torch.parametrizations.sparseness",
        "torch.schedules.cubic",
    ],
)
def test_a_part_is_there_when_it_is_asked_for(run_python, name):
    if part(name) == "torch":
        pytest.importorskip("torch")
    text = run_python(f"""
        import hoyer
        print("{part(name)}" in dir(hoyer), callable(hoyer.{name}))
    """)
    assert text.split() == ["True", "True"]


def test_names():
    import hoyer

    assert {"decomposition", "optimize", "preprocessing"} <= set(dir(hoyer))
    names = {"Projection", "project", "project_", "solve", "sparseness", "target_norms"}
    assert names <= set(hoyer.__all__)
    assert names <= set(dir(hoyer))
    assert hoyer.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="no_such_thing"):
        getattr(hoyer, "no_such_thing")  # noqa: B009


PAPER = ("algorithms", "experiments", "hoyer2004", "potluru2013", "problems")
PUBLIC = ("", "measures", "decomposition", "optimize", "preprocessing", "paper")
TORCH = ("torch", "torch.parametrizations", "torch.schedules")


@pytest.mark.parametrize("name", [*PUBLIC, *(f"paper.{part}" for part in PAPER), *TORCH])
def test_dir_shows_what_is_public(name):
    """And nothing else: tab completion is how many people read a library."""
    if name in TORCH:
        pytest.importorskip("torch")
    module = importlib.import_module(f"hoyer.{name}".rstrip("."))
    lazy = [*module.LAZY] if not name else []
    assert dir(module) == sorted([*module.__all__, *lazy])
    missing = {library for library in ("jax", "torch") if find_spec(library) is None}
    for public in set(dir(module)) - missing:
        assert getattr(module, public) is not None
