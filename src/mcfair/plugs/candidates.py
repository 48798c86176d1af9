"""Tables of candidates, of any library: their columns by role, and scores as relevance."""

from __future__ import annotations

from typing import Any

import polars as pl

from ..data.frames import NAMES, as_frame, check_distinct, columns_of, no_column, numbers, texts
from ..errors import DataError

__all__ = ["VALUES", "as_relevance", "read_candidates"]

VALUES = ("relevance", "prior", "score", "prediction", "grade", "label", "rel")
"""Names of the column that says how relevant an item is, in this order of preference."""


def read_candidates(table: Any, name: str = "the table") -> pl.DataFrame:
    """Return the candidates of a table: columns query and item, and where they exist relevance and provider.

    Scores outside of 0 to 1 are scaled within each query, see `as_relevance`.

    Parameters
    ----------
    table
        A pandas, Polars or Arrow table with a column query (or qid, query_id), item (or item_id, doc_id, docno) and
        optionally relevance, prior or score, and provider (or group, seller, brand, vendor). Case does not matter.
    name
        What errors call the table.

    Raises
    ------
    DataError
        If a column is missing or a value is wrong.

    Examples
    --------
    >>> table = pl.DataFrame({"qid": ["a", "a", "a"], "docno": ["x", "y", "z"], "score": [7.5, 5.0, 2.5]})
    >>> read_candidates(table).rows()
    [('a', 'x', 1.0), ('a', 'y', 0.5), ('a', 'z', 0.0)]
    """
    table = as_frame(table, name)
    available: dict[str, str] = {}
    for column in map(str, table.columns):
        if (key := column.strip().lower()) in available and available[key] != column:
            raise DataError(
                f"{name}: columns {available[key]!r} and {column!r} differ in case only; rename one of them"
            )
        available[key] = column
    columns = {}
    for role in ("query", "item", "provider"):
        found = [available[alias] for alias in NAMES[role] if alias in available]
        if not found and role != "provider":
            raise no_column(role, list(available), name)
        if found:
            columns[role] = found[0]
    value = next((available[alias] for alias in VALUES if alias in available), None)
    read = columns_of(table, columns | ({} if value is None else {"value": value}), name)
    if read.is_empty():
        raise DataError(f"{name}: the table holds no rows")
    parts = {role: texts(read[role], columns[role], name, optional=role == "provider") for role in columns}
    check_distinct(parts["query"], parts["item"], columns["item"], name)
    if value is None:
        return pl.DataFrame(parts)
    scores = pl.Series(numbers(read["value"], value, name))
    scaled = as_relevance(parts["query"], scores)
    return pl.DataFrame({"query": parts["query"], "item": parts["item"], "relevance": scaled} | parts)


def as_relevance(queries: pl.Series, scores: pl.Series) -> pl.Series:
    """Return scores as relevance from 0 to 1.

    Scores that all lie there are returned as they are. Others are scaled within each query, so that its lowest score
    becomes 0 and its highest 1; where all are equal they become 0.5.

    Examples
    --------
    >>> as_relevance(pl.Series(["a", "a", "b"]), pl.Series([12.0, 2.0, 7.0])).to_list()
    [1.0, 0.0, 0.5]
    """
    if scores.is_between(0, 1).all():
        return scores
    low, high = pl.col("score").min().over("query"), pl.col("score").max().over("query")
    scaled = pl.when(high > low).then((pl.col("score") - low) / (high - low)).otherwise(0.5)
    halves = scores / 2  # the difference of any two is finite
    return pl.DataFrame({"query": queries, "score": halves}).select(scaled).to_series()
