"""Pages in a real Chromium, which Playwright drives: the one of this machine, so that none is downloaded."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome")

FIGURES = """[...document.images].map((image) => {
  const sources = [...image.parentElement.querySelectorAll("source")];
  const source = sources.find((each) => each.srcset === image.currentSrc);
  return [image.naturalWidth > 0, source ? source.media : "", image.getBoundingClientRect().width];
})"""

TABLES = """[...document.querySelectorAll(".table")].map((each) => {
  const box = each.querySelector(".scroll");
  return [box.scrollWidth > box.clientWidth, each.querySelector(".hint").offsetHeight > 0];
})"""


@contextmanager
def browsing():
    """Start a browser while the block runs; yield a function that opens a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--hide-scrollbars"]}
        with playwright.chromium.launch(**options) as chromium:
            yield lambda url, width=1280, height=900, scheme="light": Window(chromium, url, width, height, scheme)


class Window:
    """A page in a window of its own, with the status of its last document and what it has logged and requested."""

    def __init__(self, chromium, url, width, height, scheme):
        self.page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.logged, self.requested, self.statuses = [], [], []
        self.page.on("console", lambda message: self.logged.append(message.text))
        self.page.on("pageerror", lambda error: self.logged.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("response", self.note_status)
        self.page.goto(url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.page.close()

    def note_status(self, response):
        if response.request.is_navigation_request():
            self.statuses.append(response.status)

    @property
    def status(self):
        """The status of the last document."""
        return self.statuses[-1]

    @property
    def elsewhere(self):
        """What was requested but the page itself, with its redirections."""
        return [url for url in self.requested if url != self.page.url and not url.startswith(("file:", "data:"))]

    def value(self, expression):
        """Return the value of an expression in the page."""
        return self.page.evaluate(expression)

    def until(self, expression):
        """Wait until an expression in the page is true; without `eval`, which the policy of a page may forbid."""
        for _ in range(1000):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{expression}: still not true")


def check_report(window, page, width, scheme):
    """Check that a page fits its window, fetches nothing, and shows the right version of every figure.

    Return whether each table overflows; one that does has a hint.
    """
    with window(page.as_uri(), width, 844, scheme) as opened:
        opened.value("document.querySelectorAll('details').forEach((each) => { each.open = true })")
        opened.until("[...document.images].every((each) => each.complete)")
        assert opened.value("document.documentElement.scrollWidth") == width
        assert opened.logged == []
        assert opened.elsewhere == []
        figures = opened.value(FIGURES)
        assert figures
        for drawn, media, shown in figures:
            assert drawn
            assert ("prefers-color-scheme: dark" in media) == (scheme == "dark")
            assert ("max-width" in media) == (width == 400)
            assert shown <= width
        shade = opened.value("getComputedStyle(document.body).backgroundColor")
        assert shade == ("rgb(20, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)")
        tables = opened.value(TABLES)
    assert all(overflows == hinted for overflows, hinted in tables)
    return [overflows for overflows, _ in tables]
