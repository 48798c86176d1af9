"""Serial execution of operations with group commit: all operations of a batch share one transaction.

Any thread may submit operations. The writer thread executes everything that is queued as one batch in one transaction,
and resolves the futures after the commit: nothing is acknowledged before it is durable.

An event loop may attach itself and execute small operations on its own thread, because handing each operation to
another thread and back costs more than ranking does: both threads compete for Python's global interpreter lock. The
writer thread commits, because a commit may hang with the disk. While commits are fast, the loop waits for it, for a
bounded time: without competition for the lock the commit ends sooner. When commits are slow, and for large operations,
the loop goes on, so that a slow disk does not block requests that do not need it.

Exactly one thread uses the engine and the store at any time. Without an attached loop it is the writer. With a loop,
the single variable `engine_busy` records the owner. Only the loop thread changes it: it sets it before it starts a
batch or hands one to the writer, and clears it when the batch is finished (in `batch_done`, called back on the loop).
While it is set, the loop starts no other batch.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from ..errors import MCFairError, StoreError, UnavailableError
from .engine import Engine
from .stores import Store, StoreConflictError, StoreUnavailableError, StoreUncertainError

__all__ = ["QUEUE", "GroupCommit"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_BATCH = 256
"""Maximum number of operations in one transaction."""

QUEUE = 2_048
"""Default maximum number of queued operations."""

COMPACTION_INTERVAL, COMPACTION_SECONDS = 0.25, 0.005
"""Interval between compaction runs, and the duration of one: operations wait during it."""

MAINTENANCE_INTERVAL = 5.0
"""Maximum interval between maintenance runs of the store; under light load they run at every compaction."""

SMALL_ITEMS, SMALL_EVENTS = 1 << 16, 50
"""Largest operations that an event loop executes itself: bytes of the items to rank, number of feedback events."""

BATCH_SECONDS = 0.005
"""Maximum time that an event loop spends on one batch before other callbacks run."""

FAST_COMMIT, COMMIT_AVERAGE_WINDOW = 0.003, 16
"""Mean commit time, in seconds, up to which an event loop waits for commits; and the window of the moving average."""

COMMIT_WAIT = 0.02
"""Maximum time that an event loop waits for one commit, in seconds; other callbacks do not run meanwhile."""

NOT_WRITABLE = "the store cannot be written"
"""The text for clients and probes. The cause may name paths, so it is logged instead."""

UNCHANGED = f"{NOT_WRITABLE}, and nothing was changed"
UNCERTAIN = (
    "the connection to the store was lost: it is not known whether this was recorded; repeat it, a ranking with the "
    "same Idempotency-Key"
)

MAX_LOGGED = 1_000
"""Maximum number of different causes that are logged for data that cannot be read."""

logger = logging.getLogger("mcfair.service")


class WorkItem:
    """A queued operation of the engine and the future of its result."""

    __slots__ = ("args", "error", "future", "kwargs", "loop", "result", "work")

    def __init__(self, work: Callable[..., Any], args: Any, kwargs: Any, future: Any, loop: Any) -> None:
        self.work, self.args, self.kwargs, self.future, self.loop = work, args, kwargs, future, loop
        self.result: Any = None
        self.error: Exception | None = None

    @property
    def small(self) -> bool:
        """Whether an event loop may execute it without delaying other callbacks noticeably."""
        if self.work is Engine.rank:
            return len(self.args[0].items) <= SMALL_ITEMS
        return self.work is Engine.feedback and len(self.args[0]) <= SMALL_EVENTS

    def resolve(self) -> None:
        """Set the result or the exception of the future; do nothing if the future was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Batch(NamedTuple):
    """The operations of one transaction, as an event loop hands them to the writer.

    If `executed`, the transaction is open and the writer commits it, or rolls it back because of `error`; otherwise
    the writer executes the operations first. If the loop waits for the commit, `handover` decides which thread
    finishes the batch.
    """

    items: list[WorkItem]
    executed: bool
    error: Exception | None
    handover: Handover | None = None


class Handover:
    """Decide which thread finishes a batch: the loop that waits for its commit, or the writer after the loop gave up.

    The thread that removes the only claim decides; removing it is atomic. A bare lock signals the end of the commit,
    because a condition variable would cost more than everything else here.
    """

    def __init__(self) -> None:
        self.claim = [True]
        self.committed = threading.Lock()
        self.committed.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait for the commit on the thread of the loop; return whether the loop finishes the batch."""
        return self.committed.acquire(timeout=seconds) or not self.decide()

    def commit_ended(self) -> bool:
        """Report the end of the commit on the writer thread; return whether the loop finishes the batch."""
        waiting = self.decide()
        self.committed.release()
        return waiting

    def decide(self) -> bool:
        """Remove the claim; return whether it was still there."""
        try:
            return self.claim.pop()
        except IndexError:
            return False


class GroupCommit:
    """Execute operations of an engine serially, and commit them in batches.

    Parameters
    ----------
    store, engine
        The store and the engine; nothing else may use them.
    max_queued
        Maximum number of queued operations; further ones are refused with UnavailableError.
    """

    def __init__(self, store: Store, engine: Engine, max_queued: int = QUEUE) -> None:
        self.store, self.engine, self.max_queued = store, engine, max_queued
        self.batch_listeners: list[Callable[[int, float], None]] = []
        self.conflict_listeners: list[Callable[[int], None]] = []
        self.write_error: str | None = None  # why the last write failed; None if it succeeded
        self.unreadable: set[str] = set()  # damage that was logged: it does not go away while the process runs
        self.closing = self.cache_stale = False
        self.lock = threading.Lock()
        self.inbox: queue.SimpleQueue[WorkItem | Batch | None] = queue.SimpleQueue()
        self.loop: asyncio.AbstractEventLoop | None = None
        # Only the thread of the attached loop uses the attributes below.
        self.pending: deque[WorkItem] = deque()
        self.engine_busy = self.step_scheduled = self.detaching = self.active = False
        self.idle = True
        self.commit_seconds = 0.0
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
        self.enqueue(WorkItem(work, args, kwargs, future, None))
        return future

    def submit_async(
        self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:  # fmt: skip
        """Submit an operation from an event loop; the future resolves once its effect is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        item = WorkItem(work, args, kwargs, future, loop)
        if loop is self.loop:
            self.accept(item)
        else:
            self.enqueue(item)
        return future

    def enqueue(self, item: WorkItem) -> None:
        """Queue an operation, or refuse it."""
        with self.lock:  # `close` sets `closing` under this lock, so nothing can be queued behind its end marker
            self.check_open()
            if self.loop is None:
                self.inbox.put(item)
            else:
                self.loop.call_soon_threadsafe(self.accept_from_thread, item)

    def check_open(self) -> None:
        """Raise UnavailableError if the service is stopping or the queue is full."""
        if self.closing:
            raise UnavailableError("the service is stopping")
        if self.queue_depth >= self.max_queued:
            raise UnavailableError(f"the queue is full: {self.max_queued:,} operations are waiting")

    @property
    def queue_depth(self) -> int:
        """Number of queued operations."""
        return self.inbox.qsize() if self.loop is None else len(self.pending)

    # --- executing in an event loop ----------------------------------------------------------------------------------

    def attach_loop(self) -> None:
        """Attach the running event loop: it executes small operations itself from now on."""
        with self.lock:
            self.loop, self.engine_busy = asyncio.get_running_loop(), True
            # The loop owns the engine only after the writer has finished everything queued before this empty batch.
            self.inbox.put(Batch([], True, None))
        self.schedule_maintenance()

    async def detach_loop(self) -> None:
        """Detach the event loop: the writer executes everything again, pending operations included."""
        self.detaching = True
        while self.engine_busy:
            await asyncio.sleep(0.001)
        with self.lock:
            self.loop, self.detaching = None, False
            for item in self.pending:
                self.inbox.put(item)
            self.pending.clear()
            self.inbox.put(Batch([], True, None))  # wakes the writer, which waits without a timeout while attached

    def accept(self, item: WorkItem) -> None:
        """Accept an operation on the thread of the attached loop."""
        self.check_open()
        self.pending.append(item)
        self.schedule_step()

    def accept_from_thread(self, item: WorkItem) -> None:
        """Accept an operation from another thread; refuse it through its future, because its caller has gone on."""
        try:
            if self.loop is None:
                self.enqueue(item)
            else:
                self.accept(item)
        except UnavailableError as error:
            item.error = error
            item.resolve()

    def step(self) -> None:
        """Execute a batch of small pending operations, or hand a batch of large ones to the writer.

        Operations start in the order in which they were submitted: a batch ends where the size class changes.
        """
        self.step_scheduled = False
        if self.engine_busy or self.detaching or not self.pending:
            return
        self.engine_busy = self.active = True
        items: list[WorkItem] = []
        if self.is_small(self.pending[0]):
            error = self.execute_batch(self.take_small(items))
            if error is not None:  # the pending operations share its fate: see `commit_batch`
                items.extend(self.pending)
                self.pending.clear()
            if error is None and self.commit_seconds < FAST_COMMIT:
                self.await_commit(items)
            else:
                self.inbox.put(Batch(items, True, error))
        else:
            while self.pending and len(items) < MAX_BATCH and not self.is_small(self.pending[0]):
                items.append(self.pending.popleft())
            self.inbox.put(Batch(items, False, None))

    def is_small(self, item: WorkItem) -> bool:
        """Return whether the thread of the loop may execute an operation."""
        return item.small

    def take_small(self, items: list[WorkItem]) -> Iterator[WorkItem]:
        """Move small pending operations into a batch one by one, for a limited time."""
        end = time.perf_counter() + BATCH_SECONDS
        while self.pending and len(items) < MAX_BATCH and self.is_small(self.pending[0]):
            items.append(self.pending.popleft())
            yield items[-1]
            if time.perf_counter() > end:
                return

    def await_commit(self, items: list[WorkItem]) -> None:
        """Commit a batch on the writer thread and wait for it; if that takes long, the writer calls back later."""
        handover = Handover()
        self.inbox.put(Batch(items, True, None, handover))
        if handover.wait(COMMIT_WAIT):
            self.engine_busy = False
            resolve_each(items)
            self.schedule_step()

    def schedule_step(self) -> None:
        """Schedule a step for the next iteration of the loop, so that requests of this iteration share its batch."""
        if self.pending and not self.engine_busy and not self.step_scheduled and self.loop is not None:
            self.step_scheduled = True
            self.loop.call_soon(self.step)

    def batch_done(self, items: list[WorkItem]) -> None:
        """Reclaim the engine from the writer: resolve the futures of its batch and start the next one."""
        self.engine_busy = False
        resolve_each(items)
        self.step()

    def schedule_maintenance(self) -> None:
        """Hand an empty batch to the writer periodically, so that compaction runs on an idle service, too."""
        if self.loop is not None:
            if not self.engine_busy and not self.detaching:
                self.engine_busy, self.idle, self.active = True, not self.active, False
                self.inbox.put(Batch([], True, None))
            self.loop.call_later(COMPACTION_INTERVAL, self.schedule_maintenance)

    # --- the writer thread -------------------------------------------------------------------------------------------

    def run_writer(self) -> None:
        """Execute what is queued, batch by batch; resolve the futures of a batch only after its commit."""
        now = time.monotonic()
        self.next_compaction, self.next_maintenance = now + COMPACTION_INTERVAL, now + MAINTENANCE_INTERVAL
        stopping = False
        while not stopping:
            taken = self.take()
            stopping = None in taken
            items = [each for each in taken if isinstance(each, WorkItem)]
            if items:
                with self.timed(items):
                    self.execute_and_commit(items)
                    resolve_all(items)
            for each in taken:
                if isinstance(each, Batch):
                    self.finish_batch(each)
            if self.loop is None and not stopping:
                self.maintain_if_due(idle=not items)

    def take(self) -> list[WorkItem | Batch | None]:
        """Wait for work and return what is queued, up to a full batch; return nothing if compaction is due."""
        taken: list[WorkItem | Batch | None] = []
        timeout = max(0.0, self.next_compaction - time.monotonic()) if self.loop is None else None
        with suppress(queue.Empty):
            taken.append(self.inbox.get(timeout=timeout))
            while len(taken) < MAX_BATCH:
                taken.append(self.inbox.get_nowait())
        return taken

    def finish_batch(self, batch: Batch) -> None:
        """Finish a batch of the attached loop, and return the engine to the loop."""
        with self.timed(batch.items):
            if batch.executed:
                self.commit_batch(batch.items, batch.error)
            else:
                self.execute_and_commit(batch.items)
        if batch.handover is not None and batch.handover.commit_ended():
            return
        unresolved = batch.items
        if time.monotonic() >= self.next_compaction:
            resolve_all(unresolved)
            unresolved = []
            self.maintain_if_due(idle=self.idle and not batch.items)
        try:
            if self.loop is None:
                resolve_all(unresolved)
            else:
                self.loop.call_soon_threadsafe(self.batch_done, unresolved)
        except RuntimeError:  # the loop was closed without being detached
            self.loop = None
            resolve_all(unresolved)

    @contextmanager
    def timed(self, items: list[WorkItem]) -> Iterator[None]:
        """Report the size and duration of a batch to the listeners."""
        begun = time.perf_counter()
        yield
        if items:
            for listener in self.batch_listeners:
                listener(len(items), time.perf_counter() - begun)

    def execute_and_commit(self, items: list[WorkItem]) -> None:
        """Execute and commit a batch: all operations that did not fail on their own become durable, or none."""
        self.commit_batch(items, self.execute_batch(items))

    def execute_batch(self, items: Iterable[WorkItem]) -> Exception | None:
        """Execute operations in a new transaction and leave it open; return the error that stopped it, if any.

        An operation that raises one of our errors has written nothing, so it fails alone. StoreError and unexpected
        errors may leave a partial write behind and therefore stop the batch.
        """
        try:
            self.store.begin()
            self.recover()
            self.changes_before = self.store.changes
            for each in items:
                each.error = None
                try:
                    each.result = each.work(self.engine, *each.args, **each.kwargs)
                except StoreError:
                    raise
                except MCFairError as error:
                    each.error = error
        except Exception as error:
            return error
        return None

    def commit_batch(self, items: list[WorkItem], error: Exception | None) -> None:
        """Commit the batch, or roll it back."""
        try:
            if error is not None:
                raise error
            if items:
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
                    self.execute_and_commit([each])
            else:
                items[0].error = error

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

    def log_unreadable(self, error: Exception) -> None:
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

    def recover(self) -> None:
        """Drop the engine's cache after a rollback; if that fails, the next transaction tries again."""
        if self.cache_stale:
            self.engine.drop_cache()
            self.cache_stale = False

    def maintain_if_due(self, idle: bool) -> None:
        """Run compaction, and maintenance if idle or overdue; if the last write failed, test the store again."""
        if time.monotonic() < self.next_compaction:
            return
        try:
            self.store.begin()
            self.recover()
            if self.write_error is not None:
                self.store.probe()
            self.engine.compact_expired(COMPACTION_SECONDS)
            self.store.commit()
            if idle or time.monotonic() >= self.next_maintenance:
                self.store.maintain()
                self.next_maintenance = time.monotonic() + MAINTENANCE_INTERVAL
            self.end_episode()
        except Exception as error:
            self.roll_back(error)
        self.next_compaction = time.monotonic() + COMPACTION_INTERVAL

    def close(self, timeout: float | None = None) -> None:
        """Execute what is queued, then close the store; refuse later operations.

        Parameters
        ----------
        timeout
            Maximum time to wait for the writer thread, in seconds.
        """
        if self.loop is not None and not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self.detach_loop(), self.loop).result(timeout)
        with self.lock:
            if self.closing:
                return
            self.closing = True
            for item in self.pending:  # left by a loop that was closed without being detached
                self.inbox.put(item)
            self.inbox.put(None)
        self.writer.join(timeout)
        self.store.close()


def is_store_failure(error: Exception) -> bool:
    """Return whether an error means that the store cannot be written, whatever the operation."""
    return isinstance(error, StoreUnavailableError | OSError)


def resolve_all(items: list[WorkItem]) -> None:
    """Resolve futures from the writer thread; those of one event loop with a single callback."""
    loops: dict[Any, list[WorkItem]] = {}
    for each in items:
        if each.loop is None:
            each.resolve()
        else:
            loops.setdefault(each.loop, []).append(each)
    for loop, those in loops.items():
        with suppress(RuntimeError):  # the loop is closed, and nothing awaits the results
            loop.call_soon_threadsafe(resolve_each, those)


def resolve_each(items: list[WorkItem]) -> None:
    """Resolve futures on the thread of their event loop."""
    for each in items:
        each.resolve()
