"""ILP (Biega et al. 2018): the list that brings exposure closest to relevance among those of enough effectiveness.

Each list is an integer program, solved exactly. With the shares of exposure `w = p/S` and of relevance `r = R/ΣR`, and
the deficit `δ = (N+1) r - E/S` of each item after N visits, the list y minimises

    Σ_j |w_j - δ(y_j)| - |δ(y_j)|    such that    Σ_j p_j R(y_j) ≥ (1 - α) IDCG.

Every item that is far behind costs the same at every rank, so the optimum is hardly ever unique, and what a run ends
with depends on which optimum is taken: the rule for ties is part of the policy.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import Share, register
from ..random import Draws
from ..state import Query
from .base import Policy
from .selection import FALLBACK

__all__ = ["ILP"]

IlpTies = Literal["deviation", "index"]
"""Which of the optimal lists: the one of least squared deviation, or the first by the positions of its items."""

Nodes = Annotated[int, msgspec.Meta(ge=0, description="a whole number of at least 0")]

DEVIATION, INDEX = range(2)  # the order of IlpTies

SAME = 1e-10  # lists whose objectives differ by less are equally good
ENOUGH = 1e-9  # by which the effectiveness of a list may fall short of its bound, because of rounding


@kernel
def deficits(R: FloatArray, E: FloatArray, visits: int, S: float, out: FloatArray) -> None:
    """Write δ(d) = (N+1) R(d)/ΣR - E(d)/S; without any relevance all items deserve the same."""
    n = out.shape[0]
    total = 0.0
    for d in range(n):
        total += R[d]
    for d in range(n):
        share = R[d] / total if total > 0.0 else 1.0 / n
        out[d] = (visits + 1.0) * share - E[d] / S


@kernel
def list_cost(share: float, deficit: float) -> float:
    """Return what an item adds to the objective at a rank with this share of exposure."""
    return abs(share - deficit) - abs(deficit)


@kernel
def insert(values: FloatArray, items: IntArray, d: int, value: float) -> None:
    """Insert a value into the highest values, and its item, in order; an equal value goes after those before it."""
    j = values.shape[0]
    while j > 0 and not values[j - 1] >= value:
        j -= 1
        if j + 1 < values.shape[0]:
            values[j + 1] = values[j]
            items[j + 1] = items[j]
    if j < values.shape[0]:
        values[j] = value
        items[j] = d


@kernel(inline=False)
def falling(values: FloatArray, order: IntArray) -> None:
    """Write the items by falling value, lowest index first if equal; NumPy's own sort takes seconds to compile."""
    for i in range(values.shape[0]):
        j = i
        while j > 0 and values[order[j - 1]] < values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i


@kernel(inline=False, allocates=True)
def undominated(R: FloatArray, deficit: FloatArray, k: int) -> IntArray:
    """Return the items that an optimal list may hold: fewer than k others match them in relevance and deficit."""
    n = R.shape[0]
    order, worth = np.empty(n, np.int64), np.zeros(n, np.bool_)
    falling(deficit, order)
    highest, who = np.empty(k), np.empty(k, np.int64)
    for j in range(k):
        highest[j] = -np.inf
    size = 0
    for i in range(n):
        d = order[i]
        worth[d] = R[d] > highest[k - 1]
        size += worth[d]
        insert(highest, who, d, R[d])
    items = np.empty(size, np.int64)
    for d in range(n - 1, -1, -1):
        if worth[d]:
            size -= 1
            items[size] = d
    return items


@kernel(inline=False, allocates=True)
def price_of_relevance(cost: FloatArray, gain: FloatArray, need: float) -> float:
    """Return a λ ≥ 0 with about the highest bound `Σ_j min_i (cost - λ gain) + λ need`; any λ is a valid one."""
    low, high = 0.0, 1.0
    for _ in range(40):
        if gain_at_price(cost, gain, high) >= need:
            break
        low, high = high, 4.0 * high
    for _ in range(16):
        middle = 0.5 * (low + high)
        if gain_at_price(cost, gain, middle) >= need:
            high = middle
        else:
            low = middle
    return high


@kernel
def gain_at_price(cost: FloatArray, gain: FloatArray, price: float) -> float:
    """Sum the gain of the cheapest item of every rank, an item as often as it is the cheapest."""
    total = 0.0
    for j in range(cost.shape[0]):
        least, chosen = np.inf, 0
        for i in range(cost.shape[1]):
            reduced = cost[j, i] - price * gain[j, i]
            if reduced < least:
                least, chosen = reduced, i
        total += gain[j, chosen]
    return total


@kernel
def unused_sum(values: FloatArray, order: IntArray, used: BoolArray, begin: int) -> float:
    """Sum, over the ranks from `begin` on, the first value in each rank's order whose item is not used."""
    total = 0.0
    for j in range(begin, values.shape[0]):
        i = 0
        while used[order[j, i]]:
            i += 1
        total += values[j, order[j, i]]
    return total


@kernel
def unused_product(weights: FloatArray, values: FloatArray, order: IntArray, used: BoolArray, begin: int) -> float:
    """Return the highest Σ_j weights(j) values(y_j) of unused items at the ranks from `begin` on, given their order."""
    total, i = 0.0, 0
    for j in range(begin, weights.shape[0]):
        while used[order[i]]:
            i += 1
        total += weights[j] * values[order[i]]
        i += 1
    return total


# One function: the stacks of the search are local arrays, and a call for every node would cost more than the node.
@kernel(inline=False, allocates=True)
def search(
    R: FloatArray,
    deficit: FloatArray,
    shares: FloatArray,
    p: FloatArray,
    need: float,
    limit: float,
    nodes: float,
    best: IntArray,
) -> float:
    """Find the best list of items 0 to m-1 by depth-first search; write it and return its cost, or inf.

    The best list has the least cost, then the least deviation, then the lowest items; given a finite limit, it is the
    first in the order of items that costs no more. The result is nan if the search needs more nodes.
    """
    m, k, first = R.shape[0], best.shape[0], limit < np.inf
    cost, gain, value = np.empty((k, m)), np.empty((k, m)), np.empty((k, m))
    for j in range(k):
        for i in range(m):
            cost[j, i], gain[j, i] = list_cost(shares[j], deficit[i]), p[j] * R[i]
    price = price_of_relevance(cost, gain, need)
    order = np.empty((k, m), np.int64)
    for j in range(k):
        for i in range(m):
            value[j, i] = price * gain[j, i] - cost[j, i]
        falling(value[j], order[j])
    by_relevance, by_deficit, before = np.empty(m, np.int64), np.empty(m, np.int64), np.empty(m, np.int64)
    falling(R, by_relevance)
    falling(deficit, by_deficit)
    for a in range(m):
        i = by_deficit[a]
        before[i] = -1  # or its predecessor: of equal relevance, the item with the next higher deficit
        for b in range(a):
            if not first and R[by_deficit[b]] == R[i]:
                before[i] = by_deficit[b]
    chosen, at, used = np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(m, np.bool_)
    spent, earned, served, rest = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    least, most = limit, -np.inf
    found = False
    rest[0] = unused_sum(value, order, used, 1)
    j = 0
    while j >= 0:
        if at[j] == m:  # all items were tried at this rank
            j -= 1
            if j >= 0:
                used[chosen[j]] = False
            continue
        i = at[j] if first else order[j, at[j]]
        at[j] += 1
        if used[i] or (before[i] >= 0 and not used[before[i]]):
            continue
        bound = spent[j] + price * (need - earned[j]) - value[j, i] - rest[j]
        if bound > least + SAME:
            if not first:
                at[j] = m  # the others are no cheaper
            continue
        nodes -= 1
        if nodes < 0:
            return np.nan
        chosen[j], used[i] = i, True
        spent[j + 1], earned[j + 1] = spent[j] + cost[j, i], earned[j] + gain[j, i]
        served[j + 1] = served[j] + shares[j] * deficit[i]
        if j + 1 == k:
            if earned[k] >= need and spent[k] <= least + SAME:
                better = spent[k] < least - SAME or served[k] > most + SAME
                if first or better or (served[k] >= most - SAME and precedes(chosen, best)):
                    least, most, found = min(float(spent[k]), least), float(served[k]), True
                    for rank in range(k):
                        best[rank] = chosen[rank]
                    if first:
                        return float(spent[k])
            used[i] = False
            continue
        promising = earned[j + 1] + unused_product(p, R, by_relevance, used, j + 1) >= need
        if promising:
            bound = spent[j + 1] + price * (need - earned[j + 1]) - unused_sum(value, order, used, j + 1)
            promising = bound <= least + SAME
            if promising and bound >= least - SAME and not first:
                promising = served[j + 1] + unused_product(shares, deficit, by_deficit, used, j + 1) >= most - SAME
        if not promising:
            used[i] = False
            continue
        j += 1
        at[j] = 0
        rest[j] = unused_sum(value, order, used, j + 1)
    return least if found else np.inf


@kernel
def precedes(a: IntArray, b: IntArray) -> bool:
    """Return whether list a precedes list b in lexicographic order."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return bool(a[j] < b[j])
    return False


@kernel(allocates=True)
def ilp_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write the optimal list, or FALLBACK if the search needs too many nodes."""
    alpha, ties, nodes = theta[0], theta[1], theta[2]
    n, k = q.R.shape[0], out.shape[0]
    R, p = q.R, q.p[:k]
    S = 0.0
    for j in range(k):
        S += p[j]
    deficit, shares = np.empty(n), np.empty(k)
    deficits(R, q.E, q.visits[()], S, deficit)
    for j in range(k):
        shares[j] = p[j] / S
    need = (1.0 - alpha) * top_sum(R, p, R, out) - ENOUGH
    effect = top_sum(deficit, p, R, out)
    if ties == DEVIATION and effect >= need:  # the greatest deficits first is the best there is
        return
    items = undominated(R, deficit, k)
    few_R, few_deficits, best = np.empty(items.shape[0]), np.empty(items.shape[0]), np.empty(k, np.int64)
    for i in range(items.shape[0]):
        few_R[i], few_deficits[i] = R[items[i]], deficit[items[i]]
    least = search(few_R, few_deficits, shares, p, need, np.inf, nodes, best)
    if ties == INDEX and least < np.inf:
        least = search(R, deficit, shares, p, need, least, nodes, best)
    for j in range(k):
        out[j] = FALLBACK
        if least < np.inf:
            out[j] = best[j] if ties == INDEX else items[best[j]]


@kernel(inline=False, allocates=True)
def top_sum(values: FloatArray, p: FloatArray, R: FloatArray, items: IntArray) -> float:
    """Write the items of the highest values in order and return their DCG."""
    k = items.shape[0]
    highest = np.empty(k)
    for j in range(k):
        highest[j] = -np.inf
    for d in range(values.shape[0]):
        insert(highest, items, d, values[d])
    total = 0.0
    for j in range(k):
        total += p[j] * R[items[j]]
    return total


@register
class ILP(Policy):
    """Show the list that brings exposure closest to relevance among those with at least (1 - α) of the ideal DCG.

    Parameters
    ----------
    alpha
        Share of the ideal DCG that a list may lose for fairness.
    ties
        Which of the equally good lists: "deviation" is the one of least squared deviation, "index" the first.
    nodes
        Steps of the search after which HiGHS takes over, to its own accuracy; 0 leaves every search to it.

    Examples
    --------
    Exposure approaches the shares of relevance, 1.0 : 0.4 : 0.1:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, ILP(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 2], [0, 1]]
    """

    alpha: Share = 1.0
    ties: IlpTies = "deviation"
    nodes: Nodes = 1_000_000

    kernel = ilp_rank
    style = ("#CC79A7", "X")
    ranks = True
    cost = 5.0

    def solve(self, q: Query, rng: Draws) -> IntArray:
        """Return the optimal list by HiGHS."""
        k = min(q.p.size, q.R.size)
        S = float(q.p[:k].sum())
        deficit = np.empty(q.R.size)
        deficits(q.R, q.E, int(q.visits), S, deficit)
        return solve_by_highs(q.R, deficit, q.p[:k] / S, q.p[:k], self.alpha, self.ties)


def solve_by_highs(
    R: FloatArray, deficit: FloatArray, shares: FloatArray, p: FloatArray, alpha: float, ties: str
) -> IntArray:
    """Solve the same program as a general one, first for its cost and then among the optima for the rule of ties.

    HiGHS keeps a constraint to within 1e-7, so the lists it takes for equally good may differ by as much.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    n, k = R.size, p.size
    cost = np.abs(shares - deficit[:, None]) - np.abs(deficit[:, None])  # (n, k), as is the unknown 0/1 matrix
    if ties == "deviation":
        second = -2.0 * shares * deficit[:, None]
    else:
        second = np.arange(n)[:, None] * n ** -np.arange(k, dtype=float)
    ideal = float(p @ np.sort(R)[::-1][:k])
    pi: IntArray = np.argsort(-R, kind="stable")[:k]
    once, each = np.kron(np.eye(n), np.ones(k)), np.kron(np.ones(n), np.eye(k))
    rules = [
        LinearConstraint(once, 0, 1),
        LinearConstraint(each, 1, 1),
        LinearConstraint(np.outer(R, p).ravel(), (1 - alpha) * ideal - ENOUGH, np.inf),
    ]
    for objective in (cost, second):
        answer = milp(objective.ravel(), integrality=np.ones(n * k), bounds=Bounds(0, 1), constraints=rules)
        if answer.x is None:  # the solver's rounding leaves no list: the one before, or the most relevant items
            break
        pi = answer.x.reshape(n, k).argmax(axis=0)
        rules.append(LinearConstraint(objective.ravel(), -np.inf, answer.fun + SAME))
    return pi
