"""Numbering: pairs of a query and an item, and queries, so that those of a bucket have consecutive numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from .encoding import Integers, KeyCodes
from .row_buckets import BUCKETS

__all__ = ["Numbering", "merged_names", "number_names"]


@dataclasses.dataclass(frozen=True, eq=False)
class Numbering:
    """Numbers of the names of a log.

    Attributes
    ----------
    pair, query : (variants,) int arrays
        The pair and the query of each variant, a (query, item, group) that occurs.
    several : (variants,) bool array
        Whether the pair of a variant has other variants, which means other groups.
    pair_query : (pairs,) int array
        The query of each pair.
    query_key : (queries,) int array
        The hash of each query.
    pairs, queries : (buckets + 1,) int arrays
        Where the pairs and queries of each bucket begin. Without impressions, buckets divide pairs alone.
    """

    pair: Integers
    query: Integers
    several: Integers
    pair_query: Integers
    query_key: Integers
    pairs: Integers
    queries: Integers


def number_names(names: pl.DataFrame, identified: bool) -> Numbering:
    """Assign numbers to the pairs and queries of a table of variants.

    Parameters
    ----------
    names
        Columns pair_key and query_key of each variant.
    identified
        Whether the log identifies impressions, so that a bucket has whole queries.

    Returns
    -------
    Numbering
    """
    query, query_key, queries = numbered(names["query_key"].to_numpy())
    pair, pair_key, pairs = numbered(
        names["pair_key"].to_numpy(), (names["query_key"] if identified else names["pair_key"]).to_numpy()
    )
    pair_query = np.empty(pair_key.size, np.int32)
    pair_query[pair] = query
    several = np.bincount(pair, minlength=pair_key.size)[pair] > 1
    return Numbering(pair, query, several, pair_query, query_key, pairs, queries)


def numbered(keys: Integers, divided: Integers | None = None) -> tuple[Integers, Integers, Integers]:
    """Assign numbers to the distinct keys, bucket by bucket.

    Returns the number of each key, the distinct keys, and where the numbers of each bucket begin.
    """
    signed = keys.view(np.int64)
    codes, first = KeyCodes(keys.size).encode(signed)
    bucket = ((keys if divided is None else divided)[first] % BUCKETS).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    place = np.empty(order.size, np.int32)
    place[order] = np.arange(order.size, dtype=np.int32)
    starts = np.concatenate(([0], np.cumsum(np.bincount(bucket, minlength=BUCKETS))))
    return place[codes], signed[first][order], starts


def merged_names(parts: Sequence[pl.DataFrame]) -> tuple[pl.DataFrame, list[Integers]]:
    """Return the variants of several parts, each once, and the number of each part's variants among them."""
    codes, kept = KeyCodes(), []
    places: list[Integers] = []
    for names in parts:
        if names.is_empty():
            places.append(np.empty(0, np.int32))
            continue
        place, fresh = codes.encode(names["key"].to_numpy().view(np.int64))
        kept.append(names[fresh])
        places.append(place)
    return pl.concat(kept), places
