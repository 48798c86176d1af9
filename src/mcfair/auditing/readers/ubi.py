"""User Behavior Insights of OpenSearch: a table of queries with the hits they returned, and a table of events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from ...data.frames import listed
from ...errors import DataError
from ..log import ClickLog

__all__ = ["is_ubi", "read_ubi"]

HITS = "query_response_hit_ids"

TABLES = {"ubi_queries": ("query_id", "user_query", HITS), "ubi_events": ("action_name", "query_id")}
"""The two tables, with the fields that they must have."""


def is_ubi(path: Path) -> bool:
    """Return whether a folder holds the two tables."""
    return all(any(path.glob(f"{stem}*")) for stem in TABLES)


def read_ubi(path: Path, scan: Callable[[Path], pl.LazyFrame]) -> ClickLog:
    """Read the tables `ubi_queries` and `ubi_events` of a folder: hits are lists, events named "click" are clicks.

    Raises
    ------
    DataError
        If a table or one of its fields is missing.
    """
    tables, files = [], []
    for stem, fields in TABLES.items():
        found = sorted(path.glob(f"{stem}*"))
        if not found:
            raise DataError(f"{path}: there is no file {stem}, such as {stem}.jsonl")
        tables.append(pl.concat([scan(each) for each in found], how="diagonal_relaxed"))
        files += found
        schema = tables[-1].collect_schema()
        for column in fields:
            if column not in schema:
                raise DataError(f"{path}: {stem} has no field {column}; got {listed(schema.names())}")
    queries, events = tables
    schema = queries.collect_schema()
    if not isinstance(schema[HITS], pl.List):
        raise DataError(f"{path}: {HITS} of ubi_queries has type {schema[HITS]}, expected a list of ids")
    time = {"time": pl.col("timestamp")} if "timestamp" in schema else {}
    hits = pl.col(HITS).cast(pl.List(pl.String))
    filled = queries.filter(pl.col(HITS).list.len() > 0)
    shown = filled.unique("query_id", keep="first", maintain_order=True)
    rows = shown.select(
        impression=pl.col("query_id").cast(pl.String),
        query=pl.col("user_query"),
        **time,
        item=hits,
        rank=pl.int_ranges(1, hits.list.len() + 1, dtype=pl.Int32),
    ).explode("item", "rank")
    clicks, same = click_events(events, path), ["impression", "item"]
    marks = clicks.select(same).unique().with_columns(clicked=pl.lit(True))
    known = rows.select(*same, listed=pl.col("rank")).unique(same)
    counts = (
        queries.select(pl.len()),
        filled.select(pl.len()),
        shown.select(pl.len()),
        clicks.join(known, on=same, how="anti").select(pl.len()),
        clicks.join(known, on=same).filter(pl.col("rank") != pl.col("listed")).select(pl.len()),
    )
    every, full, distinct, lost, moved = (each.item() for each in pl.collect_all(counts))
    return ClickLog(
        name=str(path),
        format="ubi",
        rows=rows.join(marks, on=same, how="left").with_columns(pl.col("clicked").fill_null(False)),
        quality={
            "impressions without a list": every - full,
            "impressions logged twice": full - distinct,
            "clicks without a list": lost,
            "clicks that state another rank than the list": moved,
        },
        notes=('Every hit of a query counts as shown; events named "click" are clicks.',),
        files=tuple(files),
    )


def click_events(events: pl.LazyFrame, path: Path) -> pl.LazyFrame:
    """Return the clicks: impression, item and the rank that the event states; the fields may be nested or dotted."""
    schema = events.collect_schema()
    item = field(schema, ("event_attributes", "object", "object_id"))
    if item is None:
        raise DataError(f"{path}: ubi_events has no field event_attributes.object.object_id")
    rank = field(schema, ("event_attributes", "position", "ordinal"))
    return events.filter(pl.col("action_name") == "click").select(
        impression=pl.col("query_id").cast(pl.String),
        item=item.cast(pl.String),
        rank=(pl.lit(None) if rank is None else rank).cast(pl.Int32, strict=False),
    )


def field(schema: pl.Schema, names: tuple[str, ...]) -> pl.Expr | None:
    """Return a nested field, or the column with the dotted name; None if there is neither."""
    if ".".join(names) in schema:
        return pl.col(".".join(names))
    kind: Any = schema.get(names[0])
    value = pl.col(names[0])
    for name in names[1:]:
        inner = {each.name: each.dtype for each in kind.fields} if isinstance(kind, pl.Struct) else {}
        if name not in inner:
            return None
        kind, value = inner[name], value.struct.field(name)
    return value
