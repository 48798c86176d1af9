"""The engine: all operations of the service, without threads and without a network.

The caller runs operations one at a time, inside a transaction of the store. Every operation reads and decides first and
writes last, so an operation that raises one of our errors has written nothing and the transaction can go on.
"""

from __future__ import annotations

import numpy as np

from ...errors import NotFoundError
from ...estimators.base import relevance_intervals
from ..stores import LogEntry
from ..wire import MAX_ITEMS, ExplainedItem, Explanation, Inputs, OmittedItem, QueryState
from .arm_guards import ArmGuardOperations
from .compaction import CompactionOperations
from .decision import Decision
from .experiments import arm_name
from .feedback import FeedbackOperations
from .fits import FitOperations
from .importing import ImportOperations
from .keys import KeyOperations
from .ledger import Ledger
from .ranking import RankOperations
from .reasons import Reasons, reasons_for
from .records import Candidates, Impression, decode_impression, decode_positions, is_clicked, is_exposed
from .reports import query_state, to_datetime

__all__ = ["Engine"]

MAX_OMITTED = 100
"""Maximum number of candidates outside the list that an explanation has."""


class Engine(
    RankOperations,
    FeedbackOperations,
    CompactionOperations,
    ImportOperations,
    KeyOperations,
    FitOperations,
    ArmGuardOperations,
):
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
        reasons = reasons_for(version, ledger, candidates, decision)
        items = explained_items(ledger, candidates, decision, reasons, impressed, entry)
        n, label = candidates.rows.size, version.policy.label
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
            arm=arm_name(version.rules.experiment, impressed.assignment),
            items=items,
            omitted=omitted_items(ledger, candidates, decision, reasons),
            summary=f"{label} ranked {len(items)} of {n} items; the query had {ledger.visits} earlier visits.",
        )

    def query_state(self, query: str | None = None, query_id: str | None = None, after: int = 0) -> QueryState:
        """Return the observations of a query, given by its text or its id; of its items one page."""
        return query_state(self.find_ledger(query, query_id), self.version, self.now(), after, MAX_ITEMS)


def explained_items(
    ledger: Ledger, candidates: Candidates, decision: Decision, reasons: Reasons, impressed: Impression, entry: LogEntry
) -> list[ExplainedItem]:
    """Build the explanation of each item of a list, in order."""
    q, terms = decision.view, {name: values.tolist() for name, values in decision.terms(reasons.policy).items()}
    bits = dict(zip(decode_positions(impressed.shown).tolist(), impressed.bits(entry.bits), strict=True))
    items = []
    low, high = (ends.tolist() for ends in relevance_intervals(q.R, q.uncertainty))
    relevance, exposure = q.R.tolist(), q.E.tolist()
    for j, i in enumerate(decision.pi.tolist()):
        row, prior = int(candidates.rows[i]), float(candidates.priors[i])
        items.append(
            ExplainedItem(
                id=ledger.ids[row],
                rank=j + 1,
                score=None if decision.scores is None else float(decision.scores[i]),
                terms={name: values[i] for name, values in terms.items()},
                inputs=Inputs(
                    relevance=relevance[i],
                    interval=[low[i], high[i]],
                    exposure=exposure[i],
                    clicks=ledger.clicks(row),
                    prior=None if np.isnan(prior) else prior,
                ),
                without=reasons.without(i),
                shown=is_exposed(bits.get(i, 0)),
                clicked=is_clicked(bits.get(i, 0)),
                sentence=reasons.sentence(i),
            )
        )
    return items


def omitted_items(ledger: Ledger, candidates: Candidates, decision: Decision, reasons: Reasons) -> list[OmittedItem]:
    """Build the explanation of the best candidates that are not in a list."""
    return [
        OmittedItem(
            id=ledger.ids[candidates.rows[i]],
            rank=reasons.rank(i) or None,
            without=reasons.without(i),
            sentence=reasons.sentence(i),
        )
        for i in reasons.order()[decision.pi.size :][:MAX_OMITTED]
    ]
