"""The rows of a store in SQLite: the statements that read and write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

from .errors import StoreCorruptError
from .files import beside
from .sqlite_history import SQLiteHistory
from .sqlite_schema import NEWEST_DELETED, QUERY_TABLES
from .store import LogEntry, StoredCounts, StoredDeletion, StoredKey, StoredQuery
from .tables import StoredTable

COUNTED_ROWS = 10_000
"""Rows that one statement counts."""

INSERT_ITEMS = {
    rows: "INSERT INTO items VALUES "
    + ", ".join(f"(?1, ?{i}, ?{i + 1}, ?{i + 2}, NULL)" for i in range(2, 3 * rows, 3))
    for rows in (50, 10, 1)
}
"""INSERT statements by number of rows: executing a statement costs more than a row, so rows are inserted in bulk."""

FIRST_PAGE, LOG_PAGE, SNAPSHOT_PAGE = 8, 256, 8
"""Rows that the first statement reads of a log (often they are enough), every further one, and each of the snapshots
of a query. No read transaction is open between statements."""


class SQLiteRows(SQLiteHistory):
    """Reads and writes; the subclass has the connection, the transactions and the file."""

    path: Path | None

    def one(self, sql: str, *values: object) -> object:
        """Return the first value of the first row, None if there is no row."""
        row = self.db.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def number(self, sql: str, *values: object) -> int:
        """Return the first value of the first row, 0 if there is none."""
        return int(self.one(sql, *values) or 0)  # type: ignore[call-overload, no-any-return]

    # --- moving to another store -------------------------------------------------------------------------------------

    def read_page(self, table: StoredTable, after: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        """See `MovableStore`."""
        return self.db.execute(table.select_page(after, "?"), tuple(after or ())).fetchall()

    def add_page(self, table: StoredTable, rows: list[tuple[Any, ...]]) -> None:
        """See `MovableStore`."""
        for row in rows:
            self.db.execute(table.insert("?"), row)

    def last_key(self, table: StoredTable) -> tuple[Any, ...] | None:
        """See `MovableStore`."""
        return self.db.execute(table.select_last()).fetchone()  # type: ignore[no-any-return]

    def read_meta(self, name: str) -> bytes | None:
        """See `MovableStore`."""
        return self.one("SELECT value FROM meta WHERE name = ?", name)  # type: ignore[return-value]

    def write_meta(self, name: str, value: bytes | None) -> None:
        """See `MovableStore`."""
        self.db.execute("DELETE FROM meta WHERE name = ?", (name,))
        if value is not None:
            self.db.execute("INSERT INTO meta VALUES (?, ?)", (name, value))

    def read_counters(self) -> dict[str, int]:
        """See `MovableStore`."""
        counters = dict(self.db.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        return {name: counters.get(name, 0) for name in ("queries", "deletions")}

    def write_counters(self, counters: dict[str, int]) -> None:
        """See `MovableStore`."""
        for name, value in counters.items():
            self.db.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            self.db.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, value))

    # --- counts ------------------------------------------------------------------------------------------------------

    def usage(self) -> StoredCounts:
        """See `Store`."""
        live, last = [], 0
        for low, high in self.db.execute("SELECT low, high FROM orphans ORDER BY low").fetchall():
            live.append((last, max(last, low)))
            last = max(last, high)
        live.append((last, 2**62))
        deleted = [(before[1], after[0]) for before, after in pairwise(live)]
        impressions, entries = self.count("log", live, "sum(kind = 0)", "count(*)")
        under_deletion = sum(self.count_item(each.item) for each in self.deletions())
        return StoredCounts(
            queries=self.count("queries", live)[0],
            items=self.count("items", live, "count(id)")[0],
            impressions=impressions,
            events=entries - impressions,
            snapshots=self.count("snapshots", live)[0],
            deleting=under_deletion + sum(self.count(table, deleted)[0] for table in QUERY_TABLES),
            bytes=self.number("PRAGMA page_count") * self.number("PRAGMA page_size")
            + (wal.stat().st_size if self.path and (wal := beside(self.path, "-wal")).exists() else 0),
        )

    def count(self, table: str, ranges: list[tuple[int, int]], *what: str) -> list[int]:
        """Sum aggregates, by default the number of rows, over the rows of queries with `low < number <= high`."""
        columns, _ = QUERY_TABLES[table]
        key = "(?, ?)" if "," in columns else "(?)"
        after = f"FROM {table} WHERE ({columns}) > {key}"
        page_end = f"SELECT {columns} {after} ORDER BY {columns} LIMIT 1 OFFSET {COUNTED_ROWS - 1}"
        totals = f"SELECT {', '.join(what or ['count(*)'])} {after} AND ({columns}) <= {key}"
        sums = [0] * max(1, len(what))
        for low, high in ranges:
            start, last = ((number, 2**62)[: key.count("?")] for number in (low, high))
            while start < last:
                end = min(self.db.execute(page_end, start).fetchone() or last, last)
                page = self.db.execute(totals, (*start, *end)).fetchone()
                sums = [total + (more or 0) for total, more in zip(sums, page, strict=True)]
                start = end
        return sums

    # --- queries and items -------------------------------------------------------------------------------------------

    def find_query(self, key: bytes) -> int | None:
        """See `Store`."""
        return self.number(f"SELECT number FROM queries WHERE key = ? AND number > {NEWEST_DELETED}", key) or None

    def key_of(self, number: int) -> bytes | None:
        """See `Store`."""
        sql = f"SELECT key FROM queries WHERE number = ? AND number > {NEWEST_DELETED}"
        return self.one(sql, number)  # type: ignore[return-value]

    def head(self, number: int) -> tuple[int, int, int] | None:
        """See `Store`."""
        last = "ifnull((SELECT max(seq) FROM log WHERE query = ?1), 0)"
        sql = f"SELECT base, 0, max(base, {last}) FROM queries WHERE number = ?1 AND number > {NEWEST_DELETED}"
        return self.db.execute(sql, (number,)).fetchone()  # type: ignore[no-any-return]

    def add_query(self, key: bytes) -> int:
        """See `Store`."""
        self.db.execute(f"DELETE FROM queries WHERE key = ? AND number <= {NEWEST_DELETED}", (key,))
        return int(self.db.execute("INSERT INTO queries (key) VALUES (?)", (key,)).lastrowid or 0)

    def numbers(self, after: int, limit: int) -> list[int]:
        """See `Store`."""
        sql = f"SELECT number FROM queries WHERE number > max(?, {NEWEST_DELETED}) ORDER BY number LIMIT ?"
        return [row[0] for row in self.db.execute(sql, (after, limit))]

    def delete_query(self, number: int) -> None:
        """See `Store`."""
        self.db.execute("DELETE FROM queries WHERE number = ?", (number,))
        self.db.execute("INSERT OR IGNORE INTO orphans VALUES (?, ?)", (number - 1, number))

    def reset(self) -> None:
        """See `Store`."""
        self.db.execute("INSERT OR REPLACE INTO orphans SELECT 0, max(number) FROM queries HAVING max(number) > 0")
        self.db.execute("DELETE FROM history")

    def purge(self, limit: int) -> int:
        """See `Store`. Long rows count more: deleting one touches every page of it."""
        found = self.db.execute("SELECT low, high FROM orphans LIMIT 1").fetchone()
        if found is None:
            return 0
        self.erased = True
        for table, (columns, size) in QUERY_TABLES.items():
            number = columns.split(",")[0]
            first = f"SELECT {columns} FROM {table} WHERE {number} > ? AND {number} <= ? ORDER BY {columns} LIMIT ?"
            sql = f"DELETE FROM {table} WHERE ({columns}) IN ({first})"
            if deleted := self.db.execute(sql, (*found, max(1, limit // size))).rowcount:
                return deleted
        return self.db.execute("DELETE FROM orphans WHERE low = ?", (found[0],)).rowcount

    def items(self, number: int) -> list[tuple[int, str | None, str | None]]:
        """See `Store`."""
        return self.db.execute("SELECT row, id, grp FROM items WHERE query = ? ORDER BY row", (number,)).fetchall()

    def add_items(self, number: int, items: Sequence[tuple[int, str, str | None]]) -> None:
        """See `Store`."""
        done = 0
        for rows, sql in INSERT_ITEMS.items():
            while len(items) - done >= rows:
                self.db.execute(sql, (number, *chain.from_iterable(items[done : done + rows])))
                done += rows

    def set_group(self, number: int, row: int, group: str | None) -> None:
        """See `Store`."""
        self.db.execute("UPDATE items SET grp = ? WHERE query = ? AND row = ?", (group, number, row))

    def rows_of_item(self, item: str, after: int, limit: int, deletion: int = 0) -> list[tuple[int, int]]:
        """See `Store`."""
        sql = f"""SELECT query, row FROM items WHERE id = ?1 AND query > max(?2, {NEWEST_DELETED})
                      AND EXISTS (SELECT 1 FROM queries WHERE number = items.query) AND NOT EXISTS (
                          SELECT 1 FROM exemptions WHERE deletion = ?4 AND exemptions.query = items.query)
                  ORDER BY query LIMIT ?3"""
        return self.db.execute(sql, (item, after, limit, deletion)).fetchall()

    def count_item(self, item: str) -> int:
        """See `Store`."""
        sql = f"""SELECT count(*) FROM items WHERE id = ? AND query > {NEWEST_DELETED}
                  AND EXISTS (SELECT 1 FROM queries WHERE number = items.query)"""
        return self.number(sql, item)

    def deletions(self) -> list[StoredDeletion]:
        """See `Store`."""
        return [StoredDeletion._make(row) for row in self.db.execute("SELECT * FROM deletions ORDER BY number")]

    def add_deletion(self, item: str) -> int:
        """See `Store`."""
        return int(self.db.execute("INSERT INTO deletions (item, cursor) VALUES (?, 0)", (item,)).lastrowid or 0)

    def advance_deletion(self, deletion: int, cursor: int) -> None:
        """See `Store`."""
        self.db.execute("UPDATE deletions SET cursor = ? WHERE number = ?", (cursor, deletion))

    def is_exempt(self, deletion: int, number: int) -> bool:
        """See `Store`."""
        return bool(self.one("SELECT 1 FROM exemptions WHERE deletion = ? AND query = ?", deletion, number))

    def exempt(self, deletion: int, number: int) -> None:
        """See `Store`."""
        self.db.execute("INSERT OR IGNORE INTO exemptions VALUES (?, ?)", (deletion, number))

    def finish_deletion(self, deletion: int) -> None:
        """See `Store`."""
        self.erased = True
        self.db.execute("DELETE FROM deletions WHERE number = ?", (deletion,))
        self.db.execute("DELETE FROM exemptions WHERE deletion = ?", (deletion,))

    def erase_item(self, number: int, row: int, seq: int) -> None:
        """See `Store`."""
        self.erased = True
        sql = "UPDATE items SET id = NULL, grp = NULL, erased = ? WHERE query = ? AND row = ?"
        self.db.execute(sql, (seq, number, row))

    def free_rows(self, number: int, until: int) -> list[int]:
        """See `Store`."""
        sql = "DELETE FROM items WHERE query = ? AND erased <= ? RETURNING row"
        return [row[0] for row in self.db.execute(sql, (number, until)).fetchall()]

    # --- log, candidates, snapshots ----------------------------------------------------------------------------------

    def append(self, number: int, entry: LogEntry, revision: int | None = None) -> None:
        """See `Store`."""
        self.db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (number, *entry))

    def set_bits(self, number: int, seq: int, bits: bytes) -> None:
        """See `Store`."""
        self.db.execute("UPDATE log SET bits = ? WHERE query = ? AND seq = ?", (bits, number, seq))

    def entry(self, number: int, seq: int) -> LogEntry | None:
        """See `Store`."""
        sql = "SELECT seq, time, kind, version, candidates, body, bits FROM log WHERE query = ? AND seq = ?"
        row = self.db.execute(sql, (number, seq)).fetchone()
        return None if row is None else LogEntry._make(row)

    def prefetch(self, places: Sequence[tuple[int, int]]) -> None:
        """See `Store`."""

    def log(self, number: int, after: int, until: int | None = None) -> Iterator[LogEntry]:
        """See `Store`."""
        sql = """SELECT seq, time, kind, version, candidates, body, bits FROM log
                 WHERE query = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"""
        last = 2**62 if until is None else until
        for limit in chain([FIRST_PAGE], repeat(LOG_PAGE)):
            rows = self.db.execute(sql, (number, after, last, limit)).fetchall()
            yield from map(LogEntry._make, rows)
            if len(rows) < limit:
                return
            after = rows[-1][0]

    def log_descending(self, number: int, until: int) -> Iterator[LogEntry]:
        """See `Store`."""
        sql = """SELECT seq, time, kind, version, candidates, body, bits FROM log
                 WHERE query = ? AND seq <= ? ORDER BY seq DESC"""
        return map(LogEntry._make, self.db.execute(sql, (number, until)))

    def add_candidates(self, number: int, candidates: int, n: int, body: bytes) -> None:
        """See `Store`."""
        self.db.execute("INSERT INTO candidates VALUES (?, ?, ?, ?)", (number, candidates, n, body))

    def candidates(self, number: int, candidates: int) -> tuple[int, bytes]:
        """See `Store`."""
        sql = "SELECT n, body FROM candidates WHERE query = ? AND number = ?"
        row = self.db.execute(sql, (number, candidates)).fetchone()
        if row is None:
            raise StoreCorruptError(f"query {number}: candidate set {candidates} is missing")
        return row[0], row[1]

    def delete_candidates(self, number: int, until: int) -> list[int]:
        """See `Store`."""
        sql = "DELETE FROM candidates WHERE query = ? AND number <= ? RETURNING number"
        return [row[0] for row in self.db.execute(sql, (number, until)).fetchall()]

    def add_snapshot(self, number: int, seq: int, time: int, body: bytes) -> None:
        """See `Store`."""
        self.db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (number, seq, time, body))

    def delete_snapshot(self, number: int, seq: int) -> None:
        """See `Store`."""
        self.db.execute("DELETE FROM snapshots WHERE query = ? AND seq = ?", (number, seq))

    def load(self, number: int, until: int | None = None) -> StoredQuery | None:
        """See `Store`."""
        key = self.key_of(number)
        if key is None:
            return None
        seq, body = self.snapshot(number, until) or (0, None)
        return StoredQuery(key, self.base(number), 0, self.items(number), body, self.log(number, seq, until))

    def snapshot(self, number: int, until: int | None = None) -> tuple[int, bytes] | None:
        """See `Store`."""
        sql = "SELECT seq, body FROM snapshots WHERE query = ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
        last = 2**62 if until is None else until
        return self.db.execute(sql, (number, last)).fetchone()  # type: ignore[no-any-return]

    def snapshots(self, number: int, after: int = -1, until: int | None = None) -> Iterator[tuple[int, bytes]]:
        """See `Store`."""
        sql = "SELECT seq, body FROM snapshots WHERE query = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        last = 2**62 if until is None else until
        while rows := self.db.execute(sql, (number, after, last, SNAPSHOT_PAGE)).fetchall():
            yield from rows
            after = rows[-1][0]

    def base(self, number: int) -> int:
        """See `Store`."""
        return self.number("SELECT base FROM queries WHERE number = ?", number)

    def compact(self, number: int, seq: int, before: int, limit: int) -> int:
        """See `Store`."""
        self.db.execute("UPDATE queries SET base = ? WHERE number = ?", (seq, number))
        self.db.execute("DELETE FROM snapshots WHERE query = ? AND seq < ?", (number, seq))
        oldest = "SELECT seq, time FROM log WHERE query = ?1 AND seq <= ?2 ORDER BY seq LIMIT ?4"
        last = self.number(f"SELECT max(seq) FROM ({oldest}) WHERE time <= ?3", number, seq, before, limit)
        self.db.execute("DELETE FROM log WHERE query = ? AND seq <= ?", (number, last))
        return last

    # --- settings, keys, requests ------------------------------------------------------------------------------------

    def versions(self) -> list[tuple[int, bytes]]:
        """See `Store`."""
        return self.db.execute("SELECT number, body FROM versions ORDER BY number").fetchall()

    def add_version(self, number: int, body: bytes) -> None:
        """See `Store`."""
        self.db.execute("INSERT INTO versions VALUES (?, ?)", (number, body))

    def delete_versions(self, numbers: Sequence[int]) -> None:
        """See `Store`."""
        for number in numbers:
            self.db.execute("DELETE FROM versions WHERE number = ?", (number,))

    def all_keys(self) -> list[StoredKey]:
        """See `Store`."""
        return [StoredKey._make(row) for row in self.db.execute("SELECT * FROM keys ORDER BY created, id")]

    def add_key(self, key: StoredKey) -> None:
        """See `Store`."""
        self.db.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?)", key)

    def revoke_key(self, id: str, time: int) -> None:
        """See `Store`."""
        self.db.execute("UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL", (time, id))

    def find_request(self, number: int, key: bytes) -> tuple[bytes, int] | None:
        """See `Store`."""
        sql = "SELECT digest, seq FROM requests WHERE query = ? AND key = ?"
        return self.db.execute(sql, (number, key)).fetchone()  # type: ignore[no-any-return]

    def add_request(self, number: int, key: bytes, digest: bytes, seq: int, time: int) -> None:
        """See `Store`."""
        self.db.execute(
            "INSERT OR REPLACE INTO requests (query, key, digest, seq, time) VALUES (?, ?, ?, ?, ?)",
            (number, key, digest, seq, time),
        )

    def expire_requests(self, before: int) -> int | None:
        """See `Store`. Only the first rows are considered: they are the oldest, and there is no index by time."""
        first = "FROM requests ORDER BY number LIMIT 2000"
        self.db.execute(f"DELETE FROM requests WHERE time < ? AND number IN (SELECT number {first})", (before,))
        return self.one(f"SELECT min(time) FROM (SELECT time {first})")  # type: ignore[return-value]
