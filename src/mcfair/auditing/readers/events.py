"""Logs of lists and of events that refer to them: User Behavior Insights of OpenSearch, and events of Metarank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ...data.frames import UNREADABLE, check_json_lines, first_line, listed
from ...errors import DataError
from ..log import ROLES, ClickLog

SAME = ["impression", "item"]


def clicked_rows(lists: pl.LazyFrame, clicks: pl.LazyFrame) -> tuple[pl.LazyFrame, pl.LazyFrame]:
    """Return a row for each item of each list, with its rank and whether it was clicked, and clicks without a list."""
    ranks = pl.int_ranges(1, pl.col("item").list.len() + 1, dtype=pl.Int32)
    rows = lists.with_columns(rank=ranks).explode("item", "rank")
    marks = clicks.select(SAME).unique().with_columns(clicked=pl.lit(True))
    marked = rows.join(marks, on=SAME, how="left", maintain_order="left")
    return marked.with_columns(pl.col("clicked").fill_null(False)), clicks.join(rows, on=SAME, how="anti")


def sizes(*tables: pl.LazyFrame) -> list[int]:
    """Return the numbers of rows of several tables."""
    return [each.item() for each in pl.collect_all([each.select(pl.len()) for each in tables])]


# --- User Behavior Insights: a table of queries with the hits they returned, and a table of events --------------------

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
    item, impression = pl.col(HITS).cast(pl.List(pl.String)), pl.col("query_id").cast(pl.String)
    filled = queries.filter(pl.col(HITS).list.len() > 0)
    shown = filled.unique("query_id", keep="first", maintain_order=True)
    clicks = click_events(events, path)
    rows, lost = clicked_rows(
        shown.select(impression=impression, query=pl.col("user_query"), **time, item=item), clicks
    )
    known = rows.select(*SAME, listed=pl.col("rank")).unique(SAME)
    moved = clicks.join(known, on=SAME).filter(pl.col("rank") != pl.col("listed"))
    every, full, distinct, without, elsewhere = sizes(queries, filled, shown, lost, moved)
    return ClickLog(
        name=str(path),
        format="ubi",
        rows=rows,
        quality={
            "impressions without a list": every - full,
            "impressions logged twice": full - distinct,
            "clicks without a list": without,
            "clicks that state another rank than the list": elsewhere,
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


# --- Metarank: rankings with their items, and interactions that refer to them ----------------------------------------

EVENTS = ("ranking", "interaction", "item", "user")

EVENT = dict.fromkeys(("event", "id", "timestamp", "ranking", "item", "type"), pl.String) | {
    "items": pl.List(pl.Struct({"id": pl.String})),
    "fields": pl.List(pl.Struct({"name": pl.String, "value": pl.String})),
}
"""The fields of an event that are read."""


def is_metarank(line: bytes) -> bool:
    """Return whether a line is an event of Metarank."""
    try:
        return bool(msgspec.json.decode(line)["event"] in EVENTS)
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError):
        return False


def named(names: tuple[str, ...]) -> pl.Expr:
    """Return the value of the first field of an event with one of these names."""
    value = pl.element().struct.field("value").filter(pl.element().struct.field("name").is_in(names))
    return pl.col("fields").list.eval(value).list.drop_nulls().list.first()


def read_metarank(path: Path) -> ClickLog:
    """Read events as JSON lines: rankings are lists, interactions of the type "click" are clicks.

    Without any such interaction, those of all types are clicks. The query is the field `query` of a ranking; without
    one all rankings are one query. The group of an item is a field of its last `item` event.

    Raises
    ------
    DataError
        If a line is no JSON object or a field of an event has another type, or there is no ranking.
    """
    check_json_lines(path)
    events = pl.scan_ndjson(path, schema=EVENT)
    query, items = named(("query",)).replace("", None).fill_null("all"), pl.col("items").list
    rankings = events.filter(event="ranking").select(
        impression="id", query=query, time="timestamp", item=items.eval(pl.element().struct.field("id"))
    )
    filled = rankings.filter(pl.col("item").list.len() > 0)
    hits = events.filter(event="interaction").select("type", "item", impression="ranking")
    clicks, groups = hits.filter(type="click"), events.filter(event="item").select("item", group=named(ROLES["group"]))
    groups = groups.drop_nulls("group").unique("item", keep="last", maintain_order=True)
    note = 'interactions of the type "click" are clicks'
    try:
        every, full, hit, grouped = sizes(rankings, filled, clicks, groups)
        if not full:
            raise DataError(f"{path}: there is no ranking with items among the events")
        if not hit:
            clicks, note = hits, "interactions of all types are clicks, because none has the type click"
        rows, lost = clicked_rows(filled, clicks)
        if grouped:
            rows = rows.join(groups, on="item", how="left", maintain_order="left")
        quality = {"impressions without a list": every - full, "clicks without a list": sizes(lost)[0]}
    except UNREADABLE as error:
        raise DataError(f"{path}: not events of Metarank: {first_line(error)}") from None
    notes = (f"Rankings are lists, {note}.",)
    return ClickLog(name=str(path), format="metarank", rows=rows, quality=quality, notes=notes, files=(path,))
