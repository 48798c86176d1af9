"""The slow, obvious oracle: everything straight from the equations of the paper, in plain Python and NumPy.

Nothing here is shared with the package. "Numbered (n)" refers to the paper's equations.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import partial

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


def exploration(policy, online):
    """The weight β; where the policy leaves it open, the paper's: 0 when relevance is given, 100 online."""
    return (100.0 if online else 0.0) if policy.beta == "auto" else policy.beta


def with_exploration(score, policy, E, s, online):
    beta = exploration(policy, online)
    return score + beta * certainty(E, s, policy.mc_floor) if beta else score


def topk(policy, R, E, visits, s, online=True):
    return with_exploration(R, policy, E, s, online)


def explorek(policy, R, E, visits, s, online=True):
    return certainty(E, s, policy.mc_floor)


def fairk(policy, R, E, visits, s, online=True):
    return with_exploration(scaled(gradient(E, R), policy.scale, visits), policy, E, s, online)


def mcfair(policy, R, E, visits, s, online=True):
    """Numbered (24)."""
    score = R + policy.alpha * scaled(gradient(E, R), policy.scale, visits)
    return with_exploration(score, policy, E, s, online)


def fairco(policy, R, E, visits, s, online=True):
    lag = E / np.maximum(R, 0.01)
    return with_exploration(R + policy.alpha * (lag.max() - lag), policy, E, s, online)


def group_term(policy, R, E, groups, visits):
    """Numbered (16) on the sums of each group, scaled as B is; every item has the entry of its group."""
    labels = sorted(set(groups))
    M_G, E_G = ([sum(x[d] for d in range(len(x)) if groups[d] == label) for label in labels] for x in (R, E))
    b = scaled(gradient(E_G, M_G), getattr(policy, "scale", "max"), visits)
    return policy.alpha_group * np.array([b[labels.index(each)] for each in groups])


SCORES = {"TopK": topk, "ExploreK": explorek, "FairK": fairk, "MCFair": mcfair, "FairCo": fairco}


def mmf(alpha, R, F, p, k, draw, bonus):
    """Yang and Ai (2021): at each rank the least served item up to this rank with probability α, else the best.

    `draw(slot)` is the session's uniform number; rank i's coin has slot i, its noise for item d slot k + i·n + d. A
    bonus makes an item better and less served.
    """
    n, pi = len(R), []
    for i in range(k):
        left = [d for d in range(n) if d not in pi]
        if draw(i) < alpha:
            served = {d: exposure(F[d, : i + 1], p[: i + 1]) / max(R[d], 0.001) - bonus[d] for d in left}
            pi.append(min(left, key=lambda d: served[d] + 1e-3 * draw(k + i * n + d)))
        else:
            pi.append(max(left, key=lambda d: (R[d] + bonus[d], -d)))
    return pi


def ilp_deficits(R, E, visits, p):
    """Biega et al. (2018): what each item lacks after the next list, in shares of a list's exposure."""
    n, total = len(R), sum(R)
    return np.array([(visits + 1) * (R[d] / total if total > 0 else 1 / n) - E[d] / sum(p) for d in range(n)])


def ilp_cost(pi, deficits, p):
    return sum(abs(p[j] / sum(p) - deficits[d]) - abs(deficits[d]) for j, d in enumerate(pi))


def ilp(alpha, ties, R, E, visits, p):
    """Go through all lists: enough DCG, then the least cost, then the rule of ties. `p` has as many ranks as a list."""
    deficits, k = ilp_deficits(R, E, visits, p), len(p)
    ideal = sum(r * p[j] for j, r in enumerate(sorted(R, reverse=True)[:k]))
    lists = [
        pi
        for pi in itertools.permutations(range(len(R)), k)
        if sum(R[d] * p[j] for j, d in enumerate(pi)) >= (1 - alpha) * ideal - 1e-9
    ]
    costs = {pi: ilp_cost(pi, deficits, p) for pi in lists}
    lists = [pi for pi in lists if costs[pi] <= min(costs.values()) + 1e-10]
    if ties == "deviation":
        deviation = {
            pi: sum((p[j] / sum(p) - deficits[d]) ** 2 - deficits[d] ** 2 for j, d in enumerate(pi)) for pi in lists
        }
        lists = [pi for pi in lists if deviation[pi] <= min(deviation.values()) + 1e-10]
    return min(lists)


def ilp_by_solver(alpha, R, E, visits, p):
    """The least cost by a general solver, and a list of it: x[d, j] says whether item d stands at rank j."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    deficits, n, k = ilp_deficits(R, E, visits, p), len(R), len(p)
    cost = np.array([[abs(p[j] / sum(p) - deficits[d]) - abs(deficits[d]) for j in range(k)] for d in range(n)])
    ideal = sum(r * p[j] for j, r in enumerate(sorted(R, reverse=True)[:k]))
    rules = [LinearConstraint(np.outer(R, p).ravel(), (1 - alpha) * ideal - 1e-9, np.inf)]
    for d in range(n):
        rules.append(LinearConstraint(np.outer(np.arange(n) == d, np.ones(k)).ravel().astype(float), 0, 1))
    for j in range(k):
        rules.append(LinearConstraint(np.outer(np.ones(n), np.arange(k) == j).ravel().astype(float), 1, 1))
    exactly = {"mip_rel_gap": 0.0}
    answer = milp(cost.ravel(), integrality=np.ones(n * k), bounds=Bounds(0, 1), constraints=rules, options=exactly)
    return answer.fun, answer.x.reshape(n, k).argmax(axis=0)


def lp_objective(R, e, alpha):
    """Singh and Joachims (2018): effectiveness less α times the disparity of every pair, one-sided, at exposure e."""
    n = len(R)
    merit = [max(r, 0.01) for r in R]
    disparity = sum(
        max(0.0, e[a] / merit[a] - e[b] / merit[b]) for a in range(n) for b in range(n) if a != b and R[a] >= R[b]
    )
    return sum(R[d] * e[d] for d in range(n)) - alpha * disparity


def lp_optimum(R, p, alpha):
    """The same program in full: a doubly stochastic matrix of n x n, one ξ for every ordered pair."""
    from scipy.optimize import linprog

    n, k = len(R), len(p)
    p, merit = [*p, *[0.0] * (n - k)], [max(r, 0.01) for r in R]
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b and R[a] >= R[b]]
    unknowns = n * n + len(pairs)
    loss, equal, limited = np.zeros(unknowns), np.zeros((2 * n, unknowns)), np.zeros((len(pairs), unknowns))
    loss[n * n :] = alpha
    for i in range(n):
        for j in range(n):
            loss[i * n + j] = -R[i] * p[j]
            equal[i, i * n + j] = equal[n + j, i * n + j] = 1
    for row, (a, b) in enumerate(pairs):
        limited[row, n * n + row] = -1
        for j in range(n):
            limited[row, a * n + j] += p[j] / merit[a]
            limited[row, b * n + j] -= p[j] / merit[b]
    answer = linprog(loss, A_ub=limited, b_ub=np.zeros(len(pairs)), A_eq=equal, b_eq=np.ones(2 * n))
    return -answer.fun


def lp_by_lists(R, p, alpha):
    """The same optimum over mixtures of all lists: one weight per list."""
    from scipy.optimize import linprog

    n, merit = len(R), [max(r, 0.01) for r in R]
    lists = list(itertools.permutations(range(n), len(p)))
    exposures = np.array([[p[pi.index(d)] if d in pi else 0.0 for d in range(n)] for pi in lists])
    pairs = [(a, b) for a in range(n) for b in range(n) if a != b and R[a] >= R[b]]
    loss = np.concatenate([-exposures @ np.array(R), np.full(len(pairs), alpha)])
    limited = np.zeros((len(pairs), loss.size))
    for row, (a, b) in enumerate(pairs):
        limited[row, : len(lists)] = exposures[:, a] / merit[a] - exposures[:, b] / merit[b]
        limited[row, len(lists) + row] = -1
    one = np.concatenate([np.ones(len(lists)), np.zeros(len(pairs))])[None]
    return -linprog(loss, A_ub=limited, b_ub=np.zeros(len(pairs)), A_eq=one, b_eq=[1]).fun


def ranking(scores, k, tie_keys):
    """Numbered (19): the k highest scores, equal ones by key and then by index."""
    return sorted(range(len(scores)), key=lambda d: (-scores[d], tie_keys[d], d))[:k]


def dcg(pi, R, p):
    total = 0.0
    for j, d in enumerate(pi):
        total += (p[j] if j < len(p) else 0.0) * R[d]
    return total


def least_guard_weight(scores, R, p, share):
    """The least λ for which ranking by λR + S keeps a share of the best DCG; None if ranking by S does.

    It is one of the weights at which two items change places.
    """
    n, k = len(R), min(len(R), len(p))
    wanted = share * dcg(ranking(R, k, [0] * n), R, p)
    keeps = lambda weight: dcg(ranking(weight * R + scores, k, [0] * n), R, p) >= wanted  # noqa: E731
    if keeps(0.0):
        return None
    pairs = itertools.permutations(range(n), 2)
    crossings = {(scores[b] - scores[a]) / (R[a] - R[b]) for a, b in pairs if R[a] > R[b] and scores[b] >= scores[a]}
    return min(weight for weight in crossings if keeps(max(weight * (1 + 1e-9), 1e-9)))


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


def uncertainty(E, s=0.0):
    """Numbered (28): the bound on the variance of the estimate."""
    return np.array([1 / (e + s) if e + s > 0 else math.inf for e in E])


def relative_unfairness(E, R, visits):
    return unfairness(E, R) / visits**2


def group_unfairness(E, R, groups):
    """Numbered (8) on the sums of each group; a query of one group has none."""
    labels = sorted(set(groups))
    if len(labels) < 2:
        return math.nan
    summed = [[sum(x[d] for d in range(len(x)) if groups[d] == label) for label in labels] for x in (E, R)]
    return unfairness(*summed)


def gini(E):
    """Half the mean absolute difference over all pairs, in units of the mean."""
    n, total = len(E), sum(E)
    return sum(abs(a - b) for a in E for b in E) / (2 * n * total) if total > 0 else 0.0


@dataclass
class Result:
    unfairness: float
    cndcg: np.ndarray
    ndcg: np.ndarray
    E: np.ndarray
    C: np.ndarray
    lists: list = field(default_factory=list)
    clicks: list = field(default_factory=list)
    unfairness_after: list = field(default_factory=list)
    cndcg_after: list = field(default_factory=list)


def position_based(pi, truth, p, draw):
    """Numbered (10): `draw(slot)` is the session's uniform number."""
    return [draw(d) < p[j] * truth[d] for j, d in enumerate(pi)]


def mean_unfairness(data, E, visits):
    """Numbered (8), over the queries that were visited and have a relevant item."""
    bounds = zip(data.offsets[:-1], data.offsets[1:], visits, strict=True)
    counted = [unfairness(E[a:b], data.R[a:b]) for a, b, v in bounds if v > 0 and data.R[a:b].max() > 0]
    return float(np.mean(counted)) if counted else 0.0


def simulate(
    data,
    policy,
    arrivals,
    *,
    online,
    seed=0,
    k=5,
    gamma=0.995,
    prior_mean=0.0,
    prior_strength=0.0,
    click=position_based,
    users_p=None,
    shown=None,
    checkpoints=(),
):
    """One session after the other, over whole arrays, as Figure 1 of the paper draws it.

    With `shown`, those lists are played, and each must be a ranking by the scores but for rounding: scores that are
    equal on paper may come out in either order, and everything afterwards depends on it. `users_p` is how users examine
    ranks, if not as exposure assumes. Figures after each of the checkpoints are kept.
    """
    p = examination(k)
    users_p = p if users_p is None else users_p
    F, C, visits = np.zeros((data.items, k), int), np.zeros(data.items, int), np.zeros(data.queries, int)
    E = np.zeros(data.items)
    cndcg, total = np.zeros(k), np.zeros(k)
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
        scores = score(policy, R, E[items], visit, prior_strength, online)
        if policy.alpha_group:
            groups = list(range(n)) if data.providers is None else data.providers[items].tolist()
            scores = scores + group_term(policy, R, E[items], groups, visit)
        pi = ranking(scores, min(k, n), keys)
        if shown is not None:
            assert is_ranking(shown[t], scores, min(k, n)), (t, q, shown[t], pi)
            pi = shown[t]
        value = ndcg(pi, truth, p)
        cndcg[:] = gamma * cndcg + value
        total += value
        draw = partial(uniform, seed, 0, place, visit)
        hits = [bool(hit) for hit in click(pi, truth, users_p, draw)] if online else [False] * len(pi)
        for j, d in enumerate(pi):
            F[items.start + d, j] += 1
            E[items.start + d] = exposure(F[items.start + d], p)
            C[items.start + d] += hits[j]
        visits[q] += 1
        result.lists.append(pi)
        result.clicks.append(hits)
        if t + 1 in checkpoints:
            result.unfairness_after.append(mean_unfairness(data, E, visits))
            result.cndcg_after.append(cndcg.tolist())
    result.unfairness = mean_unfairness(data, E, visits)
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
