"""The dashboard in a real Chromium: figures, console, requests, phone width, dark mode, keyboard and signing in.

One browser serves the whole file, because starting it takes longer than all tests together.
"""

import pytest
from browser import BROWSER
from dashboard_store import HOSTILE_GROUP, HOSTILE_ITEM, QUERIES, filled_ranker
from devtools import browsing
from serving import serving

from mcfair.service.ranker import Ranker

pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def browser():
    with browsing() as browser:
        yield browser


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


SIZES = """[...document.querySelectorAll(SELECTOR)].map((each) => {
  const box = each.getBoundingClientRect();
  return [box.width, box.height];
})"""


def sizes(browser, selector):
    """The widths and heights of what is drawn; what is hidden has none."""
    return browser.evaluate(SIZES.replace("SELECTOR", repr(selector)))


def drawn(browser, selector):
    return [size for size in sizes(browser, selector) if max(size) > 0]


@pytest.mark.parametrize("width", [1280, 390])
def test_figures_are_drawn_for_the_width_of_the_window(browser, service, width):
    browser.show(width)
    browser.open(f"{service.url}/")
    charts = drawn(browser, "svg.chart")
    assert len(charts) == 3  # unfairness, traffic, groups: one of the two drawings of each
    assert all(w > 0.6 * min(width, 700) * (0.5 if width > 1000 else 1) and h > 80 for w, h in charts)
    for selector, count in ((".line.main", 2), (".line.reference", 1), (".bar.light", 30), ("circle.had", 2)):
        marks = drawn(browser, f"svg.chart {selector}")
        assert len(marks) == count, selector
    heights = {round(h) for _, h in drawn(browser, "svg.chart .bar.light")}
    assert len(heights) > 1 or heights == {max(heights)}
    text = drawn(browser, "svg.chart text")
    assert min(h for _, h in text) > 9  # readable: a drawing that shrinks to a phone would not be


def test_pages_are_quiet_and_fetch_nothing_from_elsewhere(browser, service):
    browser.show()
    for path in service.paths:
        assert browser.open(service.url + path) == 200
        assert browser.evaluate("1 + 1") == 2  # whatever was logged has arrived
        assert browser.complaints == [], path
        assert browser.requested == [service.url + path]


def test_the_policy_stops_scripts_and_foreign_requests(browser, service):
    """A control: what the other tests find absent would be noticed."""
    browser.show()
    browser.open(f"{service.url}/")
    browser.clear()
    browser.evaluate(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'http://127.0.0.1:9/x'}))"
    )
    browser.evaluate("document.body.setAttribute('style', 'color: red')")
    browser.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
    assert browser.evaluate("window.ran") is None
    browser.send("Page.getLayoutMetrics")
    texts = " ".join(str(each) for each in browser.complaints)
    assert "script-src" in texts or "default-src" in texts
    assert "img-src" in texts


def test_hostile_names_are_shown_as_text(browser, service):
    browser.show()
    for path in service.paths[:5]:
        browser.open(service.url + path)
        assert "owned" not in browser.evaluate("document.title")
        assert browser.evaluate("document.querySelectorAll('script, img').length") == 0
    assert HOSTILE_ITEM in browser.evaluate("document.body.innerText")
    browser.open(service.url)
    assert browser.evaluate(f"document.body.textContent.includes({HOSTILE_GROUP!r})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone_and_follow_the_colours_of_the_system(browser, service, scheme):
    for width in (390, 320):
        browser.show(width, 844, scheme)
        for path in service.paths:
            browser.open(service.url + path)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, path
    ink, paper = browser.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
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
def test_texts_have_enough_contrast(browser, service, scheme):
    """WCAG asks for a ratio of 4.5."""
    browser.show(scheme=scheme)
    for path in service.paths:
        browser.open(service.url + path)
        for ink, paper, text in browser.evaluate(CONTRASTS):
            dark, light = sorted((luminance(ink), luminance(paper)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (path, text, ink, paper)


def test_a_page_says_what_it_is_to_a_screen_reader(browser, service):
    browser.show()
    for path in service.paths:
        browser.open(service.url + path)
        assert browser.evaluate("document.documentElement.lang") == "en"
        for landmark in ("header", "nav[aria-label]", "main", "h1"):
            assert browser.evaluate(f"document.querySelectorAll({landmark!r}).length") >= 1, (path, landmark)
        assert browser.evaluate("document.querySelectorAll('h1').length") == 1
        unnamed = (
            "[...document.querySelectorAll('svg.chart')].filter((each) => !each.getAttribute('aria-label')).length"
        )
        assert browser.evaluate(unnamed) == 0
        if path != "/docs":
            assert browser.evaluate("[...document.querySelectorAll('table')].every((each) => each.caption)")
            assert browser.evaluate("[...document.querySelectorAll('th')].every((each) => each.scope)")
        assert browser.evaluate("new Set([...document.querySelectorAll('[id]')].map((each) => each.id)).size") == (
            browser.evaluate("document.querySelectorAll('[id]').length")
        )


def focused(browser):
    return browser.evaluate("document.activeElement.textContent.trim().slice(0, 40) || document.activeElement.id")


def test_everything_is_reached_by_the_keyboard_in_order(browser, service):
    browser.show()
    browser.open(f"{service.url}/")
    order = []
    for _ in range(15):
        browser.press("Tab")
        order.append(focused(browser))
    assert order[:12] == [
        "Skip to the content", "mcfair", "Overview", "Queries", "Items and groups", "Compare", "API",
        "24 hours", "7 days", "28 days", "year", "Refresh every 30 s",
    ]  # fmt: skip
    assert order[12:] == ["Show the numbers"] * 3
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    browser.press("Enter")
    browser.until("document.querySelectorAll('details[open] table').length === 1")
    outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_search_by_the_keyboard(browser, service):
    browser.show()
    browser.open(f"{service.url}/queries")
    browser.evaluate("document.getElementById('query').focus()")
    browser.type(QUERIES[2])
    browser.clear()
    browser.press("Enter")
    assert browser.loaded() == 200
    query_id = service.ranker.query_state(QUERIES[2]).query_id
    assert browser.evaluate("location.pathname") == f"/queries/{query_id}"
    assert all("hats" not in url for url in browser.requested)


def test_sign_in_and_out(browser, keyed):
    browser.show()
    assert browser.open(f"{keyed.url}/items") == 401
    browser.until("document.activeElement.id === 'key'")
    browser.type("mcfair_wrong_key")
    browser.clear()
    browser.press("Enter")
    assert browser.loaded() == 401
    assert "unknown or revoked" in browser.evaluate("document.querySelector('[role=alert]').innerText")
    browser.until("document.activeElement.id === 'key'")
    browser.type(keyed.key)
    browser.clear()
    browser.press("Enter")
    assert browser.loaded() == 200
    assert browser.evaluate("location.pathname") == "/items"
    assert browser.evaluate("document.cookie") == ""  # no script sees it
    assert all(keyed.key not in url for url in browser.requested)
    browser.clear()
    browser.evaluate("document.querySelector('form[action$=sign-out] button').click()")
    assert browser.loaded() == 401
    assert browser.evaluate("document.querySelector('h1').innerText") == "Sign in"
