"""Counting: from the rows of a log, which may exceed memory, to counts of (query, item, rank).

The rows are read as a stream and held as numbers. Where memory does not hold all of them, the log is read several
times, each time for a part of its impressions. Rows of the same queries are then grouped; everything after that works
on the counts. All of them are whole numbers, so that neither the division nor the order of the rows changes a result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..arrays import BoolArray, FloatArray, IntArray
from ..data.dataset import relevance
from ..data.frames import UNREADABLE, first_line
from ..errors import DataError, SettingError
from .log import CLICK_FAULT, FAULTS, TOP_RANK, ClickLog, typed_rows

__all__ = ["LogCounts", "Periods", "Timed", "count_log", "rank_weights", "sums_at"]

UNKNOWN = "unknown"
"""The group of items without one: a class of its own."""

MOST_ROWS, MOST_PASSES = 50_000_000, 1024
"""Rows that are held, 20 to 50 bytes each, and how often a log with more is read at most."""

BATCH, BUCKET = 500_000, 1_000_000
"""Rows that are read, and rows that are grouped at a time."""

MUCH = 0.2
"""Share of rows left out above which nothing should be concluded."""

TWICE, REPEATED = "rows logged twice", "rows of impressions with a rank or an item twice"

Slots = tuple[IntArray, IntArray, IntArray, IntArray]
"""The query, the place and the rank of slots, and how many there were."""


# --- the counts of a log ---------------------------------------------------------------------------------------------


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
    timed : Timed or None
        Counts by period, if the log has times.
    clicked
        Whether the log has clicks.
    rows, excluded, quality, period, warnings
        Rows read, rows left out by reason, what else was found, the first and last time, and what makes all figures
        doubtful.
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
    timed: Timed | None
    clicked: bool
    rows: int
    excluded: dict[str, int]
    quality: dict[str, Any]
    period: tuple[str, str] | None
    warnings: tuple[str, ...]

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

    @cached_property
    def item_query(self) -> IntArray:
        """The query of each item."""
        return np.repeat(np.arange(self.queries), self.sizes)

    @cached_property
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
        at, shape = (place // self.ranks, place % self.ranks), (self.queries, self.ranks)
        return {
            name: sp.csr_array((sums_at(cell, values, place.size), at), shape=shape)
            for name in ("shown", "clicks", "weight", "weighted_clicks")
            if (values := getattr(self, name)) is not None
        }

    def exposure(self, p: FloatArray) -> FloatArray:
        """Return the exposure of each item (Eq. 7), `Σ_j F_j p_j` summed in rank order; p is 0 beyond its end."""
        return sums_at(self.cell_item, self.shown * rank_weights(p, self.cell_rank), self.items)

    def slot_weights(self, p: FloatArray, slots: Slots | None = None) -> FloatArray:
        """Return the exposure that each query's lists, or given ones, handed out at their places, as an item array."""
        query, place, rank, count = slots or (self.slot_query, self.slot_place, self.slot_rank, self.slot_count)
        return sums_at(self.offsets[query] + place, count * rank_weights(p, rank), self.items)


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


# --- periods ---------------------------------------------------------------------------------------------------------

MOST_PERIODS = 60
"""Periods up to which a unit is chosen: hours, else days, else weeks, else months, else years."""

MONDAY = np.datetime64("1970-01-05")


@dataclasses.dataclass(frozen=True, eq=False)
class Periods:
    """Consecutive periods of one unit, in UTC.

    Attributes
    ----------
    unit : str
        hour, day, week (from Monday), month or year.
    begins : (periods,) datetime64[h] array
        The first hour of each.

    Examples
    --------
    >>> periods = Periods.of(datetime(2024, 1, 3), datetime(2024, 1, 6, 7))
    >>> periods.unit, periods.labels()
    ('day', ['2024-01-03', '2024-01-04', '2024-01-05', '2024-01-06'])
    """

    unit: str
    begins: Any

    @classmethod
    def of(cls, begin: datetime, end: datetime) -> Periods:
        """Return the periods from the first to the last time of a log: the shortest unit that is not too many."""
        ends: Any = np.array([begin, end], "M8[h]")
        for unit, code in (("hour", "h"), ("day", "D"), ("week", "W"), ("month", "M"), ("year", "Y")):
            if unit == "week":
                first, last = (ends.astype("M8[D]") - MONDAY) // np.timedelta64(7, "D")
            else:
                first, last = ends.astype(f"M8[{code}]").astype(np.int64)
            if last - first < MOST_PERIODS:
                break
        counts = np.arange(first, last + 1)
        begins: Any = MONDAY + (7 * counts).astype("m8[D]") if unit == "week" else counts.astype(f"M8[{code}]")
        return cls(unit, begins.astype("M8[h]"))

    def index(self, hours: IntArray) -> IntArray:
        """Return the period of each hour since 1970."""
        return np.searchsorted(self.begins.astype(np.int64), hours, side="right") - 1

    def labels(self) -> list[str]:
        """Return the first day of each period, or its first hour."""
        return [str(each).replace("T", " ") + ":00" if self.unit == "hour" else str(each)[:10] for each in self.begins]


@dataclasses.dataclass(frozen=True, eq=False)
class Timed:
    """Counts by period. They may be as many as the rows of the log, so they are kept as they were counted.

    Attributes
    ----------
    periods : Periods
        The periods.
    shown : list of DataFrames
        Impressions `n` by period, variant and rank, of each part of the rows.
    item_at : list of int arrays
        The item of each variant of a part.
    lists : DataFrame or None
        Impressions `n` by period, query and pattern; None if the log does not identify them.
    """

    periods: Periods
    shown: list[pl.DataFrame]
    item_at: list[IntArray]
    lists: pl.DataFrame | None

    def items(self, period: int) -> pl.DataFrame:
        """Return how often each item was at each rank in a period: columns item, rank, n."""
        found = []
        for table, item_at in zip(self.shown, self.item_at, strict=True):
            part = table.filter(period=period)
            item = pl.Series("item", item_at).gather(part["variant"])
            found.append(part.select(item, pl.col("rank", "n").cast(pl.Int64)))
        cells = pl.concat(found).sort("item", "rank")  # sums of fractions depend on their order
        return cells.group_by("item", "rank", maintain_order=True).agg(pl.col("n").sum())


def arrays(table: pl.DataFrame, *names: str) -> list[IntArray]:
    """Return columns of a table as arrays of whole numbers."""
    return [table[name].cast(pl.Int64).to_numpy() for name in names]


# --- places of lists -------------------------------------------------------------------------------------------------


def slots_of_lists(lists: pl.DataFrame, patterns: Sequence[IntArray]) -> Slots:
    """Return how often each place of a query's lists was at each rank, from lists by query and pattern."""
    query, pattern, count = arrays(lists, "query", "pattern", "n")
    size = np.array([each.size for each in patterns])
    begin, repeats = np.cumsum(size) - size, size[pattern]
    entry = np.repeat(np.arange(pattern.size), repeats)
    place = np.arange(entry.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return query[entry], place, np.concatenate(patterns)[begin[pattern[entry]] + place], count[entry]


def slots_of_rows(item: IntArray, rank: IntArray, count: IntArray, item_query: IntArray) -> Slots:
    """Return how often each query showed anything at each rank, where every row is a list with one place."""
    top = int(rank.max(initial=0)) + 1
    code, cell = np.unique(item_query[item] * top + rank, return_inverse=True)
    return code // top, np.zeros_like(code), code % top, sums_at(cell, count, code.size).astype(np.int64)


def inferred_slots(
    item: IntArray, rank: IntArray, count: IntArray, item_query: IntArray, queries: int
) -> tuple[Slots, IntArray]:
    """Return the slots of each query and its visits, from how often each item was shown at each rank.

    No list holds an item or a rank twice, so the fewest lists that the rows can have come from are as many as the most
    frequent rank or item (König). Where lists without gaps explain the counts, the place of a row is its rank.
    Otherwise the places are filled in the order of ranks, each with one row of every list: the exposure of no lists is
    more concentrated, so that the log itself stays within reach and the floor is a lower bound.

    Parameters
    ----------
    item, rank, count : (cells,) int arrays
        How often each item was shown at each rank, from 1.
    item_query : (items,) int array
        The query of each item, in order.
    queries
        Number of queries.

    Returns
    -------
    slots : tuple of int arrays
        Query, place from 0, rank and count, as `LogCounts` holds them.
    visits : (queries,) int array

    Examples
    --------
    An item is shown twice, at ranks 1 and 3, and another once at rank 2: two lists, with three rows in two places.

    >>> cells = np.array([0, 1, 0]), np.array([1, 2, 3]), np.array([1, 1, 1])
    >>> slots, visits = inferred_slots(*cells, np.array([0, 0]), 1)
    >>> [each.tolist() for each in slots[1:]], visits.tolist()
    ([[0, 0, 1], [1, 2, 3], [1, 1, 1]], [2])
    """
    item_count = sums_at(item, count, item_query.size).astype(np.int64)
    query, _, rank, count = slots_of_rows(item, rank, count, item_query)
    visits = np.zeros(queries, np.int64)
    np.maximum.at(visits, query, count)
    np.maximum.at(visits, item_query, item_count)
    end = within(count, query)
    begin, size = end - count, visits[query]
    first, last = begin // size, (end - 1) // size
    plain = without_gaps(query, rank, count, item_query, item_count, queries)[query]
    first, last = np.where(plain, rank - 1, first), np.where(plain, rank - 1, last)
    pieces = last - first + 1  # at most two, because no rank is more frequent than there are lists
    cell = np.repeat(np.arange(query.size), pieces)
    place = first[cell] + np.arange(cell.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    part = np.minimum(end[cell], (place + 1) * size[cell]) - np.maximum(begin[cell], place * size[cell])
    return (query[cell], place, rank[cell], np.where(plain[cell], count[cell], part)), visits


def without_gaps(
    query: IntArray, rank: IntArray, count: IntArray, item_query: IntArray, item_count: IntArray, queries: int
) -> BoolArray:
    """Return the queries whose rows may be lists that fill the ranks from 1 to their length, by Gale and Ryser.

    Ranks must have falling counts, and no m items may have been shown more often than the first m ranks.
    """
    cells, items = (np.bincount(each, minlength=queries) for each in (query, item_query))
    start = np.cumsum(cells) - cells
    falls = rank == np.arange(query.size) - start[query] + 1
    falls[1:] &= (np.diff(query) > 0) | (np.diff(count) <= 0)
    order = np.lexsort((-item_count, item_query))
    of = item_query[order]
    m = np.arange(of.size) - (np.cumsum(items) - items)[of]
    reached = within(count, query)[np.minimum(start[of] + np.minimum(m, np.maximum(cells[of] - 1, 0)), query.size - 1)]
    possible = (cells[of] == 0) | (within(item_count[order], of) <= reached)
    good = np.ones(queries, np.bool_)
    good[query[~falls]] = False
    good[of[~possible]] = False
    return good


def within(values: IntArray, query: IntArray) -> IntArray:
    """Return the running sum of values in each query; these are in order."""
    total = np.cumsum(values)
    before = (total - values)[np.flatnonzero(np.diff(query, prepend=-1))]
    return np.asarray(total - np.repeat(before, np.unique(query, return_counts=True)[1]), np.int64)


# --- rows ------------------------------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """Counts of some rows, all of those of their impressions.

    variants: query and item, and group, merit and propensity if the log has them. cells: variant, rank, shape (what
    identifies the ranks of the list), clicked, n. lists: query, shape, period, own (a hash of the impression alone).
    shapes: shape, ranks. timed: period, variant, rank, n. left_out: rows by reason.
    """

    variants: pl.DataFrame
    cells: pl.DataFrame
    lists: pl.DataFrame
    shapes: pl.DataFrame
    timed: pl.DataFrame | None
    left_out: dict[str, int]


def encoded(log: ClickLog, first_rank: int | None, missing_click: str) -> pl.LazyFrame:
    """Return the rows as numbers and names as categories, with `list`, a hash that identifies the impression.

    Two of a million impressions have the same hash with a probability of one in ten million.
    """
    typed = typed_rows(log, first_rank, missing_click)
    columns = typed.collect_schema().names()
    merit = [pl.col(role).alias("merit") for role in ("relevance", "grade") if role in columns][:1]
    own = [pl.col("impression").hash(4)] if "impression" in columns else []
    if not own and "session" in columns:
        own = [pl.col(each).hash(seed) for seed, each in enumerate(("session", "stamp"), start=4) if each in columns]
    whole = pl.col("item").hash(2) if log.single or not own else reduce(lambda a, b: a ^ b, own)
    return typed.select(
        "fault",
        *(pl.col(role).cast(pl.Categorical) for role in ("query", "item", "group") if role in columns),
        pl.col("rank").cast(pl.Int16, strict=False),
        "clicked",
        *merit,
        *(pl.col(each) for each in ("propensity", "time") if each in columns),
        list=pl.col("query").hash(1) ^ whole,
    )


def identified(log: ClickLog) -> bool:
    """Return whether the log tells which rows were one list."""
    return not log.single and bool({"impression", "session"} & set(log.rows.collect_schema().names()))


def survey_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what is counted of rows with each fault."""
    time = pl.col("time") if "time" in rows.columns else pl.lit(None, pl.Datetime("us"))
    return rows.group_by("fault").agg(
        rows=pl.len(),
        stated=pl.col("clicked").count(),
        clicks=pl.col("clicked").sum(),
        zeros=(pl.col("rank") == 0).sum(),
        undated=time.null_count(),
        begin=time.min(),
        end=time.max(),
    )


def used(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without a fault, with their hour in place of their time."""
    good = rows.filter(fault=0).drop("fault")
    if "time" not in good.columns:
        return good
    return good.with_columns(hour=pl.col("time").dt.epoch("s").floordiv(3600).cast(pl.Int32)).drop("time")


def batches(rows: pl.LazyFrame, log: ClickLog) -> Iterator[pl.DataFrame]:
    """Yield the rows in batches; a damaged file is one line."""
    try:
        yield from rows.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming")
    except UNREADABLE as error:
        raise DataError(f"{log.name}: damaged, cut short or not {log.format}: {first_line(error)}") from None


def lists_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the impressions: their query, shape and hour, and whether they repeat an item or a rank."""
    hour = [pl.col("hour").min()] if "hour" in rows.columns else []  # an impression belongs to where it begins
    found = rows.group_by("list").agg(
        pl.col("query").first(),
        *hour,
        shape=pl.col("rank").hash(1).sum(),
        repeats=(pl.len() > pl.col("item").n_unique()) | (pl.len() > pl.col("rank").n_unique()),
    )
    return found


def whole_lists(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    """Leave out rows that were logged twice, with the click of either copy, and impressions that repeat what they hold.

    Returns the rows with the shape and the hour of their impressions, the impressions, and the rows left out by reason.
    """
    lists, left_out = lists_of(rows), {TWICE: 0, REPEATED: 0}
    if lists["repeats"].any():
        odd, once = lists.filter("repeats"), ["list", "item", "rank"]
        some = rows.join(odd, on="list", how="semi")
        kept = some.group_by(once, maintain_order=True).agg(
            pl.col("clicked").max(), pl.exclude(*once, "clicked").first()
        )
        again = lists_of(kept)
        good = kept.join(again.filter("repeats"), on="list", how="anti")
        left_out = {TWICE: some.height - kept.height, REPEATED: kept.height - good.height}
        rows = pl.concat([rows.join(odd, on="list", how="anti"), good.select(rows.columns)])
        lists = pl.concat([lists.filter(~pl.col("repeats")), again.filter(~pl.col("repeats"))])
    hour = ["hour"] if "hour" in rows.columns else []
    return rows.drop(hour).join(lists.select("list", "shape", *hour), on="list"), lists, left_out


def count_rows(rows: pl.DataFrame, log: ClickLog, periods: Periods | None) -> Tables:
    """Count rows: all of those of their impressions."""
    lists, left_out, timed = pl.DataFrame(), dict[str, int](), None
    if identified(log):
        rows, lists, left_out = whole_lists(rows)
    else:
        rows = rows.with_columns(shape=(pl.col("rank") if log.single else pl.lit(0)).cast(pl.UInt64))
    _, example, pattern = np.unique(rows["shape"].to_numpy(), return_index=True, return_inverse=True)
    shape = rows["shape"].gather(example)
    if identified(log):
        ranks = rows.join(rows.select("list")[example], on="list", how="semi")
        own = pl.col("list") ^ pl.col("query").cast(pl.String).hash(1)
        lists = with_period(lists, periods).select("query", "shape", "period", own=own)
        shapes = ranks.group_by("shape").agg(ranks=pl.col("rank").sort())
    else:
        shapes = pl.DataFrame()
    names = [each for each in ("query", "item", "group", "merit", "propensity") if each in rows.columns]
    hashes = [pl.col(each).to_physical().hash(seed) for seed, each in enumerate(names)]
    key = rows.select(reduce(lambda a, b: a ^ b, hashes)).to_series().to_numpy()
    _, first, variant = np.unique(key, return_index=True, return_inverse=True)
    cell = variant * (TOP_RANK + 1) + rows["rank"].to_numpy()
    if periods is not None:
        period = with_period(rows.select("hour"), periods)["period"].to_numpy()
        key, n = tallied((period.astype(np.int64) * first.size * (TOP_RANK + 1) + cell)[period >= 0])
        period, at = np.divmod(key, first.size * (TOP_RANK + 1))
        timed = pl.DataFrame({"period": period.astype(np.int16), **variants_and_ranks(at), "n": n.shrink_dtype()})
    key, n = tallied((cell * shape.len() + pattern) * 2 + rows["clicked"].fill_null(False).to_numpy())
    cell, place = np.divmod(key // 2, shape.len())
    cells = pl.DataFrame({**variants_and_ranks(cell), "shape": shape.gather(place), "clicked": key % 2, "n": n})
    return Tables(rows.select(names)[first], cells, lists, shapes, timed, left_out)


def tallied(keys: IntArray) -> tuple[IntArray, pl.Series]:
    """Return the distinct keys, in order, and how often each occurs."""
    found = pl.Series(keys).sort().rle().struct.unnest()
    return found["value"].to_numpy(), found["len"]


def variants_and_ranks(cells: IntArray) -> dict[str, Any]:
    """Return the variant and the rank of cells as columns."""
    variant, rank = np.divmod(cells, TOP_RANK + 1)
    return {"variant": variant.astype(np.uint32), "rank": rank.astype(np.uint16)}


def with_period(table: pl.DataFrame, periods: Periods | None) -> pl.DataFrame:
    """Replace the hour by its period, -1 without a time."""
    if periods is None:
        return table.with_columns(period=pl.lit(-1, pl.Int16))
    index = periods.index(table["hour"].fill_null(np.iinfo(np.int32).min).to_numpy()).astype(np.int16)
    return table.with_columns(period=pl.Series(index)).drop("hour")


# --- the log ---------------------------------------------------------------------------------------------------------


def count_log(
    log: ClickLog, first_rank: int | None = None, missing_click: str = "exclude", cluster: str | None = None
) -> LogCounts:
    """Count how often each item was shown and clicked at each rank, and how many ranks impressions filled.

    Parameters
    ----------
    log
        The log; it is read here.
    first_rank
        The number of the first rank, 0 or 1; by default 1, and a log with a rank of 0 is refused.
    missing_click
        "exclude" or "0": what a row without a click means.
    cluster
        Address of a Dask scheduler whose workers read and count the log.

    Returns
    -------
    LogCounts

    Raises
    ------
    DataError
        If the log cannot be read, holds no usable row, or has a rank of 0 while `first_rank` is not given.
    SettingError
        If an option is not allowed, or there is no such cluster.
    """
    if first_rank not in (None, 0, 1):
        raise SettingError(f"first_rank = {first_rank} is not allowed: expected 0 or 1")
    if missing_click not in ("exclude", "0"):
        raise SettingError(f"missing_click = {missing_click!r} is not allowed: expected 0 or exclude")
    if cluster is not None:
        from .on_cluster import count_on_cluster

        return assembled(log, *count_on_cluster(log, first_rank, missing_click, cluster))
    rows = encoded(log, first_rank, missing_click)
    surveys, held, passes = [], [], 1
    for batch in batches(rows, log):
        surveys.append(survey_of(batch))
        held.append(used(batch).filter(pl.col("list") % passes == 0))
        while sum(each.height for each in held) > MOST_ROWS and passes < MOST_PASSES:
            passes *= 2
            held = [each.filter(pl.col("list") % passes == 0) for each in held]
    survey = checked_survey(surveys, log, first_rank)
    periods = periods_of(survey)
    parts = count_buckets(held, log, periods)
    for each in range(1, passes):
        chosen = rows.filter(pl.col("list") % passes == each)
        parts += count_buckets([used(batch) for batch in batches(chosen, log)], log, periods)
    return assembled(log, survey, parts)


def count_buckets(held: list[pl.DataFrame], log: ClickLog, periods: Periods | None) -> list[Tables]:
    """Count rows, some queries at a time; those that are held are let go."""
    size = sum(each.height for each in held)
    buckets: list[list[pl.DataFrame]] = [[] for _ in range(1 + size // BUCKET)]
    bucket = pl.col("query").to_physical() % len(buckets)
    while held:
        rows = held.pop()
        if len(buckets) == 1:
            buckets[0].append(rows)
            continue
        for (place,), part in (
            rows.with_columns(bucket=bucket).partition_by("bucket", as_dict=True, include_key=False).items()
        ):
            buckets[place].append(part)
    parts = []
    while buckets:
        if pieces := buckets.pop():
            parts.append(count_rows(pl.concat(pieces[::-1]), log, periods))
    return parts


def checked_survey(parts: Sequence[pl.DataFrame], log: ClickLog, first_rank: int | None) -> pl.DataFrame:
    """Add up the surveys of all rows; raise DataError for a log without usable rows, or with doubtful ranks of 0."""
    if not sum(each.height for each in parts):
        raise DataError(f"{log.name}: the log holds no rows")
    sums = pl.col("rows", "stated", "clicks", "zeros", "undated").cast(pl.Int64).sum()
    found = pl.concat(parts).group_by("fault").agg(sums, pl.col("begin").min(), pl.col("end").max()).sort("fault")
    zeros = int(found.filter(fault=0)["zeros"].sum())
    if first_rank is None and zeros:
        raise DataError(
            f"{log.name}: {zeros:,} rows have rank 0; if the first rank is number 0, say so with --first-rank 0; if "
            "these rows are to be left out, use --first-rank 1"
        )
    if found.filter(fault=0).is_empty():
        worst = found.sort("rows").row(-1, named=True)
        raise DataError(
            f"{log.name}: none of {found['rows'].sum():,} rows can be used; of {worst['rows']:,}: "
            f"{FAULTS[worst['fault'] - 1]}"
        )
    return found


def periods_of(survey: pl.DataFrame) -> Periods | None:
    """Return the periods of a log, None if it has no times."""
    begin, end = survey["begin"].min(), survey["end"].max()
    return Periods.of(begin, end) if isinstance(begin, datetime) and isinstance(end, datetime) else None


# --- bringing counts together ----------------------------------------------------------------------------------------


def assembled(log: ClickLog, survey: pl.DataFrame, parts: Sequence[Tables]) -> LogCounts:
    """Bring the counts of all parts together, in the order of the names."""
    schema, periods = log.rows.collect_schema(), periods_of(survey)
    excluded = {FAULTS[code - 1]: n for code, n in survey.select("fault", "rows").rows() if code}
    for reason in (TWICE, REPEATED):
        if rows := sum(part.left_out.get(reason, 0) for part in parts):
            excluded[reason] = rows
    variants = pl.concat([part.variants for part in parts]).with_columns(pl.col("query", "item").cast(pl.String))
    if variants.is_empty():
        most = max(excluded, key=lambda reason: excluded[reason])
        raise DataError(f"{log.name}: none of {survey['rows'].sum():,} rows can be used; of {excluded[most]:,}: {most}")
    names = ordered_names(variants, log.candidates)
    at = variants.join(names, on=["query", "item"], how="left", maintain_order="left")["at"].cast(pl.Int64).to_numpy()
    starts = np.cumsum([0, *(part.variants.height for part in parts)]).tolist()
    item_at = [at[low:high] for low, high in pairwise(starts)]
    offsets = np.append(np.flatnonzero(names["query"].rle_id().diff().fill_null(1)), names.height)
    item_query = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
    queries = offsets.size - 1
    quality: dict[str, Any] = log.quality | {
        "impressions": "identified" if identified(log) or log.single else "inferred"
    }
    if "time" in schema:
        quality["rows without a valid time"] = int(survey.filter(fault=0)["undated"].sum())
    cells = pl.concat(
        part.cells.with_columns(pl.col("variant") + start) for start, part in zip(starts, parts, strict=False)
    )
    lists: pl.DataFrame | None = None
    patterns: list[IntArray] = []
    numbers: dict[int, int] = {}
    if identified(log):
        lists = pl.concat([part.lists for part in parts])
        if "impression" in schema:
            quality["impressions with several queries"] = lists.height - lists["own"].n_unique()
        lists, patterns, numbers = numbered_lists(lists, pl.concat([part.shapes for part in parts]), names, offsets)
        gaps = pl.Series(np.array([ranks[-1] != ranks.size for ranks in patterns], np.int64))
        quality["impressions with missing ranks"] = int((gaps.gather(lists["pattern"]) * lists["n"]).sum())
    elif log.single:
        patterns = [np.array([rank]) for rank in range(1, int(cells["rank"].max()) + 1)]  # type: ignore[arg-type]
        numbers = {rank: rank - 1 for rank in range(1, len(patterns) + 1)}
    else:
        numbers = {0: 0}
    item, rank, pattern, counted = summed_cells(cells, at, numbers, variants)
    shown = counted["shown"]
    if lists is not None:
        slots = slots_of_lists(lists, patterns)
        visits = sums_at(slots[0][slots[1] == 0], slots[3][slots[1] == 0], queries).astype(np.int64)
    elif log.single:
        slots = slots_of_rows(item, rank, shown, item_query)
        visits = sums_at(slots[0], slots[3], queries).astype(np.int64)
    else:
        slots, visits = inferred_slots(item, rank, shown, item_query, queries)
    timed = None
    if periods is not None:
        timed = Timed(periods, [part.timed for part in parts if part.timed is not None], item_at, lists)
    n = cells.group_by("variant").agg(pl.col("n").sum()).sort("variant")["n"].cast(pl.Int64)
    more = variants.select(pl.exclude("query", "item")).get_columns()
    variants = pl.DataFrame({"item": at, "n": n}).with_columns(more)
    groups, group_names = group_codes(names, variants, log.candidates, quality)
    if strange := sum(
        int(each.str.contains(r"[\x00-\x1f\x7f]").sum()) for each in (names["item"], names["query"].unique())
    ):
        quality["ids with control characters"] = strange
    return LogCounts(
        query_ids=names["query"][offsets[:-1]],
        item_ids=names["item"],
        offsets=offsets,
        visits=visits,
        cell_item=item,
        cell_rank=rank,
        cell_pattern=pattern,
        **counted,
        slot_query=slots[0],
        slot_place=slots[1],
        slot_rank=slots[2],
        slot_count=slots[3],
        patterns=patterns,
        groups=groups,
        group_names=group_names,
        relevance=merit(names, variants, log, quality),
        timed=timed,
        clicked=not log.lacking,
        rows=int(survey["rows"].sum()),
        excluded=excluded,
        quality=quality,
        period=(str(survey["begin"].min()), str(survey["end"].max())) if periods else None,
        warnings=tuple(doubts(survey, excluded)),
    )


def ordered_names(pairs: pl.DataFrame, candidates: pl.DataFrame | None) -> pl.DataFrame:
    """Return the items of all queries in the order of their names, those of the table of items among them."""
    names = pairs.select("query", "item").unique()
    if candidates is not None and "query" in candidates.columns:
        known = candidates.select("query", "item").join(names, on="query", how="semi")
        names = pl.concat([names, known]).unique()
    return names.sort("query", "item").with_row_index("at")


def numbered_lists(
    lists: pl.DataFrame, shapes: pl.DataFrame, names: pl.DataFrame, offsets: IntArray
) -> tuple[pl.DataFrame, list[IntArray], dict[int, int]]:
    """Return the lists by period, query and pattern, the patterns, most frequent first, and their number by shape."""
    ranks = dict(shapes.unique("shape").rows())
    often = dict(lists.group_by("shape").agg(pl.len()).rows())
    order = sorted(often, key=lambda shape: (-often[shape], ranks[shape]))
    numbers = {shape: i for i, shape in enumerate(order)}
    place = names["query"][offsets[:-1]].to_frame().with_row_index("at")
    found = (
        lists.group_by("period", "query", "shape").agg(n=pl.len())
        .with_columns(pl.col("query").cast(pl.String), pattern=pl.col("shape").replace_strict(numbers))
        .join(place, on="query").select("period", "pattern", "n", query="at")
        .sort("period", "query", "pattern")
    )  # fmt: skip
    return found, [np.array(ranks[shape], np.int64) for shape in order], numbers


def summed_cells(
    cells: pl.DataFrame, item_at: IntArray, numbers: dict[int, int], variants: pl.DataFrame
) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
    """Return item, rank and pattern of the counts, in this order, and the counts; weights are summed in one order."""
    variant, rank, clicked, n = arrays(cells, "variant", "rank", "clicked", "n")
    pattern = cells["shape"].replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
    key = (item_at[variant] * (TOP_RANK + 1) + rank) * len(numbers) + pattern
    q = variants["propensity"].to_numpy()[variant] if "propensity" in variants.columns else None
    order = np.argsort(key, kind="stable") if q is None else np.lexsort((q, key))
    key, counts = key[order], {"shown": n[order], "clicks": (clicked * n)[order]}
    if q is not None:  # equal propensities first, so that sums of fractions do not depend on the division of the rows
        q = q[order]
        alike = np.flatnonzero((np.diff(key, prepend=-1) != 0) | (np.diff(q, prepend=-1) != 0))
        key, q, counts = key[alike], q[alike], {name: np.add.reduceat(x, alike) for name, x in counts.items()}
    first = np.flatnonzero(np.diff(key, prepend=-1))
    found: dict[str, Any] = dict.fromkeys(("weight", "weighted_clicks", "squared_weight"))
    found |= {name: np.add.reduceat(values, first) for name, values in counts.items()}
    if q is not None:
        shown, clicks = counts["shown"], counts["clicks"]
        for name, values in (("weight", shown / q), ("weighted_clicks", clicks / q), ("squared_weight", shown / q**2)):
            found[name] = np.add.reduceat(values, first)
    cell, pattern = np.divmod(key[first], len(numbers))
    return cell // (TOP_RANK + 1), cell % (TOP_RANK + 1), pattern, found


def merit(names: pl.DataFrame, variants: pl.DataFrame, log: ClickLog, quality: dict[str, Any]) -> FloatArray | None:
    """Return the merit that the table of items states, else the log; None if neither does."""
    known, same = log.candidates, ["query", "item"]
    role = next((each for each in ("relevance", "grade") if known is not None and each in known.columns), None)
    if known is not None and role is not None:
        found = names.join(known.select(*same, merit=role), on=same, how="left", maintain_order="left")["merit"]
        quality["items without merit in the table of items"] = found.null_count()
    elif "merit" in variants.columns:
        each = variants.group_by("item", "merit").agg(pl.col("n").sum()).sort("item", "merit")
        mean = (pl.col("merit") * pl.col("n")).sum() / pl.col("n").sum()
        values = each.group_by("item", maintain_order=True).agg(
            several=pl.len() > 1, merit=pl.when(pl.len() > 1).then(mean).otherwise(pl.col("merit").first())
        )
        quality["items with several values of merit"] = int(values["several"].sum())
        at = names.select(item=pl.col("at").cast(pl.Int64))
        found = at.join(values, on="item", how="left", maintain_order="left")["merit"]
        role = "relevance" if "relevance" in log.rows.collect_schema() else "grade"
    else:
        return None
    stated = found.fill_null(0.0).cast(pl.Float64).to_numpy()
    if role == "relevance":
        return stated
    grades = np.rint(stated).astype(np.int64)
    return relevance(grades, int(grades.max(initial=0)))


def group_codes(
    names: pl.DataFrame, variants: pl.DataFrame, candidates: pl.DataFrame | None, quality: dict[str, Any]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the group of each item as a code, and the names of the groups; empty without groups.

    Where a log gives an item of a query several groups, the most frequent counts. Groups of candidates come first.
    """
    if candidates is not None and "group" in candidates.columns:
        same = [each for each in ("query", "item") if each in candidates.columns]
        groups, at = candidates.group_by(*same, "group").agg(n=pl.len()), names
    elif "group" in variants.columns:
        same, at = ["item"], names.select(item=pl.col("at").cast(pl.Int64))
        groups = variants.group_by("item", "group").agg(pl.col("n").sum()).with_columns(pl.col("group").cast(pl.String))
    else:
        return np.zeros(0, np.int64), ()
    known = groups.filter(pl.col("group").is_not_null()).sort("n", "group", descending=[True, False])
    chosen = known.group_by(same, maintain_order=True).agg(pl.col("group").first(), several=pl.len() > 1)
    labels = at.join(chosen, on=same, how="left", maintain_order="left")["group"]
    quality["items with several groups"] = int(chosen["several"].sum())
    quality["items without a group"] = labels.null_count()
    labels = labels.fill_null(UNKNOWN)
    titles = tuple(sorted(labels.unique().to_list(), key=lambda name: (name == UNKNOWN, name)))
    codes = labels.replace_strict(list(titles), list(range(len(titles))), return_dtype=pl.Int64)
    return codes.to_numpy(), titles


def doubts(survey: pl.DataFrame, excluded: dict[str, int]) -> Iterator[str]:
    """Yield what makes all figures doubtful: much that was left out, and what was left out because of its clicks."""
    rows, lost = int(survey["rows"].sum()), sum(excluded.values())
    if lost > MUCH * rows:
        most = max(excluded, key=lambda reason: excluded[reason])
        yield (
            f"{lost:,} of {rows:,} rows ({100 * lost / rows:.0f} %) were left out, {excluded[most]:,} of them: {most}. "
            "The figures are of the others alone"
        )
    kept = survey.filter(fault=0).row(0, named=True)
    if excluded.get(FAULTS[CLICK_FAULT - 1]) and kept["clicks"] == kept["stated"]:
        yield (
            f"{excluded[FAULTS[CLICK_FAULT - 1]]:,} rows without a value of clicked were left out, and all others are "
            "clicked: empty probably means not clicked, which --missing-click 0 states"
        )
    rate = kept["clicks"] / max(kept["stated"], 1)
    for each in survey.filter((pl.col("fault") > 0) & (pl.col("stated") >= 20)).iter_rows(named=True):
        spread = (rate * (1 - rate) / each["stated"]) ** 0.5
        if abs(each["clicks"] / each["stated"] - rate) > max(5 * spread, 0.05):
            yield (
                f"What was left out depends on clicks: {100 * each['clicks'] / each['stated']:.0f} % of the rows with "
                f"{FAULTS[each['fault'] - 1]} are clicked, {100 * rate:.0f} % of the others"
            )
