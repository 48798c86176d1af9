"""The errors of stores. Nothing outside this package depends on the database behind a store."""

from __future__ import annotations

from ...errors import StoreError

UNFINISHED = "is the target of an unfinished migration: repeat `mcfair migrate` with the same source"


class StoreConflictError(StoreError):
    """A row exists already, such as a log entry with the same sequence number: somebody else has written it."""


class StoreUnavailableError(StoreError):
    """The store cannot be read or written now, for example because the disk is full; nothing was committed."""


class StoreUncertainError(StoreUnavailableError):
    """The connection to the store was lost during a commit: it is not known whether it succeeded."""


class StoreCorruptError(StoreError):
    """Stored data is damaged: it cannot be read, now or later."""
