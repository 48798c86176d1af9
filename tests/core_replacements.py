"""Functions of the core in plain Python, each with a fault that is on or off.

Each takes `faulty`, and where it wraps a function of the package also that function, and returns the replacement.
"""

from __future__ import annotations

import itertools
from functools import partial

import naive
import naive_users
import numpy as np

from mcfair.random import uniform
from mcfair.simulation import run


def interpret(monkeypatch):
    """Run the loop of the simulator in plain Python, where functions can be replaced."""
    monkeypatch.setattr(run, "INTERPRET", True)


def replace_method(cls, name, make):
    """Replace a method of a part, and its kernel by nothing."""

    def install(monkeypatch, faulty):
        monkeypatch.setattr(cls, "kernel", None)
        monkeypatch.setattr(cls, name, make(faulty))

    return install


def replace_function(module, name, make):
    def install(monkeypatch, faulty):
        interpret(monkeypatch)
        monkeypatch.setattr(module, name, make(faulty, getattr(module, name)))

    return install


def unfairness_value(faulty):
    def value(self, E, R, groups, visits):
        n, square = E.size, float(R @ R)
        gaps = E - (E @ R) / square * R
        return (1 if faulty else 2) / (n * (n - 1)) * square * float(gaps @ gaps)

    return value


def relative_value(faulty):
    return lambda self, E, R, groups, visits: naive.unfairness(E, R) / (visits if faulty else visits**2)


def gini_value(faulty):
    def value(self, E, R, groups, visits):
        n = E.size - 1 if faulty else E.size
        return float(np.abs(E[:, None] - E).sum() / (2 * n * E.sum()))

    return value


def group_value(faulty):
    def value(self, E, R, groups, visits):
        e, r, size = (np.bincount(groups, x) for x in (E, R, np.ones(E.size)))
        if e.size < 2:
            return float("nan")
        return naive.unfairness(e / size, r / size) if faulty else naive.unfairness(e, r)

    return value


def mcfair_score(faulty, fault):
    def score(self, q, rng):
        B = naive.scaled(naive.gradient(q.E, q.R), self.scale, int(q.visits))
        floor = 0.0 if faulty and fault == "floor" else self.mc_floor
        sign = -1.0 if faulty and fault == "sign" else 1.0
        strength = 0.0 if faulty and fault == "prior" else q.prior_strength
        total = q.R + sign * self.alpha * B
        beta = naive.exploration(self, online=True)
        return total + beta * naive.certainty(q.E, strength, floor) if beta else total

    return score


def position_based(faulty, fault):
    def clicks(self, pi, truth, p, rng):
        hits = np.zeros(pi.size, bool)
        for j, d in enumerate(pi):
            seen = p[min(j + 1, p.size - 1)] if faulty and fault == "rank" else p[j]
            slot = j if faulty and fault == "slot" else d
            R = truth[j] if faulty and fault == "relevance" else truth[d]
            hits[j] = uniform(rng, slot) < seen * (R + self.noise * (1 - R))
        return hits

    return clicks


def cascade(faulty):
    def clicks(self, pi, truth, p, rng):
        hits = np.zeros(pi.size, bool)
        for j, d in enumerate(pi):
            hits[j] = uniform(rng, d) < truth[d]
            if hits[j] and not faulty and uniform(rng, d + 2**31) >= 1 - self.stop:
                break
        return hits

    return clicks


def trust_bias(faulty):
    def clicks(self, pi, truth, p, rng):
        plus, minus = (self.negative, self.positive) if faulty else (self.positive, self.negative)
        return np.array(naive_users.trust_bias(plus, minus, pi, truth, p, partial(uniform, rng)))

    return clicks


def estimate(faulty):
    def value(self, C, E, F, p):
        s = 0.0 if faulty else self.prior_strength
        R = (C + s * self.prior_mean) / (E + s) if E + s > 0 else 0.0
        return R, 1 / (E + self.prior_strength) if E + self.prior_strength > 0 else np.inf

    return value


def examined(faulty):
    def value(self, p):
        return p if faulty or self.severity is None else naive.examination(p.size, self.severity)

    return value


def observe_list(faulty, original):
    def observe(pi, F, p, E):
        weights = 1 / np.arange(1, p.size + 1) if faulty else p
        for j, d in enumerate(pi):
            F[d, j] += 1
            E[d] = naive.exposure(F[d], weights)

    return observe


def update_beliefs(faulty, original):
    """The fault: an item keeps its estimate while it has more exposure than clicks."""

    def update(estimate, batch, theta, items, C, q, out):
        for i, d in enumerate(items):
            if q.E[d] <= C[d] or not faulty:
                estimate(C[d], q.E[d], q.F[d], q.p, theta, out[i])
                q.R[d], q.uncertainty[d] = out[i]

    return update


def fill_view(faulty, original):
    """The fault: a query begins with what the scratch arrays hold of the query before it."""

    def fill(*arguments):
        if not faulty:
            original(*arguments)

    return fill


def add_ndcg(faulty, original):
    """The fault: a list that is shorter than the cutoff adds nothing there."""

    def add(pi, R, p, ideal, weight, ndcg, cndcg):
        values = naive.ndcg(pi.tolist(), R.tolist(), p)
        for j in range(pi.size if faulty else p.size):
            ndcg[j] += values[j]
            cndcg[j] += weight * values[j]

    return add


def top_k(faulty, original, fault):
    def select(scores, E, ties, tie_rng, scratch, pi):
        keys = [[0] * scores.size, [uniform(tie_rng, d) for d in range(scores.size)], E][ties]
        order = sorted(range(scores.size), key=lambda d: (-scores[d], keys[d], -d if faulty and fault == "ties" else d))
        if faulty and fault == "last":
            order = [d for d in order if d != scores.size - 1] + [scores.size - 1]
        pi[:] = order[: pi.size]
        return 0

    return select


def session_draws(faulty, original, purpose, field):
    """The fault: draws for one purpose ignore the seed, or belong to the visit after."""

    def make(seed, for_purpose, place, visit):
        if faulty and for_purpose == purpose:
            seed, visit = (np.uint64(0), visit) if field == "seed" else (seed, visit + np.uint64(1))
        return original(seed, for_purpose, place, visit)

    return make


def discounts(faulty, original):
    return lambda gamma, length: np.array([gamma ** (i + 1 if faulty else i) for i in range(length + 1)])


def ideal_dcg(faulty, original):
    def ideal(R, p, offsets):
        rows = []
        for a, b in itertools.pairwise(offsets):
            gains = R[a:b] if faulty else np.sort(R[a:b])[::-1]
            gains = np.concatenate([gains, np.zeros(p.size)])[: p.size] * p
            rows.append(np.cumsum(gains))
        return np.array(rows)

    return ideal


def arrivals(faulty, original, fault):
    def draw(kind, sessions, queries, seed, start=0):
        if faulty and fault == "generator":
            return np.random.default_rng(seed).integers(0, queries, start + sessions).astype(np.int32)[start:]
        return original(kind, sessions, queries, seed, 0 if faulty else start)

    return draw


def late_run(faulty, original):
    """The fault: figures of a checkpoint are recorded one session late."""

    class Late(original):
        def play(self, threads, progress):
            stream, ends = self.stream, self.stream.ends
            if faulty:
                self.stream = stream._replace(ends=np.append(ends[:-1] + 1, ends[-1]))
            seconds = super().play(threads, progress)
            self.stream = stream
            return seconds

    return Late


def threaded_run(faulty, original):
    """The fault: two threads add up the blocks of queries in another order than one."""

    class Threaded(original):
        def play(self, threads, progress):
            seconds = super().play(threads, progress)
            if faulty and threads > 1:
                self.accumulators = self.accumulators._replace(ndcg=self.accumulators.ndcg[::-1].copy())
            return seconds

    return Threaded


def shared_state(faulty, original):
    """The fault: a continued run writes to the state that it was given."""

    def copy(self, data, p):
        return self if faulty else original(self, data, p)

    return copy


def decompose(faulty, original):
    def lists_and_weights(X):
        lists, weights = original(X)
        return (lists[:-1], weights[:-1]) if faulty else (lists, weights)

    return lists_and_weights


def placement(faulty, original):
    return lambda R, p, alpha: original(R, p, 0.0 if faulty else alpha)


def ilp_rank(faulty):
    def rank(self, q, rng):
        return np.array(naive.ilp(1.0 if faulty else self.alpha, self.ties, q.R, q.E, int(q.visits), q.p))

    return rank
