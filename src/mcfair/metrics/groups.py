"""Fairness of exposure among groups of items, such as the items of one provider."""

from __future__ import annotations

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray, IntArray
from ..parts import register
from .base import Metric
from .exposure import query_unfairness

__all__ = ["GroupUnfairness", "sum_groups"]


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
