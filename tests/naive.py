"""The slow, obvious oracle: everything straight from the equations of the paper, in plain Python and NumPy.

Nothing here is shared with the package. "Numbered (n)" refers to the paper's equations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

MASK = 2**32 - 1


def philox4x32(counter, key):
    """Ten rounds of Philox as Salmon et al. (2011) define them, on Python integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & MASK, (a >> 32) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


def uniform(seed, purpose, query, visit, slot):
    x0, x1, _, _ = philox4x32((slot, visit, query, purpose), (seed & MASK, seed >> 32))
    return ((x0 >> 5) * 2**26 + (x1 >> 6)) / 2**53


def released_arrivals(seed, queries, steps):
    """The calls of the code released with the paper."""
    g = np.random.default_rng(seed)
    out = []
    for _ in range(steps):
        g.choice(1, size=1, p=[1.0])
        out.append(int(g.choice(queries, size=1)[0]))
    return out


def examination(k_s, severity=1.0):
    return np.array([(1 / math.log2(j + 1)) ** severity for j in range(1, k_s + 1)])


def relevance(y, y_max, epsilon=0.1):
    return np.array([epsilon + (1 - epsilon) * (2**g - 1) / (2**y_max - 1) for g in y])


def exposure(F, p):
    """Numbered (7) of one item, in the order of ranks."""
    total = 0.0
    for j in range(len(p)):
        total += F[j] * p[j]
    return total


def unfairness(E, R):
    """Numbered (8): the double sum over pairs."""
    n = len(E)
    if n < 2:
        return 0.0
    return sum((E[x] * R[y] - E[y] * R[x]) ** 2 for x in range(n) for y in range(n)) / (n * (n - 1))


def gradient(E, R):
    """Numbered (16): B."""
    n = len(E)
    if n < 2:
        return np.zeros(n)
    total, square = sum(E[x] * R[x] for x in range(n)), sum(R[x] ** 2 for x in range(n))
    return np.array([4 / (n * (n - 1)) * (R[d] * total - E[d] * square) for d in range(n)])


def certainty(E, s, mc_floor):
    """Numbered (29): MC, capped."""
    with np.errstate(divide="ignore"):
        return 1 / np.maximum((E + s) ** 2, mc_floor)


def scaled(B, scale, visits):
    return {"raw": B, "max": B / (np.abs(B).max() + 1e-10), "mean": B / max(visits, 1)}[scale]


def topk(policy, R, E, visits, s):
    return R


def explorek(policy, R, E, visits, s):
    return certainty(E, s, policy.mc_floor)


def fairk(policy, R, E, visits, s):
    score = scaled(gradient(E, R), policy.scale, visits)
    return score + policy.beta * certainty(E, s, policy.mc_floor) if policy.beta else score


def mcfair(policy, R, E, visits, s):
    """Numbered (24)."""
    score = R + policy.alpha * scaled(gradient(E, R), policy.scale, visits)
    return score + policy.beta * certainty(E, s, policy.mc_floor) if policy.beta else score


def fairco(policy, R, E, visits, s):
    due = E / np.maximum(R, 0.01)
    score = R + policy.alpha * (due.max() - due)
    return score + policy.beta * certainty(E, s, policy.mc_floor) if policy.beta else score


SCORES = {"TopK": topk, "ExploreK": explorek, "FairK": fairk, "MCFair": mcfair, "FairCo": fairco}


def mmf(alpha, R, F, p, k, draw):
    """Yang and Ai (2021): at each rank the least served item up to this rank with probability α, else the best.

    `draw(slot)` is the session's uniform number; rank i's coin has slot i, its noise for item d slot k + i·n + d.
    """
    n, pi = len(R), []
    for i in range(k):
        left = [d for d in range(n) if d not in pi]
        if draw(i) < alpha:
            due = {d: exposure(F[d, : i + 1], p[: i + 1]) / max(R[d], 0.001) + 1e-3 * draw(k + i * n + d) for d in left}
            pi.append(min(left, key=lambda d: due[d]))
        else:
            pi.append(max(left, key=lambda d: (R[d], -d)))
    return pi


def ranking(scores, k, tie_keys):
    """Numbered (19): the k highest scores, equal ones by key and then by index."""
    return sorted(range(len(scores)), key=lambda d: (-scores[d], tie_keys[d], d))[:k]


def is_ranking(pi, scores, k, tolerance=1e-9):
    """Whether a list holds k of the highest scores in order, but for rounding."""
    margin = tolerance * max(1.0, np.abs(scores).max())
    rest = [scores[d] for d in range(len(scores)) if d not in set(pi)]
    falling = all(scores[a] >= scores[b] - margin for a, b in itertools.pairwise(pi))
    return len(set(pi)) == len(pi) == k and falling and all(scores[pi[-1]] >= s - margin for s in rest)


def ndcg(pi, R, p):
    """Numbered (3) and (5) for every cutoff; lists shorter than p are as good as they can be below their end."""
    best = sorted(R, reverse=True)
    out = []
    for cutoff in range(1, len(p) + 1):
        dcg = sum(R[d] * p[j] for j, d in enumerate(pi[:cutoff]))
        ideal = sum(r * p[j] for j, r in enumerate(best[:cutoff]))
        out.append(dcg / ideal if ideal > 0 else 0.0)
    return np.array(out)


def estimate(C, E, m=0.0, s=0.0):
    """Numbered (25) with a prior."""
    return np.array([(c + s * m) / (e + s) if e + s > 0 else 0.0 for c, e in zip(C, E, strict=True)])


@dataclass
class Result:
    unfairness: float
    cndcg: np.ndarray
    ndcg: np.ndarray
    E: np.ndarray
    C: np.ndarray
    lists: list = field(default_factory=list)
    clicks: list = field(default_factory=list)


def simulate(
    data, policy, arrivals, *, online, seed=0, k_s=5, gamma=0.995, prior_mean=0.0, prior_strength=0.0, shown=None
):  # fmt: skip
    """One session after the other, over whole arrays, as Figure 1 of the paper draws it.

    With `shown`, those lists are played, and each must be a ranking by the scores but for rounding: scores that are
    equal on paper may come out in either order, and everything afterwards depends on it.
    """
    p = examination(k_s)
    F, C, visits = np.zeros((data.items, k_s), int), np.zeros(data.items, int), np.zeros(data.queries, int)
    E = np.zeros(data.items)
    cndcg, total = np.zeros(k_s), np.zeros(k_s)
    result = Result(0.0, cndcg, total, E, C)
    score = SCORES[type(policy).__name__]
    for t, q in enumerate(arrivals):
        items = slice(data.offsets[q], data.offsets[q + 1])
        n, place, visit = items.stop - items.start, int(data.places[q]), int(visits[q])
        truth = data.R[items]
        R = estimate(C[items], E[items], prior_mean, prior_strength) if online else truth
        keys = {
            "index": [0] * n,
            "random": [uniform(seed, 2, place, visit, d) for d in range(n)],
            "least-exposed": E[items],
        }[policy.ties]
        scores = score(policy, R, E[items], visit, prior_strength)
        pi = ranking(scores, min(k_s, n), keys)
        if shown is not None:
            assert is_ranking(shown[t], scores, min(k_s, n)), (t, q, shown[t], pi)
            pi = shown[t]
        value = ndcg(pi, truth, p)
        cndcg[:] = gamma * cndcg + value
        total += value
        hits = []
        for j, d in enumerate(pi):
            F[items.start + d, j] += 1
            E[items.start + d] = exposure(F[items.start + d], p)
            hits.append(online and uniform(seed, 0, place, visit, d) < p[j] * truth[d])
            C[items.start + d] += hits[-1]
        visits[q] += 1
        result.lists.append(pi)
        result.clicks.append(hits)
    seen = [
        unfairness(E[a:b], data.R[a:b])
        for a, b, v in zip(data.offsets[:-1], data.offsets[1:], visits, strict=True)
        if v > 0 and data.R[a:b].max() > 0
    ]
    result.unfairness = float(np.mean(seen))
    result.ndcg = total / len(arrivals)
    return result


def read_letor(text):
    """Read a LETOR file the slow and obvious way: grades, one dict of features per row, sizes, qids, docids."""
    y, rows, sizes, qids, docids = [], [], [], [], []
    for line in text.decode().split("\n"):
        body, _, comment = line.partition("#")
        if not body.strip():
            continue
        grade, qid, *features = body.split()
        if not qids or qids[-1] != qid[4:]:
            qids.append(qid[4:])
            sizes.append(0)
        sizes[-1] += 1
        y.append(int(float(grade)))
        rows.append({int(index): float(value) for index, value in (each.split(":") for each in features)})
        words = comment.replace("=", " = ").split()
        docids.append(words[words.index("docid") + 2] if "docid" in words else None)
    return y, rows, sizes, qids, docids if all(docids) else None
