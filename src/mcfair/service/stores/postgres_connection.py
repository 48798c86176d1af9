"""Connections to PostgreSQL whose errors are those of a store, and whose waits are bounded."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import conninfo
from psycopg.rows import TupleRow

from ...errors import StoreError
from .errors import StoreConflictError, StoreCorruptError, StoreUnavailableError

Connection = psycopg.Connection[TupleRow]

OLDEST_SERVER = 150_000

LIMITS = {
    "connect_timeout": 3,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Parameters of a connection that its URL does not set itself; `tcp_user_timeout` is in ms, the others in seconds."""

SESSION = """
SET synchronous_commit = on;
SET default_transaction_isolation = 'read committed';
SET search_path = mcfair;
SET client_min_messages = warning;
SET lock_timeout = '5s';
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '30s'
"""

CONFLICTS = (psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
DAMAGE = (psycopg.errors.DataCorrupted, psycopg.errors.IndexCorrupted, psycopg.errors.UndefinedColumn)
UNUSABLE = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UndefinedTable,  # the store was dropped, or is being restored
)


def connect(url: str, *, reading: bool, oldest: int = OLDEST_SERVER) -> Connection:
    """Open a connection with explicit transactions; a connection that writes refuses a standby.

    Parameters
    ----------
    url
        The database, as `postgresql://…`.
    reading
        Whether it is read only.
    oldest
        The oldest version of the server that is allowed, as libpq writes it.

    Raises
    ------
    StoreError
        If the URL is not valid, or the server is too old.
    StoreUnavailableError
        If the server cannot be reached.
    """
    parameters = parsed(url)
    options: dict[str, Any] = {**LIMITS, "application_name": "mcfair"}
    if not reading:
        options["target_session_attrs"] = "read-write"
    try:
        # Otherwise texts of a database without an encoding, SQL_ASCII, would be bytes.
        db = psycopg.connect(
            **{**options, **parameters, "client_encoding": "UTF8"}, autocommit=True, prepare_threshold=0
        )
    except psycopg.Error as error:
        raise StoreUnavailableError(one_line(error)) from None
    try:
        if (version := db.info.server_version) < oldest:
            raise StoreError(
                f"{described(url)} runs PostgreSQL {version // 10_000}: expected {oldest // 10_000} or newer"
            )
        with translated():
            db.execute(SESSION + (";SET default_transaction_read_only = on" if reading else ""), prepare=False)
    except BaseException:
        db.close()
        raise
    return db


class Watchdog:
    """Ends a connection whose server does not respond: timeouts of the server do not help if the server hangs.

    Parameters
    ----------
    seconds
        Maximum duration of one use of the connection.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = math.inf
        self.handle = -1
        self.closed = threading.Event()
        self.thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self, db: Connection) -> Iterator[None]:
        """Watch the use of a connection inside the block."""
        if self.thread is None:
            self.thread = threading.Thread(target=self.run, name="mcfair-watchdog", daemon=True)
            self.thread.start()
        self.handle, self.deadline = db.pgconn.socket, time.monotonic() + self.seconds
        try:
            yield
        finally:
            self.deadline = math.inf

    def run(self) -> None:
        """Shut the socket down when the deadline has passed; its user gets the error of a lost connection."""
        while not self.closed.wait(min(1.0, self.seconds / 4)):
            if time.monotonic() > self.deadline:
                self.deadline = math.inf
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.handle)) as found:
                    found.shutdown(socket.SHUT_RDWR)


def parsed(url: str) -> dict[str, Any]:
    """Return the parameters of a URL. The message of an error never repeats the URL, which may have a password."""
    try:
        return dict(conninfo.conninfo_to_dict(url))
    except psycopg.Error:
        raise StoreError(
            "the URL of the store is not valid: expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special "
            "characters percent-encoded"
        ) from None


def described(url: str) -> str:
    """Return the URL of a store without its password and options."""
    given = parsed(url)
    user = f"{given['user']}@" if given.get("user") else ""
    port = f":{given['port']}" if given.get("port") else ""
    return f"postgresql://{user}{given.get('host', '')}{port}/{given.get('dbname', '')}"


def one_line(error: BaseException) -> str:
    """Return the text of an error in one line."""
    return " ".join(str(error).split())


def ended_session(error: StoreError) -> bool:
    """Return whether a translated error ended the session. An ERROR of the server ends its transaction, uncommitted."""
    cause = error.__cause__
    return not isinstance(cause, psycopg.Error) or cause.diag.severity_nonlocalized != "ERROR"


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Convert errors of psycopg to those of a store; errors in the use of psycopg stay what they are."""
    try:
        yield
    except CONFLICTS as error:
        raise StoreConflictError(one_line(error)) from error
    except DAMAGE as error:
        raise StoreCorruptError(one_line(error)) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise StoreUnavailableError(one_line(error)) from error
    except UNUSABLE as error:
        raise StoreUnavailableError(one_line(error)) from error
    except psycopg.errors.DuplicateTable as error:
        raise StoreError(f"the schema mcfair belongs to something else: {one_line(error)}") from error
