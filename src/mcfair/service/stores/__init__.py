"""Persistent storage of the service: one interface, with SQLite (in a file or in memory) or PostgreSQL behind it."""

from __future__ import annotations

from .arms import ArmCounter, StoredArm
from .errors import StoreConflictError, StoreCorruptError, StoreUnavailableError, StoreUncertainError
from .files import locate, read_lock_note
from .history_store import StoredPeriod, StoredSummary
from .registry import describe, exists, is_shared, open_reader, open_store
from .restoring import restore
from .sqlite import SQLiteStore
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
from .tables import TABLES, StoredTable

__all__ = [
    "KIND_DELETION",
    "KIND_FEEDBACK",
    "KIND_IMPRESSION",
    "TABLES",
    "ArmCounter",
    "LogEntry",
    "SQLiteStore",
    "Store",
    "StoreConflictError",
    "StoreCorruptError",
    "StoreUnavailableError",
    "StoreUncertainError",
    "StoredArm",
    "StoredCounts",
    "StoredDeletion",
    "StoredKey",
    "StoredPeriod",
    "StoredSummary",
    "StoredTable",
    "describe",
    "exists",
    "is_shared",
    "locate",
    "open_reader",
    "open_store",
    "read_lock_note",
    "restore",
]
