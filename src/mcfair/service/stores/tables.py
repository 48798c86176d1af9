"""The tables that every store has, as rows of plain values, to move them from one store to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class StoredTable(NamedTuple):
    """A table: its columns, how many of them are its primary key, and how many rows are read at a time."""

    name: str
    columns: tuple[str, ...]
    keys: int
    page: int

    def select_page(self, after: Sequence[Any] | None, mark: str) -> str:
        """Return a statement that reads the rows after a key, given the mark of a parameter."""
        key = ", ".join(self.columns[: self.keys])
        where = "" if after is None else f"WHERE ({key}) > ({first_marks(self.keys, mark)}) "
        return f"SELECT {', '.join(self.columns)} FROM {self.name} {where}ORDER BY {key} LIMIT {self.page}"

    def select_last(self) -> str:
        """Return a statement that reads the last key."""
        keys = self.columns[: self.keys]
        order = ", ".join(f"{key} DESC" for key in keys)
        return f"SELECT {', '.join(keys)} FROM {self.name} ORDER BY {order} LIMIT 1"

    def insert(self, mark: str) -> str:
        """Return a statement that inserts a row."""
        names = ", ".join(self.columns)
        return f"INSERT INTO {self.name} ({names}) VALUES ({first_marks(len(self.columns), mark)})"


def first_marks(number: int, mark: str) -> str:
    """Return a list of marks of parameters."""
    return ", ".join([mark] * number)


TABLES = (
    StoredTable("versions", ("number", "body"), 1, 500),
    StoredTable("keys", ("id", "digest", "name", "scopes", "created", "revoked"), 1, 500),
    StoredTable("queries", ("number", "key", "base"), 1, 2_000),
    StoredTable("items", ("query", "row", "id", "grp", "erased"), 2, 2_000),
    StoredTable("deletions", ("number", "item", "cursor"), 1, 500),
    StoredTable("exemptions", ("deletion", "query"), 2, 2_000),
    StoredTable("log", ("query", "seq", "time", "kind", "version", "candidates", "body", "bits"), 2, 1_000),
    StoredTable("candidates", ("query", "number", "n", "body"), 2, 100),
    StoredTable("snapshots", ("query", "seq", "time", "body"), 2, 50),
    StoredTable("arms", ("experiment", "arm", "bucket", "lists", "clicks", "ndcg", "unfairness"), 3, 2_000),
    StoredTable("requests", ("query", "key", "digest", "seq", "time"), 2, 2_000),
    StoredTable("summaries", ("query", "booked", "seq", "version", "time", "visits", "body"), 1, 500),
    StoredTable("history", ("resolution", "start", "lists", "clicks", "retracted", "body"), 2, 100),
)
"""Every table with data, deleted queries that are still to be purged aside. Pages are short where rows may be long."""
