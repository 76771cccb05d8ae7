"""The site in a real browser: `make test-docs`, which says in HOYER_SITE where it was built."""

import functools
import http.server
import os
import shutil
import threading

import pytest
from web import DESKTOP, SITE, Visit

# Nothing here belongs to `make test`, which has neither site nor browser.
collect_ignore_glob = [] if "HOYER_SITE" in os.environ else ["test_*.py"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def found_browser():
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def pytest_configure():
    if "HOYER_SITE" in os.environ and found_browser() is None:
        pytest.exit(
            "The tests of the site need Chromium, which is not installed: on Debian and Ubuntu "
            "`apt-get install chromium`.",
            returncode=1,
        )


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing about it."""

    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def address():
    """Where a plain file server has the site."""
    handler = functools.partial(Quiet, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Chromium as the system has it: nothing is downloaded."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in containers, has no sandbox.
        sandbox = [] if os.geteuid() else ["--no-sandbox"]
        chromium = playwright.chromium.launch(executable_path=found_browser(), args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def visit(browser, address):
    """Returns a function that opens the site on a screen of some size, light or dark."""
    contexts = []

    def opened(path=None, viewport=DESKTOP, theme="light", **options):
        context = browser.new_context(viewport=viewport, color_scheme=theme, **options)
        contexts.append(context)
        visit = Visit(context.new_page(), address)
        if path is not None:
            visit.go(path)
        return visit

    yield opened
    for context in contexts:
        context.close()
