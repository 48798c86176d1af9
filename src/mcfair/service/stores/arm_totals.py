"""Totals of the arms of an experiment, added up in the transactions that cause them: the rows of both databases."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from .arms import ArmCounter, ArmKey, StoredArm
from .connection import SQLiteConnection
from .pending import PendingWrites

COLUMNS = "experiment, arm, bucket, lists, clicks, ndcg, unfairness"

ADDED = ", ".join(f"{name} = arms.{name} + excluded.{name}" for name in ArmCounter._fields)

ADD = f"""
INSERT INTO arms ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, arm, bucket) DO UPDATE SET {ADDED}"""

ADD_ALL = f"""
INSERT INTO arms ({COLUMNS}) SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
                                                  %b::bigint[], %b::bigint[]) AS new ({COLUMNS})
ORDER BY experiment, arm, bucket ON CONFLICT (experiment, arm, bucket) DO UPDATE SET {ADDED}"""


def summed(pending: Iterable[PendingWrites]) -> list[tuple[int, ...]]:
    """Return the pending rows of many queries as one row for each key: a statement may change a row only once."""
    totals: dict[ArmKey, ArmCounter] = {}
    for each in pending:
        for key, amounts in each.arms.items():
            totals[key] = totals[key].plus(amounts) if key in totals else amounts
    return [(*key, *totals[key]) for key in sorted(totals)]


class SQLiteArms:
    """The totals in SQLite."""

    db: SQLiteConnection

    def add_to_arm(self, number: int, key: ArmKey, amounts: ArmCounter) -> None:
        """See `Store`."""
        self.db.execute(ADD, (*key, *amounts))

    def arm_totals(self, experiment: int) -> list[StoredArm]:
        """See `Store`."""
        sql = f"SELECT {COLUMNS} FROM arms WHERE experiment = ? ORDER BY arm, bucket"
        return [StoredArm.of(row) for row in self.db.execute(sql, (experiment,)).fetchall()]

    def delete_arm_totals(self, kept: int) -> None:
        """See `Store`."""
        self.db.execute("DELETE FROM arms WHERE experiment <> ?", (kept,))


class PostgresArms(ABC):
    """The totals in PostgreSQL. Additions are pending with their query, so that those of one that loses are lost."""

    changes: int

    @abstractmethod
    def rows(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement and return its rows."""

    @abstractmethod
    def write(self, sql: str, *values: Any) -> list[Any]:
        """Write what is pending, execute a statement in the write transaction and return its rows, if it has any."""

    @abstractmethod
    def flush(self) -> None:
        """Write what is pending."""

    @abstractmethod
    def pending_of(self, number: int) -> PendingWrites:
        """Return the buffer of a query; create it if needed."""

    def add_to_arm(self, number: int, key: ArmKey, amounts: ArmCounter) -> None:
        """See `Store`."""
        arms = self.pending_of(number).arms
        arms[key] = arms[key].plus(amounts) if key in arms else amounts
        self.changes += 1

    def arm_totals(self, experiment: int) -> list[StoredArm]:
        """See `Store`."""
        self.flush()
        sql = f"SELECT {COLUMNS} FROM arms WHERE experiment = %s ORDER BY arm, bucket"
        return [StoredArm.of(row) for row in self.rows(sql, experiment)]

    def delete_arm_totals(self, kept: int) -> None:
        """See `Store`."""
        self.write("DELETE FROM arms WHERE experiment <> %s", kept)
