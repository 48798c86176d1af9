"""MMF (Yang and Ai 2021): fairness at every prefix of the list, or relevance, as a coin decides at each rank."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..random import uniform
from .base import NonNegative, Policy, Share, register
from .gradient import add_certainty

__all__ = ["MMF"]

LEAST_RELEVANCE = 0.001  # exposure is divided by relevance, which an estimate may give as 0
NOISE = 0.001  # breaks ties, and decides between items that are served almost alike


@kernel(allocates=True)
def mmf_rank(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """For each rank toss a coin: the item least served so far at this and higher ranks, or the most relevant one.

    β MC makes an item more relevant, and less served.
    """
    R, F, p = q.R, q.F, q.p
    n, k = R.shape[0], out.shape[0]
    E, left = np.zeros(n), np.ones(n, np.bool_)  # exposure at the ranks so far, and who is not in the list yet
    bonus = np.zeros(n)
    add_certainty(q.E, q.prior_strength, theta[1], theta[2], bonus)
    for i in range(k):
        for d in range(n):
            E[d] += F[d, i] * p[i]
        fairly = uniform(rng, i) < theta[0]
        out[i] = least_served(E, R, bonus, left, rng, k + i * n) if fairly else most_relevant(R, bonus, left)
        left[out[i]] = False


@kernel
def least_served(E, R, bonus, left, rng, slot):  # type: ignore[no-untyped-def]
    """Among the items left, the one with the lowest exposure per relevance, less its bonus, plus noise.

    Noise is drawn only for the items within its reach: the others cannot win.
    """
    lowest = np.inf
    for d in range(R.shape[0]):
        if left[d]:
            lowest = min(lowest, E[d] / max(R[d], LEAST_RELEVANCE) - bonus[d])
    best, chosen = np.inf, -1
    for d in range(R.shape[0]):
        value = E[d] / max(R[d], LEAST_RELEVANCE) - bonus[d]
        if left[d] and value <= lowest + NOISE:
            value += NOISE * uniform(rng, slot + d)
            if value < best:
                best, chosen = value, d
    return chosen


@kernel
def most_relevant(R, bonus, left):  # type: ignore[no-untyped-def]
    """Among the items left, the one with the most relevance and bonus, lowest index first."""
    best, chosen = -np.inf, -1
    for d in range(R.shape[0]):
        if left[d] and R[d] + bonus[d] > best:
            best, chosen = R[d] + bonus[d], d
    return chosen


@register
class MMF(Policy):
    """Fill each rank with the item that all prefixes served least with probability α, else with the most relevant.

    With β > 0 marginal certainty counts as relevance at the one and as service that is lacking at the other.
    """

    alpha: Share = 1.0
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1

    kernel = mmf_rank
    ranks = True
