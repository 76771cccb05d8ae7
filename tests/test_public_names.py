"""What users see: every public name has a page, and nothing else shows up."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "reference"
MODULES = (
    "hoyer",
    "hoyer.decomposition",
    "hoyer.jax",
    "hoyer.measures",
    "hoyer.optimize",
    "hoyer.paper.algorithms",
    "hoyer.paper.experiments",
    "hoyer.paper.hoyer2004",
    "hoyer.paper.potluru2013",
    "hoyer.paper.problems",
    "hoyer.preprocessing",
    "hoyer.torch",
    "hoyer.torch.parametrizations",
    "hoyer.torch.schedules",
)


def documented():
    """The names that the reference has, in full."""
    found = set()
    for page in PAGES.glob("*.md"):
        module = "hoyer"
        for line in page.read_text(encoding="utf-8").splitlines():
            if match := re.fullmatch(r"\.\. currentmodule:: (\S+)", line):
                module = match[1]
            elif match := re.fullmatch(r"   ([\w.]+)", line):
                found.add(f"{module}.{match[1]}")
    return found


def imported(name):
    """A module, unless its framework is missing."""
    framework = {"jax": "jax", "torch": "torch", "decomposition": "sklearn"}
    for part in name.split("."):
        if part in framework:
            pytest.importorskip(framework[part])
    return importlib.import_module(name)


def public(module):
    """The public names of a module that are no modules themselves, nor loaded when asked for."""
    names = set(dir(module)) - {"__version__", *getattr(module, "LAZY", ())}
    members = {name: getattr(module, name) for name in sorted(names)}
    return {name: member for name, member in members.items() if not inspect.ismodule(member)}


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_is_on_a_page(name):
    pages = documented()
    for member in public(imported(name)):
        assert f"{name}.{member}" in pages, f"docs/reference lacks {name}.{member}"


@pytest.mark.parametrize("name", MODULES)
def test_only_public_names_are_shown(name):
    module = imported(name)
    assert set(dir(module)) == set(module.__all__) | set(getattr(module, "LAZY", ()))


@pytest.mark.parametrize("name", MODULES)
def test_signatures_can_be_read(name):
    for member, thing in public(imported(name)).items():
        if inspect.isfunction(thing):
            signature = str(inspect.signature(thing))
            assert not re.search(r"\._typing|dtype\[|_NestedSequence", signature), member
