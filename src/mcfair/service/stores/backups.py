"""Copies of a database in a file: written to a temporary name, synced, and renamed once they are complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import StoreError
from .connection import SQLiteConnection, connect


def write_copy(db: SQLiteConnection, path: Path) -> None:
    """Write a copy of a database to a new file.

    Parameters
    ----------
    db
        The database; one read transaction spans the whole copy.
    path
        The file, which must not exist.

    Raises
    ------
    StoreError
        If the file exists, or the copy cannot be written.
    """
    if path.exists():
        raise StoreError(f"{path} exists already: a backup never overwrites a file")
    with draft_copy(db, path) as draft:
        try:
            os.link(draft, path)  # unlike a rename, fails if the file was created in the meantime
            draft.unlink()
            sync_folder(path)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def draft_copy(db: SQLiteConnection, path: Path) -> Iterator[Path]:
    """Write a copy of a database, complete and synced, to a temporary file in the folder of a path.

    Parameters
    ----------
    db
        The database.
    path
        The final path, for the folder and for messages.

    Yields
    ------
    Path
        The temporary file; it is removed at the end unless it was renamed.

    Raises
    ------
    StoreError
        If the copy cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    draft = Path(name)
    try:
        try:
            with contextlib.closing(connect(draft)) as copy:
                db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            with draft.open("rb") as written:
                os.fsync(written.fileno())
        except (OSError, StoreError) as error:
            raise StoreError(f"cannot write {path}: {error}") from error
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Sync the folder of a path, so that the names in it are durable."""
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
