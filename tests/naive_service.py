"""The service's books straight from their definition: a list of impressions, summed up anew for every question."""

from dataclasses import dataclass, field

import numpy as np

SHOWN, UNSHOWN, CLICKED, UNCLICKED = "shown", "unshown", "clicked", "unclicked"


@dataclass
class Shown:
    """One impression: who stood where, which examination held, and what is known of each rank."""

    time: int
    items: list
    p: list
    examination: int
    retention: int
    known: list = field(default_factory=list)
    forgotten: bool = False

    def exposed(self, rank):
        return SHOWN in self.known[rank] and UNSHOWN not in self.known[rank]

    def clicked(self, rank):
        return self.exposed(rank) and CLICKED in self.known[rank] and UNCLICKED not in self.known[rank]


@dataclass
class Newcomer:
    """What an item entered with."""

    level: float
    time: int


class NaiveQuery:
    """Impressions of one query, and its items: an item that was deleted and comes back is another one."""

    def __init__(self):
        self.impressions = []
        self.items = {}  # id -> its latest incarnation, an object
        self.priors = {}
        self.groups = {}
        self.entered = {}

    def known(self):
        return list(self.items)


class Incarnation:
    pass


class NaiveService:
    def __init__(self, *, strength, maturation, half_life, newcomer_exposure, retention):
        self.strength, self.maturation, self.half_life, self.newcomer_exposure, self.retention = (
            strength, maturation, half_life, newcomer_exposure, retention,
        )  # fmt: skip
        self.queries = {}

    # --- what is derived ---------------------------------------------------------------------------------------------

    def bucket(self, time):
        step = max(1, self.half_life // 4)
        return time // step * step

    def weight(self, time, now):
        if not self.half_life:
            return 1.0
        return 2.0 ** (-(self.bucket(now) - self.bucket(time)) / self.half_life)

    def counts(self, query, item, now, settled):
        """Exposure and clicks of one item: counted in whole numbers first, weighed in the order of ranks."""
        me = self.queries[query].items[item]
        F, C = {}, {}
        for impression in self.queries[query].impressions:
            if impression.forgotten or (settled and impression.time + self.maturation > now):
                continue
            for rank, who in enumerate(impression.items):
                if who is me:
                    block = (self.bucket(impression.time) if self.half_life else 0, impression.examination)
                    cell = F.setdefault(block, {}).setdefault(rank, [0, impression.p[rank], impression.time])
                    cell[0] += impression.exposed(rank)
                    C[block] = C.get(block, 0) + impression.clicked(rank)
        E = clicks = 0.0
        for block in sorted(F):
            e = 0.0
            for rank in sorted(F[block]):
                count, p, time = F[block][rank]
                weight = self.weight(time, now)
                e += count * (p * weight)
            E += e
            clicks += weight * C[block]
        return E, clicks

    def relevance(self, query, item, now, prior):
        E, C = self.counts(query, item, now, settled=True)
        s = self.strength if prior is not None else 0.0
        return (C + s * (prior or 0.0)) / (E + s) if E + s > 0 else 0.0

    def exposure(self, query, item, now, R):
        E, _ = self.counts(query, item, now, settled=False)
        newcomer = self.queries[query].entered.get(self.queries[query].items[item])
        credit = newcomer.level * self.weight(newcomer.time, now) * R if newcomer else 0.0
        return E + credit

    def view(self, query, items, priors, now):
        """R and E of candidates."""
        R = np.array([self.relevance(query, item, now, prior) for item, prior in zip(items, priors, strict=True)])
        E = np.array([self.exposure(query, item, now, r) for item, r in zip(items, R, strict=True)])
        return R, E

    def state(self, query, now):
        """What there is to be read of a query: (exposure, clicks, relevance) by item."""
        book = self.queries[query]
        return {
            item: (*self.counts(query, item, now, settled=False), self.relevance(query, item, now, book.priors[item]))
            for item in book.known()
        }

    # --- what happens ------------------------------------------------------------------------------------------------

    def meet(self, query, items, priors, now):
        """Let candidates in."""
        book = self.queries.setdefault(query, NaiveQuery())
        old = [i for i, item in enumerate(items) if item in book.items]
        level = 0.0
        if self.newcomer_exposure == "fair" and book.impressions and old:
            R, E = self.view(query, [items[i] for i in old], [priors[i] for i in old], now)
            level = float(E @ R / (R @ R)) if R @ R > 0 else 0.0
        for item, prior in zip(items, priors, strict=True):
            if item not in book.items:
                book.items[item] = Incarnation()
                book.entered[book.items[item]] = Newcomer(level, now)
            book.priors[item] = prior
        return book

    def show(self, query, shown, p, examination, now, deferred):
        """Write an impression down; return it."""
        book = self.queries[query]
        for each in book.impressions:
            each.forgotten |= self.weight(each.time, now) < 2.0**-10
        known = [set() if deferred else {SHOWN} for _ in shown]
        made = Shown(now, [book.items[item] for item in shown], p, examination, self.retention, known)
        book.impressions.append(made)
        return made

    def mark(self, query, impression, ranks, what, now):
        """Take feedback in; return its status."""
        if query not in self.queries or impression not in self.queries[query].impressions:
            return "unknown_impression"
        if now >= impression.time + impression.retention:
            return "expired"
        if not all(0 <= rank < len(impression.items) for rank in ranks):
            return "not_in_impression"
        if all(what in impression.known[rank] for rank in ranks):
            return "duplicate"
        for rank in ranks:
            impression.known[rank].add(what)
        return "applied"

    def rank_of(self, query, impression, item):
        """Where an item stands in an impression; none if it is another incarnation."""
        me = self.queries[query].items.get(item) if query in self.queries else None
        return impression.items.index(me) if me in impression.items else None

    def delete_item(self, item):
        queries = [book for book in self.queries.values() if item in book.items]
        for book in queries:
            del book.items[item]
            book.priors.pop(item, None)
        return len(queries)
