"""The pages of docs/tutorial run."""

import pytest
from page_blocks import find_pages
from page_runner import run_page


@pytest.mark.parametrize("page", [page for page in find_pages() if page.startswith("docs/tutorial/")])
def test_the_page_runs(page, tmp_path):
    run_page(page, tmp_path / "page")
