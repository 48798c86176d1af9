"""BudgetFair: BayesFair with its price of unfairness solved for, so that a given NDCG is given up for fairness.

It prepares on a dataset, so no service can run it. README.md has the command that puts it on the leaderboard.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

import msgspec
import numpy as np

import mcfair as mf

MOST_QUERIES = 64
"""Queries that a price is solved for; if there are more, as many of them, evenly spread."""

POINTS = 120
"""Points of the frontier between which the price is interpolated."""

HIGHEST_PRICE = 1e5
"""Price where plans as fair as possible give up less than is allowed, if the highest relevance is 1."""

FAIRNESS = mf.BayesFair().part_weights["fairness"]
score_of_bayesfair = mf.BayesFair.kernel


def price_of(loss: float, data: mf.Dataset, p: np.ndarray) -> float:
    """Return the price of unfairness at which the best plans for a relevance give up so much NDCG, a mean over queries.

    The plans are the points of `mf.frontier` for one visit of each query. Its slope is the unfairness that a unit of
    NDCG costs, so the price is its inverse, taken between two points on a logarithmic scale.
    """
    if loss == 0.0:
        return 0.0
    chosen = np.unique(np.linspace(0, data.queries - 1, min(data.queries, MOST_QUERIES)).astype(int))
    curve = mf.frontier(data.take(chosen), np.ones(chosen.size, dtype=int), p, points=POINTS)
    highest = HIGHEST_PRICE / max(float(np.square(data.R.max(initial=0.0))), 1e-12)
    if 1.0 - curve.ndcg[0] <= loss:
        return highest
    inside = (curve.lambdas > 0.0) & np.isfinite(curve.lambdas)
    prices = np.log(np.minimum(1.0 / curve.lambdas[inside], highest))
    return math.exp(np.interp(1.0 - loss, curve.ndcg[inside], prices))


@mf.kernel(allocates=True)
def budget_score(q, theta, rng, out):
    """Write the score of BayesFair at the price in the memory."""
    weights = theta.copy()
    weights[FAIRNESS] = q.memory[0]
    score_of_bayesfair(q, weights, rng, out)


@mf.register
class BudgetFair(mf.Policy):
    """Rank as BayesFair does, with the weight of fairness at which a given NDCG is given up for fairness.

    The price is solved for at the start of a run and after every fit of the estimator. If relevance is given, runs keep
    to the loss; online it is a guide, because exploration costs NDCG too and the plans follow estimates.
    """

    loss: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.02
    tail: Annotated[float, msgspec.Meta(gt=0.0)] = 10.0
    early: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0

    kernel = budget_score
    estimator = mf.Mixture()
    prepares_at_fits = True

    @property
    def theta(self):
        """The weights of BayesFair."""
        return mf.BayesFair(tail=self.tail, early=self.early).theta

    def prepare(self, data, state, rng):
        """Solve for the price, which is the same for all queries."""
        estimated = dataclasses.replace(data, R=data.scores, scores=None, fingerprint="")
        return np.full((data.queries, 1), price_of(self.loss, estimated, state.p))
