"""The page in a browser: it fits its window, fetches nothing, and shows the right version of every figure."""

import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

PROBE = """<script>
window.addEventListener("load", () => setTimeout(() => {
  const chosen = [...document.images].map((image) => {
    const sources = [...image.parentElement.querySelectorAll("source")];
    const source = sources.find((each) => each.srcset === image.currentSrc);
    return [image.naturalWidth > 0, source ? source.media : "", image.getBoundingClientRect().width];
  });
  const tables = [...document.querySelectorAll(".table")].map((each) => {
    const box = each.querySelector(".scroll");
    return [box.scrollWidth > box.clientWidth, each.querySelector(".hint").offsetHeight > 0];
  });
  const fetched = performance.getEntriesByType("resource").filter((each) => !each.name.startsWith("data:"));
  const { scrollWidth } = document.documentElement;
  const background = getComputedStyle(document.body).backgroundColor;
  parent.postMessage({ innerWidth, scrollWidth, chosen, tables, fetched: fetched.length, background }, "*");
}, 200));
</script></head>"""

FRAMES = """<!doctype html><title>waiting</title><script>
const found = {};
addEventListener("message", (event) => {
  const frame = [...document.querySelectorAll("iframe")].find((each) => each.contentWindow === event.source);
  found[frame.id] = event.data;
  document.title = JSON.stringify(found);
});
</script>"""
"""A window is never as narrow as a phone, but a frame in it is."""


@pytest.fixture(scope="module", params=["light", "dark"])
def found(request, report, odd, tmp_path_factory):
    """Open copies of both pages, with every detail open and a probe added, in a wide and a narrow frame each."""
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on this machine")
    folder = tmp_path_factory.mktemp(request.param)
    frames = FRAMES
    for name, page in (("report", report), ("odd", odd)):
        text = page.read_text(encoding="utf-8").replace("<details>", "<details open>")
        text = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
        (folder / f"{name}.html").write_text(text.replace("</head>", PROBE, 1), encoding="utf-8")
        for width in (1280, 400):
            frames += f'<iframe id="{name} {width}" src="{name}.html" width="{width}" height="844" style="border: 0">'
            frames += "</iframe>"
    (folder / "frames.html").write_text(frames, encoding="utf-8")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=8000",
        f"--user-data-dir={folder / 'profile'}", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--window-size=1400,900",
        "--hide-scrollbars", "--enable-logging=stderr",
        f"--blink-settings=preferredColorScheme={int(request.param == 'light')}",
        (folder / "frames.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    log = done.stderr.decode("utf-8", "replace")
    title = re.search(r"<title>(\{.*\})</title>", done.stdout.decode("utf-8", "replace"))
    assert title, log[-2000:]
    return request.param, json.loads(title[1]), log


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
