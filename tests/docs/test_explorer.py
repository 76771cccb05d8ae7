"""The explorer: the library's numbers, for everybody who can reach the dials."""

import itertools
import math
import re

import numpy as np
import pytest
from web import PHONE

import hoyer

READY = ".explorer[data-state=ready]"
SHOW = """async (hash) => {
  location.hash = hash;
  for (let i = 0; i < 4; i += 1) await new Promise(requestAnimationFrame);
  const { result } = document.querySelector(".explorer");
  const text = (part) => document.querySelector(`[data-part="${part}"]`).textContent;
  const numbers = ["support", "shift", "scale", "distance", "active"];
  const parts = [...numbers, "sentence", "python", "call3", "p3"];
  return { ...result, shown: Object.fromEntries(parts.map((part) => [part, text(part)])) };
}"""

BY_SPARSENESS = [
    f"set={name}&sparseness={sigma}&norm={norm}&nonnegative={sign}"
    for name, sigma, norm, sign in itertools.product(
        ("sparseness", "increase"),
        (0, 0.05, 0.5, 0.83, 1),
        ("keep", "one", "nearest"),
        ("false", "true"),
    )
]
BY_NORMS = [
    f"set={name}&l1={l1}&l2={l2}&nonnegative={sign}"
    for name, l1, l2, sign in itertools.product(
        ("simplex", "sphere", "ball", "balls"), (0.02, 0.4, 0.9, 1.2), (0.3, 0.8), ("false", "true")
    )
]
VECTORS = [
    "kind=normal&n=8",
    "kind=laplace&n=32",
    "kind=uniform&n=64&sorted=false",
    "kind=positive&n=128",
    "kind=ties&n=256&seed=5",
    "kind=own&own=3 1 -2 0.5, 0, 0",
]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture
def explorer(visit):
    seen = visit("explorer.html", viewport={"width": 1280, "height": 1400})
    seen.page.wait_for_selector(READY)
    yield seen.page
    assert seen.complaints == []


def number(text):
    return math.nan if text == "none" else float(text.replace(MINUS, "-"))


def same(ours, theirs):
    return ours is not None and np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("vector", VECTORS)
def test_numbers_are_those_of_the_library(explorer, vector):
    """To the last bit: `make test-docs` asks for the core with registers as wide as a browser's."""
    for target in BY_SPARSENESS + BY_NORMS:
        page = explorer.evaluate(SHOW, f"{vector}&{target}")
        x, shown = np.array(page["x"]), page["shown"]
        result = hoyer.solve(x, **page["options"])
        assert np.array_equal(result.value, page["value"]), target
        # JavaScript's NaN is None here.
        shift = math.nan if page["shift"] is None else page["shift"]
        assert same(result.shift, shift), target
        assert result.scale == page["scale"], target
        assert result.support_size == page["supportSize"], target
        assert result.evaluations == page["evaluations"], target
        assert (result.active, result.unique) == (page["active"], page["unique"]), target
        # The measure is summed in another order where registers are wider.
        assert hoyer.sparseness(result.value) == pytest.approx(
            page["after"], abs=1e-15, nan_ok=True
        )
        assert number(shown["shift"]) == pytest.approx(float(result.shift), abs=5.1e-5, nan_ok=True)
        if math.isnan(result.shift):
            assert shown["scale"] == "none"
        else:
            assert number(shown["scale"]) == pytest.approx(float(result.scale), abs=5.1e-5)
        distance = np.linalg.norm(result.value - x)
        assert number(shown["distance"]) == pytest.approx(distance, abs=5.1e-5)
        assert shown["support"] == f"{result.support_size} of {x.size}"


@pytest.mark.parametrize("target", [BY_SPARSENESS[7], BY_SPARSENESS[-1], *BY_NORMS[::5]])
def test_the_call_of_python_gives_what_is_shown(explorer, target):
    page = explorer.evaluate(SHOW, f"kind=laplace&n=64&{target}")
    names = {}
    exec(page["shown"]["python"], names)
    assert np.array_equal(names["p"], page["value"])
    small = eval(page["shown"]["call3"], {"hoyer": hoyer})
    assert [f"{v:.3f}".replace("-", MINUS) for v in small] == page["shown"]["p3"].strip("[]").split(
        ", "
    )


SENTENCES = [
    ("sparseness=0", "All 32 entries become equal in size."),
    ("sparseness=0&nonnegative=true", "All 32 entries become equal."),
    (
        "sparseness=0.25",
        "p is less sparse than x: each entry grows by 0.0032, then all are rescaled (÷ 1.002).",
    ),
    (
        "sparseness=0.26",
        "All 32 entries stay. Each shrinks by α = 0.024, then all are rescaled (÷ 0.98).",
    ),
    (
        "sparseness=0.7",
        "10 of 32 entries stay. Each shrinks by α = 1.35, smaller ones become zero, "
        "then all are rescaled (÷ 0.35).",
    ),
    ("sparseness=1", "Only the largest entry stays; all others become zero."),
    ("set=increase&sparseness=0.2", "x is sparse enough as it is: nothing changes."),
    (
        "set=increase&sparseness=0.2&norm=one",
        "x is sparse enough as it is: only its norm changes (÷ 7.01).",
    ),
    (
        "set=simplex",
        "Every entry is raised by 0.51; what is still negative becomes zero. 18 of 32 are left.",
    ),
    ("set=sphere&l1=1.2", "p is less sparse than x: each entry grows by 0.20."),
    ("set=ball&l1=1.2", "x is within the bounds as it is: nothing changes."),
    ("kind=own&own=0 0 0", "x is zero, and so is p. Zero has no sparseness."),
    (
        "kind=own&own=0 0 0&norm=one",
        "x is zero, so all these vectors are equally near; the first entry is preferred.",
    ),
    (
        "kind=own&own=2 2 -2 1 1&sparseness=0.7",
        "3 entries are equally large: the first one is preferred, the others share what is left, "
        "and smaller ones become zero.",
    ),
    (
        "kind=own&own=2 2 -2 1 1&sparseness=1",
        "3 entries are equally large: the first one is preferred, all others become zero.",
    ),
    ("kind=own&own=5 0 0&sparseness=1", "x is exactly that sparse already: nothing changes."),
    (
        "kind=own&own=-1 -2 -3&norm=nearest&nonnegative=true",
        "All nonnegative vectors that sparse point away from x, so zero is the nearest.",
    ),
    (
        "kind=own&own=-1 2 -3&set=ball&l1=1.2&nonnegative=true",
        "Negative entries become zero; what is left is within the bounds: nothing changes.",
    ),
]


@pytest.mark.parametrize(("target", "sentence"), SENTENCES)
def test_the_sentence_says_what_happened(explorer, target, sentence):
    assert explorer.evaluate(SHOW, target)["shown"]["sentence"] == sentence


def holds(page):
    """Of each phrase whether it is true."""
    x, p = np.array(page["x"]), np.array(page["value"])
    sizes = x if page["options"].get("nonnegative") else abs(x)
    return {
        "less sparse": page["after"] < page["before"],
        "become zero": np.any((p == 0) & (x != 0)),
        "becomes zero": np.any(p == 0),
        "nothing changes": np.array_equal(p, np.where(p == 0, 0, x)),
        "only its norm": np.allclose(p * np.linalg.norm(x), x * np.linalg.norm(p)) or sizes is x,
        "become equal": np.all(abs(p) == abs(p[0])),
        "equally large": np.sum(sizes == sizes.max()) > 1 and not page["unique"],
        "first": np.argmax(abs(p)) == np.argmax(sizes),
        "largest": np.argmax(abs(p)) == np.argmax(sizes),
        "is zero": not x.any(),
        "point away": not p.any() and x.any(),
        "grows": np.all(p != 0) and page["shift"] < 0,
        "shrinks": page["shift"] > 0,
        "raised": page["shift"] < 0,
        "lowered": page["shift"] > 0,
        "then positive": np.all(p > 0),
    }


NASTY = [
    "0 0 0",
    "1 1 1",
    "0 0 0 1",
    "-1 -2 -3",
    "-1 -1 -3",
    "2 2 -2 1 1",
    "-2 0 1 0",
    "1e-9 -2e-9",
]


@pytest.mark.parametrize("vector", ["kind=laplace&n=8", *(f"kind=own&own={own}" for own in NASTY)])
def test_no_sentence_is_wrong(explorer, vector):
    for target in BY_SPARSENESS + BY_NORMS:
        page = explorer.evaluate(SHOW, f"{vector}&{target}")
        said = page["shown"]["sentence"]
        wrong = [phrase for phrase, true in holds(page).items() if phrase in said and not true]
        assert not wrong, (target, said, page)
        assert not re.search(r"\b[01]\.00\b|NaN|none|undefined|Infinity", said), (target, said)
        assert (page["shown"]["active"] == "p is zero") == (not any(page["value"])), target


def test_turning_the_dial_by_keyboard(explorer):
    dial = explorer.get_by_label("Sparseness", exact=True)
    dial.focus()
    explorer.keyboard.press("End")
    explorer.wait_for_function("document.querySelector('.explorer').result.supportSize === 1")
    explorer.keyboard.press("Home")
    explorer.wait_for_function("document.querySelector('.explorer').result.supportSize === 32")
    for _ in range(40):
        explorer.keyboard.press("ArrowRight")
    explorer.wait_for_function(
        "document.querySelector('.explorer').result.options.sparseness === 0.4"
    )
    spoken = explorer.locator("[aria-live=polite]")
    explorer.wait_for_function(
        "document.querySelector('[aria-live=polite]').textContent.includes('stay')"
    )
    assert re.match(r"\d+ of 32 entries stay\.", spoken.text_content())


NAME = "(({ name, dataset, tagName }) => name || dataset.part || tagName)(document.activeElement)"


def test_every_control_is_reached_by_tab_in_the_order_of_the_page(explorer):
    reached = []
    explorer.get_by_label("Sparseness", exact=True).focus()
    for _ in range(20):
        reached.append(explorer.evaluate(NAME))
        explorer.keyboard.press("Tab")
    wanted = "sparseness norm sweep space x1 x2 x3 set kind n another nonnegative sorted copy"
    wanted = [*wanted.split(), "SUMMARY", "race"]
    assert [name for name in reached if name in wanted] == wanted


def test_turning_the_picture_by_keyboard_and_by_dragging(explorer):
    picture = explorer.locator("[data-part=space]")
    looks = [picture.evaluate("(canvas) => canvas.toDataURL()")]

    def changed():
        explorer.wait_for_timeout(50)
        looks.append(picture.evaluate("(canvas) => canvas.toDataURL()"))
        return looks[-1] != looks[-2]

    picture.focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        explorer.keyboard.press(key)
        assert changed(), key
    explorer.keyboard.press("Home")
    explorer.wait_for_timeout(50)
    box = picture.bounding_box()
    explorer.mouse.move(box["x"] + 40, box["y"] + 40)
    explorer.mouse.down()
    explorer.mouse.move(box["x"] + 90, box["y"] + 60, steps=3)
    explorer.mouse.up()
    assert changed()
    assert explorer.evaluate("scrollY") == 0 or picture.is_visible()


def test_numbers_of_ones_own(explorer):
    explorer.locator("[name=kind]").select_option("own")
    numbers = explorer.get_by_label("Numbers", exact=True)
    numbers.fill("[4, 3, 2, 1]")
    explorer.wait_for_function("document.querySelector('.explorer').result.x.join() === '4,3,2,1'")
    numbers.fill("4, three")
    explorer.wait_for_selector("text=“three” is not a number")
    numbers.fill("4")
    explorer.wait_for_selector("text=give at least two numbers")
    # What is still shown belongs to other numbers, and says so.
    copy = explorer.locator("[data-part=copy]")
    assert copy.is_disabled()
    assert "cannot be read" in explorer.locator("[data-part=sentence]").text_content()
    assert explorer.locator("dl").evaluate("(list) => getComputedStyle(list).opacity") == "0.35"
    numbers.fill("4, 5")
    explorer.wait_for_selector(".explorer:not([data-outdated])")
    assert copy.is_enabled()


def test_a_point_that_cannot_be_drawn_is_refused_in_words(explorer):
    x1, wrong = explorer.locator("[name=x1]"), explorer.locator("[data-part=wrong3]")
    for text in ("5", ""):
        x1.fill(text)
        explorer.wait_for_selector(f"text=x₁: give a number from {MINUS}2 to 2.")
        assert x1.get_attribute("aria-invalid") == "true"
        assert "[1.3, 0.85, 0.5]" in explorer.locator("[data-part=call3]").text_content()
    x1.fill("-1.5")
    explorer.wait_for_selector("text=[-1.5, 0.85, 0.5]")
    assert wrong.text_content() == ""


@pytest.mark.parametrize(
    ("target", "drawn"),
    [
        ("sparseness=0.7", True),
        ("sparseness=0.1", False),
        ("sparseness=0", False),
        ("set=simplex", True),
        ("set=sphere&l1=1.2", False),
        ("set=increase&sparseness=0.1", False),
    ],
)
def test_a_threshold_is_drawn_only_where_something_is_cut(explorer, target, drawn):
    explorer.evaluate(SHOW, target)
    assert explorer.locator("[data-part=threshold]").is_visible() == drawn


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "exactly that sparse. It keeps the norm of x, unless you choose otherwise."),
        ("norm=one", "exactly that sparse and has norm 1."),
        ("set=increase&norm=nearest", "vector that is at least that sparse, whatever its norm."),
        ("set=simplex", "the nearest vector without negative entries that has this sum."),
        ("set=ball&nonnegative=true", "nonnegative vector that has at most this L1 norm."),
        ("set=balls", "Move the dials, and hoyer finds the nearest vector that has at most these"),
    ],
)
def test_the_introduction_is_about_the_chosen_set(explorer, target, words):
    explorer.evaluate(SHOW, target)
    assert words in explorer.locator("[data-part=introduction]").text_content()


def test_a_link_leads_to_what_was_seen(visit):
    seen = visit("explorer.html#set=ball&l1=0.3&n=16&kind=laplace")
    seen.page.wait_for_selector(READY)
    result = seen.page.evaluate("document.querySelector('.explorer').result")
    assert result["options"]["at_most"] is True
    assert len(result["x"]) == 16
    # What makes no sense is left aside.
    seen.go("explorer.html?other#set=nonsense&sparseness=much")
    seen.page.wait_for_selector(READY)
    assert seen.page.locator("[name=set]").input_value() == "sparseness"
    assert seen.complaints == []


def test_nothing_moves_by_itself_for_those_who_ask_for_it(visit):
    seen = visit("explorer.html", reduced_motion="reduce")
    seen.page.wait_for_selector(READY)
    assert not seen.page.locator("[data-part=sweep]").is_visible()


def test_the_sweep_runs_until_it_is_stopped(explorer):
    button = explorer.get_by_role("button", name="Play")
    button.click()
    explorer.wait_for_timeout(300)
    explorer.get_by_role("button", name="Stop").click()
    at = explorer.evaluate("document.querySelector('.explorer').result.options.sparseness")
    explorer.wait_for_timeout(200)
    assert at == explorer.evaluate("document.querySelector('.explorer').result.options.sparseness")


def test_how_fast_it_is_here(explorer):
    explorer.get_by_role("button", name="How fast").click()
    explorer.wait_for_selector("text=1,048,576 doubles to sparseness 0.9 in")


def test_a_finger_scrolls_the_page_past_the_picture(visit):
    seen = visit("explorer.html", viewport=PHONE, has_touch=True, is_mobile=True)
    seen.page.wait_for_selector(READY)
    action = seen.page.locator("[data-part=space]").evaluate(
        "(canvas) => getComputedStyle(canvas).touchAction"
    )
    assert action == "pan-y"
    assert seen.complaints == []


def test_without_its_core_it_says_so(visit):
    seen = visit()
    seen.page.route("**/hoyer.wasm", lambda route: route.fulfill(status=404))
    seen.go("explorer.html")
    seen.page.wait_for_selector("text=The explorer could not start")
