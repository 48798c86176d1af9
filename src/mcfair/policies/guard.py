"""The guard: every list keeps at least a given share of the DCG that the relevance estimates allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..random import TIES, Draws, draws
from .ordering import BY_INDEX, TopKScratch, top_k, top_k_scratch

__all__ = ["Guard", "dcg", "keep_share"]

LEAST_WEIGHT, MOST_WEIGHT = 2.0**-24, 2.0**40  # of R, relative to the range of the scores
HALVINGS = 13  # 64 octaves of weights are halved to 1/128 octave: the least weight is found within 0.6 %


class Guard(NamedTuple):
    """The least share of the highest possible DCG that a list must keep, and the weight of each rank in the DCG."""

    share: float
    p: FloatArray


@kernel
def dcg(pi: IntArray, R: FloatArray, p: FloatArray) -> float:
    """Return Σ_j p_j R(π_j)."""
    total = 0.0
    for j in range(pi.shape[0]):
        total += p[j] * R[pi[j]]
    return total


@kernel(inline=False)
def keep_share(
    scores: FloatArray,
    R: FloatArray,
    E: FloatArray,
    guard: Guard,
    ties: int,
    tie_rng: Draws,
    scratch: TopKScratch,
    pi: IntArray,
) -> None:
    """Rewrite the list and the scores S if the list has less than a share of the DCG of the ranking by R.

    The scores become λR + S with the least λ whose list has the share. DCG grows with λ (the list maximises
    Σ p (λR + S)), so λ is found by bisection on a logarithmic scale. The points it may visit do not depend on the
    share, so a larger share never gets a smaller λ. Where no weight is large enough (infinite scores, differences of R
    near the precision), the list is the ranking by R: λ is infinite and the scores are R. `scratch.weight` holds λ.
    """
    best = scratch.best[: pi.shape[0]]
    scratch.weight[0] = 0.0
    top_k(R, E, ties, tie_rng, scratch, best)
    least = guard.share * dcg(best, R, guard.p)
    if dcg(pi, R, guard.p) >= least or not least > 0.0:
        return
    n, guarded = scores.shape[0], scratch.guarded[: scores.shape[0]]
    lowest, highest = scores[0], scores[0]
    for d in range(1, n):
        lowest, highest = min(lowest, scores[d]), max(highest, scores[d])
    unit = (highest - lowest if highest > lowest else 1.0) / R[best[0]]
    low, high = LEAST_WEIGHT * unit, MOST_WEIGHT * unit
    if high < np.inf:
        guarded_list(scores, R, E, high, ties, tie_rng, scratch, pi)
    if not high < np.inf or dcg(pi, R, guard.p) < least:
        scratch.weight[0] = np.inf
        for j in range(pi.shape[0]):
            pi[j] = best[j]
        for d in range(n):
            scores[d] = R[d]
        return
    for _ in range(HALVINGS):
        middle = np.sqrt(low) * np.sqrt(high)
        guarded_list(scores, R, E, middle, ties, tie_rng, scratch, pi)
        if dcg(pi, R, guard.p) >= least:
            high = middle
        else:
            low = middle
    guarded_list(scores, R, E, high, ties, tie_rng, scratch, pi)
    scratch.weight[0] = high
    for d in range(n):
        scores[d] = guarded[d]


@kernel(inline=False)
def guarded_list(
    scores: FloatArray,
    R: FloatArray,
    E: FloatArray,
    weight: float,
    ties: int,
    tie_rng: Draws,
    scratch: TopKScratch,
    pi: IntArray,
) -> None:
    """Write the scores λR + S to `scratch.guarded`, and the list of the highest."""
    guarded = scratch.guarded[: scores.shape[0]]
    for d in range(scores.shape[0]):
        guarded[d] = weight * R[d] + scores[d]
    top_k(guarded, E, ties, tie_rng, scratch, pi)


keep_share.pin(
    np.zeros(1),
    np.zeros(1),
    np.zeros(1),
    Guard(0.0, np.zeros(1)),
    BY_INDEX,
    draws(seed=0, purpose=TIES),
    top_k_scratch(1),
    np.zeros(1, np.int64),
)
