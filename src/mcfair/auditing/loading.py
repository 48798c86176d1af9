"""Loading a log: open it, add the table of items, and count it here or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from ..errors import DataError, SettingError
from .catalogue import with_catalogue
from .click_log import ClickLog
from .counting import count_log
from .log_counts import LogCounts
from .opening import as_lazy, open_log, scan

__all__ = ["ReadingOptions", "load_log"]


class ReadingOptions(TypedDict, total=False):
    """Options of how a log is read, as `load_log` takes them."""

    format: str | None
    columns: Mapping[str, str] | None
    first_rank: int | None
    cluster: str | None


def load_log(
    source: Any,
    items: Any = None,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    first_rank: int | None = None,
    cluster: str | None = None,
) -> tuple[ClickLog, LogCounts]:
    """Open a log and count it.

    Parameters
    ----------
    source, format, columns
        The log, as for `open_log`.
    items
        A file or table with groups, merit or candidates.
    first_rank
        The number of the first rank, 0 or 1; by default 1, and a log with a rank of 0 is refused.
    cluster
        Address of a Dask scheduler whose workers read and count the log.

    Returns
    -------
    ClickLog
        The log as it was understood.
    LogCounts
        Its counts.

    Raises
    ------
    DataError
        If the log cannot be read or used.
    SettingError
        If an option is not allowed.
    """
    if first_rank not in (None, 0, 1):
        raise SettingError(f"first_rank = {first_rank} is not allowed: expected 0 or 1")
    log = open_log(source, format=format, columns=columns)
    if items is not None:
        named = isinstance(items, str | Path)
        if named and not Path(items).is_file():
            raise DataError(f"{items}: there is no such file")
        table = scan(Path(items)) if named else as_lazy(items)
        log = with_catalogue(log, table, str(items) if named else "the table of items")
    if cluster is None:
        return log, count_log(log, first_rank)
    from .cluster_counting import count_on_cluster

    return log, count_on_cluster(log, first_rank, cluster)
