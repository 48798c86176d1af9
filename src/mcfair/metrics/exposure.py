"""Fairness of exposure: unfairness (Eq. 8) among items and among providers, and measures of concentration."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..errors import DataError
from ..parts import register
from .base import Metric


@kernel
def dots(E: FloatArray, R: FloatArray) -> tuple[float, float]:
    """Return E·R and |R|², each as the sum of two halves added side by side, so that additions overlap."""
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
def query_unfairness(E: FloatArray, R: FloatArray) -> float:
    """Return the unfairness of one query (Eq. 8) in O(n): `2/(n(n-1)) |R|² Σ (E - cR)²` with `c = E·R/|R|²`."""
    n = E.shape[0]
    er, rr = dots(E, R)
    if n < 2 or rr == 0.0:
        return 0.0
    c = er / rr
    s = 0.0
    for d in range(n):
        gap: float = E[d] - c * R[d]
        s += gap * gap
    return float(2.0 / (n * (n - 1.0)) * rr * s)


@kernel
def fill_unfairness(E: FloatArray, R: FloatArray, offsets: IntArray, out: FloatArray) -> None:
    """Write the unfairness of every query to an array."""
    for q in range(out.shape[0]):
        out[q] = query_unfairness(E[offsets[q] : offsets[q + 1]], R[offsets[q] : offsets[q + 1]])


def ragged(offsets: npt.ArrayLike | None, *arrays: npt.ArrayLike) -> tuple[IntArray, list[FloatArray]]:
    """Validate item arrays against offsets; without offsets all items belong to one query."""
    values = [np.ascontiguousarray(each, dtype=np.float64) for each in arrays]
    bounds = np.array([0, values[0].size]) if offsets is None else np.ascontiguousarray(offsets, dtype=np.int64)
    for each in values:
        if each.ndim != 1 or each.size != bounds[-1]:
            raise DataError(f"expected one number for each of {bounds[-1]} items, got an array of shape {each.shape}")
    return bounds, values


def unfairness_per_query(E: npt.ArrayLike, R: npt.ArrayLike, offsets: npt.ArrayLike | None = None) -> FloatArray:
    """Return the unfairness of each query (Eq. 8): the mean squared disparity of exposure over pairs of items.

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

    Raises
    ------
    DataError
        If the arrays differ in length.

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
    """Return the mean unfairness over queries (Eq. 8); with `visits`, over the queries visited at least once.

    Queries in which no item has any relevance are left out.

    Parameters
    ----------
    E, R : (items,) arrays
        Exposure and true relevance.
    offsets : (queries + 1,) array, optional
        Where each query's items begin; one query if left out.
    visits : (queries,) array, optional
        Sessions of each query.

    Returns
    -------
    float

    Raises
    ------
    DataError
        If the arrays differ in length.

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


# --- metrics ---------------------------------------------------------------------------------------------------------


@kernel
def unfairness_value(E: FloatArray, R: FloatArray, groups: IntArray, visits: int, theta: FloatArray) -> float:
    """Return the unfairness of one query (Eq. 8)."""
    return query_unfairness(E, R)


@register
class Unfairness(Metric):
    """Mean squared disparity of exposure per relevance over pairs of items (Eq. 8); it grows with visits squared.

    Examples
    --------
    Two items of equal relevance, one of which has all the exposure; then exposure in proportion to relevance:

    >>> items = np.arange(2)
    >>> Unfairness().value(np.array([1.0, 0.0]), np.array([1.0, 1.0]), items, 1)
    1.0
    >>> Unfairness().value(np.array([2.0, 1.0]), np.array([1.0, 0.5]), items, 2)
    0.0
    """

    kernel = unfairness_value
    floor_among: ClassVar[Literal["items", "groups"] | None] = "items"


@kernel
def relative_unfairness_value(E: FloatArray, R: FloatArray, groups: IntArray, visits: int, theta: FloatArray) -> float:
    """Return the unfairness of one query divided by its visits squared."""
    return query_unfairness(E, R) / (float(visits) * float(visits))


@register
class RelativeUnfairness(Metric):
    """Unfairness of each query divided by its visits squared, so that it does not grow with time.

    Examples
    --------
    The unfairness of these ten visits is 100, and that of one such visit 1:

    >>> RelativeUnfairness().value(np.array([10.0, 0.0]), np.array([1.0, 1.0]), np.arange(2), 10)
    1.0
    """

    kernel = relative_unfairness_value


@register
class TrueUnfairness(Unfairness):
    """Unfairness (Eq. 8) of the exposure that the users of a run really gave, whatever its examination assumes.

    It counts the sessions of the run itself: where users read from the top, exposure depends on the whole list, and
    the lists of earlier runs are not known.

    Examples
    --------
    Users look at rank 1 alone, but exposure is assumed to be the same at both ranks:

    >>> import mcfair as mf
    >>> data = mf.Dataset(offsets=[0, 2], y=[1, 1])
    >>> users = {"clicks": "DBN(continuation=0)", "examination": (1.0, 1.0), "metrics": ["true_unfairness"]}
    >>> figures = mf.simulate(data, "TopK", steps=10, **users).figures
    >>> figures["unfairness"], figures["true_unfairness"]
    (0.0, 100.0)
    """

    floor_among = None
    of_users = True


@kernel
def gini_value(E: FloatArray, R: FloatArray, groups: IntArray, visits: int, theta: FloatArray) -> float:
    """Return `Σ_x Σ_y |E(x) - E(y)| / (2 n Σ E)`."""
    n = E.shape[0]
    disparity = total = 0.0
    for x in range(n):
        total += E[x]
        for y in range(x):
            disparity += abs(E[x] - E[y])
    return disparity / (n * total) if total > 0.0 else 0.0


@register
class Gini(Metric):
    """Gini coefficient of exposure among the items of a query: 0 if all have the same, towards 1 if one has all.

    Examples
    --------
    >>> R, items = np.ones(4), np.arange(4)
    >>> Gini().value(np.array([1.0, 1.0, 1.0, 1.0]), R, items, 1)
    0.0
    >>> Gini().value(np.array([4.0, 0.0, 0.0, 0.0]), R, items, 1)
    0.75
    """

    kernel = gini_value
    spelling = "Gini"


# --- among providers --------------------------------------------------------------------------------------------------


@kernel
def sum_groups(E: FloatArray, R: FloatArray, groups: IntArray, exposure: FloatArray, merit: FloatArray) -> int:
    """Write the summed exposure and relevance of each group to the first m entries of two arrays; return m."""
    n = groups.shape[0]
    m = 0
    for d in range(n):
        m = max(m, groups[d] + 1)
    for g in range(m):
        exposure[g] = merit[g] = 0.0
    for d in range(n):
        exposure[groups[d]] += E[d]
        merit[groups[d]] += R[d]
    return m


@kernel(allocates=True)
def group_unfairness_value(E: FloatArray, R: FloatArray, groups: IntArray, visits: int, theta: FloatArray) -> float:
    """Return Eq. 8 on the sums of exposure and relevance of each group; nan if there is only one group."""
    exposure, merit = np.empty(E.shape[0]), np.empty(E.shape[0])
    m = sum_groups(E, R, groups, exposure, merit)
    return query_unfairness(exposure[:m], merit[:m]) if m > 1 else np.nan


@register
class GroupUnfairness(Metric):
    """Unfairness (Eq. 8) among groups: between the summed exposure and the summed relevance of each group.

    Queries whose items belong to one group are left out. Without groups in the data each item is a group, and this is
    the unfairness of items.

    Examples
    --------
    The first two items belong to one group. Both groups have the same exposure and the same relevance:

    >>> E, R, groups = np.array([2.0, 0.0, 2.0]), np.array([1.0, 1.0, 2.0]), np.array([0, 0, 1])
    >>> GroupUnfairness().value(E, R, groups, 2)
    0.0
    """

    kernel = group_unfairness_value
    floor_among = "groups"
