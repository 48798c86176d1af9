"""Summaries of queries, and history, in a store in PostgreSQL.

Any instance may write them. Rows are locked in the order of the queries, before those of the history, so that two
instances cannot deadlock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from .history_store import StoredPeriod, StoredSummary
from .store import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry

FIRST_BOOKED = """
INSERT INTO summaries SELECT new.query, new.booked, 0, 0, 0, 0, ''::bytea
FROM unnest(%b::bigint[], %b::bigint[]) AS new (query, booked) JOIN queries q ON q.number = new.query
ORDER BY new.query FOR KEY SHARE OF q ON CONFLICT DO NOTHING RETURNING query"""

ADD_SUMMARIES = """
UPDATE summaries s SET seq = new.seq, version = new.version, time = new.time, visits = new.visits, body = new.body
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[])
AS new (query, seq, version, time, visits, body) JOIN queries q ON q.number = new.query AND q.base <= new.seq
WHERE s.query = new.query"""


class PostgresHistory(ABC):
    """Reads and writes of summaries and history; the subclass has the connection and the transaction."""

    @abstractmethod
    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement and return its rows."""

    @abstractmethod
    def write(self, sql: str, *values: Any) -> list[Any]:
        """Write what is pending, execute a statement in the write transaction and return its rows, if it has any."""

    @abstractmethod
    def flush(self) -> None:
        """Write what is pending."""

    def summaries(self, after: int, limit: int) -> list[tuple[int, int, StoredSummary | None]]:
        """See `Store`."""
        self.flush()
        last = "greatest(base, coalesce((SELECT max(log.seq) FROM log WHERE log.query = number), 0))"
        sql = f"""SELECT number, {last}, summaries.* FROM queries LEFT JOIN summaries ON query = number
                  WHERE number > %s ORDER BY number LIMIT %s"""
        rows = self.rows(sql, after, limit)
        return [(row[0], row[1], None if row[2] is None else StoredSummary._make(row[2:])) for row in rows]

    def item(self, number: int, row: int) -> tuple[str | None, str | None] | None:
        """See `Store`."""
        self.flush()
        rows = self.rows("SELECT id, grp FROM items WHERE query = %s AND row = %s", number, row)
        id, group = rows[0] if rows else (None, None)
        return (id and id.decode(), group and group.decode()) if rows else None

    def count_lists(self, number: int, after: int, until: int, period: int) -> list[tuple[int, int]]:
        """See `Store`."""
        self.flush()
        sql = f"""SELECT time - mod(time, %s::bigint), count(*) FROM log
                  WHERE query = %s AND seq > %s AND seq <= %s AND kind = {KIND_IMPRESSION} GROUP BY 1 ORDER BY 1"""
        return self.rows(sql, period, number, after, until)

    def feedback(self, number: int, after: int, until: int) -> list[LogEntry]:
        """See `Store`."""
        self.flush()
        sql = f"""SELECT seq, time, kind, version, candidates, body, bits FROM log
                  WHERE query = %s AND seq > %s AND seq <= %s AND kind = {KIND_FEEDBACK} ORDER BY seq"""
        return [LogEntry._make(row) for row in self.rows(sql, number, after, until)]

    def booked(self, number: int) -> int | None:
        """See `Store`."""
        rows = self.rows("SELECT booked FROM summaries WHERE query = %s", number)
        return rows[0][0] if rows else None

    def book(self, queries: Sequence[tuple[int, int | None, int]]) -> set[int]:
        """See `Store`. A query that is being deleted is waited for, and is left out then."""
        ordered = sorted(queries)
        new = [(number, after) for number, before, after in ordered if before is None]
        moved = {row[0] for row in self.write(FIRST_BOOKED, *map(list, zip(*new, strict=True)))} if new else set()
        old = {number: (before, after) for number, before, after in ordered if before is not None}
        if old:
            sql = """SELECT s.query, s.booked FROM summaries s JOIN queries q ON q.number = s.query
                     WHERE s.query = ANY(%s::bigint[]) ORDER BY s.query FOR UPDATE OF s FOR KEY SHARE OF q"""
            found = [number for number, booked in self.write(sql, list(old)) if booked == old[number][0]]
            sql = """UPDATE summaries s SET booked = new.booked FROM unnest(%s::bigint[], %s::bigint[])
                     AS new (query, booked) WHERE s.query = new.query"""
            self.write(sql, found, [old[number][1] for number in found])
            moved |= set(found)
        return moved

    def add_summaries(self, summaries: Sequence[StoredSummary]) -> None:
        """See `Store`."""
        if summaries:
            rows = [(each.query, *each[2:]) for each in sorted(summaries)]
            self.write(ADD_SUMMARIES, *map(list, zip(*rows, strict=True)))

    def periods(self, resolution: int, since: int, until: int, limit: int) -> list[StoredPeriod]:
        """See `Store`."""
        sql = """SELECT * FROM history WHERE resolution = %s AND start >= %s AND start < %s
                 ORDER BY start DESC LIMIT %s"""
        return [StoredPeriod._make(row) for row in reversed(self.rows(sql, resolution, since, until, limit))]

    def add_to_period(self, resolution: int, start: int, lists: int, clicks: int, retracted: int) -> None:
        """See `Store`."""
        sql = """INSERT INTO history AS h VALUES (%s, %s, %s, %s, %s, NULL) ON CONFLICT (resolution, start) DO UPDATE
                 SET lists = h.lists + EXCLUDED.lists, clicks = h.clicks + EXCLUDED.clicks,
                     retracted = h.retracted + EXCLUDED.retracted"""
        self.write(sql, resolution, start, lists, clicks, retracted)

    def set_figures(self, resolution: int, start: int, body: bytes) -> None:
        """See `Store`."""
        sql = """INSERT INTO history VALUES (%s, %s, 0, 0, 0, %s) ON CONFLICT (resolution, start) DO UPDATE
                 SET body = EXCLUDED.body"""
        self.write(sql, resolution, start, body)

    def erase_figures(self, resolution: int, start: int, body: bytes) -> None:
        """See `Store`."""
        self.set_figures(resolution, start, body)

    def delete_periods(self, resolution: int, before: int) -> None:
        """See `Store`."""
        self.write("DELETE FROM history WHERE resolution = %s AND start < %s", resolution, before)
