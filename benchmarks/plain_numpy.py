"""MCFair in plain NumPy: the session loop as a careful programmer would write it without a compiler."""

import time
from itertools import pairwise

import numpy as np


def play(data, policy, arrivals, *, online, k=5, gamma=0.995, seed=0):
    """Play MCFair(scale="max") on queries of at least k items; return seconds and mean NDCG@1..k.

    It does less than the package: clicks are drawn from one stream, and unfairness is left out.
    """
    p, ranks = 1 / np.log2(np.arange(2, k + 2)), np.arange(k)
    F, C, E = np.zeros((data.items, k), np.int32), np.zeros(data.items), np.zeros(data.items)
    bounds = data.offsets.tolist()
    best = [np.cumsum(np.sort(data.R[a:b])[::-1][:k] * p) for a, b in pairwise(bounds)]
    total, cndcg = np.zeros(k), np.zeros(k)
    alpha, beta, mc_floor = policy.alpha, policy.beta, policy.mc_floor
    rng = np.random.default_rng(seed)
    begun = time.perf_counter()
    for q in arrivals.tolist():
        a, b = bounds[q], bounds[q + 1]
        truth, e = data.R[a:b], E[a:b]
        R = C[a:b] / np.maximum(e, 1e-9) if online else truth
        B = 4 / ((b - a) * (b - a - 1)) * (R * (e @ R) - e * (R @ R))
        score = R + alpha / (np.abs(B).max() + 1e-10) * B
        if beta:
            score += beta / np.maximum(e * e, mc_floor)
        pi = np.argsort(-score, kind="stable")[:k]
        chance = truth[pi] * p
        ndcg = np.cumsum(chance) / best[q]
        total += ndcg
        cndcg = gamma * cndcg + ndcg
        F[a + pi, ranks] += 1
        e[pi] += p
        if online:
            C[a + pi] += rng.random(k) < chance
    return time.perf_counter() - begun, total / len(arrivals)
