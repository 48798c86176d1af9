"""README.md, CONTRIBUTING.md and the pages directly below docs/ run; the other folders have a file each.

One file for each folder, because files are what the processes of a test run share out.
"""

import pytest
from page_blocks import find_pages
from page_runner import run_page

FOLDERS = ("docs/tutorial/", "docs/how-to/", "docs/explanation/")
"""Folders whose pages test_tutorial_runs.py, test_how_to_runs.py and test_explanation_runs.py run."""


@pytest.mark.parametrize("page", [page for page in find_pages() if not page.startswith(FOLDERS)])
def test_the_page_runs(page, tmp_path):
    run_page(page, tmp_path / "page")
