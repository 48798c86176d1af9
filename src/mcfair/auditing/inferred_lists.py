"""Inferred lists: the visits and places of queries in a log that does not tell its impressions apart."""

from __future__ import annotations

import numpy as np

from ..arrays import BoolArray, IntArray

__all__ = ["inferred_slots"]


def inferred_slots(
    query: IntArray, rank: IntArray, count: IntArray, item_query: IntArray, item_count: IntArray, queries: int
) -> tuple[tuple[IntArray, IntArray, IntArray, IntArray], IntArray]:
    """Return the slots of each query and its visits, from how often each rank and each item was shown.

    No list holds an item or a rank twice, so the fewest lists that the rows can have come from are as many as the most
    frequent rank or item (König). Where lists without gaps explain the counts, the place of a row is its rank.
    Otherwise the places are filled in the order of ranks, each with one row of every list: the exposure of no lists is
    more concentrated, so that the log itself stays within reach and the floor is a lower bound.

    Parameters
    ----------
    query, rank, count : (cells,) int arrays
        How often each query showed anything at each rank, from 1, in the order of queries and ranks.
    item_query, item_count : (items,) int arrays
        How often each item was shown.
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

    >>> cells = np.array([0, 0, 0]), np.array([1, 2, 3]), np.array([1, 1, 1])
    >>> slots, visits = inferred_slots(*cells, np.array([0, 0]), np.array([2, 1]), 1)
    >>> [each.tolist() for each in slots[1:]], visits.tolist()
    ([[0, 0, 1], [1, 2, 3], [1, 1, 1]], [2])
    """
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
    reached = within(count, query)[start[of] + np.minimum(m, cells[of] - 1)]
    possible = within(item_count[order], of) <= reached
    good = np.ones(queries, np.bool_)
    good[query[~falls]] = False
    good[of[~possible]] = False
    return good


def within(values: IntArray, query: IntArray) -> IntArray:
    """Return the running sum of values in each query; these are in order."""
    total = np.cumsum(values)
    before = (total - values)[np.flatnonzero(np.diff(query, prepend=-1))]
    return np.asarray(total - np.repeat(before, np.unique(query, return_counts=True)[1]), np.int64)
