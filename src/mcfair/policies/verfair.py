"""VerFair (Yang, Xu and Ai 2023): guarantee items a share of the fair exposure, and rank by relevance beyond that."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..parts import register
from ..random import Draws
from ..state import Query
from .fara import Planned, allocate, dequeue, enqueue, plan_quotas, queue_length

__all__ = ["VerFair"]


@kernel(allocates=True)
def verfair_rank(q: Query, theta: FloatArray, rng: Draws, out: IntArray) -> None:
    """Write the next list of the queue; plan and build new ones if it is empty."""
    alpha, horizon, least = theta[0], int(theta[1]), theta[2]
    n, k = q.R.shape[0], out.shape[0]
    queue = q.memory if q.memory.shape[0] > 0 else np.zeros(queue_length(horizon, k))
    if queue[0] == 0.0:
        quota, lists = np.empty(n), np.empty((horizon, k), np.int64)
        plan_quotas(q, alpha * horizon, 0.0, least, quota)
        allocate(quota, q.R, q.p, theta[3], False, lists)
        enqueue(lists, rng, queue)
    dequeue(queue, out)


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

    kernel = verfair_rank
    style = ("#E69F00", ">")
