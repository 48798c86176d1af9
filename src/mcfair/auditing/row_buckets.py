"""RowBuckets: rows as arrays of numbers, divided into buckets that are counted one by one; on disk if there are many.

All rows of a query are in one bucket, so that a bucket has whole impressions and no count is continued in another one.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .encoding import Integers, grouped_rows

__all__ = ["BUCKETS", "Columns", "RowBuckets"]

BUCKETS = 64

MOST_HELD = 1 << 28
"""Bytes of rows that are held in memory before they are written to disk."""

SLICE = 4_000_000
"""Rows that are moved at a time."""

Columns = dict[str, Any]
"""Arrays of one length by name."""


class RowBuckets:
    """Rows in buckets, in the order in which they were added.

    Parameters
    ----------
    buckets
        How many there are.
    spills
        Whether rows go to a temporary folder when they take much memory.

    Examples
    --------
    >>> with RowBuckets() as rows:
    ...     rows.add(np.array([1, 0, 1]), {"rank": np.array([5, 6, 7])})
    ...     rows.take(1)["rank"].tolist()
    [5, 7]
    """

    def __init__(self, buckets: int = BUCKETS, *, spills: bool = True) -> None:
        self.spills, self.held = spills, 0
        self.sizes = np.zeros(buckets, np.int64)
        self.kinds: dict[str, Any] = {}
        self.parts: list[list[Columns]] = [[] for _ in range(buckets)]
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> RowBuckets:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.folder is not None:
            self.folder.cleanup()

    def add(self, bucket: Integers, columns: Columns) -> None:
        """Add rows with the bucket of each."""
        self.kinds = {name: values.dtype for name, values in columns.items()}
        order, starts = grouped_rows(bucket, self.sizes.size)
        ordered = {name: values[order] for name, values in columns.items()}
        for each, (low, high) in enumerate(pairwise(starts.tolist())):
            if low < high:
                self.parts[each].append({name: values[low:high] for name, values in ordered.items()})
        self.sizes += np.diff(starts)
        self.held += sum(values.nbytes for values in ordered.values())
        if self.spills and self.held > MOST_HELD:
            self.spill()

    def spill(self) -> None:
        """Append the rows that are held to the files of their buckets, one for each column."""
        self.folder = self.folder or tempfile.TemporaryDirectory(prefix="mcfair-audit-")
        for bucket, parts in enumerate(self.parts):
            for name in self.kinds if parts else ():
                with self.file(bucket, name).open("ab") as stream:
                    for part in parts:
                        part[name].tofile(stream)
            parts.clear()
        self.held = 0

    def take(self, bucket: int) -> Columns:
        """Return the rows of a bucket and let go of them."""
        parts, self.parts[bucket] = self.parts[bucket], []
        found = {}
        for name, kind in self.kinds.items():
            pieces = [part[name] for part in parts]
            if self.folder is not None:
                pieces.insert(0, self.stored(bucket, name))
                self.file(bucket, name).unlink(missing_ok=True)
            found[name] = np.concatenate(pieces) if pieces else np.empty(0, kind)
        return found

    def divided(self, bucket: int, by: str, pieces: int) -> RowBuckets:
        """Move the rows of a large bucket to buckets by a column of hashes, a part of them at a time."""
        found = RowBuckets(pieces)
        if self.folder is not None:
            for begin in range(0, int(self.sizes[bucket]), SLICE):
                chunk = {name: self.stored(bucket, name, begin, SLICE) for name in self.kinds}
                if chunk[by].size:
                    found.add((chunk[by] >> 8) % pieces, chunk)
            for name in self.kinds:
                self.file(bucket, name).unlink(missing_ok=True)
        for part in self.parts[bucket]:
            found.add((part[by] >> 8) % pieces, part)
        self.parts[bucket] = []
        return found

    def stored(self, bucket: int, name: str, begin: int = 0, count: int = -1) -> Integers:
        """Return a column of the rows of a bucket that are on disk, or some of it."""
        path, kind = self.file(bucket, name), self.kinds[name]
        return np.fromfile(path, kind, count, offset=begin * kind.itemsize) if path.exists() else np.empty(0, kind)

    def file(self, bucket: int, name: str) -> Path:
        """Return the file of a column of a bucket."""
        assert self.folder is not None
        return Path(self.folder.name) / f"{bucket}-{name}"
