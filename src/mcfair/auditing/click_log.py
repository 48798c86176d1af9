"""ClickLog: the rows of shown items of any format, as a table that is read when it is counted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl

__all__ = ["ClickLog"]


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ClickLog:
    """A log in the common form: one row for each shown item.

    Attributes
    ----------
    name, format
        What messages call it, and the format that it was read as.
    rows
        Columns query, item, rank and clicked, and of impression, session, time, group, relevance, grade and propensity
        those that the log has. Nothing is read before the rows are counted.
    parts
        The same rows as consecutive tables, one for each file or for some millions of rows of one; empty if the log is
        not a table in files.
    single
        Whether each row is an impression of its own.
    candidates
        Candidates of queries that need not have been shown: columns query, item and perhaps group and relevance.
    quality
        What the reader found, by name: clicks without a list, for example.
    notes
        Sentences on how the format was understood.
    files
        The files that were read.
    """

    name: str
    format: str
    rows: pl.LazyFrame
    parts: tuple[pl.LazyFrame, ...] = ()
    single: bool = False
    candidates: pl.DataFrame | None = None
    quality: dict[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
