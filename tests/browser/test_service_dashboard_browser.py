"""The dashboard in a real Chromium: figures, console, requests, phone width, dark mode, keyboard and signing in.

One browser serves the whole file, because starting it takes longer than all tests together.
"""

import pytest
from chromium import browsing, needs_chromium
from dashboard_store import HOSTILE_GROUP, HOSTILE_ITEM, QUERIES, filled_ranker
from serving import serving

from mcfair.service.ranker import Ranker

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def window():
    """A function that opens a page in a window."""
    with browsing() as window:
        yield window


@pytest.fixture(scope="module")
def service():
    """A service without keys, with data; `paths` are its pages."""
    with filled_ranker() as ranker, serving(ranker) as client:
        client.url = str(client.base_url).rstrip("/")
        client.ranker = ranker
        query_id = ranker.query_state(QUERIES[0]).query_id
        client.paths = ["/", "/queries", "/compare?policy=TopK", "/items", f"/queries/{query_id}", "/docs"]
        yield client


@pytest.fixture(scope="module")
def keyed():
    """A service with a key."""
    with Ranker("memory:", summary_interval=0) as ranker:
        key = ranker.add_key("reader", ["read"]).key
        ranker.rank(QUERIES[0], ["a", "b", "c"])
        with serving(ranker) as client:
            client.url, client.key = str(client.base_url).rstrip("/"), key
            yield client


SIZES = """(selector) => [...document.querySelectorAll(selector)].map((each) => {
  const box = each.getBoundingClientRect();
  return [box.width, box.height];
})"""


def drawn(opened, selector):
    """The widths and heights of what is drawn; what is hidden has none."""
    return [size for size in opened.page.evaluate(SIZES, selector) if max(size) > 0]


@pytest.mark.parametrize("width", [1280, 390])
def test_figures_are_drawn_for_the_width_of_the_window(window, service, width):
    with window(f"{service.url}/", width) as opened:
        charts = drawn(opened, "svg.chart")
        assert len(charts) == 3  # unfairness, traffic, groups: one of the two drawings of each
        assert all(w > 0.6 * min(width, 700) * (0.5 if width > 1000 else 1) and h > 80 for w, h in charts)
        for selector, count in ((".line.main", 2), (".line.reference", 1), (".bar.light", 30), ("circle.had", 2)):
            marks = drawn(opened, f"svg.chart {selector}")
            assert len(marks) == count, selector
        heights = {round(h) for _, h in drawn(opened, "svg.chart .bar.light")}
        assert len(heights) > 1 or heights == {max(heights)}
        text = drawn(opened, "svg.chart text")
        assert min(h for _, h in text) > 9  # readable: a drawing that shrinks to a phone would not be


def test_pages_are_quiet_and_fetch_nothing_from_elsewhere(window, service):
    for path in service.paths:
        with window(service.url + path) as opened:
            assert opened.status == 200
            assert opened.value("1 + 1") == 2  # whatever was logged has arrived
            assert opened.logged == [], path
            assert opened.requested == [service.url + path]


def test_the_policy_stops_scripts_and_foreign_requests(window, service):
    """A control: what the other tests find absent would be noticed."""
    with window(f"{service.url}/") as opened:
        opened.value(
            "void document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:9/x'}))"
        )
        opened.value("document.body.setAttribute('style', 'color: red')")
        opened.value(
            "void document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))"
        )
        assert opened.value("window.ran") is None
        texts = " ".join(opened.logged)
        assert "script-src" in texts or "default-src" in texts
        assert "img-src" in texts


def test_hostile_names_are_shown_as_text(window, service):
    for path in service.paths[:5]:
        with window(service.url + path) as opened:
            assert "owned" not in opened.page.title()
            assert opened.page.locator("script, img").count() == 0
            shown = opened.value("document.body.innerText")
    assert HOSTILE_ITEM in shown
    with window(service.url) as opened:
        assert HOSTILE_GROUP in opened.value("document.body.textContent")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_follow_the_colours_of_the_system(window, service, scheme):
    for width in (390, 320):
        for path in service.paths:
            with window(service.url + path, width, 844, scheme) as opened:
                assert opened.value("document.documentElement.scrollWidth") <= width, path
                style = "getComputedStyle(document.body)"
                ink, paper = opened.value(f"[{style}.color, {style}.backgroundColor]")
    brightness = [sum(map(int, color.removeprefix("rgb(").removesuffix(")").split(","))) for color in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light")


CONTRASTS = """[...document.querySelectorAll("body *")].filter((each) => each.getClientRects().length &&
  [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((each) => {
    const colour = getComputedStyle(each), svg = each.closest("svg");
    const background = (one) => getComputedStyle(one).backgroundColor;
    let behind = each;
    while (background(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    return [svg ? colour.fill : colour.color, background(behind), each.textContent.trim().slice(0, 40)];
})"""


def luminance(color):
    parts = [int(each) / 255 for each in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast(window, service, scheme):
    """WCAG asks for a ratio of 4.5."""
    for path in service.paths:
        with window(service.url + path, scheme=scheme) as opened:
            for ink, paper, text in opened.value(CONTRASTS):
                dark, light = sorted((luminance(ink), luminance(paper)))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (path, text, ink, paper)


def test_a_page_says_what_it_is_to_a_screen_reader(window, service):
    for path in service.paths:
        with window(service.url + path) as opened:
            count = lambda selector, page=opened.page: page.locator(selector).count()  # noqa: E731
            assert opened.value("document.documentElement.lang") == "en"
            for landmark in ("header", "nav[aria-label]", "main", "h1"):
                assert count(landmark) >= 1, (path, landmark)
            assert count("h1") == 1
            assert count("svg.chart:not([aria-label])") == 0
            if path != "/docs":
                assert opened.value("[...document.querySelectorAll('table')].every((each) => each.caption)")
                assert opened.value("[...document.querySelectorAll('th')].every((each) => each.scope)")
            ids = opened.value("[...document.querySelectorAll('[id]')].map((each) => each.id)")
            assert len(ids) == len(set(ids))


FOCUSED = "document.activeElement.textContent.trim().slice(0, 40) || document.activeElement.id"


def test_everything_is_reached_by_the_keyboard_in_order(window, service):
    with window(f"{service.url}/") as opened:
        order = []
        for _ in range(15):
            opened.page.keyboard.press("Tab")
            order.append(opened.value(FOCUSED))
        assert order[:12] == [
            "Skip to the content", "mcfair", "Overview", "Queries", "Items and groups", "Compare", "API",
            "24 hours", "7 days", "28 days", "year", "Refresh every 30 s",
        ]  # fmt: skip
        assert order[12:] == ["Show the numbers"] * 3
        assert opened.page.locator("details[open]").count() == 0
        opened.page.keyboard.press("Enter")
        opened.page.locator("details[open] table").wait_for()
        assert opened.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def submit(opened):
    """Press Enter in a form; wait for the page that answers."""
    with opened.page.expect_navigation():
        opened.page.keyboard.press("Enter")


def test_search_by_the_keyboard(window, service):
    with window(f"{service.url}/queries") as opened:
        opened.page.locator("#query").focus()
        opened.page.keyboard.type(QUERIES[2])
        submit(opened)
        assert opened.status == 200
        query_id = service.ranker.query_state(QUERIES[2]).query_id
        assert opened.value("location.pathname") == f"/queries/{query_id}"
        assert all("hats" not in url for url in opened.requested)


def test_sign_in_and_out(window, keyed):
    with window(f"{keyed.url}/items") as opened:
        assert opened.status == 401
        for key, status in (("mcfair_wrong_key", 401), (keyed.key, 200)):
            opened.until("document.activeElement.id === 'key'")
            opened.page.keyboard.type(key)
            submit(opened)
            assert opened.status == status
            if status == 401:
                assert "unknown or revoked" in opened.page.locator("[role=alert]").inner_text()
        assert opened.value("location.pathname") == "/items"
        assert opened.value("document.cookie") == ""  # no script sees it
        assert all(keyed.key not in url for url in opened.requested)
        with opened.page.expect_navigation():
            opened.page.locator("form[action$=sign-out] button").click()
        assert opened.status == 401
        assert opened.page.locator("h1").inner_text() == "Sign in"
