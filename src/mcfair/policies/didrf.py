"""DIDRF: MCFair with the second-order terms of fairness and of certainty, at a constant income per exposure."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from ..metrics.exposure import dots
from ..parts import NonNegative, register
from ..random import Draws
from ..state import Query
from .mcfair import EXPLORATION, FAIRNESS, MC_FLOOR, RELEVANCE, WeightedSum
from .selection import Ties
from .terms import MAX, gradient_weight, marginal_certainty


@kernel
def curvature_weight(R: FloatArray, rr: float) -> float:
    """Return w such that `w (|R|² - R(d)²)` is T(d), which is then at most 1 in absolute value."""
    n = R.shape[0]
    factor = 2.0 / (n * (n - 1.0)) if n > 1 else 0.0
    most = 0.0
    for d in range(n):
        most = max(most, rr - R[d] * R[d])
    return -factor / (factor * most + 1e-10)


@kernel
def second_certainty(E: float, prior_strength: float, mc_floor: float) -> float:
    """Return `1/max((E + s)³, mc_floor)`, the next term of the fall of 1/E after MC."""
    weight = E + prior_strength
    cube = max(weight * weight * weight, mc_floor)
    return 1.0 / cube if cube > 0.0 else np.inf


@kernel
def didrf_score(q: Query, theta: FloatArray, rng: Draws, out: FloatArray) -> None:
    """Write `w_R R + α (B + T) + β (MC + 1/E³)`, with B and T each divided by its largest entry."""
    E, R = q.E, q.R
    relevance, alpha, beta, mc_floor = theta[RELEVANCE], theta[FAIRNESS], theta[EXPLORATION], theta[MC_FLOOR]
    er = rr = gradient = curvature = 0.0
    if alpha != 0.0:
        er, rr = dots(E, R)
        gradient = alpha * gradient_weight(E, R, er, rr, q.visits[()], MAX)
        curvature = alpha * curvature_weight(R, rr)
    for d in range(out.shape[0]):
        out[d] = relevance * R[d] + (gradient * (R[d] * er - E[d] * rr) + curvature * (rr - R[d] * R[d]))
    if beta != 0.0:
        for d in range(out.shape[0]):
            first = marginal_certainty(E[d], q.prior_strength, mc_floor)
            out[d] += beta * (first + second_certainty(E[d], q.prior_strength, mc_floor))


@register
class DIDRF(WeightedSum):
    """Rank by relevance + α (gradient and curvature of fairness) + β (certainty to the second order).

    Where MCFair stops after the first term of Taylor's series, the second is added: with half of the second derivative
    of minus unfairness (Eq. 8), `T(d) = -2/(n(n-1)) (|R|² - R(d)²)`, the score is

        R + α (B/max|B| + T/max|T|) + β (MC + 1/E³).

    T favours relevant items and does not change with time. The published method (2026, by MCFair's authors) weighs
    exposure by an income that varies with time; here the income is 1, because exposure is derived from counts
    (`State`), which have no time. It keeps no memory.

    Parameters
    ----------
    alpha
        Weight of fairness.
    beta
        Weight of exploration.
    mc_floor
        Smallest squared, and smallest cubed, exposure in the terms of certainty.
    ties
        Order of items of equal score.

    Examples
    --------
    The curvature keeps the most relevant item first, where FairK would change the order:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, DIDRF(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 2], [0, 1], [0, 1]]
    """

    alpha: NonNegative = 1.0
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1
    ties: Ties = "index"

    kernel = didrf_score
    weights = (1.0, "alpha", "beta")
    style = ("#0072B2", "d")
