"""Fits of the prior of a pooled estimator: to the counts of the queries used last, each a new version of the rules.

A fit is no function of the log: what it found is written into the version, so that decisions can be repeated.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...estimators.base import Estimator
from ..stores import Store, StoreCorruptError, StoredSummary
from .installing import FittedPrior
from .ledger import Ledger
from .repository import LedgerRepository

POOLED_QUERIES, POOLED_RANKS = 256, 64
"""Queries, those used last, and ranks whose counts are pooled. They bound the time of collecting them."""

LEAST_CLICKS = 10
"""Clicks below which nothing is fitted: without any, every item would be taken for irrelevant."""

PAGE, REMEMBERED = 256, 4_096
"""Queries that are read at a time, and those of which the visits at the last fit are remembered."""


class PooledCounts(NamedTuple):
    """An estimator and the counts of the items of many queries to fit it to, as `Estimator.fit` takes them."""

    estimator: Estimator
    C: FloatArray
    E: FloatArray
    views: FloatArray
    p: FloatArray
    visits: dict[int, int]
    """Visits of the pooled queries by number."""
    before: str | None
    """The fitted prior of the rules in force, as they were read with the counts."""

    def fit(self) -> Estimator:
        """Return the estimator with its prior fitted."""
        return self.estimator.refit(self.C, self.E, self.views, self.p)  # type: ignore[arg-type]  # counts may decay


class PriorFits:
    """Decides when a fit is due, and collects its counts.

    A fit is due when the visits that the last one has not seen, of the queries used last, are a share of those that it
    has seen, and one per query. Queries that have been left since do not hide what is new of the others.
    """

    def __init__(self) -> None:
        self.fitted: str | None = None  # the prior whose fit has `seen` so many visits of each query
        self.seen: dict[int, int] = {}

    def due(self, store: Store, now: int) -> PooledCounts | None:
        """Return the counts for a fit if one is due."""
        repository = LedgerRepository(store)
        version = repository.in_force
        if not version.estimator.pooled:
            return None
        visits = {}
        for number, summary in used_last(store, POOLED_QUERIES):
            if summary is not None:
                visits[number] = summary.visits
            elif (ledger := readable(repository, number)) is not None:
                visits[number] = ledger.visits
        total = sum(visits.values())
        if version.fitted != self.fitted:  # fitted by another process: what it has seen of each query is not known
            share = min(1.0, version.fitted_visits / max(1, total))
            self.seen = {number: round(share * each) for number, each in visits.items()}
            self.fitted = version.fitted
        unseen = sum(max(0, each - self.seen.get(number, 0)) for number, each in visits.items())
        before = max(version.fitted_visits, sum(self.seen.get(number, 0) for number in visits))
        if not unseen or unseen < max(before * version.estimator.growth, len(visits)):
            return None
        found = []
        for number in visits:
            if (ledger := readable(repository, number)) is not None:
                ledger.refresh(version, max(now, ledger.time))
                rows = np.array(list(ledger.index.values()), np.int64)
                found.append(ledger.maturation.by_rank(rows, POOLED_RANKS, version.examination))
        if not found:
            return None
        C, E, views = (np.concatenate([part[i] for part in found]) for i in range(3))
        if C.sum() < LEAST_CLICKS:
            return None
        return PooledCounts(version.estimator, C, E, views, found[0][3], visits, version.fitted)

    def step(self, store: Store, now: int, install: Callable[[FittedPrior], bool]) -> None:
        """Fit the prior if that is due, and install it. A fit that fails is tried again when the next one is due."""
        counts = self.due(store, now)
        if counts is not None:
            self.seen = dict(list((self.seen | counts.visits).items())[-REMEMBERED:])
            fitted = repr(counts.fit())
            if install(FittedPrior(counts.before, fitted, sum(counts.visits.values()))):
                self.fitted = fitted


def readable(repository: LedgerRepository, number: int) -> Ledger | None:
    """Load a query, None if it was deleted meanwhile or is damaged, which is logged by what reports on it."""
    try:
        return repository.reported_ledger(number)
    except StoreCorruptError:
        return None


def used_last(store: Store, limit: int) -> list[tuple[int, StoredSummary | None]]:
    """Return the queries that were used last, with their summaries where those are current.

    When one was used follows from its summary if that is current, else from the end of its log.
    """
    newest: list[tuple[int, int, StoredSummary | None]] = []
    last = 0
    while page := store.summaries(last, PAGE):
        for number, head, summary in page:
            if summary is not None and summary.seq == head:
                newest.append((summary.time, number, summary))
            else:
                entry = store.entry(number, head)
                newest.append((0 if entry is None else entry.time, number, None))
        last = page[-1][0]
        newest = heapq.nlargest(limit, newest, key=lambda each: each[:2])
    return [(number, summary) for _, number, summary in newest]
