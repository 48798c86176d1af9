"""PBM-UCB (Lagrée, Vernade and Cappé 2016): the bandit for lists whose ranks are examined with known probabilities."""

from __future__ import annotations

import math

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..parts import NonNegative, register
from ..random import Draws
from ..state import Query
from .base import Policy
from .selection import Ties


@kernel
def pbmucb_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `R + β sqrt(N/E) sqrt(ln(t)/(2E))`; infinite for an item that was never examined."""
    beta, E, R = theta[0], q.E, q.R
    log_t = math.log(q.visits[()] + 1.0)
    for d in range(out.shape[0]):
        out[d] = R[d]
        if beta > 0.0 and q.uncertainty[d] > 0.0:
            N = 0.0  # impressions at any rank
            for j in range(q.F.shape[1]):
                N += q.F[d, j]
            if E[d] > 0.0:
                out[d] += beta * (math.sqrt(N / E[d]) * math.sqrt(log_t / (2.0 * E[d])))
            else:
                out[d] = np.inf


@register
class PBMUCB(Policy):
    """Rank by an upper confidence bound of relevance that counts how often an item was examined; fairness is no goal.

    The bound is `C/E + sqrt(N/E) sqrt(ln(t)/(2E))` at the t-th visit of a query, N being how often the item was shown:
    Hoeffding's inequality for clicks of which each is examined with a known probability. Lagrée, Vernade and Cappé
    (2016), with δ = ln(t). An item that was never shown comes first. Where relevance is given the bound is R.

    Parameters
    ----------
    beta
        Weight of the radius of confidence; 1 is as published.
    ties
        Order of items of equal score.

    Examples
    --------
    The third item comes first once, because it was never shown:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, PBMUCB(), "online", steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [2, 0], [0, 2], [0, 2]]
    """

    beta: NonNegative = 1.0
    ties: Ties = "index"

    kernel = pbmucb_score
    style = ("#999999", ">")

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each part is."""
        return {"exploration": 0}
