"""The page in a browser: it fits its window, fetches nothing, and shows the right version of every figure."""

import pytest
from browser import BROWSER, open_pages


@pytest.fixture(scope="module", params=["light", "dark"])
def found(request, report, odd, tmp_path_factory):
    """Open both pages in a wide and a narrow frame each."""
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on this machine")
    frames, log = open_pages(tmp_path_factory.mktemp(request.param), {"report": report, "odd": odd}, request.param)
    return request.param, frames, log


def test_the_page_is_as_wide_as_its_window(found):
    _, frames, _ = found
    assert sorted(frames) == ["odd 1280", "odd 400", "report 1280", "report 400"]
    for name, frame in frames.items():
        assert frame["scrollWidth"] == frame["innerWidth"] == int(name.split()[1])
        assert frame["fetched"] == 0


def test_nothing_is_logged(found):
    assert "CONSOLE" not in found[2]


def test_figures_suit_width_and_color_scheme(found):
    scheme, frames, _ = found
    for name, frame in frames.items():
        width = int(name.split()[1])
        assert frame["chosen"]
        for drawn, media, shown in frame["chosen"]:
            assert drawn
            assert ("prefers-color-scheme: dark" in media) == (scheme == "dark")
            assert ("max-width" in media) == (width == 400)
            assert shown <= width
        assert frame["background"] == ("rgb(20, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)")


def test_a_table_has_a_hint_if_and_only_if_it_overflows(found):
    _, frames, _ = found
    for name, frame in frames.items():
        assert all(overflows == hinted for overflows, hinted in frame["tables"])
        assert any(overflows for overflows, _ in frame["tables"]) == name.endswith("400")
