"""Slow, obvious oracles of the policies that MCFair is compared with beyond its paper.

Nothing here is shared with the package. "Numbered (n)" refers to the equations of MCFair's paper.
"""

from __future__ import annotations

import itertools
import math

import naive
import numpy as np
from scipy import optimize


def prefix_greedy(R, E, p, k, alpha, beta, scale, visits, s, mc_floor):
    """Yield, rank after rank, what each item would bring, unfairness being computed anew; the item chosen is sent."""
    E, pi = np.array(E, float), []
    divisor = {"raw": 1.0, "max": np.abs(naive.gradient(E, R)).max() + 1e-10, "mean": max(visits, 1)}[scale]
    bonus = beta * naive.certainty(E, s, mc_floor) if beta else np.zeros(len(R))
    for j in range(k):
        values = {}
        for d in set(range(len(R))) - set(pi):
            after = E.copy()
            after[d] += p[j]
            fall = naive.unfairness(E, R) - naive.unfairness(after, R)
            values[d] = p[j] * R[d] + alpha * fall / divisor + p[j] * bonus[d]
        chosen = yield values
        E[chosen] += p[j]
        pi.append(chosen)


def pbmucb(R, E, F, visits, beta):
    """Lagrée et al. (2016): the mean of clicks per examination and Hoeffding's radius; unseen items first."""
    scores = []
    for r, e, shown in zip(R, E, F.sum(axis=1), strict=True):
        if beta == 0:
            scores.append(r)
        elif e == 0:
            scores.append(math.inf)
        else:
            scores.append(r + beta * math.sqrt(shown / e) * math.sqrt(math.log(visits + 1) / (2 * e)))
    return np.array(scores)


def didrf(R, E, s, alpha, beta, mc_floor):
    """Numbered (24) with second-order terms; the second derivative of unfairness is taken by differences."""
    n = len(R)
    B = naive.gradient(E, R)
    T = np.array([-0.5 * second_difference(lambda e, d=d: naive.unfairness(e, R), E, d) for d in range(n)])
    fairness = B / (np.abs(B).max() + 1e-10) + T / (np.abs(T).max() + 1e-10)
    certainty = naive.certainty(E, s, mc_floor) + 1 / np.maximum((E + s) ** 3, mc_floor)
    return R + alpha * fairness + (beta * certainty if beta else 0.0)


def second_difference(function, E, d):
    """The second derivative of a quadratic function along one axis, which differences compute exactly."""
    step = np.zeros(len(E))
    step[d] = 1.0
    return function(E + step) - 2 * function(np.asarray(E, float)) + function(E - step)


def gamma_posterior(R, E, s):
    """Gamma distributions of relevance after R (E + s) clicks, those of the prior included; its own prior if s = 0."""
    from scipy import stats  # here, because it takes a second to import, and every process collects the tests

    weight = E + s
    clicks = R * weight
    return stats.gamma(clicks, scale=1 / weight) if s > 0 else stats.gamma(clicks + 0.5, scale=1 / (weight + 1))


def tail_mean(posterior, mass):
    """The mean of the largest values of a distribution, by quadrature of its quantiles."""
    if mass == 1.0:
        return posterior.mean()
    from scipy.integrate import quad

    return quad(posterior.isf, 0.0, mass, epsabs=1e-12, epsrel=1e-10, limit=200)[0] / mass


def fairest_plan(R, E, w, gain):
    """The least unfairness from E over what lists share out, by a general solver with one constraint per subset."""
    n = len(R)
    sizes = range(1, n)
    subsets = [list(each) for size in sizes for each in itertools.combinations(range(n), size)]
    rules = [{"type": "eq", "fun": lambda x: x.sum() - w.sum()}]
    rules += [{"type": "ineq", "fun": lambda x, s=s: w[: len(s)].sum() - x[s].sum()} for s in subsets]
    rules += [{"type": "ineq", "fun": lambda x: R @ x - gain}]
    start = w[np.argsort(np.argsort(-R, kind="stable"))]  # the most relevant first
    options = {"maxiter": 1000, "ftol": 1e-14}
    answer = optimize.minimize(lambda x: naive.unfairness(E + x, R), start, constraints=rules, options=options)
    return answer.fun


def allocate(quota, R, p, count, by_need, reserved_only):
    """Fill the lists vertically; what an item can still have is counted anew for every place."""
    n, k = len(R), min(len(R), len(p))
    quota, lists = np.array(quota, float), [[] for _ in range(count)]
    for j, i in itertools.product(range(k), range(count)):
        free = [d for d in range(n) if d not in lists[i]]
        reserved = [d for d in free if quota[d] > 1e-9]
        remaining = sum(p[rank] for rank in range(k) for row in range(count) if len(lists[row]) <= rank)
        needed = reserved_only or np.maximum(quota, 0).sum() >= remaining - 1e-9 * count
        relevance = {d: (R[d], quota[d], -d) for d in free}
        if needed and reserved and by_need:
            possible = {d: sum(p[len(row)] for row in lists if d not in row and len(row) < k) for d in reserved}
            chosen = max(reserved, key=lambda d: (round(quota[d] / possible[d], 9), -d))
        else:
            chosen = max(reserved if needed and reserved else free, key=relevance.get)
        lists[i].append(chosen)
        quota[chosen] -= p[j]
    return lists
