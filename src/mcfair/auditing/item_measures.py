"""Measures of exposure among the items of each query, each straight from its definition, for all queries at once.

Item arrays are ragged: item i of query q is at `offsets[q] + i`. `w` has the exposure that the query's lists handed
out at each of their places, largest first, so that the exposures that lists can reach are the permutahedron of w.
"""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..metrics.exposure import query_unfairness
from ..metrics.reachable import balance, project
from .log_counts import LogCounts, rank_weights, sums_at

__all__ = ["entropy", "expected_exposure", "floor", "gini", "inequity", "jain", "per_query"]


def per_query(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the sum over the items of each query."""
    query = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return sums_at(query, values, offsets.size - 1)


def descending(values: FloatArray, offsets: IntArray) -> IntArray:
    """Return the order that sorts the items of each query by falling value."""
    query = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    return np.lexsort((-values, query))


@kernel(allocates=True)
def fill_floor(R: FloatArray, w: FloatArray, offsets: IntArray, E: FloatArray, out: FloatArray) -> None:
    """Write the lowest unfairness of every query, and E where it is reached; R and w fall within a query."""
    largest = 1
    for q in range(out.shape[0]):
        largest = max(largest, offsets[q + 1] - offsets[q])
    pools = np.empty((largest, 3))
    for q in range(out.shape[0]):
        low, high = offsets[q], offsets[q + 1]
        if high - low > 1 and R[low] * R[low] > 0.0:
            balance(0.0, 0.0, R[low:high], w[low:high], pools, E[low:high])
        else:  # one item, or none that is relevant: nothing to choose
            project(0.0, R[low:high], w[low:high], pools, E[low:high])
        out[q] = query_unfairness(E[low:high], R[low:high])


def floor(R: FloatArray, w: FloatArray, offsets: IntArray, order: IntArray | None = None) -> FloatArray:
    """Return the lowest unfairness (Eq. 8) that lists with the same places could have reached, for each query.

    `order` sorts the items of each query by falling merit, if it is known already.

    Examples
    --------
    One of three items has all the merit, but two places were filled in each of 10 lists:

    >>> floor(np.array([1.0, 0.0, 0.0]), np.array([10.0, 5.0, 0.0]), np.array([0, 3])).round(4).tolist()
    [4.1667]
    """
    order = descending(R, offsets) if order is None else order
    out, E = np.empty(offsets.size - 1), np.empty(R.size)
    fill_floor(R[order], w, offsets, E, out)
    return out


def inequity(counts: LogCounts, p: FloatArray, R: FloatArray) -> FloatArray:
    """Return the inequity of amortised attention of each query, `Σ_d |Σ_τ a_dτ - Σ_τ r_dτ|`.

    In each impression τ attention a and merit r are divided by their sums. Where impressions cannot be told apart,
    attention is divided by its mean sum over the impressions of the query.
    """
    weights = rank_weights(p, counts.cell_rank)
    query = counts.item_query
    if counts.patterns:
        sums = np.array([rank_weights(p, ranks).sum() for ranks in counts.patterns])[counts.cell_pattern]
    else:
        slots = sums_at(counts.slot_query, counts.slot_count * rank_weights(p, counts.slot_rank), counts.queries)
        sums = (slots / np.maximum(counts.visits, 1))[query[counts.cell_item]]
    share = np.divide(weights, sums, out=np.zeros(weights.size), where=sums > 0)
    attention = sums_at(counts.cell_item, counts.shown * share, counts.items)
    merit = per_query(R, counts.offsets)
    due = np.divide(counts.visits, merit, out=np.zeros(merit.size), where=merit > 0)[query] * R
    return per_query(np.abs(attention - due), counts.offsets)


def expected_exposure(
    E: FloatArray, R: FloatArray, w: FloatArray, offsets: IntArray, visits: IntArray, order: IntArray | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return EE-D, EE-R and EE-L of each query: `|ε|²`, `2 ε·ε*` and `|ε - ε*|²`.

    ε is the exposure of an item per impression, ε* that of ideal lists, in which items of equal merit share their
    places alike. `order` sorts the items of each query by falling merit, if it is known already.

    Examples
    --------
    Two items of equal merit, of which one was always first: each should have had (1 + 0.5)/2.

    >>> w, offsets = np.array([10.0, 5.0]), np.array([0, 2])
    >>> d, r, l = expected_exposure(np.array([10.0, 5.0]), np.array([1.0, 1.0]), w, offsets, np.array([10]))
    >>> d.tolist(), r.tolist(), l.tolist()
    ([1.25], [2.25], [0.125])
    """
    query = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    seen = np.maximum(visits, 1)[query]
    order = descending(R, offsets) if order is None else order
    ordered, places = R[order], w / seen
    new = np.append(True, (ordered[1:] != ordered[:-1]) | (query[1:] != query[:-1])) if R.size else np.zeros(0, bool)
    block = np.cumsum(new) - 1
    mean = np.bincount(block, weights=places) / np.bincount(block)
    ideal = np.empty(R.size)
    ideal[order] = mean[block]
    own = E / seen
    off = own - ideal
    return per_query(own * own, offsets), 2.0 * per_query(own * ideal, offsets), per_query(off * off, offsets)


def gini(E: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the Gini coefficient of each query, `Σ_x Σ_y |E(x) - E(y)| / (2 n Σ E)`, in O(n log n).

    Examples
    --------
    >>> gini(np.array([4.0, 0.0, 0.0, 0.0]), np.array([0, 4])).tolist()
    [0.75]
    """
    n = np.diff(offsets)
    total = per_query(E, offsets)
    place = np.arange(E.size) - np.repeat(offsets[:-1], n)
    spread = per_query((np.repeat(n, n) - 1 - 2 * place) * E[descending(E, offsets)], offsets)
    return np.divide(spread, n * total, out=np.zeros(n.size), where=total > 0)


def jain(E: FloatArray, offsets: IntArray) -> FloatArray:
    """Return Jain's index of each query, `(Σ E)² / (n Σ E²)`: 1 if all items have the same exposure.

    Examples
    --------
    >>> jain(np.array([1.0, 1.0, 2.0, 0.0]), np.array([0, 2, 4])).tolist()
    [1.0, 0.5]
    """
    n, square = np.diff(offsets), per_query(E * E, offsets)
    total = per_query(E, offsets)
    return np.divide(total * total, n * square, out=np.ones(n.size), where=square > 0)


def entropy(E: FloatArray, offsets: IntArray) -> FloatArray:
    """Return the entropy of the shares of exposure in each query, in bits.

    Examples
    --------
    >>> entropy(np.array([1.0, 1.0, 2.0, 0.0]), np.array([0, 2, 4])).tolist()
    [1.0, 0.0]
    """
    n = np.diff(offsets)
    total = np.repeat(per_query(E, offsets), n)
    share = np.divide(E, total, out=np.zeros(E.size), where=total > 0)
    logs = np.log2(share, out=np.zeros(E.size), where=share > 0)
    return -per_query(share * logs, offsets) + 0.0
