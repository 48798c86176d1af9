"""Folding: sums over a stream of rows in bounded memory.

A group-by over the whole stream would hold every row of a log without order until its end. Here batches are summed,
and the sums of several batches are summed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from ..data.frames import first_line
from ..errors import DataError
from .click_log import ClickLog

__all__ = ["RunningSums", "batches", "collect"]

BATCH = 2_000_000
"""Rows that are summed at a time."""

MOST_SUMS = 4_000_000
"""Sums of batches that are held before they are summed again."""

SLICE = 500_000

UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError)


def collect(table: pl.LazyFrame, log: ClickLog) -> pl.DataFrame:
    """Compute a table as a stream; a damaged file is one line."""
    try:
        return table.collect(engine="streaming")
    except UNREADABLE as error:
        raise damaged(log, error) from None


def batches(rows: pl.LazyFrame, log: ClickLog) -> Iterator[pl.DataFrame]:
    """Yield the rows in batches."""
    held: list[pl.DataFrame] = []
    try:
        for part in rows.collect_batches(chunk_size=SLICE, maintain_order=False, engine="streaming"):
            held.append(part)
            if sum(each.height for each in held) >= BATCH:
                yield pl.concat(held)
                held = []
    except UNREADABLE as error:
        raise damaged(log, error) from None
    if held:
        yield pl.concat(held)


def damaged(log: ClickLog, error: BaseException) -> DataError:
    """Describe a log that cannot be read to its end."""
    return DataError(f"{log.name}: damaged, cut short or not {log.format}: {first_line(error)}")


class RunningSums:
    """Sums by keys. Columns are summed unless `how` names another way, which must apply to its own results as well.

    Parameters
    ----------
    keys
        Columns that identify a sum.
    how
        "min", "max" or "first" by column.

    Examples
    --------
    >>> sums = RunningSums(["item"], {"latest": "max"})
    >>> for n, latest in ((1, 5), (2, 4)):
    ...     sums.add(pl.DataFrame({"item": ["a"], "n": [n], "latest": [latest]}))
    >>> sums.table().rows()
    [('a', 3, 5)]
    """

    def __init__(self, keys: Sequence[str], how: dict[str, str] | None = None) -> None:
        self.keys, self.how = list(keys), how or {}
        self.parts: list[pl.DataFrame] = []
        self.rows = 0

    def add(self, rows: pl.DataFrame) -> None:
        """Add a batch."""
        part = self.summed(rows)
        self.parts.append(part)
        self.rows += part.height
        if self.rows >= MOST_SUMS:
            self.parts, self.rows = [self.summed(pl.concat(self.parts))], 0

    def table(self) -> pl.DataFrame:
        """Return the sums of all batches."""
        return self.summed(pl.concat(self.parts)) if len(self.parts) > 1 else self.parts[0]

    def summed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the sums of some rows."""
        others = [name for name in rows.columns if name not in self.keys]
        if not others:
            return rows.unique(self.keys)
        return rows.group_by(self.keys).agg(getattr(pl.col(name), self.how.get(name, "sum"))() for name in others)
