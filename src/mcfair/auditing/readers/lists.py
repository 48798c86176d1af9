"""Lists: one row for each impression, with the items that were shown, in order, and the clicks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from ...data.frames import listed
from ...errors import DataError
from ..click_log import ClickLog
from ..columns import ROLES

__all__ = ["read_lists"]


def read_lists(table: pl.LazyFrame, columns: Mapping[str, str], name: str, files: tuple[Path, ...] = ()) -> ClickLog:
    """Read one impression per row: `query`, `items` and `clicks`.

    Clicks are either marks, one for each item, or the ids of the items that were clicked. Other columns that hold lists
    as long as `items` (group, relevance, grade, propensity) belong to the items.

    Raises
    ------
    DataError
        If a column is missing or has another type.
    """
    schema = table.collect_schema()
    names = {"query": role_column("query", schema, columns, name)}
    items = columns.get("item", "items")
    clicks = columns.get("clicked", "clicks")
    for column, kind in ((items, schema.get(items)), (clicks, schema.get(clicks))):
        if not isinstance(kind, pl.List):
            raise DataError(f"{name}: expected a column {column!r} of lists, got {listed(schema.names())}")
    for role in ("impression", "session", "time"):
        if role in columns or role in schema:
            names[role] = columns.get(role, role)
    table = table.with_row_index("row number")
    given = {role: pl.col(column) for role, column in names.items()}
    given.setdefault("impression", pl.col("row number"))
    parallel = {
        role: column
        for role in ("group", "relevance", "grade", "propensity")
        if isinstance(schema.get(column := columns.get(role, role)), pl.List)
    }
    missing = pl.col(items).is_null()
    rows = table.filter(~missing, pl.col(items).list.len() > 0).with_columns(**{clicks: pl.col(clicks).fill_null([])})
    marks = are_marks(rows, items, clicks, schema)
    lengths = [pl.col(clicks).list.len() == pl.col(items).list.len()] if marks else []
    lengths += [pl.col(column).list.len() == pl.col(items).list.len() for column in parallel.values()]
    quality = survey_lists(table, rows, items, clicks, marks, lengths, name)
    rows = rows.filter(*lengths) if lengths else rows
    marked = pl.col(clicks) if marks else None
    exploded = rows.select(
        **given,
        item=pl.col(items),
        rank=pl.int_ranges(1, pl.col(items).list.len() + 1, dtype=pl.Int32),
        **({"clicked": marked} if marked is not None else {}),
        **{role: pl.col(column) for role, column in parallel.items()},
        **({} if marks else {"hits": pl.col(clicks)}),
    ).explode("item", "rank", *(["clicked"] if marks else []), *parallel)
    if not marks:
        kind = schema[items].inner  # type: ignore[attr-defined]  # a list has one
        hits = pl.col("hits").cast(pl.List(kind))
        exploded = exploded.with_columns(clicked=hits.list.contains(pl.col("item"))).drop("hits")
    return ClickLog(name=name, format="lists", rows=exploded, quality=quality, files=files)


def role_column(role: str, schema: pl.Schema, columns: Mapping[str, str], name: str) -> str:
    """Return the column of a role that every list must have."""
    for each in (columns.get(role), *ROLES[role]):
        if each is not None and each in schema:
            return each
    raise DataError(
        f"{name}: no column for the {role}; name it with --column {role}=COLUMN; got {listed(schema.names())}"
    )


def are_marks(rows: pl.LazyFrame, items: str, clicks: str, schema: pl.Schema) -> bool:
    """Return whether clicks are marks, one for each item, rather than ids of items."""
    kind = schema[clicks].inner  # type: ignore[attr-defined]
    if kind == pl.Boolean:
        return True
    if not kind.is_numeric():
        return False
    same = (pl.col(clicks).list.len() == pl.col(items).list.len()).all()
    binary = pl.col(clicks).list.eval(pl.element().is_in([0, 1]).all()).list.first().fill_null(True).all()
    foreign = (others(clicks, items).list.len() > 0).any()  # such as 0 among items a and b, in a list of another length
    found = rows.select(same.alias("same"), binary.alias("binary"), foreign.alias("foreign"))
    lengths, marks, strange = found.collect(engine="streaming").row(0)
    return bool(marks and (lengths or strange))


def others(clicks: str, items: str) -> pl.Expr:
    """Return the clicks of each row that are no ids of its items."""
    return pl.col(clicks).cast(pl.List(pl.String)).list.set_difference(pl.col(items).cast(pl.List(pl.String)))


def survey_lists(
    table: pl.LazyFrame,
    rows: pl.LazyFrame,
    items: str,
    clicks: str,
    marks: bool,
    lengths: list[pl.Expr],
    name: str,
) -> dict[str, int]:
    """Count impressions without a list, clicks on items that are not in it, and columns of another length."""
    every = table.select(pl.len()).collect(engine="streaming").item()
    kept = rows.select(pl.len()).collect(engine="streaming").item()
    if not kept:
        raise DataError(f"{name}: none of {every:,} rows has a list of items")
    found = {"impressions without a list": every - kept}
    if lengths:
        good = pl.all_horizontal(*lengths)
        found["impressions whose columns differ in length"] = int(
            rows.select((~good).sum()).collect(engine="streaming").item()
        )
    if not marks:
        found["clicks on items that are not in the list"] = int(
            rows.select(others(clicks, items).list.len().sum()).collect(engine="streaming").item() or 0
        )
    return found
