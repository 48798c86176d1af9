"""LogCounts: all that is kept of a log, as arrays by query, item and rank."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..arrays import FloatArray, IntArray
from .timed_counts import TimedCounts

__all__ = ["LogCounts", "rank_weights", "sums_at"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogCounts:
    """Counts of a log. Queries and the items of a query are in the order of their ids.

    Attributes
    ----------
    query_ids, item_ids
        Names of the queries, (queries,), and of the items of all queries, (items,).
    offsets : (queries + 1,) int array
        Where each query's items begin.
    visits : (queries,) int array
        Impressions of each query.
    cell_item, cell_rank, cell_pattern : (cells,) int arrays
        Item (position in `item_ids`), rank from 1, and the set of ranks of the lists, of each count that follows.
    shown, clicks : (cells,) int arrays
        Impressions and clicks.
    slot_query, slot_place, slot_rank, slot_count : (slots,) int arrays
        How often a place of a query's lists was at a rank; place 0 is the first rank that a list filled.
    patterns : list of int arrays
        The distinct sets of ranks that lists filled; empty if impressions cannot be told apart.
    groups : (items,) int array
        Position of each item's group in `group_names`; empty if the log names no groups.
    relevance : (items,) array or None
        Merit that the log states.
    weight, weighted_clicks, squared_weight : (cells,) arrays or None
        Impressions and clicks divided by the logged propensities, and impressions divided by their squares.
    timed : TimedCounts or None
        Counts by period, if the log has times.
    rows, excluded, quality, period
        Rows read, rows left out by reason, what else was found, and the first and last time.
    """

    query_ids: pl.Series
    item_ids: pl.Series
    offsets: IntArray
    visits: IntArray
    cell_item: IntArray
    cell_rank: IntArray
    cell_pattern: IntArray
    shown: IntArray
    clicks: IntArray
    slot_query: IntArray
    slot_place: IntArray
    slot_rank: IntArray
    slot_count: IntArray
    patterns: list[IntArray]
    groups: IntArray
    group_names: tuple[str, ...]
    relevance: FloatArray | None
    weight: FloatArray | None
    weighted_clicks: FloatArray | None
    squared_weight: FloatArray | None
    timed: TimedCounts | None
    rows: int
    excluded: dict[str, int]
    quality: dict[str, Any]
    period: tuple[str, str] | None

    @property
    def queries(self) -> int:
        """Number of queries."""
        return self.visits.size

    @property
    def items(self) -> int:
        """Number of pairs of a query and an item."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        """Number of items of each query."""
        return np.diff(self.offsets)

    @property
    def item_query(self) -> IntArray:
        """The query of each item."""
        return np.repeat(np.arange(self.queries), self.sizes)

    @property
    def ranks(self) -> int:
        """The last rank."""
        return int(self.cell_rank.max(initial=1))

    @property
    def C(self) -> IntArray:
        """Clicks of each item."""
        return sums_at(self.cell_item, self.clicks, self.items).astype(np.int64)

    @cached_property
    def rank_tables(self) -> dict[str, Any]:
        """Sums of each query at each rank, (queries, ranks) sparse arrays: shown, clicks and, perhaps, weights."""
        place, cell = np.unique(self.item_query[self.cell_item] * self.ranks + self.cell_rank - 1, return_inverse=True)
        tables = {}
        for name in ("shown", "clicks", "weight", "weighted_clicks"):
            if (values := getattr(self, name)) is not None:
                at = (place // self.ranks, place % self.ranks)
                tables[name] = sp.csr_array((sums_at(cell, values, place.size), at), shape=(self.queries, self.ranks))
        return tables

    def exposure(self, p: FloatArray) -> FloatArray:
        """Return the exposure of each item (Eq. 7), `Σ_j F_j p_j` summed in rank order; p is 0 beyond its end."""
        return sums_at(self.cell_item, self.shown * rank_weights(p, self.cell_rank), self.items)

    def slot_weights(self, p: FloatArray) -> FloatArray:
        """Return the exposure that each query's lists handed out at each of their places, as an item array."""
        at = self.offsets[self.slot_query] + self.slot_place
        return sums_at(at, self.slot_count * rank_weights(p, self.slot_rank), self.items)


def sums_at(at: IntArray, values: FloatArray | IntArray, size: int) -> FloatArray:
    """Return the sum of the values at each position from 0 to size.

    Examples
    --------
    >>> sums_at(np.array([0, 2, 0]), np.array([1.0, 2.0, 3.0]), 3).tolist()
    [4.0, 0.0, 2.0]
    """
    return np.asarray(np.bincount(at, weights=values, minlength=size), dtype=np.float64)


def rank_weights(p: FloatArray, rank: IntArray) -> FloatArray:
    """Return the weight of each rank, 0 beyond the end of p."""
    return np.append(p, 0.0)[np.minimum(rank - 1, p.size)]
