"""Uncommitted writes of a shared store, buffered by query, and the rows that they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .store import LogEntry

__all__ = ["PendingWrites"]

Row = tuple[Any, ...]


class PendingWrites:
    """The uncommitted writes to one query.

    `key` is the id of a query that is new. `revision` is the one that the appended entries rely on, and `assumed_new`
    are the idempotency keys that they assume to be unused: both are checked when the first entry is written. Items are
    (id, group, entry that erased them). A snapshot that is None is deleted.
    """

    def __init__(self, number: int, key: bytes | None = None) -> None:
        self.number, self.key = number, key
        self.revision: int | None = None
        self.entries: list[LogEntry] = []
        self.bits: dict[int, bytes] = {}
        self.items: dict[int, tuple[bytes | None, bytes | None, int | None]] = {}
        self.groups: dict[int, bytes | None] = {}
        self.candidates: dict[int, tuple[int, bytes]] = {}
        self.snapshots: dict[int, tuple[int, bytes] | None] = {}
        self.requests: dict[bytes, tuple[bytes, int, int]] = {}
        self.assumed_new: set[bytes] = set()
        self.exemptions: set[int] = set()

    # --- writing -----------------------------------------------------------------------------------------------------

    def set_bits(self, seq: int, bits: bytes) -> None:
        """Update the feedback of an impression, stored or pending."""
        if self.entries and seq >= self.first:
            self.entries[seq - self.first] = self.entries[seq - self.first]._replace(bits=bits)
        else:
            self.bits[seq] = bits

    def set_group(self, row: int, group: bytes | None) -> None:
        """Set the group of an item, stored or pending."""
        if row in self.items:
            self.items[row] = self.items[row][0], group, None
        else:
            self.groups[row] = group

    def set_item(self, row: int, id: bytes | None, group: bytes | None, erased: int | None = None) -> None:
        """Set the id and the group of a row."""
        self.items[row] = id, group, erased
        self.groups.pop(row, None)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int:
        """Sequence number of the first pending entry; what is stored from there on was written by somebody else."""
        return self.entries[0].seq if self.entries else 2**62

    def between(self, after: int, until: int) -> list[LogEntry]:
        """Return the pending entries with `after < seq <= until`."""
        return [entry for entry in self.entries if after < entry.seq <= until]

    def current(self, entry: LogEntry) -> LogEntry:
        """Return a stored entry with its pending feedback."""
        bits = self.bits.get(entry.seq)
        return entry if bits is None else entry._replace(bits=bits)

    def current_items(self, stored: Iterable[Row]) -> list[Row]:
        """Return the stored rows of items, (row, id, group), with the pending changes."""
        rows = {row: (id, group) for row, id, group in stored}
        rows.update({row: (rows[row][0], group) for row, group in self.groups.items()})
        rows.update({row: (id, group) for row, (id, group, _) in self.items.items()})
        return [(row, *rows[row]) for row in sorted(rows)]

    # --- rows to write, each with the query's number first -----------------------------------------------------------

    def claim(self) -> Iterator[Row]:
        """Iterate over the first entry, with the revision that it relies on (-1 for any)."""
        for entry in self.entries[:1]:
            yield (self.number, *entry, -1 if self.revision is None else self.revision)

    def rest(self) -> Iterable[Row]:
        """Iterate over the entries after the first."""
        return ((self.number, *entry) for entry in self.entries[1:])

    def rows(self, name: str) -> Iterator[Row]:
        """Iterate over the pending rows of a table."""
        for key, value in getattr(self, name).items():
            yield (self.number, key, *value) if isinstance(value, tuple) else (self.number, key, value)
