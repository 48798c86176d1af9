"""The function that fits examination probabilities to a log."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from ..analysis.propensities import BLOCKS, FittedExamination, RankCounts, fit_propensities, run_counts
from ..analysis.resampling import FEW_CLUSTERS
from ..simulation.trace import Trace
from .loading import ReadingOptions, load_log
from .log_counts import LogCounts, sums_at

__all__ = ["fit_examination", "rank_counts"]


def fit_examination(
    log: Any,
    method: str | None = None,
    *,
    ranks: int | None = None,
    resamples: int = 200,
    seed: int = 0,
    **reading: Unpack[ReadingOptions],
) -> FittedExamination:
    """Fit the probability that users examine each rank, relative to rank 1, to a click log.

    Parameters
    ----------
    log
        The log, as for `audit`; or a run, as `simulate(record=True)` returns it.
    method
        ctr: click rates by rank, for random lists or logged propensities; harvesting: the same items at several ranks;
        em: expectation maximisation. By default ctr if propensities were logged, else harvesting.
    ranks
        The last rank to fit; by default the last one of the log.
    resamples, seed
        For the 95 % intervals.
    **reading
        How the log is read, as for `audit`: format, columns, first_rank and cluster.

    Returns
    -------
    FittedExamination

    Raises
    ------
    DataError
        If the log cannot be read, or its clicks do not determine the probabilities.
    SettingError
        If the method is unknown.

    Examples
    --------
    >>> import polars as pl
    >>> rows = {"query": ["q"] * 4, "item": ["a", "a", "b", "b"], "rank": [1, 2] * 2, "clicked": [1, 1, 1, 0]}
    >>> fit_examination(pl.DataFrame(rows), "ctr").p.tolist()
    [1.0, 0.5]
    """
    is_run = isinstance(log, Trace)
    counts = run_counts(log, ranks) if is_run else rank_counts(load_log(log, **reading)[1], ranks)
    return fit_propensities(counts, method, resamples=resamples, seed=seed)


def rank_counts(counts: LogCounts, ranks: int | None = None) -> RankCounts:
    """Add up the counts of a log by item and rank, for the first ranks.

    Items are resampled with their queries or, if there are few queries, on their own.
    """
    k = min(ranks or counts.ranks, counts.ranks)
    inside = (counts.cell_rank <= k) & (counts.shown > 0)
    code, place = np.unique(counts.cell_item[inside] * k + counts.cell_rank[inside] - 1, return_inverse=True)
    n, c, weight, weighted_clicks = (
        None if values is None else sums_at(place, values[inside], code.size)
        for values in (counts.shown, counts.clicks, counts.weight, counts.weighted_clicks)
    )
    assert n is not None
    assert c is not None
    source = np.arange(counts.items) if counts.queries < FEW_CLUSTERS else counts.item_query
    blocks = min(BLOCKS, int(source.max()) + 1)
    return RankCounts(
        item=code // k,
        rank=code % k,
        n=n,
        c=c,
        weight=weight,
        weighted_clicks=weighted_clicks,
        block=(source % blocks)[code // k],
        blocks=blocks,
        ranks=k,
    )
