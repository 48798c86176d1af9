"""Bootstrap intervals: queries are resampled with all their sessions; with few queries, the sessions of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from ..analysis.resampling import FEW_CLUSTERS, cluster_weights, interval
from ..arrays import BoolArray
from ..errors import SettingError
from .counts import LogCounts
from .measures import LogMeasures, Summary, ratio

AT_MOST_1 = {"gini", "jain", "ctr", "ips_ctr", "ndcg", "selection_rate", "impact_ratio"} | {
    "demographic_parity",
    "disparate_treatment",
    "disparate_impact",
}
"""Measures that cannot exceed 1, beside those whose names say so."""

MOST_BYTES = 1 << 30
"""Bytes of the figures of all resamples."""

LEVEL = 0.95
"""Share of logs without differences in which no group is said to be behind."""


def bootstrap(
    figures: LogMeasures, again: Callable[[LogCounts], LogMeasures], resamples: int, seed: int
) -> tuple[Summary, str]:
    """Return the figures of resamples of the log, and what was resampled.

    Parameters
    ----------
    figures
        The figures of the log.
    again
        Computes the figures of other counts.
    resamples
        How many.
    seed
        Seed of the draws.

    Returns
    -------
    Summary
        Arrays whose first axis is that of the resamples.
    str
        "queries" or "sessions".

    Raises
    ------
    SettingError
        If memory should not hold so many.
    """
    size = 8 * sum(np.size(value) for part in figures.summary() for value in part.values())
    if resamples * size > MOST_BYTES:
        raise SettingError(
            f"resamples = {resamples:,} is not allowed: with this log they would take {resamples * size / 1e9:,.0f} "
            f"GB; expected at most {MOST_BYTES // size:,}"
        )
    rng = np.random.default_rng(seed)
    queries = figures.counts.queries
    if queries < FEW_CLUSTERS:
        drawn = [again(resampled_sessions(figures.counts, rng)).summary() for _ in range(resamples)]
        return mapped(lambda *values: np.stack(values), *drawn), "sessions"
    parts = [figures.summary(weights) for weights in cluster_weights(queries, resamples, rng)]
    return mapped(lambda *values: np.concatenate(values), *parts), "queries"


def resampled_sessions(counts: LogCounts, rng: np.random.Generator) -> LogCounts:
    """Draw as many shown items at each rank of each query as the log has, clicked or not, with replacement.

    Ranks are drawn independently: the counts do not tell which items shared a list.
    """
    block = counts.item_query[counts.cell_item] * (counts.ranks + 1) + counts.cell_rank
    order = np.argsort(block, kind="stable")
    shown, clicks = np.zeros_like(counts.shown), np.zeros_like(counts.clicks)
    for cells in np.split(order, np.flatnonzero(np.diff(block[order])) + 1):
        outcomes = np.stack((counts.clicks[cells], counts.shown[cells] - counts.clicks[cells]))
        drawn = rng.multinomial(outcomes.sum(), outcomes.ravel() / outcomes.sum()).reshape(outcomes.shape)
        clicks[cells], shown[cells] = drawn[0], drawn.sum(axis=0)
    scales = {"weight": ratio(shown, counts.shown, 0.0), "weighted_clicks": ratio(clicks, counts.clicks, 0.0)}
    weights = {name: counts.weights[name] * scale for name, scale in scales.items() if counts.weights}
    return dataclasses.replace(counts, shown=shown, clicks=clicks, weights=weights)


def mapped(function: Callable[..., Any], *parts: Summary) -> Summary:
    """Return figures that are computed from the same figures of several summaries."""
    fields = ({name: function(*(each[name] for each in same)) for name in same[0]} for same in zip(*parts, strict=True))
    return Summary(*fields)


def intervals(drawn: Summary | None, found: Summary) -> Summary:
    """Return the 95 % intervals of all figures, low and high along the first axis; nan without resamples."""
    if drawn is None:
        return mapped(lambda known: np.full((2, *np.shape(known)), np.nan), found)
    parts = []
    for part, known in zip(drawn, found, strict=True):
        shares = {each for each in part if each.endswith(("_share", "_corrected")) or each.startswith("awrf_")}
        most = {name: 1.0 if name in AT_MOST_1 | shares else np.inf for name in part}
        parts.append({name: interval(part[name], known[name], least=0.0, most=most[name]) for name in part})
    return Summary(*parts)


def behind(drawn: Summary | None, found: Summary) -> BoolArray:
    """Return which groups get less exposure than their merit is worth, beyond chance, although all were looked at.

    The lowest of many groups is low by chance alone, so what a group lacks, its share of merit less that of exposure,
    is measured in its standard errors and compared with the greatest such value among all groups in 95 % of the
    resamples, less what the log itself has (a max-t test by bootstrap).
    """
    if not found.groups:
        return np.zeros(0, np.bool_)
    lack = found.groups["merit_share"] - found.groups["exposure_share"]
    if drawn is None:
        return np.zeros(lack.size, np.bool_)
    resampled = drawn.groups["merit_share"] - drawn.groups["exposure_share"]
    error = resampled.std(axis=0)
    moved = np.divide(resampled - resampled.mean(axis=0), error, out=np.zeros_like(resampled), where=error > 0)
    bound = np.quantile(moved.max(axis=1), LEVEL)
    return np.asarray((error > 0) & (lack > bound * error))
