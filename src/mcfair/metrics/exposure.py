"""What is measured: NDCG and cumulative NDCG for users, unfairness of exposure for providers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..errors import DataError

__all__ = ["cndcg", "ideal_dcg", "ndcg", "unfairness", "unfairness_per_query"]


@kernel
def dots(E, R):  # type: ignore[no-untyped-def]
    """E·R and |R|², each as the sum of two halves added up side by side: neither waits for the other's additions."""
    n = E.shape[0]
    half = n // 2
    er = rr = er2 = rr2 = 0.0
    for d in range(half):
        er += E[d] * R[d]
        rr += R[d] * R[d]
        er2 += E[half + d] * R[half + d]
        rr2 += R[half + d] * R[half + d]
    for d in range(2 * half, n):
        er2 += E[d] * R[d]
        rr2 += R[d] * R[d]
    return er + er2, rr + rr2


@kernel
def query_unfairness(E, R):  # type: ignore[no-untyped-def]
    """Unfairness of one query (Eq. 8) in O(n): `2/(n(n-1)) |R|² Σ (E - cR)²` with `c = E·R/|R|²`, never negative."""
    n = E.shape[0]
    er, rr = dots(E, R)
    if n < 2 or rr == 0.0:
        return 0.0
    c = er / rr
    s = 0.0
    for d in range(n):
        gap = E[d] - c * R[d]
        s += gap * gap
    return 2.0 / (n * (n - 1.0)) * rr * s


@kernel
def fill_unfairness(E, R, offsets, out):  # type: ignore[no-untyped-def]
    """Write the unfairness of every query to an array."""
    for q in range(out.shape[0]):
        out[q] = query_unfairness(E[offsets[q] : offsets[q + 1]], R[offsets[q] : offsets[q + 1]])


def ragged(offsets: npt.ArrayLike | None, *arrays: npt.ArrayLike) -> tuple[IntArray, list[FloatArray]]:
    """Check item arrays against offsets; without offsets all items belong to one query."""
    values = [np.ascontiguousarray(each, dtype=np.float64) for each in arrays]
    bounds = np.array([0, values[0].size]) if offsets is None else np.ascontiguousarray(offsets, dtype=np.int64)
    for each in values:
        if each.ndim != 1 or each.size != bounds[-1]:
            raise DataError(f"expected one number for each of {bounds[-1]} items, got an array of shape {each.shape}")
    return bounds, values


def unfairness_per_query(E: npt.ArrayLike, R: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> FloatArray:
    """Unfairness of each query (Eq. 8): mean squared disparity of exposure over pairs of items.

    `1/(n(n-1)) Σ_x Σ_y (E(x) R(y) - E(y) R(x))²`, computed in O(n); 0 for fewer than two items and for R = 0.

    Parameters
    ----------
    E, R : (items,) arrays
        Exposure and true relevance.
    offsets : (queries + 1,) array, optional
        Where each query's items begin; one query if left out.

    Returns
    -------
    (queries,) array

    Examples
    --------
    >>> unfairness_per_query([1, 0, 2, 4], [1, 1, 1, 2], offsets=[0, 2, 4]).tolist()
    [1.0, 0.0]
    """
    bounds, (e, r) = ragged(offsets, E, R)
    out = np.empty(bounds.size - 1)
    fill_unfairness(e, r, bounds, out)
    return out


def unfairness(
    E: npt.ArrayLike, R: npt.ArrayLike, offsets: npt.ArrayLike | None = None, *, visits: npt.ArrayLike | None = None
) -> float:
    """Mean unfairness over queries (Eq. 8); with `visits`, over the queries visited at least once.

    Queries in which no item has any relevance are left out. See `unfairness_per_query` for the arguments.

    Examples
    --------
    >>> unfairness([1, 0, 2, 4], [1, 1, 1, 2], offsets=[0, 2, 4])
    0.5
    """
    bounds, (_, r) = ragged(offsets, E, R)
    counted = np.maximum.reduceat(r, bounds[:-1]) > 0
    if visits is not None:
        counted &= np.asarray(visits) > 0
    values = unfairness_per_query(E, R, offsets)[counted]
    return float(values.mean()) if values.size else 0.0


def ideal_dcg(R: npt.ArrayLike, p: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> FloatArray:
    """DCG@1..k of the best list of each query, shape (queries, k) for k = len(p) (Eq. 5's denominator).

    Examples
    --------
    >>> ideal_dcg([0.1, 1.0], [1.0, 0.5]).tolist()
    [[1.0, 1.05]]
    """
    weights = np.ascontiguousarray(p, dtype=np.float64)
    bounds, (r,) = ragged(offsets, R)
    query = np.repeat(np.arange(bounds.size - 1), np.diff(bounds))
    best = r[np.lexsort((-r, query))]  # by query, and in each the most relevant first
    rank = np.arange(r.size) - bounds[query]
    top = rank < weights.size
    gains = np.zeros((bounds.size - 1, weights.size))
    gains[query[top], rank[top]] = best[top] * weights[rank[top]]
    return np.cumsum(gains, axis=1)


def ndcg(pi: npt.ArrayLike, R: npt.ArrayLike, p: npt.ArrayLike) -> FloatArray:
    """NDCG@1..k of one list (Eq. 3, 5) with the click probability R as gain and the examination p as weight.

    Parameters
    ----------
    pi : (k or fewer,) int array
        The list: positions in R, best first.
    R : (n,) array
        True relevance of the query's items.
    p : (k,) array
        Examination probability of each rank.

    Returns
    -------
    (k,) array; 0 where the best list has DCG 0.

    Examples
    --------
    >>> ndcg([1, 0], R=[1.0, 0.5], p=[1.0, 0.5]).tolist()
    [0.5, 0.8]
    """
    r, weights = np.asarray(R, dtype=np.float64), np.asarray(p, dtype=np.float64)
    gains = np.zeros(weights.size)
    shown = np.asarray(pi, dtype=np.int64)[: weights.size]
    gains[: shown.size] = r[shown] * weights[: shown.size]
    ideal = ideal_dcg(r, weights)[0]
    out = np.zeros(weights.size)
    np.divide(np.cumsum(gains), ideal, out=out, where=ideal > 0)
    return out


def cndcg(values: npt.ArrayLike, gamma: float = 0.995) -> FloatArray:
    """Cumulative NDCG (Eq. 6) after each session: `c_t = γ c_{t-1} + NDCG_t`.

    Parameters
    ----------
    values : (sessions,) or (sessions, k) array
        NDCG of each session in order of time.

    Examples
    --------
    >>> cndcg([1.0, 1.0, 0.0], gamma=0.5).tolist()
    [1.0, 1.5, 0.75]
    """
    out = np.array(values, dtype=np.float64)
    accumulate(out.reshape(out.shape[0], -1), gamma)
    return out


@kernel
def accumulate(values, gamma):  # type: ignore[no-untyped-def]
    """Replace each row by itself plus γ times the row before."""
    for t in range(1, values.shape[0]):
        for j in range(values.shape[1]):
            values[t, j] += gamma * values[t - 1, j]
