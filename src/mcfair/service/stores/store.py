"""What a store must do. Nothing in here knows what the rows mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from ..wire import Usage

__all__ = ["KIND_DELETION", "KIND_FEEDBACK", "KIND_IMPRESSION", "Entry", "Store", "StoredKey"]

KIND_IMPRESSION, KIND_FEEDBACK, KIND_DELETION = range(3)


class Entry(NamedTuple):
    """An operation on a query, as its log has it; `bits` are what feedback has made known of an impression so far."""

    seq: int
    time: int
    kind: int
    version: int | None
    candidates: int | None
    body: bytes
    bits: bytes | None


class StoredKey(NamedTuple):
    """A key of the service: its id, a hash of its secret, and what it is good for."""

    id: str
    digest: bytes
    name: str
    scopes: str
    created: int
    revoked: int | None


class Store(Protocol):
    """Rows that belong together are written between `begin` and `commit`: all of them last, or none.

    One thread writes. What it wrote it reads back at once, committed or not. `commit` returns when the rows would
    survive the loss of power; if it raises, or `rollback` is called, none of them is there. A log grows by one entry at
    a time: an entry with a sequence number that is taken is refused.
    """

    secret: bytes

    @property
    def changes(self) -> int:
        """Rows changed so far, by which it can be seen whether anything was written."""

    def say(self, note: bytes) -> None:
        """Leave word for other processes for as long as this one has the store open."""

    def begin(self) -> None:
        """Begin to write."""

    def commit(self) -> None:
        """Make everything since `begin` last."""

    def rollback(self) -> None:
        """Forget everything since `begin`."""

    def probe(self) -> None:
        """Write something that changes nothing, to see whether writing works."""

    def tidy(self) -> None:
        """Do what the store needs now and then; called between commits when nobody waits."""

    def close(self) -> None:
        """Release everything."""

    def reader(self) -> AbstractContextManager[Store]:
        """Open what is committed now, for reading only, from any thread."""

    def backup(self, path: Path) -> None:
        """Write a copy of what is committed now to a new file."""

    def check(self) -> list[str]:
        """Say what is wrong with the store itself, if anything."""

    def usage(self) -> Usage:
        """Say how much is stored."""

    # Queries and their items.

    def find_query(self, key: bytes) -> int | None:
        """Find the number of a query."""

    def key_of(self, number: int) -> bytes | None:
        """Find the name of a query."""

    def add_query(self, key: bytes) -> int:
        """Give a query a number that no query had before."""

    def numbers(self, after: int, limit: int) -> list[int]:
        """Numbers of queries, ascending."""

    def delete_query(self, number: int) -> None:
        """Delete a query and everything of it."""

    def items(self, number: int) -> list[tuple[str | None, str | None]]:
        """Ids and groups of a query's rows; a deleted item has neither."""

    def add_items(self, number: int, first: int, items: Sequence[tuple[str, str | None]]) -> None:
        """Name the rows of a query from `first` on."""

    def regroup(self, number: int, row: int, group: str | None) -> None:
        """Change the group of an item."""

    def places_of(self, item: str) -> list[tuple[int, int]]:
        """Find the queries and rows in which an item stands."""

    def forget_item(self, number: int, row: int) -> None:
        """Erase the id and the group of a row."""

    # What happened to a query.

    def append(self, number: int, entry: Entry) -> None:
        """Add an entry to the log of a query."""

    def set_bits(self, number: int, seq: int, bits: bytes) -> None:
        """Change what is known of an impression."""

    def entry(self, number: int, seq: int) -> Entry | None:
        """One entry of the log."""

    def last_entry(self, number: int) -> Entry | None:
        """Find the newest entry of the log."""

    def log(self, number: int, after: int, until: int | None = None) -> Iterator[Entry]:
        """Entries with `after < seq <= until`, in order."""

    def add_candidates(self, number: int, candidates: int, n: int, body: bytes) -> None:
        """Keep the candidates of a request."""

    def candidates(self, number: int, candidates: int) -> tuple[int, bytes]:
        """How many candidates, and who."""

    def last_candidates(self, number: int) -> int:
        """Highest number of any candidates kept."""

    def add_snapshot(self, number: int, seq: int, time: int, body: bytes) -> None:
        """Keep a snapshot."""

    def drop_snapshot(self, number: int, seq: int) -> None:
        """Forget a snapshot, if there is one."""

    def snapshot(self, number: int, until: int | None = None, before: int | None = None) -> bytes | None:
        """Give the latest snapshot with `seq <= until` and `time <= before`."""

    def snapshots(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Every snapshot of a query with its sequence number, in order."""

    def base(self, number: int) -> int:
        """Sequence number up to which the log of a query has become its base, which is its first snapshot."""

    def fold(self, number: int, seq: int) -> list[int]:
        """Drop log and snapshots before `seq`, where a snapshot is; return the candidates dropped with them."""

    # Settings, keys, requests already answered.

    def versions(self) -> list[tuple[int, bytes]]:
        """Every version of the rules."""

    def add_version(self, number: int, body: bytes) -> None:
        """Keep a version of the rules."""

    def all_keys(self) -> list[StoredKey]:
        """Every key."""

    def add_key(self, key: StoredKey) -> None:
        """Keep a key."""

    def revoke_key(self, id: str, time: int) -> None:
        """Say that a key is not good any more."""

    def find_request(self, key: bytes) -> tuple[bytes, int, int] | None:
        """Digest of a request, and the query and sequence number of the answer it got."""

    def add_request(self, key: bytes, digest: bytes, number: int, seq: int, time: int) -> None:
        """Remember a request."""

    def forget_requests(self, before: int) -> int | None:
        """Forget the oldest of them, some at a time; return the time of the oldest that is left, if there is one."""

    def reset(self) -> int:
        """Delete every query; say how many there were."""
