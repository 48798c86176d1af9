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
        """Build the arrays from the tables that were counted."""
        groups = None
        if "group" in cells.columns:
            groups = (
                cells.group_by("query", "item", "group")
                .agg(n=pl.col("shown").sum())
                .with_columns(pl.col("query", "item", "group").cast(pl.String))
            )
            cells = without_groups(cells)
        if candidates is not None and "query" in candidates.columns:
            cells = with_unshown(cells.with_columns(pl.col("query", "item").cast(pl.String)), candidates)
        cells = cells.sort("query", "item", "rank", "pattern")
        item = cells.select(pl.struct("query", "item").rle_id()).to_series().to_numpy().astype(np.int64)
        first = np.flatnonzero(np.diff(item, prepend=-1))
        ids = cells.select("query", "item")[first].cast(pl.String)
        query = ids["query"].rle_id().to_numpy().astype(np.int64)
        starts = np.flatnonzero(np.diff(query, prepend=-1))
        query_ids = ids["query"][starts]
        places = pl.DataFrame({"query": query_ids}).select(query_key=query_key()).with_row_index("at")
        met = visits.join(places, on="query_key").sort("at")
        held = slots.join(places, on="query_key").sort("at", "place", "rank")
        codes, names = group_codes(ids, groups, candidates, quality)
        return cls(
            query_ids=query_ids,
            item_ids=ids["item"],
            offsets=np.append(starts, first.size),
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
            group_names=names,
            relevance=stated_merit(cells, item, first.size, quality),
            weight=cells["weight"].to_numpy() if "weight" in cells.columns else None,
            weighted_clicks=cells["weighted_clicks"].to_numpy() if "weight" in cells.columns else None,
            rows=rows,
            excluded=excluded,
            quality=quality,
            period=period,
        )


def query_key() -> pl.Expr:
    """Return a hash of the query."""
    return pl.col("query").hash(1)


def without_groups(cells: pl.DataFrame) -> pl.DataFrame:
    """Add up counts that differ in the group alone, which a log may state differently from row to row."""
    keys = ["query", "item", "rank", "pattern"]
    bare = cells.drop("group")
    if not bare.select(keys).is_duplicated().any():
        return bare
    how = {"merit_low": pl.Expr.min, "merit_high": pl.Expr.max, "graded": pl.Expr.first}
    sums = [how.get(name, pl.Expr.sum)(pl.col(name)) for name in bare.columns if name not in keys]
    return bare.group_by(keys).agg(sums)


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


def with_unshown(cells: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Add candidates of the log's queries that were never shown, and the merit that the candidates state."""
    stated = [each for each in ("relevance", "grade") if each in candidates.columns]
    known = candidates.select("query", "item", *stated).unique(["query", "item"])
    known = known.join(cells.select("query").unique(), on="query", how="semi")
    unseen = known.join(cells.select("query", "item").unique(), on=["query", "item"], how="anti")
    empty = unseen.select(
        "query",
        "item",
        rank=pl.lit(1, dtype=pl.Int32),
        pattern=pl.lit(0, dtype=pl.UInt32),
        shown=pl.lit(0, dtype=cells.schema["shown"]),
        clicks=pl.lit(0, dtype=pl.Int64),
    )
    cells = pl.concat([cells, empty], how="diagonal")
    if stated:
        cells = cells.drop("merit", "merit_low", "merit_high", "graded", strict=False)
        cells = cells.join(known.rename({stated[0]: "merit"}), on=["query", "item"], how="left")
        cells = cells.with_columns(
            pl.col("merit") * pl.max_horizontal("shown", 1),
            merit_low="merit",
            merit_high="merit",
            graded=pl.lit(stated[0] == "grade"),
        )
    return cells


def stated_merit(cells: pl.DataFrame, item: IntArray, items: int, quality: dict[str, Any]) -> FloatArray | None:
    """Return the relevance that a log states, the mean where it states several; grades become relevance."""
    if "merit" not in cells.columns:
        return None
    weight = np.maximum(cells["shown"].to_numpy(), 1).astype(np.float64)
    sums = sums_at(item, cells["merit"].fill_null(0.0).to_numpy(), items)
    mean = sums / sums_at(item, weight, items)
    low, high = np.full(items, np.inf), np.full(items, -np.inf)
    np.minimum.at(low, item, cells["merit_low"].fill_null(0.0).to_numpy())
    np.maximum.at(high, item, cells["merit_high"].fill_null(0.0).to_numpy())
    quality["items with several values of merit"] = int(np.count_nonzero(low != high))
    mean = np.where(low == high, low, mean)  # without rounding
    if not bool(cells["graded"].drop_nulls()[0]):
        return mean
    grades = np.rint(mean).astype(np.int64)
    return relevance(grades, int(grades.max(initial=0)))


def group_codes(
    ids: pl.DataFrame, groups: pl.DataFrame | None, candidates: pl.DataFrame | None, quality: dict[str, Any]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the group of each item as a code, and the names of the groups; empty without groups.

    Where a log gives an item of a query several groups, the most frequent counts. Groups of candidates come first.
    """
    same = ["query", "item"]
    if candidates is not None and "group" in candidates.columns:
        same = [each for each in same if each in candidates.columns]
        groups = candidates.group_by(*same, "group").agg(n=pl.len())
    if groups is None:
        return np.zeros(0, np.int64), ()
    known = groups.filter(pl.col("group").is_not_null()).sort(["n", "group"], descending=[True, False])
    chosen = known.group_by(same, maintain_order=True).agg(pl.col("group").first(), several=pl.len())
    labels = ids.join(chosen, on=same, how="left", maintain_order="left")["group"]
    quality["items with several groups"] = int((chosen["several"] > 1).sum())
    quality["items without a group"] = int(labels.is_null().sum())
    labels = labels.fill_null(UNKNOWN)
    names = tuple(sorted(labels.unique().to_list(), key=lambda name: (name == UNKNOWN, name)))
    codes = labels.replace_strict(list(names), list(range(len(names))), return_dtype=pl.Int64)
    return codes.to_numpy(), names
