"""Replacing the file of a store by a backup, so that at every moment the path names one complete store."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import StoreError
from .backups import draft_copy, sync_folder
from .connection import connect
from .files import StoreLock, beside, inode_of, locate, refuse_network
from .registry import is_shared
from .sqlite import open_reader
from .store import Store

Check = Callable[[Store], list[str]]
"""Verifies a store; returns the faults found."""


def restore(backup: Path, where: str | Path, *, force: bool, check: Check) -> Path | None:
    """Restore a backup as a store.

    The backup is verified, copied beside the store, verified again and renamed. An old store is kept under another
    name. No write-ahead log of another database is left beside the restored one: SQLite would apply it.

    Parameters
    ----------
    backup
        The backup.
    where
        The store: `sqlite:///PATH` or a path.
    force
        Whether to replace an existing store.
    check
        Verifies the content of a store.

    Returns
    -------
    Path or None
        The name of the old store, if there was one.

    Raises
    ------
    StoreError
        If a process has the store open, the backup is damaged, the store is no file, or it exists and `force` is not
        set. Nothing has changed then.
    """
    if is_shared(where):
        raise StoreError("a store in PostgreSQL is restored with PostgreSQL's own tools, such as pg_restore")
    path = locate(where)
    refuse_network(path)
    if not path.parent.is_dir():
        raise StoreError(f"cannot write {path}: the folder does not exist")
    if (source := inode_of(locate(backup))) is not None and source == inode_of(path):
        raise StoreError(f"{backup} is the store itself: expected a backup of it")
    with open_reader(backup) as reader:
        refuse_faults(backup, check(reader))
        lock = StoreLock(path, create=False)
        try:
            existing = [each for each in (path, beside(path, "-wal")) if each.exists() and each.stat().st_size]
            if existing and not force:
                raise StoreError(f"{existing[0]} exists already: --force replaces it and keeps it under another name")
            with draft_copy(reader.db, path) as draft:
                with open_reader(draft) as copy:
                    refuse_faults(backup, check(copy))
                keep_owner(path, draft, beside(path, ".lock"))
                return put_in_place(draft, path)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        finally:
            lock.write_note(b"")
            lock.release()


def refuse_faults(backup: Path, faults: list[str]) -> None:
    """Raise StoreError if a backup has faults."""
    if faults:
        raise StoreError(f"{backup} is damaged ({faults[0]}): nothing was restored")


def keep_owner(path: Path, *files: Path) -> None:
    """Change the owner of files to that of a store, or of its folder: root, who restores, is not who serves."""
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        owner = (path if path.exists() else path.parent).stat()
        for each in files:
            os.chown(each, owner.st_uid, owner.st_gid)


def put_in_place(draft: Path, path: Path) -> Path | None:
    """Rename a complete copy to the path of a store; return the new name of the old store."""
    aside = unused_name(path)
    existed = path.exists()
    if existed:
        merge_log(path)
    wal = beside(path, "-wal")
    if wal.exists() and wal.stat().st_size:  # of a damaged or missing database: it stays with it
        wal.rename(beside(aside, "-wal"))
    wal.unlink(missing_ok=True)
    beside(path, "-shm").unlink(missing_ok=True)
    if existed:
        os.link(path, aside)  # a second name, so that the path names a complete store at every moment
    draft.rename(path)
    sync_folder(path)
    return aside if existed else None


def merge_log(path: Path) -> None:
    """Checkpoint the write-ahead log of the old store into its file, unless the old store is damaged.

    Otherwise a crash between two renames could leave the old file without the log of its last transactions.
    """
    try:
        with contextlib.closing(connect(path)) as db:
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except StoreError:
        return
    if busy:
        raise StoreError(f"{path} is being read by another process: wait until that has ended")


def unused_name(path: Path) -> Path:
    """Return a name beside a store for the old one."""
    name = path.with_name(f"{path.name}.replaced-{time.strftime('%Y%m%dT%H%M%S')}")
    return next(
        each for i in range(1_000) if not (each := name.with_name(f"{name.name}{f'-{i}' if i else ''}")).exists()
    )
