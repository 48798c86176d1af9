"""Uncommitted writes of a store in PostgreSQL, buffered by query, and the statements that write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .arms import ArmCounter, ArmKey
from .store import LogEntry

Row = tuple[Any, ...]

ADD_QUERIES = """
INSERT INTO queries (key, number) SELECT * FROM unnest(%b::bytea[], %b::bigint[]) AS new (key, number) ORDER BY key
ON CONFLICT (key) DO NOTHING RETURNING number"""

CLAIM = """
WITH used AS (
    SELECT query FROM unnest(%b::bigint[], %b::bytea[]) AS assumed (number, name)
    JOIN requests ON query = assumed.number AND key = assumed.name)
INSERT INTO log
SELECT c.query, c.seq, c.time, c.kind, c.version, c.candidates, c.body, c.bits
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bigint[], %b::bigint[], %b::bytea[],
            %b::bytea[], %b::bigint[]) AS c (query, seq, time, kind, version, candidates, body, bits, revision)
JOIN queries q ON q.number = c.query AND (c.revision = -1 OR q.revision = c.revision)
WHERE (SELECT number FROM generation) = %s AND c.query NOT IN (SELECT query FROM used)
AND (c.seq = q.base + 1 OR EXISTS (SELECT 1 FROM log p WHERE p.query = c.query AND p.seq = c.seq - 1))
ORDER BY c.query FOR KEY SHARE OF q
ON CONFLICT DO NOTHING RETURNING query"""
"""The entry before the first new one must exist: a database that lost commits must not get a log with a gap."""

ADD_ENTRIES = """
INSERT INTO log SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bigint[],
                                     %b::bigint[], %b::bytea[], %b::bytea[])"""

TABLES = {
    "items": """INSERT INTO items SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[], %b::bytea[],
                                                       %b::bigint[])
                ON CONFLICT (query, row) DO UPDATE
                SET id = EXCLUDED.id, grp = EXCLUDED.grp, erased = EXCLUDED.erased""",
    "groups": """UPDATE items SET grp = new.grp FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[])
                 AS new (query, row, grp) WHERE items.query = new.query AND items.row = new.row""",
    "bits": """UPDATE log SET bits = new.bits FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[])
               AS new (query, seq, bits) WHERE log.query = new.query AND log.seq = new.seq""",
    "candidates": "INSERT INTO candidates SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])",
    "requests": """INSERT INTO requests SELECT * FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bigint[],
                                                             %b::bigint[])
                   ON CONFLICT (query, key) DO UPDATE
                   SET digest = EXCLUDED.digest, seq = EXCLUDED.seq, time = EXCLUDED.time""",
}
"""Statements that write the pending rows of each kind."""

ADD_SNAPSHOTS = """
INSERT INTO snapshots SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
ON CONFLICT (query, seq) DO UPDATE SET time = EXCLUDED.time, body = EXCLUDED.body"""

DELETE_SNAPSHOTS = """
DELETE FROM snapshots USING unnest(%b::bigint[], %b::bigint[]) AS old (query, seq)
WHERE snapshots.query = old.query AND snapshots.seq = old.seq"""

ADD_EXEMPTIONS = """
INSERT INTO exemptions SELECT number, query FROM unnest(%b::bigint[], %b::bigint[]) AS new (number, query)
JOIN deletions USING (number) ON CONFLICT DO NOTHING"""


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
        self.arms: dict[ArmKey, ArmCounter] = {}

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
