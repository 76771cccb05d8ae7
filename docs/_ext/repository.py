"""Pages that live elsewhere in the repository, and links that leave the site.

A page whose text is an ``{include}`` of a file outside of `docs/` shows that file. All links are
written so that they work in the repository itself. On the site those to a file that it shows lead
to its page, those to any other file outside of `docs/` to the file in the repository on the web.
Where that is comes from the environment; if nobody says it, only the words of such links are left.

The empty line that doctest needs after the last output of a block is not shown.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)
LAST_LINE = re.compile(r"\n\n```$", re.MULTILINE)
LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s]+)\)")


def shown_files(docs: Path) -> dict[Path, str]:
    """Return the pages that show files from outside of `docs`, by these files."""
    pages = {}
    for page in sorted(docs.rglob("*.md")):
        for path in INCLUDE.findall(page.read_text(encoding="utf-8")):
            pages[(page.parent / path).resolve()] = "/" + page.relative_to(docs).as_posix()
    return pages


def relinked(text: str, place: Path, page: Path, app: Sphinx) -> str:
    """Return a text written for the folder `place` with links as the page in `page` needs them."""
    docs = Path(app.srcdir)

    def link(match: re.Match[str]) -> str:
        path, mark, anchor = match[2].partition("#")
        if not path or "://" in path or path.startswith(("/", "mailto:")):
            return match[0]
        target = (place / path).resolve()
        if not target.exists():
            return match[0]
        if target in app.env.shown_files:
            path = app.env.shown_files[target]
        elif target.is_relative_to(docs) or target.suffix in (".png", ".svg"):
            path = os.path.relpath(target, page)
        elif not app.config.repository:
            return match[1]
        else:
            kind = "tree" if target.is_dir() else "blob"
            path = f"{app.config.repository}/{kind}/main/{target.relative_to(ROOT).as_posix()}"
        return f"[{match[1]}]({path}{mark}{anchor})"

    return LINK.sub(link, text)


def read(app: Sphinx, name: str, source: list[str]) -> None:
    """Put in what a page includes, and mend its links."""
    path = Path(app.env.doc2path(name))
    if path.suffix != ".md":
        return
    place = path.parent

    def include(match: re.Match[str]) -> str:
        file = (place / match[1]).resolve()
        app.env.note_dependency(str(file), docname=name)
        return relinked(file.read_text(encoding="utf-8"), file.parent, place, app)

    text = INCLUDE.sub("\0", source[0])
    texts = [include(match) for match in INCLUDE.finditer(source[0])]
    text = relinked(text, place, place, app)
    for part in texts:
        text = text.replace("\0", part, 1)
    source[0] = LAST_LINE.sub("\n```", text)


def prepare(app: Sphinx, env: BuildEnvironment, *_: Any) -> None:
    """Find the files that pages show, before the first of them is read."""
    env.shown_files = shown_files(Path(app.srcdir))  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, bool]:
    """Join the build."""
    app.add_config_value("repository", "", "env", str)
    app.connect("env-before-read-docs", prepare)
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
