"""The slow, obvious oracle of PLFair: Plackett–Luce lists by enumeration, PL-Rank-2, the network and its training.

Nothing here is shared with the package.
"""

from __future__ import annotations

import itertools
import math

import naive
import numpy as np

PREPARE, LAST = 5, 2**32 - 1


def chances(s, placed):
    """Chance of each item at the next rank: the softmax over those not placed yet."""
    weights = np.exp(s - np.max(s))
    weights[list(placed)] = 0.0
    return weights / weights.sum()


def probability(pi, s):
    """Plackett–Luce probability that a list begins with pi."""
    return math.prod(chances(s, pi[:j])[d] for j, d in enumerate(pi))


def all_lists(n, k):
    return list(itertools.permutations(range(n), k))


def value(pi, labels, p):
    return sum(p[j] * labels[d] for j, d in enumerate(pi))


def gradient(s, labels, p, k):
    """∂/∂s of the expected value, by `∂P = P ∂log P` over all lists."""
    total = np.zeros(len(s))
    for pi in all_lists(len(s), k):
        slope = np.zeros(len(s))
        for j, d in enumerate(pi):
            slope[d] += 1.0
            slope -= chances(s, pi[:j])
        total += probability(pi, s) * value(pi, labels, p) * slope
    return total


def exposure(s, p, k):
    """Expected exposure of each item, over all lists."""
    e = np.zeros(len(s))
    for pi in all_lists(len(s), k):
        for j, d in enumerate(pi):
            e[d] += probability(pi, s) * p[j]
    return e


def pl_rank_2(lists, s, labels, p):
    """Oosterhuis (2021), the mean over lists y of what follows an item and of what it would change at each rank:

    `Σ_{x > rank(d)} p_x l(y_x) + Σ_{x ≤ rank(d)} P(d at x) (p_x l(d) - Σ_{z ≥ x} p_z l(y_z))`.
    """
    g = np.zeros(len(s))
    for pi in lists:
        future = [sum(p[z] * labels[pi[z]] for z in range(x, len(pi))) for x in range(len(pi) + 1)]
        for x, placed in enumerate(pi):
            g[placed] += future[x + 1]
            g += chances(s, pi[:x]) * (p[x] * labels - future[x])
    return g / len(lists)


def scaled(X):
    """Each column of one query's features mapped to [0, 1]; a constant one to 0."""
    out = np.zeros(X.shape)
    for f, column in enumerate(X.T.astype(float)):
        if column.max() > column.min():
            out[:, f] = (column - column.min()) / (column.max() - column.min())
    return out


def forward(net, X):
    W1, b1, W2, b2, w3 = net
    sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    return sigmoid(sigmoid(X @ W1 + b1) @ W2 + b2) @ w3


def network_gradient(net, X, g):
    """∂/∂θ of Σ_d g(d) s(d) for every array θ of the network, by the chain rule."""
    W1, b1, W2, b2, w3 = net
    H1 = 1 / (1 + np.exp(-(X @ W1 + b1)))
    H2 = 1 / (1 + np.exp(-(H1 @ W2 + b2)))
    D2 = np.outer(g, w3) * H2 * (1 - H2)
    D1 = D2 @ W2.T * H1 * (1 - H1)
    return X.T @ D1, D1.sum(axis=0), H1.T @ D2, D2.sum(axis=0), H2.T @ g


def initial_network(features, seed):
    slots, net = itertools.count(), []
    for inputs, outputs in ((features, 32), (32, 32), (32, 1)):
        bound = math.sqrt(6 / (inputs + outputs))
        W = [naive.uniform(seed, PREPARE, LAST, 0, next(slots)) * 2 * bound - bound for _ in range(inputs * outputs)]
        net += [np.reshape(W, (inputs, outputs)), np.zeros(outputs)]
    return [*net[:4], net[4][:, 0]]  # the last bias would shift all scores alike


def sampled_list(s, k, draw):
    """Highest scores after Gumbel noise."""
    keys = [s[d] - math.log(-math.log(draw(d))) for d in range(len(s))]
    return sorted(range(len(s)), key=lambda d: -keys[d])[:k]


def trained_scores(data, R, p, *, alpha, epochs, lr, samples, seed, fit=0):
    """Section 5 of the design, query by query; one array of scores per query."""
    spans = [slice(a, b) for a, b in itertools.pairwise(data.offsets)]
    X = [scaled(data.X[span]) for span in spans]
    net = initial_network(data.X.shape[1], seed)
    for visit in range(fit * epochs, (fit + 1) * epochs):
        draw = lambda q, slot: naive.uniform(seed, PREPARE, int(data.places[q]), visit, slot)  # noqa: B023, E731
        for q in sorted(range(data.queries), key=lambda q: draw(q, LAST)):
            r, s = R[spans[q]], forward(net, X[q])
            n, k = len(s), min(len(p), len(s))
            lists = [sampled_list(s, k, lambda d: draw(q, i * n + d)) for i in range(samples)]  # noqa: B023
            e = p[0] * chances(s, [])
            for pi in lists:
                for j in range(1, k):
                    e[pi[j]] += p[j] / samples
            labels = (1 - alpha) * r + alpha * naive.gradient(e, r)
            steps = network_gradient(net, X[q], pl_rank_2(lists, s, labels, p))
            net = [theta + lr * step for theta, step in zip(net, steps, strict=True)]
    return [forward(net, x) for x in X]
