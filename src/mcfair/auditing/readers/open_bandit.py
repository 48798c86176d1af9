"""Open Bandit data: one shown item in each row, with its position and the propensity of the logging policy."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ..log import ClickLog

__all__ = ["is_open_bandit", "read_open_bandit"]

COLUMNS = {"item": "item_id", "rank": "position", "clicked": "click", "propensity": "propensity_score"}


def is_open_bandit(schema: pl.Schema) -> bool:
    """Return whether a table has the columns of Open Bandit data and no query."""
    return set(COLUMNS.values()) <= set(schema.names()) and "query" not in schema


def read_open_bandit(table: pl.LazyFrame, columns: Mapping[str, str], name: str) -> ClickLog:
    """Read Open Bandit data as one query, every row an impression of its own."""
    names = table.collect_schema().names()
    chosen = COLUMNS | ({"time": "timestamp"} if "timestamp" in names else {}) | dict(columns)
    chosen.pop("query", None)
    rows = table.select(query=pl.lit("all"), **{role: pl.col(column) for role, column in chosen.items()})
    note = "Open Bandit data has no queries: all rows are one query, and each is an impression with one item."
    return ClickLog(name=name, format="open-bandit", rows=rows, single=True, notes=(note,))
