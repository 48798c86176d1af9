"""LogCounts: all that is kept of a log, as arrays by query, item and rank."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from ..arrays import FloatArray, IntArray
from ..data.grades import relevance

__all__ = ["UNKNOWN", "LogCounts", "query_key", "rank_weights", "sums_at"]

UNKNOWN = "unknown"
"""The group of items without one: a class of its own."""


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
    weight, weighted_clicks : (cells,) arrays or None
        Impressions and clicks divided by the logged propensities.
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

    def exposure(self, p: FloatArray) -> FloatArray:
        """Return the exposure of each item (Eq. 7), `Σ_j F_j p_j` summed in rank order; p is 0 beyond its end."""
        return sums_at(self.cell_item, self.shown * rank_weights(p, self.cell_rank), self.items)

    def slot_weights(self, p: FloatArray) -> FloatArray:
        """Return the exposure that each query's lists handed out at each of their places, as an item array."""
        at = self.offsets[self.slot_query] + self.slot_place
        return sums_at(at, self.slot_count * rank_weights(p, self.slot_rank), self.items)

    @classmethod
    def build(
        cls,
        cells: pl.DataFrame,
        names: pl.DataFrame,
        groups: pl.DataFrame | None,
        candidates: pl.DataFrame | None,
        *,
        patterns: list[IntArray],
        slots: pl.DataFrame,
        visits: pl.DataFrame,
        rows: int,
        excluded: dict[str, int],
        quality: dict[str, Any],
        period: tuple[str, str] | None,
    ) -> LogCounts:
        """Build the arrays from the tables that were counted.

        `cells` has the sums of each pair of a query and an item at each rank, `names` the query and the item of a pair,
        `groups` how often a pair had a group; `slots` and `visits` are by the hash of the query.
        """
        known = None
        if candidates is not None and "query" in candidates.columns:
            known = candidates.join(names.select("query").unique(), on="query", how="semi")
            unseen = known.select("query", "item").join(names, on=["query", "item"], how="anti")
            names = pl.concat([names, unseen], how="diagonal")
        names = names.sort("query", "item").with_row_index("at")
        cells = cells.join(names.select("pair", "at"), on="pair").sort("at", "rank", "pattern")
        item = cells["at"].to_numpy().astype(np.int64)
        starts = np.flatnonzero(np.diff(names["query"].rle_id().to_numpy().astype(np.int64), prepend=-1))
        query_ids = names["query"][starts]
        places = pl.DataFrame({"query": query_ids}).select(query_key=query_key()).with_row_index("at")
        met = visits.join(places, on="query_key").sort("at")
        held = slots.join(places, on="query_key").sort("at", "place", "rank")
        codes, labels = group_codes(names, groups, candidates, quality)
        merit = candidate_merit(names, known, quality)
        if merit is None:
            merit = stated_merit(cells, item, names.height, quality)
        weighted = "weight" in cells.columns
        return cls(
            query_ids=query_ids,
            item_ids=names["item"],
            offsets=np.append(starts, names.height),
            visits=met["visits"].to_numpy().astype(np.int64),
            cell_item=item,
            cell_rank=cells["rank"].to_numpy().astype(np.int64),
            cell_pattern=cells["pattern"].to_numpy().astype(np.int64),
            shown=cells["shown"].to_numpy().astype(np.int64),
            clicks=cells["clicks"].to_numpy().astype(np.int64),
            slot_query=held["at"].to_numpy().astype(np.int64),
            slot_place=held["place"].to_numpy().astype(np.int64),
            slot_rank=held["rank"].to_numpy().astype(np.int64),
            slot_count=held["count"].to_numpy().astype(np.int64),
            patterns=patterns,
            groups=codes,
            group_names=labels,
            relevance=merit,
            weight=cells["weight"].to_numpy() if weighted else None,
            weighted_clicks=cells["weighted_clicks"].to_numpy() if weighted else None,
            rows=rows,
            excluded=excluded,
            quality=quality,
            period=period,
        )


def query_key() -> pl.Expr:
    """Return a hash of the query."""
    return pl.col("query").hash(1)


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


def candidate_merit(names: pl.DataFrame, known: pl.DataFrame | None, quality: dict[str, Any]) -> FloatArray | None:
    """Return the relevance that a table of candidates states, 0 for items that it does not have."""
    column = next((each for each in ("relevance", "grade") if known is not None and each in known.columns), None)
    if known is None or column is None:
        return None
    found = names.join(
        known.select("query", "item", merit=column), on=["query", "item"], how="left", maintain_order="left"
    )
    quality["items without merit in the table of items"] = found["merit"].null_count()
    values = found["merit"].fill_null(0.0).to_numpy().astype(np.float64)
    return values if column == "relevance" else graded(values)


def graded(values: FloatArray) -> FloatArray:
    """Return grades as relevance."""
    grades = np.rint(values).astype(np.int64)
    return relevance(grades, int(grades.max(initial=0)))


def stated_merit(cells: pl.DataFrame, item: IntArray, items: int, quality: dict[str, Any]) -> FloatArray | None:
    """Return the relevance that a log states, the mean where it states several; grades become relevance."""
    if "merit" not in cells.columns:
        return None
    shown = sums_at(item, cells["shown"].to_numpy(), items)
    mean = sums_at(item, cells["merit"].to_numpy(), items) / np.maximum(shown, 1.0)
    low, high = np.full(items, np.inf), np.full(items, -np.inf)
    np.minimum.at(low, item, cells["merit_low"].to_numpy())
    np.maximum.at(high, item, cells["merit_high"].to_numpy())
    quality["items with several values of merit"] = int(np.count_nonzero(low < high))
    mean = np.where(low == high, low, mean)  # without rounding
    return graded(mean) if bool(cells["graded"][0]) else mean


def group_codes(
    names: pl.DataFrame, groups: pl.DataFrame | None, candidates: pl.DataFrame | None, quality: dict[str, Any]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the group of each item as a code, and the names of the groups; empty without groups.

    Where a log gives an item of a query several groups, the most frequent counts. Groups of candidates come first.
    """
    same = ["pair"]
    if candidates is not None and "group" in candidates.columns:
        same = [each for each in ("query", "item") if each in candidates.columns]
        groups = candidates.group_by(*same, "group").agg(n=pl.len())
    if groups is None:
        return np.zeros(0, np.int64), ()
    known = groups.filter(pl.col("group").is_not_null()).sort(["n", "group"], descending=[True, False])
    chosen = known.group_by(same, maintain_order=True).agg(pl.col("group").first(), several=pl.len())
    labels = names.join(chosen, on=same, how="left", maintain_order="left")["group"]
    quality["items with several groups"] = int((chosen["several"] > 1).sum())
    quality["items without a group"] = int(labels.is_null().sum())
    labels = labels.fill_null(UNKNOWN)
    titles = tuple(sorted(labels.unique().to_list(), key=lambda name: (name == UNKNOWN, name)))
    codes = labels.replace_strict(list(titles), list(range(len(titles))), return_dtype=pl.Int64)
    return codes.to_numpy(), titles
