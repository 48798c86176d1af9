"""Fits of the prior of a pooled estimator: to the counts of the queries in memory, each a new version of the rules.

A fit is no function of the log: what it found is written into the version, so that decisions can be repeated.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...estimators.base import Estimator
from .engine_state import EngineState

__all__ = ["FitOperations", "PooledCounts"]

POOLED_QUERIES, POOLED_RANKS = 256, 64
"""Queries, those used last, and ranks whose counts are pooled. They bound the time of collecting them."""

LEAST_CLICKS = 10
"""Clicks below which nothing is fitted: without any, every item would be taken for irrelevant."""


class PooledCounts(NamedTuple):
    """An estimator and the counts of the items of many queries to fit it to, as `Estimator.fit` takes them."""

    estimator: Estimator
    C: FloatArray
    E: FloatArray
    views: FloatArray
    p: FloatArray
    visits: int

    def fit(self) -> Estimator:
        """Return the estimator with its prior fitted; any thread may call it."""
        return self.estimator.refit(self.C, self.E, self.views, self.p)  # type: ignore[arg-type]  # counts may decay


class FitOperations(EngineState):
    """The operations on the prior of a pooled estimator."""

    def due_fit(self) -> PooledCounts | None:
        """Return the counts for a fit if one is due: visits grew by a share, and by one per query, since the last.

        Visits are those of the pooled queries. Sums that have to be computed anew first, such as after a change of the
        rules, are left out.
        """
        version = self.version
        if not version.estimator.pooled or not self.store.leads():
            return None
        recent = list(itertools.islice(reversed(self.ledgers.values()), POOLED_QUERIES))
        visits, before = sum(each.visits for each in recent), version.fitted_visits
        if visits < max(before * (1.0 + version.estimator.growth), before + len(recent)) or not visits:
            return None
        found = []
        for ledger in recent:
            if ledger.counts.weighting is not None:
                rows = np.array(list(ledger.index.values()), np.int64)
                found.append(ledger.maturation.by_rank(rows, POOLED_RANKS, version.examination))
        if not found:
            return None
        C, E, views = (np.concatenate([part[i] for part in found]) for i in range(3))
        if C.sum() < LEAST_CLICKS:
            return None
        return PooledCounts(version.estimator, C, E, views, found[0][3], visits)

    def set_prior(self, fitted: Estimator, visits: int) -> None:
        """Put a fitted prior in force, unless the rules have another estimator, or a prior of as many visits, by now.

        Another instance may have taken over the fits, and finished one, while this prior was fitted.
        """
        if visits > self.version.fitted_visits and fitted.same_but_fitted(self.version.estimator):
            self.activate(self.version.rules, repr(fitted), visits)

    def fit(self) -> None:
        """Fit the prior now if a fit is due; the engine waits for it."""
        if (counts := self.due_fit()) is not None:
            self.set_prior(counts.fit(), counts.visits)
