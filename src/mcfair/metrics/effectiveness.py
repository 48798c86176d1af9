"""Effectiveness for users: NDCG of lists, and cumulative NDCG over the sessions of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..errors import SettingError
from ..parts import register
from .base import Metric
from .exposure import ragged


def ideal_dcg(R: npt.ArrayLike, p: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> FloatArray:
    """Return DCG@1..k of the best list of each query, the denominator of Eq. 5.

    Parameters
    ----------
    R : (items,) array
        True relevance.
    p : (k,) array
        Examination probability of each rank.
    offsets : (queries + 1,) array, optional
        Where each query's items begin; one query if left out.

    Returns
    -------
    (queries, k) array

    Raises
    ------
    DataError
        If R does not have one number for each item that `offsets` counts.

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
    """Return NDCG@1..k of one list (Eq. 3, 5) with the click probability R as gain and the examination p as weight.

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
    """Return the cumulative NDCG (Eq. 6) after each session: `c_t = γ c_{t-1} + NDCG_t`.

    Parameters
    ----------
    values : (sessions,) or (sessions, k) array
        NDCG of each session in order of time.
    gamma
        Discount γ of the sessions before.

    Returns
    -------
    Array of the same shape

    Examples
    --------
    >>> cndcg([1.0, 1.0, 0.0], gamma=0.5).tolist()
    [1.0, 1.5, 0.75]
    """
    out = np.array(values, dtype=np.float64)
    accumulate(out.reshape(out.shape[0], -1), gamma)
    return out


@kernel
def accumulate(values: FloatArray, gamma: float) -> None:
    """Replace each row by itself plus γ times the row before."""
    for t in range(1, values.shape[0]):
        for j in range(values.shape[1]):
            values[t, j] += gamma * values[t - 1, j]


# --- metrics ---------------------------------------------------------------------------------------------------------

Cutoff = Annotated[int, msgspec.Meta(ge=1, description="a whole number of at least 1")]


@register
class NDCG(Metric):
    """NDCG@k (Eq. 5) averaged over all sessions so far.

    Parameters
    ----------
    k
        Cutoff: ranks that count.

    Examples
    --------
    >>> NDCG(k=2).value(np.array([1, 0]), R=np.array([1.0, 0.5]), p=np.array([1.0, 0.5]))
    0.8
    """

    k: Cutoff = 5

    higher_is_better: ClassVar[bool] = True
    per_list: ClassVar[bool] = True
    summed_while_played: ClassVar[bool] = True
    spelling: ClassVar[str] = "NDCG"

    def value(self, pi: IntArray, R: FloatArray, p: FloatArray) -> float:
        """Return NDCG@k of one list.

        Parameters
        ----------
        pi : (k or fewer,) int array
            The list: positions in R, best first.
        R : (n,) array
            True relevance of the query's items.
        p : (k_s,) array
            Examination probability of each rank.

        Returns
        -------
        float

        Raises
        ------
        SettingError
            If the cutoff is beyond the last rank.
        """
        values = ndcg(pi, R, p)
        if self.k > values.size:
            raise SettingError(f"{self!r}: expected a cutoff from 1 to {values.size}, the ranks of the lists")
        return float(values[self.k - 1])


@register
class CNDCG(NDCG):
    """Cumulative NDCG@k (Eq. 6): `c ← γ c + NDCG@k` over the sessions in order of time, at most 1/(1 - γ).

    Parameters
    ----------
    k
        Cutoff: ranks that count.

    Examples
    --------
    Three ideal lists are worth 1 + γ + γ²:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 3], y=[2, 1, 0])
    >>> mf.simulate(data, "TopK", steps=3, gamma=0.5).figures["cndcg@1"]
    1.75
    """

    spelling = "cNDCG"


@kernel(allocates=True)
def log_ndcg_value(pi: IntArray, R: FloatArray, p: FloatArray, theta: FloatArray) -> float:
    """Return `Σ w_j R(π_j)` over that of the best list; theta holds the weights w."""
    k = min(theta.shape[0], pi.shape[0])
    best = np.sort(R)[::-1]
    dcg = ideal = 0.0
    for j in range(k):
        dcg += theta[j] * R[pi[j]]
        ideal += theta[j] * best[j]
    return dcg / ideal if ideal > 0.0 else 0.0


@register
class LogNDCG(Metric):
    """NDCG@k with the discount 1/log2(j + 1) whatever examination exposure assumes, averaged over all sessions.

    NDCG weighs ranks by the examination that a setting assumes (Eq. 3), so that two settings that assume different
    things are measured with different weights. This metric measures both with the same.

    Parameters
    ----------
    k
        Cutoff: ranks that count.

    Examples
    --------
    >>> log = LogNDCG(k=2)
    >>> round(log.value(np.array([1, 0]), np.array([1.0, 0.5]), np.array([1.0, 0.1])), 6)
    0.859719
    """

    k: Cutoff = 5

    higher_is_better: ClassVar[bool] = True
    per_list: ClassVar[bool] = True
    kernel = log_ndcg_value

    @property
    def theta(self) -> FloatArray:
        """The discounts of the ranks up to k."""
        return np.asarray(1.0 / np.log2(np.arange(2, self.k + 2)))

    @property
    def label(self) -> str:
        """The usual spelling, with the discount."""
        return f"NDCG@{self.k} (log discount)"
