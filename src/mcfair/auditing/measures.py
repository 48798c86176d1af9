"""Measures of a log under one exposure model and one merit, each straight from its definition, for all queries at once.

Item arrays are ragged: item i of query q is at `offsets[q] + i`. `w` has the exposure that the query's lists handed
out at each of their places, largest first, so that the exposures that lists can reach are the permutahedron of w. A
measure over queries is a ratio of sums over queries, a measure among groups follows from the groups' totals; both can
be computed for many resamples of the queries at once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp
from scipy.special import entr, rel_entr

from .._jit import kernel
from ..arrays import BoolArray, FloatArray, IntArray
from ..metrics.exposure import query_unfairness, unfairness_per_query
from ..metrics.reachable import balance, project
from .counts import LogCounts, Slots, arrays, inferred_slots, rank_weights, slots_of_lists, sums_at

# --- items -----------------------------------------------------------------------------------------------------------


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


def unfairness_and_floor(
    E: FloatArray, R: FloatArray, w: FloatArray, offsets: IntArray, order: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the unfairness (Eq. 8) of each query, and the lowest that lists with the same places could have reached.

    `order` sorts the items of each query by falling merit. A floor of nothing but rounding errors is 0.

    Examples
    --------
    One of three items has all the merit, but two places were filled in each of 10 lists:

    >>> R, w = np.array([1.0, 0.0, 0.0]), np.array([10.0, 5.0, 0.0])
    >>> unfair, lowest = unfairness_and_floor(w, R, w, np.array([0, 3]), np.array([0, 1, 2]))
    >>> lowest.round(4).tolist()
    [4.1667]
    """
    unfair, lowest = unfairness_per_query(E, R, offsets), np.empty(offsets.size - 1)
    fill_floor(R[order], w, offsets, np.empty(R.size), lowest)
    lowest[lowest < ROUNDING * unfair] = 0.0
    return unfair, lowest


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
        handed_out = per_query(counts.slot_weights(p), counts.offsets)
        sums = (handed_out / np.maximum(counts.visits, 1))[query[counts.cell_item]]
    share = ratio(weights, sums, 0.0)
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
    return np.asarray(per_query(entr(ratio(E, total, 0.0)), offsets) / np.log(2))


# --- groups ----------------------------------------------------------------------------------------------------------


def shares(values: FloatArray) -> FloatArray:
    """Return each group's share of the sum over groups; 0 if that is 0.

    Examples
    --------
    >>> shares(np.array([3.0, 1.0])).tolist()
    [0.75, 0.25]
    """
    total = values.sum(axis=-1, keepdims=True)
    return np.asarray(ratio(values, total, 0.0))


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


def ratio(a: FloatArray | IntArray, b: FloatArray | IntArray, otherwise: float = np.nan) -> FloatArray:
    """Return a/b, and another value where b is 0."""
    return np.asarray(np.divide(a, b, out=np.full(np.broadcast(a, b).shape, otherwise), where=b > 0))


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
    sums, targets = (sums_at(query, each, queries) for each in (attention, target))
    a = ratio(attention, sums[query])
    b = target if whole else ratio(target, targets[query])
    m = (a + b) / 2
    bits = sums_at(query, rel_entr(a, m) + rel_entr(b, m), queries) / np.log(2)
    elsewhere = np.maximum(1.0 - targets, 0.0) if whole else 0.0  # attention there is 0, so it counts one bit each
    apart = (bits + elsewhere) / 2
    return np.where((sums > 0) & (targets > 0), 1.0 - apart, np.nan)


# --- all measures ----------------------------------------------------------------------------------------------------

GEOMETRIC = 0.5
"""Probability of going on to the next rank in the geometric attention of AWRF."""

LEAST_SHARE = 0.02
"""Groups with a smaller share of the candidates are left out of impact ratios."""

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
    target : (groups,) array or None
        Shares of attention that AWRF compares with, if they were given.
    k
        The last rank that counts in NDCG; None for all.
    """

    p: FloatArray
    R: FloatArray
    top: int
    target: FloatArray | None = None
    k: int | None = None


Sums = dict[str, tuple[FloatArray, FloatArray | None]]
"""For each measure the summands of its numerator and of its denominator, (queries,) each; see `LogMeasures`."""


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
    totals : dict
        Sums over the items of each query in each group, (queries, groups) sparse arrays; empty without groups. `size`
        counts an item once for each impression in which it was a candidate, `merit` is its relevance summed over these,
        `selected` counts its impressions among the first ranks.
    """

    counts: LogCounts
    assumed: Assumptions
    E: FloatArray
    w: FloatArray
    unfairness: FloatArray
    floor: FloatArray
    judged: FloatArray
    sums: Sums
    totals: dict[str, Any]

    @classmethod
    def of(cls, counts: LogCounts, assumed: Assumptions) -> LogMeasures:
        """Compute the sums of each query."""
        p, R, offsets = assumed.p, assumed.R, counts.offsets
        E, w = counts.exposure(p), counts.slot_weights(p)
        visits = counts.visits.astype(np.float64)
        judged = ((visits > 0) & (per_query(R, offsets) > 0)).astype(np.float64)
        order = descending(R, offsets)
        unfair, lowest = unfairness_and_floor(E, R, w, offsets, order)
        sums: Sums = {
            "unfairness": (unfair * judged, judged),
            "floor": (lowest * judged, judged),
            "distance": ((unfair - lowest) * judged, judged),
            "relative_unfairness": (unfair * judged / np.maximum(visits, 1) ** 2, judged),
        }
        sums |= exposure_sums(counts, assumed, E, w, judged, order)
        sums |= effectiveness_sums(counts, assumed, E, w, order)
        totals: dict[str, Any] = {}
        if counts.group_names:
            among, totals = group_sums(counts, assumed, E)
            sums |= among
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
        if self.totals:
            groups, among = self.group_figures(rows)
            measures |= among
        tables = self.counts.rank_tables
        found = {name: np.asarray(rows @ table) for name, table in tables.items()}
        ranks = {"ctr": ratio(found["clicks"], found["shown"])} if self.counts.clicked else {}
        if "weight" in found:
            ranks["ips_ctr"] = ratio(found["weighted_clicks"], found["weight"])
        if weights is None:
            return Summary(*({name: values[0] for name, values in part.items()} for part in (measures, groups, ranks)))
        return Summary(measures, groups, ranks)

    def group_figures(self, rows: FloatArray) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
        """Return the figures of each group, and the measures among groups."""
        totals = {name: np.asarray(rows @ each) for name, each in self.totals.items()}
        exposure, merit, size = (totals[name] for name in ("exposure", "merit", "size"))
        exposure_share, merit_share, size_share = shares(exposure), shares(merit), shares(size)
        rate = ratio(totals["selected"], size)
        compared = (size_share >= LEAST_SHARE) & np.isfinite(rate)
        against_best = ratio(rate, np.where(compared, rate, 0.0).max(axis=-1, keepdims=True))
        figures = {
            **totals,
            "exposure_share": exposure_share,
            "merit_share": merit_share,
            "size_share": size_share,
            "ratio": ratio(exposure_share, merit_share),
            "selection_rate": rate,
            "impact_ratio": against_best,
        }
        least = np.where(compared, against_best, np.inf).min(axis=-1)
        among = {
            "demographic_parity": extremes(ratio(exposure, size), size > 0),
            "disparate_treatment": extremes(ratio(exposure, merit), merit > 0),
        }
        if self.counts.clicked:
            among["disparate_impact"] = extremes(ratio(totals["clicks"], merit), merit > 0)
        return figures, among | {"impact_ratio": np.where(np.isfinite(least), least, np.nan)}


def exposure_sums(
    counts: LogCounts, assumed: Assumptions, E: FloatArray, w: FloatArray, judged: FloatArray, order: IntArray
) -> Sums:
    """Return the measures of exposure among items: IAA, EE and inequality, raw and corrected."""
    offsets, R, visits = counts.offsets, assumed.R, counts.visits.astype(np.float64)
    apart = inequity(counts, assumed.p, R) * judged
    ee = expected_exposure(E, R, w, offsets, counts.visits, order)
    sums: Sums = {"iaa": (apart, None), "iaa_per_session": (apart, visits * judged)}
    sums |= {name: (each * judged, judged) for name, each in zip(("ee_d", "ee_r", "ee_l"), ee, strict=True)}
    several = (counts.sizes > 1) & (visits > 0)
    equal = np.ones(counts.items)
    for name, measure in (("gini", gini), ("jain", jain), ("entropy", entropy)):
        value, one, other = measure(E, offsets), measure(equal, offsets), measure(w, offsets)
        low, high = np.minimum(one, other), np.maximum(one, other)
        sums[name] = (np.where(several, value, 0.0), several.astype(np.float64))
        free = several & (high - low > 1e-12)  # otherwise every list gives the same
        corrected = np.divide(value - low, high - low, out=np.zeros(value.size), where=free)
        sums[f"{name}_corrected"] = (corrected, free.astype(np.float64))
    return sums


def effectiveness_sums(counts: LogCounts, assumed: Assumptions, E: FloatArray, w: FloatArray, order: IntArray) -> Sums:
    """Return click rates, and NDCG by the merit: the attention-weighted merit of the lists over that of ideal ones."""
    cell_query, visits, R = counts.item_query[counts.cell_item], counts.visits.astype(np.float64), assumed.R

    def total(values: FloatArray | IntArray) -> FloatArray:
        return sums_at(cell_query, values, counts.queries)

    clicks = total(counts.clicks)
    sums: Sums = {}
    if counts.clicked:
        sums["ctr"] = (clicks, total(counts.shown))
        sums["clicks_per_impression"] = (clicks, visits)
        sums["clicks_per_exposure"] = (clicks, per_query(E, counts.offsets))
    if assumed.k is not None:
        E, w = counts.exposure(assumed.p[: assumed.k]), counts.slot_weights(assumed.p[: assumed.k])
    gain, ideal = per_query(R * E, counts.offsets), per_query(R[order] * w, counts.offsets)
    ndcg = ratio(gain, ideal, 0.0)
    sums["ndcg"] = (ndcg * visits, np.where(ideal > 0, visits, 0.0))
    if counts.weights:
        sums["ips_ctr"] = (total(counts.weights["weighted_clicks"]), total(counts.weights["weight"]))
    return sums


def group_sums(counts: LogCounts, assumed: Assumptions, E: FloatArray) -> tuple[Sums, dict[str, Any]]:
    """Return the measures of each query among groups, Eq. 8 and AWRF for each target, and the totals of the groups."""
    queries, names, of = counts.queries, len(counts.group_names), counts.item_query
    pair, place = np.unique(of * names + counts.groups, return_inverse=True)
    query, group = pair // names, pair % names
    candidates = counts.visits[of].astype(np.float64)
    selected = sums_at(counts.cell_item, counts.shown * (counts.cell_rank <= assumed.top), counts.items)
    of_items: dict[str, Any] = {"exposure": E, "merit": candidates * assumed.R, "clicks": counts.C, "size": candidates}
    totals = {name: sums_at(place, x, pair.size) for name, x in (of_items | {"selected": selected}).items()}
    bounds = np.concatenate(([0], np.cumsum(np.bincount(query, minlength=queries))))
    visits = np.maximum(counts.visits, 1)[query]
    unfair = unfairness_per_query(totals["exposure"], totals["merit"] / visits, bounds)
    several = (np.diff(bounds) > 1) & (sums_at(query, totals["merit"], queries) > 0)
    sums: Sums = {"group_unfairness": (np.where(several, unfair, 0.0), several.astype(np.float64))}
    rank = np.arange(1, counts.ranks + 1)
    discounts = {"log2": 1.0 / np.log2(np.maximum(rank, 2)), "geometric": np.asarray(GEOMETRIC ** (rank - 1.0))}
    targets = {"population": totals["size"], "merit": totals["merit"]}
    if assumed.target is not None:
        targets["given"] = assumed.target[group]
    for discount, weights in discounts.items():
        cells = counts.shown * rank_weights(weights, counts.cell_rank)
        attention = sums_at(place[counts.cell_item], cells, query.size)
        for name, target in targets.items():
            value = attention_fairness(attention, target, query, queries, whole=name == "given")
            sums[f"awrf_{discount}_{name}"] = (np.nan_to_num(value), np.isfinite(value).astype(np.float64))
    shape = (queries, names)
    return sums, {name: sp.csr_array((x, (query, group)), shape=shape) for name, x in totals.items()}


# --- over time -------------------------------------------------------------------------------------------------------


def unfairness_over_time(figures: LogMeasures) -> pl.DataFrame | None:
    """Return the unfairness and the floor of each period.

    Eq. 8 is about exposure that items have collected, so `unfairness` and `floor` are those of all impressions since
    the beginning of the log; the means are over all queries in which an item has merit, whether they were met by then
    or not. The columns that begin with `alone_` are of the impressions of the period alone, the means over the queries
    that occur in it. Merit is that of the whole log.

    Parameters
    ----------
    figures
        The figures of the log.

    Returns
    -------
    polars.DataFrame or None
        None for a log without times.
    """
    counts, p, R = figures.counts, figures.assumed.p, figures.assumed.R
    timed, inferred = counts.timed, not counts.patterns
    if timed is None:
        return None
    order, judged = descending(R, counts.offsets), figures.judged > 0
    E, w, rows = np.zeros(counts.items), np.zeros(counts.items), []
    until = timed.cells(0).clear()
    so_far = mean_figures(E, R, w, counts.offsets, order, judged)
    for period, label in enumerate(timed.periods.labels()):
        cells = timed.cells(period)
        if cells.is_empty():  # one wrong time may add thousands of periods
            rows.append((label, 0, *so_far, float("nan"), float("nan")))
            continue
        item, rank, shown = arrays(cells, "item", "rank", "n")
        slots = period_slots(counts, cells, period)
        own, places = sums_at(item, shown * rank_weights(p, rank), counts.items), counts.slot_weights(p, slots)
        visits = counts.visits_of(slots)
        E += own
        if inferred:  # from all rows so far, because a list without an id is known by what else was shown
            until = pl.concat([until, cells]).group_by("item", "rank").agg(pl.col("n").sum())
            w = counts.slot_weights(p, period_slots(counts, until, period))
        else:
            w += places
        so_far = mean_figures(E, R, w, counts.offsets, order, judged)
        alone = mean_figures(own, R, places, counts.offsets, order, judged & (visits > 0))
        rows.append((label, int(visits.sum()), *so_far, *alone))
    names = ("from", "impressions", "unfairness", "floor", "alone_unfairness", "alone_floor")
    return pl.DataFrame(rows, schema=names, orient="row")


def period_slots(counts: LogCounts, cells: pl.DataFrame, period: int) -> Slots:
    """Return the places of the lists of a period, in which each item was at each rank as often as `cells` says."""
    assert counts.timed is not None
    if counts.timed.lists is not None:
        return slots_of_lists(counts.timed.lists.filter(period=period), counts.patterns)
    item, rank, shown = arrays(cells, "item", "rank", "n")
    return inferred_slots(item, rank, shown, counts.item_query, counts.queries)


def mean_figures(
    E: FloatArray, R: FloatArray, w: FloatArray, offsets: IntArray, order: IntArray, chosen: np.ndarray
) -> tuple[float, float]:
    """Return the mean unfairness and the mean floor of some queries; nan without any."""
    if not chosen.any():
        return float("nan"), float("nan")
    unfair, lowest = unfairness_and_floor(E, R, w, offsets, order)
    return float(unfair[chosen].mean()), float(lowest[chosen].mean())
