"""A recorded simulation: the folder that `mcfair simulate --record --out` writes for each run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from ...errors import DataError
from ...simulation.trace import Trace
from ..log import ClickLog


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
    if trace.state.sessions > trace.sessions:
        raise DataError(f"{path}: the run continues another one, whose lists it does not hold")
    data, filled = trace.data, trace.lists >= 0
    queries = pl.Series([data.query_id(q) for q in range(data.queries)], dtype=pl.String)
    names = pl.DataFrame(
        {
            "query": queries.gather(np.repeat(np.arange(data.queries), data.sizes)),
            "item": pl.Series(list(data.item_ids or ()), dtype=pl.String),
        }
    )
    session, place = np.nonzero(filled)
    shown = names[data.offsets[trace.arrivals[session]] + trace.lists[filled]]
    rows = shown.with_columns(
        impression=pl.Series(session), rank=pl.Series(place + 1), clicked=pl.Series(trace.clicks[filled])
    )
    candidates = names.with_columns(relevance=pl.Series(data.R))
    if data.providers is not None:
        groups = [data.provider_name(code) or None for code in data.providers.tolist()]
        candidates = candidates.with_columns(group=pl.Series(groups, dtype=pl.String))
    note = f"Recorded simulation of {trace.provenance['policy']}; merit is the true relevance of its data."
    return ClickLog(
        name=str(path),
        format="simulation",
        rows=rows.lazy(),
        candidates=candidates,
        notes=(note,),
        files=(path / "sessions.parquet",),
    )
