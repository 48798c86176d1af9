"""A recorded simulation: the folder that `mcfair simulate --record --out` writes for each run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from ...errors import DataError
from ...simulation.trace import Trace
from ..log import ClickLog

__all__ = ["read_recorded_run"]


def read_recorded_run(path: Path) -> ClickLog:
    """Read the lists and clicks of a run, and its candidates with their true relevance.

    Raises
    ------
    DataError
        If the run was not recorded, or continues another.
    TraceError
        If the folder does not hold a saved run.
    """
    trace = Trace.load(path)
    if trace.lists is None or trace.clicks is None or trace.arrivals is None:
        raise DataError(f"{path}: the run has no lists; simulate it with --record")
    data = trace.data
    sessions, ranks = trace.lists.shape
    query = np.repeat(trace.arrivals.astype(np.int64), ranks)
    item = trace.lists.ravel().astype(np.int64)
    filled = item >= 0
    queries = pl.Series([data.query_id(q) for q in range(data.queries)], dtype=pl.String)
    items = pl.Series(list(data.item_ids or ()), dtype=pl.String)
    rows = pl.DataFrame(
        {
            "impression": np.repeat(np.arange(sessions), ranks)[filled],
            "query": queries.gather(query[filled]),
            "item": items.gather(data.offsets[query[filled]] + item[filled]),
            "rank": np.tile(np.arange(1, ranks + 1, dtype=np.int32), sessions)[filled],
            "clicked": trace.clicks.ravel()[filled],
        }
    )
    candidates = {
        "query": queries.gather(np.repeat(np.arange(data.queries), data.sizes)),
        "item": items,
        "relevance": data.R,
    }
    if data.providers is not None:
        candidates["group"] = pl.Series(
            [data.provider_name(code) or None for code in data.providers.tolist()], dtype=pl.String
        )
    note = f"Recorded simulation of {trace.provenance['policy']}; merit is the true relevance of its data."
    if trace.state.sessions > trace.sessions:
        raise DataError(f"{path}: the run continues another one, whose lists it does not hold")
    return ClickLog(
        name=str(path),
        format="simulation",
        rows=rows.lazy(),
        candidates=pl.DataFrame(candidates),
        notes=(note,),
        files=(path / "sessions.parquet",),
    )
