"""From the counts of a log to what a service imports: queries and their items, in batches of bounded size."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..auditing.counts import LogCounts, count_log
from ..auditing.log import ClickLog
from ..auditing.readers import is_store, open_log
from ..errors import DataError
from .wire import MAX_BODY, MAX_CELLS, MAX_ID, MAX_ITEMS, MAX_QUERY, ImportedItem, ImportedQuery

TABLES = ("flat", "lists", "open-bandit")
"""Formats of which each file is a log of its own."""

UNGROUPED = "unknown"
"""The group of items without one, as an audit names it."""

BATCH_QUERIES, BATCH_BYTES = 100, MAX_BODY // 4
"""Maximum number of queries of a request, and about how large it may be."""

CELL_BYTES, ITEM_BYTES, QUERY_BYTES = 30, 40, 60
"""Sizes in JSON, without texts, at most."""


def open_sources(source: str, reading: Mapping[str, Any]) -> list[ClickLog]:
    """Open a log; a folder of several tables is several logs, each of which counts once.

    Raises
    ------
    DataError
        If the log cannot be read, or is the store of a service.
    """
    format = reading.get("format")
    if format == "store" or (format is None and is_store(source)):
        raise DataError("a store knows queries by their hashes only, and is no log to import: use mcfair migrate")
    how: Any = {name: reading.get(name) for name in ("columns", "separator")}
    opened = open_log(source, format=format, **how)
    if opened.format in TABLES and len(opened.files) > 1:
        return [open_log(str(each), format=opened.format, **how) for each in opened.files]
    return [opened]


def checksum(files: tuple[Path, ...]) -> str:
    """Return a checksum of the content of files, whatever their names are."""
    total = hashlib.blake2b(digest_size=16)
    for path in files:
        with path.open("rb") as stream:
            total.update(hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=32)).digest())
    return total.hexdigest()


def read_source(log: ClickLog, reading: Mapping[str, Any]) -> tuple[str, Histories]:
    """Count a log; return the checksum of its files, by which an import is recognised, and its histories.

    Raises
    ------
    DataError
        If the log cannot be used, or its files changed while they were read: the counts would be of other content.
    """
    before = checksum(log.files)
    histories = Histories(count_log(log, reading.get("first_rank"), reading.get("missing_click", "exclude")))
    if checksum(log.files) != before:
        raise DataError(f"{log.name}: changed while it was read; import closed files")
    return before, histories


class Histories:
    """The history of every query of a log, and what is left out.

    Parameters
    ----------
    counts
        The counts of the log.

    Attributes
    ----------
    excluded
        Rows that are left out, by reason: those of the log, and those whose texts a service does not accept.
    queries, items, impressions, shown, clicks
        Numbers of what is imported: lists, and items in them.
    """

    def __init__(self, counts: LogCounts) -> None:
        self.counts = counts
        self.excluded = dict(counts.excluded)
        self.long_items = too_long(counts.item_ids.to_list(), MAX_ID)
        item, rank = counts.cell_item, counts.cell_rank
        order = np.lexsort((rank, item))
        starts = np.flatnonzero(np.diff(item[order] * (rank.max() + 1) + rank[order], prepend=-1))
        self.item, self.rank = item[order][starts], rank[order][starts]
        self.shown = np.add.reduceat(counts.shown[order], starts)
        self.clicks = np.add.reduceat(counts.clicks[order], starts)
        self.ends = np.searchsorted(self.item, counts.offsets)
        shown_of = np.bincount(self.item, self.shown, minlength=counts.items)
        long_queries = too_long(counts.query_ids.to_list(), MAX_QUERY)
        long_items = self.long_items & ~long_queries[counts.item_query]
        for reason, rows in (
            (f"query longer than {MAX_QUERY:,} bytes", shown_of[long_queries[counts.item_query]].sum()),
            (f"item longer than {MAX_ID} bytes", shown_of[long_items].sum()),
        ):
            if rows:
                self.excluded[reason] = int(rows)
        used = (shown_of > 0) & ~self.long_items & ~long_queries[counts.item_query]
        kept = np.bincount(counts.item_query[used], minlength=counts.queries) > 0
        self.kept = np.flatnonzero(kept).tolist()
        cells = used[self.item]
        self.queries, self.items, self.impressions = len(self.kept), int(used.sum()), int(counts.visits[kept].sum())
        self.shown_total, self.clicks_total = int(self.shown[cells].sum()), int(self.clicks[cells].sum())

    def batches(self) -> Iterator[list[ImportedQuery]]:
        """Yield the queries in batches."""
        batch: list[ImportedQuery] = []
        size = 0
        for query in self.parts():
            bytes_needed = size_of(query)
            if batch and (len(batch) == BATCH_QUERIES or size + bytes_needed > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(query)
            size += bytes_needed
        if batch:
            yield batch

    def parts(self) -> Iterator[ImportedQuery]:
        """Yield each query, in several parts if it has many items; the first part has the visits."""
        names, groups = self.counts.query_ids, self.group_labels()
        for q in self.kept:
            items = [ImportedItem(id=name, group=groups[i], counts=cells) for i, name, cells in self.items_of(q)]
            ranks = max(rank for item in items for rank, _, _ in item.counts)
            fitting = BATCH_BYTES // (4 * MAX_ID + ITEM_BYTES + CELL_BYTES * ranks)
            most = min(MAX_ITEMS, MAX_CELLS // ranks, fitting)
            for part, start in enumerate(range(0, len(items), most)):
                visits = 0 if part else int(self.counts.visits[q])
                yield ImportedQuery(query=names[q], visits=visits, items=items[start : start + most], part=part)

    def items_of(self, q: int) -> Iterator[tuple[int, str, list[list[int]]]]:
        """Yield the items of a query that were shown: place, id, and rank, impressions and clicks of each cell."""
        first, last = self.ends[q], self.ends[q + 1]
        item = self.item[first:last]
        columns = (self.rank[first:last].tolist(), self.shown[first:last].tolist(), self.clicks[first:last].tolist())
        cells = [list(each) for each in zip(*columns, strict=True)]
        starts = np.flatnonzero(np.diff(item, prepend=-1)).tolist()
        for start, end in zip(starts, [*starts[1:], len(cells)], strict=True):
            i = int(item[start])
            if not self.long_items[i]:
                yield i, self.counts.item_ids[i], cells[start:end]

    def group_labels(self) -> list[str | None]:
        """Return the group of each item; None for none, and for a name that is too long."""
        counts = self.counts
        if not counts.group_names:
            return [None] * counts.items
        names = [None if name == UNGROUPED or len(name.encode()) > MAX_ID else name for name in counts.group_names]
        return [names[code] for code in counts.groups.tolist()]


def too_long(texts: list[str], most: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which texts have more bytes than are allowed."""
    return np.array([len(text) > most or len(text.encode()) > most for text in texts], np.bool_)


def size_of(query: ImportedQuery) -> int:
    """Return about how many bytes a query takes in JSON, at most, unless its texts need much escaping."""
    texts = len(query.query.encode()) + sum(len(each.id.encode()) + len(each.group or "") for each in query.items)
    return QUERY_BYTES + 2 * texts + sum(ITEM_BYTES + CELL_BYTES * len(each.counts) for each in query.items)
