"""FARA (Yang, Xu, Wang and Ai 2023) and VerFair (Yang, Xu and Ai 2023): lists that are planned together.

FARA plans the exposure of the next lists and builds them rank by rank. VerFair guarantees items a share of the fair
exposure, and ranks by relevance beyond that.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, get_args

import msgspec
import numpy as np

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..data.dataset import Dataset
from ..metrics.reachable import fairest_plan
from ..parts import NonNegative, Share, register
from ..random import Draws, uniform
from ..state import Query, State
from .base import Mode, Policy
from .selection import dcg

Horizon = Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")]

Allocation = Literal["need", "relevance"]
"""Which item with a quota is next: the one with the most of it relative to what is possible, or the most relevant."""

NEED, RELEVANCE = range(2)  # the order of Allocation

NOTHING = 1e-9  # a quota that is put down to rounding


@kernel(allocates=True)
def plan_quotas(q: Query, lists: float, kept: float, least: float, quota: FloatArray) -> None:
    """Write the exposure that each item is to have of the next lists: as fair as can be with a share kept of the DCG.

    An item is to have at least what it lacks to the least exposure, whatever the plan.
    """
    R, E, p = q.R, q.E, q.p
    n, k = R.shape[0], min(R.shape[0], p.shape[0])
    w = np.zeros(n)
    for j in range(k):
        w[j] = lists * p[j]
    gain = 0.0
    if kept > 0.0:
        gain = kept * lists * dcg(np.argsort(-R)[:k], R, p)
    fairest_plan(R, E, w, gain, quota)
    for d in range(n):
        quota[d] = max(quota[d], least) - E[d]


@kernel
def most_relevant(R: FloatArray, quota: FloatArray, free: BoolArray, least: float) -> int:
    """Return the most relevant free item with more than a least quota, by quota if equally relevant; -1 if none has."""
    best = -1
    for d in range(R.shape[0]):
        better = best < 0 or R[d] > R[best] or (R[d] == R[best] and quota[d] > quota[best])
        if free[d] and quota[d] > least and better:
            best = d
    return best


@kernel
def neediest(quota: FloatArray, possible: FloatArray, free: BoolArray) -> int:
    """Return the free item of the largest quota relative to the exposure that is still possible; -1 if none has one."""
    chosen, most = -1, 0.0
    for d in range(quota.shape[0]):
        if free[d] and quota[d] > NOTHING and quota[d] > most * possible[d]:
            chosen, most = d, quota[d] / max(possible[d], NOTHING)
    return chosen


@kernel(allocates=True)
def allocate(
    quota: FloatArray, R: FloatArray, p: FloatArray, allocation: float, reserved_only: bool, lists: IntArray
) -> None:
    """Fill the first rank of every list, then the second, and so on, with items that have a quota left.

    The most relevant item is next if no item that is not in the list has a quota, and, unless `reserved_only`, while
    the exposure still to be shared out exceeds the quotas left; of equally relevant items the one of the larger quota.
    Quotas are used up, and become negative.
    """
    count, k = lists.shape
    n = R.shape[0]
    free = np.ones((count, n), np.bool_)
    absent = np.full(n, count)  # lists that an item is not in
    remaining = reserved = 0.0
    for j in range(k):
        remaining += count * p[j]
    for d in range(n):
        reserved += max(quota[d], 0.0)
    possible = np.empty(n)  # exposure that an item can still have: in lists without it, at the next open rank
    for j in range(k):
        below = p[j + 1] if j + 1 < k else 0.0
        for d in range(n):
            possible[d] = p[j] * absent[d]
        for i in range(count):
            chosen = -1
            if reserved_only or reserved >= remaining - NOTHING * count:
                by_need = allocation == NEED
                chosen = neediest(quota, possible, free[i]) if by_need else most_relevant(R, quota, free[i], NOTHING)
            if chosen < 0:
                chosen = most_relevant(R, quota, free[i], -np.inf)
            for d in range(n):
                if free[i, d]:
                    possible[d] -= p[j] if d == chosen else p[j] - below
            lists[i, j] = chosen
            free[i, chosen] = False
            absent[chosen] -= 1
            remaining -= p[j]
            reserved -= min(max(quota[chosen], 0.0), p[j])
            quota[chosen] -= p[j]


@kernel
def queue_length(horizon: int, k: int) -> int:
    """Return the length of a memory that holds a queue of so many lists."""
    return 1 + horizon * k


@kernel
def enqueue(lists: IntArray, rng: Draws, queue: FloatArray) -> None:
    """Write lists to a queue in random order."""
    count, k = lists.shape
    queue[0] = count
    for i in range(count):
        other = int(uniform(rng, i) * (i + 1))  # the i-th list changes places with one before it, or stays
        for j in range(k):
            queue[1 + i * k + j] = queue[1 + other * k + j]
            queue[1 + other * k + j] = lists[i, j]


@kernel
def dequeue(queue: FloatArray, out: IntArray) -> None:
    """Remove the last list of a queue and write it."""
    k = out.shape[0]
    queue[0] -= 1.0
    first = 1 + int(queue[0]) * k
    for j in range(k):
        out[j] = int(queue[first + j])


@kernel(allocates=True)
def planned_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write the next list of the queue; plan and build new ones if it is empty."""
    alpha, horizon, least, part_only = theta[0], int(theta[1]), theta[2], theta[4] > 0.0
    n, k = q.R.shape[0], out.shape[0]
    queue = q.memory if q.memory.shape[0] > 0 else np.zeros(queue_length(horizon, k))
    if queue[0] == 0.0:
        quota, lists = np.empty(n), np.empty((horizon, k), np.int64)
        if part_only:
            plan_quotas(q, alpha * horizon, 0.0, least, quota)
        else:
            plan_quotas(q, float(horizon), 1.0 - alpha, least, quota)
        allocate(quota, q.R, q.p, theta[3], not part_only, lists)
        enqueue(lists, rng, queue)
    dequeue(queue, out)


class Planned(Policy):
    """Base of policies that plan several lists of a query together; its memory is a queue of them.

    The memory begins with the number of lists that are left, which follow one after another.

    Parameters
    ----------
    alpha
        Share of the plan that is for fairness.
    horizon
        How many lists are planned together.
    least_exposure
        Exposure that every item is to have first, to learn its relevance. "auto" is 0 when relevance is given and 10
        online.
    allocation
        Which item with a quota is next: by "need", the largest quota relative to the exposure that the item can still
        have in these lists, which delivers the plan almost exactly; or by "relevance", as published.

    Attributes
    ----------
    plans_part_only
        Whether α is the share of the exposure that is planned, or the share of the DCG that the plan may give up.
    """

    plans_part_only: ClassVar[bool] = False

    alpha: Share = 1.0
    horizon: Horizon = 30
    least_exposure: NonNegative | Literal["auto"] = "auto"
    allocation: Allocation = "need"

    kernel = planned_rank
    ranks = True
    cost = 3.0
    auto: ClassVar[dict[str, dict[Mode, float]]] = {"least_exposure": {"post-processing": 0.0, "online": 10.0}}

    @property
    def theta(self) -> FloatArray:
        """The parameters; "auto" counts as online, where relevance may not be given."""
        known = self.in_mode("online")
        allocation = get_args(Allocation).index(known.allocation)
        return np.array([known.alpha, known.horizon, known.least_exposure, allocation, self.plans_part_only])

    def prepare(self, data: Dataset, state: State, rng: Draws) -> FloatArray:
        """Allocate an empty queue for each query."""
        k = min(int(data.sizes.max(initial=1)), state.p.size)
        return np.zeros((data.queries, queue_length(self.horizon, k)))


@register
class FARA(Planned):
    """Plan the exposure of the next lists to be as fair as possible with (1 - α) of the DCG, and build them vertically.

    The plan is the total exposure of the least unfairness (Eq. 8) that the next `horizon` lists of a query can reach,
    past exposure included, if they keep a share 1 - α of the best DCG: a projection, exact, where the publication
    solves a quadratic program with looser bounds. What an item lacks is its quota. All first ranks are filled, then all
    second ranks, each with an item that has a quota left and is not in the list yet; the lists are shown in random
    order. An item whose quota is left at the end may be in all remaining lists already: plans of 30 lists for the
    queries of MQ2008 miss 3 % of the exposure if relevance is all distinct and the most relevant item is next, as
    published, and 0.6 % if the neediest is. The memory of a query is its queue of lists, so that clicks do not count
    before the next lists are planned.

    Parameters
    ----------
    alpha
        Share of the best DCG, by the relevance that the plan is made with, that may be given up for fairness.
    horizon
        How many lists are planned together.
    least_exposure
        Exposure that every item is to have first, to learn its relevance. "auto" is 0 when relevance is given and 10
        online.
    allocation
        Which item with a quota is next: by "need", the largest quota relative to the exposure that the item can still
        have in these lists, which delivers the plan almost exactly; or by "relevance", as published.

    Examples
    --------
    Ten lists share out exposure in proportion to relevance, 1.0 : 0.4 : 0.1, as well as lists of two can:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, FARA(horizon=10), steps=10, k=2).state.E.round(1).tolist()
    [10.0, 4.4, 1.9]
    """

    style = ("#D55E00", "d")


@register
class VerFair(Planned):
    """Reserve a share α of the exposure of the next lists for fairness, and fill the upper ranks by relevance.

    The exposure reserved is shared out as fairly (Eq. 8) as α times the exposure of the next `horizon` lists of a query
    can be, past exposure included, by an exact projection. What an item is to have of it is its quota. All first ranks
    are filled, then all second ranks: with the most relevant item while the exposure still to be shared out exceeds the
    quotas left, and from then on with an item that has a quota left. The lists are shown in random order. The memory of
    a query is its queue of lists. With α = 1 the lists are those of FARA, with α = 0 the most
    relevant items are shown.

    Parameters
    ----------
    alpha
        Share of the exposure that is reserved for fairness.
    horizon
        How many lists are planned together.
    least_exposure
        Exposure that every item is to have first, to learn its relevance. "auto" is 0 when relevance is given and 10
        online.
    allocation
        Which item with a quota is next: by "need", the largest quota relative to the exposure that the item can still
        have in these lists, which delivers the plan almost exactly; or by "relevance", as published.

    Examples
    --------
    Half of the exposure is reserved; the first item has more than that by its relevance:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, VerFair(alpha=0.5, horizon=10), steps=10, k=2).state.E.round(1).tolist()
    [10.0, 5.7, 0.6]
    """

    plans_part_only = True
    style = ("#E69F00", ">")
