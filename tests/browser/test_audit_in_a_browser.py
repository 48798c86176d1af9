"""The page of an audit in a browser."""

import pytest
from chromium import browsing, check_report, needs_chromium

import mcfair as mf

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    trace = mf.simulate(mf.synthetic("marketplace", seed=0), "TopK", "online", steps=300, record=True)
    return mf.write_audit(mf.audit(trace.save(folder / "run"), resamples=2), folder / "page")


def test_the_page_fits_its_window_and_shows_the_right_figures(page):
    with browsing() as window:
        for width in (1280, 400):
            for scheme in ("light", "dark"):
                check_report(window, page, width, scheme)
