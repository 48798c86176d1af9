"""README.md, CONTRIBUTING.md and the pages below docs/ run."""

import pytest
from page_blocks import find_pages
from page_runner import run_page


@pytest.mark.parametrize("page", find_pages())
def test_the_page_runs(page, tmp_path):
    run_page(page, tmp_path / "page")
