"""Serial execution of operations with group commit: all operations of a batch share one transaction.

Any thread may submit operations. One thread, the writer, uses the engine and the store, and nothing else does. It
executes what is queued as one batch in one transaction, and resolves the futures after the commit: nothing is
acknowledged before it is durable.

An event loop that is attached hands over the operations of one iteration together, and waits for the writer: while
both threads compute, they compete for Python's global interpreter lock, and everything takes longer. The wait is
bounded: if a disk hangs, the loop goes on, and the writer calls back later. While commits are slow, the loop waits for
the execution of a batch only.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from enum import Enum, auto
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import MCFairError, StoreError, UnavailableError
from .core.engine import Engine
from .handover import AttachedLoop, WorkItem, resolve_all
from .stores import Store, StoreConflictError, StoreCorruptError, StoreUnavailableError, StoreUncertainError

__all__ = ["QUEUE", "GroupCommit"]

P = ParamSpec("P")
T = TypeVar("T")

QUEUE = 2_048
"""Default maximum number of queued operations."""

COMMIT_AVERAGE_WINDOW = 16
"""Window of the moving average of the commit time."""

NOT_WRITABLE = "the store cannot be written"
"""The text for clients and probes. The cause may name paths, so it is logged instead."""

UNCHANGED = f"{NOT_WRITABLE}, and nothing was changed"
UNCERTAIN = (
    "the connection to the store was lost: it is not known whether this was recorded; repeat it, a ranking with the "
    "same Idempotency-Key"
)

CATCH_UP = 5
"""Factor by which compaction runs more often until it has caught up; it then has a tenth of the engine's time."""

MAX_LOGGED = 1_000
"""Maximum number of different causes that are logged for data that cannot be read."""

logger = logging.getLogger("mcfair.service")


class Phase(Enum):
    """The state of the writer, which alone changes it."""

    WAITING = auto()
    EXECUTING = auto()
    COMMITTING = auto()
    MAINTAINING = auto()


class GroupCommit:
    """Execute operations of an engine serially, and commit them in batches.

    Parameters
    ----------
    store, engine
        The store and the engine; nothing else may use them.
    max_queued
        Maximum number of queued operations; further ones are refused with UnavailableError.
    max_batch, batch_seconds
        Maximum number of operations in one transaction, and the time after which no further one is started in it.
    loop_wait
        Maximum time that an attached event loop waits for a batch, in seconds; other callbacks do not run meanwhile.
    fast_commit
        Mean commit time, in seconds, up to which an attached event loop waits for commits, too.
    compaction_interval, compaction_seconds
        Interval between compaction runs, and the duration of one: operations wait during it.
    maintenance_interval
        Maximum interval between maintenance runs of the store; if nothing is queued they run at every compaction.
    """

    def __init__(
        self,
        store: Store,
        engine: Engine,
        max_queued: int = QUEUE,
        *,
        max_batch: int = 256,
        batch_seconds: float = 0.01,
        loop_wait: float = 0.02,
        fast_commit: float = 0.003,
        compaction_interval: float = 0.25,
        compaction_seconds: float = 0.005,
        maintenance_interval: float = 5.0,
    ) -> None:
        self.store, self.engine, self.max_queued = store, engine, max_queued
        self.max_batch, self.batch_seconds = max_batch, batch_seconds
        self.loop_wait, self.fast_commit = loop_wait, fast_commit
        self.compaction_interval, self.compaction_seconds = compaction_interval, compaction_seconds
        self.maintenance_interval = maintenance_interval
        self.batch_listeners: list[Callable[[int, float], None]] = []
        self.conflict_listeners: list[Callable[[int], None]] = []
        self.inbox: queue.SimpleQueue[WorkItem | None] = queue.SimpleQueue()
        self.attached: AttachedLoop | None = None
        self.closing = False
        # Held to change `attached` and `closing` and to queue, so that nothing is queued behind the end marker.
        self.lock = threading.Lock()
        self.write_error: str | None = None  # why the last write failed; None if it succeeded
        self.unreadable: set[str] = set()  # damage that was logged: it does not go away while the process runs
        # Only the writer changes the attributes below.
        self.phase = Phase.WAITING
        self.stopped = self.cache_stale = False
        self.commit_seconds = 0.0  # moving average
        now = time.monotonic()
        self.next_compaction, self.next_maintenance = now + compaction_interval, now + maintenance_interval
        self.writer = threading.Thread(target=self.run_writer, name="mcfair-writer", daemon=True)
        self.writer.start()

    @property
    def store_error(self) -> str | None:
        """A text for clients if the store cannot be written now, else None. The log has the cause."""
        if self.write_error is None:
            try:
                self.store.check_attached()
            except StoreUnavailableError as error:
                self.begin_episode(error)
        return None if self.write_error is None else NOT_WRITABLE

    # --- submitting --------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit an operation from any thread; the future resolves once its effect is durable."""
        future: Future[T] = Future()
        with self.lock:
            self.check_open()
            self.inbox.put(WorkItem(work, args, kwargs, future, None))
        return future

    def submit_async(
        self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Submit an operation from an event loop; the future resolves once its effect is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self.lock:
            self.check_open()
            if self.attached is not None and self.attached.loop is loop:
                self.attached.collect(WorkItem(work, args, kwargs, future, self.attached))
            else:
                self.inbox.put(WorkItem(work, args, kwargs, future, loop))
        return future

    def check_open(self) -> None:
        """Raise UnavailableError if the service is stopping or the queue is full."""
        if self.closing:
            raise UnavailableError("the service is stopping")
        if self.queue_depth >= self.max_queued:
            raise UnavailableError(f"the queue is full: {self.max_queued:,} operations are waiting")

    @property
    def queue_depth(self) -> int:
        """Number of queued operations."""
        attached = self.attached
        return self.inbox.qsize() + (0 if attached is None else len(attached.collected))

    def attach_loop(self) -> None:
        """Attach the running event loop: it waits for its operations from now on, for a bounded time."""
        with self.lock:
            self.attached = AttachedLoop(
                asyncio.get_running_loop(),
                self.inbox,
                self.lock,
                self.loop_wait,
                lambda: self.phase is Phase.WAITING,
            )

    def detach_loop(self) -> None:
        """Detach the event loop; its operations are executed, but it does not wait for them any more."""
        with self.lock:
            if self.attached is not None:
                self.attached.queue_collected()
            self.attached = None

    def close(self, timeout: float | None = None) -> None:
        """Execute what is queued, then close the store; refuse later operations.

        Parameters
        ----------
        timeout
            Maximum time to wait for the writer thread, in seconds.
        """
        self.detach_loop()
        with self.lock:
            if self.closing:
                return
            self.closing = True
            self.inbox.put(None)
        self.writer.join(timeout)
        self.store.close()

    # --- the writer thread -------------------------------------------------------------------------------------------

    def run_writer(self) -> None:
        """Execute what is queued, batch by batch; resolve the futures of a batch only after its commit."""
        while not self.stopped:
            self.phase = Phase.WAITING
            try:
                first = self.inbox.get(timeout=max(0.0, self.next_compaction - time.monotonic()))
            except queue.Empty:
                self.maintain(idle=True)
                continue
            items: list[WorkItem] = []
            begun = time.perf_counter()
            self.run_batch(self.take(first, items), items)
            resolve_all(items)
            if items:
                for listener in self.batch_listeners:
                    listener(len(items), time.perf_counter() - begun)
            if time.monotonic() >= self.next_compaction:
                self.maintain(idle=False)

    def take(self, first: WorkItem | None, items: list[WorkItem]) -> Iterator[WorkItem]:
        """Move queued operations into a batch one by one, for a limited time; stop at the end marker."""
        end = time.perf_counter() + self.batch_seconds
        item = first
        while item is not None:
            items.append(item)
            yield item
            if len(items) >= self.max_batch or time.perf_counter() > end:
                return
            try:
                item = self.inbox.get_nowait()
            except queue.Empty:
                return
        self.stopped = True

    def run_batch(self, queued: Iterator[WorkItem], items: list[WorkItem]) -> None:
        """Execute and commit a batch; iterating over what is queued moves it into the batch."""
        self.commit_batch(items, self.execute_batch(queued))

    def execute_batch(self, items: Iterator[WorkItem]) -> Exception | None:
        """Execute operations in a new transaction and leave it open; return the error that stopped it, if any.

        See `execute_one` for the errors that do not stop it.
        """
        self.phase = Phase.EXECUTING
        try:
            self.store.begin()
            self.recover()
            self.changes_before = self.store.changes
            for each in items:
                self.execute_one(each)
                if isinstance(each.error, StoreCorruptError):
                    self.log_unreadable(each.error)
        except Exception as error:
            if is_store_failure(error):
                for _ in items:  # what else is queued shares the fate of the batch
                    pass
            return error
        return None

    def execute_one(self, item: WorkItem, **options: Any) -> set[int]:
        """Execute an operation; return the queries it touched.

        An operation that raises one of our errors has written nothing, so it fails alone, and so does one that found
        damaged data before it wrote. Other errors may leave a partial write behind and therefore stop the batch.
        """
        touched: set[int] = set()
        self.engine.touched, changes = touched, self.store.changes
        item.error = None
        try:
            item.result = item.work(self.engine, *item.args, **{**item.kwargs, **options})
        except StoreError as error:
            if not isinstance(error, StoreCorruptError) or self.store.changes > changes:
                raise
            self.engine.evict_all(touched)  # a ledger may have changed before the damage was found
            item.error = error
        except MCFairError as error:
            item.error = error
        except Exception:
            raise
        except BaseException as error:  # such as SystemExit in a policy, which must not end this thread
            raise RuntimeError(f"an operation was ended by {type(error).__name__}") from error
        return touched

    def commit_batch(self, items: list[WorkItem], error: Exception | None) -> None:
        """Commit the batch, or roll it back: all operations that did not fail on their own become durable, or none."""
        self.phase = Phase.COMMITTING
        if self.attached is not None and self.commit_seconds >= self.fast_commit:
            self.attached.end_wait([])
        try:
            if error is not None:
                raise error
            wrote = self.store.changes > self.changes_before
            begun = time.perf_counter()
            self.store.commit()
            if wrote:  # a commit without changes does not touch the disk, so it proves nothing
                self.end_episode()
                self.commit_seconds += (time.perf_counter() - begun - self.commit_seconds) / COMMIT_AVERAGE_WINDOW
        except Exception as error:
            self.roll_back(error)
            if is_store_failure(error):
                self.refuse(items, error)
            elif len(items) > 1:  # isolate the operation that failed: repeat each in a transaction of its own
                for each in items:
                    self.commit_batch([each], self.execute_batch(iter([each])))
            else:
                for each in items:
                    each.error = error

    def refuse(self, items: list[WorkItem], error: Exception) -> None:
        """Fail operations because the store cannot be written."""
        for each in items:
            each.error = UnavailableError(UNCERTAIN if isinstance(error, StoreUncertainError) else UNCHANGED)

    def roll_back(self, error: Exception) -> None:
        """Roll back to the committed state; log the error if the store caused it."""
        if is_store_failure(error):
            self.begin_episode(error)
        elif isinstance(error, StoreError) and not isinstance(error, StoreConflictError):
            self.log_unreadable(error)
        self.cache_stale = True
        try:
            self.store.rollback()
            self.recover()
        except Exception as further:
            self.begin_episode(further)

    def recover(self) -> None:
        """Drop the engine's cache after a rollback; if that fails, the next transaction tries again."""
        if self.cache_stale:
            self.engine.drop_cache()
            self.cache_stale = False

    def maintain(self, idle: bool) -> None:
        """Run compaction, and maintenance if idle or overdue; if the last write failed, test the store again."""
        self.phase = Phase.MAINTAINING
        try:
            self.store.begin()
            self.recover()
            if self.write_error is not None:
                self.store.probe()
            self.engine.compact_expired(self.compaction_seconds)
            self.store.commit()
            for cause in self.engine.damaged.values():
                self.log_unreadable(cause)
            if idle or time.monotonic() >= self.next_maintenance:
                self.store.maintain()
                self.next_maintenance = time.monotonic() + self.maintenance_interval
            self.end_episode()
        except Exception as error:
            self.roll_back(error)
        self.next_compaction = time.monotonic() + self.compaction_interval / (CATCH_UP if self.engine.is_behind else 1)

    # --- the log of failures -----------------------------------------------------------------------------------------

    def log_unreadable(self, error: Exception | str) -> None:
        """Log damaged or unreadable data, each cause once."""
        if str(error) not in self.unreadable and len(self.unreadable) < MAX_LOGGED:
            self.unreadable.add(str(error))
            logger.error("stored data cannot be read: %s", error)

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


def is_store_failure(error: Exception) -> bool:
    """Return whether an error means that the store cannot be written, whatever the operation."""
    return isinstance(error, StoreUnavailableError | OSError)
