"""TimedCounts: the counts of a log by period, and the places of its lists."""

from __future__ import annotations

import dataclasses

import numpy as np

from ..arrays import IntArray
from .cells import Cells, joined, tally
from .periods import Periods

__all__ = ["Slots", "TimedCounts", "slots_of_lists", "slots_of_rows"]

Slots = tuple[IntArray, IntArray, IntArray, IntArray]
"""The query, the place and the rank of slots, and how many there were."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TimedCounts:
    """Counts by period. They may be as many as the rows of the log, so they are kept as they were counted.

    Attributes
    ----------
    periods : Periods
        The periods.
    shown : tuple of Cells
        Impressions by period, pair and rank from 0; one for each part of the rows.
    lists : tuple of Cells
        Impressions by period, query and pattern; without any if the log does not identify them.
    patterns : list of int arrays
        The distinct sets of ranks that lists filled.
    item_at, query_at : int arrays
        The place of each pair and of each query in `LogCounts`.
    pair_query : int array
        The query of each pair.
    """

    periods: Periods
    shown: tuple[Cells, ...]
    lists: tuple[Cells, ...]
    patterns: list[IntArray]
    item_at: IntArray
    query_at: IntArray
    pair_query: IntArray

    def items(self, period: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return items and ranks of a period, and how often each item was at each rank."""
        cells = joined([part.during(period) for part in self.shown])
        return self.item_at[cells.at[0]], cells.at[1].astype(np.int64) + 1, cells.count.astype(np.int64)

    def slots(self, period: int) -> Slots:
        """Return the places of the lists of a period."""
        if self.patterns:
            return slots_of_lists(joined([part.during(period) for part in self.lists]), self.patterns, self.query_at)
        return slots_of_rows(joined([part.during(period) for part in self.shown]), self.query_at[self.pair_query])


def slots_of_lists(lists: Cells, patterns: list[IntArray], query_at: IntArray) -> Slots:
    """Return how often each place of a query's lists was at each rank, from lists by query and pattern."""
    pattern = lists.at[-1]
    size = np.array([each.size for each in patterns])
    begin = np.cumsum(size) - size
    repeats = size[pattern]
    entry = np.repeat(np.arange(pattern.size), repeats)
    place = np.arange(entry.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    rank = np.concatenate(patterns)[begin[pattern[entry]] + place]
    return query_at[lists.at[0][entry]], place, rank, lists.count[entry].astype(np.int64)


def slots_of_rows(shown: Cells, query_at: IntArray) -> Slots:
    """Return the same where every row is a list of its own; `query_at` has the query of each pair."""
    at = (query_at[shown.at[0]], shown.at[1])
    size = tuple(int(each.max(initial=0)) + 1 for each in at)
    cells = tally(at, size, shown.count)
    query, rank = (each.astype(np.int64) for each in cells.at)
    return query, np.zeros_like(rank), rank + 1, cells.sums[0].astype(np.int64)
