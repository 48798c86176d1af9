"""Stores by the scheme of their URL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ...errors import StoreError
from . import sqlite
from .files import locate
from .store import Store

if TYPE_CHECKING:
    from .postgres import PostgresStore


def is_shared(where: str | Path) -> bool:
    """Return whether a URL names a store that several instances may share."""
    return str(where).startswith(("postgresql://", "postgres://"))


def postgres() -> type[PostgresStore]:
    """Import the store in PostgreSQL, which needs a driver."""
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        raise StoreError("a store in PostgreSQL needs psycopg: pip install 'mcfair[postgres]'") from error
    return PostgresStore


def open_store(where: str | Path, *, migrating: bool = False) -> Store:
    """Open a store for writing.

    Parameters
    ----------
    where
        `sqlite:///PATH` (three slashes relative, four absolute), a path, `memory:`, or
        `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`.
    migrating
        Whether the target of an unfinished migration may be opened.

    Returns
    -------
    Store
        The store; close it at the end.

    Raises
    ------
    StoreError
        If it cannot be opened, is damaged, or is in use by another process and not shared.
    """
    opened = postgres() if is_shared(where) else sqlite.open_store
    return cast(Store, opened(str(where), migrating=migrating))


@contextlib.contextmanager
def open_reader(where: str | Path) -> Iterator[Store]:
    """Open what a store has committed read-only; servers may keep writing to it.

    Parameters
    ----------
    where
        The store, as for `open_store`.

    Yields
    ------
    Store
        The store. Every statement sees the newest committed state; `Store.read_transaction` reads several rows from
        one state.

    Raises
    ------
    StoreError
        If there is no such store, or it cannot be read.
    """
    if is_shared(where):
        with contextlib.closing(postgres()(str(where), reading=True)) as store:
            yield cast(Store, store)
    else:
        with sqlite.open_reader(where) as other:
            yield cast(Store, other)


def exists(where: str | Path) -> bool:
    """Return whether a store exists; a database counts even while it is empty."""
    return is_shared(where) or locate(where).exists()


def describe(where: str | Path) -> str:
    """Return the name of a store for messages: its URL without a password."""
    scheme, _, rest = str(where).partition("://")
    if not is_shared(where):
        return f"{scheme}://…" if rest and scheme != "sqlite" else str(where)
    postgres()
    from .postgres_connection import described

    return described(str(where))
