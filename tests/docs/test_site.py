"""The site that `make docs` has built is read from the file system without a network; the build itself can fail."""

import itertools
import os
import subprocess
import sys

import pytest
from chromium import browsing, needs_chromium
from page_blocks import ROOT

WIDTHS = (1280, 390)
OPENED = (
    "docs/index",
    "README",
    "docs/reference/parts",
    "docs/reference/http-api",
    "docs/reference/api/simulation",
)


SITE = ROOT / "build" / "docs"


def needs_site(test):
    """Skip a test where there is no site or no browser."""
    built = (SITE / "index.html").exists()
    unbuilt = pytest.mark.skipif(not built, reason="make docs, which is part of make check, builds the site")
    return needs_chromium(unbuilt(test))


@needs_site
def test_pages_open_without_a_network_and_fit_the_window():
    assert 'content="0; url=docs/index.html"' in (SITE / "index.html").read_text()
    with browsing() as window:
        for scheme, width, name in itertools.product(("light", "dark"), WIDTHS, OPENED):
            with window((SITE / f"{name}.html").as_uri(), width, scheme=scheme) as opened:
                assert opened.logged == [], name
                assert opened.elsewhere == [], name
                assert opened.value("document.documentElement.scrollWidth") == width, (name, width)
                shade = opened.value("getComputedStyle(document.body).backgroundColor")
                assert (shade == "rgb(255, 255, 255)") == (scheme == "light")


@needs_site
def test_the_search_works_from_the_file_system():
    with browsing() as window, window(f"{(SITE / 'search.html').as_uri()}?q=guard") as opened:
        opened.until("document.querySelectorAll('ul.search li').length > 5")
        opened.until("document.querySelector('#search-results').innerText.includes('found')")
        assert opened.logged == []
        assert opened.elsewhere == []


def test_a_missing_page_fails_the_build(tmp_path):
    (tmp_path / "index.md").write_text("# Title\n\n[gone](gone.md)\n")
    (tmp_path / "conf.py").write_text("extensions = ['myst_nb']\n")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", str(tmp_path), str(tmp_path / "out")]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"})
    assert built.returncode == 1
    assert "index.md:3: WARNING: 'myst' cross-reference target not found: 'gone.md'" in built.stderr
