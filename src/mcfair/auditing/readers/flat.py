"""Flat tables: one row for each shown item, as CSV, TSV, Parquet or JSON lines, in one file or in several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ..click_log import ClickLog
from ..columns import find_columns

__all__ = ["read_flat"]


def read_flat(table: pl.LazyFrame, columns: Mapping[str, str], name: str, files: tuple[Path, ...] = ()) -> ClickLog:
    """Read a flat table.

    Parameters
    ----------
    table
        One row for each shown item.
    columns
        Columns by role, where they do not have their usual names.
    name
        What messages call the log.
    files
        The files that the table is read from.

    Returns
    -------
    ClickLog

    Raises
    ------
    DataError
        If a column is missing.
    """
    found = find_columns(table.collect_schema().names(), columns, name)
    rows = table.select(**{role: pl.col(column) for role, column in found.items()})
    notes = (
        ()
        if {"impression", "session", "time"} & found.keys()
        else (
            "No column identifies impressions, so lists are inferred: as few as the rows allow, without gaps if "
            "possible. Repeated ranks cannot be found.",
        )
    )
    return ClickLog(name=name, format="flat", rows=rows, notes=notes, files=files)
