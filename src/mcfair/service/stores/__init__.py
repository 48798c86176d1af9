"""Where the service keeps its books: one interface, in memory and in SQLite."""

from __future__ import annotations

from .sqlite import SQLiteStore, holder, locate, open_reader, open_store
from .store import KIND_DELETION, KIND_FEEDBACK, KIND_IMPRESSION, Entry, Store, StoredKey

__all__ = [
    "KIND_DELETION",
    "KIND_FEEDBACK",
    "KIND_IMPRESSION",
    "Entry",
    "SQLiteStore",
    "Store",
    "StoredKey",
    "holder",
    "locate",
    "open_reader",
    "open_store",
]
