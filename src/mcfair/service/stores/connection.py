"""Connections to SQLite whose errors are those of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from ...errors import StoreError
from .errors import StoreConflictError, StoreCorruptError, StoreUnavailableError

T = TypeVar("T")

DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


def connect(path: Path | None, *, reading: bool = False) -> SQLiteConnection:
    """Open a connection with explicit transactions to an existing file, or to a new database in memory."""
    try:
        if path is None:
            return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=SQLiteConnection)
        url = f"file:{quote(str(path.absolute()))}?mode={'ro' if reading else 'rw'}"
        return sqlite3.connect(
            url, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0, factory=SQLiteConnection
        )
    except sqlite3.Error as error:
        raise StoreUnavailableError(f"cannot open {path}: {error}") from error


class SQLiteConnection(sqlite3.Connection):
    """A connection whose cursors raise the errors of a store."""

    def execute(self, sql: str, parameters: Any = ()) -> SQLiteCursor:
        """Execute a statement with a new cursor."""
        try:
            return self.cursor(SQLiteCursor).execute(sql, parameters)
        except sqlite3.Error as error:
            raise store_error(error) from error

    def backup(self, target: sqlite3.Connection, **options: Any) -> None:
        """Copy the database into another one."""
        translated(super().backup, target, **options)


class SQLiteCursor(sqlite3.Cursor):
    """A cursor that raises the errors of a store for rows that are read after the first one."""

    def fetchone(self) -> Any:
        """Return the next row, None at the end."""
        return translated(super().fetchone)

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        return translated(super().fetchall)

    def __next__(self) -> Any:
        return translated(super().__next__)


def translated(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function; convert errors of SQLite."""
    try:
        return work(*args, **kwargs)
    except sqlite3.Error as error:
        raise store_error(error) from error


def store_error(error: sqlite3.Error) -> Exception:
    """Return the error of a store that an error of SQLite means; errors in the use of SQLite stay what they are.

    A table that is missing, and text that is not UTF-8 (for which SQLite has no code), can only be damage: the version
    of the schema was checked when the file was opened.
    """
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if isinstance(error, sqlite3.ProgrammingError | sqlite3.InterfaceError):
        return error
    kind: type[StoreError] = StoreUnavailableError
    if primary == sqlite3.SQLITE_CONSTRAINT:
        kind = StoreConflictError
    elif primary is None or primary in DAMAGED or (primary == sqlite3.SQLITE_ERROR and "no such" in str(error)):
        kind = StoreCorruptError
    return kind(" ".join(str(error).split()))
