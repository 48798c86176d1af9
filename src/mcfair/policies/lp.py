"""LP (Singh and Joachims 2018): the best mixture of lists by a linear program, delivered one list at a time.

The probabilities P of item i at rank j maximise `Σ_ij R_i P_ij p_j - α Σ_ab ξ_ab`, where ξ_ab ≥ 0 is what the exposure
per relevance of item a exceeds that of an item b of no more relevance by. What was shown before does not count.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..random import Draws, uniform
from ..state import Query, State
from .base import GIVEN_UP, Policy, register

__all__ = ["LP", "decompose", "placement"]

LEAST_RELEVANCE = 0.01  # exposure is divided by relevance, which an estimate may give as 0
WHOLE = 2**46  # probabilities become whole numbers of so many parts, so that a mixture is taken apart without rounding

Delivery = Literal["iid", "balanced"]
"""Which list of the mixture comes next: one drawn by the weights, or the one furthest behind its weight."""

IID, BALANCED = range(2)  # the order of Delivery


# --- the linear program ----------------------------------------------------------------------------------------------


def placement(R: FloatArray, p: FloatArray, alpha: float) -> FloatArray:
    """Solve the linear program: how likely each of n items is at each of k ≤ n ranks, shape (n, k).

    Items of equal relevance can be treated alike, because the program is concave and symmetric in them: the unknowns
    are one row P_cj for each class c of them, and e_c, its exposure per relevance. Should the solver fail, the answer
    is that for α = 0, the order of relevance.

    Examples
    --------
    >>> placement(np.array([0.9, 0.3, 0.3]), np.array([1.0, 0.5]), alpha=0.0)
    array([[1. , 0. ],
           [0. , 0.5],
           [0. , 0.5]])
    """
    from scipy.optimize import LinearConstraint, milp
    from scipy.sparse import csr_matrix

    levels, member, count = np.unique(-R, return_inverse=True, return_counts=True)
    relevance, classes, k = -levels, levels.size, p.size
    if alpha == 0.0 or classes == 1:
        return in_order(count, k)[member]
    merit = np.maximum(relevance, LEAST_RELEVANCE)
    a, b = np.triu_indices(classes, 1)  # every pair of classes, the more relevant one first
    rank, c, pair, cell = np.arange(k), np.arange(classes), np.arange(a.size), np.arange(classes * k)
    cells, pairs = cell.size, pair.size
    entries = [  # row, column, value
        (np.tile(rank, classes), cell, np.repeat(count, k)),  # the items at each rank are one
        (k + np.repeat(c, k), cell, np.tile(p, classes)),  # what the ranks of class c are worth is e_c times merit
        (k + c, cells + c, -merit),
        (k + classes + np.repeat(c, k), cell, np.ones(cells)),  # no item stands at more than one rank
        (k + 2 * classes + pair, cells + a, np.ones(pairs)),  # e_a - e_b ≤ ξ_ab
        (k + 2 * classes + pair, cells + b, -np.ones(pairs)),
        (k + 2 * classes + pair, cells + classes + pair, -np.ones(pairs)),
    ]
    rows, columns, values = map(np.concatenate, zip(*entries, strict=True))
    rules = LinearConstraint(
        csr_matrix((values, (rows, columns))),
        np.repeat([1.0, 0.0, -np.inf], [k, classes, classes + pairs]),
        np.repeat([1.0, 0.0, 1.0, 0.0], [k, classes, classes, pairs]),
    )
    loss = np.concatenate([-np.outer(count * relevance, p).ravel(), np.zeros(classes), alpha * count[a] * count[b]])
    answer = milp(
        loss, constraints=rules
    )  # without whole unknowns it is a linear program, by the shortest way to HiGHS
    P = answer.x[:cells].reshape(classes, k) if answer.success else in_order(count, k)
    return np.asarray(P[member])


def in_order(count: IntArray, k: int) -> FloatArray:
    """Give the placement by falling relevance of classes of so many items, which share their ranks, (classes, k)."""
    ranks = np.repeat(np.arange(count.size), count)[:k]
    return np.asarray((ranks == np.arange(count.size)[:, None]) / count[:, None])


# --- a mixture of lists ----------------------------------------------------------------------------------------------


def decompose(X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Take placement probabilities apart into lists and their weights: `X = Σ_l weight_l [item i at rank j of list l]`.

    Parameters
    ----------
    X : (n, k) array
        Each column sums to 1 and each row to at most 1, but for the noise of a solver, which is mended.

    Returns
    -------
    (lists, k) int array and (lists,) float array
        At most (n - 1) k + 1 lists, which rebuild X to 1e-9.

    Examples
    --------
    >>> decompose(np.array([[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]]))
    (array([[0, 1],
           [0, 2]]), array([0.5, 0.5]))
    """
    n, k = X.shape
    parts = whole_parts(X)
    lists, weights = np.empty(((n - 1) * k + 1, k), np.int64), np.empty((n - 1) * k + 1, np.int64)
    size = peel(parts, parts.sum(axis=1), lists, weights)
    return lists[:size], weights[:size] / WHOLE


def whole_parts(X: FloatArray) -> IntArray:
    """Round to whole parts such that columns sum to WHOLE exactly and rows to at most that."""
    X = np.maximum(X, 0.0)
    parts: IntArray = np.floor(X / X.sum(axis=0) * WHOLE).astype(np.int64)
    for i in np.flatnonzero(parts.sum(axis=1) > WHOLE):
        j = parts[i].argmax()
        parts[i, j] = max(0, WHOLE - (parts[i].sum() - parts[i, j]))
    slack = WHOLE - parts.sum(axis=1)
    for j in range(X.shape[1]):
        missing = WHOLE - parts[:, j].sum()
        for i in np.argsort(-X[:, j], kind="stable"):
            more = min(missing, slack[i])
            parts[i, j] += more
            slack[i] -= more
            missing -= more
            if missing == 0:
                break
    return parts


@kernel(allocates=True)
def peel(parts, rows, lists, weights):  # type: ignore[no-untyped-def]
    """Take off list after list, each for as many parts as it can last; return how many lists there are.

    An item that is due in every list to come must be in this one; such a list exists because parts, filled up to a
    square whose rows and columns sum to what is left, would be a mixture of permutations (Birkhoff).
    """
    n, k = parts.shape
    item_at, rank_of = np.empty(k, np.int64), np.empty(n, np.int64)
    via, seen, queue = np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n, np.int64)
    left, size = WHOLE, 0
    while left > 0:
        for j in range(k):
            item_at[j] = -1
        for i in range(n):
            rank_of[i] = -1
        for i in range(n):
            if rows[i] == left:
                match(i, parts, rank_of, item_at, via, seen, queue)
        for j in range(k):
            if item_at[j] < 0:
                match(j, parts.T, item_at, rank_of, via, seen, queue)
        lasts = left
        for i in range(n):
            lasts = min(lasts, left - rows[i] if rank_of[i] < 0 else parts[i, rank_of[i]])
        for j in range(k):
            lists[size, j] = item_at[j]
            parts[item_at[j], j] -= lasts
            rows[item_at[j]] -= lasts
        weights[size] = lasts
        left -= lasts
        size += 1
    return size


@kernel(inline=False)
def match(start, parts, partner, other, via, seen, queue):  # type: ignore[no-untyped-def]
    """Find a partner for row `start` of parts among its columns; rows in the way move on, and none loses its own."""
    for b in range(parts.shape[1]):
        seen[b] = False
    queue[0] = start
    size, at = 1, 0
    while at < size:
        a = queue[at]
        at += 1
        for b in range(parts.shape[1]):
            if parts[a, b] > 0 and not seen[b]:
                seen[b], via[b] = True, a
                if other[b] < 0:
                    while True:
                        a = via[b]
                        before = partner[a]
                        other[b], partner[a] = a, b
                        if a == start:
                            return
                        b = before
                queue[size] = other[b]
                size += 1


# --- the policy ------------------------------------------------------------------------------------------------------

# What is remembered of a query: how many lists, since which visit, R, the weight of each list, how often each was
# shown, and the lists one after the other.
SIZE, SINCE, HEAD = range(3)


@kernel
def lp_rank(q, theta, rng, out):  # type: ignore[no-untyped-def]
    """Deliver a list of the mixture; give up if there is none or it is out of date."""
    refresh, delivery = theta[1], theta[2]
    n, k, memory = q.R.shape[0], out.shape[0], q.memory
    size = int(memory[SIZE]) if memory.shape[0] > 0 else 0
    visits = q.visits[()]
    changed = False
    if size > 0 and visits - memory[SINCE] >= refresh:
        for d in range(n):
            changed = changed or memory[HEAD + d] != q.R[d]
    if size == 0 or changed:
        out[0] = GIVEN_UP
    else:
        weights = HEAD + n
        counts, lists = weights + size, weights + 2 * size
        chosen = size - 1
        if delivery == IID:
            luck, total = uniform(rng, 0), 0.0
            for i in range(size):
                total += memory[weights + i]
                if luck < total:
                    chosen = i
                    break
        else:
            furthest = -np.inf
            for i in range(size):
                behind = memory[weights + i] * (visits - memory[SINCE] + 1.0) - memory[counts + i]
                if behind > furthest:
                    furthest, chosen = behind, i
            memory[counts + chosen] += 1.0
        for j in range(k):
            out[j] = int(memory[lists + chosen * k + j])


@register
class LP(Policy):
    """Show lists of the mixture with the most relevance less α times the unfairness between all pairs of items.

    The mixture ignores what was shown before. It is found at the first visit of a query, and again when relevance has
    changed and `refresh` visits have passed.

    Parameters
    ----------
    alpha
        Weight of fairness; what there is to trade off lies between 0.001 and 0.05.
    refresh
        After how many visits of a query its mixture is brought up to date.
    delivery
        "iid" draws every list by its weight; "balanced" takes the one furthest behind its weight, without luck.
    """

    alpha: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0, description="a number from 0 to 1000")] = 1000.0
    refresh: Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")] = 100
    delivery: Delivery = "iid"

    kernel = lp_rank
    ranks = True

    def prepare(self, data: Dataset, state: State, rng: Draws) -> FloatArray:
        """Make room for the mixture of each query."""
        n = int(data.sizes.max(initial=1))
        k = min(n, state.p.size)
        return np.zeros((data.queries, HEAD + n + ((n - 1) * k + 1) * (2 + k)))

    def rank(self, q: Query, rng: Draws) -> IntArray:
        """Deliver a list, of a new mixture if there is none or it is out of date."""
        pi = super().rank(q, rng)
        if pi[0] == GIVEN_UP:
            lists, weights = decompose(placement(q.R, q.p[: pi.size], self.alpha))
            size, since = weights.size, int(q.visits)
            mixture = np.concatenate([[size, since], q.R, weights, np.zeros(size), lists.ravel()])
            if q.memory.size > 0:
                q.memory[: mixture.size] = mixture
                mixture = q.memory
            pi = super().rank(q._replace(memory=mixture), rng)
        return pi
