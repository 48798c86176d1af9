"""Counting: from the rows of a log, which may exceed memory, to counts of (query, item, rank).

The log is read three times, each time as a stream: for what is wrong with its rows, for the ranks that each impression
filled, and for the counts. Everything after that works on the counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import polars as pl

from ..arrays import IntArray
from ..errors import DataError
from .cleaning import FAULTS, typed_rows
from .click_log import ClickLog
from .folding import RunningSums, batches, collect
from .log_counts import LogCounts, query_key

__all__ = ["count_log"]

WORD = 60
"""Ranks that one whole number represents by its bits, as sums of powers of 2."""

CHECKED_ROWS = 10_000_000
"""Rows up to which lists are searched for an item that occurs twice; that takes more memory than all the rest."""


def count_log(log: ClickLog, first_rank: int | None = None) -> LogCounts:
    """Count how often each item was shown and clicked at each rank, and how many ranks impressions filled.

    Parameters
    ----------
    log
        The log; it is read here.
    first_rank
        The number of the first rank, 0 or 1; by default 1, and a log with a rank of 0 is refused.

    Returns
    -------
    LogCounts

    Raises
    ------
    DataError
        If the log cannot be read, holds no usable row, or has a rank of 0 while `first_rank` is not given.
    """
    rows = typed_rows(log.rows, log.name, first_rank)
    overview = survey(rows, log, first_rank)
    good = rows.filter(fault=0).drop("fault").with_columns(query_key=query_key())
    schema = good.collect_schema()
    keys = impression_keys(schema.names())
    if log.single:
        lists = Lists.of_single_rows(good, overview["top"], log)
    elif keys:
        lists = Lists.of_impressions(good.with_columns(list_key=list_key(keys)), keys, overview, log)
    else:
        lists = Lists.of_ranks(good, log)
    tally = Tally.of(lists.rows, log)
    excluded = {FAULTS[code - 1]: n for code, n in overview["faults"].items() if n} | lists.excluded
    return LogCounts.build(
        tally.cells,
        tally.names,
        tally.groups,
        log.candidates,
        patterns=lists.patterns,
        slots=lists.slots,
        visits=lists.visits,
        rows=overview["rows"],
        excluded={reason: int(n) for reason, n in excluded.items() if n},
        quality=log.quality | {"impressions": "identified" if lists.identified else "inferred"} | lists.quality,
        period=overview["period"],
    )


def list_key(keys: list[str]) -> pl.Expr:
    """Return a hash of the query and of the columns that identify an impression: 64 bits instead of texts."""
    parts = [pl.col(each).hash(seed) for seed, each in enumerate(keys, start=2)]
    return reduce(lambda a, b: a ^ b, parts, query_key())


@dataclasses.dataclass(frozen=True, eq=False)
class Tally:
    """Counts of each pair of a query and an item at each rank, the names of the pairs, and their groups.

    A pair is a hash of 64 bits: two pairs of a million have the same one with a probability of one in ten million.
    """

    cells: pl.DataFrame
    names: pl.DataFrame
    groups: pl.DataFrame | None

    @classmethod
    def of(cls, rows: pl.LazyFrame, log: ClickLog) -> Tally:
        """Count the rows in one pass."""
        schema = rows.collect_schema()
        values = counted_values(schema)
        how = {"merit_low": "min", "merit_high": "max", "graded": "first"}
        cells = RunningSums(["pair", "rank", "pattern"], how)
        grouped = "group" in schema
        labels = ["query", "item", "group"] if grouped else ["query", "item"]
        keys = ["pair", "group_key"] if grouped else ["pair"]
        pairs = RunningSums(keys, dict.fromkeys(labels, "first"))
        hashes = {"pair": query_key() ^ pl.col("item").hash(2)}
        if grouped:
            hashes["group_key"] = pl.col("group").hash(1)
        for batch in batches(rows.select("rank", "pattern", *labels, **hashes, **values), log):
            cells.add(batch.select("pair", "rank", "pattern", *values))
            pairs.add(batch.select(*keys, *labels, n="shown"))
        found = pairs.table()
        names = found.select("pair", "query", "item").unique("pair")
        return cls(cells.table(), names, found.select("pair", "group", "n") if grouped else None)


def counted_values(schema: pl.Schema) -> dict[str, pl.Expr]:
    """Return the values of a row that are summed for each pair, rank and pattern."""
    values = {"shown": pl.lit(1, dtype=pl.UInt32), "clicks": pl.col("clicked").cast(pl.UInt32)}
    merit = "relevance" if "relevance" in schema else "grade" if "grade" in schema else ""
    if merit:
        values |= {name: pl.col(merit) for name in ("merit", "merit_low", "merit_high")}
        values["graded"] = pl.lit(merit == "grade")
    if "propensity" in schema:
        inverse = 1.0 / pl.col("propensity")
        values |= {"weight": inverse, "weighted_clicks": pl.col("clicked") * inverse}
    return values


def impression_keys(columns: list[str]) -> list[str]:
    """Return the columns that, with the query, identify an impression: its id, else the session and the time."""
    if "impression" in columns:
        return ["impression"]
    return [each for each in ("session", "stamp") if each in columns]


def survey(rows: pl.LazyFrame, log: ClickLog, first_rank: int | None) -> dict[str, Any]:
    """Read the log once: how many rows there are, what is wrong with them, the last rank and the period."""
    columns = rows.collect_schema().names()
    usable = pl.col("rank").filter(pl.col("fault") == 0)
    wanted = {"rows": pl.len(), "low": usable.min(), "top": usable.max(), "zeros": (usable == 0).sum()}
    wanted |= {f"fault{code}": (pl.col("fault") == code).sum() for code in range(1, len(FAULTS) + 1)}
    if "time" in columns:
        wanted |= {"begin": pl.col("time").min(), "end": pl.col("time").max(), "dated": pl.col("time").count()}
    found = collect(rows.select(**wanted), log).row(0, named=True)
    if not found["rows"]:
        raise DataError(f"{log.name}: the log holds no rows")
    if first_rank is None and found["zeros"]:
        raise DataError(
            f"{log.name}: {found['zeros']:,} rows have rank 0; if the first rank is number 0, say so with "
            "--first-rank 0; if these rows are to be left out, use --first-rank 1"
        )
    faults = {code: int(found[f"fault{code}"]) for code in range(1, len(FAULTS) + 1)}
    if found["top"] is None:
        code = max(faults, key=lambda each: faults[each])
        raise DataError(
            f"{log.name}: none of {found['rows']:,} rows can be used; of {faults[code]:,}: {FAULTS[code - 1]}"
        )
    period = (str(found["begin"]), str(found["end"])) if found.get("dated") else None
    return {"rows": int(found["rows"]), "top": int(found["top"]), "faults": faults, "period": period}


# --- impressions -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Lists:
    """The lists of a log: which sets of ranks impressions filled, and the rows that may be counted.

    `patterns` are the distinct sets of ranks, and a row's `pattern` is the place of its impression's set in them.
    `visits` has the impressions of each query; `slots` how often each place of its lists was at each rank: the place
    of a rank is its position among the ranks that the impression filled.
    """

    rows: pl.LazyFrame
    patterns: list[IntArray]
    visits: pl.DataFrame
    slots: pl.DataFrame
    identified: bool = True
    excluded: dict[str, int] = dataclasses.field(default_factory=dict)
    quality: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_single_rows(cls, good: pl.LazyFrame, top: int, log: ClickLog) -> Lists:
        """Describe a log in which each row is an impression with one rank."""
        counts = collect(good.group_by("query_key", "rank").agg(count=pl.len()), log)
        return cls(
            rows=good.with_columns(pattern=(pl.col("rank") - 1).cast(pl.UInt32)),
            patterns=[np.array([rank]) for rank in range(1, top + 1)],
            visits=counts.group_by("query_key").agg(visits=pl.col("count").sum()),
            slots=counts.with_columns(place=pl.lit(0, dtype=pl.Int64)),
        )

    @classmethod
    def of_ranks(cls, good: pl.LazyFrame, log: ClickLog) -> Lists:
        """Describe a log without impressions, as if lists had no gaps: the most frequent rank has the visits."""
        counts = collect(good.group_by("query_key", "rank").agg(count=pl.len()), log)
        return cls(
            rows=good.with_columns(pattern=pl.lit(0, dtype=pl.UInt32)),
            patterns=[],
            visits=counts.group_by("query_key").agg(visits=pl.col("count").max()),
            slots=counts.with_columns(place=(pl.col("rank") - 1).cast(pl.Int64)),
            identified=False,
        )

    @classmethod
    def of_impressions(cls, good: pl.LazyFrame, keys: list[str], overview: dict[str, Any], log: ClickLog) -> Lists:
        """Read the ranks of every impression; leave out impressions with a rank or an item twice."""
        words = -(-overview["top"] // WORD)
        repeats = overview["rows"] <= CHECKED_ROWS
        read = partial(read_impressions, key=keys[0], words=words, repeats=repeats, log=log)
        found = read(good)
        wrong = found.filter(is_repeated(words))
        excluded: dict[str, int] = {}
        if wrong.height:
            good, found, excluded = mend(good, found, wrong, words, read)
        rows, patterns, found = with_patterns(good, found, words)
        shapes = found.group_by("query_key", "pattern").agg(count=pl.len())
        quality: dict[str, Any] = {"lists searched for repeated items": repeats}
        if keys == ["impression"]:
            quality["impressions with several queries"] = found.height - found["own_key"].n_unique()
        gaps = [code for code, ranks in enumerate(patterns) if ranks[-1] != ranks.size]
        quality["impressions with missing ranks"] = int(shapes.filter(pl.col("pattern").is_in(gaps))["count"].sum())
        return cls(
            rows=rows,
            patterns=patterns,
            visits=shapes.group_by("query_key").agg(visits=pl.col("count").sum()),
            slots=slots_of(shapes, patterns),
            excluded=excluded,
            quality=quality,
        )


def read_impressions(rows: pl.LazyFrame, *, key: str, words: int, repeats: bool, log: ClickLog) -> pl.DataFrame:
    """Return the rows of each impression, the bits of their ranks, and the number of distinct items."""
    if repeats:
        sums = {
            "query_key": pl.col("query_key").first(),
            "own_key": pl.col(key).hash(1).first(),
            "n": pl.len().cast(pl.UInt32),
            "distinct": pl.col("item").hash(1).n_unique().cast(pl.UInt32),
        }
        bits = {name: each.sum() for name, each in rank_bits(words).items()}
        return collect(rows.group_by("list_key").agg(**sums, **bits), log)
    fold = RunningSums(["list_key"], {"query_key": "first", "own_key": "first"})
    one = pl.lit(1, dtype=pl.UInt32)
    wanted = rows.select("list_key", "query_key", own_key=pl.col(key).hash(1), n=one, distinct=one, **rank_bits(words))
    for batch in batches(wanted, log):
        fold.add(batch)
    return fold.table()


def rank_bits(words: int) -> dict[str, pl.Expr]:
    """Return powers of 2, for each 60 ranks: in the sum of n of them n bits are set if and only if all ranks differ."""
    bits = {}
    for word in range(words):
        place = pl.col("rank") - 1 - WORD * word
        here = place.is_between(0, WORD - 1)
        power = pl.lit(2.0).pow(pl.when(here).then(place).otherwise(0)).cast(pl.Int64)
        bits[f"bits{word}"] = pl.when(here).then(power).otherwise(0)
    return bits


def is_repeated(words: int) -> pl.Expr:
    """Return whether an impression has a rank or an item more than once."""
    ones = pl.sum_horizontal(pl.col(f"bits{word}").bitwise_count_ones() for word in range(words))
    return (ones != pl.col("n")) | (pl.col("distinct") != pl.col("n"))


def mend(
    good: pl.LazyFrame,
    found: pl.DataFrame,
    wrong: pl.DataFrame,
    words: int,
    read: Callable[[pl.LazyFrame], pl.DataFrame],
) -> tuple[pl.LazyFrame, pl.DataFrame, dict[str, int]]:
    """Count rows that were logged twice once, and leave out impressions that still repeat a rank or an item."""
    faulty = wrong.select("list_key").lazy()
    names = good.collect_schema().names()
    others = [pl.col(each).first() for each in names if each not in ("list_key", "item", "rank", "clicked")]
    again = good.join(faulty, on="list_key", how="semi")
    once = again.group_by("list_key", "item", "rank").agg(pl.col("clicked").max(), *others).select(names)
    second = read(once)
    bad = second.filter(is_repeated(words))
    kept = once.join(bad.select("list_key").lazy(), on="list_key", how="anti")
    right = good.join(faulty, on="list_key", how="anti")
    excluded = {
        "rows logged twice": int(wrong["n"].sum()) - int(second["n"].sum()),
        "rows of impressions with a rank or an item twice": int(bad["n"].sum()),
    }
    whole = found.join(wrong.select("list_key"), on="list_key", how="anti")
    return pl.concat([right, kept]), pl.concat([whole, second.filter(~is_repeated(words))]), excluded


def with_patterns(
    good: pl.LazyFrame, found: pl.DataFrame, words: int
) -> tuple[pl.LazyFrame, list[IntArray], pl.DataFrame]:
    """Assign numbers to the distinct sets of ranks, the most frequent first, and to every row that of its list."""
    bits = [f"bits{word}" for word in range(words)]
    distinct = found.group_by(bits).agg(count=pl.len()).sort(["count", *bits], descending=True)
    distinct = distinct.with_row_index("pattern")
    patterns = [
        np.array([WORD * word + bit + 1 for word, bits in enumerate(row) for bit in range(WORD) if bits >> bit & 1])
        for row in distinct.select(bits).iter_rows()
    ]
    if len(patterns) == 1:
        return good.with_columns(pattern=pl.lit(0, dtype=pl.UInt32)), patterns, found.with_columns(pattern=pl.lit(0))
    found = found.join(distinct.select("pattern", *bits), on=bits)
    unusual = found.filter(pl.col("pattern") != 0).select("list_key", "pattern")  # few in most logs: a small join
    joined = good.join(unusual.lazy(), on="list_key", how="left")
    return joined.with_columns(pl.col("pattern").fill_null(0).cast(pl.UInt32)), patterns, found


def slots_of(shapes: pl.DataFrame, patterns: list[IntArray]) -> pl.DataFrame:
    """Return how often each place of a query's lists was at each rank."""
    ranks = pl.DataFrame(
        {
            "pattern": np.repeat(np.arange(len(patterns)), [each.size for each in patterns]),
            "place": np.concatenate([np.arange(each.size) for each in patterns]),
            "rank": np.concatenate(patterns).astype(np.int32),
        }
    )
    filled = shapes.with_columns(pl.col("pattern").cast(pl.Int64)).join(ranks, on="pattern")
    return filled.group_by("query_key", "rank", "place").agg(count=pl.col("count").sum())
