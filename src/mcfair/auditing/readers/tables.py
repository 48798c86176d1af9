"""Logs that are one table: a row for each shown item, a row for each list, and Open Bandit data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import polars as pl

from ...data.frames import listed, missing
from ...errors import DataError
from ..log import ClickLog, find_columns

# --- a row for each shown item ---------------------------------------------------------------------------------------

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


# --- a row for each list ---------------------------------------------------------------------------------------------

OF_ITEMS = ("group", "relevance", "grade", "propensity")
"""Roles of other columns that may hold lists as long as that of the items."""


def read_lists(table: pl.LazyFrame, columns: Mapping[str, str], name: str) -> ClickLog:
    """Read one impression per row: `query`, `items` and `clicks`.

    Clicks are either marks, one for each item, or the ids of the items that were clicked. Other columns that hold lists
    as long as `items` (group, relevance, grade, propensity) belong to the items.

    Raises
    ------
    DataError
        If a column is missing or has another type.
    """
    schema = table.collect_schema()
    own = {"items": columns.get("item", "items"), "clicks": columns.get("clicked", "clicks")}
    for column in own.values():
        if not isinstance(schema.get(column), pl.List) and not (column == "clicks" and column not in schema):
            raise DataError(f"{name}: expected a column {column!r} of lists, got {listed(schema.names())}")
    names = [each for each in schema.names() if each not in own.values()]
    given = {role: each for role, each in columns.items() if role not in ("item", "clicked")}
    found = find_columns(names, given, name, required=("query",))
    roles: dict[str, pl.Expr] = {
        role: pl.col(found[role]) for role in ("query", "impression", "session", "time") if role in found
    }
    if "impression" not in roles:
        roles["impression"] = pl.col("row number")
    lists = {role: pl.col(found[role]) for role in OF_ITEMS if isinstance(schema.get(found.get(role, "")), pl.List)}
    items, clicks = pl.col(own["items"]), pl.col(own["clicks"])
    filled = (items.list.len() > 0).fill_null(False)
    table = table.with_row_index("row number")
    rows, counts = table.filter(filled), {}
    if own["clicks"] in schema:
        rows = rows.with_columns(clicks.fill_null([]))
        if are_marks(rows, items, clicks, schema[own["clicks"]].inner):  # type: ignore[attr-defined]  # a list has one
            lists["clicked"] = clicks
        else:
            counts["clicks on items that are not in the list"] = others(clicks, items).list.len().sum()
            roles["hits"] = clicks.cast(pl.List(schema[own["items"]].inner))  # type: ignore[attr-defined]
    fits = reduce(lambda a, b: a & b, [each.list.len() == items.list.len() for each in lists.values()], pl.lit(True))
    if lists:
        counts["impressions whose columns differ in length"] = (~fits).sum()
    size, full = table.select(pl.len(), filled.sum()).collect(engine="streaming").row(0)
    if not full:
        raise DataError(f"{name}: none of {size:,} rows has a list of items")
    quality: dict[str, Any] = {"impressions without a list": size - full}
    if counts:
        quality |= {key: int(value or 0) for key, value in rows.select(**counts).collect().to_dicts()[0].items()}
    rank = pl.int_ranges(1, items.list.len() + 1, dtype=pl.Int32)
    exploded = rows.filter(fits).select(**roles, item=items, rank=rank, **lists).explode("item", "rank", *lists)
    if "hits" in roles:
        exploded = exploded.with_columns(clicked=pl.col("hits").list.contains(pl.col("item"))).drop("hits")
    lacking = "" if own["clicks"] in schema else missing("clicked", schema.names())
    return ClickLog(name=name, format="lists", rows=exploded, quality=quality, lacking=lacking)


def are_marks(rows: pl.LazyFrame, items: pl.Expr, clicks: pl.Expr, kind: pl.DataType) -> bool:
    """Return whether clicks are marks, one for each item, rather than ids of items."""
    if kind == pl.Boolean or not kind.is_numeric():
        return kind == pl.Boolean
    same = (clicks.list.len() == items.list.len()).all()
    binary = clicks.list.eval(pl.element().is_in([0, 1]).all()).list.first().fill_null(True).all()
    foreign = (others(clicks, items).list.len() > 0).any()  # such as 0 among items a and b, in a list of another length
    found = rows.select(same.alias("same"), binary.alias("binary"), foreign.alias("foreign"))
    lengths, marks, strange = found.collect(engine="streaming").row(0)
    return bool(marks and (lengths or strange))


def others(clicks: pl.Expr, items: pl.Expr) -> pl.Expr:
    """Return the clicks of each row that are no ids of its items."""
    return clicks.cast(pl.List(pl.String)).list.set_difference(items.cast(pl.List(pl.String)))


# --- Open Bandit data: a row for each shown item, with its position and propensity, but without queries ---------------

OPEN_BANDIT = {"item": "item_id", "rank": "position", "clicked": "click", "propensity": "propensity_score"}


def is_open_bandit(schema: pl.Schema) -> bool:
    """Return whether a table has the columns of Open Bandit data and no query."""
    return set(OPEN_BANDIT.values()) <= set(schema.names()) and "query" not in schema


def read_open_bandit(table: pl.LazyFrame, columns: Mapping[str, str], name: str) -> ClickLog:
    """Read Open Bandit data as one query, every row an impression of its own."""
    names = table.collect_schema().names()
    chosen = OPEN_BANDIT | ({"time": "timestamp"} if "timestamp" in names else {}) | dict(columns)
    chosen.pop("query", None)
    rows = table.select(query=pl.lit("all"), **{role: pl.col(column) for role, column in chosen.items()})
    note = "Open Bandit data has no queries: all rows are one query, and each is an impression with one item."
    return ClickLog(name=name, format="open-bandit", rows=rows, single=True, notes=(note,))
