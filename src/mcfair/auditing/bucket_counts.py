"""Counts of a bucket of rows: impressions that repeat a rank or an item are left out, the others are added up."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from .._jit import kernel
from ..arrays import FloatArray
from .cells import Cells, tally
from .cleaning import TOP_RANK
from .encoding import Integers, KeyCodes, grouped_rows
from .numbering import Numbering
from .periods import Periods
from .row_buckets import Columns

__all__ = ["BucketCounts", "Pattern", "count_bucket"]

Pattern = tuple[int, Integers, int]
"""A set of ranks that lists filled: its hash, the ranks, and the number of lists."""

RANK_CODES = np.random.default_rng(0).integers(0, 1 << 62, TOP_RANK + 1)
"""A random number for each rank: the exclusive or of those of a list identifies its set of ranks."""


# Its arguments are the columns of the rows and of the lists, which are many.
@kernel
def clean_lists(
    order: Integers,
    starts: Integers,
    pair: Integers,
    rank: Integers,
    clicked: Integers,
    rank_codes: Integers,
    pair_list: Integers,
    pair_row: Integers,
    rank_list: Integers,
    filled: Integers,
    shape: Integers,
    kept: Integers,
    found: Integers,
) -> None:
    """Write which rows count, how many ranks each list filled, and a hash of them; all 0 for a list that repeats one.

    A row that was logged twice counts once, with the click of either copy. `pair_list` and `rank_list` hold the last
    list in which a pair or a rank was met. `found` gets the rows logged twice, and those of lists that are left out.
    """
    for each in range(filled.shape[0]):
        size, code, bad = 0, 0, False
        for i in range(starts[each], starts[each + 1]):
            row = order[i]
            d, j = pair[row], rank[row]
            if pair_list[d] == each:
                first = pair_row[d]
                if rank[first] == j:
                    clicked[first] = max(clicked[first], clicked[row])
                    found[0] += 1
                    continue
                bad = True
            pair_list[d] = each
            pair_row[d] = row
            if rank_list[j] == each:
                bad = True
            rank_list[j] = each
            code ^= rank_codes[j]
            kept[row] = 1
            size += 1
        if bad:
            found[1] += size
            for i in range(starts[each], starts[each + 1]):
                kept[order[i]] = 0
        else:
            filled[each] = size
            shape[each] = code


def cleaned(rows: Columns, pairs: int) -> tuple[Columns, Columns, list[Pattern], tuple[int, int]]:
    """Group rows by impression and leave out what repeats.

    Returns the rows that count, with the pattern of their list; the lists; the patterns; and the numbers of rows logged
    twice and of rows of impressions that repeat a rank or an item.
    """
    size = rows["list"].size
    list_of, first = KeyCodes(size // 8 + 8).encode(rows["list"])
    order, starts = grouped_rows(list_of, first.size)
    filled, shape = np.zeros(first.size, np.int64), np.zeros(first.size, np.int64)
    kept, found = np.zeros(size, np.int8), np.zeros(2, np.int64)
    clicked = rows["clicked"].copy()
    clean_lists(
        order,
        starts,
        rows["pair"],
        rows["rank"],
        clicked,
        RANK_CODES,
        np.full(pairs, -1, np.int64),
        np.zeros(pairs, np.int64),
        np.full(TOP_RANK + 1, -1, np.int64),
        filled,
        shape,
        kept,
        found,
    )
    good = filled > 0
    codes, example, pattern, counts = np.unique(shape[good], return_index=True, return_inverse=True, return_counts=True)
    listed = np.flatnonzero(good)[example].tolist()
    ranks = [np.unique(rows["rank"][order[starts[each] : starts[each + 1]]]).astype(np.int64) for each in listed]
    patterns = list(zip(codes.tolist(), ranks, counts.tolist(), strict=True))
    of_list = np.zeros(first.size, np.int64)
    of_list[good] = pattern
    lists = {name: rows[name][first[good]] for name in rows if name in ("list", "pair", "hour")} | {"pattern": pattern}
    rows = {**rows, "clicked": clicked, "pattern": of_list[list_of]}
    if "hour" in rows:
        rows["hour"] = rows["hour"][first][list_of]  # an impression belongs to the period in which it begins
    if found.any():
        inside = kept > 0
        rows = {name: values[inside] for name, values in rows.items()}
    return rows, lists, patterns, (int(found[0]), int(found[1]))


# --- sums ------------------------------------------------------------------------------------------------------------


def counted_values(rows: Columns) -> list[Any]:
    """Return what is summed beside the impressions of a cell: clicks, and both divided by propensities."""
    values = [rows["clicked"]]
    if "propensity" in rows:
        inverse = 1.0 / rows["propensity"]
        values += [inverse, rows["clicked"] * inverse, inverse * inverse]
    return values


def merit_of_pairs(rows: Columns, pairs: int) -> FloatArray:
    """Return the rows of each pair, and the sum, the least and the greatest of their merit."""
    pair, merit = rows["pair"], rows["merit"]
    low, high = np.full(pairs, np.inf), np.full(pairs, -np.inf)
    np.minimum.at(low, pair, merit)
    np.maximum.at(high, pair, merit)
    return np.array([np.bincount(pair, minlength=pairs), np.bincount(pair, merit, pairs), low, high])


# --- a bucket --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class BucketCounts:
    """Counts of a bucket.

    Attributes
    ----------
    shown : Cells
        By pair, rank and pattern; the sums are clicks and, with propensities, those of `LogCounts`.
    lists : Cells
        Impressions by query and pattern; empty if the log does not identify impressions.
    timed, timed_lists : Cells
        The same by period: (period, pair, rank) and (period, query, pattern).
    patterns : list of Pattern
        The sets of ranks that lists filled.
    merit : (4, pairs of the bucket) array or None
        Rows, sum, least and greatest merit of each pair.
    variants : Cells
        Rows by variant, for pairs with several.
    first_pair : int
        The first pair of the bucket.
    own : int array
        Hashes of the impressions' own ids.
    twice, repeated
        Rows logged twice, and rows of impressions that repeat a rank or an item.
    """

    shown: Cells
    lists: Cells
    timed: Cells
    timed_lists: Cells
    patterns: list[Pattern]
    merit: FloatArray | None
    variants: Cells
    first_pair: int
    own: Integers
    twice: int
    repeated: int


def count_bucket(rows: Columns, bucket: int, names: Numbering, ranks: int, periods: Periods | None) -> BucketCounts:
    """Count the rows of a bucket.

    Parameters
    ----------
    rows
        Columns of the rows, as `RowBuckets` holds them.
    bucket
        The number of the bucket.
    names
        Numbers of pairs and queries.
    ranks
        The last rank of the log.
    periods
        Periods to count by, if the log has times.

    Returns
    -------
    BucketCounts
    """
    first_pair, first_query = int(names.pairs[bucket]), int(names.queries[bucket])
    pairs, queries = int(names.pairs[bucket + 1]) - first_pair, int(names.queries[bucket + 1]) - first_query
    rows = {**rows, "pair": names.pair[rows["variant"]] - first_pair}
    nothing = np.empty(0, np.int64)
    lists = {"query": nothing, "own": nothing, "pattern": nothing, "hour": nothing}
    patterns: list[Pattern] = []
    twice = repeated = 0
    if "list" in rows:
        rows, lists, patterns, (twice, repeated) = cleaned(rows, pairs)
        query = names.pair_query[lists["pair"] + first_pair]
        lists |= {"query": query - first_query, "own": lists["list"] ^ names.query_key[query]}
    several = names.several[rows["variant"]]
    size = (pairs, ranks, max(len(patterns), 1))
    at = (rows["pair"], rows["rank"] - 1, rows.get("pattern", np.zeros(rows["rank"].size, np.int64)))
    shown = tally(at, size, *counted_values(rows))
    when, times = (rows["hour"], lists["hour"]) if periods is not None else (nothing, nothing)
    periods = periods or Periods.none()
    at_time = (periods.index(when), *(each[: when.size] for each in at[:2]))
    list_at_time = (periods.index(times), lists["query"][: times.size], lists["pattern"][: times.size])
    return BucketCounts(
        shown=shown.moved(first_pair),
        lists=tally((lists["query"], lists["pattern"]), (queries, size[2])).moved(first_query),
        timed=tally(at_time, (len(periods), pairs, ranks)).moved(first_pair, axis=1).compact(),
        timed_lists=tally(list_at_time, (len(periods), queries, size[2])).moved(first_query, axis=1),
        patterns=patterns,
        merit=merit_of_pairs(rows, pairs) if "merit" in rows else None,
        variants=tally((rows["variant"][several],), (names.pair.size,)),
        first_pair=first_pair,
        own=lists["own"],
        twice=twice,
        repeated=repeated,
    )
