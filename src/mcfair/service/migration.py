"""Moving a store to another database, page by page, resumable, and verified to the bit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol, cast

from ..errors import StoreError
from .core.verification import verify
from .stores import TABLES, Store, StoredTable, describe, open_store

MARKER = "migration"
"""Entry of the target's metadata while it is incomplete; such a store cannot be opened otherwise."""


class MovableStore(Store, Protocol):
    """A store whose rows can be read and written as they are."""

    def read_page(self, table: StoredTable, after: Sequence[Any] | None) -> list[tuple[Any, ...]]:
        """Return the first rows of a table after a key, in the order of keys."""

    def add_page(self, table: StoredTable, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to a table."""

    def last_key(self, table: StoredTable) -> tuple[Any, ...] | None:
        """Return the last key of a table, None if it is empty."""

    def read_meta(self, name: str) -> bytes | None:
        """Return an entry of the metadata."""

    def write_meta(self, name: str, value: bytes | None) -> None:
        """Set an entry of the metadata, or delete it."""

    def read_counters(self) -> dict[str, int]:
        """Return the last numbers that were given to queries and deletions."""

    def write_counters(self, counters: dict[str, int]) -> None:
        """Continue the numbers of queries and deletions after the given ones."""

    def claim_alone(self) -> None:
        """Keep every other process from writing until the store is closed; raise StoreError if one has it open."""


def migrate(source: str, target: str, progress: Callable[[int], None] = lambda rows: None) -> int:
    """Move everything in a store to another store: impression ids and API keys stay valid.

    A migration that was interrupted is continued by the same call. The target cannot be used before it is complete.

    Parameters
    ----------
    source
        The store to read; no server may use it. Nothing in it is changed, except that deletions are completed.
    target
        The store to write: a new or empty one, or the target of an interrupted migration of the same source.
    progress
        Called with the number of rows of each page that was copied or compared.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    StoreError
        If a store is in use, the target has other data, or the copy differs from the source.
    """
    with closing(opened(source)) as old, closing(opened(target)) as new:
        if old.read_meta(MARKER) is not None:
            raise StoreError(f"{describe(source)} is itself the target of an unfinished migration")
        identity = hashlib.sha256(old.secret).digest()
        begin(old, new, identity, describe(target))
        purge(old)
        for table in TABLES:
            copy(old, new, table, progress)
        rows = compare(old, new, describe(target), progress)
        if faults := verify(new):
            raise StoreError(f"{describe(source)} is inconsistent, and so is its copy: {faults[0]}")
        new.begin()
        new.write_counters(old.read_counters())
        new.write_meta(MARKER, None)
        new.commit()
    return rows


def opened(where: str) -> MovableStore:
    """Open a store for this process alone."""
    store = cast(MovableStore, open_store(where, migrating=True))
    try:
        store.claim_alone()
    except BaseException:
        store.close()
        raise
    return store


def begin(old: MovableStore, new: MovableStore, identity: bytes, name: str) -> None:
    """Mark the target as incomplete, or check that it is marked with the identity of the source."""
    marker = new.read_meta(MARKER)
    if marker is None and any(new.last_key(table) is not None for table in TABLES):
        complete = ", from a migration of this source that is complete" if new.secret == old.secret else ""
        raise StoreError(f"{name} has data already{complete}: expected a new or empty store")
    if marker not in (None, identity):
        raise StoreError(f"{name} is the target of an unfinished migration of another store")
    if marker is None:
        new.begin()
        new.write_meta(MARKER, identity)
        new.write_meta("secret", old.secret)
        new.commit()


def purge(store: MovableStore) -> None:
    """Delete the rows of deleted queries, which are not moved."""
    left = 1
    while left:
        store.begin()
        left = store.purge(1_000)
        store.commit()


def copy(old: MovableStore, new: MovableStore, table: StoredTable, progress: Callable[[int], None]) -> None:
    """Copy the rows of a table that the target does not have yet; each page is one transaction."""
    for page in pages(old, table, new.last_key(table)):
        new.begin()
        new.add_page(table, page)
        new.commit()
        progress(len(page))


def compare(old: MovableStore, new: MovableStore, name: str, progress: Callable[[int], None]) -> int:
    """Compare the digests of all rows of all tables; return the number of rows."""
    total = 0
    for table in TABLES:
        digests = []
        for store in (old, new):
            digest, rows = hashlib.sha256(), 0
            for page in pages(store, table, None):
                digest.update(repr(page).encode())
                rows += len(page)
                progress(len(page))
            digests.append((rows, digest.digest()))
        if digests[0] != digests[1]:
            raise StoreError(f"{name} differs from the source in {table.name}: remove it and migrate again")
        total += digests[0][0]
    return total


def pages(store: MovableStore, table: StoredTable, after: Sequence[Any] | None) -> Iterator[list[tuple[Any, ...]]]:
    """Iterate over the rows of a table after a key, page by page."""
    while page := [tuple(row) for row in store.read_page(table, after)]:
        yield page
        after = page[-1][: table.keys]
