"""Persistent storage of the service: one interface, with SQLite in a file or in memory behind it."""

from __future__ import annotations

from .sqlite import SQLiteStore, locate, open_reader, open_store, read_lock_note
from .store import KIND_DELETION, KIND_FEEDBACK, KIND_IMPRESSION, LogEntry, Store, StoredDeletion, StoredKey

__all__ = [
    "KIND_DELETION",
    "KIND_FEEDBACK",
    "KIND_IMPRESSION",
    "LogEntry",
    "SQLiteStore",
    "Store",
    "StoredDeletion",
    "StoredKey",
    "locate",
    "open_reader",
    "open_store",
    "read_lock_note",
]
