"""A store in PostgreSQL, shared by any number of instances.

Optimistic concurrency on the log: an instance decides on what it has cached of a query up to entry s, and appends
entry s + 1. The primary key (query, seq) admits one writer, so a successful append proves that the cache was current.
Nothing is locked while an operation is decided. Writes are buffered by query, and `commit` writes them in three steps,
each in the order of the queries, so that two instances cannot deadlock:

1. The new queries.
2. The first new entry of each query: the claim. It succeeds only if nobody else appended, deleted or compacted, and if
   the rules and the idempotency keys are as assumed. A claim waits for one that is not decided yet.
3. Everything else of the queries whose claims succeeded.

The queries whose claims failed have lost: nothing of theirs was written, and `commit` returns their numbers. They are
decided again after `begin(lock=…)`, which locks their rows. Appending needs a share of that lock, so the second
attempt cannot lose.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...errors import StoreError
from . import pending as statements
from .arm_totals import ADD_ALL, PostgresArms, summed
from .errors import UNFINISHED, StoreConflictError, StoreUnavailableError, StoreUncertainError
from .pending import PendingWrites, Row
from .postgres_connection import Connection, Watchdog, connect, described, ended_session, translated
from .postgres_pages import BLOCK, COUNTED_BLOCKS, PostgresPages
from .postgres_schema import ADMINISTRATION, prepare
from .store import LogEntry

T = TypeVar("T")

MEASURE_SECONDS = 60.0
"""Interval at which the size of the database is measured."""


class PostgresStore(PostgresArms, PostgresPages):
    """A `Store` in PostgreSQL 15 or newer, at a URL `postgresql://…`; with `reading` for reports, read-only.

    A connection that fails is opened again by the next transaction. One that does not respond for `timeout` seconds has
    failed. `usage` reads `counted_blocks` blocks of a table at a time.
    """

    shared = True

    def __init__(
        self,
        url: str,
        *,
        reading: bool = False,
        migrating: bool = False,
        timeout: float = 90.0,
        counted_blocks: int = COUNTED_BLOCKS,
    ) -> None:
        self.url, self.reading, self.counted_blocks = url, reading, counted_blocks
        self.watchdog = Watchdog(timeout)
        self.name = described(url)
        self.db: Connection | None = None
        self.disconnect()
        self.active, self.durable = False, True
        self.changes = self.size = 0
        self.measure_at = 0.0
        self.lost_keys: list[bytes] = []
        self.clear()
        try:
            with translated():
                self.secret = prepare(self.connection, self.name, reading=reading)
                if not migrating and self.read_meta("migration") is not None:
                    raise StoreError(f"{self.name} {UNFINISHED}")
                self.generation = self.read_generation()
        except StoreUnavailableError as error:
            self.disconnect()
            raise StoreUnavailableError(f"cannot use {self.name}: {error}") from error
        except BaseException:
            self.disconnect()
            raise

    def __str__(self) -> str:
        return self.name

    # --- connection --------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection:
        """The connection; opened again if it was lost."""
        if self.db is None:
            self.db = connect(self.url, reading=self.reading)
        return self.db

    def disconnect(self) -> None:
        """Close the connection, with its transaction and locks."""
        if self.db is not None:
            self.db.close()
        self.db = None
        self.opened = self.in_read_transaction = self.leader = False
        self.block = iter(range(0))  # the server may be another one, which does not know that these numbers are taken

    def attempt(self, work: Callable[[], T]) -> T:
        """Use the connection; close it if it failed, so that the next transaction opens another one."""
        try:
            with translated(), self.watchdog.watching(self.connection):
                return work()
        except StoreUnavailableError:
            self.disconnect()
            raise

    def execute(self, sql: str, *values: Any) -> Any:
        """Execute a statement; in a pipeline its rows can be fetched after the end of it."""
        return self.connection.execute(sql.encode(), values, binary=True)

    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement and return its rows."""
        return self.attempt(lambda: self.execute(sql, *values).fetchall())

    def write(self, sql: str, *values: Any) -> list[Any]:
        """Write what is pending, execute a statement in the write transaction and return its rows, if it has any."""
        self.flush()
        self.attempt(self.open_transaction)
        self.changes += 1
        cursor = self.attempt(lambda: self.execute(sql, *values))
        return cursor.fetchall() if cursor.description is not None else []

    def write_many(self, sql: str, rows: list[list[Any]]) -> None:
        """Execute a statement for each of some rows in the write transaction."""
        self.attempt(self.open_transaction)
        self.attempt(lambda: self.connection.cursor().executemany(sql.encode(), rows))

    def close(self) -> None:
        """See `Store`."""
        self.watchdog.closed.set()
        self.disconnect()

    def check_attached(self) -> None:
        """See `Store`. Only a transaction can tell."""

    def write_lock_note(self, note: bytes) -> None:
        """See `Store`. Instances do not exclude each other, so there is no lock to annotate."""

    def maintain(self) -> None:
        """See `Store`. The server has its own maintenance, so this only measures the database, once a minute."""
        if time.monotonic() >= self.measure_at:
            self.size = int(self.one("SELECT pg_database_size(current_database())"))
            self.measure_at = time.monotonic() + MEASURE_SECONDS

    @contextlib.contextmanager
    def reader(self) -> Iterator[PostgresStore]:
        """See `Store`."""
        with contextlib.closing(PostgresStore(self.url, reading=True)) as other:
            yield other

    def backup(self, path: Path) -> None:
        """See `Store`."""
        raise StoreError(f"{self.name} is backed up with PostgreSQL's own tools, such as pg_dump or pg_basebackup")

    def check(self) -> list[str]:
        """See `Store`. The server checks its pages itself, if they have checksums."""
        return []

    # --- transactions ------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Discard what is pending."""
        self.pending: dict[int, PendingWrites] = {}
        self.numbers_by_key: dict[bytes, int] = {}
        self.prefetched: dict[int, dict[int, LogEntry]] = {}

    def begin(self, *, exclusive: bool = False, lock: Collection[int] = (), durable: bool = True) -> None:
        """See `Store`. Nothing is sent until there is something to lock, to read or to write."""
        self.active, self.durable = True, durable
        if exclusive:
            self.attempt(lambda: self.open_transaction(exclusive=True))
        elif lock:
            self.attempt(self.open_transaction)
            sql = "SELECT FROM queries WHERE number = ANY(%s::bigint[]) OR key = ANY(%s::bytea[]) ORDER BY number"
            self.rows(f"{sql} FOR UPDATE", list(lock), self.lost_keys)

    def open_transaction(self, *, exclusive: bool = False) -> None:
        """Begin a transaction on the server unless there is one."""
        if not self.opened:
            with self.connection.pipeline():
                self.send_begin(exclusive=exclusive)

    def send_begin(self, *, exclusive: bool = False) -> None:
        """Send the beginning of a transaction, unless there is one, in the pipeline of the caller."""
        if not self.opened:
            self.execute("BEGIN")
            if not self.durable:
                self.execute("SET LOCAL synchronous_commit = off")
            self.execute(f"SELECT pg_advisory_xact_lock{'' if exclusive else '_shared'}(%s)", ADMINISTRATION)
            self.opened = True

    def lock(self, number: int) -> bool:
        """See `Store`."""
        found = self.write("SELECT 1 FROM queries WHERE number = %s FOR UPDATE", number)
        self.changes -= 1  # a lock changes no row
        return bool(found)

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """See `Store`. An operation before its first lock or write reads without: the log confirms what it has read."""
        if self.active or self.in_read_transaction:
            yield
            return
        self.attempt(lambda: self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
        self.in_read_transaction = True
        try:
            yield
        finally:
            if self.in_read_transaction:
                self.in_read_transaction = False
                self.attempt(lambda: self.execute("COMMIT"))  # psycopg drops prepared statements at a ROLLBACK

    def rollback(self) -> None:
        """See `Store`."""
        self.clear()
        self.active = False
        if self.opened:
            self.opened = False
            self.attempt(lambda: self.execute("ROLLBACK"))

    def commit(self) -> Collection[int]:
        """See `Store`. If two transactions deadlock after all, the queries of this one have lost."""
        self.active = False
        touched = set(self.pending)
        if not touched and not self.opened:
            return ()
        try:
            return self.write_pending(commit=True)
        except StoreConflictError:
            self.rollback()
            if not touched:
                raise
            return touched
        finally:
            self.clear()

    def flush(self) -> None:
        """Write what is pending; raise StoreConflictError if a query has lost."""
        if self.pending:
            lost = self.write_pending(commit=False)
            self.pending, self.numbers_by_key = {}, {}
            if lost:
                raise StoreConflictError(f"queries {sorted(lost)} were changed by another instance")

    def write_pending(self, *, commit: bool) -> set[int]:
        """Write what is pending, and commit if asked to; return the numbers of the queries that have lost."""
        pending = [self.pending[number] for number in sorted(self.pending)]
        lost = self.attempt(lambda: self.claim(pending))
        self.lost_keys = [each.key for each in pending if each.number in lost and each.key is not None]
        won = [each for each in pending if each.number not in lost]
        try:
            self.attempt(lambda: self.write_rows(won, commit))
        except StoreUnavailableError as error:
            raise StoreUncertainError(str(error)) if commit and ended_session(error) else error from error
        return lost

    def claim(self, pending: list[PendingWrites]) -> set[int]:
        """Write the new queries and the first new entry of each; return the numbers of those that have lost."""
        fresh = sorted((each.key, each.number) for each in pending if each.key is not None)
        claims = [row for each in pending for row in each.claim()]
        assumed = [(each.number, key) for each in pending if each.entries for key in each.assumed_new]
        added = won = None
        if not fresh and not claims:
            return set()
        with self.connection.pipeline():
            self.send_begin()
            if fresh:
                added = self.execute(statements.ADD_QUERIES, *columns(fresh, 2))
            if claims:
                won = self.execute(statements.CLAIM, *columns(assumed, 2), *columns(claims, 9), self.generation)
        lost = {number for _, number in fresh} | {row[0] for row in claims}
        numbers = [] if won is None else [row[0] for row in won.fetchall()]
        claimed = {row[0] for row in claims}
        if added is not None:
            numbers += [row[0] for row in added.fetchall() if row[0] not in claimed]
        return lost.difference(numbers)

    def write_rows(self, won: list[PendingWrites], commit: bool) -> None:
        """Write everything else of the queries that have won."""
        snapshots = [row for each in won for row in each.rows("snapshots")]
        writes: list[tuple[str, list[Row]]] = [
            (statements.ADD_ENTRIES, [row for each in won for row in each.rest()]),
            *((sql, [row for each in won for row in each.rows(name)]) for name, sql in statements.TABLES.items()),
            (statements.DELETE_SNAPSHOTS, [row[:2] for row in snapshots if len(row) == 3]),
            (statements.ADD_SNAPSHOTS, [row for row in snapshots if len(row) == 4]),
            (statements.ADD_EXEMPTIONS, [(deletion, each.number) for each in won for deletion in each.exemptions]),
            (ADD_ALL, summed(won)),  # last: other instances wait for these rows until the commit
        ]
        with self.connection.pipeline():
            if any(rows for _, rows in writes):
                self.send_begin()
            for sql, rows in writes:
                if rows:
                    self.execute(sql, *columns(rows, len(rows[0])))
            if commit and self.opened:
                self.execute("COMMIT")
        if commit:
            self.opened = False

    # --- buffered writes ---------------------------------------------------------------------------------------------

    @property
    def assuming(self) -> bool:
        """Whether reads that the first log entry will confirm may be skipped: nothing is locked or written yet."""
        return self.active and not self.opened

    def pending_of(self, number: int) -> PendingWrites:
        """Return the buffer of a query for a write; create it if needed."""
        found = self.pending.get(number)
        if found is None:
            found = self.pending[number] = PendingWrites(number)
        return found

    def add_query(self, key: bytes) -> int:
        """See `Store`."""
        number = next(self.block, None)
        if number is None:
            first = int(self.one("SELECT nextval('query_numbers')"))
            self.block = iter(range(first + 1, first + BLOCK))
            number = first
        self.pending[number] = PendingWrites(number, key)
        self.numbers_by_key[key] = number
        self.changes += 1
        return number

    def append(self, number: int, entry: LogEntry, revision: int | None = None) -> None:
        """See `Store`."""
        pending = self.pending_of(number)
        if not pending.entries:
            pending.revision = revision
        pending.entries.append(entry)
        self.changes += 1

    def set_bits(self, number: int, seq: int, bits: bytes) -> None:
        """See `Store`."""
        self.pending_of(number).set_bits(seq, bits)
        self.changes += 1

    def add_items(self, number: int, items: Sequence[tuple[int, str, str | None]]) -> None:
        """See `Store`."""
        pending = self.pending_of(number)
        for row, id, group in items:
            pending.set_item(row, id.encode(), None if group is None else group.encode())
        self.changes += len(items)

    def set_group(self, number: int, row: int, group: str | None) -> None:
        """See `Store`."""
        self.pending_of(number).set_group(row, None if group is None else group.encode())
        self.changes += 1

    def erase_item(self, number: int, row: int, seq: int) -> None:
        """See `Store`."""
        self.pending_of(number).set_item(row, None, None, seq)
        self.changes += 1

    def exempt(self, deletion: int, number: int) -> None:
        """See `Store`."""
        self.pending_of(number).exemptions.add(deletion)
        self.changes += 1

    def add_candidates(self, number: int, candidates: int, n: int, body: bytes) -> None:
        """See `Store`."""
        self.pending_of(number).candidates[candidates] = n, body
        self.changes += 1

    def add_snapshot(self, number: int, seq: int, time: int, body: bytes) -> None:
        """See `Store`."""
        self.pending_of(number).snapshots[seq] = time, body
        self.changes += 1

    def delete_snapshot(self, number: int, seq: int) -> None:
        """See `Store`."""
        self.pending_of(number).snapshots[seq] = None
        self.changes += 1

    def add_request(self, number: int, key: bytes, digest: bytes, seq: int, time: int) -> None:
        """See `Store`."""
        self.pending_of(number).requests[key] = digest, seq, time
        self.changes += 1


def columns(rows: Iterable[Row], width: int) -> list[list[Any]]:
    """Return rows as one list for each column."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
