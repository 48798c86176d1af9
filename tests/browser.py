"""Pages in a real browser: how they fit their window, and what they fetch and log."""

import json
import re
import shutil
import subprocess

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


def open_pages(folder, pages, scheme):
    """Open copies of pages, with every detail open and a probe added, in a wide and a narrow frame each."""
    frames = FRAMES
    for name, page in pages.items():
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
        f"--blink-settings=preferredColorScheme={int(scheme == 'light')}",
        (folder / "frames.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    log = done.stderr.decode("utf-8", "replace")
    title = re.search(r"<title>(\{.*\})</title>", done.stdout.decode("utf-8", "replace"))
    assert title, log[-2000:]
    return json.loads(title[1]), log
