"""What the tests of the site share: where it is, what is looked at, and how."""

import os
from pathlib import Path

SITE = Path(os.environ.get("HOYER_SITE", ""))
HTML = SITE.rglob("*.html") if "HOYER_SITE" in os.environ else ()
PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1280, "height": 900}

# Pages of the site, not of what the theme brings along.
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in HTML
    if "_static" not in path.relative_to(SITE).parts
)


class Visit:
    """A page as somebody sees it, and what it complained about."""

    def __init__(self, page, address):
        self.page, self.address, self.complaints = page, address, []
        # Machines that build and test may be busy.
        page.set_default_timeout(120_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("response", self._answered)

    def _heard(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request):
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.complaints.append(f"something from elsewhere: {request.url}")

    def _answered(self, response):
        if response.status >= 400:
            self.complaints.append(f"{response.status}: {response.url}")

    def go(self, path):
        self.complaints.clear()
        self.page.goto(f"{self.address}/{path}", wait_until="load")
