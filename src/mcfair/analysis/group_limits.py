"""The lowest possible group unfairness for given visits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..data.dataset import Dataset
from ..metrics.base import Metric
from ..metrics.exposure import query_unfairness
from ..metrics.reachable_groups import balance_groups, project_groups
from .limits import ROUNDING, ExposureProgram, Floor, fairness_floor

__all__ = ["group_floor", "lowest_possible"]


@kernel(allocates=True)
def fill_group_optima(
    R: FloatArray,
    groups: IntArray,
    p: FloatArray,
    offsets: IntArray,
    visits: FloatArray,
    E: FloatArray,
    unfair: FloatArray,
    gap: FloatArray,
    off: FloatArray,
) -> None:
    """Write, for each query, the lowest group unfairness, its gap and E, in which the items of a group share alike.

    `off` is the distance of the groups' exposure from a multiple of their merit, relative to that exposure.
    """
    for q in range(visits.shape[0]):
        low, n = offsets[q], offsets[q + 1] - offsets[q]
        m = 0
        for d in range(low, low + n):
            m = max(m, groups[d] + 1)
        M, sizes, H, x = np.zeros(m), np.zeros(m, np.int64), np.zeros(n + 1), np.zeros(m)
        for d in range(low, low + n):
            M[groups[d]] += R[d]
            sizes[groups[d]] += 1
        for j in range(n):
            H[j + 1] = H[j] + (visits[q] * p[j] if j < p.shape[0] else 0.0)
        order, ends = np.arange(m), np.zeros(m, np.int64)
        square = 0.0
        for g in range(m):
            square += M[g] * M[g]
        c = 0.0
        if m > 1 and square > 0.0:
            c = balance_groups(M, sizes, H, order, ends, x)
        elif m > 0:  # nothing to choose
            project_groups(c, M, sizes, H, order, ends, x)
        for d in range(low, low + n):
            E[d] = x[groups[d]] / sizes[groups[d]]
        unfair[q] = query_unfairness(x, M)
        gap[q], off[q] = tangent_gap(x, M, sizes, H, order)


@kernel
def tangent_gap(x: FloatArray, M: FloatArray, sizes: IntArray, H: FloatArray, order: IntArray) -> tuple[float, float]:
    """Return how far the tangent of unfairness at x falls to its lowest reachable point, and |x - cM|/|x|.

    Unfairness is convex, so no reachable point is lower than that. The tangent is lowest where the groups of the least
    slope have the ranks from the top.
    """
    m = x.shape[0]
    xm = mm = xx = away = 0.0
    for g in range(m):
        xm += x[g] * M[g]
        mm += M[g] * M[g]
        xx += x[g] * x[g]
    c = xm / mm if mm > 0.0 else 0.0
    factor = 4.0 * mm / (m * (m - 1.0)) if m > 1 else 0.0
    for i in range(1, m):
        g, j = order[i], i
        while j > 0 and x[g] - c * M[g] < x[order[j - 1]] - c * M[order[j - 1]]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = g
    fall, items = 0.0, 0
    for i in range(m):
        g = order[i]
        lowest = H[items + sizes[g]] - H[items]
        items += sizes[g]
        slope = x[g] - c * M[g]
        fall += slope * (x[g] - lowest)
        away += slope * slope
    return max(factor * fall, 0.0), np.sqrt(away / xx) if xx > 0.0 and mm > 0.0 else 0.0


def group_floor(data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> Floor:
    """Compute the lowest group unfairness that any policy can reach, with R known and for the given visits.

    Group unfairness is Eq. 8 on the summed exposure and relevance of each group. Its minimum over the exposures that
    lists mixed in any proportions reach is found exactly; the gap is the distance to the lowest point of the tangent
    there, below which no unfairness lies since it is convex.

    Parameters
    ----------
    data
        Queries with true relevance R, and groups; without groups each item is its own, and this is `fairness_floor`.
    visits : (queries,) array
        Sessions of each query, such as `trace.state.visits`.
    p : (k_s,) array
        Examination probability of each rank; it never rises.

    Returns
    -------
    Floor
        The mean covers the queries of the metric `group_unfairness`: those visited that have a relevant item and more
        than one group. `reachable` states whether the exposure of groups can be in proportion to their relevance. E is
        one of the fairest exposures, the one in which the items of a group share alike.

    Raises
    ------
    DataError, SettingError
        If visits or p are not allowed.

    Examples
    --------
    Two providers of equal merit: one has three items, the other one. With two ranks they can have equal exposure. With
    three ranks of equal weight they cannot, because a list shows the only item of the second provider once:

    >>> data = Dataset(offsets=[0, 4], y=[0] * 4, R=[0.2, 0.2, 0.2, 0.6], providers=["big", "big", "big", "small"])
    >>> group_floor(data, visits=[10], p=[1.0, 0.5]).E.round(6).tolist()
    [2.5, 2.5, 2.5, 7.5]
    >>> group_floor(data, visits=[10], p=[1.0, 1.0, 1.0]).E.round(6).tolist()
    [6.666667, 6.666667, 6.666667, 10.0]
    """
    problem = ExposureProgram.of(data, visits, p)
    groups = data.query_providers
    E, (unfair, gap, off) = np.empty(data.items), np.empty((3, data.queries))
    arrays = data.R.copy(), groups.copy(), problem.p, data.offsets.copy(), problem.visits
    fill_group_optima(*arrays, E, unfair, gap, off)
    several = np.zeros(data.queries, np.bool_)
    several[problem.query[groups > 0]] = True
    counted = problem.counted & several

    def mean(values: FloatArray) -> float:
        return float(values[counted].sum() / max(counted.sum(), 1))

    return Floor(
        unfairness=mean(unfair),
        gap=mean(gap),
        query_unfairness=unfair,
        query_gap=gap,
        reachable=off <= ROUNDING,
        E=E,
    )


def lowest_possible(metric: Metric, data: Dataset, visits: npt.ArrayLike, p: npt.ArrayLike) -> Floor:
    """Compute the lowest value of a metric that any policy can reach; its floor must be known, see `floor_among`."""
    return (group_floor if metric.floor_among == "groups" else fairness_floor)(data, visits, p)
