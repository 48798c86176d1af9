"""LP (Singh and Joachims 2018): the best mixture of lists by a linear program, delivered one list at a time.

The probabilities P of item i at rank j maximise `Σ_ij R_i P_ij p_j - α Σ_ab ξ_ab`, where ξ_ab ≥ 0 is what the exposure
per relevance of item a exceeds that of an item b of no more relevance by. Past exposure does not count.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..data.dataset import Dataset
from ..parts import NonNegative, register
from ..random import Draws, uniform
from ..state import Query, State
from .base import Policy
from .selection import FALLBACK

LEAST_RELEVANCE = 0.01  # exposure is divided by relevance, which an estimate may report as 0
WHOLE = 2**46  # probabilities become whole numbers of so many parts, so that a mixture is decomposed without rounding

Delivery = Literal["iid", "balanced"]
"""Which list of the mixture comes next: one drawn by the weights, or the one furthest behind its weight."""

Refresh = Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")]

IID = 0  # the order of Delivery


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
        (k + classes + np.repeat(c, k), cell, np.ones(cells)),  # no item is at more than one rank
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
    answer = milp(loss, constraints=rules)  # without integers: a linear program, with the least overhead above HiGHS
    P = answer.x[:cells].reshape(classes, k) if answer.success else in_order(count, k)
    return np.asarray(P[member])


def in_order(count: IntArray, k: int) -> FloatArray:
    """Return the placement by falling relevance of classes of so many items, which share their ranks, (classes, k)."""
    ranks = np.repeat(np.arange(count.size), count)[:k]
    return np.asarray((ranks == np.arange(count.size)[:, None]) / count[:, None])


# --- a mixture of lists ----------------------------------------------------------------------------------------------


def decompose(X: FloatArray) -> tuple[IntArray, FloatArray]:
    """Decompose placement probabilities into lists and weights: `X = Σ_l weight_l [item i at rank j of list l]`.

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
def peel(parts: IntArray, rows: IntArray, lists: IntArray, weights: IntArray) -> int:
    """Remove list after list, each for as many parts as it can last; return how many lists there are.

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
def match(
    start: int,
    parts: IntArray,
    partner: IntArray,
    other: IntArray,
    via: IntArray,
    seen: BoolArray,
    queue: IntArray,
) -> None:
    """Find a partner for row `start` of parts among its columns along an augmenting path."""
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


class ListMixture(NamedTuple):
    """The mixture of one query, as views of its memory: writing to them changes the memory.

    Attributes
    ----------
    head : (2,) array
        Number of lists, 0 before the first solve; and the visit at which the mixture was solved for.
    R : (n,) array
        Relevance that it was solved for.
    weights : (lists,) array
        Share of the visits that each list is shown in.
    shown : (lists,) array
        How often each list was shown.
    items : (lists * k,) array
        The lists, one after the other.
    """

    head: FloatArray
    R: FloatArray
    weights: FloatArray
    shown: FloatArray
    items: FloatArray


HEAD = 2


def mixture_length(n: int, k: int) -> int:
    """Return the length of a memory that holds any mixture of lists of k of n items."""
    return HEAD + n + ((n - 1) * k + 1) * (2 + k)


@kernel
def mixture_of(memory: FloatArray, n: int, k: int) -> ListMixture:
    """Return the mixture that a memory holds."""
    size = int(memory[0])
    weights = HEAD + n
    shown, items = weights + size, weights + 2 * size
    return ListMixture(
        memory[:HEAD],
        memory[HEAD:weights],
        memory[weights:shown],
        memory[shown:items],
        memory[items : items + size * k],
    )


@kernel
def deliver(mixture: ListMixture, delivery: float, visits: int, rng: Draws, out: IntArray) -> None:
    """Write the list of a mixture that is shown next, and count it."""
    size, k = mixture.weights.shape[0], out.shape[0]
    chosen = size - 1
    if delivery == IID:
        draw, total = uniform(rng, 0), 0.0
        for i in range(size):
            total += mixture.weights[i]
            if draw < total:
                chosen = i
                break
    else:
        furthest = -np.inf
        for i in range(size):
            behind = mixture.weights[i] * (visits - mixture.head[1] + 1.0) - mixture.shown[i]
            if behind > furthest:
                furthest, chosen = behind, i
    mixture.shown[chosen] += 1.0
    for j in range(k):
        out[j] = int(mixture.items[chosen * k + j])


@kernel
def lp_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write a list of the mixture; leave the session to `solve` if there is no mixture or it is out of date."""
    refresh, delivery = theta[1], theta[2]
    n, visits = q.R.shape[0], q.visits[()]
    out[0] = FALLBACK
    if q.memory.shape[0] > 0 and q.memory[0] > 0.0:
        mixture = mixture_of(q.memory, n, out.shape[0])
        changed = False
        if visits - mixture.head[1] >= refresh:
            for d in range(n):
                changed = changed or mixture.R[d] != q.R[d]
        if not changed:
            deliver(mixture, delivery, visits, rng, out)


class Mixed(Policy):
    """Base of policies that show the lists of a mixture, which is solved for again when relevance has changed.

    Parameters
    ----------
    alpha
        Weight of fairness.
    refresh
        Visits of a query after which its mixture is updated.
    delivery
        "iid" samples every list by its weight; "balanced" shows the list furthest behind its weight.
    """

    alpha: NonNegative = 1000.0
    refresh: Refresh = 100
    delivery: Delivery = "iid"

    kernel = lp_rank
    ranks = True

    def placement(self, R: FloatArray, p: FloatArray) -> FloatArray:
        """Return the probabilities of each item at each rank, shape (n, k)."""
        raise NotImplementedError

    def prepare(self, data: Dataset, state: State, rng: Draws) -> FloatArray:
        """Allocate the mixture of each query."""
        n = int(data.sizes.max(initial=1))
        return np.zeros((data.queries, mixture_length(n, min(n, state.p.size))))

    def solve(self, q: Query, rng: Draws) -> IntArray:
        """Solve for a new mixture, keep it in the memory, and return its first list."""
        n, k = q.R.size, min(q.p.size, q.R.size)
        lists, weights = decompose(self.placement(q.R, q.p[:k]))
        memory = q.memory if q.memory.size else np.zeros(mixture_length(n, k))
        memory[:HEAD] = weights.size, int(q.visits)
        mixture, pi = mixture_of.interpreted(memory, n, k), np.empty(k, np.int64)  # compiled code returns no views
        mixture.R[:], mixture.weights[:], mixture.shown[:], mixture.items[:] = q.R, weights, 0.0, lists.ravel()
        deliver(mixture, float(self.theta[2]), int(q.visits), rng, pi)
        return pi


@register
class LP(Mixed):
    """Show lists of the mixture with the most relevance less α times the unfairness between all pairs of items.

    The mixture ignores past exposure. It is solved for at the first visit of a query, and again when relevance has
    changed and `refresh` visits have passed. The memory of a query is its `ListMixture`.

    Parameters
    ----------
    alpha
        Weight of fairness; the whole trade-off lies between 0.001 and 0.05.
    refresh
        Visits of a query after which its mixture is updated.
    delivery
        "iid" samples every list by its weight; "balanced" shows the list furthest behind its weight.

    Examples
    --------
    Two lists make up the mixture, and each is shown in proportion to its weight:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, LP(delivery="balanced"), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 1], [0, 2], [0, 1]]
    """

    alpha: Annotated[float, msgspec.Meta(ge=0.0, le=1000.0, description="a number from 0 to 1000")] = 1000.0

    style = ("#009E73", "P")
    cost = 200.0

    def placement(self, R: FloatArray, p: FloatArray) -> FloatArray:
        """Return the placement that solves the linear program."""
        return placement(R, p, self.alpha)
