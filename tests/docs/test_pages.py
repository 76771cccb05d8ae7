"""Every page of the site: it loads without complaint, fits a phone, and can be read."""

from importlib.resources import files
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from web import DESKTOP, PAGES, PHONE

# Rules of axe-core; what belongs to the theme alone is not asked.
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
EVERYTHING = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}
AXE = "(options) => axe.run(document, options)"
OWN = ["index.html", "explorer.html", "benchmarks/plots.html"]


def violations(page, options):
    """What axe-core finds wrong, in words."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    found = page.evaluate(AXE, options)["violations"]
    return [f"{one['id']}: {node['html'][:120]}" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def phone(visit):
    """One window for all pages, as readers have it."""
    return visit(viewport=PHONE)


WIDE = """() => [...document.querySelectorAll("main *")]
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
  .slice(0, 5).map((element) => element.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("path", PAGES)
def test_it_loads_without_complaint_fits_a_phone_and_can_be_read(phone, path):
    page = phone.page
    page.emulate_media(color_scheme="light")
    phone.go(path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, page.evaluate(WIDE)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(f"document.documentElement.dataset.theme === '{theme}'")
        assert violations(page, CONTRAST) == [], theme
    assert phone.complaints == []


SIZES = """() => ["h1", "h2", "h3"].map((name) => document.querySelector(`main ${name}`))
  .filter(Boolean).map((heading) => parseFloat(getComputedStyle(heading).fontSize))"""
# Links to the neighbours hide what does not fit into them.
CUT = """() => [...document.querySelectorAll(".prev-next-area a")]
  .filter((link) => link.scrollWidth > link.clientWidth).map((link) => link.innerText)"""


@pytest.mark.parametrize(
    "path", ["explorer.html", "guides/own_method.html", "explanation/numerics.html"]
)
def test_headings_and_neighbours_on_a_phone(phone, path):
    phone.go(path)
    sizes = phone.page.evaluate(SIZES)
    assert sizes == sorted(set(sizes), reverse=True)
    assert phone.page.evaluate(CUT) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("path", OWN)
def test_everybody_can_use_it(visit, path, viewport, theme):
    seen = visit(path, viewport=viewport, theme=theme)
    seen.page.wait_for_load_state("networkidle")
    assert violations(seen.page, EVERYTHING) == []


@pytest.mark.parametrize(
    "path",
    ["index.html", "gallery/faces.html", "tutorials/factorizations.html", "paper/index.html"],
)
def test_no_picture_dazzles_in_the_dark(visit, path):
    page = visit(path, theme="dark").page
    pictures = page.locator("article img:visible").all()
    assert pictures
    for picture in pictures:
        picture.scroll_into_view_if_needed()
        shown = np.asarray(Image.open(BytesIO(picture.screenshot())).convert("L"))
        assert np.median(shown) < 64, picture.get_attribute("src")


def test_search_finds_a_function(visit):
    seen = visit("search.html?q=project_together")
    result = seen.page.locator("#search-results a", has_text="project_together").first
    result.wait_for()
    assert seen.complaints == []
    result.click()
    seen.page.wait_for_load_state()
    assert "project_together" in seen.page.locator("main").inner_text()


def test_the_theme_is_changed_by_keyboard(visit):
    seen = visit("explorer.html")
    assert seen.page.evaluate("document.documentElement.dataset.theme") == "light"
    button = seen.page.locator(
        "button.theme-switch-button:visible, .theme-switch-container button:visible"
    ).first
    button.focus()
    dark = "document.documentElement.dataset.theme === 'dark'"
    for _ in range(4):
        seen.page.keyboard.press("Enter")
        if seen.page.evaluate(dark):
            break
        choice = seen.page.locator("[data-mode=dark]:visible, button:visible:has-text('Dark')")
        if choice.count():
            choice.first.press("Enter")
    assert seen.page.evaluate(dark)
