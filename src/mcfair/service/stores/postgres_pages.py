"""Pages of a store in PostgreSQL, to move it to another store or from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import StoreError
from .postgres_rows import PostgresRows, decoded
from .postgres_schema import ADMINISTRATION
from .tables import StoredTable

__all__ = ["BLOCK", "PostgresPages"]

BLOCK = 100
"""Query numbers that are taken from the sequence at a time; its increment."""

TEXTS = {"keys": ("name",), "items": ("id", "grp"), "deletions": ("item",)}
"""Columns with texts that are stored as bytes."""


class PostgresPages(PostgresRows):
    """The methods of a `mcfair.service.migration.MovableStore`."""

    name: str

    def leads(self) -> bool:
        """See `Store`."""
        raise NotImplementedError

    def write_many(self, sql: str, rows: list[list[Any]]) -> None:
        """Execute a statement for each of some rows in the write transaction."""
        raise NotImplementedError

    def read_page(self, table: StoredTable, after: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        """See `MovableStore`."""
        texts = [name in TEXTS.get(table.name, ()) for name in table.columns]
        rows = self.rows(table.select_page(after, "%s"), *(after or ()))
        return [
            tuple(decoded(value) if text else value for value, text in zip(row, texts, strict=True)) for row in rows
        ]

    def add_page(self, table: StoredTable, rows: list[tuple[Any, ...]]) -> None:
        """See `MovableStore`."""
        texts = TEXTS.get(table.name, ())
        encoded = [
            [
                value.encode() if name in texts and value is not None else value
                for name, value in zip(table.columns, row, strict=True)
            ]
            for row in rows
        ]
        self.write_many(table.insert("%s"), encoded)

    def last_key(self, table: StoredTable) -> tuple[Any, ...] | None:
        """See `MovableStore`."""
        rows = self.rows(table.select_last())
        return rows[0] if rows else None

    def read_meta(self, name: str) -> bytes | None:
        """See `MovableStore`."""
        return self.one("SELECT value FROM meta WHERE name = %s", name)  # type: ignore[no-any-return]

    def write_meta(self, name: str, value: bytes | None) -> None:
        """See `MovableStore`."""
        self.write("DELETE FROM meta WHERE name = %s", name)
        if value is not None:
            self.write("INSERT INTO meta VALUES (%s, %s)", name, value)

    def read_counters(self) -> dict[str, int]:
        """See `MovableStore`."""
        queries, deletions = (self.one(f"SELECT last_value FROM {name}_numbers") for name in ("query", "deletion"))
        return {"queries": queries + BLOCK, "deletions": deletions}

    def write_counters(self, counters: dict[str, int]) -> None:
        """See `MovableStore`."""
        self.write("SELECT setval('query_numbers', %s, false)", counters["queries"] + 1)
        self.write("SELECT setval('deletion_numbers', %s, false)", counters["deletions"] + 1)

    def claim_alone(self) -> None:
        """See `MovableStore`. Every instance needs a share of the second lock to write."""
        if not self.leads():
            raise StoreError(f"{self.name} is in use by a server: stop it first")
        self.rows("SELECT pg_advisory_lock(%s)", ADMINISTRATION)
