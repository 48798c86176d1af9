"""Summaries of queries, and history, in a store in SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from .connection import SQLiteConnection
from .history_store import StoredPeriod, StoredSummary
from .sqlite_schema import NEWEST_DELETED
from .store import KIND_FEEDBACK, KIND_IMPRESSION, LogEntry

LIVE = f"SELECT base FROM queries WHERE number = ?1 AND number > {NEWEST_DELETED}"
"""The base of a query, no row if it was deleted."""


class SQLiteHistory:
    """Reads and writes of summaries and history; the subclass has the connection and the transactions."""

    db: SQLiteConnection
    erased: bool

    def summaries(self, after: int, limit: int) -> list[tuple[int, int, StoredSummary | None]]:
        """See `Store`."""
        last = "max(base, ifnull((SELECT max(seq) FROM log WHERE query = number), 0))"
        sql = f"""SELECT number, {last}, summaries.* FROM queries LEFT JOIN summaries ON query = number
                  WHERE number > max(?, {NEWEST_DELETED}) ORDER BY number LIMIT ?"""
        rows = self.db.execute(sql, (after, limit)).fetchall()
        return [(row[0], row[1], None if row[2] is None else StoredSummary._make(row[2:])) for row in rows]

    def item(self, number: int, row: int) -> tuple[str | None, str | None] | None:
        """See `Store`."""
        sql = "SELECT id, grp FROM items WHERE query = ? AND row = ?"
        return self.db.execute(sql, (number, row)).fetchone()  # type: ignore[no-any-return]

    def count_lists(self, number: int, after: int, until: int, period: int) -> list[tuple[int, int]]:
        """See `Store`."""
        sql = f"""SELECT time - time % ?4, count(*) FROM log
                  WHERE query = ?1 AND seq > ?2 AND seq <= ?3 AND kind = {KIND_IMPRESSION} GROUP BY 1 ORDER BY 1"""
        return self.db.execute(sql, (number, after, until, period)).fetchall()

    def feedback(self, number: int, after: int, until: int) -> list[LogEntry]:
        """See `Store`."""
        sql = f"""SELECT seq, time, kind, version, candidates, body, bits FROM log
                  WHERE query = ? AND seq > ? AND seq <= ? AND kind = {KIND_FEEDBACK} ORDER BY seq"""
        return [LogEntry._make(row) for row in self.db.execute(sql, (number, after, until)).fetchall()]

    def booked(self, number: int) -> int | None:
        """See `Store`."""
        row = self.db.execute("SELECT booked FROM summaries WHERE query = ?", (number,)).fetchone()
        return None if row is None else row[0]

    def book(self, queries: Sequence[tuple[int, int | None, int]]) -> set[int]:
        """See `Store`."""
        moved = set()
        for number, before, after in queries:
            if before is None:
                sql = f"""INSERT INTO summaries SELECT ?1, ?2, 0, 0, 0, 0, x'' WHERE EXISTS ({LIVE})
                          ON CONFLICT DO NOTHING"""
                found = self.db.execute(sql, (number, after)).rowcount
            else:
                sql = f"UPDATE summaries SET booked = ?2 WHERE query = ?1 AND booked = ?3 AND EXISTS ({LIVE})"
                found = self.db.execute(sql, (number, after, before)).rowcount
            if found:
                moved.add(number)
        return moved

    def add_summaries(self, summaries: Sequence[StoredSummary]) -> None:
        """See `Store`."""
        for each in summaries:
            sql = f"""UPDATE summaries SET seq = ?2, version = ?3, time = ?4, visits = ?5, body = ?6
                      WHERE query = ?1 AND ({LIVE}) <= ?2"""
            self.db.execute(sql, (each.query, *each[2:]))

    def periods(self, resolution: int, since: int, until: int, limit: int) -> list[StoredPeriod]:
        """See `Store`."""
        sql = """SELECT * FROM history WHERE resolution = ? AND start >= ? AND start < ?
                 ORDER BY start DESC LIMIT ?"""
        rows = self.db.execute(sql, (resolution, since, until, limit)).fetchall()
        return [StoredPeriod._make(row) for row in reversed(rows)]

    def add_to_period(self, resolution: int, start: int, lists: int, clicks: int, retracted: int) -> None:
        """See `Store`."""
        sql = """INSERT INTO history VALUES (?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE
                 SET lists = lists + excluded.lists, clicks = clicks + excluded.clicks,
                     retracted = retracted + excluded.retracted"""
        self.db.execute(sql, (resolution, start, lists, clicks, retracted))

    def set_figures(self, resolution: int, start: int, body: bytes) -> None:
        """See `Store`."""
        sql = "INSERT INTO history VALUES (?, ?, 0, 0, 0, ?) ON CONFLICT DO UPDATE SET body = excluded.body"
        self.db.execute(sql, (resolution, start, body))

    def erase_figures(self, resolution: int, start: int, body: bytes) -> None:
        """See `Store`."""
        self.erased = True
        self.set_figures(resolution, start, body)

    def delete_periods(self, resolution: int, before: int) -> None:
        """See `Store`."""
        self.db.execute("DELETE FROM history WHERE resolution = ? AND start < ?", (resolution, before))
