"""The slow, obvious oracle of an audit: every measure from its definition, session by session, in plain Python."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize


@dataclass
class NaiveLog:
    """Sessions as (query, [(rank, item, clicked), …]), the group of each item, and the merit of (query, item)."""

    sessions: list
    groups: dict
    merit: dict
    p: list
    top: int = 3

    @property
    def queries(self):
        return sorted({query for query, _ in self.sessions})

    def visits(self, query):
        return sum(1 for each, _ in self.sessions if each == query)

    def items(self, query):
        return sorted({item for each, shown in self.sessions if each == query for _, item, _ in shown})

    def weight(self, rank, p=None):
        p = self.p if p is None else p
        return p[rank - 1] if rank <= len(p) else 0.0

    def exposure(self, query, item, p=None):
        return sum(
            self.weight(rank, p)
            for each, shown in self.sessions
            for rank, other, _ in shown
            if each == query and other == item
        )

    def clicks(self, query, item):
        return sum(hit for each, shown in self.sessions for _, other, hit in shown if (each, other) == (query, item))

    def judged(self):
        return [q for q in self.queries if any(self.merit[q, d] > 0 for d in self.items(q))]

    def mean(self, value, queries=None):
        queries = self.judged() if queries is None else queries
        return sum(value(q) for q in queries) / len(queries)

    # --- items -------------------------------------------------------------------------------------------------------

    def unfairness(self, query):
        items = self.items(query)
        n = len(items)
        if n < 2:
            return 0.0
        pairs = (
            (self.exposure(query, x) * self.merit[query, y] - self.exposure(query, y) * self.merit[query, x]) ** 2
            for x in items
            for y in items
        )
        return sum(pairs) / (n * (n - 1))

    def places(self, query):
        """Exposure that the lists of a query handed out at each place: the i-th largest weight of each list, summed."""
        out = [0.0] * len(self.items(query))
        for each, shown in self.sessions:
            if each == query:
                for i, weight in enumerate(sorted((self.weight(rank) for rank, _, _ in shown), reverse=True)):
                    out[i] += weight
        return out

    def floor(self, query):
        """Minimise unfairness over all exposures of which no k items have more than the first k places."""
        items, w = self.items(query), self.places(query)
        n, R = len(items), np.array([self.merit[query, d] for d in items])
        if n < 2 or not R.any():
            return 0.0

        def value(E):
            apart = np.outer(E, R) - np.outer(R, E)
            return (apart**2).sum() / (n * (n - 1))

        constraints = [{"type": "eq", "fun": lambda E: E.sum() - sum(w)}]
        for k in range(1, n):
            for chosen in itertools.combinations(range(n), k):
                rows = list(chosen)
                constraints.append({"type": "ineq", "fun": lambda E, rows=rows, k=k: sum(w[:k]) - E[rows].sum()})
        start = np.full(n, sum(w) / n)
        return minimize(
            value, start, constraints=constraints, method="SLSQP", options={"ftol": 1e-15, "maxiter": 1000}
        ).fun

    def iaa(self, query):
        attention, due = defaultdict(float), defaultdict(float)
        for each, shown in self.sessions:
            if each != query:
                continue
            whole = sum(self.weight(rank) for rank, _, _ in shown)
            worth = sum(self.merit[query, d] for d in self.items(query))
            for rank, item, _ in shown:
                attention[item] += self.weight(rank) / whole
            for item in self.items(query):
                due[item] += self.merit[query, item] / worth
        return sum(abs(attention[d] - due[d]) for d in self.items(query))

    def expected(self, query):
        """EE-D, EE-R and EE-L; the ideal exposure is the mean over all orders of falling merit."""
        items, v = self.items(query), self.visits(query)
        own = {d: self.exposure(query, d) / v for d in items}
        w = [each / v for each in self.places(query)]
        best = [
            order
            for order in itertools.permutations(items)
            if all(self.merit[query, a] >= self.merit[query, b] for a, b in itertools.pairwise(order))
        ]
        ideal = {d: sum(w[order.index(d)] for order in best) / len(best) for d in items}
        return (
            sum(own[d] ** 2 for d in items),
            2 * sum(own[d] * ideal[d] for d in items),
            sum((own[d] - ideal[d]) ** 2 for d in items),
        )

    def ndcg(self, query):
        items = self.items(query)
        best = sorted((self.merit[query, d] for d in items), reverse=True)
        gain = sum(self.merit[query, d] * self.exposure(query, d) for d in items)
        return gain / sum(r * w for r, w in zip(best, self.places(query), strict=True))

    # --- groups ------------------------------------------------------------------------------------------------------

    @property
    def names(self):
        return sorted(set(self.groups.values()))

    def members(self, query, group):
        return [d for d in self.items(query) if self.groups[d] == group]

    def total(self, group, value):
        return sum(value(q, d) for q in self.queries for d in self.members(q, group))

    def group_exposure(self, group):
        return self.total(group, self.exposure)

    def group_merit(self, group):
        return self.total(group, lambda q, d: self.visits(q) * self.merit[q, d])

    def group_size(self, group):
        return self.total(group, lambda q, d: self.visits(q))

    def group_clicks(self, group):
        return self.total(group, self.clicks)

    def selected(self, group):
        return sum(
            1 for _, shown in self.sessions for rank, d, _ in shown if rank <= self.top and self.groups[d] == group
        )

    @staticmethod
    def least_over_most(values):
        return min(values) / max(values)

    def demographic_parity(self):
        return self.least_over_most([self.group_exposure(g) / self.group_size(g) for g in self.names])

    def disparate_treatment(self):
        worthy = [g for g in self.names if self.group_merit(g) > 0]
        return self.least_over_most([self.group_exposure(g) / self.group_merit(g) for g in worthy])

    def disparate_impact(self):
        worthy = [g for g in self.names if self.group_merit(g) > 0]
        return self.least_over_most([self.group_clicks(g) / self.group_merit(g) for g in worthy])

    def impact_ratio(self):
        return self.least_over_most([self.selected(g) / self.group_size(g) for g in self.names])

    def awrf(self, query, discount, target):
        """`discount(rank)` is attention, `target(query, group)` what a group should have."""
        ranks = max(rank for _, shown in self.sessions for rank, _, _ in shown)
        table = [discount(rank) for rank in range(1, ranks + 1)]
        groups = [g for g in self.names if self.members(query, g)]
        got = [sum(self.exposure(query, d, table) for d in self.members(query, g)) for g in groups]
        aim = [target(query, g) for g in groups]
        a, b = [x / sum(got) for x in got], [x / sum(aim) for x in aim]
        m = [(x + y) / 2 for x, y in zip(a, b, strict=True)]
        kl = [sum(x * math.log2(x / z) for x, z in zip(side, m, strict=True) if x > 0) for side in (a, b)]
        return 1 - sum(kl) / 2

    def population(self, query, group):
        return len(self.members(query, group))

    def worth(self, query, group):
        return sum(self.merit[query, d] for d in self.members(query, group))


def gini(values):
    n = len(values)
    return sum(abs(a - b) for a in values for b in values) / (2 * n * sum(values))


def jain(values):
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def entropy(values):
    return -sum(v / sum(values) * math.log2(v / sum(values)) for v in values if v > 0)


def corrected(measure, values, places):
    """Scaled to the extremes that lists can reach: the same for all, and always the same list."""
    ends = sorted((measure([1.0] * len(values)), measure(places)))
    return (measure(values) - ends[0]) / (ends[1] - ends[0])


def pair_ratios(cells, ranks):
    """The table of c_j n_k/(n_j + n_k) over items, of Mantel and Haenszel; cells is {(item, rank): (shown, clicks)}."""
    table = np.zeros((ranks, ranks))
    for (d, j), (n, c) in cells.items():
        for (e, k), (m, _) in cells.items():
            if d == e and j != k:
                table[j - 1, k - 1] += c * m / (n + m)
    return table
