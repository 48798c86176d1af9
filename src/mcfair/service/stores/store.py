"""The interface of a store. A store reads and writes rows and attaches no meaning to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from .arms import ArmTotals
from .history_store import HistoryStore

KIND_IMPRESSION, KIND_FEEDBACK, KIND_DELETION, KIND_IMPORT = range(4)


class LogEntry(NamedTuple):
    """One entry of the append-only log of a query.

    `version` is that of the rules in force, `candidates` the number of the candidate set of an impression, and `bits`
    its encoded feedback, None until some arrives.
    """

    seq: int
    time: int
    kind: int
    version: int
    candidates: int | None
    body: bytes
    bits: bytes | None


class StoredKey(NamedTuple):
    """An API key: its id, the hash of its secret, its scopes and when it was created and revoked."""

    id: str
    digest: bytes
    name: str
    scopes: str
    created: int
    revoked: int | None


class StoredDeletion(NamedTuple):
    """The deletion of an item from every query: done in all queries up to the number `cursor`."""

    number: int
    item: str
    cursor: int


class StoredCounts(NamedTuple):
    """Numbers of stored rows, and the size of the storage in bytes.

    `deleting` counts the rows that deletions under way have yet to delete; the other numbers are those of queries that
    exist.
    """

    queries: int
    items: int
    impressions: int
    events: int
    snapshots: int
    deleting: int
    bytes: int


class StoredQuery(NamedTuple):
    """Everything of which the ledger of a query is made: the latest snapshot and the log entries after it."""

    key: bytes
    base: int
    revision: int
    items: list[tuple[int, str | None, str | None]]
    snapshot: bytes | None
    entries: Iterable[LogEntry]


class Store(ArmTotals, HistoryStore, Protocol):
    """Transactional storage, of one process or shared by several instances.

    Rows written between `begin` and `commit` become durable together or not at all. In each instance only one thread
    writes, and it reads its own uncommitted rows. `commit` returns once the rows survive a power failure; if it raises,
    or after `rollback`, none of them exists, unless it raises StoreUncertainError. A log grows by one entry at a time:
    a sequence number that exists is refused.

    Instances of a `shared` store do not wait for each other while they decide. Where two of them write to the same
    query, `commit` writes everything of one and nothing of the other, which learns that it has lost.

    Methods raise the errors of this package: StoreConflictError for a row that exists already, StoreUnavailableError if
    the store cannot be used now, StoreCorruptError for damaged data. `mcfair.testing.check_store` is the contract of
    all stores.
    """

    secret: bytes
    shared: bool

    size: int
    """Size of the storage in bytes, as of the last maintenance; any thread may read it."""

    @property
    def changes(self) -> int:
        """Number of rows changed so far; it shows whether a transaction wrote anything."""

    def write_lock_note(self, note: bytes) -> None:
        """Publish a note to other processes for as long as this process holds the store's lock."""

    def begin(self, *, exclusive: bool = False, lock: Collection[int] = (), durable: bool = True) -> None:
        """Begin a write transaction.

        Unless it is `durable`, its commit does not wait for the disk. A power failure may then undo it, but never
        without everything that was committed later: the next durable commit makes it durable too.

        In a shared store, `exclusive` keeps all other instances from writing until its end, and `lock` keeps them from
        writing to the queries that have lost. What is read after that cannot lose.
        """

    def commit(self) -> Collection[int]:
        """Commit everything since `begin`; return once it is durable, if it was begun so.

        Returns the numbers of the queries that have lost: nothing of theirs was committed, because another instance
        wrote to them first. What was read of them may be out of date.
        """

    def rollback(self) -> None:
        """Discard everything since `begin`."""

    def lock(self, number: int) -> bool:
        """Keep other instances from writing to a query until the end of the transaction; return whether it exists."""

    def leads(self) -> bool:
        """Return whether this instance compacts and continues deletions: one of those that share the store."""

    def wall_time(self) -> int:
        """Return the time in ns, by the clock of this machine, or by that of the database if instances share one."""

    def changed_elsewhere(self) -> bool:
        """Return whether another instance has changed rules, API keys or deletions since the last call."""

    def check_attached(self) -> None:
        """Raise StoreUnavailableError if the storage was deleted or replaced, so that commits would be lost."""

    def read_transaction(self) -> AbstractContextManager[None]:
        """Read from one committed state inside the block; inside a write transaction, from that.

        It must be short: a database cannot reclaim its write-ahead log meanwhile.
        """

    def probe(self) -> None:
        """Write a row without meaning, to test whether the store is writable."""

    def maintain(self) -> None:
        """Do periodic maintenance; called between transactions, preferably when the queue is empty."""

    def close(self) -> None:
        """Release all resources."""

    def reader(self) -> AbstractContextManager[Store]:
        """Open what is committed read-only, from any thread.

        Every call sees a committed state, not necessarily the same one: see `read_transaction`. An iterator reads page
        by page, and keeps no transaction open between pages.
        """

    def backup(self, path: Path) -> None:
        """Write a copy of what is committed now to a new file."""

    def check(self) -> list[str]:
        """Check the integrity of the storage itself; return the faults found."""

    def usage(self) -> StoredCounts:
        """Count what is stored, page by page: no transaction lasts longer than a page."""

    # Queries and their items. A query is deleted in constant time, and `purge` deletes its rows later. Until then reads
    # by its number may return them; find_query, key_of, numbers, rows_of_item and count_item treat it as gone.

    def find_query(self, key: bytes) -> int | None:
        """Return the number of a query id."""

    def key_of(self, number: int) -> bytes | None:
        """Return the id of a query number."""

    def head(self, number: int) -> tuple[int, int, int] | None:
        """Return the base of a query, its revision and the last sequence number of its log; None if it does not exist.

        The revision of a query in a shared store changes with every compaction.
        """

    def add_query(self, key: bytes) -> int:
        """Add a query; return its number, which is never reused."""

    def numbers(self, after: int, limit: int) -> list[int]:
        """Return up to `limit` query numbers above `after`, ascending."""

    def delete_query(self, number: int) -> None:
        """Delete a query, so that its id is free; `purge` deletes its rows."""

    def reset(self) -> None:
        """Delete every query that exists now; `purge` deletes their rows."""

    def purge(self, limit: int) -> int:
        """Delete up to `limit` rows of deleted queries; return the number of rows deleted, 0 if none was left.

        The log of a query is deleted before anything that its entries refer to. The work does not depend on the number
        of rows that are left.
        """

    def items(self, number: int) -> list[tuple[int, str | None, str | None]]:
        """Return the rows of a query in order, with id and group; both are None for an erased item."""

    def item(self, number: int, row: int) -> tuple[str | None, str | None] | None:
        """Return the id and the group of a row of a query; None if there is no such row."""

    def add_items(self, number: int, items: Sequence[tuple[int, str, str | None]]) -> None:
        """Add rows of a query, with id and group."""

    def set_group(self, number: int, row: int, group: str | None) -> None:
        """Set the group of an item."""

    def rows_of_item(self, item: str, after: int, limit: int, deletion: int = 0) -> list[tuple[int, int]]:
        """Return up to `limit` (query number, row) of an item in queries above `after`, ascending.

        Queries that are exempt from the given deletion are left out.
        """

    def count_item(self, item: str) -> int:
        """Return the number of queries that have an item."""

    def erase_item(self, number: int, row: int, seq: int) -> None:
        """Erase the id and the group of a row, because of the log entry `seq`."""

    def free_rows(self, number: int, until: int) -> list[int]:
        """Delete the rows of a query that were erased because of log entries up to `until`; return them.

        The work does not depend on the number of other rows.
        """

    # Deletions of items that are under way.

    def deletions(self) -> list[StoredDeletion]:
        """Return the deletions that are under way."""

    def add_deletion(self, item: str) -> int:
        """Add a deletion; return its number, which is never reused."""

    def advance_deletion(self, deletion: int, cursor: int) -> None:
        """Record that a deletion is done in all queries up to a number."""

    def is_exempt(self, deletion: int, number: int) -> bool:
        """Return whether a query is exempt from a deletion."""

    def exempt(self, deletion: int, number: int) -> None:
        """Exempt a query from a deletion: it got the item after the deletion had begun."""

    def finish_deletion(self, deletion: int) -> None:
        """Remove a deletion and its exemptions."""

    # The log of a query, its candidate sets and its snapshots.

    def load(self, number: int, until: int | None = None) -> StoredQuery | None:
        """Return what the ledger of a query is made of, up to a log entry; None if there is no such query."""

    def append(self, number: int, entry: LogEntry, revision: int | None = None) -> None:
        """Append an entry to the log of a query.

        In a shared store, the query loses if its revision is not the given one: the candidate sets that the entry
        refers to may have been deleted.
        """

    def set_bits(self, number: int, seq: int, bits: bytes) -> None:
        """Update the feedback of an impression."""

    def entry(self, number: int, seq: int) -> LogEntry | None:
        """Return one entry of the log."""

    def prefetch(self, places: Sequence[tuple[int, int]]) -> None:
        """Read entries, given by query and sequence number, that this transaction will need."""

    def log(self, number: int, after: int, until: int | None = None) -> Iterator[LogEntry]:
        """Iterate over the entries with `after < seq <= until`, in order."""

    def log_descending(self, number: int, until: int) -> Iterator[LogEntry]:
        """Iterate over the entries with `seq <= until`, newest first."""

    def count_lists(self, number: int, after: int, until: int, period: int) -> list[tuple[int, int]]:
        """Count the impressions with `after < seq <= until` by periods of so many ms; return starts and counts.

        The database counts them: reading the entries would keep the interpreter from requests.
        """

    def feedback(self, number: int, after: int, until: int) -> list[LogEntry]:
        """Return the entries with feedback and `after < seq <= until`, in order."""

    def add_candidates(self, number: int, candidates: int, n: int, body: bytes) -> None:
        """Add a candidate set."""

    def candidates(self, number: int, candidates: int) -> tuple[int, bytes]:
        """Return the size of a candidate set and its encoding."""

    def delete_candidates(self, number: int, until: int) -> list[int]:
        """Delete the candidate sets up to a number; return the numbers of those that existed."""

    def add_snapshot(self, number: int, seq: int, time: int, body: bytes) -> None:
        """Add a snapshot of a ledger."""

    def delete_snapshot(self, number: int, seq: int) -> None:
        """Delete a snapshot if it exists."""

    def snapshot(self, number: int, until: int | None = None) -> tuple[int, bytes] | None:
        """Return the latest snapshot with `seq <= until`, with its sequence number."""

    def snapshots(self, number: int, after: int = -1, until: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Iterate over the snapshots with `after < seq <= until`, with their sequence numbers, in order."""

    def base(self, number: int) -> int:
        """Return the sequence number of the base snapshot of a query: the log up to it was compacted. 0 if none.

        Some entries up to the base may still be stored, see `compact`.
        """

    def compact(self, number: int, seq: int, before: int, limit: int) -> int:
        """Turn the snapshot at `seq` into the base: delete older snapshots, and the log up to it.

        Of the log, up to `limit` of the oldest entries are deleted, none with a time after `before`. The work does not
        depend on the length of the log. Returns the sequence number of the last entry that was deleted, 0 if none.
        """

    # Versions of the rules, API keys, idempotency keys.

    def versions(self) -> list[tuple[int, bytes]]:
        """Return every version of the rules."""

    def add_version(self, number: int, body: bytes) -> None:
        """Add a version of the rules."""

    def delete_versions(self, numbers: Sequence[int]) -> None:
        """Delete versions of the rules."""

    def all_keys(self) -> list[StoredKey]:
        """Return every API key."""

    def add_key(self, key: StoredKey) -> None:
        """Add an API key."""

    def revoke_key(self, id: str, time: int) -> None:
        """Revoke an API key; a key that is revoked keeps its time of revocation."""

    def find_request(self, number: int, key: bytes) -> tuple[bytes, int] | None:
        """Return the digest and the log sequence number of the request of a query with an idempotency key.

        A shared store may assume that a key is new; if it is not, the query loses.
        """

    def add_request(self, number: int, key: bytes, digest: bytes, seq: int, time: int) -> None:
        """Add a request of a query under its idempotency key."""

    def expire_requests(self, before: int) -> int | None:
        """Delete a bounded number of the oldest requests; return the time of the oldest one left, if any."""
