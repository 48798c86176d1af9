"""The page in a browser: it fits its window, fetches nothing, and shows the right version of every figure."""

import pytest
from chromium import browsing, check_report, needs_chromium

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def window():
    with browsing() as window:
        yield window


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_window_and_shows_the_right_figures(window, report, odd, width, scheme):
    for page in (report, odd):
        assert any(check_report(window, page, width, scheme)) == (width == 400)
