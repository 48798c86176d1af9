"""ILP (Biega et al. 2018): the list that brings exposure closest to relevance among those of enough effectiveness.

Each list is an integer program. With the shares of exposure `w = p/S` and of relevance `r = R/ΣR`, and
the deficit `δ = (N+1) r - E/S` of each item after N visits, the list y minimises

    Σ_j |w_j - δ(y_j)| - |δ(y_j)|    such that    Σ_j p_j R(y_j) ≥ (1 - α) IDCG.

Every item that is far behind costs the same at every rank, so the optimum is hardly ever unique, and what a run ends
with depends on which optimum is taken: the rule for ties is part of the policy.

With `served = min(w, δ⁺)` the cost is `Σ w - 2 Σ served`. With a price on DCG, a list is an assignment of items to
ranks, which has a bound at once and prices of its items. A depth-first search pays, for each item at a rank, by how
much the item falls short of the best assignment, and leaves a branch that has paid more than the distance from the
bound to the best list. It looks near the bound first: the optimum is within a percent of it. The rule for ties is a
second search of the same kind among the lists of the least cost.
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
from .selection import EXAMPLE_QUERY, FALLBACK

__all__ = ["ILP"]

IlpTies = Literal["deviation", "index"]
"""Which of the optimal lists: the one of least squared deviation, or the first by the positions of its items."""

Nodes = Annotated[int, msgspec.Meta(ge=0, description="a whole number of at least 0")]

DEVIATION, INDEX = range(2)  # the order of IlpTies

SAME = 1e-10  # lists whose objectives differ by less are equally good
ENOUGH = 1e-9  # by which the effectiveness of a list may fall short of its bound, because of rounding

STEPS = 60  # most steps to find a price
SWEEPS = 2  # over two prices that depend on each other
FIRST_NODES = 300  # of a search without prices; those that take more are worth finding prices for
HASTE = 4  # the kernel hands a list over after this part of the nodes, because all of its work is done again then
UNLIMITED = 2**40  # deviations
SEEN = 2**12  # sets of items that a long search remembers, each at the place of its hash
MIXER = 2_654_435_761  # of the hash
DEVIATIONS = 4  # from the list of the least penalties, in the last attempt at a good list


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


# --- bounds: an assignment of items to ranks with prices --------------------------------------------------------------


@kernel(inline=False, allocates=True)
def assign(worth: FloatArray, rents: FloatArray, prices: FloatArray, chosen: IntArray) -> float:
    """Write the items of the highest total worth, one for each rank, and return it; ranks by items is `worth`.

    By shortest augmenting paths (Jonker and Volgenant). The rent of a rank and the price of an item, at least 0, add up
    to at least the worth of the item there, and to exactly that where it was chosen.
    """
    k, m = worth.shape
    rank, before = np.full(m, -1), np.empty(m, np.int64)
    away, done = np.empty(m), np.empty(m, np.bool_)
    for i in range(m):
        prices[i] = 0.0
    for first in range(k):
        rents[first] = -np.inf
        for i in range(m):
            away[i], done[i] = np.inf, False
            rents[first] = max(rents[first], worth[first, i] - prices[i])
        j, nearest, covered = first, 0.0, -1
        while j >= 0:
            following = -1
            for i in range(m):
                if done[i]:
                    continue
                step = nearest + (rents[j] + prices[i] - worth[j, i])
                if step < away[i]:
                    away[i], before[i] = step, j
                if following < 0 or away[i] < away[following] or (away[i] == away[following] and rank[i] < 0):
                    following = i
            nearest, covered = away[following], following
            done[following] = True
            j = rank[following]
        rents[first] -= nearest
        for i in range(m):
            if done[i] and i != covered:
                rents[rank[i]] -= nearest - away[i]
                prices[i] += nearest - away[i]
        while covered >= 0:
            j, i = before[covered], covered
            covered = chosen[j] if j != first else -1
            rank[i], chosen[j] = j, i
    total = 0.0
    for j in range(k):
        total += rents[j]
    for i in range(m):
        total += prices[i]
    return total


@kernel
def weigh(base: FloatArray, weight: float, added: FloatArray, out: FloatArray) -> None:
    """Write `base + weight added`."""
    for j in range(base.shape[0]):
        for i in range(base.shape[1]):
            out[j, i] = base[j, i] + weight * added[j, i]


@kernel
def sum_of(values: FloatArray, pi: IntArray) -> float:
    """Return Σ_j values(j, π_j)."""
    total = 0.0
    for j in range(pi.shape[0]):
        total += values[j, pi[j]]
    return total


@kernel(inline=False, allocates=True)
def multiplier(base: FloatArray, kept: FloatArray, least: float, enough: IntArray) -> float:
    """Return a λ ≥ 0 of about the least bound `max Σ (base + λ kept) - λ least`; any λ is a valid one.

    The bound is a convex function of λ made of straight pieces, one for each assignment: the next λ is where two pieces
    on either side of the minimum meet. `enough` is the last assignment that keeps the least.
    """
    k, m = base.shape
    worth, rents, prices, chosen = np.empty((k, m)), np.empty(k), np.empty(m), np.empty(k, np.int64)
    low, high, x, best, lowest = 0.0, np.inf, 0.0, 0.0, np.inf
    low_bound = low_slope = high_bound = high_slope = 0.0
    for _ in range(STEPS):
        weigh(base, x, kept, worth)
        bound = assign(worth, rents, prices, chosen) - x * least
        slope = sum_of(kept, chosen) - least
        if bound < lowest:
            best, lowest = x, bound
        if slope < 0.0:
            low, low_bound, low_slope = x, bound, slope
        else:
            high, high_bound, high_slope = x, bound, slope
            for j in range(k):
                enough[j] = chosen[j]
        if high == 0.0:
            break
        if high == np.inf:
            x = max(4.0 * x, 1.0)
            continue
        x = ((high_bound - high_slope * high) - (low_bound - low_slope * low)) / (low_slope - high_slope)
        if not low < x < high or low_bound + low_slope * (x - low) >= lowest - SAME:
            break
    return best


@kernel(inline=False)
def rough_multiplier(base: FloatArray, kept: FloatArray, least: float) -> float:
    """Return about what `multiplier` returns if an item may stand at several ranks, in a fraction of the time."""
    low, high = 0.0, 1.0
    for _ in range(40):
        if kept_at_price(base, kept, high) >= least:
            break
        low, high = high, 4.0 * high
    for _ in range(16):
        middle = 0.5 * (low + high)
        if kept_at_price(base, kept, middle) >= least:
            high = middle
        else:
            low = middle
    return high


@kernel
def kept_at_price(base: FloatArray, kept: FloatArray, price: float) -> float:
    """Sum what is kept by the best item of every rank, an item as often as it is the best."""
    total = 0.0
    for j in range(base.shape[0]):
        most, chosen = -np.inf, 0
        for i in range(base.shape[1]):
            worth = base[j, i] + price * kept[j, i]
            if worth > most:
                most, chosen = worth, i
        total += kept[j, chosen]
    return total


@kernel(inline=False)
def fill_rough_penalties(worth: FloatArray, penalty: FloatArray) -> float:
    """Write what `fill_penalties` writes if an item may stand at several ranks."""
    total = 0.0
    for j in range(worth.shape[0]):
        most = -np.inf
        for i in range(worth.shape[1]):
            most = max(most, worth[j, i])
        for i in range(worth.shape[1]):
            penalty[j, i] = most - worth[j, i]
        total += most
    return total


@kernel(inline=False, allocates=True)
def fill_penalties(worth: FloatArray, penalty: FloatArray) -> float:
    """Write what an item at a rank is worth less than the best assignment pays for both; return the worth of that."""
    k, m = worth.shape
    rents, prices, chosen = np.empty(k), np.empty(m), np.empty(k, np.int64)
    total = assign(worth, rents, prices, chosen)
    for j in range(k):
        for i in range(m):
            penalty[j, i] = max(rents[j] + prices[i] - worth[j, i], 0.0)
    return total


# --- the search -------------------------------------------------------------------------------------------------------


class Aim(NamedTuple):
    """A sum over the ranks of a list: its summands, ranks by items, and a bound.

    A list has at most the bound less the penalties of its items, if it meets the constraints.
    """

    value: FloatArray
    penalty: FloatArray
    bound: float


class Program(NamedTuple):
    """The items of a program by falling R, and what a list of them must satisfy.

    Attributes
    ----------
    position
        Where each item stands among the query's items.
    R, deficit
        Relevance and deficit of each.
    gain, need
        What each item adds to the DCG at each rank, and the least DCG.
    """

    position: IntArray
    R: FloatArray
    deficit: FloatArray
    gain: FloatArray
    need: float


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
    height: FloatArray,
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
    item of the least penalty so often in all. A long search remembers sets of items: another order of the same items
    that brings no more is not continued.
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
    seen, seen_sums, seen_size = np.empty((0, k), np.int64), np.empty((0, 3)), np.empty(0, np.int64)
    spot = np.zeros(k + 1, np.int64)
    remembering = nodes - FIRST_NODES if deviations == UNLIMITED and not in_turn else -1
    paid, kept_paid, earned = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1)
    reached, kept_reached, strayed = np.zeros(k + 1), np.zeros(k + 1), np.zeros(k + 1, np.int64)
    found = False
    j, entered = 0, True
    while j >= 0:
        if entered:
            if in_turn:
                count[j] = m
            else:
                count[j] = fill_front(R, height[j], aim.penalty[j], used, max(slack, 0.0), front[j])
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
        spot[j + 1] = spot[j] ^ (((i + 1) * MIXER) >> 12)
        if nodes <= remembering:
            if seen_size.shape[0] == 0:
                seen, seen_sums = np.empty((SEEN, k), np.int64), np.empty((SEEN, 3))
                seen_size = np.zeros(SEEN, np.int64)
            place = spot[j + 1] % SEEN
            same = (
                seen_size[place] == j + 1
                and seen_sums[place, 0] >= reach + 2.0 * max(slack, 0.0)
                and seen_sums[place, 1] >= kept_reach
                and seen_sums[place, 2] >= earn
            )
            for b in range(j + 1):
                same = same and used[seen[place, b]]
            if same:
                used[i] = False
                continue
            seen_size[place] = j + 1
            seen_sums[place, 0], seen_sums[place, 1], seen_sums[place, 2] = reach, kept_reach, earn
            for b in range(j + 1):
                seen[place, b] = chosen[b]
        paid[j + 1], kept_paid[j + 1], earned[j + 1] = pay, kept_pay, earn
        reached[j + 1], kept_reached[j + 1] = reach, kept_reach
        strayed[j + 1] = strayed[j] + (0 if in_turn else tried)
        j += 1
        entered = True
    return least, nodes


@kernel(inline=False, allocates=True)
def deepen(
    program: Program,
    aim: Aim,
    kept: Aim,
    floor: float,
    height: FloatArray,
    least: float,
    slack: float,
    nodes: int,
    best: IntArray,
) -> tuple[float, float, int]:
    """Search for lists near the bound, and farther from it while there are none; nothing near the worse ones is seen.

    Return the highest aim found, what no list exceeds, and the nodes that are left.
    """
    no_turn = np.empty(0, np.int64)
    step, highest = (aim.bound - least) / 256.0, aim.bound
    while True:
        last = not aim.bound - step > least
        asked = least if last else aim.bound - step
        reached, nodes = search(program, aim, kept, floor, height, asked, slack, no_turn, UNLIMITED, nodes, best)
        if reached > asked:
            least = reached
        if nodes < 0:
            return least, highest, nodes
        if last or reached > asked:
            return least, least, nodes
        highest = asked
        step *= 4.0


# --- the policy -------------------------------------------------------------------------------------------------------


@kernel(inline=False, allocates=True)
def program_of(R: FloatArray, deficit: FloatArray, items: IntArray, p: FloatArray, need: float) -> Program:
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
    few_R, few_deficits, gain = np.empty(m), np.empty(m), np.empty((k, m))
    for i in range(m):
        few_R[i], few_deficits[i] = R[position[i]], deficit[position[i]]
        for j in range(k):
            gain[j, i] = p[j] * few_R[i]
    return Program(position, few_R, few_deficits, gain, need)


@kernel(inline=False, allocates=True)
def served_at(deficit: FloatArray, shares: FloatArray) -> FloatArray:
    """Return how much of the deficit of each item each rank serves, `min(w_j, δ⁺)`: the cost is `Σ w - 2 Σ served`."""
    served = np.empty((shares.shape[0], deficit.shape[0]))
    for j in range(shares.shape[0]):
        for i in range(deficit.shape[0]):
            served[j, i] = min(max(deficit[i], 0.0), shares[j])
    return served


@kernel(inline=False, allocates=True)
def bounded(value: FloatArray, gain: FloatArray, price: float, need: float, rough: bool) -> Aim:
    """Return an aim with the bound that a price on DCG gives."""
    worth, penalty = np.empty(value.shape), np.empty(value.shape)
    weigh(value, price, gain, worth)
    bound = fill_rough_penalties(worth, penalty) if rough else fill_penalties(worth, penalty)
    return Aim(value, penalty, bound - price * need)


@kernel(inline=False, allocates=True)
def least_deviation(program: Program, kept: Aim, floor: float, shares: FloatArray, nodes: int, best: IntArray) -> int:
    """Of the lists that serve as much as the floor, write the one of least squared deviation; return the nodes left.

    That is the one of the highest Σ w δ. Its bound needs prices on DCG and on what is served, which take longer to find
    than most searches without them.
    """
    k, m = program.gain.shape
    value, height, worth = np.empty((k, m)), np.empty((k, m)), np.empty((k, m))
    largest = 1.0
    for j in range(k):
        for i in range(m):
            height[j, i] = program.deficit[i]
            value[j, i] = shares[j] * program.deficit[i]
            largest = max(largest, abs(value[j, i]))
    allowed = kept.bound - floor
    for j in range(k):
        for i in range(m):  # what cannot stand there is out of the question
            worth[j, i] = value[j, i] if kept.penalty[j, i] <= allowed else -4.0 * k * largest
    no_turn, unused = np.empty(0, np.int64), np.empty(k, np.int64)
    least = sum_of(value, best)
    penalty = np.empty((k, m))
    aim = Aim(value, penalty, fill_rough_penalties(worth, penalty))
    _, left = search(program, aim, kept, floor, height, least, SAME, no_turn, UNLIMITED, min(nodes, FIRST_NODES), best)
    if left >= 0:
        return left
    least = sum_of(value, best)
    weighed, dcg_price, served_price = np.empty((k, m)), 0.0, 0.0
    for _ in range(SWEEPS):
        weigh(worth, served_price, kept.value, weighed)
        dcg_price = multiplier(weighed, program.gain, program.need, unused)
        weigh(worth, dcg_price, program.gain, weighed)
        served_price = multiplier(weighed, kept.value, floor, unused)
    weigh(weighed, served_price, kept.value, worth)
    bound = fill_penalties(worth, penalty) - dcg_price * program.need - served_price * floor
    _, _, left = deepen(program, Aim(value, penalty, bound), kept, floor, height, least, SAME, nodes, best)
    return left


@kernel(inline=False, allocates=True)
def best_list(
    R: FloatArray, deficit: FloatArray, p: FloatArray, need: float, ties: float, nodes: int, settle: bool, out: IntArray
) -> float:
    """Write the list of the least cost, and of those the one that the rule for ties takes; return the gap.

    The gap is by how much another list may cost less: 0 if the search came to its end. If it takes more nodes, for the
    cost or for the ties, the gap is nan and nothing is written, or, to settle for it, a good list is found in as many
    more.
    """
    k = p.shape[0]
    shares, S = np.empty(k), 0.0
    for j in range(k):
        S += p[j]
    for j in range(k):
        shares[j] = p[j] / S
    program = program_of(R, deficit, undominated(R, deficit, k), p, need)
    served, best, no_turn = served_at(program.deficit, shares), np.empty(k, np.int64), np.empty(0, np.int64)
    aim = bounded(served, program.gain, rough_multiplier(served, program.gain, need), need, True)
    reached, left = search(
        program, aim, aim, -np.inf, served, -1.0, -SAME, no_turn, UNLIMITED, min(nodes, FIRST_NODES), best
    )
    highest = reached
    if left < 0:
        for j in range(k):
            best[j] = j
        price = multiplier(served, program.gain, need, best)
        aim = bounded(served, program.gain, price, need, False)
        reached, highest, left = deepen(program, aim, aim, -np.inf, served, sum_of(served, best), -SAME, nodes, best)
    if left < 0:
        if not settle:
            return np.nan
        reached, _ = search(program, aim, aim, -np.inf, served, reached, -SAME, no_turn, DEVIATIONS, nodes, best)
    gap = 2.0 * max(highest - reached, 0.0) if left < 0 else 0.0
    floor = sum_of(served, best) - SAME
    if ties == DEVIATION:
        left = least_deviation(program, aim, floor, shares, nodes, best)
    else:
        every = np.arange(R.shape[0])
        for j in range(k):
            best[j] = program.position[best[j]]
        program = program_of(R, deficit, every, p, need)
        turn = np.empty(R.shape[0], np.int64)
        for i in range(R.shape[0]):
            turn[program.position[i]] = i
        for j in range(k):
            best[j] = turn[best[j]]
        served = served_at(program.deficit, shares)
        aim = bounded(served, program.gain, multiplier(served, program.gain, need, best.copy()), need, False)
        _, left = search(program, aim, aim, floor, served, floor, SAME, turn, UNLIMITED, nodes, best)
    if left < 0 and not settle:
        return np.nan
    for j in range(k):
        out[j] = program.position[best[j]]
    return gap


@kernel(inline=False, allocates=True)
def solve_list(q: Query, theta: FloatArray, settle: bool, out: IntArray) -> float:
    """Write the list for a view and return its gap; see `best_list`."""
    alpha, ties, nodes = theta[0], theta[1], int(theta[2]) if settle else int(theta[2]) // HASTE
    R, p = q.R, q.p[: out.shape[0]]
    S = 0.0
    for j in range(p.shape[0]):
        S += p[j]
    deficit = np.empty(R.shape[0])
    deficits(R, q.E, q.visits[()], S, deficit)
    need = (1.0 - alpha) * top_sum(R, p, R, out) - ENOUGH
    effect = top_sum(deficit, p, R, out)
    if ties == DEVIATION and effect >= need:  # the greatest deficits first is the best there is
        return 0.0
    return best_list(R, deficit, p, need, ties, nodes, settle, out)


solve_list.pin(EXAMPLE_QUERY, np.zeros(1), True, np.zeros(1, np.int64))


@kernel(allocates=True)
def ilp_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write the optimal list, or FALLBACK if the search needs too many nodes."""
    if solve_list(q, theta, False, out) != 0.0:  # nan as well
        out[0] = FALLBACK


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

    A search finds the best list exactly, or stops after a number of steps, with a list whose cost is within a proven
    gap of the least. By default lists of five ranks are exact, nearly all of ten ranks among 100 items as well, and
    lists of twenty ranks are within about 0.005, in shares of a list's exposure.

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
    nodes: Nodes = 50_000

    kernel = ilp_rank
    style = ("#CC79A7", "X")
    ranks = True
    cost = 5.0

    def solve(self, q: Query, rng: Draws) -> Solution:
        """Return the best list that is found in the nodes allowed, and its gap."""
        q, pi = q.for_kernels(), np.empty(min(q.p.size, q.R.size), np.int64)
        gap = solve_list(q, self.theta, True, pi)
        return Solution(pi, gap)
