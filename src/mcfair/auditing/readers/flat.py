"""Flat tables: one row for each shown item, as CSV, TSV, Parquet or JSON lines, in one file or in several."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ..log import ClickLog, find_columns, missing

__all__ = ["read_flat"]

INFERRED = (
    "No column identifies impressions, so lists are inferred: as few as the rows allow, without gaps if possible. "
    "Repeated ranks cannot be found."
)
TIME_ALONE = "A time alone does not identify a list; if it does in this log, say so with --column impression={}."


def read_flat(table: pl.LazyFrame, columns: Mapping[str, str], name: str) -> ClickLog:
    """Read a flat table.

    Parameters
    ----------
    table
        One row for each shown item.
    columns
        Columns by role, where they do not have their usual names.
    name
        What messages call the log.

    Returns
    -------
    ClickLog

    Raises
    ------
    DataError
        If a column is missing.
    """
    found = find_columns(table.collect_schema().names(), columns, name, required=("query", "item", "rank"))
    rows = table.select(**{role: pl.col(column) for role, column in found.items()})
    notes = [] if {"impression", "session"} & found.keys() else [INFERRED]
    if notes and "time" in found:
        notes.append(TIME_ALONE.format(found["time"]))
    lacking = "" if "clicked" in found else missing("clicked", table.collect_schema().names())
    return ClickLog(name=name, format="flat", rows=rows, notes=tuple(notes), lacking=lacking)
