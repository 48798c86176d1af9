"""Recorded lists as a run of TREC."""

from __future__ import annotations

import numpy as np
import polars as pl

from ..arrays import CountArray
from ..data.dataset import Dataset

__all__ = ["run_table"]


def run_table(data: Dataset, lists: CountArray, arrivals: CountArray, visit: int) -> pl.DataFrame:
    """Return the list of one visit to each query as a table: query_id, doc_id, rank and a score that falls with it."""
    sessions = pl.DataFrame({"session": np.arange(arrivals.size), "query": arrivals.astype(np.int64)})
    chosen = sessions.group_by("query", maintain_order=True).agg(pl.col("session").get(visit, null_on_oob=True))
    chosen = chosen.drop_nulls().sort("query")
    queries, shown = chosen["query"].to_numpy(), lists[chosen["session"].to_numpy()]
    row, rank = np.nonzero(shown >= 0)
    places = shown[row, rank]
    ids = data.item_ids
    names = places.astype(str) if ids is None else [ids[i] for i in (data.offsets[queries[row]] + places).tolist()]
    return pl.DataFrame(
        {
            "query_id": pl.Series([data.query_id(q) for q in queries[row].tolist()], dtype=pl.String),
            "doc_id": pl.Series(list(map(str, names)), dtype=pl.String),
            "rank": rank + 1,
            "score": (lists.shape[1] - rank).astype(np.float64),
        }
    )
