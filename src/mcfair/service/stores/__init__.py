"""Persistent storage of the service: one interface, with SQLite in a file or in memory behind it."""

from __future__ import annotations

from .errors import StoreConflictError, StoreCorruptError, StoreUnavailableError
from .files import locate, read_lock_note
from .restoring import restore
from .sqlite import SQLiteStore, open_reader, open_store
from .store import (
    KIND_DELETION,
    KIND_FEEDBACK,
    KIND_IMPRESSION,
    LogEntry,
    Store,
    StoredCounts,
    StoredDeletion,
    StoredKey,
)

__all__ = [
    "KIND_DELETION",
    "KIND_FEEDBACK",
    "KIND_IMPRESSION",
    "LogEntry",
    "SQLiteStore",
    "Store",
    "StoreConflictError",
    "StoreCorruptError",
    "StoreUnavailableError",
    "StoredCounts",
    "StoredDeletion",
    "StoredKey",
    "locate",
    "open_reader",
    "open_store",
    "read_lock_note",
    "restore",
]
