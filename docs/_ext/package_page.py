"""The page on the package index: README, whose links lead to the repository, and addresses.

scikit-build-core asks for it when it builds (``pyproject.toml``). Where the repository is comes
from the environment, as for the site; if nobody says it, links stay as they are in the repository.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[2] / "README.md"
PAPER = "https://arxiv.org/abs/1303.5259"
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z]+:)([^)\s]+)\)")


def linked(text: str, repository: str) -> str:
    """Return Markdown with its links to files of the repository made absolute."""

    def absolute(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(absolute, text)


def addresses(repository: str) -> dict[str, str]:
    """Return what the index shows beside the page."""
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the metadata: the hook that scikit-build-core calls."""
    text, urls = README.read_text(encoding="utf-8"), {"Paper": PAPER}
    if repository := os.environ.get("HOYER_REPOSITORY", "").rstrip("/"):
        text, urls = linked(text, repository), urls | addresses(repository)
    return {"readme": {"content-type": "text/markdown", "text": text}, "urls": urls}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """Return what a wheel may have otherwise than the source distribution it is built from."""
    return {"readme": True, "urls": True}
