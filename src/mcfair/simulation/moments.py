"""The moments at which a run stops to learn from all queries at once: a policy prepares, an estimator is fitted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..estimators import Estimator
from ..policies.base import Policy

__all__ = ["RunPhase", "fit_moments", "phases"]


class RunPhase(NamedTuple):
    """The sessions between two moments, and what is done before the first of them.

    `prepare` is the number of the call of the policy's `prepare` that is due, or -1; `fit` whether a fit is.
    """

    span: tuple[int, int]
    prepare: int
    fit: bool


def fit_moments(queries: int, growth: float) -> Iterator[int]:
    """Yield the numbers of sessions at which a pooled estimator is fitted, from the first session ever on.

    They depend on nothing but the number of queries, so that a run that is continued has the same moments.

    Examples
    --------
    >>> moments = fit_moments(queries=100, growth=0.3)
    >>> [next(moments) for _ in range(6)]
    [100, 200, 300, 400, 520, 676]
    """
    moment = queries
    while True:
        yield moment
        moment = max(moment + queries, math.ceil(moment * (1.0 + growth)))


def phases(
    sessions: int, policy: Policy, estimator: Estimator | None, queries: int, before: int, fitted: bool
) -> Iterator[RunPhase]:
    """Yield the phases of a run.

    Parameters
    ----------
    sessions
        Sessions of the run.
    policy
        The policy, which prepares at evenly spaced moments, or also at every fit.
    estimator
        The pooled estimator, None if there is none.
    queries, before
        Number of queries, and of sessions before the run.
    fitted
        Whether the state already has a fit of the estimator. If not, it is fitted at once if it is overdue.
    """
    due: set[int] = set()
    if estimator is not None:
        for moment in fit_moments(queries, estimator.growth):
            if moment >= before + sessions:
                break
            if moment >= before:
                due.add(moment - before)
            elif not fitted:
                due.add(0)
    starts = {sessions * i // policy.fits for i in range(policy.fits)} | (due if policy.prepares_at_fits else set())
    prepares = {start: i for i, start in enumerate(sorted(starts))}
    for span in pairwise(sorted({*prepares, *due, sessions})):
        yield RunPhase(span, prepares.get(span[0], -1), span[0] in due)
