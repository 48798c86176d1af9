"""Fair lists for many sessions from a table of scores, for people who want a file and not a program."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from ..data.dataset import Dataset
from ..data.frames import build_dataset
from ..data.protocols import NO_PROTOCOL
from ..errors import DataError, SettingError
from ..policies.base import Policy
from ..simulation.simulate import simulate
from .candidates import VALUES, read_candidates

__all__ = ["POLICY", "fair_lists"]

POLICY = "MCFair(alpha=100, guard=0.9, scale=mean)"
"""As fair as lists can be that keep 90 % of the best DCG."""

MOST_PLACES = 100_000_000
"""Maximum number of places of all lists, which are held in memory."""


def fair_lists(
    table: Any,
    policy: Policy | str = POLICY,
    *,
    k: int = 10,
    sessions: int = 100,
    seed: int = 0,
    name: str = "the table",
) -> pl.DataFrame:
    """Rank the items of every query for a number of sessions, so that exposure follows relevance over them.

    Relevance is given by the table and nothing is learnt: it is the post-processing setting of the paper. Show the
    lists of a query one after the other, and begin again after the last.

    Parameters
    ----------
    table
        A pandas, Polars or Arrow table with columns query, item, score (or relevance, prior, grade) and optionally
        provider. Scores outside of 0 to 1 are scaled within each query: its lowest becomes 0, its highest 1.
    policy
        A policy or its text; by default every list keeps 90 % of the best DCG.
    k
        Length of a list; a query with fewer items has shorter lists.
    sessions
        Number of lists of each query.
    seed
        Seed of randomised policies.
    name
        The name of the table in errors.

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
    read = read_candidates(table, name)
    if "relevance" not in read.columns:  # equal scores would hide a misspelt name
        others = ", ".join(each for each in VALUES if each != "score")
        raise DataError(f"{name}: no column score (or {others}), by which items are ranked")
    columns = {role: role for role in read.columns}
    data = build_dataset(read, columns, "scores")
    names, items = data.query_ids or (), data.item_ids or ()
    several = np.flatnonzero(data.sizes > 1)
    places = sessions * data.queries * min(k, int(data.sizes.max()))
    if places > MOST_PLACES:
        raise SettingError(
            f"sessions = {sessions} is not allowed: the lists of {data.queries:,} queries would have {places:,} "
            f"places, expected at most {MOST_PLACES:,}"
        )
    lists = np.zeros((sessions, data.queries, min(k, int(data.sizes.max()))), np.int64)  # one item is a list
    lists[:, :, 1:] = -1
    if several.size:
        drawn = with_cyclic_arrivals(data.take(several))
        steps = sessions * several.size
        trace = simulate(drawn, policy, steps=steps, k=k, seed=seed, record=True, checkpoints=1)
        shown = np.full((steps, lists.shape[2]), -1)
        shown[:, : trace.lists.shape[1]] = trace.lists[:, : lists.shape[2]]  # type: ignore[union-attr,index]
        lists[:, several] = shown.reshape(sessions, several.size, -1)
    query, session, rank = np.nonzero(lists.transpose(1, 0, 2) >= 0)
    item = data.offsets[query] + lists[session, query, rank]
    return pl.DataFrame(
        {
            "query": pl.Series([names[q] for q in query.tolist()], dtype=pl.String),
            "session": session + 1,
            "rank": rank + 1,
            "item": pl.Series([items[i] for i in item.tolist()], dtype=pl.String),
        }
    )


def with_cyclic_arrivals(data: Dataset) -> Dataset:
    """Return the same data, visited one query after the other."""
    return dataclasses.replace(data, protocol=dataclasses.replace(NO_PROTOCOL, arrivals="cyclic"))
