"""Metarank events: rankings with their items, and interactions that refer to them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ...errors import DataError
from ..click_log import ClickLog
from ..columns import ROLES

__all__ = ["is_metarank", "read_metarank"]

EVENTS = ("ranking", "interaction", "item", "user")

BATCH = 200_000
"""Rows of Python objects that are held before they become a table."""


class NamedValue(msgspec.Struct):
    """A field of an event."""

    name: str
    value: Any = None


class RankedItem(msgspec.Struct):
    """An item of a ranking."""

    id: str
    fields: list[NamedValue] = []


class MetarankEvent(msgspec.Struct):
    """An event of any type, with the fields that matter here."""

    event: str
    id: str | None = None
    timestamp: str | int | None = None
    items: list[RankedItem] = []
    ranking: str | None = None
    item: str | None = None
    type: str | None = None
    fields: list[NamedValue] = []

    def named(self, names: tuple[str, ...]) -> str | None:
        """Return the value of the first field with one of these names, as text."""
        return next((str(each.value) for each in self.fields if each.name in names and each.value is not None), None)


def is_metarank(line: bytes) -> bool:
    """Return whether a line is an event of Metarank."""
    try:
        return msgspec.json.decode(line, type=MetarankEvent).event in EVENTS
    except msgspec.MsgspecError:
        return False


def read_metarank(path: Path) -> ClickLog:
    """Read events as JSON lines: rankings are lists, interactions of the type "click" are clicks.

    Without any such interaction, those of all types are clicks. The query is the field `query` of a ranking; without
    one all rankings are one query. The group of an item is a field of its last `item` event.

    Raises
    ------
    DataError
        If a line is not an event, or there is no ranking.
    """
    shown: list[tuple[str | None, str, str | int | None, str, int]] = []
    clicks: list[tuple[str | None, str | None, str | None]] = []
    groups: dict[str, str] = {}
    tables, empty = [], 0
    for event in events(path):
        if event.event == "ranking":
            query = event.named(("query",)) or "all"
            empty += not event.items
            shown += [(event.id, query, event.timestamp, each.id, rank) for rank, each in enumerate(event.items, 1)]
            if len(shown) > BATCH:
                tables.append(ranked(shown))
                shown = []
        elif event.event == "interaction":
            clicks.append((event.ranking, event.item, event.type))
        elif event.event == "item" and event.item is not None and (group := event.named(ROLES["group"])):
            groups[event.item] = group
    tables.append(ranked(shown))
    rows = pl.concat(tables)
    if rows.is_empty():
        raise DataError(f"{path}: there is no ranking with items among the events")
    hits = pl.DataFrame(clicks, schema={"impression": pl.String, "item": pl.String, "type": pl.String}, orient="row")
    chosen = hits.filter(pl.col("type") == "click")
    note = 'interactions of the type "click" are clicks'
    if chosen.is_empty():
        chosen, note = hits, "interactions of all types are clicks, because none has the type click"
    known = rows.select("impression", "item").unique()
    lost = chosen.join(known, on=["impression", "item"], how="anti").height
    marks = chosen.select("impression", "item").unique().with_columns(clicked=pl.lit(True))
    rows = rows.join(marks, on=["impression", "item"], how="left").with_columns(pl.col("clicked").fill_null(False))
    if groups:
        labels = pl.DataFrame({"item": list(groups), "group": list(groups.values())})
        rows = rows.join(labels, on="item", how="left")
    quality = {"impressions without a list": empty, "clicks without a list": lost}
    notes = (f"Rankings are lists, {note}.",)
    return ClickLog(name=str(path), format="metarank", rows=rows.lazy(), quality=quality, notes=notes, files=(path,))


def events(path: Path) -> Iterator[MetarankEvent]:
    """Yield the events of a file."""
    decode = msgspec.json.Decoder(MetarankEvent).decode
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield decode(line)
            except msgspec.MsgspecError as error:
                raise DataError(f"{path}, line {number}: not an event of Metarank: {error}") from None


def ranked(rows: list[tuple[str | None, str, str | int | None, str, int]]) -> pl.DataFrame:
    """Return shown items as a table."""
    impression, query, time, item, rank = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    return pl.DataFrame(
        {
            "impression": pl.Series(impression, dtype=pl.String),
            "query": pl.Series(query, dtype=pl.String),
            "time": pl.Series([None if each is None else str(each) for each in time], dtype=pl.String),
            "item": pl.Series(item, dtype=pl.String),
            "rank": pl.Series(rank, dtype=pl.Int32),
        }
    )
