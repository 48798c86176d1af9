"""The engine: all operations of the service, without threads and without a network.

The caller runs operations one at a time, inside a transaction of the store. Every operation reads and decides first and
writes last, so an operation that raises one of our errors has written nothing and the transaction can go on.
"""

from __future__ import annotations

import numpy as np

from ...errors import NotFoundError
from ...estimators.base import relevance_intervals
from ..wire import ExplainedItem, Explanation, Inputs, QueryState
from .compaction import CompactionOperations
from .decision import WEIGHTS, counterfactual, sentence
from .feedback import FeedbackOperations
from .fits import FitOperations
from .keys import KeyOperations
from .ranking import RankOperations
from .records import decode_impression, decode_positions, is_clicked, is_exposed
from .reports import query_state, to_datetime

__all__ = ["Engine"]


class Engine(RankOperations, FeedbackOperations, CompactionOperations, KeyOperations, FitOperations):
    """Every operation of the service; see `EngineState` for the parameters."""

    def explain(self, impression: str) -> Explanation:
        """Explain a list. The decision is repeated from the log, so the explanation is exact."""
        position = self.ids.position(impression)
        entry = None if position is None else self.find_impression(position)
        if position is None or entry is None:
            expired = self.is_compacted(position)
            raise NotFoundError("this impression has expired" if expired else "there is no such impression")
        if self.deletions:
            self.ledger(position.number)  # deletes items whose deletion is under way
        ledger = self.repository.ledger(position.number, entry)
        impressed = decode_impression(entry.body)
        decision, candidates, version = self.repository.repeat_decision(ledger, entry)
        policy, q, rng = version.policy, decision.view, ledger.draws(version.rules.seed)
        terms, (low, high) = decision.terms(policy), relevance_intervals(q.R, q.uncertainty)
        others = {term: ranks for term in WEIGHTS if (ranks := counterfactual(policy, decision, rng, term)) is not None}
        bits = dict(zip(decode_positions(impressed.shown).tolist(), impressed.bits(entry.bits), strict=True))
        n = candidates.rows.size
        items = []
        for j, i in enumerate(decision.pi.tolist()):
            row = int(candidates.rows[i])
            own = {name: float(values[i]) for name, values in terms.items()}
            without = {name: int(ranks[i]) for name, ranks in others.items()}
            prior = float(candidates.priors[i])
            items.append(
                ExplainedItem(
                    id=ledger.ids[row],
                    rank=j + 1,
                    score=None if decision.scores is None else float(decision.scores[i]),
                    terms=own,
                    inputs=Inputs(
                        relevance=float(q.R[i]),
                        interval=[float(low[i]), float(high[i])],
                        exposure=float(q.E[i]),
                        clicks=ledger.clicks(row),
                        prior=None if np.isnan(prior) else prior,
                    ),
                    without=without,
                    shown=is_exposed(bits.get(i, 0)),
                    clicked=is_clicked(bits.get(i, 0)),
                    sentence=sentence(j + 1, n, own, without),
                )
            )
        return Explanation(
            impression=impression,
            query_id=ledger.key.hex(),
            policy=version.rules.policy,
            version=version.number,
            ranked_at=to_datetime(entry.time),
            visits=ledger.visits,
            candidates=n,
            deferred=impressed.deferred,
            shadow=impressed.policy_list is not None,
            items=items,
            summary=f"{policy.label} ranked {len(items)} of {n} items; the query had {ledger.visits} earlier visits.",
        )

    def query_state(self, query: str | None = None, query_id: str | None = None) -> QueryState:
        """Return the observations of a query, given by its text or its id."""
        return query_state(self.find_ledger(query, query_id), self.version, self.now())
