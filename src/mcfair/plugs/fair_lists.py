"""Fair lists for many sessions from a table of scores, for people who want a file and not a program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..arrays import check_memory
from ..data.frames import build_dataset, read_candidates
from ..data.protocols import NO_PROTOCOL
from ..errors import DataError, SettingError
from ..policies.base import Policy
from ..simulation.run import simulate

__all__ = ["POLICY", "fair_lists"]

POLICY = "MCFair(alpha=100, guard=0.9, scale=mean)"
"""As fair as lists can be that keep 90 % of the best DCG."""

BYTES = 110
"""Memory that a place of a list takes while the table is made: its indices, and the texts of the query and the item."""


def fair_lists(
    table: Any,
    policy: Policy | str = POLICY,
    *,
    k: int = 10,
    sessions: int = 100,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    separator: str | None = None,
) -> pl.DataFrame:
    """Rank the items of every query for a number of sessions, so that exposure follows relevance over them.

    Relevance is given by the table and nothing is learnt: it is the post-processing setting of the paper. Show the
    lists of a query one after the other, and begin again after the last.

    Parameters
    ----------
    table
        A pandas, Polars or Arrow table, or the path of a CSV, TSV, Parquet or JSON-lines file, with columns query,
        item, score (or relevance, prior, grade) and optionally provider. Scores outside of 0 to 1 are scaled within
        each query: its lowest becomes 0, its highest 1.
    policy
        A policy or its text; by default every list keeps 90 % of the best DCG.
    k
        Length of a list; a query with fewer items has shorter lists.
    sessions
        Number of lists of each query.
    seed
        Seed of randomised policies.
    columns
        Columns by role, such as `{"item": "sku_code"}`, where they do not have their usual names.
    separator
        What separates the columns of a CSV file; guessed from its first line if left out.

    Returns
    -------
    polars.DataFrame
        Columns query, session (from 1), rank (from 1), item.

    Raises
    ------
    DataError
        If the table is not as expected, or has no scores.
    SettingError
        If k or sessions is below 1, or the lists would not fit in memory.

    Examples
    --------
    >>> table = pl.DataFrame({"query": ["q"] * 3, "item": ["a", "b", "c"], "score": [0.9, 0.89, 0.1]})
    >>> fair_lists(table, k=1, sessions=4)["item"].to_list()
    ['a', 'b', 'a', 'b']
    """
    for count, value in (("k", k), ("sessions", sessions)):
        if value < 1:
            raise SettingError(f"{count} = {value} is not allowed: expected at least 1")
    name = str(table) if isinstance(table, str | Path) else "the table"
    read = read_candidates(table, name, columns=columns, separator=separator)
    if "relevance" not in read.columns:  # equal scores would hide a misspelt name
        others = "prediction, relevance, prior, grade, label or rel"
        raise DataError(f"{name}: no column score (or {others}), by which items are ranked; see --column")
    data = build_dataset(read, {role: role for role in read.columns}, "scores")
    names, items = data.query_ids or (), data.item_ids or ()
    several = np.flatnonzero(data.sizes > 1)
    places = sessions * data.queries * min(k, int(data.sizes.max()))
    check_memory(BYTES * places, f"sessions = {sessions:,}: the lists of {data.queries:,} queries")
    lists = np.zeros((sessions, data.queries, min(k, int(data.sizes.max()))), np.int64)  # one item is a list
    lists[:, :, 1:] = -1
    if several.size:
        in_turn = dataclasses.replace(NO_PROTOCOL, arrivals="cyclic")
        drawn = dataclasses.replace(data.take(several), protocol=in_turn)
        steps = sessions * several.size
        trace = simulate(drawn, policy, steps=steps, k=k, seed=seed, record=True, checkpoints=1)
        shown = np.full((steps, lists.shape[2]), -1)
        shown[:, : trace.lists.shape[1]] = trace.lists[:, : lists.shape[2]]  # type: ignore[union-attr,index]
        lists[:, several] = shown.reshape(sessions, several.size, -1)
    query, session, rank = np.nonzero(lists.transpose(1, 0, 2) >= 0)
    item = data.offsets[query] + lists[session, query, rank]
    return pl.DataFrame(
        {
            "query": pl.Series(names, dtype=pl.String).gather(query),
            "session": session + 1,
            "rank": rank + 1,
            "item": pl.Series(items, dtype=pl.String).gather(item),
        }
    )
