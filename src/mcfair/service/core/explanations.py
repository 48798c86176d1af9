"""Explanations of lists: a decision is repeated from the log, so that its explanation is exact."""

from __future__ import annotations

import numpy as np

from ...errors import NotFoundError
from ...estimators.base import relevance_intervals
from ..stores import KIND_IMPRESSION, LogEntry, Store
from ..wire import ExplainedItem, Explanation, Inputs, OmittedItem
from .decision import Decision
from .experiments import arm_name
from .ids import IdSigner, Position
from .ledger import Ledger
from .reasons import Reasons, reasons_for
from .records import Candidates, Impression, decode_impression, decode_positions, is_clicked, is_exposed
from .reports import to_datetime
from .repository import LedgerRepository

MAX_OMITTED = 100
"""Maximum number of candidates outside the list that an explanation has."""


def explain(store: Store, impression: str) -> Explanation:
    """Explain a list, given by the id of its impression.

    Raises
    ------
    NotFoundError
        If there is no such impression, or it has expired.
    ConflictError
        If its policy is not known here.
    """
    position = IdSigner(store.secret).position(impression)
    if position is None:
        raise NotFoundError("there is no such impression")
    with store.read_transaction():
        return explain_entry(LedgerRepository(store), position.number, find_impression(store, position), impression)


def find_impression(store: Store, position: Position) -> LogEntry:
    """Return the log entry of an impression; raise NotFoundError if there is none, or if it has another epoch."""
    entry = None
    if store.key_of(position.number) is not None:
        if position.seq <= store.base(position.number):
            raise NotFoundError("this impression has expired")
        entry = store.entry(position.number, position.seq)
    if entry is None or entry.kind != KIND_IMPRESSION or decode_impression(entry.body).epoch != position.epoch:
        raise NotFoundError("there is no such impression")
    return entry


def explain_entry(repository: LedgerRepository, number: int, entry: LogEntry, impression: str) -> Explanation:
    """Explain the list of a log entry, without the names of items whose deletion is under way."""
    ledger = repository.ledger(number, entry)
    for row in repository.rows_to_delete(ledger):
        ledger.name_row(row, None, None)
    impressed = decode_impression(entry.body)
    decision, candidates, version = repository.repeat_decision(ledger, entry)
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
