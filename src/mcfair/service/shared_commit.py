"""Group commit over a store that several instances share.

Rankings and feedback are decided optimistically, on cached ledgers, and committed in batches. The queries to which
another instance wrote first have lost; the operations that touched them, and only those, are executed again after
their rows were locked. Operations that touch everything, such as a change of the rules, are executed alone, while the
other instances wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ..errors import UnavailableError
from .core.engine import Engine
from .group_commit import GroupCommit, is_store_failure
from .stores import StoreConflictError, StoreCorruptError
from .wire import FeedbackResults
from .work_items import WorkItem

OPTIMISTIC = {Engine.rank, Engine.feedback}
CONCURRENT = {
    Engine.now,
    Engine.turn,
    Engine.install,
    Engine.install_base,
    Engine.install_snapshot,
    Engine.finish_apart,
}
"""Operations that are executed in batches, and those that keep no other instance waiting, besides those that are
declared to read."""

ATTEMPTS = 10
"""Maximum number of attempts to execute an operation. The second one can lose only if a query is created or deleted at
the same time."""


class SharedGroupCommit(GroupCommit):
    """Execute operations of an engine serially, and commit them in batches, beside other instances.

    The writer executes all of them, because every statement may wait for the network.
    """

    def attach_loop(self) -> None:
        """Attach no event loop: it would wait for the network."""

    def run_batch(self, queued: Iterator[WorkItem], items: list[WorkItem]) -> None:
        """Execute and commit operations in order: rankings and feedback in batches, everything else alone."""
        for _ in queued:
            pass
        for optimistic, some in groupby(items, key=lambda each: each.work in OPTIMISTIC):
            if optimistic:
                self.execute_optimistically(list(some))
            else:
                for each in some:
                    concurrent = each.work in CONCURRENT or getattr(each.work, "reading", False)
                    self.execute_alone(each, exclusive=not concurrent)

    def execute_optimistically(self, items: list[WorkItem]) -> None:
        """Execute and commit a batch; execute the operations on queries that have lost again, and only those."""
        lost: frozenset[int] = frozenset()
        for _ in range(ATTEMPTS):
            try:
                self.store.begin(lock=lost)
                self.prepare_engine(optimistic=not lost)
                if not lost:
                    self.engine.prefetch(each.args[0] for each in items if each.work is Engine.feedback)
                touched = [self.execute_again(each, lost) for each in items]
                changes = self.store.changes
                lost = frozenset(self.store.commit())
            except Exception as error:
                self.roll_back(error)
                if is_store_failure(error):
                    self.refuse(items, error)
                else:  # perhaps a state that was read while it changed: decide again while nobody else writes
                    for each in items:
                        self.execute_alone(each, exclusive=True)
                return
            if changes > self.changes_before:
                self.end_episode()
            damaged = [each for each in items if isinstance(each.error, StoreCorruptError)]
            self.engine.evict_all(lost)
            items = [
                each for each, numbers in zip(items, touched, strict=True) if numbers & lost and each not in damaged
            ]
            for each in damaged:  # perhaps a state that was read while it changed
                self.execute_alone(each, exclusive=True)
            if not lost:
                return
            self.notify(self.conflict_listeners, len(lost))
        for each in items:
            each.error = UnavailableError("other instances kept changing this query, and nothing was changed")

    def prepare_engine(self, *, optimistic: bool) -> None:
        """Bring the engine up to date at the beginning of a transaction."""
        self.recover()
        self.engine.refresh()
        self.engine.optimistic = optimistic
        self.changes_before = self.store.changes

    def execute_again(self, item: WorkItem, lost: frozenset[int]) -> set[int]:
        """Execute an operation, of feedback only the events of queries that have lost, if any have."""
        options: dict[str, Any] = {}
        if lost and item.work is Engine.feedback and isinstance(item.result, FeedbackResults):
            options["kept"] = self.engine.kept_results(item.args[0], item.result, lost)
        return self.execute_one(item, **options)

    def execute_alone(self, item: WorkItem, *, exclusive: bool) -> None:
        """Execute an operation in a transaction of its own, if `exclusive` while no other instance writes."""
        try:
            self.store.begin(exclusive=exclusive)
            self.prepare_engine(optimistic=False)
            self.execute_one(item)
            changes = self.store.changes
            if self.store.commit():
                raise StoreConflictError("another instance wrote at the same time")
            if changes > self.changes_before:
                self.end_episode()
            if isinstance(item.error, StoreCorruptError) and exclusive:
                self.log_unreadable(item.error)
            elif isinstance(item.error, StoreCorruptError):
                self.execute_alone(item, exclusive=True)
        except Exception as error:
            self.roll_back(error)
            if is_store_failure(error):
                self.refuse([item], error)
            elif exclusive:
                item.error = error
            else:
                self.execute_alone(item, exclusive=True)
        finally:
            self.engine.optimistic = False
