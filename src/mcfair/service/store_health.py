"""Whether the store can be written, and the log of what fails."""

from __future__ import annotations

import logging

from .stores import Store, StoreUnavailableError

NOT_WRITABLE = "the store cannot be written"
"""The text for clients and probes. The cause may name paths, so it is logged instead."""

MAX_LOGGED = 1_000
"""Maximum number of different causes that are logged for data that cannot be read."""

logger = logging.getLogger("mcfair.service")


class UnreadableLog:
    """Logs damaged or unreadable data, each cause once."""

    def __init__(self) -> None:
        self.unreadable: set[str] = set()  # damage that was logged: it does not go away while the process runs

    def log_unreadable(self, error: Exception | str) -> None:
        """Log damaged or unreadable data, each cause once."""
        if str(error) not in self.unreadable and len(self.unreadable) < MAX_LOGGED:
            self.unreadable.add(str(error))
            logger.error("stored data cannot be read: %s", error)


class StoreHealth(UnreadableLog):
    """The state of a store, as its last writes and the files themselves show it; every change is logged once."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self.write_error: str | None = None  # why the last write failed; None if it succeeded
        self.stopped_by: str | None = None  # a text for clients if the writer has stopped because of a fault

    @property
    def store_error(self) -> str | None:
        """A text for clients if the store cannot be written now, else None. The log has the cause."""
        if self.stopped_by is not None:
            return self.stopped_by
        if self.write_error is None:
            try:
                self.store.check_attached()
            except StoreUnavailableError as error:
                self.begin_episode(error)
        return None if self.write_error is None else NOT_WRITABLE

    def begin_episode(self, error: Exception) -> None:
        """Record that the store cannot be written; log the cause if it could be written before."""
        if self.write_error is None:
            logger.error("%s: %s", NOT_WRITABLE, error)
        self.write_error = str(error)

    def end_episode(self) -> None:
        """Record that the store can be written; log it if it could not before."""
        if self.write_error is not None:
            logger.warning("the store can be written again")
        self.write_error = None
