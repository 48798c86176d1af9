"""The rows of a store in PostgreSQL: statements that read them, and those that administration writes directly.

What is pending in the transaction of this process is laid over the stored rows. A statement that cannot do that, such
as one over many queries, writes what is pending first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from .errors import StoreCorruptError
from .pending import PendingWrites
from .postgres_history import PostgresHistory
from .postgres_schema import ADMINISTRATION, QUERY_TABLES
from .store import LogEntry, StoredDeletion, StoredKey, StoredQuery

FIRST_PAGE, LOG_PAGE, SNAPSHOT_PAGE = 16, 512, 8
"""Rows that the first statement reads of a log (often they are enough), every further one, and each of the snapshots
of a query."""

NO_LIMIT = 2**62
ENTRY = "seq, time, kind, version, candidates, body, bits"

LOAD = f"""
SELECT q.key, q.base, q.revision, s.body, i.*, l.* FROM queries q
LEFT JOIN LATERAL (SELECT seq, body FROM snapshots WHERE query = q.number AND seq <= %s ORDER BY seq DESC LIMIT 1) s
ON true
CROSS JOIN LATERAL (
    SELECT {", ".join(f"array_agg({name} ORDER BY row)" for name in ("row", "id", "grp"))} FROM items
    WHERE query = q.number) i
CROSS JOIN LATERAL (
    SELECT {", ".join(f"array_agg({name} ORDER BY seq)" for name in ENTRY.split(", "))} FROM log
    WHERE query = q.number AND seq > coalesce(s.seq, 0) AND seq <= %s) l
WHERE q.number = %s"""


class PostgresRows(PostgresHistory):
    """Reads and direct writes; the subclass has the connection and the transaction."""

    pending: dict[int, PendingWrites]
    numbers_by_key: dict[bytes, int]
    prefetched: dict[int, dict[int, LogEntry]]

    @abstractmethod
    def pending_of(self, number: int) -> PendingWrites:
        """Return the buffer of a query; create it if needed."""

    @property
    @abstractmethod
    def assuming(self) -> bool:
        """Whether reads that the first log entry will confirm may be skipped: nothing is locked or written yet."""

    def one(self, sql: str, *values: Any) -> Any:
        """Return the first value of the first row, None if there is no row."""
        rows = self.rows(sql, *values)
        return rows[0][0] if rows else None

    # --- queries and items -------------------------------------------------------------------------------------------

    def find_query(self, key: bytes) -> int | None:
        """See `Store`."""
        return self.numbers_by_key.get(key) or self.one("SELECT number FROM queries WHERE key = %s", key)

    def key_of(self, number: int) -> bytes | None:
        """See `Store`."""
        self.prefetched.pop(number, None)  # the query is being loaded: its entries must be read after that
        pending = self.pending.get(number)
        if pending is not None and pending.key is not None:
            return pending.key
        return self.one("SELECT key FROM queries WHERE number = %s", number)  # type: ignore[no-any-return]

    def head(self, number: int) -> tuple[int, int, int] | None:
        """See `Store`."""
        sql = """SELECT base, revision, greatest(base, coalesce((SELECT max(seq) FROM log WHERE query = number), 0))
                 FROM queries WHERE number = %s"""
        rows = self.rows(sql, number)
        pending = self.pending.get(number)
        if pending is None or not (pending.entries or pending.key):
            return rows[0] if rows else None
        base, revision, last = rows[0] if rows else (0, 0, 0)
        return base, revision, pending.entries[-1].seq if pending.entries else last

    def numbers(self, after: int, limit: int) -> list[int]:
        """See `Store`."""
        self.flush()
        sql = "SELECT number FROM queries WHERE number > %s ORDER BY number LIMIT %s"
        return [row[0] for row in self.rows(sql, after, limit)]

    def delete_query(self, number: int) -> None:
        """See `Store`. Without the row of the query nobody can append to its log."""
        pending = self.pending.get(number)
        if pending is not None and pending.key is not None and not pending.entries:
            del self.pending[number], self.numbers_by_key[pending.key]
            return
        self.write("DELETE FROM queries WHERE number = %s", number)
        self.write("INSERT INTO orphans VALUES (%s) ON CONFLICT DO NOTHING", number)
        self.announce()

    def reset(self) -> None:
        """See `Store`. Emptying the tables takes the same time whatever they hold, and nothing is left to purge."""
        self.write("SELECT pg_advisory_xact_lock(%s)", ADMINISTRATION)
        self.write(f"TRUNCATE queries, orphans, requests, history, {', '.join(QUERY_TABLES)}")
        self.announce()

    def purge(self, limit: int) -> int:
        """See `Store`. Long rows count more: deleting one touches every page of it."""
        number = self.one("SELECT query FROM orphans ORDER BY query LIMIT 1")
        if number is None:
            return 0
        for table, size in QUERY_TABLES.items():
            first = f"SELECT ctid FROM {table} WHERE query = %s LIMIT %s"
            sql = f"DELETE FROM {table} WHERE ctid = ANY(ARRAY({first})) RETURNING 1"
            if deleted := self.write(sql, number, max(1, limit // size)):
                return len(deleted)
        return len(self.write("DELETE FROM orphans WHERE query = %s RETURNING 1", number))

    def items(self, number: int) -> list[tuple[int, str | None, str | None]]:
        """See `Store`."""
        stored = self.rows("SELECT row, id, grp FROM items WHERE query = %s ORDER BY row", number)
        pending = self.pending.get(number)
        if pending is not None:
            stored = pending.current_items(stored)
        return [(row, decoded(id), decoded(group)) for row, id, group in stored]

    def free_rows(self, number: int, until: int) -> list[int]:
        """See `Store`."""
        sql = "DELETE FROM items WHERE query = %s AND erased <= %s RETURNING row"
        return [row[0] for row in self.write(sql, number, until)]

    def rows_of_item(self, item: str, after: int, limit: int, deletion: int = 0) -> list[tuple[int, int]]:
        """See `Store`."""
        self.flush()
        sql = """SELECT query, row FROM items JOIN queries ON number = query
                 WHERE id = %s AND query > %s AND NOT EXISTS (
                     SELECT 1 FROM exemptions WHERE deletion = %s AND exemptions.query = items.query)
                 ORDER BY query LIMIT %s"""
        return self.rows(sql, item.encode(), after, deletion, limit)

    def count_item(self, item: str) -> int:
        """See `Store`."""
        self.flush()
        return int(self.one("SELECT count(*) FROM items JOIN queries ON number = query WHERE id = %s", item.encode()))

    # --- deletions ---------------------------------------------------------------------------------------------------

    def deletions(self) -> list[StoredDeletion]:
        """See `Store`."""
        rows = self.rows("SELECT number, item, cursor FROM deletions ORDER BY number")
        return [StoredDeletion(number, str(decoded(item)), cursor) for number, item, cursor in rows]

    def add_deletion(self, item: str) -> int:
        """See `Store`."""
        sql = "INSERT INTO deletions VALUES (nextval('deletion_numbers'), %s, 0) RETURNING number"
        number = self.write(sql, item.encode())[0][0]
        self.announce()
        return int(number)

    def advance_deletion(self, deletion: int, cursor: int) -> None:
        """See `Store`."""
        self.write("UPDATE deletions SET cursor = %s WHERE number = %s", cursor, deletion)

    def is_exempt(self, deletion: int, number: int) -> bool:
        """See `Store`."""
        pending = self.pending.get(number)
        if pending is not None and deletion in pending.exemptions:
            return True
        return bool(self.rows("SELECT 1 FROM exemptions WHERE deletion = %s AND query = %s", deletion, number))

    def finish_deletion(self, deletion: int) -> None:
        """See `Store`."""
        self.write("DELETE FROM deletions WHERE number = %s", deletion)
        self.write("DELETE FROM exemptions WHERE deletion = %s", deletion)
        self.announce()

    @abstractmethod
    def announce(self) -> None:
        """Announce to the other instances that rules, API keys or deletions have changed."""

    # --- log, candidates, snapshots ----------------------------------------------------------------------------------

    def entry(self, number: int, seq: int) -> LogEntry | None:
        """See `Store`."""
        pending = self.pending.get(number)
        if pending is not None and seq >= pending.first:
            return next(iter(pending.between(seq - 1, seq)), None)
        found = self.prefetched.get(number, {}).get(seq)
        if found is None:
            rows = self.rows(f"SELECT {ENTRY} FROM log WHERE query = %s AND seq = %s", number, seq)
            if not rows:
                return None
            found = LogEntry._make(rows[0])
        return found if pending is None else pending.current(found)

    def prefetch(self, places: Sequence[tuple[int, int]]) -> None:
        """See `Store`."""
        sql = f"""SELECT query, {ENTRY} FROM log JOIN unnest(%s::bigint[], %s::bigint[]) AS wanted (number, place)
                  ON query = wanted.number AND seq = wanted.place"""
        for number, *entry in self.rows(sql, [number for number, _ in places], [seq for _, seq in places]):
            self.prefetched.setdefault(number, {})[entry[0]] = LogEntry._make(entry)

    def log(self, number: int, after: int, until: int | None = None) -> Iterator[LogEntry]:
        """See `Store`."""
        sql = f"SELECT {ENTRY} FROM log WHERE query = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
        last, pending, first = NO_LIMIT if until is None else until, self.pending.get(number), after
        stored = last if pending is None else min(last, pending.first - 1)
        for limit in chain([FIRST_PAGE], repeat(LOG_PAGE)):
            rows = self.rows(sql, number, first, stored, limit)
            entries = map(LogEntry._make, rows)
            yield from entries if pending is None else map(pending.current, entries)
            if len(rows) < limit:
                break
            first = rows[-1][0]
        if pending is not None:
            yield from pending.between(after, last)

    def log_descending(self, number: int, until: int) -> Iterator[LogEntry]:
        """See `Store`."""
        sql = f"SELECT {ENTRY} FROM log WHERE query = %s AND seq <= %s ORDER BY seq DESC LIMIT %s"
        pending, last = self.pending.get(number), until
        if pending is not None:
            yield from reversed(pending.between(0, until))
            last = min(until, pending.first - 1)
        for limit in chain([FIRST_PAGE], repeat(LOG_PAGE)):
            rows = self.rows(sql, number, last, limit)
            entries = map(LogEntry._make, rows)
            yield from entries if pending is None else map(pending.current, entries)
            if len(rows) < limit:
                return
            last = rows[-1][0] - 1

    def candidates(self, number: int, candidates: int) -> tuple[int, bytes]:
        """See `Store`."""
        pending = self.pending.get(number)
        if pending is not None and candidates in pending.candidates:
            return pending.candidates[candidates]
        rows = self.rows("SELECT n, body FROM candidates WHERE query = %s AND number = %s", number, candidates)
        if not rows:
            raise StoreCorruptError(f"query {number}: candidate set {candidates} is missing")
        return rows[0][0], rows[0][1]

    def delete_candidates(self, number: int, until: int) -> list[int]:
        """See `Store`."""
        sql = "DELETE FROM candidates WHERE query = %s AND number <= %s RETURNING number"
        return [row[0] for row in self.write(sql, number, until)]

    def load(self, number: int, until: int | None = None) -> StoredQuery | None:
        """See `Store`. One statement sees one state, and takes one round trip; but it does not see what is pending."""
        if number in self.pending:
            key, head = self.key_of(number), self.head(number)
            if key is None or head is None:
                return None
            seq, body = self.snapshot(number, until) or (0, None)
            return StoredQuery(key, *head[:2], self.items(number), body, self.log(number, seq, until))
        self.prefetched.pop(number, None)  # its entries must be read after it was loaded
        last = NO_LIMIT if until is None else until
        rows = self.rows(LOAD, last, last, number)
        if not rows:
            return None
        key, base, revision, body, *columns = rows[0]
        items, entries = (zip(*(each or () for each in part), strict=True) for part in (columns[:3], columns[3:]))
        return StoredQuery(
            key,
            base,
            revision,
            [(row, decoded(id), decoded(group)) for row, id, group in items],
            body,
            map(LogEntry._make, entries),
        )

    def snapshot(self, number: int, until: int | None = None) -> tuple[int, bytes] | None:
        """See `Store`."""
        last, deleted = NO_LIMIT if until is None else until, [0]
        pending = self.pending.get(number)
        if pending is not None:
            own = [seq for seq, row in pending.snapshots.items() if row is not None and seq <= last]
            if own and (row := pending.snapshots[max(own)]) is not None:
                return max(own), row[1]
            deleted, last = [0, *pending.snapshots], min(last, pending.first - 1)
        sql = """SELECT seq, body FROM snapshots WHERE query = %s AND seq <= %s AND seq <> ALL(%s::bigint[])
                 ORDER BY seq DESC LIMIT 1"""
        rows = self.rows(sql, number, last, deleted)
        return rows[0] if rows else None

    def snapshots(self, number: int, after: int = -1, until: int | None = None) -> Iterator[tuple[int, bytes]]:
        """See `Store`."""
        self.flush()
        sql = "SELECT seq, body FROM snapshots WHERE query = %s AND seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
        last = NO_LIMIT if until is None else until
        while rows := self.rows(sql, number, after, last, SNAPSHOT_PAGE):
            yield from rows
            after = rows[-1][0]

    def base(self, number: int) -> int:
        """See `Store`."""
        return self.one("SELECT base FROM queries WHERE number = %s", number) or 0

    def compact(self, number: int, seq: int, before: int, limit: int) -> int:
        """See `Store`. Call `lock` first: appending reads the base under a lock that this update alone ignores."""
        self.write("UPDATE queries SET base = %s, revision = revision + 1 WHERE number = %s", seq, number)
        self.write("DELETE FROM snapshots WHERE query = %s AND seq < %s", number, seq)
        oldest = "SELECT seq, time FROM log WHERE query = %s AND seq <= %s ORDER BY seq LIMIT %s"
        last = self.one(f"SELECT max(seq) FROM ({oldest}) AS oldest WHERE time <= %s", number, seq, limit, before) or 0
        self.write("DELETE FROM log WHERE query = %s AND seq <= %s", number, last)
        return int(last)

    # --- settings, keys, requests ------------------------------------------------------------------------------------

    def versions(self) -> list[tuple[int, bytes]]:
        """See `Store`."""
        return self.rows("SELECT number, body FROM versions ORDER BY number")

    def add_version(self, number: int, body: bytes) -> None:
        """See `Store`."""
        self.write("INSERT INTO versions VALUES (%s, %s)", number, body)
        self.announce()

    def delete_versions(self, numbers: Sequence[int]) -> None:
        """See `Store`."""
        self.write("DELETE FROM versions WHERE number = ANY(%s::bigint[])", list(numbers))

    def all_keys(self) -> list[StoredKey]:
        """See `Store`."""
        rows = self.rows("SELECT id, digest, name, scopes, created, revoked FROM keys ORDER BY created, id")
        return [StoredKey(id, digest, name.decode(), *rest) for id, digest, name, *rest in rows]

    def add_key(self, key: StoredKey) -> None:
        """See `Store`."""
        self.write("INSERT INTO keys VALUES (%s, %s, %s, %s, %s, %s)", *key._replace(name=key.name.encode()))  # type: ignore[arg-type]
        self.announce()

    def revoke_key(self, id: str, time: int) -> None:
        """See `Store`."""
        self.write("UPDATE keys SET revoked = %s WHERE id = %s AND revoked IS NULL", time, id)
        self.announce()

    def find_request(self, number: int, key: bytes) -> tuple[bytes, int] | None:
        """See `Store`.

        Most keys are new. The first log entry that is written to the query confirms it, so nothing is read here.
        """
        pending = self.pending.get(number)
        if pending is not None and key in pending.requests:
            return pending.requests[key][:2]
        if self.assuming:
            self.pending_of(number).assumed_new.add(key)
            return None
        rows = self.rows("SELECT digest, seq FROM requests WHERE query = %s AND key = %s", number, key)
        return rows[0] if rows else None

    def expire_requests(self, before: int) -> int | None:
        """See `Store`."""
        self.write(
            """DELETE FROM requests WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM requests WHERE time < %s ORDER BY time LIMIT 2000))""",
            before,
        )
        return self.one("SELECT min(time) FROM requests")  # type: ignore[no-any-return]


def decoded(text: bytes | None) -> str | None:
    """Decode a stored text."""
    return None if text is None else text.decode()
