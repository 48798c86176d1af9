"""User Behavior Insights of OpenSearch: a table of queries with the hits they returned, and a table of events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from ...data.frames import listed
from ...errors import DataError
from ..click_log import ClickLog

__all__ = ["is_ubi", "read_ubi"]

HITS = "query_response_hit_ids"


def is_ubi(path: Path) -> bool:
    """Return whether a folder holds the two tables."""
    return all(any(path.glob(f"{stem}*")) for stem in ("ubi_queries", "ubi_events"))


def read_ubi(path: Path, scan: Callable[[Path], pl.LazyFrame]) -> ClickLog:
    """Read the tables `ubi_queries` and `ubi_events` of a folder: hits are lists, events named "click" are clicks.

    Raises
    ------
    DataError
        If a table or one of its fields is missing.
    """
    tables, files = {}, []
    for stem in ("ubi_queries", "ubi_events"):
        found = sorted(path.glob(f"{stem}*"))
        if not found:
            raise DataError(f"{path}: there is no file {stem}, such as {stem}.jsonl")
        tables[stem] = pl.concat([scan(each) for each in found], how="diagonal_relaxed")
        files += found
    queries = tables["ubi_queries"]
    schema = queries.collect_schema()
    for column in ("query_id", "user_query", HITS):
        if column not in schema:
            raise DataError(f"{path}: ubi_queries has no field {column}; got {listed(schema.names())}")
    if not isinstance(schema[HITS], pl.List):
        raise DataError(f"{path}: {HITS} of ubi_queries has type {schema[HITS]}, expected a list of ids")
    clicks = click_events(tables["ubi_events"], path)
    time = {"time": pl.col("timestamp")} if "timestamp" in schema else {}
    shown = queries.filter(pl.col(HITS).list.len() > 0).unique("query_id", keep="first", maintain_order=True)
    hits = pl.col(HITS).cast(pl.List(pl.String))
    rows = shown.select(
        impression=pl.col("query_id").cast(pl.String),
        query=pl.col("user_query"),
        **time,
        item=hits,
        rank=pl.int_ranges(1, hits.list.len() + 1, dtype=pl.Int32),
    ).explode("item", "rank")
    hit = clicks.select("impression", "item").unique().with_columns(clicked=pl.lit(True))
    rows = rows.join(hit, on=["impression", "item"], how="left").with_columns(pl.col("clicked").fill_null(False))
    return ClickLog(
        name=str(path),
        format="ubi",
        rows=rows,
        quality=survey(queries, rows, clicks),
        notes=('Every hit of a query counts as shown; events named "click" are clicks.',),
        files=tuple(files),
    )


def click_events(events: pl.LazyFrame, path: Path) -> pl.LazyFrame:
    """Return the clicks: impression, item and the rank that the event states; the fields may be nested or dotted."""
    schema = events.collect_schema()
    for column in ("action_name", "query_id"):
        if column not in schema:
            raise DataError(f"{path}: ubi_events has no field {column}; got {listed(schema.names())}")
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


def survey(queries: pl.LazyFrame, rows: pl.LazyFrame, clicks: pl.LazyFrame) -> dict[str, int]:
    """Count impressions without hits or with a repeated id, and clicks that belong to no list or state another rank."""
    every, filled, distinct = (
        queries.select(
            pl.len().alias("all"),
            (pl.col(HITS).list.len() > 0).fill_null(False).sum().alias("filled"),
            pl.col("query_id").filter(pl.col(HITS).list.len() > 0).n_unique().alias("distinct"),
        )
        .collect(engine="streaming")
        .row(0)
    )
    known = rows.select("impression", "item", listed=pl.col("rank")).unique(["impression", "item"])
    found = clicks.join(known, on=["impression", "item"], how="left").select(
        pl.col("listed").is_null().sum().alias("lost"), (pl.col("rank") != pl.col("listed")).sum().alias("moved")
    )
    lost, moved = found.collect(engine="streaming").row(0)
    return {
        "impressions without a list": int(every - filled),
        "impressions logged twice": int(filled - distinct),
        "clicks without a list": int(lost),
        "clicks that state another rank than the list": int(moved or 0),
    }
