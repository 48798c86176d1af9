"""MMF (Yang and Ai 2021): each rank is filled for fairness at every prefix or for relevance, by a random draw."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import NonNegative, Share, register
from ..random import Draws, uniform
from ..state import Query
from .base import Policy
from .terms import add_certainty

LEAST_RELEVANCE = 0.001  # exposure is divided by relevance, which an estimate may report as 0
NOISE = 0.001  # breaks ties, also between items whose exposure per relevance is almost equal


@kernel(allocates=True)
def mmf_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """For each rank draw a coin: the item least exposed per relevance up to this rank, or the most relevant one.

    β MC counts as relevance in the one case and as missing exposure in the other.
    """
    R, F, p = q.R, q.F, q.p
    n, k = R.shape[0], out.shape[0]
    E, left = np.zeros(n), np.ones(n, np.bool_)  # exposure at the ranks so far; not in the list yet
    bonus = np.zeros(n)
    add_certainty(q.E, q.prior_strength, theta[1], theta[2], bonus)
    for i in range(k):
        for d in range(n):
            E[d] += F[d, i] * p[i]
        fairly = uniform(rng, i) < theta[0]
        out[i] = least_exposed(E, R, bonus, left, rng, k + i * n) if fairly else most_relevant(R, bonus, left)
        left[out[i]] = False


@kernel
def least_exposed(E: FloatArray, R: FloatArray, bonus: FloatArray, left: BoolArray, rng: Draws, slot: int) -> int:
    """Return the item left with the lowest exposure per relevance, less its bonus, plus noise.

    Noise is drawn only for the items within its reach: the others cannot be chosen.
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
def most_relevant(R: FloatArray, bonus: FloatArray, left: BoolArray) -> int:
    """Return the item left with the most relevance and bonus, lowest index first."""
    best, chosen = -np.inf, -1
    for d in range(R.shape[0]):
        if left[d] and R[d] + bonus[d] > best:
            best, chosen = R[d] + bonus[d], d
    return chosen


@register
class MMF(Policy):
    """Fill each rank with the item least exposed up to that rank with probability α, else with the most relevant.

    Parameters
    ----------
    alpha
        Probability that a rank is filled for fairness.
    beta
        Weight of exploration: marginal certainty counts as relevance, and as missing exposure.
    mc_floor
        Smallest squared exposure in MC = 1/E², so that MC is at most 1/mc_floor.

    Examples
    --------
    Each rank is filled for fairness, in order of exposure per relevance:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, MMF(), steps=4, k=2, record=True).lists.tolist()
    [[0, 2], [2, 1], [1, 0], [0, 1]]
    """

    alpha: Share = 1.0
    beta: NonNegative = 0.0
    mc_floor: NonNegative = 0.1

    kernel = mmf_rank
    style = ("#E69F00", "h")
    ranks = True

    @property
    def part_weights(self) -> dict[str, int]:
        """Where in `theta` the weight of each part is."""
        return {"fairness": 0, "exploration": 1}
