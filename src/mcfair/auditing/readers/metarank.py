"""Metarank events: rankings with their items, and interactions that refer to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from ...data.letor import whole_lines
from ...errors import DataError
from ..log import ROLES, ClickLog

__all__ = ["is_metarank", "read_metarank"]

EVENTS = ("ranking", "interaction", "item", "user")

BATCH = 200_000
"""Events that are held before they become a table."""


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

    def row(self) -> dict[str, Any]:
        """Return what matters of the event, as a row of a table."""
        return {
            "event": self.event,
            "impression": self.id,
            "query": self.named(("query",)) or "all",
            "time": None if self.timestamp is None else str(self.timestamp),
            "items": [each.id for each in self.items],
            "of": self.ranking,
            "item": self.item,
            "type": self.type,
            "group": self.named(ROLES["group"]),
        }


SCHEMA = dict.fromkeys(("event", "impression", "query", "time", "of", "item", "type", "group"), pl.String)


def is_metarank(line: bytes) -> bool:
    """Return whether a line is an event of Metarank."""
    try:
        return msgspec.json.decode(line, type=MetarankEvent).event in EVENTS
    except (msgspec.MsgspecError, RecursionError):
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
    decoded, tables = events(path), []
    while batch := [each.row() for each in islice(decoded, BATCH)]:
        tables.append(pl.DataFrame(batch, schema=SCHEMA | {"items": pl.List(pl.String)}))
    found = pl.concat(tables) if tables else pl.DataFrame(schema=SCHEMA | {"items": pl.List(pl.String)})
    rankings = found.filter(event="ranking").select("impression", "query", "time", item="items")
    filled = rankings.filter(pl.col("item").list.len() > 0)
    if filled.is_empty():
        raise DataError(f"{path}: there is no ranking with items among the events")
    ranks = pl.int_ranges(1, pl.col("item").list.len() + 1, dtype=pl.Int32)
    rows = filled.with_columns(rank=ranks).explode("item", "rank")
    hits = found.filter(event="interaction").select("type", "item", impression="of")
    chosen = hits.filter(type="click")
    note = 'interactions of the type "click" are clicks'
    if chosen.is_empty():
        chosen, note = hits, "interactions of all types are clicks, because none has the type click"
    same = ["impression", "item"]
    lost = chosen.join(rows, on=same, how="anti").height
    marks = chosen.select(same).unique().with_columns(clicked=pl.lit(True))
    rows = rows.join(marks, on=same, how="left", maintain_order="left").with_columns(pl.col("clicked").fill_null(False))
    groups = found.filter(pl.col("event") == "item", pl.col("group").is_not_null())
    if groups.height:
        last = groups.select("item", "group").unique("item", keep="last")
        rows = rows.join(last, on="item", how="left", maintain_order="left")
    quality = {"impressions without a list": rankings.height - filled.height, "clicks without a list": lost}
    notes = (f"Rankings are lists, {note}.",)
    return ClickLog(name=str(path), format="metarank", rows=rows.lazy(), quality=quality, notes=notes, files=(path,))


def events(path: Path) -> Iterator[MetarankEvent]:
    """Yield the events of a file."""
    decode = msgspec.json.Decoder(MetarankEvent).decode
    lines = chain.from_iterable(each.removesuffix(b"\n").split(b"\n") for each in whole_lines(path))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not an event of Metarank: {error}") from None
