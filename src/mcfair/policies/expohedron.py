"""Expohedron (Kletti, Renders and Loiseau 2022): a point of the Pareto frontier, delivered as a mixture of lists.

The exposures that a mixture of lists can have are the permutahedron of p, the expohedron. Its point of the most `NDCG -
α · unfairness` is found by an exact projection, and written as a mixture of lists.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..metrics.reachable import HUGE, balance
from ..parts import register
from .lp import Delivery, Mixed


def best_exposure(R: FloatArray, p: FloatArray, alpha: float) -> FloatArray:
    """Return the exposure per visit of the most `NDCG - α · unfairness` (Eq. 8) that a mixture of lists can have.

    Examples
    --------
    Exposure in proportion to relevance can be reached; without a weight for fairness it is that of the best list:

    >>> R, p = np.array([0.8, 0.4, 0.4]), np.array([1.0, 0.5])
    >>> best_exposure(R, p, alpha=1e9).round(6).tolist(), best_exposure(R, p, alpha=0.0).tolist()
    ([0.75, 0.375, 0.375], [1.0, 0.25, 0.25])
    """
    n, order = R.size, np.argsort(-R, kind="stable")
    falling, w = R[order], np.append(p, np.zeros(n - p.size))
    if n < 2 or not falling[0] * falling[0] > 0.0:
        return np.full(n, w.sum() / n)
    ideal = float(w @ falling)
    push = n * (n - 1) / (4 * alpha * ideal) if alpha > 0 else np.inf
    E, sorted_E = np.empty(n), np.empty(n)
    balance(min(push, HUGE), 0.0, falling, w, np.empty((n, 3)), sorted_E)
    E[order] = sorted_E
    return E


def placement_of(E: FloatArray, p: FloatArray) -> FloatArray:
    """Return probabilities of each item at each rank, (n, k), by which n items have the expected exposure E.

    Beginning with the list in the order of E, two items after the other exchange their ranks with such a probability
    that one of them has what it is to have (Hardy, Littlewood and Pólya), which takes at most n - 1 exchanges.

    Examples
    --------
    >>> placement_of(np.array([0.75, 0.75]), np.array([1.0, 0.5])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    n, k = E.size, p.size
    order = np.argsort(-E, kind="stable")
    rows, have, wanted = np.eye(n, k), np.append(p, np.zeros(n - k)), E[order]
    for _ in range(n):
        surplus = have - wanted
        above = np.flatnonzero(surplus > 1e-12 * p[0])
        if not above.size:
            break
        i = above[-1]  # the last item that has too much; one below it has too little
        below = i + 1 + np.flatnonzero(surplus[i + 1 :] < 0.0)
        if not below.size:
            break
        j = below[0]
        moved = min(surplus[i], -surplus[j])
        share = moved / (have[i] - have[j])
        rows[[i, j]] = (1.0 - share) * rows[[i, j]] + share * rows[[j, i]]
        have[i], have[j] = have[i] - moved, have[j] + moved
    X = np.empty((n, k))
    X[order] = rows
    return X


@register
class Expohedron(Mixed):
    """Show lists of the mixture with the most NDCG less α times unfairness (Eq. 8) of exposure per visit.

    The exposure is a point of the Pareto frontier of NDCG and unfairness, which Kletti, Renders and Loiseau (2022) walk
    along; here it is found by one projection, and α is the slope there: the NDCG that one unit of unfairness is worth.
    As for LP the mixture ignores past exposure, is solved for at the first visit of a query, and again when relevance
    has changed and `refresh` visits have passed. The memory of a query is its mixture of lists.

    Parameters
    ----------
    alpha
        Weight of fairness.
    refresh
        Visits of a query after which its mixture is updated.
    delivery
        "balanced" shows the list furthest behind its weight; "iid" samples every list by its weight.

    Examples
    --------
    Two lists make up the mixture, and each is shown in proportion to its weight:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, Expohedron(), steps=4, k=2, record=True).lists.tolist()
    [[0, 1], [0, 2], [0, 1], [0, 1]]
    """

    delivery: Delivery = "balanced"

    style = ("#009E73", "<")
    cost = 100.0

    def placement(self, R: FloatArray, p: FloatArray) -> FloatArray:
        """Return a placement that has the best exposure."""
        return placement_of(best_exposure(R, p, self.alpha), p)
