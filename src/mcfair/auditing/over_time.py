"""Unfairness against its floor over time: at the end of each period since the beginning, and in each period alone."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..arrays import FloatArray, IntArray
from ..metrics.exposure import unfairness_per_query
from . import item_measures as items
from .log_counts import rank_weights, sums_at
from .log_measures import ROUNDING, LogMeasures

__all__ = ["unfairness_over_time"]


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
    timed, p, R = figures.counts.timed, figures.assumed.p, figures.assumed.R
    if timed is None:
        return None
    counts = figures.counts
    order = items.descending(R, counts.offsets)
    judged = figures.judged > 0
    E, w, rows = np.zeros(counts.items), np.zeros(counts.items), []
    nothing = (float("nan"), float("nan"))
    so_far = mean_figures(E, R, w, counts.offsets, order, judged)
    for period, label in enumerate(timed.periods.labels()):
        query, place, rank, count = timed.slots(period)
        if not query.size:  # one wrong time may add thousands of periods
            rows.append((label, 0, *so_far, *nothing))
            continue
        item, at_rank, shown = timed.items(period)
        own = sums_at(item, shown * rank_weights(p, at_rank), counts.items)
        places = sums_at(counts.offsets[query] + place, count * rank_weights(p, rank), counts.items)
        visits = sums_at(query[place == 0], count[place == 0], counts.queries)
        E += own
        w += places
        so_far = mean_figures(E, R, w, counts.offsets, order, judged)
        alone = mean_figures(own, R, places, counts.offsets, order, judged & (visits > 0))
        rows.append((label, int(visits.sum()), *so_far, *alone))
    names = ("from", "impressions", "unfairness", "floor", "alone_unfairness", "alone_floor")
    return pl.DataFrame(rows, schema=names, orient="row")


def mean_figures(
    E: FloatArray, R: FloatArray, w: FloatArray, offsets: IntArray, order: IntArray, chosen: np.ndarray
) -> tuple[float, float]:
    """Return the mean unfairness and the mean floor of some queries; nan without any."""
    if not chosen.any():
        return float("nan"), float("nan")
    unfair, lowest = unfairness_per_query(E, R, offsets), items.floor(R, w, offsets, order)
    lowest[lowest < ROUNDING * unfair] = 0.0
    return float(unfair[chosen].mean()), float(lowest[chosen].mean())
