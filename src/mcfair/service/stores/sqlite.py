"""A store in SQLite, in a file or in memory.

The file is in WAL mode with `synchronous=FULL`, so a commit is an fsync of the write-ahead log. Exactly one connection
writes and checkpoints; others only read. `files` has the locks that keep a second writer out. Opening a file reads its
header and its schema only, so that it takes the same time whatever the size; damage is found by reading.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import secrets
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

from ...errors import StoreError
from .backups import write_copy
from .connection import SQLiteConnection, connect
from .errors import UNFINISHED, StoreCorruptError, StoreUnavailableError
from .files import (
    Inode,
    StoreLock,
    beside,
    check_regular,
    descriptors,
    inode_of,
    locate,
    read_lock_note,
    refuse_network,
)
from .store import LogEntry, StoredCounts, StoredDeletion, StoredKey, StoredQuery
from .tables import StoredTable

__all__ = ["SCHEMA_VERSION", "SQLiteStore", "open_reader", "open_store"]

APPLICATION = 0x6D634661  # "mcFa": identifies our files to us and to `file`
SCHEMA_VERSION = 3

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE keys (id TEXT PRIMARY KEY, digest BLOB NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,
                   created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE queries (number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE,
                      base INTEGER NOT NULL DEFAULT 0);
CREATE TABLE orphans (low INTEGER PRIMARY KEY, high INTEGER NOT NULL);
CREATE TABLE items (query INTEGER NOT NULL, row INTEGER NOT NULL, id TEXT, grp TEXT, erased INTEGER,
                    PRIMARY KEY (query, row)) WITHOUT ROWID;
CREATE INDEX items_by_id ON items (id) WHERE id IS NOT NULL;
CREATE INDEX items_by_erasure ON items (query, erased) WHERE erased IS NOT NULL;
CREATE TABLE deletions (number INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT NOT NULL, cursor INTEGER NOT NULL);
CREATE TABLE exemptions (deletion INTEGER NOT NULL, query INTEGER NOT NULL, PRIMARY KEY (deletion, query))
    WITHOUT ROWID;
CREATE TABLE log (query INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, kind INTEGER NOT NULL,
                  version INTEGER NOT NULL, candidates INTEGER, body BLOB NOT NULL, bits BLOB, PRIMARY KEY (query, seq))
    WITHOUT ROWID;
CREATE TABLE candidates (query INTEGER NOT NULL, number INTEGER NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
                         PRIMARY KEY (query, number)) WITHOUT ROWID;
CREATE TABLE snapshots (query INTEGER NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, body BLOB NOT NULL,
                        PRIMARY KEY (query, seq)) WITHOUT ROWID;
CREATE TABLE requests (number INTEGER PRIMARY KEY, query INTEGER NOT NULL, key BLOB NOT NULL, digest BLOB NOT NULL,
                       seq INTEGER NOT NULL, time INTEGER NOT NULL, UNIQUE (query, key));
"""

QUERY_TABLES = {
    "log": ("query, seq", 1), "candidates": ("query, number", 16), "snapshots": ("query, seq", 16),
    "items": ("query, row", 1), "queries": ("number", 1),
}  # fmt: skip
"""Tables with rows of queries, in the order in which they are purged: their primary keys, and how large their rows are.
Idempotency keys are digests; those of a deleted query expire like all others."""

NEWEST_DELETED = "coalesce((SELECT high FROM orphans WHERE low = 0), 0)"
"""The last number that a reset deleted: queries up to it do not exist, even if their rows are still stored."""

COUNTED_ROWS = 10_000
"""Rows that one statement counts."""

MIGRATIONS: dict[int, str] = {}
"""SQL that migrates each schema version to the next."""

INSERT_ITEMS = {
    rows: "INSERT INTO items VALUES "
    + ", ".join(f"(?1, ?{i}, ?{i + 1}, ?{i + 2}, NULL)" for i in range(2, 3 * rows, 3))
    for rows in (50, 10, 1)
}
"""INSERT statements by number of rows: executing a statement costs more than a row, so rows are inserted in bulk."""

CHECKPOINT_ROWS = 2_000  # rows written since the last checkpoint that make `maintain` checkpoint again
CHECKPOINT_AT_LATEST = 8_000  # pages in the write-ahead log at which a commit checkpoints, even under load
TRUNCATE_SECONDS = 60.0  # minimum interval at which `maintain` empties a write-ahead log that has what was erased
BUSY_MILLISECONDS = 5_000
PAGE = 2_048  # bytes; commits write whole pages, and each changes a few small rows in as many pages

FIRST_PAGE, LOG_PAGE, SNAPSHOT_PAGE = 8, 256, 8
"""Rows that the first statement reads of a log (often they are enough), every further one, and each of the snapshots
of a query. No read transaction is open between statements."""


def open_store(where: str | Path, *, migrating: bool = False) -> SQLiteStore:
    """Open a store for writing: `sqlite:///PATH` (three slashes relative, four absolute), a path, or `memory:`."""
    return SQLiteStore(None if where == "memory:" else locate(where), migrating=migrating)


@contextlib.contextmanager
def open_reader(where: str | Path) -> Iterator[SQLiteStore]:
    """Open what a store has committed read-only; a server may keep writing to it.

    Every statement sees the newest committed state, so that a reader that stops in the middle does not keep the
    write-ahead log from being checkpointed. `SQLiteStore.read_transaction` reads several rows from one state.
    """
    store = SQLiteStore(locate(where), reading=True)
    try:
        yield store
    finally:
        store.close()


class SQLiteStore:
    """A `Store` in an SQLite file, or in memory if there is no path.

    With `reading` the file is opened read-only while another process may write. A store in memory can start as a copy
    of the database `source`. A commit checkpoints once there are `checkpoint_pages` in the write-ahead log; `maintain`
    empties it after data was erased, at most every `truncate_seconds`. A file that was created here and never committed
    to is removed at the end.
    """

    shared = False

    def __init__(
        self, path: Path | None, *, reading: bool = False, source: SQLiteConnection | None = None,
        checkpoint_pages: int | None = None, truncate_seconds: float = TRUNCATE_SECONDS, migrating: bool = False,
    ) -> None:  # fmt: skip
        self.migrating = migrating
        self.checkpoint_pages = CHECKPOINT_AT_LATEST if checkpoint_pages is None else checkpoint_pages
        self.truncate_seconds, self.truncated_at = truncate_seconds, time.monotonic()
        self.erased = True  # perhaps by a process that crashed before it emptied the log
        self.path, self.reading = None if path is None else locate(path), reading
        self.file_lock: StoreLock | None = None
        self.inode: Inode | None = None
        self.size = 0
        self.files: dict[str, Inode | None] = {}
        self.checkpointed = 0
        self.used = False
        # Serialises copies of a store in memory with its transactions. SQLite does that itself for files.
        self.transaction_lock = threading.Lock()
        with contextlib.ExitStack() as undo:
            undo.callback(self.release)
            self.claim()
            self.db = connect(self.path, reading=reading)
            if self.inode is not None:
                descriptors.connected(self.inode)
            undo.callback(self.disconnect)
            if source is not None:
                source.backup(self.db)
            self.prepare()
            undo.pop_all()

    def __str__(self) -> str:
        return "in memory" if self.path is None else str(self.path)

    # --- opening -----------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Lock the file for writing, or check that it can be read."""
        path = self.path
        if path is None:
            return
        if not self.reading:
            refuse_network(path)
            self.file_lock = StoreLock(path)
            self.files[str(path)] = self.inode = self.file_lock.inode
            return
        try:
            check_regular(path, path.stat())
        except (FileNotFoundError, NotADirectoryError):
            raise StoreError(f"{path} does not exist") from None
        except OSError as error:
            raise StoreError(f"cannot open {path}: {error.strerror}") from error
        self.files[str(path)] = self.inode = inode_of(path)

    def prepare(self) -> None:
        """Validate the file, create or migrate its tables, and read the secret."""
        try:
            application, version = self.number("PRAGMA application_id"), self.number("PRAGMA user_version")
            empty = self.number("SELECT count(*) FROM sqlite_master") == 0
            if not empty and application != APPLICATION:
                raise StoreError(f"{self.path} is a database of another program: expected one written by mcfair")
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer mcfair (schema {version}; this one supports up to "
                    f"{SCHEMA_VERSION}): update mcfair"
                )
            if not empty and version < SCHEMA_VERSION and version not in MIGRATIONS:
                raise StoreError(
                    f"{self.path} was written by an older mcfair (schema {version}), and this one supports only schema "
                    f"{SCHEMA_VERSION}: start with a new store"
                )
            if self.reading:
                if empty or version < SCHEMA_VERSION:
                    raise StoreError(
                        f"{self.path} is empty or was written by an older mcfair: `mcfair serve` creates or migrates it"
                    )
            else:
                self.open_for_writing(empty, version)
            self.check_tables()
            meta = dict(self.db.execute("SELECT name, value FROM meta").fetchall())
            if "migration" in meta and not self.migrating:
                raise StoreError(f"{self.path} {UNFINISHED}")
            self.secret = meta["secret"]
        except (StoreCorruptError, KeyError) as error:
            raise StoreCorruptError(f"{self.path} is damaged ({error}): restore a backup") from error
        except StoreUnavailableError as error:
            raise StoreUnavailableError(f"cannot use {self.path}: {error}") from error

    def check_tables(self) -> None:
        """Raise StoreCorruptError if a table is missing."""
        stored = {row[0] for row in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
        missing = sorted(set(re.findall(r"CREATE TABLE (\w+)", SCHEMA)) - stored)
        if missing:
            raise StoreCorruptError(f"the table {missing[0]} is missing")

    def open_for_writing(self, empty: bool, version: int) -> None:
        """Configure durability, and create or migrate the tables."""
        if self.path is not None:
            if empty:
                self.db.execute(f"PRAGMA page_size = {PAGE}")
            mode = self.one("PRAGMA journal_mode = WAL")
            if mode != "wal":
                raise StoreError(f"{self.path} cannot be written safely: journal mode is {mode!r}, expected 'wal'")
            self.db.execute("PRAGMA synchronous = FULL")
            self.db.execute("PRAGMA secure_delete = ON")  # deleted rows are overwritten, not only unlinked
            self.db.execute(f"PRAGMA wal_autocheckpoint = {self.checkpoint_pages}")
        self.db.execute("BEGIN IMMEDIATE")
        if empty:
            for statement in SCHEMA.split(";"):
                self.db.execute(statement)
            self.db.execute(f"PRAGMA application_id = {APPLICATION}")
            self.db.execute("INSERT INTO meta VALUES ('secret', ?)", (secrets.token_bytes(32),))
        else:
            for step in range(version, SCHEMA_VERSION):
                for statement in MIGRATIONS[step].split(";"):
                    self.db.execute(statement)
        self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self.db.execute("COMMIT")
        if self.path is not None:
            for suffix in ("-wal", "-shm"):
                self.files[f"{self.path}{suffix}"] = inode_of(f"{self.path}{suffix}")

    def check_attached(self) -> None:
        """See `Store`. SQLite itself would go on writing to files that have no name any more."""
        for path, inode in self.files.items():
            if inode_of(path) != inode:
                raise StoreUnavailableError(
                    f"{path} was deleted or replaced while in use: put the file back, or stop the service and restore "
                    "a backup"
                )
        if self.file_lock is not None:
            self.file_lock.check_content()

    def disconnect(self) -> None:
        """Close the connection, unless closing it would touch the files of another database."""
        try:
            if not self.reading:
                self.check_attached()
            self.db.close()  # closing the last connection checkpoints and removes the write-ahead log
        except StoreUnavailableError:
            # The write-ahead log would be removed by its name, which may be that of a new database by now. The
            # connection stays open until the process ends: a reference that is never dropped prevents its closing.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.db))
        if self.inode is not None:
            descriptors.disconnected(self.inode)

    def release(self) -> None:
        """Release the locks, and remove a file that was created here but never used."""
        lock, self.file_lock = self.file_lock, None
        if lock is not None:
            lock.write_note(b"")
            if lock.created and not self.used and inode_of(lock.path) == lock.inode:
                for suffix in ("", "-wal", "-shm", ".lock"):
                    beside(lock.path, suffix).unlink(missing_ok=True)
            lock.release()

    def write_lock_note(self, note: bytes) -> None:
        """See `Store`. Only the owner of the file can read the note."""
        if self.file_lock is not None:
            self.file_lock.write_note(note)

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

    def claim_alone(self) -> None:
        """See `MovableStore`. The lock of a file admits one process anyway."""

    # --- transactions ------------------------------------------------------------------------------------------------

    def begin(self, *, exclusive: bool = False, lock: Collection[int] = ()) -> None:
        """See `Store`."""
        if self.path is None:
            self.transaction_lock.acquire()
        self.db.execute("BEGIN IMMEDIATE")

    def commit(self) -> Collection[int]:
        """See `Store`. Rows that were written to files without a name are lost, so they are not committed."""
        self.check_attached()
        self.db.execute("COMMIT")
        self.used = True
        if self.path is None:
            self.transaction_lock.release()
        self.check_attached()
        return ()

    def lock(self, number: int) -> bool:
        """See `Store`."""
        return True

    def leads(self) -> bool:
        """See `Store`."""
        return True

    def changed_elsewhere(self) -> bool:
        """See `Store`."""
        return False

    def rollback(self) -> None:
        """See `Store`."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
            if self.path is None:
                self.transaction_lock.release()

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """See `Store`."""
        if self.db.in_transaction:
            yield
            return
        self.db.execute("BEGIN")
        try:
            yield
        finally:
            self.rollback_reading()

    def rollback_reading(self) -> None:
        """End a read transaction, which SQLite may have ended itself after an error."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def probe(self) -> None:
        """See `Store`."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES ('probe', ?)", (secrets.token_bytes(8),))

    @property
    def changes(self) -> int:
        """See `Store`."""
        return self.db.total_changes

    def maintain(self) -> None:
        """Checkpoint the write-ahead log into the database if it has grown; empty it after data was erased.

        A log that is only checkpointed keeps its content until it is overwritten. Commits to an empty log are slower,
        because the file grows, so it is emptied only if it has to be.
        """
        if self.path is None:
            return
        self.size = sum(each.stat().st_size for suffix in ("", "-wal") if (each := beside(self.path, suffix)).exists())
        if self.erased and time.monotonic() - self.truncated_at >= self.truncate_seconds:
            self.truncate_log()
        elif self.changes - self.checkpointed > CHECKPOINT_ROWS:
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self.checkpointed = self.changes

    def truncate_log(self) -> None:
        """Checkpoint and empty the write-ahead log; only checkpoint while somebody reads, and do not wait for that."""
        self.db.execute("PRAGMA busy_timeout = 0")
        try:
            busy = self.number("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.db.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        self.checkpointed = self.changes
        if not busy:
            self.erased, self.truncated_at = False, time.monotonic()

    def close(self) -> None:
        """See `Store`."""
        self.disconnect()
        self.release()

    @contextlib.contextmanager
    def reader(self) -> Iterator[SQLiteStore]:
        """See `Store`."""
        if self.path is not None:
            self.check_attached()
            with open_reader(self.path) as other:
                yield other
        else:
            with self.transaction_lock:
                other = SQLiteStore(None, source=self.db)
            try:
                yield other
            finally:
                other.close()

    def backup(self, path: Path) -> None:
        """See `Store`."""
        write_copy(self.db, path)

    def check(self) -> list[str]:
        """See `Store`.

        The check is one statement over the whole file. It is left out while a server has the file open: it would keep
        the write-ahead log from being checkpointed all that time.
        """
        if self.path is not None and self.reading and read_lock_note(self.path) is not None:
            return []
        try:
            rows = [str(row[0]) for row in self.db.execute("PRAGMA integrity_check(10)").fetchall()]
        except StoreCorruptError as error:
            return [str(error)]
        return [] if rows == ["ok"] else [" ".join(row.split()) for row in rows]

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
