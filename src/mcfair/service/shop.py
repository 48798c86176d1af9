"""A simulated shop in front of a service: shoppers search, read the list from the top and click on what they like."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..data.catalogue import synthetic
from ..random import ARRIVALS, CLICKS, draws, uniform
from ..users import ClickModel, PositionBased
from ..users.examination import examination
from .methods import Methods

QUERIES = (
    "rain jacket",
    "trail shoes",
    "headlamp",
    "tent for two",
    "camping stove",
    "sleeping bag",
    "water bottle",
    "climbing rope",
    "bike light",
    "wool socks",
    "sun hat",
    "daypack",
)
SELLERS = {"established": "Alder Outdoor", "newcomer": "Birch & Sons"}
"""The sellers whose goods are of the same merit, by the providers of the profile "marketplace"."""

NEW_SELLER, NEW_RELEVANCE = "Cedar Supply", 0.9
"""The seller who comes later, and how relevant each of its goods is."""

FIRST, FAIR = "TopK(beta=0.1)", "MCFair(alpha=1, beta=3, alpha_group=1)"
"""The policy that the shop opens with, and the one that it changes to."""

NEWCOMER_LISTS, CHANGE_LISTS = 400, 800
"""After how many lists the new seller arrives and the policy changes."""

RANKS = 5


class Shelf(NamedTuple):
    """The candidates of one query: as a request names them, and how relevant they really are."""

    items: list[dict[str, str]]
    relevance: FloatArray


class Shop:
    """A shop of twelve queries and two sellers of the same merit, to whom a third one is added.

    Parameters
    ----------
    service
        What ranks: a `Client` of a service, or a `Ranker`.
    clicks
        How shoppers click.
    seed
        Seed of what they search for and click on.
    report
        Called with a sentence about what changes.

    Examples
    --------
    >>> from mcfair import Ranker
    >>> with Ranker("memory:", policy=FIRST) as ranker:
    ...     shop = Shop(ranker)
    ...     for _ in range(3):
    ...         shop.visit()
    ...     ranker.fairness().visits
    3
    """

    def __init__(
        self,
        service: Methods,
        *,
        clicks: ClickModel | None = None,
        seed: int = 0,
        report: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.service, self.clicks, self.seed, self.report = service, clicks or PositionBased(), seed, report
        self.p = self.clicks.examined(examination(RANKS))
        self.shelves = opening_shelves(seed)
        self.lists = 0

    def visit(self) -> None:
        """Serve one shopper, after what changes at this moment has changed."""
        if self.lists == NEWCOMER_LISTS:
            self.admit_seller()
        if self.lists == CHANGE_LISTS:
            policy = self.service.change_policy(policy=FAIR).policy
            self.report(f"the policy is now {policy}")
        place = int(uniform(draws(self.seed, ARRIVALS, visit=self.lists), 0) * len(QUERIES))
        shelf = self.shelves[place]
        answer = self.service.rank(QUERIES[place], shelf.items, k=RANKS)
        ids = [item["id"] for item in shelf.items]
        pi = np.array([ids.index(item.id) for item in answer.items])
        hits = self.clicks.clicks(pi, shelf.relevance, self.p, draws(self.seed, CLICKS, place, self.lists))
        if hits.any():
            self.service.feedback({"impression": answer.impression, "item": ids[d]} for d in pi[hits].tolist())
        self.lists += 1

    def admit_seller(self) -> None:
        """Add an item of the new seller to every shelf."""
        for place, shelf in enumerate(self.shelves):
            item = {"id": f"{QUERIES[place]} by {NEW_SELLER}", "group": NEW_SELLER}
            self.shelves[place] = Shelf([*shelf.items, item], np.append(shelf.relevance, NEW_RELEVANCE))
        self.report(f"a new seller, {NEW_SELLER}, has an item for every query")


def opening_shelves(seed: int) -> list[Shelf]:
    """Return the candidates of each query before the new seller arrives."""
    data = synthetic("marketplace", seed=seed)
    assert data.providers is not None
    shelves = []
    for place, query in enumerate(QUERIES):
        rows = range(int(data.offsets[place]), int(data.offsets[place + 1]))
        sellers = [SELLERS[data.provider_name(int(data.providers[row]))] for row in rows]
        items = [{"id": f"{query} {1 + d // 2} by {seller}", "group": seller} for d, seller in enumerate(sellers)]
        shelves.append(Shelf(items, data.R[rows.start : rows.stop].copy()))
    return shelves
