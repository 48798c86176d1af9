"""Coordination of the instances that share a store in PostgreSQL: which one leads, and what has changed."""

from __future__ import annotations

import secrets
import time

from .errors import StoreUnavailableError
from .postgres_rows import PostgresRows
from .postgres_schema import LEADERSHIP, check_same

PROBE_BYTES = 1 << 18


class PostgresInstances(PostgresRows):
    """The methods of a `Store` that concern other instances.

    `generation` is the number of the last change that this instance knows of, and `leader` whether it leads. The clock
    of the database is `ahead` of the monotonic clock here, in ns.
    """

    name: str
    secret: bytes
    generation: int
    ahead: int
    leader: bool

    def leads(self) -> bool:
        """See `Store`."""
        if not self.leader:
            self.leader = bool(self.one("SELECT pg_try_advisory_lock(%s)", LEADERSHIP))
        return self.leader

    def changed_elsewhere(self) -> bool:
        """See `Store`. Whatever replaces the whole store changes the generation, too."""
        found = self.read_generation()
        if changed := found != self.generation:
            check_same(dict(self.rows("SELECT name, value FROM meta")), self.secret, self.name)
            self.generation = found
        return changed

    def read_generation(self) -> int:
        """Return the number that changes with rules, API keys and deletions, and differs between stores."""
        rows = self.rows("SELECT number, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM generation")
        if not rows:
            raise StoreUnavailableError(f"{self.name} has no store any more")
        number, microseconds = rows[0]
        self.ahead = 1_000 * microseconds - time.monotonic_ns()
        return int(number)

    def wall_time(self) -> int:
        """See `Store`. The database was asked for its time when the present transaction began."""
        return time.monotonic_ns() + self.ahead

    def announce(self) -> None:
        """Announce to the other instances that rules, API keys or deletions have changed."""
        self.generation = self.write("UPDATE generation SET number = number + 1 RETURNING number")[0][0]

    def probe(self) -> None:
        """See `Store`. The row needs new blocks: on a full disk, those that a table has can still be written."""
        name = f"probe {secrets.token_hex(8)}"
        self.write("INSERT INTO meta VALUES (%s, %s)", name, secrets.token_bytes(PROBE_BYTES))
        self.write("DELETE FROM meta WHERE name = %s", name)
