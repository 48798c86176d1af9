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

Columns = dict[str, Any]
"""Arrays of one length by name."""


class RowBuckets:
    """Rows in buckets, in the order in which they were added.

    Parameters
    ----------
    spills
        Whether rows go to a temporary folder when they take much memory.

    Examples
    --------
    >>> with RowBuckets() as rows:
    ...     rows.add(np.array([1, 0, 1]), {"rank": np.array([5, 6, 7])})
    ...     rows.take(1)["rank"].tolist()
    [5, 7]
    """

    def __init__(self, *, spills: bool = True) -> None:
        self.spills, self.held = spills, 0
        self.kinds: dict[str, Any] = {}
        self.parts: list[list[Columns]] = [[] for _ in range(BUCKETS)]
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> RowBuckets:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.folder is not None:
            self.folder.cleanup()

    def add(self, bucket: Integers, columns: Columns) -> None:
        """Add rows with the bucket of each."""
        self.kinds = {name: values.dtype for name, values in columns.items()}
        order, starts = grouped_rows(bucket, BUCKETS)
        ordered = {name: values[order] for name, values in columns.items()}
        for each, (low, high) in enumerate(pairwise(starts.tolist())):
            if low < high:
                self.parts[each].append({name: values[low:high] for name, values in ordered.items()})
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
            if self.folder is not None and (path := self.file(bucket, name)).exists():
                pieces.insert(0, np.fromfile(path, kind))
                path.unlink()
            found[name] = np.concatenate(pieces) if pieces else np.empty(0, kind)
        return found

    def file(self, bucket: int, name: str) -> Path:
        """Return the file of a column of a bucket."""
        assert self.folder is not None
        return Path(self.folder.name) / f"{bucket}-{name}"
