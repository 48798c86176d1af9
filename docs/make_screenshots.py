"""Photograph the dashboard for the pages: `make screenshots`, a minute or two; it needs Chromium.

Both shops are simulated, and their clocks are set, so that the pictures show the same lists and clicks every time. The
figures that pages quote from a picture go to docs/results/screenshots.json.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import RESULTS, origin
from PIL import Image

from mcfair.service.ranker import Ranker
from mcfair.service.shop import FIRST, NEW_SELLER, Shop

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))

from chromium import CHROMIUM, browsing  # noqa: E402
from dashboard_store import HOUR, START, SetClock  # noqa: E402
from serving import serving  # noqa: E402

SELLERS = (
    *("Northwind", "Alder & Sons", "Blue Kite", "Casa Verde"),
    *("Dune Supply", "Elm Street", "Fjord Trading", "Grand Bazaar"),
)
FAVOURED = (0, 4)
"""Sellers whose goods the ranker of the shop overestimates."""

QUERIES, RANKS = 60, 5
WEEK_LISTS, LIVE_LISTS = 5_000, 2_000


# --- the shops -------------------------------------------------------------------------------------------------------


class Shelf(NamedTuple):
    """The candidates of a query as a request names them, and how relevant they really are."""

    items: list[dict[str, Any]]
    relevance: dict[str, float]


def stocked(rng: np.random.Generator, query: int) -> Shelf:
    """Return the candidates of a query, with the priors of a ranker that favours two sellers."""
    items, relevance = [], {}
    for i in range(int(rng.integers(8, 15))):
        seller, true = int(rng.integers(len(SELLERS))), 0.15 + 0.6 * float(rng.beta(2, 3))
        prior = true + (0.12 if seller in FAVOURED else -0.05) + float(rng.normal(0, 0.08))
        name = f"{SELLERS[seller].split()[0].lower()}-{query:02d}{i:02d}"
        items.append({"id": name, "group": SELLERS[seller], "prior": min(max(prior, 0.02), 1.0)})
        relevance[name] = true
    return Shelf(items, relevance)


def lists_by_hour() -> list[int]:
    """Return the lists of each hour of the week: most in the afternoon, none of them missing at night."""
    rates = [1 + 1.6 * max(0.0, math.sin(math.pi * (hour % 24 - 6) / 18)) ** 1.5 for hour in range(7 * 24 - 8)]
    return [round(rate / sum(rates) * WEEK_LISTS) for rate in rates]


def week() -> Ranker:
    """Return a shop after a week, which ranks by its priors and clicks for five days and fairly from then on."""
    clock, rng = SetClock(), np.random.default_rng(3)
    ranker = Ranker("memory:", clock=clock, summary_interval=0, policy="TopK")
    shelves = [stocked(rng, query) for query in range(QUERIES)]
    for hour, count in enumerate(lists_by_hour()):
        ranker.worker.summarize()  # records the figures of the hour before
        clock.now = START + hour * HOUR
        if hour == 5 * 24:
            ranker.change_policy(policy="MCFair(alpha=50, beta=0.5, guard=0.8)")
        for i in range(count):
            clock.now = START + hour * HOUR + i * HOUR // count
            query = min(int(rng.pareto(1.0) * 6), QUERIES - 1)
            sell(ranker, rng, f"query {query}", shelves[query])
    ranker.worker.summarize()
    return ranker


def sell(ranker: Ranker, rng: np.random.Generator, query: str, shelf: Shelf) -> None:
    """Serve one shopper, who clicks by rank and relevance."""
    answer = ranker.rank(query, shelf.items, k=RANKS)
    clicked = [each.id for each in answer.items if rng.random() < shelf.relevance[each.id] / math.log2(each.rank + 1)]
    ranker.feedback([{"impression": answer.impression, "item": item} for item in clicked])


def live() -> Ranker:
    """Return the shop of `mcfair demo --live` after some lists."""
    ranker = Ranker("memory:", clock=SetClock(), summary_interval=0, policy=FIRST)
    shop = Shop(ranker)
    while shop.lists < LIVE_LISTS:
        shop.visit()
    return ranker


# --- pictures --------------------------------------------------------------------------------------------------------


class Screenshot(NamedTuple):
    """A picture: the shop, the page, and its size; without a height it ends below the first charts."""

    shop: Callable[[], Ranker]
    page: str
    width: int
    height: int | None = None


SCREENSHOTS = {
    "dashboard.png": Screenshot(week, "/", 1120),
    "items.png": Screenshot(live, "/items", 1000, 900),
}
"""The pictures by their path in docs."""

BELOW_CHARTS = "document.querySelector('.grid').getBoundingClientRect().bottom + scrollY + 12"


def photograph(window: Any, url: str, screenshot: Screenshot) -> Image.Image:
    """Open a page and return its picture, with few colours: the files are small."""
    with window(url + screenshot.page, screenshot.width, 900) as opened:
        if opened.status != 200:
            sys.exit(f"{screenshot.page} has the status {opened.status}")
        height = screenshot.height or opened.value(BELOW_CHARTS)
        clip = {"x": 0, "y": 0, "width": screenshot.width, "height": height}
        taken = opened.page.screenshot(clip=clip, full_page=True)
    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    return picture.quantize(64, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def live_figures(ranker: Ranker) -> dict[str, Any]:
    """Return the figures that the tutorial quotes from the picture of items and groups."""
    seller = next(each for each in ranker.fairness().groups if each.group == NEW_SELLER)
    (item,) = ranker.exposed_items(order="under", limit=1).items
    return {
        "lists": LIVE_LISTS,
        "seller": {"name": seller.group, "exposure": seller.exposure_share, "merit": seller.merit_share},
        "item": {"name": item.id, "exposure": item.exposure_share, "merit": item.merit_share},
    }


def main() -> None:
    """Draw all pictures and write the figures that are quoted from them."""
    if CHROMIUM is None:
        sys.exit("there is no Chromium (chromium, chromium-browser or google-chrome): the pictures stay as they are")
    found: dict[str, Any] = {"made_with": origin("python docs/make_screenshots.py")}
    with browsing() as window:
        for name, screenshot in SCREENSHOTS.items():
            with screenshot.shop() as ranker, serving(ranker) as client:
                picture = photograph(window, str(client.base_url).rstrip("/"), screenshot)
                if screenshot.shop is live:
                    found["live"] = live_figures(ranker)
            picture.save(DOCS / name, optimize=True)
            print(f"docs/{name}: {(DOCS / name).stat().st_size:,} bytes", flush=True)
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (RESULTS / "screenshots.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
