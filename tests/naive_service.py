"""A naive model of the service, straight from the definitions: a list of impressions, summed anew every time."""

from dataclasses import dataclass, field

import numpy as np

SHOWN, UNSHOWN, CLICKED, UNCLICKED = "shown", "unshown", "clicked", "unclicked"


@dataclass
class NaiveImpression:
    """One impression: the items by rank, the examination probabilities, and the feedback on each rank."""

    time: int
    items: list
    p: list
    examination: int
    retention: int
    known: list = field(default_factory=list)
    negligible: bool = False
    imported: bool = False  # its clicks have arrived, so that it is never pending

    def exposed(self, rank):
        return SHOWN in self.known[rank] and UNSHOWN not in self.known[rank]

    def clicked(self, rank):
        return (
            self.p[rank] > 0
            and self.exposed(rank)
            and CLICKED in self.known[rank]
            and UNCLICKED not in self.known[rank]
        )


@dataclass
class Newcomer:
    """The starting exposure of an item, per unit of relevance."""

    exposure_rate: float
    time: int


class NaiveQuery:
    """The impressions of one query, and its items: an item that was deleted and added again is a new one."""

    def __init__(self):
        self.impressions = []
        self.items = {}  # id -> its latest incarnation, an object
        self.priors = {}
        self.groups = {}
        self.entered = {}
        self.sources = set()
        self.used = {}  # incarnation -> when it was last a candidate

    def known(self):
        return list(self.items)


class Incarnation:
    pass


class NaiveService:
    """The service as a model: no store, no caches, no snapshots."""

    def __init__(self, *, strength, maturation, half_life, newcomer_exposure, retention):
        self.strength, self.maturation, self.half_life, self.newcomer_exposure, self.retention = (
            strength, maturation, half_life, newcomer_exposure, retention,
        )  # fmt: skip
        self.queries = {}

    # --- derived values ----------------------------------------------------------------------------------------------

    def bucket(self, time):
        step = max(1, self.half_life // 4)
        return time // step * step

    def weight(self, time, now):
        if not self.half_life:
            return 1.0
        return 2.0 ** (-(self.bucket(now) - self.bucket(time)) / self.half_life)

    def counts(self, query, item, now, matured):
        """Return exposure and clicks of one item: counted as integers first, then weighted in the order of ranks."""
        incarnation = self.queries[query].items[item]
        F, C = {}, {}
        for impression in self.queries[query].impressions:
            pending = matured and not impression.imported and impression.time + self.maturation > now
            if impression.negligible or pending:
                continue
            for rank, shown in enumerate(impression.items):
                if shown is incarnation:
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
        E, C = self.counts(query, item, now, matured=True)
        s = self.strength if prior is not None else 0.0
        return (C + s * (prior or 0.0)) / (E + s) if E + s > 0 else 0.0

    def exposure(self, query, item, now, R):
        E, _ = self.counts(query, item, now, matured=False)
        newcomer = self.queries[query].entered.get(self.queries[query].items[item])
        credit = newcomer.exposure_rate * self.weight(newcomer.time, now) * R if newcomer else 0.0
        return E + credit

    def view(self, query, items, priors, now):
        """Return R and E of candidates."""
        R = np.array([self.relevance(query, item, now, prior) for item, prior in zip(items, priors, strict=True)])
        E = np.array([self.exposure(query, item, now, r) for item, r in zip(items, R, strict=True)])
        return R, E

    def state(self, query, now):
        """Return (exposure, clicks, relevance) by item."""
        data = self.queries[query]
        return {
            item: (*self.counts(query, item, now, matured=False), self.relevance(query, item, now, data.priors[item]))
            for item in data.known()
        }

    # --- operations --------------------------------------------------------------------------------------------------

    def admit(self, query, items, priors, now):
        """Admit candidates, with the starting exposure of newcomers."""
        data = self.queries.setdefault(query, NaiveQuery())
        old = [i for i, item in enumerate(items) if item in data.items]
        exposure_rate = 0.0
        if self.newcomer_exposure == "fair" and data.impressions and old:
            R, E = self.view(query, [items[i] for i in old], [priors[i] for i in old], now)
            exposure_rate = float(E @ R / (R @ R)) if R @ R > 0 else 0.0
        for item, prior in zip(items, priors, strict=True):
            if item not in data.items:
                data.items[item] = Incarnation()
                data.entered[data.items[item]] = Newcomer(exposure_rate, now)
            data.priors[item] = prior
            data.used[data.items[item]] = now
        return data

    def show(self, query, shown, p, examination, now, deferred):
        """Record an impression; return it."""
        data = self.queries[query]
        for each in data.impressions:
            each.negligible |= self.weight(each.time, now) < 2.0**-10
        known = [set() if deferred else {SHOWN} for _ in shown]
        made = NaiveImpression(now, [data.items[item] for item in shown], p, examination, self.retention, known)
        data.impressions.append(made)
        return made

    def import_lists(self, query, source, lists, p, examination, now):
        """Import lists of (item, clicked) by rank; return the status."""
        data = self.queries.setdefault(query, NaiveQuery())
        if source in data.sources:
            return "duplicate"
        data.sources.add(source)
        for shown in lists:
            for item, _ in shown:
                if item not in data.items:
                    data.items[item], data.priors[item] = Incarnation(), None
                data.used[data.items[item]] = now
            made = self.show(query, [item for item, _ in shown], p, examination, now, deferred=False)
            made.imported = True
            for known, (_, clicked) in zip(made.known, shown, strict=True):
                known.update({CLICKED} if clicked else set())
        return "imported"

    def apply_feedback(self, query, impression, ranks, what, now):
        """Apply feedback; return its status."""
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
        """Return the rank of an item in an impression; None if it is another incarnation."""
        incarnation = self.queries[query].items.get(item) if query in self.queries else None
        return impression.items.index(incarnation) if incarnation in impression.items else None

    def is_idle(self, query, item, now):
        """Return whether an item may be deleted: never shown or clicked, and no candidate of a live impression."""
        used = self.queries[query].used[self.queries[query].items[item]]
        return self.counts(query, item, now, matured=False) == (0.0, 0.0) and used + self.retention <= now

    def delete_idle(self, query, item):
        del self.queries[query].items[item]
        del self.queries[query].priors[item]

    def delete_item(self, item):
        queries = [data for data in self.queries.values() if item in data.items]
        for data in queries:
            del data.items[item]
            data.priors.pop(item, None)
        return len(queries)
