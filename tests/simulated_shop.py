"""A simulated shop in front of an engine: sessions whose clicks depend on relevance and rank, on a simulated clock."""

import msgspec
import numpy as np

from mcfair.service.core.engine import Engine
from mcfair.service.core.rules import change_rules
from mcfair.service.stores import SQLiteStore
from mcfair.service.wire import Event, RawRankRequest

START = 1_700_000_000_000


class Shop:
    """Queries with items of known relevance, in two groups; `visit` is one list, and the clicks on it."""

    def __init__(self, seed, *, queries=10, items=6, k=3, store=None, **rules):
        self.rng = np.random.default_rng(seed)
        self.R = self.rng.beta(1.0, 2.0, (queries, items))
        self.k, self.p, self.clock = k, 1.0 / np.log2(np.arange(k) + 2.0), START
        self.raw = msgspec.Raw(msgspec.json.encode([{"id": f"i{i}", "group": "AB"[i % 2]} for i in range(items)]))
        self.store, self.rules = store or SQLiteStore(None), {"retention": 1e6} | rules
        self.open()

    def open(self):
        policy = self.rules.get("policy")
        settings = {name: value for name, value in self.rules.items() if name != "policy"}
        self.engine = Engine(
            self.store, lambda stored: change_rules(stored, policy, settings), clock=lambda: self.clock
        )

    def rank(self, query, session=None, key=None, **options):
        self.clock += 1_000
        request = RawRankRequest(query=f"q{query}", items=self.raw, k=self.k, session=session, **options)
        return self.engine.rank(request, key)

    def visit(self, session=None, **options):
        """Show a list for a random query; report the clicks of a user who examines and clicks by relevance."""
        query = int(self.rng.integers(len(self.R)))
        answer = self.rank(query, session, **options)
        items = [int(item.id[1:]) for item in answer.items]
        hits = np.flatnonzero(self.rng.random(self.k) < self.p * self.R[query, items])
        if hits.size:
            self.engine.feedback([Event(impression=answer.impression, item=answer.items[j].id) for j in hits])
        return answer

    def sessions(self, number, lists=3):
        """Play sessions of several lists each."""
        for i in range(number):
            for _ in range(lists):
                self.visit(f"session {i}")


def experiment(policy, share=0.5, **more):
    """Return an experiment with one arm besides the control."""
    return {"name": "test", "arms": [{"name": "other", "policy": policy, "share": share}], **more}
