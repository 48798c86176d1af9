"""Counting: from the rows of a log, which may exceed memory, to counts of (query, item, rank).

The log is read once, as a stream. Its rows become numbers in buckets, and the buckets are counted one by one, so that
the cost is linear in the rows. Everything after that works on the counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl

from .assembling import assemble
from .bucket_counts import BucketCounts, count_bucket
from .click_log import ClickLog
from .log_counts import LogCounts
from .numbering import number_names
from .reading import read_rows
from .row_buckets import BUCKETS, RowBuckets

__all__ = ["count_log"]

LARGE_BUCKET = 5_000_000
"""Rows above which a bucket is counted in pieces."""


def count_log(log: ClickLog, first_rank: int | None = None) -> LogCounts:
    """Count how often each item was shown and clicked at each rank, and how many ranks impressions filled.

    Parameters
    ----------
    log
        The log; it is read here.
    first_rank
        The number of the first rank, 0 or 1; by default 1, and a log with a rank of 0 is refused.

    Returns
    -------
    LogCounts

    Raises
    ------
    DataError
        If the log cannot be read, holds no usable row, or has a rank of 0 while `first_rank` is not given.
    """
    with RowBuckets() as rows:
        read = read_rows(log, first_rank, rows)
        survey = read.survey
        survey.check(log.name, first_rank)
        numbers, periods = number_names(read.names, read.identified), survey.periods()

        def count(bucket: int) -> list[BucketCounts]:
            pieces = -(-int(rows.sizes[bucket]) // LARGE_BUCKET)
            if pieces <= 1 or not read.identified:
                return [count_bucket(rows.take(bucket), bucket, numbers, survey.top, periods)]
            with rows.divided(bucket, "list", pieces) as inner:  # whole impressions of a query that is most of the log
                return [count_bucket(inner.take(i), bucket, numbers, survey.top, periods) for i in range(pieces)]

        with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
            parts = [part for found in pool.map(count, range(BUCKETS)) for part in found]
    return assemble(log, survey, read.names, numbers, parts, periods)
