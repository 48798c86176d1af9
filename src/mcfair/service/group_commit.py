"""Serial execution of operations with group commit: all operations of a batch share one transaction.

Any thread may submit operations. They are executed in the order of submission, and the futures of a batch are resolved
after its commit: nothing is acknowledged before it is durable.

Two threads use the engine and the store, one at a time; `owned` is locked while either does. An attached event loop
executes small operations itself, because two threads that compute compete for Python's global interpreter lock. While
the disk is quick, it commits them as well: waking another thread would cost more than the commit. After a commit that
took long, commits are left to the writer thread until the disk has been quick for a while: the loop passes its batch
on, the writer commits it, and meanwhile the loop serves requests and collects the next batch. The writer also executes
what would block the loop, what other threads submit, and maintenance. Neither thread waits for the other. Each tries to
lock `owned`, and when it unlocks it, or passes it on, it notifies the other.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..errors import MCFairError, StoreError, UnavailableError
from .compiling import Compiler
from .core.engine import Engine
from .core.engine_state import WouldBlockError
from .core.rules import NotCompiledError
from .store_health import NOT_WRITABLE, StoreHealth
from .stores import Store, StoreConflictError, StoreCorruptError, StoreUnavailableError, StoreUncertainError
from .work_items import WorkItem, resolve_all, resolve_each

logger = logging.getLogger("mcfair.service")

P = ParamSpec("P")
T = TypeVar("T")

QUEUE = 2_048
"""Default maximum number of queued operations."""

UNCHANGED = f"{NOT_WRITABLE}, and nothing was changed"
STOPPED = "the service has stopped writing because of a fault, and must be started again"
PARTLY = f"{NOT_WRITABLE}, and only the first events were recorded: repeat all, which counts none of them twice"
UNCERTAIN = (
    "the connection to the store was lost: it is not known whether this was recorded; repeat it, a ranking with the "
    "same Idempotency-Key"
)

REST = 9.0
"""Rest after a compaction run that left work behind, relative to its time: it has a tenth of the engine's time."""


TRUSTED_COMMITS = 16
"""Quick commits in a row after which the event loop commits itself."""


class Batch:
    """Operations that share a transaction, when their execution began, and the error that stopped it, if any."""

    __slots__ = ("begun", "error", "items")

    def __init__(self) -> None:
        self.items: list[WorkItem] = []
        self.begun = time.perf_counter()
        self.error: Exception | None = None


class GroupCommit(StoreHealth):
    """Execute operations of an engine serially, and commit them in batches.

    Parameters
    ----------
    store, engine
        The store and the engine; nothing else may use them.
    max_queued
        Maximum number of queued operations; further ones are refused with UnavailableError.
    max_batch, batch_seconds
        Maximum number of operations in one transaction, and the time after which no further one is started in it.
    loop_seconds
        The same time for batches that an attached event loop executes: other callbacks do not run meanwhile.
    quick_seconds
        Longest duration of a quick commit: an attached event loop commits itself while the disk is quick.
    compaction_interval, compaction_seconds
        Interval between compaction runs, and the duration of one: operations wait during it. While there is work left,
        the interval is shorter.
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
        loop_seconds: float = 0.02,
        quick_seconds: float = 0.002,
        compaction_interval: float = 0.25,
        compaction_seconds: float = 0.002,
        maintenance_interval: float = 5.0,
    ) -> None:
        super().__init__(store)
        self.engine, self.max_queued = engine, max_queued
        self.compiler = Compiler(self.enqueue_again)
        self.max_batch, self.batch_seconds, self.loop_seconds = max_batch, batch_seconds, loop_seconds
        self.quick_seconds = quick_seconds
        self.compaction_interval, self.compaction_seconds = compaction_interval, compaction_seconds
        self.maintenance_interval = maintenance_interval
        self.batch_listeners: list[Callable[[int, float], None]] = []
        self.conflict_listeners: list[Callable[[int], None]] = []
        self.queued: deque[WorkItem] = deque()
        self.attached: asyncio.AbstractEventLoop | None = None
        self.turn_due = False  # whether the attached loop will call `take_turn`
        self.closing = False
        # Held to change `attached` and `closing` and to queue, so that nothing is queued after the end.
        self.lock = threading.Lock()
        self.owned = threading.Lock()  # locked while a thread uses the engine and the store
        self.executed: Batch | None = None  # what the loop has passed on: the writer owns the engine from then on
        self.notice = threading.Lock()  # a binary semaphore, unlocked to notify the writer
        self.notice.acquire()
        self.writer_waiting = False  # whether the writer is about to own the engine: the loop lets it
        self.quick_commits = 0  # in a row
        self.stopped = self.cache_stale = False
        now = time.monotonic()
        self.next_compaction, self.next_maintenance = now + compaction_interval, now + maintenance_interval
        self.writer = threading.Thread(target=self.run_writer, name="mcfair-writer", daemon=True)
        self.writer.start()

    # --- submitting --------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit an operation from any thread; the future resolves once its effect is durable."""
        future: Future[T] = Future()
        self.enqueue(WorkItem(work, args, kwargs, future, None))
        return future

    def submit_async(
        self, work: Callable[Concatenate[Engine, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Submit an operation from an event loop; the future resolves once its effect is durable."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self.enqueue(WorkItem(work, args, kwargs, future, loop))
        return future

    def enqueue(self, item: WorkItem) -> None:
        """Queue an operation, and notify the thread that is to execute it."""
        with self.lock:
            self.check_running()
            if len(self.queued) >= self.max_queued:
                raise UnavailableError(f"the queue is full: {self.max_queued:,} operations are waiting")
            item.on_loop = item.loop is not None and item.loop is self.attached and item.small
            self.queued.append(item)
        if not item.on_loop or item.loop is None:
            self.notify_writer()
        elif not self.owned.locked():  # otherwise the writer schedules it
            self.schedule_turn(item.loop)

    def now(self) -> int:
        """Return the time in ms, from any thread."""
        return max(self.engine.latest, self.engine.clock())

    def enqueue_again(self, item: WorkItem) -> None:
        """Queue an operation that was refused until something is compiled; the writer executes it."""
        with self.lock:
            self.check_running()
            item.on_loop = False
            self.queued.append(item)
        self.notify_writer()

    def check_running(self) -> None:
        """Raise UnavailableError if nothing is executed any more."""
        if self.closing or self.stopped_by is not None:
            raise UnavailableError(self.stopped_by or "the service is stopping")

    @property
    def queue_depth(self) -> int:
        """Number of queued operations."""
        return len(self.queued)

    def attach_loop(self) -> None:
        """Attach the running event loop: it executes small operations itself from now on."""
        with self.lock:
            self.attached, self.turn_due = asyncio.get_running_loop(), False

    def detach_loop(self) -> None:
        """Detach the event loop, and leave its operations to the writer."""
        with self.lock:
            self.attached = None
            for each in self.queued.copy():
                each.on_loop = False
        self.notify_writer()

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
        self.notify_writer()
        self.writer.join(timeout)
        self.compiler.close()
        self.store.close()

    # --- the turns of the two threads ---------------------------------------------------------------------------------

    def schedule_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Schedule a turn of the attached loop on its thread, after everything that this iteration has to do.

        So a batch has all operations that arrive together, and responses to the batch before are sent first.
        """
        if not self.turn_due:
            self.turn_due = True
            loop.call_soon(self.take_turn)

    def take_turn(self) -> None:
        """Execute queued operations on the thread of the attached loop, and commit them if the disk is quick.

        Otherwise, and if anything goes wrong, they are passed on to the writer.
        """
        self.turn_due = False
        if not self.queued or self.writer_waiting or not self.owned.acquire(blocking=False):
            return  # the writer schedules the next turn
        batch, committed = Batch(), False
        batch.error = RuntimeError("the event loop was interrupted")  # such as by Ctrl-C, unless the block ends
        self.engine.nonblocking = True
        try:
            error = self.execute_batch(self.take(batch.items, self.loop_seconds, on_loop=True))
            if error is None and self.quick_commits >= TRUSTED_COMMITS:
                self.commit_open()
                committed = True
            batch.error = error
        except Exception as failed:
            batch.error = failed
        finally:
            self.engine.nonblocking = False
            if isinstance(batch.error, WouldBlockError):  # of the last operation: the writer executes it
                blocking = batch.items.pop()
                blocking.on_loop, batch.error = False, None
                self.queued.appendleft(blocking)
            if not committed:
                self.executed = batch
                self.notify_writer()
        if committed:
            self.owned.release()
            self.finish(batch, resolve_each)
            if self.writer_waiting or self.is_writer_needed():
                self.notify_writer()
            elif self.queued and self.attached is not None:
                self.schedule_turn(self.attached)

    def notify_writer(self) -> None:
        """Notify the writer that it has something to do."""
        with suppress(RuntimeError):  # it was notified already
            self.notice.release()

    def run_writer(self) -> None:
        """Write until the end. If a fault stops that, refuse what is queued, and everything from then on."""
        self.in_hand: list[WorkItem] = []
        try:
            self.write_batches()
        except BaseException as error:
            logger.critical("the writer has stopped: %s", type(error).__name__, exc_info=error)
            with self.lock:
                self.stopped_by = STOPPED
            refused = [*self.in_hand, *self.queued]
            for each in refused:
                each.error = UnavailableError(UNCERTAIN if each in self.in_hand else STOPPED)
            resolve_all(refused)

    def write_batches(self) -> None:
        """Commit what the loop has executed; execute and commit other operations; maintain the store in between."""
        while not self.stopped:
            notified = self.notice.acquire(timeout=max(0.0, self.next_compaction - time.monotonic()))
            self.writer_waiting = True  # before `owned` is tried, so that the loop sees it once it has unlocked that
            while self.executed is None and not self.owned.acquire(blocking=False):
                self.notice.acquire()  # the loop executes, and will notify
            self.writer_waiting = False
            if self.executed is not None:
                batch, self.executed = self.executed, None
                self.in_hand = batch.items
                if self.is_writer_needed() and batch.error is None:  # one commit for all
                    batch.error = self.execute(self.take(batch.items, self.batch_seconds))
                self.commit_batch(batch.items, batch.error)
                self.finish(batch)
            elif self.is_writer_needed():
                batch = Batch()
                self.in_hand = batch.items
                self.run_batch(self.take(batch.items, self.batch_seconds), batch.items)
                self.finish(batch)
            if time.monotonic() >= self.next_compaction:
                self.maintain(idle=not notified)
            self.stopped = self.closing and not self.queued
            self.owned.release()
            if self.is_writer_needed():
                self.notify_writer()
            if self.queued and (loop := self.attached) is not None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self.schedule_turn, loop)

    def is_writer_needed(self) -> bool:
        """Return whether an operation is queued that the attached loop will not execute."""
        return any(not each.on_loop for each in self.queued.copy())

    def take(self, items: list[WorkItem], seconds: float, on_loop: bool = False) -> Iterator[WorkItem]:
        """Move queued operations into a batch one by one, for a limited time; if `on_loop`, those for the loop only."""
        end = time.perf_counter() + seconds
        while self.queued and len(items) < self.max_batch and (self.queued[0].on_loop or not on_loop):
            item = self.queued.popleft()
            items.append(item)
            yield item
            if time.perf_counter() > end:
                return

    def finish(self, batch: Batch, resolve: Callable[[list[WorkItem]], None] = resolve_all) -> None:
        """Resolve the futures of a batch, after its commit; queue what needs more behind what others have queued."""
        if batch.items:
            finished = []
            for each in batch.items:
                if isinstance(each.error, NotCompiledError):
                    self.compiler.add(each, each.error)
                elif each.needs_more():
                    self.queued.append(each)
                else:
                    finished.append(each)
            resolve(finished)
            self.notify(self.batch_listeners, len(batch.items), time.perf_counter() - batch.begun)
        self.in_hand = []

    def notify(self, listeners: list[Callable[..., None]], *what: float) -> None:
        """Notify listeners; one that fails is logged, and keeps nobody from being served."""
        for listener in listeners:
            try:
                listener(*what)
            except Exception as error:
                logger.error("a listener failed", exc_info=error)

    # --- batches ------------------------------------------------------------------------------------------------------

    def run_batch(self, queued: Iterator[WorkItem], items: list[WorkItem]) -> None:
        """Execute and commit a batch; iterating over what is queued moves it into the batch."""
        self.commit_batch(items, self.execute_batch(queued))

    def execute_batch(self, items: Iterator[WorkItem]) -> Exception | None:
        """Execute operations in a new transaction and leave it open; return the error that stopped it, if any."""
        try:
            self.store.begin()
            self.recover()
            self.changes_before = self.store.changes
        except Exception as error:
            return self.drain(items, error)
        return self.execute(items)

    def execute(self, items: Iterator[WorkItem]) -> Exception | None:
        """Execute operations in the open transaction; return the error that stopped it, if any: see `execute_one`."""
        try:
            for each in items:
                self.execute_one(each)
                if isinstance(each.error, StoreCorruptError):
                    self.log_unreadable(each.error)
        except Exception as error:
            return self.drain(items, error)
        return None

    def drain(self, items: Iterator[WorkItem], error: Exception) -> Exception:
        """Return the error; if the store has failed, what else is queued shares the fate of the batch."""
        if is_store_failure(error):
            for _ in items:
                pass
        return error

    def execute_one(self, item: WorkItem, **options: Any) -> set[int]:
        """Execute an operation; return the queries it touched.

        An operation that raises one of our errors has written nothing, so it fails alone, and so does one that found
        damaged data before it wrote. Other errors may leave a partial write behind and therefore stop the batch.
        """
        touched: set[int] = set()
        self.engine.touched, changes = touched, self.store.changes
        item.error = None
        try:
            if item.work is Engine.feedback:
                options["sliced"] = True
            item.result = item.work(self.engine, *item.args, **{**item.kwargs, **options})
        except StoreError as error:
            if not isinstance(error, StoreCorruptError) or self.store.changes > changes:
                raise
            self.engine.evict_all(touched)  # a ledger may have changed before the damage was found
            item.error = error
        except MCFairError as error:
            item.error = error
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as error:  # such as SystemExit in a policy, which must not end this thread
            raise RuntimeError(f"an operation was ended by {type(error).__name__}") from error
        return touched

    def commit_batch(self, items: list[WorkItem], error: Exception | None) -> None:
        """Commit the batch, or roll it back: all operations that did not fail on their own become durable, or none."""
        try:
            if error is not None:
                raise error
            self.commit_open()
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

    def commit_open(self) -> None:
        """Commit the open transaction, and note whether the disk was quick."""
        wrote, begun = self.store.changes > self.changes_before, time.perf_counter()
        self.store.commit()
        if wrote:  # a commit without changes does not touch the disk, so it proves nothing
            quick = time.perf_counter() - begun < self.quick_seconds
            self.quick_commits = self.quick_commits + 1 if quick else 0
            self.end_episode()

    def refuse(self, items: list[WorkItem], error: Exception) -> None:
        """Fail operations because the store cannot be written."""
        for each in items:
            text = UNCERTAIN if isinstance(error, StoreUncertainError) else PARTLY if each.results else UNCHANGED
            each.error = UnavailableError(text)

    def roll_back(self, error: Exception) -> None:
        """Roll back to the committed state; log the error if the store caused it."""
        self.quick_commits = 0
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
        begun = time.monotonic()
        try:
            # If this work is undone by a power failure it is repeated, so rankings need not wait for its way to disk.
            self.store.begin(durable=self.write_error is not None)
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
        now = time.monotonic()
        rest = REST * (now - begun) if self.engine.is_behind else self.compaction_interval
        self.next_compaction = now + min(rest, self.compaction_interval)


def is_store_failure(error: Exception) -> bool:
    """Return whether an error means that the store cannot be written, whatever the operation."""
    return isinstance(error, StoreUnavailableError | OSError)
