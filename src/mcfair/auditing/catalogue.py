"""The catalogue of items beside a log: groups, merit and candidates that were never shown."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl

from ..data.frames import first_line, listed
from ..errors import DataError
from .click_log import ClickLog
from .columns import ROLES, find_columns

__all__ = ["with_catalogue"]

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


def with_catalogue(log: ClickLog, table: pl.LazyFrame, name: str) -> ClickLog:
    """Add a table of items to a log.

    Parameters
    ----------
    log
        The log.
    table
        Column item, and of group, relevance and grade at least one. With a column query, its rows are the candidates of
        the queries, which may have merit; without, they hold for every query.
    name
        What messages call the table.

    Returns
    -------
    ClickLog

    Raises
    ------
    DataError
        If a column is missing or a value is not allowed.
    """
    from .cleaning import number, text

    try:
        schema = table.collect_schema()
    except UNREADABLE as error:
        raise DataError(f"{name}: cannot be read: {first_line(error)}") from None
    roles = ("query", "item", "group", "relevance", "grade")
    words = {word for role in roles for word in ROLES[role]}
    usual = [each for each in schema.names() if each.strip().lower() in words]
    found = find_columns(usual, {}, name, required=())
    if "item" not in found or not found.keys() & {"group", "relevance", "grade", "query"}:
        raise DataError(
            f"{name}: expected columns item and group, relevance or grade, and perhaps query; got "
            f"{listed(schema.names())}"
        )
    merit = [role for role in ("relevance", "grade") if role in found][:1]
    if merit and "query" not in found:
        raise DataError(f"{name}: {merit[0]} belongs to an item of a query; there is no column query")
    columns: dict[str, Any] = {}
    renamed = table.select(**{role: pl.col(column) for role, column in found.items()})
    for role in found:
        kind = schema[found[role]]
        columns[role] = number(role, kind) if role in merit else text(role, kind)
    columns = {role: each for role, each in columns.items() if role in ("query", "item", "group") or role in merit}
    try:
        known = renamed.select(**columns).collect()
    except UNREADABLE as error:
        raise DataError(f"{name}: cannot be read: {first_line(error)}") from None
    for role in ("query", "item", *merit):
        if role in known.columns and known[role].null_count():
            raise DataError(f"{name}: {known[role].null_count():,} rows have no valid {role}")
    for role, high in (("relevance", 1), ("grade", 1000)):
        if role in known.columns and not known[role].is_between(0, high).all():
            raise DataError(f"{name}: column {found[role]!r}: expected numbers from 0 to {high}")
    if "grade" in known.columns and (known["grade"] != known["grade"].floor()).any():
        raise DataError(f"{name}: column {found['grade']!r}: expected whole numbers")
    if "query" in known.columns:
        twice = known.height - known.select("query", "item").n_unique()
        if twice:
            raise DataError(f"{name}: {twice:,} items occur more than once in a query")
    stated = ", ".join(role for role in known.columns if role != "item")
    return dataclasses.replace(log, candidates=known, notes=(*log.notes, f"{name} states {stated} of items."))
