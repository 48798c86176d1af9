"""ILP (Biega et al. 2018): the list that brings exposure closest to relevance among those of enough effectiveness.

Each list is an integer program. With the shares of exposure `w = p/S` and of relevance `r = R/ΣR`, and
the deficit `δ = (N+1) r - E/S` of each item after N visits, the list y minimises

    Σ_j |w_j - δ(y_j)| - |δ(y_j)|    such that    Σ_j p_j R(y_j) ≥ (1 - α) IDCG.

Every item that is far behind costs the same at every rank, so the optimum is hardly ever unique, and what a run ends
with depends on which optimum is taken: the rule for ties is part of the policy.

With `served = min(w, δ⁺)` the cost is `Σ w - 2 Σ served`. With a price on DCG and prices of the items, every rank
stands for itself, which has a bound at once. A depth-first search pays, for each item at a rank, by how much the item
falls short of the best one there, and leaves a branch that has paid more than the distance from the bound to the best
list. The rule for ties is a second search of the same kind among the lists of the least cost. Most lists are found with
a rough price on DCG alone, in microseconds; where that takes long, a linear program gives the best prices.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..parts import Share, register
from ..random import Draws
from ..state import Query
from .base import Policy, Solution
from .selection import BY_INDEX, FALLBACK, dcg, sort_by_insertion

IlpTies = Literal["deviation", "index"]
"""Which of the optimal lists: the one of least squared deviation, or the first by the positions of its items."""

Nodes = Annotated[int, msgspec.Meta(ge=0, description="a whole number of at least 0")]

DEVIATION, INDEX = range(2)  # the order of IlpTies

SAME = 1e-10  # lists whose objectives differ by less are equally good
ENOUGH = 1e-9  # by which the effectiveness of a list may fall short of its bound, because of rounding

HASTE = 8_000  # nodes of a search with rough bounds, after which better ones, of a linear program, are worth their time
UNLIMITED = 2**40  # deviations
DEVIATIONS = 4  # from the list of the least penalties, in the first look for a good list


@kernel(inline=False, allocates=True)
def undominated(R: FloatArray, deficit: FloatArray, k: int) -> IntArray:
    """Return the items that an optimal list may hold: fewer than k others match them in relevance and deficit."""
    n, size = R.shape[0], 0
    items = np.empty(n, np.int64)
    for d in range(n):
        better, other = 0, 0
        while better < k and other < n:
            ahead = deficit[other] > deficit[d] or (deficit[other] == deficit[d] and other < d)
            better += 1 if ahead and R[other] >= R[d] else 0
            other += 1
        items[size] = d
        size += 1 if better < k else 0
    return items[:size]


# --- bounds: prices on what a list must have --------------------------------------------------------------------------


@kernel
def sum_of(values: FloatArray, pi: IntArray) -> float:
    """Return Σ_j values(j, π_j)."""
    total = 0.0
    for j in range(pi.shape[0]):
        total += values[j, pi[j]]
    return total


@kernel(inline=False)
def rough_price(base: FloatArray, kept: FloatArray, least: float) -> float:
    """Return about the λ ≥ 0 of the least `max Σ (base + λ kept) - λ least` over lists that may repeat an item."""
    low, high, price = 0.0, np.inf, 1.0
    for _ in range(24):
        total = 0.0
        for j in range(base.shape[0]):
            most, chosen = -np.inf, 0
            for i in range(base.shape[1]):
                worth = base[j, i] + price * kept[j, i]
                if worth > most:
                    most, chosen = worth, i
            total += kept[j, chosen]
        low, high = (low, price) if total >= least else (price, high)
        price = 0.5 * (low + high) if high < np.inf else 4.0 * price
    return price if high == np.inf else high


# --- the search -------------------------------------------------------------------------------------------------------


class Aim(NamedTuple):
    """A sum over the ranks of a list: its summands, ranks by items, and a bound.

    A list has at most the bound less the penalties of its items, if it meets the constraints.
    """

    value: FloatArray
    penalty: FloatArray
    bound: float


@kernel(inline=False, allocates=True)
def aim_at(value: FloatArray, worth: FloatArray, prices: FloatArray, paid: float) -> Aim:
    """Return an aim whose bound follows from prices, at least 0, of the items and of what lists must have.

    `worth` is the value with that added at its prices, and `paid` the least of it at its prices. A list pays the price
    of every item once, so it is worth at most the prices of all items and, for each rank, the most above its price.
    """
    k, m = value.shape
    penalty, bound = np.empty((k, m)), -paid
    for i in range(m):
        bound += prices[i]
    for j in range(k):
        most = -np.inf
        for i in range(m):
            most = max(most, worth[j, i] - prices[i])
        for i in range(m):
            penalty[j, i] = most - (worth[j, i] - prices[i])
        bound += most
    return Aim(value, penalty, bound)


class Program(NamedTuple):
    """The items of a program by falling R, and what a list of them must satisfy.

    Attributes
    ----------
    position
        Where each item stands among the query's items.
    R
        Relevance of each.
    gain, need
        What each item adds to the DCG at each rank, and the least DCG.
    served
        How much of the deficit of each item each rank serves, `min(w, δ⁺)`: the cost is `Σ w - 2 Σ served`.
    closeness
        `w δ`, whose sum is the higher the lower the squared deviation.
    """

    position: IntArray
    R: FloatArray
    gain: FloatArray
    need: float
    served: FloatArray
    closeness: FloatArray


@kernel(inline=False, allocates=True)
def sort_row(penalty: FloatArray, most: float, order: IntArray) -> int:
    """Write the items of at most a penalty by rising penalty; return how many they are."""
    size = 0
    for i in range(penalty.shape[0]):
        if penalty[i] <= most:
            b = size
            while b > 0 and penalty[order[b - 1]] > penalty[i]:
                order[b] = order[b - 1]
                b -= 1
            order[b] = i
            size += 1
    return size


@kernel
def least_rest(
    penalty: FloatArray, order: IntArray, sizes: IntArray, used: BoolArray, begin: int, most: float
) -> float:
    """Sum the least penalties of unused items at the ranks from `begin` on, until the sum exceeds `most`."""
    total = 0.0
    for j in range(begin, sizes.shape[0]):
        b = 0
        while b < sizes[j] and used[order[j, b]]:
            b += 1
        total += penalty[j, order[j, b]] if b < sizes[j] else np.inf
        if total > most:
            break
    return total


@kernel
def unused_gain(gain: FloatArray, used: BoolArray, begin: int) -> float:
    """Return the highest DCG of unused items at the ranks from `begin` on; items are sorted by falling R."""
    total, i = 0.0, 0
    for j in range(begin, gain.shape[0]):
        while used[i]:
            i += 1
        total += gain[j, i]
        i += 1
    return total


@kernel
def fill_front(
    R: FloatArray, height: FloatArray, penalty: FloatArray, used: BoolArray, slack: float, front: IntArray
) -> int:
    """Write the items that may be next, by rising penalty, and return how many they are.

    An item is not next while there is another one of no less R and of greater height: to have the other one first, or
    in its place, would be no worse.
    """
    size, i, m, top = 0, 0, R.shape[0], -np.inf
    while i < m:
        level, head = R[i], -1
        while i < m and R[i] == level:  # the first unused one is the highest of equal relevance
            if head < 0 and not used[i]:
                head = i
            i += 1
        if head < 0 or not height[head] > top - slack:
            continue
        top, b = max(top, height[head]), size
        while b > 0 and penalty[front[b - 1]] > penalty[head]:
            front[b] = front[b - 1]
            b -= 1
        front[b] = head
        size += 1
    return size


@kernel
def precedes(a: IntArray, b: IntArray, position: IntArray) -> bool:
    """Return whether list a precedes list b in lexicographic order of the positions of their items."""
    for j in range(a.shape[0]):
        if a[j] != b[j]:
            return bool(position[a[j]] < position[b[j]])
    return False


# One function: the stacks of the search are local arrays, and a call for every node would cost more than the node.
@kernel(inline=False, allocates=True)
def search(
    program: Program,
    aim: Aim,
    kept: Aim,
    floor: float,
    least: float,
    slack: float,
    turn: IntArray,
    deviations: int,
    nodes: int,
    best: IntArray,
) -> tuple[float, int]:
    """Find the list of the highest aim, above `least`, with `kept` of at least the floor and enough DCG.

    Return its aim, or `least` if there is none, and the nodes that are left, which is negative if there were too few.
    The search is depth-first, from the first rank down. With a positive slack, lists that are as good up to it are
    compared by the positions of their items, otherwise a list must be better by it. If `turn` is not empty, it is the
    order in which items are tried, and the first list that is as good as `least` is taken. A list may deviate from the
    item of the least penalty so often in all.
    """
    position, R, gain, need = program.position, program.R, program.gain, program.need
    k, m = gain.shape
    in_turn = turn.shape[0] > 0
    budget, allowed = aim.bound - least + slack, kept.bound - floor
    order, sizes = np.empty((k, m), np.int64), np.zeros(k, np.int64)
    kept_order, kept_sizes = np.empty((k, m), np.int64), np.zeros(k, np.int64)
    for j in range(k):
        sizes[j] = sort_row(aim.penalty[j], budget, order[j])
        if allowed < np.inf:
            kept_sizes[j] = sort_row(kept.penalty[j], allowed, kept_order[j])
    used, chosen = np.zeros(m, np.bool_), np.zeros(k, np.int64)
    front, count, at = np.empty((k, m), np.int64), np.zeros(k, np.int64), np.zeros(k, np.int64)
    paid, kept_paid, earned = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    reached, kept_reached, strayed = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1, np.int64)
    found = False
    j, entered = 0, True
    while j >= 0:
        if entered:
            if in_turn:
                count[j] = m
            else:
                count[j] = fill_front(R, aim.value[j], aim.penalty[j], used, max(slack, 0.0), front[j])
            at[j], entered = 0, False
        if at[j] == count[j] or strayed[j] + (0 if in_turn else at[j]) > deviations:
            j -= 1
            if j >= 0:
                used[chosen[j]] = False
            continue
        tried = at[j]
        i = turn[tried] if in_turn else front[j, tried]
        at[j] += 1
        pay, kept_pay = paid[j] + aim.penalty[j, i], kept_paid[j] + kept.penalty[j, i]
        if used[i] or pay > budget or kept_pay > allowed:
            continue
        nodes -= 1
        if nodes < 0:
            return least, nodes
        earn = earned[j] + gain[j, i]
        reach, kept_reach = reached[j] + aim.value[j, i], kept_reached[j] + kept.value[j, i]
        if j + 1 == k:
            if earn >= need and kept_reach >= floor:
                chosen[j] = i
                better = reach > least + abs(slack)
                same = slack > 0.0 and reach >= least - slack
                if better or (same and (not found or precedes(chosen, best, position))):
                    least, found = max(reach, least), True
                    budget = aim.bound - least + slack
                    for rank in range(k):
                        best[rank] = chosen[rank]
                    if in_turn:
                        return least, nodes
            continue
        used[i] = True
        if (
            earn + unused_gain(gain, used, j + 1) < need
            or pay + least_rest(aim.penalty, order, sizes, used, j + 1, budget - pay) > budget
            or (
                allowed < np.inf
                and kept_pay + least_rest(kept.penalty, kept_order, kept_sizes, used, j + 1, allowed - kept_pay)
                > allowed
            )
        ):
            used[i] = False
            continue
        chosen[j] = i
        paid[j + 1], kept_paid[j + 1], earned[j + 1] = pay, kept_pay, earn
        reached[j + 1], kept_reached[j + 1] = reach, kept_reach
        strayed[j + 1] = strayed[j] + (0 if in_turn else tried)
        j += 1
        entered = True
    return least, nodes


def look_closer(
    program: Program, aim: Aim, kept: Aim, floor: float, slack: float, nodes: int, best: IntArray
) -> tuple[float, int]:
    """Find what `search` finds, beginning with `best`: near the list of the least penalties first, then everywhere."""
    no_turn, least = np.empty(0, np.int64), sum_of(aim.value, best)
    least, _ = search(program, aim, kept, floor, least, slack, no_turn, DEVIATIONS, nodes // 10, best)
    return search(program, aim, kept, floor, least, slack, no_turn, UNLIMITED, nodes, best)


# --- the policy -------------------------------------------------------------------------------------------------------


@kernel(inline=False, allocates=True)
def program_of(R: FloatArray, deficit: FloatArray, items: IntArray, p: FloatArray, S: float, need: float) -> Program:
    """Sort some items by falling R, then by falling deficit, then as they stand."""
    m, k = items.shape[0], p.shape[0]
    position = np.empty(m, np.int64)
    for b in range(m):
        d, i = items[b], b
        while i > 0:
            other = position[i - 1]
            if R[other] > R[d] or (R[other] == R[d] and deficit[other] >= deficit[d]):
                break
            position[i] = other
            i -= 1
        position[i] = d
    few_R, gain, served, closeness = np.empty(m), np.empty((k, m)), np.empty((k, m)), np.empty((k, m))
    for i in range(m):
        few_R[i], lacking = R[position[i]], deficit[position[i]]
        for j in range(k):
            share = p[j] / S
            gain[j, i] = p[j] * few_R[i]
            served[j, i] = min(max(lacking, 0.0), share)
            closeness[j, i] = share * lacking
    return Program(position, few_R, gain, need, served, closeness)


@kernel(inline=False, allocates=True)
def possible_closeness(program: Program, aim: Aim, floor: float) -> FloatArray:
    """Return the closeness, very low where an item at a rank cannot be in a list that serves as much as the floor."""
    k, m = program.gain.shape
    worth, largest = np.empty((k, m)), 1.0
    for j in range(k):
        for i in range(m):
            largest = max(largest, abs(program.closeness[j, i]))
    for j in range(k):
        for i in range(m):
            worth[j, i] = program.closeness[j, i] if aim.penalty[j, i] <= aim.bound - floor else -4.0 * k * largest
    return worth


@kernel(inline=False, allocates=True)
def first_of(program: Program, aim: Aim, floor: float, nodes: int, best: IntArray) -> int:
    """Of the lists that serve as much as the floor, write the first by positions; return the nodes left."""
    turn = np.empty(program.R.shape[0], np.int64)
    for i in range(turn.shape[0]):
        turn[program.position[i]] = i
    return search(program, aim, aim, floor, floor, SAME, turn, UNLIMITED, nodes, best)[1]


@kernel(inline=False, allocates=True)
def prepared(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> Program | None:
    """Write the list of the greatest deficits; return the program if that is not the best list there is."""
    alpha, ties = theta[0], theta[1]
    R, k, p, S = q.R, out.shape[0], q.p[: out.shape[0]], 0.0
    for j in range(k):
        S += p[j]
    deficit, items, total = np.empty(R.shape[0]), np.arange(R.shape[0]), 0.0
    for d in range(R.shape[0]):
        total += R[d]
    for d in range(R.shape[0]):
        share = R[d] / total if total > 0.0 else 1.0 / R.shape[0]  # without any relevance all items deserve the same
        deficit[d] = (q.visits[()] + 1.0) * share - q.E[d] / S
    sort_by_insertion(R, R, BY_INDEX, rng, items, R.shape[0], out)
    need = (1.0 - alpha) * dcg(out, R, p) - ENOUGH
    sort_by_insertion(deficit, R, BY_INDEX, rng, items, R.shape[0], out)
    if ties == DEVIATION:
        if dcg(out, R, p) >= need:
            return None
        items = undominated(R, deficit, k)
    return program_of(R, deficit, items, p, S, need)


@kernel(allocates=True)
def ilp_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write the optimal list, or FALLBACK if that takes more nodes than a search with rough bounds may have."""
    nodes = min(int(theta[2]), HASTE)
    program = prepared(q, theta, rng, out)
    if program is None:
        return
    served, best, no_turn = program.served, np.empty(out.shape[0], np.int64), np.empty(0, np.int64)
    unpriced = np.zeros(program.R.shape[0])
    price = rough_price(served, program.gain, program.need)
    aim = aim_at(served, served + price * program.gain, unpriced, price * program.need)
    _, left = search(program, aim, aim, -np.inf, -1.0, -SAME, no_turn, UNLIMITED, nodes, best)
    if left >= 0:
        floor = sum_of(served, best) - SAME
        if theta[1] == INDEX:
            left = first_of(program, aim, floor, nodes, best)
        else:
            closest = aim_at(program.closeness, possible_closeness(program, aim, floor), unpriced, 0.0)
            least = sum_of(program.closeness, best)
            _, left = search(program, closest, aim, floor, least, SAME, no_turn, UNLIMITED, nodes, best)
    if left < 0:
        out[0] = FALLBACK
        return
    for j in range(out.shape[0]):
        out[j] = program.position[best[j]]


def relaxed(value: FloatArray, worth: FloatArray, *rules: tuple[FloatArray, float]) -> Aim:
    """Return an aim with the best bound that prices give: those of the linear program in which items may be divided.

    Any prices give a bound, so the precision of the solver does not matter. Rules are sums and the least of each.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    k, m = worth.shape
    cells = np.arange(k * m)
    rows = [cells // m, k + cells % m, *(np.full(k * m, k + m + r) for r in range(len(rules)))]
    entries = [np.ones(2 * k * m), *(-kept.ravel() for kept, _ in rules)]
    matrix = csr_matrix((np.concatenate(entries), (np.concatenate(rows), np.tile(cells, 2 + len(rules)))))
    most = np.append(np.ones(k + m), [-least for _, least in rules])
    answer = linprog(-worth.ravel(), matrix, most, method="highs-ds", options={"presolve": False})
    prices = np.maximum(-answer.ineqlin.marginals, 0.0) if answer.success else np.zeros(most.size)
    paid = 0.0
    for price, (kept, least) in zip(prices[k + m :], rules, strict=True):
        worth, paid = worth + price * kept, paid + price * least
    return aim_at(value, worth, prices[k : k + m], paid)


@register
class ILP(Policy):
    """Show the list that brings exposure closest to relevance among those with at least (1 - α) of the ideal DCG.

    A search finds the best list exactly, or stops after a number of steps, with a list whose cost is within a proven
    gap of the least. By default lists of five ranks are exact, nearly all of ten ranks among 100 items as well, and
    lists of twenty ranks are within about 0.01, in shares of a list's exposure.

    Parameters
    ----------
    alpha
        Share of the ideal DCG that a list may lose for fairness.
    ties
        Which of the equally good lists: "deviation" is the one of least squared deviation, "index" the first.
    nodes
        Steps of a search after which it stops. The provenance of a trace holds the largest gap of its lists, and the
        service states the gap of a list in its explanation.

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
    nodes: Nodes = 100_000

    kernel = ilp_rank
    style = ("#CC79A7", "X")
    ranks = True
    cost = 5.0

    def solve(self, q: Query, rng: Draws) -> Solution:
        """Return the best list that is found in the nodes allowed, and its gap."""
        q, pi = q.for_kernels(), np.empty(min(q.p.size, q.R.size), np.int64)
        program = prepared(q, self.theta, rng, pi)
        if program is None:
            return Solution(pi)
        served, closeness, dcg = program.served, program.closeness, (program.gain, program.need)
        aim, best = relaxed(served, served, dcg), np.arange(pi.size)
        reached, left = look_closer(program, aim, aim, -np.inf, -SAME, self.nodes, best)
        gap = 2.0 * max(aim.bound - reached, 0.0) if left < 0 else 0.0
        floor = float(sum_of(served, best)) - SAME
        if self.ties == "index":
            first_of(program, aim, floor, self.nodes, best)
        else:
            closest = relaxed(closeness, possible_closeness(program, aim, floor), dcg, (served, floor))
            look_closer(program, closest, aim, floor, SAME, self.nodes, best)
        return Solution(program.position[best], gap)
