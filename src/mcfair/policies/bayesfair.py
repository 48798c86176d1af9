"""BayesFair: marginal NDCG by the upper tail of a pooled posterior, plus the gradient of fairness."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..estimators import Mixture
from ..parts import NonNegative, register
from ..random import Draws
from ..state import Query
from .mcfair import EXPLORATION, FAIRNESS, MC_FLOOR, RELEVANCE, SCALE, WeightedSum
from .selection import Ties
from .terms import Scale, marginal_certainty, tail_mean, write_gradient

Positive = Annotated[float, msgspec.Meta(gt=0.0, description="a finite number above 0")]

Gain = Literal["ndcg", "dcg"]
"""The worth of relevance: its share of the highest DCG that the estimates allow, or itself as in the paper."""

NDCG = 0  # the order of Gain
TAIL, BETA, GAIN, EARLY = range(5, 9)  # of theta; before them are the weights, the scale and the floor of MC


@kernel
def ideal_gain(R: FloatArray, p: FloatArray, best: FloatArray) -> float:
    """Return Σ_j p_j R_(j), the DCG of the ranking by R; `best` is scratch for the highest R in order."""
    k = min(p.shape[0], R.shape[0])
    for j in range(k):
        best[j] = -np.inf
    for d in range(R.shape[0]):
        value = R[d]
        if value > best[k - 1]:
            j = k - 1
            while j > 0 and best[j - 1] < value:
                best[j] = best[j - 1]
                j -= 1
            best[j] = value
    total = 0.0
    for j in range(k):
        total += p[j] * best[j]
    return total


@kernel
def early_price(early: float, visits: int, p: FloatArray, n: int) -> float:
    """Return 1 + (early/Ē)², where Ē = visits Σp/n is the mean exposure of an item so far; 1 before there is any."""
    if early == 0.0 or visits == 0:
        return 1.0
    total = 0.0
    for j in range(min(p.shape[0], n)):
        total += p[j]
    ratio = early * n / (visits * total)
    return 1.0 + ratio * ratio


@kernel
def bayesfair_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `(w_R R + w_U (U - R))/ideal + w_B B`; w_U also weights β MC, which is 0 but for comparisons."""
    E, R, posterior, visits = q.E, q.R, q.posterior, q.visits[()]
    relevance, fairness, exploration, scale = theta[RELEVANCE], theta[FAIRNESS], theta[EXPLORATION], theta[SCALE]
    tail, beta, mc_floor = theta[TAIL], theta[BETA], theta[MC_FLOOR]
    ideal = ideal_gain(R, q.p, out) if theta[GAIN] == NDCG else 1.0
    gain = 1.0 / ideal if ideal > 0.0 else 1.0
    price = early_price(theta[EARLY], visits, q.p, E.shape[0])
    write_gradient(E, R, visits, relevance * gain, fairness * price, scale, out)
    if exploration == 0.0:
        return
    optimistic = posterior.shape[1] > 0 and visits > tail  # before, the tail is the whole posterior
    for d in range(out.shape[0]):
        bonus = 0.0
        if optimistic:
            bonus = gain * max(tail_mean(posterior, d, tail / visits) - R[d], 0.0)
        if beta != 0.0:
            bonus += beta * marginal_certainty(E[d], q.prior_strength, mc_floor)
        out[d] += exploration * bonus


@register
class BayesFair(WeightedSum):
    """Rank by marginal NDCG, optimistic about relevance that is not yet known, plus α times the gradient of fairness.

    The score is `U/ideal + α B`. U is the mean of the upper tail of the posterior of an item's relevance; the tail has
    mass `tail/visits`, so that an item is explored as long as it could still be good. `ideal` is the highest DCG that
    the estimates allow. B is the gradient of Eq. 16 per visit, so α is the price of a unit of unfairness in NDCG.

    The posterior is that of the estimator, `Mixture()` unless a run names another. If relevance is given, or the
    estimator has no posterior (IPS), U is R. With `IPS()`, `scale="max"` and `gain="dcg"` it is MCFair.

    Parameters
    ----------
    alpha
        Weight of fairness.
    tail
        Visits after which the tail is no longer the whole posterior: its mass is tail/visits, at most 1.
    early
        Mean exposure of an item up to which fairness costs more: α is multiplied by 1 + (early/Ē)². Many candidates are
        then shown early, when the lists are poor anyway, and the lists at the end are better. 0 is off.
    beta
        Weight of marginal certainty (Eq. 29), for comparisons: the tail explores without it.
    scale
        What B is divided by, see `MCFair`.
    gain
        "ndcg" divides relevance by the highest DCG that the estimates allow; "dcg" leaves it as it is.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.
    ties
        Order of items of equal score.

    Examples
    --------
    >>> import mcfair as mf
    >>> data = mf.synthetic("mq2008-like", seed=0)
    >>> new, published = (mf.simulate(data, each, "online", steps=20_000) for each in (BayesFair(), "MCFair"))
    >>> new.unfairness < published.unfairness, new.ndcg[5] > published.ndcg[5]
    (True, True)
    """

    alpha: NonNegative = 40.0
    tail: Positive = 10.0
    early: NonNegative = 0.0
    beta: NonNegative = 0.0
    scale: Scale = "mean"
    gain: Gain = "ndcg"
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = bayesfair_score
    style = ("#CC79A7", "P")
    estimator = Mixture()

    @property
    def theta(self) -> FloatArray:
        """The weights of the terms, then what they depend on."""
        scale, gain = get_args(Scale).index(self.scale), get_args(Gain).index(self.gain)
        return np.array([1.0, self.alpha, 1.0, scale, self.mc_floor, self.tail, self.beta, gain, self.early])
