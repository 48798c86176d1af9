"""Counting on a Dask cluster: the same functions, mapped over parts of a log and over parts of its impressions."""

from __future__ import annotations

import dataclasses
from operator import itemgetter
from typing import Any

import polars as pl

from ..data.frames import first_line
from ..errors import DataError, SettingError
from ..experiments.execute import connect_cluster, version
from .counts import Periods, Tables, checked_survey, count_buckets, encoded, periods_of, survey_of, used
from .log import ClickLog

__all__ = ["count_on_cluster"]


def count_on_cluster(
    log: ClickLog, first_rank: int | None, missing_click: str, address: str
) -> tuple[pl.DataFrame, list[Tables]]:
    """Count a log on the workers of a Dask cluster; the numbers are those of a count here.

    Each worker reads parts of the log, files or some millions of rows of one. The rows of an impression may be in
    several parts, so they are divided by impression before they are counted.

    Parameters
    ----------
    log
        The log: a table in files that all workers can read under the same path.
    first_rank, missing_click
        As for `count_log`.
    address
        Address of the scheduler, such as tcp://HOST:8786.

    Returns
    -------
    DataFrame, list of Tables
        The survey of the rows, and their counts.

    Raises
    ------
    DataError
        If the log is no such table, cannot be read, or holds no usable row.
    SettingError
        If there is no such cluster, its workers have other versions, or it loses its work.
    """
    if not log.parts:
        raise DataError(f"{log.name}: a cluster reads flat tables and Open Bandit data in files; got {log.format}")
    parts = [dataclasses.replace(log, rows=each, parts=(), candidates=None) for each in log.parts]
    size, wanted = len(parts), versions()
    with connect_cluster(address) as client:
        read = [client.submit(read_part, each, first_rank, missing_click, size, wanted, pure=False) for each in parts]
        surveys = client.gather([client.submit(itemgetter(0), each, pure=False) for each in read])
        survey = checked_survey(surveys, log, first_rank)
        counted = []
        for place in range(1, size + 1):
            rows = [client.submit(itemgetter(place), each, pure=False) for each in read]
            counted.append(client.submit(count_part, rows, parts[0], periods_of(survey), wanted, pure=False))
        return survey, [table for tables in client.gather(counted) for table in tables]


def versions() -> str:
    """Return the versions of mcfair, Python and Polars: with others, hashes may differ."""
    return f"{version()} Polars {pl.__version__}"


def check_version(expected: str) -> None:
    """Raise an error on a worker with other versions, which may have joined later."""
    if versions() != expected:
        raise SettingError("a worker has another version of mcfair, Python or Polars; install the same ones there")


def read_part(log: ClickLog, first_rank: int | None, missing_click: str, size: int, wanted: str) -> list[Any]:
    """Read a part of a log on a worker; return its survey and its rows, divided by impression."""
    check_version(wanted)
    try:
        rows = encoded(log, first_rank, missing_click).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{log.name}: damaged, cut short or not {log.format}: {first_line(error)}") from None
    good = used(rows)
    return [survey_of(rows), *(good.filter(pl.col("list") % size == place) for place in range(size))]


def count_part(rows: list[pl.DataFrame], log: ClickLog, periods: Periods | None, wanted: str) -> list[Tables]:
    """Count the rows of some impressions on a worker."""
    check_version(wanted)
    return count_buckets(rows, log, periods)
