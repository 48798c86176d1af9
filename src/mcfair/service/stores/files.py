"""The files of a store in SQLite: where they are, who may write them, and whether they are still there.

Two locks keep a second writer out. One is on the database's own inode, so that no symbolic link, other mount or
removed lock file lets anybody in; a file with several hard links is refused, because each of its names would have a
write-ahead log of its own. The other lock is on a file beside the database, and covers the path: it keeps a new file
under the same name from being opened while a process still uses the old one. The operating system releases both when
the process ends, however it ends.

Outside Linux the lock on the inode would conflict with SQLite's own, so there only the path, with links resolved, is
locked.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ...errors import StoreError
from .errors import StoreUnavailableError

Inode = tuple[int, int]
"""Device and number of a file: its identity under any name."""

LOCKS_INODES = sys.platform == "linux"
"""Whether `flock` locks are independent of the POSIX locks that SQLite takes on the same file."""

URL = "sqlite:///"
HEADER, SHORTEST = b"SQLite format 3\0", 100
"""How a database begins, and the size of its header."""

NETWORK_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "afs",
    "ceph",
    "lustre",
    "fuse.sshfs",
    "fuse.glusterfs",
    "glusterfs",
}


def locate(where: str | Path) -> Path:
    """Return the path of a store's file, with symbolic links resolved."""
    text = str(where)
    if "://" in text and not text.startswith(URL):
        scheme = text.partition("://")[0]  # the rest may have a password
        raise StoreError(f"cannot open a {scheme}:// store: expected {URL}PATH, a path, memory: or postgresql://…")
    path = Path(text.removeprefix(URL))
    if not path.name:
        raise StoreError(f"cannot open {text!r}: expected {URL}PATH, a path or memory:")
    return Path(os.path.realpath(path))


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file beside the database: `-wal`, `-shm` or `.lock`."""
    return path.with_name(path.name + suffix)


def inode_of(path: Path | str) -> Inode | None:
    """Return the inode of a path; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 (every commit calls this, and a Path would cost more than the system call)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailableError(f"cannot read {path}: {error.strerror}") from error
    return found.st_dev, found.st_ino


def check_regular(path: Path, found: os.stat_result) -> None:
    """Refuse what is not a file with exactly one name."""
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"cannot open {path}: it is not a regular file")
    if found.st_nlink > 1:
        raise StoreError(
            f"{path} has {found.st_nlink} hard links, and each name would have a write-ahead log of its own: "
            "remove all names but one, or copy the file"
        )


def flock(handle: int, operation: Literal["LOCK_EX", "LOCK_SH", "LOCK_UN"]) -> bool:
    """Lock or unlock a descriptor without waiting; return whether that succeeded."""
    import fcntl  # here, so that stores in memory can be used where there is no such module

    try:
        fcntl.flock(handle, getattr(fcntl, operation) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# --- descriptors -----------------------------------------------------------------------------------------------------


class Descriptors:
    """The descriptors of database files beside those of SQLite.

    Closing any descriptor of a file drops all POSIX locks that the process has on it, and with them those of SQLite's
    connections. A descriptor is therefore closed only once the process has no connection to its file.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connections: Counter[Inode] = Counter()
        self.deferred: dict[Inode, list[int]] = {}
        self.locked: set[Inode] = set()

    def connected(self, inode: Inode) -> None:
        """Count a new connection."""
        with self.lock:
            self.connections[inode] += 1

    def disconnected(self, inode: Inode) -> None:
        """Count a closed connection; close the descriptors that waited for the last one."""
        with self.lock:
            self.connections[inode] -= 1
            if not self.connections[inode]:
                del self.connections[inode]
                for handle in self.deferred.pop(inode, []):
                    os.close(handle)

    def close(self, handle: int, inode: Inode) -> None:
        """Release the lock of a descriptor now, and close it as soon as that is safe."""
        with self.lock:
            flock(handle, "LOCK_UN")
            if self.connections[inode]:
                self.deferred.setdefault(inode, []).append(handle)
            else:
                os.close(handle)


descriptors = Descriptors()


# --- locks -----------------------------------------------------------------------------------------------------------


class StoreLock:
    """The exclusive right of this process to write a store, and the note that it publishes to other processes.

    Parameters
    ----------
    path
        The path of the database, with links resolved.
    create
        Whether to create an empty file if there is none. Otherwise only the path is locked.

    Raises
    ------
    StoreError
        If another process, or this one, has the store open for writing, or the file cannot be used.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.created = False
        self.inode: Inode | None = None
        self.handle = -1
        self.size = 0  # size of the database when it was last checked; it never shrinks
        self.opened_before = beside(path, ".lock").exists()
        try:
            self.note = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write beside {path}: {error.strerror}") from error
        try:
            lock_or_refuse(self.note, path)
            if create or path.exists():
                self.lock_database()
            os.ftruncate(self.note, 0)  # a note left by a killed process is out of date
        except BaseException:
            self.release()
            raise

    def lock_database(self) -> None:
        """Open the database, creating it if needed, and lock its inode."""
        path = self.path
        # Opening a file that this process has open already would end in closing a descriptor of it: see `Descriptors`.
        with descriptors.lock:
            if inode_of(path) in descriptors.locked:
                raise StoreError(f"{path} is in use by this process")
        try:
            if path.exists():
                check_regular(path, path.stat())
                self.check_not_emptied()
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # it holds a secret
                self.created = True
            handle = os.open(path, os.O_RDWR)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {(error.strerror or '').lower()}") from error
        found = os.fstat(handle)
        inode = found.st_dev, found.st_ino
        try:
            check_regular(path, found)
            if LOCKS_INODES:
                lock_or_refuse(handle, path)
            if inode_of(path) != inode:
                raise StoreError(f"{path} was replaced while it was being opened: try again")
        except BaseException:
            descriptors.close(handle, inode)
            raise
        self.handle, self.inode = handle, inode
        descriptors.locked.add(inode)

    def check_not_emptied(self) -> None:
        """Refuse an empty file that was a store, as other files beside it show, and one too short for a database."""
        path, size = self.path, self.path.stat().st_size
        if size == 0 and (self.opened_before or beside(path, "-wal").exists()):
            raise StoreError(f"{path} is empty, but it was a store: restore a backup, or delete it for a new store")
        if 0 < size < SHORTEST:
            raise StoreError(f"{path} is damaged (it has {size} bytes, too few for a database): restore a backup")

    def check_content(self) -> None:
        """Raise StoreUnavailableError if the database, once it has a header, was truncated or overwritten in place."""
        size = os.fstat(self.handle).st_size
        if self.size and (size < self.size or os.pread(self.handle, len(HEADER), 0) != HEADER):
            raise StoreUnavailableError(
                f"{self.path} was truncated or overwritten while in use: stop the service and restore a backup"
            )
        self.size = size

    def write_note(self, note: bytes) -> None:
        """Publish a note, which only the owner of the file can read."""
        with contextlib.suppress(OSError):  # on a full disk there is no note, which is no reason to stop
            os.ftruncate(self.note, 0)
            os.pwrite(self.note, note, 0)

    def release(self) -> None:
        """Release both locks."""
        if self.inode is not None:
            descriptors.locked.discard(self.inode)
            descriptors.close(self.handle, self.inode)
            self.inode = None
        if self.note >= 0:
            os.close(self.note)
            self.note = -1


def lock_or_refuse(handle: int, path: Path) -> None:
    """Lock a descriptor; raise StoreError if another one holds the lock."""
    if not flock(handle, "LOCK_EX"):
        raise StoreError(f"{path} is in use by another process: only one may write to it")


def read_lock_note(path: Path) -> bytes | None:
    """Return the note of the process that has a store open for writing; None if there is no such process."""
    note = beside(path, ".lock")
    if not (LOCKS_INODES and is_locked(path)) and not is_locked(note):
        return None
    try:
        return note.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {note}: {error.strerror}") from error


def is_locked(path: Path) -> bool:
    """Return whether somebody holds the lock on the inode of a path."""
    inode = inode_of(path)
    if inode is None or inode in descriptors.locked:
        return inode is not None
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    try:
        return not flock(handle, "LOCK_SH")
    finally:
        descriptors.close(handle, inode)


# --- file systems ----------------------------------------------------------------------------------------------------


def refuse_network(path: Path) -> None:
    """Refuse a network file system: SQLite's write-ahead log needs memory shared between processes."""
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(f"{path} is on a network file system ({kind}), where SQLite is not safe: use a local disk")


def file_system(path: Path, mounts: Callable[[], str] = lambda: Path("/proc/self/mountinfo").read_text()) -> str:
    """Return the type of the file system of a path, "" where it is not known."""
    try:
        lines = mounts().splitlines()
    except OSError:
        return ""
    place = path.absolute().parent.resolve()
    best, kind = "", ""
    for line in lines:
        mount, rest = line.split(" ")[4].replace("\\040", " "), line.partition(" - ")[2]
        if (place == Path(mount) or Path(mount) in place.parents) and len(mount) >= len(best):
            best, kind = mount, rest.split(" ")[0]
    return kind
