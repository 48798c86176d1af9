"""A store in SQLite, in a file or in memory.

The file is in WAL mode with `synchronous=FULL`, so a commit is an fsync of the write-ahead log; what need not be
durable is written there without one, and the next fsync includes it. Exactly one connection writes and checkpoints;
others only read. `files` has the locks that keep a second writer out. Opening a file reads its header and its schema
only, so that it takes the same time whatever the size; damage is found by reading.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import secrets
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ...errors import StoreError
from .arm_totals import SQLiteArms
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
from .sqlite_rows import SQLiteRows
from .sqlite_schema import APPLICATION, MIGRATIONS, SCHEMA, SCHEMA_VERSION

CHECKPOINT_ROWS = 2_000  # rows written since the last checkpoint that make `maintain` checkpoint again
CHECKPOINT_AT_LATEST = 8_000  # pages in the write-ahead log at which a commit checkpoints, even under load
TRUNCATE_SECONDS = 60.0  # minimum interval at which `maintain` empties a write-ahead log that has what was erased
BUSY_MILLISECONDS = 5_000
PAGE = 2_048  # bytes; commits write whole pages, and each changes a few small rows in as many pages


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


class SQLiteStore(SQLiteArms, SQLiteRows):
    """A `Store` in an SQLite file, or in memory if there is no path.

    With `reading` the file is opened read-only while another process may write. A store in memory can start as a copy
    of the database `source`. A commit checkpoints once there are `checkpoint_pages` in the write-ahead log; `maintain`
    empties it after data was erased, at most every `truncate_seconds`. A file that was created here and never committed
    to is removed at the end.
    """

    shared = False

    def __init__(
        self,
        path: Path | None,
        *,
        reading: bool = False,
        source: SQLiteConnection | None = None,
        checkpoint_pages: int | None = None,
        truncate_seconds: float = TRUNCATE_SECONDS,
        migrating: bool = False,
    ) -> None:
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
        self.durable = True  # whether a commit waits for the disk
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

    def wall_time(self) -> int:
        """See `Store`."""
        return time.time_ns()

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

    # --- transactions ------------------------------------------------------------------------------------------------

    def claim_alone(self) -> None:
        """See `MovableStore`. The lock of a file admits one process anyway."""

    def begin(self, *, exclusive: bool = False, lock: Collection[int] = (), durable: bool = True) -> None:
        """See `Store`. The write-ahead log is read up to its first gap, so no commit survives without earlier ones."""
        if self.path is None:
            self.transaction_lock.acquire()
        elif durable != self.durable:
            self.db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self.durable = durable
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
