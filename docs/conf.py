"""Sphinx configuration of the site: ``make docs``."""

import inspect
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import hoyer

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "hoyer"
author = "The hoyer developers"
copyright = "2026, The hoyer developers"
release = version = hoyer.__version__
repository = os.environ.get("HOYER_REPOSITORY", "")

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.linkcode",
    "numpydoc",
    "myst_nb",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "gallery_thumbnails",
    "mathml",
    "repository",
]

# -- pages
exclude_patterns = ["_ext", "_templates", "pictures", "gallery/*.[!r]*"]
myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "auto"
nb_render_markdown_format = "myst"
nb_output_stderr = "error"
nb_execution_raise_on_error = True
nb_execution_timeout = 120

# -- reference
templates_path = ["_templates"]
autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
add_function_parentheses = False
python_use_unqualified_type_names = True
default_role = "autolink"


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return where the source of a name stands on the web, if that is known."""
    if not repository or domain != "py" or not info["module"]:
        return None
    place = import_module(info["module"])
    try:
        for part in info["fullname"].split("."):
            place = getattr(place, part)
        place = inspect.unwrap(place.fget if isinstance(place, property) else place)
        path = Path(inspect.getsourcefile(place)).relative_to(Path(hoyer.__file__).parent)
        lines, first = inspect.getsourcelines(place)
    except (AttributeError, TypeError, OSError, ValueError):
        return None
    return f"{repository}/blob/main/src/hoyer/{path}#L{first}-L{first + len(lines) - 1}"


# -- gallery: what takes longer than some seconds shows the pictures that are there
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(attention|demo|digits|faces|topics)\.py$",
    "ignore_pattern": r"^(pictures|shipped)\.py$",
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "thumbnail_size": (480, 320),
    "within_subsection_order": "gallery_order.place",
}


def skip_member(*given: Any) -> bool:
    """Leave out what classes have from others: scikit-learn and PyTorch document that."""
    _, _, name, member, skip, _ = given
    foreign = not (getattr(member, "__module__", None) or "hoyer").startswith("hoyer")
    return skip or foreign or (name.startswith("set_") and name.endswith("_request"))


def setup(app: Sphinx) -> None:
    """Join the build."""
    app.connect("autodoc-skip-member", skip_member)


# -- look
html_theme = "pydata_sphinx_theme"
html_title = "hoyer"
html_context = {"default_mode": "auto"}
html_static_path = ["_static", "../build/docs-static"]  # the second: what `make docs` has made
html_css_files = ["hoyer.css"]
html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {
        "text": "hoyer",
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "alt_text": "",
    },
    "icon_links": [{"name": "GitHub", "url": repository, "icon": "fa-brands fa-github"}]
    if repository
    else [],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "back_to_top_button": True,
}
html_sidebars = {"index": [], "explorer": [], "comparison": [], "changelog": [], "install": []}
html_math_renderer = "mathml"
html_show_sourcelink = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
