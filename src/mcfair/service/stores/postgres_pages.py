"""All rows of a store in PostgreSQL: pages of them, to move the store to another one or from one, and their number."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from ...errors import StoreError
from .postgres_instances import PostgresInstances
from .postgres_rows import decoded
from .postgres_schema import ADMINISTRATION, QUERY_TABLES
from .store import StoredCounts
from .tables import StoredTable

BLOCK = 100
"""Query numbers that are taken from the sequence at a time; its increment."""

COUNTED_BLOCKS = 8_192
"""Blocks of a table that are counted at a time: 64 MB."""

TEXTS = {"keys": ("name",), "items": ("id", "grp"), "deletions": ("item",)}
"""Columns with texts that are stored as bytes."""


class PostgresPages(PostgresInstances):
    """The methods of a `mcfair.service.migration.MovableStore`, and `usage`."""

    counted_blocks: int

    @abstractmethod
    def write_many(self, sql: str, rows: list[list[Any]]) -> None:
        """Execute a statement for each of some rows in the write transaction."""

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
        self.announce()

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

    def usage(self) -> StoredCounts:
        """See `Store`."""
        self.flush()
        counts = {table: self.count_rows(table) for table in QUERY_TABLES}
        size = """SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                  WHERE relnamespace = 'mcfair'::regnamespace AND relkind = 'r'"""
        entries, _, impressions = counts["log"]
        under_deletion = sum(self.count_item(each.item) for each in self.deletions())
        return StoredCounts(
            queries=self.one("SELECT count(*) FROM queries"),
            items=counts["items"][0],
            impressions=impressions,
            events=entries - impressions,
            snapshots=counts["snapshots"][0],
            deleting=under_deletion + sum(each[1] for each in counts.values()),
            bytes=self.one(size),
        )

    def count_rows(self, table: str) -> list[int]:
        """Count the rows of a table: those of queries that exist, those of deleted queries, and impressions.

        A page is a range of blocks, which is read in the order of the disk. A row that is updated meanwhile may move to
        another page.
        """
        live = "count(id)" if table == "items" else "count(*)"
        kind = "kind = 0" if table == "log" else "false"
        sql = f"""SELECT {live} FILTER (WHERE orphans IS NULL), count(orphans),
                         count(*) FILTER (WHERE orphans IS NULL AND {kind})
                  FROM (SELECT * FROM {table} WHERE ctid >= %s::tid AND ctid < %s::tid) AS page
                  LEFT JOIN orphans USING (query)"""
        blocks = self.one("SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int", table)
        sums = [0, 0, 0]
        for first in range(0, blocks, self.counted_blocks):
            page = self.rows(sql, f"({first},0)", f"({first + self.counted_blocks},0)")[0]
            sums = [total + more for total, more in zip(sums, page, strict=True)]
        return sums
