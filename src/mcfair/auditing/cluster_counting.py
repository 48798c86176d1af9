"""Counting on a Dask cluster: workers read parts of a log and count buckets of its rows, to the same numbers."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from ..errors import DataError, SettingError
from ..experiments.execute import Cluster
from .assembling import assemble
from .bucket_counts import BucketCounts, count_bucket
from .click_log import ClickLog
from .encoding import Integers
from .log_counts import LogCounts
from .numbering import Numbering, merged_names, number_names
from .periods import Periods
from .reading import Reading, Survey, read_rows
from .row_buckets import BUCKETS, Columns, RowBuckets

__all__ = ["count_on_cluster"]


def count_on_cluster(log: ClickLog, first_rank: int | None, address: str) -> LogCounts:
    """Count a log on the workers of a Dask cluster; the numbers are those of `count_log`.

    Each worker reads parts of the log, files or some millions of rows of one, and divides their rows into buckets. Each
    bucket of all parts is then counted by one worker, because the rows of an impression may be in several files.

    Parameters
    ----------
    log
        The log: a table in files that all workers can read under the same path.
    first_rank
        The number of the first rank, 0 or 1; by default 1.
    address
        Address of the scheduler, such as tcp://HOST:8786.

    Returns
    -------
    LogCounts

    Raises
    ------
    DataError
        If the log is no such table, cannot be read, or holds no usable row.
    SettingError
        If there is no such cluster, or its workers have other versions.
    """
    if not log.parts:
        raise DataError(f"{log.name}: a cluster reads flat tables and Open Bandit data in files; got {log.format}")
    with Cluster.connect(address) as cluster:
        client = cluster.client
        check_polars(client)
        settings = (log.name, log.format, log.single, first_rank)
        read = [client.submit(read_part, part.serialize(), *settings, pure=False) for part in log.parts]
        readings: list[Reading] = client.gather([client.submit(itemgetter(0), each, pure=False) for each in read])
        survey = Survey()
        for each in readings:
            survey.add(each.survey)
        survey.check(log.name, first_rank)
        names, places = merged_names([each.names for each in readings])
        numbers, periods = number_names(names, readings[0].identified), survey.periods()
        shared = client.scatter((places, numbers, survey.top, periods), broadcast=True, hash=False)
        counted = []
        for bucket in range(BUCKETS):
            rows = [client.submit(rows_of, each, bucket, pure=False) for each in read]
            counted.append(client.submit(count_parts, rows, bucket, shared, pure=False))
        return assemble(log, survey, names, numbers, client.gather(counted), periods)


def check_polars(client: Any) -> None:
    """Raise an error if workers have another version of Polars, whose hashes may differ."""
    found = client.run(polars_version)
    wrong = sorted({version for version in found.values() if version != pl.__version__})
    if wrong:
        raise SettingError(f"workers have Polars {', '.join(wrong)}, this machine {pl.__version__}; install the same")


def polars_version() -> str:
    """Return the version of Polars."""
    return pl.__version__


def read_part(
    rows: bytes, name: str, format: str, single: bool, first_rank: int | None
) -> tuple[Reading, list[Columns]]:
    """Read a part of a log on a worker."""
    from io import BytesIO

    log = ClickLog(name=name, format=format, rows=pl.LazyFrame.deserialize(BytesIO(rows)), single=single)
    with RowBuckets(spills=False) as buckets:
        reading = read_rows(log, first_rank, buckets)
        return reading, [buckets.take(bucket) for bucket in range(BUCKETS)]


def rows_of(part: tuple[Reading, list[Columns]], bucket: int) -> Columns:
    """Return the rows of a bucket, on the worker that read the part."""
    return part[1][bucket]


def count_parts(
    parts: list[Columns], bucket: int, shared: tuple[list[Integers], Numbering, int, Periods | None]
) -> BucketCounts:
    """Count a bucket of all parts on a worker."""
    places, numbers, top, periods = shared
    filled = [{**part, "variant": place[part["variant"]]} for part, place in zip(parts, places, strict=True) if part]
    rows = {name: np.concatenate([part[name] for part in filled]) for name in filled[0]}
    return count_bucket(rows, bucket, numbers, top, periods)
