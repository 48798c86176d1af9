"""Deletion of queries and items: gone at once, and erased in the background in small steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ..stores import StoreCorruptError, StoredDeletion
from .engine_state import EngineState
from .reports import count_queries
from .repository import UNREADABLE

DELETION_STEP, PURGE_STEP = 16, 256
"""Maximum number of queries from which an item is deleted in one step, and of rows of deleted queries."""


class DeletionOperations(EngineState):
    """The operations that delete, and their background work."""

    def delete_query(self, query: str | None = None, query_id: str | None = None) -> None:
        """Delete a query. It is gone at once, and `purge` deletes its rows in the background, also after a restart."""
        number = self.find_number(query, query_id)
        self.remove_query(number)
        self.evict(number)

    def reset(self) -> int:
        """Delete every query as `delete_query` does; rules and API keys stay. Return the number of queries."""
        queries = count_queries(self.store)
        self.store.reset()
        self.store.delete_arm_totals(0)
        self.drop_cache()
        return queries

    def purge(self, end: float) -> None:
        """Delete rows of deleted queries until the monotonic time `end`, in small steps."""
        while self.purging:
            self.purging = self.work_on("what is left of deleted queries", partial(self.store.purge, PURGE_STEP)) > 0
            if time.monotonic() > end:
                return

    def delete_item(self, item: str) -> int:
        """Delete an item from every query; return the number of queries that have it.

        The item is gone at once: every operation on a query deletes it there first. The other queries follow in the
        background, see `continue_deletions`, also after a restart; `usage` reports the progress.
        """
        queries = self.store.count_item(item)
        if queries:
            number = self.store.add_deletion(item)
            self.deletions[number] = StoredDeletion(number, item, 0)
            if queries <= DELETION_STEP:
                self.continue_deletion(self.deletions[number])
        return queries

    def continue_deletions(self, end: float) -> None:
        """Continue the deletions of items until the monotonic time `end`, in steps of a few queries."""
        while self.deletions:
            self.continue_deletion(next(iter(self.deletions.values())))
            if time.monotonic() > end:
                return

    def continue_deletion(self, deletion: StoredDeletion) -> None:
        """Delete an item from the next queries that have it."""
        number, item, cursor = deletion
        rows = self.store.rows_of_item(item, cursor, DELETION_STEP, number)
        for query, row in rows:
            self.work_on(f"query {query}", partial(self.delete_row, query, row))
            cursor = query
        if len(rows) < DELETION_STEP:
            self.store.finish_deletion(number)
            del self.deletions[number]
        else:
            self.store.advance_deletion(number, cursor)
            self.deletions[number] = deletion._replace(cursor=cursor)
        self.reset_expiry_schedule()

    def delete_row(self, number: int, row: int) -> int:
        """Delete the item of a row of a query."""
        if self.store.lock(number):
            self.delete_rows(self.cached(number) or self.repository.ledger(number), [row])
        return 1

    def work_on(self, what: str, step: Callable[[], int]) -> int:
        """Do a step of background work, on one query for example; leave it out, and return 0, if data is damaged.

        A step that has written something before it found the damage must be rolled back, so its error is raised; the
        next attempt leaves it out.
        """
        if what in self.damaged:
            return 0
        changes = self.store.changes
        try:
            return step()
        except (StoreCorruptError, *UNREADABLE) as error:
            self.damaged[what] = f"background work leaves {what} out: {error}"
            if self.store.changes > changes:
                raise
            return 0
