"""Bootstrap intervals: queries are resampled with all their sessions; with few queries, the sessions of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from ..analysis.resampling import FEW_CLUSTERS, cluster_weights, interval
from ..arrays import FloatArray, IntArray
from .log_counts import LogCounts
from .log_measures import LogMeasures, Summary

__all__ = ["bootstrap", "intervals", "resampled_sessions"]

AT_MOST_1 = {"gini", "jain", "ctr", "ips_ctr", "ndcg", "selection_rate", "impact_ratio"} | {
    "demographic_parity",
    "disparate_treatment",
    "disparate_impact",
}
"""Measures that cannot exceed 1, beside those whose names say so."""


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
    """
    rng = np.random.default_rng(seed)
    queries = figures.counts.queries
    if queries < FEW_CLUSTERS:
        drawn = [again(resampled_sessions(figures.counts, rng)).summary() for _ in range(resamples)]
        return joined([expanded(each) for each in drawn]), "sessions"
    parts = [figures.summary(weights) for weights in cluster_weights(queries, resamples, rng)]
    return joined(parts), "queries"


def resampled_sessions(counts: LogCounts, rng: np.random.Generator) -> LogCounts:
    """Draw as many shown items at each rank of each query as the log has, clicked or not, with replacement.

    Ranks are drawn independently: the counts do not tell which items shared a list.
    """
    block = counts.item_query[counts.cell_item] * (counts.ranks + 1) + counts.cell_rank
    order = np.argsort(block, kind="stable")
    bounds = np.append(np.flatnonzero(np.diff(block[order], prepend=-1)), order.size)
    shown, clicks = np.zeros_like(counts.shown), np.zeros_like(counts.clicks)
    for low, high in pairwise(bounds.tolist()):
        cells = order[low:high]
        outcomes = np.concatenate((counts.clicks[cells], counts.shown[cells] - counts.clicks[cells]))
        if not (total := int(outcomes.sum())):
            continue
        drawn = rng.multinomial(total, outcomes / total)
        clicks[cells], shown[cells] = drawn[: cells.size], drawn[: cells.size] + drawn[cells.size :]
    return dataclasses.replace(
        counts,
        shown=shown,
        clicks=clicks,
        weight=scaled(counts.weight, shown, counts.shown),
        weighted_clicks=scaled(counts.weighted_clicks, clicks, counts.clicks),
    )


def scaled(values: FloatArray | None, now: IntArray, before: IntArray) -> FloatArray | None:
    """Scale sums over counts to other counts."""
    if values is None:
        return None
    return values * np.divide(now, before, out=np.zeros(values.size), where=before > 0)


def expanded(one: Summary) -> Summary:
    """Return figures with an axis for resamples."""
    return Summary(*({name: np.asarray(value)[None] for name, value in part.items()} for part in one))


def joined(parts: list[Summary]) -> Summary:
    """Concatenate the resamples of several parts."""
    return Summary(
        *(
            {name: np.concatenate([getattr(part, field)[name] for part in parts]) for name in getattr(parts[0], field)}
            for field in Summary._fields
        )
    )


def intervals(drawn: Summary, found: Summary) -> Summary:
    """Return the 95 % intervals of all figures, low and high along the first axis."""
    return Summary(
        *(
            {
                name: interval(part[name], known[name], least=0.0, most=1.0 if is_share(name) else np.inf)
                for name in part
            }
            for part, known in zip(drawn, found, strict=True)
        )
    )


def is_share(name: str) -> bool:
    """Return whether a figure cannot exceed 1."""
    return name in AT_MOST_1 or name.endswith(("_share", "_corrected")) or name.startswith("awrf_")
