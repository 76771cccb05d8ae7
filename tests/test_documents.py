"""The pages tell the truth about what is where: files, links, and the names that they cite."""

import ast
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (".ci", ".github", "benchmarks", "conda", "docs", "examples", "native", "src", "tests")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md", "PAPER.md"]
GENERATED = ("docs/gallery/", "docs/reference/generated/")
"""What `make docs` writes among the pages."""
PAGES += [
    page
    for page in sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    if not page.startswith(GENERATED)
]

FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:cff|cpp|csv|hpp|html|json|md|png|py|toml|txt|yml)")
FOLDER = re.compile(r"[\w.-]+(/[\w.-]+)*/")
NAME_IN_FILE = re.compile(rf"({FILE.pattern}): ([\w:]+)")
MEMBER = re.compile(r"[A-Z]\w+(::\w+)+")
TEST = re.compile(r"(test_\w+\.py)::([\w:]+)")
MODULE = re.compile(r"hoyer(\.\w+)+")


def text_of(page):
    """A page without its blocks of code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def cited(page):
    """What stands in backticks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text_of(page))]


def files():
    """All files of the repository, as its pages name them."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    names = (path.relative_to(ROOT).as_posix() for path in found)
    return [name for name in names if "__pycache__" not in name]


NAMES = files()


def named(path):
    """The files that a page may mean: a path from the root, or as much of its end as is clear."""
    return [name for name in NAMES if f"/{name}".endswith(f"/{path}")]


def anchors(page):
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_files_and_folders_exist(page):
    for span in cited(page):
        if FILE.fullmatch(span):
            assert named(span), f"{page}: there is no file {span}"
        elif FOLDER.fullmatch(span):
            assert any(f"/{span}" in f"/{name}" for name in NAMES), f"{page}: no folder {span}"


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(target.relative_to(ROOT)), f"{page}: {link} has no heading"


BESIDE_SIDEBARS = ("docs/explanation/", "docs/guides/", "docs/tutorials/")


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(BESIDE_SIDEBARS)])
def test_no_line_of_code_is_cut_off(page):
    """Messages of errors are broken into lines by the site."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in re.findall(r"^```[^`]*?^```$", text, re.MULTILINE):
        wide = [line for line in block.splitlines() if len(line) > 80]
        assert all(re.match(r"\w+Error: ", line) for line in wide), f"{page}: {wide}"


@pytest.mark.parametrize("page", PAGES)
def test_names_are_in_their_files(page):
    for span in cited(page):
        match = NAME_IN_FILE.fullmatch(span)
        if not match:
            continue
        path, name = match[1], match[2]
        texts = [(ROOT / file).read_text(encoding="utf-8") for file in named(path)]
        assert texts, f"{page}: there is no file {path}"
        for part in name.split("::"):
            found = any(re.search(rf"\b{part}\b", text) for text in texts)
            assert found, f"{page}: {path} has no {part}"


@pytest.mark.parametrize("page", PAGES)
def test_members_are_in_the_core(page):
    headers = [ROOT / name for name in NAMES if name.startswith("native/")]
    core = set(re.findall(r"\w+", " ".join(path.read_text(encoding="utf-8") for path in headers)))
    for span in cited(page):
        if MEMBER.fullmatch(span):
            assert set(span.split("::")) <= core, f"{page}: the core has no {span}"


@pytest.mark.parametrize("page", PAGES)
def test_tests_exist(page):
    for span in cited(page):
        match = TEST.fullmatch(span)
        if not match:
            continue
        body = ast.parse((ROOT / "tests" / match[1]).read_text(encoding="utf-8")).body
        for name in match[2].split("::"):
            inside = [node for node in body if getattr(node, "name", None) == name]
            assert inside, f"{page}: no test {span}"
            body = inside[0].body


@pytest.mark.parametrize("page", PAGES)
def test_modules_and_their_names_exist(page):
    for span in cited(page):
        if not MODULE.fullmatch(span) or named(span):
            continue
        place, rest = ROOT / "src" / "hoyer", span.split(".")[1:]
        while rest and (place / rest[0]).is_dir():
            place /= rest.pop(0)
        file = place / "__init__.py"
        if rest and (place / f"{rest[0]}.py").exists():
            file = place / f"{rest.pop(0)}.py"
        if rest:
            text = file.read_text(encoding="utf-8")
            assert re.search(rf"\b{rest[0]}\b", text), f"{page}: no {span} in {file}"


def test_the_map_has_every_file():
    spans = set(cited("ARCHITECTURE.md"))
    for name in NAMES:
        if name.endswith((".py", ".hpp", ".cpp")) and name.startswith(("native/", "src/")):
            folder = name.removesuffix("__init__.py")
            assert {name, folder} & spans, f"ARCHITECTURE.md: {name} is not in the map"


def test_the_page_on_the_package_index_is_whole(monkeypatch):
    page = runpy.run_path(str(ROOT / "docs" / "_ext" / "package_page.py"))
    fields = page["dynamic_metadata"]({}, {})
    assert fields["readme"]["text"] == (ROOT / "README.md").read_text(encoding="utf-8")
    monkeypatch.setenv("HOYER_REPOSITORY", "https://example.org/someone/hoyer")
    fields = page["dynamic_metadata"]({}, {})
    text, urls = fields["readme"]["text"], fields["urls"]
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert all(link.startswith("https://") for link in [*links, *urls.values()])
    place = "https://example.org/someone/hoyer"
    assert f"]({place}/raw/main/docs/pictures/faces.png)" in text
    for link in [*links, *urls.values()]:
        if match := re.fullmatch(rf"{place}/\w+/main/(.*)", link):
            assert (ROOT / match[1]).exists(), link


def test_every_file_has_the_same_version():
    texts = {
        "src/hoyer/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "conda/recipe.yaml": r'^  version: "(.+)"$',
    }
    found = {
        path: re.findall(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
        for path, pattern in texts.items()
    }
    (version,) = found["src/hoyer/__init__.py"]
    assert all(versions == [version] for versions in found.values()), found
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(\d.+)\]", changes, re.MULTILINE)
    assert not headings or headings[0] == version
