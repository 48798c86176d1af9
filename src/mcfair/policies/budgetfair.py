"""BudgetFair: BayesFair with its price of unfairness solved for, so that a given NDCG is given up for fairness."""

from __future__ import annotations

import math

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..estimators import Mixture
from ..metrics.exposure import dots
from ..metrics.reachable import balance
from ..parts import NonNegative, Share, register
from ..random import Draws
from ..state import Query, State
from .bayesfair import Positive, write_score
from .fairness import MEAN
from .mcfair import FAIRNESS, WeightedSum
from .ordering import Ties

__all__ = ["BudgetFair", "budget_score", "plan_losses", "price_of"]

PRICES = np.geomspace(1e5, 0.1, 31)
"""Prices that are tried if the highest relevance is 1, falling; between two of them the logarithm is linear.

Unfairness is of second order in relevance and NDCG of order 0: for relevance of at most r they are divided by r².
"""

MOST_QUERIES = 64
"""Queries that a price is solved for; if there are more, as many of them, evenly spread."""


@kernel(allocates=True)
def plan_losses(R: FloatArray, p: FloatArray, offsets: IntArray, prices: FloatArray, losses: FloatArray) -> None:
    """Write the NDCG that the best plan of each query gives up at each price; R and prices fall.

    The plan is the exposure per visit of the most `NDCG - price · unfairness` (Eq. 8) that mixed lists can have. It is
    the point of the permutahedron nearest to cR, where c |R|² = R·E + n(n - 1)/(4 price ideal). A query of one item, or
    without relevance, has nothing to give up.
    """
    largest = 1
    for q in range(losses.shape[1]):
        largest = max(largest, offsets[q + 1] - offsets[q])
    E, pools = np.empty(largest), np.empty((largest, 3))
    for q in range(losses.shape[1]):
        falling = R[offsets[q] : offsets[q + 1]]
        n = falling.shape[0]
        w = np.zeros(n)
        for j in range(min(p.shape[0], n)):
            w[j] = p[j]
        ideal, c = dots(w, falling)[0], 0.0
        for i in range(prices.shape[0]):
            losses[i, q] = 0.0
            if n > 1 and falling[0] * falling[0] > 0.0:
                c = balance(n * (n - 1.0) / (4.0 * prices[i] * ideal), c, falling, w, pools, E[:n])
                losses[i, q] = 1.0 - dots(E[:n], falling)[0] / ideal


def price_of(loss: float, R: FloatArray, p: FloatArray, offsets: IntArray) -> float:
    """Return the price of unfairness at which plans for relevance R give up so much NDCG, on average over queries.

    Parameters
    ----------
    loss
        The NDCG that may be given up.
    R : (items,) array
        Relevance, given or estimated.
    p : (k_s,) array
        Examination probability of each rank.
    offsets : (queries + 1,) int array
        Where each query's items begin.

    Returns
    -------
    float
        0 if nothing may be given up, and 100,000/max(R)² if plans that are as fair as possible give up less.

    Examples
    --------
    >>> R, p = np.array([0.8, 0.4, 0.4]), np.array([1.0, 0.5])
    >>> [round(price_of(loss, R, p, np.array([0, 3])), 1) for loss in (0.0, 0.05, 0.5)]
    [0.0, 3.8, 156250.0]
    """
    if loss == 0.0:
        return 0.0
    square = float(np.square(R.max(initial=0.0)))
    prices = PRICES / square if square > 0.0 else PRICES
    queries = offsets.size - 1
    chosen = np.unique(np.linspace(0, queries - 1, min(queries, MOST_QUERIES)).astype(int))
    falling = [-np.sort(-R[offsets[q] : offsets[q + 1]]) for q in chosen]
    bounds = np.cumsum([0, *(each.size for each in falling)])
    losses = np.empty((prices.size, chosen.size))
    plan_losses(np.concatenate(falling), p.copy(), bounds, prices, losses)
    means = losses.mean(axis=1)
    if means[0] <= loss:
        return float(prices[0])
    return math.exp(np.interp(-loss, -means, np.log(prices)))


@kernel
def budget_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write the score of BayesFair at the price in the memory."""
    write_score(q, theta, theta[FAIRNESS] * q.memory[0], out)


@register
class BudgetFair(WeightedSum):
    """Rank as BayesFair does, with the weight of fairness at which a given NDCG is given up for fairness.

    A price α of BayesFair has another effect on every dataset. Here it is solved for: the plans that are best by the
    estimates, one price for all queries, give up `loss` of NDCG. It is solved at the start of a run and after every fit
    of the estimator. If relevance is given, runs keep to the loss; online it is a guide, because exploration costs NDCG
    too and the plans follow estimates.

    Since the price depends on all queries, the policy prepares on a dataset and cannot serve; a service takes
    `BayesFair(alpha=…)`.

    Parameters
    ----------
    loss
        The NDCG that may be given up for fairness: 0 is none, and more than is needed is as fair as possible.
    tail, early
        As for BayesFair.
    ties
        Order of items of equal score.

    Examples
    --------
    One parameter on two datasets that need different prices:

    >>> import mcfair as mf
    >>> for data in (mf.synthetic("mq2008-like"), mf.synthetic("istella-s-like").take(range(20))):
    ...     print(round(1 - mf.simulate(data, BudgetFair(loss=0.02), steps=300 * data.queries).ndcg[5], 2))
    0.02
    0.02
    """

    loss: Share = 0.02
    tail: Positive = 10.0
    early: NonNegative = 0.0
    ties: Ties = "index"

    kernel = budget_score
    style = ("#CC79A7", "<")
    estimator = Mixture()
    prepares_at_fits = True

    @property
    def theta(self) -> FloatArray:
        """The weights of the terms, fairness by its price, then what they depend on, as for BayesFair."""
        return np.array([1.0, 1.0, 1.0, MEAN, 0.0, self.tail, 0.0, 0.0, self.early])

    def prepare(self, data: Dataset, state: State, rng: Draws) -> FloatArray:
        """Solve for the price, which is the same for all queries."""
        R = data.scores
        assert R is not None  # a run hides R and passes what may be seen as scores
        return np.full((data.queries, 1), price_of(self.loss, R, state.p, data.offsets))
