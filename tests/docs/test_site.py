"""The site as `make docs` builds it: without a warning, and readable from the file system without a network."""

import os
import subprocess
import sys

import pytest
from browser import BROWSER
from devtools import browsing
from page_blocks import ROOT

WIDTHS = (1280, 390)
OPENED = (
    "index",
    "docs/index",
    "README",
    "docs/reference/parts",
    "docs/reference/http-api",
    "docs/reference/api/simulation",
)


@pytest.fixture(scope="module")
def site():
    """Build the site; pages that have not changed since the last build are not read again."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "-c", "docs", "."]
    built = subprocess.run([*command, "build/docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    return ROOT / "build" / "docs"


def test_every_page_is_on_the_site(site):
    for page in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/gallery/*.ipynb"), ROOT / "README.md"]:
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), page


@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_pages_open_without_a_network_and_fit_the_window(site):
    with browsing() as browser:
        for scheme in ("light", "dark"):
            for width in WIDTHS:
                browser.show(width=width, scheme=scheme)
                for name in OPENED:
                    browser.open((site / f"{name}.html").as_uri())
                    browser.until("document.readyState === 'complete'")
                    assert browser.complaints == [], name
                    assert [url for url in browser.requested if not url.startswith(("file:", "data:"))] == [], name
                    assert browser.evaluate("document.documentElement.scrollWidth") == width, (name, width)
                shade = browser.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (shade == "rgb(255, 255, 255)") == (scheme == "light")


def test_a_missing_page_fails_the_build(tmp_path):
    (tmp_path / "index.md").write_text("# Title\n\n[gone](gone.md)\n")
    (tmp_path / "conf.py").write_text("extensions = ['myst_nb']\n")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", str(tmp_path), str(tmp_path / "out")]
    built = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"})
    assert built.returncode == 1
    assert "index.md:3: WARNING: 'myst' cross-reference target not found: 'gone.md'" in built.stderr
