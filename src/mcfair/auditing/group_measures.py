"""Measures among groups: shares, demographic parity, disparate treatment and impact, AWRF and selection rates.

Totals have shape (…, groups): the axes before are those of bootstrap replicates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import BoolArray, FloatArray, IntArray
from .log_counts import LogCounts, sums_at

__all__ = ["GroupTotals", "attention_fairness", "extremes", "group_totals", "impact", "shares"]


class GroupTotals(NamedTuple):
    """Sums over the items of each group.

    `size` counts an item once for each impression in which it was a candidate, `merit` is its relevance summed over
    these impressions, `selected` counts its impressions among the first k ranks.
    """

    exposure: FloatArray
    merit: FloatArray
    clicks: FloatArray
    size: FloatArray
    selected: FloatArray


def group_totals(counts: LogCounts, E: FloatArray, R: FloatArray, top: int) -> tuple[GroupTotals, IntArray, IntArray]:
    """Return the totals of each pair of a query and a group that occurs in it, and the query and group of each pair."""
    query = counts.item_query
    groups = len(counts.group_names)
    pair, place = np.unique(query * groups + counts.groups, return_inverse=True)
    visits = counts.visits[query].astype(np.float64)
    above = counts.shown * (counts.cell_rank <= top)
    selected = sums_at(counts.cell_item, above, counts.items)
    sums = (sums_at(place, x, pair.size) for x in (E, visits * R, counts.C, visits, selected))
    return GroupTotals(*sums), pair // groups, pair % groups


def shares(values: FloatArray) -> FloatArray:
    """Return each group's share of the sum over groups; 0 if that is 0.

    Examples
    --------
    >>> shares(np.array([3.0, 1.0])).tolist()
    [0.75, 0.25]
    """
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(values, total, out=np.zeros(values.shape), where=total > 0))


def extremes(values: FloatArray, counted: BoolArray) -> FloatArray:
    """Return the smallest value over the largest among the groups that count: 1 is parity, nan without two groups.

    Examples
    --------
    >>> extremes(np.array([0.5, 1.0, 9.0]), np.array([True, True, False])).tolist()
    0.5
    """
    low = np.where(counted, values, np.inf).min(axis=-1)
    high = np.where(counted, values, -np.inf).max(axis=-1)
    several = counted.sum(axis=-1) > 1
    return np.asarray(np.divide(low, high, out=np.full(np.shape(low), np.nan), where=several & (high > 0)))


def ratio(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a/b, nan where b is 0."""
    return np.asarray(np.divide(a, b, out=np.full(np.broadcast(a, b).shape, np.nan), where=b > 0))


def parity(totals: GroupTotals) -> dict[str, FloatArray]:
    """Return DP, DTR and DIR (Singh and Joachims) as the smallest over the largest value among groups.

    DP compares exposure per size, DTR exposure per merit, DIR clicks per merit; groups without merit are left out of
    the last two.
    """
    met, worthy = totals.size > 0, totals.merit > 0
    return {
        "demographic_parity": extremes(ratio(totals.exposure, totals.size), met),
        "disparate_treatment": extremes(ratio(totals.exposure, totals.merit), worthy),
        "disparate_impact": extremes(ratio(totals.clicks, totals.merit), worthy),
    }


def impact(totals: GroupTotals, least_share: float) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return each group's selection rate, its ratio to that of the best group, and which groups are compared.

    Groups with less than `least_share` of all candidates are not compared.
    """
    rate = ratio(totals.selected, totals.size)
    compared = shares(totals.size) >= least_share
    best = np.where(compared & np.isfinite(rate), rate, -np.inf).max(axis=-1, keepdims=True)
    return rate, ratio(rate, np.where(best > 0, best, 0.0)), compared & np.isfinite(rate)


def attention_fairness(
    attention: FloatArray, target: FloatArray, query: IntArray, queries: int, *, whole: bool = False
) -> FloatArray:
    """Return AWRF of each query: 1 less the Jensen-Shannon divergence, in bits, of attention from a target.

    Parameters
    ----------
    attention, target : (pairs,) arrays
        Attention and target of each pair of a query and a group.
    query : (pairs,) int array
        The query of each pair.
    queries
        Number of queries.
    whole
        Whether targets are shares already, and what is missing to 1 belongs to groups that the query does not have.

    Returns
    -------
    (queries,) array; nan where nobody has attention, or the target is 0.

    Examples
    --------
    Two groups with the attention 3 : 1, where equal shares are the target, and two with what they should have:

    >>> query = np.array([0, 0, 1, 1])
    >>> attention_fairness(np.array([3.0, 1.0, 1.0, 1.0]), np.ones(4), query, 2).round(4).tolist()
    [0.9512, 1.0]
    """

    def total(values: FloatArray) -> FloatArray:
        return sums_at(query, values, queries)

    sums, targets = total(attention), total(target)
    a = ratio(attention, sums[query])
    b = target if whole else ratio(target, targets[query])
    m = (a + b) / 2
    parts = [x * np.log2(np.divide(x, m, out=np.ones(m.size), where=x > 0)) for x in (a, b)]
    elsewhere = np.maximum(1.0 - targets, 0.0) if whole else 0.0  # attention there is 0, so it counts one bit each
    apart = (total(parts[0]) + total(parts[1]) + elsewhere) / 2
    return np.where((sums > 0) & (targets > 0), 1.0 - apart, np.nan)
