"""Assembling: from the counts of all buckets to those of the log, in the order of the names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ..arrays import FloatArray, IntArray
from ..data.dataset import relevance
from .bucket_counts import BucketCounts, Pattern
from .cells import Cells, joined
from .cleaning import FAULTS
from .click_log import ClickLog
from .inferred_lists import inferred_slots
from .log_counts import LogCounts
from .numbering import Numbering
from .periods import Periods
from .reading import Survey
from .timed_counts import TimedCounts, slots_of_lists, slots_of_rows

__all__ = ["UNKNOWN", "assemble"]

UNKNOWN = "unknown"
"""The group of items without one: a class of its own."""


def assemble(
    log: ClickLog,
    survey: Survey,
    variants: pl.DataFrame,
    numbers: Numbering,
    parts: Sequence[BucketCounts],
    periods: Periods | None,
) -> LogCounts:
    """Bring the counts of all buckets together.

    Parameters
    ----------
    log
        The log.
    survey
        What was found while it was read.
    variants
        Every (query, item, group) that occurs.
    numbers
        Their pairs and queries.
    parts
        The counts of each bucket.
    periods
        The periods that were counted.

    Returns
    -------
    LogCounts
    """
    shapes, numbers_of = merged_patterns([part.patterns for part in parts])
    shown = joined([part.shown.recoded(codes) for part, codes in zip(parts, numbers_of, strict=True)])
    names, item_at, query_at = ordered_names(variants, numbers, shown, log.candidates)
    starts = np.flatnonzero(np.diff(names["query"].rle_id().to_numpy().astype(np.int64), prepend=-1))
    quality: dict[str, Any] = log.quality | {"impressions": "identified" if shapes or log.single else "inferred"}
    lists = joined([part.lists.recoded(codes) for part, codes in zip(parts, numbers_of, strict=True)])
    if "time" in log.rows.collect_schema():
        quality["rows without a valid time"] = survey.undated
    if shapes:
        visits = np.bincount(query_at[lists.at[0]], lists.count, starts.size)
        slots = slots_of_lists(lists, shapes, query_at)
        quality |= list_quality(lists, shapes, parts, log)
    else:
        slots = slots_of_rows(Cells(shown.at[:2], shown.count), query_at[numbers.pair_query])
        if log.single:
            visits = np.bincount(slots[0], slots[3], starts.size)
        else:
            count = np.bincount(item_at[shown.at[0]], shown.count, names.height).astype(np.int64)
            of = np.repeat(np.arange(starts.size), np.diff(np.append(starts, names.height)))
            slots, visits = inferred_slots(slots[0], slots[2], slots[3], of, count, starts.size)
    codes, labels = group_codes(names, groups_of(variants, numbers, parts), log.candidates, quality)
    excluded = {FAULTS[code - 1]: int(survey.faults[code]) for code in range(1, len(FAULTS) + 1)}
    excluded["rows logged twice"] = sum(part.twice for part in parts)
    excluded["rows of impressions with a rank or an item twice"] = sum(part.repeated for part in parts)
    return LogCounts(
        query_ids=names["query"][starts],
        item_ids=names["item"],
        offsets=np.append(starts, names.height),
        visits=visits.astype(np.int64),
        **cell_arrays(shown, item_at, log.single),
        slot_query=slots[0],
        slot_place=slots[1],
        slot_rank=slots[2],
        slot_count=slots[3],
        patterns=[np.array([rank]) for rank in range(1, survey.top + 1)] if log.single else shapes,
        groups=codes,
        group_names=labels,
        relevance=merit(names, log, parts, item_at, quality),
        timed=timed_counts(numbers, parts, periods, (shapes, numbers_of), (item_at, query_at)),
        rows=survey.rows,
        excluded={reason: n for reason, n in excluded.items() if n},
        quality=quality,
        period=(str(survey.begin), str(survey.end)) if survey.begin else None,
    )


# --- counts ----------------------------------------------------------------------------------------------------------


def merged_patterns(parts: Sequence[Sequence[Pattern]]) -> tuple[list[IntArray], list[IntArray]]:
    """Return the sets of ranks of all parts, the most frequent first, and the number of each part's sets among them."""
    known: dict[int, tuple[IntArray, int]] = {}
    for code, ranks, count in (each for patterns in parts for each in patterns):
        known[code] = (ranks, count + (known[code][1] if code in known else 0))
    order = sorted(known, key=lambda code: (-known[code][1], known[code][0].tolist()))
    place = {code: i for i, code in enumerate(order)}
    numbers = [np.array([place[code] for code, _, _ in patterns] or [0]) for patterns in parts]
    return [known[code][0] for code in order], numbers


def cell_arrays(shown: Cells, item_at: IntArray, single: bool) -> dict[str, Any]:
    """Return the arrays of counts by item, rank and pattern, in this order."""
    item, rank, pattern = item_at[shown.at[0]], shown.at[1], shown.at[2]
    order = np.lexsort((pattern, rank, item))
    item, rank, pattern = item[order], rank[order].astype(np.int64), pattern[order].astype(np.int64)
    new = (np.diff(item, prepend=-1) != 0) | (np.diff(rank, prepend=-1) != 0) | (np.diff(pattern, prepend=-1) != 0)
    first = np.flatnonzero(new)  # a large bucket was counted in pieces, whose counts are added here
    count, clicks, *others = (np.add.reduceat(each[order], first) for each in (shown.count, *shown.sums))
    weighted: list[Any] = others or [None, None, None]
    return {
        "cell_item": item[first],
        "cell_rank": rank[first] + 1,
        "cell_pattern": (rank if single else pattern)[first],
        "shown": count.astype(np.int64),
        "clicks": clicks.astype(np.int64),
        "weight": weighted[0],
        "weighted_clicks": weighted[1],
        "squared_weight": weighted[2],
    }


def timed_counts(
    numbers: Numbering,
    parts: Sequence[BucketCounts],
    periods: Periods | None,
    patterns: tuple[list[IntArray], list[IntArray]],
    places: tuple[IntArray, IntArray],
) -> TimedCounts | None:
    """Return the counts by period, None for a log without times."""
    if periods is None:
        return None
    return TimedCounts(
        periods=periods,
        shown=tuple(part.timed for part in parts),
        lists=tuple(part.timed_lists.recoded(codes) for part, codes in zip(parts, patterns[1], strict=True)),
        patterns=patterns[0],
        item_at=places[0],
        query_at=places[1],
        pair_query=numbers.pair_query,
    )


def list_quality(
    lists: Cells, patterns: list[IntArray], parts: Sequence[BucketCounts], log: ClickLog
) -> dict[str, int]:
    """Return what was found of the lists."""
    found = {}
    own = np.concatenate([part.own for part in parts])
    if "impression" in log.rows.collect_schema():
        found["impressions with several queries"] = own.size - np.unique(own).size
    gaps = np.array([ranks[-1] != ranks.size for ranks in patterns])
    found["impressions with missing ranks"] = int(lists.count[gaps[lists.at[1]]].sum())
    return found


# --- names -----------------------------------------------------------------------------------------------------------


def ordered_names(
    variants: pl.DataFrame, numbers: Numbering, shown: Cells, candidates: pl.DataFrame | None
) -> tuple[pl.DataFrame, IntArray, IntArray]:
    """Return the pairs in the order of their names, and the place of each pair and of each query by its number."""
    pairs = numbers.pair_query.size
    first = np.full(pairs, -1)
    first[numbers.pair[::-1]] = np.arange(numbers.pair.size)[::-1]
    met = np.zeros(pairs, np.bool_)
    met[shown.at[0]] = True
    kept = np.flatnonzero(met)
    names = variants.select("query", "item")[first[kept]].with_columns(pair=kept)
    if candidates is not None and "query" in candidates.columns:
        known = candidates.select("query", "item").join(names.select("query").unique(), on="query", how="semi")
        names = pl.concat([names, known.join(names, on=["query", "item"], how="anti")], how="diagonal")
    names = names.sort("query", "item").with_row_index("at")
    seen = names.filter(pl.col("pair").is_not_null())
    item_at, query_at = np.full(pairs, -1), np.full(numbers.query_key.size, -1)
    item_at[seen["pair"].to_numpy()] = seen["at"].to_numpy()
    query_at[numbers.pair_query[seen["pair"].to_numpy()]] = (names["query"].rle_id())[seen["at"]].to_numpy()
    return names, item_at, query_at


def merit(
    names: pl.DataFrame, log: ClickLog, parts: Sequence[BucketCounts], item_at: IntArray, quality: dict[str, Any]
) -> FloatArray | None:
    """Return the merit that the table of items states, else the log; None if neither does."""
    found = candidate_merit(names, log.candidates, quality)
    if found is not None or not any(part.merit is not None for part in parts):
        return found
    shown, total = np.zeros((2, item_at.size))
    low, high = np.full(item_at.size, np.inf), np.full(item_at.size, -np.inf)
    for part in parts:
        if part.merit is not None:
            here = slice(part.first_pair, part.first_pair + part.merit.shape[1])
            shown[here] += part.merit[0]
            total[here] += part.merit[1]
            low[here], high[here] = np.minimum(low[here], part.merit[2]), np.maximum(high[here], part.merit[3])
    shown, total, low, high = (each[item_at >= 0] for each in (shown, total, low, high))
    values = np.where(low == high, low, total / np.maximum(shown, 1.0))  # the former without rounding
    quality["items with several values of merit"] = int(np.count_nonzero(low < high))
    mean = np.zeros(names.height)
    mean[item_at[item_at >= 0]] = values
    return mean if "relevance" in log.rows.collect_schema() else graded(mean)


def groups_of(variants: pl.DataFrame, numbers: Numbering, parts: Sequence[BucketCounts]) -> pl.DataFrame | None:
    """Return how often each pair had each group; only pairs with several groups are counted."""
    if "group" not in variants.columns:
        return None
    count = np.where(numbers.several, 0, 1)
    for part in parts:
        count[part.variants.at[0]] += part.variants.count
    return pl.DataFrame({"pair": numbers.pair, "group": variants["group"], "n": count}).filter(pl.col("n") > 0)


def candidate_merit(names: pl.DataFrame, known: pl.DataFrame | None, quality: dict[str, Any]) -> FloatArray | None:
    """Return the relevance that a table of candidates states, 0 for items that it does not have."""
    column = next((each for each in ("relevance", "grade") if known is not None and each in known.columns), None)
    if known is None or column is None or "query" not in known.columns:
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
