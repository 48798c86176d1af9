"""Counting: from the rows of a log, which may exceed memory, to counts of (query, item, rank).

The rows are read as a stream and held as numbers. Where memory does not hold all of them, the log is read several
times, each time for a part of its impressions. Rows of the same queries are then counted by group-bys, and counts of
parts are added. All are whole numbers, so that neither the division nor the order of the rows changes a result. On a
cluster, the same functions are mapped over parts of the log and over parts of its impressions.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property, partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import scipy.sparse as sp

from ..arrays import BoolArray, FloatArray, IntArray
from ..data.dataset import relevance
from ..data.frames import UNREADABLE, first_line
from ..errors import DataError, SettingError
from .log import NO_CLICK, ClickLog, typed_rows

UNKNOWN = "unknown"
"""The group of items without one: a class of its own."""

MOST_ROWS = 50_000_000
"""Rows that are held, 20 to 50 bytes each; a log with more is read several times."""

BATCH, BUCKET, PART_ROWS = 500_000, 1_000_000, 4_000_000
"""Rows that are read at a time, that are grouped at a time, and that a worker of a cluster reads."""

MUCH = 0.2
"""Share of rows left out above which nothing should be concluded."""

TWICE, REPEATED = "rows logged twice", "rows of impressions with a rank or an item twice"

PAIR = ["query", "item"]
"""Names, as they are in the log, of what is counted."""

Tables = dict[str, pl.DataFrame]
"""Counts of some rows, as `count_rows` returns them."""


# --- the counts of a log ---------------------------------------------------------------------------------------------


class Slots(NamedTuple):
    """How often a place of a query's lists was at a rank; place 0 is the first rank that a list filled."""

    query: IntArray
    place: IntArray
    rank: IntArray
    number: IntArray


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogCounts:
    """Counts of a log. Queries and the items of a query are in the order of their ids.

    Attributes
    ----------
    query_ids, item_ids
        Names of the queries, (queries,), and of the items of all queries, (items,).
    offsets : (queries + 1,) int array
        Where each query's items begin.
    cell_item, cell_rank, cell_pattern : (cells,) int arrays
        Item (position in `item_ids`), rank from 1, and the set of ranks of the lists, of each count that follows.
    shown, clicks : (cells,) int arrays
        Impressions and clicks.
    slots : Slots
        The places of the lists.
    patterns : list of int arrays
        The distinct sets of ranks that lists filled; empty if impressions cannot be told apart.
    groups : (items,) int array
        Position of each item's group in `group_names`; empty if the log names no groups.
    relevance : (items,) array or None
        Merit that the log states.
    weights : dict of (cells,) arrays
        If propensities were logged, weight and weighted_clicks, which are impressions and clicks divided by them, and
        squared_weight, impressions divided by their squares.
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
    cell_item: IntArray
    cell_rank: IntArray
    cell_pattern: IntArray
    shown: IntArray
    clicks: IntArray
    slots: Slots
    patterns: list[IntArray]
    groups: IntArray
    group_names: tuple[str, ...]
    relevance: FloatArray | None
    weights: dict[str, FloatArray]
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
        return self.offsets.size - 1

    @property
    def items(self) -> int:
        """Number of pairs of a query and an item."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        """Number of items of each query."""
        return np.diff(self.offsets)

    @cached_property
    def visits(self) -> IntArray:
        """Impressions of each query."""
        return self.visits_of(self.slots)

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
        at, shape = (self.item_query[self.cell_item], self.cell_rank - 1), (self.queries, self.ranks)
        return {
            name: sp.csr_array((values.astype(np.float64), at), shape=shape)
            for name, values in {"shown": self.shown, "clicks": self.clicks, **self.weights}.items()
        }

    def exposure(self, p: FloatArray) -> FloatArray:
        """Return the exposure of each item (Eq. 7), `Σ_j F_j p_j` summed in rank order; p is 0 beyond its end."""
        return sums_at(self.cell_item, self.shown * rank_weights(p, self.cell_rank), self.items)

    def slot_weights(self, p: FloatArray, slots: Slots | None = None) -> FloatArray:
        """Return the exposure that each query's lists, or given ones, handed out at their places, as an item array."""
        query, place, rank, count = slots or self.slots
        return sums_at(self.offsets[query] + place, count * rank_weights(p, rank), self.items)

    def visits_of(self, slots: Slots) -> IntArray:
        """Return the lists of each query that some slots belong to."""
        first = slots.place == 0
        return sums_at(slots.query[first], slots.number[first], self.queries).astype(np.int64)


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

UNITS = {"hour": "1h", "day": "1d", "week": "1w", "month": "1mo", "year": "1y"}


@dataclasses.dataclass(frozen=True, eq=False)
class Periods:
    """Consecutive periods of one unit, in UTC.

    Attributes
    ----------
    unit : str
        hour, day, week (from Monday), month or year.
    begins : Series
        The first moment of each.

    Examples
    --------
    >>> periods = Periods.of(datetime(2024, 1, 3), datetime(2024, 1, 6, 7))
    >>> periods.unit, periods.labels()
    ('day', ['2024-01-03', '2024-01-04', '2024-01-05', '2024-01-06'])
    """

    unit: str
    begins: pl.Series

    @classmethod
    def of(cls, begin: datetime, end: datetime) -> Periods:
        """Return the periods from the first to the last time of a log: the shortest unit that is not too many."""
        for unit, every in UNITS.items():
            first, last = pl.Series([begin, end]).dt.truncate(every)
            found = cls(unit, pl.datetime_range(first, last, every, eager=True))
            if found.begins.len() <= MOST_PERIODS:
                break
        return found

    def index(self, hours: IntArray) -> IntArray:
        """Return the period of each hour since 1970."""
        return np.searchsorted(self.begins.dt.epoch("s").to_numpy() // 3600, hours, side="right") - 1

    def labels(self) -> list[str]:
        """Return the first day of each period, or its first hour."""
        return self.begins.dt.strftime("%Y-%m-%d %H:00" if self.unit == "hour" else "%Y-%m-%d").to_list()


@dataclasses.dataclass(frozen=True, eq=False)
class Timed:
    """Counts by period, which may be as many as the rows of the log.

    Attributes
    ----------
    periods : Periods
        The periods.
    shown : DataFrame
        Impressions `n` by period, item and rank, of which each may occur several times.
    lists : DataFrame or None
        Impressions `n` by period, query and pattern; None if the log does not identify them.
    """

    periods: Periods
    shown: pl.DataFrame
    lists: pl.DataFrame | None

    def cells(self, period: int) -> pl.DataFrame:
        """Return how often each item was at each rank in a period; in order, on which sums of fractions depend."""
        return self.shown.filter(period=period).group_by("item", "rank").agg(pl.col("n").sum()).sort("item", "rank")


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
    return Slots(query[entry], place, np.concatenate(patterns)[begin[pattern[entry]] + place], count[entry])


def inferred_slots(item: IntArray, rank: IntArray, count: IntArray, item_query: IntArray, queries: int) -> Slots:
    """Return the slots of each query, from how often each item was shown at each rank.

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
    Slots

    Examples
    --------
    An item is shown twice, at ranks 1 and 3, and another once at rank 2: two lists, with three rows in two places.

    >>> cells = np.array([0, 1, 0]), np.array([1, 2, 3]), np.array([1, 1, 1])
    >>> [each.tolist() for each in inferred_slots(*cells, np.array([0, 0]), 1)[1:]]
    [[0, 0, 1], [1, 2, 3], [1, 1, 1]]
    """
    item_count = sums_at(item, count, item_query.size).astype(np.int64)
    top = int(rank.max(initial=0)) + 1
    code, cell = np.unique(item_query[item] * top + rank, return_inverse=True)
    query, rank, count = code // top, code % top, sums_at(cell, count, code.size).astype(np.int64)
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
    return Slots(query[cell], place, rank[cell], np.where(plain[cell], count[cell], part))


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


def encoded(log: ClickLog, first_rank: int | None, missing_click: str, part: int = 0, parts: int = 1) -> pl.LazyFrame:
    """Return the rows as numbers and names as categories, with `list`, a hash that identifies the impression.

    Two of a million impressions have the same hash with a probability of one in ten million. With several parts, the
    rows are those of the impressions of one part.
    """
    typed = typed_rows(log, first_rank, missing_click)
    columns = typed.collect_schema().names()
    merit = [pl.col(role).alias("merit") for role in ("relevance", "grade") if role in columns][:1]
    keys = ["item"]
    if identified(log):
        keys = [each for each in ("session", "stamp") if each in columns]
        keys = ["impression"] if "impression" in columns else keys
    own = (pl.col(each).hash(seed) for seed, each in enumerate(("query", *keys), start=1))
    listed = typed.with_columns(list=reduce(operator.xor, own))
    chosen = listed.filter(pl.col("list") % parts == part) if parts > 1 else listed
    return chosen.select(
        "fault",
        *(pl.col(role).cast(pl.Categorical) for role in ("query", "item", "group") if role in columns),
        pl.col("rank").cast(pl.Int16, strict=False),
        "clicked",
        *merit,
        *(pl.col(each) for each in ("propensity", "time") if each in columns),
        "list",
    )


def identified(log: ClickLog) -> bool:
    """Return whether the log tells which rows were one list."""
    return not log.single and bool({"impression", "session"} & set(log.rows.collect_schema().names()))


def read_rows(rows: pl.LazyFrame, log: ClickLog, place: pl.Expr, places: int) -> list[pl.DataFrame]:
    """Read encoded rows in batches; return what is found of those with each fault, then the others, divided by place.

    These have their hour instead of their time.
    """
    surveys: list[pl.DataFrame] = []
    try:
        empty = pl.DataFrame(schema=rows.collect_schema())
        time = pl.col("time") if "time" in empty.columns else pl.lit(None, pl.Datetime("us"))
        hour = {"hour": time.dt.epoch("s").floordiv(3600).cast(pl.Int32)} if "time" in empty.columns else {}
        columns = pl.exclude("fault", "time")
        held = [[empty.select(columns, **hour)] for _ in range(places)]
        for batch in chain([empty], rows.collect_batches(chunk_size=BATCH, maintain_order=True, engine="streaming")):
            found = batch.group_by("fault").agg(
                rows=pl.len(),
                stated=pl.col("clicked").count(),
                clicks=pl.col("clicked").sum(),
                zeros=(pl.col("rank") == 0).sum(),
                undated=time.null_count(),
                begin=time.min(),
                end=time.max(),
            )
            surveys.append(found)
            good = batch.filter(fault="").select(columns, **hour, place=place % places)
            for (at,), part in good.partition_by("place", as_dict=True, include_key=False).items():
                held[at].append(part)
    except UNREADABLE as error:
        raise DataError(f"{log.name}: damaged, cut short or not {log.format}: {first_line(error)}") from None
    return [pl.concat(surveys), *map(pl.concat, held)]


def lists_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the impressions: their query, hour and shape, a hash of their ranks, and whether they repeat any."""
    hour = [pl.col("hour").min()] if "hour" in rows.columns else []  # an impression belongs to where it begins
    return rows.group_by("list").agg(
        pl.col("query").first(),
        *hour,
        shape=pl.col("rank").hash(1).sum(),
        repeats=(pl.len() > pl.col("item").n_unique()) | (pl.len() > pl.col("rank").n_unique()),
    )


def whole_lists(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, int]]:
    """Leave out rows that were logged twice, with the click of either copy, and impressions that repeat what they hold.

    Returns the rows with the shape and the hour of their impressions, the impressions, and the rows left out by reason.
    """
    lists, left_out = lists_of(rows), dict[str, int]()
    if lists["repeats"].any():
        place = ["list", "item", "rank"]
        once = rows.group_by(place, maintain_order=True).agg(
            pl.col("clicked").max(), pl.exclude(*place, "clicked").first()
        )
        every = lists_of(once)
        good = once.join(every.filter("repeats"), on="list", how="anti")
        left_out = {TWICE: rows.height - once.height, REPEATED: once.height - good.height}
        rows, lists = good, every.filter(~pl.col("repeats"))
    known = lists.drop("query", "repeats")
    return rows.drop("hour", strict=False).join(known, on="list"), lists, left_out


def count_rows(rows: pl.DataFrame, log: ClickLog) -> Tables:
    """Count rows: all of those of their impressions.

    Returns
    -------
    dict
        cells: impressions n and clicks by query, item, rank, shape, and by what else is known of the rows; if the log
        tells impressions apart, lists: their number n by query, shape and hour, shapes: the ranks of each, and owners:
        a hash of each impression without its query; if it has times, timed: n by hour, query, item and rank;
        left out: rows by reason.
    """
    hour = [each for each in rows.columns if each == "hour"]
    found: Tables = {}
    left_out: dict[str, int] = {}
    if identified(log):
        rows, lists, left_out = whole_lists(rows)
        found["owners"] = lists.select(pl.col("list") ^ pl.col("query").cast(pl.String).hash(1))
        example = lists.unique("shape").select("list")
        found["shapes"] = rows.join(example, on="list", how="semi").group_by("shape").agg(ranks=pl.col("rank").sort())
    elif log.single:
        rows = lists = rows.with_columns(shape=pl.col("rank").cast(pl.UInt64))
        found["shapes"] = rows.select("shape", ranks=pl.concat_list("rank")).unique("shape")
    else:
        rows = rows.with_columns(shape=pl.lit(0, pl.UInt64))
    if "shapes" in found:
        found["lists"] = lists.group_by("query", "shape", *hour).agg(n=pl.len())
    if hour:
        timed = rows.group_by("hour", "query", "item", "rank").agg(n=pl.len())
        found["timed"] = timed.with_columns(timed["n"].shrink_dtype())  # it may have as many rows as the log
    names = [each for each in ("group", "merit", "propensity") if each in rows.columns]
    n, clicks = pl.len(), pl.col("clicked").sum()
    found["cells"] = rows.group_by("query", "item", "rank", "shape", *names).agg(n=n, clicks=clicks)
    found["left out"] = pl.DataFrame(list(left_out.items()), schema={"reason": pl.String, "n": pl.Int64}, orient="row")
    return found


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
        surveys, parts = count_on_cluster(log, first_rank, missing_click, cluster)
    else:
        surveys, parts = [], []
        size = number_of_rows(log)
        passes, buckets = 1 + (size - 1) // MOST_ROWS, 1 + min(size, MOST_ROWS) // BUCKET
        for each in range(passes):
            rows = encoded(log, first_rank, missing_click, each, passes)
            survey, *held = read_rows(rows, log, pl.col("query").to_physical(), buckets)
            surveys.append(survey)
            while held:  # rows that have been counted are let go
                parts.append(count_rows(held.pop(), log))
    return assembled(log, survey_of(surveys, log, first_rank), parts)


def number_of_rows(log: ClickLog) -> int:
    """Return the number of rows, at least 1; a log that cannot be read is explained when it is."""
    try:
        return max(int(log.rows.select(pl.len()).collect(engine="streaming").item()), 1)
    except UNREADABLE:
        return 1


def survey_of(surveys: Sequence[pl.DataFrame], log: ClickLog, first_rank: int | None) -> pl.DataFrame:
    """Add up the surveys of all rows; raise DataError for a log without rows, or with doubtful ranks of 0."""
    sums = pl.col("rows", "stated", "clicks", "zeros", "undated").cast(pl.Int64).sum()
    found = pl.concat(surveys).group_by("fault").agg(sums, pl.col("begin").min(), pl.col("end").max()).sort("fault")
    if found.is_empty():
        raise DataError(f"{log.name}: the log holds no rows")
    zeros = int(found.filter(fault="")["zeros"].sum())
    if first_rank is None and zeros:
        raise DataError(
            f"{log.name}: {zeros:,} rows have rank 0; if the first rank is number 0, say so with --first-rank 0; if "
            "these rows are to be left out, use --first-rank 1"
        )
    return found


# --- on a cluster ----------------------------------------------------------------------------------------------------


def count_on_cluster(
    log: ClickLog, first_rank: int | None, missing_click: str, address: str
) -> tuple[list[pl.DataFrame], list[Tables]]:
    """Return the surveys and the counts of a log, made by the workers of a Dask cluster.

    Each worker reads parts of the log, some millions of rows. The rows of an impression may be in several parts, so
    they are divided by impression before they are counted.

    Raises
    ------
    DataError
        If the log is no table in files, or cannot be read.
    SettingError
        If there is no such cluster, its workers have other versions, or it loses its work.
    """
    from ..experiments.execute import connect_cluster, version

    if log.format not in ("flat", "open-bandit") or not log.files:
        raise DataError(f"{log.name}: a cluster reads flat tables and Open Bandit data in files; got {log.format}")
    pieces = [log.rows.slice(begin, PART_ROWS) for begin in range(0, number_of_rows(log), PART_ROWS)]
    parts = [dataclasses.replace(log, rows=each, candidates=None) for each in pieces]
    size, wanted = len(parts), version()
    with connect_cluster(address) as client:
        submit, gather = partial(client.submit, pure=False), client.gather
        read = [submit(read_part, each, first_rank, missing_click, size, wanted) for each in parts]
        surveys = [submit(operator.itemgetter(0), each) for each in read]
        divided = [[submit(operator.itemgetter(place), each) for each in read] for place in range(1, size + 1)]
        counted = [submit(count_part, rows, parts[0], wanted) for rows in divided]
        return gather(surveys), gather(counted)


def read_part(log: ClickLog, first_rank: int | None, missing_click: str, size: int, wanted: str) -> list[pl.DataFrame]:
    """Read a part of a log on a worker; return its survey and its rows, divided by impression."""
    from ..experiments.execute import check_version

    check_version(wanted)
    return read_rows(encoded(log, first_rank, missing_click), log, pl.col("list"), size)


def count_part(rows: list[pl.DataFrame], log: ClickLog, wanted: str) -> Tables:
    """Count the rows of some impressions on a worker."""
    from ..experiments.execute import check_version

    check_version(wanted)
    return count_rows(pl.concat(rows), log)


# --- bringing counts together ----------------------------------------------------------------------------------------


def with_period(table: pl.DataFrame, periods: Periods | None) -> pl.DataFrame:
    """Add the period of each row, -1 without a time."""
    if periods is None:
        return table.with_columns(period=pl.lit(-1, pl.Int16))
    index = periods.index(table["hour"].fill_null(np.iinfo(np.int32).min).to_numpy())
    return table.with_columns(period=pl.Series(index, dtype=pl.Int16))


def assembled(log: ClickLog, survey: pl.DataFrame, parts: Sequence[Tables]) -> LogCounts:
    """Bring the counts of all parts together, in the order of the names."""
    found = {name: pl.concat([part[name] for part in parts]) for name in parts[0] if name != "timed"}
    rows = int(survey["rows"].sum())
    excluded = {reason: number for reason, number in survey.select("fault", "rows").rows() if reason}
    left_out = found["left out"].group_by("reason").agg(pl.col("n").sum()).filter(pl.col("n") > 0)
    excluded |= dict(left_out.sort("reason", descending=True).rows())
    if found["cells"].is_empty():
        most = max(excluded, key=lambda reason: excluded[reason])
        raise DataError(f"{log.name}: none of {rows:,} rows can be used; of {excluded[most]:,}: {most}")
    columns, quality = log.rows.collect_schema(), dict[str, Any](log.quality)
    quality["impressions"] = "identified" if "lists" in found else "inferred"
    if "time" in columns:
        quality["rows without a valid time"] = int(survey.filter(fault="")["undated"].sum())
    if "impression" in columns and "owners" in found:
        quality["impressions with several queries"] = found["owners"].height - found["owners"].n_unique()
    known = pl.DataFrame() if log.candidates is None else log.candidates.cast({pl.String: pl.Categorical})
    names = ordered_names(found["cells"], known)
    queries = names.group_by("query", maintain_order=True).agg(size=pl.len()).with_row_index("number")
    offsets = np.append(0, queries["size"].cast(pl.Int64).cum_sum().to_numpy())
    begin, end = survey["begin"].min(), survey["end"].max()
    periods = Periods.of(begin, end) if isinstance(begin, datetime) and isinstance(end, datetime) else None
    lists, numbers = None, pl.DataFrame({"shape": [0], "pattern": [0]}, schema_overrides={"shape": pl.UInt64})
    patterns: list[IntArray] = []
    torn: list[str] = []
    if "lists" in found:
        lists, numbers = numbered_lists(found, queries, periods)
        patterns = [np.array(ranks) for ranks in numbers["ranks"].to_list()]
        if not log.single:
            gaps = pl.Series([ranks[-1] != ranks.size for ranks in patterns])
            gappy = int(lists.filter(gaps.gather(lists["pattern"]))["n"].sum())
            quality["impressions with missing ranks"] = gappy
            if "impression" not in columns and "time" in columns and gappy > MUCH * int(lists["n"].sum()):
                torn.append(
                    f"{gappy:,} of {int(lists['n'].sum()):,} impressions, which a session and a time identify, lack "
                    "ranks: if the time is that of a row and not of a list, lists are torn apart and the figures are "
                    "wrong; name an id of the list with --column impression=COLUMN, or leave the times out"
                )
    timed = None
    if periods is not None:
        dated = (with_period(part.pop("timed"), periods).join(names, on=PAIR) for part in parts)
        shown = pl.concat((each.select("period", "rank", "n", item="at") for each in dated), how="vertical_relaxed")
        timed = Timed(periods, shown, lists)
    cells = found["cells"].join(names, on=PAIR).drop(PAIR).join(numbers.select("shape", "pattern"), on="shape")
    item, rank, pattern, counted = summed_cells(cells)
    item_query = np.repeat(np.arange(queries.height), np.diff(offsets))
    if lists is None:
        slots = inferred_slots(item, rank, counted["shown"], item_query, queries.height)
    else:
        slots = slots_of_lists(lists, patterns)
    groups, group_names = group_codes(names, cells, known, quality)
    relevance = merit(names, cells, known, log, quality)
    query_ids, item_ids = queries["query"].cast(pl.String), names["item"].cast(pl.String)
    if strange := sum(int(each.str.contains(r"[\x00-\x1f\x7f]").sum()) for each in (item_ids, query_ids)):
        quality["ids with control characters"] = strange
    return LogCounts(
        query_ids=query_ids,
        item_ids=item_ids,
        offsets=offsets,
        cell_item=item,
        cell_rank=rank,
        cell_pattern=pattern,
        **counted,
        slots=slots,
        patterns=patterns,
        groups=groups,
        group_names=group_names,
        relevance=relevance,
        timed=timed,
        clicked=not log.lacking,
        rows=rows,
        excluded=excluded,
        quality=quality,
        period=(str(begin), str(end)) if periods else None,
        warnings=(*torn, *doubts(survey, excluded)),
    )


def ordered_names(cells: pl.DataFrame, candidates: pl.DataFrame) -> pl.DataFrame:
    """Return the items of all queries in the order of their names, those of the table of items among them."""
    names = cells.select(PAIR).unique()
    if "query" in candidates.columns:
        names = pl.concat([names, candidates.select(PAIR).join(names, on="query", how="semi")]).unique()
    return names.sort(PAIR).with_row_index("at")


def numbered_lists(found: Tables, queries: pl.DataFrame, periods: Periods | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the lists by period, query and pattern, and the patterns, most frequent first, with shape and ranks."""
    n = pl.col("n").sum()
    often = found["lists"].group_by("shape").agg(n).join(found["shapes"].unique("shape"), on="shape")
    numbers = often.sort("n", "ranks", descending=[True, False]).drop("n").with_row_index("pattern")
    lists = with_period(found["lists"], periods).join(queries, on="query").join(numbers, on="shape")
    order = ["period", "query", "pattern"]
    return lists.group_by("period", "pattern", query="number").agg(n).select(*order, "n").sort(order), numbers


def summed_cells(cells: pl.DataFrame) -> tuple[IntArray, IntArray, IntArray, dict[str, Any]]:
    """Return item, rank and pattern of the counts, in this order, and the counts; weights are summed in one order."""
    same, q = ["at", "rank", "pattern"], [each for each in cells.columns if each == "propensity"]
    summed = cells.group_by(*same, *q).agg(shown=pl.col("n").sum(), clicks=pl.col("clicks").sum()).sort(*same, *q)
    if q:  # equal propensities first, so that sums of fractions do not depend on the division of the rows
        weight, weighted_clicks = pl.col("shown") / pl.col(*q), pl.col("clicks") / pl.col(*q)
        squared_weight = weight / pl.col(*q)
        summed = summed.with_columns(weight=weight, weighted_clicks=weighted_clicks, squared_weight=squared_weight)
        summed = summed.group_by(same, maintain_order=True).sum()
    names = ("weight", "weighted_clicks", "squared_weight") if q else ()
    item, rank, pattern, shown, clicks = arrays(summed, *same, "shown", "clicks")
    weights = {name: summed[name].to_numpy() for name in names}
    return item, rank, pattern, {"shown": shown, "clicks": clicks, "weights": weights}


def merit(
    names: pl.DataFrame, cells: pl.DataFrame, known: pl.DataFrame, log: ClickLog, quality: dict[str, Any]
) -> FloatArray | None:
    """Return the merit that the table of items states, else the log; None if neither does."""
    role = next((each for each in ("relevance", "grade") if each in known.columns), None)
    if role is not None:
        found = names.join(known.select(*PAIR, merit=role), on=PAIR, how="left", maintain_order="left")["merit"]
        quality["items without merit in the table of items"] = found.null_count()
    elif "merit" in cells.columns:
        each = cells.group_by("at", "merit").agg(pl.col("n").sum()).sort("at", "merit")
        mean = (pl.col("merit") * pl.col("n")).sum() / pl.col("n").sum()
        values = each.group_by("at", maintain_order=True).agg(
            several=pl.len() > 1, merit=pl.when(pl.len() > 1).then(mean).otherwise(pl.col("merit").first())
        )
        quality["items with several values of merit"] = int(values["several"].sum())
        found = names.join(values, on="at", how="left", maintain_order="left")["merit"]
        role = "relevance" if "relevance" in log.rows.collect_schema() else "grade"
    else:
        return None
    stated = found.fill_null(0.0).cast(pl.Float64).to_numpy()
    if role == "relevance":
        return stated
    grades = np.rint(stated).astype(np.int64)
    return relevance(grades, int(grades.max(initial=0)))


def group_codes(
    names: pl.DataFrame, cells: pl.DataFrame, known: pl.DataFrame, quality: dict[str, Any]
) -> tuple[IntArray, tuple[str, ...]]:
    """Return the group of each item as a code, and the names of the groups; empty without groups.

    Where a log gives an item of a query several groups, the most frequent counts. Groups of candidates come first.
    """
    if "group" in known.columns:
        same = [each for each in PAIR if each in known.columns]
        groups = known.group_by(*same, "group").agg(n=pl.len())
    elif "group" in cells.columns:
        same = ["at"]
        groups = cells.group_by("at", "group").agg(pl.col("n").sum())
    else:
        return np.zeros(0, np.int64), ()
    stated = groups.drop_nulls("group").sort("n", "group", descending=[True, False])
    chosen = stated.group_by(same, maintain_order=True).agg(pl.col("group").first(), several=pl.len() > 1)
    labels = names.join(chosen, on=same, how="left", maintain_order="left")["group"]
    quality["items with several groups"] = int(chosen["several"].sum())
    quality["items without a group"] = labels.null_count()
    labels = labels.cast(pl.String).fill_null(UNKNOWN)
    titles = sorted(labels.unique(), key=lambda name: (name == UNKNOWN, name))
    return labels.replace_strict(titles, range(len(titles)), return_dtype=pl.Int64).to_numpy(), tuple(titles)


def doubts(survey: pl.DataFrame, excluded: dict[str, int]) -> Iterator[str]:
    """Yield what makes all figures doubtful: much that was left out, and what was left out because of its clicks."""
    rows, lost = int(survey["rows"].sum()), sum(excluded.values())
    if lost > MUCH * rows:
        most = max(excluded, key=lambda reason: excluded[reason])
        yield (
            f"{lost:,} of {rows:,} rows ({100 * lost / rows:.0f} %) were left out, {excluded[most]:,} of them: {most}. "
            "The figures are of the others alone"
        )
    kept = survey.filter(fault="").row(0, named=True)
    if excluded.get(NO_CLICK) and kept["clicks"] == kept["stated"]:
        yield (
            f"{excluded[NO_CLICK]:,} rows without a value of clicked were left out, and all others are "
            "clicked: empty probably means not clicked, which --missing-click 0 states"
        )
    rate = kept["clicks"] / max(kept["stated"], 1)
    for each in survey.filter(pl.col("fault") != "", pl.col("stated") >= 20).iter_rows(named=True):
        spread = (rate * (1 - rate) / each["stated"]) ** 0.5
        if abs(each["clicks"] / each["stated"] - rate) > max(5 * spread, 0.05):
            yield (
                f"What was left out depends on clicks: {100 * each['clicks'] / each['stated']:.0f} % of the rows with "
                f"{each['fault']} are clicked, {100 * rate:.0f} % of the others"
            )
