"""All measures of one log under one exposure model, in a form that can be resampled query by query.

A measure over queries is a ratio of sums over queries; a measure among groups follows from the groups' totals. Both
can be computed for many resamples of the queries at once.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import FloatArray, IntArray
from ..metrics.exposure import unfairness_per_query
from . import item_measures as items
from .group_measures import GroupTotals, attention_fairness, group_totals, impact, parity, ratio, shares
from .log_counts import LogCounts, rank_weights, sums_at

__all__ = ["Assumptions", "LogMeasures", "Summary"]

GEOMETRIC = 0.5
"""Probability of going on to the next rank in the geometric attention of AWRF."""

ROUNDING = 1e-12
"""Share of the unfairness below which a floor is nothing but rounding errors of exposure that could be fair."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Assumptions:
    """The assumptions behind the figures: exposure of each rank, merit of each item, and options of single measures.

    Attributes
    ----------
    p : (ranks,) array
        Examination probability of each rank.
    R : (items,) array
        Merit.
    top
        Ranks that count as a selection.
    least_share
        Groups with a smaller share of the candidates are left out of impact ratios.
    target : (groups,) array or None
        Shares of attention that AWRF compares with, if they were given.
    """

    p: FloatArray
    R: FloatArray
    top: int
    least_share: float = 0.02
    target: FloatArray | None = None


class Summary(NamedTuple):
    """Measures of a log or of its resamples; arrays begin with the axis of the resamples, if there is one.

    `measures` has a number for each name; `groups` the figures of each group; `ranks` those of each rank.
    """

    measures: dict[str, FloatArray]
    groups: dict[str, FloatArray]
    ranks: dict[str, FloatArray]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LogMeasures:
    """Sums of each query, from which every figure follows.

    Attributes
    ----------
    E, w : (items,) arrays
        Exposure, and what the lists handed out at each of their places.
    unfairness, floor : (queries,) arrays
        Eq. 8 and its lowest possible value.
    sums : dict
        For each measure over queries the summands of its numerator and of its denominator, (queries,) each; without a
        denominator it is a sum.
    totals, pair_query, pair_group
        Sums of each pair of a query and a group.
    """

    counts: LogCounts
    assumed: Assumptions
    E: FloatArray
    w: FloatArray
    unfairness: FloatArray
    floor: FloatArray
    judged: FloatArray
    sums: dict[str, tuple[FloatArray, FloatArray | None]]
    totals: GroupTotals | None
    pair_query: IntArray
    pair_group: IntArray

    @classmethod
    def of(cls, counts: LogCounts, assumed: Assumptions) -> LogMeasures:
        """Compute the sums of each query."""
        p, R, offsets = assumed.p, assumed.R, counts.offsets
        E, w = counts.exposure(p), counts.slot_weights(p)
        visits = counts.visits.astype(np.float64)
        judged = ((visits > 0) & (items.per_query(R, offsets) > 0)).astype(np.float64)
        order = items.descending(R, offsets)
        unfair, lowest = unfairness_per_query(E, R, offsets), items.floor(R, w, offsets, order)
        lowest[lowest < ROUNDING * unfair] = 0.0
        sums: dict[str, tuple[FloatArray, FloatArray | None]] = {
            "unfairness": (unfair * judged, judged),
            "floor": (lowest * judged, judged),
            "distance": ((unfair - lowest) * judged, judged),
            "relative_unfairness": (unfair * judged / np.maximum(visits, 1) ** 2, judged),
        }
        sums |= exposure_sums(counts, assumed, E, w, judged, order)
        sums |= effectiveness_sums(counts, R, E, w, order)
        totals, query, group = None, np.zeros(0, np.int64), np.zeros(0, np.int64)
        if counts.group_names:
            totals, query, group = group_totals(counts, E, R, assumed.top)
            sums |= group_sums(counts, assumed, totals, query, group)
        return cls(
            counts=counts,
            assumed=assumed,
            E=E,
            w=w,
            unfairness=unfair,
            floor=lowest,
            judged=judged,
            sums=sums,
            totals=totals,
            pair_query=query,
            pair_group=group,
        )

    def summary(self, weights: FloatArray | None = None) -> Summary:
        """Return the figures; with weights of the queries, (resamples, queries), those of each resample."""
        rows = np.ones((1, self.counts.queries)) if weights is None else weights
        columns = np.stack([each for pair in self.sums.values() for each in pair if each is not None], axis=1)
        totals = iter(columns.sum(axis=0)[:, None] if weights is None else (weights @ columns).T)
        measures = {
            name: next(totals) if below is None else ratio(next(totals), next(totals))
            for name, (_, below) in self.sums.items()
        }
        groups: dict[str, FloatArray] = {}
        if self.totals is not None:
            groups, among = self.group_figures(rows)
            measures |= among
        tables = self.counts.rank_tables
        found = {name: np.asarray(rows @ table) for name, table in tables.items()}
        ranks = {"ctr": ratio(found["clicks"], found["shown"])}
        if "weight" in found:
            ranks["ips_ctr"] = ratio(found["weighted_clicks"], found["weight"])
        if weights is None:
            return Summary(*({name: values[0] for name, values in part.items()} for part in (measures, groups, ranks)))
        return Summary(measures, groups, ranks)

    def group_figures(self, rows: FloatArray) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return the figures of each group, and the measures among groups."""
        assert self.totals is not None
        shape = (self.counts.queries, len(self.counts.group_names))
        pairs = (self.pair_query, self.pair_group)
        totals = GroupTotals(*(np.asarray(rows @ sp.csr_array((x, pairs), shape=shape)) for x in self.totals))
        rate, against_best, compared = impact(totals, self.assumed.least_share)
        exposure_share, merit_share = shares(totals.exposure), shares(totals.merit)
        figures = {
            **totals._asdict(),
            "exposure_share": exposure_share,
            "merit_share": merit_share,
            "size_share": shares(totals.size),
            "ratio": ratio(exposure_share, merit_share),
            "selection_rate": rate,
            "impact_ratio": against_best,
        }
        least = np.where(compared, against_best, np.inf).min(axis=-1)
        return figures, parity(totals) | {"impact_ratio": np.where(np.isfinite(least), least, np.nan)}


Sums = dict[str, tuple[FloatArray, FloatArray | None]]


def exposure_sums(
    counts: LogCounts, assumed: Assumptions, E: FloatArray, w: FloatArray, judged: FloatArray, order: IntArray
) -> Sums:
    """Return the measures of exposure among items: IAA, EE and inequality, raw and corrected."""
    offsets, R, visits = counts.offsets, assumed.R, counts.visits.astype(np.float64)
    apart = items.inequity(counts, assumed.p, R) * judged
    ee = items.expected_exposure(E, R, w, offsets, counts.visits, order)
    sums: Sums = {"iaa": (apart, None), "iaa_per_session": (apart, visits * judged)}
    sums |= {name: (each * judged, judged) for name, each in zip(("ee_d", "ee_r", "ee_l"), ee, strict=True)}
    several = (counts.sizes > 1) & (visits > 0)
    equal = np.ones(counts.items)
    for name, measure in (("gini", items.gini), ("jain", items.jain), ("entropy", items.entropy)):
        value, one, other = measure(E, offsets), measure(equal, offsets), measure(w, offsets)
        low, high = np.minimum(one, other), np.maximum(one, other)
        sums[name] = (np.where(several, value, 0.0), several.astype(np.float64))
        free = several & (high - low > 1e-12)  # otherwise every list gives the same
        corrected = np.divide(value - low, high - low, out=np.zeros(value.size), where=free)
        sums[f"{name}_corrected"] = (corrected, free.astype(np.float64))
    return sums


def effectiveness_sums(counts: LogCounts, R: FloatArray, E: FloatArray, w: FloatArray, order: IntArray) -> Sums:
    """Return click rates, and NDCG by the merit: the attention-weighted merit of the lists over that of ideal ones."""
    cell_query, visits = counts.item_query[counts.cell_item], counts.visits.astype(np.float64)

    def total(values: FloatArray | IntArray) -> FloatArray:
        return sums_at(cell_query, values, counts.queries)

    ideal = items.per_query(R[order] * w, counts.offsets)
    gain = items.per_query(R * E, counts.offsets)
    ndcg = np.divide(gain, ideal, out=np.zeros(ideal.size), where=ideal > 0)
    clicks = total(counts.clicks)
    sums: Sums = {
        "ctr": (clicks, total(counts.shown)),
        "clicks_per_impression": (clicks, visits),
        "clicks_per_exposure": (clicks, items.per_query(E, counts.offsets)),
        "ndcg": (ndcg * visits, np.where(ideal > 0, visits, 0.0)),
    }
    if counts.weight is not None and counts.weighted_clicks is not None:
        sums["ips_ctr"] = (total(counts.weighted_clicks), total(counts.weight))
    return sums


def group_sums(counts: LogCounts, assumed: Assumptions, totals: GroupTotals, query: IntArray, group: IntArray) -> Sums:
    """Return the measures of each query among groups: unfairness between groups, and AWRF for each target."""
    queries = counts.queries
    bounds = np.concatenate(([0], np.cumsum(np.bincount(query, minlength=queries))))
    visits = np.maximum(counts.visits, 1)[query]
    unfair = unfairness_per_query(totals.exposure, totals.merit / visits, bounds)
    several = (np.diff(bounds) > 1) & (sums_at(query, totals.merit, queries) > 0)
    sums: Sums = {"group_unfairness": (np.where(several, unfair, 0.0), several.astype(np.float64))}
    rank = np.arange(1, counts.ranks + 1)
    discounts = {"log2": 1.0 / np.log2(np.maximum(rank, 2)), "geometric": np.asarray(GEOMETRIC ** (rank - 1.0))}
    place = np.searchsorted(
        query * len(counts.group_names) + group, counts.item_query * len(counts.group_names) + counts.groups
    )
    for discount, weights in discounts.items():
        cells = counts.shown * rank_weights(weights, counts.cell_rank)
        attention = sums_at(place[counts.cell_item], cells, query.size)
        targets = {"population": totals.size, "merit": totals.merit}
        for name, target in targets.items():
            value = attention_fairness(attention, target, query, queries)
            sums[f"awrf_{discount}_{name}"] = (np.nan_to_num(value), np.isfinite(value).astype(np.float64))
        if assumed.target is not None:
            value = attention_fairness(attention, assumed.target[group], query, queries, whole=True)
            sums[f"awrf_{discount}_given"] = (np.nan_to_num(value), np.isfinite(value).astype(np.float64))
    return sums
